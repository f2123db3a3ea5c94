//! Round trips of every codec at every size class, and inputs that lie.

use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 16 * 1024 * 1024;

fn decompress(codec: Codec, src: &[u8], limit: u64) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    Decompressor::new().decompress(codec, src, limit, &mut out)?;
    Ok(out)
}

fn compress(codec: Codec, level: i32, src: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Compressor::new().compress(codec, level, src, &mut out);
    out
}

/// Half text, half noise, so that blocks of both kinds (compressed, stored) appear.
fn sample(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491u32;
    (0..len)
        .map(|i| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if (i / 50_000) % 2 == 0 {
                b"penstock "[i % 9]
            } else {
                (state >> 24) as u8
            }
        })
        .collect()
}

#[test]
fn contexts_are_reused_across_codecs_sizes_and_levels() {
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for len in [
        0, 1, 100, 16_384, 32_768, 65_535, 65_536, 65_537, 300_000, 2_000_000,
    ] {
        let plain = sample(len);
        for codec in Codec::ALL {
            for level in [codec.level_default(), 1, 9] {
                let mut packed = b"kept".to_vec();
                let added = compressor.compress(codec, level, &plain, &mut packed);
                assert_eq!(packed.len(), added + 4, "{codec} {len}");
                let mut out = b"kept too".to_vec();
                let unpacked = decompressor.decompress(codec, &packed[4..], LIMIT, &mut out);
                assert_eq!(unpacked, Ok(len), "{codec} level {level} {len}");
                assert_eq!(out[8..], plain, "{codec} level {level} {len}");
            }
        }
    }
    assert!(decompressor.scratch_bytes() <= SCRATCH_KEPT_BYTES_MAX);
}

#[test]
fn out_of_range_levels_are_brought_into_range() {
    let plain = sample(100_000);
    for codec in Codec::ALL {
        for level in [i32::MIN, 0, i32::MAX] {
            assert_eq!(
                decompress(codec, &compress(codec, level, &plain), LIMIT),
                Ok(plain.clone()),
                "{codec} {level}"
            );
        }
    }
}

#[test]
fn levels_kafka_accepts() {
    let accepted =
        |codec: Codec| [-131_073, -131_072, -1, 0, 1, 9, 10, 17, 18, 22, 23].map(|l| codec.accepts_level(l));
    assert_eq!(
        accepted(Codec::Gzip),
        [
            false, false, true, false, true, true, false, false, false, false, false
        ]
    );
    assert_eq!(
        accepted(Codec::Lz4),
        [
            false, false, false, false, true, true, true, true, false, false, false
        ]
    );
    assert_eq!(
        accepted(Codec::Zstd),
        [false, true, true, true, true, true, true, true, true, true, false]
    );
    for codec in Codec::ALL {
        assert!(codec.accepts_level(codec.level_default()), "{codec}");
        assert_eq!(Codec::from_attributes(codec.attribute_bits() | 0x70), Some(codec));
        assert_eq!(Codec::from_name(codec.name()), Some(codec));
    }
    assert_eq!([5, 6, 7].map(Codec::from_attributes), [None; 3]);
    assert_eq!(
        (Codec::from_name("uncompressed"), Codec::from_name("producer")),
        (Some(Codec::None), None)
    );
}

#[test]
fn the_limit_is_exact() {
    for codec in Codec::ALL {
        for len in [1, 70_000, 400_000] {
            let plain = sample(len);
            let packed = compress(codec, codec.level_default(), &plain);
            assert_eq!(
                decompress(codec, &packed, len as u64).as_ref(),
                Ok(&plain),
                "{codec} {len}"
            );
            let limit = len as u64 - 1;
            assert_eq!(
                decompress(codec, &packed, limit),
                Err(DecompressError::TooLarge { limit }),
                "{codec} {len}"
            );
        }
    }
}

#[test]
fn an_error_leaves_the_output_as_it_was() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let packed = compress(codec, 1, &sample(300_000));
        let mut out = b"kept".to_vec();
        let cut = &packed[..packed.len() - 1];
        assert!(
            Decompressor::new()
                .decompress(codec, cut, LIMIT, &mut out)
                .is_err(),
            "{codec}"
        );
        assert_eq!(out, b"kept", "{codec}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let packed = compress(codec, 1, &sample(60_000));
        for len in 0..packed.len() {
            let result = decompress(codec, &packed[..len], LIMIT);
            // A zstd stream of zero frames is empty, not truncated.
            let empty_stream = codec == Codec::Zstd && len == 0;
            assert_eq!(
                result.is_err(),
                !empty_stream,
                "{codec} cut to {len} bytes gave {:?}",
                result.map(|out| out.len())
            );
        }
    }
}

#[test]
fn snappy_truncated_inside_a_block_is_an_error() {
    let packed = compress(Codec::Snappy, 0, &sample(60_000));
    let first_block = 16 + 4 + u32::from_be_bytes(packed[16..20].try_into().expect("four bytes")) as usize;
    for len in 16..packed.len() {
        let whole_blocks = len == 16 || len == first_block;
        assert_eq!(
            decompress(Codec::Snappy, &packed[..len], LIMIT).is_ok(),
            whole_blocks,
            "cut to {len}"
        );
    }
}

