//! What others are told while the process starts, stops or loses its storage.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::signal::Signal;
use protocol::ErrorCode;
use protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::messages::produce::{ProduceRequest, ProduceResponse};
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};

use crate::admin::sample;
use crate::bombs::bomb;
use crate::stop::{create_topic, fetch_request, log_end, produce, produce_request};
use crate::support::{Broker, Client, PATIENCE, Starting, free_port, get, now_ms};

/// An uncompressed batch of one record with a value of so many bytes.
pub(crate) fn large(bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions::default());
    let record = NewRecord {
        timestamp: now_ms(),
        key: None,
        value: Some(&vec![7; bytes]),
        headers: &[],
    };
    builder.append(&record).unwrap();
    builder.finish().unwrap().bytes
}

/// Status code and body of `/health/ready`; `None` when nobody answers.
fn ready(admin: SocketAddr) -> Option<(u16, serde_json::Value)> {
    let (status, body) = get(admin, "/health/ready").ok()?;
    let code = status.split(' ').nth(1)?.parse().ok()?;
    Some((code, serde_json::from_str(&body).ok()?))
}

#[test]
fn a_log_in_json_is_one_object_a_line_whatever_clients_send() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--log-format", "json", "--log", "info,broker=debug"];
    let broker = Starting::with_options(dir.path(), &[], &options).ready();
    // Names that would begin a line of their own, or end the object.
    let mut client = Client::connect(broker.address);
    let request = ApiVersionsRequest {
        client_software_name: "a\"b\\c".into(),
        client_software_version: "1\n{\"level\":\"ERROR\"}".into(),
    };
    let _ = client.call::<_, ApiVersionsResponse>(&request, 3);
    let mut garbage = std::net::TcpStream::connect(broker.address).unwrap();
    std::io::Write::write_all(&mut garbage, &[0x7f; 64]).unwrap();
    create_topic(&mut Client::connect(broker.address), "logged", 1);
    std::thread::sleep(Duration::from_millis(100));
    broker.signal(Signal::SIGTERM);
    assert_eq!(broker.end().0.code(), Some(0));

    let text = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    let mut messages = Vec::new();
    for line in text.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
        for key in ["timestamp", "level", "target", "message"] {
            assert!(event[key].is_string(), "no {key}: {line}");
        }
        assert_ne!(event["level"], "ERROR", "{line}");
        messages.push(event["message"].as_str().unwrap().to_owned());
    }
    for part in ["connection ended", "stopping"] {
        assert!(messages.iter().any(|m| m.contains(part)), "{part}: {text}");
    }
}

#[test]
fn ready_says_why_not_while_the_broker_recovers_and_then_that_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let first = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(first.address);
    create_topic(&mut client, "recovered", 1);
    let small = large(4000);
    // Small enough for the journal, which is replayed after a kill.
    for _ in 0..200 {
        for _ in 0..20 {
            client
                .send(&produce_request("recovered", 0, small.clone()), 7)
                .unwrap();
        }
        for _ in 0..20 {
            let response: ProduceResponse = client.receive(7).unwrap();
            assert_eq!(
                response.responses[0].partition_responses[0].error_code,
                ErrorCode::NONE
            );
        }
    }
    first.signal(Signal::SIGKILL);
    first.end();

    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listener = format!("penstock.admin.listener={admin}");
    let starting = Starting::new(dir.path(), &["penstock.shards=1", &listener]);
    let give_up = Instant::now() + PATIENCE;
    let mut refusals = Vec::new();
    let body = loop {
        match ready(admin) {
            Some((200, body)) => break body,
            Some((503, body)) => refusals.push(body),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
        assert!(Instant::now() < give_up, "never ready: {refusals:?}");
    };
    assert!(!refusals.is_empty(), "the start was over before it was asked");
    for refusal in &refusals {
        assert_eq!(refusal["status"], "starting", "{refusal}");
        assert!(refusal["reason"].is_string(), "{refusal}");
    }
    let replaying = refusals.iter().find(|r| {
        let reason = r["reason"].as_str().unwrap_or_default();
        reason.contains("journals") && reason.contains(" of ")
    });
    assert!(replaying.is_some(), "the replay was never told of: {refusals:?}");
    assert!(
        body["status"] == "ready" || body["status"] == "degraded",
        "{body}"
    );
    assert!(body["reason"].is_null(), "{body}");
    // How much is left to replay is a matter of how far writing behind had come.
    let replayed = &body["recovery"]["journal_bytes"];
    assert!(replayed.as_u64().is_some_and(|bytes| bytes > 0), "{body}");
    assert_eq!(body["recovery"]["journal_bytes_done"], *replayed, "{body}");
    let broker = starting.ready();
    assert_eq!(log_end(&mut Client::connect(broker.address), "recovered"), 4000);
}

