//! Writing to the segments what the journal already holds, finishing rolled segments, and the small files of a log.
//! Runs in the background, one writer per log at a time, beside commits.

use std::path::Path;
use std::rc::Rc;

use crate::checkpoint::{replace, write_atomic};
use crate::commit::buffers::Chunks;
use crate::disk::{Disk, DiskError, DiskFile, OpenMode, align_down, align_up};
use crate::error::StorageError;
use crate::layout::{LEADER_EPOCH_FILE, SegmentFile as SegmentFileKind};
use crate::log::cursor::Partial;
use crate::log::{Log, LogState, segment_path};
use crate::segment::file::SegmentFile;
use crate::segment::indexes::SegmentIndexes;
use crate::segment::offset_index::OFFSET_ENTRY_BYTES;
use crate::segment::time_index::TIME_ENTRY_BYTES;
use crate::segment::txn_index::TXN_ENTRY_BYTES;
use crate::store::Store;
use crate::types::Offset;

/// How far a flush goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushTo {
    /// To the last whole block that is durable: what a busy log wants.
    FullBlocks,
    /// To the last durable byte: the log rests, and its journal file is wanted back.
    End,
}

/// One write of a flush.
struct Stretch<D: Disk> {
    file: Rc<SegmentFile<D>>,
    chunks: Chunks<D>,
    position: u64,
    flight: u64,
}

enum Next<D: Disk> {
    Write(Stretch<D>),
    /// The segment's file must be extended to this end first.
    Extend(Rc<SegmentFile<D>>, u64),
    /// The segment's file must be opened (or created) first.
    Open {
        base: Offset,
        create: bool,
    },
    /// Everything is on disk; the files of the segment are to be finished.
    Finish(Offset),
    /// A commit is in flight that did not count on the last block being on disk: after it.
    Wait,
    Done,
}

/// The most one write of a flush carries, bytes.
const STRETCH_BYTES_MAX: u32 = 4 << 20;

impl<D: Disk> Store<D> {
    /// Writes the log's durable bytes to its segments, finishing rolled ones on the way; nothing of a log that is not open any
    /// more.
    pub(crate) async fn flush_log(&self, log: &Rc<Log<D>>, to: FlushTo) -> Result<(), StorageError> {
        self.flush_lock(log).await;
        // Whoever waited for another writer may find the log closed or deleted, and its directory another's.
        let result = match self.log(log.log_ref) {
            Some(_) => self.flush_locked(log, to).await,
            None => Ok(()),
        };
        self.flush_unlock(log);
        result
    }

    /// One at a time writes a log's segments, removes them or puts others in their place; whoever closes or deletes the log waits
    /// for that.
    pub(crate) async fn flush_lock(&self, log: &Log<D>) {
        self.moved
            .until(|| (!log.flushing.get()).then(|| log.flushing.set(true)))
            .await;
    }

    pub(crate) fn flush_unlock(&self, log: &Log<D>) {
        log.flushing.set(false);
        self.moved.notify();
    }

    async fn flush_locked(&self, log: &Rc<Log<D>>, to: FlushTo) -> Result<(), StorageError> {
        loop {
            self.check_online()?;
            let next = log.state.borrow_mut().next_flush(&self.disk, to);
            match next {
                Next::Done => return Ok(()),
                Next::Wait => self.moved.next().await,
                Next::Open { base, create } => self.open_segment(log, base, create).await?,
                Next::Finish(base) => self.finish_segment(log, base).await?,
                Next::Extend(file, end) => {
                    let limit = log.state.borrow().segment_bytes_max();
                    let extended = file.allocate_for(end, limit).await;
                    extended.map_err(|error| self.fail(error))?;
                    self.space_served();
                }
                Next::Write(stretch) => {
                    let Stretch {
                        file,
                        chunks,
                        position,
                        flight,
                    } = stretch;
                    let io = self.io.produce(chunks.padded_bytes());
                    let written = file.write(chunks, position).await;
                    drop(io);
                    written.map_err(|error| self.fail_for_good(error))?;
                    self.land(log, flight);
                }
            }
        }
    }

