//! Joining, syncing, sessions, instances (CG-1…32, CG-60…63).

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn sessions_outside_the_bounds_and_groups_without_a_name_are_refused() {
    let mut f = Fixture::new();
    for ms in [-1, 0, 5_999, 1_800_001, i32::MAX] {
        let to = f.join_with("", |r| r.session_timeout_ms = ms);
        assert_eq!(f.joined(to).error_code, ErrorCode::INVALID_SESSION_TIMEOUT);
    }
    let to = f.join_with("", |r| r.group_id = Str::new());
    assert_eq!(f.joined(to).error_code, ErrorCode::INVALID_GROUP_ID);
    assert!(
        f.coordinator.groups.is_empty(),
        "nothing is left of refused joins"
    );
}

#[test]
fn a_new_member_comes_twice_and_an_old_client_once() {
    let mut f = Fixture::new();
    let first = f.join("");
    let told = f.joined(first);
    assert_eq!(told.error_code, ErrorCode::MEMBER_ID_REQUIRED);
    assert!(told.member_id.starts_with("c-"), "{}", told.member_id);
    assert_eq!(told.generation_id, -1);
    let to = f.join(&told.member_id);
    assert!(f.take(to).is_none(), "it waits for others");
    let old = f.join_at(3, "", |_| {});
    assert!(f.take(old).is_none());
    f.pass(6 * SECOND);
    assert_eq!(f.joined(to).generation_id, 1);
    assert_eq!(f.joined(old).generation_id, 1);
}

