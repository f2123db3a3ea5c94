//! The index files of a segment held against its batches, one batch at a time: an entry is right when a search that begins
//! with it finds what it must. So entries of every Kafka version pass, which place them a little differently.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Severity, Subject};
use super::read_small;
use crate::error::StorageError;
use crate::layout::SegmentFile;
use crate::log::batch::BatchHeader;
use crate::log::segment_path;
use crate::segment::offset_index::{OFFSET_ENTRY_BYTES, OffsetIndex, OffsetPosition};
use crate::segment::time_index::{NO_TIMESTAMP, TIME_ENTRY_BYTES, TimeIndex, TimestampOffset};
use crate::types::Offset;

/// No limit on entries: what is there is read.
const ENTRIES_BYTES_MAX: usize = usize::MAX;

/// Findings of one index that are told apart; there are no more to learn from a thousand.
const FINDINGS_MAX: usize = 3;

/// The two sparse indexes of a segment, entries not passed yet, and what was wrong.
pub(super) struct IndexCheck {
    offset: Vec<OffsetPosition>,
    time: Vec<TimestampOffset>,
    offset_path: PathBuf,
    time_path: PathBuf,
    next_offset: usize,
    next_time: usize,
    /// The largest timestamp of the batches passed, and of those before the last one.
    largest: i64,
    largest_before: i64,
    /// The time index is there and can be read.
    has_time: bool,
    severity: Severity,
    findings: Vec<Finding>,
    of_offset: usize,
    of_time: usize,
}

impl IndexCheck {
    /// Reads the index files of the segment `base` in `dir`. `is_required`: the segment is closed, or the broker stopped in
    /// order, so that they must be there and complete.
    /// The last segment has none while they would be empty.
    pub(super) fn load(
        dir: &Path,
        base: Offset,
        is_last: bool,
        is_required: bool,
    ) -> Result<Self, StorageError> {
        let offset_path = segment_path(dir, base, SegmentFile::OffsetIndex);
        let time_path = segment_path(dir, base, SegmentFile::TimeIndex);
        let severity = if is_required {
            Severity::Rebuildable
        } else {
            Severity::Remark
        };
        let mut check = Self {
            severity,
            offset: Vec::new(),
            time: Vec::new(),
            next_offset: 0,
            next_time: 0,
            largest: NO_TIMESTAMP,
            largest_before: NO_TIMESTAMP,
            has_time: false,
            findings: Vec::new(),
            of_offset: 0,
            of_time: 0,
            offset_path,
            time_path,
        };
        match read_small(&check.offset_path)? {
            None if is_last => {}
            None => check.missing(Subject::OffsetIndex),
            Some(bytes) => match OffsetIndex::decode(base, ENTRIES_BYTES_MAX, &bytes) {
                Ok(index) => check.offset = index.iter().collect(),
                Err(error) => check.unreadable(Subject::OffsetIndex, &error.to_string()),
            },
        }
        match read_small(&check.time_path)? {
            None if is_last => {}
            None => check.missing(Subject::TimeIndex),
            Some(bytes) => match TimeIndex::decode(base, ENTRIES_BYTES_MAX, &bytes) {
                Ok(index) => {
                    check.has_time = true;
                    check.time = index.iter().collect();
                }
                Err(error) => check.unreadable(Subject::TimeIndex, &error.to_string()),
            },
        }
        Ok(check)
    }

    /// The next valid batch, at `position`.
    pub(super) fn batch(&mut self, header: &BatchHeader, position: u64) {
        self.largest_before = self.largest;
        self.largest = self.largest.max(header.max_timestamp);
        while let Some(entry) = self.offset.get(self.next_offset).copied() {
            match u64::from(entry.position).cmp(&position) {
                std::cmp::Ordering::Less => {
                    self.offset_finding(entry, "the beginning of a batch", "other bytes")
                }
                std::cmp::Ordering::Equal if header.base_offset > entry.offset => {
                    let found = format!("the batch at offset {}", header.base_offset);
                    self.offset_finding(entry, "a batch that is not behind the entry's offset", &found);
                }
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Greater => break,
            }
            self.next_offset += 1;
        }
        while let Some(entry) = self.time.get(self.next_time).copied() {
            if entry.offset > header.last_offset() {
                break;
            }
            if self.largest_before > entry.timestamp || self.largest < entry.timestamp {
                let found = format!("{} in the log", self.largest.max(self.largest_before));
                self.time_finding(entry, &found);
            }
            self.next_time += 1;
        }
    }

