//! The end of a move: the copy is brought to the log's end and made whole, then it takes the log's place.

use std::rc::Rc;

use super::marker::{self, Marker};
use super::{LogMove, MoveFailure};
use crate::checkpoint::{write_atomic, write_plain};
use crate::commit::run::ControlFrame;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::journal::FrameKind;
use crate::layout::{DirMark, LEADER_EPOCH_FILE, PartitionName, SegmentFile};
use crate::log::{LogRef, segment_path};
use crate::removal::Doomed;
use crate::store::Store;
use crate::types::Offset;
use crate::write_behind::FlushTo;

impl<D: Disk> LogMove<D> {
    /// Brings the copy to the log's end and makes it whole and durable. The log refuses appends from here on, and its start stays
    /// where it is; it is read as before. [`LogMove::commit`] or [`LogMove::abandon`] must follow.
    ///
    /// # Errors
    /// From either disk. The move is to be abandoned then.
    pub async fn settle(&mut self) -> Result<(), StorageError> {
        self.check()?;
        self.log.state.borrow_mut().closing = true; // no segment is put in another's place any more
        self.from.until_swapped(&self.log).await;
        self.from.wait_committed(&self.log).await?;
        self.from.flush_log(&self.log, FlushTo::End).await?;
        self.copy_rest().await?;
        let (active, end, start, epochs, snapshot) = {
            let state = self.log.state.borrow();
            (
                state.segments.back().map_or(Offset::ZERO, |active| active.base),
                state.end,
                state.log_start,
                state.epochs_below(state.end).encode(),
                state.producers.encode_snapshot(),
            )
        };
        let finished = async {
            self.close_copy(active).await?;
            let (disk, future) = (&self.to.disk, &self.future);
            let path = segment_path(future, end, SegmentFile::ProducerSnapshot);
            write_plain(disk, &path, &snapshot).await?;
            write_plain(disk, &future.join(LEADER_EPOCH_FILE), epochs.as_bytes()).await?;
            disk.sync_filesystem(&self.to.dir).await
        };
        finished.await.map_err(|error| self.to.fail(error))?;
        let text = Marker { start, end }.format();
        self.has_marker = true;
        let marked = async {
            write_atomic(&self.to.disk, &self.future.join(marker::FILE), text.as_bytes()).await?;
            self.to.disk.sync_dir(&self.to.dir).await
        };
        marked.await.map_err(|error| self.to.fail(error))
    }

    /// Gives the old log up for the copy, which is whole. Returns the log in the other directory. The old one's files go when
    /// `file.delete.delay.ms` is over.
    ///
    /// # Errors
    /// [`MoveFailure`]: unless the old log is given up, the move is to be abandoned; it is handed back for that.
    pub async fn commit(mut self, now_ms: i64) -> Result<LogRef, (MoveFailure, Option<Self>)> {
        if let Err(error) = self.from.close_log(self.log.log_ref).await {
            // Where only space was missing it is as it was, unless it is closed by now.
            let is_given_up = self.from.log(self.log.log_ref).is_none() || self.from.is_offline();
            let failure = MoveFailure { error, is_given_up };
            return Err((failure, (!is_given_up).then_some(self)));
        }
        let cleaned_to = self.from.cleaner.cleaned_to(&self.log.name);
        let taken = async {
            self.give_old_up().await?;
            self.take_place(cleaned_to, now_ms).await
        };
        taken.await.map_err(|error| {
            let failure = MoveFailure {
                error,
                is_given_up: true,
            };
            (failure, None)
        })
    }

    /// The log is closed: its directory is renamed, and the copy counts from then on.
    async fn give_old_up(&self) -> Result<(), StorageError> {
        let (from, log) = (&self.from, &self.log);
        from.forget_cleaned(&log.name, Some(log.log_ref.slot)).await?;
        let unique = from.unique(log);
        let name = PartitionName::parse(&log.name).map_or_else(
            || format!("{}-delete", log.name),
            |name| name.marked(&unique, DirMark::Delete),
        );
        let doomed = from.dir.join(name);
        match from.disk.rename(&log.dir, &doomed).await {
            // The directory of directories cannot take the longer name; what is to be deleted goes all the sooner.
            Err(error) if error.is_refused_for_space() => {
                let removed = from.disk.remove_dir_all(&log.dir).await;
                removed.map_err(|error| from.fail_for_good(error))?;
            }
            renamed => renamed.map_err(|error| from.fail(error))?,
        }
        let synced = from.disk.sync_dir(&from.dir).await;
        synced.map_err(|error| from.fail(error))?;
        from.forget_closed(log.id);
        if log.is_recorded {
            let id = (log.id.topic.0, log.id.partition);
            from.deleted.borrow_mut().push(id);
        }
        let (bytes, delay_ms) = {
            let state = log.state.borrow();
            (state.size().bytes, state.config.file_delete_delay_ms)
        };
        from.doom(Doomed::Directory(doomed), bytes, delay_ms);
        Ok(())
    }

    /// The copy becomes the log.
    async fn take_place(&mut self, cleaned_to: Option<Offset>, now_ms: i64) -> Result<LogRef, StorageError> {
        let (to, old) = (&self.to, &self.log);
        // What is known there is of an earlier stay.
        to.forget_closed(old.id);
        let id = (old.id.topic.0, old.id.partition);
        to.deleted.borrow_mut().retain(|gone| *gone != id);
        let dir = to.dir.join(&old.name);
        let renamed = async {
            to.disk.rename(&self.future, &dir).await?;
            to.disk.sync_dir(&to.dir).await
        };
        renamed.await.map_err(|error| to.fail(error))?;
        let topic = PartitionName::parse(&old.name).map_or_else(|| old.name.clone(), |name| name.topic);
        let config = old.state.borrow().config.clone();
        let log = to.open_log(old.id, &topic, config.clone(), now_ms).await?;
        let new = to.log(log).ok_or(StorageError::NoSuchLog)?;
        if let Some(cleaned_to) = cleaned_to {
            to.note_cleaned(&new, cleaned_to).await?;
        }
        {
            let (mut old, mut new) = (old.state.borrow_mut(), new.state.borrow_mut());
            if new.end != old.end || new.log_start != old.log_start {
                let found = format!("offsets {} to {}", new.log_start, new.end);
                let expected = format!("a copy of offsets {} to {}", old.log_start, old.end);
                return Err(crate::error::Damage::of_file(&dir, 0, expected, found).into());
            }
            // A snapshot knows only the last batch of each producer; who repeats an older one is known in memory.
            std::mem::swap(&mut old.producers, &mut new.producers);
            new.config = config;
        }
        let start = new.state.borrow().log_start;
        to.stage_control(ControlFrame {
            slot: log.slot,
            kind: FrameKind::Start,
            offset: start,
        });
        Ok(log)
    }
}

impl<D: Disk> Store<D> {
    /// What was noted of a log that is closed or was not opened yet is void.
    pub(super) fn forget_closed(&self, id: crate::types::LogId) {
        self.closed_logs.borrow_mut().retain(|log| log.id() != id);
        self.known.borrow_mut().remove(&id);
    }

    /// Removes a directory in the log directory in the background. A start that finds it again does the same.
    pub fn remove_directory_later(self: &Rc<Self>, dir: &std::path::Path) {
        self.doom(Doomed::Directory(dir.to_owned()), 0, 0);
    }
}
