//! Classic consumer groups: who joins, what members are told, when a rebalance begins and ends (CG-1…32, CG-60…63).

use std::time::Duration;

use bytes::Bytes;
use protocol::messages::delete_groups::DeleteGroupsRequest;
use protocol::messages::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponseDescribedGroup};
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::messages::heartbeat::HeartbeatRequest;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use protocol::messages::list_groups::ListGroupsRequest;
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use protocol::{ErrorCode, Str};

use crate::conformance::Case;
use crate::conformance::dialogue::Dialogue;
use crate::conformance::target::GROUPS;
use crate::conformance::wire::Wire;
use crate::error::{Result, failed};

pub(super) const CASES: &[Case] = &[
    Case::new("CG-1 session timeouts and empty names", bounds).on(&GROUPS),
    Case::new("CG-2 a new member in every version", new_members).on(&GROUPS),
    Case::new("CG-4 members nobody knows", unknown_members).on(&GROUPS),
    Case::new("CG-5 members that do not fit", misfits).on(&GROUPS),
    Case::new("CG-11 the protocol with the most votes", votes).on(&GROUPS),
    Case::new("CG-13 joining a stable group again", again).on(&GROUPS),
    Case::new("CG-14 joining again before the assignment", before_the_assignment).on(&GROUPS),
    Case::new("CG-20 wrong syncs", wrong_syncs).on(&GROUPS),
    Case::new("CG-21 assignments of two members", two_members).on(&GROUPS),
    Case::new("CG-23 heartbeats by state", heartbeats).on(&GROUPS),
    Case::new("CG-24 silence ends a session", silence).on(&GROUPS),
    Case::new("CG-25 leaving in every version", leaving).on(&GROUPS),
    Case::new("CG-30 an instance comes back", instances).on(&GROUPS),
    Case::new("CG-60 groups described in every version", described).on(&GROUPS),
    Case::new("CG-62 groups listed by state and type", listed).on(&GROUPS),
    Case::new("CG-52 groups deleted", deleted).on(&GROUPS),
];

/// Version of the requests that cases do not choose themselves.
pub(super) const JOIN_VERSION: i16 = 9;

/// A Join of a consumer with the protocol `range`.
pub(super) fn join_of(group: &Str, member: &Str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: group.clone(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: member.clone(),
        protocol_type: "consumer".into(),
        protocols: protocols(&[("range", b"one")]),
        ..Default::default()
    }
}

pub(super) fn protocols(list: &[(&'static str, &'static [u8])]) -> Vec<JoinGroupRequestProtocol> {
    list.iter()
        .map(|(name, metadata)| JoinGroupRequestProtocol {
            name: Str::from_static(name),
            metadata: Bytes::from_static(metadata),
        })
        .collect()
}

pub(super) fn sync_of(
    group: &Str,
    generation: i32,
    member: &Str,
    assign: &[(&Str, &'static [u8])],
) -> SyncGroupRequest {
    SyncGroupRequest {
        group_id: group.clone(),
        generation_id: generation,
        member_id: member.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: assign
            .iter()
            .map(|(member, assignment)| SyncGroupRequestAssignment {
                member_id: (*member).clone(),
                assignment: Bytes::from_static(assignment),
            })
            .collect(),
        ..Default::default()
    }
}

pub(super) fn heartbeat_of(group: &Str, generation: i32, member: &Str) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: group.clone(),
        generation_id: generation,
        member_id: member.clone(),
        ..Default::default()
    }
}

pub(super) fn describe_of(groups: &[&Str]) -> DescribeGroupsRequest {
    DescribeGroupsRequest {
        groups: groups.iter().map(|g| (*g).clone()).collect(),
        include_authorized_operations: false,
    }
}

