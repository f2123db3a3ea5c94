//! The sparse offset index of a segment (`.index`): offset to file position. Pure memory; the file is written by the log.
//!
//! File format (Kafka's; `kafka-surface.md` §5.2), entries back to back, big-endian, no header, no checksum:
//!
//! ```text
//! | relative offset i32 | file position i32 |      8 bytes
//! ```
//!
//! The offset is the *last* offset of the batch that starts at the position, relative to the segment's base offset.

use bytes::BufMut;

use super::index_error::{IndexAppendError, IndexCorruption};
use crate::types::Offset;

/// The size of one entry, in the file and in memory.
pub const OFFSET_ENTRY_BYTES: usize = 8;

/// Where to start reading: the batch at `position` ends with `offset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetPosition {
    /// The last offset of the batch at `position`.
    pub offset: Offset,
    /// Bytes from the start of the segment file.
    pub position: u32,
}

/// Memory: 8 bytes an entry, one entry per `index.interval.bytes` of log (4 KiB): 2 MiB for a full 1 GiB segment.
#[derive(Debug, Clone)]
pub struct OffsetIndex {
    base_offset: Offset,
    entries: Vec<Entry>,
    entries_max: usize,
    /// Entries below this number are in the file.
    persisted: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    relative_offset: i32,
    position: i32,
}

impl OffsetIndex {
    /// An empty index of the segment at `base_offset`, for at most `bytes_max` (`segment.index.bytes`) of entries.
    #[must_use]
    pub const fn new(base_offset: Offset, bytes_max: usize) -> Self {
        Self {
            base_offset,
            entries: Vec::new(),
            entries_max: bytes_max / OFFSET_ENTRY_BYTES,
            persisted: 0,
        }
    }

    /// Reads a file. A tail of zeroes, left by a broker that died with a preallocated file, is no part of it (no entry is
    /// all zero: the first batch of a segment never gets one).
    ///
    /// # Errors
    /// [`IndexCorruption`] when the length is no multiple of 8 or the entries do not increase.
    pub fn decode(base_offset: Offset, bytes_max: usize, file: &[u8]) -> Result<Self, IndexCorruption> {
        let (chunks, rest) = file.as_chunks::<OFFSET_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(IndexCorruption::Size {
                len: file.len(),
                entry_bytes: OFFSET_ENTRY_BYTES,
            });
        }
        let used = chunks
            .iter()
            .rposition(|chunk| chunk.iter().any(|byte| *byte != 0))
            .map_or(0, |last| last + 1);
        let mut entries = Vec::with_capacity(used);
        let mut previous: Option<Entry> = None;
        for (number, chunk) in chunks.iter().take(used).enumerate() {
            let entry = Entry::decode(*chunk);
            let overflows = base_offset
                .0
                .checked_add(i64::from(entry.relative_offset))
                .is_none();
            if entry.relative_offset < 0 || entry.position < 0 || overflows {
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
            entries_max: bytes_max / OFFSET_ENTRY_BYTES,
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

    /// Whether `segment.index.bytes` is used up, so that the segment has to roll.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.entries.len() >= self.entries_max
    }

    /// Whether an offset can be expressed relative to this segment; if not, the segment has to roll.
    #[must_use]
    pub const fn fits(&self, offset: Offset) -> bool {
        relative(self.base_offset, offset).is_some()
    }

    /// The last entry, if any.
    #[must_use]
    pub fn last(&self) -> Option<OffsetPosition> {
        self.entries.last().map(|entry| self.absolute(*entry))
    }

    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = OffsetPosition> + '_ {
        self.entries.iter().map(|entry| self.absolute(*entry))
    }

    /// The last entry at or below `offset`; the start of the segment when there is none. A scan for `offset` starts there.
    #[must_use]
    pub fn lookup(&self, offset: Offset) -> OffsetPosition {
        let distance = offset.0.saturating_sub(self.base_offset.0);
        self.entries
            .partition_point(|entry| i64::from(entry.relative_offset) <= distance)
            .checked_sub(1)
            .and_then(|slot| self.entries.get(slot))
            .map_or(
                OffsetPosition {
                    offset: self.base_offset,
                    position: 0,
                },
                |entry| self.absolute(*entry),
            )
    }

    /// An offset that surely lies beyond the bytes before `position` (not the smallest such one): the bound for aborted
    /// transactions of a fetch that ends at `position`. `None`: take the next segment's base offset or the log end.
    #[must_use]
    pub fn upper_bound(&self, position: u32) -> Option<Offset> {
        let slot = self
            .entries
            .partition_point(|entry| entry.position.cast_unsigned() < position);
        self.entries.get(slot).map(|entry| self.absolute(*entry).offset)
    }

