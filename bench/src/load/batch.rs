//! Batches as producers make them: records are encoded into the batch as messages come, header and checksum at its end, and the
//! codec over all of it then, as Kafka's clients do. Also batches that are made before a run, whose stamps and sequence numbers are
//! written over.

use bytes::{Bytes, BytesMut};
use protocol::compression::{Codec, Compressor};
use protocol::record::{
    Attributes, BATCH_HEADER_BYTES, BatchHeader, MAGIC_V2, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE,
};

/// Bytes at the front of a value that hold its stamp: when it was due, nanoseconds since 1970, big-endian.
pub(super) const STAMP_BYTES: usize = 8;

/// Bytes of a record besides key and value, at most.
pub(super) const RECORD_OVERHEAD_BYTES_MAX: usize = 30;

/// Memory that a batch begins with, at least.
const CAPACITY_MIN: usize = 512;

/// When the messages of a batch were due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Dues {
    /// Each at its own time.
    Each(Vec<u64>),
    /// All at once.
    Same(u64, u64),
}

/// Who sends a batch, when it is idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProducerIdentity {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

/// A message to append.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    /// Milliseconds since 1970.
    pub(super) timestamp: i64,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: &'a [u8],
    /// What is written over the first bytes of the value.
    pub(super) stamp: Option<u64>,
    /// When it was due, time of the run.
    pub(super) due: u64,
}

/// A batch that takes messages.
#[derive(Debug)]
pub(super) struct OpenBatch {
    bytes: Vec<u8>,
    dues: Vec<u64>,
    base_timestamp: i64,
    last_timestamp: i64,
    /// Tells this batch from others of its partition.
    pub(super) serial: u32,
}

/// A batch that is ready to be sent.
#[derive(Clone, Debug)]
pub(super) struct ReadyBatch {
    pub(super) bytes: Bytes,
    pub(super) dues: Dues,
}

impl OpenBatch {
    pub(super) fn new(serial: u32, capacity: usize, base_timestamp: i64) -> Self {
        let mut bytes = Vec::with_capacity(capacity.max(CAPACITY_MIN));
        bytes.resize(BATCH_HEADER_BYTES, 0);
        Self {
            bytes,
            dues: Vec::new(),
            base_timestamp,
            last_timestamp: base_timestamp,
            serial,
        }
    }

    /// Bytes so far, uncompressed.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn append(&mut self, message: &Message<'_>) {
        let delta_ms = message.timestamp - self.base_timestamp;
        let number = self.dues.len() as i64;
        let key_bytes = message.key.map_or(0, <[u8]>::len);
        let length = 1
            + varlong_len(delta_ms)
            + varlong_len(number)
            + varlong_len(message.key.map_or(-1, |key| key.len() as i64))
            + key_bytes
            + varlong_len(message.value.len() as i64)
            + message.value.len()
            + 1;
        let out = &mut self.bytes;
        put_varlong(out, length as i64);
        out.push(0);
        put_varlong(out, delta_ms);
        put_varlong(out, number);
        put_varlong(out, message.key.map_or(-1, |key| key.len() as i64));
        out.extend_from_slice(message.key.unwrap_or_default());
        put_varlong(out, message.value.len() as i64);
        match message.stamp {
            Some(stamp) if message.value.len() >= STAMP_BYTES => {
                out.extend_from_slice(&stamp.to_be_bytes());
                out.extend_from_slice(&message.value[STAMP_BYTES..]);
            }
            _ => out.extend_from_slice(message.value),
        }
        out.push(0);
        self.last_timestamp = self.last_timestamp.max(message.timestamp);
        self.dues.push(message.due);
    }

    /// The batch with its header, its records compressed.
    pub(super) fn seal(
        mut self,
        (codec, level): (Codec, i32),
        producer: Option<(ProducerIdentity, i32)>,
        compressor: &mut Compressor,
    ) -> ReadyBatch {
        if codec != Codec::None {
            let mut compressed = Vec::with_capacity(self.bytes.len() / 2 + CAPACITY_MIN);
            compressed.resize(BATCH_HEADER_BYTES, 0);
            compressor.compress(codec, level, &self.bytes[BATCH_HEADER_BYTES..], &mut compressed);
            self.bytes = compressed;
        }
        let count = i32::try_from(self.dues.len()).unwrap_or(i32::MAX);
        let (identity, sequence) = producer.unwrap_or((
            ProducerIdentity {
                id: NO_PRODUCER_ID,
                epoch: NO_PRODUCER_EPOCH,
            },
            NO_SEQUENCE,
        ));
        let header = BatchHeader {
            base_offset: 0,
            batch_length: 0,
            leader_epoch: NO_LEADER_EPOCH,
            magic: MAGIC_V2,
            crc: 0,
            attributes: Attributes(0).with_codec(codec),
            last_offset_delta: count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.last_timestamp,
            producer_id: identity.id,
            producer_epoch: identity.epoch,
            base_sequence: sequence,
            record_count: count,
        };
        seal_header(header, &mut self.bytes);
        ReadyBatch {
            bytes: self.bytes.into(),
            dues: Dues::Each(self.dues),
        }
    }
}

