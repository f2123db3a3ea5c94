//! A bounded part of the crash table (`bin/crash.rs` runs thousands of seeds), and the planted bugs that it must find.

use bench::crash::table::{replay, run};
use bench::crash::{Fate, PLANTED, SCENARIOS, Scenario};

fn named(name: &str) -> Scenario {
    let found = SCENARIOS.iter().find(|scenario| scenario.name == name);
    *found.expect("a scenario")
}

/// Seeds of a scenario, all of which hold.
fn holds(scenario: Scenario, seeds: u64) -> bench::crash::Tally {
    let row = run(scenario, 0..seeds, None, 2, 3);
    let told: Vec<String> = row
        .violations
        .iter()
        .map(|(seed, violation)| format!("{violation}: {}", replay(scenario, *seed, None)))
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    row.tally
}

#[test]
fn a_crash_at_every_write_of_a_mixed_workload_loses_nothing() {
    for name in ["every-write-power", "every-write-kill"] {
        let tally = holds(named(name), 1);
        assert!(tally.crash_points > 100, "{tally:?}");
    }
}

#[test]
fn no_way_to_end_and_no_fault_of_the_disk_loses_or_invents_anything() {
    let rows = SCENARIOS
        .iter()
        .filter(|scenario| !scenario.name.starts_with("every-write") && scenario.name != "bit-flips");
    for scenario in rows {
        let tally = holds(*scenario, 60);
        assert!(tally.crash_points > 100 && tally.batches > 1000, "{tally:?}");
    }
}

#[test]
fn a_flipped_bit_is_healed_or_reported_and_touches_one_log_at_most() {
    let tally = holds(named("bit-flips"), 150);
    for fate in [Fate::Healed, Fate::LogClosed, Fate::DirectoryRefused] {
        assert!(tally.fates.contains_key(&fate), "{:?}", tally.fates);
    }
}

#[test]
fn planted_bugs_are_found() {
    for planted in &PLANTED {
        let row = run(named(planted.scenario), 0..4000, Some(planted), 2, 1);
        assert!(
            !row.violations.is_empty(),
            "{}: {} seeds",
            planted.name,
            row.seeds
        );
    }
}

/// Seeds that found something once.
const FOUND: [(&str, u64); 13] = [
    ("power-loss", 43),
    ("power-loss", 1146),
    ("power-loss", 1980),
    ("mixed-ends", 439),
    ("mixed-ends", 1255),
    ("mixed-ends", 2441),
    ("classes", 674),
    ("classes", 704),
    ("classes", 1859),
    ("classes", 2014),
    ("write-errors", 867),
    ("read-errors", 723),
    ("slow-disk", 1837),
];

#[test]
fn seeds_that_found_something_hold() {
    for (name, seed) in FOUND {
        let row = run(named(name), seed..seed + 1, None, 1, 1);
        assert!(
            row.violations.is_empty(),
            "{}: {:?}",
            replay(row.scenario, seed, None),
            row.violations
        );
    }
}
