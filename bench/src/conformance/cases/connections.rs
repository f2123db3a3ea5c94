//! Frames, pipelining, versions, ApiVersions and addresses: CN numbers of the surface map and the bug reports about connections.

use std::time::{Duration, Instant};

use protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::describe_cluster::DescribeClusterRequest;
use protocol::messages::fetch::FetchRequest;
use protocol::messages::init_producer_id::InitProducerIdRequest;
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use protocol::messages::produce::ProduceRequest;
use protocol::{ApiKey, Str, Writer};

use super::super::Case;
use super::super::dialogue::{Dialogue, fetch_of, produce_of};
use super::super::target::Setup;
use super::super::wire::{Received, encode, framed};
use crate::error::Result;

/// Connections that say nothing are closed soon.
static IDLE: Setup = Setup {
    name: "idle",
    overrides: &["connections.max.idle.ms=2000"],
    restarts: false,
};

/// The APIs of the broker listener that this suite asks.
pub(super) const KEYS: [ApiKey; 19] = [
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::ListOffsets,
    ApiKey::Metadata,
    ApiKey::FindCoordinator,
    ApiKey::ApiVersions,
    ApiKey::CreateTopics,
    ApiKey::DeleteTopics,
    ApiKey::DeleteRecords,
    ApiKey::InitProducerId,
    ApiKey::OffsetForLeaderEpoch,
    ApiKey::DescribeConfigs,
    ApiKey::AlterConfigs,
    ApiKey::DescribeLogDirs,
    ApiKey::CreatePartitions,
    ApiKey::IncrementalAlterConfigs,
    ApiKey::DescribeCluster,
    ApiKey::ListConfigResources,
    ApiKey::DescribeTopicPartitions,
];

pub(super) const CASES: &[Case] = &[
    Case::new("CN-1 frames that are too long, negative or too short", sizes),
    Case::new("CN-2 one request of a connection at a time", one_at_a_time),
    Case::new("CN-3 pipelined requests are answered in order", pipelined),
    Case::new(
        "CN-4 unknown keys and versions close the connection (BR-069)",
        unknown,
    ),
    Case::new("CN-5 ApiVersions of the future (BR-001)", future_api_versions),
    Case::new("CN-6 names of client software", software_names),
    Case::new("CN-7 versions of the APIs that are served", served_versions),
    Case::new(
        "CN-8 supported features by version of ApiVersions",
        supported_features,
    )
    .differs(
        "only features that this broker really has are listed, and it has no older levels to go back to",
    ),
    Case::new("CN-9 finalized features", finalized_features).differs(
        "only features that this broker really has are finalized: clients act on them (surface map 0.3)",
    ),
    Case::new("CN-10 idle connections (BR-075)", idle).on(&IDLE),
    Case::new("CN-13 every API names the same address (BR-094)", addresses),
    Case::new(
        "BR-004 Produce is advertised from 0 and served from 3",
        produce_versions,
    ),
    Case::new("BR-062 TLS and HTTP on a plaintext port", other_protocols),
    Case::new(
        "BR-093 what an idempotent producer looks for",
        idempotence_visible,
    ),
    Case::new("BR-121 Metadata right after connecting", fresh_connections),
    Case::new("BR-122 variants of the request header", headers),
];

fn api_versions() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: Str::from("conformance"),
        client_software_version: Str::from("1.0"),
    }
}

fn lives(d: &mut Dialogue<'_>) -> Result<()> {
    let answer = d.quiet(3, &api_versions())?;
    d.note(&format!(
        "  ApiVersions v3 on the same connection: {}",
        answer.error_code
    ));
    Ok(())
}

