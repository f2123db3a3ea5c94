//! Zig-zag varints over borrowed bytes, with the tolerance of Kafka's Java reader, which record batches are checked by:
//! up to five (ten) bytes, and bits above the 32nd (64th) in the last one are dropped. The strict reader for messages is
//! `primitive::varint`; this one exists because batches that Kafka stores must be readable.

/// A position in borrowed bytes.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
}

/// Why a varint could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VarintFault {
    /// The bytes end inside it.
    End,
    /// It goes on after its last possible byte.
    TooLong,
}

/// Undoes zig-zag coding.
pub(super) const fn zigzag32(raw: u32) -> i32 {
    (raw >> 1) as i32 ^ -((raw & 1) as i32)
}

/// Undoes zig-zag coding.
pub(super) const fn zigzag64(raw: u64) -> i64 {
    (raw >> 1) as i64 ^ -((raw & 1) as i64)
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(head)
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<i32, VarintFault> {
        match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                Ok(zigzag32(u32::from(*first)))
            }
            _ => self.varint_rest(),
        }
    }

    fn varint_rest(&mut self) -> Result<i32, VarintFault> {
        let mut raw = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte().ok_or(VarintFault::End)?;
            raw |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(zigzag32(raw));
            }
        }
        Err(VarintFault::TooLong)
    }

    #[inline]
    pub(super) fn varlong(&mut self) -> Result<i64, VarintFault> {
        match self.rest {
            [first, rest @ ..] if *first < 0x80 => {
                self.rest = rest;
                Ok(zigzag64(u64::from(*first)))
            }
            _ => self.varlong_rest(),
        }
    }

    fn varlong_rest(&mut self) -> Result<i64, VarintFault> {
        let mut raw = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte().ok_or(VarintFault::End)?;
            raw |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(zigzag64(raw));
            }
        }
        Err(VarintFault::TooLong)
    }
}

/// Appends a zig-zag varint, one to ten bytes; a 32-bit value gives the same bytes as a 32-bit varint.
pub(super) fn put_varlong(out: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
}

/// Bytes of a zig-zag varint.
pub(super) const fn varlong_len(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    let bits = u64::BITS - (raw | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varints_come_back(value: i64, shift in 0u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varlong(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varlong_len(value));
            prop_assert_eq!(Cursor::new(&bytes).varlong(), Ok(value));
            if let Ok(narrow) = i32::try_from(value) {
                prop_assert_eq!(Cursor::new(&bytes).varint(), Ok(narrow));
            }
            for cut in 0..bytes.len() {
                prop_assert_eq!(Cursor::new(&bytes[..cut]).varlong(), Err(VarintFault::End));
            }
        }
    }

    #[test]
    fn overlong_forms_are_read_as_java_reads_them() {
        // The high bits of the last possible byte are dropped.
        assert_eq!(Cursor::new(&[0x90, 0x80, 0x80, 0x80, 0x70]).varint(), Ok(8));
        assert_eq!(Cursor::new(&[0x80; 5]).varint(), Err(VarintFault::TooLong));
        assert_eq!(
            Cursor::new(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]).varint(),
            Err(VarintFault::TooLong)
        );
        let ten = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7e];
        assert_eq!(Cursor::new(&ten).varlong(), Ok(0));
        assert_eq!(Cursor::new(&[0x80; 11]).varlong(), Err(VarintFault::TooLong));
    }
}
