//! What happens to groups and their members and an operator may ask for afterwards: who came, who went and why, when a group
//! rebalanced. Whoever drives the coordinator takes it out and writes it to the log.

use std::time::Duration;

use protocol::Str;

use super::classic::ClassicGroup;
use super::member::Member;
use super::request::ClientIdentity;
use super::stats::RebalanceReason;
use super::turn::Turn;

/// So many are kept between two looks; what comes beyond them is counted.
const NEWS_MAX: usize = 256;

/// What has happened since it was taken last, in order.
#[derive(Debug, Default)]
pub struct News {
    /// What has happened.
    pub told: Vec<GroupNews>,
    /// How much more has.
    pub left_out: u64,
}

/// One thing that has happened to the group of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNews {
    /// The group.
    pub group: Str,
    /// What has happened.
    pub what: Happened,
}

/// See [`GroupNews`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// A member is new.
    Joined(MemberName),
    /// A member is out.
    Out(MemberName, Departure),
    /// An instance came back without its member id: it has a new one, and whoever has the old one is fenced.
    Replaced {
        /// The instance with its new id.
        member: MemberName,
        /// Its id before.
        old: Str,
    },
    /// A rebalance begins.
    RebalanceBegun {
        /// The generation that ends.
        generation: i32,
        /// What began it.
        reason: RebalanceReason,
        /// Members now.
        members: usize,
    },
    /// A generation has its assignment.
    Stable {
        /// The generation.
        generation: i32,
        /// Its members.
        members: usize,
        /// The protocol they have in common.
        protocol: Str,
        /// From the call to join until now.
        took: Duration,
    },
    /// Offsets were deleted by request, so many.
    OffsetsDeleted(u64),
    /// The group was deleted by request, with so many offsets.
    Deleted(u64),
    /// The group grew old, with so many offsets.
    Expired(u64),
}

/// How somebody finds a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberName {
    /// Its id.
    pub id: Str,
    /// Its `group.instance.id`.
    pub instance: Option<Str>,
    /// Its client and where it runs.
    pub client: ClientIdentity,
}

/// Why a member is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It left, or was taken out by request.
    Left,
    /// It was not heard of for its session timeout.
    SessionExpired,
    /// It did not join a rebalance in time.
    JoinExpired,
    /// It did not ask for its assignment in time.
    SyncExpired,
    /// The group is larger than `group.max.size`.
    SizeExceeded,
}

impl Departure {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Left => "it left",
            Self::SessionExpired => "it was not heard of for its session timeout",
            Self::JoinExpired => "it did not join the rebalance in time",
            Self::SyncExpired => "it did not ask for its assignment in time",
            Self::SizeExceeded => "the group is larger than group.max.size",
        }
    }
}

impl News {
    /// Something has happened to `group`.
    pub(super) fn add(&mut self, group: &Str, what: Happened) {
        if self.told.len() < NEWS_MAX {
            let group = group.clone();
            self.told.push(GroupNews { group, what });
        } else {
            self.left_out += 1;
        }
    }
}

impl From<&Member> for MemberName {
    fn from(member: &Member) -> Self {
        Self {
            id: member.id.clone(),
            instance: member.instance.clone(),
            client: member.client.clone(),
        }
    }
}

impl ClassicGroup {
    /// Something has happened to this group.
    pub(super) fn tell(&self, turn: &mut Turn<'_>, what: Happened) {
        turn.effects.news.add(&self.id, what);
    }
}
