//! Where the time of this shard's requests goes: one of so many (`penstock.request.trace.interval`) is traced, its stages are added to
//! histograms by API, and the newest are kept whole for `/requests` of the admin address.
//!
//! Costs per shard: ten histograms of 1.1 KiB for each API that was traced, and the newest requests, some 200 bytes each.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use protocol::ApiKey;
use shard::env::{Instant, WallMs};
use shard::histogram::Histogram;
use shard::trace::{STAGES, Stage, Trace};

/// Traced requests that a shard keeps whole.
const KEPT: usize = 128;

/// Times by API.
pub type StageTimes = BTreeMap<ApiKey, ApiTimes>;

/// The times of one API's traced requests.
#[derive(Clone, Debug, Default)]
pub struct ApiTimes {
    /// Of each stage.
    pub stages: [Histogram; STAGES],
    /// Of all in which the request was worked at or on its way: Kafka's local time.
    pub local: Histogram,
}

impl ApiTimes {
    fn record(&mut self, stages: &[Duration; STAGES]) {
        for (histogram, took) in self.stages.iter_mut().zip(stages) {
            histogram.record(*took);
        }
        let local = [Stage::Prepare, Stage::Hop, Stage::Handle, Stage::Finish];
        self.local
            .record(local.map(|stage| stages[stage as usize]).iter().sum());
    }

    /// Adds another shard's.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.merge(theirs);
        }
        self.local.merge(&other.local);
    }
}

/// What a shard knows of its traced requests.
#[derive(Debug, Default)]
pub struct Stages {
    interval: Cell<u32>,
    until_next: Cell<u32>,
    times: RefCell<StageTimes>,
    newest: RefCell<VecDeque<TracedRequest>>,
}

/// A request that is being traced.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its moments.
    pub trace: Rc<Trace>,
    api: ApiKey,
    bytes: usize,
}

/// A traced request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedRequest {
    /// When it ended.
    pub at: WallMs,
    /// Its API.
    pub api: ApiKey,
    /// Bytes of its frame.
    pub bytes: usize,
    /// What each stage took.
    pub stages: [Duration; STAGES],
}

impl Stages {
    /// One of `interval` requests is traced from now on; none with 0.
    pub fn trace_one_of(&self, interval: u32) {
        self.interval.set(interval);
        self.until_next.set(interval);
    }

    /// A request starts: its trace, if it is one that is traced.
    pub fn begin(&self, frame: &Bytes, trace: impl FnOnce() -> Trace) -> Option<Traced> {
        let left = self.until_next.get().checked_sub(1)?;
        if left > 0 {
            self.until_next.set(left);
            return None;
        }
        self.until_next.set(self.interval.get());
        let api = ApiKey::from_i16(i16::from_be_bytes(*frame.first_chunk()?))?;
        Some(Traced {
            trace: Rc::new(trace()),
            api,
            bytes: frame.len(),
        })
    }

    /// The answer of a traced request is with the kernel, or it has none.
    pub fn ended(&self, traced: &Traced, now: Instant, wall: WallMs) {
        let stages = traced.trace.stages(now);
        self.times
            .borrow_mut()
            .entry(traced.api)
            .or_default()
            .record(&stages);
        let mut newest = self.newest.borrow_mut();
        if newest.len() == KEPT {
            newest.pop_front();
        }
        newest.push_back(TracedRequest {
            at: wall,
            api: traced.api,
            bytes: traced.bytes,
            stages,
        });
    }

    /// The histograms now.
    #[must_use]
    pub fn times(&self) -> StageTimes {
        self.times.borrow().clone()
    }

    /// The newest traced requests, the oldest of them first.
    #[must_use]
    pub fn newest(&self) -> Vec<TracedRequest> {
        self.newest.borrow().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetch() -> Bytes {
        Bytes::from_static(&[0, 1, 0, 12])
    }

    fn trace() -> Trace {
        Trace::new(Instant(0), Instant(1000), Instant(3000))
    }

    #[test]
    fn one_of_so_many_requests_is_traced() {
        for (interval, expected) in [(0, 0), (1, 100), (3, 33), (128, 0)] {
            let stages = Stages::default();
            stages.trace_one_of(interval);
            let traced = (0..100)
                .filter(|_| stages.begin(&fetch(), trace).is_some())
                .count();
            assert_eq!(traced, expected, "of 100 with one of {interval}");
        }
    }

    #[test]
    fn what_is_no_request_is_not_traced() {
        let stages = Stages::default();
        stages.trace_one_of(1);
        for frame in [&[][..], &[0], &[0x7f, 0xff]] {
            assert!(stages.begin(&Bytes::from_static(frame), trace).is_none());
        }
    }

    #[test]
    fn stages_are_counted_by_api_and_the_newest_requests_are_kept() {
        let stages = Stages::default();
        stages.trace_one_of(1);
        for number in 0..200 {
            let traced = stages.begin(&fetch(), trace).expect("each one is traced");
            stages.ended(&traced, Instant(10_000), WallMs(number));
        }
        let times = stages.times();
        assert_eq!(times.keys().copied().collect::<Vec<_>>(), [ApiKey::Fetch]);
        let counted = &times[&ApiKey::Fetch];
        assert!(counted.stages.iter().all(|stage| stage.count() == 200));
        let sums = counted.stages.each_ref().map(Histogram::sum_us);
        assert_eq!(sums, [200, 400, 1400, 0, 0, 0, 0, 0, 0]);
        assert_eq!(counted.local.sum_us(), 1400);
        let newest = stages.newest();
        assert_eq!(newest.len(), KEPT);
        assert_eq!((newest[0].at, newest[KEPT - 1].at), (WallMs(72), WallMs(199)));
    }
}
