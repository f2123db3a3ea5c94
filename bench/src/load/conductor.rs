//! The conductor: puts the intervals of all threads together, one after the other, and plans what they do next: phases of a fixed run,
//! of a backlog, of the search for the highest rate. It runs on the thread that was called.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use broker::exit::{Failure, Status};

use super::clock::{SECOND_NS, nanoseconds};
use super::control::Change;
use super::latency::Latencies;
use super::outcome::{Point, Used};
use super::stats::{Counts, Interval, Report, Waiting};
use super::worker::Shared;
use crate::resources::{Usage, usage};

/// How long a thread may owe an interval.
const THREAD_TIMEOUT: Duration = Duration::from_secs(120);

/// Time between planning a change and its moment, so that all threads know of it before.
const NOTICE_NS: u64 = 30_000_000;

/// A phase while it goes on.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) name: String,
    /// Its first interval, and the one behind its last.
    pub(super) from: u64,
    pub(super) until: Option<u64>,
    pub(super) asked: Option<f64>,
    pub(super) counts: Counts,
    pub(super) produce: Latencies,
    pub(super) end_to_end: Latencies,
    pub(super) broker: Span,
    pub(super) generator: Span,
}

/// What a process had used at the begin and at the end of a phase.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    first: Option<Usage>,
    last: Option<Usage>,
}

/// The conductor of a run.
pub(super) struct Conductor<'a> {
    pub(super) shared: Arc<Shared>,
    reports: Receiver<Report>,
    say: &'a mut dyn FnMut(&str),
    /// Intervals of which some threads are done, the first being `next`.
    pending: Vec<(Interval, usize)>,
    next: u64,
    pub(super) phases: Vec<Phase>,
    pub(super) series: Vec<Point>,
    pub(super) totals: Counts,
    pub(super) errors: std::collections::BTreeMap<i16, u64>,
    pub(super) waiting: Waiting,
    /// Of the broker and of this program, at the end of the last interval.
    readings: [Option<Usage>; 2],
}

impl Phase {
    fn new(name: String, from: u64, asked: Option<f64>) -> Self {
        Self {
            name,
            from,
            until: None,
            asked,
            counts: Counts::default(),
            produce: Latencies::new(),
            end_to_end: Latencies::new(),
            broker: Span::default(),
            generator: Span::default(),
        }
    }

    fn has(&self, index: u64) -> bool {
        index >= self.from && self.until.is_none_or(|until| index < until)
    }
}

impl Span {
    /// A reading at the end of an interval, and that at the end of the one before.
    fn add(&mut self, before: Option<Usage>, reading: Option<Usage>) {
        self.first = self.first.or(before).or(reading);
        self.last = reading.or(self.last);
    }

    /// What was used for so many messages and bytes.
    pub(super) fn used(&self, seconds: f64, messages: u64, bytes: f64) -> Option<Used> {
        let (first, last) = self.first.zip(self.last)?;
        let cpu_seconds = last.cpu_seconds - first.cpu_seconds;
        Some(Used {
            cpu_seconds,
            system_seconds: last.system_seconds - first.system_seconds,
            cores: cpu_seconds / seconds.max(1e-9),
            cpu_seconds_per_gb: cpu_seconds * 1e9 / bytes.max(1.0),
            cpu_seconds_per_million: cpu_seconds * 1e6 / messages.max(1) as f64,
            resident_peak_bytes: last.resident_peak_bytes,
            written_bytes: last
                .written_bytes
                .zip(first.written_bytes)
                .map(|(last, first)| last.saturating_sub(first)),
        })
    }
}

impl<'a> Conductor<'a> {
    pub(super) fn new(shared: Arc<Shared>, reports: Receiver<Report>, say: &'a mut dyn FnMut(&str)) -> Self {
        Self {
            shared,
            reports,
            say,
            pending: Vec::new(),
            next: 0,
            phases: Vec::new(),
            series: Vec::new(),
            totals: Counts::default(),
            errors: std::collections::BTreeMap::new(),
            waiting: Waiting::default(),
            readings: [None; 2],
        }
    }

    pub(super) fn say(&mut self, line: &str) {
        (self.say)(line);
    }

