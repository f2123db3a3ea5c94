//! Commits of offsets: who may, which records they make (CG-40…43, CG-49).

use protocol::ErrorCode;

use super::offsets::{CommittedOffset, Offsets};
use super::record::GroupRecord;
use super::request::{ByTopic, GroupReply, OffsetCommit};
use super::turn::Then;
use super::{Group, GroupCoordinator, append};
use crate::budget::BudgetClass;
use crate::env::{Instant, WallMs};
use crate::message::ReplyTo;

impl GroupCoordinator {
    pub(super) fn commit(&mut self, to: ReplyTo, commit: &OffsetCommit, now: Instant, wall: WallMs) {
        if let Err(error) = self.check_commit(commit) {
            let results = commit
                .topics
                .iter()
                .map(|t| {
                    (
                        t.name.clone(),
                        t.partitions.iter().map(|p| (p.0, error)).collect(),
                    )
                })
                .collect();
            return self.reply(to, GroupReply::Commit(results));
        }
        let (groups, mut turn) = self.turn(now, wall);
        let memory = turn.memory;
        let group = groups
            .entry(commit.group.detached())
            .or_insert_with_key(|id| Group::new(id, wall, memory));
        group.classic.renew_session(&mut turn, &commit.member);
        let (records, results) = commit_records(commit, turn.settings.offset_metadata_bytes_max, wall);
        if records.is_empty() {
            turn.reply(to, GroupReply::Commit(results));
            return self.drop_void(&commit.group);
        }
        let held = group.offsets.growth(commit);
        group.charge.grow_anyway(held);
        append(&mut turn, group, records, Then::Committed { to, results, held });
    }

    fn check_commit(&self, commit: &OffsetCommit) -> Result<(), ErrorCode> {
        // The empty name is that of a group, too, for those who commit without members (as in Kafka).
        let group = self.groups.get(&commit.group);
        match group {
            Some(group) if group.is_ending => return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Some(group) => group.classic.check_commit(commit)?,
            None if commit.generation < 0 => {}
            None if commit.version >= 9 => return Err(ErrorCode::GROUP_ID_NOT_FOUND),
            None => return Err(ErrorCode::ILLEGAL_GENERATION),
        }
        let nothing = Offsets::default();
        let more = group.map_or(&nothing, |g| &g.offsets).growth(commit);
        // What is committed already can always be committed again.
        if more > 0 && !self.memory.has_room(BudgetClass::Coordinator, more) {
            return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
        }
        Ok(())
    }
}

/// The records of a commit, and the answer if they get committed (CG-42).
fn commit_records(
    commit: &OffsetCommit,
    metadata_max: usize,
    wall: WallMs,
) -> (Vec<GroupRecord>, ByTopic<ErrorCode>) {
    let expires_ms = commit.retention.map(|kept| {
        wall.0
            .saturating_add(i64::try_from(kept.as_millis()).unwrap_or(i64::MAX))
    });
    let mut records = Vec::new();
    let mut results = Vec::with_capacity(commit.topics.len());
    for topic in &commit.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (partition, offset, leader_epoch, metadata) in &topic.partitions {
            if metadata.len() > metadata_max && metadata.encode_utf16().count() > metadata_max {
                partitions.push((*partition, ErrorCode::OFFSET_METADATA_TOO_LARGE));
                continue;
            }
            partitions.push((*partition, ErrorCode::NONE));
            records.push(GroupRecord::Offset {
                group: commit.group.clone(),
                topic: topic.name.clone(),
                partition: *partition,
                offset: Some(CommittedOffset {
                    offset: *offset,
                    leader_epoch: *leader_epoch,
                    metadata: metadata.detached(),
                    committed_ms: wall.0,
                    expires_ms,
                    topic_id: topic.id,
                }),
            });
        }
        results.push((topic.name.clone(), partitions));
    }
    (records, results)
}
