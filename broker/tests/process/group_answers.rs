//! Answers about groups that are large, and clients that do not read them: what a small request costs is bounded, and members of other
//! groups do not notice.

use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::messages::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
use protocol::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use protocol::messages::join_group::JoinGroupResponse;
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
    OffsetFetchResponseGroup,
};
use protocol::{ErrorCode, Str};

use crate::groups::{all_serve, find_coordinator, join_alone, join_request};
use crate::stop::create_topic;
use crate::support::{Broker, Client};

/// Partitions of the groups' topic, by default.
const GROUP_PARTITIONS: u32 = 50;

/// A client of a broker whose coordinators all serve.
fn client_of(broker: &Broker) -> Client {
    let mut client = Client::connect(broker.address);
    find_coordinator(&mut client, "g");
    all_serve(broker, GROUP_PARTITIONS);
    client
}

/// Commits two partitions of "orders" for "g", with as much metadata as there may be; the bytes of it.
fn commit_much(client: &mut Client) -> usize {
    create_topic(client, "orders", 2);
    let metadata = "\u{20ac}".repeat(4096);
    let partition = |index, offset| OffsetCommitRequestPartition {
        partition_index: index,
        committed_offset: offset,
        committed_metadata: Some(Str::from(metadata.clone())),
        ..Default::default()
    };
    let commit = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: "orders".into(),
            partitions: vec![partition(0, 5), partition(1, 6)],
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer: OffsetCommitResponse = client.call(&commit, 7).unwrap();
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::NONE);
    metadata.len()
}

/// Asks for partitions of "orders", each list of them as a group of its own.
fn fetch(client: &mut Client, lists: Vec<Vec<i32>>) -> Vec<OffsetFetchResponseGroup> {
    let group = |partition_indexes| OffsetFetchRequestGroup {
        group_id: "g".into(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: "orders".into(),
            partition_indexes,
            ..Default::default()
        }]),
        ..Default::default()
    };
    let request = OffsetFetchRequest {
        groups: lists.into_iter().map(group).collect(),
        ..Default::default()
    };
    let answer: OffsetFetchResponse = client.call(&request, 8).unwrap();
    answer.groups
}

/// Four bytes that name a partition again have no kilobytes in the answer.
#[test]
fn a_partition_that_is_named_often_is_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let settings = ["penstock.shards=1", "penstock.memory.bytes=1073741824"];
    let broker = Broker::start(dir.path(), &settings);
    let mut client = client_of(&broker);
    let metadata = commit_much(&mut client);
    let before = broker.resident_bytes();
    let groups = fetch(&mut client, vec![[0, 1, 0].repeat(50_000), vec![1, 0]]);
    let told = |group: usize| {
        let partitions = groups[group].topics[0].partitions.iter();
        partitions
            .map(|p| {
                (
                    p.partition_index,
                    p.committed_offset,
                    p.metadata.as_ref().map_or(0, Str::len),
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(told(0), [(0, 5, metadata), (1, 6, metadata)]);
    assert_eq!(told(1), [(1, 6, metadata), (0, 5, metadata)]);
    // Nobody names so many, and each takes its room until it is answered.
    let groups = fetch(&mut client, vec![(0..500_001).collect()]);
    assert_eq!(groups[0].error_code, ErrorCode::INVALID_REQUEST);
    assert!(groups[0].topics.is_empty());
    // A small request whose answer is larger than all that groups may keep.
    let groups = fetch(&mut client, vec![vec![0, 1]; 20_000]);
    assert_eq!(groups.len(), 20_000);
    let is_refused = |g: &OffsetFetchResponseGroup| g.error_code == ErrorCode::COORDINATOR_NOT_AVAILABLE;
    assert!(groups.iter().all(|g| is_refused(g) && g.topics.is_empty()));
    let grown = broker.resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

/// Answers that nobody reads hold memory that others' answers need.
#[test]
fn members_of_other_groups_do_not_notice_answers_that_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let settings = [
        "penstock.shards=1",
        "penstock.memory.bytes=282066944",
        "socket.send.buffer.bytes=32768",
        "group.initial.rebalance.delay.ms=0",
    ];
    let broker = Broker::start(dir.path(), &settings);
    let mut member = client_of(&broker);
    let joined = join_alone(&mut member, "quiet");

    // Its leader is told all metadata as often as it asks, until it has given assignments.
    let mut loud = join_request("loud");
    loud.protocols[0].metadata = Bytes::from(vec![7; 900_000]);
    let leads: JoinGroupResponse = Client::connect(broker.address).call(&loud, 3).unwrap();
    assert_eq!(leads.error_code, ErrorCode::NONE);
    loud.member_id = leads.member_id;
    let mut deaf: Vec<Client> = (0..40).map(|_| Client::connect(broker.address)).collect();
    for client in &mut deaf {
        client.send(&loud, 3).unwrap();
    }

    let heartbeat = HeartbeatRequest {
        group_id: "quiet".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id,
        ..Default::default()
    };
    // Whoever waits for the deaf ones waits for two seconds, again and again; a busy host takes its time once or twice.
    let mut slow = 0;
    for _ in 0..50 {
        let began = Instant::now();
        let answer: HeartbeatResponse = member.call(&heartbeat, 3).unwrap();
        assert_eq!(answer.error_code, ErrorCode::NONE);
        slow += u32::from(began.elapsed() > Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(slow <= 2, "{slow} of 50 heartbeats took more than a second");
}

/// A request with a name that is as long as a string can be has an answer.
#[test]
fn a_group_with_the_longest_name_is_described_as_unknown() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = client_of(&broker);
    let request = DescribeGroupsRequest {
        groups: vec![Str::from("x".repeat(32_767))],
        ..Default::default()
    };
    let answer: DescribeGroupsResponse = client.call(&request, 6).unwrap();
    assert_eq!(answer.groups[0].error_code, ErrorCode::GROUP_ID_NOT_FOUND);
    assert_eq!(answer.groups[0].group_id.len(), 32_767);
}
