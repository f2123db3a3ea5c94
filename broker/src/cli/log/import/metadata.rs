//! Reads the metadata log of Apache Kafka: its newest whole snapshot, the segments behind it, `bootstrap.checkpoint` for a
//! cluster whose log says nothing of features yet. What the records mean is `shard::quorum::takeover`'s business.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use shard::controller::METADATA_TOPIC;
use shard::quorum::takeover::{Takeover, TakeoverError};
use storage::layout::{FileName, SegmentFile};
use storage::offline::reader::{Fault, Found, SegmentReader};
use storage::types::Offset;

use super::super::{io_failed, shown};
use crate::exit::{Failure, Status};

/// The first records of a cluster, written when its directory is formatted.
const BOOTSTRAP_FILE: &str = "bootstrap.checkpoint";

/// The metadata log's directory in `log_dir`.
pub(super) fn directory(log_dir: &Path) -> PathBuf {
    log_dir.join(format!("{METADATA_TOPIC}-0"))
}

/// Reads all of it. `may_be_torn`: the broker did not stop in order, so the log may end in a torn batch.
pub(super) fn read(log_dir: &Path, cluster_id: &str, may_be_torn: bool) -> Result<Takeover, Failure> {
    let dir = directory(log_dir);
    let entries = std::fs::read_dir(&dir).map_err(|error| {
        let sentence = format!(
            "{} cannot be read: {error}; name the directory that holds {METADATA_TOPIC}-0 with --metadata",
            shown(&dir)
        );
        Failure::new(Status::Data, sentence)
    })?;
    let names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let mut snapshots: Vec<(Offset, i32, &String)> = names
        .iter()
        .filter_map(|name| snapshot(name).map(|(end, epoch)| (end, epoch, name)))
        .collect();
    snapshots.sort_unstable();
    let mut read = None;
    for (end, epoch, name) in snapshots.into_iter().rev() {
        let mut takeover = Takeover::new(cluster_id);
        if read_file(
            &mut takeover,
            &dir.join(name),
            Offset::ZERO,
            Offset::ZERO,
            false,
            false,
        )? {
            takeover.snapshot_ends(end, epoch);
            read = Some((end, takeover));
            break;
        }
    }
    let (from, mut takeover) = read.unwrap_or_else(|| (Offset::ZERO, Takeover::new(cluster_id)));
    let mut bases: Vec<Offset> = names.iter().filter_map(|name| FileName::log_base(name)).collect();
    bases.sort_unstable();
    let first = bases.iter().rposition(|base| *base <= from).unwrap_or(0);
    let bases = bases.get(first..).unwrap_or_default();
    if bases.first().is_none_or(|base| *base > from) {
        let sentence = format!(
            "{} has no segment that goes on at offset {from}, where its snapshot ends",
            shown(&dir)
        );
        return Err(Failure::new(Status::Data, sentence));
    }
    for (number, base) in bases.iter().enumerate() {
        let is_last = number + 1 == bases.len();
        let path = dir.join(SegmentFile::Log.name(*base));
        read_file(&mut takeover, &path, *base, from, true, is_last && may_be_torn)?;
    }
    if !takeover.has_features() {
        read_bootstrap(&mut takeover, log_dir)?;
    }
    Ok(takeover)
}

/// A directory that was formatted and whose controller wrote nothing yet.
fn read_bootstrap(takeover: &mut Takeover, log_dir: &Path) -> Result<(), Failure> {
    let path = log_dir.join(BOOTSTRAP_FILE);
    if path.exists() {
        read_file(takeover, &path, Offset::ZERO, Offset::ZERO, false, false)?;
    }
    Ok(())
}

/// Reads the batches of a file from offset `from` on. Whether a snapshot's footer was among them.
fn read_file(
    takeover: &mut Takeover,
    path: &Path,
    base: Offset,
    from: Offset,
    is_log: bool,
    may_be_torn: bool,
) -> Result<bool, Failure> {
    let mut reader = SegmentReader::open(path, base).map_err(|error| io_failed(path, &error))?;
    let (mut is_whole, size) = (false, reader.size());
    while let Some(found) = reader.next_found().map_err(|error| io_failed(path, &error))? {
        match found {
            Found::Batch(batch) if batch.header.last_offset() < from => {}
            Found::Batch(batch) => {
                let bytes = Bytes::copy_from_slice(batch.bytes);
                is_whole |= takeover
                    .batch(&bytes, is_log)
                    .map_err(|error| refused(path, &error))?;
            }
            Found::Bad(span) if span.end == size && (may_be_torn || span.fault == Fault::Zeroes) => break,
            Found::Bad(_) if !is_log => return Ok(false),
            Found::Bad(span) => {
                let sentence = format!(
                    "{} is damaged at byte {}: expected {}, found {}",
                    shown(path),
                    span.position,
                    span.expected(),
                    span.fault
                );
                return Err(Failure::new(Status::Data, sentence));
            }
        }
    }
    Ok(is_whole)
}

pub(super) fn refused(path: &Path, error: &TakeoverError) -> Failure {
    let sentence = format!("{}: {}", shown(path), crate::client::clean(&error.to_string()));
    Failure::new(Status::Data, sentence)
}

/// End offset and epoch in a snapshot's file name.
fn snapshot(name: &str) -> Option<(Offset, i32)> {
    let (offset, epoch) = name.strip_suffix(".checkpoint")?.split_once('-')?;
    let is_digits =
        |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_digits(offset, 20) && is_digits(epoch, 10))
        .then(|| Some((Offset(offset.parse().ok()?), epoch.parse().ok()?)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_told_by_their_names() {
        assert_eq!(
            snapshot("00000000000000000417-0000000003.checkpoint"),
            Some((Offset(417), 3))
        );
        for name in [
            "00000000000000000417-0000000003.checkpoint.deleted",
            "00000000000000000417-3.checkpoint",
            "bootstrap.checkpoint",
            "x0000000000000000417-0000000003.checkpoint",
        ] {
            assert_eq!(snapshot(name), None, "{name}");
        }
    }
}
