//! One partition directory, every file of it held against the batches: checksums, offsets, indexes, transactions, producers,
//! epochs. What a crash may leave and the next start puts right is told from what is lost.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::epochs::Epochs;
use super::finding::{Finding, Severity, Subject};
use super::indexes::IndexCheck;
use super::journals::Covered;
use super::producers::ProducerCheck;
use super::reader::{BadSpan, Fault, Found, FoundBatch, SegmentReader};
use super::{failed, read_small};
use crate::checkpoint::partition_metadata;
use crate::disk::DirEntry;
use crate::disk::Disk as _;
use crate::disk::plain::{PlainDisk, wait};
use crate::error::{Damage, StorageError};
use crate::layout::{FileMark, FileName, PARTITION_METADATA_FILE, SegmentFile};
use crate::log::segment_path;
use crate::types::{Offset, TopicId};

/// Findings of one partition that are kept; further ones are only counted.
pub const FINDINGS_MAX: usize = 1_000;

/// Bytes between two reports of progress.
const PROGRESS_BYTES: u64 = 8 << 20;

/// What is known of a log from outside of its directory.
#[derive(Clone, Debug)]
pub struct Expectation {
    /// The broker stopped in order: everything is complete.
    pub is_clean: bool,
    /// The first offset, −1 when it is not known.
    pub log_start: Offset,
    /// Everything below was durable.
    pub durable_end: Offset,
    /// What the next start will write from the journals.
    pub covered: Covered,
    /// Damage that an earlier start found and keeps the log closed for.
    pub damage: Option<Damage>,
    /// The topic that the checkpoint knows the directory by.
    pub topic: Option<TopicId>,
}

impl Default for Expectation {
    /// Nothing is known; the log is complete in itself.
    fn default() -> Self {
        Self {
            is_clean: true,
            log_start: Offset::NONE,
            durable_end: Offset::ZERO,
            covered: Covered::default(),
            damage: None,
            topic: None,
        }
    }
}

/// What a partition directory holds and what is wrong with it.
#[derive(Clone, Debug)]
pub struct PartitionReport {
    /// The directory.
    pub dir: PathBuf,
    /// The segments, in order.
    pub segments: Vec<SegmentReport>,
    /// The first offset of the log, as far as is known.
    pub log_start: Offset,
    /// One past the last offset.
    pub end_offset: Offset,
    /// Valid batches.
    pub batches: u64,
    /// Bytes of segments read.
    pub bytes: u64,
    /// Transactions that are open at the end.
    pub open_transactions: usize,
    /// What was found, at most [`FINDINGS_MAX`].
    pub findings: Vec<Finding>,
    /// Findings beyond those.
    pub more_findings: usize,
}

/// One segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its base offset.
    pub base: Offset,
    /// The size of its file, bytes.
    pub file_bytes: u64,
    /// Behind its last valid batch, bytes.
    pub valid_bytes: u64,
    /// One past its last offset.
    pub end_offset: Offset,
    /// Valid batches.
    pub batches: u64,
    /// What is no batch and will not be put right by the next start.
    pub bad: Vec<BadSpan>,
    /// A torn end that the next start cuts.
    pub torn: Option<BadSpan>,
}

impl PartitionReport {
    /// The worst finding.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|finding| finding.severity).max()
    }
}

