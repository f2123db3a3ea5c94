//! A classic group: who its members are, in which state and generation. Knows no timers and answers nobody; the
//! coordinator's parts (`join.rs`, `sync.rs`, `session.rs`) move it through its states.
//!
//! ```text
//! Empty ─ join ─► PreparingRebalance ─ all joined ─► CompletingRebalance ─ leader synced ─► Stable
//!   ▲                 ▲        │                             │                                │
//!   └── all left ─────┼────────┘◄── member left or changed ──┴────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::consumer_offsets::GroupMetadataValue;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponseMember};
use protocol::{ErrorCode, Str};

use super::member::{MEMBER_BYTES, Member, asked_bytes};
use super::record::GroupRecord;
use super::turn::{Then, Turn};
use crate::budget::{Budget, BudgetClass, Charge};
use crate::env::{Instant, WallMs};
use crate::message::ReplyTo;

/// The protocol type of consumers, whose metadata the coordinator reads (CG-48, CG-51).
pub(super) const CONSUMER: &str = "consumer";

/// A group's state (CG-60). A group that is gone is `Dead` to whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum GroupState {
    /// No members; it may have offsets.
    #[default]
    Empty,
    /// Members are called to join.
    PreparingRebalance,
    /// All have joined, the leader's assignment is awaited or being written.
    CompletingRebalance,
    /// Members work by their assignments.
    Stable,
}

impl GroupState {
    /// Its name in answers and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// What a group takes beside members and offsets, bytes: itself and its places in maps.
const GROUP_BYTES: u64 = 1024;

/// What an id that was given out takes beside its text, bytes, with its timer.
const PENDING_BYTES: u64 = 256;

/// What the members of one group may take is the shard's memory for coordinators divided by this: the others have the rest.
const GROUP_SHARE_DIVISOR: u64 = 4;

/// Members leave this part of all coordinators' memory to committed offsets.
const COMMITS_SHARE_DIVISOR: u64 = 4;

/// See the module. Takes [`GROUP_BYTES`], its names and its members ([`Member::bytes`]).
#[derive(Debug)]
pub(super) struct ClassicGroup {
    pub id: Str,
    pub state: GroupState,
    /// When it came into its state.
    pub since: WallMs,
    pub generation: i32,
    /// The kind of its members; none before the first has joined.
    pub protocol_type: Option<Str>,
    /// The protocol chosen for the generation.
    pub protocol: Option<Str>,
    pub leader: Option<Str>,
    members: BTreeMap<Str, Member>,
    /// Members whose JoinGroup waits, and protocols with the number of members that have them: kept, so that a join of a
    /// large group does not look at all its members.
    joined: usize,
    supported: BTreeMap<Str, usize>,
    /// Member ids by instance id.
    instances: BTreeMap<Str, Str>,
    /// The memory of the group and its members.
    charge: Charge,
    /// What of it is for the group's names.
    names_bytes: u64,
    /// Ids that were given out and not taken up yet, and until when (CG-2).
    pub pending: BTreeMap<Str, Instant>,
    /// Members of the generation that have not synced.
    pub unsynced: BTreeSet<Str>,
    /// Appends under way: as long, nothing of the group is taken for old.
    pub open_writes: usize,
    /// The leader's assignment is being written.
    pub is_assigning: bool,
    /// Topics that members of type `consumer` subscribe to, where it is known.
    pub subscribed: Option<BTreeSet<Str>>,
    /// Someone joined since the initial delay began.
    pub has_newcomers: bool,
    /// When the join phase ends at the latest, while there is one.
    pub join_deadline: Option<Instant>,
    /// What the initial delay may still be extended by; `None` outside an initial join phase.
    pub initial_left: Option<Duration>,
    /// When the rebalance began that is under way.
    pub rebalancing_since: Option<Instant>,
    /// When unsynced members are given up.
    pub sync_deadline: Option<Instant>,
}

impl ClassicGroup {
    /// An empty group, charged to `charge`, which is empty too.
    pub(super) fn new(id: Str, wall: WallMs, mut charge: Charge) -> Self {
        charge.grow_anyway(GROUP_BYTES);
        let mut group = Self {
            id,
            state: GroupState::Empty,
            since: wall,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            joined: 0,
            supported: BTreeMap::new(),
            instances: BTreeMap::new(),
            charge,
            names_bytes: 0,
            pending: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            open_writes: 0,
            is_assigning: false,
            subscribed: None,
            has_newcomers: false,
            join_deadline: None,
            initial_left: None,
            rebalancing_since: None,
            sync_deadline: None,
        };
        group.charge_names();
        group
    }

