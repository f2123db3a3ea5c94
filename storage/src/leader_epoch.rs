//! The leader epochs of one log: for each epoch that wrote something, the offset it started at. Answers
//! OffsetForLeaderEpoch and finds where two logs diverge (KIP-101, KIP-279). Pure memory, one per replica.
//!
//! File format of `leader-epoch-checkpoint` (Kafka's; `kafka-surface.md` §5.2), text:
//!
//! ```text
//! 0                      version
//! 2                      number of entries
//! 0 0                    epoch, start offset
//! 3 417
//! ```

use std::fmt::Write as _;

use crate::types::{LeaderEpoch, Offset};

/// An epoch and the first offset written in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEntry {
    /// The epoch, never negative.
    pub epoch: LeaderEpoch,
    /// The first offset of that epoch, never negative.
    pub start_offset: Offset,
}

/// The answer to OffsetForLeaderEpoch; (−1, −1) means unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The largest known epoch at or below the one asked for.
    pub epoch: LeaderEpoch,
    /// The offset after the last one of that epoch.
    pub end_offset: Offset,
}

/// Why a checkpoint file was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EpochFileError {
    /// Not UTF-8, or a line is not made of the expected numbers.
    #[error("line {line} is malformed")]
    Malformed {
        /// The line's number, from 1.
        line: usize,
    },
    /// The first line is not a version we know.
    #[error("version {0} is unknown, known is 0")]
    Version(i32),
    /// The file has fewer or more entries than its second line says.
    #[error("{found} entries where {expected} are announced")]
    Count {
        /// From the second line.
        expected: usize,
        /// Lines that follow it.
        found: usize,
    },
}

/// The epochs of one log, epochs and start offsets both strictly increasing. Memory: 16 bytes an entry; entries are as
/// many as elections that were followed by a write, within the log's retention.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaderEpochs {
    entries: Vec<EpochEntry>,
}

impl LeaderEpochs {
    /// No epoch known.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Reads a checkpoint file. Entries that contradict later ones are dropped as [`Self::assign`] does.
    ///
    /// # Errors
    /// [`EpochFileError`]; the epochs are then rebuilt from the batches' headers.
    pub fn decode(file: &[u8]) -> Result<Self, EpochFileError> {
        let text = std::str::from_utf8(file).map_err(|_| EpochFileError::Malformed { line: 1 })?;
        let mut lines = text.lines();
        let version = number(lines.next(), 1)?;
        if version != 0 {
            return Err(EpochFileError::Version(version));
        }
        let expected: usize = number(lines.next(), 2)?;
        let mut epochs = Self::new();
        let mut found = 0;
        for line in lines {
            found += 1;
            epochs
                .assign_line(line)
                .ok_or(EpochFileError::Malformed { line: found + 2 })?;
        }
        if found == expected {
            Ok(epochs)
        } else {
            Err(EpochFileError::Count { expected, found })
        }
    }

