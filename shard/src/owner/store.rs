//! The owner's logs are a `storage::Store`: the translation between the two, and a topic's settings as a log takes them.

use std::rc::Rc;

use bytes::Bytes;
use protocol::{ErrorCode, RecordBytes};
use storage::compaction::plan::PPM;
use storage::compaction::run::{CleanerLimits, Looked, Pace};
use storage::disk::Disk;
use storage::error::{AppendError, StorageError};

use storage::log::append::AppendBatch;
use storage::log::config::{CompactionConfig, Durability, LogConfig};
use storage::log::query::ProducerSweep;
use storage::log::timestamps::{BatchSearch, TimedOffset};
use storage::log::{LogOffsets, LogRef, LogSize};
use storage::moving::{CopyStep, LogMove, MoveFailure, MoveProgress};
use storage::retention::RetentionRules;
use storage::scrub::ScrubStep;
use storage::stats::StoreStats;
use storage::store::{ColdRead, ReadOutcome, Store};
use storage::sync_schedule::LossWindows;
use storage::types::{LeaderEpoch, LogId, Offset, ProducerId};

use super::logs::{Appended, Logs, LogsIo, Moving, Read};
use super::offsets::LookUp;
use crate::config::{self, TopicSettings};
use crate::env::{Env, Instant, WallMs};
use crate::message::OffsetAnswer;

const NANOS_PER_MS: u64 = 1_000_000;

/// One shard's logs in one log directory.
pub struct StoreLogs<D: Disk>(Rc<Store<D>>);

impl<D: Disk> StoreLogs<D> {
    /// The logs of an open store.
    #[must_use]
    pub fn new(store: Rc<Store<D>>) -> Self {
        Self(store)
    }

    /// The store itself, for its background work and its end.
    #[must_use]
    pub fn store(&self) -> &Rc<Store<D>> {
        &self.0
    }
}

impl<D: Disk> Clone for StoreLogs<D> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<D: Disk> Logs for StoreLogs<D> {
    type Log = LogRef;
    type Cold = ColdRead;

    fn append(
        &self,
        log: LogRef,
        batch: Bytes,
        leader_epoch: LeaderEpoch,
        now: WallMs,
    ) -> Result<Appended, AppendError> {
        let appended = self
            .0
            .append(log, AppendBatch::from_client(batch, leader_epoch), now.0)?;
        Ok(Appended {
            base_offset: appended.base_offset,
            last_offset: appended.last_offset,
            is_duplicate: appended.is_duplicate,
            log_append_time: appended.log_append_time,
            log_start: appended.log_start,
        })
    }

