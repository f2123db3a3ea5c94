//! The broker that cases talk to: ours or Apache Kafka, started with the settings of a [`Setup`], or one that runs already.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::error::{Result, failed};
use crate::kafka::{Kafka, KafkaOptions};
use crate::process::{Broker, Profile, free_port_pair};

/// Settings that several cases share. The two brokers get the same.
#[derive(Debug)]
pub struct Setup {
    /// Name, also of its folder.
    pub name: &'static str,
    /// `key=value` lines.
    pub overrides: &'static [&'static str],
    /// Whether its cases restart the broker, so that they run one after the other.
    pub restarts: bool,
}

/// What everybody has by default.
pub(super) static DEFAULT: Setup = Setup {
    name: "default",
    overrides: &[],
    restarts: false,
};

/// For cases that kill and restart the broker.
pub(super) static RESTARTS: Setup = Setup {
    name: "restarts",
    overrides: &[],
    restarts: true,
};

/// Who is tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Apache Kafka 4.3.1.
    Kafka,
    /// The broker of this repository.
    Penstock,
    /// Whoever listens at this address; only cases with default settings can be tried.
    Address(String),
}

#[derive(Debug)]
enum Process {
    Kafka(KafkaOptions, Option<Kafka>),
    Penstock(Broker),
    Other,
}

/// A running broker.
#[derive(Debug)]
pub struct Target {
    address: String,
    process: Mutex<Process>,
}

impl Target {
    /// Starts a broker with these settings, its files below `dir`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(who: &Who, setup: &Setup, dir: &Path) -> Result<Self> {
        let dir = dir.join(setup.name);
        match who {
            Who::Kafka => Self::kafka(setup, dir),
            Who::Penstock => Self::penstock(setup, &dir),
            Who::Address(address) if setup.overrides.is_empty() && !setup.restarts => Ok(Self {
                address: address.clone(),
                process: Mutex::new(Process::Other),
            }),
            Who::Address(_) => failed("a broker that runs already has its own settings"),
        }
    }

    fn kafka(setup: &Setup, dir: PathBuf) -> Result<Self> {
        let options = KafkaOptions {
            dir,
            port: free_port_pair()?,
            heap: "512m".to_owned(),
            overrides: setup.overrides.iter().map(|&one| one.to_owned()).collect(),
        };
        let kafka = Kafka::start(&options)?;
        Ok(Self {
            address: kafka.bootstrap(),
            process: Mutex::new(Process::Kafka(options, Some(kafka))),
        })
    }

    fn penstock(setup: &Setup, dir: &Path) -> Result<Self> {
        // Kafka's node has the number 1.
        let overrides: Vec<_> = ["node.id=1"].iter().chain(setup.overrides).copied().collect();
        let mut broker = Broker::new(Profile::Dev, dir, &overrides)?;
        broker.start(None)?;
        Ok(Self {
            address: broker.bootstrap(),
            process: Mutex::new(Process::Penstock(broker)),
        })
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Ends the broker as `kill -9` does, and starts it again on its data.
    ///
    /// # Errors
    /// It does not come back.
    pub fn kill_and_start(&self) -> Result<()> {
        self.again(|broker| broker.kill())
    }

    /// Stops the broker in order, and starts it again on its data.
    ///
    /// # Errors
    /// It does not stop or does not come back.
    pub fn stop_and_start(&self) -> Result<()> {
        self.again(|broker| broker.terminate(Duration::from_secs(30)).map(|_| ()))
    }

    fn again(&self, end: impl FnOnce(&mut Broker) -> Result<()>) -> Result<()> {
        let mut process = self.process.lock().expect("a case panicked while restarting");
        match &mut *process {
            Process::Kafka(options, kafka) => {
                // Dropping it stops it in order; our own kind of end matters for our broker only.
                if let Some(running) = kafka.take() {
                    running.kill()?;
                }
                *kafka = Some(Kafka::start(options)?);
                Ok(())
            }
            Process::Penstock(broker) => {
                end(broker)?;
                broker.start(None)
            }
            Process::Other => failed("this broker is not ours to restart"),
        }
    }
}
