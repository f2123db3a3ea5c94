//! A member of a classic group. It takes [`MEMBER_BYTES`] and its texts; see [`Member::bytes`].

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use protocol::Str;
use protocol::messages::consumer_offsets::MemberMetadata;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};

use super::request::ClientIdentity;
use crate::env::Instant;
use crate::message::ReplyTo;

/// How long a new member may wait for its first join phase to end (CG-9): its client may have gone without a word.
pub(super) const NEW_MEMBER_TIMEOUT: Duration = Duration::from_secs(300);

/// What a member takes beside its texts, bytes: itself, its timer, its places in maps.
pub(super) const MEMBER_BYTES: u64 = 640;

/// What one of its protocols takes beside metadata and twice its name, bytes: the group counts by a copy that may outlive it.
const PROTOCOL_BYTES: u64 = 128;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub id: Str,
    /// Its `group.instance.id` (KIP-345).
    pub instance: Option<Str>,
    pub client: ClientIdentity,
    pub rebalance_timeout: Duration,
    pub session_timeout: Duration,
    /// Protocol names and their metadata, the preferred one first.
    pub protocols: Vec<(Str, Bytes)>,
    pub assignment: Bytes,
    /// Its JoinGroup that waits for the end of the join phase.
    pub join: Option<ReplyTo>,
    /// Its SyncGroup that waits for the leader's.
    pub sync: Option<ReplyTo>,
    /// It has not been through a join phase yet.
    pub is_new: bool,
    /// When its session ends.
    pub session_end: Instant,
    /// When its timer looks next; never later than needed.
    pub timer: Instant,
}

impl Member {
    /// A member as its JoinGroup describes it. Copies what it keeps: the frame is not held.
    pub(super) fn joining(id: Str, request: &JoinGroupRequest, client: &ClientIdentity) -> Self {
        let mut member = Self {
            id,
            instance: request.group_instance_id.as_ref().map(Str::detached),
            client: ClientIdentity {
                client_id: client.client_id.detached(),
                host: client.host.detached(),
            },
            rebalance_timeout: Duration::ZERO,
            session_timeout: Duration::ZERO,
            protocols: Vec::new(),
            assignment: Bytes::new(),
            join: None,
            sync: None,
            is_new: true,
            session_end: Instant::NEVER,
            timer: Instant::NEVER,
        };
        member.update(request);
        member
    }

    /// A member as it was written. It is known by one protocol: the one that was chosen.
    pub(super) fn recorded(record: &MemberMetadata, protocol: Option<&Str>) -> Self {
        Self {
            id: record.member_id.detached(),
            instance: record.group_instance_id.as_ref().map(Str::detached),
            client: ClientIdentity {
                client_id: record.client_id.detached(),
                host: record.client_host.detached(),
            },
            // Version 0 did not write it: Kafka takes the session's.
            rebalance_timeout: if record.rebalance_timeout < 0 {
                millis(record.session_timeout)
            } else {
                millis(record.rebalance_timeout)
            },
            session_timeout: millis(record.session_timeout),
            protocols: protocol
                .map(|name| (name.detached(), Bytes::copy_from_slice(&record.subscription)))
                .into_iter()
                .collect(),
            assignment: Bytes::copy_from_slice(&record.assignment),
            join: None,
            sync: None,
            is_new: false,
            session_end: Instant::NEVER,
            timer: Instant::NEVER,
        }
    }

    /// What it takes of the shard's memory, its timer and its places in maps included.
    pub(super) fn bytes(&self) -> u64 {
        let texts = [
            self.id.len(),
            self.instance.as_ref().map_or(0, |i| i.len()),
            self.client.client_id.len(),
            self.client.host.len(),
            self.assignment.len(),
        ];
        let texts: usize = texts.iter().sum();
        MEMBER_BYTES + texts as u64 + self.protocols_bytes()
    }

    /// What its protocols take.
    pub(super) fn protocols_bytes(&self) -> u64 {
        protocols_bytes(self.protocols.iter().map(|(name, metadata)| (name, metadata)))
    }

    /// The member with this assignment, for the log; `protocol` is the chosen one.
    pub(super) fn record(&self, protocol: &str, assignment: Bytes) -> MemberMetadata {
        MemberMetadata {
            member_id: self.id.clone(),
            group_instance_id: self.instance.clone(),
            client_id: self.client.client_id.clone(),
            client_host: self.client.host.clone(),
            rebalance_timeout: as_millis(self.rebalance_timeout),
            session_timeout: as_millis(self.session_timeout),
            subscription: self.metadata_of(protocol),
            assignment,
        }
    }

    /// Takes over what a JoinGroup says anew.
    pub(super) fn update(&mut self, request: &JoinGroupRequest) {
        self.session_timeout = millis(request.session_timeout_ms);
        // Version 0 has none.
        self.rebalance_timeout = if request.rebalance_timeout_ms < 0 {
            self.session_timeout
        } else {
            millis(request.rebalance_timeout_ms)
        };
        self.protocols = distinct(&request.protocols)
            .map(|p| (p.name.detached(), Bytes::copy_from_slice(&p.metadata)))
            .collect();
    }

    /// Whether a JoinGroup says nothing new.
    pub(super) fn matches(&self, protocols: &[JoinGroupRequestProtocol]) -> bool {
        self.protocols
            .iter()
            .map(|(name, metadata)| (name, metadata))
            .eq(distinct(protocols).map(|new| (&new.name, &new.metadata)))
    }

    /// The metadata for a protocol, empty if it has not that one.
    pub(super) fn metadata_of(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| name == protocol)
            .map(|(_, metadata)| metadata.clone())
            .unwrap_or_default()
    }

    /// Its client waits for an answer: its silence is ours.
    pub(super) fn is_waiting(&self) -> bool {
        self.join.is_some() || self.sync.is_some()
    }
}

/// What the protocols of a JoinGroup would take.
pub(super) fn asked_bytes(protocols: &[JoinGroupRequestProtocol]) -> u64 {
    protocols_bytes(distinct(protocols).map(|p| (&p.name, &p.metadata)))
}

fn protocols_bytes<'a>(protocols: impl Iterator<Item = (&'a Str, &'a Bytes)>) -> u64 {
    protocols
        .map(|(name, metadata)| PROTOCOL_BYTES + 2 * name.len() as u64 + metadata.len() as u64)
        .sum()
}

/// Protocols by name, of equal ones the first, as Kafka reads the list.
fn distinct(protocols: &[JoinGroupRequestProtocol]) -> impl Iterator<Item = &JoinGroupRequestProtocol> {
    let mut seen = BTreeSet::new();
    protocols.iter().filter(move |p| seen.insert(&p.name))
}

/// Milliseconds of the wire; negative ones count as none.
pub(super) fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn as_millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
