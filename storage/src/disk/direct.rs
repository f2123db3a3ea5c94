//! The real disk: glommio's `DmaFile` on io_uring with O_DIRECT, one [`DirectDisk`] per shard and log directory. Each
//! trap of glommio 0.9.0 that touches files (D2, D3, D5, D10; D4 is the callers' rule) is met here and named where it is
//! met. Nothing else in this crate calls glommio.
#![allow(unsafe_code)] // libc calls and one Rc cast in `buf`, each with its proof

mod buf;
mod patience;
mod pool;
mod probe;
mod side_thread;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::AssertUnwindSafe;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures_lite::FutureExt;
use glommio::io::{DmaFile, OpenOptions};
use glommio::{GlommioError, LocalExecutorBuilder, Placement, executor};

pub use self::buf::DirectBuf;
use self::buf::{alloc, into_dma};
use self::patience::Patience;
use self::pool::ReadPool;
pub use self::probe::DiskKind;
use self::probe::{PROBE_BYTES, check_flag, keeps_unwritten, probe_path, self_test};
use self::side_thread::{SideThread, caught};
use super::{
    BLOCK_BYTES, DirEntry, Disk, DiskError, DiskFile, IO_BYTES_MAX, OpenMode, Space, align_down, align_up,
};
use crate::layout::PRIVATE_DIR;

/// Entries of one directory that [`Disk::list`] takes before it gives up.
const LIST_ENTRIES_MAX: usize = 1 << 20;

/// I/O memory of an executor made by [`run_with_disk`], bytes.
const TOOL_ARENA_BYTES: usize = 8 << 20;

/// A log directory on a real file system, used by one shard (one glommio executor).
#[derive(Clone)]
pub struct DirectDisk {
    inner: Rc<Inner>,
}

struct Inner {
    dir: PathBuf,
    kind: DiskKind,
    keeps_unwritten: bool,
    side: RefCell<SideThread>,
    patience: Patience,
    pool: ReadPool,
}

/// An open file of a [`DirectDisk`].
pub struct DirectFile {
    file: DmaFile,
    path: PathBuf,
    writable: bool,
    pool: ReadPool,
}

impl DirectDisk {
    /// Prepares this executor for files under `dir`, which is created when missing: warms up io_uring for the device,
    /// then writes a scratch file and reads it back.
    ///
    /// # Errors
    /// When the directory cannot be used or the self test fails; the message says what to do about it.
    pub async fn open(dir: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let dir = dir.into();
        let failed = |error| DiskError::new("preparing log directory", &dir, error);
        check_absolute(&dir).map_err(failed)?;
        let probe = probe_path(&dir);
        let (probe_dir, path) = (dir.join(PRIVATE_DIR), probe.clone());
        blocking(move || {
            create_durable(&probe_dir)?;
            // Trap D2: glommio asks a device for IOPOLL by reading the first file it opens there. On an empty file the
            // read ends before the driver is asked, the answer is "supported", and every later read of this executor
            // fails with EOPNOTSUPP. So the first file opened is one that holds bytes.
            std::fs::write(&path, [0; PROBE_BYTES])?;
            std::fs::File::open(&path)?.sync_all()
        })
        .await
        .map_err(|error| failed(next_step(error)))?;
        let tested = self_test(&probe).await;
        blocking(move || std::fs::remove_file(&probe)).await.ok(); // overwritten by the next start otherwise
        let kind = tested.map_err(|error| failed(next_step(error)))?;
        let keeps_unwritten = kind == DiskKind::Direct && keeps_unwritten(&dir).map_err(failed)?;
        let side = RefCell::default();
        Ok(Self {
            inner: Rc::new(Inner {
                dir,
                kind,
                keeps_unwritten,
                side,
                patience: Patience::default(),
                pool: ReadPool::default(),
            }),
        })
    }

    /// Whether I/O here is direct or goes through the page cache.
    #[must_use]
    pub fn kind(&self) -> DiskKind {
        self.inner.kind
    }

    /// The log directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Runs a blocking call of `operation` on `path` off the executor.
    async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &Path,
        job: impl Fn(PathBuf) -> io::Result<T> + Clone + Send + 'static,
    ) -> Result<T, DiskError> {
        let attempt = async || {
            check_absolute(path)?;
            let (path, job) = (path.to_owned(), job.clone());
            blocking(move || job(path)).await
        };
        let result = self.inner.patience.with(attempt).await;
        result.map_err(|error| DiskError::new(operation, path, error))
    }
}

