//! What can be read of a commit that was durable and whose checks fail. Each frame has a checksum of its own, so that damage
//! concerns the log of the frame that it hit and no other. A single flipped bit in a frame's header is put right: the checksum
//! says which one it was. Pure.

use super::frame::{CommitHeader, FRAME_HEADER_BYTES, FrameHeader, Invalid, decode_head, split_frame};
use crate::disk::BLOCK_BYTES;

/// A frame of a damaged commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    /// Where it begins behind the commit header, bytes.
    pub(crate) at: usize,
    /// Its header: right if `fault` is `None`, else what it seems to be.
    pub(crate) header: FrameHeader,
    /// Its payload.
    pub(crate) payload: &'a [u8],
    /// The checksum it has and the one its bytes have, if they differ.
    pub(crate) fault: Option<(u32, u32)>,
}

/// All frames of a commit, `bytes` being what lies behind its header: as many as `header` says, or where that is the damage
/// (`None`) all up to the zeroes behind them. `None` when it is not certain that these are all: then frames of any log may be
/// lost.
pub(crate) fn salvage<'a>(header: Option<&CommitHeader>, bytes: &'a [u8]) -> Option<Vec<Piece<'a>>> {
    let bytes = match header {
        Some(header) => bytes.get(..header.frames_bytes as usize)?,
        None => bytes,
    };
    let count = header.map(|header| header.frames as usize);
    let mut pieces = Vec::new();
    let mut at = 0;
    while count.is_none_or(|count| pieces.len() < count) {
        let rest = bytes.get(at..)?;
        if count.is_none() && is_padding(rest) {
            break;
        }
        let piece = piece(at, rest)?;
        at += FRAME_HEADER_BYTES + piece.payload.len();
        pieces.push(piece);
    }
    let is_all = count.is_none() || at == bytes.len();
    (is_all && !pieces.is_empty()).then_some(pieces)
}

/// Where the frames of a commit end whose header is not known, bytes behind the header: behind the last whole frame of
/// those that follow each other from the beginning. `None` unless only zeroes follow up to the next block.
pub(crate) fn frames_end(bytes: &[u8], header_bytes: usize) -> Option<usize> {
    let mut rest = bytes;
    while let Ok((_, _, behind)) = split_frame(rest) {
        rest = behind;
    }
    let end = bytes.len() - rest.len();
    let block_end = (header_bytes + end).next_multiple_of(BLOCK_BYTES) - header_bytes;
    let padding = bytes.get(end..block_end)?;
    (end > 0 && is_padding(padding)).then_some(end)
}

/// What a commit is filled up with. Frames begin with a kind, which is never 0.
fn is_padding(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn piece(at: usize, rest: &[u8]) -> Option<Piece<'_>> {
    let whole = |header, payload| Piece {
        at,
        header,
        payload,
        fault: None,
    };
    if let Ok((frame, ..)) = split_frame(rest) {
        return Some(whole(frame.header, frame.payload));
    }
    let (head, behind) = rest.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    if let Some((header, payload)) = corrected(head, behind) {
        return Some(whole(header, payload));
    }
    // What is wrong is in the payload, then: a header that can be one is taken at its word.
    let header = decode_head(head).ok()?;
    let is_plausible = head[1] <= 1 && head[2..4] == [0; 2] && header.base_offset <= header.end_offset;
    let payload = behind.get(..header.payload_bytes as usize)?;
    let expected = u32::from_le_bytes(*head.last_chunk()?);
    let found = checksum(head, payload);
    is_plausible.then_some(Piece {
        at,
        header,
        payload,
        fault: Some((expected, found)),
    })
}

/// The header with the one bit turned that makes its checksum right, and the payload that belongs to it.
fn corrected<'a>(head: &[u8; FRAME_HEADER_BYTES], behind: &'a [u8]) -> Option<(FrameHeader, &'a [u8])> {
    (0..FRAME_HEADER_BYTES * 8).find_map(|bit| {
        let mut turned = *head;
        turned[bit / 8] ^= 1 << (bit % 8);
        let header = decode_head(&turned).ok()?;
        let payload = behind.get(..header.payload_bytes as usize)?;
        let expected = u32::from_le_bytes(*turned.last_chunk()?);
        (checksum(&turned, payload) == expected).then_some((header, payload))
    })
}

