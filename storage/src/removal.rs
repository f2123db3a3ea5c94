//! Files and directories on their way out. A segment's files are renamed to `….deleted` and a log's directory to `…-delete`
//! when the log lets go of them; they are removed when `file.delete.delay.ms` is over, so that whoever has them open can go
//! on, and an operator can still save them (RT-8). What an earlier run left is removed at once.
//!
//! The store has no clock: what is new gets its time from the next [`Store::removals_due`], and [`Store::remove_due`] removes
//! what that has made due (as does [`Store::housekeeping`], but only when it has nothing to write).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::disk::{Disk, DiskError};
use crate::error::StorageError;
use crate::layout::{DirMark, DirName, FileMark, SegmentFile};
use crate::log::{Log, segment_path};
use crate::notify::Notify;
use crate::retention::RetentionReason;
use crate::store::Store;
use crate::types::Offset;

/// What may wait for its time; when there is more, the oldest goes before it. About 150 bytes each.
const WAITING_MAX: usize = 64 << 10;

/// What goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doomed {
    /// A directory with all it holds.
    Directory(PathBuf),
    /// The renamed files of a segment.
    Segment {
        /// The log's directory.
        dir: PathBuf,
        /// The segment's base offset.
        base: Offset,
    },
    /// One file.
    File(PathBuf),
}

/// What was removed since the start, and what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovalTotals {
    /// Segments that went because they lay below the log start.
    pub segments_by_log_start: u64,
    /// Segments that went by `retention.bytes`.
    pub segments_by_size: u64,
    /// Segments that went by `retention.ms`.
    pub segments_by_age: u64,
    /// Bytes of those segments.
    pub segment_bytes: u64,
    /// Bytes of segments and logs that are gone for clients and not removed from the disk yet, of this run.
    pub waiting_bytes: u64,
}

impl RemovalTotals {
    /// The sum with another store's.
    pub(crate) const fn merged(self, other: Self) -> Self {
        Self {
            segments_by_log_start: self.segments_by_log_start + other.segments_by_log_start,
            segments_by_size: self.segments_by_size + other.segments_by_size,
            segments_by_age: self.segments_by_age + other.segments_by_age,
            segment_bytes: self.segment_bytes + other.segment_bytes,
            waiting_bytes: self.waiting_bytes + other.waiting_bytes,
        }
    }

    /// Segments removed for whatever reason.
    #[must_use]
    pub const fn segments(&self) -> u64 {
        self.segments_by_log_start + self.segments_by_size + self.segments_by_age
    }
}

/// What a store is about to remove. Without I/O.
#[derive(Debug, Default)]
struct Queue {
    /// Without a time yet, with their delay.
    fresh: VecDeque<(u64, Waiting)>,
    /// By the time at which they go, and the order they came in.
    dated: BTreeMap<(u64, u64), Waiting>,
    /// To be removed now.
    due: VecDeque<Waiting>,
    number: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Waiting {
    what: Doomed,
    bytes: u64,
}

impl Queue {
    fn add(&mut self, what: Doomed, bytes: u64, delay_ms: u64) {
        self.bytes += bytes;
        let waiting = Waiting { what, bytes };
        if delay_ms == 0 {
            self.due.push_back(waiting);
            return;
        }
        self.fresh.push_back((delay_ms, waiting));
        while self.fresh.len() + self.dated.len() > WAITING_MAX {
            let oldest = match self.dated.pop_first() {
                Some((_, waiting)) => Some(waiting),
                None => self.fresh.pop_front().map(|(_, waiting)| waiting),
            };
            self.due.extend(oldest);
        }
    }

    /// Gives what is new its time, makes due what has reached it, and returns when the next does.
    fn date(&mut self, now_ms: u64) -> Option<u64> {
        for (delay_ms, waiting) in self.fresh.drain(..) {
            self.number += 1;
            let at = now_ms.saturating_add(delay_ms);
            self.dated.insert((at, self.number), waiting);
        }
        while let Some(first) = self.dated.first_entry() {
            if first.key().0 > now_ms {
                return Some(first.key().0);
            }
            self.due.push_back(first.remove());
        }
        None
    }

    /// Nothing waits any longer.
    fn hurry(&mut self) {
        self.due.extend(std::mem::take(&mut self.dated).into_values());
        self.due.extend(self.fresh.drain(..).map(|(_, waiting)| waiting));
    }

    fn next(&mut self) -> Option<Waiting> {
        let next = self.due.pop_front()?;
        self.bytes -= next.bytes;
        Some(next)
    }

    fn put_back(&mut self, waiting: Waiting) {
        self.bytes += waiting.bytes;
        self.due.push_front(waiting);
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    queue: RefCell<Queue>,
    /// Something new waits for its time.
    moved: Notify,
    totals: Cell<RemovalTotals>,
}

impl Removals {
    /// Those of a store that first removes these directories.
    pub(crate) fn of_leftovers(directories: impl Iterator<Item = PathBuf>) -> Self {
        let removals = Self::default();
        for directory in directories {
            removals
                .queue
                .borrow_mut()
                .add(Doomed::Directory(directory), 0, 0);
        }
        removals
    }