    /// Waits until all threads have their connections.
    pub(super) fn wait_for_connections(&mut self) -> Result<(), Failure> {
        let mut left = self.shared.plan.threads;
        while left > 0 {
            match self.receive()? {
                Report::Connected => left -= 1,
                Report::Interval(interval) => self.put(*interval),
                Report::Failed(failure) => return Err(failure),
            }
        }
        self.next = self.index_now();
        let next = self.next;
        self.pending.retain(|(interval, _)| interval.index >= next);
        Ok(())
    }

    fn receive(&self) -> Result<Report, Failure> {
        self.reports.recv_timeout(THREAD_TIMEOUT).map_err(|error| {
            let what = match error {
                RecvTimeoutError::Timeout => {
                    format!("a thread of this program says nothing for {THREAD_TIMEOUT:?}")
                }
                RecvTimeoutError::Disconnected => "the threads of this program ended".to_owned(),
            };
            Failure::new(Status::Software, what)
        })
    }

    fn index_now(&self) -> u64 {
        self.shared.clock.now() / self.interval_ns()
    }

    fn interval_ns(&self) -> u64 {
        nanoseconds(self.shared.plan.interval).max(1)
    }

    /// Intervals of a duration, at least one.
    pub(super) fn intervals(&self, time: Duration) -> u64 {
        nanoseconds(time).div_ceil(self.interval_ns()).max(1)
    }

    /// Seconds of so many intervals.
    pub(super) fn seconds(&self, intervals: u64) -> f64 {
        (intervals * self.interval_ns()) as f64 / SECOND_NS as f64
    }

    /// The first interval that can still be planned.
    pub(super) fn soon(&self) -> u64 {
        (self.shared.clock.now() + NOTICE_NS) / self.interval_ns() + 1
    }

    /// Plans changes at the begin of an interval.
    pub(super) fn plan(&self, index: u64, changes: &[Change]) {
        for change in changes {
            self.shared.control.plan(index * self.interval_ns(), *change);
        }
    }

    /// A phase begins, and the one before it ends.
    pub(super) fn begin(&mut self, index: u64, name: impl Into<String>, asked: Option<f64>) {
        self.plan(index, &[Change::Phase]);
        self.end_phase(index);
        self.phases.push(Phase::new(name.into(), index, asked));
    }

    /// The last phase ends. Messages that were due in it still count as its latencies.
    pub(super) fn end_phase(&mut self, index: u64) {
        if let Some(phase) = self.phases.last_mut() {
            phase.until.get_or_insert(index);
        }
    }

    fn put(&mut self, interval: Interval) {
        match self
            .pending
            .iter_mut()
            .find(|(known, _)| known.index == interval.index)
        {
            Some((known, threads)) => {
                known.add(&interval);
                *threads += 1;
            }
            None => self.pending.push((interval, 1)),
        }
    }

    /// Waits for the next interval of all threads and counts it.
    pub(super) fn step(&mut self) -> Result<Point, Failure> {
        let threads = self.shared.plan.threads;
        loop {
            let is_whole =
                |(interval, count): &(Interval, usize)| interval.index == self.next && *count >= threads;
            if let Some(place) = self.pending.iter().position(is_whole) {
                let (interval, _) = self.pending.swap_remove(place);
                self.next += 1;
                return Ok(self.count(&interval));
            }
            match self.receive()? {
                Report::Connected => {}
                Report::Interval(interval) => {
                    if interval.index >= self.next {
                        self.put(*interval);
                    }
                }
                Report::Failed(failure) => return Err(failure),
            }
        }
    }

    /// Counts all intervals before `index`.
    pub(super) fn advance(&mut self, index: u64) -> Result<(), Failure> {
        while self.next < index {
            self.step()?;
        }
        Ok(())
    }

