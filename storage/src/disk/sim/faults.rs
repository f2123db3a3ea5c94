//! What a simulated disk can be told to do wrong, and how fast it is: configuration, fault rules, the operation trace.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sim_rng::SimRng;

/// A simulated disk as it is made.
#[derive(Clone, Debug)]
pub struct SimDiskConfig {
    /// Seeds latencies, faults and crash outcomes.
    pub seed: u64,
    /// The size of the disk, bytes; beyond it writes fail with `StorageFull`.
    pub capacity_bytes: u64,
    /// Wall-clock time at virtual time zero, milliseconds since the epoch.
    pub epoch_ms: i64,
    /// How long operations take.
    pub latency: SimLatency,
    /// After a power loss, sectors written but never synced may hold garbage instead of zeroes or the new bytes.
    pub garbage_tails: bool,
    /// The planted bug: syncs of files, directories and file systems succeed without doing anything.
    pub lie_about_sync: bool,
    /// Every directory is a file system of its own: a sync of the file system covers only what lies below the directory it names.
    pub file_system_per_dir: bool,
    /// Reads that fail, per million.
    pub read_error_ppm: u32,
    /// Reads that come back with one bit flipped (the disk itself stays intact), per million.
    pub read_flip_ppm: u32,
}

/// How long the operations of a simulated disk take, virtual time; each draw is uniform between the two ends.
#[derive(Clone, Debug)]
pub struct SimLatency {
    /// One read.
    pub read: (Duration, Duration),
    /// One write, also truncate and allocate.
    pub write: (Duration, Duration),
    /// One sync of a file, a directory or the file system.
    pub sync: (Duration, Duration),
    /// Names: open, list, create, remove, rename.
    pub name: (Duration, Duration),
    /// Operations that take [`SimLatency::slow_factor`] times as long, per million.
    pub slow_ppm: u32,
    /// How much longer a slow operation takes.
    pub slow_factor: u32,
}

/// The kinds of disk operation, for fault rules and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the trait method of that name")]
pub enum DiskOp {
    Open,
    Create,
    List,
    CreateDir,
    RemoveFile,
    RemoveDir,
    Rename,
    SyncDir,
    SyncFilesystem,
    Space,
    Write,
    Read,
    Sync,
    Allocate,
    Truncate,
    Size,
    Close,
}

/// A rule that makes matching operations fail or dawdle. Rules are asked in the order they were added; the first that
/// matches and is not used up decides.
#[derive(Clone, Debug)]
pub struct SimFault {
    op: DiskOp,
    path_contains: String,
    skip: u32,
    times: u32,
    effect: FaultEffect,
}

/// What a fault does to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultEffect {
    Error(io::ErrorKind),
    Delay(Duration),
    Skip,
}

/// One line of the operation trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// Virtual time, nanoseconds.
    pub at_ns: u64,
    /// The operation.
    pub op: DiskOp,
    /// Its file or directory (the source of a rename).
    pub path: PathBuf,
    /// Position of a read or write, target size of allocate and truncate.
    pub position: u64,
    /// Length of a read or write, bytes.
    pub len: usize,
    /// How far it got.
    pub phase: TracePhase,
}

/// How far a traced operation got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePhase {
    /// Handed to the disk.
    Issued,
    /// Ended well.
    Done,
    /// Ended in an error.
    Failed,
}

impl Default for SimDiskConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            capacity_bytes: 1 << 40,
            epoch_ms: 1_700_000_000_000,
            latency: SimLatency::default(),
            garbage_tails: true,
            lie_about_sync: false,
            file_system_per_dir: false,
            read_error_ppm: 0,
            read_flip_ppm: 0,
        }
    }
}

impl SimDiskConfig {
    /// The defaults with `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }
}

impl Default for SimLatency {
    /// About an SSD: tens of microseconds, now and then twenty times as long.
    fn default() -> Self {
        let micros = |low, high| (Duration::from_micros(low), Duration::from_micros(high));
        Self {
            read: micros(20, 200),
            write: micros(20, 300),
            sync: micros(50, 1000),
            name: micros(5, 100),
            slow_ppm: 10_000,
            slow_factor: 20,
        }
    }
}

impl SimLatency {
    pub(super) fn draw(&self, op: DiskOp, rng: &mut SimRng) -> Duration {
        let (low, high) = match op {
            DiskOp::Read => self.read,
            DiskOp::Write | DiskOp::Allocate | DiskOp::Truncate => self.write,
            DiskOp::Sync | DiskOp::SyncDir | DiskOp::SyncFilesystem => self.sync,
            _ => self.name,
        };
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let drawn = Duration::from_nanos(rng.between(nanos(low), nanos(high)));
        if rng.chance(self.slow_ppm) {
            drawn.saturating_mul(self.slow_factor)
        } else {
            drawn
        }
    }
}

impl DiskOp {
    /// Whether it changes the disk, and so counts for a crash point.
    #[must_use]
    pub fn is_mutation(self) -> bool {
        !matches!(
            self,
            Self::Open | Self::List | Self::Space | Self::Read | Self::Size | Self::Close
        )
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create => "create",
            Self::List => "list",
            Self::CreateDir => "create directory",
            Self::RemoveFile | Self::RemoveDir => "remove",
            Self::Rename => "rename",
            Self::SyncDir => "sync of directory",
            Self::SyncFilesystem => "sync of file system",
            Self::Space => "space query",
            Self::Write => "write",
            Self::Read => "read",
            Self::Sync => "sync",
            Self::Allocate => "allocate",
            Self::Truncate => "truncate",
            Self::Size => "size query",
            Self::Close => "close",
        }
    }
}

impl SimFault {
    /// Operations `op` on paths that contain `path_contains` fail with `kind`, all of them until [`SimFault::times`].
    /// A failed write may have written a part; a failed sync loses data for good (it is never retried with success).
    pub fn error(op: DiskOp, path_contains: impl Into<String>, kind: io::ErrorKind) -> Self {
        Self::new(op, path_contains.into(), FaultEffect::Error(kind))
    }

    /// Operations `op` on paths that contain `path_contains` take `delay` longer.
    pub fn delay(op: DiskOp, path_contains: impl Into<String>, delay: Duration) -> Self {
        Self::new(op, path_contains.into(), FaultEffect::Delay(delay))
    }

    /// Operations `op` on paths that contain `path_contains` succeed without doing anything: what a caller that leaves them out
    /// would do, so a planted bug. Not for operations that bring something back (create, open, reads).
    pub fn skip(op: DiskOp, path_contains: impl Into<String>) -> Self {
        Self::new(op, path_contains.into(), FaultEffect::Skip)
    }

    fn new(op: DiskOp, path_contains: String, effect: FaultEffect) -> Self {
        Self {
            op,
            path_contains,
            skip: 0,
            times: u32::MAX,
            effect,
        }
    }

    /// Lets the first `count` matching operations pass.
    #[must_use]
    pub fn after(mut self, count: u32) -> Self {
        self.skip = count;
        self
    }

    /// Is used up after `count` operations.
    #[must_use]
    pub fn times(mut self, count: u32) -> Self {
        self.times = count;
        self
    }

    /// What this rule does to the operation, counting it.
    pub(super) fn apply(&mut self, op: DiskOp, path: &Path) -> Option<FaultEffect> {
        if op != self.op || self.times == 0 || !path.to_string_lossy().contains(&self.path_contains) {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.times != u32::MAX {
            self.times -= 1;
        }
        Some(self.effect)
    }
}
