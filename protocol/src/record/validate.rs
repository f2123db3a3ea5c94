//! What a broker does to one partition's records of a Produce request before they are appended: find the one batch, check
//! it in Kafka's order (PR-1, 2, 3, 20-34), walk its records with bounded memory, and rewrite as little as the topic asks:
//! nothing, the header (append time, a wrong maximum), or the records (another codec). A pure function of the
//! bytes, the rules and the clock in them.

use bytes::Bytes;

use super::batch::{
    Attributes, BATCH_HEADER_BYTES, BatchFault, BatchHeader, BatchView, MAGIC_V2, NO_TIMESTAMP, TimestampType,
};
use super::builder::{BATCH_BYTES_MAX, BatchBuilder, BatchOptions, BuildError};
use super::produce_error::{BatchError, BatchErrorReason, RECORD_ERRORS_MAX, RecordError, RecordRule};
use super::stream::{RecordFacts, RecordStream};
use crate::compression::{Codec, CodecContexts};

/// Bytes that a batch's records may decompress to, unless configured otherwise. Kafka has no bound.
///
/// Measured on one core at this limit: one large record 1 ms (lz4) to 160 ms (snappy), 18 million records of the smallest
/// size 0.6 s with every codec, from a zstd batch of 12 KB. Whoever may not stall that long walks on a side thread.
pub const DECOMPRESSED_BYTES_MAX_DEFAULT: u64 = 128 * 1024 * 1024;

/// The first version of Produce that may carry zstd (KIP-110).
const ZSTD_VERSION_MIN: i16 = 7;

/// Base offset and length.
const LENGTH_END: usize = 12;
/// Base offset to magic.
const MAGIC_END: usize = 17;
/// The smallest length field that any format ever had (magic 0): what Kafka checks first.
const LENGTH_MIN_ANY_MAGIC: i32 = 14;

/// The topic's and the broker's rules for a produced batch.
#[derive(Clone, Copy, Debug)]
pub struct ProduceRules {
    /// Version of the Produce request.
    pub version: i16,
    /// The clock, milliseconds since 1970.
    pub now_ms: i64,
    /// `max.message.bytes`.
    pub max_message_bytes: usize,
    /// `segment.bytes`.
    pub segment_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`.
    pub timestamp_after_max_ms: i64,
    /// `cleanup.policy` includes compact.
    pub compacted: bool,
    /// `compression.type`.
    pub compression: TopicCompression,
    /// How far the records are looked at.
    pub walk: Walk,
    /// Bytes that the records may decompress to.
    pub decompressed_bytes_max: u64,
}

/// A topic's `compression.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TopicCompression {
    /// Batches stay as their producers compressed them.
    #[default]
    Producer,
    /// Batches of other codecs are recompressed; those of this codec stay, whatever their level.
    Codec {
        /// The codec.
        codec: Codec,
        /// The level for recompression.
        level: i32,
    },
}

/// How far validation looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Walk {
    /// Every record, as Kafka does.
    #[default]
    Records,
    /// The header and the CRC only (`penstock.produce.validation=header`), unless the batch must be rebuilt: record count,
    /// keys, timestamps and offsets are the producer's word.
    Header,
}

impl Default for ProduceRules {
    /// Kafka's defaults for a topic, at time 0 and the newest request version.
    fn default() -> Self {
        Self {
            version: i16::MAX,
            now_ms: 0,
            max_message_bytes: 1024 * 1024 + 12,
            segment_bytes: 1024 * 1024 * 1024,
            timestamp_type: TimestampType::CreateTime,
            timestamp_before_max_ms: i64::MAX,
            timestamp_after_max_ms: 3_600_000,
            compacted: false,
            compression: TopicCompression::Producer,
            walk: Walk::Records,
            decompressed_bytes_max: DECOMPRESSED_BYTES_MAX_DEFAULT,
        }
    }
}

/// A batch that may be appended. Header and records are apart, so that what is rewritten in the header costs no copy of
/// the records.
#[derive(Clone, Debug)]
pub struct ValidatedBatch {
    /// The header to store, CRC right; base offset (0) and leader epoch are for the owner to assign.
    pub header: BatchHeader,
    /// Everything after the header: a slice of what was received, or rebuilt.
    pub records: Bytes,
    /// What was changed.
    pub rewritten: Rewritten,
    /// Offset delta of the first record with the largest timestamp: with append time the first record, with header-only
    /// validation the last.
    pub max_timestamp_delta: i32,
    /// Bytes of the records section, decompressed; with header-only validation as received.
    pub decompressed_bytes: u64,
}

