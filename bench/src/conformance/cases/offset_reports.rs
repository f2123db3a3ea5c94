//! What people have reported about committed offsets on brokers of all kinds (BR-019…133), each with its kind: the same in other
//! versions, after restarts, of topics made anew.

use std::time::Duration;

use protocol::compression::Codec;
use protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use protocol::messages::delete_topics::DeleteTopicsRequest;
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::{ErrorCode, Str, Uuid};

use super::group_offsets::{commit_of, fetch_of, nowhere};
use super::groups::{group, leave_one};
use super::member_reports::subscriber;
use crate::conformance::Case;
use crate::conformance::batch::{Rec, compressed};
use crate::conformance::dialogue::{Dialogue, Topic, delete_of, fetch_of as read_of};
use crate::conformance::target::{GROUPS, RESTARTS, Setup};
use crate::error::Result;

/// Old offsets are looked for each second.
static SWEEPS: Setup = Setup {
    name: "sweeps",
    overrides: &[
        "offsets.retention.check.interval.ms=1000",
        "group.initial.rebalance.delay.ms=0",
    ],
    restarts: true,
};

pub(super) const CASES: &[Case] = &[
    Case::new("BR-019 the retention of a commit, over a restart", retention)
        .on(&SWEEPS)
        .differs("a retention that is negative or too large to add is none; Kafka takes its end for past and drops the offset"),
    Case::new(
        "BR-060 the leader epoch of a commit, over a kill -9 (BR-095)",
        epochs,
    )
    .on(&RESTARTS),
    Case::new("BR-071 commits by topic id, of a topic made anew", topic_ids).on(&GROUPS),
    Case::new("BR-097 offsets of new partitions", new_partitions).on(&GROUPS),
    Case::new("BR-129 commits beyond the end", beyond_the_end).on(&GROUPS),
    Case::new("BR-133 what a page of a UI adds up", page).on(&GROUPS),
];

/// ListOffsets of some partitions of a topic at a time.
fn ends_of(topic: &Topic, partitions: &[i32], timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.name.clone(),
            partitions: partitions
                .iter()
                .map(|partition| ListOffsetsPartition {
                    partition_index: *partition,
                    current_leader_epoch: -1,
                    timestamp,
                })
                .collect(),
        }],
        ..Default::default()
    }
}

fn retention(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 1, &[])?;
    let mut groups = Vec::new();
    for (version, kept_ms) in [
        (2, -1),
        (3, -1),
        (4, -1),
        (5, -1),
        (8, -1),
        (2, 3_600_000),
        (4, 3_600_000),
        (4, i64::MAX),
        (2, 500),
        (3, 500),
        (4, 500),
        (4, 0),
        (4, -2),
        (4, i64::MIN),
    ] {
        let short = format!("v{version}x{kept_ms}");
        let group = group(d, &short)?;
        let mut commit = commit_of(&group, &topic, &[(0, 5)]);
        commit.retention_time_ms = kept_ms;
        d.ask(&format!("kept for {kept_ms} ms"), version, &commit)?;
        groups.push(short);
    }
    // Members that hold on to their offsets, and one that has left them behind.
    for short in ["stays", "leaves"] {
        let group = group(d, short)?;
        let member = subscriber(d, &group, &topic, 60_000)?;
        let mut commit = commit_of(&group, &topic, &[(0, 5)]);
        commit.generation_id_or_member_epoch = 1;
        commit.member_id = member.clone();
        commit.retention_time_ms = 500;
        d.ask(&format!("of a member that {short}"), 4, &commit)?;
        if short == "leaves" {
            d.quiet(5, &leave_one(5, &group, &member))?;
        }
        groups.push(short.to_owned());
    }
    for label in ["after three seconds", "after a restart"] {
        std::thread::sleep(Duration::from_millis(3_000));
        for short in &groups {
            let group = group(d, short)?;
            let found = d.quiet(7, &fetch_of(7, &group, Some(&[(&topic, &[0])])))?;
            let offset = found.topics[0].partitions[0].committed_offset;
            d.note(&format!("{label}, {short}: {offset}"));
        }
        if label == "after three seconds" {
            d.hang_up();
            d.target().stop_and_start()?;
        }
    }
    Ok(())
}

