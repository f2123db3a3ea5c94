//! The data directories of a stopped Apache Kafka node, as far as they have to be known before anything is copied: whose they
//! are, how they were left, what the metadata says, which partition lies where, and whether every byte is whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protocol::Uuid;
use shard::ids::BrokerId;
use shard::image::TopicImage;
use shard::quorum::takeover::TakenOver;
use storage::checkpoint::meta_properties::MetaProperties;
use storage::checkpoint::offsets::{self, Offsets};
use storage::checkpoint::partition_metadata;
use storage::layout::{
    CLEANER_OFFSET_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE, PARTITION_METADATA_FILE, PartitionName,
};
use storage::offline::directory::{Survey, survey};
use storage::offline::finding::{Finding, Severity, Subject};
use storage::offline::read_small;
use storage::offline::verify::{PartitionReport, partition};
use storage::types::Offset;

use super::super::meter::Meter;
use super::super::{failed, locked, shown};
use super::{ImportArgs, metadata};
use crate::client::clean;
use crate::exit::{Failure, Status};
use crate::startup::lock::DirectoryLock;

/// Names in one sentence.
const NAMES_MAX: usize = 10;

/// A node's directories, read.
pub(super) struct Source {
    _locks: Vec<DirectoryLock>,
    /// Cluster, node, and the directory id that ours takes over.
    pub(super) identity: MetaProperties,
    /// It stopped in order.
    pub(super) is_clean: bool,
    /// The metadata.
    pub(super) taken: TakenOver,
    /// Every partition of the metadata.
    pub(super) partitions: Vec<SourcePartition>,
    /// Directories that nobody needs: names and why.
    pub(super) skipped: Skipped,
    /// Kafka's text files, merged: log starts, high watermarks, cleaner positions.
    pub(super) starts: Offsets,
    /// High watermarks.
    pub(super) marks: Offsets,
    /// How far compaction came.
    pub(super) cleaned: Offsets,
}

/// One partition.
pub(super) struct SourcePartition {
    pub(super) name: PartitionName,
    pub(super) dir: PathBuf,
    pub(super) report: PartitionReport,
}

impl SourcePartition {
    /// Bytes of segments that will be there.
    pub(super) fn bytes(&self) -> u64 {
        self.report
            .segments
            .iter()
            .map(|segment| segment.valid_bytes)
            .sum()
    }

    /// Bytes behind the last batch that will not be.
    pub(super) fn cut_bytes(&self) -> u64 {
        let segments = self.report.segments.iter();
        segments
            .map(|segment| segment.file_bytes - segment.valid_bytes)
            .sum()
    }
}

/// Reads everything, and says why it cannot be taken over if it cannot.
pub(super) fn read(args: &ImportArgs) -> Result<Source, Failure> {
    let mut surveys = Vec::new();
    let mut locks = Vec::new();
    for dir in &args.sources {
        let dir = std::fs::canonicalize(dir).map_err(|error| {
            Failure::new(Status::Data, format!("{} cannot be opened: {error}", shown(dir)))
        })?;
        locks.extend(locked(&dir)?);
        surveys.push(survey(&dir).map_err(|error| failed(&error))?);
    }
    let identity = one_identity(&surveys)?;
    let is_clean = check_stop(&surveys, args.recover)?;
    let metadata_dir = match &args.metadata {
        Some(dir) => dir.clone(),
        None => with_metadata(&surveys)?.to_owned(),
    };
    let directory = identity
        .directory_id
        .unwrap_or_else(|| Uuid(uuid::Uuid::new_v4().into_bytes()));
    let taken = metadata::read(&metadata_dir, &identity.cluster_id, !is_clean)?
        .finish(BrokerId(identity.node_id), directory)
        .map_err(|error| metadata::refused(&metadata::directory(&metadata_dir), &error))?;
    let (found, skipped) = match_directories(&surveys, &taken)?;
    let mut source = Source {
        _locks: locks,
        identity,
        is_clean,
        taken,
        partitions: Vec::new(),
        skipped,
        starts: merged(&surveys, LOG_START_FILE)?,
        marks: merged(&surveys, HIGH_WATERMARK_FILE)?,
        cleaned: merged(&surveys, CLEANER_OFFSET_FILE)?,
    };
    source.partitions = verify(&surveys, found)?;
    check_whole(&source.partitions)?;
    Ok(source)
}

