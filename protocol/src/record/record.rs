//! One record inside a batch: `length varint, attributes i8, timestampDelta varlong, offsetDelta varint, key, value,
//! header count varint, headers`, where keys, values and header values are a varint length (negative is null) and bytes.
//! Parsing borrows from the batch and checks every length, those of the headers too.

use super::varint::{Cursor, VarintFault};

/// What is wrong with the bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFault {
    /// The records section ends before the record does; also when the batch claims more records than it has.
    #[error("the records end inside it")]
    Truncated,
    /// A varint of more than five (ten) bytes.
    #[error("a varint is too long")]
    Varint,
    /// The length is negative.
    #[error("length {found}")]
    Length {
        /// The length field.
        found: i32,
    },
    /// A field ends behind the record's end.
    #[error("its length is {declared} but its fields go on")]
    Overrun {
        /// The length field.
        declared: u32,
    },
    /// The fields end before the record does.
    #[error("its length is {declared} but its fields take {found}")]
    Slack {
        /// The length field.
        declared: u32,
        /// Bytes of its fields.
        found: u32,
    },
    /// The header count is negative or above what the record can hold.
    #[error("{found} headers in {available} bytes")]
    HeaderCount {
        /// The count field.
        found: i32,
        /// Bytes left in the record.
        available: u32,
    },
    /// A header key is null.
    #[error("a header key is null")]
    NullHeaderKey,
    /// Bytes follow the last record of the batch.
    #[error("bytes follow the last record")]
    Trailing,
}

/// A record, borrowed from its batch or from the buffer it was decompressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Unused by every version of Kafka; 0 from all known clients.
    pub attributes: i8,
    /// Timestamp minus the batch's base timestamp, milliseconds ([`super::BatchHeader::timestamp`]).
    pub timestamp_delta: i64,
    /// Offset minus the batch's base offset.
    pub offset_delta: i32,
    /// The key; `None` is null, which is not the empty key.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null (a tombstone in a compacted topic).
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: Headers<'a>,
}

/// Where a record lies in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frame {
    /// Its body is `body_start..end`.
    Whole { body_start: usize, end: usize },
    /// At least `missing` bytes (not 0) are not there yet.
    Partial { missing: usize },
}

/// A header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name: UTF-8 by the protocol, which brokers do not check.
    pub key: &'a [u8],
    /// The content or null.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record, in their encoded form: checked when the record was parsed, decoded when iterated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Headers<'a> {
    count: u32,
    encoded: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the front of `bytes` and the number of bytes it takes.
    ///
    /// # Errors
    /// [`RecordFault`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), RecordFault> {
        match Self::frame(bytes)? {
            Frame::Whole { body_start, end } => {
                Self::parse_body(bytes.get(body_start..end).unwrap_or_default()).map(|record| (record, end))
            }
            Frame::Partial { .. } => Err(RecordFault::Truncated),
        }
    }

    /// Where the record at the front of `bytes` ends, if it is whole.
    #[inline]
    pub(super) fn frame(bytes: &[u8]) -> Result<Frame, RecordFault> {
        let mut cursor = Cursor::new(bytes);
        let found = match cursor.varint() {
            Err(VarintFault::End) => return Ok(Frame::Partial { missing: 1 }),
            length => length?,
        };
        let declared = u32::try_from(found).map_err(|_| RecordFault::Length { found })? as usize;
        Ok(match declared.checked_sub(cursor.rest.len()) {
            None | Some(0) => {
                let body_start = bytes.len() - cursor.rest.len();
                Frame::Whole {
                    body_start,
                    end: body_start + declared,
                }
            }
            Some(missing) => Frame::Partial { missing },
        })
    }

    /// The record whose body (what its length counts) is exactly `body`.
    #[inline]
    pub(super) fn parse_body(body: &'a [u8]) -> Result<Self, RecordFault> {
        Self::parse_fields(body).map_err(|fault| match fault {
            RecordFault::Truncated => RecordFault::Overrun {
                declared: body.len() as u32,
            },
            other => other,
        })
    }

    /// The same, where [`RecordFault::Truncated`] means that a field ends behind the body.
    #[inline]
    fn parse_fields(body: &'a [u8]) -> Result<Self, RecordFault> {
        let mut cursor = Cursor::new(body);
        let attributes = cursor.byte().ok_or(RecordFault::Truncated)? as i8;
        let timestamp_delta = cursor.varlong()?;
        let offset_delta = cursor.varint()?;
        let key = cursor.blob()?;
        let value = cursor.blob()?;
        let headers = Headers::parse(&mut cursor)?;
        if !cursor.rest.is_empty() {
            let (declared, found) = (body.len() as u32, (body.len() - cursor.rest.len()) as u32);
            return Err(RecordFault::Slack { declared, found });
        }
        Ok(Self {
            attributes,
            timestamp_delta,
            offset_delta,
            key,
            value,
            headers,
        })
    }
}

