//! Kafka's `partition.metadata`: the topic id a partition directory belongs to. Format (`kafka-surface.md` §5.2), text:
//!
//! ```text
//! version: 0
//! topic_id: Xz7bQpNWS_mQmJcBWQ0dzg
//! ```

use std::path::Path;

use protocol::Uuid;

use super::{CheckpointError, TextError, load_text, write_atomic};
use crate::disk::{Disk, DiskError};
use crate::types::TopicId;

/// Reads the file; `None` when there is none.
///
/// # Errors
/// [`CheckpointError`] with file and line.
pub async fn load<D: Disk>(disk: &D, path: &Path) -> Result<Option<TopicId>, CheckpointError> {
    load_text(disk, path, parse).await
}

/// Replaces the file, atomically and durably.
///
/// # Errors
/// From the disk.
pub async fn save<D: Disk>(disk: &D, path: &Path, topic: TopicId) -> Result<(), DiskError> {
    write_atomic(disk, path, format(topic).as_bytes()).await
}

/// The text of the file.
#[must_use]
pub fn format(topic: TopicId) -> String {
    format!("version: 0\ntopic_id: {}", Uuid(topic.0))
}

/// Reads the text of the file.
///
/// # Errors
/// The line that is wrong, and why.
pub fn parse(text: &str) -> Result<TopicId, TextError> {
    let mut lines = (1..)
        .zip(text.lines())
        .filter(|(_, text)| !text.trim().is_empty());
    let (line, version) = value(lines.next(), 1, "version")?;
    if version != "0" {
        return Err(TextError::new(
            line,
            format!("version {version:?} is unknown, known is 0"),
        ));
    }
    let (line, id) = value(lines.next(), 2, "topic_id")?;
    let id: Uuid = id
        .parse()
        .map_err(|error| TextError::new(line, format!("topic id {id:?}: {error}")))?;
    if id.is_zero() {
        return Err(TextError::new(line, "the topic id is zero, which names no topic"));
    }
    match lines.next() {
        Some((line, text)) => Err(TextError::new(line, format!("{text:?} is one line too many"))),
        None => Ok(TopicId(id.0)),
    }
}

fn value<'a>(
    found: Option<(usize, &'a str)>,
    expected: usize,
    key: &str,
) -> Result<(usize, &'a str), TextError> {
    let (line, text) = found.ok_or_else(|| TextError::new(expected, format!("{key:?} is missing")))?;
    match text.split_once(':') {
        Some((name, value)) if name.trim() == key => Ok((line, value.trim())),
        _ => Err(TextError::new(line, format!("{text:?} is not \"{key}: …\""))),
    }
}
