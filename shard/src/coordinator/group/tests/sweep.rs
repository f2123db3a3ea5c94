//! Looking through committed offsets (CG-48, CG-50): in turns of a bounded size, no faster than the log, and with regard to what is
//! being written.

use std::sync::Arc;

use protocol::messages::cluster_metadata::TopicRecord;

use super::super::sweep::{SWEEP_ENTRIES_MAX, SWEEP_PAUSE};
use super::writes::WRITES_OPEN_BYTES_MAX;
use super::*;
use crate::controller::MetadataRecord;
use crate::image::{ImageDelta, MetadataImage};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const OTHER: Uuid = Uuid([9; 16]);

/// The metadata of a cluster with these topics, known from `since` on.
pub(super) fn known(topics: &[(&str, Uuid)], since: WallMs) -> KnownTopics {
    let mut delta = ImageDelta::new(&MetadataImage::empty("c"));
    for (name, topic_id) in topics {
        let name = Str::from((*name).to_owned());
        let topic_id = *topic_id;
        let record = MetadataRecord::Topic(TopicRecord { name, topic_id });
        delta.apply(&record).unwrap();
    }
    KnownTopics {
        image: Arc::new(delta.image().clone()),
        since,
    }
}

/// Old offsets are looked for once a day.
fn daily() -> Fixture {
    Fixture::with(GroupSettings {
        offsets_check_interval: DAY,
        ..GroupSettings::default()
    })
}

fn forget(f: &mut Fixture, topic: &'static str, id: Uuid) {
    f.coordinator.forget_topics(&[(topic.into(), id)], f.now);
    f.advance(f.now);
}

/// What is committed for partition 0 of a topic.
fn found(f: &Fixture, group: &str, topic: &str) -> Option<i64> {
    let group = f.coordinator.groups.get(group)?;
    Some(group.offsets.get(topic, 0)?.offset)
}

fn offsets(f: &Fixture) -> usize {
    let groups = f.coordinator.groups.values();
    groups.map(|g| g.offsets.behind::<()>(None, None).count()).sum()
}

/// Commits partition 0 of a topic with this id; not written yet.
fn send_commit(f: &mut Fixture, group: &str, topic: &'static str, id: Uuid, offset: i64) -> ReplyTo {
    f.send(GroupRequest::Commit(OffsetCommit {
        group: Str::from(group.to_owned()),
        generation: -1,
        version: 8,
        topics: vec![CommitTopic {
            name: topic.into(),
            id,
            partitions: vec![(0, offset, -1, Str::new())],
        }],
        ..OffsetCommit::default()
    }))
}

/// Goes on as long as something is due soon. Returns how many tombstones the largest turn wrote, and how many turns there were.
fn drain(f: &mut Fixture) -> (usize, usize) {
    let (mut most, mut turns) = (0, 0);
    loop {
        turns += 1;
        most = most.max(f.pending.iter().map(|(_, records)| records.len()).sum());
        f.finish_writes();
        match f.coordinator.next_deadline() {
            Some(next) if next <= f.now.after(SWEEP_PAUSE) => f.advance(next),
            _ => return (most, turns),
        }
    }
}

#[test]
fn many_groups_grow_old_in_turns_of_a_bounded_size() {
    let mut f = daily();
    for n in 0..5_000 {
        f.commit(&format!("g-{n}"), "t", 0..2, "");
    }
    f.pass(7 * DAY - Duration::from_secs(60));
    f.finish_writes();
    assert_eq!(offsets(&f), 10_000);
    let next = f.coordinator.next_deadline().unwrap();
    f.advance(next);
    let (most, turns) = drain(&mut f);
    assert!(most <= 2 * SWEEP_ENTRIES_MAX, "{most}");
    assert!(turns >= 7, "{turns}");
    assert!(f.coordinator.groups.is_empty());
    assert_eq!(f.coordinator.counters().offsets_expired, 10_000);
    f.restart();
    assert!(f.coordinator.groups.is_empty());
}

#[test]
fn a_group_with_many_offsets_grows_old_in_turns_and_ends_with_the_next_sweep() {
    let mut f = daily();
    f.commit("g", "t", 0..10_000, "");
    f.pass(7 * DAY - Duration::from_secs(60));
    f.finish_writes();
    let next = f.coordinator.next_deadline().unwrap();
    f.advance(next);
    let (most, turns) = drain(&mut f);
    assert!(most <= SWEEP_ENTRIES_MAX, "{most}");
    assert!(turns >= 5, "{turns}");
    assert_eq!(offsets(&f), 0);
    f.pass(DAY);
    f.finish_writes();
    assert_eq!(f.state(), "Dead");
}

