//! Answers list what was asked, all of it, in the order it was asked (BR-005): some clients pair them by place.

use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use protocol::messages::produce::ProduceRequest;
use protocol::{ErrorCode, Str};

use super::super::Case;
use super::super::dialogue::{Dialogue, Topic, produce_part};
use super::super::target::GROUPS;
use super::groups::group;
use crate::error::Result;

pub(super) const CASES: &[Case] = &[Case::new("BR-005 answers in the order of the request", order)
    .on(&GROUPS)
    .differs("every answer lists what was asked in the order it was asked; Kafka's follow its hash maps in some APIs")];

const TOPICS: usize = 30;

/// What was asked and what was answered, item by item; the unknown topic stands in the middle.
fn told<'a>(
    d: &mut Dialogue<'_>,
    api: &str,
    asked: &[Str],
    answered: impl Iterator<Item = (&'a Str, ErrorCode)>,
    unknown: &Str,
) {
    let (names, errors): (Vec<_>, Vec<_>) = answered.unzip();
    let is_complete = names.len() == asked.len() && asked.iter().all(|name| names.contains(&name));
    let with_errors = || names.iter().zip(&errors);
    let others = with_errors().filter(|(name, error)| **name != unknown && **error != ErrorCode::NONE);
    let others = others.count();
    let error = with_errors().find(|(name, _)| **name == unknown);
    let error = error.map(|(_, error)| *error);
    d.note(&format!(
        "{api}: complete {is_complete}, in order {}, the unknown one {error:?}, others with an error {others}",
        names.iter().copied().eq(asked)
    ));
}

fn order(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let mut topics = Vec::with_capacity(TOPICS);
    for number in 0..TOPICS {
        topics.push(d.topic(&format!("t{number}"), 3, &[])?);
    }
    // Neither by name nor by age: seven is prime to thirty.
    let mut shuffled: Vec<Topic> = (0..TOPICS).map(|n| topics[n * 7 % TOPICS].clone()).collect();
    let unknown = Topic {
        name: d.name("nowhere"),
        id: protocol::Uuid::ONE,
    };
    shuffled.insert(TOPICS / 2, unknown.clone());
    let names: Vec<Str> = shuffled.iter().map(|t| t.name.clone()).collect();
    offsets(d, &group, &shuffled, &names, &unknown.name)?;
    logs(d, &shuffled, &names, &unknown.name)?;
    admin(d, &names, &unknown.name)
}

fn offsets(d: &mut Dialogue<'_>, group: &Str, topics: &[Topic], names: &[Str], unknown: &Str) -> Result<()> {
    let commit = OffsetCommitRequest {
        group_id: group.clone(),
        generation_id_or_member_epoch: -1,
        retention_time_ms: -1,
        topics: topics
            .iter()
            .map(|topic| OffsetCommitRequestTopic {
                name: topic.name.clone(),
                partitions: [2, 0, 1]
                    .map(|partition_index| OffsetCommitRequestPartition {
                        partition_index,
                        committed_offset: 7,
                        ..Default::default()
                    })
                    .into(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let answer = d.quiet(8, &commit)?;
    let found = answer
        .topics
        .iter()
        .map(|t| (&t.name, t.partitions[0].error_code));
    told(d, "OffsetCommit", names, found, unknown);
    let fetch = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.clone(),
            member_epoch: -1,
            topics: Some(
                names
                    .iter()
                    .map(|name| OffsetFetchRequestTopics {
                        name: name.clone(),
                        partition_indexes: vec![2, 0, 1],
                        ..Default::default()
                    })
                    .collect(),
            ),
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = d.quiet(8, &fetch)?;
    let found = answer.groups[0]
        .topics
        .iter()
        .map(|t| (&t.name, t.partitions[0].error_code));
    told(d, "OffsetFetch", names, found, unknown);
    Ok(())
}

fn logs(d: &mut Dialogue<'_>, topics: &[Topic], names: &[Str], unknown: &Str) -> Result<()> {
    let batch = d.batch(&["x"]);
    let produce = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        topic_data: topics
            .iter()
            .map(|topic| produce_part(topic, 1, Some(batch.clone())))
            .collect(),
        ..Default::default()
    };
    let answer = d.quiet(12, &produce)?;
    let found = answer
        .responses
        .iter()
        .map(|t| (&t.name, t.partition_responses[0].error_code));
    told(d, "Produce", names, found, unknown);
    let list = ListOffsetsRequest {
        replica_id: -1,
        topics: names
            .iter()
            .map(|name| ListOffsetsTopic {
                name: name.clone(),
                partitions: vec![ListOffsetsPartition {
                    partition_index: 1,
                    current_leader_epoch: -1,
                    timestamp: -1,
                }],
            })
            .collect(),
        ..Default::default()
    };
    let answer = d.quiet(6, &list)?;
    let found = answer
        .topics
        .iter()
        .map(|t| (&t.name, t.partitions[0].error_code));
    told(d, "ListOffsets", names, found, unknown);
    let delete = DeleteRecordsRequest {
        topics: names
            .iter()
            .map(|name| DeleteRecordsTopic {
                name: name.clone(),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: 1,
                    offset: 1,
                }],
            })
            .collect(),
        timeout_ms: 10_000,
    };
    let answer = d.quiet(2, &delete)?;
    let found = answer
        .topics
        .iter()
        .map(|t| (&t.name, t.partitions[0].error_code));
    told(d, "DeleteRecords", names, found, unknown);
    Ok(())
}

fn admin(d: &mut Dialogue<'_>, names: &[Str], unknown: &Str) -> Result<()> {
    let create = CreateTopicsRequest {
        topics: names
            .iter()
            .map(|name| CreatableTopic {
                name: name.clone(),
                num_partitions: 1,
                replication_factor: 1,
                ..Default::default()
            })
            .collect(),
        timeout_ms: 10_000,
        validate_only: true,
    };
    let answer = d.quiet(7, &create)?;
    // All but one exist: here the unknown one is the good one.
    let found = answer.topics.iter().map(|t| (&t.name, t.error_code));
    told(d, "CreateTopics", names, found, unknown);
    let describe = DescribeConfigsRequest {
        resources: names
            .iter()
            .map(|name| DescribeConfigsResource {
                resource_type: 2,
                resource_name: name.clone(),
                configuration_keys: Some(vec!["retention.ms".into()]),
            })
            .collect(),
        ..Default::default()
    };
    let answer = d.quiet(4, &describe)?;
    let found = answer.results.iter().map(|r| (&r.resource_name, r.error_code));
    told(d, "DescribeConfigs", names, found, unknown);
    Ok(())
}
