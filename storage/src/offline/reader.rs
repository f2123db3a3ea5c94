//! A segment file from front to back: every batch with its place, and what lies between batches where bytes are damaged. Where
//! a batch is wrong the reader looks for the next one that is right, so that one flipped bit costs one batch and not the rest.
//! Memory: two of the largest batches, at least 2 MiB.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use protocol::record::{BATCH_HEADER_BYTES, BatchView};

use crate::log::batch::BatchHeader;
use crate::types::Offset;

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The largest batch looked for, bytes: what a commit of the journal can hold at most.
const BATCH_BYTES_MAX: u64 = crate::journal::frame::COMMIT_BYTES_MAX as u64;

/// Offsets that a search for the next batch takes for possible: a segment's, from the last one that is known.
const OFFSETS_AHEAD_MAX: i64 = i32::MAX as i64;

/// A batch in a segment.
#[derive(Clone, Copy, Debug)]
pub struct FoundBatch<'a> {
    /// Its first byte in the file.
    pub position: u64,
    /// Its header.
    pub header: BatchHeader,
    /// All of it.
    pub bytes: &'a [u8],
}

/// Bytes that are no valid batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSpan {
    /// The first of them.
    pub position: u64,
    /// One past the last of them: the next valid batch, or the end of the file.
    pub end: u64,
    /// The first offset that may be lost with them.
    pub first_offset: Offset,
    /// One past the last: the base offset of the next valid batch; [`Offset::NONE`] when none follows.
    pub end_offset: Offset,
    /// What is wrong with the first of them.
    pub fault: Fault,
}

/// Why bytes are no valid batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No header of a version 2 batch.
    NoHeader,
    /// The checksum differs.
    Crc {
        /// In the header.
        expected: u32,
        /// Of the bytes.
        found: u32,
    },
    /// A valid batch whose base offset lies below what came before it.
    Backwards {
        /// Its base offset.
        found: Offset,
    },
    /// A valid batch whose base offset lies above that of the batch behind it.
    Misplaced {
        /// Its base offset.
        found: Offset,
    },
    /// The file ends inside it.
    CutOff,
    /// Zeroes up to the end of the file: allocated and never written.
    Zeroes,
}

/// What comes next in a file.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// A valid batch.
    Batch(FoundBatch<'a>),
    /// Something else.
    Bad(BadSpan),
}

/// Reads a segment file.
#[derive(Debug)]
pub struct SegmentReader {
    file: File,
    path: PathBuf,
    size: u64,
    /// The part of the file that is in memory, and where it starts.
    window: Vec<u8>,
    start: u64,
    /// Where the next batch is due, and the lowest base offset it may have.
    position: u64,
    expected: Offset,
    is_quick: bool,
}

