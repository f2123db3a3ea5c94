//! A broker that is killed, stopped and started again: ours, or Apache Kafka to try a test itself.

use std::path::Path;
use std::time::Duration;

use crate::error::Result;
use crate::kafka::{Kafka, KafkaOptions};
use crate::process::{Broker, Profile};

/// Metric that counts batches answered from producer state instead of being appended again.
const DUPLICATES_METRIC: &str = "penstock_produce_duplicates_total";

/// How long our broker may take for a graceful stop, unoptimised and on a busy host.
const STOP_LIMIT: Duration = Duration::from_secs(30);

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Penstock, built so.
    Penstock(Profile),
    /// Apache Kafka 4.3.1. It has no metric of duplicates here, and a fixed set of threads.
    Kafka,
}

/// A broker that survives being killed: same data, same address.
#[derive(Debug)]
pub enum Target {
    /// Ours.
    Penstock(Box<Broker>),
    /// Kafka's, with what its next start needs.
    Kafka(KafkaOptions, Option<Kafka>),
}

impl Target {
    /// A broker below `dir`, not started.
    ///
    /// # Errors
    /// No free port, or the binary cannot be built.
    pub fn new(kind: Kind, dir: &Path, overrides: &[&str]) -> Result<Self> {
        Self::with_heap(kind, dir, "512m", overrides)
    }

    /// The same with another heap for Kafka, as the JVM takes it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_heap(kind: Kind, dir: &Path, heap: &str, overrides: &[&str]) -> Result<Self> {
        match kind {
            Kind::Penstock(profile) => Ok(Self::Penstock(Box::new(Broker::new(profile, dir, overrides)?))),
            Kind::Kafka => Ok(Self::Kafka(KafkaOptions::new(dir, heap, overrides)?, None)),
        }
    }

    /// Starts it and waits until it serves.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&mut self, shards: Option<usize>) -> Result<()> {
        match self {
            Self::Penstock(broker) => broker.start(shards),
            Self::Kafka(options, running) => {
                *running = Some(Kafka::start(options)?);
                Ok(())
            }
        }
    }

    /// `kill -9`, and gone when this returns.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&mut self) -> Result<()> {
        match self {
            Self::Penstock(broker) => broker.kill(),
            Self::Kafka(_, running) => running.take().map_or(Ok(()), |kafka| kafka.kill()),
        }
    }

    /// Stops it in order.
    ///
    /// # Errors
    /// It does not run, or does not end in time.
    pub fn terminate(&mut self) -> Result<()> {
        match self {
            Self::Penstock(broker) => broker.terminate(STOP_LIMIT).map(|_| ()),
            Self::Kafka(_, running) => {
                drop(running.take()); // this stops it in order
                Ok(())
            }
        }
    }

    /// Process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Penstock(broker) => broker.pid(),
            Self::Kafka(_, running) => running.as_ref().map(Kafka::pid),
        }
    }

    /// `HOST:PORT` for clients.
    pub fn bootstrap(&self) -> String {
        match self {
            Self::Penstock(broker) => broker.bootstrap(),
            Self::Kafka(options, _) => options.bootstrap(),
        }
    }

    /// Duplicates answered since the last start; none when the broker does not count them.
    ///
    /// # Errors
    /// The admin address does not answer.
    pub fn duplicates(&self) -> Result<Option<u64>> {
        match self {
            // A count below 2^53 is exact as a float.
            Self::Penstock(broker) => Ok(Some(broker.metric(DUPLICATES_METRIC)? as u64)),
            Self::Kafka(..) => Ok(None),
        }
    }
}
