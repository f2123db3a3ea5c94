//! Runs the client matrix against a broker and prints its table: `cargo run -p bench --bin clients -- --bootstrap 127.0.0.1:9092`.

use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bench::clients::{Options, failures, markdown, require_all, run_matrix};
use clap::Parser;

/// Runs every Kafka client of bench/clients/ against a broker: all its codecs and acks, read back and compared byte for byte.
#[derive(Parser)]
struct Arguments {
    /// HOST:PORT of the broker.
    #[arg(long)]
    bootstrap: String,
    /// What the names of the topics begin with; by default a name that was not used before.
    #[arg(long)]
    topic_prefix: Option<String>,
    /// Records of each case.
    #[arg(long, default_value_t = 10_000)]
    records: u64,
    /// Only these clients, by comma.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these codecs, by comma.
    #[arg(long, default_value = "")]
    codecs: String,
    /// Clients at the same time.
    #[arg(long, default_value_t = 3)]
    parallel: usize,
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let options = Options {
        bootstrap: arguments.bootstrap,
        topic_prefix: arguments
            .topic_prefix
            .unwrap_or_else(|| format!("matrix-{seconds}")),
        records: arguments.records,
        only: arguments.only,
        parallel: arguments.parallel,
        codecs: arguments.codecs,
    };
    let started = Instant::now();
    let runs = match run_matrix(&options) {
        Ok(runs) => runs,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(64);
        }
    };
    println!("{}in {:.0} s", markdown(&runs), started.elapsed().as_secs_f64());
    let failures = failures(&runs, require_all());
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
