//! Read-ahead for sequential readers of what is on disk only: a reader that goes on where its last read ended has the next
//! extents read before it asks, in a window that doubles with each such read. A state machine of one store without I/O:
//! a read is [`ReadAhead::begin`], [`ReadAhead::cover`], [`ReadAhead::plan`], [`ReadAhead::end`]; the disk's side is
//! [`ReadAhead::next_fetch`] and [`ReadAhead::landed`]. Bounded per reader, and for all readers of a shard together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;

use crate::disk::{IO_BYTES_MAX, align_down};
use crate::types::Offset;

/// Bounds of the read-ahead of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadLimits {
    /// Bytes read ahead for all readers; 0 turns it off.
    pub bytes_max: usize,
    /// Bytes read ahead for one reader.
    pub reader_bytes_max: usize,
}

impl Default for ReadAheadLimits {
    fn default() -> Self {
        Self {
            bytes_max: 32 << 20,
            reader_bytes_max: 4 << 20,
        }
    }
}

/// Readers that are remembered; who has not read for longest is forgotten.
const READERS_MAX: usize = 1024;

/// Extents that may wait to be read; beyond that nothing more is planned.
const WANTED_MAX: usize = 4096;

/// What is read ahead of a reader's first sequential read, bytes.
const WINDOW_BYTES_MIN: usize = IO_BYTES_MAX;

/// One extent to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) reader: u64,
    pub(crate) slot: u32,
    pub(crate) segment: Offset,
    pub(crate) position: u32,
    pub(crate) bytes: usize,
}

/// What a reader finds at a position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// These bytes from the position on, back to back.
    Here(Vec<Bytes>),
    /// They are being read.
    Coming,
    /// The reader has to read itself.
    Absent,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    limits: ReadAheadLimits,
    readers: BTreeMap<u64, Reader>,
    /// Log, next offset and id of readers that are not in a read.
    places: BTreeSet<(u32, Offset, u64)>,
    /// By when they last read.
    turns: BTreeMap<u64, u64>,
    turn: u64,
    reader_next: u64,
    wanted: VecDeque<(u64, u32)>,
    bytes: usize,
}

#[derive(Debug)]
struct Reader {
    slot: u32,
    segment: Offset,
    /// Where its next read begins: offset and byte position.
    next: Offset,
    position: u32,
    is_busy: bool,
    window: usize,
    turn: u64,
    /// Back to back, from near `position` on.
    extents: VecDeque<Extent>,
}

#[derive(Debug)]
struct Extent {
    position: u32,
    bytes: usize,
    state: ExtentState,
}

#[derive(Debug)]
enum ExtentState {
    Wanted,
    Coming,
    Here(Bytes),
}

impl Extent {
    fn end(&self) -> u32 {
        self.position + self.bytes as u32
    }

    const fn is_coming(&self) -> bool {
        matches!(self.state, ExtentState::Coming)
    }
}

impl ReadAhead {
    pub(crate) fn new(limits: ReadAheadLimits) -> Self {
        Self {
            limits,
            readers: BTreeMap::new(),
            places: BTreeSet::new(),
            turns: BTreeMap::new(),
            turn: 0,
            reader_next: 0,
            wanted: VecDeque::new(),
            bytes: 0,
        }
    }

    /// A read of the log begins at `offset`, which lies in `segment`. Returns the reader, and the position of the batch if
    /// the reader went on from its last read. Ends with [`Self::end`].
    pub(crate) fn begin(&mut self, slot: u32, segment: Offset, offset: Offset) -> (u64, Option<u32>) {
        self.turn += 1;
        let found = self
            .places
            .range((slot, offset, 0)..=(slot, offset, u64::MAX))
            .next();
        let Some(id) = found.map(|(_, _, id)| *id) else {
            return (self.start(slot, segment, offset), None);
        };
        self.places.remove(&(slot, offset, id));
        let (turn, limits) = (self.turn, self.limits);
        let reader = self.readers.get_mut(&id).expect("a place names a reader");
        let gap = turn - reader.turn;
        self.turns.remove(&reader.turn);
        self.turns.insert(turn, id);
        reader.turn = turn;
        reader.is_busy = true;
        reader.window = next_window(reader.window, gap, limits);
        if reader.segment == segment {
            return (id, Some(reader.position));
        }
        reader.segment = segment;
        // A read that finds nothing there leaves the place as it is: it must not be the one in the segment before.
        reader.position = 0;
        let extents = std::mem::take(&mut reader.extents);
        self.release(extents);
        (id, None)
    }

