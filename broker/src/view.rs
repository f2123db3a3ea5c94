//! The metadata that requests of one shard work with: the cluster's image, where this node's partitions live, and the
//! topics' settings as resolved here. Replaced as a whole when metadata changes; a request keeps the one it began with.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use protocol::ErrorCode;
use shard::config::{Overrides, TopicSettings};
use shard::ids::{BrokerId, ShardId};
use shard::image::{MetadataImage, PartitionImage, TopicImage};
use shard::placement::Placement;
use storage::types::{LogId, TopicId};

/// Metadata at one position, on one shard.
#[derive(Debug)]
pub struct View {
    /// The cluster's metadata.
    pub image: Arc<MetadataImage>,
    /// Which shard owns which partition of this node.
    pub placement: Arc<Placement>,
    node: BrokerId,
    fixed: Arc<Overrides>,
    /// Partitions of this node that cannot be served.
    offline: Arc<BTreeSet<LogId>>,
    /// Settings resolved so far; a topic costs about 300 bytes per shard that serves it.
    settings: RefCell<HashMap<TopicId, Rc<TopicSettings>, foldhash::fast::FixedState>>,
}

/// A topic as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicName<'a> {
    /// By name (older versions).
    Name(&'a str),
    /// By id (KIP-516).
    Id(TopicId),
}

/// Where a partition of a request is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// On a shard of this node, which leads it, as that log.
    Shard(ShardId, LogId),
    /// Another broker leads it, or nobody does.
    Elsewhere,
    /// This node holds it and cannot serve it: its log directory failed, or its files are damaged.
    Offline,
}

impl Home {
    /// The shard to ask and the log to name.
    ///
    /// # Errors
    /// `NOT_LEADER_OR_FOLLOWER` for a partition that is not served here, `KAFKA_STORAGE_ERROR` for one that would be.
    pub fn here(self) -> Result<(ShardId, LogId), ErrorCode> {
        match self {
            Self::Shard(shard, log) => Ok((shard, log)),
            Self::Elsewhere => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Self::Offline => Err(ErrorCode::KAFKA_STORAGE_ERROR),
        }
    }
}

impl View {
    /// A view on `node`, which was started with `fixed`.
    #[must_use]
    pub fn new(
        image: Arc<MetadataImage>,
        placement: Arc<Placement>,
        node: BrokerId,
        fixed: Arc<Overrides>,
    ) -> Self {
        Self {
            image,
            placement,
            node,
            fixed,
            offline: Arc::default(),
            settings: RefCell::default(),
        }
    }

    /// The same on a node that cannot serve these partitions of its own.
    #[must_use]
    pub fn without(mut self, offline: Arc<BTreeSet<LogId>>) -> Self {
        self.offline = offline;
        self
    }

    /// Whether `broker` is this node, and cannot serve the partition although it holds it.
    #[must_use]
    pub fn is_offline(&self, broker: BrokerId, topic: TopicId, partition: i32) -> bool {
        broker == self.node && self.offline.contains(&LogId { topic, partition })
    }

    /// The topic of that name or id; the error is the API's for an unknown one (PR-4, FE-16, MD-3).
    pub fn topic(&self, topic: TopicName<'_>) -> Result<&Arc<TopicImage>, ErrorCode> {
        match topic {
            TopicName::Name(name) => self
                .image
                .topics
                .by_name(name)
                .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
            TopicName::Id(id) => self.image.topics.by_id(id).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
        }
    }

    /// A topic's effective settings on this node.
    #[must_use]
    pub fn settings(&self, topic: &TopicImage) -> Rc<TopicSettings> {
        if let Some(known) = self.settings.borrow().get(&topic.id) {
            return known.clone();
        }
        let resolved = Rc::new(
            self.image
                .configs
                .topic_settings(&topic.name, self.node, &self.fixed),
        );
        self.settings.borrow_mut().insert(topic.id, resolved.clone());
        resolved
    }

    /// A partition of a topic and where it is served.
    pub fn partition<'a>(
        &self,
        topic: &'a TopicImage,
        index: i32,
    ) -> Result<(&'a PartitionImage, Home), ErrorCode> {
        let partition = topic
            .partition(index)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let log = LogId {
            topic: topic.id,
            partition: index,
        };
        let home = match self.placement.owner(log) {
            Some(_) if self.offline.contains(&log) => Home::Offline,
            Some(shard) if partition.leader == Some(self.node) => Home::Shard(shard, log),
            _ => Home::Elsewhere,
        };
        Ok((partition, home))
    }
}
