//! Joining: who comes in, when a join phase begins and ends, and what members are told then (CG-1…14, CG-30).

use std::time::Duration;

use protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use protocol::{ErrorCode, Str, Uuid};

use super::classic::{ClassicGroup, GroupState};
use super::member::{Member, NEW_MEMBER_TIMEOUT, millis};
use super::news::{Departure, Happened, MemberName};
use super::record::GroupRecord;
use super::request::{ClientIdentity, GroupReply};
use super::stats::RebalanceReason;
use super::timers::Timer;
use super::turn::{Then, Turn};
use crate::message::ReplyTo;

/// Ids of one group that are given out and not taken up; beyond it the one that expires first is forgotten.
const PENDING_MAX: usize = 10_000;

/// Shortest time before a join phase that nobody attended begins again.
const JOIN_AGAIN_MIN: Duration = Duration::from_secs(1);

/// Characters of a UUID with hyphens.
const UUID_CHARS: usize = 36;

/// A JoinGroup and who waits for its answer.
pub(super) struct Joining<'a> {
    pub to: ReplyTo,
    pub request: &'a JoinGroupRequest,
    pub version: i16,
    pub client: &'a ClientIdentity,
    pub fresh: Uuid,
}

/// An instance's member that came back under a new id in a stable group: what to answer when that is written, and what to
/// restore if it cannot be.
#[derive(Debug)]
pub(super) struct Rename {
    pub to: ReplyTo,
    pub before: Member,
    pub new: Str,
    pub answer: JoinGroupResponse,
}

/// The answer that refuses a JoinGroup.
pub(super) fn refusal(error: ErrorCode, member: &Str) -> GroupReply {
    GroupReply::Join(JoinGroupResponse {
        error_code: error,
        generation_id: -1,
        member_id: member.clone(),
        protocol_name: None,
        ..JoinGroupResponse::default()
    })
}