    /// Bytes up to `position` are no batches: what points into them cannot be judged.
    pub(super) fn skip_to(&mut self, position: u64, offset: Offset) {
        while self
            .offset
            .get(self.next_offset)
            .is_some_and(|entry| u64::from(entry.position) < position)
        {
            self.next_offset += 1;
        }
        while offset != Offset::NONE
            && self
                .time
                .get(self.next_time)
                .is_some_and(|entry| entry.offset < offset)
        {
            self.next_time += 1;
        }
    }

    /// The segment's batches end at `end`, before offset `end_offset`. `is_complete`: all of them were valid, and the segment
    /// is closed or the broker stopped in order, so that the last time entry is the largest timestamp.
    pub(super) fn finish(mut self, end: u64, end_offset: Offset, is_complete: bool) -> Vec<Finding> {
        if let Some(entry) = self.offset.get(self.next_offset).copied() {
            let found = format!("the end of the batches at byte {end}");
            self.offset_finding(entry, "the beginning of a batch", &found);
        }
        if let Some(entry) = self.time.get(self.next_time).copied() {
            let found = format!("the end of the log at offset {end_offset}");
            self.time_finding(entry, &found);
        }
        let last = self.time.last().map_or(NO_TIMESTAMP, |entry| entry.timestamp);
        if is_complete && self.has_time && self.of_time == 0 && last != self.largest {
            let expected = format!(
                "a last entry with the segment's largest timestamp {}",
                self.largest
            );
            let position = (self.time.len().saturating_sub(1) * TIME_ENTRY_BYTES) as u64;
            let finding = Finding::of_file(
                self.severity,
                Subject::TimeIndex,
                &self.time_path,
                expected,
                format!("{last}"),
            );
            self.findings.push(finding.at(position));
        }
        self.findings
    }

    fn missing(&mut self, subject: Subject) {
        let finding = Finding::of_file(
            self.severity,
            subject,
            self.path(subject),
            "an index file",
            "no file",
        );
        self.findings.push(finding);
    }

    fn unreadable(&mut self, subject: Subject, error: &str) {
        let finding = Finding::of_file(
            self.severity,
            subject,
            self.path(subject),
            "entries in order",
            error,
        );
        self.findings.push(finding);
    }

    fn path(&self, subject: Subject) -> &Path {
        match subject {
            Subject::OffsetIndex => &self.offset_path,
            _ => &self.time_path,
        }
    }

    fn offset_finding(&mut self, entry: OffsetPosition, expected: &str, found: &str) {
        self.of_offset += 1;
        if self.of_offset <= FINDINGS_MAX {
            let expected = format!("{expected} at byte {} of the log", entry.position);
            let finding = Finding::of_file(
                self.severity,
                Subject::OffsetIndex,
                &self.offset_path,
                expected,
                found,
            )
            .at((self.next_offset * OFFSET_ENTRY_BYTES) as u64)
            .of_offsets(entry.offset, Offset::NONE);
            self.findings.push(finding);
        }
    }

    fn time_finding(&mut self, entry: TimestampOffset, found: &str) {
        self.of_time += 1;
        if self.of_time <= FINDINGS_MAX {
            let expected = format!(
                "largest timestamp {} up to offset {}",
                entry.timestamp, entry.offset
            );
            let finding = Finding::of_file(
                self.severity,
                Subject::TimeIndex,
                &self.time_path,
                expected,
                found,
            )
            .at((self.next_time * TIME_ENTRY_BYTES) as u64)
            .of_offsets(entry.offset, Offset::NONE);
            self.findings.push(finding);
        }
    }
}
