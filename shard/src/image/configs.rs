//! What the resources of an image set themselves: text by key, as it was given. Effective values are resolved from it and
//! the broker's layers (`crate::config`).

use std::sync::Arc;

use super::map::ChunkMap;
use crate::config::layers::NO_OVERRIDES;
use crate::config::{BrokerLayers, Overrides, TopicSettings};
use crate::ids::BrokerId;

/// The overrides of all resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigsImage {
    kinds: [ChunkMap<Arc<str>, Arc<Overrides>>; 4],
}

/// What a configuration belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigResource {
    /// The kind.
    pub kind: ResourceKind,
    /// The topic's name, the broker's id (empty: the cluster's default), the group's id, the subscription's name.
    pub name: Arc<str>,
}

/// The kinds of resources that have configurations, with Kafka's numbers. Broker loggers (8) have none that last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i8)]
pub enum ResourceKind {
    /// A topic.
    Topic = 2,
    /// A broker, or with an empty name the default of all.
    Broker = 4,
    /// A client metrics subscription.
    ClientMetrics = 16,
    /// A group.
    Group = 32,
}

impl ResourceKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Topic, Self::Broker, Self::ClientMetrics, Self::Group];

    /// The kind with that number on the wire.
    #[must_use]
    pub const fn from_wire(number: i8) -> Option<Self> {
        Some(match number {
            2 => Self::Topic,
            4 => Self::Broker,
            16 => Self::ClientMetrics,
            32 => Self::Group,
            _ => return None,
        })
    }

    /// The number on the wire.
    #[must_use]
    pub const fn wire(self) -> i8 {
        self as i8
    }

    const fn slot(self) -> usize {
        match self {
            Self::Topic => 0,
            Self::Broker => 1,
            Self::ClientMetrics => 2,
            Self::Group => 3,
        }
    }
}

impl ConfigsImage {
    /// What a resource sets; nothing for one that sets nothing or does not exist.
    #[must_use]
    pub fn of(&self, kind: ResourceKind, name: &str) -> &Overrides {
        self.map(kind).get(name).map_or(&NO_OVERRIDES, |own| own)
    }

    /// What a topic sets.
    #[must_use]
    pub fn topic(&self, name: &str) -> &Overrides {
        self.of(ResourceKind::Topic, name)
    }

    /// The dynamic values of one broker.
    #[must_use]
    pub fn broker(&self, id: BrokerId) -> &Overrides {
        self.of(ResourceKind::Broker, &id.to_string())
    }

    /// The dynamic values of the cluster's default.
    #[must_use]
    pub fn cluster_default(&self) -> &Overrides {
        self.of(ResourceKind::Broker, "")
    }

    /// The layers of broker `id` that was started with `fixed`.
    #[must_use]
    pub fn layers<'a>(&'a self, id: BrokerId, fixed: &'a Overrides) -> BrokerLayers<'a> {
        BrokerLayers {
            per_broker: self.broker(id),
            cluster_default: self.cluster_default(),
            fixed,
        }
    }

    /// The effective settings of a topic on broker `id` that was started with `fixed`.
    #[must_use]
    pub fn topic_settings(&self, topic: &str, id: BrokerId, fixed: &Overrides) -> TopicSettings {
        TopicSettings::resolve(&self.layers(id, fixed), self.topic(topic))
    }

    /// All resources of a kind that set something, by name.
    pub fn iter(&self, kind: ResourceKind) -> impl Iterator<Item = (&Arc<str>, &Overrides)> {
        self.map(kind).iter().map(|(name, own)| (name, &**own))
    }

    fn map(&self, kind: ResourceKind) -> &ChunkMap<Arc<str>, Arc<Overrides>> {
        let [topics, brokers, client_metrics, groups] = &self.kinds;
        match kind {
            ResourceKind::Topic => topics,
            ResourceKind::Broker => brokers,
            ResourceKind::ClientMetrics => client_metrics,
            ResourceKind::Group => groups,
        }
    }

    /// Sets or, without a value, removes one key. A resource without any is not kept.
    pub(super) fn set(&mut self, kind: ResourceKind, name: &str, key: &str, value: Option<&str>) {
        let Some(map) = self.kinds.get_mut(kind.slot()) else {
            return;
        };
        let mut own = map.get(name).map_or_else(Overrides::new, |own| (**own).clone());
        match value {
            Some(value) => own.insert(key.to_owned(), value.to_owned()),
            None => own.remove(key),
        };
        if own.is_empty() {
            map.remove(name);
        } else {
            map.insert(Arc::from(name), Arc::new(own));
        }
    }

    /// Forgets a resource.
    pub(super) fn remove(&mut self, kind: ResourceKind, name: &str) {
        if let Some(map) = self.kinds.get_mut(kind.slot()) {
            map.remove(name);
        }
    }
}
