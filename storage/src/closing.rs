//! The clean stop of a store, and the files of a log that is closed: everything goes into the segments, files get their true size,
//! indexes, producers and epochs are written. For a log that did not change since it was opened nothing is done.

use std::path::PathBuf;
use std::rc::Rc;

use crate::checkpoint::{temporary_path, write_plain};
use crate::disk::{Disk, DiskError, DiskFile};
use crate::error::StorageError;
use crate::housekeeping::unless_full;
use crate::layout::{LEADER_EPOCH_FILE, SegmentFile as SegmentFileKind};
use crate::log::{Log, segment_path};
use crate::notify::try_join_bounded;
use crate::store::Store;
use crate::types::Offset;
use crate::write_behind::FlushTo;

/// Logs closed at a time.
const CLOSING_AT_ONCE: usize = 32;

impl<D: Disk> Store<D> {
    /// A clean stop: everything staged is committed, everything durable is in its segment, files are cut to size, indexes
    /// and snapshots written, the journal removed. The drivers must have ended or be about to; appends fail from now on.
    ///
    /// # Errors
    /// [`StorageError`]; what was acknowledged is in the journal then.
    pub async fn close(&self) -> Result<(), StorageError> {
        self.closed.set(true);
        let logs: Vec<Rc<Log<D>>> = self.logs.borrow().iter().cloned().collect();
        for log in &logs {
            log.state.borrow_mut().closing = true;
        }
        while !self.planner.borrow().is_idle() {
            // What waits for space was acknowledged to nobody; the journal keeps the rest for the next start.
            self.check_room()?;
            self.commit().await?;
        }
        self.moved
            .until(|| {
                let idle = self.commits_ended.get() == self.commits_started.get();
                (idle || self.is_offline()).then_some(())
            })
            .await;
        self.plan_lock().await; // for good: nothing is committed any more
        self.moved
            .until(|| {
                let is_quiet =
                    !self.recycling.get() && !self.making_ahead.get() && !self.journal.is_filling();
                (is_quiet || self.is_offline()).then_some(())
            })
            .await;
        // First what needs no space and gives some, then what the next start cannot do without.
        self.headroom.stop();
        self.give_back_tails().await?;
        let changed: Vec<_> = logs.iter().filter(|log| !log.state.borrow().is_filed()).collect();
        let resting = changed.iter().map(|log| self.bring_to_rest(log));
        try_join_bounded(resting, CLOSING_AT_ONCE).await?;
        let writing = changed
            .iter()
            .map(async |log| unless_full("the producers of a log", self.write_end_snapshot(log).await));
        let written = try_join_bounded(writing, CLOSING_AT_ONCE).await?;
        self.checkpoint(0, self.journal.durable_sequence()).await?;
        let written = written.into_iter().flatten().collect();
        self.name_closing_files(&logs, written).await?;
        self.journal.remove().await.map_err(|error| self.fail(error))
    }

    /// Brings one log to rest: all bytes in the segments, the active one cut to size, its producers written. The caller
    /// writes the active indexes, syncs, and then gives [`Self::name_closing_files`] what this returns.
    pub(crate) async fn close_files(&self, log: &Rc<Log<D>>) -> Result<Option<Unnamed>, StorageError> {
        if log.state.borrow().is_filed() {
            return Ok(None);
        }
        self.bring_to_rest(log).await?;
        self.write_end_snapshot(log).await
    }

    /// All bytes go into the segments, and the active one is cut to size.
    async fn bring_to_rest(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.flush_log(log, FlushTo::End).await?;
        let (base, size) = {
            let mut state = log.state.borrow_mut();
            assert_eq!(
                state.unwritten_bytes(),
                0,
                "a closed log is wholly in its segments"
            );
            let active = state.active();
            if let Some(indexes) = active.indexes.as_mut() {
                indexes.close().expect("a closing time index entry always fits");
            }
            let is_longer = active.file.is_some() || active.ahead_bytes > 0;
            let base = is_longer.then_some(active.base);
            (base, active.size)
        };
        let Some(base) = base else { return Ok(()) };
        let cut = async {
            let file = self.segment_file(log, base).await?;
            file.shorten(u64::from(size)).await
        };
        cut.await.map_err(|error: DiskError| self.fail(error))
    }

