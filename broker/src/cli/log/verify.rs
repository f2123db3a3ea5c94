//! `penstock log verify`: checks log directories or single partitions and says what is wrong, as a table and sentences or as
//! JSON.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use storage::layout::PartitionName;
use storage::offline::directory::{Survey, survey};
use storage::offline::finding::{Finding, Severity};
use storage::offline::verify::{PartitionReport, partition};
use storage::types::Offset;

use super::meter::Meter;
use super::{Target, each_locked, failed, human_bytes, shown};
use crate::cli::say;
use crate::cli::table::{left, right, table};
use crate::client::clean;
use crate::exit::{Failure, Status};

/// Findings of one partition that are told to people; scripts get all.
const FINDINGS_SHOWN: usize = 20;

#[derive(Clone, Debug, Args)]
pub(super) struct VerifyArgs {
    /// Log directories (what log.dirs names), or partition directories in one
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// Show partitions without findings too
    #[arg(short, long)]
    all: bool,
    /// As JSON, for scripts
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let reports = each_locked(&args.dirs, check)?;
    if args.json {
        let directories: Vec<Value> = reports.iter().map(DirectoryReport::json).collect();
        let verdict = if is_whole(&reports) { "clean" } else { "damaged" };
        say(&format!(
            "{:#}\n",
            json!({ "verdict": verdict, "directories": directories })
        ));
    } else {
        let texts: Vec<String> = reports.iter().map(|report| report.text(args.all)).collect();
        say(&texts.join("\n"));
    }
    if is_whole(&reports) {
        return Ok(());
    }
    let count = |severity| reports.iter().map(|report| report.count(severity)).sum::<usize>();
    let sentence = format!(
        "{} damaged, {} to be rebuilt; `penstock log repair DIR` says what can be done",
        places(count(Severity::Damage)),
        files(count(Severity::Rebuildable))
    );
    Err(Failure::new(Status::Data, sentence))
}

fn places(count: usize) -> String {
    format!("{count} {}", if count == 1 { "place is" } else { "places are" })
}

fn files(count: usize) -> String {
    format!("{count} {}", if count == 1 { "file has" } else { "files have" })
}

fn is_whole(reports: &[DirectoryReport]) -> bool {
    let mut counts = reports
        .iter()
        .map(|report| report.count(Severity::Damage) + report.count(Severity::Rebuildable));
    counts.all(|count| count == 0)
}

/// A log directory, or a part of one, after the check.
struct DirectoryReport {
    survey: Survey,
    partitions: Vec<PartitionReport>,
}

fn check(target: &Target) -> Result<DirectoryReport, Failure> {
    let mut survey = survey(target.directory()).map_err(|error| failed(&error))?;
    let names: Vec<PartitionName> = match target {
        Target::Directory(_) => survey.partitions.clone(),
        Target::Partition(_, name) => {
            survey.findings.clear(); // about other files
            vec![name.clone()]
        }
    };
    let mut meter = Meter::new("checked", names.iter().map(|name| log_bytes(&survey, name)).sum());
    let mut partitions = Vec::with_capacity(names.len());
    for name in &names {
        let dir = name.dir(&survey.dir);
        let checked = partition(&dir, &survey.expectation(name), &mut |bytes| meter.add(bytes));
        partitions.push(checked.map_err(|error| failed(&error))?);
    }
    Ok(DirectoryReport { survey, partitions })
}

