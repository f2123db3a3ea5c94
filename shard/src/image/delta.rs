//! From one image to the next: records applied one by one, and what they changed, for those who act on changes (a shard
//! opens and removes logs, resolves settings again).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use protocol::Uuid;
use protocol::messages::cluster_metadata as wire;
use storage::types::{LeaderEpoch, ProducerId, TopicId};

use super::{
    BrokerImage, BrokerList, EndpointImage, ImagePosition, MetadataImage, PartitionImage, ResourceKind,
    SupportedFeature, TopicImage,
};
use crate::controller::MetadataRecord;
use crate::ids::BrokerId;

/// An image in the making.
#[derive(Clone, Debug)]
pub struct ImageDelta {
    image: MetadataImage,
    changes: ImageChanges,
}

/// What a delta changed. A topic that came and went within one delta is in none of the sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImageChanges {
    /// New topics.
    pub topics_created: BTreeSet<TopicId>,
    /// Topics that are gone, as they were.
    pub topics_removed: BTreeMap<TopicId, Arc<TopicImage>>,
    /// Partitions that are new or changed, also those of new topics.
    pub partitions: BTreeSet<(TopicId, i32)>,
    /// Names of topics whose own configuration changed.
    pub topic_configs: BTreeSet<Arc<str>>,
    /// Brokers whose dynamic configuration changed; `None` is the cluster's default.
    pub broker_configs: BTreeSet<Option<BrokerId>>,
    /// Groups whose configuration changed.
    pub group_configs: BTreeSet<Arc<str>>,
    /// Client metrics subscriptions that changed.
    pub client_metrics_configs: BTreeSet<Arc<str>>,
    /// Brokers that registered, changed or left.
    pub brokers: BTreeSet<BrokerId>,
    /// Whether feature levels changed.
    pub features: bool,
    /// Whether producer ids were taken.
    pub producer_ids: bool,
}

impl ImageChanges {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds what changed after this.
    pub fn merge(&mut self, later: Self) {
        for (id, topic) in later.topics_removed {
            self.partitions.retain(|(changed, _)| *changed != id);
            self.topic_configs.remove(&topic.name);
            if !self.topics_created.remove(&id) {
                self.topics_removed.insert(id, topic);
            }
        }
        self.topics_created.extend(later.topics_created);
        self.partitions.extend(later.partitions);
        self.topic_configs.extend(later.topic_configs);
        self.broker_configs.extend(later.broker_configs);
        self.group_configs.extend(later.group_configs);
        self.client_metrics_configs.extend(later.client_metrics_configs);
        self.brokers.extend(later.brokers);
        self.features |= later.features;
        self.producer_ids |= later.producer_ids;
    }

    /// What differs between two images of a cluster, when the records between them are not known.
    #[must_use]
    pub fn between(former: &MetadataImage, next: &MetadataImage) -> Self {
        let mut changes = Self {
            features: former.features != next.features,
            producer_ids: former.next_producer_id != next.next_producer_id,
            ..Self::default()
        };
        for topic in former
            .topics
            .iter()
            .filter(|topic| next.topics.by_id(topic.id).is_none())
        {
            changes.topics_removed.insert(topic.id, Arc::clone(topic));
        }
        for topic in next.topics.iter() {
            let before = former.topics.by_id(topic.id);
            if before.is_none() {
                changes.topics_created.insert(topic.id);
            }
            let differs = |index| before.and_then(|before| before.partition(index)) != topic.partition(index);
            let indexes = topic
                .indexed()
                .map(|(index, _)| index)
                .filter(|index| differs(*index));
            changes.partitions.extend(indexes.map(|index| (topic.id, index)));
        }
        let brokers = former
            .brokers
            .iter()
            .chain(next.brokers.iter())
            .map(|broker| broker.id);
        changes.brokers = brokers
            .filter(|id| former.brokers.get(*id) != next.brokers.get(*id))
            .collect();
        for kind in ResourceKind::ALL {
            let names = former
                .configs
                .iter(kind)
                .chain(next.configs.iter(kind))
                .map(|(name, _)| name);
            for name in names.filter(|name| former.configs.of(kind, name) != next.configs.of(kind, name)) {
                changes.note_config(kind, name);
            }
        }
        changes
    }

    fn note_config(&mut self, kind: ResourceKind, name: &str) {
        match kind {
            ResourceKind::Topic => self.topic_configs.insert(Arc::from(name)),
            ResourceKind::Group => self.group_configs.insert(Arc::from(name)),
            ResourceKind::ClientMetrics => self.client_metrics_configs.insert(Arc::from(name)),
            ResourceKind::Broker => self.broker_configs.insert(name.parse().ok().map(BrokerId)),
        };
    }
}

