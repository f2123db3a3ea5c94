//! The producers of a log that is being opened: from the newest of its snapshots and the checkpoint that can be read, and from
//! an older snapshot where a segment below that is walked; a snapshot for each segment that was walked.

use std::path::Path;

use super::epochs::NotedEpochs;
use super::record::{LogRecord, PlaceRecord};
use super::walk::{Replay, read_small};
use crate::checkpoint::{replace, write_atomic};
use crate::disk::{DirEntry, Disk};
use crate::error::StorageError;
use crate::layout::{FileName, LEADER_EPOCH_FILE, SegmentFile as SegmentFileKind};
use crate::log::{LogState, segment_path};
use crate::producer_state::ProducerState;
use crate::store::Store;
use crate::types::Offset;

impl<D: Disk> Store<D> {
    /// Takes the newest producer state that can be read. Returns the offset from which batches are to be replayed.
    pub(super) async fn load_producers(
        &self,
        dir: &Path,
        entries: &[DirEntry],
        known: Option<&LogRecord>,
        state: &mut LogState<D>,
        now_ms: i64,
    ) -> Result<Offset, StorageError> {
        let place = known.and_then(|record| record.place.as_ref());
        let mut snapshots: Vec<Offset> = entries
            .iter()
            .filter_map(|entry| FileName::snapshot_offset(&entry.name))
            .collect();
        snapshots.extend(place.map(|place| Offset(place.offset)));
        // What lies before the first segment says nothing of one that began again above what it lost.
        let first = entries
            .iter()
            .filter_map(|entry| FileName::log_base(&entry.name))
            .min();
        snapshots.retain(|offset| first.is_none_or(|first| *offset >= first));
        snapshots.sort_unstable();
        let expiration_ms = state.config.producer_id_expiration_ms;
        for offset in snapshots.into_iter().rev() {
            let bytes = match place.filter(|place| place.offset == offset.0) {
                Some(place) => Some(bytes::Bytes::copy_from_slice(&place.producers)),
                None => {
                    read_small(
                        &self.disk,
                        &segment_path(dir, offset, SegmentFileKind::ProducerSnapshot),
                    )
                    .await?
                }
            };
            let Some(bytes) = bytes else { continue };
            match state
                .producers
                .load_snapshot(offset, &bytes, now_ms, expiration_ms)
            {
                Ok(()) => return Ok(offset),
                Err(error) => {
                    tracing::warn!(dir = %dir.display(), %offset, %error, "producer snapshot not usable")
                }
            }
        }
        state.producers.reset(state.log_start);
        Ok(state.log_start)
    }

    /// A segment at `base` is walked although the producers of a later offset are known: takes those of its beginning, so that
    /// its transaction index can be made.
    pub(super) async fn producers_below(
        &self,
        dir: &Path,
        base: Offset,
        place: Option<&PlaceRecord>,
        replay: &mut Replay,
    ) -> Result<(), StorageError> {
        if base >= replay.from || replay.below.end_offset() == base {
            return Ok(());
        }
        let mut below = ProducerState::new(base, self.options.producers_max);
        let path = segment_path(dir, base, SegmentFileKind::ProducerSnapshot);
        let bytes = match place.filter(|place| place.offset == base.0) {
            Some(place) => Some(bytes::Bytes::copy_from_slice(&place.producers)),
            None => read_small(&self.disk, &path).await?,
        };
        replay.is_below_known =
            match bytes.map(|bytes| below.load_snapshot(base, &bytes, replay.now_ms, i64::MAX)) {
                Some(Ok(())) => true,
                Some(Err(error)) => {
                    tracing::warn!(path = %path.display(), %error, "producer snapshot not usable");
                    false
                }
                // Before the first record there was nobody.
                None => base == Offset::ZERO,
            };
        replay.below = below;
        Ok(())
    }

    /// The producers at the end of a walked segment that is not the last, as after a roll: the next start need not walk it.
    pub(super) async fn write_snapshot(
        &self,
        dir: &Path,
        end: Offset,
        state: &mut LogState<D>,
        noted: &NotedEpochs,
    ) -> Result<(), StorageError> {
        state.producers.advance(end);
        let mut epochs = state.epochs.below(end);
        epochs.extend_from(&noted.list, end);
        if !noted.is_filed(&epochs) {
            write_atomic(
                &self.disk,
                &dir.join(LEADER_EPOCH_FILE),
                epochs.encode().as_bytes(),
            )
            .await?;
        }
        let path = segment_path(dir, end, SegmentFileKind::ProducerSnapshot);
        replace(&self.disk, &path, &state.producers.encode_snapshot()).await?;
        Ok(())
    }
}
