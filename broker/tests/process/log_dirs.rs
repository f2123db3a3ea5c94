//! Several log directories: where partitions go and are found again, and what is left when a directory fails. The failure is that of
//! a real file system, which needs root for its mount; without, the test says on standard error that it was skipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest, CreateTopicsResponse};
use protocol::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use protocol::messages::fetch::FetchResponse;
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use protocol::messages::produce::ProduceResponse;
use protocol::{ErrorCode, Str};

use crate::admin::sample;
use crate::full_disk::{Mounted, delete_topic};
use crate::stop::{batch, create_topic, fetch_request, produce_request};
use crate::support::{Broker, Client, PATIENCE, Starting};

/// Per directory: its error and its partitions with their sizes.
type Described = BTreeMap<String, (ErrorCode, BTreeMap<(String, i32), i64>)>;

fn describe(client: &mut Client) -> Described {
    let request = DescribeLogDirsRequest { topics: None };
    let response: DescribeLogDirsResponse = client.call(&request, 4).unwrap();
    let mut described = Described::new();
    for dir in response.results {
        let mut partitions = BTreeMap::new();
        for topic in dir.topics {
            for p in topic.partitions {
                partitions.insert((topic.name.to_string(), p.partition_index), p.partition_size);
            }
        }
        assert_eq!(dir.total_bytes > 0, dir.error_code == ErrorCode::NONE);
        described.insert(dir.log_dir.to_string(), (dir.error_code, partitions));
    }
    described
}

fn produce_to(client: &mut Client, topic: &str, partition: i32) -> ErrorCode {
    let request = produce_request(topic, partition, batch(10));
    let response: ProduceResponse = client.call(&request, 7).unwrap();
    response.responses[0].partition_responses[0].error_code
}

/// Leader and offline replicas of each partition.
fn leaders(client: &mut Client, topic: &str) -> Vec<(i32, Vec<i32>)> {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(Str::from(topic.to_owned())),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let response: MetadataResponse = client.call(&request, 8).unwrap();
    let mut partitions = response.topics[0].partitions.clone();
    partitions.sort_by_key(|p| p.partition_index);
    partitions
        .into_iter()
        .map(|p| (p.leader_id, p.offline_replicas))
        .collect()
}

/// Every further read and write of the ext4 file system on `at` fails, as on a device that is gone.
fn break_ext4(at: &Path) {
    let script = "import fcntl, os, struct, sys\n\
                  fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
    let done = Command::new("python3")
        .args(["-c", script])
        .arg(at)
        .status()
        .unwrap();
    assert!(done.success());
}

