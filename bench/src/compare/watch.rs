//! What is seen from outside while a workload goes on: how much the page cache of the host grows, and what the device writes. The
//! first is the host's, so that it means something on a quiet host only.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::figure::{Figure, Figures};

/// How often the page cache is looked at.
const INTERVAL: Duration = Duration::from_millis(50);
/// Bytes of a sector in the statistics of block devices, whatever the device's.
const SECTOR_BYTES: u64 = 512;

/// The page cache before a broker began, and the device that holds its data.
#[derive(Clone, Debug)]
pub(super) struct Place {
    cached_before: Option<u64>,
    statistics: Option<PathBuf>,
}

/// A workload that goes on.
pub(super) struct Watch {
    place: Place,
    device_before: Option<u64>,
    is_over: Arc<AtomicBool>,
    cached_most: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Place {
    /// Before a broker begins that has its data below `dir`.
    pub(super) fn before(dir: &Path) -> Self {
        Self {
            cached_before: cached_bytes(),
            statistics: statistics(dir),
        }
    }

    /// Begins to watch.
    pub(super) fn watch(&self) -> Watch {
        let is_over = Arc::new(AtomicBool::new(false));
        let cached_most = Arc::new(AtomicU64::new(0));
        let (over, most) = (is_over.clone(), cached_most.clone());
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(cached_bytes().unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(INTERVAL);
            }
        });
        Watch {
            place: self.clone(),
            device_before: self.device_written(),
            is_over,
            cached_most,
            thread,
        }
    }

    fn device_written(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.statistics.as_ref()?).ok()?;
        sectors_written(&text).map(|sectors| sectors * SECTOR_BYTES)
    }
}

impl Watch {
    /// The workload is over.
    pub(super) fn end(self, figures: &mut Figures) {
        self.is_over.store(true, Ordering::Relaxed);
        // It holds nothing that a panic would leave in disorder.
        let _ = self.thread.join();
        if let Some(before) = self.place.cached_before {
            let most = self.cached_most.load(Ordering::Relaxed);
            figures.set(Figure::PageCache, most.saturating_sub(before) as f64 / 1e6);
        }
        if let Some((before, after)) = self.device_before.zip(self.place.device_written()) {
            figures.set(Figure::DeviceMegabytes, after.saturating_sub(before) as f64 / 1e6);
        }
    }
}

/// Bytes of the page cache.
fn cached_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("Cached:"))?;
    let kib = line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()?;
    Some(kib * 1024)
}

/// The statistics of the block device that holds `dir`; none on a file system without one.
fn statistics(dir: &Path) -> Option<PathBuf> {
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    path.exists().then_some(path)
}

/// The seventh field.
fn sectors_written(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_page_cache_grows_by_is_seen() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        // Others on this host may give as much back meanwhile, though not each time.
        let grown = (0..10).map(|number| {
            let place = Place::before(dir.path());
            let watch = place.watch();
            std::fs::write(dir.path().join(number.to_string()), vec![1u8; 64 << 20]).expect("written");
            std::thread::sleep(4 * INTERVAL);
            let mut figures = Figures::default();
            watch.end(&mut figures);
            figures.get(Figure::PageCache).expect("/proc/meminfo is there")
        });
        let grown: Vec<f64> = grown.take_while(|grown| *grown < 60.0).collect();
        assert!(grown.len() < 10, "{grown:?}");
    }

    #[test]
    fn the_seventh_field_is_what_was_written() {
        let text = "  100 2 3000 4 500 6 7000 8 0 9 10 11 12 13 14 15 16\n";
        assert_eq!(sectors_written(text), Some(7000));
        assert_eq!(sectors_written(""), None);
    }
}
