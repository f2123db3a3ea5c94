//! What must be there and is not: the checkpoint of a log directory with logs, the directory of a log that the checkpoint
//! knows, the segments at its beginning.

use std::path::Path;

use super::record::{LogRecord, directory_path};
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::layout::{CLEAN_SHUTDOWN_FILE, DirName, SegmentFile};
use crate::log::segment_path;
use crate::types::Offset;

/// The log directory `dir` has no checkpoint of ours. Apache Kafka may have left it, or it is new.
///
/// # Errors
/// It has logs and was not closed in order, so that whoever wrote them has more to say about them than what is there.
/// Errors of the disk.
pub(super) async fn check_unknown_directory<D: Disk>(disk: &D, dir: &Path) -> Result<(), StorageError> {
    let entries = disk.list(dir).await?;
    let is_log = |name: &str| matches!(DirName::parse(name), DirName::Partition(_));
    let log = entries.iter().find(|entry| entry.is_dir && is_log(&entry.name));
    let Some(log) = log else { return Ok(()) };
    if entries.iter().any(|entry| entry.name == CLEAN_SHUTDOWN_FILE) {
        tracing::warn!(
            dir = %dir.display(),
            log = log.name,
            "logs without a checkpoint of this broker: taken as they are, since the broker before was stopped in order"
        );
        return Ok(());
    }
    let expected = format!(
        "a checkpoint, since {} is there and no {CLEAN_SHUTDOWN_FILE} says that it is complete",
        log.name
    );
    Err(Damage::of_file(directory_path(dir), 0, expected, "no file").into())
}

/// The directory `dir` is missing.
///
/// # Errors
/// Something was durable in it. (One that had nothing yet may have been lost with the power.)
pub(super) fn check_directory(dir: &Path, known: Option<&LogRecord>) -> Result<(), Damage> {
    let Some(record) = known.filter(|record| record.durable_end > 0) else {
        return Ok(());
    };
    let end = Offset(record.durable_end);
    Err(Damage {
        path: dir.to_owned(),
        position: 0,
        first_offset: Offset(record.log_start.max(0)),
        end_offset: end,
        expected: format!("the directory of a log with batches up to offset {end}, which were durable"),
        found: "no directory".to_owned(),
    })
}

/// The first segment in `dir` starts at `first`.
///
/// # Errors
/// Something below it was durable, and the log does not start above that.
pub(super) fn check_first_segment(
    dir: &Path,
    first: Offset,
    known: Option<&LogRecord>,
) -> Result<(), Damage> {
    let Some(record) = known.filter(|record| record.log_start >= 0) else {
        return Ok(());
    };
    let start = Offset(record.log_start);
    let missing_end = first.min(Offset(record.durable_end));
    if missing_end <= start {
        return Ok(());
    }
    Err(Damage {
        path: segment_path(dir, start, SegmentFile::Log),
        position: 0,
        first_offset: start,
        end_offset: missing_end,
        expected: format!("a segment with offset {start}, where the log starts"),
        found: format!("no segment below offset {first}"),
    })
}