/// What validation changed of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// Nothing: header and records are as received.
    Nothing,
    /// Timestamp type or maximum, and with them the CRC.
    Header,
    /// The records were rebuilt.
    Records,
}

impl ValidatedBatch {
    /// Bytes of the batch as it is to be stored.
    #[must_use]
    pub fn size(&self) -> usize {
        BATCH_HEADER_BYTES + self.records.len()
    }

    /// The header's bytes with the owner's base offset and leader epoch; [`Self::records`] follow it.
    #[must_use]
    pub fn head(&self, base_offset: i64, leader_epoch: i32) -> [u8; BATCH_HEADER_BYTES] {
        BatchHeader {
            base_offset,
            leader_epoch,
            ..self.header
        }
        .encode()
    }
}

/// Checks the records that one Produce request brings for one partition, and rewrites what the topic asks for.
///
/// Only when records are rebuilt is memory allocated, up to `max_message_bytes`; else the walk allocates nothing per
/// record and the result refers to `bytes`. Bytes after the batch that are no complete batch are dropped, as in Kafka.
///
/// # Errors
/// [`BatchError`] with Kafka's code.
pub fn validate(
    bytes: &Bytes,
    rules: &ProduceRules,
    contexts: &mut CodecContexts,
) -> Result<ValidatedBatch, BatchError> {
    let size = only_batch(bytes, rules.version)?;
    let received = bytes.slice(..size);
    let batch = check_header(&received, rules)?;
    let header = *batch.header();
    let source = header.attributes.codec().ok_or(BatchErrorReason::Codec {
        found: header.attributes.0 & Codec::ATTRIBUTES_MASK,
    })?;
    check_claims(&header)?;
    let (target, level) = match rules.compression {
        TopicCompression::Producer => (source, source.level_default()),
        TopicCompression::Codec { codec, level } => (codec, level),
    };
    let walked = if rules.walk == Walk::Records || source != target {
        let stream = RecordStream::new(&batch, &mut contexts.decompressor, rules.decompressed_bytes_max)?;
        walk(stream, &header, rules)?
    } else {
        Walked::unseen(&batch)
    };
    let validated = if source != target || (!walked.consecutive && source == Codec::None) {
        rebuild(&batch, target, level, &walked, rules, contexts)?
    } else if walked.consecutive {
        keep(&batch, &received, &walked, rules)
    } else {
        // Kafka means to rebuild such a batch and fails; so did every client that ever sent one.
        return Err(BatchErrorReason::Offsets.into());
    };
    let (size, limit) = (validated.size() as u64, rules.segment_bytes as u64);
    if size > limit {
        return Err(BatchErrorReason::Segment { size, limit }.into());
    }
    Ok(validated)
}

/// Finds the one batch (PR-1, 2, 3) and returns its size.
fn only_batch(bytes: &[u8], version: i16) -> Result<usize, BatchErrorReason> {
    let Some((size, magic)) = next_frame(bytes, 0)? else {
        return Err(BatchErrorReason::NoBatch);
    };
    if magic != MAGIC_V2 {
        return Err(BatchErrorReason::Magic { found: magic });
    }
    let (batch, rest) = bytes.split_at_checked(size).unwrap_or((bytes, &[]));
    if version < ZSTD_VERSION_MIN
        && let Some(head) = batch.first_chunk::<BATCH_HEADER_BYTES>()
        && BatchHeader::decode(head).attributes.codec() == Some(Codec::Zstd)
    {
        return Err(BatchErrorReason::ZstdVersion { version });
    }
    match next_frame(rest, size as u64)? {
        None => Ok(size),
        Some(_) => Err(BatchErrorReason::SeveralBatches),
    }
}

/// Size and magic of the complete batch at the front, of any format; `None` when the bytes end inside it.
fn next_frame(bytes: &[u8], position: u64) -> Result<Option<(usize, i8)>, BatchErrorReason> {
    let length = match bytes.first_chunk::<LENGTH_END>() {
        Some([_, _, _, _, _, _, _, _, length @ ..]) => i32::from_be_bytes(*length),
        None => return Ok(None),
    };
    if length < LENGTH_MIN_ANY_MAGIC {
        return Err(BatchErrorReason::Framing(BatchFault::Length {
            position,
            found: length,
        }));
    }
    let Some([.., magic]) = bytes.first_chunk::<MAGIC_END>() else {
        return Ok(None);
    };
    let found = i8::from_be_bytes([*magic]);
    if !(0..=MAGIC_V2).contains(&found) {
        return Err(BatchErrorReason::Framing(BatchFault::Magic { position, found }));
    }
    let size = LENGTH_END + length as usize;
    Ok((size <= bytes.len()).then_some((size, found)))
}

