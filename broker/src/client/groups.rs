//! What the client asks about groups: which there are, their members, what they have committed, and the changes.

use std::collections::{BTreeMap, BTreeSet};

use protocol::framing::from_versioned_bytes_lenient;
use protocol::messages::consumer_group_describe::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponseDescribedGroup as DescribedConsumerGroup,
    ConsumerGroupDescribeResponseMember as DescribedConsumer,
};
use protocol::messages::consumer_protocol::ConsumerProtocolAssignment;
use protocol::messages::delete_groups::DeleteGroupsRequest;
use protocol::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponseDescribedGroup as DescribedGroup, DescribedGroupMember,
};
use protocol::messages::list_groups::ListGroupsRequest;
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup};
use protocol::{ApiKey, ErrorCode, Str};

use super::{Client, ClientError, Place, TopicPartition, by_topic, check, complete, text};

/// The protocol type of groups of consumers, whose assignments name partitions.
const PROTOCOL_CONSUMER: &str = "consumer";
/// The state of a group that does not exist, before version 6 of DescribeGroups.
const STATE_DEAD: &str = "Dead";
/// What a coordinator answers whose append has not ended in time, or that has lost the partition meanwhile: what it was asked
/// for may be done.
const LEAVES_OPEN: [ErrorCode; 3] = [
    ErrorCode::REQUEST_TIMED_OUT,
    ErrorCode::COORDINATOR_NOT_AVAILABLE,
    ErrorCode::NOT_COORDINATOR,
];

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupListing {
    /// Name.
    pub group: String,
    /// State, empty when the broker does not tell it.
    pub state: String,
    /// Type: `classic`, `consumer`, `share`, `streams`; empty when the broker does not tell it.
    pub kind: String,
    /// Protocol type, like `consumer` or `connect`.
    pub protocol_type: String,
    /// The broker that said so, its coordinator.
    pub coordinator: i32,
}

/// A group with its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Name.
    pub group: String,
    /// Type: `classic` or `consumer`.
    pub kind: &'static str,
    /// State.
    pub state: String,
    /// Protocol type, like `consumer` or `connect`.
    pub protocol_type: String,
    /// Protocol that was chosen: the assignor.
    pub protocol: String,
    /// Its coordinator.
    pub coordinator: i32,
    /// Members by id.
    pub members: Vec<MemberView>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Id that the coordinator gave it.
    pub member: String,
    /// Instance id of a static member.
    pub instance: Option<String>,
    /// Client id.
    pub client: String,
    /// Host it came from, with Kafka's slash in front.
    pub host: String,
    /// Partitions it has.
    pub assignment: Vec<TopicPartition>,
}

/// What a group has committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Offset of the next record to read.
    pub offset: i64,
    /// What the consumer noted with it.
    pub metadata: String,
}

/// The outcome for each of several partitions.
type PerPartition = Vec<(TopicPartition, Result<(), ClientError>)>;

impl Client {
    /// The groups of all brokers, by name; filters as Kafka has them, empty for all.
    ///
    /// # Errors
    /// As any request; when a filter is given and a broker does not know filters.
    pub fn groups(&mut self, states: &[String], types: &[String]) -> Result<Vec<GroupListing>, ClientError> {
        // Which brokers there are.
        self.topics(Some(&[]))?;
        let lowest = match (states.is_empty(), types.is_empty()) {
            (_, false) => 5,
            (false, true) => 4,
            (true, true) => 0,
        };
        let brokers: Vec<i32> = self.brokers.keys().copied().collect();
        let mut groups = BTreeMap::new();
        for broker in brokers {
            let answer = self.patiently(|client| {
                let answer = client.call(Place::Broker(broker), lowest..=5, |_| ListGroupsRequest {
                    states_filter: states.iter().map(|s| text(s)).collect(),
                    types_filter: types.iter().map(|t| text(t)).collect(),
                })?;
                check(answer.error_code, None, || {
                    format!("listing the groups of broker {broker}")
                })?;
                Ok(answer)
            })?;
            for group in answer.groups {
                let listing = GroupListing {
                    group: group.group_id.to_string(),
                    state: group.group_state.to_string(),
                    kind: group.group_type.to_string(),
                    protocol_type: group.protocol_type.to_string(),
                    coordinator: broker,
                };
                groups.insert(listing.group.clone(), listing);
            }
        }
        Ok(groups.into_values().collect())
    }

