//! OffsetCommit, OffsetFetch, OffsetDelete (CG-40…51). Which topics exist is looked up here; the coordinator gets those that
//! do, by name, with their ids.

use std::time::Duration;

use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use protocol::{ErrorCode, Str, Uuid};
use shard::budget::BudgetClass;
use shard::coordinator::group::{
    ByTopic, CommitTopic, CommittedOffset, GroupReply, GroupRequest, OffsetCommit, OffsetFetch,
};
use shard::env::Env;
use shard::image::TopicImage;
use storage::types::TopicId;

use super::{ask, ask_each, of_kind};
use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// Since this version topics are named by their ids (KIP-848).
const TOPIC_ID_VERSION: i16 = 10;

/// Since this version an answer has an error for its group; before, each partition says it.
const GROUP_ERROR_VERSION: i16 = 2;

/// Since this version a request asks for several groups (KIP-709).
const GROUPS_VERSION: i16 = 8;

/// Partitions that a request may name; Kafka has no such bound. What is worked out for one takes about 300 bytes until it is answered.
const NAMED_MAX: usize = 500_000;

/// What a partition and a topic or group take in an answer beside their texts, bytes, at most.
const PARTITION_BYTES: usize = 32;
const TOPIC_BYTES: usize = 32;

/// Answers for each partition, in request order.
pub async fn commit<E: Env>(
    context: &RequestContext<E>,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let view = context.broker.view();
    let by_id = context.version >= TOPIC_ID_VERSION;
    let mut commit = OffsetCommit {
        group: request.group_id,
        member: request.member_id,
        instance: request.group_instance_id,
        generation: request.generation_id_or_member_epoch,
        version: context.version,
        retention: u64::try_from(request.retention_time_ms)
            .ok()
            .map(Duration::from_millis),
        topics: Vec::with_capacity(request.topics.len()),
    };
    let mut answer = Vec::with_capacity(request.topics.len());
    // For each partition that the coordinator is asked about, its place in the answer.
    let mut places = Vec::new();
    // A topic without partitions is not answered, as in Kafka.
    let named = request.topics.into_iter().filter(|t| !t.partitions.is_empty());
    for (t, topic) in named.enumerate() {
        let found = find(&view, by_id, &topic.name, topic.topic_id);
        let mut asked = Vec::new();
        let mut told = Vec::with_capacity(topic.partitions.len());
        for (p, partition) in topic.partitions.into_iter().enumerate() {
            let index = partition.partition_index;
            let error_code = match found {
                Ok(topic) if topic.partition(index).is_some() => {
                    places.push((t, p));
                    let metadata = partition.committed_metadata.unwrap_or_default();
                    asked.push((
                        index,
                        partition.committed_offset,
                        partition.committed_leader_epoch,
                        metadata,
                    ));
                    ErrorCode::NONE
                }
                Ok(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                Err(error) => error,
            };
            told.push(OffsetCommitResponsePartition {
                partition_index: index,
                error_code,
            });
        }
        if let (Ok(topic), false) = (found, asked.is_empty()) {
            commit.topics.push(CommitTopic {
                name: Str::from(topic.name.to_string()),
                id: wire_id(topic.id),
                partitions: asked,
            });
        }
        answer.push(OffsetCommitResponseTopic {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions: told,
        });
    }
    if !places.is_empty() {
        fill_in(&mut answer, places, committed(context, commit).await);
    }
    context.count_errors(answer.iter().flat_map(|t| &t.partitions).map(|p| p.error_code));
    OffsetCommitResponse {
        topics: answer,
        ..Default::default()
    }
}

/// Writes the coordinator's word for each partition at its place.
fn fill_in(
    answer: &mut [OffsetCommitResponseTopic],
    places: Vec<(usize, usize)>,
    outcome: Result<ByTopic<ErrorCode>, ErrorCode>,
) {
    let refused = outcome.as_ref().err().copied().unwrap_or_default();
    let mut errors = outcome
        .into_iter()
        .flatten()
        .flat_map(|(_, of)| of.into_iter().map(|(_, error)| error));
    for (t, p) in places {
        answer[t].partitions[p].error_code = errors.next().unwrap_or(refused);
    }
}

async fn committed<E: Env>(
    context: &RequestContext<E>,
    commit: OffsetCommit,
) -> Result<ByTopic<ErrorCode>, ErrorCode> {
    let group = commit.group.clone();
    of_kind!(Commit, ask(context, &group, GroupRequest::Commit(commit)).await)
}

fn find<'a>(view: &'a View, by_id: bool, name: &'a Str, id: Uuid) -> Result<&'a TopicImage, ErrorCode> {
    let name = if by_id {
        TopicName::Id(TopicId(id.0))
    } else {
        TopicName::Name(name)
    };
    view.topic(name).map(|topic| &**topic)
}

fn wire_id(id: TopicId) -> Uuid {
    Uuid(id.0)
}

/// Answers for each group, in request order.
pub async fn fetch<E: Env>(context: &RequestContext<E>, request: OffsetFetchRequest) -> OffsetFetchResponse {
    let view = context.broker.view();
    let is_single = context.version < GROUPS_VERSION;
    let mut asked = if is_single {
        vec![as_group(&request)]
    } else {
        request.groups
    };
    let named: usize = asked
        .iter()
        .flat_map(|g| &g.topics)
        .flatten()
        .map(|t| t.partition_indexes.len())
        .sum();
    if named > NAMED_MAX {
        return refuse_all(context, asked, ErrorCode::INVALID_REQUEST);
    }
    for topic in asked.iter_mut().flat_map(|group| &mut group.topics).flatten() {
        name_once(&mut topic.partition_indexes);
    }
    let read = |group: &OffsetFetchRequestGroup| {
        let topics = group.topics.as_ref();
        GroupRequest::Fetch(OffsetFetch {
            group: group.group_id.clone(),
            topics: topics.map(|topics| known(&view, context.version, topics)),
            require_stable: request.require_stable,
        })
    };
    let names_all = |group: &OffsetFetchRequestGroup| group.topics.is_some();
    let answered = ask_each(context, asked, |group| group.group_id.clone(), names_all, read).await;
    let mut groups = Vec::with_capacity(answered.len());
    for (group, answer) in answered {
        let found = of_kind!(Fetch, answer);
        let told = told(&view, context.version, group, found);
        context.count_error(told.error_code);
        groups.push(told);
    }
    // All that groups can have committed fits; what names the same again and again may not.
    match context
        .broker
        .budget
        .charge(BudgetClass::Responses, answer_bytes(&groups))
        .await
    {
        Ok(charge) => context.charge.set(Some(charge)),
        Err(_) => groups.iter_mut().for_each(|group| {
            group.topics.clear();
            group.error_code = ErrorCode::COORDINATOR_NOT_AVAILABLE;
        }),
    }
    in_version(context.version, groups)
}

/// The answer in the form of the version.
fn in_version(version: i16, mut groups: Vec<OffsetFetchResponseGroup>) -> OffsetFetchResponse {
    if version < GROUPS_VERSION {
        return flat(groups.pop().unwrap_or_default());
    }
    OffsetFetchResponse {
        groups,
        ..Default::default()
    }
}

fn refuse_all<E: Env>(
    context: &RequestContext<E>,
    asked: Vec<OffsetFetchRequestGroup>,
    error: ErrorCode,
) -> OffsetFetchResponse {
    let refused = |group: OffsetFetchRequestGroup| OffsetFetchResponseGroup {
        group_id: group.group_id,
        error_code: error,
        ..Default::default()
    };
    context.count_error(error);
    in_version(context.version, asked.into_iter().map(refused).collect())
}

/// What an answer takes when it is encoded, at most.
fn answer_bytes(groups: &[OffsetFetchResponseGroup]) -> u64 {
    let of_topic = |topic: &OffsetFetchResponseTopics| {
        let metadata = topic
            .partitions
            .iter()
            .map(|p| p.metadata.as_ref().map_or(0, Str::len));
        TOPIC_BYTES + topic.name.len() + topic.partitions.len() * PARTITION_BYTES + metadata.sum::<usize>()
    };
    let of_group = |group: &OffsetFetchResponseGroup| {
        TOPIC_BYTES + group.group_id.len() + group.topics.iter().map(of_topic).sum::<usize>()
    };
    groups.iter().map(of_group).sum::<usize>() as u64
}

/// Names each partition once; in order, if one was named again. Kafka answers as often as it is named, with all of its metadata: four
/// bytes of request have twelve kilobytes of answer there.
fn name_once(partitions: &mut Vec<i32>) {
    let mut sorted = partitions.clone();
    sorted.sort_unstable();
    sorted.dedup();
    if sorted.len() < partitions.len() {
        *partitions = sorted;
    }
}

/// A request for one group in the form of the later versions.
fn as_group(request: &OffsetFetchRequest) -> OffsetFetchRequestGroup {
    let topics = request.topics.as_ref().map(|topics| {
        let topic =
            |t: &protocol::messages::offset_fetch::OffsetFetchRequestTopic| OffsetFetchRequestTopics {
                name: t.name.clone(),
                partition_indexes: t.partition_indexes.clone(),
                ..Default::default()
            };
        topics.iter().map(topic).collect()
    });
    OffsetFetchRequestGroup {
        group_id: request.group_id.clone(),
        topics,
        ..Default::default()
    }
}

/// Topics by name; those whose id is unknown are left out.
fn known(view: &View, version: i16, topics: &[OffsetFetchRequestTopics]) -> Vec<(Str, Vec<i32>)> {
    topics
        .iter()
        .filter_map(|t| {
            let name = if version >= TOPIC_ID_VERSION {
                Str::from(find(view, true, &t.name, t.topic_id).ok()?.name.to_string())
            } else {
                t.name.clone()
            };
            Some((name, t.partition_indexes.clone()))
        })
        .collect()
}

type Found = Result<ByTopic<Result<Option<CommittedOffset>, ErrorCode>>, ErrorCode>;

fn told(view: &View, version: i16, group: OffsetFetchRequestGroup, found: Found) -> OffsetFetchResponseGroup {
    let mut answer = OffsetFetchResponseGroup {
        group_id: group.group_id,
        ..Default::default()
    };
    let found = match found {
        Ok(found) => found,
        Err(error) if version < GROUP_ERROR_VERSION => {
            answer.topics = refused(group.topics, error);
            return answer;
        }
        Err(error) => {
            answer.error_code = error;
            return answer;
        }
    };
    let by_id = version >= TOPIC_ID_VERSION;
    let asks_for_all = group.topics.is_none();
    for (name, mut partitions) in found {
        let id = view.topic(TopicName::Name(&name)).map(|t| wire_id(t.id)).ok();
        for (_, found) in &mut partitions {
            forget_of_another_topic(found, id);
        }
        if asks_for_all {
            partitions.retain(|(_, found)| !matches!(found, Ok(None)));
        }
        let topic_id = match (by_id, id) {
            (true, Some(id)) => id,
            // A topic that is gone has no id to be named by.
            (true, None) => continue,
            (false, _) => Uuid::default(),
        };
        if !asks_for_all || !partitions.is_empty() {
            answer.topics.push(OffsetFetchResponseTopics {
                name,
                topic_id,
                partitions: partitions.into_iter().map(partition).collect(),
            });
        }
    }
    let unknown = group
        .topics
        .into_iter()
        .flatten()
        .filter(|t| by_id && find(view, true, &t.name, t.topic_id).is_err());
    for topic in unknown {
        let none = |index| partition((index, Err(ErrorCode::UNKNOWN_TOPIC_ID)));
        answer.topics.push(OffsetFetchResponseTopics {
            topic_id: topic.topic_id,
            partitions: topic.partition_indexes.into_iter().map(none).collect(),
            ..Default::default()
        });
    }
    answer
}

/// Every partition that was asked for, with the error of its group.
fn refused(
    topics: Option<Vec<OffsetFetchRequestTopics>>,
    error: ErrorCode,
) -> Vec<OffsetFetchResponseTopics> {
    let topic = |t: OffsetFetchRequestTopics| OffsetFetchResponseTopics {
        name: t.name,
        topic_id: t.topic_id,
        partitions: t
            .partition_indexes
            .into_iter()
            .map(|index| partition((index, Err(error))))
            .collect(),
    };
    topics.into_iter().flatten().map(topic).collect()
}

/// An offset of a topic that was deleted is none, also if there is another one of that name now.
fn forget_of_another_topic(found: &mut Result<Option<CommittedOffset>, ErrorCode>, id: Option<Uuid>) {
    let is_of_another = |offset: &CommittedOffset| !offset.topic_id.is_zero() && Some(offset.topic_id) != id;
    if let Ok(offset) = found
        && offset.as_ref().is_some_and(is_of_another)
    {
        *offset = None;
    }
}

fn partition(
    (index, found): (i32, Result<Option<CommittedOffset>, ErrorCode>),
) -> OffsetFetchResponsePartitions {
    let none = OffsetFetchResponsePartitions {
        partition_index: index,
        committed_offset: -1,
        committed_leader_epoch: -1,
        metadata: Some(Str::new()),
        ..Default::default()
    };
    match found {
        Ok(None) => none,
        Ok(Some(offset)) => OffsetFetchResponsePartitions {
            committed_offset: offset.offset,
            committed_leader_epoch: offset.leader_epoch,
            metadata: Some(offset.metadata),
            ..none
        },
        Err(error_code) => OffsetFetchResponsePartitions { error_code, ..none },
    }
}

/// The answer of a version that knows one group.
fn flat(group: OffsetFetchResponseGroup) -> OffsetFetchResponse {
    let partition = |p: OffsetFetchResponsePartitions| OffsetFetchResponsePartition {
        partition_index: p.partition_index,
        committed_offset: p.committed_offset,
        committed_leader_epoch: p.committed_leader_epoch,
        metadata: p.metadata,
        error_code: p.error_code,
    };
    OffsetFetchResponse {
        topics: group
            .topics
            .into_iter()
            .map(|t| OffsetFetchResponseTopic {
                name: t.name,
                partitions: t.partitions.into_iter().map(partition).collect(),
            })
            .collect(),
        error_code: group.error_code,
        ..Default::default()
    }
}

/// Answers for each partition, in request order.
pub async fn delete<E: Env>(
    context: &RequestContext<E>,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    if request.topics.iter().map(|t| t.partitions.len()).sum::<usize>() > NAMED_MAX {
        context.count_error(ErrorCode::INVALID_REQUEST);
        return OffsetDeleteResponse {
            error_code: ErrorCode::INVALID_REQUEST,
            ..Default::default()
        };
    }
    let view = context.broker.view();
    let exists = |topic: &Str, index: i32| {
        let found = find(&view, false, topic, Uuid::default());
        found.is_ok_and(|topic| topic.partition(index).is_some())
    };
    let mut asked = Vec::new();
    let mut places = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for (t, topic) in request.topics.into_iter().enumerate() {
        let mut known = Vec::new();
        let mut told = Vec::with_capacity(topic.partitions.len());
        for (p, partition) in topic.partitions.iter().enumerate() {
            let is_there = exists(&topic.name, partition.partition_index);
            if is_there {
                known.push(partition.partition_index);
                places.push((t, p));
            }
            told.push(OffsetDeleteResponsePartition {
                partition_index: partition.partition_index,
                error_code: if is_there {
                    ErrorCode::NONE
                } else {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                },
            });
        }
        if !known.is_empty() {
            asked.push((topic.name.clone(), known));
        }
        topics.push(OffsetDeleteResponseTopic {
            name: topic.name,
            partitions: told,
        });
    }
    let deletion = GroupRequest::DeleteOffsets {
        group: request.group_id.clone(),
        topics: asked,
    };
    let answer = ask(context, &request.group_id, deletion).await;
    let results = match of_kind!(DeleteOffsets, answer).flatten() {
        Ok(results) => results,
        Err(error_code) => {
            context.count_error(error_code);
            return OffsetDeleteResponse {
                error_code,
                ..Default::default()
            };
        }
    };
    let errors = results
        .iter()
        .flat_map(|(_, of)| of.iter().map(|(_, error)| *error));
    for ((t, p), error) in places.into_iter().zip(errors) {
        topics[t].partitions[p].error_code = error;
    }
    context.count_errors(topics.iter().flat_map(|t| &t.partitions).map(|p| p.error_code));
    OffsetDeleteResponse {
        topics,
        ..Default::default()
    }
}
