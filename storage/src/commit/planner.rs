//! Which staged bytes go into the next commit, and by which way: into the journal (one write and one sync for all logs,
//! and each byte is written a second time later), or straight to the segment (each byte once, but a sync of its own). The
//! choice is by cost per log and commit. A state machine: methods are events (`stage`, `forget`), a getter (`is_idle`) and
//! the one output (`plan`).

use std::collections::VecDeque;

use hashbrown::HashMap;

/// How a log's bytes become durable in this commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// As frames in the journal; the segment is written behind.
    Journal,
    /// Full blocks to the segment with a sync of its own, the unaligned tail and the extent's CRC to the journal.
    Direct,
    /// To the segment without a sync (durability class `written` or `interval`).
    Written,
}

/// What the choice between journal and segment weighs. Defaults are for the virtio disk of `glommio.md` §3.3: a write
/// costs about 0.4 ns a byte at 1 MiB each, one more concurrent `fdatasync` about 25 µs of its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitCosts {
    /// Writing 1 KiB once more, nanoseconds.
    pub write_ns_per_kib: u64,
    /// One more file to sync in a commit, nanoseconds.
    pub sync_ns: u64,
}

/// Bounds and costs of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitLimits {
    /// Staged bytes taken into one commit, at most (a single larger batch goes alone).
    pub bytes_max: usize,
    /// Segments written and synced directly in one commit, at most.
    pub direct_logs_max: usize,
    /// The costs.
    pub costs: CommitCosts,
}

/// What the planner asks about a log while it plans.
pub trait PendingLogs {
    /// How the log stands.
    fn facts(&self, slot: u32) -> LogFacts;
    /// Bytes of the first staged batches that fit into `budget` and lie in one segment; the first batch always counts.
    fn prefix_bytes(&self, slot: u32, budget: usize) -> usize;
}

/// How a log stands when a commit is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// Acknowledged when written, without a sync.
    pub unsynced_class: bool,
    /// Its segment file is open, preallocated, and everything of older segments is written.
    pub direct_ready: bool,
    /// The block at the write position is on disk already, partly filled: it must be in the journal before it is rewritten.
    pub partial_block: bool,
    /// Durable bytes not yet in the segment.
    pub unwritten_bytes: usize,
}

/// One log's part of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The log.
    pub slot: u32,
    /// Whole batches of this many bytes, from the front.
    pub bytes: usize,
    /// Where they go.
    pub route: Route,
}

/// The planner of one store.
#[derive(Debug)]
pub struct Planner {
    limits: CommitLimits,
    /// Logs with staged bytes, the longest waiting first; each at most once.
    queue: VecDeque<u32>,
    staged: HashMap<u32, usize, foldhash::fast::FixedState>,
    staged_bytes: usize,
}

impl Default for CommitCosts {
    fn default() -> Self {
        Self {
            write_ns_per_kib: 400,
            sync_ns: 25_600,
        }
    }
}

impl Default for CommitLimits {
    fn default() -> Self {
        Self {
            bytes_max: 8 << 20,
            direct_logs_max: 64,
            costs: CommitCosts::default(),
        }
    }
}

impl CommitCosts {
    /// From this many bytes on a sync of its own is cheaper than writing them twice.
    #[must_use]
    pub fn direct_bytes_min(&self) -> usize {
        let kib = self.sync_ns / self.write_ns_per_kib.max(1);
        usize::try_from(kib.saturating_mul(1024))
            .unwrap_or(usize::MAX)
            .max(4096)
    }
}

impl Planner {
    /// An idle planner.
    #[must_use]
    pub fn new(limits: CommitLimits) -> Self {
        Self {
            limits,
            queue: VecDeque::new(),
            staged: HashMap::default(),
            staged_bytes: 0,
        }
    }

    /// A batch of `bytes` was staged on the log.
    pub fn stage(&mut self, slot: u32, bytes: usize) {
        let waiting = self.staged.entry(slot).or_insert(0);
        if *waiting == 0 {
            self.queue.push_back(slot);
        }
        *waiting += bytes;
        self.staged_bytes += bytes;
    }

    /// The log's staged bytes were withdrawn (truncated, deleted).
    pub fn forget(&mut self, slot: u32, bytes: usize) {
        let Some(waiting) = self.staged.get_mut(&slot) else {
            return;
        };
        let gone = bytes.min(*waiting);
        *waiting -= gone;
        self.staged_bytes -= gone;
        if *waiting == 0 {
            self.staged.remove(&slot);
            self.queue.retain(|queued| *queued != slot);
        }
    }

