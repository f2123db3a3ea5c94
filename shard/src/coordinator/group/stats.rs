//! What a coordinator counts, and what it tells a scrape of its groups and committed offsets: page by page, so that a partition
//! with a million of them holds its shard up for no longer than one with a thousand. Plain numbers of one coordinator.

use std::ops::Bound::{Excluded, Unbounded};

use protocol::Str;

use super::classic::GroupState;
use super::record::GroupRecord;
use super::turn::Then;
use super::writes::Write;
use super::{Group, GroupCoordinator};
use crate::histogram::Histogram;

/// Why a rebalance began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum RebalanceReason {
    /// Somebody new joined.
    MemberJoined,
    /// A member said something new, or the leader asked for another assignment.
    MemberChanged,
    /// A member left.
    MemberLeft,
    /// A member was not heard of for its session timeout.
    SessionExpired,
    /// A member did not sync in time.
    SyncExpired,
    /// An instance came back with other protocols, or before its group had its assignment.
    InstanceReplaced,
    /// The assignment could not be written.
    AssignmentFailed,
    /// The group was loaded with more members than `group.max.size` allows now.
    SizeExceeded,
}

/// How many reasons there are.
pub const REBALANCE_REASONS: usize = 8;

impl RebalanceReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; REBALANCE_REASONS] = [
        Self::MemberJoined,
        Self::MemberChanged,
        Self::MemberLeft,
        Self::SessionExpired,
        Self::SyncExpired,
        Self::InstanceReplaced,
        Self::AssignmentFailed,
        Self::SizeExceeded,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemberJoined => "member_joined",
            Self::MemberChanged => "member_changed",
            Self::MemberLeft => "member_left",
            Self::SessionExpired => "session_expired",
            Self::SyncExpired => "sync_expired",
            Self::InstanceReplaced => "instance_replaced",
            Self::AssignmentFailed => "assignment_failed",
            Self::SizeExceeded => "size_exceeded",
        }
    }
}

/// Running counts of a coordinator since it was made.
#[derive(Clone, Debug, Default)]
pub struct GroupCounters {
    /// Rebalances begun, by [`RebalanceReason`] number.
    pub rebalances_begun: [u64; REBALANCE_REASONS],
    /// From the call to join until the assignment was there, of those that got that far. What interrupts a rebalance prolongs it.
    pub rebalances: Histogram,
    /// Offsets committed.
    pub offsets_committed: u64,
    /// Committed offsets that grew old.
    pub offsets_expired: u64,
    /// Committed offsets deleted: by request, with their group or with their topic.
    pub offsets_deleted: u64,
    /// Joins, syncs and commits refused because the memory of coordinators is used up.
    pub memory_refusals: u64,
}

impl GroupCounters {
    /// Records of a group were written, which took `gone` offsets away: a tombstone may find nothing any more.
    pub(super) fn count(&mut self, done: &Write, gone: u64) {
        let is_commit = |record: &&GroupRecord| matches!(record, GroupRecord::Offset { offset: Some(_), .. });
        self.offsets_committed += done.records.iter().filter(is_commit).count() as u64;
        match done.then {
            Then::Expired | Then::Ended => self.offsets_expired += gone,
            _ => self.offsets_deleted += gone,
        }
    }

    /// A rebalance begins.
    pub(super) fn begun(&mut self, reason: RebalanceReason) {
        self.rebalances_begun[reason as usize] += 1;
    }

    /// Adds another one's counts.
    pub fn merge(&mut self, other: &Self) {
        let reasons = self.rebalances_begun.iter_mut().zip(other.rebalances_begun);
        reasons.for_each(|(mine, theirs)| *mine += theirs);
        self.rebalances.merge(&other.rebalances);
        self.offsets_committed += other.offsets_committed;
        self.offsets_expired += other.offsets_expired;
        self.offsets_deleted += other.offsets_deleted;
        self.memory_refusals += other.memory_refusals;
    }
}

/// A group for a scrape, or the next part of one whose offsets did not fit the page before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupImage {
    /// Its name.
    pub id: Str,
    /// Its state.
    pub state: GroupState,
    /// How many members it has.
    pub members: usize,
    /// Its committed offsets by topic and partition, in order.
    pub topics: Vec<(Str, Vec<(i32, i64)>)>,
    /// The page before had the part of the group before this one.
    pub is_rest: bool,
}

/// Where the next page begins: behind a group, or behind an offset of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCursor {
    group: Str,
    offset: Option<(Str, i32)>,
}

impl GroupCoordinator {
    /// What has been counted.
    #[must_use]
    pub fn counters(&self) -> &GroupCounters {
        &self.effects.counters
    }

    /// Adds groups and offsets to `page`, in order from behind `from` on, as long as it holds fewer than `entries_max` (a group
    /// counts as one, each offset as one). Returns where to go on if there is more.
    pub fn page(
        &self,
        from: Option<&GroupCursor>,
        entries: &mut usize,
        entries_max: usize,
        page: &mut Vec<GroupImage>,
    ) -> Option<GroupCursor> {
        if let Some(cursor) = from
            && let Some(after) = &cursor.offset
            && let Some(group) = self.groups.get(&cursor.group)
        {
            let behind = image(group, Some(after), entries, entries_max, page);
            if behind.is_some() {
                return cursor_at(&cursor.group, behind);
            }
        }
        let start = from.map_or(Unbounded, |cursor| Excluded(cursor.group.clone()));
        let mut last = from.map(|cursor| cursor.group.clone());
        for (id, group) in self.groups.range((start, Unbounded)) {
            if *entries >= entries_max {
                return Some(GroupCursor {
                    group: last.unwrap_or_default(),
                    offset: None,
                });
            }
            let behind = image(group, None, entries, entries_max, page);
            if behind.is_some() {
                return cursor_at(id, behind);
            }
            last = Some(id.clone());
        }
        None
    }
}

fn cursor_at(group: &Str, offset: Option<(Str, i32)>) -> Option<GroupCursor> {
    Some(GroupCursor {
        group: group.clone(),
        offset,
    })
}

/// Adds a group with as many of its offsets behind `after` as fit; the last one added, if there are more.
fn image(
    group: &Group,
    after: Option<&(Str, i32)>,
    entries: &mut usize,
    entries_max: usize,
    page: &mut Vec<GroupImage>,
) -> Option<(Str, i32)> {
    *entries += 1;
    let mut topics: Vec<(Str, Vec<(i32, i64)>)> = Vec::new();
    let mut more = None;
    for (topic, partition, offset) in group.offsets.behind::<()>(None, after) {
        if *entries >= entries_max {
            more = topics
                .last()
                .and_then(|(topic, of)| Some((topic.clone(), of.last()?.0)))
                .or_else(|| after.cloned());
            // A group at the very end of a page comes without offsets.
            more = more.or_else(|| Some((Str::new(), i32::MIN)));
            break;
        }
        *entries += 1;
        match topics.last_mut() {
            Some((name, of)) if name == topic => of.push((partition, offset.offset)),
            _ => topics.push((topic.clone(), vec![(partition, offset.offset)])),
        }
    }
    page.push(GroupImage {
        id: group.classic.id.clone(),
        state: group.classic.state,
        members: group.classic.len(),
        topics,
        is_rest: after.is_some(),
    });
    more
}
