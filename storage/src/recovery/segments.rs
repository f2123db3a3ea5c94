//! The segments of a log that is being opened: taken with their index files, or walked batch by batch, closed, and removed where
//! the log has ended before them.

use std::path::Path;

use super::record::PlaceRecord;
use super::scan::ScanEnd;
use super::trust::load_indexes;
use super::walk::{Replay, load_indexes_before, walk};
use crate::checkpoint::replace;
use crate::disk::{DirEntry, Disk, DiskFile, OpenMode};
use crate::error::StorageError;
use crate::layout::{FileName, SegmentFile as SegmentFileKind};
use crate::log::{LogState, segment_path};
use crate::producer_state::ProducerState;
use crate::segment::state::Segment;
use crate::store::Store;
use crate::types::Offset;
use crate::write_behind::index_files;

impl<D: Disk> Store<D> {
    /// A closed segment whose producers and epochs are known, with its index files; `None` if they are missing or wrong.
    pub(super) async fn trusted_segment(
        &self,
        dir: &Path,
        state: &LogState<D>,
        (base, next): (Offset, Offset),
        entry: &DirEntry,
    ) -> Result<Option<Segment<D>>, StorageError> {
        let mut segment = Segment::new(base, state.config.segment_index_bytes, entry.modified_ms);
        segment.size = u32::try_from(entry.size).unwrap_or(u32::MAX);
        segment.exists = true;
        segment.is_named = true;
        segment.finished = true;
        let bytes_max = state.config.segment_index_bytes as usize;
        match load_indexes(&self.disk, dir, (base, next), bytes_max, segment.size).await? {
            Ok(indexes) => {
                segment.largest = indexes.largest_timestamp();
                segment.indexes = Some(Box::new(indexes));
                segment.is_believed = true;
                Ok(Some(segment))
            }
            Err(reason) => {
                let path = segment_path(dir, base, SegmentFileKind::Log);
                tracing::warn!(segment = %path.display(), reason, "its indexes are made anew from its batches");
                Ok(None)
            }
        }
    }

    /// A segment that is not the last, from its batches.
    pub(super) async fn walked_segment(
        &self,
        dir: &Path,
        state: &mut LogState<D>,
        base: Offset,
        entry: &DirEntry,
        replay: &mut Replay,
    ) -> Result<(Segment<D>, ScanEnd), StorageError> {
        let mut segment = Segment::new(base, state.config.segment_index_bytes, entry.modified_ms);
        let size = u32::try_from(entry.size).unwrap_or(u32::MAX);
        let end = walk(&self.disk, dir, state, &mut segment, size, None, replay).await?;
        segment.size = end.position;
        segment.exists = true;
        segment.is_named = true;
        Ok((segment, end))
    }

    /// Walks the active segment, from the checkpoint's place if it has one there.
    pub(super) async fn walk_active(
        &self,
        dir: &Path,
        state: &mut LogState<D>,
        base: Offset,
        entry: &DirEntry,
        place: Option<&PlaceRecord>,
        replay: &mut Replay,
    ) -> Result<(Segment<D>, ScanEnd), StorageError> {
        let mut active = Segment::new(base, state.config.segment_index_bytes, entry.modified_ms);
        let size = u32::try_from(entry.size).unwrap_or(u32::MAX);
        let noted = place;
        let place = place.filter(|place| place.segment == base.0 && place.position <= size);
        let indexes = match place {
            // Producers must be known up to where the walk starts.
            Some(place) if replay.from.0 >= place.offset => {
                let bytes_max = state.config.segment_index_bytes as usize;
                load_indexes_before(&self.disk, dir, place, bytes_max).await?
            }
            _ => None,
        };
        if let Some(place) = place.filter(|place| place.position > 0 && indexes.is_none()) {
            let path = segment_path(dir, base, SegmentFileKind::Log);
            let bytes = place.position;
            tracing::warn!(
                segment = %path.display(), bytes,
                "its index files or its producers are not as the checkpoint says: read from its beginning"
            );
        }
        let start = place.zip(indexes);
        match &start {
            Some((place, _)) if Offset(place.offset) < replay.from => {
                let mut below = ProducerState::new(Offset(place.offset), self.options.producers_max);
                // It was written with a checksum; if it cannot be read all the same, nobody had a transaction open.
                let _ = below.load_snapshot(Offset(place.offset), &place.producers, replay.now_ms, i64::MAX);
                replay.below = below;
                replay.is_below_known = true;
            }
            Some(_) => {}
            None => self.producers_below(dir, base, noted, replay).await?,
        }
        let end = walk(&self.disk, dir, state, &mut active, size, start, replay).await?;
        active.size = end.position;
        active.exists = true;
        Ok((active, end))
    }

    /// Writes the index files of a walked segment that is not the last.
    pub(super) async fn close_segment(
        &self,
        dir: &Path,
        mut segment: Segment<D>,
        end: &ScanEnd,
        entry: &DirEntry,
    ) -> Result<Segment<D>, StorageError> {
        if let Some(indexes) = segment.indexes.as_mut() {
            indexes.close().expect("a closing time index entry always fits");
            for (path, bytes) in index_files(dir, segment.base, indexes) {
                replace(&self.disk, &path, &bytes).await?;
            }
        }
        if u64::from(end.position) < entry.size {
            let file = self
                .disk
                .open(
                    &segment_path(dir, segment.base, SegmentFileKind::Log),
                    OpenMode::ReadWrite,
                )
                .await?;
            file.truncate(u64::from(end.position)).await?;
            file.sync().await?;
            file.close().await?;
        }
        segment.finished = true;
        Ok(segment)
    }

    /// A file of aborted transactions whose markers are lost would be taken for right once the segment is closed, since that
    /// file is written only when there is an entry.
    pub(super) async fn drop_txn_index(
        &self,
        dir: &Path,
        entries: &[DirEntry],
        segment: &Segment<D>,
    ) -> Result<(), StorageError> {
        let name = SegmentFileKind::TxnIndex.name(segment.base);
        if !entries.iter().any(|entry| entry.name == name) {
            return Ok(());
        }
        if segment
            .indexes
            .as_ref()
            .is_some_and(|indexes| !indexes.txn.is_empty())
        {
            return Ok(());
        }
        let path = segment_path(dir, segment.base, SegmentFileKind::TxnIndex);
        match self.disk.remove_file(&path).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Removes the segments from `base` on with their files.
    pub(super) async fn remove_segments_from(&self, dir: &Path, base: Offset) -> Result<(), StorageError> {
        for entry in self.disk.list(dir).await? {
            if matches!(FileName::parse(&entry.name), FileName::Segment { base: found, .. } if found >= base)
            {
                self.disk.remove_file(&dir.join(&entry.name)).await?;
            }
        }
        self.disk.sync_dir(dir).await?;
        Ok(())
    }

    pub(super) async fn remove_snapshots_above(&self, dir: &Path, end: Offset) -> Result<(), StorageError> {
        for entry in self.disk.list(dir).await? {
            if FileName::snapshot_offset(&entry.name).is_some_and(|offset| offset > end) {
                self.disk.remove_file(&dir.join(&entry.name)).await?;
            }
        }
        // When the log has grown to such a place again, one that a power loss brought back would tell of other batches.
        self.disk.sync_dir(dir).await?;
        Ok(())
    }
}
