//! The index files of a closed segment, and why they are to be made anew. Whether whole ones belong to the segment is seen when
//! they are used ([`crate::log::index_check`]).

use std::path::Path;

use super::walk::read_small;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::layout::SegmentFile as SegmentFileKind;
use crate::log::segment_path;
use crate::segment::indexes::SegmentIndexes;
use crate::segment::offset_index::OffsetIndex;
use crate::segment::time_index::TimeIndex;
use crate::segment::txn_index::TxnIndex;
use crate::types::Offset;

/// The indexes of the closed segment of `size` bytes at `base` in `dir`, which ends at offset `next`; the inner error is why
/// they are to be made anew.
///
/// # Errors
/// [`StorageError`] from the disk.
pub(super) async fn load_indexes<D: Disk>(
    disk: &D,
    dir: &Path,
    (base, next): (Offset, Offset),
    bytes_max: usize,
    size: u32,
) -> Result<Result<SegmentIndexes, String>, StorageError> {
    let Some(offset) = read_small(disk, &segment_path(dir, base, SegmentFileKind::OffsetIndex)).await? else {
        return Ok(Err("no offset index".to_owned()));
    };
    let Some(time) = read_small(disk, &segment_path(dir, base, SegmentFileKind::TimeIndex)).await? else {
        return Ok(Err("no time index".to_owned()));
    };
    let txn = read_small(disk, &segment_path(dir, base, SegmentFileKind::TxnIndex)).await?;
    let offset = match OffsetIndex::decode(base, bytes_max, &offset) {
        Ok(index) if index.last().is_some_and(|last| last.position >= size) => {
            return Ok(Err("offset index: beyond the end of the segment".to_owned()));
        }
        Ok(index) => index,
        Err(error) => return Ok(Err(format!("offset index: {error}"))),
    };
    let time = match TimeIndex::decode(base, bytes_max, &time) {
        Ok(index) => index,
        Err(error) => return Ok(Err(format!("time index: {error}"))),
    };
    let txn = match txn.map_or_else(|| Ok(TxnIndex::new(base)), |bytes| TxnIndex::decode(base, &bytes)) {
        Ok(index) => index,
        Err(error) => return Ok(Err(format!("transaction index: {error}"))),
    };
    let is_inside = |offset: Offset| offset >= base && offset < next;
    if txn
        .entries()
        .last()
        .is_some_and(|last| !is_inside(last.last_offset))
    {
        return Ok(Err("transaction index: a marker beyond the segment".to_owned()));
    }
    let largest = time.last();
    let indexes = SegmentIndexes::from_parts(offset, time, txn, largest);
    Ok(Ok(indexes))
}
