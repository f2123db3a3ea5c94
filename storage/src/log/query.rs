//! Questions about a log that memory answers: epochs, producers, aborted transactions, sizes.

use super::LogRef;
use crate::disk::Disk;
use crate::leader_epoch::EpochEnd;
use crate::producer_state::ProducerView;
use crate::segment::txn_index::AbortedTxn;
use crate::store::Store;
use crate::types::{LeaderEpoch, Offset};

impl<D: Disk> Store<D> {
    /// Where `epoch` ends (LE-1 to LE-3, see [`crate::leader_epoch::LeaderEpochs::end_offset_for`]); `None` for a closed log.
    #[must_use]
    pub fn epoch_end(&self, log: LogRef, epoch: LeaderEpoch) -> Option<EpochEnd> {
        let log = self.log(log)?;
        let state = log.state.borrow();
        Some(state.epochs.end_offset_for(epoch, state.end))
    }

    /// The newest epoch of the log, `NONE` when there is none.
    #[must_use]
    pub fn latest_epoch(&self, log: LogRef) -> LeaderEpoch {
        self.log(log)
            .and_then(|log| log.state.borrow().epochs.latest())
            .map_or(LeaderEpoch::NONE, |entry| entry.epoch)
    }

    /// The epoch that holds `offset`, `NONE` when unknown.
    #[must_use]
    pub fn epoch_of(&self, log: LogRef, offset: Offset) -> LeaderEpoch {
        self.log(log)
            .and_then(|log| log.state.borrow().epochs.epoch_for(offset))
            .unwrap_or(LeaderEpoch::NONE)
    }

    /// A leader takes over with `epoch` at the log's end (KIP-101). Durable with the next checkpoint of the epochs, or with
    /// the first batch of the epoch.
    pub fn assign_epoch(&self, log: LogRef, epoch: LeaderEpoch) {
        if let Some(entry) = self.log(log) {
            let mut state = entry.state.borrow_mut();
            let end = state.end;
            state.epochs_dirty |= state.epochs.assign(epoch, end);
            drop(state);
            self.logs.borrow_mut().touch(log.slot);
            self.behind.notify();
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
