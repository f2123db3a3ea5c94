//! DescribeLogDirs: the log directories, their space, and the sizes of the partitions in them (AD-18, BR-048).

use std::collections::{BTreeMap, BTreeSet};

use protocol::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult,
    DescribeLogDirsTopic,
};
use protocol::{ErrorCode, Str};
use shard::env::Env;
use shard::ids::ShardId;
use shard::message::{LogSummary, ShardReply, ShardRequest};

use crate::node::Broker;
use crate::request::RequestContext;
use crate::view::View;

/// Answers with each log directory.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let view = context.broker.view();
    let wanted: Option<BTreeSet<(String, i32)>> = request.topics.map(|topics| {
        topics
            .iter()
            .flat_map(|t| t.partitions.iter().map(|p| (t.topic.to_string(), *p)))
            .collect()
    });
    let logs = logs(context).await;
    let results = context
        .broker
        .log_dirs
        .iter()
        .map(|(dir, path, is_online)| {
            let log_dir = Str::from(path.display().to_string());
            if !is_online {
                return DescribeLogDirsResult {
                    error_code: ErrorCode::KAFKA_STORAGE_ERROR,
                    log_dir,
                    total_bytes: -1,
                    usable_bytes: -1,
                    ..Default::default()
                };
            }
            let space = Broker::<E>::log_dir_space(path);
            let here = logs.iter().filter(|log| log.dir == dir);
            DescribeLogDirsResult {
                log_dir,
                topics: topics(&view, here, wanted.as_ref()),
                total_bytes: space.map_or(-1, |s| s.0),
                usable_bytes: space.map_or(-1, |s| s.1),
                ..Default::default()
            }
        })
        .collect();
    DescribeLogDirsResponse {
        results,
        ..Default::default()
    }
}

/// The logs of all shards.
async fn logs<E: Env>(context: &RequestContext<E>) -> Vec<LogSummary> {
    let router = &context.broker.router;
    let asked: Vec<_> = (0..router.shards())
        .filter_map(|s| router.ask(ShardId(s), ShardRequest::Logs).ok())
        .collect();
    let mut logs = Vec::new();
    for asked in asked {
        if let ShardReply::Logs(of_shard) = asked.await {
            logs.extend(of_shard);
        }
    }
    logs
}

fn topics<'a>(
    view: &View,
    logs: impl Iterator<Item = &'a LogSummary>,
    wanted: Option<&BTreeSet<(String, i32)>>,
) -> Vec<DescribeLogDirsTopic> {
    let mut by_topic: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for log in logs {
        let Some(topic) = view.image.topics.by_id(log.log.topic) else {
            continue;
        };
        let name = topic.name.to_string();
        let key = (name, log.log.partition);
        if wanted.is_some_and(|w| !w.contains(&key)) {
            continue;
        }
        by_topic.entry(key.0).or_default().push(DescribeLogDirsPartition {
            partition_index: log.log.partition,
            partition_size: i64::try_from(log.size_bytes).unwrap_or(i64::MAX),
            offset_lag: (log.high_watermark.0 - log.log_end.0).max(0),
            is_future_key: log.is_future,
        });
    }
    let topic = |(name, mut partitions): (String, Vec<DescribeLogDirsPartition>)| {
        partitions.sort_by_key(|p| (p.partition_index, p.is_future_key));
        DescribeLogDirsTopic {
            name: Str::from(name),
            partitions,
        }
    };
    by_topic.into_iter().map(topic).collect()
}
