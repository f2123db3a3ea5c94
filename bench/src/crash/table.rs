//! Runs the rows of the crash table, on several threads, and writes it down.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::scenario::{PLANTED, Planted, Scenario, Tally, run_seed};

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// What ran.
    pub scenario: Scenario,
    /// Seeds that ran.
    pub seeds: u64,
    /// Sums of all that held.
    pub tally: Tally,
    /// Seed and violation, in the order of the seeds.
    pub violations: Vec<(u64, String)>,
}

/// Runs `seeds` of a scenario on so many threads; ends early after `violations_max` of them.
pub fn run(
    scenario: Scenario,
    seeds: Range<u64>,
    planted: Option<&Planted>,
    threads: usize,
    violations_max: usize,
) -> Row {
    let next = AtomicU64::new(seeds.start);
    let row = Mutex::new(Row {
        scenario,
        seeds: 0,
        tally: Tally::default(),
        violations: Vec::new(),
    });
    let lock = || row.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || lock().violations.len() >= violations_max {
                        break;
                    }
                    let ended = run_seed(scenario, seed, planted);
                    let mut row = lock();
                    row.seeds += 1;
                    match ended {
                        Ok(tally) => row.tally.add(&tally),
                        Err(violation) => row.violations.push((seed, violation)),
                    }
                }
            });
        }
    });
    let mut row = row
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    row.violations.sort();
    row
}

/// The command that runs a seed again.
pub fn replay(scenario: Scenario, seed: u64, planted: Option<&Planted>) -> String {
    let planted = planted.map_or_else(String::new, |planted| format!(" --planted {}", planted.name));
    format!(
        "cargo run --release -p bench --bin crash -- --scenario {} --seed {seed}{planted}",
        scenario.name
    )
}

/// The rows as a table.
pub fn markdown(rows: &[Row]) -> String {
    let mut out = String::from(
        "| workload | seeds | lives | crash points | ended by the disk | batches | violations |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for row in rows {
        let tally = &row.tally;
        writeln!(
            out,
            "| `{}`: {} | {} | {} | {} | {} | {} | {} |",
            row.scenario.name,
            row.scenario.what,
            row.seeds,
            tally.lives,
            tally.crash_points,
            tally.refused,
            tally.batches,
            row.violations.len()
        )
        .expect("a string takes it");
    }
    let fates = rows.iter().flat_map(|row| &row.tally.fates);
    let fates: Vec<String> = fates.map(|(fate, count)| format!("{fate:?} {count}")).collect();
    if !fates.is_empty() {
        writeln!(out, "\nFlipped bits: {}.", fates.join(", ")).expect("a string takes it");
    }
    out
}

/// The planted bugs as a table: name, seeds that ran, seeds that found it, the first of them.
pub fn planted_markdown(found: &[(Planted, Row)]) -> String {
    let mut out = String::from(
        "| planted bug | what is left out | found by | scenario | first seed |\n| --- | --- | ---: | --- | ---: |\n",
    );
    for (planted, row) in found {
        let first = row
            .violations
            .first()
            .map_or_else(|| "none".to_owned(), |(seed, _)| seed.to_string());
        writeln!(
            out,
            "| `{}` | {} | {} of {} | `{}` | {first} |",
            planted.name,
            planted.what,
            row.violations.len(),
            row.seeds,
            planted.scenario
        )
        .expect("a string takes it");
    }
    out
}

/// The planted bug of that name.
pub fn planted(name: &str) -> Option<Planted> {
    PLANTED.iter().find(|planted| planted.name == name).copied()
}
