//! Changes to a log that are not appends: settings, log start, closing, deleting.

use std::rc::Rc;

use super::config::{Durability, LogConfig};
use super::{Log, LogRef, LogState};
use crate::commit::run::ControlFrame;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::journal::FrameKind;
use crate::layout::{DirMark, PartitionName};
use crate::removal::Doomed;
use crate::retention::RetentionReason;
use crate::store::Store;
use crate::types::Offset;

impl<D: Disk> Store<D> {
    /// New settings for an open log, at once. A change to durability class `fsync` takes effect when what the log wrote
    /// without syncing is synced, in the next round of [`Self::housekeeping`].
    pub fn set_config(&self, log: LogRef, config: LogConfig) {
        let Some(entry) = self.log(log) else { return };
        let mut state = entry.state.borrow_mut();
        let becomes_unsynced = config.durability != Durability::Fsync && !state.is_unsynced;
        state.is_unsynced |= becomes_unsynced;
        let must_sync = state.is_unsynced && config.durability == Durability::Fsync;
        state.config = config.drawn(entry.id);
        let bounds = self.sync_bounds(&state);
        let offset = state.log_start;
        drop(state);
        if becomes_unsynced {
            // From here on batches may be in the segment alone. The replay must know before the first of them counts, or it
            // cuts the segment where the frames of the synced class end; any frame tells it, and this one says nothing new.
            self.stage_control(ControlFrame {
                slot: log.slot,
                kind: FrameKind::Start,
                offset,
            });
        }
        if self.unsynced.borrow_mut().rebound(log.slot, bounds) {
            self.syncs_moved.notify();
        }
        if must_sync {
            self.logs.borrow_mut().touch(log.slot);
            self.behind.notify();
        }
    }

    /// Moves the log's start up to `new_start`, which is not above the durable end; records below it are gone for readers
    /// at once, and for good when this returns. Returns the log start, which is higher if it was higher before.
    ///
    /// # Errors
    /// [`StorageError::OffsetOutOfRange`] above the durable end; the store offline.
    pub async fn delete_records(&self, log: LogRef, new_start: Offset) -> Result<Offset, StorageError> {
        self.check_online()?;
        let entry = self.log(log).ok_or(StorageError::NoSuchLog)?;
        let start = {
            let mut state = entry.state.borrow_mut();
            if state.closing {
                return Err(StorageError::NoSuchLog);
            }
            if new_start > state.durable_end {
                return Err(StorageError::OffsetOutOfRange {
                    wanted: new_start,
                    start: state.log_start,
                    end: state.durable_end,
                });
            }
            state.move_start(new_start);
            state.log_start
        };
        self.settle_start(&entry, start).await?;
        self.remove_segments_below(&entry, start, |_| RetentionReason::LogStart)
            .await?;
        Ok(start)
    }

    /// Makes it durable that the log, whose start is there or above for readers, starts at `start`.
    pub(crate) async fn settle_start(&self, log: &Rc<Log<D>>, start: Offset) -> Result<(), StorageError> {
        self.commit_control(ControlFrame {
            slot: log.log_ref.slot,
            kind: FrameKind::Start,
            offset: start,
        })
        .await?;
        // Only now: the epochs may be written at any time, and a crash before may have left the start where it was.
        let mut state = log.state.borrow_mut();
        state.epochs_dirty |= state.epochs.truncate_from_start(start);
        Ok(())
    }

    /// Closes a log: what is staged is committed, everything goes into its segments and is synced, and the journal lets go
    /// of it, so that another shard may open it.
    ///
    /// # Errors
    /// [`StorageError`]; the log stays as durable as it was.
    pub async fn close_log(&self, log: LogRef) -> Result<(), StorageError> {
        let entry = self.log(log).ok_or(StorageError::NoSuchLog)?;
        entry.state.borrow_mut().closing = true;
        self.wait_committed(&entry).await?;
        let written = self.close_files(&entry).await?;
        self.write_active_indexes(&entry, 0).await?;
        let synced = self.disk.sync_filesystem(&self.dir).await;
        synced.map_err(|error| self.fail(error))?;
        let written = written.into_iter().collect();
        self.name_closing_files(&[Rc::clone(&entry)], written).await?;
        let record = entry.state.borrow().record(entry.id, &entry.name);
        self.closed_logs.borrow_mut().push(record);
        self.retire(&entry, FrameKind::Retire).await
    }

