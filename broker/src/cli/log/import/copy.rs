//! Writes a directory of ours from what was read of Kafka's. `meta.properties` comes last: without it a broker refuses to start
//! on the directory, so a copy that was interrupted is never taken for a whole one.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use storage::checkpoint::offsets::{self, Offsets};
use storage::checkpoint::{clean_shutdown, meta_properties, partition_metadata};
use storage::layout::{
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_FILE, FileName, HIGH_WATERMARK_FILE, LEADER_EPOCH_FILE,
    LOG_START_FILE, META_PROPERTIES_FILE, PARTITION_METADATA_FILE, RECOVERY_POINT_FILE, SegmentFile,
};
use storage::offline::finding::{Severity, Subject};
use storage::types::TopicId;

use super::super::meter::Meter;
use super::super::shown;
use super::metadata;
use super::source::{Source, SourcePartition, log_start};
use crate::exit::{Failure, Status};

/// Bytes copied between two reports of progress.
const PROGRESS_BYTES: u64 = 32 << 20;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    /// Files copied.
    pub(super) files: u64,
    /// Files linked.
    pub(super) linked: u64,
    /// Bytes copied.
    pub(super) bytes: u64,
}

/// Writes the directory `to`, which is empty.
pub(super) fn write(source: &Source, to: &Path, link: bool) -> Result<Copied, Failure> {
    let total = source.partitions.iter().map(SourcePartition::bytes).sum();
    let mut copy = Copy {
        copied: Copied::default(),
        meter: Meter::new("copied", total),
        link,
    };
    for partition in &source.partitions {
        copy.partition(source, partition, to)?;
    }
    write_metadata(source, to)?;
    write_offsets(source, to)?;
    sync_all(to)?;
    let epoch = source.taken.broker_epoch;
    put(
        &to.join(CLEAN_SHUTDOWN_FILE),
        clean_shutdown::format(epoch).as_bytes(),
    )?;
    let mut identity = source.identity.clone();
    let voters = &source.taken.snapshot.voters;
    identity.directory_id = voters.iter().next().map(|(_, voter)| voter.directory);
    put(
        &to.join(META_PROPERTIES_FILE),
        meta_properties::format(&identity).as_bytes(),
    )?;
    sync_all(to)?;
    Ok(copy.copied)
}

struct Copy {
    copied: Copied,
    meter: Meter,
    link: bool,
}

impl Copy {
    fn partition(&mut self, source: &Source, partition: &SourcePartition, to: &Path) -> Result<(), Failure> {
        let dir = partition.name.dir(to);
        fs::create_dir(&dir).map_err(|error| not_written(&dir, &error))?;
        let segments = &partition.report.segments;
        for (number, segment) in segments.iter().enumerate() {
            let name = SegmentFile::Log.name(segment.base);
            let is_last = number + 1 == segments.len();
            let (from, to) = (partition.dir.join(&name), dir.join(&name));
            // The last one is written to, and one that is longer than its batches is cut.
            if self.link && !is_last && segment.valid_bytes == segment.file_bytes {
                fs::hard_link(&from, &to).map_err(|error| not_linked(&from, &to, &error))?;
                self.copied.linked += 1;
                self.meter.add(segment.valid_bytes);
            } else {
                self.file(&from, &to, segment.valid_bytes)?;
            }
        }
        let unusable = unusable(partition, source.is_clean);
        let entries = fs::read_dir(&partition.dir).map_err(|error| not_read(&partition.dir, &error))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        for name in names.filter(|name| is_beside(name) && !unusable.contains(name)) {
            let from = partition.dir.join(&name);
            let bytes = fs::metadata(&from)
                .map_err(|error| not_read(&from, &error))?
                .len();
            self.file(&from, &dir.join(&name), bytes)?;
        }
        let metadata = dir.join(PARTITION_METADATA_FILE);
        if !metadata.exists() {
            let topic = source.taken.snapshot.image.topics.by_name(&partition.name.topic);
            let id = topic.map_or_else(TopicId::default, |topic| topic.id);
            put(&metadata, partition_metadata::format(id).as_bytes())?;
        }
        Ok(())
    }

