//! What is stored of a batch: recompression, bytes as they were sent, records that cannot be read or number themselves oddly
//! (PR-32 to PR-37).

use bytes::Bytes;
use protocol::compression::Codec;
use protocol::record::Attributes;

use super::super::Case;
use super::super::batch::{Rec, compressed, resealed, with_records};
use super::super::dialogue::Dialogue;
use crate::error::Result;

pub(super) const CASES: &[Case] = &[
    Case::new("PR-32 compression.type by codec of the producer (BR-119)", recompression),
    Case::new("PR-32 tombstones, headers and empty values through recompression (BR-120)", tombstones),
    Case::new("PR-33 a batch is stored as it was sent", stored_as_sent),
    Case::new("PR-34 record attributes", record_attributes),
    Case::new("PR-35 record bytes that cannot be read", broken_records).differs(
        "a length without an end is INVALID_RECORD, where Kafka fails inside with UNKNOWN_SERVER_ERROR; damage that a codec \
         reports is UNKNOWN_SERVER_ERROR for every codec, for snappy too",
    ),
    Case::new("PR-36 codec ids nobody has and attribute bits nobody uses", attribute_bits),
    Case::new("PR-37 deltas that are not 0, 1, 2", deltas).differs(
        "records are numbered 0, 1, 2 when they are stored: Kafka keeps deltas by which two records share an offset",
    ),
];

fn recompression(d: &mut Dialogue<'_>) -> Result<()> {
    for setting in ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"] {
        let topic = d.topic(setting, 1, &[("compression.type", setting)])?;
        for codec in Codec::ALL {
            let values: Vec<_> = (0..3)
                .map(|number| format!("{codec} {number} {}", "v".repeat(70)))
                .collect();
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            d.produce(codec.name(), &topic, 0, compressed(codec, &d.records(&values)))?;
        }
        d.fetch(setting, &topic, 0, 0)?;
    }
    Ok(())
}

fn tombstones(d: &mut Dialogue<'_>) -> Result<()> {
    let stamp = d.stamp_ms();
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let header = |key: &str, value: Option<&str>| (bytes(key), value.map(bytes));
    let records = [
        Rec {
            timestamp: stamp,
            ..Rec::default()
        },
        Rec::of(stamp, "").key(""),
        Rec {
            value: None,
            ..Rec::of(stamp, "").key("k")
        },
        Rec {
            value: None,
            headers: vec![
                header("h", None),
                header("h", Some("")),
                header("h", Some("x")),
                header("", Some("y")),
            ],
            ..Rec::of(stamp, "").key("k")
        },
        Rec {
            headers: (0..100)
                .map(|number| header(&format!("h{number}"), Some("v")))
                .collect(),
            ..Rec::of(stamp, "many headers")
        },
    ];
    for setting in ["producer", "uncompressed", "gzip", "zstd"] {
        let topic = d.topic(setting, 1, &[("compression.type", setting)])?;
        for codec in [Codec::None, Codec::Lz4] {
            d.written(&topic, 0, compressed(codec, &records))?;
        }
        d.fetch(setting, &topic, 0, 0)?;
    }
    Ok(())
}

fn stored_as_sent(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let mut sent = Vec::new();
    for codec in Codec::ALL {
        let bytes = compressed(codec, &d.records(&["one", "two", "three"]));
        d.written(&topic, 0, bytes.clone())?;
        sent.push(bytes);
    }
    let answer = d.fetch("all", &topic, 0, 0)?;
    let stored = answer
        .records
        .map(protocol::RecordBytes::into_bytes)
        .unwrap_or_default();
    let mut at = 0;
    for (codec, bytes) in Codec::ALL.into_iter().zip(sent) {
        // The base offset and the leader epoch are the broker's: bytes 0 to 8 and 12 to 16.
        let same = stored.get(at + 16..at + bytes.len()) == bytes.get(16..)
            && stored.get(at + 8..at + 12) == bytes.get(8..12);
        d.note(&format!("{codec}: the same bytes {same}"));
        at += bytes.len();
    }
    Ok(())
}

