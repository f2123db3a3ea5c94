//! The metadata log of a node on its storage: entries are batches of the log `__cluster_metadata-0` in the store of the
//! shard that runs the quorum (so they ride that shard's journal), snapshots and the vote are files beside its segments, with
//! Kafka's names. Thin: all decisions are the driver's.
//!
//! ```text
//! <log dir>/__cluster_metadata-0/<20-digit offset>.log …                      entries
//! <log dir>/__cluster_metadata-0/<20-digit end offset>-<10-digit term>.checkpoint   snapshots, the newest two are kept
//! <log dir>/__cluster_metadata-0/quorum-state                                 the vote, as JSON
//! ```

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use protocol::Uuid;
use protocol::record::Batches;
use storage::checkpoint::{read_small, write_atomic};
use storage::disk::{Disk, DiskError};
use storage::error::{AppendError, StorageError};
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::producer_state::AppendOrigin;
use storage::store::{ReadOutcome, Store};
use storage::types::{LeaderEpoch, LogId, Offset, TopicId};

use super::entry::{EntryError, LogEntry};
use super::log::{QuorumLog, Recovered, VoteState};
use super::snapshot::{SNAPSHOT_BYTES_MAX, Snapshot};
use super::vote_file;
use crate::controller::METADATA_TOPIC;
use crate::env::Env;

/// Bytes read at a time when the log is loaded.
const READ_BYTES: usize = 1 << 20;

/// Snapshots kept: the newest, and the one before in case the newest is found damaged.
const SNAPSHOTS_KEPT: usize = 2;

/// The most bytes of the vote's file.
const VOTE_BYTES_MAX: usize = 4_096;

/// The metadata log of a node on a store.
pub struct StoreLog<E: Env, D: Disk> {
    env: E,
    disk: D,
    store: Rc<Store<D>>,
    dir: PathBuf,
    log: LogRef,
    /// Of the entries since the last snapshot: index and the offset behind the entry.
    ends: VecDeque<(u64, Offset)>,
    /// The end offset of the last snapshot's last entry.
    snapshot_end: Offset,
}

/// Why the metadata log cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum StoreLogError {
    /// The disk or the store.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The disk, for a file beside the log.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The store refused an entry.
    #[error("the metadata log refused an entry: {0}")]
    Append(#[from] AppendError),
    /// Bytes that were durable are no entry or snapshot.
    #[error("{} is damaged: {source}", path.display())]
    Damaged {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong.
        source: EntryError,
    },
    /// The entries do not follow each other.
    #[error("{} is damaged: entry {found} where {expected} must be", path.display())]
    Gap {
        /// The directory.
        path: PathBuf,
        /// The index that must come.
        expected: u64,
        /// The one that does.
        found: u64,
    },
    /// There is a log but no snapshot that it continues.
    #[error("{} holds entries but no whole snapshot: restore the *.checkpoint files", path.display())]
    NoSnapshot {
        /// The directory.
        path: PathBuf,
    },
    /// Entries would replace durable ones, which only a follower's log does.
    #[error("entry {0} is in the log already")]
    Replaces(u64),
}

impl<E: Env, D: Disk> StoreLog<E, D> {
    /// Opens the log in `store`, which is that of the log directory `log_dir` on `disk`.
    ///
    /// # Errors
    /// [`StoreLogError`].
    pub async fn open(
        env: E,
        disk: D,
        store: Rc<Store<D>>,
        log_dir: &Path,
        config: LogConfig,
    ) -> Result<Self, StoreLogError> {
        let id = LogId {
            topic: TopicId(Uuid::ONE.0),
            partition: 0,
        };
        let log = store.open_log(id, METADATA_TOPIC, config, env.wall().0).await?;
        Ok(Self {
            env,
            disk,
            store,
            dir: log_dir.join(format!("{METADATA_TOPIC}-0")),
            log,
            ends: VecDeque::new(),
            snapshot_end: Offset::ZERO,
        })
    }

    /// The log's name in its store.
    #[must_use]
    pub const fn log_ref(&self) -> LogRef {
        self.log
    }

