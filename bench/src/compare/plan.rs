//! What a comparison is to do, with everything decided: what `arguments` makes of flags.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::host::Contender;
use super::workload::Workload;

/// A comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the data of brokers go, on the disk that is measured.
    pub dir: PathBuf,
    /// Who takes part. The first is the one that is judged.
    pub contestants: Vec<Contestant>,
    /// What is measured, in the order of the table.
    pub workloads: Vec<&'static Workload>,
    /// How much of it.
    pub scale: Scale,
    /// Rounds, in each of which everyone has every workload once.
    pub rounds: usize,
    /// Time after which no further round of workloads begins.
    pub limit: Duration,
    /// Further settings of librdkafka, `key=value`.
    pub client_properties: Vec<String>,
    /// Whether the lines of our generator are shown.
    pub is_verbose: bool,
}

/// Someone who takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// What reports call it.
    pub name: String,
    /// What it is.
    pub what: What,
}

/// What takes part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A broker that is started and stopped here.
    Started(Contender),
    /// One that runs already, and whose process it is if it runs on this host.
    Peer {
        /// `HOST:PORT`.
        bootstrap: String,
        /// Its process.
        pid: Option<u32>,
    },
}

/// How much of each workload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scale {
    /// Time before anything counts.
    pub warmup: Duration,
    /// Time that counts, at most.
    pub time: Duration,
    /// Time of a broker at rest.
    pub rest: Duration,
    /// Bytes that a workload stores at most.
    pub bytes_max: u64,
    /// Bytes of a backlog.
    pub backlog_bytes: u64,
    /// Records of Java's clients, of which a tenth is the warm-up.
    pub java_records: u64,
}

impl Scale {
    /// All workloads and three rounds in half an hour, and never 12 GB on the disk.
    pub const FULL: Self = Self {
        warmup: Duration::from_secs(2),
        time: Duration::from_secs(5),
        rest: Duration::from_secs(5),
        bytes_max: 5_000_000_000,
        backlog_bytes: 10_000_000_000,
        java_records: 800_000,
    };

    /// A round in five minutes.
    pub const QUICK: Self = Self {
        warmup: Duration::from_millis(1000),
        time: Duration::from_millis(1500),
        rest: Duration::from_secs(2),
        bytes_max: 1_500_000_000,
        backlog_bytes: 1_000_000_000,
        java_records: 200_000,
    };
}
