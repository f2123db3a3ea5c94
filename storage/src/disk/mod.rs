//! The seam between the log engine and a disk: aligned reads and writes, syncs, names. Everything above it runs
//! unchanged on io_uring direct I/O (`direct`, with the feature of that name) and on the simulated disk ([`sim`]), which loses,
//! tears and reorders what was not synced; offline tools run it on plain blocking files ([`plain`]). One instance per shard; nothing here is `Send`.
#![allow(async_fn_in_trait)] // every future of a shard stays on its thread, so no Send bound is ever wanted

#[cfg(feature = "direct")]
pub mod direct;
pub mod plain;
pub mod sim;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Positions, lengths and buffers of direct I/O are multiples of this many bytes, whatever the device claims
/// (glommio reports the logical 512 where the physical block is 4096).
pub const BLOCK_BYTES: usize = 4096;

/// The largest single read or write, bytes (larger ones hang on older kernels with IOPOLL).
pub const IO_BYTES_MAX: usize = 1 << 20;

/// What is in new buffers of disks that are not the real one, so that whoever does not fill his is found out.
const STALE: u8 = 0xa5;

/// A file system of one log directory, seen from one shard.
pub trait Disk: Clone + 'static {
    /// An open file.
    type File: DiskFile<Buf = Self::Buf>;
    /// An aligned buffer that the disk can write from.
    type Buf: DiskBuf;

    /// Whether blocks that were allocated and never written are kept apart, so that a sync after the first write to them costs more
    /// than later ones: ext4 and XFS with direct I/O.
    fn keeps_unwritten(&self) -> bool;
    /// An aligned buffer of `len` bytes rounded up to [`BLOCK_BYTES`] (one block for 0), with anything in it, such as what an earlier
    /// one held: zeroing it costs as much as filling it.
    fn alloc(&self, len: usize) -> Self::Buf;
    /// Opens a file for direct reads and writes.
    async fn open(&self, path: &Path, mode: OpenMode) -> Result<Self::File, DiskError>;
    /// The entries of a directory in name order; a missing directory is `NotFound`.
    async fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, DiskError>;
    /// Creates a directory and its parents; an existing one is fine. Durable only after [`Disk::sync_dir`] of the parent.
    async fn create_dir(&self, dir: &Path) -> Result<(), DiskError>;
    /// Removes a file; a missing one is `NotFound`.
    async fn remove_file(&self, path: &Path) -> Result<(), DiskError>;
    /// Removes a directory with all it holds.
    async fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError>;
    /// Renames a file or a directory, replacing a file of that name. Durable after [`Disk::sync_dir`] of the parents.
    async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError>;
    /// Makes the names in a directory durable.
    async fn sync_dir(&self, dir: &Path) -> Result<(), DiskError>;
    /// Makes all that was written to the file system that holds `dir` durable (`syncfs`), off the shard's thread.
    async fn sync_filesystem(&self, dir: &Path) -> Result<(), DiskError>;
    /// The space of the file system that holds `dir`.
    async fn space(&self, dir: &Path) -> Result<Space, DiskError>;
}

/// One open file. Offsets and lengths of writes are multiples of [`BLOCK_BYTES`]; reads are free of that rule.
///
/// io_uring does not order operations: a caller that wants "this write, then this sync" awaits the write first. A future
/// of this trait is always awaited to its end; dropping one early may lose the write (glommio trap D4).
pub trait DiskFile: fmt::Debug + 'static {
    /// The buffer type of the disk this file is on.
    type Buf: DiskBuf;

    /// Writes the whole buffer at `position`. A short write is carried on; an error leaves the range undefined.
    async fn write_at(&self, buf: Rc<Self::Buf>, position: u64) -> Result<(), DiskError>;
    /// Reads up to `len` bytes at `position`; fewer come back only where the file ends. Never returns bytes that the
    /// file does not hold (glommio trap D3).
    async fn read_at(&self, position: u64, len: usize) -> Result<bytes::Bytes, DiskError>;
    /// Makes the file's data and size durable (`fdatasync`).
    async fn sync(&self) -> Result<(), DiskError>;
    /// Extends the file to `size` bytes of zeroes with its blocks allocated; never shrinks it.
    async fn allocate(&self, size: u64) -> Result<(), DiskError>;
    /// Cuts or extends the file to `size` bytes.
    async fn truncate(&self, size: u64) -> Result<(), DiskError>;
    /// The file's size in bytes.
    async fn size(&self) -> Result<u64, DiskError>;
    /// Closes the file; errors of earlier writes may show here.
    async fn close(self) -> Result<(), DiskError>;
}

