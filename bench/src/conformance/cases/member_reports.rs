//! What people have reported about groups and their members on brokers of all kinds (BR-006…130), each with its kind: the same
//! in other versions, states and APIs.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use protocol::Str;
use protocol::messages::delete_groups::DeleteGroupsRequest;
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use protocol::messages::list_groups::ListGroupsRequest;
use protocol::messages::sync_group::SyncGroupRequest;

use super::group_offsets::{commit_of, delete_of, fetch_of};
use super::groups::{
    JOIN_VERSION, begin_on, describe_of, group, heartbeat_of, join_of, leave_of, leave_one, protocols,
    second, sync_of, until_empty, until_members,
};
use crate::conformance::Case;
use crate::conformance::dialogue::{Dialogue, Topic};
use crate::conformance::target::{GROUPS, Setup};
use crate::conformance::wire::Wire;
use crate::error::Result;

/// The topic of the groups cannot be made: it wants more brokers than there are.
static NO_COORDINATOR: Setup = Setup {
    name: "no-coordinator",
    overrides: &["offsets.topic.replication.factor=3"],
    restarts: false,
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "BR-006 groups that are not there, without members, with members",
        absent_and_empty,
    )
    .on(&GROUPS),
    Case::new("BR-023 commits in each state of a group", commits_by_state).on(&GROUPS),
    Case::new("BR-063 joins that nobody waits for", abandoned_joins).on(&GROUPS),
    Case::new("BR-064 who has no protocol in common", no_common_protocol).on(&GROUPS),
    Case::new("BR-112 ten keys for FindCoordinator, groups without a name", keys).on(&GROUPS),
    Case::new("BR-127 no coordinator at all (BR-059)", no_coordinator).on(&NO_COORDINATOR),
];

/// The metadata of a consumer that subscribes to a topic, version 0 without user data.
pub(super) fn subscription(topic: &str) -> Bytes {
    let length = u16::try_from(topic.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[0, 0, 0, 0, 0, 1], &length[..], topic.as_bytes(), &[0xff; 4]]
        .concat()
        .into()
}

/// A stable group of one member that subscribes to a topic; its id.
pub(super) fn subscriber(d: &mut Dialogue<'_>, group: &Str, topic: &Topic, session_ms: i32) -> Result<Str> {
    let mut join = join_of(group, &Str::new());
    join.session_timeout_ms = session_ms;
    join.protocols = vec![JoinGroupRequestProtocol {
        name: "range".into(),
        metadata: subscription(&topic.name),
    }];
    let member = d.quiet(3, &join)?.member_id;
    d.knows_member(&member);
    d.quiet(5, &sync_of(group, 1, &member, &[(&member, b"all")]))?;
    Ok(member)
}

fn deletion(groups: &[&Str]) -> DeleteGroupsRequest {
    DeleteGroupsRequest {
        groups_names: groups.iter().map(|name| (*name).clone()).collect(),
    }
}

