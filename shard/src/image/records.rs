//! An image as records: what a snapshot holds. Applying them to an empty image gives an equal one.

use protocol::messages::cluster_metadata as wire;
use protocol::{Str, Uuid};

use super::{BrokerImage, BrokerList, MetadataImage, PartitionImage, ResourceKind, TopicImage};
use crate::controller::MetadataRecord;
use crate::controller::features::METADATA_VERSION;

impl MetadataImage {
    /// Records that build this image from an empty one, the metadata version first (whoever reads the others needs it).
    #[must_use]
    pub fn to_records(&self) -> Vec<MetadataRecord> {
        let mut records = Vec::new();
        let mut features: Vec<_> = self.features.iter().collect();
        features.sort_by_key(|(name, _)| (&***name != METADATA_VERSION, (*name).clone()));
        records.extend(features.into_iter().map(|(name, level)| {
            MetadataRecord::FeatureLevel(wire::FeatureLevelRecord {
                name: text(name),
                feature_level: *level,
            })
        }));
        records.extend(self.brokers.iter().map(|broker| broker_record(broker)));
        for topic in self.topics.iter() {
            push_topic(&mut records, topic);
        }
        for kind in ResourceKind::ALL {
            for (name, own) in self.configs.iter(kind) {
                records.extend(
                    own.iter()
                        .map(|(key, value)| config_record(kind, name, key, Some(value))),
                );
            }
        }
        if self.next_producer_id.0 > 0 {
            records.push(MetadataRecord::ProducerIds(wire::ProducerIdsRecord {
                broker_id: -1,
                broker_epoch: -1,
                next_producer_id: self.next_producer_id.0,
            }));
        }
        records
    }
}

/// A record that sets or, without a value, removes a key of a resource.
#[must_use]
pub fn config_record(kind: ResourceKind, name: &str, key: &str, value: Option<&str>) -> MetadataRecord {
    MetadataRecord::Config(wire::ConfigRecord {
        resource_type: kind.wire(),
        resource_name: text(name),
        name: text(key),
        value: value.map(text),
    })
}

fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

fn numbers(brokers: &BrokerList) -> Vec<i32> {
    brokers.iter().map(|broker| broker.0).collect()
}

fn push_topic(records: &mut Vec<MetadataRecord>, topic: &TopicImage) {
    let id = Uuid(topic.id.0);
    records.push(MetadataRecord::Topic(wire::TopicRecord {
        name: text(&topic.name),
        topic_id: id,
    }));
    records.extend(
        topic
            .indexed()
            .map(|(index, partition)| partition_record(id, index, partition)),
    );
}

/// The whole state of a partition as a record.
#[must_use]
pub fn partition_record(topic: Uuid, index: i32, partition: &PartitionImage) -> MetadataRecord {
    let unless_empty = |list: &BrokerList| (!list.is_empty()).then(|| numbers(list));
    MetadataRecord::Partition(wire::PartitionRecord {
        partition_id: index,
        topic_id: topic,
        replicas: numbers(&partition.replicas),
        isr: numbers(&partition.isr),
        removing_replicas: numbers(&partition.removing),
        adding_replicas: numbers(&partition.adding),
        leader: partition.leader.map_or(-1, |leader| leader.0),
        leader_recovery_state: i8::from(partition.is_recovering),
        leader_epoch: partition.leader_epoch.0,
        partition_epoch: partition.partition_epoch,
        directories: partition.directories.to_vec(),
        eligible_leader_replicas: unless_empty(&partition.elr),
        last_known_elr: unless_empty(&partition.last_known_elr),
    })
}

fn broker_record(broker: &BrokerImage) -> MetadataRecord {
    MetadataRecord::RegisterBroker(wire::RegisterBrokerRecord {
        broker_id: broker.id.0,
        is_migrating_zk_broker: false,
        incarnation_id: broker.incarnation,
        broker_epoch: broker.epoch,
        end_points: broker
            .endpoints
            .iter()
            .map(|endpoint| wire::BrokerEndpoint {
                name: text(&endpoint.listener),
                host: text(&endpoint.host),
                port: endpoint.port,
                security_protocol: endpoint.security_protocol,
            })
            .collect(),
        features: broker
            .features
            .iter()
            .map(|feature| wire::BrokerFeature {
                name: text(&feature.name),
                min_supported_version: feature.min,
                max_supported_version: feature.max,
            })
            .collect(),
        rack: broker.rack.as_deref().map(text),
        fenced: broker.fenced,
        in_controlled_shutdown: broker.in_controlled_shutdown,
        log_dirs: broker.directories.clone(),
        cordoned_log_dirs: broker.cordoned_directories.clone(),
    })
}
