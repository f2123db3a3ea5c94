//! Copying while the log is in use: whole segments first to last, the active one as far as it is in its file, then the other
//! files of each segment that is finished. Below cold reads at both disks ([`IoClass::CatchUp`]), at its own rate where there is
//! one. What retention or compaction does to the log meanwhile is done to the copy with the next step.

use std::io;

use super::{ACTIVE_BYTES_MAX, Copied, CopyStep, LEFT_BYTES_LIMIT, LogMove};
use crate::checkpoint::{read_small, write_plain};
use crate::commit::buffers::Chunks;
use crate::disk::{Disk, DiskError, DiskFile, IO_BYTES_MAX, OpenMode, align_down};
use crate::error::StorageError;
use crate::io_class::IoClass;
use crate::layout::SegmentFile;
use crate::log::segment_path;
use crate::types::Offset;
use crate::write_behind::FlushTo;

/// The largest index or snapshot file that is copied, bytes; a larger one is made anew by recovery.
const SMALL_FILE_BYTES_MAX: usize = 64 << 20;

/// Flushes of a log that takes no appends until it must be in its segments: one does it, and one for each segment.
const FLUSHES_MAX: u32 = 1000;

/// What is to be copied next.
enum Next {
    /// Batches of a segment.
    Bytes { base: Offset, from: u32, to: u32 },
    /// The other files of a segment; the next one starts at `end`.
    Files { base: Offset, end: Offset },
    /// Nothing before more of the log is in the segments. `behind`: there is too much of that.
    Flush { behind: bool },
    /// The active segment is large.
    Roll,
    /// Little is left.
    CaughtUp,
}

impl<D: Disk> LogMove<D> {
    /// Copies a piece of at most a megabyte, or the small files of a segment. `now_ms` is the wall clock's.
    ///
    /// # Errors
    /// From either disk; [`StorageError::NoSuchLog`] when the log is gone. The move is to be abandoned then.
    pub async fn copy_some(&mut self, now_ms: i64) -> Result<CopyStep, StorageError> {
        self.check()?;
        self.check_space()?;
        self.drop_gone().await?;
        match self.next() {
            Next::Bytes { base, from, to } => {
                self.copy_bytes(base, from, to, IoClass::CatchUp).await?;
                Ok(CopyStep::More)
            }
            Next::Files { base, end } => {
                self.finish_segment(base, end).await?;
                Ok(CopyStep::More)
            }
            Next::Flush { behind } => {
                if behind {
                    self.left_bytes_max = (self.left_bytes_max * 2).min(LEFT_BYTES_LIMIT);
                }
                self.from.flush_log(&self.log, FlushTo::FullBlocks).await?;
                Ok(CopyStep::Later)
            }
            Next::Roll => {
                let mut state = self.log.state.borrow_mut();
                let end = state.end;
                state.roll(end, now_ms);
                Ok(CopyStep::More)
            }
            Next::CaughtUp => Ok(CopyStep::CaughtUp),
        }
    }

    /// Copies all that there is, ahead of whatever waits at the disks: the log takes no appends, all of it is in its segments,
    /// and somebody waits.
    pub(super) async fn copy_rest(&mut self) -> Result<(), StorageError> {
        let mut flushes = 0;
        loop {
            self.drop_gone().await?;
            match self.next() {
                Next::Bytes { base, from, to } => {
                    self.copy_bytes(base, from, to, IoClass::TailRead).await?;
                }
                Next::Files { base, end } => self.finish_segment(base, end).await?,
                // Nothing has been awaited since the look: the copy is the log as it is now.
                Next::Roll | Next::CaughtUp => return Ok(()),
                Next::Flush { .. } => {
                    self.check()?;
                    flushes += 1;
                    if flushes > FLUSHES_MAX {
                        let reason = "the log does not come to rest in its segments";
                        return Err(StorageError::Offline(reason.into()));
                    }
                    self.from.flush_log(&self.log, FlushTo::End).await?;
                }
            }
        }
    }

