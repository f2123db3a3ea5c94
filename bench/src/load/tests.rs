//! Whole runs against a planted broker, which answers, stands still, refuses or goes away as a test wants it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use broker::client::Address;
use broker::exit::{Failure, Status};
use bytes::Bytes;
use protocol::compression::Codec;
use protocol::header::RequestHeader;
use protocol::message::Message;
use protocol::messages::produce::{
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use protocol::record::BatchView;
use protocol::{ErrorCode, Reader, Str, Writer};

use super::cluster::Cluster;
use super::keys::Keys;
use super::outcome::Outcome;
use super::payload::Payload;
use super::plan::{ConsumerPlan, Load, Plan, ProducerPlan, TopicPlan};
use super::run::{MEASURED, on_cluster};

/// What the planted broker does besides answering.
#[derive(Clone, Copy, Debug)]
enum Plant {
    Nothing,
    /// It stands still for so long before the answer that reaches this number of messages.
    Stall(u64, Duration),
    /// It refuses this partition.
    Refuse(i32),
    /// It closes the connection after so many messages.
    Close(u64),
}

/// Listens on a port of its own; threads end with their connections.
fn planted(plant: Plant) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream, plant));
        }
    });
    address
}

fn serve(mut stream: TcpStream, plant: Plant) -> Option<()> {
    let mut messages = 0;
    let mut has_stalled = false;
    loop {
        let mut head = [0; 4];
        stream.read_exact(&mut head).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(head) as usize];
        stream.read_exact(&mut frame).ok()?;
        let mut reader = Reader::new(Bytes::from(frame));
        let header = RequestHeader::decode(&mut reader).expect("a header");
        let request = ProduceRequest::decode(&mut reader, header.api_version).expect("a produce");
        let mut responses = Vec::new();
        for topic in request.topic_data {
            let mut partition_responses = Vec::new();
            for partition in topic.partition_data {
                let records = partition.records.expect("it has a batch").into_bytes();
                let batch = BatchView::parse(&records, 0).expect("a whole batch");
                batch.check_crc(0).expect("its checksum is right");
                messages += u64::from(batch.header().record_count.unsigned_abs());
                let is_refused = matches!(plant, Plant::Refuse(number) if number == partition.index);
                let error_code = if is_refused {
                    ErrorCode::NOT_ENOUGH_REPLICAS
                } else {
                    ErrorCode::NONE
                };
                partition_responses.push(PartitionProduceResponse {
                    index: partition.index,
                    error_code,
                    ..Default::default()
                });
            }
            responses.push(TopicProduceResponse {
                name: topic.name,
                partition_responses,
                ..Default::default()
            });
        }
        match plant {
            Plant::Stall(at, time) if messages >= at && !has_stalled => {
                has_stalled = true;
                std::thread::sleep(time);
            }
            Plant::Close(at) if messages >= at => return None,
            _ => {}
        }
        if request.acks != 0 {
            let mut writer = Writer::framed(64);
            writer.i32(header.correlation_id);
            let response = ProduceResponse {
                responses,
                ..Default::default()
            };
            response.encode(&mut writer, header.api_version).expect("encoded");
            stream
                .write_all(&writer.finish().expect("finished").concat())
                .ok()?;
        }
    }
}

/// One producer of 1,000 messages a second for two seconds, each sent at once.
fn plan() -> Plan {
    Plan {
        name: "planted".into(),
        bootstrap: vec![Address {
            host: "127.0.0.1".into(),
            port: 1,
        }],
        topics: TopicPlan {
            names: vec!["t".into()],
            exist: true,
            partitions: 4,
            replication_factor: 1,
            configs: Vec::new(),
            keep: true,
        },
        producers: ProducerPlan {
            count: 1,
            load: Load::Rate(1000.0),
            message_bytes: 100,
            payload: Payload::Random {
                random_share: 1.0,
                pool: 3,
            },
            keys: Keys::NoneRoundRobin,
            key_count: 0,
            batch_bytes: 16_384,
            linger: Duration::ZERO,
            codec: Codec::None,
            level: 0,
            acks: -1,
            idempotent: false,
            in_flight_max: 5,
            request_bytes_max: 1 << 20,
            buffer_bytes: 32 << 20,
            pre_encoded: false,
        },
        consumers: ConsumerPlan {
            count: 0,
            subscriptions: 0,
            fetch_bytes_max: 1 << 20,
            partition_bytes_max: 1 << 20,
            fetch_bytes_min: 1,
            wait_ms: 500,
            isolation: 0,
            check_crcs: true,
            from_earliest: true,
        },
        warmup: Duration::from_millis(200),
        time: Duration::from_secs(2),
        bytes_max: None,
        interval: Duration::from_millis(200),
        backlog: None,
        threads: 1,
        pid: None,
        patience: Duration::from_secs(60),
    }
}

