//! Latencies as HDR histograms of microseconds, and their summary.

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest latency that is told apart from longer ones: 20 minutes, in microseconds.
const MICROSECONDS_MAX: u64 = 1_200_000_000;

/// Significant decimal digits.
const DIGITS: u8 = 3;

/// Shares of the curve that reports draw, in percent.
const CURVE: [f64; 21] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 95.0, 97.5, 99.0, 99.5, 99.75,
    99.9, 99.97, 99.99, 100.0,
];

/// Latencies of messages. Adding two of them is exact, so that those of threads and seconds can be put together.
#[derive(Clone, Debug)]
pub(super) struct Latencies(Histogram<u64>);

/// What reports say of latencies, in milliseconds; all 0 without any.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// How many messages.
    pub count: u64,
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Half of the messages took no longer.
    pub p50_ms: f64,
    /// 75 % took no longer.
    pub p75_ms: f64,
    /// 90 % took no longer.
    pub p90_ms: f64,
    /// 95 % took no longer.
    pub p95_ms: f64,
    /// 99 % took no longer.
    pub p99_ms: f64,
    /// 99.9 % took no longer.
    pub p99_9_ms: f64,
    /// 99.99 % took no longer.
    pub p99_99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Percent of the messages, and the milliseconds that they took at most.
    pub curve: Vec<(f64, f64)>,
}

impl Latencies {
    pub(super) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MICROSECONDS_MAX, DIGITS);
        Self(histogram.expect("the bounds are constants in order"))
    }

    /// Adds a latency of so many messages, in nanoseconds.
    pub(super) fn record(&mut self, nanoseconds: u64, messages: u64) {
        self.0.saturating_record_n((nanoseconds / 1000).max(1), messages);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(super) fn summary(&self) -> LatencySummary {
        if self.0.is_empty() {
            return LatencySummary::default();
        }
        let at = |percent: f64| milliseconds(self.0.value_at_percentile(percent));
        LatencySummary {
            count: self.0.len(),
            mean_ms: self.0.mean() / 1e3,
            p50_ms: at(50.0),
            p75_ms: at(75.0),
            p90_ms: at(90.0),
            p95_ms: at(95.0),
            p99_ms: at(99.0),
            p99_9_ms: at(99.9),
            p99_99_ms: at(99.99),
            max_ms: milliseconds(self.0.max()),
            curve: CURVE.iter().map(|&percent| (percent, at(percent))).collect(),
        }
    }
}

fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected * 2e-3
    }

    #[test]
    fn histograms_of_threads_add_up() {
        let (mut one, mut other, mut both) = (Latencies::new(), Latencies::new(), Latencies::new());
        for milliseconds in 1..=1000u64 {
            let part = if milliseconds % 3 == 0 {
                &mut one
            } else {
                &mut other
            };
            part.record(milliseconds * 1_000_000, 2);
            both.record(milliseconds * 1_000_000, 2);
        }
        one.add(&other);
        assert_eq!(one.summary(), both.summary());
        let summary = one.summary();
        assert_eq!(summary.count, 2000);
        assert!(
            near(summary.p50_ms, 500.0) && near(summary.p99_ms, 990.0),
            "{summary:?}"
        );
        assert!(
            near(summary.max_ms, 1000.0) && near(summary.mean_ms, 500.5),
            "{summary:?}"
        );
        assert!(
            summary.curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
            "{summary:?}"
        );
    }

    #[test]
    fn nothing_has_a_summary_of_zeros_and_much_too_long_is_the_longest() {
        assert_eq!(Latencies::new().summary(), LatencySummary::default());
        let mut latencies = Latencies::new();
        latencies.record(u64::MAX, 1);
        latencies.record(0, 1);
        assert!(near(latencies.summary().max_ms, MICROSECONDS_MAX as f64 / 1e3));
        assert_eq!(latencies.count(), 2);
    }
}
