//! Every Kafka client of `bench/clients/` against a broker of ours: all codecs and acks, 10,000 records each, compared byte for byte.
//! Every one again in consumer groups. And a real text file of more than 100 MB through kcat.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bench::clients::groups::{
    CaseOutcome, GroupOptions, GroupResult, group_failures, group_markdown, run_groups,
};
use bench::clients::{
    Options, Releases, failures, markdown, report_skip, require_all, run_matrix, sarama_releases,
};
use bench::process::{Broker, Profile};
use bench::roundtrip::{CODECS, kcat_installed, make_text, round_trip};

/// Bytes of the text file.
const TEXT_BYTES: u64 = 101_000_000;

/// One test at a time: each has all that two processors can do, and members of groups that nobody runs for seconds fail their cases.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    // It guards nothing that a failed test could leave in disorder.
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn broker(dir: &tempfile::TempDir) -> Broker {
    // Members of a test join at once.
    let settings = ["group.initial.rebalance.delay.ms=0"];
    let mut broker = Broker::new(Profile::Dev, dir.path(), &settings).expect("a broker can be built");
    broker.start(None).expect("the broker starts");
    broker
}

#[test]
fn every_client_reads_back_what_it_wrote() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let broker = broker(&dir);
    let options = Options {
        bootstrap: broker.bootstrap(),
        topic_prefix: "matrix".into(),
        records: 10_000,
        only: Vec::new(),
        parallel: 3,
        codecs: String::new(),
    };
    let runs = run_matrix(&options).expect("the matrix runs");
    println!("{}", markdown(&runs));
    for run in &runs {
        if let bench::clients::Outcome::Skipped(why) = &run.outcome {
            report_skip(run.client, why);
        }
    }
    let failures = failures(&runs, require_all());
    assert!(
        failures.is_empty(),
        "{} failures:\n{}\n{}",
        failures.len(),
        failures.join("\n"),
        broker.last_words()
    );
}

/// BR-037. What Apache Kafka 4.3.1 does not serve any more is refused in time; 69 releases from 0.11 on work, asking for
/// ApiVersions or not.
#[test]
fn sarama_speaks_every_release_that_kafka_serves() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let broker = broker(&dir);
    let releases = match sarama_releases(&broker.bootstrap(), "releases").expect("sarama runs") {
        Releases::Ran(releases) => releases,
        Releases::Skipped(why) => {
            assert!(!require_all(), "sarama: {why}");
            report_skip("sarama_speaks_every_release_that_kafka_serves", &why);
            return;
        }
    };
    let served = releases.iter().filter(|release| release.served).count();
    println!("{served} of {} served", releases.len());
    let wrong: Vec<_> = releases.iter().filter(|release| !release.is_well()).collect();
    assert!(wrong.is_empty(), "{wrong:?}\n{}", broker.last_words());
    assert_eq!(
        (served, releases.len()),
        (138, 162),
        "each release, asked and not"
    );
}

#[test]
fn every_group_client_joins_rebalances_and_goes_on_where_it_committed() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let broker = broker(&dir);
    let options = GroupOptions {
        bootstrap: broker.bootstrap(),
        topic_prefix: "groups".into(),
        only: Vec::new(),
        cases: Vec::new(),
        parallel: 6,
    };
    let runs = run_groups(&options).expect("the cases run");
    println!("{}", group_markdown(&runs));
    for skipped in runs.skipped.iter().filter(|one| one.unavailable) {
        report_skip(skipped.client, &skipped.why);
    }
    let failures = group_failures(&runs, require_all());
    assert!(
        failures.is_empty(),
        "{} failures:\n{}\n{}",
        failures.len(),
        failures.join("\n"),
        broker.last_words()
    );
    // Which ones are absent is checked with each case; here that none was left out.
    let absent = |one: &&GroupResult| matches!(one.outcome, CaseOutcome::Absent(_));
    let absent = runs.results.iter().filter(absent).count();
    if runs.skipped.is_empty() {
        assert_eq!((runs.results.len(), absent), (154, 42), "14 rows of 11 cases");
    }
}

#[test]
fn a_text_file_comes_back_byte_identical() {
    if !kcat_installed() {
        assert!(!require_all(), "kcat is missing");
        report_skip("a_text_file_comes_back_byte_identical", "kcat is missing");
        return;
    }
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let text = dir.path().join("text");
    make_text(&text, TEXT_BYTES).expect("a text file");
    let broker = broker(&dir);
    for codec in CODECS {
        let trip = round_trip(
            &broker.bootstrap(),
            &format!("text-{codec}"),
            codec,
            &text,
            dir.path(),
        );
        let trip = trip.unwrap_or_else(|error| panic!("{codec}: {error}\n{}", broker.last_words()));
        assert!(trip.bytes >= TEXT_BYTES, "only {} bytes", trip.bytes);
        println!(
            "{codec}: {} bytes, in {:.1?}, out {:.1?}",
            trip.bytes, trip.write, trip.read
        );
    }
}
