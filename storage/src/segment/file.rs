//! The `.log` file of a segment while it is written or read: opened or created, allocated ahead of the write position in
//! growing steps (extending by writing halves the throughput, `glommio.md` §3.3) within the store's [`Headroom`], cut to its
//! true size when it is closed.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use super::headroom::Headroom;
use crate::commit::buffers::Chunks;
use crate::disk::{Disk, DiskError, DiskFile, OpenMode, align_down, align_up};

/// The first step by which a segment is allocated ahead, bytes.
const STEP_BYTES_MIN: u64 = 64 << 10;
/// The largest step, bytes.
const STEP_BYTES_MAX: u64 = 32 << 20;

/// An open segment file. Memory: about 200 bytes and a file descriptor.
pub(crate) struct SegmentFile<D: Disk> {
    file: D::File,
    /// The file's size: everything below it has blocks.
    allocated: Cell<u64>,
    /// Of that, up to where writes have begun; the rest is charged to the headroom.
    announced: Cell<u64>,
    step: Cell<u64>,
    headroom: Rc<Headroom>,
    is_growing: Cell<bool>,
    /// It was used since this was last asked.
    was_used: Cell<bool>,
}

impl<D: Disk> SegmentFile<D> {
    /// Opens the file for reading and writing; `create` when it does not exist yet. Its name is then not durable. `ahead`:
    /// what [`Self::park`] said when it was last closed.
    pub(crate) async fn open(
        disk: &D,
        path: &Path,
        create: bool,
        ahead: u64,
        headroom: &Rc<Headroom>,
    ) -> Result<Self, DiskError> {
        let mode = if create {
            OpenMode::CreateOrTruncate
        } else {
            OpenMode::ReadWrite
        };
        let file = disk.open(path, mode).await?;
        let size = file.size().await?;
        Ok(Self {
            file,
            allocated: Cell::new(size),
            announced: Cell::new(size.saturating_sub(ahead)),
            step: Cell::new(STEP_BYTES_MIN),
            headroom: Rc::clone(headroom),
            is_growing: Cell::new(false),
            was_used: Cell::new(true),
        })
    }

    pub(crate) fn file(&self) -> &D::File {
        self.was_used.set(true);
        &self.file
    }

    /// Whether the file was used since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.was_used.replace(false)
    }

    /// The file is to be closed and opened again later: what of it stays allocated ahead, bytes.
    pub(crate) fn park(&self) -> u64 {
        let ahead = self.ahead();
        self.announced.set(self.allocated.get()); // so that dropping this does not give it back
        ahead
    }

    /// Up to where the file has blocks.
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated.get()
    }

    /// Somebody is extending the file: what [`Self::allocated`] says may grow soon.
    pub(crate) fn is_growing(&self) -> bool {
        self.is_growing.get()
    }

    /// Allocates so that bytes up to `end` can be written without extending the file, and a step more as far as the
    /// headroom allows, but not beyond `limit` (what the segment can hold) unless `end` itself is. One call at a time; a
    /// second one does nothing.
    ///
    /// # Errors
    /// From the disk; the file is as it was.
    pub(crate) async fn allocate_for(&self, end: u64, limit: u64) -> Result<(), DiskError> {
        self.was_used.set(true);
        let before = self.allocated.get();
        if end <= before || self.is_growing.replace(true) {
            return Ok(());
        }
        let step = self.step.get();
        let needed = align_up(end);
        let wanted = align_up((end + step).min(limit.max(end))) - needed;
        let taken = self.headroom.take(needed - before, wanted);
        let mut target = needed + align_down(taken);
        let mut allocated = self.file.allocate(target).await;
        if target > needed && allocated.as_ref().is_err_and(DiskError::is_full) {
            target = needed; // there is less than was seen: what must be written may fit still
            allocated = self.file.allocate(target).await;
        }
        if allocated.is_ok() {
            self.headroom.settle(needed - before, taken, target - before);
            self.allocated.set(target);
            self.step.set((step * 2).min(STEP_BYTES_MAX));
        } else {
            self.headroom.settle(needed - before, taken, 0);
            // A file system may keep what it found before it met the end; if it refuses this as well, nothing is lost but that.
            self.file.truncate(before).await.ok();
        }
        self.is_growing.set(false);
        allocated
    }

    /// A write up to `end`, which is allocated, is about to begin.
    pub(crate) fn announce(&self, end: u64) {
        let end = align_up(end).min(self.allocated.get());
        if end > self.announced.get() {
            self.headroom.give_back(end - self.announced.get());
            self.announced.set(end);
        }
    }

    /// Writes at `position`; the range must have been allocated.
    pub(crate) async fn write(&self, chunks: Chunks<D>, position: u64) -> Result<(), DiskError> {
        let end = position + chunks.padded_bytes();
        assert!(
            end <= self.allocated.get(),
            "a write to a segment never extends the file"
        );
        self.was_used.set(true);
        self.announce(end);
        chunks.write(&self.file, position).await
    }

    /// Makes what was written durable.
    pub(crate) async fn sync(&self) -> Result<(), DiskError> {
        self.file.sync().await
    }

    /// Cuts the file to its `size` true bytes and makes that durable.
    pub(crate) async fn cut(&self, size: u64) -> Result<(), DiskError> {
        self.shorten(size).await?;
        self.file.sync().await
    }

    /// Cuts the file to its `size` true bytes.
    pub(crate) async fn shorten(&self, size: u64) -> Result<(), DiskError> {
        if self.allocated.get() > size {
            self.file.truncate(size).await?;
            self.headroom.give_back(self.ahead());
            self.allocated.set(size);
            self.announced.set(size);
            self.step.set(STEP_BYTES_MIN);
        }
        Ok(())
    }

    /// Gives back what is allocated behind `end`, up to where writes were planned, unless the file is just being extended.
    ///
    /// # Errors
    /// From the disk; the blocks may be there still then, and are not counted on.
    pub(crate) async fn give_back_tail(&self, end: u64) -> Result<(), DiskError> {
        let end = align_up(end).max(self.announced.get());
        if self.allocated.get() <= end || self.is_growing.replace(true) {
            return Ok(());
        }
        self.headroom.give_back(self.ahead());
        // At once: who plans a write meanwhile must not count on the rest.
        self.allocated.set(end);
        self.announced.set(end);
        self.step.set(STEP_BYTES_MIN);
        let cut = self.file.truncate(end).await;
        self.is_growing.set(false);
        cut
    }

    /// Whether blocks are allocated behind all writes that have begun.
    pub(crate) fn has_tail(&self) -> bool {
        self.ahead() > 0
    }

    /// Bytes allocated and not announced.
    fn ahead(&self) -> u64 {
        self.allocated.get() - self.announced.get()
    }
}

impl<D: Disk> Drop for SegmentFile<D> {
    fn drop(&mut self) {
        self.headroom.give_back(self.ahead());
    }
}
