//! What a commit needs before it is planned, so that it never meets a full disk: blocks in the segments that it may write to
//! directly, and room in the journal for everything else, also for a commit longer than a journal file ([`crate::space`]).

use std::rc::Rc;

use super::run::commit_bytes;
use crate::disk::{BLOCK_BYTES, Disk, align_up};
use crate::error::StorageError;
use crate::journal::frame::FRAME_HEADER_BYTES;
use crate::log::LogState;
use crate::notify::join_all;
use crate::segment::file::SegmentFile;
use crate::store::Store;

/// Bytes of a frame that names a log, at most.
const OPEN_BYTES_MAX: usize = 20 + 255;

/// Bytes of a log's part of a commit, besides its batches, at most.
const LOG_BYTES_MAX: usize = FRAME_HEADER_BYTES + BLOCK_BYTES + FRAME_HEADER_BYTES + OPEN_BYTES_MAX;

impl<D: Disk> Store<D> {
    /// Every journal file is full of what no segment has, and the disk has no space for it. The file in use takes frames
    /// that are not appends still: with those, logs are deleted and cut, and that is how space comes back.
    pub(super) fn has_room_for_controls(&self) -> bool {
        self.has_room_for(self.control_bytes_max())
    }

    /// As [`Self::has_room_for_controls`], with what waits for the metadata log: a topic is deleted by what is written there.
    pub(super) fn has_room_for_vital(&self) -> bool {
        let vital = self.vital_bytes_max();
        vital > 0 && self.has_room_for(vital + self.control_bytes_max())
    }

    fn has_room_for(&self, frames: usize) -> bool {
        frames > 0 && (self.journal.has_ready() || self.journal.has_room(commit_bytes(frames)))
    }

    fn vital_bytes_max(&self) -> usize {
        let (logs, planner) = (self.logs.borrow(), self.planner.borrow());
        let waiting = planner.waiting(false).map(|(slot, _)| slot);
        waiting
            .filter(|slot| logs.get(*slot).is_some_and(|log| log.is_vital))
            .map(|slot| planner.staged_on(slot) + LOG_BYTES_MAX)
            .sum()
    }

    fn control_bytes_max(&self) -> usize {
        self.controls.borrow().len() * (2 * FRAME_HEADER_BYTES + OPEN_BYTES_MAX)
    }

    /// Everything that the next commit needs. After it no await may come before the commit is planned.
    pub(super) async fn make_room(&self) -> Result<(), StorageError> {
        self.make_journal_room().await?;
        self.extend_segments().await?;
        self.ready_journal().await
    }

    /// Gives the journal file that the next commit goes to blocks for all of it, since one longer than a file extends it, and sees
    /// to it that nothing else is being written there.
    async fn ready_journal(&self) -> Result<(), StorageError> {
        // What is staged meanwhile may make the commit longer.
        loop {
            let bytes = self.commit_bytes_max();
            if let Some((file, end)) = self.journal.short_for(bytes) {
                self.space.check()?;
                let grown = file.grow_to(end).await;
                grown.map_err(|error| self.fail(error))?;
            } else if self.journal.meets_fill(bytes) {
                self.journal.fill_behind(bytes);
                self.moved.next().await;
                self.check_online()?;
            } else {
                return Ok(());
            }
        }
    }

    /// The disk is full: nothing more is filled, and what is under way has come to its end.
    pub(super) async fn let_fill_end(&self) {
        self.journal.stop_fill();
        self.moved
            .until(|| (!self.journal.is_filling()).then_some(()))
            .await;
    }

    /// Bytes of the next commit in the journal, at most.
    fn commit_bytes_max(&self) -> u64 {
        let planner = self.planner.borrow();
        let (logs, batches) = planner.next_at_most(&*self.logs.borrow());
        commit_bytes(batches + logs * LOG_BYTES_MAX + self.control_bytes_max())
    }

    /// Whether a commit of what is staged would only wait for space now.
    pub(crate) fn check_room(&self) -> Result<(), StorageError> {
        if self.has_journal_room() {
            return Ok(());
        }
        self.space.stalled()
    }

    fn has_journal_room(&self) -> bool {
        self.journal.has_ready() && self.journal.short_for(self.commit_bytes_max()).is_none()
    }

    pub(super) async fn wait_for_room(&self) {
        self.moved
            .until(|| {
                let has_room = self.has_journal_room();
                let may_go_on = has_room
                    || self.space.may_extend()
                    || self.has_room_for_vital()
                    || self.has_room_for_controls();
                (may_go_on || self.is_offline()).then_some(())
            })
            .await;
    }

    pub(super) fn has_pressure(&self) -> bool {
        self.unwritten_bytes.get() > self.options.unwritten_bytes_max
    }

    /// Extends the segments that the next commit may write to directly: while it is under way it must not find the disk full,
    /// for the commits behind it wait for it. Where there is no space, the bytes go into the journal, which has its own.
    async fn extend_segments(&self) -> Result<(), StorageError> {
        if self.space.is_stalled() {
            return Ok(());
        }
        let short: Vec<_> = {
            let logs = self.logs.borrow();
            let planner = self.planner.borrow();
            let waiting = planner.waiting(self.has_pressure());
            waiting
                .filter_map(|(slot, is_large)| logs.get(slot)?.state.borrow().direct_short(is_large))
                .collect()
        };
        let grown = join_all(
            short
                .iter()
                .map(|(file, end, limit)| file.allocate_for(*end, *limit)),
        )
        .await;
        for error in grown.into_iter().filter_map(Result::err) {
            match self.fail(error) {
                StorageError::NoSpace(_) => {}
                error => return Err(error),
            }
        }
        Ok(())
    }
}

impl<D: Disk> LogState<D> {
    /// The file of the active segment, the end that it lacks blocks for and what it can hold, if a commit could otherwise write
    /// everything that waits straight to it.
    fn direct_short(&self, is_large: bool) -> Option<(Rc<SegmentFile<D>>, u64, u64)> {
        if !(is_large || self.unsynced_class()) || !self.direct_ready() {
            return None;
        }
        let (base, size) = self.segment(self.cursor.segment).map(|s| (s.base, s.size))?;
        let file = self.unallocated(base, size)?;
        Some((file, align_up(u64::from(size)), self.segment_bytes_max()))
    }
}