    /// At least `needed` and at most `wanted` bytes at `position`, if they were read ahead.
    pub(crate) fn cover(&mut self, id: u64, position: u32, wanted: usize, needed: usize) -> Cover {
        let Some(reader) = self.readers.get(&id) else {
            return Cover::Absent;
        };
        let mut at = position;
        let mut pieces = Vec::new();
        let mut left = wanted;
        for extent in &reader.extents {
            if extent.end() <= at || left == 0 {
                continue;
            }
            if extent.position > at {
                break;
            }
            match &extent.state {
                ExtentState::Here(bytes) => {
                    let from = (at - extent.position) as usize;
                    let take = left.min(bytes.len() - from);
                    pieces.push(bytes.slice(from..from + take));
                    left -= take;
                    at += take as u32;
                }
                // Half of it is worth an answer, less is worth the wait.
                ExtentState::Coming if wanted - left < needed.max(wanted / 2) => return Cover::Coming,
                ExtentState::Coming | ExtentState::Wanted => break,
            }
        }
        if wanted - left >= needed && !pieces.is_empty() {
            return Cover::Here(pieces);
        }
        Cover::Absent
    }

    /// The reader reads so many bytes at `position` itself. If it is a sequential one, the end of them, where the next read
    /// will begin, is worth keeping: to be given to [`Self::landed`].
    pub(crate) fn read_itself(&mut self, id: u64, position: u32, bytes: usize) -> Option<Fetch> {
        let reader = self.readers.get_mut(&id)?;
        let (slot, segment, window) = (reader.slot, reader.segment, reader.window);
        let old = std::mem::take(&mut reader.extents);
        self.release(old);
        if window == 0 || !self.make_room(id, bytes) {
            return None;
        }
        self.bytes += bytes;
        self.readers.get_mut(&id)?.extents.push_back(Extent {
            position,
            bytes,
            state: ExtentState::Coming,
        });
        Some(Fetch {
            reader: id,
            slot,
            segment,
            position,
            bytes,
        })
    }

    /// The reader has done with what lies below `position`, and has or reads what lies below `ahead_from`: from there on
    /// it is read ahead as far as its window reaches, up to `limit`. Returns whether there is something to fetch.
    pub(crate) fn plan(&mut self, id: u64, position: u32, ahead_from: u32, limit: u32) -> bool {
        let Some(reader) = self.readers.get_mut(&id) else {
            return false;
        };
        let window_end = u64::from(ahead_from) + reader.window as u64;
        let passed = reader
            .extents
            .iter()
            .take_while(|extent| extent.end() <= position)
            .count();
        let mut gone: VecDeque<Extent> = reader.extents.drain(..passed).collect();
        let is_hole = reader
            .extents
            .front()
            .is_some_and(|extent| extent.position > position);
        if is_hole {
            gone.append(&mut reader.extents);
        }
        let mut from = reader.extents.back().map_or(ahead_from, Extent::end);
        self.release(gone);
        let mut planned = false;
        while from < limit && u64::from(from) < window_end {
            let end = align_down(u64::from(from) + IO_BYTES_MAX as u64).min(u64::from(limit));
            let bytes = (end - u64::from(from)) as usize;
            if self.wanted.len() >= WANTED_MAX || !self.make_room(id, bytes) {
                break;
            }
            self.bytes += bytes;
            let reader = self.readers.get_mut(&id).expect("still there");
            reader.extents.push_back(Extent {
                position: from,
                bytes,
                state: ExtentState::Wanted,
            });
            self.wanted.push_back((id, from));
            planned = true;
            from = end as u32;
        }
        planned
    }

