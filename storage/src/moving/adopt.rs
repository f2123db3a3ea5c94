//! Opening a log that was moved: a whole copy whose old log is gone takes its place, and the log starts where the copy says until a
//! checkpoint knows better.

use std::path::Path;

use super::leftovers::{Leftover, leftovers};
use super::marker::{self, Marker};
use crate::disk::{DirEntry, Disk};
use crate::error::StorageError;
use crate::recovery::record::LogRecord;
use crate::store::Store;
use crate::types::LogId;

impl<D: Disk> Store<D> {
    /// There is no directory `name` for the log `id`: a whole copy that an earlier run left is given that name. Returns what is
    /// in it. Whoever opens the log has made sure that it is in no other log directory.
    pub(crate) async fn take_up_copy(
        &self,
        name: &str,
        id: LogId,
    ) -> Result<Option<Vec<DirEntry>>, StorageError> {
        if self.copies.borrow().is_none() {
            let entries = self.disk.list(&self.dir).await?;
            let found = leftovers(&self.disk, &self.dir, &entries).await?;
            // Copies that are begun later are of this run, and are not looked for here.
            self.copies.borrow_mut().get_or_insert(found);
        }
        let Some(copy) = self.take_copy(name, id) else {
            return Ok(None);
        };
        let (from, dir) = (self.dir.join(&copy.directory), self.dir.join(name));
        tracing::info!(dir = %dir.display(), copy = copy.directory, "the move of this log is completed");
        self.disk.rename(&from, &dir).await?;
        self.disk.sync_dir(&self.dir).await?;
        Ok(Some(self.disk.list(&dir).await?))
    }

    /// The longest whole copy of the log: an older one was given up.
    fn take_copy(&self, name: &str, id: LogId) -> Option<Leftover> {
        let mut copies = self.copies.borrow_mut();
        let copies = copies.as_mut()?;
        let is_its = |copy: &Leftover| {
            let topic = copy.whole.map(|(_, topic)| topic);
            topic == Some(id.topic) && copy.name.partition == id.partition && copy.name.to_string() == name
        };
        let candidates = copies.iter().enumerate().filter(|(_, copy)| is_its(copy));
        let (at, _) = candidates.max_by_key(|(_, copy)| copy.whole.map(|(end, _)| end))?;
        Some(copies.swap_remove(at))
    }
}

/// What is known of the log in `dir`, whose `entries` are these, with what its marker says if it was moved here.
pub(crate) async fn with_marker<D: Disk>(
    disk: &D,
    dir: &Path,
    entries: &[DirEntry],
    id: LogId,
    known: Option<LogRecord>,
) -> Result<Option<LogRecord>, StorageError> {
    if !entries.iter().any(|entry| entry.name == marker::FILE) {
        return Ok(known);
    }
    let Some(marker) = Marker::load(disk, dir).await? else {
        return Ok(known);
    };
    let mut record = known.unwrap_or_else(|| LogRecord::new(id, ""));
    record.log_start = record.log_start.max(marker.start.0);
    record.durable_end = record.durable_end.max(record.log_start);
    Ok(Some(record))
}
