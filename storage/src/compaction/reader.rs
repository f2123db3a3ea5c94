//! Reads a closed segment front to back in pieces of whole batches.

use std::path::PathBuf;
use std::rc::Rc;

use bytes::Bytes;
use protocol::record::BATCH_HEADER_BYTES;

use crate::disk::{Disk, IO_BYTES_MAX};
use crate::error::{Damage, StorageError};
use crate::io_class::IoClass;
use crate::log::Log;
use crate::log::batch::BatchHeader;
use crate::log::read::read_window;
use crate::segment::file::SegmentFile;
use crate::store::Store;
use crate::types::Offset;

/// One segment of a pass. The file is held open, so that what is read is what was there when the pass began.
pub(super) struct SegmentReader<D: Disk> {
    file: Rc<SegmentFile<D>>,
    path: PathBuf,
    size: u32,
    position: u32,
    /// The next batch has at least this offset.
    expected: Offset,
}

impl<D: Disk> SegmentReader<D> {
    pub(super) async fn open(
        store: &Store<D>,
        log: &Rc<Log<D>>,
        base: Offset,
        size: u32,
    ) -> Result<Self, StorageError> {
        Ok(Self {
            file: store.segment_file(log, base).await?,
            path: log.segment_path(base),
            size,
            position: 0,
            expected: base,
        })
    }

    /// Whether everything was handed out.
    pub(super) const fn is_at_end(&self) -> bool {
        self.position >= self.size
    }

    /// The next batches, of about `bytes_max` bytes together or one that is larger; nothing at the end. Their headers are
    /// right in themselves, their CRCs are not looked at.
    ///
    /// # Errors
    /// [`StorageError::Damage`] when what follows is no batch, or not all there; the disk's errors.
    pub(super) async fn next(&mut self, store: &Store<D>, bytes_max: usize) -> Result<Bytes, StorageError> {
        let mut want = bytes_max.clamp(BATCH_HEADER_BYTES, IO_BYTES_MAX);
        while !self.is_at_end() {
            let len = want.min((self.size - self.position) as usize);
            let permit = store.io.permit(IoClass::Compaction, len as u64).await;
            let window = read_window(self.file.file(), u64::from(self.position), len).await?;
            drop(permit);
            if window.len() < len {
                return Err(self.damage(window.len(), "the whole segment", "the end of the file"));
            }
            let whole = self.whole_batches(&window)?;
            if whole > 0 {
                self.position += whole as u32;
                return Ok(window.slice(..whole));
            }
            let Some(header) = BatchHeader::parse(&window) else {
                return Err(self.damage(0, "a version 2 batch header", "other bytes"));
            };
            if u64::from(self.position) + u64::from(header.size) > u64::from(self.size) {
                return Err(self.damage(0, "a whole batch", "the end of the segment"));
            }
            want = header.size as usize;
        }
        Ok(Bytes::new())
    }

    /// Bytes of the whole batches at the front of the window.
    fn whole_batches(&mut self, window: &Bytes) -> Result<usize, StorageError> {
        let mut at = 0;
        while let Some(rest) = window.get(at..).filter(|rest| rest.len() >= BATCH_HEADER_BYTES) {
            let Some(header) = BatchHeader::parse(rest) else {
                return Err(self.damage(at, "a version 2 batch header", "other bytes"));
            };
            if header.base_offset < self.expected {
                return Err(self.damage(at, "an offset above the one before", "one that goes back"));
            }
            if rest.len() < header.size as usize {
                break;
            }
            self.expected = header.last_offset().plus(1);
            at += header.size as usize;
        }
        Ok(at)
    }

    /// Damage at `at` behind what was handed out.
    pub(super) fn damage(&self, at: usize, expected: &str, found: &str) -> StorageError {
        Damage {
            path: self.path.clone(),
            position: u64::from(self.position) + at as u64,
            first_offset: self.expected,
            end_offset: Offset::NONE,
            expected: expected.to_owned(),
            found: found.to_owned(),
        }
        .into()
    }

    /// Damage in the piece of `len` bytes that was handed out last, `at` bytes into it.
    pub(super) fn damage_in_last(&self, len: usize, at: usize, first: Offset, found: &str) -> StorageError {
        Damage {
            path: self.path.clone(),
            position: (u64::from(self.position) + at as u64).saturating_sub(len as u64),
            first_offset: first,
            end_offset: Offset::NONE,
            expected: "a batch that can be read".to_owned(),
            found: found.to_owned(),
        }
        .into()
    }
}
