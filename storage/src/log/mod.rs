//! One partition's log on its shard: the segments, the newest batches, offsets, producers, epochs. Everything here is
//! plain memory and decides without I/O; the store's drivers (commit, write-behind, recovery) do the reading and writing.

pub mod admin;
pub mod append;
pub(crate) mod awaited;
pub mod batch;
pub mod config;
pub(crate) mod cursor;
mod epochs;
pub(crate) mod filed;
mod index_check;
pub(crate) mod mark;
pub mod query;
pub mod read;
pub(crate) mod read_check;
pub mod retain;
pub(crate) mod tail;
pub mod timestamps;
mod window;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::layout::SegmentFile as SegmentFileKind;
use crate::leader_epoch::LeaderEpochs;
use crate::producer_state::ProducerState;
use crate::segment::state::Segment;
use crate::types::{LogId, Offset};
use config::LogConfig;
use cursor::{Partial, WriteCursor};
use tail::Tail;

/// Names an open log of a store; cheap to copy, stale once the log is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogRef {
    pub(crate) slot: u32,
}

/// The ends of a log. All are at hand: asked for with every fetch and append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogOffsets {
    /// The first offset that can be read.
    pub log_start: Offset,
    /// One past the last offset appended (Kafka's LEO).
    pub log_end: Offset,
    /// One past the last offset that is durable as the log's class has it: D of DESIGN §6.
    pub durable_end: Offset,
    /// The first offset of the oldest transaction that is open or not yet decided below the high watermark.
    pub first_unstable: Option<Offset>,
}

/// What a log takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Bytes of all segments.
    pub bytes: u64,
    /// Number of segments.
    pub segments: usize,
    /// Its `retention.bytes`, where that counts.
    pub bytes_max: Option<u64>,
}

/// An open log.
pub(crate) struct Log<D: Disk> {
    pub(crate) id: LogId,
    pub(crate) log_ref: LogRef,
    /// `<topic>-<partition>`: the directory's name.
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    /// The merged checkpoint has it.
    pub(crate) is_recorded: bool,
    /// A topic of the broker's own, which may be written to when the disk is nearly full.
    pub(crate) is_internal: bool,
    /// The metadata log: what it lacks room for, no deletion of a topic gets past.
    pub(crate) is_vital: bool,
    pub(crate) state: RefCell<LogState<D>>,
    /// A writer of the segments (write-behind, recycling) is at work: the next one waits.
    pub(crate) flushing: Cell<bool>,
    /// Somebody writes its index files: the next one waits, and so does whoever closes or deletes it.
    pub(crate) indexing: Cell<bool>,
    /// Cleaned segments are taking the place of others.
    pub(crate) swapping: Cell<bool>,
    /// The log waits in the store's write-behind queue.
    pub(crate) dirty: Cell<bool>,
}

/// The changing part of a log. Memory: about 600 bytes, the active segment's indexes, producers, and the tail.
pub(crate) struct LogState<D: Disk> {
    pub(crate) config: LogConfig,
    pub(crate) log_start: Offset,
    pub(crate) end: Offset,
    pub(crate) durable_end: Offset,
    /// As its leader last said; where the log ended when it was opened.
    pub(crate) high_watermark: Offset,
    /// By base offset; the last is the active one. Never empty.
    pub(crate) segments: VecDeque<Segment<D>>,
    pub(crate) tail: Tail,
    pub(crate) cursor: WriteCursor,
    pub(crate) epochs: LeaderEpochs,
    /// The file of the epochs lacks some, or has some that are gone.
    pub(crate) epochs_dirty: bool,
    pub(crate) producers: ProducerState,
    /// First batches of producers that were refused and will come again; 32 bytes while there are none.
    pub(crate) awaited: awaited::Awaited,
    /// Where recovery may start.
    pub(crate) marks: mark::Marks,
    /// Where the log ended when its small files were complete, if they were since it was opened.
    pub(crate) filed: Option<filed::Filed>,
    /// The journal generation whose file names this log.
    pub(crate) introduced: u64,
    /// Appends count when they are written, without a sync; may outlast the setting until what was written is synced.
    pub(crate) is_unsynced: bool,
    /// A sync waits until no write to the segments is under way: appends go to the journal meanwhile.
    pub(crate) wants_rest: bool,
    /// A structural change (truncate, delete, close) is under way: appends are refused.
    pub(crate) closing: bool,
}

