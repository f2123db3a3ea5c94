//! What logs that are acknowledged without a sync would lose to a power loss, and when they get their sync: after so many
//! records, bytes or milliseconds (DESIGN §6, `flush.messages`, `flush.ms`). A state machine of one store: events are
//! [`SyncSchedule::wrote`], [`SyncSchedule::journaled`], [`SyncSchedule::note_time`], [`SyncSchedule::rebound`],
//! [`SyncSchedule::begin_sync`], [`SyncSchedule::covered`] and [`SyncSchedule::forget`]; [`SyncSchedule::next_due`],
//! [`SyncSchedule::next_deadline_ms`] and [`SyncSchedule::loss_windows`] are its outputs. Time is a parameter, milliseconds of
//! any clock that only goes forward.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::log::config::{Durability, LogConfig};
use crate::types::Offset;

/// What may be unsynced of one log; `u64::MAX` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncBounds {
    /// The log's class.
    pub class: Durability,
    /// Milliseconds from the first unsynced write to its sync.
    pub ms: u64,
    /// Bytes.
    pub bytes: u64,
    /// Records: the write that reaches so many is synced before it is acknowledged.
    pub records: u64,
}

/// The bounds of durability class `interval` (`penstock.durability.interval.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalBounds {
    /// Milliseconds.
    pub ms: u64,
    /// Bytes of one log.
    pub bytes: u64,
}

impl Default for IntervalBounds {
    fn default() -> Self {
        Self {
            ms: 200,
            bytes: 16 << 20,
        }
    }
}

impl SyncBounds {
    /// Nothing forces a sync.
    pub const NONE: Self = Self {
        class: Durability::Fsync,
        ms: u64::MAX,
        bytes: u64::MAX,
        records: u64::MAX,
    };

    /// The bounds of a log. Class `fsync` has none: what it acknowledges is synced.
    #[must_use]
    pub fn of(config: &LogConfig, interval: IntervalBounds) -> Self {
        let flush = Self {
            class: config.durability,
            ms: config.flush_ms,
            bytes: u64::MAX,
            records: config.flush_messages,
        };
        match config.durability {
            Durability::Fsync => Self::NONE,
            Durability::Written => flush,
            Durability::Interval => Self {
                ms: flush.ms.min(interval.ms),
                bytes: interval.bytes,
                ..flush
            },
        }
    }
}

/// What a power loss would take of the logs of one class, and what their bounds let it take. A sync begins when a bound is
/// reached; what is acknowledged while it runs comes on top.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossWindow {
    /// Logs with acknowledged records that no sync covers.
    pub logs: u64,
    /// Those records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long ago the oldest of them was acknowledged, milliseconds.
    pub age_ms: u64,
    /// By how much the log that is most behind its bound of time is behind it, milliseconds.
    pub overdue_ms: u64,
    /// The longest bound of time of these logs, milliseconds; `u64::MAX` where one has none, 0 without logs.
    pub ms_max: u64,
    /// The sum of their bounds, likewise.
    pub bytes_max: u64,
    /// The sum of their bounds, likewise.
    pub records_max: u64,
}

/// A window for each class. That of `fsync` is open only between the change of a log to it and the sync of what the log had
/// written before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossWindows {
    /// Of class `fsync`.
    pub fsync: LossWindow,
    /// Of class `interval`.
    pub interval: LossWindow,
    /// Of class `written`.
    pub written: LossWindow,
}

impl LossWindow {
    fn merged(self, other: Self) -> Self {
        Self {
            logs: self.logs + other.logs,
            records: self.records + other.records,
            bytes: self.bytes + other.bytes,
            age_ms: self.age_ms.max(other.age_ms),
            overdue_ms: self.overdue_ms.max(other.overdue_ms),
            ms_max: self.ms_max.max(other.ms_max),
            bytes_max: self.bytes_max.saturating_add(other.bytes_max),
            records_max: self.records_max.saturating_add(other.records_max),
        }
    }
}

impl LossWindows {
    /// The windows of two log directories together.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        Self {
            fsync: self.fsync.merged(other.fsync),
            interval: self.interval.merged(other.interval),
            written: self.written.merged(other.written),
        }
    }
}

/// The unsynced logs of one store. Memory: about 200 bytes for each log that has unsynced records.
#[derive(Debug, Default)]
pub struct SyncSchedule {
    logs: BTreeMap<u32, Unsynced>,
    /// Deadline and log.
    deadlines: BTreeSet<(u64, u32)>,
    /// Logs with a stretch that has no time yet.
    fresh: Vec<u32>,
    bytes: u64,
}

#[derive(Debug)]
struct Unsynced {
    bounds: SyncBounds,
    /// The oldest first, which is a written one; at most three for each sync that is under way and for the next.
    stretches: VecDeque<Stretch>,
    deadline_ms: Option<u64>,
}

