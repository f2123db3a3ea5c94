//! Groups in `/metrics` of a running broker: lag as `kafka-consumer-groups` works it out, states, rebalances, and the bound on
//! samples.

use std::time::Instant;

use protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use protocol::{ErrorCode, Str};

use crate::admin::{sample, well_formed};
use crate::stop::{create_topic, log_end, produce};
use crate::support::{Broker, Client, PATIENCE};

/// Asks until the group's coordinator serves: its topic is made at the first question, and its log replayed.
pub(crate) fn find_coordinator(client: &mut Client, group: &str) {
    let began = Instant::now();
    loop {
        let request = FindCoordinatorRequest {
            key: Str::from(group.to_owned()),
            ..Default::default()
        };
        let answer: FindCoordinatorResponse = client.call(&request, 2).unwrap();
        if answer.error_code == ErrorCode::NONE {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{:?}", answer.error_code);
    }
}

/// Commits of a group without members, until the coordinator does not load any more.
pub(crate) fn commit(client: &mut Client, group: &str, topic: &str, offsets: &[(i32, i64)]) {
    let request = OffsetCommitRequest {
        group_id: Str::from(group.to_owned()),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: Str::from(topic.to_owned()),
            partitions: offsets
                .iter()
                .map(|(partition, offset)| OffsetCommitRequestPartition {
                    partition_index: *partition,
                    committed_offset: *offset,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let began = Instant::now();
    loop {
        let answer: OffsetCommitResponse = client.call(&request, 7).unwrap();
        let told: Vec<ErrorCode> = answer.topics[0].partitions.iter().map(|p| p.error_code).collect();
        if told.iter().all(|error| *error == ErrorCode::NONE) {
            return;
        }
        let loads = told.iter().all(|e| {
            matches!(
                *e,
                ErrorCode::COORDINATOR_LOAD_IN_PROGRESS | ErrorCode::NOT_COORDINATOR
            )
        });
        assert!(loads && began.elapsed() < PATIENCE, "{told:?}");
    }
}

/// How a consumer joins a group for the first time.
pub(crate) fn join_request(group: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: Str::from(group.to_owned()),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A member that joins a group of its own and gets an assignment; how it was let in.
pub(crate) fn join_alone(client: &mut Client, group: &str) -> JoinGroupResponse {
    let answer: JoinGroupResponse = client.call(&join_request(group), 3).unwrap();
    assert_eq!(answer.error_code, ErrorCode::NONE);
    let sync = SyncGroupRequest {
        group_id: Str::from(group.to_owned()),
        generation_id: answer.generation_id,
        member_id: answer.member_id.clone(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: answer.member_id.clone(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let synced: SyncGroupResponse = client.call(&sync, 2).unwrap();
    assert_eq!(synced.error_code, ErrorCode::NONE);
    answer
}

/// Waits until every partition of the groups' topic serves.
pub(crate) fn all_serve(broker: &Broker, partitions: u32) {
    let began = Instant::now();
    let active = "kafka_server_group_coordinator_metrics_num_partitions{state=\"active\"}";
    while sample(&broker.get("/metrics").1, active) != Some(f64::from(partitions)) {
        assert!(began.elapsed() < PATIENCE, "not all partitions are loaded");
    }
}

fn delete_topic(client: &mut Client, topic: &str) {
    let request = DeleteTopicsRequest {
        topic_names: vec![Str::from(topic.to_owned())],
        timeout_ms: 30_000,
        ..Default::default()
    };
    let answer: DeleteTopicsResponse = client.call(&request, 4).unwrap();
    assert_eq!(answer.responses[0].error_code, ErrorCode::NONE);
}

fn of(metric: &str, group: &str, topic: &str, partition: i32) -> String {
    format!(
        "kafka_consumergroup_{metric}{{consumergroup=\"{group}\",topic=\"{topic}\",partition=\"{partition}\"}}"
    )
}

/// What is told beside the lag of each partition.
const TOLD: [(&str, i32); 22] = [
    (
        "kafka_consumergroup_lag_sum{consumergroup=\"g\",topic=\"orders\"}",
        -3,
    ),
    (
        "kafka_consumergroup_current_offset_sum{consumergroup=\"g\",topic=\"orders\"}",
        11,
    ),
    ("kafka_consumergroup_members{consumergroup=\"g\"}", 0),
    ("kafka_consumergroup_members{consumergroup=\"working\"}", 1),
    (
        "kafka_topic_partition_current_offset{topic=\"orders\",partition=\"0\"}",
        5,
    ),
    (
        "kafka_topic_partition_oldest_offset{topic=\"orders\",partition=\"0\"}",
        0,
    ),
    ("kafka_topic_partitions{topic=\"orders\"}", 3),
    ("kafka_brokers", 1),
    ("kafka_coordinator_group_groupmetadatamanager_numgroups", 3),
    ("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", 1),
    ("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", 2),
    (
        "kafka_server_group_coordinator_metrics_group_count{protocol=\"classic\"}",
        3,
    ),
    (
        "kafka_server_group_coordinator_metrics_num_partitions{state=\"active\"}",
        4,
    ),
    ("kafka_server_group_coordinator_metrics_offset_commit_count", 4),
    (
        "kafka_server_group_coordinator_metrics_group_completed_rebalance_count",
        1,
    ),
    ("penstock_group_rebalances_total{reason=\"member_joined\"}", 1),
    ("penstock_group_rebalances_total{reason=\"member_left\"}", 0),
    ("penstock_group_rebalance_duration_seconds_count", 1),
    ("penstock_group_load_duration_seconds_count", 4),
    ("penstock_group_members", 1),
    ("penstock_group_left_out_offsets", 0),
    ("penstock_scrape_unread_group_shards", 0),
];

/// BR-068, BR-133.
#[test]
fn metrics_tell_the_lag_of_groups_as_their_tools_do() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "penstock.shards=2",
        "group.initial.rebalance.delay.ms=0",
        "offsets.topic.num.partitions=4",
    ];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "orders", 3);
    create_topic(&mut client, "gone", 1);
    find_coordinator(&mut client, "g");
    all_serve(&broker, 4);
    produce(&mut client, "orders", 0, 5).unwrap();
    produce(&mut client, "orders", 1, 3).unwrap();
    let end = log_end(&mut client, "orders");
    // Behind, beyond the end, and nothing of partition 2.
    commit(&mut client, "g", "orders", &[(0, 2), (1, 9)]);
    commit(&mut client, "g", "gone", &[(0, 0)]);
    commit(&mut client, "caught up", "orders", &[(0, end)]);
    join_alone(&mut client, "working");
    let (_, text) = broker.get("/metrics");
    assert_eq!(sample(&text, &of("lag", "g", "gone", 0)), Some(0.0));

    delete_topic(&mut client, "gone");
    let (status, text) = broker.get("/metrics");
    assert!(status.contains("200"), "{status}");
    let expected = [
        (of("lag", "g", "orders", 0), end - 2),
        (of("lag", "g", "orders", 1), 3 - 9),
        (of("lag", "g", "orders", 2), -1),
        (of("current_offset", "g", "orders", 0), 2),
        (of("current_offset", "g", "orders", 1), 9),
        (of("current_offset", "g", "orders", 2), -1),
        (of("lag", "caught up", "orders", 0), 0),
    ];
    for (name, value) in expected {
        assert_eq!(sample(&text, &name), Some(value as f64), "{name}");
    }
    for (name, value) in TOLD {
        assert_eq!(sample(&text, name), Some(f64::from(value)), "{name}");
    }
    let of_gone = "topic=\"gone\"";
    let mut groups = text.lines().filter(|l| l.starts_with("kafka_consumergroup"));
    assert!(
        !groups.any(|l| l.contains(of_gone)),
        "a topic that is gone has no lag"
    );
    well_formed(&text);
    // Its offsets go with it, soon.
    let began = Instant::now();
    let deleted = "kafka_server_group_coordinator_metrics_offset_deletion_count";
    while sample(&broker.get("/metrics").1, deleted) != Some(1.0) {
        assert!(
            began.elapsed() < PATIENCE,
            "the offset of a topic that is gone stays"
        );
    }
}

#[test]
fn samples_of_groups_are_bounded_and_what_is_left_out_is_summed_up() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "penstock.shards=2",
        "offsets.topic.num.partitions=4",
        "penstock.metrics.group.series.max=2",
    ];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "orders", 1);
    produce(&mut client, "orders", 0, 10).unwrap();
    find_coordinator(&mut client, "g-0");
    for n in 0..5 {
        commit(&mut client, &format!("g-{n}"), "orders", &[(0, n)]);
    }
    let (_, text) = broker.get("/metrics");
    let lags: Vec<f64> = (0..5)
        .filter_map(|n| sample(&text, &of("lag", &format!("g-{n}"), "orders", 0)))
        .collect();
    assert_eq!(lags.len(), 2, "{lags:?}");
    let left = sample(&text, "penstock_group_left_out_lag").unwrap();
    let all: f64 = (0..5).map(|n| f64::from(10 - n)).sum();
    assert_eq!(left + lags.iter().sum::<f64>(), all, "no lag is lost");
    for (name, value) in [
        ("penstock_group_left_out_groups", 3.0),
        ("penstock_group_left_out_offsets", 3.0),
        ("kafka_coordinator_group_groupmetadatamanager_numgroups", 5.0),
        ("kafka_coordinator_group_groupmetadatamanager_numoffsets", 5.0),
    ] {
        assert_eq!(sample(&text, name), Some(value), "{name}");
    }
}

/// BR-127.
#[test]
fn why_groups_can_have_no_coordinator_is_logged_once() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(
        dir.path(),
        &[
            "offsets.topic.replication.factor=3",
            "default.replication.factor=3",
        ],
    );
    let mut client = Client::connect(broker.address);
    for _ in 0..20 {
        let request = FindCoordinatorRequest {
            key: Str::from("g"),
            ..Default::default()
        };
        let answer: FindCoordinatorResponse = client.call(&request, 2).unwrap();
        assert_eq!(answer.error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    }
    let log = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    let lines: Vec<_> = log
        .lines()
        .filter(|line| line.contains("cannot be created"))
        .collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains("__consumer_offsets"), "{log}");
    assert!(lines[0].contains("INVALID_REPLICATION_FACTOR"), "{log}");
}
