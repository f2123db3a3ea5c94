//! The seam between the quorum's driver and where its log is durable, and the memory behind the tests' side of it. The real
//! one is `store_log.rs`.
#![allow(async_fn_in_trait)] // a shard's futures stay on its thread

use bytes::Bytes;

use super::entry::LogEntry;
use super::snapshot::Snapshot;
use crate::ids::BrokerId;

/// What a vote depends on; durable before anything that follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct VoteState {
    /// The term this node is in.
    pub term: u64,
    /// Whom it voted for in that term.
    pub voted_for: Option<BrokerId>,
}

/// What a node finds when it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// The newest whole snapshot; a formatted node has at least the one it was formatted with.
    pub snapshot: Snapshot,
    /// The entries after it, without gaps.
    pub entries: Vec<LogEntry>,
    /// The last vote.
    pub vote: VoteState,
}

/// Where the metadata log of one node is durable.
pub trait QuorumLog {
    /// Why it cannot go on: the node stops then, nothing is tried again.
    type Error: std::error::Error + 'static;

    /// Whether a snapshot that was not saved for this reason changed nothing and may be tried again: the disk is full.
    fn may_retry(_error: &Self::Error) -> bool {
        false
    }

    /// What was durable when the node stopped; `None` on a node that was never formatted.
    async fn load(&mut self, cluster_id: &str) -> Result<Option<Recovered>, Self::Error>;

    /// Makes a vote durable.
    async fn save_vote(&mut self, vote: VoteState) -> Result<(), Self::Error>;

    /// Makes entries durable. Entries that are there from the first one's index on are replaced.
    async fn append(&mut self, entries: &[LogEntry]) -> Result<(), Self::Error>;

    /// Makes a snapshot (its bytes are `bytes`) durable. Entries up to its position may be dropped then; when it reaches
    /// beyond the log, the log begins anew after it.
    async fn save_snapshot(&mut self, snapshot: &Snapshot, bytes: &Bytes) -> Result<(), Self::Error>;
}

/// A log in memory that forgets what was not yet durable when it "crashes". For tests and simulations.
#[derive(Clone, Debug, Default)]
pub struct MemoryLog {
    snapshots: Vec<Bytes>,
    entries: Vec<Bytes>,
    vote: VoteState,
    /// Calls left before each fails; `None` is without end.
    pub calls_left: Option<usize>,
}

/// The crash of a [`MemoryLog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log crashed")]
pub struct Crashed;

impl MemoryLog {
    fn call(&mut self) -> Result<(), Crashed> {
        match &mut self.calls_left {
            Some(0) => Err(Crashed),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn first_index(&self) -> Option<u64> {
        let first = self.entries.first()?;
        Some(LogEntry::from_batch(first).expect("what was appended").index)
    }
}

impl QuorumLog for MemoryLog {
    type Error = Crashed;

    async fn load(&mut self, cluster_id: &str) -> Result<Option<Recovered>, Crashed> {
        let Some(bytes) = self.snapshots.last() else {
            return Ok(None);
        };
        let snapshot = Snapshot::from_bytes(bytes, cluster_id).expect("what was saved");
        let entries = self
            .entries
            .iter()
            .map(|bytes| LogEntry::from_batch(bytes).expect("what was appended"));
        let index = snapshot.image.position.index;
        Ok(Some(Recovered {
            entries: entries.filter(|entry| entry.index > index).collect(),
            snapshot,
            vote: self.vote,
        }))
    }

    async fn save_vote(&mut self, vote: VoteState) -> Result<(), Crashed> {
        self.call()?;
        self.vote = vote;
        Ok(())
    }

    async fn append(&mut self, entries: &[LogEntry]) -> Result<(), Crashed> {
        for entry in entries {
            self.call()?; // a crash between two entries leaves the first
            if let Some(first) = self.first_index() {
                let kept = usize::try_from(entry.index.saturating_sub(first)).unwrap_or(usize::MAX);
                self.entries.truncate(kept);
            }
            self.entries.push(entry.to_batch());
        }
        Ok(())
    }

    async fn save_snapshot(&mut self, snapshot: &Snapshot, bytes: &Bytes) -> Result<(), Crashed> {
        self.call()?;
        self.snapshots.push(bytes.clone());
        let index = snapshot.image.position.index;
        self.entries
            .retain(|bytes| LogEntry::from_batch(bytes).expect("what was appended").index > index);
        Ok(())
    }
}