fn one_identity(surveys: &[Survey]) -> Result<MetaProperties, Failure> {
    let refuse = |sentence: String| Err(Failure::new(Status::Data, sentence));
    let mut identity: Option<&MetaProperties> = None;
    for survey in surveys {
        if survey.run > 0 {
            return refuse(format!(
                "{} is a directory of penstock, not of Apache Kafka",
                shown(&survey.dir)
            ));
        }
        let Some(found) = &survey.identity else {
            let why = survey
                .findings
                .iter()
                .find(|finding| finding.subject == Subject::Identity);
            let why = why.map_or_else(
                || "has no meta.properties".to_owned(),
                |finding| finding.place.to_string(),
            );
            return refuse(format!("{}: {}", shown(&survey.dir), clean(&why)));
        };
        match identity {
            Some(first) if (&first.cluster_id, first.node_id) != (&found.cluster_id, found.node_id) => {
                return refuse(format!(
                    "{} belongs to node {} of cluster {}, the first directory to node {} of {}",
                    shown(&survey.dir),
                    found.node_id,
                    clean(&found.cluster_id),
                    first.node_id,
                    clean(&first.cluster_id)
                ));
            }
            Some(_) => {}
            None => identity = Some(found),
        }
    }
    Ok(identity.expect("clap asks for a source").clone())
}

/// Whether Kafka stopped in order; if not, the operator must have said that this is known.
fn check_stop(surveys: &[Survey], recover: bool) -> Result<bool, Failure> {
    let Some(unclean) = surveys.iter().find(|survey| !survey.is_clean) else {
        return Ok(true);
    };
    if recover {
        return Ok(false);
    }
    let sentence = format!(
        "{} was not stopped in order: start Apache Kafka on it once and stop it, or say --recover to check the tails and cut what is torn",
        shown(&unclean.dir)
    );
    Err(Failure::new(Status::Data, sentence))
}

fn with_metadata(surveys: &[Survey]) -> Result<&Path, Failure> {
    let found = surveys
        .iter()
        .find(|survey| metadata::directory(&survey.dir).is_dir());
    found.map(|survey| survey.dir.as_path()).ok_or_else(|| {
        let sentence = "no source has the metadata log; name the directory that has it (metadata.log.dir, or that of the controller) with --metadata";
        Failure::new(Status::Data, sentence)
    })
}

