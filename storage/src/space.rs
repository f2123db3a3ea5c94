//! The free space of a log directory as one shard's store sees it, and what happens when there is too little. Two lines are
//! crossed. Below the reserve, batches of clients are refused ([`AppendError::Full`]) and everything else goes on, until a quarter of
//! the reserve is left; then only the metadata log is written to, for deletions to get through. Where the disk
//! has nothing left ([`StorageError::NoSpace`]) the store *stalls*: what is durable in the journal stays there and in memory,
//! background work that needs space waits, deletions go on. Both end by themselves, at a look that finds space again.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::disk::{Disk, DiskError, Space};
use crate::error::{AppendError, StorageError};
use crate::log::Log;
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

/// How far the rate of filling looks back, milliseconds.
const FILL_WINDOW_MS: u64 = 60_000;

/// The reserve of a file system of `total_bytes` when none is configured, bytes.
#[must_use]
pub fn default_reserve(total_bytes: u64) -> u64 {
    (total_bytes / RESERVE_SHARE).min(RESERVE_BYTES_MAX)
}

/// What a store knows about space.
#[derive(Debug, Default)]
pub(crate) struct SpaceWatch {
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
    /// What is free or allocated to segments and not written yet, less what waits to be written, bytes.
    pub usable_bytes: u64,
    /// Below this much only internal topics are written to, bytes.
    pub reserve_bytes: u64,
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
        let left = self.usable_bytes.saturating_sub(self.reserve_bytes);
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
}

impl<D: Disk> Store<D> {
    /// Looks at the free space; to be called about once a second. `now_ms` is of a clock that only goes forward.
    pub async fn watch_space(&self, now_ms: u64) {
        self.look_at_space().await;
        let mut fill = self.space.fill.get();
        fill.observe(now_ms, self.usable_bytes());
        self.space.fill.set(fill);
    }

    /// Looks how much space the file system has left, for what is allocated ahead and for the reserve.
    pub(crate) async fn look_at_space(&self) {
        match self.disk.space(&self.dir).await {
            Ok(space) => self.saw_space(space),
            Err(error) => {
                tracing::warn!(%error, "nothing is allocated ahead");
                self.headroom.saw(0, 0);
                self.space.seen.set(None);
            }
        }
    }

    fn saw_space(&self, space: Space) {
        let configured = self.options.reserve_bytes;
        let reserve = configured.unwrap_or_else(|| default_reserve(space.total_bytes));
        self.space.seen.set(Some(space));
        self.space.reserve_bytes.set(reserve);
        self.headroom.saw(space.available_bytes, reserve);
        let usable = self.usable_bytes();
        if usable < reserve {
            self.went_low();
        } else if usable >= reserve + reserve / RESUME_SHARE && self.space.is_low.replace(false) {
            self.say_writes(true);
        }
        if self.space.is_stalled() {
            let nothing_waits = !self.wants_space();
            self.space.may_retry.set(true);
            if nothing_waits && usable >= reserve {
                self.space_served();
            }
            self.behind.notify();
            self.moved.notify();
        }
    }

    /// What segments can still take: what is free or allocated, less what is already accepted for them.
    fn usable_bytes(&self) -> u64 {
        let waiting = self.unwritten_bytes.get() as u64;
        self.headroom.usable_bytes().saturating_sub(waiting)
    }

    /// Whether a batch for the log is refused for lack of space unless it is there already.
    pub(crate) fn refuses_new(&self, log: &Log<D>, origin: AppendOrigin) -> bool {
        if log.is_vital {
            return false;
        }
        if log.is_internal || origin != AppendOrigin::Client {
            let last = self.space.reserve_bytes.get() / LAST_SHARE;
            return self.space.seen.get().is_some() && self.usable_bytes() < last;
        }
        let space = &self.space;
        if !space.is_low.get()
            && space.seen.get().is_some()
            && self.usable_bytes() < space.reserve_bytes.get()
        {
            self.went_low();
        }
        space.is_short()
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
            self.hurry_removals();
            self.say_writes(false);
        }
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
            refuses_writes: space.is_short(),
            is_stalled: space.is_stalled(),
            refused: space.refused.get(),
            fill_bytes_per_second: space.fill.get().whole(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_reserve_is_a_hundredth_and_at_most_a_gibibyte() {
        assert_eq!(default_reserve(64 << 20), (64 << 20) / 100);
        assert_eq!(default_reserve(10 << 40), RESERVE_BYTES_MAX);
    }

    #[test]
    fn a_disk_that_fills_steadily_is_predicted() {
        let mut fill = FillRate::default();
        let mut usable = 100_000_000_000u64;
        for second in 0..600 {
            fill.observe(second * 1000, usable);
            usable -= 5_000_000;
        }
        let rate = fill.whole();
        assert!((4_900_000..=5_000_000).contains(&rate), "{rate}");
        let stats = SpaceStats {
            usable_bytes: 1_000_000_000 + 50_000_000,
            reserve_bytes: 1_000_000_000,
            fill_bytes_per_second: 5_000_000,
            ..SpaceStats::default()
        };
        assert_eq!(stats.seconds_to_full(), Some(10));
    }

    #[test]
    fn a_disk_that_does_not_fill_has_no_time_to_full() {
        let mut fill = FillRate::default();
        for second in 0..60 {
            fill.observe(second * 1000, 1_000_000 + second);
        }
        assert_eq!(fill.whole(), 0, "it empties");
        assert_eq!(SpaceStats::default().seconds_to_full(), None);
    }
}
