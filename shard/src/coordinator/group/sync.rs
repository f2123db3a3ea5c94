//! Syncing: the leader's assignment is written, then every member gets its part (CG-20…22).

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use protocol::{ErrorCode, Str};

use super::classic::{ClassicGroup, GroupState};
use super::news::{Departure, Happened};
use super::record::GroupRecord;
use super::request::GroupReply;
use super::stats::RebalanceReason;
use super::timers::Timer;
use super::turn::{Then, Turn};
use crate::message::ReplyTo;

/// The answer that refuses a SyncGroup.
pub(super) fn refusal(error: ErrorCode) -> GroupReply {
    GroupReply::Sync(SyncGroupResponse {
        error_code: error,
        ..SyncGroupResponse::default()
    })
}

impl ClassicGroup {
    /// A SyncGroup.
    pub(super) fn sync(&mut self, turn: &mut Turn<'_>, to: ReplyTo, request: &SyncGroupRequest) {
        if let Err(error) = self.check_sync(request) {
            return turn.reply(to, refusal(error));
        }
        let id = &request.member_id;
        if self.state == GroupState::Stable {
            // A follower may sync after the leader's assignment is written: it is not late.
            self.has_synced(turn, id);
            self.renew_session(turn, id);
            return self.answer_sync(turn, id, to);
        }
        let assigns = self.is_leader(id) && !self.is_assigning;
        if assigns && !turn.may_append() {
            turn.effects.refuse_for_memory(&self.id);
            // It joins again, is told the same generation, and tries again.
            return turn.reply(to, refusal(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        self.has_synced(turn, id);
        if let Some(before) = self.member_mut(id).and_then(|m| m.sync.replace(to)) {
            // Its client has given the earlier one up.
            turn.reply(before, refusal(ErrorCode::REBALANCE_IN_PROGRESS));
        }
        if assigns {
            self.write_assignment(turn, request);
        }
    }

    /// A member is not waited for any longer.
    fn has_synced(&mut self, turn: &mut Turn<'_>, id: &str) {
        self.unsynced.remove(id);
        if self.unsynced.is_empty() {
            self.cancel_sync_deadline(turn);
        }
    }

    fn check_sync(&self, request: &SyncGroupRequest) -> Result<(), ErrorCode> {
        self.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        let differs = |asked: &Option<Str>, is: &Option<Str>| asked.is_some() && asked != is;
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol)
        {
            return Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
        }
        match self.state {
            GroupState::Empty => Err(ErrorCode::UNKNOWN_MEMBER_ID),
            GroupState::PreparingRebalance => Err(ErrorCode::REBALANCE_IN_PROGRESS),
            GroupState::CompletingRebalance | GroupState::Stable => Ok(()),
        }
    }

    /// Members the leader leaves out get an empty assignment.
    fn write_assignment(&mut self, turn: &mut Turn<'_>, request: &SyncGroupRequest) {
        let assignments: BTreeMap<Str, Bytes> = request
            .assignments
            .iter()
            .map(|a| (a.member_id.clone(), a.assignment.clone()))
            .collect();
        if !self.may_grow(turn.memory, self.growth(&assignments)) {
            turn.effects.refuse_for_memory(&self.id);
            self.send_syncs_away(turn, ErrorCode::COORDINATOR_NOT_AVAILABLE);
            return self.maybe_rebalance(turn, RebalanceReason::AssignmentFailed);
        }
        let record = GroupRecord::Group {
            group: self.id.clone(),
            value: Some(self.record(Some(&assignments))),
        };
        self.is_assigning = true;
        let generation = self.generation;
        self.append(turn, vec![record], Then::Assigned { generation });
    }

    /// How many bytes more the assignments take than those that members have.
    fn growth(&self, assignments: &BTreeMap<Str, Bytes>) -> u64 {
        let new = |id: &Str| assignments.get(id).map_or(0, |assignment| assignment.len());
        let (new, old) = self.members().fold((0, 0), |(all, old), member| {
            (all + new(&member.id), old + member.assignment.len())
        });
        (new as u64).saturating_sub(old as u64)
    }

    /// The assignment of a generation is written, or it is not and the members are called again. Another generation may have
    /// begun since.
    pub(super) fn assigned(
        &mut self,
        turn: &mut Turn<'_>,
        generation: i32,
        record: Option<&GroupRecord>,
        outcome: Result<(), ErrorCode>,
    ) {
        if self.state != GroupState::CompletingRebalance || self.generation != generation {
            return;
        }
        self.is_assigning = false;
        if let Err(error) = outcome {
            self.send_syncs_away(turn, error);
            return self.maybe_rebalance(turn, RebalanceReason::AssignmentFailed);
        }
        if let Some(GroupRecord::Group {
            value: Some(written), ..
        }) = record
        {
            for of in &written.members {
                self.set_assignment(&of.member_id, of.assignment.clone());
            }
        }
        self.enter(GroupState::Stable, turn.wall);
        if let Some(since) = self.rebalancing_since.take() {
            let took = turn.now.since(since);
            turn.effects.counters.rebalances.record(took);
            let stable = Happened::Stable {
                generation,
                members: self.len(),
                protocol: self.protocol.clone().unwrap_or_default(),
                took,
            };
            self.tell(turn, stable);
        }
        for id in self.ids() {
            if let Some(to) = self.member_mut(&id).and_then(|m| m.sync.take()) {
                self.renew_session(turn, &id);
                self.answer_sync(turn, &id, to);
            }
        }
    }

    fn answer_sync(&mut self, turn: &mut Turn<'_>, id: &str, to: ReplyTo) {
        let answer = SyncGroupResponse {
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            assignment: self.member(id).map(|m| m.assignment.clone()).unwrap_or_default(),
            ..SyncGroupResponse::default()
        };
        turn.reply(to, GroupReply::Sync(answer));
    }

    /// The generation will not get its assignment.
    pub(super) fn send_syncs_away(&mut self, turn: &mut Turn<'_>, error: ErrorCode) {
        self.is_assigning = false;
        for id in self.ids() {
            self.set_assignment(&id, Bytes::new());
            if let Some(to) = self.member_mut(&id).and_then(|m| m.sync.take()) {
                self.renew_session(turn, &id);
                turn.reply(to, refusal(error));
            }
        }
    }

    /// Whoever has not synced by then is out (CG-22).
    pub(super) fn set_sync_deadline(&mut self, turn: &mut Turn<'_>) {
        self.cancel_sync_deadline(turn);
        let at = turn.now.after(self.rebalance_timeout());
        self.sync_deadline = Some(at);
        turn.effects.timers.set(at, self.sync_timer());
    }

    pub(super) fn cancel_sync_deadline(&mut self, turn: &mut Turn<'_>) {
        if let Some(at) = self.sync_deadline.take() {
            turn.effects.timers.cancel(at, self.sync_timer());
        }
    }

    fn sync_timer(&self) -> Timer {
        Timer::Sync {
            group: self.id.clone(),
        }
    }

    /// The time to sync is over.
    pub(super) fn sync_deadline_passed(&mut self, turn: &mut Turn<'_>) {
        if self.sync_deadline.take().is_none() {
            return;
        }
        let late: Vec<Str> = std::mem::take(&mut self.unsynced).into_iter().collect();
        if late.is_empty() {
            return;
        }
        for id in &late {
            self.drop_member(turn, id, Departure::SyncExpired);
        }
        self.maybe_rebalance(turn, RebalanceReason::SyncExpired);
        self.maybe_end_join_phase(turn);
    }
}
