//! Committed offsets of a group, as they are kept and found (CG-44…47). A partition takes [`OFFSET_BYTES`] and
//! its metadata, a topic [`TOPIC_BYTES`] and its name.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

use protocol::{ErrorCode, Str, Uuid};

use super::record::GroupRecord;
use super::request::{ByTopic, OffsetCommit, OffsetFetch};

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// The leader epoch of the record before it, −1 if unknown.
    pub leader_epoch: i32,
    /// The client's own words.
    pub metadata: Str,
    /// When it was committed, milliseconds since 1970.
    pub committed_ms: i64,
    /// When it expires, where the commit said so (versions 2 to 4).
    pub expires_ms: Option<i64>,
    /// The topic's id; zero if it is not known.
    pub topic_id: Uuid,
}

impl Default for CommittedOffset {
    fn default() -> Self {
        Self {
            offset: 0,
            leader_epoch: -1,
            metadata: Str::new(),
            committed_ms: -1,
            expires_ms: None,
            topic_id: Uuid::default(),
        }
    }
}

/// What a committed offset takes beside its metadata, bytes.
const OFFSET_BYTES: i64 = 160;

/// What a topic of a group takes beside its name and offsets, bytes: the first node of its map has room for eleven.
const TOPIC_BYTES: i64 = 1024;

fn offset_bytes(offset: &CommittedOffset) -> i64 {
    OFFSET_BYTES + offset.metadata.len() as i64
}

fn topic_bytes(topic: &Str) -> i64 {
    TOPIC_BYTES + topic.len() as i64
}

/// All that a group has committed.
#[derive(Clone, Debug, Default)]
pub(super) struct Offsets(BTreeMap<Str, BTreeMap<i32, CommittedOffset>>);

impl Offsets {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.0.get(topic)?.get(&partition)
    }

    /// A record of the log: an offset, or its end. Says by how many bytes it has grown.
    pub(super) fn apply(&mut self, topic: &Str, partition: i32, offset: Option<CommittedOffset>) -> i64 {
        match offset {
            Some(offset) => {
                let more = offset_bytes(&offset);
                // Topic names live once in each group, not in each record's frame.
                if let Some(partitions) = self.0.get_mut(topic) {
                    let before = partitions.insert(partition, offset);
                    return more - before.as_ref().map_or(0, offset_bytes);
                }
                self.0
                    .insert(topic.detached(), BTreeMap::from([(partition, offset)]));
                more + topic_bytes(topic)
            }
            None => {
                let Some(partitions) = self.0.get_mut(topic) else {
                    return 0;
                };
                let before = partitions.remove(&partition);
                let mut less = before.as_ref().map_or(0, offset_bytes);
                if partitions.is_empty() {
                    self.0.remove(topic);
                    less += topic_bytes(topic);
                }
                -less
            }
        }
    }

    /// How many topics they are of.
    pub(super) fn topics(&self) -> usize {
        self.0.len()
    }

    /// Topic, partition and offset of all that is committed, or of what is of a topic in `only`, in order, behind `after`.
    pub(super) fn behind<'a, T>(
        &'a self,
        only: Option<&'a BTreeMap<Str, T>>,
        after: Option<&'a (Str, i32)>,
    ) -> impl Iterator<Item = (&'a Str, i32, &'a CommittedOffset)> + 'a {
        let range = (after.map_or(Unbounded, |(topic, _)| Included(topic)), Unbounded);
        // The shorter list of topics is gone through.
        let (named, all) = match only {
            Some(only) if only.len() < self.0.len() => (Some(only.range::<Str, _>(range)), None),
            _ => (None, Some(self.0.range::<Str, _>(range))),
        };
        let named = named
            .into_iter()
            .flatten()
            .filter_map(|(topic, _)| self.0.get_key_value(topic));
        let all = all
            .into_iter()
            .flatten()
            .filter(move |(topic, _)| only.is_none_or(|only| only.contains_key(*topic)));
        named.chain(all).flat_map(move |(topic, partitions)| {
            let start = match after {
                Some((of, partition)) if of == topic => Excluded(*partition),
                _ => Unbounded,
            };
            partitions
                .range((start, Unbounded))
                .map(move |(partition, found)| (topic, *partition, found))
        })
    }

    /// By how many bytes a commit would grow them at most; 0 if it replaces what is there.
    pub(super) fn growth(&self, commit: &OffsetCommit) -> u64 {
        let mut all = 0;
        for topic in &commit.topics {
            let of_topic = if self.0.contains_key(&topic.name) {
                0
            } else {
                topic_bytes(&topic.name)
            };
            let partitions = topic.partitions.iter().map(|(partition, _, _, metadata)| {
                let before = self.get(&topic.name, *partition).map_or(0, offset_bytes);
                (OFFSET_BYTES + metadata.len() as i64 - before).max(0)
            });
            all += of_topic + partitions.sum::<i64>();
        }
        u64::try_from(all).unwrap_or(0)
    }

    /// What they take.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        let of_topic = |(topic, partitions): (&Str, &BTreeMap<i32, CommittedOffset>)| {
            topic_bytes(topic) + partitions.values().map(offset_bytes).sum::<i64>()
        };
        self.0.iter().map(of_topic).sum::<i64>() as u64
    }

    /// What an OffsetFetch asks for.
    pub(super) fn fetch(&self, asked: &OffsetFetch) -> ByTopic<Result<Option<CommittedOffset>, ErrorCode>> {
        match &asked.topics {
            Some(topics) => topics
                .iter()
                .map(|(topic, partitions)| {
                    let found = partitions.iter().map(|p| (*p, Ok(self.get(topic, *p).cloned())));
                    (topic.clone(), found.collect())
                })
                .collect(),
            None => self
                .0
                .iter()
                .map(|(topic, partitions)| {
                    let found = partitions
                        .iter()
                        .map(|(p, offset)| (*p, Ok(Some(offset.clone()))));
                    (topic.clone(), found.collect())
                })
                .collect(),
        }
    }

    /// Tombstones for all of them.
    pub(super) fn tombstones(&self, group: &Str) -> Vec<GroupRecord> {
        let all = self.behind::<()>(None, None);
        all.map(|(topic, partition, _)| tombstone(group, topic, partition))
            .collect()
    }
}

pub(super) fn tombstone(group: &Str, topic: &Str, partition: i32) -> GroupRecord {
    GroupRecord::Offset {
        group: group.clone(),
        topic: topic.clone(),
        partition,
        offset: None,
    }
}
