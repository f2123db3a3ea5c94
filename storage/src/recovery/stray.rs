//! A directory with a log's name that belongs to another topic: set aside, never read and never removed.

use protocol::Uuid;

use crate::checkpoint::{CheckpointError, partition_metadata};
use crate::disk::{DirEntry, Disk};
use crate::error::StorageError;
use crate::layout::{DirMark, PARTITION_METADATA_FILE, PartitionName};
use crate::store::Store;
use crate::types::{LogId, TopicId};

impl<D: Disk> Store<D> {
    /// Renames the directory `name` with these `entries` to `…-stray`, as Kafka does, if its `partition.metadata` names
    /// another topic than `id`; returns whether it did. A crash leaves such a directory when a topic's removal from the
    /// metadata was durable and the rename to `…-delete` was not, or somebody put it there: its records are not this topic's.
    pub(crate) async fn set_stray_aside(
        &self,
        name: &str,
        id: LogId,
        entries: &[DirEntry],
    ) -> Result<bool, StorageError> {
        if !entries.iter().any(|entry| entry.name == PARTITION_METADATA_FILE) {
            return Ok(false); // it is not synced when a log is made, so a crash may have taken it
        }
        let dir = self.dir.join(name);
        let found = match partition_metadata::load(&self.disk, &dir.join(PARTITION_METADATA_FILE)).await {
            Ok(Some(found)) if found != id.topic => found,
            Ok(_) => return Ok(false),
            Err(CheckpointError::Disk(error)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "unreadable: written anew");
                self.write_metadata(&dir, id).await?;
                return Ok(false);
            }
        };
        let aside = stray_name(name, found);
        let (found, expected) = (Uuid(found.0), Uuid(id.topic.0));
        tracing::warn!(dir = %dir.display(), %found, %expected, %aside, "of another topic id: set aside");
        self.disk.rename(&dir, &self.dir.join(aside)).await?;
        self.disk.sync_dir(&self.dir).await?;
        Ok(true)
    }

    /// Renames the directory `name`, which is no open log's, to `…-stray` if its `partition.metadata` names a topic that is not
    /// known; one that does not say whose it is stays as it is.
    ///
    /// # Errors
    /// From the disk.
    pub async fn set_unknown_aside(
        &self,
        name: &str,
        is_known: impl Fn(TopicId) -> bool,
    ) -> Result<(), StorageError> {
        let dir = self.dir.join(name);
        let found = partition_metadata::load(&self.disk, &dir.join(PARTITION_METADATA_FILE)).await;
        let Some(topic) = found.ok().flatten().filter(|topic| !is_known(*topic)) else {
            return Ok(());
        };
        let aside = stray_name(name, topic);
        tracing::warn!(
            dir = %dir.display(), topic = %Uuid(topic.0), %aside,
            "of a topic that was deleted: set aside; remove it, if nobody wants its records"
        );
        self.disk.rename(&dir, &self.dir.join(aside)).await?;
        Ok(self.disk.sync_dir(&self.dir).await?)
    }
}

/// The name of the directory `name` of `topic` when it is set aside.
fn stray_name(name: &str, topic: TopicId) -> String {
    let unique = format!("{:032x}", u128::from_be_bytes(topic.0));
    PartitionName::parse(name).map_or_else(
        || format!("{name}.{unique}-stray"),
        |parsed| parsed.marked(&unique, DirMark::Stray),
    )
}