    /// A write to the log's segment has ended: what it completes leaves the tail.
    pub(crate) fn land(&self, log: &Log<D>, flight: u64) {
        let mut state = log.state.borrow_mut();
        let Some((segment, position)) = state.cursor.land(flight) else {
            return;
        };
        let before = state.tail.bytes();
        state.tail.release(segment, position);
        let end = state.tail.front().map_or(state.end, |batch| batch.base);
        let released = before - state.tail.bytes();
        drop(state);
        // What a closed or deleted log had left was given back when it left.
        if self.log(log.log_ref).is_some() {
            self.unwritten_bytes.set(self.unwritten_bytes.get() - released);
        }
        self.cache.borrow_mut().mark_written(log.log_ref.slot, end);
        self.moved.notify();
    }

    /// Opens the segment's file, so that commits may write to it directly.
    pub(crate) async fn open_segment(
        &self,
        log: &Rc<Log<D>>,
        base: Offset,
        create: bool,
    ) -> Result<(), StorageError> {
        if !create {
            let opened = self.segment_file(log, base).await;
            return opened.map(|_| ()).map_err(|error| self.fail(error));
        }
        let path = log.segment_path(base);
        let file = SegmentFile::open(&self.disk, &path, true, 0, &self.headroom).await;
        self.keep_open(log, base, 0, file.map_err(|error| self.fail(error))?);
        self.name_later(log.log_ref.slot);
        Ok(())
    }

    /// All bytes of a rolled segment are on disk: cuts and syncs its file, then writes its epochs, its indexes and the
    /// producer snapshot of its end. That snapshot tells recovery that it need not read the segment, so it comes last.
    async fn finish_segment(&self, log: &Rc<Log<D>>, base: Offset) -> Result<(), StorageError> {
        let (file, size, next, files) = {
            let state = log.state.borrow();
            let segment = state
                .segment(base)
                .expect("the segment being finished is in the list");
            let next = state
                .segment_after(base)
                .expect("only a rolled segment is finished")
                .base;
            let file = segment.file.clone().expect("a segment that was written is open");
            (file, segment.size, next, closing_files(log, segment, next))
        };
        let cut = file.cut(u64::from(size)).await;
        cut.map_err(|error| self.fail(error))?;
        self.unsynced.borrow_mut().covered(log.log_ref.slot, next);
        self.write_epochs(log, next).await?;
        // Whoever began with its index files while it was the active one comes to an end first.
        self.index_lock(log).await;
        let result = async {
            for (path, bytes) in &files {
                replace(&self.disk, path, bytes).await?;
            }
            self.disk.sync_dir(&log.dir).await
        }
        .await;
        self.index_unlock(log);
        result.map_err(|error| self.fail(error))?;
        let mut state = log.state.borrow_mut();
        if let Some(segment) = state.segment_mut(base) {
            segment.finished = true;
            segment.is_named = true;
            segment.snapshot_at_roll = None;
        }
        if state.cursor.segment == base
            && let Some(next) = state.segment_after(base).map(|segment| segment.base)
        {
            state.cursor.enter(next);
        }
        Ok(())
    }

    /// The log has files whose names are not durable; the background sees to it.
    pub(crate) fn name_later(&self, slot: u32) {
        self.unnamed.borrow_mut().push(slot);
        self.behind.notify();
    }

    /// Makes the names of new files durable, so that commits may write to them directly.
    pub(crate) async fn name_files(&self) -> Result<(), StorageError> {
        let slots = std::mem::take(&mut *self.unnamed.borrow_mut());
        let logs: Vec<Rc<Log<D>>> = {
            let all = self.logs.borrow();
            slots.iter().filter_map(|slot| all.get(*slot)).collect()
        };
        let existing: Vec<Vec<Offset>> = logs
            .iter()
            .map(|log| {
                log.state
                    .borrow()
                    .segments
                    .iter()
                    .filter(|s| s.exists)
                    .map(|s| s.base)
                    .collect()
            })
            .collect();
        let synced = self.disk.sync_filesystem(&self.dir).await;
        synced.map_err(|error| self.fail(error))?;
        for (log, bases) in logs.iter().zip(existing) {
            let mut state = log.state.borrow_mut();
            for base in bases {
                if let Some(segment) = state.segment_mut(base) {
                    segment.is_named = true;
                }
            }
        }
        Ok(())
    }

