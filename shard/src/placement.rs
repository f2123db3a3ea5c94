//! Which shard of this node owns which partition. Node-local: other nodes neither see it nor agree with it, nothing on disk
//! depends on it, and a start with another number of shards simply places anew. The same steps give the same placement.
//! Published to all shards together with the image it belongs to; a copy shares what did not change. It costs two bytes a
//! partition and about 60 a topic, once per node.

use std::sync::Arc;

use storage::types::{LogId, TopicId};

use crate::ids::{BrokerId, ShardId};
use crate::image::{ChunkMap, ImageChanges, MetadataImage, TopicImage};

/// The owners of this node's partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Per topic the owner of each partition index; [`ELSEWHERE`] for one that has no replica here.
    owners: ChunkMap<TopicId, Arc<[u16]>>,
    /// Partitions per shard.
    loads: Vec<usize>,
}

/// The owner of a partition without a replica on this node.
const ELSEWHERE: u16 = u16::MAX;

/// The most shards of a node.
pub const SHARDS_MAX: u16 = 1024;

impl Placement {
    /// The placement of a node without partitions over `shards` shards (1 to [`SHARDS_MAX`]).
    #[must_use]
    pub fn new(shards: u16) -> Self {
        assert!((1..=SHARDS_MAX).contains(&shards), "{shards} shards");
        Self {
            owners: ChunkMap::new(),
            loads: vec![0; usize::from(shards)],
        }
    }

    /// The placement of all partitions that `image` gives to `node`: topic by topic in name order.
    #[must_use]
    pub fn of_image(shards: u16, image: &MetadataImage, node: BrokerId) -> Self {
        let mut placement = Self::new(shards);
        for topic in image.topics.iter() {
            placement.place(topic, node);
        }
        placement
    }

    /// The placement after `changes` led to `image`: what is placed stays, new partitions go where there is room, those
    /// that left are forgotten.
    #[must_use]
    pub fn updated(&self, image: &MetadataImage, changes: &ImageChanges, node: BrokerId) -> Self {
        let mut placement = self.clone();
        for topic in changes.topics_removed.keys() {
            placement.remove(*topic);
        }
        let mut last = None;
        for (id, _) in &changes.partitions {
            if last.replace(*id) != Some(*id)
                && let Some(topic) = image.topics.by_id(*id)
            {
                placement.place(topic, node);
            }
        }
        placement
    }

    /// The shard that owns a partition; `None` when this node has no replica of it.
    #[must_use]
    pub fn owner(&self, log: LogId) -> Option<ShardId> {
        let owners = self.owners.get(&log.topic)?;
        let owner = *owners.get(usize::try_from(log.partition).ok()?)?;
        (owner != ELSEWHERE).then_some(ShardId(owner))
    }

    /// All placed partitions by topic id and index.
    pub fn iter(&self) -> impl Iterator<Item = (LogId, ShardId)> {
        self.owners.iter().flat_map(|(topic, owners)| {
            (0i32..)
                .zip(owners.iter())
                .filter(|(_, owner)| **owner != ELSEWHERE)
                .map(|(partition, owner)| {
                    let topic = *topic;
                    (LogId { topic, partition }, ShardId(*owner))
                })
        })
    }

    /// How many partitions each shard owns.
    #[must_use]
    pub fn loads(&self) -> &[usize] {
        &self.loads
    }

