//! The three indexes of a segment together, and Kafka's rule for when the sparse ones get an entry: before a batch is
//! counted, if more than `index.interval.bytes` went by since the last entry. Feeding the same batches again gives the
//! same entries, so this is the rebuild too.

use super::index_error::IndexAppendError;
use super::offset_index::OffsetIndex;
use super::time_index::{NO_TIMESTAMP, TimeIndex, TimestampOffset};
use super::txn_index::TxnIndex;
use crate::types::Offset;

/// What the indexes need to know of a batch; all of it is in the batch's header.
#[derive(Debug, Clone, Copy)]
pub struct IndexedBatch {
    /// The batch's last offset.
    pub last_offset: Offset,
    /// Where the batch starts in the segment file, bytes.
    pub position: u32,
    /// The whole batch, header included, bytes.
    pub size: u32,
    /// The header's maxTimestamp.
    pub max_timestamp: i64,
}

/// One segment's indexes. Only the active segment's are appended to.
#[derive(Debug, Clone)]
pub struct SegmentIndexes {
    /// Offset to position.
    pub offset: OffsetIndex,
    /// Timestamp to offset.
    pub time: TimeIndex,
    /// Aborted transactions.
    pub txn: TxnIndex,
    bytes_since_entry: u64,
    largest: TimestampOffset,
}

impl SegmentIndexes {
    /// Empty indexes of the segment at `base_offset`; `bytes_max` is `segment.index.bytes`.
    #[must_use]
    pub const fn new(base_offset: Offset, bytes_max: usize) -> Self {
        Self::from_parts(
            OffsetIndex::new(base_offset, bytes_max),
            TimeIndex::new(base_offset, bytes_max),
            TxnIndex::new(base_offset),
            TimestampOffset {
                timestamp: NO_TIMESTAMP,
                offset: base_offset,
            },
        )
    }

    /// Indexes read from files. `largest` is the segment's largest timestamp: [`TimeIndex::last`] for a closed segment;
    /// for an active one the batches behind that entry count too.
    #[must_use]
    pub const fn from_parts(
        offset: OffsetIndex,
        time: TimeIndex,
        txn: TxnIndex,
        largest: TimestampOffset,
    ) -> Self {
        Self {
            offset,
            time,
            txn,
            bytes_since_entry: 0,
            largest,
        }
    }

    /// The largest timestamp of the segment and the last offset of the batch that brought it.
    #[must_use]
    pub const fn largest_timestamp(&self) -> TimestampOffset {
        self.largest
    }

    /// Whether a batch that ends with `last_offset` needs a new segment, for the indexes' sake.
    #[must_use]
    pub const fn must_roll_before(&self, last_offset: Offset) -> bool {
        self.offset.is_full() || self.time.is_full() || !self.offset.fits(last_offset)
    }

    /// Counts a batch and adds entries when `interval_bytes` (`index.interval.bytes`) have gone by.
    ///
    /// # Errors
    /// [`IndexAppendError`] when the segment should have rolled or the batches are not in order; the indexes may then have
    /// one of the two entries and are to be rebuilt.
    pub fn append(&mut self, batch: IndexedBatch, interval_bytes: u32) -> Result<(), IndexAppendError> {
        if !self.offset.fits(batch.last_offset) {
            return Err(IndexAppendError::OffsetOverflow(batch.last_offset));
        }
        if batch.max_timestamp > self.largest.timestamp {
            self.largest = TimestampOffset {
                timestamp: batch.max_timestamp,
                offset: batch.last_offset,
            };
        }
        if self.bytes_since_entry > u64::from(interval_bytes) {
            self.offset.append(batch.last_offset, batch.position)?;
            self.time.append(self.largest)?;
            self.bytes_since_entry = 0;
        }
        self.bytes_since_entry += u64::from(batch.size);
        Ok(())
    }

    /// The segment is rolled or closed: the time index gets its final entry, unused memory goes back.
    ///
    /// # Errors
    /// [`IndexAppendError`], never `Full`.
    pub fn close(&mut self) -> Result<(), IndexAppendError> {
        self.time.append_at_roll(self.largest)?;
        self.offset.shrink();
        self.time.shrink();
        Ok(())
    }

    /// Forgets everything at or above `offset`. `largest` is the largest timestamp of what remains (the caller finds it by
    /// looking at the batches from `offset.lookup(time.last().offset)` on, as after a load).
    pub fn truncate(&mut self, offset: Offset, largest: TimestampOffset) {
        self.offset.truncate(offset);
        self.time.truncate(offset);
        self.txn.truncate(offset);
        self.bytes_since_entry = 0;
        self.largest = largest;
    }

    /// Forgets everything, before all batches of the segment are fed again. `base_offset` is the segment's.
    pub fn clear(&mut self, base_offset: Offset) {
        self.offset.clear();
        self.time.clear();
        self.txn.clear();
        self.bytes_since_entry = 0;
        self.largest = TimestampOffset {
            timestamp: NO_TIMESTAMP,
            offset: base_offset,
        };
    }

    /// Memory charged to the three indexes, bytes.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.offset.heap_bytes() + self.time.heap_bytes() + self.txn.heap_bytes()
    }
}
