//! Phase 2: one log is opened or created. Closed segments are taken with their index files, which are rebuilt when missing
//! or wrong; the active segment is walked from the checkpoint's place on, batch by batch with CRC checks, and cut behind
//! the last valid one, unless that lies below what was durable: then nothing is cut and the damage is reported. Producer
//! state comes from the newest of snapshots and checkpoint, and the batches behind it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use super::epochs::NotedEpochs;
use super::fault::Fault;
use super::missing::{check_directory, check_first_segment};
use super::record::LogRecord;
use super::scan::ScanEnd;
use super::walk::Replay;
use crate::checkpoint::{partition_metadata, write_plain};
use crate::disk::{BLOCK_BYTES, DirEntry, Disk, DiskError, align_down};
use crate::error::{Damage, StorageError};
use crate::layout::{
    PARTITION_METADATA_FILE, SegmentFile as SegmentFileKind, is_internal_topic, is_metadata_topic,
};
use crate::leader_epoch::LeaderEpochs;
use crate::log::awaited::Awaited;
use crate::log::config::{Durability, LogConfig};
use crate::log::cursor::WriteCursor;
use crate::log::mark::Marks;
use crate::log::read::read_window;
use crate::log::tail::Tail;
use crate::log::{Log, LogRef, LogState, segment_path};
use crate::moving::adopt::with_marker;
use crate::producer_state::ProducerState;
use crate::removal::remove_segment;
use crate::segment::file::SegmentFile;
use crate::segment::state::Segment;
use crate::store::Store;
use crate::types::{LogId, Offset};

