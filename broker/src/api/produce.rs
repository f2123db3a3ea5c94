//! Produce: each partition's batch is validated here, on the connection's shard, then one message goes to each owner
//! shard; the answer comes when the records are as safe as `acks` asks (PR-1…34). [`begin`] ends when all messages are on
//! their way, in order, so that the next Produce of the connection may start. Batches that may take long to walk are
//! walked beside the shard.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use protocol::compression::{Codec, CodecContexts};
use protocol::messages::produce::{
    BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse, ProduceRequest,
    ProduceResponse, ProduceResponseLeaderIdAndEpoch as LeaderHint,
    ProduceResponseNodeEndpoint as NodeEndpoint, TopicProduceResponse,
};
use protocol::record::{
    BATCH_HEADER_BYTES, BatchError, BatchErrorReason, BatchHeader, MAGIC_V2, ProduceRules, RecordError,
    Rewritten, TimestampType, TopicCompression, ValidatedBatch, Walk, validate,
};
use protocol::{ErrorCode, Str, Uuid};
use shard::config::{CompressionSetting, TopicSettings};
use shard::env::Env;
use shard::ids::{BrokerId, ShardId};
use shard::message::{Acks, Append, AppendItem, AppendResult, ShardReply, ShardRequest};
use shard::router::Asked;
use storage::types::{LeaderEpoch, TopicId};

use super::leaders;
use crate::request::{Outcome, RequestContext, Started};
use crate::view::{Home, TopicName, View};

/// The client id whose produces to internal topics Kafka accepts (PR-16).
const ADMIN_CLIENT_ID: &str = "__admin_client";

/// First version that answers transactional faults with TRANSACTION_ABORTABLE (KIP-890).
const ABORTABLE_VERSION_MIN: i16 = 11;

/// First version that names topics by their ids.
const TOPIC_ID_VERSION_MIN: i16 = 13;

/// First version with leader hints (KIP-951).
const LEADER_HINT_VERSION_MIN: i16 = 10;

/// Bytes of an uncompressed batch up to which it is walked on the shard: the CRC takes 0.2 ms.
const PLAIN_HERE_BYTES_MAX: usize = 2 << 20;

/// What a compressed batch may decompress to on the shard, bytes: half a millisecond, gzip a whole one.
const WALKED_HERE_BYTES_MAX: usize = 512 << 10;

/// Records of a batch up to which it is walked on the shard: half a millisecond.
const WALKED_HERE_RECORDS_MAX: i32 = 16 << 10;

/// The same for batches that the topic wants in another codec, bytes: a high level of zstd takes milliseconds for it.
const REWRITTEN_HERE_BYTES_MAX: usize = 16 << 10;

thread_local! {
    /// The contexts of a thread beside the shards.
    static CODECS: RefCell<CodecContexts> = RefCell::default();
}

/// A partition's place in the response: topic, then partition within it.
type Place = (usize, usize);

/// What goes to one shard.
struct Part {
    shard: ShardId,
    items: Vec<AppendItem>,
    places: Vec<Place>,
}

/// Validates a request and hands it to its owner shards.
pub async fn begin<E: Env>(context: RequestContext<E>, request: ProduceRequest) -> Started {
    let acks = match request.acks {
        0 => Some(Acks::None),
        1 => Some(Acks::Leader),
        -1 => Some(Acks::All),
        _ => None,
    };
    let mut plan = Plan {
        view: context.broker.view(),
        parts: Vec::new(),
        responses: Vec::new(),
    };
    let refusal = why_refused_whole(&plan.view, context.version, &request).or_else(|| {
        let refusal = (ErrorCode::INVALID_REQUIRED_ACKS, None);
        acks.is_none().then_some(refusal)
    });
    for topic in request.topic_data {
        let name = name_of(&topic.name, topic.topic_id, context.version);
        plan.responses.push(TopicProduceResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partition_responses: Vec::with_capacity(topic.partition_data.len()),
        });
        for partition in topic.partition_data {
            let outcome = match refusal {
                Some((code, message)) => Err(refused(code, message)),
                None => plan.check(&context, name, &partition).await,
            };
            plan.add(partition.index, outcome);
            context.broker.env.breathe().await;
        }
    }
    // Others may have sent since the connection looked.
    context.broker.router.room().await;
    // As in Kafka the time begins when the records are appended.
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = context.broker.env.now().after(timeout);
    // Without acknowledgement no shard answers.
    let trace = (acks != Some(Acks::None)).then(|| context.asking()).flatten();
    let asked: Vec<_> = plan
        .parts
        .into_iter()
        .map(|part| {
            let acks = acks.expect("with other acks nothing is handed on");
            let append = Append {
                items: part.items,
                acks,
                deadline,
            };
            (
                context
                    .broker
                    .router
                    .ask_traced(part.shard, ShardRequest::Append(append), trace),
                part.places,
            )
        })
        .collect();
    let (view, responses) = (plan.view, plan.responses);
    Started::Later(Box::pin(async move {
        finish(&context, &view, acks, responses, asked).await
    }))
}

