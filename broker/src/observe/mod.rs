//! What the broker counts and measures, per shard and without locks; a scrape asks each shard for a snapshot.

pub mod metrics;
pub mod progress;
pub mod shard;
pub mod stages;

pub use ::shard::histogram;
