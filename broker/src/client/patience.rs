//! How long a command waits in all, and what it says meanwhile: nothing in the first second, then a line at most every two.

use std::time::{Duration, Instant};

/// Nothing is said before a command has lasted so long.
const SILENCE: Duration = Duration::from_secs(1);
/// Shortest time between two lines of progress.
const BETWEEN: Duration = Duration::from_secs(2);

/// The time that is left, and the progress that is told.
#[derive(Debug)]
pub(super) struct Patience {
    began: Instant,
    timeout: Duration,
    next: Instant,
    say: fn(&str),
}

impl Patience {
    pub(super) fn new(timeout: Duration, say: fn(&str)) -> Self {
        let began = Instant::now();
        Self {
            began,
            timeout,
            next: began + SILENCE,
            say,
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What is left; `None` when the time is over.
    pub(super) fn left(&self) -> Option<Duration> {
        self.timeout
            .checked_sub(self.began.elapsed())
            .filter(|left| !left.is_zero())
    }

    /// Says what is being waited for, if it is time to say something.
    pub(super) fn tick(&mut self, what: &str) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + BETWEEN;
            (self.say)(&format!("{} s: {what}", self.began.elapsed().as_secs()));
        }
    }

    /// Waits before the next attempt; `false` when there is no time for one.
    pub(super) fn pause(&mut self, pause: Duration, why: &str) -> bool {
        self.tick(why);
        let Some(left) = self.left() else { return false };
        std::thread::sleep(pause.min(left));
        self.left().is_some()
    }
}
