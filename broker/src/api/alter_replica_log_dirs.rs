//! AlterReplicaLogDirs: moves partitions of this broker to another of its log directories, while they are used (KIP-113). The answer
//! says that a move is accepted, DescribeLogDirs how far it is. Moving a partition to where it is calls a move of it off. For one
//! that is not here the directory is kept in mind, for when it is created.

use std::collections::BTreeMap;

use protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
};
use protocol::{ErrorCode, Str};
use shard::env::Env;
use shard::ids::{LogDir, ShardId};
use shard::moves::MoveAnswer;
use storage::types::LogId;

use crate::control::CONTROLLER_SHARD;
use crate::log_dirs::LogDirs;
use crate::node::{Broker, NodeMessage};
use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// The longest directory name, bytes (that of Linux file systems).
const NAME_BYTES_MAX: usize = 255;

/// What a partition's name has behind it while it is copied: a dot, 32 digits and `-future`.
const FUTURE_BYTES: usize = 1 + 32 + 7;

/// Where each partition is to go, and its place in the answer.
type Asked = BTreeMap<(Str, i32), (Str, usize)>;

/// Answers for each partition, in request order; of one that is named twice the last directory counts.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let broker = &context.broker;
    let view = broker.view();
    let mut results: Vec<AlterReplicaLogDirTopicResult> = Vec::new();
    for ((topic, partition), (path, _)) in in_order(asked(request)) {
        let code = one(broker, &view, &topic, partition, &path).await;
        let result = AlterReplicaLogDirPartitionResult {
            partition_index: partition,
            error_code: code,
        };
        match results.iter_mut().rev().find(|known| known.topic_name == topic) {
            Some(known) => known.partitions.push(result),
            None => results.push(AlterReplicaLogDirTopicResult {
                topic_name: topic,
                partitions: vec![result],
            }),
        }
    }
    context.count_errors(results.iter().flat_map(|t| &t.partitions).map(|p| p.error_code));
    AlterReplicaLogDirsResponse {
        results,
        ..Default::default()
    }
}

fn asked(request: AlterReplicaLogDirsRequest) -> Asked {
    let mut asked = Asked::new();
    for dir in request.dirs {
        for topic in dir.topics {
            for partition in topic.partitions {
                let place = asked.len();
                asked
                    .entry((topic.name.clone(), partition))
                    .or_insert_with(|| (Str::default(), place))
                    .0 = dir.path.clone();
            }
        }
    }
    asked
}

fn in_order(asked: Asked) -> Vec<((Str, i32), (Str, usize))> {
    let mut asked: Vec<_> = asked.into_iter().collect();
    asked.sort_unstable_by_key(|(_, (_, place))| *place);
    asked
}

async fn one<E: Env>(broker: &Broker<E>, view: &View, topic: &str, partition: i32, path: &str) -> ErrorCode {
    let dir = match target(&broker.log_dirs, topic, partition, path) {
        Ok(dir) => dir,
        Err(code) => return code,
    };
    match place(view, topic, partition) {
        Ok((shard, log)) => match move_to(broker, shard, log, dir).await {
            Some(MoveAnswer::Accepted) => ErrorCode::NONE,
            Some(MoveAnswer::NotHere) => ErrorCode::REPLICA_NOT_AVAILABLE,
            Some(MoveAnswer::TooMany) => ErrorCode::THROTTLING_QUOTA_EXCEEDED,
            Some(MoveAnswer::Offline) | None => ErrorCode::KAFKA_STORAGE_ERROR,
        },
        Err(code) => {
            if code != ErrorCode::KAFKA_STORAGE_ERROR {
                prefer(broker, topic, partition, dir).await;
            }
            code
        }
    }
}

/// The directory at `path`.
fn target(dirs: &LogDirs, topic: &str, partition: i32, path: &str) -> Result<LogDir, ErrorCode> {
    let name_bytes = topic.len() + 1 + partition.to_string().len() + FUTURE_BYTES;
    if name_bytes > NAME_BYTES_MAX {
        return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
    }
    match dirs.iter().find(|(_, known, _)| known.as_os_str() == path) {
        None => Err(ErrorCode::LOG_DIR_NOT_FOUND),
        Some((_, _, false)) => Err(ErrorCode::KAFKA_STORAGE_ERROR),
        Some((dir, _, true)) => Ok(dir),
    }
}

/// The shard that has the partition.
fn place(view: &View, topic: &str, partition: i32) -> Result<(ShardId, LogId), ErrorCode> {
    let topic = view.topic(TopicName::Name(topic))?;
    let (_, home) = view.partition(topic, partition)?;
    home.here().map_err(|code| match code {
        ErrorCode::NOT_LEADER_OR_FOLLOWER => ErrorCode::REPLICA_NOT_AVAILABLE,
        code => code,
    })
}

async fn move_to<E: Env>(broker: &Broker<E>, shard: ShardId, log: LogId, dir: LogDir) -> Option<MoveAnswer> {
    let (reply, answer) = flume::bounded(1);
    broker
        .router
        .tell(shard, NodeMessage::Move(log, dir, Some(reply)));
    answer.recv_async().await.ok()
}

/// Keeps in mind where the partition goes when it is created.
async fn prefer<E: Env>(broker: &Broker<E>, topic: &str, partition: i32, dir: LogDir) {
    let (noted, is_noted) = flume::bounded(1);
    let name = format!("{topic}-{partition}");
    broker
        .router
        .tell(CONTROLLER_SHARD, NodeMessage::Prefer(name, dir, noted));
    // Only a node that stops does not note it.
    let _ = is_noted.recv_async().await;
}

#[cfg(test)]
mod tests {
    use protocol::messages::alter_replica_log_dirs::{AlterReplicaLogDir, AlterReplicaLogDirTopic};

    use super::*;

    #[test]
    fn a_directory_is_named_as_it_is_configured_and_a_name_must_leave_room() {
        let dirs = LogDirs::new(["/one".into(), "/two".into(), "/three".into()]);
        dirs.fail(LogDir(2));
        assert_eq!(target(&dirs, "t", 0, "/two"), Ok(LogDir(1)));
        for path in ["", "/", "/two/", "two", "/four"] {
            assert_eq!(target(&dirs, "t", 0, path), Err(ErrorCode::LOG_DIR_NOT_FOUND));
        }
        assert_eq!(
            target(&dirs, "t", 0, "/three"),
            Err(ErrorCode::KAFKA_STORAGE_ERROR)
        );
        assert_eq!(target(&dirs, &"x".repeat(213), 0, "/two"), Ok(LogDir(1)));
        for path in ["/two", "/four"] {
            let long = target(&dirs, &"x".repeat(214), 0, path);
            assert_eq!(long, Err(ErrorCode::INVALID_TOPIC_EXCEPTION));
        }
    }

    #[test]
    fn of_a_partition_that_is_named_twice_the_last_directory_counts() {
        let of = |path: &'static str, partitions: &[i32]| AlterReplicaLogDir {
            path: Str::from_static(path),
            topics: vec![AlterReplicaLogDirTopic {
                name: Str::from_static("t"),
                partitions: partitions.to_vec(),
            }],
        };
        let request = AlterReplicaLogDirsRequest {
            dirs: vec![of("/one", &[7, 0, 7]), of("/two", &[3, 7])],
        };
        let order: Vec<_> = in_order(asked(request))
            .into_iter()
            .map(|((_, partition), (path, _))| (partition, path.to_string()))
            .collect();
        assert_eq!(
            order,
            [
                (7, "/two".to_owned()),
                (0, "/one".to_owned()),
                (3, "/two".to_owned())
            ]
        );
    }
}