/// Checks the partition directory `dir`. `progress` is told bytes as they are read.
///
/// # Errors
/// From the file system; what is wrong with the files is in the report.
pub fn partition(
    dir: &Path,
    expectation: &Expectation,
    progress: &mut dyn FnMut(u64),
) -> Result<PartitionReport, StorageError> {
    let entries = wait(PlainDisk::new().list(dir))?;
    let mut check = Check {
        dir,
        expectation,
        progress,
        found: Findings::default(),
        epochs: Epochs::load(dir, expectation)?,
        gap: None,
    };
    check.identity()?;
    check.leftovers(&entries);
    let bases: BTreeSet<Offset> = entries
        .iter()
        .filter_map(|entry| base_of(entry, SegmentFile::Log))
        .collect();
    let bases: Vec<Offset> = bases.into_iter().collect();
    let snapshots: BTreeSet<Offset> = entries
        .iter()
        .filter_map(|entry| FileName::snapshot_offset(&entry.name))
        .collect();
    let first = bases.first().copied().unwrap_or(Offset::ZERO);
    let mut producers = ProducerCheck::new(dir, first, snapshots.into_iter().collect());
    let mut segments = Vec::with_capacity(bases.len());
    for (number, base) in bases.iter().enumerate() {
        let next = bases.get(number + 1).copied();
        segments.push(check.segment(*base, next, &mut producers)?);
    }
    check.orphans(&entries, &bases);
    let end = segments.last().map_or(Offset::ZERO, |segment| segment.end_offset);
    let virtual_end = check.ends(first, end, bases.is_empty());
    let (of_producers, open_transactions) = producers.finish(virtual_end, expectation.is_clean)?;
    of_producers
        .into_iter()
        .for_each(|finding| check.found.push(finding));
    let Check {
        mut found,
        epochs,
        gap,
        ..
    } = check;
    epochs
        .finish(dir, virtual_end, expectation.is_clean)
        .into_iter()
        .for_each(|finding| found.push(finding));
    gap.into_iter().for_each(|gap| found.push(gap.finding(dir)));
    Ok(PartitionReport {
        dir: dir.to_owned(),
        log_start: if expectation.log_start > first {
            expectation.log_start
        } else {
            first
        },
        end_offset: virtual_end,
        batches: segments.iter().map(|segment| segment.batches).sum(),
        bytes: segments.iter().map(|segment| segment.file_bytes).sum(),
        open_transactions,
        segments,
        findings: found.list,
        more_findings: found.more,
    })
}

fn base_of(entry: &DirEntry, kind: SegmentFile) -> Option<Offset> {
    match FileName::parse(&entry.name) {
        FileName::Segment {
            file,
            base,
            mark: None,
        } if file == kind && !entry.is_dir => Some(base),
        _ => None,
    }
}

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
    more: usize,
}

