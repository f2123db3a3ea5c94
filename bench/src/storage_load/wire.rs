//! Frames that are made once and sent a million times, and answers that are read where they lie: a client that costs a small
//! part of what it measures. Correlation ids are all the same: one connection's answers come in the order of its requests.

use broker::client::frame;
use bytes::Bytes;
use protocol::messages::fetch::{FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic};
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};
use protocol::{RecordBytes, Str};

use crate::error::{Result, failed};
use crate::place::Place;

/// Versions without flexible fields: every place in an answer is known.
const PRODUCE_VERSION: i16 = 7;
const FETCH_VERSION: i16 = 11;

/// Bytes of a partition in an answer to a produce.
const PRODUCED_BYTES: usize = 4 + 2 + 8 + 8 + 8;

/// A batch of `records` records of `record_bytes`, with keys or without. The values are noise that repeats.
pub(crate) fn batch(records: usize, record_bytes: usize, keyed: bool) -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions::default());
    let mut noise = 0x9e37_79b9_7f4a_7c15u64;
    for number in 0..records.max(1) {
        let key = (number as u64).to_be_bytes();
        let key_bytes = if keyed { key.len() } else { 0 };
        let value: Vec<u8> = (0..record_bytes.saturating_sub(key_bytes).max(1))
            .map(|_| {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                noise as u8
            })
            .collect();
        let record = NewRecord {
            timestamp: 1_700_000_000_000,
            key: keyed.then_some(&key[..]),
            value: Some(&value),
            headers: &[],
        };
        builder
            .append(&record)
            .expect("a batch of a benchmark is within all bounds");
    }
    builder.finish().expect("it has a record").bytes
}

/// A request that produces `batch` to each of `partitions`.
pub(crate) fn produce(topic: &str, partitions: &[i32], batch: &Bytes, acks: i16) -> Bytes {
    let data = |index: &i32| PartitionProduceData {
        index: *index,
        records: Some(RecordBytes::from(batch.clone())),
    };
    let request = ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: Str::from(topic.to_owned()),
            partition_data: partitions.iter().map(data).collect(),
            ..Default::default()
        }],
    };
    let frame = frame::encode(PRODUCE_VERSION, 0, "storage-load", &request);
    Bytes::from(frame.expect("a request of ours can be encoded"))
}

/// Looks for errors in the answer, without its length, to a produce of one topic.
///
/// # Errors
/// The first error code.
pub(crate) fn check_produced(answer: &[u8], topic: &str) -> Result<()> {
    let mut at = Place::new(answer, 4 + 4 + 2 + topic.len());
    let partitions = at.i32();
    for number in 0..partitions.unwrap_or(0) {
        at.skip(4);
        match at.i16() {
            Some(0) => at.skip(PRODUCED_BYTES - 6),
            code => {
                return failed(format!(
                    "partition {number} of a produce is answered with {code:?}"
                ));
            }
        }
    }
    match partitions {
        Some(1..) => Ok(()),
        _ => failed("an answer to a produce names no partition"),
    }
}

