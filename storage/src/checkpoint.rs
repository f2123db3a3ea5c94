//! Small files that are replaced whole: after a crash a reader finds the old content or the new, never a mixture.
//! Kafka's own ones are text ([`offsets`], [`meta_properties`], [`partition_metadata`], [`clean_shutdown`]); ours carry
//! a versioned, checksummed [`envelope`].

pub mod clean_shutdown;
pub mod envelope;
pub mod meta_properties;
pub mod offsets;
pub mod partition_metadata;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::commit::buffers::Chunks;
use crate::disk::{Disk, DiskError, DiskFile, OpenMode, read_long};
use crate::error::{Damage, StorageError};
use crate::layout::TEMPORARY_SUFFIX;

/// The largest checkpoint file that is read, bytes: ten offsets files of 50,000 partitions with the longest names.
pub const CHECKPOINT_BYTES_MAX: usize = 128 << 20;

/// A checkpoint file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The disk refused.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The content is not what it must be.
    #[error("{}{}: {reason}", path.display(), Line(*line))]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line from 1, of a text file.
        line: Option<usize>,
        /// What is wrong with it.
        reason: String,
    },
    /// Written by a newer version of this software.
    #[error("{} has format version {found}; this build knows {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known.
        known: u32,
    },
}

/// Why a text is not a checkpoint, without the name of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TextError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

struct Line(Option<usize>);

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

impl TextError {
    pub(crate) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self {
            line,
            reason: reason.into(),
        }
    }

    /// The same with its file.
    #[must_use]
    pub fn in_file(self, path: &Path) -> CheckpointError {
        CheckpointError::Malformed {
            path: path.to_owned(),
            line: Some(self.line),
            reason: self.reason,
        }
    }
}

impl From<CheckpointError> for StorageError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Disk(error) => error.into(),
            CheckpointError::Version { path, found, known } => Self::Version { path, found, known },
            CheckpointError::Malformed { path, line, reason } => {
                let found = match line {
                    Some(line) => format!("line {line}: {reason}"),
                    None => reason,
                };
                Damage::of_file(path, 0, "a whole checkpoint", found).into()
            }
        }
    }
}

/// Replaces the content of `path` by `bytes`, durable with its name when this returns. One writer per path at a time:
/// two would share the temporary file.
///
/// # Errors
/// From the disk; `path` then holds its old content or the new, and perhaps a temporary file is left beside it.
pub async fn write_atomic<D: Disk>(disk: &D, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let Some(dir) = path.parent() else {
        return Err(DiskError::new("write", path, io::ErrorKind::InvalidInput.into()));
    };
    replace(disk, path, bytes).await?;
    disk.sync_dir(dir).await
}

/// [`write_atomic`] without the last step: the content is durable, the name will be when the directory is synced.
pub(crate) async fn replace<D: Disk>(disk: &D, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = temporary_path(path);
    let file = fill(disk, &temporary, bytes).await?;
    // The data is synced before the name points to it: a rename may reach the disk before data that was only written.
    file.sync().await?;
    file.close().await?;
    disk.rename(&temporary, path).await
}

/// Writes a small file in place and does not sync it: for what recovery can do without.
pub(crate) async fn write_plain<D: Disk>(disk: &D, path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    fill(disk, path, bytes).await?.close().await
}

async fn fill<D: Disk>(disk: &D, path: &Path, bytes: &[u8]) -> Result<D::File, DiskError> {
    let file = disk.open(path, OpenMode::CreateOrTruncate).await?;
    if !bytes.is_empty() {
        let mut chunks = Chunks::<D>::new(disk, bytes.len());
        chunks.put(bytes);
        chunks.write(&file, 0).await?;
        // The writes were whole blocks; the size is the content's.
        file.truncate(bytes.len() as u64).await?;
    }
    Ok(file)
}

/// The whole content of a file of at most `bytes_max` bytes.
///
/// # Errors
/// From the disk: a missing file is `NotFound`, a larger one `InvalidData`.
pub async fn read_small<D: Disk>(disk: &D, path: &Path, bytes_max: usize) -> Result<Bytes, DiskError> {
    let file = disk.open(path, OpenMode::Read).await?;
    let size = file.size().await?;
    if size > bytes_max as u64 {
        let reason = format!("{size} bytes where at most {bytes_max} are expected");
        return Err(DiskError::new(
            "read",
            path,
            io::Error::new(io::ErrorKind::InvalidData, reason),
        ));
    }
    let len = usize::try_from(size).unwrap_or(bytes_max);
    let bytes = read_long(&file, 0, len).await?;
    file.close().await?;
    Ok(bytes)
}

/// Reads a text checkpoint through `parse`; `None` when there is no such file.
///
/// # Errors
/// From the disk, or with file and line when the text is refused.
pub async fn load_text<D: Disk, T>(
    disk: &D,
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, TextError>,
) -> Result<Option<T>, CheckpointError> {
    let bytes = match read_small(disk, path, CHECKPOINT_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        TextError::new(line, "not UTF-8").in_file(path)
    })?;
    parse(text).map(Some).map_err(|error| error.in_file(path))
}

/// Where [`write_atomic`] collects the new content of `path`.
#[must_use]
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    PathBuf::from(name)
}
