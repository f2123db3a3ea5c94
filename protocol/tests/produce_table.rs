//! Every row of a table of produced batches, most of them malformed, gets the answer that Apache Kafka 4.3.1 gave, and what
//! is accepted is stored as Kafka stored it. `fixtures/README.md` says how the table was made; the few deliberate
//! differences are listed here with their reasons.

use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use protocol::compression::{Codec, CodecContexts, Decompressor};
use protocol::record::{
    BatchHeader, BatchView, ProduceRules, RecordStream, Rewritten, TimestampType, TopicCompression,
    ValidatedBatch, Walk, validate,
};

/// Rows where our answer differs: name, Kafka's code, ours.
const DIFFERENCES: &[(&str, i16, i16)] = &[
    // Kafka's size sum overflows, or it reads behind the batch, and an internal exception escapes.
    ("length field says 2147483647", -1, 87),
    ("length field says 20 and the CRC is right for it", -1, 2),
    // The same exception escapes for a length varint, but only from uncompressed batches.
    ("plain: length varint of six bytes", -1, 87),
    ("plain to gzip: length varint of six bytes", -1, 87),
    // Kafka allocates the claimed length and runs out of memory.
    ("gzip to uncompressed: length at its maximum", -1, 87),
    // Kafka does not look at the lengths of compressed records that it does not rebuild; its consumers then cannot read
    // the batch, nor anything behind it.
    ("gzip: length one more", 0, 87),
    ("gzip: length one less", 0, 87),
    ("gzip: length 0", 0, 87),
    ("gzip: length -1", 0, 87),
    ("gzip: length at its maximum", 0, 87),
    ("gzip: null key, then a malformed record", 87, 87),
    ("lz4: null key, then a malformed record", 87, 87),
];

/// Rows that Kafka stores with the wrong offsets they came with; we number them anew, as Kafka does when it recompresses.
const RENUMBERED: &[&str] = &[
    "plain: offset deltas all 0",
    "plain: offset deltas descending",
    "plain: offset deltas from 5",
    "plain: offset deltas negative",
];

/// Rows where Kafka's rebuilding replaces header names that are not UTF-8 by U+FFFD; we keep the bytes.
const HEADER_NAMES_KEPT: &[&str] = &[
    "plain to gzip: header key not UTF-8",
    "gzip to uncompressed: header key not UTF-8",
];

#[derive(Default)]
struct Row {
    name: String,
    topic: String,
    version: i16,
    send: Vec<u8>,
    code: i16,
    record_errors: Vec<u32>,
    append_time: Option<i64>,
    stored: Option<(i64, Vec<u8>)>,
}

