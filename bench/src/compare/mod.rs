//! Brokers side by side on one host: in alternating order each gets the same load from the same client, round after round, and what is
//! reported are medians, extremes and ratios of throughput, delivery latency, CPU seconds for each GB and resident memory.

mod client;

pub use client::{Load, Measured, build_client};

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::{Doing, Error, Result};
use crate::kafka::{Kafka, KafkaOptions};
use crate::process::{Broker, Profile};
use crate::report::Column;
use crate::resources::usage;

/// Work that a broker does after the last answer (writing behind, flushing) counts as long as this.
const SETTLE: Duration = Duration::from_secs(2);
/// How long our broker may take for a graceful stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A broker to measure.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What the tables call it.
    pub name: String,
    /// Which one.
    pub kind: Kind,
    /// Further settings, `key=value`.
    pub overrides: Vec<String>,
}

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Ours, built for release.
    Penstock,
    /// Apache Kafka 4.3.1 with a heap of 1 GB.
    Kafka,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Penstock => "Penstock",
            Self::Kafka => "Apache Kafka 4.3.1",
        })
    }
}

/// One broker under the load once.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// MB (10^6 bytes of values) a second.
    pub megabytes_per_second: f64,
    /// CPU seconds of the broker for 10^9 bytes of values.
    pub cpu_seconds_per_gigabyte: f64,
    /// Resident memory of the broker right after the load, in MB.
    pub resident_megabytes: f64,
    /// Resident memory of the broker before any client came, in MB.
    pub idle_megabytes: f64,
    /// Percentiles 50, 99 and 99.9 of the delivery latency, in milliseconds.
    pub latency_ms: [f64; 3],
    /// From the start of the process (and, for Kafka, formatting its directory) until it serves, in milliseconds.
    pub ready_ms: f64,
    /// CPU seconds of the client for 10^9 bytes: what it leaves to the broker on a small host.
    pub client_cpu_seconds_per_gigabyte: f64,
    /// Version of the client.
    pub client_version: String,
}

/// The figures of a run, as they are reported.
pub const COLUMNS: [Column<Run>; 9] = [
    Column::new("MB/s", 0, |run: &Run| run.megabytes_per_second),
    Column::new("broker CPU s/GB", 2, |run| run.cpu_seconds_per_gigabyte),
    Column::new("RSS MB", 0, |run| run.resident_megabytes),
    Column::new("p50 ms", 1, |run| run.latency_ms[0]),
    Column::new("p99 ms", 1, |run| run.latency_ms[1]),
    Column::new("p99.9 ms", 1, |run| run.latency_ms[2]),
    Column::new("client CPU s/GB", 2, |run| run.client_cpu_seconds_per_gigabyte),
    Column::new("ready after ms", 0, |run| run.ready_ms),
    Column::new("RSS MB idle", 0, |run| run.idle_megabytes),
];

/// A broker that runs to be measured.
#[derive(Clone, Debug)]
pub struct Serving {
    /// `HOST:PORT` for clients.
    pub bootstrap: String,
    /// Its process.
    pub pid: u32,
    /// From the start of the process (and, for Kafka, formatting its directory) until it serves.
    pub ready_after: Duration,
}

/// Starts a broker with empty data below `dir`, has `work` done with it, stops it, and removes the data again.
///
/// # Errors
/// The broker or the work fails.
pub fn serve<T>(
    contender: &Contender,
    dir: &Path,
    overrides: &[&str],
    work: impl FnOnce(&Serving) -> Result<T>,
) -> Result<T> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).doing(dir.display())?;
    }
    let own = contender.overrides.iter().map(String::as_str);
    let overrides: Vec<_> = own.chain(overrides.iter().copied()).collect();
    let done = match contender.kind {
        Kind::Penstock => {
            let mut broker = Broker::new(Profile::Release, dir, &overrides)?;
            broker.start(None)?;
            let pid = broker
                .pid()
                .ok_or_else(|| Error::Failed("the broker ended".into()))?;
            let done = work(&Serving {
                bootstrap: broker.bootstrap(),
                pid,
                ready_after: broker.ready_after(),
            })?;
            broker.terminate(STOP_LIMIT)?;
            done
        }
        Kind::Kafka => {
            let started = Instant::now();
            let kafka = Kafka::start(&KafkaOptions::new(dir, "1g", &overrides)?)?;
            work(&Serving {
                bootstrap: kafka.bootstrap(),
                pid: kafka.pid(),
                ready_after: started.elapsed(),
            })?
        }
    };
    std::fs::remove_dir_all(dir).doing(dir.display())?;
    Ok(done)
}

/// Loads a broker with `load` and measures it.
///
/// # Errors
/// As [`serve`].
pub fn measure(contender: &Contender, client: &Path, load: &Load, dir: &Path) -> Result<Run> {
    let partitions = format!("num.partitions={}", load.partitions);
    serve(contender, dir, &[&partitions], |broker| {
        under_load(client, load, broker)
    })
}

fn under_load(client: &Path, load: &Load, broker: &Serving) -> Result<Run> {
    let pid = broker.pid;
    let idle = usage(pid)?.resident_bytes;
    let mut before = 0.0;
    let measured = load.run(client, &broker.bootstrap, || {
        before = usage(pid)?.cpu_seconds;
        Ok(())
    })?;
    let resident = usage(pid)?.resident_bytes;
    std::thread::sleep(SETTLE);
    let cpu = usage(pid)?.cpu_seconds - before;
    let gigabytes = measured.bytes as f64 / 1e9;
    Ok(Run {
        megabytes_per_second: gigabytes * 1e3 / measured.seconds,
        cpu_seconds_per_gigabyte: cpu / gigabytes,
        resident_megabytes: resident as f64 / 1e6,
        idle_megabytes: idle as f64 / 1e6,
        latency_ms: measured.latency_ms,
        ready_ms: broker.ready_after.as_secs_f64() * 1e3,
        client_cpu_seconds_per_gigabyte: measured.client_cpu_seconds / gigabytes,
        client_version: measured.version,
    })
}

/// Measures every contender once, in their order, or `backwards`: so that over the rounds none always runs on the warmer host. The
/// runs come back in the order of the contenders.
///
/// # Errors
/// As `measure`.
pub fn round<R>(
    contenders: &[Contender],
    backwards: bool,
    measure: impl FnMut(&Contender) -> Result<R>,
) -> Result<Vec<R>> {
    if backwards {
        let runs: Result<Vec<_>> = contenders.iter().rev().map(measure).collect();
        runs.map(|runs| runs.into_iter().rev().collect())
    } else {
        contenders.iter().map(measure).collect()
    }
}
