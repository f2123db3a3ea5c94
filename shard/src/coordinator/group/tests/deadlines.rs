//! Who is given up when, and who must not be: syncs that come late but in time, instances replaced while they wait, deadlines that
//! were called off by another one of the same moment, groups loaded with more members than are allowed now.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Members whose first join phase has ended, with their ids; nobody has synced.
fn joined(f: &mut Fixture, members: usize) -> Vec<Str> {
    let joins: Vec<_> = (0..members).map(|_| f.come()).collect();
    f.pass(6 * SECOND);
    for (_, to) in &joins {
        assert_eq!(f.joined(*to).generation_id, 1);
    }
    joins.into_iter().map(|(id, _)| id).collect()
}

/// CG-22: whoever syncs in time is not late, also if the group is stable by then.
#[test]
fn a_member_that_syncs_after_the_assignment_is_written_is_not_given_up() {
    let mut f = Fixture::new();
    let ids = joined(&mut f, 3);
    let leader = f.sync(&ids[0], 1, &ids);
    f.finish_writes();
    assert_eq!(f.synced(leader).error_code, ErrorCode::NONE);
    assert_eq!(f.state(), "Stable");
    for id in &ids[1..] {
        let follower = f.sync(id, 1, &[]);
        assert_eq!(f.synced(follower).assignment, *id.as_bytes());
    }
    for _ in 0..20 {
        f.pass(5 * SECOND);
        for id in &ids {
            assert_eq!(f.heartbeat(id, 1), ErrorCode::NONE);
        }
    }
    assert_eq!(f.state(), "Stable");
}

