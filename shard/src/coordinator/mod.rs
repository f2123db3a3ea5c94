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
#[cfg(feature = "runtime")]
mod teller;
mod writer;

/// The most characters of a name in a line of the log: clients choose ids of up to 32 KiB.
#[cfg(feature = "runtime")]
const SHOWN_MAX: usize = 255;

/// A name that a client chose, as the log has it.
#[cfg(feature = "runtime")]
fn shown(name: &str) -> &str {
    let end = name.char_indices().nth(SHOWN_MAX).map(|(at, _)| at);
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

#[cfg(all(test, feature = "runtime"))]
mod tests {
    use super::*;

    #[test]
    fn a_long_id_is_cut_in_the_log() {
        assert_eq!(shown("readers"), "readers");
        assert_eq!(shown(""), "");
        assert_eq!(shown(&"ü".repeat(SHOWN_MAX)), "ü".repeat(SHOWN_MAX));
        assert_eq!(shown(&"ü".repeat(SHOWN_MAX + 1)), "ü".repeat(SHOWN_MAX));
    }
}
