//! One look over a store's logs and one pass over the dirtiest of them. To be called in a loop by one task of low priority; it
//! reads and writes piece by piece, waits for what the rate allows after each, and does the work on them beside the shard.
//! An interrupted pass loses nothing but its own work.

use std::rc::Rc;

use super::offset_map::{MapKey, SLOT_BYTES};
use super::pass::Pass;
use super::plan::{Cleanable, LogFacts, PPM, SegmentFacts};
use super::throttle::Throttle;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::StorageError;
use crate::log::batch::BatchHeader;
use crate::log::config::CompactionConfig;
use crate::log::{Log, LogState};
use crate::segment::offset_index::OFFSET_ENTRY_BYTES;
use crate::segment::time_index::TIME_ENTRY_BYTES;
use crate::store::Store;
use crate::types::Offset;
use protocol::record::BATCH_HEADER_BYTES;

/// Logs looked at before others get the core.
const LOGS_PER_TURN: u32 = 64;

/// Times that a log is brought to rest and noted, before it waits for the next look.
const SETTLES_MAX: usize = 2;

/// Logs that one checkpoint is made for; it is dear with very many logs in the directory.
const WAITING_MAX: usize = 256;

/// Clock, rest and side threads, from whoever runs the loop.
#[allow(async_fn_in_trait)] // every future of a shard stays on its thread
pub trait Pace {
    /// Monotonic time, nanoseconds.
    fn now_ns(&self) -> u64;
    /// Wall-clock time, milliseconds since 1970.
    fn wall_ms(&self) -> i64;
    /// Ends after so many nanoseconds.
    async fn sleep_ns(&self, ns: u64);
    /// Lets others run.
    async fn breathe(&self);
    /// Runs work that may take milliseconds where it holds up nobody.
    async fn aside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R;
}

/// What one shard's cleaner may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CleanerLimits {
    /// Memory of the offset map, bytes: this shard's part of `log.cleaner.dedupe.buffer.size`.
    pub map_bytes: usize,
    /// `log.cleaner.io.buffer.load.factor`.
    pub map_load: f64,
    /// Bytes read at a time: `log.cleaner.io.buffer.size`.
    pub io_bytes: usize,
    /// Bytes read and written a second: this shard's part of `log.cleaner.io.max.bytes.per.second`.
    pub bytes_per_second: f64,
    /// The secret of the map's hash.
    pub hash_key: MapKey,
}

/// What came of a look.
#[derive(Clone, Debug)]
pub enum Looked {
    /// No log is due.
    Nothing,
    /// A log is due, and cannot be cleaned yet: it is not at rest, the disk is full, or it changed on the way.
    Later,
    /// A log was cleaned.
    Cleaned(PassReport),
    /// A log cannot be cleaned and is left alone until the next start (CP-8).
    GivenUp(StorageError),
}

/// What a pass did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassReport {
    /// `<topic>-<partition>`.
    pub log: String,
    /// Up to where it is clean.
    pub cleaned_to: Offset,
    /// Bytes read, for the map and to be rewritten.
    pub read_bytes: u64,
    /// Of them, those of the segments that were rewritten.
    pub rewritten_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Batches that went or changed.
    pub batches_changed: u64,
    /// Segments that went, net of those put in their place.
    pub segments_saved: u64,
    /// Keys in the map, and those that would have fitted.
    pub map_keys: (usize, usize),
}

/// A log that is due.
struct Due<D: Disk> {
    log: Rc<Log<D>>,
    range: Cleanable,
    /// Others that are due and cannot be cleaned before a checkpoint: the one that this log needs serves them too.
    waiting: Vec<Rc<Log<D>>>,
}

impl<D: Disk> Store<D> {
    /// Looks for the log that is dirtiest, and cleans it if one is due (CP-2).
    ///
    /// # Errors
    /// The store is or goes offline, or was closed; the loop ends then.
    pub async fn clean<P: Pace>(&self, pace: &P, limits: &CleanerLimits) -> Result<Looked, StorageError> {
        self.check_cleaner()?;
        let due = match self.dirtiest(pace).await? {
            Ok(due) => due,
            Err(none) => return Ok(none),
        };
        let range = match self.settle_for_cleaning(&due).await {
            Ok(Some(range)) => range,
            Ok(None) => return Ok(Looked::Later),
            Err(error) => return self.pass_failed(&due.log, error),
        };
        let began_ns = pace.now_ns();
        let mut throttle = self
            .cleaner
            .throttle
            .take()
            .unwrap_or_else(|| Throttle::new(limits.bytes_per_second, began_ns));
        throttle.set_rate(limits.bytes_per_second);
        let mut pass = Pass::new(self, pace, limits, &due.log, throttle);
        let outcome = pass.run(&range).await;
        let (report, throttle) = pass.end();
        self.cleaner.throttle.set(Some(throttle));
        match outcome {
            Ok(true) => {
                self.count_pass(&report, pace, began_ns);
                tracing::info!(
                    log = report.log,
                    cleaned_to = %report.cleaned_to,
                    read_bytes = report.read_bytes,
                    written_bytes = report.written_bytes,
                    batches_changed = report.batches_changed,
                    "compacted"
                );
                Ok(Looked::Cleaned(report))
            }
            Ok(false) => Ok(Looked::Later),
            Err(error) => self.pass_failed(&due.log, error),
        }
    }

