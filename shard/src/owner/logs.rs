//! What an owner needs of its shard's storage; `store.rs` fills it with `storage::Store`, tests with a list.

use std::rc::Rc;

use bytes::Bytes;
use protocol::{ErrorCode, RecordBytes};
use storage::compaction::run::{CleanerLimits, Looked, Pace};
use storage::error::{AppendError, StorageError};
use storage::log::query::ProducerSweep;
use storage::log::{LogOffsets, LogSize};
use storage::moving::{CopyStep, MoveFailure, MoveProgress};
use storage::scrub::ScrubStep;
use storage::stats::StoreStats;
use storage::sync_schedule::LossWindows;
use storage::types::{LeaderEpoch, LogId, Offset, ProducerId};

use super::offsets::LookUp;
use crate::config::TopicSettings;
use crate::env::{Env, Instant, WallMs};
use crate::ids::LogDir;
use crate::message::OffsetAnswer;

/// The logs of one shard. Calls do no I/O and never wait; what is not in memory comes back as a plan for the driver.
pub trait Logs {
    /// Names an open log; cheap.
    type Log: Copy + Eq + std::hash::Hash + std::fmt::Debug;
    /// A read that has to go to the disk.
    type Cold: std::fmt::Debug;

    /// Assigns offsets to a batch and stages it; it is durable when the committer says so.
    fn append(
        &self,
        log: Self::Log,
        batch: Bytes,
        leader_epoch: LeaderEpoch,
        now: WallMs,
    ) -> Result<Appended, AppendError>;
    /// Whole batches from the one that holds `from`, below `upper`, of one segment (FE-6, FE-7). More than `bytes_max`
    /// only if `at_least_one` and the first batch is larger.
    fn read(
        &self,
        log: Self::Log,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Read<Self::Cold>;
    /// Where the log starts and ends.
    fn ends(&self, log: Self::Log) -> LogOffsets;
    /// What the log takes, for reports.
    fn size(&self, log: Self::Log) -> LogSize;
    /// The largest epoch at or below `epoch` and where it ends (LE-1…3); the log's newest epoch ends at its end.
    fn epoch_end(&self, log: Self::Log, epoch: LeaderEpoch) -> (LeaderEpoch, Offset);
    /// The epoch of the newest batch, NONE for an empty log.
    fn newest_epoch(&self, log: Self::Log) -> LeaderEpoch;
    /// The epoch that holds `offset`, NONE if unknown.
    fn epoch_of(&self, log: Self::Log, offset: Offset) -> LeaderEpoch;
    /// This broker leads the log in `epoch` from its end on (KIP-101).
    fn lead(&self, log: Self::Log, epoch: LeaderEpoch);
    /// The high watermark moved to `mark`.
    fn high_watermark(&self, log: Self::Log, mark: Offset);
    /// Transactions aborted in `[from, to)`, for read_committed (FE-11).
    fn aborted(&self, log: Self::Log, from: Offset, to: Offset) -> Vec<(ProducerId, Offset)>;
    /// Whether the log's directory has failed: nothing of it is served any more.
    fn is_offline(&self, log: Self::Log) -> bool;
    /// The directory that the log is in.
    fn dir(&self, _log: Self::Log) -> LogDir {
        LogDir::default()
    }
}

/// A log on its way to another log directory; see [`storage::moving::LogMove`].
#[allow(async_fn_in_trait)] // every future of a shard stays on its thread
pub trait Moving: Sized + 'static {
    /// Names an open log.
    type Log;
    /// Copies a piece.
    async fn copy(&mut self, now: WallMs) -> Result<CopyStep, StorageError>;
    /// How far the copy is.
    fn progress(&self) -> MoveProgress;
    /// Brings the copy to the end of the log, which refuses changes from here on, and makes it durable.
    async fn settle(&mut self) -> Result<(), StorageError>;
    /// Closes the log and opens the copy in its place. Without the log being given up, the move comes back to be abandoned.
    async fn commit(self, now: WallMs) -> Result<Self::Log, (MoveFailure, Option<Self>)>;
    /// The log stays where it is.
    async fn abandon(self);
}