impl<D: Disk> Log<D> {
    /// The path of the segment's `.log` file.
    pub(crate) fn segment_path(&self, base: Offset) -> PathBuf {
        segment_path(&self.dir, base, SegmentFileKind::Log)
    }
}

/// A file of the segment at `base` in `dir`.
pub(crate) fn segment_path(dir: &Path, base: Offset, kind: SegmentFileKind) -> PathBuf {
    dir.join(kind.name(base))
}

impl<D: Disk> LogState<D> {
    /// The active segment.
    pub(crate) fn active(&mut self) -> &mut Segment<D> {
        self.segments.back_mut().expect("a log has an active segment")
    }

    /// The segment with this base offset.
    pub(crate) fn segment(&self, base: Offset) -> Option<&Segment<D>> {
        self.segments
            .binary_search_by_key(&base, |segment| segment.base)
            .ok()
            .and_then(|index| self.segments.get(index))
    }

    /// The segment with this base offset.
    pub(crate) fn segment_mut(&mut self, base: Offset) -> Option<&mut Segment<D>> {
        match self.segments.binary_search_by_key(&base, |segment| segment.base) {
            Ok(index) => self.segments.get_mut(index),
            Err(_) => None,
        }
    }

    /// The segment after the one with this base offset.
    pub(crate) fn segment_after(&self, base: Offset) -> Option<&Segment<D>> {
        let index = self.segments.partition_point(|segment| segment.base <= base);
        self.segments.get(index)
    }

    /// Where the first byte that is not durable lies: segment and position.
    pub(crate) fn durable_position(&self) -> (Offset, u32) {
        match self.tail.find(self.durable_end) {
            Some(batch) => (batch.segment, batch.position),
            None => {
                let active = self.segments.back().expect("a log has an active segment");
                (active.base, active.size)
            }
        }
    }

    /// Durable bytes that are not in the segments.
    pub(crate) fn unwritten_bytes(&self) -> usize {
        self.tail.bytes() - self.tail.staged_bytes()
    }

    /// Acknowledged without a sync.
    pub(crate) const fn unsynced_class(&self) -> bool {
        self.is_unsynced
    }

    /// Whether a commit may write the active part of the log straight to its segment.
    pub(crate) fn direct_ready(&self) -> bool {
        let Some(first) = self.tail.first_staged() else {
            return false;
        };
        !self.wants_rest
            && first.segment == self.cursor.segment
            && self.cursor.partial == Partial::No
            && self.cursor.is_block_free()
            && self
                .segment(first.segment)
                .is_some_and(|segment| segment.file.is_some() && segment.is_named)
    }

    /// Bytes `[from, to)` of a segment, from the residue of the cursor's block and the tail.
    pub(crate) fn gather(&self, segment: Offset, from: u32, to: u32, mut piece: impl FnMut(&[u8])) {
        let residue_end = self.cursor.issued_to();
        let mut at = from;
        if segment == self.cursor.segment && from < residue_end {
            assert!(from >= self.cursor.issued, "bytes below the cursor are on disk");
            let end = residue_end.min(to);
            piece(
                &self.cursor.residue
                    [(from - self.cursor.issued) as usize..(end - self.cursor.issued) as usize],
            );
            at = end;
        }
        if at < to {
            self.tail.pieces(segment, at, to, piece);
        }
    }

    /// The epochs of the records below `end`, which is durable. The epoch that the log starts in is one of them even when
    /// all its records were deleted.
    pub(crate) fn epochs_below(&self, end: Offset) -> LeaderEpochs {
        self.epochs.below(end.max(self.log_start.plus(1)))
    }

    /// The public offsets.
    pub(crate) fn offsets(&self) -> LogOffsets {
        LogOffsets {
            log_start: self.log_start,
            log_end: self.end,
            durable_end: self.durable_end,
            first_unstable: self.producers.first_unstable_offset(self.log_start),
        }
    }

    /// The public size; looks at each segment.
    pub(crate) fn size(&self) -> LogSize {
        LogSize {
            bytes: self.segments.iter().map(|segment| u64::from(segment.size)).sum(),
            segments: self.segments.len(),
            bytes_max: self.config.retention.bytes_max(),
        }
    }
}