#[test]
fn corrupt_checksums_are_found() {
    let plain = sample(1000);
    let mut gzip = compress(Codec::Gzip, -1, &plain);
    let crc_at = gzip.len() - 8;
    gzip[crc_at] ^= 1;
    assert_eq!(
        decompress(Codec::Gzip, &gzip, LIMIT),
        Err(DecompressError::Corrupt {
            codec: Codec::Gzip,
            reason: "member checksum mismatch"
        })
    );
    let mut lz4 = compress(Codec::Lz4, 1, &plain);
    lz4[6] ^= 1;
    assert_eq!(
        decompress(Codec::Lz4, &lz4, LIMIT),
        Err(DecompressError::Corrupt {
            codec: Codec::Lz4,
            reason: "frame descriptor checksum mismatch"
        })
    );
}

#[test]
fn gzip_members_are_one_stream_and_garbage_after_them_is_ignored() {
    let mut stream = compress(Codec::Gzip, 1, b"one ");
    stream.extend_from_slice(&compress(Codec::Gzip, 9, b"two"));
    stream.extend_from_slice(b"not a member");
    assert_eq!(
        decompress(Codec::Gzip, &stream, LIMIT).as_deref(),
        Ok(b"one two".as_slice())
    );
}

#[test]
fn gzip_headers_with_every_optional_field() {
    let packed = compress(Codec::Gzip, 1, b"payload");
    let mut stream = vec![0x1f, 0x8b, 8, 0x1f, 1, 2, 3, 4, 0, 3];
    stream.extend_from_slice(&[3, 0, b'x', b'y', b'z']);
    stream.extend_from_slice(b"name\0comment\0");
    let mut crc = flate2::Crc::new();
    crc.update(&stream);
    stream.extend_from_slice(&(crc.sum() as u16).to_le_bytes());
    let at = stream.len();
    stream.extend_from_slice(&packed[10..]);
    assert_eq!(
        decompress(Codec::Gzip, &stream, LIMIT).as_deref(),
        Ok(b"payload".as_slice())
    );
    stream[at - 1] ^= 0x80;
    assert_eq!(
        decompress(Codec::Gzip, &stream, LIMIT),
        Err(DecompressError::Corrupt {
            codec: Codec::Gzip,
            reason: "header checksum mismatch"
        })
    );
}

#[test]
fn snappy_raw_and_concatenated_xerial_streams_are_read() {
    let plain = sample(100_000);
    let raw = snap::raw::Encoder::new().compress_vec(&plain).expect("compress");
    assert_eq!(decompress(Codec::Snappy, &raw, LIMIT), Ok(plain.clone()));
    let mut twice = compress(Codec::Snappy, 0, b"one ");
    twice.extend_from_slice(&compress(Codec::Snappy, 0, b"two"));
    assert_eq!(
        decompress(Codec::Snappy, &twice, LIMIT).as_deref(),
        Ok(b"one two".as_slice())
    );
}

#[test]
fn snappy_lengths_are_claims() {
    // Four gigabytes claimed by six bytes; then a claim that is possible, above the limit.
    assert_eq!(
        decompress(Codec::Snappy, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0], u64::MAX),
        Err(DecompressError::Corrupt {
            codec: Codec::Snappy,
            reason: "block claims more output than its input can hold"
        })
    );
    assert_eq!(
        decompress(Codec::Snappy, &[100, 0, 0, 0, 0], 99),
        Err(DecompressError::TooLarge { limit: 99 })
    );
    let mut xerial = [XERIAL, [0, 0, 0, 1, 0, 0, 0, 1]].concat();
    xerial.extend_from_slice(&[0xff, 0xff, 0xff, 0xff, 0]);
    assert_eq!(
        decompress(Codec::Snappy, &xerial, LIMIT),
        Err(DecompressError::Truncated { codec: Codec::Snappy })
    );
}

const XERIAL: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

#[test]
fn lz4_is_written_as_kafkas_readers_want_it() {
    let packed = compress(Codec::Lz4, 9, &sample(200_000));
    // Magic, version 1 with independent blocks and nothing else, 64 KiB blocks, descriptor checksum.
    assert_eq!(packed[..7], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82]);
    let mut reference = lz4_flex::frame::FrameDecoder::new(packed.as_slice());
    let mut out = Vec::new();
    std::io::Read::read_to_end(&mut reference, &mut out).expect("lz4_flex reads it");
    assert_eq!(out, sample(200_000));
}

