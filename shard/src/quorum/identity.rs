//! Who a node is, as its log directory says: cluster, node and directory ids in `meta.properties`. A directory without one is
//! formatted on first start: a single node needs no set-up (DESIGN §8).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protocol::Uuid;
use storage::checkpoint::CheckpointError;
use storage::checkpoint::meta_properties::{self, MetaProperties};
use storage::disk::{Disk, DiskError};
use storage::layout::{DirName, META_PROPERTIES_FILE};
use storage::recovery::record::load_directory;

use crate::controller::random_uuid;
use crate::ids::BrokerId;

/// The ids of a node's log directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Which cluster.
    pub cluster_id: String,
    /// Which directory.
    pub directory: Uuid,
    /// Whether it was formatted just now.
    pub is_new: bool,
}

/// Why a log directory cannot be this node's.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] CheckpointError),
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Logs, but nothing that says whose.
    #[error(
        "the log directory {} holds {found} but no readable {META_PROPERTIES_FILE}: put that file back, or name an empty directory with log.dirs",
        dir.display()
    )]
    Unformatted {
        /// The log directory.
        dir: PathBuf,
        /// A log in it.
        found: String,
    },
    /// The directory is another cluster's.
    #[error("the log directory belongs to cluster {found}, the first one to {expected}: correct log.dirs")]
    OtherCluster {
        /// In the file.
        found: String,
        /// In that of the first directory.
        expected: String,
    },
    /// The directory is another node's.
    #[error(
        "the log directory belongs to node {found}, node.id is {configured}: correct node.id or log.dirs"
    )]
    OtherNode {
        /// In the file.
        found: i32,
        /// Configured.
        configured: BrokerId,
    },
}

/// Makes sure that a directory without `meta.properties` is new: what lies in it belongs to a cluster whose ids are lost with
/// the file. To be called before anything is written there.
///
/// # Errors
/// [`IdentityError::Unformatted`]; errors of the disk.
pub async fn check_formatted<D: Disk>(disk: &D, log_dir: &Path) -> Result<(), IdentityError> {
    let entries = disk.list(log_dir).await?;
    if entries.iter().any(|entry| entry.name == META_PROPERTIES_FILE) {
        return Ok(());
    }
    let is_log = |name: &str| {
        matches!(
            DirName::parse(name),
            DirName::Partition(_) | DirName::Replica { .. }
        )
    };
    let present = entries
        .into_iter()
        .find(|entry| entry.is_dir && is_log(&entry.name));
    let found = match present {
        Some(entry) => Some(entry.name),
        // What cannot be read is reported by who needs it.
        None => load_directory(disk, log_dir)
            .await
            .ok()
            .and_then(|known| known.logs.into_iter().next())
            .map(|log| format!("a checkpoint of {}", log.directory)),
    };
    match found {
        Some(found) => Err(IdentityError::Unformatted {
            dir: log_dir.to_owned(),
            found,
        }),
        None => Ok(()),
    }
}

impl IdentityError {
    /// Whether the disk refused, and not what it holds.
    #[must_use]
    pub fn is_of_disk(&self) -> bool {
        matches!(self, Self::Disk(_) | Self::Unreadable(CheckpointError::Disk(_)))
    }
}

/// The identity in `log_dir`, made when there is none: with the id of `cluster`, which another directory of the node has, or a
/// new one.
///
/// # Errors
/// [`IdentityError`].
pub async fn load_or_format<D: Disk>(
    disk: &D,
    log_dir: &Path,
    node: BrokerId,
    cluster: Option<&str>,
    random: &mut dyn FnMut() -> u64,
) -> Result<Identity, IdentityError> {
    let path = log_dir.join(META_PROPERTIES_FILE);
    let found = meta_properties::load(disk, &path).await?;
    if let Some(found) = &found
        && found.node_id != node.0
    {
        return Err(IdentityError::OtherNode {
            found: found.node_id,
            configured: node,
        });
    }
    if let (Some(found), Some(expected)) = (&found, cluster)
        && found.cluster_id != expected
    {
        return Err(IdentityError::OtherCluster {
            found: found.cluster_id.clone(),
            expected: expected.to_owned(),
        });
    }
    match found {
        Some(MetaProperties {
            cluster_id,
            directory_id: Some(directory),
            ..
        }) => Ok(Identity {
            cluster_id,
            directory,
            is_new: false,
        }),
        // A directory of Kafka before 3.7 has no id of its own yet.
        incomplete => {
            let is_new = incomplete.is_none();
            let directory = random_uuid(random);
            let cluster_id = match (&incomplete, cluster) {
                (Some(found), _) => found.cluster_id.clone(),
                (None, Some(cluster)) => cluster.to_owned(),
                (None, None) => random_uuid(random).to_string(),
            };
            let properties = MetaProperties {
                cluster_id: cluster_id.clone(),
                node_id: node.0,
                directory_id: Some(directory),
                other: incomplete.map_or_else(BTreeMap::new, |found| found.other),
            };
            meta_properties::save(disk, &path, &properties).await?;
            Ok(Identity {
                cluster_id,
                directory,
                is_new,
            })
        }
    }
}