#[test]
fn a_sweep_waits_for_a_slow_log_and_goes_on() {
    let mut f = Fixture::new();
    for n in 0..50 {
        f.commit(&format!("g-{n}"), "t", 0..1_000, "");
    }
    forget(&mut f, "t", Uuid::ONE);
    let held = |f: &Fixture| f.coordinator.effects.writes.recount();
    f.pass(Duration::from_secs(60));
    assert!(held(&f) < 2 * WRITES_OPEN_BYTES_MAX, "{}", held(&f));
    assert_eq!(offsets(&f), 50_000);
    for _ in 0..100 {
        f.finish_writes();
        f.pass(Duration::from_millis(100));
    }
    f.finish_writes();
    assert_eq!(offsets(&f), 0);
    assert_eq!(f.coordinator.counters().offsets_deleted, 50_000);
}

#[test]
fn topics_that_go_while_a_sweep_is_under_way_are_looked_for_as_well() {
    let mut f = Fixture::new();
    for n in 0..5_000 {
        for topic in ["t", "u", "v"] {
            f.commit(&format!("g-{n}"), topic, 0..1, "");
        }
    }
    for topic in ["t", "u", "v"] {
        forget(&mut f, topic, Uuid::ONE);
        let soon = f.now.after(SWEEP_PAUSE);
        assert!(f.coordinator.next_deadline().is_some_and(|next| next <= soon));
    }
    drain(&mut f);
    assert_eq!(offsets(&f), 0);
}

/// CG-50, BR-071: a topic may come again at once.
#[test]
fn commits_under_way_for_a_topic_that_goes_are_gone_and_those_for_its_successor_stay() {
    let mut f = Fixture::new();
    f.commit("a", "t", 0..1, "");
    f.commit("b", "t", 0..1, "");
    send_commit(&mut f, "a", "t", Uuid::ONE, 7);
    send_commit(&mut f, "b", "t", OTHER, 8);
    send_commit(&mut f, "c", "t", Uuid::ONE, 9);
    forget(&mut f, "t", Uuid::ONE);
    f.finish_writes();
    assert_eq!(found(&f, "a", "t"), None);
    assert_eq!(found(&f, "b", "t"), Some(8));
    assert_eq!(found(&f, "c", "t"), None);
    // What is there of the successor when a sweep for its predecessor comes late stays, too.
    forget(&mut f, "t", Uuid::ONE);
    f.finish_writes();
    assert_eq!(found(&f, "b", "t"), Some(8));
    f.restart();
    assert_eq!(found(&f, "b", "t"), Some(8));
    assert_eq!(offsets(&f), 1);
}

/// CG-50: an operator deletes a group while a commit of it is under way, and its topic goes as well.
#[test]
fn a_commit_in_front_of_the_end_of_its_group_does_not_outlast_its_topic() {
    let mut f = Fixture::new();
    send_commit(&mut f, "g", "t", Uuid::ONE, 5);
    f.send(GroupRequest::Delete("g".into()));
    forget(&mut f, "t", Uuid::ONE);
    drain(&mut f);
    assert_eq!(found(&f, "g", "t"), None);
}

/// CG-50: a group has more offsets than a turn looks at.
#[test]
fn a_commit_that_is_written_behind_a_sweep_between_its_turns_does_not_outlast_its_topic() {
    let mut f = Fixture::new();
    f.coordinator.sweep_entries_max = 2;
    f.commit("g", "t", 1..6, "");
    send_commit(&mut f, "g", "t", Uuid::ONE, 5);
    forget(&mut f, "t", Uuid::ONE);
    let (_, turns) = drain(&mut f);
    assert!(turns > 2, "{turns}");
    assert_eq!(offsets(&f), 0);
}

