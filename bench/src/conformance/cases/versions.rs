//! Every API in every version it is served in, a request that is fine and one that must fail, each answer read to its last byte
//! (BR-002): a client reads an error in the layout of the version it asked in.

use protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsRequestAlterConfigsResource, AlterConfigsRequestAlterableConfig,
};
use protocol::messages::api_versions::ApiVersionsRequest;
use protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic};
use protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use protocol::messages::describe_cluster::DescribeClusterRequest;
use protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use protocol::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use protocol::messages::describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequestTopicRequest,
};
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig,
};
use protocol::messages::init_producer_id::InitProducerIdRequest;
use protocol::messages::list_config_resources::ListConfigResourcesRequest;
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use protocol::{Str, Uuid};

use super::super::Case;
use super::super::batch::resealed;
use super::super::dialogue::{Dialogue, Topic, fetch_of, produce_of, produce_part};
use crate::error::Result;

/// An id that no topic has.
pub(super) const NO_TOPIC_ID: Uuid = Uuid([9; 16]);
/// The resource type of a topic in configuration requests.
const TOPIC: i8 = 2;

pub(super) const CASES: &[Case] = &[
    Case::new("BR-002 Produce in every version", produce),
    Case::new("BR-002 Fetch in every version (BR-003, BR-090)", fetch),
    Case::new("BR-002 ListOffsets in every version", list_offsets),
    Case::new("BR-002 Metadata in every version", metadata),
    Case::new(
        "BR-002 OffsetForLeaderEpoch in every version",
        offset_for_leader_epoch,
    ),
    Case::new("BR-002 ApiVersions in every version", api_versions),
    Case::new("BR-002 CreateTopics in every version", create_topics),
    Case::new("BR-002 DeleteTopics in every version", delete_topics),
    Case::new("BR-002 DeleteRecords in every version", delete_records),
    Case::new("BR-002 InitProducerId in every version", init_producer_id),
    Case::new("BR-002 DescribeConfigs in every version", describe_configs),
    Case::new("BR-002 AlterConfigs in every version", alter_configs),
    Case::new(
        "BR-002 IncrementalAlterConfigs in every version",
        incremental_alter_configs,
    ),
    Case::new("BR-002 DescribeLogDirs in every version", describe_log_dirs),
    Case::new("BR-002 CreatePartitions in every version", create_partitions),
    Case::new("BR-002 DescribeCluster in every version", describe_cluster),
    Case::new(
        "BR-002 ListConfigResources in every version",
        list_config_resources,
    ),
    Case::new(
        "BR-002 DescribeTopicPartitions in every version",
        describe_topic_partitions,
    ),
    Case::new("BR-002 FindCoordinator in every version", find_coordinator).differs(
        "transactions have no coordinators yet: FindCoordinator says COORDINATOR_NOT_AVAILABLE for them, which clients repeat",
    ),
];

fn nowhere(d: &Dialogue<'_>) -> Topic {
    Topic {
        name: d.name("nowhere"),
        id: NO_TOPIC_ID,
    }
}

fn produce(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let nowhere = nowhere(d);
    for version in 3..=13 {
        let good = d.batch(&["x"]);
        let bad = resealed(&good, |header| header.base_offset = 3);
        d.ask("good", version, &produce_of(&topic, 0, Some(good.clone()), -1))?;
        d.ask("base offset 3", version, &produce_of(&topic, 0, Some(bad), -1))?;
        let mut request = produce_of(&nowhere, 0, Some(good.clone()), -1);
        request.topic_data.push(produce_part(&topic, 7, Some(good)));
        d.ask("unknown topic, unknown partition", version, &request)?;
    }
    Ok(())
}

fn fetch(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let nowhere = nowhere(d);
    let batch = d.batch(&["x", "y"]);
    d.written(&topic, 0, batch)?;
    for version in 4..=18 {
        d.ask(
            "data, an empty partition, an unknown one",
            version,
            &fetch_of([(&topic, 0, 0), (&topic, 1, 0), (&topic, 5, 0)], 0),
        )?;
        d.ask(
            "out of range, unknown topic",
            version,
            &fetch_of([(&topic, 0, 9), (&nowhere, 0, 0)], 0),
        )?;
    }
    Ok(())
}

