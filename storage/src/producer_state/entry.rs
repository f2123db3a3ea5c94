//! One producer's state: its epoch and the window of its last batches, laid out to be small. The last batch lies in the
//! entry; the four before it, which only a producer with several batches in an epoch has, in one box.

use smallvec::SmallVec;

use super::ProducerView;
use super::snapshot::SnapshotEntry;
use crate::types::{Offset, ProducerId};

/// How many batches of a producer a retry is recognised in; clients keep no more in flight (PR-40).
pub const BATCHES_RETAINED: usize = 5;

/// The epoch of an entry that has seen neither batch nor marker.
pub(super) const NO_EPOCH: i16 = -1;

const OLDER: usize = BATCHES_RETAINED - 1;

/// A batch of a producer that is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedBatch {
    /// The offset of its first record.
    pub first_offset: Offset,
    /// The offset of its last record.
    pub last_offset: Offset,
    /// The sequence of its last record; −1 for a coordinator's batch.
    pub last_sequence: i32,
    /// Its largest timestamp: the answer's log append time where the topic has one.
    pub timestamp: i64,
}

/// 72 bytes; see [`ProducerState`](super::ProducerState) for the sum.
#[derive(Debug)]
pub(super) struct Entry {
    pub producer_id: ProducerId,
    /// Meaningful if `has_last`.
    last: Packed,
    /// The batches before `last`: a ring, its oldest at `older_head`. Kept when an epoch ends, to be filled again.
    older: Option<Box<[Packed; OLDER]>>,
    /// The first offset of the open transaction; −1 when there is none.
    txn_first: Offset,
    /// The timestamp of the last batch or marker.
    pub last_timestamp: i64,
    /// When the last batch or marker was written, by our clock.
    pub active_ms: i64,
    pub coordinator_epoch: i32,
    pub epoch: i16,
    has_last: bool,
    /// Two numbers below 8: how many of `older` are in use, and where the oldest is.
    older_len_head: u8,
}

/// A batch in 24 bytes.
#[derive(Debug, Clone, Copy)]
struct Packed {
    last_offset: i64,
    timestamp: i64,
    last_sequence: i32,
    offset_delta: i32,
}

const EMPTY: Packed = Packed {
    last_offset: -1,
    timestamp: -1,
    last_sequence: -1,
    offset_delta: 0,
};

impl AppendedBatch {
    /// The sequence of its first record. Wraps below 0 to 2^31−1.
    #[must_use]
    pub const fn first_sequence(&self) -> i32 {
        let delta = self.last_offset.0.wrapping_sub(self.first_offset.0);
        (self.last_sequence as i64).wrapping_sub(delta) as i32 & i32::MAX
    }
}

impl Entry {
    pub(super) const fn new(producer_id: ProducerId) -> Self {
        Self {
            producer_id,
            last: EMPTY,
            older: None,
            txn_first: Offset::NONE,
            last_timestamp: -1,
            active_ms: -1,
            coordinator_epoch: -1,
            epoch: NO_EPOCH,
            has_last: false,
            older_len_head: 0,
        }
    }

    pub(super) fn from_snapshot(snapshot: &SnapshotEntry) -> Self {
        let mut entry = Self::new(snapshot.producer_id);
        entry.epoch = snapshot.epoch;
        entry.coordinator_epoch = snapshot.coordinator_epoch;
        entry.last_timestamp = snapshot.last_timestamp;
        entry.active_ms = snapshot.active_ms;
        entry.txn_first = snapshot.transaction_start.unwrap_or(Offset::NONE);
        for batch in snapshot.older.iter().chain(&snapshot.last) {
            entry.push(*batch);
        }
        entry
    }

