//! Up to where each log is clean, on disk: Kafka's `cleaner-offset-checkpoint` in the log directory, so that a directory of
//! Kafka's goes on where it was and the other way round. Shards share that file, so each running one keeps what it cleaned
//! itself in a file of its own, `.penstock/checkpoints/cleaner-<n>`, in the same format; the next start merges them. An offset
//! of −1 there takes an entry away: that log was deleted.
//!
//! What is lost of it is cleaned once more, which changes nothing. An entry that is too high would hide records from the
//! cleaner: therefore the smaller of two wins.

use std::path::{Path, PathBuf};

use crate::checkpoint::offsets::{self, Offsets};
use crate::disk::Disk;
use crate::error::StorageError;
use crate::layout::{CLEANER_OFFSET_FILE, checkpoint_dir};
use crate::types::Offset;

const SHARD_PREFIX: &str = "cleaner-";

/// What the merged file says; nothing when it is missing. One that cannot be read is reported and left out: it is only about
/// work done twice.
///
/// # Errors
/// From the disk.
pub(crate) async fn load<D: Disk>(disk: &D, dir: &Path) -> Result<Offsets, StorageError> {
    load_or_nothing(disk, &dir.join(CLEANER_OFFSET_FILE)).await
}

/// Replaces the file of a shard, durably.
///
/// # Errors
/// From the disk.
pub(crate) async fn save<D: Disk>(
    disk: &D,
    dir: &Path,
    shard: u16,
    cleaned: &Offsets,
) -> Result<(), StorageError> {
    Ok(offsets::save(disk, &shard_path(dir, shard), cleaned).await?)
}

/// Merges the files of all shards into one and removes them. No shard runs. Safe to repeat from any point.
///
/// # Errors
/// From the disk.
pub(crate) async fn merge<D: Disk>(disk: &D, dir: &Path) -> Result<(), StorageError> {
    let checkpoints = checkpoint_dir(dir);
    let entries = match disk.list(&checkpoints).await {
        Ok(entries) => entries,
        Err(error) if error.is_not_found() => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let of_shards = entries
        .iter()
        .filter(|entry| entry.name.starts_with(SHARD_PREFIX));
    let paths: Vec<PathBuf> = of_shards.map(|entry| checkpoints.join(&entry.name)).collect();
    if paths.is_empty() {
        return Ok(());
    }
    let mut newer = Offsets::new();
    for path in &paths {
        for (name, offset) in load_or_nothing(disk, path).await? {
            let known = newer.entry(name).or_insert(offset);
            *known = (*known).min(offset);
        }
    }
    let mut merged = load(disk, dir).await?;
    merged.extend(newer);
    merged.retain(|_, offset| *offset >= Offset::ZERO);
    offsets::save(disk, &dir.join(CLEANER_OFFSET_FILE), &merged).await?;
    for path in &paths {
        disk.remove_file(path).await?;
    }
    disk.sync_dir(&checkpoints).await?;
    Ok(())
}

async fn load_or_nothing<D: Disk>(disk: &D, path: &Path) -> Result<Offsets, StorageError> {
    match offsets::load(disk, path).await.map_err(StorageError::from) {
        Ok(found) => Ok(found.unwrap_or_default()),
        Err(StorageError::Damage(damage)) => {
            tracing::warn!(%damage, "the logs it names are cleaned once more");
            Ok(Offsets::new())
        }
        Err(error) => Err(error),
    }
}

fn shard_path(dir: &Path, shard: u16) -> PathBuf {
    checkpoint_dir(dir).join(format!("{SHARD_PREFIX}{shard}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::{SimDisk, SimDiskConfig};
    use crate::layout::PartitionName;
    use crate::sim_executor::SimExecutor;

    fn name(topic: &str) -> PartitionName {
        PartitionName {
            topic: topic.to_owned(),
            partition: 0,
        }
    }

    fn offsets_of(pairs: &[(&str, i64)]) -> Offsets {
        pairs
            .iter()
            .map(|(topic, offset)| (name(topic), Offset(*offset)))
            .collect()
    }

    #[test]
    fn shards_files_become_kafkas_and_a_crash_between_loses_nothing() {
        let dir = Path::new("/data");
        for crash_at in 0..12 {
            let executor = SimExecutor::new(1);
            let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(crash_at));
            executor.block_on(async {
                disk.create_dir(&checkpoint_dir(dir)).await.expect("create");
                let kafkas = offsets_of(&[("a", 5), ("b", 6), ("gone", 7), ("c", 1)]);
                offsets::save(&disk, &dir.join(CLEANER_OFFSET_FILE), &kafkas)
                    .await
                    .expect("save");
                save(&disk, dir, 0, &offsets_of(&[("a", 50), ("gone", -1)]))
                    .await
                    .expect("save");
                save(&disk, dir, 3, &offsets_of(&[("b", 4), ("a", 40)]))
                    .await
                    .expect("save");
                disk.sync_filesystem(dir).await.expect("sync");
            });
            let mut disk = disk;
            if crash_at > 0 {
                disk.crash_after(crash_at);
                executor.block_on(futures_lite::future::or(
                    async {
                        merge(&disk, dir).await.expect("merge");
                    },
                    disk.crashed(),
                ));
                disk = disk.restart(&executor.handle());
            }
            executor.block_on(async {
                merge(&disk, dir).await.expect("merge");
                let merged = load(&disk, dir).await.expect("load");
                assert_eq!(merged, offsets_of(&[("a", 40), ("b", 4), ("c", 1)]), "{crash_at}");
                let left = disk.list(&checkpoint_dir(dir)).await.expect("list");
                assert!(left.is_empty(), "{left:?}");
            });
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_costs_only_work() {
        let executor = SimExecutor::new(1);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
        executor.block_on(async {
            disk.create_dir(&checkpoint_dir(Path::new("/data")))
                .await
                .expect("create");
            let path = Path::new("/data").join(CLEANER_OFFSET_FILE);
            crate::checkpoint::write_atomic(&disk, &path, b"0\nnot a number\n")
                .await
                .expect("write");
            assert!(load(&disk, Path::new("/data")).await.expect("load").is_empty());
        });
    }
}
