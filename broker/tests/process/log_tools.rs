//! `penstock log`: what an operator sees of the files of a stopped broker, and that a running one is left alone.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use protocol::ErrorCode;
use protocol::messages::fetch::FetchResponse;
use serde_json::Value;

use crate::stop::{create_topic, fetch_request, log_end, produce};
use crate::support::{Broker, Client, run};

/// Batches in the topic of [`stopped`], of so many records each.
const BATCHES: i64 = 40;
const RECORDS: i64 = 25;

fn log(dir: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    run(dir, &[&["log"], arguments].concat())
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A broker's directory with a topic `t` after a stop in order.
fn stopped(dir: &Path) -> PathBuf {
    let broker = Broker::start(dir, &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "t", 1);
    for _ in 0..BATCHES {
        produce(&mut client, "t", 0, RECORDS as usize).unwrap();
    }
    let (code, _, stderr) = log(dir, &["verify", "data"]);
    assert_eq!(code, Some(69), "it is open: {stderr}");
    assert!(
        stderr.contains("in use by process") && stderr.contains("penstock"),
        "{stderr}"
    );
    let (code, _, stderr) = log(dir, &["repair", "--write", "data/t-0"]);
    assert_eq!(code, Some(69), "{stderr}");
    broker.signal(Signal::SIGTERM);
    assert!(broker.end().0.success());
    dir.join("data")
}

/// Every file below a directory with its content; the lock file apart.
fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(content(&path));
        } else if !path.ends_with(".lock") {
            files.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Offsets of the batches that a client gets from `from` on, and the error code.
fn fetched(client: &mut Client, from: i64) -> (Vec<i64>, ErrorCode) {
    let response: FetchResponse = client.call(&fetch_request("t", 1, from), 11).unwrap();
    let partition = &response.responses[0].partitions[0];
    let bytes: Vec<u8> = partition
        .records
        .iter()
        .flat_map(|records| records.pieces())
        .flat_map(|piece| piece.to_vec())
        .collect();
    let batches = protocol::record::Batches::new(&bytes, 0).map_while(Result::ok);
    (
        batches.map(|(_, batch)| batch.header().base_offset).collect(),
        partition.error_code,
    )
}

#[test]
fn help_teaches_every_verb_and_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let (code, stdout, _) = log(dir.path(), &["--help"]);
    assert_eq!(code, Some(0));
    for part in [
        "verify",
        "dump",
        "repair",
        "import",
        "--write",
        "Examples:",
        "65",
        "69",
    ] {
        assert!(stdout.contains(part), "{part} is missing in {stdout}");
    }
    let (code, _, stderr) = log(dir.path(), &["verify", "nowhere"]);
    assert_eq!(code, Some(65), "{stderr}");
    fs::create_dir(dir.path().join("other")).unwrap();
    let (code, _, stderr) = log(dir.path(), &["verify", "other"]);
    assert_eq!(code, Some(65));
    assert!(
        stderr.contains("no log directory") && stderr.contains("log.dirs"),
        "{stderr}"
    );
}

