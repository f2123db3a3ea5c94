//! The broker that is killed: ours, or Apache Kafka to try the test itself.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::kafka::{Kafka, KafkaOptions};
use crate::process::{Broker, Profile, free_port_pair};

/// Metric that counts batches answered from producer state instead of being appended again.
const DUPLICATES_METRIC: &str = "penstock_produce_duplicates_total";

/// Which broker to kill.
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
        match kind {
            Kind::Penstock(profile) => Ok(Self::Penstock(Box::new(Broker::new(profile, dir, overrides)?))),
            Kind::Kafka => {
                let overrides = overrides.iter().map(|&one| one.to_owned()).collect();
                let options = KafkaOptions {
                    dir: PathBuf::from(dir),
                    port: free_port_pair()?,
                    heap: "512m".into(),
                    overrides,
                };
                Ok(Self::Kafka(options, None))
            }
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

    /// `HOST:PORT` for clients.
    pub fn bootstrap(&self) -> String {
        match self {
            Self::Penstock(broker) => broker.bootstrap(),
            Self::Kafka(options, _) => format!("127.0.0.1:{}", options.port),
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
