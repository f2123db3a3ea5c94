//! How far a start is, for whoever asks before the shards answer. Written by the shard that recovers the journals and by all that
//! open logs, read by any thread. When the start is over it stays as it was.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Of journals of so many bytes and more each tenth is told in the log.
const LONG_BYTES: u64 = 64 << 20;

/// Of so many logs and more each tenth is told in the log.
const MANY_LOGS: u64 = 20_000;

/// The recovery of the journals of the run before, and the opening of the logs.
#[derive(Debug, Default)]
pub struct Progress {
    journal_bytes_done: AtomicU64,
    journal_bytes: AtomicU64,
    logs_done: AtomicU64,
    logs: AtomicU64,
    is_over: AtomicBool,
}

impl Progress {
    /// So many bytes of journal have been replayed, of so many.
    pub fn journals(&self, done: u64, all: u64) {
        let before = self.journal_bytes_done.load(Ordering::Relaxed);
        if all >= LONG_BYTES && tenth(done, all) > tenth(before, all) {
            let (done_mib, mib) = (done >> 20, all >> 20);
            tracing::info!(done_mib, mib, "the journals of the run before are being replayed");
        }
        self.journal_bytes_done.store(done, Ordering::Relaxed);
        self.journal_bytes.store(all, Ordering::Relaxed);
    }

    /// Bytes replayed, and bytes in all.
    #[must_use]
    pub fn journal_bytes(&self) -> (u64, u64) {
        (
            self.journal_bytes_done.load(Ordering::Relaxed),
            self.journal_bytes.load(Ordering::Relaxed),
        )
    }

    /// A shard is about to open so many more logs.
    pub fn logs_to_open(&self, count: usize) {
        if !self.is_over.load(Ordering::Relaxed) {
            self.logs.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// A shard has opened a log, or found that it cannot.
    pub fn log_opened(&self) {
        if self.is_over.load(Ordering::Relaxed) {
            return;
        }
        let done = self.logs_done.fetch_add(1, Ordering::Relaxed) + 1;
        let all = self.logs.load(Ordering::Relaxed);
        if all >= MANY_LOGS && tenth(done, all) > tenth(done - 1, all) {
            tracing::info!(done, logs = all, "logs are being opened");
        }
    }

    /// Logs opened, and logs to be opened in all, as far as shards know the metadata yet.
    #[must_use]
    pub fn logs(&self) -> (u64, u64) {
        (
            self.logs_done.load(Ordering::Relaxed),
            self.logs.load(Ordering::Relaxed),
        )
    }

    /// The start is over: logs that are made later are none of its own.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

const fn tenth(done: u64, all: u64) -> u64 {
    match done.saturating_mul(10).checked_div(all) {
        Some(tenth) => tenth,
        None => 0, // of nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_count_until_the_start_is_over() {
        let progress = Progress::default();
        assert_eq!(progress.logs(), (0, 0));
        progress.logs_to_open(3);
        progress.logs_to_open(2);
        progress.log_opened();
        assert_eq!(progress.logs(), (1, 5));
        (0..4).for_each(|_| progress.log_opened());
        progress.end();
        progress.logs_to_open(7);
        progress.log_opened();
        assert_eq!(progress.logs(), (5, 5));
    }
}