    /// Nothing is staged.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Staged bytes of one log.
    #[must_use]
    pub fn staged_on(&self, slot: u32) -> usize {
        self.staged.get(&slot).copied().unwrap_or(0)
    }

    /// All staged bytes.
    #[must_use]
    pub const fn staged_bytes(&self) -> usize {
        self.staged_bytes
    }

    /// The logs that wait, and whether each has enough for a write straight to its segment; under `pressure` that is so
    /// whatever it has.
    pub fn waiting(&self, pressure: bool) -> impl Iterator<Item = (u32, bool)> {
        let bytes_min = if pressure {
            0
        } else {
            self.limits.costs.direct_bytes_min()
        };
        let is_large = move |slot: &u32| self.staged.get(slot).is_some_and(|bytes| *bytes >= bytes_min);
        self.queue.iter().map(move |slot| (*slot, is_large(slot)))
    }

    /// Logs and bytes of batches that the next [`Self::plan`] takes at most: the limit, or one batch that is longer.
    pub fn next_at_most(&self, logs: &impl PendingLogs) -> (usize, usize) {
        let limit = self.limits.bytes_max;
        let first = self.queue.front().map_or(0, |slot| logs.prefix_bytes(*slot, 0));
        (self.queue.len(), self.staged_bytes.min(limit.max(first)))
    }

    /// Takes the next commit's shares: each waiting log once, longest waiting first, within the byte limit; a log that
    /// has more goes to the end of the queue. `pressure`: too much is unwritten, so prefer segments over the journal.
    pub fn plan(&mut self, logs: &impl PendingLogs, pressure: bool) -> Vec<Share> {
        self.plan_of(logs, pressure, |_| true)
    }

    /// [`Self::plan`] of these logs only; the others keep their turn.
    pub fn plan_of(
        &mut self,
        logs: &impl PendingLogs,
        pressure: bool,
        is_wanted: impl Fn(u32) -> bool,
    ) -> Vec<Share> {
        let mut budget = self.limits.bytes_max;
        let waiting = self.queue.len();
        // One log alone may fill a commit; many share it, but not in slivers.
        let share_max = (budget / waiting.max(1)).max(budget / 8);
        let mut direct_logs = 0;
        let mut shares = Vec::with_capacity(waiting.min(1024));
        for _ in 0..waiting {
            let Some(slot) = self.queue.pop_front() else { break };
            if !is_wanted(slot) {
                self.queue.push_back(slot);
                continue;
            }
            let bytes = logs.prefix_bytes(slot, share_max.min(budget));
            debug_assert!(bytes > 0, "a queued log has a staged batch");
            if bytes > budget && !shares.is_empty() {
                self.queue.push_front(slot);
                break;
            }
            let route = self.route(&logs.facts(slot), bytes, pressure, direct_logs);
            direct_logs += usize::from(route == Route::Direct);
            shares.push(Share { slot, bytes, route });
            self.take(slot, bytes);
            budget = budget.saturating_sub(bytes);
            if budget == 0 {
                break;
            }
        }
        shares
    }

    fn route(&self, facts: &LogFacts, bytes: usize, pressure: bool, direct_logs: usize) -> Route {
        if facts.unsynced_class {
            return Route::Written;
        }
        let direct_possible =
            facts.direct_ready && !facts.partial_block && direct_logs < self.limits.direct_logs_max;
        let direct_bytes_min = self.limits.costs.direct_bytes_min();
        // Under pressure a direct write relieves the budget of all the log has unwritten, so that counts too.
        let weight = if pressure {
            bytes + facts.unwritten_bytes
        } else {
            bytes
        };
        if direct_possible && weight >= direct_bytes_min {
            Route::Direct
        } else {
            Route::Journal
        }
    }

