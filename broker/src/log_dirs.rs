//! The log directories of this process (`log.dirs`), and which of them work: the node's view, shared by all shards. A directory goes
//! offline once and stays so until the next start. The first holds the metadata log: the node cannot go on without it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use shard::ids::LogDir;
use storage::checkpoint::clean_shutdown::BROKER_EPOCH_UNKNOWN;
use storage::space::shared::DirSpace;

/// The directory of the metadata log.
pub const METADATA_DIR: LogDir = LogDir(0);

/// See the module. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogDirs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dirs: Box<[Dir]>,
    stopped_epoch: AtomicI64,
}

#[derive(Debug)]
struct Dir {
    path: PathBuf,
    /// One for all directories on the same file system: they fill it together.
    space: Arc<DirSpace>,
    is_offline: AtomicBool,
}

impl LogDirs {
    /// Directories that all work, absolute, at least one.
    ///
    /// # Panics
    /// Without any, or with more than 65,535.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut spaces: Vec<(u64, Arc<DirSpace>)> = Vec::new();
        let dirs: Box<[Dir]> = paths
            .into_iter()
            .map(|path| Dir {
                space: space_at(&path, &mut spaces),
                path,
                is_offline: AtomicBool::new(false),
            })
            .collect();
        assert!(
            !dirs.is_empty() && dirs.len() <= usize::from(u16::MAX),
            "log.dirs names some"
        );
        Self(Arc::new(Inner {
            dirs,
            stopped_epoch: AtomicI64::new(BROKER_EPOCH_UNKNOWN),
        }))
    }

    /// How many there are.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.dirs.len()
    }

    /// All, in the order of `log.dirs`, and whether each works.
    pub fn iter(&self) -> impl Iterator<Item = (LogDir, &Path, bool)> {
        let numbered = (0..).map(LogDir).zip(self.0.dirs.iter());
        numbered.map(|(number, dir)| {
            (
                number,
                dir.path.as_path(),
                !dir.is_offline.load(Ordering::Relaxed),
            )
        })
    }

    /// The path of the directory of the metadata log.
    #[must_use]
    pub fn metadata(&self) -> &Path {
        self.0.dirs.first().map_or_else(|| Path::new(""), |dir| &dir.path)
    }

    /// The path of a directory, as text.
    #[must_use]
    pub fn path(&self, dir: LogDir) -> String {
        let found = self.0.dirs.get(usize::from(dir.0));
        found.map_or_else(String::new, |dir| dir.path.display().to_string())
    }

    /// How many directories fill the file system of this one, itself included.
    #[must_use]
    pub fn on_file_system_of(&self, dir: LogDir) -> u16 {
        let space = self.space(dir);
        let all = self.0.dirs.iter();
        let others = all.filter(|other| Arc::ptr_eq(&other.space, &space)).count();
        u16::try_from(others).unwrap_or(u16::MAX).max(1)
    }

    /// What the stores on its file system know together of the free space.
    #[must_use]
    pub fn space(&self, dir: LogDir) -> Arc<DirSpace> {
        let found = self.0.dirs.get(usize::from(dir.0));
        found.map_or_else(Arc::default, |dir| dir.space.clone())
    }

    /// Whether the directory works.
    #[must_use]
    pub fn is_online(&self, dir: LogDir) -> bool {
        self.0
            .dirs
            .get(usize::from(dir.0))
            .is_some_and(|dir| !dir.is_offline.load(Ordering::Relaxed))
    }

    /// The directory does not work any more; returns whether it did so far.
    pub fn fail(&self, dir: LogDir) -> bool {
        self.0
            .dirs
            .get(usize::from(dir.0))
            .is_some_and(|dir| !dir.is_offline.swap(true, Ordering::Relaxed))
    }

    /// How many do not work.
    #[must_use]
    pub fn offline(&self) -> usize {
        self.iter().filter(|(_, _, is_online)| !is_online).count()
    }

    /// The paths, separated by commas, as `log.dirs` has them.
    #[must_use]
    pub fn shown(&self) -> String {
        let paths: Vec<String> = self
            .iter()
            .map(|(_, path, _)| path.display().to_string())
            .collect();
        paths.join(",")
    }

    /// The clean stop before this start was under this epoch: its mark in the metadata log's directory said so.
    pub fn note_clean_stop(&self, broker_epoch: i64) {
        self.0.stopped_epoch.store(broker_epoch, Ordering::Relaxed);
    }

    /// The broker epoch of the stop before, when it was clean; [`BROKER_EPOCH_UNKNOWN`] otherwise.
    #[must_use]
    pub fn stopped_epoch(&self) -> i64 {
        self.0.stopped_epoch.load(Ordering::Relaxed)
    }
}

/// The space of the file system that a directory is on; one of its own where that is not to be found out.
fn space_at(dir: &Path, known: &mut Vec<(u64, Arc<DirSpace>)>) -> Arc<DirSpace> {
    let Ok(found) = std::fs::metadata(dir) else {
        return Arc::default();
    };
    let same = known.iter().find(|(device, _)| *device == found.dev());
    let space = same.map_or_else(Arc::default, |(_, space)| space.clone());
    if same.is_none() {
        known.push((found.dev(), space.clone()));
    }
    space
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_on_one_file_system_share_what_is_known_of_its_space() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let there = ["a", "b"].map(|name| root.path().join(name));
        for path in &there {
            std::fs::create_dir(path).expect("made");
        }
        let elsewhere = ["/sys", "/none/such/1", "/none/such/2"].map(PathBuf::from);
        let dirs = LogDirs::new(there.into_iter().chain(elsewhere));
        assert!(Arc::ptr_eq(&dirs.space(LogDir(0)), &dirs.space(LogDir(1))));
        let shared: Vec<u16> = (0..5)
            .map(|number| dirs.on_file_system_of(LogDir(number)))
            .collect();
        assert_eq!(shared, [2, 2, 1, 1, 1]);
    }
}
