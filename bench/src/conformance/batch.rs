//! Record batches for cases: honest ones from the codec's builder, and ones whose header lies, sealed again or not.

use bytes::Bytes;
use protocol::compression::{Codec, Compressor};
use protocol::record::{BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, BatchOptions, Header, NewRecord};

/// A record to produce.
#[derive(Clone, Debug, Default)]
pub struct Rec {
    /// Milliseconds since 1970, −1 for none.
    pub timestamp: i64,
    /// Key or null.
    pub key: Option<Bytes>,
    /// Value or null.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<(Bytes, Option<Bytes>)>,
}

impl Rec {
    /// A record with a value only.
    pub fn of(timestamp: i64, value: impl AsRef<[u8]>) -> Self {
        Self {
            timestamp,
            value: Some(Bytes::copy_from_slice(value.as_ref())),
            ..Self::default()
        }
    }

    /// The same with a key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(Bytes::copy_from_slice(key.as_bytes()));
        self
    }
}

/// An honest batch with these options. The level is the codec's default.
pub fn batch(options: BatchOptions, records: &[Rec]) -> Bytes {
    let mut compressor = Compressor::new();
    let options = BatchOptions {
        level: options.codec.level_default(),
        ..options
    };
    let mut builder = BatchBuilder::new(options, &mut compressor);
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| Header {
                key,
                value: value.as_deref(),
            })
            .collect();
        builder
            .append(&NewRecord {
                timestamp: record.timestamp,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: &headers,
            })
            .expect("cases write records that can be built");
    }
    builder
        .finish()
        .expect("cases write batches that can be built")
        .bytes
}

/// A batch of these records in a codec.
pub fn compressed(codec: Codec, records: &[Rec]) -> Bytes {
    batch(
        BatchOptions {
            codec,
            ..BatchOptions::default()
        },
        records,
    )
}

/// A batch of an idempotent producer.
pub fn sequenced(producer_id: i64, producer_epoch: i16, base_sequence: i32, records: &[Rec]) -> Bytes {
    batch(
        BatchOptions {
            producer_id,
            producer_epoch,
            base_sequence,
            ..BatchOptions::default()
        },
        records,
    )
}

/// The batch with another header, its CRC and length right again.
pub fn resealed(batch: &Bytes, edit: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let (mut header, records) = split(batch);
    edit(&mut header);
    let mut bytes = header.sealed(records).encode().to_vec();
    bytes.extend_from_slice(records);
    bytes.into()
}

/// The batch with another header, nothing else made right.
pub fn forged(batch: &Bytes, edit: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let (mut header, records) = split(batch);
    edit(&mut header);
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(records);
    bytes.into()
}

/// The batch with other record bytes behind its header, sealed again.
pub fn with_records(batch: &Bytes, records: &[u8]) -> Bytes {
    let (header, _) = split(batch);
    let mut bytes = header.sealed(records).encode().to_vec();
    bytes.extend_from_slice(records);
    bytes.into()
}

fn split(batch: &Bytes) -> (BatchHeader, &[u8]) {
    let (head, records) = batch
        .split_first_chunk::<BATCH_HEADER_BYTES>()
        .expect("a batch that was built");
    (BatchHeader::decode(head), records)
}
