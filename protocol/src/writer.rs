//! Encodes into a growing buffer and splices large byte fields in as slices of their own, so that a response leaves
//! the process with one vectored write and without copying record bytes.
//!
//! Writing never fails in the middle: the first thing that cannot be written is noted and returned by
//! [`Writer::check`] or at the end, which keeps the generated code free of a branch per field.

use bytes::{BufMut, Bytes, BytesMut};

use crate::error::{EncodeError, EncodeFault};

/// Byte fields shorter than this are copied: a slice of its own costs an entry of the vectored write and a reference
/// count, and pins the buffer that it comes from.
pub const SPLICE_BYTES_MIN: usize = 4 << 10;

/// Size of the length field before a frame.
const FRAME_LENGTH_BYTES: usize = 4;

/// Writes messages. See the module's text.
#[derive(Debug, Default)]
pub struct Writer {
    /// Everything before the first splice, still writable for the frame's length.
    head: Option<BytesMut>,
    chunks: Vec<Bytes>,
    tail: BytesMut,
    /// Bytes in `head` and `chunks`.
    spliced_len: usize,
    splicing_off: bool,
    frame: bool,
    fault: Option<EncodeFault>,
}

impl Writer {
    /// An empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty writer with room for `capacity` bytes outside of splices.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            tail: BytesMut::with_capacity(capacity),
            ..Self::default()
        }
    }

    /// A writer whose output starts with the four-byte length of all that follows it.
    pub fn framed(capacity: usize) -> Self {
        let mut writer = Self::with_capacity(capacity + FRAME_LENGTH_BYTES);
        writer.frame = true;
        writer.tail.put_bytes(0, FRAME_LENGTH_BYTES);
        writer
    }

    /// Bytes written so far, spliced ones and a frame's length field included.
    pub fn len(&self) -> usize {
        self.spliced_len + self.tail.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first fault since the last call, attributed to a message.
    ///
    /// # Errors
    /// That fault.
    pub fn check(&mut self, message: &'static str, version: i16) -> Result<(), EncodeError> {
        match self.fault.take() {
            Some(fault) => Err(EncodeError {
                message,
                version,
                fault,
            }),
            None => Ok(()),
        }
    }

    /// The output, as slices for one vectored write.
    ///
    /// # Errors
    /// The first fault that [`Writer::check`] has not returned; a frame longer than `i32::MAX`.
    pub fn finish(mut self) -> Result<Vec<Bytes>, EncodeError> {
        self.close_frame();
        self.check("?", -1)?;
        let mut chunks = Vec::with_capacity(self.chunks.len() + 2);
        chunks.extend(self.head.map(BytesMut::freeze));
        chunks.append(&mut self.chunks);
        if !self.tail.is_empty() {
            chunks.push(self.tail.freeze());
        }
        Ok(chunks)
    }

    /// The output in one piece, joined by a copy when there are splices.
    ///
    /// # Errors
    /// As [`Writer::finish`].
    pub fn into_bytes(mut self) -> Result<Bytes, EncodeError> {
        if self.head.is_none() && self.chunks.is_empty() {
            self.close_frame();
            self.check("?", -1)?;
            return Ok(self.tail.freeze());
        }
        let mut joined = BytesMut::with_capacity(self.len());
        self.finish()?.iter().for_each(|chunk| joined.put_slice(chunk));
        Ok(joined.freeze())
    }

    fn close_frame(&mut self) {
        if !self.frame {
            return;
        }
        let len = self.len() - FRAME_LENGTH_BYTES;
        let Ok(len) = i32::try_from(len) else {
            return self.too_long(len);
        };
        let start = self.head.as_mut().unwrap_or(&mut self.tail);
        if let Some(field) = start.get_mut(..FRAME_LENGTH_BYTES) {
            field.copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Appends bytes: by reference when there are many, by copy when there are few.
    pub fn splice(&mut self, bytes: &Bytes) {
        if bytes.len() < SPLICE_BYTES_MIN || self.splicing_off {
            self.tail.put_slice(bytes);
            return;
        }
        let before = self.tail.split();
        self.spliced_len += before.len() + bytes.len();
        if self.head.is_none() && self.chunks.is_empty() && !before.is_empty() {
            self.head = Some(before);
        } else if !before.is_empty() {
            self.chunks.push(before.freeze());
        }
        self.chunks.push(bytes.clone());
    }

    /// Appends a copy of `bytes`.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.tail.put_slice(bytes);
    }

    /// Runs `content` with splices turned into copies, so that it stays in one piece at the end of the buffer.
    pub(crate) fn without_splicing(&mut self, content: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.splicing_off, true);
        content(self);
        self.splicing_off = outer;
    }

    #[inline]
    pub(crate) fn tail_mut(&mut self) -> &mut BytesMut {
        &mut self.tail
    }

    #[cold]
    fn fail(&mut self, fault: EncodeFault) {
        self.fault.get_or_insert(fault);
    }

    #[cold]
    pub(crate) fn too_long(&mut self, len: usize) {
        self.fail(EncodeFault::TooLong(len));
    }

    /// Notes that `field` is null where it may not be.
    #[cold]
    pub fn null(&mut self, field: &'static str) {
        self.fail(EncodeFault::Null(field));
    }

    /// Notes that struct `name` does not exist in the version.
    #[cold]
    pub fn struct_not_in_version(&mut self, name: &'static str) {
        self.fail(EncodeFault::StructNotInVersion(name));
    }

    /// Notes that `field`, which does not exist in the version, holds something that would be lost.
    #[inline]
    pub fn absent(&mut self, is_default: bool, field: &'static str) {
        if !is_default {
            self.fail(EncodeFault::FieldNotInVersion(field));
        }
    }

    /// One byte.
    #[inline]
    pub fn i8(&mut self, value: i8) {
        self.tail.put_i8(value);
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self, value: u8) {
        self.tail.put_u8(value);
    }

    /// Two bytes, big-endian.
    #[inline]
    pub fn i16(&mut self, value: i16) {
        self.tail.put_i16(value);
    }

    /// Two bytes, big-endian.
    #[inline]
    pub fn u16(&mut self, value: u16) {
        self.tail.put_u16(value);
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.tail.put_i32(value);
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.tail.put_u32(value);
    }

    /// Eight bytes, big-endian.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.tail.put_i64(value);
    }

    /// Eight bytes, big-endian IEEE 754.
    #[inline]
    pub fn f64(&mut self, value: f64) {
        self.tail.put_f64(value);
    }

    /// One byte, 0 or 1.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.tail.put_u8(u8::from(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_fields_are_spliced_and_small_ones_copied() {
        let large = Bytes::from(vec![1; SPLICE_BYTES_MIN]);
        let small = Bytes::from(vec![2; SPLICE_BYTES_MIN - 1]);
        let mut w = Writer::framed(64);
        w.i32(7);
        w.splice(&large);
        w.splice(&large);
        w.splice(&small);
        w.i8(3);
        let len = w.len();
        let chunks = w.finish().unwrap();
        let lens: Vec<_> = chunks.iter().map(Bytes::len).collect();
        assert_eq!(lens, [8, SPLICE_BYTES_MIN, SPLICE_BYTES_MIN, SPLICE_BYTES_MIN]);
        assert_eq!(chunks[1].as_ptr(), large.as_ptr());
        assert_eq!(chunks[0][..4], (len as i32 - 4).to_be_bytes());
        assert_eq!(chunks[3][SPLICE_BYTES_MIN - 1], 3);
    }

    #[test]
    fn a_splice_at_the_very_start_leaves_no_empty_slice() {
        let large = Bytes::from(vec![1; SPLICE_BYTES_MIN]);
        let mut w = Writer::new();
        w.splice(&large);
        w.splice(&large);
        assert_eq!(w.finish().unwrap().len(), 2);
    }

    #[test]
    fn the_frame_length_is_right_without_splices() {
        let mut w = Writer::framed(0);
        w.raw(b"abc");
        assert_eq!(w.into_bytes().unwrap(), Bytes::from_static(b"\0\0\0\x03abc"));
    }

    #[test]
    fn the_first_fault_is_the_one_reported() {
        let mut w = Writer::new();
        w.absent(true, "a");
        w.absent(false, "b");
        w.null("c");
        let error = w.check("M", 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "M v3: field b is set and does not exist in this version"
        );
        assert!(w.finish().is_ok());
    }
}
