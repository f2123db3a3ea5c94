//! The topics and partitions of an image.

use std::sync::Arc;

use protocol::Uuid;
use smallvec::SmallVec;
use storage::types::{LeaderEpoch, TopicId};

use super::map::ChunkMap;
use crate::ids::BrokerId;

/// Brokers of a partition in order; up to four without memory of their own.
pub type BrokerList = SmallVec<[BrokerId; 4]>;

/// All topics, by name and by id. About 200 bytes a partition with up to four replicas, shared by all shards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicsImage {
    pub(super) by_name: ChunkMap<Arc<str>, TopicId>,
    pub(super) by_id: ChunkMap<TopicId, Arc<TopicImage>>,
    pub(super) partitions: usize,
}

/// One topic.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicImage {
    /// Its name.
    pub name: Arc<str>,
    /// Its id: a topic created again has another.
    pub id: TopicId,
    /// Its partitions by index, without gaps.
    pub partitions: Vec<Arc<PartitionImage>>,
}

/// One partition: who holds it, who leads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionImage {
    /// Who holds a replica, the preferred leader first.
    pub replicas: BrokerList,
    /// The log directory of each replica, in the same order; zero is not yet assigned.
    pub directories: SmallVec<[Uuid; 2]>,
    /// The replicas in sync.
    pub isr: BrokerList,
    /// Replicas out of sync that hold everything below the high watermark (KIP-966).
    pub elr: BrokerList,
    /// The last eligible ones when even the ELR became empty.
    pub last_known_elr: BrokerList,
    /// Replicas that leave when a reassignment completes.
    pub removing: BrokerList,
    /// Replicas that join by a reassignment.
    pub adding: BrokerList,
    /// Who leads; `None` when nobody can.
    pub leader: Option<BrokerId>,
    /// Whether the leader recovers from an unclean election.
    pub is_recovering: bool,
    /// Grows by one at each change of leader.
    pub leader_epoch: LeaderEpoch,
    /// Grows by one at each change of the partition.
    pub partition_epoch: i32,
}

impl TopicsImage {
    /// The topic of that name.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<&Arc<TopicImage>> {
        self.by_id(*self.by_name.get(name)?)
    }

    /// The topic of that id.
    #[must_use]
    pub fn by_id(&self, id: TopicId) -> Option<&Arc<TopicImage>> {
        self.by_id.get(&id)
    }

    /// One partition of a topic.
    #[must_use]
    pub fn partition(&self, id: TopicId, index: i32) -> Option<&Arc<PartitionImage>> {
        self.by_id(id)?.partition(index)
    }

    /// All topics in name order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name.values().filter_map(|id| self.by_id(*id))
    }

    /// The topics whose names are not below `name`, in name order.
    pub fn from_name(&self, name: &str) -> impl Iterator<Item = &Arc<TopicImage>> {
        self.by_name
            .range_from(name)
            .filter_map(|(_, id)| self.by_id(*id))
    }

    /// How many topics there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// How many partitions all topics have together.
    #[must_use]
    pub const fn partition_count(&self) -> usize {
        self.partitions
    }

    /// Adds a topic without partitions.
    pub(super) fn create(&mut self, name: &str, id: TopicId) {
        let name: Arc<str> = Arc::from(name);
        self.by_name.insert(Arc::clone(&name), id);
        let partitions = Vec::new();
        self.by_id
            .insert(id, Arc::new(TopicImage { name, id, partitions }));
        assert_eq!(
            self.by_id.len(),
            self.by_name.len(),
            "a topic has one name and one id"
        );
    }

    /// Adds a topic's next partition.
    pub(super) fn push_partition(&mut self, id: TopicId, partition: PartitionImage) {
        if let Some(topic) = self.by_id.get_mut(&id) {
            Arc::make_mut(topic).partitions.push(Arc::new(partition));
            self.partitions += 1;
        }
    }

    /// One partition, to be changed.
    pub(super) fn partition_mut(&mut self, id: TopicId, index: i32) -> Option<&mut Arc<PartitionImage>> {
        let at = usize::try_from(index).ok()?;
        Arc::make_mut(self.by_id.get_mut(&id)?).partitions.get_mut(at)
    }

    pub(super) fn remove(&mut self, id: TopicId) -> Option<Arc<TopicImage>> {
        let topic = self.by_id.remove(&id)?;
        self.by_name.remove(&*topic.name);
        self.partitions -= topic.partitions.len();
        assert_eq!(
            self.by_id.len(),
            self.by_name.len(),
            "a topic has one name and one id"
        );
        Some(topic)
    }
}

impl TopicImage {
    /// The partition of that index.
    #[must_use]
    pub fn partition(&self, index: i32) -> Option<&Arc<PartitionImage>> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    /// Its partitions with their indexes.
    pub fn indexed(&self) -> impl Iterator<Item = (i32, &Arc<PartitionImage>)> {
        (0i32..).zip(&self.partitions)
    }

    /// Whether Kafka calls the topic internal (MD-10).
    #[must_use]
    pub fn is_internal(&self) -> bool {
        is_internal(&self.name)
    }
}

/// Whether Kafka calls a topic of that name internal.
#[must_use]
pub fn is_internal(name: &str) -> bool {
    INTERNAL_TOPICS.contains(&name)
}

/// Kafka's internal topics: offsets, transactions, share groups.
pub const INTERNAL_TOPICS: [&str; 3] = ["__consumer_offsets", "__transaction_state", "__share_group_state"];

impl PartitionImage {
    /// Whether `broker` holds a replica.
    #[must_use]
    pub fn has_replica(&self, broker: BrokerId) -> bool {
        self.replicas.contains(&broker)
    }

    /// The log directory of the replica on `broker`.
    #[must_use]
    pub fn directory(&self, broker: BrokerId) -> Option<Uuid> {
        let at = self.replicas.iter().position(|replica| *replica == broker)?;
        self.directories.get(at).copied()
    }
}
