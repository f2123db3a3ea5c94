//! The brokers of an image: who registered, where they listen, whether they may serve.

use std::sync::Arc;

use protocol::Uuid;

use super::map::ChunkMap;
use crate::ids::BrokerId;

/// All registered brokers by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrokersImage {
    pub(super) by_id: ChunkMap<BrokerId, Arc<BrokerImage>>,
}

/// One registered broker.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerImage {
    /// Its id.
    pub id: BrokerId,
    /// The position of its registration in the metadata log; a broker that registers again has a higher one.
    pub epoch: i64,
    /// Drawn at each start of the broker's process.
    pub incarnation: Uuid,
    /// Where it listens, by listener name.
    pub endpoints: Vec<EndpointImage>,
    /// Its rack.
    pub rack: Option<Arc<str>>,
    /// Whether it may not serve.
    pub fenced: bool,
    /// Whether it is about to stop.
    pub in_controlled_shutdown: bool,
    /// Its log directories that work.
    pub directories: Vec<Uuid>,
    /// Its log directories that take no new replicas; `None` until it said so.
    pub cordoned_directories: Option<Vec<Uuid>>,
    /// The feature levels it supports.
    pub features: Vec<SupportedFeature>,
}

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointImage {
    /// The listener's name.
    pub listener: Arc<str>,
    /// The host that clients are told.
    pub host: Arc<str>,
    /// The port that clients are told.
    pub port: u16,
    /// Kafka's number of the security protocol: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    pub security_protocol: i16,
}

/// The levels of a feature that a broker supports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportedFeature {
    /// The feature's name.
    pub name: Arc<str>,
    /// Lowest level.
    pub min: i16,
    /// Highest level.
    pub max: i16,
}

impl BrokersImage {
    /// The broker of that id.
    #[must_use]
    pub fn get(&self, id: BrokerId) -> Option<&Arc<BrokerImage>> {
        self.by_id.get(&id)
    }

    /// All registered brokers by rising id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<BrokerImage>> {
        self.by_id.values()
    }

    /// Those that may serve, by rising id.
    pub fn unfenced(&self) -> impl Iterator<Item = &Arc<BrokerImage>> {
        self.iter().filter(|broker| !broker.fenced)
    }

    /// How many are registered.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl BrokerImage {
    /// Where it listens for `listener`.
    #[must_use]
    pub fn endpoint(&self, listener: &str) -> Option<&EndpointImage> {
        self.endpoints
            .iter()
            .find(|endpoint| &*endpoint.listener == listener)
    }
}
