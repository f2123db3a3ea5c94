//! When messages are due: an open loop. The schedule goes on whatever the broker does, and a message's latency counts from when it
//! was due and not from when it could be sent, so that a broker that stops for a moment is not let off (no coordinated omission).

/// The schedule of the producers of one thread, which take turns: message `k` of producer `j` of `n` is the thread's message
/// `k * n + j`. Pure: time comes in as nanoseconds of the run.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    origin_ns: u64,
    interval_ns: f64,
    producers: u64,
    /// Messages that were due so far.
    next: u64,
}

impl Pace {
    /// `per_second` messages a second from `origin_ns` on, by so many producers.
    pub(super) fn new(origin_ns: u64, per_second: f64, producers: usize) -> Self {
        Self {
            origin_ns,
            interval_ns: 1e9 / per_second,
            producers: producers.max(1) as u64,
            next: 0,
        }
    }

    /// The next message that is due at `now`: the producer whose turn it is. Each is named once.
    pub(super) fn take(&mut self, now: u64) -> Option<usize> {
        if self.next_due() > now {
            return None;
        }
        let producer = self.next % self.producers;
        self.next += 1;
        usize::try_from(producer).ok()
    }

    /// When message `number` of a producer is due.
    pub(super) fn due(&self, producer: usize, number: u64) -> u64 {
        self.at(number * self.producers + producer as u64)
    }

    /// When the next message is due that was not taken.
    pub(super) fn next_due(&self) -> u64 {
        self.at(self.next)
    }

    /// Whose turn that is.
    pub(super) fn next_producer(&self) -> usize {
        usize::try_from(self.next % self.producers).unwrap_or(0)
    }

    /// The time from one message of a producer to its next.
    pub(super) fn interval_of_producer_ns(&self) -> f64 {
        self.interval_ns * self.producers as f64
    }

    // A run of a hundred days is below 2^53 ns, where a float is exact.
    fn at(&self, message: u64) -> u64 {
        self.origin_ns + (message as f64 * self.interval_ns) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_during_a_stall_keeps_its_time() {
        let mut pace = Pace::new(5_000, 1e6, 2);
        assert_eq!(pace.take(4_999), None);
        assert_eq!((pace.take(5_000), pace.take(5_000)), (Some(0), None));
        // Nobody asks for ten microseconds: ten messages are due, each at its own time, turn by turn.
        let late: Vec<usize> = std::iter::from_fn(|| pace.take(15_000)).collect();
        assert_eq!(late, [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
        let due: Vec<u64> = (0..3).map(|number| pace.due(1, number)).collect();
        assert_eq!(due, [6_000, 8_000, 10_000]);
        assert_eq!(pace.next_due(), 16_000);
    }

    #[test]
    fn the_rate_holds_over_a_long_run() {
        let mut pace = Pace::new(0, 30_000.0, 7);
        let mut count = 0u64;
        for second in 1..=100u64 {
            while pace.take(second * 1_000_000_000 - 1).is_some() {
                count += 1;
            }
        }
        assert_eq!(count, 3_000_000);
    }
}
