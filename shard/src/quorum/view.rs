//! What raft reads of its own log: the entries after the last snapshot, all in memory (the bound between two snapshots is a
//! bound on it), and the state that votes depend on. Plain memory; durability is the host's business and told by numbers.

use std::cell::Cell;
use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{Entry, Snapshot as RaftSnapshot};
use raft::prelude::HardState;
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use super::voters::Voters;

/// Raft's view of its log.
pub(super) struct LogView {
    hard_state: HardState,
    /// The last entry that is in the snapshot and no longer here.
    snapshot_index: u64,
    snapshot_term: u64,
    /// Who voted at the snapshot.
    snapshot_voters: Voters,
    /// The snapshot's bytes, while a follower may ask for them.
    snapshot_bytes: Option<Bytes>,
    /// A follower asked for a snapshot and there were no bytes.
    snapshot_wanted: Cell<bool>,
    /// Entries from `snapshot_index + 1` on.
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl LogView {
    pub(super) fn new(
        snapshot_index: u64,
        snapshot_term: u64,
        voters: Voters,
        hard_state: HardState,
    ) -> Self {
        Self {
            hard_state,
            snapshot_index,
            snapshot_term,
            snapshot_voters: voters,
            snapshot_bytes: None,
            snapshot_wanted: Cell::new(false),
            entries: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Bytes of all entries here.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) const fn snapshot_wanted(&self) -> bool {
        self.snapshot_wanted.get()
    }

    pub(super) fn first(&self) -> u64 {
        self.snapshot_index + 1
    }

    pub(super) fn last(&self) -> u64 {
        self.snapshot_index + self.entries.len() as u64
    }

    /// Adds entries; those from the first one's index on are replaced.
    pub(super) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        assert!(
            first.index >= self.first() && first.index <= self.last() + 1,
            "entries follow what is here: {} not within {}..={}",
            first.index,
            self.first(),
            self.last() + 1
        );
        let kept = usize::try_from(first.index - self.first()).unwrap_or(usize::MAX);
        let cut: usize = self.entries.iter().skip(kept).map(|entry| entry.data.len()).sum();
        self.entries.truncate(kept);
        self.bytes = self.bytes - cut + entries.iter().map(|entry| entry.data.len()).sum::<usize>();
        self.entries.extend(entries.iter().cloned());
    }

    pub(super) fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    pub(super) const fn hard_state(&self) -> &HardState {
        &self.hard_state
    }

    /// Forgets entries up to `index`, which a snapshot now holds.
    pub(super) fn compact(&mut self, index: u64, voters: Voters, bytes: Bytes) {
        assert!(
            index >= self.snapshot_index && index <= self.last(),
            "a snapshot is of what is here"
        );
        let Ok(term) = self.term(index) else { return };
        let gone = usize::try_from(index - self.snapshot_index).unwrap_or(usize::MAX);
        self.bytes -= self
            .entries
            .drain(..gone)
            .map(|entry| entry.data.len())
            .sum::<usize>();
        self.snapshot_index = index;
        self.snapshot_term = term;
        self.snapshot_voters = voters;
        self.snapshot_bytes = Some(bytes);
        self.snapshot_wanted.set(false);
    }

    /// Replaces everything by a snapshot that a leader sent.
    pub(super) fn install(&mut self, index: u64, term: u64, voters: Voters, bytes: Bytes) {
        self.entries.clear();
        self.bytes = 0;
        self.snapshot_index = index;
        self.snapshot_term = term;
        self.snapshot_voters = voters;
        self.snapshot_bytes = Some(bytes);
        self.snapshot_wanted.set(false);
    }
}

impl Storage for LogView {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(
            self.hard_state.clone(),
            self.snapshot_voters.conf_state(),
        ))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(StorageError::Compacted.into());
        }
        assert!(high <= self.last() + 1, "raft asks for what it appended");
        let mut left = max_size.into().unwrap_or(u64::MAX);
        let skip = usize::try_from(low - self.first()).unwrap_or(usize::MAX);
        let count = usize::try_from(high.saturating_sub(low)).unwrap_or(0);
        let mut out = Vec::new();
        for entry in self.entries.iter().skip(skip).take(count) {
            let size = entry.data.len() as u64;
            if size > left && !out.is_empty() {
                break;
            }
            left = left.saturating_sub(size);
            out.push(entry.clone());
        }
        Ok(out)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.snapshot_index {
            return Ok(self.snapshot_term);
        }
        if index < self.snapshot_index {
            return Err(StorageError::Compacted.into());
        }
        let at = usize::try_from(index - self.first()).unwrap_or(usize::MAX);
        match self.entries.get(at) {
            Some(entry) => Ok(entry.term),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<RaftSnapshot> {
        match &self.snapshot_bytes {
            Some(bytes) if request_index <= self.snapshot_index => {
                let mut snapshot = RaftSnapshot {
                    data: bytes.clone(),
                    ..RaftSnapshot::default()
                };
                let metadata = snapshot.mut_metadata();
                metadata.index = self.snapshot_index;
                metadata.term = self.snapshot_term;
                metadata.set_conf_state(self.snapshot_voters.conf_state());
                Ok(snapshot)
            }
            _ => {
                self.snapshot_wanted.set(true);
                Err(StorageError::SnapshotTemporarilyUnavailable.into())
            }
        }
    }
}
