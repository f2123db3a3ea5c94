//! Builds a batch record by record: for coordinators and metadata, for recompression and compaction, and for tests. The
//! records go through a streaming compressor, so memory is the compressed batch plus one block.

use bytes::Bytes;

use super::batch::{
    Attributes, BATCH_HEADER_BYTES, BatchHeader, MAGIC_V2, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TimestampType,
};
use super::record::{Header, Headers, Record};
use super::varint::{put_varlong, varlong_len};
use crate::compression::{Codec, Compressor, EncodeStream};

/// The largest batch: its length field is a signed 32-bit integer.
pub const BATCH_BYTES_MAX: usize = i32::MAX as usize;

/// What a batch is to be, apart from its records. The default is a plain batch at offset 0 without a producer id.
#[derive(Clone, Copy, Debug)]
pub struct BatchOptions {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Leader epoch to stamp, −1 for none.
    pub leader_epoch: i32,
    /// Codec of the records.
    pub codec: Codec,
    /// Its level ([`Codec::level_default`]).
    pub level: i32,
    /// Uncompressed bytes to expect, if known; tunes zstd only.
    pub size_hint: Option<u64>,
    /// The append time in milliseconds, which becomes the timestamp of all records; `None` keeps those of the records.
    pub append_time: Option<i64>,
    /// −1 without idempotence.
    pub producer_id: i64,
    /// −1 without idempotence.
    pub producer_epoch: i16,
    /// Sequence of the first record, −1 without idempotence.
    pub base_sequence: i32,
    /// Part of a transaction, or its marker.
    pub transactional: bool,
    /// Control records.
    pub control: bool,
    /// When tombstones and markers of the batch may go, milliseconds (KIP-534): takes the place of the base timestamp.
    pub delete_horizon: Option<i64>,
    /// The last offset delta to write whatever the last record's is: a compacted batch keeps its range of offsets.
    pub last_offset_delta: Option<i32>,
    /// Bytes the batch may take at most, header included.
    pub size_max: usize,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            base_offset: 0,
            leader_epoch: NO_LEADER_EPOCH,
            codec: Codec::None,
            level: 0,
            size_hint: None,
            append_time: None,
            producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            base_sequence: NO_SEQUENCE,
            transactional: false,
            control: false,
            delete_horizon: None,
            last_offset_delta: None,
            size_max: BATCH_BYTES_MAX,
        }
    }
}

/// A record to append.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewRecord<'a> {
    /// Milliseconds since 1970, or −1 for none.
    pub timestamp: i64,
    /// The key or null.
    pub key: Option<&'a [u8]>,
    /// The value or null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: &'a [Header<'a>],
}

/// Why a record or batch cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The batch would exceed [`BatchOptions::size_max`].
    #[error("the batch takes more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// A timestamp below 0 that is not −1: no version of Kafka writes one.
    #[error("timestamp {found}")]
    Timestamp {
        /// The timestamp.
        found: i64,
    },
    /// The offset is below the base offset, or too far above it.
    #[error("offset delta {found}")]
    OffsetDelta {
        /// Offset minus base offset.
        found: i64,
    },
}

/// A finished batch.
#[derive(Clone, Debug)]
pub struct BuiltBatch {
    /// Its header, as in the bytes.
    pub header: BatchHeader,
    /// The whole batch.
    pub bytes: Bytes,
}

/// A batch being built. Records are appended in the order of their offsets; [`Self::finish`] writes the header.
pub struct BatchBuilder<'c> {
    options: BatchOptions,
    out: Vec<u8>,
    encoder: Option<EncodeStream<'c>>,
    /// Small fields of the record being appended.
    fields: Vec<u8>,
    base_timestamp: Option<i64>,
    max_timestamp: i64,
    last_offset_delta: i32,
    count: i32,
}

impl BatchBuilder<'static> {
    /// Starts an uncompressed batch; the codec in `options` is not used.
    #[must_use]
    pub fn plain(options: BatchOptions) -> Self {
        Self::start(
            BatchOptions {
                codec: Codec::None,
                ..options
            },
            vec![0; BATCH_HEADER_BYTES],
            None,
        )
    }
}