fn epochs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 4, &[])?;
    for version in 6..=10 {
        let group = group(d, &format!("v{version}"))?;
        let mut commit = commit_of(&group, &topic, &[(0, 5), (1, 6), (2, 7), (3, 8)]);
        let told = [
            (7, Some("m")),
            (3, Some("")),
            (-1, None),
            (i32::MAX, Some("\u{e9}")),
        ];
        for (partition, (epoch, metadata)) in commit.topics[0].partitions.iter_mut().zip(told) {
            partition.committed_leader_epoch = epoch;
            partition.committed_metadata = metadata.map(Str::from_static);
        }
        d.ask("epochs 7, 3, none, the largest", version, &commit)?;
    }
    for label in ["at once", "after kill -9"] {
        for version in 6..=10 {
            let group = group(d, &format!("v{version}"))?;
            for asked in 5..=10 {
                let by_name = fetch_of(asked, &group, Some(&[(&topic, &[0, 1, 2, 3])]));
                let by_name = d.quiet(asked, &by_name)?;
                let all = d.quiet(asked, &fetch_of(asked, &group, None))?;
                if version == 6 && matches!(asked, 5 | 8 | 10) {
                    d.show(&format!("{label}, version {asked}"), &by_name);
                    d.show("  all", &all);
                }
                let of_one = by_name.topics.iter().flat_map(|t| &t.partitions);
                let of_group = by_name.groups.iter().flat_map(|g| &g.topics);
                let of_group = of_group.flat_map(|t| &t.partitions);
                let mut told: Vec<_> = of_one
                    .map(|p| (p.partition_index, p.committed_leader_epoch))
                    .chain(of_group.map(|p| (p.partition_index, p.committed_leader_epoch)))
                    .collect();
                told.sort_unstable();
                d.note(&format!(
                    "{label}, by {version}, asked by {asked}: epochs {told:?}"
                ));
            }
        }
        if label == "at once" {
            d.hang_up();
            d.target().kill_and_start()?;
        }
    }
    Ok(())
}

/// Deletes a topic and makes another one of the same name.
fn made_anew(d: &mut Dialogue<'_>, topic: &Topic, short: &str) -> Result<Topic> {
    let delete = DeleteTopicsRequest {
        topic_names: vec![topic.name.clone()],
        timeout_ms: 30_000,
        ..Default::default()
    };
    d.quiet(5, &delete)?;
    std::thread::sleep(Duration::from_millis(1_000));
    d.topic(short, 2, &[])
}

fn topic_ids(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 2, &[])?;
    let stays = d.topic("stays", 2, &[])?;
    let group = group(d, "g")?;
    let zero = Topic {
        name: topic.name.clone(),
        id: Uuid::default(),
    };
    let unknown = nowhere(d);
    for (label, of) in [
        ("a known id", &topic),
        ("the zero id", &zero),
        ("an unknown id", &unknown),
    ] {
        d.ask(label, 10, &commit_of(&group, of, &[(0, 5), (1, 6), (2, 7)]))?;
        d.ask(label, 10, &fetch_of(10, &group, Some(&[(of, &[0, 1])])))?;
    }
    let mut mixed = commit_of(&group, &zero, &[(0, 8)]);
    for of in [&stays, &unknown, &topic] {
        mixed.topics.extend(commit_of(&group, of, &[(0, 9)]).topics);
    }
    d.ask("four ids, two of them good", 10, &mixed)?;
    d.ask("what is stored", 7, &fetch_of(7, &group, None))?;
    let both: [(&Topic, &[i32]); 2] = [(&topic, &[0, 1]), (&stays, &[0, 1])];
    d.ask("what is stored", 10, &fetch_of(10, &group, Some(&both)))?;
    let anew = made_anew(d, &topic, "t")?;
    d.note(&format!("the id is another one: {}", anew.id != topic.id));
    for (label, of) in [
        ("the old id", &topic),
        ("the new id", &anew),
        ("another topic", &stays),
    ] {
        d.ask(label, 10, &fetch_of(10, &group, Some(&[(of, &[0, 1])])))?;
    }
    d.ask("by name", 9, &fetch_of(9, &group, Some(&[(&anew, &[0, 1])])))?;
    d.ask("all", 10, &fetch_of(10, &group, None))?;
    d.ask("the old id", 10, &commit_of(&group, &topic, &[(0, 1)]))?;
    d.ask("the new id", 10, &commit_of(&group, &anew, &[(0, 2)]))?;
    d.ask("all", 7, &fetch_of(7, &group, None))?;
    Ok(())
}

