//! What a crash leaves in a log's directory that is no part of the log: files that were being written or removed, index files
//! of segments that are gone, segments wholly below the log's start.

use std::collections::BTreeSet;
use std::path::Path;

use super::record::LogRecord;
use crate::disk::{DirEntry, Disk, DiskError};
use crate::error::StorageError;
use crate::layout::{FileMark, FileName, SegmentFile};
use crate::removal::{Doomed, remove_segment};
use crate::store::Store;
use crate::types::Offset;

impl<D: Disk> Store<D> {
    /// Removes them. Returns the segments in order.
    pub(super) async fn clear_debris<'a>(
        &self,
        dir: &Path,
        entries: &'a [DirEntry],
        known: Option<&LogRecord>,
    ) -> Result<Vec<(Offset, &'a DirEntry)>, StorageError> {
        let mut bases = Vec::new();
        let mut snapshot = None;
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            match FileName::parse(&entry.name) {
                FileName::Segment {
                    file: SegmentFile::Log,
                    base,
                    mark: None,
                } => bases.push((base, entry)),
                FileName::Segment {
                    file: SegmentFile::ProducerSnapshot,
                    base,
                    mark: None,
                } => snapshot = snapshot.max(Some(base)),
                FileName::Temporary => self.disk.remove_file(&dir.join(&entry.name)).await?,
                // It may be large, and nobody waits for its removal.
                FileName::Segment {
                    mark: Some(FileMark::Deleted),
                    ..
                } => self.doom(Doomed::File(dir.join(&entry.name)), 0, 0),
                _ => {}
            }
        }
        bases.sort_unstable_by_key(|(base, _)| *base);
        self.drop_below_start(dir, &mut bases, known, snapshot).await?;
        self.drop_orphans(dir, entries, &bases).await?;
        Ok(bases)
    }

    /// What lies wholly below the log's start was removed, or half made again by the replay of a log whose frames do not hold
    /// all of its bytes: nobody reads it, and a hole in it says nothing.
    async fn drop_below_start(
        &self,
        dir: &Path,
        bases: &mut Vec<(Offset, &DirEntry)>,
        known: Option<&LogRecord>,
        snapshot: Option<Offset>,
    ) -> Result<(), StorageError> {
        let start = known.map_or(Offset::ZERO, |record| Offset(record.log_start));
        let up_to = |offset: Offset| {
            let below = bases.partition_point(|(base, _)| *base <= offset);
            below.saturating_sub(1)
        };
        // What neither the newest snapshot nor the checkpoint covers is the only place that tells of its producers.
        let place = known.and_then(|record| Some(Offset(record.place.as_ref()?.offset)));
        let kept = up_to(start).min(snapshot.max(place).map_or(0, up_to));
        for (base, _) in bases.drain(..kept) {
            remove_segment(&self.disk, dir, base).await?;
        }
        Ok(())
    }

    /// Index files without a segment. Snapshots stay: those behind the last segment are the newest producer state.
    async fn drop_orphans(
        &self,
        dir: &Path,
        entries: &[DirEntry],
        bases: &[(Offset, &DirEntry)],
    ) -> Result<(), StorageError> {
        let kept: BTreeSet<Offset> = bases.iter().map(|(base, _)| *base).collect();
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            if let FileName::Segment {
                file: SegmentFile::OffsetIndex | SegmentFile::TimeIndex | SegmentFile::TxnIndex,
                base,
                mark: None,
            } = FileName::parse(&entry.name)
                && !kept.contains(&base)
            {
                gone(self.disk.remove_file(&dir.join(&entry.name)).await)?;
            }
        }
        Ok(())
    }
}

/// It is no error that a file to be removed is not there.
fn gone(removed: Result<(), DiskError>) -> Result<(), DiskError> {
    match removed {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