/// An aligned buffer; its length is a multiple of [`BLOCK_BYTES`].
pub trait DiskBuf: Deref<Target = [u8]> + DerefMut + 'static {
    /// Shortens the buffer to `len` bytes, a multiple of [`BLOCK_BYTES`].
    fn trim(&mut self, len: usize);
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, read only.
    Read,
    /// An existing file, read and write.
    ReadWrite,
    /// An existing file, read and write; what a write brings is durable when it ends (`O_DSYNC`).
    ReadWriteDurable,
    /// A new file, read and write; an existing one is an error.
    CreateNew,
    /// A new file or an existing one cut to nothing, read and write.
    CreateOrTruncate,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name without its directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// The size in bytes; 0 for a directory.
    pub size: u64,
    /// Last modification, milliseconds since the epoch.
    pub modified_ms: i64,
}

/// Free and total space of a file system, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub total_bytes: u64,
    /// What an unprivileged process may still use.
    pub available_bytes: u64,
}

/// `len` bytes at `position`, in I/Os of at most [`IO_BYTES_MAX`]; fewer where the file ends.
pub(crate) async fn read_long<F: DiskFile>(
    file: &F,
    position: u64,
    len: usize,
) -> Result<bytes::Bytes, DiskError> {
    if len <= IO_BYTES_MAX {
        return file.read_at(position, len).await;
    }
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let part = file
            .read_at(position + out.len() as u64, (len - out.len()).min(IO_BYTES_MAX))
            .await?;
        if part.is_empty() {
            break;
        }
        out.extend_from_slice(&part);
    }
    Ok(bytes::Bytes::from(out))
}

/// A failed disk operation: which, on what, and why.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {} failed: {source}", path.display())]
pub struct DiskError {
    /// What was tried: "open", "write", "sync" and so on.
    pub operation: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// The operating system's reason.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// An error of `operation` on `path`.
    pub fn new(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self {
            operation,
            path: path.into(),
            source,
        }
    }

    /// Whether the file or directory does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether it was a change that failed, or the sync of one: what the disk holds is not known then.
    #[must_use]
    pub fn is_of_change(&self) -> bool {
        const LOOKS: [&str; 5] = ["open", "list", "read", "size query", "space query"];
        !LOOKS.contains(&self.operation)
    }

    /// Whether a change was refused because the disk is full: it has not happened, or not wholly, and can be made again when
    /// there is space. A sync that fails for that reason is another matter: what it covered may be lost. So is a limit on the
    /// size of files, which no deletion lifts.
    #[must_use]
    pub fn is_refused_for_space(&self) -> bool {
        let is_full = matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        is_full && !self.operation.starts_with("sync")
    }

    /// Whether the disk is full (or a quota or file-size limit was met).
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        )
    }
}

/// `value` rounded down to a whole block.
#[must_use]
pub const fn align_down(value: u64) -> u64 {
    value - value % BLOCK_BYTES as u64
}

/// `value` rounded up to a whole block.
#[must_use]
pub const fn align_up(value: u64) -> u64 {
    align_down(value + BLOCK_BYTES as u64 - 1)
}

impl fmt::Display for OpenMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::ReadWrite => "read-write",
            Self::ReadWriteDurable => "read-write with durable writes",
            Self::CreateNew => "create",
            Self::CreateOrTruncate => "create or truncate",
        })
    }
}
