//! The newest batches of one log, from the first that is not wholly in its segment file to the log's end: staged, in the
//! journal, or on their way to the segment. They stay in memory until the segment has them; reads of these offsets are
//! served from here. Positions are byte positions in the segment that each batch was assigned to at append.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::types::Offset;

/// A batch as it will lie in its segment: the parts back to back are its bytes.
#[derive(Clone, Debug)]
pub(crate) struct TailBatch {
    /// First offset.
    pub(crate) base: Offset,
    /// Last offset.
    pub(crate) last: Offset,
    /// Base offset of its segment.
    pub(crate) segment: Offset,
    /// Position in the segment.
    pub(crate) position: u32,
    /// The patched prefix, or all of a small batch.
    pub(crate) head: Bytes,
    /// The received rest of a large batch; empty for a small one.
    pub(crate) rest: Bytes,
}

/// See the module. Memory: about 120 bytes a batch besides the bytes themselves, which the cache shares.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    batches: VecDeque<TailBatch>,
    /// How many from the front a commit has taken.
    planned: usize,
    bytes: usize,
    staged_bytes: usize,
}

impl TailBatch {
    pub(crate) fn bytes(&self) -> usize {
        self.head.len() + self.rest.len()
    }

    /// Where the batch ends in its segment.
    pub(crate) fn end(&self) -> u32 {
        self.position + self.bytes() as u32
    }
}

impl Tail {
    /// Adds a staged batch at the end.
    pub(crate) fn push(&mut self, batch: TailBatch) {
        debug_assert!(self.batches.back().is_none_or(|last| last.last < batch.base));
        self.bytes += batch.bytes();
        self.staged_bytes += batch.bytes();
        self.batches.push_back(batch);
    }

    /// Bytes of all batches here.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes no commit has taken yet.
    pub(crate) const fn staged_bytes(&self) -> usize {
        self.staged_bytes
    }

    /// The first batch here.
    pub(crate) fn front(&self) -> Option<&TailBatch> {
        self.batches.front()
    }

    /// Whether a commit is in flight with batches at or above `durable_end`.
    pub(crate) fn is_committing(&self, durable_end: Offset) -> bool {
        let last_planned = self
            .planned
            .checked_sub(1)
            .and_then(|index| self.batches.get(index));
        last_planned.is_some_and(|batch| batch.last >= durable_end)
    }

    /// Segment and position behind the last batch that a commit has taken and that is still here.
    pub(crate) fn planned_end(&self) -> Option<(Offset, u32)> {
        let last = self.batches.get(self.planned.checked_sub(1)?)?;
        Some((last.segment, last.end()))
    }

    /// The first staged batch.
    pub(crate) fn first_staged(&self) -> Option<&TailBatch> {
        self.batches.get(self.planned)
    }

    /// Bytes of the first staged batches that lie in one segment and fit `budget`; the first always counts.
    pub(crate) fn staged_prefix_bytes(&self, budget: usize) -> usize {
        let Some(first) = self.first_staged() else {
            return 0;
        };
        let mut bytes = first.bytes();
        for batch in self.batches.range(self.planned + 1..) {
            if batch.segment != first.segment || bytes + batch.bytes() > budget {
                break;
            }
            bytes += batch.bytes();
        }
        bytes
    }

    /// Hands the first staged batches of together `bytes` to a commit.
    pub(crate) fn take_staged(&mut self, bytes: usize) -> Option<Taken> {
        let first = self.first_staged()?;
        let (base, segment, from) = (first.base, first.segment, first.position);
        let mut left = bytes;
        let mut taken = Taken {
            base,
            end: base,
            segment,
            from,
            to: from,
        };
        while left > 0 {
            let batch = self.batches.get(self.planned)?;
            assert!(
                batch.bytes() <= left && batch.segment == segment,
                "a commit takes whole batches of one segment"
            );
            left -= batch.bytes();
            taken.end = batch.last.plus(1);
            taken.to = batch.end();
            self.staged_bytes -= batch.bytes();
            self.planned += 1;
        }
        Some(taken)
    }

    /// Drops the batches that lie wholly below `position` of `segment`, and all of older segments.
    pub(crate) fn release(&mut self, segment: Offset, position: u32) {
        while let Some(front) = self.batches.front() {
            if front.segment > segment || (front.segment == segment && front.end() > position) {
                break;
            }
            assert!(self.planned > 0, "only what a commit has taken is written");
            self.bytes -= front.bytes();
            self.planned -= 1;
            self.batches.pop_front();
        }
    }

    /// Drops everything from `offset` on. Returns how many staged bytes went.
    pub(crate) fn truncate(&mut self, offset: Offset) -> usize {
        let kept = self.batches.partition_point(|batch| batch.base < offset);
        let staged_before = self.staged_bytes;
        for batch in self.batches.drain(kept..) {
            self.bytes -= batch.bytes();
        }
        self.planned = self.planned.min(kept);
        self.staged_bytes = self.batches.range(self.planned..).map(TailBatch::bytes).sum();
        staged_before - self.staged_bytes
    }

