//! Runs simulations of one broker by seed: a line for each, and for a failing one the seed and the end of its trace.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench::sim::canary::Canary;
use bench::sim::knobs::{Knobs, Size};
use bench::sim::world::{Options, Report, run};
use clap::Parser;

/// Simulates one broker with its clients, on virtual time.
#[derive(Parser)]
struct Arguments {
    /// Run this seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds of this range, as in 0..100.
    #[arg(long, value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// Go on with further seeds for this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Small workloads, each crashed at every single write.
    #[arg(long)]
    every_crash_point: bool,
    /// Print the whole trace.
    #[arg(long)]
    trace: bool,
    /// Plant a bug.
    #[arg(long, value_enum)]
    canary: Option<Canary>,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let parse = |part: &str| part.parse().map_err(|e| format!("{part}: {e}"));
    let (from, to) = text.split_once("..").ok_or("a range is written as in 0..100")?;
    Ok((parse(from)?, parse(to)?))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, to) = match (arguments.seed, arguments.seeds) {
        (Some(seed), _) => (seed, seed + 1),
        (_, Some(range)) => range,
        _ if arguments.minutes.is_some() => (0, u64::MAX),
        _ => (0, 100),
    };
    let deadline = arguments
        .minutes
        .map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0));
    let options = Options {
        canary: arguments.canary,
        verbose: arguments.trace,
    };
    let mut sums = Sums::default();
    for seed in from..to {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            break;
        }
        if arguments.every_crash_point {
            every_crash_point(seed, options, &mut sums);
        } else {
            one(&Knobs::draw(seed, Size::Normal), options, &mut sums, true);
        }
    }
    say(&format!(
        "{} simulations, {} crashes, {} outcomes examined, {} records acknowledged, {} violations",
        sums.runs, sums.crashes, sums.outcomes, sums.acknowledged, sums.violations
    ));
    if sums.violations == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[derive(Default)]
struct Sums {
    runs: u64,
    crashes: u64,
    outcomes: u64,
    acknowledged: u64,
    violations: u64,
}

/// The workload of a seed, crashed at its first mutation, at its second, and so on, by power loss and by kill.
fn every_crash_point(seed: u64, options: Options, sums: &mut Sums) {
    use bench::sim::knobs::End;
    let mut knobs = Knobs::draw(seed, Size::Small);
    knobs.ends = vec![End::PowerLoss {
        at_mutation: u64::MAX / 2,
    }];
    let began = Instant::now();
    let whole = one(&knobs, options, sums, true);
    let points = whole.mutations.first().copied().unwrap_or(0);
    for at_mutation in 1..=points {
        for end in [End::PowerLoss { at_mutation }, End::Kill { at_mutation }] {
            knobs.ends = vec![end];
            one(&knobs, options, sums, false);
        }
    }
    let took = began.elapsed().as_secs_f64();
    say(&format!(
        "seed {seed}: every one of {points} crash points, twice, in {took:.1} s"
    ));
}

fn one(knobs: &Knobs, options: Options, sums: &mut Sums, talk: bool) -> Report {
    let began = Instant::now();
    let report = run(knobs, options);
    sums.runs += 1;
    sums.crashes += report.crashes;
    sums.outcomes += report.outcomes;
    sums.acknowledged += report.totals.acknowledged;
    let seed = knobs.seed;
    if talk || report.violation.is_some() {
        say(&format!(
            "seed {seed}: {} in {:.2} s: {} events, hash {:016x}, {} crashes, {} of {} records acknowledged, {} mutations, \
             {:.1} s of virtual time",
            if report.violation.is_some() {
                "VIOLATION"
            } else {
                "well"
            },
            began.elapsed().as_secs_f64(),
            report.events,
            report.hash,
            report.crashes,
            report.totals.acknowledged,
            report.totals.sent,
            report.mutations.iter().sum::<u64>(),
            report.seconds,
        ));
    }
    if options.verbose || report.violation.is_some() {
        report.tail.iter().for_each(|line| say(line));
    }
    if let Some(violation) = &report.violation {
        sums.violations += 1;
        say(&format!(
            "seed {seed}, {:?}, commit {}: {violation}",
            knobs.ends,
            commit()
        ));
    }
    report
}

/// The commit this was built from, as far as git knows.
fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |out| String::from_utf8_lossy(&out.stdout).trim().to_owned(),
    )
}

fn say(line: &str) {
    // Nobody reads any more: no reason to stop.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