/// Number of the source and the partition.
type Found = Vec<(usize, PartitionName)>;
/// Names of directories that nobody needs, and why.
type Skipped = Vec<(String, &'static str)>;

/// Each partition of the metadata has one directory, of its topic id; the others are strays.
fn match_directories(surveys: &[Survey], taken: &TakenOver) -> Result<(Found, Skipped), Failure> {
    let image = &taken.snapshot.image;
    let mut skipped = Vec::new();
    let mut found: BTreeMap<PartitionName, usize> = BTreeMap::new();
    for (number, survey) in surveys.iter().enumerate() {
        let marked = survey
            .marked
            .iter()
            .map(|name| (name.clone(), "deleted, moved or stray"));
        skipped.extend(marked);
        for name in &survey.partitions {
            if name.topic == shard::controller::METADATA_TOPIC {
                continue;
            }
            let topic = image.topics.by_name(&name.topic);
            let is_known = topic.is_some_and(|topic| topic.partition(name.partition).is_some());
            let id = topic_id(&name.dir(&survey.dir))?;
            match topic {
                Some(topic) if is_known && id.is_none_or(|id| id == topic.id) => {
                    if found.insert(name.clone(), number).is_some() {
                        let sentence = format!("{name} lies in two of the sources");
                        return Err(Failure::new(Status::Data, sentence));
                    }
                }
                Some(_) if is_known => {
                    skipped.push((name.to_string(), "of another topic id: deleted and created anew"))
                }
                _ => skipped.push((name.to_string(), "not in the metadata: deleted")),
            }
        }
    }
    let missing: Vec<String> = image
        .topics
        .iter()
        .flat_map(|topic| names_of(topic))
        .filter(|name| !found.contains_key(name))
        .map(|name| name.to_string())
        .collect();
    if !missing.is_empty() {
        let sentence = format!(
            "{} partitions of the metadata have no directory in the sources ({}): name every directory of log.dirs",
            missing.len(),
            some(&missing)
        );
        return Err(Failure::new(Status::Data, sentence));
    }
    check_remote(taken)?;
    Ok((
        found.into_iter().map(|(name, number)| (number, name)).collect(),
        skipped,
    ))
}

fn names_of(topic: &TopicImage) -> impl Iterator<Item = PartitionName> {
    topic.indexed().map(|(partition, _)| PartitionName {
        topic: topic.name.to_string(),
        partition,
    })
}

fn topic_id(dir: &Path) -> Result<Option<storage::types::TopicId>, Failure> {
    let path = dir.join(PARTITION_METADATA_FILE);
    let Some(bytes) = read_small(&path).map_err(|error| failed(&error))? else {
        return Ok(None);
    };
    let id = partition_metadata::parse(&String::from_utf8_lossy(&bytes));
    id.map(Some)
        .map_err(|error| Failure::new(Status::Data, format!("{} is damaged: {error}", shown(&path))))
}

/// Records of such topics are elsewhere too.
fn check_remote(taken: &TakenOver) -> Result<(), Failure> {
    let image = &taken.snapshot.image;
    let is_remote = |topic: &&std::sync::Arc<TopicImage>| {
        let value = image.configs.topic(&topic.name).get("remote.storage.enable");
        value.is_some_and(|value| value == "true")
    };
    match image.topics.iter().find(is_remote) {
        Some(topic) => {
            let sentence = format!(
                "topic {} has tiered storage: what lies remotely cannot be taken over; disable it with remote.log.delete.on.disable first",
                topic.name
            );
            Err(Failure::new(Status::Data, sentence))
        }
        None => Ok(()),
    }
}

fn merged(surveys: &[Survey], name: &str) -> Result<Offsets, Failure> {
    let mut all = Offsets::new();
    for survey in surveys {
        let path = survey.dir.join(name);
        let Some(bytes) = read_small(&path).map_err(|error| failed(&error))? else {
            continue;
        };
        let found = offsets::parse(&String::from_utf8_lossy(&bytes))
            .map_err(|error| Failure::new(Status::Data, format!("{} is damaged: {error}", shown(&path))))?;
        all.extend(found);
    }
    Ok(all)
}

/// Reads every byte of every partition.
fn verify(surveys: &[Survey], found: Found) -> Result<Vec<SourcePartition>, Failure> {
    let placed: Vec<(PartitionName, &Survey)> = found
        .into_iter()
        .filter_map(|(number, name)| Some((name, surveys.get(number)?)))
        .collect();
    let total = placed
        .iter()
        .map(|(name, survey)| super::super::verify::log_bytes(survey, name))
        .sum();
    let mut meter = Meter::new("checked", total);
    placed
        .into_iter()
        .map(|(name, survey)| {
            let dir = name.dir(&survey.dir);
            let report = partition(&dir, &survey.expectation(&name), &mut |bytes| meter.add(bytes));
            Ok(SourcePartition {
                report: report.map_err(|error| failed(&error))?,
                name,
                dir,
            })
        })
        .collect()
}

/// Nothing damaged is taken over as if it were whole.
fn check_whole(partitions: &[SourcePartition]) -> Result<(), Failure> {
    let findings = || partitions.iter().flat_map(|partition| &partition.report.findings);
    let damage: Vec<&Finding> = findings()
        .filter(|finding| finding.severity == Severity::Damage)
        .collect();
    if let Some(first) = damage.first() {
        let sentence = format!(
            "the source is damaged in {} places, the first: {}; `penstock log verify` has all of them",
            damage.len(),
            clean(&first.place.to_string())
        );
        return Err(Failure::new(Status::Data, sentence));
    }
    let is_swap = |finding: &&Finding| {
        let path = &finding.place.path;
        finding.subject == Subject::Leftover && path.extension().is_some_and(|end| end == "swap")
    };
    match findings().find(is_swap) {
        Some(finding) => {
            let sentence = format!(
                "{} is a compaction that was about to replace segments: start Apache Kafka once and stop it in order",
                shown(&finding.place.path)
            );
            Err(Failure::new(Status::Data, sentence))
        }
        None => Ok(()),
    }
}

/// Some names of a list.
pub(super) fn some(names: &[String]) -> String {
    let shown = names.get(..NAMES_MAX).unwrap_or(names).join(", ");
    if names.len() > NAMES_MAX {
        format!("{shown}, …")
    } else {
        shown
    }
}

/// Whether a partition starts above its first segment, by Kafka's checkpoint.
pub(super) fn log_start(source: &Source, partition: &SourcePartition) -> Option<Offset> {
    let start = source.starts.get(&partition.name).copied()?;
    let first = partition
        .report
        .segments
        .first()
        .map_or(Offset::ZERO, |segment| segment.base);
    (start > first).then_some(start)
}
