//! What a group's coordinator is asked, what it answers, and what its driver has to do. Plain data; messages of the wire
//! protocol where they name one group.

use std::rc::Rc;
use std::time::Duration;

use protocol::messages::delete_groups::DeletableGroupResult;
use protocol::messages::describe_groups::DescribeGroupsResponseDescribedGroup;
use protocol::messages::heartbeat::HeartbeatRequest;
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use protocol::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse};
use protocol::messages::list_groups::ListedGroup;
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use protocol::{ErrorCode, Str, Uuid};

use super::offsets::CommittedOffset;
use super::record::GroupRecord;
use crate::message::ReplyTo;

/// Bounds and times of groups: the broker configurations of the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// `group.min.session.timeout.ms`.
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`.
    pub session_timeout_max: Duration,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay: Duration,
    /// `group.max.size`.
    pub size_max: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes`.
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_check_interval: Duration,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(30 * 60),
            initial_rebalance_delay: Duration::from_secs(3),
            size_max: i32::MAX as usize,
            offset_metadata_bytes_max: 4096,
            offsets_retention: Duration::from_secs(7 * 24 * 60 * 60),
            offsets_check_interval: Duration::from_secs(600),
        }
    }
}

/// Who sent a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The header's client id, empty if there is none.
    pub client_id: Str,
    /// Its address as Kafka writes it: `/127.0.0.1`.
    pub host: Str,
}

/// One request about one group, but for [`GroupRequest::List`].
#[derive(Clone, Debug)]
pub enum GroupRequest {
    /// JoinGroup.
    Join {
        /// The request.
        request: JoinGroupRequest,
        /// Its version: from 4 on a new member comes twice (CG-2), from 9 on it may skip the assignment.
        version: i16,
        /// Who asks.
        client: ClientIdentity,
        /// A new member is called after this.
        fresh: Uuid,
    },
    /// SyncGroup.
    Sync(SyncGroupRequest),
    /// Heartbeat.
    Heartbeat(HeartbeatRequest),
    /// LeaveGroup; a version below 3 names its one member in `members`, too.
    Leave(LeaveGroupRequest),
    /// OffsetCommit.
    Commit(OffsetCommit),
    /// OffsetFetch of one group.
    Fetch(OffsetFetch),
    /// OffsetDelete.
    DeleteOffsets {
        /// The group.
        group: Str,
        /// Topics that exist, and their partitions.
        topics: Vec<(Str, Vec<i32>)>,
    },
    /// DescribeGroups of one group.
    Describe(Str),
    /// ListGroups: all groups.
    List,
    /// DeleteGroups of one group.
    Delete(Str),
}

/// An OffsetCommit whose topics exist.
#[derive(Clone, Debug, Default)]
pub struct OffsetCommit {
    /// The group.
    pub group: Str,
    /// The member, empty for a group without members.
    pub member: Str,
    /// Its instance id.
    pub instance: Option<Str>,
    /// The generation, −1 for a group without members.
    pub generation: i32,
    /// The request's version: from 9 on an unknown group is named as such (CG-41).
    pub version: i16,
    /// How long the offsets are kept from now on, versions 2 to 4 (CG-49).
    pub retention: Option<Duration>,
    /// What is committed, by topic.
    pub topics: Vec<CommitTopic>,
}

/// The offsets of one topic in an [`OffsetCommit`].
#[derive(Clone, Debug, Default)]
pub struct CommitTopic {
    /// Its name.
    pub name: Str,
    /// Its id.
    pub id: Uuid,
    /// Partition, offset, leader epoch (−1 for none), metadata.
    pub partitions: Vec<(i32, i64, i32, Str)>,
}

/// An OffsetFetch of one group.
#[derive(Clone, Debug, Default)]
pub struct OffsetFetch {
    /// The group.
    pub group: Str,
    /// Partitions by topic; `None` for all that are committed (CG-46).
    pub topics: Option<Vec<(Str, Vec<i32>)>>,
    /// Answer nothing that a transaction may still change (CG-45). Not read: nobody commits offsets in transactions so far. Those
    /// that a log taken over from Kafka holds of a transaction without an end count as never committed, and nobody waits for
    /// them, since nobody would end it.
    pub require_stable: bool,
}

/// Partitions of a topic with what was found for each.
pub type ByTopic<T> = Vec<(Str, Vec<(i32, T)>)>;

/// The answer to a [`GroupRequest`]; the variant is the request's.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupReply {
    /// To a Join.
    Join(JoinGroupResponse),
    /// To a Sync.
    Sync(SyncGroupResponse),
    /// To a Heartbeat.
    Heartbeat(ErrorCode),
    /// To a Leave: one member's error each.
    Leave(LeaveGroupResponse),
    /// To a Commit: in the request's order.
    Commit(ByTopic<ErrorCode>),
    /// To a Fetch: `Ok(None)` where nothing is committed.
    Fetch(ByTopic<Result<Option<CommittedOffset>, ErrorCode>>),
    /// To a DeleteOffsets: an error of the group, or of each partition.
    DeleteOffsets(Result<ByTopic<ErrorCode>, ErrorCode>),
    /// To a Describe.
    Describe(DescribeGroupsResponseDescribedGroup),
    /// To a List.
    List(Vec<ListedGroup>),
    /// To a Delete.
    Delete(DeletableGroupResult),
}

/// Names an append until it is done. They are done in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(pub u64);

/// What the driver of a coordinator has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOutput {
    /// Send an answer.
    Reply {
        /// To whom.
        to: ReplyTo,
        /// What.
        reply: GroupReply,
    },
    /// Append records to the partition, in the order of these outputs, and say how it went when the high watermark has
    /// passed them: [`super::GroupCoordinator::handle_written`].
    Append {
        /// What to call it then.
        write: WriteId,
        /// The records, at least one.
        records: Rc<[GroupRecord]>,
    },
}