impl ClassicGroup {
    /// A JoinGroup whose session timeout is within its bounds.
    pub(super) fn join(&mut self, turn: &mut Turn<'_>, joining: &Joining<'_>) {
        let request = joining.request;
        let outcome = if !self.has_room(&request.member_id, turn.settings.size_max) {
            // Whoever is refused a place is not waited for, also if it had one before the bound was lowered.
            self.drop_pending(turn, &request.member_id);
            self.take_out(turn, &request.member_id, Departure::SizeExceeded);
            Err(ErrorCode::GROUP_MAX_SIZE_REACHED)
        } else if !self.accepts(request) {
            Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
        } else if !self.has_memory(turn, request) {
            turn.effects.refuse_for_memory(&self.id);
            Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)
        } else if request.member_id.is_empty() {
            self.join_anew(turn, joining)
        } else {
            self.join_again(turn, joining)
        };
        if let Err(error) = outcome {
            // Whoever finds the group full has no id in it, as in Kafka.
            let is_full = error == ErrorCode::GROUP_MAX_SIZE_REACHED;
            let member = if is_full { &Str::new() } else { &request.member_id };
            turn.reply(joining.to, refusal(error, member));
        }
        if self.state == GroupState::PreparingRebalance {
            self.maybe_end_join_phase(turn);
        }
    }

    fn join_anew(&mut self, turn: &mut Turn<'_>, joining: &Joining<'_>) -> Result<(), ErrorCode> {
        let request = joining.request;
        let name = request
            .group_instance_id
            .as_ref()
            .unwrap_or(&joining.client.client_id);
        let id = Str::from(format!("{}-{}", name_part(name), hyphenated(joining.fresh)));
        match &request.group_instance_id {
            Some(instance) => match self.instance(instance).cloned() {
                Some(_) if self.state == GroupState::Stable && !turn.may_append() => {
                    turn.effects.refuse_for_memory(&self.id);
                    return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
                }
                Some(old) => self.replace_member(turn, joining, &old, id),
                None => self.add_member(turn, joining, id),
            },
            None if joining.version >= 4 => self.hand_out(turn, joining, &id),
            None => self.add_member(turn, joining, id),
        }
        Ok(())
    }

    /// Tells a new member its id; it joins with that next (KIP-394).
    fn hand_out(&mut self, turn: &mut Turn<'_>, joining: &Joining<'_>, id: &Str) {
        if self.pending.len() >= PENDING_MAX
            && let Some((oldest, at)) = self
                .pending
                .iter()
                .min_by_key(|(_, at)| **at)
                .map(|(oldest, at)| (oldest.clone(), *at))
        {
            self.take_promise(&oldest);
            turn.effects.timers.cancel(at, self.pending_timer(oldest));
        }
        let until = turn.now.after(millis(joining.request.session_timeout_ms));
        self.promise(id.clone(), until);
        turn.effects.timers.set(until, self.pending_timer(id.clone()));
        turn.reply(joining.to, refusal(ErrorCode::MEMBER_ID_REQUIRED, id));
    }

    fn pending_timer(&self, member: Str) -> Timer {
        Timer::Pending {
            group: self.id.clone(),
            member,
        }
    }

    /// Forgets an id that was given out. Whether there was one.
    pub(super) fn drop_pending(&mut self, turn: &mut Turn<'_>, id: &Str) -> bool {
        let Some(until) = self.take_promise(id) else {
            return false;
        };
        turn.effects.timers.cancel(until, self.pending_timer(id.clone()));
        true
    }

    fn join_again(&mut self, turn: &mut Turn<'_>, joining: &Joining<'_>) -> Result<(), ErrorCode> {
        let request = joining.request;
        let id = &request.member_id;
        if self.pending.contains_key(id) && request.group_instance_id.is_none() {
            self.drop_pending(turn, id);
            self.add_member(turn, joining, id.detached());
            return Ok(());
        }
        self.check_member(id, request.group_instance_id.as_ref())?;
        let member = self.member(id).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        let says_nothing_new = member.matches(&request.protocols);
        match self.state {
            GroupState::Empty => return Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::CompletingRebalance if says_nothing_new => {
                let answer = self.answer_of(id);
                turn.reply(joining.to, GroupReply::Join(answer));
            }
            GroupState::Stable if says_nothing_new && !self.is_leader(id) => {
                let answer = self.answer_of(id);
                turn.reply(joining.to, GroupReply::Join(answer));
            }
            GroupState::PreparingRebalance | GroupState::CompletingRebalance | GroupState::Stable => {
                self.update(id, request);
                self.park_join(turn, id, joining.to);
                self.maybe_rebalance(turn, RebalanceReason::MemberChanged);
            }
        }
        Ok(())
    }

    fn add_member(&mut self, turn: &mut Turn<'_>, joining: &Joining<'_>, id: Str) {
        let mut member = Member::joining(id.clone(), joining.request, joining.client);
        member.join = Some(joining.to);
        if self.initial_left.is_some() {
            self.has_newcomers = true;
        }
        self.tell(turn, Happened::Joined(MemberName::from(&member)));
        self.add(member, &joining.request.protocol_type);
        self.expect_word(turn, &id, NEW_MEMBER_TIMEOUT);
        self.maybe_rebalance(turn, RebalanceReason::MemberJoined);
    }

    /// A JoinGroup waits; an earlier one of the same member is sent away, its client has given it up.
    fn park_join(&mut self, turn: &mut Turn<'_>, id: &Str, to: ReplyTo) {
        if let Some(before) = self.await_join(id, to) {
            turn.reply(before, refusal(ErrorCode::REBALANCE_IN_PROGRESS, id));
        }
    }

    /// An instance comes back without its member id: it gets a new one, and whoever has the old one is fenced (CG-30).
    fn replace_member(&mut self, turn: &mut Turn<'_>, joining: &Joining<'_>, old: &Str, new: Str) {
        let Some(before) = self.member(old).cloned() else {
            return;
        };
        if let Some(waiting) = self.take_join(old) {
            turn.reply(waiting, refusal(ErrorCode::FENCED_INSTANCE_ID, old));
        }
        if let Some(waiting) = self.member_mut(old).and_then(|m| m.sync.take()) {
            turn.reply(waiting, super::sync::refusal(ErrorCode::FENCED_INSTANCE_ID));
        }
        self.disarm(turn, old);
        self.rename(old, &new);
        self.update(&new, joining.request);
        if let Some(member) = self.member_mut(&new) {
            // Its instance was in the group before it: however long it waits now, its silence is ours.
            member.is_new = false;
            let (member, old) = (MemberName::from(&*member), old.clone());
            self.tell(turn, Happened::Replaced { member, old });
        }
        self.renew_session(turn, &new);
        match self.state {
            GroupState::Stable if self.choose_protocol() == self.protocol => {
                self.write_rename(turn, joining, before, new);
            }
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.await_join(&new, joining.to);
                self.rebalance(turn, RebalanceReason::InstanceReplaced);
            }
            GroupState::PreparingRebalance | GroupState::Empty => {
                self.await_join(&new, joining.to);
            }
        }
    }

    fn write_rename(&mut self, turn: &mut Turn<'_>, joining: &Joining<'_>, before: Member, new: Str) {
        let mut answer = self.answer_of(&new);
        let leads = self.is_leader(&new);
        if joining.version >= 9 {
            // It leads on, and its members have their assignments: nothing is to be decided (KIP-814).
            answer.skip_assignment = leads;
        } else {
            // A client that cannot skip must not take itself for the leader.
            answer.members.clear();
            if leads {
                answer.leader = before.id.clone();
            }
        }
        let record = GroupRecord::Group {
            group: self.id.clone(),
            value: Some(self.record(None)),
        };
        let rename = Rename {
            to: joining.to,
            before,
            new,
            answer,
        };
        self.append(turn, vec![record], Then::Renamed(Box::new(rename)));
    }

    /// The new id of an instance is written, or it is not and the old one counts again.
    pub(super) fn renamed(&mut self, turn: &mut Turn<'_>, rename: Rename, outcome: Result<(), ErrorCode>) {
        let Rename {
            to,
            before,
            new,
            answer,
        } = rename;
        let Err(error) = outcome else {
            // It has waited for the log: its session begins with the answer. A slow log may have outlasted it, or another one of its
            // instance come meanwhile.
            let told = match before.instance.as_ref().and_then(|i| self.instance(i)) {
                Some(current) if *current == new => GroupReply::Join(answer),
                Some(_) => refusal(ErrorCode::FENCED_INSTANCE_ID, &new),
                None => refusal(ErrorCode::UNKNOWN_MEMBER_ID, &new),
            };
            self.renew_session(turn, &new);
            return turn.reply(to, told);
        };
        if self.state == GroupState::Stable && self.member(&new).is_some() {
            self.disarm(turn, &new);
            self.rename(&new, &before.id);
            self.restore(&before.id, &before);
            self.renew_session(turn, &before.id);
        }
        turn.reply(to, refusal(error, &new));
    }

    /// What a member is told about the generation as it stands.
    fn answer_of(&self, id: &Str) -> JoinGroupResponse {
        let leads = self.is_leader(id);
        JoinGroupResponse {
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: Some(self.protocol.clone().unwrap_or_default()),
            leader: self.leader.clone().unwrap_or_default(),
            member_id: id.clone(),
            members: if leads { self.member_list() } else { Vec::new() },
            ..JoinGroupResponse::default()
        }
    }

    /// Begins a rebalance unless one has begun.
    pub(super) fn maybe_rebalance(&mut self, turn: &mut Turn<'_>, reason: RebalanceReason) {
        if self.can_rebalance() {
            self.rebalance(turn, reason);
        }
    }

    /// Begins a join phase: of an empty group with a delay for others to come (CG-7), else until all members have joined
    /// again or the longest rebalance timeout is over (CG-8).
    pub(super) fn rebalance(&mut self, turn: &mut Turn<'_>, reason: RebalanceReason) {
        turn.effects.counters.begun(reason);
        let begun = Happened::RebalanceBegun {
            generation: self.generation,
            reason,
            members: self.len(),
        };
        self.tell(turn, begun);
        self.rebalancing_since.get_or_insert(turn.now);
        if self.state == GroupState::CompletingRebalance {
            self.send_syncs_away(turn, ErrorCode::REBALANCE_IN_PROGRESS);
        }
        self.cancel_sync_deadline(turn);
        self.unsynced.clear();
        let rebalance_timeout = self.rebalance_timeout();
        if self.state == GroupState::Empty {
            let delay = turn.settings.initial_rebalance_delay;
            self.has_newcomers = false;
            self.initial_left = Some(rebalance_timeout.saturating_sub(delay));
            self.set_join_deadline(turn, delay);
        } else {
            self.set_join_deadline(turn, rebalance_timeout);
        }
        self.enter(GroupState::PreparingRebalance, turn.wall);
    }

    fn set_join_deadline(&mut self, turn: &mut Turn<'_>, after: Duration) {
        self.cancel_join_deadline(turn);
        let at = turn.now.after(after);
        self.join_deadline = Some(at);
        turn.effects.timers.set(at, self.join_timer());
    }

    fn cancel_join_deadline(&mut self, turn: &mut Turn<'_>) {
        if let Some(at) = self.join_deadline.take() {
            turn.effects.timers.cancel(at, self.join_timer());
        }
    }

    fn join_timer(&self) -> Timer {
        Timer::Join {
            group: self.id.clone(),
        }
    }

    /// The join phase ends as soon as all have joined; an initial one waits for its delay.
    pub(super) fn maybe_end_join_phase(&mut self, turn: &mut Turn<'_>) {
        if self.initial_left.is_none() && self.all_have_joined() {
            self.end_join_phase(turn);
        }
    }

    /// The time of the join phase is over.
    pub(super) fn join_deadline_passed(&mut self, turn: &mut Turn<'_>) {
        self.join_deadline = None;
        if self.state != GroupState::PreparingRebalance {
            return;
        }
        if let Some(left) = self.initial_left
            && self.has_newcomers
            && !left.is_zero()
        {
            let delay = turn.settings.initial_rebalance_delay.min(left);
            self.has_newcomers = false;
            self.initial_left = Some(left.saturating_sub(delay));
            self.set_join_deadline(turn, delay);
            return;
        }
        self.end_join_phase(turn);
    }

    fn end_join_phase(&mut self, turn: &mut Turn<'_>) {
        self.cancel_join_deadline(turn);
        self.initial_left = None;
        self.drop_absent(turn);
        if !self.elect_leader() && !self.is_empty() {
            // Only instances, and none has joined: they keep their places until their sessions end. Their clients choose
            // the timeout; without a floor none at all would be tried again for ever.
            let timeout = self.rebalance_timeout().max(JOIN_AGAIN_MIN);
            self.set_join_deadline(turn, timeout);
            return;
        }
        self.next_generation(turn);
        if self.is_empty() {
            self.rebalancing_since = None;
            let record = GroupRecord::Group {
                group: self.id.clone(),
                value: Some(self.record(None)),
            };
            self.append(turn, vec![record], Then::Nothing);
            return;
        }
        for id in self.ids() {
            if let Some(to) = self.take_join(&id) {
                turn.reply(to, GroupReply::Join(self.answer_of(&id)));
            }
            if let Some(member) = self.member_mut(&id) {
                member.is_new = false;
            }
            self.renew_session(turn, &id);
            self.unsynced.insert(id);
        }
        self.set_sync_deadline(turn);
    }

    /// Members that have not joined again are out, instances apart (CG-8).
    fn drop_absent(&mut self, turn: &mut Turn<'_>) {
        let absent: Vec<Str> = self
            .members()
            .filter(|m| m.join.is_none() && m.instance.is_none())
            .map(|m| m.id.clone())
            .collect();
        for id in absent {
            self.drop_member(turn, &id, Departure::JoinExpired);
        }
    }
}

/// The part of a member id that its client chooses. Kafka takes all of it, and can tell nobody of a member whose id is longer than a
/// string of the protocol.
fn name_part(name: &str) -> &str {
    let end = name.floor_char_boundary(i16::MAX as usize - "-".len() - UUID_CHARS);
    name.get(..end).unwrap_or(name)
}

/// A UUID as the RFC writes it (RFC 9562 §4): member ids end so, and people search for them.
fn hyphenated(id: Uuid) -> String {
    let hex = format!("{:032x}", id.as_u128());
    let (a, b, c, d, e) = (&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
    format!("{a}-{b}-{c}-{d}-{e}")
}
