//! The deadlines of one coordinator. A session's deadline moves with each heartbeat; its timer does not: it looks again
//! when it fires, so a heartbeat costs no search. About 80 bytes a timer, one for each member.

use std::collections::BTreeSet;

use protocol::Str;

use crate::env::Instant;

/// What happens at a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A member's session may have ended.
    Session { group: Str, member: Str },
    /// An id that was given out was not taken up.
    Pending { group: Str, member: Str },
    /// The join phase of a group ends.
    Join { group: Str },
    /// Members that have not synced are given up.
    Sync { group: Str },
    /// Committed offsets are looked through for old ones.
    Expiry,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn cancel(&mut self, at: Instant, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// Takes the timers at or before `now`. What they set in turn is due another time, also if it is now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Timer> {
        let mut due = Vec::new();
        while self.next().is_some_and(|at| at <= now) {
            due.extend(self.0.pop_first().map(|(_, timer)| timer));
        }
        due
    }
}