fn list_offsets(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let batch = d.batch(&["x", "y"]);
    d.written(&topic, 0, batch)?;
    let nowhere = nowhere(d);
    for version in 1..=11 {
        let part = |partition_index, timestamp| ListOffsetsPartition {
            partition_index,
            current_leader_epoch: -1,
            timestamp,
        };
        let request = |topics: &[(&Topic, i32, i64)]| ListOffsetsRequest {
            replica_id: -1,
            topics: topics
                .iter()
                .map(|&(topic, partition, timestamp)| ListOffsetsTopic {
                    name: topic.name.clone(),
                    partitions: vec![part(partition, timestamp)],
                })
                .collect(),
            timeout_ms: if version >= 10 { 1000 } else { 0 },
            ..Default::default()
        };
        d.ask("latest", version, &request(&[(&topic, 0, -1)]))?;
        d.ask(
            "first record's time",
            version,
            &request(&[(&topic, 0, d.stamp_ms())]),
        )?;
        d.ask(
            "unknown partition, unknown topic",
            version,
            &request(&[(&topic, 3, -1), (&nowhere, 0, -1)]),
        )?;
        d.ask("special value -9", version, &request(&[(&topic, 0, -9)]))?;
    }
    Ok(())
}

fn metadata(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    for version in 0..=13 {
        let named = |names: &[Str]| MetadataRequest {
            topics: Some(
                names
                    .iter()
                    .map(|name| MetadataRequestTopic {
                        name: Some(name.clone()),
                        ..Default::default()
                    })
                    .collect(),
            ),
            // Before version 4 a request cannot forbid it.
            allow_auto_topic_creation: version < 4,
            ..Default::default()
        };
        d.ask("a topic", version, &named(std::slice::from_ref(&topic.name)))?;
        d.ask(
            "a name that cannot be",
            version,
            &named(&[Str::from("not/a/topic")]),
        )?;
        if version >= 4 {
            d.ask("unknown topic", version, &named(&[d.name("nowhere")]))?;
        }
        if version >= 12 {
            let by_id = |topic_id| MetadataRequest {
                topics: Some(vec![MetadataRequestTopic { topic_id, name: None }]),
                allow_auto_topic_creation: false,
                ..Default::default()
            };
            d.ask("a topic by id", version, &by_id(topic.id))?;
            d.ask("unknown id", version, &by_id(NO_TOPIC_ID))?;
        }
    }
    Ok(())
}

fn offset_for_leader_epoch(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let batch = d.batch(&["x", "y"]);
    d.written(&topic, 0, batch)?;
    let nowhere = nowhere(d);
    for version in 2..=4 {
        let request =
            |topic: &Topic, partition, current_leader_epoch, leader_epoch| OffsetForLeaderEpochRequest {
                replica_id: -1,
                topics: vec![OffsetForLeaderTopic {
                    topic: topic.name.clone(),
                    partitions: vec![OffsetForLeaderPartition {
                        partition,
                        current_leader_epoch,
                        leader_epoch,
                    }],
                }],
            };
        d.ask("epoch 0", version, &request(&topic, 0, -1, 0))?;
        d.ask("current epoch 9", version, &request(&topic, 0, 9, 0))?;
        d.ask("unknown partition", version, &request(&topic, 4, -1, 0))?;
        d.ask("unknown topic", version, &request(&nowhere, 0, -1, 0))?;
    }
    Ok(())
}

fn api_versions(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=4 {
        for (label, name) in [("good", "conformance"), ("a name that cannot be", "not a name")] {
            let request = ApiVersionsRequest {
                client_software_name: Str::from(name),
                client_software_version: Str::from("1"),
            };
            let answer = d.quiet(version, &request)?;
            d.note(&format!(
                "v{version} {label}: {}, APIs listed: {}",
                answer.error_code,
                !answer.api_keys.is_empty()
            ));
        }
    }
    Ok(())
}

fn creatable(name: Str, num_partitions: i32) -> CreatableTopic {
    CreatableTopic {
        name,
        num_partitions,
        replication_factor: 1,
        ..Default::default()
    }
}

