//! What logs have allocated ahead goes back to the file system when there is too little for others: at once here, in a store that runs
//! and before one is closed.

use std::rc::Rc;

use crate::disk::Disk;
use crate::error::StorageError;
use crate::housekeeping::FLUSHES_MAX;
use crate::log::Log;
use crate::notify::try_join_bounded;
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Gives back the blocks behind the write positions of all logs, then looks what that made free.
    pub(crate) async fn give_back_tails(&self) -> Result<(), StorageError> {
        self.space.wants_tails.set(false);
        self.claim_all();
        let logs: Vec<Rc<Log<D>>> = self.logs.borrow().iter().cloned().collect();
        let cuts = logs.iter().map(|log| self.give_back_tail(log));
        try_join_bounded(cuts, FLUSHES_MAX).await?;
        self.look_at_space().await;
        Ok(())
    }

    /// The same for one.
    async fn give_back_tail(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        let is_ahead = {
            let state = log.state.borrow();
            let active = state.segments.back();
            active.is_some_and(|active| match &active.file {
                Some(file) => file.has_tail(),
                None => active.ahead_bytes > 0,
            })
        };
        if !is_ahead {
            return Ok(());
        }
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
