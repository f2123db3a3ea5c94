//! What is left of one batch: the records that are the newest of their keys, at their old offsets, under the old base offset
//! and last offset delta, in the old codec (CP-3…6). Pure. A batch of which every record stays is kept byte for byte; one that
//! changes is read twice, so that memory is the batch that comes out and one block of the one that goes in, whatever that
//! decompresses to.

use bytes::Bytes;
use protocol::compression::CodecContexts;
use protocol::record::{
    BATCH_BYTES_MAX, BatchBuilder, BatchFault, BatchOptions, BatchView, BuildError, NO_TIMESTAMP, ReadError,
    Record, RecordStream, TimestampType,
};

use super::offset_map::OffsetMap;
use crate::types::Offset;

/// The most that one stored batch may decompress to, bytes. It is only streamed; one that claims more is taken for damage.
pub(super) const DECOMPRESSED_BYTES_MAX: u64 = 4 << 30;

/// What holds for all batches of a pass.
#[derive(Clone, Copy, Debug)]
pub struct FilterRules {
    /// Records from here on were not looked at for newer ones: they stay.
    pub looked_to: Offset,
    /// The time, milliseconds since 1970.
    pub now_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
}

/// What was found out about a batch before its records are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOrder {
    /// Records of an aborted transaction, or a marker that no record needs any more (CP-5).
    pub may_go: bool,
    /// Keep the header even if no record stays (CP-6).
    pub keep_empty: bool,
}

/// What becomes of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filtered {
    /// It stays as it is.
    Same,
    /// This takes its place.
    Changed(Bytes),
    /// Nothing is left.
    Gone,
}

/// A stored batch cannot be read or written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Not a batch, or another CRC.
    #[error(transparent)]
    Batch(#[from] BatchFault),
    /// Its records.
    #[error(transparent)]
    Records(#[from] ReadError),
    /// What is left of it does not fit the format.
    #[error(transparent)]
    Build(#[from] BuildError),
}

/// Filters one batch against the newest offsets in `map`.
///
/// # Errors
/// [`FilterError`]: the batch is damaged.
pub fn filter_batch(
    view: &BatchView<'_>,
    order: BatchOrder,
    map: &OffsetMap,
    rules: &FilterRules,
    contexts: &mut CodecContexts,
) -> Result<Filtered, FilterError> {
    let header = view.header();
    let attributes = header.attributes;
    let horizon = header.delete_horizon();
    let is_over = horizon.is_some_and(|horizon| horizon <= rules.now_ms);
    // A marker's own time begins when a pass finds that nobody needs it.
    let drop_all = order.may_go && (!attributes.is_control() || is_over);
    let found = if drop_all {
        Survivors::default()
    } else {
        survivors(view, map, rules, contexts)?
    };
    if found.kept == 0 {
        return Ok(match order.keep_empty {
            false => Filtered::Gone,
            true if header.record_count == 0 => Filtered::Same,
            true => Filtered::Changed(emptied(view)),
        });
    }
    let starts_horizon =
        horizon.is_none() && (found.has_tombstone || (attributes.is_control() && order.may_go));
    if found.kept == found.seen && !starts_horizon {
        return Ok(Filtered::Same);
    }
    let horizon = match starts_horizon {
        true => Some(rules.now_ms.saturating_add(rules.delete_retention_ms)),
        false => horizon,
    };
    rebuilt(view, &found, horizon, contexts).map(Filtered::Changed)
}

/// Which records of a batch stay.
#[derive(Default)]
struct Survivors {
    /// A bit for each record read.
    bits: Vec<u64>,
    seen: usize,
    kept: usize,
    /// One of those that stay has no value.
    has_tombstone: bool,
}

impl Survivors {
    fn push(&mut self, stays: bool) {
        let (word, bit) = (self.seen / 64, self.seen % 64);
        if bit == 0 {
            self.bits.push(0);
        }
        self.bits[word] |= u64::from(stays) << bit;
        self.seen += 1;
        self.kept += usize::from(stays);
    }

    fn has(&self, index: usize) -> bool {
        self.bits
            .get(index / 64)
            .is_some_and(|word| word >> (index % 64) & 1 == 1)
    }
}

fn survivors(
    view: &BatchView<'_>,
    map: &OffsetMap,
    rules: &FilterRules,
    contexts: &mut CodecContexts,
) -> Result<Survivors, FilterError> {
    let header = *view.header();
    let keeps_tombstones = header
        .delete_horizon()
        .is_none_or(|horizon| rules.now_ms < horizon);
    let is_control = header.attributes.is_control();
    let mut found = Survivors::default();
    let mut records = RecordStream::new(view, &mut contexts.decompressor, DECOMPRESSED_BYTES_MAX)?;
    while let Some(record) = records.next_record()? {
        let offset = Offset(header.base_offset.wrapping_add(i64::from(record.offset_delta)));
        let stays = is_control
            || offset >= rules.looked_to
            || is_newest(&record, offset, map) && (record.value.is_some() || keeps_tombstones);
        found.has_tombstone |= stays && !is_control && record.value.is_none();
        found.push(stays);
    }
    Ok(found)
}

/// Whether no newer record has the same key. A record without one is nobody's, and goes (CP-3).
fn is_newest(record: &Record<'_>, offset: Offset, map: &OffsetMap) -> bool {
    record
        .key
        .is_some_and(|key| map.get(key).is_none_or(|newest| offset >= newest))
}

fn rebuilt(
    view: &BatchView<'_>,
    stay: &Survivors,
    delete_horizon: Option<i64>,
    contexts: &mut CodecContexts,
) -> Result<Bytes, FilterError> {
    let header = *view.header();
    let attributes = header.attributes;
    let mut records = RecordStream::new(view, &mut contexts.decompressor, DECOMPRESSED_BYTES_MAX)?;
    let codec = attributes.codec().unwrap_or_default(); // the stream has refused unknown ones
    let options = BatchOptions {
        base_offset: header.base_offset,
        leader_epoch: header.leader_epoch,
        codec,
        level: codec.level_default(),
        append_time: (attributes.timestamp_type() == TimestampType::LogAppendTime)
            .then_some(header.max_timestamp),
        producer_id: header.producer_id,
        producer_epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        transactional: attributes.is_transactional(),
        control: attributes.is_control(),
        delete_horizon,
        last_offset_delta: Some(header.last_offset_delta),
        size_hint: None,
        size_max: BATCH_BYTES_MAX,
    };
    let mut builder = BatchBuilder::new(options, &mut contexts.compressor);
    let mut index = 0;
    while let Some(record) = records.next_record()? {
        if stay.has(index) {
            let offset = header.base_offset.wrapping_add(i64::from(record.offset_delta));
            builder.append_stored(offset, header.timestamp(record.timestamp_delta), &record)?;
        }
        index += 1;
    }
    Ok(builder.finish()?.bytes)
}

/// The batch without its records: who wrote it, its sequences, its range of offsets and its largest timestamp stay. Its first
/// timestamp is none, as Kafka has it.
fn emptied(view: &BatchView<'_>) -> Bytes {
    let mut header = *view.header();
    header.attributes = header
        .attributes
        .with_codec(protocol::compression::Codec::None)
        .with_delete_horizon(false);
    header.base_timestamp = NO_TIMESTAMP;
    header.record_count = 0;
    Bytes::copy_from_slice(&header.sealed(&[]).encode())
}

#[cfg(test)]
mod tests;
