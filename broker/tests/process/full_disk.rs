//! A real file system that is too small: from the first refused produce to recovery, with a client that goes on trying. It needs
//! root for the mount; without, each test says on standard error that it was skipped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::ErrorCode;
use protocol::Str;
use protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::messages::fetch::FetchResponse;
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use protocol::messages::produce::ProduceResponse;

use crate::admin::sample;
use crate::groups::{commit, find_coordinator};
use crate::lifecycle::large;
use crate::stop::{create_topic, fetch_request, log_end, produce_request};
use crate::support::{Broker, Client, PATIENCE, Starting};

const MIB: u64 = 1 << 20;

/// A mounted file system; unmounted when dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// A file system of `kind` and so many MiB on `at`; `None` where that is not allowed here.
    pub(crate) fn new(kind: &str, at: &Path, mib: u64) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let done = match kind {
            "tmpfs" => Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs"])
                .arg(at)
                .output(),
            kind => {
                let image = at.with_extension("image");
                fs::File::create(&image).unwrap().set_len(mib * MIB).unwrap();
                let made = Command::new(format!("mkfs.{kind}"))
                    .args(["-q", "-m", "0"])
                    .arg(&image)
                    .output();
                made.and_then(|_| {
                    Command::new("mount")
                        .args(["-o", "loop"])
                        .arg(&image)
                        .arg(at)
                        .output()
                })
            }
        };
        let why = match done {
            Ok(output) if output.status.success() => return Some(Self(at.to_owned())),
            Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
            Err(error) => error.to_string(),
        };
        // Not a macro that the test harness keeps to itself.
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: no small {kind} for a full disk: {why}"
        );
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Sends a batch as often as it takes, as a client with retries does; the answers before it was acknowledged.
pub(crate) fn produce_until_acknowledged(client: &mut Client, topic: &str) -> Vec<ErrorCode> {
    let began = Instant::now();
    let mut refusals = Vec::new();
    loop {
        match try_produce(client, topic, 1000) {
            ErrorCode::NONE => return refusals,
            code => refusals.push(code),
        }
        assert!(began.elapsed() < PATIENCE, "{refusals:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn try_produce(client: &mut Client, topic: &str, bytes: usize) -> ErrorCode {
    let request = produce_request(topic, 0, large(bytes));
    let response: ProduceResponse = client.call(&request, 7).unwrap();
    response.responses[0].partition_responses[0].error_code
}

/// Produces until a batch is refused; how many were acknowledged.
fn fill(client: &mut Client, topic: &str) -> i64 {
    for acknowledged in 0..1000 {
        match try_produce(client, topic, 500_000) {
            ErrorCode::NONE => {}
            code => {
                assert_eq!(code, ErrorCode::KAFKA_STORAGE_ERROR);
                return acknowledged;
            }
        }
    }
    panic!("the disk never filled");
}

fn health(broker: &Broker) -> (bool, serde_json::Value) {
    let (status, body) = broker.get("/health/ready");
    (status.contains("200"), serde_json::from_str(&body).unwrap())
}

/// Writes a file until there is nothing left.
fn take_the_rest(at: &Path) {
    let mut file = fs::File::create(at).unwrap();
    let block = vec![1; 64 << 10];
    while file.write_all(&block).is_ok() {}
    while file.write_all(&[1]).is_ok() {}
}

pub(crate) fn delete_topic(client: &mut Client, name: &str) {
    let request = DeleteTopicsRequest {
        topic_names: vec![Str::from(name.to_owned())],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let response: DeleteTopicsResponse = client.call(&request, 3).unwrap();
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
}

#[allow(
    clippy::too_many_lines,
    clippy::print_stdout,
    reason = "one story, told in order, with its figures"
)]
fn story(kind: &str) {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(mounted) = Mounted::new(kind, &data, 224) else {
        return;
    };
    let settings = ["penstock.shards=1", "penstock.disk.reserve.bytes=16777216"];
    let broker = Starting::new(dir.path(), &settings).ready();
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "kept", 1);
    create_topic(&mut client, "dropped", 1);
    find_coordinator(&mut client, "g");
    commit(&mut client, "g", "kept", &[(0, 1)]);
    assert_eq!(produce_until_acknowledged(&mut client, "kept"), []);

    let dropped = fill(&mut client, "dropped");
    assert!(dropped > 20, "{dropped}");
    let (is_served, body) = health(&broker);
    assert!(
        is_served && body["status"] == "degraded" && body["disk"]["full"] == true,
        "{body}"
    );
    let metrics = broker.get("/metrics").1;
    let label = format!("{{log_dir=\"{}\"}}", data.display());
    assert_eq!(
        sample(&metrics, &format!("penstock_log_dir_full{label}")),
        Some(1.0)
    );
    assert_eq!(
        sample(&metrics, &format!("penstock_log_dir_reserve_bytes{label}")),
        Some(16.0 * MIB as f64)
    );
    let free = nix::sys::statvfs::statvfs(&data).unwrap();
    let free = free.blocks_available() * free.fragment_size();
    assert!(free >= 12 * MIB, "{free} bytes are left of the reserve");

    // Everything else goes on; without commits, which may need what is not there, also when others take what was left.
    commit(&mut client, "g", "kept", &[(0, 1)]);
    take_the_rest(&data.join("ballast"));
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(log_end(&mut client, "dropped"), dropped);
    let read: FetchResponse = client.call(&fetch_request("dropped", 1, 0), 11).unwrap();
    let records = read.responses[0].partitions[0].records.as_ref();
    assert!(records.is_some_and(|records| records.len() > 400_000));
    assert_eq!(
        try_produce(&mut client, "kept", 1000),
        ErrorCode::KAFKA_STORAGE_ERROR
    );

    // Space comes back twice: from outside, and from a topic that is deleted.
    let waiting = retrying(&broker, "kept");
    std::thread::sleep(Duration::from_millis(500));
    delete_topic(&mut client, "dropped");
    commit(&mut client, "g", "kept", &[(0, 1)]);
    let refusals = waiting.join().unwrap();
    assert!(!refusals.is_empty());
    assert!(
        refusals
            .iter()
            .all(|code| *code == ErrorCode::KAFKA_STORAGE_ERROR)
    );
    let waited = refusals.len();
    create_topic(&mut client, "again", 1);
    fill(&mut client, "again");
    let waiting = retrying(&broker, "kept");
    std::thread::sleep(Duration::from_millis(500));
    fs::remove_file(data.join("ballast")).unwrap();
    assert!(!waiting.join().unwrap().is_empty());
    assert_eq!(health(&broker).1["disk"]["full"], false);
    println!("{kind}: {dropped} batches until refused, served again after {waited} tries");

    broker.signal(Signal::SIGTERM);
    assert_eq!(broker.end().0.code(), Some(0));
    let log = fs::read_to_string(dir.path().join("stderr")).unwrap();
    let told = log
        .lines()
        .filter(|line| line.contains("the log directory is nearly full"));
    assert_eq!(told.count(), 2, "once for each time:\n{log}");
    let again = Broker::start(dir.path(), &settings);
    assert_eq!(log_end(&mut Client::connect(again.address), "kept"), 3);
    drop(again);
    drop(mounted);
}

