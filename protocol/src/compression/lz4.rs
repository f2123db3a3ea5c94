//! Reading the LZ4 frame format over the block decoder of `lz4_flex`, with the same rules as Kafka's Java reader: one
//! frame, independent blocks only, descriptor and block checksums verified, the content checksum skipped, bytes after
//! the end mark ignored. Blocks are decompressed straight from the input; memory is one block (64 KiB to 4 MiB).

use super::{Chunk, Codec, DecompressError, sized, take};
use crate::hash::xxh32;

/// `0x184D2204`, little-endian, as on the wire.
pub(super) const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Version 1, independent blocks, no checksums, no content size.
pub(super) const FLAGS_WRITTEN: u8 = 0x60;
/// 64 KiB blocks.
pub(super) const BLOCK_DESCRIPTOR_WRITTEN: u8 = 0x40;
/// Set in a block's length when the block is stored as it is.
pub(super) const BLOCK_STORED: u32 = 0x8000_0000;

const FLAG_CONTENT_CHECKSUM: u8 = 0x04;
const FLAG_CONTENT_SIZE: u8 = 0x08;
const FLAG_BLOCK_CHECKSUM: u8 = 0x10;
const FLAG_INDEPENDENT: u8 = 0x20;
/// The most an LZ4 sequence expands (255 per length byte), and slack for the smallest block.
const EXPANSION_MAX: usize = 255;
const EXPANSION_SLACK_BYTES: usize = 64;

const TRUNCATED: DecompressError = DecompressError::Truncated { codec: Codec::Lz4 };

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt {
        codec: Codec::Lz4,
        reason,
    }
}

/// The descriptor byte HC: the second byte of the XXH32 of flags and block descriptor (and content size).
pub(super) fn header_checksum(descriptor: &[u8]) -> u8 {
    (xxh32(descriptor) >> 8) as u8
}

/// What of the frame header matters for reading its blocks.
pub(super) struct Frame {
    block_bytes_max: usize,
    block_checksums: bool,
    content_checksum: bool,
    done: bool,
}

impl Frame {
    /// Reads and verifies the frame header.
    pub(super) fn start(src: &mut &[u8]) -> Result<Self, DecompressError> {
        if take::<4>(src).ok_or(TRUNCATED)? != MAGIC {
            return Err(corrupt("no frame magic"));
        }
        let descriptor = *src;
        let [flags, block_descriptor] = take(src).ok_or(TRUNCATED)?;
        if flags >> 6 != 1 || flags & 0x03 != 0 {
            return Err(corrupt("unsupported frame version or reserved flags"));
        }
        if flags & FLAG_INDEPENDENT == 0 {
            return Err(corrupt("linked blocks"));
        }
        let block_bytes_max = match block_descriptor {
            0x40 => 64 * 1024,
            0x50 => 256 * 1024,
            0x60 => 1024 * 1024,
            0x70 => 4 * 1024 * 1024,
            _ => return Err(corrupt("invalid block descriptor")),
        };
        if flags & FLAG_CONTENT_SIZE != 0 {
            // A claim that nothing is allocated from.
            let _content_size: [u8; 8] = take(src).ok_or(TRUNCATED)?;
        }
        let descriptor = descriptor.get(..descriptor.len() - src.len()).unwrap_or_default();
        let [checksum] = take(src).ok_or(TRUNCATED)?;
        if checksum != header_checksum(descriptor) {
            return Err(corrupt("frame descriptor checksum mismatch"));
        }
        Ok(Self {
            block_bytes_max,
            block_checksums: flags & FLAG_BLOCK_CHECKSUM != 0,
            content_checksum: flags & FLAG_CONTENT_CHECKSUM != 0,
            done: false,
        })
    }

    /// The next non-empty block; empty after the end mark.
    pub(super) fn read<'a>(
        &mut self,
        src: &mut &'a [u8],
        scratch: &mut Vec<u8>,
        room: usize,
        too_large: DecompressError,
    ) -> Result<Chunk<'a>, DecompressError> {
        while !self.done {
            let head = u32::from_le_bytes(take(src).ok_or(TRUNCATED)?);
            let len = (head & !BLOCK_STORED) as usize;
            if len == 0 {
                if self.content_checksum {
                    let _skipped: [u8; 4] = take(src).ok_or(TRUNCATED)?;
                }
                self.done = true;
                break;
            }
            if len > self.block_bytes_max {
                return Err(corrupt("block longer than the frame allows"));
            }
            let (block, rest) = src.split_at_checked(len).ok_or(TRUNCATED)?;
            *src = rest;
            if self.block_checksums && u32::from_le_bytes(take(src).ok_or(TRUNCATED)?) != xxh32(block) {
                return Err(corrupt("block checksum mismatch"));
            }
            if head & BLOCK_STORED != 0 {
                return Ok(Chunk::Source(block));
            }
            let written = self.decompress(block, scratch, room, too_large)?;
            if written > 0 {
                return Ok(Chunk::Scratch(written));
            }
        }
        Ok(Chunk::Scratch(0))
    }

    fn decompress(
        &self,
        block: &[u8],
        scratch: &mut Vec<u8>,
        room: usize,
        too_large: DecompressError,
    ) -> Result<usize, DecompressError> {
        let expansion = block
            .len()
            .saturating_mul(EXPANSION_MAX)
            .saturating_add(EXPANSION_SLACK_BYTES);
        let len = self.block_bytes_max.min(expansion).min(room);
        lz4_flex::block::decompress_into(block, sized(scratch, len)).map_err(|error| match error {
            lz4_flex::block::DecompressError::OutputTooSmall { .. } if len == room => too_large,
            _ => corrupt("invalid block"),
        })
    }
}
