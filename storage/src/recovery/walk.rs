//! Reading segments at recovery: batch by batch with CRC checks, rebuilding indexes, epochs and producer state on the way;
//! and the index files that make that unnecessary.

use std::io::ErrorKind;
use std::path::Path;

use bytes::Bytes;

use super::record::PlaceRecord;
use super::scan::{ScanEnd, scan_segment};
use crate::checkpoint;
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::StorageError;
use crate::layout::SegmentFile as SegmentFileKind;
use crate::log::batch::BatchHeader;
use crate::log::{LogState, segment_path};
use crate::producer_state::ProducerState;
use crate::segment::indexes::SegmentIndexes;
use crate::segment::offset_index::{OFFSET_ENTRY_BYTES, OffsetIndex};
use crate::segment::state::Segment;
use crate::segment::time_index::{TIME_ENTRY_BYTES, TimeIndex, TimestampOffset};
use crate::segment::txn_index::{TXN_ENTRY_BYTES, TxnIndex};
use crate::types::Offset;

/// The largest index or snapshot file that is read, bytes.
const SMALL_FILE_BYTES_MAX: usize = 64 << 20;

/// Walks the batches of a segment from `place` (its beginning if none) to `limit`. Producers are replayed from
/// `replay_from` on. The segment gets its indexes; its size is left to the caller.
pub(super) async fn walk<D: Disk>(
    disk: &D,
    dir: &Path,
    state: &mut LogState<D>,
    segment: &mut Segment<D>,
    limit: u32,
    place: Option<(&PlaceRecord, SegmentIndexes)>,
    replay: &mut Replay,
) -> Result<ScanEnd, StorageError> {
    let (position, expected, mut indexes) = match place {
        Some((place, indexes)) => {
            segment.first_timestamp = place.first_timestamp;
            (place.position, Offset(place.offset), indexes)
        }
        None => {
            let mut empty = SegmentIndexes::new(segment.base, state.config.segment_index_bytes as usize);
            if replay.from > segment.base && !replay.is_below_known {
                empty.txn = load_txn_before(disk, dir, segment.base, replay.from).await?;
            }
            (0, segment.base, empty)
        }
    };
    let interval = state.config.index_interval_bytes;
    let visit = |header: &BatchHeader, position: u32, bytes: &Bytes| {
        let entry = header.indexed_at(position);
        if indexes.append(entry, interval).is_err() {
            tracing::warn!(dir = %dir.display(), offset = %header.base_offset, "index full while rebuilding");
        }
        segment.first_timestamp.get_or_insert(header.max_timestamp);
        state
            .epochs
            .observe(header.leader_epoch, header.base_offset, header.last_offset());
        replay_producers(state, &mut indexes, header, bytes, replay);
    };
    let end = if position < limit {
        let path = segment_path(dir, segment.base, SegmentFileKind::Log);
        let file = disk.open(&path, OpenMode::Read).await?;
        let end = scan_segment(&file, position, expected, limit, visit).await?;
        file.close().await?;
        end
    } else {
        ScanEnd {
            position,
            offset: expected,
            fault: None,
        }
    };
    segment.largest = indexes.largest_timestamp();
    segment.indexes = Some(Box::new(indexes));
    Ok(end)
}

/// The transactions of a segment that were aborted before `from`, where the replay of producers begins: it does not find those
/// again, and without them their records would be visible.
async fn load_txn_before<D: Disk>(
    disk: &D,
    dir: &Path,
    base: Offset,
    from: Offset,
) -> Result<TxnIndex, StorageError> {
    let bytes = read_small(disk, &segment_path(dir, base, SegmentFileKind::TxnIndex)).await?;
    let decoded = bytes.map(|bytes| TxnIndex::decode(base, &bytes));
    let mut index = match decoded {
        None => TxnIndex::new(base),
        Some(Ok(index)) => index,
        Some(Err(error)) => {
            tracing::warn!(dir = %dir.display(), segment = %base, %error, "the index of aborted transactions is lost");
            TxnIndex::new(base)
        }
    };
    index.truncate(from);
    Ok(index)
}

/// From where producers are replayed, and the time it is.
#[derive(Debug)]
pub(super) struct Replay {
    pub(super) from: Offset,
    pub(super) now_ms: i64,
    /// The producers of segments that are walked below that: their transaction indexes are made from these.
    pub(super) below: ProducerState,
    /// Those are right. Where they are not known, the index files say what was aborted.
    pub(super) is_below_known: bool,
}

impl Replay {
    /// Nobody below is known.
    pub(super) fn new(from: Offset, now_ms: i64, producers_max: usize) -> Self {
        Self {
            from,
            now_ms,
            below: ProducerState::new(Offset::NONE, producers_max),
            is_below_known: false,
        }
    }
}

