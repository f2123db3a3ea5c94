//! Who votes in the metadata quorum: node, directory and endpoints of each (KIP-853). A change adds or removes one voter and
//! travels as the whole new set, in Kafka's VotersRecord.

use std::collections::BTreeMap;

use protocol::messages::control_records::{
    VotersRecord, VotersRecordEndpoint, VotersRecordKRaftVersionFeature, VotersRecordVoter,
};
use protocol::{Str, Uuid};
use raft::prelude::{ConfChange, ConfChangeType, ConfState};

use crate::ids::BrokerId;

/// The most voters of a quorum.
pub const VOTERS_MAX: usize = 31;

/// The voters of a quorum by node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voters(BTreeMap<BrokerId, Voter>);

/// One voter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voter {
    /// The directory of its metadata log: a node that lost it is another voter.
    pub directory: Uuid,
    /// Where other controllers reach it.
    pub endpoints: Vec<VoterEndpoint>,
}

/// Where a voter listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoterEndpoint {
    /// The listener's name.
    pub listener: String,
    /// Host.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// How one set of voters becomes another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VoterChange {
    /// The same nodes; endpoints may differ.
    None,
    /// One more.
    Add(BrokerId),
    /// One fewer.
    Remove(BrokerId),
    /// More than one node at a time, which no quorum survives safely without joint consensus.
    TooMuch,
}

impl Voters {
    /// A quorum of one.
    #[must_use]
    pub fn alone(node: BrokerId, voter: Voter) -> Self {
        Self(BTreeMap::from([(node, voter)]))
    }

    /// The voters by node.
    pub fn iter(&self) -> impl Iterator<Item = (BrokerId, &Voter)> {
        self.0.iter().map(|(node, voter)| (*node, voter))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The voter of that node.
    #[must_use]
    pub fn get(&self, node: BrokerId) -> Option<&Voter> {
        self.0.get(&node)
    }

    /// This set with one voter more (or with other endpoints).
    #[must_use]
    pub fn with(&self, node: BrokerId, voter: Voter) -> Self {
        let mut voters = self.0.clone();
        voters.insert(node, voter);
        Self(voters)
    }

    pub(super) fn change_to(&self, next: &Self) -> VoterChange {
        let added: Vec<BrokerId> = next
            .0
            .keys()
            .filter(|node| !self.0.contains_key(node))
            .copied()
            .collect();
        let removed: Vec<BrokerId> = self
            .0
            .keys()
            .filter(|node| !next.0.contains_key(node))
            .copied()
            .collect();
        match (added.as_slice(), removed.as_slice()) {
            ([], []) => VoterChange::None,
            ([node], []) => VoterChange::Add(*node),
            ([], [node]) => VoterChange::Remove(*node),
            _ => VoterChange::TooMuch,
        }
    }

    pub(super) fn conf_state(&self) -> ConfState {
        ConfState {
            voters: self.0.keys().map(|node| raft_id(*node)).collect(),
            ..ConfState::default()
        }
    }

    /// The record of this set.
    #[must_use]
    pub fn to_record(&self) -> VotersRecord {
        VotersRecord {
            version: 0,
            voters: self
                .0
                .iter()
                .map(|(node, voter)| VotersRecordVoter {
                    voter_id: node.0,
                    voter_directory_id: voter.directory,
                    endpoints: voter
                        .endpoints
                        .iter()
                        .map(|endpoint| VotersRecordEndpoint {
                            name: Str::from(endpoint.listener.clone()),
                            host: Str::from(endpoint.host.clone()),
                            port: endpoint.port,
                        })
                        .collect(),
                    k_raft_version_feature: VotersRecordKRaftVersionFeature {
                        min_supported_version: 0,
                        max_supported_version: 1,
                    },
                })
                .collect(),
        }
    }

    /// The set in a record; `None` when it is empty, too large, names a node twice or one with a negative id.
    #[must_use]
    pub fn from_record(record: &VotersRecord) -> Option<Self> {
        let voters: BTreeMap<BrokerId, Voter> = record
            .voters
            .iter()
            .map(|voter| {
                let endpoints = voter.endpoints.iter().map(|endpoint| VoterEndpoint {
                    listener: endpoint.name.to_string(),
                    host: endpoint.host.to_string(),
                    port: endpoint.port,
                });
                let value = Voter {
                    directory: voter.voter_directory_id,
                    endpoints: endpoints.collect(),
                };
                (BrokerId(voter.voter_id), value)
            })
            .collect();
        let is_fine = (1..=VOTERS_MAX).contains(&voters.len())
            && voters.len() == record.voters.len()
            && voters.keys().all(|node| node.0 >= 0);
        is_fine.then_some(Self(voters))
    }
}

impl VoterChange {
    /// The change in raft's terms.
    pub(super) fn conf_change(&self) -> Option<ConfChange> {
        let (kind, node) = match self {
            Self::Add(node) => (ConfChangeType::AddNode, node),
            Self::Remove(node) => (ConfChangeType::RemoveNode, node),
            Self::None | Self::TooMuch => return None,
        };
        let mut change = ConfChange::default();
        change.set_change_type(kind);
        change.node_id = raft_id(*node);
        Some(change)
    }
}

/// raft's number of a node: raft keeps 0 for "nobody", Kafka's ids begin there.
pub(super) fn raft_id(node: BrokerId) -> u64 {
    u64::from(node.0.unsigned_abs()) + 1
}

/// The node behind raft's number; `None` for "nobody" and for numbers that are no node's.
pub(super) fn node_of(raft_id: u64) -> Option<BrokerId> {
    i32::try_from(raft_id.checked_sub(1)?).ok().map(BrokerId)
}
