//! Who a node is, as its log directory says: cluster, node and directory ids in `meta.properties`. A directory without one is
//! formatted on first start: a single node needs no set-up (DESIGN §8).

use std::collections::BTreeMap;
use std::path::Path;

use protocol::Uuid;
use storage::checkpoint::CheckpointError;
use storage::checkpoint::meta_properties::{self, MetaProperties};
use storage::disk::{Disk, DiskError};
use storage::layout::META_PROPERTIES_FILE;

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

/// The identity in `log_dir`, made when there is none.
///
/// # Errors
/// [`IdentityError`].
pub async fn load_or_format<D: Disk>(
    disk: &D,
    log_dir: &Path,
    node: BrokerId,
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
            let cluster_id = match &incomplete {
                Some(found) => found.cluster_id.clone(),
                None => random_uuid(random).to_string(),
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
