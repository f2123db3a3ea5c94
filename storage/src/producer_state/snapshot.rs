//! The file format of producer snapshots, `<offset>.snapshot`: the state of all producers before the batch at `offset`.
//!
//! Kafka's format, version 1 (`kafka-surface.md` §5.2), big-endian:
//!
//! ```text
//!  0 | version i16 = 1
//!  2 | crc u32           CRC-32C of everything behind it
//!  6 | count i32
//! 10 | count × 46 bytes: producerId i64, epoch i16, lastSequence i32, lastOffset i64 (−1 without a batch),
//!    |   offsetDelta i32, timestamp i64, coordinatorEpoch i32, currentTxnFirstOffset i64 (−1 without)
//! ```
//!
//! That keeps one batch of each producer, so after a restart Kafka cannot recognise the retry of an older one. What we
//! know beyond it follows in a trailer, inside the CRC; Kafka reads `count` entries and does not look further:
//!
//! ```text
//!  0 | magic u32 = "PSW1"
//!  4 | count i32
//!  8 | count times: producerId i64, active i64 (ms), n u8 ≤ 4, then n × 24 bytes, oldest first:
//!    |   lastSequence i32, lastOffset i64, offsetDelta i32, timestamp i64
//! ```
//!
//! A producer is in the trailer when it has older batches and was active not long before the snapshot
//! ([`WINDOW_KEPT_MS`](super::WINDOW_KEPT_MS)), or when it was active at another time than its timestamp says. Without any
//! the trailer is left out.

use bytes::{Buf, BufMut};
use smallvec::SmallVec;

use super::entry::{AppendedBatch, BATCHES_RETAINED};
use crate::types::{Offset, ProducerId};

const VERSION: i16 = 1;
const TRAILER_MAGIC: u32 = u32::from_be_bytes(*b"PSW1");
const CRC_AT: usize = 2;
const COUNT_AT: usize = 6;
const ENTRIES_AT: usize = 10;
const ENTRY_BYTES: usize = 46;
const BATCH_BYTES: usize = 24;
const TRAILER_ENTRY_BYTES_MIN: usize = 17;
/// An activity this near to the timestamp is not worth 17 bytes.
const ACTIVE_SLACK_MS: u64 = 60_000;

/// One producer in a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its latest epoch.
    pub epoch: i16,
    /// The epoch of the last coordinator that ended a transaction; −1 when there was none.
    pub coordinator_epoch: i32,
    /// The timestamp of its last batch or marker.
    pub last_timestamp: i64,
    /// When it wrote last, by the broker's clock; the timestamp where the file does not say.
    pub active_ms: i64,
    /// The first offset of the open transaction, if any.
    pub transaction_start: Option<Offset>,
    /// Its last batch in this epoch, if any.
    pub last: Option<AppendedBatch>,
    /// The batches before that, oldest first, at most four.
    pub older: SmallVec<[AppendedBatch; BATCHES_RETAINED - 1]>,
}

/// Why a snapshot file was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The file ends too early, or the count is not what follows.
    #[error("{len} bytes do not hold what the header announces")]
    Truncated {
        /// The length of the file, bytes.
        len: usize,
    },
    /// A format we do not know.
    #[error("version {0} is unknown, known is 1")]
    Version(i16),
    /// The bytes are not those that were written.
    #[error("the CRC is {computed:#010x}, the file says {stored:#010x}")]
    Crc {
        /// In the file.
        stored: u32,
        /// Of the bytes.
        computed: u32,
    },
    /// An entry that no writer produces: twice the same producer, a negative id, offsets out of order.
    #[error("entry {entry} is out of range")]
    Entry {
        /// Its number, from 0.
        entry: usize,
    },
}

/// The file for these producers, in their order.
#[must_use]
pub fn encode(entries: impl Iterator<Item = SnapshotEntry> + Clone) -> Vec<u8> {
    let mut file = Vec::with_capacity(ENTRIES_AT + entries.size_hint().0 * ENTRY_BYTES);
    file.extend_from_slice(&[0; ENTRIES_AT]);
    let mut count = 0i32;
    for entry in entries.clone() {
        file.extend_from_slice(&entry_bytes(&entry));
        count += 1;
    }
    let trailer_at = file.len();
    let mut trailer_count = 0i32;
    for entry in entries.filter(needs_trailer) {
        if trailer_count == 0 {
            file.put_u32(TRAILER_MAGIC);
            file.put_i32(0);
        }
        encode_trailer_entry(&entry, &mut file);
        trailer_count += 1;
    }
    if let Some(field) = file.get_mut(trailer_at + 4..trailer_at + 8) {
        field.copy_from_slice(&trailer_count.to_be_bytes());
    }
    file[..CRC_AT].copy_from_slice(&VERSION.to_be_bytes());
    file[COUNT_AT..ENTRIES_AT].copy_from_slice(&count.to_be_bytes());
    let crc = crc32c::crc32c(&file[COUNT_AT..]);
    file[CRC_AT..COUNT_AT].copy_from_slice(&crc.to_be_bytes());
    file
}

/// Reads a file of ours or of Kafka's. Bytes behind the entries that are not our trailer are ignored, as Kafka does.
///
/// # Errors
/// [`SnapshotError`]; nothing of the file can be used then.
pub fn decode(file: &[u8]) -> Result<Vec<SnapshotEntry>, SnapshotError> {
    let truncated = SnapshotError::Truncated { len: file.len() };
    let (mut header, body) = file.split_at_checked(COUNT_AT).ok_or(truncated)?;
    let version = header.get_i16();
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    let (stored, computed) = (header.get_u32(), crc32c::crc32c(body));
    if stored != computed {
        return Err(SnapshotError::Crc { stored, computed });
    }
    let (mut count, body) = body.split_at_checked(size_of::<i32>()).ok_or(truncated)?;
    let count = usize::try_from(count.get_i32()).map_err(|_| truncated)?;
    let entries_len = count.checked_mul(ENTRY_BYTES).ok_or(truncated)?;
    let (mut rest, trailer) = body.split_at_checked(entries_len).ok_or(truncated)?;
    let mut entries = Vec::with_capacity(count);
    for number in 0..count {
        entries.push(decode_entry(&mut rest).ok_or(SnapshotError::Entry { entry: number })?);
    }
    refuse_repeated(&entries)?;
    decode_trailer(trailer, &mut entries, truncated)?;
    Ok(entries)
}