    fn next(&self) -> Next {
        let state = self.log.state.borrow();
        let (written_segment, written) = state.cursor.written();
        let mut left_bytes = 0;
        let mut is_unfinished = false;
        let mut segments = state.segments.iter().peekable();
        while let Some(segment) = segments.next() {
            let base = segment.base;
            let on_disk = match base.cmp(&written_segment) {
                std::cmp::Ordering::Less => segment.size,
                std::cmp::Ordering::Equal => written.min(segment.size),
                std::cmp::Ordering::Greater => 0,
            };
            let copied = self.copied.get(&base);
            let from = copied.map_or(0, |copied| copied.position);
            if from < on_disk {
                return Next::Bytes {
                    base,
                    from,
                    to: on_disk,
                };
            }
            left_bytes += u64::from(segment.size.saturating_sub(from));
            let Some(next) = segments.peek() else { break };
            if !segment.finished {
                is_unfinished = true;
            } else if !copied.is_some_and(|copied| copied.is_finished) {
                return Next::Files { base, end: next.base };
            }
        }
        let behind = left_bytes > self.left_bytes_max;
        if is_unfinished || behind || (state.closing && left_bytes > 0) {
            return Next::Flush { behind };
        }
        let active = state.segments.back();
        if active.is_some_and(|active| active.size > ACTIVE_BYTES_MAX) {
            return Next::Roll;
        }
        Next::CaughtUp
    }

