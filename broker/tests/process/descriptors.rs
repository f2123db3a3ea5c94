//! A process with few file descriptors: clients cannot take what files and the admin address need.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use protocol::messages::metadata::{MetadataRequest, MetadataResponse};

use crate::stop::{create_topic, produce};
use crate::support::{Client, PATIENCE, Starting};

/// The value of the only sample of this name.
fn sample(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find(|l| l.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn clients_beyond_the_limit_wait_while_others_are_served_and_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Starting::with_descriptors(dir.path(), &["penstock.shards=1"], 256).ready();
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "first", 1);
    let crowd: Vec<TcpStream> = (0..300)
        .map(|_| TcpStream::connect(broker.address).unwrap())
        .collect();
    let give_up = Instant::now() + PATIENCE;
    let name = "penstock_accept_exhausted_total";
    while !sample(&broker.get("/metrics").1, name).is_some_and(|times| times > 0.0) {
        assert!(Instant::now() < give_up, "every client got in");
        std::thread::sleep(Duration::from_millis(20));
    }
    // New directories, new files, deletions: on the connections that are there.
    create_topic(&mut client, "many", 100);
    for partition in 0..100 {
        produce(&mut client, "many", partition, 1).unwrap();
    }
    let (status, body) = broker.get("/health/ready");
    assert!(status.contains("200"), "{status}");
    assert!(body.contains("\"storage_offline\": false"), "{body}");

    let waiting = Client::connect(broker.address);
    drop(crowd);
    let mut waited = waiting;
    let metadata: MetadataResponse = waited.call(&MetadataRequest::default(), 4).unwrap();
    assert_eq!(metadata.brokers.len(), 1);
    let stderr = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    assert!(!stderr.contains("offline"), "{stderr}");
    broker.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(broker.end().0.code(), Some(0));
}

#[test]
fn more_partitions_than_descriptors_are_created_written_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..2 {
        let broker = Starting::with_descriptors(dir.path(), &["penstock.shards=2"], 300).ready();
        let mut client = Client::connect(broker.address);
        if round == 0 {
            create_topic(&mut client, "many", 400);
        }
        for partition in 0..400 {
            produce(&mut client, "many", partition, 1).unwrap();
        }
        broker.signal(nix::sys::signal::Signal::SIGTERM);
        assert_eq!(broker.end().0.code(), Some(0));
    }
}

#[test]
fn a_start_with_too_few_descriptors_is_refused_with_the_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let starting = Starting::with_descriptors(dir.path(), &["penstock.shards=4"], 200);
    let (status, said, _) = starting.end();
    assert_eq!(status.code(), Some(71));
    assert!(said.is_empty(), "{said:?}");
    let stderr = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    let sentence = stderr.lines().last().unwrap_or_default();
    for part in ["open files", "At most 200", "4 shards", "LimitNOFILE"] {
        assert!(sentence.contains(part), "{part} is missing in: {sentence}");
    }
}