/// Runs `work` with a disk on `dir` on an executor of its own, on a thread of its own, and waits for it: for tools and
/// tests. The shards' executors are made by the runtime, with its mitigations (trap D1 among them).
///
/// # Errors
/// When the directory cannot be used, io_uring is not available or `work` panics.
pub fn run_with_disk<T, F>(
    dir: &Path,
    work: impl FnOnce(DirectDisk) -> F + Send + 'static,
) -> Result<T, DiskError>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    let opened = dir.to_owned();
    let run = move || -> Result<T, DiskError> {
        let executor = LocalExecutorBuilder::new(Placement::Unbound)
            .io_memory(TOOL_ARENA_BYTES)
            .make();
        let executor = executor.map_err(|error| DiskError::new("executor for", &opened, into_io(error)))?;
        executor.run(async move { Ok(work(DirectDisk::open(opened).await?).await) })
    };
    let joined = std::thread::spawn(run).join();
    joined.unwrap_or_else(|_| {
        let error = io::Error::other("the executor's thread panicked; its message is above");
        Err(DiskError::new("work in", dir, error))
    })
}

impl Disk for DirectDisk {
    type File = DirectFile;
    type Buf = DirectBuf;

    fn keeps_unwritten(&self) -> bool {
        self.inner.keeps_unwritten
    }

    fn alloc(&self, len: usize) -> DirectBuf {
        alloc(len)
    }

    async fn open(&self, path: &Path, mode: OpenMode) -> Result<DirectFile, DiskError> {
        let attempt = async || {
            check_absolute(path)?;
            open(path, mode).await
        };
        let opened = self.inner.patience.with(attempt).await;
        let file = opened.map_err(|error| DiskError::new("open", path, error))?;
        self.inner.patience.recovered();
        Ok(DirectFile {
            file,
            path: path.to_owned(),
            writable: mode != OpenMode::Read,
            pool: self.inner.pool.clone(),
        })
    }

    async fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, DiskError> {
        self.call("list", dir, |dir| list(&dir)).await
    }

    async fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        self.call("create directory", dir, std::fs::create_dir_all).await
    }

    async fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.call("remove", path, std::fs::remove_file).await
    }

    async fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.call("remove", dir, std::fs::remove_dir_all).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let target = to.to_owned();
        let rename = move |from: PathBuf| {
            check_absolute(&target)?;
            std::fs::rename(from, &target)
        };
        self.call("rename", from, rename).await
    }

    async fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let sync = |dir: PathBuf| {
            let dir = std::fs::File::open(dir)?;
            if !dir.metadata()?.is_dir() {
                return Err(io::ErrorKind::NotADirectory.into());
            }
            dir.sync_all()
        };
        self.call("sync of directory", dir, sync).await
    }

    async fn sync_filesystem(&self, dir: &Path) -> Result<(), DiskError> {
        let failed = |error| DiskError::new("sync of file system", dir, error);
        check_absolute(dir).map_err(failed)?;
        let attempt = async || {
            let path = dir.to_owned();
            let started = self.inner.side.borrow_mut().run(move || sync_filesystem(&path));
            started?.await
        };
        self.inner.patience.with(attempt).await.map_err(failed)
    }

    async fn space(&self, dir: &Path) -> Result<Space, DiskError> {
        self.call("space query", dir, |dir| space(&dir)).await
    }
}

impl DirectFile {
    fn error(&self, operation: &'static str, error: io::Error) -> DiskError {
        DiskError::new(operation, &self.path, error)
    }

