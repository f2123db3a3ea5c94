//! One record batch as bytes: the 61-byte header, its checks, the CRC, and the few changes a broker makes to a batch it
//! does not rebuild.
//!
//! ```text
//!  0 baseOffset i64 │ 8 batchLength i32 (bytes after it) │ 12 partitionLeaderEpoch i32 │ 16 magic i8 │ 17 crc u32
//! 21 attributes i16 │ 23 lastOffsetDelta i32 │ 27 baseTimestamp i64 │ 35 maxTimestamp i64 │ 43 producerId i64
//! 51 producerEpoch i16 │ 53 baseSequence i32 │ 57 recordCount i32 │ 61 records …           (all big-endian)
//! ```
//! The CRC-32C covers byte 21 to the end, so offset and leader epoch (the 16-byte prefix) are set without touching it.

use crate::compression::Codec;

/// Bytes of a batch header; the records follow.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Base offset, batch length and leader epoch: what the leader writes, outside the CRC.
pub const BATCH_PREFIX_BYTES: usize = 16;

/// Bytes before what `batchLength` counts: base offset and the length itself.
pub const BATCH_LENGTH_OVERHEAD_BYTES: usize = 12;

/// The smallest `batchLength`: a header without records.
pub const BATCH_LENGTH_MIN: i32 = (BATCH_HEADER_BYTES - BATCH_LENGTH_OVERHEAD_BYTES) as i32;

/// The only format Kafka 4 writes and accepts.
pub const MAGIC_V2: i8 = 2;

/// The timestamp of a record or batch without one.
pub const NO_TIMESTAMP: i64 = -1;
/// The producer id of a batch without one.
pub const NO_PRODUCER_ID: i64 = -1;
/// The producer epoch of a batch without a producer id.
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// The sequence of a batch without a producer id.
pub const NO_SEQUENCE: i32 = -1;
/// The leader epoch of a batch no leader has stamped.
pub const NO_LEADER_EPOCH: i32 = -1;

/// Where the CRC'd part begins.
const CRC_START: usize = 21;

/// What the timestamps of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// Each record carries its producer's time.
    #[default]
    CreateTime,
    /// All records carry the broker's append time, which is the batch's `maxTimestamp`.
    LogAppendTime,
}

/// The attribute bits of a batch. Bits 7-15 are unused and kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const TIMESTAMP_TYPE: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// The codec; `None` for an id that no version of Kafka has assigned.
    #[must_use]
    pub const fn codec(self) -> Option<Codec> {
        Codec::from_attributes(self.0)
    }

    /// Whether the records are compressed, by whatever codec.
    #[must_use]
    pub const fn is_compressed(self) -> bool {
        self.0 & Codec::ATTRIBUTES_MASK != 0
    }

    /// Bit 3.
    #[must_use]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::TIMESTAMP_TYPE == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Bit 4: the batch is part of a transaction, or a transaction marker.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Bit 5: the batch holds control records, which consumers do not deliver.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Bit 6: `baseTimestamp` is the delete horizon of tombstones and markers (KIP-534).
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same with this codec.
    #[must_use]
    pub const fn with_codec(self, codec: Codec) -> Self {
        Self(self.0 & !Codec::ATTRIBUTES_MASK | codec.attribute_bits())
    }

    /// The same with this timestamp type.
    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with(
            Self::TIMESTAMP_TYPE,
            matches!(timestamp_type, TimestampType::LogAppendTime),
        )
    }

    /// The same with the transactional bit set or clear.
    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Self {
        self.with(Self::TRANSACTIONAL, on)
    }

    /// The same with the control bit set or clear.
    #[must_use]
    pub const fn with_control(self, on: bool) -> Self {
        self.with(Self::CONTROL, on)
    }

    /// The same with the delete-horizon bit set or clear.
    #[must_use]
    pub const fn with_delete_horizon(self, on: bool) -> Self {
        self.with(Self::DELETE_HORIZON, on)
    }

    const fn with(self, bit: i16, on: bool) -> Self {
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }
}

