//! A shard's service for the partitions it owns: appends, reads, offset questions, and who waits for what. A state
//! machine over the logs ([`Logs`]): every change comes through [`Owner::handle`] or an event, effects come out of
//! [`Owner::poll_output`]. One per shard; it sees only this shard's partitions. No clock, no await.
//!
//! ```text
//! inbox ─ handle ─► append ─► staged in the log ─ committer ─► durable ─► high watermark ─► reply
//!                   fetch  ─► cached data ─► reply      │          └────► waiting fetches ─► reply
//!                          └► cold read ─► driver reads ─► reply
//! ```

mod append;
mod counters;
mod dirs;
mod fetch;
mod logs;
mod moving;
mod offsets;
mod partition;
pub mod store;

use std::collections::{BTreeSet, VecDeque};

use hashbrown::HashMap;
use protocol::ErrorCode;
use slab::Slab;
use storage::types::{LeaderEpoch, LogId, Offset};

pub use self::counters::{OwnerCounters, PartitionStats};
pub use self::dirs::{DirLog, Dirs, InDir};
pub use self::fetch::{ColdFetch, ColdPiece};
pub use self::logs::{Appended, Logs, LogsIo, Moving, Read};
pub use self::moving::Hold;
pub use self::offsets::{LookUp, OffsetLookup, OpenQuery};
pub use self::partition::{Partition, PartitionSettings};

use self::append::PendingAppend;
use self::fetch::ParkedFetch;
use crate::env::{Instant, WallMs};
use crate::ids::BrokerId;
use crate::message::{AppendResult, LogSummary, ReplyTo, ShardReply, ShardRequest};
use crate::purgatory::fetch::FetchWatches;
use crate::purgatory::produce::{PartitionIndex, ProducePurgatory, WaitFor};

/// What the driver of an owner has to do.
#[derive(Debug)]
pub enum OwnerOutput<L: Logs> {
    /// Send a reply.
    Reply {
        /// To whom.
        to: ReplyTo,
        /// What.
        reply: ShardReply,
    },
    /// Read from disk, then hand the whole back to [`Owner::cold_done`].
    ReadCold(ColdFetch<L::Cold>),
    /// Look offsets up by time or delete below one, then reply.
    LookUp(OffsetLookup<L::Log>),
}

/// Logs with their high watermarks.
pub type Marks<L> = Vec<(<L as Logs>::Log, Offset)>;

/// The partitions of one shard. `L` is the shard's storage.
#[derive(Debug)]
pub struct Owner<L: Logs> {
    broker: BrokerId,
    logs: L,
    partitions: Slab<Partition<L::Log>>,
    by_id: HashMap<LogId, PartitionIndex, foldhash::fast::FixedState>,
    by_log: HashMap<L::Log, PartitionIndex, foldhash::fast::FixedState>,
    /// Partitions of this shard whose log cannot be opened.
    lost: BTreeSet<LogId>,
    produces: ProducePurgatory<PendingAppend>,
    fetches: FetchWatches<ParkedFetch>,
    outputs: VecDeque<OwnerOutput<L>>,
    counters: OwnerCounters,
    /// Requests that wait for the hand-over of logs that move, in order.
    held: VecDeque<(ReplyTo, ShardRequest)>,
    /// Partitions for which requests are kept back.
    holds: usize,
    /// Logs that were replaced by their copies.
    relocations: u64,
}

impl<L: Logs> Owner<L> {
    /// An owner of no partition yet, on `broker`.
    #[must_use]
    pub fn new(broker: BrokerId, logs: L) -> Self {
        Self {
            broker,
            logs,
            partitions: Slab::new(),
            by_id: HashMap::default(),
            by_log: HashMap::default(),
            lost: BTreeSet::new(),
            produces: ProducePurgatory::default(),
            fetches: FetchWatches::default(),
            outputs: VecDeque::new(),
            counters: OwnerCounters::default(),
            held: VecDeque::new(),
            holds: 0,
            relocations: 0,
        }
    }

    /// The shard's storage.
    pub fn logs(&self) -> &L {
        &self.logs
    }

