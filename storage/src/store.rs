//! The logs of one shard in one log directory: what the shard layer opens, appends to, reads and closes. Single-threaded;
//! shared by the shard's tasks through an `Rc`. No borrow of the state inside is held across an await.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::batch_cache::BatchCache;
use crate::commit::planner::{CommitLimits, Planner};
use crate::commit::run::ControlFrame;
use crate::commit::seal::Seal;
use crate::compaction::progress;
use crate::compaction::state::Cleaner;
use crate::disk::{Disk, DiskError};
use crate::error::{AppendError, StorageError};
use crate::io_class::IoLimits;
use crate::io_class::gate::IoGate;
use crate::journal::writer::{Journal, JournalOptions};
use crate::log::append::{AppendBatch, Appended};
use crate::log::read_check::ReadDamage;
use crate::log::{Log, LogOffsets, LogRef, LogSize};
use crate::moving::leftovers::Leftover;
use crate::notify::Notify;
use crate::read_ahead::ReadAhead;
use crate::recovery::record::{LogRecord, load_directory};
use crate::removal::{Removals, deleted_directories};
use crate::scrub::{Scrub, ScrubOptions};
use crate::segment::headroom::Headroom;
use crate::segment::open_files::OpenFiles;
use crate::space::SpaceWatch;
use crate::space::shared::DirSpace;
use crate::stats::CommitTotals;
use crate::sync_schedule::{IntervalBounds, SyncSchedule};
use crate::types::{LogId, Offset};

pub use crate::commit::run::CommitOutcome;
pub use crate::log::read::{ColdRead, ReadOutcome};
pub use crate::read_ahead::ReadAheadLimits;

/// Sizes and bounds of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Memory for written batches, bytes.
    pub cache_bytes: usize,
    /// Staged bytes above which appends are refused ([`AppendError::Backlog`]).
    pub staged_bytes_max: usize,
    /// Bytes not yet in segments above which commits prefer segments to the journal.
    pub unwritten_bytes_max: usize,
    /// A log with this many unwritten bytes is written behind at once.
    pub write_behind_bytes: usize,
    /// The journal's sizes.
    pub journal: JournalOptions,
    /// Whether new journal files are written once with zeroes before commits come to them, on a disk that keeps unwritten blocks
    /// apart ([`crate::journal`]).
    pub is_journal_filled: bool,
    /// The committer's bounds.
    pub commit: CommitLimits,
    /// Producers remembered per log.
    pub producers_max: usize,
    /// What may be unsynced of a log of durability class `interval`.
    pub interval: IntervalBounds,
    /// Segment files that may be open while they are not used.
    pub open_files_max: usize,
    /// Bounds of what is read ahead of sequential readers.
    pub read_ahead: ReadAheadLimits,
    /// Stores that share the log directory, this one included.
    pub shards: u16,
    /// What background work and cold reads may do to the disk.
    pub io: IoLimits,
    /// How the scrub goes about it.
    pub scrub: ScrubOptions,
    /// Free space below which only internal topics are written to, bytes; `None` is [`crate::space::default_reserve`].
    pub reserve_bytes: Option<u64>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            staged_bytes_max: 64 << 20,
            unwritten_bytes_max: 96 << 20,
            write_behind_bytes: 256 << 10,
            journal: JournalOptions::default(),
            is_journal_filled: false,
            commit: CommitLimits::default(),
            producers_max: crate::producer_state::PRODUCERS_MAX,
            interval: IntervalBounds::default(),
            open_files_max: 4096,
            read_ahead: ReadAheadLimits::default(),
            shards: 1,
            io: IoLimits::default(),
            scrub: ScrubOptions::default(),
            reserve_bytes: None,
        }
    }
}

