//! What a store keeps of its cleaner: how far each log is clean, which logs it has given up, what it has done. One per shard
//! and log directory.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use crate::checkpoint::offsets::Offsets;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::layout::PartitionName;
use crate::log::Log;
use crate::store::Store;
use crate::types::Offset;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// Up to where logs are clean, as all that is on disk says; −1 for what is to be forgotten.
    cleaned: RefCell<Offsets>,
    /// The names in it that this shard has to note.
    own: RefCell<BTreeSet<PartitionName>>,
    /// Logs left alone until the next start (CP-8), by slot, and their bytes.
    uncleanable: RefCell<BTreeMap<u32, u64>>,
    /// Logs for which there was no room, by slot.
    without_room: RefCell<BTreeMap<u32, NoRoom>>,
    /// Looks so far.
    looks: Cell<u64>,
    /// What the rate still allows.
    pub(super) throttle: Cell<Option<super::throttle::Throttle>>,
    /// A step that tests leave out of swaps.
    pub(super) left_out: Cell<Option<super::swap::SwapStep>>,
    /// The shard's file is being written.
    saving: Cell<bool>,
    /// Segments that were put in the place of others.
    versions: Cell<u32>,
    pub(super) stats: Cell<CleanerStats>,
}

/// How long a log that found no room is passed over if there is no more of it, in looks. What is free does not tell of a quota.
const LOOKS_WITHOUT_ROOM: u64 = 20;

/// How much more room a log is tried again with, bytes.
const MORE_ROOM_BYTES: i64 = 1 << 20;

/// A log found no room.
#[derive(Clone, Copy, Debug)]
struct NoRoom {
    /// So much there was, bytes.
    room: i64,
    /// The look in which it is tried again, whatever there is.
    again: u64,
}

/// What compaction has done and what waits for it. Kafka's gauges are made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanerStats {
    /// Passes that ended well.
    pub passes: u64,
    /// Bytes read by them.
    pub read_bytes: u64,
    /// Bytes written by them.
    pub written_bytes: u64,
    /// Batches that went or shrank.
    pub batches_changed: u64,
    /// Segments that went, net of those put in their place.
    pub segments_saved: u64,
    /// When the last pass ended, milliseconds since 1970; 0 before the first.
    pub last_pass_ms: i64,
    /// When logs were last looked at, milliseconds since 1970; 0 before the first time.
    pub last_look_ms: i64,
    /// How long the last pass took, milliseconds.
    pub pass_ms: u64,
    /// The dirty share of the dirtiest log when last looked, parts per million.
    pub dirty_ppm_max: u32,
    /// How far the last pass filled its offset map, parts per million.
    pub buffer_ppm: u32,
    /// Bytes the last pass wrote of those it read for that, parts per million.
    pub recopy_ppm: u32,
    /// By how much the oldest dirty record of a log was too old when last looked, milliseconds.
    pub delay_ms_max: i64,
    /// Logs that are left alone until the next start.
    pub uncleanable_logs: usize,
    /// Their bytes.
    pub uncleanable_bytes: u64,
}

impl CleanerStats {
    /// Both together: counts are added; of what a pass or a look found, the larger is said.
    pub(crate) fn merged(self, other: Self) -> Self {
        let (a, b) = (self, other);
        Self {
            passes: a.passes + b.passes,
            read_bytes: a.read_bytes + b.read_bytes,
            written_bytes: a.written_bytes + b.written_bytes,
            batches_changed: a.batches_changed + b.batches_changed,
            segments_saved: a.segments_saved + b.segments_saved,
            last_pass_ms: a.last_pass_ms.max(b.last_pass_ms),
            last_look_ms: a.last_look_ms.max(b.last_look_ms),
            pass_ms: a.pass_ms.max(b.pass_ms),
            dirty_ppm_max: a.dirty_ppm_max.max(b.dirty_ppm_max),
            buffer_ppm: a.buffer_ppm.max(b.buffer_ppm),
            recopy_ppm: a.recopy_ppm.max(b.recopy_ppm),
            delay_ms_max: a.delay_ms_max.max(b.delay_ms_max),
            uncleanable_logs: a.uncleanable_logs + b.uncleanable_logs,
            uncleanable_bytes: a.uncleanable_bytes + b.uncleanable_bytes,
        }
    }
}

