//! `leader-epoch-checkpoint` held against the batches: each batch has the epoch that the file gives its offset.

use std::path::{Path, PathBuf};

use super::finding::{Finding, Severity, Subject};
use super::read_small;
use super::reader::FoundBatch;
use super::verify::Expectation;
use crate::error::StorageError;
use crate::layout::LEADER_EPOCH_FILE;
use crate::leader_epoch::LeaderEpochs;
use crate::types::Offset;

/// The leader epochs in the file, held against the batches.
pub(super) struct Epochs {
    noted: LeaderEpochs,
    /// Batches below are not held against it.
    from: Offset,
    findings: Vec<Finding>,
    path: PathBuf,
    is_done: bool,
    has_file: bool,
    batches: u64,
}

impl Epochs {
    /// Reads the file of the log in `dir`.
    pub(super) fn load(dir: &Path, expectation: &Expectation) -> Result<Self, StorageError> {
        let path = dir.join(LEADER_EPOCH_FILE);
        let bytes = read_small(&path)?;
        let mut findings = Vec::new();
        let noted = match bytes.as_deref().map(LeaderEpochs::decode) {
            Some(Ok(noted)) => noted,
            None => LeaderEpochs::new(),
            Some(Err(error)) => {
                let finding = Finding::of_file(
                    Severity::Rebuildable,
                    Subject::LeaderEpochs,
                    &path,
                    "epochs and start offsets in order",
                    error.to_string(),
                );
                findings.push(finding);
                LeaderEpochs::new()
            }
        };
        let earliest = noted.earliest().map_or(Offset::ZERO, |entry| entry.start_offset);
        Ok(Self {
            from: earliest.max(expectation.log_start),
            is_done: noted.latest().is_none(),
            has_file: bytes.is_some(),
            noted,
            findings,
            path,
            batches: 0,
        })
    }

    /// The next valid batch.
    pub(super) fn batch(&mut self, batch: &FoundBatch<'_>) {
        self.batches += 1;
        let header = &batch.header;
        if self.is_done || header.base_offset < self.from {
            return;
        }
        let before = self.noted.epoch_for(header.base_offset);
        if self
            .noted
            .observe(header.leader_epoch, header.base_offset, header.last_offset())
        {
            self.is_done = true;
            let expected = format!(
                "epoch {} at offset {}, as in the log",
                header.leader_epoch, header.base_offset
            );
            let found = before.map_or_else(|| "no epoch".to_owned(), |epoch| format!("epoch {epoch}"));
            let finding = Finding::of_file(
                Severity::Rebuildable,
                Subject::LeaderEpochs,
                &self.path,
                expected,
                found,
            );
            self.findings
                .push(finding.of_offsets(header.base_offset, header.last_offset().plus(1)));
        }
    }

    /// The log ends at `end`.
    pub(super) fn finish(mut self, dir: &Path, end: Offset, is_clean: bool) -> Vec<Finding> {
        let severity = if is_clean {
            Severity::Rebuildable
        } else {
            Severity::Remark
        };
        let beyond = self.noted.latest().filter(|latest| latest.start_offset > end);
        if let Some(latest) = beyond {
            let expected = format!("no epoch behind the end of the log at offset {end}");
            let found = format!("epoch {} from offset {} on", latest.epoch, latest.start_offset);
            self.findings.push(Finding::of_file(
                severity,
                Subject::LeaderEpochs,
                &self.path,
                expected,
                found,
            ));
        }
        if !self.has_file && self.batches > 0 {
            let path = dir.join(LEADER_EPOCH_FILE);
            let expected = "the epochs of the log's batches";
            self.findings.push(Finding::of_file(
                severity,
                Subject::LeaderEpochs,
                path,
                expected,
                "no file",
            ));
        }
        self.findings
    }
}