/// A client that goes on until its batch is acknowledged; what it was told before.
fn retrying(broker: &Broker, topic: &'static str) -> JoinHandle<Vec<ErrorCode>> {
    let mut client = Client::connect(broker.address);
    std::thread::spawn(move || produce_until_acknowledged(&mut client, topic))
}

#[test]
fn producers_are_refused_on_a_full_tmpfs_and_served_again_by_themselves() {
    story("tmpfs");
}

#[test]
fn producers_are_refused_on_a_full_ext4_and_served_again_by_themselves() {
    story("ext4");
}

/// BR-072: a start on a disk without a byte left ends with a sentence and changes nothing; the next one, with space, serves all.
#[test]
fn br_072_a_start_on_a_full_disk_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(_mounted) = Mounted::new("tmpfs", &data, 160) else {
        return;
    };
    let settings = ["penstock.shards=1", "penstock.disk.reserve.bytes=1048576"];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "kept", 1);
    let mut kept = 0;
    while kept < 20 {
        assert_eq!(try_produce(&mut client, "kept", 30_000), ErrorCode::NONE);
        kept += 1;
    }
    broker.signal(Signal::SIGKILL);
    broker.end();
    take_the_rest(&data.join("ballast"));
    for _ in 0..2 {
        let (status, _, _) = Starting::new(dir.path(), &settings).end();
        let stderr = fs::read_to_string(dir.path().join("stderr")).unwrap();
        assert_eq!(status.code(), Some(74), "{stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        assert!(last.contains("full") || last.contains("space"), "{stderr}");
    }
    fs::remove_file(data.join("ballast")).unwrap();
    let again = Broker::start(dir.path(), &settings);
    assert_eq!(log_end(&mut Client::connect(again.address), "kept"), kept);
}

