//! Files that are damaged while the broker is away: what is reported, what is still served. (Section 6 of what issue 5 must show;
//! BR-074 for the index files.)

use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use nix::sys::signal::Signal;
use protocol::messages::fetch::FetchResponse;
use protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use protocol::messages::produce::ProduceResponse;
use protocol::record::{BatchBuilder, BatchHeader, BatchOptions, NewRecord};
use protocol::{ErrorCode, Str};

use crate::stop::{create_topic, fetch_request, produce_request};
use crate::support::{Broker, Client};

const SETTINGS: [&str; 2] = ["penstock.shards=1", "log.segment.bytes=1048576"];
const FIRST_MS: i64 = 1_700_000_000_000;
/// Records whose batches fill two segments and a half.
const RECORDS: i64 = 25;
/// Batches of a segment.
const PER_SEGMENT: i64 = 10;

/// A batch of one record; its time is a second for each offset.
fn batch(offset: i64, value: &[u8]) -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions::default());
    let record = NewRecord {
        timestamp: FIRST_MS + offset * 1000,
        key: None,
        value: Some(value),
        headers: &[],
    };
    builder.append(&record).unwrap();
    builder.finish().unwrap().bytes
}

fn produce(client: &mut Client, topic: &str, offset: i64, value: &[u8]) -> ErrorCode {
    let request = produce_request(topic, 0, batch(offset, value));
    let response: ProduceResponse = client.call(&request, 7).unwrap();
    response.responses[0].partition_responses[0].error_code
}

/// The error code, and the offsets of the first and the last batch.
fn fetch(client: &mut Client, topic: &str, offset: i64) -> (ErrorCode, Option<(i64, i64)>) {
    let response: FetchResponse = client.call(&fetch_request(topic, 0, offset), 11).unwrap();
    let mut partition = response
        .responses
        .into_iter()
        .next()
        .unwrap()
        .partitions
        .remove(0);
    let records = partition.records.take().map(|records| records.into_bytes());
    let mut bytes = &records.unwrap_or_default()[..];
    let mut ends = None;
    while let Ok(header) = BatchHeader::parse(bytes, 0) {
        let (first, _) = ends.unwrap_or((header.base_offset, 0));
        ends = Some((first, header.base_offset));
        bytes = bytes.get(header.size() as usize..).unwrap_or_default();
    }
    (partition.error_code, ends)
}

fn list_offset(client: &mut Client, topic: &str, timestamp: i64) -> (ErrorCode, i64) {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(topic.to_owned()),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                timestamp,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let response: ListOffsetsResponse = client.call(&request, 2).unwrap();
    let partition = &response.topics[0].partitions[0];
    (partition.error_code, partition.offset)
}

/// Error, leader and offline replicas of the topic's partition in Metadata.
fn metadata(client: &mut Client, topic: &str) -> (ErrorCode, i32, Vec<i32>) {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(Str::from(topic.to_owned())),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let response: MetadataResponse = client.call(&request, 9).unwrap();
    let partition = &response.topics[0].partitions[0];
    (
        partition.error_code,
        partition.leader_id,
        partition.offline_replicas.clone(),
    )
}

/// A broker whose topic `large` has three segments and whose topic `other` has a record.
fn filled(dir: &Path) -> Broker {
    let broker = Broker::start(dir, &SETTINGS);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "large", 1);
    create_topic(&mut client, "other", 1);
    assert_eq!(
        produce(&mut client, "other", 0, b"of another topic"),
        ErrorCode::NONE
    );
    for offset in 0..RECORDS {
        let value = vec![offset as u8; 100_000];
        assert_eq!(produce(&mut client, "large", offset, &value), ErrorCode::NONE);
    }
    broker
}

fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join("data/large-0").join(name)
}

fn flip(path: &Path, position: u64) {
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], position).unwrap();
}

fn stderr(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("stderr")).unwrap()
}

/// The value of a metric without labels, or the sum over its labels.
fn metric(broker: &Broker, name: &str) -> f64 {
    let (_, body) = broker.get("/metrics");
    let samples = body
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name));
    samples
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum()
}