/// What is wrong with the bytes of a batch. `position` is the batch's first byte, counted from where the caller began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchFault {
    /// The buffer ends inside the batch; also what a torn or still unwritten tail of a log looks like.
    #[error("batch at {position}: {needed} bytes expected, {available} found")]
    Truncated {
        /// First byte of the batch.
        position: u64,
        /// Bytes of the batch, or of its header when the buffer ends inside that.
        needed: u64,
        /// Bytes that are there.
        available: u64,
    },
    /// `batchLength` is below what a header needs.
    #[error("batch at {position}: length of at least {BATCH_LENGTH_MIN} expected, {found} found")]
    Length {
        /// First byte of the batch.
        position: u64,
        /// The length field.
        found: i32,
    },
    /// Not magic 2.
    #[error("batch at {position}: magic {MAGIC_V2} expected, {found} found")]
    Magic {
        /// First byte of the batch.
        position: u64,
        /// The magic byte.
        found: i8,
    },
    /// The checksum does not match the bytes.
    #[error("batch at {position}: CRC-32C {expected:#010x} expected by its header, {found:#010x} computed")]
    Crc {
        /// First byte of the batch.
        position: u64,
        /// The stored CRC.
        expected: u32,
        /// The CRC of the bytes.
        found: u32,
    },
}

/// The header of a batch, every field as it is on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record (of the first that was ever there, after compaction); 0 in batches from clients.
    pub base_offset: i64,
    /// Bytes after this field.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch; outside the CRC.
    pub leader_epoch: i32,
    /// Format version.
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags.
    pub attributes: Attributes,
    /// Last offset minus base offset; kept by compaction, so that the offset range survives.
    pub last_offset_delta: i32,
    /// What timestamp deltas count from, or the delete horizon; milliseconds since 1970.
    pub base_timestamp: i64,
    /// Largest timestamp of the records, or the append time; milliseconds since 1970.
    pub max_timestamp: i64,
    /// −1 without idempotence.
    pub producer_id: i64,
    /// −1 without idempotence.
    pub producer_epoch: i16,
    /// Sequence of the first record, −1 without idempotence.
    pub base_sequence: i32,
    /// Records in the batch, as claimed.
    pub record_count: i32,
}

impl BatchHeader {
    /// The fields of 61 bytes, unchecked.
    #[must_use]
    pub fn decode(bytes: &[u8; BATCH_HEADER_BYTES]) -> Self {
        // `AT + N` is a constant below 61 in every use, so that the slices cannot fail and cost no check.
        fn at<const AT: usize, const N: usize>(bytes: &[u8; BATCH_HEADER_BYTES]) -> [u8; N] {
            let mut field = [0; N];
            field.copy_from_slice(&bytes[AT..AT + N]);
            field
        }
        Self {
            base_offset: i64::from_be_bytes(at::<0, 8>(bytes)),
            batch_length: i32::from_be_bytes(at::<8, 4>(bytes)),
            leader_epoch: i32::from_be_bytes(at::<12, 4>(bytes)),
            magic: i8::from_be_bytes(at::<16, 1>(bytes)),
            crc: u32::from_be_bytes(at::<17, 4>(bytes)),
            attributes: Attributes(i16::from_be_bytes(at::<21, 2>(bytes))),
            last_offset_delta: i32::from_be_bytes(at::<23, 4>(bytes)),
            base_timestamp: i64::from_be_bytes(at::<27, 8>(bytes)),
            max_timestamp: i64::from_be_bytes(at::<35, 8>(bytes)),
            producer_id: i64::from_be_bytes(at::<43, 8>(bytes)),
            producer_epoch: i16::from_be_bytes(at::<51, 2>(bytes)),
            base_sequence: i32::from_be_bytes(at::<53, 4>(bytes)),
            record_count: i32::from_be_bytes(at::<57, 4>(bytes)),
        }
    }

