//! The sparse time index of a segment (`.timeindex`): timestamp to offset. Pure memory; the file is written by the log.
//!
//! File format (Kafka's; `kafka-surface.md` §5.2), entries back to back, big-endian, no header, no checksum:
//!
//! ```text
//! | timestamp i64 | relative offset i32 |      12 bytes
//! ```
//!
//! An entry says: no record up to the offset is later than the timestamp. Timestamps grow from entry to entry. The last
//! one of a closed segment is its largest timestamp (time retention reads it).

use bytes::BufMut;

use super::index_error::{IndexAppendError, IndexCorruption};
use super::offset_index::relative;
use crate::types::Offset;

/// The size of one entry in the file.
pub const TIME_ENTRY_BYTES: usize = 12;

/// The timestamp of a log without any.
pub const NO_TIMESTAMP: i64 = -1;

/// A timestamp and the offset of the batch that brought it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimestampOffset {
    /// Milliseconds since 1970; −1 when there is none.
    pub timestamp: i64,
    /// The last offset of the batch with that timestamp.
    pub offset: Offset,
}

/// Memory: 16 bytes an entry (12 in the file), at most one per `index.interval.bytes` of log.
#[derive(Debug, Clone)]
pub struct TimeIndex {
    base_offset: Offset,
    entries: Vec<Entry>,
    entries_max: usize,
    /// Entries below this number are in the file.
    persisted: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    timestamp: i64,
    relative_offset: i32,
}

impl TimeIndex {
    /// An empty index of the segment at `base_offset`, for at most `bytes_max` (`segment.index.bytes`) of entries.
    #[must_use]
    pub const fn new(base_offset: Offset, bytes_max: usize) -> Self {
        Self {
            base_offset,
            entries: Vec::new(),
            entries_max: bytes_max / TIME_ENTRY_BYTES,
            persisted: 0,
        }
    }

