//! Writing the four codecs: a [`Compressor`] holds the contexts of one shard, an [`EncodeStream`] takes the records of
//! one batch piece by piece. Input is staged to one block (gzip 16, snappy 32, lz4 and zstd 64 KiB), so that small
//! writes cost a copy and not a library call; output goes to a buffer of the caller, who bounds it.

use flate2::FlushCompress;
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective};

use super::snappy::{XERIAL_MAGIC, XERIAL_VERSIONS};
use super::{Codec, SCRATCH_KEPT_BYTES_MAX, lz4, sized};

/// Fixed gzip member header: deflate, no flags, no time, unknown file system.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// The window is never larger than 8 MiB, whatever the level, so that every reader can decode with little memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;
/// The window libzstd itself takes at its default level; more would only cost the faster levels memory.
const ZSTD_FAST_WINDOW_LOG: u32 = 21;
const ZSTD_WINDOW_LOG_MIN: u32 = 16;

/// Output space offered to a streaming library per call.
const OUTPUT_STEP_BYTES: usize = 16 * 1024;

/// Compression contexts and scratch memory of one shard, created when first needed and reused.
#[derive(Default)]
pub struct Compressor {
    gzip: Option<(i32, flate2::Compress)>,
    zstd: Option<CCtx<'static>>,
    snappy: Option<snap::raw::Encoder>,
    lz4: Option<lz4_flex::block::CompressTable>,
    block: Vec<u8>,
    scratch: Vec<u8>,
}

impl Compressor {
    /// No context is allocated before its codec is used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a stream: the codec's header is appended to `out`.
    ///
    /// `level` outside the codec's range is brought into it; snappy and lz4 have one level here (`lz4_flex` has no
    /// high-compression mode). `size_hint` is how many bytes are going to be written, if known; it only tunes the
    /// zstd window.
    pub fn begin(
        &mut self,
        codec: Codec,
        level: i32,
        size_hint: Option<u64>,
        out: &mut Vec<u8>,
    ) -> EncodeStream<'_> {
        self.block.clear();
        match codec {
            Codec::None => {}
            Codec::Gzip => {
                self.prepare_gzip(level);
                out.extend_from_slice(&GZIP_HEADER);
            }
            Codec::Snappy => {
                out.extend_from_slice(&XERIAL_MAGIC);
                out.extend_from_slice(&XERIAL_VERSIONS);
            }
            Codec::Lz4 => {
                let descriptor = [lz4::FLAGS_WRITTEN, lz4::BLOCK_DESCRIPTOR_WRITTEN];
                out.extend_from_slice(&lz4::MAGIC);
                out.extend_from_slice(&descriptor);
                out.push(lz4::header_checksum(&descriptor));
            }
            Codec::Zstd => self.prepare_zstd(level, size_hint),
        }
        EncodeStream {
            contexts: self,
            codec,
            crc: flate2::Crc::new(),
            written: 0,
        }
    }

    /// Compresses `src` as one stream appended to `out`, and returns the bytes appended.
    pub fn compress(&mut self, codec: Codec, level: i32, src: &[u8], out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let mut stream = self.begin(codec, level, Some(src.len() as u64), out);
        stream.write(src, out);
        stream.finish(out);
        out.len() - start
    }

    fn prepare_gzip(&mut self, level: i32) {
        let level = if level == -1 { -1 } else { level.clamp(1, 9) };
        match &mut self.gzip {
            Some((current, context)) if *current == level => context.reset(),
            context => {
                let setting = match level {
                    -1 => flate2::Compression::default(),
                    level => flate2::Compression::new(level.unsigned_abs()),
                };
                *context = Some((level, flate2::Compress::new(setting, false)));
            }
        }
    }

    fn prepare_zstd(&mut self, level: i32, size_hint: Option<u64>) {
        let context = self.zstd.get_or_insert_with(CCtx::create);
        let level = level.clamp(zstd::zstd_safe::min_c_level(), zstd::zstd_safe::max_c_level());
        let window_log_max = if level <= Codec::Zstd.level_default() {
            ZSTD_FAST_WINDOW_LOG
        } else {
            ZSTD_WINDOW_LOG_MAX
        };
        let size_log = size_hint.map_or(window_log_max, |size| u64::BITS - size.leading_zeros());
        // The session ends first: parameters of a running one cannot be changed.
        context
            .reset(ResetDirective::SessionOnly)
            .expect("a session can always be reset");
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::WindowLog(size_log.clamp(ZSTD_WINDOW_LOG_MIN, window_log_max)),
        ] {
            context
                .set_parameter(parameter)
                .expect("level and window are inside libzstd's documented bounds");
        }
    }
}

/// One compressed stream being written. Dropping it unfinished leaves an unusable tail in the output buffer.
pub struct EncodeStream<'c> {
    contexts: &'c mut Compressor,
    codec: Codec,
    crc: flate2::Crc,
    written: u64,
}

