//! Leader epochs of an open log, for fencing and for finding where two logs part (KIP-101, KIP-320).

use super::LogRef;
use crate::disk::Disk;
use crate::store::Store;
use crate::types::{LeaderEpoch, Offset};

impl<D: Disk> Store<D> {
    /// The largest epoch at or below `epoch` and where it ends (LE-1…3); (−1, −1) when it is above all known or the log
    /// is not open.
    #[must_use]
    pub fn epoch_end(&self, log: LogRef, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        let Some(entry) = self.log(log) else {
            return (LeaderEpoch::NONE, Offset::NONE);
        };
        let state = entry.state.borrow();
        let end = state.epochs.end_offset_for(epoch, state.end);
        (end.epoch, end.end_offset)
    }

    /// The epoch that `offset` was or would be written in, NONE if unknown.
    #[must_use]
    pub fn epoch_of(&self, log: LogRef, offset: Offset) -> LeaderEpoch {
        let entry = self.log(log);
        entry
            .and_then(|entry| entry.state.borrow().epochs.epoch_for(offset))
            .unwrap_or(LeaderEpoch::NONE)
    }

    /// The newest epoch in the log, NONE for one that never had a batch.
    #[must_use]
    pub fn newest_epoch(&self, log: LogRef) -> LeaderEpoch {
        let entry = self.log(log);
        entry
            .and_then(|entry| entry.state.borrow().epochs.latest())
            .map_or(LeaderEpoch::NONE, |latest| latest.epoch)
    }
}