    /// Whether the loop goes on.
    pub(super) fn check_cleaner(&self) -> Result<(), StorageError> {
        if self.closed.get() {
            return Err(StorageError::Offline(Rc::from("the store was closed")));
        }
        self.check_online()
    }

    /// An error that is the log's own is its own end (CP-8), one of a write is the store's, and a full disk is nobody's.
    fn pass_failed(&self, log: &Rc<Log<D>>, error: StorageError) -> Result<Looked, StorageError> {
        self.check_cleaner()?;
        let is_open = self.log(log.log_ref).is_some() && !log.state.borrow().closing;
        match error {
            _ if !is_open => Ok(Looked::Later),
            StorageError::Disk(cause) | StorageError::NoSpace(cause) if cause.is_full() => {
                let room = self.room_to_clean();
                tracing::warn!(log = log.name, %cause, room, "no room to compact");
                self.cleaner.found_no_room(log.log_ref.slot, room);
                Ok(Looked::Later)
            }
            StorageError::Disk(ref cause) if cause.is_of_change() => self.failed(Err(error)),
            error => {
                let bytes = log.state.borrow().size().bytes;
                tracing::error!(log = log.name, %error, "not compacted any more until the next start");
                self.cleaner.give_up(log.log_ref.slot, bytes);
                Ok(Looked::GivenUp(error))
            }
        }
    }

    /// The log with the largest dirty share of those that are due, or what else came of the look.
    async fn dirtiest<P: Pace>(&self, pace: &P) -> Result<Result<Due<D>, Looked>, StorageError> {
        let mut best: Option<Due<D>> = None;
        let mut waiting = Vec::new();
        let mut none = Looked::Nothing;
        let room = self.room_to_clean();
        self.cleaner.begin_look();
        let (mut dirty_ppm_max, mut delay_ms_max) = (0, 0);
        let slots = self.logs.borrow().next_slot();
        for slot in 0..slots {
            if slot % LOGS_PER_TURN == LOGS_PER_TURN - 1 {
                pace.breathe().await;
                self.check_cleaner()?;
            }
            let log = self.logs.borrow().get(slot);
            let Some(log) = log.filter(|_| !self.cleaner.is_given_up(slot)) else {
                continue;
            };
            let config = log.state.borrow().config.compaction;
            if !config.enabled {
                continue;
            }
            if config.max_lag_ms < i64::MAX {
                self.find_first_timestamps(&log).await;
            }
            let Some(range) = self.cleanable(&log, pace.wall_ms()) else {
                continue;
            };
            dirty_ppm_max = dirty_ppm_max.max(range.dirty_ppm());
            delay_ms_max = delay_ms_max.max(range.overdue_ms);
            if !range.is_due(&config) {
                continue;
            }
            // The others get their turn.
            if self.cleaner.waits_for_room(slot, room) {
                none = Looked::Later;
                continue;
            }
            let is_settled = log.state.borrow().marks.noted_segment() >= range.end;
            if !is_settled && waiting.len() < WAITING_MAX {
                waiting.push(Rc::clone(&log));
            }
            let is_better = |best: &Due<D>| range.dirty_ppm() > best.range.dirty_ppm();
            if best.as_ref().is_none_or(is_better) {
                let waiting = Vec::new();
                best = Some(Due { log, range, waiting });
            }
        }
        let mut stats = self.cleaner.stats.get();
        (stats.dirty_ppm_max, stats.delay_ms_max) = (dirty_ppm_max, delay_ms_max);
        stats.last_look_ms = pace.wall_ms();
        self.cleaner.stats.set(stats);
        Ok(best.map(|best| Due { waiting, ..best }).ok_or(none))
    }

    /// What of the log can be cleaned now; `None` when it is being closed.
    fn cleanable(&self, log: &Log<D>, now_ms: i64) -> Option<Cleanable> {
        let state = log.state.borrow();
        let facts = state.facts(self.cleaner.cleaned_to(&log.name));
        (!state.closing).then(|| facts.cleanable(&state.config.compaction, now_ms))
    }

