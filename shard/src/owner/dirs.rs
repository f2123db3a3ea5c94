//! The logs of one shard in all log directories: one [`LogsIo`] for each directory, and for the owner one [`Logs`] whose handles
//! say in which a log is. A directory that could not be used at the start has none; one that fails later stays, and is offline.

use std::rc::Rc;

use bytes::Bytes;
use storage::error::AppendError;
use storage::log::{LogOffsets, LogSize};
use storage::types::{LeaderEpoch, Offset, ProducerId};

use super::logs::{Appended, Logs, Read};
use crate::env::WallMs;
use crate::ids::LogDir;

/// A log in one of the directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirLog<H> {
    /// The directory.
    pub dir: LogDir,
    /// The log there.
    pub log: H,
}

/// What belongs to one of the directories: a planned read.
#[derive(Debug)]
pub struct InDir<T> {
    /// The directory.
    pub dir: LogDir,
    /// What belongs to it.
    pub what: T,
}

/// See the module. Cheap to clone.
#[derive(Debug)]
pub struct Dirs<L>(Rc<[Option<L>]>);

impl<L> Dirs<L> {
    /// One for each of `log.dirs`, in order; `None` where it cannot be used.
    #[must_use]
    pub fn new(dirs: impl IntoIterator<Item = Option<L>>) -> Self {
        Self(dirs.into_iter().collect())
    }

    /// The logs of a directory that could be used at the start.
    #[must_use]
    pub fn get(&self, dir: LogDir) -> Option<&L> {
        self.0.get(usize::from(dir.0))?.as_ref()
    }

    /// Those that could be used at the start.
    pub fn iter(&self) -> impl Iterator<Item = (LogDir, &L)> {
        (0..)
            .map(LogDir)
            .zip(self.0.iter())
            .filter_map(|(dir, logs)| Some((dir, logs.as_ref()?)))
    }

    /// The logs of a directory that has some open.
    ///
    /// # Panics
    /// When no log of it can be open.
    #[must_use]
    pub fn of<H>(&self, log: &DirLog<H>) -> &L {
        self.get(log.dir)
            .expect("an open log lies in a directory that could be used")
    }
}

impl<L> Clone for Dirs<L> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<L: Logs> Logs for Dirs<L> {
    type Log = DirLog<L::Log>;
    type Cold = InDir<L::Cold>;

    fn append(
        &self,
        log: Self::Log,
        batch: Bytes,
        leader_epoch: LeaderEpoch,
        now: WallMs,
    ) -> Result<Appended, AppendError> {
        self.of(&log).append(log.log, batch, leader_epoch, now)
    }

    fn read(
        &self,
        log: Self::Log,
        from: Offset,
        upper: Offset,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Read<Self::Cold> {
        match self.of(&log).read(log.log, from, upper, bytes_max, at_least_one) {
            Read::Cached(records) => Read::Cached(records),
            Read::Cold { plan, bytes_max } => Read::Cold {
                plan: InDir {
                    dir: log.dir,
                    what: plan,
                },
                bytes_max,
            },
            Read::Offline => Read::Offline,
        }
    }

    fn ends(&self, log: Self::Log) -> LogOffsets {
        self.of(&log).ends(log.log)
    }

    fn size(&self, log: Self::Log) -> LogSize {
        self.of(&log).size(log.log)
    }

    fn epoch_end(&self, log: Self::Log, epoch: LeaderEpoch) -> (LeaderEpoch, Offset) {
        self.of(&log).epoch_end(log.log, epoch)
    }

    fn newest_epoch(&self, log: Self::Log) -> LeaderEpoch {
        self.of(&log).newest_epoch(log.log)
    }

    fn epoch_of(&self, log: Self::Log, offset: Offset) -> LeaderEpoch {
        self.of(&log).epoch_of(log.log, offset)
    }

    fn lead(&self, log: Self::Log, epoch: LeaderEpoch) {
        self.of(&log).lead(log.log, epoch);
    }

    fn high_watermark(&self, log: Self::Log, mark: Offset) {
        self.of(&log).high_watermark(log.log, mark);
    }

    fn aborted(&self, log: Self::Log, from: Offset, to: Offset) -> Vec<(ProducerId, Offset)> {
        self.of(&log).aborted(log.log, from, to)
    }

    fn is_offline(&self, log: Self::Log) -> bool {
        self.of(&log).is_offline(log.log)
    }

    fn dir(&self, log: Self::Log) -> LogDir {
        log.dir
    }
}
