//! The client matrix: sets up each client of `bench/clients/` in a cache directory, runs it against a broker, and gathers what it says
//! about each case. A client whose toolchain is missing is skipped loudly, or fails where `PENSTOCK_REQUIRE_ALL=1` is set.

pub mod groups;
mod run;
mod table;
mod versions;

pub use run::{Options, librdkafka_python, run_matrix};
pub use table::{failures, markdown};
pub use versions::{Release, Releases, sarama_releases};

use serde::Deserialize;

/// The clients, each a folder of `bench/clients/` with a script `client`; the longest first, so that the others run beside it.
pub const CLIENTS: [&str; 9] = [
    "java",
    "librdkafka",
    "kafka-python",
    "kafka-go",
    "kcat",
    "aiokafka",
    "franz-go",
    "sarama",
    "kafkajs",
];

/// One case of a client: a topic with one codec and one level of acks. It is what the programs print, a JSON object a line.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Name of the client; the `java` folder has three.
    pub client: String,
    /// Its version, as it says itself.
    pub version: String,
    /// `none`, `gzip`, `snappy`, `lz4` or `zstd`.
    pub codec: String,
    /// `0`, `1` or `all`.
    pub acks: String,
    /// Records sent.
    pub produced: u64,
    /// Records read back.
    pub read: u64,
    /// Everything read back equals what was sent.
    pub ok: bool,
    /// What differs, or what went wrong.
    pub error: Option<String>,
    /// Time of the whole case.
    pub seconds: f64,
}

/// What became of one client.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It ran; some cases may have failed.
    Ran(Vec<Case>),
    /// Its toolchain is not on this host.
    Skipped(String),
    /// It could not be set up, or ended without saying why; with the cases up to there.
    Failed(String, Vec<Case>),
}

/// One client and its outcome.
#[derive(Clone, Debug)]
pub struct ClientRun {
    /// Folder below `bench/clients/`.
    pub client: &'static str,
    /// What became of it.
    pub outcome: Outcome,
}

/// Whether a missing toolchain is a failure, as in CI: `PENSTOCK_REQUIRE_ALL=1`.
pub fn require_all() -> bool {
    std::env::var_os("PENSTOCK_REQUIRE_ALL").is_some_and(|value| value == "1")
}

/// Says that something was left out, past the test harness that hides the output of passing tests; `.ci/run` counts these lines.
pub fn report_skip(what: &str, why: &str) {
    use std::io::Write;
    // Standard error may be closed; there is nobody to tell then.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {why}");
}
