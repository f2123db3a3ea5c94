//! `penstock.commit.linger.us`: records of several requests share a commit, and what is large does not wait for more.

use std::time::{Duration, Instant};

use protocol::ErrorCode;
use protocol::messages::produce::ProduceResponse;

use crate::admin::sample;
use crate::stop::{batch, create_topic, produce, produce_request};
use crate::support::{Broker, Client};

/// The version of Produce that is used here.
const VERSION: i16 = 7;

fn commits(broker: &Broker) -> f64 {
    let (_, metrics) = broker.get("/metrics");
    sample(&metrics, "penstock_commits_total{shard=\"0\"}").unwrap()
}

#[test]
fn records_that_come_while_a_commit_waits_are_part_of_it() {
    let linger = Duration::from_millis(100);
    let dir = tempfile::tempdir().unwrap();
    let settings = ["penstock.shards=1", "penstock.commit.linger.us=100000"];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "lingers", 1);

    let (before, began) = (commits(&broker), Instant::now());
    for _ in 0..20 {
        client
            .send(&produce_request("lingers", 0, batch(1)), VERSION)
            .unwrap();
    }
    for _ in 0..20 {
        let response: ProduceResponse = client.receive(VERSION).unwrap();
        let code = response.responses[0].partition_responses[0].error_code;
        assert_eq!(code, ErrorCode::NONE);
    }
    assert!(began.elapsed() >= linger, "{:?}", began.elapsed());
    // Some requests may come after the first commit has gone, on a busy host: another takes them.
    let commits = commits(&broker) - before;
    assert!(
        (1.0..=5.0).contains(&commits),
        "{commits} commits for 20 requests"
    );

    let large = (0..10).map(|_| {
        let began = Instant::now();
        produce(&mut client, "lingers", 0, 20_000).unwrap();
        began.elapsed()
    });
    let quickest = large.min().unwrap();
    assert!(quickest < linger, "a large batch waited for more: {quickest:?}");
}