/// The only partition of `topic` is offline, everything else is served.
fn is_offline(broker: &Broker, topic: &str, others: &str) {
    let mut client = Client::connect(broker.address);
    let storage = ErrorCode::KAFKA_STORAGE_ERROR;
    assert_eq!(produce(&mut client, topic, 0, b"refused"), storage);
    assert_eq!(fetch(&mut client, topic, 0), (storage, None));
    assert_eq!(list_offset(&mut client, topic, -1).0, storage);
    // The owner refuses at once; metadata says so when the controller has heard of it.
    let began = std::time::Instant::now();
    let offline = loop {
        let (error, leader, offline) = metadata(&mut client, topic);
        if (error, leader) == (ErrorCode::LEADER_NOT_AVAILABLE, -1) {
            break offline;
        }
        assert_eq!((error, leader), (ErrorCode::NONE, 1));
        assert!(
            began.elapsed() < crate::support::PATIENCE,
            "it has a leader still"
        );
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(offline.len(), 1, "{offline:?}");

    let (error, leader, offline) = metadata(&mut client, others);
    assert!(error == ErrorCode::NONE && leader >= 0 && offline.is_empty());
    assert_eq!(fetch(&mut client, others, 0).0, ErrorCode::NONE);
    assert_eq!(produce(&mut client, others, 1, b"taken"), ErrorCode::NONE);

    let (status, body) = broker.get("/health/ready");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(status.contains("200"), "{status}");
    assert_eq!(
        (&body["status"], &body["offline_partitions"]),
        (&"degraded".into(), &1.into())
    );
    for name in [
        "kafka_server_replicamanager_offlinereplicacount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
    ] {
        assert!((metric(broker, name) - 1.0).abs() < 1e-9, "{name}");
    }
}

#[test]
fn a_flipped_bit_in_a_segment_is_not_served_and_everything_else_is() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path());
    broker.signal(Signal::SIGTERM);
    broker.end();
    let closed = file(dir.path(), "00000000000000000010.log");
    let active = file(dir.path(), "00000000000000000020.log");
    let size = u64::try_from(batch(0, &[0; 100_000]).len()).unwrap();
    flip(&closed, size * 5 + 50_000); // offset 15
    flip(&active, size * 2 + 50_000); // offset 22
    let broker = Broker::start(dir.path(), &SETTINGS);
    let mut client = Client::connect(broker.address);
    let served = |ends| (ErrorCode::NONE, Some(ends));
    let refused = (ErrorCode::CORRUPT_MESSAGE, None);
    for _ in 0..2 {
        assert_eq!(fetch(&mut client, "large", 0), served((0, 9)));
        assert_eq!(fetch(&mut client, "large", 10), served((10, 14)));
        assert_eq!(fetch(&mut client, "large", 15), refused);
        assert_eq!(fetch(&mut client, "large", 16), served((16, 19)));
        assert_eq!(fetch(&mut client, "large", 20), served((20, 21)));
        assert_eq!(fetch(&mut client, "large", 22), refused);
        assert_eq!(fetch(&mut client, "large", 23), served((23, 24)));
    }
    assert_eq!(fetch(&mut client, "other", 0).0, ErrorCode::NONE);
    let value = vec![25; 100_000];
    assert_eq!(produce(&mut client, "large", RECORDS, &value), ErrorCode::NONE);
    assert!((metric(&broker, "penstock_damaged_places") - 2.0).abs() < 1e-9);
    assert!((metric(&broker, "penstock_damaged_reads_total") - 4.0).abs() < 1e-9);
    let said = stderr(dir.path());
    for (path, position, offsets) in [(&closed, size * 5, "15 to 16"), (&active, size * 2, "22 to 23")] {
        let place = format!(
            "{} is damaged at byte {position} (offsets {offsets})",
            path.display()
        );
        let lines: Vec<&str> = said.lines().filter(|line| line.contains(&place)).collect();
        assert_eq!(lines.len(), 1, "{place}: {said}");
        assert!(lines[0].contains("expected a batch with CRC"), "{said}");
    }
}

