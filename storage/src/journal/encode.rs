//! Fills the buffers of one commit: frames first, sizes known beforehand, the header last.

use super::frame::{CommitHeader, FrameHeader, HEADER_BYTES};
use crate::commit::buffers::Chunks;
use crate::disk::Disk;

/// Builds one commit. Frames are put in the order in which they take effect.
pub(crate) struct CommitEncoder<D: Disk> {
    chunks: Chunks<D>,
    frames: u32,
    crcs: u32,
}

impl<D: Disk> CommitEncoder<D> {
    /// A commit whose frames are `frames_bytes` long in all.
    pub(crate) fn new(disk: &D, frames_bytes: usize) -> Self {
        let mut chunks = Chunks::new(disk, HEADER_BYTES + frames_bytes);
        chunks.put(&[0; HEADER_BYTES]);
        Self {
            chunks,
            frames: 0,
            crcs: 0,
        }
    }

    /// Adds a frame; `payload` hands its bytes piece by piece to the function it gets.
    pub(crate) fn frame(&mut self, header: &FrameHeader, payload: impl FnOnce(&mut dyn FnMut(&[u8]))) {
        let at = self.chunks.filled();
        self.chunks.put(&[0; super::frame::FRAME_HEADER_BYTES]);
        let mut crc = 0;
        let chunks = &mut self.chunks;
        payload(&mut |piece| {
            crc = chunks.put_summed(piece, crc);
        });
        assert_eq!(
            self.chunks.filled() - at,
            header.frame_bytes(),
            "a frame's payload is as long as its header says"
        );
        let (bytes, crc) = header.encode(crc);
        self.chunks.patch(at, &bytes);
        self.crcs = crc32c::crc32c_append(self.crcs, &crc.to_le_bytes());
        self.frames += 1;
    }

    /// The commit's buffers, header included.
    pub(crate) fn finish(mut self, generation: u64, sequence: u64, durable_sequence: u64) -> Chunks<D> {
        let header = CommitHeader {
            generation,
            sequence,
            durable_sequence,
            frames_bytes: (self.chunks.filled() - HEADER_BYTES) as u32,
            frames: self.frames,
            frames_crc: self.crcs,
        };
        self.chunks.patch(0, &header.encode());
        self.chunks
    }
}
