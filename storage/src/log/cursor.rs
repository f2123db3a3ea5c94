//! How far a log is in its segment files. Writes are issued front to back in whole blocks, may overlap in time, and count
//! when all before them have ended. A block is written once; only when the log rests (recycling, clean stop) is a partly
//! filled block written, and then it is rewritten only after its content is in the journal again (DESIGN §6, invariant 2).

use std::collections::VecDeque;

use crate::disk::{BLOCK_BYTES, align_down};
use crate::types::Offset;

/// Whether the block at the cursor is on disk partly filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partial {
    /// No: the next write of the block is its first, or its content is in the journal.
    No,
    /// Yes: its bytes must go into the journal before the block is written again.
    OnDisk,
    /// A commit that carries them is in flight.
    Journaling,
}

/// The write position of a log.
#[derive(Debug)]
pub(crate) struct WriteCursor {
    /// The segment being written: the oldest that is not wholly on disk.
    pub(crate) segment: Offset,
    /// Up to where writes have been issued in it, a multiple of the block size.
    pub(crate) issued: u32,
    /// The bytes from `issued` on that are no longer in the tail, less than a block.
    pub(crate) residue: Vec<u8>,
    /// See [`Partial`].
    pub(crate) partial: Partial,
    /// Everything below is in the files: segment and byte position.
    written: (Offset, u32),
    flights: VecDeque<Flight>,
    flight_next: u64,
}

#[derive(Debug)]
struct Flight {
    id: u64,
    reaches: (Offset, u32),
    ended: bool,
}

impl WriteCursor {
    /// A cursor at `position` of `segment`; `residue` is the content of the block that holds the position, up to it.
    pub(crate) fn new(segment: Offset, position: u32, residue: Vec<u8>) -> Self {
        let issued = align_down(u64::from(position)) as u32;
        assert_eq!(
            issued as usize + residue.len(),
            position as usize,
            "the residue reaches the position"
        );
        let partial = if residue.is_empty() {
            Partial::No
        } else {
            Partial::OnDisk
        };
        Self {
            segment,
            issued,
            residue,
            partial,
            written: (segment, position),
            flights: VecDeque::new(),
            flight_next: 0,
        }
    }

    /// A write up to `reaches` of the current segment was issued. Ends with [`Self::land`] of the returned id.
    pub(crate) fn launch(&mut self, reaches: u32) -> u64 {
        let id = self.flight_next;
        self.flight_next += 1;
        self.flights.push_back(Flight {
            id,
            reaches: (self.segment, reaches),
            ended: false,
        });
        id
    }

    /// A write has ended. Returns how far the files now are, if that moved.
    pub(crate) fn land(&mut self, id: u64) -> Option<(Offset, u32)> {
        if let Some(flight) = self.flights.iter_mut().find(|flight| flight.id == id) {
            flight.ended = true;
        }
        let mut moved = None;
        while self.flights.front().is_some_and(|flight| flight.ended) {
            moved = self.flights.pop_front().map(|flight| flight.reaches);
        }
        if let Some(reaches) = moved {
            assert!(self.written <= reaches, "writes go forward");
            self.written = reaches;
        }
        moved
    }

    /// Everything below is in the files.
    pub(crate) const fn written(&self) -> (Offset, u32) {
        self.written
    }

    /// Up to where the bytes of the current segment are in writes that were issued: behind a partly filled block, if it ends
    /// with one.
    pub(crate) fn issued_to(&self) -> u32 {
        self.issued + self.residue.len() as u32
    }

    /// No write is in flight.
    pub(crate) fn is_still(&self) -> bool {
        self.flights.is_empty()
    }

    /// Whether the block at the cursor may be written now. Of two writes of one block either could be the last to reach the
    /// disk, so a write of a part of it must have ended before.
    pub(crate) fn is_block_free(&self) -> bool {
        self.residue.is_empty() || self.is_still()
    }

    /// The whole blocks below `position` that are not issued yet, as their end; `None` when there are none.
    pub(crate) fn full_blocks_until(&self, position: u32) -> Option<u32> {
        let end = position - position % BLOCK_BYTES as u32;
        (end > self.issued).then_some(end)
    }

    /// Goes on to the next segment; the current one is wholly in its file.
    pub(crate) fn enter(&mut self, segment: Offset) {
        assert!(segment > self.segment, "segments are written in order");
        assert!(
            self.is_still(),
            "a segment is left when all its writes have ended"
        );
        self.segment = segment;
        self.written = (segment, 0);
        self.issued = 0;
        self.residue.clear();
        self.partial = Partial::No;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_count_when_all_before_them_have_ended() {
        let mut cursor = WriteCursor::new(Offset(0), 0, Vec::new());
        let (a, b, c) = (cursor.launch(4096), cursor.launch(8192), cursor.launch(12288));
        assert_eq!(cursor.land(b), None);
        assert_eq!(cursor.land(a), Some((Offset(0), 8192)));
        assert_eq!(cursor.land(c), Some((Offset(0), 12288)));
        assert!(cursor.is_still());
    }

    #[test]
    fn a_partly_filled_block_is_not_written_again_before_its_write_has_ended() {
        let mut cursor = WriteCursor::new(Offset(0), 4510, vec![0; 414]);
        let part = cursor.launch(5452);
        cursor.residue = vec![0; 1356];
        cursor.partial = Partial::No; // a commit that carries the block was durable before the write ended
        assert!(!cursor.is_block_free());
        cursor.land(part);
        assert!(cursor.is_block_free());
        cursor.residue.clear();
        cursor.launch(8192);
        assert!(
            cursor.is_block_free(),
            "whole blocks are written once and may overlap in time"
        );
    }

    #[test]
    fn only_whole_blocks_are_written_while_a_log_is_busy() {
        let cursor = WriteCursor::new(Offset(0), 5000, vec![0; 904]);
        assert_eq!((cursor.issued, cursor.partial), (4096, Partial::OnDisk));
        assert_eq!(cursor.full_blocks_until(8191), None);
        assert_eq!(cursor.full_blocks_until(8192), Some(8192));
    }
}
