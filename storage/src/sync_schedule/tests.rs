//! The schedule of syncs and the loss windows, event by event.

use super::*;

const BOUNDS: SyncBounds = SyncBounds {
    class: Durability::Interval,
    ms: 100,
    bytes: 1000,
    records: 50,
};
const UNBOUNDED: SyncBounds = SyncBounds {
    class: Durability::Written,
    ..SyncBounds::NONE
};

/// A schedule whose logs write from offset 0 on.
#[derive(Default)]
struct Logs {
    schedule: SyncSchedule,
    ends: BTreeMap<u32, i64>,
}

impl Logs {
    fn end(&mut self, slot: u32, records: u64) -> Offset {
        let end = self.ends.entry(slot).or_default();
        *end += i64::try_from(records).expect("few");
        Offset(*end)
    }

    fn wrote(&mut self, slot: u32, bounds: SyncBounds, records: u64, bytes: u64) -> bool {
        let end = self.end(slot, records);
        self.schedule.wrote(slot, bounds, end, records, bytes)
    }

    fn journaled(&mut self, slot: u32, records: u64, bytes: u64) {
        let end = self.end(slot, records);
        self.schedule.journaled(slot, end, records, bytes);
    }

    /// Begins a sync; up to where it reaches.
    fn begin(&mut self, slot: u32) -> Offset {
        self.schedule.begin_sync(slot);
        self.end(slot, 0)
    }

    fn sync(&mut self, slot: u32) {
        let end = self.begin(slot);
        self.schedule.covered(slot, end);
    }

    /// Logs, records, bytes and age of class `interval`.
    fn window(&self, now_ms: u64) -> (u64, u64, u64, u64) {
        let window = self.schedule.loss_windows(now_ms).interval;
        (window.logs, window.records, window.bytes, window.age_ms)
    }
}

#[test]
fn a_log_is_due_when_its_time_has_passed_since_the_first_unsynced_write() {
    let mut logs = Logs::default();
    assert!(logs.wrote(1, BOUNDS, 1, 10), "the first write is news");
    assert_eq!(logs.schedule.next_due(1000), [0; 0]);
    assert_eq!(logs.schedule.next_deadline_ms(), Some(1100));
    assert!(!logs.wrote(1, BOUNDS, 1, 10), "later ones change nothing");
    assert_eq!(logs.schedule.next_due(1099), [0; 0]);
    assert_eq!(logs.schedule.next_due(1100), [1]);
    assert_eq!(logs.schedule.unsynced_bytes(), 20);
    logs.sync(1);
    let schedule = &mut logs.schedule;
    assert_eq!(
        (schedule.next_deadline_ms(), schedule.unsynced_bytes()),
        (None, 0)
    );
    assert_eq!(schedule.next_due(5000), [0; 0]);
}

#[test]
fn bytes_and_records_make_a_log_due_at_once() {
    for (records, bytes) in [(1, 1000), (50, 1)] {
        let mut logs = Logs::default();
        logs.wrote(1, BOUNDS, 1, 1);
        assert_eq!(logs.schedule.next_due(7), [0; 0]);
        assert!(
            logs.wrote(1, BOUNDS, records, bytes),
            "its deadline moved to the front"
        );
        assert_eq!(logs.schedule.next_due(8), [1]);
    }
}

#[test]
fn the_write_that_reaches_the_record_bound_is_synced_before_it_counts() {
    let mut logs = Logs::default();
    assert!(!logs.schedule.must_sync(1, BOUNDS, 49));
    assert!(logs.schedule.must_sync(1, BOUNDS, 50));
    logs.wrote(1, BOUNDS, 49, 1);
    assert!(logs.schedule.must_sync(1, BOUNDS, 1));
    assert!(!logs.schedule.must_sync(1, SyncBounds::NONE, 1 << 40));
    // A sync that is under way has covered nothing yet.
    let end = logs.begin(1);
    assert!(logs.schedule.must_sync(1, BOUNDS, 1));
    logs.schedule.covered(1, end);
    assert!(!logs.schedule.must_sync(1, BOUNDS, 1));
}

#[test]
fn what_is_in_the_journal_behind_written_records_counts_too() {
    let mut logs = Logs::default();
    assert!(
        !logs.schedule.must_sync_before(1, BOUNDS, 50),
        "nothing was written before"
    );
    logs.wrote(1, BOUNDS, 40, 1);
    logs.journaled(1, 9, 1);
    assert!(!logs.schedule.must_sync_before(1, BOUNDS, 0));
    assert!(logs.schedule.must_sync_before(1, BOUNDS, 1) && logs.schedule.must_sync(1, BOUNDS, 1));
}

