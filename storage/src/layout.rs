//! The names in a log directory: Kafka's partition directories and files, and the one private directory where our
//! journals and checkpoints live. Formatting and parsing only; a name that is not exactly one of these is `Other` and
//! is left alone by everyone. Kafka's names: `kafka-surface.md` §5.2 and §5.3.
//!
//! ```text
//! <log dir>/.lock  .kafka_cleanshutdown  meta.properties  *-offset-checkpoint
//! <log dir>/.penstock/journal/shard-<n>/        the journal of a shard
//! <log dir>/.penstock/checkpoints/              our own checkpoints
//! <log dir>/.penstock/damaged/                  journal files with damage, kept for whoever repairs
//! <log dir>/<topic>-<partition>/                a replica's log
//!     <20-digit base offset>.log .index .timeindex .txnindex .snapshot  [.deleted .cleaned .swap]
//!     leader-epoch-checkpoint  partition.metadata
//! <log dir>/<topic>-<partition>.<unique>-delete -future -stray
//! ```

use std::fmt;
use std::path::{Path, PathBuf};

use crate::types::Offset;

/// The directory in each log directory that is ours alone.
pub const PRIVATE_DIR: &str = ".penstock";
/// Held by an exclusive lock while a broker uses the log directory.
pub const LOCK_FILE: &str = ".lock";
/// Present after a clean stop; holds the broker epoch.
pub const CLEAN_SHUTDOWN_FILE: &str = ".kafka_cleanshutdown";
/// Cluster, node and directory ids.
pub const META_PROPERTIES_FILE: &str = "meta.properties";
/// Offsets below which every log is known to be whole.
pub const RECOVERY_POINT_FILE: &str = "recovery-point-offset-checkpoint";
/// First offsets of the logs.
pub const LOG_START_FILE: &str = "log-start-offset-checkpoint";
/// High watermarks.
pub const HIGH_WATERMARK_FILE: &str = "replication-offset-checkpoint";
/// Offsets up to which compaction has cleaned.
pub const CLEANER_OFFSET_FILE: &str = "cleaner-offset-checkpoint";
/// In a partition directory: its leader epochs.
pub const LEADER_EPOCH_FILE: &str = "leader-epoch-checkpoint";
/// In a partition directory: its topic id.
pub const PARTITION_METADATA_FILE: &str = "partition.metadata";
/// What a file is called while it is written, before it takes its name: its name and this.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// A file name on Linux file systems, bytes.
const NAME_BYTES_MAX: usize = 255;
/// A topic's name, bytes (Kafka's `Topic.MAX_NAME_LENGTH`).
pub const TOPIC_BYTES_MAX: usize = 249;
/// Digits of a base offset in a file name.
const OFFSET_DIGITS: usize = 20;

/// A topic and a partition as they stand in a directory name. The topic of a [`DirName::Replica`] marked `Delete` may
/// be cut short: Kafka cuts it where the name would be too long.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartitionName {
    /// The topic, legal by Kafka's rules.
    pub topic: String,
    /// The partition, not negative.
    pub partition: i32,
}

/// What a directory in a log directory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirName {
    /// A replica's log in use.
    Partition(PartitionName),
    /// A replica's directory that is on its way in or out.
    Replica {
        /// Whose it is.
        name: PartitionName,
        /// Hexadecimal digits that keep two of them apart.
        unique: String,
        /// What is to become of it.
        mark: DirMark,
    },
    /// [`PRIVATE_DIR`].
    Private,
    /// Not ours.
    Other,
}

/// The suffix of a replica's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DirMark {
    /// `-delete`: to be removed.
    Delete,
    /// `-future`: being copied from another log directory.
    Future,
    /// `-stray`: the metadata does not know it.
    Stray,
}

/// The kinds of file that belong to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SegmentFile {
    /// `.log`: the batches.
    Log,
    /// `.index`: offset to position.
    OffsetIndex,
    /// `.timeindex`: timestamp to offset.
    TimeIndex,
    /// `.txnindex`: aborted transactions.
    TxnIndex,
    /// `.snapshot`: producer state up to the base offset.
    ProducerSnapshot,
}

/// The second suffix of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileMark {
    /// `.deleted`: to be removed after a delay.
    Deleted,
    /// `.cleaned`: written by compaction, not yet whole.
    Cleaned,
    /// `.swap`: whole, about to replace what it was made from.
    Swap,
}

