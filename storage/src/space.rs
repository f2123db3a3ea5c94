//! The free space of a log directory as one shard's store sees it, and what happens when there is too little. Two lines are
//! crossed. Below the reserve, batches of clients are refused ([`AppendError::Full`]) and everything else goes on, until a quarter of
//! the reserve is left; then only the metadata log is written to, for deletions to get through. Both lines lie above what the next
//! stop and start need ([`Store::needed_bytes`]), and what counts is what all of the directory's stores have left
//! ([`shared`]): what was accepted and what was allocated, also ahead, is gone. Where the disk has nothing left
//! ([`StorageError::NoSpace`]) the store *stalls*: what is durable in the journal stays there and in memory, background work that
//! needs space waits, deletions go on. All of it ends by itself, at a look that finds space again.

pub mod shared;
mod tails;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use shared::{DirSpace, Held, signed};

use crate::disk::{Disk, DiskError, Space};
use crate::error::{AppendError, StorageError};
use crate::log::{Log, LogState};
use crate::producer_state::AppendOrigin;
use crate::store::Store;

/// The largest reserve that is taken when none is configured, bytes.
pub const RESERVE_BYTES_MAX: u64 = 1 << 30;

/// The reserve when none is configured: this part of the file system, if that is less.
const RESERVE_SHARE: u64 = 100;

/// Writes go on when this part of the reserve is free beyond it, so that they do not stop again at once.
const RESUME_SHARE: u64 = 8;

/// This part of the reserve is for the metadata log and for bringing what is in the journal to its place: with the rest gone,
/// coordinators are refused too, and say so to their clients.
const LAST_SHARE: u64 = 4;

/// What compaction leaves to others, if its part of the reserve is smaller, bytes.
const CLEANING_LEAVES_BYTES: u64 = 16 << 20;

/// Bytes of small files that a batch brings with it: one part of so many of its own (an index entry of 20 bytes for 4 KiB).
const INDEX_SHARE: u64 = 128;

/// A store accepts so small a part of what is left above the reserve, divided among the shards, before it looks at that again.
const LEASE_SHARE: u64 = 4;

/// What a store needs for a stop and a start besides what its logs do, bytes: manifest, marks, directories, the file system's own.
pub(crate) const STORE_NEED_BYTES: u64 = 256 << 10;

/// What a log needs, besides what depends on its state, bytes: its last blocks in the segment, two indexes and a snapshot.
pub(crate) const LOG_NEED_BYTES: u64 = 16 << 10;

/// An entry of a producer in a snapshot, and a transaction's in its index, at most, bytes.
const ENTRY_BYTES_MAX: u64 = 160;

/// How often producers and epochs may have to be written: as a snapshot, in the shard's checkpoint, in the merged one.
const STATE_COPIES: u64 = 3;

/// A log's record in a checkpoint without its producers and epochs, with a name of the longest, bytes.
const RECORD_BYTES_MAX: u64 = 512;

/// How far the rate of filling looks back, milliseconds.
const FILL_WINDOW_MS: u64 = 60_000;

/// The reserve of a file system of `total_bytes` when none is configured, bytes.
#[must_use]
pub fn default_reserve(total_bytes: u64) -> u64 {
    (total_bytes / RESERVE_SHARE).min(RESERVE_BYTES_MAX)
}

/// What a store knows about space.
#[derive(Debug)]
pub(crate) struct SpaceWatch {
    /// What all stores of the directory know.
    shared: Arc<DirSpace>,
    /// Of what is left, what this store has told the others that it takes.
    claimed: Cell<u64>,
    /// Of that, what it may still accept.
    lease: Cell<u64>,
    /// What is owed was counted since the last look: that takes a walk over all logs.
    is_recounted: Cell<bool>,
    /// What the others were told that a stop and a start need for it.
    needed: Cell<u64>,
    /// The largest batch that was refused since there was too little.
    refused_bytes: Cell<u64>,
    /// What is allocated ahead is wanted back.
    wants_tails: Cell<bool>,
    /// It was said that batches of clients are refused.
    is_said: Cell<bool>,
    seen: Cell<Option<Space>>,
    reserve_bytes: Cell<u64>,
    /// Below the reserve.
    is_low: Cell<bool>,
    /// Something was refused for lack of space, and nothing that needs space has gone through since: what, and why.
    stalled: RefCell<Option<Rc<DiskError>>>,
    /// It may be tried again: somebody has looked since.
    may_retry: Cell<bool>,
    refused: Cell<u64>,
    fill: Cell<FillRate>,
}

