//! Arrays of integers, strings, UUIDs and structs. The vector is reserved once, after its count was found possible
//! and its cost was charged.

use crate::error::{DecodeError, DecodeFault};
use crate::primitive::string::Str;
use crate::primitive::uuid::Uuid;
use crate::reader::{LengthForm, Reader};
use crate::writer::Writer;

/// A struct inside a message, read and written in the version of the message.
pub trait Struct: Default {
    /// Fewest bytes that one takes on the wire, over all versions; at least 1.
    const BYTES_MIN: usize;

    /// Overwrites the fields that `version` has. `self` is fresh from `Default`.
    ///
    /// # Errors
    /// When the bytes are not such a struct.
    fn read(&mut self, r: &mut Reader, version: i16) -> Result<(), DecodeError>;

    /// Writes the fields that `version` has; what cannot be written is noted in `w`.
    fn write(&self, w: &mut Writer, version: i16);
}

/// An element type other than struct.
pub trait Element: Sized {
    /// Fewest bytes of one on the wire.
    const BYTES_MIN: usize;

    /// Reads one.
    ///
    /// # Errors
    /// When the bytes are not one.
    fn read(r: &mut Reader, compact: bool) -> Result<Self, DecodeError>;

    /// Writes one.
    fn write(&self, w: &mut Writer, compact: bool);
}

macro_rules! elements {
    ($($ty:ty, $bytes:expr, $read:expr, $write:expr;)*) => {$(
        impl Element for $ty {
            const BYTES_MIN: usize = $bytes;
            #[inline]
            fn read(r: &mut Reader, compact: bool) -> Result<Self, DecodeError> {
                let read: fn(&mut Reader, bool) -> Result<Self, DecodeError> = $read;
                read(r, compact)
            }
            #[inline]
            fn write(&self, w: &mut Writer, compact: bool) {
                let write: fn(&Self, &mut Writer, bool) = $write;
                write(self, w, compact);
            }
        }
    )*};
}

elements! {
    i8, 1, |r, _| r.i8(), |v, w, _| w.i8(*v);
    i16, 2, |r, _| r.i16(), |v, w, _| w.i16(*v);
    i32, 4, |r, _| r.i32(), |v, w, _| w.i32(*v);
    i64, 8, |r, _| r.i64(), |v, w, _| w.i64(*v);
    Uuid, 16, |r, _| r.uuid(), |v, w, _| w.uuid(*v);
    Str, 1, |r, compact| r.string(compact), |v, w, compact| w.string(compact, v);
}

/// How the length of an array or of a byte field is written.
pub(crate) fn form(compact: bool) -> LengthForm {
    if compact {
        LengthForm::Compact
    } else {
        LengthForm::Int
    }
}

impl Reader {
    #[inline]
    fn vector<T>(
        &mut self,
        compact: bool,
        bytes_min: usize,
        mut one: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.count(form(compact), bytes_min)? else {
            return Ok(None);
        };
        let mut elements = self.reserve(count)?;
        for _ in 0..count {
            elements.push(one(self)?);
        }
        Ok(Some(elements))
    }

    #[inline]
    pub(crate) fn not_null<T>(&self, value: Option<T>) -> Result<T, DecodeError> {
        value.ok_or_else(|| self.fault(DecodeFault::UnexpectedNull))
    }

    /// An array that may not be null.
    ///
    /// # Errors
    /// [`DecodeFault::UnexpectedNull`], [`DecodeFault::Count`], [`DecodeFault::Budget`], and those of the elements.
    pub fn array<T: Element>(&mut self, compact: bool) -> Result<Vec<T>, DecodeError> {
        let array = self.nullable_array(compact)?;
        self.not_null(array)
    }

    /// An array or null.
    ///
    /// # Errors
    /// As [`Reader::array`], except for null.
    pub fn nullable_array<T: Element>(&mut self, compact: bool) -> Result<Option<Vec<T>>, DecodeError> {
        self.vector(compact, T::BYTES_MIN, |r| T::read(r, compact))
    }

    /// An array of structs that may not be null.
    ///
    /// # Errors
    /// As [`Reader::array`].
    pub fn structs<T: Struct>(&mut self, compact: bool, version: i16) -> Result<Vec<T>, DecodeError> {
        let array = self.nullable_structs(compact, version)?;
        self.not_null(array)
    }

    /// An array of structs or null.
    ///
    /// # Errors
    /// As [`Reader::array`], except for null.
    pub fn nullable_structs<T: Struct>(
        &mut self,
        compact: bool,
        version: i16,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        self.vector(compact, T::BYTES_MIN, |r| r.structure(version))
    }

    /// A struct.
    ///
    /// # Errors
    /// Those of the struct.
    pub fn structure<T: Struct>(&mut self, version: i16) -> Result<T, DecodeError> {
        let mut value = T::default();
        value.read(self, version)?;
        Ok(value)
    }

