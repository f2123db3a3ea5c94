//! Which log directory holds which partition of this node. Node-local, like the placement on shards: what is on disk says it at a
//! start, and a new partition goes where the fewest are (Kafka's rule). Lives beside the controller, which tells the shards.

use std::collections::BTreeMap;

use shard::ids::LogDir;
use storage::types::{LogId, TopicId};

use crate::log_dirs::LogDirs;

/// See the module. Memory: nothing with one directory, else about 40 bytes a partition.
#[derive(Debug)]
pub struct Homes {
    dirs: LogDirs,
    /// Where the directories of logs were found at the start, by name; taken out as they are placed.
    found: BTreeMap<String, LogDir>,
    /// Those that were found more than once, and the topics that they belong to.
    repeated: BTreeMap<String, Vec<(LogDir, Option<TopicId>)>>,
    placed: BTreeMap<LogId, LogDir>,
    partitions: Vec<usize>,
    /// A directory that this node had is not there.
    is_incomplete: bool,
}

/// Where a partition is that cannot be found: in no directory that there is.
pub const NOWHERE: LogDir = LogDir(u16::MAX);

impl Homes {
    /// Nothing is placed yet in `dirs`.
    #[must_use]
    pub fn new(dirs: LogDirs) -> Self {
        let partitions = vec![0; dirs.len()];
        Self {
            dirs,
            found: BTreeMap::new(),
            repeated: BTreeMap::new(),
            placed: BTreeMap::new(),
            partitions,
            is_incomplete: false,
        }
    }

    /// A directory that this node had is not there: it was not mounted, or is not in `log.dirs` any more.
    pub fn miss_one(&mut self) {
        self.is_incomplete = true;
    }

    /// What was found and not placed belongs to no partition of this node: not kept any longer.
    pub fn all_are_placed(&mut self) {
        self.found = BTreeMap::new();
        self.repeated = BTreeMap::new();
    }

    /// At the start there is a directory of that name in `dir`.
    ///
    /// # Errors
    /// The other directory that has one of that name, too.
    pub fn found(&mut self, name: &str, dir: LogDir) -> Result<(), LogDir> {
        match self.found.insert(name.to_owned(), dir) {
            Some(other) if other != dir => Err(other),
            _ => Ok(()),
        }
    }

    /// There is another directory of that name: to whom the one in `dir` belongs.
    pub fn found_again(&mut self, name: &str, dir: LogDir, topic: Option<TopicId>) {
        let all = self.repeated.entry(name.to_owned()).or_default();
        if all.iter().all(|(known, _)| *known != dir) {
            all.push((dir, topic));
        }
    }

    /// The directory of a partition whose log's directory is called `name`. `is_new`: the partition was created just now.
    /// Where another is not found, and a directory is missing in which it may be, the answer is [`NOWHERE`]: it must not begin
    /// anew elsewhere.
    pub fn place(&mut self, log: LogId, name: &str, is_new: bool) -> LogDir {
        let mut found = self.found.remove(name);
        if let Some(all) = self.repeated.remove(name) {
            let mut mine = all.iter().filter(|(_, topic)| *topic == Some(log.topic));
            found = mine.next().map(|(dir, _)| *dir);
            if let (Some(one), Some((other, _))) = (found, mine.next()) {
                tracing::error!(
                    name,
                    one = self.dirs.path(one),
                    other = self.dirs.path(*other),
                    "in two log directories: the partition stays offline until one is moved away"
                );
                return NOWHERE;
            }
        }
        let is_incomplete = self.is_incomplete || self.dirs.offline() > 0;
        if found.is_none() && !is_new && is_incomplete && !self.placed.contains_key(&log) {
            return NOWHERE;
        }
        if self.dirs.len() == 1 {
            return LogDir(0);
        }
        if let Some(dir) = self.placed.get(&log) {
            return *dir;
        }
        let dir = found.unwrap_or_else(|| self.roomiest());
        self.placed.insert(log, dir);
        if let Some(count) = self.partitions.get_mut(usize::from(dir.0)) {
            *count += 1;
        }
        dir
    }

    /// The partition is gone.
    pub fn remove(&mut self, log: LogId) {
        if let Some(dir) = self.placed.remove(&log)
            && let Some(count) = self.partitions.get_mut(usize::from(dir.0))
        {
            *count -= 1;
        }
    }

    /// The directory with the fewest partitions of those that work; the first of them in `log.dirs`.
    fn roomiest(&self) -> LogDir {
        let counted = self.dirs.iter().zip(&self.partitions);
        counted
            .filter(|((_, _, is_online), _)| *is_online)
            .min_by_key(|(_, partitions)| **partitions)
            .map_or(LogDir(0), |((dir, _, _), _)| dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(partition: i32) -> LogId {
        LogId {
            topic: TopicId([1; 16]),
            partition,
        }
    }

    fn dirs(count: usize) -> LogDirs {
        LogDirs::new((0..count).map(|n| format!("/d{n}").into()))
    }

    #[test]
    fn a_new_partition_goes_where_the_fewest_are_and_an_old_one_stays() {
        let mut homes = Homes::new(dirs(3));
        homes.found("t-7", LogDir(2)).expect("once");
        assert_eq!(homes.place(log(7), "t-7", false), LogDir(2));
        let placed: Vec<u16> = (0..4).map(|n| homes.place(log(n), "t-n", true).0).collect();
        assert_eq!(placed, [0, 1, 0, 1], "the third has one already");
        homes.remove(log(7));
        assert_eq!(homes.place(log(9), "t-9", true), LogDir(2));
        assert_eq!(homes.place(log(0), "t-0", false), LogDir(0), "it is known");
    }

    #[test]
    fn what_may_be_in_a_missing_directory_does_not_begin_anew_elsewhere() {
        let dirs = dirs(2);
        let mut homes = Homes::new(dirs.clone());
        assert!(dirs.fail(LogDir(1)) && !dirs.fail(LogDir(1)));
        assert_eq!(homes.place(log(0), "t-0", false), NOWHERE);
        assert_eq!(homes.place(log(1), "t-1", true), LogDir(0));
        let mut homes = Homes::new(self::dirs(1));
        homes.found("t-0", LogDir(0)).expect("once");
        homes.miss_one();
        let placed = [0, 1].map(|n| homes.place(log(n), &format!("t-{n}"), false));
        assert_eq!(
            placed,
            [LogDir(0), NOWHERE],
            "the second directory is not in log.dirs any more"
        );
    }

    #[test]
    fn a_name_in_two_directories_is_found_out() {
        let mut homes = Homes::new(dirs(2));
        homes.found("t-0", LogDir(0)).expect("once");
        assert_eq!(homes.found("t-0", LogDir(1)), Err(LogDir(0)));
        homes.found_again("t-0", LogDir(0), Some(TopicId([9; 16])));
        homes.found_again("t-0", LogDir(1), Some(log(0).topic));
        assert_eq!(
            homes.place(log(0), "t-0", false),
            LogDir(1),
            "the other is a former topic's"
        );

        let mut homes = Homes::new(dirs(2));
        for dir in [0, 1] {
            let _ = homes.found("t-0", LogDir(dir));
            homes.found_again("t-0", LogDir(dir), Some(log(0).topic));
        }
        assert_eq!(
            homes.place(log(0), "t-0", false),
            NOWHERE,
            "nobody knows which is the newer one"
        );
    }
}
