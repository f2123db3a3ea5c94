//! The checkpoints of a log directory: for each log, a place up to which everything is in the segments and synced, and
//! what is needed to go on from there without reading what lies before. Each running shard writes its own when it
//! recycles a journal file and at a clean stop; phase 1 of the next start merges them, and from then on only the merged
//! one counts. Each start is a *run*; a shard's checkpoint and journal of a merged run are void.
//!
//! `.penstock/checkpoints/directory` and `.penstock/checkpoints/shard-<n>`, rkyv in an envelope
//! ([`crate::checkpoint::envelope`]).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rkyv::{Archive, Deserialize, Serialize};

use crate::checkpoint::envelope::{self, Checkpoint};
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::layout::{PRIVATE_DIR, checkpoint_dir, parse_journal_dir};
use crate::segment::time_index::TimestampOffset;
use crate::types::{LogId, Offset, TopicId};

/// The logs of a directory, or of one shard in it.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectoryRecord {
    /// The run that wrote it, from 1.
    pub run: u64,
    /// In a shard's: all that its journal's commits up to this one say is covered, so their files may be gone.
    pub covered_sequence: u64,
    /// In the order of their names.
    pub logs: Vec<LogRecord>,
    /// In a shard's: logs of the merged checkpoint that were deleted since, topic id and partition.
    pub deleted: Vec<([u8; 16], i32)>,
}

/// One log.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The topic's id.
    pub topic: [u8; 16],
    /// The partition.
    pub partition: i32,
    /// `<topic>-<partition>`.
    pub directory: String,
    /// The log start offset, −1 when it is not known (Kafka notes only some).
    pub log_start: i64,
    /// Everything below was durable when this was written: less in the segments is damage.
    pub durable_end: i64,
    /// Epoch and start offset, in order.
    pub epochs: Vec<(i32, i64)>,
    /// Where a scan may start.
    pub place: Option<PlaceRecord>,
    /// The journal could not be applied to it: the log stays closed.
    pub damage: Option<DamageRecord>,
}

/// A [`Damage`] that outlasts the start that found it.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct DamageRecord {
    /// The file, within the log's directory, or one of the log directory with `../` before it.
    pub file: String,
    /// Byte position in it.
    pub position: u64,
    /// The first offset concerned, −1 when unknown.
    pub first_offset: i64,
    /// One past the last offset concerned, −1 when unknown.
    pub end_offset: i64,
    /// What should be there.
    pub expected: String,
    /// What was there.
    pub found: String,
}

/// A batch boundary with everything before it in the segments and synced.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PlaceRecord {
    /// The offset of the next batch.
    pub offset: i64,
    /// Base offset of its segment.
    pub segment: i64,
    /// Its position there.
    pub position: u32,
    /// Entries of the segment's offset index that are on disk and belong before the place.
    pub offset_entries: u32,
    /// The same of its time index.
    pub time_entries: u32,
    /// The same of its transaction index.
    pub txn_entries: u32,
    /// The largest timestamp in the segment before the place, and the offset that has it.
    pub largest: (i64, i64),
    /// The largest timestamp of the segment's first batch.
    pub first_timestamp: Option<i64>,
    /// Producer state at the place, as a snapshot file.
    pub producers: Vec<u8>,
}

impl Checkpoint for DirectoryRecord {
    const MAGIC: [u8; 8] = *b"PNSTKCKP";
    const VERSION: u32 = 3;
}

impl LogRecord {
    /// A log of which nothing is known but its name, the directory's.
    pub(crate) fn new(id: LogId, directory: &str) -> Self {
        Self {
            topic: id.topic.0,
            partition: id.partition,
            directory: directory.to_owned(),
            log_start: 0,
            durable_end: 0,
            epochs: Vec::new(),
            place: None,
            damage: None,
        }
    }

    /// The log.
    #[must_use]
    pub const fn id(&self) -> LogId {
        LogId {
            topic: TopicId(self.topic),
            partition: self.partition,
        }
    }
}

impl DamageRecord {
    /// `root` is the log directory.
    pub(crate) fn new(damage: &Damage, root: &Path) -> Self {
        let inside = damage.path.strip_prefix(root).unwrap_or(&damage.path);
        let file = match inside.parent() {
            Some(parent) if parent.starts_with(PRIVATE_DIR) => format!("../{}", inside.display()),
            _ => inside
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
        };
        Self {
            file,
            position: damage.position,
            first_offset: damage.first_offset.0,
            end_offset: damage.end_offset.0,
            expected: damage.expected.clone(),
            found: damage.found.clone(),
        }
    }

