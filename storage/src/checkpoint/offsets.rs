//! Kafka's checkpoints of one offset per partition, one file per log directory: recovery points, log starts, high
//! watermarks, cleaner positions. Format (`kafka-surface.md` §5.3), text:
//!
//! ```text
//! 0                      version
//! 2                      number of entries
//! orders 0 417           topic, partition, offset
//! orders 1 9
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::{CheckpointError, TextError, load_text, write_atomic};
use crate::disk::{Disk, DiskError};
use crate::layout::{PartitionName, is_legal_topic};
use crate::types::Offset;

/// Offsets by partition, in the file's order.
pub type Offsets = BTreeMap<PartitionName, Offset>;

/// Reads the file; `None` when there is none.
///
/// # Errors
/// [`CheckpointError`] with file and line.
pub async fn load<D: Disk>(disk: &D, path: &Path) -> Result<Option<Offsets>, CheckpointError> {
    load_text(disk, path, parse).await
}

/// Replaces the file, atomically and durably.
///
/// # Errors
/// From the disk.
pub async fn save<D: Disk>(disk: &D, path: &Path, offsets: &Offsets) -> Result<(), DiskError> {
    write_atomic(disk, path, format(offsets).as_bytes()).await
}

/// The text of the file.
#[must_use]
pub fn format(offsets: &Offsets) -> String {
    let mut text = format!("0\n{}\n", offsets.len());
    for (name, offset) in offsets {
        writeln!(text, "{} {} {offset}", name.topic, name.partition).expect("a string takes what is written");
    }
    text
}

/// Reads the text of the file. Offsets may be −1: Kafka writes that for an unknown one.
///
/// # Errors
/// The line that is wrong, and why.
pub fn parse(text: &str) -> Result<Offsets, TextError> {
    let mut lines = (1..).zip(text.lines());
    match lines.next() {
        Some((_, "0")) => {}
        Some((line, other)) => {
            return Err(TextError::new(
                line,
                format!("version {other:?} is unknown, known is 0"),
            ));
        }
        None => return Ok(Offsets::new()), // as Kafka leaves a file it has created and never written
    }
    let (_, count) = lines
        .next()
        .ok_or_else(|| TextError::new(2, "the number of entries is missing"))?;
    let count: usize = count
        .trim()
        .parse()
        .map_err(|_| TextError::new(2, format!("{count:?} is not a number of entries")))?;
    let mut offsets = Offsets::new();
    let mut line_last = 2;
    for (line, text) in lines {
        let (name, offset) = entry(text).map_err(|reason| TextError::new(line, reason))?;
        if offsets.insert(name, offset).is_some() {
            return Err(TextError::new(
                line,
                format!("{text:?}: the partition is here twice"),
            ));
        }
        line_last = line;
    }
    if offsets.len() != count {
        let reason = format!("{} entries where line 2 announces {count}", offsets.len());
        return Err(TextError::new(line_last, reason));
    }
    Ok(offsets)
}

fn entry(text: &str) -> Result<(PartitionName, Offset), String> {
    let mut words = text.split_ascii_whitespace();
    let (Some(topic), Some(partition), Some(offset), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(format!("{text:?} is not a topic, a partition and an offset"));
    };
    if !is_legal_topic(topic) {
        return Err(format!("{topic:?} is not a topic name"));
    }
    let partition = partition.parse().ok().filter(|partition| *partition >= 0);
    let partition = partition.ok_or_else(|| format!("{text:?} has no valid partition"))?;
    let offset = offset.parse().ok().filter(|offset| *offset >= -1);
    let offset = offset.ok_or_else(|| format!("{text:?} has no valid offset"))?;
    let name = PartitionName {
        topic: topic.to_owned(),
        partition,
    };
    Ok((name, Offset(offset)))
}