/// See the module.
pub struct Store<D: Disk> {
    pub(crate) disk: D,
    pub(crate) dir: PathBuf,
    pub(crate) shard: u16,
    pub(crate) options: StoreOptions,
    pub(crate) logs: RefCell<Logs<D>>,
    pub(crate) planner: RefCell<Planner>,
    pub(crate) cache: RefCell<BatchCache>,
    pub(crate) journal: Journal<D>,
    pub(crate) controls: RefCell<VecDeque<ControlFrame>>,
    pub(crate) controls_staged: Cell<u64>,
    pub(crate) controls_durable: Cell<u64>,
    /// What is to be removed, now or later.
    pub(crate) removals: Removals,
    /// What checkpoints say about logs that were closed in this run.
    pub(crate) closed_logs: RefCell<Vec<LogRecord>>,
    /// Logs of the merged checkpoint that were deleted in this run.
    pub(crate) deleted: RefCell<Vec<([u8; 16], i32)>>,
    /// The run this store belongs to.
    pub(crate) run: u64,
    /// What the last run's checkpoints say about logs not opened yet.
    pub(crate) known: RefCell<HashMap<LogId, LogRecord, foldhash::fast::FixedState>>,
    /// Copies of logs that moves of earlier runs left, when somebody has looked.
    pub(crate) copies: RefCell<Option<Vec<Leftover>>>,
    /// Logs with files whose names are not durable yet.
    pub(crate) unnamed: RefCell<Vec<u32>>,
    /// Bytes in all tails.
    pub(crate) unwritten_bytes: Cell<usize>,
    pub(crate) planning: Cell<bool>,
    /// A journal file is being recycled.
    pub(crate) recycling: Cell<bool>,
    /// A journal file is created beside commits.
    pub(crate) making_ahead: Cell<bool>,
    /// What the last checkpoint says of the journal: the commits up to this one are in the segments.
    pub(crate) covered_sequence: Cell<u64>,
    /// The clean stop has begun.
    pub(crate) closed: Cell<bool>,
    pub(crate) commits_started: Cell<u64>,
    pub(crate) commits_ended: Cell<u64>,
    pub(crate) commit_totals: Cell<CommitTotals>,
    /// Open segment files.
    pub(crate) files: RefCell<OpenFiles>,
    /// How far its logs are compacted.
    pub(crate) cleaner: Cleaner,
    /// What may be allocated ahead in them.
    pub(crate) headroom: Rc<Headroom>,
    /// The free space, and what happens without.
    pub(crate) space: SpaceWatch,
    /// Sequential readers of what is on disk only.
    pub(crate) ahead: RefCell<ReadAhead>,
    /// Something is to be read ahead, or was.
    pub(crate) ahead_moved: Notify,
    /// Logs whose last writes no sync covers.
    pub(crate) unsynced: RefCell<SyncSchedule>,
    /// Files synced because [`Self::unsynced`] said so.
    pub(crate) forced_syncs: Cell<u64>,
    /// The record of the last commits before a pause.
    pub(crate) seal: Seal,
    /// Damage that readers have met.
    pub(crate) read_damage: RefCell<ReadDamage>,
    /// The schedule of syncs is to be looked at.
    pub(crate) syncs_moved: Notify,
    /// Something was staged.
    pub(crate) staged: Notify,
    /// A commit or a write ended, or a lock was given back.
    pub(crate) moved: Notify,
    /// There may be work for write-behind.
    pub(crate) behind: Notify,
    /// Whose turn it is at the disk.
    pub(crate) io: IoGate,
    pub(crate) scrub: Scrub<D>,
    offline: RefCell<Option<Rc<str>>>,
}

/// The open logs by slot; a slot is never used twice.
pub(crate) struct Logs<D: Disk> {
    slots: Vec<Option<Rc<Log<D>>>>,
    by_id: HashMap<LogId, u32, foldhash::fast::FixedState>,
    /// Logs that may have durable bytes to write, the longest waiting first.
    dirty: VecDeque<u32>,
}

impl<D: Disk> Store<D> {
    /// Opens the store of `shard` in the log directory `dir`, whose journals have been recovered
    /// ([`crate::recovery::recover_journals`]). Prepares the shard's journal.
    ///
    /// # Errors
    /// [`StorageError`] from the disk.
    pub async fn open(
        disk: D,
        dir: &Path,
        shard: u16,
        options: StoreOptions,
    ) -> Result<Rc<Self>, StorageError> {
        Self::open_beside(disk, dir, shard, options, &Arc::default()).await
    }