    /// The report, for the log in `dir`.
    pub(crate) fn report(&self, dir: &Path) -> Damage {
        Damage {
            path: match (self.file.strip_prefix("../"), dir.parent()) {
                (Some(inside), Some(root)) => root.join(inside),
                _ => dir.join(&self.file),
            },
            position: self.position,
            first_offset: Offset(self.first_offset),
            end_offset: Offset(self.end_offset),
            expected: self.expected.clone(),
            found: self.found.clone(),
        }
    }
}

impl PlaceRecord {
    /// The largest timestamp before the place.
    #[must_use]
    pub const fn largest(&self) -> TimestampOffset {
        TimestampOffset {
            timestamp: self.largest.0,
            offset: Offset(self.largest.1),
        }
    }
}

/// The merged checkpoint.
#[must_use]
pub fn directory_path(dir: &Path) -> PathBuf {
    checkpoint_dir(dir).join("directory")
}

/// A shard's checkpoint.
#[must_use]
pub fn shard_path(dir: &Path, shard: u16) -> PathBuf {
    checkpoint_dir(dir).join(format!("shard-{shard}"))
}

/// Reads the merged checkpoint; the default when there is none yet.
///
/// # Errors
/// [`StorageError`] from the disk, or for a damaged file.
pub async fn load_directory<D: Disk>(disk: &D, dir: &Path) -> Result<DirectoryRecord, StorageError> {
    Ok(envelope::load(disk, &directory_path(dir))
        .await?
        .unwrap_or_default())
}

/// All checkpoints of a directory.
pub(crate) struct Checkpoints {
    /// The run of the merged one.
    pub(crate) run: u64,
    /// The logs by directory, as the shards that ran after it left them.
    pub(crate) logs: BTreeMap<String, LogRecord>,
    /// Logs that were deleted by those shards.
    pub(crate) deleted: BTreeSet<LogId>,
    /// How far the journals of those shards are covered.
    pub(crate) covered_sequences: BTreeMap<u16, u64>,
    /// Records whose directory another log has in `logs`: one of the two was deleted.
    pub(crate) hidden: Vec<LogRecord>,
    /// The files of all shards' checkpoints.
    pub(crate) paths: Vec<PathBuf>,
}

/// Reads them.
///
/// # Errors
/// [`StorageError`] from the disk, or for a damaged file.
pub(crate) async fn load_all<D: Disk>(disk: &D, dir: &Path) -> Result<Checkpoints, StorageError> {
    let DirectoryRecord { run, logs, .. } = load_directory(disk, dir).await?;
    let by_directory = |log: LogRecord| (log.directory.clone(), log);
    let mut all = Checkpoints {
        run,
        logs: logs.into_iter().map(by_directory).collect(),
        deleted: BTreeSet::new(),
        covered_sequences: BTreeMap::new(),
        hidden: Vec::new(),
        paths: Vec::new(),
    };
    let entries = match disk.list(&checkpoint_dir(dir)).await {
        Ok(entries) => entries,
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let mut shard_ends = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.name.starts_with("shard-")) {
        let path = checkpoint_dir(dir).join(&entry.name);
        // What was being written when the process ended has a temporary name, and goes with the rest.
        if let Some(shard) = parse_journal_dir(&entry.name)
            && let Some(record) = envelope::load::<D, DirectoryRecord>(disk, &path).await?
            && record.run > run
        {
            all.covered_sequences.insert(shard, record.covered_sequence);
            let deleted = record.deleted.into_iter();
            all.deleted.extend(deleted.map(|(topic, partition)| LogId {
                topic: TopicId(topic),
                partition,
            }));
            for log in record.logs {
                // One shard may have closed it and another gone on with it.
                let newest = shard_ends.entry(log.id()).or_insert(log.durable_end);
                if *newest <= log.durable_end {
                    *newest = log.durable_end;
                    let id = log.id();
                    let before = all.logs.insert(log.directory.clone(), log);
                    all.hidden.extend(before.filter(|before| before.id() != id));
                }
            }
        }
        all.paths.push(path);
    }
    Ok(all)
}