    /// Copies the first `bytes` of a file.
    fn file(&mut self, from: &Path, to: &Path, bytes: u64) -> Result<(), Failure> {
        let reader = File::open(from).map_err(|error| not_read(from, &error))?;
        let mut writer = File::create_new(to).map_err(|error| not_written(to, &error))?;
        let mut left = bytes;
        while left > 0 {
            let step = left.min(PROGRESS_BYTES);
            let copied = io::copy(&mut (&reader).take(step), &mut writer);
            let copied = copied.map_err(|error| not_written(to, &error))?;
            if copied == 0 {
                let sentence = format!("{} became shorter while it was copied", shown(from));
                return Err(Failure::new(Status::Io, sentence));
            }
            left -= copied;
            self.copied.bytes += copied;
            if from.extension().is_some_and(|end| end == "log") {
                self.meter.add(copied);
            }
        }
        self.copied.files += 1;
        Ok(())
    }
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Whether a file belongs beside the segments.
fn is_beside(name: &str) -> bool {
    match FileName::parse(name) {
        FileName::Segment { file, mark: None, .. } => file != SegmentFile::Log,
        FileName::LeaderEpochs | FileName::PartitionMetadata => true,
        _ => false,
    }
}

/// Files that the first start makes anew: those that were found wrong, and after an unclean stop the last segment's indexes.
fn unusable(partition: &SourcePartition, is_clean: bool) -> BTreeSet<String> {
    let of_index = [
        SegmentFile::OffsetIndex,
        SegmentFile::TimeIndex,
        SegmentFile::TxnIndex,
    ];
    let mut names = BTreeSet::new();
    for finding in &partition.report.findings {
        let is_wrong =
            finding.severity == Severity::Rebuildable || finding.subject == Subject::ProducerSnapshot;
        if is_wrong && finding.place.path.starts_with(&partition.dir) {
            let name = name_of(&finding.place.path);
            // A segment's indexes are made together.
            if let FileName::Segment { file, base, .. } = FileName::parse(&name)
                && of_index.contains(&file)
            {
                names.extend(of_index.map(|kind| kind.name(base)));
            } else {
                names.insert(name);
            }
        }
    }
    if !is_clean && let Some(last) = partition.report.segments.last() {
        names.extend(of_index.map(|kind| kind.name(last.base)));
    }
    names
}

/// Our metadata log: a snapshot of all that Kafka's said, and an empty segment where it ended.
fn write_metadata(source: &Source, to: &Path) -> Result<(), Failure> {
    let dir = metadata::directory(to);
    fs::create_dir(&dir).map_err(|error| not_written(&dir, &error))?;
    let taken = &source.taken;
    let position = taken.snapshot.image.position;
    let name = format!("{:020}-{:010}.checkpoint", taken.end.0, position.term);
    put(&dir.join(name), &taken.snapshot.to_bytes())?;
    put(&dir.join(SegmentFile::Log.name(taken.end)), b"")?;
    let id = TopicId(protocol::Uuid::ONE.0);
    put(
        &dir.join(PARTITION_METADATA_FILE),
        partition_metadata::format(id).as_bytes(),
    )?;
    let epoch = i32::try_from(position.term).unwrap_or(i32::MAX);
    put(
        &dir.join(LEADER_EPOCH_FILE),
        format!("0\n1\n{epoch} {}\n", taken.end).as_bytes(),
    )
}

/// Kafka's text files: what our first start reads of them is the recovery points and log starts.
fn write_offsets(source: &Source, to: &Path) -> Result<(), Failure> {
    let taken = |offsets: &Offsets| -> Offsets {
        let is_here =
            |name: &storage::layout::PartitionName| source.partitions.iter().any(|p| p.name == *name);
        offsets
            .iter()
            .filter(|(name, _)| is_here(name))
            .map(|(name, offset)| (name.clone(), *offset))
            .collect()
    };
    let ends: Offsets = source
        .partitions
        .iter()
        .map(|p| (p.name.clone(), p.report.end_offset))
        .collect();
    let starts: Offsets = source
        .partitions
        .iter()
        .filter_map(|partition| Some((partition.name.clone(), log_start(source, partition)?)))
        .collect();
    for (name, offsets) in [
        (RECOVERY_POINT_FILE, ends),
        (LOG_START_FILE, starts),
        (HIGH_WATERMARK_FILE, taken(&source.marks)),
        (CLEANER_OFFSET_FILE, taken(&source.cleaned)),
    ] {
        put(&to.join(name), offsets::format(&offsets).as_bytes())?;
    }
    Ok(())
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let write = || {
        let mut file = File::create_new(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| not_written(path, &error))
}

/// Everything on the file system is durable.
fn sync_all(dir: &Path) -> Result<(), Failure> {
    let sync = || {
        let file = File::open(dir)?;
        nix::unistd::syncfs(&file)?;
        file.sync_all()
    };
    sync().map_err(|error: io::Error| not_written(dir, &error))
}

/// Bytes that an unprivileged process may still write below `dir`, which need not exist yet.
pub(super) fn space(dir: &Path) -> Option<u64> {
    let existing = dir
        .ancestors()
        .find(|dir| dir.exists())
        .map(Path::to_owned)
        .unwrap_or_else(|| PathBuf::from("."));
    let stat = nix::sys::statvfs::statvfs(&existing).ok()?;
    Some(stat.blocks_available().saturating_mul(stat.fragment_size()))
}

fn not_read(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Status::Io, format!("{} cannot be read: {error}", shown(path)))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let advice = "; remove the directory before the next try";
    Failure::new(
        Status::Io,
        format!("{} cannot be written: {error}{advice}", shown(path)),
    )
}

fn not_linked(from: &Path, to: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        io::ErrorKind::CrossesDevices => "it lies on another file system: leave --link out",
        _ => "leave --link out, and remove the directory before the next try",
    };
    let sentence = format!(
        "{} cannot be linked to {}: {error}; {advice}",
        shown(from),
        shown(to)
    );
    Failure::new(Status::Io, sentence)
}
