//! What memory knows of a log besides its batches: producers, aborted transactions, and what its leader tells it.

use super::LogRef;
use crate::disk::Disk;
use crate::producer_state::ProducerView;
use crate::segment::txn_index::AbortedTxn;
use crate::store::Store;
use crate::types::{LeaderEpoch, Offset};

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
            log.state.borrow_mut().producers.on_high_watermark(high_watermark);
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

    /// The producers the log knows.
    #[must_use]
    pub fn producers(&self, log: LogRef) -> Vec<ProducerView> {
        self.log(log)
            .map(|log| log.state.borrow().producers.producers().collect())
            .unwrap_or_default()
    }
}
