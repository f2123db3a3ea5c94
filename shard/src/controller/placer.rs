//! Which brokers get the replicas of new partitions: rack by rack in turn, so that every replica of a partition is in a rack
//! of its own while there are enough, leaders spread over all brokers, followers over all others. A pure function of the
//! brokers and two random numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::{ErrorCode, Uuid};

use crate::error::ApiError;
use crate::ids::BrokerId;
use crate::image::{BrokerImage, BrokerList, BrokersImage};

/// The replicas of `partitions` new partitions, the preferred leader first. Fenced brokers are followers only.
///
/// # Errors
/// INVALID_REPLICATION_FACTOR when fewer brokers are usable, or none of them may lead.
pub(super) fn place(
    brokers: &BrokersImage,
    partitions: i32,
    replication_factor: i16,
    random: &mut dyn FnMut() -> u64,
) -> Result<Vec<BrokerList>, ApiError> {
    let wanted = usize::try_from(replication_factor).unwrap_or(0);
    let usable: Vec<&BrokerImage> = brokers
        .iter()
        .map(|b| &**b)
        .filter(|b| takes_replicas(b))
        .collect();
    let refuse = |reason: String| Err(ApiError::new(ErrorCode::INVALID_REPLICATION_FACTOR, reason));
    if wanted > usable.len() {
        return refuse(format!(
            "Replication factor {wanted} needs that many brokers, {} can take replicas",
            usable.len()
        ));
    }
    let ring = Ring::of(&usable, random);
    if ring.leaders.is_empty() {
        return refuse("All brokers are fenced".into());
    }
    Ok((0..usize::try_from(partitions).unwrap_or(0))
        .map(|partition| ring.replicas(partition, wanted))
        .collect())
}

/// The directory that a new replica on `broker` gets: its only one, or unassigned (zero) for the broker to choose.
pub(super) fn directory_on(brokers: &BrokersImage, broker: BrokerId) -> Uuid {
    match brokers.get(broker).map(|broker| broker.directories.as_slice()) {
        Some([only]) => *only,
        _ => Uuid::ZERO,
    }
}

fn takes_replicas(broker: &BrokerImage) -> bool {
    let cordoned = broker.cordoned_directories.as_deref().unwrap_or_default();
    broker.directories.is_empty()
        || broker
            .directories
            .iter()
            .any(|directory| !cordoned.contains(directory))
}

/// Brokers with their racks, racks taking turns.
struct Ring {
    leaders: Vec<(BrokerId, Arc<str>)>,
    followers_only: Vec<(BrokerId, Arc<str>)>,
    first: usize,
    shift: usize,
}

impl Ring {
    fn of(usable: &[&BrokerImage], random: &mut dyn FnMut() -> u64) -> Self {
        let (leaders, followers_only): (Vec<_>, Vec<_>) =
            usable.iter().copied().partition(|broker| !broker.fenced);
        let mut below = |bound: usize| {
            let bound = u64::try_from(bound.max(1)).unwrap_or(1);
            usize::try_from(random() % bound).unwrap_or(0)
        };
        Self {
            first: below(leaders.len()),
            shift: below(leaders.len()),
            leaders: racks_in_turn(&leaders),
            followers_only: racks_in_turn(&followers_only),
        }
    }

    /// The leader goes round the ring; its followers come after it, further on by one at each round, racks not used yet
    /// first.
    fn replicas(&self, partition: usize, wanted: usize) -> BrokerList {
        let count = self.leaders.len();
        let at = (self.first + partition) % count;
        let shift = self.shift + (self.first + partition) / count;
        let others = (0..count - 1).map(|i| (at + 1 + (shift + i) % (count - 1)) % count);
        let candidates: Vec<&(BrokerId, Arc<str>)> = others
            .filter_map(|i| self.leaders.get(i))
            .chain(&self.followers_only)
            .collect();
        let (leader, rack) = &self.leaders[at];
        let mut chosen = BrokerList::from_slice(&[*leader]);
        let mut racks = vec![rack];
        for fresh_racks_only in [true, false] {
            for (broker, rack) in &candidates {
                let is_fresh = !racks.contains(&rack);
                if chosen.len() < wanted && !chosen.contains(broker) && (is_fresh || !fresh_racks_only) {
                    chosen.push(*broker);
                    racks.push(rack);
                }
            }
        }
        chosen
    }
}

/// The first broker of each rack, then the second of each, and so on. Brokers without a rack share one.
fn racks_in_turn(brokers: &[&BrokerImage]) -> Vec<(BrokerId, Arc<str>)> {
    let mut racks: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let mut ranked: Vec<(usize, Arc<str>, BrokerId)> = brokers
        .iter()
        .map(|broker| {
            let rack: Arc<str> = broker.rack.clone().unwrap_or_else(|| Arc::from(""));
            let rank = racks.entry(Arc::clone(&rack)).or_insert(0);
            *rank += 1;
            (*rank, rack, broker.id)
        })
        .collect();
    ranked.sort();
    ranked
        .into_iter()
        .map(|(_, rack, broker)| (broker, rack))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::testing::cluster_with_racks;

    fn spread(racks: &[&str], partitions: i32, factor: i16) -> Vec<Vec<i32>> {
        let image = cluster_with_racks(racks);
        place(&image.brokers, partitions, factor, &mut || 0)
            .expect("enough brokers")
            .iter()
            .map(|replicas| replicas.iter().map(|broker| broker.0).collect())
            .collect()
    }

    #[test]
    fn leaders_go_round_and_followers_shift_at_each_round() {
        assert_eq!(
            spread(&["", "", ""], 6, 2),
            [
                vec![0, 1],
                vec![1, 2],
                vec![2, 0],
                vec![0, 2],
                vec![1, 0],
                vec![2, 1]
            ]
        );
    }

    #[test]
    fn replicas_are_in_different_racks_while_there_are_enough() {
        let racks = ["a", "a", "b", "b", "c", "c"];
        for replicas in spread(&racks, 60, 3) {
            let mut used: Vec<&str> = replicas
                .iter()
                .map(|id| racks[usize::try_from(*id).unwrap()])
                .collect();
            used.sort_unstable();
            assert_eq!(used, ["a", "b", "c"], "{replicas:?}");
        }
        for replicas in spread(&racks, 12, 4) {
            let mut distinct = replicas.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), 4, "{replicas:?}");
        }
    }

    #[test]
    fn every_broker_leads_and_follows_as_often() {
        let mut led = [0; 4];
        let mut followed = [0; 4];
        for replicas in spread(&["", "", "", ""], 24, 3) {
            led[usize::try_from(replicas[0]).unwrap()] += 1;
            for follower in &replicas[1..] {
                followed[usize::try_from(*follower).unwrap()] += 1;
            }
        }
        assert_eq!(led, [6; 4]);
        assert_eq!(followed, [12; 4]);
    }

    #[test]
    fn too_few_brokers_are_refused() {
        let image = cluster_with_racks(&["", ""]);
        let error = place(&image.brokers, 1, 3, &mut || 0).expect_err("two brokers");
        assert_eq!(error.code, ErrorCode::INVALID_REPLICATION_FACTOR);
    }
}
