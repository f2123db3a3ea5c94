//! A cleaned segment takes the place of those it was made from; at every point in between a crash leaves the old ones or the
//! new one, never both nor neither.
//!
//! ```text
//!   A.log.cleaned   whole and synced
//!   A.index.swap    also A.timeindex and, if the old or the new one has entries, A.txnindex: written, synced
//!   A.log.swap      renamed, synced: from here on the new one counts, and readers get it
//!                   files of the other old segments removed
//!   A.index         renamed, as the other indexes, and synced with the removals
//!   A.log           renamed, synced
//! ```
//!
//! The last batch of what is rewritten always stays, if only as a header. So the offsets of `A.log.swap` tell which segments it
//! stands for: those with a base from A to its end. [`Store::finish_swaps`] goes on from there after a crash.

use std::borrow::Cow;
use std::path::Path;
use std::rc::Rc;

use super::cleaned::CleanedSegment;
use crate::checkpoint::{replace, temporary_path};
use crate::disk::{DirEntry, Disk, DiskError, DiskFile, OpenMode};
use crate::error::{Damage, StorageError};
use crate::layout::{FileMark, FileName, SegmentFile as SegmentFileKind};
use crate::log::{Log, LogState, segment_path};
use crate::recovery::scan::scan_segment;
use crate::removal::remove_segment;
use crate::segment::state::Segment;
use crate::store::Store;
use crate::types::Offset;
use crate::write_behind::index_contents;

/// A segment as a pass saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Old {
    pub(super) base: Offset,
    pub(super) size: u32,
    pub(super) version: u32,
}

/// Steps of a swap, for tests that leave one out.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapStep {
    /// The sync of the new file before it counts.
    SyncNew,
    /// The removal of the segments it stands for.
    RemoveOld,
}

impl<D: Disk> Store<D> {
    /// Puts `new` in the place of `old`, neighbouring segments of the log. Returns whether it did: not when they are not there
    /// any more as the pass saw them.
    ///
    /// # Errors
    /// The disk's, for which the store is offline: what it holds is not known then. But where there was no space for the new
    /// indexes, all is as it was.
    pub(super) async fn swap(
        &self,
        log: &Rc<Log<D>>,
        old: &[Old],
        new: CleanedSegment<D>,
    ) -> Result<bool, StorageError> {
        self.flush_lock(log).await;
        log.swapping.set(true);
        let is_there = self.log(log.log_ref).is_some() && !self.closed.get() && log.state.borrow().has(old);
        let swapped = if is_there && self.check_online().is_ok() {
            self.swap_locked(log, old, new).await.map(|()| true)
        } else {
            new.discard(self).await;
            Ok(false)
        };
        log.swapping.set(false);
        self.flush_unlock(log);
        swapped
    }

    /// Waits until no segments of the log are being swapped. What is done to them before the next await is safe then.
    pub(crate) async fn until_swapped(&self, log: &Log<D>) {
        self.moved.until(|| (!log.swapping.get()).then_some(())).await;
    }

    async fn swap_locked(
        &self,
        log: &Rc<Log<D>>,
        old: &[Old],
        new: CleanedSegment<D>,
    ) -> Result<(), StorageError> {
        let had_aborted = log.state.borrow().has_aborted(new.base);
        let mut files = index_contents(&new.indexes);
        if had_aborted && new.indexes.txn.is_empty() {
            files.push((SegmentFileKind::TxnIndex, Vec::new()));
        }
        if let Err(error) = self.name_swap(log, &new, &files).await {
            let error = self.fail(error);
            if matches!(error, StorageError::NoSpace(_)) {
                for (kind, _) in files {
                    let path = log.dir.join(kind.marked_name(new.base, FileMark::Swap));
                    // What stays of them takes space until the next pass or start.
                    self.disk.remove_file(&temporary_path(&path)).await.ok();
                    self.disk.remove_file(&path).await.ok();
                }
                new.discard(self).await;
            }
            return Err(error);
        }
        // Held so that the file is not closed, and opened again by a name that is not its own yet.
        let file = Rc::clone(&new.file);
        let base = new.base;
        self.take_place(log, old, new);
        let kinds = files.iter().map(|(kind, _)| *kind);
        let ended = self.end_swap(log, base, old, kinds).await;
        // By its name the segment is the old one still, whatever the reason.
        ended.map_err(|error| self.fail_for_good(error))?;
        drop(file);
        Ok(())
    }

