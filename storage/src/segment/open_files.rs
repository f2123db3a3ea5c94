//! Which segment files of a store are open, in about the order they were last used, so that it can close some when there
//! are too many (a store of thousands of logs would use up the process's descriptors). Without I/O. A clock: a file that was
//! used since the hand passed it last is passed once more.

use std::collections::VecDeque;

use crate::types::Offset;

/// A segment: its log's slot and its base offset.
pub(crate) type SegmentKey = (u32, Offset);

/// What the store says about a file that may be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    /// It was closed, or had been before.
    Gone,
    /// It is in use, or was since it was last asked about.
    Busy,
}

/// The open segment files. Memory: 16 bytes each.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    ring: VecDeque<SegmentKey>,
    max: usize,
}

impl OpenFiles {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            ring: VecDeque::new(),
            max: max.max(1),
        }
    }

    /// The segment's file was opened.
    pub(crate) fn opened(&mut self, key: SegmentKey) {
        self.ring.push_back(key);
    }

    /// Files opened and not closed here.
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether one more can be opened without closing another.
    pub(crate) fn has_room(&self) -> bool {
        self.ring.len() < self.max
    }

    /// Closes files beyond the limit by way of `close`; each is asked about at most twice in a call. Files that are all in
    /// use stay open beyond the limit: their number is bounded by the writes and reads under way.
    pub(crate) fn shrink(&mut self, mut close: impl FnMut(SegmentKey) -> Victim) {
        let mut asks = 2 * self.ring.len();
        while self.ring.len() > self.max && asks > 0 {
            asks -= 1;
            let Some(key) = self.ring.pop_front() else { return };
            if close(key) == Victim::Busy {
                self.ring.push_back(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_file_is_closed_first() {
        let mut files = OpenFiles::new(3);
        for slot in 0..5 {
            files.opened((slot, Offset(0)));
        }
        assert!(!files.has_room());
        let mut closed = Vec::new();
        files.shrink(|key| {
            if key.0 == 1 {
                return Victim::Busy;
            }
            closed.push(key.0);
            Victim::Gone
        });
        assert_eq!(closed, [0, 2]);
        assert_eq!(files.ring.iter().map(|key| key.0).collect::<Vec<_>>(), [3, 4, 1]);
    }

    #[test]
    fn files_that_are_all_in_use_stay_open() {
        let mut files = OpenFiles::new(1);
        for slot in 0..4 {
            files.opened((slot, Offset(0)));
        }
        let mut asks = 0;
        files.shrink(|_| {
            asks += 1;
            Victim::Busy
        });
        assert_eq!((asks, files.ring.len()), (8, 4));
    }
}
