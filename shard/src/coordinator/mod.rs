//! The coordinators: state machines whose records live in internal topics, in Kafka's own formats. One instance serves one
//! partition of its topic, on the shard that owns it; the partition of an id never changes ([`partition_of`]).
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

use protocol::hash::partition_for_id;

/// The partition of an internal topic of `partitions` that an id (a group, a transactional id) belongs to (FC-1).
#[must_use]
pub fn partition_of(id: &str, partitions: u32) -> u32 {
    partition_for_id(id, partitions)
}