    /// A group as it was written, charged to `charge`, which is empty and of `memory`.
    pub(super) fn recorded(id: Str, value: &GroupMetadataValue, charge: Charge, memory: &Budget) -> Self {
        let mut group = Self {
            state: if value.members.is_empty() {
                GroupState::Empty
            } else {
                GroupState::Stable
            },
            generation: value.generation,
            protocol_type: (!value.protocol_type.is_empty()).then(|| value.protocol_type.detached()),
            protocol: value.protocol.as_ref().map(Str::detached),
            ..Self::new(id, WallMs(value.current_state_timestamp), charge)
        };
        for record in &value.members {
            group.insert(Member::recorded(record, value.protocol.as_ref()));
        }
        // The member's own id: nothing of the name is held twice.
        group.leader = value
            .leader
            .as_ref()
            .and_then(|leader| Some(group.members.get(leader)?.id.clone()));
        group.look_for_subscribed(memory);
        group
    }

    /// The group for the log, with copies of these assignments instead of its members' own where there are any.
    pub(super) fn record(&self, assignments: Option<&BTreeMap<Str, Bytes>>) -> GroupMetadataValue {
        let protocol = self.protocol.clone().unwrap_or_default();
        GroupMetadataValue {
            protocol_type: self.protocol_type.clone().unwrap_or_default(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            current_state_timestamp: self.since.0,
            members: self
                .members
                .values()
                .map(|member| {
                    let assignment = match assignments {
                        Some(all) => all
                            .get(&member.id)
                            .map(|assignment| Bytes::copy_from_slice(assignment))
                            .unwrap_or_default(),
                        None => member.assignment.clone(),
                    };
                    member.record(&protocol, assignment)
                })
                .collect(),
        }
    }

    /// Appends records, at least one.
    pub(super) fn append(&mut self, turn: &mut Turn<'_>, records: Vec<GroupRecord>, then: Then) {
        self.open_writes += 1;
        turn.append(&self.id, records, then);
    }

    /// The log does not know the group any longer.
    pub(super) fn forget(&mut self, wall: WallMs) {
        *self = Self {
            open_writes: self.open_writes,
            ..Self::new(self.id.clone(), wall, self.empty_charge())
        };
    }

    /// A charge of nothing, as this group's.
    pub(super) fn empty_charge(&mut self) -> Charge {
        self.charge.split(0)
    }

    /// What it takes, counted anew.
    #[cfg(test)]
    pub(super) fn recount(&self) -> u64 {
        let members = self.members.values().map(Member::bytes);
        let pending = self.pending.keys().map(|id| PENDING_BYTES + id.len() as u64);
        GROUP_BYTES + self.names() + members.sum::<u64>() + pending.sum::<u64>()
    }

    /// What its own names take, and those of topics its members subscribe to.
    fn names(&self) -> u64 {
        let of = |name: &Option<Str>| name.as_ref().map_or(0, |name| name.len());
        let own = self.id.len() + of(&self.protocol_type) + of(&self.protocol);
        own as u64 + self.subscribed_bytes()
    }

    /// To be called when a name has changed.
    pub(super) fn charge_names(&mut self) {
        let bytes = self.names();
        self.charge.change_anyway(self.names_bytes, bytes);
        self.names_bytes = bytes;
    }

    /// An id is given out until then.
    pub(super) fn promise(&mut self, id: Str, until: Instant) {
        self.charge.grow_anyway(PENDING_BYTES + id.len() as u64);
        self.pending.insert(id, until);
    }

    /// An id that was given out is taken up, or is not; until when it would have been good, if it was given out.
    pub(super) fn take_promise(&mut self, id: &str) -> Option<Instant> {
        let until = self.pending.remove(id)?;
        self.charge.shrink_by(PENDING_BYTES + id.len() as u64);
        Some(until)
    }

    /// Whether the shard has memory for what a JoinGroup says, and this group may have it.
    pub(super) fn has_memory(&self, turn: &Turn<'_>, request: &JoinGroupRequest) -> bool {
        let asked = asked_bytes(&request.protocols);
        let instance = request.group_instance_id.as_ref();
        let id = instance
            .and_then(|i| self.instance(i))
            .unwrap_or(&request.member_id);
        let more = match self.members.get(id) {
            Some(member) => asked.saturating_sub(member.protocols_bytes()),
            None => MEMBER_BYTES + asked,
        };
        self.may_grow(turn.memory, more)
    }

    /// Whether the group's members may take so many bytes more. The last part of the memory is for commits: members of other
    /// groups that say much must not keep a consumer from saying how far it is.
    pub(super) fn may_grow(&self, memory: &Budget, more: u64) -> bool {
        let all = memory.max_bytes(BudgetClass::Coordinator);
        let for_commits = all / COMMITS_SHARE_DIVISOR;
        more == 0
            || (self.charge.bytes().saturating_add(more) <= all / GROUP_SHARE_DIVISOR
                && memory.has_room(BudgetClass::Coordinator, more.saturating_add(for_commits)))
    }

    /// A member gets an assignment.
    pub(super) fn set_assignment(&mut self, id: &str, assignment: Bytes) {
        if let Some(member) = self.members.get_mut(id) {
            let before = std::mem::replace(&mut member.assignment, assignment).len();
            self.charge
                .change_anyway(before as u64, member.assignment.len() as u64);
        }
    }

    pub(super) fn enter(&mut self, state: GroupState, wall: WallMs) {
        self.state = state;
        self.since = wall;
    }

    /// A rebalance can begin.
    pub(super) fn can_rebalance(&self) -> bool {
        self.state != GroupState::PreparingRebalance
    }

    pub(super) fn is_leader(&self, member: &str) -> bool {
        self.leader.as_deref() == Some(member)
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub(super) fn ids(&self) -> Vec<Str> {
        self.members.keys().cloned().collect()
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    /// A member, to change its times or its waiting SyncGroup; what is counted or charged changes elsewhere.
    pub(super) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(super) fn instance(&self, instance: &str) -> Option<&Str> {
        self.instances.get(instance)
    }

    pub(super) fn all_have_joined(&self) -> bool {
        self.pending.is_empty() && self.joined == self.members.len()
    }

    /// A member's JoinGroup waits from now on; returns the one that did before.
    pub(super) fn await_join(&mut self, id: &str, to: ReplyTo) -> Option<ReplyTo> {
        let before = self.members.get_mut(id)?.join.replace(to);
        self.joined += usize::from(before.is_none());
        before
    }

    /// A member's JoinGroup is answered.
    pub(super) fn take_join(&mut self, id: &str) -> Option<ReplyTo> {
        let taken = self.members.get_mut(id)?.join.take();
        self.joined -= usize::from(taken.is_some());
        taken
    }

    /// A member says anew what it can do.
    pub(super) fn update(&mut self, id: &str, request: &JoinGroupRequest) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        count(&mut self.supported, member, false);
        let before = member.bytes();
        member.update(request);
        self.charge.change_anyway(before, member.bytes());
        count(&mut self.supported, member, true);
    }

    /// The longest time any member gives the others to join again.
    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.members
            .values()
            .map(|m| m.rebalance_timeout)
            .max()
            .unwrap_or_default()
    }

    /// Whether a member of this kind and with these protocols can be in the group (CG-5).
    pub(super) fn accepts(&self, request: &JoinGroupRequest) -> bool {
        if self.state == GroupState::Empty {
            return !request.protocol_type.is_empty() && !request.protocols.is_empty();
        }
        self.protocol_type.as_ref() == Some(&request.protocol_type)
            && request.protocols.iter().any(|p| self.is_common(&p.name))
    }

    /// Whether every member has a protocol.
    fn is_common(&self, protocol: &str) -> bool {
        self.supported.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    /// Whether there is room for the asker (CG-6). Who is in stays.
    pub(super) fn has_room(&self, member: &str, size_max: usize) -> bool {
        match self.state {
            GroupState::Empty => true,
            GroupState::PreparingRebalance => {
                self.members.get(member).is_some_and(|m| m.join.is_some()) || self.joined < size_max
            }
            GroupState::CompletingRebalance | GroupState::Stable => {
                self.members.contains_key(member) || self.members.len() < size_max
            }
        }
    }

    /// Whether this is a member by this id and instance id (CG-31).
    ///
    /// # Errors
    /// UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID.
    pub(super) fn check_member(&self, member: &str, instance: Option<&Str>) -> Result<(), ErrorCode> {
        if let Some(instance) = instance {
            return match self.instances.get(instance) {
                None => Err(ErrorCode::UNKNOWN_MEMBER_ID),
                Some(current) if current != member => Err(ErrorCode::FENCED_INSTANCE_ID),
                Some(_) => Ok(()),
            };
        }
        if self.members.contains_key(member) {
            Ok(())
        } else {
            Err(ErrorCode::UNKNOWN_MEMBER_ID)
        }
    }

    pub(super) fn add(&mut self, member: Member, protocol_type: &Str) {
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.detached());
            self.charge_names();
        }
        if self.leader.is_none() {
            self.leader = Some(member.id.clone());
        }
        self.take_promise(&member.id);
        self.insert(member);
    }