fn properties(dir: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(dir.join("meta.properties")).unwrap();
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn partitions_go_where_the_fewest_are_and_are_found_there_again() {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ["log.dirs=one,two,three", "penstock.shards=2"];
    let path = |name: &str| {
        dir.path()
            .join(name)
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    };
    let mut before = Described::new();
    for run in 0..3 {
        let broker = Broker::start(dir.path(), &dirs);
        let mut client = Client::connect(broker.address);
        if run == 0 {
            create_topic(&mut client, "spread", 7);
        }
        for partition in 0..7 {
            assert_eq!(produce_to(&mut client, "spread", partition), ErrorCode::NONE);
        }
        let described = describe(&mut client);
        let counts = ["one", "two", "three"].map(|name| described[&path(name)].1.len());
        assert_eq!(counts, [3, 2, 2]);
        for (name, (_, partitions)) in &before {
            for (partition, size) in partitions {
                assert!(described[name].1[partition] > *size, "{partition:?} in {name}");
            }
        }
        before = described;
        if run == 0 {
            broker.signal(Signal::SIGKILL);
            broker.end();
        } else {
            broker.signal(Signal::SIGTERM);
            assert_eq!(broker.end().0.code(), Some(0));
        }
    }
    let all = ["one", "two", "three"].map(|name| properties(&dir.path().join(name)));
    assert!(
        all.iter()
            .all(|p| p["cluster.id"] == all[0]["cluster.id"] && p["node.id"] == "1")
    );
    assert!(
        all[0]["directory.id"] != all[1]["directory.id"] && all[1]["directory.id"] != all[2]["directory.id"]
    );

    // Without one of them its partitions are offline: they do not begin anew elsewhere, also at the second start.
    fs::rename(dir.path().join("two"), dir.path().join("away")).unwrap();
    for _ in 0..2 {
        let broker = Broker::start(dir.path(), &dirs);
        let mut client = Client::connect(broker.address);
        let offline =
            (0..7).filter(|p| produce_to(&mut client, "spread", *p) == ErrorCode::KAFKA_STORAGE_ERROR);
        assert_eq!(offline.count(), 2);
        broker.signal(Signal::SIGTERM);
        assert_eq!(broker.end().0.code(), Some(0));
    }
    fs::remove_dir_all(dir.path().join("two")).unwrap();
    fs::rename(dir.path().join("away"), dir.path().join("two")).unwrap();
    let broker = Broker::start(dir.path(), &dirs);
    let mut client = Client::connect(broker.address);
    assert!((0..7).all(|p| produce_to(&mut client, "spread", p) == ErrorCode::NONE));
}

/// Its files would stay under their name for ever, and be in the way of a topic of that name.
#[test]
fn what_a_topic_left_that_was_deleted_while_its_directory_was_away_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let stop = |broker: Broker| {
        broker.signal(Signal::SIGTERM);
        assert_eq!(broker.end().0.code(), Some(0));
    };
    let both = ["log.dirs=one,two", "penstock.shards=2"];
    let broker = Broker::start(dir.path(), &both);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "gone", 2);
    create_topic(&mut client, "again", 2);
    for topic in ["gone", "again"] {
        assert!((0..2).all(|p| produce_to(&mut client, topic, p) == ErrorCode::NONE));
    }
    stop(broker);

    let broker = Broker::start(dir.path(), &["log.dirs=one", "penstock.shards=2"]);
    let mut client = Client::connect(broker.address);
    delete_topic(&mut client, "gone");
    delete_topic(&mut client, "again");
    create_topic(&mut client, "again", 2);
    assert!((0..2).all(|p| produce_to(&mut client, "again", p) == ErrorCode::NONE));
    stop(broker);

    let broker = Broker::start(dir.path(), &both);
    let mut client = Client::connect(broker.address);
    assert!((0..2).all(|p| produce_to(&mut client, "again", p) == ErrorCode::NONE));
    let logs = || {
        let entries = fs::read_dir(dir.path().join("two")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut logs: Vec<String> = names
            .filter(|name| name.starts_with("gone-") || name.starts_with("again-"))
            .map(|name| {
                format!(
                    "{}{}",
                    &name[..name.find('-').unwrap()],
                    &name[name.rfind('-').unwrap()..]
                )
            })
            .collect();
        logs.sort();
        logs
    };
    let began = Instant::now();
    while logs() != ["again-stray", "gone-stray"] {
        assert!(began.elapsed() < PATIENCE, "{:?}", logs());
        std::thread::sleep(Duration::from_millis(20));
    }
    stop(broker);
}

#[test]
fn directories_that_do_not_belong_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["one", "other"] {
        let broker = Broker::start(dir.path(), &[&format!("log.dirs={name}"), "penstock.shards=1"]);
        create_topic(&mut Client::connect(broker.address), "t", 1);
        broker.signal(Signal::SIGTERM);
        broker.end();
    }
    let refused = |dirs: &str, status: i32, sentence: &str| {
        let (ended, _, _) = Starting::new(dir.path(), &[dirs, "penstock.shards=1"]).end();
        let stderr = fs::read_to_string(dir.path().join("stderr")).unwrap();
        assert_eq!(ended.code(), Some(status), "{stderr}");
        assert!(
            stderr.lines().last().unwrap_or_default().contains(sentence),
            "{stderr}"
        );
    };
    refused("log.dirs=one,other", 78, "cluster");
    refused("log.dirs=one,./one", 78, "twice");
    fs::remove_file(dir.path().join("other/meta.properties")).unwrap();
    refused("log.dirs=one,other", 78, "meta.properties");
}

