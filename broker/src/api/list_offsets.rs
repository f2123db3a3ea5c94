//! ListOffsets: the ends of a log, and the first record at or after a time (LO-1…11).

use std::collections::BTreeSet;

use protocol::messages::list_offsets::{
    ListOffsetsPartition as Asked, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopicResponse,
};
use protocol::{ErrorCode, Str};
use shard::env::Env;
use shard::ids::BrokerId;
use shard::message::{Isolation, OffsetAnswer, OffsetQuery, OffsetQueryKind};
use storage::types::LeaderEpoch;

use super::offsets::{OffsetPlan, Place};
use crate::request::RequestContext;
use crate::view::{TopicName, View};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// What a timestamp of the request turns out to be.
enum Wanted {
    Ask(OffsetQueryKind),
    /// Nothing is tiered here: −1 without an error (LO-5, LO-6).
    Nothing,
}

/// Answers for each partition asked about, in request order.
pub async fn handle<E: Env>(context: &RequestContext<E>, request: ListOffsetsRequest) -> ListOffsetsResponse {
    let view = context.broker.view();
    let isolation = match (request.replica_id, request.isolation_level) {
        (0.., _) => Isolation::Replica(BrokerId(request.replica_id)),
        (_, 1) => Isolation::ReadCommitted,
        _ => Isolation::ReadUncommitted,
    };
    let duplicates = duplicates(&request);
    let mut plan = OffsetPlan::default();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (t, topic) in request.topics.iter().enumerate() {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (p, asked) in topic.partitions.iter().enumerate() {
            let checked = if duplicates.contains(&(&topic.name, asked.partition_index)) {
                Err(ErrorCode::INVALID_REQUEST)
            } else {
                query(&view, context.version, &topic.name, asked, isolation)
            };
            partitions.push(plan_one(&mut plan, (t, p), asked.partition_index, checked));
        }
        topics.push(ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions,
        });
    }
    for ((t, p), answer) in plan.ask(&context.broker.router).await {
        fill(&mut topics[t].partitions[p], &answer, context.version);
    }
    context.count_errors(topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code));
    ListOffsetsResponse {
        topics,
        ..Default::default()
    }
}

/// LO-7: a partition that is listed twice is answered with an error each time.
fn duplicates(request: &ListOffsetsRequest) -> BTreeSet<(&Str, i32)> {
    let mut seen = BTreeSet::new();
    let all = request
        .topics
        .iter()
        .flat_map(|t| t.partitions.iter().map(|p| (&t.name, p.partition_index)));
    all.filter(|key| !seen.insert(*key)).collect()
}

fn plan_one(
    plan: &mut OffsetPlan,
    place: Place,
    partition_index: i32,
    checked: Result<Option<(shard::ids::ShardId, OffsetQuery)>, ErrorCode>,
) -> ListOffsetsPartitionResponse {
    let mut response = ListOffsetsPartitionResponse {
        partition_index,
        timestamp: -1,
        offset: -1,
        leader_epoch: -1,
        ..Default::default()
    };
    match checked {
        Ok(Some((shard, query))) => plan.add(shard, place, query),
        Ok(None) => {}
        Err(code) => response.error_code = code,
    }
    response
}

fn query(
    view: &View,
    version: i16,
    name: &str,
    asked: &Asked,
    isolation: Isolation,
) -> Result<Option<(shard::ids::ShardId, OffsetQuery)>, ErrorCode> {
    let topic = view.topic(TopicName::Name(name))?;
    let (_, home) = view.partition(topic, asked.partition_index)?;
    let wanted = wanted(version, asked.timestamp, isolation)?;
    let (shard, log) = home.here()?;
    let Wanted::Ask(what) = wanted else {
        return Ok(None);
    };
    let current_leader_epoch = LeaderEpoch(if version >= 4 {
        asked.current_leader_epoch
    } else {
        -1
    });
    Ok(Some((
        shard,
        OffsetQuery {
            log,
            current_leader_epoch,
            what,
        },
    )))
}

/// LO-1…7: special times and the versions that know them.
fn wanted(version: i16, timestamp: i64, isolation: Isolation) -> Result<Wanted, ErrorCode> {
    let since = |min: i16, wanted: Wanted| {
        if version >= min {
            Ok(wanted)
        } else {
            Err(ErrorCode::UNSUPPORTED_VERSION)
        }
    };
    match timestamp {
        LATEST => Ok(Wanted::Ask(OffsetQueryKind::Latest(isolation))),
        EARLIEST => Ok(Wanted::Ask(OffsetQueryKind::Earliest)),
        MAX_TIMESTAMP => since(7, Wanted::Ask(OffsetQueryKind::MaxTimestamp)),
        EARLIEST_LOCAL => since(8, Wanted::Ask(OffsetQueryKind::Earliest)),
        LATEST_TIERED => since(9, Wanted::Nothing),
        EARLIEST_PENDING_UPLOAD => since(11, Wanted::Nothing),
        0.. => Ok(Wanted::Ask(OffsetQueryKind::Timestamp(timestamp, isolation))),
        _ => Err(ErrorCode::UNSUPPORTED_VERSION),
    }
}

fn fill(response: &mut ListOffsetsPartitionResponse, answer: &OffsetAnswer, version: i16) {
    response.error_code = answer.error;
    response.offset = answer.offset.0;
    response.timestamp = answer.timestamp;
    if version >= 4 {
        response.leader_epoch = answer.leader_epoch.0;
    }
}
