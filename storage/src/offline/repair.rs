//! Repairs one partition directory after a check: segments lose what is no batch and keep every whole one, index files are
//! made anew, the end of the log stays where it was durable so that no offset is given out twice. Nothing is deleted: whatever
//! is replaced lies in the directory's `quarantine` afterwards, beside a report. First a plan, which changes nothing.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::failed;
use super::finding::{Finding, Severity, Subject};
use super::reader::{BadSpan, Found, SegmentReader};
use super::verify::PartitionReport;
use crate::error::StorageError;
use crate::layout::{FileName, LEADER_EPOCH_FILE, SegmentFile, TEMPORARY_SUFFIX};
use crate::leader_epoch::LeaderEpochs;
use crate::log::segment_path;
use crate::producer_state::{PRODUCERS_MAX, ProducerState};
use crate::segment::indexes::SegmentIndexes;
use crate::types::Offset;
use crate::write_behind::index_files;

/// Where what is replaced goes, in the partition's directory.
pub const QUARANTINE_DIR: &str = "quarantine";

/// `index.interval.bytes` of indexes that are made anew: Kafka's default, which no search depends on.
const INDEX_INTERVAL_BYTES: u32 = 4096;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// One thing to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write a segment anew with its whole batches only; the old file goes to quarantine.
    Salvage {
        /// The segment.
        segment: Offset,
        /// What is left out.
        spans: Vec<BadSpan>,
    },
    /// Begin an empty segment where the log ended, so that lost offsets are not given out again.
    KeepEnd {
        /// The end.
        end: Offset,
    },
    /// Make a segment's index files anew from its batches.
    Reindex {
        /// The segment.
        segment: Offset,
    },
    /// Write the leader epochs anew from the batches.
    Epochs,
    /// Take back the checkpoint's note of damage, which keeps the partition offline.
    Reopen,
    /// Move a file to quarantine; the next start makes it anew or does without.
    SetAside {
        /// Its name.
        file: String,
    },
}

/// What is to be done in one partition directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The directory.
    pub dir: PathBuf,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Offsets whose records are lost: first, and one past the last (−1: nobody knows how many there were).
    pub lost: Vec<(Offset, Offset)>,
    /// Where the log starts afterwards.
    pub log_start: Offset,
    /// Where it ends afterwards.
    pub end: Offset,
}

/// What is to be done about what `report` found; `durable_end` is the offset up to which the log was durable.
#[must_use]
pub fn plan(report: &PartitionReport, durable_end: Offset) -> Plan {
    let mut steps = Vec::new();
    let mut wanted = Wanted::default();
    for segment in &report.segments {
        let spans: Vec<BadSpan> = segment.bad.iter().chain(&segment.torn).copied().collect();
        if !spans.is_empty() {
            let lost = segment
                .bad
                .iter()
                .map(|span| (span.first_offset, span.end_offset));
            wanted.lost.extend(lost);
            wanted.reindex.insert(segment.base);
            wanted.epochs = true;
            steps.push(Step::Salvage {
                segment: segment.base,
                spans,
            });
        }
    }
    for finding in &report.findings {
        wanted.take(report, finding);
    }
    // With what the journals bring.
    let end = report.end_offset.max(durable_end);
    if end > report.end_offset {
        steps.push(Step::KeepEnd { end });
    }
    let Wanted {
        lost,
        reindex,
        aside,
        epochs,
        reopen,
    } = wanted;
    steps.extend(reindex.into_iter().map(|segment| Step::Reindex { segment }));
    steps.extend(epochs.then_some(Step::Epochs));
    steps.extend(aside.into_iter().map(|file| Step::SetAside { file }));
    steps.extend(reopen.then_some(Step::Reopen));
    let first = report.segments.first().map_or(end, |segment| segment.base);
    Plan {
        dir: report.dir.clone(),
        steps,
        lost: joined(lost),
        log_start: report.log_start.max(first),
        end,
    }
}

/// What the findings ask for.
#[derive(Default)]
struct Wanted {
    lost: Vec<(Offset, Offset)>,
    reindex: BTreeSet<Offset>,
    aside: BTreeSet<String>,
    epochs: bool,
    reopen: bool,
}

impl Wanted {
    fn take(&mut self, report: &PartitionReport, finding: &Finding) {
        let name = finding.place.path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        match (finding.severity, finding.subject) {
            (Severity::Remark, _) => {}
            (_, Subject::OffsetIndex | Subject::TimeIndex | Subject::TxnIndex) => {
                if let FileName::Segment { base, .. } = FileName::parse(&name) {
                    self.reindex.insert(base);
                }
            }
            (_, Subject::LeaderEpochs) => self.epochs = true,
            (Severity::Rebuildable, Subject::ProducerSnapshot | Subject::Identity) => {
                self.aside.insert(name);
            }
            // What an earlier start noted: what is really missing is a finding of its own.
            (_, Subject::Checkpoint) => self.reopen = true,
            // Segments that are gone: what is missing is lost.
            (Severity::Damage, Subject::Segment) => {
                self.lost
                    .push((finding.place.first_offset, finding.place.end_offset));
                self.orphans(report, finding.place.first_offset);
            }
            _ => {}
        }
    }

