//! Produce requests whose record batches lie: checksum, counts, offsets, magic, lengths, flags, compressed bombs.

use std::io::Write;

use super::Input;
use super::probe::{Answer, Step};
use super::wire::{Batch, Bytes, TOPIC, api, old_message, produce, record, request};

/// What a bomb becomes when it is unpacked: far more than `message.max.bytes`, little when packed.
const BOMB_BYTES: usize = 200 << 20;
/// Records of the batch that fills a request up to `socket.request.max.bytes`.
const LARGE_RECORD_BYTES: usize = (100 << 20) - 200;

pub(super) fn inputs() -> Vec<Input> {
    let mut all = headers();
    all.extend(records());
    all.extend(lengths());
    all.extend(compressed());
    all
}

fn input(name: &str, records: &[u8]) -> Input {
    Input::raw(name, produce(TOPIC, records)).answer(Answer::Produce)
}

fn batch(name: &str, change: impl FnOnce(&mut Batch)) -> Input {
    let mut one = Batch::of(b"value");
    change(&mut one);
    input(name, &one.bytes())
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn headers() -> Vec<Input> {
    let acks_7 = Bytes::default()
        .i16(-1)
        .i16(7)
        .i32(100)
        .i32(1)
        .string(TOPIC)
        .i32(1)
        .i32(0)
        .blob(&Batch::of(b"v").bytes());
    vec![
        batch("an honest batch", |_| {}),
        batch("batch with a wrong CRC", |one| one.crc = Some(0x1234_5678)),
        batch("batch of magic 3", |one| one.magic = 3),
        batch("batch of magic -1", |one| one.magic = -1),
        input("message of magic 0", &old_message(0, b"old")),
        input("message of magic 1", &old_message(1, b"old")),
        batch("batch that claims 5 records and has 1", |one| {
            one.count = 5;
            one.last_offset_delta = 4;
        }),
        batch("batch that claims 0 records and has 1", |one| one.count = 0),
        batch("batch that claims -1 records", |one| one.count = -1),
        batch("batch that claims 2147483647 records", |one| {
            one.count = i32::MAX;
            one.last_offset_delta = i32::MAX - 1;
        }),
        batch("last offset delta 7 with one record", |one| {
            one.last_offset_delta = 7
        }),
        batch("last offset delta -1", |one| one.last_offset_delta = -1),
        batch("base offset 1000", |one| one.base_offset = 1000),
        batch("base offset -1000", |one| one.base_offset = -1000),
        batch("control batch from a client", |one| {
            one.attributes = 0x20;
            one.producer_id = 5;
            one.producer_epoch = 0;
            one.base_sequence = -1;
        }),
        batch("transactional batch without a transaction", |one| {
            one.attributes = 0x10;
            one.producer_id = 5;
            one.producer_epoch = 0;
            one.base_sequence = 0;
        }),
        batch("producer id without an epoch", |one| one.producer_id = 5),
        batch("producer id with sequence -1", |one| {
            one.producer_id = 6;
            one.producer_epoch = 0;
        }),
        batch("unknown producer that begins at sequence 17", |one| {
            one.producer_id = 424_242;
            one.producer_epoch = 0;
            one.base_sequence = 17;
        }),
        batch("timestamp of the year 5138", |one| {
            one.base_timestamp = 100_000_000_000_000;
            one.max_timestamp = 100_000_000_000_000;
        }),
        batch("timestamp -5", |one| {
            one.base_timestamp = -5;
            one.max_timestamp = -5;
        }),
        batch("log-append-time flag from a client", |one| one.attributes = 8),
        batch("unused attribute bits", |one| one.attributes = 0x7f00),
        Input::raw("acks 7", request(api::PRODUCE, 8, &acks_7.0)).answer(Answer::Produce),
        Input::raw(
            "unknown topic with an illegal name",
            produce("a/../b", &Batch::of(b"v").bytes()),
        )
        .answer(Answer::Produce),
    ]
}

fn records() -> Vec<Input> {
    let two = |first: i64, second: i64| {
        Batch::with(2, [record(first, b"a"), record(second, b"b")].concat()).bytes()
    };
    let one = |records: Vec<u8>| Batch::with(1, records).bytes();
    let longer = Bytes::default()
        .varint(100)
        .i8(0)
        .varint(0)
        .varint(0)
        .varint(-1)
        .varint(1)
        .raw(b"v")
        .varint(0)
        .0;
    let key_longer = Bytes::default()
        .varint(8)
        .i8(0)
        .varint(0)
        .varint(0)
        .varint(1000)
        .raw(b"abc")
        .0;
    let headers_many = Bytes::default()
        .varint(11)
        .i8(0)
        .varint(0)
        .varint(0)
        .varint(-1)
        .varint(-1)
        .varint(1 << 30)
        .0;
    let headers_negative = Bytes::default()
        .varint(6)
        .i8(0)
        .varint(0)
        .varint(0)
        .varint(-1)
        .varint(-1)
        .varint(-1)
        .0;
    vec![
        input("record offsets 0, 0", &two(0, 0)),
        input("record offsets 1, 0", &two(1, 0)),
        input("record offsets 0, 5", &two(0, 5)),
        input("record longer than its batch", &one(longer)),
        input("record of length -1", &one(Bytes::default().varint(-1).0)),
        input("record of length 0", &one(Bytes::default().varint(0).0)),
        input("record whose key is longer than it", &one(key_longer)),
        input("record that claims 2^30 headers", &one(headers_many)),
        input("record that claims -1 headers", &one(headers_negative)),
        input("record length as an endless varint", &one(vec![0xff; 16])),
        input(
            "bytes behind the last record",
            &one([record(0, b"v"), vec![1, 2, 3]].concat()),
        ),
    ]
}

fn lengths() -> Vec<Input> {
    let honest = Batch::of(b"value").bytes();
    let large = Batch::of(&vec![b'x'; LARGE_RECORD_BYTES]).bytes();
    let above_limit = Batch::of(&vec![b'x'; 1_100_000]).bytes();
    let null = Bytes::default()
        .i16(-1)
        .i16(1)
        .i32(100)
        .i32(1)
        .string(TOPIC)
        .i32(1)
        .i32(0)
        .i32(-1);
    vec![
        batch("batch length longer than the records", |one| {
            one.length = Some(5000)
        }),
        batch("batch length 0", |one| one.length = Some(0)),
        batch("batch length -1", |one| one.length = Some(-1)),
        batch("batch length 2147483647", |one| one.length = Some(i32::MAX)),
        batch("batch length that ends in the header", |one| {
            one.length = Some(20)
        }),
        input("half a batch", &honest[..honest.len() / 2]),
        input("10 bytes of a batch", &honest[..10]),
        input("no records, length 0", &[]),
        Input::raw("null records", request(api::PRODUCE, 8, &null.0)).answer(Answer::Produce),
        input(
            "two batches for one partition",
            &[honest.clone(), honest.clone()].concat(),
        ),
        input(
            "a batch and half of one behind it",
            &[&honest[..], &honest[..30]].concat(),
        ),
        input("a batch above message.max.bytes", &above_limit),
        Input::new("a request of 100 MiB", vec![Step::Send(produce(TOPIC, &large))]).answer(Answer::Produce),
    ]
}

fn compressed() -> Vec<Input> {
    let bomb = record(0, &vec![0; BOMB_BYTES]);
    let packed = |name: &str, codec: i16, bytes: Vec<u8>| {
        batch(name, |one| {
            one.attributes = codec;
            one.records = bytes;
        })
    };
    let half = |mut bytes: Vec<u8>| {
        bytes.truncate(bytes.len() / 2);
        bytes
    };
    let small = record(0, &[b'a'; 4000]);
    // A raw snappy block begins with its unpacked length: 4 GiB here.
    let snappy_claim = Bytes::default().uvarint(u64::from(u32::MAX)).raw(&[0; 20]).0;
    vec![
        packed("gzip bomb, 200 MiB from 200 KB", 1, gzip(&bomb)),
        packed("zstd bomb, 200 MiB from 20 KB", 4, zstd_of(&bomb)),
        packed("lz4 bomb, 200 MiB from 800 KB", 3, lz4(&bomb)),
        packed("snappy block that claims 4 GiB", 2, snappy_claim),
        packed("gzip cut in half", 1, half(gzip(&small))),
        packed("zstd cut in half", 4, half(zstd_of(&small))),
        packed("lz4 cut in half", 3, half(lz4(&small))),
        packed("gzip flag on plain bytes", 1, small.clone()),
        packed("snappy flag on plain bytes", 2, small.clone()),
        packed("lz4 flag on plain bytes", 3, small.clone()),
        packed("zstd flag on plain bytes", 4, small.clone()),
        packed("unknown codec 5", 5, small.clone()),
        packed("unknown codec 7", 7, small),
        batch("gzip that claims 5 records and has 1", |one| {
            one.attributes = 1;
            one.count = 5;
            one.last_offset_delta = 4;
            one.records = gzip(&record(0, b"v"));
        }),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes)
        .and_then(|()| out.finish())
        .expect("writing to memory does not fail")
}

fn zstd_of(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).expect("writing to memory does not fail")
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_mode(lz4_flex::frame::BlockMode::Independent);
    let mut out = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    out.write_all(bytes).expect("writing to memory does not fail");
    out.finish().expect("writing to memory does not fail")
}
