//! Records that say who sent them: each value names its producer, partition and number, and the rest of it follows from
//! those, so that any byte out of place is seen. Building batches of them, and reading batches back.

use std::fmt;

use bytes::Bytes;
use protocol::compression::{Codec, CodecContexts};
use protocol::record::{BatchBuilder, BatchOptions, Batches, NewRecord, RecordStream};
use storage::sim_rng::SimRng;

/// The least bytes of a value: its identity.
const IDENTITY_BYTES: usize = 16;

/// More than any batch of a simulation decompresses to, bytes.
const DECOMPRESSED_BYTES_MAX: u64 = 64 << 20;

/// Names one record of a simulation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// Which producer of the run sent it.
    pub producer: u32,
    /// Its partition's number in the run.
    pub partition: u32,
    /// Its number among the producer's records for that partition, from 0.
    pub number: u32,
    /// Bytes of its value.
    pub value_bytes: u32,
}

/// A record as it was read, with its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRecord {
    /// Its offset.
    pub offset: i64,
    /// Who it is.
    pub id: RecordId,
}

/// What a run of whole batches holds.
#[derive(Debug, Default)]
pub struct ReadBatches {
    /// The records in order.
    pub records: Vec<ReadRecord>,
    /// Base offset of the first batch.
    pub first: Option<i64>,
    /// The offset after the last batch.
    pub end: Option<i64>,
}

/// The producer's part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// −1 without idempotence.
    pub producer_id: i64,
    /// −1 without idempotence.
    pub epoch: i16,
    /// −1 without idempotence.
    pub base_sequence: i32,
}

impl Sender {
    /// A producer without idempotence.
    pub const NOBODY: Self = Self {
        producer_id: -1,
        epoch: -1,
        base_sequence: -1,
    };
}

impl RecordId {
    fn value(self) -> Vec<u8> {
        let mut value = vec![0; (self.value_bytes as usize).max(IDENTITY_BYTES)];
        let (identity, rest) = value.split_at_mut(IDENTITY_BYTES);
        identity[..4].copy_from_slice(&self.producer.to_be_bytes());
        identity[4..8].copy_from_slice(&self.partition.to_be_bytes());
        identity[8..12].copy_from_slice(&self.number.to_be_bytes());
        identity[12..].copy_from_slice(&self.value_bytes.to_be_bytes());
        let seed = u64::from(self.producer) << 40 | u64::from(self.partition) << 20 | u64::from(self.number);
        SimRng::new(seed, "value").fill(rest);
        value
    }

    fn of_value(value: &[u8]) -> Option<Self> {
        let field = |at: usize| {
            let bytes = value.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let id = Self {
            producer: field(0)?,
            partition: field(4)?,
            number: field(8)?,
            value_bytes: field(12)?,
        };
        let is_whole = (id.value_bytes as usize).max(IDENTITY_BYTES) == value.len() && id.value() == value;
        is_whole.then_some(id)
    }
}

/// One batch of these records.
#[must_use]
pub fn build(
    ids: &[RecordId],
    sender: Sender,
    timestamp: i64,
    codec: i16,
    contexts: &mut CodecContexts,
) -> Bytes {
    let codec = Codec::from_attributes(codec).expect("a codec that exists");
    let options = BatchOptions {
        codec,
        level: codec.level_default(),
        producer_id: sender.producer_id,
        producer_epoch: sender.epoch,
        base_sequence: sender.base_sequence,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options, &mut contexts.compressor);
    for id in ids {
        let value = id.value();
        let key = id.number.to_be_bytes();
        let record = NewRecord {
            timestamp: timestamp + i64::from(id.number % 7),
            key: (id.number % 3 != 0).then_some(&key[..]),
            value: Some(&value),
            headers: &[],
        };
        builder.append(&record).expect("a small record fits");
    }
    builder.finish().expect("a small batch can be built").bytes
}

/// Reads whole batches, checking CRCs and every value.
///
/// # Errors
/// A sentence about what is wrong.
pub fn read(bytes: &[u8], contexts: &mut CodecContexts) -> Result<ReadBatches, String> {
    let mut out = ReadBatches::default();
    for batch in Batches::new(bytes, 0).checked() {
        let (position, batch) = batch.map_err(|fault| fault.to_string())?;
        let header = batch.header();
        let (base, count) = (header.base_offset, header.record_count);
        if header.last_offset_delta + 1 != count {
            return Err(format!(
                "the batch at {base} has {count} records for {} offsets",
                header.last_offset_delta
            ));
        }
        if out.end.is_some_and(|end| end != base) {
            return Err(format!("the batch at {base} follows offset {:?}", out.end));
        }
        out.first.get_or_insert(base);
        out.end = Some(base + i64::from(count));
        let mut stream = RecordStream::new(&batch, &mut contexts.decompressor, DECOMPRESSED_BYTES_MAX)
            .map_err(|error| format!("batch at {base}, byte {position}: {error}"))?;
        while let Some(record) = stream
            .next_record()
            .map_err(|error| format!("batch at {base}: {error}"))?
        {
            let offset = base + i64::from(record.offset_delta);
            let id = record.value.and_then(RecordId::of_value);
            let id = id.ok_or_else(|| format!("the record at {offset} has a value that nobody sent"))?;
            out.records.push(ReadRecord { offset, id });
        }
    }
    Ok(out)
}

impl fmt::Debug for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}/{}#{}", self.producer, self.partition, self.number)
    }
}
