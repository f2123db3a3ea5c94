//! The records of one batch, compressed or not, read in order with bounded memory. Records that lie whole in a
//! decompressed chunk are parsed there; one that straddles chunks is either skipped field by field
//! ([`RecordStream::next_facts`], no memory) or joined in a reused buffer ([`RecordStream::next_record`]).

use super::batch::BatchView;
use super::record::{Frame, Record, RecordFault};
use super::varint::{zigzag32, zigzag64};
use crate::compression::{Codec, DecompressError, DecompressStream, Decompressor};

/// Why the records of a batch could not be read to their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The batch's codec bits have no meaning.
    #[error("compression codec {0} is unknown")]
    Codec(i16),
    /// The compressed stream is unreadable or too large.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// A record is malformed, or there are more or fewer than the header says.
    #[error("record {index}: {fault}")]
    Record {
        /// Index of the record in the batch, from 0.
        index: u32,
        /// What is wrong with it.
        fault: RecordFault,
    },
}

/// What validation needs of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFacts {
    /// As in [`Record`].
    pub timestamp_delta: i64,
    /// As in [`Record`].
    pub offset_delta: i32,
    /// The key is not null.
    pub has_key: bool,
}

impl From<&Record<'_>> for RecordFacts {
    #[inline]
    fn from(record: &Record<'_>) -> Self {
        Self {
            timestamp_delta: record.timestamp_delta,
            offset_delta: record.offset_delta,
            has_key: record.key.is_some(),
        }
    }
}

/// The records of one batch. As many are read as the header counts; then the stream must be at its end.
pub struct RecordStream<'a> {
    stream: DecompressStream<'a>,
    /// Read position in the current chunk.
    position: usize,
    /// Records read.
    index: u32,
    count: u32,
    /// The end of the stream has been checked.
    ended: bool,
}

impl<'a> RecordStream<'a> {
    /// Starts reading the records of `batch`, which may decompress to `limit` bytes at most. A negative record count is
    /// read as 0.
    ///
    /// # Errors
    /// [`ReadError::Codec`], or the compressed stream's header is unreadable.
    pub fn new(
        batch: &BatchView<'a>,
        decompressor: &'a mut Decompressor,
        limit: u64,
    ) -> Result<Self, ReadError> {
        let attributes = batch.header().attributes;
        let codec = attributes
            .codec()
            .ok_or(ReadError::Codec(attributes.0 & Codec::ATTRIBUTES_MASK))?;
        let limit = if codec == Codec::None { u64::MAX } else { limit };
        let stream = decompressor.stream(codec, batch.records_bytes(), limit)?;
        let count = u32::try_from(batch.header().record_count).unwrap_or(0);
        Ok(Self {
            stream,
            position: 0,
            index: 0,
            count,
            ended: false,
        })
    }

    /// Bytes of the records section, decompressed, up to the current chunk's end.
    #[must_use]
    pub fn decompressed_bytes(&self) -> u64 {
        self.stream.produced()
    }

    /// The next record; `None` after the last one, when nothing follows it.
    ///
    /// A record that straddles chunks is joined in a buffer that grows with the bytes really produced, up to the limit.
    ///
    /// # Errors
    /// [`ReadError`]; the stream must not be read on after one.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        if self.index == self.count {
            return self.end().map(|()| None);
        }
        let index = self.index;
        let fault = |fault| ReadError::Record { index, fault };
        let body = match Record::frame(self.rest()).map_err(fault)? {
            Frame::Whole { body_start, end } => {
                let chunk = self.position + body_start..self.position + end;
                self.position = chunk.end;
                self.stream.chunk().get(chunk)
            }
            Frame::Partial { .. } => {
                let body_start = self.join()?;
                self.stream.joined().get(body_start..)
            }
        };
        self.index += 1;
        Record::parse_body(body.unwrap_or_default())
            .map_err(fault)
            .map(Some)
    }

    /// What validation needs of the next record; `None` after the last one, when nothing follows it.
    ///
    /// A record that straddles chunks is skipped field by field, whatever its size.
    ///
    /// # Errors
    /// [`ReadError`]; the stream must not be read on after one.
    #[inline]
    pub fn next_facts(&mut self) -> Result<Option<RecordFacts>, ReadError> {
        if self.index == self.count {
            return self.end().map(|()| None);
        }
        let index = self.index;
        let fault = |fault| ReadError::Record { index, fault };
        let rest = self.rest();
        let facts = match Record::frame(rest).map_err(fault)? {
            Frame::Whole { body_start, end } => {
                let body = rest.get(body_start..end).unwrap_or_default();
                let facts = RecordFacts::from(&Record::parse_body(body).map_err(fault)?);
                self.position += end;
                facts
            }
            Frame::Partial { .. } => Skip {
                records: self,
                taken: 0,
            }
            .record()?,
        };
        self.index += 1;
        Ok(Some(facts))
    }

    /// The unread part of the current chunk.
    #[inline]
    fn rest(&self) -> &[u8] {
        self.stream.chunk().get(self.position..).unwrap_or_default()
    }

    /// Checks, once, that nothing follows the last record.
    fn end(&mut self) -> Result<(), ReadError> {
        if self.ended {
            return Ok(());
        }
        self.ended = true;
        if self.rest().is_empty() && self.stream.next_chunk()?.is_empty() {
            return Ok(());
        }
        Err(self.fault(RecordFault::Trailing))
    }

    /// Goes to the next chunk after the current one has been used up.
    fn refill(&mut self) -> Result<(), ReadError> {
        self.position = 0;
        if self.stream.next_chunk()?.is_empty() {
            Err(self.fault(RecordFault::Truncated))
        } else {
            Ok(())
        }
    }

    /// Copies a record that straddles chunks into the joining buffer; returns where its body starts there.
    fn join(&mut self) -> Result<usize, ReadError> {
        self.stream.chunk_and_joined().1.clear();
        loop {
            let (chunk, joined) = self.stream.chunk_and_joined();
            let missing = match Record::frame(joined) {
                Ok(Frame::Whole { body_start, .. }) => return Ok(body_start),
                Ok(Frame::Partial { missing }) => missing,
                Err(fault) => return Err(self.fault(fault)),
            };
            let rest = chunk.get(self.position..).unwrap_or_default();
            let piece = rest.get(..missing).unwrap_or(rest);
            joined.extend_from_slice(piece);
            self.position += piece.len();
            if piece.is_empty() {
                self.refill()?;
            }
        }
    }

    fn fault(&self, fault: RecordFault) -> ReadError {
        ReadError::Record {
            index: self.index,
            fault,
        }
    }
}