/// What a file in a partition directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileName {
    /// A file of the segment that starts at `base`.
    Segment {
        /// Its kind.
        file: SegmentFile,
        /// The segment's base offset, not negative.
        base: Offset,
        /// Its second suffix.
        mark: Option<FileMark>,
    },
    /// [`LEADER_EPOCH_FILE`].
    LeaderEpochs,
    /// [`PARTITION_METADATA_FILE`].
    PartitionMetadata,
    /// Some file that was being written when the process ended: can go.
    Temporary,
    /// Not ours.
    Other,
}

impl PartitionName {
    /// The directory of this partition in `log_dir`.
    #[must_use]
    pub fn dir(&self, log_dir: &Path) -> PathBuf {
        log_dir.join(self.to_string())
    }

    /// Reads `<topic>-<partition>` from the right, as topics hold dashes and dots.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (topic, partition) = name.rsplit_once('-')?;
        let partition = parse_number(partition)?;
        let partition = i32::try_from(partition).ok()?;
        is_legal_topic(topic).then(|| Self {
            topic: topic.to_owned(),
            partition,
        })
    }

    /// The name of this partition's directory under `mark`; `unique` is a random UUID in 32 hexadecimal digits. A
    /// topic too long for it is cut.
    #[must_use]
    pub fn marked(&self, unique: &str, mark: DirMark) -> String {
        let tail = format!("-{}.{unique}{}", self.partition, mark.suffix());
        let room = NAME_BYTES_MAX.saturating_sub(tail.len());
        let topic = self.topic.get(..room).unwrap_or(&self.topic); // legal topics are ASCII
        format!("{topic}{tail}")
    }
}

impl fmt::Display for PartitionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl DirName {
    /// What the directory `name` in a log directory is.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        if name == PRIVATE_DIR {
            return Self::Private;
        }
        if let Some(partition) = PartitionName::parse(name) {
            return Self::Partition(partition);
        }
        for mark in [DirMark::Delete, DirMark::Future, DirMark::Stray] {
            if let Some(replica) = name
                .strip_suffix(mark.suffix())
                .and_then(|rest| marked(rest, mark))
            {
                return replica;
            }
        }
        Self::Other
    }
}

fn marked(rest: &str, mark: DirMark) -> Option<DirName> {
    let (partition, unique) = rest.rsplit_once('.')?;
    let is_unique = !unique.is_empty() && unique.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = PartitionName::parse(partition)?;
    is_unique.then(|| DirName::Replica {
        name,
        unique: unique.to_owned(),
        mark,
    })
}

impl DirMark {
    /// With its dash.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Delete => "-delete",
            Self::Future => "-future",
            Self::Stray => "-stray",
        }
    }
}

impl SegmentFile {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Log,
        Self::OffsetIndex,
        Self::TimeIndex,
        Self::TxnIndex,
        Self::ProducerSnapshot,
    ];

    /// With its dot.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::OffsetIndex => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TxnIndex => ".txnindex",
            Self::ProducerSnapshot => ".snapshot",
        }
    }

    /// The file's name for the segment that starts at `base`.
    #[must_use]
    pub fn name(self, base: Offset) -> String {
        format!("{:020}{}", base.0, self.suffix())
    }

    /// The file's name with a second suffix.
    #[must_use]
    pub fn marked_name(self, base: Offset, mark: FileMark) -> String {
        format!("{}{}", self.name(base), mark.suffix())
    }
}

impl FileMark {
    /// With its dot.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Deleted => ".deleted",
            Self::Cleaned => ".cleaned",
            Self::Swap => ".swap",
        }
    }
}

impl FileName {
    /// The offset of a producer snapshot; `None` for any other file.
    #[must_use]
    pub fn snapshot_offset(name: &str) -> Option<Offset> {
        Self::base_of(name, SegmentFile::ProducerSnapshot)
    }

    /// The base offset of the segment whose batches the file holds; `None` for any other file.
    #[must_use]
    pub fn log_base(name: &str) -> Option<Offset> {
        Self::base_of(name, SegmentFile::Log)
    }

    fn base_of(name: &str, kind: SegmentFile) -> Option<Offset> {
        match Self::parse(name) {
            Self::Segment {
                file,
                base,
                mark: None,
            } if file == kind => Some(base),
            _ => None,
        }
    }

