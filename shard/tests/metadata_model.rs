//! Random commands against the controller and its image: what it decides always applies, what a log of records builds is
//! what was built step by step, and a snapshot's records build it again.

mod metadata;

use metadata::cluster::{Cluster, registration};
use proptest::prelude::*;
use protocol::Str;
use protocol::messages::allocate_producer_ids::AllocateProducerIdsRequest;
use protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsRequestAlterConfigsResource, AlterConfigsRequestAlterableConfig,
};
use protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use protocol::messages::delete_topics::DeleteTopicsRequest;
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig,
};
use protocol::messages::unregister_broker::UnregisterBrokerRequest;
use shard::config::{Overrides, TopicSettings};
use shard::controller::{ControllerCommand, ControllerResponse, MetadataRecord};
use shard::ids::BrokerId;
use shard::image::{ImageDelta, MetadataImage};
use shard::placement::Placement;

#[derive(Clone, Debug)]
enum Step {
    Create(Vec<(u8, i8, i8, u8)>),
    Delete(Vec<u8>),
    Grow(u8, i8),
    Alter(u8, u8, u8),
    Replace(u8, u8),
    Join(u8),
    Restart(u8, bool),
    Fence(u8),
    Stop(u8),
    Unregister(u8),
    ProducerIds(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => proptest::collection::vec((0..12u8, -1..7i8, -1..4i8, 0..8u8), 1..4).prop_map(Step::Create),
        2 => proptest::collection::vec(0..12u8, 1..3).prop_map(Step::Delete),
        2 => (0..12u8, -1..12i8).prop_map(|(t, n)| Step::Grow(t, n)),
        3 => (0..12u8, 0..8u8, 0..4u8).prop_map(|(t, c, op)| Step::Alter(t, c, op)),
        1 => (0..12u8, 0..8u8).prop_map(|(t, c)| Step::Replace(t, c)),
        3 => (0..4u8).prop_map(Step::Join),
        2 => (0..4u8, any::<bool>()).prop_map(|(b, clean)| Step::Restart(b, clean)),
        2 => (0..4u8).prop_map(Step::Fence),
        1 => (0..4u8).prop_map(Step::Stop),
        1 => (0..4u8).prop_map(Step::Unregister),
        1 => (0..4u8).prop_map(Step::ProducerIds),
    ];
    proptest::collection::vec(step, 1..60)
}

const CONFIGS: [(&str, &str); 8] = [
    ("retention.ms", "1000"),
    ("retention.ms", "nonsense"),
    ("cleanup.policy", "compact"),
    ("min.insync.replicas", "2"),
    ("segment.bytes", "2097152"),
    ("unknown.key", "1"),
    ("compression.type", "zstd"),
    ("min.compaction.lag.ms", "5"),
];

fn name(topic: u8) -> Str {
    // Names that collide by '.' and '_' are among them.
    Str::from(match topic % 3 {
        0 => format!("topic.{}", topic / 3),
        1 => format!("topic_{}", topic / 3),
        _ => format!("topic-{}", topic / 3),
    })
}

fn command(cluster: &Cluster, step: &Step, incarnation: u128) -> ControllerCommand {
    let epoch = |id: u8| {
        cluster
            .image
            .brokers
            .get(BrokerId(i32::from(id)))
            .map_or(-1, |broker| broker.epoch)
    };
    match step {
        Step::Create(topics) => ControllerCommand::CreateTopics {
            request: CreateTopicsRequest {
                topics: topics.iter().map(creatable).collect(),
                ..CreateTopicsRequest::default()
            },
            undescribable: Vec::new(),
        },
        Step::Delete(topics) => ControllerCommand::DeleteTopics {
            request: DeleteTopicsRequest {
                topic_names: topics.iter().map(|topic| name(*topic)).collect(),
                ..DeleteTopicsRequest::default()
            },
            version: 5,
        },
        Step::Grow(topic, count) => ControllerCommand::CreatePartitions(CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: name(*topic),
                count: i32::from(*count),
                assignments: None,
            }],
            ..CreatePartitionsRequest::default()
        }),
        Step::Alter(topic, config, op) => alter(*topic, *config, *op),
        Step::Replace(topic, config) => replace(*topic, *config),
        Step::Join(id) => {
            ControllerCommand::RegisterBroker(registration(i32::from(*id), "", incarnation, -1))
        }
        Step::Restart(id, clean) => {
            let previous = if *clean { epoch(*id) } else { -1 };
            ControllerCommand::RegisterBroker(registration(i32::from(*id), "", incarnation, previous))
        }
        Step::Fence(id) => ControllerCommand::FenceBroker(BrokerId(i32::from(*id))),
        Step::Stop(id) | Step::Unregister(id) => {
            ControllerCommand::UnregisterBroker(UnregisterBrokerRequest {
                broker_id: i32::from(*id),
            })
        }
        Step::ProducerIds(id) => ControllerCommand::AllocateProducerIds(AllocateProducerIdsRequest {
            broker_id: i32::from(*id),
            broker_epoch: epoch(*id),
        }),
    }
}

fn creatable((topic, partitions, factor, config): &(u8, i8, i8, u8)) -> CreatableTopic {
    let (key, value) = CONFIGS[usize::from(*config)];
    let configs = if *config % 2 == 0 {
        vec![CreatableTopicConfig {
            name: Str::from_static(key),
            value: Some(Str::from_static(value)),
        }]
    } else {
        Vec::new()
    };
    CreatableTopic {
        name: name(*topic),
        num_partitions: i32::from(*partitions),
        replication_factor: i16::from(*factor),
        assignments: Vec::new(),
        configs,
    }
}

