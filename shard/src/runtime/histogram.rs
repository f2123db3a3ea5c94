//! A latency histogram that one thread writes and any thread reads: fixed buckets, no lock, no allocation. Buckets are
//! quarter octaves of microseconds, so a quantile is at most 25 % above the true value.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets: 0 to 3 us exactly, then four per octave up to 2^32 us (71 minutes).
const BUCKETS: usize = 4 + 30 * 4;

/// Durations in microseconds, counted by one writer.
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    count: AtomicU64,
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

/// What a [`Histogram`] held at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistogramImage {
    buckets: Vec<u64>,
    /// Durations recorded.
    pub count: u64,
    /// Their sum, microseconds.
    pub sum_us: u64,
    /// The longest, microseconds.
    pub max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            count: AtomicU64::new(0),
            sum_us: AtomicU64::new(0),
            max_us: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Counts one duration. Only ever called from one thread at a time: plain additions, not atomic ones.
    pub fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        add(&self.buckets[bucket_of(us)], 1);
        add(&self.count, 1);
        add(&self.sum_us, us);
        if us > self.max_us.load(Ordering::Relaxed) {
            self.max_us.store(us, Ordering::Relaxed);
        }
    }

    /// A copy to read from.
    #[must_use]
    pub fn read(&self) -> HistogramImage {
        HistogramImage {
            buckets: self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect(),
            count: self.count.load(Ordering::Relaxed),
            sum_us: self.sum_us.load(Ordering::Relaxed),
            max_us: self.max_us.load(Ordering::Relaxed),
        }
    }
}

impl HistogramImage {
    /// The duration that `percent` of 100 recorded ones do not exceed, microseconds, rounded up to its bucket's end;
    /// 0 when nothing was recorded.
    #[must_use]
    pub fn percentile_us(&self, percent: f64) -> u64 {
        let total: u64 = self.buckets.iter().sum();
        let mut left = (percent / 100.0 * total as f64).ceil() as u64;
        for (index, &count) in self.buckets.iter().enumerate() {
            if count >= left && left > 0 {
                return bucket_end_us(index).min(self.max_us);
            }
            left = left.saturating_sub(count);
        }
        0
    }

    /// How many recorded durations lie in buckets that begin at `us` or later.
    #[must_use]
    pub fn count_from_us(&self, us: u64) -> u64 {
        self.buckets.iter().skip(bucket_of(us)).sum()
    }

    /// (upper end in microseconds, count) of every bucket that is not empty, rising.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (bucket_end_us(index), *count))
    }
}

/// Adds to a counter that only this thread writes: a load and a store, no locked instruction.
pub(super) fn add(counter: &AtomicU64, value: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(value),
        Ordering::Relaxed,
    );
}

fn bucket_of(us: u64) -> usize {
    if us < 4 {
        return us as usize;
    }
    let octave = us.ilog2() as usize;
    let quarter = (us >> (octave - 2)) as usize & 3;
    (4 + (octave - 2) * 4 + quarter).min(BUCKETS - 1)
}

fn bucket_end_us(index: usize) -> u64 {
    if index < 4 {
        return index as u64;
    }
    let octave = (index - 4) / 4 + 2;
    let quarter = (index - 4) as u64 % 4;
    ((4 + quarter + 1) << (octave - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_in_a_bucket_that_ends_at_most_a_quarter_above_it() {
        for us in (0..100_000).chain([1 << 20, (1 << 30) + 12_345, (1 << 31) - 1]) {
            let end = bucket_end_us(bucket_of(us));
            assert!(end >= us, "{us} us is above its bucket's end {end}");
            assert!(end <= us + us / 4, "{us} us lies in a bucket that ends at {end}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_come_from_the_recorded_durations() {
        let histogram = Histogram::default();
        for ms in 1..=100 {
            histogram.record(Duration::from_millis(ms));
        }
        let image = histogram.read();
        assert_eq!(image.count, 100);
        assert_eq!(image.max_us, 100_000);
        let p50 = image.percentile_us(50.0);
        assert!((50_000..=62_500).contains(&p50), "p50 is {p50}");
        assert_eq!(image.percentile_us(100.0), 100_000);
        assert_eq!(image.count_from_us(131_072), 0);
        assert_eq!(Histogram::default().read().percentile_us(99.0), 0);
    }
}