    /// The header as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        bytes[..16].copy_from_slice(&prefix(self.base_offset, self.batch_length, self.leader_epoch));
        bytes[16..17].copy_from_slice(&self.magic.to_be_bytes());
        bytes[17..21].copy_from_slice(&self.crc.to_be_bytes());
        bytes[21..23].copy_from_slice(&self.attributes.0.to_be_bytes());
        bytes[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        bytes[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        bytes[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        bytes[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        bytes[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        bytes[57..61].copy_from_slice(&self.record_count.to_be_bytes());
        bytes
    }

    /// Reads and checks the header at the front of `bytes`, which need not hold the records: magic 2 and a length that
    /// holds at least a header. For readers that see a log in pieces.
    ///
    /// # Errors
    /// [`BatchFault`] with this `position`.
    pub fn parse(bytes: &[u8], position: u64) -> Result<Self, BatchFault> {
        let Some(head) = bytes.first_chunk::<BATCH_HEADER_BYTES>() else {
            let (needed, available) = (BATCH_HEADER_BYTES as u64, bytes.len() as u64);
            return Err(BatchFault::Truncated {
                position,
                needed,
                available,
            });
        };
        let header = Self::decode(head);
        if header.magic != MAGIC_V2 {
            return Err(BatchFault::Magic {
                position,
                found: header.magic,
            });
        }
        if header.batch_length < BATCH_LENGTH_MIN {
            return Err(BatchFault::Length {
                position,
                found: header.batch_length,
            });
        }
        Ok(header)
    }

    /// Bytes of the whole batch by its length field. At least 61 for a parsed header.
    #[must_use]
    pub fn size(&self) -> u64 {
        (i64::from(self.batch_length) + BATCH_LENGTH_OVERHEAD_BYTES as i64).unsigned_abs()
    }

    /// Offset of the last record (of the last that was ever there, after compaction).
    #[must_use]
    pub const fn last_offset(&self) -> i64 {
        self.base_offset.wrapping_add(self.last_offset_delta as i64)
    }

    /// The offset after the batch.
    #[must_use]
    pub const fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    /// Whether the batch has a producer id (any id above −1, as in Kafka).
    #[must_use]
    pub const fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// Sequence of the last record; −1 when the batch has none. 2³¹−1 is followed by 0.
    #[must_use]
    pub const fn last_sequence(&self) -> i32 {
        if self.base_sequence == NO_SEQUENCE {
            return NO_SEQUENCE;
        }
        sequence_after(self.base_sequence, self.last_offset_delta)
    }

    /// The timestamp of a record with this delta: the append time if the batch has that, else base plus delta (which
    /// wraps, as in Kafka).
    #[must_use]
    pub const fn timestamp(&self, delta: i64) -> i64 {
        match self.attributes.timestamp_type() {
            TimestampType::LogAppendTime => self.max_timestamp,
            TimestampType::CreateTime => self.base_timestamp.wrapping_add(delta),
        }
    }

    /// The delete horizon, if the batch has one; milliseconds since 1970.
    #[must_use]
    pub const fn delete_horizon(&self) -> Option<i64> {
        if self.attributes.has_delete_horizon() {
            Some(self.base_timestamp)
        } else {
            None
        }
    }

    /// The same header for these records: length and CRC made right. What a header needs after any of its fields behind the
    /// prefix has changed (append time, attributes).
    ///
    /// # Panics
    /// When the records take more than 2 GiB, which no batch holds.
    #[must_use]
    pub fn sealed(mut self, records: &[u8]) -> Self {
        let length = BATCH_HEADER_BYTES - BATCH_LENGTH_OVERHEAD_BYTES + records.len();
        self.batch_length = i32::try_from(length).expect("a batch is smaller than 2 GiB");
        self.crc = self.computed_crc(records);
        self
    }

    /// The CRC-32C of this header with these records behind it (all bytes after the 61st).
    #[must_use]
    pub fn computed_crc(&self, records: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.encode()[CRC_START..]), records)
    }
}

/// Base offset, length and leader epoch as the first 16 bytes of a batch: what the owner puts before the received
/// bytes from the 17th on, which stay untouched.
#[must_use]
pub fn prefix(base_offset: i64, batch_length: i32, leader_epoch: i32) -> [u8; BATCH_PREFIX_BYTES] {
    let mut bytes = [0; BATCH_PREFIX_BYTES];
    bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
    bytes[8..12].copy_from_slice(&batch_length.to_be_bytes());
    bytes[12..].copy_from_slice(&leader_epoch.to_be_bytes());
    bytes
}

/// The sequence `increment` after `sequence`, both not negative: it wraps from 2³¹−1 to 0.
#[must_use]
pub const fn sequence_after(sequence: i32, increment: i32) -> i32 {
    sequence.wrapping_add(increment) & i32::MAX
}

/// One complete batch in borrowed bytes: magic 2, and as many bytes as its length says.
#[derive(Clone, Copy, Debug)]
pub struct BatchView<'a> {
    header: BatchHeader,
    bytes: &'a [u8],
}

impl<'a> BatchView<'a> {
    /// The batch at the front of `bytes`; more may follow it. The CRC is not checked.
    ///
    /// # Errors
    /// [`BatchFault`] with this `position`.
    pub fn parse(bytes: &'a [u8], position: u64) -> Result<Self, BatchFault> {
        let header = BatchHeader::parse(bytes, position)?;
        let whole = usize::try_from(header.size())
            .ok()
            .and_then(|size| bytes.get(..size));
        match whole {
            Some(bytes) => Ok(Self { header, bytes }),
            None => Err(BatchFault::Truncated {
                position,
                needed: header.size(),
                available: bytes.len() as u64,
            }),
        }
    }

