//! What memory knows of a log besides its batches: producers, aborted transactions, and what its leader tells it.

use super::LogRef;
use crate::disk::Disk;
use crate::producer_state::ProducerView;
use crate::segment::txn_index::AbortedTxn;
use crate::store::Store;
use crate::types::{LeaderEpoch, Offset};

/// How far a round over the producers of all logs of a store is.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProducerSweep {
    /// The log that is looked at.
    slot: u32,
    /// Producers looked at in it.
    seen: usize,
    is_over: bool,
}

impl ProducerSweep {
    /// Whether every log was looked at.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }
}

impl<D: Disk> Store<D> {
    /// A leader takes over with `epoch` at the log's end (KIP-101). Durable with the next checkpoint of the epochs, or with
    /// the first batch of the epoch.
    pub fn assign_epoch(&self, log: LogRef, epoch: LeaderEpoch) {
        if let Some(entry) = self.log(log) {
            let mut state = entry.state.borrow_mut();
            let end = state.end;
            state.epochs_dirty |= state.epochs.assign(epoch, end);
        }
    }

    /// The high watermark moved: ended transactions with their marker below it stop holding readers back (FE-12).
    pub fn on_high_watermark(&self, log: LogRef, high_watermark: Offset) {
        if let Some(log) = self.log(log) {
            let mut state = log.state.borrow_mut();
            state.high_watermark = state.high_watermark.max(high_watermark);
            state.producers.on_high_watermark(high_watermark);
        }
    }

    /// The transactions aborted in `[from, to)`, for read_committed (FE-11).
    #[must_use]
    pub fn aborted_transactions(&self, log: LogRef, from: Offset, to: Offset) -> Vec<AbortedTxn> {
        let mut out = Vec::new();
        let Some(log) = self.log(log) else { return out };
        let state = log.state.borrow();
        let first = state
            .segments
            .partition_point(|segment| segment.base <= from)
            .saturating_sub(1);
        for segment in state.segments.range(first..) {
            let complete = segment
                .indexes
                .as_ref()
                .is_some_and(|indexes| indexes.txn.collect_aborted(from, to, &mut out));
            if complete {
                break;
            }
        }
        out
    }

    /// Goes on with `sweep`: looks at `producers_max` producers at most, and forgets those that wrote nothing for the
    /// `producer.id.expiration.ms` of their log and have no open transaction (PR-47). Returns how many it forgot.
    pub fn sweep_producers(&self, sweep: &mut ProducerSweep, now_ms: i64, producers_max: usize) -> usize {
        let mut left = producers_max;
        let mut forgotten = 0;
        let logs = self.logs.borrow();
        while left > 0 {
            if sweep.slot >= logs.next_slot() {
                sweep.is_over = true;
                break;
            }
            if let Some(log) = logs.get(sweep.slot) {
                let mut state = log.state.borrow_mut();
                let expiration_ms = state.config.producer_id_expiration_ms;
                let unseen = state.producers.len().saturating_sub(sweep.seen);
                let looked_at = unseen.min(left);
                let gone = state.producers.expire(now_ms, expiration_ms, looked_at);
                forgotten += gone;
                left -= looked_at;
                if looked_at < unseen {
                    sweep.seen += looked_at - gone;
                    break;
                }
            }
            // A log without producers costs a look, too.
            left = left.saturating_sub(1);
            sweep.slot += 1;
            sweep.seen = 0;
        }
        forgotten
    }

    /// Whether what is appended now counts without a sync; after a change to class `fsync` until what was written is synced.
    #[must_use]
    pub fn is_unsynced(&self, log: LogRef) -> bool {
        self.log(log)
            .is_some_and(|log| log.state.borrow().unsynced_class())
    }

    /// The producers the log knows.
    #[must_use]
    pub fn producers(&self, log: LogRef) -> Vec<ProducerView> {
        self.log(log)
            .map(|log| log.state.borrow().producers.producers().collect())
            .unwrap_or_default()
    }
}
