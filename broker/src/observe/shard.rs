//! What one shard tells a scrape: a copy of its counters, taken on the shard between two messages.

use std::sync::Arc;

use shard::budget::AccountImage;
use shard::coordinator::driver::{CoordinatorStats, GroupDriver};
use shard::driver::OwnerDriver;
use shard::env::Env;
use shard::ids::ShardId;
use shard::image::MetadataImage;
use shard::owner::{LogsIo, OwnerCounters, PartitionStats};
use storage::space::SpaceStats;
use storage::stats::StoreStats;
use storage::sync_schedule::LossWindows;

use super::metrics::Snapshot;
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
    /// Its storage.
    pub storage: StoreStats,
    /// What a power loss would take of what it has acknowledged.
    pub loss: LossWindows,
    /// Its group coordinators.
    pub groups: CoordinatorStats,
}

/// A shard's sign of life, cheaper than a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vitals {
    /// Logs that have to be opened still.
    pub logs_to_open: usize,
    /// Partitions whose log cannot be opened.
    pub offline_partitions: usize,
    /// Its log directory is offline.
    pub is_storage_offline: bool,
    /// Places in segments that the scrub found damaged.
    pub damaged_places: usize,
    /// The free space of its log directory.
    pub space: SpaceStats,
}

/// The shard of `broker` now.
pub fn snapshot<E: Env, L: LogsIo>(
    broker: &Broker<E>,
    driver: &OwnerDriver<E, L, NodeMessage>,
    logs: &L,
    groups: &GroupDriver<E, NodeMessage>,
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
        storage: logs.stats(),
        loss: logs.loss_windows(broker.env.now()),
        groups: groups.stats(),
    }
}

/// The vitals of the shard of `broker`.
pub fn vitals<E: Env, L: LogsIo>(broker: &Broker<E>, logs: &L) -> Vitals {
    let (logs_to_open, offline_partitions) = broker.metrics.logs_missing();
    let stats = logs.stats();
    Vitals {
        logs_to_open,
        offline_partitions,
        is_storage_offline: stats.is_offline,
        damaged_places: stats.scrub.findings,
        space: stats.space,
    }
}
