//! When a commit has something to do, and whose turn it is to plan one.

use crate::disk::Disk;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Waits until a [`Self::commit`] has `bytes` of batches to take, or something that is not to wait for more of them: a control
    /// frame, a seal, the store's end.
    pub async fn staged(&self, bytes: usize) {
        self.staged
            .until(|| (self.has_work(bytes) || self.is_offline()).then_some(()))
            .await;
    }

    fn has_work(&self, bytes: usize) -> bool {
        self.planner.borrow().staged_bytes() >= bytes
            || !self.controls.borrow().is_empty()
            || self.seal.is_wanted()
    }

    /// Only one commit is planned at a time, so that commits get journal space in order.
    pub(crate) async fn plan_lock(&self) {
        self.moved
            .until(|| (!self.planning.get()).then(|| self.planning.set(true)))
            .await;
    }

    pub(crate) fn plan_unlock(&self) {
        self.planning.set(false);
        self.moved.notify();
    }
}