struct Table {
    now_ms: i64,
    topics: BTreeMap<String, ProduceRules>,
    rows: Vec<Row>,
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .chars()
        .map(|c| c.to_digit(16).expect("a hex digit") as u8)
        .collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn rules(configs: &str) -> ProduceRules {
    let mut rules = ProduceRules::default();
    for config in configs.split_whitespace() {
        let (key, value) = config.split_once('=').expect("key=value");
        match key {
            "cleanup.policy" => rules.compacted = value == "compact",
            "message.timestamp.type" => rules.timestamp_type = TimestampType::LogAppendTime,
            "message.timestamp.before.max.ms" => {
                rules.timestamp_before_max_ms = value.parse().expect("a number")
            }
            "message.timestamp.after.max.ms" => {
                rules.timestamp_after_max_ms = value.parse().expect("a number")
            }
            "segment.bytes" => rules.segment_bytes = value.parse().expect("a number"),
            "max.message.bytes" => rules.max_message_bytes = value.parse().expect("a number"),
            "compression.type" => {
                let codec = Codec::from_name(value).expect("a codec");
                rules.compression = TopicCompression::Codec {
                    codec,
                    level: codec.level_default(),
                };
            }
            other => panic!("{other}"),
        }
    }
    rules
}

fn table() -> Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/produce/table.txt");
    let text = std::fs::read_to_string(path).expect("the table");
    let mut table = Table {
        now_ms: 0,
        topics: BTreeMap::new(),
        rows: Vec::new(),
    };
    for line in text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let row = table.rows.last_mut();
        match (kind, row) {
            ("now", _) => table.now_ms = rest.parse().expect("a number"),
            ("topic", _) => {
                let (name, configs) = rest.split_once(' ').unwrap_or((rest, ""));
                table.topics.insert(name.to_owned(), rules(configs));
            }
            ("row", _) => table.rows.push(Row {
                name: rest.to_owned(),
                ..Row::default()
            }),
            ("to", Some(row)) => {
                (row.topic, row.version) = (words[0].to_owned(), words[1].parse().expect("a number"));
            }
            ("send", Some(row)) => row.send = unhex(rest),
            ("code", Some(row)) => {
                row.code = words[0].parse().expect("a number");
                row.record_errors = words[1..]
                    .iter()
                    .map(|index| index.parse().expect("a number"))
                    .collect();
            }
            ("append_time", Some(row)) => row.append_time = Some(rest.parse().expect("a number")),
            ("stored", Some(row)) => {
                row.stored = Some((words[0].parse().expect("a number"), unhex(words[1])))
            }
            (other, _) => panic!("{other}"),
        }
    }
    table
}

/// Timestamp, key, value, headers of each record, and its offset delta.
type Contents = Vec<(
    i64,
    i32,
    Option<Vec<u8>>,
    Option<Vec<u8>>,
    Vec<(Vec<u8>, Option<Vec<u8>>)>,
)>;

fn contents(batch: &[u8]) -> Contents {
    let view = BatchView::parse(batch, 0).expect("a batch");
    assert_eq!(view.check_crc(0), Ok(()));
    let mut decompressor = Decompressor::new();
    let mut stream = RecordStream::new(&view, &mut decompressor, 1 << 20).expect("a stream");
    let mut records = Vec::new();
    while let Some(record) = stream.next_record().expect("a record") {
        records.push((
            view.header().timestamp(record.timestamp_delta),
            record.offset_delta,
            record.key.map(<[u8]>::to_vec),
            record.value.map(<[u8]>::to_vec),
            record
                .headers
                .iter()
                .map(|h| (h.key.to_vec(), h.value.map(<[u8]>::to_vec)))
                .collect(),
        ));
    }
    records
}

fn check(row: &Row, rules: &ProduceRules, contexts: &mut CodecContexts) -> Result<(), String> {
    let sent = Bytes::from(row.send.clone());
    let difference = DIFFERENCES.iter().find(|(name, ..)| *name == row.name);
    if let Some((_, kafka, _)) = difference
        && *kafka != row.code
    {
        return Err(format!(
            "listed as a difference with {kafka}, but Kafka gave {}",
            row.code
        ));
    }
    let expected = difference.map_or(row.code, |(_, _, ours)| *ours);
    let validated = match validate(&sent, rules, contexts) {
        Err(error) => {
            let indexes: Vec<u32> = error.records.iter().map(|record| record.index).collect();
            let same_records = difference.is_some() || indexes == row.record_errors;
            let fine = error.code().0 == expected && same_records;
            return if fine {
                Ok(())
            } else {
                Err(format!(
                    "{} {indexes:?} ({error}), Kafka {} {:?}",
                    error.code().0,
                    row.code,
                    row.record_errors
                ))
            };
        }
        Ok(_) if expected != 0 => return Err(format!("accepted, Kafka {}", row.code)),
        Ok(validated) => validated,
    };
    same_as_stored(row, &validated)
}

