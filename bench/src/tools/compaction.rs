//! Kafka's own test of compaction, `org.apache.kafka.tools.LogCompactionTester`, against one broker: it produces random keys with
//! deletions, waits, reads the topics back and compares the newest values. Then `kafka-dump-log` looks at every segment that is
//! left, its indexes too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bounded;
use crate::error::{Doing, Error, Result, failed};
use crate::kafka::tool;
use crate::process::Profile;
use crate::target::{Kind, Target};

/// Records of one run.
const MESSAGES: u32 = 50_000;
/// How often a key comes.
const DUPLICATES: u32 = 20;
/// Of a hundred records so many are deletions.
const PERCENT_DELETES: u32 = 20;
/// What compaction gets as time, seconds.
const PAUSE_S: u32 = 6;

/// How long the tester may take.
const TEST_TIMEOUT: Duration = Duration::from_secs(240);
/// How long kafka-dump-log may take.
const DUMP_TIMEOUT: Duration = Duration::from_secs(180);

/// A cleaner that is always there, and segments that are short also where a codec makes little of the records.
const OVERRIDES: [&str; 6] = [
    "log.segment.bytes=1048576",
    "log.roll.ms=5",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.cleaner.backoff.ms=200",
    "log.cleaner.delete.retention.ms=100",
    "log.retention.check.interval.ms=300000",
];

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// Records produced.
    pub produced: u64,
    /// Records that were left to consume.
    pub consumed: u64,
    /// Segments that kafka-dump-log looked at.
    pub segments: usize,
    /// Batches in them, all valid.
    pub batches: usize,
}

/// Runs the tester with records in `codec` against a broker below `dir`.
///
/// # Errors
/// It finds a difference, or kafka-dump-log does.
pub fn run(kind: Kind, dir: &Path, codec: &str) -> Result<Compacted> {
    let broker_dir = dir.join("broker");
    let mut target = Target::new(kind, &broker_dir, &OVERRIDES)?;
    target.start(None)?;
    let mut command = tool("org.apache.kafka.tools.LogCompactionTester");
    command
        .args(["--bootstrap-server", &target.bootstrap()])
        .args(["--messages", &MESSAGES.to_string()])
        .args(["--duplicates", &DUPLICATES.to_string()])
        .args(["--percent-deletes", &PERCENT_DELETES.to_string()])
        .args(["--sleep", &PAUSE_S.to_string()])
        .args(["--compression-type", codec]);
    let said = bounded::output(&mut command, TEST_TIMEOUT)?;
    target.terminate()?;
    let (produced, consumed) = rows(&said)?;
    let (segments, batches) = dump(&broker_dir.join("data"))?;
    Ok(Compacted {
        produced,
        consumed,
        segments,
        batches,
    })
}

/// The profile that tests use.
#[must_use]
pub fn ours() -> Kind {
    Kind::Penstock(Profile::Dev)
}

/// "N rows of data produced, M rows of data consumed (…)"
fn rows(said: &str) -> Result<(u64, u64)> {
    let line = said.lines().find(|line| line.contains("rows of data produced"));
    let numbers: Vec<u64> = line
        .unwrap_or_default()
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [produced, consumed, ..] if said.contains(" values, 0 mismatches") => Ok((produced, consumed)),
        _ => failed(format!("LogCompactionTester: {said}")),
    }
}

/// Has kafka-dump-log look at all segments and indexes. Returns how many segments and batches there are.
fn dump(data: &Path) -> Result<(usize, usize)> {
    let files = segment_files(data)?;
    let segments = files.iter().filter(|file| ends_with(file, "log")).count();
    let list: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let said = bounded::output(
        tool("org.apache.kafka.tools.DumpLogSegments")
            .args(["--deep-iteration", "--files"])
            .arg(list.join(",")),
        DUMP_TIMEOUT,
    )?;
    let mut batches = 0;
    for line in said.lines() {
        if line.contains("ismatch") || line.contains("Exception") || line.contains("Found") {
            return failed(format!("kafka-dump-log: {line}"));
        }
        if line.starts_with("baseOffset:") {
            batches += 1;
            if !line.contains("isvalid: true") {
                return failed(format!("kafka-dump-log: {line}"));
            }
        }
    }
    Ok((segments, batches))
}

/// The segments and offset indexes of the tester's topics.
fn segment_files(data: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data).doing(data.display())? {
        let partition = entry.doing(data.display())?.path();
        let name = partition
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with("log-cleaner-test") {
            continue;
        }
        for file in std::fs::read_dir(&partition).doing(partition.display())? {
            let file = file.doing(partition.display())?.path();
            if ["log", "index", "timeindex"]
                .iter()
                .any(|ending| ends_with(&file, ending))
            {
                files.push(file);
            } else if ["swap", "cleaned"].iter().any(|ending| ends_with(&file, ending)) {
                return Err(Error::Failed(format!("{} was left", file.display())));
            }
        }
    }
    files.sort();
    Ok(files)
}

fn ends_with(file: &Path, ending: &str) -> bool {
    file.extension().is_some_and(|found| found == ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tester_says_is_read() {
        let said = "Deleting\n1000 rows of data produced, 60 rows of data consumed (94.0% reduction).\nValidated 50 values, 0 mismatches.";
        assert!(matches!(rows(said), Ok((1000, 60))));
        assert!(rows("1000 rows of data produced, 60 rows of data consumed").is_err());
        assert!(rows("Validated 50 values, 0 mismatches.").is_err());
    }
}