fn sizes(d: &mut Dialogue<'_>) -> Result<()> {
    for (label, length) in [
        ("one more than socket.request.max.bytes", (100 << 20) + 1),
        ("the largest number", i32::MAX),
        ("-1", -1),
        ("the lowest number", i32::MIN),
    ] {
        d.note(&format!("> a frame whose length is {label}"));
        d.wire()?.send_bytes(&i32::to_be_bytes(length))?;
        d.expect_closed()?;
    }
    for size in [0usize, 1, 3, 7] {
        d.note(&format!("> a frame of {size} zero bytes"));
        d.wire()?.send_bytes(&framed(&vec![0; size]))?;
        d.expect_closed()?;
    }
    d.note("> half a frame, then the rest");
    let frame = encode(3, 5, &api_versions())?;
    let (first, rest) = frame.split_at(9);
    d.wire()?.send_bytes(first)?;
    std::thread::sleep(Duration::from_millis(100));
    d.wire()?.send_bytes(rest)?;
    let answer = d.wire()?.receive::<ApiVersionsRequest>(3, 5)?;
    d.note(&format!("< {}", answer.error_code));
    Ok(())
}

fn one_at_a_time(d: &mut Dialogue<'_>) -> Result<()> {
    // Long beside the look in between, which comes late on a busy host.
    const WAIT_MS: i32 = 5000;
    let empty = d.topic("a", 1, &[])?;
    let name = d.name("b");
    let create = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: name.clone(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }],
        timeout_ms: 10_000,
        validate_only: false,
    };
    let look = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(name),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let mut other = d.connect()?;
    let began = Instant::now();
    let fetch_id = d.wire()?.send(12, &fetch_of([(&empty, 0, 0)], WAIT_MS))?;
    let create_id = d.wire()?.send(7, &create)?;
    d.note("> a fetch that waits, then CreateTopics behind it");
    std::thread::sleep(Duration::from_millis(300));
    let id = other.send(9, &look)?;
    let seen = other.receive::<MetadataRequest>(9, id)?;
    let error = seen.topics.first().map(|topic| topic.error_code);
    d.note(&format!("another connection meanwhile: {error:?}"));
    let fetched = d.wire()?.receive::<FetchRequest>(12, fetch_id)?;
    d.answered(&fetched);
    d.took(began, WAIT_MS as u64);
    let created = d.wire()?.receive::<CreateTopicsRequest>(7, create_id)?;
    d.answered(&created);
    Ok(())
}

fn pipelined(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let empty = d.topic("b", 1, &[])?;
    let produce = produce_of(&topic, 0, Some(d.batch(&["one"])), -1);
    let metadata = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let fetch_waits = fetch_of([(&empty, 0, 0)], 300);
    let fetch = fetch_of([(&topic, 0, 0)], 0);
    let wire = d.wire()?;
    let sent = [
        wire.send(9, &produce)?,
        wire.send(12, &fetch_waits)?,
        wire.send(3, &api_versions())?,
        wire.send(9, &produce)?,
        wire.send(9, &metadata)?,
        wire.send(9, &produce)?,
        wire.send(12, &fetch)?,
    ];
    d.note("> produce, fetch that waits, api versions, produce, metadata, produce, fetch");
    let one = d.wire()?.receive::<ProduceRequest>(9, sent[0])?;
    d.answered(&one);
    let two = d.wire()?.receive::<FetchRequest>(12, sent[1])?;
    d.answered(&two);
    let three = d.wire()?.receive::<ApiVersionsRequest>(3, sent[2])?;
    d.note(&format!("< {}", three.error_code));
    let four = d.wire()?.receive::<ProduceRequest>(9, sent[3])?;
    d.answered(&four);
    let five = d.wire()?.receive::<MetadataRequest>(9, sent[4])?;
    d.answered(&five);
    let six = d.wire()?.receive::<ProduceRequest>(9, sent[5])?;
    d.answered(&six);
    let seven = d.wire()?.receive::<FetchRequest>(12, sent[6])?;
    d.answered(&seven);
    Ok(())
}

