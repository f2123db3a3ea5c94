//! Commits of offsets: who may, which records they make (CG-40…43, CG-49).

use protocol::{ErrorCode, Str};

use super::classic::{ClassicGroup, GroupState};
use super::offsets::{CommittedOffset, Offsets};
use super::record::GroupRecord;
use super::request::{ByTopic, CommitTopic, GroupReply, OffsetCommit};
use super::turn::Then;
use super::writes::held_bytes;
use super::{Group, GroupCoordinator, append};
use crate::env::{Instant, WallMs};
use crate::message::ReplyTo;

impl GroupCoordinator {
    pub(super) fn commit(&mut self, to: ReplyTo, commit: &OffsetCommit, now: Instant, wall: WallMs) {
        if let Err(error) = self.check_commit(commit) {
            return self.reply(to, refusal(commit, error));
        }
        // The frame is charged to a request whose client may leave: nothing of it is kept until this is written.
        let known = self.groups.get(&commit.group);
        let id = known.map_or_else(|| commit.group.detached(), |group| group.classic.id.clone());
        let (records, results) = commit_records(&id, commit, self.settings.offset_metadata_bytes_max, wall);
        if records.is_empty() {
            self.with(&id, now, wall, |group, turn| {
                group.renew_session(turn, &commit.member);
            });
            return self.reply(to, GroupReply::Commit(results));
        }
        let nothing = Offsets::default();
        let offsets = self.groups.get(&id).map_or(&nothing, |group| &group.offsets);
        let growth = offsets.growth(commit);
        let then = Then::Committed { to, results, growth };
        let held = held_bytes(&records, &then);
        if !self.effects.writes.have_room(&self.memory, held, growth > 0) {
            self.effects.refuse_for_memory(&id);
            return self.reply(to, refusal(commit, ErrorCode::COORDINATOR_NOT_AVAILABLE));
        }
        let (groups, mut turn) = self.turn(now, wall);
        let memory = turn.memory;
        let group = groups
            .entry(id)
            .or_insert_with_key(|id| Group::new(id.clone(), wall, memory));
        group.classic.renew_session(&mut turn, &commit.member);
        append(&mut turn, group, records, then);
    }

    fn check_commit(&self, commit: &OffsetCommit) -> Result<(), ErrorCode> {
        // The empty name is that of a group, too, for those who commit without members (as in Kafka).
        match self.groups.get(&commit.group) {
            Some(group) if group.is_ending => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Some(group) => group.classic.check_commit(commit),
            None if commit.generation < 0 => Ok(()),
            None if commit.version >= 9 => Err(ErrorCode::GROUP_ID_NOT_FOUND),
            None => Err(ErrorCode::ILLEGAL_GENERATION),
        }
    }
}

impl ClassicGroup {
    /// Whether these offsets may be committed (CG-40, CG-41).
    ///
    /// # Errors
    /// The error of all partitions.
    fn check_commit(&self, commit: &OffsetCommit) -> Result<(), ErrorCode> {
        if commit.generation < 0 && self.state == GroupState::Empty {
            return Ok(());
        }
        if commit.generation < 0 && commit.member.is_empty() && commit.instance.is_none() {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        self.check_member(&commit.member, commit.instance.as_ref())?;
        if commit.generation != self.generation {
            return Err(ErrorCode::ILLEGAL_GENERATION);
        }
        if self.state == GroupState::CompletingRebalance {
            return Err(ErrorCode::REBALANCE_IN_PROGRESS);
        }
        Ok(())
    }
}

/// The answer that refuses all of a commit.
fn refusal(commit: &OffsetCommit, error: ErrorCode) -> GroupReply {
    let refused = |topic: &CommitTopic| {
        let partitions = topic.partitions.iter().map(|p| (p.0, error));
        (topic.name.clone(), partitions.collect())
    };
    GroupReply::Commit(commit.topics.iter().map(refused).collect())
}

/// The records of a commit, and the answer if they get committed (CG-42). Of the request's frame they hold nothing.
fn commit_records(
    group: &Str,
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
        let name = topic.name.detached();
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for (partition, offset, leader_epoch, metadata) in &topic.partitions {
            if metadata.len() > metadata_max && metadata.encode_utf16().count() > metadata_max {
                partitions.push((*partition, ErrorCode::OFFSET_METADATA_TOO_LARGE));
                continue;
            }
            partitions.push((*partition, ErrorCode::NONE));
            records.push(GroupRecord::Offset {
                group: group.clone(),
                topic: name.clone(),
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
        results.push((name, partitions));
    }
    (records, results)
}
