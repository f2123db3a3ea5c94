//! A histogram of durations with fixed log-linear buckets: four per power of two, so a value is known to 25 %. Plain
//! numbers, mergeable by addition. 1.1 KiB each.

use std::time::Duration;

/// Buckets for 0 µs up to 2³⁶ µs (19 hours); longer ones count in the last.
const BUCKETS: usize = 4 * 35 + 4;

/// Counts of durations in microseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64; BUCKETS]>,
    sum_us: u64,
    count: u64,
    max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            sum_us: 0,
            count: 0,
            max_us: 0,
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn record(&mut self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.counts[bucket_of(us)] += 1;
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
    }

    /// Adds another one's counts.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts.iter()) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum_us = self.sum_us.saturating_add(other.sum_us);
        self.max_us = self.max_us.max(other.max_us);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, microseconds.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The upper bound of the bucket that holds the quantile `q` (0 to 1), microseconds; 0 when nothing was counted.
    #[must_use]
    pub fn quantile_us(&self, q: f64) -> u64 {
        let rank = ((self.count as f64 * q).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_us(bucket).min(self.max_us);
            }
        }
        0
    }

    /// How many were shorter than `2^power` microseconds.
    #[must_use]
    pub fn count_below(&self, power: u32) -> u64 {
        let end = bucket_of(1 << power.min(62));
        self.counts.iter().take(end).sum()
    }
}

/// Values 0–3 have buckets of their own; above, the top three bits choose.
fn bucket_of(us: u64) -> usize {
    if us < 4 {
        return us as usize;
    }
    let exponent = 63 - us.leading_zeros() as usize;
    let quarter = ((us >> (exponent - 2)) & 3) as usize;
    (4 * (exponent - 1) + quarter).min(BUCKETS - 1)
}

fn upper_us(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let exponent = bucket / 4 + 1;
    let quarter = (bucket % 4) as u64;
    ((5 + quarter) << (exponent - 2)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_known_to_a_quarter() {
        let mut histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        let p50 = histogram.quantile_us(0.5);
        assert!((500..=625).contains(&p50), "{p50}");
        assert_eq!(histogram.quantile_us(1.0), 1000);
        assert_eq!(histogram.count_below(6), 63);
        assert_eq!(histogram.count_below(9), 511);
        assert_eq!(histogram.count_below(40), 1000);
        assert_eq!(Histogram::default().quantile_us(0.99), 0);
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket(us in 0u64..(1 << 36)) {
            let bucket = bucket_of(us);
            prop_assert!(us <= upper_us(bucket));
            prop_assert!(bucket == 0 || us > upper_us(bucket - 1));
        }
    }
}
