//! The four codecs of record batches behind one bounded interface. A shard owns one [`Compressor`] and one
//! [`Decompressor`], whose contexts and buffers are reused from batch to batch.
//! Decompression is streaming: it hands out chunks and never holds more than one of them plus the codec's own window,
//! whatever the input claims; every stream has an output limit in bytes.

mod compressor;
mod gzip;
mod lz4;
mod snappy;
mod zstd;

pub use compressor::{Compressor, EncodeStream};

use snappy::Snappy;

#[cfg(test)]
mod tests;

/// Output bytes per chunk of the codecs without a block size of their own (gzip, zstd).
const CHUNK_BYTES: usize = 64 * 1024;

/// Scratch memory a [`Decompressor`] or [`Compressor`] keeps between batches; what a larger block needed is given back.
const SCRATCH_KEPT_BYTES_MAX: usize = 1024 * 1024;

/// A batch's compression codec, as in the attribute bits 0-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Codec {
    /// Records as they are.
    #[default]
    None = 0,
    /// RFC 1952, one or more members.
    Gzip = 1,
    /// Snappy blocks in xerial framing (Java, librdkafka), or one raw block (some clients).
    Snappy = 2,
    /// One LZ4 frame with independent blocks.
    Lz4 = 3,
    /// One or more zstd frames (KIP-110).
    Zstd = 4,
}

impl Codec {
    /// Every codec, in the order of its attribute bits.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The bits of a batch's attributes that hold the codec.
    pub const ATTRIBUTES_MASK: i16 = 0x07;

    /// The codec in a batch's attributes; `None` for the ids 5-7, which no version of Kafka has assigned.
    #[must_use]
    pub const fn from_attributes(attributes: i16) -> Option<Self> {
        match attributes & Self::ATTRIBUTES_MASK {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The attribute bits of this codec.
    #[must_use]
    pub const fn attribute_bits(self) -> i16 {
        self as i16
    }

    /// Kafka's name for it in configurations of clients (`none`, `gzip`, `snappy`, `lz4`, `zstd`).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The codec of a configured name; the topic configuration's `uncompressed` is `none` too.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "uncompressed" => Some(Self::None),
            _ => Self::ALL.into_iter().find(|codec| codec.name() == name),
        }
    }

    /// The level Kafka uses when none is configured (KIP-390): gzip -1 (the library's choice), lz4 9, zstd 3.
    #[must_use]
    pub const fn level_default(self) -> i32 {
        match self {
            Self::None | Self::Snappy => 0,
            Self::Gzip => -1,
            Self::Lz4 => 9,
            Self::Zstd => 3,
        }
    }

    /// Whether Kafka accepts `level` for this codec: gzip -1 and 1-9, lz4 1-17, zstd -131072 to 22.
    #[must_use]
    pub const fn accepts_level(self, level: i32) -> bool {
        match self {
            Self::None | Self::Snappy => true,
            Self::Gzip => level == -1 || (level >= 1 && level <= 9),
            Self::Lz4 => level >= 1 && level <= 17,
            Self::Zstd => level >= -131_072 && level <= 22,
        }
    }
}

impl std::fmt::Display for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a compressed stream could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The output would exceed the caller's limit. Found before the memory for it is allocated.
    #[error("decompressed bytes exceed the limit of {limit}")]
    TooLarge {
        /// The caller's limit in bytes.
        limit: u64,
    },
    /// The input ends inside a block, frame or member.
    #[error("{codec} stream ends early")]
    Truncated {
        /// The codec of the stream.
        codec: Codec,
    },
    /// The input is not a stream of this codec.
    #[error("{codec} stream is corrupt: {reason}")]
    Corrupt {
        /// The codec of the stream.
        codec: Codec,
        /// What was found wrong.
        reason: &'static str,
    },
}

