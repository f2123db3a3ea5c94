//! The leader epochs of a log that is recovered: what the checkpoint and the file noted, overruled by the batches that are
//! read. An epoch is noted when its batches are synced, so what was noted is right as far as it goes; Apache Kafka's file
//! may also hold epochs whose batches were lost.

use std::path::Path;

use super::record::LogRecord;
use super::walk::read_small;
use crate::disk::{DirEntry, Disk};
use crate::error::StorageError;
use crate::layout::LEADER_EPOCH_FILE;
use crate::leader_epoch::LeaderEpochs;
use crate::log::LogState;
use crate::types::{LeaderEpoch, Offset};

/// The epochs of a log as they were noted.
#[derive(Debug)]
pub(super) struct NotedEpochs {
    /// The checkpoint's up to its place, the file's behind it.
    pub(super) list: LeaderEpochs,
    /// The file's.
    file: LeaderEpochs,
    /// Those of the records below are all in the list.
    pub(super) reach: Offset,
}

impl NotedEpochs {
    /// Reads the file, if it is among the `entries` of the directory, and adds it to the checkpoint. A file that is not one is as good as none.
    pub(super) async fn load<D: Disk>(
        disk: &D,
        dir: &Path,
        entries: &[DirEntry],
        known: Option<&LogRecord>,
    ) -> Result<Self, StorageError> {
        let mut list = LeaderEpochs::new();
        for (epoch, start) in known.iter().flat_map(|record| &record.epochs) {
            list.assign(LeaderEpoch(*epoch), Offset(*start));
        }
        let text = match entries.iter().any(|entry| entry.name == LEADER_EPOCH_FILE) {
            true => read_small(disk, &dir.join(LEADER_EPOCH_FILE)).await?,
            false => None,
        };
        let place = known.and_then(|record| record.place.as_ref());
        let place = place.map_or(Offset::ZERO, |place| Offset(place.offset));
        let mut reach = place;
        let file = match text.map(|text| LeaderEpochs::decode(&text)) {
            Some(Ok(file)) => {
                reach = Offset(i64::MAX); // it is written before the segment of its records counts as closed
                file
            }
            Some(Err(error)) => {
                let path = dir.join(LEADER_EPOCH_FILE);
                tracing::warn!(path = %path.display(), %error, "made anew from the checkpoint and the batches");
                LeaderEpochs::default()
            }
            None => LeaderEpochs::default(),
        };
        list.extend_from(&file, place);
        if list.latest().is_none() {
            reach = Offset::NONE;
        }
        Ok(Self { list, file, reach })
    }

    /// Whether the file has exactly these.
    pub(super) fn is_filed(&self, epochs: &LeaderEpochs) -> bool {
        self.file == *epochs
    }

    /// The log's ends are known and its batches have been read: its epochs are brought to them. A log without records
    /// keeps the newest epoch it ever had, so that it does not go back. (Apache Kafka 4.3.1 forgets it, and the next leader
    /// sets one anew.) A log with records has the epochs of its records.
    pub(super) fn settle<D: Disk>(&self, state: &mut LogState<D>) {
        if state.log_start == state.end {
            let newest = [self.list.latest(), state.epochs.latest()];
            let newest = newest.into_iter().flatten().map(|entry| entry.epoch).max();
            state.epochs.clear();
            state
                .epochs
                .assign(newest.unwrap_or(LeaderEpoch::NONE), state.end);
        } else {
            state.epochs.truncate_from_end(state.end);
            state.epochs.truncate_from_start(state.log_start);
        }
        state.epochs_dirty = state.epochs != self.file;
    }
}
