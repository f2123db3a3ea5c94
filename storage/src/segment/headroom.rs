//! How much may be allocated ahead of the write positions of a store's segments: a share of the file system's free space,
//! so that preallocation never fills a disk (DESIGN §6). Without I/O; the store looks at the disk and says what it saw.

use std::cell::Cell;

/// All shards of a log directory together allocate at most this part of the free space ahead.
pub const SHARE_OF_FREE: u64 = 8;

/// The free space is looked at again when this part of the allowance was given out since.
const LOOK_SHARE: u64 = 8;

/// The allowance of one store. Shared by its segment files.
#[derive(Debug)]
pub struct Headroom {
    shards: u64,
    /// Free bytes as last seen; what is allocated ahead is not free any more.
    free_bytes: Cell<u64>,
    /// Of those, what is never allocated ahead.
    reserve_bytes: Cell<u64>,
    /// Allocated and not written yet, bytes.
    ahead_bytes: Cell<u64>,
    given_since: Cell<u64>,
}

impl Headroom {
    /// No allowance before the first [`Self::saw`]. `shards` share the directory.
    #[must_use]
    pub fn new(shards: u16) -> Self {
        Self {
            shards: u64::from(shards.max(1)),
            free_bytes: Cell::new(0),
            reserve_bytes: Cell::new(0),
            ahead_bytes: Cell::new(0),
            given_since: Cell::new(0),
        }
    }

    /// The file system has so many bytes left, of which so many are kept back.
    pub fn saw(&self, free_bytes: u64, reserve_bytes: u64) {
        self.free_bytes.set(free_bytes);
        self.reserve_bytes.set(reserve_bytes);
        self.given_since.set(0);
    }

    /// What can still be written to segments, as far as this store knows: what was free at the last look, less what it
    /// allocated since, and what is allocated already.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.free_bytes.get().saturating_sub(self.given_since.get()) + self.ahead_bytes.get()
    }

    /// What may be ahead in all, bytes.
    #[must_use]
    pub fn allowance(&self) -> u64 {
        // What was given since the look was free then, what was ahead at the look was not.
        let before = self.ahead_bytes.get().saturating_sub(self.given_since.get());
        let free = self.free_bytes.get().saturating_sub(self.reserve_bytes.get());
        (free + before) / SHARE_OF_FREE / self.shards
    }

    /// Takes up to `wanted` bytes of the allowance.
    pub fn take(&self, wanted: u64) -> u64 {
        let left = self.allowance().saturating_sub(self.ahead_bytes.get());
        let given = wanted.min(left);
        self.ahead_bytes.set(self.ahead_bytes.get() + given);
        self.given_since.set(self.given_since.get() + given);
        given
    }

    /// Of the bytes [taken](Self::take), or beyond them, so many were allocated in the end.
    pub fn settle(&self, taken: u64, allocated: u64) {
        for count in [&self.ahead_bytes, &self.given_since] {
            count.set((count.get() + allocated).saturating_sub(taken));
        }
    }

    /// So many bytes were written.
    pub fn give_back(&self, bytes: u64) {
        self.ahead_bytes.set(self.ahead_bytes.get().saturating_sub(bytes));
    }

    /// So many bytes were given back to the file system.
    pub fn free(&self, bytes: u64) {
        self.give_back(bytes);
        self.given_since.set(self.given_since.get().saturating_sub(bytes));
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

    #[test]
    fn an_eighth_of_the_free_space_is_given_and_no_more() {
        let headroom = Headroom::new(1);
        assert_eq!(headroom.take(100), 0, "nothing is known yet");
        headroom.saw(8000, 0);
        assert_eq!((headroom.take(600), headroom.take(600)), (600, 400));
        assert!(headroom.wants_look());
        headroom.saw(7000, 0); // what is ahead is not free any more
        assert_eq!(headroom.take(600), 0);
        headroom.give_back(300);
        assert_eq!(headroom.ahead_bytes(), 700);
        assert_eq!(headroom.take(600), 262, "an eighth of 7,700");
    }

    #[test]
    fn shards_share_the_eighth() {
        let headroom = Headroom::new(4);
        headroom.saw(32_000, 0);
        assert_eq!(headroom.take(u64::MAX), 1000);
    }

    #[test]
    fn a_full_disk_gives_nothing() {
        let headroom = Headroom::new(1);
        headroom.saw(8000, 0);
        assert_eq!(headroom.take(500), 500);
        headroom.saw(0, 0);
        assert_eq!(headroom.take(1), 0);
    }

    #[test]
    fn nothing_of_the_reserve_is_allocated_ahead() {
        let headroom = Headroom::new(1);
        headroom.saw(9000, 1000);
        assert_eq!(headroom.take(u64::MAX), 1000, "an eighth of 8,000");
        headroom.saw(900, 1000);
        headroom.settle(1000, 0);
        assert_eq!(headroom.take(1), 0);
    }

    #[test]
    fn what_is_allocated_is_usable_until_it_is_written() {
        let headroom = Headroom::new(1);
        headroom.saw(8000, 0);
        let taken = headroom.take(1000);
        headroom.settle(taken, 1500);
        assert_eq!(
            (headroom.ahead_bytes(), headroom.usable_bytes()),
            (1500, 8000),
            "500 were needed at once and go beyond what may be ahead"
        );
        headroom.give_back(500);
        assert_eq!(headroom.usable_bytes(), 7500);
        headroom.free(1000);
        assert_eq!((headroom.ahead_bytes(), headroom.usable_bytes()), (0, 7500));
    }
}