    /// With the batches before the last one if `with_window`.
    pub(super) fn to_snapshot(&self, with_window: bool) -> SnapshotEntry {
        SnapshotEntry {
            producer_id: self.producer_id,
            epoch: self.epoch,
            coordinator_epoch: self.coordinator_epoch,
            last_timestamp: self.last_timestamp,
            active_ms: self.active_ms,
            transaction_start: self.txn_first(),
            last: self.has_last.then(|| self.last.unpack()),
            older: if with_window {
                self.older().map(Packed::unpack).collect()
            } else {
                SmallVec::new()
            },
        }
    }

    pub(super) fn view(&self) -> ProducerView {
        ProducerView {
            producer_id: self.producer_id,
            epoch: self.epoch,
            last_sequence: self.last_sequence(),
            last_timestamp: self.last_timestamp,
            coordinator_epoch: self.coordinator_epoch,
            transaction_start: self.txn_first(),
        }
    }

    /// Oldest first.
    pub(super) fn batches(&self) -> impl Iterator<Item = AppendedBatch> + '_ {
        self.older()
            .chain(self.has_last.then_some(&self.last))
            .map(Packed::unpack)
    }

    pub(super) const fn last_sequence(&self) -> i32 {
        if self.has_last {
            self.last.last_sequence
        } else {
            -1
        }
    }

    pub(super) const fn txn_first(&self) -> Option<Offset> {
        if self.txn_first.0 >= 0 {
            Some(self.txn_first)
        } else {
            None
        }
    }

    pub(super) const fn set_txn_first(&mut self, first: Option<Offset>) {
        self.txn_first = match first {
            Some(offset) => offset,
            None => Offset::NONE,
        };
    }

    /// Another epoch starts with an empty window: its sequences start at 0 again.
    pub(super) const fn set_epoch(&mut self, epoch: i16) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.has_last = false;
            self.older_len_head = 0;
        }
    }

    pub(super) fn push(&mut self, batch: AppendedBatch) {
        if self.has_last {
            let (len, head) = self.older_len_and_head();
            let ring = self.older.get_or_insert_with(|| Box::new([EMPTY; OLDER]));
            ring[(head + len) % OLDER] = self.last;
            let (len, head) = if len < OLDER {
                (len + 1, head)
            } else {
                (len, (head + 1) % OLDER)
            };
            self.older_len_head = ((len << 4) | head) as u8;
        }
        self.last = Packed::pack(&batch);
        self.has_last = true;
    }

    /// Never with an open transaction: its marker has to find it.
    pub(super) const fn is_expired(&self, now_ms: i64, expiration_ms: i64) -> bool {
        self.txn_first().is_none() && now_ms.saturating_sub(self.active_ms) >= expiration_ms
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.older.as_ref().map_or(0, |ring| size_of_val(&**ring))
    }

    /// Oldest first. A ring that is not full yet starts at 0.
    fn older(&self) -> impl Iterator<Item = &Packed> + '_ {
        let (len, head) = self.older_len_and_head();
        let ring = self.older.as_deref().map_or(&[][..], |ring| &ring[..]);
        let (newer, older) = ring
            .get(..len)
            .unwrap_or_default()
            .split_at_checked(head)
            .unwrap_or_default();
        older.iter().chain(newer)
    }

    const fn older_len_and_head(&self) -> (usize, usize) {
        (
            (self.older_len_head >> 4) as usize,
            (self.older_len_head & 0xf) as usize,
        )
    }
}

impl Packed {
    const fn pack(batch: &AppendedBatch) -> Self {
        Self {
            last_offset: batch.last_offset.0,
            timestamp: batch.timestamp,
            last_sequence: batch.last_sequence,
            offset_delta: batch.last_offset.0.wrapping_sub(batch.first_offset.0) as i32,
        }
    }

    const fn unpack(&self) -> AppendedBatch {
        AppendedBatch {
            first_offset: Offset(self.last_offset.wrapping_sub(self.offset_delta as i64)),
            last_offset: Offset(self.last_offset),
            last_sequence: self.last_sequence,
            timestamp: self.timestamp,
        }
    }
}

const _: () = assert!(
    size_of::<Entry>() == 72,
    "the memory figures of ProducerState are computed with 72 bytes"
);
