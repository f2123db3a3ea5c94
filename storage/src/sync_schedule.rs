//! When logs that are acknowledged without a sync get one: after so many records, bytes or milliseconds (DESIGN §6,
//! `flush.messages`, `flush.ms`). A state machine of one store: events are [`SyncSchedule::wrote`],
//! [`SyncSchedule::rebound`] and [`SyncSchedule::covered`]; [`SyncSchedule::next_due`] and
//! [`SyncSchedule::next_deadline_ms`] are its outputs. Time is a parameter, milliseconds of any clock that only goes forward.

use std::collections::{BTreeMap, BTreeSet};

use crate::log::config::{Durability, LogConfig};

/// What may be unsynced of one log; `u64::MAX` is no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncBounds {
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
        ms: u64::MAX,
        bytes: u64::MAX,
        records: u64::MAX,
    };

    /// The bounds of a log. Class `fsync` has none: what it acknowledges is synced.
    #[must_use]
    pub fn of(config: &LogConfig, interval: IntervalBounds) -> Self {
        let flush = Self {
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

/// The unsynced logs of one store. Memory: about 100 bytes for each log that has unsynced records.
#[derive(Debug, Default)]
pub struct SyncSchedule {
    logs: BTreeMap<u32, Unsynced>,
    /// Deadline and log.
    deadlines: BTreeSet<(u64, u32)>,
    /// Logs that have no time yet.
    fresh: Vec<u32>,
    bytes: u64,
}

#[derive(Debug)]
struct Unsynced {
    bounds: SyncBounds,
    records: u64,
    bytes: u64,
    /// When it was first seen; a write itself has no clock.
    since_ms: Option<u64>,
    deadline_ms: Option<u64>,
}

impl Unsynced {
    fn deadline(&self) -> Option<u64> {
        let since_ms = self.since_ms?;
        if self.bytes >= self.bounds.bytes || self.records >= self.bounds.records {
            return Some(since_ms);
        }
        Some(since_ms.saturating_add(self.bounds.ms)).filter(|at| *at != u64::MAX)
    }
}

impl SyncSchedule {
    /// A log has written `records` records in `bytes` bytes that no sync covers. Returns whether somebody has to look at
    /// the schedule earlier than it would.
    pub fn wrote(&mut self, slot: u32, bounds: SyncBounds, records: u64, bytes: u64) -> bool {
        let is_new = !self.logs.contains_key(&slot);
        let log = self.logs.entry(slot).or_insert(Unsynced {
            bounds,
            records: 0,
            bytes: 0,
            since_ms: None,
            deadline_ms: None,
        });
        log.bounds = bounds;
        log.records = log.records.saturating_add(records);
        log.bytes += bytes;
        self.bytes += bytes;
        if is_new {
            self.fresh.push(slot);
        }
        self.schedule(slot) || (is_new && bounds != SyncBounds::NONE)
    }

    /// Whether a commit that brings the log `records` more has to sync them before it is acknowledged.
    #[must_use]
    pub fn must_sync(&self, slot: u32, bounds: SyncBounds, records: u64) -> bool {
        let before = self.logs.get(&slot).map_or(0, |log| log.records);
        before.saturating_add(records) >= bounds.records
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

    /// All the log has written so far is synced, or is being synced and will not be touched before that is done, or the
    /// log is gone.
    pub fn covered(&mut self, slot: u32) {
        if let Some(log) = self.logs.remove(&slot) {
            self.bytes -= log.bytes;
            if let Some(deadline) = log.deadline_ms {
                self.deadlines.remove(&(deadline, slot));
            } else {
                self.fresh.retain(|fresh| *fresh != slot);
            }
        }
    }

    /// All logs that are due at `now_ms`, and those whose time is nearly up if one is: a sync of many costs less than many
    /// syncs. They stay until [`Self::covered`].
    pub fn next_due(&mut self, now_ms: u64) -> Vec<u32> {
        for slot in std::mem::take(&mut self.fresh) {
            if let Some(log) = self.logs.get_mut(&slot) {
                log.since_ms = Some(now_ms);
                self.schedule(slot);
            }
        }
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

    /// When the next log is due; `None` also when a log was written and [`Self::next_due`] has not been asked since.
    #[must_use]
    pub fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Bytes written and not synced, of all logs.
    #[must_use]
    pub const fn unsynced_bytes(&self) -> u64 {
        self.bytes
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

/// A log is synced together with others when less than this part of its time is left.
const NEARLY_DUE_SHARE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: SyncBounds = SyncBounds {
        ms: 100,
        bytes: 1000,
        records: 50,
    };

    #[test]
    fn a_log_is_due_when_its_time_has_passed_since_the_first_unsynced_write() {
        let mut schedule = SyncSchedule::default();
        assert!(schedule.wrote(1, BOUNDS, 1, 10), "the first write is news");
        assert_eq!(schedule.next_due(1000), [0; 0]);
        assert_eq!(schedule.next_deadline_ms(), Some(1100));
        assert!(!schedule.wrote(1, BOUNDS, 1, 10), "later ones change nothing");
        assert_eq!(schedule.next_due(1099), [0; 0]);
        assert_eq!(schedule.next_due(1100), [1]);
        assert_eq!(schedule.unsynced_bytes(), 20);
        schedule.covered(1);
        assert_eq!(
            (schedule.next_deadline_ms(), schedule.unsynced_bytes()),
            (None, 0)
        );
        assert_eq!(schedule.next_due(5000), [0; 0]);
    }

    #[test]
    fn bytes_and_records_make_a_log_due_at_once() {
        for (records, bytes) in [(1, 1000), (50, 1)] {
            let mut schedule = SyncSchedule::default();
            schedule.wrote(1, BOUNDS, 1, 1);
            assert_eq!(schedule.next_due(7), [0; 0]);
            assert!(
                schedule.wrote(1, BOUNDS, records, bytes),
                "its deadline moved to the front"
            );
            assert_eq!(schedule.next_due(8), [1]);
        }
    }

    #[test]
    fn the_write_that_reaches_the_record_bound_is_synced_before_it_counts() {
        let mut schedule = SyncSchedule::default();
        assert!(!schedule.must_sync(1, BOUNDS, 49));
        assert!(schedule.must_sync(1, BOUNDS, 50));
        schedule.wrote(1, BOUNDS, 49, 1);
        assert!(schedule.must_sync(1, BOUNDS, 1));
        assert!(!schedule.must_sync(1, SyncBounds::NONE, 1 << 40));
    }

    #[test]
    fn other_bounds_count_at_once_and_from_when_the_records_were_written() {
        let mut schedule = SyncSchedule::default();
        schedule.wrote(1, SyncBounds::NONE, 10, 10);
        assert_eq!(schedule.next_due(1000), [0; 0]);
        assert_eq!(schedule.next_deadline_ms(), None);
        assert!(schedule.rebound(1, BOUNDS));
        assert_eq!(schedule.next_deadline_ms(), Some(1100));
        assert!(schedule.rebound(1, SyncBounds::NONE));
        assert_eq!(schedule.next_deadline_ms(), None);
        assert!(!schedule.rebound(2, BOUNDS), "a log without unsynced records");
    }

    #[test]
    fn logs_that_are_nearly_due_go_along() {
        let mut schedule = SyncSchedule::default();
        for (slot, at) in [(1, 0), (2, 20), (3, 60)] {
            schedule.wrote(slot, BOUNDS, 1, 1);
            assert_eq!(schedule.next_due(at), [0; 0]);
        }
        assert_eq!(schedule.next_due(100), [1, 2]);
    }

    #[test]
    fn the_classes_have_their_bounds() {
        let config = |durability, flush_ms| LogConfig {
            durability,
            flush_ms,
            flush_messages: 9,
            ..LogConfig::default()
        };
        let interval = IntervalBounds { ms: 200, bytes: 7 };
        let of = |durability, ms| SyncBounds::of(&config(durability, ms), interval);
        assert_eq!(of(Durability::Fsync, 5), SyncBounds::NONE);
        let written = of(Durability::Written, 500);
        assert_eq!((written.ms, written.bytes, written.records), (500, u64::MAX, 9));
        let interval = of(Durability::Interval, 500);
        assert_eq!((interval.ms, interval.bytes, interval.records), (200, 7, 9));
        assert_eq!(of(Durability::Interval, 50).ms, 50);
    }
}
