//! The coordinator of the groups of one `__consumer_offsets` partition: classic groups and committed offsets, exactly as
//! Kafka 4.3's coordinator has them (`kafka-surface.md` §2.7). A state machine: requests, finished appends and time come in,
//! answers and appends come out of [`GroupCoordinator::poll_output`].
//!
//! Members live in memory and survive a restart as they were when their generation got its assignment; offsets change only
//! by records that are committed. Costs are noted at [`classic`], [`member`], [`offsets`] and [`writes`].
//!
//! Unlike Kafka, the first JoinGroup of a new group writes nothing: Kafka writes the group as an empty generation 0 first. Readers of
//! `__consumer_offsets` see that record; members do not. A group whose every id was given out in vain is gone at once here, there
//! with the next search for old offsets.

mod classic;
mod commit;
mod describe;
mod ending;
mod join;
mod member;
mod news;
mod offsets;
mod record;
mod request;
mod session;
mod stats;
mod subscribed;
mod sweep;
mod sync;
mod timers;
mod turn;
mod writes;

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::messages::delete_groups::DeletableGroupResult;
use protocol::messages::heartbeat::HeartbeatRequest;
use protocol::messages::join_group::JoinGroupRequest;
use protocol::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse};
use protocol::messages::sync_group::SyncGroupRequest;
use protocol::{DecodeError, ErrorCode, Str};

pub use self::classic::GroupState;
pub use self::news::{Departure, GroupNews, Happened, MemberName, News};
pub use self::offsets::CommittedOffset;
pub use self::record::GroupRecord;
pub use self::request::{
    ByTopic, ClientIdentity, CommitTopic, GroupOutput, GroupReply, GroupRequest, GroupSettings, OffsetCommit,
    OffsetFetch, WriteId,
};
pub use self::stats::{GroupCounters, GroupCursor, GroupImage, REBALANCE_REASONS, RebalanceReason};
pub use self::sweep::KnownTopics;

use self::classic::ClassicGroup;
use self::join::Joining;
use self::offsets::Offsets;
use self::sweep::{SWEEP_ENTRIES_MAX, Sweeps};
use self::timers::Timer;
use self::turn::{Effects, Then, Turn};
use self::writes::Write;
use crate::budget::{Budget, BudgetClass, Charge};
use crate::env::{Instant, WallMs};
use crate::message::ReplyTo;

/// See the module.
#[derive(Debug)]
pub struct GroupCoordinator {
    settings: GroupSettings,
    groups: BTreeMap<Str, Group>,
    effects: Effects,
    sweeps: Sweeps,
    /// [`SWEEP_ENTRIES_MAX`]; tests lower it.
    sweep_entries_max: usize,
    /// The metadata's, once it is known.
    topics: Option<KnownTopics>,
    /// The shard's; groups, members and offsets are charged to its coordinators.
    memory: Budget,
}

#[derive(Debug)]
struct Group {
    classic: ClassicGroup,
    offsets: Offsets,
    /// The memory of the offsets.
    charge: Charge,
    /// Its end is being written: nobody joins, nothing is committed until then.
    is_ending: bool,
}

impl Group {
    /// An empty group with this name, which holds no frame.
    fn new(id: Str, wall: WallMs, memory: &Budget) -> Self {
        let charge = || memory.empty_charge(BudgetClass::Coordinator);
        Self {
            classic: ClassicGroup::new(id, wall, charge()),
            offsets: Offsets::default(),
            charge: charge(),
            is_ending: false,
        }
    }

    /// A record of its offsets. Whether it took one away.
    fn apply(&mut self, topic: &Str, partition: i32, offset: Option<CommittedOffset>) -> bool {
        let is_tombstone = offset.is_none();
        let more = self.offsets.apply(topic, partition, offset);
        match u64::try_from(more) {
            Ok(more) => self.charge.grow_anyway(more),
            Err(_) => self.charge.shrink_by(more.unsigned_abs()),
        }
        is_tombstone && more < 0
    }