    /// Writes the new entries of the active segment's indexes to their files, not synced. Nothing for a log that is not open any
    /// more: its directory may be another's by now.
    pub(crate) async fn write_active_indexes(
        &self,
        log: &Log<D>,
        entries_min: usize,
    ) -> Result<(), StorageError> {
        self.index_lock(log).await;
        let written = match self.log(log.log_ref) {
            Some(_) => self.write_indexes_locked(log, entries_min).await,
            None => Ok(()),
        };
        self.index_unlock(log);
        written
    }

    /// One at a time writes the index files of a log.
    async fn index_lock(&self, log: &Log<D>) {
        self.moved
            .until(|| (!log.indexing.get()).then(|| log.indexing.set(true)))
            .await;
    }

    fn index_unlock(&self, log: &Log<D>) {
        log.indexing.set(false);
        self.moved.notify();
    }

    async fn write_indexes_locked(&self, log: &Log<D>, entries_min: usize) -> Result<(), StorageError> {
        let (base, parts) = {
            let mut state = log.state.borrow_mut();
            let is_filed = state.is_filed();
            let active = state.active();
            let base = active.base;
            let Some(indexes) = active.indexes.as_ref().filter(|_| active.exists) else {
                return Ok(());
            };
            if is_filed {
                return Ok(());
            }
            // A look-up goes on behind the last entry of the sparse indexes; that of transactions must have all of them.
            let is_txn_written = indexes.txn.dirty_from() == indexes.txn.len();
            if indexes.offset.len() - indexes.offset.dirty_from() < entries_min && is_txn_written {
                return Ok(());
            }
            (base, index_parts(indexes))
        };
        let [_, time, _] = &parts;
        let has_times = time.entries > 0;
        for part in &parts {
            let path = segment_path(&log.dir, base, part.kind);
            // Kafka's tools read a time index beside an offset index, if an empty one.
            let is_wanted = part.entries > 0 || (has_times && part.kind == SegmentFileKind::OffsetIndex);
            let written = write_part(&self.disk, &path, part, is_wanted).await;
            written.map_err(|error| self.fail(error))?;
        }
        let mut state = log.state.borrow_mut();
        if let Some(indexes) = state
            .segment_mut(base)
            .and_then(|segment| segment.indexes.as_mut())
        {
            let [offset, time, txn] = &parts;
            indexes.offset.mark_persisted(offset.entries);
            indexes.time.mark_persisted(time.entries);
            indexes.txn.mark_persisted(txn.entries);
        }
        Ok(())
    }

    /// Writes the epochs of the records below `end` when they changed, durable when this returns. Those records are synced:
    /// the file never tells of an epoch whose batches a power loss can take.
    async fn write_epochs(&self, log: &Log<D>, end: Offset) -> Result<(), StorageError> {
        let changed = log.state.borrow_mut().changed_epochs(end);
        let Some(text) = changed else { return Ok(()) };
        let path = log.dir.join(LEADER_EPOCH_FILE);
        let written = write_atomic(&self.disk, &path, text.as_bytes()).await;
        written.map_err(|error| {
            log.state.borrow_mut().epochs_dirty = true;
            self.fail(error)
        })
    }
}

impl<D: Disk> LogState<D> {
    /// The file of the epochs of records below `end`, when it is not what is on disk.
    pub(crate) fn changed_epochs(&mut self, end: Offset) -> Option<String> {
        if !self.epochs_dirty {
            return None;
        }
        let epochs = self.epochs_below(end);
        self.epochs_dirty = epochs != self.epochs;
        Some(epochs.encode())
    }

