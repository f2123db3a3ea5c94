//! The controller: commands of clients and brokers in, metadata records and the answer out. Every decision is a pure function
//! of the image (with what was proposed before); state changes only when the records come back committed. One command, one
//! file. The cluster's view; it runs on the shard that drives the quorum, on the node that leads it.

mod bootstrap;
mod brokers;
mod command;
mod configs;
mod context;
mod delete_topics;
pub mod features;
mod internal_topics;
mod leaders;
mod names;
mod partitions;
mod placer;
mod producer_ids;
mod record;
#[cfg(test)]
mod testing;
mod topics;

pub use bootstrap::initial_records;
pub use command::{ControllerCommand, ControllerResponse, decide};
pub use context::{Context, Decision, RECORDS_MAX};
pub use internal_topics::internal_topic;
pub use names::{NAME_BYTES_MAX, check_name};
pub use producer_ids::PRODUCER_ID_BLOCK_SIZE;
pub use record::{MetadataRecord, RECORD_BYTES_MAX, RecordError};
pub use topics::{METADATA_TOPIC, PARTITIONS_PER_REQUEST_MAX, random_topic_id, random_uuid};