    /// Nothing would be lost with it: it has no members, no offsets, and the log does not know it.
    fn is_void(&self) -> bool {
        let classic = &self.classic;
        classic.state == GroupState::Empty
            && classic.generation == 0
            && classic.pending.is_empty()
            && self.offsets.is_empty()
            && classic.open_writes == 0
    }
}

impl GroupCoordinator {
    /// A coordinator without groups, which are charged to `memory`. The log is replayed into it, then it is started.
    #[must_use]
    pub fn new(settings: GroupSettings, memory: Budget) -> Self {
        Self {
            effects: Effects::new(&memory),
            memory,
            settings,
            groups: BTreeMap::new(),
            sweeps: Sweeps::default(),
            sweep_entries_max: SWEEP_ENTRIES_MAX,
            topics: None,
        }
    }

    /// A record of the log, while loading. Records of other kinds are passed over.
    ///
    /// # Errors
    /// When the record cannot be read; nothing is changed then.
    pub fn replay(&mut self, key: &Bytes, value: Option<&Bytes>, wall: WallMs) -> Result<(), DecodeError> {
        match GroupRecord::decode(key, value)? {
            Some(GroupRecord::Group {
                group,
                value: Some(value),
            }) => {
                let entry = self
                    .groups
                    .entry(group.detached())
                    .or_insert_with_key(|id| Group::new(id.clone(), wall, &self.memory));
                let charge = entry.classic.empty_charge();
                entry.classic =
                    ClassicGroup::recorded(entry.classic.id.clone(), &value, charge, &self.memory);
            }
            Some(record) => {
                self.apply(&record, wall);
            }
            None => {}
        }
        Ok(())
    }

    /// The log has been replayed: sessions begin. Offsets of topics that went meanwhile are looked for, and old ones later on.
    pub fn start(&mut self, now: Instant, wall: WallMs) {
        let (groups, mut turn) = self.turn(now, wall);
        groups.retain(|_, group| !group.is_void());
        for group in groups.values_mut() {
            for id in group.classic.ids() {
                group.classic.renew_session(&mut turn, &id);
            }
            if group.classic.len() > turn.settings.size_max {
                // The bound was lowered: the first to join again stay, the others are told (CG-6).
                group
                    .classic
                    .maybe_rebalance(&mut turn, RebalanceReason::SizeExceeded);
            }
        }
        let interval = turn.settings.offsets_check_interval;
        turn.effects.timers.set(now.after(interval), Timer::Expiry);
        if self.topics.is_some() {
            self.sweep_all(false, now);
        }
    }

    /// A request. Its answer comes out of [`Self::poll_output`], now or later.
    pub fn handle(&mut self, to: ReplyTo, request: GroupRequest, now: Instant, wall: WallMs) {
        match request {
            GroupRequest::Join {
                request,
                version,
                client,
                fresh,
            } => {
                let joining = Joining {
                    to,
                    request: &request,
                    version,
                    client: &client,
                    fresh,
                };
                self.join(&joining, now, wall);
            }
            GroupRequest::Sync(request) => self.sync(to, &request, now, wall),
            GroupRequest::Heartbeat(request) => self.heartbeat(to, &request, now, wall),
            GroupRequest::Leave(request) => self.leave(to, &request, now, wall),
            GroupRequest::Commit(commit) => self.commit(to, &commit, now, wall),
            GroupRequest::Fetch(asked) => self.fetch(to, &asked),
            GroupRequest::DeleteOffsets { group, topics } => {
                self.delete_offsets(to, &group, &topics, now, wall)
            }
            GroupRequest::Describe(id) => self.describe(to, &id),
            GroupRequest::List => self.list(to),
            GroupRequest::Delete(id) => self.delete(to, &id, now, wall),
        }
    }

