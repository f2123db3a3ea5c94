//! Batches made to hurt: bombs, lies about sizes and counts, giant records. Each is answered with the expected error, and a
//! counting allocator shows that memory stays bounded whatever the input claims. It counts each thread apart; all the same
//! the tests run one at a time, because one of them looks at the resident memory of the process.

#![allow(
    unsafe_code,
    reason = "a counting allocator must implement the unsafe GlobalAlloc trait; the crate itself has no unsafe"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Mutex;

use bytes::Bytes;
use protocol::ErrorCode;
use protocol::compression::{Codec, CodecContexts, Compressor, DecompressError, Decompressor};
use protocol::record::{
    Attributes, BATCH_HEADER_BYTES, BatchBuilder, BatchHeader, BatchOptions, BatchView, NewRecord,
    ProduceRules, ReadError, RecordFault, RecordStream, TopicCompression, validate,
};

struct Counting;

thread_local! {
    /// Bytes allocated less bytes freed on this thread; below 0 when it frees what others allocated.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system allocator unchanged; only counters are kept beside it. `realloc` and
// `alloc_zeroed` use the trait's default bodies, which call these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.get() + layout.size() as isize;
        LIVE.set(live);
        PEAK.set(PEAK.get().max(live));
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as isize);
        // SAFETY: the pointer comes from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs `work`; returns its result, and the bytes it held at most beyond those held before it.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = work();
    (result, (PEAK.get() - before).unsigned_abs())
}

const MIB: usize = 1024 * 1024;

/// A batch with these records bytes and honest framing and CRC.
fn batch(records: &[u8], codec: Codec, record_count: i32) -> Bytes {
    let mut header = BatchHeader {
        base_offset: 0,
        batch_length: (BATCH_HEADER_BYTES - 12 + records.len()) as i32,
        leader_epoch: -1,
        magic: 2,
        crc: 0,
        attributes: Attributes(0).with_codec(codec),
        last_offset_delta: record_count - 1,
        base_timestamp: 0,
        max_timestamp: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        record_count,
    };
    header.crc = header.computed_crc(records);
    [&header.encode(), records].concat().into()
}

/// One record with a value of `len` zeros, as its bytes.
fn giant_record(len: usize) -> Vec<u8> {
    let mut builder = BatchBuilder::plain(BatchOptions::default());
    builder
        .append(&NewRecord {
            timestamp: 0,
            key: None,
            value: Some(&vec![0; len]),
            headers: &[],
        })
        .expect("a record");
    builder.finish().expect("a batch").bytes[BATCH_HEADER_BYTES..].to_vec()
}

fn compress(codec: Codec, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compressor::new().compress(codec, codec.level_default(), plain, &mut out);
    out
}

/// Topic rules that let every timestamp pass.
fn rules() -> ProduceRules {
    ProduceRules {
        max_message_bytes: 100 * MIB,
        ..ProduceRules::default()
    }
}

const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

#[test]
fn bombs_cost_one_chunk() {
    let _guard = ONE_AT_A_TIME.lock().expect("the other test passed");
    let record = giant_record(64 * MIB);
    for codec in COMPRESSED {
        let bomb = batch(&compress(codec, &record), codec, 1);
        assert!(bomb.len() < 4 * MIB, "{codec}: {} bytes", bomb.len());
        let mut contexts = CodecContexts::default();
        let limited = ProduceRules {
            decompressed_bytes_max: 8 * MIB as u64,
            ..rules()
        };
        let (result, peak) = peak_of(|| validate(&bomb, &limited, &mut contexts));
        let error = result.expect_err("above the limit");
        assert_eq!(error.code(), ErrorCode::MESSAGE_TOO_LARGE, "{codec}: {error}");
        assert!(peak < MIB, "{codec}: {peak} bytes to refuse a bomb");
        // Below the limit it is walked through, with no more memory.
        let (result, peak) = peak_of(|| validate(&bomb, &rules(), &mut contexts));
        let validated = result.expect("below the limit");
        assert_eq!(validated.decompressed_bytes, record.len() as u64, "{codec}");
        assert!(
            peak < MIB,
            "{codec}: {peak} bytes to walk {} of records",
            record.len()
        );
    }
}

#[test]
fn a_bomb_is_not_blown_up_for_an_uncompressed_topic() {
    let _guard = ONE_AT_A_TIME.lock().expect("the other test passed");
    let plain = TopicCompression::Codec {
        codec: Codec::None,
        level: 0,
    };
    for codec in COMPRESSED {
        // Many small records: the output is refused as soon as it passes max.message.bytes.
        let records: Vec<u8> = giant_record(1000).repeat(20_000);
        let bomb = batch(&compress(codec, &records), codec, 20_000);
        let mut contexts = CodecContexts::default();
        let limited = ProduceRules {
            compression: plain,
            max_message_bytes: 2 * MIB,
            ..rules()
        };
        let (result, peak) = peak_of(|| validate(&bomb, &limited, &mut contexts));
        assert_eq!(
            result.expect_err("too large").code(),
            ErrorCode::MESSAGE_TOO_LARGE,
            "{codec}"
        );
        assert!(peak < 8 * MIB, "{codec}: {peak}");
    }
}

