//! Committed offsets are looked through for those that are over: old ones, and those of topics that are gone (CG-48, CG-50). One
//! group after the other, in turns of a bounded size and no faster than the log takes the tombstones: a partition with a million
//! offsets holds its shard up for no longer than one with a thousand.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use protocol::{Str, Uuid};

use super::classic::{CONSUMER, ClassicGroup, GroupState};
use super::ending::end_group;
use super::offsets::{CommittedOffset, Offsets, tombstone};
use super::record::GroupRecord;
use super::timers::Timer;
use super::turn::Then;
use super::writes::Pending;
use super::{Group, GroupCoordinator, append};
use crate::budget::BudgetClass;
use crate::env::{Instant, WallMs};
use crate::image::MetadataImage;

/// Offsets and groups that one turn looks at: under a millisecond's work, and tombstones of about 450 KB.
pub(super) const SWEEP_ENTRIES_MAX: usize = 2048;

/// What the tombstones of such a turn hold at most, for which there has to be room in the memory of the shard's coordinators.
const SWEEP_TURN_BYTES: u64 = 512 << 10;

/// The same where there is no such room, and offsets of a group that one turn looks at at least: the coordinators of all partitions
/// may sweep at the same time.
const LOOKS_MIN: usize = 64;

/// How long a sweep waits when the log is behind.
pub(super) const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// An offset of a topic that is not there goes when it is as old, whatever [`KnownTopics::since`] says: no shard is that far behind.
const HEARD_OF_MS: i64 = 60_000;

/// The metadata's topics, and since when a shard knows them so.
#[derive(Clone, Debug)]
pub struct KnownTopics {
    /// The metadata.
    pub image: Arc<MetadataImage>,
    /// Commits of this time and later may be of topics that other shards have heard of before.
    pub since: WallMs,
}

impl KnownTopics {
    /// Whether the topic of a committed offset is gone, or another one has its name now.
    fn are_without(&self, topic: &str, offset: &CommittedOffset, wall: WallMs) -> bool {
        let is_settled =
            offset.committed_ms < self.since.0 || wall.0.saturating_sub(offset.committed_ms) > HEARD_OF_MS;
        is_settled
            && self
                .image
                .topics
                .by_name(topic)
                .is_none_or(|found| offset.topic_id != Uuid::default() && offset.topic_id.0 != found.id.0)
    }
}

/// Topics by name with the ids that they had: one may have come and gone more than once.
type Gone = BTreeMap<Str, BTreeSet<Uuid>>;

/// What a sweep looks for.
#[derive(Debug)]
enum Target {
    /// Offsets of these topics.
    Gone(Gone),
    /// Offsets of topics that are not in the metadata; if it says so, old ones, too.
    All { expires: bool },
}

/// What a sweep looks at next: a group, behind one of its offsets.
#[derive(Debug)]
struct Position {
    group: Str,
    after: Option<(Str, i32)>,
}

#[derive(Debug)]
struct Sweep {
    target: Target,
    /// `None` before it has begun.
    next: Option<Position>,
}

/// Sweeps that have not come to their end, the first one under way. Those that have not begun are taken together, so that there are
/// three at most. While there is one, there is a [`Timer::Sweep`].
#[derive(Debug, Default)]
pub(super) struct Sweeps(VecDeque<Sweep>);

impl Sweeps {
    fn push(&mut self, target: Target) {
        for waiting in self.0.iter_mut().filter(|sweep| sweep.next.is_none()) {
            match (&mut waiting.target, &target) {
                (Target::Gone(all), Target::Gone(more)) => {
                    for (name, ids) in more {
                        all.entry(name.clone()).or_default().extend(ids);
                    }
                    return;
                }
                (Target::All { expires }, Target::All { expires: more }) => {
                    *expires |= more;
                    return;
                }
                _ => {}
            }
        }
        self.0.push_back(Sweep { target, next: None });
    }
}

/// What was found in a part of a group.
#[derive(Debug, Default)]
struct Found {
    /// Tombstones of offsets whose topics are gone, and of old ones.
    gone: Vec<GroupRecord>,
    old: Vec<GroupRecord>,
    /// There are offsets that stay.
    some_stay: bool,
    /// The last offset looked at, if there are more.
    rest: Option<(Str, i32)>,
}

/// Why an offset goes.
enum Over {
    Gone,
    Old,
}