    /// Index files of a segment that is not there.
    fn orphans(&mut self, report: &PartitionReport, base: Offset) {
        if report.segments.iter().any(|segment| segment.base == base) {
            return;
        }
        let kinds = [
            SegmentFile::OffsetIndex,
            SegmentFile::TimeIndex,
            SegmentFile::TxnIndex,
        ];
        let orphans = kinds.map(|kind| kind.name(base)).into_iter();
        self.aside
            .extend(orphans.filter(|name| report.dir.join(name).exists()));
    }
}

/// Ranges in order, those that overlap as one.
fn joined(mut ranges: Vec<(Offset, Offset)>) -> Vec<(Offset, Offset)> {
    ranges.sort_unstable();
    let mut out: Vec<(Offset, Offset)> = Vec::with_capacity(ranges.len());
    for (first, end) in ranges {
        match out.last_mut() {
            Some((_, last)) if *last == Offset::NONE => {}
            Some((_, last)) if first <= *last => {
                *last = if end == Offset::NONE { end } else { end.max(*last) }
            }
            _ => out.push((first, end)),
        }
    }
    out
}

/// Does what `plan` says. `text` is the report that is left in quarantine. Each step can be repeated after a crash.
///
/// # Errors
/// From the file system; what was done so far stays done.
pub fn carry_out(plan: &Plan, text: &str) -> Result<(), StorageError> {
    if plan.steps.is_empty() {
        return Ok(());
    }
    let quarantine = plan.dir.join(QUARANTINE_DIR);
    fs::create_dir_all(&quarantine).map_err(|error| failed("create", &quarantine, error))?;
    for step in &plan.steps {
        match step {
            Step::Salvage { segment, spans } => salvage(&plan.dir, *segment, spans)?,
            Step::KeepEnd { end } => keep_end(&plan.dir, *end)?,
            Step::SetAside { file } => set_aside(&plan.dir.join(file))?,
            Step::Reindex { .. } | Step::Epochs | Step::Reopen => {}
        }
    }
    reindex(plan)?;
    let report = free_name(&quarantine.join("report.txt"));
    write_synced(&report, text.as_bytes())?;
    sync_dir(&quarantine)?;
    sync_dir(&plan.dir)
}

/// Writes the segment anew without `spans`.
fn salvage(dir: &Path, base: Offset, spans: &[BadSpan]) -> Result<(), StorageError> {
    let path = segment_path(dir, base, SegmentFile::Log);
    let temporary = temporary(&path);
    let copy = || {
        let from = File::open(&path)?;
        let size = from.metadata()?.len();
        let mut to = File::create(&temporary)?;
        let mut at = 0;
        for span in spans.iter().copied().map(Some).chain([None]) {
            let end = span.map_or(size, |span| span.position);
            copy_range(&from, &mut to, at, end)?;
            at = span.map_or(size, |span| span.end);
        }
        to.sync_all()
    };
    copy().map_err(|error| failed("rewrite", &path, error))?;
    replace(&path, &temporary)
}

fn copy_range(from: &File, to: &mut File, start: u64, end: u64) -> io::Result<()> {
    let mut buf = vec![0; COPY_BYTES];
    let mut at = start;
    while at < end {
        let len = usize::try_from(end - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let part = buf.get_mut(..len).unwrap_or_default();
        from.read_exact_at(part, at)?;
        to.write_all(part)?;
        at += len as u64;
    }
    Ok(())
}

/// An empty segment at `end`: the log goes on there.
fn keep_end(dir: &Path, end: Offset) -> Result<(), StorageError> {
    let path = segment_path(dir, end, SegmentFile::Log);
    if path.exists() {
        return Ok(());
    }
    write_synced(&path, b"")
}

/// Makes index files and epochs anew. Producers are followed from the first segment on, for the aborted transactions.
fn reindex(plan: &Plan) -> Result<(), StorageError> {
    let wanted: BTreeSet<Offset> = plan
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Reindex { segment } => Some(*segment),
            _ => None,
        })
        .collect();
    let with_epochs = plan.steps.contains(&Step::Epochs);
    if wanted.is_empty() && !with_epochs {
        return Ok(());
    }
    let bases = bases(&plan.dir)?;
    let first = bases.first().copied().unwrap_or(Offset::ZERO);
    let mut producers = ProducerState::new(first, PRODUCERS_MAX);
    if first > Offset::ZERO {
        load_snapshot(&plan.dir, first, &mut producers)?;
    }
    let mut epochs = LeaderEpochs::new();
    for (number, base) in bases.iter().enumerate() {
        let is_last = number + 1 == bases.len();
        let mut indexes = SegmentIndexes::new(*base, usize::MAX);
        read_segment(&plan.dir, *base, &mut indexes, &mut producers, &mut epochs)?;
        if wanted.contains(base) {
            write_indexes(&plan.dir, *base, indexes, is_last)?;
        }
    }
    if with_epochs {
        let path = plan.dir.join(LEADER_EPOCH_FILE);
        let temporary = temporary(&path);
        write_synced(&temporary, epochs.encode().as_bytes())?;
        replace(&path, &temporary)?;
    }
    Ok(())
}

