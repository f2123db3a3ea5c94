//! The batches of a segment or of a metadata snapshot, and their records, as lines.

use std::path::Path;

use protocol::compression::{Codec, Decompressor};
use protocol::record::{
    BatchView, ControlRecord, DECOMPRESSED_BYTES_MAX_DEFAULT, Record, RecordStream, TimestampType,
};
use serde_json::{Value, json};
use storage::layout::PartitionName;
use storage::log::batch::BatchHeader;
use storage::offline::reader::{BadSpan, Found, FoundBatch, SegmentReader};
use storage::types::Offset;

use super::dump::Out;
use super::{decode, io_failed, parent_name};
use crate::client::clean;
use crate::exit::{Failure, Status};

/// Bytes of a key or value that are shown to people; scripts get all.
const SHOWN_BYTES: usize = 256;

/// How keys and values are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoding {
    /// Not at all.
    None,
    /// `__consumer_offsets`.
    Groups,
    /// `__transaction_state`.
    Transactions,
    /// `__cluster_metadata`, and snapshots of it.
    Metadata,
}

impl Decoding {
    /// By the directory that a file lies in.
    pub(super) fn of_directory(path: &Path) -> Self {
        let is_snapshot = path.extension().is_some_and(|end| end == "checkpoint");
        let topic = parent_name(path)
            .and_then(PartitionName::parse)
            .map(|name| name.topic);
        match topic.as_deref() {
            Some("__consumer_offsets") => Self::Groups,
            Some("__transaction_state") => Self::Transactions,
            Some("__cluster_metadata") => Self::Metadata,
            _ if is_snapshot => Self::Metadata,
            _ => Self::None,
        }
    }
}

/// What of a file is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordOptions {
    /// Records too.
    pub(super) records: bool,
    /// The lowest offset.
    pub(super) from: Offset,
    /// The highest offset.
    pub(super) to: Offset,
    /// How keys and values are read.
    pub(super) decoding: Decoding,
}

/// Prints the batches of the file; what is none is said, and fails the command at its end.
pub(super) fn dump_batches(
    path: &Path,
    base: Offset,
    options: &RecordOptions,
    out: &Out,
) -> Result<(), Failure> {
    let mut reader = SegmentReader::open(path, base).map_err(|error| io_failed(path, &error))?;
    let mut decompressor = Decompressor::new();
    let mut bad = 0;
    while let Some(found) = reader.next_found().map_err(|error| io_failed(path, &error))? {
        match found {
            Found::Batch(batch) if batch.header.base_offset > options.to => break,
            Found::Batch(batch) if batch.header.last_offset() < options.from => {}
            Found::Batch(batch) => {
                bad += usize::from(!print_batch(&batch, options, &mut decompressor, out));
            }
            Found::Bad(span) => {
                bad += 1;
                print_bad(&span, out);
            }
        }
    }
    if bad == 0 {
        return Ok(());
    }
    let sentence = format!("{}: {bad} of its parts are no valid batch", super::shown(path));
    Err(Failure::new(Status::Data, sentence))
}

fn print_bad(span: &BadSpan, out: &Out) {
    let bytes = span.end - span.position;
    let text = || {
        format!(
            "BAD   position {} bytes {bytes}: expected {}, found {}",
            span.position,
            span.expected(),
            span.fault
        )
    };
    let value = || {
        json!({
            "type": "bad",
            "position": span.position,
            "bytes": bytes,
            "first_offset": span.first_offset.0,
            "next_offset": (span.end_offset != Offset::NONE).then_some(span.end_offset.0),
            "expected": span.expected(),
            "found": span.fault.to_string(),
        })
    };
    out.line(text, value);
}