/// Base offset, size and CRC, in this order (PR-21, 25, 20).
fn check_header<'a>(received: &'a Bytes, rules: &ProduceRules) -> Result<BatchView<'a>, BatchErrorReason> {
    let batch = BatchView::parse(received, 0).map_err(BatchErrorReason::Framing)?;
    let found = batch.header().base_offset;
    if found != 0 {
        return Err(BatchErrorReason::BaseOffset { found });
    }
    let (size, limit) = (received.len() as u64, rules.max_message_bytes as u64);
    if size > limit {
        return Err(BatchErrorReason::TooLarge { size, limit });
    }
    batch.check_crc(0).map_err(BatchErrorReason::Crc)?;
    Ok(batch)
}

/// The header fields that claim something about the records (PR-22, 23, 24).
fn check_claims(header: &BatchHeader) -> Result<(), BatchErrorReason> {
    let (last_offset_delta, record_count) = (header.last_offset_delta, header.record_count);
    if record_count <= 0 || i64::from(last_offset_delta) + 1 != i64::from(record_count) {
        return Err(BatchErrorReason::Count {
            last_offset_delta,
            record_count,
        });
    }
    if header.attributes.is_control() {
        return Err(BatchErrorReason::Control);
    }
    if header.has_producer_id() && header.base_sequence < 0 {
        let (producer_id, found) = (header.producer_id, header.base_sequence);
        return Err(BatchErrorReason::Sequence { producer_id, found });
    }
    Ok(())
}

/// What a walk over the records found.
struct Walked {
    max_timestamp: i64,
    max_timestamp_delta: i32,
    /// Offset deltas are 0, 1, 2 …
    consecutive: bool,
    decompressed_bytes: u64,
}

impl Walked {
    /// Taking the header's word.
    fn unseen(batch: &BatchView<'_>) -> Self {
        let header = batch.header();
        Self {
            max_timestamp: header.max_timestamp,
            max_timestamp_delta: header.last_offset_delta,
            consecutive: true,
            decompressed_bytes: batch.records_bytes().len() as u64,
        }
    }
}

/// Reads every record and checks it against the topic's rules. A malformed record ends the walk at once, one that breaks
/// a rule does not: all of those are reported (PR-31).
fn walk(
    mut stream: RecordStream<'_>,
    header: &BatchHeader,
    rules: &ProduceRules,
) -> Result<Walked, BatchError> {
    let mut walked = Walked {
        max_timestamp: NO_TIMESTAMP,
        max_timestamp_delta: 0,
        consecutive: true,
        decompressed_bytes: 0,
    };
    let mut faults = Faults::default();
    let mut index = 0u32;
    while let Some(facts) = stream.next_facts()? {
        let timestamp = header.timestamp(facts.timestamp_delta);
        if let Some(fault) = broken_rule(&facts, timestamp, header.attributes, rules) {
            faults.add(index, fault);
        }
        if timestamp > walked.max_timestamp {
            (walked.max_timestamp, walked.max_timestamp_delta) = (timestamp, index as i32);
        }
        walked.consecutive &= i64::from(facts.offset_delta) == i64::from(index);
        index += 1;
    }
    walked.decompressed_bytes = stream.decompressed_bytes();
    faults.into_result().map(|()| walked)
}

/// The topic's rule that a record breaks, the key's first (PR-27, 28, 29).
#[inline]
fn broken_rule(
    facts: &RecordFacts,
    timestamp: i64,
    attributes: Attributes,
    rules: &ProduceRules,
) -> Option<RecordRule> {
    if rules.compacted && !facts.has_key {
        return Some(RecordRule::NullKey);
    }
    if rules.timestamp_type == TimestampType::CreateTime && timestamp != NO_TIMESTAMP {
        // Wrapping, as in Kafka: a timestamp so far off that the difference overflows is caught by the other side.
        let age = rules.now_ms.wrapping_sub(timestamp);
        if age > rules.timestamp_before_max_ms || age.wrapping_neg() > rules.timestamp_after_max_ms {
            let earliest = rules.now_ms.saturating_sub(rules.timestamp_before_max_ms);
            let latest = rules.now_ms.saturating_add(rules.timestamp_after_max_ms);
            return Some(RecordRule::Timestamp {
                timestamp,
                earliest,
                latest,
            });
        }
    } else if attributes.timestamp_type() == TimestampType::LogAppendTime {
        return Some(RecordRule::AppendTime);
    }
    None
}

