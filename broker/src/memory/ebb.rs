//! Memory is given back to the system after a flood of requests: the allocator returns freed pages when more is allocated or freed near
//! them, which a shard that has nothing to do never does (BR-105).

use std::time::Duration;

use shard::budget::{Budget, BudgetClass};
use shard::env::Env;

/// How often a shard looks at what it holds. A burst that came and went between two looks is seen by the next one's peak.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Floods below this are left to the allocator, bytes.
const FLOOD_BYTES_MIN: u64 = 4 << 20;

/// `mi_option_purge_delay` of mimalloc 2; the crate does not name it.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// What is left of a flood when it is over, as a part of its most.
const EBB_SHARE: u64 = 8;

/// Looks in a row that have to see the ebb: one may fall between two requests under load.
const EBB_LOOKS: u32 = 2;

/// Follows what requests and their answers hold. Cost: three numbers a shard.
#[derive(Debug)]
struct Tide {
    most: u64,
    peaks: u64,
    ebbs: u32,
}

impl Tide {
    /// As after a flood: a start leaves what it read from files.
    const fn new() -> Self {
        Self {
            most: FLOOD_BYTES_MIN,
            peaks: 0,
            ebbs: 0,
        }
    }

    /// Told of the bytes held now and of the most ever held: whether a flood is over.
    fn look(&mut self, used: u64, peaks: u64) -> bool {
        let is_higher = peaks > self.peaks;
        self.peaks = peaks;
        self.most = self.most.max(if is_higher { peaks } else { used });
        if self.most < FLOOD_BYTES_MIN || used > self.most / EBB_SHARE {
            self.ebbs = 0;
            return false;
        }
        self.ebbs += 1;
        let is_over = self.ebbs == EBB_LOOKS;
        if is_over {
            self.most = used;
            self.ebbs = 0;
        }
        is_over
    }
}

/// Has `collect` give freed memory back to the system whenever a flood of requests is over, for ever.
pub(crate) async fn give_back<E: Env>(env: E, budget: Budget, collect: impl Fn()) {
    let mut tide = Tide::new();
    loop {
        env.sleep(LOOK_INTERVAL).await;
        let accounts = budget.read();
        let sum = |of: fn(&shard::budget::AccountImage) -> u64| {
            let passing = accounts.iter().filter(|account| {
                matches!(
                    account.class,
                    BudgetClass::Requests
                        | BudgetClass::Responses
                        | BudgetClass::Fetches
                        | BudgetClass::Compaction
                )
            });
            passing.map(of).sum()
        };
        if tide.look(
            sum(|account| account.used_bytes),
            sum(|account| account.peak_bytes),
        ) {
            collect();
        }
    }
}

/// How long the allocator keeps freed pages, milliseconds: under load they are needed again at once, and to give them back and have them
/// zeroed anew took a fifth of the broker's time. What a flood leaves is given back by [`give_back`].
const KEEP_MS: std::ffi::c_long = 10_000;

/// Tells the allocator how a broker uses memory.
pub fn settle() {
    #[expect(unsafe_code, reason = "mimalloc has no safe call for it")]
    // SAFETY: it sets a number, atomically.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, KEEP_MS);
    }
}

/// Gives what this thread has freed back to the system. Cost: a walk over the thread's pages and a call to the system for each range
/// that goes, milliseconds for hundreds of MiB.
pub(crate) fn collect() {
    #[expect(unsafe_code, reason = "mimalloc has no safe call for it")]
    // SAFETY: it may be called from any thread at any time, and takes no pointers.
    unsafe {
        libmimalloc_sys::mi_collect(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_number_is_that_of_the_purge_delay() {
        #[expect(unsafe_code, reason = "mimalloc has no safe call for it")]
        // SAFETY: they read and set numbers, atomically.
        let (before, after) = unsafe {
            let before = libmimalloc_sys::mi_option_get(PURGE_DELAY);
            settle();
            (before, libmimalloc_sys::mi_option_get(PURGE_DELAY))
        };
        assert_eq!(
            (before, after),
            (10, KEEP_MS),
            "mimalloc's default, which no option near it has"
        );
    }

    #[test]
    fn a_flood_is_over_once_it_has_ebbed_twice_in_a_row() {
        let mut tide = Tide::new();
        assert!(!tide.look(64 * MIB, 64 * MIB));
        assert!(!tide.look(7 * MIB, 64 * MIB));
        assert!(!tide.look(30 * MIB, 64 * MIB), "it goes on");
        assert!(!tide.look(8 * MIB, 64 * MIB));
        assert!(tide.look(8 * MIB, 64 * MIB));
        assert!(
            !tide.look(0, 64 * MIB) && tide.look(0, 64 * MIB),
            "the rest of it"
        );
        assert!(
            !tide.look(0, 64 * MIB) && !tide.look(0, 64 * MIB),
            "nothing came since"
        );
    }

    #[test]
    fn a_flood_between_two_looks_is_seen_and_a_small_one_is_none() {
        let mut tide = Tide::new();
        assert!(!tide.look(0, 0) && tide.look(0, 0), "the start");
        assert!(!tide.look(0, 3 * MIB) && !tide.look(0, 3 * MIB), "a small one");
        assert!(!tide.look(0, 5 * MIB) && tide.look(0, 5 * MIB));
    }
}
