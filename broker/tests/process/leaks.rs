//! What many requests leave behind: nothing. A waiter that is registered with each request and never taken out, a table that only
//! grows, would be seen here long before a client of a running cluster sees it.

use protocol::Str;
use protocol::message::Request;
use protocol::messages::create_topics::CreateTopicsRequest;
use protocol::messages::fetch::{FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic};
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::messages::heartbeat::HeartbeatRequest;
use protocol::messages::join_group::JoinGroupRequest;
use protocol::messages::leave_group::LeaveGroupRequest;
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::metadata::MetadataRequest;
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::sync_group::SyncGroupRequest;

use crate::stop::create_topic;
use crate::support::{Broker, Client};

const TOPIC: &str = "quiet";

/// Requests before memory is looked at: buffers and pools have their size then.
const WARMUP: usize = 2_000;

/// Requests that must not make it grow.
const REQUESTS: usize = 8_000;

/// Requests in flight.
const PIPELINE: usize = 100;

/// What the allocator may keep, in bytes. The leak that this test is for, a task of a kilobyte for each request, is twice that.
const GROWTH_BYTES_MAX: u64 = 4 << 20;

#[test]
fn requests_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=1"]);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, TOPIC, 1);
    let find = FindCoordinatorRequest {
        key: group(),
        ..Default::default()
    };
    let mut many = Many { broker, client };
    many.of(&find, 3);
    many.of(&MetadataRequest::default(), 9);
    many.of(&list_offsets(), 5);
    many.of(&fetch_that_waits(), 11);
    many.of(
        &HeartbeatRequest {
            group_id: group(),
            member_id: Str::from("nobody"),
            ..Default::default()
        },
        3,
    );
    many.of(
        &SyncGroupRequest {
            group_id: group(),
            member_id: Str::from("nobody"),
            ..Default::default()
        },
        3,
    );
    many.of(
        &LeaveGroupRequest {
            group_id: group(),
            member_id: Str::from("nobody"),
            ..Default::default()
        },
        2,
    );
    many.of(
        &JoinGroupRequest {
            group_id: group(),
            member_id: Str::from("nobody"),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            protocol_type: Str::from("consumer"),
            ..Default::default()
        },
        5,
    );
    many.of(&commit_of_nobody(), 7);
    many.of(&CreateTopicsRequest::default(), 5);
}

fn group() -> Str {
    Str::from("leaking")
}

struct Many {
    broker: Broker,
    client: Client,
}

impl Many {
    fn of<R: Request>(&mut self, request: &R, version: i16) {
        self.send(request, version, WARMUP);
        let before = self.broker.resident_bytes();
        self.send(request, version, REQUESTS);
        let after = self.broker.resident_bytes();
        let grown = after.saturating_sub(before);
        assert!(
            grown < GROWTH_BYTES_MAX,
            "{REQUESTS} of {:?}: {before} to {after} bytes resident",
            R::KEY
        );
    }

    fn send<R: Request>(&mut self, request: &R, version: i16, count: usize) {
        for _ in 0..count / PIPELINE {
            for _ in 0..PIPELINE {
                self.client.send(request, version).unwrap();
            }
            for _ in 0..PIPELINE {
                self.client.receive::<R::Response>(version).unwrap();
            }
        }
    }
}

fn list_offsets() -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(TOPIC),
            partitions: vec![ListOffsetsPartition {
                timestamp: -1,
                ..Default::default()
            }],
        }],
        ..Default::default()
    }
}

/// A fetch at the end of a log, which is parked until its time is over.
fn fetch_that_waits() -> FetchRequest {
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 1,
        min_bytes: 1,
        max_bytes: 1000,
        session_epoch: -1,
        topics: vec![FetchRequestFetchTopic {
            topic: Str::from(TOPIC),
            partitions: vec![FetchRequestFetchPartition {
                current_leader_epoch: -1,
                last_fetched_epoch: -1,
                log_start_offset: -1,
                partition_max_bytes: 1000,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A commit that the coordinator refuses, so that nothing is written.
fn commit_of_nobody() -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group(),
        generation_id_or_member_epoch: 5,
        member_id: Str::from("nobody"),
        topics: vec![OffsetCommitRequestTopic {
            name: Str::from(TOPIC),
            partitions: vec![OffsetCommitRequestPartition {
                committed_leader_epoch: -1,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}
