//! The blocks of a new journal file are allocated, and no more: a sync after the first write to them also makes the file system
//! record that they are written now, in a journal of its own (ext4 and XFS keep such blocks apart as unwritten). That is most of
//! the time of a small commit's sync, and nearly all of its tail. So each new file is written once with zeroes when the journal
//! comes into use, beside the commits and ahead of them; of a recycled file what no commit came to. What zeroes are on their way to
//! is no commit's: one that comes there waits for the step under way, and the next steps keep further ahead.

use std::cell::Cell;
use std::rc::Rc;

use super::writer::{Journal, JournalFile};
use crate::commit::buffers::Chunks;
use crate::disk::{BLOCK_BYTES, Disk, DiskError, IO_BYTES_MAX, align_down, align_up};

/// A file is filled in so many steps, and the first begins one step behind the commits.
const STEPS: u64 = 32;

/// What of a journal file is still to be filled.
#[derive(Debug)]
pub(super) struct Fill {
    /// From here on nothing was filled.
    from: Cell<u64>,
    /// Up to here it is to be.
    end: Cell<u64>,
    /// Where the step under way begins.
    under_way: Cell<Option<u64>>,
}

/// A step: zeroes for `bytes` at `from`.
pub(crate) struct FillStep<D: Disk> {
    file: Rc<JournalFile<D>>,
    from: u64,
    bytes: u64,
}

impl Fill {
    /// Nothing of a file of `file_bytes` was written but its header.
    pub(super) const fn of_new_file(file_bytes: u64) -> Self {
        Self {
            from: Cell::new(BLOCK_BYTES as u64),
            end: Cell::new(align_down(file_bytes)),
            under_way: Cell::new(None),
        }
    }

    /// The next step at or behind `position`: where it begins, and its length.
    fn next(&self, position: u64, step: u64) -> Option<(u64, u64)> {
        let from = self.from.get().max(position);
        let left = self.end.get().checked_sub(from).filter(|left| *left > 0)?;
        Some((from, left.min(step)))
    }

    /// Commits have written all before `end`, and the file is full.
    pub(super) fn is_passed_up_to(&self, end: u64) {
        assert!(
            self.under_way.get().is_none(),
            "a file that is full is not filled"
        );
        self.from.set(self.from.get().max(end));
    }

    /// Whether writes up to `end` would meet the step under way.
    pub(super) fn is_met_by(&self, end: u64) -> bool {
        self.under_way.get().is_some_and(|from| end > from)
    }
}

impl<D: Disk> Journal<D> {
    /// The next step, if there is one: of the file in use, and of those in reserve when that is half full. Nothing before the first
    /// commit, since an idle shard need not write, and nothing while a full file waits to be recycled, since the disk has better to do.
    pub(crate) fn next_fill(&self) -> Option<FillStep<D>> {
        let state = self.state.borrow();
        let (current, position) = state.current.as_ref()?;
        if !state.full.is_empty() {
            return None;
        }
        let step = self.fill_step();
        let of = |file: &Rc<JournalFile<D>>, position| {
            let (from, bytes) = file.fill.next(position, step)?;
            let file = Rc::clone(file);
            Some(FillStep { file, from, bytes })
        };
        let lead = step.max(self.fill_lead.get());
        let in_reserve = || state.ready.iter().find_map(|file| of(file, 0));
        let is_half_full = *position > self.file_bytes() / 2;
        of(current, position + lead).or_else(|| is_half_full.then(in_reserve).flatten())
    }

    fn fill_step(&self) -> u64 {
        align_up(self.file_bytes() / STEPS).min(IO_BYTES_MAX as u64)
    }

    /// Whether the next commit, of up to `bytes`, may go where zeroes are on their way to.
    pub(crate) fn meets_fill(&self, bytes: u64) -> bool {
        let state = self.state.borrow();
        // It may be shorter and go to the file in use even if so many bytes do not.
        let (in_current, is_last) = match &state.current {
            Some((file, position)) => (
                file.fill.is_met_by(position + bytes),
                !self.fits(*position, bytes),
            ),
            None => (false, true),
        };
        let next = state.ready.front().filter(|_| is_last);
        in_current || next.is_some_and(|file| file.fill.is_met_by(BLOCK_BYTES as u64 + bytes))
    }

    /// A commit of up to `bytes` has come as far as the zeroes: from now on they keep that much ahead.
    pub(crate) fn fill_behind(&self, bytes: u64) {
        let lead = align_up(bytes) + self.fill_step();
        self.fill_lead.set(self.fill_lead.get().max(lead));
    }

    /// Nothing more is filled.
    pub(crate) fn stop_fill(&self) {
        let state = self.state.borrow();
        let current = state.current.iter().map(|(file, _)| file);
        for file in current.chain(&state.ready).chain(&state.full) {
            file.fill.end.set(0);
        }
    }

    /// Whether a step is under way.
    pub(crate) fn is_filling(&self) -> bool {
        let state = self.state.borrow();
        let current = state.current.iter().map(|(file, _)| file);
        let mut all = current.chain(&state.ready).chain(&state.full);
        all.any(|file| file.fill.under_way.get().is_some())
    }
}

impl<D: Disk> FillStep<D> {
    /// Carries it out. It begins with the call, not when it is first polled.
    pub(crate) fn run(self, disk: &D) -> impl Future<Output = Result<(), DiskError>> {
        let zeroes = Chunks::new(
            disk,
            usize::try_from(self.bytes).expect("a step is at most one write"),
        );
        self.file.fill.from.set(self.from + self.bytes);
        self.file.fill.under_way.set(Some(self.from));
        async move {
            let written = zeroes.write(&self.file.file, self.from).await;
            self.file.fill.under_way.set(None);
            written
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    #[test]
    fn a_file_is_filled_once_from_behind_its_header_to_its_end() {
        let fill = Fill::of_new_file(10 * BLOCK);
        let mut filled = Vec::new();
        while let Some((from, bytes)) = fill.next(0, 4 * BLOCK) {
            fill.from.set(from + bytes);
            filled.push((from / BLOCK, bytes / BLOCK));
        }
        assert_eq!(filled, [(1, 4), (5, 4), (9, 1)]);
        fill.end.set(0);
        assert_eq!(fill.next(0, BLOCK), None, "nothing after it was stopped");
    }

    #[test]
    fn what_commits_have_passed_is_left_out() {
        let fill = Fill::of_new_file(10 * BLOCK);
        assert_eq!(fill.next(6 * BLOCK, 2 * BLOCK), Some((6 * BLOCK, 2 * BLOCK)));
        assert_eq!(fill.next(9 * BLOCK, 2 * BLOCK), Some((9 * BLOCK, BLOCK)));
        assert_eq!(fill.next(10 * BLOCK, 2 * BLOCK), None);
        assert_eq!(fill.next(12 * BLOCK, 2 * BLOCK), None);
        fill.is_passed_up_to(8 * BLOCK);
        assert_eq!(
            fill.next(0, 9 * BLOCK),
            Some((8 * BLOCK, 2 * BLOCK)),
            "the tail of a recycled file"
        );
    }

    #[test]
    fn a_commit_meets_the_step_under_way_when_it_reaches_its_first_block() {
        let fill = Fill::of_new_file(10 * BLOCK);
        assert!(!fill.is_met_by(10 * BLOCK), "no step is under way");
        fill.under_way.set(Some(4 * BLOCK));
        assert!(!fill.is_met_by(4 * BLOCK));
        assert!(fill.is_met_by(4 * BLOCK + 1));
    }
}
