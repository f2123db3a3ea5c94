//! The controller: commands of clients and brokers in, metadata records and the answer out. Every decision is a pure function
//! of the image; state changes only when the records come back committed. The active controller's node, one shard.

pub mod features;
mod record;

pub use record::{MetadataRecord, RECORD_BYTES_MAX, RecordError};