    /// The read is over; the next one is expected at `next`, whose batch begins at `position`. `None`: nothing was read.
    pub(crate) fn end(&mut self, id: u64, next: Option<(Offset, u32)>) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        reader.is_busy = false;
        if let Some((next, position)) = next {
            (reader.next, reader.position) = (next, position);
        }
        self.places.insert((reader.slot, reader.next, id));
    }

    /// The next extent to read; ends with [`Self::landed`].
    pub(crate) fn next_fetch(&mut self) -> Option<Fetch> {
        while let Some((id, position)) = self.wanted.pop_front() {
            let Some(reader) = self.readers.get_mut(&id) else {
                continue;
            };
            let (slot, segment) = (reader.slot, reader.segment);
            let is_wanted =
                |e: &&mut Extent| e.position == position && matches!(e.state, ExtentState::Wanted);
            if let Some(extent) = reader.extents.iter_mut().find(is_wanted) {
                extent.state = ExtentState::Coming;
                return Some(Fetch {
                    reader: id,
                    slot,
                    segment,
                    position,
                    bytes: extent.bytes,
                });
            }
        }
        None
    }

    /// Whether [`Self::next_fetch`] may have one.
    pub(crate) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// The extent was read; `None` or fewer bytes than asked for: it could not be.
    pub(crate) fn landed(&mut self, fetch: &Fetch, bytes: Option<Bytes>) {
        let bytes = bytes.filter(|bytes| bytes.len() == fetch.bytes);
        // A reader that has gone on to another segment may want as many bytes at the same place there.
        let extents = self
            .readers
            .get_mut(&fetch.reader)
            .filter(|reader| reader.segment == fetch.segment)
            .map(|reader| &mut reader.extents);
        let place = extents.and_then(|extents| {
            let is_it = |e: &Extent| e.position == fetch.position && e.bytes == fetch.bytes && e.is_coming();
            let index = extents.iter().position(is_it)?;
            Some((extents, index))
        });
        match (place, bytes) {
            (Some((extents, index)), Some(bytes)) => extents[index].state = ExtentState::Here(bytes),
            (Some((extents, index)), None) => {
                let failed = extents.split_off(index);
                self.bytes -= fetch.bytes;
                self.release(failed.into_iter().skip(1).collect());
            }
            (None, _) => self.bytes -= fetch.bytes,
        }
    }

    /// The log is gone, or its bytes changed.
    pub(crate) fn forget(&mut self, slot: u32) {
        let of_log: Vec<u64> = self
            .readers
            .iter()
            .filter(|(_, r)| r.slot == slot)
            .map(|(id, _)| *id)
            .collect();
        for id in of_log {
            self.remove(id);
        }
    }

    /// Bytes read ahead or being read, of all readers.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A reader that does not go on from anywhere. It may be one of the log's readers that jumped: the one that has not
    /// read for longest gets half its window, and what was read beyond that is dropped.
    fn start(&mut self, slot: u32, segment: Offset, offset: Offset) -> u64 {
        let of_log = self
            .places
            .range((slot, Offset(i64::MIN), 0)..=(slot, Offset(i64::MAX), u64::MAX));
        let oldest = of_log
            .map(|(_, _, id)| *id)
            .min_by_key(|id| self.readers[id].turn);
        if let Some(id) = oldest {
            self.shrink(id);
        }
        while self.readers.len() >= READERS_MAX {
            let idle = self.turns.values().find(|id| !self.readers[id].is_busy).copied();
            let Some(id) = idle else { break };
            self.remove(id);
        }
        let id = self.reader_next;
        self.reader_next += 1;
        self.turns.insert(self.turn, id);
        self.readers.insert(
            id,
            Reader {
                slot,
                segment,
                next: offset,
                position: 0,
                is_busy: true,
                window: 0,
                turn: self.turn,
                extents: VecDeque::new(),
            },
        );
        id
    }

    fn shrink(&mut self, id: u64) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        reader.window /= 2;
        let keep = u64::from(reader.position) + reader.window as u64;
        let within = reader
            .extents
            .iter()
            .take_while(|e| u64::from(e.end()) <= keep)
            .count();
        let beyond = reader.extents.split_off(within);
        self.release(beyond);
    }

    /// Makes room for so many bytes by dropping what was read for others, the longest idle first.
    fn make_room(&mut self, id: u64, bytes: usize) -> bool {
        let older: Vec<u64> = if self.bytes + bytes > self.limits.bytes_max {
            self.turns
                .values()
                .copied()
                .filter(|other| *other != id)
                .collect()
        } else {
            Vec::new()
        };
        for other in older {
            if self.bytes + bytes <= self.limits.bytes_max {
                break;
            }
            if let Some(reader) = self.readers.get_mut(&other).filter(|reader| !reader.is_busy) {
                let extents = std::mem::take(&mut reader.extents);
                self.release(extents);
            }
        }
        self.bytes + bytes <= self.limits.bytes_max
    }

    /// Gives back what extents take; what is being read is given back when it has landed.
    fn release(&mut self, extents: VecDeque<Extent>) {
        let given: usize = extents.iter().filter(|e| !e.is_coming()).map(|e| e.bytes).sum();
        self.bytes -= given;
    }

    fn remove(&mut self, id: u64) {
        if let Some(reader) = self.readers.remove(&id) {
            self.places.remove(&(reader.slot, reader.next, id));
            self.turns.remove(&reader.turn);
            self.release(reader.extents);
        }
    }
}

