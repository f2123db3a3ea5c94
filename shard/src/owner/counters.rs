//! What an owner counts, in all and for each partition, for metrics. Plain numbers: only the shard writes and reads them.

use storage::types::LogId;

use super::{Logs, Owner};
use crate::message::LogSummary;

/// Running counts of one partition since it was adopted, or of an owner since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerCounters {
    /// Produces that had a batch for it.
    pub appends: u64,
    /// Those refused by the log, but for partitions that are not here.
    pub appends_failed: u64,
    /// Batches appended.
    pub batches_appended: u64,
    /// Records of those batches.
    pub records_appended: u64,
    /// Bytes of those batches.
    pub bytes_appended: u64,
    /// Batches that had been appended before and were answered with the original's offset.
    pub duplicates: u64,
    /// Fetches that asked for it; a wait counts once more when it ends.
    pub reads: u64,
    /// Those that the disk failed.
    pub reads_failed: u64,
    /// Record bytes handed to consumers.
    pub bytes_read: u64,
}

/// One partition for a scrape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionStats {
    /// Its log's ends and size.
    pub log: LogSummary,
    /// What went in and out.
    pub counters: OwnerCounters,
}

impl<L: Logs> Owner<L> {
    /// Running counts since the start, of partitions that have left as well.
    #[must_use]
    pub fn counters(&self) -> OwnerCounters {
        self.counters
    }

    /// Every partition owned, in order of topic id and partition.
    #[must_use]
    pub fn partition_stats(&self) -> Vec<PartitionStats> {
        let mut all: Vec<_> = self
            .partitions
            .iter()
            .map(|(_, partition)| PartitionStats {
                log: self.summary(partition),
                counters: partition.counters,
            })
            .collect();
        all.sort_by_key(|p| p.log.log);
        all
    }

    /// Counts something for a partition and for all; for all alone when the partition is not here.
    pub(super) fn count(&mut self, log: LogId, add: impl Fn(&mut OwnerCounters)) {
        add(&mut self.counters);
        if let Some(index) = self.index_of(log) {
            add(&mut self.partitions[index].counters);
        }
    }
}
