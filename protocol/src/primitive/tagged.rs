//! The tagged fields at the end of every struct of a flexible version (KIP-482): their count, then tag, size and
//! content of each, by rising tag.

use bytes::BufMut;

use crate::error::DecodeError;
use crate::primitive::varint::encode_uvarlong;
use crate::reader::Reader;
use crate::writer::Writer;

impl Reader {
    /// Reads the tagged fields. `known` gets each tag with the reader limited to the field's content and says whether
    /// it has read it; the content of an unknown tag is skipped.
    ///
    /// # Errors
    /// Those of `known`, and when sizes do not add up: a known field that leaves part of its content is an error.
    pub fn tagged_fields(
        &mut self,
        mut known: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        for _ in 0..self.tagged_count()? {
            let tag = self.uvarint()?;
            let size = self.tagged_size()?;
            let whole = self.limit(size);
            if !known(self, tag)? {
                self.skip(size)?;
            }
            self.unlimit(whole)?;
        }
        Ok(())
    }

    /// Reads the tagged fields of a struct that knows none.
    ///
    /// # Errors
    /// When sizes do not add up.
    #[inline]
    pub fn no_tagged_fields(&mut self) -> Result<(), DecodeError> {
        match self.tagged_count()? {
            0 => Ok(()),
            count => self.skip_tagged_fields(count),
        }
    }

    #[cold]
    fn skip_tagged_fields(&mut self, count: usize) -> Result<(), DecodeError> {
        for _ in 0..count {
            self.uvarint()?;
            let size = self.tagged_size()?;
            self.skip(size)?;
        }
        Ok(())
    }
}

impl Writer {
    /// The number of tagged fields that follow.
    #[inline]
    pub fn tagged_count(&mut self, count: u32) {
        self.uvarint(count);
    }

    /// One tagged field. The content is written in place and its size put before it afterwards, so that no second
    /// pass over the message has to compute sizes.
    pub fn tagged_field(&mut self, tag: u32, content: impl FnOnce(&mut Self)) {
        self.uvarint(tag);
        let start = self.tail_mut().len();
        self.without_splicing(content);
        let tail = self.tail_mut();
        let end = tail.len();
        let (size, size_len) = encode_uvarlong((end - start) as u64);
        tail.put_slice(size.get(..size_len).unwrap_or_default());
        if let Some(field) = tail.get_mut(start..) {
            field.rotate_right(size_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::error::DecodeFault;

    #[test]
    fn known_and_unknown_tags_side_by_side() {
        let long = Bytes::from(vec![7; 300]);
        let mut w = Writer::new();
        w.tagged_count(3);
        w.tagged_field(0, |w| w.i32(5));
        w.tagged_field(4, |w| w.bytes(true, &long));
        w.tagged_field(9, |w| w.i8(1));
        w.i8(42);
        let frame = w.into_bytes().unwrap();

        let mut r = Reader::new(frame.clone());
        let (mut number, mut bytes) = (0, Bytes::new());
        r.tagged_fields(|r, tag| {
            match tag {
                0 => number = r.i32()?,
                4 => bytes = r.bytes(true)?,
                _ => return Ok(false),
            }
            Ok(true)
        })
        .unwrap();
        assert_eq!((number, bytes, r.i8().unwrap()), (5, long, 42));

        let mut r = Reader::new(frame);
        r.no_tagged_fields().unwrap();
        assert_eq!(r.i8().unwrap(), 42);
    }

    #[test]
    fn sizes_that_do_not_add_up_are_refused() {
        let known = |r: &mut Reader, _| r.i32().map(|_| true);
        let read = |bytes: &'static [u8]| Reader::new(Bytes::from_static(bytes)).tagged_fields(known);
        assert!(matches!(
            read(&[1, 0, 3, 0, 0, 0, 5]).unwrap_err().fault,
            DecodeFault::Truncated { .. }
        ));
        let trailing = read(&[1, 0, 5, 0, 0, 0, 5, 9]).unwrap_err();
        assert_eq!(trailing.fault, DecodeFault::TaggedFieldTrailing { remaining: 1 });
        assert!(matches!(
            read(&[1, 0, 9, 0, 0, 0, 5]).unwrap_err().fault,
            DecodeFault::Length { .. }
        ));
        assert!(matches!(
            read(&[200, 1, 0, 0]).unwrap_err().fault,
            DecodeFault::Count { .. }
        ));
    }
}
