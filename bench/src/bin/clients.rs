//! Runs the client matrix against a broker and prints its table: `cargo run -p bench --bin clients -- --bootstrap 127.0.0.1:9092`.

use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bench::clients::groups::{GroupOptions, group_failures, group_markdown, run_groups};
use bench::clients::{Options, failures, markdown, require_all, run_matrix};
use bench::error::Result;
use clap::Parser;

/// Runs every Kafka client of bench/clients/ against a broker: all its codecs and acks, read back and compared byte for byte;
/// or, with --groups, the cases of consumer groups.
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
    /// Clients at the same time, with --groups cases; by default 3, or 6 cases.
    #[arg(long)]
    parallel: Option<usize>,
    /// The cases of consumer groups instead.
    #[arg(long)]
    groups: bool,
    /// Only these cases of groups, by comma.
    #[arg(long, value_delimiter = ',', requires = "groups")]
    cases: Vec<String>,
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let prefix = arguments
        .topic_prefix
        .clone()
        .unwrap_or_else(|| format!("matrix-{seconds}"));
    let started = Instant::now();
    let ran = if arguments.groups {
        run_group_cases(arguments, prefix)
    } else {
        run_codecs(arguments, prefix)
    };
    let (table, failures) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(64);
        }
    };
    println!("{table}in {:.0} s", started.elapsed().as_secs_f64());
    for failure in &failures {
        println!("FAILED: {failure}");
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// The table of codecs and acks, and its failures.
fn run_codecs(arguments: Arguments, topic_prefix: String) -> Result<(String, Vec<String>)> {
    let runs = run_matrix(&Options {
        bootstrap: arguments.bootstrap,
        topic_prefix,
        records: arguments.records,
        only: arguments.only,
        parallel: arguments.parallel.unwrap_or(3),
        codecs: arguments.codecs,
    })?;
    Ok((markdown(&runs), failures(&runs, require_all())))
}

/// The table of consumer groups, and its failures.
fn run_group_cases(arguments: Arguments, topic_prefix: String) -> Result<(String, Vec<String>)> {
    let runs = run_groups(&GroupOptions {
        bootstrap: arguments.bootstrap,
        topic_prefix,
        only: arguments.only,
        cases: arguments.cases,
        parallel: arguments.parallel.unwrap_or(6),
    })?;
    Ok((group_markdown(&runs), group_failures(&runs, require_all())))
}
