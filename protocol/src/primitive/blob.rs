//! Byte fields and record fields: opaque bytes with a length before them. Record fields may be written from several
//! pieces without joining them ([`RecordBytes`]).

use bytes::Bytes;

use crate::error::DecodeError;
use crate::primitive::array::form;
use crate::reader::Reader;
use crate::writer::Writer;

/// The bytes of a `records` field, in one piece when received, in any number of pieces when about to be sent: a fetch
/// answer consists of batches from the cache and of patched batch prefixes.
#[derive(Debug, Clone, Default)]
pub struct RecordBytes {
    first: Bytes,
    more: Vec<Bytes>,
}

impl RecordBytes {
    /// No bytes.
    pub const fn new() -> Self {
        Self {
            first: Bytes::new(),
            more: Vec::new(),
        }
    }

    /// Appends a piece; an empty one is dropped.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        if self.first.is_empty() {
            self.first = piece;
        } else {
            self.more.push(piece);
        }
    }

    /// Bytes in all pieces.
    pub fn len(&self) -> usize {
        self.first.len() + self.more.iter().map(Bytes::len).sum::<usize>()
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// The pieces, none of them empty.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        Some(&self.first)
            .filter(|b| !b.is_empty())
            .into_iter()
            .chain(&self.more)
    }

    /// All bytes in one piece; copies only when there are several.
    pub fn into_bytes(self) -> Bytes {
        if self.more.is_empty() {
            return self.first;
        }
        let mut joined = Vec::with_capacity(self.len());
        for piece in self.pieces() {
            joined.extend_from_slice(piece);
        }
        joined.into()
    }
}

impl From<Bytes> for RecordBytes {
    fn from(first: Bytes) -> Self {
        Self {
            first,
            more: Vec::new(),
        }
    }
}

impl FromIterator<Bytes> for RecordBytes {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut records = Self::new();
        pieces.into_iter().for_each(|piece| records.push(piece));
        records
    }
}

/// By content; where the pieces end does not matter.
impl PartialEq for RecordBytes {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self
                .pieces()
                .flat_map(|p| p.iter())
                .eq(other.pieces().flat_map(|p| p.iter()))
    }
}

impl Eq for RecordBytes {}

impl Reader {
    /// A byte field that may not be null.
    ///
    /// # Errors
    /// [`DecodeFault::UnexpectedNull`], [`DecodeFault::Length`], [`DecodeFault::Truncated`].
    #[inline]
    pub fn bytes(&mut self, compact: bool) -> Result<Bytes, DecodeError> {
        let bytes = self.nullable_bytes(compact)?;
        self.not_null(bytes)
    }

    /// A byte field or null.
    ///
    /// # Errors
    /// As [`Reader::bytes`], except for null.
    pub fn nullable_bytes(&mut self, compact: bool) -> Result<Option<Bytes>, DecodeError> {
        match self.length(form(compact))? {
            Some(len) => self.take(len).map(Some),
            None => Ok(None),
        }
    }

    /// A record field that may not be null.
    ///
    /// # Errors
    /// As [`Reader::bytes`].
    pub fn records(&mut self, compact: bool) -> Result<RecordBytes, DecodeError> {
        self.bytes(compact).map(RecordBytes::from)
    }

    /// A record field or null.
    ///
    /// # Errors
    /// As [`Reader::bytes`], except for null.
    pub fn nullable_records(&mut self, compact: bool) -> Result<Option<RecordBytes>, DecodeError> {
        self.nullable_bytes(compact).map(|b| b.map(RecordBytes::from))
    }
}

impl Writer {
    /// A byte field.
    pub fn bytes(&mut self, compact: bool, bytes: &Bytes) {
        self.count(compact, bytes.len());
        self.splice(bytes);
    }

    /// A byte field or null.
    pub fn nullable_bytes(&mut self, compact: bool, bytes: Option<&Bytes>) {
        match bytes {
            Some(bytes) => self.bytes(compact, bytes),
            None => self.null_sequence(compact),
        }
    }

    /// A record field.
    pub fn records(&mut self, compact: bool, records: &RecordBytes) {
        self.count(compact, records.len());
        for piece in records.pieces() {
            self.splice(piece);
        }
    }

    /// A record field or null.
    pub fn nullable_records(&mut self, compact: bool, records: Option<&RecordBytes>) {
        match records {
            Some(records) => self.records(compact, records),
            None => self.null_sequence(compact),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DecodeFault;

    #[test]
    fn records_in_pieces_are_written_as_one_field() {
        let pieces: RecordBytes = [
            Bytes::from_static(b"ab"),
            Bytes::new(),
            Bytes::from_static(b"cde"),
        ]
        .into_iter()
        .collect();
        assert_eq!(pieces.len(), 5);
        assert_eq!(pieces, RecordBytes::from(Bytes::from_static(b"abcde")));
        assert_ne!(pieces, RecordBytes::from(Bytes::from_static(b"abcdf")));
        for compact in [false, true] {
            let mut w = Writer::new();
            w.nullable_records(compact, Some(&pieces));
            w.nullable_records(compact, None);
            let mut r = Reader::new(w.into_bytes().unwrap());
            assert_eq!(r.nullable_records(compact).unwrap(), Some(pieces.clone()));
            assert_eq!(r.records(compact).unwrap_err().fault, DecodeFault::UnexpectedNull);
        }
        assert_eq!(pieces.into_bytes(), Bytes::from_static(b"abcde"));
    }
}
