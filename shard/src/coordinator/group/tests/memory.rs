//! The memory of groups: bounded whatever clients send, given back when things end, and never in the way of what is there.

use super::*;

/// What coordinators have charged.
fn used(f: &Fixture) -> u64 {
    let used = f.memory.read()[BudgetClass::Coordinator as usize].used_bytes;
    assert_eq!(used, f.coordinator.recount(), "what is charged is what is there");
    used
}

fn with_bytes(bytes: u64) -> Fixture {
    Fixture::with_memory(GroupSettings::default(), bytes)
}

fn in_group(group: &str) -> impl Fn(&mut JoinGroupRequest) + '_ {
    move |request| request.group_id = Str::from(group.to_owned())
}

fn commit(f: &mut Fixture, group: &str, partitions: std::ops::Range<i32>) -> ErrorCode {
    let to = f.send(GroupRequest::Commit(OffsetCommit {
        group: Str::from(group.to_owned()),
        generation: -1,
        version: 8,
        topics: vec![CommitTopic {
            name: "t".into(),
            id: Uuid::ONE,
            partitions: partitions
                .map(|p| (p, 1, -1, Str::from("m".repeat(100))))
                .collect(),
        }],
        ..OffsetCommit::default()
    }));
    f.finish_writes();
    match f.take(to) {
        Some(GroupReply::Commit(results)) => results[0].1[0].1,
        other => panic!("{other:?}"),
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn ids_given_out_by_the_thousand_are_bounded_and_do_not_disturb_a_group() {
    let mut f = with_bytes(4 * MIB);
    let ids = f.stable(3);
    let before = used(&f);
    let mut refused = 0;
    for n in 0..40_000 {
        let to = f.join_with("", in_group(&format!("storm-{}", n % 100)));
        let error = f.joined(to).error_code;
        match error {
            ErrorCode::MEMBER_ID_REQUIRED => {}
            ErrorCode::COORDINATOR_NOT_AVAILABLE => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(refused > 20_000, "{refused}");
    assert!(used(&f) <= 4 * MIB);
    // Who is there goes on: heartbeats, a rebalance, commits of what is committed.
    for id in &ids {
        assert_eq!(f.heartbeat(id, 1), ErrorCode::NONE);
    }
    assert_eq!(f.leave(&ids[2], None), ErrorCode::NONE);
    let joins = [f.join(&ids[0]), f.join(&ids[1])];
    let generation = f.joined(joins[0]).generation_id;
    f.assign(&ids[..2], generation);
    // Ids that were not taken up are forgotten, and what they took is there again.
    for _ in 0..4 {
        f.pass(Duration::from_secs(4));
        assert_eq!(f.heartbeat(&ids[0], generation), ErrorCode::NONE);
        assert_eq!(f.heartbeat(&ids[1], generation), ErrorCode::NONE);
    }
    assert!(used(&f) < before);
    let to = f.join_with("", in_group("storm-1"));
    assert_eq!(f.joined(to).error_code, ErrorCode::MEMBER_ID_REQUIRED);
}

#[test]
fn one_group_with_large_metadata_leaves_room_for_others() {
    let mut f = with_bytes(8 * MIB);
    let mut answers = Vec::new();
    for _ in 0..200 {
        answers.push(f.join_at(3, "", |request| {
            request.protocols[0].metadata = Bytes::from(vec![7; 100_000]);
        }));
    }
    let refused = answers
        .iter()
        .filter_map(|to| f.take(*to))
        .filter(|answer| matches!(answer, GroupReply::Join(j) if j.error_code == ErrorCode::COORDINATOR_NOT_AVAILABLE));
    assert_eq!(refused.count(), 200 - 20, "a quarter of 8 MiB holds 20 members");
    assert!(used(&f) <= 2 * MIB + 100_000);
    let to = f.join_with("", in_group("other"));
    assert_eq!(f.joined(to).error_code, ErrorCode::MEMBER_ID_REQUIRED);
    // A single member that asks for too much is refused, one that says less than before is not.
    let to = f.join_at(3, "", |request| {
        request.group_id = "third".into();
        request.protocols[0].metadata = Bytes::from(vec![7; 3 << 20]);
    });
    assert_eq!(f.joined(to).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert!(!f.coordinator.groups.contains_key("third"));
    // Their sessions end, and all is given back.
    f.pass(Duration::from_secs(3_000));
    f.finish_writes();
    assert!(used(&f) < 10_000, "{}", used(&f));
}

#[test]
fn members_that_never_sync_give_their_memory_back() {
    let mut f = with_bytes(8 * MIB);
    for round in 0..50 {
        let joins: Vec<_> = (0..20)
            .map(|_| {
                f.join_at(3, "", |request| {
                    request.group_id = Str::from(format!("silent-{round}"));
                    request.rebalance_timeout_ms = 10_000;
                    request.protocols[0].metadata = Bytes::from(vec![1; 50_000]);
                })
            })
            .collect();
        assert!(used(&f) <= 8 * MIB);
        f.pass(Duration::from_secs(60));
        f.finish_writes();
        for to in joins {
            assert_eq!(f.joined(to).error_code, ErrorCode::NONE, "round {round}");
        }
    }
    f.pass(Duration::from_secs(600));
    f.finish_writes();
    assert!(used(&f) < 100_000, "fifty empty groups: {}", used(&f));
}

#[test]
fn an_assignment_that_is_too_large_calls_the_members_again() {
    let mut f = with_bytes(4 * MIB);
    let (id, to) = f.come();
    f.pass(Duration::from_secs(6));
    let generation = f.joined(to).generation_id;
    let sync = |f: &mut Fixture, generation, bytes: usize| {
        f.send(GroupRequest::Sync(SyncGroupRequest {
            group_id: "g".into(),
            generation_id: generation,
            member_id: id.clone(),
            assignments: vec![SyncGroupRequestAssignment {
                member_id: id.clone(),
                assignment: Bytes::from(vec![1; bytes]),
            }],
            ..SyncGroupRequest::default()
        }))
    };
    let to = sync(&mut f, generation, 2 << 20);
    assert_eq!(f.synced(to).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(f.state(), "PreparingRebalance");
    let to = f.join(&id);
    let generation = f.joined(to).generation_id;
    let before = used(&f);
    let to = sync(&mut f, generation, 500_000);
    f.finish_writes();
    assert_eq!(f.synced(to).assignment.len(), 500_000);
    assert_eq!(used(&f), before + 500_000);
}

#[test]
fn offsets_are_bounded_and_those_there_can_be_committed_again() {
    let mut f = with_bytes(MIB);
    let mut accepted = 0;
    while commit(&mut f, "hog", accepted..accepted + 100) == ErrorCode::NONE {
        accepted += 100;
    }
    assert!((2_000..5_000).contains(&accepted), "{accepted}");
    assert!(used(&f) <= MIB);
    assert_eq!(
        commit(&mut f, "hog", accepted..accepted + 100),
        ErrorCode::COORDINATOR_NOT_AVAILABLE
    );
    assert_eq!(commit(&mut f, "hog", 0..accepted), ErrorCode::NONE);
    assert_eq!(
        commit(&mut f, "other", 0..100),
        ErrorCode::COORDINATOR_NOT_AVAILABLE
    );
    assert!(!f.coordinator.groups.contains_key("other"));
    // A restart takes up what is there, also with less memory, and still refuses what is new.
    f.memory = memory(MIB / 2);
    f.restart();
    assert!(used(&f) > MIB / 2);
    assert_eq!(
        commit(&mut f, "other", 0..10),
        ErrorCode::COORDINATOR_NOT_AVAILABLE
    );
    assert_eq!(commit(&mut f, "hog", 0..10), ErrorCode::NONE);
    // With the group its offsets go.
    f.send(GroupRequest::Delete("hog".into()));
    f.finish_writes();
    assert_eq!(used(&f), 0);
    assert_eq!(commit(&mut f, "other", 0..10), ErrorCode::NONE);
    let memory = f.memory.clone();
    drop(f);
    assert_eq!(memory.read()[BudgetClass::Coordinator as usize].used_bytes, 0);
}

#[test]
fn commits_on_their_way_are_charged_once_they_are_accepted() {
    let mut f = with_bytes(MIB);
    let mut told = Vec::new();
    for n in 0..100 {
        told.push(f.send(GroupRequest::Commit(OffsetCommit {
            group: Str::from(format!("g-{n}")),
            generation: -1,
            version: 8,
            topics: vec![CommitTopic {
                name: "t".into(),
                id: Uuid::ONE,
                partitions: (0..100).map(|p| (p, 1, -1, Str::new())).collect(),
            }],
            ..OffsetCommit::default()
        })));
        assert!(f.memory.read()[BudgetClass::Coordinator as usize].used_bytes <= MIB + 2_000);
    }
    let refused = told.iter().filter(|to| f.answers.contains_key(*to)).count();
    assert!((30..70).contains(&refused), "{refused}");
    while !f.pending.is_empty() {
        f.finish_write(Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    }
    assert_eq!(used(&f), 0, "what was not written holds nothing");
}