#[test]
fn a_flipped_bit_is_found_repaired_and_the_rest_is_served_at_its_offsets() {
    let dir = tempfile::tempdir().unwrap();
    let data = stopped(dir.path());
    let before = content(&data);
    let (code, stdout, stderr) = log(dir.path(), &["verify", "data"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(
        stdout.contains("stopped in order") && stdout.trim_end().ends_with("clean"),
        "{stdout}"
    );
    let (code, stdout, _) = log(dir.path(), &["repair", "data"]);
    assert_eq!(
        (code, stdout.contains("nothing to repair")),
        (Some(0), true),
        "{stdout}"
    );

    let segment = data.join("t-0/00000000000000000000.log");
    let mut bytes = fs::read(&segment).unwrap();
    let size = 12 + i32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
    bytes[3 * size + 70] ^= 4;
    fs::write(&segment, &bytes).unwrap();
    let (code, stdout, stderr) = log(dir.path(), &["verify", "--json", "data/t-0"]);
    assert_eq!(code, Some(65), "{stdout}{stderr}");
    let report = json(&stdout);
    assert_eq!(report["verdict"], "damaged");
    let finding = &report["directories"][0]["partitions"][0]["findings"][0];
    assert_eq!(finding["severity"], "damage", "{finding}");
    assert_eq!(finding["position"], 3 * size);
    assert_eq!(
        (&finding["first_offset"], &finding["end_offset"]),
        (&(3 * RECORDS).into(), &(4 * RECORDS).into())
    );
    assert_ne!(finding["expected_crc"], finding["found_crc"]);
    let (_, stdout, _) = log(dir.path(), &["verify", "data"]);
    assert!(
        stdout.contains(&format!("offsets {} to {}", 3 * RECORDS, 4 * RECORDS - 1)),
        "{stdout}"
    );

    let damaged = content(&data);
    let (code, stdout, _) = log(dir.path(), &["repair", "data"]);
    assert_eq!(code, Some(65), "{stdout}");
    assert!(
        stdout.contains(&format!("lost: offsets {} to {}", 3 * RECORDS, 4 * RECORDS - 1)),
        "{stdout}"
    );
    assert!(content(&data) == damaged, "without --write nothing changes");
    let (code, stdout, stderr) = log(dir.path(), &["repair", "--write", "data"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let kept = data.join("t-0/quarantine/00000000000000000000.log");
    assert!(
        fs::read(kept).unwrap() == bytes,
        "the damaged file is kept as it was"
    );
    let report = fs::read_to_string(data.join("t-0/quarantine/report.txt")).unwrap();
    assert!(report.contains("lost: offsets"), "{report}");
    let (code, stdout, _) = log(dir.path(), &["verify", "data"]);
    assert_eq!(code, Some(0), "{stdout}");

    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    assert_eq!(log_end(&mut client, "t"), BATCHES * RECORDS);
    let (bases, code) = fetched(&mut client, 0);
    let expected: Vec<i64> = (0..BATCHES).filter(|n| *n != 3).map(|n| n * RECORDS).collect();
    assert_eq!((bases, code), (expected, ErrorCode::NONE));
    produce(&mut client, "t", 0, 1).unwrap();
    assert_eq!(log_end(&mut client, "t"), BATCHES * RECORDS + 1);
    drop(broker);
    assert!(!before.is_empty());
}

#[test]
fn a_lost_end_is_not_given_out_again() {
    let dir = tempfile::tempdir().unwrap();
    let data = stopped(dir.path());
    let segment = data.join("t-0/00000000000000000000.log");
    let mut bytes = fs::read(&segment).unwrap();
    bytes.truncate(bytes.len() - 10);
    fs::write(&segment, &bytes).unwrap();
    let (code, stdout, _) = log(dir.path(), &["repair", "--write", "data"]);
    assert_eq!(code, Some(0), "{stdout}");
    let end = BATCHES * RECORDS;
    assert!(
        stdout.contains(&format!("lost: offsets {} to {}", end - RECORDS, end - 1)),
        "{stdout}"
    );
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    assert_eq!(log_end(&mut client, "t"), end);
    produce(&mut client, "t", 0, 2).unwrap();
    assert_eq!(log_end(&mut client, "t"), end + 2);
    let (bases, code) = fetched(&mut client, end - RECORDS);
    assert_eq!(
        (bases, code),
        (vec![end], ErrorCode::NONE),
        "the next record behind the hole"
    );
}

#[test]
fn every_kind_of_file_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    stopped(dir.path());
    let (code, stdout, stderr) = log(
        dir.path(),
        &["dump", "data/t-0", "--records", "--from", "30", "--to", "31"],
    );
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.contains("batch 25..49 ") && !stdout.contains("batch 0..24"),
        "{stdout}"
    );
    assert_eq!(stdout.matches("record 3").count(), 2, "{stdout}");
    assert!(stdout.contains("\"a value of some length\""), "{stdout}");
    let lines = |path: &str| {
        let (code, stdout, stderr) = log(dir.path(), &["dump", "--json", "--records", path]);
        assert_eq!(code, Some(0), "{path}: {stderr}");
        stdout.lines().map(json).collect::<Vec<Value>>()
    };
    let batches = lines("data/t-0/00000000000000000000.log");
    let of = |kind: &str| batches.iter().filter(|line| line["type"] == kind).count() as i64;
    assert_eq!((of("batch"), of("record")), (BATCHES, BATCHES * RECORDS));
    let metadata = lines("data/__cluster_metadata-0");
    let named = |name: &str| metadata.iter().any(|line| line["decoded"]["record"] == name);
    assert!(
        named("TopicRecord") && named("PartitionRecord") && named("RegisterBrokerRecord"),
        "{metadata:?}"
    );
    assert_eq!(
        lines("data/t-0/partition.metadata")[0]["topic_id"]
            .as_str()
            .unwrap()
            .len(),
        22
    );
    assert_eq!(lines("data/meta.properties")[0]["node_id"], 1);
    let checkpoint = lines("data/.penstock/checkpoints/shard-0");
    assert!(
        checkpoint.iter().any(|line| line["directory"] == "t-0"),
        "{checkpoint:?}"
    );
    let (code, _, stderr) = log(dir.path(), &["dump", "data"]);
    assert_eq!(code, Some(64), "{stderr}");

    // Written by Apache Kafka: transactions, indexes, snapshots.
    let kafka = Path::new(env!("CARGO_MANIFEST_DIR")).join("../storage/tests/fixtures/kafka-4.3.1/fx-0");
    let file = |name: &str| lines(kafka.join(name).to_str().unwrap());
    assert!(
        !file("00000000000000000011.index").is_empty() && !file("00000000000000000011.timeindex").is_empty()
    );
    assert!(file("00000000000000000011.txnindex")[0]["last_stable_offset"].is_i64());
    assert!(file("00000000000000000079.snapshot")[0]["producer_id"].is_i64());
    assert!(file("leader-epoch-checkpoint")[0]["start_offset"].is_i64());
    let ends = file("00000000000000000011.log");
    assert!(
        ends.iter().any(|line| line["decoded"]["control"] == "abort"),
        "{ends:?}"
    );
}

#[test]
fn a_journal_is_shown_after_a_kill_and_the_log_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "t", 1);
    for _ in 0..BATCHES {
        produce(&mut client, "t", 0, RECORDS as usize).unwrap();
    }
    drop(broker); // kill -9
    let (code, stdout, stderr) = log(dir.path(), &["verify", "--json", "data"]);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let report = json(&stdout);
    let directory = &report["directories"][0];
    assert_eq!(directory["clean_stop"], false);
    assert!(
        directory["journals"]["commits"].as_u64().unwrap() > 0,
        "{directory}"
    );
    let partitions = directory["partitions"].as_array().unwrap();
    let t = partitions
        .iter()
        .find(|p| p["dir"].as_str().unwrap().ends_with("t-0"))
        .unwrap();
    assert_eq!(
        t["log_end_offset"],
        BATCHES * RECORDS,
        "with what the journal holds"
    );
    let (code, stdout, stderr) = log(dir.path(), &["repair", "data"]);
    assert_eq!(
        (code, stdout.contains("nothing to repair")),
        (Some(0), true),
        "{stdout}{stderr}"
    );
    let (code, stdout, stderr) = log(dir.path(), &["dump", "data/.penstock/journal/shard-0"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.contains("commit sequence") && stdout.contains("\"t-0\""),
        "{stdout}"
    );
}

#[test]
fn an_import_refuses_what_is_no_stopped_kafka() {
    let dir = tempfile::tempdir().unwrap();
    stopped(dir.path());
    let refuse = |arguments: &[&str], part: &str| {
        let (code, _, stderr) = log(dir.path(), &[&["import"], arguments].concat());
        assert_eq!(code, Some(65), "{stderr}");
        assert!(stderr.contains(part), "{part} is missing in: {stderr}");
    };
    refuse(&["data", "--to", "new"], "a directory of penstock");
    refuse(&["data", "--to", "data"], "not empty");
    fs::create_dir(dir.path().join("kafka")).unwrap();
    refuse(&["kafka", "--to", "new"], "meta.properties");
    let text =
        "version=1\nnode.id=1\ncluster.id=wtZ5bHyFS6aRZ0RqZ5k7Xg\ndirectory.id=3Y5gkJ0jQ7mhQFf5p5l6Jw\n";
    fs::write(dir.path().join("kafka/meta.properties"), text).unwrap();
    refuse(&["kafka", "--to", "new"], "--recover");
    fs::write(
        dir.path().join("kafka/.kafka_cleanshutdown"),
        "{\"version\":0,\"brokerEpoch\":7}",
    )
    .unwrap();
    refuse(&["kafka", "--to", "new"], "--metadata");
    assert!(!dir.path().join("new").exists());
}
