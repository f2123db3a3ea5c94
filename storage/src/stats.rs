//! What a store counts and how full it is, for metrics. Read on its own shard.

use std::cell::Cell;

use crate::batch_cache::CacheStats;
use crate::commit::run::CommitOutcome;
use crate::compaction::CleanerStats;
use crate::disk::Disk;
use crate::io_class::{IO_CLASSES, IoTotals};
pub use crate::removal::RemovalTotals;
use crate::scrub::ScrubStats;
use crate::space::SpaceStats;
use crate::store::Store;

/// Counts since the start and the present fill of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Group commits.
    pub commits: CommitTotals,
    /// Bytes appended and not yet taken by a commit.
    pub staged_bytes: usize,
    /// What may be staged before appends are refused, bytes.
    pub staged_bytes_max: usize,
    /// Bytes appended and not yet in segments: what write-behind has before it.
    pub unwritten_bytes: usize,
    /// The batch cache's counters.
    pub cache: CacheStats,
    /// Memory the batch cache holds, bytes.
    pub cache_bytes: usize,
    /// Memory the batch cache may hold, bytes.
    pub cache_bytes_max: usize,
    /// Allocated in segments ahead of what is written, bytes.
    pub ahead_bytes: u64,
    /// Bytes read ahead of sequential readers, or being read.
    pub read_ahead_bytes: usize,
    /// Segment files that are open.
    pub open_segment_files: usize,
    /// Bytes acknowledged that a power loss would take, of logs without syncs.
    pub unsynced_bytes: u64,
    /// Files synced because such a log had reached its bound of time or bytes.
    pub forced_syncs: u64,
    /// Time in which a commit waited for a sync, nanoseconds.
    pub synced_ns: u64,
    /// What each I/O class has done, in the order of [`crate::io_class::IoClass::ALL`].
    pub io: [IoTotals; IO_CLASSES],
    /// The scrub.
    pub scrub: ScrubStats,
    /// The free space of the log directory.
    pub space: SpaceStats,
    /// Segments removed since the start, and what is to be removed.
    pub removals: RemovalTotals,
    /// Different places in segments that readers have found damaged.
    pub damaged_places: usize,
    /// Reads that met one.
    pub damaged_reads: u64,
    /// What compaction has done.
    pub cleaner: CleanerStats,
    /// A write or sync failed: the log directory is offline here.
    pub is_offline: bool,
}

/// What the group commits since the start have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitTotals {
    /// Commits.
    pub count: u64,
    /// Bytes of batches made durable.
    pub bytes: u64,
    /// Bytes written for it, padding and framing included.
    pub written_bytes: u64,
    /// Files synced for it.
    pub syncs: u64,
}

impl StoreStats {
    /// The sum with another store's, of the same shard. The space is that of neither: directories are told apart.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let (a, b) = (self, other);
        Self {
            commits: CommitTotals {
                count: a.commits.count + b.commits.count,
                bytes: a.commits.bytes + b.commits.bytes,
                written_bytes: a.commits.written_bytes + b.commits.written_bytes,
                syncs: a.commits.syncs + b.commits.syncs,
            },
            staged_bytes: a.staged_bytes + b.staged_bytes,
            staged_bytes_max: a.staged_bytes_max + b.staged_bytes_max,
            unwritten_bytes: a.unwritten_bytes + b.unwritten_bytes,
            cache: CacheStats {
                hits: a.cache.hits + b.cache.hits,
                misses: a.cache.misses + b.cache.misses,
                hit_bytes: a.cache.hit_bytes + b.cache.hit_bytes,
                inserted: a.cache.inserted + b.cache.inserted,
                evicted: a.cache.evicted + b.cache.evicted,
            },
            cache_bytes: a.cache_bytes + b.cache_bytes,
            cache_bytes_max: a.cache_bytes_max + b.cache_bytes_max,
            ahead_bytes: a.ahead_bytes + b.ahead_bytes,
            read_ahead_bytes: a.read_ahead_bytes + b.read_ahead_bytes,
            open_segment_files: a.open_segment_files + b.open_segment_files,
            unsynced_bytes: a.unsynced_bytes + b.unsynced_bytes,
            forced_syncs: a.forced_syncs + b.forced_syncs,
            synced_ns: a.synced_ns + b.synced_ns,
            io: std::array::from_fn(|class| a.io[class].merged(b.io[class])),
            scrub: a.scrub.merged(b.scrub),
            cleaner: a.cleaner.merged(b.cleaner),
            space: SpaceStats::default(),
            removals: a.removals.merged(b.removals),
            damaged_places: a.damaged_places + b.damaged_places,
            damaged_reads: a.damaged_reads + b.damaged_reads,
            is_offline: a.is_offline || b.is_offline,
        }
    }
}

impl CommitTotals {
    pub(crate) fn add(cell: &Cell<Self>, outcome: &CommitOutcome) {
        let before = cell.get();
        cell.set(Self {
            count: before.count + 1,
            bytes: before.bytes + outcome.bytes,
            written_bytes: before.written_bytes + outcome.written_bytes,
            syncs: before.syncs + u64::from(outcome.syncs),
        });
    }
}

impl<D: Disk> Store<D> {
    /// Counters and fill now.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let cache = self.cache.borrow();
        let (damaged_places, damaged_reads) = self.read_damage.borrow().counts();
        StoreStats {
            commits: self.commit_totals.get(),
            staged_bytes: self.planner.borrow().staged_bytes(),
            staged_bytes_max: self.options.staged_bytes_max,
            unwritten_bytes: self.unwritten_bytes.get(),
            cache: cache.stats(),
            cache_bytes: cache.charged_bytes(),
            cache_bytes_max: self.options.cache_bytes,
            ahead_bytes: self.headroom.ahead_bytes(),
            read_ahead_bytes: self.ahead.borrow().bytes(),
            open_segment_files: self.files.borrow().len(),
            unsynced_bytes: self.unsynced.borrow().unsynced_bytes(),
            forced_syncs: self.forced_syncs.get(),
            synced_ns: self.io.synced_ns(),
            io: self.io.totals(),
            scrub: self.scrub_stats(),
            space: self.space_stats(),
            removals: self.removals.totals(),
            damaged_places,
            damaged_reads,
            cleaner: self.cleaner.stats(),
            is_offline: self.is_offline(),
        }
    }
}