    fn check_writable(&self, operation: &'static str) -> Result<(), DiskError> {
        if self.writable {
            return Ok(());
        }
        let error = io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the file is open for reading only",
        );
        Err(self.error(operation, error))
    }

    /// Writes one buffer of at most [`IO_BYTES_MAX`], carrying a short write on.
    async fn write_chunk(&self, buf: Rc<DirectBuf>, position: u64) -> io::Result<()> {
        let mut buf = into_dma(buf);
        let mut position = position;
        loop {
            let len = buf.as_bytes().len();
            let written = self
                .file
                .write_rc_at(Rc::clone(&buf), position)
                .await
                .map_err(into_io)?;
            if written >= len {
                return Ok(());
            }
            // A short write is how a full disk or a file size limit begins; the next one brings the reason. Direct I/O
            // can only go on from a whole block, so what was written of the last one is written again.
            let done = written - written % BLOCK_BYTES;
            if done == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            let mut rest = alloc(len - done);
            rest.copy_from_slice(buf.as_bytes().get(done..).unwrap_or_default());
            position += done as u64;
            buf = into_dma(Rc::new(rest));
        }
    }

    /// Reads the whole blocks that hold the range and cuts it out.
    async fn read(&self, position: u64, len: usize) -> io::Result<Bytes> {
        let end = position
            .checked_add(len as u64)
            .filter(|end| i64::try_from(*end).is_ok_and(|end| end <= i64::MAX - BLOCK_BYTES as i64))
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut out = self.pool.take(len);
        let mut at = align_down(position);
        while at < end {
            let want = align_up(end - at).min(IO_BYTES_MAX as u64);
            let size = usize::try_from(want).map_err(|_| io::ErrorKind::InvalidInput)?;
            // Trap D3: `DmaFile::read_at` returns bytes that the file does not hold when it is misaligned near the
            // end; `read_at_aligned` returns what was read, and the slice is ours to cut.
            let read = self.file.read_at_aligned(at, size).await.map_err(into_io)?;
            let skip = usize::try_from(position.saturating_sub(at)).unwrap_or(usize::MAX);
            let take = usize::try_from(end - at).unwrap_or(usize::MAX).min(read.len());
            out.extend_from_slice(read.get(skip..take).unwrap_or_default());
            at += read.len() as u64;
            if read.len() < size && (read.is_empty() || !read.len().is_multiple_of(BLOCK_BYTES)) {
                break; // the end of the file; a short read of whole blocks goes on
            }
        }
        Ok(self.pool.lend(out))
    }
}

impl DiskFile for DirectFile {
    type Buf = DirectBuf;

    async fn write_at(&self, buf: Rc<DirectBuf>, position: u64) -> Result<(), DiskError> {
        self.check_writable("write")?;
        if !position.is_multiple_of(BLOCK_BYTES as u64) || !buf.len().is_multiple_of(BLOCK_BYTES) {
            let reason = "position or length is not a multiple of the block size";
            let error = io::Error::new(io::ErrorKind::InvalidInput, reason);
            return Err(self.error("write", error));
        }
        if buf.len() <= IO_BYTES_MAX {
            let written = self.write_chunk(buf, position).await;
            return written.map_err(|error| self.error("write", error));
        }
        // glommio writes whole buffers only, so a larger one is split at the price of a copy.
        for (index, chunk) in buf.chunks(IO_BYTES_MAX).enumerate() {
            let mut part = alloc(chunk.len());
            part.copy_from_slice(chunk);
            let at = position + (index * IO_BYTES_MAX) as u64;
            let written = self.write_chunk(Rc::new(part), at).await;
            written.map_err(|error| self.error("write", error))?;
        }
        Ok(())
    }

    async fn read_at(&self, position: u64, len: usize) -> Result<Bytes, DiskError> {
        let read = self.read(position, len).await;
        read.map_err(|error| self.error("read", error))
    }

    async fn sync(&self) -> Result<(), DiskError> {
        let synced = self.file.fdatasync().await;
        synced.map_err(|error| self.error("sync", into_io(error)))
    }

    async fn allocate(&self, size: u64) -> Result<(), DiskError> {
        self.check_writable("allocate")?;
        if size <= self.size().await? {
            return Ok(());
        }
        // The size is extended too (no `keep_size`): extending i_size with each direct write takes ext4's exclusive
        // inode lock and halves the throughput (measured, reference/glommio.md §3.3).
        let allocated = self.file.pre_allocate(size, false).await.map_err(into_io);
        match allocated {
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => self.truncate(size).await,
            other => other.map_err(|error| self.error("allocate", error)),
        }
    }

    async fn truncate(&self, size: u64) -> Result<(), DiskError> {
        self.check_writable("truncate")?;
        let truncated = match i64::try_from(size) {
            Ok(_) => self.file.truncate(size).await.map_err(into_io),
            Err(_) => Err(io::ErrorKind::FileTooLarge.into()),
        };
        truncated.map_err(|error| self.error("truncate", error))
    }

    async fn size(&self) -> Result<u64, DiskError> {
        // Trap D10: glommio's `file_size` asks by path, which fails or answers for another file after a rename.
        let stat = stat(&self.file).map_err(|error| self.error("size query", error))?;
        Ok(u64::try_from(stat.st_size).unwrap_or(0))
    }

    async fn close(self) -> Result<(), DiskError> {
        let closed = self.file.close().await;
        closed.map_err(|error| DiskError::new("close", self.path, into_io(error)))
    }
}

impl fmt::Debug for DirectFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DirectFile({})", self.path.display())
    }
}