/// A header of version 1, or 2 if flexible, for any key and version.
fn header(key: i16, version: i16, is_flexible: bool) -> Vec<u8> {
    let mut bytes = [key.to_be_bytes(), version.to_be_bytes()].concat();
    bytes.extend(9i32.to_be_bytes());
    bytes.extend((-1i16).to_be_bytes());
    bytes.extend(is_flexible.then_some(0u8));
    bytes
}

fn unknown(d: &mut Dialogue<'_>) -> Result<()> {
    for key in [4, 5, 6, 7, 93, 9999, -1, i16::MAX] {
        d.note(&format!("> key {key} version 0"));
        d.wire()?.send_bytes(&framed(&header(key, 0, false)))?;
        d.expect_closed()?;
    }
    for key in KEYS {
        if key == ApiKey::ApiVersions {
            continue;
        }
        let versions = key.versions();
        for version in [-1, versions.start() - 1, versions.end() + 1, i16::MAX] {
            d.note(&format!("> {key} version {version}"));
            let mut frame = header(key.as_i16(), version, version > 0 && key.is_flexible(version));
            frame.extend([0; 40]);
            // A valid request behind it must not be answered either.
            let behind = encode(3, 10, &api_versions())?;
            d.wire()?.send_bytes(&[framed(&frame), behind].concat())?;
            d.expect_closed()?;
        }
    }
    Ok(())
}

fn future_api_versions(d: &mut Dialogue<'_>) -> Result<()> {
    for version in [5, 99, i16::MAX] {
        let mut frame = header(ApiKey::ApiVersions.as_i16(), version, true);
        frame.extend(b"\xff\xffgarbage\x00\x01\x02");
        // The answer is laid out as version 0 whatever was asked.
        d.raw::<ApiVersionsRequest>(
            &format!("ApiVersions v{version}, garbage as its body"),
            &framed(&frame),
            0,
            9,
        )?;
    }
    for version in 0..=4 {
        let answer = d.quiet(version, &api_versions())?;
        d.note(&format!("  then v{version}: {}", answer.error_code));
    }
    let metadata = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let answer = d.quiet(9, &metadata)?;
    d.note(&format!("  then Metadata: {} broker", answer.brokers.len()));
    Ok(())
}

fn software_names(d: &mut Dialogue<'_>) -> Result<()> {
    let long = "a".repeat(300);
    for (name, version) in [
        ("apache-kafka-java", "4.3.1"),
        ("a", "1"),
        ("a.b-c.d", "1.0-SNAPSHOT"),
        ("", "1.0"),
        ("name", ""),
        ("with space", "1.0"),
        ("name", "1.0 beta"),
        ("-name", "1.0"),
        ("name-", "1.0"),
        (".name", "1.0"),
        ("name", "1.0."),
        ("na_me", "1.0"),
        ("näme", "1.0"),
        (long.as_str(), "1.0"),
    ] {
        let request = ApiVersionsRequest {
            client_software_name: Str::from(name.to_owned()),
            client_software_version: Str::from(version.to_owned()),
        };
        for v in [3, 4] {
            let answer = d.quiet(v, &request)?;
            let shown = if name.len() > 99 { "300 letters" } else { name };
            d.note(&format!(
                "v{v} {shown:?} {version:?}: {}, APIs listed: {}",
                answer.error_code,
                !answer.api_keys.is_empty()
            ));
        }
    }
    Ok(())
}

fn served_versions(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=4 {
        let answer = d.quiet(version, &api_versions())?;
        d.note(&format!("v{version}: {}", answer.error_code));
        for key in KEYS {
            let rows = answer.api_keys.iter().filter(|row| row.api_key == key.as_i16());
            let rows: Vec<_> = rows
                .map(|row| format!("{}..{}", row.min_version, row.max_version))
                .collect();
            d.note(&format!("  {key}: {}", rows.join(" and ")));
        }
        let sorted = answer.api_keys.is_sorted_by_key(|row| row.api_key);
        d.note(&format!("  sorted by key: {sorted}"));
    }
    Ok(())
}

