//! Cutting a segment's file to where the log's frames leave it.

use std::path::Path;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::StorageError;

/// Cuts the file to `end` bytes if it is longer. One that is not there was deleted since.
///
/// # Errors
/// From the disk.
pub(super) async fn cut_behind<D: Disk>(disk: &D, path: &Path, end: u64) -> Result<(), StorageError> {
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
