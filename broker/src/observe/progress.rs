//! How far a start is, for whoever asks before the shards answer. Written by the shard that recovers, read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Of journals of so many bytes and more each tenth is told in the log.
const LONG_BYTES: u64 = 64 << 20;

/// The recovery of the journals of the run before.
#[derive(Debug, Default)]
pub struct Progress {
    journal_bytes_done: AtomicU64,
    journal_bytes: AtomicU64,
}

impl Progress {
    /// So many bytes of journal have been replayed, of so many.
    pub fn journals(&self, done: u64, all: u64) {
        let before = self.journal_bytes_done.load(Ordering::Relaxed);
        let tenth = |bytes: u64| bytes.saturating_mul(10) / all.max(1);
        if all >= LONG_BYTES && tenth(done) > tenth(before) {
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
}
