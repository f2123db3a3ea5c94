//! `kafka-consumer-groups`, `kafka-get-offsets`, `kafka-groups` and `kafka-dump-log --offsets-decoder` give the same answers on our
//! broker as on Apache Kafka.
#![allow(clippy::print_stdout)] // the transcript is what the test is for

use bench::clients::{report_skip, require_all};
use bench::kafka;
use bench::process::Profile;
use bench::target::Kind;
use bench::tools::{compare, compare_decoded, markdown, run};

/// BR-006, BR-133.
#[test]
fn the_tools_answer_the_same_on_both_brokers() {
    if let Some(why) = kafka::missing() {
        assert!(!require_all(), "{why}");
        report_skip("the_tools_answer_the_same_on_both_brokers", why);
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let kafka = run(Kind::Kafka, &dir.path().join("kafka")).unwrap_or_else(|error| panic!("Kafka: {error}"));
    let ours = run(Kind::Penstock(Profile::Dev), &dir.path().join("penstock"))
        .unwrap_or_else(|error| panic!("ours: {error}"));
    println!("{}", markdown(&kafka, &ours));
    assert!(
        kafka.steps.len() > 80,
        "only {} commands were run",
        kafka.steps.len()
    );
    assert_eq!(kafka.steps.len(), ours.steps.len());
    let differing: Vec<_> = compare(&kafka, &ours)
        .into_iter()
        .map(|(kafka, ours)| format!("$ {}\n{}--- ours:\n{}", kafka.command, kafka.output, ours.output))
        .collect();
    assert!(differing.is_empty(), "{}", differing.join("\n"));
    let decoded = compare_decoded(&kafka.decoded, &ours.decoded);
    assert!(decoded.is_empty(), "{}", decoded.join("\n"));
}
