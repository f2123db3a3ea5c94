//! Record bytes of a fetch answer as lines: each batch's header, each record's fields, the CRC checked. A batch that is cut off
//! at the end is left out, as clients do.

use std::fmt::Write as _;

use bytes::Bytes;
use protocol::RecordBytes;
use protocol::compression::Decompressor;
use protocol::messages::fetch::FetchResponse;
use protocol::record::{BatchFault, BatchView, Header, Record, RecordStream, TimestampType};

use super::render::Masks;

/// Longest key or value that is shown whole, bytes.
const SHOWN_BYTES_MAX: usize = 48;
/// Records shown of one batch; of a longer one the first and the last.
const SHOWN_RECORDS_MAX: usize = 8;
/// Batches shown of one partition; of more the first and the last.
const SHOWN_BATCHES_MAX: usize = 8;
/// What a batch may decompress to, bytes.
const DECOMPRESSED_BYTES_MAX: u64 = 256 << 20;

/// The answer with its record bytes replaced by the number of batches, and the lines for them.
pub(super) fn split_records(answer: &FetchResponse, masks: &mut Masks) -> (FetchResponse, Vec<String>) {
    let mut bare = answer.clone();
    let mut lines = Vec::new();
    for topic in &mut bare.responses {
        for partition in &mut topic.partitions {
            let Some(bytes) = partition.records.take().map(RecordBytes::into_bytes) else {
                continue;
            };
            let batches = show(&bytes, masks);
            let count = batches.len();
            partition.records = Some(RecordBytes::from(match count {
                0 => Bytes::new(),
                _ => Bytes::from(format!("{count} batches")),
            }));
            for (at, text) in batches.into_iter().enumerate() {
                if at + 1 == count || at < SHOWN_BATCHES_MAX {
                    lines.push(format!("    {} {text}", partition.partition_index));
                }
            }
        }
    }
    (bare, lines)
}

fn show(bytes: &Bytes, masks: &mut Masks) -> Vec<String> {
    let mut texts = Vec::new();
    let mut at = 0usize;
    while at < bytes.len() {
        match BatchView::parse(&bytes[at..], at as u64) {
            Ok(view) => {
                texts.push(batch(&view, masks));
                at += usize::try_from(view.header().size()).unwrap_or(usize::MAX - at);
            }
            Err(BatchFault::Truncated { .. }) if at > 0 => break,
            Err(fault) => {
                texts.push(format!("unreadable: {fault}"));
                break;
            }
        }
    }
    texts
}

fn batch(view: &BatchView<'_>, masks: &mut Masks) -> String {
    let header = *view.header();
    let codec = header.attributes.codec();
    let kind = match header.attributes.timestamp_type() {
        TimestampType::CreateTime => "create",
        TimestampType::LogAppendTime => "append",
    };
    let mut text = format!(
        "batch {}+{} of {}, {} {kind} {}..{}",
        header.base_offset,
        header.last_offset_delta,
        header.record_count,
        codec.map_or("unknown codec", |codec| codec.name()),
        masks.time(header.base_timestamp),
        masks.time(header.max_timestamp),
    );
    // What a codec makes of the records depends on its library; what it holds does not.
    if !header.attributes.is_compressed() {
        let _ = write!(text, ", {} bytes", header.size());
    }
    if header.has_producer_id() || header.producer_epoch != -1 || header.base_sequence != -1 {
        let producer = masks.id("producer", &header.producer_id.to_string());
        let _ = write!(
            text,
            ", {producer} epoch {} from {}",
            header.producer_epoch, header.base_sequence
        );
    }
    for (is_set, word) in [
        (header.attributes.is_transactional(), ", transactional"),
        (header.attributes.is_control(), ", control"),
        (view.check_crc(0).is_err(), ", WRONG CRC"),
    ] {
        text.push_str(if is_set { word } else { "" });
    }
    let mut decompressor = Decompressor::new();
    let mut stream = match RecordStream::new(view, &mut decompressor, DECOMPRESSED_BYTES_MAX) {
        Ok(stream) => stream,
        Err(error) => return format!("{text}: {error}"),
    };
    let mut shown = Vec::new();
    loop {
        match stream.next_record() {
            Ok(Some(one)) => shown.push(record(&one, header.timestamp(one.timestamp_delta), masks)),
            Ok(None) => break,
            Err(error) => return format!("{text}: {error}"),
        }
    }
    if shown.len() > SHOWN_RECORDS_MAX {
        let last = shown.pop().unwrap_or_default();
        shown.truncate(SHOWN_RECORDS_MAX - 1);
        shown.push("..".to_owned());
        shown.push(last);
    }
    format!("{text}: {}", shown.join(" "))
}

fn record(record: &Record<'_>, timestamp: i64, masks: &Masks) -> String {
    let mut text = format!("+{} {}", record.offset_delta, masks.time(timestamp));
    if let Some(key) = record.key {
        let _ = write!(text, " {}=", blob(Some(key)));
    } else {
        text.push(' ');
    }
    text.push_str(&blob(record.value));
    for Header { key, value } in record.headers {
        let _ = write!(text, " {}:{}", blob(Some(key)), blob(value));
    }
    if record.attributes != 0 {
        let _ = write!(text, " attributes {}", record.attributes);
    }
    format!("({text})")
}

fn blob(bytes: Option<&[u8]>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some(bytes) if bytes.len() <= SHOWN_BYTES_MAX => format!("\"{}\"", bytes.escape_ascii()),
        Some(bytes) => format!("{} bytes {:08x}", bytes.len(), crc32c::crc32c(bytes)),
    }
}
