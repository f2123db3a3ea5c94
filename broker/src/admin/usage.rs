//! How busy the shards were lately, for Kafka's idle percentages: scrapes leave samples behind, and the oldest one of the
//! last minute is compared with now. Without scrapes nothing is measured and nothing costs.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Kafka's meters look back one minute.
const WINDOW: Duration = Duration::from_secs(60);
/// Samples closer together than this are not kept: several scrapers at once.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Busy times of the past, summed over shards.
#[derive(Debug, Default)]
pub(super) struct Usage(Mutex<VecDeque<(Instant, u64)>>);

impl Usage {
    /// Notes that the shards have been busy for `busy_us` in all since their start. Returns their idle share from 0 to 1
    /// since the oldest sample of the last minute; `began` stands in for it at first.
    pub(super) fn idle_share(&self, now: Instant, busy_us: u64, shards: usize, began: Instant) -> f64 {
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while samples.len() > 1
            && samples
                .get(1)
                .is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW)
        {
            samples.pop_front();
        }
        let old = |samples: &VecDeque<(Instant, u64)>| {
            samples
                .front()
                .copied()
                .filter(|(at, _)| now.duration_since(*at) >= SAMPLE_INTERVAL)
        };
        let (since, before) = old(&samples).unwrap_or((began, 0));
        if samples
            .back()
            .is_none_or(|(at, _)| now.duration_since(*at) >= SAMPLE_INTERVAL)
        {
            samples.push_back((now, busy_us));
        }
        let available = now.duration_since(since).as_micros() as f64 * shards.max(1) as f64;
        if available <= 0.0 {
            return 1.0;
        }
        (1.0 - busy_us.saturating_sub(before) as f64 / available).clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_last_minute() {
        let usage = Usage::default();
        let began = Instant::now();
        let at = |s: u64| began + Duration::from_secs(s);
        let second = 1_000_000;
        assert!(
            (usage.idle_share(at(10), 10 * second, 2, began) - 0.5).abs() < 1e-9,
            "since the start"
        );
        assert!(
            (usage.idle_share(at(20), 10 * second, 2, began) - 1.0).abs() < 1e-9,
            "nothing in 10 s"
        );
        assert!(
            (usage.idle_share(at(70), 130 * second, 2, began) - 0.0).abs() < 1e-9,
            "all of 60 s"
        );
        let share = usage.idle_share(at(80), 130 * second, 2, began);
        assert!(
            (share - 0.0).abs() < 1e-9,
            "the sample of second 20 is the oldest: {share}"
        );
        assert!((usage.idle_share(at(200), 130 * second, 2, began) - 1.0).abs() < 1e-9);
    }
}