    /// Writes the indexes of the new segment and gives it the name with which it counts. Until that is done nothing has happened.
    async fn name_swap(
        &self,
        log: &Log<D>,
        new: &CleanedSegment<D>,
        files: &[(SegmentFileKind, Vec<u8>)],
    ) -> Result<(), DiskError> {
        let marked = |kind: SegmentFileKind| log.dir.join(kind.marked_name(new.base, FileMark::Swap));
        for (kind, bytes) in files {
            replace(&self.disk, &marked(*kind), bytes).await?;
        }
        self.disk.sync_dir(&log.dir).await?;
        self.disk.rename(&new.path, &marked(SegmentFileKind::Log)).await?;
        self.disk.sync_dir(&log.dir).await
    }

    /// The segment at `base` counts, with its indexes of these `kinds`: the old ones go, and all get their names.
    async fn end_swap(
        &self,
        log: &Log<D>,
        base: Offset,
        old: &[Old],
        kinds: impl Iterator<Item = SegmentFileKind>,
    ) -> Result<(), DiskError> {
        let marked = |kind: SegmentFileKind| log.dir.join(kind.marked_name(base, FileMark::Swap));
        for gone in old.get(1..).unwrap_or_default() {
            if self.does(SwapStep::RemoveOld) {
                remove_segment(&self.disk, &log.dir, gone.base).await?;
            }
        }
        for kind in kinds {
            let path = segment_path(&log.dir, base, kind);
            self.disk.rename(&marked(kind), &path).await?;
        }
        // Of both together: as long as the segment has its `.swap`, recovery does either once more. File systems that journal the
        // changes of a directory in order do without this sync (so does the simulated disk); it is for the others.
        self.disk.sync_dir(&log.dir).await?;
        let swap = marked(SegmentFileKind::Log);
        self.disk.rename(&swap, &log.segment_path(base)).await?;
        self.disk.sync_dir(&log.dir).await
    }

    /// From here on readers get the new segment. Who reads from an old file goes on with it, and then looks again
    /// ([`LogState::is_replaced`]).
    fn take_place(&self, log: &Rc<Log<D>>, old: &[Old], new: CleanedSegment<D>) {
        let slot = log.log_ref.slot;
        let mut state = log.state.borrow_mut();
        let at = state.number_of(new.base).expect("it is there, as was just seen");
        let (mut created_ms, mut modified_ms) = (0, 0);
        let mut ahead_bytes = 0;
        for _ in old {
            let gone = state.segments.remove(at).expect("they are neighbours");
            created_ms = created_ms.max(gone.created_ms);
            modified_ms = modified_ms.max(gone.modified_ms);
            ahead_bytes += gone.ahead_bytes;
        }
        let end = state.segments.get(at).map_or(state.end, |next| next.base);
        let base = new.base;
        let segment = Segment {
            base,
            size: new.size,
            largest: new.indexes.largest_timestamp(),
            indexes: Some(Box::new(new.indexes)),
            is_believed: false,
            first_timestamp: new.first_timestamp,
            created_ms,
            modified_ms,
            exists: true,
            is_named: true,
            file: Some(new.file),
            ahead_bytes: 0,
            snapshot_at_roll: None,
            finished: true,
            version: self.cleaner.next_version(),
        };
        state.segments.insert(at, segment);
        drop(state);
        self.headroom.give_back(ahead_bytes);
        // What was cached of aborted transactions must not outlast their entries in the index.
        self.cache.borrow_mut().forget_before(slot, end);
        self.ahead.borrow_mut().forget(slot);
        self.ahead_moved.notify();
        self.opened(log.log_ref, base);
    }

