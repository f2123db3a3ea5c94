//! The last commits before a pause are durable, and nothing on the disk says so until another commit follows: damage in them
//! would look like a torn tail, and be cut. So a pause begins with a commit without frames, which records them as durable.

use std::cell::Cell;

use crate::disk::Disk;
use crate::store::Store;

/// Without a commit for this long, milliseconds, there is a pause.
const PAUSE_MS: u64 = 1000;

/// When to seal, and whether the next commit is to be one.
#[derive(Debug, Default)]
pub(crate) struct Seal {
    /// Commits started when the wait began, and when it ends.
    waiting: Cell<Option<(u64, u64)>>,
    wanted: Cell<bool>,
}

impl Seal {
    /// Whether a commit without frames is wanted.
    pub(crate) const fn is_wanted(&self) -> bool {
        self.wanted.get()
    }

    /// Whether one was wanted; it is no more.
    pub(crate) fn take(&self) -> bool {
        self.wanted.replace(false)
    }
}

impl<D: Disk> Store<D> {
    /// Asks for a seal if its time has come at `now_ms`; else says when to look again, if at all.
    pub(crate) fn seal_due(&self, now_ms: u64) -> Option<u64> {
        let started = self.commits_started.get();
        if !self.journal.is_unsealed() || self.closed.get() {
            self.seal.waiting.set(None);
            return None;
        }
        match self.seal.waiting.get() {
            Some((commits, due)) if commits == started => {
                if now_ms < due {
                    return Some(due);
                }
                self.seal.waiting.set(None);
                self.seal.wanted.set(true);
                self.staged.notify();
                None
            }
            _ => {
                let due = now_ms.saturating_add(PAUSE_MS);
                self.seal.waiting.set(Some((started, due)));
                Some(due)
            }
        }
    }

    /// A commit is durable that nothing records as such: the schedule is to be looked at, unless it is already.
    pub(crate) fn wants_seal(&self) {
        if self.seal.waiting.get().is_none() {
            self.syncs_moved.notify();
        }
    }
}