impl Cleaner {
    /// A cleaner that goes on from what the merged file says.
    pub(crate) fn new(cleaned: Offsets) -> Self {
        Self {
            cleaned: RefCell::new(cleaned),
            ..Self::default()
        }
    }

    /// Up to where the log of this name is clean.
    pub(crate) fn cleaned_to(&self, name: &str) -> Option<Offset> {
        let name = PartitionName::parse(name)?;
        let cleaned = self.cleaned.borrow().get(&name).copied();
        cleaned.filter(|offset| *offset >= Offset::ZERO)
    }

    /// The log is given up until the next start.
    pub(super) fn give_up(&self, slot: u32, bytes: u64) {
        self.uncleanable.borrow_mut().insert(slot, bytes);
    }

    pub(super) fn is_given_up(&self, slot: u32) -> bool {
        self.uncleanable.borrow().contains_key(&slot)
    }

    /// The logs are looked at once more.
    pub(super) fn begin_look(&self) {
        self.looks.set(self.looks.get() + 1);
    }

    /// The log was not cleaned, for lack of space, with so much `room`.
    pub(super) fn found_no_room(&self, slot: u32, room: i64) {
        let again = self.looks.get() + LOOKS_WITHOUT_ROOM;
        self.without_room
            .borrow_mut()
            .insert(slot, NoRoom { room, again });
    }

    /// Whether the log is passed over in this look: there was no room for it, and there is hardly more now.
    pub(super) fn waits_for_room(&self, slot: u32, room: i64) -> bool {
        let mut without = self.without_room.borrow_mut();
        let Some(before) = without.get(&slot) else {
            return false;
        };
        let waits = self.looks.get() < before.again && room < before.room.saturating_add(MORE_ROOM_BYTES);
        if !waits {
            without.remove(&slot);
        }
        waits
    }

    /// A number no segment of this run has.
    pub(super) fn next_version(&self) -> u32 {
        self.versions.set(self.versions.get() + 1);
        self.versions.get()
    }

    /// The statistics now.
    pub(crate) fn stats(&self) -> CleanerStats {
        let uncleanable = self.uncleanable.borrow();
        CleanerStats {
            uncleanable_logs: uncleanable.len(),
            uncleanable_bytes: uncleanable.values().sum(),
            ..self.stats.get()
        }
    }

    fn note(&self, name: PartitionName, offset: Offset) {
        self.own.borrow_mut().insert(name.clone());
        self.cleaned.borrow_mut().insert(name, offset);
    }

    /// What this shard's file says.
    fn to_save(&self) -> Offsets {
        let cleaned = self.cleaned.borrow();
        let own = self.own.borrow();
        own.iter()
            .filter_map(|name| Some((name.clone(), *cleaned.get(name)?)))
            .collect()
    }
}

impl<D: Disk> Store<D> {
    /// The log is clean up to `offset`, durably so when this returns.
    pub(crate) async fn note_cleaned(&self, log: &Log<D>, offset: Offset) -> Result<(), StorageError> {
        let Some(name) = PartitionName::parse(&log.name) else {
            return Ok(());
        };
        self.cleaner.note(name, offset);
        self.save_cleaned().await
    }

    /// The log of this name is gone or new: what was noted of another one of that name must not count for it.
    pub(crate) async fn forget_cleaned(&self, name: &str, slot: Option<u32>) -> Result<(), StorageError> {
        if let Some(slot) = slot {
            self.cleaner.uncleanable.borrow_mut().remove(&slot);
            self.cleaner.without_room.borrow_mut().remove(&slot);
        }
        if self.cleaner.cleaned_to(name).is_none() {
            return Ok(());
        }
        let Some(name) = PartitionName::parse(name) else {
            return Ok(());
        };
        self.cleaner.note(name, Offset::NONE);
        self.save_cleaned().await
    }

    async fn save_cleaned(&self) -> Result<(), StorageError> {
        // One writer at a time: two would share the temporary file. Whoever waits finds its change written or writes it.
        self.moved
            .until(|| (!self.cleaner.saving.replace(true)).then_some(()))
            .await;
        let cleaned = self.cleaner.to_save();
        let saved = super::progress::save(&self.disk, &self.dir, self.shard, &cleaned).await;
        self.cleaner.saving.set(false);
        self.moved.notify();
        self.failed(saved)
    }
}