/// What ListGroups tells of one group, with these filters.
fn listed(
    d: &mut Dialogue<'_>,
    version: i16,
    group: &Str,
    states: &[&'static str],
    types: &[&'static str],
) -> Result<()> {
    let words = |list: &[&'static str]| list.iter().map(|word| Str::from_static(word)).collect();
    let request = ListGroupsRequest {
        states_filter: words(states),
        types_filter: words(types),
    };
    let mut answer = d.quiet(version, &request)?;
    answer.groups.retain(|g| g.group_id == *group);
    d.show(&format!("listed by {states:?} {types:?}"), &answer);
    Ok(())
}

fn absent_and_empty(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 2, &[])?;
    let other = d.topic("u", 1, &[])?;
    let nope = group(d, "nope")?;
    for version in [5, 6] {
        d.ask("nobody knows it", version, &describe_of(&[&nope]))?;
    }
    for version in [8, 9] {
        let simple = group(d, &format!("simple{version}"))?;
        d.ask("of a new group", version, &commit_of(&simple, &topic, &[(0, 5)]))?;
        for version in [5, 6] {
            d.ask("offsets, no members ever", version, &describe_of(&[&simple]))?;
        }
        listed(d, 4, &simple, &["Empty"], &[])?;
        listed(d, 5, &simple, &[], &["classic"])?;
        listed(d, 5, &simple, &["Stable"], &["classic"])?;
        d.ask("its only offset", 0, &delete_of(&simple, &[(&topic, &[0])]))?;
        d.ask("without offsets", 6, &describe_of(&[&simple]))?;
        d.ask("without offsets", 2, &deletion(&[&simple]))?;
        d.ask("it is gone", 6, &describe_of(&[&simple]))?;
    }
    let group = group(d, "g")?;
    let member = subscriber(d, &group, &topic, 10_000)?;
    let mut commit = commit_of(&group, &other, &[(0, 6)]);
    commit.generation_id_or_member_epoch = 1;
    commit.member_id = member.clone();
    d.ask("by its member", 8, &commit)?;
    for version in [5, 8, 9] {
        let commit = commit_of(&group, &topic, &[(0, 5)]);
        d.ask("past its member", version, &commit)?;
    }
    d.ask(
        "one topic is subscribed to",
        0,
        &delete_of(&group, &[(&topic, &[0, 1]), (&other, &[0])]),
    )?;
    d.ask("with a member", 2, &deletion(&[&nope, &group]))?;
    d.quiet(5, &leave_one(5, &group, &member))?;
    for version in [5, 6] {
        d.ask("without members", version, &describe_of(&[&group]))?;
    }
    d.ask("without members", 9, &commit_of(&group, &topic, &[(0, 5)]))?;
    d.ask("without members", 0, &delete_of(&group, &[(&topic, &[0])]))?;
    d.ask("without members", 2, &deletion(&[&nope, &group, &nope]))?;
    d.ask("it is gone", 7, &fetch_of(7, &group, None))?;
    Ok(())
}

/// A commit of a member in a generation.
fn commit_by(d: &mut Dialogue<'_>, what: &str, topic: &Topic, group: &Str, by: (i32, &Str)) -> Result<()> {
    let mut commit = commit_of(group, topic, &[(0, 5)]);
    (commit.generation_id_or_member_epoch, commit.member_id) = (by.0, by.1.clone());
    d.ask(&format!("{what}, generation {}", by.0), 8, &commit)?;
    Ok(())
}

fn commits_by_state(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 1, &[])?;
    let group = group(d, "g")?;
    let leader = begin_on(d, &group)?;
    commit_by(d, "before it joins", &topic, &group, (0, &leader))?;
    d.quiet(JOIN_VERSION, &join_of(&group, &leader))?;
    commit_by(d, "before the assignment", &topic, &group, (1, &leader))?;
    d.ask("before the assignment", 4, &heartbeat_of(&group, 1, &leader))?;
    d.quiet(5, &sync_of(&group, 1, &leader, &[]))?;
    for version in 2..=10 {
        for generation in [0, 1, 2] {
            let mut commit = commit_of(&group, &topic, &[(0, 5)]);
            commit.generation_id_or_member_epoch = generation;
            commit.member_id = leader.clone();
            d.ask(&format!("stable, generation {generation}"), version, &commit)?;
        }
    }
    let (mut wire, mut follower, mut id) = second(d, &group)?;
    d.ask("somebody joins", 4, &heartbeat_of(&group, 1, &leader))?;
    for generation in [0, 1, 2] {
        commit_by(d, "somebody joins", &topic, &group, (generation, &leader))?;
    }
    commit_by(d, "who joins", &topic, &group, (1, &follower))?;
    d.quiet(JOIN_VERSION, &join_of(&group, &leader))?;
    wire.receive::<JoinGroupRequest>(JOIN_VERSION, id)?;
    d.ask("both have joined", 4, &heartbeat_of(&group, 2, &leader))?;
    for generation in [1, 2] {
        commit_by(d, "both have joined", &topic, &group, (generation, &leader))?;
        commit_by(d, "the follower", &topic, &group, (generation, &follower))?;
    }
    d.quiet(5, &sync_of(&group, 2, &leader, &[]))?;
    id = wire.send(5, &sync_of(&group, 2, &follower, &[]))?;
    wire.receive::<SyncGroupRequest>(5, id)?;
    commit_by(d, "both are in", &topic, &group, (2, &follower))?;
    d.quiet(5, &leave_one(5, &group, &leader))?;
    commit_by(d, "it has left", &topic, &group, (2, &leader))?;
    commit_by(d, "who is left", &topic, &group, (2, &follower))?;
    // Alone and with a short session: commits keep it as heartbeats do.
    let mut join = join_of(&group, &follower);
    join.session_timeout_ms = 6_000;
    follower = d.quiet(JOIN_VERSION, &join)?.member_id;
    d.quiet(5, &sync_of(&group, 3, &follower, &[]))?;
    for round in 0..3 {
        // In two halves, each far from the six seconds of the session; together they are longer than it.
        std::thread::sleep(Duration::from_millis(1_750));
        let mut commit = commit_of(&group, &topic, &[(0, 5)]);
        (commit.generation_id_or_member_epoch, commit.member_id) = (3, follower.clone());
        d.quiet(8, &commit)?;
        std::thread::sleep(Duration::from_millis(1_750));
        commit_by(
            d,
            &format!("only commits, round {round}"),
            &topic,
            &group,
            (3, &follower),
        )?;
    }
    std::thread::sleep(Duration::from_millis(8_000));
    until_empty(d, &group)?;
    commit_by(d, "its session is over", &topic, &group, (3, &follower))?;
    d.ask("nobody is left", 6, &describe_of(&[&group]))?;
    Ok(())
}

fn abandoned_joins(d: &mut Dialogue<'_>) -> Result<()> {
    for version in [4, 5, 9] {
        let group = group(d, &format!("v{version}"))?;
        let mut ids = BTreeSet::new();
        let mut last = JoinGroupResponse::default();
        for _ in 0..50 {
            let mut wire = d.connect()?;
            let id = wire.send(version, &join_of(&group, &Str::new()))?;
            last = wire.receive::<JoinGroupRequest>(version, id)?;
            ids.insert(last.member_id.clone());
        }
        d.note(&format!(
            "50 joins of version {version}: {} ids, {:?}",
            ids.len(),
            last.error_code
        ));
        d.ask("one takes its id up", version, &join_of(&group, &last.member_id))?;
        let sync = sync_of(&group, 1, &last.member_id, &[(&last.member_id, b"all")]);
        d.ask("its assignment", 5, &sync)?;
        d.ask("one member", 5, &describe_of(&[&group]))?;
    }
    let group = group(d, "v3")?;
    let mut join = join_of(&group, &Str::new());
    join.session_timeout_ms = 6_000;
    for members in 1..=5 {
        let mut wire = d.connect()?;
        wire.send(3, &join)?;
        until_members(d, &group, members)?;
    }
    let told = d.quiet(5, &describe_of(&[&group]))?;
    d.note(&format!(
        "old clients: {} members, {}",
        told.groups[0].members.len(),
        told.groups[0].group_state
    ));
    std::thread::sleep(Duration::from_millis(16_000));
    until_empty(d, &group)?;
    d.ask("their sessions are over", 5, &describe_of(&[&group]))?;
    let joined = d.ask("one more", 3, &join)?;
    d.note(&format!("{} members", joined.members.len()));
    Ok(())
}

/// Joins on a connection of its own in version 3, to be answered later, as one of so many members.
fn join_later(
    d: &mut Dialogue<'_>,
    group: &Str,
    list: &[(&'static str, &'static [u8])],
    members: usize,
) -> Result<(Wire, i32)> {
    let mut wire = d.connect()?;
    let mut join = join_of(group, &Str::new());
    join.protocols = protocols(list);
    let id = wire.send(3, &join)?;
    until_members(d, group, members)?;
    Ok((wire, id))
}

fn no_common_protocol(d: &mut Dialogue<'_>) -> Result<()> {
    let tied = group(d, "tied")?;
    let mut first = join_of(&tied, &Str::new());
    first.protocols = protocols(&[("range", b"1"), ("coop", b"2")]);
    first.member_id = d.quiet(3, &first)?.member_id;
    let (mut wire, id) = join_later(d, &tied, &[("coop", b"3"), ("range", b"4")], 2)?;
    let told = d.quiet(3, &first)?.protocol_name;
    let other = wire.receive::<JoinGroupRequest>(3, id)?.protocol_name;
    d.note(&format!(
        "a tie is the same for both: {}",
        told.is_some() && told == other
    ));

    let group = group(d, "g")?;
    first.group_id = group.clone();
    first.member_id = Str::new();
    first.member_id = d.quiet(3, &first)?.member_id;
    let leader = first.member_id.clone();
    d.knows_member(&leader);
    let (mut second, second_id) = join_later(d, &group, &[("coop", b"3"), ("range", b"4")], 2)?;
    let (mut third, third_id) = join_later(d, &group, &[("range", b"5")], 3)?;
    let told = d.quiet(3, &first)?;
    d.note(&format!(
        "with one that knows range only: {:?}",
        told.protocol_name
    ));
    let mut members = vec![leader.clone()];
    for (wire, id) in [(&mut second, second_id), (&mut third, third_id)] {
        let told = wire.receive::<JoinGroupRequest>(3, id)?;
        d.knows_member(&told.member_id);
        members.push(told.member_id);
    }
    d.quiet(5, &sync_of(&group, 2, &leader, &[(&leader, b"all")]))?;
    for version in 0..=9 {
        for (label, kind, list) in [
            ("coop only", "consumer", &[("coop", b"6" as &[u8])][..]),
            ("another type", "connect", &[("range", b"7")]),
            ("no protocols", "consumer", &[]),
            ("no type", "", &[("range", b"8")]),
        ] {
            let mut join = join_of(&group, &Str::new());
            join.protocol_type = Str::from_static(kind);
            join.protocols = protocols(list);
            d.ask(label, version, &join)?;
        }
    }
    d.ask("not disturbed", 4, &heartbeat_of(&group, 2, &leader))?;
    let mut news = join_of(&group, &members[2]);
    news.protocols = protocols(&[("coop", b"9")]);
    d.ask("a member changes to what not all have", 3, &news)?;
    d.ask("not disturbed", 4, &heartbeat_of(&group, 2, &leader))?;
    let all: Vec<(&str, Option<&'static str>)> = members.iter().map(|m| (&**m, None)).collect();
    d.quiet(5, &leave_of(&group, &all))?;
    let mut join = join_of(&group, &Str::new());
    join.protocol_type = "connect".into();
    join.protocols = protocols(&[("coop", b"x")]);
    let id = d.ask("any type in an empty group", 5, &join)?.member_id;
    join.member_id = id;
    d.ask("any type in an empty group", 5, &join)?;
    Ok(())
}

fn keys(d: &mut Dialogue<'_>) -> Result<()> {
    let mut names: Vec<Str> = (0..9).map(|n| d.name(&format!("k{}", n * 7 % 9))).collect();
    group(d, "g")?;
    names.insert(4, Str::new());
    for (version, key_type) in [(4, 0), (5, 0), (6, 0), (4, 3), (6, -1)] {
        let request = FindCoordinatorRequest {
            key_type,
            coordinator_keys: names.clone(),
            ..Default::default()
        };
        let mut answer = d.quiet(version, &request)?;
        let is_in_order = answer.coordinators.iter().map(|c| &c.key).eq(&names);
        d.note(&format!(
            "version {version}, type {key_type}: in order {is_in_order}"
        ));
        answer.coordinators.truncate(5);
        d.show("the first five", &answer);
    }
    for (version, key_type) in [(0, 0), (1, 0), (3, 0), (3, 3), (3, -1)] {
        let request = FindCoordinatorRequest {
            key_type,
            ..Default::default()
        };
        d.ask(&format!("no name, type {key_type}"), version, &request)?;
    }
    let (none, member) = (Str::new(), Str::from("x"));
    for version in 0..=9 {
        d.ask("no name", version, &join_of(&none, &none))?;
        d.ask("no name", version, &join_of(&none, &member))?;
    }
    for version in 0..=5 {
        d.ask("no name", version, &leave_one(version, &none, &member))?;
        d.ask("no name", version, &sync_of(&none, 1, &member, &[]))?;
    }
    for version in 0..=4 {
        d.ask("no name", version, &heartbeat_of(&none, 1, &member))?;
    }
    for version in 0..=6 {
        d.ask("no name", version, &describe_of(&[&none]))?;
    }
    Ok(())
}

fn no_coordinator(d: &mut Dialogue<'_>) -> Result<()> {
    let topics = [d.topic("t", 2, &[])?, d.topic("u", 2, &[])?];
    let (group, member) = (d.name("g"), Str::from("x"));
    for version in 0..=6 {
        let mut request = FindCoordinatorRequest::default();
        if version < 4 {
            request.key = group.clone();
        } else {
            request.coordinator_keys = vec![group.clone(), Str::from("another")];
        }
        d.ask("a group", version, &request)?;
    }
    let both: Vec<(&Topic, &[i32])> = topics.iter().map(|t| (t, &[0, 1][..])).collect();
    for version in 1..=10 {
        d.ask("two topics", version, &fetch_of(version, &group, Some(&both)))?;
        if version >= 2 {
            d.ask("all", version, &fetch_of(version, &group, None))?;
        }
    }
    for version in 2..=10 {
        d.ask(
            "two partitions",
            version,
            &commit_of(&group, &topics[0], &[(0, 5), (1, 6)]),
        )?;
    }
    d.ask("two partitions", 0, &delete_of(&group, &both))?;
    for version in 0..=9 {
        d.ask("new", version, &join_of(&group, &Str::new()))?;
    }
    for version in 0..=5 {
        d.ask("a member", version, &sync_of(&group, 1, &member, &[]))?;
        d.ask("a member", version, &leave_one(version, &group, &member))?;
    }
    for version in 0..=4 {
        d.ask("a member", version, &heartbeat_of(&group, 1, &member))?;
    }
    for version in 0..=6 {
        d.ask("a group", version, &describe_of(&[&group]))?;
    }
    for version in 0..=5 {
        d.ask("all", version, &ListGroupsRequest::default())?;
    }
    for version in 0..=2 {
        d.ask("a group", version, &deletion(&[&group]))?;
    }
    Ok(())
}