/// The records section of a batch of one plain record with these attributes and this offset and timestamp delta.
fn raw_record(attributes: u8, timestamp_delta: i64, offset_delta: i64, value: &[u8]) -> Vec<u8> {
    let zigzag = |value: i64| {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        let mut bytes = Vec::new();
        while rest >= 0x80 {
            bytes.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    };
    let length = i64::try_from(value.len()).unwrap_or(0);
    let body = [
        &[attributes][..],
        &zigzag(timestamp_delta),
        &zigzag(offset_delta),
        &zigzag(-1),
        &zigzag(length),
        value,
        &zigzag(0),
    ]
    .concat();
    [&zigzag(i64::try_from(body.len()).unwrap_or(0))[..], &body].concat()
}

fn record_attributes(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let one = d.batch(&["x"]);
    for attributes in [0u8, 1, 4, 7, 8, 0x40, 0xff] {
        let bytes = with_records(&one, &raw_record(attributes, 0, 0, b"x"));
        d.produce(&format!("attributes {attributes:#04x}"), &topic, 0, bytes)?;
    }
    d.fetch("what was stored", &topic, 0, 0)?;
    Ok(())
}

fn broken_records(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let one = d.batch(&["x"]);
    let good = raw_record(0, 0, 0, b"x");
    let mut behind = good.clone();
    behind.push(0);
    for (label, records) in [
        ("a byte behind the record", behind),
        ("a record twice", [good.clone(), good.clone()].concat()),
        ("a record cut short", good[..good.len() - 1].to_vec()),
        ("a record of length 0", vec![0]),
        ("a record of length -1", vec![1]),
        ("a length that never ends", vec![0xff; 20]),
        ("a value of length 1000", vec![14, 0, 0, 0, 1, 0xd0, 0x0f, 0]),
        ("a value of length -2", vec![12, 0, 0, 0, 1, 3, 0]),
        ("-1 headers", vec![12, 0, 0, 0, 1, 1, 1]),
        (
            "1000 headers that are not there",
            vec![14, 0, 0, 0, 1, 1, 0xd0, 0x0f],
        ),
        ("a header whose name is null", vec![16, 0, 0, 0, 1, 1, 2, 1, 1]),
    ] {
        d.produce(label, &topic, 0, with_records(&one, &records))?;
    }
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let packed = compressed(codec, &d.records(&["x", "y"]));
        d.produce(
            &format!("{codec}, no bytes at all"),
            &topic,
            0,
            with_records(&packed, &[]),
        )?;
        d.produce(
            &format!("{codec}, not compressed"),
            &topic,
            0,
            with_records(&packed, &good),
        )?;
        let records = packed.slice(61..);
        d.produce(
            &format!("{codec}, cut in the middle"),
            &topic,
            0,
            with_records(&packed, &records[..records.len() / 2]),
        )?;
    }
    d.fetch("what was stored", &topic, 0, 0)?;
    Ok(())
}

fn attribute_bits(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let good = d.batch(&["x"]);
    for bits in [5, 6, 7, 0x40, 0x80, 0x100, 0x4000, i16::MIN] {
        let bytes = resealed(&good, |header| header.attributes = Attributes(bits));
        d.produce(&format!("attributes {bits:#06x}"), &topic, 0, bytes)?;
    }
    d.fetch("what was stored", &topic, 0, 0)?;
    Ok(())
}

fn deltas(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let two = d.batch(&["x", "y"]);
    for (label, first, second) in [
        ("offset deltas 0 and 0", (0, 0), (0, 0)),
        ("offset deltas 1 and 0", (0, 1), (0, 0)),
        ("offset deltas 0 and 5", (0, 0), (0, 5)),
        ("offset deltas -1 and 0", (0, -1), (0, 0)),
        ("a timestamp delta of -5", (0, 0), (-5, 1)),
        (
            "a timestamp delta above the maximum in the header",
            (0, 0),
            (50, 1),
        ),
    ] {
        let records = [
            raw_record(0, first.0, first.1, b"x"),
            raw_record(0, second.0, second.1, b"y"),
        ]
        .concat();
        d.produce(label, &topic, 0, with_records(&two, &records))?;
    }
    d.produce(
        "a maximum timestamp that no record has",
        &topic,
        0,
        resealed(&two, |header| header.max_timestamp += 5000),
    )?;
    d.fetch("what was stored", &topic, 0, 0)?;
    Ok(())
}
