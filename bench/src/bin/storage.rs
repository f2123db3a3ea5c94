//! The storage benchmarks: `cargo run --release -p bench --bin storage -- --dir DIR --write`, with nothing else running.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::compare::Kind;
use bench::error::{Result, end};
use bench::report::{command, commit, describe_host, write_result};
use bench::storage_load::{Plan, Scenario};
use clap::{Parser, ValueEnum};

/// Loads a broker in the ways that are known to hurt storage, and compares each with the load that does not.
#[derive(Parser)]
struct Arguments {
    /// Where the data go, on the disk that is to be measured; removed after each run.
    #[arg(long)]
    dir: PathBuf,
    /// Only these benchmarks.
    #[arg(long, value_enum)]
    only: Vec<Scenario>,
    /// Few pairs of short runs: about three minutes for all.
    #[arg(long)]
    quick: bool,
    /// Pairs of each benchmark; 10, or 2 with --quick.
    #[arg(long)]
    pairs: Option<usize>,
    /// Seconds that are measured of each load; 15, or 4 with --quick.
    #[arg(long)]
    seconds: Option<u64>,
    /// Seconds of the long run; 600, or 20 with --quick.
    #[arg(long)]
    long_seconds: Option<u64>,
    /// MB a second of the loads at a pace.
    #[arg(long, default_value_t = 50.0)]
    megabytes_per_second: f64,
    /// Megabytes of the backlog; 4000, or 1000 with --quick.
    #[arg(long)]
    backlog_megabytes: Option<u64>,
    /// The broker that is loaded.
    #[arg(long, value_enum, default_value_t = Kind::Penstock)]
    broker: Kind,
    /// Further settings of the broker, KEY=VALUE.
    #[arg(long = "override")]
    overrides: Vec<String>,
    /// Write the result to bench/results/storage.md.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    end(run(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn run(arguments: &Arguments) -> Result<()> {
    let plan = plan(arguments);
    let mut text = format!(
        "# Storage under loads that hurt it\n\n\
         {}. The client runs beside the broker on the same cores, with batches that were made before; a request at a pace counts from when \
         it was due. Sides of a pair run one after the other in an order that alternates. MB are 10^6 bytes. \"Time in syncs\" is \
         the part of the time in which a commit of a shard waited for one.\n\nHost: {}. Commit {}.\n\n",
        arguments.broker,
        describe_host(&arguments.dir),
        commit()
    );
    let is_asked_for = |one: &Scenario| arguments.only.is_empty() || arguments.only.contains(one);
    for scenario in Scenario::value_variants().iter().copied().filter(is_asked_for) {
        eprintln!("{scenario:?}");
        let section = scenario.run(&plan)?;
        let _ = writeln!(text, "{section}");
    }
    let _ = writeln!(text, "Repeat, on a quiet host: `{}`", command("storage"));
    print!("{text}");
    if arguments.write {
        write_result("storage.md", &text)?;
    }
    Ok(())
}

fn plan(arguments: &Arguments) -> Plan {
    let pick = |given: Option<u64>, quick, full| given.unwrap_or(if arguments.quick { quick } else { full });
    let pairs = arguments.pairs.map(|pairs| pairs as u64);
    Plan {
        dir: arguments.dir.clone(),
        rounds: usize::try_from(pick(pairs, 2, 10)).unwrap_or(1),
        time: Duration::from_secs(pick(arguments.seconds, 4, 15).max(1)),
        long_time: Duration::from_secs(pick(arguments.long_seconds, 20, 600).max(5)),
        megabytes_per_second: arguments.megabytes_per_second,
        backlog_megabytes: pick(arguments.backlog_megabytes, 1000, 4000),
        kind: arguments.broker,
        overrides: arguments.overrides.clone(),
    }
}