    /// Whether something is to be removed now.
    pub(crate) fn is_due(&self) -> bool {
        !self.queue.borrow().due.is_empty()
    }

    /// Whether something has no time yet, or its time has come.
    fn has_news(&self) -> bool {
        let queue = self.queue.borrow();
        !queue.fresh.is_empty() || !queue.due.is_empty()
    }

    pub(crate) fn totals(&self) -> RemovalTotals {
        RemovalTotals {
            waiting_bytes: self.queue.borrow().bytes,
            ..self.totals.get()
        }
    }

    fn count(&self, why: RetentionReason, bytes: u64) {
        let mut totals = self.totals.get();
        *match why {
            RetentionReason::LogStart => &mut totals.segments_by_log_start,
            RetentionReason::Size => &mut totals.segments_by_size,
            RetentionReason::Age => &mut totals.segments_by_age,
        } += 1;
        totals.segment_bytes += bytes;
        self.totals.set(totals);
    }
}

/// Directories of logs that were deleted in an earlier run.
pub(crate) async fn deleted_directories<D: Disk>(disk: &D, dir: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let is_deleted = |name: &str| {
        let name = DirName::parse(name);
        matches!(
            name,
            DirName::Replica {
                mark: DirMark::Delete,
                ..
            }
        )
    };
    let entries = disk.list(dir).await?;
    let deleted = entries
        .iter()
        .filter(|entry| entry.is_dir && is_deleted(&entry.name));
    Ok(deleted.map(|entry| dir.join(&entry.name)).collect())
}

impl<D: Disk> Store<D> {
    /// Makes due what is to be removed at `now_ms`, milliseconds of a clock that only goes forward. Returns when the next is.
    /// To be called in a loop by one task, which then waits for that time or for [`Self::removals_moved`].
    pub fn removals_due(&self, now_ms: u64) -> Option<u64> {
        let next = self.removals.queue.borrow_mut().date(now_ms);
        if self.removals.is_due() {
            self.behind.notify();
        }
        next
    }

    /// Removes all that is due.
    ///
    /// # Errors
    /// [`StorageError`] when the store is or goes offline.
    pub async fn remove_due(&self) -> Result<(), StorageError> {
        while self.removals.is_due() {
            self.check_online()?;
            self.purge_one().await?;
        }
        Ok(())
    }

    /// Ends when [`Self::removals_due`] is to be asked again although its time has not come.
    pub async fn removals_moved(&self) {
        let news = || self.removals.has_news().then_some(());
        self.removals.moved.until(news).await;
    }

    /// There is too little space: nothing waits for its time any longer.
    pub(crate) fn hurry_removals(&self) {
        self.removals.queue.borrow_mut().hurry();
        self.behind.notify();
        self.removals.moved.notify();
    }

    /// To be removed when `delay_ms` are over, or at once where there is too little space.
    pub(crate) fn doom(&self, what: Doomed, bytes: u64, delay_ms: u64) {
        let delay_ms = if self.space.is_short() { 0 } else { delay_ms };
        self.removals.queue.borrow_mut().add(what, bytes, delay_ms);
        self.behind.notify();
        self.removals.moved.notify();
    }

    /// Removes what is due and first in turn. Returns whether there was something.
    pub(crate) async fn purge_one(&self) -> Result<bool, StorageError> {
        let next = self.removals.queue.borrow_mut().next();
        let Some(waiting) = next else { return Ok(false) };
        match self.remove(&waiting.what).await {
            Err(error) if error.is_not_found() => Ok(true),
            Err(error) => {
                if error.is_refused_for_space() {
                    self.removals.queue.borrow_mut().put_back(waiting);
                }
                Err(self.fail(error))
            }
            Ok(()) => Ok(true),
        }
    }

    async fn remove(&self, what: &Doomed) -> Result<(), DiskError> {
        match what {
            Doomed::Directory(dir) => self.disk.remove_dir_all(dir).await,
            Doomed::File(path) => self.disk.remove_file(path).await,
            Doomed::Segment { dir, base } => {
                // The batches are what takes the space.
                for kind in SegmentFile::ALL {
                    let path = dir.join(kind.marked_name(*base, FileMark::Deleted));
                    match self.disk.remove_file(&path).await {
                        // Not every segment has every file, and the log's directory may be on its way out itself.
                        Err(error) if !error.is_not_found() => return Err(error),
                        _ => {}
                    }
                }
                Ok(())
            }
        }
    }

    /// Takes segments that lie wholly below `start`, which is durable as the log's, off the log, oldest first, and renames
    /// their files. `why` says of a segment's end why it goes.
    pub(crate) async fn remove_segments_below(
        &self,
        log: &Rc<Log<D>>,
        start: Offset,
        why: impl Fn(Offset) -> RetentionReason,
    ) -> Result<(), StorageError> {
        loop {
            self.flush_lock(log).await;
            let removed = self.remove_first_below(log, start, &why).await;
            self.flush_unlock(log);
            if !removed? {
                return Ok(());
            }
        }
    }

