//! The background work of a store: write-behind oldest first, journal files kept ready and recycled, small files of the
//! logs brought up to date.

use std::rc::Rc;

use crate::checkpoint::envelope;
use crate::disk::{Disk, DiskError};
use crate::error::StorageError;
use crate::journal::fill::FillStep;
use crate::journal::writer::JournalFile;
use crate::log::Log;
use crate::log::config::Durability;
use crate::notify::{join_all, try_join_bounded};
use crate::recovery::record::{DirectoryRecord, LogRecord, shard_path};
use crate::store::Store;
use crate::types::Offset;
use crate::write_behind::FlushTo;

/// Logs whose files are written or cut at a time in the background.
pub(crate) const FLUSHES_MAX: usize = 8;

/// Index entries of an active segment that may be missing from its files at a checkpoint: a look-up after an unclean stop
/// then reads so many times `index.interval.bytes` more.
const INDEX_ENTRIES_DIRTY_MAX: usize = 256;

impl<D: Disk> Store<D> {
    /// One round of background work; waits for work first. To be called in a loop by one task of low priority.
    ///
    /// # Errors
    /// [`StorageError`] when the store is or goes offline; the loop ends then.
    pub async fn housekeeping(&self) -> Result<(), StorageError> {
        self.behind
            .until(|| {
                let work = !self.closed.get() && self.has_background_work();
                (self.is_offline() || work).then_some(())
            })
            .await;
        self.check_online()?;
        match self.background_round().await {
            // It waits for space; whoever looks at the space wakes it.
            Err(StorageError::NoSpace(_)) => Ok(()),
            ended => ended,
        }
    }

    async fn background_round(&self) -> Result<(), StorageError> {
        if self.headroom.wants_look() {
            self.look_at_space().await;
        }
        if self.space.wants_tails() {
            return self.give_back_tails().await;
        }
        if !self.space.may_extend() {
            return self.free_space().await;
        }
        if !self.journal.has_ready() && self.journal_may_grow() {
            self.plan_lock().await;
            let made = self.make_journal_room().await;
            self.plan_unlock();
            return made;
        }
        if self.wants_file_ahead() {
            return self.make_file_ahead().await;
        }
        if !self.unnamed.borrow().is_empty() {
            return self.name_files().await;
        }
        let dirty = self.logs.borrow_mut().next_dirty();
        if let Some(log) = dirty {
            let written = self.write_dirty(&log).await;
            if matches!(written, Err(StorageError::NoSpace(_))) {
                self.logs.borrow_mut().touch(log.log_ref.slot);
            }
            return written;
        }
        if self.purge_one().await? {
            return Ok(());
        }
        if let Some(step) = self.next_fill() {
            return self.fill(step).await;
        }
        self.recycle_oldest().await
    }

    async fn write_dirty(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.settle_class(log).await?;
        self.flush_log(log, FlushTo::FullBlocks).await
    }

    /// What can be done while nothing more can be written: names are synced, what is to be removed is.
    async fn free_space(&self) -> Result<(), StorageError> {
        if self.purge_one().await? {
            self.look_at_space().await;
            return Ok(());
        }
        if !self.unnamed.borrow().is_empty() {
            return self.name_files().await;
        }
        Ok(())
    }

    fn has_background_work(&self) -> bool {
        self.removals.is_due()
            || !self.unnamed.borrow().is_empty()
            || self.headroom.wants_look()
            || self.space.wants_tails()
            || (self.space.may_extend()
                && (self.wants_space() || self.wants_file_ahead() || self.next_fill().is_some()))
    }

    /// The next part of the journal to be written with zeroes, while the journal stays.
    fn next_fill(&self) -> Option<FillStep<D>> {
        let is_wanted = self.options.is_journal_filled && self.disk.keeps_unwritten() && !self.closed.get();
        is_wanted.then(|| self.journal.next_fill()).flatten()
    }

    async fn fill(&self, step: FillStep<D>) -> Result<(), StorageError> {
        let filled = step.run(&self.disk).await;
        self.moved.notify();
        match filled {
            Err(error) if error.is_refused_for_space() => {
                self.journal.stop_fill(); // recording that blocks are written may need one
                Ok(())
            }
            filled => filled.map_err(|error| self.fail(error)),
        }
    }

    fn wants_file_ahead(&self) -> bool {
        self.journal.wants_file_ahead() && self.journal_may_grow()
    }

    /// Creates a journal file while commits go on: it takes several syncs, and commits that find none in reserve wait for it.
    async fn make_file_ahead(&self) -> Result<(), StorageError> {
        self.making_ahead.set(true);
        let created = self.create_journal_file().await;
        self.making_ahead.set(false);
        self.moved.notify();
        match created {
            Err(error) if error.is_refused_for_space() => {
                self.journal.forgo_ahead();
                Ok(())
            }
            created => created.map_err(|error| self.fail(error)),
        }
    }