fn alter(topic: u8, config: u8, op: u8) -> ControllerCommand {
    let (key, value) = CONFIGS[usize::from(config)];
    ControllerCommand::IncrementalAlterConfigs {
        request: IncrementalAlterConfigsRequest {
            resources: vec![IncrementalAlterConfigsRequestAlterConfigsResource {
                resource_type: 2,
                resource_name: name(topic),
                configs: vec![IncrementalAlterConfigsRequestAlterableConfig {
                    name: Str::from_static(key),
                    config_operation: i8::try_from(op).expect("small"),
                    value: Some(Str::from_static(value)),
                }],
            }],
            validate_only: false,
        },
        receiver: BrokerId(1),
    }
}

fn replace(topic: u8, config: u8) -> ControllerCommand {
    let (key, value) = CONFIGS[usize::from(config)];
    ControllerCommand::AlterConfigs {
        request: AlterConfigsRequest {
            resources: vec![AlterConfigsRequestAlterConfigsResource {
                resource_type: 2,
                resource_name: name(topic),
                configs: vec![AlterConfigsRequestAlterableConfig {
                    name: Str::from_static(key),
                    value: Some(Str::from_static(value)),
                }],
            }],
            validate_only: false,
        },
        receiver: BrokerId(1),
    }
}

/// What holds after every step.
fn check(image: &MetadataImage) {
    let mut partitions = 0;
    for topic in image.topics.iter() {
        assert_eq!(image.topics.by_name(&topic.name).map(|t| t.id), Some(topic.id));
        assert_eq!(image.topics.by_id(topic.id).map(|t| &t.name), Some(&topic.name));
        assert!(!topic.partitions.is_empty(), "{} has no partition", topic.name);
        for partition in &topic.partitions {
            partitions += 1;
            assert!(partition.elr.iter().all(|broker| !partition.isr.contains(broker)));
            if let Some(leader) = partition.leader {
                assert!(partition.isr.contains(&leader));
                assert!(image.brokers.get(leader).is_some(), "leader {leader} left");
            }
        }
        // What is stored is resolvable: nothing bad got past the checks.
        let none = Overrides::new();
        let settings = TopicSettings::resolve(
            &image.configs.layers(BrokerId(1), &none),
            image.configs.topic(&topic.name),
        );
        assert!(settings.segment_bytes >= 1 << 20);
    }
    assert_eq!(partitions, image.topics.partition_count());
}

fn rebuilt<'a>(records: impl Iterator<Item = &'a MetadataRecord>, like: &MetadataImage) -> MetadataImage {
    let mut delta = ImageDelta::new(&MetadataImage::empty(&like.cluster_id));
    delta.apply_all(records).expect("records of a log fit");
    delta.finish(like.position).0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn decisions_apply_and_images_are_what_their_records_say(steps in steps()) {
        let mut cluster = Cluster::new(1);
        cluster.join(1, "");
        let mut placement = Placement::of_image(3, &cluster.image, BrokerId(1));
        let mut producer_ids = std::collections::BTreeSet::new();
        for (at, step) in (0u128..).zip(&steps) {
            let before = cluster.image.clone();
            let command = command(&cluster, step, 10_000 + at);
            let (response, records) = cluster.run(&command);
            if let ControllerResponse::AllocateProducerIds(response) = &response
                && response.producer_id_len > 0
            {
                prop_assert!(producer_ids.insert(response.producer_id_start));
            }
            if matches!(step, Step::Join(_) | Step::Restart(..))
                && let Step::Join(id) | Step::Restart(id, _) = step
            {
                cluster.heartbeat(i32::from(*id), false, false);
            }
            if let Step::Stop(id) = step {
                cluster.heartbeat(i32::from(*id), false, true);
            }
            check(&cluster.image);

            // The image before is as it was, and the delta's changes lead to the same placement as a fresh count.
            let mut delta = ImageDelta::new(&before);
            delta.apply_all(&records).expect("records fit the image they were decided on");
            let (after, changes) = delta.finish(before.position);
            placement = placement.updated(&after, &changes, BrokerId(1));
            let placed: usize = placement.loads().iter().sum();
            let here = after.topics.iter().flat_map(|t| &t.partitions).filter(|p| p.has_replica(BrokerId(1))).count();
            prop_assert_eq!(placed, here);
        }
        let image = &cluster.image;
        prop_assert_eq!(&rebuilt(cluster.log.iter().flatten(), image), image);
        let snapshot = image.to_records();
        prop_assert_eq!(&rebuilt(snapshot.iter(), image), image);

        // The same through bytes.
        let framed = cluster.log.iter().flatten().map(MetadataRecord::to_bytes);
        let read: Vec<MetadataRecord> = framed.map(|bytes| MetadataRecord::from_bytes(bytes).expect("our own bytes")).collect();
        prop_assert_eq!(&rebuilt(read.iter(), image), image);
    }

    #[test]
    fn bytes_that_are_no_record_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), framed in any::<bool>()) {
        if framed && bytes.len() > 3 {
            bytes[0] = 1;
            bytes[1] %= 30;
            bytes[2] %= 5;
        }
        if let Ok(record) = MetadataRecord::from_bytes(bytes.into()) {
            let again = MetadataRecord::from_bytes(record.to_bytes()).expect("what we wrote");
            prop_assert_eq!(again, record);
        }
    }
}
