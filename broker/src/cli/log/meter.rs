//! How far a long command is: a line on standard error each second, from the second second on.

use std::io::Write;
use std::time::{Duration, Instant};

use super::human_bytes;

/// Between two lines, and before the first.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts bytes of a known total.
#[derive(Debug)]
pub(super) struct Meter {
    verb: &'static str,
    total: u64,
    done: u64,
    began: Instant,
    said: Instant,
}

impl Meter {
    /// Begins; `total` is what there will be, bytes.
    pub(super) fn new(verb: &'static str, total: u64) -> Self {
        let now = Instant::now();
        Self {
            verb,
            total,
            done: 0,
            began: now,
            said: now,
        }
    }

    /// So many bytes more are done.
    pub(super) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        let now = Instant::now();
        if now - self.said >= PERIOD {
            self.said = now;
            // Standard error may be closed.
            let _ = writeln!(
                std::io::stderr().lock(),
                "penstock: {}",
                self.line(now - self.began)
            );
        }
    }

    fn line(&self, took: Duration) -> String {
        let (verb, done, total) = (self.verb, human_bytes(self.done), human_bytes(self.total));
        let percent = 100 * self.done / self.total.max(1);
        let rate = human_bytes((self.done as f64 / took.as_secs_f64().max(0.001)) as u64);
        format!("{verb} {done} of {total} ({}%), {rate}/s", percent.min(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_and_how_fast() {
        let mut meter = Meter::new("checked", 4 << 20);
        meter.add(1 << 20);
        assert_eq!(
            meter.line(Duration::from_secs(2)),
            "checked 1.0 MiB of 4.0 MiB (25%), 512.0 KiB/s"
        );
    }
}