impl GroupCoordinator {
    /// The topics as they are from now on.
    pub fn know_topics(&mut self, topics: KnownTopics) {
        self.topics = Some(topics);
    }

    /// Topics are gone, with their ids: so are the offsets that were committed for them (CG-50).
    pub fn forget_topics(&mut self, topics: &[(Str, Uuid)], now: Instant) {
        let mut gone = Gone::new();
        for (name, id) in topics {
            gone.entry(name.clone()).or_default().insert(*id);
        }
        if !gone.is_empty() {
            self.begin_sweep(Target::Gone(gone), now);
        }
    }

    /// All offsets are looked at: for topics that went without anybody saying so here, and for old ones if that is asked for.
    pub(super) fn sweep_all(&mut self, expires: bool, now: Instant) {
        self.begin_sweep(Target::All { expires }, now);
    }

    /// Turns follow one by one, also the first: the coordinators of all partitions may have come to this at the same time.
    fn begin_sweep(&mut self, target: Target, now: Instant) {
        if self.sweeps.0.is_empty() {
            self.effects.timers.set(now, Timer::Sweep);
        }
        self.sweeps.push(target);
    }

    /// The next turn of the sweep that is under way.
    pub(super) fn sweep(&mut self, now: Instant, wall: WallMs) {
        let Some(mut sweep) = self.sweeps.0.pop_front() else {
            return;
        };
        let has_room = self.memory.has_room(BudgetClass::Coordinator, SWEEP_TURN_BYTES);
        let mut entries = if has_room {
            self.sweep_entries_max
        } else {
            LOOKS_MIN.min(self.sweep_entries_max)
        };
        let mut next = sweep.next.take().or_else(|| self.at_group(&Str::new()));
        while let Some(position) = next.take_if(|_| entries > 0 && self.effects.writes.are_few()) {
            next = self.sweep_group(&sweep.target, &position, &mut entries, now, wall);
        }
        let pause = if self.effects.writes.are_few() {
            Duration::ZERO
        } else {
            SWEEP_PAUSE
        };
        if next.is_some() {
            sweep.next = next;
            self.sweeps.0.push_front(sweep);
        }
        if !self.sweeps.0.is_empty() {
            self.effects.timers.set(now.after(pause), Timer::Sweep);
        }
    }

    /// The first group of this name or behind it.
    fn at_group(&self, name: &Str) -> Option<Position> {
        let (group, _) = self.groups.range::<Str, _>((Included(name), Unbounded)).next()?;
        Some(Position {
            group: group.clone(),
            after: None,
        })
    }

    /// Looks at a group, or a part of it; returns what comes next.
    fn sweep_group(
        &mut self,
        target: &Target,
        at: &Position,
        entries: &mut usize,
        now: Instant,
        wall: WallMs,
    ) -> Option<Position> {
        *entries = entries.saturating_sub(1);
        let next_name = |groups: &BTreeMap<Str, Group>| {
            let behind = (Excluded(&at.group), Unbounded);
            groups.range::<Str, _>(behind).next().map(|(name, _)| Position {
                group: name.clone(),
                after: None,
            })
        };
        let topics = self.topics.clone();
        let looks_min = LOOKS_MIN.min(self.sweep_entries_max);
        let (groups, mut turn) = self.turn(now, wall);
        let Some(group) = groups.get_mut(&at.group).filter(|group| !group.is_ending) else {
            return next_name(&*groups);
        };
        let pending = if group.classic.open_writes > 0 {
            *entries = entries.saturating_sub(turn.effects.writes.len());
            turn.effects.writes.pending_offsets(&at.group)
        } else {
            Pending::new()
        };
        let judge = Judge {
            target,
            topics: topics.as_ref(),
            retention: turn.settings.offsets_retention,
            wall,
            classic: &group.classic,
            looks_min,
        };
        let found = judge.look(&group.offsets, at.after.as_ref(), &pending, entries);
        let classic = &group.classic;
        let ends = matches!(target, Target::All { expires: true })
            && at.after.is_none()
            && found.rest.is_none()
            && !found.some_stay
            && found.gone.is_empty()
            && classic.state == GroupState::Empty
            && classic.pending.is_empty()
            && classic.open_writes == 0;
        if ends {
            end_group(&mut turn, group, Then::Ended);
        } else {
            append(&mut turn, group, found.old, Then::Expired);
            append(&mut turn, group, found.gone, Then::Nothing);
        }
        match found.rest {
            Some(rest) => Some(Position {
                group: at.group.clone(),
                after: Some(rest),
            }),
            None => next_name(&*groups),
        }
    }
}

