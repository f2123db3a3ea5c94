//! A disk of plain blocking file I/O through the page cache, for tools that work on a log directory no broker has open: what
//! recovery does on a shard they do with the same code. Its futures are ready at once, so any executor runs them
//! ([`wait`]). Without rings, without O_DIRECT, on the calling thread; a broker never uses it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::time::UNIX_EPOCH;

use bytes::Bytes;

use super::{BLOCK_BYTES, DirEntry, Disk, DiskBuf, DiskError, DiskFile, OpenMode, STALE, Space, align_up};

/// Runs what works on a [`PlainDisk`] to its end.
pub fn wait<T>(work: impl Future<Output = T>) -> T {
    futures_lite::future::block_on(work)
}

/// The file systems of this host.
#[derive(Clone, Debug, Default)]
pub struct PlainDisk {
    /// Files that were changed and not synced yet.
    changed: Rc<RefCell<BTreeSet<PathBuf>>>,
}

/// An open file of a [`PlainDisk`].
#[derive(Debug)]
pub struct PlainFile {
    file: File,
    path: PathBuf,
    writable: bool,
    /// A write is synced before it ends.
    is_durable: bool,
    changed: Rc<RefCell<BTreeSet<PathBuf>>>,
}

/// A buffer of whole blocks.
#[derive(Debug)]
pub struct PlainBuf(Vec<u8>);

impl PlainDisk {
    /// The disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// Carries out `operation` on `path`, which is absolute and plain, as on every disk.
fn call<T>(
    operation: &'static str,
    path: &Path,
    job: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, DiskError> {
    check_absolute(path)
        .and_then(|()| job(path))
        .map_err(|error| DiskError::new(operation, path, error))
}

fn check_absolute(path: &Path) -> io::Result<()> {
    let plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(plain) {
        return Ok(());
    }
    let reason = "the path is not absolute and plain";
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

impl Disk for PlainDisk {
    type File = PlainFile;
    type Buf = PlainBuf;

    fn keeps_unwritten(&self) -> bool {
        false
    }

    fn alloc(&self, len: usize) -> PlainBuf {
        let len = usize::try_from(align_up(len.max(1) as u64)).expect("a buffer length fits usize");
        PlainBuf(vec![STALE; len])
    }

    async fn open(&self, path: &Path, mode: OpenMode) -> Result<PlainFile, DiskError> {
        let file = call("open", path, |path| open(path, mode))?;
        if matches!(mode, OpenMode::CreateNew | OpenMode::CreateOrTruncate) {
            self.changed.borrow_mut().insert(path.to_owned());
        }
        Ok(PlainFile {
            file,
            path: path.to_owned(),
            writable: mode != OpenMode::Read,
            is_durable: mode == OpenMode::ReadWriteDurable,
            changed: self.changed.clone(),
        })
    }

    async fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, DiskError> {
        call("list", dir, list)
    }

    async fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        call("create", dir, |dir| fs::create_dir_all(dir))
    }

    async fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        self.changed.borrow_mut().remove(path);
        call("remove", path, |path| fs::remove_file(path))
    }

    async fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        self.changed.borrow_mut().retain(|path| !path.starts_with(dir));
        call("remove", dir, |dir| fs::remove_dir_all(dir))
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        call("rename", from, |from| {
            check_absolute(to)?;
            fs::rename(from, to)
        })?;
        let mut changed = self.changed.borrow_mut();
        let moved: Vec<PathBuf> = changed
            .iter()
            .filter(|path| path.starts_with(from))
            .cloned()
            .collect();
        for path in moved {
            changed.remove(&path);
            match path.strip_prefix(from) {
                Ok(rest) if !rest.as_os_str().is_empty() => changed.insert(to.join(rest)),
                _ => changed.insert(to.to_owned()),
            };
        }
        Ok(())
    }

