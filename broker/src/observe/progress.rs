//! How far a start is, for whoever asks before the shards answer. Written by the shard that recovers, read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// The recovery of the journals of the run before.
#[derive(Debug, Default)]
pub struct Progress {
    journal_bytes_done: AtomicU64,
    journal_bytes: AtomicU64,
}

impl Progress {
    /// So many bytes of journal have been replayed, of so many.
    pub fn journals(&self, done: u64, all: u64) {
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
