//! The broker that cases talk to: ours or Apache Kafka, started with the settings of a [`Setup`], or one that runs already.

use std::path::Path;
use std::sync::Mutex;

use crate::error::{Error, Result, failed};
use crate::process::{Profile, free_port};
use crate::target::{Kind, Target as Process};

/// Settings that several cases share. The two brokers get the same.
#[derive(Debug)]
pub struct Setup {
    /// Name, also of its folder.
    pub name: &'static str,
    /// `key=value` lines. `{port}` and `{next}` stand for the broker's ports, `{other}` for that of a second listener, `{dir}` for its
    /// folder.
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

/// For what depends on racks.
pub(super) static RACK: Setup = Setup {
    name: "rack",
    overrides: &[
        "broker.rack=here",
        "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector",
    ],
    restarts: false,
};

/// For compaction: it is always at work.
pub(super) static CLEANER: Setup = Setup {
    name: "cleaner",
    overrides: &[
        "log.cleaner.backoff.ms=100",
        "log.cleaner.min.cleanable.ratio=0.001",
    ],
    restarts: false,
};

/// For groups: nobody waits for a second member.
pub(super) static GROUPS: Setup = Setup {
    name: "groups",
    overrides: &["group.initial.rebalance.delay.ms=0"],
    restarts: false,
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

/// A running broker.
#[derive(Debug)]
pub struct Target {
    address: String,
    /// Of the second listener, where the settings name one.
    other: Option<String>,
    /// None when it is not ours to restart.
    process: Mutex<Option<Process>>,
}

impl Target {
    /// Starts a broker with these settings, its files below `dir`.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(who: &Who, setup: &Setup, dir: &Path) -> Result<Self> {
        let dir = dir.join(setup.name);
        match who {
            Who::Kafka => Self::own(Kind::Kafka, &dir, setup.overrides),
            Who::Penstock => {
                // Kafka's node has the number 1.
                let overrides: Vec<_> = ["node.id=1"].iter().chain(setup.overrides).copied().collect();
                Self::own(Kind::Penstock(Profile::Dev), &dir, &overrides)
            }
            Who::Address(address) if setup.overrides.is_empty() && !setup.restarts => Ok(Self {
                address: address.clone(),
                other: None,
                process: Mutex::new(None),
            }),
            Who::Address(_) => failed("a broker that runs already has its own settings"),
        }
    }

    fn own(kind: Kind, dir: &Path, overrides: &[&str]) -> Result<Self> {
        let other = free_port()?.to_string();
        let path = dir.display().to_string();
        let named: Vec<_> = overrides
            .iter()
            .map(|text| text.replace("{other}", &other).replace("{dir}", &path))
            .collect();
        let has_other = overrides.iter().any(|text| text.contains("{other}"));
        let named: Vec<_> = named.iter().map(String::as_str).collect();
        let mut process = Process::new(kind, dir, &named)?;
        process.start(None)?;
        Ok(Self {
            address: process.bootstrap(),
            other: has_other.then(|| format!("127.0.0.1:{other}")),
            process: Mutex::new(Some(process)),
        })
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// `HOST:PORT` of the second listener.
    ///
    /// # Errors
    /// The settings name none.
    pub fn other_address(&self) -> Result<&str> {
        let none = || Error::Failed("this broker has one listener".into());
        self.other.as_deref().ok_or_else(none)
    }

    /// Ends the broker as `kill -9` does, and starts it again on its data.
    ///
    /// # Errors
    /// It does not come back.
    pub fn kill_and_start(&self) -> Result<()> {
        self.again(Process::kill)
    }

    /// Stops the broker in order, and starts it again on its data.
    ///
    /// # Errors
    /// It does not stop or does not come back.
    pub fn stop_and_start(&self) -> Result<()> {
        self.again(Process::terminate)
    }

    fn again(&self, end: impl FnOnce(&mut Process) -> Result<()>) -> Result<()> {
        let mut process = self.process.lock().expect("a case panicked while restarting");
        let Some(process) = &mut *process else {
            return failed("this broker is not ours to restart");
        };
        end(process)?;
        process.start(None)
    }
}