/// The other side of it: who never syncs is out, though the group is stable and it heartbeats.
#[test]
fn a_member_that_never_syncs_is_out_of_a_stable_group() {
    let mut f = Fixture::new();
    let ids = joined(&mut f, 3);
    f.sync(&ids[0], 1, &ids);
    f.finish_writes();
    f.sync(&ids[1], 1, &[]);
    for _ in 0..11 {
        f.pass(5 * SECOND);
        for id in &ids {
            assert_eq!(f.heartbeat(id, 1), ErrorCode::NONE);
        }
    }
    f.pass(5 * SECOND);
    assert_eq!(f.state(), "PreparingRebalance");
    assert_eq!(f.heartbeat(&ids[2], 1), ErrorCode::UNKNOWN_MEMBER_ID);
    for id in &ids[..2] {
        assert_eq!(f.heartbeat(id, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    }
}

/// CG-9, CG-30: what bounds the wait of a new member does not bound that of an instance that comes back.
#[test]
fn an_instance_replaced_while_its_first_join_waits_may_wait_on() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    // Its long rebalance timeout keeps the join phase open.
    let to = f.join_with(&ids[0], |r| r.rebalance_timeout_ms = 600_000);
    assert_eq!(f.joined(to).generation_id, 2);
    f.assign(&ids, 2);
    let instance = |r: &mut JoinGroupRequest| r.group_instance_id = Some("i".into());
    let first = f.join_with("", instance);
    f.pass(SECOND);
    let second = f.join_with("", instance);
    assert_eq!(f.joined(first).error_code, ErrorCode::FENCED_INSTANCE_ID);
    // Far beyond its session, and beyond what a new member may wait.
    for _ in 0..100 {
        f.pass(5 * SECOND);
        assert_eq!(f.heartbeat(&ids[0], 2), ErrorCode::REBALANCE_IN_PROGRESS);
    }
    assert!(f.take(second).is_none(), "it waits");
    let leader = f.join(&ids[0]);
    assert_eq!(f.joined(leader).members.len(), 2);
    assert_eq!(f.joined(second).generation_id, 3);
}

/// A session and the time to sync end in the same moment: the first one calls for a rebalance, so nobody has to sync any more.
#[test]
fn a_deadline_called_off_by_another_one_of_the_same_moment_does_not_pass() {
    let mut f = Fixture::new();
    let ids = joined(&mut f, 3);
    for _ in 0..10 {
        f.pass(5 * SECOND);
        for id in &ids {
            assert_eq!(f.heartbeat(id, 1), ErrorCode::NONE);
        }
    }
    // The last word of one of them is ten seconds before the sixty are over.
    f.pass(5 * SECOND);
    for id in &ids[..2] {
        assert_eq!(f.heartbeat(id, 1), ErrorCode::NONE);
    }
    f.pass(5 * SECOND);
    assert_eq!(f.state(), "PreparingRebalance");
    assert_eq!(f.heartbeat(&ids[2], 1), ErrorCode::UNKNOWN_MEMBER_ID);
    for id in &ids[..2] {
        assert_eq!(f.heartbeat(id, 1), ErrorCode::REBALANCE_IN_PROGRESS, "{id}");
    }
    let counters = f.coordinator.counters();
    assert_eq!(
        counters.rebalances_begun[RebalanceReason::SessionExpired as usize],
        1
    );
    assert_eq!(
        counters.rebalances_begun[RebalanceReason::SyncExpired as usize],
        0
    );
}

/// The shard slept: all that was due meanwhile is looked at in one go, and still in its order.
#[test]
fn deadlines_that_are_looked_at_late_count_as_they_stand_then() {
    let mut f = Fixture::new();
    let ids = f.stable(2);
    // Both sessions would have ended. The first to end calls for a rebalance; the other one ends as well.
    let to = f.now.after(100 * SECOND);
    f.advance(to);
    f.pass(20 * SECOND);
    f.finish_writes();
    for id in &ids {
        assert_eq!(f.heartbeat(id, 1), ErrorCode::UNKNOWN_MEMBER_ID);
    }
    assert_eq!(f.state(), "Empty");
}

/// CG-6: `group.max.size` was lowered across a restart.
#[test]
fn a_group_loaded_with_more_members_than_are_allowed_lets_the_first_ones_stay() {
    let mut f = Fixture::new();
    let ids = f.stable(4);
    f.coordinator.settings.size_max = 2;
    f.restart();
    assert_eq!(f.state(), "PreparingRebalance");
    for id in &ids {
        assert_eq!(f.heartbeat(id, 1), ErrorCode::REBALANCE_IN_PROGRESS);
    }
    let stay = [f.join(&ids[3]), f.join(&ids[1])];
    for id in [&ids[0], &ids[2]] {
        let refused = f.join(id);
        assert_eq!(f.joined(refused).error_code, ErrorCode::GROUP_MAX_SIZE_REACHED);
        assert_eq!(f.heartbeat(id, 1), ErrorCode::UNKNOWN_MEMBER_ID);
    }
    let answers = stay.map(|to| f.joined(to));
    assert!(answers.iter().all(|answer| answer.generation_id == 2));
    assert_eq!(
        answers.iter().map(|answer| answer.members.len()).sum::<usize>(),
        2
    );

    // One that is allowed goes on without a rebalance.
    let mut f = Fixture::new();
    let ids = f.stable(2);
    f.coordinator.settings.size_max = 2;
    f.restart();
    assert_eq!(f.heartbeat(&ids[0], 1), ErrorCode::NONE);
}

/// CG-30: the log may take long to write a new id. Whoever waits for it is not silent, and is told what it is then.
#[test]
fn an_instance_that_waits_for_its_new_id_to_be_written_is_not_silent() {
    let instance = |r: &mut JoinGroupRequest| r.group_instance_id = Some("i".into());
    let mut f = Fixture::new();
    let to = f.join_with("", instance);
    f.pass(3 * SECOND);
    let id = f.joined(to).member_id;
    f.assign(&[id], 1);
    let to = f.join_with("", instance);
    f.pass(8 * SECOND);
    f.finish_writes();
    let id = f.joined(to).member_id;
    f.pass(8 * SECOND);
    assert_eq!(f.heartbeat(&id, 1), ErrorCode::NONE);

    // Another one comes while the log writes the first one's.
    let first = f.join_with("", instance);
    let second = f.join_with("", instance);
    f.finish_writes();
    assert_eq!(f.joined(first).error_code, ErrorCode::FENCED_INSTANCE_ID);
    assert_eq!(f.joined(second).error_code, ErrorCode::NONE);

    // The log takes longer than a session lasts.
    let to = f.join_with("", instance);
    f.pass(11 * SECOND);
    f.finish_writes();
    assert_eq!(f.joined(to).error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}
