//! What a broker checks in a produced batch, plain and through every codec (PR-20 to PR-34), and what it stores.

use bytes::Bytes;
use protocol::compression::Codec;
use protocol::record::{BatchOptions, TimestampType};

use super::super::Case;
use super::super::batch::{Rec, batch, compressed, forged, resealed, with_records};
use super::super::dialogue::{Dialogue, now_ms};
use crate::error::Result;

/// An hour, milliseconds.
const HOUR_MS: i64 = 3_600_000;

pub(super) const CASES: &[Case] = &[
    Case::new("PR-20 a wrong CRC", wrong_crc),
    Case::new("PR-21 client base offset not 0", base_offset),
    Case::new("PR-22 counts that do not fit", counts),
    Case::new(
        "PR-22 record counts against the records, in every codec",
        inner_counts,
    ),
    Case::new("PR-23 the control bit", control),
    Case::new(
        "PR-24 a producer without a sequence, and a sequence without a producer",
        no_sequence,
    ),
    Case::new("PR-25 max.message.bytes (BR-079)", too_large),
    Case::new(
        "PR-25 a recompressed batch that outgrows max.message.bytes",
        outgrown,
    ),
    Case::new("PR-26 a batch larger than a segment", larger_than_segment),
    Case::new("PR-27 null keys on compacted topics", null_keys),
    Case::new("PR-28 timestamps too old or too new (BR-080)", timestamps),
    Case::new(
        "PR-28 the timestamps -1 and 0, and after.max.ms without a bound",
        odd_timestamps,
    ),
    Case::new("PR-29 a client sets the append-time bit", append_time_bit),
    Case::new("PR-30 LogAppendTime topics, in every codec", log_append_time),
    Case::new("PR-31 which records of a batch are bad", record_errors),
];

fn wrong_crc(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for codec in Codec::ALL {
        let good = compressed(codec, &d.records(&["x", "y"]));
        d.produce(
            &format!("{codec}, another CRC"),
            &topic,
            0,
            forged(&good, |header| header.crc ^= 0x8000_0001),
        )?;
        let mut flipped = good.to_vec();
        let at = flipped.len() - 3;
        flipped[at] ^= 4;
        d.produce(
            &format!("{codec}, a flipped bit"),
            &topic,
            0,
            Bytes::from(flipped),
        )?;
    }
    let good = d.batch(&["x"]);
    // The leader epoch is outside of the CRC and the client's own is not looked at.
    d.produce(
        "leader epoch 77",
        &topic,
        0,
        forged(&good, |header| header.leader_epoch = 77),
    )?;
    d.fetch("its epoch is the broker's", &topic, 0, 0)?;
    Ok(())
}

fn base_offset(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for codec in Codec::ALL {
        let good = compressed(codec, &d.records(&["x"]));
        for offset in [1, -1, 1 << 40, i64::MAX] {
            d.produce(
                &format!("{codec}, base offset {offset}"),
                &topic,
                0,
                resealed(&good, |header| header.base_offset = offset),
            )?;
        }
    }
    d.fetch("nothing was stored", &topic, 0, 0)?;
    Ok(())
}

fn counts(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let good = d.batch(&["x", "y", "z"]);
    for (count, last) in [
        (0, -1),
        (0, 0),
        (-1, -2),
        (-1, 2),
        (i32::MIN, 2),
        (2, 2),
        (3, 1),
        (3, 3),
        (4, 2),
        (i32::MAX, i32::MAX - 1),
        (3, -1),
    ] {
        d.produce(
            &format!("count {count}, last offset delta {last}, for 3 records"),
            &topic,
            0,
            resealed(&good, |header| {
                header.record_count = count;
                header.last_offset_delta = last;
            }),
        )?;
    }
    let header_only = with_records(&good, &[]);
    d.produce(
        "a header of 3 records without them",
        &topic,
        0,
        header_only.clone(),
    )?;
    d.produce(
        "a header of no records",
        &topic,
        0,
        resealed(&header_only, |header| {
            header.record_count = 0;
            header.last_offset_delta = -1;
        }),
    )?;
    d.fetch("nothing was stored", &topic, 0, 0)?;
    Ok(())
}

fn inner_counts(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for codec in Codec::ALL {
        let good = compressed(codec, &d.records(&["x", "y", "z"]));
        for count in [1, 2, 4, 100] {
            d.produce(
                &format!("{codec}, {count} claimed of 3"),
                &topic,
                0,
                resealed(&good, |header| {
                    header.record_count = count;
                    header.last_offset_delta = count - 1;
                }),
            )?;
        }
    }
    d.fetch("nothing was stored", &topic, 0, 0)?;
    Ok(())
}

fn control(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let options = BatchOptions {
        control: true,
        ..BatchOptions::default()
    };
    d.produce("control", &topic, 0, batch(options, &d.records(&["x"])))?;
    let options = BatchOptions {
        control: true,
        producer_id: d.producer_id()?,
        producer_epoch: 0,
        base_sequence: 0,
        ..BatchOptions::default()
    };
    d.produce(
        "control of a producer",
        &topic,
        0,
        batch(options, &d.records(&["x"])),
    )?;
    Ok(())
}

