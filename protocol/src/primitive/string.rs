//! Strings: [`Str`], a slice of the frame that is known to be UTF-8, and its two wire forms.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;

use bytes::Bytes;

use crate::error::{DecodeError, DecodeFault};
use crate::reader::{LengthForm, Reader};
use crate::writer::Writer;

/// An immutable string that shares its bytes: cloning counts a reference, decoding slices the frame.
///
/// A `Str` keeps the whole buffer alive that it was sliced from; what is stored for long (a member id, a topic name
/// of an image) goes through [`Str::detached`] first.
#[derive(Clone, Default)]
pub struct Str(Bytes);

impl Str {
    /// The empty string.
    pub const fn new() -> Self {
        Self(Bytes::new())
    }

    /// A string in static memory.
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// The bytes as a string, if they are UTF-8.
    pub fn from_utf8(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).is_ok().then_some(Self(bytes))
    }

    /// The text. Costs a walk over the bytes: they were checked when the `Str` was made, but saying so to the
    /// compiler would need `unsafe`, and Kafka's strings are short.
    #[inline]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a Str is only made from UTF-8")
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text's bytes, without a copy.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A copy in memory of its own, which keeps no frame alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for Str {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self
    }
}

impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By bytes, which for UTF-8 is the order of `str`.
impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

/// As `str` hashes, for lookups through `Borrow<str>`.
impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self)
    }
}

impl From<&'static str> for Str {
    fn from(text: &'static str) -> Self {
        Self::from_static(text)
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<Str> for Bytes {
    fn from(text: Str) -> Self {
        text.0
    }
}

impl Reader {
    /// A string that may not be null.
    ///
    /// # Errors
    /// [`DecodeFault::UnexpectedNull`], [`DecodeFault::Length`], [`DecodeFault::Utf8`], [`DecodeFault::Truncated`].
    #[inline]
    pub fn string(&mut self, compact: bool) -> Result<Str, DecodeError> {
        let text = self.nullable_string(compact)?;
        self.not_null(text)
    }

    /// A string or null.
    ///
    /// # Errors
    /// As [`Reader::string`], except for null.
    pub fn nullable_string(&mut self, compact: bool) -> Result<Option<Str>, DecodeError> {
        let form = if compact {
            LengthForm::Compact
        } else {
            LengthForm::Short
        };
        let Some(len) = self.length(form)? else {
            return Ok(None);
        };
        if compact && len > i16::MAX as usize {
            // Kafka holds compact strings to the same limit as classic ones.
            return Err(self.fault(DecodeFault::Length {
                declared: len,
                remaining: self.remaining(),
            }));
        }
        let bytes = self.take(len)?;
        match Str::from_utf8(bytes.clone()) {
            Some(text) => Ok(Some(text)),
            None => self.replaced(&bytes).map(Some),
        }
    }

    /// A string that is not UTF-8, with U+FFFD for what is not: Kafka reads it so, and clients whose `client.id` is in
    /// another encoding live by it. The copy is charged to the frame's budget.
    #[cold]
    fn replaced(&mut self, bytes: &Bytes) -> Result<Str, DecodeError> {
        let mut copy =
            self.reserve::<u8>(bytes.len().saturating_mul(char::REPLACEMENT_CHARACTER.len_utf8()))?;
        copy.extend_from_slice(String::from_utf8_lossy(bytes).as_bytes());
        if copy.len() > i16::MAX as usize {
            // It could not be said back to the client.
            return Err(self.fault(DecodeFault::Utf8));
        }
        Str::from_utf8(copy.into()).ok_or_else(|| self.fault(DecodeFault::Utf8))
    }
}

impl Writer {
    /// A string, spliced in if it is long; longer than 32,767 bytes is an
    /// [`EncodeFault::TooLong`](crate::EncodeFault::TooLong).
    pub fn string(&mut self, compact: bool, text: &Str) {
        if text.len() > i16::MAX as usize {
            return self.too_long(text.len());
        }
        if compact {
            self.uvarint(text.len() as u32 + 1);
        } else {
            self.i16(text.len() as i16);
        }
        self.splice(text.as_bytes());
    }

    /// A string or null.
    pub fn nullable_string(&mut self, compact: bool, text: Option<&Str>) {
        match text {
            Some(text) => self.string(compact, text),
            None if compact => self.uvarint(0),
            None => self.i16(-1),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::reader::DecodeLimits;
    use crate::writer::SPLICE_BYTES_MIN;

    #[test]
    fn a_str_finds_and_is_found_as_str() {
        let mut map = HashMap::new();
        map.insert(Str::from("topic"), 1);
        assert_eq!(map.get("topic"), Some(&1));
        assert_eq!(Str::from("a").cmp(&Str::from(String::from("b"))), Ordering::Less);
        assert_eq!(Str::from("x"), "x");
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced_as_kafka_does() {
        let mut r = Reader::new(Bytes::from_static(&[0, 4, b'a', 0xc3, b'(', 0xff]));
        assert_eq!(r.string(false).unwrap(), "a\u{fffd}(\u{fffd}");
        r.expect_end().unwrap();
    }

    #[test]
    fn a_replaced_string_keeps_to_the_budget_and_to_the_longest_that_can_be_answered() {
        let field = |len: i16| {
            let mut frame = len.to_be_bytes().to_vec();
            frame.resize(2 + len as usize, 0xff);
            frame
        };
        let fault = |frame: Vec<u8>| Reader::new(frame.into()).string(false).unwrap_err().fault;
        assert_eq!(fault(field(20_000)), DecodeFault::Utf8);
        let limits = DecodeLimits {
            base_bytes: 2999,
            factor: 0,
            max_bytes: 2999,
        };
        let mut poor = Reader::with_limits(field(1000).into(), limits);
        assert!(matches!(
            poor.string(false).unwrap_err().fault,
            DecodeFault::Budget {
                needed: 3000,
                left: 2999
            }
        ));
    }

    #[test]
    fn a_decoded_string_is_a_slice_of_the_frame_until_detached() {
        let frame = Bytes::from(vec![0, 2, b'h', b'i']);
        let text = Reader::new(frame.clone()).string(false).unwrap();
        assert_eq!(text.as_bytes().as_ptr(), frame.slice(2..).as_ptr());
        assert_ne!(text.detached().as_bytes().as_ptr(), frame.slice(2..).as_ptr());
    }

    #[test]
    fn a_string_too_long_for_its_length_is_an_error_of_the_writer() {
        for compact in [false, true] {
            let mut w = Writer::new();
            w.string(compact, &Str::from("x".repeat(40_000)));
            assert!(w.into_bytes().is_err());
        }
    }

    #[test]
    fn a_long_string_is_not_copied() {
        let text = Str::from("x".repeat(SPLICE_BYTES_MIN));
        let mut w = Writer::new();
        w.string(false, &text);
        let chunks = w.finish().unwrap();
        assert_eq!(chunks[1].as_ptr(), text.as_bytes().as_ptr());
    }

    proptest! {
        #[test]
        fn every_string_comes_back(text: Option<String>, compact: bool) {
            let mut w = Writer::new();
            let text = text.map(Str::from);
            w.nullable_string(compact, text.as_ref());
            let mut r = Reader::new(w.into_bytes().unwrap());
            let read = r.nullable_string(compact).unwrap();
            prop_assert_eq!(read, text);
            prop_assert_eq!(r.remaining(), 0);
        }
    }
}
