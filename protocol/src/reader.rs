//! A bounds-checked cursor over one received frame: the only place where a length is read from input.
//!
//! Two rules keep a hostile frame from costing more than it weighs. A count is believed only as far as the bytes
//! that are left could hold that many elements of the smallest size, and every decoded element is charged with its
//! size in memory against a budget that follows from the frame's length ([`DecodeLimits`]). Nothing here panics.

use std::mem::size_of;

use bytes::Bytes;

use crate::error::{DecodeError, DecodeFault};

/// How much memory the decoded form of a frame may take, beside the frame itself.
///
/// Strings (of UTF-8) and record bytes are slices of the frame and cost nothing more; array elements are charged with their
/// size in memory. The budget of a frame is `base_bytes + factor * frame bytes`, at most `max_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodeLimits {
    /// Allowance of even the smallest frame, in bytes.
    pub base_bytes: usize,
    /// Bytes of memory allowed per byte of the frame.
    pub factor: usize,
    /// Upper end of the budget, in bytes.
    pub max_bytes: usize,
}

impl DecodeLimits {
    /// For frames from clients. Dense real requests (topic names of one letter, configuration resources) reach a
    /// factor of 13; 64 MiB hold several hundred thousand partitions.
    pub const CLIENT: Self = Self {
        base_bytes: 64 << 10,
        factor: 16,
        max_bytes: 64 << 20,
    };
    /// For input that the process has written itself.
    pub const TRUSTED: Self = Self {
        base_bytes: usize::MAX,
        factor: 0,
        max_bytes: usize::MAX,
    };

    /// The budget of a frame, in bytes.
    pub fn budget(self, frame_bytes: usize) -> usize {
        self.base_bytes
            .saturating_add(frame_bytes.saturating_mul(self.factor))
            .min(self.max_bytes)
    }
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self::CLIENT
    }
}

/// The form in which a length stands before its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LengthForm {
    /// Two bytes; negative is null. Strings of non-flexible versions.
    Short,
    /// Four bytes; negative is null. Arrays, bytes and records of non-flexible versions.
    Int,
    /// Unsigned varint of the length plus one; zero is null. Everything in flexible versions (KIP-482).
    Compact,
}

/// A cursor over the bytes of a frame. Strings, bytes and records that it returns are slices of the frame.
#[derive(Debug)]
pub struct Reader {
    buf: Bytes,
    pos: usize,
    budget: usize,
}

impl Reader {
    /// A cursor at the start of `buf` with the limits for clients.
    pub fn new(buf: Bytes) -> Self {
        Self::with_limits(buf, DecodeLimits::CLIENT)
    }

    /// A cursor at the start of `buf` with the given limits.
    pub fn with_limits(buf: Bytes, limits: DecodeLimits) -> Self {
        let budget = limits.budget(buf.len());
        Self { buf, pos: 0, budget }
    }