#[test]
fn lz4_frames_of_every_block_size_and_checksum_are_read() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let plain = sample(5_000_000);
    for size in [
        BlockSize::Max64KB,
        BlockSize::Max256KB,
        BlockSize::Max1MB,
        BlockSize::Max4MB,
    ] {
        for checksums in [false, true] {
            let frame = FrameInfo::new()
                .block_size(size)
                .block_mode(BlockMode::Independent)
                .block_checksums(checksums)
                .content_checksum(checksums)
                .content_size(checksums.then_some(plain.len() as u64));
            let mut encoder = FrameEncoder::with_frame_info(frame, Vec::new());
            std::io::Write::write_all(&mut encoder, &plain).expect("write");
            let mut packed = encoder.finish().expect("finish");
            assert_eq!(decompress(Codec::Lz4, &packed, LIMIT).as_ref(), Ok(&plain));
            if checksums {
                let in_block = packed.len() / 2;
                packed[in_block] ^= 1;
                assert!(decompress(Codec::Lz4, &packed, LIMIT).is_err());
            }
        }
    }
}

#[test]
fn lz4_linked_blocks_are_refused() {
    use lz4_flex::frame::{BlockMode, FrameEncoder, FrameInfo};
    let frame = FrameInfo::new().block_mode(BlockMode::Linked);
    let mut encoder = FrameEncoder::with_frame_info(frame, Vec::new());
    std::io::Write::write_all(&mut encoder, &sample(200_000)).expect("write");
    let packed = encoder.finish().expect("finish");
    assert_eq!(
        decompress(Codec::Lz4, &packed, LIMIT),
        Err(DecompressError::Corrupt {
            codec: Codec::Lz4,
            reason: "linked blocks"
        })
    );
}

#[test]
fn zstd_frames_are_one_stream_and_garbage_after_them_is_an_error() {
    let mut stream = compress(Codec::Zstd, 3, b"one ");
    stream.extend_from_slice(&compress(Codec::Zstd, 19, b"two"));
    assert_eq!(
        decompress(Codec::Zstd, &stream, LIMIT).as_deref(),
        Ok(b"one two".as_slice())
    );
    stream.extend_from_slice(b"not a frame");
    assert!(matches!(
        decompress(Codec::Zstd, &stream, LIMIT),
        Err(DecompressError::Corrupt { .. })
    ));
}

#[test]
fn a_zstd_window_above_128_mib_is_refused() {
    // Frame magic, descriptor without content size, window descriptor for 2^28 bytes, one empty last raw block.
    let frame = |window: u8| [0x28, 0xb5, 0x2f, 0xfd, 0x00, window, 0x01, 0x00, 0x00];
    assert_eq!(
        decompress(Codec::Zstd, &frame(17 << 3), LIMIT).as_deref(),
        Ok([].as_slice())
    );
    assert!(matches!(
        decompress(Codec::Zstd, &frame(18 << 3), LIMIT),
        Err(DecompressError::Corrupt { .. })
    ));
}

#[test]
fn a_stream_stays_at_its_end() {
    for codec in Codec::ALL {
        let packed = compress(codec, 1, b"once");
        let mut decompressor = Decompressor::new();
        let mut stream = decompressor.stream(codec, &packed, LIMIT).expect("stream");
        assert_eq!(stream.next_chunk(), Ok(b"once".as_slice()), "{codec}");
        assert_eq!(stream.chunk(), b"once", "{codec}");
        for _ in 0..3 {
            assert_eq!(stream.next_chunk(), Ok([].as_slice()), "{codec}");
        }
        assert_eq!(stream.produced(), 4, "{codec}");
    }
}

proptest! {
    #[test]
    fn any_bytes_come_back(plain in proptest::collection::vec(any::<u8>(), 0..5000), repeat in 1usize..40, codec in 0usize..5) {
        let plain = plain.repeat(repeat);
        let codec = Codec::ALL[codec];
        let packed = compress(codec, codec.level_default(), &plain);
        prop_assert_eq!(decompress(codec, &packed, plain.len() as u64), Ok(plain));
    }

    #[test]
    fn split_writes_give_the_same_stream(cuts in proptest::collection::vec(0usize..200_000, 0..20), codec in 0usize..5) {
        let codec = Codec::ALL[codec];
        let plain = sample(200_000);
        let mut cuts = cuts;
        cuts.sort_unstable();
        let (mut compressor, mut out, mut from) = (Compressor::new(), Vec::new(), 0);
        let mut stream = compressor.begin(codec, 1, Some(200_000), &mut out);
        for cut in cuts.into_iter().chain([plain.len()]) {
            stream.write(&plain[from..cut], &mut out);
            from = cut;
        }
        prop_assert_eq!(stream.finish(&mut out), 200_000);
        prop_assert_eq!(out, compress(codec, 1, &plain));
    }

    #[test]
    fn flipped_bytes_never_panic(at in 0usize..10_000, with in 1u8.., codec in 1usize..5) {
        let codec = Codec::ALL[codec];
        let mut packed = compress(codec, 1, &sample(20_000));
        let at = at % packed.len();
        packed[at] ^= with;
        let _ = decompress(codec, &packed, 1_000_000);
    }

    #[test]
    fn garbage_never_panics(src in proptest::collection::vec(any::<u8>(), 0..300), codec in 1usize..5) {
        let _ = decompress(Codec::ALL[codec], &src, 1_000_000);
    }
}
