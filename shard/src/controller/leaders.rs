//! Who leads a partition after brokers came or went: pure rules on one partition, and the records they make of all
//! partitions of a broker. In-sync replicas first; when none is left but the last, it stays in the set and the partition
//! waits for it without a leader, and replicas that leave below the minimum stay eligible (KIP-966).

use protocol::Uuid;
use protocol::messages::cluster_metadata::PartitionChangeRecord;

use super::context::Draft;
use super::topics::may_lead;
use crate::config::BrokerLayers;
use crate::ids::BrokerId;
use crate::image::{BrokerList, MetadataImage, PartitionImage};

/// Adds the changes that follow when `broker` may no longer serve: it leads nothing and is in no in-sync set, but alone.
pub(super) fn on_broker_gone(draft: &mut Draft, broker: BrokerId, layers: &BrokerLayers<'_>) {
    let image = draft.image().clone();
    for_each_partition(draft, &image, |topic, partition| {
        if !partition.isr.contains(&broker) {
            return None;
        }
        let mut next = partition.clone();
        if partition.isr.len() > 1 {
            next.isr.retain(|replica| *replica != broker);
            let min_isr = usize::try_from(min_isr(&image, topic, layers)).unwrap_or(1);
            if next.isr.len() < min_isr.min(partition.replicas.len()) {
                next.elr.push(broker);
            }
        }
        if partition.leader == Some(broker) {
            next.leader = first_able(&image, &next, broker);
        }
        Some(next)
    });
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