/// How a request of this version names a topic.
fn name_of(name: &Str, id: Uuid, version: i16) -> TopicName<'_> {
    if version >= TOPIC_ID_VERSION_MIN {
        TopicName::Id(TopicId(id.0))
    } else {
        TopicName::Name(name)
    }
}

/// Code and text of a request that is refused as a whole.
type Refusal = (ErrorCode, Option<&'static str>);

/// Why the request is refused as a whole, for what its batches say about transactions.
fn why_refused_whole(view: &View, version: i16, request: &ProduceRequest) -> Option<Refusal> {
    let mut producers = BTreeSet::new();
    for topic in &request.topic_data {
        for data in &topic.partition_data {
            let Some((header, is_whole)) = claimed_transaction(data) else {
                continue;
            };
            if request.transactional_id.is_none() {
                // Kafka takes it for a transactional id that the client may not use.
                return Some((ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, None));
            }
            // What is refused for itself says nothing about the request.
            let known = view.topic(name_of(&topic.name, topic.topic_id, version));
            let is_here = known.is_ok_and(|topic| view.partition(topic, data.index).is_ok());
            if is_whole && is_here && header.producer_id >= 0 {
                producers.insert((header.producer_id, header.producer_epoch));
            }
        }
    }
    let message = "batches of one transaction come from several producers, or epochs of one";
    (producers.len() > 1).then_some((ErrorCode::INVALID_PRODUCER_ID_MAPPING, Some(message))) // PR-7
}

/// The header of the first batch if it says that it is part of a transaction, and whether the batch is all there is: only
/// claims, nothing of them is validated yet.
fn claimed_transaction(data: &PartitionProduceData) -> Option<(BatchHeader, bool)> {
    let records = data.records.clone().unwrap_or_default().into_bytes();
    let header = BatchHeader::decode(records.first_chunk::<BATCH_HEADER_BYTES>()?);
    let is_claimed = header.magic == MAGIC_V2 && header.attributes.is_transactional();
    let is_whole = usize::try_from(header.size()).is_ok_and(|size| size == records.len());
    is_claimed.then_some((header, is_whole))
}

struct Plan {
    view: Rc<View>,
    parts: Vec<Part>,
    responses: Vec<TopicProduceResponse>,
}

impl Plan {
    /// One partition of the request: its shard and batch, or why not.
    async fn check<E: Env>(
        &self,
        context: &RequestContext<E>,
        name: TopicName<'_>,
        data: &PartitionProduceData,
    ) -> Result<(ShardId, AppendItem), PartitionProduceResponse> {
        let topic = self.view.topic(name).map_err(|code| refused(code, None))?;
        let is_admin = context.client_id.as_deref() == Some(ADMIN_CLIENT_ID);
        if topic.is_internal() && !is_admin {
            return Err(refused(ErrorCode::INVALID_TOPIC_EXCEPTION, None));
        }
        let (partition, home) = self
            .view
            .partition(topic, data.index)
            .map_err(|code| refused(code, None))?;
        if home == Home::Offline {
            return Err(refused(ErrorCode::KAFKA_STORAGE_ERROR, None));
        }
        let Home::Shard(shard, log) = home else {
            let mut response = refused(ErrorCode::NOT_LEADER_OR_FOLLOWER, None);
            let leader = partition.leader.map(|leader| (leader, partition.leader_epoch));
            set_leader(&mut response, context.version, leader);
            return Err(response);
        };
        let batch = validated(context, &self.view.settings(topic), data).await?;
        Ok((shard, AppendItem { log, batch }))
    }

    fn add(&mut self, index: i32, outcome: Result<(ShardId, AppendItem), PartitionProduceResponse>) {
        let topic = self.responses.len() - 1;
        let responses = &mut self.responses[topic].partition_responses;
        let place = (topic, responses.len());
        match outcome {
            Ok((shard, item)) => {
                responses.push(PartitionProduceResponse {
                    index,
                    ..unanswered()
                });
                let part = match self.parts.iter_mut().find(|p| p.shard == shard) {
                    Some(part) => part,
                    None => {
                        self.parts.push(Part {
                            shard,
                            items: Vec::new(),
                            places: Vec::new(),
                        });
                        self.parts.last_mut().expect("one was pushed")
                    }
                };
                part.items.push(item);
                part.places.push(place);
            }
            Err(response) => responses.push(PartitionProduceResponse { index, ..response }),
        }
    }
}

/// The batch of one partition as it will be stored.
async fn validated<E: Env>(
    context: &RequestContext<E>,
    settings: &TopicSettings,
    data: &PartitionProduceData,
) -> Result<Bytes, PartitionProduceResponse> {
    let received = data.records.clone().unwrap_or_default().into_bytes();
    let rules = rules(settings, context.version, context.broker.env.wall().0);
    let walked = match walked_here(context, &received, &rules) {
        Some(walked) => walked,
        // Nothing of the request has been appended so far, and the stop would wait for all of it.
        None if context.broker.is_stopping() => {
            return Err(refused(
                ErrorCode::NOT_LEADER_OR_FOLLOWER,
                Some("the broker is stopping"),
            ));
        }
        None => walked_aside(context, received.clone(), rules).await,
    };
    let batch = walked.map_err(|e| rejected(&e))?;
    if batch.header.attributes.is_transactional() {
        // No coordinator knows the transaction, so the partition is not part of it (TX-20).
        let code = if context.version >= ABORTABLE_VERSION_MIN {
            ErrorCode::TRANSACTION_ABORTABLE
        } else {
            ErrorCode::INVALID_TXN_STATE
        };
        return Err(refused(
            code,
            Some("the partition was not added to the transaction"),
        ));
    }
    Ok(to_store(&received, batch))
}

/// Validates a batch on the shard; `None` if that would take long.
fn walked_here<E: Env>(
    context: &RequestContext<E>,
    received: &Bytes,
    rules: &ProduceRules,
) -> Option<Result<ValidatedBatch, BatchError>> {
    let limit = here(received, rules)?;
    let quick = ProduceRules {
        decompressed_bytes_max: limit,
        ..*rules
    };
    let walked = validate(received, &quick, &mut context.broker.codecs.borrow_mut());
    let is_more = |error: &BatchError| error.reason == BatchErrorReason::DecompressedTooLarge { limit };
    (!walked.as_ref().is_err_and(is_more)).then_some(walked)
}

/// Validates a batch on a thread beside the shard.
async fn walked_aside<E: Env>(
    context: &RequestContext<E>,
    received: Bytes,
    rules: ProduceRules,
) -> Result<ValidatedBatch, BatchError> {
    let walk = move || CODECS.with_borrow_mut(|codecs| validate(&received, &rules, codecs));
    context.broker.env.aside(walk).await
}

/// How many bytes a batch may decompress to on the shard; `None` where it would take long in any case.
fn here(received: &Bytes, rules: &ProduceRules) -> Option<u64> {
    let Some(head) = received.first_chunk::<BATCH_HEADER_BYTES>() else {
        return Some(0);
    };
    let header = BatchHeader::decode(head);
    let source = header.attributes.codec().unwrap_or_default();
    let is_rewritten = match rules.compression {
        TopicCompression::Producer => false,
        TopicCompression::Codec { codec, .. } => codec != source,
    };
    let bytes_max = if is_rewritten {
        REWRITTEN_HERE_BYTES_MAX
    } else if source == Codec::None {
        PLAIN_HERE_BYTES_MAX
    } else {
        WALKED_HERE_BYTES_MAX
    };
    let is_quick = received.len() <= bytes_max && header.record_count <= WALKED_HERE_RECORDS_MAX;
    is_quick.then_some(bytes_max as u64)
}

/// The received bytes where nothing was rewritten, else header and records put together again.
fn to_store(received: &Bytes, batch: ValidatedBatch) -> Bytes {
    if batch.rewritten == Rewritten::Nothing {
        return received.slice(..batch.size());
    }
    let mut whole = Vec::with_capacity(batch.size());
    whole.extend_from_slice(&batch.head(0, LeaderEpoch::NONE.0));
    whole.extend_from_slice(&batch.records);
    Bytes::from(whole)
}

fn rules(settings: &TopicSettings, version: i16, now_ms: i64) -> ProduceRules {
    let recompress = |codec, level| TopicCompression::Codec { codec, level };
    ProduceRules {
        version,
        now_ms,
        max_message_bytes: usize::try_from(settings.max_message_bytes).unwrap_or(0),
        segment_bytes: usize::try_from(settings.segment_bytes).unwrap_or(0),
        timestamp_type: match settings.message_timestamp_type {
            shard::config::TimestampType::CreateTime => TimestampType::CreateTime,
            shard::config::TimestampType::LogAppendTime => TimestampType::LogAppendTime,
        },
        timestamp_before_max_ms: settings.message_timestamp_before_max_ms,
        timestamp_after_max_ms: settings.message_timestamp_after_max_ms,
        compacted: settings.cleanup_policy.compact,
        compression: match settings.compression {
            CompressionSetting::Producer => TopicCompression::Producer,
            CompressionSetting::Uncompressed => recompress(Codec::None, 0),
            CompressionSetting::Gzip(level) => recompress(Codec::Gzip, level),
            CompressionSetting::Snappy => recompress(Codec::Snappy, 0),
            CompressionSetting::Lz4(level) => recompress(Codec::Lz4, level),
            CompressionSetting::Zstd(level) => recompress(Codec::Zstd, level),
        },
        walk: Walk::Records,
        ..ProduceRules::default()
    }
}

/// Waits for the owner shards and puts their results in place.
async fn finish<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    acks: Option<Acks>,
    mut responses: Vec<TopicProduceResponse>,
    asked: Vec<(Result<Asked, shard::router::Overloaded>, Vec<Place>)>,
) -> Outcome {
    let mut duplicates = 0;
    for (asked, places) in asked {
        let results = match asked {
            Ok(asked) => asked.await,
            // Retriable, and nothing was appended.
            Err(_) => ShardReply::Append(vec![
                AppendResult::failed(ErrorCode::NOT_ENOUGH_REPLICAS, None);
                places.len()
            ]),
        };
        let ShardReply::Append(results) = results else {
            unreachable!("an append is answered with results")
        };
        for (place, result) in places.into_iter().zip(results) {
            duplicates += u64::from(result.is_duplicate);
            fill(
                &mut responses[place.0].partition_responses[place.1],
                result,
                context.version,
            );
        }
    }
    context.broker.metrics.duplicates(duplicates);
    let mut codes = responses
        .iter()
        .flat_map(|t| &t.partition_responses)
        .map(|p| p.error_code);
    if acks == Some(Acks::None) {
        // PR-9: an error can be told only by closing.
        let has_failed = codes.any(|code| code != ErrorCode::NONE);
        return if has_failed {
            Outcome::Close
        } else {
            Outcome::NoAnswer
        };
    }
    context.count_errors(codes);
    let node_endpoints = endpoints(context, view, &responses);
    // A topic without partitions has no answer.
    responses.retain(|topic| !topic.partition_responses.is_empty());
    let took = context.broker.env.now().since(context.received);
    context.broker.metrics.answered(context.api_key, took);
    context.answer(&ProduceResponse {
        responses,
        node_endpoints,
        ..Default::default()
    })
}

