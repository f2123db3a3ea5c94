//! What logs have allocated ahead goes back to the file system when there is too little for others: at once here, in a store that runs
//! and before one is closed.

use std::rc::Rc;

use crate::disk::Disk;
use crate::error::StorageError;
use crate::housekeeping::FLUSHES_MAX;
use crate::log::{Log, LogState};
use crate::notify::try_join_bounded;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Gives back the blocks behind the write positions of all logs, then looks what that made free.
    pub(crate) async fn give_back_tails(&self) -> Result<(), StorageError> {
        self.space.wants_tails.set(false);
        self.claim_all();
        let logs = self.logs_with_tails();
        let cuts = logs.iter().map(|log| self.give_back_tail(log));
        try_join_bounded(cuts, FLUSHES_MAX).await?;
        self.look_at_space().await;
        Ok(())
    }

    /// Most logs rest: nothing is to be begun for them.
    fn logs_with_tails(&self) -> Vec<Rc<Log<D>>> {
        let logs = self.logs.borrow();
        logs.iter()
            .filter(|log| log.state.borrow().has_tail())
            .cloned()
            .collect()
    }

    /// The same for one.
    async fn give_back_tail(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        self.flush_lock(log).await;
        let given = match self.log(log.log_ref) {
            Some(_) => self.give_back_locked(log).await,
            None => Ok(()),
        };
        self.flush_unlock(log);
        given
    }

    async fn give_back_locked(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        let active = log.state.borrow().segments.back().map(|active| active.base);
        let Some(base) = active else { return Ok(()) };
        let file = match self.segment_file(log, base).await {
            Ok(file) => file,
            Err(error) => return self.failed(Err(error.into())),
        };
        // Writes up to there were planned and may not have begun; none is planned into a segment before its turn.
        let planned = {
            let state = log.state.borrow();
            match state.cursor.segment == base {
                true => u64::from(state.cursor.issued_to()),
                false => 0,
            }
        };
        let cut = file.give_back_tail(planned).await;
        cut.map_err(|error| self.fail(error))
    }
}

impl<D: Disk> LogState<D> {
    /// Whether blocks are allocated behind all writes that have begun.
    fn has_tail(&self) -> bool {
        self.segments.back().is_some_and(|active| match &active.file {
            Some(file) => file.has_tail(),
            None => active.ahead_bytes > 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::space::tests::{append, open, simulate};
    use crate::write_behind::FlushTo;

    /// A future for each of 100,000 logs that rest, all in one poll, keeps the shard from everything else.
    #[test]
    fn nothing_is_begun_for_logs_that_have_nothing_allocated_ahead() {
        simulate(async |_, store: &Store<SimDisk>| {
            for number in 0..20 {
                open(store, number, &format!("rests{number}")).await.expect("log");
            }
            let log = open(store, 20, "busy").await.expect("log");
            append(store, log, 5000).expect("room");
            store.commit().await.expect("commit");
            let busy = store.log(log).expect("open");
            store.flush_log(&busy, FlushTo::End).await.expect("flush");
            let with_tails = store.logs_with_tails();
            assert!(with_tails.len() == 1 && Rc::ptr_eq(&with_tails[0], &busy));
            store.give_back_tails().await.expect("given");
            assert!(store.logs_with_tails().is_empty());
        });
    }
}
