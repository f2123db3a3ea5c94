//! Producer snapshots and transaction indexes held against the log: the batches are replayed onto the state of the producers,
//! and what the files say must follow from it. Memory as [`ProducerState`]'s, plus the aborted transactions of one segment.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Severity, Subject};
use super::read_small;
use crate::error::StorageError;
use crate::layout::SegmentFile;
use crate::log::batch::BatchHeader;
use crate::log::segment_path;
use crate::producer_state::snapshot::{self, SnapshotEntry};
use crate::producer_state::{PRODUCERS_MAX, ProducerState};
use crate::segment::txn_index::{AbortedTxn, TXN_ENTRY_BYTES, TxnIndex};
use crate::types::Offset;

/// The producers of a partition while its batches are read.
pub(super) struct ProducerCheck {
    dir: PathBuf,
    state: ProducerState,
    /// The state is that of the log up to here, but for producers that were silent before the first batch.
    is_known: bool,
    /// No record of the log was compacted away, so that the state says it all.
    is_exact: bool,
    /// Snapshots not passed yet, in order.
    snapshots: Vec<Offset>,
    next: usize,
    /// Transactions aborted in the current segment.
    aborted: Vec<AbortedTxn>,
    /// They are all of the segment.
    aborted_is_whole: bool,
    findings: Vec<Finding>,
}

impl ProducerCheck {
    /// Of the log in `dir` that begins at `first` and has snapshots at these offsets, in order.
    pub(super) fn new(dir: &Path, first: Offset, snapshots: Vec<Offset>) -> Self {
        Self {
            dir: dir.to_owned(),
            state: ProducerState::new(first, PRODUCERS_MAX),
            is_known: first == Offset::ZERO,
            is_exact: first == Offset::ZERO,
            snapshots,
            next: 0,
            aborted: Vec::new(),
            aborted_is_whole: false,
            findings: Vec::new(),
        }
    }

    /// A segment begins.
    pub(super) fn begin_segment(&mut self, base: Offset) -> Result<(), StorageError> {
        self.pass_snapshots(base)?;
        self.aborted.clear();
        self.aborted_is_whole = self.is_known;
        Ok(())
    }

    /// The next valid batch.
    pub(super) fn batch(&mut self, header: &BatchHeader, bytes: &[u8]) -> Result<(), StorageError> {
        if header.base_offset > self.state.end_offset() {
            self.is_exact = false; // compacted
        }
        self.pass_snapshots(header.base_offset)?;
        let facts = header.producer_facts(bytes);
        let completed = self.state.apply(&facts, header.max_timestamp);
        self.state.advance(header.last_offset().plus(1));
        if let Some(completed) = completed {
            self.state.on_high_watermark(header.last_offset().plus(1));
            self.aborted.extend(completed.aborted_txn());
        }
        Ok(())
    }

    /// Batches are missing here.
    pub(super) fn lost(&mut self) {
        self.is_known = false;
        self.is_exact = false;
        self.aborted_is_whole = false;
    }

    /// The segment's batches are over: its transaction index is compared. `is_required`: it must be complete.
    pub(super) fn end_segment(&mut self, base: Offset, is_required: bool) -> Result<(), StorageError> {
        let path = segment_path(&self.dir, base, SegmentFile::TxnIndex);
        let severity = if is_required {
            Severity::Rebuildable
        } else {
            Severity::Remark
        };
        let bytes = read_small(&path)?.unwrap_or_default();
        let index = match TxnIndex::decode(base, &bytes) {
            Ok(index) => index,
            Err(error) => {
                let expected = "entries of aborted transactions in order";
                self.findings.push(Finding::of_file(
                    severity,
                    Subject::TxnIndex,
                    &path,
                    expected,
                    error.to_string(),
                ));
                return Ok(());
            }
        };
        let missing = self.aborted.iter().find(|txn| {
            let same = |entry: &&AbortedTxn| {
                entry.producer_id == txn.producer_id && entry.last_offset == txn.last_offset
            };
            let entry = index.entries().iter().find(same);
            entry.is_none_or(|entry| entry.first_offset > txn.first_offset)
        });
        if let Some(txn) = missing {
            let expected = format!(
                "the transaction of producer {} that was aborted at offset {}",
                txn.producer_id, txn.last_offset
            );
            let finding = Finding::of_file(
                severity,
                Subject::TxnIndex,
                &path,
                expected,
                "no entry that covers it",
            );
            self.findings
                .push(finding.of_offsets(txn.first_offset, txn.last_offset.plus(1)));
        } else if self.is_exact && self.aborted_is_whole {
            let extra = index
                .entries()
                .iter()
                .position(|entry| !self.aborted.contains(entry));
            if let Some((number, entry)) = extra.and_then(|at| Some((at, index.entries().get(at)?))) {
                let expected = "only transactions that were aborted in the segment";
                let found = format!(
                    "one of producer {} ended at offset {}",
                    entry.producer_id, entry.last_offset
                );
                let finding = Finding::of_file(severity, Subject::TxnIndex, &path, expected, found);
                self.findings.push(finding.at((number * TXN_ENTRY_BYTES) as u64));
            }
        }
        Ok(())
    }