/// A record that says something impossible about the image before it. The controller never emits one and the log is
/// checked, so at commit this is a bug of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{record} cannot be applied: {reason}")]
pub struct ApplyError {
    /// The record's name.
    pub record: &'static str,
    /// What is impossible.
    pub reason: String,
}

impl ImageDelta {
    /// A delta on `image` without changes.
    #[must_use]
    pub fn new(image: &MetadataImage) -> Self {
        Self {
            image: image.clone(),
            changes: ImageChanges::default(),
        }
    }

    /// The image so far, at the old position.
    #[must_use]
    pub const fn image(&self) -> &MetadataImage {
        &self.image
    }

    /// What changed so far.
    #[must_use]
    pub const fn changes(&self) -> &ImageChanges {
        &self.changes
    }

    /// The new image at `position`, and what changed.
    #[must_use]
    pub fn finish(mut self, position: ImagePosition) -> (MetadataImage, ImageChanges) {
        assert!(position >= self.image.position, "an image never goes back");
        self.image.position = position;
        (self.image, self.changes)
    }

    /// Applies all of `records`.
    ///
    /// # Errors
    /// See [`ImageDelta::apply`]; the delta is of no use then.
    pub fn apply_all<'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a MetadataRecord>,
    ) -> Result<(), ApplyError> {
        records.into_iter().try_for_each(|record| self.apply(record))
    }

    /// Applies one record.
    ///
    /// # Errors
    /// When the record says something impossible about the image so far; nothing is changed then.
    pub fn apply(&mut self, record: &MetadataRecord) -> Result<(), ApplyError> {
        let outcome = match record {
            MetadataRecord::RegisterBroker(record) => self.register_broker(record),
            MetadataRecord::UnregisterBroker(record) => self.unregister_broker(record),
            MetadataRecord::Topic(record) => self.create_topic(record),
            MetadataRecord::Partition(record) => self.create_partition(record),
            MetadataRecord::Config(record) => self.set_config(record),
            MetadataRecord::PartitionChange(record) => self.change_partition(record),
            MetadataRecord::FenceBroker(record) => {
                self.change_broker(record.id, record.epoch, |broker| broker.fenced = true)
            }
            MetadataRecord::UnfenceBroker(record) => {
                self.change_broker(record.id, record.epoch, |broker| broker.fenced = false)
            }
            MetadataRecord::RemoveTopic(record) => self.remove_topic(topic_id(record.topic_id)),
            MetadataRecord::FeatureLevel(record) => self.set_feature(record),
            MetadataRecord::ProducerIds(record) => self.take_producer_ids(record),
            MetadataRecord::BrokerRegistrationChange(record) => self.change_registration(record),
            MetadataRecord::NoOp(_) => Ok(()),
            MetadataRecord::ClearElr(record) => self.clear_elr(&record.topic_name),
        };
        outcome.map_err(|reason| ApplyError {
            record: record.name(),
            reason,
        })
    }

    fn register_broker(&mut self, record: &wire::RegisterBrokerRecord) -> Result<(), String> {
        let id = BrokerId(record.broker_id);
        if let Some(former) = self.image.brokers.get(id)
            && former.epoch >= record.broker_epoch
        {
            return Err(format!("broker {id} has epoch {} already", former.epoch));
        }
        let broker = broker_image(record);
        self.image.brokers.by_id.insert(id, Arc::new(broker));
        self.changes.brokers.insert(id);
        Ok(())
    }

    fn unregister_broker(&mut self, record: &wire::UnregisterBrokerRecord) -> Result<(), String> {
        let id = BrokerId(record.broker_id);
        self.broker(record.broker_id, record.broker_epoch)?;
        self.image.brokers.by_id.remove(&id);
        self.changes.brokers.insert(id);
        Ok(())
    }

    fn change_registration(&mut self, record: &wire::BrokerRegistrationChangeRecord) -> Result<(), String> {
        self.change_broker(record.broker_id, record.broker_epoch, |broker| {
            match record.fenced {
                -1 => broker.fenced = false,
                1 => broker.fenced = true,
                _ => {}
            }
            if record.in_controlled_shutdown == 1 {
                broker.in_controlled_shutdown = true;
            }
            if !record.log_dirs.is_empty() {
                broker.directories.clone_from(&record.log_dirs);
            }
            if let Some(cordoned) = &record.cordoned_log_dirs {
                broker.cordoned_directories = Some(cordoned.clone());
            }
        })
    }

    fn broker(&self, id: i32, epoch: i64) -> Result<&Arc<BrokerImage>, String> {
        match self.image.brokers.get(BrokerId(id)) {
            None => Err(format!("broker {id} is not registered")),
            Some(broker) if broker.epoch != epoch => Err(format!(
                "broker {id} has epoch {}, the record {epoch}",
                broker.epoch
            )),
            Some(broker) => Ok(broker),
        }
    }

    fn change_broker(
        &mut self,
        id: i32,
        epoch: i64,
        change: impl FnOnce(&mut BrokerImage),
    ) -> Result<(), String> {
        let mut broker = (**self.broker(id, epoch)?).clone();
        change(&mut broker);
        self.image.brokers.by_id.insert(BrokerId(id), Arc::new(broker));
        self.changes.brokers.insert(BrokerId(id));
        Ok(())
    }

    fn create_topic(&mut self, record: &wire::TopicRecord) -> Result<(), String> {
        let id = topic_id(record.topic_id);
        let name = record.name.as_str();
        if self.image.topics.by_id(id).is_some() || self.image.topics.by_name(name).is_some() {
            return Err(format!("topic {name} or its id exists already"));
        }
        self.image.topics.create(name, id);
        self.changes.topics_created.insert(id);
        Ok(())
    }

    fn create_partition(&mut self, record: &wire::PartitionRecord) -> Result<(), String> {
        let id = topic_id(record.topic_id);
        let topic = self
            .image
            .topics
            .by_id(id)
            .ok_or_else(|| format!("no topic with id {id:?}"))?;
        if usize::try_from(record.partition_id) != Ok(topic.partitions.len()) {
            return Err(format!(
                "partition {} of {} would leave a gap or exists: it has {}",
                record.partition_id,
                topic.name,
                topic.partitions.len()
            ));
        }
        self.image.topics.push_partition(id, partition_image(record)?);
        self.changes.partitions.insert((id, record.partition_id));
        Ok(())
    }

    fn change_partition(&mut self, record: &wire::PartitionChangeRecord) -> Result<(), String> {
        let id = topic_id(record.topic_id);
        let slot = self
            .image
            .topics
            .partition_mut(id, record.partition_id)
            .ok_or_else(|| format!("no partition {} of {id:?}", record.partition_id))?;
        *slot = Arc::new(changed_partition(slot, record)?);
        self.changes.partitions.insert((id, record.partition_id));
        Ok(())
    }

    fn remove_topic(&mut self, id: TopicId) -> Result<(), String> {
        let removed = self.image.topics.remove(id).ok_or("no such topic id")?;
        self.image.configs.remove(ResourceKind::Topic, &removed.name);
        self.changes.partitions.retain(|(topic, _)| *topic != id);
        self.changes.topic_configs.remove(&removed.name);
        if !self.changes.topics_created.remove(&id) {
            self.changes.topics_removed.insert(id, removed);
        }
        Ok(())
    }

    fn set_config(&mut self, record: &wire::ConfigRecord) -> Result<(), String> {
        let kind = ResourceKind::from_wire(record.resource_type)
            .ok_or_else(|| format!("resource type {}", record.resource_type))?;
        let name = record.resource_name.as_str();
        let value = record.value.as_ref().map(|value| value.as_str());
        self.image.configs.set(kind, name, record.name.as_str(), value);
        self.changes.note_config(kind, name);
        Ok(())
    }

    fn set_feature(&mut self, record: &wire::FeatureLevelRecord) -> Result<(), String> {
        let features = Arc::make_mut(&mut self.image.features);
        match record.feature_level {
            ..0 => return Err(format!("level {} of {}", record.feature_level, &*record.name)),
            0 => features.remove(record.name.as_str()),
            level => features.insert(Arc::from(record.name.as_str()), level),
        };
        self.changes.features = true;
        Ok(())
    }

    fn take_producer_ids(&mut self, record: &wire::ProducerIdsRecord) -> Result<(), String> {
        let next = ProducerId(record.next_producer_id);
        if next <= self.image.next_producer_id {
            return Err(format!(
                "producer ids below {} are taken",
                self.image.next_producer_id
            ));
        }
        self.image.next_producer_id = next;
        self.changes.producer_ids = true;
        Ok(())
    }

    /// Forgets the ELRs of one topic, or of all when the name is empty.
    fn clear_elr(&mut self, name: &str) -> Result<(), String> {
        let topics: Vec<Arc<TopicImage>> = match name {
            "" => self.image.topics.iter().cloned().collect(),
            name => vec![
                self.image
                    .topics
                    .by_name(name)
                    .cloned()
                    .ok_or_else(|| format!("no topic {name}"))?,
            ],
        };
        for topic in topics {
            for (index, partition) in topic.indexed() {
                let is_clear = partition.elr.is_empty() && partition.last_known_elr.is_empty();
                if !is_clear && let Some(slot) = self.image.topics.partition_mut(topic.id, index) {
                    let partition = Arc::make_mut(slot);
                    partition.elr.clear();
                    partition.last_known_elr.clear();
                    self.changes.partitions.insert((topic.id, index));
                }
            }
        }
        Ok(())
    }
}