fn create_topics(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 2..=7 {
        let request = |topics: Vec<CreatableTopic>, validate_only| CreateTopicsRequest {
            topics,
            timeout_ms: 30_000,
            validate_only,
        };
        let name = d.name(&format!("v{version}"));
        // The defaults of a topic are compared by a case of their own.
        for (label, topics, validate_only) in [
            ("validate only", vec![creatable(name.clone(), 2)], true),
            ("create", vec![creatable(name.clone(), 2)], false),
            ("it exists", vec![creatable(name.clone(), 2)], false),
            (
                "bad name, no partitions",
                vec![
                    creatable(Str::from("not/a/topic"), 1),
                    creatable(d.name("none"), 0),
                ],
                false,
            ),
        ] {
            let mut answer = d.quiet(version, &request(topics, validate_only))?;
            for topic in &mut answer.topics {
                if let Some(configs) = &mut topic.configs {
                    configs.truncate(1);
                }
            }
            d.note(&format!("> CreateTopics v{version}: {label}"));
            d.answered(&answer);
        }
    }
    Ok(())
}

fn delete_topics(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 1..=6 {
        let topic = d.topic(&format!("v{version}"), 1, &[])?;
        let missing = d.name("nowhere");
        let request = if version < 6 {
            DeleteTopicsRequest {
                topic_names: vec![topic.name.clone(), missing],
                timeout_ms: 30_000,
                ..Default::default()
            }
        } else {
            let by_name = |name: &Str| DeleteTopicState {
                name: Some(name.clone()),
                ..Default::default()
            };
            let by_id = |topic_id| DeleteTopicState { name: None, topic_id };
            DeleteTopicsRequest {
                topics: vec![by_id(topic.id), by_name(&missing), by_id(NO_TOPIC_ID)],
                timeout_ms: 30_000,
                ..Default::default()
            }
        };
        d.ask("one that exists, one that does not", version, &request)?;
    }
    Ok(())
}

fn delete_records(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let batch = d.batch(&["a", "b", "c", "d", "e"]);
    d.written(&topic, 0, batch)?;
    let nowhere = nowhere(d);
    for version in 0..=2 {
        let request = |topic: &Topic, offset| DeleteRecordsRequest {
            topics: vec![DeleteRecordsTopic {
                name: topic.name.clone(),
                partitions: vec![DeleteRecordsPartition {
                    partition_index: 0,
                    offset,
                }],
            }],
            timeout_ms: 10_000,
        };
        d.ask("a record", version, &request(&topic, i64::from(version) + 1))?;
        d.ask("beyond the end", version, &request(&topic, 99))?;
        d.ask("unknown topic", version, &request(&nowhere, 1))?;
    }
    Ok(())
}

fn init_producer_id(d: &mut Dialogue<'_>) -> Result<()> {
    d.producer_id()?;
    for version in 0..=5 {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        d.ask("no transactional id", version, &request)?;
        if version >= 3 {
            d.ask(
                "an id without an epoch",
                version,
                &InitProducerIdRequest {
                    producer_id: 5,
                    ..request.clone()
                },
            )?;
        }
        d.ask(
            "an empty transactional id",
            version,
            &InitProducerIdRequest {
                transactional_id: Some(Str::from("")),
                ..request
            },
        )?;
    }
    Ok(())
}

fn describe_configs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("max.message.bytes", "1000")])?;
    for version in 1..=4 {
        let request = |resource_type, resource_name: Str| DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type,
                resource_name,
                configuration_keys: Some(vec![Str::from("max.message.bytes"), Str::from("cleanup.policy")]),
            }],
            include_synonyms: true,
            include_documentation: version >= 3,
        };
        let mut answer = d.quiet(version, &request(TOPIC, topic.name.clone()))?;
        for result in &mut answer.results {
            result.configs.sort_by(|a, b| a.name.cmp(&b.name));
        }
        d.note(&format!("> DescribeConfigs v{version}: two keys"));
        d.answered(&answer);
        d.ask("unknown topic", version, &request(TOPIC, d.name("nowhere")))?;
        d.ask("resource type 77", version, &request(77, Str::from("x")))?;
    }
    Ok(())
}

fn alter_configs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in 0..=2 {
        let request = |resource_name: Str, value: &str| AlterConfigsRequest {
            resources: vec![AlterConfigsRequestAlterConfigsResource {
                resource_type: TOPIC,
                resource_name,
                configs: vec![AlterConfigsRequestAlterableConfig {
                    name: Str::from("retention.ms"),
                    value: Some(Str::from(value.to_owned())),
                }],
            }],
            validate_only: false,
        };
        d.ask("good", version, &request(topic.name.clone(), "5000"))?;
        d.ask(
            "a value that is no number",
            version,
            &request(topic.name.clone(), "five"),
        )?;
        d.ask("unknown topic", version, &request(d.name("nowhere"), "5000"))?;
    }
    Ok(())
}