    /// Returns whether there was one to remove.
    async fn remove_first_below(
        &self,
        log: &Rc<Log<D>>,
        start: Offset,
        why: impl Fn(Offset) -> RetentionReason,
    ) -> Result<bool, StorageError> {
        self.check_online()?;
        if self.log(log.log_ref).is_none() {
            return Ok(false);
        }
        let (base, end, bytes, delay_ms) = {
            let mut state = log.state.borrow_mut();
            let next = state.segments.get(1).map(|segment| segment.base);
            let (Some(first), Some(end)) = (state.segments.front(), next) else {
                return Ok(false);
            };
            if end > start || !first.finished {
                return Ok(false);
            }
            let facts = (first.base, end, u64::from(first.size));
            let ahead_bytes = first.ahead_bytes;
            state.segments.pop_front();
            self.headroom.give_back(ahead_bytes);
            (facts.0, facts.1, facts.2, state.config.file_delete_delay_ms)
        };
        for kind in in_removal_order() {
            let from = segment_path(&log.dir, base, kind);
            let to = log.dir.join(kind.marked_name(base, FileMark::Deleted));
            let renamed = match self.disk.rename(&from, &to).await {
                // The directory cannot take the longer name; what is to go goes all the sooner.
                Err(error) if error.is_refused_for_space() => self.disk.remove_file(&from).await,
                renamed => renamed,
            };
            match renamed {
                Err(error) if !error.is_not_found() => return Err(self.fail(error)),
                _ => {}
            }
        }
        self.removals.count(why(end), bytes);
        let dir = log.dir.clone();
        self.doom(Doomed::Segment { dir, base }, bytes, delay_ms);
        Ok(true)
    }
}

/// The files of a segment, the batches last: without them the others are debris that recovery clears away.
fn in_removal_order() -> impl Iterator<Item = SegmentFile> {
    let others = SegmentFile::ALL
        .into_iter()
        .filter(|kind| *kind != SegmentFile::Log);
    others.chain([SegmentFile::Log])
}

/// Removes the files of a segment at once, the batches last. Who reads it has it open.
///
/// # Errors
/// The disk's; that a file is not there is none.
pub(crate) async fn remove_segment<D: Disk>(disk: &D, dir: &Path, base: Offset) -> Result<(), DiskError> {
    for kind in in_removal_order() {
        match disk.remove_file(&segment_path(dir, base, kind)).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: usize) -> Doomed {
        Doomed::File(PathBuf::from(number.to_string()))
    }

    fn all(queue: &mut Queue) -> Vec<Doomed> {
        std::iter::from_fn(|| queue.next())
            .map(|waiting| waiting.what)
            .collect()
    }

    #[test]
    fn rt_8_what_is_removed_waits_for_its_own_delay_from_when_it_was_seen() {
        let mut queue = Queue::default();
        queue.add(file(0), 10, 60);
        queue.add(file(1), 20, 30);
        queue.add(file(2), 40, 0);
        assert_eq!(all(&mut queue), [file(2)], "without a delay it goes at once");
        assert_eq!(queue.bytes, 30);
        assert_eq!(queue.date(1000), Some(1030));
        queue.add(file(3), 0, 5);
        assert_eq!(queue.date(1029), Some(1030));
        assert!(queue.due.is_empty());
        assert_eq!(queue.date(1033), Some(1034));
        assert_eq!(all(&mut queue), [file(1)]);
        assert_eq!(queue.date(2000), None);
        assert_eq!(all(&mut queue), [file(3), file(0)]);
        assert_eq!(queue.bytes, 0);
        // A delay without an end is one, and no overflow.
        queue.add(file(4), 0, u64::MAX);
        assert_eq!(queue.date(5), Some(u64::MAX));
    }

    #[test]
    fn a_full_disk_hurries_what_waits() {
        let mut queue = Queue::default();
        queue.add(file(0), 10, 60);
        queue.date(0);
        queue.add(file(1), 20, 30);
        queue.hurry();
        let first = queue.next().expect("it is due");
        queue.put_back(first);
        assert_eq!(queue.bytes, 30);
        assert_eq!(all(&mut queue), [file(0), file(1)]);
        assert_eq!((queue.bytes, queue.date(100)), (0, None));
    }

    #[test]
    fn more_than_may_wait_pushes_the_oldest_out() {
        let mut queue = Queue::default();
        queue.add(file(0), 1, 100);
        queue.date(0);
        for number in 1..=WAITING_MAX + 1 {
            queue.add(file(number), 1, 50);
        }
        assert_eq!(all(&mut queue), [file(0), file(1)]);
        assert_eq!(queue.bytes, WAITING_MAX as u64);
    }
}
