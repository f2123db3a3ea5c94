//! Loads of the group coordinator, the same for Penstock and Apache Kafka: members that heartbeat, a large group that rebalances,
//! commits of offsets. Every member and committer has a connection of its own; all run on one thread.

mod commits;
mod connection;
mod heartbeats;
mod member;
mod rebalance;
mod setup;

pub use commits::Commits;
pub use heartbeats::Heartbeats;
pub use rebalance::Rebalances;

use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::compare::Serving;
use crate::error::{Doing, Result, failed};
use crate::report::{Column, percentile};
use crate::resources::usage;

/// What a load measured; what it does not measure is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Operations a second: heartbeats, committed offsets.
    pub per_second: f64,
    /// Requests a second.
    pub requests_per_second: f64,
    /// CPU of the broker while it was measured, in cores.
    pub cores: f64,
    /// CPU seconds of the broker for a million operations.
    pub cpu_seconds_per_million: f64,
    /// Percentiles 50, 99 and 100 of the time of one operation, in milliseconds.
    pub latency_ms: [f64; 3],
    /// Resident memory of the broker at the end, in MB.
    pub resident_megabytes: f64,
}

/// The figures as they are reported.
pub const COLUMNS: [Column<Figures>; 8] = [
    Column::new("per second", 0, |figures: &Figures| figures.per_second),
    Column::new("requests per second", 0, |figures| figures.requests_per_second),
    Column::new("broker cores", 3, |figures| figures.cores),
    Column::new("broker CPU s per million", 2, |figures| {
        figures.cpu_seconds_per_million
    }),
    Column::new("p50 ms", 2, |figures| figures.latency_ms[0]),
    Column::new("p99 ms", 2, |figures| figures.latency_ms[1]),
    Column::new("most ms", 2, |figures| figures.latency_ms[2]),
    Column::new("RSS MB", 0, |figures| figures.resident_megabytes),
];

/// Descriptors that this process needs besides its connections.
const DESCRIPTORS_RESERVED: u64 = 200;

/// Lets this process open so many connections.
///
/// # Errors
/// The hard limit of open files does not allow them.
pub(crate) fn allow_connections(count: usize) -> Result<()> {
    let needed = count as u64 + DESCRIPTORS_RESERVED;
    let limits = getrlimit(Resource::RLIMIT_NOFILE).map_err(std::io::Error::from);
    let (soft, hard) = limits.doing("reading the limit of open files")?;
    if hard < needed {
        return failed(format!(
            "{needed} open files are needed, the hard limit is {hard} (ulimit -Hn)"
        ));
    }
    let raised = setrlimit(Resource::RLIMIT_NOFILE, soft.max(needed), hard);
    raised
        .map_err(std::io::Error::from)
        .doing("raising the limit of open files")
}

/// Runs a load on this thread until it ends.
pub(crate) fn on_this_thread<T>(load: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.doing("starting the client's executor")?;
    tokio::task::LocalSet::new().block_on(&runtime, load)
}

/// What the broker used between two moments.
struct Meter {
    pid: u32,
    started: Instant,
    cpu_before: f64,
}

impl Meter {
    fn start(broker: &Serving) -> Result<Self> {
        Ok(Self {
            pid: broker.pid,
            started: Instant::now(),
            cpu_before: usage(broker.pid)?.cpu_seconds,
        })
    }

    /// The figures of `operations` in `requests` since the start, with the time of each.
    fn stop(self, operations: u64, requests: u64, mut latencies: Vec<Duration>) -> Result<Figures> {
        let seconds = self.started.elapsed().as_secs_f64();
        let now = usage(self.pid)?;
        let cpu = now.cpu_seconds - self.cpu_before;
        latencies.sort_unstable();
        let sorted: Vec<f64> = latencies.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        Ok(Figures {
            per_second: operations as f64 / seconds,
            requests_per_second: requests as f64 / seconds,
            cores: cpu / seconds,
            cpu_seconds_per_million: cpu * 1e6 / operations.max(1) as f64,
            latency_ms: [0.5, 0.99, 1.0].map(|share| percentile(&sorted, share)),
            resident_megabytes: now.resident_bytes as f64 / 1e6,
        })
    }
}