    /// An append is done: its records are below the high watermark, or it failed. Appends are done in their order.
    pub fn handle_written(
        &mut self,
        write: WriteId,
        outcome: Result<(), ErrorCode>,
        now: Instant,
        wall: WallMs,
    ) {
        // What it held is given back, what stays is charged as it is applied.
        let done = self.effects.writes.pop(write);
        let outcome = outcome.map_err(told_to_members);
        if outcome.is_ok() {
            let gone = done.records.iter().filter(|record| self.apply(record, wall));
            let gone = gone.count() as u64;
            self.effects.counters.count(&done, gone);
            match done.then {
                Then::Deleted { .. } => self.effects.news.add(&done.group, Happened::Deleted(gone)),
                Then::Ended => self.effects.news.add(&done.group, Happened::Expired(gone)),
                Then::OffsetsDeleted { .. } => {
                    self.effects.news.add(&done.group, Happened::OffsetsDeleted(gone));
                }
                _ => {}
            }
        }
        self.written(done, outcome, now, wall);
    }

    /// What is due by `now`.
    pub fn handle_time(&mut self, now: Instant, wall: WallMs) {
        for due in self.effects.timers.due(now) {
            if !self.effects.timers.take(&due) {
                continue;
            }
            match due.1 {
                Timer::Session { group, member } => {
                    self.with(&group, now, wall, |g, turn| g.session_timer_fired(turn, &member));
                }
                Timer::Pending { group, member } => {
                    self.with(&group, now, wall, |g, turn| g.pending_timer_fired(turn, &member));
                    self.drop_void(&group);
                }
                Timer::Join { group } => self.with(&group, now, wall, |g, turn| g.join_deadline_passed(turn)),
                Timer::Sync { group } => self.with(&group, now, wall, |g, turn| g.sync_deadline_passed(turn)),
                Timer::Expiry => {
                    let next = now.after(self.settings.offsets_check_interval);
                    self.effects.timers.set(next, Timer::Expiry);
                    self.sweep_all(true, now);
                }
                Timer::Sweep => self.sweep(now, wall),
            }
        }
    }