    /// Deletes a log: it is gone for readers and writers at once; its directory is renamed to `…-delete` when this
    /// returns, and removed when `file.delete.delay.ms` is over.
    ///
    /// # Errors
    /// [`StorageError`] from the disk.
    pub async fn delete_log(&self, log: LogRef) -> Result<(), StorageError> {
        let entry = self.log(log).ok_or(StorageError::NoSuchLog)?;
        let withdrawn = {
            let mut state = entry.state.borrow_mut();
            state.closing = true;
            let first = state.tail.first_staged();
            match first.map(|batch| (batch.base, batch.segment, batch.position)) {
                Some((base, segment, position)) => {
                    let staged = state.tail.truncate(base);
                    state.end = base;
                    state.forget_from(segment, position);
                    staged
                }
                None => 0,
            }
        };
        self.planner.borrow_mut().forget(log.slot, withdrawn);
        self.unwritten_bytes.set(self.unwritten_bytes.get() - withdrawn);
        self.wait_committed(&entry).await?;
        self.retire(&entry, FrameKind::Delete).await?;
        if entry.is_recorded {
            let id = (entry.id.topic.0, entry.id.partition);
            self.deleted.borrow_mut().push(id);
        }
        self.forget_cleaned(&entry.name, Some(log.slot)).await?;
        let name = PartitionName::parse(&entry.name).map_or_else(
            || format!("{}-delete", entry.name),
            |name| name.marked(&self.unique(&entry), DirMark::Delete),
        );
        let doomed = self.dir.join(name);
        let (bytes, delay_ms) = {
            let state = entry.state.borrow();
            (state.size().bytes, state.config.file_delete_delay_ms)
        };
        match self.disk.rename(&entry.dir, &doomed).await {
            // The directory of directories cannot take the longer name; what is to be deleted goes all the sooner.
            Err(error) if error.is_refused_for_space() => {
                let removed = self.disk.remove_dir_all(&entry.dir).await;
                removed.map_err(|error| self.fail(error))?;
            }
            renamed => renamed.map_err(|error| self.fail(error))?,
        }
        let synced = self.disk.sync_dir(&self.dir).await;
        synced.map_err(|error| self.fail(error))?;
        self.doom(Doomed::Directory(doomed), bytes, delay_ms);
        Ok(())
    }

    /// 32 hexadecimal digits that nothing else has that was renamed to be removed, also in earlier runs: a log that moves from
    /// one log directory to another and back leaves several.
    pub(crate) fn unique(&self, log: &Log<D>) -> String {
        let here = u128::from(self.run) << 48 | u128::from(self.shard) << 32 | u128::from(log.log_ref.slot);
        format!("{:032x}", u128::from_be_bytes(log.id.topic.0) ^ here)
    }

    /// Waits until no commit holds batches of the log and no write to its segments is under way.
    pub(crate) async fn wait_committed(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.moved
            .until(|| {
                let state = log.state.borrow();
                let idle = state.tail.staged_bytes() == 0
                    && !state.tail.is_committing(state.durable_end)
                    && state.cursor.is_still()
                    && !log.flushing.get();
                (idle || self.is_offline()).then_some(())
            })
            .await;
        self.check_online()
    }

    /// The journal forgets the log, then the store does.
    async fn retire(&self, log: &Rc<Log<D>>, kind: FrameKind) -> Result<(), StorageError> {
        // Not in the call below: the borrow would last as long as its await, and the commit needs the state.
        let end = log.state.borrow().end;
        self.commit_control(ControlFrame {
            slot: log.log_ref.slot,
            kind,
            offset: end,
        })
        .await?;
        // A flush may have begun meanwhile; it ends before the files move.
        self.moved
            .until(|| (!log.flushing.get() || self.is_offline()).then_some(()))
            .await;
        self.logs.borrow_mut().remove(log.log_ref.slot);
        self.unsynced.borrow_mut().forget(log.log_ref.slot);
        self.ahead.borrow_mut().forget(log.log_ref.slot);
        self.cache.borrow_mut().invalidate(log.log_ref.slot);
        let (rest, ahead_bytes) = {
            let state = log.state.borrow();
            let closed = state.segments.iter().map(|segment| segment.ahead_bytes).sum();
            (state.tail.bytes(), closed)
        };
        self.headroom.give_back(ahead_bytes);
        self.unwritten_bytes.set(self.unwritten_bytes.get() - rest);
        self.moved.notify(); // whoever waited for it to be written need not any more
        // Nor may its index files be written in a directory that is no longer its own.
        self.moved
            .until(|| (!log.indexing.get() || self.is_offline()).then_some(()))
            .await;
        Ok(())
    }

    /// Puts a frame into the next commit and waits until that is durable.
    pub(crate) async fn commit_control(&self, frame: ControlFrame) -> Result<(), StorageError> {
        self.check_online()?;
        let number = self.stage_control(frame);
        self.moved
            .until(|| (self.controls_durable.get() >= number || self.is_offline()).then_some(()))
            .await;
        self.check_online()
    }

    /// Puts a frame into the next commit. Returns its number.
    pub(crate) fn stage_control(&self, frame: ControlFrame) -> u64 {
        let number = self.controls_staged.get() + 1;
        self.controls_staged.set(number);
        self.controls.borrow_mut().push_back(frame);
        self.staged.notify();
        self.moved.notify(); // a commit may wait for space, which this needs none of
        number
    }
}

impl<D: Disk> LogState<D> {
    /// Readers find nothing below `start` any more; never goes back.
    pub(crate) fn move_start(&mut self, start: Offset) {
        if start > self.log_start {
            self.log_start = start;
            self.producers.on_log_start(start);
        }
    }

    /// The batches from `position` of `segment` on are withdrawn: what is left to write ends there. The segments themselves
    /// stay, a writer may be at them.
    fn forget_from(&mut self, segment: Offset, position: u32) {
        for later in self.segments.iter_mut().filter(|s| s.base > segment) {
            later.size = 0;
        }
        if let Some(cut) = self.segment_mut(segment) {
            cut.size = position;
        }
    }
}