impl<'a> Headers<'a> {
    /// Number of headers.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The headers in their order; a name may occur more than once.
    #[must_use]
    pub const fn iter(&self) -> HeaderIter<'a> {
        HeaderIter {
            left: self.count,
            cursor: Cursor::new(self.encoded),
        }
    }

    /// The encoded headers, without their count: what a rebuilt record can take over as it is.
    #[must_use]
    pub const fn encoded(&self) -> &'a [u8] {
        self.encoded
    }

    #[inline]
    fn parse(cursor: &mut Cursor<'a>) -> Result<Self, RecordFault> {
        let found = cursor.varint()?;
        let start = cursor.rest;
        // A header takes at least two bytes; Kafka checks the count against the bytes left, which bounds the loop too.
        let count = u32::try_from(found)
            .ok()
            .filter(|count| *count as usize <= start.len());
        let count = count.ok_or(RecordFault::HeaderCount {
            found,
            available: start.len() as u32,
        })?;
        for _ in 0..count {
            cursor.blob()?.ok_or(RecordFault::NullHeaderKey)?;
            cursor.blob()?;
        }
        let encoded = start.get(..start.len() - cursor.rest.len()).unwrap_or_default();
        Ok(Self { count, encoded })
    }
}

impl<'a> IntoIterator for Headers<'a> {
    type Item = Header<'a>;
    type IntoIter = HeaderIter<'a>;

    fn into_iter(self) -> HeaderIter<'a> {
        self.iter()
    }
}

/// Iterator over [`Headers`].
#[derive(Clone)]
pub struct HeaderIter<'a> {
    left: u32,
    cursor: Cursor<'a>,
}

impl<'a> Iterator for HeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        // The bytes were checked by `Headers::parse`; these cannot fail.
        let key = self.cursor.blob().ok()??;
        let value = self.cursor.blob().ok()?;
        Some(Header { key, value })
    }
}

impl<'a> Cursor<'a> {
    /// A varint length and as many bytes; any negative length is null, as in Kafka.
    #[inline]
    fn blob(&mut self) -> Result<Option<&'a [u8]>, RecordFault> {
        match usize::try_from(self.varint()?) {
            Ok(len) => self.take(len).map(Some).ok_or(RecordFault::Truncated),
            Err(_) => Ok(None),
        }
    }
}

impl From<VarintFault> for RecordFault {
    fn from(fault: VarintFault) -> Self {
        match fault {
            VarintFault::End => Self::Truncated,
            VarintFault::TooLong => Self::Varint,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::varint::put_varlong;

    /// A body with its length before it; the length can be a lie.
    fn framed(body: &[u8], length: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_varlong(&mut bytes, length);
        bytes.extend_from_slice(body);
        bytes
    }

    /// attributes 0, timestamp +1, offset +2, key "k", value "vv", one header "h" with a null value.
    const BODY: &[u8] = &[0, 2, 4, 2, b'k', 4, b'v', b'v', 2, 2, b'h', 1];

    #[test]
    fn every_field_is_read() {
        let mut bytes = framed(BODY, 12);
        bytes.extend_from_slice(b"next");
        let (record, used) = Record::parse(&bytes).expect("a record");
        assert_eq!(used, 13);
        assert_eq!(
            (record.attributes, record.timestamp_delta, record.offset_delta),
            (0, 1, 2)
        );
        assert_eq!(
            (record.key, record.value),
            (Some(b"k".as_slice()), Some(b"vv".as_slice()))
        );
        assert_eq!((record.headers.len(), record.headers.is_empty()), (1, false));
        assert_eq!(
            record.headers.iter().collect::<Vec<_>>(),
            [Header {
                key: b"h",
                value: None
            }]
        );
        assert_eq!(record.headers.encoded(), [2, b'h', 1]);
    }

    #[test]
    fn null_and_empty_are_different() {
        let (record, _) = Record::parse(&framed(&[0, 0, 0, 1, 0, 0], 6))
            .map(|(r, n)| (format!("{r:?}"), n))
            .expect("a record");
        assert!(record.contains("key: None, value: Some([])"), "{record}");
        // Any negative length is null: key length −2.
        let bytes = framed(&[0, 0, 0, 3, 0, 0], 6);
        assert_eq!(Record::parse(&bytes).expect("a record").0.key, None);
    }

    #[test]
    fn lies_are_found() {
        let fault = |body: &[u8], length: i64| Record::parse(&framed(body, length)).expect_err("a fault");
        assert_eq!(fault(BODY, 13), RecordFault::Truncated);
        assert_eq!(fault(BODY, 11), RecordFault::Overrun { declared: 11 });
        assert_eq!(fault(BODY, -1), RecordFault::Length { found: -1 });
        assert_eq!(fault(BODY, i64::from(i32::MAX)), RecordFault::Truncated);
        assert_eq!(
            fault(&[BODY, &[0]].concat(), 13),
            RecordFault::Slack {
                declared: 13,
                found: 12
            }
        );
        assert_eq!(
            fault(&[0, 0, 0, 1, 1, 1], 6),
            RecordFault::HeaderCount {
                found: -1,
                available: 0
            }
        );
        assert_eq!(
            fault(&[0, 0, 0, 1, 1, 4, 0], 7),
            RecordFault::HeaderCount {
                found: 2,
                available: 1
            }
        );
        assert_eq!(fault(&[0, 0, 0, 1, 1, 2, 1, 1], 8), RecordFault::NullHeaderKey);
        assert_eq!(
            fault(&[0, 0, 0, 20, b'k'], 5),
            RecordFault::Overrun { declared: 5 }
        );
        assert_eq!(
            fault(&[0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0], 8),
            RecordFault::Varint
        );
        assert_eq!(Record::parse(&[]), Err(RecordFault::Truncated));
        assert_eq!(Record::parse(&[0]), Err(RecordFault::Overrun { declared: 0 }));
    }
}
