//! The time of a run: nanoseconds since its begin, the same in all threads, and how they lie on the wall clock, which the stamps
//! in messages carry.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds of a second.
pub(super) const SECOND_NS: u64 = 1_000_000_000;

/// The clock of a run. It is copied to every thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    began: Instant,
    began_unix_ns: u64,
}

impl Clock {
    pub(super) fn new() -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Self {
            began: Instant::now(),
            began_unix_ns: nanoseconds(unix),
        }
    }

    /// Nanoseconds since the begin.
    pub(super) fn now(&self) -> u64 {
        nanoseconds(self.began.elapsed())
    }

    /// A moment of the run in milliseconds since 1970, as records have it.
    pub(super) fn unix_ms(&self, at: u64) -> i64 {
        i64::try_from((self.began_unix_ns + at) / 1_000_000).unwrap_or(i64::MAX)
    }

    /// A moment of the run as the stamp of a message: nanoseconds since 1970.
    pub(super) fn stamp(&self, at: u64) -> u64 {
        self.began_unix_ns + at
    }

    /// The moment that a stamp names; `None` when it is not of this run.
    pub(super) fn stamped(&self, stamp: u64) -> Option<u64> {
        stamp
            .checked_sub(self.began_unix_ns)
            .filter(|at| *at <= self.now())
    }
}

/// A duration in nanoseconds; five hundred years fit.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_names_its_moment_and_others_none() {
        let clock = Clock::new();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(clock.stamped(clock.stamp(1_000_000)), Some(1_000_000));
        assert_eq!(clock.stamped(7), None, "long before the run");
        assert_eq!(clock.stamped(clock.stamp(3600 * SECOND_NS)), None, "not yet");
        assert_eq!(clock.unix_ms(5_000_000) - clock.unix_ms(0), 5);
    }
}