fn incremental_alter_configs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in 0..=1 {
        let request = |resource_name: Str, value: &str| IncrementalAlterConfigsRequest {
            resources: vec![IncrementalAlterConfigsRequestAlterConfigsResource {
                resource_type: TOPIC,
                resource_name,
                configs: vec![IncrementalAlterConfigsRequestAlterableConfig {
                    name: Str::from("retention.ms"),
                    config_operation: 0,
                    value: Some(Str::from(value.to_owned())),
                }],
            }],
            validate_only: false,
        };
        d.ask("good", version, &request(topic.name.clone(), "5000"))?;
        d.ask(
            "a value that is no number",
            version,
            &request(topic.name.clone(), "five"),
        )?;
        d.ask("unknown topic", version, &request(d.name("nowhere"), "5000"))?;
    }
    Ok(())
}

fn describe_log_dirs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let batch = d.batch(&["x"]);
    d.written(&topic, 0, batch)?;
    for version in 1..=5 {
        let request = |topic: Str, partitions: Vec<i32>| DescribeLogDirsRequest {
            topics: Some(vec![DescribableLogDirTopic { topic, partitions }]),
        };
        d.ask(
            "a partition and one that is not there",
            version,
            &request(topic.name.clone(), vec![0, 9]),
        )?;
        d.ask("unknown topic", version, &request(d.name("nowhere"), vec![0]))?;
    }
    Ok(())
}

fn create_partitions(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in 0..=3 {
        let request = |name: Str, count| CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name,
                count,
                assignments: None,
            }],
            timeout_ms: 30_000,
            validate_only: false,
        };
        d.ask(
            "one more",
            version,
            &request(topic.name.clone(), i32::from(version) + 2),
        )?;
        d.ask("fewer", version, &request(topic.name.clone(), 1))?;
        d.ask("unknown topic", version, &request(d.name("nowhere"), 3))?;
    }
    Ok(())
}

fn describe_cluster(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=2 {
        let request = |endpoint_type, operations| DescribeClusterRequest {
            include_cluster_authorized_operations: operations,
            endpoint_type,
            include_fenced_brokers: version >= 2,
        };
        d.ask("good", version, &request(1, false))?;
        d.ask("with operations", version, &request(1, true))?;
        if version >= 1 {
            d.ask("of controllers", version, &request(2, false))?;
            d.ask("endpoint type 7", version, &request(7, false))?;
        }
    }
    Ok(())
}

fn list_config_resources(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    d.ask("client metrics", 0, &ListConfigResourcesRequest::default())?;
    for resource_types in [
        vec![2i8],
        vec![4],
        vec![8],
        vec![16],
        vec![32],
        vec![],
        vec![77],
        vec![2, 77],
    ] {
        let label = format!("types {resource_types:?}");
        let mut answer = d.quiet(1, &ListConfigResourcesRequest { resource_types })?;
        // Topics of other cases are there too.
        answer
            .config_resources
            .retain(|one| one.resource_type != TOPIC || one.resource_name == topic.name);
        answer
            .config_resources
            .sort_by_key(|one| (one.resource_type, one.resource_name.clone()));
        d.note(&format!("> ListConfigResources v1: {label}"));
        d.answered(&answer);
    }
    Ok(())
}

fn describe_topic_partitions(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let request = |names: &[Str]| DescribeTopicPartitionsRequest {
        topics: names
            .iter()
            .map(|name| DescribeTopicPartitionsRequestTopicRequest { name: name.clone() })
            .collect(),
        response_partition_limit: 100,
        cursor: None,
    };
    d.ask("a topic", 0, &request(std::slice::from_ref(&topic.name)))?;
    d.ask("unknown topic", 0, &request(&[d.name("nowhere")]))?;
    d.ask("a name that cannot be", 0, &request(&[Str::from("not/a/topic")]))?;
    Ok(())
}

fn find_coordinator(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=6 {
        for key_type in [0i8, 1, 9] {
            if version == 0 && key_type != 0 {
                continue;
            }
            let mut request = FindCoordinatorRequest {
                key_type,
                ..Default::default()
            };
            if version < 4 {
                request.key = Str::from("conformance");
            } else {
                request.coordinator_keys = vec![Str::from("conformance"), Str::from("")];
            }
            d.ask(&format!("key type {key_type}"), version, &request)?;
        }
    }
    Ok(())
}