    /// The log ends at `end`. Gives what was found, and how many transactions are open.
    pub(super) fn finish(
        mut self,
        end: Offset,
        is_clean: bool,
    ) -> Result<(Vec<Finding>, usize), StorageError> {
        self.pass_snapshots(end)?;
        for offset in self.snapshots.split_off(self.next.min(self.snapshots.len())) {
            let severity = if is_clean {
                Severity::Rebuildable
            } else {
                Severity::Remark
            };
            let path = segment_path(&self.dir, offset, SegmentFile::ProducerSnapshot);
            let expected = format!("no snapshot behind the end of the log at offset {end}");
            let found = format!("one at offset {offset}");
            self.findings.push(Finding::of_file(
                severity,
                Subject::ProducerSnapshot,
                path,
                expected,
                found,
            ));
        }
        let open = self
            .state
            .producers()
            .filter(|view| view.transaction_start.is_some());
        let open = open.count();
        Ok((self.findings, open))
    }

    /// Compares the snapshots up to `offset`, where the state stands.
    fn pass_snapshots(&mut self, offset: Offset) -> Result<(), StorageError> {
        while let Some(at) = self.snapshots.get(self.next).copied().filter(|at| *at <= offset) {
            self.next += 1;
            let path = segment_path(&self.dir, at, SegmentFile::ProducerSnapshot);
            let Some(bytes) = read_small(&path)? else { continue };
            match snapshot::decode(&bytes) {
                Err(error) => {
                    let expected = "a whole producer snapshot";
                    let finding = Finding::of_file(
                        Severity::Rebuildable,
                        Subject::ProducerSnapshot,
                        path,
                        expected,
                        error.to_string(),
                    );
                    self.findings.push(finding);
                }
                Ok(entries) => {
                    if self.is_known && self.is_exact {
                        self.compare(&path, &entries);
                    } else if !self.is_known && at >= self.state.end_offset() {
                        self.state.load(at, &entries, 0, i64::MAX);
                        self.is_known = true;
                    }
                }
            }
        }
        Ok(())
    }

    /// Everything in a snapshot follows from the log; producers that were silent for long may be missing in it, unless they
    /// have a transaction open.
    fn compare(&mut self, path: &Path, entries: &[SnapshotEntry]) {
        let differs = entries.iter().find_map(|entry| {
            let expected = self.state.producer(entry.producer_id);
            let found = (
                entry.epoch,
                entry.last.map_or(-1, |last| last.last_sequence),
                entry.transaction_start,
            );
            let says = |(epoch, sequence, start): (i16, i32, Option<Offset>)| {
                let start = start.map_or_else(String::new, |start| {
                    format!(", a transaction open from offset {start}")
                });
                format!(
                    "producer {} at epoch {epoch}, sequence {sequence}{start}",
                    entry.producer_id
                )
            };
            match expected.map(|view| (view.epoch, view.last_sequence, view.transaction_start)) {
                None => Some((
                    format!("no producer {}, which the log does not have", entry.producer_id),
                    says(found),
                )),
                Some(expected) if expected != found => Some((says(expected), says(found))),
                Some(_) => None,
            }
        });
        let forgotten = || {
            let mut open = self
                .state
                .producers()
                .filter(|view| view.transaction_start.is_some());
            let view = open.find(|view| entries.iter().all(|entry| entry.producer_id != view.producer_id))?;
            let expected = format!("the open transaction of producer {}", view.producer_id);
            Some((expected, "nothing of it".to_owned()))
        };
        if let Some((expected, found)) = differs.or_else(forgotten) {
            let finding = Finding::of_file(
                Severity::Rebuildable,
                Subject::ProducerSnapshot,
                path,
                expected,
                found,
            );
            self.findings.push(finding);
        }
    }
}
