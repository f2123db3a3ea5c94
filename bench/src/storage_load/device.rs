//! What the device does without a broker: direct sequential reads and writes of 1 MiB, several under way.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nix::libc::O_DIRECT;

use crate::error::{Doing, Error, Result};

/// Bytes of one read or write.
const EXTENT_BYTES: usize = 1 << 20;

/// Alignment of buffers.
const BLOCK_BYTES: usize = 4096;

/// Threads, each with one read or write under way.
const THREADS: usize = 4;

/// A buffer that a direct read or write can use.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
}

impl Aligned {
    fn new() -> Self {
        let bytes = vec![0x5a; EXTENT_BYTES + BLOCK_BYTES];
        let from = bytes.as_ptr().align_offset(BLOCK_BYTES).min(BLOCK_BYTES);
        Self { bytes, from }
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + EXTENT_BYTES]
    }
}

/// Runs `work` on all threads with the numbers of extents below `extents`; megabytes (10^6) a second of `bytes`.
fn side_by_side(
    extents: u64,
    bytes: u64,
    work: impl Fn(u64, &mut [u8]) -> std::io::Result<()> + Sync,
) -> Result<f64> {
    let next = AtomicU64::new(0);
    let began = Instant::now();
    let outcome: std::io::Result<()> = std::thread::scope(|scope| {
        let run = || {
            let mut buffer = Aligned::new();
            loop {
                let extent = next.fetch_add(1, Ordering::Relaxed);
                if extent >= extents {
                    return Ok(());
                }
                work(extent, buffer.slice())?;
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked")))
        })
    });
    outcome.doing("reading or writing the device")?;
    Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
}

/// MB/s of reading the files one after the other, whole extents only, up to `bytes_max`.
///
/// # Errors
/// The system's; a file system without direct I/O is one.
pub(super) fn read_rate(files: &[PathBuf], bytes_max: u64) -> Result<f64> {
    let mut places: Vec<(usize, u64)> = Vec::new();
    let mut open: Vec<File> = Vec::new();
    for path in files {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(O_DIRECT)
            .open(path)
            .doing(path.display())?;
        let extents = file.metadata().doing(path.display())?.len() / EXTENT_BYTES as u64;
        places.extend((0..extents).map(|extent| (open.len(), extent * EXTENT_BYTES as u64)));
        open.push(file);
    }
    places.truncate(usize::try_from(bytes_max / EXTENT_BYTES as u64).unwrap_or(usize::MAX));
    if places.is_empty() {
        return Err(Error::Failed("nothing to read from the device".into()));
    }
    let extents = places.len() as u64;
    side_by_side(extents, extents * EXTENT_BYTES as u64, |extent, buffer| {
        let (file, at) = places[extent as usize];
        open[file].read_exact_at(buffer, at)
    })
}

/// MB/s of writing a new file of `bytes`, which is removed again, with one sync at its end.
///
/// # Errors
/// As [`read_rate`].
pub(super) fn write_rate(dir: &Path, bytes: u64) -> Result<f64> {
    let path = dir.join("device");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(O_DIRECT)
        .open(&path)
        .doing(path.display())?;
    // The size is set, as the broker does it: extending with each write is slower by half.
    let extents = bytes / EXTENT_BYTES as u64;
    nix::fcntl::posix_fallocate(&file, 0, i64::try_from(bytes).unwrap_or(i64::MAX))
        .map_err(std::io::Error::from)
        .doing(path.display())?;
    let began = Instant::now();
    side_by_side(extents, bytes, |extent, buffer| {
        file.write_all_at(buffer, extent * EXTENT_BYTES as u64)
    })?;
    file.sync_data().doing(path.display())?;
    let rate = (extents * EXTENT_BYTES as u64) as f64 / 1e6 / began.elapsed().as_secs_f64();
    std::fs::remove_file(&path).doing(path.display())?;
    Ok(rate)
}
