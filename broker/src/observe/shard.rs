//! What one shard tells a scrape: a copy of its counters, taken on the shard between two messages.

use std::sync::Arc;

use shard::budget::AccountImage;
use shard::coordinator::driver::{CoordinatorStats, GroupDriver};
use shard::driver::OwnerDriver;
use shard::env::Env;
use shard::ids::{LogDir, ShardId};
use shard::image::MetadataImage;
use shard::moves::MoveStats;
use shard::owner::{Dirs, LogsIo, OwnerCounters, PartitionStats};
use shard::retention::RetentionStats;
use storage::space::SpaceStats;
use storage::stats::StoreStats;
use storage::sync_schedule::LossWindows;

use super::metrics::Snapshot;
use crate::log_dirs::METADATA_DIR;
use crate::node::{Broker, NodeMessage};

/// One shard at one moment.
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// Which.
    pub shard: ShardId,
    /// The metadata it serves by.
    pub image: Arc<MetadataImage>,
    /// What its connections have counted.
    pub requests: Snapshot,
    /// Its owner's counts, of partitions that have left as well.
    pub totals: OwnerCounters,
    /// Every partition it owns.
    pub partitions: Vec<PartitionStats>,
    /// Produces that wait for their acknowledgement.
    pub waiting_produces: usize,
    /// Fetches that wait for data.
    pub waiting_fetches: usize,
    /// Requests of this shard that others have not answered yet.
    pub open_requests: usize,
    /// Fetch sessions, the partitions they hold, sessions evicted so far.
    pub sessions: (usize, usize, u64),
    /// Its memory, by class.
    pub memory: Vec<AccountImage>,
    /// Its storage, in all log directories.
    pub storage: StoreStats,
    /// What a power loss would take of what it has acknowledged.
    pub loss: LossWindows,
    /// The free space of each log directory that could be used at the start.
    pub spaces: Vec<(LogDir, SpaceStats)>,
    /// Log directories that are offline.
    pub offline_dirs: usize,
    /// What retention has done.
    pub retention: RetentionStats,
    /// Its moves between log directories.
    pub moves: MoveStats,
    /// Its group coordinators.
    pub groups: CoordinatorStats,
}

/// A shard's sign of life, cheaper than a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// Logs that have to be opened still.
    pub logs_to_open: usize,
    /// Partitions whose log cannot be opened.
    pub offline_partitions: usize,
    /// A log directory is offline without which the node cannot go on.
    pub is_storage_offline: bool,
    /// Places in segments that the scrub found damaged.
    pub damaged_places: usize,
    /// Log directories that are offline.
    pub offline_dirs: Vec<String>,
    /// The free space of each log directory that could be used at the start.
    pub spaces: Vec<(LogDir, SpaceStats)>,
}

/// The shard of `broker` now.
pub fn snapshot<E: Env, L: LogsIo>(
    broker: &Broker<E>,
    driver: &OwnerDriver<E, L, NodeMessage>,
    logs: &Dirs<L>,
    groups: &GroupDriver<E, NodeMessage>,
    (retention, moves): (RetentionStats, MoveStats),
) -> ShardSnapshot {
    let (totals, partitions, waiting) =
        driver.with_owner(|owner| (owner.counters(), owner.partition_stats(), owner.waiting()));
    let sessions = broker.sessions.borrow();
    ShardSnapshot {
        shard: broker.router.shard(),
        image: broker.view().image.clone(),
        requests: broker.metrics.snapshot(),
        totals,
        partitions,
        waiting_produces: waiting.0,
        waiting_fetches: waiting.1,
        open_requests: broker.router.open(),
        sessions: (sessions.len(), sessions.partitions_cached(), sessions.evictions()),
        memory: broker.budget.read().to_vec(),
        storage: logs
            .iter()
            .map(|(_, logs)| logs.stats())
            .fold(StoreStats::default(), StoreStats::merged),
        loss: logs
            .iter()
            .map(|(_, logs)| logs.loss_windows(broker.env.now()))
            .fold(LossWindows::default(), LossWindows::merged),
        spaces: spaces(logs),
        offline_dirs: broker.log_dirs.offline(),
        retention,
        moves,
        groups: groups.stats(),
    }
}

fn spaces<L: LogsIo>(logs: &Dirs<L>) -> Vec<(LogDir, SpaceStats)> {
    logs.iter().map(|(dir, logs)| (dir, logs.stats().space)).collect()
}

/// The vitals of the shard of `broker`.
pub fn vitals<E: Env, L: LogsIo>(broker: &Broker<E>, logs: &Dirs<L>) -> Vitals {
    let (logs_to_open, offline_partitions) = broker.metrics.logs_missing();
    let dirs = &broker.log_dirs;
    let offline = dirs.iter().filter(|(_, _, is_online)| !is_online);
    Vitals {
        logs_to_open,
        offline_partitions,
        is_storage_offline: !dirs.is_online(METADATA_DIR),
        damaged_places: logs.iter().map(|(_, logs)| logs.stats().scrub.findings).sum(),
        offline_dirs: offline.map(|(_, path, _)| path.display().to_string()).collect(),
        spaces: spaces(logs),
    }
}
