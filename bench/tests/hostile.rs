//! Hostile input against a broker of ours: the answers that Apache Kafka gave, or the ones that we decided on; bounded memory; and a
//! well-behaved client that notices nothing.

use bench::hostile::{expected, judge, markdown, run};
use bench::process::{Broker, Profile};

/// What the memory of the broker may grow by at most, in MB: 10,000 connections take most of it, about 57 KB each.
const GROWTH_MEGABYTES_MAX: u64 = 800;

#[test]
fn hostile_input_gets_the_answers_of_kafka() {
    let recorded =
        expected(include_str!("../hostile/expected.txt")).expect("the recorded answers are well-formed");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut broker = Broker::new(Profile::Dev, dir.path(), &[]).expect("a broker can be built");
    broker.start(None).expect("the broker starts");
    let pid = broker.pid().expect("it runs");
    let trial = run(&broker.bootstrap(), pid)
        .unwrap_or_else(|error| panic!("the broker is gone: {error}\n{}", broker.last_words()));
    println!("{}", markdown(&recorded, &trial, "Penstock"));
    let wrong = judge(&recorded, &trial);
    assert!(
        wrong.is_empty(),
        "{} answers differ:\n{}\n{}",
        wrong.len(),
        wrong.join("\n"),
        broker.last_words()
    );
    assert!(
        trial.seen.failures == 0 && trial.seen.rounds > 100,
        "the well-behaved client: {:?}",
        trial.seen
    );
    let [before, _, most] = trial.resident_megabytes;
    assert!(
        most <= before + GROWTH_MEGABYTES_MAX,
        "memory grew from {before} to {most} MB"
    );
    assert_eq!(broker.pid(), Some(pid), "the broker still runs");
}
