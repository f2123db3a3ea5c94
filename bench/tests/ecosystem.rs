//! Kafka Connect with a file source and a file sink, and MirrorMaker 2 from Apache Kafka, with our broker killed three times: no
//! record is lost. `src/bin/ecosystem.rs` puts the same on Apache Kafka beside it.
#![allow(clippy::print_stdout)] // the report is what the test is for

use bench::clients::{report_skip, require_all};
use bench::ecosystem::{Scenario, connect, mirror};
use bench::kafka;
use bench::process::Profile;
use bench::target::{Kind, Target};

const SCENARIO: Scenario = Scenario { kills: 3, seed: 1 };

/// Whether the test cannot be run here; reported.
fn skipped(name: &str) -> bool {
    let Some(why) = kafka::missing() else {
        return false;
    };
    assert!(!require_all(), "{why}");
    report_skip(name, why);
    true
}

fn target(dir: &tempfile::TempDir) -> Target {
    Target::new(Kind::Penstock(Profile::Dev), &dir.path().join("broker"), &[]).expect("a broker")
}

/// BR-089.
#[test]
fn connect_loses_nothing_to_kills_of_the_broker() {
    if skipped("connect_loses_nothing_to_kills_of_the_broker") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let report =
        connect::run(&mut target(&dir), SCENARIO, dir.path()).unwrap_or_else(|error| panic!("{error}"));
    println!("{report}");
    assert!(report.topic.written > 10_000, "{report}");
    assert_eq!(report.topic.violations(), 0, "{report}");
    assert_eq!(report.sink.violations(), 0, "{report}");
}

#[test]
fn mirror_maker_loses_nothing_to_kills_of_its_target() {
    if skipped("mirror_maker_loses_nothing_to_kills_of_its_target") {
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let report =
        mirror::run(&mut target(&dir), SCENARIO, dir.path()).unwrap_or_else(|error| panic!("{error}"));
    println!("{report}");
    assert!(report.records.written > 10_000, "{report}");
    assert_eq!(report.records.violations(), 0, "{report}");
    assert!(report.group_is_there(), "{report}");
}
