//! Which log directory holds which partition of this node. Node-local, like the placement on shards: what is on disk says it at a
//! start, and a new partition goes where the fewest are (Kafka's rule). Lives beside the controller, which tells the shards.

use std::collections::BTreeMap;

use shard::ids::LogDir;
use storage::types::{LogId, Offset, TopicId};

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
    /// Where partitions go that are created, by name: as AlterReplicaLogDirs said, for this run.
    preferred: BTreeMap<String, LogDir>,
    /// Whole copies that were found of partitions, by name: whose log is nowhere has been given up for one of them.
    copies: BTreeMap<String, Vec<Copy>>,
    /// Copies that were being made when the run before ended, by the partition's name: where they were.
    begun: BTreeMap<String, LogDir>,
    /// The same of partitions that were found.
    interrupted: Vec<(LogId, LogDir)>,
    /// Directories of logs that were found beside another of the same name, which is the partition's.
    others: Vec<(String, LogDir)>,
    /// A directory that this node had is not there.
    is_incomplete: bool,
}

/// A whole copy of a partition's log: where it ends, whose it is, and where it is.
type Copy = (Offset, TopicId, LogDir);

/// Partitions to be created of which a directory is kept in mind; when there are more, the first by name is forgotten.
const PREFERRED_MAX: usize = 100_000;

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
            preferred: BTreeMap::new(),
            copies: BTreeMap::new(),
            begun: BTreeMap::new(),
            interrupted: Vec::new(),
            others: Vec::new(),
            is_incomplete: false,
        }
    }

    /// A directory that this node had is not there: it was not mounted, or is not in `log.dirs` any more.
    pub fn miss_one(&mut self) {
        self.is_incomplete = true;
    }

    /// What was found and not placed belongs to no partition of this node: not kept any longer. Returns the names of the logs'
    /// directories and where they are.
    pub fn all_are_placed(&mut self) -> Vec<(String, LogDir)> {
        let mut left = std::mem::take(&mut self.others);
        left.extend(std::mem::take(&mut self.found));
        for (name, all) in std::mem::take(&mut self.repeated) {
            left.extend(all.into_iter().map(|(dir, _)| (name.clone(), dir)));
        }
        left.sort_unstable();
        left.dedup();
        self.copies = BTreeMap::new();
        self.begun = BTreeMap::new();
        left
    }

    /// Whether a directory of that name was found.
    #[must_use]
    pub fn has_found(&self, name: &str) -> bool {
        self.found.contains_key(name)
    }

    /// At the start there is a whole copy of the partition `name` in `dir`, and no log of that name in any directory.
    pub fn found_copy(&mut self, name: &str, end: Offset, topic: TopicId, dir: LogDir) {
        let copies = self.copies.entry(name.to_owned()).or_default();
        copies.push((end, topic, dir));
    }

    /// The partition `name` was on its way to `dir` when the run before ended.
    pub fn found_begun(&mut self, name: &str, dir: LogDir) {
        self.begun.insert(name.to_owned(), dir);
    }

    /// Partitions that were placed and were on their way elsewhere, each once.
    pub fn take_interrupted(&mut self) -> Vec<(LogId, LogDir)> {
        std::mem::take(&mut self.interrupted)
    }

    /// The partition of that name (`<topic>-<partition>`) goes to `dir` when it is created.
    pub fn prefer(&mut self, name: String, dir: LogDir) {
        if self.dirs.len() == 1 {
            return;
        }
        self.preferred.insert(name, dir);
        if self.preferred.len() > PREFERRED_MAX {
            self.preferred.pop_first();
        }
    }

    /// The partition has gone to `dir`.
    pub fn moved(&mut self, log: LogId, dir: LogDir) {
        let Some(home) = self.placed.get_mut(&log) else {
            return; // it was deleted meanwhile
        };
        let before = std::mem::replace(home, dir);
        self.count(before, |count| *count -= 1);
        self.count(dir, |count| *count += 1);
    }

    fn count(&mut self, dir: LogDir, change: impl FnOnce(&mut usize)) {
        if let Some(count) = self.partitions.get_mut(usize::from(dir.0)) {
            change(count);
        }
    }

    /// Where the log of the partition is by the longest of its whole copies; a shorter one was left by a move that failed.
    fn copied(&mut self, log: LogId, name: &str) -> Option<LogDir> {
        let copies = self.copies.remove(name)?;
        let its = copies.iter().filter(|(_, topic, _)| *topic == log.topic);
        its.max_by_key(|(end, _, _)| *end).map(|(_, _, dir)| *dir)
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
            let others = all.iter().filter(|(dir, _)| Some(*dir) != found);
            self.others.extend(others.map(|(dir, _)| (name.to_owned(), *dir)));
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
        let preferred = self
            .preferred
            .remove(name)
            .filter(|dir| self.dirs.is_online(*dir));
        let dir = found
            .or_else(|| self.copied(log, name))
            .or(preferred)
            .unwrap_or_else(|| self.roomiest());
        if let Some(to) = self.begun.remove(name).filter(|to| *to != dir && !is_new) {
            self.interrupted.push((log, to));
        }
        self.placed.insert(log, dir);
        self.count(dir, |count| *count += 1);
        dir
    }

    /// The partition is gone.
    pub fn remove(&mut self, log: LogId) {
        if let Some(dir) = self.placed.remove(&log) {
            self.count(dir, |count| *count -= 1);
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

    #[test]
    fn a_preferred_directory_is_taken_once_and_a_move_is_counted() {
        let dirs = dirs(3);
        let mut homes = Homes::new(dirs.clone());
        homes.prefer("t-0".to_owned(), LogDir(2));
        homes.prefer("t-1".to_owned(), LogDir(1));
        assert_eq!(homes.place(log(0), "t-0", true), LogDir(2));
        dirs.fail(LogDir(1));
        assert_eq!(homes.place(log(1), "t-1", true), LogDir(0), "it has failed since");
        homes.remove(log(0));
        assert_eq!(
            homes.place(log(0), "t-0", true),
            LogDir(2),
            "the emptiest, as for any"
        );
        homes.moved(log(0), LogDir(0));
        homes.moved(log(9), LogDir(0)); // deleted meanwhile
        assert_eq!(homes.place(log(0), "t-0", false), LogDir(0));
        assert_eq!(homes.partitions, [2, 0, 0]);
    }

    #[test]
    fn a_log_that_is_nowhere_is_its_longest_whole_copy_unless_a_directory_is_missing() {
        let copies = |homes: &mut Homes| {
            homes.found_copy("t-0", Offset(5), log(0).topic, LogDir(0));
            homes.found_copy("t-0", Offset(9), TopicId([7; 16]), LogDir(0));
            homes.found_copy("t-0", Offset(8), log(0).topic, LogDir(1));
        };
        let mut homes = Homes::new(dirs(3));
        copies(&mut homes);
        assert_eq!(homes.place(log(0), "t-0", false), LogDir(1));
        let mut homes = Homes::new(dirs(3));
        copies(&mut homes);
        homes.miss_one();
        assert_eq!(
            homes.place(log(0), "t-0", false),
            NOWHERE,
            "its log may be in that one"
        );
    }

    #[test]
    fn an_interrupted_move_is_known_once_its_partition_is_placed() {
        let mut homes = Homes::new(dirs(3));
        homes.found("t-0", LogDir(0)).expect("once");
        for name in ["t-0", "gone-0"] {
            homes.found_begun(name, LogDir(2));
        }
        assert_eq!(homes.place(log(0), "t-0", false), LogDir(0));
        homes.all_are_placed();
        assert_eq!(homes.take_interrupted(), [(log(0), LogDir(2))]);
        assert!(homes.take_interrupted().is_empty());
    }
}