    /// Sees to it that the journal is not needed for any segment in the range: what it still holds of them would be written
    /// over the cleaned ones by the next recovery. Returns the range as far as that holds; `None` when it is empty.
    async fn settle_for_cleaning(&self, due: &Due<D>) -> Result<Option<Cleanable>, StorageError> {
        let settled = || due.log.state.borrow().marks.noted_segment();
        for _ in 0..SETTLES_MAX {
            if settled() >= due.range.end {
                break;
            }
            self.note_places(&due.log, &due.waiting).await?;
        }
        let end = {
            let state = due.log.state.borrow();
            let settled = state.marks.noted_segment().min(due.range.end);
            // Down to the beginning of a segment.
            let below = state.segments.partition_point(|segment| segment.base <= settled);
            below
                .checked_sub(1)
                .and_then(|number| state.segments.get(number))
                .map_or(Offset::ZERO, |segment| segment.base)
        };
        Ok((end > due.range.first_dirty).then_some(Cleanable { end, ..due.range }))
    }

    /// The first timestamps of segments that were closed in an earlier run are in their files only.
    async fn find_first_timestamps(&self, log: &Rc<Log<D>>) {
        let unknown: Vec<(Offset, u32)> = {
            let state = log.state.borrow();
            let closed = state.segments.iter().filter(|segment| segment.finished);
            closed
                .filter(|segment| segment.first_timestamp.is_none() && segment.size > 0)
                .map(|segment| (segment.base, segment.version))
                .collect()
        };
        for (base, version) in unknown {
            let read = async {
                let file = self.disk.open(&log.segment_path(base), OpenMode::Read).await?;
                let head = file.read_at(0, BATCH_HEADER_BYTES).await;
                file.close().await?;
                head
            };
            // One that cannot be read is found when it is cleaned.
            let Ok(head) = read.await else { continue };
            let first = BatchHeader::parse(&head).map_or(-1, |header| header.max_timestamp);
            let mut state = log.state.borrow_mut();
            if let Some(segment) = state
                .segment_mut(base)
                .filter(|segment| segment.version == version)
            {
                segment.first_timestamp.get_or_insert(first);
            }
        }
    }

    fn count_pass<P: Pace>(&self, report: &PassReport, pace: &P, began_ns: u64) {
        let ppm = |part: u64, all: u64| {
            let share = u128::from(part) * u128::from(PPM) / u128::from(all.max(1));
            u32::try_from(share).unwrap_or(u32::MAX)
        };
        let before = self.cleaner.stats.get();
        self.cleaner.stats.set(super::CleanerStats {
            passes: before.passes + 1,
            read_bytes: before.read_bytes + report.read_bytes,
            written_bytes: before.written_bytes + report.written_bytes,
            batches_changed: before.batches_changed + report.batches_changed,
            segments_saved: before.segments_saved + report.segments_saved,
            last_pass_ms: pace.wall_ms(),
            pass_ms: pace.now_ns().saturating_sub(began_ns) / 1_000_000,
            buffer_ppm: ppm(report.map_keys.0 as u64, report.map_keys.1 as u64),
            recopy_ppm: ppm(report.written_bytes, report.rewritten_bytes),
            ..before
        });
    }
}

/// Memory of the map a pass over `records` records makes, bytes: what is to be charged for it.
#[must_use]
pub fn map_bytes(limits: &CleanerLimits, records: u64) -> usize {
    let wanted = records as f64 / limits.map_load.clamp(0.01, 0.99) * SLOT_BYTES as f64;
    (wanted as usize).min(limits.map_bytes)
}

impl<D: Disk> LogState<D> {
    /// What decides over cleaning.
    pub(super) fn facts(&self, cleaned_to: Option<Offset>) -> LogFacts {
        let stable = self.durable_end.min(self.high_watermark);
        let unstable = self.producers.first_unstable_offset(self.log_start);
        let index_bytes = |segment: &crate::segment::state::Segment<D>| {
            segment.indexes.as_ref().map_or(0, |indexes| {
                let offset = indexes.offset.len() * OFFSET_ENTRY_BYTES;
                let time = indexes.time.len() * TIME_ENTRY_BYTES;
                u32::try_from(offset.max(time)).unwrap_or(u32::MAX)
            })
        };
        LogFacts {
            cleaned_to,
            log_start: self.log_start,
            stable_end: unstable.map_or(stable, |unstable| unstable.min(stable)),
            segments: self
                .segments
                .iter()
                .map(|segment| SegmentFacts {
                    base: segment.base,
                    size: segment.size,
                    largest_timestamp: segment.largest.timestamp,
                    first_timestamp: segment.first_timestamp,
                    index_bytes: index_bytes(segment),
                    is_finished: segment.finished,
                })
                .collect(),
        }
    }
}

/// The settings of a log as they were when its pass began.
pub(super) fn compaction_of<D: Disk>(log: &Log<D>) -> CompactionConfig {
    log.state.borrow().config.compaction
}