fn topic_id(id: Uuid) -> TopicId {
    TopicId(id.0)
}

fn brokers(ids: &[i32]) -> BrokerList {
    ids.iter().copied().map(BrokerId).collect()
}

fn leader(id: i32) -> Option<BrokerId> {
    (id >= 0).then_some(BrokerId(id))
}

fn broker_image(record: &wire::RegisterBrokerRecord) -> BrokerImage {
    BrokerImage {
        id: BrokerId(record.broker_id),
        epoch: record.broker_epoch,
        incarnation: record.incarnation_id,
        endpoints: record
            .end_points
            .iter()
            .map(|endpoint| EndpointImage {
                listener: Arc::from(endpoint.name.as_str()),
                host: Arc::from(endpoint.host.as_str()),
                port: endpoint.port,
                security_protocol: endpoint.security_protocol,
            })
            .collect(),
        rack: record.rack.as_ref().map(|rack| Arc::from(rack.as_str())),
        fenced: record.fenced,
        in_controlled_shutdown: record.in_controlled_shutdown,
        directories: record.log_dirs.clone(),
        cordoned_directories: record.cordoned_log_dirs.clone(),
        features: record
            .features
            .iter()
            .map(|feature| SupportedFeature {
                name: Arc::from(feature.name.as_str()),
                min: feature.min_supported_version,
                max: feature.max_supported_version,
            })
            .collect(),
    }
}