    /// The header.
    #[must_use]
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The whole batch.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The records section, compressed or not.
    #[must_use]
    pub fn records_bytes(&self) -> &'a [u8] {
        self.bytes.get(BATCH_HEADER_BYTES..).unwrap_or_default()
    }

    /// The CRC-32C of the bytes as they are.
    #[must_use]
    pub fn computed_crc(&self) -> u32 {
        crc32c::crc32c(self.bytes.get(CRC_START..).unwrap_or_default())
    }

    /// Checks the bytes against the stored CRC.
    ///
    /// # Errors
    /// [`BatchFault::Crc`] with this `position`.
    pub fn check_crc(&self, position: u64) -> Result<(), BatchFault> {
        let (expected, found) = (self.header.crc, self.computed_crc());
        if expected == found {
            Ok(())
        } else {
            Err(BatchFault::Crc {
                position,
                expected,
                found,
            })
        }
    }
}

/// The batches that follow one another in a buffer, such as a part of a segment or the records of a fetch answer.
///
/// Yields each batch with its position. The first fault ends the iteration; a buffer that was cut anywhere ends with
/// [`BatchFault::Truncated`], one that ends with a batch with none.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    rest: &'a [u8],
    position: u64,
    check_crc: bool,
}

impl<'a> Batches<'a> {
    /// Starts at the front of `bytes`, which is at `position` of what the caller counts in (a file, say).
    #[must_use]
    pub const fn new(bytes: &'a [u8], position: u64) -> Self {
        Self {
            rest: bytes,
            position,
            check_crc: false,
        }
    }

    /// Checks every batch's CRC too.
    #[must_use]
    pub const fn checked(mut self) -> Self {
        self.check_crc = true;
        self
    }

