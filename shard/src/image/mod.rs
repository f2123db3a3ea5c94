//! The cluster's metadata as one immutable value: what every shard reads. The node's quorum driver makes a new image of the
//! former one and the records that were committed (`delta`), and hands the shards a shared pointer; parts that did not
//! change are shared between images (`map`). The cluster's view, the same on every node at the same position of the
//! metadata log. Image and log say the same: `MetadataImage::to_records` gives records that build an equal image.

mod brokers;
mod configs;
mod delta;
mod map;
mod records;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;

use storage::types::ProducerId;

pub use brokers::{BrokerImage, BrokersImage, EndpointImage, SupportedFeature};
pub use configs::{ConfigResource, ConfigsImage, ResourceKind};
pub use delta::{ApplyError, ImageChanges, ImageDelta};
pub use map::ChunkMap;
pub use records::{config_record, partition_record};
pub use topics::{BrokerList, INTERNAL_TOPICS, PartitionImage, TopicImage, TopicsImage, is_internal};

/// The metadata of a cluster at one position of its log.
#[derive(Clone, Debug, PartialEq)]
pub struct MetadataImage {
    /// Which cluster: the text of a random UUID, made when the first node formats itself.
    pub cluster_id: Arc<str>,
    /// The last log entry in it.
    pub position: ImagePosition,
    /// The topics.
    pub topics: TopicsImage,
    /// The brokers.
    pub brokers: BrokersImage,
    /// What resources set themselves.
    pub configs: ConfigsImage,
    /// Final feature levels by name; absent is level 0.
    pub features: Arc<BTreeMap<Arc<str>, i16>>,
    /// The first producer id that no block has.
    pub next_producer_id: ProducerId,
}

/// A position of the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct ImagePosition {
    /// The index of the last entry applied, from 1; 0 is none.
    pub index: u64,
    /// The term of that entry.
    pub term: u64,
}

impl MetadataImage {
    /// The metadata of a cluster that nothing was written of.
    #[must_use]
    pub fn empty(cluster_id: &str) -> Self {
        Self {
            cluster_id: Arc::from(cluster_id),
            position: ImagePosition::default(),
            topics: TopicsImage::default(),
            brokers: BrokersImage::default(),
            configs: ConfigsImage::default(),
            features: Arc::default(),
            next_producer_id: ProducerId(0),
        }
    }

    /// The final level of a feature, 0 when it is off.
    #[must_use]
    pub fn feature(&self, name: &str) -> i16 {
        self.features.get(name).copied().unwrap_or(0)
    }
}
