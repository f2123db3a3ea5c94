//! Phase 2: one log is opened or created. Closed segments are taken with their index files, which are rebuilt when missing
//! or wrong; the active segment is walked batch by batch with CRC checks and cut behind the last valid one. Producer
//! state comes from the newest usable snapshot and the batches behind it, leader epochs from their file and the batches.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use super::scan::{ScanEnd, scan_segment};
use crate::disk::{BLOCK_BYTES, DirEntry, Disk, DiskFile, OpenMode, align_down};
use crate::error::StorageError;
use crate::leader_epoch::LeaderEpochs;
use crate::log::batch::BatchHeader;
use crate::log::config::{Durability, LogConfig};
use crate::log::cursor::WriteCursor;
use crate::log::read::read_window;
use crate::log::tail::Tail;
use crate::log::{Log, LogRef, LogState, segment_path};
use crate::producer_state::ProducerState;
use crate::segment::indexes::{IndexedBatch, SegmentIndexes};
use crate::segment::offset_index::OffsetIndex;
use crate::segment::state::Segment;
use crate::segment::time_index::TimeIndex;
use crate::segment::txn_index::{AbortedTxn, TxnIndex};
use crate::store::Store;
use crate::types::{LogId, Offset};
use crate::write_behind::write_file;

/// The largest index or snapshot file that is read, bytes.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 20;

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
        let dir = self.dir.join(&name);
        let state = match self.disk.list(&dir).await {
            Ok(entries) => self.recover_log(&dir, &entries, config, now_ms).await?,
            Err(error) if error.is_not_found() => self.create_log(&dir, id, config, now_ms).await?,
            Err(error) => return Err(error.into()),
        };
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
            flushing: Cell::new(false),
            dirty: Cell::new(false),
        }));
        Ok(log_ref)
    }

    async fn create_log(
        &self,
        dir: &Path,
        id: LogId,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<LogState<D>, StorageError> {
        self.disk.create_dir(dir).await?;
        let metadata = format!("version: 0\ntopic_id: {}\n", base64_url(&id.topic.0));
        write_file(&self.disk, &dir.join("partition.metadata"), metadata.as_bytes()).await?;
        let mut state = self.empty_state(Offset::ZERO, config, now_ms);
        self.open_active(dir, &mut state, true).await?;
        self.disk.sync_dir(&self.dir).await?;
        Ok(state)
    }

    fn empty_state(&self, base: Offset, config: LogConfig, now_ms: i64) -> LogState<D> {
        let active = Segment::new(base, config.segment_index_bytes, now_ms);
        let is_unsynced = config.durability != Durability::Fsync;
        LogState {
            config,
            log_start: base,
            end: base,
            durable_end: base,
            segments: VecDeque::from([active]),
            tail: Tail::default(),
            cursor: WriteCursor::new(base, 0, Vec::new()),
            epochs: LeaderEpochs::new(),
            epochs_dirty: false,
            producers: ProducerState::new(base, self.options.producers_max),
            offline: None,
            introduced: 0,
            is_unsynced,
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
        let path = segment_path(dir, active.base, "log");
        let file = crate::segment::file::SegmentFile::open(&self.disk, &path, create).await?;
        active.exists = true;
        active.file = Some(Rc::new(file));
        Ok(())
    }

    async fn recover_log(
        &self,
        dir: &Path,
        entries: &[DirEntry],
        config: LogConfig,
        now_ms: i64,
    ) -> Result<LogState<D>, StorageError> {
        let mut bases: Vec<(Offset, &DirEntry)> = entries
            .iter()
            .filter_map(|entry| Some((log_base(entry)?, entry)))
            .collect();
        bases.sort_unstable_by_key(|(base, _)| *base);
        let Some(((active_base, active_entry), closed)) = bases.split_last() else {
            // A directory without a segment: its creation did not get that far.
            let mut state = self.empty_state(Offset::ZERO, config, now_ms);
            self.open_active(dir, &mut state, true).await?;
            return Ok(state);
        };
        let start = closed.first().map_or(*active_base, |(base, _)| *base);
        let mut state = self.empty_state(start, config, now_ms);
        state.segments.clear();
        if let Some(text) = read_small(&self.disk, &dir.join("leader-epoch-checkpoint")).await?
            && let Ok(epochs) = LeaderEpochs::decode(&text)
        {
            state.epochs = epochs;
        }
        let epochs_known = closed.is_empty() || state.epochs.latest().is_some();
        let replay_from = self.load_producers(dir, entries, &mut state, now_ms).await?;
        for (index, (base, entry)) in closed.iter().enumerate() {
            let next = bases.get(index + 1).map_or(*active_base, |(base, _)| *base);
            let trusted = epochs_known && next <= replay_from;
            let segment = self
                .recover_closed(dir, &mut state, *base, entry, trusted, replay_from, now_ms)
                .await?;
            state.segments.push_back(segment);
        }
        let mut active = Segment::new(
            *active_base,
            state.config.segment_index_bytes,
            active_entry.modified_ms,
        );
        let size = u32::try_from(active_entry.size).unwrap_or(u32::MAX);
        let end = self
            .walk(dir, &mut state, &mut active, size, replay_from, now_ms)
            .await?;
        active.size = end.position;
        active.exists = true;
        state.segments.push_back(active);
        state.epochs_dirty |= state.epochs.truncate_from_end(end.offset);
        state.end = end.offset;
        state.durable_end = end.offset;
        state.producers.advance(end.offset);
        // Whoever was open when this log was decided long ago does not hold readers back: markers below the end are final.
        state.producers.on_high_watermark(end.offset);
        self.settle_active(dir, &mut state, u64::from(size)).await?;
        Ok(state)
    }

    /// Cuts the active segment's file to its valid bytes and puts the cursor behind them.
    async fn settle_active(
        &self,
        dir: &Path,
        state: &mut LogState<D>,
        file_bytes: u64,
    ) -> Result<(), StorageError> {
        self.open_active(dir, state, false).await?;
        let active = state.active();
        let (base, size) = (active.base, active.size);
        let file = active.file.clone().expect("just opened");
        if file_bytes > u64::from(size) {
            file.cut(u64::from(size)).await?;
        } else {
            file.sync().await?; // what a killed process wrote may not be on the disk yet
        }
        let block = align_down(u64::from(size));
        let residue = read_window(file.file(), block, (u64::from(size) - block) as usize).await?;
        debug_assert!(residue.len() < BLOCK_BYTES);
        state.cursor = WriteCursor::new(base, size, residue.to_vec());
        Ok(())
    }

    /// A closed segment: indexes from their files if they are sane, else from its batches.
    #[allow(clippy::too_many_arguments)] // the facts of one segment; a struct for one call says no more
    async fn recover_closed(
        &self,
        dir: &Path,
        state: &mut LogState<D>,
        base: Offset,
        entry: &DirEntry,
        trusted: bool,
        replay_from: Offset,
        now_ms: i64,
    ) -> Result<Segment<D>, StorageError> {
        let mut segment = Segment::new(base, state.config.segment_index_bytes, entry.modified_ms);
        segment.size = u32::try_from(entry.size).unwrap_or(u32::MAX);
        segment.exists = true;
        let indexes = load_indexes(&self.disk, dir, base, state.config.segment_index_bytes).await?;
        let sane = indexes.filter(|indexes| {
            indexes
                .offset
                .last()
                .is_none_or(|last| last.position < segment.size)
        });
        match sane {
            Some(indexes) if trusted => {
                segment.largest = indexes.largest_timestamp();
                segment.indexes = Some(Box::new(indexes));
                segment.finished = true;
            }
            _ => {
                let size = segment.size;
                let end = self
                    .walk(dir, state, &mut segment, size, replay_from, now_ms)
                    .await?;
                segment.size = end.position;
                if let Some(indexes) = segment.indexes.as_mut() {
                    indexes.close().expect("a closing time index entry always fits");
                    for (path, bytes) in crate::write_behind::index_files(dir, base, indexes) {
                        write_file(&self.disk, &path, &bytes).await?;
                    }
                }
                if u64::from(end.position) < entry.size {
                    let file = self
                        .disk
                        .open(&segment_path(dir, base, "log"), OpenMode::ReadWrite)
                        .await?;
                    file.truncate(u64::from(end.position)).await?;
                    file.sync().await?;
                    file.close().await?;
                }
                segment.finished = true;
            }
        }
        Ok(segment)
    }

    /// Walks a segment's batches: indexes, epochs, and producers from `replay_from` on.
    async fn walk(
        &self,
        dir: &Path,
        state: &mut LogState<D>,
        segment: &mut Segment<D>,
        size: u32,
        replay_from: Offset,
        now_ms: i64,
    ) -> Result<ScanEnd, StorageError> {
        let file = self
            .disk
            .open(&segment_path(dir, segment.base, "log"), OpenMode::Read)
            .await?;
        let mut indexes = SegmentIndexes::new(segment.base, state.config.segment_index_bytes as usize);
        // The file may name epochs whose batches are lost; the batches decide.
        state.epochs_dirty |= state.epochs.truncate_from_end(segment.base);
        let mut first_timestamp = None;
        let interval = state.config.index_interval_bytes;
        let end = scan_segment(&file, 0, segment.base, size, |header, position, bytes| {
            let entry = IndexedBatch {
                last_offset: header.last_offset(),
                position,
                size: header.size,
                max_timestamp: header.max_timestamp,
            };
            if indexes.append(entry, interval).is_err() {
                tracing::warn!(dir = %dir.display(), offset = %header.base_offset, "index full while rebuilding");
            }
            first_timestamp.get_or_insert(header.max_timestamp);
            state.epochs_dirty |= state.epochs.assign(header.leader_epoch, header.base_offset);
            replay_producers(state, &mut indexes, header, bytes, replay_from, now_ms);
        })
        .await?;
        file.close().await?;
        segment.largest = indexes.largest_timestamp();
        segment.first_timestamp = first_timestamp;
        segment.indexes = Some(Box::new(indexes));
        Ok(end)
    }

    /// Takes the newest snapshot that can be read. Returns the offset from which batches are to be replayed.
    async fn load_producers(
        &self,
        dir: &Path,
        entries: &[DirEntry],
        state: &mut LogState<D>,
        now_ms: i64,
    ) -> Result<Offset, StorageError> {
        let mut snapshots: Vec<Offset> = entries
            .iter()
            .filter_map(|entry| base_of(entry, ".snapshot"))
            .collect();
        snapshots.sort_unstable();
        let expiration_ms = state.config.producer_id_expiration_ms;
        for offset in snapshots.into_iter().rev() {
            let Some(bytes) = read_small(&self.disk, &segment_path(dir, offset, "snapshot")).await? else {
                continue;
            };
            match state
                .producers
                .load_snapshot(offset, &bytes, now_ms, expiration_ms)
            {
                Ok(()) => return Ok(offset),
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %offset, %error, "producer snapshot not usable")
                }
            }
        }
        state.producers.reset(state.log_start);
        Ok(state.log_start)
    }
}