fn seal_header(header: BatchHeader, bytes: &mut [u8]) {
    let (head, records) = bytes.split_at_mut(BATCH_HEADER_BYTES);
    head.copy_from_slice(&header.sealed(records).encode());
}

/// A batch that was made before the run.
#[derive(Clone, Debug)]
pub(super) struct Template {
    bytes: Bytes,
    header: BatchHeader,
    /// Where the stamps lie; none in a compressed batch.
    stamps: Vec<usize>,
}

impl Template {
    /// A batch of these values, without keys.
    pub(super) fn new<'a>(
        values: impl Iterator<Item = &'a Bytes>,
        codec: (Codec, i32),
        timestamp: i64,
        is_stamped: bool,
    ) -> Self {
        let mut open = OpenBatch::new(0, 0, timestamp);
        let mut stamps = Vec::new();
        for value in values {
            open.append(&Message {
                timestamp,
                key: None,
                value,
                stamp: None,
                due: 0,
            });
            // A record ends with its value and the count of its headers.
            stamps.push(open.size() - 1 - value.len());
        }
        if !is_stamped || codec.0 != Codec::None {
            stamps.clear();
        }
        let bytes = open.seal(codec, None, &mut Compressor::new()).bytes;
        let header = BatchHeader::parse(&bytes, 0).expect("it was made above");
        Self {
            bytes,
            header,
            stamps,
        }
    }

    pub(super) fn records(&self) -> i32 {
        self.header.record_count
    }

    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// A batch that was due then. Without stamps and identity nothing is copied.
    pub(super) fn batch(
        &self,
        due: u64,
        stamp: u64,
        producer: Option<(ProducerIdentity, i32)>,
    ) -> ReadyBatch {
        let dues = Dues::Same(due, self.records().unsigned_abs().into());
        if self.stamps.is_empty() && producer.is_none() {
            return ReadyBatch {
                bytes: self.bytes.clone(),
                dues,
            };
        }
        let mut bytes = BytesMut::from(&self.bytes[..]);
        for at in &self.stamps {
            if let Some(place) = bytes.get_mut(*at..*at + STAMP_BYTES) {
                place.copy_from_slice(&stamp.to_be_bytes());
            }
        }
        let mut header = self.header;
        if let Some((identity, sequence)) = producer {
            (header.producer_id, header.producer_epoch) = (identity.id, identity.epoch);
            header.base_sequence = sequence;
        }
        seal_header(header, &mut bytes);
        ReadyBatch {
            bytes: bytes.freeze(),
            dues,
        }
    }
}

fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut raw = zigzag(value);
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