    /// Produces and fetches that wait here.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        (self.produces.len(), self.fetches.len())
    }

    /// Partitions owned.
    #[must_use]
    pub fn partition_count(&self) -> usize {
        self.partitions.len()
    }

    /// The log of a partition owned here.
    #[must_use]
    pub fn log_of(&self, id: LogId) -> Option<L::Log> {
        self.index_of(id).map(|index| self.partitions[index].log)
    }

    /// Logs and high watermarks of the partitions in `slots_max` slots from `slot` on, and the slot to go on from; `None`
    /// behind the last. A round from slot 0 sees every partition that is here all the while.
    #[must_use]
    pub fn logs_from(&self, slot: usize, slots_max: usize) -> Option<(usize, Marks<L>)> {
        let slots = self.partitions.capacity();
        if slot >= slots {
            return None;
        }
        let end = slot.saturating_add(slots_max).min(slots);
        let some = (slot..end).filter_map(|slot| self.partitions.get(slot));
        let logs = some.map(|partition| (partition.log, partition.watermark.high_watermark()));
        Some((end, logs.collect()))
    }

    /// The earliest time at which [`Self::expire`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.produces.next_deadline()
    }

    /// A request from a shard (also from this one).
    pub fn handle(&mut self, to: ReplyTo, request: ShardRequest, wall: WallMs) {
        let Some(request) = self.keep_back(to, request) else {
            return;
        };
        match request {
            ShardRequest::Append(append) => self.append(to, append, wall),
            ShardRequest::Fetch(read) => self.fetch(to, read),
            ShardRequest::Offsets(queries) => self.answer_offsets(to, queries),
            ShardRequest::Logs => {
                let reply = ShardReply::Logs(self.summaries());
                self.reply(to, reply);
            }
        }
    }

    /// The asker does not wait any longer. Nothing happens if the answer has left.
    pub fn cancel(&mut self, to: ReplyTo) {
        self.fetches.cancel(to);
        self.cancel_held(to);
    }

    /// The log's completed syncs reach up to `end` now: moves the high watermark and answers who waited for it.
    pub fn durable(&mut self, log: L::Log, end: Offset) {
        let Some(&index) = self.by_log.get(&log) else {
            return;
        };
        let completed = self.produces.advance(index, WaitFor::Durable, end);
        self.answer_appends(completed);
        if let Some(mark) = self.partitions[index].watermark.leader_durable(end) {
            self.high_watermark_moved(index, mark);
        }
    }

    /// A log directory failed and takes nothing more: whoever waits on its partitions is told. Returns those partitions, in
    /// order; they stay here, offline.
    pub fn storage_failed(&mut self) -> Vec<LogId> {
        let failed = self
            .partitions
            .iter()
            .filter(|(_, p)| self.logs.is_offline(p.log));
        let mut failed: Vec<(LogId, PartitionIndex)> = failed.map(|(index, p)| (p.id, index)).collect();
        failed.sort_unstable();
        for (_, index) in &failed {
            let completed = self.produces.partition_offline(*index);
            self.answer_appends(completed);
            let parked = self.fetches.disturb(*index);
            self.resume(parked);
        }
        failed.into_iter().map(|(id, _)| id).collect()
    }

    /// Answers what has waited until its deadline.
    pub fn expire(&mut self, now: Instant) {
        let completed = self.produces.expire(now);
        self.answer_appends(completed);
    }

    /// A partition of this shard cannot be served, since its log cannot be opened: who asks is told so.
    pub fn lose(&mut self, id: LogId) {
        self.lost.insert(id);
    }

    /// This shard owns a partition from now on; its log is open.
    pub fn adopt(&mut self, id: LogId, log: L::Log, leader_epoch: LeaderEpoch, settings: PartitionSettings) {
        self.lost.remove(&id);
        self.logs.lead(log, leader_epoch);
        let partition = Partition::new(id, log, self.broker, leader_epoch, settings, self.logs.ends(log));
        let index = self.partitions.insert(partition);
        let known = self.by_id.insert(id, index);
        assert!(known.is_none(), "a partition is adopted once");
        self.by_log.insert(log, index);
    }

    /// New settings of a partition; they hold for the next request.
    pub fn reconfigure(&mut self, id: LogId, settings: PartitionSettings) {
        let Some(index) = self.index_of(id) else { return };
        if let Some(mark) = self.partitions[index]
            .watermark
            .set_min_insync_replicas(settings.min_insync_replicas)
        {
            self.high_watermark_moved(index, mark);
        }
    }

    /// The partition leaves this shard: whoever waits on it is answered. Returns its log, to be closed or deleted.
    pub fn release(&mut self, id: LogId) -> Option<L::Log> {
        self.lost.remove(&id);
        let index = self.by_id.remove(&id)?;
        let partition = self.partitions.remove(index);
        self.by_log.remove(&partition.log);
        if let Some(moving) = &partition.moving {
            self.release_hold(moving);
        }
        let completed = self.produces.fail_partition(index);
        self.answer_appends(completed);
        let parked = self.fetches.disturb(index);
        self.resume(parked);
        Some(partition.log)
    }

    /// The next thing to do; to be drained after each call of the above.
    pub fn poll_output(&mut self) -> Option<OwnerOutput<L>> {
        self.outputs.pop_front()
    }

    fn index_of(&self, id: LogId) -> Option<PartitionIndex> {
        self.by_id.get(&id).copied()
    }

    /// What a request for a partition is told that is not served here.
    fn refusal(&self, id: LogId) -> ErrorCode {
        if self.lost.contains(&id) {
            ErrorCode::KAFKA_STORAGE_ERROR
        } else {
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        }
    }

    fn reply(&mut self, to: ReplyTo, reply: ShardReply) {
        self.outputs.push_back(OwnerOutput::Reply { to, reply });
    }

    fn reply_append(&mut self, to: ReplyTo, results: Vec<AppendResult>) {
        self.reply(to, ShardReply::Append(results));
    }

    fn high_watermark_moved(&mut self, index: PartitionIndex, mark: Offset) {
        self.logs.high_watermark(self.partitions[index].log, mark);
        let completed = self.produces.advance(index, WaitFor::HighWatermark, mark);
        self.answer_appends(completed);
        let readable = self.partitions[index].became_readable(mark);
        let parked = self.fetches.readable(index, readable);
        self.resume(parked);
    }

    fn summaries(&self) -> Vec<LogSummary> {
        let mut summaries: Vec<_> = self.partitions.iter().map(|(_, p)| self.summary(p)).collect();
        let futures: Vec<_> = summaries.iter().filter_map(|s| self.future_summary(s)).collect();
        summaries.extend(futures);
        summaries.sort_by_key(|s| (s.log, s.is_future));
        summaries
    }

    fn summary(&self, partition: &Partition<L::Log>) -> LogSummary {
        if let Some(frozen) = self.frozen_summary(partition.moving.as_ref()) {
            return frozen;
        }
        let ends = self.logs.ends(partition.log);
        let size = self.logs.size(partition.log);
        LogSummary {
            log: partition.id,
            size_bytes: size.bytes,
            log_start: ends.log_start,
            high_watermark: partition.watermark.high_watermark(),
            log_end: ends.log_end,
            segments: size.segments,
            dir: self.logs.dir(partition.log),
            size_bytes_max: size.bytes_max,
            is_future: false,
        }
    }
}

#[cfg(test)]
mod tests;