fn replay_producers<D: Disk>(
    state: &mut LogState<D>,
    indexes: &mut SegmentIndexes,
    header: &BatchHeader,
    bytes: &Bytes,
    replay_from: Offset,
    now_ms: i64,
) {
    if header.base_offset < replay_from {
        return;
    }
    let completed = state.producers.apply(&header.producer_facts(bytes), now_ms);
    if let Some(txn) = completed.filter(|txn| txn.aborted) {
        let aborted = AbortedTxn {
            producer_id: txn.producer_id,
            first_offset: txn.first_offset,
            last_offset: txn.last_offset,
            last_stable_offset: txn.last_stable_offset,
        };
        if indexes.txn.append(aborted).is_err() {
            tracing::warn!(offset = %txn.last_offset, "a transaction marker out of order");
        }
    }
}

/// The indexes of a closed segment; `None` when a file is missing or wrong.
async fn load_indexes<D: Disk>(
    disk: &D,
    dir: &Path,
    base: Offset,
    bytes_max: u32,
) -> Result<Option<SegmentIndexes>, StorageError> {
    let bytes_max = bytes_max as usize;
    let Some(offset) = read_small(disk, &segment_path(dir, base, "index")).await? else {
        return Ok(None);
    };
    let Some(time) = read_small(disk, &segment_path(dir, base, "timeindex")).await? else {
        return Ok(None);
    };
    let txn = read_small(disk, &segment_path(dir, base, "txnindex")).await?;
    let decoded = (
        OffsetIndex::decode(base, bytes_max, &offset),
        TimeIndex::decode(base, bytes_max, &time),
        txn.map_or_else(|| Ok(TxnIndex::new(base)), |bytes| TxnIndex::decode(base, &bytes)),
    );
    let (Ok(offset), Ok(time), Ok(txn)) = decoded else {
        return Ok(None);
    };
    let largest = time.last();
    Ok(Some(SegmentIndexes::from_parts(offset, time, txn, largest)))
}

