//! What shards say to each other: one message per (request, shard) and one reply each (DESIGN §4). Plain data, `Send`;
//! the mailbox batches them, the owner (`owner/`) answers them.

use std::sync::Arc;

use bytes::Bytes;
use protocol::{ErrorCode, RecordBytes};
use storage::types::{LeaderEpoch, LogId, Offset, ProducerId};

use crate::coordinator::group::GroupReply;
use crate::env::Instant;
use crate::ids::{BrokerId, LogDir, ShardId};
use crate::replies::ReplyToken;

/// Where a reply goes: the shard that asked and its token there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo {
    /// The shard that asked.
    pub shard: ShardId,
    /// Its token, unique among its open requests.
    pub token: ReplyToken,
    /// The asker wants to know when what was done ([`crate::trace`]).
    pub is_traced: bool,
}

/// What a shard is asked about the partitions it owns.
#[derive(Clone, Debug)]
pub enum ShardRequest {
    /// The part of a Produce.
    Append(Append),
    /// The part of a Fetch.
    Fetch(FetchRead),
    /// The part of a ListOffsets, OffsetForLeaderEpoch or DeleteRecords.
    Offsets(Vec<OffsetQuery>),
    /// Sizes of all the shard's logs.
    Logs,
}

/// A shard's answer; the variant is the request's.
#[derive(Clone, Debug)]
pub enum ShardReply {
    /// One for each item, in order.
    Append(Vec<AppendResult>),
    /// One for each entry, in order.
    Fetch(FetchAnswer),
    /// One for each query, in order.
    Offsets(Vec<OffsetAnswer>),
    /// In order of topic id and partition.
    Logs(Vec<LogSummary>),
    /// A group coordinator's, or why there is none here.
    Group(Box<Result<GroupReply, ErrorCode>>),
}

/// The part of a Produce that one shard serves: validated batches, in request order.
#[derive(Clone, Debug)]
pub struct Append {
    /// The batches.
    pub items: Vec<AppendItem>,
    /// When to answer.
    pub acks: Acks,
    /// When to answer at the latest.
    pub deadline: Instant,
}

/// One batch for one partition.
#[derive(Clone, Debug)]
pub struct AppendItem {
    /// The log.
    pub log: LogId,
    /// The whole batch as it will be stored, but for the base offset and leader epoch that the owner assigns.
    pub batch: Bytes,
}

/// How safe a record has to be before its produce is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Not answered at all.
    None,
    /// The leader's durable end has passed it.
    Leader,
    /// The high watermark has passed it.
    All,
}

/// The part of a Fetch that one shard serves, in request order.
#[derive(Clone, Debug)]
pub struct FetchRead {
    /// What to read.
    pub entries: Vec<FetchEntry>,
    /// Bytes this shard may return at most, but for the first batch of its first partition that has any.
    pub bytes_max: usize,
    /// Who reads: decides the upper bound (FE-8).
    pub isolation: Isolation,
    /// Set when the reader waits: answer only after that much more can be read; with `bytes_max` 0 without any data then.
    pub wait: Option<Wait>,
}

/// One partition of a [`FetchRead`].
#[derive(Clone, Debug)]
pub struct FetchEntry {
    /// The log.
    pub log: LogId,
    /// The first offset wanted.
    pub offset: Offset,
    /// Bytes of this partition at most, but for the first batch as above.
    pub bytes_max: usize,
    /// The leader epoch the reader knows, for fencing (FE-13).
    pub current_leader_epoch: LeaderEpoch,
    /// The epoch of the reader's last record, for divergence (FE-14).
    pub last_fetched_epoch: LeaderEpoch,
}

/// Up to where a reader sees (FE-8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Up to the high watermark.
    ReadUncommitted,
    /// Up to the last stable offset.
    ReadCommitted,
    /// Up to the log end: replicas.
    Replica(BrokerId),
}

/// A condition on the readable bytes of a [`FetchRead`]'s partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The mark of the last answer ([`FetchAnswer::mark`]).
    pub seen: u64,
    /// New readable bytes needed since, at least 1.
    pub needed_bytes: u64,
}

