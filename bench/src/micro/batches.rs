//! Batches as producers send them: made, checked, recompressed.

use std::hint::black_box;

use bytes::Bytes;
use protocol::compression::{Codec, CodecContexts, Compressor};
use protocol::record::{BatchBuilder, BatchOptions, NewRecord, ProduceRules, TopicCompression, validate};

use super::Operation;

/// The time of all records, milliseconds since 1970.
pub(super) const NOW_MS: i64 = 1_700_000_000_000;

pub(super) fn operations() -> Vec<Operation> {
    let small = batch(Codec::None, 160, 100);
    let large = batch(Codec::None, 16, 1024);
    let mebibyte = Bytes::from(vec![0x5a; 1 << 20]);
    let mut all = vec![
        Operation::new("crc32c/1 MiB", mebibyte.len(), move || {
            black_box(crc32c::crc32c(black_box(&mebibyte)));
        }),
        validation(
            "validate/one record of 100 B",
            batch(Codec::None, 1, 100),
            TopicCompression::Producer,
        ),
        validation("validate/160 records of 100 B", small, TopicCompression::Producer),
        validation(
            "validate/16 records of 1 KiB",
            large.clone(),
            TopicCompression::Producer,
        ),
    ];
    for (name, codec) in [
        ("validate/160 records of 100 B, lz4", Codec::Lz4),
        ("validate/160 records of 100 B, zstd", Codec::Zstd),
        ("validate/160 records of 100 B, snappy", Codec::Snappy),
        ("validate/160 records of 100 B, gzip", Codec::Gzip),
    ] {
        all.push(validation(
            name,
            batch(codec, 160, 100),
            TopicCompression::Producer,
        ));
    }
    for (name, codec) in [
        ("recompress/16 records of 1 KiB to lz4", Codec::Lz4),
        ("recompress/16 records of 1 KiB to zstd", Codec::Zstd),
    ] {
        let level = codec.level_default();
        all.push(validation(
            name,
            large.clone(),
            TopicCompression::Codec { codec, level },
        ));
    }
    all
}

/// What Produce does with a batch. Contexts of codecs are kept, as a shard keeps them.
fn validation(name: &'static str, batch: Bytes, compression: TopicCompression) -> Operation {
    let rules = ProduceRules {
        now_ms: NOW_MS,
        compression,
        ..ProduceRules::default()
    };
    let mut contexts = CodecContexts::default();
    Operation::new(name, batch.len(), move || {
        let validated = validate(black_box(&batch), &rules, &mut contexts);
        black_box(validated.expect("the batch is one that a producer sends"));
    })
}

/// A batch of `count` records with `size` bytes of half random text each.
pub(super) fn batch(codec: Codec, count: usize, size: usize) -> Bytes {
    let options = BatchOptions {
        codec,
        level: codec.level_default(),
        ..BatchOptions::default()
    };
    let mut compressor = Compressor::new();
    let mut builder = BatchBuilder::new(options, &mut compressor);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..count {
        let value: Vec<u8> = (0..size)
            .map(|place| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                if place % 2 == 0 {
                    b'a' + (state % 16) as u8
                } else {
                    b'-'
                }
            })
            .collect();
        let record = NewRecord {
            timestamp: NOW_MS,
            value: Some(&value),
            ..NewRecord::default()
        };
        builder.append(&record).expect("a batch within all bounds");
    }
    builder.finish().expect("it has records").bytes
}
