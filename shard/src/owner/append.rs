//! Produce on the owner: epoch, in-sync set and sequence checks, offsets, then waiting for the acknowledgement that was
//! asked for (PR-8…17, PR-40…45).

use std::sync::Arc;

use protocol::ErrorCode;
use storage::error::AppendError;
use storage::types::{LeaderEpoch, Offset};

use super::{Logs, Owner};
use crate::env::WallMs;
use crate::ids::BrokerId;
use crate::message::{Acks, Append, AppendItem, AppendResult, ReplyTo};
use crate::purgatory::produce::{Completed, ItemOutcome, WaitFor, WaitItem};

/// A produce whose records are staged: what to answer when they are as safe as was asked for.
#[derive(Debug)]
pub(super) struct PendingAppend {
    to: ReplyTo,
    results: Vec<AppendResult>,
}

impl<L: Logs> Owner<L> {
    pub(super) fn append(&mut self, to: ReplyTo, append: Append, wall: WallMs) {
        let mut results = Vec::with_capacity(append.items.len());
        let mut waits = Vec::new();
        for (number, item) in append.items.into_iter().enumerate() {
            let result = self.append_one(item, append.acks, wall, number, &mut waits);
            results.push(result);
        }
        let wait_for = match append.acks {
            Acks::None => return self.reply_append(to, results),
            Acks::Leader => WaitFor::Durable,
            Acks::All => WaitFor::HighWatermark,
        };
        waits.retain(|wait| !self.is_passed(*wait, wait_for));
        if waits.is_empty() {
            return self.reply_append(to, results);
        }
        // Time is up for other replicas (PR-11). What this broker has to sync itself is no such wait: Kafka, which answers
        // from its page cache, never lets it time out (PR-10).
        let waits_for_others = wait_for == WaitFor::HighWatermark
            && waits
                .iter()
                .any(|wait| !self.partitions[wait.partition].watermark.is_alone());
        let deadline = waits_for_others.then_some(append.deadline);
        self.produces
            .add(PendingAppend { to, results }, wait_for, &waits, deadline);
    }

    fn append_one(
        &mut self,
        item: AppendItem,
        acks: Acks,
        wall: WallMs,
        number: usize,
        waits: &mut Vec<WaitItem>,
    ) -> AppendResult {
        let Some(index) = self.index_of(item.log) else {
            return AppendResult::failed(self.refusal(item.log), None);
        };
        let partition = &mut self.partitions[index];
        if acks == Acks::All && !partition.watermark.enough_in_sync() {
            return AppendResult::failed(ErrorCode::NOT_ENOUGH_REPLICAS, None);
        }
        let bytes = item.batch.len();
        let appended = match self
            .logs
            .append(partition.log, item.batch, partition.leader_epoch, wall)
        {
            Ok(appended) => appended,
            Err(error) => {
                let refused = failure(&error, partition.leader, partition.leader_epoch);
                self.count(item.log, |c| {
                    c.appends += 1;
                    c.appends_failed += 1;
                });
                return refused;
            }
        };
        let end = appended.last_offset.plus(1);
        if !appended.is_duplicate {
            partition.appended(end, bytes);
        }
        let records = end.0 - appended.base_offset.0;
        for counters in [&mut partition.counters, &mut self.counters] {
            counters.appends += 1;
            if appended.is_duplicate {
                counters.duplicates += 1;
            } else {
                counters.batches_appended += 1;
                counters.records_appended += u64::try_from(records).unwrap_or(0);
                counters.bytes_appended += bytes as u64;
            }
        }
        waits.push(WaitItem {
            partition: index,
            target: end,
            item: number,
        });
        AppendResult {
            error: ErrorCode::NONE,
            base_offset: appended.base_offset,
            log_append_time: appended.log_append_time,
            log_start_offset: appended.log_start,
            message: None,
            current_leader: None,
            is_duplicate: appended.is_duplicate,
        }
    }

    /// A duplicate's original may be safe already.
    fn is_passed(&self, wait: WaitItem, wait_for: WaitFor) -> bool {
        let partition = &self.partitions[wait.partition];
        let reached = match wait_for {
            WaitFor::Durable => self.logs.ends(partition.log).durable_end,
            WaitFor::HighWatermark => partition.watermark.high_watermark(),
        };
        wait.target <= reached
    }

    pub(super) fn answer_appends(&mut self, completed: Vec<Completed<PendingAppend>>) {
        for Completed {
            context: PendingAppend { to, mut results },
            outcomes,
        } in completed
        {
            for (item, outcome) in outcomes {
                let error = match outcome {
                    ItemOutcome::Done => continue,
                    ItemOutcome::TimedOut => ErrorCode::REQUEST_TIMED_OUT,
                    ItemOutcome::Failed => ErrorCode::NOT_LEADER_OR_FOLLOWER,
                    ItemOutcome::Offline => ErrorCode::KAFKA_STORAGE_ERROR,
                };
                results[item] = AppendResult::failed(error, None);
            }
            self.reply_append(to, results);
        }
    }
}

impl AppendResult {
    /// A result without an offset.
    #[must_use]
    pub fn failed(error: ErrorCode, message: Option<Arc<str>>) -> Self {
        Self {
            error,
            base_offset: Offset::NONE,
            log_append_time: -1,
            log_start_offset: Offset::NONE,
            message,
            current_leader: None,
            is_duplicate: false,
        }
    }
}

/// The Kafka code for each way a log refuses a batch.
fn failure(error: &AppendError, leader: BrokerId, leader_epoch: LeaderEpoch) -> AppendResult {
    let code = match error {
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        AppendError::InvalidProducerEpoch { .. } => ErrorCode::INVALID_PRODUCER_EPOCH,
        AppendError::CoordinatorFenced { .. } => ErrorCode::TRANSACTION_COORDINATOR_FENCED,
        AppendError::InvalidProducerState(_) => ErrorCode::INVALID_TXN_STATE,
        AppendError::LargerThanSegment { .. } => ErrorCode::RECORD_LIST_TOO_LARGE,
        AppendError::Malformed(_) => ErrorCode::CORRUPT_MESSAGE,
        AppendError::OffsetGap { .. } => ErrorCode::UNKNOWN_SERVER_ERROR,
        AppendError::Backlog { .. } | AppendError::Full | AppendError::Offline(_) => {
            ErrorCode::KAFKA_STORAGE_ERROR
        }
        AppendError::StaleLeaderEpoch { .. } | AppendError::NoSuchLog => ErrorCode::NOT_LEADER_OR_FOLLOWER,
    };
    let mut result = AppendResult::failed(code, Some(error.to_string().into()));
    if code == ErrorCode::NOT_LEADER_OR_FOLLOWER {
        result.current_leader = Some((leader, leader_epoch));
    }
    result
}