/// Acknowledged records, back to back, that are lost together.
#[derive(Debug)]
struct Stretch {
    /// In the journal: lost only because what is before them may be.
    is_journaled: bool,
    /// A sync that covers it is under way; what is written from now on is not of it.
    is_closed: bool,
    /// One past the last offset.
    end: Offset,
    records: u64,
    bytes: u64,
    /// When the first of it was acknowledged; a write itself has no clock.
    since_ms: Option<u64>,
}

impl Stretch {
    const fn new(is_journaled: bool, end: Offset, records: u64, bytes: u64) -> Self {
        Self {
            is_journaled,
            is_closed: false,
            end,
            records,
            bytes,
            since_ms: None,
        }
    }

    fn add(&mut self, end: Offset, records: u64, bytes: u64) {
        debug_assert!(self.end < end, "records come in order");
        self.end = end;
        self.records = self.records.saturating_add(records);
        self.bytes += bytes;
    }
}

impl Unsynced {
    /// When what no sync is under way for has to be synced.
    fn deadline(&self) -> Option<u64> {
        let open = self.stretches.iter().find(|s| !s.is_journaled && !s.is_closed)?;
        let since_ms = open.since_ms?;
        if open.bytes >= self.bounds.bytes || open.records >= self.bounds.records {
            return Some(since_ms);
        }
        Some(since_ms.saturating_add(self.bounds.ms)).filter(|at| *at != u64::MAX)
    }

    /// Adds records that were written; returns whether they begin a stretch. What is in the journal behind records for which no
    /// sync is under way becomes part of their stretch: the next sync covers both.
    fn write(&mut self, end: Offset, records: u64, bytes: u64) -> bool {
        let is_open = |s: &Stretch| !s.is_journaled && !s.is_closed;
        let Some(at) = self.stretches.iter().rposition(is_open) else {
            self.stretches.push_back(Stretch::new(false, end, records, bytes));
            return true;
        };
        let journaled: Vec<Stretch> = self.stretches.drain(at + 1..).collect();
        if let Some(open) = self.stretches.back_mut() {
            for stretch in journaled {
                open.add(stretch.end, stretch.records, stretch.bytes);
            }
            open.add(end, records, bytes);
        }
        false
    }

    /// Adds records that are in the journal.
    fn journal(&mut self, end: Offset, records: u64, bytes: u64) {
        match self.stretches.back_mut() {
            Some(last) if last.is_journaled && !last.is_closed => last.add(end, records, bytes),
            _ => self.stretches.push_back(Stretch::new(true, end, records, bytes)),
        }
    }

    /// Records that a power loss may take, those in the journal behind written ones among them.
    fn records(&self) -> u64 {
        self.stretches
            .iter()
            .fold(0, |sum, s| sum.saturating_add(s.records))
    }
}

impl SyncSchedule {
    /// A log has written `records` records in `bytes` bytes up to `end`, and no sync covers them. Returns whether somebody has
    /// to look at the schedule earlier than it would.
    pub fn wrote(&mut self, slot: u32, bounds: SyncBounds, end: Offset, records: u64, bytes: u64) -> bool {
        let log = self.logs.entry(slot).or_insert(Unsynced {
            bounds,
            stretches: VecDeque::new(),
            deadline_ms: None,
        });
        log.bounds = bounds;
        let is_new = log.write(end, records, bytes);
        self.bytes += bytes;
        if is_new {
            self.fresh.push(slot);
        }
        self.schedule(slot) || (is_new && bounds != SyncBounds::NONE)
    }

    /// Records of a log up to `end` were acknowledged that are in the journal, synced. A power loss takes them all the same if
    /// it takes what the log has written before them.
    pub fn journaled(&mut self, slot: u32, end: Offset, records: u64, bytes: u64) {
        if let Some(log) = self.logs.get_mut(&slot) {
            log.journal(end, records, bytes);
            self.bytes += bytes;
        }
    }

    /// What was written since this was last told is acknowledged by now.
    pub fn note_time(&mut self, now_ms: u64) {
        for slot in std::mem::take(&mut self.fresh) {
            if let Some(log) = self.logs.get_mut(&slot) {
                for stretch in &mut log.stretches {
                    stretch.since_ms.get_or_insert(now_ms);
                }
                self.schedule(slot);
            }
        }
    }

    /// Whether a commit that brings the log `records` more has to sync them before it is acknowledged.
    #[must_use]
    pub fn must_sync(&self, slot: u32, bounds: SyncBounds, records: u64) -> bool {
        let before = self.logs.get(&slot).map_or(0, Unsynced::records);
        before.saturating_add(records) >= bounds.records
    }

    /// Whether a commit that puts `records` more of the log into the journal has to sync first what was written before them.
    #[must_use]
    pub fn must_sync_before(&self, slot: u32, bounds: SyncBounds, records: u64) -> bool {
        self.logs.contains_key(&slot) && self.must_sync(slot, bounds, records)
    }

