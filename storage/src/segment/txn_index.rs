//! The index of aborted transactions of a segment (`.txnindex`), for read_committed fetches. Pure memory; the file is
//! written by the log, and exists only when there is an entry.
//!
//! File format (Kafka's; `kafka-surface.md` §5.2), entries back to back, big-endian, no header, no checksum:
//!
//! ```text
//! | version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64 |    34 bytes
//! ```
//!
//! A transaction is in the index of the segment that holds its *marker*; its records may lie in earlier segments. So a
//! search starts in the segment of the fetch offset and goes on in the following ones until it is complete.

use bytes::BufMut;

use super::index_error::{IndexAppendError, IndexCorruption};
use crate::types::{Offset, ProducerId};

/// The size of one entry in the file.
pub const TXN_ENTRY_BYTES: usize = 34;

const VERSION: i16 = 0;

/// One aborted transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTxn {
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// The first offset of the transaction in this partition.
    pub first_offset: Offset,
    /// The offset of the abort marker.
    pub last_offset: Offset,
    /// The last stable offset once this marker is below the high watermark. Grows from entry to entry, which is what ends
    /// a search early.
    pub last_stable_offset: Offset,
}

/// Memory: 32 bytes an entry (34 in the file), one per aborted transaction.
#[derive(Debug, Clone)]
pub struct TxnIndex {
    base_offset: Offset,
    entries: Vec<AbortedTxn>,
    /// Entries below this number are in the file.
    persisted: usize,
}

impl TxnIndex {
    /// An empty index of the segment at `base_offset`.
    #[must_use]
    pub const fn new(base_offset: Offset) -> Self {
        Self {
            base_offset,
            entries: Vec::new(),
            persisted: 0,
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`IndexCorruption`] when the length is no multiple of 34, a version is unknown, a marker lies before the segment, or
    /// the markers do not increase.
    pub fn decode(base_offset: Offset, file: &[u8]) -> Result<Self, IndexCorruption> {
        let (chunks, rest) = file.as_chunks::<TXN_ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(IndexCorruption::Size {
                len: file.len(),
                entry_bytes: TXN_ENTRY_BYTES,
            });
        }
        let mut entries: Vec<AbortedTxn> = Vec::with_capacity(chunks.len());
        for (number, chunk) in chunks.iter().enumerate() {
            let (version, txn) = decode_entry(chunk);
            if version != VERSION {
                return Err(IndexCorruption::Version {
                    entry: number,
                    version,
                });
            }
            if txn.last_offset < base_offset || txn.first_offset > txn.last_offset || txn.first_offset.0 < 0 {
                return Err(IndexCorruption::OutOfRange { entry: number });
            }
            if entries
                .last()
                .is_some_and(|previous| txn.last_offset <= previous.last_offset)
            {
                return Err(IndexCorruption::NotIncreasing { entry: number });
            }
            entries.push(txn);
        }
        Ok(Self {
            base_offset,
            persisted: entries.len(),
            entries,
        })
    }