#[test]
fn other_bounds_count_at_once_and_from_when_the_records_were_written() {
    let mut logs = Logs::default();
    logs.wrote(1, UNBOUNDED, 10, 10);
    assert_eq!(logs.schedule.next_due(1000), [0; 0]);
    assert_eq!(logs.schedule.next_deadline_ms(), None);
    assert!(logs.schedule.rebound(1, BOUNDS));
    assert_eq!(logs.schedule.next_deadline_ms(), Some(1100));
    assert!(logs.schedule.rebound(1, UNBOUNDED));
    assert_eq!(logs.schedule.next_deadline_ms(), None);
    assert!(
        !logs.schedule.rebound(2, BOUNDS),
        "a log without unsynced records"
    );
}

#[test]
fn logs_that_are_nearly_due_go_along() {
    let mut logs = Logs::default();
    for (slot, at) in [(1, 0), (2, 20), (3, 60)] {
        logs.wrote(slot, BOUNDS, 1, 1);
        assert_eq!(logs.schedule.next_due(at), [0; 0]);
    }
    assert_eq!(logs.schedule.next_due(100), [1, 2]);
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

#[test]
fn what_a_sync_is_under_way_for_is_lost_until_it_ends_and_what_came_meanwhile_afterwards() {
    let mut logs = Logs::default();
    logs.wrote(1, BOUNDS, 3, 30);
    logs.schedule.note_time(1000);
    assert_eq!(logs.window(1040), (1, 3, 30, 40));
    let end = logs.begin(1);
    assert_eq!(logs.schedule.next_deadline_ms(), None, "it is not due twice");
    assert!(logs.wrote(1, BOUNDS, 2, 20));
    logs.schedule.note_time(1060);
    assert_eq!(logs.schedule.next_deadline_ms(), Some(1160));
    assert_eq!(logs.window(1070), (1, 5, 50, 70));
    logs.schedule.covered(1, end);
    assert_eq!(logs.window(1070), (1, 2, 20, 10));
    // The syncs of a later end may come first.
    let (first, second) = (logs.begin(1), {
        logs.wrote(1, BOUNDS, 1, 1);
        logs.begin(1)
    });
    logs.schedule.covered(1, second);
    assert_eq!(logs.window(2000), (0, 0, 0, 0));
    logs.schedule.covered(1, first);
    assert_eq!(logs.window(2000), (0, 0, 0, 0));
}

#[test]
fn records_in_the_journal_are_lost_with_those_before_them_only() {
    let mut logs = Logs::default();
    logs.journaled(1, 5, 50);
    assert_eq!(logs.window(0), (0, 0, 0, 0), "nothing before them can be lost");
    logs.wrote(1, BOUNDS, 2, 20);
    logs.schedule.note_time(100);
    let end = logs.begin(1);
    logs.journaled(1, 5, 50);
    assert_eq!(logs.window(150), (1, 7, 70, 50));
    assert_eq!(logs.schedule.next_deadline_ms(), None, "they need no sync");
    logs.schedule.covered(1, end);
    assert_eq!(logs.window(150), (0, 0, 0, 0));
    // Behind records that wait for the next sync they wait with them.
    logs.wrote(1, BOUNDS, 1, 10);
    let end = logs.begin(1);
    for _ in 0..1000 {
        logs.wrote(1, BOUNDS, 1, 0);
        logs.journaled(1, 1, 0);
    }
    assert!(logs.schedule.logs[&1].stretches.len() <= 3, "a bound on memory");
    logs.schedule.covered(1, end);
    assert_eq!(logs.window(150).1, 2000);
    logs.sync(1);
    assert_eq!(logs.schedule.unsynced_bytes(), 0);
}

#[test]
fn windows_are_by_class_with_the_bounds_of_their_logs() {
    let mut logs = Logs::default();
    let flushed = SyncBounds { ms: 500, ..UNBOUNDED };
    logs.wrote(1, BOUNDS, 1, 10);
    logs.wrote(2, BOUNDS, 2, 20);
    logs.wrote(3, UNBOUNDED, 3, 30);
    logs.schedule.note_time(1000);
    logs.wrote(4, flushed, 4, 40);
    logs.schedule.note_time(1200);
    let windows = logs.schedule.loss_windows(1800);
    let interval = LossWindow {
        logs: 2,
        records: 3,
        bytes: 30,
        age_ms: 800,
        overdue_ms: 700,
        ms_max: 100,
        bytes_max: 2000,
        records_max: 100,
    };
    assert_eq!(windows.interval, interval);
    let written = windows.written;
    assert_eq!((written.logs, written.records, written.age_ms), (2, 7, 800));
    // The log without a bound is never late, the other one is.
    assert_eq!((written.overdue_ms, written.ms_max), (100, u64::MAX));
    assert_eq!(windows.fsync, LossWindow::default());
    // Until it is synced, a log of another class keeps its records at risk.
    assert!(logs.schedule.rebound(3, SyncBounds::NONE));
    assert_eq!(logs.schedule.loss_windows(1800).fsync.records, 3);
    logs.schedule.forget(3);
    assert_eq!(logs.schedule.loss_windows(1800).fsync, LossWindow::default());
    assert_eq!(logs.schedule.unsynced_bytes(), 70);
}
