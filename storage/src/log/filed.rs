//! Whether the small files beside an open log's segments are on disk as a clean stop leaves them: then a stop has nothing to do for
//! the log. With 100,000 logs, most of them idle, everything else would take minutes.

use super::LogState;
use crate::disk::{DirEntry, Disk};
use crate::layout::SegmentFile;
use crate::segment::indexes::SegmentIndexes;
use crate::segment::offset_index::OFFSET_ENTRY_BYTES;
use crate::segment::time_index::TIME_ENTRY_BYTES;
use crate::segment::txn_index::TXN_ENTRY_BYTES;
use crate::types::Offset;

/// Where a log ended when the files were complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filed {
    active: Offset,
    end: Offset,
}

impl<D: Disk> LogState<D> {
    /// Whether the index files of the active segment and the producers' snapshot are those of the log as it is now, and its
    /// segments too.
    pub(crate) fn is_filed(&self) -> bool {
        let active = self.segments.back().expect("a log has an active segment");
        let is_exact = active.ahead_bytes == 0
            && active
                .file
                .as_ref()
                .is_none_or(|file| file.allocated() <= u64::from(active.size));
        is_exact && self.tail.bytes() == 0 && self.filed == Some(self.filed_now())
    }

    /// The log has just been made: it has no such files.
    pub(crate) fn note_empty(&mut self) {
        self.filed = Some(self.filed_now());
    }

    /// The log was opened and `entries` are in its directory. A file that has the length of what it is to hold holds it: index
    /// files are as far as recovery has read them, and a snapshot gets its name when it is whole and what it tells of is synced.
    pub(crate) fn compare_filed(&mut self, entries: &[DirEntry]) {
        let active = self.segments.back().expect("a log has an active segment");
        let size = |kind: SegmentFile, base: Offset| {
            let name = kind.name(base);
            let found = entries.iter().find(|entry| entry.name == name);
            found.map(|entry| entry.size)
        };
        let holds = |kind, entries: usize, entry_bytes: usize, dirty_from: usize| {
            let bytes = (entries * entry_bytes) as u64;
            dirty_from == entries && size(kind, active.base).unwrap_or(0) == bytes
        };
        let are_indexes_filed = |indexes: &SegmentIndexes| {
            let SegmentIndexes {
                offset, time, txn, ..
            } = indexes;
            time.last().timestamp >= indexes.largest_timestamp().timestamp
                && (time.is_empty() || size(SegmentFile::OffsetIndex, active.base).is_some())
                && holds(
                    SegmentFile::OffsetIndex,
                    offset.len(),
                    OFFSET_ENTRY_BYTES,
                    offset.dirty_from(),
                )
                && holds(
                    SegmentFile::TimeIndex,
                    time.len(),
                    TIME_ENTRY_BYTES,
                    time.dirty_from(),
                )
                && holds(
                    SegmentFile::TxnIndex,
                    txn.len(),
                    TXN_ENTRY_BYTES,
                    txn.dirty_from(),
                )
        };
        let is_snapshot_filed = || {
            let found = size(SegmentFile::ProducerSnapshot, self.end);
            let is_whole = |size| size == self.producers.encode_snapshot().len() as u64;
            self.end == Offset::ZERO || found.is_some_and(is_whole)
        };
        let is_filed = active.indexes.as_deref().is_some_and(are_indexes_filed) && is_snapshot_filed();
        self.filed = is_filed.then(|| self.filed_now());
    }

    fn filed_now(&self) -> Filed {
        let active = self.segments.back().expect("a log has an active segment");
        Filed {
            active: active.base,
            end: self.end,
        }
    }
}
