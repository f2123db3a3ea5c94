//! Requests that producers and consumers send, and their answers read where they lie. The versions are the newest ones without
//! flexible fields: Kafka since 2.3 serves them, and 4.x still does.

use bytes::Bytes;
use protocol::header::RequestHeader;
use protocol::message::Request;
use protocol::messages::fetch::{FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic};
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use protocol::{RecordBytes, Str, Writer};

use super::plan::ConsumerPlan;
use crate::place::Place;

const PRODUCE_VERSION: i16 = 7;
const FETCH_VERSION: i16 = 11;

/// The name of this client in requests.
pub(super) const CLIENT_ID: &str = "penstock-bench";

/// How long a broker may take for a produce request, milliseconds.
const PRODUCE_TIMEOUT_MS: i32 = 30_000;

/// One batch of a produce request.
#[derive(Clone, Debug)]
pub(super) struct ToProduce {
    pub(super) topic: u32,
    pub(super) partition: i32,
    pub(super) batch: Bytes,
}

/// The pieces of a produce request. Batches of a topic should lie beside each other.
pub(super) fn produce(correlation: i32, acks: i16, names: &[Str], batches: Vec<ToProduce>) -> Vec<Bytes> {
    let mut topics: Vec<(u32, TopicProduceData)> = Vec::with_capacity(1);
    for one in batches {
        let records = PartitionProduceData {
            index: one.partition,
            records: Some(RecordBytes::from(one.batch)),
        };
        match topics.last_mut() {
            Some((topic, topic_data)) if *topic == one.topic => topic_data.partition_data.push(records),
            _ => {
                let name = names.get(one.topic as usize).cloned().unwrap_or_default();
                let partition_data = vec![records];
                topics.push((
                    one.topic,
                    TopicProduceData {
                        name,
                        partition_data,
                        ..Default::default()
                    },
                ));
            }
        }
    }
    let request = ProduceRequest {
        transactional_id: None,
        acks,
        timeout_ms: PRODUCE_TIMEOUT_MS,
        topic_data: topics.into_iter().map(|(_, topic_data)| topic_data).collect(),
    };
    pieces(&request, PRODUCE_VERSION, correlation)
}

fn pieces<R: Request>(request: &R, version: i16, correlation: i32) -> Vec<Bytes> {
    let mut writer = Writer::framed(256);
    RequestHeader {
        api_key: R::KEY,
        api_version: version,
        correlation_id: correlation,
        client_id: Some(Str::from_static(CLIENT_ID)),
    }
    .encode(&mut writer);
    let encoded = request
        .encode(&mut writer, version)
        .and_then(|()| writer.finish());
    encoded.expect("a request of ours can be encoded")
}

/// A partition that a produce was refused for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) code: i16,
}

/// The correlation id of an answer.
pub(super) fn correlation(answer: &[u8]) -> Option<i32> {
    Place::new(answer, 0).i32()
}

/// How many partitions a produce is answered for, and those that were refused. `None` when it is no such answer.
pub(super) fn produced(answer: &[u8], refused: &mut Vec<Refused>) -> Option<usize> {
    let mut at = Place::new(answer, 4);
    let mut answered = 0;
    for _ in 0..at.count()? {
        let topic = at.short()?;
        for _ in 0..at.count()? {
            let (partition, code) = (at.i32()?, at.i16()?);
            at.take(3 * 8)?;
            answered += 1;
            if code != 0 {
                let topic = String::from_utf8_lossy(topic).into_owned();
                refused.push(Refused {
                    topic,
                    partition,
                    code,
                });
            }
        }
    }
    Some(answered)
}

/// What is asked of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToFetch {
    pub(super) topic: u32,
    pub(super) partition: i32,
    pub(super) offset: i64,
}

/// A fetch; `session` is its id and epoch (KIP-227).
pub(super) fn fetch(
    correlation: i32,
    plan: &ConsumerPlan,
    session: (i32, i32),
    names: &[Str],
    wanted: impl Iterator<Item = ToFetch>,
) -> Vec<Bytes> {
    let mut topics: Vec<(u32, FetchRequestFetchTopic)> = Vec::new();
    for one in wanted {
        let partition = FetchRequestFetchPartition {
            partition: one.partition,
            fetch_offset: one.offset,
            partition_max_bytes: plan.partition_bytes_max,
            ..Default::default()
        };
        match topics.last_mut() {
            Some((topic, asked)) if *topic == one.topic => asked.partitions.push(partition),
            _ => {
                let topic = names.get(one.topic as usize).cloned().unwrap_or_default();
                let partitions = vec![partition];
                topics.push((
                    one.topic,
                    FetchRequestFetchTopic {
                        topic,
                        partitions,
                        ..Default::default()
                    },
                ));
            }
        }
    }
    let request = FetchRequest {
        max_wait_ms: plan.wait_ms,
        min_bytes: plan.fetch_bytes_min,
        max_bytes: plan.fetch_bytes_max,
        isolation_level: plan.isolation,
        session_id: session.0,
        session_epoch: session.1,
        topics: topics.into_iter().map(|(_, asked)| asked).collect(),
        ..Default::default()
    };
    pieces(&request, FETCH_VERSION, correlation)
}