fn checksum(head: &[u8; FRAME_HEADER_BYTES], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(payload), &head[..FRAME_HEADER_BYTES - 4])
}

/// Whether bytes that are no commit header may be one that was damaged. A header of another use of the file is none: what
/// lies there was written before.
pub(crate) const fn may_be_damaged(invalid: Invalid) -> bool {
    matches!(invalid, Invalid::Checksum | Invalid::Magic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::frame::{FrameKind, HEADER_BYTES, Incarnation};
    use crate::types::Offset;

    fn frame(incarnation: u64, payload: &[u8]) -> Vec<u8> {
        let header = FrameHeader {
            kind: FrameKind::Append,
            is_loose: false,
            auxiliary: 0,
            incarnation: Incarnation(incarnation),
            base_offset: Offset(10),
            end_offset: Offset(12),
            segment: Offset(0),
            position: 100,
            payload_bytes: payload.len() as u32,
        };
        let (head, _) = header.encode(crc32c::crc32c(payload));
        [&head[..], payload].concat()
    }

    /// Three frames and the commit header that belongs to them.
    fn commit() -> (CommitHeader, Vec<u8>) {
        let frames = [frame(1, b"one"), frame(2, &[7; 300]), frame(3, b"three")];
        let mut crcs = 0;
        for frame in &frames {
            crcs = crc32c::crc32c_append(crcs, &frame[48..52]);
        }
        let bytes = frames.concat();
        let header = CommitHeader {
            generation: 3,
            sequence: 9,
            durable_sequence: 8,
            frames_bytes: bytes.len() as u32,
            frames: 3,
            frames_crc: crcs,
        };
        (header, bytes)
    }

    #[test]
    fn a_flipped_bit_concerns_one_frame_at_most_wherever_it_is() {
        let (header, bytes) = commit();
        let lengths = [55, 352, 57];
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let pieces = salvage(Some(&header), &bad).unwrap_or_else(|| panic!("bit {bit}"));
            let incarnations: Vec<u64> = pieces.iter().map(|piece| piece.header.incarnation.0).collect();
            assert_eq!(incarnations, [1, 2, 3], "bit {bit}");
            let mut start = 0;
            for (piece, length) in pieces.iter().zip(lengths) {
                let inside = (start..start + length).contains(&(bit / 8));
                let in_payload = inside && bit / 8 >= start + FRAME_HEADER_BYTES;
                assert_eq!(piece.fault.is_some(), in_payload, "bit {bit}");
                start += length;
            }
        }
    }

    #[test]
    fn frames_are_found_without_the_commit_header() {
        let (_, bytes) = commit();
        let end = bytes.len();
        let mut block = bytes.clone();
        block.resize(BLOCK_BYTES - HEADER_BYTES, 0);
        assert_eq!(frames_end(&block, HEADER_BYTES), Some(end));
        let pieces = salvage(None, &block).expect("all of them");
        assert!(pieces.len() == 3 && pieces.iter().all(|piece| piece.fault.is_none()));
        block[end + 5] = 1;
        assert_eq!(frames_end(&block, HEADER_BYTES), None, "not all of it is known");
        assert_eq!(frames_end(&[0; BLOCK_BYTES], HEADER_BYTES), None);
    }

    #[test]
    fn where_frames_may_be_lost_nothing_is_salvaged() {
        let (header, bytes) = commit();
        let mut garbage = bytes.clone();
        garbage[40..90].fill(0xa5); // the joint of two frames
        assert_eq!(salvage(Some(&header), &garbage), None);
        let mut fewer = header;
        fewer.frames = 2;
        assert_eq!(salvage(Some(&fewer), &bytes), None);
        assert_eq!(salvage(Some(&header), &bytes[..100]), None);
        assert_eq!(salvage(None, &[0; 64]), None);
    }
}
