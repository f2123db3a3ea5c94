//! What members see of a coordinator, by the numbers of `kafka-surface.md` §2.7. Seeded interleavings are in `model.rs`.

mod classic;
mod deadlines;
mod memory;
mod model;
mod offsets;
mod stats;
mod sweep;

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::heartbeat::HeartbeatRequest;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
use protocol::{ErrorCode, Str, Uuid};

use super::*;
use crate::budget::{BUDGET_CLASSES, BudgetLimits, ClassLimits};
use crate::ids::ShardId;
use crate::replies::Replies;

/// A coordinator, its time, and its log, which is written when the test says so.
struct Fixture {
    coordinator: GroupCoordinator,
    memory: Budget,
    now: Instant,
    wall: WallMs,
    tokens: Replies<()>,
    pending: Vec<(WriteId, Rc<[GroupRecord]>)>,
    /// What was committed, for replays.
    log: Vec<GroupRecord>,
    answers: BTreeMap<ReplyTo, GroupReply>,
    /// When each request was answered.
    answered: BTreeMap<ReplyTo, Instant>,
    fresh: u64,
    /// Client id and host of whoever joins.
    client: (&'static str, &'static str),
}

impl Fixture {
    fn new() -> Self {
        Self::with(GroupSettings::default())
    }

    fn with(settings: GroupSettings) -> Self {
        Self::with_memory(settings, u64::MAX)
    }

    /// With so many bytes for groups.
    fn with_memory(settings: GroupSettings, bytes: u64) -> Self {
        let memory = memory(bytes);
        let mut coordinator = GroupCoordinator::new(settings, memory.clone());
        let (now, wall) = (Instant(1_000_000_000), WallMs(1_000_000));
        coordinator.start(now, wall);
        Self {
            coordinator,
            memory,
            now,
            wall,
            tokens: Replies::new(1 << 20),
            pending: Vec::new(),
            log: Vec::new(),
            answers: BTreeMap::new(),
            answered: BTreeMap::new(),
            fresh: 0,
            client: ("c", "/127.0.0.1"),
        }
    }

    fn send(&mut self, request: GroupRequest) -> ReplyTo {
        let (token, reply) = self.tokens.register().expect("a slot");
        // The slot is never completed: the token only has to differ from all others.
        std::mem::forget(reply);
        let to = ReplyTo {
            shard: ShardId(0),
            token,
            is_traced: false,
        };
        self.coordinator.handle(to, request, self.now, self.wall);
        self.collect();
        to
    }

    fn collect(&mut self) {
        while let Some(output) = self.coordinator.poll_output() {
            match output {
                GroupOutput::Reply { to, reply } => {
                    self.answered.insert(to, self.now);
                    assert!(self.answers.insert(to, reply).is_none(), "answered twice");
                }
                GroupOutput::Append { write, records } => {
                    assert!(!records.is_empty());
                    self.pending.push((write, records));
                }
            }
        }
    }

    /// The oldest append is done.
    fn finish_write(&mut self, outcome: Result<(), ErrorCode>) {
        let (write, records) = self.pending.remove(0);
        if outcome.is_ok() {
            self.log.extend(records.iter().cloned());
        }
        self.coordinator
            .handle_written(write, outcome, self.now, self.wall);
        self.collect();
    }

