//! Reading snappy as Kafka's clients write it: xerial framing (16-byte header, then big-endian length and raw block,
//! repeated) or, without that header, the whole input as one raw block. A block's claimed output length is checked
//! against the stream's limit and against what snappy can expand at all before memory is allocated for it.

use super::{Codec, DecompressError, sized, take};

/// The first bytes of a xerial stream.
pub(super) const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];

/// Version and lowest compatible version that Java writes, big-endian.
pub(super) const XERIAL_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];

/// The most a snappy element expands: a 3-byte copy of 64 bytes, rounded up.
const EXPANSION_MAX: usize = 22;

const TRUNCATED: DecompressError = DecompressError::Truncated { codec: Codec::Snappy };

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt {
        codec: Codec::Snappy,
        reason,
    }
}

/// The framing of the stream being read.
pub(super) enum Snappy {
    /// One block not read yet.
    Raw,
    /// Blocks until the input ends.
    Xerial,
    /// The raw block has been read.
    Done,
}

impl Snappy {
    /// Tells the framings apart by the magic and consumes the header.
    pub(super) fn start(src: &mut &[u8]) -> Result<Self, DecompressError> {
        if src.is_empty() {
            return Err(TRUNCATED);
        }
        if src.len() < XERIAL_MAGIC.len() + XERIAL_VERSIONS.len() || !src.starts_with(&XERIAL_MAGIC) {
            return Ok(Self::Raw);
        }
        header(src)?;
        Ok(Self::Xerial)
    }

    /// Decompresses the next non-empty block into `scratch`; 0 is the end.
    pub(super) fn read(
        &mut self,
        decoder: &mut snap::raw::Decoder,
        src: &mut &[u8],
        scratch: &mut Vec<u8>,
        room: usize,
        too_large: DecompressError,
    ) -> Result<usize, DecompressError> {
        loop {
            let block = match self {
                Self::Done => return Ok(0),
                Self::Raw => {
                    *self = Self::Done;
                    std::mem::take(src)
                }
                Self::Xerial if src.is_empty() => return Ok(0),
                Self::Xerial => next_block(src)?,
            };
            let len = snap::raw::decompress_len(block).map_err(|_| corrupt("unreadable block length"))?;
            if len > block.len().saturating_mul(EXPANSION_MAX) {
                return Err(corrupt("block claims more output than its input can hold"));
            }
            if len >= room {
                return Err(too_large);
            }
            let out = sized(scratch, len);
            let written = decoder
                .decompress(block, out)
                .map_err(|_| corrupt("invalid block"))?;
            if written > 0 {
                return Ok(written);
            }
        }
    }
}

/// The next block of a xerial stream. A new stream header between blocks (concatenated streams) is consumed.
fn next_block<'a>(src: &mut &'a [u8]) -> Result<&'a [u8], DecompressError> {
    while src.starts_with(&XERIAL_MAGIC) {
        header(src)?;
    }
    let len = u32::from_be_bytes(take(src).ok_or(TRUNCATED)?) as usize;
    let (block, rest) = src.split_at_checked(len).ok_or(TRUNCATED)?;
    *src = rest;
    Ok(block)
}

/// Consumes magic, version and lowest compatible version.
fn header(src: &mut &[u8]) -> Result<(), DecompressError> {
    // Java's reader takes any version.
    let _header: [u8; 16] = take(src).ok_or(TRUNCATED)?;
    Ok(())
}
