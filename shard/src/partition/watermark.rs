//! The high watermark of a partition on its leader. Cluster-level fact, kept on the leader's owner shard.
//!
//! HW = the lowest durable end over the maximal in-sync set (RP-3, RP-4); it never goes back, and it stands still while
//! the in-sync set is smaller than the effective `min.insync.replicas` (PR-13, PR-14). A follower that does not report
//! a durable end counts with its log end. With one replica the high watermark is the leader's own durable end.

use std::collections::BTreeMap;

use storage::types::Offset;

use crate::ids::BrokerId;

/// The leader's view of how far each replica is.
#[derive(Clone, Debug)]
pub struct Watermark {
    leader: BrokerId,
    leader_durable_end: Offset,
    /// Durable ends of the followers, by broker.
    followers: BTreeMap<BrokerId, Offset>,
    /// The committed in-sync set and those being added: the larger set counts until the controller confirms.
    maximal_isr: Vec<BrokerId>,
    isr_len: usize,
    replica_count: usize,
    min_insync_replicas: usize,
    high_watermark: Offset,
}

impl Watermark {
    /// The state of a leader that starts with `high_watermark` known (from its checkpoint or its durable end).
    #[must_use]
    pub fn new(leader: BrokerId, replica_count: usize, isr: Vec<BrokerId>, high_watermark: Offset) -> Self {
        assert!(isr.contains(&leader), "a leader is in its own in-sync set");
        Self {
            leader,
            leader_durable_end: high_watermark,
            followers: BTreeMap::new(),
            isr_len: isr.len(),
            maximal_isr: isr,
            replica_count,
            min_insync_replicas: 1,
            high_watermark,
        }
    }

    /// The high watermark: consumers read below it.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Whether the high watermark waits for nothing but this broker's own syncs.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.enough_in_sync() && self.maximal_isr == [self.leader]
    }

    /// Whether acks=all may append now (PR-12).
    #[must_use]
    pub fn enough_in_sync(&self) -> bool {
        self.isr_len >= self.effective_min_isr()
    }

    /// The topic's `min.insync.replicas`; takes effect at once. Returns the new high watermark if it moved.
    pub fn set_min_insync_replicas(&mut self, count: usize) -> Option<Offset> {
        self.min_insync_replicas = count;
        self.recompute()
    }

    /// The leader's durable end moved. Returns the new high watermark if it moved.
    pub fn leader_durable(&mut self, end: Offset) -> Option<Offset> {
        assert!(end >= self.leader_durable_end, "a durable end never goes back");
        self.leader_durable_end = end;
        self.recompute()
    }

    /// A follower reported `end` as durable. Returns the new high watermark if it moved.
    pub fn follower_durable(&mut self, broker: BrokerId, end: Offset) -> Option<Offset> {
        self.followers.insert(broker, end);
        self.recompute()
    }

    fn effective_min_isr(&self) -> usize {
        self.min_insync_replicas.min(self.replica_count)
    }

    fn recompute(&mut self) -> Option<Offset> {
        if !self.enough_in_sync() {
            return None;
        }
        let end_of = |broker: &BrokerId| {
            if *broker == self.leader {
                self.leader_durable_end
            } else {
                self.followers.get(broker).copied().unwrap_or(Offset::ZERO)
            }
        };
        let lowest = self
            .maximal_isr
            .iter()
            .map(end_of)
            .min()
            .expect("the in-sync set holds the leader");
        if lowest <= self.high_watermark {
            return None;
        }
        self.high_watermark = lowest;
        Some(lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_one_replica_it_is_the_durable_end() {
        let mut mark = Watermark::new(BrokerId(1), 1, vec![BrokerId(1)], Offset(5));
        assert_eq!(mark.leader_durable(Offset(5)), None);
        assert_eq!(mark.leader_durable(Offset(9)), Some(Offset(9)));
    }

    #[test]
    fn min_insync_replicas_above_the_replica_count_does_not_freeze_it() {
        let mut mark = Watermark::new(BrokerId(1), 1, vec![BrokerId(1)], Offset(0));
        mark.set_min_insync_replicas(3);
        assert!(mark.enough_in_sync());
        assert_eq!(mark.leader_durable(Offset(2)), Some(Offset(2)));
    }

    #[test]
    fn it_stands_still_below_min_isr_and_follows_when_that_is_lowered() {
        let mut mark = Watermark::new(BrokerId(1), 3, vec![BrokerId(1)], Offset(0));
        mark.set_min_insync_replicas(2);
        assert!(!mark.enough_in_sync());
        assert_eq!(mark.leader_durable(Offset(4)), None);
        assert_eq!(mark.set_min_insync_replicas(1), Some(Offset(4)));
    }

    #[test]
    fn it_is_the_lowest_durable_end_of_the_in_sync_set() {
        let mut mark = Watermark::new(BrokerId(1), 2, vec![BrokerId(1), BrokerId(2)], Offset(0));
        assert_eq!(mark.leader_durable(Offset(10)), None);
        assert_eq!(mark.follower_durable(BrokerId(2), Offset(6)), Some(Offset(6)));
        assert_eq!(mark.follower_durable(BrokerId(2), Offset(5)), None);
        assert_eq!(mark.high_watermark(), Offset(6));
    }
}