    /// A group with its members; `None` when there is none of that name.
    ///
    /// # Errors
    /// As any request, and the code of the answer.
    pub fn group(&mut self, group: &str) -> Result<Option<GroupView>, ClientError> {
        self.patiently(|client| {
            let coordinator = client.coordinator_once(group)?;
            let place = Place::Broker(coordinator);
            if client.serves(place, ApiKey::ConsumerGroupDescribe, &(0..=1))?
                && let Some(view) = client.consumer_group(group, coordinator)?
            {
                return Ok(Some(view));
            }
            client.classic_group(group, coordinator)
        })
    }

    /// A group of the protocol of KIP-848; `None` when it is none.
    fn consumer_group(&mut self, group: &str, coordinator: i32) -> Result<Option<GroupView>, ClientError> {
        let answer = self.call(Place::Broker(coordinator), 0..=1, |_| {
            ConsumerGroupDescribeRequest {
                group_ids: vec![text(group)],
                include_authorized_operations: false,
            }
        })?;
        let found = answer.groups.into_iter().find(|g| g.group_id == group);
        let found = found
            .ok_or_else(|| ClientError::senseless("ConsumerGroupDescribe", "it leaves the group out"))?;
        if matches!(
            found.error_code,
            ErrorCode::GROUP_ID_NOT_FOUND | ErrorCode::UNSUPPORTED_VERSION
        ) {
            return Ok(None);
        }
        let doing = || format!("describing group '{group}'");
        check(found.error_code, found.error_message.as_deref(), doing)?;
        Ok(Some(view_of_consumers(found, coordinator)))
    }

    fn classic_group(&mut self, group: &str, coordinator: i32) -> Result<Option<GroupView>, ClientError> {
        let answer = self.call(Place::Broker(coordinator), 0..=6, |_| DescribeGroupsRequest {
            groups: vec![text(group)],
            include_authorized_operations: false,
        })?;
        let found = answer.groups.into_iter().find(|g| g.group_id == group);
        let found =
            found.ok_or_else(|| ClientError::senseless("DescribeGroups", "it leaves the group out"))?;
        if found.error_code == ErrorCode::GROUP_ID_NOT_FOUND {
            return Ok(None);
        }
        let doing = || format!("describing group '{group}'");
        check(found.error_code, found.error_message.as_deref(), doing)?;
        let exists = found.group_state != STATE_DEAD;
        Ok(exists.then(|| view_of_classic(found, coordinator)))
    }

    /// What a group has committed, for all partitions.
    ///
    /// # Errors
    /// As any request, and the codes of the answer.
    pub fn committed(&mut self, group: &str) -> Result<BTreeMap<TopicPartition, Committed>, ClientError> {
        let doing = || format!("asking what group '{group}' has committed");
        self.patiently(|client| {
            // From version 10 on topics have ids instead of names.
            let answer = client.at_coordinator(group, 8..=9, |_| OffsetFetchRequest {
                groups: vec![OffsetFetchRequestGroup {
                    group_id: text(group),
                    member_epoch: -1,
                    topics: None,
                    ..OffsetFetchRequestGroup::default()
                }],
                ..OffsetFetchRequest::default()
            })?;
            let answered = answer.groups.iter().map(|g| g.group_id.as_str());
            complete(ApiKey::OffsetFetch, [group], answered)?;
            let mut committed = BTreeMap::new();
            for found in answer.groups.into_iter().filter(|g| g.group_id == group) {
                if found.error_code == ErrorCode::GROUP_ID_NOT_FOUND {
                    continue;
                }
                check(found.error_code, None, doing)?;
                for topic in found.topics {
                    for partition in topic.partitions {
                        check(partition.error_code, None, doing)?;
                        if partition.committed_offset >= 0 {
                            let value = Committed {
                                offset: partition.committed_offset,
                                metadata: partition.metadata.map(|m| m.to_string()).unwrap_or_default(),
                            };
                            committed.insert((topic.name.to_string(), partition.partition_index), value);
                        }
                    }
                }
            }
            Ok(committed)
        })
    }

