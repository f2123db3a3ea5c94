//! Produces that wait for the durable end (acks=1) or the high watermark (acks=all) to pass their records. One per
//! shard; it sees only the partitions of that shard. A shard's part of a request is answered as one.
//!
//! Cost: about 100 bytes for each waiting (request, shard) and 16 bytes for each of its partitions; nothing when idle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slab::Slab;
use smallvec::SmallVec;
use storage::types::Offset;

use crate::env::Instant;

/// The index of a partition in its shard's table.
pub type PartitionIndex = usize;

/// Which end of the log has to pass a record before its produce is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// The durable end: acks=1.
    Durable,
    /// The high watermark: acks=all.
    HighWatermark,
}

/// Waiting produces of one shard.
///
/// Events in: [`add`](Self::add), [`advance`](Self::advance), [`fail_partition`](Self::fail_partition),
/// [`partition_offline`](Self::partition_offline),
/// [`expire`](Self::expire). Output: the keys of what is complete, through the returned lists. `T` is what the caller
/// needs to answer (the reply token and the results so far).
#[derive(Debug)]
pub struct ProducePurgatory<T> {
    waiting: Slab<Waiting<T>>,
    queues: BTreeMap<PartitionIndex, Queues>,
    deadlines: BTreeSet<(Instant, usize)>,
}

/// What became of one item of an answered request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemOutcome {
    /// Its records are as safe as was asked for.
    Done,
    /// The deadline came first.
    TimedOut,
    /// The partition left this shard before that.
    Failed,
    /// The shard's storage failed before that.
    Offline,
}

/// A request that is complete: what the caller stored, and the outcome of each waiting item.
#[derive(Debug, PartialEq, Eq)]
pub struct Completed<T> {
    /// What [`ProducePurgatory::add`] was given.
    pub context: T,
    /// `(item, outcome)` of each item that waited; items are the caller's numbers.
    pub outcomes: Vec<(usize, ItemOutcome)>,
}

/// One item that waits: partition, the offset that has to be passed, and the caller's number for it.
#[derive(Clone, Copy, Debug)]
pub struct WaitItem {
    /// The partition appended to.
    pub partition: PartitionIndex,
    /// The end (exclusive) that has to be reached.
    pub target: Offset,
    /// The caller's number of the item.
    pub item: usize,
}

#[derive(Debug)]
struct Waiting<T> {
    context: T,
    deadline: Option<Instant>,
    outcomes: Vec<(usize, ItemOutcome)>,
    pending: Vec<PendingItem>,
}

#[derive(Debug)]
struct PendingItem {
    item: usize,
    partition: PartitionIndex,
}

/// Targets of one partition in append order; a target may be lower than the one before it only for a duplicate, so
/// the front is checked first and each queue is a plain list ordered by target.
#[derive(Debug, Default)]
struct Queues {
    durable: VecDeque<Entry>,
    high_watermark: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    target: Offset,
    key: usize,
    item: usize,
}

impl<T> Default for ProducePurgatory<T> {
    fn default() -> Self {
        Self {
            waiting: Slab::new(),
            queues: BTreeMap::new(),
            deadlines: BTreeSet::new(),
        }
    }
}

impl<T> ProducePurgatory<T> {
    /// How many requests wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The earliest deadline of all that wait.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Parks a request until every one of `items` (not empty) has passed its target, or until `deadline` if it has one.
    pub fn add(&mut self, context: T, wait_for: WaitFor, items: &[WaitItem], deadline: Option<Instant>) {
        assert!(
            !items.is_empty(),
            "a produce that waits for nothing is answered at once"
        );
        let key = self.waiting.insert(Waiting {
            context,
            deadline,
            outcomes: Vec::with_capacity(items.len()),
            pending: items
                .iter()
                .map(|i| PendingItem {
                    item: i.item,
                    partition: i.partition,
                })
                .collect(),
        });
        self.deadlines.extend(deadline.map(|deadline| (deadline, key)));
        for item in items {
            let queue = self.queues.entry(item.partition).or_default().of(wait_for);
            let entry = Entry {
                target: item.target,
                key,
                item: item.item,
            };
            // Almost always the back; a duplicate's target may lie before it.
            let at = queue.partition_point(|e| e.target <= entry.target);
            queue.insert(at, entry);
        }
    }

