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
            let overflows = base_offset
                .0
                .checked_add(i64::from(entry.relative_offset))
                .is_none();
            if entry.relative_offset < 0 || entry.timestamp < 0 || overflows {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: Offset = Offset(1000);

    const fn at(timestamp: i64, offset: i64) -> TimestampOffset {
        TimestampOffset {
            timestamp,
            offset: Offset(offset),
        }
    }

    fn index(entries: &[(i64, i64)]) -> TimeIndex {
        let mut index = TimeIndex::new(BASE, 1 << 20);
        for (timestamp, offset) in entries {
            assert!(index.append(at(*timestamp, *offset)).unwrap());
        }
        index
    }

    fn file(index: &TimeIndex) -> Vec<u8> {
        let mut file = Vec::new();
        index.encode_from(0, &mut file);
        file
    }

    #[test]
    fn lookup_returns_the_entry_at_or_before() {
        let index = index(&[(100, 1005), (200, 1010)]);
        assert_eq!(index.lookup(99), at(-1, 1000));
        assert_eq!(index.lookup(100), at(100, 1005));
        assert_eq!(index.lookup(199), at(100, 1005));
        assert_eq!(index.lookup(i64::MAX), at(200, 1010));
        assert_eq!(index.last(), at(200, 1010));
    }

    #[test]
    fn the_same_largest_timestamp_is_not_entered_twice() {
        let mut index = index(&[(100, 1005)]);
        assert_eq!(index.append(at(100, 1005)), Ok(false));
        assert_eq!(index.append(at(-1, 1000)), Ok(false));
        assert_eq!(
            index.append(at(101, 1005)),
            Err(IndexAppendError::NotIncreasing(Offset(1005)))
        );
        let far = BASE.plus(1 << 31);
        let overflow = Err(IndexAppendError::OffsetOverflow(far));
        assert_eq!(
            index.append(TimestampOffset {
                timestamp: 101,
                offset: far
            }),
            overflow
        );
        assert_eq!(index.len(), 1);
    }

    #[test]
    fn the_last_slot_is_kept_for_the_roll() {
        let mut index = TimeIndex::new(BASE, 24);
        assert!(!index.is_full());
        index.append(at(1, 1001)).unwrap();
        assert!(index.is_full());
        assert_eq!(index.append(at(2, 1002)), Err(IndexAppendError::Full));
        assert_eq!(index.append_at_roll(at(2, 1002)), Ok(true));
        assert_eq!(index.append_at_roll(at(2, 1002)), Ok(false));
    }

    #[test]
    fn zero_tails_go_but_the_epoch_itself_is_a_timestamp() {
        let mut bytes = file(&index(&[(0, 1000), (5, 1003)]));
        bytes.resize(120, 0);
        assert_eq!(TimeIndex::decode(BASE, 120, &bytes).unwrap().len(), 2);
        assert_eq!(
            TimeIndex::decode(BASE, 120, &[0; 12]).unwrap().last(),
            at(0, 1000)
        );
        assert!(TimeIndex::decode(BASE, 120, &[0; 120]).unwrap().is_empty());
    }

    #[test]
    fn corrupt_files_are_refused() {
        let size = IndexCorruption::Size {
            len: 13,
            entry_bytes: 12,
        };
        assert_eq!(TimeIndex::decode(BASE, 80, &[1; 13]).unwrap_err(), size);
        let good = file(&index(&[(100, 1005), (200, 1010)]));
        for (byte, value, error) in [
            (0, 0x80, IndexCorruption::OutOfRange { entry: 0 }),
            (20, 0xff, IndexCorruption::OutOfRange { entry: 1 }),
            (19, 100, IndexCorruption::NotIncreasing { entry: 1 }),
            (23, 5, IndexCorruption::NotIncreasing { entry: 1 }),
        ] {
            let mut bad = good.clone();
            bad[byte] = value;
            assert_eq!(
                TimeIndex::decode(BASE, 80, &bad).unwrap_err(),
                error,
                "byte {byte}"
            );
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics_and_what_it_accepts_is_what_it_writes(bytes in proptest::collection::vec(0u8..3, 0..96)) {
            if let Ok(index) = TimeIndex::decode(BASE, 1 << 20, &bytes) {
                let written = file(&index);
                prop_assert_eq!(&bytes[..written.len()], &written[..]);
                prop_assert!(bytes[written.len()..].iter().all(|byte| *byte == 0));
            }
        }

        #[test]
        fn behaves_like_a_list_and_persists_by_appending(
            steps in proptest::collection::vec((0u8..10, 1i64..50, 0i64..20), 1..80),
        ) {
            let mut index = TimeIndex::new(BASE, 1 << 20);
            let mut model: Vec<TimestampOffset> = Vec::new();
            let mut on_disk: Vec<u8> = Vec::new();
            for (what, distance, later) in steps {
                let last = model.last().copied().unwrap_or_else(|| at(-1, BASE.0));
                match what {
                    0 => {
                        let cut = last.offset.plus(-distance);
                        model.retain(|entry| entry.offset < cut);
                        index.truncate(cut);
                        on_disk.truncate(index.dirty_from() * TIME_ENTRY_BYTES);
                    }
                    1 | 2 => {
                        index.encode_from(index.dirty_from(), &mut on_disk);
                        index.mark_persisted(index.len());
                        let reread = TimeIndex::decode(BASE, 1 << 20, &on_disk).unwrap();
                        prop_assert!(reread.iter().eq(model.iter().copied()));
                    }
                    _ => {
                        let next = at(last.timestamp + later, last.offset.0 + distance);
                        prop_assert_eq!(index.append(next), Ok(later > 0));
                        if later > 0 {
                            model.push(next);
                        }
                    }
                }
                let target = distance * 7;
                let floor = model.iter().rfind(|entry| entry.timestamp <= target).copied();
                prop_assert_eq!(index.lookup(target), floor.unwrap_or_else(|| at(-1, BASE.0)));
                prop_assert_eq!(index.last(), model.last().copied().unwrap_or_else(|| at(-1, BASE.0)));
            }
        }
    }
}