    /// Recovery: the entries of a log's directory after [`Self::finish_swaps`].
    ///
    /// # Errors
    /// As that one.
    pub(crate) async fn without_swaps<'e>(
        &self,
        dir: &Path,
        entries: &'e [DirEntry],
    ) -> Result<Cow<'e, [DirEntry]>, StorageError> {
        match self.finish_swaps(dir, entries).await? {
            true => Ok(Cow::Owned(self.disk.list(dir).await?)),
            false => Ok(Cow::Borrowed(entries)),
        }
    }

    /// Recovery: brings swaps that a crash interrupted to their end and removes what interrupted passes left. Returns whether
    /// the directory has changed.
    ///
    /// # Errors
    /// Damage in a segment that was about to take its place; the disk's errors.
    async fn finish_swaps(&self, dir: &Path, entries: &[DirEntry]) -> Result<bool, StorageError> {
        let mut has_changed = false;
        let mut swaps = Vec::new();
        let mut indexes = Vec::new();
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            match FileName::parse(&entry.name) {
                FileName::Segment {
                    mark: Some(FileMark::Cleaned),
                    ..
                } => {
                    self.disk.remove_file(&dir.join(&entry.name)).await?;
                    has_changed = true;
                }
                FileName::Segment {
                    file,
                    base,
                    mark: Some(FileMark::Swap),
                } => match file {
                    SegmentFileKind::Log => swaps.push((base, entry)),
                    _ => indexes.push((file, base, entry)),
                },
                _ => {}
            }
        }
        for (base, entry) in &swaps {
            self.finish_swap(dir, *base, entry, entries).await?;
            has_changed = true;
        }
        for (_, base, entry) in indexes {
            // Of a segment that does not count: the pass was interrupted before.
            if swaps.iter().all(|(done, _)| *done != base) {
                self.disk.remove_file(&dir.join(&entry.name)).await?;
                has_changed = true;
            }
        }
        Ok(has_changed)
    }

    async fn finish_swap(
        &self,
        dir: &Path,
        base: Offset,
        entry: &DirEntry,
        entries: &[DirEntry],
    ) -> Result<(), StorageError> {
        let swap = dir.join(&entry.name);
        let size = u32::try_from(entry.size).unwrap_or(u32::MAX);
        let file = self.disk.open(&swap, OpenMode::Read).await?;
        let end = scan_segment(&file, 0, base, size, |_, _, _| {}).await?;
        file.close().await?;
        if let Some(fault) = end.fault {
            return Err(Damage {
                path: swap,
                position: u64::from(end.position),
                first_offset: end.offset,
                end_offset: Offset::NONE,
                expected: "a cleaned segment, which was synced before it got its name".to_owned(),
                found: fault.to_string(),
            }
            .into());
        }
        let mut others: Vec<Offset> = entries
            .iter()
            .filter_map(|entry| match FileName::parse(&entry.name) {
                FileName::Segment {
                    base: found,
                    mark: None,
                    file,
                } if found > base && found < end.offset && file != SegmentFileKind::ProducerSnapshot => {
                    Some(found)
                }
                _ => None,
            })
            .collect();
        others.sort_unstable();
        others.dedup();
        for other in others {
            remove_segment(&self.disk, dir, other).await?;
        }
        for kind in INDEX_KINDS {
            let name = kind.marked_name(base, FileMark::Swap);
            if entries.iter().any(|entry| entry.name == name) {
                self.disk
                    .rename(&dir.join(name), &segment_path(dir, base, kind))
                    .await?;
            }
        }
        self.disk.sync_dir(dir).await?;
        self.disk
            .rename(&swap, &segment_path(dir, base, SegmentFileKind::Log))
            .await?;
        self.disk.sync_dir(dir).await?;
        tracing::info!(dir = %dir.display(), %base, end = %end.offset, "an interrupted compaction was finished");
        Ok(())
    }

    /// Plants a bug: this step is left out of every swap.
    #[doc(hidden)]
    pub fn leave_out_of_swaps(&self, step: Option<SwapStep>) {
        self.cleaner.left_out.set(step);
    }

    pub(super) fn does(&self, step: SwapStep) -> bool {
        self.cleaner.left_out.get() != Some(step)
    }
}

/// The files of a cleaned segment beside its batches.
const INDEX_KINDS: [SegmentFileKind; 3] = [
    SegmentFileKind::OffsetIndex,
    SegmentFileKind::TimeIndex,
    SegmentFileKind::TxnIndex,
];

impl<D: Disk> LogState<D> {
    /// Whether the log still has these segments, one behind the other, as they were.
    pub(super) fn has(&self, old: &[Old]) -> bool {
        let first = old.first().and_then(|first| self.number_of(first.base));
        let Some(first) = first.filter(|_| !self.closing) else {
            return false;
        };
        old.iter().enumerate().all(|(number, old)| {
            self.segments.get(first + number).is_some_and(|segment| {
                segment.finished
                    && (segment.base, segment.size, segment.version) == (old.base, old.size, old.version)
            })
        })
    }

    /// Whether a read of `offset` that began in the segment at `base` with this version is to begin anew: another file is in
    /// its place. One that was removed from the log's beginning is not replaced.
    pub(crate) fn is_replaced(&self, base: Offset, version: u32, offset: Offset) -> bool {
        let now = self.segment(base).map(|segment| segment.version);
        now != Some(version) && offset >= self.log_start
    }

    fn number_of(&self, base: Offset) -> Option<usize> {
        self.segments
            .binary_search_by_key(&base, |segment| segment.base)
            .ok()
    }

    fn has_aborted(&self, base: Offset) -> bool {
        self.segment(base)
            .and_then(|segment| segment.indexes.as_ref())
            .is_some_and(|indexes| !indexes.txn.is_empty())
    }
}