    async fn create_journal_file(&self) -> Result<(), DiskError> {
        let bytes = self.journal.file_bytes();
        self.shared_space().begin_allocation(bytes);
        let created = self.journal.create_file().await;
        let got = if created.is_ok() { bytes } else { 0 };
        self.shared_space().end_allocation(bytes, got);
        created
    }

    /// Whether there is background work that may need space. With all files in use and the oldest full one still in flight
    /// there is nothing to do but wait.
    pub(crate) fn wants_space(&self) -> bool {
        (!self.journal.has_ready() && self.journal_may_grow())
            || self.journal.oldest_full().is_some()
            || self.logs.borrow().has_dirty()
    }

    /// A commit of the log has ended: it is written behind when that is worth a write, or due for another reason. The
    /// rest waits until its journal file is wanted back.
    pub(crate) fn consider_write_behind(&self, log: &Log<D>) {
        let state = log.state.borrow();
        let rolled = state.segment_after(state.cursor.segment).is_some();
        let worth = state.unwritten_bytes() >= self.options.write_behind_bytes;
        let unopened = state
            .segment(state.cursor.segment)
            .is_some_and(|segment| segment.file.is_none())
            && self.files.borrow().has_room();
        if worth || rolled || unopened {
            self.logs.borrow_mut().touch(log.log_ref.slot);
            self.behind.notify();
        }
    }

    /// A log that was switched to class `fsync`: what it wrote unsynced is synced, then the class counts.
    async fn settle_class(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        {
            let state = log.state.borrow();
            if !state.is_unsynced || state.config.durability != Durability::Fsync {
                return Ok(());
            }
        }
        // Nothing is planned meanwhile, and what was planned is written first.
        self.plan_lock().await;
        let settled = self.sync_at_rest(log).await;
        self.plan_unlock();
        settled
    }

    /// Syncs what the log wrote; nothing of it is planned meanwhile.
    async fn sync_at_rest(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.come_to_rest(log).await?;
        let synced = self.disk.sync_filesystem(&self.dir).await;
        synced.map_err(|error| self.fail(error))?;
        let mut state = log.state.borrow_mut();
        state.is_unsynced = false;
        state.protect_last_block();
        self.unsynced.borrow_mut().forget(log.log_ref.slot);
        Ok(())
    }

    /// Makes sure a prepared journal file is in reserve: creates one, or recycles the oldest. The plan lock is held. Without
    /// space for either it ends in [`StorageError::NoSpace`].
    pub(crate) async fn make_journal_room(&self) -> Result<(), StorageError> {
        while !self.journal.has_ready() {
            self.check_online()?;
            self.space.check()?;
            if self.making_ahead.get() {
                self.moved.next().await;
            } else if self.journal_may_grow() {
                match self.create_journal_file().await {
                    Ok(()) => self.moved.notify(),
                    // Files that have their space already may do.
                    Err(error) if error.is_refused_for_space() && self.journal.oldest_full().is_some() => {
                        self.recycle_oldest().await?;
                    }
                    Err(error) => return Err(self.fail(error)),
                }
            } else if self.journal.oldest_full().is_some() {
                self.recycle_oldest().await?;
            } else {
                self.moved.next().await; // the oldest file still has a commit in flight
            }
        }
        Ok(())
    }

    /// Brings all that the oldest full journal file holds into the segments, makes it durable, and puts the file to use
    /// again. Does nothing when no file is full, or waits for whoever is at it already.
    async fn recycle_oldest(&self) -> Result<(), StorageError> {
        if self.recycling.replace(true) {
            self.moved
                .until(|| (!self.recycling.get() || self.is_offline()).then_some(()))
                .await;
            return self.check_online();
        }
        let result = match self.journal.oldest_full() {
            Some(oldest) => self.recycle(oldest).await,
            None => Ok(()),
        };
        self.recycling.set(false);
        self.moved.notify();
        self.behind.notify();
        result
    }

    async fn recycle(&self, oldest: Rc<JournalFile<D>>) -> Result<(), StorageError> {
        let reach: Vec<_> = oldest
            .reach
            .borrow()
            .iter()
            .map(|(slot, to)| (*slot, *to))
            .collect();
        let flushes = reach.iter().map(|(slot, to)| self.flush_to(*slot, *to));
        try_join_bounded(flushes, FLUSHES_MAX).await?;
        let covered = oldest.last_sequence.get();
        self.checkpoint(INDEX_ENTRIES_DIRTY_MAX, covered).await?;
        let recycled = self.journal.recycle(oldest).await;
        recycled.map_err(|error| self.fail_for_good(error))?;
        self.space_served();
        Ok(())
    }

