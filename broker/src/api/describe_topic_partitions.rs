//! DescribeTopicPartitions: partitions of topics in name order, page by page, with their eligible leader replicas (MD-12).

use protocol::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequestCursor as Cursor,
    DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponseCursor as NextCursor,
    DescribeTopicPartitionsResponsePartition as PartitionRow,
    DescribeTopicPartitionsResponseTopic as TopicRow,
};
use protocol::{ErrorCode, Str, Uuid};
use shard::controller::check_name;
use shard::env::Env;
use shard::image::{BrokerList, PartitionImage, TopicImage};
use storage::types::TopicId;

use super::authorized::TOPIC_OPERATIONS;
use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// Answers with at most as many partitions as request and broker allow, and where to go on.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let view = context.broker.view();
    let settings = &context.broker.settings;
    let layers = view.image.configs.layers(settings.node_id, &settings.fixed);
    let limit = layers.integer("max.request.partition.size.limit", 2000);
    let limit = i64::from(request.response_partition_limit).min(limit).max(1);
    let mut left = usize::try_from(limit).unwrap_or(0);
    let mut response = DescribeTopicPartitionsResponse::default();
    let start = request.cursor.as_ref();
    for name in names(&view, &request) {
        if left == 0 {
            response.next_cursor = Some(NextCursor {
                topic_name: Str::from(name),
                partition_index: 0,
            });
            break;
        }
        let Ok(topic) = view.topic(TopicName::Name(&name)) else {
            response.topics.push(unknown(context, name));
            continue;
        };
        let first = start
            .filter(|c| *c.topic_name == *name)
            .map_or(0, |c| c.partition_index.max(0));
        let (row, next) = describe(&view, topic, first, left);
        left -= row.partitions.len();
        response.topics.push(row);
        if let Some(partition_index) = next {
            response.next_cursor = Some(NextCursor {
                topic_name: Str::from(name),
                partition_index,
            });
            break;
        }
    }
    response
}

/// The topics asked for, or all, in name order from the cursor on.
fn names(view: &View, request: &DescribeTopicPartitionsRequest) -> Vec<String> {
    let from = request
        .cursor
        .as_ref()
        .map_or("", |c: &Cursor| c.topic_name.as_str());
    if request.topics.is_empty() {
        return view
            .image
            .topics
            .from_name(from)
            .map(|t| t.name.to_string())
            .collect();
    }
    let mut names: Vec<String> = request
        .topics
        .iter()
        .map(|t| t.name.to_string())
        .filter(|n| n.as_str() >= from)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn unknown<E: Env>(context: &RequestContext<E>, name: String) -> TopicRow {
    let error_code = if check_name(&name).is_ok() {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    } else {
        ErrorCode::INVALID_TOPIC_EXCEPTION
    };
    context.count_error(error_code);
    TopicRow {
        error_code,
        is_internal: shard::image::is_internal(&name),
        name: Some(Str::from(name)),
        // As Kafka: what one may do with a topic of that name.
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..Default::default()
    }
}

/// At most `left` partitions of a topic from `first` on, and the index to go on with.
fn describe(view: &View, topic: &TopicImage, first: i32, left: usize) -> (TopicRow, Option<i32>) {
    let mut partitions = Vec::new();
    let mut next = None;
    for (index, partition) in topic.indexed().filter(|(index, _)| *index >= first) {
        if partitions.len() == left {
            next = Some(index);
            break;
        }
        partitions.push(partition_row(view, topic.id, index, partition));
    }
    let row = TopicRow {
        name: Some(Str::from(topic.name.to_string())),
        topic_id: Uuid(topic.id.0),
        is_internal: topic.is_internal(),
        partitions,
        topic_authorized_operations: TOPIC_OPERATIONS,
        ..Default::default()
    };
    (row, next)
}

fn partition_row(view: &View, topic: TopicId, index: i32, partition: &PartitionImage) -> PartitionRow {
    let ids = |list: &BrokerList| list.iter().map(|id| id.0).collect::<Vec<_>>();
    let is_offline = |id: &shard::ids::BrokerId| {
        let is_away = view.image.brokers.get(*id).is_none_or(|b| b.fenced);
        is_away || view.is_offline(*id, topic, index)
    };
    PartitionRow {
        error_code: if partition.leader.is_some() {
            ErrorCode::NONE
        } else {
            ErrorCode::LEADER_NOT_AVAILABLE
        },
        partition_index: index,
        leader_id: partition.leader.map_or(-1, |id| id.0),
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        eligible_leader_replicas: Some(ids(&partition.elr)),
        last_known_elr: Some(ids(&partition.last_known_elr)),
        offline_replicas: partition
            .replicas
            .iter()
            .filter(|id| is_offline(id))
            .map(|id| id.0)
            .collect(),
    }
}
