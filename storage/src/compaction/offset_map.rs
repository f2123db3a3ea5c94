//! The newest offset of each key, within a bound of memory. Keys are kept as keyed 128-bit hashes: of a billion keys two
//! share one with a probability of 10⁻²¹, and nobody who does not know the secret can make two do so.

use super::siphash::{self, HashKey};
use crate::types::Offset;

pub use super::siphash::HashKey as MapKey;

/// Bytes of one slot: the hash and the offset.
pub const SLOT_BYTES: usize = 24;

/// Slots of the smallest map.
const SLOTS_MIN: usize = 16;

/// See the module. Memory: [`SLOT_BYTES`] a slot, all of them taken when it is made: for the default buffer of 128 MiB with
/// load factor 0.9 that is 5.0 million keys. It never grows.
#[derive(Debug)]
pub struct OffsetMap {
    key: HashKey,
    /// Two words of hash and the offset plus one; 0 there is an empty slot.
    slots: Vec<[u64; 3]>,
    len: usize,
    len_max: usize,
}

/// The map is full: the key is not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the offset map is full")]
pub struct Full;

impl OffsetMap {
    /// An empty map of at most `bytes_max` bytes, smaller when no more than `records_max` keys can come. It is full at `load`
    /// of its slots (`log.cleaner.io.buffer.load.factor`).
    #[must_use]
    pub fn new(bytes_max: usize, records_max: u64, load: f64, key: HashKey) -> Self {
        let load = if load.is_finite() {
            load.clamp(0.01, 0.99)
        } else {
            0.9
        };
        let most = (bytes_max / SLOT_BYTES).max(SLOTS_MIN);
        // An estimate above 2^53 is far above any bound, so that precision does not matter.
        let needed = (records_max as f64 / load) as usize;
        let slots = needed.saturating_add(SLOTS_MIN).min(most);
        let len_max = ((slots as f64 * load) as usize).clamp(1, slots - 1);
        Self {
            key,
            slots: vec![[0; 3]; slots],
            len: 0,
            len_max,
        }
    }

    /// Notes that `key` has a record at `offset`, not negative; the largest offset noted for it counts.
    ///
    /// # Errors
    /// [`Full`]: the key is not known yet and there is no room for it.
    pub fn put(&mut self, key: &[u8], offset: Offset) -> Result<(), Full> {
        let hash = siphash::hash(self.key, key);
        let at = self.find(hash);
        let value = offset.0.max(0).unsigned_abs() + 1;
        let slot = &mut self.slots[at];
        if slot[2] == 0 {
            if self.len == self.len_max {
                return Err(Full);
            }
            self.len += 1;
            *slot = [hash[0], hash[1], value];
        } else {
            slot[2] = slot[2].max(value);
        }
        Ok(())
    }

    /// The largest offset noted for `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let slot = self.slots[self.find(siphash::hash(self.key, key))];
        slot[2].checked_sub(1).map(|offset| Offset(offset.cast_signed()))
    }

    /// Keys in the map.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no key is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys that fit.
    #[must_use]
    pub const fn len_max(&self) -> usize {
        self.len_max
    }

    /// Memory of the map, bytes.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES
    }

    /// The slot of the hash, or the empty one where it would go: there always is one, since `len_max` is below the slots.
    fn find(&self, hash: [u64; 2]) -> usize {
        let slots = self.slots.len();
        let mut at = ((u128::from(hash[0]) * slots as u128) >> 64) as usize;
        loop {
            let slot = &self.slots[at];
            if slot[2] == 0 || (slot[0] == hash[0] && slot[1] == hash[1]) {
                return at;
            }
            at += 1;
            if at == slots {
                at = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sim_rng::SimRng;

    const KEY: HashKey = HashKey(7, 11);

    #[test]
    fn it_is_the_map_of_newest_offsets() {
        let mut rng = SimRng::new(1, "keys");
        let mut map = OffsetMap::new(1 << 20, 3000, 0.9, KEY);
        let mut model: BTreeMap<Vec<u8>, Offset> = BTreeMap::new();
        for _ in 0..20_000 {
            let key = rng.between(0, 2500).to_be_bytes();
            let key = key[..rng.between(6, 8) as usize].to_vec();
            let offset = Offset(rng.between(0, 1 << 40) as i64);
            if map.len() == map.len_max() && !model.contains_key(&key) {
                assert_eq!(map.put(&key, offset), Err(Full));
                continue;
            }
            map.put(&key, offset).expect("room");
            let newest = model.entry(key).or_insert(offset);
            *newest = (*newest).max(offset);
        }
        assert_eq!(map.len(), model.len());
        for (key, offset) in &model {
            assert_eq!(map.get(key), Some(*offset));
        }
        assert_eq!(map.get(b"never"), None);
    }

    #[test]
    fn memory_is_bounded_by_the_buffer_and_by_what_can_come() {
        let map = OffsetMap::new(128 << 20, u64::MAX, 0.9, KEY);
        assert!(map.heap_bytes() <= 128 << 20, "{}", map.heap_bytes());
        assert_eq!(map.len_max(), 5_033_164);
        let small = OffsetMap::new(128 << 20, 100, 0.9, KEY);
        assert!(small.heap_bytes() < 4096 && small.len_max() >= 100);
        let tiny = OffsetMap::new(0, 0, f64::NAN, KEY);
        assert!(tiny.len_max() >= 1);
    }

    #[test]
    fn a_full_map_still_takes_newer_offsets_of_its_keys() {
        let mut map = OffsetMap::new(0, 5, 0.5, KEY);
        let mut taken = 0;
        while map.put(&[taken], Offset(1)).is_ok() {
            taken += 1;
        }
        assert_eq!(usize::from(taken), map.len_max());
        map.put(&[0], Offset(9)).expect("known");
        map.put(&[0], Offset(3)).expect("known");
        assert_eq!((map.get(&[0]), map.get(&[taken])), (Some(Offset(9)), None));
    }
}
