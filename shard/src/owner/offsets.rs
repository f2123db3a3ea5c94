//! Questions about offsets on the owner: ListOffsets, OffsetForLeaderEpoch, DeleteRecords (LO-1…10, LE-1…3, AD-7). What
//! needs the disk goes to the driver as an [`OffsetLookup`].

use protocol::ErrorCode;
use storage::types::{LeaderEpoch, Offset};

use super::fetch::{fenced, upper_bound};
use super::{Logs, Owner, OwnerOutput};
use crate::message::{OffsetAnswer, OffsetQuery, OffsetQueryKind, ReplyTo, ShardReply};

/// Offset questions of which some need the disk. The driver fills [`answers`](Self::answers) in for each of
/// [`open`](Self::open) and replies.
#[derive(Debug)]
pub struct OffsetLookup<H> {
    /// To whom.
    pub to: ReplyTo,
    /// One for each query; those of `open` are to be replaced.
    pub answers: Vec<OffsetAnswer>,
    /// What to look up.
    pub open: Vec<OpenQuery<H>>,
}

/// One question that needs the disk.
#[derive(Clone, Copy, Debug)]
pub struct OpenQuery<H> {
    /// Its place among the answers.
    pub place: usize,
    /// The log.
    pub log: H,
    /// The question.
    pub what: LookUp,
}

/// What to look up in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUp {
    /// The record with the largest timestamp below `upper`.
    MaxTimestamp {
        /// The end the asker sees.
        upper: Offset,
    },
    /// The first record at or after a time, below `upper`.
    Timestamp {
        /// The time, milliseconds.
        at: i64,
        /// The end the asker sees.
        upper: Offset,
    },
    /// Move the log start to this offset.
    DeleteBefore(Offset),
}

impl<L: Logs> Owner<L> {
    pub(super) fn answer_offsets(&mut self, to: ReplyTo, queries: Vec<OffsetQuery>) {
        let mut answers = Vec::with_capacity(queries.len());
        let mut open = Vec::new();
        for (place, query) in queries.into_iter().enumerate() {
            match self.answer_offset(&query) {
                Ok(answer) => answers.push(answer),
                Err((log, what)) => {
                    open.push(OpenQuery { place, log, what });
                    answers.push(OffsetAnswer::failed(ErrorCode::UNKNOWN_SERVER_ERROR));
                }
            }
        }
        if open.is_empty() {
            self.reply(to, ShardReply::Offsets(answers));
        } else {
            self.outputs
                .push_back(OwnerOutput::LookUp(OffsetLookup { to, answers, open }));
        }
    }

    fn answer_offset(&self, query: &OffsetQuery) -> Result<OffsetAnswer, (L::Log, LookUp)> {
        let Some(index) = self.index_of(query.log) else {
            return Ok(OffsetAnswer::failed(self.refusal(query.log)));
        };
        let partition = &self.partitions[index];
        if self.logs.is_offline(partition.log) {
            return Ok(OffsetAnswer::failed(ErrorCode::KAFKA_STORAGE_ERROR));
        }
        if let Some(error) = fenced(query.current_leader_epoch, partition.leader_epoch) {
            return Ok(OffsetAnswer::failed(error));
        }
        let log = partition.log;
        let ends = self.logs.ends(log);
        let found = |offset: Offset, leader_epoch: LeaderEpoch| OffsetAnswer {
            error: ErrorCode::NONE,
            offset,
            timestamp: -1,
            leader_epoch,
        };
        Ok(match query.what {
            OffsetQueryKind::Latest(isolation) => {
                found(upper_bound(partition, &ends, isolation), partition.leader_epoch)
            }
            OffsetQueryKind::Earliest => found(ends.log_start, self.logs.epoch_of(log, ends.log_start)),
            OffsetQueryKind::MaxTimestamp => {
                let upper = partition.watermark.high_watermark();
                return Err((log, LookUp::MaxTimestamp { upper }));
            }
            OffsetQueryKind::Timestamp(at, isolation) => {
                let upper = upper_bound(partition, &ends, isolation);
                return Err((log, LookUp::Timestamp { at, upper }));
            }
            OffsetQueryKind::EpochEnd(epoch) if epoch == partition.leader_epoch => found(ends.log_end, epoch),
            OffsetQueryKind::EpochEnd(epoch) => {
                let (epoch, end) = self.logs.epoch_end(log, epoch);
                found(end, epoch)
            }
            OffsetQueryKind::DeleteBefore(offset) => {
                let mark = partition.watermark.high_watermark();
                let target = if offset == Offset::NONE { mark } else { offset };
                if target < Offset::ZERO || target > mark {
                    return Ok(OffsetAnswer::failed(ErrorCode::OFFSET_OUT_OF_RANGE));
                }
                return Err((log, LookUp::DeleteBefore(target)));
            }
        })
    }
}

impl OffsetAnswer {
    /// An answer that knows nothing but why.
    #[must_use]
    pub fn failed(error: ErrorCode) -> Self {
        Self {
            error,
            offset: Offset::NONE,
            timestamp: -1,
            leader_epoch: LeaderEpoch::NONE,
        }
    }
}