/// Where the chunk handed out last lies.
enum Chunk<'a> {
    /// The first bytes of the scratch buffer.
    Scratch(usize),
    /// A stored (incompressible) part of the input.
    Source(&'a [u8]),
}

/// The state of one stream, by codec.
enum State {
    None,
    Gzip(gzip::Member),
    Snappy(Snappy),
    Lz4(lz4::Frame),
    Zstd(zstd::Frames),
}

/// Decompression contexts and scratch memory of one shard, created when first needed and reused.
///
/// At most one stream at a time borrows it. Memory: the codec contexts (gzip about 50 KiB, zstd up to its window) plus
/// scratch of one chunk or block; blocks above 1 MiB and zstd windows above 16 MiB are given back after the stream.
#[derive(Default)]
pub struct Decompressor {
    scratch: Vec<u8>,
    /// For the reader of a stream, who joins what straddles chunks in it.
    joined: Vec<u8>,
    gzip: Option<flate2::Decompress>,
    snappy: Option<snap::raw::Decoder>,
    zstd: Option<zstd::Context>,
}

impl Decompressor {
    /// No context is allocated before its codec is used.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts reading `src`, which may produce at most `limit` bytes.
    ///
    /// # Errors
    /// The stream's first header is unreadable.
    pub fn stream<'a>(
        &'a mut self,
        codec: Codec,
        src: &'a [u8],
        limit: u64,
    ) -> Result<DecompressStream<'a>, DecompressError> {
        let mut rest = src;
        let state = match codec {
            Codec::None => State::None,
            Codec::Gzip => State::Gzip(gzip::Member::first(&mut rest)?),
            Codec::Snappy => State::Snappy(Snappy::start(&mut rest)?),
            Codec::Lz4 => State::Lz4(lz4::Frame::start(&mut rest)?),
            Codec::Zstd => State::Zstd(zstd::Frames::default()),
        };
        match &state {
            State::Gzip(_) => match &mut self.gzip {
                Some(context) => context.reset(false),
                context => *context = Some(flate2::Decompress::new(false)),
            },
            State::Zstd(_) => zstd::Context::prepare(&mut self.zstd)?,
            State::None | State::Snappy(_) | State::Lz4(_) => {}
        }
        Ok(DecompressStream {
            contexts: self,
            src: rest,
            state,
            limit,
            produced: 0,
            chunk: Chunk::Scratch(0),
        })
    }

    /// Appends the whole decompressed `src` to `out` and returns how many bytes that were. On an error `out` is left as
    /// it was. `out` grows with what was really produced, never by what the input claims.
    ///
    /// # Errors
    /// As [`DecompressStream::next_chunk`].
    pub fn decompress(
        &mut self,
        codec: Codec,
        src: &[u8],
        limit: u64,
        out: &mut Vec<u8>,
    ) -> Result<usize, DecompressError> {
        let start = out.len();
        let mut copy = || {
            let mut stream = self.stream(codec, src, limit)?;
            loop {
                match stream.next_chunk()? {
                    [] => return Ok(()),
                    chunk => out.extend_from_slice(chunk),
                }
            }
        };
        if let Err(error) = copy() {
            out.truncate(start);
            return Err(error);
        }
        Ok(out.len() - start)
    }

    /// Bytes of Rust memory held between streams (without the codec libraries' contexts).
    #[must_use]
    pub fn scratch_bytes(&self) -> usize {
        self.scratch.capacity() + self.joined.capacity()
    }

    /// Gives back what an unusually large stream needed.
    fn trim(&mut self) {
        for buffer in [&mut self.scratch, &mut self.joined] {
            if buffer.capacity() > SCRATCH_KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.zstd.as_ref().is_some_and(zstd::Context::is_oversized) {
            self.zstd = None;
        }
    }
}

/// What a shard needs to read and write compressed batches, in one piece.
#[derive(Default)]
pub struct CodecContexts {
    /// For reading.
    pub decompressor: Decompressor,
    /// For writing.
    pub compressor: Compressor,
}