impl EncodeStream<'_> {
    /// Adds `bytes` to the stream. What is complete is appended to `out`, which must be the one given to
    /// [`Compressor::begin`].
    pub fn write(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        self.written += bytes.len() as u64;
        if self.codec == Codec::None {
            out.extend_from_slice(bytes);
            return;
        }
        let block_bytes = block_bytes(self.codec);
        while !bytes.is_empty() {
            let room = block_bytes - self.contexts.block.len();
            let (head, rest) = bytes.split_at(room.min(bytes.len()));
            self.contexts.block.extend_from_slice(head);
            bytes = rest;
            if self.contexts.block.len() == block_bytes {
                self.flush_block(out);
            }
        }
    }

    /// Ends the stream and returns the number of bytes that were written to it (uncompressed).
    pub fn finish(mut self, out: &mut Vec<u8>) -> u64 {
        self.flush_block(out);
        match self.codec {
            Codec::None | Codec::Snappy => {}
            Codec::Gzip => {
                self.deflate(out, FlushCompress::Finish);
                out.extend_from_slice(&self.crc.sum().to_le_bytes());
                out.extend_from_slice(&self.crc.amount().to_le_bytes());
            }
            Codec::Lz4 => out.extend_from_slice(&[0; 4]),
            Codec::Zstd => self.zstd(out, ZSTD_EndDirective::ZSTD_e_end),
        }
        if self.contexts.scratch.capacity() > SCRATCH_KEPT_BYTES_MAX {
            self.contexts.scratch = Vec::new();
        }
        self.written
    }

    /// Compresses what is staged.
    fn flush_block(&mut self, out: &mut Vec<u8>) {
        if self.contexts.block.is_empty() {
            return;
        }
        match self.codec {
            Codec::None => {}
            Codec::Gzip => {
                self.crc.update(&self.contexts.block);
                self.deflate(out, FlushCompress::None);
            }
            Codec::Snappy => self.snappy_block(out),
            Codec::Lz4 => self.lz4_block(out),
            Codec::Zstd => self.zstd(out, ZSTD_EndDirective::ZSTD_e_continue),
        }
        self.contexts.block.clear();
    }

    fn deflate(&mut self, out: &mut Vec<u8>, flush: FlushCompress) {
        let Compressor { gzip, block, .. } = &mut *self.contexts;
        let (_, context) = gzip.as_mut().expect("begin() creates the gzip context");
        let mut input = block.as_slice();
        loop {
            out.reserve(OUTPUT_STEP_BYTES);
            let before = context.total_in();
            let status = context
                .compress_vec(input, out, flush)
                .expect("deflate accepts any input");
            input = input
                .get((context.total_in() - before) as usize..)
                .unwrap_or_default();
            let finished = match flush {
                FlushCompress::Finish => status == flate2::Status::StreamEnd,
                _ => input.is_empty(),
            };
            if finished {
                return;
            }
        }
    }

    fn snappy_block(&mut self, out: &mut Vec<u8>) {
        let Compressor {
            snappy,
            block,
            scratch,
            ..
        } = &mut *self.contexts;
        let encoder = snappy.get_or_insert_with(snap::raw::Encoder::new);
        let compressed = sized(scratch, snap::raw::max_compress_len(block.len()));
        let len = encoder
            .compress(block, compressed)
            .expect("the output holds the worst case of a 32 KiB block");
        out.extend_from_slice(&(len as u32).to_be_bytes());
        out.extend_from_slice(&compressed[..len]);
    }

    fn lz4_block(&mut self, out: &mut Vec<u8>) {
        let Compressor {
            lz4, block, scratch, ..
        } = &mut *self.contexts;
        let table = lz4.get_or_insert_with(lz4_flex::block::CompressTable::large);
        let compressed = sized(scratch, lz4_flex::block::get_maximum_output_size(block.len()));
        let len = lz4_flex::block::compress_into_with_table(block, compressed, table)
            .expect("the output holds the worst case of a 64 KiB block");
        if len < block.len() {
            out.extend_from_slice(&(len as u32).to_le_bytes());
            out.extend_from_slice(&compressed[..len]);
        } else {
            out.extend_from_slice(&(block.len() as u32 | lz4::BLOCK_STORED).to_le_bytes());
            out.extend_from_slice(block);
        }
    }

    fn zstd(&mut self, out: &mut Vec<u8>, directive: ZSTD_EndDirective) {
        let Compressor { zstd, block, .. } = &mut *self.contexts;
        let context = zstd.as_mut().expect("begin() creates the zstd context");
        let mut input = InBuffer::around(block);
        loop {
            out.reserve(OUTPUT_STEP_BYTES);
            let end = out.len();
            let mut output = OutBuffer::around_pos(out, end);
            let remaining = context
                .compress_stream2(&mut output, &mut input, directive)
                .expect("zstd compression fails only without memory");
            let finished = match directive {
                ZSTD_EndDirective::ZSTD_e_end => remaining == 0,
                _ => input.pos() == block.len(),
            };
            if finished {
                return;
            }
        }
    }
}

/// Bytes staged before a library call: the block sizes of Java's writers where the format has blocks.
const fn block_bytes(codec: Codec) -> usize {
    match codec {
        Codec::None | Codec::Gzip => 16 * 1024,
        Codec::Snappy => 32 * 1024,
        Codec::Lz4 | Codec::Zstd => 64 * 1024,
    }
}
