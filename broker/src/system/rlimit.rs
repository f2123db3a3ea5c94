//! Resource limits: open files and locked memory. Both are raised to their hard limits first; what is left decides.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use super::{Finding, human};
use crate::descriptors;

/// Open files below which a broker meets its limit soon: each partition and each connection takes some.
const DESCRIPTORS_GOOD: u64 = 65_536;

/// The smallest locked-memory limit glommio accepts, even from root.
const LOCKED_BYTES_MIN: u64 = 512 << 10;

/// Locked memory that the three io_uring instances of one shard take by themselves (measured: 8 MiB carry 37 shards).
const RING_BYTES: u64 = 256 << 10;

/// How many times a shard's arena counts: it is registered with each of the three instances.
const ARENA_COPIES: u64 = 3;

/// The capability that lifts the limit on locked memory, as a bit of `CapEff`.
const CAP_IPC_LOCK: u32 = 14;

/// Raises the limit on open files and reports it, with the number, and how many of them `shards` shards have for themselves:
/// the process may have inherited some.
#[must_use]
pub fn descriptors(shards: u64) -> (u64, u64, Finding) {
    let limit = raise(Resource::RLIMIT_NOFILE);
    let open = descriptors::open_now();
    (
        limit,
        limit.saturating_sub(open),
        judge_descriptors(limit, open, shards),
    )
}

fn judge_descriptors(limit: u64, open: u64, shards: u64) -> Finding {
    const SUBJECT: &str = "open files";
    const ADVICE: &str =
        "Raise it: LimitNOFILE=1048576 in a systemd unit, --ulimit nofile=1048576 for a container.";
    let needed = descriptors::needed(shards);
    if limit.saturating_sub(open) < needed {
        Finding::refuse(
            SUBJECT,
            format!(
                "At most {limit} files may be open and {open} are; a broker of {shards} shards needs {needed} more."
            ),
            ADVICE,
        )
    } else if limit < DESCRIPTORS_GOOD {
        Finding::degraded(
            SUBJECT,
            format!(
                "At most {limit} files may be open; connections are kept waiting when partitions and connections have used them up."
            ),
            ADVICE,
        )
    } else {
        Finding::ok(SUBJECT, format!("At most {limit} files may be open."))
    }
}

/// What locked memory allows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockedMemory {
    /// Whether the arenas are registered with io_uring.
    pub registered: bool,
    /// What to say about it.
    pub finding: Finding,
}

/// Raises the limit on locked memory and decides what to do with what it is for `shards` arenas of `arena_bytes`.
#[must_use]
pub fn locked_memory(arena_bytes: u64, shards: u64) -> LockedMemory {
    let limit = raise(Resource::RLIMIT_MEMLOCK);
    let locked = judge_locked(limit, may_lock_all(), arena_bytes, shards);
    if !locked.registered && locked.finding.verdict != super::Verdict::Refuse && limit > rings(shards) {
        // Registering some arenas would use up what the rings of the later shards need: keep all of them out. Only the
        // soft limit moves.
        let _ = set_soft(Resource::RLIMIT_MEMLOCK, rings(shards).min(arena_bytes));
    }
    locked
}

/// Locked memory for the rings of all shards, twice: a process that was just stopped gives its own back late.
fn rings(shards: u64) -> u64 {
    (2 * shards * RING_BYTES).max(2 * LOCKED_BYTES_MIN)
}