    /// The log has other bounds now; returns whether somebody has to look.
    pub fn rebound(&mut self, slot: u32, bounds: SyncBounds) -> bool {
        match self.logs.get_mut(&slot) {
            Some(log) if log.bounds != bounds => {
                log.bounds = bounds;
                self.schedule(slot);
                true
            }
            _ => false,
        }
    }

    /// A sync begins of all that the log has written so far, and none of it will be touched before that is done. The log is not
    /// due for it any more; it counts as unsynced until [`Self::covered`].
    pub fn begin_sync(&mut self, slot: u32) {
        if let Some(log) = self.logs.get_mut(&slot) {
            for stretch in &mut log.stretches {
                stretch.is_closed = true;
            }
            self.schedule(slot);
        }
    }

    /// What the log has written below `end` is synced.
    pub fn covered(&mut self, slot: u32, end: Offset) {
        let Some(log) = self.logs.get_mut(&slot) else {
            return;
        };
        while let Some(first) = log.stretches.front()
            && (first.is_journaled || first.end <= end)
        {
            self.bytes -= first.bytes;
            log.stretches.pop_front();
        }
        if log.stretches.is_empty() {
            self.forget(slot);
        } else {
            self.schedule(slot);
        }
    }

    /// All the log has written is synced, or the log is gone.
    pub fn forget(&mut self, slot: u32) {
        if let Some(log) = self.logs.remove(&slot) {
            self.bytes -= log.stretches.iter().map(|s| s.bytes).sum::<u64>();
            if let Some(deadline) = log.deadline_ms {
                self.deadlines.remove(&(deadline, slot));
            }
            if log.stretches.iter().any(|s| s.since_ms.is_none()) {
                self.fresh.retain(|fresh| *fresh != slot);
            }
        }
    }

    /// All logs that are due at `now_ms`, and those whose time is nearly up if one is: a sync of many costs less than many
    /// syncs. They stay until [`Self::begin_sync`].
    pub fn next_due(&mut self, now_ms: u64) -> Vec<u32> {
        self.note_time(now_ms);
        if self.next_deadline_ms().is_none_or(|deadline| deadline > now_ms) {
            return Vec::new();
        }
        let nearly = |slot: &u32| {
            self.logs.get(slot).is_some_and(|log| {
                let slack_ms = log.bounds.ms / NEARLY_DUE_SHARE;
                log.deadline_ms
                    .is_some_and(|at| at <= now_ms.saturating_add(slack_ms))
            })
        };
        let slots = self.deadlines.iter().map(|(_, slot)| *slot);
        slots.filter(nearly).collect()
    }

    /// When the next log is due; `None` also when a log was written and neither [`Self::note_time`] nor [`Self::next_due`] has
    /// been called since.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Bytes acknowledged and not synced, of all logs.
    #[must_use]
    pub const fn unsynced_bytes(&self) -> u64 {
        self.bytes
    }

    /// What a power loss at `now_ms` would take. Looks at each log that has unsynced records: for reports.
    #[must_use]
    pub fn loss_windows(&self, now_ms: u64) -> LossWindows {
        let mut windows = LossWindows::default();
        for log in self.logs.values() {
            let window = match log.bounds.class {
                Durability::Fsync => &mut windows.fsync,
                Durability::Interval => &mut windows.interval,
                Durability::Written => &mut windows.written,
            };
            window.add(log, now_ms);
        }
        windows
    }

    /// Brings the log's deadline up to date; returns whether it is the first of all now and was not.
    fn schedule(&mut self, slot: u32) -> bool {
        let Some(log) = self.logs.get_mut(&slot) else {
            return false;
        };
        let before = log.deadline_ms;
        log.deadline_ms = log.deadline();
        if log.deadline_ms == before {
            return false;
        }
        let first = self.deadlines.first().copied();
        if let Some(deadline) = before {
            self.deadlines.remove(&(deadline, slot));
        }
        match log.deadline_ms {
            Some(deadline) => {
                self.deadlines.insert((deadline, slot));
                first.is_none_or(|first| (deadline, slot) < first)
            }
            None => false,
        }
    }
}

impl LossWindow {
    fn add(&mut self, log: &Unsynced, now_ms: u64) {
        let bounds = &log.bounds;
        self.logs += 1;
        for stretch in &log.stretches {
            self.records = self.records.saturating_add(stretch.records);
            self.bytes += stretch.bytes;
        }
        let since_ms = log.stretches.front().and_then(|first| first.since_ms);
        let age_ms = since_ms.map_or(0, |since| now_ms.saturating_sub(since));
        self.age_ms = self.age_ms.max(age_ms);
        self.overdue_ms = self.overdue_ms.max(age_ms.saturating_sub(bounds.ms));
        self.ms_max = self.ms_max.max(bounds.ms);
        self.bytes_max = self.bytes_max.saturating_add(bounds.bytes);
        self.records_max = self.records_max.saturating_add(bounds.records);
    }
}

/// A log is synced together with others when less than this part of its time is left.
const NEARLY_DUE_SHARE: u64 = 4;

#[cfg(test)]
mod tests;