impl SegmentReader {
    /// Opens the segment with the base offset `base`.
    ///
    /// # Errors
    /// From the file system.
    pub fn open(path: &Path, base: Offset) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            file,
            path: path.to_owned(),
            size,
            window: Vec::new(),
            start: 0,
            position: 0,
            expected: base,
            is_quick: false,
        })
    }

    /// The same, but checksums are not computed: for those who only want to see what is there.
    #[must_use]
    pub const fn unchecked(mut self) -> Self {
        self.is_quick = true;
        self
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size, bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Behind the last batch or span that was given, bytes.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// One past the last offset of the last valid batch; the segment's base offset before the first.
    #[must_use]
    pub const fn end_offset(&self) -> Offset {
        self.expected
    }

    /// What comes next; `None` at the end of the file.
    ///
    /// # Errors
    /// From the file system.
    pub fn next_found(&mut self) -> io::Result<Option<Found<'_>>> {
        if self.position >= self.size {
            return Ok(None);
        }
        let position = self.position;
        let looked = match self.look(position, self.expected)? {
            Ok(header) if self.is_misplaced(position, &header)? => {
                let found = header.base_offset;
                Err(Fault::Misplaced { found })
            }
            looked => looked,
        };
        match looked {
            Ok(header) => {
                self.position += u64::from(header.size);
                self.expected = header.last_offset().plus(1);
                let bytes = self.bytes(position, header.size as usize)?;
                Ok(Some(Found::Batch(FoundBatch {
                    position,
                    header,
                    bytes,
                })))
            }
            Err(fault) => self.bad_span(fault).map(|span| Some(Found::Bad(span))),
        }
    }

    /// Base offsets are outside of the checksum. One that leaves a gap, while the next batch would follow without it, is wrong.
    fn is_misplaced(&mut self, position: u64, header: &BatchHeader) -> io::Result<bool> {
        let (expected, behind) = (self.expected, position + u64::from(header.size));
        if header.base_offset == expected || behind >= self.size {
            return Ok(false);
        }
        let next = self.look_checked(behind, expected)?;
        Ok(next.is_ok_and(|next| next.base_offset <= header.last_offset()))
    }

    /// Whether a valid batch with at least offset `expected` lies at `position`.
    fn look(&mut self, position: u64, expected: Offset) -> io::Result<Result<BatchHeader, Fault>> {
        let left = self.size - position;
        let head = self.bytes(position, BATCH_HEADER_BYTES)?;
        if head.len() < BATCH_HEADER_BYTES {
            return Ok(Err(Fault::CutOff));
        }
        let Some(header) = BatchHeader::parse(head) else {
            return Ok(Err(Fault::NoHeader));
        };
        let size = u64::from(header.size);
        if size > BATCH_BYTES_MAX {
            return Ok(Err(Fault::NoHeader));
        }
        if size > left {
            return Ok(Err(Fault::CutOff));
        }
        let is_quick = self.is_quick;
        let bytes = self.bytes(position, header.size as usize)?;
        if !is_quick {
            let found = BatchView::parse(bytes, position).map_or(0, |view| view.computed_crc());
            if found != header.wire.crc {
                let expected = header.wire.crc;
                return Ok(Err(Fault::Crc { expected, found }));
            }
        }
        if header.base_offset < expected {
            let found = header.base_offset;
            return Ok(Err(Fault::Backwards { found }));
        }
        Ok(Ok(header))
    }

    /// The span of what is wrong from here on; the next call gives the valid batch behind it.
    fn bad_span(&mut self, fault: Fault) -> io::Result<BadSpan> {
        let position = self.position;
        let (next, fault) = match self.next_valid(fault)? {
            Some(next) => (Some(next), fault),
            None if self.is_zero_from(position)? => (None, Fault::Zeroes),
            None => (None, fault),
        };
        let (end, end_offset) =
            next.map_or((self.size, Offset::NONE), |(at, header)| (at, header.base_offset));
        self.position = end;
        Ok(BadSpan {
            position,
            end,
            first_offset: self.expected,
            end_offset,
            fault,
        })
    }

    /// The next valid batch behind the bad one at the current position. Mostly that one's length is right; else every byte is
    /// tried, with the checksum where all else fits.
    fn next_valid(&mut self, fault: Fault) -> io::Result<Option<(u64, BatchHeader)>> {
        let (from, expected) = (self.position, self.expected);
        if !matches!(fault, Fault::NoHeader | Fault::CutOff | Fault::Zeroes)
            && let Some(header) = BatchHeader::parse(self.bytes(from, BATCH_HEADER_BYTES)?)
        {
            let behind = from + u64::from(header.size);
            if behind < self.size
                && let Ok(next) = self.look_checked(behind, expected)?
            {
                return Ok(Some((behind, next)));
            }
        }
        let mut at = from + 1;
        while at + BATCH_HEADER_BYTES as u64 <= self.size {
            let window = self.bytes(at, READ_BYTES)?;
            let candidates = window.len().saturating_sub(BATCH_HEADER_BYTES - 1);
            let found =
                (0..candidates).find(|step| may_begin(window.get(*step..).unwrap_or_default(), expected));
            let Some(step) = found else {
                at += candidates.max(1) as u64;
                continue;
            };
            at += step as u64;
            if let Ok(header) = self.look_checked(at, expected)? {
                return Ok(Some((at, header)));
            }
            at += 1;
        }
        Ok(None)
    }

    /// With the checksum in any case: what was searched for is not there by the file's own word.
    fn look_checked(&mut self, position: u64, expected: Offset) -> io::Result<Result<BatchHeader, Fault>> {
        let was_quick = std::mem::replace(&mut self.is_quick, false);
        let looked = self.look(position, expected);
        self.is_quick = was_quick;
        looked
    }

    fn is_zero_from(&mut self, from: u64) -> io::Result<bool> {
        let mut at = from;
        while at < self.size {
            let window = self.bytes(at, READ_BYTES)?;
            if window.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            at += window.len().max(1) as u64;
        }
        Ok(true)
    }

    /// `len` bytes at `position`; fewer where the file ends.
    fn bytes(&mut self, position: u64, len: usize) -> io::Result<&[u8]> {
        let left = usize::try_from(self.size.saturating_sub(position)).unwrap_or(usize::MAX);
        let len = len.min(left);
        let have = (self.start + self.window.len() as u64).saturating_sub(position);
        if position < self.start || have < len as u64 {
            self.fill(position, len.max(READ_BYTES).min(left))?;
        }
        let from = usize::try_from(position - self.start).unwrap_or(usize::MAX);
        let to = from.saturating_add(len).min(self.window.len());
        Ok(self.window.get(from..to).unwrap_or_default())
    }

    /// Brings `len` bytes from `position` on into memory; what is there already is kept.
    fn fill(&mut self, position: u64, len: usize) -> io::Result<()> {
        let kept = position
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok())
            .filter(|at| *at < self.window.len());
        match kept {
            Some(at) => drop(self.window.drain(..at)),
            None => self.window.clear(),
        }
        self.start = position;
        if self.window.capacity() > 2 * READ_BYTES && len <= READ_BYTES {
            self.window.shrink_to(2 * READ_BYTES); // a large batch is over
        }
        let mut filled = self.window.len();
        self.window.resize(len.max(filled), 0);
        while let Some(rest) = self.window.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, position + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.window.truncate(filled);
        Ok(())
    }
}