impl<'c> BatchBuilder<'c> {
    /// Starts a batch.
    pub fn new(options: BatchOptions, compressor: &'c mut Compressor) -> Self {
        let mut out = vec![0; BATCH_HEADER_BYTES];
        let encoder = match options.codec {
            Codec::None => None,
            codec => Some(compressor.begin(codec, options.level, options.size_hint, &mut out)),
        };
        Self::start(options, out, encoder)
    }

    fn start(options: BatchOptions, out: Vec<u8>, encoder: Option<EncodeStream<'c>>) -> Self {
        Self {
            options,
            out,
            encoder,
            fields: Vec::new(),
            base_timestamp: options.delete_horizon,
            max_timestamp: NO_TIMESTAMP,
            last_offset_delta: -1,
            count: 0,
        }
    }

    /// Records appended so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether no record has been appended.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch so far. With a codec, what is staged for compression (up to 64 KiB) is not counted.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.out.len()
    }

    /// Appends a record at the next offset and returns its offset delta.
    ///
    /// # Errors
    /// [`BuildError`]; after `TooLarge` the builder is of no use.
    pub fn append(&mut self, record: &NewRecord<'_>) -> Result<i32, BuildError> {
        let offset = self.options.base_offset + i64::from(self.last_offset_delta) + 1;
        self.append_at(offset, record)?;
        Ok(self.last_offset_delta)
    }

    /// Appends a record at `offset`, which is above that of the record before.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_at(&mut self, offset: i64, record: &NewRecord<'_>) -> Result<(), BuildError> {
        check_timestamp(record.timestamp)?;
        let headers = record.headers;
        let headers_len = headers.iter().fold(0usize, |sum, header| {
            sum.saturating_add(blob_len(Some(header.key)))
                .saturating_add(blob_len(header.value))
        });
        self.open(
            offset,
            record.timestamp,
            record.key,
            record.value,
            headers.len(),
            headers_len,
        )?;
        for header in headers {
            self.blob(Some(header.key));
            self.blob(header.value);
        }
        self.close()
    }

    /// Appends a record that was read elsewhere; its headers are taken over in their encoded form.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub(super) fn append_read(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers<'_>,
    ) -> Result<(), BuildError> {
        check_timestamp(timestamp)?;
        self.write_read(offset, timestamp, key, value, headers)
    }

    /// Takes over a record of a stored batch at its `offset` and with its `timestamp`, whatever that is: it was accepted once.
    ///
    /// # Errors
    /// As [`Self::append`], but for timestamps.
    pub fn append_stored(
        &mut self,
        offset: i64,
        timestamp: i64,
        record: &Record<'_>,
    ) -> Result<(), BuildError> {
        self.write_read(offset, timestamp, record.key, record.value, record.headers)
    }

    fn write_read(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers<'_>,
    ) -> Result<(), BuildError> {
        self.open(
            offset,
            timestamp,
            key,
            value,
            headers.len(),
            headers.encoded().len(),
        )?;
        self.write(headers.encoded());
        self.close()
    }

    /// Writes the header and returns the batch. Without records it is an empty batch with record count 0 and last offset
    /// delta −1.
    ///
    /// # Errors
    /// [`BuildError::TooLarge`].
    pub fn finish(mut self) -> Result<BuiltBatch, BuildError> {
        if let Some(encoder) = self.encoder.take() {
            encoder.finish(&mut self.out);
        }
        self.check_size()?;
        let options = self.options;
        let timestamp_type = match options.append_time {
            Some(_) => TimestampType::LogAppendTime,
            None => TimestampType::CreateTime,
        };
        let header = BatchHeader {
            base_offset: options.base_offset,
            batch_length: 0,
            leader_epoch: options.leader_epoch,
            magic: MAGIC_V2,
            crc: 0,
            attributes: Attributes(0)
                .with_codec(options.codec)
                .with_timestamp_type(timestamp_type)
                .with_transactional(options.transactional)
                .with_control(options.control)
                .with_delete_horizon(options.delete_horizon.is_some()),
            last_offset_delta: options.last_offset_delta.unwrap_or(self.last_offset_delta),
            base_timestamp: self.base_timestamp.unwrap_or(NO_TIMESTAMP),
            max_timestamp: options.append_time.unwrap_or(self.max_timestamp),
            producer_id: options.producer_id,
            producer_epoch: options.producer_epoch,
            base_sequence: options.base_sequence,
            record_count: self.count,
        };
        let (head, records) = self.out.split_at_mut(BATCH_HEADER_BYTES);
        let header = header.sealed(records);
        head.copy_from_slice(&header.encode());
        Ok(BuiltBatch {
            header,
            bytes: self.out.into(),
        })
    }

    /// Checks a record, accounts for it, and writes everything up to and including its header count.
    fn open(
        &mut self,
        offset: i64,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: usize,
        headers_len: usize,
    ) -> Result<(), BuildError> {
        let found = offset.wrapping_sub(self.options.base_offset);
        let too_far = BuildError::OffsetDelta { found };
        let offset_delta = i32::try_from(found)
            .ok()
            .filter(|delta| *delta > self.last_offset_delta)
            .ok_or(too_far)?;
        let timestamp_delta = timestamp.wrapping_sub(self.base_timestamp.unwrap_or(timestamp));
        let length = [
            1,
            varlong_len(timestamp_delta),
            varlong_len(i64::from(offset_delta)),
            blob_len(key),
            blob_len(value),
            varlong_len(headers as i64),
            headers_len,
        ]
        .into_iter()
        .fold(0usize, usize::saturating_add);
        // With a codec the limit is on the compressed size, which only writing can tell; a record's own length is bounded
        // by its format either way.
        let limit = self.options.size_max;
        let room = if self.encoder.is_some() {
            BATCH_BYTES_MAX
        } else {
            limit.saturating_sub(self.out.len())
        };
        if length > room {
            return Err(BuildError::TooLarge { limit });
        }
        self.base_timestamp = self.base_timestamp.or(Some(timestamp));
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.last_offset_delta = offset_delta;
        self.count += 1;
        put_varlong(&mut self.fields, length as i64);
        self.fields.push(0);
        put_varlong(&mut self.fields, timestamp_delta);
        put_varlong(&mut self.fields, i64::from(offset_delta));
        self.blob(key);
        self.blob(value);
        put_varlong(&mut self.fields, headers as i64);
        Ok(())
    }

    fn close(&mut self) -> Result<(), BuildError> {
        self.flush_fields();
        self.check_size()
    }

    fn blob(&mut self, bytes: Option<&[u8]>) {
        put_varlong(&mut self.fields, bytes.map_or(-1, |bytes| bytes.len() as i64));
        self.write(bytes.unwrap_or_default());
    }

    fn write(&mut self, bytes: &[u8]) {
        self.flush_fields();
        put(&mut self.encoder, &mut self.out, bytes);
    }

    fn flush_fields(&mut self) {
        put(&mut self.encoder, &mut self.out, &self.fields);
        self.fields.clear();
    }

    fn check_size(&self) -> Result<(), BuildError> {
        let limit = self.options.size_max.min(BATCH_BYTES_MAX);
        if self.out.len() > limit {
            Err(BuildError::TooLarge { limit })
        } else {
            Ok(())
        }
    }
}

fn put(encoder: &mut Option<EncodeStream<'_>>, out: &mut Vec<u8>, bytes: &[u8]) {
    match encoder {
        Some(encoder) => encoder.write(bytes, out),
        None => out.extend_from_slice(bytes),
    }
}

/// No version of Kafka writes a negative timestamp other than −1.
fn check_timestamp(timestamp: i64) -> Result<(), BuildError> {
    if timestamp < 0 && timestamp != NO_TIMESTAMP {
        return Err(BuildError::Timestamp { found: timestamp });
    }
    Ok(())
}

/// Bytes of a varint length and what it counts.
fn blob_len(bytes: Option<&[u8]>) -> usize {
    match bytes {
        None => 1,
        Some(bytes) => varlong_len(bytes.len() as i64) + bytes.len(),
    }
}