    /// What the file `name` in a partition directory is.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        match name {
            LEADER_EPOCH_FILE => return Self::LeaderEpochs,
            PARTITION_METADATA_FILE => return Self::PartitionMetadata,
            _ if name.ends_with(TEMPORARY_SUFFIX) => return Self::Temporary,
            _ => {}
        }
        let marks = [FileMark::Deleted, FileMark::Cleaned, FileMark::Swap];
        let marked = marks
            .iter()
            .find_map(|mark| Some((name.strip_suffix(mark.suffix())?, Some(*mark))));
        let (stem, mark) = marked.unwrap_or((name, None));
        for file in SegmentFile::ALL {
            if let Some(base) = stem.strip_suffix(file.suffix()).and_then(parse_base_offset) {
                return Self::Segment { file, base, mark };
            }
        }
        Self::Other
    }
}

/// Where journal files are kept that were found damaged.
#[must_use]
pub fn damaged_dir(log_dir: &Path) -> PathBuf {
    log_dir.join(PRIVATE_DIR).join("damaged")
}

/// The directory of our own checkpoints in `log_dir`.
#[must_use]
pub fn checkpoint_dir(log_dir: &Path) -> PathBuf {
    log_dir.join(PRIVATE_DIR).join("checkpoints")
}

/// The directory that holds the journals of all shards, also of those that no longer exist.
#[must_use]
pub fn journals_dir(log_dir: &Path) -> PathBuf {
    log_dir.join(PRIVATE_DIR).join("journal")
}

/// The journal directory of a shard.
#[must_use]
pub fn journal_dir(log_dir: &Path, shard: u16) -> PathBuf {
    journals_dir(log_dir).join(format!("shard-{shard}"))
}

/// The shard whose journal the directory `name` in [`journals_dir`] is.
#[must_use]
pub fn parse_journal_dir(name: &str) -> Option<u16> {
    let shard = parse_number(name.strip_prefix("shard-")?)?;
    u16::try_from(shard).ok()
}

/// Whether Kafka allows a topic of this name: 1 to 249 of letters, digits, dot, underscore and dash, not `.` or `..`.
#[must_use]
pub fn is_legal_topic(topic: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=TOPIC_BYTES_MAX).contains(&topic.len()) && topic != "." && topic != ".." && topic.bytes().all(legal)
}

fn parse_base_offset(digits: &str) -> Option<Offset> {
    if digits.len() != OFFSET_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(Offset)
}

/// A decimal number as `Display` writes it: digits only, no leading zeroes.
fn parse_number(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits == "0" || !digits.starts_with('0');
    if plain && canonical {
        digits.parse().ok()
    } else {
        None
    }
}

/// Whether the topic is the metadata log, without which nothing can be deleted: it is written to as long as there is any space.
#[must_use]
pub fn is_metadata_topic(topic: &str) -> bool {
    topic == "__cluster_metadata"
}