/// Whether a batch may begin here: cheap, and rarely wrong.
fn may_begin(bytes: &[u8], expected: Offset) -> bool {
    const MAGIC_AT: usize = 16;
    if bytes.get(MAGIC_AT) != Some(&2) {
        return false;
    }
    let limit = expected.0.saturating_add(OFFSETS_AHEAD_MAX);
    BatchHeader::parse(bytes).is_some_and(|header| {
        (expected.0..limit).contains(&header.base_offset.0)
            && header.wire.record_count >= 0
            && u64::from(header.size) <= BATCH_BYTES_MAX
    })
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHeader => f.write_str("no batch header"),
            Self::Crc { found, .. } => write!(f, "CRC-32C {found:08x}"),
            Self::Backwards { found } | Self::Misplaced { found } => write!(f, "a batch at offset {found}"),
            Self::CutOff => f.write_str("the end of the file inside a batch"),
            Self::Zeroes => f.write_str("zeroes up to the end of the file"),
        }
    }
}

impl BadSpan {
    /// What should be there.
    #[must_use]
    pub fn expected(&self) -> String {
        match self.fault {
            Fault::Crc { expected, .. } => format!("a batch with CRC-32C {expected:08x}"),
            _ => format!("a batch from offset {} on", self.first_offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offline::testing::{batch, collect};

    #[test]
    fn whole_files_give_their_batches_in_order() {
        let batches: Vec<Vec<u8>> = (0..50).map(|n| batch(n * 3, 3, 60_000, n)).collect();
        let found = collect(&batches.concat(), 0);
        assert_eq!(found.bad, []);
        assert_eq!(found.bases, (0..50).map(|n| n * 3).collect::<Vec<_>>());
        assert_eq!(found.end, 150);
    }

    #[test]
    fn a_flipped_bit_costs_one_batch_wherever_it_is() {
        let batches: Vec<Vec<u8>> = (0..5).map(|n| batch(n * 10, 10, 300, n)).collect();
        let sizes: Vec<usize> = batches.iter().map(Vec::len).collect();
        let from: usize = sizes[..2].iter().sum();
        let whole = batches.concat();
        for byte in 0..sizes[2] {
            let mut damaged = whole.clone();
            damaged[from + byte] ^= 0x10;
            let found = collect(&damaged, 0);
            if (12..16).contains(&byte) {
                continue; // the leader epoch is outside of the checksum
            }
            assert_eq!(found.bases, [0, 10, 30, 40], "byte {byte}");
            let [span] = found.bad[..] else {
                panic!("byte {byte}: {:?}", found.bad)
            };
            assert_eq!((span.position, span.end), (from as u64, (from + sizes[2]) as u64));
            assert_eq!((span.first_offset, span.end_offset), (Offset(20), Offset(30)));
        }
    }

    #[test]
    fn a_cut_tail_and_a_tail_of_zeroes_are_told_apart() {
        let whole = [batch(0, 2, 200, 1), batch(2, 2, 200, 1)].concat();
        let found = collect(&whole[..whole.len() - 1], 0);
        assert_eq!((found.bases, found.bad.len()), (vec![0], 1));
        assert_eq!(found.bad[0].fault, Fault::CutOff);
        assert_eq!(found.bad[0].end_offset, Offset::NONE);
        let found = collect(&[&whole[..], &[0; 70_000]].concat(), 0);
        assert_eq!(found.bases, [0, 2]);
        assert_eq!(found.bad[0].fault, Fault::Zeroes);
        assert_eq!(
            (found.bad[0].position, found.bad[0].end),
            (whole.len() as u64, whole.len() as u64 + 70_000)
        );
        assert_eq!(collect(&[], 7).end, 7);
    }

    #[test]
    fn offsets_that_go_back_are_no_part_of_the_log() {
        let whole = [batch(5, 2, 200, 1), batch(4, 1, 200, 1), batch(7, 1, 200, 1)].concat();
        let found = collect(&whole, 5);
        assert_eq!(found.bases, [5, 7]);
        assert_eq!(found.bad[0].fault, Fault::Backwards { found: Offset(4) });
    }

    #[test]
    fn batches_larger_than_the_window_are_read() {
        let batches = [
            batch(0, 1, 3 << 20, 1),
            batch(1, 1, 100, 1),
            batch(2, 1, 5 << 20, 2),
        ];
        let mut whole = batches.concat();
        assert_eq!(collect(&whole, 0).bases, [0, 1, 2]);
        whole[2 << 20] ^= 1;
        let found = collect(&whole, 0);
        assert_eq!((found.bases, found.bad.len()), (vec![1, 2], 1));
    }
}