/// The space of a log directory, for metrics and health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Size of the file system, bytes; 0 before the first look.
    pub total_bytes: u64,
    /// What is free, less what waits to be written, of all shards, bytes.
    pub usable_bytes: u64,
    /// Below this much and `needed_bytes` only internal topics are written to, bytes.
    pub reserve_bytes: u64,
    /// What is kept for the next stop and start, bytes.
    pub needed_bytes: u64,
    /// Batches of clients are refused: the reserve is reached, or the disk had no space for something.
    pub refuses_writes: bool,
    /// The disk had no space for something that waits for it now.
    pub is_stalled: bool,
    /// Batches refused so far.
    pub refused: u64,
    /// How fast the space goes, bytes a second, by an average of about a minute; 0 when it does not.
    pub fill_bytes_per_second: u64,
}

impl SpaceStats {
    /// Seconds until the reserve is reached if it goes on like this; `None` when it does not fill.
    #[must_use]
    pub fn seconds_to_full(&self) -> Option<u64> {
        let line = self.reserve_bytes + self.needed_bytes;
        let left = self.usable_bytes.saturating_sub(line);
        left.checked_div(self.fill_bytes_per_second)
    }
}

/// The net rate at which space goes: an average whose weight halves in about a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct FillRate {
    last: Option<(u64, u64)>,
    bytes_per_second: f64,
}

impl FillRate {
    /// So much was usable at `now_ms`.
    fn observe(&mut self, now_ms: u64, usable: u64) {
        let Some((before_ms, before)) = self.last.replace((now_ms, usable)) else {
            return;
        };
        let passed_ms = now_ms.saturating_sub(before_ms);
        if passed_ms == 0 {
            return;
        }
        let rate = (before as f64 - usable as f64) * 1000.0 / passed_ms as f64;
        let weight = passed_ms as f64 / (FILL_WINDOW_MS + passed_ms) as f64;
        self.bytes_per_second += (rate - self.bytes_per_second) * weight;
    }

    fn whole(self) -> u64 {
        // A negative rate is none; the cast ends at the type's bounds.
        self.bytes_per_second.round() as u64
    }
}

impl SpaceWatch {
    pub(crate) fn new(shared: Arc<DirSpace>) -> Self {
        Self {
            shared,
            claimed: Cell::new(0),
            lease: Cell::new(0),
            is_recounted: Cell::new(false),
            needed: Cell::new(0),
            refused_bytes: Cell::new(0),
            wants_tails: Cell::new(false),
            is_said: Cell::new(false),
            seen: Cell::new(None),
            reserve_bytes: Cell::new(0),
            is_low: Cell::new(false),
            stalled: RefCell::new(None),
            may_retry: Cell::new(false),
            refused: Cell::new(0),
            fill: Cell::new(FillRate::default()),
        }
    }

    /// What must be left for batches of clients.
    fn line(&self) -> i64 {
        self.line_of(1)
    }

    /// What must be left when one part of `share` of the reserve may not be touched. Without a reserve nothing is kept back.
    fn line_of(&self, share: u64) -> i64 {
        match self.reserve_bytes.get() {
            0 => 0,
            reserve => signed(reserve / share) + self.shared.needed(),
        }
    }

    /// What must be left by compaction.
    fn cleaning_line(&self) -> i64 {
        self.line_of(LAST_SHARE).max(signed(CLEANING_LEAVES_BYTES))
    }

    /// The others are told what this store has accepted and not written.
    fn claim(&self, bytes: u64) {
        self.shared.claim(self.claimed.replace(bytes), bytes);
    }

    /// Whether background work that needs space may be tried.
    pub(crate) fn may_extend(&self) -> bool {
        !self.is_stalled() || self.may_retry.get()
    }

    /// The error of the last try, unless it may be tried again.
    pub(crate) fn check(&self) -> Result<(), StorageError> {
        if self.may_retry.get() {
            return Ok(());
        }
        self.stalled()
    }

    /// The error of the last try, if something waits for space since.
    pub(crate) fn stalled(&self) -> Result<(), StorageError> {
        match &*self.stalled.borrow() {
            Some(error) => Err(StorageError::NoSpace(Rc::clone(error))),
            None => Ok(()),
        }
    }

    /// Clients are refused, or something waits for space: what is to be removed does not wait for its time.
    pub(crate) fn is_short(&self) -> bool {
        self.is_low.get() || self.is_stalled()
    }

    /// Something waits for space.
    pub(crate) fn is_stalled(&self) -> bool {
        self.stalled.borrow().is_some()
    }

