//! Index files of closed segments are believed when a log is opened: to compare them with their batches takes a read of each
//! segment. They are found out where they are used. An entry that leads a fetch astray, and a time index that does not tell the
//! largest timestamp, are cut or of another segment (BR-074), and both indexes are made anew from the batches.

use std::rc::Rc;

use super::Log;
use crate::checkpoint::replace;
use crate::disk::{Disk, DiskError};
use crate::error::StorageError;
use crate::recovery::scan::scan_segment;
use crate::segment::indexes::SegmentIndexes;
use crate::segment::state::Segment;
use crate::segment::time_index::{NO_TIMESTAMP, TimestampOffset};
use crate::store::Store;
use crate::types::Offset;
use crate::write_behind::index_files;

/// What the indexes of a segment say that its batches can confirm.
struct Claims {
    size: u32,
    /// Where a batch starts, the last that is indexed: behind it the segment's end is read.
    tail: u32,
    largest: TimestampOffset,
    /// The batch with the largest timestamp starts and ends between these.
    largest_between: (u32, u32),
}

impl Claims {
    fn of<D: Disk>(segment: &Segment<D>) -> Option<Self> {
        let indexes = segment.indexes.as_ref()?;
        let largest = segment.largest;
        let behind = indexes.offset.iter().find(|entry| entry.offset > largest.offset);
        Some(Self {
            size: segment.size,
            tail: indexes.offset.last().map_or(0, |last| last.position),
            largest,
            largest_between: (
                indexes.offset.lookup(largest.offset).position,
                behind.map_or(segment.size, |entry| entry.position),
            ),
        })
    }
}

impl<D: Disk> Store<D> {
    /// Compares the time indexes that were read from files with their segments, once, before they answer anything.
    ///
    /// # Errors
    /// [`StorageError`] from the disk.
    pub(crate) async fn check_times(&self, log: &Rc<Log<D>>) -> Result<(), StorageError> {
        loop {
            let unchecked = {
                let state = log.state.borrow();
                let segment = state.segments.iter().find(|segment| segment.is_believed);
                segment.and_then(|segment| Some((segment.base, Claims::of(segment)?)))
            };
            let Some((base, claims)) = unchecked else {
                return Ok(());
            };
            if !self.confirms(log, base, &claims).await? {
                self.rebuild_indexes(log, base).await?;
            }
            if let Some(segment) = log.state.borrow_mut().segment_mut(base) {
                segment.is_believed = false;
            }
        }
    }

    /// Whether the segment's batches are as its indexes say: its end has no timestamp above the largest one, and the batch that
    /// the index names has that.
    async fn confirms(&self, log: &Rc<Log<D>>, base: Offset, claims: &Claims) -> Result<bool, StorageError> {
        let file = match self.segment_file(log, base).await {
            Err(error) if error.is_not_found() => return Ok(true), // it was deleted meanwhile
            file => file?,
        };
        let largest = claims.largest;
        let (mut newest, mut named) = (NO_TIMESTAMP, None);
        let tail = scan_segment(file.file(), claims.tail, base, claims.size, |header, _, _| {
            newest = newest.max(header.indexed_at(0).max_timestamp);
            if (header.base_offset..=header.last_offset()).contains(&largest.offset) {
                named = Some(header.max_timestamp);
            }
        });
        let is_place = tail.await?.position > claims.tail;
        if !is_place || newest > largest.timestamp {
            return Ok(false);
        }
        if largest.timestamp == NO_TIMESTAMP || named == Some(largest.timestamp) {
            return Ok(true);
        }
        let (from, to) = claims.largest_between;
        scan_segment(file.file(), from, base, to, |header, _, _| {
            if (header.base_offset..=header.last_offset()).contains(&largest.offset) {
                named = Some(header.max_timestamp);
            }
        })
        .await?;
        Ok(named == Some(largest.timestamp))
    }

    /// Makes offset and time index of a closed segment anew from its batches, in memory and on disk. Returns whether that could
    /// be done: not when a batch is damaged, and not when the segment is gone.
    ///
    /// # Errors
    /// [`StorageError`] from the disk.
    pub(crate) async fn rebuild_indexes(&self, log: &Rc<Log<D>>, base: Offset) -> Result<bool, StorageError> {
        let (size, version, mut indexes, interval_bytes) = {
            let state = log.state.borrow();
            let Some(segment) = state.segment(base).filter(|segment| segment.finished) else {
                return Ok(false);
            };
            let mut indexes = SegmentIndexes::new(base, state.config.segment_index_bytes as usize);
            if let Some(old) = &segment.indexes {
                indexes.txn = old.txn.clone(); // it is not made from batches alone
            }
            (
                segment.size,
                segment.version,
                indexes,
                state.config.index_interval_bytes,
            )
        };
        tracing::warn!(log = %log.name, segment = %base, "index files do not fit their segment: they are made anew");
        let file = self.segment_file(log, base).await?;
        let mut is_full = false;
        let end = scan_segment(file.file(), 0, base, size, |header, position, _| {
            is_full |= indexes
                .append(header.indexed_at(position), interval_bytes)
                .is_err();
        });
        if end.await?.position != size || is_full || indexes.close().is_err() {
            return Ok(false);
        }
        let files = index_files(&log.dir, base, &indexes);
        {
            let mut state = log.state.borrow_mut();
            let segment = state.segment_mut(base);
            let Some(segment) = segment.filter(|segment| segment.version == version) else {
                return Ok(false); // deleted, or compacted, which has made its own
            };
            segment.largest = indexes.largest_timestamp();
            segment.indexes = Some(Box::new(indexes));
            segment.is_believed = false;
        }
        for (path, bytes) in &files {
            match replace(&self.disk, path, bytes).await {
                Err(error) if error.is_not_found() => return Ok(true), // the log was deleted meanwhile
                replaced => replaced.map_err(|error: DiskError| self.fail(error))?,
            }
        }
        Ok(true)
    }
}
