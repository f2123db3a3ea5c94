//! A record batch as the log engine sees it: the fields of its 61-byte header (`kafka-surface.md` §5.1), the marker of a
//! control batch, and the 16-byte prefix that a leader writes.

use bytes::Bytes;

use crate::producer_state::{BatchFacts, BatchKind, Marker};
use crate::types::{LeaderEpoch, Offset, ProducerId};

/// Bytes of a batch header.
pub const BATCH_HEADER_BYTES: usize = 61;
/// Bytes at the start of a batch that are not covered by its CRC's meaning for clients: base offset, length, leader epoch.
pub const BATCH_PREFIX_BYTES: usize = 16;

/// The header of a version 2 batch. Plain values; claims of whoever wrote the batch until the CRC is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// First offset.
    pub base_offset: Offset,
    /// The whole batch, bytes (the length field plus 12).
    pub size: u32,
    /// The leader's epoch when it was appended.
    pub leader_epoch: LeaderEpoch,
    /// CRC-32C of the bytes from 21 on.
    pub crc: u32,
    /// Codec, timestamp type, transactional, control, delete horizon.
    pub attributes: i16,
    /// Last offset minus base offset.
    pub last_offset_delta: i32,
    /// Timestamp of the first record, or the delete horizon.
    pub base_timestamp: i64,
    /// Largest timestamp.
    pub max_timestamp: i64,
    /// The producer, −1 none.
    pub producer_id: ProducerId,
    /// Its epoch, −1 none.
    pub producer_epoch: i16,
    /// Sequence of the first record, −1 none.
    pub base_sequence: i32,
    /// Number of records.
    pub records: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`. `None` when it is none: too short, another magic, or a length or delta
    /// that cannot be.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.first_chunk::<BATCH_HEADER_BYTES>()?;
        let length = u32_at(head, 8);
        if head[16] != 2 || length > i32::MAX as u32 - 12 || (length as usize) < BATCH_HEADER_BYTES - 12 {
            return None;
        }
        let header = Self {
            base_offset: Offset(i64_at(head, 0)),
            size: length + 12,
            leader_epoch: LeaderEpoch(i32_at(head, 12)),
            crc: u32_at(head, 17),
            attributes: i16_at(head, 21),
            last_offset_delta: i32_at(head, 23),
            base_timestamp: i64_at(head, 27),
            max_timestamp: i64_at(head, 35),
            producer_id: ProducerId(i64_at(head, 43)),
            producer_epoch: i16_at(head, 51),
            base_sequence: i32_at(head, 53),
            records: i32_at(head, 57),
        };
        let offsets_valid = header.base_offset.0 >= 0 && header.last_offset_delta >= 0;
        (offsets_valid && header.base_offset.0 < i64::MAX - i64::from(i32::MAX)).then_some(header)
    }

    /// The last offset.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        self.base_offset.plus(self.last_offset_delta as i64)
    }

    /// Whether the batch is a control batch.
    #[must_use]
    pub const fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// Whether the timestamps are the broker's (`LogAppendTime`).
    #[must_use]
    pub const fn is_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }

    /// What producer state depends on. `batch` is the whole batch.
    #[must_use]
    pub fn producer_facts(&self, batch: &[u8]) -> BatchFacts {
        let kind = match (self.is_control(), self.is_transactional()) {
            (true, true) => control_marker(batch).map_or(BatchKind::EmptyControl, BatchKind::Marker),
            (true, false) => BatchKind::EmptyControl,
            (false, true) => BatchKind::Transactional,
            (false, false) => BatchKind::Plain,
        };
        BatchFacts {
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: self.base_sequence,
            base_offset: self.base_offset,
            last_offset: self.last_offset(),
            max_timestamp: self.max_timestamp,
            kind,
        }
    }
}

/// Whether `batch`, exactly one batch, has the CRC its header claims.
#[must_use]
pub fn crc_matches(header: &BatchHeader, batch: &[u8]) -> bool {
    batch
        .get(21..)
        .is_some_and(|covered| crc32c::crc32c(covered) == header.crc)
}

/// The first 16 bytes of a batch with its final offset and leader epoch.
#[must_use]
pub fn prefix(header: &BatchHeader, base: Offset, epoch: LeaderEpoch) -> [u8; BATCH_PREFIX_BYTES] {
    let mut out = [0; BATCH_PREFIX_BYTES];
    out[0..8].copy_from_slice(&base.0.to_be_bytes());
    out[8..12].copy_from_slice(&(header.size - 12).to_be_bytes());
    out[12..16].copy_from_slice(&epoch.0.to_be_bytes());
    out
}

/// The marker in a control batch: its single record's key names commit (1) or abort (0), the value the coordinator epoch.
/// `None` for other control records, and for a batch whose record was compacted away.
fn control_marker(batch: &[u8]) -> Option<Marker> {
    let mut rest = batch.get(BATCH_HEADER_BYTES..)?;
    varint(&mut rest)?; // record length
    rest = rest.get(1..)?; // attributes
    varint(&mut rest)?; // timestamp delta
    varint(&mut rest)?; // offset delta
    if varint(&mut rest)? < 4 {
        return None;
    }
    let (key, behind) = rest.split_first_chunk::<4>()?;
    let aborted = match i16::from_be_bytes([key[2], key[3]]) {
        0 => true,
        1 => false,
        _ => return None,
    };
    rest = behind;
    if varint(&mut rest)? < 6 {
        return None;
    }
    let (value, _) = rest.split_first_chunk::<6>()?;
    Some(Marker {
        aborted,
        coordinator_epoch: i32::from_be_bytes([value[2], value[3], value[4], value[5]]),
    })
}

/// A zig-zag variable-length integer of at most ten bytes.
fn varint(rest: &mut &[u8]) -> Option<i64> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value >> 1) as i64 ^ -((value & 1) as i64));
        }
    }
    None
}

/// A batch cut from larger bytes with its header, or what is wrong with it.
pub(crate) fn split_batch(bytes: &Bytes, at: usize) -> Result<(BatchHeader, Bytes), &'static str> {
    let header = bytes
        .get(at..)
        .and_then(BatchHeader::parse)
        .ok_or("not a version 2 batch header")?;
    let end = at + header.size as usize;
    if end > bytes.len() {
        return Err("the batch is longer than what is there");
    }
    Ok((header, bytes.slice(at..end)))
}

fn i16_at(head: &[u8; BATCH_HEADER_BYTES], at: usize) -> i16 {
    i16::from_be_bytes([head[at], head[at + 1]])
}

fn u32_at(head: &[u8; BATCH_HEADER_BYTES], at: usize) -> u32 {
    u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

fn i32_at(head: &[u8; BATCH_HEADER_BYTES], at: usize) -> i32 {
    u32_at(head, at) as i32
}

fn i64_at(head: &[u8; BATCH_HEADER_BYTES], at: usize) -> i64 {
    i64::from(i32_at(head, at)) << 32 | i64::from(u32_at(head, at + 4))
}