    /// The same where other stores share the directory, and `space`.
    ///
    /// # Errors
    /// [`StorageError`] from the disk.
    pub async fn open_beside(
        disk: D,
        dir: &Path,
        shard: u16,
        options: StoreOptions,
        space: &Arc<DirSpace>,
    ) -> Result<Rc<Self>, StorageError> {
        let merged = load_directory(&disk, dir).await?;
        let cleaned = progress::load(&disk, dir).await?;
        let journal_options = JournalOptions {
            file_bytes: space.journal_limit().unwrap_or(options.journal.file_bytes),
            ..options.journal
        };
        let journal = Journal::open(&disk, dir, shard, merged.run + 1, journal_options).await?;
        let doomed = if shard == 0 {
            deleted_directories(&disk, dir).await?
        } else {
            Vec::new()
        };
        let store = Self {
            disk,
            dir: dir.to_owned(),
            shard,
            options,
            logs: RefCell::new(Logs::new()),
            planner: RefCell::new(Planner::new(options.commit)),
            cache: RefCell::new(BatchCache::new(options.cache_bytes)),
            journal,
            controls: RefCell::default(),
            controls_staged: Cell::new(0),
            controls_durable: Cell::new(0),
            removals: Removals::of_leftovers(doomed.into_iter()),
            closed_logs: RefCell::default(),
            deleted: RefCell::default(),
            run: merged.run + 1,
            known: RefCell::new(merged.logs.into_iter().map(|log| (log.id(), log)).collect()),
            copies: RefCell::new(None),
            unnamed: RefCell::default(),
            unwritten_bytes: Cell::new(0),
            planning: Cell::new(false),
            recycling: Cell::new(false),
            making_ahead: Cell::new(false),
            covered_sequence: Cell::new(0),
            closed: Cell::new(false),
            commits_started: Cell::new(0),
            commits_ended: Cell::new(0),
            commit_totals: Cell::default(),
            files: RefCell::new(OpenFiles::new(options.open_files_max)),
            cleaner: Cleaner::new(cleaned),
            headroom: Rc::new(Headroom::new(options.shards, Arc::clone(space))),
            space: SpaceWatch::new(Arc::clone(space)),
            ahead: RefCell::new(ReadAhead::new(options.read_ahead)),
            ahead_moved: Notify::default(),
            unsynced: RefCell::default(),
            forced_syncs: Cell::new(0),
            seal: Seal::default(),
            read_damage: RefCell::default(),
            syncs_moved: Notify::default(),
            staged: Notify::default(),
            moved: Notify::default(),
            behind: Notify::default(),
            io: IoGate::new(options.io),
            scrub: Scrub::new(options.scrub),
            offline: RefCell::new(None),
        };
        store.tell_need();
        store.look_at_space().await;
        Ok(Rc::new(store))
    }

    /// Checks a batch, gives it its offsets and stages it. It can be read at once (up to the log end) and is durable
    /// when a [`Self::commit`] reports the log's durable end beyond it. Does no I/O and never waits.
    ///
    /// # Errors
    /// [`AppendError`]; the log is unchanged then.
    pub fn append(&self, log: LogRef, batch: AppendBatch, now_ms: i64) -> Result<Appended, AppendError> {
        if let Some(reason) = &*self.offline.borrow() {
            return Err(AppendError::Offline(Rc::clone(reason)));
        }
        let entry = self.log(log).ok_or(AppendError::NoSuchLog)?;
        let bytes = batch.bytes.len();
        let staged_bytes = self.planner.borrow().staged_bytes();
        let refuse_new = if staged_bytes > self.options.staged_bytes_max {
            Some(AppendError::Backlog { staged_bytes })
        } else {
            self.refuses_new(&entry, batch.origin, bytes)
                .then_some(AppendError::Full)
        };
        let appended = {
            let mut state = entry.state.borrow_mut();
            if state.closing {
                return Err(AppendError::NoSuchLog);
            }
            state.append(batch, log.slot, &mut self.cache.borrow_mut(), now_ms, refuse_new)
        };
        let appended = appended.inspect_err(|error| self.count_refused(error))?;
        if !appended.is_duplicate {
            self.unwritten_bytes.set(self.unwritten_bytes.get() + bytes);
            self.planner.borrow_mut().stage(log.slot, bytes);
            self.staged.notify();
        }
        Ok(appended)
    }

    /// The log's ends; `None` when it is not open here.
    #[must_use]
    pub fn offsets(&self, log: LogRef) -> Option<LogOffsets> {
        self.log(log).map(|log| log.state.borrow().offsets())
    }

    /// What the log takes; `None` when it is not open here. Looks at each segment: for reports, not for requests.
    #[must_use]
    pub fn size(&self, log: LogRef) -> Option<LogSize> {
        self.log(log).map(|log| log.state.borrow().size())
    }

    /// Waits until the log is durable up to `offset`. Somebody else commits.
    ///
    /// # Errors
    /// [`StorageError`] when the store is or goes offline, or the log is not open.
    pub async fn durable_to(&self, log: LogRef, offset: Offset) -> Result<(), StorageError> {
        self.moved
            .until(|| {
                if let Err(error) = self.check_online() {
                    return Some(Err(error));
                }
                match self.offsets(log) {
                    None => Some(Err(StorageError::NoSuchLog)),
                    Some(offsets) => (offsets.durable_end >= offset).then_some(Ok(())),
                }
            })
            .await
    }

    /// The open log of this id.
    #[must_use]
    pub fn find_log(&self, id: LogId) -> Option<LogRef> {
        self.logs
            .borrow()
            .by_id
            .get(&id)
            .map(|slot| LogRef { slot: *slot })
    }

    /// Why the store is offline, if it is.
    #[must_use]
    pub fn offline_reason(&self) -> Option<Rc<str>> {
        self.offline.borrow().clone()
    }

