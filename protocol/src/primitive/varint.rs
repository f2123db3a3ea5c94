//! Integers of variable width: seven bits per byte, lowest first; signed ones are zigzag-coded (as in protobuf).

use bytes::BufMut;

use crate::error::{DecodeError, DecodeFault};
use crate::reader::Reader;
use crate::writer::Writer;

/// Most bytes of a 32-bit varint.
pub const VARINT_BYTES_MAX: usize = 5;
/// Most bytes of a 64-bit varint.
pub const VARLONG_BYTES_MAX: usize = 10;

impl Reader {
    /// An unsigned varint of up to five bytes. Bits above the 32nd are an error.
    ///
    /// # Errors
    /// [`DecodeFault::Varint`] when it is too wide, [`DecodeFault::Truncated`] when it is cut.
    #[inline]
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let byte = self.u8()?;
        if byte < 0x80 {
            return Ok(u32::from(byte));
        }
        self.uvarint_rest(byte)
    }

    fn uvarint_rest(&mut self, first: u8) -> Result<u32, DecodeError> {
        let mut value = u32::from(first & 0x7f);
        for shift in [7, 14, 21, 28] {
            let byte = self.u8()?;
            if shift == 28 && byte > 0x0f {
                break;
            }
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.fault(DecodeFault::Varint))
    }

    /// A signed varint of up to five bytes.
    ///
    /// # Errors
    /// As [`Reader::uvarint`].
    #[inline]
    pub fn varint(&mut self) -> Result<i32, DecodeError> {
        self.uvarint().map(|v| (v >> 1) as i32 ^ -((v & 1) as i32))
    }

    /// An unsigned varint of up to ten bytes.
    ///
    /// # Errors
    /// As [`Reader::uvarint`].
    pub fn uvarlong(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.fault(DecodeFault::Varint))
    }

    /// A signed varint of up to ten bytes.
    ///
    /// # Errors
    /// As [`Reader::uvarint`].
    pub fn varlong(&mut self) -> Result<i64, DecodeError> {
        self.uvarlong().map(|v| (v >> 1) as i64 ^ -((v & 1) as i64))
    }
}

impl Writer {
    /// An unsigned varint, one to five bytes.
    #[inline]
    pub fn uvarint(&mut self, value: u32) {
        if value < 0x80 {
            self.tail_mut().put_u8(value as u8);
        } else {
            self.uvarlong(u64::from(value));
        }
    }

    /// A signed varint, one to five bytes.
    pub fn varint(&mut self, value: i32) {
        self.uvarint(((value << 1) ^ (value >> 31)) as u32);
    }

    /// An unsigned varint, one to ten bytes.
    pub fn uvarlong(&mut self, value: u64) {
        let (bytes, len) = encode_uvarlong(value);
        self.tail_mut().put_slice(bytes.get(..len).unwrap_or_default());
    }

    /// A signed varint, one to ten bytes.
    pub fn varlong(&mut self, value: i64) {
        self.uvarlong(((value << 1) ^ (value >> 63)) as u64);
    }
}

/// The bytes of an unsigned varint and how many of them count.
pub(crate) fn encode_uvarlong(mut value: u64) -> ([u8; VARLONG_BYTES_MAX], usize) {
    let mut bytes = [0u8; VARLONG_BYTES_MAX];
    let mut len = 0;
    for slot in &mut bytes {
        len += 1;
        if value < 0x80 {
            *slot = value as u8;
            break;
        }
        *slot = value as u8 | 0x80;
        value >>= 7;
    }
    (bytes, len)
}

/// Bytes that an unsigned varint takes.
pub const fn uvarint_len(value: u64) -> usize {
    let bits = 64 - (value | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    fn read<T>(bytes: &[u8], f: impl Fn(&mut Reader) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        f(&mut Reader::new(Bytes::copy_from_slice(bytes)))
    }

    #[test]
    fn known_encodings() {
        let mut w = Writer::new();
        w.uvarint(300);
        w.varint(-1);
        w.varint(150);
        assert_eq!(
            w.into_bytes().unwrap(),
            Bytes::from_static(&[0xac, 0x02, 0x01, 0xac, 0x02])
        );
    }

    #[test]
    fn a_varint_wider_than_its_type_is_refused() {
        assert_eq!(
            read(&[0xff, 0xff, 0xff, 0xff, 0x0f], Reader::uvarint),
            Ok(u32::MAX)
        );
        let wide = read(&[0xff, 0xff, 0xff, 0xff, 0x10], Reader::uvarint).unwrap_err();
        assert_eq!(wide.fault, DecodeFault::Varint);
        assert!(read(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Reader::uvarint).is_err());
        assert!(read(&[0xff; 9], Reader::uvarlong).is_err());
        assert!(read(&[0x80; 11], Reader::uvarlong).is_err());
        let mut max = [0xff; 10];
        max[9] = 1;
        assert_eq!(read(&max, Reader::uvarlong), Ok(u64::MAX));
    }

    proptest! {
        #[test]
        fn every_value_comes_back(a: i32, b: i64, c: u32, d: u64) {
            let mut w = Writer::new();
            w.varint(a);
            w.varlong(b);
            w.uvarint(c);
            w.uvarlong(d);
            let bytes = w.into_bytes().unwrap();
            prop_assert_eq!(bytes.len(), uvarint_len(u64::from(((a << 1) ^ (a >> 31)) as u32))
                + uvarint_len(((b << 1) ^ (b >> 63)) as u64) + uvarint_len(u64::from(c)) + uvarint_len(d));
            let mut r = Reader::new(bytes);
            prop_assert_eq!(r.varint().unwrap(), a);
            prop_assert_eq!(r.varlong().unwrap(), b);
            prop_assert_eq!(r.uvarint().unwrap(), c);
            prop_assert_eq!(r.uvarlong().unwrap(), d);
        }
    }
}
