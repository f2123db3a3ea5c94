//! The producers of a log by id: entries in one dense vector, a tree of 4-byte places into it. The order of the vector
//! depends on nothing but the calls made, so sweeps and snapshots are reproducible. A tree and not a hash table because a
//! hostile client may send any producer id, and a seed would have to be random to withstand that.

use std::collections::BTreeMap;

use super::entry::Entry;
use crate::types::ProducerId;

/// How many entries an eviction compares; it forgets the one that was silent longest.
const EVICTION_SAMPLE: usize = 16;

/// What the tree takes per entry, bytes: 12 in nodes that are half to wholly full, with their heads.
const INDEX_BYTES: usize = 20;

#[derive(Debug)]
pub(super) struct Table {
    entries: Vec<Entry>,
    index: BTreeMap<ProducerId, u32>,
    /// Where the next sweep or eviction goes on, downwards: what `swap_remove` moves to a place was seen already.
    cursor: usize,
}

impl Table {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            index: BTreeMap::new(),
            cursor: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Entry> {
        self.entries.iter()
    }

    pub(super) fn get(&self, producer_id: ProducerId) -> Option<&Entry> {
        self.entries.get(self.place(producer_id)?)
    }

    pub(super) fn get_or_insert(&mut self, producer_id: ProducerId) -> &mut Entry {
        let place = self
            .place(producer_id)
            .unwrap_or_else(|| self.push(Entry::new(producer_id)));
        &mut self.entries[place]
    }

    /// Adds an entry, or replaces the one of that producer.
    pub(super) fn insert(&mut self, entry: Entry) {
        match self.place(entry.producer_id) {
            Some(place) => self.entries[place] = entry,
            None => {
                self.push(entry);
            }
        }
    }

    /// Looks at up to `entries_max` entries, each at most once, and removes those that `is_dead` says. Returns how many.
    pub(super) fn sweep(&mut self, entries_max: usize, is_dead: impl Fn(&Entry) -> bool) -> usize {
        let before = self.entries.len();
        for _ in 0..entries_max.min(before) {
            let place = self.step();
            if is_dead(&self.entries[place]) {
                self.remove(place);
            }
        }
        before - self.entries.len()
    }

    /// Removes the entry that was silent longest among the next few without an open transaction. Removes nothing if all
    /// have one.
    pub(super) fn evict(&mut self) {
        let mut candidate: Option<(i64, usize)> = None;
        for looked_at in 0..self.entries.len() {
            if looked_at >= EVICTION_SAMPLE && candidate.is_some() {
                break;
            }
            let place = self.step();
            let entry = &self.entries[place];
            if entry.txn_first().is_none() && candidate.is_none_or(|(active, _)| entry.active_ms < active) {
                candidate = Some((entry.active_ms, place));
            }
        }
        if let Some((_, place)) = candidate {
            self.remove(place);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let windows: usize = self.entries.iter().map(Entry::heap_bytes).sum();
        windows + self.entries.capacity() * size_of::<Entry>() + self.index.len() * INDEX_BYTES
    }

    /// The next place to look at. The table is not empty.
    fn step(&mut self) -> usize {
        if self.cursor == 0 || self.cursor > self.entries.len() {
            self.cursor = self.entries.len();
        }
        self.cursor -= 1;
        self.cursor
    }

    fn place(&self, producer_id: ProducerId) -> Option<usize> {
        self.index.get(&producer_id).map(|place| *place as usize)
    }

    fn push(&mut self, entry: Entry) -> usize {
        let place = self.entries.len();
        let number = u32::try_from(place).expect("a log knows fewer than 2^32 producers");
        self.index.insert(entry.producer_id, number);
        self.entries.push(entry);
        place
    }

    fn remove(&mut self, place: usize) {
        let removed = self.entries.swap_remove(place);
        self.index.remove(&removed.producer_id);
        if let Some(moved) = self.entries.get(place) {
            self.index.insert(moved.producer_id, place as u32);
        }
        // Gives memory back after many producers expired.
        if self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}
