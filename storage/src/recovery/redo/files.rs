//! What a replay does to the files of a log: writes what it collected, compares extents, ends and removes segments.

use std::path::Path;

use super::damage;
use super::log::LogRedo;
use crate::checkpoint::{CheckpointError, partition_metadata, write_plain};
use crate::commit::buffers::Chunks;
use crate::disk::{Disk, DiskFile, OpenMode, align_down, align_up};
use crate::error::StorageError;
use crate::layout::{FileName, PARTITION_METADATA_FILE, SegmentFile as SegmentFileKind};
use crate::log::read::read_window;
use crate::log::segment_path;
use crate::types::Offset;

impl LogRedo {
    /// The directory says whose it is: that file is not synced when a log is made, and without it the directory could be taken
    /// for that of a later topic of the same name.
    pub(super) async fn write_metadata<D: Disk>(&self, disk: &D) -> Result<(), StorageError> {
        let path = self.dir.join(PARTITION_METADATA_FILE);
        match partition_metadata::load(disk, &path).await {
            Ok(Some(_)) => return Ok(()),
            Err(CheckpointError::Disk(error)) => return Err(error.into()),
            Ok(None) | Err(_) => {}
        }
        let text = partition_metadata::format(self.id.topic);
        match write_plain(disk, &path, text.as_bytes()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()), // a directory that is missing is reported by whoever opens it
        }
    }

    /// Writes the collected bytes. Returns how many.
    pub(super) async fn write<D: Disk>(&mut self, disk: &D) -> Result<u64, StorageError> {
        if self.collected.is_empty() {
            return Ok(0);
        }
        let bytes = std::mem::take(&mut self.collected);
        let (segment, end) = self.end.expect("collected bytes have an end");
        let (to, from) = (u64::from(end), u64::from(end) - bytes.len() as u64);
        if self.half_made.contains_key(&segment) {
            return Ok(0);
        }
        let path = segment_path(&self.dir, segment, SegmentFileKind::Log);
        let (low, high) = (align_down(from), align_up(to));
        let file = match disk.open(&path, OpenMode::ReadWrite).await {
            Ok(file) => file,
            // The name of a file is durable before its journal frames go: it was deleted since.
            Err(error) if error.is_not_found() && from > 0 && !self.is_loose => {
                self.skipped = self.skipped.max(Some(segment));
                return Ok(0);
            }
            Err(error) if error.is_not_found() && self.was_removed(disk).await? => {
                self.skipped = self.skipped.max(Some(segment));
                return Ok(0);
            }
            Err(error) if error.is_not_found() => open_or_create(disk, &path).await?,
            Err(error) => return Err(error.into()),
        };
        let size = file.size().await?;
        let before = read_window(&file, low, (from - low) as usize).await?;
        let missing = (from - low) as usize - before.len();
        if missing > 0 && !self.is_loose {
            return Err(damage(
                &path,
                size,
                format!("a file of {size} bytes where {from} were durable"),
            ));
        }
        let behind = if size > to {
            read_window(&file, to, (high - to) as usize).await?
        } else {
            bytes::Bytes::new()
        };
        let mut chunks = Chunks::<D>::new(disk, (high - low) as usize);
        chunks.put(&before);
        chunks.put(&vec![0; missing]);
        chunks.put(&bytes);
        chunks.put(&behind);
        chunks.write(&file, low).await?;
        if size < high {
            file.truncate(size.max(to)).await?; // the padding of the last block is nobody's
        }
        file.close().await?;
        Ok(bytes.len() as u64)
    }

    /// Whether the segment that ends where the frames are now was removed, so that nobody needs its bytes: it was finished, as the
    /// snapshot of its end says, and the log starts above it. Made again it could take space that others have now.
    async fn was_removed<D: Disk>(&self, disk: &D) -> Result<bool, StorageError> {
        if self.is_loose || self.end_offset > self.starts_at {
            return Ok(false);
        }
        let snapshot = segment_path(&self.dir, self.end_offset, SegmentFileKind::ProducerSnapshot);
        match disk.open(&snapshot, OpenMode::Read).await {
            Ok(file) => {
                file.close().await?;
                Ok(true)
            }
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn remove_half_made<D: Disk>(&self, disk: &D) -> Result<(), StorageError> {
        for segment in self.half_made.keys() {
            let path = segment_path(&self.dir, *segment, SegmentFileKind::Log);
            disk.remove_file(&path).await?;
        }
        Ok(())
    }

    /// The frames go on in segment `next`: the one before ends where they left it. It may have been cut there already, and then
    /// written once more by this replay or one before it, in whole blocks.
    pub(super) async fn leave_segment<D: Disk>(&self, disk: &D, next: Offset) -> Result<(), StorageError> {
        let Some((segment, end)) = self.end.filter(|(segment, _)| *segment < next && !self.is_loose) else {
            return Ok(());
        };
        let path = segment_path(&self.dir, segment, SegmentFileKind::Log);
        cut_behind(disk, &path, u64::from(end)).await
    }

    /// Cuts the last segment to the log's end and removes segments above it. When the last segment was deleted, what lies
    /// above it was begun later, and nothing is cut.
    pub(super) async fn cut_files<D: Disk>(&self, disk: &D) -> Result<(), StorageError> {
        let Some((segment, end)) = self.end else {
            return Ok(());
        };
        if self.skipped == Some(segment) {
            return Ok(());
        }
        let file = open_or_create(disk, &segment_path(&self.dir, segment, SegmentFileKind::Log)).await?;
        file.truncate(u64::from(end)).await?;
        file.close().await?;
        for entry in disk.list(&self.dir).await? {
            if let FileName::Segment {
                file: SegmentFileKind::Log,
                base,
                mark: None,
            } = FileName::parse(&entry.name)
                && base > segment
            {
                disk.remove_file(&self.dir.join(&entry.name)).await?;
            }
        }
        Ok(())
    }
}

/// What is found where an extent should be.
#[derive(PartialEq, Eq)]
pub(super) enum Extent {
    NoFile,
    Short,
    Crc(u32),
}

/// CRC-32C of `len` bytes at `position`. Where a sync of them may have failed (not `durable`) and they are as `expected`, they are
/// written once more: after a failed sync they can be read although no later sync writes them.
pub(super) async fn extent_crc<D: Disk>(
    disk: &D,
    path: &Path,
    (position, len): (u32, u32),
    expected: u32,
    durable: bool,
) -> Result<Extent, StorageError> {
    let mode = if durable {
        OpenMode::Read
    } else {
        OpenMode::ReadWrite
    };
    let file = match disk.open(path, mode).await {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(Extent::NoFile),
        Err(error) => return Err(error.into()),
    };
    let bytes = read_window(&file, u64::from(position), len as usize).await?;
    let found = if bytes.len() < len as usize {
        Extent::Short
    } else {
        Extent::Crc(crc32c::crc32c(&bytes))
    };
    if !durable && found == Extent::Crc(expected) {
        let mut chunks = Chunks::<D>::new(disk, bytes.len());
        chunks.put(&bytes);
        chunks.write(&file, u64::from(position)).await?;
    }
    file.close().await?;
    Ok(found)
}

/// Cuts the file to `end` bytes if it is longer. One that is not there was deleted since.
///
/// # Errors
/// From the disk.
async fn cut_behind<D: Disk>(disk: &D, path: &Path, end: u64) -> Result<(), StorageError> {
    let file = match disk.open(path, OpenMode::ReadWrite).await {
        Err(error) if error.is_not_found() => return Ok(()),
        opened => opened?,
    };
    if file.size().await? > end {
        file.truncate(end).await?;
    }
    file.close().await?;
    Ok(())
}

async fn open_or_create<D: Disk>(disk: &D, path: &Path) -> Result<D::File, StorageError> {
    match disk.open(path, OpenMode::ReadWrite).await {
        Ok(file) => Ok(file),
        Err(error) if error.is_not_found() => {
            if let Some(parent) = path.parent() {
                disk.create_dir(parent).await?;
            }
            Ok(disk.open(path, OpenMode::CreateNew).await?)
        }
        Err(error) => Err(error.into()),
    }
}
