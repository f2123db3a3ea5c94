//! The segment that a pass writes: `<base>.log.cleaned`, with its indexes in memory until it takes its place.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;

use super::swap::SwapStep;
use crate::commit::buffers::Chunks;
use crate::disk::{Disk, DiskError, IO_BYTES_MAX, align_down, align_up};
use crate::error::{Damage, StorageError};
use crate::io_class::IoClass;
use crate::layout::{FileMark, SegmentFile as SegmentFileKind};
use crate::log::Log;
use crate::log::batch::BatchHeader;
use crate::log::config::LogConfig;
use crate::segment::file::SegmentFile;
use crate::segment::indexes::SegmentIndexes;
use crate::segment::txn_index::AbortedTxn;
use crate::space::shared::Held;
use crate::store::Store;
use crate::types::Offset;

/// Space that is held for a segment at a time, bytes. How large it becomes is known when it is there: held for all of what it is
/// made from, a pass would find no room on a volume that has room for what comes of it.
pub(super) const HOLD_BYTES: u64 = 4 << 20;

/// See the module. Memory: up to 1 MiB of batches, or one larger one; 20 bytes of index per `index.interval.bytes`.
pub(super) struct CleanedSegment<D: Disk> {
    pub(super) base: Offset,
    pub(super) path: PathBuf,
    pub(super) file: Rc<SegmentFile<D>>,
    pub(super) size: u32,
    pub(super) indexes: SegmentIndexes,
    pub(super) first_timestamp: Option<i64>,
    /// Batches not written yet.
    pending: Vec<u8>,
    /// Bytes written, whole blocks.
    written: u32,
    /// What it can be at most, for what is allocated ahead.
    size_max: u64,
    interval: u32,
    /// What it may still take, with its indexes.
    held: Held,
    /// Of that, what is for batches.
    held_bytes: u64,
}

impl<D: Disk> CleanedSegment<D> {
    /// An empty one at `base`; what an interrupted pass left there is gone.
    pub(super) async fn create(
        store: &Store<D>,
        log: &Log<D>,
        base: Offset,
        size_max: u64,
        config: &LogConfig,
    ) -> Result<Self, StorageError> {
        let held_bytes = size_max.min(HOLD_BYTES);
        let held = store.hold_to_clean(held_bytes)?;
        let path = log
            .dir
            .join(SegmentFileKind::Log.marked_name(base, FileMark::Cleaned));
        let file = SegmentFile::open(&store.disk, &path, true, 0, &store.headroom).await?;
        Ok(Self {
            base,
            path,
            file: Rc::new(file),
            size: 0,
            indexes: SegmentIndexes::new(base, config.segment_index_bytes as usize),
            first_timestamp: None,
            pending: Vec::new(),
            written: 0,
            size_max,
            interval: config.index_interval_bytes,
            held,
            held_bytes,
        })
    }

    /// Adds whole batches, one an entry, in order.
    pub(super) async fn put(&mut self, store: &Store<D>, batches: &[Bytes]) -> Result<(), StorageError> {
        for batch in batches {
            let header = BatchHeader::parse(batch)
                .filter(|header| header.size as usize == batch.len())
                .expect("the filter gives whole batches");
            let Some(size) = self
                .size
                .checked_add(header.size)
                .filter(|size| *size <= i32::MAX as u32)
            else {
                let found = "more than fits a segment after recompression";
                return Err(
                    Damage::of_file(&self.path, u64::from(self.size), "a smaller segment", found).into(),
                );
            };
            // A sparse index that is full lacks an entry: a look-up reads a little more.
            let _ = self.indexes.append(header.indexed_at(self.size), self.interval);
            self.first_timestamp.get_or_insert(header.max_timestamp);
            self.pending.extend_from_slice(batch);
            self.size = size;
            if self.pending.len() >= IO_BYTES_MAX {
                let whole = align_down(self.pending.len() as u64) as usize;
                self.write(store, whole).await?;
            }
        }
        Ok(())
    }

    /// Adds a transaction to the index, whose marker was put or comes next.
    pub(super) fn note_aborted(&mut self, aborted: AbortedTxn) {
        if self.indexes.txn.append(aborted).is_err() {
            tracing::warn!(offset = %aborted.last_offset, "a transaction marker out of order");
        }
    }

    /// Writes what is left, cuts the file to size and syncs it.
    pub(super) async fn finish(&mut self, store: &Store<D>) -> Result<(), StorageError> {
        self.write(store, self.pending.len()).await?;
        if store.does(SwapStep::SyncNew) {
            self.file.cut(u64::from(self.size)).await?;
        } else {
            self.file.shorten(u64::from(self.size)).await?;
        }
        self.indexes
            .close()
            .expect("a closing time index entry always fits");
        Ok(())
    }

    /// Removes the file: it is not wanted after all.
    pub(super) async fn discard(self, store: &Store<D>) {
        // What stays is removed at the next start or overwritten by the next pass.
        let _ = store.disk.remove_file(&self.path).await;
    }

    /// Writes the first `len` pending bytes, padded to a block.
    async fn write(&mut self, store: &Store<D>, len: usize) -> Result<(), StorageError> {
        if len == 0 {
            return Ok(());
        }
        self.hold(store, len as u64)?;
        let _permit = store.io.permit(IoClass::Compaction, len as u64).await;
        let mut chunks = Chunks::<D>::new(&store.disk, len);
        chunks.put(&self.pending[..len]);
        self.pending.drain(..len);
        let position = u64::from(self.written);
        self.written += len as u32;
        self.file
            .allocate_for(position + chunks.padded_bytes(), align_up(self.size_max))
            .await?;
        self.file.write(chunks, position).await?;
        self.held.spend(len as u64);
        self.held_bytes -= len as u64;
        Ok(())
    }

    /// Sees to it that the next `bytes` are held.
    fn hold(&mut self, store: &Store<D>, bytes: u64) -> Result<(), DiskError> {
        if self.held_bytes < bytes {
            let to_come = self.size_max.saturating_sub(u64::from(self.written));
            let more = to_come.min(HOLD_BYTES).max(bytes);
            self.held.join(store.hold_to_clean(more)?);
            self.held_bytes += more;
        }
        Ok(())
    }
}