fn supported_features(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=4 {
        let answer = d.quiet(version, &api_versions())?;
        let mut features = answer.supported_features.clone();
        features.sort_by(|a, b| a.name.cmp(&b.name));
        d.show(&format!("v{version}"), &features);
        let from_zero = features.iter().filter(|feature| feature.min_version == 0).count();
        d.note(&format!("  of them from level 0: {from_zero}"));
    }
    Ok(())
}

fn finalized_features(d: &mut Dialogue<'_>) -> Result<()> {
    for version in [2, 3, 4] {
        let ApiVersionsResponse {
            mut finalized_features,
            finalized_features_epoch,
            ..
        } = d.quiet(version, &api_versions())?;
        finalized_features.sort_by(|a, b| a.name.cmp(&b.name));
        d.show(&format!("v{version}"), &finalized_features);
        d.note(&format!("  with an epoch: {}", finalized_features_epoch >= 0));
    }
    Ok(())
}

fn idle(d: &mut Dialogue<'_>) -> Result<()> {
    let mut silent = d.connect()?;
    let mut half = d.connect()?;
    half.send_bytes(&[0, 0, 0, 50, 0, 18])?;
    let mut busy = d.connect()?;
    let began = Instant::now();
    let mut kept = true;
    for _ in 0..7 {
        std::thread::sleep(Duration::from_millis(700));
        let alive = busy
            .send(3, &api_versions())
            .and_then(|id| busy.receive::<ApiVersionsRequest>(3, id));
        kept &= alive.is_ok();
    }
    d.note(&format!("one request every 700 ms: kept {kept}"));
    for (label, wire) in [("nothing", &mut silent), ("half a frame", &mut half)] {
        let left = Duration::from_secs(8).saturating_sub(began.elapsed()) + Duration::from_millis(50);
        let closed = matches!(wire.frame(left)?, Received::Closed);
        d.note(&format!("{label} for 2 to 8 seconds: closed {closed}"));
    }
    Ok(())
}

fn addresses(d: &mut Dialogue<'_>) -> Result<()> {
    let metadata = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let address = d.target().address().to_owned();
    let by_metadata = d.quiet(9, &metadata)?;
    let by_cluster = d.quiet(
        0,
        &DescribeClusterRequest {
            endpoint_type: 1,
            ..Default::default()
        },
    )?;
    for broker in by_metadata.brokers {
        let same = format!("{}:{}", broker.host, broker.port) == address;
        d.note(&format!(
            "Metadata: node {} at the address that was dialled: {same}",
            broker.node_id
        ));
    }
    for broker in by_cluster.brokers {
        let same = format!("{}:{}", broker.host, broker.port) == address;
        d.note(&format!(
            "DescribeCluster: node {} at that address: {same}",
            broker.broker_id
        ));
    }
    let same = by_metadata.cluster_id.as_ref() == Some(&by_cluster.cluster_id);
    d.note(&format!(
        "the same cluster id, not empty: {}",
        same && !by_cluster.cluster_id.is_empty()
    ));
    Ok(())
}

fn produce_versions(d: &mut Dialogue<'_>) -> Result<()> {
    let answer = d.quiet(3, &api_versions())?;
    let produce = answer.api_keys.iter().find(|row| row.api_key == 0).cloned();
    d.show("Produce", &produce);
    for version in 0..3i16 {
        d.note(&format!("> Produce v{version}"));
        let mut frame = header(0, version, false);
        // acks, timeout, no topics: a whole request of those versions.
        frame.extend([0, 1, 0, 0, 3, 232, 0, 0, 0, 0]);
        d.wire()?.send_bytes(&framed(&frame))?;
        d.expect_closed()?;
    }
    Ok(())
}

