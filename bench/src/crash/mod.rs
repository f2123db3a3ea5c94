//! The crash table: a mixed workload on the simulated disk (appends of plain, idempotent and transactional producers to many
//! logs on several shards, markers, rolls, DeleteRecords, checkpoints, compaction, topics that come and go, changes of durability
//! class and leader epoch, another shard count in each life), ended at any write of it, in many ways. After each end the directory is
//! recovered and held against what was sent. `bin/crash.rs` runs it by scenario and seed; a failing seed is run again by its
//! number.

pub mod batches;
mod check;
mod compacted;
mod flips;
mod life;
pub mod model;
pub mod scenario;
pub mod table;
mod world;

pub use flips::Fate;
pub use scenario::{PLANTED, Planted, SCENARIOS, Scenario, Tally, run_seed};

/// The time of all records, milliseconds since 1970: nothing expires.
const NOW_MS: i64 = 1_700_000_000_000;