/// A whole small file; `None` when it is missing or absurdly large.
pub(crate) async fn read_small<D: Disk>(disk: &D, path: &Path) -> Result<Option<Bytes>, StorageError> {
    let file = match disk.open(path, OpenMode::Read).await {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let size = file.size().await?;
    let bytes = if size <= SMALL_FILE_BYTES_MAX {
        Some(read_window(&file, 0, size as usize).await?)
    } else {
        None
    };
    file.close().await?;
    Ok(bytes)
}

fn log_base(entry: &DirEntry) -> Option<Offset> {
    base_of(entry, ".log")
}

fn base_of(entry: &DirEntry, suffix: &str) -> Option<Offset> {
    let digits = entry.name.strip_suffix(suffix)?;
    let plain = !entry.is_dir && digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Offset)).flatten()
}

/// Kafka's text form of a UUID: URL-safe base64 without padding, 22 characters.
fn base64_url(bytes: &[u8; 16]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::with_capacity(22);
    let mut bits = 0u32;
    let mut have = 0;
    for byte in bytes {
        bits = bits << 8 | u32::from(*byte);
        have += 8;
        while have >= 6 {
            have -= 6;
            out.push(char::from(ALPHABET[(bits >> have & 63) as usize]));
        }
    }
    out.push(char::from(ALPHABET[(bits << (6 - have) & 63) as usize]));
    out
}
