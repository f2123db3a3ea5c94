//! How the process's memory is divided: so much for each shard, and there for requests, answers, cached batches and
//! batches on their way to disk, with reserves for brokers and coordinators (DESIGN §4).

use shard::budget::{BUDGET_CLASSES, BudgetClass, BudgetLimits, ClassLimits};

/// The share of the memory of host or control group that the process uses when `penstock.memory.bytes` is not set.
const SHARE: u64 = 4;

/// What a shard has at least, bytes: less would not hold the largest request.
const SHARD_BYTES_MIN: u64 = 64 << 20;

/// Cached batches take at most this much of all shards together, bytes, so that an idle broker stays small.
const CACHE_BYTES_MAX: u64 = 256 << 20;

/// What is read ahead takes at most this much of all shards together, bytes.
const READ_AHEAD_BYTES_MAX: u64 = 128 << 20;

/// Segment files a shard keeps open at least: as many as one group commit may write.
const SEGMENT_FILES_MIN: usize = 64;

/// Segment files a shard keeps open at most: each takes kernel memory.
const SEGMENT_FILES_MAX: usize = 1 << 16;

/// The memory of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardMemory {
    /// The budget for what comes and goes.
    pub limits: BudgetLimits,
    /// The batch cache, bytes.
    pub cache_bytes: usize,
    /// What is read from disk before it is asked for, bytes.
    pub read_ahead_bytes: usize,
    /// Staged and unwritten batches, bytes each.
    pub write_bytes: usize,
}

/// Divides `host_bytes` (or what `penstock.memory.bytes` says) over `shards`. The largest request always fits.
#[must_use]
pub fn divide(
    host_bytes: u64,
    configured: Option<u64>,
    shards: u16,
    request_bytes_max: usize,
) -> ShardMemory {
    let all = configured.unwrap_or(host_bytes / SHARE);
    let shards = u64::from(shards.max(1));
    let shard = (all / shards).max(SHARD_BYTES_MIN);
    let cache = (shard / 4).min(CACHE_BYTES_MAX / shards);
    let write = shard / 8;
    let read_ahead = (shard / 16).min(READ_AHEAD_BYTES_MAX / shards);
    let rest = shard.saturating_sub(cache + 2 * write + read_ahead);
    let largest = request_bytes_max as u64 + (1 << 20);
    let mut classes = [ClassLimits::default(); BUDGET_CLASSES];
    for class in [BudgetClass::Requests, BudgetClass::Responses] {
        classes[class as usize] = ClassLimits {
            reserved_bytes: 0,
            max_bytes: rest.max(largest),
        };
    }
    for class in [BudgetClass::InterBroker, BudgetClass::Coordinator] {
        let reserved_bytes = rest / 16;
        classes[class as usize] = ClassLimits {
            reserved_bytes,
            max_bytes: reserved_bytes,
        };
    }
    let limits = BudgetLimits {
        classes,
        shared_bytes: rest.max(largest) * 2,
    };
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    ShardMemory {
        limits,
        cache_bytes: bytes(cache),
        read_ahead_bytes: bytes(read_ahead),
        write_bytes: bytes(write),
    }
}

/// Segment files that each shard may keep open, of the `descriptors` the process may have: half of them in all, the rest is for
/// connections, journals and what is open for a moment.
#[must_use]
pub fn segment_files(descriptors: u64, shards: u16) -> usize {
    let share = descriptors / 2 / u64::from(shards.max(1));
    usize::try_from(share)
        .unwrap_or(usize::MAX)
        .clamp(SEGMENT_FILES_MIN, SEGMENT_FILES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_descriptors_are_for_segments() {
        assert_eq!(segment_files(1024, 4), 128);
        assert_eq!(segment_files(512, 64), SEGMENT_FILES_MIN);
        assert_eq!(segment_files(u64::MAX, 1), SEGMENT_FILES_MAX);
    }

    #[test]
    fn the_largest_request_fits_also_on_a_small_host() {
        let memory = divide(1 << 30, None, 8, 100 << 20);
        let requests = memory.limits.classes[BudgetClass::Requests as usize];
        assert!(requests.max_bytes > 100 << 20);
        assert!(memory.limits.shared_bytes >= requests.max_bytes);
    }

    #[test]
    fn the_cache_of_all_shards_is_bounded() {
        let memory = divide(512 << 30, None, 64, 100 << 20);
        assert_eq!(memory.cache_bytes as u64 * 64, CACHE_BYTES_MAX);
    }
}
