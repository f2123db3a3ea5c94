//! The log directories of a node as one shard opens them: disks, the recovery of the journals, stores; whose they are, and which holds
//! what. A directory other than the metadata log's that cannot be used is offline, and the start goes on.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use protocol::Uuid;
use shard::env::Env;
use shard::ids::LogDir;
use shard::quorum::identity::{self, Identity};
use storage::checkpoint::{clean_shutdown, partition_metadata};
use storage::disk::Disk;
use storage::error::StorageError;
use storage::layout::{CLEAN_SHUTDOWN_FILE, DirName, PARTITION_METADATA_FILE};
use storage::moving::leftovers::{Leftover, leftovers};
use storage::recovery::recover_journals;
use storage::recovery::room::make_room_for_stores;
use storage::store::{Store, StoreOptions};

use crate::assembly::{fail_everywhere, storage_failed};
use crate::control::{Control, LeftDirectories};
use crate::exit::{Failure, Status};
use crate::homes::Homes;
use crate::log_dirs::{LogDirs, METADATA_DIR};
use crate::node::Broker;
use crate::observe::progress::Progress;

/// The disks of one shard: one for each log directory, `None` where the directory cannot be used.
pub type Disks<D> = Vec<Option<D>>;

/// The stores of one shard: one for each log directory, `None` where the directory cannot be used.
pub type Stores<D> = Vec<Option<Rc<Store<D>>>>;

/// Lets all shards open their stores after the first has recovered the journals.
#[derive(Debug)]
pub struct Gate {
    open: Option<Vec<flume::Sender<()>>>,
    opened: flume::Receiver<()>,
    progress: Arc<Progress>,
}

/// The gates of a node's shards; the first one's shard recovers the journals and opens them.
#[must_use]
pub fn gates(shards: u16) -> Vec<Gate> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| flume::bounded(1)).unzip();
    let mut senders = Some(senders);
    let progress = Arc::new(Progress::default());
    receivers
        .into_iter()
        .map(|opened| Gate {
            open: senders.take(),
            opened,
            progress: progress.clone(),
        })
        .collect()
}

impl Gate {
    /// How far the recovery of the journals is; the same for all gates of a node.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }
}

/// Opens the stores of `shard` in the log directories, after the journals of the run before were recovered. Where they could
/// not be, it never ends on the other shards. A directory other than the metadata log's that cannot be read or written is
/// offline from then on.
///
/// # Errors
/// [`Failure`] with what storage said.
pub async fn open_stores<D: Disk>(
    disks: &Disks<D>,
    dirs: &LogDirs,
    shard: u16,
    gate: Gate,
    options: StoreOptions,
) -> Result<Stores<D>, Failure> {
    if let Some(open) = gate.open {
        let mut before = 0;
        for (disk, (number, path, _)) in disks.iter().zip(dirs.iter()) {
            let Some(disk) = disk.as_ref().filter(|_| dirs.is_online(number)) else {
                continue;
            };
            identity::check_formatted(disk, path)
                .await
                .map_err(|e| Failure::new(Status::Config, e.to_string()))?;
            let mut all_here = 0;
            let progress = |done, all| {
                all_here = all;
                gate.progress.journals(before + done, before + all);
            };
            if number == METADATA_DIR {
                note_clean_stop(disk, dirs).await?;
            }
            let recovered = recover_journals(disk, path, progress).await;
            before += all_here;
            let Some(recovered) = unless_offline(dirs, number, recovered)? else {
                continue;
            };
            // Those of other directories on the same file system need room there too.
            let stores = options.shards.saturating_mul(dirs.on_file_system_of(number));
            let space = dirs.space(number);
            let made = make_room_for_stores(disk, path, stores, options.journal, &space).await;
            unless_offline(dirs, number, made)?;
            if recovered.commits > 0 {
                tracing::info!(
                    dir = %path.display(),
                    commits = recovered.commits,
                    bytes = recovered.bytes,
                    logs = recovered.logs.len(),
                    "journals of an earlier run were replayed"
                );
            }
        }
        for shard in open {
            let _ = shard.send(());
        }
    }
    if gate.opened.recv_async().await.is_err() {
        // The process ends with what the shard that recovers the journals says; this one must not be heard before it.
        std::future::pending::<()>().await;
    }
    let mut stores = Vec::with_capacity(disks.len());
    for (disk, (number, path, is_online)) in disks.iter().zip(dirs.iter()) {
        let store = match disk {
            Some(disk) if is_online => {
                let opened =
                    Store::open_beside(disk.clone(), path, shard, options, &dirs.space(number)).await;
                unless_offline(dirs, number, opened)?
            }
            _ => None,
        };
        stores.push(store);
    }
    Ok(stores)
}