fn bases(dir: &Path) -> Result<Vec<Offset>, StorageError> {
    let entries = fs::read_dir(dir).map_err(|error| failed("list", dir, error))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut bases: Vec<Offset> = names.filter_map(|name| FileName::log_base(&name)).collect();
    bases.sort_unstable();
    Ok(bases)
}

/// The producers as they were at the log's first segment, if a snapshot says so.
fn load_snapshot(dir: &Path, first: Offset, producers: &mut ProducerState) -> Result<(), StorageError> {
    let path = segment_path(dir, first, SegmentFile::ProducerSnapshot);
    if let Some(bytes) = super::read_small(&path)? {
        // A snapshot that cannot be read is as good as none.
        let _ = producers.load_snapshot(first, &bytes, 0, i64::MAX);
    }
    Ok(())
}

fn read_segment(
    dir: &Path,
    base: Offset,
    indexes: &mut SegmentIndexes,
    producers: &mut ProducerState,
    epochs: &mut LeaderEpochs,
) -> Result<(), StorageError> {
    let path = segment_path(dir, base, SegmentFile::Log);
    let mut reader = SegmentReader::open(&path, base).map_err(|error| failed("open", &path, error))?;
    while let Some(found) = reader
        .next_found()
        .map_err(|error| failed("read", &path, error))?
    {
        let Found::Batch(batch) = found else { continue };
        let header = &batch.header;
        let position = u32::try_from(batch.position).unwrap_or(u32::MAX);
        if let Err(error) = indexes.append(header.indexed_at(position), INDEX_INTERVAL_BYTES) {
            tracing::warn!(path = %path.display(), %error, "an index entry is left out");
        }
        epochs.observe(header.leader_epoch, header.base_offset, header.last_offset());
        let completed = producers.apply(&header.producer_facts(batch.bytes), header.max_timestamp);
        if let Some(completed) = completed {
            producers.on_high_watermark(header.last_offset().plus(1));
            if let Some(aborted) = completed.aborted_txn() {
                let _ = indexes.txn.append(aborted); // only out of order when offsets go back, which the reader does not give
            }
        }
    }
    Ok(())
}

fn write_indexes(
    dir: &Path,
    base: Offset,
    mut indexes: SegmentIndexes,
    is_last: bool,
) -> Result<(), StorageError> {
    if !is_last || !indexes.offset.is_empty() {
        // The last entry of a closed segment; harmless in the last one, which a start reads again.
        let _ = indexes.close();
    }
    let files = index_files(dir, base, &indexes);
    let txn = segment_path(dir, base, SegmentFile::TxnIndex);
    if !files.iter().any(|(path, _)| *path == txn) && txn.exists() {
        set_aside(&txn)?;
    }
    for (path, bytes) in files {
        let temporary = temporary(&path);
        write_synced(&temporary, &bytes)?;
        replace(&path, &temporary)?;
    }
    Ok(())
}

/// `temporary` takes the place of `path`, which stays in quarantine under its name.
fn replace(path: &Path, temporary: &Path) -> Result<(), StorageError> {
    if path.exists() {
        let kept = quarantined(path);
        match fs::hard_link(path, &kept) {
            Ok(()) => {}
            // A file system without links.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied
                ) =>
            {
                fs::copy(path, &kept).map_err(|error| failed("copy", path, error))?;
            }
            Err(error) => return Err(failed("link", path, error)),
        }
        if let Some(dir) = kept.parent() {
            sync_dir(dir)?;
        }
    }
    fs::rename(temporary, path).map_err(|error| failed("rename", temporary, error))
}

fn set_aside(path: &Path) -> Result<(), StorageError> {
    if !path.exists() {
        return Ok(());
    }
    fs::rename(path, quarantined(path)).map_err(|error| failed("rename", path, error))
}

/// A free name in quarantine.
fn quarantined(path: &Path) -> PathBuf {
    let dir = path.parent().unwrap_or(path).join(QUARANTINE_DIR);
    free_name(&dir.join(path.file_name().unwrap_or_default()))
}

/// The path, or with a number behind it where that is taken.
fn free_name(path: &Path) -> PathBuf {
    if !path.exists() {
        return path.to_owned();
    }
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    (1..)
        .map(numbered)
        .find(|path| !path.exists())
        .expect("some number is free")
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY_SUFFIX);
    PathBuf::from(name)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), StorageError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(|error| failed("write", path, error))
}

fn sync_dir(dir: &Path) -> Result<(), StorageError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(|error| failed("sync", dir, error))
}
