//! Reading gzip (RFC 1952) over a raw-deflate context that is reused from batch to batch: member headers and trailers
//! are parsed here, the deflate stream by zlib-rs. As Java's `GZIPInputStream`: several members are read as one stream,
//! CRC-32 and length of each are verified, and what follows the last member without being one is ignored.

use super::{Codec, DecompressError, take};

const FLAG_HEADER_CRC: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;

const TRUNCATED: DecompressError = DecompressError::Truncated { codec: Codec::Gzip };

const fn corrupt(reason: &'static str) -> DecompressError {
    DecompressError::Corrupt {
        codec: Codec::Gzip,
        reason,
    }
}

/// The member being read; its CRC is over the output so far.
pub(super) struct Member {
    crc: flate2::Crc,
    done: bool,
}

impl Member {
    /// Reads the header of the first member.
    pub(super) fn first(src: &mut &[u8]) -> Result<Self, DecompressError> {
        header(src)?;
        Ok(Self {
            crc: flate2::Crc::new(),
            done: false,
        })
    }

    /// Fills `out` (not empty) as far as one call can; 0 is the end of the last member.
    pub(super) fn read(
        &mut self,
        context: &mut flate2::Decompress,
        src: &mut &[u8],
        out: &mut [u8],
    ) -> Result<usize, DecompressError> {
        while !self.done {
            let (in_before, out_before) = (context.total_in(), context.total_out());
            let status = context
                .decompress(src, out, flate2::FlushDecompress::None)
                .map_err(|_| corrupt("invalid deflate data"))?;
            let consumed = (context.total_in() - in_before) as usize;
            let produced = (context.total_out() - out_before) as usize;
            *src = src.get(consumed..).unwrap_or_default();
            self.crc.update(out.get(..produced).unwrap_or_default());
            match status {
                flate2::Status::StreamEnd => self.finish(context, src)?,
                _ if produced == 0 && src.is_empty() => return Err(TRUNCATED),
                _ if produced == 0 && consumed == 0 => return Err(corrupt("deflate data without progress")),
                _ => {}
            }
            if produced > 0 {
                return Ok(produced);
            }
        }
        Ok(0)
    }

    /// Verifies the trailer and goes on to the next member, if there is one.
    fn finish(&mut self, context: &mut flate2::Decompress, src: &mut &[u8]) -> Result<(), DecompressError> {
        let crc = u32::from_le_bytes(take(src).ok_or(TRUNCATED)?);
        let len = u32::from_le_bytes(take(src).ok_or(TRUNCATED)?);
        if crc != self.crc.sum() {
            return Err(corrupt("member checksum mismatch"));
        }
        if len != self.crc.amount() {
            return Err(corrupt("member length mismatch"));
        }
        if header(src).is_err() {
            self.done = true;
            return Ok(());
        }
        self.crc.reset();
        context.reset(false);
        Ok(())
    }
}

/// Consumes one member header.
fn header(src: &mut &[u8]) -> Result<(), DecompressError> {
    let whole = *src;
    let [magic0, magic1, method, flags, ..] = take::<10>(src).ok_or(TRUNCATED)?;
    if [magic0, magic1] != [0x1f, 0x8b] {
        return Err(corrupt("no gzip magic"));
    }
    if method != 8 {
        return Err(corrupt("compression method is not deflate"));
    }
    if flags & FLAG_EXTRA != 0 {
        let len = usize::from(u16::from_le_bytes(take(src).ok_or(TRUNCATED)?));
        *src = src.get(len..).ok_or(TRUNCATED)?;
    }
    for text in [FLAG_NAME, FLAG_COMMENT] {
        if flags & text != 0 {
            let end = src.iter().position(|byte| *byte == 0).ok_or(TRUNCATED)?;
            *src = src.get(end + 1..).unwrap_or_default();
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        let mut crc = flate2::Crc::new();
        crc.update(whole.get(..whole.len() - src.len()).unwrap_or_default());
        let stored = u16::from_le_bytes(take(src).ok_or(TRUNCATED)?);
        if u32::from(stored) != crc.sum() & 0xffff {
            return Err(corrupt("header checksum mismatch"));
        }
    }
    Ok(())
}