/// One compressed stream being read: a sequence of non-empty chunks, then an empty one.
pub struct DecompressStream<'a> {
    contexts: &'a mut Decompressor,
    /// Input not consumed yet.
    src: &'a [u8],
    state: State,
    limit: u64,
    produced: u64,
    chunk: Chunk<'a>,
}

impl DecompressStream<'_> {
    /// The next chunk of output; empty at the end of the stream, and again whenever asked after it.
    ///
    /// # Errors
    /// [`DecompressError`]; the stream must not be read on after one.
    pub fn next_chunk(&mut self) -> Result<&[u8], DecompressError> {
        // One byte more than allowed is asked for, so that reaching the limit exactly is told apart from exceeding it.
        let room = usize::try_from(self.limit - self.produced)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        let too_large = DecompressError::TooLarge { limit: self.limit };
        let Decompressor {
            scratch,
            gzip,
            snappy,
            zstd,
            ..
        } = &mut *self.contexts;
        self.chunk = match &mut self.state {
            State::None => Chunk::Source(std::mem::take(&mut self.src)),
            State::Gzip(member) => {
                let context = gzip.as_mut().expect("stream() creates the gzip context");
                Chunk::Scratch(member.read(context, &mut self.src, sized(scratch, CHUNK_BYTES.min(room)))?)
            }
            State::Snappy(snappy_state) => {
                let decoder = snappy.get_or_insert_with(snap::raw::Decoder::new);
                Chunk::Scratch(snappy_state.read(decoder, &mut self.src, scratch, room, too_large)?)
            }
            State::Lz4(frame) => frame.read(&mut self.src, scratch, room, too_large)?,
            State::Zstd(frames) => {
                let context = zstd.as_mut().expect("stream() creates the zstd context");
                Chunk::Scratch(frames.read(context, &mut self.src, sized(scratch, CHUNK_BYTES.min(room)))?)
            }
        };
        self.produced += self.chunk().len() as u64;
        if self.produced > self.limit {
            self.chunk = Chunk::Scratch(0);
            self.produced = self.limit;
            return Err(too_large);
        }
        Ok(self.chunk())
    }

    /// The chunk that [`Self::next_chunk`] returned last.
    #[must_use]
    pub fn chunk(&self) -> &[u8] {
        match self.chunk {
            Chunk::Scratch(len) => self.contexts.scratch.get(..len).unwrap_or_default(),
            Chunk::Source(bytes) => bytes,
        }
    }

    /// The current chunk, and a buffer in which the stream's reader joins what straddles chunks.
    pub(crate) fn chunk_and_joined(&mut self) -> (&[u8], &mut Vec<u8>) {
        let Decompressor { scratch, joined, .. } = &mut *self.contexts;
        let chunk = match self.chunk {
            Chunk::Scratch(len) => scratch.get(..len).unwrap_or_default(),
            Chunk::Source(bytes) => bytes,
        };
        (chunk, joined)
    }

    /// What the reader has joined.
    pub(crate) fn joined(&self) -> &[u8] {
        &self.contexts.joined
    }

    /// Bytes produced so far, the current chunk included.
    #[must_use]
    pub fn produced(&self) -> u64 {
        self.produced
    }
}

impl Drop for DecompressStream<'_> {
    fn drop(&mut self) {
        self.contexts.trim();
    }
}

/// The first `len` bytes of `scratch`, which grows (zeroed) but does not shrink: no byte is zeroed twice.
fn sized(scratch: &mut Vec<u8>, len: usize) -> &mut [u8] {
    if scratch.len() < len {
        scratch.resize(len, 0);
    }
    &mut scratch[..len]
}

/// Takes `N` bytes off the front of `src`; `None` and unchanged when there are fewer.
fn take<const N: usize>(src: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = src.split_first_chunk::<N>()?;
    *src = rest;
    Some(*head)
}
