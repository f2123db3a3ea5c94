//! What the tests of the offline tools share: batches, and reading a file of them.

use std::path::Path;

use super::reader::{BadSpan, Found, SegmentReader};
use crate::types::Offset;

/// A valid batch of `records` records from `base` on, `size` bytes in all; its timestamp is `base`.
pub(crate) fn batch(base: i64, records: i32, size: usize, fill: i64) -> Vec<u8> {
    of_producer(base, records, size, fill, (-1, -1, -1), 0)
}

/// The same of a producer (id, epoch, first sequence) with these attributes.
pub(crate) fn of_producer(
    base: i64,
    records: i32,
    size: usize,
    fill: i64,
    (id, epoch, sequence): (i64, i16, i32),
    attributes: i16,
) -> Vec<u8> {
    let size = size.max(61);
    let mut out = vec![fill as u8; size];
    out[0..8].copy_from_slice(&base.to_be_bytes());
    out[8..12].copy_from_slice(&(size as i32 - 12).to_be_bytes());
    out[12..16].copy_from_slice(&0i32.to_be_bytes());
    out[16] = 2;
    out[21..23].copy_from_slice(&attributes.to_be_bytes());
    out[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    out[27..35].copy_from_slice(&base.to_be_bytes());
    out[35..43].copy_from_slice(&base.to_be_bytes());
    out[43..51].copy_from_slice(&id.to_be_bytes());
    out[51..53].copy_from_slice(&epoch.to_be_bytes());
    out[53..57].copy_from_slice(&sequence.to_be_bytes());
    out[57..61].copy_from_slice(&records.to_be_bytes());
    let crc = crc32c::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    out
}

/// What a file holds.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) bases: Vec<i64>,
    pub(crate) bad: Vec<BadSpan>,
    pub(crate) end: i64,
}

/// Reads a segment of these bytes.
pub(crate) fn collect(bytes: &[u8], base: i64) -> Collected {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("segment");
    std::fs::write(&path, bytes).unwrap();
    collect_file(&path, base)
}

/// Reads a segment file.
pub(crate) fn collect_file(path: &Path, base: i64) -> Collected {
    let mut reader = SegmentReader::open(path, Offset(base)).unwrap();
    let mut out = Collected::default();
    while let Some(found) = reader.next_found().unwrap() {
        match found {
            Found::Batch(batch) => {
                assert_eq!(batch.bytes.len(), batch.header.size as usize);
                out.bases.push(batch.header.base_offset.0);
            }
            Found::Bad(span) => out.bad.push(span),
        }
    }
    out.end = reader.end_offset().0;
    out
}