/// A shard's answer to a [`FetchRead`].
#[derive(Clone, Debug, Default)]
pub struct FetchAnswer {
    /// One for each entry, in order.
    pub partitions: Vec<PartitionData>,
    /// Readable bytes of all the entries' partitions so far, a running count: what [`Wait::seen`] compares with.
    pub mark: u64,
}

/// What a fetch finds in one partition.
#[derive(Clone, Debug, Default)]
pub struct PartitionData {
    /// NONE, or why there is no data.
    pub error: ErrorCode,
    /// −1 where the error leaves it unknown.
    pub high_watermark: i64,
    /// −1 where the error leaves it unknown.
    pub last_stable_offset: i64,
    /// −1 where the error leaves it unknown.
    pub log_start_offset: i64,
    /// Where the reader's log parts from this one (FE-14): epoch and its end offset.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// For read_committed: aborted transactions in the range, as (producer id, first offset) (FE-11).
    pub aborted: Option<Vec<(ProducerId, Offset)>>,
    /// The leader and its epoch, sent along with leadership errors (FE-15).
    pub current_leader: Option<(BrokerId, LeaderEpoch)>,
    /// Whole batches as stored.
    pub records: RecordBytes,
    /// The records exceed the entry's or the request's limit: only good as the first of a response (FE-2).
    pub is_oversized: bool,
}

/// The part of a ListOffsets, DeleteRecords or OffsetForLeaderEpoch that one shard serves.
#[derive(Clone, Debug)]
pub struct OffsetQuery {
    /// The log asked about.
    pub log: LogId,
    /// The leader epoch the asker knows, for fencing.
    pub current_leader_epoch: LeaderEpoch,
    /// What is asked.
    pub what: OffsetQueryKind,
}

/// A question about offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetQueryKind {
    /// The end a reader of this isolation sees (LO-1).
    Latest(Isolation),
    /// The log start offset (LO-2).
    Earliest,
    /// The record with the largest timestamp (LO-3).
    MaxTimestamp,
    /// The first record at or after this time, below the isolation's end (LO-8).
    Timestamp(i64, Isolation),
    /// The end of an epoch (LE-1…3).
    EpochEnd(LeaderEpoch),
    /// Moves the log start to this offset, −1 for the high watermark (AD-7).
    DeleteBefore(Offset),
}

/// The answer to an [`OffsetQuery`]; unknown numbers are −1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetAnswer {
    /// NONE or the reason.
    pub error: ErrorCode,
    /// The offset asked for.
    pub offset: Offset,
    /// The record's timestamp, where one was looked for.
    pub timestamp: i64,
    /// The epoch of the offset, or the epoch found.
    pub leader_epoch: LeaderEpoch,
}

/// Sizes of one log for DescribeLogDirs and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSummary {
    /// The log.
    pub log: LogId,
    /// Bytes in its segments.
    pub size_bytes: u64,
    /// Its `retention.bytes`, where that counts.
    pub size_bytes_max: Option<u64>,
    /// Log start, high watermark, log end.
    pub log_start: Offset,
    /// See above.
    pub high_watermark: Offset,
    /// See above.
    pub log_end: Offset,
    /// Segments it has.
    pub segments: usize,
    /// The log directory it is in.
    pub dir: LogDir,
    /// It is a copy that is to take the log's place there (AlterReplicaLogDirs).
    pub is_future: bool,
}

/// The result of one partition of a produce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendResult {
    /// NONE or the reason.
    pub error: ErrorCode,
    /// The offset of the first record, −1 on error.
    pub base_offset: Offset,
    /// The append time on LogAppendTime topics, else −1; a duplicate's original's.
    pub log_append_time: i64,
    /// −1 on most errors.
    pub log_start_offset: Offset,
    /// A sentence for the client, where there is one.
    pub message: Option<Arc<str>>,
    /// The leader and its epoch, sent along with leadership errors (PR-15).
    pub current_leader: Option<(BrokerId, LeaderEpoch)>,
    /// The batch had been appended before: this is the original's offset (PR-41).
    pub is_duplicate: bool,
}
