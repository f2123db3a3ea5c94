//! Kafka's `meta.properties`: which cluster, node and directory a log directory belongs to. It is a Java properties
//! file (`kafka-surface.md` §5.3); keys we do not know are kept.
//!
//! ```text
//! version=1
//! cluster.id=wtZ5bHyFS6aRZ0RqZ5k7Xg
//! node.id=1
//! directory.id=3Y5gkJ0jQ7mhQFf5p5l6Jw
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use protocol::Uuid;

use super::{CheckpointError, TextError, load_text, write_atomic};
use crate::disk::{Disk, DiskError};

/// The longest cluster id, bytes: Kafka's are 22, operators may choose others.
const CLUSTER_ID_BYTES_MAX: usize = 255;

/// The content of the file, version 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    /// The cluster.
    pub cluster_id: String,
    /// The node, not negative.
    pub node_id: i32,
    /// This log directory; Kafka before 3.7 wrote none.
    pub directory_id: Option<Uuid>,
    /// Everything else in the file.
    pub other: BTreeMap<String, String>,
}

/// Reads the file; `None` when there is none.
///
/// # Errors
/// [`CheckpointError`] with file and line.
pub async fn load<D: Disk>(disk: &D, path: &Path) -> Result<Option<MetaProperties>, CheckpointError> {
    load_text(disk, path, parse).await
}

/// Replaces the file, atomically and durably.
///
/// # Errors
/// From the disk.
pub async fn save<D: Disk>(disk: &D, path: &Path, properties: &MetaProperties) -> Result<(), DiskError> {
    write_atomic(disk, path, format(properties).as_bytes()).await
}

/// The text of the file.
#[must_use]
pub fn format(properties: &MetaProperties) -> String {
    let mut text = String::from("version=1\n");
    let mut put = |key: &str, value: &str| {
        let (key, value) = (escape(key), escape(value));
        writeln!(text, "{key}={value}").expect("a string takes what is written");
    };
    put("cluster.id", &properties.cluster_id);
    put("node.id", &properties.node_id.to_string());
    if let Some(id) = properties.directory_id {
        put("directory.id", &id.to_string());
    }
    for (key, value) in &properties.other {
        put(key, value);
    }
    text
}

/// Reads the text of the file.
///
/// # Errors
/// The line that is wrong, and why.
pub fn parse(text: &str) -> Result<MetaProperties, TextError> {
    let mut values = BTreeMap::new();
    let mut line_last = 1;
    for (line, text) in (1..).zip(text.lines()) {
        line_last = line;
        let text = text.trim_start();
        if text.is_empty() || text.starts_with(['#', '!']) {
            continue;
        }
        let (key, value) = split(text).map_err(|reason| TextError::new(line, reason))?;
        values.insert(key, (line, value)); // the last one counts, as in Java
    }
    let mut take = |key: &str| {
        let missing = || TextError::new(line_last, format!("{key:?} is missing"));
        values.remove(key).ok_or_else(missing)
    };
    let (line, version) = take("version")?;
    if version != "1" {
        return Err(TextError::new(
            line,
            format!("version {version:?} is unknown, known is 1"),
        ));
    }
    let (line, cluster_id) = take("cluster.id")?;
    if cluster_id.is_empty() || cluster_id.len() > CLUSTER_ID_BYTES_MAX {
        let reason = format!(
            "cluster.id must have 1 to {CLUSTER_ID_BYTES_MAX} bytes, it has {}",
            cluster_id.len()
        );
        return Err(TextError::new(line, reason));
    }
    let (line, node) = take("node.id")?;
    let node_id = node.parse().ok().filter(|id| *id >= 0);
    let node_id =
        node_id.ok_or_else(|| TextError::new(line, format!("node.id {node:?} is not a node id")))?;
    let directory_id = match values.remove("directory.id") {
        Some((line, id)) => Some(directory(line, &id)?),
        None => None,
    };
    Ok(MetaProperties {
        cluster_id,
        node_id,
        directory_id,
        other: values.into_iter().map(|(key, (_, value))| (key, value)).collect(),
    })
}

fn directory(line: usize, text: &str) -> Result<Uuid, TextError> {
    let id: Uuid = text
        .parse()
        .map_err(|error| TextError::new(line, format!("directory.id {text:?}: {error}")))?;
    if id.is_reserved() {
        return Err(TextError::new(
            line,
            format!("directory.id {text:?} is a reserved id"),
        ));
    }
    Ok(id)
}

/// Splits at the first `=` or `:` that is not escaped.
fn split(text: &str) -> Result<(String, String), String> {
    let mut escaped = false;
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '=' | ':' => {
                let (key, value) = (text.get(..at), text.get(at + 1..));
                let (key, value) = (
                    key.unwrap_or_default().trim_end(),
                    value.unwrap_or_default().trim_start(),
                );
                return Ok((unescape(key)?, unescape(value)?));
            }
            _ => {}
        }
    }
    Err(format!("{text:?} is not \"key=value\""))
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            out.push(char);
            continue;
        }
        match chars.next() {
            Some('t') => out.push('\t'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let digits: String = chars.by_ref().take(4).collect();
                let code = u32::from_str_radix(&digits, 16)
                    .ok()
                    .filter(|_| digits.len() == 4);
                out.push(
                    code.and_then(char::from_u32)
                        .ok_or_else(|| format!("\\u{digits} is no character"))?,
                );
            }
            Some(other) => out.push(other),
            None => return Err("lines that go on in the next one are not supported here".into()),
        }
    }
    Ok(out)
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, char) in text.char_indices() {
        match char {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{c}' => out.push_str("\\f"),
            '=' | ':' | '\\' | '#' | '!' => out.extend(['\\', char]),
            ' ' if at == 0 => out.push_str("\\ "),
            _ => out.push(char),
        }
    }
    out
}