fn other_protocols(d: &mut Dialogue<'_>) -> Result<()> {
    let hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x01\x02\x03\x04\x05\x06\x07";
    for (label, bytes) in [
        ("a TLS hello", hello.as_slice()),
        ("GET / HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice()),
        ("SSH-2.0", b"SSH-2.0-OpenSSH_9.0\r\n".as_slice()),
    ] {
        d.note(&format!("> {label}"));
        d.wire()?.send_bytes(bytes)?;
        d.expect_closed()?;
    }
    Ok(())
}

fn idempotence_visible(d: &mut Dialogue<'_>) -> Result<()> {
    for version in [0, 3] {
        let answer = d.quiet(version, &api_versions())?;
        for key in [ApiKey::InitProducerId, ApiKey::Produce, ApiKey::FindCoordinator] {
            let listed = answer.api_keys.iter().any(|row| row.api_key == key.as_i16());
            d.note(&format!("v{version} lists {key}: {listed}"));
        }
    }
    d.producer_id()?;
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    for version in 0..=5 {
        d.ask("no transactional id", version, &request)?;
    }
    Ok(())
}

fn fresh_connections(d: &mut Dialogue<'_>) -> Result<()> {
    let metadata = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let mut answered = 0;
    for _ in 0..100 {
        let mut wire = d.connect()?;
        let versions = wire.send(3, &api_versions())?;
        wire.receive::<ApiVersionsRequest>(3, versions)?;
        let id = wire.send(12, &metadata)?;
        answered += wire.receive::<MetadataRequest>(12, id)?.brokers.len();
    }
    d.note(&format!(
        "{answered} of 100 new connections got the broker's address"
    ));
    Ok(())
}

fn headers(d: &mut Dialogue<'_>) -> Result<()> {
    let long = "c".repeat(32_767);
    for (label, client_id) in [
        ("null", None),
        ("empty", Some("")),
        ("32767 letters", Some(long.as_str())),
        ("with spaces and ünicode", Some("with spaces and ünicode")),
    ] {
        for (version, is_flexible) in [(1i16, false), (9, true)] {
            let mut writer = Writer::new();
            writer.i16(ApiKey::Metadata.as_i16());
            writer.i16(version);
            writer.i32(9);
            let client_id = client_id.map(|id| Str::from(id.to_owned()));
            writer.nullable_string(false, client_id.as_ref());
            if is_flexible {
                writer.tagged_count(0);
            }
            let request = MetadataRequest {
                topics: Some(Vec::new()),
                ..Default::default()
            };
            let body = protocol::message::Message::to_bytes(&request, version);
            let body = body.map_err(|error| crate::error::Error::Failed(error.to_string()))?;
            writer.raw(&body);
            let frame = writer.into_bytes();
            let frame = frame.map_err(|error| crate::error::Error::Failed(error.to_string()))?;
            d.raw::<MetadataRequest>(
                &format!("Metadata v{version}, client id {label}"),
                &framed(&frame),
                version,
                9,
            )?;
        }
    }
    // Tagged fields nobody knows, in the header and in the body, one of them empty: they are skipped.
    let mut frame = header(ApiKey::Metadata.as_i16(), 9, false);
    frame.extend([2, 77, 3, 1, 2, 3, 78, 0]);
    frame.extend([1, 1, 0, 0, 1, 99, 2, 5, 6]);
    d.raw::<MetadataRequest>("Metadata v9 with unknown tagged fields", &framed(&frame), 9, 9)?;
    // The same body with bytes behind it.
    let mut frame = header(ApiKey::Metadata.as_i16(), 9, true);
    frame.extend([1, 1, 0, 0, 0]);
    frame.extend(b"left over");
    d.raw::<MetadataRequest>("Metadata v9 with bytes left over", &framed(&frame), 9, 9)?;
    lives(d)?;
    let named = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(d.name("none")),
            ..Default::default()
        }]),
        allow_auto_topic_creation: false,
        ..Default::default()
    };
    d.ask("an unknown topic", 9, &named)?;
    Ok(())
}