    /// A struct that may be null: a byte that is negative for null stands before it.
    ///
    /// # Errors
    /// Those of the struct.
    pub fn nullable_struct<T: Struct>(&mut self, version: i16) -> Result<Option<T>, DecodeError> {
        if self.i8()? < 0 {
            Ok(None)
        } else {
            self.structure(version).map(Some)
        }
    }

    /// A struct that may be null as the content of a tagged field: an unsigned varint, 0 for null, stands before it.
    ///
    /// # Errors
    /// Those of the struct.
    pub fn tagged_nullable_struct<T: Struct>(&mut self, version: i16) -> Result<Option<T>, DecodeError> {
        if self.uvarint()? == 0 {
            Ok(None)
        } else {
            self.structure(version).map(Some)
        }
    }
}

impl Writer {
    /// The length before an array or a byte field.
    pub(crate) fn count(&mut self, compact: bool, count: usize) {
        if count > i32::MAX as usize - 1 {
            return self.too_long(count);
        }
        if compact {
            self.uvarint(count as u32 + 1);
        } else {
            self.i32(count as i32);
        }
    }

    /// An array or a byte field that is null.
    pub(crate) fn null_sequence(&mut self, compact: bool) {
        if compact {
            self.uvarint(0);
        } else {
            self.i32(-1);
        }
    }

    /// An array.
    pub fn array<T: Element>(&mut self, compact: bool, elements: &[T]) {
        self.count(compact, elements.len());
        for element in elements {
            element.write(self, compact);
        }
    }

    /// An array or null.
    pub fn nullable_array<T: Element>(&mut self, compact: bool, elements: Option<&[T]>) {
        match elements {
            Some(elements) => self.array(compact, elements),
            None => self.null_sequence(compact),
        }
    }

    /// An array of structs.
    pub fn structs<T: Struct>(&mut self, compact: bool, version: i16, elements: &[T]) {
        self.count(compact, elements.len());
        for element in elements {
            element.write(self, version);
        }
    }

    /// An array of structs or null.
    pub fn nullable_structs<T: Struct>(&mut self, compact: bool, version: i16, elements: Option<&[T]>) {
        match elements {
            Some(elements) => self.structs(compact, version, elements),
            None => self.null_sequence(compact),
        }
    }

    /// A struct that may be null: 1 before it, or -1 alone.
    pub fn nullable_struct<T: Struct>(&mut self, version: i16, value: Option<&T>) {
        match value {
            Some(value) => {
                self.i8(1);
                value.write(self, version);
            }
            None => self.i8(-1),
        }
    }

    /// A struct that may be null as the content of a tagged field: 1 before it, or 0 alone.
    pub fn tagged_nullable_struct<T: Struct>(&mut self, version: i16, value: Option<&T>) {
        match value {
            Some(value) => {
                self.uvarint(1);
                value.write(self, version);
            }
            None => self.uvarint(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_tiny_frame_that_claims_a_huge_array_is_refused() {
        for (compact, frame) in [
            (false, &[0x7f, 0xff, 0xff, 0xff][..]),
            (true, &[0xff, 0xff, 0xff, 0xff, 0x0f][..]),
        ] {
            let mut r = Reader::new(Bytes::copy_from_slice(frame));
            assert!(matches!(
                r.array::<Str>(compact).unwrap_err().fault,
                DecodeFault::Count { .. }
            ));
        }
    }

    #[test]
    fn many_small_elements_are_stopped_by_the_budget() {
        // A million empty compact strings: 1 byte each on the wire, 32 in memory.
        let mut w = Writer::new();
        w.array(true, &vec![Str::new(); 1 << 20]);
        let frame = w.into_bytes().unwrap();
        let error = Reader::new(frame).array::<Str>(true).unwrap_err();
        assert!(matches!(error.fault, DecodeFault::Budget { .. }), "{error}");
    }

    #[test]
    fn arrays_come_back_in_both_forms() {
        for compact in [false, true] {
            let mut w = Writer::new();
            w.array(compact, &[1i32, -2, 3]);
            w.nullable_array::<i64>(compact, None);
            w.nullable_array(compact, Some(&[Str::from("a"), Str::from("")][..]));
            w.array::<Uuid>(compact, &[Uuid::ONE]);
            let mut r = Reader::new(w.into_bytes().unwrap());
            assert_eq!(r.array::<i32>(compact).unwrap(), [1, -2, 3]);
            assert_eq!(r.nullable_array::<i64>(compact).unwrap(), None);
            assert_eq!(r.array::<Str>(compact).unwrap(), ["a", ""]);
            assert_eq!(r.array::<Uuid>(compact).unwrap(), [Uuid::ONE]);
            r.expect_end().unwrap();
        }
    }
}