    fn next_flush(&mut self, disk: &D, to: FlushTo) -> Next<D> {
        let base = self.cursor.segment;
        let rolled = self.segment_after(base).is_some();
        let segment = self.segment(base).expect("the cursor is in a segment");
        let size = segment.size;
        if segment.file.is_none() {
            // A log that was rolled without an append (retention took all of it) has no file for what comes next.
            return if size > 0 || rolled || !segment.exists {
                Next::Open {
                    base,
                    create: !segment.exists,
                }
            } else {
                Next::Done
            };
        }
        let durable = match self.durable_position() {
            (durable, position) if durable == base => position,
            (durable, _) if durable > base => size,
            _ => 0,
        };
        let complete = rolled && durable == size;
        let issued_to = self.cursor.issued_to();
        // The written position is unaligned only behind a partly filled block, and then the residue reaches it.
        let pending =
            durable > self.cursor.issued && (durable > issued_to || self.cursor.partial == Partial::No);
        let all_written = self.cursor.written() >= (base, size);
        if complete && (all_written || size == 0) && self.cursor.is_still() {
            return Next::Finish(base);
        }
        if !pending || self.cursor.partial != Partial::No {
            return Next::Done;
        }
        if !self.cursor.is_block_free() {
            return Next::Wait;
        }
        let end = if complete || to == FlushTo::End {
            durable
        } else {
            align_down(u64::from(durable)) as u32
        };
        let end = end.min(self.cursor.issued.saturating_add(STRETCH_BYTES_MAX));
        if end <= self.cursor.issued {
            return Next::Done;
        }
        // Batches taken while the last block is partly on disk carry its bytes into the journal (Partial::OnDisk); those
        // taken before do not, so the block is not written under them.
        let partial = u64::from(end) != align_down(u64::from(end)) && !complete;
        if partial && self.tail.is_committing(self.durable_end) {
            return Next::Wait;
        }
        match self.unallocated(base, end) {
            Some(file) if file.is_growing() => Next::Wait,
            Some(file) => Next::Extend(file, align_up(u64::from(end))),
            None => Next::Write(self.stretch(disk, end)),
        }
    }

    /// The segment's file when it has no blocks yet for all bytes up to `end`.
    pub(crate) fn unallocated(&self, base: Offset, end: u32) -> Option<Rc<SegmentFile<D>>> {
        let file = self.segment(base)?.file.as_ref()?;
        (file.allocated() < align_up(u64::from(end))).then(|| Rc::clone(file))
    }

    /// What a segment of this log can hold, in whole blocks.
    pub(crate) fn segment_bytes_max(&self) -> u64 {
        align_up(u64::from(self.config.segment_bytes))
    }

    /// Issues the write of `[issued, end)` of the cursor's segment.
    fn stretch(&mut self, disk: &D, end: u32) -> Stretch<D> {
        let base = self.cursor.segment;
        let from = self.cursor.issued;
        let mut chunks = Chunks::new(disk, (end - from) as usize);
        self.gather(base, from, end, |piece| chunks.put(piece));
        let file = self.segment(base).and_then(|segment| segment.file.clone());
        let flight = self.issue(end);
        Stretch {
            file: file.expect("the caller has looked"),
            chunks,
            position: u64::from(from),
            flight,
        }
    }

    /// Moves the cursor to `end`, keeping the bytes of a partly filled last block. Returns the flight.
    pub(crate) fn issue(&mut self, end: u32) -> u64 {
        let base = self.cursor.segment;
        let block = align_down(u64::from(end)) as u32;
        let mut residue = Vec::with_capacity((end - block) as usize);
        if block < end {
            self.gather(base, block, end, |piece| residue.extend_from_slice(piece));
        }
        self.cursor.partial = if residue.is_empty() {
            Partial::No
        } else {
            Partial::OnDisk
        };
        self.cursor.residue = residue;
        self.cursor.issued = block;
        self.cursor.launch(end)
    }
}

