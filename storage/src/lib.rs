//! One shard's logs on disk: Kafka-format segments, the shard's journal, caches, recovery. Knows no Kafka API and no
//! runtime: I/O goes through [`disk::Disk`], time comes in as a parameter.

pub mod batch_cache;
mod bounded_sync;
pub mod checkpoint;
mod closing;
pub mod commit;
pub mod compaction;
pub mod disk;
pub mod error;
mod housekeeping;
pub mod io_class;
pub mod journal;
pub mod layout;
pub mod leader_epoch;
pub mod log;
pub mod moving;
pub mod notify;
pub mod offline;
pub mod producer_state;
mod read_ahead;
pub mod recovery;
mod removal;
pub mod retention;
pub mod scrub;
pub mod segment;
mod segment_files;
pub mod sim_executor;
pub mod sim_rng;
pub mod space;
pub mod stats;
pub mod store;
pub mod sync_schedule;
pub mod types;
mod write_behind;