fn fill(response: &mut PartitionProduceResponse, result: AppendResult, version: i16) {
    response.error_code = result.error;
    response.base_offset = result.base_offset.0;
    response.log_append_time_ms = result.log_append_time;
    response.log_start_offset = result.log_start_offset.0;
    response.error_message = result.message.map(|m: Arc<str>| Str::from(m.to_string()));
    set_leader(response, version, result.current_leader);
}

fn set_leader(
    response: &mut PartitionProduceResponse,
    version: i16,
    leader: Option<(BrokerId, LeaderEpoch)>,
) {
    if let Some((leader, epoch)) = leader
        && version >= LEADER_HINT_VERSION_MIN
    {
        response.current_leader = LeaderHint {
            leader_id: leader.0,
            leader_epoch: epoch.0,
        };
    }
}

/// The endpoints of the leaders that the response hints at (PR-15).
fn endpoints<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    responses: &[TopicProduceResponse],
) -> Vec<NodeEndpoint> {
    if context.version < LEADER_HINT_VERSION_MIN {
        return Vec::new();
    }
    let hinted = responses
        .iter()
        .flat_map(|t| &t.partition_responses)
        .map(|p| BrokerId(p.current_leader.leader_id))
        .filter(|id| id.0 >= 0)
        .collect();
    leaders::endpoints(view, &context.connection.listener, hinted)
        .map(|e| NodeEndpoint {
            node_id: e.id,
            host: e.host,
            port: e.port,
            rack: e.rack,
        })
        .collect()
}