/// The partitions of a directory that fails are offline; the process and all others go on.
#[test]
#[allow(clippy::too_many_lines, reason = "one story, told in order")]
fn a_failing_directory_takes_its_partitions_offline_and_not_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad");
    let Some(_mounted) = Mounted::new("ext4", &bad, 320) else {
        return;
    };
    let dirs = ["log.dirs=good,bad", "penstock.shards=2"];
    let broker = Broker::start(dir.path(), &dirs);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "t", 4);
    let described = describe(&mut client);
    let bad_path = bad.canonicalize().unwrap().display().to_string();
    let lost: Vec<i32> = described[&bad_path]
        .1
        .keys()
        .map(|(_, partition)| *partition)
        .collect();
    assert_eq!(lost.len(), 2, "{described:?}");
    assert!((0..4).all(|p| produce_to(&mut client, "t", p) == ErrorCode::NONE));

    break_ext4(&bad);
    let is_lost = |partition: &i32| lost.contains(partition);
    for partition in 0..4 {
        let told = produce_to(&mut client, "t", partition);
        if is_lost(&partition) {
            assert_eq!(told, ErrorCode::KAFKA_STORAGE_ERROR);
        } else {
            assert_eq!(told, ErrorCode::NONE);
        }
    }
    let began = Instant::now();
    let expected: Vec<(i32, Vec<i32>)> = (0..4)
        .map(|p| if is_lost(&p) { (-1, vec![1]) } else { (1, vec![]) })
        .collect();
    while leaders(&mut client, "t") != expected {
        assert!(began.elapsed() < PATIENCE, "{:?}", leaders(&mut client, "t"));
        std::thread::sleep(Duration::from_millis(50));
    }
    for partition in 0..4 {
        let mut request = fetch_request("t", 1, 0);
        request.topics[0].partitions[0].partition = partition;
        let read: FetchResponse = client.call(&request, 11).unwrap();
        let told = read.responses[0].partitions[0].error_code;
        assert_eq!(
            told == ErrorCode::KAFKA_STORAGE_ERROR,
            is_lost(&partition),
            "{told:?}"
        );
        let again = produce_to(&mut client, "t", partition);
        assert_eq!(
            again == ErrorCode::KAFKA_STORAGE_ERROR,
            is_lost(&partition),
            "{again:?}"
        );
    }
    let described = describe(&mut client);
    assert_eq!(
        described[&bad_path],
        (ErrorCode::KAFKA_STORAGE_ERROR, BTreeMap::new())
    );
    assert_eq!(
        sample(
            &broker.get("/metrics").1,
            "kafka_log_logmanager_offlinelogdirectorycount"
        ),
        Some(1.0)
    );
    let (status, body) = broker.get("/health/ready");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(status.contains("200") && body["status"] == "degraded", "{body}");
    assert_eq!(body["offline_log_dirs"][0], bad_path);
    // New partitions go to what works.
    create_topic(&mut client, "u", 3);
    assert!((0..3).all(|p| produce_to(&mut client, "u", p) == ErrorCode::NONE));
    broker.signal(Signal::SIGTERM);
    assert_eq!(broker.end().0.code(), Some(0));
}

/// A topic whose files cannot be made is not created without a word.
#[test]
fn create_topics_says_when_files_cannot_be_made() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    // Something that is no directory has the name.
    fs::write(dir.path().join("data/blocked-0"), "in the way").unwrap();
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: "blocked".into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let response: CreateTopicsResponse = client.call(&request, 5).unwrap();
    assert_eq!(response.topics[0].error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(response.topics[0].error_message.is_some());
    create_topic(&mut client, "fine", 1);
    assert_eq!(produce_to(&mut client, "fine", 0), ErrorCode::NONE);
    assert_eq!(
        produce_to(&mut client, "blocked", 0),
        ErrorCode::KAFKA_STORAGE_ERROR
    );
}
