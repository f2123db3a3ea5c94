//! Old segments of a running broker: their files, the space they give back, what readers of them are told, and what the admin
//! address says and starts (RT-6, RT-8, BR-128).

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::signal::Signal;
use protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::messages::fetch::FetchResponse;
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig, IncrementalAlterConfigsResponse,
};
use protocol::messages::produce::ProduceResponse;
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};
use protocol::{ErrorCode, Str};

use crate::admin::sample;
use crate::stop::{create_topic_with, fetch_request, log_end, produce_request};
use crate::support::{Broker, Client, PATIENCE};

/// Passes come fast, files go after a second.
const FAST: [&str; 4] = [
    "penstock.shards=1",
    "log.initial.task.delay.ms=100",
    "log.retention.check.interval.ms=100",
    "log.segment.delete.delay.ms=1000",
];

/// A batch that fills the least segment, with a time of 2023.
fn filling() -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions::default());
    let record = NewRecord {
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(&vec![7; 600_000]),
        headers: &[],
    };
    builder.append(&record).unwrap();
    builder.finish().unwrap().bytes
}

fn create(client: &mut Client, name: &str, configs: &[(&str, &str)]) {
    let all: Vec<_> = [("segment.bytes", "1048576")]
        .iter()
        .chain(configs)
        .copied()
        .collect();
    create_topic_with(client, name, 1, &all);
}

fn set(client: &mut Client, topic: &str, key: &str, value: &str) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![IncrementalAlterConfigsRequestAlterConfigsResource {
            resource_type: 2,
            resource_name: Str::from(topic.to_owned()),
            configs: vec![IncrementalAlterConfigsRequestAlterableConfig {
                name: Str::from(key.to_owned()),
                config_operation: 0,
                value: Some(Str::from(value.to_owned())),
            }],
        }],
        validate_only: false,
    };
    let response: IncrementalAlterConfigsResponse = client.call(&request, 1).unwrap();
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE, "{response:?}");
}

/// Produces so many batches, one segment each.
fn fill(client: &mut Client, topic: &str, batches: usize) {
    for _ in 0..batches {
        let response: ProduceResponse = client.call(&produce_request(topic, 0, filling()), 7).unwrap();
        let part = &response.responses[0].partition_responses[0];
        assert_eq!(part.error_code, ErrorCode::NONE);
    }
}

/// Error, log start and record bytes of a fetch at `offset`.
fn fetch(client: &mut Client, topic: &str, offset: i64) -> (ErrorCode, i64, usize) {
    let mut request = fetch_request(topic, 1, offset);
    request.max_wait_ms = 0;
    let response: FetchResponse = client.call(&request, 11).unwrap();
    let part = &response.responses[0].partitions[0];
    let bytes = part.records.as_ref().map_or(0, protocol::RecordBytes::len);
    (part.error_code, part.log_start_offset, bytes)
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < give_up, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Names below the log directory that contain this.
fn names(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.join("data")];
    while let Some(dir) = open.pop() {
        let Ok(entries) = std::fs::read_dir(dir) else {
            continue;
        };
        for entry in entries.flatten() {
            if entry.path().is_dir() {
                open.push(entry.path());
            }
            if entry.file_name().to_string_lossy().contains(part) {
                found.push(entry.path());
            }
        }
    }
    found
}