/// Reads the mark of a clean stop, which the recovery takes away.
async fn note_clean_stop<D: Disk>(disk: &D, dirs: &LogDirs) -> Result<(), Failure> {
    let mark = dirs.metadata().join(CLEAN_SHUTDOWN_FILE);
    let found = clean_shutdown::load(disk, &mark)
        .await
        .map_err(|e| Failure::new(Status::Io, e.to_string()))?;
    if let Some(epoch) = found {
        dirs.note_clean_stop(epoch);
    }
    tracing::debug!(was_clean = found.is_some(), "the stop before was looked for");
    Ok(())
}

/// What came of a step of the start in a directory; `None` takes the directory offline.
fn unless_offline<T>(
    dirs: &LogDirs,
    dir: LogDir,
    outcome: Result<T, StorageError>,
) -> Result<Option<T>, Failure> {
    match outcome {
        Ok(done) => Ok(Some(done)),
        Err(error @ StorageError::Disk(_)) if dir != METADATA_DIR => {
            if dirs.fail(dir) {
                tracing::error!(dir = dirs.path(dir), %error, "the log directory is offline");
            }
            Ok(None)
        }
        Err(error) => Err(storage_failed(&error)),
    }
}

/// The identity in the metadata log's directory, and the ids of all directories that work; each new one gets an id.
///
/// # Errors
/// [`Failure`] when a directory is another cluster's or node's, or a copy of another.
pub(crate) async fn identify<E: Env, D: Disk>(
    broker: &Broker<E>,
    disks: &Disks<D>,
) -> Result<(Identity, Vec<Uuid>), Failure> {
    let (env, dirs) = (&broker.env, &broker.log_dirs);
    let node = broker.settings.node_id;
    let mut random = || env.random();
    let wrong = |path: &Path, e: &identity::IdentityError| {
        Failure::new(Status::Config, format!("{}: {e}", path.display()))
    };
    let mut first: Option<Identity> = None;
    let mut directories = Vec::new();
    for (disk, (dir, path, is_online)) in disks.iter().zip(dirs.iter()) {
        let Some(disk) = disk.as_ref().filter(|_| is_online) else {
            continue;
        };
        let cluster = first.as_ref().map(|first| first.cluster_id.as_str());
        match identity::load_or_format(disk, path, node, cluster, &mut random).await {
            Ok(found) if directories.contains(&found.directory) => {
                let sentence = format!(
                    "{} has the directory.id of another of log.dirs: one is a copy of the other; remove the copy",
                    path.display()
                );
                return Err(Failure::new(Status::Config, sentence));
            }
            Ok(found) => {
                directories.push(found.directory);
                first.get_or_insert(found);
            }
            Err(e) if e.is_of_disk() && dir != METADATA_DIR => {
                tracing::error!(dir = %path.display(), error = %e, "the log directory is offline");
                dirs.fail(dir);
                fail_everywhere(broker, dir);
            }
            Err(e) => return Err(wrong(path, &e)),
        }
    }
    match first {
        Some(first) => Ok((first, directories)),
        None => Err(Failure::new(Status::Config, "none of log.dirs can be used")),
    }
}

/// Which directory holds the files of which partition.
///
/// # Errors
/// [`Failure`] when the metadata log is not in the first directory; from the disk of that one.
pub async fn find_homes<D: Disk>(
    dirs: &LogDirs,
    disks: &Disks<D>,
    stores: &Stores<D>,
) -> Result<Homes, Failure> {
    let mut homes = Homes::new(dirs.clone());
    let mut copies: Vec<(LogDir, Leftover)> = Vec::new();
    for (disk, (dir, path, is_online)) in disks.iter().zip(dirs.iter()) {
        let Some(disk) = disk.as_ref().filter(|_| is_online) else {
            continue;
        };
        let listed = disk.list(path).await.map_err(StorageError::from);
        let Some(entries) = unless_offline(dirs, dir, listed)? else {
            continue;
        };
        let left = leftovers(disk, path, &entries).await;
        let left = unless_offline(dirs, dir, left)?.unwrap_or_default();
        copies.extend(left.into_iter().map(|copy| (dir, copy)));
        let names = entries
            .iter()
            .filter(|entry| entry.is_dir)
            .map(|entry| entry.name.as_str());
        for name in names.filter(|name| matches!(DirName::parse(name), DirName::Partition(_))) {
            if name == METADATA_LOG_NAME && dir != METADATA_DIR {
                let sentence = format!(
                    "the metadata log is in {}: name that directory in metadata.log.dir, or first in log.dirs",
                    path.display()
                );
                return Err(Failure::new(Status::Config, sentence));
            }
            if let Err(other) = homes.found(name, dir) {
                for dir in [other, dir] {
                    let metadata = PathBuf::from(dirs.path(dir))
                        .join(name)
                        .join(PARTITION_METADATA_FILE);
                    let found = partition_metadata::load(disk, &metadata).await.ok().flatten();
                    homes.found_again(name, dir, found);
                }
            }
        }
    }
    settle_copies(&mut homes, dirs, stores, copies);
    Ok(homes)
}