fn no_sequence(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    let good = d.batch(&["x"]);
    for (producer, epoch, sequence) in [
        (id, 0, -1),
        (id, -1, 0),
        (id, -1, -1),
        (id, 0, -5),
        (-1, 0, 0),
        (-1, -1, 5),
        (-7, 0, 0),
    ] {
        let label = match producer {
            -1 | -7 => format!("producer {producer}, epoch {epoch}, sequence {sequence}"),
            _ => format!("a producer, epoch {epoch}, sequence {sequence}"),
        };
        let bytes = resealed(&good, |header| {
            header.producer_id = producer;
            header.producer_epoch = epoch;
            header.base_sequence = sequence;
        });
        d.produce(&label, &topic, 0, bytes)?;
    }
    d.fetch("what was stored", &topic, 0, 0)?;
    Ok(())
}

/// An uncompressed batch of one record that takes so many bytes.
fn sized(d: &Dialogue<'_>, size: usize) -> Bytes {
    let empty = compressed(Codec::None, &[Rec::of(d.stamp_ms(), "")]);
    let mut value = vec![b'v'; size.saturating_sub(empty.len())];
    loop {
        let bytes = compressed(Codec::None, &[Rec::of(d.stamp_ms(), &value)]);
        if bytes.len() <= size {
            return bytes;
        }
        value.pop();
    }
}

fn too_large(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("max.message.bytes", "2000")])?;
    for size in [1999, 2000, 2001, 3000] {
        let bytes = sized(d, size);
        d.produce(&format!("{} bytes", bytes.len()), &topic, 0, bytes)?;
    }
    for codec in Codec::ALL {
        let bytes = compressed(codec, &[Rec::of(d.stamp_ms(), vec![0; 100_000])]);
        d.produce(&format!("100000 zero bytes, {codec}"), &topic, 0, bytes)?;
    }
    let large = d.topic("large", 1, &[("max.message.bytes", "3000000")])?;
    let bytes = sized(d, 2_000_000);
    d.produce("2 MB where 3 MB are allowed", &large, 0, bytes)?;
    let default = d.topic("default", 1, &[])?;
    for size in [1_048_588, 1_048_589] {
        let bytes = sized(d, size);
        d.produce(
            &format!("{} bytes with the default", bytes.len()),
            &default,
            0,
            bytes,
        )?;
    }
    let zero = d.topic("zero", 1, &[("max.message.bytes", "0")])?;
    let bytes = d.batch(&["x"]);
    d.produce("anything where nothing is allowed", &zero, 0, bytes)?;
    Ok(())
}

fn outgrown(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic(
        "a",
        1,
        &[
            ("max.message.bytes", "2000"),
            ("compression.type", "uncompressed"),
        ],
    )?;
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let bytes = compressed(codec, &[Rec::of(d.stamp_ms(), vec![0; 10_000])]);
        d.produce(&format!("10000 zero bytes, {codec}"), &topic, 0, bytes)?;
    }
    let shrinks = d.topic(
        "b",
        1,
        &[("max.message.bytes", "2000"), ("compression.type", "gzip")],
    )?;
    let bytes = compressed(Codec::None, &[Rec::of(d.stamp_ms(), vec![0; 10_000])]);
    d.produce("10000 zero bytes that gzip would shrink", &shrinks, 0, bytes)?;
    Ok(())
}

fn larger_than_segment(d: &mut Dialogue<'_>) -> Result<()> {
    // Kafka 4 refuses less than 1 MiB; a message may be larger than that.
    let topic = d.topic(
        "a",
        1,
        &[("segment.bytes", "1048576"), ("max.message.bytes", "4000000")],
    )?;
    for size in [1_048_575, 1_048_576, 1_048_577, 2_000_000] {
        let bytes = sized(d, size);
        d.produce(&format!("{} bytes", bytes.len()), &topic, 0, bytes)?;
    }
    Ok(())
}

fn null_keys(d: &mut Dialogue<'_>) -> Result<()> {
    for policy in ["compact", "compact,delete", "delete"] {
        let topic = d.topic(&policy.replace(',', "-"), 1, &[("cleanup.policy", policy)])?;
        for codec in [Codec::None, Codec::Gzip, Codec::Zstd] {
            let mut records = d.records(&["a", "b", "c"]);
            records[0] = records[0].clone().key("k");
            records[2] = records[2].clone().key("");
            d.produce(
                &format!("{policy}, {codec}, the second key is null"),
                &topic,
                0,
                compressed(codec, &records),
            )?;
            records[1] = records[1].clone().key("m");
            d.produce(
                &format!("{policy}, {codec}, all have keys"),
                &topic,
                0,
                compressed(codec, &records),
            )?;
        }
        d.fetch(policy, &topic, 0, 0)?;
    }
    Ok(())
}

