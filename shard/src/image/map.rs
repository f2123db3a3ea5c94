//! An ordered map whose copies share what they have in common: entries stand sorted in chunks behind reference counts, so a
//! copy costs one count per chunk and a change copies one chunk. The image of a cluster is made of these: applying a record
//! to an image of 10,000 topics copies about a hundred entries, and shards keep reading the image they hold. Iteration is
//! in key order.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// Entries of a chunk beyond which it is split in two.
const CHUNK_ENTRIES_MAX: usize = 128;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// A sorted map with cheap copies. No chunk is empty; keys rise through and across chunks.
#[derive(Clone)]
pub struct ChunkMap<K, V> {
    chunks: Vec<Chunk<K, V>>,
    len: usize,
}

impl<K: Ord + Clone, V: Clone> ChunkMap<K, V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            len: 0,
        }
    }

    /// How many entries it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of `key`.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunks.get(self.chunk_of(key)?)?;
        let at = chunk.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        chunk.get(at).map(|(_, value)| value)
    }

    /// The value of `key`, to be changed in place; copies made before keep what they had.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let chunk_at = self.chunk_of(key)?;
        let chunk = self.chunks.get_mut(chunk_at)?;
        let at = chunk.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        Arc::make_mut(chunk).get_mut(at).map(|(_, value)| value)
    }

    /// Whether it has `key`.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Sets `key` to `value`; the former value comes back.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let Some(chunk_at) = self.chunk_of(&key) else {
            self.insert_first(key, value);
            return None;
        };
        let chunk = Arc::make_mut(self.chunks.get_mut(chunk_at)?);
        match chunk.binary_search_by(|(k, _)| k.cmp(&key)) {
            Ok(at) => chunk
                .get_mut(at)
                .map(|entry| std::mem::replace(&mut entry.1, value)),
            Err(at) => {
                chunk.insert(at, (key, value));
                self.len += 1;
                if chunk.len() > CHUNK_ENTRIES_MAX {
                    let upper = chunk.split_off(CHUNK_ENTRIES_MAX / 2);
                    self.chunks.insert(chunk_at + 1, Arc::new(upper));
                }
                None
            }
        }
    }

    /// Removes `key`; its value comes back.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let chunk_at = self.chunk_of(key)?;
        let chunk = self.chunks.get_mut(chunk_at)?;
        let at = chunk.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        let entries = Arc::make_mut(chunk);
        let (_, value) = entries.remove(at);
        self.len -= 1;
        if entries.is_empty() {
            self.chunks.remove(chunk_at);
        }
        Some(value)
    }

    /// All entries in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter().map(|(key, value)| (key, value)))
    }

    /// All values in key order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// The entries from `key` on, in key order.
    pub fn range_from<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = (&K, &V)>
    where
        K: Borrow<Q>,
    {
        let first = self.chunk_of(key).unwrap_or(0);
        let within = self
            .chunks
            .get(first)
            .map_or(0, |chunk| chunk.partition_point(|(k, _)| k.borrow() < key));
        self.chunks
            .iter()
            .enumerate()
            .skip(first)
            .flat_map(move |(at, chunk)| {
                let skipped = if at == first { within } else { 0 };
                chunk.iter().skip(skipped).map(|(key, value)| (key, value))
            })
    }

    /// The chunk that holds `key` or would: the last one that does not begin above it. `None` only for the empty map.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        if self.chunks.is_empty() {
            return None;
        }
        let above = self
            .chunks
            .partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first.borrow() <= key));
        Some(above.saturating_sub(1))
    }

    fn insert_first(&mut self, key: K, value: V) {
        assert!(
            self.chunks.is_empty() && self.len == 0,
            "only an empty map has no chunk"
        );
        self.chunks.push(Arc::new(vec![(key, value)]));
        self.len = 1;
    }
}

impl<K: Ord + Clone, V: Clone> Default for ChunkMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Ord + Clone + PartialEq, V: Clone + PartialEq> PartialEq for ChunkMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl<K: Ord + Clone + fmt::Debug, V: Clone + fmt::Debug> fmt::Debug for ChunkMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u16, u8),
        Remove(u16),
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            3 => (0..600u16, any::<u8>()).prop_map(|(k, v)| Op::Insert(k, v)),
            1 => (0..600u16).prop_map(Op::Remove),
        ];
        proptest::collection::vec(op, 0..1500)
    }

    fn check_shape(map: &ChunkMap<u16, u8>) {
        assert!(
            map.chunks
                .iter()
                .all(|chunk| !chunk.is_empty() && chunk.len() <= CHUNK_ENTRIES_MAX)
        );
        let keys: Vec<u16> = map.iter().map(|(key, _)| *key).collect();
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(keys.len(), map.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_behaves_as_a_map_and_copies_keep_what_they_had(ops in ops(), cut in 0usize..1500) {
            let mut map = ChunkMap::new();
            let mut model = BTreeMap::new();
            let mut kept = None;
            for (at, op) in ops.iter().enumerate() {
                if at == cut {
                    kept = Some((map.clone(), model.clone()));
                }
                match *op {
                    Op::Insert(key, value) => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
                    Op::Remove(key) => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                }
            }
            check_shape(&map);
            prop_assert!(map.iter().eq(model.iter()));
            for from in [0u16, 1, 299, 599, 700] {
                prop_assert!(map.range_from(&from).eq(model.range(from..)));
                prop_assert_eq!(map.get(&from), model.get(&from));
            }
            if let Some((map, model)) = kept {
                prop_assert!(map.iter().eq(model.iter()));
            }
        }
    }

    #[test]
    fn a_change_copies_one_chunk_only() {
        let mut map = ChunkMap::new();
        for key in 0..10_000u32 {
            map.insert(key, key);
        }
        let copy = map.clone();
        map.insert(5_000, 1);
        let shared = map
            .chunks
            .iter()
            .zip(&copy.chunks)
            .filter(|(a, b)| Arc::ptr_eq(a, b))
            .count();
        assert_eq!(shared + 1, map.chunks.len());
        assert_eq!(copy.get(&5_000), Some(&5_000));
    }
}
