//! The admin address of a running broker: health, metrics, and that they tell the truth about what clients did.

use protocol::messages::fetch::{FetchRequest, FetchResponse};
use protocol::messages::metadata::{MetadataRequest, MetadataResponse};

use crate::stop::{create_topic, fetch_request, produce};
use crate::support::{Broker, Client};

/// The value of a sample, by its whole name with labels.
pub(crate) fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find(|l| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn the_ready_line_names_what_clients_and_operators_need() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let data = dir.path().join("data").canonicalize().unwrap();
    let expected = format!(
        "penstock ready: listeners PLAINTEXT://{} admin {} data {} shards 2 (",
        broker.address,
        broker.admin,
        data.display()
    );
    assert!(broker.ready_line.starts_with(&expected), "{}", broker.ready_line);
    assert_ne!((broker.address.port(), broker.admin.port()), (0, 0));

    let (status, body) = broker.get("/health/ready");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(status.contains("200"), "{status}");
    assert!(
        body["status"] == "ready" || body["status"] == "degraded",
        "{body}"
    );
    assert_eq!(
        (&body["offline_partitions"], &body["storage_offline"]),
        (&0.into(), &false.into())
    );
    assert!(broker.get("/health/live").0.contains("200"));
    assert!(broker.get("/").1.contains("/metrics"));
    assert!(broker.get("/nowhere").0.contains("404"));
}

#[test]
fn a_listener_without_a_host_is_open_to_both_families_and_tells_the_hosts_name() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["listeners=PLAINTEXT://:0"]);
    assert!(broker.address.ip().is_unspecified(), "{}", broker.ready_line);
    let port = broker.address.port();
    let mut addresses = vec![format!("127.0.0.1:{port}")];
    if broker.address.is_ipv6() {
        addresses.push(format!("[::1]:{port}"));
    }
    for address in addresses {
        let mut client = Client::connect(address.parse().unwrap());
        let metadata: MetadataResponse = client.call(&MetadataRequest::default(), 4).unwrap();
        assert_eq!(metadata.brokers[0].port, i32::from(port));
        assert!(!metadata.brokers[0].host.as_str().is_empty(), "{address}");
    }
}

#[test]
fn metrics_count_what_clients_did_and_are_well_formed() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "counted", 2);
    let sent: u64 = (0..5)
        .map(|n| produce(&mut client, "counted", n % 2, 3).unwrap())
        .sum();
    let answer: FetchResponse = client
        .call::<FetchRequest, _>(&fetch_request("counted", 1, 0), 11)
        .unwrap();
    let read = answer.responses[0].partitions[0]
        .records
        .as_ref()
        .map_or(0, |r| r.len());

    let (status, text) = broker.get("/metrics");
    assert!(status.contains("200"), "{status}");
    for (name, value) in [
        ("kafka_server_brokertopicmetrics_messagesin_total", 15),
        (
            "kafka_server_brokertopicmetrics_messagesin_total{topic=\"counted\"}",
            15,
        ),
        (
            "kafka_server_brokertopicmetrics_bytesin_total{topic=\"counted\"}",
            sent,
        ),
        (
            "kafka_server_brokertopicmetrics_bytesout_total{topic=\"counted\"}",
            read as u64,
        ),
        ("kafka_server_brokertopicmetrics_totalproducerequests_total", 5),
        (
            "kafka_network_requestmetrics_requests_total{request=\"Produce\",version=\"7\"}",
            5,
        ),
        (
            "kafka_network_requestmetrics_requests_total{request=\"FetchConsumer\",version=\"11\"}",
            1,
        ),
        (
            "kafka_network_requestmetrics_totaltimems_count{request=\"Produce\"}",
            5,
        ),
        ("penstock_request_duration_seconds_count{request=\"Produce\"}", 5),
        ("kafka_log_log_logendoffset{topic=\"counted\",partition=\"0\"}", 9),
        ("kafka_log_log_logendoffset{topic=\"counted\",partition=\"1\"}", 6),
        ("kafka_controller_kafkacontroller_activecontrollercount", 1),
        ("kafka_controller_kafkacontroller_offlinepartitionscount", 0),
        ("kafka_server_replicamanager_underreplicatedpartitions", 0),
        ("penstock_batches_appended_total", 5),
        ("penstock_produce_duplicates_total", 0),
        ("penstock_scrape_silent_shards", 0),
    ] {
        assert_eq!(sample(&text, name), Some(value as f64), "{name}");
    }
    for name in [
        "process_resident_memory_bytes",
        "process_open_fds",
        "penstock_shard_busy_seconds_total{shard=\"1\"}",
        "penstock_mailbox_depth{shard=\"1\"}",
        "penstock_commit_duration_seconds_bucket{le=\"+Inf\"}",
        "penstock_memory_max_bytes{shard=\"0\",budget=\"batch_cache\"}",
    ] {
        assert!(sample(&text, name).is_some(), "{name} is missing");
    }
    well_formed(&text);
}

/// Every sample belongs to the family said before it, no family is said twice, no sample comes twice.
pub(crate) fn well_formed(text: &str) {
    let mut families = std::collections::BTreeSet::new();
    let mut samples = std::collections::BTreeSet::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap();
            assert!(families.insert(family), "{family} is said twice");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(samples.insert(name), "{name} comes twice");
            let bare = name.split('{').next().unwrap();
            let suffix = bare.strip_prefix(family);
            assert!(
                matches!(suffix, Some("" | "_sum" | "_count" | "_bucket")),
                "{line} after {family}"
            );
        }
    }
    assert!(families.len() > 60, "{}", families.len());
}

#[test]
fn traced_requests_tell_where_their_time_went() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["penstock.shards=2", "penstock.request.trace.interval=1"];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "traced", 4);
    for partition in 0..4 {
        produce(&mut client, "traced", partition, 1).unwrap();
    }
    // A request has ended when the kernel has its answer: the client may read it a moment before the broker notes that.
    drop(client.call::<_, MetadataResponse>(&MetadataRequest::default(), 4));
    let (status, body) = broker.get("/requests");
    assert!(status.contains("200"), "{status}");
    let lines: Vec<serde_json::Value> = body.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let produces: Vec<_> = lines.iter().filter(|line| line["request"] == "Produce").collect();
    assert_eq!(produces.len(), 4, "{body}");
    for line in produces {
        let stages = line["stages_us"].as_object().unwrap();
        assert_eq!(stages.len(), 9, "{line}");
        let sum: u64 = stages.values().map(|us| us.as_u64().unwrap()).sum();
        let total = line["total_us"].as_u64().unwrap();
        assert!(
            sum <= total && total < sum + 9,
            "the stages are all there is: {line}"
        );
        assert!(
            stages["sync"].as_u64().unwrap() > 0,
            "a produce waits for the disk: {line}"
        );
    }
    let text = broker.get("/metrics").1;
    let count = |stage| {
        let name = format!("penstock_request_stage_seconds_count{{request=\"Produce\",stage=\"{stage}\"}}");
        sample(&text, &name)
    };
    assert_eq!(
        (count("sync"), count("hop"), count("wait")),
        (Some(4.0), Some(4.0), None)
    );
    let local = "kafka_network_requestmetrics_localtimems_count{request=\"Produce\"}";
    assert_eq!(sample(&text, local), Some(4.0));
}

#[test]
fn no_request_is_traced_when_tracing_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.request.trace.interval=0"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "untraced", 1);
    produce(&mut client, "untraced", 0, 1).unwrap();
    assert_eq!(broker.get("/requests").1, "");
    assert!(
        !broker
            .get("/metrics")
            .1
            .contains("penstock_request_stage_seconds_count")
    );
}
