//! What can go wrong in the log engine, sorted by whose fault it is: the disk (environment), damaged bytes (reported
//! with place, expectation and finding, never repaired silently), or the caller's request. The broker maps these to wire
//! codes; nothing here knows one.

use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;

use crate::disk::DiskError;
use crate::types::{LeaderEpoch, Offset};

/// An operation on a store or a log failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// The disk refused; for a write or a sync the store is offline from then on.
    #[error(transparent)]
    Disk(Rc<DiskError>),
    /// The disk is full: this was not done, and the store is as it was. It goes on by itself when there is space.
    #[error("the log directory is full: {0}")]
    NoSpace(Rc<DiskError>),
    /// Bytes that were durable are not what they must be; the log is offline and nothing was cut.
    #[error(transparent)]
    Damage(Box<Damage>),
    /// An earlier write or sync failed, or damage was found; nothing is accepted any more.
    #[error("log directory or log is offline: {0}")]
    Offline(Rc<str>),
    /// The log was closed or deleted, or never opened here.
    #[error("the log is not open on this store")]
    NoSuchLog,
    /// The offset lies outside the log.
    #[error("offset {wanted} is outside the log ({start} to {end})")]
    OffsetOutOfRange {
        /// What was asked for.
        wanted: Offset,
        /// The log's first offset.
        start: Offset,
        /// The log's end.
        end: Offset,
    },
    /// A file of ours has a format version this build does not know.
    #[error("{} has format version {found}; this build reads up to {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version known.
        known: u32,
    },
}

/// Durable bytes that are not what they must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} is damaged at byte {position}{}: expected {expected}, found {found}", path.display(), self.offsets())]
pub struct Damage {
    /// The damaged file.
    pub path: PathBuf,
    /// Where in the file, bytes.
    pub position: u64,
    /// The first offset concerned, −1 when unknown.
    pub first_offset: Offset,
    /// One past the last offset concerned, −1 when unknown.
    pub end_offset: Offset,
    /// What should be there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Damage {
    /// Damage of which it is not known which offsets it concerns.
    pub(crate) fn of_file(
        path: impl Into<PathBuf>,
        position: u64,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            path: path.into(),
            position,
            first_offset: Offset::NONE,
            end_offset: Offset::NONE,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// The offsets concerned, in parentheses, where they are known.
    fn offsets(&self) -> String {
        match (self.first_offset, self.end_offset) {
            (Offset::NONE, Offset::NONE) => String::new(),
            (first, Offset::NONE) => format!(" (offsets from {first})"),
            (Offset::NONE, end) => format!(" (offsets below {end})"),
            (first, end) => format!(" (offsets {first} to {end})"),
        }
    }
}

/// Why a batch was not appended; the log is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The first sequence does not follow the producer's last (PR-42, PR-43).
    #[error("producer {producer_id} sent sequence {found} where {expected} was due")]
    OutOfOrderSequence {
        /// The producer.
        producer_id: i64,
        /// The sequence that was due.
        expected: i32,
        /// The sequence that came.
        found: i32,
    },
    /// The producer's epoch is older than the one known (PR-44).
    #[error("producer {producer_id} has epoch {found}; the log knows {current}")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: i64,
        /// The epoch the log knows.
        current: i16,
        /// The epoch that came.
        found: i16,
    },
    /// A marker of a coordinator that has been replaced (KIP-98).
    #[error("the marker's coordinator epoch {found} is older than {current}")]
    CoordinatorFenced {
        /// The newest coordinator epoch seen.
        current: i32,
        /// The epoch that came.
        found: i32,
    },
    /// The producer's state does not allow this batch (a transactional batch after a plain one, or the like).
    #[error("invalid producer state: {0}")]
    InvalidProducerState(&'static str),
    /// The batch is larger than a segment may be (PR-26).
    #[error("a batch of {batch_bytes} bytes does not fit a segment of {segment_bytes}")]
    LargerThanSegment {
        /// The batch, bytes.
        batch_bytes: usize,
        /// The limit, bytes.
        segment_bytes: u64,
    },
    /// A replicated batch does not start at the log's end.
    #[error("batch starts at offset {found}, the log ends at {expected}")]
    OffsetGap {
        /// The log's end.
        expected: Offset,
        /// The batch's base offset.
        found: Offset,
    },
    /// The leader epoch is older than the log's newest.
    #[error("leader epoch {found} is older than the log's {current}")]
    StaleLeaderEpoch {
        /// The newest epoch in the log.
        current: LeaderEpoch,
        /// The batch's.
        found: LeaderEpoch,
    },
    /// The bytes are not one whole version 2 batch.
    #[error("malformed batch: {0}")]
    Malformed(&'static str),
    /// Too many bytes wait to be committed; the producer may retry.
    #[error("the store has {staged_bytes} bytes waiting to be committed")]
    Backlog {
        /// Waiting bytes.
        staged_bytes: usize,
    },
    /// The file system is below its reserve; reads, deletes and commits go on (DESIGN §6).
    #[error("the log directory has less free space than its reserve; writes go on when there is more")]
    Full,
    /// The log or its directory is offline.
    #[error("log directory or log is offline: {0}")]
    Offline(Rc<str>),
    /// The log is not open here.
    #[error("the log is not open on this store")]
    NoSuchLog,
}

impl From<DiskError> for StorageError {
    fn from(error: DiskError) -> Self {
        Self::Disk(Rc::new(error))
    }
}

impl From<Damage> for StorageError {
    fn from(damage: Damage) -> Self {
        Self::Damage(Box::new(damage))
    }
}

impl StorageError {
    /// The reason as one sentence that can be kept and cloned.
    #[must_use]
    pub fn reason(&self) -> Rc<str> {
        Rc::from(fmt::format(format_args!("{self}")))
    }

    /// Whether a file or directory was missing.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_not_found())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_named_where_they_are_known() {
        let damage = |first_offset, end_offset| Damage {
            path: PathBuf::from("f"),
            position: 7,
            first_offset,
            end_offset,
            expected: "a".to_owned(),
            found: "b".to_owned(),
        };
        let rest = "expected a, found b";
        for (first, end, text) in [
            (Offset::NONE, Offset::NONE, ""),
            (Offset(3), Offset(9), " (offsets 3 to 9)"),
            (Offset(3), Offset::NONE, " (offsets from 3)"),
            (Offset::NONE, Offset(9), " (offsets below 9)"),
        ] {
            let shown = damage(first, end).to_string();
            assert_eq!(shown, format!("f is damaged at byte 7{text}: {rest}"));
        }
    }
}