fn partition_image(record: &wire::PartitionRecord) -> Result<PartitionImage, String> {
    let partition = PartitionImage {
        replicas: brokers(&record.replicas),
        directories: record.directories.iter().copied().collect(),
        isr: brokers(&record.isr),
        elr: brokers(record.eligible_leader_replicas.as_deref().unwrap_or_default()),
        last_known_elr: brokers(record.last_known_elr.as_deref().unwrap_or_default()),
        removing: brokers(&record.removing_replicas),
        adding: brokers(&record.adding_replicas),
        leader: leader(record.leader),
        is_recovering: record.leader_recovery_state == 1,
        leader_epoch: LeaderEpoch(record.leader_epoch),
        partition_epoch: record.partition_epoch,
    };
    check_partition(&partition)?;
    Ok(partition)
}

/// The record's leader is −2 when it did not change; otherwise the leader epoch grows by one (also when the same leader is
/// named again: it then starts anew).
fn changed_partition(
    former: &PartitionImage,
    record: &wire::PartitionChangeRecord,
) -> Result<PartitionImage, String> {
    let mut next = former.clone();
    let replace = |list: &mut BrokerList, change: &Option<Vec<i32>>| {
        if let Some(ids) = change {
            *list = brokers(ids);
        }
    };
    replace(&mut next.isr, &record.isr);
    replace(&mut next.replicas, &record.replicas);
    replace(&mut next.removing, &record.removing_replicas);
    replace(&mut next.adding, &record.adding_replicas);
    replace(&mut next.elr, &record.eligible_leader_replicas);
    replace(&mut next.last_known_elr, &record.last_known_elr);
    if let Some(directories) = &record.directories {
        next.directories = directories.iter().copied().collect();
    }
    if record.leader != LEADER_UNCHANGED {
        next.leader = leader(record.leader);
        next.leader_epoch = LeaderEpoch(former.leader_epoch.0 + 1);
    }
    match record.leader_recovery_state {
        0 => next.is_recovering = false,
        1 => next.is_recovering = true,
        _ => {}
    }
    next.partition_epoch = former.partition_epoch + 1;
    check_partition(&next)?;
    Ok(next)
}

const LEADER_UNCHANGED: i32 = -2;

/// What holds for every partition.
fn check_partition(partition: &PartitionImage) -> Result<(), String> {
    if partition.replicas.is_empty() || partition.directories.len() != partition.replicas.len() {
        return Err("a partition has replicas and a directory for each".into());
    }
    let all_replicas = |list: &BrokerList| list.iter().all(|broker| partition.replicas.contains(broker));
    if !all_replicas(&partition.isr) || !all_replicas(&partition.elr) {
        return Err("in-sync and eligible replicas are replicas".into());
    }
    if partition
        .leader
        .is_some_and(|leader| !partition.isr.contains(&leader))
    {
        return Err("the leader is in sync".into());
    }
    if partition.leader_epoch.0 < 0 || partition.partition_epoch < 0 {
        return Err("epochs are not negative".into());
    }
    Ok(())
}