    fn read(
        &self,
        log: LogRef,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Read<ColdRead> {
        match self.0.read(log, from, bytes_max, upper, at_least_one) {
            ReadOutcome::Cached(pieces) => Read::Cached(record_bytes(pieces)),
            ReadOutcome::Cold(plan) => Read::Cold { plan, bytes_max },
            ReadOutcome::Empty | ReadOutcome::OutOfRange => Read::Cached(RecordBytes::default()),
            ReadOutcome::Offline => Read::Offline,
        }
    }

    fn ends(&self, log: LogRef) -> LogOffsets {
        self.0.offsets(log).unwrap_or_default()
    }

    fn size(&self, log: LogRef) -> LogSize {
        self.0.size(log).unwrap_or_default()
    }

    fn epoch_end(&self, log: LogRef, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        self.0.epoch_end(log, epoch)
    }

    fn newest_epoch(&self, log: LogRef) -> LeaderEpoch {
        self.0.newest_epoch(log)
    }

    fn epoch_of(&self, log: LogRef, offset: Offset) -> LeaderEpoch {
        self.0.epoch_of(log, offset)
    }

    fn aborted(&self, log: LogRef, from: Offset, to: Offset) -> Vec<(ProducerId, Offset)> {
        let aborted = self.0.aborted_transactions(log, from, to);
        aborted
            .into_iter()
            .map(|txn| (txn.producer_id, txn.first_offset))
            .collect()
    }

    fn is_offline(&self, _log: LogRef) -> bool {
        self.0.offline_reason().is_some()
    }

    fn lead(&self, log: LogRef, epoch: LeaderEpoch) {
        self.0.assign_epoch(log, epoch);
    }

    fn high_watermark(&self, log: LogRef, mark: Offset) {
        self.0.on_high_watermark(log, mark);
    }
}

impl<D: Disk> LogsIo for StoreLogs<D> {
    async fn read_cold(&self, plan: &ColdRead) -> Result<RecordBytes, ErrorCode> {
        match self.0.read_cold(*plan).await {
            Ok(pieces) => Ok(record_bytes(pieces)),
            // Retention, DeleteRecords or the topic's deletion came first, as they may at any time.
            Err(StorageError::OffsetOutOfRange { .. }) => Err(ErrorCode::OFFSET_OUT_OF_RANGE),
            Err(StorageError::NoSuchLog) => Err(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            // The store has said it, once for each place.
            Err(StorageError::Damage(_)) => Err(ErrorCode::CORRUPT_MESSAGE),
            Err(error) => {
                tracing::error!(%error, offset = %plan.offset, "a read from disk failed");
                Err(ErrorCode::KAFKA_STORAGE_ERROR)
            }
        }
    }

    async fn look_up<E: Env>(&self, env: &E, log: LogRef, what: LookUp) -> OffsetAnswer {
        let search = async |search: BatchSearch| {
            if search.is_long() {
                env.aside(move || search.run()).await
            } else {
                search.run()
            }
        };
        let found = match what {
            LookUp::MaxTimestamp { upper } => self.0.max_timestamp(log, upper, search).await,
            LookUp::Timestamp { at, upper } => self.0.offset_for_timestamp(log, at, upper, search).await,
            LookUp::DeleteBefore(offset) => match self.0.delete_records(log, offset).await {
                Ok(offset) => Ok(Some(TimedOffset {
                    offset,
                    timestamp: -1,
                    leader_epoch: LeaderEpoch::NONE,
                })),
                Err(error) => Err(error),
            },
        };
        match found {
            Ok(found) => OffsetAnswer {
                error: ErrorCode::NONE,
                offset: found.map_or(Offset::NONE, |found| found.offset),
                timestamp: found.map_or(-1, |found| found.timestamp),
                leader_epoch: found.map_or(LeaderEpoch::NONE, |found| found.leader_epoch),
            },
            Err(StorageError::OffsetOutOfRange { .. }) => {
                OffsetAnswer::failed(ErrorCode::OFFSET_OUT_OF_RANGE)
            }
            Err(StorageError::NoSuchLog) => OffsetAnswer::failed(ErrorCode::NOT_LEADER_OR_FOLLOWER),
            Err(error) => {
                tracing::error!(%error, ?what, "a look-up in a log failed");
                OffsetAnswer::failed(ErrorCode::KAFKA_STORAGE_ERROR)
            }
        }
    }

    async fn staged(&self, bytes: usize) {
        self.0.staged(bytes).await;
    }

    fn fail(&self, reason: &str) {
        self.0.go_offline(reason);
    }

    fn stats(&self) -> StoreStats {
        self.0.stats()
    }

    fn loss_windows(&self, now: Instant) -> LossWindows {
        self.0.loss_windows(now.0 / NANOS_PER_MS)
    }

    fn note_time(&self, now: Instant) {
        self.0.note_time(now.0 / NANOS_PER_MS);
    }

    async fn commit(&self) -> Result<Vec<(LogRef, Offset)>, StorageError> {
        self.0.commit().await.map(|outcome| outcome.moved)
    }

    async fn open(
        &self,
        id: LogId,
        topic: &str,
        settings: &TopicSettings,
        now: WallMs,
    ) -> Result<LogRef, StorageError> {
        self.0.open_log(id, topic, log_config(settings), now.0).await
    }

    async fn background(&self) -> Result<(), StorageError> {
        self.0.housekeeping().await
    }

    async fn read_ahead(&self) -> Result<(), StorageError> {
        self.0.read_ahead().await
    }

    async fn sync_due(&self, now: Instant) -> Result<Option<Instant>, StorageError> {
        let next_ms = self.0.sync_due(now.0 / NANOS_PER_MS).await?;
        Ok(next_ms.map(|at| Instant(at.saturating_mul(NANOS_PER_MS))))
    }

    async fn sync_schedule_moved(&self) {
        self.0.sync_schedule_moved().await;
    }

    async fn scrub(&self, now: WallMs) -> Result<ScrubStep, StorageError> {
        self.0.scrub(now.0).await
    }

    fn set_clock(&self, clock: Rc<dyn Fn() -> u64>) {
        self.0.io().set_clock(clock);
    }

    fn io_due(&self) -> Option<Instant> {
        self.0.io().due().map(Instant)
    }

    async fn io_moved(&self) {
        self.0.io().moved().await;
    }

    async fn watch_space(&self, now: Instant) {
        self.0.watch_space(now.0 / NANOS_PER_MS).await;
    }

    fn configure(&self, log: LogRef, settings: &TopicSettings) {
        self.0.set_config(log, log_config(settings));
    }

    fn sweep_producers(&self, sweep: &mut ProducerSweep, now: WallMs, producers_max: usize) -> usize {
        self.0.sweep_producers(sweep, now.0, producers_max)
    }

    fn is_retention_due(&self, log: LogRef, high_watermark: Offset, now: WallMs) -> bool {
        self.0.is_retention_due(log, high_watermark, now.0)
    }

    async fn retain(&self, log: LogRef, high_watermark: Offset, now: WallMs) -> Result<(), StorageError> {
        self.0.retain(log, high_watermark, now.0).await.map(|_| ())
    }

    async fn clean<P: Pace>(&self, pace: &P, limits: &CleanerLimits) -> Result<Looked, StorageError> {
        self.0.clean(pace, limits).await
    }

    type Move = LogMove<D>;

    async fn begin_move(&self, log: LogRef, to: &Self, unique: u128) -> Result<LogMove<D>, StorageError> {
        LogMove::begin(&self.0, log, &to.0, unique).await
    }

    async fn delete(&self, log: LogRef) -> Result<(), StorageError> {
        self.0.delete_log(log).await
    }

    async fn remove_due(&self, now: Instant) -> Result<Option<Instant>, StorageError> {
        let next_ms = self.0.removals_due(now.0 / NANOS_PER_MS);
        self.0.remove_due().await?;
        Ok(next_ms.map(|at| Instant(at.saturating_mul(NANOS_PER_MS))))
    }

    async fn removals_moved(&self) {
        self.0.removals_moved().await;
    }
}

impl<D: Disk> Moving for LogMove<D> {
    type Log = LogRef;