    /// The checkpoint file.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!("0\n{}\n", self.entries.len());
        for entry in &self.entries {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{} {}", entry.epoch, entry.start_offset);
        }
        text
    }

    /// The entries, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[EpochEntry] {
        &self.entries
    }

    /// The latest epoch with its start offset.
    #[must_use]
    pub fn latest(&self) -> Option<EpochEntry> {
        self.entries.last().copied()
    }

    /// The oldest epoch with its start offset.
    #[must_use]
    pub fn earliest(&self) -> Option<EpochEntry> {
        self.entries.first().copied()
    }

    /// Records that `epoch` starts at `start_offset`. Called when a leader takes over (with the log end) and for each
    /// appended batch (with its base offset). Returns whether anything changed, so that the checkpoint is written.
    ///
    /// Entries that contradict the new one go: later or equal epochs, and equal or later start offsets. So elections that
    /// nobody wrote after leave one entry, the last (KAFKA-10706). A known epoch keeps its start unless the new one is
    /// lower. Negative numbers change nothing: batches of old formats carry epoch −1.
    pub fn assign(&mut self, epoch: LeaderEpoch, start_offset: Offset) -> bool {
        if epoch.0 < 0 || start_offset.0 < 0 {
            return false;
        }
        let new = EpochEntry { epoch, start_offset };
        if self
            .latest()
            .is_some_and(|last| last.epoch == epoch && last.start_offset <= start_offset)
        {
            return false;
        }
        let kept = self
            .entries
            .iter()
            .rposition(|old| old.epoch < epoch && old.start_offset < start_offset)
            .map_or(0, |last| last + 1);
        self.entries.truncate(kept);
        self.entries.push(new);
        true
    }

    /// Where `requested` ends (LE-1 to LE-3): the latest epoch ends at `log_end`; a known older one where the next begins;
    /// an unknown one below the latest is answered with the largest known epoch below it; one before all known ones with
    /// itself and the start of the first; one above all known, or −1, with (−1, −1).
    #[must_use]
    pub fn end_offset_for(&self, requested: LeaderEpoch, log_end: Offset) -> EpochEnd {
        const UNKNOWN: EpochEnd = EpochEnd {
            epoch: LeaderEpoch::NONE,
            end_offset: Offset::NONE,
        };
        if requested.0 < 0 {
            return UNKNOWN;
        }
        if self.latest().is_some_and(|last| last.epoch == requested) {
            return EpochEnd {
                epoch: requested,
                end_offset: log_end,
            };
        }
        let higher = self.entries.partition_point(|entry| entry.epoch <= requested);
        let Some(next) = self.entries.get(higher) else {
            return UNKNOWN;
        };
        let floor = higher.checked_sub(1).and_then(|slot| self.entries.get(slot));
        EpochEnd {
            epoch: floor.map_or(requested, |entry| entry.epoch),
            end_offset: next.start_offset,
        }
    }

    /// The epoch in which the record at `offset` was written; `None` before the first known one.
    #[must_use]
    pub fn epoch_for(&self, offset: Offset) -> Option<LeaderEpoch> {
        let slot = self
            .entries
            .partition_point(|entry| entry.start_offset <= offset)
            .checked_sub(1)?;
        self.entries.get(slot).map(|entry| entry.epoch)
    }

    /// The log now ends at `end_offset`: epochs that start at or above it go. Returns whether anything changed.
    pub fn truncate_from_end(&mut self, end_offset: Offset) -> bool {
        let kept = self
            .entries
            .partition_point(|entry| entry.start_offset < end_offset);
        let changed = kept < self.entries.len();
        self.entries.truncate(kept);
        changed
    }

    /// The log now starts at `start_offset`: epochs that ended before it go, the one it lies in starts there. Returns
    /// whether anything changed.
    pub fn truncate_from_start(&mut self, start_offset: Offset) -> bool {
        let through = self
            .entries
            .partition_point(|entry| entry.start_offset <= start_offset);
        let Some(containing) = through.checked_sub(1) else {
            return false;
        };
        self.entries.drain(..containing);
        match self.entries.first_mut() {
            Some(first) if containing > 0 || first.start_offset != start_offset => {
                first.start_offset = start_offset;
                true
            }
            _ => false,
        }
    }

    /// Forgets all epochs.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    fn assign_line(&mut self, line: &str) -> Option<()> {
        let (epoch, start_offset) = line.split_once(' ')?;
        let (epoch, start_offset): (i32, i64) = (epoch.parse().ok()?, start_offset.parse().ok()?);
        if epoch < 0 || start_offset < 0 {
            return None;
        }
        self.assign(LeaderEpoch(epoch), Offset(start_offset));
        Some(())
    }
}

fn number<N: std::str::FromStr>(line: Option<&str>, at: usize) -> Result<N, EpochFileError> {
    line.and_then(|text| text.parse().ok())
        .ok_or(EpochFileError::Malformed { line: at })
}
