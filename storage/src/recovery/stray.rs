//! A directory with a log's name that belongs to another topic: set aside, never read and never removed.

use std::path::Path;

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
            // It was listed: who sets aside what the start found of other topics has done so since.
            Ok(None) => return self.is_gone(&dir).await,
            Ok(Some(_)) => return Ok(false),
            Err(CheckpointError::Disk(error)) => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "unreadable: written anew");
                self.write_metadata(&dir, id).await?;
                return Ok(false);
            }
        };
        self.set_aside(name, found).await?;
        Ok(true)
    }

    /// Renames the directory `name` to `…-stray` if its `partition.metadata` names a topic that is not known; one that does not say
    /// whose it is stays as it is. `is_known` must know of each topic before somebody opens a log of it.
    ///
    /// # Errors
    /// From the disk.
    pub async fn set_unknown_aside(
        &self,
        name: &str,
        is_known: impl Fn(TopicId) -> bool,
    ) -> Result<(), StorageError> {
        let Some(topic) = self.topic_of(name).await.filter(|topic| !is_known(*topic)) else {
            return Ok(());
        };
        match self.set_aside(name, topic).await {
            // Whoever opened a log of that name was faster, and has made its own directory.
            Err(_) if self.topic_of(name).await != Some(topic) => Ok(()),
            done => done,
        }
    }

    async fn topic_of(&self, name: &str) -> Option<TopicId> {
        let path = self.dir.join(name).join(PARTITION_METADATA_FILE);
        partition_metadata::load(&self.disk, &path).await.ok().flatten()
    }

    /// Renames the directory `name` of a topic that it is not the name of any more. Who opens a log of that name does so, as does who
    /// looks through what a start found, and that may be on another shard: whoever comes second finds it done.
    async fn set_aside(&self, name: &str, topic: TopicId) -> Result<(), StorageError> {
        let dir = self.dir.join(name);
        let aside = stray_name(name, topic);
        match self.disk.rename(&dir, &self.dir.join(&aside)).await {
            Ok(()) => tracing::warn!(
                dir = %dir.display(), topic = %Uuid(topic.0), %aside,
                "of another topic, which was deleted: set aside; remove it, if nobody wants its records"
            ),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(self.disk.sync_dir(&self.dir).await?)
    }

    async fn is_gone(&self, dir: &Path) -> Result<bool, StorageError> {
        match self.disk.list(dir).await {
            Ok(_) => Ok(false),
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => Err(error.into()),
        }
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