/// CG-50, BR-071: whoever lets a client commit may not have heard yet that another topic has the name.
#[test]
fn a_late_commit_for_a_topic_that_is_gone_does_not_take_the_offset_of_its_successor_along_when_it_fails() {
    let mut f = Fixture::new();
    send_commit(&mut f, "g", "t", OTHER, 8);
    f.finish_writes();
    send_commit(&mut f, "g", "t", Uuid::ONE, 9);
    forget(&mut f, "t", Uuid::ONE);
    f.finish_write(Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    drain(&mut f);
    assert_eq!(found(&f, "g", "t"), Some(8));
}

/// CG-50: a topic went while the partition did not serve.
#[test]
fn offsets_of_topics_that_are_not_there_go_when_a_partition_begins_to_serve() {
    let mut f = Fixture::new();
    for topic in ["gone", "again", "there", "unnamed"] {
        let id = if topic == "unnamed" {
            Uuid::default()
        } else {
            Uuid::ONE
        };
        send_commit(&mut f, "g", topic, id, 5);
        f.finish_writes();
    }
    f.pass(Duration::from_secs(1));
    let topics = [("again", OTHER), ("there", Uuid::ONE), ("unnamed", Uuid([3; 16]))];
    f.restart_with(Some(known(&topics, f.wall)));
    f.finish_writes();
    assert_eq!(found(&f, "g", "gone"), None);
    assert_eq!(found(&f, "g", "again"), None);
    assert_eq!(found(&f, "g", "there"), Some(5));
    assert_eq!(
        found(&f, "g", "unnamed"),
        Some(5),
        "its topic is not known to be another one"
    );
    // Also in the log, and while nothing is known of topics nothing is done.
    f.restart();
    f.finish_writes();
    assert_eq!(offsets(&f), 2);
}

/// A shard may hear of a new topic after those that let clients commit for it.
#[test]
fn commits_that_are_newer_than_the_metadata_stay() {
    for is_heard_of in [false, true] {
        let mut f = Fixture::with(GroupSettings {
            offsets_check_interval: Duration::from_secs(10),
            ..GroupSettings::default()
        });
        f.coordinator.know_topics(known(&[], f.wall));
        f.pass(Duration::from_secs(1));
        send_commit(&mut f, "g", "new", Uuid::ONE, 5);
        f.finish_writes();
        f.pass(Duration::from_secs(50));
        f.finish_writes();
        assert_eq!(found(&f, "g", "new"), Some(5));
        // When the metadata is newer and still without the topic its offsets go, by the search for old ones; and when nothing is heard
        // of it for long, as when the commit came just behind the topic's end.
        if is_heard_of {
            f.coordinator.know_topics(known(&[], f.wall));
            f.pass(Duration::from_secs(9));
        } else {
            f.pass(Duration::from_secs(21));
        }
        f.finish_writes();
        assert_eq!(found(&f, "g", "new"), None);
        assert_eq!(f.coordinator.counters().offsets_deleted, 1);
    }
}

/// What clients wait for goes on, also while the memory is used up and a log is slow.
#[test]
fn a_sweep_leaves_room_for_those_who_commit_again() {
    let mut f = Fixture::with_memory(GroupSettings::default(), 8 << 20);
    let mut groups = 0;
    while f.commit(&format!("g-{groups}"), "t", 0..1_000, "") == ErrorCode::NONE {
        groups += 1;
    }
    assert!(groups > 20, "{groups}");
    forget(&mut f, "u", Uuid::ONE);
    forget(&mut f, "t", OTHER);
    forget(&mut f, "t", Uuid::ONE);
    f.pass(Duration::from_secs(10));
    let held = f.coordinator.effects.writes.recount();
    assert!(held > 0 && held < WRITES_OPEN_BYTES_MAX, "{held}");
    // Nothing has been written, and commits of what is there are taken.
    f.send_commit("g-0", "t", 0..10, "");
    assert!(f.answers.is_empty(), "{:?}", f.answers);
    for _ in 0..1_000 {
        f.finish_writes();
        f.pass(Duration::from_millis(100));
    }
    f.finish_writes();
    assert_eq!(offsets(&f), 10, "what was committed behind the search stays");
}

/// The partitions of a shard may come to it at the same time: each takes little where little is left.
#[test]
fn a_turn_is_small_where_memory_is_short() {
    for (free, most) in [(8 << 20, SWEEP_ENTRIES_MAX), (100 << 10, 64)] {
        let mut f = daily();
        f.commit("g", "t", 0..10_000, "");
        let used = f.memory.read()[BudgetClass::Coordinator as usize].used_bytes;
        f.memory = memory(used + free);
        f.restart();
        forget(&mut f, "t", Uuid::ONE);
        let turn: usize = f.pending.iter().map(|(_, records)| records.len()).sum();
        assert!(turn > most / 2 && turn <= most, "{turn}");
    }
}

/// A tombstone that could not be written is not the end of it.
#[test]
fn tombstones_that_are_lost_are_written_again() {
    let mut f = Fixture::new();
    f.commit("g", "t", 0..1, "");
    f.pass(Duration::from_secs(1));
    f.coordinator.know_topics(known(&[], f.wall));
    forget(&mut f, "t", Uuid::ONE);
    f.finish_write(Err(ErrorCode::NOT_ENOUGH_REPLICAS));
    assert_eq!(found(&f, "g", "t"), Some(0));
    f.pass(Duration::from_secs(600));
    f.finish_writes();
    assert_eq!(found(&f, "g", "t"), None);
}

/// A group that always has a commit under way grows old like any other.
#[test]
fn other_offsets_of_a_group_that_commits_all_the_time_grow_old() {
    let mut f = Fixture::new();
    f.commit("g", "old", 0..3, "");
    f.pass(7 * DAY - Duration::from_secs(60));
    for n in 0..1_000 {
        send_commit(&mut f, "g", "new", Uuid::ONE, n);
        f.pass(Duration::from_secs(1));
        while f.pending.len() > 1 {
            f.finish_write(Ok(()));
        }
        assert!(!f.pending.is_empty(), "a commit is under way");
    }
    f.finish_writes();
    assert_eq!(found(&f, "g", "old"), None);
    assert_eq!(found(&f, "g", "new"), Some(999));
    f.restart();
    assert_eq!(found(&f, "g", "new"), Some(999));
}
