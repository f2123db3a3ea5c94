//! One shard's logs on disk: Kafka-format segments, the shard's journal, caches, recovery. Knows no Kafka API and no
//! runtime: I/O goes through [`disk::Disk`], time comes in as a parameter.

pub mod batch_cache;
pub mod checkpoint;
pub mod disk;
pub mod error;
pub mod layout;
pub mod leader_epoch;
pub mod producer_state;
pub mod segment;
pub mod sim_executor;
pub mod sim_rng;
pub mod types;