impl Findings {
    fn push(&mut self, finding: Finding) {
        if self.list.len() < FINDINGS_MAX {
            self.list.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// Offsets that no batch has.
struct Gap {
    first: Offset,
    end: Offset,
    segment: Offset,
    count: usize,
}

impl Gap {
    fn finding(&self, dir: &Path) -> Finding {
        let others = match self.count {
            1 => String::new(),
            count => format!(" (and {} more gaps)", count - 1),
        };
        Finding::of_file(
            Severity::Remark,
            Subject::Segment,
            segment_path(dir, self.segment, SegmentFile::Log),
            "offsets without gaps, unless the topic is compacted",
            format!("none of {} to {}{others}", self.first, self.end),
        )
        .of_offsets(self.first, self.end)
    }
}

struct Check<'a> {
    dir: &'a Path,
    expectation: &'a Expectation,
    progress: &'a mut dyn FnMut(u64),
    found: Findings,
    epochs: Epochs,
    gap: Option<Gap>,
}

impl Check<'_> {
    /// Reads a segment; `next` is the base offset of the one behind it.
    fn segment(
        &mut self,
        base: Offset,
        next: Option<Offset>,
        producers: &mut ProducerCheck,
    ) -> Result<SegmentReport, StorageError> {
        let path = segment_path(self.dir, base, SegmentFile::Log);
        let mut reader = SegmentReader::open(&path, base).map_err(|error| failed("open", &path, error))?;
        let is_settled = next.is_some() || self.expectation.is_clean;
        let mut indexes = IndexCheck::load(self.dir, base, next.is_none(), is_settled)?;
        producers.begin_segment(base)?;
        let mut report = SegmentReport {
            base,
            file_bytes: reader.size(),
            valid_bytes: 0,
            end_offset: base,
            batches: 0,
            bad: Vec::new(),
            torn: None,
        };
        let (mut told, mut is_whole) = (0, true);
        while let Some(found) = reader
            .next_found()
            .map_err(|error| failed("read", &path, error))?
        {
            match found {
                Found::Batch(batch) => {
                    self.batch(&batch, &report, next, &path);
                    indexes.batch(&batch.header, batch.position);
                    producers.batch(&batch.header, batch.bytes)?;
                    report.valid_bytes = batch.position + u64::from(batch.header.size);
                    report.end_offset = batch.header.last_offset().plus(1);
                    report.batches += 1;
                }
                Found::Bad(span) => {
                    indexes.skip_to(span.end, span.end_offset);
                    is_whole &= span.fault == Fault::Zeroes;
                    if span.fault != Fault::Zeroes {
                        producers.lost();
                    }
                    self.span(&mut report, &span, next, &path);
                }
            }
            let done = reader.position();
            if done - told >= PROGRESS_BYTES {
                (self.progress)(done - told);
                told = done;
            }
        }
        (self.progress)(reader.size() - told);
        if let Some(next) = next {
            self.note_gap(report.end_offset, next, base);
        }
        let of_indexes = indexes.finish(report.valid_bytes, report.end_offset, is_whole && is_settled);
        of_indexes
            .into_iter()
            .for_each(|finding| self.found.push(finding));
        producers.end_segment(base, is_settled)?;
        Ok(report)
    }

    fn batch(&mut self, batch: &FoundBatch<'_>, before: &SegmentReport, next: Option<Offset>, path: &Path) {
        let header = &batch.header;
        self.note_gap(before.end_offset, header.base_offset, before.base);
        self.epochs.batch(batch);
        if let Some(next) = next.filter(|next| header.last_offset() >= *next) {
            let expected = format!("offsets below {next}, where the next segment begins");
            let found = format!("a batch of {} to {}", header.base_offset, header.last_offset());
            let finding = Finding::of_file(Severity::Damage, Subject::Batch, path, expected, found)
                .at(batch.position)
                .of_offsets(header.base_offset, header.last_offset().plus(1));
            self.found.push(finding);
        }
    }

    fn note_gap(&mut self, end: Offset, next: Offset, segment: Offset) {
        if next <= end || self.expectation.covered.end_offset >= next {
            return;
        }
        match &mut self.gap {
            Some(gap) => gap.count += 1,
            None => {
                self.gap = Some(Gap {
                    first: end,
                    end: next,
                    segment,
                    count: 1,
                });
            }
        }
    }

    /// Judges bytes that are no batch.
    fn span(&mut self, report: &mut SegmentReport, span: &BadSpan, next: Option<Offset>, path: &Path) {
        let known = self.expectation;
        let mut span = *span;
        let is_tail = span.end == report.file_bytes;
        if is_tail && span.end_offset == Offset::NONE {
            let durable = Some(known.durable_end).filter(|end| *end > span.first_offset);
            span.end_offset = next.or(durable).unwrap_or(Offset::NONE);
        }
        let is_lost = span.end_offset == Offset::NONE || span.end_offset > span.first_offset;
        let is_covered = known.covered.has(report.base, span.position);
        let is_unwritten = is_tail && span.fault == Fault::Zeroes && (next.is_none() || !is_lost);
        let is_torn = is_tail && next.is_none() && !known.is_clean && span.first_offset >= known.durable_end;
        let (severity, subject) = if is_covered || is_unwritten || is_torn {
            (Severity::Remark, Subject::Tail)
        } else {
            (Severity::Damage, Subject::Batch)
        };
        let mut finding = Finding::of_span(severity, subject, path, &span);
        if severity == Severity::Remark {
            finding.place.expected = "the end of the log, or what the next start puts there".to_owned();
            report.torn = Some(span).filter(|_| !is_covered);
        } else {
            report.bad.push(span);
        }
        self.found.push(finding);
    }

    /// Holds both ends of the log against what is known from outside. Gives the log's end once the journals are replayed.
    fn ends(&mut self, first: Offset, end: Offset, is_empty: bool) -> Offset {
        let known = self.expectation;
        let log_start = known
            .covered
            .log_start
            .unwrap_or(Offset::NONE)
            .max(known.log_start);
        let durable_end = known.durable_end.max(known.covered.durable_end);
        let end = end
            .max(known.covered.end_offset)
            .max(if is_empty { log_start } else { end });
        if let Some(damage) = &known.damage {
            let mut finding = Finding::of_file(
                Severity::Damage,
                Subject::Checkpoint,
                &damage.path,
                &*damage.expected,
                &*damage.found,
            )
            .at(damage.position)
            .of_offsets(damage.first_offset, damage.end_offset);
            finding
                .place
                .found
                .push_str(" (found by an earlier start, which keeps the partition offline)");
            self.found.push(finding);
        }
        if end < durable_end && !self.has_tail_damage() {
            let last = segment_path(self.dir, first, SegmentFile::Log);
            let expected = format!("batches up to offset {durable_end}, which were durable");
            let finding = Finding::of_file(
                Severity::Damage,
                Subject::Segment,
                last,
                expected,
                "the end of the log",
            )
            .of_offsets(end, durable_end);
            self.found.push(finding);
        }
        if !is_empty && log_start.0 >= 0 && first > log_start && durable_end > log_start {
            let path = segment_path(self.dir, log_start, SegmentFile::Log);
            let expected = format!("a segment with offset {log_start}, where the log starts");
            let finding = Finding::of_file(
                Severity::Damage,
                Subject::Segment,
                path,
                expected,
                format!("no segment below offset {first}"),
            );
            self.found
                .push(finding.of_offsets(log_start, first.min(durable_end)));
        }
        end
    }

    fn has_tail_damage(&self) -> bool {
        let mut damage = self
            .found
            .list
            .iter()
            .filter(|finding| finding.severity == Severity::Damage);
        damage.any(|finding| {
            finding.subject == Subject::Batch && finding.place.end_offset >= self.expectation.durable_end
        })
    }

    fn identity(&mut self) -> Result<(), StorageError> {
        let path = self.dir.join(PARTITION_METADATA_FILE);
        let Some(bytes) = read_small(&path)? else {
            let found = "no file: the next start writes it";
            self.found.push(Finding::of_file(
                Severity::Remark,
                Subject::Identity,
                path,
                "the topic's id",
                found,
            ));
            return Ok(());
        };
        match partition_metadata::parse(&String::from_utf8_lossy(&bytes)) {
            Ok(found) => {
                if let Some(topic) = self
                    .expectation
                    .topic
                    .filter(|topic| *topic != found && topic.0 != [0; 16])
                {
                    let expected = format!("topic id {}", protocol::Uuid(topic.0));
                    let found = format!(
                        "{}: the next start sets the directory aside",
                        protocol::Uuid(found.0)
                    );
                    self.found.push(Finding::of_file(
                        Severity::Damage,
                        Subject::Identity,
                        path,
                        expected,
                        found,
                    ));
                }
            }
            Err(error) => {
                let finding = Finding::of_file(
                    Severity::Rebuildable,
                    Subject::Identity,
                    path,
                    "the topic's id",
                    error.to_string(),
                );
                self.found.push(finding);
            }
        }
        Ok(())
    }

    /// Files that were being written, replaced or deleted.
    fn leftovers(&mut self, entries: &[DirEntry]) {
        for entry in entries.iter().filter(|entry| !entry.is_dir) {
            let found = match FileName::parse(&entry.name) {
                FileName::Temporary => "was being written when the process ended",
                FileName::Segment {
                    mark: Some(FileMark::Deleted),
                    ..
                } => "was to be deleted",
                FileName::Segment {
                    mark: Some(FileMark::Cleaned),
                    ..
                } => "a compaction that did not end",
                FileName::Segment {
                    mark: Some(FileMark::Swap),
                    ..
                } => "a compaction about to replace segments",
                _ => continue,
            };
            let path = self.dir.join(&entry.name);
            self.found.push(Finding::of_file(
                Severity::Remark,
                Subject::Leftover,
                path,
                "no such file",
                found,
            ));
        }
    }

    /// Indexes of a segment whose log is gone.
    fn orphans(&mut self, entries: &[DirEntry], bases: &[Offset]) {
        let severity = if self.expectation.is_clean {
            Severity::Damage
        } else {
            Severity::Remark
        };
        for kind in [
            SegmentFile::OffsetIndex,
            SegmentFile::TimeIndex,
            SegmentFile::TxnIndex,
        ] {
            let orphans = entries.iter().filter_map(|entry| base_of(entry, kind));
            for base in orphans.filter(|base| bases.binary_search(base).is_err()) {
                let next = bases
                    .iter()
                    .find(|next| **next > base)
                    .copied()
                    .unwrap_or(Offset::NONE);
                let path = segment_path(self.dir, base, SegmentFile::Log);
                let expected = format!("the segment of {}", kind.name(base));
                let finding = Finding::of_file(severity, Subject::Segment, path, expected, "no file");
                self.found.push(finding.of_offsets(base, next));
            }
        }
    }
}