/// Sends a POST to the admin address; status line and body.
fn post(broker: &Broker, path: &str) -> (String, serde_json::Value) {
    use std::io::{Read, Write};
    let mut stream = TcpStream::connect(broker.admin).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        head.lines().next().unwrap_or_default().to_owned(),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

/// Nothing went wrong by the log's account.
fn assert_calm(dir: &Path) {
    let stderr = std::fs::read_to_string(dir.join("stderr")).unwrap();
    for word in ["ERROR", "WARN retention", "offline"] {
        assert!(!stderr.contains(word), "{word}: {stderr}");
    }
}

#[test]
fn rt_8_segments_are_renamed_then_removed_and_counted_and_readers_are_told_where_the_log_starts() {
    let dir = tempfile::tempdir().unwrap();
    // Longer than a busy host may let this test wait between two looks.
    let delay = ["log.segment.delete.delay.ms=5000"];
    let broker = Broker::start(dir.path(), &[&FAST[..3], &delay].concat());
    let mut client = Client::connect(broker.address);
    create(&mut client, "sized", &[("retention.ms", "-1")]);
    fill(&mut client, "sized", 8);
    // A reader in the middle of what will go.
    let mut reader = Client::connect(broker.address);
    assert_eq!(fetch(&mut reader, "sized", 2).0, ErrorCode::NONE);
    set(&mut client, "sized", "retention.bytes", "1900000");
    let renamed = eventually("files are renamed", || {
        let found = names(dir.path(), ".deleted");
        (found.len() >= 8).then_some(found)
    });
    assert!(
        renamed
            .iter()
            .any(|path| path.ends_with("00000000000000000000.log.deleted")),
        "{renamed:?}"
    );
    eventually("the log starts above them", || {
        (fetch(&mut reader, "sized", 3) == (ErrorCode::OFFSET_OUT_OF_RANGE, -1, 0)).then_some(())
    });
    let (error, start, bytes) = fetch(&mut reader, "sized", 5);
    assert_eq!((error, start), (ErrorCode::NONE, 4));
    assert!(bytes > 600_000);
    let removed = "penstock_retention_removed_segments_total{shard=\"0\",reason=\"size\"}";
    let metrics = eventually("four segments are counted", || {
        let metrics = broker.get("/metrics").1;
        (sample(&metrics, removed) == Some(4.0)).then_some(metrics)
    });
    assert!(sample(&metrics, "penstock_retention_removed_bytes_total{shard=\"0\"}") > Some(2_400_000.0));
    assert!(sample(&metrics, "penstock_retention_passes_total{shard=\"0\"}") > Some(0.0));
    assert!(
        sample(
            &metrics,
            "penstock_retention_last_pass_timestamp_seconds{shard=\"0\"}"
        ) > Some(1.7e9)
    );
    let percent = "kafka_log_log_retentionsizeinpercent{topic=\"sized\",partition=\"0\"}";
    eventually("what is left is a quarter above the limit", || {
        (sample(&broker.get("/metrics").1, percent) == Some(126.0)).then_some(())
    });
    eventually("the files are removed", || {
        names(dir.path(), ".deleted").is_empty().then_some(())
    });
    let metrics = broker.get("/metrics").1;
    assert_eq!(
        sample(&metrics, "penstock_removal_waiting_bytes{shard=\"0\"}"),
        Some(0.0)
    );
    assert_calm(dir.path());
}

#[test]
fn a_deleted_topic_frees_its_space_after_the_delay_also_with_readers_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &FAST);
    let mut client = Client::connect(broker.address);
    create(&mut client, "gone", &[("retention.ms", "-1")]);
    fill(&mut client, "gone", 20);
    // One reads all the while, one waits at the end.
    let mut waiting = Client::connect(broker.address);
    waiting.send(&fetch_request("gone", 1 << 30, 20), 11).unwrap();
    let address = broker.address;
    let reader = std::thread::spawn(move || {
        let mut reader = Client::connect(address);
        let mut seen = Vec::new();
        for round in 0.. {
            let (error, ..) = fetch(&mut reader, "gone", round % 20);
            if error != ErrorCode::NONE {
                seen.push(error);
            }
            if seen.len() == 5 {
                return seen;
            }
        }
        seen
    });
    std::thread::sleep(Duration::from_millis(100));
    let request = DeleteTopicsRequest {
        topic_names: vec![Str::from("gone")],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let response: DeleteTopicsResponse = client.call(&request, 5).unwrap();
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
    assert_eq!(names(dir.path(), "-delete").len(), 1, "its delay is not over");
    for error in reader.join().unwrap() {
        let is_told = [
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ];
        assert!(is_told.contains(&error), "{error:?}");
    }
    let response: FetchResponse = waiting.receive(11).unwrap();
    assert_ne!(response.responses[0].partitions[0].error_code, ErrorCode::NONE);
    eventually("the directory is removed", || {
        names(dir.path(), "-delete").is_empty().then_some(())
    });
    // And the space: no file of it is open any more.
    let held = || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", broker.pid())).unwrap();
        let targets = open.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let deleted = targets.filter(|path| path.to_string_lossy().ends_with("(deleted)"));
        deleted.collect::<Vec<_>>()
    };
    eventually("a file of it is held open", || held().is_empty().then_some(()));
    assert_calm(dir.path());
}

