//! The `.log` file of a segment while it is written: opened or created, allocated ahead of the write position in growing
//! steps (extending by writing halves the throughput, `glommio.md` §3.3), cut to its true size when it is closed.

use std::cell::Cell;
use std::path::Path;

use crate::commit::buffers::Chunks;
use crate::disk::{Disk, DiskError, DiskFile, OpenMode, align_up};

/// The first step by which a segment is allocated ahead, bytes.
const STEP_BYTES_MIN: u64 = 64 << 10;
/// The largest step, bytes.
const STEP_BYTES_MAX: u64 = 32 << 20;

/// An open segment file. Memory: about 200 bytes and a file descriptor.
pub(crate) struct SegmentFile<D: Disk> {
    file: D::File,
    /// The file's size: everything below it has blocks.
    allocated: Cell<u64>,
    step: Cell<u64>,
}

impl<D: Disk> SegmentFile<D> {
    /// Opens the file for reading and writing; `create` when it does not exist yet. Its name is then not durable.
    pub(crate) async fn open(disk: &D, path: &Path, create: bool) -> Result<Self, DiskError> {
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
            step: Cell::new(STEP_BYTES_MIN),
        })
    }

    pub(crate) const fn file(&self) -> &D::File {
        &self.file
    }

    /// Allocates so that bytes up to `end` can be written without extending the file, and a step more, but not beyond
    /// `limit` (what the segment can hold) unless `end` itself is.
    pub(crate) async fn allocate_for(&self, end: u64, limit: u64) -> Result<(), DiskError> {
        if end <= self.allocated.get() {
            return Ok(());
        }
        let step = self.step.get();
        let target = align_up((end + step).min(limit.max(end)));
        // Set first: a second write beside this one must not allocate the same range again.
        self.allocated.set(target);
        self.step.set((step * 2).min(STEP_BYTES_MAX));
        self.file.allocate(target).await
    }

    /// Writes at `position`; the range must have been allocated.
    pub(crate) async fn write(&self, chunks: Chunks<D>, position: u64) -> Result<(), DiskError> {
        debug_assert!(position + chunks.padded_bytes() <= self.allocated.get());
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
            self.allocated.set(size);
            self.step.set(STEP_BYTES_MIN);
        }
        Ok(())
    }
}