    /// Makes all that was written durable and records how far that is, for each log. `index_entries_min`: an active
    /// segment's index files are brought up to date when they lack so many entries. `covered_sequence`: the journal's commits
    /// up to this one are in the segments.
    pub(crate) async fn checkpoint(
        &self,
        index_entries_min: usize,
        covered_sequence: u64,
    ) -> Result<(), StorageError> {
        let opened_later = self.logs.borrow().next_slot();
        let logs: Vec<Rc<Log<D>>> = self.logs.borrow().iter().cloned().collect();
        for some in logs.chunks(FLUSHES_MAX) {
            let writes = some
                .iter()
                .map(|log| self.write_active_indexes(log, index_entries_min));
            // All of them are tried: on a full disk those that need no block are written.
            let written: Result<(), StorageError> = join_all(writes).await.into_iter().collect();
            unless_full("indexes", written)?; // the record says how many entries there are
        }
        for log in &logs {
            log.state.borrow_mut().before_sync();
        }
        let synced = self.disk.sync_filesystem(&self.dir).await;
        synced.map_err(|error| self.fail(error))?;
        let mut record = DirectoryRecord {
            run: self.run,
            covered_sequence,
            logs: Vec::with_capacity(logs.len()),
            deleted: self.deleted.borrow().clone(),
        };
        for log in &logs {
            let mut state = log.state.borrow_mut();
            state.after_sync();
            // One that was closed meanwhile is among those below, one that was deleted is not to be missed.
            if self.logs.borrow().get(log.log_ref.slot).is_some() {
                record.logs.push(state.record(log.id, &log.name));
            }
        }
        record.logs.extend(self.closed_logs.borrow().iter().cloned());
        // One that was closed when this began and is open again is in neither list.
        record.logs.extend(self.records_from(opened_later));
        let path = shard_path(&self.dir, self.shard);
        let saved = envelope::save(&self.disk, &path, &record).await;
        saved.map_err(|error| self.fail(error))?;
        self.covered_sequence.set(covered_sequence);
        for log in &logs {
            log.state.borrow_mut().marks.note();
        }
        self.look_at_space().await;
        Ok(())
    }

    /// The records of the open logs from `slot` on.
    fn records_from(&self, slot: u32) -> Vec<LogRecord> {
        let all = self.logs.borrow();
        let later = all.iter().filter(|log| log.log_ref.slot >= slot);
        later
            .map(|log| log.state.borrow().record(log.id, &log.name))
            .collect()
    }

    /// Writes what the log and the others have into their segments, and a checkpoint that says so. It may take a second time
    /// until that covers a log that is appended to. Another that finds no space does not keep this one back.
    pub(crate) async fn note_places(
        &self,
        log: &Rc<Log<D>>,
        others: &[Rc<Log<D>>],
    ) -> Result<(), StorageError> {
        self.flush_log(log, FlushTo::End).await?;
        let others = others
            .iter()
            .map(async |other| match self.flush_log(other, FlushTo::End).await {
                Err(StorageError::NoSpace(_)) => Ok(()),
                flushed => flushed,
            });
        try_join_bounded(others, FLUSHES_MAX).await?;
        // One checkpoint at a time.
        self.moved
            .until(|| (self.is_offline() || !self.recycling.replace(true)).then_some(()))
            .await;
        self.check_online()?;
        let noted = match self.closed.get() {
            true => Ok(()), // the clean stop writes the last one
            false => {
                self.checkpoint(INDEX_ENTRIES_DIRTY_MAX, self.covered_sequence.get())
                    .await
            }
        };
        self.recycling.set(false);
        self.moved.notify();
        noted
    }

    /// Writes the log's segments at least up to this segment and position.
    async fn flush_to(&self, slot: u32, to: (Offset, u32)) -> Result<(), StorageError> {
        let log = self.logs.borrow().get(slot);
        let Some(log) = log else { return Ok(()) };
        // One that is closed or deleted meanwhile needs no journal any more.
        let is_due = || log.state.borrow().cursor.written() < to && self.log(log.log_ref).is_some();
        while is_due() {
            self.flush_log(&log, FlushTo::FullBlocks).await?;
            if is_due() {
                self.flush_log(&log, FlushTo::End).await?;
            }
            if is_due() {
                self.moved.next().await; // a commit is carrying these bytes to the segment right now
            }
            self.check_online()?;
        }
        Ok(())
    }
}

/// Files that the next start makes anew from the checkpoint and the batches need not be written on a full disk.
pub(crate) fn unless_full<T: Default>(
    what: &'static str,
    written: Result<T, StorageError>,
) -> Result<T, StorageError> {
    match written {
        Err(StorageError::NoSpace(error)) => {
            tracing::warn!(%error, what, "not written: the next start does without");
            Ok(T::default())
        }
        written => written,
    }
}