    fn count(&mut self, interval: &Interval) -> Point {
        self.totals.add(&interval.counts);
        self.waiting = interval.waiting;
        for (code, messages) in &interval.errors {
            *self.errors.entry(*code).or_default() += messages;
        }
        let broker = self.shared.plan.pid.and_then(|pid| usage(pid).ok());
        let generator = usage(std::process::id()).ok();
        let before = std::mem::replace(&mut self.readings, [broker, generator]);
        let place = self.phases.iter().position(|phase| phase.has(interval.index));
        // What comes after the last phase was due in it.
        let began = self.phases.iter().rposition(|phase| phase.from <= interval.index);
        let of_this = place.or(began);
        if let Some(phase) = place.and_then(|place| self.phases.get_mut(place)) {
            phase.counts.add(&interval.counts);
            phase.broker.add(before[0], broker);
            phase.generator.add(before[1], generator);
        }
        if let Some(phase) = of_this.and_then(|place| self.phases.get_mut(place)) {
            phase.produce.add(&interval.produce.this);
            phase.end_to_end.add(&interval.end_to_end.this);
        }
        let earlier = of_this.and_then(|place| place.checked_sub(1)).or(of_this);
        if let Some(phase) = earlier.and_then(|place| self.phases.get_mut(place)) {
            for (into, from) in [
                (&mut phase.produce, &interval.produce.before),
                (&mut phase.end_to_end, &interval.end_to_end.before),
            ] {
                from.iter().for_each(|latencies| into.add(latencies));
            }
        }
        let cores = broker
            .zip(before[0])
            .map(|(now, before)| (now.cpu_seconds - before.cpu_seconds) / self.seconds(1));
        let point = self.point(interval, place, cores);
        self.tell(&point);
        self.series.push(point.clone());
        point
    }

    fn point(&self, interval: &Interval, phase: Option<usize>, broker_cores: Option<f64>) -> Point {
        let seconds = self.seconds(1);
        let megabytes = self.shared.plan.message_bytes() as f64 / 1e6;
        let per_second = |count: u64| count as f64 / seconds;
        // The latencies of an interval are those of all its answers.
        let all = |by: &super::stats::ByPhase| {
            let mut all = by.this.clone();
            by.before.iter().for_each(|before| all.add(before));
            all.summary()
        };
        let produce = all(&interval.produce);
        Point {
            at_s: self.seconds(interval.index + 1),
            phase,
            produced_per_second: per_second(interval.counts.acknowledged),
            produced_mb_per_second: per_second(interval.counts.acknowledged) * megabytes,
            consumed_per_second: per_second(interval.counts.consumed),
            consumed_mb_per_second: per_second(interval.counts.consumed) * megabytes,
            p50_ms: produce.p50_ms,
            p99_ms: produce.p99_ms,
            p99_9_ms: produce.p99_9_ms,
            max_ms: produce.max_ms,
            end_to_end_p99_ms: all(&interval.end_to_end).p99_ms,
            unsent: interval.waiting.unsent,
            behind: self.behind(),
            broker_cores,
        }
    }

    fn tell(&mut self, point: &Point) {
        let phase = point.phase.and_then(|place| self.phases.get(place));
        let Some(phase) = phase else { return };
        let mut line = format!(
            "{:6.0} s {:10} {:9.0} msg/s {:7.1} MB/s  p50 {:.2} p99 {:.2} max {:.1} ms",
            point.at_s,
            phase.name,
            point.produced_per_second,
            point.produced_mb_per_second,
            point.p50_ms,
            point.p99_ms,
            point.max_ms
        );
        if self.shared.plan.consumers.count > 0 {
            line.push_str(&format!(
                "  consumed {:.0} msg/s, p99 {:.2} ms, behind {}",
                point.consumed_per_second, point.end_to_end_p99_ms, point.behind
            ));
        }
        if point.unsent > 0 {
            line.push_str(&format!("  unsent {}", point.unsent));
        }
        if let Some(cores) = point.broker_cores {
            line.push_str(&format!("  broker {cores:.2} cores"));
        }
        (self.say)(&line);
    }

    /// Whether all that was sent is answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting == Waiting::default()
            && self.totals.sent == self.totals.acknowledged + self.totals.refused
    }

    /// Whether consumers have all that was acknowledged.
    pub(super) fn is_consumed(&self) -> bool {
        self.behind() == 0
    }

    /// Messages that consumers have still to get.
    pub(super) fn behind(&self) -> u64 {
        if self.shared.plan.consumers.count == 0 {
            return 0;
        }
        let subscriptions = self.shared.plan.consumers.subscriptions as u64;
        (self.totals.acknowledged * subscriptions).saturating_sub(self.totals.consumed)
    }
}