    /// The durable end or the high watermark of a partition is now `end`: returns the requests this completes.
    pub fn advance(&mut self, partition: PartitionIndex, which: WaitFor, end: Offset) -> Vec<Completed<T>> {
        let mut completed = Vec::new();
        let Some(queues) = self.queues.get_mut(&partition) else {
            return completed;
        };
        let queue = queues.of(which);
        let passed = queue.partition_point(|entry| entry.target <= end);
        let entries: SmallVec<[Entry; 16]> = queue.drain(..passed).collect();
        for entry in entries {
            self.resolve(entry, ItemOutcome::Done, &mut completed);
        }
        self.forget_if_idle(partition);
        completed
    }

    /// A partition was deleted or moved: what waits on it ends as failed.
    pub fn fail_partition(&mut self, partition: PartitionIndex) -> Vec<Completed<T>> {
        let mut completed = Vec::new();
        self.fail(partition, ItemOutcome::Failed, &mut completed);
        completed
    }

    /// A partition's log directory failed: what waits on it will never be safe.
    pub fn partition_offline(&mut self, partition: PartitionIndex) -> Vec<Completed<T>> {
        let mut completed = Vec::new();
        self.fail(partition, ItemOutcome::Offline, &mut completed);
        completed
    }

    fn fail(&mut self, partition: PartitionIndex, outcome: ItemOutcome, completed: &mut Vec<Completed<T>>) {
        if let Some(queues) = self.queues.remove(&partition) {
            for entry in queues.durable.into_iter().chain(queues.high_watermark) {
                self.resolve(entry, outcome, completed);
            }
        }
    }

    /// Ends every request whose deadline is at or before `now`; its unfinished items time out (PR-11).
    pub fn expire(&mut self, now: Instant) -> Vec<Completed<T>> {
        let mut completed = Vec::new();
        while let Some(&(deadline, key)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            let mut waiting = self.waiting.remove(key);
            for pending in waiting.pending {
                waiting.outcomes.push((pending.item, ItemOutcome::TimedOut));
                self.unqueue(pending.partition, key);
            }
            completed.push(Completed {
                context: waiting.context,
                outcomes: waiting.outcomes,
            });
        }
        completed
    }

    fn resolve(&mut self, entry: Entry, outcome: ItemOutcome, completed: &mut Vec<Completed<T>>) {
        let waiting = self
            .waiting
            .get_mut(entry.key)
            .expect("a queued entry's request waits");
        let before = waiting.pending.len();
        waiting.pending.retain(|p| p.item != entry.item);
        assert!(waiting.pending.len() + 1 == before, "an item resolves once");
        waiting.outcomes.push((entry.item, outcome));
        if waiting.pending.is_empty() {
            let waiting = self.waiting.remove(entry.key);
            if let Some(deadline) = waiting.deadline {
                let known = self.deadlines.remove(&(deadline, entry.key));
                assert!(known, "a deadline is known as long as its request waits");
            }
            completed.push(Completed {
                context: waiting.context,
                outcomes: waiting.outcomes,
            });
        }
    }

    fn unqueue(&mut self, partition: PartitionIndex, key: usize) {
        if let Some(queues) = self.queues.get_mut(&partition) {
            queues.durable.retain(|e| e.key != key);
            queues.high_watermark.retain(|e| e.key != key);
        }
        self.forget_if_idle(partition);
    }

    fn forget_if_idle(&mut self, partition: PartitionIndex) {
        if self
            .queues
            .get(&partition)
            .is_some_and(|q| q.durable.is_empty() && q.high_watermark.is_empty())
        {
            self.queues.remove(&partition);
        }
    }
}