    /// What is allocated ahead is wanted back.
    pub(crate) fn wants_tails(&self) -> bool {
        self.wants_tails.get()
    }
}

impl Drop for SpaceWatch {
    fn drop(&mut self) {
        self.claim(0);
        self.shared.need(self.needed.get(), 0);
    }
}

impl<D: Disk> Store<D> {
    /// Looks at the free space; to be called about once a second. `now_ms` is of a clock that only goes forward.
    pub async fn watch_space(&self, now_ms: u64) {
        self.tell_need();
        self.look_at_space().await;
        let mut fill = self.space.fill.get();
        fill.observe(now_ms, self.usable_bytes());
        self.space.fill.set(fill);
    }

    /// Looks how much space the file system has left, for what is allocated ahead and for the reserve.
    pub(crate) async fn look_at_space(&self) {
        let mark = self.space.shared.begin_look();
        match self.disk.space(&self.dir).await {
            Ok(space) => {
                self.space.shared.saw(mark, space.available_bytes);
                self.saw_space(space);
            }
            Err(error) => {
                tracing::warn!(%error, "nothing is allocated ahead");
                self.headroom.saw(0, 0);
                self.space.shared.lost_sight();
                self.space.seen.set(None);
            }
        }
    }

    fn saw_space(&self, space: Space) {
        let configured = self.options.reserve_bytes;
        let reserve = configured.unwrap_or_else(|| default_reserve(space.total_bytes));
        self.space.seen.set(Some(space));
        self.space.reserve_bytes.set(reserve);
        self.space.lease.set(0);
        self.space.claim(self.owed_bytes());
        self.space.is_recounted.set(false);
        let line = self.space.line();
        self.headroom.saw(space.available_bytes, line.unsigned_abs());
        let usable = signed(self.usable_bytes());
        // What was refused must fit, or it would be refused again at once.
        let more = (reserve / RESUME_SHARE).max(2 * self.space.refused_bytes.get());
        if usable < line {
            self.went_low();
        } else if usable >= line + signed(more) && self.space.is_low.replace(false) {
            self.space.refused_bytes.set(0);
            if self.space.is_said.replace(false) {
                self.say_writes(true);
            }
        }
        // What logs had allocated ahead may have been enough to go on.
        if self.space.is_low.get() && !self.space.wants_tails() && !self.space.is_said.replace(true) {
            self.say_writes(false);
        }
        if self.space.is_stalled() {
            let nothing_waits = !self.wants_space();
            self.space.may_retry.set(true);
            if nothing_waits && usable >= line {
                self.space_served();
            }
            self.behind.notify();
            self.moved.notify();
        }
    }

    /// What can still be accepted by this store or another: what is free, less what is accepted already.
    fn usable_bytes(&self) -> u64 {
        let left = self.space.shared.left().unwrap_or(0);
        left.max(0).unsigned_abs()
    }

    /// What is accepted and has no blocks, with the small files that it brings. Looks at each log.
    fn owed_bytes(&self) -> u64 {
        #[cfg(test)]
        tests::WALKS.with(|walks| walks.set(walks.get() + 1));
        let logs = self.logs.borrow();
        let covered = logs.iter().map(|log| log.state.borrow().covered_bytes()).sum();
        let unwritten = self.unwritten_bytes.get() as u64;
        with_indexes(unwritten.saturating_sub(covered))
    }

    /// Blocks are about to be given back: what they were for is claimed again, before somebody sees them as free.
    fn claim_all(&self) {
        self.space.lease.set(0);
        self.space.claim(with_indexes(self.unwritten_bytes.get() as u64));
    }

    /// Whether a batch of `bytes` for the log is refused for lack of space unless it is there already.
    pub(crate) fn refuses_new(&self, log: &Log<D>, origin: AppendOrigin, bytes: usize) -> bool {
        if log.is_vital {
            return false;
        }
        if log.is_internal || origin != AppendOrigin::Client {
            return !self.takes(bytes, LAST_SHARE, || false);
        }
        if self.space.is_short() {
            return true;
        }
        let takes = self.takes(bytes, 1, || log.state.borrow().has_blocks_for(bytes));
        if !takes {
            let largest = self.space.refused_bytes.get().max(bytes as u64);
            self.space.refused_bytes.set(largest);
            self.went_low();
        }
        !takes
    }