fn unanswered() -> PartitionProduceResponse {
    refused(ErrorCode::NONE, None)
}

fn refused(error_code: ErrorCode, message: Option<&str>) -> PartitionProduceResponse {
    PartitionProduceResponse {
        error_code,
        base_offset: -1,
        log_append_time_ms: -1,
        log_start_offset: -1,
        error_message: message.map(|m| Str::from(m.to_owned())),
        current_leader: LeaderHint {
            leader_id: -1,
            leader_epoch: -1,
        },
        ..Default::default()
    }
}

fn rejected(error: &BatchError) -> PartitionProduceResponse {
    let record = |r: &RecordError| BatchIndexAndErrorMessage {
        batch_index: i32::try_from(r.index).unwrap_or(i32::MAX),
        batch_index_error_message: Some(Str::from(r.fault.to_string())),
    };
    PartitionProduceResponse {
        record_errors: error.records.iter().map(record).collect(),
        ..refused(error.code(), Some(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The start of a batch of so many records, `len` bytes in all.
    fn received(codec: Codec, record_count: i32, len: usize) -> Bytes {
        let mut header = BatchHeader::decode(&[0; BATCH_HEADER_BYTES]);
        header.attributes.0 = codec.attribute_bits();
        header.record_count = record_count;
        let mut bytes = header.encode().to_vec();
        bytes.resize(len, 0);
        Bytes::from(bytes)
    }

    #[test]
    fn only_what_is_quick_is_walked_on_the_shard() {
        let producers = ProduceRules::default();
        let zstd = ProduceRules {
            compression: TopicCompression::Codec {
                codec: Codec::Zstd,
                level: 22,
            },
            ..producers
        };
        let (mib, kib) = (1 << 20, 1 << 10);
        for (rules, codec, records, len, expected) in [
            (&producers, Codec::None, 1000, mib, Some(PLAIN_HERE_BYTES_MAX)),
            (&producers, Codec::None, 1000, 3 * mib, None),
            (&producers, Codec::None, 150_000, mib, None),
            (
                &producers,
                Codec::Lz4,
                1000,
                100 * kib,
                Some(WALKED_HERE_BYTES_MAX),
            ),
            (&producers, Codec::Lz4, 1000, mib, None),
            (&producers, Codec::Zstd, i32::MAX, 12 * kib, None),
            (&zstd, Codec::Zstd, 1000, 100 * kib, Some(WALKED_HERE_BYTES_MAX)),
            (&zstd, Codec::None, 100, 10 * kib, Some(REWRITTEN_HERE_BYTES_MAX)),
            (&zstd, Codec::Lz4, 1000, 100 * kib, None),
            (&zstd, Codec::None, 1000, mib, None),
        ] {
            let found = here(&received(codec, records, len), rules);
            assert_eq!(found, expected.map(|b| b as u64), "{codec} {records} {len}");
        }
        assert!(here(&Bytes::from_static(b"no header"), &producers).is_some());
    }
}
