//! Sessions: heartbeats keep them, silence and LeaveGroup end them (CG-23…26, CG-32).

use std::time::Duration;

use protocol::messages::heartbeat::HeartbeatRequest;
use protocol::messages::leave_group::{
    LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse,
};
use protocol::{ErrorCode, Str};

use super::classic::{ClassicGroup, GroupState};
use super::news::{Departure, Happened, MemberName};
use super::stats::RebalanceReason;
use super::timers::Timer;
use super::turn::Turn;
use crate::env::Instant;

/// Shortest time in which a member can be missed, whatever timeout it has chosen.
const WORD_MIN: Duration = Duration::from_millis(100);

/// The answer to a LeaveGroup none of whose members is one.
pub(super) fn unknown_to_all(request: &LeaveGroupRequest) -> LeaveGroupResponse {
    let stranger = |identity: &MemberIdentity| MemberResponse {
        member_id: identity.member_id.clone(),
        group_instance_id: identity.group_instance_id.clone(),
        error_code: ErrorCode::UNKNOWN_MEMBER_ID,
    };
    LeaveGroupResponse {
        members: request.members.iter().map(stranger).collect(),
        ..LeaveGroupResponse::default()
    }
}

impl ClassicGroup {
    /// A Heartbeat.
    ///
    /// # Errors
    /// What the member is to be told instead of NONE.
    pub(super) fn heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        request: &HeartbeatRequest,
    ) -> Result<(), ErrorCode> {
        if self.state == GroupState::Empty {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        self.renew_session(turn, &request.member_id);
        if self.state == GroupState::PreparingRebalance {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }

    /// A LeaveGroup, with the error of each member in the answer.
    pub(super) fn leave(&mut self, turn: &mut Turn<'_>, request: &LeaveGroupRequest) -> LeaveGroupResponse {
        let before = self.len() + self.pending.len();
        let members = request
            .members
            .iter()
            .map(|identity| MemberResponse {
                member_id: identity.member_id.clone(),
                group_instance_id: identity.group_instance_id.clone(),
                error_code: self.leave_one(turn, identity).err().unwrap_or_default(),
            })
            .collect();
        if self.len() + self.pending.len() < before {
            self.members_changed(turn, RebalanceReason::MemberLeft);
        }
        LeaveGroupResponse {
            members,
            ..LeaveGroupResponse::default()
        }
    }

    fn leave_one(&mut self, turn: &mut Turn<'_>, identity: &MemberIdentity) -> Result<(), ErrorCode> {
        let id = match &identity.group_instance_id {
            // An operator takes an instance out without knowing its member id (CG-25).
            Some(instance) if identity.member_id.is_empty() => self
                .instance(instance)
                .cloned()
                .ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?,
            _ if self.drop_pending(turn, &identity.member_id) => return Ok(()),
            instance => {
                self.check_member(&identity.member_id, instance.as_ref())?;
                identity.member_id.clone()
            }
        };
        self.take_out(turn, &id, Departure::Left);
        Ok(())
    }

    /// A member is out; what it waits for is answered.
    pub(super) fn take_out(&mut self, turn: &mut Turn<'_>, id: &Str, why: Departure) {
        if let Some(to) = self.take_join(id) {
            turn.reply(to, super::join::refusal(ErrorCode::UNKNOWN_MEMBER_ID, id));
        }
        if let Some(to) = self.member_mut(id).and_then(|m| m.sync.take()) {
            turn.reply(to, super::sync::refusal(ErrorCode::UNKNOWN_MEMBER_ID));
        }
        self.drop_member(turn, id, why);
    }

    /// A member that waits for nothing is out.
    pub(super) fn drop_member(&mut self, turn: &mut Turn<'_>, id: &Str, why: Departure) {
        self.disarm(turn, id);
        if let Some(member) = self.remove(id) {
            self.tell(turn, Happened::Out(MemberName::from(&member), why));
        }
    }

    /// Members left: the others are called to join, or all that are left have.
    fn members_changed(&mut self, turn: &mut Turn<'_>, reason: RebalanceReason) {
        match self.state {
            GroupState::Empty => {}
            GroupState::Stable | GroupState::CompletingRebalance => {
                self.rebalance(turn, reason);
                self.maybe_end_join_phase(turn);
            }
            GroupState::PreparingRebalance => self.maybe_end_join_phase(turn),
        }
    }

    /// The member was heard of: its session lasts from now on.
    pub(super) fn renew_session(&mut self, turn: &mut Turn<'_>, id: &str) {
        if let Some(member) = self.member(id) {
            let timeout = member.session_timeout;
            self.expect_word(turn, id, timeout);
        }
    }

    /// The member is to be heard of within `timeout`. Its timer is moved only if it would look too late.
    pub(super) fn expect_word(&mut self, turn: &mut Turn<'_>, id: &str, timeout: Duration) {
        let group = self.id.clone();
        let Some(member) = self.member_mut(id) else {
            return;
        };
        member.session_end = turn.now.after(timeout.max(WORD_MIN));
        if member.session_end < member.timer {
            let timer = |member: Str| Timer::Session { group, member };
            turn.effects
                .timers
                .cancel(member.timer, timer.clone()(member.id.clone()));
            member.timer = member.session_end;
            turn.effects.timers.set(member.timer, timer(member.id.clone()));
        }
    }

    /// A member's timer is needed no longer.
    pub(super) fn disarm(&mut self, turn: &mut Turn<'_>, id: &str) {
        let group = self.id.clone();
        if let Some(member) = self.member_mut(id) {
            let timer = Timer::Session {
                group,
                member: member.id.clone(),
            };
            turn.effects.timers.cancel(member.timer, timer);
            member.timer = Instant::NEVER;
        }
    }

    /// A member's timer fired: its session is over, or it is looked at again when it would be.
    pub(super) fn session_timer_fired(&mut self, turn: &mut Turn<'_>, id: &Str) {
        let now = turn.now;
        let Some(member) = self.member_mut(id) else { return };
        member.timer = Instant::NEVER;
        if member.is_waiting() && !member.is_new {
            // It waits for us. Its session begins anew with the answer.
            return self.renew_session(turn, &id.clone());
        }
        if member.session_end > now {
            let left = member.session_end.since(now);
            return self.expect_word(turn, id, left);
        }
        self.take_out(turn, id, Departure::SessionExpired);
        self.members_changed(turn, RebalanceReason::SessionExpired);
    }

    /// An id that was given out was not taken up in time.
    pub(super) fn pending_timer_fired(&mut self, turn: &mut Turn<'_>, id: &str) {
        if self.take_promise(id).is_some() && self.state == GroupState::PreparingRebalance {
            self.maybe_end_join_phase(turn);
        }
    }
}