    /// Commits offsets for a group without members; the outcome for each partition.
    ///
    /// # Errors
    /// As any request.
    pub fn commit(
        &mut self,
        group: &str,
        offsets: &BTreeMap<TopicPartition, i64>,
    ) -> Result<PerPartition, ClientError> {
        let topics = by_topic(offsets.keys());
        let partition = |topic: &str, number: i32| OffsetCommitRequestPartition {
            partition_index: number,
            committed_offset: offsets.get(&(topic.to_owned(), number)).copied().unwrap_or(-1),
            committed_leader_epoch: -1,
            committed_metadata: Some(text("")),
        };
        self.patiently(|client| {
            let answer = client.at_coordinator(group, 2..=9, |_| OffsetCommitRequest {
                group_id: text(group),
                generation_id_or_member_epoch: -1,
                retention_time_ms: -1,
                topics: topics
                    .iter()
                    .map(|(name, numbers)| OffsetCommitRequestTopic {
                        name: text(name),
                        partitions: numbers.iter().map(|&number| partition(name, number)).collect(),
                        ..OffsetCommitRequestTopic::default()
                    })
                    .collect(),
                ..OffsetCommitRequest::default()
            })?;
            let answered = flat(answer.topics.into_iter().map(|t| (t.name, t.partitions)));
            let codes = answered.map(|(topic, p)| ((topic, p.partition_index), p.error_code));
            per_partition(ApiKey::OffsetCommit, offsets.keys(), codes, |topic, number| {
                format!("committing the offset of {topic}-{number} for group '{group}'")
            })
        })
    }

    /// Deletes a group. It is asked for again after a code that leaves open whether the deletion is in the log. That the group
    /// is not there is a failure then as well, as with Kafka's own client, for the name may never have been one; the sentence
    /// says what came before.
    ///
    /// # Errors
    /// As any request, and the code of the answer.
    pub fn delete_group(&mut self, group: &str) -> Result<(), ClientError> {
        let mut left_open = None;
        self.patiently(|client| {
            let answer = client.at_coordinator(group, 0..=2, |_| DeleteGroupsRequest {
                groups_names: vec![text(group)],
            })?;
            let answered = answer.results.iter().map(|r| r.group_id.as_str());
            complete(ApiKey::DeleteGroups, [group], answered)?;
            for code in answer.results.into_iter().map(|r| r.error_code) {
                if LEAVES_OPEN.contains(&code) {
                    left_open = Some(code);
                }
                let before = left_open.filter(|_| code == ErrorCode::GROUP_ID_NOT_FOUND);
                let before =
                    before.map(|open| format!("an attempt before ended with {open} and may have deleted it"));
                check(code, before.as_deref(), || format!("deleting group '{group}'"))?;
            }
            Ok(())
        })
    }

    /// Deletes groups, one after the other; the outcome for each that was tried. When the time is over the rest is not tried, and
    /// that is the last outcome.
    pub fn delete_groups<'g>(&mut self, groups: &'g [String]) -> Vec<(&'g String, Result<(), ClientError>)> {
        let mut outcomes = Vec::with_capacity(groups.len());
        for (number, group) in groups.iter().enumerate() {
            self.patience
                .tick(&format!("{number} of {} groups are done", groups.len()));
            if self.patience.left().is_none() {
                let left = groups.len() - number;
                let sentence = format!(
                    "{left} of {} groups, from '{group}' on, were not deleted within the time; say --timeout SECONDS for more",
                    groups.len()
                );
                outcomes.push((
                    group,
                    Err(ClientError::new(super::error::Kind::TimedOut, sentence)),
                ));
                break;
            }
            outcomes.push((group, self.delete_group(group)));
        }
        outcomes
    }

    /// Deletes committed offsets of a group; the outcome for each partition.
    ///
    /// # Errors
    /// As any request, and the code of the whole answer.
    pub fn delete_offsets(
        &mut self,
        group: &str,
        partitions: &BTreeSet<TopicPartition>,
    ) -> Result<PerPartition, ClientError> {
        let topics = by_topic(partitions);
        self.patiently(|client| {
            let answer = client.at_coordinator(group, 0..=0, |_| OffsetDeleteRequest {
                group_id: text(group),
                topics: topics
                    .iter()
                    .map(|(name, numbers)| OffsetDeleteRequestTopic {
                        name: text(name),
                        partitions: numbers
                            .iter()
                            .map(|&partition_index| OffsetDeleteRequestPartition { partition_index })
                            .collect(),
                    })
                    .collect(),
            })?;
            check(answer.error_code, None, || {
                format!("deleting offsets of group '{group}'")
            })?;
            let answered = flat(answer.topics.into_iter().map(|t| (t.name, t.partitions)));
            let codes = answered.map(|(topic, p)| ((topic, p.partition_index), p.error_code));
            per_partition(ApiKey::OffsetDelete, partitions, codes, |topic, number| {
                format!("deleting the offset of {topic}-{number} of group '{group}'")
            })
        })
    }
}

