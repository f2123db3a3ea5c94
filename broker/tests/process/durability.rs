//! Durability classes as a client and an operator meet them: they change while records come in, what was acknowledged survives
//! a kill whatever the class, and `/metrics` tells what a power loss would take.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::messages::fetch::{
    FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic, FetchResponse,
};
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource as Resource,
    IncrementalAlterConfigsRequestAlterableConfig as Config, IncrementalAlterConfigsResponse,
};
use protocol::messages::produce::ProduceResponse;
use protocol::record::{BatchBuilder, BatchOptions, Batches, NewRecord, Record};
use protocol::{ErrorCode, Str};

use crate::stop::{create_topic, produce, produce_request};
use crate::support::{Broker, Client, PATIENCE};

const TOPIC: &str = "classes";

/// Sets configs of the topic; an empty value removes one.
fn alter(client: &mut Client, configs: &[(&str, &str)]) {
    let config = |(name, value): &(&str, &str)| Config {
        name: Str::from((*name).to_owned()),
        config_operation: i8::from(value.is_empty()),
        value: Some(Str::from((*value).to_owned())).filter(|_| !value.is_empty()),
    };
    let request = IncrementalAlterConfigsRequest {
        resources: vec![Resource {
            resource_type: 2,
            resource_name: Str::from(TOPIC),
            configs: configs.iter().map(config).collect(),
        }],
        validate_only: false,
    };
    let answer: IncrementalAlterConfigsResponse = client.call(&request, 1).unwrap();
    assert_eq!(answer.responses[0].error_code, ErrorCode::NONE, "{configs:?}");
}

/// The samples of the families about the loss window, by family and class.
fn windows(broker: &Broker) -> BTreeMap<(String, String), f64> {
    let (_, text) = broker.get("/metrics");
    let mut windows = BTreeMap::new();
    for line in text
        .lines()
        .filter(|l| l.starts_with("penstock_unsynced_") || l.starts_with("penstock_sync_"))
    {
        let (name, rest) = line.split_once("{shard=\"0\",durability=\"").unwrap();
        let (class, value) = rest.split_once("\"} ").unwrap();
        windows.insert((name.to_owned(), class.to_owned()), value.parse().unwrap());
    }
    assert_eq!(windows.len(), 8 * 3, "{text}");
    windows
}

