//! A segment of an open log: what is in memory about it.

use std::rc::Rc;

use super::file::SegmentFile;
use super::indexes::SegmentIndexes;
use super::time_index::TimestampOffset;
use crate::disk::Disk;
use crate::types::Offset;

/// One segment. Memory: about 150 bytes, its indexes (12 to 20 bytes per 4 KiB of log while it is active or recently
/// read), and an open file while one is needed.
pub(crate) struct Segment<D: Disk> {
    /// Its first offset: the name of its files.
    pub(crate) base: Offset,
    /// Bytes of batches assigned to it, whether on disk yet or not.
    pub(crate) size: u32,
    /// Present for the active segment and for those rolled but not finished; loaded on demand for others.
    pub(crate) indexes: Option<Box<SegmentIndexes>>,
    /// Its indexes were read from files and nobody has compared them with its batches yet.
    pub(crate) is_believed: bool,
    /// The largest timestamp, and the last offset of the batch that has it.
    pub(crate) largest: TimestampOffset,
    /// The first batch's largest timestamp, from which `segment.ms` counts.
    pub(crate) first_timestamp: Option<i64>,
    /// When it was created (or its file last modified), for batches without timestamps.
    pub(crate) created_ms: i64,
    /// When it was last appended to (or its file last modified): its age when its batches have no timestamps.
    pub(crate) modified_ms: i64,
    /// Whether its file exists.
    pub(crate) exists: bool,
    /// Whether the file's name is durable, so that a synced write to it survives a power loss.
    pub(crate) is_named: bool,
    /// The file, while it is being written or was read lately.
    pub(crate) file: Option<Rc<SegmentFile<D>>>,
    /// Allocated ahead in the file while that is closed, bytes.
    pub(crate) ahead_bytes: u64,
    /// Producer state at its end, taken at the roll, until it is written.
    pub(crate) snapshot_at_roll: Option<Vec<u8>>,
    /// Rolled, and everything of it is on disk: bytes, indexes, snapshot.
    pub(crate) finished: bool,
    /// Of the files that had this base in this run, which: 0, or another number for each that compaction made.
    pub(crate) version: u32,
}

impl<D: Disk> Segment<D> {
    /// A new active segment.
    pub(crate) fn new(base: Offset, index_bytes_max: u32, now_ms: i64) -> Self {
        Self {
            base,
            size: 0,
            indexes: Some(Box::new(SegmentIndexes::new(base, index_bytes_max as usize))),
            is_believed: false,
            largest: TimestampOffset {
                timestamp: super::time_index::NO_TIMESTAMP,
                offset: base,
            },
            first_timestamp: None,
            created_ms: now_ms,
            modified_ms: now_ms,
            exists: false,
            is_named: false,
            file: None,
            ahead_bytes: 0,
            snapshot_at_roll: None,
            finished: false,
            version: 0,
        }
    }
}