    fn finish_writes(&mut self) {
        while !self.pending.is_empty() {
            self.finish_write(Ok(()));
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        while let Some(next) = self.coordinator.next_deadline().filter(|next| *next <= end) {
            self.advance(next);
        }
        self.advance(end);
    }

    fn advance(&mut self, to: Instant) {
        let to = to.max(self.now);
        self.wall.0 += i64::try_from(to.since(self.now).as_millis()).unwrap();
        self.now = to;
        self.coordinator.handle_time(self.now, self.wall);
        self.collect();
    }

    /// The process dies and comes back: what was committed is replayed.
    fn restart(&mut self) {
        self.restart_with(None);
    }

    /// The same with this metadata.
    fn restart_with(&mut self, topics: Option<KnownTopics>) {
        self.pending.clear();
        let mut coordinator = GroupCoordinator::new(self.coordinator.settings.clone(), self.memory.clone());
        coordinator.sweep_entries_max = self.coordinator.sweep_entries_max;
        for record in &self.log {
            let (key, value) = record.encode().unwrap();
            coordinator.replay(&key, value.as_ref(), self.wall).unwrap();
        }
        if let Some(topics) = topics {
            coordinator.know_topics(topics);
        }
        coordinator.start(self.now, self.wall);
        self.coordinator = coordinator;
        self.advance(self.now);
    }

    fn join(&mut self, member: &str) -> ReplyTo {
        self.join_with(member, |_| {})
    }

    fn join_with(&mut self, member: &str, change: impl FnOnce(&mut JoinGroupRequest)) -> ReplyTo {
        self.join_at(5, member, change)
    }

    fn join_at(&mut self, version: i16, member: &str, change: impl FnOnce(&mut JoinGroupRequest)) -> ReplyTo {
        let mut request = JoinGroupRequest {
            group_id: "g".into(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            member_id: Str::from(member.to_owned()),
            protocol_type: "consumer".into(),
            protocols: vec![protocol("range", b"v1")],
            ..JoinGroupRequest::default()
        };
        change(&mut request);
        self.fresh += 1;
        self.send(GroupRequest::Join {
            request,
            version,
            client: ClientIdentity {
                client_id: self.client.0.into(),
                host: self.client.1.into(),
            },
            fresh: Uuid::from_u128(self.fresh.into()),
        })
    }

    /// A dynamic member comes in both steps; its id and its open JoinGroup.
    fn come(&mut self) -> (Str, ReplyTo) {
        let to = self.join("");
        let answer = self.joined(to);
        assert_eq!(answer.error_code, ErrorCode::MEMBER_ID_REQUIRED);
        let to = self.join(&answer.member_id);
        (answer.member_id, to)
    }

    /// A stable group of so many members; the first one leads.
    fn stable(&mut self, members: usize) -> Vec<Str> {
        let joins: Vec<_> = (0..members).map(|_| self.come()).collect();
        self.pass(Duration::from_secs(3));
        self.pass(Duration::from_secs(3));
        let generation = self.joined(joins[0].1).generation_id;
        let ids: Vec<Str> = joins.into_iter().map(|(id, _)| id).collect();
        self.assign(&ids, generation);
        ids
    }

    /// All sync; each gets its own id as its assignment. The first one leads.
    fn assign(&mut self, ids: &[Str], generation: i32) {
        let syncs: Vec<_> = ids
            .iter()
            .map(|id| self.sync(id, generation, if *id == ids[0] { ids } else { &[] }))
            .collect();
        self.finish_writes();
        for (id, to) in ids.iter().zip(syncs) {
            let answer = self.synced(to);
            assert_eq!(answer.error_code, ErrorCode::NONE);
            assert_eq!(answer.assignment, *id.as_bytes());
        }
    }

    fn sync(&mut self, id: &Str, generation: i32, assign: &[Str]) -> ReplyTo {
        self.sync_as(id, None, generation, assign)
    }

    fn sync_as(&mut self, id: &Str, instance: Option<Str>, generation: i32, assign: &[Str]) -> ReplyTo {
        self.send(GroupRequest::Sync(SyncGroupRequest {
            group_id: "g".into(),
            generation_id: generation,
            member_id: id.clone(),
            group_instance_id: instance,
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: assign
                .iter()
                .map(|id| SyncGroupRequestAssignment {
                    member_id: id.clone(),
                    assignment: id.as_bytes().clone(),
                })
                .collect(),
        }))
    }

    fn heartbeat(&mut self, id: &Str, generation: i32) -> ErrorCode {
        let to = self.send(GroupRequest::Heartbeat(HeartbeatRequest {
            group_id: "g".into(),
            generation_id: generation,
            member_id: id.clone(),
            ..HeartbeatRequest::default()
        }));
        match self.take(to) {
            Some(GroupReply::Heartbeat(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    fn leave(&mut self, member: &str, instance: Option<&'static str>) -> ErrorCode {
        let to = self.send(GroupRequest::Leave(LeaveGroupRequest {
            group_id: "g".into(),
            members: vec![MemberIdentity {
                member_id: Str::from(member.to_owned()),
                group_instance_id: instance.map(Str::from_static),
                ..MemberIdentity::default()
            }],
            ..LeaveGroupRequest::default()
        }));
        match self.take(to) {
            Some(GroupReply::Leave(answer)) if answer.error_code != ErrorCode::NONE => answer.error_code,
            Some(GroupReply::Leave(answer)) => answer.members[0].error_code,
            other => panic!("{other:?}"),
        }
    }

    /// A commit of somebody who is no member: some partitions of a topic, each with this metadata.
    fn send_commit(&mut self, group: &str, topic: &str, partitions: Range<i32>, metadata: &str) -> ReplyTo {
        let metadata = Str::from(metadata.to_owned());
        self.send(GroupRequest::Commit(OffsetCommit {
            group: Str::from(group.to_owned()),
            generation: -1,
            version: 8,
            topics: vec![CommitTopic {
                name: Str::from(topic.to_owned()),
                id: Uuid::ONE,
                partitions: partitions
                    .map(|p| (p, i64::from(p) * 10, -1, metadata.clone()))
                    .collect(),
            }],
            ..OffsetCommit::default()
        }))
    }

    /// The same, written; the answer for its first partition.
    fn commit(&mut self, group: &str, topic: &str, partitions: Range<i32>, metadata: &str) -> ErrorCode {
        let to = self.send_commit(group, topic, partitions, metadata);
        self.finish_writes();
        self.committed(to)
    }

    /// What a commit was answered for its first partition.
    fn committed(&mut self, to: ReplyTo) -> ErrorCode {
        match self.take(to) {
            Some(GroupReply::Commit(results)) => results[0].1[0].1,
            other => panic!("{other:?}"),
        }
    }

    fn take(&mut self, to: ReplyTo) -> Option<GroupReply> {
        self.answers.remove(&to)
    }

    fn joined(&mut self, to: ReplyTo) -> JoinGroupResponse {
        match self.take(to) {
            Some(GroupReply::Join(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn synced(&mut self, to: ReplyTo) -> SyncGroupResponse {
        match self.take(to) {
            Some(GroupReply::Sync(answer)) => answer,
            other => panic!("{other:?}"),
        }
    }

    fn state(&mut self) -> String {
        let to = self.send(GroupRequest::Describe("g".into()));
        match self.take(to) {
            Some(GroupReply::Describe(told)) => told.group_state.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

/// The budget of a shard that has memory for coordinators only.
fn memory(bytes: u64) -> Budget {
    let mut classes = [ClassLimits::default(); BUDGET_CLASSES];
    classes[BudgetClass::Coordinator as usize] = ClassLimits {
        reserved_bytes: bytes,
        max_bytes: bytes,
    };
    Budget::new(BudgetLimits {
        classes,
        shared_bytes: 0,
    })
}

fn protocol(name: &'static str, metadata: &'static [u8]) -> JoinGroupRequestProtocol {
    JoinGroupRequestProtocol {
        name: name.into(),
        metadata: Bytes::from_static(metadata),
    }
}
