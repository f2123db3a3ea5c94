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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::offset_index::OffsetPosition;

    fn batch(last_offset: i64, position: u32, max_timestamp: i64) -> IndexedBatch {
        IndexedBatch {
            last_offset: Offset(last_offset),
            position,
            size: 100,
            max_timestamp,
        }
    }

    #[test]
    fn an_entry_is_added_when_more_than_the_interval_went_by() {
        let mut indexes = SegmentIndexes::new(Offset(0), 1 << 20);
        for number in 0..7u32 {
            // Timestamps run backwards from the third batch on.
            let timestamp = if number < 3 {
                1000 + i64::from(number)
            } else {
                500 - i64::from(number)
            };
            indexes
                .append(batch(i64::from(number), number * 100, timestamp), 200)
                .unwrap();
        }
        let at = |offset, position| OffsetPosition {
            offset: Offset(offset),
            position,
        };
        assert!(indexes.offset.iter().eq([at(3, 300), at(6, 600)]));
        let largest = TimestampOffset {
            timestamp: 1002,
            offset: Offset(2),
        };
        assert!(indexes.time.iter().eq([largest]));
        assert_eq!(indexes.largest_timestamp(), largest);
        indexes.close().unwrap();
        assert_eq!(indexes.time.len(), 1, "the final entry is there already");
        assert!(indexes.heap_bytes() > 0);
    }

    #[test]
    fn closing_adds_the_largest_timestamp() {
        let mut indexes = SegmentIndexes::new(Offset(0), 1 << 20);
        indexes.append(batch(0, 0, 7), 4096).unwrap();
        assert!(indexes.time.is_empty());
        indexes.close().unwrap();
        assert_eq!(
            indexes.time.last(),
            TimestampOffset {
                timestamp: 7,
                offset: Offset(0)
            }
        );
    }

    #[test]
    fn a_full_index_or_a_far_offset_needs_a_new_segment() {
        let mut indexes = SegmentIndexes::new(Offset(0), 36);
        assert!(!indexes.must_roll_before(Offset(i64::from(i32::MAX))));
        assert!(indexes.must_roll_before(Offset(1 << 31)));
        assert!(indexes.append(batch(1 << 31, 0, 0), 0).is_err());
        for number in 0..3u32 {
            assert!(
                !indexes.must_roll_before(Offset(i64::from(number))),
                "batch {number}"
            );
            indexes
                .append(batch(i64::from(number), number * 100, i64::from(number)), 0)
                .unwrap();
        }
        // Three time entries fit; one slot is for the roll.
        assert!(indexes.time.is_full() && indexes.must_roll_before(Offset(3)));
        indexes.close().unwrap();
    }

    #[test]
    fn truncating_and_feeding_again_gives_the_same_entries() {
        let feed = |indexes: &mut SegmentIndexes, from: u32, to: u32| {
            for number in from..to {
                indexes
                    .append(batch(i64::from(number), number * 100, i64::from(number)), 250)
                    .unwrap();
            }
        };
        let mut whole = SegmentIndexes::new(Offset(0), 1 << 20);
        feed(&mut whole, 0, 40);
        let mut rebuilt = whole.clone();
        rebuilt.clear(Offset(0));
        assert_eq!(
            rebuilt.largest_timestamp(),
            TimestampOffset {
                timestamp: -1,
                offset: Offset(0)
            }
        );
        feed(&mut rebuilt, 0, 40);
        assert!(rebuilt.offset.iter().eq(whole.offset.iter()) && rebuilt.time.iter().eq(whole.time.iter()));
        whole.truncate(
            Offset(20),
            TimestampOffset {
                timestamp: 19,
                offset: Offset(19),
            },
        );
        assert!(whole.offset.iter().all(|entry| entry.offset < Offset(20)));
        assert!(whole.time.iter().all(|entry| entry.offset < Offset(20)));
        assert_eq!(whole.largest_timestamp().timestamp, 19);
    }
}
