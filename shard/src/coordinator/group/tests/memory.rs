//! The memory of groups: bounded whatever clients send, given back when things end, and never in the way of what is there.

use super::writes::WRITES_OPEN_BYTES_MAX;
use super::*;

/// What a coordinator's groups and appends take of the shard's memory, counted anew.
pub(super) fn recount(coordinator: &GroupCoordinator) -> u64 {
    let groups = coordinator.groups.values();
    let kept = groups.map(|group| group.classic.recount() + group.offsets.bytes());
    kept.sum::<u64>() + coordinator.effects.writes.recount()
}

/// What coordinators have charged.
fn used(f: &Fixture) -> u64 {
    let used = f.memory.read()[BudgetClass::Coordinator as usize].used_bytes;
    assert_eq!(used, recount(&f.coordinator), "what is charged is what is there");
    used
}

/// A frame, and the text in the middle of it.
fn framed(text: &str) -> (Bytes, Str) {
    let frame = Bytes::from(format!("{0}{text}{0}", "-".repeat(1000)));
    let part = frame.slice(1000..1000 + text.len());
    (frame, Str::from_utf8(part).unwrap())
}

fn with_bytes(bytes: u64) -> Fixture {
    Fixture::with_memory(GroupSettings::default(), bytes)
}

fn in_group(group: &str) -> impl Fn(&mut JoinGroupRequest) + '_ {
    move |request| request.group_id = Str::from(group.to_owned())
}