    /// The batch that holds `offset`, or the next above it, if it is here.
    pub(crate) fn find(&self, offset: Offset) -> Option<&TailBatch> {
        self.range_from(offset).next()
    }

    /// The batches from the one that holds `offset` on (or the next above it).
    pub(crate) fn range_from(&self, offset: Offset) -> impl Iterator<Item = &TailBatch> {
        self.batches
            .range(self.batches.partition_point(|batch| batch.last < offset)..)
    }

    /// Gives the bytes of `segment` from position `from` to `to` piece by piece. They must all be here.
    pub(crate) fn pieces(&self, segment: Offset, from: u32, to: u32, mut piece: impl FnMut(&[u8])) {
        let mut at = from;
        let first = self.batches.partition_point(|batch| {
            batch.segment < segment || (batch.segment == segment && batch.end() <= from)
        });
        for batch in self.batches.range(first..) {
            if at >= to || batch.segment != segment {
                break;
            }
            assert!(batch.position <= at, "the tail has no holes");
            let mut start = batch.position;
            for part in [&batch.head, &batch.rest] {
                let end = start + part.len() as u32;
                let (low, high) = (at.max(start), to.min(end));
                if low < high {
                    piece(&part[(low - start) as usize..(high - start) as usize]);
                    at = high;
                }
                start = end;
            }
        }
        assert_eq!(at, to, "the tail holds what is not yet in the segment");
    }
}

/// What a commit takes from a log: whole batches, back to back in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// First offset.
    pub(crate) base: Offset,
    /// One past the last offset.
    pub(crate) end: Offset,
    /// The segment.
    pub(crate) segment: Offset,
    /// Position of the first byte.
    pub(crate) from: u32,
    /// One past the last byte.
    pub(crate) to: u32,
}

impl Taken {
    /// Offsets taken.
    pub(crate) const fn records(&self) -> u64 {
        (self.end.0 - self.base.0) as u64
    }

    /// Bytes taken.
    pub(crate) const fn bytes(&self) -> u64 {
        (self.to - self.from) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base: i64, segment: i64, position: u32, bytes: usize) -> TailBatch {
        let fill = |count: usize| Bytes::from(vec![base as u8; count]);
        TailBatch {
            base: Offset(base),
            last: Offset(base),
            segment: Offset(segment),
            position,
            head: fill(bytes / 2),
            rest: fill(bytes - bytes / 2),
        }
    }

    fn tail() -> Tail {
        let mut tail = Tail::default();
        tail.push(batch(0, 0, 100, 10));
        tail.push(batch(1, 0, 110, 10));
        tail.push(batch(2, 2, 0, 10));
        tail
    }

    #[test]
    fn a_commit_takes_whole_batches_of_one_segment() {
        let mut tail = tail();
        assert_eq!(tail.staged_prefix_bytes(5), 10);
        assert_eq!(tail.staged_prefix_bytes(1000), 20);
        let taken = tail.take_staged(20).expect("two batches");
        assert_eq!(
            (taken.base, taken.end, taken.from, taken.to),
            (Offset(0), Offset(2), 100, 120)
        );
        assert_eq!(tail.staged_bytes(), 10);
        assert_eq!(tail.first_staged().map(|b| b.base), Some(Offset(2)));
    }

    #[test]
    fn pieces_are_the_bytes_of_the_range() {
        let tail = tail();
        let mut out = Vec::new();
        tail.pieces(Offset(0), 103, 117, |piece| out.extend_from_slice(piece));
        assert_eq!(out, [vec![0; 7], vec![1; 7]].concat());
    }

    #[test]
    fn written_batches_leave_and_half_written_ones_stay() {
        let mut tail = tail();
        tail.take_staged(20);
        tail.take_staged(10);
        tail.release(Offset(0), 119);
        assert_eq!(tail.front().map(|b| b.base), Some(Offset(1)));
        tail.release(Offset(2), 0);
        assert_eq!(tail.front().map(|b| b.base), Some(Offset(2)));
        tail.release(Offset(2), 10);
        assert_eq!((tail.bytes(), tail.front().map(|b| b.base)), (0, None));
    }

    #[test]
    fn truncation_reports_the_staged_bytes_that_went() {
        let mut tail = tail();
        tail.take_staged(20);
        assert_eq!(tail.truncate(Offset(1)), 10);
        assert_eq!((tail.bytes(), tail.staged_bytes()), (10, 0));
        assert_eq!(tail.find(Offset(0)).map(|b| b.base), Some(Offset(0)));
        assert!(tail.find(Offset(1)).is_none());
    }
}
