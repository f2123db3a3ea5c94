//! A log directory as a whole: whose it is, how it was left, what its checkpoints and journals say of each log. The logs
//! themselves are checked one by one ([`super::verify`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Severity, Subject};
use super::journals::{self, Journals};
use super::read_small;
use super::repair::Plan;
use super::verify::Expectation;
use crate::checkpoint::envelope;
use crate::checkpoint::meta_properties::{self, MetaProperties};
use crate::checkpoint::offsets::{self, Offsets};
use crate::disk::Disk as _;
use crate::disk::plain::{PlainDisk, wait};
use crate::error::{Damage, StorageError};
use crate::layout::{
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_FILE, DirName, HIGH_WATERMARK_FILE, LOG_START_FILE,
    META_PROPERTIES_FILE, PRIVATE_DIR, PartitionName, RECOVERY_POINT_FILE,
};
use crate::recovery::record::{Checkpoints, LogRecord, directory_path, load_all, load_directory};
use crate::recovery::recover_journals;
use crate::types::Offset;

/// What is known of a log directory before its logs are read.
#[derive(Debug)]
pub struct Survey {
    /// The directory.
    pub dir: PathBuf,
    /// The run of the last start of a broker of ours, 0 for a directory that only Apache Kafka used.
    pub run: u64,
    /// The last broker stopped in order.
    pub is_clean: bool,
    /// Cluster, node and directory; `None` when the file is missing or damaged.
    pub identity: Option<MetaProperties>,
    /// Directories of replicas in use.
    pub partitions: Vec<PartitionName>,
    /// Directories that are on their way in or out, or set aside: names.
    pub marked: Vec<String>,
    /// What the journals hold.
    pub journals: Journals,
    /// What is wrong with files of the directory itself.
    pub findings: Vec<Finding>,
    records: BTreeMap<String, LogRecord>,
    starts: Offsets,
    points: Offsets,
}

/// Looks at the log directory `dir`.
///
/// # Errors
/// From the file system; what is wrong with files is in the survey.
pub fn survey(dir: &Path) -> Result<Survey, StorageError> {
    let disk = PlainDisk::new();
    let entries = wait(disk.list(dir))?;
    let mut survey = Survey {
        dir: dir.to_owned(),
        run: 0,
        is_clean: entries.iter().any(|entry| entry.name == CLEAN_SHUTDOWN_FILE),
        identity: None,
        partitions: Vec::new(),
        marked: Vec::new(),
        journals: Journals::default(),
        findings: Vec::new(),
        records: BTreeMap::new(),
        starts: Offsets::new(),
        points: Offsets::new(),
    };
    for entry in entries.into_iter().filter(|entry| entry.is_dir) {
        match DirName::parse(&entry.name) {
            DirName::Partition(name) => survey.partitions.push(name),
            DirName::Replica { .. } => survey.marked.push(entry.name),
            DirName::Private | DirName::Other => {}
        }
    }
    survey.identify()?;
    survey.read_offsets()?;
    match wait(load_all(&disk, dir)) {
        Ok(checkpoints) => survey.read_ours(checkpoints)?,
        Err(error) => survey.take(error, Subject::Checkpoint)?,
    }
    survey.check_directories();
    Ok(survey)
}

/// Replays and removes the journals, as a start does; what is known of the logs is then in one checkpoint.
///
/// # Errors
/// As [`recover_journals`]; nothing is removed then.
pub fn replay_journals(dir: &Path) -> Result<(), StorageError> {
    wait(recover_journals(&PlainDisk::new(), dir, |_, _| {})).map(drop)
}

/// The checkpoint of `dir`, ours or Apache Kafka's, says what is there now that `plans` were carried out.
///
/// # Errors
/// From the file system.
pub fn note_repairs(dir: &Path, plans: &[(PartitionName, Plan)]) -> Result<(), StorageError> {
    let disk = PlainDisk::new();
    let mut record = wait(load_directory(&disk, dir))?;
    if record.run > 0 {
        for log in &mut record.logs {
            let of_log = plans.iter().find(|(name, _)| name.to_string() == log.directory);
            let Some((_, plan)) = of_log else { continue };
            log.place = None;
            log.damage = None;
            log.epochs = Vec::new();
            log.durable_end = plan.end.0;
            log.log_start = log.log_start.max(plan.log_start.0);
        }
        return Ok(wait(envelope::save(&disk, &directory_path(dir), &record))?);
    }
    for (file, value) in [
        (RECOVERY_POINT_FILE, (|plan| plan.end) as fn(&Plan) -> Offset),
        (LOG_START_FILE, |plan| plan.log_start),
    ] {
        let path = dir.join(file);
        let Some(mut offsets) = wait(offsets::load(&disk, &path))? else {
            continue;
        };
        for (name, plan) in plans {
            if let Some(offset) = offsets.get_mut(name) {
                *offset = if file == LOG_START_FILE {
                    (*offset).max(value(plan))
                } else {
                    value(plan)
                };
            }
        }
        wait(offsets::save(&disk, &path, &offsets))?;
    }
    Ok(())
}

impl Survey {
    /// What is known of the log in the directory `name`.
    #[must_use]
    pub fn expectation(&self, name: &PartitionName) -> Expectation {
        let directory = name.to_string();
        let covered = self.journals.logs.get(&directory).cloned().unwrap_or_default();
        match self.records.get(&directory) {
            Some(record) => Expectation {
                is_clean: self.is_clean,
                log_start: Offset(record.log_start),
                durable_end: Offset(record.durable_end.max(0)),
                damage: record
                    .damage
                    .as_ref()
                    .map(|damage| damage.report(&self.dir.join(&directory))),
                topic: Some(record.id().topic),
                covered,
            },
            None => {
                let of = |offsets: &Offsets| offsets.get(name).copied().filter(|_| self.run == 0);
                Expectation {
                    is_clean: self.is_clean,
                    log_start: of(&self.starts).unwrap_or(Offset::NONE),
                    durable_end: of(&self.points).unwrap_or(Offset::ZERO).max(Offset::ZERO),
                    covered,
                    ..Expectation::default()
                }
            }
        }
    }