const fn varlong_len(value: i64) -> usize {
    protocol::uvarint_len(zigzag(value))
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::compression::Decompressor;
    use protocol::record::{BatchView, RecordStream};

    type Record = (Option<Vec<u8>>, Vec<u8>, i64, i32);

    fn records(bytes: &[u8]) -> Vec<Record> {
        let view = BatchView::parse(bytes, 0).expect("a whole batch");
        view.check_crc(0).expect("its checksum is right");
        let mut decompressor = Decompressor::new();
        let mut stream = RecordStream::new(&view, &mut decompressor, 1 << 30).expect("a known codec");
        let mut found = Vec::new();
        while let Some(record) = stream.next_record().expect("well-formed") {
            found.push((
                record.key.map(<[u8]>::to_vec),
                record.value.expect("it has a value").to_vec(),
                record.timestamp_delta,
                record.offset_delta,
            ));
        }
        found
    }

    #[test]
    fn a_batch_of_each_codec_is_read_by_the_broker_s_own_reader() {
        for codec in Codec::ALL {
            let mut open = OpenBatch::new(1, 0, 1_700_000_000_000);
            for number in 0..300i64 {
                open.append(&Message {
                    timestamp: 1_700_000_000_000 + number,
                    key: (number % 2 == 0).then_some(&b"key"[..]),
                    value: &[7; 100],
                    stamp: Some(42),
                    due: number.unsigned_abs(),
                });
            }
            let identity = ProducerIdentity { id: 9, epoch: 2 };
            let batch = open.seal(
                (codec, codec.level_default()),
                Some((identity, 77)),
                &mut Compressor::new(),
            );
            let header = BatchHeader::parse(&batch.bytes, 0).expect("a header");
            assert_eq!(
                (header.producer_id, header.producer_epoch, header.base_sequence),
                (9, 2, 77)
            );
            assert_eq!((header.record_count, header.last_offset_delta), (300, 299));
            assert_eq!(header.max_timestamp, 1_700_000_000_299);
            let found = records(&batch.bytes);
            assert_eq!(found.len(), 300);
            let mut value = 42u64.to_be_bytes().to_vec();
            value.resize(100, 7);
            assert_eq!(found[200], (Some(b"key".to_vec()), value.clone(), 200, 200));
            assert_eq!(found[201], (None, value, 201, 201));
            assert_eq!(batch.dues, Dues::Each((0..300).collect()));
        }
    }

    #[test]
    fn a_batch_made_before_gets_stamps_and_sequence_numbers() {
        let values = [Bytes::from(vec![1; 20]), Bytes::from(vec![2; 200])];
        let template = Template::new(values.iter(), (Codec::None, 0), 5, true);
        let identity = ProducerIdentity { id: 3, epoch: 0 };
        let batch = template.batch(8, 0x0102, Some((identity, 10)));
        assert_eq!(batch.dues, Dues::Same(8, 2));
        let found = records(&batch.bytes);
        for (record, value) in found.iter().zip(&values) {
            assert_eq!(record.1[..STAMP_BYTES], 0x0102u64.to_be_bytes());
            assert_eq!(record.1[STAMP_BYTES..], value[STAMP_BYTES..]);
        }
        assert_eq!(
            BatchHeader::parse(&batch.bytes, 0)
                .expect("a header")
                .base_sequence,
            10
        );
        // What nobody looks at is not copied.
        let plain = Template::new(values.iter(), (Codec::Lz4, 0), 5, true);
        let (one, other) = (plain.batch(1, 1, None), plain.batch(2, 2, None));
        assert_eq!(one.bytes.as_ptr(), other.bytes.as_ptr());
        assert_eq!(records(&one.bytes)[1].1, vec![2; 200]);
    }

    #[test]
    fn a_record_takes_no_more_than_is_allowed_for() {
        let mut open = OpenBatch::new(1, 0, 0);
        open.dues = vec![0; 1 << 20];
        let before = open.size();
        open.append(&Message {
            timestamp: i64::from(i32::MAX),
            key: Some(&[0; 200]),
            value: &[0; 70_000],
            stamp: None,
            due: 0,
        });
        assert!(open.size() - before <= 70_200 + RECORD_OVERHEAD_BYTES_MAX);
    }
}
