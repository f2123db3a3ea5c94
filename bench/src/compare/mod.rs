//! Two brokers side by side on one host: in alternating pairs each gets the same load from the same client, and what is reported are
//! medians of throughput, CPU seconds for each GB and resident memory, and their ratios.

mod client;
mod table;

pub use client::{Load, Measured, build_client};
pub use table::markdown;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Doing, Error, Result};
use crate::kafka::{Kafka, KafkaOptions};
use crate::process::{Broker, Profile, free_port_pair};
use crate::resources::usage;

/// Work that a broker does after the last answer (writing behind, flushing) counts as long as this.
const SETTLE: Duration = Duration::from_secs(2);
/// How long our broker may take for a graceful stop.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A broker to measure.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Which one.
    pub kind: Kind,
    /// Further settings, `key=value`.
    pub overrides: Vec<String>,
}

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// MB (10^6 bytes of values) a second.
    pub megabytes_per_second: f64,
    /// CPU seconds of the broker for 10^9 bytes of values.
    pub cpu_seconds_per_gigabyte: f64,
    /// Resident memory of the broker right after the load, in MB.
    pub resident_megabytes: f64,
    /// CPU seconds of the client for 10^9 bytes: what it leaves to the broker on a small host.
    pub client_cpu_seconds_per_gigabyte: f64,
}

/// Starts a broker with empty data below `dir`, loads it, and removes the data again.
///
/// # Errors
/// The broker or the client fails.
pub fn measure(contender: &Contender, client: &Path, load: &Load, dir: &Path) -> Result<Run> {
    if dir.exists() {
        std::fs::remove_dir_all(dir).doing(dir.display())?;
    }
    let partitions = format!("num.partitions={}", load.partitions);
    let run = match contender.kind {
        Kind::Penstock => {
            let overrides: Vec<_> = contender
                .overrides
                .iter()
                .map(String::as_str)
                .chain([partitions.as_str()])
                .collect();
            let mut broker = Broker::new(Profile::Release, dir, &overrides)?;
            broker.start(None)?;
            let pid = broker
                .pid()
                .ok_or_else(|| Error::Failed("the broker ended".into()))?;
            let run = under_load(client, load, &broker.bootstrap(), pid)?;
            broker.terminate(STOP_LIMIT)?;
            run
        }
        Kind::Kafka => {
            let overrides = contender.overrides.iter().cloned().chain([partitions]).collect();
            let kafka = Kafka::start(&KafkaOptions {
                dir: PathBuf::from(dir),
                port: free_port_pair()?,
                heap: "1g".into(),
                overrides,
            })?;
            under_load(client, load, &kafka.bootstrap(), kafka.pid())?
        }
    };
    std::fs::remove_dir_all(dir).doing(dir.display())?;
    Ok(run)
}

fn under_load(client: &Path, load: &Load, bootstrap: &str, pid: u32) -> Result<Run> {
    let mut before = 0.0;
    let measured = load.run(client, bootstrap, || {
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
        client_cpu_seconds_per_gigabyte: measured.client_cpu_seconds / gigabytes,
    })
}

/// One subject and one baseline, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// The broker that is judged.
    pub subject: Run,
    /// What it is held against.
    pub baseline: Run,
}

/// The middle value, or the mean of the two middle ones; 0 of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), values.get(middle.wrapping_sub(1))) {
        (Some(&high), Some(&low)) if values.len() % 2 == 0 => f64::midpoint(low, high),
        (Some(&high), _) => high,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median([3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median([4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
        assert!(median([]).abs() < 1e-12);
        assert!((median([7.0]) - 7.0).abs() < 1e-12);
    }
}
