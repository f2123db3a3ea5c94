//! A partition whose log moves to another log directory, on the owner: what reports say of it, and who waits while the log is
//! handed over. Appends are kept back from when the copy is brought to the log's end, all requests while the one log is closed and
//! the other is not open yet; that is some milliseconds. Then they are served in the order they came in.

use std::collections::BTreeSet;

use protocol::ErrorCode;
use storage::types::{LogId, Offset};

use super::{Logs, Owner};
use crate::env::WallMs;
use crate::ids::LogDir;
use crate::message::{
    AppendResult, FetchAnswer, FetchRead, LogSummary, OffsetAnswer, OffsetQueryKind, PartitionData, ReplyTo,
    ShardReply, ShardRequest,
};

/// Requests of a shard that may be kept back; more are told to ask again.
const HELD_MAX: usize = 16 << 10;

/// What waits for the hand-over of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Nothing.
    #[default]
    Nothing,
    /// What changes it.
    Changes,
    /// Every request for it.
    All,
}

/// A move of a partition's log that is asked for or under way.
#[derive(Clone, Debug)]
pub(super) struct Moving {
    to: LogDir,
    bytes: u64,
    end: Offset,
    hold: Hold,
    /// What reports say while there is no log to ask.
    frozen: Option<LogSummary>,
}

impl<L: Logs> Owner<L> {
    /// The partition's log is to move to `to`, or is on its way: so many bytes, up to an offset, are copied.
    pub fn note_move(&mut self, id: LogId, to: LogDir, bytes: u64, end: Offset) {
        let Some(index) = self.index_of(id) else { return };
        let partition = &mut self.partitions[index];
        let before = partition.moving.take();
        partition.moving = Some(Moving {
            to,
            bytes,
            end,
            hold: before.as_ref().map_or(Hold::Nothing, |moving| moving.hold),
            frozen: before.and_then(|moving| moving.frozen),
        });
    }

    /// Keeps requests for the partition, whose move is noted, back.
    pub fn hold(&mut self, id: LogId, hold: Hold) {
        let Some(index) = self.index_of(id) else { return };
        let summary = (hold == Hold::All).then(|| self.summary(&self.partitions[index]));
        if let Some(moving) = &mut self.partitions[index].moving {
            if moving.hold == Hold::Nothing && hold != Hold::Nothing {
                self.holds += 1;
            }
            moving.hold = hold;
            moving.frozen = summary;
        }
    }

    /// The partition's log is `log` from now on, with the same records, of which this shard leads what comes.
    pub fn relocate(&mut self, id: LogId, log: L::Log) {
        let Some(index) = self.index_of(id) else { return };
        let partition = &mut self.partitions[index];
        self.by_log.remove(&partition.log);
        self.by_log.insert(log, index);
        partition.log = log;
        self.relocations += 1;
        let (epoch, mark) = (partition.leader_epoch, partition.watermark.high_watermark());
        self.logs.lead(log, epoch);
        self.logs.high_watermark(log, mark);
        self.durable(log, self.logs.ends(log).durable_end);
    }

    /// The partition's move is over, however it went: serves what was kept back.
    pub fn end_move(&mut self, id: LogId, wall: WallMs) {
        if let Some(index) = self.index_of(id)
            && let Some(moving) = self.partitions[index].moving.take()
        {
            self.release_hold(&moving);
        }
        for (to, request) in std::mem::take(&mut self.held) {
            self.handle(to, request, wall);
        }
    }

    /// A partition that leaves this shard keeps nothing back.
    pub(super) fn release_hold(&mut self, moving: &Moving) {
        if moving.hold != Hold::Nothing {
            self.holds -= 1;
        }
    }

    /// Takes the request if it has to wait, and answers it where too many do; else gives it back.
    pub(super) fn keep_back(&mut self, to: ReplyTo, request: ShardRequest) -> Option<ShardRequest> {
        if self.holds == 0 || !self.must_wait(&request) {
            return Some(request);
        }
        if self.held.len() < HELD_MAX {
            self.held.push_back((to, request));
        } else {
            self.reply(to, refusal(&request));
        }
        None
    }

    /// The same for a fetch that goes on.
    pub(super) fn keep_fetch_back(&mut self, to: ReplyTo, read: FetchRead) -> Option<FetchRead> {
        if self.holds == 0 {
            return Some(read);
        }
        match self.keep_back(to, ShardRequest::Fetch(read))? {
            ShardRequest::Fetch(read) => Some(read),
            _ => None,
        }
    }

    /// The asker of a fetch does not wait any longer.
    pub(super) fn cancel_held(&mut self, to: ReplyTo) {
        self.held
            .retain(|(asker, request)| *asker != to || !matches!(request, ShardRequest::Fetch(_)));
    }

    fn must_wait(&self, request: &ShardRequest) -> bool {
        let hold_of = |log: LogId| {
            let index = self.index_of(log)?;
            Some(self.partitions[index].moving.as_ref()?.hold)
        };
        let is_held = |log: LogId, by: Hold| hold_of(log).is_some_and(|hold| hold >= by);
        match request {
            ShardRequest::Append(append) => {
                // Nothing overtakes: what follows an append that waits, for any of its partitions, waits too.
                let before = self.held_appends();
                append
                    .items
                    .iter()
                    .any(|item| is_held(item.log, Hold::Changes) || before.contains(&item.log))
            }
            ShardRequest::Fetch(read) => read.entries.iter().any(|entry| is_held(entry.log, Hold::All)),
            ShardRequest::Offsets(queries) => queries.iter().any(|query| {
                let by = match query.what {
                    OffsetQueryKind::DeleteBefore(_) => Hold::Changes,
                    _ => Hold::All,
                };
                is_held(query.log, by)
            }),
            ShardRequest::Logs => false,
        }
    }

    fn held_appends(&self) -> BTreeSet<LogId> {
        let appends = self.held.iter().filter_map(|(_, request)| match request {
            ShardRequest::Append(append) => Some(append),
            _ => None,
        });
        appends
            .flat_map(|append| append.items.iter().map(|item| item.log))
            .collect()
    }

    /// What reports say of the copy of a partition that moves.
    pub(super) fn future_summary(&self, of: &LogSummary) -> Option<LogSummary> {
        let moving = self.partitions[self.index_of(of.log)?].moving.as_ref()?;
        Some(LogSummary {
            size_bytes: moving.bytes,
            size_bytes_max: None,
            high_watermark: of.log_end, // what it has to reach
            log_end: moving.end,
            dir: moving.to,
            is_future: true,
            ..of.clone()
        })
    }

    /// What reports say of a partition whose log cannot be asked now.
    pub(super) fn frozen_summary(&self, moving: Option<&Moving>) -> Option<LogSummary> {
        moving.and_then(|moving| moving.frozen.clone())
    }
}

/// The answer to a request that could not even wait: to be sent again.
fn refusal(request: &ShardRequest) -> ShardReply {
    let error = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    match request {
        ShardRequest::Append(append) => {
            let failed = append.items.iter().map(|_| AppendResult::failed(error, None));
            ShardReply::Append(failed.collect())
        }
        ShardRequest::Fetch(read) => ShardReply::Fetch(FetchAnswer {
            partitions: read
                .entries
                .iter()
                .map(|_| PartitionData::failed(error))
                .collect(),
            mark: 0,
        }),
        ShardRequest::Offsets(queries) => {
            ShardReply::Offsets(queries.iter().map(|_| OffsetAnswer::failed(error)).collect())
        }
        ShardRequest::Logs => ShardReply::Logs(Vec::new()),
    }
}