    fn insert(&mut self, member: Member) {
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), member.id.clone());
        }
        self.joined += usize::from(member.join.is_some());
        count(&mut self.supported, &member, true);
        self.charge.grow_anyway(member.bytes());
        if let Some(twice) = self.members.insert(member.id.clone(), member) {
            self.charge.shrink_by(twice.bytes());
        }
    }

    pub(super) fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        self.charge.shrink_by(member.bytes());
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        self.joined -= usize::from(member.join.is_some());
        count(&mut self.supported, &member, false);
        self.unsynced.remove(id);
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// The member of an instance gets another id, and whoever has the old one is fenced (CG-30).
    pub(super) fn rename(&mut self, old: &str, new: &Str) {
        let Some(mut member) = self.members.remove(old) else {
            return;
        };
        if self.is_leader(old) {
            self.leader = Some(new.clone());
        }
        if self.unsynced.remove(old) {
            self.unsynced.insert(new.clone());
        }
        if let Some(instance) = &member.instance {
            self.instances.insert(instance.clone(), new.clone());
        }
        let before = member.bytes();
        member.id = new.clone();
        self.charge.change_anyway(before, member.bytes());
        self.members.insert(new.clone(), member);
    }

    /// A member is as it was before an update again; its id stays.
    pub(super) fn restore(&mut self, id: &str, before: &Member) {
        if let Some(member) = self.members.get_mut(id) {
            count(&mut self.supported, member, false);
            let bytes = member.bytes();
            member.protocols.clone_from(&before.protocols);
            member.session_timeout = before.session_timeout;
            member.rebalance_timeout = before.rebalance_timeout;
            self.charge.change_anyway(bytes, member.bytes());
            count(&mut self.supported, member, true);
        }
    }

    /// If the leader has not joined, another member that has takes its place (CG-10). Whether one has.
    pub(super) fn elect_leader(&mut self) -> bool {
        let leads = |id: &Str| self.members.get(id).is_some_and(|m| m.join.is_some());
        if self.leader.as_ref().is_some_and(leads) {
            return true;
        }
        let next = self
            .members
            .values()
            .find(|m| m.join.is_some())
            .map(|m| m.id.clone());
        let found = next.is_some();
        if found {
            self.leader = next;
        }
        found
    }

    /// The join phase is over: a new generation (CG-12), empty if nobody is left.
    pub(super) fn next_generation(&mut self, turn: &Turn<'_>) {
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.unsynced.clear();
        self.is_assigning = false;
        self.protocol = self.choose_protocol();
        self.look_for_subscribed(turn.memory);
        let next = if self.members.is_empty() {
            GroupState::Empty
        } else {
            GroupState::CompletingRebalance
        };
        self.enter(next, turn.wall);
    }

    /// The protocol most members like best among those that all have (CG-11); of equals the one the leader likes more.
    pub(super) fn choose_protocol(&self) -> Option<Str> {
        let mut votes: BTreeMap<&Str, usize> = BTreeMap::new();
        for member in self.members.values() {
            if let Some((name, _)) = member.protocols.iter().find(|(name, _)| self.is_common(name)) {
                *votes.entry(name).or_default() += 1;
            }
        }
        let judge = self
            .leader
            .as_ref()
            .and_then(|id| self.members.get(id))
            .or_else(|| self.members.values().next())?;
        let mut best: Option<(&Str, usize)> = None;
        for (name, _) in &judge.protocols {
            let count = votes.get(name).copied().unwrap_or(0);
            if count > best.map_or(0, |(_, most)| most) {
                best = Some((name, count));
            }
        }
        best.map(|(name, _)| name.clone())
    }

    /// What the leader's JoinGroup answer lists.
    pub(super) fn member_list(&self) -> Vec<JoinGroupResponseMember> {
        let protocol = self.protocol.as_deref().unwrap_or_default();
        self.members
            .values()
            .map(|m| JoinGroupResponseMember {
                member_id: m.id.clone(),
                group_instance_id: m.instance.clone(),
                metadata: m.metadata_of(protocol),
            })
            .collect()
    }
}

/// Counts a member's protocols, which differ in their names, in or out.
fn count(supported: &mut BTreeMap<Str, usize>, member: &Member, is_in: bool) {
    for (name, _) in &member.protocols {
        if is_in {
            *supported.entry(name.clone()).or_default() += 1;
        } else if let Some(members) = supported.get_mut(name) {
            *members -= 1;
            if *members == 0 {
                supported.remove(name);
            }
        }
    }
}
