//! How a file system takes our I/O: a scratch file is written and read back before a directory is used.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use glommio::io::DmaFile;

use super::buf::alloc;
use super::pool::ReadPool;
use super::{DirectFile, into_io, open};
use crate::disk::{BLOCK_BYTES, DiskFile, OpenMode};
use crate::layout::PRIVATE_DIR;

/// Bytes of the self test: more than a block, so that the probe of trap D2 finds a file that is not empty.
pub(super) const PROBE_BYTES: usize = 2 * BLOCK_BYTES;

/// How a file system takes our I/O: part of the start-up sentence and of health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskKind {
    /// O_DIRECT: past the page cache, straight to the device.
    Direct,
    /// The file system has no O_DIRECT (tmpfs): reads and writes go through memory.
    Buffered,
}

impl fmt::Display for DiskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        })
    }
}

/// Opens the probe (the warm-up of trap D2), then writes and reads it: what every log will do here.
pub(super) async fn self_test(probe: &Path) -> io::Result<DiskKind> {
    let file = open(probe, OpenMode::Read).await?;
    file.close().await.map_err(into_io)?;
    let file = open(probe, OpenMode::CreateOrTruncate).await?;
    let kind = kind_of(&file)?;
    let file = DirectFile {
        file,
        path: probe.to_owned(),
        writable: true,
        pool: ReadPool::default(),
    };
    let mut buf = alloc(PROBE_BYTES);
    for (index, byte) in buf.iter_mut().enumerate() {
        *byte = u8::try_from(index % 251).unwrap_or(0);
    }
    let buf = Rc::new(buf);
    file.write_at(Rc::clone(&buf), 0)
        .await
        .map_err(|error| error.source)?;
    file.sync().await.map_err(|error| error.source)?;
    let found = file
        .read_at(0, PROBE_BYTES + 1)
        .await
        .map_err(|error| error.source)?;
    if found[..] != buf[..] {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the self test read other bytes than it wrote: this device does not do direct I/O properly; \
             put log.dirs on another file system",
        ));
    }
    file.close().await.map_err(|error| error.source)?;
    Ok(kind)
}

fn kind_of(file: &DmaFile) -> io::Result<DiskKind> {
    match flags_of(file)? & libc::O_DIRECT {
        0 => Ok(DiskKind::Buffered),
        _ => Ok(DiskKind::Direct),
    }
}

/// Refuses a file that was opened without `flag`: nobody would notice that it does not do what was promised.
pub(super) fn check_flag(file: &DmaFile, flag: i32) -> io::Result<()> {
    if flags_of(file)? & flag == flag {
        return Ok(());
    }
    let reason = "the file was opened without the flags that were asked for";
    Err(io::Error::new(io::ErrorKind::Unsupported, reason))
}

fn flags_of(file: &DmaFile) -> io::Result<i32> {
    // SAFETY: a plain query on a descriptor that is open.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } {
        -1 => Err(io::Error::last_os_error()),
        flags => Ok(flags),
    }
}

/// Whether the file system of `dir` keeps blocks that were allocated and never written apart: ext4 and XFS. One that copies on
/// write would need new space for each block that was written before.
pub(super) fn keeps_unwritten(dir: &Path) -> io::Result<bool> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    let mut stat = MaybeUninit::uninit();
    // SAFETY: `path` ends in a zero byte; the kernel fills the struct when it returns 0.
    if unsafe { libc::statfs(path.as_ptr(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled, see above.
    let stat: libc::statfs = unsafe { stat.assume_init() };
    Ok([libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC].contains(&stat.f_type))
}

/// A scratch file of its own for each executor of this process. Process ids repeat, in containers at every start, so a
/// left-over is overwritten and they do not pile up.
pub(super) fn probe_path(dir: &Path) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    dir.join(PRIVATE_DIR).join(format!("probe-{pid}-{number}"))
}