    /// The number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        u16::try_from(self.loads.len()).unwrap_or(SHARDS_MAX)
    }

    /// Places the partitions of `topic` that are here and have no owner, and forgets those that left.
    fn place(&mut self, topic: &TopicImage, node: BrokerId) {
        let before: Arc<[u16]> = self.owners.get(&topic.id).cloned().unwrap_or_default();
        let mut owners: Vec<u16> = Vec::with_capacity(topic.partitions.len());
        let mut new = 0;
        for (at, partition) in topic.partitions.iter().enumerate() {
            let owner = before.get(at).copied().unwrap_or(ELSEWHERE);
            let is_here = partition.has_replica(node);
            if owner != ELSEWHERE && !is_here {
                self.unload(owner);
            }
            new += usize::from(is_here && owner == ELSEWHERE);
            owners.push(if is_here { owner } else { ELSEWHERE });
        }
        let last_placed = owners.iter().rev().find(|owner| **owner != ELSEWHERE);
        let mut next = match last_placed {
            Some(owner) => self.after(*owner),
            None => self.roomiest_run(new),
        };
        for (owner, partition) in owners.iter_mut().zip(&topic.partitions) {
            if *owner == ELSEWHERE && partition.has_replica(node) {
                *owner = next;
                self.load(next);
                next = self.after(next);
            }
        }
        if owners.iter().all(|owner| *owner == ELSEWHERE) {
            self.owners.remove(&topic.id);
        } else if *before != *owners {
            self.owners.insert(topic.id, Arc::from(owners));
        }
    }

    fn remove(&mut self, topic: TopicId) {
        if let Some(owners) = self.owners.remove(&topic) {
            for owner in owners.iter().filter(|owner| **owner != ELSEWHERE) {
                self.unload(*owner);
            }
        }
    }

    /// The shard from which `partitions` consecutive ones burden the least: only the run that is left after whole rounds
    /// counts. The lowest shard on a tie.
    fn roomiest_run(&self, partitions: usize) -> u16 {
        let shards = self.loads.len();
        let run = match partitions % shards {
            0 => 1,
            run => run,
        };
        let burden = |first: usize| -> usize { (0..run).map(|i| self.loads[(first + i) % shards]).sum() };
        let first = (0..shards).min_by_key(|first| burden(*first)).unwrap_or(0);
        u16::try_from(first).unwrap_or(0)
    }

    fn after(&self, owner: u16) -> u16 {
        (owner + 1) % self.shards()
    }

    fn load(&mut self, owner: u16) {
        if let Some(load) = self.loads.get_mut(usize::from(owner)) {
            *load += 1;
        }
    }

    fn unload(&mut self, owner: u16) {
        if let Some(load) = self.loads.get_mut(usize::from(owner)) {
            assert!(*load > 0, "a shard owns what it is relieved of");
            *load -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::messages::cluster_metadata as wire;
    use protocol::{Str, Uuid};

    use super::*;
    use crate::controller::MetadataRecord;
    use crate::image::{ImageDelta, ImagePosition};

    const NODE: BrokerId = BrokerId(1);

    fn topic(id: u128, partitions: i32) -> Vec<MetadataRecord> {
        let topic_id = Uuid::from_u128(id);
        let name = Str::from(format!("topic-{id}"));
        let mut records = vec![wire::TopicRecord { name, topic_id }.into()];
        records.extend((0..partitions).map(|index| partition(id, index)));
        records
    }

    fn partition(id: u128, partition_id: i32) -> MetadataRecord {
        let record = wire::PartitionRecord {
            partition_id,
            topic_id: Uuid::from_u128(id),
            replicas: vec![NODE.0],
            isr: vec![NODE.0],
            leader: NODE.0,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![Uuid::from_u128(1000)],
            ..Default::default()
        };
        record.into()
    }

    fn applied(image: &MetadataImage, records: &[MetadataRecord]) -> (MetadataImage, ImageChanges) {
        let mut delta = ImageDelta::new(image);
        delta.apply_all(records).expect("records fit");
        let index = image.position.index + 1;
        delta.finish(ImagePosition { index, term: 1 })
    }

    fn owner(placement: &Placement, id: u128, partition: i32) -> Option<u16> {
        let topic = TopicId(Uuid::from_u128(id).0);
        placement.owner(LogId { topic, partition }).map(|shard| shard.0)
    }

    #[test]
    fn consecutive_partitions_go_to_consecutive_shards_where_there_is_room() {
        let (image, _) = applied(&MetadataImage::empty("c"), &topic(1, 6));
        let placement = Placement::of_image(4, &image, NODE);
        let owners: Vec<_> = (0..6).map(|i| owner(&placement, 1, i).unwrap()).collect();
        assert_eq!(owners, [0, 1, 2, 3, 0, 1]);
        let (image, changes) = applied(&image, &topic(2, 3));
        let placement = placement.updated(&image, &changes, NODE);
        let owners: Vec<_> = (0..3).map(|i| owner(&placement, 2, i).unwrap()).collect();
        assert_eq!(owners, [1, 2, 3]);
        assert_eq!(placement.loads(), [2, 3, 2, 2]);
    }

    #[test]
    fn a_grown_topic_goes_on_where_it_ended_and_a_removed_one_makes_room() {
        let (image, _) = applied(&MetadataImage::empty("c"), &topic(1, 2));
        let placement = Placement::of_image(3, &image, NODE);
        let (image, changes) = applied(&image, &[partition(1, 2), partition(1, 3)]);
        let placement = placement.updated(&image, &changes, NODE);
        assert_eq!(
            (0..4)
                .map(|i| owner(&placement, 1, i).unwrap())
                .collect::<Vec<_>>(),
            [0, 1, 2, 0]
        );
        let removal = wire::RemoveTopicRecord {
            topic_id: Uuid::from_u128(1),
        };
        let (image, changes) = applied(&image, &[removal.into()]);
        let placement = placement.updated(&image, &changes, NODE);
        assert_eq!(placement, Placement::new(3));
        assert_eq!(owner(&placement, 1, 0), None);
        assert!(image.topics.is_empty());
    }

    #[test]
    fn partitions_of_other_nodes_are_not_placed() {
        let (image, _) = applied(&MetadataImage::empty("c"), &topic(1, 2));
        let placement = Placement::of_image(3, &image, BrokerId(7));
        assert_eq!(placement, Placement::new(3));
    }

    #[test]
    fn many_topics_of_every_size_spread_evenly() {
        for shards in [1, 2, 3, 8, 48] {
            let mut placement = Placement::new(shards);
            let mut image = MetadataImage::empty("c");
            for id in 1..400u128 {
                let partitions = i32::try_from(id * 7 % 13 + 1).unwrap();
                let (next, changes) = applied(&image, &topic(id, partitions));
                placement = placement.updated(&next, &changes, NODE);
                image = next;
            }
            let total: usize = placement.loads().iter().sum();
            assert_eq!(total, image.topics.partition_count());
            assert_eq!(placement.iter().count(), total);
            let (low, high) = (placement.loads().iter().min(), placement.loads().iter().max());
            assert!(
                high.unwrap() - low.unwrap() <= 4,
                "{shards}: {:?}",
                placement.loads()
            );
        }
    }
}