/// A partition of an answer to a fetch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetched<'a> {
    pub(super) topic: &'a [u8],
    pub(super) partition: i32,
    pub(super) code: i16,
    /// Batches; the last one may be cut off.
    pub(super) records: &'a [u8],
}

/// The error code and session of an answer to a fetch, and each partition of it in turn. `None` when it is no such answer.
pub(super) fn fetched<'a>(answer: &'a [u8], mut each: impl FnMut(Fetched<'a>)) -> Option<(i16, i32)> {
    let mut at = Place::new(answer, 4 + 4);
    let (code, session) = (at.i16()?, at.i32()?);
    for _ in 0..at.count()? {
        let topic = at.short()?;
        for _ in 0..at.count()? {
            let (partition, code) = (at.i32()?, at.i16()?);
            at.take(3 * 8)?;
            let aborted = at.count()?;
            at.take(aborted.checked_mul(16)?)?;
            at.take(4)?;
            let len = at.count()?;
            let records = at.take(len)?;
            each(Fetched {
                topic,
                partition,
                code,
                records,
            });
        }
    }
    Some((code, session))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::message::Message;
    use protocol::messages::fetch::{FetchResponse, FetchResponsePartitionData, FetchableTopicResponse};
    use protocol::messages::produce::{PartitionProduceResponse, ProduceResponse, TopicProduceResponse};
    use protocol::{ErrorCode, Reader};

    fn answer<M: Message>(message: &M, version: i16) -> Vec<u8> {
        let mut writer = Writer::framed(64);
        writer.i32(77);
        message.encode(&mut writer, version).expect("encoded");
        writer.finish().expect("finished").concat().split_off(4)
    }

    #[test]
    fn a_produce_request_holds_the_batches_by_topic() {
        let names = [Str::from("a"), Str::from("b")];
        let batch = |topic, partition| ToProduce {
            topic,
            partition,
            batch: Bytes::from(vec![partition as u8; 5000]),
        };
        let batches = vec![batch(0, 1), batch(0, 2), batch(1, 3)];
        let (first, second) = (batches[0].batch.as_ptr(), batches[1].batch.as_ptr());
        let pieces = produce(5, -1, &names, batches);
        let is_spliced = |at: *const u8| pieces.iter().any(|piece| piece.as_ptr() == at);
        assert!(
            is_spliced(first) && is_spliced(second),
            "large batches are not copied"
        );
        let mut reader = Reader::new(Bytes::from(pieces.concat().split_off(4)));
        let header = RequestHeader::decode(&mut reader).expect("a header");
        assert_eq!((header.api_version, header.correlation_id), (PRODUCE_VERSION, 5));
        let request = ProduceRequest::decode(&mut reader, PRODUCE_VERSION).expect("a request");
        let found: Vec<(String, usize)> = request
            .topic_data
            .iter()
            .map(|topic| (topic.name.to_string(), topic.partition_data.len()))
            .collect();
        assert_eq!(found, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        assert_eq!(request.acks, -1);
    }

    #[test]
    fn refused_partitions_of_a_produce_are_named() {
        let partition = |index, error_code| PartitionProduceResponse {
            index,
            error_code,
            ..Default::default()
        };
        let topic = |name: &'static str, partition_responses| TopicProduceResponse {
            name: Str::from(name),
            partition_responses,
            ..Default::default()
        };
        let good = ErrorCode::NONE;
        let response = ProduceResponse {
            responses: vec![
                topic("t", vec![partition(0, good), partition(1, good)]),
                topic("u", vec![partition(4, ErrorCode::NOT_LEADER_OR_FOLLOWER)]),
            ],
            ..Default::default()
        };
        let answer = answer(&response, PRODUCE_VERSION);
        let mut refused = Vec::new();
        assert_eq!(produced(&answer, &mut refused), Some(3));
        let expected = Refused {
            topic: "u".into(),
            partition: 4,
            code: 6,
        };
        assert_eq!(refused, [expected]);
        assert_eq!(correlation(&answer), Some(77));
        for cut in 0..answer.len() - 4 {
            assert_eq!(produced(&answer[..cut], &mut Vec::new()), None, "cut at {cut}");
        }
    }

    #[test]
    fn fetched_partitions_are_read_in_place() {
        let partition = |partition_index, records: &'static [u8]| FetchResponsePartitionData {
            partition_index,
            records: Some(RecordBytes::from(Bytes::from_static(records))),
            ..Default::default()
        };
        let response = FetchResponse {
            session_id: 99,
            responses: vec![FetchableTopicResponse {
                topic: Str::from("topic"),
                partitions: vec![partition(3, b"abc"), partition(5, b"")],
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer = answer(&response, FETCH_VERSION);
        let mut found = Vec::new();
        let head = fetched(&answer, |one| {
            found.push((one.topic, one.partition, one.code, one.records))
        });
        assert_eq!(head, Some((0, 99)));
        assert_eq!(
            found,
            [
                (&b"topic"[..], 3, 0, &b"abc"[..]),
                (&b"topic"[..], 5, 0, &b""[..])
            ]
        );
        assert_eq!(fetched(&answer[..30], |_| {}), None);
    }
}
