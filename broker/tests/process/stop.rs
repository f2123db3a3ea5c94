//! A stop in order: what has begun is answered, the process ends in time with status 0, and what was acknowledged is there
//! after the next start.

use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::signal::Signal;
use protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use protocol::messages::fetch::{
    FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic, FetchResponse,
};
use protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData};
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};
use protocol::{ErrorCode, RecordBytes, Str};

use crate::support::{Broker, Client, now_ms};

/// A stop has to be over within this time.
const STOP_MAX: Duration = Duration::from_secs(10);

pub(crate) fn create_topic(client: &mut Client, name: &str, partitions: i32) {
    create_topic_with(client, name, partitions, &[]);
}

pub(crate) fn create_topic_with(client: &mut Client, name: &str, partitions: i32, configs: &[(&str, &str)]) {
    let text = |text: &str| Str::from(text.to_owned());
    let configs = configs.iter().map(|(key, value)| CreatableTopicConfig {
        name: text(key),
        value: Some(text(value)),
    });
    let topic = CreatableTopic {
        name: text(name),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest {
        topics: vec![topic],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let response: CreateTopicsResponse = client.call(&request, 5).unwrap();
    assert_eq!(response.topics[0].error_code, ErrorCode::NONE, "{response:?}");
}

pub(crate) fn batch(records: usize) -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions::default());
    let timestamp = now_ms();
    for _ in 0..records {
        let record = NewRecord {
            timestamp,
            key: None,
            value: Some(b"a value of some length"),
            headers: &[],
        };
        builder.append(&record).unwrap();
    }
    builder.finish().unwrap().bytes
}

pub(crate) fn produce_request(topic: &str, partition: i32, records: Bytes) -> ProduceRequest {
    ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: Str::from(topic.to_owned()),
            partition_data: vec![PartitionProduceData {
                index: partition,
                records: Some(RecordBytes::from(records)),
            }],
            ..Default::default()
        }],
    }
}

/// Produces one batch and waits for its acknowledgement; the batch's bytes.
pub(crate) fn produce(
    client: &mut Client,
    topic: &str,
    partition: i32,
    records: usize,
) -> std::io::Result<u64> {
    let batch = batch(records);
    let bytes = batch.len() as u64;
    let response: ProduceResponse = client.call(&produce_request(topic, partition, batch), 7)?;
    let code = response.responses[0].partition_responses[0].error_code;
    assert_eq!(code, ErrorCode::NONE);
    Ok(bytes)
}

/// A fetch of one partition from `offset` that waits 30 s for a gigabyte when it asks beyond what there is.
pub(crate) fn fetch_request(topic: &str, min_bytes: i32, offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 30_000,
        min_bytes,
        max_bytes: 1 << 30,
        topics: vec![FetchRequestFetchTopic {
            topic: Str::from(topic.to_owned()),
            partitions: vec![FetchRequestFetchPartition {
                partition: 0,
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(crate) fn log_end(client: &mut Client, topic: &str) -> i64 {
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(topic.to_owned()),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                timestamp: -1,
                ..Default::default()
            }],
        }],
        ..Default::default()
    };
    let response: ListOffsetsResponse = client.call(&request, 2).unwrap();
    response.topics[0].partitions[0].offset
}

#[test]
fn what_is_in_flight_at_sigterm_is_answered_and_acknowledged_records_survive() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "kept", 1);

    let mut waiting = Client::connect(broker.address);
    waiting.send(&fetch_request("kept", 1 << 30, 0), 11).unwrap();
    let address = broker.address;
    let producer = std::thread::spawn(move || {
        let mut client = Client::connect(address);
        let mut acknowledged = 0;
        while produce(&mut client, "kept", 0, 1).is_ok() {
            acknowledged += 1;
        }
        acknowledged
    });
    std::thread::sleep(Duration::from_millis(300));

    let asked = Instant::now();
    broker.signal(Signal::SIGTERM);
    let answer: FetchResponse = waiting.receive(11).expect("a waiting fetch is answered");
    assert!(asked.elapsed() < STOP_MAX, "{:?}", asked.elapsed());
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::NONE);
    let (status, took) = broker.end();
    assert_eq!(
        status.code(),
        Some(0),
        "{}",
        std::fs::read_to_string(dir.path().join("stderr")).unwrap()
    );
    assert!(took < STOP_MAX, "{took:?}");
    let acknowledged: i64 = producer.join().unwrap();
    assert!(acknowledged > 0);

    let again = Broker::start(dir.path(), &["penstock.shards=1"]);
    let end = log_end(&mut Client::connect(again.address), "kept");
    // The last produce may have been stored while its answer found the connection closed.
    assert!(
        end == acknowledged || end == acknowledged + 1,
        "{acknowledged} acknowledged, log end {end}"
    );
}

#[test]
fn sigint_ends_a_broker_with_idle_and_half_sent_connections() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &[]);
    let _idle = Client::connect(broker.address);
    let mut half = std::net::TcpStream::connect(broker.address).unwrap();
    std::io::Write::write_all(&mut half, &[0, 0, 1]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    broker.signal(Signal::SIGINT);
    let (status, took) = broker.end();
    assert_eq!(status.code(), Some(0));
    assert!(took < STOP_MAX, "{took:?}");
}

fn leader_epoch(broker: &Broker, topic: &str) -> i32 {
    let request = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(Str::from(topic.to_owned())),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let response: MetadataResponse = Client::connect(broker.address).call(&request, 12).unwrap();
    let partition = &response.topics[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::NONE);
    partition.leader_epoch
}

/// The next start knows how this one ended: after a stop in order a leader goes on in its epoch (no metadata record for each
/// partition), after any other end it begins a new one.
#[test]
fn a_new_leader_epoch_begins_only_after_an_unclean_end() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("data/.kafka_cleanshutdown");
    let mut broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    create_topic(&mut Client::connect(broker.address), "led", 1);
    let first = leader_epoch(&broker, "led");
    for (signal, epoch) in [
        (Signal::SIGTERM, first),
        (Signal::SIGKILL, first + 1),
        (Signal::SIGINT, first + 1),
    ] {
        assert!(!mark.exists(), "a running broker has no mark");
        broker.signal(signal);
        broker.end();
        assert_eq!(mark.exists(), signal != Signal::SIGKILL, "{signal}");
        broker = Broker::start(dir.path(), &["penstock.shards=2"]);
        assert_eq!(leader_epoch(&broker, "led"), epoch, "after {signal}");
    }
}
