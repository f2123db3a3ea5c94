//! The driver of [`crate::sync_schedule`]: syncs the logs that are acknowledged without a sync when they are due. A log
//! goes on meanwhile; what must not happen is that a block a sync has covered is written again without its bytes being in
//! the journal, so a partly filled last block is marked as for a log that rests (DESIGN §6, invariant 2).

use std::rc::Rc;

use crate::disk::Disk;
use crate::error::StorageError;
use crate::log::cursor::Partial;
use crate::log::tail::Taken;
use crate::log::{Log, LogState};
use crate::notify::join_all;
use crate::segment::file::SegmentFile;
use crate::store::Store;
use crate::sync_schedule::{LossWindows, SyncBounds};
use crate::types::Offset;
use crate::write_behind::FlushTo;

/// Up to so many files are synced one by one, more by one sync of the file system.
const FILES_MAX: usize = 4;

/// How long a sync is put off that needs space the disk does not have, milliseconds.
const NO_SPACE_PAUSE_MS: u64 = 1000;

impl<D: Disk> Store<D> {
    /// Syncs the logs that are due at `now_ms`, milliseconds of a clock that only goes forward. Returns when the next is.
    /// To be called in a loop by one task, which then waits for that time or for [`Self::sync_schedule_moved`].
    ///
    /// # Errors
    /// [`StorageError`] when the store is or goes offline; the loop ends then.
    pub async fn sync_due(&self, now_ms: u64) -> Result<Option<u64>, StorageError> {
        loop {
            self.check_online()?;
            // Also after a sync: what was written meanwhile has no time yet.
            let slots = self.unsynced.borrow_mut().next_due(now_ms);
            if slots.is_empty() {
                let next = self.unsynced.borrow().next_deadline_ms();
                return Ok(next.into_iter().chain(self.seal_due(now_ms)).min());
            }
            match self.sync_logs(&slots).await {
                // They stay due, and their appends go to the journal meanwhile.
                Err(StorageError::NoSpace(_)) => return Ok(Some(now_ms + NO_SPACE_PAUSE_MS)),
                synced => synced?,
            }
        }
    }

    async fn sync_logs(&self, slots: &[u32]) -> Result<(), StorageError> {
        let mut logs: Vec<Rc<Log<D>>> = Vec::with_capacity(slots.len());
        for slot in slots {
            match self.logs.borrow().get(*slot) {
                Some(log) => logs.push(log),
                None => self.unsynced.borrow_mut().forget(*slot),
            }
        }
        for log in &logs {
            log.state.borrow_mut().wants_rest = true;
        }
        let mut files = Vec::with_capacity(logs.len());
        let mut covered = Vec::with_capacity(logs.len());
        for log in &logs {
            let (file, end) = self.rest(log).await?;
            files.extend(file);
            covered.push((log.log_ref.slot, end));
        }
        self.sync_files(files).await?;
        let mut unsynced = self.unsynced.borrow_mut();
        for (slot, end) in covered {
            unsynced.covered(slot, end);
        }
        Ok(())
    }

    /// What commits have acknowledged without a sync counts from `now_ms`, of the clock of [`Self::sync_due`], for bounds and
    /// ages. To be told after each commit; else it counts from the next look of [`Self::sync_due`].
    pub fn note_time(&self, now_ms: u64) {
        self.unsynced.borrow_mut().note_time(now_ms);
    }

    /// What a power loss at `now_ms`, of the same clock, would take of what was acknowledged.
    #[must_use]
    pub fn loss_windows(&self, now_ms: u64) -> LossWindows {
        self.unsynced.borrow().loss_windows(now_ms)
    }

    /// Ends when [`Self::sync_due`] is to be asked again although its time has not come.
    pub async fn sync_schedule_moved(&self) {
        self.syncs_moved.next().await;
    }

    /// Brings the log to rest and marks its last block. Returns the file its writes went to, and up to where they went.
    async fn rest(&self, log: &Rc<Log<D>>) -> Result<(Option<Rc<SegmentFile<D>>>, Offset), StorageError> {
        self.come_to_rest(log).await?;
        // Without an await from here on: what is written next is a matter of the next sync.
        self.unsynced.borrow_mut().begin_sync(log.log_ref.slot);
        let (base, exists, end) = {
            let mut state = log.state.borrow_mut();
            state.wants_rest = false;
            state.protect_last_block();
            let base = state.cursor.segment;
            let exists = state.segment(base).is_some_and(|segment| segment.exists);
            (base, exists, state.durable_end)
        };
        if !exists {
            return Ok((None, end));
        }
        match self.segment_file(log, base).await {
            Ok(file) => Ok((Some(file), end)),
            Err(error) if error.is_not_found() => Ok((None, end)), // the log was deleted meanwhile
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Waits for the writes of the log that are under way, so that its last block can be marked before a sync.
    ///
    /// What came by the journal meanwhile is written first: a marked block is written again only after a commit that carries
    /// its bytes, and if none came, the journal files with those records could never be used again.
    pub(crate) async fn come_to_rest(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.still(log).await?;
        if log.state.borrow().has_journaled() {
            self.flush_log(log, FlushTo::End).await?;
            self.still(log).await?;
        }
        Ok(())
    }

    async fn still(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.moved
            .until(|| {
                let is_still = !log.flushing.get() && log.state.borrow().cursor.is_still();
                (is_still || self.is_offline()).then_some(())
            })
            .await;
        self.check_online()
    }

    async fn sync_files(&self, files: Vec<Rc<SegmentFile<D>>>) -> Result<(), StorageError> {
        let synced = if files.len() > FILES_MAX {
            self.disk.sync_filesystem(&self.dir).await
        } else {
            let syncs = files.iter().map(|file| file.sync());
            join_all(syncs).await.into_iter().collect()
        };
        self.forced_syncs
            .set(self.forced_syncs.get() + files.len() as u64);
        synced.map_err(|error| self.fail(error))
    }

    /// The bounds of a log.
    pub(crate) fn sync_bounds(&self, state: &LogState<D>) -> SyncBounds {
        SyncBounds::of(&state.config, self.options.interval)
    }

    /// The log has written `taken` without a sync, and that counts from now on.
    pub(crate) fn wrote_unsynced(&self, log: &Log<D>, taken: &Taken) {
        let bounds = self.sync_bounds(&log.state.borrow());
        let (slot, records, bytes) = (log.log_ref.slot, taken.records(), taken.bytes());
        let mut unsynced = self.unsynced.borrow_mut();
        if unsynced.wrote(slot, bounds, taken.end, records, bytes) {
            self.syncs_moved.notify();
        }
    }
}

impl<D: Disk> LogState<D> {
    /// Whether a commit has taken records that no write to the segment carries yet: they are in the journal, or will be.
    fn has_journaled(&self) -> bool {
        self.tail
            .planned_end()
            .is_some_and(|end| end > (self.cursor.segment, self.cursor.issued_to()))
    }

    /// The last block on disk is about to be covered by a sync: before it is written again, its bytes go into the journal. What
    /// is in the journal and not in the block yet was put there with them, or is written with the next flush at the latest.
    pub(crate) fn protect_last_block(&mut self) {
        if !self.cursor.residue.is_empty() && self.cursor.partial == Partial::No && !self.has_journaled() {
            self.cursor.partial = Partial::OnDisk;
        }
    }
}
