//! The clients in consumer groups: the same cases for every client, played by processes of its own (`client member`) and judged here
//! by what those tell. Every client against ours and against Apache Kafka gives the two tables of `bench/results/group-clients.md`.

mod cases;
mod history;
mod member;
mod positions;
mod run;
mod stage;
mod table;
mod topic;

use std::time::{SystemTime, UNIX_EPOCH};

pub use run::{GroupOptions, run_groups};
pub use table::{group_failures, group_markdown};

/// A line of the table: a client, or a tool or style of use that comes with it.
#[derive(Debug)]
pub struct Row {
    /// Name in the table.
    pub name: &'static str,
    /// Folder below `bench/clients/`.
    pub client: &'static str,
    /// What its member program gets to be this one.
    arguments: &'static [&'static str],
}

impl Row {
    const fn new(name: &'static str, client: &'static str, arguments: &'static [&'static str]) -> Self {
        Self {
            name,
            client,
            arguments,
        }
    }
}

/// The lines of the table.
pub const ROWS: [Row; 14] = [
    Row::new("java-client", "java", &[]),
    Row::new("verifiable-consumer", "java", &["--tool", "verifiable-consumer"]),
    Row::new("console-consumer", "java", &["--tool", "console-consumer"]),
    Row::new(COUNTS_ONLY, "java", &["--tool", "consumer-performance"]),
    Row::new("librdkafka", "librdkafka", &[]),
    Row::new("kcat", "kcat", &[]),
    Row::new("franz-go", "franz-go", &[]),
    Row::new("sarama", "sarama", &[]),
    Row::new("kafka-go-reader", "kafka-go", &["--tool", "reader"]),
    Row::new("kafka-go-generations", "kafka-go", &[]),
    Row::new("kafkajs", "kafkajs", &[]),
    Row::new("kafkajs-batch", "kafkajs", &["--tool", "batch"]),
    Row::new("aiokafka", "aiokafka", &[]),
    Row::new("kafka-python", "kafka-python", &[]),
];

/// The tool that reads a number of records and says how many those were.
const COUNTS_ONLY: &str = "consumer-performance";

/// What became of one case of one row.
#[derive(Clone, Debug)]
pub enum CaseOutcome {
    /// As it should be, with what is worth saying.
    Ok(Option<String>),
    /// The client does not have this, and why.
    Absent(String),
    /// What went wrong.
    Failed(String),
}

/// One case of one row.
#[derive(Clone, Debug)]
pub struct GroupResult {
    /// Name of the row.
    pub row: &'static str,
    /// Name of the case.
    pub case: &'static str,
    /// The client's version, as it says itself.
    pub version: Option<String>,
    /// What became of it.
    pub outcome: CaseOutcome,
    /// How long it took.
    pub seconds: f64,
}

/// A row whose client is not on this host, or could not be set up.
#[derive(Clone, Debug)]
pub struct RowSkipped {
    /// Folder below `bench/clients/`.
    pub client: &'static str,
    /// Its toolchain is missing; otherwise its set-up failed.
    pub unavailable: bool,
    /// Why.
    pub why: String,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct GroupRuns {
    /// Every case that ran.
    pub results: Vec<GroupResult>,
    /// Clients that did not.
    pub skipped: Vec<RowSkipped>,
}

/// Milliseconds since 1970.
fn now_ms() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0.0, |now| now.as_secs_f64() * 1000.0)
}
