//! One partition on its owner shard. About 370 bytes plus one entry for each batch between high watermark and log end.

use std::collections::VecDeque;

use storage::log::LogOffsets;
use storage::types::{LeaderEpoch, LogId, Offset};

use super::counters::OwnerCounters;
use super::moving::Moving;
use crate::ids::BrokerId;
use crate::partition::watermark::Watermark;

/// What of a topic's configuration the owner itself looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// `min.insync.replicas`.
    pub min_insync_replicas: usize,
}

/// One partition that this shard owns.
#[derive(Debug)]
pub struct Partition<H> {
    /// Topic id and partition index.
    pub id: LogId,
    /// Its log in the shard's storage.
    pub log: H,
    /// The leader of the current epoch; this broker.
    pub leader: BrokerId,
    /// The current leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// Its high watermark.
    pub watermark: Watermark,
    /// Bytes that became readable since the partition was adopted: what waiting fetches count.
    pub readable_bytes: u64,
    /// What went in and out since then.
    pub counters: OwnerCounters,
    /// Appended batches above the high watermark: end offset and bytes.
    unreadable: VecDeque<(Offset, u64)>,
    /// Its log is to go to another log directory.
    pub(super) moving: Option<Moving>,
}

impl<H> Partition<H> {
    pub(super) fn new(
        id: LogId,
        log: H,
        broker: BrokerId,
        leader_epoch: LeaderEpoch,
        settings: PartitionSettings,
        ends: LogOffsets,
    ) -> Self {
        let mut watermark = Watermark::new(broker, 1, vec![broker], ends.durable_end);
        watermark.set_min_insync_replicas(settings.min_insync_replicas);
        Self {
            id,
            log,
            leader: broker,
            leader_epoch,
            watermark,
            readable_bytes: 0,
            counters: OwnerCounters::default(),
            unreadable: VecDeque::new(),
            moving: None,
        }
    }

    pub(super) fn appended(&mut self, end: Offset, bytes: usize) {
        self.unreadable.push_back((end, bytes as u64));
    }

    /// The high watermark is `mark` now: how many bytes that made readable.
    pub(super) fn became_readable(&mut self, mark: Offset) -> u64 {
        let mut bytes = 0;
        while let Some((_, size)) = self.unreadable.front().filter(|(end, _)| *end <= mark) {
            bytes += size;
            self.unreadable.pop_front();
        }
        self.readable_bytes += bytes;
        bytes
    }

    /// The last stable offset: the first offset of the oldest open transaction if below the high watermark (FE-12).
    pub(super) fn last_stable_offset(&self, ends: &LogOffsets) -> Offset {
        let mark = self.watermark.high_watermark();
        ends.first_unstable.map_or(mark, |first| first.min(mark))
    }
}