/// Sets aside what the start found of topics that are gone: a topic was deleted while the directory was away, or the process ended
/// before it could say so on the disk. As Kafka's, such a directory is renamed to `…-stray` and never removed: it has records.
/// Commands are served meanwhile, and may make such a topic again: what is known is what the controller knows by then.
pub(crate) async fn set_left_aside<D: Disk>(
    stores: Stores<D>,
    control: Control,
    left: flume::Receiver<LeftDirectories>,
) {
    let Ok(left) = left.recv_async().await else {
        return;
    };
    for (name, dir) in left.iter().filter(|(name, _)| name != METADATA_LOG_NAME) {
        let Some(Some(store)) = stores.get(usize::from(dir.0)) else {
            continue;
        };
        let set_aside = store.set_unknown_aside(name, |topic| control.is_known(topic));
        if let Err(error) = set_aside.await {
            tracing::warn!(name, %error, "of a topic that is gone, and could not be set aside");
        }
    }
}

/// What is left of moves that the end of the run before interrupted. A copy that is not whole, or whose log is there, is no truth:
/// it is removed, and the move begun anew. A whole one whose log is nowhere is the log, and whoever opens that takes it up.
fn settle_copies<D: Disk>(
    homes: &mut Homes,
    dirs: &LogDirs,
    stores: &Stores<D>,
    copies: Vec<(LogDir, Leftover)>,
) {
    for (dir, copy) in copies {
        let name = copy.name.to_string();
        match copy.whole {
            Some((end, topic)) if !homes.has_found(&name) => homes.found_copy(&name, end, topic, dir),
            _ => {
                homes.found_begun(&name, dir);
                let path = PathBuf::from(dirs.path(dir)).join(&copy.directory);
                tracing::info!(path = %path.display(), "an interrupted move begins anew");
                if let Some(Some(store)) = stores.get(usize::from(dir.0)) {
                    store.remove_directory_later(&path);
                }
            }
        }
    }
}

/// The directory of the metadata log.
const METADATA_LOG_NAME: &str = "__cluster_metadata-0";

#[cfg(test)]
mod tests {
    use protocol::Str;
    use protocol::messages::cluster_metadata::TopicRecord;
    use shard::controller::MetadataRecord;
    use shard::image::{ImageDelta, MetadataImage};
    use storage::disk::sim::{SimDisk, SimDiskConfig};
    use storage::log::config::LogConfig;
    use storage::sim_executor::SimExecutor;
    use storage::types::{LogId, TopicId};

    use super::*;

    /// The start finds a directory `t-0` of a topic that is gone; before somebody comes to it a command makes `t` anew, whose log
    /// sets it aside and has a directory of that name.
    #[test]
    fn a_topic_that_was_made_since_the_start_is_not_set_aside() {
        let executor = SimExecutor::new(1);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
        executor.block_on(async {
            let dir = Path::new("/data");
            disk.create_dir(dir).await.expect("create");
            let store = Store::open(disk.clone(), dir, 0, StoreOptions::default()).await;
            let store = store.expect("store");
            let (topic, gone) = (TopicId([7; 16]), TopicId([8; 16]));
            for (topic, name) in [(topic, "t"), (gone, "gone")] {
                let id = LogId { topic, partition: 0 };
                let opened = store.open_log(id, name, LogConfig::default(), 0).await;
                opened.expect("log");
            }
            let control = Control::default();
            let mut delta = ImageDelta::new(&MetadataImage::empty("c"));
            let record = TopicRecord {
                name: Str::from_static("t"),
                topic_id: Uuid(topic.0),
            };
            delta.apply(&MetadataRecord::Topic(record)).expect("a topic");
            control.know(&Arc::new(delta.image().clone()));
            let (found, left) = flume::bounded(1);
            let names = ["t-0", "gone-0"].map(|name| (name.to_owned(), LogDir(0)));
            found.send(names.to_vec()).expect("open");
            set_left_aside(vec![Some(store)], control, left).await;
            let holds = |name: &str| {
                let part = format!("/{name}");
                let mut paths = disk.paths().into_iter();
                paths.any(|path| path.to_string_lossy().contains(&part))
            };
            assert!(
                holds("t-0/") && !holds("gone-0/") && holds("gone-0."),
                "{:?}",
                disk.paths()
            );
        });
    }
}
