//! A token bucket of bytes (`log.cleaner.io.max.bytes.per.second`). Pure: time comes in as a parameter.

/// How long at full rate the bucket takes to fill, nanoseconds: what may be used at once after a pause.
const BURST_NS: f64 = 300_000_000.0;

const NS_PER_SECOND: f64 = 1_000_000_000.0;

/// See the module. What is taken may overdraw it: a piece is read or written whole, and the next one waits.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    bytes_per_second: f64,
    tokens: f64,
    at_ns: u64,
}

impl Throttle {
    /// A full bucket; `bytes_per_second` that is not a number above 0, or so large that it bounds nothing, is no bound.
    #[must_use]
    pub fn new(bytes_per_second: f64, now_ns: u64) -> Self {
        let mut throttle = Self {
            bytes_per_second,
            tokens: 0.0,
            at_ns: now_ns,
        };
        throttle.tokens = throttle.burst();
        throttle
    }

    /// Another rate from now on.
    pub fn set_rate(&mut self, bytes_per_second: f64) {
        self.bytes_per_second = bytes_per_second;
        self.tokens = self.tokens.min(self.burst());
    }

    /// Takes `bytes`. Returns how long to wait before more is read or written, nanoseconds.
    pub fn take(&mut self, bytes: usize, now_ns: u64) -> u64 {
        if !self.is_bounded() {
            return 0;
        }
        let passed = now_ns.saturating_sub(self.at_ns) as f64;
        self.at_ns = self.at_ns.max(now_ns);
        let earned = passed / NS_PER_SECOND * self.bytes_per_second;
        self.tokens = (self.tokens + earned).min(self.burst()) - bytes as f64;
        if self.tokens >= 0.0 {
            return 0;
        }
        // A cast of a float saturates: a rate near zero waits for centuries, which is what it says.
        (-self.tokens / self.bytes_per_second * NS_PER_SECOND).ceil() as u64
    }

    fn is_bounded(&self) -> bool {
        self.bytes_per_second > 0.0 && self.bytes_per_second < 1e18
    }

    fn burst(&self) -> f64 {
        if self.is_bounded() {
            self.bytes_per_second * BURST_NS / NS_PER_SECOND
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_any_stretch_but_for_one_burst() {
        let mut throttle = Throttle::new(1_000_000.0, 0);
        let (mut now, mut taken) = (0u64, 0u64);
        while now < 20_000_000_000 {
            let bytes = 1000 + (taken as usize * 7919) % 700_000;
            now += throttle.take(bytes, now);
            taken += bytes as u64;
            now += 1_000_000; // the work itself
        }
        let most = now as f64 / 1e9 * 1e6 + 300_000.0 + 700_000.0;
        assert!(taken as f64 <= most, "{taken} in {now} ns");
        assert!(taken as f64 > 0.9 * most, "{taken} in {now} ns: it is used");
    }

    #[test]
    fn kafkas_default_bounds_nothing_and_a_new_rate_holds_at_once() {
        let mut throttle = Throttle::new(f64::MAX, 0);
        assert_eq!(throttle.take(usize::MAX, 0), 0);
        throttle.set_rate(1000.0);
        assert_eq!(throttle.take(500, 0), 500_000_000);
        throttle.set_rate(f64::NAN);
        assert_eq!(throttle.take(500, 0), 0);
    }
}
