//! How Kafka's internal topics are created: with which partitions, replicas and configurations. Where the operator sets no
//! replication factor, a cluster that is smaller than Kafka's default of three uses what it has.

use protocol::Str;
use protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig};

use super::context::Context;

struct Internal {
    name: &'static str,
    partitions: &'static str,
    replication_factor: &'static str,
    segment_bytes: &'static str,
    min_isr: Option<&'static str>,
    cleanup_policy: &'static str,
}

const INTERNAL: [Internal; 3] = [
    Internal {
        name: "__consumer_offsets",
        partitions: "offsets.topic.num.partitions",
        replication_factor: "offsets.topic.replication.factor",
        segment_bytes: "offsets.topic.segment.bytes",
        min_isr: None,
        cleanup_policy: "compact",
    },
    Internal {
        name: "__transaction_state",
        partitions: "transaction.state.log.num.partitions",
        replication_factor: "transaction.state.log.replication.factor",
        segment_bytes: "transaction.state.log.segment.bytes",
        min_isr: Some("transaction.state.log.min.isr"),
        cleanup_policy: "compact",
    },
    Internal {
        name: "__share_group_state",
        partitions: "share.coordinator.state.topic.num.partitions",
        replication_factor: "share.coordinator.state.topic.replication.factor",
        segment_bytes: "share.coordinator.state.topic.segment.bytes",
        min_isr: Some("share.coordinator.state.topic.min.isr"),
        cleanup_policy: "delete",
    },
];

/// The topic that a CreateTopics request for the internal topic `name` asks for; `None` for any other name. Its
/// `retention.ms` is −1 where segments are deleted by the coordinator itself.
#[must_use]
pub fn internal_topic(context: &Context<'_>, name: &str) -> Option<CreatableTopic> {
    let internal = INTERNAL.iter().find(|internal| internal.name == name)?;
    let layers = context.layers();
    let brokers = i64::try_from(context.image.brokers.unfenced().count().max(1)).unwrap_or(i64::MAX);
    let factor = match layers
        .set_value(internal.replication_factor)
        .and_then(|value| value.as_integer())
    {
        Some(factor) => factor,
        None => layers.integer(internal.replication_factor, 3).min(brokers),
    };
    let mut configs = vec![
        ("cleanup.policy", internal.cleanup_policy.to_owned()),
        ("compression.type", "producer".to_owned()),
        (
            "segment.bytes",
            layers.integer(internal.segment_bytes, 104_857_600).to_string(),
        ),
    ];
    if let Some(key) = internal.min_isr {
        let min_isr = match layers.set_value(key).and_then(|value| value.as_integer()) {
            Some(min_isr) => min_isr,
            None => layers.integer(key, 2).min(factor),
        };
        configs.push(("min.insync.replicas", min_isr.to_string()));
    }
    if internal.cleanup_policy == "delete" {
        configs.push(("retention.ms", "-1".to_owned()));
    }
    if internal.name == "__transaction_state" {
        configs.push(("unclean.leader.election.enable", "false".to_owned()));
    }
    Some(CreatableTopic {
        name: Str::from_static(internal.name),
        num_partitions: i32::try_from(layers.integer(internal.partitions, 50)).unwrap_or(50),
        replication_factor: i16::try_from(factor).unwrap_or(1),
        assignments: Vec::new(),
        configs: configs
            .into_iter()
            .map(|(name, value)| CreatableTopicConfig {
                name: Str::from_static(name),
                value: Some(Str::from(value)),
            })
            .collect(),
    })
}