/// Prints a batch; whether its records could be read.
fn print_batch(
    batch: &FoundBatch<'_>,
    options: &RecordOptions,
    decompressor: &mut Decompressor,
    out: &Out,
) -> bool {
    let (header, position) = (&batch.header, batch.position);
    out.line(|| batch_text(header, position), || batch_json(header, position));
    if !options.records {
        return true;
    }
    let Ok(view) = BatchView::parse(batch.bytes, position) else {
        return false;
    };
    let mut stream = match RecordStream::new(&view, decompressor, DECOMPRESSED_BYTES_MAX_DEFAULT) {
        Ok(stream) => stream,
        Err(error) => {
            unreadable(&error, out);
            return false;
        }
    };
    loop {
        match stream.next_record() {
            Ok(Some(record)) => print_record(header, &record, options, out),
            Ok(None) => return true,
            Err(error) => {
                unreadable(&error, out);
                return false;
            }
        }
    }
}

fn unreadable(error: &dyn std::fmt::Display, out: &Out) {
    let error = error.to_string();
    out.line(
        || format!("  BAD   {error}"),
        || json!({"type": "bad", "found": error}),
    );
}

fn codec(header: &BatchHeader) -> &'static str {
    header.wire.attributes.codec().map_or("unknown", Codec::name)
}

fn batch_text(header: &BatchHeader, position: u64) -> String {
    let wire = &header.wire;
    let mut text = format!(
        "batch {}..{} position {position} bytes {} crc {:08x} epoch {} codec {} {} {}..{} records {}",
        header.base_offset,
        header.last_offset(),
        header.size,
        wire.crc,
        header.leader_epoch,
        codec(header),
        time_word(header),
        wire.base_timestamp,
        wire.max_timestamp,
        wire.record_count,
    );
    if wire.has_producer_id() {
        text.push_str(&format!(
            " producer {} epoch {} sequence {}..{}",
            wire.producer_id,
            wire.producer_epoch,
            wire.base_sequence,
            wire.last_sequence()
        ));
    }
    let attributes = wire.attributes;
    for (is_set, word) in [
        (attributes.is_transactional(), " transactional"),
        (attributes.is_control(), " control"),
        (attributes.has_delete_horizon(), " delete-horizon"),
    ] {
        text.push_str(if is_set { word } else { "" });
    }
    text
}

fn time_word(header: &BatchHeader) -> &'static str {
    match header.wire.attributes.timestamp_type() {
        TimestampType::LogAppendTime => "appended",
        TimestampType::CreateTime => "created",
    }
}

fn batch_json(header: &BatchHeader, position: u64) -> Value {
    let wire = &header.wire;
    json!({
        "type": "batch",
        "base_offset": header.base_offset.0,
        "last_offset": header.last_offset().0,
        "position": position,
        "bytes": header.size,
        "crc": format!("{:08x}", wire.crc),
        "leader_epoch": header.leader_epoch.0,
        "codec": codec(header),
        "timestamp_type": time_word(header),
        "base_timestamp": wire.base_timestamp,
        "max_timestamp": wire.max_timestamp,
        "records": wire.record_count,
        "producer_id": wire.producer_id,
        "producer_epoch": wire.producer_epoch,
        "base_sequence": wire.base_sequence,
        "last_sequence": wire.last_sequence(),
        "transactional": wire.attributes.is_transactional(),
        "control": wire.attributes.is_control(),
        "delete_horizon_ms": wire.delete_horizon(),
    })
}

fn print_record(header: &BatchHeader, record: &Record<'_>, options: &RecordOptions, out: &Out) {
    let offset = header.base_offset.0 + i64::from(record.offset_delta);
    if offset < options.from.0 || offset > options.to.0 {
        return;
    }
    let timestamp = if header.is_append_time() {
        header.max_timestamp
    } else {
        header.wire.timestamp(record.timestamp_delta)
    };
    let decoded = decoded(header, record, options.decoding);
    let text = || {
        let what = match &decoded {
            Some(decoded) => decoded.to_string(),
            None => format!("key {} value {}", shown(record.key), shown(record.value)),
        };
        let mut text = format!("  record {offset} timestamp {timestamp} {what}");
        for one in record.headers.iter() {
            text.push_str(&format!(" header {}={}", shown(Some(one.key)), shown(one.value)));
        }
        text
    };
    let value = || {
        let headers: Vec<Value> = record
            .headers
            .iter()
            .map(|one| json!([bytes_json(Some(one.key)), bytes_json(one.value)]))
            .collect();
        let mut value = json!({
            "type": "record",
            "offset": offset,
            "timestamp": timestamp,
            "headers": headers,
        });
        match &decoded {
            Some(decoded) => value["decoded"] = decoded.clone(),
            None => {
                value["key"] = bytes_json(record.key);
                value["value"] = bytes_json(record.value);
            }
        }
        value
    };
    out.line(text, value);
}