#[test]
fn a_change_counts_from_the_next_pass_and_a_pass_can_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let mut client = Client::connect(broker.address);
    create(&mut client, "asked", &[("retention.ms", "-1")]);
    fill(&mut client, "asked", 3);
    let (status, body) = post(&broker, "/retention");
    assert!(status.contains("200"), "{status} {body}");
    assert_eq!(
        (&body["status"], &body["segments_removed"]),
        (&"done".into(), &0.into()),
        "{body}"
    );
    assert_eq!(body["logs"], 1, "the metadata log is none of them: {body}");
    // The records are of 2023.
    set(&mut client, "asked", "retention.ms", "3600000");
    assert_eq!(
        fetch(&mut client, "asked", 0).0,
        ErrorCode::NONE,
        "the next pass is minutes away"
    );
    let (status, body) = post(&broker, "/retention");
    assert!(status.contains("200"), "{status} {body}");
    assert_eq!(body["segments_removed"], 3, "{body}");
    assert!(body["bytes_removed"].as_u64() > Some(1_800_000), "{body}");
    assert_eq!(fetch(&mut client, "asked", 0).0, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(fetch(&mut client, "asked", 3), (ErrorCode::NONE, 3, 0));
    assert!(broker.get("/retention").0.contains("405"), "a GET does nothing");
    assert!(broker.get("/").1.contains("/retention"));
    // RT-6: it goes on where it was, also after the next start.
    broker.signal(Signal::SIGKILL);
    broker.end();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    assert_eq!(log_end(&mut client, "asked"), 3);
    assert_eq!(fetch(&mut client, "asked", 3), (ErrorCode::NONE, 3, 0));
    fill(&mut client, "asked", 1);
    assert_eq!(log_end(&mut client, "asked"), 4);
    assert_calm(dir.path());
}

#[test]
fn br_128_the_brokers_default_empties_what_sets_nothing_and_leaves_metadata_and_offsets_alone() {
    let dir = tempfile::tempdir().unwrap();
    let more = [&FAST[..], &["log.retention.ms=1", "log.retention.bytes=1"]].concat();
    let broker = Broker::start(dir.path(), &more);
    let mut client = Client::connect(broker.address);
    create(
        &mut client,
        "history",
        &[("retention.ms", "-1"), ("retention.bytes", "-1")],
    );
    create(&mut client, "default", &[]);
    fill(&mut client, "history", 3);
    fill(&mut client, "default", 3);
    eventually("the default is emptied", || {
        (fetch(&mut client, "default", 3) == (ErrorCode::NONE, 3, 0)).then_some(())
    });
    assert_eq!(fetch(&mut client, "history", 0).1, 0);
    let metadata = names(dir.path(), "__cluster_metadata-0");
    assert_eq!(metadata.len(), 1);
    assert!(
        metadata[0].join("00000000000000000000.log").exists(),
        "nothing of it went"
    );
    // Which shows in that the next start knows the topics.
    broker.signal(Signal::SIGTERM);
    assert_eq!(broker.end().0.code(), Some(0));
    let broker = Broker::start(dir.path(), &more);
    let mut client = Client::connect(broker.address);
    assert_eq!(fetch(&mut client, "history", 0).1, 0);
    assert_eq!(fetch(&mut client, "default", 3), (ErrorCode::NONE, 3, 0));
    assert_calm(dir.path());
}