#[test]
fn claims_allocate_nothing() {
    let _guard = ONE_AT_A_TIME.lock().expect("the other test passed");
    let mut contexts = CodecContexts::default();
    let max = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let bodies: [(&str, Vec<u8>); 4] = [
        ("record length", max.to_vec()),
        ("key length", [&[40, 0, 0, 0], max.as_slice(), &[0; 16]].concat()),
        (
            "header count",
            [&[40, 0, 0, 0, 1, 1], max.as_slice(), &[0; 14]].concat(),
        ),
        (
            "header key length",
            [&[40, 0, 0, 0, 1, 1, 2], max.as_slice(), &[0; 13]].concat(),
        ),
    ];
    for (name, body) in &bodies {
        for codec in Codec::ALL {
            let packed = if codec == Codec::None {
                body.clone()
            } else {
                compress(codec, body)
            };
            for count in [1, i32::MAX] {
                let hostile = batch(&packed, codec, count);
                let (result, peak) = peak_of(|| validate(&hostile, &rules(), &mut contexts));
                let error = result.expect_err("a lie");
                assert_eq!(error.code(), ErrorCode::INVALID_RECORD, "{name} {codec}: {error}");
                assert!(peak < MIB, "{name} {codec}: {peak}");
            }
            let view_of = batch(&packed, codec, 1);
            let view = BatchView::parse(&view_of, 0).expect("a batch");
            let mut decompressor = Decompressor::new();
            let (result, peak) = peak_of(|| {
                let mut stream =
                    RecordStream::new(&view, &mut decompressor, 8 * MIB as u64).expect("a stream");
                stream.next_record().map(|_| ())
            });
            assert!(
                matches!(result, Err(ReadError::Record { index: 0, .. })),
                "{name} {codec}: {result:?}"
            );
            assert!(peak < MIB, "{name} {codec}: {peak}");
        }
    }
}

#[test]
fn a_giant_record_is_joined_only_up_to_the_limit() {
    let _guard = ONE_AT_A_TIME.lock().expect("the other test passed");
    let record = giant_record(32 * MIB);
    for codec in COMPRESSED {
        let packed = batch(&compress(codec, &record), codec, 1);
        let view = BatchView::parse(&packed, 0).expect("a batch");
        let mut decompressor = Decompressor::new();
        let (result, peak) = peak_of(|| {
            let mut stream = RecordStream::new(&view, &mut decompressor, 4 * MIB as u64).expect("a stream");
            stream.next_record().map(|_| ())
        });
        assert_eq!(
            result,
            Err(ReadError::Decompress(DecompressError::TooLarge {
                limit: 4 * MIB as u64
            })),
            "{codec}"
        );
        assert!(peak < 13 * MIB, "{codec}: {peak}");
        let mut stream = RecordStream::new(&view, &mut decompressor, 64 * MIB as u64).expect("a stream");
        let found = stream.next_record().expect("a record").expect("one record");
        assert_eq!(found.value.map(<[u8]>::len), Some(32 * MIB), "{codec}");
        drop(stream);
        assert!(
            decompressor.scratch_bytes() <= 2 * MIB,
            "{codec} keeps {}",
            decompressor.scratch_bytes()
        );
    }
}

#[test]
fn truncated_records_are_found_wherever_the_cut_is() {
    let _guard = ONE_AT_A_TIME.lock().expect("the other test passed");
    let record = giant_record(100);
    for codec in Codec::ALL {
        for cut in 0..record.len() {
            let hostile = batch(&compress(codec, &record[..cut]), codec, 1);
            let error = validate(&hostile, &rules(), &mut CodecContexts::default()).expect_err("cut");
            assert_eq!(error.code(), ErrorCode::INVALID_RECORD, "{codec} {cut}");
        }
        // A record whole but followed by half of another.
        let hostile = batch(
            &compress(codec, &[record.as_slice(), &record[..5]].concat()),
            codec,
            1,
        );
        let view = BatchView::parse(&hostile, 0).expect("a batch");
        let mut decompressor = Decompressor::new();
        let mut stream = RecordStream::new(&view, &mut decompressor, MIB as u64).expect("a stream");
        assert!(stream.next_record().expect("whole").is_some());
        assert_eq!(
            stream.next_record().map(|_| ()),
            Err(ReadError::Record {
                index: 1,
                fault: RecordFault::Trailing
            }),
            "{codec}"
        );
    }
}

#[test]
fn a_claimed_zstd_window_is_not_touched() {
    let _guard = ONE_AT_A_TIME.lock().expect("the other test passed");
    // 128 MiB of window for a few bytes: libzstd may reserve it, but resident memory must not follow.
    let resident = || {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
        statm
            .split(' ')
            .nth(1)
            .expect("resident pages")
            .parse::<usize>()
            .expect("a number")
            * 4096
    };
    let record = giant_record(10);
    let raw_block = ((record.len() as u32) << 3 | 1).to_le_bytes();
    let frame = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 17 << 3], &raw_block[..3], &record].concat();
    let hostile = batch(&frame, Codec::Zstd, 1);
    let mut contexts = CodecContexts::default();
    let before = resident();
    for _ in 0..20 {
        validate(&hostile, &rules(), &mut contexts).expect("valid");
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 16 * MIB, "{grown} bytes more are resident");
}

#[test]
fn validation_allocates_nothing_per_record_or_batch() {
    let _guard = ONE_AT_A_TIME.lock().expect("the other test passed");
    let records: Vec<u8> = giant_record(100).repeat(5000);
    let mut contexts = CodecContexts::default();
    for codec in Codec::ALL {
        let good = batch(&compress(codec, &records), codec, 5000);
        // Offsets are all 0 in these copies, which compressed batches are refused for after the walk.
        let run = |contexts: &mut CodecContexts| {
            let view = BatchView::parse(&good, 0).expect("a batch");
            let mut stream =
                RecordStream::new(&view, &mut contexts.decompressor, 64 * MIB as u64).expect("a stream");
            let mut count = 0;
            while stream.next_facts().expect("a record").is_some() {
                count += 1;
            }
            assert_eq!(count, 5000);
        };
        run(&mut contexts);
        let before = ALLOCATIONS.get();
        run(&mut contexts);
        assert_eq!(ALLOCATIONS.get() - before, 0, "{codec}");
    }
}
