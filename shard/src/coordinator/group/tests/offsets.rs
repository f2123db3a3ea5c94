//! Committing, finding and losing offsets (CG-40…52).

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn commit_of(offset: i64) -> OffsetCommit {
    OffsetCommit {
        group: "g".into(),
        generation: -1,
        version: 8,
        topics: vec![CommitTopic {
            name: "t".into(),
            id: Uuid::ONE,
            partitions: vec![(0, offset, 3, "m".into())],
        }],
        ..OffsetCommit::default()
    }
}

fn committed(f: &mut Fixture, commit: OffsetCommit) -> ErrorCode {
    let to = f.send(GroupRequest::Commit(commit));
    f.finish_writes();
    f.committed(to)
}

fn found(f: &mut Fixture) -> Option<i64> {
    let to = f.send(GroupRequest::Fetch(OffsetFetch {
        group: "g".into(),
        topics: Some(vec![("t".into(), vec![0])]),
        require_stable: false,
    }));
    match f.take(to) {
        Some(GroupReply::Fetch(results)) => results[0].1[0].1.clone().unwrap().map(|o| o.offset),
        other => panic!("{other:?}"),
    }
}

fn deleted(f: &mut Fixture) -> ErrorCode {
    let to = f.send(GroupRequest::Delete("g".into()));
    f.finish_writes();
    match f.take(to) {
        Some(GroupReply::Delete(result)) => result.error_code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_commit_is_found_when_it_is_written_and_after_a_restart() {
    let mut f = Fixture::new();
    let to = f.send(GroupRequest::Commit(commit_of(5)));
    assert!(f.take(to).is_none());
    assert_eq!(found(&mut f), None);
    f.finish_writes();
    assert!(f.take(to).is_some());
    assert_eq!(found(&mut f), Some(5));
    f.restart();
    assert_eq!(found(&mut f), Some(5));
}

#[test]
fn a_commit_that_cannot_be_written_is_refused_and_changes_nothing() {
    let mut f = Fixture::new();
    assert_eq!(committed(&mut f, commit_of(5)), ErrorCode::NONE);
    let to = f.send(GroupRequest::Commit(commit_of(6)));
    f.finish_write(Err(ErrorCode::KAFKA_STORAGE_ERROR));
    let Some(GroupReply::Commit(results)) = f.take(to) else {
        panic!()
    };
    assert_eq!(results[0].1[0].1, ErrorCode::NOT_COORDINATOR);
    assert_eq!(found(&mut f), Some(5));
}

/// BR-006, BR-023.
#[test]
fn who_may_commit() {
    let mut f = Fixture::new();
    let unknown = |version| OffsetCommit {
        generation: 1,
        member: "x".into(),
        version,
        ..commit_of(1)
    };
    assert_eq!(committed(&mut f, unknown(8)), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(committed(&mut f, unknown(9)), ErrorCode::GROUP_ID_NOT_FOUND);
    let ids = f.stable(2);
    let by = |member: &Str, generation| OffsetCommit {
        generation,
        member: member.clone(),
        ..commit_of(1)
    };
    assert_eq!(committed(&mut f, commit_of(1)), ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(
        committed(&mut f, by(&"x".into(), 1)),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    assert_eq!(committed(&mut f, by(&ids[1], 0)), ErrorCode::ILLEGAL_GENERATION);
    assert_eq!(committed(&mut f, by(&ids[1], 1)), ErrorCode::NONE);
    let (_, newcomer) = f.come();
    assert_eq!(
        committed(&mut f, by(&ids[1], 1)),
        ErrorCode::NONE,
        "before it joins again"
    );
    for id in &ids {
        f.join(id);
    }
    assert_eq!(f.joined(newcomer).generation_id, 2);
    assert_eq!(
        committed(&mut f, by(&ids[1], 2)),
        ErrorCode::REBALANCE_IN_PROGRESS
    );
}

/// BR-023.
#[test]
fn commits_keep_a_session() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    for n in 0..20 {
        f.pass(Duration::from_secs(5));
        let commit = OffsetCommit {
            generation: 1,
            member: ids[0].clone(),
            ..commit_of(n)
        };
        assert_eq!(committed(&mut f, commit), ErrorCode::NONE);
    }
}

#[test]
fn too_much_metadata_is_refused_for_its_partition() {
    let mut f = Fixture::new();
    let mut commit = commit_of(1);
    commit.topics[0]
        .partitions
        .push((1, 2, -1, Str::from("x".repeat(4097))));
    commit.topics[0]
        .partitions
        .push((2, 3, -1, Str::from("\u{e9}".repeat(4096))));
    let to = f.send(GroupRequest::Commit(commit));
    f.finish_writes();
    let Some(GroupReply::Commit(results)) = f.take(to) else {
        panic!()
    };
    assert_eq!(
        results[0].1,
        [
            (0, ErrorCode::NONE),
            (1, ErrorCode::OFFSET_METADATA_TOO_LARGE),
            (2, ErrorCode::NONE)
        ]
    );
}

#[test]
fn offsets_of_groups_without_members_expire_each_for_itself() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    f.pass(6 * DAY);
    let mut other = commit_of(2);
    other.topics[0].name = "u".into();
    committed(&mut f, other);
    f.pass(DAY + Duration::from_secs(600));
    f.finish_writes();
    assert_eq!(found(&mut f), None);
    assert_eq!(f.state(), "Empty");
    f.pass(6 * DAY);
    f.finish_writes();
    assert_eq!(f.state(), "Dead", "the group goes with its last offset");
    f.restart();
    assert_eq!(f.state(), "Dead");
}

/// BR-019.
#[test]
fn offsets_of_an_empty_group_expire_after_it_became_empty() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    let commit = OffsetCommit {
        generation: 1,
        member: ids[0].clone(),
        ..commit_of(1)
    };
    committed(&mut f, commit);
    for _ in 0..8 * 24 * 12 {
        f.pass(Duration::from_secs(300));
        f.heartbeat(&ids[0], 1);
        // Ten seconds of session are too short for five minutes: join again each time.
        if f.state() != "Stable" {
            break;
        }
    }
    f.finish_writes();
    assert_eq!(f.state(), "Empty");
    assert_eq!(found(&mut f), Some(1));
    f.pass(6 * DAY);
    f.finish_writes();
    assert_eq!(found(&mut f), Some(1));
    f.pass(2 * DAY);
    f.finish_writes();
    assert_eq!(f.state(), "Dead");
}

/// BR-058: what a group reads is only known while it is stable, so nothing of it grows old in the other states.
#[test]
fn a_group_that_keeps_rebalancing_keeps_its_offsets() {
    let mut f = Fixture::with(GroupSettings {
        offsets_retention: Duration::from_secs(5),
        offsets_check_interval: Duration::from_secs(1),
        ..GroupSettings::default()
    });
    // Subscriptions to "t", version 0, with other user data each time: news that call for a rebalance.
    let subscription = |n: u8| Bytes::from([&[0, 0, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1][..], &[n]].concat());
    let subscribe = |n: u8| {
        move |request: &mut JoinGroupRequest| {
            request.session_timeout_ms = 30_000;
            request.protocols[0].metadata = subscription(n);
        }
    };
    let joins = [f.join_at(3, "", subscribe(0)), f.join_at(3, "", subscribe(0))];
    f.pass(Duration::from_secs(6));
    let ids = joins.map(|to| f.joined(to).member_id);
    f.assign(&ids, 1);
    for topic in ["t", "other"] {
        let mut commit = OffsetCommit {
            generation: 1,
            member: ids[0].clone(),
            ..commit_of(7)
        };
        commit.topics[0].name = topic.into();
        assert_eq!(committed(&mut f, commit), ErrorCode::NONE);
    }
    let all = |f: &Fixture| f.coordinator.groups["g"].offsets.clone();
    for n in 1..5 {
        // The first one calls for a rebalance, the second one takes its time.
        let calling = f.join_at(5, &ids[0], subscribe(n));
        for _ in 0..20 {
            f.pass(Duration::from_secs(1));
            f.finish_writes();
            assert_eq!(
                f.heartbeat(&ids[1], i32::from(n)),
                ErrorCode::REBALANCE_IN_PROGRESS
            );
        }
        assert_eq!(f.state(), "PreparingRebalance");
        let following = f.join_at(5, &ids[1], subscribe(n));
        let generation = f.joined(calling).generation_id;
        assert_eq!(f.joined(following).generation_id, generation);
        // Nor does anything while the assignment is awaited.
        for _ in 0..20 {
            f.pass(Duration::from_secs(1));
            f.finish_writes();
            for id in &ids {
                f.heartbeat(id, generation);
            }
        }
        assert_eq!(f.state(), "CompletingRebalance");
        for topic in ["t", "other"] {
            assert!(all(&f).get(topic, 0).is_some(), "{topic} in round {n}");
        }
        // No time passes in the stable state, in which the other topic is known to be read by nobody.
        f.assign(&ids, generation);
    }
    for _ in 0..20 {
        f.pass(Duration::from_secs(1));
        f.finish_writes();
        for id in &ids {
            assert_eq!(f.heartbeat(id, 5), ErrorCode::NONE);
        }
    }
    assert_eq!(found(&mut f), Some(7), "it is subscribed to");
    assert!(all(&f).get("other", 0).is_none());
}

/// BR-019.
#[test]
fn an_explicit_retention_is_kept_to() {
    let mut f = Fixture::new();
    let commit = OffsetCommit {
        retention: Some(Duration::from_secs(3600)),
        version: 4,
        ..commit_of(1)
    };
    committed(&mut f, commit);
    f.pass(Duration::from_secs(3000));
    f.finish_writes();
    assert_eq!(found(&mut f), Some(1));
    f.restart();
    f.pass(Duration::from_secs(1300));
    f.finish_writes();
    assert_eq!(found(&mut f), None);
}

#[test]
fn a_commit_on_its_way_is_not_taken_for_old() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    f.pass(7 * DAY - Duration::from_secs(300));
    let to = f.send(GroupRequest::Commit(commit_of(2)));
    f.pass(Duration::from_secs(900));
    f.finish_writes();
    assert!(f.take(to).is_some());
    assert_eq!(found(&mut f), Some(2));
    f.restart();
    assert_eq!(found(&mut f), Some(2));
}

#[test]
fn groups_are_deleted_when_they_are_empty() {
    let mut f = Fixture::new();
    assert_eq!(deleted(&mut f), ErrorCode::GROUP_ID_NOT_FOUND);
    let ids = f.stable(1);
    assert_eq!(deleted(&mut f), ErrorCode::NON_EMPTY_GROUP);
    f.leave(&ids[0], None);
    f.finish_writes();
    committed(&mut f, commit_of(1));
    let to = f.send(GroupRequest::Delete("g".into()));
    let joining = f.join("");
    assert_eq!(f.joined(joining).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    f.finish_writes();
    assert!(f.take(to).is_some());
    assert_eq!(f.state(), "Dead");
    assert_eq!(found(&mut f), None);
    f.restart();
    assert_eq!(f.state(), "Dead");
}

#[test]
fn nobody_joins_a_group_whose_end_is_being_written_behind_other_records() {
    let mut f = Fixture::new();
    let ids = f.stable(1);
    committed(
        &mut f,
        OffsetCommit {
            generation: 1,
            member: ids[0].clone(),
            ..commit_of(1)
        },
    );
    // The empty generation is on its way, then the end of the group.
    f.leave(&ids[0], None);
    let deletion = f.send(GroupRequest::Delete("g".into()));
    f.finish_write(Ok(()));
    let joining = f.join_at(3, "", |_| {});
    assert_eq!(f.joined(joining).error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    f.finish_writes();
    assert!(f.take(deletion).is_some());
    let joining = f.join_at(3, "", |_| {});
    f.pass(Duration::from_secs(3));
    assert_eq!(f.joined(joining).generation_id, 1);
}

#[test]
fn a_deletion_that_cannot_be_written_leaves_the_group() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    let to = f.send(GroupRequest::Delete("g".into()));
    f.finish_write(Err(ErrorCode::REQUEST_TIMED_OUT));
    let Some(GroupReply::Delete(result)) = f.take(to) else {
        panic!()
    };
    assert_eq!(result.error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE);
    assert_eq!(found(&mut f), Some(1));
    assert_eq!(deleted(&mut f), ErrorCode::NONE);
}

#[test]
fn offsets_are_deleted_unless_their_topic_is_subscribed() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    // A subscription to "s", version 0.
    let subscription: &'static [u8] = &[0, 0, 0, 0, 0, 1, 0, 1, b's', 0xff, 0xff, 0xff, 0xff];
    let to = f.join_at(3, "", |r| r.protocols = vec![protocol("range", subscription)]);
    f.pass(Duration::from_secs(3));
    let id = f.joined(to).member_id;
    f.assign(&[id], 1);
    let to = f.send(GroupRequest::DeleteOffsets {
        group: "g".into(),
        topics: vec![("t".into(), vec![0, 1]), ("s".into(), vec![0])],
    });
    f.finish_writes();
    let Some(GroupReply::DeleteOffsets(Ok(results))) = f.take(to) else {
        panic!()
    };
    assert_eq!(results[0].1, [(0, ErrorCode::NONE), (1, ErrorCode::NONE)]);
    assert_eq!(results[1].1, [(0, ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC)]);
    assert_eq!(found(&mut f), None);
}

/// CG-48: the version of a subscription says nothing about its first fields, and what follows them is not the coordinator's.
#[test]
fn topics_are_read_from_subscriptions_of_every_version() {
    // "s" and no user data; then what a later version has there, or a writer's mistake.
    let prefix: &[u8] = &[0, 0, 0, 1, 0, 1, b's', 0xff, 0xff, 0xff, 0xff];
    let tails: [&[u8]; 4] = [&[], &[0, 0], &[0, 0, 0, 0], &[0xff; 40]];
    for version in [0_u8, 1, 2, 3, 4, 100] {
        for tail in tails {
            let metadata = Bytes::from([&[0, version][..], prefix, tail].concat());
            let mut f = Fixture::new();
            f.join_at(3, "", |r| r.protocols[0].metadata = metadata);
            f.pass(Duration::from_secs(3));
            let group = &f.coordinator.groups["g"].classic;
            assert!(group.may_subscribe_to("s"));
            assert!(!group.may_subscribe_to("t"), "version {version}, tail {tail:?}");
        }
    }
    // What is no subscription may be one to everything.
    for metadata in [
        &[][..],
        &[0],
        &[0, 0],
        &[0xff, 0xff, 0, 0, 0, 0],
        &[0, 1, 0, 0, 0, 9],
    ] {
        let mut f = Fixture::new();
        f.join_at(3, "", |r| r.protocols[0].metadata = Bytes::from_static(metadata));
        f.pass(Duration::from_secs(3));
        assert!(
            f.coordinator.groups["g"].classic.may_subscribe_to("t"),
            "{metadata:?}"
        );
    }
}

/// BR-006.
#[test]
fn a_group_whose_last_offset_was_deleted_is_empty_until_it_is_deleted_or_old() {
    for is_deleted in [true, false] {
        let mut f = Fixture::new();
        committed(&mut f, commit_of(1));
        let to = f.send(GroupRequest::DeleteOffsets {
            group: "g".into(),
            topics: vec![("t".into(), vec![0])],
        });
        f.finish_writes();
        assert!(matches!(f.take(to), Some(GroupReply::DeleteOffsets(Ok(_)))));
        assert_eq!(f.state(), "Empty");
        if is_deleted {
            assert_eq!(deleted(&mut f), ErrorCode::NONE);
        } else {
            f.pass(Duration::from_secs(700));
            f.finish_writes();
        }
        assert_eq!(f.state(), "Dead");
        assert!(f.coordinator.groups.is_empty());
    }
}

/// BR-071.
#[test]
fn a_deleted_topic_takes_its_offsets_along() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    f.coordinator.forget_topics(&[("t".into(), Uuid::ONE)], f.now);
    f.advance(f.now);
    f.finish_writes();
    assert_eq!(found(&mut f), None);
    f.restart();
    assert_eq!(found(&mut f), None);
}