    /// Up to where the log in the directory `name` was durable, as far as is known.
    #[must_use]
    pub fn durable_end(&self, name: &PartitionName) -> Offset {
        let known = self.expectation(name);
        known.durable_end.max(known.covered.durable_end)
    }

    /// Whether a file that all logs depend on is damaged: a journal, a checkpoint. Then nothing is repaired.
    #[must_use]
    pub fn blocker(&self) -> Option<&Finding> {
        let is_blocker = |finding: &&Finding| {
            finding.severity == Severity::Damage
                && matches!(finding.subject, Subject::Journal | Subject::Checkpoint)
        };
        self.findings.iter().find(is_blocker)
    }

    fn identify(&mut self) -> Result<(), StorageError> {
        let path = self.dir.join(META_PROPERTIES_FILE);
        let Some(bytes) = read_small(&path)? else {
            if !self.partitions.is_empty() {
                let expected = "cluster, node and directory ids";
                let finding =
                    Finding::of_file(Severity::Damage, Subject::Identity, path, expected, "no file");
                self.findings.push(finding);
            }
            return Ok(());
        };
        match meta_properties::parse(&String::from_utf8_lossy(&bytes)) {
            Ok(identity) => self.identity = Some(identity),
            Err(error) => {
                let expected = "cluster, node and directory ids";
                let finding = Finding::of_file(
                    Severity::Damage,
                    Subject::Identity,
                    path,
                    expected,
                    error.to_string(),
                );
                self.findings.push(finding);
            }
        }
        Ok(())
    }

    /// Kafka's text files. A broker of ours reads them only in a directory that it never used.
    fn read_offsets(&mut self) -> Result<(), StorageError> {
        for name in [
            LOG_START_FILE,
            RECOVERY_POINT_FILE,
            HIGH_WATERMARK_FILE,
            CLEANER_OFFSET_FILE,
        ] {
            let path = self.dir.join(name);
            let Some(bytes) = read_small(&path)? else { continue };
            let text = String::from_utf8_lossy(&bytes);
            match offsets::parse(&text) {
                Ok(found) if name == LOG_START_FILE => self.starts = found,
                Ok(found) if name == RECOVERY_POINT_FILE => self.points = found,
                Ok(_) => {}
                Err(error) => {
                    let expected = "a topic, a partition and an offset in each line";
                    let severity = Severity::Rebuildable;
                    let finding =
                        Finding::of_file(severity, Subject::Checkpoint, path, expected, error.to_string());
                    self.findings.push(finding);
                }
            }
        }
        Ok(())
    }

    fn read_ours(&mut self, checkpoints: Checkpoints) -> Result<(), StorageError> {
        let mut wrong = Vec::new();
        match journals::read(&self.dir, &checkpoints, &mut wrong) {
            Ok(journals) => self.journals = journals,
            Err(error) => wrong.push(error),
        }
        for error in wrong {
            self.take(error, Subject::Journal)?;
        }
        self.run = checkpoints.run;
        let deleted = checkpoints.deleted;
        self.records = checkpoints.logs;
        self.records.retain(|_, record| !deleted.contains(&record.id()));
        Ok(())
    }

    /// Logs of the checkpoint have a directory; a directory of ours with logs has a checkpoint.
    fn check_directories(&mut self) {
        let present: Vec<String> = self.partitions.iter().map(ToString::to_string).collect();
        let missing = self.records.values().filter(|record| {
            record.durable_end > 0 && !present.contains(&record.directory) && record.topic != [0; 16]
        });
        let missing: Vec<Finding> = missing
            .map(|record| {
                let expected = format!(
                    "the directory of a log with durable batches up to offset {}",
                    record.durable_end
                );
                let path = self.dir.join(&record.directory);
                Finding::of_file(Severity::Damage, Subject::Segment, path, expected, "no directory")
                    .of_offsets(Offset(record.log_start.max(0)), Offset(record.durable_end))
            })
            .collect();
        self.findings.extend(missing);
        let is_unknown = self.run == 0 && self.records.is_empty() && !self.is_clean;
        if let Some(log) = self.partitions.first().filter(|_| is_unknown) {
            let expected = format!("a checkpoint, since {log} is there and no {CLEAN_SHUTDOWN_FILE}");
            let path = directory_path(&self.dir);
            // Apache Kafka has none; ours always has one once its own directory is there.
            let (severity, found) = match self.dir.join(PRIVATE_DIR).is_dir() {
                true => (Severity::Damage, "no file"),
                false => (
                    Severity::Remark,
                    "no file; Apache Kafka left the directory without stopping in order",
                ),
            };
            self.findings.push(Finding::of_file(
                severity,
                Subject::Checkpoint,
                path,
                expected,
                found,
            ));
        }
    }

    /// Damage becomes a finding; everything else is the file system's.
    fn take(&mut self, error: StorageError, subject: Subject) -> Result<(), StorageError> {
        match error {
            StorageError::Damage(damage) => {
                let Damage {
                    path,
                    position,
                    first_offset,
                    end_offset,
                    expected,
                    found,
                } = *damage;
                let finding = Finding::of_file(Severity::Damage, subject, path, expected, found);
                self.findings
                    .push(finding.at(position).of_offsets(first_offset, end_offset));
                Ok(())
            }
            other => Err(other),
        }
    }
}