    async fn copy(&mut self, now: WallMs) -> Result<CopyStep, StorageError> {
        self.copy_some(now.0).await
    }

    fn progress(&self) -> MoveProgress {
        Self::progress(self)
    }

    async fn settle(&mut self) -> Result<(), StorageError> {
        Self::settle(self).await
    }

    async fn commit(self, now: WallMs) -> Result<LogRef, (MoveFailure, Option<Self>)> {
        Self::commit(self, now.0).await
    }

    async fn abandon(self) {
        Self::abandon(self).await;
    }
}

/// A topic's settings as its logs take them.
#[must_use]
pub fn log_config(settings: &TopicSettings) -> LogConfig {
    let unsigned = |value: i32| u32::try_from(value).unwrap_or(0);
    let bound = |value: i64| {
        u64::try_from(value)
            .ok()
            .filter(|_| value != i64::MAX)
            .unwrap_or(u64::MAX)
    };
    let compaction = compaction_config(settings);
    LogConfig {
        segment_bytes: unsigned(settings.segment_bytes),
        // A record that must be compacted in time must not stay in the active segment for longer (KIP-354).
        segment_ms: match compaction.enabled {
            true => settings.segment_ms.min(compaction.max_lag_ms),
            false => settings.segment_ms,
        },
        segment_jitter_ms: settings.segment_jitter_ms,
        segment_index_bytes: unsigned(settings.segment_index_bytes),
        index_interval_bytes: unsigned(settings.index_interval_bytes),
        producer_id_expiration_ms: settings.producer_id_expiration_ms,
        durability: match settings.durability {
            config::Durability::Fsync => Durability::Fsync,
            config::Durability::Interval => Durability::Interval,
            config::Durability::Written => Durability::Written,
        },
        flush_ms: bound(settings.flush_ms),
        flush_messages: bound(settings.flush_messages),
        retention: RetentionRules {
            by_age_and_size: settings.cleanup_policy.delete,
            ms: settings.retention_ms,
            bytes: settings.retention_bytes,
        },
        file_delete_delay_ms: u64::try_from(settings.file_delete_delay_ms).unwrap_or(0),
        compaction,
    }
}

fn compaction_config(settings: &TopicSettings) -> CompactionConfig {
    CompactionConfig {
        enabled: settings.cleanup_policy.compact,
        // A ratio of at most 1: the cast is exact enough, and saturates.
        min_dirty_ppm: (settings.min_cleanable_dirty_ratio * f64::from(PPM)) as u32,
        min_lag_ms: settings.min_compaction_lag_ms,
        max_lag_ms: settings.max_compaction_lag_ms,
        delete_retention_ms: settings.delete_retention_ms,
    }
}

fn record_bytes(pieces: Vec<Bytes>) -> RecordBytes {
    let mut records = RecordBytes::default();
    for piece in pieces {
        records.push(piece);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_never_in_the_logs_own_terms() {
        let mut settings = TopicSettings::built_in();
        let config = log_config(&settings);
        assert_eq!((config.flush_ms, config.flush_messages), (u64::MAX, u64::MAX));
        settings.flush_ms = 0;
        settings.flush_messages = 7;
        settings.durability = config::Durability::Interval;
        let config = log_config(&settings);
        assert_eq!((config.flush_ms, config.flush_messages), (0, 7));
        assert_eq!(config.durability, Durability::Interval);
    }

    #[test]
    fn rt_10_age_and_size_count_only_where_the_policy_is_to_delete() {
        let mut settings = TopicSettings::built_in();
        assert_eq!(log_config(&settings).retention, RetentionRules::default());
        assert_eq!(log_config(&settings).file_delete_delay_ms, 60_000);
        settings.retention_bytes = 7;
        settings.cleanup_policy.compact = true;
        let both = log_config(&settings).retention;
        assert_eq!((both.by_age_and_size, both.bytes), (true, 7));
        settings.cleanup_policy.delete = false;
        assert!(!log_config(&settings).retention.by_age_and_size);
        settings.cleanup_policy.compact = false;
        assert!(!log_config(&settings).retention.by_age_and_size);
    }

    /// CP-2, KIP-354.
    #[test]
    fn a_compacted_topic_rolls_in_time_for_its_lag() {
        let mut settings = TopicSettings {
            segment_ms: 10_000,
            max_compaction_lag_ms: 700,
            min_cleanable_dirty_ratio: 0.25,
            ..TopicSettings::built_in()
        };
        assert_eq!(log_config(&settings).segment_ms, 10_000, "not compacted");
        settings.cleanup_policy.compact = true;
        let config = log_config(&settings);
        assert_eq!(
            (config.segment_ms, config.compaction.min_dirty_ppm),
            (700, 250_000)
        );
        settings.max_compaction_lag_ms = i64::MAX;
        assert_eq!(log_config(&settings).segment_ms, 10_000);
    }
}
