//! The log directories of this process (`log.dirs`), and which of them work: the node's view, shared by all shards. A directory goes
//! offline once and stays so until the next start. The first holds the metadata log: the node cannot go on without it.

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
        let dirs: Box<[Dir]> = paths
            .into_iter()
            .map(|path| Dir {
                path,
                space: Arc::default(),
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

    /// What its stores know together of the directory's free space.
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