fn judge_locked(limit: u64, unlimited: bool, arena_bytes: u64, shards: u64) -> LockedMemory {
    const SUBJECT: &str = "locked memory";
    const ADVICE: &str =
        "Raise it: LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container.";
    let needed = rings(shards) + shards * ARENA_COPIES * arena_bytes;
    let refused = |sentence: String, advice: String| LockedMemory {
        registered: false,
        finding: Finding::refuse(SUBJECT, sentence, advice),
    };
    if limit < LOCKED_BYTES_MIN {
        // The runtime refuses this even with the capability.
        return refused(
            format!(
                "The limit is {}, io_uring needs at least {}.",
                human(limit),
                human(LOCKED_BYTES_MIN)
            ),
            ADVICE.to_owned(),
        );
    }
    if unlimited || limit >= needed {
        let sentence = if unlimited {
            "No limit applies.".to_owned()
        } else {
            format!("The limit is {}.", human(limit))
        };
        return LockedMemory {
            registered: true,
            finding: Finding::ok(SUBJECT, sentence),
        };
    }
    if limit < shards * RING_BYTES {
        let fitting = limit / RING_BYTES;
        return refused(
            format!(
                "The limit is {}, too little for the io_uring instances of {shards} shards.",
                human(limit)
            ),
            format!("{ADVICE} Or set penstock.shards={fitting}."),
        );
    }
    LockedMemory {
        registered: false,
        finding: Finding::degraded(
            SUBJECT,
            format!(
                "The limit is {}, registered buffers would need {}: they are not registered with io_uring, and each direct read or write costs the kernel a little more.",
                human(limit),
                human(needed)
            ),
            ADVICE,
        ),
    }
}

/// Raises the soft limit to the hard one and returns what holds then; `u64::MAX` for none.
fn raise(resource: Resource) -> u64 {
    let Ok((soft, hard)) = getrlimit(resource) else {
        return 0;
    };
    let raised = soft < hard && setrlimit(resource, hard, hard).is_ok();
    let limit = if raised { hard } else { soft };
    if limit == RLIM_INFINITY { u64::MAX } else { limit }
}

fn set_soft(resource: Resource, soft: u64) -> nix::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    setrlimit(resource, soft.min(hard), hard)
}

/// Whether the process may lock memory without a limit.
fn may_lock_all() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    has_capability(&status, CAP_IPC_LOCK)
}

fn has_capability(status: &str, bit: u32) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|capabilities| capabilities >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::Verdict;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_common_8_mib_work_without_registered_buffers() {
        let locked = judge_locked(8 * MIB, false, 32 * MIB, 2);
        assert!(!locked.registered);
        assert_eq!(locked.finding.verdict, Verdict::Degraded);
        assert!(locked.finding.sentence.contains("8 MiB"), "{}", locked.finding);
        assert!(locked.finding.advice.contains("memlock"), "{}", locked.finding);
    }

    #[test]
    fn enough_or_a_capability_registers_them() {
        assert!(judge_locked(u64::MAX, false, 32 * MIB, 64).registered);
        assert!(judge_locked(8 * MIB, true, 32 * MIB, 2).registered);
        assert!(judge_locked(256 * MIB, false, 32 * MIB, 2).registered);
        // All or none: 100 MiB would hold one arena three times and starve the next shard's rings.
        assert!(!judge_locked(100 * MIB, false, 32 * MIB, 2).registered);
    }

    #[test]
    fn too_little_for_the_rings_is_refused_with_a_number_that_fits() {
        let none = judge_locked(64 << 10, true, 32 * MIB, 2);
        assert_eq!(
            none.finding.verdict,
            Verdict::Refuse,
            "glommio refuses it even from root"
        );
        let few = judge_locked(4 * MIB, false, 32 * MIB, 64);
        assert_eq!(few.finding.verdict, Verdict::Refuse);
        assert!(
            few.finding.advice.contains("penstock.shards=16"),
            "{}",
            few.finding
        );
    }

    #[test]
    fn capabilities_are_read_from_the_effective_set() {
        assert!(has_capability(
            "Name:\tx\nCapEff:\t000001fffeffffff\n",
            CAP_IPC_LOCK
        ));
        assert!(!has_capability(
            "CapPrm:\tffffffff\nCapEff:\t0000000000003fff\n",
            CAP_IPC_LOCK
        ));
        assert!(!has_capability("", CAP_IPC_LOCK));
    }

    #[test]
    fn few_open_files_are_said_and_very_few_refused() {
        assert_eq!(judge_descriptors(u64::MAX, 10, 64).verdict, Verdict::Ok);
        assert_eq!(judge_descriptors(1024, 10, 8).verdict, Verdict::Degraded);
        assert_eq!(judge_descriptors(64, 10, 1).verdict, Verdict::Refuse);
        assert_eq!(judge_descriptors(1024, 10, 64).verdict, Verdict::Refuse);
        // A parent that leaks leaves too few.
        assert_eq!(judge_descriptors(1024, 900, 8).verdict, Verdict::Refuse);
    }
}
