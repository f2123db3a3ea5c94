//! AlterReplicaLogDirs: partitions go from one log directory to the other while producers and consumers use them, also over
//! `kill -9`. Nothing that was acknowledged is lost, doubled or moved to another offset, and no client is told of an error.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::signal::Signal;
use protocol::messages::alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirTopic, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
};
use protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use protocol::messages::fetch::FetchResponse;
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource as AlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig as AlterableConfig, IncrementalAlterConfigsResponse,
};
use protocol::messages::produce::ProduceResponse;
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};
use protocol::{ErrorCode, Str};

use crate::stop::{create_topic_with, fetch_request, produce_request};
use crate::support::{Broker, Client, PATIENCE, free_port, now_ms};

const TOPIC: &str = "moved";
const PARTITIONS: i32 = 3;
const THROTTLE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

/// Checksums of batches by their first offset.
type Batches = BTreeMap<i64, u32>;

/// A batch that no other has the checksum of, for all that matters here.
fn batch(number: u64) -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions::default());
    for record in 0..3 {
        let value = format!(
            "{number:>10} {record} {}",
            "x".repeat(2000 + (number % 97) as usize)
        );
        let record = NewRecord {
            timestamp: now_ms(),
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.append(&record).unwrap();
    }
    builder.finish().unwrap().bytes
}

fn crc(batch: &[u8]) -> u32 {
    u32::from_be_bytes(batch[17..21].try_into().unwrap())
}

/// The batches in an answer, with their first offsets; the offset behind them.
fn split(mut records: &[u8], into: &mut Batches, from: i64) -> i64 {
    let mut at = from;
    while records.len() >= 61 {
        let base = i64::from_be_bytes(records[..8].try_into().unwrap());
        let bytes = 12 + u32::from_be_bytes(records[8..12].try_into().unwrap()) as usize;
        if records.len() < bytes {
            break;
        }
        let last = i64::from(u32::from_be_bytes(records[23..27].try_into().unwrap()));
        assert_eq!(base, at, "the log has no hole and nothing twice");
        into.insert(base, crc(records));
        at = base + last + 1;
        records = &records[bytes..];
    }
    at
}

/// What the clients share.
#[derive(Clone)]
struct Clients {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
}

