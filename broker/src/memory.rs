//! How the process's memory is divided: so much for each shard, and there for requests, answers, cached batches and
//! batches on their way to disk, with reserves for brokers and coordinators (DESIGN §4).

mod ebb;

pub use ebb::settle;
pub(crate) use ebb::{collect, give_back};
use shard::budget::{BUDGET_CLASSES, BudgetClass, BudgetLimits, ClassLimits};

/// The share of the memory of host or control group that the process uses when `penstock.memory.bytes` is not set.
const SHARE: u64 = 4;

/// What answers without records, cache, write buffers and reserves of a shard need, bytes, beside the largest request and
/// the largest answer.
const SHARD_BYTES_BASE: u64 = 64 << 20;

/// What a frame takes besides its records, bytes.
const FRAME_BYTES: u64 = 1 << 20;

/// Fetches take at most this much of a shard beyond one largest answer, bytes: readers that do not read hold no more.
const FETCH_BYTES_MAX: u64 = 128 << 20;

/// Cached batches take at most this much of all shards together, bytes, so that an idle broker stays small.
const CACHE_BYTES_MAX: u64 = 256 << 20;

/// Compaction takes at most this much of all shards together, bytes: Kafka's default for its offset maps, and buffers.
const COMPACTION_BYTES_MAX: u64 = 160 << 20;

/// What is read ahead takes at most this much of all shards together, bytes.
const READ_AHEAD_BYTES_MAX: u64 = 128 << 20;

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

/// How much memory the process works with, bytes, and what to warn about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// For requests, answers, caches and write buffers of all shards.
    pub bytes: u64,
    /// One sentence, when it is a large part of what there is.
    pub warning: Option<String>,
}

/// The least that works, bytes: each shard has to hold the largest request and the largest answer, which is one batch of that
/// size.
#[must_use]
pub fn least(shards: u16, request_bytes_max: usize) -> u64 {
    (SHARD_BYTES_BASE + 2 * largest(request_bytes_max)) * u64::from(shards.max(1))
}

fn largest(request_bytes_max: usize) -> u64 {
    request_bytes_max as u64 + FRAME_BYTES
}

/// Decides on `configured` (`penstock.memory.bytes`), or on a share of `host_bytes` where it is not set.
///
/// # Errors
/// A sentence, when it is less than [`least`] or more than there is.
pub fn budget(
    host_bytes: u64,
    configured: Option<u64>,
    shards: u16,
    request_bytes_max: usize,
) -> Result<MemoryBudget, String> {
    let least = least(shards, request_bytes_max);
    let needs = format!(
        "{shards} shards that each hold a request of {request_bytes_max} bytes (socket.request.max.bytes) and an answer as large \
         need {least}"
    );
    match configured {
        Some(bytes) if bytes > host_bytes => Err(format!(
            "penstock.memory.bytes={bytes} is more than the {host_bytes} bytes that this process may use"
        )),
        Some(bytes) if bytes < least => Err(format!(
            "penstock.memory.bytes={bytes} is too little: {needs}; the least value is {least}, or less with a smaller \
             socket.request.max.bytes or fewer penstock.shards"
        )),
        Some(bytes) => Ok(MemoryBudget { bytes, warning: None }),
        None => {
            let bytes = (host_bytes / SHARE).max(least);
            let warning = (bytes > host_bytes / 2).then(|| {
                format!(
                    "memory is scarce: this process may use {host_bytes} bytes and {needs}; lower socket.request.max.bytes or \
                     penstock.shards, or it may be ended by the kernel when clients send such requests"
                )
            });
            Ok(MemoryBudget { bytes, warning })
        }
    }
}

