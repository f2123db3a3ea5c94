//! How much memory this process may use: the control group's limit or the machine's memory, whichever is less.

use super::{Finding, IO_MEMORY_BYTES, IO_MEMORY_BYTES_MIN, cgroup, human};

/// The share of the memory that all arenas together may take.
const ARENA_SHARE: u64 = 8;

/// Memory below which a broker cannot keep even one large request and its answer.
const MEMORY_BYTES_MIN: u64 = 128 << 20;

/// Bytes this process may use.
#[must_use]
pub fn limit() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of(&text));
    machine
        .into_iter()
        .chain(cgroup::memory_limit())
        .min()
        .unwrap_or(u64::MAX)
}

/// The size of each shard's direct-I/O arena for that much memory, and what to say about it.
#[must_use]
pub fn arena(memory_bytes: u64, shards: u64) -> (u64, Finding) {
    const SUBJECT: &str = "memory";
    const ADVICE: &str = "Raise the memory limit of the container or unit, or set penstock.shards lower.";
    let share = memory_bytes / ARENA_SHARE / shards.max(1);
    let arena = if share >= IO_MEMORY_BYTES {
        IO_MEMORY_BYTES
    } else {
        // The arena halves its blocks: only powers of two are used whole.
        (1 << share.max(1).ilog2()).max(IO_MEMORY_BYTES_MIN)
    };
    let finding = if memory_bytes < MEMORY_BYTES_MIN {
        Finding::refuse(
            SUBJECT,
            format!(
                "This process may use {}, a broker needs at least {}.",
                human(memory_bytes),
                human(MEMORY_BYTES_MIN)
            ),
            ADVICE,
        )
    } else if arena < IO_MEMORY_BYTES {
        Finding::degraded(
            SUBJECT,
            format!(
                "This process may use {} for {shards} shards: buffers for direct I/O are cut to {} each, and caches are small.",
                human(memory_bytes),
                human(arena)
            ),
            ADVICE,
        )
    } else {
        Finding::ok(SUBJECT, format!("This process may use {}.", human(memory_bytes)))
    };
    (arena, finding)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Verdict;

    #[test]
    fn total_memory_is_read_in_bytes() {
        assert_eq!(
            total_of("MemTotal:       24000000 kB\nMemFree: 1 kB\n"),
            Some(24_576_000_000)
        );
        assert_eq!(total_of("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn a_small_container_gets_small_arenas() {
        assert_eq!(
            arena(16 << 30, 4),
            (
                IO_MEMORY_BYTES,
                Finding::ok("memory", "This process may use 16 GiB.")
            )
        );
        let (bytes, finding) = arena(512 << 20, 4);
        assert_eq!(bytes, 16 << 20);
        assert_eq!(finding.verdict, Verdict::Degraded);
        let (bytes, _) = arena(300 << 20, 64);
        assert_eq!(bytes, IO_MEMORY_BYTES_MIN);
        assert_eq!(arena(64 << 20, 1).1.verdict, Verdict::Refuse);
    }
}
