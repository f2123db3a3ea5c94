//! How offsets and groups end when an operator deletes them (CG-51, CG-52); `sweep.rs` finds those that grew old.

use std::collections::BTreeSet;

use protocol::{ErrorCode, Str};

use super::classic::{CONSUMER, ClassicGroup, GroupState};
use super::offsets::tombstone;
use super::record::GroupRecord;
use super::request::GroupReply;
use super::turn::{Then, Turn};
use super::writes::Pending;
use super::{Group, GroupCoordinator, append, deletion};
use crate::env::{Instant, WallMs};
use crate::message::ReplyTo;

impl GroupCoordinator {
    pub(super) fn delete_offsets(
        &mut self,
        to: ReplyTo,
        id: &Str,
        topics: &[(Str, Vec<i32>)],
        now: Instant,
        wall: WallMs,
    ) {
        let (groups, mut turn) = self.turn(now, wall);
        let refused = |error| GroupReply::DeleteOffsets(Err(error));
        let group = match groups.get_mut(id) {
            _ if id.is_empty() => return turn.reply(to, refused(ErrorCode::INVALID_GROUP_ID)),
            None => return turn.reply(to, refused(ErrorCode::GROUP_ID_NOT_FOUND)),
            Some(group) if group.is_ending || !turn.may_append() => {
                return turn.reply(to, refused(ErrorCode::COORDINATOR_NOT_AVAILABLE));
            }
            Some(group) => group,
        };
        let classic = &group.classic;
        if classic.state != GroupState::Empty && classic.protocol_type.as_deref() != Some(CONSUMER) {
            return turn.reply(to, refused(ErrorCode::NON_EMPTY_GROUP));
        }
        let mut records = Vec::new();
        let mut results = Vec::with_capacity(topics.len());
        let id = &classic.id;
        // What is being written goes, too: its commit has its place before this.
        let pending = pending(&turn, classic);
        let is_there = |topic: &Str, partition: i32| {
            group.offsets.get(topic, partition).is_some()
                || (!pending.is_empty() && pending.contains_key(&(topic.clone(), partition)))
        };
        // One tombstone for each, however often it is named.
        let mut ends = BTreeSet::new();
        for (topic, partitions) in topics {
            // What is kept until it is written holds no frame.
            let topic = &topic.detached();
            let error = classic.check_offset_delete(topic).err().unwrap_or_default();
            results.push((topic.clone(), partitions.iter().map(|p| (*p, error)).collect()));
            let kept = partitions.iter().filter(|p| {
                error == ErrorCode::NONE && is_there(topic, **p) && ends.insert((topic.clone(), **p))
            });
            records.extend(kept.map(|p| tombstone(id, topic, *p)));
        }
        if records.is_empty() {
            return turn.reply(to, GroupReply::DeleteOffsets(Ok(results)));
        }
        append(&mut turn, group, records, Then::OffsetsDeleted { to, results });
    }

    pub(super) fn delete(&mut self, to: ReplyTo, id: &Str, now: Instant, wall: WallMs) {
        let (groups, mut turn) = self.turn(now, wall);
        let refused = |error| deletion(id, Err(error));
        match groups.get_mut(id) {
            None => turn.reply(to, refused(ErrorCode::GROUP_ID_NOT_FOUND)),
            Some(group) if group.is_ending || !turn.may_append() => {
                turn.reply(to, refused(ErrorCode::COORDINATOR_NOT_AVAILABLE));
            }
            Some(group) if group.classic.state != GroupState::Empty => {
                turn.reply(to, refused(ErrorCode::NON_EMPTY_GROUP));
            }
            Some(group) => end_group(&mut turn, group, Then::Deleted { to }),
        }
    }
}

impl ClassicGroup {
    /// Whether offsets of a topic may be deleted (CG-51).
    fn check_offset_delete(&self, topic: &str) -> Result<(), ErrorCode> {
        if self.state != GroupState::Empty && self.may_subscribe_to(topic) {
            return Err(ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);
        }
        Ok(())
    }
}

/// Writes the end of a group without members: of its offsets, and of itself.
pub(super) fn end_group(turn: &mut Turn<'_>, group: &mut Group, then: Then) {
    let id = group.classic.id.clone();
    let mut records = group.offsets.tombstones(&id);
    let is_new = |(topic, partition): &(Str, i32)| group.offsets.get(topic, *partition).is_none();
    let under_way = pending(turn, &group.classic).into_keys().filter(is_new);
    records.extend(under_way.map(|(topic, partition)| tombstone(&id, &topic, partition)));
    records.push(GroupRecord::Group {
        group: id,
        value: None,
    });
    group.is_ending = true;
    append(turn, group, records, then);
}

/// What the appends under way make of the group's offsets.
fn pending(turn: &Turn<'_>, group: &ClassicGroup) -> Pending {
    if group.open_writes == 0 {
        return Pending::new();
    }
    turn.effects.writes.pending_offsets(&group.id)
}