    fn take(&mut self, slot: u32, bytes: usize) {
        let waiting = self.staged.get_mut(&slot).expect("a queued log has staged bytes");
        assert!(*waiting >= bytes, "a commit takes no more than was staged");
        *waiting -= bytes;
        self.staged_bytes -= bytes;
        if *waiting == 0 {
            self.staged.remove(&slot);
        } else {
            self.queue.push_back(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs whose batches are all `batch` bytes.
    struct Logs {
        batch: usize,
        facts: LogFacts,
    }

    impl PendingLogs for Logs {
        fn facts(&self, _: u32) -> LogFacts {
            self.facts
        }
        fn prefix_bytes(&self, _: u32, budget: usize) -> usize {
            (budget / self.batch).max(1) * self.batch
        }
    }

    const READY: LogFacts = LogFacts {
        unsynced_class: false,
        direct_ready: true,
        partial_block: false,
        unwritten_bytes: 0,
    };

    fn planner(bytes_max: usize) -> Planner {
        Planner::new(CommitLimits {
            bytes_max,
            ..CommitLimits::default()
        })
    }

    #[test]
    fn small_appends_ride_the_journal_and_large_ones_go_to_the_segment() {
        assert_eq!(CommitCosts::default().direct_bytes_min(), 64 << 10);
        for (batch, route) in [(1 << 10, Route::Journal), (64 << 10, Route::Direct)] {
            let mut planner = planner(1 << 20);
            planner.stage(1, batch);
            let plan = planner.plan(&OneBatch(batch, READY), false);
            assert_eq!(
                plan,
                [Share {
                    slot: 1,
                    bytes: batch,
                    route
                }]
            );
            assert!(planner.is_idle());
        }
    }

    /// Logs with exactly one staged batch.
    struct OneBatch(usize, LogFacts);
    impl PendingLogs for OneBatch {
        fn facts(&self, _: u32) -> LogFacts {
            self.1
        }
        fn prefix_bytes(&self, _: u32, _: usize) -> usize {
            self.0
        }
    }

    #[test]
    fn a_segment_that_is_not_ready_or_half_a_block_behind_is_journaled() {
        for facts in [
            LogFacts {
                direct_ready: false,
                ..READY
            },
            LogFacts {
                partial_block: true,
                ..READY
            },
        ] {
            let mut planner = planner(8 << 20);
            planner.stage(1, 1 << 20);
            assert_eq!(
                planner.plan(&OneBatch(1 << 20, facts), true)[0].route,
                Route::Journal
            );
        }
    }

    #[test]
    fn pressure_sends_small_appends_with_their_predecessors_to_the_segment() {
        let facts = LogFacts {
            unwritten_bytes: 63 << 10,
            ..READY
        };
        for (pressure, route) in [(false, Route::Journal), (true, Route::Direct)] {
            let mut planner = planner(8 << 20);
            planner.stage(1, 1 << 10);
            assert_eq!(planner.plan(&OneBatch(1 << 10, facts), pressure)[0].route, route);
        }
    }

    #[test]
    fn every_waiting_log_gets_its_turn_before_any_gets_a_second() {
        let mut planner = planner(10 << 10);
        let logs = Logs {
            batch: 1 << 10,
            facts: READY,
        };
        planner.stage(1, 100 << 10);
        planner.stage(2, 2 << 10);
        planner.stage(3, 100 << 10);
        let mut taken = [0; 4];
        let mut first_three = Vec::new();
        while !planner.is_idle() && first_three.len() < 9 {
            for share in planner.plan(&Capped(&logs, &taken), false) {
                taken[share.slot as usize] += share.bytes;
                first_three.push(share.slot);
            }
        }
        assert_eq!(&first_three[..3], [1, 2, 3]);
        assert_eq!(taken[2], 2 << 10);
        assert!(taken[1].abs_diff(taken[3]) <= 5 << 10, "{taken:?}");
    }

    /// Log 2 has 2 KiB in all, the others plenty.
    struct Capped<'a>(&'a Logs, &'a [usize; 4]);
    impl PendingLogs for Capped<'_> {
        fn facts(&self, slot: u32) -> LogFacts {
            self.0.facts(slot)
        }
        fn prefix_bytes(&self, slot: u32, budget: usize) -> usize {
            let left = if slot == 2 { 2 << 10 } else { 100 << 10 } - self.1[slot as usize];
            self.0.prefix_bytes(slot, budget.min(left))
        }
    }

    #[test]
    fn a_batch_larger_than_the_limit_goes_alone() {
        let mut planner = planner(4 << 10);
        planner.stage(1, 1 << 20);
        planner.stage(2, 1 << 20);
        assert_eq!(planner.plan(&OneBatch(1 << 20, READY), false).len(), 1);
        assert_eq!(planner.plan(&OneBatch(1 << 20, READY), false).len(), 1);
        assert_eq!(planner.staged_bytes(), 0);
    }

    #[test]
    fn withdrawn_bytes_are_not_planned() {
        let mut planner = planner(1 << 20);
        planner.stage(1, 10);
        planner.stage(2, 10);
        planner.forget(1, 10);
        planner.forget(3, 10);
        let plan = planner.plan(&OneBatch(10, READY), false);
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].slot, 2);
        assert_eq!(planner.staged_bytes(), 0);
    }
}