impl Clients {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn connect(&self) -> Option<Client> {
        let began = Instant::now();
        while !self.is_over() {
            if let Ok(client) = Client::try_connect(self.address) {
                return Some(client);
            }
            assert!(began.elapsed() < PATIENCE, "nobody listens");
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Writes until it is over; returns what was acknowledged. From the first success on a connection no error is heard on it.
    fn produce(self, partition: i32) -> JoinHandle<Batches> {
        std::thread::spawn(move || {
            let mut acknowledged = Batches::new();
            let mut number = u64::try_from(partition).unwrap() << 32;
            while let Some(mut client) = self.connect() {
                let mut is_served = false;
                while !self.is_over() {
                    number += 1;
                    let batch = batch(number);
                    let sent = crc(&batch);
                    let request = produce_request(TOPIC, partition, batch);
                    let Ok(response) = client.call::<_, ProduceResponse>(&request, 7) else {
                        break;
                    };
                    let result = &response.responses[0].partition_responses[0];
                    if result.error_code == ErrorCode::NONE {
                        is_served = true;
                        acknowledged.insert(result.base_offset, sent);
                        self.written.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(2));
                    } else {
                        assert!(!is_served, "partition {partition}: {:?}", result.error_code);
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
            acknowledged
        })
    }

    /// Reads from the beginning until it is over.
    fn consume(self, partition: i32) -> JoinHandle<Batches> {
        std::thread::spawn(move || {
            let mut seen = Batches::new();
            let mut at = 0;
            while let Some(mut client) = self.connect() {
                let mut is_served = false;
                while !self.is_over() {
                    let Ok((code, next)) = fetch(&mut client, partition, at, &mut seen) else {
                        break;
                    };
                    at = next;
                    if code == ErrorCode::NONE {
                        is_served = true;
                    } else {
                        assert!(!is_served, "partition {partition} at {at}: {code:?}");
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
            seen
        })
    }
}

fn fetch(
    client: &mut Client,
    partition: i32,
    at: i64,
    into: &mut Batches,
) -> std::io::Result<(ErrorCode, i64)> {
    let mut request = fetch_request(TOPIC, 1, at);
    request.max_wait_ms = 100;
    request.topics[0].partitions[0].partition = partition;
    let response: FetchResponse = client.call(&request, 11)?;
    let data = &response.responses[0].partitions[0];
    let records = data.records.clone().unwrap_or_default().into_bytes();
    Ok((data.error_code, split(&records, into, at)))
}

/// All of a partition.
fn read_all(client: &mut Client, partition: i32) -> Batches {
    let mut all = Batches::new();
    let mut at = 0;
    loop {
        let (code, next) = fetch(client, partition, at, &mut all).unwrap();
        assert_eq!(code, ErrorCode::NONE);
        if next == at {
            return all;
        }
        at = next;
    }
}

/// Of each partition: the directory that it is in, and where it is on its way to with how far that is behind.
type Places = BTreeMap<i32, (String, Option<(String, i64)>)>;

fn places(client: &mut Client) -> Places {
    let response: DescribeLogDirsResponse = client.call(&DescribeLogDirsRequest { topics: None }, 4).unwrap();
    let (mut here, mut future) = (BTreeMap::new(), BTreeMap::new());
    for dir in response.results {
        for topic in dir.topics.into_iter().filter(|topic| &*topic.name == TOPIC) {
            for partition in topic.partitions {
                let index = partition.partition_index;
                let place = dir.log_dir.to_string();
                let known = if partition.is_future_key {
                    future.insert(index, (place, partition.offset_lag)).is_some()
                } else {
                    here.insert(index, place).is_some()
                };
                assert!(!known, "partition {index} is in one directory");
            }
        }
    }
    here.into_iter()
        .map(|(index, place)| (index, (place, future.remove(&index))))
        .collect()
}

fn move_to(client: &mut Client, partition: i32, dir: &str) -> ErrorCode {
    let request = AlterReplicaLogDirsRequest {
        dirs: vec![AlterReplicaLogDir {
            path: Str::from(dir.to_owned()),
            topics: vec![AlterReplicaLogDirTopic {
                name: Str::from_static(TOPIC),
                partitions: vec![partition],
            }],
        }],
    };
    let response: AlterReplicaLogDirsResponse = client.call(&request, 2).unwrap();
    response.results[0].partitions[0].error_code
}

/// Waits until the partition is in the directory and not on its way any more.
fn wait_until_in(client: &mut Client, partition: i32, dir: &str) {
    let began = Instant::now();
    while places(client).get(&partition) != Some(&(dir.to_owned(), None)) {
        assert!(began.elapsed() < PATIENCE, "{:?}", places(client));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn throttle(client: &mut Client, bytes_per_second: Option<&str>) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 4,
            resource_name: Str::from_static("1"),
            configs: vec![AlterableConfig {
                name: Str::from_static(THROTTLE),
                config_operation: i8::from(bytes_per_second.is_none()),
                value: bytes_per_second.map(|value| Str::from(value.to_owned())),
            }],
        }],
        validate_only: false,
    };
    let response: IncrementalAlterConfigsResponse = client.call(&request, 1).unwrap();
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE, "{response:?}");
}

fn create(client: &mut Client) {
    create_topic_with(client, TOPIC, PARTITIONS, &[("segment.bytes", "1048576")]);
}

/// The directories of the topic's partitions, also those on their way in, by name.
fn on_disk(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with(TOPIC) && !name.ends_with("-delete"))
        .collect();
    names.sort_unstable();
    names
}

struct Bed {
    dir: tempfile::TempDir,
    dirs: [String; 2],
    settings: Vec<String>,
    broker: Option<Broker>,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = vec![
            format!("listeners=PLAINTEXT://127.0.0.1:{}", free_port()),
            "log.dirs=one,two".to_owned(),
            "penstock.shards=2".to_owned(),
        ];
        let mut bed = Self {
            dirs: [String::new(), String::new()],
            dir,
            settings,
            broker: None,
        };
        bed.start();
        let path = |name: &str| bed.dir.path().join(name).canonicalize().unwrap();
        bed.dirs = ["one", "two"].map(|name| path(name).display().to_string());
        bed
    }

    fn start(&mut self) {
        let settings: Vec<&str> = self.settings.iter().map(String::as_str).collect();
        self.broker = Some(Broker::start(self.dir.path(), &settings));
    }

    fn broker(&self) -> &Broker {
        self.broker.as_ref().unwrap()
    }

    fn client(&self) -> Client {
        Client::connect(self.broker().address)
    }

    fn other(&self, dir: &str) -> String {
        let [one, two] = &self.dirs;
        if dir == one { two.clone() } else { one.clone() }
    }

    fn end(&mut self, signal: Signal) {
        let broker = self.broker.take().unwrap();
        broker.signal(signal);
        broker.end();
    }

    fn clients(&self) -> Clients {
        Clients {
            address: self.broker().address,
            is_over: Arc::default(),
            written: Arc::default(),
        }
    }
}

/// Waits until the producers have written so many more.
fn wait_for_writes(clients: &Clients, more: u64) {
    let began = Instant::now();
    let wanted = clients.written.load(Ordering::Relaxed) + more;
    while clients.written.load(Ordering::Relaxed) < wanted {
        assert!(began.elapsed() < PATIENCE, "producers do not get on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn partitions_move_under_producers_and_consumers_and_over_kill_9_without_a_loss() {
    let mut bed = Bed::new();
    create(&mut bed.client());
    let clients = bed.clients();
    let producers: Vec<_> = (0..PARTITIONS).map(|p| clients.clone().produce(p)).collect();
    let consumers: Vec<_> = (0..PARTITIONS).map(|p| clients.clone().consume(p)).collect();
    wait_for_writes(&clients, 600);
    let mut client = bed.client();
    for round in 0..6 {
        let partition = round % PARTITIONS;
        let to = bed.other(&places(&mut client)[&partition].0);
        assert_eq!(move_to(&mut client, partition, &to), ErrorCode::NONE);
        wait_until_in(&mut client, partition, &to);
        wait_for_writes(&clients, 30);
    }
    let metrics = bed.broker().get("/metrics").1;
    let moved = metrics
        .lines()
        .filter(|line| line.starts_with("penstock_log_moves_total{"));
    let moved: f64 = moved
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!(moved >= 6.0, "{moved}");

    for round in 0..3_u64 {
        let mut wanted = BTreeMap::new();
        for partition in 0..PARTITIONS {
            let to = bed.other(&places(&mut client)[&partition].0);
            assert_eq!(move_to(&mut client, partition, &to), ErrorCode::NONE);
            wanted.insert(partition, to);
        }
        std::thread::sleep(Duration::from_millis(30 + round * 60));
        bed.end(Signal::SIGKILL);
        bed.start();
        client = bed.client();
        // What was not there yet goes on by itself.
        for (partition, to) in wanted {
            wait_until_in(&mut client, partition, &to);
        }
        wait_for_writes(&clients, 30);
    }
    clients.is_over.store(true, Ordering::Relaxed);
    let acknowledged: Vec<Batches> = producers.into_iter().map(|p| p.join().unwrap()).collect();
    let seen: Vec<Batches> = consumers.into_iter().map(|c| c.join().unwrap()).collect();

    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut client = bed.client();
        for partition in 0..PARTITIONS {
            let found = read_all(&mut client, partition);
            let index = usize::try_from(partition).unwrap();
            for (what, batches) in [("acknowledged", &acknowledged[index]), ("read", &seen[index])] {
                let lost = batches.iter().filter(|(base, crc)| found.get(base) != Some(*crc));
                assert_eq!(
                    lost.count(),
                    0,
                    "of {} {what} of partition {partition}",
                    batches.len()
                );
            }
            assert!(!acknowledged[index].is_empty() && !seen[index].is_empty());
        }
        let mut all = on_disk(Path::new(&bed.dirs[0]));
        all.extend(on_disk(Path::new(&bed.dirs[1])));
        all.sort_unstable();
        let expected: Vec<String> = (0..PARTITIONS).map(|p| format!("{TOPIC}-{p}")).collect();
        assert_eq!(all, expected, "each is in one directory, and no copy is left");
        bed.end(signal);
        bed.start();
    }
}

#[test]
fn a_throttled_move_is_shown_called_off_taken_up_after_a_kill_and_ends_with_its_topic() {
    let mut bed = Bed::new();
    let mut client = bed.client();
    create(&mut client);
    for number in 0..300 {
        let request = produce_request(TOPIC, 0, batch(number));
        let response: ProduceResponse = client.call(&request, 7).unwrap();
        assert_eq!(
            response.responses[0].partition_responses[0].error_code,
            ErrorCode::NONE
        );
    }
    let before = read_all(&mut client, 0);
    let home = places(&mut client)[&0].0.clone();
    let other = bed.other(&home);
    throttle(&mut client, Some("4096"));

    // It is on its way, and a second wish for the same changes nothing.
    let begin = |client: &mut Client| {
        for _ in 0..2 {
            assert_eq!(move_to(client, 0, &other), ErrorCode::NONE);
        }
        let shown = places(client)[&0].clone();
        assert_eq!(shown.0, home);
        let (to, lag) = shown.1.expect("it is shown");
        assert_eq!(to, other);
        assert!(lag > 0, "it cannot be there yet");
    };
    begin(&mut client);
    // Sent to where it is, it stays.
    assert_eq!(move_to(&mut client, 0, &home), ErrorCode::NONE);
    wait_until_in(&mut client, 0, &home);
    let began = Instant::now();
    while !on_disk(Path::new(&other))
        .iter()
        .all(|name| !name.ends_with("-future"))
    {
        assert!(began.elapsed() < PATIENCE, "{:?}", on_disk(Path::new(&other)));
        std::thread::sleep(Duration::from_millis(20));
    }

    begin(&mut client);
    bed.end(Signal::SIGKILL);
    bed.start();
    client = bed.client();
    let began = Instant::now();
    while places(&mut client)[&0].1.is_none() {
        assert!(began.elapsed() < PATIENCE, "the move is forgotten");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read_all(&mut client, 0), before);
    throttle(&mut client, None);
    wait_until_in(&mut client, 0, &other);
    assert_eq!(read_all(&mut client, 0), before);

    // A topic goes although a partition of it is on its way.
    throttle(&mut client, Some("4096"));
    assert_eq!(move_to(&mut client, 0, &home), ErrorCode::NONE);
    let request = DeleteTopicsRequest {
        topics: vec![DeleteTopicState {
            name: Some(Str::from_static(TOPIC)),
            ..Default::default()
        }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let response: DeleteTopicsResponse = client.call(&request, 6).unwrap();
    assert_eq!(response.responses[0].error_code, ErrorCode::NONE);
    assert!(places(&mut client).is_empty());
    let began = Instant::now();
    while !(on_disk(Path::new(&home)).is_empty() && on_disk(Path::new(&other)).is_empty()) {
        assert!(began.elapsed() < PATIENCE, "files of the topic stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    throttle(&mut client, None);
    create(&mut client);
    assert_eq!(read_all(&mut client, 0), Batches::new());
}