/// Tells which offsets of a group are over.
struct Judge<'a> {
    target: &'a Target,
    topics: Option<&'a KnownTopics>,
    retention: Duration,
    wall: WallMs,
    classic: &'a ClassicGroup,
    /// [`LOOKS_MIN`], or a whole turn's entries where those are fewer.
    looks_min: usize,
}

impl Judge<'_> {
    fn over(&self, topic: &Str, offset: &CommittedOffset) -> Option<Over> {
        match self.target {
            Target::Gone(gone) => {
                let ids = gone.get(topic)?;
                (offset.topic_id == Uuid::default() || ids.contains(&offset.topic_id)).then_some(Over::Gone)
            }
            Target::All { expires } => {
                if self
                    .topics
                    .is_some_and(|known| known.are_without(topic, offset, self.wall))
                {
                    return Some(Over::Gone);
                }
                let is_old = || self.classic.is_expired(topic, offset, self.retention, self.wall);
                (*expires && is_old()).then_some(Over::Old)
            }
        }
    }

    /// Looks at the group's offsets behind `after`, as long as `entries` last. An offset that is being written anew counts as what
    /// it will be: its tombstone would come behind it.
    fn look(
        &self,
        offsets: &Offsets,
        after: Option<&(Str, i32)>,
        pending: &Pending,
        entries: &mut usize,
    ) -> Found {
        let mut found = Found::default();
        self.look_ahead(offsets, pending, &mut found);
        let only = match self.target {
            Target::Gone(gone) => Some(gone),
            Target::All { .. } => None,
        };
        if let Some(only) = only {
            *entries = entries.saturating_sub(only.len().min(offsets.topics()));
        }
        // However much the rest of the turn has taken: there has to be an end to it.
        let mut looks = (*entries).max(self.looks_min);
        let mut last = None;
        for (topic, partition, offset) in offsets.behind(only, after) {
            if looks == 0 {
                found.rest = last.map(|(topic, partition): (&Str, i32)| (topic.clone(), partition));
                *entries = 0;
                return found;
            }
            looks -= 1;
            last = Some((topic, partition));
            if pending.is_empty() || !pending.contains_key(&(topic.clone(), partition)) {
                self.judge(topic, partition, offset, &mut found);
            }
        }
        *entries = (*entries).min(looks);
        found
    }

    /// Looks at what is being written. A tombstone comes behind all of it and may be the only one that is written: there is none where
    /// something stays if another append fails. The next search for old offsets comes back to that.
    fn look_ahead(&self, offsets: &Offsets, pending: &Pending, found: &mut Found) {
        for ((topic, partition), values) in pending {
            let Some(Some(last)) = values.last() else { continue };
            let there = offsets.get(topic, *partition);
            if values
                .iter()
                .flatten()
                .chain(there)
                .all(|value| self.over(topic, value).is_some())
            {
                self.judge(topic, *partition, last, found);
            } else {
                found.some_stay = true;
            }
        }
    }

    fn judge(&self, topic: &Str, partition: i32, offset: &CommittedOffset, found: &mut Found) {
        let tombstones = match self.over(topic, offset) {
            Some(Over::Gone) => &mut found.gone,
            Some(Over::Old) => &mut found.old,
            None => return found.some_stay = true,
        };
        tombstones.push(tombstone(&self.classic.id, topic, partition));
    }
}

impl ClassicGroup {
    /// Whether an offset has grown old (CG-48). `retention` is `offsets.retention.minutes`.
    fn is_expired(&self, topic: &str, offset: &CommittedOffset, retention: Duration, wall: WallMs) -> bool {
        let since = match (&self.protocol_type, self.state) {
            // Without members ever: each offset for itself.
            (None, _) => offset.committed_ms,
            (Some(_), GroupState::Empty) => self.since.0.max(offset.committed_ms),
            (Some(kind), GroupState::Stable) if kind == CONSUMER && !self.may_subscribe_to(topic) => {
                offset.committed_ms
            }
            _ => return false,
        };
        match offset.expires_ms {
            Some(at) => wall.0 >= at,
            None => wall.0.saturating_sub(since) >= i64::try_from(retention.as_millis()).unwrap_or(i64::MAX),
        }
    }
}