fn replay_producers<D: Disk>(
    state: &mut LogState<D>,
    indexes: &mut SegmentIndexes,
    header: &BatchHeader,
    bytes: &Bytes,
    replay: &mut Replay,
) {
    if header.base_offset < replay.from && !replay.is_below_known {
        return;
    }
    let producers = if header.base_offset < replay.from {
        &mut replay.below
    } else {
        &mut state.producers
    };
    let completed = producers.apply(&header.producer_facts(bytes), replay.now_ms);
    if let Some(aborted) = completed.and_then(|txn| txn.aborted_txn()) {
        let offset = aborted.last_offset;
        if indexes.txn.append(aborted).is_err() {
            tracing::warn!(%offset, "a transaction marker out of order");
        }
    }
}

/// Whether a time index may go on with `largest`, the largest timestamp of what it covers: its last entry is that one, or an
/// earlier one at an earlier offset. In a file that was put in another's place it need not be.
fn is_of_same_log(time: &TimeIndex, largest: TimestampOffset) -> bool {
    let last = time.last();
    time.is_empty() || last == largest || (last.timestamp < largest.timestamp && last.offset < largest.offset)
}

/// Whether the batch that the time index of an active segment names last has the time that it says. It is read only where the
/// index does not name the largest timestamp, as after a clean stop.
async fn is_of_segment<D: Disk>(
    disk: &D,
    dir: &Path,
    place: &PlaceRecord,
    offset: &OffsetIndex,
    time: &TimeIndex,
) -> Result<bool, StorageError> {
    let last = time.last();
    if time.is_empty() || last == place.largest() {
        return Ok(true);
    }
    let base = Offset(place.segment);
    let from = offset.lookup(last.offset).position;
    let behind = offset.iter().find(|entry| entry.offset > last.offset);
    let to = behind.map_or(place.position, |entry| entry.position);
    let path = segment_path(dir, base, SegmentFileKind::Log);
    let file = disk.open(&path, OpenMode::Read).await?;
    let mut is_as_named = false;
    scan_segment(&file, from, base, to, |header, _, _| {
        let is_named = (header.base_offset..=header.last_offset()).contains(&last.offset);
        is_as_named |= is_named && header.max_timestamp == last.timestamp;
    })
    .await?;
    file.close().await?;
    Ok(is_as_named)
}

/// The part of an active segment's indexes that lies before `place`; `None` when the files do not have it.
pub(super) async fn load_indexes_before<D: Disk>(
    disk: &D,
    dir: &Path,
    place: &PlaceRecord,
    bytes_max: usize,
) -> Result<Option<SegmentIndexes>, StorageError> {
    let base = Offset(place.segment);
    let part = async |kind, entries: u32, entry_bytes: usize| {
        let bytes = if entries == 0 {
            Some(Bytes::new())
        } else {
            read_small(disk, &segment_path(dir, base, kind)).await?
        };
        let wanted = entries as usize * entry_bytes;
        Ok::<_, StorageError>(
            bytes
                .filter(|bytes| bytes.len() >= wanted)
                .map(|bytes| bytes.slice(..wanted)),
        )
    };
    let (Some(offset), Some(time), Some(txn)) = (
        part(
            SegmentFileKind::OffsetIndex,
            place.offset_entries,
            OFFSET_ENTRY_BYTES,
        )
        .await?,
        part(SegmentFileKind::TimeIndex, place.time_entries, TIME_ENTRY_BYTES).await?,
        part(SegmentFileKind::TxnIndex, place.txn_entries, TXN_ENTRY_BYTES).await?,
    ) else {
        return Ok(None);
    };
    let decoded = (
        OffsetIndex::decode(base, bytes_max, &offset),
        TimeIndex::decode(base, bytes_max, &time),
        TxnIndex::decode(base, &txn),
    );
    let (Ok(offset), Ok(time), Ok(txn)) = decoded else {
        return Ok(None);
    };
    let before = |offset: Option<Offset>| offset.is_none_or(|offset| offset.0 < place.offset);
    let is_sane = before(offset.last().map(|last| last.offset))
        && offset.last().is_none_or(|last| last.position < place.position)
        && is_of_same_log(&time, place.largest())
        && is_of_segment(disk, dir, place, &offset, &time).await?;
    Ok(is_sane.then(|| SegmentIndexes::from_parts(offset, time, txn, place.largest())))
}

/// A whole small file; `None` when it is missing or absurdly large.
pub(super) async fn read_small<D: Disk>(disk: &D, path: &Path) -> Result<Option<Bytes>, StorageError> {
    match checkpoint::read_small(disk, path, SMALL_FILE_BYTES_MAX).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_not_found() || error.source.kind() == ErrorKind::InvalidData => Ok(None),
        Err(error) => Err(error.into()),
    }
}