    /// The newest snapshot that is whole, and its end offset. A newer damaged one is left where it is, and said.
    async fn newest_snapshot(&self, cluster_id: &str) -> Result<Option<(Snapshot, Offset)>, StoreLogError> {
        for (name, end) in self.snapshot_names().await?.into_iter().rev() {
            let path = self.dir.join(&name);
            let bytes = read_small(&self.disk, &path, SNAPSHOT_BYTES_MAX).await?;
            match Snapshot::from_bytes(&bytes, cluster_id) {
                Ok(snapshot) => return Ok(Some((snapshot, end))),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a metadata snapshot is damaged")
                }
            }
        }
        Ok(None)
    }

    /// The snapshots' file names and end offsets, oldest first.
    async fn snapshot_names(&self) -> Result<Vec<(String, Offset)>, StoreLogError> {
        let entries = self.disk.list(&self.dir).await?;
        let mut names: Vec<(String, Offset)> = entries
            .into_iter()
            .filter_map(|entry| snapshot_end(&entry.name).map(|end| (entry.name, end)))
            .collect();
        names.sort_by_key(|(name, _)| name.clone());
        Ok(names)
    }

    async fn load_vote(&self) -> Result<VoteState, StoreLogError> {
        match read_small(&self.disk, &self.dir.join(vote_file::NAME), VOTE_BYTES_MAX).await {
            Ok(bytes) => Ok(vote_file::parse(&bytes).unwrap_or_default()),
            Err(error) if error.is_not_found() => Ok(VoteState::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// The entries from `from` on. Those up to index `index` are in the snapshot already.
    async fn load_entries(&mut self, from: Offset, index: u64) -> Result<Vec<LogEntry>, StoreLogError> {
        let end = self.offsets()?.log_end;
        let mut entries = Vec::new();
        let mut at = from.max(self.offsets()?.log_start);
        while at < end {
            let pieces = match self.store.read(self.log, at, READ_BYTES, end, true) {
                ReadOutcome::Cached(pieces) => pieces,
                ReadOutcome::Cold(read) => self.store.read_cold(read).await?,
                ReadOutcome::Empty => break,
                ReadOutcome::OutOfRange | ReadOutcome::Offline => return Err(StorageError::NoSuchLog.into()),
            };
            // A batch may lie across the joint of two pieces.
            let read = match <[Bytes; 1]>::try_from(pieces) {
                Ok([piece]) => piece,
                Err(pieces) => Bytes::from(pieces.concat()),
            };
            let before = at;
            at = self.take_batches(&read, at, index, &mut entries)?;
            if at == before {
                break;
            }
        }
        Ok(entries)
    }

    fn take_batches(
        &mut self,
        read: &Bytes,
        mut at: Offset,
        index: u64,
        entries: &mut Vec<LogEntry>,
    ) -> Result<Offset, StoreLogError> {
        for batch in Batches::new(read, 0) {
            let (_, batch) = batch.map_err(|fault| self.damaged(fault.into()))?;
            let end = Offset(batch.header().next_offset());
            if end <= at {
                continue; // a read begins with the whole batch around its offset
            }
            let entry = LogEntry::from_batch(&read.slice_ref(batch.bytes())).map_err(|e| self.damaged(e))?;
            at = end;
            if entry.index <= index {
                continue;
            }
            let expected = index + 1 + entries.len() as u64;
            if entry.index != expected {
                return Err(StoreLogError::Gap {
                    path: self.dir.clone(),
                    expected,
                    found: entry.index,
                });
            }
            self.ends.push_back((entry.index, end));
            entries.push(entry);
        }
        Ok(at)
    }

    fn offsets(&self) -> Result<storage::log::LogOffsets, StorageError> {
        self.store.offsets(self.log).ok_or(StorageError::NoSuchLog)
    }

    fn damaged(&self, source: EntryError) -> StoreLogError {
        StoreLogError::Damaged {
            path: self.dir.clone(),
            source,
        }
    }

    /// The offset behind the entry of that index.
    fn end_of(&self, index: u64) -> Offset {
        let found = self.ends.iter().find(|(entry, _)| *entry == index);
        found.map_or(self.snapshot_end, |(_, end)| *end)
    }
}

impl<E: Env, D: Disk> QuorumLog for StoreLog<E, D> {
    type Error = StoreLogError;

    fn may_retry(error: &StoreLogError) -> bool {
        match error {
            StoreLogError::Disk(error) => error.is_refused_for_space(),
            StoreLogError::Storage(StorageError::NoSpace(_)) => true,
            _ => false,
        }
    }

    async fn load(&mut self, cluster_id: &str) -> Result<Option<Recovered>, StoreLogError> {
        let Some((snapshot, end)) = self.newest_snapshot(cluster_id).await? else {
            let offsets = self.offsets()?;
            if offsets.log_end > offsets.log_start {
                return Err(StoreLogError::NoSnapshot {
                    path: self.dir.clone(),
                });
            }
            return Ok(None);
        };
        self.snapshot_end = end;
        let entries = self.load_entries(end, snapshot.image.position.index).await?;
        Ok(Some(Recovered {
            entries,
            vote: self.load_vote().await?,
            snapshot,
        }))
    }

    async fn save_vote(&mut self, vote: VoteState) -> Result<(), StoreLogError> {
        let path = self.dir.join(vote_file::NAME);
        Ok(write_atomic(&self.disk, &path, vote_file::format(vote).as_bytes()).await?)
    }

    async fn append(&mut self, entries: &[LogEntry]) -> Result<(), StoreLogError> {
        let mut end = None;
        for entry in entries {
            if self.ends.back().is_some_and(|(last, _)| entry.index <= *last) {
                return Err(StoreLogError::Replaces(entry.index));
            }
            let term = i32::try_from(entry.term).expect("a term is an epoch of 31 bits");
            let mut batch = AppendBatch::from_client(entry.to_batch(), LeaderEpoch(term));
            batch.origin = AppendOrigin::Coordinator;
            let appended = self.append_one(batch).await?;
            self.ends.push_back((entry.index, appended));
            end = Some(appended);
        }
        match end {
            Some(end) => Ok(self.store.durable_to(self.log, end).await?),
            None => Ok(()),
        }
    }

    async fn save_snapshot(&mut self, snapshot: &Snapshot, bytes: &Bytes) -> Result<(), StoreLogError> {
        let position = snapshot.image.position;
        let end = self.end_of(position.index);
        let name = format!("{:020}-{:010}.checkpoint", end.0, position.term);
        write_atomic(&self.disk, &self.dir.join(name), bytes).await?;
        self.snapshot_end = end;
        while self
            .ends
            .front()
            .is_some_and(|(index, _)| *index <= position.index)
        {
            self.ends.pop_front();
        }
        let names = self.snapshot_names().await?;
        for (name, _) in names.iter().rev().skip(SNAPSHOTS_KEPT) {
            self.disk.remove_file(&self.dir.join(name)).await?;
        }
        // The older snapshot that is kept must still have its entries behind it.
        if let Some((_, oldest)) = names.iter().rev().take(SNAPSHOTS_KEPT).next_back() {
            self.store.delete_records(self.log, *oldest).await?;
        }
        Ok(())
    }
}

impl<E: Env, D: Disk> StoreLog<E, D> {
    /// Appends a batch, waiting while the store has too much staged; gives the offset behind it.
    async fn append_one(&self, batch: AppendBatch) -> Result<Offset, StoreLogError> {
        loop {
            match self.store.append(self.log, batch.clone(), self.env.wall().0) {
                Ok(appended) => return Ok(appended.last_offset.plus(1)),
                Err(AppendError::Backlog { .. }) => {
                    let end = self.offsets()?.log_end;
                    self.store.durable_to(self.log, end).await?;
                    self.env.yield_to_reactor().await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The end offset in a snapshot's file name; `None` for other files.
fn snapshot_end(name: &str) -> Option<Offset> {
    let (offset, term) = name.strip_suffix(".checkpoint")?.split_once('-')?;
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    if !digits(offset, 20) || !digits(term, 10) {
        return None;
    }
    offset.parse().ok().map(Offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_names_are_kafkas() {
        assert_eq!(
            snapshot_end("00000000000000000123-0000000004.checkpoint"),
            Some(Offset(123))
        );
        for other in [
            "123-4.checkpoint",
            "00000000000000000123-0000000004.checkpoint.tmp",
            "quorum-state",
            "x-y.checkpoint",
        ] {
            assert_eq!(snapshot_end(other), None, "{other}");
        }
    }
}
