//! Committed offsets (CG-40…51).

use protocol::messages::delete_groups::DeleteGroupsRequest;
use protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use protocol::{Str, Uuid};

use super::groups::group;
use crate::conformance::Case;
use crate::conformance::dialogue::{Dialogue, Topic};
use crate::conformance::target::GROUPS;
use crate::error::Result;

pub(super) const CASES: &[Case] = &[
    Case::new("CG-40 commits in every version", commits).on(&GROUPS),
    Case::new("CG-41 commits of members that are none", strangers).on(&GROUPS),
    Case::new("CG-42 long metadata", metadata).on(&GROUPS),
    Case::new("CG-44 offsets fetched in every version", fetches).on(&GROUPS),
    Case::new("CG-44 a group named twice", named_twice).on(&GROUPS),
    Case::new("CG-50 offsets of a deleted topic", deleted_topic).on(&GROUPS),
    Case::new("CG-51 offsets deleted", deletes).on(&GROUPS),
];

pub(super) fn commit_of(group: &Str, topic: &Topic, partitions: &[(i32, i64)]) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: group.clone(),
        generation_id_or_member_epoch: -1,
        retention_time_ms: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: topic.name.clone(),
            topic_id: topic.id,
            partitions: partitions
                .iter()
                .map(|(partition, offset)| OffsetCommitRequestPartition {
                    partition_index: *partition,
                    committed_offset: *offset,
                    committed_leader_epoch: -1,
                    committed_metadata: Some("said".into()),
                })
                .collect(),
        }],
        ..Default::default()
    }
}

/// What is asked in the form of a version.
pub(super) fn fetch_of(version: i16, group: &Str, topics: Option<&[(&Topic, &[i32])]>) -> OffsetFetchRequest {
    if version < 8 {
        return OffsetFetchRequest {
            group_id: group.clone(),
            topics: topics.map(|topics| {
                let topic = |(topic, partitions): &(&Topic, &[i32])| OffsetFetchRequestTopic {
                    name: topic.name.clone(),
                    partition_indexes: partitions.to_vec(),
                };
                topics.iter().map(topic).collect()
            }),
            ..Default::default()
        };
    }
    OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: group.clone(),
            member_epoch: -1,
            topics: topics.map(|topics| {
                let topic = |(topic, partitions): &(&Topic, &[i32])| OffsetFetchRequestTopics {
                    name: topic.name.clone(),
                    topic_id: topic.id,
                    partition_indexes: partitions.to_vec(),
                };
                topics.iter().map(topic).collect()
            }),
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub(super) fn delete_of(group: &Str, topics: &[(&Topic, &[i32])]) -> OffsetDeleteRequest {
    OffsetDeleteRequest {
        group_id: group.clone(),
        topics: topics
            .iter()
            .map(|(topic, partitions)| OffsetDeleteRequestTopic {
                name: topic.name.clone(),
                partitions: partitions
                    .iter()
                    .map(|p| OffsetDeleteRequestPartition { partition_index: *p })
                    .collect(),
            })
            .collect(),
    }
}

pub(super) fn nowhere(d: &Dialogue<'_>) -> Topic {
    Topic {
        name: d.name("nowhere"),
        id: Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def0),
    }
}

fn commits(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 2, &[])?;
    let nowhere = nowhere(d);
    for version in 2..=10 {
        let group = group(d, &format!("v{version}"))?;
        d.ask(
            "two partitions and one too many",
            version,
            &commit_of(&group, &topic, &[(0, 5), (1, 6), (2, 7)]),
        )?;
        d.ask("no such topic", version, &commit_of(&group, &nowhere, &[(0, 5)]))?;
        d.ask(
            "a negative offset",
            version,
            &commit_of(&group, &topic, &[(0, -1)]),
        )?;
        let fetch = fetch_of(7, &group, Some(&[(&topic, &[0, 1, 2])]));
        d.ask("what is there", 7, &fetch)?;
    }
    let group = group(d, "none")?;
    let mut nothing = commit_of(&group, &topic, &[]);
    d.ask("no partitions", 8, &nothing)?;
    nothing.topics.clear();
    d.ask("no topics", 8, &nothing)?;
    d.ask("no name", 8, &commit_of(&Str::new(), &topic, &[(0, 5)]))?;
    let delete = DeleteGroupsRequest {
        groups_names: vec![Str::new()],
    };
    d.ask("no name", 2, &delete)?;
    d.ask("no name", 2, &delete)?;
    Ok(())
}

fn named_twice(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 2, &[])?;
    let group = group(d, "g")?;
    d.ask(
        "both partitions",
        8,
        &commit_of(&group, &topic, &[(0, 5), (1, 6)]),
    )?;
    let mut fetch = fetch_of(8, &group, Some(&[(&topic, &[0])]));
    let second = fetch_of(8, &group, Some(&[(&topic, &[1, 0])]));
    fetch.groups.extend(second.groups);
    for version in [8, 9] {
        d.ask("each with partitions of its own", version, &fetch)?;
    }
    Ok(())
}