    /// Whether what is left takes so many bytes more without touching one part of `share` of the reserve. Then they are this
    /// store's: it is about to accept them. So it is where `has_blocks` says that there are blocks for them already; those may be
    /// given back before they are written, so that they are claimed all the same, until the next look.
    fn takes(&self, bytes: usize, share: u64, has_blocks: impl FnOnce() -> bool) -> bool {
        let space = &self.space;
        let bytes = with_indexes(bytes as u64);
        let lease = space.lease.get();
        if bytes <= lease {
            space.lease.set(lease - bytes);
            return true;
        }
        if space.reserve_bytes.get() == 0 {
            return true;
        }
        space.lease.set(0);
        let claim = |claimed: u64| {
            // First it is told and then looked: of two stores that do so at once, neither overlooks the other.
            space.claim(claimed + bytes);
            space.shared.left().map(|left| left - space.line_of(share))
        };
        let mut owed = space.claimed.get() - lease;
        let mut above = claim(owed);
        if above.is_some_and(|above| above < 0) {
            if has_blocks() {
                return true;
            }
            // What was claimed may have its blocks by now. That is a walk over all logs, and not for each batch that is refused.
            if !space.is_recounted.replace(true) {
                owed = self.owed_bytes();
                above = claim(owed);
            }
        }
        let Some(above) = above else { return true };
        if above < 0 {
            space.claim(owed);
            return false;
        }
        if share == 1 {
            let lease = above.unsigned_abs() / LEASE_SHARE / u64::from(self.options.shards.max(1));
            space.claim(owed + bytes + lease);
            space.lease.set(lease);
        }
        true
    }

    /// Promises space to what is written bit by bit beside appends of clients, if there is so much above the reserve.
    pub(crate) fn hold_space(&self, what: &'static str, bytes: u64) -> Result<Held, DiskError> {
        let held = self.space.shared.hold(with_indexes(bytes), self.space.line());
        held.ok_or_else(|| self.full(what))
    }

    /// The same for compaction, which will make space: it may use most of the reserve.
    pub(crate) fn hold_to_clean(&self, bytes: u64) -> Result<Held, DiskError> {
        let held = self
            .space
            .shared
            .hold(with_indexes(bytes), self.space.cleaning_line());
        held.ok_or_else(|| self.full("compact"))
    }

    /// What compaction may hold now, bytes; without end where nothing is known.
    pub(crate) fn room_to_clean(&self) -> i64 {
        let left = self.space.shared.left();
        left.map_or(i64::MAX, |left| left - self.space.cleaning_line())
    }

    /// Whether a log may be made: it takes some blocks, and makes a stop and a start need more. Many may be made before the next
    /// [`Self::tell_need`]: until then it is needed for each.
    pub(crate) fn check_new_log(&self) -> Result<(), StorageError> {
        let space = &self.space;
        let before = space.needed.get();
        let after = before + 2 * LOG_NEED_BYTES;
        // First it is told and then looked, as with a batch.
        space.shared.need(before, after);
        let has_room = space.reserve_bytes.get() == 0
            || space
                .shared
                .left()
                .is_none_or(|left| left >= space.shared.needed());
        if !has_room {
            space.shared.need(after, before);
            return Err(StorageError::NoSpace(Rc::new(self.full("create"))));
        }
        space.needed.set(after);
        Ok(())
    }

    /// The error of a disk that has no space for `what`, which was not asked.
    pub(crate) fn full(&self, what: &'static str) -> DiskError {
        DiskError::new(what, &self.dir, io::ErrorKind::StorageFull.into())
    }

    /// What all stores of the directory know.
    pub(crate) fn shared_space(&self) -> &DirSpace {
        &self.space.shared
    }

    /// Whether another journal file leaves the reserve alone. Where it does not, full ones are recycled.
    pub(crate) fn journal_may_grow(&self) -> bool {
        let above = self.space.shared.left().map(|left| left - self.space.line());
        self.journal.may_grow() && above.is_none_or(|above| above >= signed(self.journal.file_bytes()))
    }

    /// What a stop and the start after it write besides what was accepted, whatever comes, bytes: of each log the last blocks, the
    /// indexes, and its producers and epochs as often as they may have to be written.
    fn needed_bytes(&self) -> u64 {
        let logs = self.logs.borrow();
        let each = logs.iter().map(|log| log.state.borrow().needed_bytes());
        STORE_NEED_BYTES + each.sum::<u64>()
    }

    /// The others are told what a stop and a start need for this store.
    pub(crate) fn tell_need(&self) {
        let needed = self.needed_bytes();
        let before = self.space.needed.replace(needed);
        self.space.shared.need(before, needed);
    }