async fn open(path: &Path, mode: OpenMode) -> io::Result<DmaFile> {
    let mut options = OpenOptions::new();
    options.read(true).write(mode != OpenMode::Read);
    match mode {
        OpenMode::Read | OpenMode::ReadWrite => {}
        OpenMode::ReadWriteDurable => {
            options.custom_flags(libc::O_DSYNC);
        }
        OpenMode::CreateNew => {
            options.create_new(true);
        }
        OpenMode::CreateOrTruncate => {
            options.create(true).truncate(true);
        }
    }
    // Trap D10, its other half: after opening, glommio asks about the *path* and unwraps the answer, so a file that is
    // renamed or removed meanwhile would panic the executor. It is then as if the open had come a moment later.
    let opened = AssertUnwindSafe(options.dma_open(path)).catch_unwind().await;
    let file = opened
        .map_err(|_| io::Error::from(io::ErrorKind::NotFound))?
        .map_err(into_io)?;
    if mode == OpenMode::ReadWriteDurable {
        check_flag(&file, libc::O_DSYNC)?;
    }
    let file_type = stat(&file)?.st_mode & libc::S_IFMT;
    match file_type {
        libc::S_IFREG => Ok(file),
        libc::S_IFDIR => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn stat(file: &DmaFile) -> io::Result<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: the descriptor is open as long as `file` lives; the kernel fills the struct when it returns 0.
    if unsafe { libc::fstat(file.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled, see above.
    Ok(unsafe { stat.assume_init() })
}

fn sync_filesystem(dir: &Path) -> io::Result<()> {
    let dir = std::fs::File::open(dir)?;
    // SAFETY: a plain call on a descriptor that is open.
    if unsafe { libc::syncfs(dir.as_raw_fd()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn space(dir: &Path) -> io::Result<Space> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::uninit();
    // SAFETY: `path` ends in a zero byte; the kernel fills the struct when it returns 0.
    if unsafe { libc::statvfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled, see above.
    let stat: libc::statvfs = unsafe { stat.assume_init() };
    Ok(Space {
        total_bytes: stat.f_frsize.saturating_mul(stat.f_blocks),
        available_bytes: stat.f_frsize.saturating_mul(stat.f_bavail),
    })
}

fn list(dir: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        // Symbolic links are followed, as operators use them for log directories; what vanished meanwhile is not there.
        let metadata = match std::fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if entries.len() == LIST_ENTRIES_MAX {
            return Err(io::Error::other(format!("more than {LIST_ENTRIES_MAX} entries")));
        }
        let modified = metadata
            .modified()?
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        entries.push(DirEntry {
            name: entry.file_name().to_string_lossy().into_owned(),
            is_dir: metadata.is_dir(),
            size: if metadata.is_dir() { 0 } else { metadata.len() },
            modified_ms: i64::try_from(modified.as_millis()).unwrap_or(i64::MAX),
        });
    }
    entries.sort_unstable();
    Ok(entries)
}

/// Runs `job` on the executor's blocking pool; a panic in it is an error (trap D5).
async fn blocking<T: Send + 'static>(job: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    executor().spawn_blocking(move || caught(job)).await
}

/// Creates a directory with its parents, all their names durable: an acknowledged record in a log directory whose own
/// name was lost would be lost with it.
fn create_durable(dir: &Path) -> io::Result<()> {
    let Some(parent) = dir.parent().filter(|_| !dir.is_dir()) else {
        return Ok(());
    };
    create_durable(parent)?;
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {} // another shard was faster
        created => created?,
    }
    std::fs::File::open(parent)?.sync_all()
}

/// Adds to an error of the start what the operator can do about it.
fn next_step(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            "the file system refuses direct I/O: put log.dirs on ext4, XFS, btrfs, overlayfs or tmpfs"
        }
        Some(libc::EACCES | libc::EPERM) => "let the broker's user own the directory, or change log.dirs",
        Some(libc::EROFS) => "the file system is mounted read-only: remount it or change log.dirs",
        Some(libc::ENOSPC | libc::EDQUOT) => "the disk is full: free some space or change log.dirs",
        Some(libc::ENOTDIR | libc::EEXIST) => "a part of the path is a file: change log.dirs",
        Some(libc::EIO) => "the device reports errors: look at the kernel log and replace it",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

/// Trap D10: with relative paths glommio's calls fail with EBADF or mean another directory.
fn check_absolute(path: &Path) -> io::Result<()> {
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(plain) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the path is not absolute and plain",
    ))
}

/// The operating system's error inside glommio's, with its number.
fn into_io<T>(error: GlommioError<T>) -> io::Error {
    match error {
        GlommioError::EnhancedIoError { source, .. } | GlommioError::IoError(source) => source,
        other => other.into(),
    }
}