    /// Where the next batch begins; after a fault, where the faulty one does.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<(u64, BatchView<'a>), BatchFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let position = self.position;
        let batch = BatchView::parse(self.rest, position).and_then(|batch| {
            if self.check_crc {
                batch.check_crc(position)?;
            }
            Ok(batch)
        });
        match batch {
            Ok(batch) => {
                self.rest = self.rest.get(batch.bytes.len()..).unwrap_or_default();
                self.position += batch.bytes.len() as u64;
                Some(Ok((position, batch)))
            }
            Err(fault) => {
                self.rest = &[];
                Some(Err(fault))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> BatchHeader {
        BatchHeader {
            base_offset: 0x0102_0304_0506_0708,
            batch_length: 49 + 5,
            leader_epoch: 7,
            magic: 2,
            crc: 0,
            attributes: Attributes(0x15),
            last_offset_delta: 9,
            base_timestamp: 1_700_000_000_000,
            max_timestamp: 1_700_000_000_009,
            producer_id: 42,
            producer_epoch: 3,
            base_sequence: i32::MAX - 4,
            record_count: 10,
        }
    }

    fn batch(records: &[u8]) -> Vec<u8> {
        [&header().sealed(records).encode(), records].concat()
    }

    #[test]
    fn header_fields_lie_where_the_format_says() {
        let bytes = batch(b"12345");
        assert_eq!(bytes[..17], [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 54, 0, 0, 0, 7, 2]);
        assert_eq!(bytes[21..27], [0, 0x15, 0, 0, 0, 9]);
        assert_eq!(
            bytes[43..61],
            [0, 0, 0, 0, 0, 0, 0, 42, 0, 3, 0x7f, 0xff, 0xff, 0xfb, 0, 0, 0, 10]
        );
        let view = BatchView::parse(&bytes, 0).expect("a batch");
        assert_eq!(view.check_crc(0), Ok(()));
        assert_eq!(view.header().encode()[..], bytes[..61]);
        assert_eq!(view.records_bytes(), b"12345");
        assert_eq!(view.header().computed_crc(b"12345"), view.header().crc);
    }

    #[test]
    fn derived_fields() {
        let mut header = header();
        assert_eq!(header.last_offset(), header.base_offset + 9);
        assert_eq!(header.next_offset(), header.base_offset + 10);
        assert_eq!(header.last_sequence(), 4, "wraps past the largest sequence to 0");
        assert_eq!(header.timestamp(-3), 1_699_999_999_997);
        header.attributes = header
            .attributes
            .with_timestamp_type(TimestampType::LogAppendTime);
        assert_eq!(header.timestamp(-3), header.max_timestamp);
        header.base_sequence = NO_SEQUENCE;
        assert_eq!(header.last_sequence(), NO_SEQUENCE);
        assert_eq!(header.delete_horizon(), None);
        header.attributes = header.attributes.with_delete_horizon(true);
        assert_eq!(header.delete_horizon(), Some(header.base_timestamp));
    }

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 1, 1), i32::MAX);
        assert_eq!(sequence_after(0, i32::MAX), i32::MAX);
        assert_eq!(sequence_after(i32::MAX, i32::MAX), i32::MAX - 1);
    }

    #[test]
    fn attributes_set_one_bit_each() {
        let all = Attributes(0)
            .with_codec(Codec::Zstd)
            .with_timestamp_type(TimestampType::LogAppendTime)
            .with_transactional(true)
            .with_control(true)
            .with_delete_horizon(true);
        assert_eq!(all, Attributes(0x7c));
        assert_eq!(all.with_codec(Codec::Gzip).with_control(false), Attributes(0x59));
        assert!(
            all.is_compressed() && all.is_transactional() && all.is_control() && all.has_delete_horizon()
        );
        assert_eq!((all.codec(), Attributes(6).codec()), (Some(Codec::Zstd), None));
    }

    #[test]
    fn the_prefix_changes_nothing_the_crc_covers() {
        let mut bytes = batch(b"12345");
        bytes[..BATCH_PREFIX_BYTES].copy_from_slice(&prefix(99, 54, 12));
        let view = BatchView::parse(&bytes, 0).expect("a batch");
        assert_eq!((view.header().base_offset, view.header().leader_epoch), (99, 12));
        assert_eq!(view.check_crc(0), Ok(()));
    }

    #[test]
    fn faults_name_position_expected_and_found() {
        let bytes = batch(b"12345");
        let parse = |bytes: &[u8]| BatchView::parse(bytes, 1000).map(|_| ());
        assert_eq!(
            parse(&bytes[..60]),
            Err(BatchFault::Truncated {
                position: 1000,
                needed: 61,
                available: 60
            })
        );
        assert_eq!(
            parse(&bytes[..65]),
            Err(BatchFault::Truncated {
                position: 1000,
                needed: 66,
                available: 65
            })
        );
        let with = |at: usize, value: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes
        };
        assert_eq!(
            parse(&with(16, &[1])),
            Err(BatchFault::Magic {
                position: 1000,
                found: 1
            })
        );
        assert_eq!(
            parse(&with(8, &[0, 0, 0, 48])),
            Err(BatchFault::Length {
                position: 1000,
                found: 48
            })
        );
        assert_eq!(
            parse(&with(8, &[0xff; 4])),
            Err(BatchFault::Length {
                position: 1000,
                found: -1
            })
        );
        assert_eq!(
            parse(&with(8, &[0x7f, 0xff, 0xff, 0xff])),
            Err(BatchFault::Truncated {
                position: 1000,
                needed: (1 << 31) + 11,
                available: 66
            })
        );
        let flipped = with(65, b"6");
        let fault = BatchView::parse(&flipped, 7)
            .and_then(|batch| batch.check_crc(7))
            .expect_err("a wrong CRC");
        assert!(matches!(fault, BatchFault::Crc { position: 7, .. }));
        assert!(fault.to_string().starts_with("batch at 7: CRC-32C 0x"), "{fault}");
    }

    #[test]
    fn concatenated_batches_are_iterated_up_to_the_first_fault() {
        let (one, two) = (batch(b"1"), batch(b"22"));
        let mut bytes = [one.clone(), two.clone(), one.clone()].concat();
        let positions: Vec<u64> = Batches::new(&bytes, 100)
            .checked()
            .map(|b| b.expect("good").0)
            .collect();
        assert_eq!(positions, [100, 162, 225]);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(Batches::new(&bytes, 0).all(|batch| batch.is_ok()));
        let mut checked = Batches::new(&bytes, 0).checked();
        assert!(checked.by_ref().take(2).all(|batch| batch.is_ok()));
        assert!(matches!(
            checked.next(),
            Some(Err(BatchFault::Crc { position: 125, .. }))
        ));
        assert_eq!(checked.position(), 125);
        assert!(checked.next().is_none());
        let mut cut = Batches::new(&bytes[..130], 0);
        assert!(cut.by_ref().take(2).all(|batch| batch.is_ok()));
        assert_eq!(
            cut.next().map(|b| b.err()),
            Some(Some(BatchFault::Truncated {
                position: 125,
                needed: 61,
                available: 5
            }))
        );
    }
}
