//! Who leads a partition after brokers came or went: pure rules on one partition, and the records they make of all
//! partitions of a broker. In-sync replicas first; when none is left but the last, it stays in the set and the partition
//! waits for it without a leader, and replicas that leave below the minimum stay eligible (KIP-966).

use std::collections::BTreeSet;

use protocol::Uuid;
use protocol::messages::cluster_metadata::PartitionChangeRecord;

use storage::types::LogId;

use super::context::Draft;
use super::topics::may_lead;
use crate::config::BrokerLayers;
use crate::ids::BrokerId;
use crate::image::{BrokerList, MetadataImage, PartitionImage};

/// Adds the changes that follow when `broker` may no longer serve: it leads nothing and is in no in-sync set, but alone.
pub(super) fn on_broker_gone(draft: &mut Draft, broker: BrokerId, layers: &BrokerLayers<'_>) {
    let image = draft.image().clone();
    for_each_partition(draft, &image, |topic, partition| {
        without(&image, topic, partition, broker, layers)
    });
}

/// The partition when `broker` cannot serve it any more; `None` when it was not in sync there.
fn without(
    image: &MetadataImage,
    topic: &str,
    partition: &PartitionImage,
    broker: BrokerId,
    layers: &BrokerLayers<'_>,
) -> Option<PartitionImage> {
    if !partition.isr.contains(&broker) {
        return None;
    }
    let mut next = partition.clone();
    if partition.isr.len() > 1 {
        next.isr.retain(|replica| *replica != broker);
        let min_isr = usize::try_from(min_isr(image, topic, layers)).unwrap_or(1);
        if next.isr.len() < min_isr.min(partition.replicas.len()) {
            next.elr.push(broker);
        }
    }
    if partition.leader == Some(broker) {
        next.leader = first_able(image, &next, broker);
    }
    Some(next)
}

/// Adds the changes that follow when the log directory of `logs` on `broker` has failed: what others have in sync they lead
/// from now on, and what nobody else has waits without a leader.
pub(super) fn on_logs_gone(
    draft: &mut Draft,
    broker: BrokerId,
    logs: &BTreeSet<LogId>,
    layers: &BrokerLayers<'_>,
) {
    let image = draft.image().clone();
    for log in logs {
        let Some(topic) = image.topics.by_id(log.topic) else {
            continue;
        };
        let Some(partition) = topic.partition(log.partition) else {
            continue;
        };
        if let Some(next) = without(&image, &topic.name, partition, broker, layers)
            && next != **partition
        {
            draft.push(change_record(Uuid(log.topic.0), log.partition, partition, &next));
        }
    }
}

/// Adds the changes that follow when `broker` may serve (again): it leads the partitions that waited for it. One that stopped
/// uncleanly also starts a new leader epoch wherever it still led, so that what it appends now cannot be mistaken for what
/// it may have lost (DESIGN §6).
pub(super) fn on_broker_back(draft: &mut Draft, broker: BrokerId, is_unclean: bool) {
    let image = draft.image().clone();
    for_each_partition(draft, &image, |_, partition| {
        let waits = partition.leader.is_none();
        let may_lead =
            partition.isr.contains(&broker) || (partition.isr.is_empty() && partition.elr.contains(&broker));
        if !(waits && may_lead || is_unclean && partition.leader == Some(broker)) {
            return None;
        }
        let mut next = partition.clone();
        next.leader = Some(broker);
        if !next.isr.contains(&broker) {
            next.isr = BrokerList::from_slice(&[broker]);
            next.elr.retain(|replica| *replica != broker);
        }
        Some(next)
    });
}

fn for_each_partition(
    draft: &mut Draft,
    image: &MetadataImage,
    mut change: impl FnMut(&str, &PartitionImage) -> Option<PartitionImage>,
) {
    for topic in image.topics.iter() {
        for (index, partition) in topic.indexed() {
            if let Some(next) = change(&topic.name, partition) {
                draft.push(change_record(Uuid(topic.id.0), index, partition, &next));
            }
        }
    }
}

