//! Ten times kill -9 while two producers write: what was acknowledged is there, once, in order. One test for each way to
//! acknowledge, and one where every restart has another shard count.
#![allow(clippy::print_stdout)] // the report is what the test is for

use bench::clients::{report_skip, require_all};
use bench::kill::{Report, Scenario, run};
use bench::process::Profile;
use bench::target::{Kind, Target};

/// Kills of each scenario.
const KILLS: u32 = 10;

#[allow(clippy::print_stdout, reason = "the report is the figures of the test")]
fn kill(name: &str, acks: &'static str, reshard: bool) -> Option<Report> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut target =
        Target::new(Kind::Penstock(Profile::Dev), &dir.path().join("broker"), &[]).expect("a broker");
    let scenario = Scenario {
        acks,
        kills: KILLS,
        reshard,
        seed: 1,
    };
    let report = run(&mut target, &scenario, dir.path()).unwrap_or_else(|error| panic!("{error}"));
    let Some(report) = report else {
        assert!(!require_all(), "python3 is missing");
        report_skip(name, "python3 is missing");
        return None;
    };
    println!("{report}");
    assert_eq!(report.verifiable.violations(), 0, "VerifiableProducer: {report}");
    assert_eq!(report.librdkafka.violations(), 0, "librdkafka: {report}");
    assert!(
        report.verifiable.acknowledged > 10_000 && report.librdkafka.acknowledged > 10_000,
        "{report}"
    );
    let unanswered = report.waiting.iter().filter(|&&count| count > 0).count();
    assert_eq!(
        unanswered, KILLS as usize,
        "a kill without produces in flight: {report}"
    );
    Some(report)
}

#[test]
fn acks_all_survives_kills_exactly_once() {
    if let Some(report) = kill("acks_all_survives_kills_exactly_once", "all", false) {
        assert!(
            report.duplicates.is_some_and(|count| count > 0),
            "no retry was recognised as a duplicate: {report}"
        );
    }
}

#[test]
fn acks_one_survives_kills() {
    kill("acks_one_survives_kills", "1", false);
}

#[test]
fn acks_all_survives_kills_with_other_shard_counts() {
    if let Some(report) = kill("acks_all_survives_kills_with_other_shard_counts", "all", true) {
        assert!(
            report.duplicates.is_some_and(|count| count > 0),
            "no retry was recognised as a duplicate: {report}"
        );
    }
}