impl Queues {
    fn of(&mut self, which: WaitFor) -> &mut VecDeque<Entry> {
        match which {
            WaitFor::Durable => &mut self.durable,
            WaitFor::HighWatermark => &mut self.high_watermark,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(partition: usize, target: i64, item: usize) -> WaitItem {
        WaitItem {
            partition,
            target: Offset(target),
            item,
        }
    }

    #[test]
    fn a_request_is_answered_when_its_last_partition_passes() {
        let mut purgatory = ProducePurgatory::default();
        purgatory.add(
            "a",
            WaitFor::HighWatermark,
            &[item(1, 10, 0), item(2, 5, 1)],
            Some(Instant(100)),
        );
        assert!(
            purgatory
                .advance(1, WaitFor::HighWatermark, Offset(10))
                .is_empty()
        );
        assert!(purgatory.advance(2, WaitFor::HighWatermark, Offset(4)).is_empty());
        let done = purgatory.advance(2, WaitFor::HighWatermark, Offset(7));
        assert_eq!(done.len(), 1);
        assert_eq!(
            done[0].outcomes,
            vec![(0, ItemOutcome::Done), (1, ItemOutcome::Done)]
        );
        assert!(purgatory.is_empty() && purgatory.next_deadline().is_none() && purgatory.queues.is_empty());
    }

    #[test]
    fn the_durable_end_does_not_answer_acks_all() {
        let mut purgatory = ProducePurgatory::default();
        purgatory.add(
            "all",
            WaitFor::HighWatermark,
            &[item(1, 10, 0)],
            Some(Instant(100)),
        );
        purgatory.add("one", WaitFor::Durable, &[item(1, 10, 0)], Some(Instant(100)));
        let done = purgatory.advance(1, WaitFor::Durable, Offset(10));
        assert_eq!(done.iter().map(|d| d.context).collect::<Vec<_>>(), ["one"]);
        assert_eq!(purgatory.len(), 1);
    }

    #[test]
    fn at_the_deadline_only_the_unfinished_items_time_out() {
        let mut purgatory = ProducePurgatory::default();
        purgatory.add(
            "a",
            WaitFor::HighWatermark,
            &[item(1, 10, 0), item(2, 5, 1)],
            Some(Instant(100)),
        );
        purgatory.add("b", WaitFor::HighWatermark, &[item(2, 6, 0)], Some(Instant(101)));
        assert!(
            purgatory
                .advance(1, WaitFor::HighWatermark, Offset(10))
                .is_empty()
        );
        assert!(purgatory.expire(Instant(99)).is_empty());
        let done = purgatory.expire(Instant(100));
        assert_eq!(done.len(), 1);
        assert_eq!(
            done[0].outcomes,
            vec![(0, ItemOutcome::Done), (1, ItemOutcome::TimedOut)]
        );
        assert_eq!(purgatory.next_deadline(), Some(Instant(101)));
        assert_eq!(purgatory.advance(2, WaitFor::HighWatermark, Offset(6)).len(), 1);
    }

    #[test]
    fn a_duplicate_waits_for_its_originals_end_ahead_of_later_targets() {
        let mut purgatory = ProducePurgatory::default();
        purgatory.add("new", WaitFor::Durable, &[item(1, 20, 0)], Some(Instant(100)));
        purgatory.add("dup", WaitFor::Durable, &[item(1, 10, 0)], Some(Instant(100)));
        let done = purgatory.advance(1, WaitFor::Durable, Offset(10));
        assert_eq!(done.iter().map(|d| d.context).collect::<Vec<_>>(), ["dup"]);
    }

    #[test]
    fn without_storage_everything_ends_and_what_was_done_stays_done() {
        let mut purgatory = ProducePurgatory::default();
        let items = [item(1, 10, 0), item(2, 5, 1)];
        purgatory.add("a", WaitFor::HighWatermark, &items, Some(Instant(100)));
        purgatory.add("b", WaitFor::Durable, &[item(2, 6, 0)], None);
        assert_eq!(purgatory.next_deadline(), Some(Instant(100)));
        assert!(
            purgatory
                .advance(1, WaitFor::HighWatermark, Offset(10))
                .is_empty()
        );
        let ended = purgatory.partition_offline(2);
        let outcomes: Vec<_> = ended.iter().map(|c| (c.context, c.outcomes.clone())).collect();
        assert_eq!(
            outcomes,
            [
                ("b", vec![(0, ItemOutcome::Offline)]),
                ("a", vec![(0, ItemOutcome::Done), (1, ItemOutcome::Offline)]),
            ]
        );
        assert!(purgatory.is_empty() && purgatory.next_deadline().is_none() && purgatory.queues.is_empty());
    }

    #[test]
    fn a_failed_partition_fails_only_its_items() {
        let mut purgatory = ProducePurgatory::default();
        purgatory.add(
            "a",
            WaitFor::Durable,
            &[item(1, 10, 0), item(2, 5, 1)],
            Some(Instant(100)),
        );
        assert!(purgatory.fail_partition(1).is_empty());
        let done = purgatory.advance(2, WaitFor::Durable, Offset(5));
        assert_eq!(
            done[0].outcomes,
            vec![(0, ItemOutcome::Failed), (1, ItemOutcome::Done)]
        );
    }
}