fn timestamps(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let narrow = d.topic(
        "narrow",
        1,
        &[
            ("message.timestamp.before.max.ms", "7200000"),
            ("message.timestamp.after.max.ms", "600000"),
        ],
    )?;
    for codec in [Codec::None, Codec::Lz4] {
        for (label, ahead) in [
            ("59 minutes ahead", 59 * HOUR_MS / 60),
            ("61 minutes ahead", 61 * HOUR_MS / 60),
            ("5 minutes ahead", 5 * HOUR_MS / 60),
            ("ten years ahead", 10 * 365 * 24 * HOUR_MS),
            ("119 minutes ago", -119 * HOUR_MS / 60),
            ("121 minutes ago", -121 * HOUR_MS / 60),
        ] {
            let now = now_ms();
            let bytes = compressed(
                codec,
                &[Rec::of(now, "a"), Rec::of(now + ahead, "b"), Rec::of(now, "c")],
            );
            d.produce(
                &format!("{codec}, default limits, {label}"),
                &topic,
                0,
                bytes.clone(),
            )?;
            d.produce(&format!("{codec}, narrow limits, {label}"), &narrow, 0, bytes)?;
        }
    }
    Ok(())
}

fn odd_timestamps(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for codec in [Codec::None, Codec::Snappy] {
        for stamp in [-1, 0, 1] {
            let bytes = compressed(codec, &[Rec::of(stamp, "a"), Rec::of(stamp, "b")]);
            d.produce(&format!("{codec}, timestamp {stamp}"), &topic, 0, bytes)?;
        }
        let bytes = compressed(codec, &[Rec::of(-1, "a"), Rec::of(d.stamp_ms(), "b")]);
        d.produce(&format!("{codec}, -1 and then a time"), &topic, 0, bytes)?;
    }
    d.fetch("as sent", &topic, 0, 0)?;
    let before = d.topic("before", 1, &[("message.timestamp.before.max.ms", "3600000")])?;
    for stamp in [-1, 0] {
        let bytes = compressed(Codec::None, &[Rec::of(stamp, "a")]);
        d.produce(
            &format!("timestamp {stamp} where an hour is the limit"),
            &before,
            0,
            bytes,
        )?;
    }
    let open = d.topic(
        "open",
        1,
        &[("message.timestamp.after.max.ms", "9223372036854775807")],
    )?;
    let bytes = compressed(Codec::None, &[Rec::of(4_102_444_800_000, "2100")]);
    d.produce("the year 2100 without a limit", &open, 0, bytes)?;
    d.fetch("as sent", &open, 0, 0)?;
    Ok(())
}

fn append_time_bit(d: &mut Dialogue<'_>) -> Result<()> {
    for kind in ["CreateTime", "LogAppendTime"] {
        let topic = d.topic(kind, 1, &[("message.timestamp.type", kind)])?;
        for (label, stamp) in [("a true time", d.stamp_ms()), ("-1", -1)] {
            for codec in [Codec::None, Codec::Gzip] {
                let good = compressed(codec, &[Rec::of(stamp, "x")]);
                let bytes = resealed(&good, |header| {
                    header.attributes = header
                        .attributes
                        .with_timestamp_type(TimestampType::LogAppendTime);
                });
                d.produce(
                    &format!("{kind}, {codec}, the bit is set, {label}"),
                    &topic,
                    0,
                    bytes,
                )?;
            }
        }
        d.fetch(kind, &topic, 0, 0)?;
    }
    Ok(())
}

fn log_append_time(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("message.timestamp.type", "LogAppendTime")])?;
    for codec in Codec::ALL {
        let stamp = d.stamp_ms();
        let records = [Rec::of(stamp, "a"), Rec::of(stamp + 7, "b"), Rec::of(5, "old")];
        d.produce(codec.name(), &topic, 0, compressed(codec, &records))?;
    }
    let future = [Rec::of(4_102_444_800_000, "2100")];
    d.produce("the year 2100", &topic, 0, compressed(Codec::None, &future))?;
    d.produce("-1", &topic, 0, compressed(Codec::None, &[Rec::of(-1, "x")]))?;
    d.fetch("all", &topic, 0, 0)?;
    Ok(())
}

fn record_errors(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("cleanup.policy", "compact")])?;
    let now = now_ms();
    let far = now + 3 * HOUR_MS;
    for codec in [Codec::None, Codec::Gzip] {
        let records = [
            Rec::of(now, "no key"),
            Rec::of(now, "good").key("k"),
            Rec::of(far, "too new").key("k"),
            Rec::of(far, "too new, no key"),
            Rec::of(now, "no key"),
        ];
        d.produce(
            &format!("{codec}, keys and times"),
            &topic,
            0,
            compressed(codec, &records),
        )?;
        d.produce(
            &format!("{codec}, keys"),
            &topic,
            0,
            compressed(codec, &records[..2]),
        )?;
        d.produce(
            &format!("{codec}, times"),
            &topic,
            0,
            compressed(codec, &records[1..3]),
        )?;
        let many: Vec<_> = (0..40).map(|_| Rec::of(now, "no key")).collect();
        let answer = d.produce_quietly(&topic, 0, compressed(codec, &many))?;
        let indexes: Vec<_> = answer.record_errors.iter().map(|one| one.batch_index).collect();
        d.note(&format!(
            "{codec}, 40 records without keys: {}, bad {indexes:?}",
            answer.error_code
        ));
    }
    Ok(())
}
