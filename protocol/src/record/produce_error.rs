//! Why a produced batch is refused: Kafka's error code, a text for `error_message`, and the records at fault (KIP-467).
//! The codes are those that Apache Kafka 4.3.1 gave for a table of malformed batches (`tests/fixtures/produce`).

use super::batch::BatchFault;
use super::builder::BuildError;
use super::stream::ReadError;
use crate::compression::DecompressError;
use crate::error_code::ErrorCode;

/// Records named in one error at most. Kafka has no bound; a batch of a million bad records would make a response of
/// 100 MB.
pub const RECORD_ERRORS_MAX: usize = 1024;

/// A refused batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BatchError {
    /// What is wrong with the batch.
    pub reason: BatchErrorReason,
    /// The records at fault, by rising index, at most [`RECORD_ERRORS_MAX`]; empty unless the reason is
    /// [`BatchErrorReason::Records`].
    pub records: Vec<RecordError>,
}

/// What is wrong with a batch. The text is what a client sees.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchErrorReason {
    /// PR-1.
    #[error("the partition's records hold no complete batch")]
    NoBatch,
    /// PR-1.
    #[error("the partition's records hold more than one batch")]
    SeveralBatches,
    /// The length or magic is impossible.
    #[error("corrupt framing: {0}")]
    Framing(BatchFault),
    /// PR-2.
    #[error("batches of magic {found} are not accepted, only magic 2")]
    Magic {
        /// The magic byte, 0 or 1.
        found: i8,
    },
    /// PR-3.
    #[error("zstd needs Produce version 7, the request has version {version}")]
    ZstdVersion {
        /// The request's version.
        version: i16,
    },
    /// PR-21.
    #[error("base offset of a produced batch must be 0, it is {found}")]
    BaseOffset {
        /// The base offset.
        found: i64,
    },
    /// PR-25, as sent or after recompression.
    #[error("batch of {size} bytes is above max.message.bytes, {limit}")]
    TooLarge {
        /// Bytes of the batch, or how many at least.
        size: u64,
        /// The topic's `max.message.bytes`.
        limit: u64,
    },
    /// The records decompress to more than this broker reads.
    #[error("records decompress to more than {limit} bytes")]
    DecompressedTooLarge {
        /// The limit.
        limit: u64,
    },
    /// PR-20.
    #[error("corrupt batch: {0}")]
    Crc(BatchFault),
    /// The codec bits have no meaning.
    #[error("unknown compression codec {found}")]
    Codec {
        /// The codec bits.
        found: i16,
    },
    /// PR-22.
    #[error("last offset delta {last_offset_delta} and record count {record_count} do not fit each other")]
    Count {
        /// The field.
        last_offset_delta: i32,
        /// The field.
        record_count: i32,
    },
    /// PR-23.
    #[error("clients may not write control batches")]
    Control,
    /// PR-24.
    #[error("producer id {producer_id} with sequence {found}")]
    Sequence {
        /// The producer id.
        producer_id: i64,
        /// The base sequence.
        found: i32,
    },
    /// The compressed stream cannot be read.
    #[error("unreadable records: {0}")]
    Decompress(DecompressError),
    /// A record is malformed, or there are more or fewer than the header says.
    #[error("malformed records: {0}")]
    Malformed(ReadError),
    /// PR-31: records that break a rule of the topic.
    #[error("{total} records were rejected, the first is {first}")]
    Records {
        /// How many.
        total: u64,
        /// The first of them.
        first: RecordError,
        /// One of them has a timestamp fault, which decides the code.
        timestamp: bool,
    },
    /// Compressed records whose offsets are not 0, 1, 2 …
    #[error("offsets of compressed records are not consecutive from 0")]
    Offsets,
    /// The batch cannot be rebuilt for the topic's codec.
    #[error("cannot recompress: {0}")]
    Rebuild(BuildError),
    /// PR-26.
    #[error("batch of {size} bytes is above segment.bytes, {limit}")]
    Segment {
        /// Bytes of the batch as it would be stored.
        size: u64,
        /// The topic's `segment.bytes`.
        limit: u64,
    },
}

/// A record at fault, for the `record_errors` of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {index}: {fault}")]
pub struct RecordError {
    /// Index in the batch, from 0.
    pub index: u32,
    /// Its fault; the text is what a client sees.
    pub fault: RecordRule,
}

/// The rule of the topic that a record breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordRule {
    /// PR-27.
    #[error("a record without a key in a compacted topic")]
    NullKey,
    /// PR-28.
    #[error("timestamp {timestamp} is not between {earliest} and {latest}")]
    Timestamp {
        /// The record's timestamp, milliseconds.
        timestamp: i64,
        /// The earliest that is accepted.
        earliest: i64,
        /// The latest that is accepted.
        latest: i64,
    },
    /// PR-29.
    #[error("timestamp type LogAppendTime is for the broker to set")]
    AppendTime,
}

impl BatchErrorReason {
    /// Kafka's error code.
    ///
    /// `UNKNOWN_SERVER_ERROR` stands where Kafka's own exception is an internal one (unreadable compressed streams,
    /// unknown codecs, batches it cannot rebuild): clients give up on it, where `CORRUPT_MESSAGE` would make them retry.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Framing(_) | Self::Crc(_) => ErrorCode::CORRUPT_MESSAGE,
            Self::ZstdVersion { .. } => ErrorCode::UNSUPPORTED_COMPRESSION_TYPE,
            Self::TooLarge { .. } | Self::DecompressedTooLarge { .. } => ErrorCode::MESSAGE_TOO_LARGE,
            Self::Segment { .. } => ErrorCode::RECORD_LIST_TOO_LARGE,
            Self::Records { timestamp: true, .. } => ErrorCode::INVALID_TIMESTAMP,
            Self::Codec { .. } | Self::Decompress(_) | Self::Offsets | Self::Rebuild(_) => {
                ErrorCode::UNKNOWN_SERVER_ERROR
            }
            Self::NoBatch
            | Self::SeveralBatches
            | Self::Magic { .. }
            | Self::BaseOffset { .. }
            | Self::Count { .. }
            | Self::Control
            | Self::Sequence { .. }
            | Self::Malformed(_)
            | Self::Records { .. } => ErrorCode::INVALID_RECORD,
        }
    }
}

impl BatchError {
    /// Kafka's error code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.reason.code()
    }
}

impl From<BatchErrorReason> for BatchError {
    fn from(reason: BatchErrorReason) -> Self {
        Self {
            reason,
            records: Vec::new(),
        }
    }
}

impl From<ReadError> for BatchErrorReason {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Codec(found) => Self::Codec { found },
            ReadError::Decompress(DecompressError::TooLarge { limit }) => {
                Self::DecompressedTooLarge { limit }
            }
            ReadError::Decompress(error) => Self::Decompress(error),
            ReadError::Record { .. } => Self::Malformed(error),
        }
    }
}

impl From<ReadError> for BatchError {
    fn from(error: ReadError) -> Self {
        BatchErrorReason::from(error).into()
    }
}
