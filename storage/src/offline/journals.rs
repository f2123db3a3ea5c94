//! The journals of a log directory as the next start would find them: which commits count, what they will write into which
//! segment, and whether anything of them is lost. Nothing is changed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::disk::plain::{PlainDisk, wait};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::StorageError;
use crate::journal::Incarnation;
use crate::journal::frame::{self, Frame, FrameKind, HEADER_BYTES, OpenPayload};
use crate::journal::scan::{FileContent, chain};
use crate::recovery::journals::{ShardJournal, broken_chain, look};
use crate::recovery::record::Checkpoints;
use crate::types::Offset;

/// What the journals hold.
#[derive(Clone, Debug, Default)]
pub struct Journals {
    /// Shards that left journal files.
    pub shards: usize,
    /// Journal files.
    pub files: usize,
    /// Commits that the next start replays.
    pub commits: usize,
    /// Their bytes.
    pub bytes: u64,
    /// By log directory, what will be written.
    pub logs: BTreeMap<String, Covered>,
}

/// The part of a log that the journals hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// Segment, first byte, one past the last, in order of the frames.
    pub spans: Vec<(Offset, u64, u64)>,
    /// One past the last offset in frames.
    pub end_offset: Offset,
    /// One past the last offset in frames of commits that were durable for certain.
    pub durable_end: Offset,
    /// Where the log starts, if a frame moved that.
    pub log_start: Option<Offset>,
}

impl Covered {
    /// Whether a replay writes the byte at `position` of `segment`.
    #[must_use]
    pub fn has(&self, segment: Offset, position: u64) -> bool {
        let covers = |(of, from, to): &(Offset, u64, u64)| *of == segment && (*from..*to).contains(&position);
        self.spans.iter().any(covers)
    }

    fn add(&mut self, segment: Offset, from: u64, to: u64) {
        match self.spans.last_mut() {
            Some((of, _, end)) if *of == segment && *end == from => *end = to,
            _ => self.spans.push((segment, from, to)),
        }
    }

    fn cut(&mut self, segment: Offset, position: u64) {
        self.spans.retain_mut(|(of, from, to)| {
            if *of == segment {
                *to = (*to).min(position);
            }
            *of <= segment && *from < *to
        });
    }
}

/// Reads the journals in `dir`; what is wrong with them goes to `wrong`.
///
/// # Errors
/// From the disk.
pub(super) fn read(
    dir: &Path,
    checkpoints: &Checkpoints,
    wrong: &mut Vec<StorageError>,
) -> Result<Journals, StorageError> {
    let disk = PlainDisk::new();
    let (journals, missing) = wait(look(&disk, dir, checkpoints))?;
    wrong.extend(missing);
    let mut out = Journals::default();
    for journal in &journals {
        out.shards += usize::from(!journal.files.is_empty());
        out.files += journal.files.len();
        let covered = journal
            .shard
            .and_then(|shard| checkpoints.covered_sequences.get(&shard));
        if let Err(error) = wait(read_shard(
            &disk,
            journal,
            covered.copied().unwrap_or(0),
            &mut out,
        )) {
            wrong.push(error);
        }
    }
    Ok(out)
}

async fn read_shard(
    disk: &PlainDisk,
    journal: &ShardJournal,
    covered_sequence: u64,
    out: &mut Journals,
) -> Result<(), StorageError> {
    let contents: Vec<&FileContent> = journal.files.iter().map(|file| &file.content).collect();
    let chain = chain(&contents, covered_sequence).map_err(|broken| broken_chain(&journal.files, &broken))?;
    let retired: Vec<Incarnation> = contents
        .iter()
        .flat_map(|content| &content.retired)
        .map(|(_, incarnation)| *incarnation)
        .collect();
    let mut names: BTreeMap<Incarnation, String> = BTreeMap::new();
    for (index, place) in &chain.commits {
        let Some(file) = journal.files.get(*index) else {
            continue;
        };
        let opened = disk.open(&file.path, OpenMode::Read).await?;
        let body = place.position + HEADER_BYTES as u64;
        let bytes = opened.read_at(body, place.header.frames_bytes as usize).await?;
        let Ok(frames) = frame::frames(&place.header, &bytes) else {
            continue; // it was valid when it was chained: the file changes under our hands
        };
        out.commits += 1;
        out.bytes += place.header.commit_bytes() as u64;
        let is_durable = place.header.sequence <= chain.durable_sequence;
        for frame in frames
            .iter()
            .filter(|frame| !retired.contains(&frame.header.incarnation))
        {
            note(frame, is_durable, &mut names, out);
        }
    }
    Ok(())
}

fn note(frame: &Frame<'_>, is_durable: bool, names: &mut BTreeMap<Incarnation, String>, out: &mut Journals) {
    let header = &frame.header;
    if header.kind == FrameKind::Open {
        if let Ok(open) = OpenPayload::decode(frame.payload) {
            names.insert(header.incarnation, open.directory);
        }
        return;
    }
    let Some(name) = names.get(&header.incarnation) else {
        return;
    };
    let covered = out.logs.entry(name.clone()).or_default();
    let (position, payload) = (u64::from(header.position), u64::from(header.payload_bytes));
    match header.kind {
        FrameKind::Append => covered.add(
            header.segment,
            position + u64::from(header.auxiliary),
            position + payload,
        ),
        FrameKind::Extent => {
            let tail = position + u64::from(header.auxiliary);
            covered.add(header.segment, tail, tail + payload.saturating_sub(4));
        }
        FrameKind::Truncate => {
            covered.cut(header.segment, position);
            covered.end_offset = header.base_offset;
            covered.durable_end = covered.durable_end.min(header.base_offset);
            return;
        }
        FrameKind::Start => {
            covered.log_start = covered.log_start.max(Some(header.base_offset));
            return;
        }
        FrameKind::Open | FrameKind::Epoch | FrameKind::Retire | FrameKind::Delete => return,
    }
    covered.end_offset = header.end_offset;
    if is_durable && !header.is_loose {
        covered.durable_end = header.end_offset;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_that_follow_each_other_are_one_and_a_truncation_cuts_them() {
        let mut covered = Covered::default();
        covered.add(Offset(0), 100, 200);
        covered.add(Offset(0), 200, 300);
        covered.add(Offset(50), 0, 70);
        assert_eq!(covered.spans, [(Offset(0), 100, 300), (Offset(50), 0, 70)]);
        assert!(covered.has(Offset(0), 299) && !covered.has(Offset(0), 300) && !covered.has(Offset(1), 150));
        covered.cut(Offset(0), 150);
        assert_eq!(covered.spans, [(Offset(0), 100, 150)]);
    }
}