/// What somebody deletes who commits at the same time is there as a whole or not at all.
#[test]
fn a_deletion_takes_the_commits_under_way_along() {
    for deletes_group in [false, true] {
        let mut f = Fixture::new();
        f.commit("g", "t", 0..1, "");
        let commit = f.send_commit("g", "t", 0..3, "");
        let delete = f.send(if deletes_group {
            GroupRequest::Delete("g".into())
        } else {
            GroupRequest::DeleteOffsets {
                group: "g".into(),
                topics: vec![("t".into(), vec![0, 1, 2, 3])],
            }
        });
        f.finish_writes();
        assert_eq!(f.committed(commit), ErrorCode::NONE);
        match f.take(delete) {
            Some(GroupReply::Delete(told)) => assert_eq!(told.error_code, ErrorCode::NONE),
            Some(GroupReply::DeleteOffsets(told)) => assert!(told.is_ok()),
            other => panic!("{other:?}"),
        }
        assert_eq!(f.coordinator.counters().offsets_deleted, 3);
        let left = f.coordinator.groups.get("g").map(|group| group.offsets.topics());
        assert_eq!(left, (!deletes_group).then_some(0));
        f.restart();
        assert!(
            f.coordinator
                .groups
                .values()
                .all(|group| group.offsets.is_empty())
        );
    }
}