/// Reads one record that straddles chunks, byte by byte where it matters and chunk by chunk where it does not.
/// Finds the same faults as [`Record::parse`].
struct Skip<'s, 'a> {
    records: &'s mut RecordStream<'a>,
    /// Bytes taken from the stream.
    taken: u64,
}

impl Skip<'_, '_> {
    fn record(&mut self) -> Result<RecordFacts, ReadError> {
        let length = self.varint()?;
        let declared =
            u32::try_from(length).map_err(|_| self.fault(RecordFault::Length { found: length }))?;
        self.taken = 0;
        match self.body(u64::from(declared)) {
            // Inside the body the end of the stream and the end of the body are told apart by what was declared.
            Ok(facts) if self.taken == u64::from(declared) => Ok(facts),
            Ok(_) if self.taken > u64::from(declared) => Err(self.fault(RecordFault::Overrun { declared })),
            Ok(_) => {
                let found = self.taken as u32;
                self.skip(u64::from(declared) - self.taken)?;
                Err(self.fault(RecordFault::Slack { declared, found }))
            }
            Err(error) => Err(error),
        }
    }

    fn body(&mut self, declared: u64) -> Result<RecordFacts, ReadError> {
        let _attributes = self.byte()?;
        let timestamp_delta = self.varlong()?;
        let offset_delta = self.varint()?;
        let has_key = self.blob(declared)?;
        self.blob(declared)?;
        let found = self.varint()?;
        let available = declared.saturating_sub(self.taken);
        let count = u32::try_from(found)
            .ok()
            .filter(|count| u64::from(*count) <= available);
        let fault = RecordFault::HeaderCount {
            found,
            available: available as u32,
        };
        for _ in 0..count.ok_or_else(|| self.fault(fault))? {
            if !self.blob(declared)? {
                return Err(self.fault(RecordFault::NullHeaderKey));
            }
            self.blob(declared)?;
        }
        Ok(RecordFacts {
            timestamp_delta,
            offset_delta,
            has_key,
        })
    }

    /// Skips a length and its bytes; false for null.
    fn blob(&mut self, declared: u64) -> Result<bool, ReadError> {
        let Ok(len) = u32::try_from(self.varint()?) else {
            return Ok(false);
        };
        if self.taken + u64::from(len) > declared {
            return Err(self.fault(RecordFault::Overrun {
                declared: declared as u32,
            }));
        }
        self.skip(u64::from(len))?;
        Ok(true)
    }

    fn skip(&mut self, mut len: u64) -> Result<(), ReadError> {
        self.taken += len;
        while len > 0 {
            let available = self.records.rest().len();
            if available == 0 {
                self.records.refill()?;
                continue;
            }
            let step = available.min(usize::try_from(len).unwrap_or(usize::MAX));
            self.records.position += step;
            len -= step as u64;
        }
        Ok(())
    }

    fn byte(&mut self) -> Result<u8, ReadError> {
        loop {
            if let Some(byte) = self.records.rest().first().copied() {
                self.records.position += 1;
                self.taken += 1;
                return Ok(byte);
            }
            self.records.refill()?;
        }
    }

    fn varint(&mut self) -> Result<i32, ReadError> {
        let mut raw = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            raw |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(zigzag32(raw));
            }
        }
        Err(self.fault(RecordFault::Varint))
    }

    fn varlong(&mut self) -> Result<i64, ReadError> {
        let mut raw = 0;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            raw |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(zigzag64(raw));
            }
        }
        Err(self.fault(RecordFault::Varint))
    }

    fn fault(&self, fault: RecordFault) -> ReadError {
        self.records.fault(fault)
    }
}
