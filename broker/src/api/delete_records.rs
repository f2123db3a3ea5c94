//! DeleteRecords: moves the log start of partitions up (AD-7).

use protocol::ErrorCode;
use protocol::messages::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use shard::env::Env;
use shard::ids::ShardId;
use shard::message::{OffsetQuery, OffsetQueryKind};
use storage::types::{LeaderEpoch, Offset};

use super::offsets::OffsetPlan;
use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// Answers for each partition, in request order, with its new log start.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let view = context.broker.view();
    let mut plan = OffsetPlan::default();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (t, topic) in request.topics.iter().enumerate() {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (p, asked) in topic.partitions.iter().enumerate() {
            let mut result = DeleteRecordsPartitionResult {
                partition_index: asked.partition_index,
                low_watermark: -1,
                ..Default::default()
            };
            match query(&view, &topic.name, asked.partition_index, asked.offset) {
                Ok((shard, query)) => plan.add(shard, (t, p), query),
                Err(code) => result.error_code = code,
            }
            partitions.push(result);
        }
        topics.push(DeleteRecordsTopicResult {
            name: topic.name.clone(),
            partitions,
        });
    }
    for ((t, p), answer) in plan.ask(&context.broker.router).await {
        let result = &mut topics[t].partitions[p];
        result.error_code = answer.error;
        result.low_watermark = answer.offset.0;
    }
    context.count_errors(topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code));
    DeleteRecordsResponse {
        topics,
        ..Default::default()
    }
}

fn query(view: &View, name: &str, partition: i32, offset: i64) -> Result<(ShardId, OffsetQuery), ErrorCode> {
    let topic = view.topic(TopicName::Name(name))?;
    if topic.is_internal() {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    let (_, home) = view.partition(topic, partition)?;
    let cleanup = view.settings(topic).cleanup_policy;
    if cleanup.compact && !cleanup.delete {
        return Err(ErrorCode::POLICY_VIOLATION);
    }
    let (shard, log) = home.here()?;
    let query = OffsetQuery {
        log,
        current_leader_epoch: LeaderEpoch::NONE,
        what: OffsetQueryKind::DeleteBefore(Offset(offset)),
    };
    Ok((shard, query))
}