fn needs_trailer(entry: &SnapshotEntry) -> bool {
    !entry.older.is_empty() || entry.active_ms.abs_diff(entry.last_timestamp) > ACTIVE_SLACK_MS
}

/// Built apart and copied at once: a snapshot of 100,000 producers is taken while the shard waits.
fn entry_bytes(entry: &SnapshotEntry) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    let mut rest = bytes.as_mut_slice();
    rest.put_i64(entry.producer_id.0);
    rest.put_i16(entry.epoch);
    rest.put_i32(entry.last.map_or(-1, |batch| batch.last_sequence));
    rest.put_i64(entry.last.map_or(-1, |batch| batch.last_offset.0));
    rest.put_i32(entry.last.map_or(0, |batch| offset_delta(&batch)));
    rest.put_i64(entry.last_timestamp);
    rest.put_i32(entry.coordinator_epoch);
    rest.put_i64(entry.transaction_start.unwrap_or(Offset::NONE).0);
    bytes
}

fn encode_trailer_entry(entry: &SnapshotEntry, file: &mut Vec<u8>) {
    let older = entry.older.len().min(BATCHES_RETAINED - 1);
    file.put_i64(entry.producer_id.0);
    file.put_i64(entry.active_ms);
    file.put_u8(older as u8);
    for batch in &entry.older[entry.older.len() - older..] {
        let mut bytes = [0; BATCH_BYTES];
        let mut rest = bytes.as_mut_slice();
        rest.put_i32(batch.last_sequence);
        rest.put_i64(batch.last_offset.0);
        rest.put_i32(offset_delta(batch));
        rest.put_i64(batch.timestamp);
        file.extend_from_slice(&bytes);
    }
}

/// One entry of [`ENTRY_BYTES`]; the caller has checked the length.
fn decode_entry(rest: &mut &[u8]) -> Option<SnapshotEntry> {
    let producer_id = ProducerId(rest.get_i64());
    let epoch = rest.get_i16();
    let (last_sequence, last_offset) = (rest.get_i32(), rest.get_i64());
    let (delta, timestamp) = (rest.get_i32(), rest.get_i64());
    let (coordinator_epoch, transaction_start) = (rest.get_i32(), rest.get_i64());
    let last = if last_offset < 0 {
        None
    } else {
        Some(batch(last_sequence, last_offset, delta, timestamp)?)
    };
    (producer_id.0 >= 0).then_some(SnapshotEntry {
        producer_id,
        epoch,
        coordinator_epoch,
        last_timestamp: timestamp,
        active_ms: timestamp,
        transaction_start: (transaction_start >= 0).then_some(Offset(transaction_start)),
        last,
        older: SmallVec::new(),
    })
}

/// A batch from its numbers, if they can be those of one.
fn batch(last_sequence: i32, last_offset: i64, delta: i32, timestamp: i64) -> Option<AppendedBatch> {
    let first_offset = last_offset.checked_sub(i64::from(delta))?;
    (delta >= 0 && first_offset >= 0).then_some(AppendedBatch {
        first_offset: Offset(first_offset),
        last_offset: Offset(last_offset),
        last_sequence,
        timestamp,
    })
}

fn decode_trailer(
    mut rest: &[u8],
    entries: &mut [SnapshotEntry],
    truncated: SnapshotError,
) -> Result<(), SnapshotError> {
    if rest.len() < 8 || rest.get_u32() != TRAILER_MAGIC {
        return Ok(());
    }
    let count = rest.get_i32();
    // Both parts are in the same order, so each search goes on where the one before ended.
    let mut candidates = entries.iter_mut().enumerate();
    for _ in 0..count {
        if rest.len() < TRAILER_ENTRY_BYTES_MIN {
            return Err(truncated);
        }
        let producer_id = ProducerId(rest.get_i64());
        let active_ms = rest.get_i64();
        let older = usize::from(rest.get_u8());
        let found = candidates.find(|(_, entry)| entry.producer_id == producer_id);
        let (number, entry) = found.ok_or(truncated)?;
        if older >= BATCHES_RETAINED || rest.len() < older * BATCH_BYTES {
            return Err(truncated);
        }
        entry.active_ms = active_ms;
        for _ in 0..older {
            let (last_sequence, last_offset) = (rest.get_i32(), rest.get_i64());
            let (delta, timestamp) = (rest.get_i32(), rest.get_i64());
            let older = batch(last_sequence, last_offset, delta, timestamp);
            entry
                .older
                .push(older.ok_or(SnapshotError::Entry { entry: number })?);
        }
    }
    Ok(())
}

fn refuse_repeated(entries: &[SnapshotEntry]) -> Result<(), SnapshotError> {
    let mut ids: Vec<(ProducerId, usize)> = entries
        .iter()
        .enumerate()
        .map(|(number, entry)| (entry.producer_id, number))
        .collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(SnapshotError::Entry { entry: pair[1].1 }),
        None => Ok(()),
    }
}

const fn offset_delta(batch: &AppendedBatch) -> i32 {
    batch.last_offset.0.wrapping_sub(batch.first_offset.0) as i32
}
