//! Which topics the members of a group subscribe to, where it is known: their offsets do not grow old and are not deleted
//! (CG-48, CG-51). Read from the members' metadata once in each generation.

use std::collections::BTreeSet;

use bytes::Bytes;
use protocol::messages::consumer_protocol::ConsumerProtocolSubscription;
use protocol::{Message, Reader, Str};

use super::classic::{CONSUMER, ClassicGroup};
use crate::budget::Budget;

/// What a topic that is subscribed to takes beside its name, bytes.
const SUBSCRIBED_BYTES: u64 = 96;

impl ClassicGroup {
    /// Whether a member of the group subscribes to a topic, as far as is known; who does not say may subscribe to all.
    pub(super) fn may_subscribe_to(&self, topic: &str) -> bool {
        self.subscribed
            .as_ref()
            .is_none_or(|topics| topics.contains(topic))
    }

    /// Reads it anew.
    pub(super) fn look_for_subscribed(&mut self, memory: &Budget) {
        self.subscribed = None;
        self.charge_names();
        self.subscribed = self.find_subscribed(memory);
        self.charge_names();
    }

    /// What the names of the topics take.
    pub(super) fn subscribed_bytes(&self) -> u64 {
        self.subscribed.iter().flatten().map(topic_bytes).sum()
    }

    /// Topics in the metadata of all members; `None` where it is not a consumer's, cannot be read, or says more than there is
    /// memory for: a short name takes many times what it does in the metadata.
    fn find_subscribed(&self, memory: &Budget) -> Option<BTreeSet<Str>> {
        if self.is_empty() {
            return Some(BTreeSet::new());
        }
        if self.protocol_type.as_deref() != Some(CONSUMER) {
            return None;
        }
        let protocol = self.protocol.as_deref()?;
        let mut topics = BTreeSet::new();
        let mut bytes = 0;
        for member in self.members() {
            for topic in subscribed_topics(member.metadata_of(protocol))? {
                if topics.contains(&topic) {
                    continue;
                }
                bytes += topic_bytes(&topic);
                if !self.may_grow(memory, bytes) {
                    return None;
                }
                topics.insert(topic.detached());
            }
        }
        Some(topics)
    }
}

fn topic_bytes(topic: &Str) -> u64 {
    SUBSCRIBED_BYTES + topic.len() as u64
}

/// The topics of a consumer's metadata, if it is one. Every version begins as version 0 does; what comes behind that is for the
/// members' assignor only and is not read, as in Kafka.
fn subscribed_topics(metadata: Bytes) -> Option<Vec<Str>> {
    let mut reader = Reader::new(metadata);
    if reader.i16().ok()? < 0 {
        return None;
    }
    let subscription = ConsumerProtocolSubscription::decode(&mut reader, 0).ok()?;
    Some(subscription.topics)
}