/// Waits until the windows are as `is_so` says.
fn windows_become(
    broker: &Broker,
    what: &str,
    is_so: impl Fn(&dyn Fn(&str, &str) -> f64) -> bool,
) -> BTreeMap<(String, String), f64> {
    let began = Instant::now();
    loop {
        let windows = windows(broker);
        let of = |name: &str, class: &str| windows[&(format!("penstock_{name}"), class.to_owned())];
        if is_so(&of) {
            return windows;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {windows:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_loss_window_is_in_the_metrics_with_its_bounds_and_follows_the_class() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["penstock.shards=1", "penstock.durability.interval.ms=600000"];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, TOPIC, 1);
    let is_closed = |of: &dyn Fn(&str, &str) -> f64| {
        let classes = ["fsync", "interval", "written"];
        classes
            .iter()
            .all(|class| of("unsynced_bytes", class) == 0.0 && of("unsynced_records", class) == 0.0)
    };
    for _ in 0..20 {
        produce(&mut client, TOPIC, 0, 1).unwrap();
    }
    windows_become(&broker, "class fsync has none", is_closed);

    // Until the name of the segment's file is durable, batches go by the journal.
    alter(&mut client, &[("penstock.durability", "written")]);
    let began = Instant::now();
    while windows(&broker)[&("penstock_unsynced_records".to_owned(), "written".to_owned())] < 5.0 {
        produce(&mut client, TOPIC, 0, 1).unwrap();
        assert!(began.elapsed() < PATIENCE);
    }
    windows_become(&broker, "class written has no bound", |of| {
        of("unsynced_partitions", "written") == 1.0
            && of("unsynced_bytes", "written") >= 5.0 * 61.0
            && of("unsynced_age_seconds", "written") > 0.0
            && of("unsynced_age_max_seconds", "written") == f64::INFINITY
            && of("unsynced_bytes_max", "written") == f64::INFINITY
            && of("sync_overdue_seconds", "written") == 0.0
    });
    alter(&mut client, &[("penstock.durability", "interval")]);
    windows_become(
        &broker,
        "what is unsynced has the new class and its bounds",
        |of| {
            of("unsynced_records", "written") == 0.0
                && of("unsynced_records", "interval") >= 5.0
                && of("unsynced_age_max_seconds", "interval") == 600.0
                && of("unsynced_bytes_max", "interval") == f64::from(16 << 20)
        },
    );
    alter(&mut client, &[("flush.ms", "50")]);
    windows_become(&broker, "flush.ms closes the window", is_closed);

    alter(
        &mut client,
        &[
            ("flush.ms", ""),
            ("flush.messages", "3"),
            ("penstock.durability", "written"),
        ],
    );
    for _ in 0..50 {
        produce(&mut client, TOPIC, 0, 1).unwrap();
        let records = windows(&broker)[&("penstock_unsynced_records".to_owned(), "written".to_owned())];
        assert!(records < 3.0, "{records}");
    }
    alter(&mut client, &[("flush.messages", "")]);
    for _ in 0..5 {
        produce(&mut client, TOPIC, 0, 1).unwrap();
    }
    alter(&mut client, &[("penstock.durability", "fsync")]);
    windows_become(&broker, "class fsync has none", is_closed);
}

/// What a producer was told: offset and value of each record that was acknowledged.
type Acknowledged = BTreeMap<i64, String>;

/// Produces numbered records to a partition until the broker is gone.
fn producer(address: SocketAddr, partition: i32, next: Arc<AtomicI32>) -> JoinHandle<Acknowledged> {
    std::thread::spawn(move || {
        let mut client = Client::connect(address);
        let mut acknowledged = Acknowledged::new();
        loop {
            let value = format!("{partition}-{}", next.fetch_add(1, Ordering::Relaxed));
            let mut builder = BatchBuilder::plain(BatchOptions::default());
            let record = NewRecord {
                timestamp: 1_700_000_000_000,
                key: None,
                value: Some(value.as_bytes()),
                headers: &[],
            };
            builder.append(&record).unwrap();
            let request = produce_request(TOPIC, partition, builder.finish().unwrap().bytes);
            let Ok(answer) = client.call::<_, ProduceResponse>(&request, 7) else {
                return acknowledged;
            };
            let answer = &answer.responses[0].partition_responses[0];
            assert_eq!(answer.error_code, ErrorCode::NONE);
            acknowledged.insert(answer.base_offset, value);
        }
    })
}

/// The values of a partition by offset.
fn values(client: &mut Client, partition: i32) -> BTreeMap<i64, String> {
    let mut values = BTreeMap::new();
    loop {
        let from = values.last_key_value().map_or(0, |(offset, _)| offset + 1);
        let request = FetchRequest {
            max_bytes: 1 << 30,
            topics: vec![FetchRequestFetchTopic {
                topic: Str::from(TOPIC),
                partitions: vec![FetchRequestFetchPartition {
                    partition,
                    fetch_offset: from,
                    partition_max_bytes: 1 << 20,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let answer: FetchResponse = client.call(&request, 11).unwrap();
        let found = &answer.responses[0].partitions[0];
        assert_eq!(found.error_code, ErrorCode::NONE);
        let pieces = found.records.iter().flat_map(|records| records.pieces());
        let bytes: Vec<u8> = pieces.flatten().copied().collect();
        if bytes.is_empty() {
            return values;
        }
        for batch in Batches::new(&bytes, 0).checked() {
            let (_, batch) = batch.unwrap();
            let (record, _) = Record::parse(batch.records_bytes()).unwrap();
            let value = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            values.insert(batch.header().base_offset, value);
        }
    }
}

/// Runs a broker whose topic changes its class every few milliseconds while two producers write, and kills it.
fn life(dir: &Path, next: &Arc<AtomicI32>, round: u64) -> [Acknowledged; 2] {
    let broker = Broker::start(dir, &["penstock.shards=2", "penstock.durability.interval.ms=20"]);
    let mut client = Client::connect(broker.address);
    if round == 0 {
        create_topic(&mut client, TOPIC, 2);
        alter(&mut client, &[("segment.bytes", "1048576")]);
    }
    let producers = [0, 1].map(|partition| producer(broker.address, partition, Arc::clone(next)));
    let began = Instant::now();
    let steps: [&[(&str, &str)]; 6] = [
        &[("penstock.durability", "written")],
        &[("penstock.durability", "interval")],
        &[("flush.messages", "4"), ("flush.ms", "10")],
        &[("penstock.durability", "fsync")],
        &[("penstock.durability", "written")],
        &[("flush.messages", ""), ("flush.ms", "")],
    ];
    // Each round is killed in the middle of another step.
    for step in steps.iter().cycle().skip(round as usize) {
        alter(&mut client, step);
        std::thread::sleep(Duration::from_millis(13));
        if began.elapsed() > Duration::from_millis(500 + 41 * round) {
            break;
        }
    }
    broker.signal(Signal::SIGKILL);
    broker.end();
    producers.map(|producer| producer.join().unwrap())
}

#[test]
fn a_kill_loses_nothing_while_the_class_changes_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let next = Arc::new(AtomicI32::new(0));
    let mut told = [Acknowledged::new(), Acknowledged::new()];
    for round in 0..6 {
        for (told, more) in told.iter_mut().zip(life(dir.path(), &next, round)) {
            assert!(more.len() > 10, "round {round}: {} records", more.len());
            told.extend(more);
        }
        let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
        let mut client = Client::connect(broker.address);
        for (partition, told) in (0..).zip(&told) {
            let found = values(&mut client, partition);
            for (offset, value) in told {
                assert_eq!(
                    found.get(offset),
                    Some(value),
                    "round {round}, partition {partition}"
                );
            }
            // Not acknowledged were at most those that were under way when the broker was killed.
            assert!(found.len() - told.len() <= round as usize + 1, "round {round}");
            assert!(found.keys().copied().eq(0..found.len() as i64), "no gaps");
        }
    }
}