/// BR-063.
#[test]
fn an_id_that_is_not_taken_up_is_forgotten() {
    let mut f = Fixture::new();
    let to = f.join("");
    let id = f.joined(to).member_id;
    f.pass(10 * SECOND);
    let to = f.join(&id);
    assert_eq!(f.joined(to).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    assert!(f.coordinator.groups.is_empty(), "and so is its group");
    assert_eq!(f.state(), "Dead");
}

/// BR-063.
#[test]
fn ids_given_out_in_a_storm_are_bounded() {
    let mut f = Fixture::new();
    for _ in 0..10_050 {
        let to = f.join("");
        f.take(to);
    }
    let group = &f.coordinator.groups["g"].classic;
    assert_eq!(group.pending.len(), 10_000);
}

#[test]
fn unknown_members_and_groups() {
    let mut f = Fixture::new();
    let to = f.join("nobody");
    assert_eq!(f.joined(to).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(f.heartbeat(&"nobody".into(), 1), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(f.leave("nobody", None), ErrorCode::UNKNOWN_MEMBER_ID);
    let to = f.sync(&"nobody".into(), 1, &[]);
    assert_eq!(f.synced(to).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    let ids = f.stable(1);
    let to = f.join("nobody");
    assert_eq!(f.joined(to).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(f.heartbeat(&ids[0], 0), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(f.heartbeat(&ids[0], 1), ErrorCode::NONE);
}

/// BR-064.
#[test]
fn members_of_another_kind_or_without_a_common_protocol_are_refused() {
    let mut f = Fixture::new();
    for change in [(|r| r.protocols.clear()) as fn(&mut JoinGroupRequest), |r| {
        r.protocol_type = Str::new()
    }] {
        let to = f.join_with("", change);
        assert_eq!(f.joined(to).error_code, ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    }
    f.stable(1);
    for change in [
        (|r| r.protocols = vec![protocol("sticky", b"")]) as fn(&mut JoinGroupRequest),
        |r| r.protocol_type = "connect".into(),
    ] {
        let to = f.join_with("", change);
        assert_eq!(f.joined(to).error_code, ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    }
}

/// BR-130.
#[test]
fn a_full_group_takes_nobody() {
    let mut f = Fixture::with(GroupSettings {
        size_max: 2,
        ..GroupSettings::default()
    });
    let ids = f.stable(2);
    let to = f.join("");
    assert_eq!(f.joined(to).error_code, ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert_eq!(f.heartbeat(&ids[1], 1), ErrorCode::NONE);
}

#[test]
fn the_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout() {
    let mut f = Fixture::new();
    let (_, first) = f.come();
    f.pass(2 * SECOND);
    assert!(f.take(first).is_none());
    // Each newcomer extends it by three seconds, but not beyond a minute.
    let mut joins = vec![first];
    for _ in 0..40 {
        joins.push(f.come().1);
        f.pass(2 * SECOND);
    }
    let answer = f.joined(joins[0]);
    assert!(
        (15..=32).contains(&answer.members.len()),
        "{}",
        answer.members.len()
    );
}

#[test]
fn without_newcomers_the_first_rebalance_ends_after_its_delay() {
    let mut f = Fixture::new();
    let (id, to) = f.come();
    f.pass(Duration::from_millis(2_999));
    assert!(f.take(to).is_none());
    f.pass(Duration::from_millis(1));
    let answer = f.joined(to);
    assert_eq!((answer.generation_id, &answer.leader), (1, &id));
    assert_eq!(answer.members.len(), 1);
    assert_eq!(answer.protocol_name.as_deref(), Some("range"));
}

#[test]
fn only_the_leader_sees_the_members() {
    let mut f = Fixture::new();
    let joins: Vec<_> = (0..3).map(|_| f.come()).collect();
    f.pass(6 * SECOND);
    let leader = &joins[0].0;
    for (id, to) in &joins {
        let answer = f.joined(*to);
        assert_eq!(answer.leader, *leader);
        assert_eq!(answer.members.len(), if id == leader { 3 } else { 0 });
    }
}

/// BR-064.
#[test]
fn the_protocol_with_the_most_votes_among_the_common_ones_is_chosen() {
    let mut f = Fixture::new();
    let wish = |names: &'static [&'static str]| {
        move |r: &mut JoinGroupRequest| r.protocols = names.iter().map(|n| protocol(n, b"")).collect()
    };
    let joins: Vec<_> = [&["a", "b", "c"][..], &["b", "a"], &["b", "a", "d"]]
        .into_iter()
        .map(|names| f.join_at(3, "", wish(names)))
        .collect();
    f.pass(6 * SECOND);
    for to in joins {
        assert_eq!(f.joined(to).protocol_name.as_deref(), Some("b"));
    }
}

#[test]
fn a_rebalance_ends_when_all_have_joined_again() {
    let mut f = Fixture::new();
    let ids = f.stable(2);
    let (_, newcomer) = f.come();
    assert_eq!(f.state(), "PreparingRebalance");
    assert_eq!(f.heartbeat(&ids[0], 1), ErrorCode::REBALANCE_IN_PROGRESS);
    let to = f.sync(&ids[0], 1, &[]);
    assert_eq!(f.synced(to).error_code, ErrorCode::REBALANCE_IN_PROGRESS);
    let first = f.join(&ids[0]);
    assert!(f.take(first).is_none());
    let second = f.join(&ids[1]);
    for to in [newcomer, first, second] {
        assert_eq!(f.joined(to).generation_id, 2);
    }
    assert_eq!(f.state(), "CompletingRebalance");
}

#[test]
fn who_does_not_join_again_is_out_and_instances_stay() {
    let mut f = Fixture::new();
    let instance = f.join_with("", |r| r.group_instance_id = Some("i".into()));
    let (gone, _) = f.come();
    f.pass(6 * SECOND);
    let leader = f.joined(instance).member_id;
    f.assign(&[leader.clone(), gone.clone()], 1);
    let (_, newcomer) = f.come();
    for _ in 0..59 {
        f.pass(SECOND);
        assert_eq!(f.heartbeat(&leader, 1), ErrorCode::REBALANCE_IN_PROGRESS);
        f.heartbeat(&gone, 1);
    }
    f.pass(SECOND);
    let answer = f.joined(newcomer);
    assert_eq!(answer.generation_id, 2);
    assert_eq!(answer.leader, answer.member_id, "of those who have joined");
    assert_eq!(answer.members.len(), 2, "the instance and the newcomer");
    assert_eq!(f.heartbeat(&gone, 2), ErrorCode::UNKNOWN_MEMBER_ID);
}

/// BR-063, clients before version 4.
#[test]
fn a_newcomer_that_waits_too_long_is_told_so() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    // The old member holds the group in its join phase by coming late each time: its timeout is ten minutes.
    let to = f.join_with(&ids[0], |r| r.rebalance_timeout_ms = 600_000);
    assert_eq!(f.joined(to).generation_id, 2);
    f.assign(&ids, 2);
    let (newcomer, to) = f.come();
    for _ in 0..299 {
        f.pass(SECOND);
        f.heartbeat(&ids[0], 2);
    }
    assert!(f.take(to).is_none());
    f.pass(SECOND);
    assert_eq!(f.joined(to).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    let to = f.join(&newcomer);
    assert_eq!(f.joined(to).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[test]
fn a_stable_group_rebalances_for_its_leader_and_for_news_only() {
    let mut f = Fixture::new();
    let ids = f.stable(2);
    let to = f.join(&ids[1]);
    let answer = f.joined(to);
    assert_eq!((answer.generation_id, answer.members.len()), (1, 0));
    let to = f.join_with(&ids[1], |r| r.protocols = vec![protocol("range", b"v2")]);
    assert!(f.take(to).is_none());
    let leader = f.join(&ids[0]);
    assert_eq!(f.joined(to).generation_id, 2);
    assert_eq!(f.joined(leader).generation_id, 2);
    f.assign(&ids, 2);
    let leader = f.join(&ids[0]);
    assert!(f.take(leader).is_none(), "the leader wants to assign anew");
    let follower = f.join(&ids[1]);
    assert_eq!(f.joined(leader).generation_id, 3);
    assert_eq!(f.joined(follower).generation_id, 3);
}

#[test]
fn while_the_assignment_is_awaited_only_news_begin_another_rebalance() {
    let mut f = Fixture::new();
    let joins: Vec<_> = (0..2).map(|_| f.come()).collect();
    f.pass(6 * SECOND);
    let waiting = f.sync(&joins[1].0, 1, &[]);
    let to = f.join(&joins[0].0);
    let answer = f.joined(to);
    assert_eq!((answer.generation_id, answer.members.len()), (1, 2));
    let to = f.join_with(&joins[0].0, |r| r.protocols = vec![protocol("range", b"v2")]);
    assert!(f.take(to).is_none());
    assert_eq!(f.synced(waiting).error_code, ErrorCode::REBALANCE_IN_PROGRESS);
}

#[test]
fn an_assignment_is_given_when_it_is_written() {
    let mut f = Fixture::new();
    let joins: Vec<_> = (0..2).map(|_| f.come()).collect();
    f.pass(6 * SECOND);
    let follower = f.sync(&joins[1].0, 1, &[]);
    let leader = f.sync(&joins[0].0, 1, &[joins[0].0.clone()]);
    assert!(f.take(leader).is_none() && f.take(follower).is_none());
    assert_eq!(f.state(), "CompletingRebalance");
    f.finish_writes();
    assert_eq!(f.synced(leader).assignment, *joins[0].0.as_bytes());
    assert!(f.synced(follower).assignment.is_empty(), "the leader left it out");
    assert_eq!(f.state(), "Stable");
    let again = f.sync(&joins[0].0, 1, &[]);
    assert_eq!(f.synced(again).assignment, *joins[0].0.as_bytes());
}

#[test]
fn an_assignment_that_cannot_be_written_calls_the_members_again() {
    let mut f = Fixture::new();
    let joins: Vec<_> = (0..2).map(|_| f.come()).collect();
    f.pass(6 * SECOND);
    let follower = f.sync(&joins[1].0, 1, &[]);
    let leader = f.sync(&joins[0].0, 1, &[]);
    f.finish_write(Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    for to in [leader, follower] {
        assert_eq!(f.synced(to).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    }
    assert_eq!(f.state(), "PreparingRebalance");
}

#[test]
fn an_assignment_of_an_earlier_generation_has_no_effect() {
    let mut f = Fixture::new();
    let joins: Vec<_> = (0..2).map(|_| f.come()).collect();
    f.pass(6 * SECOND);
    let leader = f.sync(&joins[0].0, 1, &[joins[0].0.clone()]);
    let other = f.join_with(&joins[1].0, |r| r.protocols = vec![protocol("range", b"v2")]);
    assert_eq!(f.synced(leader).error_code, ErrorCode::REBALANCE_IN_PROGRESS);
    let first = f.join(&joins[0].0);
    assert_eq!(f.joined(first).generation_id, 2);
    assert_eq!(f.joined(other).generation_id, 2);
    f.finish_writes();
    assert_eq!(f.state(), "CompletingRebalance");
    f.assign(&[joins[0].0.clone(), joins[1].0.clone()], 2);
}

#[test]
fn who_does_not_sync_is_out() {
    let mut f = Fixture::new();
    let joins: Vec<_> = (0..2).map(|_| f.come()).collect();
    f.pass(6 * SECOND);
    let synced = f.sync(&joins[1].0, 1, &[]);
    for _ in 0..60 {
        f.heartbeat(&joins[0].0, 1);
        f.pass(SECOND);
    }
    assert_eq!(f.synced(synced).error_code, ErrorCode::REBALANCE_IN_PROGRESS);
    let to = f.join(&joins[1].0);
    let answer = f.joined(to);
    assert_eq!((answer.generation_id, answer.members.len()), (2, 1));
    assert_eq!(answer.leader, joins[1].0);
}

#[test]
fn wrong_syncs_are_refused() {
    let mut f = Fixture::new();
    let joins = [f.come(), f.come()];
    f.pass(6 * SECOND);
    let request = |change: fn(&mut SyncGroupRequest)| {
        let mut request = SyncGroupRequest {
            group_id: "g".into(),
            generation_id: 1,
            member_id: joins[1].0.clone(),
            ..SyncGroupRequest::default()
        };
        change(&mut request);
        GroupRequest::Sync(request)
    };
    for (change, error) in [
        (
            (|r| r.generation_id = 2) as fn(&mut SyncGroupRequest),
            ErrorCode::ILLEGAL_GENERATION,
        ),
        (|r| r.member_id = "x".into(), ErrorCode::UNKNOWN_MEMBER_ID),
        (
            |r| r.protocol_type = Some("connect".into()),
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            |r| r.protocol_name = Some("sticky".into()),
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            |r| r.group_instance_id = Some("i".into()),
            ErrorCode::UNKNOWN_MEMBER_ID,
        ),
    ] {
        let to = f.send(request(change));
        assert_eq!(f.synced(to).error_code, error);
    }
}

#[test]
fn silence_ends_a_session_and_heartbeats_keep_it() {
    let mut f = Fixture::new();
    let ids = f.stable(2);
    for _ in 0..20 {
        f.pass(SECOND);
        f.heartbeat(&ids[0], 1);
    }
    assert_eq!(f.state(), "PreparingRebalance");
    assert_eq!(f.heartbeat(&ids[1], 1), ErrorCode::UNKNOWN_MEMBER_ID);
    let to = f.join(&ids[0]);
    assert_eq!(f.joined(to).members.len(), 1);
}

#[test]
fn when_the_last_member_is_gone_the_group_is_empty_in_a_new_generation() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    assert_eq!(f.leave(&ids[0], None), ErrorCode::NONE);
    f.finish_writes();
    assert_eq!(f.state(), "Empty");
    let Some(GroupRecord::Group {
        value: Some(value), ..
    }) = f.log.last()
    else {
        panic!("{:?}", f.log.last())
    };
    assert_eq!((value.generation, value.members.len()), (2, 0));
    assert_eq!(value.protocol_type, "consumer");
    let ids = {
        let (id, to) = f.come();
        f.pass(3 * SECOND);
        assert_eq!(f.joined(to).generation_id, 3);
        vec![id]
    };
    f.assign(&ids, 3);
}

#[test]
fn leaving_answers_each_member() {
    let mut f = Fixture::new();
    let ids = f.stable(2);
    let to = f.send(GroupRequest::Leave(LeaveGroupRequest {
        group_id: "g".into(),
        members: [ids[0].clone(), "nobody".into()]
            .map(|member_id| MemberIdentity {
                member_id,
                ..MemberIdentity::default()
            })
            .into(),
        ..LeaveGroupRequest::default()
    }));
    let Some(GroupReply::Leave(answer)) = f.take(to) else {
        panic!()
    };
    let errors: Vec<_> = answer.members.iter().map(|m| m.error_code).collect();
    assert_eq!(errors, [ErrorCode::NONE, ErrorCode::UNKNOWN_MEMBER_ID]);
    assert_eq!(f.state(), "PreparingRebalance");
    let to = f.join(&ids[1]);
    assert_eq!(f.joined(to).leader, ids[1]);
}

#[test]
fn an_id_given_out_can_leave_and_lets_the_join_phase_end() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    let to = f.join("");
    let pending = f.joined(to).member_id;
    let to = f.join(&ids[0]);
    assert!(f.take(to).is_none(), "the one with the new id is waited for");
    assert_eq!(f.leave(&pending, None), ErrorCode::NONE);
    assert_eq!(f.joined(to).generation_id, 2);
}

fn instances(f: &mut Fixture) -> Vec<Str> {
    let joins: Vec<_> = ["a", "b"]
        .map(|i| f.join_with("", |r| r.group_instance_id = Some(i.into())))
        .into();
    f.pass(6 * SECOND);
    let ids: Vec<Str> = joins.into_iter().map(|to| f.joined(to).member_id).collect();
    f.assign(&ids, 1);
    ids
}

#[test]
fn an_instance_that_comes_back_gets_a_new_id_without_a_rebalance() {
    let mut f = Fixture::new();
    let ids = instances(&mut f);
    assert!(ids[0].starts_with("a-"));
    for (version, instance, leads) in [(9, "b", false), (9, "a", true), (5, "a", true)] {
        let old = f.coordinator.groups["g"]
            .classic
            .instance(instance)
            .cloned()
            .unwrap();
        let to = f.join_at(version, "", |r| r.group_instance_id = Some(instance.into()));
        assert!(f.take(to).is_none(), "it is written first");
        f.finish_writes();
        let answer = f.joined(to);
        assert_eq!((answer.error_code, answer.generation_id), (ErrorCode::NONE, 1));
        assert_ne!(answer.member_id, old);
        assert_eq!(answer.skip_assignment, version >= 9 && leads);
        assert_eq!(answer.members.len(), if version >= 9 && leads { 2 } else { 0 });
        if version < 9 {
            assert_eq!(answer.leader, old, "or an old client would assign");
        }
        assert_eq!(f.heartbeat(&old, 1), ErrorCode::UNKNOWN_MEMBER_ID);
        let fenced = f.send(GroupRequest::Heartbeat(HeartbeatRequest {
            group_id: "g".into(),
            generation_id: 1,
            member_id: old,
            group_instance_id: Some(instance.into()),
        }));
        assert_eq!(
            f.take(fenced),
            Some(GroupReply::Heartbeat(ErrorCode::FENCED_INSTANCE_ID))
        );
        let to = f.sync(&answer.member_id, 1, &[]);
        assert!(!f.synced(to).assignment.is_empty(), "it keeps its assignment");
    }
    assert_eq!(f.state(), "Stable");
}

#[test]
fn a_new_id_that_cannot_be_written_gives_the_old_one_back() {
    let mut f = Fixture::new();
    let ids = instances(&mut f);
    let to = f.join_with("", |r| r.group_instance_id = Some("a".into()));
    f.finish_write(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(f.joined(to).error_code, ErrorCode::NOT_COORDINATOR);
    assert_eq!(f.heartbeat(&ids[0], 1), ErrorCode::NONE);
    let to = f.join_with("", |r| {
        r.group_instance_id = Some("a".into());
        r.protocols = vec![protocol("range", b"v2")];
        r.rebalance_timeout_ms = 1_000;
    });
    f.finish_write(Err(ErrorCode::NOT_LEADER_OR_FOLLOWER));
    assert_eq!(f.joined(to).error_code, ErrorCode::NOT_COORDINATOR);
    let member = f.coordinator.groups["g"].classic.member(&ids[0]).unwrap();
    assert_eq!(member.rebalance_timeout, 60 * SECOND);
    assert_eq!(member.metadata_of("range"), "v1");
}

/// What is due now is done once, and a search for old offsets that begins then: nothing is due at once again.
fn is_quiet_after_each_deadline(f: &mut Fixture) {
    for _ in 0..50 {
        let Some(next) = f.coordinator.next_deadline() else {
            return;
        };
        f.advance(next);
        f.advance(next);
        let again = f.coordinator.next_deadline();
        assert!(again.is_none_or(|at| at > f.now), "due again at once");
    }
}

#[test]
fn a_rebalance_timeout_of_nothing_does_not_keep_the_coordinator_busy() {
    let mut f = Fixture::new();
    let ids = instances(&mut f);
    let to = f.join_with("", |r| {
        r.group_instance_id = Some("a".into());
        r.rebalance_timeout_ms = 0;
    });
    f.finish_writes();
    assert_eq!(f.joined(to).generation_id, 1);
    // Of the two instances one leaves and the other does not join again: nobody can lead.
    assert_eq!(f.leave(&ids[1], Some("b")), ErrorCode::NONE);
    is_quiet_after_each_deadline(&mut f);
    f.finish_writes();
    assert_eq!(f.state(), "Empty", "its session ends all the same");
}

#[test]
fn a_session_timeout_of_nothing_does_not_keep_the_coordinator_busy() {
    let mut f = Fixture::with(GroupSettings {
        session_timeout_min: Duration::ZERO,
        ..GroupSettings::default()
    });
    let hasty = |r: &mut JoinGroupRequest| r.session_timeout_ms = 0;
    let joins: Vec<_> = (0..2).map(|_| f.join_at(3, "", hasty)).collect();
    while f.answers.is_empty() {
        let next = f.coordinator.next_deadline().expect("the join phase ends");
        f.advance(next);
    }
    let ids: Vec<Str> = joins.into_iter().map(|to| f.joined(to).member_id).collect();
    // Both wait for the log, which is slow: their silence is ours.
    let leader = f.sync(&ids[0], 1, &ids);
    let follower = f.sync(&ids[1], 1, &[]);
    is_quiet_after_each_deadline(&mut f);
    assert!(f.take(leader).is_none() && f.take(follower).is_none());
    f.finish_writes();
    assert_eq!(f.synced(follower).assignment, *ids[1].as_bytes());
}

#[test]
fn a_long_list_of_protocols_and_one_that_repeats_itself() {
    let mut f = Fixture::new();
    let names: Vec<JoinGroupRequestProtocol> = (0..50_000)
        .map(|n| JoinGroupRequestProtocol {
            name: Str::from(format!("p{}", n / 2)),
            metadata: Bytes::from(format!("{n}")),
        })
        .collect();
    let began = std::time::Instant::now();
    let to = f.join_at(3, "", |r| r.protocols.clone_from(&names));
    f.pass(3 * SECOND);
    let answer = f.joined(to);
    assert_eq!(answer.protocol_name.as_deref(), Some("p0"));
    assert_eq!(answer.members[0].metadata, "0", "of equal names the first counts");
    let to = f.join_at(3, &answer.member_id, |r| r.protocols.clone_from(&names));
    assert_eq!(f.joined(to).generation_id, 1, "it says nothing new");
    f.leave(&answer.member_id, None);
    assert!(began.elapsed() < 5 * SECOND, "it takes no quadratic time");
}

#[test]
fn who_is_refused_a_place_is_not_waited_for() {
    let mut f = Fixture::with(GroupSettings {
        size_max: 2,
        ..GroupSettings::default()
    });
    let ids = f.stable(1);
    let pending: Vec<Str> = (0..2)
        .map(|_| {
            let to = f.join("");
            f.joined(to).member_id
        })
        .collect();
    let second = f.join(&pending[0]);
    let first = f.join(&ids[0]);
    let refused = f.join(&pending[1]);
    let refused = f.joined(refused);
    assert_eq!(refused.error_code, ErrorCode::GROUP_MAX_SIZE_REACHED);
    assert_eq!(refused.member_id, "", "it has no id in a full group");
    for to in [first, second] {
        assert_eq!(f.joined(to).members.len(), if to == first { 2 } else { 0 });
    }
}

#[test]
fn an_instance_with_news_rebalances() {
    let mut f = Fixture::new();
    let ids = instances(&mut f);
    let to = f.join_with("", |r| {
        r.group_instance_id = Some("a".into());
        r.protocols = vec![protocol("sticky", b""), protocol("range", b"")];
    });
    // The same protocol would still be chosen: no rebalance for it.
    f.finish_writes();
    assert_eq!(f.joined(to).generation_id, 1);
    assert_eq!(f.leave(&ids[1], Some("b")), ErrorCode::NONE);
    assert_eq!(f.state(), "PreparingRebalance");
}

#[test]
fn an_operator_takes_an_instance_out_by_its_name() {
    let mut f = Fixture::new();
    instances(&mut f);
    assert_eq!(f.leave("", Some("nobody")), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(f.leave("wrong", Some("a")), ErrorCode::FENCED_INSTANCE_ID);
    assert_eq!(f.leave("", Some("a")), ErrorCode::NONE);
    assert_eq!(f.state(), "PreparingRebalance");
}

#[test]
fn a_join_phase_that_no_instance_attends_begins_again_until_their_sessions_end() {
    let mut f = Fixture::new();
    let ids = instances(&mut f);
    let to = f.join_with(&ids[0], |r| {
        r.group_instance_id = Some("a".into());
        r.protocols = vec![protocol("range", b"v2")];
    });
    assert!(f.take(to).is_none());
    f.pass(11 * SECOND);
    // The silent one is out by its session; then all that are left have joined.
    let answer = f.joined(to);
    assert_eq!((answer.generation_id, answer.members.len()), (2, 1));
}

#[test]
fn a_restart_goes_on_without_a_rebalance() {
    let mut f = Fixture::new();
    let ids = f.stable(3);
    f.restart();
    for id in &ids {
        assert_eq!(f.heartbeat(id, 1), ErrorCode::NONE);
        let to = f.sync(id, 1, &[]);
        assert_eq!(f.synced(to).assignment, *id.as_bytes());
    }
    assert_eq!(f.state(), "Stable");
    f.pass(11 * SECOND);
    assert_eq!(
        f.heartbeat(&ids[0], 1),
        ErrorCode::UNKNOWN_MEMBER_ID,
        "sessions began anew"
    );
}

/// CG-30: Kafka 4.3.1 shows an instance under the client id and host of its first join for as long as it is in the group, whoever
/// comes back for it: without its member id, with it, in a rebalance, and after a replay.
#[test]
fn an_instance_is_shown_under_the_client_of_its_first_join() {
    let mut f = Fixture::new();
    let ids = instances(&mut f);
    let clients = |f: &mut Fixture| {
        let to = f.send(GroupRequest::Describe("g".into()));
        let Some(GroupReply::Describe(told)) = f.take(to) else {
            panic!()
        };
        let members = told.members.into_iter();
        let mut clients: Vec<_> = members
            .map(|m| (m.group_instance_id.unwrap(), m.client_id, m.client_host))
            .collect();
        clients.sort();
        clients
    };
    let first = [
        ("a".into(), "c".into(), "/127.0.0.1".into()),
        ("b".into(), "c".into(), "/127.0.0.1".into()),
    ];
    assert_eq!(clients(&mut f), first);
    f.client = ("moved", "/127.0.0.2");
    let to = f.join_with("", |r| r.group_instance_id = Some("b".into()));
    f.finish_writes();
    let new = f.joined(to).member_id;
    assert_ne!(new, ids[1]);
    assert_eq!(f.state(), "Stable");
    assert_eq!(clients(&mut f), first);
    f.restart();
    assert_eq!(clients(&mut f), first);
    f.join_with(&new, |r| {
        r.group_instance_id = Some("b".into());
        r.protocols = vec![protocol("range", b"news")];
    });
    f.join_with("", |r| r.group_instance_id = Some("a".into()));
    assert_eq!(clients(&mut f), first);
    // A member that is not known joins as who it is.
    f.join_with("", |r| r.group_instance_id = Some("d".into()));
    assert_eq!(clients(&mut f)[2].1, "moved");
}

#[test]
fn groups_are_described_and_listed() {
    let mut f = Fixture::new();
    f.stable(2);
    let to = f.send(GroupRequest::Describe("g".into()));
    let Some(GroupReply::Describe(told)) = f.take(to) else {
        panic!()
    };
    assert_eq!((&*told.group_state, &*told.protocol_data), ("Stable", "range"));
    assert_eq!(told.members.len(), 2);
    assert_eq!(told.members[0].member_metadata, "v1");
    assert_eq!(told.members[0].client_host, "/127.0.0.1");
    f.come();
    let to = f.send(GroupRequest::Describe("g".into()));
    let Some(GroupReply::Describe(told)) = f.take(to) else {
        panic!()
    };
    assert_eq!(
        (&*told.group_state, &*told.protocol_data),
        ("PreparingRebalance", "")
    );
    assert!(
        told.members
            .iter()
            .all(|m| m.member_metadata.is_empty() && m.member_assignment.is_empty())
    );
    let to = f.send(GroupRequest::List);
    let Some(GroupReply::List(listed)) = f.take(to) else {
        panic!()
    };
    assert_eq!((&*listed[0].group_id, &*listed[0].group_type), ("g", "classic"));
}

/// BR-130.
#[test]
fn a_hundred_members_rebalance_in_one_generation() {
    let mut f = Fixture::new();
    let ids = f.stable(100);
    let joins: Vec<_> = std::iter::once(f.come().1)
        .chain(ids.iter().map(|id| f.join(id)).collect::<Vec<_>>())
        .collect();
    for to in joins {
        assert_eq!(f.joined(to).generation_id, 2);
    }
}

/// A string of the protocol has 32,767 bytes at most, and a member id is longer than the name that its client chose.
#[test]
fn members_with_the_longest_names_can_be_told_of() {
    for (client, instance) in [
        ("x".repeat(32_767), None),
        ("c".to_owned(), Some("ü".repeat(16_383))),
    ] {
        let mut f = Fixture::new();
        f.client.0 = Box::leak(client.into_boxed_str());
        let to = f.join_at(3, "", |request| {
            request.group_instance_id = instance.clone().map(Str::from);
        });
        f.pass(Duration::from_secs(6));
        let id = f.joined(to).member_id;
        assert!(id.len() <= 32_767 && id.len() > 32_760, "{}", id.len());
        let to = f.sync_as(&id, instance.map(Str::from), 1, std::slice::from_ref(&id));
        f.finish_writes();
        assert_eq!(f.synced(to).error_code, ErrorCode::NONE);
        f.restart();
        assert_eq!(f.state(), "Stable");
    }
}

/// Who asks afterwards what became of a member finds it.
#[test]
fn what_happens_to_members_is_told() {
    let mut f = Fixture::new();
    let ids = f.stable(2);
    let told = |f: &mut Fixture| {
        let news = f.coordinator.take_news();
        assert_eq!(news.left_out, 0);
        assert!(news.told.iter().all(|one| one.group == "g"));
        news.told.into_iter().map(|one| one.what).collect::<Vec<_>>()
    };
    let of = |happened: &[Happened], id: &Str| {
        happened
            .iter()
            .any(|what| matches!(what, Happened::Joined(member) if member.id == *id))
    };
    let begin = told(&mut f);
    assert!(of(&begin, &ids[0]) && of(&begin, &ids[1]), "{begin:?}");
    let stable = |what: &&Happened| matches!(what, Happened::Stable { generation: 1, members: 2, protocol, .. } if protocol == "range");
    assert_eq!(begin.iter().filter(stable).count(), 1, "{begin:?}");
    assert_eq!(f.leave(&ids[1], None), ErrorCode::NONE);
    let left = told(&mut f);
    assert!(
        matches!(&left[0], Happened::Out(member, Departure::Left) if member.id == ids[1]),
        "{left:?}"
    );
    let reason = RebalanceReason::MemberLeft;
    assert!(
        matches!(left[1], Happened::RebalanceBegun { generation: 1, reason: why, members: 1 } if why == reason),
        "{left:?}"
    );
    f.pass(Duration::from_secs(61));
    f.finish_writes();
    let silent = told(&mut f);
    assert!(
        matches!(&silent[0], Happened::Out(member, Departure::SessionExpired) if member.id == ids[0]),
        "{silent:?}"
    );
    f.commit("g", "t", 0..3, "");
    f.send(GroupRequest::Delete("g".into()));
    f.finish_writes();
    assert_eq!(told(&mut f), [Happened::Deleted(3)]);
}

#[test]
fn news_are_bounded_as_long_as_nobody_takes_them() {
    let mut f = Fixture::new();
    for n in 0..1_000 {
        f.join_at(3, "", |request| request.group_id = Str::from(format!("g-{n}")));
    }
    let news = f.coordinator.take_news();
    assert_eq!((news.told.len(), news.left_out), (256, 2_000 - 256));
}
