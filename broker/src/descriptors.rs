//! How the file descriptors that the process may have are divided: a part is held back for shards, journals and the admin
//! address, the rest is shared by segment files and connections. Clients can use up only their own part; more of them wait
//! in the kernel's backlog.

use std::fs::File;
use std::io;

/// What the process has open beside shards and clients: standard streams, the lock, listeners, threads' wake-ups.
const PROCESS_FILES: u64 = 40;

/// What a shard has open beside segments: the rings of its executor, journal files, each twice, and the metadata log (11 while idle),
/// and what is open for a moment (an index, a directory that is synced).
const SHARD_FILES: u64 = 48;

/// Segment files a shard keeps open at least.
const SEGMENT_FILES_MIN: u64 = 32;

/// Segment files a shard keeps open at most: each takes kernel memory.
const SEGMENT_FILES_MAX: u64 = 1 << 16;

/// Connections of clients below which there is no use in starting.
const CONNECTIONS_MIN: u64 = 32;

/// Connections to the admin address, at least and at most: probes gone wild must not take what clients need.
const ADMIN_CONNECTIONS: (u64, u64) = (8, 128);

/// Descriptors that must be free when the broker says that it is ready.
const FREE_MIN: usize = 16;

/// The parts of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Segment files that each shard may keep open.
    pub segment_files: usize,
    /// Connections of clients, over all listeners.
    pub connections: usize,
    /// Connections to the admin address.
    pub admin_connections: usize,
}

/// The fewest descriptors with which a broker of so many shards can work.
#[must_use]
pub fn needed(shards: u64) -> u64 {
    PROCESS_FILES + ADMIN_CONNECTIONS.0 + CONNECTIONS_MIN + shards * (SHARD_FILES + SEGMENT_FILES_MIN)
}

impl Descriptors {
    /// Divides `limit`, which is at least [`needed`]. Of what is more than that, a sixteenth is for the admin address as far as
    /// that wants it; a quarter of the rest is for segment files, which can be closed and opened again, and the most for
    /// connections, which cannot.
    #[must_use]
    pub fn divide(limit: u64, shards: u64) -> Self {
        let shards = shards.max(1);
        let (admin_min, admin_max) = ADMIN_CONNECTIONS;
        let spare = limit.saturating_sub(needed(shards));
        let admin = (admin_min + spare / 16).min(admin_max);
        let spare = spare - (admin - admin_min);
        let segment_files = (SEGMENT_FILES_MIN + spare / 4 / shards).min(SEGMENT_FILES_MAX);
        let connections = CONNECTIONS_MIN + spare - shards * (segment_files - SEGMENT_FILES_MIN);
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self {
            segment_files: size(segment_files),
            connections: size(connections),
            admin_connections: size(admin),
        }
    }
}

/// Descriptors of this process that are open now: some may be inherited.
#[must_use]
pub fn open_now() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64)
}

/// Whether clients can be let in: takes some descriptors and gives them back.
///
/// # Errors
/// The operating system's, when it has none for this process.
pub fn some_are_free() -> io::Result<()> {
    let taken: io::Result<Vec<File>> = (0..FREE_MIN).map(|_| File::open("/dev/null")).collect();
    taken.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(parts: Descriptors, shards: u64) -> u64 {
        let segments = shards * parts.segment_files as u64;
        PROCESS_FILES
            + shards * SHARD_FILES
            + segments
            + parts.connections as u64
            + parts.admin_connections as u64
    }

    #[test]
    fn the_parts_are_never_more_than_there_is() {
        for shards in [1, 2, 4, 8, 64, 256] {
            for more in [0, 1, 100, 511, 5_000, 1 << 20] {
                let limit = needed(shards) + more;
                let parts = Descriptors::divide(limit, shards);
                assert!(total(parts, shards) <= limit, "{limit} for {shards}: {parts:?}");
                assert!(parts.connections as u64 >= CONNECTIONS_MIN);
                assert!(parts.segment_files as u64 >= SEGMENT_FILES_MIN);
            }
        }
    }

    #[test]
    fn common_limits() {
        assert!(needed(8) <= 1024, "8 shards work with the 1024 of a login shell");
        let parts = Descriptors::divide(1000, 2);
        assert_eq!((parts.segment_files, parts.connections), (121, 567));
        assert_eq!(parts.admin_connections, 55);
        let parts = Descriptors::divide(20_000, 2);
        assert!(parts.connections > 10_000, "{parts:?}");
        let parts = Descriptors::divide(u64::MAX, 1);
        assert_eq!(parts.segment_files as u64, SEGMENT_FILES_MAX);
        assert!(parts.connections > 1 << 32);
    }

    #[test]
    fn this_test_has_descriptors() {
        assert!(open_now() >= 3);
        some_are_free().expect("descriptors");
    }
}
