//! What people have reported about groups that is a race or takes a process: lag below zero (BR-068), groups that begin on a
//! broker that has just been started for the first time (BR-127).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::hash::partition_for_id;
use protocol::messages::fetch::FetchResponse;
use protocol::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use protocol::messages::join_group::JoinGroupResponse;
use protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
use protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse};
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use protocol::{ErrorCode, Str};

use crate::admin::sample;
use crate::groups::{commit, find_coordinator, join_request};
use crate::stop::{create_topic, fetch_request, log_end, produce};
use crate::support::{Broker, Client, PATIENCE};

const TOPIC: &str = "orders";
const GROUP: &str = "g";

/// Reads what is there and commits the end that it was told, until it is told to stop.
fn consume(client: &mut Client, is_over: &AtomicBool) {
    let mut position = 0;
    while !is_over.load(Ordering::Relaxed) {
        let answer: FetchResponse = client.call(&fetch_request(TOPIC, 1, position), 11).unwrap();
        let part = &answer.responses[0].partitions[0];
        assert_eq!(part.error_code, ErrorCode::NONE);
        assert!(part.high_watermark >= position, "the end went back");
        position = part.high_watermark;
        commit(client, GROUP, TOPIC, &[(0, position)]);
    }
}

/// What is committed of partition 0, or why that is not told.
fn fetch_offset(client: &mut Client, group: &str, version: i16) -> (ErrorCode, i64) {
    let request = OffsetFetchRequest {
        group_id: Str::from(group.to_owned()),
        topics: Some(vec![OffsetFetchRequestTopic {
            name: TOPIC.into(),
            partition_indexes: vec![0],
        }]),
        ..Default::default()
    };
    let answer: OffsetFetchResponse = client.call(&request, version).unwrap();
    let part = answer.topics.first().map(|topic| &topic.partitions[0]);
    match part {
        Some(part) if part.error_code != ErrorCode::NONE => (part.error_code, part.committed_offset),
        Some(part) => (answer.error_code, part.committed_offset),
        None => (answer.error_code, -1),
    }
}

/// What a lag exporter does, over and over: the commit first, then the end. The last commit.
fn compare(broker: &Broker, client: &mut Client, time: Duration) -> i64 {
    let began = Instant::now();
    let (mut last, mut last_end, mut rounds) = (-1, 0, 0);
    let lag =
        format!("kafka_consumergroup_lag{{consumergroup=\"{GROUP}\",topic=\"{TOPIC}\",partition=\"0\"}}");
    while began.elapsed() < time || rounds < 100 {
        let (error, committed) = fetch_offset(client, GROUP, 5);
        assert_eq!(error, ErrorCode::NONE);
        let end = log_end(client, TOPIC);
        assert!(committed <= end, "committed {committed}, the end is {end}");
        assert!(last <= committed, "{committed} after {last}");
        assert!(last_end <= end, "the end was {last_end} and is {end}");
        (last, last_end, rounds) = (committed, end, rounds + 1);
        if rounds % 20 == 0 {
            let lag = sample(&broker.get("/metrics").1, &lag);
            assert!(lag.is_none_or(|lag| lag >= 0.0), "{lag:?}");
        }
        assert!(began.elapsed() < PATIENCE, "{rounds} rounds");
    }
    last
}

#[test]
fn no_commit_is_ever_ahead_of_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, TOPIC, 1);
    find_coordinator(&mut client, GROUP);
    let (producer_ends, consumer_ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let last = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(broker.address);
            while !producer_ends.load(Ordering::Relaxed) {
                produce(&mut client, TOPIC, 0, 7).unwrap();
            }
        });
        let consumer = scope.spawn(|| consume(&mut Client::connect(broker.address), &consumer_ends));
        let last = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            compare(&broker, &mut client, Duration::from_secs(2))
        }));
        // The producer goes on until the consumer, which may wait for data, has ended.
        consumer_ends.store(true, Ordering::Relaxed);
        let consumed = consumer.join();
        producer_ends.store(true, Ordering::Relaxed);
        consumed.unwrap();
        last
    });
    match last {
        Ok(last) => assert!(last > 100, "the consumer came as far as {last}"),
        Err(why) => std::panic::resume_unwind(why),
    }
}

