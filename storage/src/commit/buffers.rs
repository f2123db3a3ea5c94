//! Aligned output that is longer than one I/O may be: a run of buffers of at most [`IO_BYTES_MAX`], filled from the front,
//! padded with zeroes to a whole block, written side by side.

use std::rc::Rc;

use crate::disk::{BLOCK_BYTES, Disk, DiskBuf, DiskError, DiskFile, IO_BYTES_MAX, align_up};
use crate::notify::join_all;

/// Bytes are copied and summed so many at a time: what was copied is summed while it is in the processor's cache.
const SUM_STEP_BYTES: usize = 16 << 10;

/// Bytes on their way to one place of one file.
pub(crate) struct Chunks<D: Disk> {
    buffers: Vec<D::Buf>,
    filled: usize,
    capacity: usize,
}

impl<D: Disk> Chunks<D> {
    /// Room for exactly `len` bytes and the padding.
    pub(crate) fn new(disk: &D, len: usize) -> Self {
        let capacity = align_up(len as u64) as usize;
        let mut buffers = Vec::with_capacity(capacity.div_ceil(IO_BYTES_MAX));
        let mut left = capacity;
        while left > 0 {
            let chunk = left.min(IO_BYTES_MAX);
            let mut buffer = disk.alloc(chunk);
            if buffer.len() > chunk {
                buffer.trim(chunk);
            }
            buffers.push(buffer);
            left -= chunk;
        }
        Self {
            buffers,
            filled: 0,
            capacity,
        }
    }

    /// Appends bytes. What was promised to [`Self::new`] must not be exceeded.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        assert!(
            bytes.len() <= self.capacity - self.filled,
            "a write is sized before it is filled"
        );
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let at = self.filled % IO_BYTES_MAX;
            let buffer = &mut self.buffers[self.filled / IO_BYTES_MAX];
            let count = bytes.len().min(buffer.len() - at);
            buffer[at..at + count].copy_from_slice(&bytes[..count]);
            self.filled += count;
            bytes = &bytes[count..];
        }
    }

    /// Appends bytes as [`Self::put`] does, and goes on with `crc`, the CRC-32C of what came before them.
    pub(crate) fn put_summed(&mut self, bytes: &[u8], crc: u32) -> u32 {
        bytes.chunks(SUM_STEP_BYTES).fold(crc, |crc, part| {
            self.put(part);
            crc32c::crc32c_append(crc, part)
        })
    }

    /// Overwrites bytes put before.
    pub(crate) fn patch(&mut self, position: usize, bytes: &[u8]) {
        assert!(
            position + bytes.len() <= self.filled,
            "only what was put is patched"
        );
        for (index, byte) in bytes.iter().enumerate() {
            let at = position + index;
            self.buffers[at / IO_BYTES_MAX][at % IO_BYTES_MAX] = *byte;
        }
    }

    /// Bytes put so far, without the padding.
    pub(crate) const fn filled(&self) -> usize {
        self.filled
    }

    /// Bytes on disk: whole blocks.
    pub(crate) fn padded_bytes(&self) -> u64 {
        debug_assert_eq!(self.capacity % BLOCK_BYTES, 0);
        self.capacity as u64
    }

    /// Whether one write carries all of it.
    pub(crate) fn is_one_write(&self) -> bool {
        self.buffers.len() <= 1
    }

    /// What was not put is zeroes: the buffers came with anything in them.
    fn pad(&mut self) {
        while self.filled < self.capacity {
            let at = self.filled % IO_BYTES_MAX;
            let rest = &mut self.buffers[self.filled / IO_BYTES_MAX][at..];
            rest.fill(0);
            self.filled += rest.len();
        }
    }

    /// Writes all of it at `position`, a multiple of the block size, and ends when every part is written.
    pub(crate) async fn write<F: DiskFile<Buf = D::Buf>>(
        mut self,
        file: &F,
        position: u64,
    ) -> Result<(), DiskError> {
        self.pad();
        let mut at = position;
        let parts: Vec<_> = self
            .buffers
            .into_iter()
            .map(|buffer| {
                let position = at;
                at += buffer.len() as u64;
                file.write_at(Rc::new(buffer), position)
            })
            .collect();
        join_all(parts).await.into_iter().collect()
    }
}
