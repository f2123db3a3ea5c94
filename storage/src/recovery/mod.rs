//! What happens between an unclean (or clean) stop and the first append. Phase 1, once per log directory: the journals of
//! all shards that ever wrote there are replayed into the segment files and removed ([`journals`]). Phase 2, per log: the
//! segments are read and checked, indexes and producer state rebuilt where needed ([`log`]). After phase 1 only segments
//! matter, so the number of shards may change between runs.

mod debris;
mod epochs;
pub(crate) mod fault;
mod journal_file;
pub mod journals;
pub(crate) mod log;
mod manifests;
mod missing;
mod producers;
pub mod record;
pub(crate) mod redo;
mod rested;
pub mod room;
pub(crate) mod scan;
mod segments;
mod stray;
mod trust;
mod walk;

pub use journals::{JournalRecovery, recover_journals};
