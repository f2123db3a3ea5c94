//! What the scrub of a shard knows, on disk: when its pass began, where it is, and what it has found. Written every minute
//! while it works, at the end of a pass and with each finding; without it a pass begins anew and tells of the same damage again.
//!
//! `.penstock/scrub/shard-<n>`, rkyv in an envelope ([`crate::checkpoint::envelope`]).

use std::path::{Path, PathBuf};

use rkyv::{Archive, Deserialize, Serialize};

use super::Finding;
use super::round::{Pass, Round};
use crate::checkpoint::envelope::Checkpoint;
use crate::error::Damage;
use crate::layout::PRIVATE_DIR;
use crate::types::{LogId, Offset, TopicId};

/// The state of one shard's scrub.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ScrubRecord {
    /// When the pass began that runs or ran last, milliseconds since 1970.
    began_ms: i64,
    pass: Option<PassRecord>,
    findings: Vec<FindingRecord>,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
struct PassRecord {
    is_first_lap: bool,
    cursor: Option<([u8; 16], i32)>,
    /// Topic id, partition and offset.
    left: Vec<([u8; 16], i32, i64)>,
}

#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
struct FindingRecord {
    topic: [u8; 16],
    partition: i32,
    segment: i64,
    path: String,
    position: u64,
    first_offset: i64,
    end_offset: i64,
    expected: String,
    found: String,
}

impl Checkpoint for ScrubRecord {
    const MAGIC: [u8; 8] = *b"PNSTKSCR";
    const VERSION: u32 = 1;
}

/// The folder of the records.
pub(super) fn folder(dir: &Path) -> PathBuf {
    dir.join(PRIVATE_DIR).join("scrub")
}

/// The record of a shard.
pub(super) fn path(dir: &Path, shard: u16) -> PathBuf {
    folder(dir).join(format!("shard-{shard}"))
}

const fn id(topic: [u8; 16], partition: i32) -> LogId {
    LogId {
        topic: TopicId(topic),
        partition,
    }
}

impl ScrubRecord {
    pub(super) fn of<'a>(round: &Round, findings: impl Iterator<Item = &'a Finding>) -> Option<Self> {
        let (began_ms, pass) = round.state();
        let pass = pass.map(|pass| {
            let (is_first_lap, cursor, left) = pass.parts();
            PassRecord {
                is_first_lap,
                cursor: cursor.map(|id| (id.topic.0, id.partition)),
                left: left
                    .map(|(id, offset)| (id.topic.0, id.partition, offset.0))
                    .collect(),
            }
        });
        Some(Self {
            began_ms: began_ms?,
            pass,
            findings: findings.map(FindingRecord::of).collect(),
        })
    }

    pub(super) fn round(&self, interval_ms: i64) -> Round {
        let pass = self.pass.as_ref().map(|pass| {
            let cursor = pass.cursor.map(|(topic, partition)| id(topic, partition));
            let left = pass
                .left
                .iter()
                .map(|(topic, partition, offset)| (id(*topic, *partition), Offset(*offset)));
            Pass::resumed(pass.is_first_lap, cursor, left)
        });
        Round::new(interval_ms, Some(self.began_ms), pass)
    }

    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> {
        self.findings.iter().map(FindingRecord::finding)
    }
}

impl FindingRecord {
    fn of(finding: &Finding) -> Self {
        let Damage {
            path,
            position,
            first_offset,
            end_offset,
            expected,
            found,
        } = &finding.damage;
        Self {
            topic: finding.log.topic.0,
            partition: finding.log.partition,
            segment: finding.segment.0,
            path: path.to_string_lossy().into_owned(),
            position: *position,
            first_offset: first_offset.0,
            end_offset: end_offset.0,
            expected: expected.clone(),
            found: found.clone(),
        }
    }

    fn finding(&self) -> Finding {
        Finding {
            log: id(self.topic, self.partition),
            segment: Offset(self.segment),
            damage: Damage {
                path: PathBuf::from(&self.path),
                position: self.position,
                first_offset: Offset(self.first_offset),
                end_offset: Offset(self.end_offset),
                expected: self.expected.clone(),
                found: self.found.clone(),
            },
        }
    }
}