/// Compares what we would store with what Kafka stored: byte by byte where the records are kept, by content where both
/// rebuilt them.
fn same_as_stored(row: &Row, validated: &ValidatedBatch) -> Result<(), String> {
    let (base_offset, stored) = row.stored.as_ref().ok_or("Kafka stored nothing")?;
    let kafka = *BatchView::parse(stored, 0)
        .map_err(|fault| fault.to_string())?
        .header();
    let head = validated.head(*base_offset, kafka.leader_epoch);
    let ours = [head.as_slice(), &validated.records].concat();
    if RENUMBERED.contains(&row.name.as_str()) {
        let deltas: Vec<i32> = contents(&ours).iter().map(|record| record.1).collect();
        return if deltas == [0, 1, 2] {
            Ok(())
        } else {
            Err(format!("offset deltas {deltas:?}"))
        };
    }
    if validated.rewritten != Rewritten::Records {
        let header = BatchHeader::parse(&ours, 0).map_err(|fault| fault.to_string())?;
        return if ours == *stored {
            Ok(())
        } else {
            Err(format!("stored\n{header:?}, Kafka\n{kafka:?}"))
        };
    }
    if HEADER_NAMES_KEPT.contains(&row.name.as_str()) {
        let kept = contents(&ours)[0].4[0].0 == [0xff, 0xfe];
        return if kept {
            Ok(())
        } else {
            Err("header name changed".to_owned())
        };
    }
    // Compressed bytes need not be the same, but everything in them.
    let same_header = BatchHeader {
        batch_length: kafka.batch_length,
        crc: kafka.crc,
        ..validated.header
    };
    let same_header = BatchHeader {
        base_offset: *base_offset,
        leader_epoch: kafka.leader_epoch,
        ..same_header
    };
    if same_header != kafka || contents(&ours) != contents(stored) {
        return Err(format!(
            "rebuilt\n{:?}\n{:?}, Kafka\n{kafka:?}\n{:?}",
            validated.header,
            contents(&ours),
            contents(stored)
        ));
    }
    Ok(())
}

#[test]
fn every_batch_gets_kafkas_answer() {
    let table = table();
    let mut contexts = CodecContexts::default();
    let mut failures = Vec::new();
    for row in &table.rows {
        let rules = ProduceRules {
            version: row.version,
            now_ms: row.append_time.unwrap_or(table.now_ms),
            ..table.topics[&row.topic]
        };
        if let Err(failure) = check(row, &rules, &mut contexts) {
            failures.push(format!("{}: {failure}", row.name));
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {}:\n{}",
        failures.len(),
        table.rows.len(),
        failures.join("\n")
    );
    assert!(table.rows.len() > 400, "the table has {} rows", table.rows.len());
    for (name, ..) in DIFFERENCES {
        assert!(
            table.rows.iter().any(|row| row.name == *name),
            "{name} is not in the table"
        );
    }
}

#[test]
fn header_only_validation_never_accepts_what_the_header_forbids() {
    let table = table();
    let mut contexts = CodecContexts::default();
    let mut accepted = 0;
    for row in &table.rows {
        let full = ProduceRules {
            version: row.version,
            now_ms: table.now_ms,
            ..table.topics[&row.topic]
        };
        let quick = ProduceRules {
            walk: Walk::Header,
            ..full
        };
        let sent = Bytes::from(row.send.clone());
        match (
            validate(&sent, &full, &mut contexts),
            validate(&sent, &quick, &mut contexts),
        ) {
            // What the walk accepts, the header alone accepts too.
            (Ok(full), quick) => {
                let quick = quick.unwrap_or_else(|error| panic!("{}: {error}", row.name));
                assert_eq!(quick.header.record_count, full.header.record_count);
                accepted += 1;
            }
            // Faults of the header are found by both, with the same code.
            (Err(full), Err(quick)) => assert_eq!(full.code(), quick.code(), "{}", row.name),
            (Err(full), Ok(_)) => assert!(
                !matches!(full.code().0, 2 | 10 | 76),
                "{}: the header alone tells {full}",
                row.name
            ),
        }
    }
    assert!(accepted > 100, "{accepted}");
}