/// How far to read ahead of a reader that comes once in `gap` reads. So many others read until it comes again: what does not
/// fit beside theirs would be dropped before it is used, and then it is better not read.
fn next_window(window: usize, gap: u64, limits: ReadAheadLimits) -> usize {
    let share = limits.bytes_max / usize::try_from(gap.max(1)).unwrap_or(usize::MAX);
    if share < WINDOW_BYTES_MIN {
        return 0;
    }
    (window * 2)
        .max(WINDOW_BYTES_MIN)
        .min(limits.reader_bytes_max)
        .min(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const LIMIT: u32 = 100 << 20;

    fn ahead(bytes_max: usize) -> ReadAhead {
        ReadAhead::new(ReadAheadLimits {
            bytes_max,
            reader_bytes_max: 4 * MIB,
        })
    }

    /// A read of `bytes` at `position` for `offset`; the next read is at `offset + 1`. Returns the reader.
    fn read(ahead: &mut ReadAhead, slot: u32, offset: i64, position: u32, bytes: u32) -> u64 {
        let (id, resumed) = ahead.begin(slot, Offset(0), Offset(offset));
        assert!(resumed.is_none_or(|at| at == position));
        ahead.plan(id, position + bytes, position + bytes, LIMIT);
        ahead.end(id, Some((Offset(offset + 1), position + bytes)));
        id
    }

    fn fetches(ahead: &mut ReadAhead) -> Vec<Fetch> {
        std::iter::from_fn(|| ahead.next_fetch()).collect()
    }

    fn land_all(ahead: &mut ReadAhead) {
        for fetch in fetches(ahead) {
            ahead.landed(&fetch, Some(Bytes::from(vec![0; fetch.bytes])));
        }
    }

    #[test]
    fn a_window_opens_with_the_second_sequential_read_and_doubles() {
        let mut ahead = ahead(64 * MIB);
        read(&mut ahead, 1, 0, 0, MIB as u32);
        assert_eq!(fetches(&mut ahead), [], "one read says nothing");
        let id = read(&mut ahead, 1, 1, MIB as u32, MIB as u32);
        let first = fetches(&mut ahead);
        let fetch = Fetch {
            reader: id,
            slot: 1,
            segment: Offset(0),
            position: 2 * MIB as u32,
            bytes: MIB,
        };
        assert_eq!(first, [fetch]);
        ahead.landed(&fetch, Some(Bytes::from(vec![0; MIB])));
        for (offset, bytes) in [(2, 2 * MIB), (3, 4 * MIB), (4, 4 * MIB)] {
            read(&mut ahead, 1, offset, offset as u32 * MIB as u32, MIB as u32);
            land_all(&mut ahead);
            assert_eq!(ahead.bytes(), bytes, "after offset {offset}");
        }
    }

    #[test]
    fn what_was_read_ahead_covers_the_next_read_across_extents() {
        let mut ahead = ahead(64 * MIB);
        for offset in 0..3 {
            read(&mut ahead, 1, offset, offset as u32 * 1000, 1000);
        }
        let (id, at) = ahead.begin(1, Offset(0), Offset(3));
        assert_eq!(at, Some(3000));
        let coming = fetches(&mut ahead);
        assert!(coming.len() >= 2);
        assert_eq!(ahead.cover(id, 3000, MIB, 61), Cover::Coming);
        ahead.landed(&coming[0], Some(Bytes::from(vec![1; coming[0].bytes])));
        let Cover::Here(pieces) = ahead.cover(id, 3000, MIB, 61) else {
            panic!("half of it is worth an answer");
        };
        assert_eq!(pieces.len(), 1);
        ahead.landed(&coming[1], Some(Bytes::from(vec![2; coming[1].bytes])));
        let Cover::Here(pieces) = ahead.cover(id, 3000, MIB, 61) else {
            panic!("all is there");
        };
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), MIB);
        assert_eq!(pieces.len(), 2);
        assert_eq!(ahead.cover(id, 50 << 20, MIB, 61), Cover::Absent);
    }

    #[test]
    fn the_end_of_what_a_sequential_reader_read_itself_is_kept() {
        let mut ahead = ahead(64 * MIB);
        read(&mut ahead, 1, 0, 0, 1000);
        let (id, _) = ahead.begin(1, Offset(0), Offset(1));
        let own = ahead.read_itself(id, 1000, 5000).expect("sequential");
        assert!(ahead.plan(id, 1000, 6000, LIMIT));
        ahead.landed(&own, Some(Bytes::from(vec![7; 5000])));
        ahead.plan(id, 5500, 5500, LIMIT); // the last batch is only partly in it
        ahead.end(id, Some((Offset(2), 5500)));
        let (id, at) = ahead.begin(1, Offset(0), Offset(2));
        assert_eq!(
            (at, ahead.cover(id, 5500, 300, 61)),
            (Some(5500), Cover::Here(vec![Bytes::from(vec![7; 300])]))
        );
        let jumped = ahead.begin(1, Offset(0), Offset(900)).0;
        assert_eq!(ahead.read_itself(jumped, 90_000, 5000), None);
    }

    #[test]
    fn what_lands_late_is_not_taken_for_bytes_of_the_next_segment() {
        let mut ahead = ahead(64 * MIB);
        read(&mut ahead, 1, 0, 0, 1000);
        let (id, _) = ahead.begin(1, Offset(0), Offset(1));
        let late = ahead.read_itself(id, 1000, 5000).expect("sequential");
        ahead.end(id, Some((Offset(2), 6000)));
        let (same, at) = ahead.begin(1, Offset(2), Offset(2));
        assert_eq!((same, at), (id, None));
        let own = ahead.read_itself(id, 1000, 5000).expect("sequential");
        ahead.landed(&late, Some(Bytes::from(vec![1; 5000])));
        assert_ne!(
            ahead.cover(id, 1000, 100, 61),
            Cover::Here(vec![Bytes::from(vec![1; 100])])
        );
        ahead.landed(&own, Some(Bytes::from(vec![2; 5000])));
        assert_eq!(
            ahead.cover(id, 1000, 100, 61),
            Cover::Here(vec![Bytes::from(vec![2; 100])])
        );
    }

    #[test]
    fn nobody_waits_for_what_nobody_reads() {
        let mut ahead = ahead(64 * MIB);
        read(&mut ahead, 1, 0, 0, 1000);
        read(&mut ahead, 1, 1, 1000, 1000);
        let (id, _) = ahead.begin(1, Offset(0), Offset(2));
        assert!(ahead.has_wanted());
        assert_eq!(ahead.cover(id, 2000, 1000, 61), Cover::Absent);
    }

    #[test]
    fn a_jump_shrinks_what_was_read_for_the_old_place_until_nothing_is_left() {
        let mut ahead = ahead(64 * MIB);
        for offset in 0..4 {
            read(&mut ahead, 1, offset, offset as u32 * MIB as u32, MIB as u32);
            land_all(&mut ahead);
        }
        assert_eq!(ahead.bytes(), 4 * MIB);
        for (jump, left) in [(1000, 2 * MIB), (2000, MIB), (3000, 0)] {
            // Each jump is a reader of its own; the oldest of the log is the one that is shrunk.
            let (id, resumed) = ahead.begin(1, Offset(0), Offset(jump));
            assert_eq!(resumed, None);
            assert!(
                !ahead.plan(id, 0, 1000, LIMIT),
                "nothing is read ahead after a jump"
            );
            ahead.end(id, None);
            assert_eq!(ahead.bytes(), left);
        }
    }

    #[test]
    fn all_readers_together_stay_within_the_bound_and_the_longest_idle_gives() {
        let mut ahead = ahead(6 * MIB);
        for slot in 0..4 {
            for offset in 0..4 {
                read(&mut ahead, slot, offset, offset as u32 * MIB as u32, MIB as u32);
                assert!(ahead.bytes() <= 6 * MIB);
                land_all(&mut ahead);
            }
        }
        let (id, at) = ahead.begin(3, Offset(0), Offset(4));
        assert!(matches!(
            ahead.cover(id, at.expect("sequential"), MIB, 61),
            Cover::Here(_)
        ));
        let (id, at) = ahead.begin(0, Offset(0), Offset(4));
        assert_eq!(ahead.cover(id, at.expect("remembered"), MIB, 61), Cover::Absent);
    }

    #[test]
    fn many_readers_in_turn_share_the_bound_and_too_many_get_nothing() {
        for (readers, windows) in [(2, 3 * MIB), (6, MIB), (7, 0)] {
            let mut ahead = ahead(6 * MIB);
            for offset in 0..6 {
                for slot in 0..readers {
                    read(&mut ahead, slot, offset, offset as u32 * MIB as u32, MIB as u32);
                    land_all(&mut ahead);
                }
            }
            assert!(
                ahead.readers.values().all(|reader| reader.window == windows),
                "{readers} readers"
            );
        }
    }

    #[test]
    fn bytes_are_given_back_when_the_log_goes_also_those_on_their_way() {
        let mut ahead = ahead(64 * MIB);
        for offset in 0..3 {
            read(&mut ahead, 1, offset, offset as u32 * 1000, 1000);
        }
        let coming = fetches(&mut ahead);
        ahead.forget(1);
        assert!(ahead.bytes() > 0, "still being read into memory");
        for fetch in coming {
            ahead.landed(&fetch, None);
        }
        assert_eq!(ahead.bytes(), 0);
        assert!(ahead.readers.is_empty() && ahead.places.is_empty() && ahead.turns.is_empty());
    }

    #[test]
    fn a_failed_extent_takes_those_behind_it_along() {
        let mut ahead = ahead(64 * MIB);
        for offset in 0..4 {
            read(&mut ahead, 1, offset, offset as u32 * 1000, 1000);
        }
        let coming = fetches(&mut ahead);
        assert!(coming.len() > 2);
        for fetch in &coming[1..] {
            ahead.landed(fetch, Some(Bytes::from(vec![0; fetch.bytes])));
        }
        ahead.landed(&coming[0], None);
        assert_eq!(ahead.bytes(), 0);
    }

    #[test]
    fn the_next_segment_is_read_by_the_same_reader_from_its_beginning() {
        let mut ahead = ahead(64 * MIB);
        for offset in 0..3 {
            read(&mut ahead, 1, offset, offset as u32 * 1000, 1000);
        }
        land_all(&mut ahead);
        let (id, at) = ahead.begin(1, Offset(3), Offset(3));
        assert_eq!((at, ahead.bytes()), (None, 0));
        assert!(ahead.plan(id, 1000, 1000, LIMIT), "and goes on reading ahead");
    }

    #[test]
    fn a_read_of_the_next_segment_that_finds_nothing_forgets_the_place_in_the_one_before() {
        let mut ahead = ahead(64 * MIB);
        read(&mut ahead, 1, 0, 0, 1000);
        let (id, at) = ahead.begin(1, Offset(1), Offset(1));
        assert_eq!(at, None);
        ahead.end(id, None);
        assert_eq!(ahead.begin(1, Offset(1), Offset(1)), (id, Some(0)));
    }

    #[test]
    fn readers_are_forgotten_beyond_their_number() {
        let mut ahead = ahead(64 * MIB);
        for slot in 0..2000 {
            read(&mut ahead, slot, 0, 0, 1000);
        }
        assert_eq!(ahead.readers.len(), READERS_MAX);
        assert_eq!(
            (ahead.places.len(), ahead.turns.len()),
            (READERS_MAX, READERS_MAX)
        );
    }
}