#[test]
fn metrics_tell_while_the_broker_starts_how_many_logs_are_left_to_open() {
    let dir = tempfile::tempdir().unwrap();
    let first = Broker::start(dir.path(), &["penstock.shards=2"]);
    create_topic(&mut Client::connect(first.address), "many", 400);
    first.signal(Signal::SIGKILL);
    first.end();

    let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let listener = format!("penstock.admin.listener={admin}");
    let starting = Starting::new(dir.path(), &["penstock.shards=2", &listener]);
    // All, done, and Kafka's gauge of what is left (KIP-831).
    let read = |text: &str| {
        [
            "penstock_recovery_logs",
            "penstock_recovery_logs_done",
            "kafka_log_logmanager_remaininglogstorecover",
        ]
        .map(|name| sample(text, name).unwrap_or_else(|| panic!("no {name}: {text}")))
    };
    let give_up = Instant::now() + PATIENCE;
    let mut asked = 0;
    loop {
        if let Ok((_, text)) = get(admin, "/metrics") {
            let [all, done, left] = read(&text);
            assert!(done <= all && left == all - done, "{done} of {all}, {left} left");
            if sample(&text, "kafka_server_kafkaserver_brokerstate") == Some(3.0) {
                break;
            }
            asked += 1;
        }
        assert!(Instant::now() < give_up, "never ready");
    }
    assert!(asked > 0, "the start was over before it was asked");
    let broker = starting.ready();
    let client = &mut Client::connect(broker.address);
    assert_eq!(read(&broker.get("/metrics").1), [400.0, 400.0, 0.0]);
    create_topic(client, "later", 1);
    assert_eq!(
        read(&broker.get("/metrics").1),
        [400.0, 400.0, 0.0],
        "not of the start"
    );
}

#[test]
fn a_stop_during_the_start_ends_it_without_a_ready_line() {
    let dir = tempfile::tempdir().unwrap();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // The admin address answers before the shards are up, and so many take a while.
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listener = format!("penstock.admin.listener={admin}");
        let more = [
            "penstock.shards=32",
            "socket.request.max.bytes=1048576",
            &listener,
        ];
        let starting = Starting::new(dir.path(), &more);
        let give_up = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(admin).is_err() {
            assert!(Instant::now() < give_up, "not even the admin address is open");
            std::thread::sleep(Duration::from_millis(1));
        }
        starting.signal(signal);
        let (status, said, took) = starting.end();
        let stderr = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
        assert!(said.is_empty(), "{said:?}");
        assert_eq!(status.code(), Some(0), "{stderr}");
        assert!(
            stderr.contains(&format!("{signal}: the start is given up")),
            "{stderr}"
        );
        assert!(took < Duration::from_secs(10), "{took:?}: {stderr}");
    }
    // And nothing is in the way of the next.
    Broker::start(dir.path(), &["penstock.shards=1"]);
}