impl<D: Disk> Store<D> {
    /// Opens the log of `topic` and the partition in `id`: what is in its directory is recovered; a missing directory is
    /// created. The log is then as durable as it stands, and its durable end is its end.
    ///
    /// # Errors
    /// [`StorageError::Damage`] when bytes that were durable are wrong; the disk's errors. An open log is an error too.
    pub async fn open_log(
        &self,
        id: LogId,
        topic: &str,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<LogRef, StorageError> {
        self.check_online()?;
        let name = format!("{topic}-{}", id.partition);
        if self.logs.borrow().is_open(id) {
            return Err(StorageError::Offline(Rc::from(format!("{name} is open already"))));
        }
        // It stays known until the log is open: a second try must not know less.
        let known = self.known_of(id).filter(|record| record.directory == name);
        let is_recorded = known.is_some();
        let dir = self.dir.join(&name);
        let config = config.drawn(id);
        let opened = self.open_state(&name, &dir, id, config, known, now_ms).await;
        let (state, is_new) = self.failed(opened)?;
        if is_new {
            self.forget_cleaned(&name, None).await?;
        }
        self.closed_logs.borrow_mut().retain(|log| log.id() != id);
        self.known.borrow_mut().remove(&id);
        let active = state.segments.back().filter(|active| active.file.is_some());
        let open_file = active.map(|active| active.base);
        let mut logs = self.logs.borrow_mut();
        let log_ref = LogRef {
            slot: logs.next_slot(),
        };
        logs.insert(Rc::new(Log {
            id,
            log_ref,
            name,
            dir,
            state: RefCell::new(state),
            is_recorded,
            is_internal: is_internal_topic(topic),
            is_vital: is_metadata_topic(topic),
            flushing: Cell::new(false),
            indexing: Cell::new(false),
            swapping: Cell::new(false),
            dirty: Cell::new(false),
        }));
        drop(logs);
        if let Some(base) = open_file {
            self.opened(log_ref, base);
        }
        if is_new {
            self.name_later(log_ref.slot);
        }
        Ok(log_ref)
    }

    /// The log as its directory has it, or as a new one. Returns whether it is new.
    async fn open_state(
        &self,
        name: &str,
        dir: &Path,
        id: LogId,
        config: LogConfig,
        mut known: Option<LogRecord>,
        now_ms: i64,
    ) -> Result<(LogState<D>, bool), StorageError> {
        let entries = match self.disk.list(dir).await {
            Ok(entries) if self.set_stray_aside(name, id, &entries).await? => None,
            Ok(entries) => Some(entries),
            Err(error) if error.is_not_found() => {
                let copy = self.take_up_copy(name, id).await?;
                known = known.filter(|_| copy.is_none()); // of an earlier stay
                copy
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(entries) = &entries {
            known = with_marker(&self.disk, dir, entries, id, known).await?;
        }
        let damage = known.as_ref().and_then(|record| record.damage.as_ref());
        if let Some(damage) = damage {
            return Err(damage.report(dir).into());
        }
        match entries {
            Some(entries) => {
                let recovered = self.recover_log(dir, id, &entries, config, known, now_ms);
                Ok((recovered.await?, false))
            }
            None => {
                check_directory(dir, known.as_ref())?;
                let is_vital = name
                    .rsplit_once('-')
                    .is_some_and(|(topic, _)| is_metadata_topic(topic));
                if !is_vital {
                    self.check_new_log()?;
                }
                Ok((self.create_log(dir, id, config, now_ms).await?, true))
            }
        }
    }

    /// A new log's files are not synced here: until the background has made their names durable, the log's appends go to
    /// the journal, from which recovery makes the files again.
    async fn create_log(
        &self,
        dir: &Path,
        id: LogId,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<LogState<D>, StorageError> {
        self.disk.create_dir(dir).await?;
        self.write_metadata(dir, id).await?;
        let mut state = self.empty_state(Offset::ZERO, config, now_ms);
        self.open_active(dir, &mut state, true).await?;
        state.note_empty();
        Ok(state)
    }

    pub(crate) async fn write_metadata(&self, dir: &Path, id: LogId) -> Result<(), DiskError> {
        let text = partition_metadata::format(id.topic);
        write_plain(&self.disk, &dir.join(PARTITION_METADATA_FILE), text.as_bytes()).await
    }

    fn empty_state(&self, base: Offset, config: LogConfig, now_ms: i64) -> LogState<D> {
        let active = Segment::new(base, config.segment_index_bytes, now_ms);
        let is_unsynced = config.durability != Durability::Fsync;
        LogState {
            config,
            log_start: base,
            end: base,
            durable_end: base,
            high_watermark: base,
            segments: VecDeque::from([active]),
            tail: Tail::default(),
            cursor: WriteCursor::new(base, 0, Vec::new()),
            epochs: LeaderEpochs::new(),
            epochs_dirty: false,
            producers: ProducerState::new(base, self.options.producers_max),
            awaited: Awaited::default(),
            marks: Marks::default(),
            filed: None,
            introduced: 0,
            is_unsynced,
            wants_rest: false,
            closing: false,
        }
    }

    async fn open_active(
        &self,
        dir: &Path,
        state: &mut LogState<D>,
        create: bool,
    ) -> Result<(), StorageError> {
        let active = state.active();
        let path = segment_path(dir, active.base, SegmentFileKind::Log);
        let file = SegmentFile::open(&self.disk, &path, create, 0, &self.headroom).await?;
        active.exists = true;
        active.is_named = !create;
        active.file = Some(Rc::new(file));
        Ok(())
    }

    async fn recover_log(
        &self,
        dir: &Path,
        id: LogId,
        entries: &[DirEntry],
        config: LogConfig,
        known: Option<LogRecord>,
        now_ms: i64,
    ) -> Result<LogState<D>, StorageError> {
        if !entries.iter().any(|entry| entry.name == PARTITION_METADATA_FILE) {
            self.write_metadata(dir, id).await?;
        }
        let entries = &*self.without_swaps(dir, entries).await?;
        let found = self
            .read_segments(dir, entries, config.clone(), known.as_ref(), now_ms)
            .await?;
        let Some(mut read) = found else {
            return self.recover_empty(dir, entries, config, known, now_ms).await;
        };
        let mut known = known;
        if read.replayed_from > read.end.offset {
            // A snapshot of batches that are lost (an interrupted stop of an unsynced log): without it, once more.
            let end = read.end.offset;
            known = known.map(|record| LogRecord {
                place: record.place.filter(|place| place.offset <= end.0),
                ..record
            });
            self.remove_snapshots_above(dir, end).await?;
            let entries = self.disk.list(dir).await?;
            let again = self
                .read_segments(dir, &entries, config.clone(), known.as_ref(), now_ms)
                .await?;
            let Some(again) = again else {
                return self.recover_empty(dir, &entries, config, known, now_ms).await;
            };
            read = again;
        }
        let mut state = self.settle(dir, read, known).await?;
        state.compare_filed(entries);
        Ok(state)
    }

    /// Reads what is to be read of the segments, and removes what lies behind the log's end. `None`: there is no segment.
    async fn read_segments(
        &self,
        dir: &Path,
        entries: &[DirEntry],
        config: LogConfig,
        known: Option<&LogRecord>,
        now_ms: i64,
    ) -> Result<Option<ReadLog<D>>, StorageError> {
        let bases = self.clear_debris(dir, entries, known).await?;
        let Some(((active_base, active_entry), closed)) = bases.split_last() else {
            return Ok(None);
        };
        let first = closed.first().map_or(*active_base, |(base, _)| *base);
        check_first_segment(dir, first, known)?;
        let mut state = self.empty_state(first, config, now_ms);
        state.segments.clear();
        let epochs = NotedEpochs::load(&self.disk, dir, entries, known).await?;
        state.epochs = epochs.list.clone();
        let place = known.and_then(|record| record.place.as_ref());
        let start = known.map_or(Offset::ZERO, |record| Offset(record.log_start));
        let from = self
            .load_producers(dir, entries, known, &mut state, now_ms)
            .await?;
        let mut replay = Replay::new(from, now_ms, self.options.producers_max);
        for (index, (base, entry)) in closed.iter().enumerate() {
            let next = bases.get(index + 1).map_or(*active_base, |(base, _)| *base);
            if next <= from.min(epochs.reach)
                && !may_be_uncut(entry)
                && let Some(segment) = self.trusted_segment(dir, &state, (*base, next), entry).await?
            {
                state.segments.push_back(segment);
                continue;
            }
            self.producers_below(dir, *base, place, &mut replay).await?;
            let (segment, end) = self
                .walked_segment(dir, &mut state, *base, entry, &mut replay)
                .await?;
            self.drop_txn_index(dir, entries, &segment).await?;
            let synced = place.is_some_and(|place| base.0 < place.segment);
            // Nobody reads what lies below the start: a hole in it says nothing.
            let ends_early = end.offset < next && next > start;
            if ends_early && (end.fault.is_some() || (state.is_unsynced && !synced)) {
                // The log ends here, unless more of it was durable: what follows would leave a hole.
                self.check_durable(dir, *base, &end, known)?;
                state.segments.push_back(segment);
                self.remove_segments_from(dir, next).await?;
                return Ok(Some(ReadLog::new(state, end, entry.size, from, epochs)));
            }
            let segment = self.close_segment(dir, segment, &end, entry).await?;
            if next >= from && end.offset == next {
                self.write_snapshot(dir, next, &mut state, &epochs).await?;
                if next <= start {
                    self.remove_told(dir, *base).await?;
                    continue;
                }
            }
            state.segments.push_back(segment);
        }
        let (active, end) = self
            .walk_active(dir, &mut state, *active_base, active_entry, place, &mut replay)
            .await?;
        self.drop_txn_index(dir, entries, &active).await?;
        state.segments.push_back(active);
        self.check_durable(dir, *active_base, &end, known)?;
        Ok(Some(ReadLog::new(state, end, active_entry.size, from, epochs)))
    }

    /// Removes a segment below the log's start, which was there only to tell of producers that a snapshot has now.
    async fn remove_told(&self, dir: &Path, base: Offset) -> Result<(), StorageError> {
        self.disk.sync_dir(dir).await?;
        Ok(remove_segment(&self.disk, dir, base).await?)
    }

    /// The log's offsets and cursor, now that its segments are known; cuts the active file behind the last batch.
    async fn settle(
        &self,
        dir: &Path,
        read: ReadLog<D>,
        known: Option<LogRecord>,
    ) -> Result<LogState<D>, StorageError> {
        let ReadLog {
            mut state,
            end,
            file_bytes,
            epochs,
            ..
        } = read;
        if let Some(record) = known.as_ref().filter(|record| record.log_start > end.offset.0) {
            // An unsynced log that lost more than was left of it.
            return self
                .start_again(dir, state, Offset(record.log_start), &epochs)
                .await;
        }
        state.end = end.offset;
        state.durable_end = end.offset;
        state.high_watermark = end.offset;
        let start = known
            .as_ref()
            .map_or(state.log_start, |record| Offset(record.log_start));
        state.log_start = state.log_start.max(start);
        epochs.settle(&mut state);
        state.producers.on_log_start(state.log_start);
        state.producers.advance(end.offset);
        // Markers below the end are final: whoever was undecided when the log was written does not hold readers back.
        state.producers.on_high_watermark(end.offset);
        state.marks.synced = known
            .and_then(|record| record.place)
            .filter(|place| place.offset <= end.offset.0);
        state.marks.note();
        let place = state.marks.synced.as_ref();
        let is_synced = place.is_some_and(|place| place.offset == end.offset.0);
        let active = state.active();
        let (base, size) = (active.base, active.size);
        if is_synced && file_bytes == u64::from(size) && size.is_multiple_of(BLOCK_BYTES as u32) {
            // An idle log's file is opened when something is to be written or read.
            active.exists = true;
            active.is_named = true;
            state.cursor = WriteCursor::new(base, size, Vec::new());
            return Ok(state);
        }
        self.open_active(dir, &mut state, false).await?;
        let file = state.active().file.clone().expect("just opened");
        if file_bytes > u64::from(size) {
            file.cut(u64::from(size)).await?;
        } else if !is_synced {
            file.sync().await?; // what a killed process wrote may not be on the disk yet
        }
        let block = align_down(u64::from(size));
        let residue = read_window(file.file(), block, (u64::from(size) - block) as usize).await?;
        debug_assert!(residue.len() < BLOCK_BYTES);
        state.cursor = WriteCursor::new(base, size, residue.to_vec());
        Ok(state)
    }

    /// Drops all segments; the log is empty at `start`.
    async fn start_again(
        &self,
        dir: &Path,
        state: LogState<D>,
        start: Offset,
        epochs: &NotedEpochs,
    ) -> Result<LogState<D>, StorageError> {
        let now_ms = state.segments.back().map_or(0, |segment| segment.created_ms);
        self.remove_segments_from(dir, Offset::ZERO).await?;
        let mut fresh = self.empty_state(start, state.config, now_ms);
        epochs.settle(&mut fresh);
        self.open_active(dir, &mut fresh, true).await?;
        self.disk.sync_dir(dir).await?;
        fresh.active().is_named = true;
        Ok(fresh)
    }

    /// A directory without a segment: its creation did not get that far, or all of it was deleted. The producers of what was
    /// deleted are known still.
    async fn recover_empty(
        &self,
        dir: &Path,
        entries: &[DirEntry],
        config: LogConfig,
        known: Option<LogRecord>,
        now_ms: i64,
    ) -> Result<LogState<D>, StorageError> {
        if let Some(record) = &known
            && record.durable_end > record.log_start
        {
            let nothing = ScanEnd {
                position: 0,
                offset: Offset(record.log_start.max(0)),
                fault: Some(Fault::NoSegment),
            };
            self.check_durable(dir, nothing.offset, &nothing, known.as_ref())?;
        }
        let base = known
            .as_ref()
            .map_or(Offset::ZERO, |record| Offset(record.log_start.max(0)));
        let mut state = self.empty_state(base, config, now_ms);
        NotedEpochs::load(&self.disk, dir, entries, known.as_ref())
            .await?
            .settle(&mut state);
        let from = self
            .load_producers(dir, entries, known.as_ref(), &mut state, now_ms)
            .await?;
        if from > base {
            state.producers.reset(base);
        }
        state.producers.on_log_start(base);
        self.open_active(dir, &mut state, true).await?;
        self.disk.sync_dir(dir).await?;
        Ok(state)
    }

    /// Less than what was durable is damage, and nothing is cut.
    fn check_durable(
        &self,
        dir: &Path,
        segment: Offset,
        end: &ScanEnd,
        known: Option<&LogRecord>,
    ) -> Result<(), StorageError> {
        let durable_end = known.map_or(Offset::ZERO, |record| Offset(record.durable_end));
        if end.offset >= durable_end {
            return Ok(());
        }
        Err(Damage {
            path: segment_path(dir, segment, SegmentFileKind::Log),
            position: u64::from(end.position),
            first_offset: end.offset,
            end_offset: durable_end,
            expected: format!("batches up to offset {durable_end}, which were durable"),
            found: end
                .fault
                .map_or_else(|| "the end of the file".to_owned(), |fault| fault.to_string()),
        }
        .into())
    }
}

/// A log whose segments have been read.
struct ReadLog<D: Disk> {
    state: LogState<D>,
    end: ScanEnd,
    /// The size of the last segment's file.
    file_bytes: u64,
    /// The offset of the producer state that the batches were replayed onto.
    replayed_from: Offset,
    /// The epochs as they were noted.
    epochs: NotedEpochs,
}

impl<D: Disk> ReadLog<D> {
    const fn new(
        state: LogState<D>,
        end: ScanEnd,
        file_bytes: u64,
        replayed_from: Offset,
        epochs: NotedEpochs,
    ) -> Self {
        Self {
            state,
            end,
            file_bytes,
            replayed_from,
            epochs,
        }
    }
}

/// As long as a segment's file is not cut to the end of its batches, it has whole blocks.
const fn may_be_uncut(entry: &DirEntry) -> bool {
    entry.size > 0 && entry.size.is_multiple_of(BLOCK_BYTES as u64)
}
