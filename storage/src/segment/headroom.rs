//! How much may be allocated ahead of the write positions of a store's segments: a share of the file system's free space,
//! so that preallocation never fills a disk (DESIGN §6). Without I/O; the store looks at the disk and says what it saw.

use std::cell::Cell;
use std::sync::Arc;

use crate::space::shared::{DirSpace, signed};

/// All shards of a log directory together allocate at most this part of the free space ahead.
pub const SHARE_OF_FREE: u64 = 8;

/// The free space is looked at again when this part of the allowance was given out since.
const LOOK_SHARE: u64 = 8;

/// The allowance of one store. Shared by its segment files.
#[derive(Debug)]
pub struct Headroom {
    shards: u64,
    /// What all shards have left.
    space: Arc<DirSpace>,
    /// Free bytes as last seen; what is allocated ahead is not free any more.
    free_bytes: Cell<u64>,
    /// Of those, what is never allocated ahead.
    reserve_bytes: Cell<u64>,
    /// Allocated and not written yet, bytes.
    ahead_bytes: Cell<u64>,
    given_since: Cell<u64>,
    /// Nothing is given any more.
    is_stopped: Cell<bool>,
}

impl Headroom {
    /// No allowance before the first [`Self::saw`]. `shards` share the directory.
    #[must_use]
    pub fn new(shards: u16, space: Arc<DirSpace>) -> Self {
        Self {
            shards: u64::from(shards.max(1)),
            space,
            free_bytes: Cell::new(0),
            reserve_bytes: Cell::new(0),
            ahead_bytes: Cell::new(0),
            given_since: Cell::new(0),
            is_stopped: Cell::new(false),
        }
    }

    /// The file system has so many bytes left, of which so many are kept back.
    pub fn saw(&self, free_bytes: u64, reserve_bytes: u64) {
        self.free_bytes.set(free_bytes);
        self.reserve_bytes.set(reserve_bytes);
        self.given_since.set(0);
    }

    /// Nothing is allocated ahead from now on.
    pub fn stop(&self) {
        self.is_stopped.set(true);
    }

    /// What may be ahead in all, bytes.
    #[must_use]
    pub fn allowance(&self) -> u64 {
        // What was given since the look was free then, what was ahead at the look was not.
        let before = self.ahead_bytes.get().saturating_sub(self.given_since.get());
        let free = self.free_bytes.get().saturating_sub(self.reserve_bytes.get());
        (free + before) / SHARE_OF_FREE / self.shards
    }

    /// `needed` bytes are about to be allocated, and up to `wanted` more of the allowance; returns how many of those.
    pub fn take(&self, needed: u64, wanted: u64) -> u64 {
        self.space.begin_allocation(needed);
        let left = self.allowance().saturating_sub(self.ahead_bytes.get());
        let above = self
            .space
            .left()
            .map_or(0, |left| left - signed(self.reserve_bytes.get()));
        let wanted = if self.is_stopped.get() { 0 } else { wanted };
        let given = wanted.min(left).min(above.max(0).unsigned_abs());
        self.space.begin_allocation(given);
        self.ahead_bytes.set(self.ahead_bytes.get() + given);
        self.given_since.set(self.given_since.get() + given);
        given
    }

    /// Of the bytes `needed` and [taken](Self::take) so many were allocated in the end.
    pub fn settle(&self, needed: u64, taken: u64, allocated: u64) {
        self.space.end_allocation(needed + taken, allocated);
        for count in [&self.ahead_bytes, &self.given_since] {
            count.set((count.get() + allocated).saturating_sub(taken));
        }
    }

    /// So many bytes were written.
    pub fn give_back(&self, bytes: u64) {
        self.ahead_bytes.set(self.ahead_bytes.get().saturating_sub(bytes));
    }

    /// Whether what was last seen is too old.
    #[must_use]
    pub fn wants_look(&self) -> bool {
        let given = self.given_since.get();
        given > 0 && given >= self.allowance() / LOOK_SHARE
    }

    /// Allocated ahead now, bytes.
    #[must_use]
    pub fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headroom(shards: u16) -> Headroom {
        Headroom::new(shards, Arc::default())
    }

    /// As the store does when it looks.
    fn saw(headroom: &Headroom, free_bytes: u64, reserve_bytes: u64) {
        let mark = headroom.space.begin_look();
        headroom.space.saw(mark, free_bytes);
        headroom.saw(free_bytes, reserve_bytes);
    }

    fn take(headroom: &Headroom, wanted: u64) -> u64 {
        let taken = headroom.take(0, wanted);
        headroom.settle(0, taken, taken);
        taken
    }

    #[test]
    fn an_eighth_of_the_free_space_is_given_and_no_more() {
        let headroom = headroom(1);
        assert_eq!(take(&headroom, 100), 0, "nothing is known yet");
        saw(&headroom, 8000, 0);
        assert_eq!((take(&headroom, 600), take(&headroom, 600)), (600, 400));
        assert!(headroom.wants_look());
        saw(&headroom, 7000, 0); // what is ahead is not free any more
        assert_eq!(take(&headroom, 600), 0);
        headroom.give_back(300);
        assert_eq!(headroom.ahead_bytes(), 700);
        assert_eq!(take(&headroom, 600), 262, "an eighth of 7,700");
    }

    #[test]
    fn shards_share_the_eighth() {
        let headroom = headroom(4);
        saw(&headroom, 32_000, 0);
        assert_eq!(take(&headroom, u64::MAX), 1000);
    }

    #[test]
    fn a_full_disk_gives_nothing() {
        let headroom = headroom(1);
        saw(&headroom, 8000, 0);
        assert_eq!(take(&headroom, 500), 500);
        saw(&headroom, 0, 0);
        assert_eq!(take(&headroom, 1), 0);
    }

    #[test]
    fn nothing_of_the_reserve_is_allocated_ahead() {
        let headroom = headroom(1);
        saw(&headroom, 9000, 1000);
        assert_eq!(take(&headroom, u64::MAX), 1000, "an eighth of 8,000");
        saw(&headroom, 900, 1000);
        headroom.give_back(1000);
        assert_eq!(take(&headroom, 1), 0);
        saw(&headroom, 9000, 1000);
        headroom.space.claim(0, 7900);
        assert_eq!(take(&headroom, 1000), 100, "others have accepted the rest");
    }

    /// One log's blocks are no room for another's batches: a busy log would take the reserve (issue 5).
    #[test]
    fn what_is_allocated_ahead_is_not_left_for_others() {
        let headroom = headroom(1);
        saw(&headroom, 8000, 0);
        let taken = headroom.take(500, 1000);
        headroom.settle(500, taken, 1500);
        assert_eq!(
            (headroom.ahead_bytes(), headroom.space.left()),
            (1500, Some(6500))
        );
        headroom.give_back(500);
        assert_eq!(headroom.space.left(), Some(6500));
        let taken = headroom.take(300, 0);
        headroom.settle(300, taken, 0);
        assert_eq!(headroom.space.left(), Some(6500), "it was refused");
    }
}
