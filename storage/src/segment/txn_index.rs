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