/// Bytes of the segments of a partition, as far as can be seen.
pub(super) fn log_bytes(survey: &Survey, name: &PartitionName) -> u64 {
    let Ok(entries) = std::fs::read_dir(name.dir(&survey.dir)) else {
        return 0;
    };
    let logs = entries.filter_map(Result::ok).filter(|entry| {
        let name = entry.file_name();
        std::path::Path::new(&name)
            .extension()
            .is_some_and(|end| end == "log")
    });
    logs.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

impl DirectoryReport {
    fn findings(&self) -> impl Iterator<Item = &Finding> {
        let of_partitions = self.partitions.iter().flat_map(|partition| &partition.findings);
        self.survey.findings.iter().chain(of_partitions)
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings()
            .filter(|finding| finding.severity == severity)
            .count()
    }

    fn text(&self, all: bool) -> String {
        let mut text = self.head();
        let is_told = |partition: &&PartitionReport| all || !partition.findings.is_empty();
        let told: Vec<&PartitionReport> = self.partitions.iter().filter(is_told).collect();
        if !told.is_empty() {
            text.push_str(&overview(&told));
        }
        for finding in &self.survey.findings {
            text.push_str(&sentence(finding));
        }
        for partition in &self.partitions {
            for finding in partition.findings.iter().take(FINDINGS_SHOWN) {
                text.push_str(&sentence(finding));
            }
            let more = partition.findings.len().saturating_sub(FINDINGS_SHOWN) + partition.more_findings;
            if more > 0 {
                text.push_str(&format!("{:11}  {more} more in {}\n", "…", shown(&partition.dir)));
            }
        }
        text.push_str(&self.total());
        text
    }

    fn head(&self) -> String {
        let survey = &self.survey;
        let whose = match &survey.identity {
            Some(identity) => format!(
                "cluster {}, node {}",
                clean(&identity.cluster_id),
                identity.node_id
            ),
            None => "of no known cluster".to_owned(),
        };
        let journals = &survey.journals;
        let stop = match (survey.is_clean, journals.commits) {
            (true, _) => "stopped in order".to_owned(),
            (false, 0) => "not stopped in order".to_owned(),
            (false, commits) => format!(
                "not stopped in order; the next start replays {commits} commits ({}) of {} journals",
                human_bytes(journals.bytes),
                journals.shards
            ),
        };
        format!("{}: {whose}, {stop}\n", shown(&survey.dir))
    }

    fn total(&self) -> String {
        let sum = |of: fn(&PartitionReport) -> u64| self.partitions.iter().map(of).sum::<u64>();
        let verdict = match (self.count(Severity::Damage), self.count(Severity::Rebuildable)) {
            (0, 0) => "clean".to_owned(),
            (damage, rebuildable) => {
                format!("{} damaged, {} to be rebuilt", places(damage), files(rebuildable))
            }
        };
        format!(
            "{} partitions, {} segments, {} batches, {}: {verdict}\n",
            self.partitions.len(),
            sum(|partition| partition.segments.len() as u64),
            sum(|partition| partition.batches),
            human_bytes(sum(|partition| partition.bytes)),
        )
    }

    fn json(&self) -> Value {
        let survey = &self.survey;
        let identity = survey.identity.as_ref();
        json!({
            "dir": survey.dir.display().to_string(),
            "cluster_id": identity.map(|identity| identity.cluster_id.clone()),
            "node_id": identity.map(|identity| identity.node_id),
            "clean_stop": survey.is_clean,
            "journals": {
                "shards": survey.journals.shards,
                "files": survey.journals.files,
                "commits": survey.journals.commits,
                "bytes": survey.journals.bytes,
            },
            "set_aside": survey.marked,
            "findings": survey.findings.iter().map(finding_json).collect::<Vec<_>>(),
            "partitions": self.partitions.iter().map(partition_json).collect::<Vec<_>>(),
        })
    }
}

fn overview(partitions: &[&PartitionReport]) -> String {
    let columns = [
        left("PARTITION"),
        right("SEGMENTS"),
        right("BATCHES"),
        right("BYTES"),
        right("START"),
        right("END"),
        right("OPEN TXNS"),
        left("STATE"),
    ];
    let cells = |partition: &&PartitionReport| {
        let name = partition.dir.file_name().unwrap_or_default().to_string_lossy();
        [
            name.into_owned(),
            partition.segments.len().to_string(),
            partition.batches.to_string(),
            human_bytes(partition.bytes),
            partition.log_start.to_string(),
            partition.end_offset.to_string(),
            partition.open_transactions.to_string(),
            partition.worst().map_or("clean", Severity::word).to_owned(),
        ]
    };
    table(columns, partitions.iter().map(cells))
}

pub(super) fn sentence(finding: &Finding) -> String {
    let place = &finding.place;
    let offsets = match (known(place.first_offset), known(place.end_offset)) {
        (None, None) => String::new(),
        (Some(first), None) => format!(", offsets from {first}"),
        (None, Some(end)) => format!(", offsets below {end}"),
        (Some(first), Some(end)) => format!(", offsets {first} to {}", end - 1),
    };
    format!(
        "{:11}  {}: {} at byte {}{offsets}: expected {}, found {}\n",
        finding.severity.word(),
        finding.subject.word(),
        shown(&place.path),
        place.position,
        clean(&place.expected),
        clean(&place.found)
    )
}

fn known(offset: Offset) -> Option<i64> {
    (offset != Offset::NONE).then_some(offset.0)
}

fn finding_json(finding: &Finding) -> Value {
    let place = &finding.place;
    let crc = |crc: u32| format!("{crc:08x}");
    json!({
        "severity": finding.severity.word(),
        "subject": finding.subject.word(),
        "file": place.path.display().to_string(),
        "position": place.position,
        "first_offset": known(place.first_offset),
        "end_offset": known(place.end_offset),
        "expected": place.expected,
        "found": place.found,
        "expected_crc": finding.crc.map(|(expected, _)| crc(expected)),
        "found_crc": finding.crc.map(|(_, found)| crc(found)),
    })
}

fn partition_json(partition: &PartitionReport) -> Value {
    json!({
        "dir": partition.dir.display().to_string(),
        "state": partition.worst().map_or("clean", Severity::word),
        "segments": partition.segments.len(),
        "batches": partition.batches,
        "bytes": partition.bytes,
        "log_start_offset": partition.log_start.0,
        "log_end_offset": partition.end_offset.0,
        "open_transactions": partition.open_transactions,
        "findings": partition.findings.iter().map(finding_json).collect::<Vec<_>>(),
        "more_findings": partition.more_findings,
    })
}
