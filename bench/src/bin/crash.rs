//! The crash table on the simulated disk (`bench/results/crash.md`): `cargo run --release -p bench --bin crash -- --write`. A seed
//! again: `--scenario NAME --seed N`.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use bench::crash::table::{self, Row, replay};
use bench::crash::{PLANTED, Planted, SCENARIOS, Scenario};
use bench::report::{command, commit, write_result};
use clap::Parser;

/// Seeds of each planted bug: the rarest shows in one of some hundreds.
const PLANTED_SEEDS: u64 = 1000;

/// A mixed workload, ended at its writes in many ways, recovered and checked.
#[derive(Parser)]
struct Arguments {
    /// Only this row of the table; may be given several times.
    #[arg(long, value_parser = scenario)]
    scenario: Vec<Scenario>,
    /// This seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// The seeds of this range, as in 0..100; a row that ends a life at every write takes one in a hundred of them.
    #[arg(long, value_parser = range, default_value = "0..1000")]
    seeds: Range<u64>,
    /// Plant a bug: violations are the point then, and the status is 1.
    #[arg(long, value_parser = planted)]
    planted: Option<Planted>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Write bench/results/crash.md, planted bugs included.
    #[arg(long)]
    write: bool,
}

fn scenario(name: &str) -> Result<Scenario, String> {
    let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name).copied();
    found.ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn planted(name: &str) -> Result<Planted, String> {
    let names: Vec<&str> = PLANTED.iter().map(|planted| planted.name).collect();
    table::planted(name).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let parse = |part: &str| part.parse().map_err(|e| format!("{part}: {e}"));
    let (from, to) = text.split_once("..").ok_or("a range is written as in 0..100")?;
    Ok(parse(from)?..parse(to)?)
}

/// A row that runs a seed once for each of its writes gets fewer of them.
fn seeds_of(scenario: Scenario, seeds: &Range<u64>) -> Range<u64> {
    if scenario.name.starts_with("every-write") {
        let count = (seeds.end.saturating_sub(seeds.start)).div_ceil(100);
        seeds.start..seeds.start + count
    } else {
        seeds.clone()
    }
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let began = Instant::now();
    if arguments.seed.is_none() {
        // A violation is told once, below, and not as a panic.
        std::panic::set_hook(Box::new(|_| {}));
    }
    let scenarios = match &arguments.scenario[..] {
        [] => SCENARIOS.to_vec(),
        some => some.to_vec(),
    };
    let mut rows = Vec::new();
    for scenario in scenarios {
        let seeds = match arguments.seed {
            Some(seed) => seed..seed + 1,
            None => seeds_of(scenario, &arguments.seeds),
        };
        let row = table::run(
            scenario,
            seeds,
            arguments.planted.as_ref(),
            arguments.threads,
            usize::MAX,
        );
        println!(
            "{}: {} seeds, {} crash points, {} violations, {:.0} s",
            scenario.name,
            row.seeds,
            row.tally.crash_points,
            row.violations.len(),
            began.elapsed().as_secs_f64()
        );
        for (seed, violation) in row.violations.iter().take(5) {
            println!(
                "  {violation}\n    {}",
                replay(scenario, *seed, arguments.planted.as_ref())
            );
        }
        rows.push(row);
    }
    let mut text = table::markdown(&rows);
    if arguments.write {
        text = document(&rows, &arguments);
        if let Err(error) = write_result("crash.md", &text) {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    }
    println!("{text}");
    let violations: usize = rows.iter().map(|row| row.violations.len()).sum();
    ExitCode::from(u8::from(violations > 0))
}

/// The whole of `results/crash.md`.
fn document(rows: &[Row], arguments: &Arguments) -> String {
    let found: Vec<(Planted, Row)> = PLANTED
        .iter()
        .map(|planted| {
            let scenario = scenario(planted.scenario).expect("a planted bug names a scenario");
            let row = table::run(
                scenario,
                0..PLANTED_SEEDS,
                Some(planted),
                arguments.threads,
                usize::MAX,
            );
            (*planted, row)
        })
        .collect();
    format!(
        "# Crashes on the simulated disk\n\n\
         `{}`, commit {}. A seed again: `--scenario NAME --seed N`.\n\n\
         Each life is a mixed workload on one to three shards: batches of 70 bytes to 90 KB of plain, idempotent and transactional\n\
         producers to up to eight logs, markers, rolls, DeleteRecords, topics made and deleted, logs closed and opened again, changes of\n\
         leader epoch and durability class, compaction of logs with keys, checkpoints whenever a journal file is recycled. At each crash point the life ends; the next\n\
         one recovers, with another number of shards, and holds every log against what was sent: acknowledged records are there, once,\n\
         in order, at their offsets, nothing else is; producers, open and aborted transactions and leader epochs agree with the records.\n\n\
         {}\n\
         Planted bugs, each an operation that succeeds without being done, {PLANTED_SEEDS} seeds each:\n\n{}",
        command("crash"),
        commit(),
        table::markdown(rows),
        table::planted_markdown(&found)
    )
}