/// Commits of groups without members, with all the metadata that is allowed, until the connection ends; counts those acknowledged.
fn pour_commits(broker: &Broker, groups: Vec<String>, acknowledged: Arc<AtomicU64>) -> JoinHandle<()> {
    let request = |group: &str| OffsetCommitRequest {
        group_id: Str::from(group.to_owned()),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "many".into(),
            partitions: (0..50)
                .map(|partition_index| OffsetCommitRequestPartition {
                    partition_index,
                    committed_offset: 1,
                    committed_metadata: Some(Str::from("m".repeat(4000))),
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut client = Client::connect(broker.address);
    std::thread::spawn(move || {
        for group in groups.iter().cycle() {
            let answer = client.call::<_, OffsetCommitResponse>(&request(group), 7);
            match answer.map(|answer| answer.topics[0].partitions[0].error_code) {
                Ok(ErrorCode::NONE) => _ = acknowledged.fetch_add(1, Ordering::Relaxed),
                Ok(_) => std::thread::sleep(Duration::from_millis(100)),
                Err(_) => return,
            }
        }
    })
}

/// Waits until nothing is acknowledged any more for some seconds; how much was.
fn until_it_stands(acknowledged: &AtomicU64) -> u64 {
    let began = Instant::now();
    let mut last = (acknowledged.load(Ordering::Relaxed), Instant::now());
    while last.1.elapsed() < Duration::from_secs(3) {
        assert!(began.elapsed() < PATIENCE, "the journal never filled");
        std::thread::sleep(Duration::from_millis(50));
        let now = acknowledged.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    last.0
}

/// Neither the disk nor the journal has room: a stop does not wait for it, says what to do, and loses nothing.
fn stop_with_disk_and_journal_full(kind: &str) {
    const DROPPED: i64 = 40;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let Some(_mounted) = Mounted::new(kind, &data, 224) else {
        return;
    };
    let settings = [
        "penstock.shards=1",
        "penstock.disk.reserve.bytes=0",
        "offsets.topic.num.partitions=4",
    ];
    let last_line = || {
        let stderr = fs::read_to_string(dir.path().join("stderr")).unwrap();
        stderr.lines().last().unwrap_or_default().to_owned()
    };
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "kept", 1);
    create_topic(&mut client, "many", 50);
    create_topic(&mut client, "dropped", 1);
    assert_eq!(try_produce(&mut client, "kept", 1000), ErrorCode::NONE);
    for _ in 0..DROPPED {
        assert_eq!(try_produce(&mut client, "dropped", 500_000), ErrorCode::NONE);
    }
    let groups: Vec<String> = (0..8).map(|n| format!("g-{n}")).collect();
    for group in &groups {
        find_coordinator(&mut client, group);
        commit(&mut client, group, "kept", &[(0, 1)]);
    }
    let ballast = data.join("ballast");
    take_the_rest(&ballast);
    let acknowledged = Arc::new(AtomicU64::new(0));
    let pouring = pour_commits(&broker, groups, acknowledged.clone());
    let poured = until_it_stands(&acknowledged);
    assert!(poured > 50, "{poured} commits of 200 kB fill no journal");
    broker.signal(Signal::SIGTERM);
    let (status, took) = broker.end();
    pouring.join().unwrap();
    assert_eq!(status.code(), Some(74), "{}", last_line());
    assert!(took < Duration::from_secs(10), "{took:?}");
    for part in ["full", "nothing acknowledged is lost", "free some space"] {
        assert!(last_line().contains(part), "{part}: {}", last_line());
    }
    // A start has no room either, changes nothing, and says the same.
    let (status, _, _) = Starting::new(dir.path(), &settings).end();
    assert_eq!(status.code(), Some(74), "{}", last_line());
    assert!(last_line().contains("free some space"), "{}", last_line());

    fs::remove_file(&ballast).unwrap();
    serves_again(dir.path(), &ballast, DROPPED);
}

/// With space again everything is there, and on a disk that is full once more deleting a topic makes space.
fn serves_again(dir: &Path, ballast: &Path, dropped: i64) {
    let settings = ["penstock.shards=1", "penstock.disk.reserve.bytes=4194304"];
    let again = Broker::start(dir, &settings);
    let mut client = Client::connect(again.address);
    assert_eq!(log_end(&mut client, "kept"), 1);
    assert_eq!(log_end(&mut client, "dropped"), dropped);
    let read: FetchResponse = client.call(&fetch_request("dropped", 1, 0), 11).unwrap();
    let records = read.responses[0].partitions[0].records.as_ref();
    assert!(records.is_some_and(|records| records.len() > 400_000));
    take_the_rest(ballast);
    let free = || {
        let found = nix::sys::statvfs::statvfs(dir.join("data").as_path()).unwrap();
        found.blocks_available() * found.fragment_size()
    };
    let before = free();
    delete_topic(&mut client, "dropped");
    let began = Instant::now();
    while free() < before + 15 * MIB {
        assert!(
            began.elapsed() < PATIENCE,
            "{before} bytes were free, {} are",
            free()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    produce_until_acknowledged(&mut client, "kept");
    again.signal(Signal::SIGTERM);
    assert_eq!(again.end().0.code(), Some(0));
}

#[test]
fn a_stop_with_disk_and_journal_full_ends_with_74_on_tmpfs_and_loses_nothing() {
    stop_with_disk_and_journal_full("tmpfs");
}

#[test]
fn a_stop_with_disk_and_journal_full_ends_with_74_on_ext4_and_loses_nothing() {
    stop_with_disk_and_journal_full("ext4");
}
