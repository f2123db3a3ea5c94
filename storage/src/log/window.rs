//! Bytes of a segment in pieces, as they were read: headers are parsed across the joints, and what is taken out of them is
//! not copied.

use bytes::Bytes;

use protocol::record::BATCH_HEADER_BYTES;

/// Where in a batch the bytes begin that its checksum is over.
const CRC_START: usize = 21;

use super::batch::BatchHeader;

/// A stretch of a segment.
#[derive(Debug, Default)]
pub(super) struct Window {
    pieces: Vec<Bytes>,
    len: usize,
}

impl Window {
    pub(super) fn new(pieces: Vec<Bytes>) -> Self {
        let len = pieces.iter().map(Bytes::len).sum();
        Self { pieces, len }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The header of the batch that begins at `at`; `None` when there is none or only a part of one.
    pub(super) fn header(&self, at: usize) -> Option<BatchHeader> {
        let mut skip = at;
        let mut joined = [0; BATCH_HEADER_BYTES];
        let mut filled = 0;
        for piece in &self.pieces {
            if skip >= piece.len() {
                skip -= piece.len();
                continue;
            }
            let rest = piece.get(skip..)?;
            if filled == 0 && rest.len() >= BATCH_HEADER_BYTES {
                return BatchHeader::parse(rest);
            }
            let count = rest.len().min(BATCH_HEADER_BYTES - filled);
            joined
                .get_mut(filled..filled + count)?
                .copy_from_slice(rest.get(..count)?);
            filled += count;
            skip = 0;
            if filled == BATCH_HEADER_BYTES {
                break;
            }
        }
        BatchHeader::parse(joined.get(..filled)?)
    }

    /// The checksum of the batch from `from` to `to`, as its bytes have it.
    pub(super) fn batch_crc(&self, from: usize, to: usize) -> u32 {
        let pieces = self.slice(from + CRC_START, to);
        pieces
            .iter()
            .fold(0, |crc, piece| crc32c::crc32c_append(crc, piece))
    }

    /// The bytes from `from` to `to`.
    pub(super) fn slice(&self, from: usize, to: usize) -> Vec<Bytes> {
        let mut out = Vec::with_capacity(self.pieces.len());
        let mut start = 0;
        for piece in &self.pieces {
            let end = start + piece.len();
            let (low, high) = (from.max(start), to.min(end));
            if low < high {
                out.push(piece.slice(low - start..high - start));
            }
            start = end;
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_wherever_the_joint_is() {
        let mut batch = vec![0u8; 100];
        batch[7] = 42; // base offset
        batch[11] = 88; // length
        batch[16] = 2;
        let bytes = Bytes::from(batch);
        let whole = Window::new(vec![bytes.clone()]).header(0);
        assert_eq!(whole.map(|header| header.base_offset.0), Some(42));
        for joint in 0..=100 {
            let before = Bytes::from(vec![9; 5]);
            let pieces = vec![before, bytes.slice(..joint), bytes.slice(joint..)];
            let window = Window::new(pieces);
            assert_eq!(window.header(5), whole, "joint at {joint}");
            assert_eq!(window.slice(5, 105).concat(), bytes);
            assert_eq!((window.len(), window.header(60)), (105, None));
        }
    }
}
