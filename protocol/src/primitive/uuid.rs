//! Kafka's UUIDs: 16 bytes on the wire, URL-safe base64 without padding as text.

use std::fmt;
use std::str::FromStr;

use bytes::BufMut;
use thiserror::Error;

use crate::error::DecodeError;
use crate::reader::Reader;
use crate::writer::Writer;

/// A topic id, directory id or member id in Kafka's form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// Text that is not a [`Uuid`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not 22 characters of URL-safe base64")]
pub struct UuidParseError;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Uuid {
    /// "No id": a topic named by name, an unknown directory (`UNASSIGNED` among directory ids).
    pub const ZERO: Self = Self::from_u128(0);
    /// The metadata topic's id; among directory ids `LOST`.
    pub const ONE: Self = Self::from_u128(1);

    /// From a number whose most significant byte comes first on the wire.
    pub const fn from_u128(value: u128) -> Self {
        Self(value.to_be_bytes())
    }

    /// As a number whose most significant byte comes first on the wire.
    pub const fn as_u128(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Whether this is [`Uuid::ZERO`].
    pub const fn is_zero(self) -> bool {
        self.as_u128() == 0
    }

    /// Whether Kafka never hands this one out: the first hundred numbers are kept for directory ids with a
    /// meaning, and `ZERO` and `ONE` are the first two of them.
    pub const fn is_reserved(self) -> bool {
        self.as_u128() < 100
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.as_u128();
        let mut text = [0u8; 22];
        for (i, slot) in text.iter_mut().enumerate() {
            // 21 groups of six bits from the top; the last group holds two bits, padded with zeros.
            let six = if i < 21 {
                value >> (122 - 6 * i)
            } else {
                value << 4
            } as usize
                & 63;
            *slot = ALPHABET.get(six).copied().unwrap_or(b'A');
        }
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Uuid {
    type Err = UuidParseError;

    fn from_str(text: &str) -> Result<Self, UuidParseError> {
        let text = text.strip_suffix("==").unwrap_or(text);
        let (digits, last) = match text.as_bytes() {
            [digits @ .., last] if digits.len() == 21 => (digits, *last),
            _ => return Err(UuidParseError),
        };
        let six = |c: u8| ALPHABET.iter().position(|a| *a == c).ok_or(UuidParseError);
        let mut value = 0u128;
        for digit in digits {
            value = value << 6 | six(*digit)? as u128;
        }
        // Of the last digit only the upper two bits belong to the value.
        Ok(Self::from_u128(value << 2 | six(last)? as u128 >> 4))
    }
}

impl Reader {
    /// Sixteen bytes.
    ///
    /// # Errors
    /// [`DecodeFault::Truncated`](crate::DecodeFault::Truncated).
    #[inline]
    pub fn uuid(&mut self) -> Result<Uuid, DecodeError> {
        self.fixed().map(Uuid)
    }
}

impl Writer {
    /// Sixteen bytes.
    #[inline]
    pub fn uuid(&mut self, value: Uuid) {
        self.tail_mut().put_slice(&value.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_kafkas() {
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid::ONE.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid::from_u128(u128::MAX).to_string(), "_____________________w");
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_fedc_ba98_7654_3210);
        assert_eq!(id.to_string(), "ASNFZ4mrze_-3LqYdlQyEA");
        assert_eq!("ASNFZ4mrze_-3LqYdlQyEA==".parse(), Ok(id));
        for bad in [
            "",
            "AAAA",
            "ASNFZ4mrze/-3LqYdlQyEA",
            "ASNFZ4mrze_-3LqYdlQyEAA",
            "ASNFZ4mrze_-3LqYdlQyé",
        ] {
            assert_eq!(bad.parse::<Uuid>(), Err(UuidParseError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn text_comes_back(value: u128) {
            let id = Uuid::from_u128(value);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }
    }
}