    /// Bytes that are left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.buf.len() - self.pos
    }

    /// Bytes consumed so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Bytes of memory that decoded elements may still take.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// What is left, as a slice of the frame; the cursor stays.
    pub fn rest(&self) -> Bytes {
        self.buf.slice(self.pos..)
    }

    /// An error at the current position.
    #[cold]
    pub(crate) fn fault(&self, fault: DecodeFault) -> DecodeError {
        DecodeError::new(fault, self.pos)
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        self.fault(DecodeFault::Truncated {
            needed,
            remaining: self.remaining(),
        })
    }

    /// The next `N` bytes.
    #[inline]
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.buf.get(self.pos..).and_then(<[u8]>::first_chunk::<N>) {
            Some(chunk) => {
                self.pos += N;
                Ok(*chunk)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// The next `len` bytes as a slice of the frame.
    ///
    /// # Errors
    /// [`DecodeFault::Truncated`] when fewer are left.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        if len > self.remaining() {
            return Err(self.truncated(len));
        }
        let taken = self.buf.slice(self.pos..self.pos + len);
        self.pos += len;
        Ok(taken)
    }

    /// Skips `len` bytes.
    ///
    /// # Errors
    /// [`DecodeFault::Truncated`] when fewer are left.
    pub fn skip(&mut self, len: usize) -> Result<(), DecodeError> {
        if len > self.remaining() {
            return Err(self.truncated(len));
        }
        self.pos += len;
        Ok(())
    }

    /// A length in the given form, `None` for null. Not yet compared with what is left.
    #[inline]
    fn raw_length(&mut self, form: LengthForm) -> Result<Option<usize>, DecodeError> {
        Ok(match form {
            LengthForm::Short => usize::try_from(self.i16()?).ok(),
            LengthForm::Int => usize::try_from(self.i32()?).ok(),
            LengthForm::Compact => (self.uvarint()? as usize).checked_sub(1),
        })
    }

    /// The length of a string or byte field, at most the bytes that are left; `None` for null.
    #[inline]
    pub(crate) fn length(&mut self, form: LengthForm) -> Result<Option<usize>, DecodeError> {
        let len = self.raw_length(form)?;
        match len {
            Some(len) if len > self.remaining() => Err(self.fault(DecodeFault::Length {
                declared: len,
                remaining: self.remaining(),
            })),
            len => Ok(len),
        }
    }

    /// The number of elements of an array whose elements take at least `element_bytes_min` (≥ 1) bytes each;
    /// `None` for null.
    #[inline]
    pub(crate) fn count(
        &mut self,
        form: LengthForm,
        element_bytes_min: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let count = self.raw_length(form)?;
        match count {
            Some(n) if n > self.remaining() / element_bytes_min.max(1) => {
                Err(self.fault(DecodeFault::Count {
                    declared: n,
                    remaining: self.remaining(),
                }))
            }
            count => Ok(count),
        }
    }

    /// The number of tagged fields that follow. Each takes two bytes at least: a tag and a size of zero.
    #[inline]
    pub(crate) fn tagged_count(&mut self) -> Result<usize, DecodeError> {
        let count = self.uvarint()? as usize;
        if count > self.remaining() / 2 {
            return Err(self.fault(DecodeFault::Count {
                declared: count,
                remaining: self.remaining(),
            }));
        }
        Ok(count)
    }

    /// The size of a tagged field's content, at most the bytes that are left.
    pub(crate) fn tagged_size(&mut self) -> Result<usize, DecodeError> {
        let size = self.uvarint()? as usize;
        if size > self.remaining() {
            return Err(self.fault(DecodeFault::Length {
                declared: size,
                remaining: self.remaining(),
            }));
        }
        Ok(size)
    }

    /// Room for `count` elements, charged to the budget before it is allocated.
    pub(crate) fn reserve<T>(&mut self, count: usize) -> Result<Vec<T>, DecodeError> {
        let cost = count.saturating_mul(size_of::<T>());
        match self.budget.checked_sub(cost) {
            Some(left) => self.budget = left,
            None => {
                return Err(self.fault(DecodeFault::Budget {
                    needed: cost,
                    left: self.budget,
                }));
            }
        }
        Ok(Vec::with_capacity(count))
    }

    /// Moves the end of the readable bytes to `len` bytes from here, for a field that says how long it is, and
    /// returns the old end for [`Reader::unlimit`]. The caller has checked `len` with [`Reader::length`].
    pub(crate) fn limit(&mut self, len: usize) -> Bytes {
        let end = self.pos.saturating_add(len).min(self.buf.len());
        let limited = self.buf.slice(..end);
        std::mem::replace(&mut self.buf, limited)
    }

    /// Undoes [`Reader::limit`]; fails when the field was not consumed to its end.
    pub(crate) fn unlimit(&mut self, whole: Bytes) -> Result<(), DecodeError> {
        if self.remaining() != 0 {
            return Err(self.fault(DecodeFault::TaggedFieldTrailing {
                remaining: self.remaining(),
            }));
        }
        self.buf = whole;
        Ok(())
    }

    /// Fails when bytes are left.
    ///
    /// # Errors
    /// [`DecodeFault::Trailing`].
    pub fn expect_end(&self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            remaining => Err(self.fault(DecodeFault::Trailing { remaining })),
        }
    }

    /// Two bytes, big-endian.
    ///
    /// # Errors
    /// [`DecodeFault::Truncated`], like every fixed-size read below.
    #[inline]
    pub fn i16(&mut self) -> Result<i16, DecodeError> {
        self.fixed().map(i16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        self.fixed().map(i32::from_be_bytes)
    }

    /// Eight bytes, big-endian.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        self.fixed().map(i64::from_be_bytes)
    }

    /// One byte.
    #[inline]
    pub fn i8(&mut self) -> Result<i8, DecodeError> {
        self.fixed().map(i8::from_be_bytes)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        self.fixed().map(u8::from_be_bytes)
    }

    /// Two bytes, big-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        self.fixed().map(u16::from_be_bytes)
    }

    /// Four bytes, big-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        self.fixed().map(u32::from_be_bytes)
    }

    /// Eight bytes, big-endian IEEE 754.
    #[inline]
    pub fn f64(&mut self) -> Result<f64, DecodeError> {
        self.fixed().map(f64::from_be_bytes)
    }

    /// One byte; anything but zero is true.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        self.u8().map(|b| b != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_beyond_what_the_bytes_could_hold_is_refused_before_allocation() {
        let mut r = Reader::new(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0]));
        let error = r.count(LengthForm::Int, 1).unwrap_err();
        assert_eq!(
            error.fault,
            DecodeFault::Count {
                declared: 0x7fff_ffff,
                remaining: 2
            }
        );
        let mut r = Reader::new(Bytes::from_static(&[0, 0, 0, 2, 0, 0, 0, 0]));
        assert!(r.count(LengthForm::Int, 3).is_err());
        let mut r = Reader::new(Bytes::from_static(&[0, 0, 0, 2, 0, 0, 0, 0]));
        assert_eq!(r.count(LengthForm::Int, 2).unwrap(), Some(2));
    }

    #[test]
    fn the_budget_is_shared_by_all_arrays_of_a_frame() {
        let limits = DecodeLimits {
            base_bytes: 0,
            factor: 2,
            max_bytes: 1 << 20,
        };
        let mut r = Reader::with_limits(Bytes::from_static(&[0; 16]), limits);
        assert_eq!(r.reserve::<u64>(3).unwrap().capacity(), 3);
        let error = r.reserve::<u64>(2).unwrap_err();
        assert_eq!(error.fault, DecodeFault::Budget { needed: 16, left: 8 });
        assert!(r.reserve::<u64>(1).is_ok());
    }

    #[test]
    fn every_negative_classic_length_is_null() {
        let mut r = Reader::new(Bytes::from_static(&[0x80, 0, 0xff, 0xff]));
        assert_eq!(r.length(LengthForm::Short).unwrap(), None);
        assert_eq!(r.length(LengthForm::Short).unwrap(), None);
    }
}