/// Commits partitions of one topic, with a hundred bytes of metadata each.
fn commit(f: &mut Fixture, group: &str, partitions: Range<i32>) -> ErrorCode {
    f.commit(group, "t", partitions, &"m".repeat(100))
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

/// BR-130.
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
fn members_of_many_groups_leave_room_for_commits() {
    let mut f = with_bytes(8 * MIB);
    let mut refused = 0;
    for group in 0..200 {
        let to = f.join_at(3, "", |request| {
            request.group_id = Str::from(format!("large-{group}"));
            request.protocols[0].metadata = Bytes::from(vec![7; 100_000]);
        });
        let answer = f.take(to);
        refused += u64::from(
            matches!(answer, Some(GroupReply::Join(j)) if j.error_code == ErrorCode::COORDINATOR_NOT_AVAILABLE),
        );
    }
    assert!(
        (130..150).contains(&refused),
        "three quarters of 8 MiB hold about 60: {refused}"
    );
    assert_eq!(f.coordinator.counters().memory_refusals, refused);
    let named = f.coordinator.take_short().expect("the log names a group");
    assert!(named.starts_with("large-"), "{named}");
    assert_eq!(f.coordinator.take_short(), None);
    assert!(used(&f) <= 6 * MIB + 100_000, "{}", used(&f));
    // Somebody who only commits is not kept out by them.
    for partition in 0..1_000 {
        assert_eq!(
            commit(&mut f, "bystander", partition..partition + 1),
            ErrorCode::NONE
        );
    }
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
    assert_eq!(f.coordinator.counters().memory_refusals, 1);
    assert_eq!(f.coordinator.take_short().as_deref(), Some("g"));
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
        told.push(f.send_commit(&format!("g-{n}"), "t", 0..100, ""));
        assert!(used(&f) <= MIB + 2_000);
    }
    let refused = told.iter().filter(|to| f.answers.contains_key(*to)).count();
    assert!((30..70).contains(&refused), "{refused}");
    while !f.pending.is_empty() {
        f.finish_write(Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    }
    assert_eq!(used(&f), 0, "what was not written holds nothing");
}

#[test]
fn commits_of_what_is_committed_are_bounded_while_the_log_is_slow() {
    let mut f = with_bytes(2 * MIB);
    assert_eq!(commit(&mut f, "g", 0..1_000), ErrorCode::NONE);
    let before = used(&f);
    // A client that commits, leaves and comes again, over and over.
    let told: Vec<ReplyTo> = (0..1_000)
        .map(|_| f.send_commit("g", "t", 0..1_000, "m"))
        .collect();
    let refused: Vec<ReplyTo> = told
        .iter()
        .copied()
        .filter(|to| f.answers.contains_key(to))
        .collect();
    assert!((900..1_000).contains(&refused.len()), "{}", refused.len());
    assert!(used(&f) <= 2 * MIB + WRITES_OPEN_BYTES_MAX, "{}", used(&f));
    for to in refused {
        assert_eq!(f.committed(to), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    }
    f.finish_writes();
    assert!(used(&f) <= before);
    assert_eq!(commit(&mut f, "g", 0..1_000), ErrorCode::NONE);
    // With the memory used up some of them go on, one after another however large.
    f.memory = memory(MIB / 8);
    f.restart();
    assert!(used(&f) > MIB / 8);
    assert_eq!(commit(&mut f, "g", 0..1_000), ErrorCode::NONE);
    let told: Vec<ReplyTo> = (0..100).map(|_| f.send_commit("g", "t", 0..100, "m")).collect();
    let refused = told.iter().filter(|to| f.answers.contains_key(*to)).count();
    assert!((30..70).contains(&refused), "{refused}");
}

#[test]
fn small_appends_without_number_are_bounded_too() {
    let mut f = with_bytes(MIB);
    assert_eq!(commit(&mut f, "g", 0..1), ErrorCode::NONE);
    for _ in 0..50_000 {
        f.send_commit("g", "t", 0..1, "");
    }
    assert!(f.pending.len() < 3_000, "{}", f.pending.len());
    assert!(used(&f) <= MIB + WRITES_OPEN_BYTES_MAX);
    // What else makes an append is refused as long.
    let deleted = f.send(GroupRequest::Delete("g".into()));
    match f.take(deleted) {
        Some(GroupReply::Delete(result)) => {
            assert_eq!(result.error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        other => panic!("{other:?}"),
    }
    f.finish_writes();
    f.send(GroupRequest::Delete("g".into()));
    f.finish_writes();
    assert_eq!(used(&f), 0);
}

#[test]
fn a_leader_whose_assignment_cannot_be_queued_joins_again_and_succeeds_later() {
    let mut f = with_bytes(MIB);
    assert_eq!(commit(&mut f, "other", 0..1), ErrorCode::NONE);
    let (id, to) = f.come();
    f.pass(Duration::from_secs(6));
    let generation = f.joined(to).generation_id;
    for _ in 0..10_000 {
        f.send_commit("other", "t", 0..1, "");
    }
    let to = f.sync(&id, generation, std::slice::from_ref(&id));
    assert_eq!(f.synced(to).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    f.finish_writes();
    let to = f.join(&id);
    assert_eq!(
        f.joined(to).generation_id,
        generation,
        "without another rebalance"
    );
    f.assign(&[id], generation);
}

#[test]
fn what_waits_to_be_written_holds_no_frame() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    let (frame, text) = framed("text");
    f.send(GroupRequest::Commit(OffsetCommit {
        group: text.clone(),
        generation: -1,
        version: 8,
        topics: vec![CommitTopic {
            name: text.clone(),
            id: Uuid::ONE,
            partitions: vec![(0, 1, -1, text.clone())],
        }],
        ..OffsetCommit::default()
    }));
    drop(text);
    assert!(frame.is_unique(), "a commit");

    f.finish_writes();
    let (frame, text) = framed("text");
    f.send(GroupRequest::DeleteOffsets {
        group: text.clone(),
        topics: vec![(text, vec![0])],
    });
    assert_eq!(f.pending.len(), 1);
    assert!(frame.is_unique(), "a deletion");

    f.finish_writes();
    let to = f.join(&ids[0]);
    let generation = f.joined(to).generation_id;
    let (frame, text) = framed("assignment");
    f.send(GroupRequest::Sync(SyncGroupRequest {
        group_id: "g".into(),
        generation_id: generation,
        member_id: ids[0].clone(),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: ids[0].clone(),
            assignment: text.into(),
        }],
        ..SyncGroupRequest::default()
    }));
    assert_eq!(f.pending.len(), 1);
    assert!(frame.is_unique(), "an assignment");
}

#[test]
fn assignments_on_their_way_are_charged_once_they_are_accepted() {
    let mut f = with_bytes(8 * MIB);
    let groups: Vec<String> = (0..40).map(|n| format!("g-{n}")).collect();
    let joins: Vec<ReplyTo> = groups.iter().map(|g| f.join_at(3, "", in_group(g))).collect();
    f.pass(Duration::from_secs(6));
    let mut syncs = Vec::new();
    for (group, to) in groups.iter().zip(joins) {
        let joined = f.joined(to);
        syncs.push(f.send(GroupRequest::Sync(SyncGroupRequest {
            group_id: Str::from(group.clone()),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            assignments: vec![SyncGroupRequestAssignment {
                member_id: joined.member_id,
                assignment: Bytes::from(vec![1; 500_000]),
            }],
            ..SyncGroupRequest::default()
        })));
        assert!(used(&f) <= 8 * MIB + 10_000, "{}", used(&f));
    }
    let refused: Vec<ReplyTo> = syncs
        .iter()
        .copied()
        .filter(|to| f.answers.contains_key(to))
        .collect();
    assert_eq!(refused.len(), 40 - 12, "three quarters of 8 MiB hold twelve");
    for to in refused {
        assert_eq!(f.synced(to).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    }
    while !f.pending.is_empty() {
        f.finish_write(Ok(()));
        assert!(used(&f) <= 8 * MIB + 10_000, "{}", used(&f));
    }
    let assigned = syncs.iter().filter(|to| f.answers.contains_key(*to));
    assert_eq!(assigned.count(), 12);
}

/// A consumer's metadata, version 0, with so many topics of four letters.
fn subscription(topics: u32) -> Bytes {
    let mut metadata = vec![0, 0];
    metadata.extend(topics.to_be_bytes());
    for n in 0..topics {
        metadata.extend([0, 4]);
        metadata.extend(format!("{n:04x}").as_bytes());
    }
    metadata.extend((-1_i32).to_be_bytes());
    metadata.into()
}

#[test]
fn the_topics_that_members_subscribe_to_are_charged_and_left_out_when_they_do_not_fit() {
    let known = |f: &Fixture| {
        f.coordinator.groups["g"]
            .classic
            .subscribed
            .as_ref()
            .map(|all| all.len())
    };
    let mut f = with_bytes(16 * MIB);
    let join = |f: &mut Fixture| f.join_at(3, "", |r| r.protocols[0].metadata = subscription(10_000));
    let to = join(&mut f);
    let before = used(&f);
    f.pass(Duration::from_secs(6));
    assert_eq!(known(&f), Some(10_000));
    assert!(used(&f) > before + 10_000 * 64, "{} of {before}", used(&f));
    let id = f.joined(to).member_id;
    f.assign(std::slice::from_ref(&id), 1);
    f.restart();
    assert_eq!(known(&f), Some(10_000));
    // Another generation without them.
    f.join_with(&id, |_| {});
    assert_eq!(known(&f), None);
    assert!(used(&f) < 10_000, "{}", used(&f));

    // Where a quarter of the memory does not hold them they may subscribe to everything.
    let mut f = with_bytes(2 * MIB);
    join(&mut f);
    f.pass(Duration::from_secs(6));
    assert_eq!(known(&f), None);
    assert!(f.coordinator.groups["g"].classic.may_subscribe_to("any"));
    assert!(used(&f) < MIB / 2, "{}", used(&f));
}

#[test]
fn the_names_of_a_group_are_charged() {
    let mut f = with_bytes(4 * MIB);
    let long = |letter: &str| Str::from(letter.repeat(30_000));
    f.join_at(3, "", |r| {
        r.protocol_type = long("t");
        r.protocols[0].name = long("p");
    });
    f.pass(Duration::from_secs(6));
    // The kind, the protocol as chosen, as the member has it, and as it is counted.
    assert!(used(&f) > 4 * 30_000, "{}", used(&f));
    f.pass(Duration::from_secs(100));
    f.finish_writes();
    assert!((30_000..35_000).contains(&used(&f)), "{}", used(&f));
}