/// The records found at fault; the memory for them is only allocated when there are some.
#[derive(Default)]
struct Faults {
    records: Vec<RecordError>,
    total: u64,
    timestamp: bool,
}

impl Faults {
    #[cold]
    fn add(&mut self, index: u32, fault: RecordRule) {
        self.total += 1;
        self.timestamp |= fault != RecordRule::NullKey;
        if self.records.len() < RECORD_ERRORS_MAX {
            self.records.push(RecordError { index, fault });
        }
    }

    fn into_result(self) -> Result<(), BatchError> {
        let Some(first) = self.records.first().copied() else {
            return Ok(());
        };
        let reason = BatchErrorReason::Records {
            total: self.total,
            first,
            timestamp: self.timestamp,
        };
        Err(BatchError {
            reason,
            records: self.records,
        })
    }
}

/// Stores the records as received; the header's timestamp type and maximum are made true (PR-30).
fn keep(batch: &BatchView<'_>, received: &Bytes, walked: &Walked, rules: &ProduceRules) -> ValidatedBatch {
    let mut header = *batch.header();
    let (max_timestamp, max_timestamp_delta) = match rules.timestamp_type {
        TimestampType::CreateTime => (walked.max_timestamp, walked.max_timestamp_delta),
        TimestampType::LogAppendTime => (rules.now_ms, 0),
    };
    let mut rewritten = Rewritten::Nothing;
    if header.attributes.timestamp_type() != rules.timestamp_type || header.max_timestamp != max_timestamp {
        // Like Kafka, which writes the attribute bits it knows and no others.
        header.attributes = Attributes(header.attributes.0 & 0x7f).with_timestamp_type(rules.timestamp_type);
        header.max_timestamp = max_timestamp;
        header = header.sealed(batch.records_bytes());
        rewritten = Rewritten::Header;
    }
    ValidatedBatch {
        header,
        records: received.slice(BATCH_HEADER_BYTES..),
        rewritten,
        max_timestamp_delta,
        decompressed_bytes: walked.decompressed_bytes,
    }
}

/// Writes the records anew with the topic's codec and consecutive offsets; producer id, epoch, sequence and the
/// transactional bit stay (PR-32).
fn rebuild(
    batch: &BatchView<'_>,
    codec: Codec,
    level: i32,
    walked: &Walked,
    rules: &ProduceRules,
    contexts: &mut CodecContexts,
) -> Result<ValidatedBatch, BatchErrorReason> {
    let header = batch.header();
    let append_time = match rules.timestamp_type {
        TimestampType::CreateTime => None,
        TimestampType::LogAppendTime => Some(rules.now_ms),
    };
    let options = BatchOptions {
        leader_epoch: header.leader_epoch,
        codec,
        level,
        size_hint: Some(walked.decompressed_bytes),
        append_time,
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        transactional: header.attributes.is_transactional(),
        size_max: rules.max_message_bytes.min(BATCH_BYTES_MAX),
        ..BatchOptions::default()
    };
    let fault = |fault| match fault {
        BuildError::TooLarge { limit } => BatchErrorReason::TooLarge {
            size: limit as u64 + 1,
            limit: rules.max_message_bytes as u64,
        },
        other => BatchErrorReason::Rebuild(other),
    };
    let mut builder = BatchBuilder::new(options, &mut contexts.compressor);
    let mut stream = RecordStream::new(batch, &mut contexts.decompressor, rules.decompressed_bytes_max)?;
    let mut offset = 0;
    while let Some(record) = stream.next_record()? {
        let timestamp = header.timestamp(record.timestamp_delta);
        builder
            .append_read(offset, timestamp, record.key, record.value, record.headers)
            .map_err(fault)?;
        offset += 1;
    }
    let built = builder.finish().map_err(fault)?;
    Ok(ValidatedBatch {
        header: built.header,
        records: built.bytes.slice(BATCH_HEADER_BYTES..),
        rewritten: Rewritten::Records,
        max_timestamp_delta: if append_time.is_some() {
            0
        } else {
            walked.max_timestamp_delta
        },
        decompressed_bytes: walked.decompressed_bytes,
    })
}