    /// When [`Self::handle_time`] has something to do next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.effects.timers.next()
    }

    /// This coordinator ends, another one takes over: the answers of all who wait.
    #[must_use]
    pub fn close(self) -> Vec<(ReplyTo, GroupReply)> {
        let error = ErrorCode::NOT_COORDINATOR;
        let mut replies = Vec::new();
        for write in self.effects.writes.into_all() {
            match write.then {
                Then::Committed { to, results, .. } => {
                    replies.push((to, GroupReply::Commit(unless_failed(results, Err(error)))));
                }
                Then::OffsetsDeleted { to, .. } => replies.push((to, GroupReply::DeleteOffsets(Err(error)))),
                Then::Deleted { to } => replies.push((to, deletion(&write.group, Err(error)))),
                Then::Renamed(rename) => replies.push((rename.to, join::refusal(error, &rename.new))),
                Then::Assigned { .. } | Then::Ended | Then::Expired | Then::Nothing => {}
            }
        }
        for member in self.groups.values().flat_map(|g| g.classic.members()) {
            replies.extend(member.join.map(|to| (to, join::refusal(error, &member.id))));
            replies.extend(member.sync.map(|to| (to, sync::refusal(error))));
        }
        replies
    }

    /// The next thing to do; to be drained after each call of the above.
    pub fn poll_output(&mut self) -> Option<GroupOutput> {
        self.effects.outputs.pop_front()
    }

    /// What has happened since this was asked last.
    pub fn take_news(&mut self) -> News {
        std::mem::take(&mut self.effects.news)
    }

    /// A group of which something was refused for lack of memory since this was asked last.
    pub fn take_short(&mut self) -> Option<Str> {
        self.effects.short.take()
    }

    fn reply(&mut self, to: ReplyTo, reply: GroupReply) {
        self.effects.outputs.push_back(GroupOutput::Reply { to, reply });
    }

    fn turn(&mut self, now: Instant, wall: WallMs) -> (&mut BTreeMap<Str, Group>, Turn<'_>) {
        let turn = Turn {
            settings: &self.settings,
            memory: &self.memory,
            effects: &mut self.effects,
            now,
            wall,
        };
        (&mut self.groups, turn)
    }

    /// A group that members of it ask for: one that does not exist has no members.
    fn existing(
        &mut self,
        id: &Str,
        now: Instant,
        wall: WallMs,
    ) -> (Result<&mut Group, ErrorCode>, Turn<'_>) {
        let (groups, turn) = self.turn(now, wall);
        let group = match groups.get_mut(id) {
            _ if id.is_empty() => Err(ErrorCode::INVALID_GROUP_ID),
            None => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            Some(group) if group.is_ending => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Some(group) => Ok(group),
        };
        (group, turn)
    }

    fn with(
        &mut self,
        id: &Str,
        now: Instant,
        wall: WallMs,
        act: impl FnOnce(&mut ClassicGroup, &mut Turn<'_>),
    ) {
        let (groups, mut turn) = self.turn(now, wall);
        if let Some(group) = groups.get_mut(id) {
            act(&mut group.classic, &mut turn);
        }
    }

    /// A group that came into being for nothing goes.
    fn drop_void(&mut self, id: &Str) {
        if self.groups.get(id).is_some_and(Group::is_void) {
            self.groups.remove(id);
        }
    }

    fn join(&mut self, joining: &Joining<'_>, now: Instant, wall: WallMs) {
        let request = joining.request;
        if let Err(error) = self.check_join(request) {
            return self.reply(joining.to, join::refusal(error, &request.member_id));
        }
        let (groups, mut turn) = self.turn(now, wall);
        let memory = turn.memory;
        groups
            .entry(request.group_id.detached())
            .or_insert_with_key(|id| Group::new(id.clone(), wall, memory))
            .classic
            .join(&mut turn, joining);
        self.drop_void(&request.group_id);
    }

    fn sync(&mut self, to: ReplyTo, request: &SyncGroupRequest, now: Instant, wall: WallMs) {
        let (group, mut turn) = self.existing(&request.group_id, now, wall);
        match group {
            Ok(group) => group.classic.sync(&mut turn, to, request),
            Err(error) => turn.reply(to, sync::refusal(error)),
        }
    }

    fn heartbeat(&mut self, to: ReplyTo, request: &HeartbeatRequest, now: Instant, wall: WallMs) {
        let (group, mut turn) = self.existing(&request.group_id, now, wall);
        let outcome = group.and_then(|group| group.classic.heartbeat(&mut turn, request));
        turn.reply(to, GroupReply::Heartbeat(outcome.err().unwrap_or_default()));
    }

    fn leave(&mut self, to: ReplyTo, request: &LeaveGroupRequest, now: Instant, wall: WallMs) {
        let (group, mut turn) = self.existing(&request.group_id, now, wall);
        let answer = match group {
            Ok(group) => group.classic.leave(&mut turn, request),
            // Of a group that is not there nobody is a member.
            Err(ErrorCode::UNKNOWN_MEMBER_ID) => session::unknown_to_all(request),
            Err(error_code) => LeaveGroupResponse {
                error_code,
                ..LeaveGroupResponse::default()
            },
        };
        turn.reply(to, GroupReply::Leave(answer));
        self.drop_void(&request.group_id);
    }

    fn fetch(&mut self, to: ReplyTo, asked: &OffsetFetch) {
        let nothing = Offsets::default();
        let offsets = self.groups.get(&asked.group).map_or(&nothing, |g| &g.offsets);
        let found = offsets.fetch(asked);
        self.reply(to, GroupReply::Fetch(found));
    }

    fn check_join(&self, request: &JoinGroupRequest) -> Result<(), ErrorCode> {
        if request.group_id.is_empty() {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let session = member::millis(request.session_timeout_ms);
        if session < self.settings.session_timeout_min || session > self.settings.session_timeout_max {
            return Err(ErrorCode::INVALID_SESSION_TIMEOUT);
        }
        match self.groups.get(&request.group_id) {
            Some(group) if group.is_ending => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            None if !request.member_id.is_empty() => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            _ => Ok(()),
        }
    }

    /// A record takes effect. Whether it took an offset away.
    fn apply(&mut self, record: &GroupRecord, wall: WallMs) -> bool {
        match record {
            GroupRecord::Offset {
                group,
                topic,
                partition,
                offset,
            } => {
                if let Some(group) = self.groups.get_mut(group) {
                    return group.apply(topic, *partition, offset.clone());
                }
                if offset.is_some() {
                    let id = group.detached();
                    let mut new = Group::new(id.clone(), wall, &self.memory);
                    new.apply(topic, *partition, offset.clone());
                    self.groups.insert(id, new);
                }
            }
            GroupRecord::Group { group, value: None } => {
                if let Some(entry) = self.groups.get_mut(group) {
                    entry.classic.forget(wall);
                }
            }
            // Members took effect before (an empty generation, a new id), or do with `Then::Assigned`.
            GroupRecord::Group { value: Some(_), .. } => {}
        }
        false
    }

    fn written(&mut self, done: Write, outcome: Result<(), ErrorCode>, now: Instant, wall: WallMs) {
        let (groups, mut turn) = self.turn(now, wall);
        let group = groups
            .get_mut(&done.group)
            .expect("a group with appends under way stays");
        group.classic.open_writes -= 1;
        // A group that has lost its last offset to an operator is there until it grows old, or is deleted (BR-006).
        let stays = matches!(done.then, Then::OffsetsDeleted { .. });
        match done.then {
            Then::Committed { to, results, .. } => {
                turn.reply(to, GroupReply::Commit(unless_failed(results, outcome)));
            }
            Then::OffsetsDeleted { to, results } => {
                turn.reply(to, GroupReply::DeleteOffsets(outcome.map(|()| results)));
            }
            Then::Deleted { to } => {
                group.is_ending = false;
                turn.reply(to, deletion(&done.group, outcome));
            }
            Then::Assigned { generation } => {
                group
                    .classic
                    .assigned(&mut turn, generation, done.records.first(), outcome);
            }
            Then::Renamed(rename) => group.classic.renamed(&mut turn, *rename, outcome),
            Then::Ended => group.is_ending = false,
            Then::Expired | Then::Nothing => {}
        }
        if !stays {
            self.drop_void(&done.group);
        }
    }
}

/// Appends records of a group, if there are any.
fn append(turn: &mut Turn<'_>, group: &mut Group, records: Vec<GroupRecord>, then: Then) {
    if !records.is_empty() {
        group.classic.append(turn, records, then);
    }
}

fn unless_failed(mut results: ByTopic<ErrorCode>, outcome: Result<(), ErrorCode>) -> ByTopic<ErrorCode> {
    if let Err(error) = outcome {
        let accepted = results
            .iter_mut()
            .flat_map(|(_, partitions)| partitions)
            .filter(|(_, result)| *result == ErrorCode::NONE);
        accepted.for_each(|(_, result)| *result = error);
    }
    results
}

fn deletion(id: &Str, outcome: Result<(), ErrorCode>) -> GroupReply {
    GroupReply::Delete(DeletableGroupResult {
        group_id: id.clone(),
        error_code: outcome.err().unwrap_or_default(),
    })
}

/// What members are told when the log refused their records.
fn told_to_members(error: ErrorCode) -> ErrorCode {
    match error {
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::KAFKA_STORAGE_ERROR => ErrorCode::NOT_COORDINATOR,
        ErrorCode::NOT_ENOUGH_REPLICAS
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => ErrorCode::UNKNOWN_SERVER_ERROR,
        other => other,
    }
}

#[cfg(test)]
mod tests;
