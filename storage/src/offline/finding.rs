//! What a check of files found: where, what should be there and what is, and how bad that is.

use std::path::PathBuf;

use super::reader::{BadSpan, Fault};
use crate::error::Damage;
use crate::types::Offset;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is lost and nothing need be done: an unclean stop left it, or it is left over.
    Remark,
    /// A file that can be made anew from the log is wrong or missing; until then answers may be wrong or slow.
    Rebuildable,
    /// Bytes that were durable are missing or wrong.
    Damage,
}

/// What kind of file or fact it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Batches of a segment.
    Batch,
    /// The end of the last segment.
    Tail,
    /// A segment's file as a whole.
    Segment,
    /// `.index`.
    OffsetIndex,
    /// `.timeindex`.
    TimeIndex,
    /// `.txnindex`.
    TxnIndex,
    /// `.snapshot`.
    ProducerSnapshot,
    /// `leader-epoch-checkpoint`.
    LeaderEpochs,
    /// A journal file or its list.
    Journal,
    /// A checkpoint of the log directory.
    Checkpoint,
    /// `partition.metadata`, `meta.properties`.
    Identity,
    /// A name that nobody needs.
    Leftover,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub subject: Subject,
    /// Where it is, what should be there and what is.
    pub place: Damage,
    /// CRC-32C in the batch's header and of its bytes, where those differ.
    pub crc: Option<(u32, u32)>,
}

impl Severity {
    /// One word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Remark => "remark",
            Self::Rebuildable => "rebuildable",
            Self::Damage => "damage",
        }
    }
}

impl Subject {
    /// A word or two.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Tail => "tail",
            Self::Segment => "segment",
            Self::OffsetIndex => "offset index",
            Self::TimeIndex => "time index",
            Self::TxnIndex => "transaction index",
            Self::ProducerSnapshot => "producer snapshot",
            Self::LeaderEpochs => "leader epochs",
            Self::Journal => "journal",
            Self::Checkpoint => "checkpoint",
            Self::Identity => "identity",
            Self::Leftover => "leftover",
        }
    }
}

impl Finding {
    /// A finding about a whole file, or of which no offsets are known.
    pub fn of_file(
        severity: Severity,
        subject: Subject,
        path: impl Into<PathBuf>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            severity,
            subject,
            place: Damage::of_file(path, 0, expected, found),
            crc: None,
        }
    }

    /// The same at a byte.
    #[must_use]
    pub fn at(mut self, position: u64) -> Self {
        self.place.position = position;
        self
    }

    /// The same with the offsets concerned: the first, and one past the last.
    #[must_use]
    pub fn of_offsets(mut self, first: Offset, end: Offset) -> Self {
        self.place.first_offset = first;
        self.place.end_offset = end;
        self
    }

    /// Bytes of a segment that are no batches.
    #[must_use]
    pub fn of_span(severity: Severity, subject: Subject, path: &std::path::Path, span: &BadSpan) -> Self {
        let mut finding = Self::of_file(severity, subject, path, span.expected(), span.fault.to_string())
            .at(span.position)
            .of_offsets(span.first_offset, span.end_offset);
        if let Fault::Crc { expected, found } = span.fault {
            finding.crc = Some((expected, found));
        }
        finding
    }
}
