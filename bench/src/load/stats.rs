//! What a thread counts: an interval at a time, which it hands over at the interval's end. A latency belongs to the phase in which its
//! message was due, also when the answer comes later.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use broker::exit::Failure;

use super::clock::Clock;
use super::latency::Latencies;

/// Messages and bytes of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Messages in requests that were made.
    pub(super) sent: u64,
    /// Messages that the broker acknowledged, or with acks=0 those that the socket took.
    pub(super) acknowledged: u64,
    /// Messages that the broker refused.
    pub(super) refused: u64,
    /// Messages that were due and given up because the rate changed.
    pub(super) given_up: u64,
    /// Messages that consumers got.
    pub(super) consumed: u64,
    /// Bytes of batches that were acknowledged, compressed as they are.
    pub(super) acknowledged_bytes: u64,
    /// Bytes of batches that consumers got.
    pub(super) consumed_bytes: u64,
    /// Produce requests that were answered.
    pub(super) produces: u64,
    /// Fetches that were answered.
    pub(super) fetches: u64,
}

/// What waits at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Messages that are due and in no request yet.
    pub(super) unsent: u64,
    /// Messages in requests without an answer.
    pub(super) in_flight: u64,
}

/// Latencies of a phase and of the one before it.
#[derive(Clone, Debug)]
pub(super) struct ByPhase {
    pub(super) this: Latencies,
    pub(super) before: Option<Latencies>,
}

/// An interval of a thread.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) index: u64,
    pub(super) counts: Counts,
    pub(super) waiting: Waiting,
    /// From due to acknowledged.
    pub(super) produce: ByPhase,
    /// From due to consumed.
    pub(super) end_to_end: ByPhase,
    /// Error codes of refused batches, and how many messages.
    pub(super) errors: BTreeMap<i16, u64>,
}

/// What a thread tells the conductor.
#[derive(Debug)]
pub(super) enum Report {
    /// Its connections are made.
    Connected,
    /// An interval is over.
    Interval(Box<Interval>),
    /// It cannot go on.
    Failed(Failure),
}

/// The counting of one thread.
#[derive(Debug)]
pub(super) struct Stats {
    pub(super) clock: Clock,
    interval_ns: u64,
    phase_from: u64,
    pub(super) current: Interval,
    reports: Sender<Report>,
}

impl ByPhase {
    fn new() -> Self {
        Self {
            this: Latencies::new(),
            before: None,
        }
    }

    fn record(&mut self, phase_from: u64, due: u64, now: u64, messages: u64) {
        let latencies = if due >= phase_from {
            &mut self.this
        } else {
            self.before.get_or_insert_with(Latencies::new)
        };
        latencies.record(now.saturating_sub(due), messages);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.this.add(&other.this);
        if let Some(before) = &other.before {
            self.before.get_or_insert_with(Latencies::new).add(before);
        }
    }
}

impl Interval {
    pub(super) fn new(index: u64) -> Self {
        Self {
            index,
            counts: Counts::default(),
            waiting: Waiting::default(),
            produce: ByPhase::new(),
            end_to_end: ByPhase::new(),
            errors: BTreeMap::new(),
        }
    }

    /// Adds that of another thread.
    pub(super) fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.waiting.unsent += other.waiting.unsent;
        self.waiting.in_flight += other.waiting.in_flight;
        self.produce.add(&other.produce);
        self.end_to_end.add(&other.end_to_end);
        for (code, messages) in &other.errors {
            *self.errors.entry(*code).or_default() += messages;
        }
    }
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.consumed += other.consumed;
        self.acknowledged_bytes += other.acknowledged_bytes;
        self.consumed_bytes += other.consumed_bytes;
        self.produces += other.produces;
        self.fetches += other.fetches;
    }
}

impl Stats {
    pub(super) fn new(clock: Clock, interval_ns: u64, reports: Sender<Report>) -> Self {
        Self {
            clock,
            interval_ns,
            phase_from: 0,
            current: Interval::new(clock.now() / interval_ns),
            reports,
        }
    }

    /// The end of the current interval.
    pub(super) fn end(&self) -> u64 {
        (self.current.index + 1) * self.interval_ns
    }

    /// Hands over the interval, and empty ones if the thread slept through them, once it is over.
    pub(super) fn roll(&mut self, now: u64, waiting: impl FnOnce() -> Waiting) {
        if now < self.end() {
            return;
        }
        let waiting = waiting();
        while now >= self.end() {
            let next = Interval::new(self.current.index + 1);
            let mut over = std::mem::replace(&mut self.current, next);
            over.waiting = waiting;
            // A conductor that is gone needs no figures.
            let _ = self.reports.send(Report::Interval(Box::new(over)));
        }
    }

    /// Messages that were due before `at` belong to an earlier phase.
    pub(super) fn begin_phase(&mut self, at: u64) {
        self.phase_from = at;
    }

    pub(super) fn record_produce(&mut self, due: u64, now: u64, messages: u64) {
        self.current.produce.record(self.phase_from, due, now, messages);
    }

    pub(super) fn record_end_to_end(&mut self, due: u64, now: u64) {
        self.current.end_to_end.record(self.phase_from, due, now, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_belongs_to_the_phase_in_which_its_message_was_due() {
        let (reports, received) = std::sync::mpsc::channel();
        let mut stats = Stats::new(Clock::new(), 1_000_000_000_000, reports);
        stats.begin_phase(1000);
        stats.record_produce(999, 5000, 3);
        stats.record_produce(1000, 5000, 2);
        let before = stats
            .current
            .produce
            .before
            .as_ref()
            .expect("there is one")
            .count();
        assert_eq!((before, stats.current.produce.this.count()), (3, 2));
        let end = stats.end();
        stats.roll(end - 1, || unreachable!("it is not over"));
        // It slept through two ends: both intervals come, the latencies once.
        stats.roll(end + 1_000_000_000_000, Waiting::default);
        let counts: Vec<u64> = received
            .try_iter()
            .map(|report| match report {
                Report::Interval(interval) => interval.produce.this.count(),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(counts, [2, 0]);
    }
}