    /// Where the first batch above `position` begins that has an entry, and an offset that its first one is not below.
    #[must_use]
    pub fn batch_after(&self, position: u32) -> Option<(u32, Offset)> {
        let slot = self
            .entries
            .partition_point(|entry| entry.position.cast_unsigned() <= position);
        let before = slot.checked_sub(1).and_then(|slot| self.entries.get(slot));
        let least = before.map_or(self.base_offset, |entry| self.absolute(*entry).offset.plus(1));
        self.entries
            .get(slot)
            .map(|entry| (entry.position.cast_unsigned(), least))
    }

    /// Adds the batch that starts at `position` and ends with `last_offset`. When to add is decided by
    /// [`SegmentIndexes`](super::indexes::SegmentIndexes).
    ///
    /// # Errors
    /// [`IndexAppendError`]; nothing is added then.
    pub fn append(&mut self, last_offset: Offset, position: u32) -> Result<(), IndexAppendError> {
        if self.is_full() {
            return Err(IndexAppendError::Full);
        }
        let overflow = IndexAppendError::OffsetOverflow(last_offset);
        let relative_offset = relative(self.base_offset, last_offset).ok_or(overflow)?;
        let position = i32::try_from(position).map_err(|_| overflow)?;
        let entry = Entry {
            relative_offset,
            position,
        };
        if self
            .entries
            .last()
            .is_some_and(|previous| !entry.is_after(*previous))
        {
            return Err(IndexAppendError::NotIncreasing(last_offset));
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Forgets the entries at or above `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        self.entries.truncate(self.below(offset));
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

    /// Writes the entries from number `first` on as the file has them, at file position `first` × 8.
    pub fn encode_from(&self, first: usize, out: &mut impl BufMut) {
        for entry in self.entries.iter().skip(first) {
            out.put_i32(entry.relative_offset);
            out.put_i32(entry.position);
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

    /// How many entries are below `offset`.
    fn below(&self, offset: Offset) -> usize {
        self.entries.partition_point(|entry| {
            i64::from(entry.relative_offset) < offset.0.saturating_sub(self.base_offset.0)
        })
    }

    fn absolute(&self, entry: Entry) -> OffsetPosition {
        OffsetPosition {
            offset: self.base_offset.plus(i64::from(entry.relative_offset)),
            position: entry.position.cast_unsigned(),
        }
    }
}

impl Entry {
    const fn decode(bytes: [u8; OFFSET_ENTRY_BYTES]) -> Self {
        let both = u64::from_be_bytes(bytes);
        Self {
            relative_offset: (both >> 32) as i32,
            position: both as i32,
        }
    }

    const fn is_after(self, previous: Self) -> bool {
        self.relative_offset > previous.relative_offset && self.position > previous.position
    }
}

/// `offset` relative to `base`, if it fits an index entry.
pub(super) const fn relative(base: Offset, offset: Offset) -> Option<i32> {
    match offset.0.checked_sub(base.0) {
        Some(distance) if distance >= 0 && distance <= i32::MAX as i64 => Some(distance as i32),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BASE: Offset = Offset(1000);

    const fn at(offset: i64, position: u32) -> OffsetPosition {
        OffsetPosition {
            offset: Offset(offset),
            position,
        }
    }

    fn index(entries: &[(i64, u32)]) -> OffsetIndex {
        let mut index = OffsetIndex::new(BASE, 1 << 20);
        for (offset, position) in entries {
            index.append(Offset(*offset), *position).unwrap();
        }
        index
    }

    fn file(index: &OffsetIndex) -> Vec<u8> {
        let mut file = Vec::new();
        index.encode_from(0, &mut file);
        file
    }

    #[test]
    fn lookup_returns_the_entry_at_or_below() {
        let index = index(&[(1009, 4200), (1020, 8400)]);
        assert_eq!(index.lookup(Offset(999)), at(1000, 0));
        assert_eq!(index.lookup(Offset(1008)), at(1000, 0));
        assert_eq!(index.lookup(Offset(1009)), at(1009, 4200));
        assert_eq!(index.lookup(Offset(1019)), at(1009, 4200));
        assert_eq!(index.lookup(Offset(i64::MAX)), at(1020, 8400));
        assert_eq!(index.upper_bound(0), Some(Offset(1009)));
        assert_eq!(index.upper_bound(4200), Some(Offset(1009)));
        assert_eq!(index.upper_bound(4201), Some(Offset(1020)));
        assert_eq!(index.upper_bound(8401), None);
        assert_eq!(index.batch_after(0), Some((4200, Offset(1000))));
        assert_eq!(index.batch_after(4200), Some((8400, Offset(1010))));
        assert_eq!(index.batch_after(8400), None);
    }

    #[test]
    fn entries_are_big_endian_and_relative() {
        assert_eq!(file(&index(&[(1258, 0x0102_0304)])), [0, 0, 1, 2, 1, 2, 3, 4]);
    }

    #[test]
    fn a_full_index_takes_no_entry() {
        let mut index = OffsetIndex::new(BASE, 23);
        index.append(Offset(1001), 1).unwrap();
        assert!(!index.is_full());
        index.append(Offset(1002), 2).unwrap();
        assert!(index.is_full());
        assert_eq!(index.append(Offset(1003), 3), Err(IndexAppendError::Full));
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn offsets_and_positions_beyond_31_bits_do_not_fit() {
        let mut index = index(&[]);
        let last = BASE.plus(i64::from(i32::MAX));
        assert!(index.fits(last));
        assert!(!index.fits(last.plus(1)) && !index.fits(Offset(999)) && !index.fits(Offset(i64::MIN)));
        let overflow = Err(IndexAppendError::OffsetOverflow(last.plus(1)));
        assert_eq!(index.append(last.plus(1), 5), overflow);
        assert_eq!(
            index.append(BASE, 1 << 31),
            Err(IndexAppendError::OffsetOverflow(BASE))
        );
        index.append(last, i32::MAX.cast_unsigned()).unwrap();
        assert_eq!(index.append(last, 1), Err(IndexAppendError::NotIncreasing(last)));
    }

    #[test]
    fn a_preallocated_tail_of_zeroes_is_not_part_of_the_index() {
        let mut bytes = file(&index(&[(1009, 4200), (1020, 8400)]));
        bytes.resize(80, 0);
        let index = OffsetIndex::decode(BASE, 80, &bytes).unwrap();
        assert_eq!((index.len(), index.last()), (2, Some(at(1020, 8400))));
        assert!(OffsetIndex::decode(BASE, 80, &[0; 80]).unwrap().is_empty());
    }

    #[test]
    fn corrupt_files_are_refused() {
        let size = IndexCorruption::Size {
            len: 9,
            entry_bytes: 8,
        };
        assert_eq!(OffsetIndex::decode(BASE, 80, &[1; 9]).unwrap_err(), size);
        let good = file(&index(&[(1009, 4200), (1020, 8400)]));
        for (byte, value, error) in [
            (0, 0x80, IndexCorruption::OutOfRange { entry: 0 }),
            (12, 0xff, IndexCorruption::OutOfRange { entry: 1 }),
            (11, 9, IndexCorruption::NotIncreasing { entry: 1 }),
            (14, 0, IndexCorruption::NotIncreasing { entry: 1 }),
        ] {
            let mut bad = good.clone();
            bad[byte] = value;
            assert_eq!(
                OffsetIndex::decode(BASE, 80, &bad).unwrap_err(),
                error,
                "byte {byte}"
            );
        }
    }

    proptest! {
        #[test]
        fn decoding_never_panics_and_what_it_accepts_is_what_it_writes(bytes in proptest::collection::vec(0u8..4, 0..96)) {
            if let Ok(index) = OffsetIndex::decode(BASE, 1 << 20, &bytes) {
                let written = file(&index);
                prop_assert_eq!(&bytes[..written.len()], &written[..]);
                prop_assert!(bytes[written.len()..].iter().all(|byte| *byte == 0));
            }
        }

        /// Against a plain vector, with the file kept up by incremental writes only.
        #[test]
        fn behaves_like_a_list_and_persists_by_appending(
            steps in proptest::collection::vec((0u8..10, 1i64..50, 1u32..5000), 1..80),
        ) {
            let mut index = OffsetIndex::new(BASE, 1 << 20);
            let mut model: Vec<OffsetPosition> = Vec::new();
            let mut on_disk: Vec<u8> = Vec::new();
            for (what, distance, bytes) in steps {
                let last = model.last().copied().unwrap_or_else(|| at(BASE.0, 0));
                match what {
                    0 => {
                        let cut = last.offset.plus(-distance);
                        model.retain(|entry| entry.offset < cut);
                        index.truncate(cut);
                        on_disk.truncate(index.dirty_from() * OFFSET_ENTRY_BYTES);
                    }
                    1 | 2 => {
                        prop_assert_eq!(on_disk.len(), index.dirty_from() * OFFSET_ENTRY_BYTES);
                        index.encode_from(index.dirty_from(), &mut on_disk);
                        index.mark_persisted(index.len());
                        let reread = OffsetIndex::decode(BASE, 1 << 20, &on_disk).unwrap();
                        prop_assert!(reread.iter().eq(model.iter().copied()));
                        prop_assert_eq!(reread.dirty_from(), model.len());
                    }
                    _ => {
                        let next = at(last.offset.0 + distance, last.position + bytes);
                        index.append(next.offset, next.position).unwrap();
                        model.push(next);
                    }
                }
                let target = BASE.plus(distance * 7);
                let floor = model.iter().rfind(|entry| entry.offset <= target).copied();
                prop_assert_eq!(index.lookup(target), floor.unwrap_or_else(|| at(BASE.0, 0)));
                let bound = model.iter().find(|entry| entry.position >= bytes).map(|entry| entry.offset);
                prop_assert_eq!(index.upper_bound(bytes), bound);
            }
        }
    }
}
