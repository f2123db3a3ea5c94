//! A log moves from one log directory of a shard to another (AlterReplicaLogDirs) while it is written and read. [`LogMove`] copies
//! the segments into `<topic>-<partition>.<unique>-future` in the other directory, beside everything else that the disks do. When
//! little is left, whoever drives it keeps appends back, and [`LogMove::settle`] brings the copy to the log's end;
//! [`LogMove::commit`] then makes it the log. Docs: `docs/decisions/0054-moving-between-directories.md`.
//!
//! ```text
//!   begin ─► copy_some … ─► settle ────────────► commit
//!            old log is     both are whole and    old is closed and renamed to -delete: from here on the copy counts
//!            the truth      synced, the copy      copy gets the log's name, is opened, and takes the producers over
//!                           has its marker
//! ```
//!
//! A crash before the rename leaves the old log as it was, and a copy that the next start removes ([`leftovers`]); one after it
//! leaves a copy that is whole, which whoever opens the log takes up ([`adopt`]). There is never another truth.

pub(crate) mod adopt;
mod copy;
pub mod leftovers;
pub mod marker;
mod settle;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use crate::disk::{Disk, DiskError, DiskFile};
use crate::error::StorageError;
use crate::layout::{DirMark, PARTITION_METADATA_FILE, PartitionName};
use crate::log::{Log, LogRef};
use crate::space::shared::Held;
use crate::store::Store;
use crate::types::Offset;

/// What may be left to copy while appends are kept back, bytes, at first. It doubles each time that a log is faster.
const LEFT_BYTES_MAX: u64 = 4 << 20;

/// What it doubles to.
const LEFT_BYTES_LIMIT: u64 = 64 << 20;

/// An active segment larger than this is rolled before it is left: the new log's last segment is read when it is opened.
const ACTIVE_BYTES_MAX: u32 = 8 << 20;

/// How far a copy is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveProgress {
    /// Bytes of batches that are copied.
    pub bytes: u64,
    /// Bytes of the log that are not.
    pub left_bytes: u64,
    /// All below is copied.
    pub end: Offset,
}

/// What came of one step of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// There is more to copy.
    More,
    /// There will be: it is not in the segments yet. To be asked again after a moment.
    Later,
    /// Little is left: now is the time for [`LogMove::settle`].
    CaughtUp,
}

/// A move could not be completed.
#[derive(Debug)]
pub struct MoveFailure {
    /// Why.
    pub error: StorageError,
    /// The old log is given up, or may be: only a start can tell what the truth is. Otherwise it is as it was.
    pub is_given_up: bool,
}

/// A log on its way. See the module.
pub struct LogMove<D: Disk> {
    from: Rc<Store<D>>,
    to: Rc<Store<D>>,
    log: Rc<Log<D>>,
    /// Where the copy is.
    future: PathBuf,
    copied: BTreeMap<Offset, Copied<D>>,
    left_bytes_max: u64,
    has_marker: bool,
    /// What the copy will take where it goes, as it was at the beginning.
    held: Option<Held>,
}

/// A segment's copy.
struct Copied<D: Disk> {
    /// Which of the files that had this base it is made from.
    version: u32,
    /// Bytes that are in it.
    position: u32,
    /// While it is written.
    file: Option<D::File>,
    /// Its other files are there, too, and it is synced.
    is_finished: bool,
}

impl<D: Disk> LogMove<D> {
    /// Begins a copy of the log, which is open in `from`, in the directory of `to`. `unique` keeps it apart from others.
    ///
    /// # Errors
    /// [`StorageError::NoSpace`] where it has no place there; [`StorageError::NoSuchLog`]; from the disk.
    pub async fn begin(
        from: &Rc<Store<D>>,
        log: LogRef,
        to: &Rc<Store<D>>,
        unique: u128,
    ) -> Result<Self, StorageError> {
        let log = from.log(log).ok_or(StorageError::NoSuchLog)?;
        to.check_online()?;
        let name = PartitionName::parse(&log.name).ok_or(StorageError::NoSuchLog)?;
        let future = to
            .dir
            .join(name.marked(&format!("{unique:032x}"), DirMark::Future));
        let mut moving = Self {
            from: Rc::clone(from),
            to: Rc::clone(to),
            log,
            future,
            copied: BTreeMap::new(),
            left_bytes_max: LEFT_BYTES_MAX,
            has_marker: false,
            held: None,
        };
        to.look_at_space().await;
        moving.check_space()?;
        let held = to.hold_space("copy", moving.progress().left_bytes);
        moving.held = Some(held.map_err(|error| StorageError::NoSpace(Rc::new(error)))?);
        let made = async {
            to.disk.create_dir(&moving.future).await?;
            to.write_metadata(&moving.future, moving.log.id).await
        };
        match made.await {
            Ok(()) => Ok(moving),
            Err(error) => {
                to.remove_directory_later(&moving.future);
                Err(to.fail(error))
            }
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> MoveProgress {
        let state = self.log.state.borrow();
        let mut progress = MoveProgress {
            end: state.end,
            ..MoveProgress::default()
        };
        for segment in state.segments.iter().rev() {
            let copied = self.copied.get(&segment.base).map_or(0, |copied| copied.position);
            progress.bytes += u64::from(copied.min(segment.size));
            if copied < segment.size {
                progress.left_bytes += u64::from(segment.size - copied);
                progress.end = segment.base;
            }
        }
        progress
    }

    /// Ends it without an effect: the log stays where it is, and takes appends again. The copy goes in the background.
    pub async fn abandon(mut self) {
        self.log.state.borrow_mut().closing = false;
        for copied in self.copied.values_mut() {
            if let Some(file) = copied.file.take()
                && let Err(error) = file.close().await
            {
                tracing::warn!(%error, "of a move that was given up");
            }
        }
        if self.has_marker {
            // Without it nobody takes the copy for whole, whatever becomes of the old log.
            let removed = self.to.disk.remove_file(&self.future.join(marker::FILE)).await;
            if let Err(error) = removed {
                tracing::warn!(%error, "of a move that was given up");
            }
        }
        self.to.remove_directory_later(&self.future);
    }

    /// Both directories work, and the log is still there.
    fn check(&self) -> Result<(), StorageError> {
        self.from.check_online()?;
        self.to.check_online()?;
        match self.from.log(self.log.log_ref) {
            Some(_) => Ok(()),
            None => Err(StorageError::NoSuchLog),
        }
    }

    /// The reserve is not touched where it goes.
    fn check_space(&self) -> Result<(), StorageError> {
        if self.to.space.is_short() {
            let error = DiskError::new("copy", &self.future, io::ErrorKind::StorageFull.into());
            return Err(StorageError::NoSpace(Rc::new(error)));
        }
        Ok(())
    }
}

impl<D: Disk> std::fmt::Debug for LogMove<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("LogMove");
        shown
            .field("future", &self.future)
            .field("progress", &self.progress());
        shown.finish_non_exhaustive()
    }
}

/// The topic's id is no part of a copy's name, so its directory has one of its own.
pub(crate) const METADATA: &str = PARTITION_METADATA_FILE;