    /// Whose turn it is at the disk: background work asks it for permits, a driver gives it the time.
    #[must_use]
    pub const fn io(&self) -> &IoGate {
        &self.io
    }

    /// What a checkpoint says about a log that is not open.
    pub(crate) fn known_of(&self, id: LogId) -> Option<LogRecord> {
        let closed = self.closed_logs.borrow();
        let closed = closed.iter().find(|log| log.id() == id).cloned();
        closed.or_else(|| self.known.borrow().get(&id).cloned())
    }

    pub(crate) fn log(&self, log: LogRef) -> Option<Rc<Log<D>>> {
        self.logs.borrow().get(log.slot)
    }

    pub(crate) fn is_offline(&self) -> bool {
        self.offline.borrow().is_some()
    }

    pub(crate) fn check_online(&self) -> Result<(), StorageError> {
        match &*self.offline.borrow() {
            Some(reason) => Err(StorageError::Offline(Rc::clone(reason))),
            None => Ok(()),
        }
    }

    /// A write or sync failed: the store takes nothing more, and the first reason stays. But where there was no space, the
    /// store waits for some.
    pub(crate) fn fail(&self, error: DiskError) -> StorageError {
        if error.is_refused_for_space() {
            return self.no_space(Rc::new(error));
        }
        self.fail_for_good(error)
    }

    /// As [`Self::fail`], for a write that has begun and cannot be undone, whatever the reason.
    pub(crate) fn fail_for_good(&self, error: DiskError) -> StorageError {
        let error = StorageError::from(error);
        self.take_offline(&error);
        error
    }

    /// As [`Self::fail`], for an error that a step of a larger operation gave: nothing happens when only a look at the disk
    /// failed, or nothing of the disk's did.
    pub(crate) fn failed<T>(&self, result: Result<T, StorageError>) -> Result<T, StorageError> {
        result.map_err(|error| match error {
            StorageError::Disk(cause) if cause.is_refused_for_space() => self.no_space(cause),
            StorageError::Disk(cause) if cause.is_of_change() && !self.is_offline() => {
                let error = StorageError::Disk(cause);
                self.take_offline(&error);
                error
            }
            other => other,
        })
    }

    /// Takes nothing more, for a reason that another store of the directory has found.
    pub fn go_offline(&self, reason: &str) {
        if !self.is_offline() {
            self.take_offline(&StorageError::Offline(Rc::from(reason)));
        }
    }

    fn take_offline(&self, error: &StorageError) {
        tracing::error!(dir = %self.dir.display(), shard = self.shard, %error, "log directory goes offline");
        self.offline.borrow_mut().get_or_insert_with(|| match error {
            StorageError::Offline(reason) => Rc::clone(reason),
            error => error.reason(),
        });
        self.staged.notify();
        self.moved.notify();
        self.behind.notify();
        self.syncs_moved.notify();
        self.ahead_moved.notify();
    }
}

impl<D: Disk> Logs<D> {
    fn new() -> Self {
        Self {
            slots: Vec::new(),
            by_id: HashMap::default(),
            dirty: VecDeque::new(),
        }
    }

    pub(crate) fn get(&self, slot: u32) -> Option<Rc<Log<D>>> {
        self.slots.get(slot as usize).and_then(Clone::clone)
    }

    /// The slot the next log gets.
    pub(crate) fn next_slot(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("fewer than four billion logs are opened in a run")
    }

    pub(crate) fn insert(&mut self, log: Rc<Log<D>>) {
        assert_eq!(log.log_ref.slot, self.next_slot(), "slots are given in order");
        self.by_id.insert(log.id, log.log_ref.slot);
        self.slots.push(Some(log));
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<Rc<Log<D>>> {
        let log = self.slots.get_mut(slot as usize)?.take()?;
        self.by_id.remove(&log.id);
        Some(log)
    }

    /// Whether a log of this id is open.
    pub(crate) fn is_open(&self, id: LogId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Rc<Log<D>>> {
        self.slots.iter().flatten()
    }

    /// The log has durable bytes to be written behind.
    pub(crate) fn touch(&mut self, slot: u32) {
        let Some(Some(log)) = self.slots.get(slot as usize) else {
            return;
        };
        if !log.dirty.replace(true) {
            self.dirty.push_back(slot);
        }
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The log that has waited longest for write-behind.
    pub(crate) fn next_dirty(&mut self) -> Option<Rc<Log<D>>> {
        while let Some(slot) = self.dirty.pop_front() {
            if let Some(log) = self.get(slot) {
                log.dirty.set(false);
                return Some(log);
            }
        }
        None
    }
}