    /// Writes the producers of a log at rest.
    async fn write_end_snapshot(&self, log: &Rc<Log<D>>) -> Result<Option<Unnamed>, StorageError> {
        let (end, snapshot) = {
            let state = log.state.borrow();
            if state.end == Offset::ZERO {
                return Ok(None); // there was never anybody
            }
            (state.end, state.producers.encode_snapshot())
        };
        let path = segment_path(&log.dir, end, SegmentFileKind::ProducerSnapshot);
        let written = Unnamed::write(&self.disk, path, &snapshot).await;
        written.map(Some).map_err(|error| self.fail(error))
    }

    /// What follows the sync of logs that are at rest: the epochs of their records are written, since all of those are synced now,
    /// and then these files and what [`Self::close_files`] wrote get their names. A stop that is cut off leaves files that are
    /// whole, or temporary ones.
    pub(crate) async fn name_closing_files(
        &self,
        logs: &[Rc<Log<D>>],
        mut written: Vec<Unnamed>,
    ) -> Result<(), StorageError> {
        let changed = logs.iter().filter_map(|log| {
            let mut state = log.state.borrow_mut();
            if state.end == Offset::ZERO {
                return None; // no record has an epoch; the checkpoint tells of the leader's
            }
            let end = state.durable_end;
            Some((log, state.changed_epochs(end)?))
        });
        let writing = changed.map(async |(log, text)| {
            let file = Unnamed::write(&self.disk, log.dir.join(LEADER_EPOCH_FILE), text.as_bytes()).await;
            let file = file.map(Some).map_err(|error| {
                log.state.borrow_mut().epochs_dirty = true;
                self.fail(error)
            });
            unless_full("the leader epochs of a log", file)
        });
        let epochs = try_join_bounded(writing, CLOSING_AT_ONCE).await?;
        let epochs: Vec<Unnamed> = epochs.into_iter().flatten().collect();
        if !epochs.is_empty() {
            self.sync_closing_files().await?;
            written.extend(epochs);
        }
        if written.is_empty() {
            return Ok(());
        }
        let naming = written.iter().map(|file| file.name(&self.disk));
        let named = try_join_bounded(naming, CLOSING_AT_ONCE).await;
        named.map_err(|error| self.fail(error))?;
        self.sync_closing_files().await
    }

    async fn sync_closing_files(&self) -> Result<(), StorageError> {
        let synced = self.disk.sync_filesystem(&self.dir).await;
        synced.map_err(|error| self.fail(error))
    }
}

/// A small file that is written beside the one whose place it takes when it is synced.
#[derive(Debug)]
pub(crate) struct Unnamed {
    path: PathBuf,
}

impl Unnamed {
    async fn write<D: Disk>(disk: &D, path: PathBuf, bytes: &[u8]) -> Result<Self, DiskError> {
        let temporary = temporary_path(&path);
        let written = write_plain(disk, &temporary, bytes).await;
        if written.as_ref().is_err_and(DiskError::is_refused_for_space) {
            disk.remove_file(&temporary).await.ok(); // a part of one is none
        }
        written?;
        Ok(Self { path })
    }

    /// Its content is synced.
    async fn name<D: Disk>(&self, disk: &D) -> Result<(), DiskError> {
        disk.rename(&temporary_path(&self.path), &self.path).await
    }
}

impl<D: Disk> crate::journal::writer::Journal<D> {
    /// Removes the journal files after a clean stop, the oldest first; nothing in them is needed.
    pub(crate) async fn remove(&self) -> Result<(), DiskError> {
        self.write_manifest(0).await?;
        for file in self.take_files() {
            let path = file.path().to_owned();
            if let Some(file) = Rc::into_inner(file) {
                file.durable.close().await?;
                file.file.close().await?;
            }
            self.disk().remove_file(&path).await?;
            self.disk().sync_dir(self.dir()).await?; // in order, as after a replay
        }
        Ok(())
    }
}
