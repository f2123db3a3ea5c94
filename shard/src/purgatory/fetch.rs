//! Fetches that wait for data on this shard. A watch names some partitions and how many new readable bytes it takes to
//! fire; it fires once. There is no polling and no timer here: the connection's shard holds the deadline and cancels.
//!
//! Cost: about 64 bytes for each watch and 24 bytes for each partition it names.

use std::collections::BTreeMap;

use crate::message::ReplyTo;
use crate::purgatory::produce::PartitionIndex;

/// The watches of one shard. `T` tells the caller whom to tell (a reply address).
#[derive(Debug)]
pub struct FetchWatches<T> {
    watches: BTreeMap<WatchKey, Watch<T>>,
    by_partition: BTreeMap<PartitionIndex, Vec<WatchKey>>,
}

/// Names a watch: where its answer goes; a token is not reused while its watch stands.
pub type WatchKey = ReplyTo;

#[derive(Debug)]
struct Watch<T> {
    context: T,
    /// New readable bytes still needed before it fires.
    needed_bytes: u64,
    partitions: Vec<PartitionIndex>,
}

impl<T> Default for FetchWatches<T> {
    fn default() -> Self {
        Self {
            watches: BTreeMap::new(),
            by_partition: BTreeMap::new(),
        }
    }
}

impl<T> FetchWatches<T> {
    /// How many watches stand.
    #[must_use]
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// Whether none stands.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Sets a watch over `partitions` that fires after `needed_bytes` (at least 1) more readable bytes in all of them.
    pub fn add(&mut self, key: WatchKey, context: T, partitions: Vec<PartitionIndex>, needed_bytes: u64) {
        for partition in &partitions {
            self.by_partition.entry(*partition).or_default().push(key);
        }
        let watch = Watch {
            context,
            needed_bytes: needed_bytes.max(1),
            partitions,
        };
        let previous = self.watches.insert(key, watch);
        assert!(previous.is_none(), "a token is not reused while its watch stands");
    }

    /// Takes a watch away; false if it fired already.
    pub fn cancel(&mut self, key: WatchKey) -> bool {
        self.remove(key).is_some()
    }

    /// `bytes` more of a partition can be read now: returns the watches that fire.
    pub fn readable(&mut self, partition: PartitionIndex, bytes: u64) -> Vec<T> {
        let Some(keys) = self.by_partition.get(&partition) else {
            return Vec::new();
        };
        let mut fired = Vec::new();
        for key in keys {
            let watch = self.watches.get_mut(key).expect("an indexed watch stands");
            watch.needed_bytes = watch.needed_bytes.saturating_sub(bytes);
            if watch.needed_bytes == 0 {
                fired.push(*key);
            }
        }
        fired.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Something other than data happened to a partition that a waiting fetch must hear of (FE-5: leadership lost,
    /// deleted, epoch fenced): every watch on it fires.
    pub fn disturb(&mut self, partition: PartitionIndex) -> Vec<T> {
        let keys = self.by_partition.get(&partition).cloned().unwrap_or_default();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    fn remove(&mut self, key: WatchKey) -> Option<T> {
        let watch = self.watches.remove(&key)?;
        for partition in &watch.partitions {
            if let Some(keys) = self.by_partition.get_mut(partition) {
                keys.retain(|k| *k != key);
                if keys.is_empty() {
                    self.by_partition.remove(partition);
                }
            }
        }
        Some(watch.context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(shard: u16) -> WatchKey {
        let (token, _reply) = crate::replies::Replies::<()>::new(1)
            .register()
            .expect("one is free");
        WatchKey {
            shard: crate::ids::ShardId(shard),
            token,
            is_traced: false,
        }
    }

    #[test]
    fn a_watch_fires_once_over_the_sum_of_its_partitions() {
        let mut watches = FetchWatches::default();
        watches.add(key(1), "a", vec![1, 2], 100);
        assert!(watches.readable(1, 60).is_empty());
        assert!(watches.readable(3, 1000).is_empty());
        assert_eq!(watches.readable(2, 40), ["a"]);
        assert!(watches.readable(2, 40).is_empty());
        assert!(watches.is_empty() && watches.by_partition.is_empty());
    }

    #[test]
    fn a_cancelled_watch_never_fires() {
        let mut watches = FetchWatches::default();
        watches.add(key(1), "a", vec![1], 1);
        watches.add(key(2), "b", vec![1], 1);
        assert!(watches.cancel(key(1)));
        assert!(!watches.cancel(key(1)));
        assert_eq!(watches.readable(1, 1), ["b"]);
    }

    #[test]
    fn losing_a_partition_wakes_all_who_watch_it() {
        let mut watches = FetchWatches::default();
        watches.add(key(1), "a", vec![1, 2], 1 << 40);
        watches.add(key(2), "b", vec![2], 1 << 40);
        assert_eq!(watches.disturb(1), ["a"]);
        assert_eq!(watches.disturb(2), ["b"]);
    }
}
