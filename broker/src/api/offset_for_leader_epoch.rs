//! OffsetForLeaderEpoch: where an epoch ends, so that a client or a follower finds the point its log parts from ours
//! (LE-1…4, KIP-320).

use protocol::ErrorCode;
use protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset as EpochEnd, OffsetForLeaderPartition as Asked,
    OffsetForLeaderTopicResult as TopicResult,
};
use shard::env::Env;
use shard::ids::ShardId;
use shard::message::{OffsetQuery, OffsetQueryKind};
use storage::types::LeaderEpoch;

use super::offsets::OffsetPlan;
use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// Answers for each partition asked about, in request order.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let view = context.broker.view();
    let mut plan = OffsetPlan::default();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (t, topic) in request.topics.iter().enumerate() {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (p, asked) in topic.partitions.iter().enumerate() {
            let mut end = EpochEnd {
                partition: asked.partition,
                leader_epoch: -1,
                end_offset: -1,
                ..Default::default()
            };
            match query(&view, &topic.topic, asked) {
                Ok((shard, query)) => plan.add(shard, (t, p), query),
                Err(code) => end.error_code = code,
            }
            partitions.push(end);
        }
        topics.push(TopicResult {
            topic: topic.topic.clone(),
            partitions,
        });
    }
    for ((t, p), answer) in plan.ask(&context.broker.router).await {
        let end = &mut topics[t].partitions[p];
        end.error_code = answer.error;
        end.leader_epoch = answer.leader_epoch.0;
        end.end_offset = answer.offset.0;
    }
    context.count_errors(topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code));
    OffsetForLeaderEpochResponse {
        topics,
        ..Default::default()
    }
}

fn query(view: &View, name: &str, asked: &Asked) -> Result<(ShardId, OffsetQuery), ErrorCode> {
    let topic = view.topic(TopicName::Name(name))?;
    let (_, home) = view.partition(topic, asked.partition)?;
    let (shard, log) = home.here()?;
    let query = OffsetQuery {
        log,
        current_leader_epoch: LeaderEpoch(asked.current_leader_epoch),
        what: OffsetQueryKind::EpochEnd(LeaderEpoch(asked.leader_epoch)),
    };
    Ok((shard, query))
}