    async fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        call("sync", dir, |dir| open_dir(dir)?.sync_all())
    }

    /// Syncs every file that was changed through this disk and not synced yet.
    async fn sync_filesystem(&self, dir: &Path) -> Result<(), DiskError> {
        call("sync", dir, |dir| open_dir(dir).map(drop))?;
        let changed = std::mem::take(&mut *self.changed.borrow_mut());
        for path in changed {
            match File::open(&path).and_then(|file| file.sync_all()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(DiskError::new("sync", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Not known here: nothing is allocated ahead.
    async fn space(&self, dir: &Path) -> Result<Space, DiskError> {
        Err(DiskError::new(
            "space query",
            dir,
            io::ErrorKind::Unsupported.into(),
        ))
    }
}

fn open(path: &Path, mode: OpenMode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    match mode {
        OpenMode::Read => &mut options,
        OpenMode::ReadWrite | OpenMode::ReadWriteDurable => options.write(true),
        OpenMode::CreateNew => options.write(true).create_new(true),
        OpenMode::CreateOrTruncate => options.write(true).create(true).truncate(true),
    };
    let file = options.open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

fn open_dir(dir: &Path) -> io::Result<File> {
    let file = File::open(dir)?;
    if !file.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(file)
}

/// The entries of a directory in name order. Names that are not UTF-8 are nobody's and left out.
fn list(dir: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let metadata = entry.metadata()?;
        let modified = metadata
            .modified()
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        entries.push(DirEntry {
            name,
            is_dir: metadata.is_dir(),
            size: if metadata.is_dir() { 0 } else { metadata.len() },
            modified_ms: modified.map_or(0, |at| i64::try_from(at.as_millis()).unwrap_or(i64::MAX)),
        });
    }
    entries.sort();
    Ok(entries)
}

impl PlainFile {
    /// Carries out a change.
    fn change<T>(
        &self,
        operation: &'static str,
        job: impl FnOnce(&File) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        let changed = if self.writable {
            self.changed.borrow_mut().insert(self.path.clone());
            job(&self.file)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        };
        changed.map_err(|error| DiskError::new(operation, &self.path, error))
    }
}

impl DiskFile for PlainFile {
    type Buf = PlainBuf;

    async fn write_at(&self, buf: Rc<PlainBuf>, position: u64) -> Result<(), DiskError> {
        self.change("write", |file| {
            if !position.is_multiple_of(BLOCK_BYTES as u64) {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            file.write_all_at(&buf, position)
        })?;
        if self.is_durable {
            return self.sync().await;
        }
        Ok(())
    }

    async fn read_at(&self, position: u64, len: usize) -> Result<Bytes, DiskError> {
        read_up_to(&self.file, position, len)
            .map(Bytes::from)
            .map_err(|error| DiskError::new("read", &self.path, error))
    }

    async fn sync(&self) -> Result<(), DiskError> {
        self.changed.borrow_mut().remove(&self.path);
        let synced = self.file.sync_data();
        synced.map_err(|error| DiskError::new("sync", &self.path, error))
    }

    async fn allocate(&self, size: u64) -> Result<(), DiskError> {
        self.change("allocate", |file| {
            if file.metadata()?.len() < size {
                file.set_len(size)?;
            }
            Ok(())
        })
    }

    async fn truncate(&self, size: u64) -> Result<(), DiskError> {
        self.change("truncate", |file| file.set_len(size))
    }

    async fn size(&self) -> Result<u64, DiskError> {
        let metadata = self.file.metadata();
        let metadata = metadata.map_err(|error| DiskError::new("size query", &self.path, error))?;
        Ok(metadata.len())
    }

    async fn close(self) -> Result<(), DiskError> {
        Ok(())
    }
}

/// Up to `len` bytes at `position`; fewer where the file ends. Nothing is allocated that the file does not have.
pub(crate) fn read_up_to(file: &File, position: u64, len: usize) -> io::Result<Vec<u8>> {
    let left = file.metadata()?.len().saturating_sub(position);
    let mut bytes = vec![0; len.min(usize::try_from(left).unwrap_or(len))];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, position + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

impl Deref for PlainBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for PlainBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl DiskBuf for PlainBuf {
    fn trim(&mut self, len: usize) {
        self.0.truncate(len);
    }
}