    pub(crate) fn count_refused(&self, error: &AppendError) {
        if *error == AppendError::Full {
            self.space.refused.set(self.space.refused.get() + 1);
        }
    }

    /// The disk refused something for lack of space.
    pub(crate) fn no_space(&self, error: Rc<DiskError>) -> StorageError {
        self.space.may_retry.set(false);
        let before = self.space.stalled.borrow_mut().replace(Rc::clone(&error));
        if before.is_none() {
            self.want_tails();
            self.hurry_removals();
            tracing::error!(
                dir = %self.dir.display(), shard = self.shard, %error,
                "no space is left: what is acknowledged stays in the journal, and goes to its place when there is space"
            );
        }
        StorageError::NoSpace(error)
    }

    /// Something that needed space went through.
    pub(crate) fn space_served(&self) {
        if self.space.stalled.borrow_mut().take().is_some() {
            tracing::info!(dir = %self.dir.display(), shard = self.shard, "there is space again");
            self.moved.notify();
        }
    }

    fn went_low(&self) {
        if !self.space.is_low.replace(true) {
            self.want_tails();
            self.hurry_removals();
        }
    }

    /// What logs have allocated ahead is to go back to the others.
    fn want_tails(&self) {
        self.space.wants_tails.set(true);
        self.behind.notify();
    }

    /// One line for each change, of one of the directory's shards: the others see the same.
    fn say_writes(&self, go_on: bool) {
        let dir = self.dir.display();
        let (usable_bytes, reserve_bytes) = (self.usable_bytes(), self.space.reserve_bytes.get());
        match (go_on, self.shard) {
            (false, 0) => tracing::warn!(
                %dir, usable_bytes, reserve_bytes,
                "the log directory is nearly full: producers are refused until there is more free space than \
                 penstock.disk.reserve.bytes; reads and deletions go on, offset commits until a quarter of that is left"
            ),
            (true, 0) => {
                tracing::info!(%dir, usable_bytes, reserve_bytes, "there is space again: producers are served")
            }
            (go_on, shard) => tracing::debug!(%dir, shard, go_on, "the reserve of free space was crossed"),
        }
    }

    pub(crate) fn space_stats(&self) -> SpaceStats {
        let space = &self.space;
        SpaceStats {
            total_bytes: space.seen.get().map_or(0, |seen| seen.total_bytes),
            usable_bytes: self.usable_bytes(),
            reserve_bytes: space.reserve_bytes.get(),
            needed_bytes: space.shared.needed().max(0).unsigned_abs(),
            refuses_writes: space.is_short(),
            is_stalled: space.is_stalled(),
            refused: space.refused.get(),
            fill_bytes_per_second: space.fill.get().whole(),
        }
    }
}

/// `bytes` of batches, with the small files that they bring.
const fn with_indexes(bytes: u64) -> u64 {
    bytes + bytes.div_ceil(INDEX_SHARE)
}

impl<D: Disk> LogState<D> {
    /// Of what is accepted and not written, what has blocks in its segment already, bytes.
    fn covered_bytes(&self) -> u64 {
        let (base, written) = self.cursor.written();
        let covered = self.segment(base).and_then(|segment| {
            let allocated = segment.file.as_ref()?.allocated();
            Some(
                allocated
                    .min(u64::from(segment.size))
                    .saturating_sub(u64::from(written)),
            )
        });
        covered.unwrap_or(0)
    }

    /// Whether what is allocated ahead for this log takes so many bytes more: nobody else is to have it.
    fn has_blocks_for(&self, bytes: usize) -> bool {
        let active = self.segments.back();
        active.is_some_and(|active| {
            let allocated = active.file.as_ref().map_or(0, |file| file.allocated());
            u64::from(active.size) + bytes as u64 <= allocated
        })
    }

    /// What a stop and a start may write of it besides its batches, bytes.
    fn needed_bytes(&self) -> u64 {
        let producers = self.producers.len() as u64 * ENTRY_BYTES_MAX;
        let epochs = self.epochs.entries().len() as u64 * 24;
        let unfinished = self.segments.iter().rev().take_while(|segment| !segment.finished);
        let indexes = unfinished
            .filter_map(|segment| segment.indexes.as_ref())
            .map(|indexes| {
                let entries = (indexes.offset.len() + indexes.time.len()) as u64;
                entries * 12 + indexes.txn.len() as u64 * 34 + LOG_NEED_BYTES
            });
        STATE_COPIES * (producers + epochs + RECORD_BYTES_MAX) + indexes.sum::<u64>()
    }
}