/// The storage of one shard in one log directory as its drivers need it: what takes time.
#[allow(async_fn_in_trait)] // every future of a shard stays on its thread
pub trait LogsIo: Logs + Clone + 'static {
    /// Carries out a planned read, or says what the reader is told: OFFSET_OUT_OF_RANGE and NOT_LEADER_OR_FOLLOWER when the
    /// records or the log were deleted meanwhile, KAFKA_STORAGE_ERROR when the disk refused, CORRUPT_MESSAGE
    /// when what is there is damaged.
    async fn read_cold(&self, plan: &Self::Cold) -> Result<RecordBytes, ErrorCode>;
    /// Looks something up in a log, or moves its start.
    async fn look_up<E: Env>(&self, env: &E, log: Self::Log, what: LookUp) -> OffsetAnswer;
    /// Waits until [`Self::commit`] has `bytes` of batches to take, or something that is not to wait for more of them.
    async fn staged(&self, bytes: usize);
    /// Another shard's write or sync failed in this directory: it takes nothing more here either.
    fn fail(&self, reason: &str);
    /// Counters and fill now, for metrics.
    fn stats(&self) -> StoreStats;
    /// What a power loss at `now` would take of what was acknowledged, for metrics.
    fn loss_windows(&self, now: Instant) -> LossWindows;
    /// What [`Self::commit`] has given back is acknowledged at `now`.
    fn note_time(&self, now: Instant);
    /// Waits until something is staged, makes it durable, and tells whose durable end moved where.
    async fn commit(&self) -> Result<Vec<(Self::Log, Offset)>, StorageError>;
    /// Waits for background work (write-behind, journal files, files of deleted logs) and does a round of it.
    async fn background(&self) -> Result<(), StorageError>;
    /// Waits until something is to be read ahead of sequential readers, and reads it.
    async fn read_ahead(&self) -> Result<(), StorageError>;
    /// Syncs the logs that are acknowledged without a sync and are due; returns when the next is.
    async fn sync_due(&self, now: Instant) -> Result<Option<Instant>, StorageError>;
    /// Ends when [`Self::sync_due`] is to be asked again although its time has not come.
    async fn sync_schedule_moved(&self);
    /// A step of the scrub, which reads and verifies what is in the segments.
    async fn scrub(&self, now: WallMs) -> Result<ScrubStep, StorageError>;
    /// The clock by which disk work is paced and timed, nanoseconds.
    fn set_clock(&self, clock: Rc<dyn Fn() -> u64>);
    /// Lets disk work go whose time has come; returns when the next has its time.
    fn io_due(&self) -> Option<Instant>;
    /// Ends when [`Self::io_due`] is to be asked again although its time has not come.
    async fn io_moved(&self);
    /// Looks at the free space; to be called about once a second.
    async fn watch_space(&self, now: Instant);
    /// Opens the log of a partition of `topic`, or creates it.
    async fn open(
        &self,
        id: LogId,
        topic: &str,
        settings: &TopicSettings,
        now: WallMs,
    ) -> Result<Self::Log, StorageError>;
    /// New settings of a log; they hold from the next append on.
    fn configure(&self, log: Self::Log, settings: &TopicSettings);
    /// Goes on with a round over the producers of all logs and forgets the idle ones (PR-47); looks at `producers_max` of
    /// them at most, and returns how many it forgot.
    fn sweep_producers(&self, sweep: &mut ProducerSweep, now: WallMs, producers_max: usize) -> usize;
    /// Whether [`Self::retain`] would remove something. Cheap.
    fn is_retention_due(&self, log: Self::Log, high_watermark: Offset, now: WallMs) -> bool;
    /// Removes what the log's settings let go of, below the high watermark.
    async fn retain(&self, log: Self::Log, high_watermark: Offset, now: WallMs) -> Result<(), StorageError>;
    /// Looks for the log that compaction is most worth for, and compacts it if that is due.
    async fn clean<P: Pace>(&self, pace: &P, limits: &CleanerLimits) -> Result<Looked, StorageError>;
    /// A log on its way from here to another directory.
    type Move: Moving<Log = Self::Log>;
    /// Begins to copy a log to `to`; `unique` keeps the copy apart from others.
    async fn begin_move(&self, log: Self::Log, to: &Self, unique: u128) -> Result<Self::Move, StorageError>;
    /// The topic is gone: the log takes nothing more, and its files go when their delay is over.
    async fn delete(&self, log: Self::Log) -> Result<(), StorageError>;
    /// Removes the files whose delay is over; returns when the next one's is.
    async fn remove_due(&self, now: Instant) -> Result<Option<Instant>, StorageError>;
    /// Ends when [`Self::remove_due`] is to be asked again although its time has not come.
    async fn removals_moved(&self);
}

/// A batch got its offsets, or had them already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The first record's offset.
    pub base_offset: Offset,
    /// The last record's offset.
    pub last_offset: Offset,
    /// The batch had been appended before (PR-41); nothing was staged.
    pub is_duplicate: bool,
    /// The broker's timestamp when the batch carries it (LogAppendTime), else −1.
    pub log_append_time: i64,
    /// The log start at this moment.
    pub log_start: Offset,
}

/// The outcome of a read.
#[derive(Debug)]
pub enum Read<C> {
    /// The data, from memory; empty where there is none below the upper bound.
    Cached(RecordBytes),
    /// The data is on disk: at most `bytes_max` bytes will come of it (or one larger batch).
    Cold {
        /// To be carried out by the driver.
        plan: C,
        /// What it may bring.
        bytes_max: usize,
    },
    /// The log is offline.
    Offline,
}
