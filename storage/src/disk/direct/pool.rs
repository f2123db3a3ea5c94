//! Memory for large reads, used again and again: fresh memory for each would cost a page fault for every 4 KiB, as much time as
//! the copy into it. What is read may be dropped on another shard; its memory comes back to this one.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// Bytes of one buffer: the largest read.
const BUFFER_BYTES: usize = super::IO_BYTES_MAX;

/// Reads of fewer bytes use ordinary memory: they would hold a whole buffer each.
const LARGE_BYTES_MIN: usize = BUFFER_BYTES / 2;

/// Buffers that are kept while nobody uses them.
const IDLE_MAX: usize = 16;

/// See the module. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct ReadPool(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer whose bytes are in use.
struct Lent {
    bytes: Vec<u8>,
    home: ReadPool,
}

impl ReadPool {
    /// An empty buffer for a read of `len` bytes.
    pub(super) fn take(&self, len: usize) -> Vec<u8> {
        if !(LARGE_BYTES_MIN..=BUFFER_BYTES).contains(&len) {
            return Vec::with_capacity(len.min(BUFFER_BYTES));
        }
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// The bytes that were read into a buffer of [`Self::take`].
    pub(super) fn lend(&self, bytes: Vec<u8>) -> Bytes {
        if bytes.capacity() != BUFFER_BYTES || bytes.len() < LARGE_BYTES_MIN {
            return Bytes::from(bytes);
        }
        Bytes::from_owner(Lent {
            bytes,
            home: self.clone(),
        })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut idle = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            bytes.clear();
            idle.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_the_last_slice_is_gone_also_from_another_thread() {
        let pool = ReadPool::default();
        let mut buffer = pool.take(BUFFER_BYTES);
        buffer.resize(BUFFER_BYTES, 7);
        let place = buffer.as_ptr();
        let bytes = pool.lend(buffer);
        let slice = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(pool.0.lock().unwrap().len(), 0, "a slice is in use");
        std::thread::spawn(move || drop(slice)).join().unwrap();
        let again = pool.take(BUFFER_BYTES);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
    }

    #[test]
    fn small_reads_hold_no_large_buffer_and_little_is_kept() {
        let pool = ReadPool::default();
        assert_eq!(pool.take(4096).capacity(), 4096);
        let mut cut = pool.take(BUFFER_BYTES);
        cut.resize(100, 1); // the file ended
        assert_eq!(pool.lend(cut).len(), 100);
        let lent: Vec<Bytes> = (0..IDLE_MAX + 5)
            .map(|_| {
                let mut buffer = pool.take(BUFFER_BYTES);
                buffer.resize(BUFFER_BYTES, 0);
                pool.lend(buffer)
            })
            .collect();
        drop(lent);
        assert_eq!(pool.0.lock().unwrap().len(), IDLE_MAX);
    }
}
