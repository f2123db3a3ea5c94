//! The background work of a store: write-behind oldest first, journal files kept ready and recycled, small files of the
//! logs brought up to date; and the clean stop, which does all of it to the end.

use std::rc::Rc;

use crate::disk::{Disk, DiskFile};
use crate::error::StorageError;
use crate::journal::writer::JournalFile;
use crate::log::Log;
use crate::store::Store;
use crate::write_behind::{FlushTo, index_files, write_file};

impl<D: Disk> Store<D> {
    /// One round of background work; waits for work first. To be called in a loop by one task of low priority.
    ///
    /// # Errors
    /// [`StorageError`] when the store is or goes offline; the loop ends then.
    pub async fn housekeeping(&self) -> Result<(), StorageError> {
        self.behind
            .wait_for(|| (self.is_offline() || self.has_background_work()).then_some(()))
            .await;
        self.check_online()?;
        if !self.journal.has_ready() {
            self.plan_lock().await;
            let made = self.make_journal_room().await;
            self.plan_unlock();
            made?;
        }
        let Some(log) = self.logs.borrow_mut().next_dirty() else {
            return Ok(());
        };
        self.flush_log(&log, FlushTo::FullBlocks).await
    }

    fn has_background_work(&self) -> bool {
        !self.journal.has_ready() || self.logs.borrow().has_dirty()
    }

    /// Makes sure a prepared journal file is in reserve: creates one, or recycles the oldest. The plan lock is held.
    pub(crate) async fn make_journal_room(&self) -> Result<(), StorageError> {
        while !self.journal.has_ready() {
            self.check_online()?;
            if self.journal.may_grow() {
                self.journal
                    .create_file()
                    .await
                    .map_err(|error| self.fail(error))?;
            } else if let Some(oldest) = self.journal.oldest_full() {
                self.recycle(oldest).await?;
            } else {
                // The oldest file still has a commit in flight.
                let ended = self.commits_ended.get();
                self.moved
                    .wait_for(|| (self.commits_ended.get() != ended || self.is_offline()).then_some(()))
                    .await;
            }
        }
        Ok(())
    }

    /// Brings all that the oldest journal file holds into the segments, makes it durable, and puts the file to use again.
    async fn recycle(&self, oldest: Rc<JournalFile<D>>) -> Result<(), StorageError> {
        let reach: Vec<_> = oldest
            .reach
            .borrow()
            .iter()
            .map(|(slot, to)| (*slot, *to))
            .collect();
        for (slot, to) in reach {
            let Some(log) = self.logs.borrow().get(slot) else {
                continue;
            };
            while log.state.borrow().cursor.written() < to {
                self.flush_log(&log, FlushTo::FullBlocks).await?;
                if log.state.borrow().cursor.written() < to {
                    self.flush_log(&log, FlushTo::End).await?;
                }
                if log.state.borrow().cursor.written() < to {
                    self.moved.next().await; // a commit is carrying these bytes to the segment right now
                }
                self.check_online()?;
            }
        }
        self.disk
            .sync_filesystem(&self.dir)
            .await
            .map_err(|error| self.fail(error))?;
        self.journal
            .recycle(oldest)
            .await
            .map_err(|error| self.fail(error))?;
        self.moved.notify();
        Ok(())
    }

    /// A clean stop: everything staged is committed, everything durable is in its segment, files are cut to size, indexes
    /// and snapshots written, the journal removed. The drivers must have ended or be about to; appends fail from now on.
    ///
    /// # Errors
    /// [`StorageError`]; what was acknowledged is in the journal then.
    pub async fn close(&self) -> Result<(), StorageError> {
        let logs: Vec<Rc<Log<D>>> = self.logs.borrow().iter().cloned().collect();
        for log in &logs {
            log.state.borrow_mut().closing = true;
        }
        while !self.planner.borrow().is_idle() {
            self.commit().await?;
        }
        self.moved
            .wait_for(|| {
                let idle = self.commits_ended.get() == self.commits_started.get();
                (idle || self.is_offline()).then_some(())
            })
            .await;
        for log in &logs {
            self.close_files(log).await?;
        }
        self.disk
            .sync_filesystem(&self.dir)
            .await
            .map_err(|error| self.fail(error))?;
        self.journal.remove().await.map_err(|error| self.fail(error))
    }

    /// Brings one log to rest: all bytes in the segments, the active one cut and synced, small files written.
    async fn close_files(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.flush_log(log, FlushTo::End).await?;
        let (file, size, files) = {
            let mut state = log.state.borrow_mut();
            assert_eq!(
                state.unwritten_bytes(),
                0,
                "a closed log is wholly in its segments"
            );
            let end = state.end;
            let snapshot = state.producers.encode_snapshot();
            let active = state.active();
            let mut files = Vec::new();
            if let Some(indexes) = active.indexes.as_mut() {
                indexes.close().expect("a closing time index entry always fits");
                files = index_files(&log.dir, active.base, indexes);
            }
            files.push((crate::log::segment_path(&log.dir, end, "snapshot"), snapshot));
            (active.file.clone(), active.size, files)
        };
        let result = async {
            if let Some(file) = &file {
                file.cut(u64::from(size)).await?;
            }
            for (path, bytes) in &files {
                write_file(&self.disk, path, bytes).await?;
            }
            self.disk.sync_dir(&log.dir).await
        };
        result.await.map_err(|error| self.fail(error))
    }
}

impl<D: Disk> crate::journal::writer::Journal<D> {
    /// Removes the journal files after a clean stop, the oldest first; nothing in them is needed.
    pub(crate) async fn remove(&self) -> Result<(), crate::disk::DiskError> {
        for file in self.take_files() {
            let path = file.path().to_owned();
            if let Some(file) = Rc::into_inner(file) {
                file.file.close().await?;
            }
            self.disk().remove_file(&path).await?;
            self.disk().sync_dir(self.dir()).await?; // in order, as after a replay
        }
        Ok(())
    }
}
