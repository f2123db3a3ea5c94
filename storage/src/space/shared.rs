//! What the stores of one log directory, each on a core of its own, know together of its free space: what was free when one of them
//! looked, what they have allocated since, what they have accepted and not written, and what the next stop and start need. The only
//! thing in this crate that shards share; a few counters. A store takes a [lease](crate::space) of what is left, so that it
//! comes here once in many appends.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

/// More than any disk has, and far from the type's ends.
const UNKNOWN: i64 = i64::MAX / 4;

/// The free space of a log directory as all of its stores see it. See the module.
#[derive(Debug)]
pub struct DirSpace {
    /// What was free at the last look, and what this process had allocated when that began.
    base: AtomicI64,
    /// Bytes allocated or being allocated since the start. What is given back is seen by the next look.
    allocated: AtomicI64,
    /// Of those, what has its blocks: a look that begins now does not see them as free.
    ended: AtomicI64,
    /// Accepted or promised, and not in blocks of its own.
    claimed: AtomicI64,
    /// What the next stop and start write, whatever comes.
    needed: AtomicI64,
    /// Bytes of a journal file, where there is no space for what was configured; 0 where there is.
    journal_file_bytes: AtomicU64,
}

/// Bytes promised to something that will be written bit by bit; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    space: Arc<DirSpace>,
    bytes: i64,
}

impl Default for DirSpace {
    fn default() -> Self {
        Self {
            base: AtomicI64::new(UNKNOWN),
            allocated: AtomicI64::new(0),
            ended: AtomicI64::new(0),
            claimed: AtomicI64::new(0),
            needed: AtomicI64::new(0),
            journal_file_bytes: AtomicU64::new(0),
        }
    }
}

impl DirSpace {
    /// What is neither allocated nor promised; below zero when more is promised than there is. `None` before the first look.
    pub(crate) fn left(&self) -> Option<i64> {
        let base = self.base.load(SeqCst);
        (base != UNKNOWN).then(|| base - self.allocated.load(SeqCst) - self.claimed.load(SeqCst))
    }

    /// What the next stop and start write.
    pub(crate) fn needed(&self) -> i64 {
        self.needed.load(SeqCst)
    }

    /// A look begins; what it returns goes to [`Self::saw`].
    pub(crate) fn begin_look(&self) -> i64 {
        // What is being allocated, or is from now on, is not among it, and may be seen as free: it is subtracted from what is
        // found, until the next look also where the disk had subtracted it.
        self.ended.load(SeqCst)
    }

    /// The look that began with `mark` has found so many bytes free.
    pub(crate) fn saw(&self, mark: i64, free_bytes: u64) {
        let free = i64::try_from(free_bytes).unwrap_or(UNKNOWN).min(UNKNOWN / 2);
        self.base.store(free + mark, SeqCst);
    }

    /// Nothing is known any more.
    pub(crate) fn lost_sight(&self) {
        self.base.store(UNKNOWN, SeqCst);
    }

    /// So many bytes are about to be allocated.
    pub(crate) fn begin_allocation(&self, bytes: u64) {
        self.allocated.fetch_add(signed(bytes), SeqCst);
    }

    /// Of `bytes` that were to be allocated, `got` were.
    pub(crate) fn end_allocation(&self, bytes: u64, got: u64) {
        self.allocated.fetch_add(signed(got) - signed(bytes), SeqCst);
        // A look that begins before this subtracts what was got once more.
        self.ended.fetch_add(signed(got), SeqCst);
    }

    /// A store's claim was `before` and is `now`.
    pub(crate) fn claim(&self, before: u64, now: u64) {
        self.claimed.fetch_add(signed(now) - signed(before), SeqCst);
    }

    /// What a store needs was `before` and is `now`.
    pub(crate) fn need(&self, before: u64, now: u64) {
        self.needed.fetch_add(signed(now) - signed(before), SeqCst);
    }

    /// Promises `bytes` if so many are left above `line`, or nothing is known.
    pub(crate) fn hold(self: &Arc<Self>, bytes: u64, line: i64) -> Option<Held> {
        let held = Held {
            space: Arc::clone(self),
            bytes: signed(bytes),
        };
        self.claimed.fetch_add(held.bytes, SeqCst);
        self.left().is_none_or(|left| left >= line).then_some(held)
    }

    /// The size of journal files, where what was configured does not fit.
    pub(crate) fn limit_journal(&self, file_bytes: u64) {
        self.journal_file_bytes.store(file_bytes, SeqCst);
    }

    /// See [`Self::limit_journal`].
    pub(crate) fn journal_limit(&self) -> Option<u64> {
        Some(self.journal_file_bytes.load(SeqCst)).filter(|bytes| *bytes > 0)
    }
}

impl Held {
    /// Both are one.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// So many bytes of it were written: they are not free any more.
    pub(crate) fn spend(&mut self, bytes: u64) {
        let spent = signed(bytes).min(self.bytes);
        self.bytes -= spent;
        self.space.claimed.fetch_sub(spent, SeqCst);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.space.claimed.fetch_sub(self.bytes, SeqCst);
    }
}

pub(crate) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_while_somebody_looks_is_not_counted_as_free() {
        let space = DirSpace::default();
        assert_eq!(space.left(), None);
        space.begin_allocation(300);
        let mark = space.begin_look();
        space.begin_allocation(200);
        space.end_allocation(200, 200);
        space.saw(mark, 1000); // before either reached the disk
        assert_eq!(space.left(), Some(500));
        space.end_allocation(300, 0);
        assert_eq!(space.left(), Some(800));
        let mark = space.begin_look();
        space.saw(mark, 800);
        assert_eq!(space.left(), Some(800));
    }

    /// A disk of which one thread takes and another looks: what is left is never more than the disk has.
    #[test]
    fn whatever_a_look_meets_it_finds_no_more_than_is_there() {
        const FREE: i64 = 1 << 40;
        let (space, disk) = (DirSpace::default(), AtomicI64::new(FREE));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    space.begin_allocation(1000);
                    disk.fetch_sub(1000, SeqCst);
                    space.end_allocation(1000, 1000);
                }
            });
            // Long enough for both to run at once for a while.
            while space.allocated.load(SeqCst) < 2_000_000_000 {
                let mark = space.begin_look();
                space.saw(mark, disk.load(SeqCst).unsigned_abs());
                let there = disk.load(SeqCst);
                let left = space.left().unwrap();
                if left > there {
                    is_over.store(true, SeqCst);
                    panic!("{left} of {there}");
                }
            }
            is_over.store(true, SeqCst);
        });
    }

    #[test]
    fn what_is_held_is_nobody_elses() {
        let space = Arc::new(DirSpace::default());
        let mark = space.begin_look();
        space.saw(mark, 1000);
        space.claim(0, 300);
        let held = space.hold(500, 200);
        assert!(space.hold(1, 200).is_none());
        assert_eq!(space.left(), Some(200), "what was refused is not held");
        let mut held = held.unwrap();
        held.spend(100);
        assert_eq!(space.left(), Some(300));
        drop(held);
        space.claim(300, 100);
        assert_eq!(space.left(), Some(900));
    }
}