fn run(plan: Plan, plant: Plant) -> Result<Outcome, Failure> {
    let cluster = Cluster {
        brokers: vec![(planted(plant), "planted:1".into())],
        names: vec![Str::from("t")],
        topics: BTreeMap::from([(b"t".to_vec(), 0)]),
        leaders: vec![vec![0; 4]],
        offsets: vec![vec![0; 4]],
        partitions: 4,
    };
    on_cluster(plan, cluster, "a test".into(), &mut |_| {})
}

#[test]
fn a_broker_that_stands_still_for_half_a_second_shows_in_the_percentiles() {
    // 500 of 2,000 messages are due meanwhile. Only five of them are in requests: were the others left out, p99 would be small.
    let outcome = run(plan(), Plant::Stall(800, Duration::from_millis(500))).expect("it runs");
    let phase = outcome
        .phases
        .iter()
        .find(|phase| phase.name == MEASURED)
        .expect("it was measured");
    let latency = &phase.produce_latency;
    assert!(
        latency.p90_ms > 250.0 && latency.p99_ms > 400.0 && latency.max_ms > 450.0,
        "{latency:?}"
    );
    assert!(latency.count >= 1990, "all that was due counts: {latency:?}");
    assert_eq!(outcome.totals.sent, outcome.totals.acknowledged);
    assert_eq!(outcome.totals.refused, 0);
}

#[test]
fn a_broker_that_stands_still_until_the_end_of_the_run_shows_too() {
    // It begins to be still 300 messages before the end and goes on behind it: what is in no request by then counts as well.
    let mut plan = plan();
    plan.patience = Duration::from_secs(30);
    let outcome = run(plan, Plant::Stall(1900, Duration::from_secs(2))).expect("it runs");
    let phase = outcome
        .phases
        .iter()
        .find(|phase| phase.name == MEASURED)
        .expect("it was measured");
    let latency = &phase.produce_latency;
    assert!(latency.p95_ms > 150.0 && latency.max_ms > 1500.0, "{latency:?}");
    assert!(latency.count >= 1990, "{latency:?}");
}

#[test]
fn a_closed_loop_sends_as_fast_as_it_is_answered_and_all_is_answered() {
    for (acks, codec, pre_encoded) in [
        (-1, Codec::Lz4, false),
        (0, Codec::None, false),
        (1, Codec::None, true),
    ] {
        let mut plan = plan();
        plan.time = Duration::from_millis(400);
        plan.threads = 2;
        plan.producers = ProducerPlan {
            count: 3,
            load: Load::Maximum,
            linger: Duration::from_millis(1),
            acks,
            codec,
            pre_encoded,
            ..plan.producers
        };
        let outcome = run(plan, Plant::Nothing).expect("it runs");
        let totals = &outcome.totals;
        assert!(
            totals.sent > 1000 && totals.sent == totals.acknowledged,
            "{acks} {totals:?}"
        );
    }
}

#[test]
fn refused_messages_are_counted_by_error() {
    let outcome = run(plan(), Plant::Refuse(2)).expect("it runs");
    let totals = &outcome.totals;
    assert_eq!(totals.sent, totals.acknowledged + totals.refused);
    // Each message goes to the next of four partitions.
    let quarter = totals.sent / 4;
    assert!(totals.refused.abs_diff(quarter) <= 1, "{totals:?}");
    assert_eq!(
        totals.errors,
        BTreeMap::from([("NOT_ENOUGH_REPLICAS".to_owned(), totals.refused)])
    );
}

#[test]
fn a_connection_that_is_closed_ends_the_run_with_the_address() {
    let failure = run(plan(), Plant::Close(100)).expect_err("it is closed");
    assert_eq!(failure.status, Status::Unavailable);
    assert!(
        failure.sentence.starts_with("producing to 127.0.0.1:"),
        "{failure}"
    );
    assert!(
        failure.sentence.ends_with("the broker closed the connection"),
        "{failure}"
    );
}

#[test]
fn reports_are_whole() {
    let mut plan = plan();
    plan.name = "a <name> & more".into();
    plan.pid = Some(std::process::id());
    let outcome = run(plan, Plant::Nothing).expect("it runs");
    let json: serde_json::Value = serde_json::from_str(&super::report::json(&outcome)).expect("JSON");
    assert_eq!(json["totals"]["sent"].as_u64(), Some(outcome.totals.sent));
    assert!(json["phases"][1]["broker"]["cores"].is_number(), "{json}");
    let page = super::report::html(&outcome);
    assert!(
        page.contains("a &lt;name&gt; &amp; more") && page.matches("<svg").count() == 5,
        "{page}"
    );
    super::report::check_well_formed(&page).expect("well-formed");
    for outside in ["http-equiv", "<script", "src=", "@import", "href="] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(super::report::markdown(&outcome).contains("| measured | acknowledged |"));
}
