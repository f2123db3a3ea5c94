//! The buffers of the real disk: glommio's, from the executor's arena, and without a copy on the way to a write.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use glommio::allocate_dma_buffer;
use glommio::io::DmaBuffer;

use super::super::{BLOCK_BYTES, DiskBuf, align_up};

/// A buffer from the executor's I/O arena. glommio's arena hands out powers of two: a buffer of 1 MiB + 4 KiB takes
/// 2 MiB of it.
#[repr(transparent)]
pub struct DirectBuf(DmaBuffer);

impl Deref for DirectBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl DerefMut for DirectBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_bytes_mut()
    }
}

impl DiskBuf for DirectBuf {
    fn trim(&mut self, len: usize) {
        assert!(
            len.is_multiple_of(BLOCK_BYTES),
            "a buffer is trimmed to whole blocks, not to {len} bytes"
        );
        if len < self.len() {
            self.0.trim_to_size(len);
        }
    }
}

pub(super) fn alloc(len: usize) -> DirectBuf {
    let len = usize::try_from(align_up(len.max(1) as u64)).expect("a buffer length fits usize");
    DirectBuf(allocate_dma_buffer(len))
}

/// The buffer as glommio wants it, without a copy.
pub(super) fn into_dma(buf: Rc<DirectBuf>) -> Rc<DmaBuffer> {
    // SAFETY: `DirectBuf` is `repr(transparent)` over `DmaBuffer`, so both have the same size, alignment and validity,
    // which is what `Rc::from_raw` asks of a pointer that came from `Rc::into_raw` of another type.
    unsafe { Rc::from_raw(Rc::into_raw(buf).cast::<DmaBuffer>()) }
}