#[test]
fn what_is_missing_of_a_log_takes_it_offline_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path());
    broker.signal(Signal::SIGTERM);
    broker.end();
    let active = file(dir.path(), "00000000000000000020.log");
    let log = std::fs::OpenOptions::new().write(true).open(&active).unwrap();
    log.set_len(log.metadata().unwrap().len() - 1000).unwrap();
    for _ in 0..2 {
        let broker = Broker::start(dir.path(), &SETTINGS);
        is_offline(&broker, "large", "other");
        let said = stderr(dir.path());
        for part in [
            "large-0/00000000000000000020.log",
            "offsets 24 to 25",
            "within a batch",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        broker.signal(Signal::SIGTERM);
        broker.end();
    }
}

#[test]
fn a_flipped_bit_in_the_journal_takes_its_log_offline_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &SETTINGS);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "one", 1);
    create_topic(&mut client, "two", 1);
    for offset in 0..5 {
        let value = format!("a value of topic one, {offset}");
        assert_eq!(
            produce(&mut client, "one", offset, value.as_bytes()),
            ErrorCode::NONE
        );
        assert_eq!(
            produce(&mut client, "two", offset, b"a value of topic two"),
            ErrorCode::NONE
        );
    }
    // Also the last commits are on record as durable after a pause.
    std::thread::sleep(Duration::from_millis(3000));
    broker.signal(Signal::SIGKILL);
    broker.end();
    let journal = dir.path().join("data/.penstock/journal/shard-0");
    let wanted = b"a value of topic one, 4";
    let found = std::fs::read_dir(&journal).unwrap().find_map(|entry| {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(wanted.len()).position(|window| window == wanted)?;
        Some((path, at as u64))
    });
    let (path, position) = found.expect("the record is in the journal");
    flip(&path, position + 3);
    for _ in 0..2 {
        let broker = Broker::start(dir.path(), &SETTINGS);
        is_offline(&broker, "one", "two");
        let said = stderr(dir.path());
        for part in [".penstock/damaged/", "offsets 4 to 5", "a frame with CRC"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        broker.signal(Signal::SIGTERM);
        broker.end();
    }
    let kept = std::fs::read_dir(dir.path().join("data/.penstock/damaged")).unwrap();
    assert_eq!(kept.count(), 1, "the damaged file is kept");
}

/// A file that is deleted, cut in half, filled with zeroes, or another segment's.
fn spoil(path: &Path, how: usize, other: &Path) -> io::Result<()> {
    let bytes = std::fs::read(path)?;
    match how {
        0 => std::fs::remove_file(path),
        1 => std::fs::write(path, &bytes[..bytes.len() / 2]),
        2 => std::fs::write(path, vec![0; bytes.len()]),
        _ => std::fs::copy(other, path).map(|_| ()),
    }
}

#[test]
fn spoilt_index_files_are_made_anew_and_the_answers_stay() {
    let dir = tempfile::tempdir().unwrap();
    let broker = filled(dir.path());
    broker.signal(Signal::SIGTERM);
    broker.end();
    let ways = [
        ("00000000000000000010.index", "00000000000000000000.index"),
        ("00000000000000000010.timeindex", "00000000000000000000.timeindex"),
        ("00000000000000000020.index", "00000000000000000010.index"),
        ("00000000000000000020.timeindex", "00000000000000000010.timeindex"),
        ("00000000000000000025.snapshot", "00000000000000000010.snapshot"),
        ("leader-epoch-checkpoint", "partition.metadata"),
    ];
    for how in 0..4 {
        for (name, other) in ways {
            spoil(&file(dir.path(), name), how, &file(dir.path(), other)).unwrap();
        }
        let broker = Broker::start(dir.path(), &SETTINGS);
        let mut client = Client::connect(broker.address);
        for offset in 0..RECORDS {
            let last = (offset - offset % PER_SEGMENT + PER_SEGMENT - 1).min(RECORDS - 1);
            let answer = fetch(&mut client, "large", offset);
            assert_eq!(answer, (ErrorCode::NONE, Some((offset, last))), "way {how}");
            let timed = list_offset(&mut client, "large", FIRST_MS + offset * 1000 - 500);
            assert_eq!(timed, (ErrorCode::NONE, offset), "way {how}");
        }
        broker.signal(Signal::SIGTERM);
        broker.end();
    }
    assert!(stderr(dir.path()).contains("made anew"), "{}", stderr(dir.path()));
}
