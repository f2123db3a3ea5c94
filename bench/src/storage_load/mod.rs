//! Loads that show what storage does to latency and throughput: the six findings of a critic of another direct-I/O broker as
//! benchmarks, and small batches over many partitions. Each compares two loads of one broker, or a load and the device, side by
//! side on one host, in an order that alternates. The client is our own: batches made before, answers read where they lie.

mod device;
mod drain;
mod drained;
mod host;
mod paced;
mod producers;
mod report;
mod throughput;
pub(crate) mod wire;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::compare::Kind;
use crate::error::{Error, Result, failed};
use crate::group_load::{allow_connections, on_this_thread};
use host::{Figures, Host, Meter, create_topic};
use producers::{Load, Produced};

/// Connections of all loads together, at most.
const CONNECTIONS_MAX: usize = 200;

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// The same rate from 4 producers and from 50, whose batches are smaller.
    Producers,
    /// The same rate for long: the end against the beginning.
    LongRun,
    /// What changes when retention begins to delete.
    RetentionStart,
    /// Keyed records, which go to many partitions in small batches, against batches of one partition.
    KeyedSmallBatches,
    /// As much as the device takes, against the device itself.
    DeviceLimit,
    /// Reading a backlog from disk against reading from memory and the device; and what it does to producers.
    BacklogDrain,
    /// Records of 100 bytes, each a batch: 1,000 partitions against one for each core.
    SmallBatches,
}

/// How much is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the data go; removed after each broker.
    pub dir: PathBuf,
    /// Pairs of each benchmark.
    pub rounds: usize,
    /// What is measured of each load.
    pub time: Duration,
    /// Of the long run.
    pub long_time: Duration,
    /// MB (10^6 bytes) a second of loads at a pace.
    pub megabytes_per_second: f64,
    /// Megabytes of a backlog.
    pub backlog_megabytes: u64,
    /// The broker.
    pub kind: Kind,
    /// Further settings of it, `key=value`.
    pub overrides: Vec<String>,
}

impl Scenario {
    /// Runs it; the section of the report, from its heading on.
    ///
    /// # Errors
    /// The broker or the load fails.
    pub fn run(self, plan: &Plan) -> Result<String> {
        allow_connections(CONNECTIONS_MAX)?;
        let body = match self {
            Self::Producers => paced::producers(plan),
            Self::LongRun => paced::long_run(plan),
            Self::RetentionStart => paced::retention_start(plan),
            Self::KeyedSmallBatches => throughput::keyed(plan),
            Self::DeviceLimit => throughput::device_limit(plan),
            Self::BacklogDrain => drained::backlog(plan),
            Self::SmallBatches => throughput::small_batches(plan),
        }?;
        Ok(format!("## {}\n\n{body}", self.title(plan)))
    }

    fn title(self, plan: &Plan) -> String {
        let rate = plan.megabytes_per_second;
        match self {
            Self::Producers => {
                format!(
                    "4 against 50 producers: {rate:.0} MB/s of 1 KB records, linger of 1 ms, 100 partitions"
                )
            }
            Self::LongRun => format!(
                "Long run: {rate:.0} MB/s for {} s, the last fifth against the first",
                plan.long_time.as_secs()
            ),
            Self::RetentionStart => {
                format!("Retention starts: {rate:.0} MB/s, after the first deletion against before")
            }
            Self::KeyedSmallBatches => {
                "Keyed small batches: 100 producers, requests of ten 1 KB batches against one 10 KB batch"
                    .to_owned()
            }
            Self::DeviceLimit => "Device limit: 8 producers, batches of 900 KB, acks=1".to_owned(),
            Self::BacklogDrain => format!("Backlog drain: {} MB", plan.backlog_megabytes),
            Self::SmallBatches => {
                "Small batches: 100 B records, linger 0, 50 producers, 5 requests in flight each, acks=all"
                    .to_owned()
            }
        }
    }
}

impl Plan {
    /// A broker with empty data.
    fn host(&self, overrides: &[&str]) -> Result<Host> {
        let own = self.overrides.iter().map(String::as_str);
        let overrides: Vec<&str> = overrides.iter().copied().chain(own).collect();
        Host::start(self.kind, &self.dir.join("broker"), &overrides)
    }

    fn end(&self, host: Host) -> Result<()> {
        host.end(&self.dir.join("broker"))
    }

    /// A load of 1 KB records without a bound.
    fn load(&self, topic: &str, producers: usize, partitions: i32) -> Load {
        Load {
            topic: topic.to_owned(),
            producers,
            partitions,
            partitions_per_request: 1,
            record_bytes: 1000,
            records: 16,
            keyed: false,
            acks: -1,
            bytes_per_second: 0.0,
            warmup: (self.time / 4).min(Duration::from_secs(5)),
            time: self.time,
        }
    }

    /// `count` rounds of `sides`, every second one backwards; the results in the order of the sides.
    fn rounds<S: Copy, T>(
        &self,
        count: usize,
        sides: &[S],
        mut run: impl FnMut(S) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        (0..count)
            .map(|number| {
                if number % 2 == 0 {
                    return sides.iter().map(|side| run(*side)).collect();
                }
                let backwards: Result<Vec<T>> = sides.iter().rev().map(|side| run(*side)).collect();
                backwards.map(|runs| runs.into_iter().rev().collect())
            })
            .collect()
    }
}

/// Runs a client on a thread of its own, and `meanwhile` here.
fn beside<T: Send, U>(
    client: impl FnOnce() -> Result<T> + Send,
    meanwhile: impl FnOnce() -> Result<U>,
) -> Result<(T, U)> {
    std::thread::scope(|scope| {
        let client = scope.spawn(client);
        let seen = meanwhile();
        let came = client
            .join()
            .unwrap_or_else(|_| Err(Error::Failed("the client panicked; its message is above".into())));
        Ok((came?, seen?))
    })
}

/// Runs a load and measures the broker while it counts.
fn measure(host: &Host, load: Load) -> Result<(Produced, Figures)> {
    let (bootstrap, warmup, time) = (host.bootstrap(), load.warmup, load.time);
    let (produced, meters) = beside(
        move || on_this_thread(load.run(&bootstrap)),
        || {
            std::thread::sleep(warmup);
            let meter = Meter::start(host)?;
            std::thread::sleep(time);
            Ok((meter, Meter::start(host)?))
        },
    )?;
    if produced.samples.is_empty() {
        return failed(
            "no request that was due while it counted was answered: the broker does not reach the pace here",
        );
    }
    let figures = meters.0.figures(&meters.1, host, &produced)?;
    Ok((produced, figures))
}

/// Creates a topic of a benchmark.
fn topic(host: &Host, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Result<()> {
    let bootstrap = host.bootstrap();
    on_this_thread(create_topic(&bootstrap, name, partitions, configs))
}
