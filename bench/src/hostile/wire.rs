//! Bytes of the Kafka protocol written by hand, so that they can be wrong where they should be: frames, headers, record batches.

use protocol::record::{Attributes, BATCH_HEADER_BYTES, BATCH_LENGTH_OVERHEAD_BYTES, BatchHeader};

/// API keys used here.
pub(super) mod api {
    pub(crate) const PRODUCE: i16 = 0;
    pub(crate) const FETCH: i16 = 1;
    pub(crate) const LIST_OFFSETS: i16 = 2;
    pub(crate) const METADATA: i16 = 3;
    pub(crate) const API_VERSIONS: i16 = 18;
}

/// Topic that the inputs write to: one partition, made by the broker on first use.
pub(super) const TOPIC: &str = "hostile";
/// Correlation id of every request.
const CORRELATION: i32 = 7;
/// Where the CRC begins to cover a batch of magic 2.
const CRC_FROM: usize = 21;

/// Appends big-endian fields.
#[derive(Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    pub(super) fn i8(mut self, value: i8) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn string(self, value: &str) -> Self {
        let length = i16::try_from(value.len()).expect("our strings are short");
        self.i16(length).raw(value.as_bytes())
    }

    /// Bytes with a length of 32 bits in front.
    pub(super) fn blob(self, value: &[u8]) -> Self {
        let length = i32::try_from(value.len()).expect("our batches are below 2 GiB");
        self.i32(length).raw(value)
    }

    pub(super) fn raw(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }

    /// An unsigned variable-length number.
    pub(super) fn uvarint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    /// A signed variable-length number, zigzag as in records.
    pub(super) fn varint(self, value: i64) -> Self {
        self.uvarint(((value << 1) ^ (value >> 63)) as u64)
    }
}

/// A frame around any bytes.
pub(super) fn frame(payload: &[u8]) -> Vec<u8> {
    Bytes::default().blob(payload).0
}

/// A frame with a header without tagged fields, and this body.
pub(super) fn request(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    frame(
        &Bytes::default()
            .i16(api)
            .i16(version)
            .i32(CORRELATION)
            .string("hostile")
            .raw(body)
            .0,
    )
}

/// The same with the header of flexible versions.
pub(super) fn flexible(api: i16, version: i16, body: &[u8]) -> Vec<u8> {
    frame(
        &Bytes::default()
            .i16(api)
            .i16(version)
            .i32(CORRELATION)
            .string("hostile")
            .uvarint(0)
            .raw(body)
            .0,
    )
}

/// ApiVersions version 0: the smallest request there is.
pub(super) fn api_versions() -> Vec<u8> {
    request(api::API_VERSIONS, 0, &[])
}

/// Metadata version 4 of one topic, which creates it.
pub(super) fn create_by_metadata(topic: &str) -> Vec<u8> {
    request(api::METADATA, 4, &Bytes::default().i32(1).string(topic).i8(1).0)
}

/// Produce version 8, acks=1, one partition of one topic.
pub(super) fn produce(topic: &str, records: &[u8]) -> Vec<u8> {
    let body = Bytes::default()
        .i16(-1)
        .i16(1)
        .i32(5000)
        .i32(1)
        .string(topic)
        .i32(1)
        .i32(0)
        .blob(records);
    request(api::PRODUCE, 8, &body.0)
}

/// Fetch version 4 of partition 0 from offset 0.
pub(super) fn fetch(topic: &str, bytes_max: i32) -> Vec<u8> {
    let body = Bytes::default().i32(-1).i32(100).i32(1).i32(bytes_max).i8(0);
    request(
        api::FETCH,
        4,
        &body.i32(1).string(topic).i32(1).i32(0).i64(0).i32(bytes_max).0,
    )
}

/// A record as it lies in a batch: no headers, timestamp delta 0.
pub(super) fn record(offset_delta: i64, value: &[u8]) -> Vec<u8> {
    let length = i64::try_from(value.len()).expect("a length fits");
    let body = Bytes::default()
        .i8(0)
        .varint(0)
        .varint(offset_delta)
        .varint(-1)
        .varint(length)
        .raw(value)
        .varint(0)
        .0;
    Bytes::default()
        .varint(i64::try_from(body.len()).expect("a length fits"))
        .raw(&body)
        .0
}

/// A record batch whose every field can be a lie.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) base_offset: i64,
    /// Bytes after the length field; none for the true number.
    pub(super) length: Option<i32>,
    pub(super) magic: i8,
    /// None for the right checksum.
    pub(super) crc: Option<u32>,
    pub(super) attributes: i16,
    pub(super) last_offset_delta: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) base_sequence: i32,
    pub(super) count: i32,
    /// What follows the header, compressed if the attributes say so.
    pub(super) records: Vec<u8>,
}

impl Batch {
    /// An honest batch of one record.
    pub(super) fn of(value: &[u8]) -> Self {
        Self::with(1, record(0, value))
    }

    /// A batch that claims so many records.
    pub(super) fn with(count: i32, records: Vec<u8>) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |time| i64::try_from(time.as_millis()).unwrap_or(0));
        Self {
            base_offset: 0,
            length: None,
            magic: 2,
            crc: None,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: now,
            max_timestamp: now,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            count,
            records,
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let true_length = BATCH_HEADER_BYTES - BATCH_LENGTH_OVERHEAD_BYTES + self.records.len();
        let header = BatchHeader {
            base_offset: self.base_offset,
            batch_length: self
                .length
                .unwrap_or_else(|| i32::try_from(true_length).expect("our batches are below 2 GiB")),
            leader_epoch: -1,
            magic: self.magic,
            crc: self.crc.unwrap_or(0),
            attributes: Attributes(self.attributes),
            last_offset_delta: self.last_offset_delta,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            record_count: self.count,
        };
        let mut bytes = Bytes::default().raw(&header.encode()).raw(&self.records).0;
        if self.crc.is_none() {
            let crc = crc32c::crc32c(&bytes[CRC_FROM..]).to_be_bytes();
            bytes[CRC_FROM - crc.len()..CRC_FROM].copy_from_slice(&crc);
        }
        bytes
    }
}

/// A message of the formats before record batches, magic 0 or 1, with the right CRC-32.
pub(super) fn old_message(magic: i8, value: &[u8]) -> Vec<u8> {
    let mut body = Bytes::default().i8(magic).i8(0);
    if magic == 1 {
        body = body.i64(0);
    }
    let body = body.i32(-1).blob(value).0;
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    let message = Bytes::default().raw(&crc.sum().to_be_bytes()).raw(&body).0;
    Bytes::default().i64(0).blob(&message).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_honest_batch_is_read_by_the_codec() {
        let batch = Batch::of(b"hello").bytes();
        let length = i32::from_be_bytes(batch[8..12].try_into().expect("four bytes"));
        assert_eq!(
            usize::try_from(length).expect("positive") + BATCH_LENGTH_OVERHEAD_BYTES,
            batch.len()
        );
        let crc = u32::from_be_bytes(batch[17..21].try_into().expect("four bytes"));
        assert_eq!(crc, crc32c::crc32c(&batch[CRC_FROM..]));
        assert_eq!(batch[16], 2);
    }
}