/// Bombs for so many partitions: the walk takes some 50 ms for each.
fn bombs(topic: &str, partitions: i32) -> ProduceRequest {
    let bomb = bomb();
    let mut requests = (0..partitions).map(|p| produce_request(topic, p, bomb.clone()));
    let mut whole = requests.next().unwrap();
    for request in requests {
        whole.topic_data[0]
            .partition_data
            .extend(request.topic_data.into_iter().flat_map(|t| t.partition_data));
    }
    whole
}

#[test]
fn a_stopping_broker_refuses_what_would_hold_it_up_and_does_not_wait_for_who_does_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "walked", 64);
    create_topic(&mut client, "unread", 1);
    for _ in 0..40 {
        client
            .send(&produce_request("unread", 0, large(500_000)), 7)
            .unwrap();
        let _: ProduceResponse = client.receive(7).unwrap();
    }
    // Answers that fill the socket's buffers: nobody reads them.
    let mut unread = Client::connect(broker.address);
    for _ in 0..8 {
        let mut request = fetch_request("unread", 1, 0);
        request.topics[0].partitions[0].partition_max_bytes = 30 << 20;
        unread.send(&request, 11).unwrap();
    }
    client.send(&bombs("walked", 64), 7).unwrap();
    std::thread::sleep(Duration::from_millis(400));

    let asked = Instant::now();
    broker.signal(Signal::SIGTERM);
    let response: ProduceResponse = client.receive(7).expect("the produce is answered");
    let answered = asked.elapsed();
    let codes: Vec<_> = response.responses[0]
        .partition_responses
        .iter()
        .map(|p| p.error_code)
        .collect();
    let stored = codes.iter().take_while(|code| **code == ErrorCode::NONE).count();
    assert!(stored > 0, "{codes:?}");
    assert!(stored < 64, "the walk was over before the stop began");
    assert!(
        codes[stored..]
            .iter()
            .all(|code| *code == ErrorCode::NOT_LEADER_OR_FOLLOWER),
        "{codes:?}"
    );
    assert!(answered < Duration::from_secs(2), "{answered:?}");
    // The stop goes on for as long as the answers that nobody reads get.
    let (code, body) = ready(broker.admin).expect("health is told until the end");
    assert_eq!((code, &body["status"]), (503, &"stopping".into()), "{body}");
    assert!(
        body["reason"].as_str().unwrap_or_default().contains("stop"),
        "{body}"
    );
    assert!(broker.get("/health/live").0.contains("200"));
    let (status, _) = broker.end();
    assert_eq!(status.code(), Some(0));
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");

    let again = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(again.address);
    assert_eq!(log_end(&mut client, "walked"), 1);
    produce(&mut client, "walked", 63, 1).unwrap();
}

#[test]
fn when_storage_fails_producers_are_told_and_what_was_acknowledged_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Starting::with_small_files(dir.path(), &["penstock.shards=1"], 96).ready();
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "filled", 1);
    let batch = large(1_000_000);
    let mut acknowledged = 0;
    let refused = loop {
        let sent = client.send(&produce_request("filled", 0, batch.clone()), 7);
        if sent.is_err() {
            break None;
        }
        match client.receive::<ProduceResponse>(7) {
            Err(_) => break None,
            Ok(response) => match response.responses[0].partition_responses[0].error_code {
                ErrorCode::NONE => acknowledged += 1,
                code => break Some(code),
            },
        }
        assert!(acknowledged < 200, "nothing failed");
    };
    assert!(acknowledged > 10, "{acknowledged}");
    assert_eq!(refused, Some(ErrorCode::KAFKA_STORAGE_ERROR));
    let (status, _) = broker.end();
    let stderr = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    assert_eq!(status.code(), Some(74), "{stderr}");
    assert!(
        stderr.lines().last().unwrap_or_default().contains("storage"),
        "{stderr}"
    );

    let again = Broker::start(dir.path(), &["penstock.shards=1"]);
    let end = log_end(&mut Client::connect(again.address), "filled");
    assert!(end >= acknowledged, "{acknowledged} acknowledged, log end {end}");
}