fn closing_files<D: Disk>(
    log: &Log<D>,
    segment: &crate::segment::state::Segment<D>,
    next: Offset,
) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = Vec::with_capacity(4);
    if let Some(indexes) = &segment.indexes {
        files.extend(index_files(&log.dir, segment.base, indexes));
    }
    if let Some(snapshot) = &segment.snapshot_at_roll {
        files.push((
            segment_path(&log.dir, next, SegmentFileKind::ProducerSnapshot),
            snapshot.clone(),
        ));
    }
    files
}

/// What the index files of a segment should hold on disk; the transaction index only if it has entries.
pub(crate) fn index_contents(indexes: &SegmentIndexes) -> Vec<(SegmentFileKind, Vec<u8>)> {
    let mut offset = Vec::new();
    indexes.offset.encode_from(0, &mut offset);
    let mut time = Vec::new();
    indexes.time.encode_from(0, &mut time);
    let mut files = vec![
        (SegmentFileKind::OffsetIndex, offset),
        (SegmentFileKind::TimeIndex, time),
    ];
    if !indexes.txn.is_empty() {
        let mut txn = Vec::new();
        indexes.txn.encode_from(0, &mut txn);
        files.push((SegmentFileKind::TxnIndex, txn));
    }
    files
}

/// The same under the names they have beside the segment at `base`.
pub(crate) fn index_files(
    dir: &Path,
    base: Offset,
    indexes: &SegmentIndexes,
) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let contents = index_contents(indexes).into_iter();
    contents
        .map(|(kind, bytes)| (segment_path(dir, base, kind), bytes))
        .collect()
}

/// The end of an index file: whole blocks from `position` on.
struct IndexPart {
    kind: SegmentFileKind,
    /// Entries the file holds afterwards.
    entries: usize,
    position: u64,
    bytes: Vec<u8>,
}

/// What the files of an active segment's indexes lack, from the beginning of the block where they end.
fn index_parts(indexes: &SegmentIndexes) -> [IndexPart; 3] {
    let part =
        |kind, entry_bytes: usize, entries, dirty_from: usize, encode: &dyn Fn(usize, &mut Vec<u8>)| {
            let position = align_down((dirty_from * entry_bytes) as u64);
            let first = position as usize / entry_bytes;
            let mut bytes = Vec::new();
            encode(first, &mut bytes);
            bytes.drain(..position as usize - first * entry_bytes);
            IndexPart {
                kind,
                entries,
                position,
                bytes,
            }
        };
    let SegmentIndexes {
        offset, time, txn, ..
    } = indexes;
    [
        part(
            SegmentFileKind::OffsetIndex,
            OFFSET_ENTRY_BYTES,
            offset.len(),
            offset.dirty_from(),
            &|n, out| offset.encode_from(n, out),
        ),
        part(
            SegmentFileKind::TimeIndex,
            TIME_ENTRY_BYTES,
            time.len(),
            time.dirty_from(),
            &|n, out| time.encode_from(n, out),
        ),
        part(
            SegmentFileKind::TxnIndex,
            TXN_ENTRY_BYTES,
            txn.len(),
            txn.dirty_from(),
            &|n, out| txn.encode_from(n, out),
        ),
    ]
}

/// Brings an index file up to date; one that is not there is made only if it `is_wanted`.
async fn write_part<D: Disk>(
    disk: &D,
    path: &Path,
    part: &IndexPart,
    is_wanted: bool,
) -> Result<(), DiskError> {
    let file = match disk.open(path, OpenMode::ReadWrite).await {
        Err(error) if error.is_not_found() && !is_wanted => return Ok(()),
        Err(error) if error.is_not_found() => disk.open(path, OpenMode::CreateNew).await?,
        opened => opened?,
    };
    if !part.bytes.is_empty() {
        let mut chunks = Chunks::<D>::new(disk, part.bytes.len());
        chunks.put(&part.bytes);
        chunks.write(&file, part.position).await?;
    }
    file.truncate(part.position + part.bytes.len() as u64).await?;
    file.close().await
}
