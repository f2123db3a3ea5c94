//! The simulation in CI: a handful of seeds without a violation, every crash point of a small workload, the same events for the
//! same seed, and planted bugs that must be found. More seeds: `cargo run --bin simulate -- --seeds 0..1000`.

use bench::sim::canary::Canary;
use bench::sim::knobs::{End, Knobs, Size};
use bench::sim::world::{Options, Report, run};

/// Seeds that CI runs.
const SEEDS: std::ops::Range<u64> = 0..120;

/// Seeds within which each planted bug is found.
const CANARY_SEEDS: std::ops::Range<u64> = 0..20;

fn expect_well(what: &str, report: &Report) {
    if let Some(violation) = &report.violation {
        panic!("{what}: {violation}\n{}", report.tail.join("\n"));
    }
}

#[test]
fn no_seed_violates_an_invariant() {
    let (mut acknowledged, mut crashes, mut duplicates, mut failures) = (0, 0, 0, 0);
    let mut several_dirs = 0;
    for seed in SEEDS {
        let knobs = Knobs::draw(seed, Size::Normal);
        several_dirs += usize::from(knobs.log_dirs > 1);
        let report = run(&knobs, Options::default());
        expect_well(&format!("seed {seed}"), &report);
        acknowledged += report.totals.acknowledged;
        crashes += report.crashes;
        duplicates += report.duplicates;
        failures += report.failures;
    }
    assert!(
        acknowledged > 10_000,
        "only {acknowledged} records were acknowledged"
    );
    assert!(crashes > 20, "only {crashes} crashes");
    assert!(duplicates > 0, "no batch was ever sent twice");
    assert!(failures > 5, "only {failures} disks failed");
    assert!(
        several_dirs > 20,
        "only {several_dirs} brokers with several log directories"
    );
}

#[test]
fn a_small_workload_survives_a_crash_at_any_mutation() {
    let mut knobs = Knobs::draw(4, Size::Small);
    knobs.ends = vec![End::Stop(std::time::Duration::from_secs(2))];
    let whole = run(&knobs, Options::default());
    expect_well("without a crash", &whole);
    let points = whole.mutations[0];
    assert!(points > 50, "only {points} mutations");
    for at_mutation in 1..=points {
        // Each point one way; `simulate --every-crash-point` goes through both.
        let end = if at_mutation % 2 == 0 {
            End::PowerLoss { at_mutation }
        } else {
            End::Kill { at_mutation }
        };
        knobs.ends = vec![end];
        expect_well(&format!("{end:?}"), &run(&knobs, Options::default()));
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in [1, 7, 13] {
        let knobs = Knobs::draw(seed, Size::Normal);
        let (first, second) = (run(&knobs, Options::default()), run(&knobs, Options::default()));
        assert_eq!(
            (first.hash, first.events),
            (second.hash, second.events),
            "seed {seed}"
        );
    }
    let hash = |seed| run(&Knobs::draw(seed, Size::Small), Options::default()).hash;
    assert_ne!(hash(1), hash(2), "seeds differ");
}

/// The violation that a planted bug shows in, in the first seed that finds it.
fn find(canary: Canary) -> String {
    let options = Options {
        canary: Some(canary),
        ..Options::default()
    };
    CANARY_SEEDS
        .filter_map(|seed| run(&Knobs::draw(seed, Size::Normal), options).violation)
        .next()
        .unwrap_or_else(|| panic!("no seed finds {canary:?}"))
}

#[test]
fn a_disk_that_lies_about_its_syncs_is_found() {
    find(Canary::LyingSync);
}

#[test]
fn an_acknowledgement_before_the_sync_is_found() {
    let violation = find(Canary::EarlyAcknowledgement);
    assert!(
        violation.contains("high watermark") || violation.contains("durable"),
        "{violation}"
    );
}

#[test]
fn a_duplicate_filter_that_forgets_is_found() {
    let violation = find(Canary::ForgottenProducers);
    assert!(
        violation.contains(" is at ") || violation.contains("follows"),
        "{violation}"
    );
}

#[test]
fn answers_out_of_order_are_found() {
    let violation = find(Canary::SwappedAnswers);
    assert!(violation.contains("answer"), "{violation}");
}