    /// Reads a file. A tail of zeroes, left by a broker that died with a preallocated file, is no part of it; only a file
    /// of exactly one zero entry (a segment of records from the first millisecond of 1970) keeps it.
    ///
    /// # Errors
    /// [`IndexCorruption`] when the length is no multiple of 12 or the entries do not increase.
    pub fn decode(base_offset: Offset, bytes_max: usize, file: &[u8]) -> Result<Self, IndexCorruption> {
        let (chunks, rest) = file.as_chunks::<TIME_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(IndexCorruption::Size {
                len: file.len(),
                entry_bytes: TIME_ENTRY_BYTES,
            });
        }
        let used = match chunks
            .iter()
            .rposition(|chunk| chunk.iter().any(|byte| *byte != 0))
        {
            Some(last) => last + 1,
            None if chunks.len() == 1 => 1,
            None => 0,
        };
        let mut entries = Vec::with_capacity(used);
        let mut previous: Option<Entry> = None;
        for (number, chunk) in chunks.iter().take(used).enumerate() {
            let entry = Entry::decode(chunk);
            if entry.relative_offset < 0 || entry.timestamp < 0 {
                return Err(IndexCorruption::OutOfRange { entry: number });
            }
            if previous.is_some_and(|p| !entry.is_after(p)) {
                return Err(IndexCorruption::NotIncreasing { entry: number });
            }
            previous = Some(entry);
            entries.push(entry);
        }
        Ok(Self {
            base_offset,
            persisted: entries.len(),
            entries,
            entries_max: bytes_max / TIME_ENTRY_BYTES,
        })
    }

    /// The number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether the segment has to roll; one slot is kept for the entry that [`Self::append_at_roll`] adds.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.entries.len() + 1 >= self.entries_max
    }

    /// The last entry: the largest timestamp indexed so far. Without entries (−1, base offset), as in Kafka.
    #[must_use]
    pub fn last(&self) -> TimestampOffset {
        self.entries
            .last()
            .map_or_else(|| self.none(), |entry| self.absolute(*entry))
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = TimestampOffset> + '_ {
        self.entries.iter().map(|entry| self.absolute(*entry))
    }

    /// The last entry whose timestamp is at or below `timestamp`; (−1, base offset) when there is none. A search for the
    /// first record at or after `timestamp` starts at its offset.
    #[must_use]
    pub fn lookup(&self, timestamp: i64) -> TimestampOffset {
        self.entries
            .partition_point(|entry| entry.timestamp <= timestamp)
            .checked_sub(1)
            .and_then(|slot| self.entries.get(slot))
            .map_or_else(|| self.none(), |entry| self.absolute(*entry))
    }

    /// Adds the largest timestamp so far with the offset that brought it, unless the last entry has it already. Returns
    /// whether an entry was added.
    ///
    /// # Errors
    /// [`IndexAppendError`]; nothing is added then.
    pub fn append(&mut self, largest: TimestampOffset) -> Result<bool, IndexAppendError> {
        if self.is_full() {
            return Err(IndexAppendError::Full);
        }
        self.append_unless_known(largest)
    }

    /// The final entry of a segment that is rolled or closed: as [`Self::append`], but may use the reserved slot.
    ///
    /// # Errors
    /// [`IndexAppendError`], never `Full`; nothing is added then.
    pub fn append_at_roll(&mut self, largest: TimestampOffset) -> Result<bool, IndexAppendError> {
        self.append_unless_known(largest)
    }

    /// Forgets the entries at or above `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        let distance = offset.0.saturating_sub(self.base_offset.0);
        self.entries.truncate(
            self.entries
                .partition_point(|entry| i64::from(entry.relative_offset) < distance),
        );
        self.persisted = self.persisted.min(self.entries.len());
    }

    /// Forgets all entries, before a rebuild.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.persisted = 0;
    }

    /// The number of the first entry that the file does not hold yet; equal to [`Self::len`] when it holds all.
    #[must_use]
    pub const fn dirty_from(&self) -> usize {
        self.persisted
    }

    /// Writes the entries from number `first` on as the file has them, at file position `first` × 12.
    pub fn encode_from(&self, first: usize, out: &mut impl BufMut) {
        for entry in self.entries.iter().skip(first) {
            out.put_i64(entry.timestamp);
            out.put_i32(entry.relative_offset);
        }
    }

    /// The file now holds the first `entries` entries.
    pub fn mark_persisted(&mut self, entries: usize) {
        self.persisted = entries.min(self.entries.len());
    }

    /// Gives unused memory back: for a segment that was rolled.
    pub fn shrink(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Memory charged to this index, bytes.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    fn append_unless_known(&mut self, largest: TimestampOffset) -> Result<bool, IndexAppendError> {
        let TimestampOffset { timestamp, offset } = largest;
        if timestamp <= self.last().timestamp {
            return Ok(false);
        }
        let relative_offset =
            relative(self.base_offset, offset).ok_or(IndexAppendError::OffsetOverflow(offset))?;
        let entry = Entry {
            timestamp,
            relative_offset,
        };
        if self
            .entries
            .last()
            .is_some_and(|previous| !entry.is_after(*previous))
        {
            return Err(IndexAppendError::NotIncreasing(offset));
        }
        self.entries.push(entry);
        Ok(true)
    }

    const fn none(&self) -> TimestampOffset {
        TimestampOffset {
            timestamp: NO_TIMESTAMP,
            offset: self.base_offset,
        }
    }

    fn absolute(&self, entry: Entry) -> TimestampOffset {
        TimestampOffset {
            timestamp: entry.timestamp,
            offset: self.base_offset.plus(i64::from(entry.relative_offset)),
        }
    }
}

impl Entry {
    fn decode(bytes: &[u8; TIME_ENTRY_BYTES]) -> Self {
        let [t0, t1, t2, t3, t4, t5, t6, t7, o0, o1, o2, o3] = *bytes;
        Self {
            timestamp: i64::from_be_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            relative_offset: i32::from_be_bytes([o0, o1, o2, o3]),
        }
    }

    /// A batch has one offset and one largest timestamp, so a later timestamp comes with a later offset.
    const fn is_after(self, previous: Self) -> bool {
        self.timestamp > previous.timestamp && self.relative_offset > previous.relative_offset
    }
}