    /// Removes copies of segments that the log has no more, or has in another form.
    async fn drop_gone(&mut self) -> Result<(), StorageError> {
        let gone: Vec<Offset> = {
            let state = self.log.state.borrow();
            let is_there = |base: Offset, copied: &Copied<D>| {
                state.segment(base).is_some_and(|segment| {
                    segment.version == copied.version && segment.size >= copied.position
                })
            };
            let gone = self
                .copied
                .iter()
                .filter(|(base, copied)| !is_there(**base, copied));
            gone.map(|(base, _)| *base).collect()
        };
        for base in gone {
            self.copied.remove(&base);
            for kind in SegmentFile::ALL {
                let path = segment_path(&self.future, base, kind);
                match self.to.disk.remove_file(&path).await {
                    Err(error) if !error.is_not_found() => return Err(self.to.fail(error)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    async fn copy_bytes(
        &mut self,
        base: Offset,
        from: u32,
        to: u32,
        class: IoClass,
    ) -> Result<(), StorageError> {
        let at = align_down(u64::from(from));
        let len = (u64::from(to) - at).min(IO_BYTES_MAX as u64) as usize;
        let version = {
            let state = self.log.state.borrow();
            let Some(segment) = state.segment(base) else {
                return Ok(()); // the next step sees what became of it
            };
            segment.version
        };
        let bytes = {
            let file = match self.from.segment_file(&self.log, base).await {
                // Retention or compaction has just taken it away.
                Err(error) if error.is_not_found() => return self.check(),
                opened => opened?,
            };
            let _permit = self.from.io.permit(class, len as u64).await;
            file.file().read_at(at, len).await?
        };
        let is_same = {
            let state = self.log.state.borrow();
            state.segment(base).map(|segment| segment.version) == Some(version)
        };
        if !is_same {
            return Ok(());
        }
        if bytes.len() < len {
            let short = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(DiskError::new("read", self.log.segment_path(base), short).into());
        }
        let written = self.write_bytes(base, version, at, &bytes, class).await;
        written.map_err(|error| self.to.fail(error))
    }

    async fn write_bytes(
        &mut self,
        base: Offset,
        version: u32,
        at: u64,
        bytes: &[u8],
        class: IoClass,
    ) -> Result<(), DiskError> {
        let _permit = self.to.io.permit(class, bytes.len() as u64).await;
        if self.copied.get(&base).is_none_or(|copied| copied.file.is_none()) {
            let path = segment_path(&self.future, base, SegmentFile::Log);
            let is_new = !self.copied.contains_key(&base);
            let mode = if is_new {
                OpenMode::CreateOrTruncate
            } else {
                OpenMode::ReadWrite
            };
            let file = self.to.disk.open(&path, mode).await?;
            let copied = self.copied.entry(base).or_insert(Copied {
                version,
                position: 0,
                file: None,
                is_finished: false,
            });
            copied.file = Some(file);
        }
        let Some(copied) = self.copied.get_mut(&base) else {
            return Ok(());
        };
        if let Some(file) = &copied.file {
            let mut chunks = Chunks::<D>::new(&self.to.disk, bytes.len());
            chunks.put(bytes);
            chunks.write(file, at).await?;
            if let Some(held) = &mut self.held {
                held.spend(bytes.len() as u64);
            }
            copied.position = u32::try_from(at + bytes.len() as u64).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// The copy of a segment that is not the last gets its other files, its true size, and is synced.
    async fn finish_segment(&mut self, base: Offset, end: Offset) -> Result<(), StorageError> {
        // Compaction gives files their names one by one; whoever writes a log's files has this.
        self.from.flush_lock(&self.log).await;
        let is_same = match (self.copied.get(&base), self.log.state.borrow().segment(base)) {
            (Some(copied), Some(segment)) => segment.version == copied.version,
            (None, Some(_)) => true, // it has no batches
            (_, None) => false,
        };
        let copied = match is_same {
            true => self.copy_files(base, end).await,
            false => Ok(()),
        };
        self.from.flush_unlock(&self.log);
        copied?;
        if !is_same {
            return Ok(()); // another has taken its place, which the next step sees
        }
        let closed = self.close_copy(base).await;
        closed.map_err(|error| self.to.fail(error))?;
        if let Some(copied) = self.copied.get_mut(&base) {
            copied.is_finished = true;
        }
        Ok(())
    }

    async fn copy_files(&self, base: Offset, end: Offset) -> Result<(), StorageError> {
        let names = [
            (SegmentFile::OffsetIndex, base),
            (SegmentFile::TimeIndex, base),
            (SegmentFile::TxnIndex, base),
            (SegmentFile::ProducerSnapshot, end),
        ];
        for (kind, offset) in names {
            let path = segment_path(&self.log.dir, offset, kind);
            let bytes = match read_small(&self.from.disk, &path, SMALL_FILE_BYTES_MAX).await {
                Ok(bytes) => bytes,
                // Not every segment has each of them, and recovery makes anew what it misses.
                Err(error) if error.is_not_found() || error.source.kind() == io::ErrorKind::InvalidData => {
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let path = segment_path(&self.future, offset, kind);
            let written = write_plain(&self.to.disk, &path, &bytes).await;
            written.map_err(|error| self.to.fail(error))?;
        }
        Ok(())
    }

    /// Cuts the copy of a segment to its size, and syncs it.
    pub(super) async fn close_copy(&mut self, base: Offset) -> Result<(), DiskError> {
        if !self.copied.contains_key(&base) {
            // It has no batches, and yet a file.
            let path = segment_path(&self.future, base, SegmentFile::Log);
            let file = self.to.disk.open(&path, OpenMode::CreateOrTruncate).await?;
            let version = {
                let state = self.log.state.borrow();
                state.segment(base).map_or(0, |segment| segment.version)
            };
            self.copied.insert(
                base,
                Copied {
                    version,
                    position: 0,
                    file: Some(file),
                    is_finished: false,
                },
            );
        }
        let Some(copied) = self.copied.get_mut(&base) else {
            return Ok(());
        };
        let Some(file) = copied.file.take() else {
            return Ok(());
        };
        file.truncate(u64::from(copied.position)).await?;
        file.sync().await?;
        file.close().await
    }
}
