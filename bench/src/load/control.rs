//! What the conductor of a run tells its threads: changes, each at a moment that all of them know beforehand, so that a phase begins
//! everywhere at the same time and at the edge of an interval.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A change of what threads do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// So many messages a second of all threads together, from now on. What was due before and not sent is given up.
    Rate(f64),
    /// As fast as they are answered.
    Maximum,
    /// No new messages. What is gathered is still sent.
    Idle,
    /// Messages that are due from now on belong to a new phase.
    Phase,
    /// Consumers ask for nothing, or go on.
    Pause(bool),
}

/// A change and its moment, time of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Planned {
    pub(super) at: u64,
    pub(super) change: Change,
}

/// All changes of a run in the order of their moments.
#[derive(Debug, Default)]
pub(super) struct Control {
    list: Mutex<Vec<Planned>>,
    /// Its length, which threads look at without the lock.
    len: AtomicUsize,
    is_aborted: AtomicBool,
}

impl Control {
    /// Plans a change; never before one that is planned already.
    pub(super) fn plan(&self, at: u64, change: Change) {
        let mut list = self.list();
        debug_assert!(list.last().is_none_or(|last| last.at <= at), "out of order");
        list.push(Planned { at, change });
        self.len.store(list.len(), Ordering::Release);
    }

    /// The change behind the first `seen` ones, if there is one.
    pub(super) fn get(&self, seen: usize) -> Option<Planned> {
        if self.len.load(Ordering::Acquire) <= seen {
            return None;
        }
        self.list().get(seen).copied()
    }

    /// Threads end as soon as they can.
    pub(super) fn abort(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    fn list(&self) -> MutexGuard<'_, Vec<Planned>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_sees_each_change_once_and_in_order() {
        let control = Control::default();
        assert_eq!(control.get(0), None);
        control.plan(5, Change::Rate(1.0));
        control.plan(9, Change::Idle);
        let mut seen = 0;
        let all: Vec<Planned> = std::iter::from_fn(|| {
            seen += 1;
            control.get(seen - 1)
        })
        .collect();
        let (rate, idle) = (Change::Rate(1.0), Change::Idle);
        assert_eq!(
            all,
            [Planned { at: 5, change: rate }, Planned { at: 9, change: idle }]
        );
        assert!(!control.is_aborted());
        control.abort();
        assert!(control.is_aborted());
    }
}
