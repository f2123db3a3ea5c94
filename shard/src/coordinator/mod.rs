//! The coordinators: state machines whose records live in internal topics, in Kafka's own formats. One instance serves one
//! partition of its topic, on the shard that owns it; the partition of an id never changes
//! ([`protocol::hash::partition_for_id`]).
//!
//! ```text
//! request ─ handle ─► reply at once
//!                 └─► records ─ appended ─ high watermark ─ handle_written ─► applied ─► reply
//! log ─ replay ─► the same state
//! ```
//!
//! What is decided from is what is committed, plus what a restart may lose (who is a member, who waits); an answer that
//! promises something leaves after its records are committed.

#[cfg(feature = "runtime")]
pub mod driver;
pub mod group;
pub mod replay;
mod writer;