/// Joins a group of its own as often as the coordinator says that it is not ready, and gets its assignment.
fn begin(address: SocketAddr, group: &str) {
    let mut client = Client::connect(address);
    find_coordinator(&mut client, group);
    let join = join_request(group);
    let began = Instant::now();
    let joined = loop {
        let answer: JoinGroupResponse = client.call(&join, 3).unwrap();
        match answer.error_code {
            ErrorCode::NONE => break answer,
            // It loads, or its partition is not known on the shard that was asked.
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS | ErrorCode::NOT_COORDINATOR => {
                assert!(began.elapsed() < PATIENCE, "{group} cannot be joined");
                std::thread::sleep(Duration::from_millis(10));
            }
            other => panic!("{group}: {other:?}"),
        }
    };
    let sync = SyncGroupRequest {
        group_id: Str::from(group.to_owned()),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    let answer: SyncGroupResponse = client.call(&sync, 2).unwrap();
    assert_eq!(answer.error_code, ErrorCode::NONE, "{group}");
    let heartbeat = HeartbeatRequest {
        group_id: Str::from(group.to_owned()),
        generation_id: joined.generation_id,
        member_id: joined.member_id,
        ..Default::default()
    };
    let answer: HeartbeatResponse = client.call(&heartbeat, 2).unwrap();
    assert_eq!(answer.error_code, ErrorCode::NONE, "{group}");
}

#[test]
fn twenty_groups_begin_at_once_on_a_broker_without_data() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["penstock.shards=2", "group.initial.rebalance.delay.ms=0"];
    let broker = Broker::start(dir.path(), &settings);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for n in 0..20 {
            let address = broker.address;
            scope.spawn(move || begin(address, &format!("g-{n}")));
        }
    });
    // Under 3 s on a quiet machine; tests run beside others.
    let took = began.elapsed();
    assert!(took < PATIENCE, "{took:?}");
}

/// The first group name whose coordinator is that partition of four.
fn group_of(partition: u32) -> String {
    let mut names = (0..).map(|n| format!("g-{n}"));
    names.find(|name| partition_for_id(name, 4) == partition).unwrap()
}

#[test]
fn where_one_partition_of_groups_is_lost_the_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["penstock.shards=2", "offsets.topic.num.partitions=4"];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, TOPIC, 1);
    let groups = [0, 1, 2, 3].map(group_of);
    for (group, offset) in groups.iter().zip(5..) {
        find_coordinator(&mut client, group);
        commit(&mut client, group, TOPIC, &[(0, offset)]);
    }
    broker.signal(Signal::SIGTERM);
    broker.end();
    std::fs::remove_dir_all(dir.path().join("data/__consumer_offsets-2")).unwrap();
    let broker = Broker::start(dir.path(), &settings);
    let mut client = Client::connect(broker.address);
    for (group, offset) in groups.iter().zip(5..) {
        if *group != groups[2] {
            find_coordinator(&mut client, group);
            let began = Instant::now();
            while fetch_offset(&mut client, group, 5) != (ErrorCode::NONE, offset) {
                assert!(began.elapsed() < PATIENCE, "{group} is not served");
            }
        }
    }
    // Its own groups are never told that nothing was committed.
    for version in [1, 2, 5, 7] {
        let began = Instant::now();
        loop {
            let told = fetch_offset(&mut client, &groups[2], version);
            if told == (ErrorCode::NOT_COORDINATOR, -1) {
                break;
            }
            // Until the controller has heard that the partition is lost.
            let until_then = [
                (ErrorCode::COORDINATOR_NOT_AVAILABLE, -1),
                (ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, -1),
            ];
            assert!(until_then.contains(&told), "version {version}: {told:?}");
            assert!(began.elapsed() < PATIENCE, "version {version}");
        }
    }
    let answer: ListGroupsResponse = client.call(&ListGroupsRequest::default(), 2).unwrap();
    assert_eq!(answer.error_code, ErrorCode::NONE);
    let mut listed: Vec<_> = answer.groups.iter().map(|g| g.group_id.to_string()).collect();
    listed.sort_unstable();
    let mut others = groups.to_vec();
    others.remove(2);
    others.sort_unstable();
    assert_eq!(listed, others);
}