fn strangers(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 1, &[])?;
    let group = group(d, "g")?;
    for version in [2, 8, 9] {
        for (generation, member, instance) in [
            (1, "x", None),
            (0, "", None),
            (-1, "x", None),
            (-1, "", Some("i")),
        ] {
            let mut commit = commit_of(&group, &topic, &[(0, 5)]);
            commit.generation_id_or_member_epoch = generation;
            commit.member_id = Str::from_static(member);
            commit.group_instance_id = if version >= 7 {
                instance.map(Str::from_static)
            } else {
                None
            };
            d.ask(&format!("{generation} {member:?} {instance:?}"), version, &commit)?;
        }
    }
    Ok(())
}

fn metadata(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 3, &[])?;
    let group = group(d, "g")?;
    let mut commit = commit_of(&group, &topic, &[(0, 5), (1, 6), (2, 7)]);
    commit.topics[0].partitions[1].committed_metadata = Some(Str::from("x".repeat(4097)));
    commit.topics[0].partitions[2].committed_metadata = Some(Str::from("\u{e9}".repeat(4096)));
    d.ask("the second is too long", 8, &commit)?;
    commit.topics[0].partitions[0].committed_metadata = None;
    d.ask("the first is null", 8, &commit)?;
    let mut found = d.quiet(7, &fetch_of(7, &group, Some(&[(&topic, &[0, 1])])))?;
    found
        .topics
        .iter_mut()
        .for_each(|t| t.partitions.sort_by_key(|p| p.partition_index));
    d.show("what is there", &found);
    Ok(())
}

fn fetches(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 3, &[])?;
    let nowhere = nowhere(d);
    let group = group(d, "g")?;
    let unknown = super::groups::group(d, "unknown")?;
    d.quiet(8, &commit_of(&group, &topic, &[(0, 5), (1, 6)]))?;
    for version in 1..=10 {
        d.ask(
            "some",
            version,
            &fetch_of(version, &group, Some(&[(&topic, &[0, 2, 9])])),
        )?;
        d.ask(
            "no such topic",
            version,
            &fetch_of(version, &group, Some(&[(&nowhere, &[0])])),
        )?;
        d.ask(
            "no such group",
            version,
            &fetch_of(version, &unknown, Some(&[(&topic, &[0])])),
        )?;
        if version >= 2 {
            d.ask("all", version, &fetch_of(version, &group, None))?;
            d.ask("all of no group", version, &fetch_of(version, &unknown, None))?;
        }
        d.ask("none", version, &fetch_of(version, &group, Some(&[])))?;
    }
    let mut both = fetch_of(8, &group, None);
    both.groups
        .extend(fetch_of(8, &unknown, Some(&[(&topic, &[0])])).groups);
    both.require_stable = true;
    d.ask("two groups", 8, &both)?;
    Ok(())
}

fn deleted_topic(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 1, &[])?;
    let kept = d.topic("kept", 1, &[])?;
    let group = group(d, "g")?;
    d.quiet(8, &commit_of(&group, &topic, &[(0, 5)]))?;
    d.quiet(8, &commit_of(&group, &kept, &[(0, 6)]))?;
    let delete = protocol::messages::delete_topics::DeleteTopicsRequest {
        topic_names: vec![topic.name.clone()],
        timeout_ms: 30_000,
        ..Default::default()
    };
    d.quiet(5, &delete)?;
    // The coordinator hears of it later than who asked.
    for _ in 0..600 {
        let told = d.quiet(7, &fetch_of(7, &group, None))?;
        if told.topics.iter().all(|found| found.name != topic.name) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    d.ask("what is left", 7, &fetch_of(7, &group, None))?;
    Ok(())
}

fn deletes(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("t", 2, &[])?;
    let nowhere = nowhere(d);
    let group = group(d, "g")?;
    d.ask("unknown group", 0, &delete_of(&group, &[(&topic, &[0])]))?;
    d.ask("no name", 0, &delete_of(&Str::new(), &[(&topic, &[0])]))?;
    d.quiet(8, &commit_of(&group, &topic, &[(0, 5), (1, 6)]))?;
    d.ask(
        "one, and what is not there",
        0,
        &delete_of(&group, &[(&topic, &[0, 7]), (&nowhere, &[0])]),
    )?;
    d.ask("once more", 0, &delete_of(&group, &[(&topic, &[0])]))?;
    d.ask("what is left", 7, &fetch_of(7, &group, None))?;
    d.ask("nothing", 0, &delete_of(&group, &[]))?;
    Ok(())
}
