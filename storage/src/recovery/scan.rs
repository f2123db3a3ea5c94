//! Walks the batches of a segment file, checking each CRC, until the file ends or something is not a batch.

use bytes::Bytes;
use protocol::record::BATCH_HEADER_BYTES;

use super::fault::Fault;
use crate::disk::{DiskFile, IO_BYTES_MAX};
use crate::error::StorageError;
use crate::log::batch::{BatchHeader, computed_crc};
use crate::log::read::read_window;
use crate::types::Offset;

/// Where a scan ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScanEnd {
    /// Behind the last valid batch, bytes.
    pub(crate) position: u32,
    /// One past the last valid batch's last offset.
    pub(crate) offset: Offset,
    /// Why what follows is no batch; `None` at the exact end of the file.
    pub(crate) fault: Option<Fault>,
}

/// Scans from `position`, where a batch with at least offset `expected` must start, to `limit`. `visit` gets each valid
/// batch with its position.
pub(crate) async fn scan_segment<F: DiskFile>(
    file: &F,
    position: u32,
    expected: Offset,
    limit: u32,
    mut visit: impl FnMut(&BatchHeader, u32, &Bytes),
) -> Result<ScanEnd, StorageError> {
    let mut end = ScanEnd {
        position,
        offset: expected,
        fault: None,
    };
    let mut want = IO_BYTES_MAX;
    while end.position < limit {
        let len = want.min((limit - end.position) as usize);
        let window = read_window(file, u64::from(end.position), len).await?;
        let last = window.len() < len || end.position as usize + window.len() >= limit as usize;
        let mut at = 0;
        loop {
            match next_batch(&window, at, end.offset) {
                Next::Batch(header, bytes) => {
                    visit(&header, end.position, &bytes);
                    at += header.size as usize;
                    end.position += header.size;
                    end.offset = header.last_offset().plus(1);
                }
                Next::Fault(fault) => {
                    end.fault = Some(fault);
                    return Ok(end);
                }
                Next::Short(_) if last => {
                    end.fault = (at < window.len()).then_some(Fault::CutOff);
                    return Ok(end);
                }
                Next::Short(needed) => {
                    want = needed.max(IO_BYTES_MAX);
                    break;
                }
            }
        }
    }
    Ok(end)
}

enum Next {
    Batch(BatchHeader, Bytes),
    Fault(Fault),
    /// That many bytes are needed.
    Short(usize),
}

fn next_batch(window: &Bytes, at: usize, expected: Offset) -> Next {
    let rest = window.get(at..).unwrap_or_default();
    if rest.len() < BATCH_HEADER_BYTES {
        return Next::Short(BATCH_HEADER_BYTES);
    }
    let Some(header) = BatchHeader::parse(rest) else {
        return Next::Fault(Fault::Header);
    };
    if header.base_offset < expected {
        let found = header.base_offset;
        return Next::Fault(Fault::Backwards { found });
    }
    let size = header.size as usize;
    if rest.len() < size {
        return Next::Short(size);
    }
    let bytes = window.slice(at..at + size);
    match computed_crc(&bytes) {
        Some(found) if found == header.wire.crc => Next::Batch(header, bytes),
        found => Next::Fault(Fault::Crc {
            expected: header.wire.crc,
            found: found.unwrap_or_default(),
        }),
    }
}