/// A group of this case, whose coordinator answers.
pub(super) fn group(d: &mut Dialogue<'_>, short: &str) -> Result<Str> {
    let name = d.name(short);
    let find = FindCoordinatorRequest {
        coordinator_keys: vec![name.clone()],
        ..Default::default()
    };
    for _ in 0..200 {
        let found = d.quiet(4, &find)?;
        if found.coordinators.iter().all(|c| c.error_code == ErrorCode::NONE) {
            let told = d.quiet(5, &describe_of(&[&name]))?;
            if told.groups.iter().all(|g| g.error_code == ErrorCode::NONE) {
                return Ok(name);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    failed("no coordinator after ten seconds")
}

/// How often a group is looked at by [`until`], and how long there is between two looks.
const LOOKS_MAX: usize = 3_000;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until DescribeGroups tells that of a group: a request that is to be answered later has nothing else to say that it has
/// arrived, and a session that is over no other sign. Nothing of it is written down.
pub(super) fn until(
    d: &mut Dialogue<'_>,
    group: &Str,
    is_so: impl Fn(&DescribeGroupsResponseDescribedGroup) -> bool,
) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        let told = d.quiet(5, &describe_of(&[group]))?;
        if told.groups.first().is_some_and(&is_so) {
            return Ok(());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    failed("a group has not come to what it should within a minute")
}

/// Waits until a group has so many members: a new one is there when its Join waits.
pub(super) fn until_members(d: &mut Dialogue<'_>, group: &Str, count: usize) -> Result<()> {
    until(d, group, |told| told.members.len() == count)
}

/// Waits until somebody has called a group to join again.
fn until_rebalance(d: &mut Dialogue<'_>, group: &Str) -> Result<()> {
    until(d, group, |told| told.group_state == "PreparingRebalance")
}

/// Waits until the sessions of all members are over.
pub(super) fn until_empty(d: &mut Dialogue<'_>, group: &Str) -> Result<()> {
    until(d, group, |told| told.group_state == "Empty")
}

/// The first step of joining on a connection of its own: the id that a member is given.
pub(super) fn begin(d: &mut Dialogue<'_>, wire: &mut Wire, group: &Str) -> Result<Str> {
    let id = wire.send(JOIN_VERSION, &join_of(group, &Str::new()))?;
    let answer = wire.receive::<JoinGroupRequest>(JOIN_VERSION, id)?;
    d.knows_member(&answer.member_id);
    Ok(answer.member_id)
}

/// A second member of a group of one, on a connection of its own, whose Join waits for that of the first: connection, member id,
/// correlation id.
pub(super) fn second(d: &mut Dialogue<'_>, group: &Str) -> Result<(Wire, Str, i32)> {
    let mut wire = d.connect()?;
    let member = begin(d, &mut wire, group)?;
    let id = wire.send(JOIN_VERSION, &join_of(group, &member))?;
    until_members(d, group, 2)?;
    Ok((wire, member, id))
}

/// A stable group of one member; its id.
pub(super) fn stable(d: &mut Dialogue<'_>, group: &Str) -> Result<Str> {
    let member = begin_on(d, group)?;
    let joined = d.quiet(JOIN_VERSION, &join_of(group, &member))?;
    let sync = sync_of(group, joined.generation_id, &member, &[(&member, b"all")]);
    d.quiet(5, &sync)?;
    Ok(member)
}

pub(super) fn begin_on(d: &mut Dialogue<'_>, group: &Str) -> Result<Str> {
    let member = d.quiet(JOIN_VERSION, &join_of(group, &Str::new()))?.member_id;
    d.knows_member(&member);
    Ok(member)
}

fn bounds(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    for ms in [-1, 0, 5_999, 1_800_001, i32::MAX] {
        let mut join = join_of(&group, &Str::new());
        join.session_timeout_ms = ms;
        d.ask(&format!("session timeout {ms}"), JOIN_VERSION, &join)?;
        d.ask(&format!("session timeout {ms}"), 2, &join)?;
    }
    d.ask("no name", JOIN_VERSION, &join_of(&Str::new(), &Str::new()))?;
    d.ask("no name", 4, &heartbeat_of(&Str::new(), 1, &"x".into()))?;
    d.ask("no name", 5, &sync_of(&Str::new(), 1, &"x".into(), &[]))?;
    d.ask("no name", 5, &leave_of(&Str::new(), &[("x", None)]))?;
    d.ask("it is not there", 5, &describe_of(&[&group]))?;
    Ok(())
}

fn new_members(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=9 {
        let group = group(d, &format!("v{version}"))?;
        let mut join = join_of(&group, &Str::new());
        if version == 0 {
            join.rebalance_timeout_ms = -1;
        }
        let first = d.ask("without an id", version, &join)?;
        join.member_id = first.member_id.clone();
        if first.error_code == ErrorCode::MEMBER_ID_REQUIRED {
            d.ask("with the id", version, &join)?;
        }
        let sync = sync_of(&group, 1, &join.member_id, &[(&join.member_id, b"all")]);
        d.ask("its assignment", (version / 2 + 1).min(5), &sync)?;
        d.ask("what it is", 5, &describe_of(&[&group]))?;
    }
    Ok(())
}

fn unknown_members(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let nobody = Str::from("nobody");
    for label in ["no group", "a group"] {
        d.ask(label, JOIN_VERSION, &join_of(&group, &nobody))?;
        d.ask(label, 3, &join_of(&group, &nobody))?;
        d.ask(label, 4, &heartbeat_of(&group, 1, &nobody))?;
        d.ask(label, 5, &sync_of(&group, 1, &nobody, &[]))?;
        d.ask(
            label,
            5,
            &leave_of(
                &group,
                &[("nobody", None), ("", Some("i")), ("nobody", Some("i"))],
            ),
        )?;
        d.ask(label, 2, &leave_one(2, &group, &nobody))?;
        let mut instance = join_of(&group, &nobody);
        instance.group_instance_id = Some("i".into());
        d.ask(&format!("{label}, an instance"), JOIN_VERSION, &instance)?;
        if label == "no group" {
            stable(d, &group)?;
        }
    }
    Ok(())
}

fn misfits(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    for label in ["no group", "a group"] {
        let mut join = join_of(&group, &Str::new());
        join.protocols.clear();
        d.ask(&format!("{label}, no protocols"), JOIN_VERSION, &join)?;
        let mut join = join_of(&group, &Str::new());
        join.protocol_type = Str::new();
        d.ask(&format!("{label}, no type"), JOIN_VERSION, &join)?;
        if label == "no group" {
            stable(d, &group)?;
        }
    }
    let mut join = join_of(&group, &Str::new());
    join.protocol_type = "connect".into();
    d.ask("another type", JOIN_VERSION, &join)?;
    let mut join = join_of(&group, &Str::new());
    join.protocols = protocols(&[("sticky", b""), ("other", b"")]);
    d.ask("no common protocol", JOIN_VERSION, &join)?;
    d.ask("no common protocol", 3, &join)?;
    Ok(())
}

fn votes(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let mut first = join_of(&group, &Str::new());
    first.protocols = protocols(&[("a", b"1"), ("b", b"2"), ("c", b"3")]);
    let joined = d.ask("a, b, c", 3, &first)?;
    first.member_id = joined.member_id;
    let mut others: Vec<(Wire, i32)> = Vec::new();
    for list in [
        &[("b", b"4" as &[u8]), ("a", b"5")][..],
        &[("b", b"6"), ("a", b"7"), ("d", b"8")],
    ] {
        let mut wire = d.connect()?;
        let mut join = join_of(&group, &Str::new());
        join.protocols = protocols(list);
        let id = wire.send(3, &join)?;
        others.push((wire, id));
        until_members(d, &group, 1 + others.len())?;
    }
    let joined = d.quiet(3, &first)?;
    d.note(&format!(
        "chosen: {:?}, generation {}, members {}",
        joined.protocol_name,
        joined.generation_id,
        joined.members.len()
    ));
    for (mut wire, id) in others {
        let told = wire.receive::<JoinGroupRequest>(3, id)?;
        d.note(&format!(
            "another is told {:?} and {} members",
            told.protocol_name,
            told.members.len()
        ));
    }
    Ok(())
}

fn again(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let leader = stable(d, &group)?;
    let (mut wire, follower, id) = second(d, &group)?;
    d.ask(
        "the leader, for the second member",
        JOIN_VERSION,
        &join_of(&group, &leader),
    )?;
    let told = wire.receive::<JoinGroupRequest>(JOIN_VERSION, id)?;
    d.show("the follower", &told);
    let sync_id = wire.send(5, &sync_of(&group, 2, &follower, &[]))?;
    d.ask(
        "the leader",
        5,
        &sync_of(&group, 2, &leader, &[(&leader, b"one"), (&follower, b"two")]),
    )?;
    let told = wire.receive::<SyncGroupRequest>(5, sync_id)?;
    d.show("the follower", &told);
    let id = wire.send(JOIN_VERSION, &join_of(&group, &follower))?;
    let told = wire.receive::<JoinGroupRequest>(JOIN_VERSION, id)?;
    d.show("the follower again, without news", &told);
    let mut news = join_of(&group, &follower);
    news.protocols = protocols(&[("range", b"two")]);
    let id = wire.send(JOIN_VERSION, &news)?;
    until_rebalance(d, &group)?;
    d.ask("after news of the follower", 4, &heartbeat_of(&group, 2, &leader))?;
    d.ask("the leader", JOIN_VERSION, &join_of(&group, &leader))?;
    let told = wire.receive::<JoinGroupRequest>(JOIN_VERSION, id)?;
    d.show("the follower with news", &told);
    Ok(())
}

fn before_the_assignment(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let member = begin_on(d, &group)?;
    d.ask("joins", JOIN_VERSION, &join_of(&group, &member))?;
    d.ask("again, without news", JOIN_VERSION, &join_of(&group, &member))?;
    let mut news = join_of(&group, &member);
    news.protocols = protocols(&[("range", b"two")]);
    d.ask("again, with news", JOIN_VERSION, &news)?;
    d.ask(
        "of the first generation",
        5,
        &sync_of(&group, 1, &member, &[(&member, b"x")]),
    )?;
    d.ask(
        "of the second",
        5,
        &sync_of(&group, 2, &member, &[(&member, b"x")]),
    )?;
    d.ask("once more", 5, &sync_of(&group, 2, &member, &[(&member, b"y")]))?;
    Ok(())
}

fn wrong_syncs(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let member = begin_on(d, &group)?;
    d.quiet(JOIN_VERSION, &join_of(&group, &member))?;
    let good = sync_of(&group, 1, &member, &[(&member, b"x")]);
    d.ask("another generation", 5, &sync_of(&group, 7, &member, &[]))?;
    d.ask("another member", 5, &sync_of(&group, 1, &"x".into(), &[]))?;
    let mut wrong = good.clone();
    wrong.protocol_type = Some("connect".into());
    d.ask("another type", 5, &wrong)?;
    let mut wrong = good.clone();
    wrong.protocol_name = Some("sticky".into());
    d.ask("another protocol", 5, &wrong)?;
    let mut wrong = good.clone();
    wrong.group_instance_id = Some("i".into());
    d.ask("an instance that is none", 5, &wrong)?;
    for version in 0..=5 {
        d.ask("as it should be", version, &good)?;
    }
    Ok(())
}

fn two_members(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let leader = stable(d, &group)?;
    let (mut wire, follower, id) = second(d, &group)?;
    d.ask("in the join phase", 5, &sync_of(&group, 1, &leader, &[]))?;
    d.quiet(JOIN_VERSION, &join_of(&group, &leader))?;
    wire.receive::<JoinGroupRequest>(JOIN_VERSION, id)?;
    d.ask(
        "the follower is left out",
        5,
        &sync_of(&group, 2, &leader, &[(&leader, b"all")]),
    )?;
    let id = wire.send(5, &sync_of(&group, 2, &follower, &[]))?;
    let told = wire.receive::<SyncGroupRequest>(5, id)?;
    d.show("the follower", &told);
    d.ask("two members", 6, &describe_of(&[&group]))?;
    for (generation, member) in [(2, &leader), (1, &leader), (2, &Str::from_static("nobody"))] {
        let mut unsaid = sync_of(&group, generation, member, &[]);
        unsaid.protocol_name = None;
        d.ask("without a protocol name", 5, &unsaid)?;
        (unsaid.protocol_name, unsaid.protocol_type) = (unsaid.protocol_type, None);
        d.ask("without a protocol type", 5, &unsaid)?;
    }
    Ok(())
}

fn heartbeats(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let member = begin_on(d, &group)?;
    d.ask("not yet in", 4, &heartbeat_of(&group, 0, &member))?;
    d.quiet(JOIN_VERSION, &join_of(&group, &member))?;
    d.ask("before the assignment", 4, &heartbeat_of(&group, 1, &member))?;
    d.quiet(5, &sync_of(&group, 1, &member, &[]))?;
    for version in 0..=4 {
        d.ask("with the assignment", version, &heartbeat_of(&group, 1, &member))?;
    }
    d.ask("another generation", 4, &heartbeat_of(&group, 2, &member))?;
    let mut wire = d.connect()?;
    let other = begin(d, &mut wire, &group)?;
    d.ask("somebody has an id", 4, &heartbeat_of(&group, 1, &member))?;
    wire.send(JOIN_VERSION, &join_of(&group, &other))?;
    until_members(d, &group, 2)?;
    d.ask("somebody joins", 4, &heartbeat_of(&group, 1, &member))?;
    d.ask("who joins", 4, &heartbeat_of(&group, 1, &other))?;
    Ok(())
}

fn silence(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let mut join = join_of(&group, &begin_on(d, &group)?);
    join.session_timeout_ms = 6_000;
    d.quiet(JOIN_VERSION, &join)?;
    d.quiet(5, &sync_of(&group, 1, &join.member_id, &[]))?;
    let heartbeat = heartbeat_of(&group, 1, &join.member_id);
    // Two seconds each of a session of six: on a machine that stands still for a moment it is not over.
    std::thread::sleep(Duration::from_millis(2_000));
    d.quiet(4, &heartbeat)?;
    std::thread::sleep(Duration::from_millis(2_000));
    d.ask("after four seconds", 4, &heartbeat)?;
    std::thread::sleep(Duration::from_millis(8_000));
    until_empty(d, &group)?;
    d.ask("after eight more", 4, &heartbeat)?;
    d.ask("nobody is left", 6, &describe_of(&[&group]))?;
    d.ask("it joins with its old id", JOIN_VERSION, &join)?;
    Ok(())
}

pub(super) fn leave_of(group: &Str, members: &[(&str, Option<&'static str>)]) -> LeaveGroupRequest {
    LeaveGroupRequest {
        group_id: group.clone(),
        members: members
            .iter()
            .map(|(id, instance)| MemberIdentity {
                member_id: Str::from((*id).to_owned()),
                group_instance_id: instance.map(Str::from_static),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

/// A Leave of one member in the form of a version.
pub(super) fn leave_one(version: i16, group: &Str, member: &Str) -> LeaveGroupRequest {
    if version < 3 {
        return LeaveGroupRequest {
            group_id: group.clone(),
            member_id: member.clone(),
            ..Default::default()
        };
    }
    leave_of(group, &[(member, None)])
}

fn leaving(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=5 {
        let group = group(d, &format!("v{version}"))?;
        let member = stable(d, &group)?;
        d.ask(
            "somebody else",
            version,
            &leave_one(version, &group, &"nobody".into()),
        )?;
        d.ask("the member", version, &leave_one(version, &group, &member))?;
        d.ask("once more", version, &leave_one(version, &group, &member))?;
        d.ask("nobody is left", 6, &describe_of(&[&group]))?;
        let pending = begin_on(d, &group)?;
        d.ask(
            "an id that is not taken up",
            version,
            &leave_one(version, &group, &pending),
        )?;
    }
    Ok(())
}

fn instances(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let mut join = join_of(&group, &Str::new());
    join.group_instance_id = Some("i".into());
    let first = d.ask("comes", JOIN_VERSION, &join)?;
    let mut sync = sync_of(&group, 1, &first.member_id, &[(&first.member_id, b"all")]);
    sync.group_instance_id = Some("i".into());
    d.ask("its assignment", 5, &sync)?;
    let mut old = first.member_id;
    for version in [9, 8, 5] {
        let next = d.ask("comes back", version, &join)?;
        let mut heartbeat = heartbeat_of(&group, 1, &old);
        d.ask("the old id", 4, &heartbeat)?;
        heartbeat.group_instance_id = Some("i".into());
        d.ask("the old id with the instance", 4, &heartbeat)?;
        heartbeat.member_id = next.member_id.clone();
        d.ask("the new id with the instance", 4, &heartbeat)?;
        sync.member_id = next.member_id.clone();
        sync.assignments.clear();
        d.ask("its assignment", 5, &sync)?;
        old = next.member_id;
    }
    d.ask("one instance", 6, &describe_of(&[&group]))?;
    d.ask("another's id", 5, &leave_of(&group, &[("wrong", Some("i"))]))?;
    d.ask("by its name", 5, &leave_of(&group, &[("", Some("i"))]))?;
    d.ask("nobody is left", 6, &describe_of(&[&group]))?;
    Ok(())
}

fn described(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let nowhere = d.name("nowhere");
    for version in 0..=6 {
        d.ask("unknown", version, &describe_of(&[&nowhere]))?;
    }
    stable(d, &group)?;
    for version in 0..=6 {
        let mut describe = describe_of(&[&group]);
        describe.include_authorized_operations = version >= 3;
        d.ask("stable", version, &describe)?;
    }
    d.ask("two, one is unknown", 6, &describe_of(&[&group, &nowhere]))?;
    d.ask("none", 6, &describe_of(&[]))?;
    Ok(())
}

fn listed(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    stable(d, &group)?;
    let lists = |states: &[&'static str], types: &[&'static str]| ListGroupsRequest {
        states_filter: states.iter().map(|s| Str::from_static(s)).collect(),
        types_filter: types.iter().map(|s| Str::from_static(s)).collect(),
    };
    for version in 0..=5 {
        let mut answer = d.quiet(version, &lists(&[], &[]))?;
        answer.groups.retain(|g| g.group_id == group);
        d.show(&format!("version {version}"), &answer);
    }
    for (states, types) in [
        (&["Stable"][..], &[][..]),
        (&["stable"], &[]),
        (&["Empty", "Dead"], &[]),
        (&["nonsense"], &[]),
        (&[], &["classic"]),
        (&[], &["Classic"]),
        (&[], &["consumer"]),
        (&["Stable"], &["share", "classic"]),
        (&[], &["nonsense"]),
    ] {
        let mut answer = d.quiet(5, &lists(states, types))?;
        answer.groups.retain(|g| g.group_id == group);
        d.show(&format!("{states:?} {types:?}"), &answer);
    }
    Ok(())
}

fn deleted(d: &mut Dialogue<'_>) -> Result<()> {
    let group = group(d, "g")?;
    let delete = |names: &[&Str]| DeleteGroupsRequest {
        groups_names: names.iter().map(|n| (*n).clone()).collect(),
    };
    for version in 0..=2 {
        d.ask("unknown", version, &delete(&[&group]))?;
    }
    let member = stable(d, &group)?;
    d.ask("with a member", 2, &delete(&[&group]))?;
    d.quiet(5, &leave_one(5, &group, &member))?;
    d.ask("without", 2, &delete(&[&group]))?;
    d.ask("it is gone", 6, &describe_of(&[&group]))?;
    Ok(())
}