#[test]
fn offsets_of_a_group_whose_end_is_being_written_are_not_deleted() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    let ends = f.send(GroupRequest::Delete("g".into()));
    assert_eq!(deleted(&mut f), ErrorCode::COORDINATOR_NOT_AVAILABLE);
    f.finish_writes();
    assert!(f.take(ends).is_some());
    assert!(f.coordinator.groups.is_empty());
    assert_eq!(f.coordinator.counters().offsets_deleted, 1);
}

#[test]
fn an_offset_that_is_named_often_ends_once() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    let delete = f.send(GroupRequest::DeleteOffsets {
        group: "g".into(),
        topics: vec![("t".into(), vec![0; 1_000]), ("t".into(), vec![0; 1_000])],
    });
    assert_eq!(
        f.pending.iter().map(|(_, records)| records.len()).sum::<usize>(),
        1
    );
    f.finish_writes();
    match f.take(delete) {
        Some(GroupReply::DeleteOffsets(Ok(results))) => assert_eq!(results[1].1.len(), 1_000),
        other => panic!("{other:?}"),
    }
}

/// A tombstone that finds nothing takes nothing away.
#[test]
fn what_is_deleted_twice_counts_once() {
    let mut f = Fixture::new();
    committed(&mut f, commit_of(1));
    let twice = |f: &mut Fixture| {
        f.send(GroupRequest::DeleteOffsets {
            group: "g".into(),
            topics: vec![("t".into(), vec![0])],
        })
    };
    let (first, second) = (twice(&mut f), twice(&mut f));
    f.finish_writes();
    assert!(f.take(first).is_some() && f.take(second).is_some());
    assert_eq!(f.coordinator.counters().offsets_deleted, 1);
}
