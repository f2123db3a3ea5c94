//! What a start finds of moves that a crash has ended: copies under their own names.

use std::path::Path;

use super::METADATA;
use super::marker::Marker;
use crate::checkpoint::{CheckpointError, partition_metadata};
use crate::disk::{DirEntry, Disk};
use crate::error::StorageError;
use crate::layout::{DirMark, DirName, PartitionName};
use crate::types::{Offset, TopicId};

/// A copy that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its directory.
    pub directory: String,
    /// The partition that it is of.
    pub name: PartitionName,
    /// Where it ends and whose it is, if it is whole: the partition's log may have been given up for it.
    pub whole: Option<(Offset, TopicId)>,
}

/// The copies among the entries of the log directory `dir`.
///
/// # Errors
/// From the disk.
pub async fn leftovers<D: Disk>(
    disk: &D,
    dir: &Path,
    entries: &[DirEntry],
) -> Result<Vec<Leftover>, StorageError> {
    let mut found = Vec::new();
    for entry in entries.iter().filter(|entry| entry.is_dir) {
        let DirName::Replica {
            name,
            mark: DirMark::Future,
            ..
        } = DirName::parse(&entry.name)
        else {
            continue;
        };
        let at = dir.join(&entry.name);
        let marker = readable(Marker::load(disk, &at).await)?;
        let topic = readable(partition_metadata::load(disk, &at.join(METADATA)).await)?;
        found.push(Leftover {
            directory: entry.name.clone(),
            name,
            whole: marker.map(|marker| marker.end).zip(topic),
        });
    }
    Ok(found)
}

/// A file that cannot be understood is as good as none: it was being written.
fn readable<T>(loaded: Result<Option<T>, CheckpointError>) -> Result<Option<T>, StorageError> {
    match loaded {
        Ok(found) => Ok(found),
        Err(CheckpointError::Disk(error)) => Err(error.into()),
        Err(error) => {
            tracing::warn!(%error, "of a copy that was being made");
            Ok(None)
        }
    }
}
