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
    /// It is time to look through committed offsets for old ones.
    Expiry,
    /// Committed offsets are looked through further.
    Sweep,
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

    /// The timers at or before `now`, each to be taken by [`Self::take`] when its turn comes. What they set in turn is due another
    /// time, also if it is now.
    pub(super) fn due(&self, now: Instant) -> Vec<(Instant, Timer)> {
        self.0.iter().take_while(|(at, _)| *at <= now).cloned().collect()
    }

    /// Takes a timer that is due. Whether it is there still: one that is due with it may have cancelled it.
    pub(super) fn take(&mut self, due: &(Instant, Timer)) -> bool {
        self.0.remove(due)
    }
}