/// A request for what is in these partitions from these offsets on.
pub(super) fn fetch(topic: &str, from: &[(i32, i64)], bytes_max: i32) -> Bytes {
    let partition = |(partition, fetch_offset): &(i32, i64)| FetchRequestFetchPartition {
        partition: *partition,
        fetch_offset: *fetch_offset,
        partition_max_bytes: bytes_max,
        ..Default::default()
    };
    let request = FetchRequest {
        max_wait_ms: 0, // at the end an empty answer comes at once: its wait is no part of what is measured
        min_bytes: 1,
        max_bytes: bytes_max,
        session_epoch: -1,
        topics: vec![FetchRequestFetchTopic {
            topic: Str::from(topic.to_owned()),
            partitions: from.iter().map(partition).collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let frame = frame::encode(FETCH_VERSION, 0, "storage-load", &request);
    Bytes::from(frame.expect("a request of ours can be encoded"))
}

/// What came of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetched {
    pub(super) partition: i32,
    /// Bytes of whole batches.
    pub(super) bytes: usize,
    /// Where to go on; `None` when nothing came.
    pub(super) next: Option<i64>,
}

/// Reads an answer, without its length, to a fetch of one topic. Only the headers of batches are looked at.
///
/// # Errors
/// An error code, or no such answer.
pub(super) fn fetched(answer: &[u8], topic: &str) -> Result<Vec<Fetched>> {
    let mut at = Place::new(answer, 4 + 4);
    if let Some(code @ 1..) = at.i16() {
        return failed(format!("a fetch is answered with {code}"));
    }
    at.skip(4 + 4 + 2 + topic.len());
    let count = at.i32().unwrap_or(0);
    let mut out = Vec::with_capacity(usize::try_from(count).unwrap_or(0).min(10_000));
    for _ in 0..count {
        let (partition, code) = (at.i32(), at.i16());
        at.skip(8 + 8 + 8);
        let aborted = at.i32().unwrap_or(0).max(0);
        at.skip(16 * usize::try_from(aborted).unwrap_or(0) + 4);
        let len = usize::try_from(at.i32().unwrap_or(0)).unwrap_or(0);
        let (Some(partition), Some(0), Some(records)) = (partition, code, at.take(len)) else {
            return failed(format!(
                "partition {partition:?} of a fetch is answered with {code:?}"
            ));
        };
        let (bytes, next) = whole_batches(records);
        out.push(Fetched {
            partition,
            bytes,
            next,
        });
    }
    Ok(out)
}

fn whole_batches(records: &[u8]) -> (usize, Option<i64>) {
    let (mut at, mut next) = (0, None);
    while let Some(head) = records.get(at..at + 61) {
        let mut place = Place::new(head, 0);
        let (base, length) = (place.i64().unwrap_or(0), place.i32().unwrap_or(0));
        let size = 12 + usize::try_from(length).unwrap_or(usize::MAX / 2);
        if at + size > records.len() {
            break;
        }
        place.skip(23 - 12);
        next = Some(base + i64::from(place.i32().unwrap_or(0)) + 1);
        at += size;
    }
    (at, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::message::Message;
    use protocol::messages::fetch::{FetchResponse, FetchResponsePartitionData, FetchableTopicResponse};
    use protocol::messages::produce::{PartitionProduceResponse, ProduceResponse, TopicProduceResponse};
    use protocol::{ErrorCode, Writer};

    fn answer<M: Message>(message: &M, version: i16) -> Vec<u8> {
        let mut writer = Writer::framed(64);
        writer.i32(0);
        message.encode(&mut writer, version).expect("encoded");
        writer.finish().expect("finished").concat().split_off(4)
    }

    fn produced(codes: &[ErrorCode]) -> Vec<u8> {
        let partition = |code: &ErrorCode| PartitionProduceResponse {
            error_code: *code,
            ..Default::default()
        };
        let response = ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: Str::from("topic"),
                partition_responses: codes.iter().map(partition).collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        answer(&response, PRODUCE_VERSION)
    }

    #[test]
    fn an_error_of_any_partition_of_a_produce_is_seen() {
        let (good, bad) = (ErrorCode::NONE, ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(check_produced(&produced(&[good]), "topic").is_ok());
        assert!(check_produced(&produced(&[good, good, good]), "topic").is_ok());
        assert!(check_produced(&produced(&[good, good, bad]), "topic").is_err());
        assert!(check_produced(&produced(&[]), "topic").is_err());
    }

    #[test]
    fn fetched_batches_are_counted_and_the_next_offset_is_behind_the_last_whole_one() {
        let batch = batch(3, 50, true);
        let mut records = batch.to_vec();
        let mut second = batch.to_vec();
        second[..8].copy_from_slice(&3i64.to_be_bytes());
        records.extend_from_slice(&second);
        records.extend_from_slice(&batch[..80]); // cut off
        let partition = |partition_index, records: &[u8]| FetchResponsePartitionData {
            partition_index,
            records: Some(RecordBytes::from(Bytes::copy_from_slice(records))),
            ..Default::default()
        };
        let response = FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: Str::from("topic"),
                partitions: vec![partition(4, &records), partition(5, &[])],
                ..Default::default()
            }],
            ..Default::default()
        };
        let found = fetched(&answer(&response, FETCH_VERSION), "topic").expect("an answer");
        let expected =
            [(4, 2 * batch.len(), Some(6)), (5, 0, None)].map(|(partition, bytes, next)| Fetched {
                partition,
                bytes,
                next,
            });
        assert_eq!(found, expected);
    }
}
