//! The metadata quorum: who may write the cluster's metadata, and in which order it is written. raft-rs decides
//! (`driver`), entries and snapshots have Kafka's formats (`entry`, `snapshot`), peers speak our own encoding (`wire`).
//! Everything here but `node` and `store_log` is without I/O. It runs on one shard of a node; a single node is a quorum
//! of one, by the same code.

mod driver;
mod entry;
pub mod identity;
pub mod log;
mod logging;
pub mod node;
mod snapshot;
mod store_log;
pub mod takeover;
mod view;
mod vote_file;
pub mod voters;
mod wire;

pub use driver::{Proposal, ProposeError, QuorumDriver, QuorumOptions, QuorumOutput, Role};
pub use entry::{ENTRY_BYTES_MAX, EntryError, EntryPayload, LogEntry};
pub use log::{Crashed, MemoryLog, QuorumLog, Recovered, VoteState};
pub use snapshot::{SNAPSHOT_BYTES_MAX, Snapshot};
pub use store_log::{StoreLog, StoreLogError};
pub use voters::{VOTERS_MAX, Voter, VoterEndpoint, Voters};
pub use wire::{ENTRIES_MAX, PeerMessage, WireError};
