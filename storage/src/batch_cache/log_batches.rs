//! The cached batches of one log, in log order: a prefix that segments hold and that may be evicted from the front, then
//! a suffix that only the journal holds.

use std::collections::VecDeque;

use bytes::Bytes;

use super::slabs::SlabId;
use crate::types::Offset;

/// A batch in the cache; it answers for the offsets from `previous_end` to `last_offset`.
#[derive(Debug)]
pub(super) struct Batch {
    pub previous_end: Offset,
    pub last_offset: Offset,
    /// Grows with each insertion into the cache.
    pub sequence: u64,
    pub pieces: Pieces,
}

/// The bytes of a batch.
#[derive(Debug)]
pub(super) enum Pieces {
    /// All of it in a slab.
    Small { slab: SlabId, bytes: Bytes },
    /// The prefix in a slab, the rest in the buffer it was received in.
    Large(Box<Large>),
}

#[derive(Debug)]
pub(super) struct Large {
    slab: SlabId,
    prefix: Bytes,
    body: Bytes,
    backing: u64,
}

#[derive(Debug, Default)]
pub(super) struct LogBatches {
    batches: VecDeque<Batch>,
    /// How many of them, from the front, are written.
    written: usize,
}

impl LogBatches {
    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The offset after the last batch.
    pub(super) fn end(&self) -> Option<Offset> {
        self.batches.back().map(|batch| batch.last_offset.plus(1))
    }

    pub(super) fn push(&mut self, batch: Batch) {
        self.batches.push_back(batch);
    }

    /// Moves the first unwritten batch to the written ones if it ends below `end`.
    pub(super) fn write_next(&mut self, end: Offset) -> Option<&Batch> {
        let batch = self
            .batches
            .get(self.written)
            .filter(|batch| batch.last_offset < end)?;
        self.written += 1;
        Some(batch)
    }

    /// The batches from the one that answers for `offset`; `None` when there is no such batch.
    pub(super) fn covering(&self, offset: Offset) -> Option<impl Iterator<Item = &Batch> + '_> {
        let first = self.batches.partition_point(|batch| batch.last_offset < offset);
        self.batches
            .get(first)
            .filter(|batch| batch.previous_end <= offset)?;
        Some(self.batches.range(first..))
    }

    #[cfg(test)]
    pub(super) fn unwritten(&self) -> impl Iterator<Item = &Batch> + '_ {
        self.batches.range(self.written..)
    }

    /// Removes the last batch if it reaches to or over `end`; says whether it was written.
    pub(super) fn pop_from(&mut self, end: Offset) -> Option<(Batch, bool)> {
        self.batches.back().filter(|batch| batch.last_offset >= end)?;
        let batch = self.batches.pop_back()?;
        let written = self.written > self.batches.len();
        self.written = self.written.min(self.batches.len());
        Some((batch, written))
    }

    /// Removes the first batch if it is written and has that sequence.
    pub(super) fn pop_oldest(&mut self, sequence: u64) -> Option<Batch> {
        self.batches
            .front()
            .filter(|batch| self.written > 0 && batch.sequence == sequence)?;
        self.written -= 1;
        let batch = self.batches.pop_front();
        if self.batches.len() * 4 < self.batches.capacity() {
            self.batches.shrink_to(self.batches.len() * 2);
        }
        batch
    }

    /// Removes the first batch if it is written and lies below `end`.
    pub(super) fn pop_before(&mut self, end: Offset) -> Option<Batch> {
        let sequence = self
            .batches
            .front()
            .filter(|batch| batch.last_offset < end)?
            .sequence;
        self.pop_oldest(sequence)
    }

    pub(super) fn has(&self, sequence: u64) -> bool {
        self.batches
            .binary_search_by_key(&sequence, |batch| batch.sequence)
            .is_ok()
    }
}

impl Pieces {
    pub(super) fn large(slab: SlabId, prefix: Bytes, body: Bytes, backing: u64) -> Self {
        Self::Large(Box::new(Large {
            slab,
            prefix,
            body,
            backing,
        }))
    }

    /// The size of the batch, bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Small { bytes, .. } => bytes.len(),
            Self::Large(large) => large.prefix.len() + large.body.len(),
        }
    }

    pub(super) const fn slab(&self) -> SlabId {
        match self {
            Self::Small { slab, .. } => *slab,
            Self::Large(large) => large.slab,
        }
    }

    pub(super) const fn backing(&self) -> Option<u64> {
        match self {
            Self::Small { .. } => None,
            Self::Large(large) => Some(large.backing),
        }
    }

    pub(super) const fn split(&self) -> (&Bytes, Option<&Bytes>) {
        match self {
            Self::Small { bytes, .. } => (bytes, None),
            Self::Large(large) => (&large.prefix, Some(&large.body)),
        }
    }

    pub(super) fn push_to(&self, pieces: &mut Vec<Bytes>) {
        let (head, body) = self.split();
        pieces.push(head.clone());
        pieces.extend(body.cloned());
    }
}
