//! A place in an answer that is read where it lies, without a struct for it: what loads read a million times.

/// A place in bytes from outside. What would be behind their end is `None`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Place<'a> {
    pub(crate) const fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(crate) fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(*self.take(2)?.first_chunk()?))
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(*self.take(8)?.first_chunk()?))
    }

    /// A string or list with a 16-bit length; `None` also for a null one.
    pub(crate) fn short(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.i16()?).ok()?;
        self.take(len)
    }

    /// How many elements or bytes follow; a null list has none.
    pub(crate) fn count(&mut self) -> Option<usize> {
        Some(usize::try_from(self.i32()?).unwrap_or(0))
    }
}