fn new_partitions(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 3, &[])?;
    let group = group(d, "g")?;
    d.ask(
        "there are three",
        8,
        &commit_of(&group, &topic, &[(0, 5), (3, 6)]),
    )?;
    let more = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: topic.name.clone(),
            count: 6,
            assignments: None,
        }],
        timeout_ms: 30_000,
        validate_only: false,
    };
    d.quiet(3, &more)?;
    let ends = ends_of(&topic, &[3, 4, 5], -1);
    for _ in 0..100 {
        let answer = d.quiet(6, &ends)?;
        let mut parts = answer.topics.iter().flat_map(|t| &t.partitions);
        if parts.all(|p| p.error_code == ErrorCode::NONE) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for version in [1, 5, 8, 10] {
        let all: &[i32] = &[0, 1, 2, 3, 4, 5, 6];
        d.ask(
            "there are six",
            version,
            &fetch_of(version, &group, Some(&[(&topic, all)])),
        )?;
    }
    d.ask("the ends", 6, &ends)?;
    d.ask("the starts", 6, &ends_of(&topic, &[3, 4, 5], -2))?;
    for version in [2, 8, 10] {
        d.ask(
            "there are six",
            version,
            &commit_of(&group, &topic, &[(3, 6), (5, 7), (6, 8)]),
        )?;
    }
    d.ask("what is stored", 7, &fetch_of(7, &group, None))?;
    Ok(())
}

fn beyond_the_end(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 2, &[])?;
    let group = group(d, "g")?;
    let batch = d.batch(&["0", "1", "2"]);
    d.written(&topic, 0, batch)?;
    d.quiet(2, &delete_of(&topic, &[(0, 1)]))?;
    for version in 2..=10 {
        for offset in [50, i64::MAX, 0, 3] {
            let commit = commit_of(&group, &topic, &[(0, offset)]);
            let told = d.quiet(version, &commit)?.topics[0].partitions[0].error_code;
            let found = d.quiet(7, &fetch_of(7, &group, Some(&[(&topic, &[0])])))?;
            let found = found.topics[0].partitions[0].committed_offset;
            d.note(&format!(
                "version {version}: committing {offset} is {told:?}, found is {found}"
            ));
        }
    }
    d.ask("fifty", 8, &commit_of(&group, &topic, &[(0, 50)]))?;
    for label in ["three records", "one more"] {
        for offset in [0, 1, 3, 4, 50] {
            d.ask(
                &format!("{label}, at {offset}"),
                12,
                &read_of([(&topic, 0, offset)], 0),
            )?;
        }
        d.ask(label, 7, &fetch_of(7, &group, Some(&[(&topic, &[0, 1])])))?;
        let more = d.batch(&["3"]);
        d.written(&topic, 0, more)?;
    }
    // An answer at once, also where the client would wait for data.
    d.ask_timed(
        "beyond the end, patiently",
        12,
        &read_of([(&topic, 0, 50)], 2_000),
        2_000,
    )?;
    d.ask_timed(
        "below the start, patiently",
        12,
        &read_of([(&topic, 0, 0)], 2_000),
        2_000,
    )?;
    Ok(())
}

/// Partition 0 has records 40 to 99 and a commit of 70; partition 1 has none of either.
fn page(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 2, &[])?;
    let group = group(d, "g")?;
    for ten in 0..10 {
        let stamp = |n: i64| d.stamp_ms() + 1_000 * n;
        let records: Vec<Rec> = (ten * 10..ten * 10 + 10)
            .map(|n| Rec::of(stamp(n), n.to_string()))
            .collect();
        d.written(&topic, 0, compressed(Codec::None, &records))?;
    }
    d.quiet(2, &delete_of(&topic, &[(0, 40)]))?;
    d.quiet(8, &commit_of(&group, &topic, &[(0, 70)]))?;
    d.ask("the starts", 8, &ends_of(&topic, &[0, 1], -2))?;
    d.ask("the ends", 8, &ends_of(&topic, &[0, 1], -1))?;
    d.ask(
        "offsets of the group",
        8,
        &fetch_of(8, &group, Some(&[(&topic, &[0, 1])])),
    )?;
    d.ask("all offsets of the group", 8, &fetch_of(8, &group, None))?;
    for (label, second) in [
        ("at the start", 40),
        ("at one", 50),
        ("the last", 99),
        ("after all", 100),
    ] {
        let time = d.stamp_ms() + 1_000 * second;
        d.ask(label, 8, &ends_of(&topic, &[0], time))?;
    }
    d.ask("between two", 8, &ends_of(&topic, &[0], d.stamp_ms() + 59_500))?;
    for offset in [39, 40, 99, 100] {
        d.ask(&format!("at {offset}"), 12, &read_of([(&topic, 0, offset)], 0))?;
    }
    Ok(())
}