    /// The base offset of the index's segment.
    #[must_use]
    pub const fn base_offset(&self) -> Offset {
        self.base_offset
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

    /// The entries in order.
    #[must_use]
    pub fn entries(&self) -> &[AbortedTxn] {
        &self.entries
    }

    /// Adds a transaction whose abort marker was just appended.
    ///
    /// # Errors
    /// [`IndexAppendError::NotIncreasing`] when its marker does not come after the last one; nothing is added then.
    pub fn append(&mut self, txn: AbortedTxn) -> Result<(), IndexAppendError> {
        let after = self
            .entries
            .last()
            .is_none_or(|previous| txn.last_offset > previous.last_offset);
        if !after || txn.last_offset < self.base_offset {
            return Err(IndexAppendError::NotIncreasing(txn.last_offset));
        }
        self.entries.push(txn);
        Ok(())
    }

    /// Adds to `out` the transactions that overlap the fetched range `[fetch_offset, upper_bound)`. Returns whether the
    /// search is complete; if not it goes on in the next segment's index.
    ///
    /// It is complete at an entry whose last stable offset is at or beyond the bound: whatever was still open then started
    /// at or after the bound.
    #[must_use]
    pub fn collect_aborted(
        &self,
        fetch_offset: Offset,
        upper_bound: Offset,
        out: &mut Vec<AbortedTxn>,
    ) -> bool {
        // Markers grow, so what ended before the fetch offset is a prefix. None of it can complete the search: the last
        // stable offset is never above the marker's next offset.
        let first = self.entries.partition_point(|txn| txn.last_offset < fetch_offset);
        for txn in self.entries.iter().skip(first) {
            if txn.first_offset < upper_bound {
                out.push(*txn);
            }
            if txn.last_stable_offset >= upper_bound {
                return true;
            }
        }
        false
    }

    /// Forgets the transactions whose marker is at or above `offset`.
    pub fn truncate(&mut self, offset: Offset) {
        self.entries
            .truncate(self.entries.partition_point(|txn| txn.last_offset < offset));
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

    /// Writes the entries from number `first` on as the file has them, at file position `first` × 34.
    pub fn encode_from(&self, first: usize, out: &mut impl BufMut) {
        for txn in self.entries.iter().skip(first) {
            out.put_i16(VERSION);
            out.put_i64(txn.producer_id.0);
            out.put_i64(txn.first_offset.0);
            out.put_i64(txn.last_offset.0);
            out.put_i64(txn.last_stable_offset.0);
        }
    }

    /// The file now holds the first `entries` entries.
    pub fn mark_persisted(&mut self, entries: usize) {
        self.persisted = entries.min(self.entries.len());
    }

    /// Memory charged to this index, bytes.
    #[must_use]
    pub const fn heap_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<AbortedTxn>()
    }
}

fn decode_entry(bytes: &[u8; TXN_ENTRY_BYTES]) -> (i16, AbortedTxn) {
    use bytes::Buf;
    let mut rest = bytes.as_slice();
    let version = rest.get_i16();
    let txn = AbortedTxn {
        producer_id: ProducerId(rest.get_i64()),
        first_offset: Offset(rest.get_i64()),
        last_offset: Offset(rest.get_i64()),
        last_stable_offset: Offset(rest.get_i64()),
    };
    (version, txn)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn txn(producer_id: i64, first: i64, last: i64, last_stable: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(producer_id),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last_stable),
        }
    }

    fn index(entries: &[AbortedTxn]) -> TxnIndex {
        let mut index = TxnIndex::new(Offset(100));
        for entry in entries {
            index.append(*entry).unwrap();
        }
        index
    }

    fn collect(index: &TxnIndex, from: i64, to: i64) -> (Vec<i64>, bool) {
        let mut found = Vec::new();
        let complete = index.collect_aborted(Offset(from), Offset(to), &mut found);
        (found.iter().map(|txn| txn.producer_id.0).collect(), complete)
    }

    #[test]
    fn collects_what_overlaps_and_stops_at_a_stable_offset_beyond_the_bound() {
        // Producer 3 stays open from 115 on, so nothing beyond 115 is stable before its marker.
        let index = index(&[
            txn(1, 80, 110, 111),
            txn(2, 112, 118, 115),
            txn(3, 115, 130, 131),
            txn(4, 140, 150, 151),
        ]);
        assert_eq!(collect(&index, 90, 105), (vec![1], true));
        assert_eq!(collect(&index, 110, 111), (vec![1], true));
        assert_eq!(collect(&index, 111, 112), (vec![], true));
        assert_eq!(collect(&index, 111, 116), (vec![2, 3], true));
        assert_eq!(collect(&index, 119, 131), (vec![3], true));
        assert_eq!(collect(&index, 119, 145), (vec![3, 4], true));
        assert_eq!(collect(&index, 145, 151), (vec![4], true));
        assert_eq!(collect(&index, 145, 152), (vec![4], false));
        assert_eq!(collect(&index, 151, 160), (vec![], false));
    }

    #[test]
    fn markers_must_come_in_order_and_lie_in_the_segment() {
        let mut index = index(&[txn(1, 80, 110, 111)]);
        assert_eq!(
            index.append(txn(2, 90, 110, 111)),
            Err(IndexAppendError::NotIncreasing(Offset(110)))
        );
        assert_eq!(
            TxnIndex::new(Offset(100)).append(txn(2, 90, 99, 100)),
            Err(IndexAppendError::NotIncreasing(Offset(99)))
        );
        index.append(txn(2, 90, 111, 112)).unwrap();
        index.mark_persisted(2);
        index.truncate(Offset(111));
        assert_eq!((index.len(), index.dirty_from()), (1, 1));
        index.truncate(Offset(110));
        assert!(index.is_empty());
    }

    #[test]
    fn files_survive_and_corrupt_ones_are_refused() {
        let index = index(&[txn(1, 80, 110, 111), txn(2, 112, 118, 115)]);
        let mut file = Vec::new();
        index.encode_from(0, &mut file);
        assert_eq!(file.len(), 68);
        assert_eq!(
            TxnIndex::decode(Offset(100), &file).unwrap().entries(),
            index.entries()
        );
        let size = IndexCorruption::Size {
            len: 67,
            entry_bytes: 34,
        };
        assert_eq!(TxnIndex::decode(Offset(100), &file[..67]).unwrap_err(), size);
        let before = IndexCorruption::OutOfRange { entry: 0 };
        assert_eq!(TxnIndex::decode(Offset(111), &file).unwrap_err(), before);
        file[35] = 1;
        let version = IndexCorruption::Version { entry: 1, version: 1 };
        assert_eq!(TxnIndex::decode(Offset(100), &file).unwrap_err(), version);
        file[35] = 0;
        file[34 + 25] = 109;
        let order = IndexCorruption::OutOfRange { entry: 1 };
        assert_eq!(TxnIndex::decode(Offset(100), &file).unwrap_err(), order);
        file[34 + 17] = 100;
        let order = IndexCorruption::NotIncreasing { entry: 1 };
        assert_eq!(TxnIndex::decode(Offset(100), &file).unwrap_err(), order);
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in proptest::collection::vec(0u8..2, 0..140)) {
            if let Ok(index) = TxnIndex::decode(Offset(0), &bytes) {
                let mut written = Vec::new();
                index.encode_from(0, &mut written);
                prop_assert_eq!(bytes, written);
            }
        }
    }
}