fn decoded(header: &BatchHeader, record: &Record<'_>, decoding: Decoding) -> Option<Value> {
    if header.wire.attributes.is_control() {
        return Some(match ControlRecord::parse(record) {
            Ok(ControlRecord::TransactionEnd(end)) => json!({
                "control": if end.committed { "commit" } else { "abort" },
                "coordinator_epoch": end.coordinator_epoch,
            }),
            Ok(other) => json!({"control": format!("{other:?}")}),
            Err(error) => json!({"control": null, "error": error.to_string()}),
        });
    }
    match decoding {
        Decoding::None => None,
        Decoding::Groups => Some(decode::group(record.key, record.value)),
        Decoding::Transactions => Some(decode::transaction(record.key, record.value)),
        Decoding::Metadata => Some(decode::metadata(record.value)),
    }
}

/// Text as it is, other bytes as hexadecimal digits behind `0x`, at most [`SHOWN_BYTES`] of them.
fn shown(bytes: Option<&[u8]>) -> String {
    let Some(bytes) = bytes else {
        return "null".to_owned();
    };
    let (part, more) = match bytes.get(..SHOWN_BYTES) {
        Some(part) if part.len() < bytes.len() => (part, format!("… ({} bytes)", bytes.len())),
        _ => (bytes, String::new()),
    };
    match printable(bytes) {
        Some(text) => {
            let text: String = text.chars().take(SHOWN_BYTES).collect();
            format!("{:?}{more}", clean(&text))
        }
        None => format!("0x{}{more}", hex(part)),
    }
}

fn bytes_json(bytes: Option<&[u8]>) -> Value {
    match bytes {
        None => Value::Null,
        Some(bytes) => printable(bytes).map_or_else(|| json!({"hex": hex(bytes)}), |text| json!(text)),
    }
}

fn printable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_plain = |c: char| !c.is_control() || matches!(c, '\n' | '\r' | '\t');
    text.chars().all(is_plain).then_some(text)
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_text_where_they_can_be() {
        assert_eq!(shown(None), "null");
        assert_eq!(shown(Some(b"a b")), "\"a b\"");
        assert_eq!(shown(Some(&[0, 255])), "0x00ff");
        let long = shown(Some(&[b'x'; 300]));
        assert!(long.ends_with("x\"… (300 bytes)") && long.len() < 300, "{long}");
        assert_eq!(bytes_json(Some(&[0, 255])), json!({"hex": "00ff"}));
        assert_eq!(bytes_json(Some("ü\n".as_bytes())), json!("ü\n"));
        assert_eq!(bytes_json(None), Value::Null);
    }

    #[test]
    fn internal_topics_are_known_by_their_directory() {
        let of = |path: &str| Decoding::of_directory(Path::new(path));
        assert_eq!(
            of("/d/__consumer_offsets-3/00000000000000000000.log"),
            Decoding::Groups
        );
        assert_eq!(
            of("/d/__transaction_state-0/00000000000000000000.log"),
            Decoding::Transactions
        );
        assert_eq!(
            of("/d/__cluster_metadata-0/00000000000000000000.log"),
            Decoding::Metadata
        );
        assert_eq!(of("/d/bootstrap.checkpoint"), Decoding::Metadata);
        assert_eq!(of("/d/orders-0/00000000000000000000.log"), Decoding::None);
    }
}