/// Pairs of topic and partition from partitions by topic.
fn flat<P>(topics: impl Iterator<Item = (Str, Vec<P>)>) -> impl Iterator<Item = (String, P)> {
    topics.flat_map(|(topic, partitions)| {
        let topic = topic.to_string();
        let pair = move |partition| (topic.clone(), partition);
        partitions.into_iter().map(pair)
    })
}

/// The outcomes by partition; a code that may pass is the failure of the whole, which is tried again then.
fn per_partition<'a>(
    key: ApiKey,
    asked: impl IntoIterator<Item = &'a TopicPartition>,
    codes: impl Iterator<Item = (TopicPartition, ErrorCode)>,
    doing: impl Fn(&str, i32) -> String,
) -> Result<PerPartition, ClientError> {
    let asked: Vec<&TopicPartition> = asked.into_iter().collect();
    let codes: Vec<_> = codes.collect();
    complete(key, asked, codes.iter().map(|(partition, _)| partition))?;
    let mut outcomes = Vec::new();
    for (partition, code) in codes {
        let outcome = check(code, None, || doing(&partition.0, partition.1));
        match outcome {
            Err(error) if error.may_pass() => return Err(error),
            outcome => outcomes.push((partition, outcome)),
        }
    }
    Ok(outcomes)
}

fn view_of_consumers(found: DescribedConsumerGroup, coordinator: i32) -> GroupView {
    let member = |member: DescribedConsumer| MemberView {
        member: member.member_id.to_string(),
        instance: member.instance_id.map(|id| id.to_string()),
        client: member.client_id.to_string(),
        host: member.client_host.to_string(),
        assignment: {
            let topics = member.assignment.topic_partitions.into_iter();
            flat(topics.map(|t| (t.topic_name, t.partitions))).collect()
        },
    };
    let mut members: Vec<_> = found.members.into_iter().map(member).collect();
    members.sort_by(|a, b| a.member.cmp(&b.member));
    GroupView {
        group: found.group_id.to_string(),
        kind: "consumer",
        state: found.group_state.to_string(),
        protocol_type: PROTOCOL_CONSUMER.to_owned(),
        protocol: found.assignor_name.to_string(),
        coordinator,
        members,
    }
}

fn view_of_classic(found: DescribedGroup, coordinator: i32) -> GroupView {
    let is_consumer = found.protocol_type == PROTOCOL_CONSUMER;
    let member = |member: DescribedGroupMember| MemberView {
        assignment: if is_consumer {
            assignment(&member)
        } else {
            Vec::new()
        },
        member: member.member_id.to_string(),
        instance: member.group_instance_id.map(|id| id.to_string()),
        client: member.client_id.to_string(),
        host: member.client_host.to_string(),
    };
    let mut members: Vec<_> = found.members.into_iter().map(member).collect();
    members.sort_by(|a, b| a.member.cmp(&b.member));
    GroupView {
        group: found.group_id.to_string(),
        kind: "classic",
        state: found.group_state.to_string(),
        protocol_type: found.protocol_type.to_string(),
        protocol: found.protocol_data.to_string(),
        coordinator,
        members,
    }
}

/// The partitions of a member. Its bytes are the group's own; what cannot be read counts as none.
fn assignment(member: &DescribedGroupMember) -> Vec<TopicPartition> {
    if member.member_assignment.is_empty() {
        return Vec::new();
    }
    let read = from_versioned_bytes_lenient::<ConsumerProtocolAssignment>(member.member_assignment.clone());
    let topics = read.map(|a| a.assigned_partitions).unwrap_or_default();
    flat(topics.into_iter().map(|t| (t.topic, t.partitions))).collect()
}