/// Divides `bytes`, at least [`least`], over `shards`. The parts of a shard add up to its share; each class has its own, so
/// that requests that wait for their answers' memory do not hold it.
#[must_use]
pub fn divide(bytes: u64, shards: u16, request_bytes_max: usize) -> ShardMemory {
    let all = bytes.max(least(shards, request_bytes_max));
    let shards = u64::from(shards.max(1));
    let largest = largest(request_bytes_max);
    let extra = (all / shards).saturating_sub(SHARD_BYTES_BASE + 2 * largest);
    let compaction = (SHARD_BYTES_BASE / 32 + extra / 16).min(COMPACTION_BYTES_MAX / shards);
    let small_responses = SHARD_BYTES_BASE / 64 + extra / 128;
    let cache = (SHARD_BYTES_BASE / 32 * 3 + extra / 4 - small_responses).min(CACHE_BYTES_MAX / shards);
    let write = SHARD_BYTES_BASE / 4 + extra / 8;
    // More than coordinators keep: all of it fits one answer.
    let responses = SHARD_BYTES_BASE / 8 + extra / 16;
    let reserved = SHARD_BYTES_BASE / 16 + extra / 32;
    let coordinators = SHARD_BYTES_BASE / 16 + extra / 16;
    let small = SHARD_BYTES_BASE / 16 + extra / 32;
    let read_ahead = (SHARD_BYTES_BASE / 16 + extra / 16).min(READ_AHEAD_BYTES_MAX / shards);
    let fetches = largest + (extra / 8).min(FETCH_BYTES_MAX);
    let others = cache
        + compaction
        + 2 * write
        + responses
        + small_responses
        + reserved
        + coordinators
        + small
        + read_ahead
        + fetches;
    let requests = (all / shards).saturating_sub(others).max(largest);
    let mut classes = [ClassLimits::default(); BUDGET_CLASSES];
    for (class, max_bytes) in [
        (BudgetClass::Requests, requests),
        (BudgetClass::SmallRequests, small),
        (BudgetClass::Responses, responses),
        (BudgetClass::SmallResponses, small_responses),
        (BudgetClass::Fetches, fetches),
    ] {
        classes[class as usize].max_bytes = max_bytes;
    }
    for (class, bytes) in [
        (BudgetClass::InterBroker, reserved),
        (BudgetClass::Coordinator, coordinators),
        (BudgetClass::Compaction, compaction),
    ] {
        classes[class as usize] = ClassLimits {
            reserved_bytes: bytes,
            max_bytes: bytes,
        };
    }
    let limits = BudgetLimits {
        classes,
        shared_bytes: requests + small + responses + small_responses + fetches,
    };
    let bytes = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    ShardMemory {
        limits,
        cache_bytes: bytes(cache),
        read_ahead_bytes: bytes(read_ahead),
        write_bytes: bytes(write),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: usize = 100 << 20;

    fn sum(memory: &ShardMemory) -> u64 {
        let reserved: u64 = memory.limits.classes.iter().map(|c| c.reserved_bytes).sum();
        memory.limits.shared_bytes
            + reserved
            + (memory.cache_bytes + memory.read_ahead_bytes + 2 * memory.write_bytes) as u64
    }

    #[test]
    fn the_parts_of_all_shards_are_no_more_than_the_whole() {
        for (bytes, shards) in [
            (least(8, REQUEST), 8),
            (5 << 30, 2),
            (400 << 30, 64),
            (1 << 30, 1),
        ] {
            let memory = divide(bytes, shards, REQUEST);
            let all = sum(&memory) * u64::from(shards);
            assert!(all <= bytes && all > bytes / 10 * 9, "{all} of {bytes}");
            for class in [BudgetClass::Requests, BudgetClass::Fetches] {
                assert!(memory.limits.classes[class as usize].max_bytes > REQUEST as u64);
            }
        }
    }

    #[test]
    fn too_little_and_more_than_there_is_are_refused_with_the_bound() {
        let host = 23 << 30;
        let least = least(2, REQUEST);
        let refused = budget(host, Some(64 << 20), 2, REQUEST).unwrap_err();
        assert!(refused.contains(&least.to_string()), "{refused}");
        assert!(budget(host, Some(least), 2, REQUEST).is_ok());
        let refused = budget(host, Some(999_999_999_999_999), 2, REQUEST).unwrap_err();
        assert!(refused.contains(&host.to_string()), "{refused}");
        assert!(budget(host, Some(64 << 20), 2, 1 << 20).is_err());
        assert!(budget(host, Some(256 << 20), 2, 1 << 20).is_ok());
    }

    #[test]
    fn without_a_value_it_is_a_share_and_a_small_host_is_warned() {
        let chosen = budget(64 << 30, None, 4, REQUEST).unwrap();
        assert_eq!((chosen.bytes, chosen.warning), (16 << 30, None));
        let chosen = budget(512 << 20, None, 1, REQUEST).unwrap();
        assert_eq!(chosen.bytes, least(1, REQUEST));
        assert!(chosen.warning.is_some());
    }

    #[test]
    fn the_cache_of_all_shards_is_bounded() {
        let memory = divide(128 << 30, 64, REQUEST);
        assert_eq!(memory.cache_bytes as u64 * 64, CACHE_BYTES_MAX);
    }
}
