//! Requests that several clients send.

use bytes::Bytes;
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use protocol::{RecordBytes, Str};

/// A request for one topic, as the broker sets it up by default.
pub(super) fn create_topic(name: &str, partitions: i32) -> CreateTopicsRequest {
    CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: Str::from(name.to_owned()),
            num_partitions: partitions,
            replication_factor: 1,
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A request with one batch, to be acknowledged by all.
pub(super) fn produce_to(name: &str, index: i32, batch: Bytes) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: Str::from(name.to_owned()),
            partition_data: vec![PartitionProduceData {
                index,
                records: Some(RecordBytes::from(batch)),
            }],
            ..Default::default()
        }],
    }
}

/// A request for one offset of one partition.
pub(super) fn list_offset(name: &str, partition_index: i32, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(name.to_owned()),
            partitions: vec![ListOffsetsPartition {
                partition_index,
                timestamp,
                ..Default::default()
            }],
        }],
        ..Default::default()
    }
}