/// Whether the topic is one of the broker's own: it may still be written to when the reserve of free space is all that is left.
#[must_use]
pub fn is_internal_topic(topic: &str) -> bool {
    matches!(
        topic,
        "__consumer_offsets" | "__transaction_state" | "__cluster_metadata" | "__share_group_state"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn partition(topic: &str, partition: i32) -> PartitionName {
        PartitionName {
            topic: topic.to_owned(),
            partition,
        }
    }

    #[test]
    fn partition_directories_are_read_from_the_right() {
        for (name, topic, number) in [
            ("orders-0", "orders", 0),
            ("a-b.c_d-12", "a-b.c_d", 12),
            ("x-1-2", "x-1", 2),
            ("--7", "-", 7),
            ("__consumer_offsets-49", "__consumer_offsets", 49),
            ("t-2147483647", "t", i32::MAX),
            ("x-0.00ff-delete-3", "x-0.00ff-delete", 3),
            ("...-0", "...", 0),
        ] {
            let expected = DirName::Partition(partition(topic, number));
            assert_eq!(DirName::parse(name), expected, "{name}");
            assert_eq!(partition(topic, number).to_string(), name);
        }
    }

    #[test]
    fn hostile_directory_names_are_nobodys() {
        let long = format!("{}-0", "x".repeat(250));
        for name in [
            "",
            "-",
            "-0",
            "orders",
            "orders-",
            "orders--",
            "orders-01",
            "orders-+1",
            "orders-1x",
            "orders--1x",
            "orders-2147483648",
            "orders-99999999999999999999999",
            "or ders-0",
            "or/ders-0",
            "../x-0",
            "..-0",
            ".-0",
            "ördner-0",
            "orders-\u{0661}",
            "orders-0\n",
            "orders-0.xyz-delete",
            "orders-0.-delete",
            "orders-0-delete",
            ".0ff-delete",
            "-0.0ff-delete",
            "orders.0ff-delete",
            "-delete",
            "-stray",
            &long,
            ".penstock ",
            ".git",
            "orders-0.0ff-moved",
            "orders-0\0",
        ] {
            assert_eq!(DirName::parse(name), DirName::Other, "{name:?}");
        }
        assert_eq!(DirName::parse(".penstock"), DirName::Private);
    }

    #[test]
    fn marked_directories_round_trip_and_long_topics_are_cut() {
        let unique = "0123456789abcdef0123456789abcdef";
        for mark in [DirMark::Delete, DirMark::Future, DirMark::Stray] {
            let name = partition("a.b-c", 3).marked(unique, mark);
            assert_eq!(name, format!("a.b-c-3.{unique}{}", mark.suffix()));
            let expected = DirName::Replica {
                name: partition("a.b-c", 3),
                unique: unique.to_owned(),
                mark,
            };
            assert_eq!(DirName::parse(&name), expected);
        }
        let name = partition(&"x".repeat(249), 12).marked(unique, DirMark::Delete);
        assert_eq!(name.len(), 255);
        assert!(matches!(DirName::parse(&name), DirName::Replica { name, .. } if name.partition == 12));
    }

    #[test]
    fn segment_files_round_trip() {
        for base in [0, 1, 417, i64::MAX] {
            for file in SegmentFile::ALL {
                let base = Offset(base);
                let name = file.name(base);
                assert_eq!(
                    FileName::parse(&name),
                    FileName::Segment {
                        file,
                        base,
                        mark: None
                    }
                );
                for mark in [FileMark::Deleted, FileMark::Cleaned, FileMark::Swap] {
                    let mark_found = Some(mark);
                    let name = file.marked_name(base, mark);
                    assert_eq!(
                        FileName::parse(&name),
                        FileName::Segment {
                            file,
                            base,
                            mark: mark_found
                        }
                    );
                }
            }
        }
        assert_eq!(SegmentFile::Log.name(Offset(417)), "00000000000000000417.log");
        assert_eq!(
            SegmentFile::OffsetIndex.marked_name(Offset(0), FileMark::Deleted),
            "00000000000000000000.index.deleted"
        );
    }

    #[test]
    fn hostile_file_names_are_nobodys() {
        for name in [
            "",
            ".log",
            "0.log",
            "0000000000000000417.log",
            "000000000000000000417.log",
            "-0000000000000000417.log",
            "+0000000000000000417.log",
            "9223372036854775808.log",
            "09223372036854775808.log",
            "99999999999999999999.log",
            "00000000000000000417",
            "00000000000000000417.LOG",
            "00000000000000000417.log.deleted.swap",
            "00000000000000000417.deleted",
            " 0000000000000000417.log",
            "00000000000000000417.log ",
            "0000000000000000041\u{0667}.log",
            "00000000000000000417.logs",
            "../x.log",
        ] {
            assert_eq!(FileName::parse(name), FileName::Other, "{name:?}");
        }
        assert_eq!(FileName::parse("leader-epoch-checkpoint"), FileName::LeaderEpochs);
        assert_eq!(FileName::parse("partition.metadata"), FileName::PartitionMetadata);
        assert_eq!(
            FileName::parse("leader-epoch-checkpoint.tmp"),
            FileName::Temporary
        );
        assert_eq!(
            FileName::parse("00000000000000000417.snapshot.tmp"),
            FileName::Temporary
        );
    }

    #[test]
    fn journals_are_found_by_shard() {
        let dir = journal_dir(Path::new("/data"), 12);
        assert_eq!(dir, Path::new("/data/.penstock/journal/shard-12"));
        assert_eq!(parse_journal_dir("shard-12"), Some(12));
        for name in [
            "shard-",
            "shard-012",
            "shard-65536",
            "shard--1",
            "Shard-1",
            "shard-1 ",
            "12",
        ] {
            assert_eq!(parse_journal_dir(name), None, "{name:?}");
        }
    }

    proptest! {
        #[test]
        fn every_legal_partition_round_trips(topic in "[a-zA-Z0-9._-]{1,249}", number in 0..=i32::MAX) {
            prop_assume!(is_legal_topic(&topic));
            let name = partition(&topic, number);
            prop_assert_eq!(DirName::parse(&name.to_string()), DirName::Partition(name));
        }

        #[test]
        fn what_parses_formats_to_the_same_name(name in ".{0,60}") {
            match DirName::parse(&name) {
                DirName::Partition(partition) => prop_assert_eq!(partition.to_string(), name),
                DirName::Replica { name: partition, unique, mark } => {
                    prop_assert_eq!(partition.marked(&unique, mark), name);
                }
                DirName::Private | DirName::Other => {}
            }
        }
    }
}