/// The record that turns `former` into `next`; a leader that is named again starts a new epoch.
fn change_record(
    topic_id: Uuid,
    index: i32,
    former: &PartitionImage,
    next: &PartitionImage,
) -> PartitionChangeRecord {
    let changed = |before: &BrokerList, after: &BrokerList| -> Option<Vec<i32>> {
        (before != after).then(|| after.iter().map(|broker| broker.0).collect())
    };
    let left_isr_only = former.leader == next.leader && former.isr != next.isr;
    PartitionChangeRecord {
        partition_id: index,
        topic_id,
        isr: changed(&former.isr, &next.isr),
        leader: if left_isr_only {
            -2
        } else {
            next.leader.map_or(-1, |leader| leader.0)
        },
        eligible_leader_replicas: changed(&former.elr, &next.elr),
        ..PartitionChangeRecord::default()
    }
}

/// The first replica in sync that may lead, in preference order.
fn first_able(image: &MetadataImage, partition: &PartitionImage, gone: BrokerId) -> Option<BrokerId> {
    partition.replicas.iter().copied().find(|replica| {
        *replica != gone && partition.isr.contains(replica) && may_lead(&image.brokers, *replica)
    })
}

fn min_isr(image: &MetadataImage, topic: &str, layers: &BrokerLayers<'_>) -> i32 {
    crate::config::TopicSettings::resolve(layers, image.configs.topic(topic)).min_insync_replicas
}

#[cfg(test)]
mod tests {
    use protocol::Str;
    use protocol::messages::cluster_metadata as wire;
    use storage::types::TopicId;

    use super::*;
    use crate::config::Overrides;
    use crate::controller::testing::cluster_with_racks;
    use crate::image::{ImageDelta, ImagePosition};

    #[test]
    fn a_failed_directory_costs_its_partitions_their_leader_and_nothing_else() {
        let topic_id = Uuid::from_u128(7);
        let mut delta = ImageDelta::new(&cluster_with_racks(&["", ""]));
        let name = Str::from_static("t");
        delta
            .apply(&wire::TopicRecord { name, topic_id }.into())
            .expect("a topic");
        for (partition_id, replicas) in [(0, vec![0, 1]), (1, vec![0]), (2, vec![0])] {
            let record = wire::PartitionRecord {
                partition_id,
                topic_id,
                isr: replicas.clone(),
                directories: vec![Uuid::from_u128(1000); replicas.len()],
                replicas,
                leader: 0,
                leader_epoch: 0,
                partition_epoch: 0,
                ..Default::default()
            };
            delta.apply(&record.into()).expect("a partition");
        }
        let image = delta.finish(ImagePosition { index: 2, term: 1 }).0;
        let log = |partition| LogId {
            topic: TopicId(topic_id.0),
            partition,
        };
        let leaders = |draft: &Draft| -> Vec<Option<i32>> {
            let found = (0..3).filter_map(|p| draft.image().topics.partition(log(p).topic, p).cloned());
            found.map(|p| p.leader.map(|leader| leader.0)).collect()
        };
        let none = Overrides::new();
        let layers = BrokerLayers::of_file(&none);
        let mut draft = Draft::new(&image);
        let lost = BTreeSet::from([log(0), log(1), log(9)]);
        on_logs_gone(&mut draft, BrokerId(0), &lost, &layers);
        assert_eq!(leaders(&draft), [Some(1), None, Some(0)]);
        let records = draft.into_records();
        assert_eq!(records.len(), 2);

        // Told once more nothing changes; when the broker comes back it leads what waited for it.
        let mut delta = ImageDelta::new(&image);
        delta.apply_all(&records).expect("records of ours");
        let image = delta.finish(ImagePosition { index: 3, term: 1 }).0;
        let mut draft = Draft::new(&image);
        on_logs_gone(&mut draft, BrokerId(0), &lost, &layers);
        assert!(draft.into_records().is_empty());
        let mut draft = Draft::new(&image);
        on_broker_back(&mut draft, BrokerId(0), false);
        assert_eq!(leaders(&draft), [Some(1), Some(0), Some(0)]);
    }
}
