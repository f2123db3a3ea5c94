//! Phase 1: reads the checkpoints and journals of every shard, checks the chains, applies the frames log by log, makes the
//! segments durable, writes one merged checkpoint and removes the journals. Safe to repeat from any point: applying a
//! frame twice writes the same bytes, and the journals become void only when all of it is durable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::journal_file::{Window, read_content};
use super::manifests::Manifests;
use super::missing::check_unknown_directory;
use super::record::{Checkpoints, DirectoryRecord, LogRecord, directory_path, load_all};
use super::redo::Redo;
use super::room::make_room;
use crate::checkpoint::{envelope, offsets, partition_metadata};
use crate::compaction::progress;
use crate::disk::{Disk, OpenMode};
use crate::error::{Damage, StorageError};
use crate::journal::frame::{self, Frame, HEADER_BYTES};
use crate::journal::salvage::salvage;
use crate::journal::scan::{Break, CommitPlace, FileContent, chain};
use crate::journal::writer::create_dir_durably;
use crate::layout::{
    CLEAN_SHUTDOWN_FILE, LOG_START_FILE, PARTITION_METADATA_FILE, RECOVERY_POINT_FILE, checkpoint_dir,
    damaged_dir, journals_dir, parse_journal_dir,
};
use crate::types::{LogId, Offset};

/// What phase 1 found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalRecovery {
    /// Shards that left journals.
    pub shards: usize,
    /// Journal files read.
    pub files: usize,
    /// Commits replayed.
    pub commits: usize,
    /// Those of them that were damaged. Their files are kept in `.penstock/damaged`.
    pub damaged_commits: usize,
    /// Bytes written to segments.
    pub bytes: u64,
    /// The logs that had frames, and where each ends now.
    pub logs: Vec<(LogId, String, Offset)>,
}

/// One journal file of an earlier run.
pub(crate) struct OldFile {
    pub(crate) path: PathBuf,
    /// Bytes.
    pub(super) size: u64,
    pub(crate) content: FileContent,
    is_replayed: bool,
    /// A damaged commit of it was replayed: it is kept.
    is_damaged: bool,
}

/// The journal files of one shard of an earlier run.
pub(crate) struct ShardJournal {
    dir: PathBuf,
    pub(crate) shard: Option<u16>,
    pub(crate) files: Vec<OldFile>,
}

impl OldFile {
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.path.file_name().is_some_and(|found| found == name)
    }

    fn commits_bytes(&self) -> u64 {
        let commits = self.content.commits.iter();
        commits.map(|place| place.header.commit_bytes() as u64).sum()
    }
}

/// Replays and removes the journals in the log directory `dir`, and merges the checkpoints of its shards. To be run once,
/// before any store of it is opened. `progress` is told bytes of journal read and bytes in all.
///
/// # Errors
/// [`StorageError::Damage`] when a journal or checkpoint is damaged where it was durable; nothing is removed then. Errors
/// of the disk.
pub async fn recover_journals<D: Disk>(
    disk: &D,
    dir: &Path,
    mut progress: impl FnMut(u64, u64),
) -> Result<JournalRecovery, StorageError> {
    let first = replay_and_merge(disk, dir, &mut progress).await;
    match first {
        Err(StorageError::Disk(error)) if error.is_refused_for_space() && make_room(disk, dir).await? => {
            replay_and_merge(disk, dir, &mut progress).await
        }
        ended => ended,
    }
}

/// See [`recover_journals`].
async fn replay_and_merge<D: Disk>(
    disk: &D,
    dir: &Path,
    progress: &mut impl FnMut(u64, u64),
) -> Result<JournalRecovery, StorageError> {
    let Checkpoints {
        run,
        mut logs,
        deleted,
        covered_sequences,
        hidden,
        paths: shard_checkpoints,
    } = load_all(disk, dir).await?;
    add_kafka_checkpoints(disk, dir, run, &mut logs).await?;
    let manifests = Manifests::load(disk, dir, run).await?;
    let mut journals = read_journals(disk, dir, run).await?;
    manifests.check(dir, run, &journals, &covered_sequences)?;
    let mut out = JournalRecovery {
        shards: journals
            .iter()
            .filter(|journal| !journal.files.is_empty())
            .count(),
        files: journals.iter().map(|journal| journal.files.len()).sum(),
        ..JournalRecovery::default()
    };
    let total = journals
        .iter()
        .flat_map(|journal| &journal.files)
        .map(OldFile::commits_bytes)
        .sum();
    let mut redo = Redo::new(disk, dir, logs.values());
    let mut done = 0;
    for journal in &mut journals {
        let covered = journal.shard.and_then(|shard| covered_sequences.get(&shard));
        replay_shard(
            disk,
            (dir, run),
            &mut journal.files,
            covered.copied().unwrap_or(0),
            &mut redo,
            &mut out,
            |bytes| {
                done += bytes;
                progress(done, total);
            },
        )
        .await?;
    }
    let is_gone = |id: LogId| deleted.contains(&id) || redo.has_deleted(id);
    uncover(&mut logs, hidden, is_gone);
    out.bytes = redo.finish(&mut logs).await?;
    disk.sync_filesystem(dir).await?;
    out.logs = redo.ends();
    let is_deleted = |log: &LogRecord| deleted.contains(&log.id()) || redo.has_deleted(log.id());
    save_merged(disk, dir, run + 1, logs, is_deleted).await?;
    // From here on the journals and the shards' checkpoints are void.
    for journal in &mut journals {
        remove_files(disk, (dir, run), &journal.dir, &mut journal.files).await?;
    }
    for path in shard_checkpoints.iter().chain(&manifests.paths) {
        disk.remove_file(path).await?;
    }
    if !shard_checkpoints.is_empty() || !manifests.paths.is_empty() {
        disk.sync_dir(&checkpoint_dir(dir)).await?;
    }
    progress::merge(disk, dir).await?;
    Ok(out)
}

/// The journals that a start would replay, and what is missing of them if anything is. Nothing is changed.
///
/// # Errors
/// From the disk, or for a damaged list of files.
pub(crate) async fn look<D: Disk>(
    disk: &D,
    dir: &Path,
    checkpoints: &Checkpoints,
) -> Result<(Vec<ShardJournal>, Option<StorageError>), StorageError> {
    let run = checkpoints.run;
    let manifests = Manifests::load(disk, dir, run).await?;
    let journals = read_journals(disk, dir, run).await?;
    let checked = manifests.check(dir, run, &journals, &checkpoints.covered_sequences);
    Ok((journals, checked.err()))
}

/// Of two logs that had a directory one after the other, the one that was not deleted has it.
fn uncover(logs: &mut BTreeMap<String, LogRecord>, hidden: Vec<LogRecord>, is_gone: impl Fn(LogId) -> bool) {
    for record in hidden.into_iter().filter(|record| !is_gone(record.id())) {
        if logs
            .get(&record.directory)
            .is_none_or(|shown| is_gone(shown.id()))
        {
            logs.insert(record.directory.clone(), record);
        }
    }
}

/// Writes the merged checkpoint of logs that still have a directory, or should: those were not deleted.
async fn save_merged<D: Disk>(
    disk: &D,
    dir: &Path,
    run: u64,
    logs: BTreeMap<String, LogRecord>,
    is_deleted: impl Fn(&LogRecord) -> bool,
) -> Result<(), StorageError> {
    let present: BTreeSet<String> = disk
        .list(dir)
        .await?
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let record = DirectoryRecord {
        run,
        covered_sequence: 0,
        logs: logs
            .into_values()
            .filter_map(|log| match present.contains(&log.directory) {
                true => Some(log),
                false if log.durable_end <= 0 || log.topic == [0; 16] || is_deleted(&log) => None,
                // Who opens it reports that; so does each start to come.
                false => Some(LogRecord { place: None, ..log }),
            })
            .collect(),
        deleted: Vec::new(),
    };
    create_dir_durably(disk, dir, &checkpoint_dir(dir)).await?;
    envelope::save(disk, &directory_path(dir), &record).await?;
    // The next stop may be unclean; until it is known to be clean, Kafka's own marker must not say so.
    let marker = dir.join(CLEAN_SHUTDOWN_FILE);
    match disk.remove_file(&marker).await {
        Ok(()) => disk.sync_dir(dir).await?,
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// A directory that Apache Kafka wrote has its recovery points and log starts in text files. They are taken for logs that
/// no checkpoint of ours knows.
async fn add_kafka_checkpoints<D: Disk>(
    disk: &D,
    dir: &Path,
    run: u64,
    logs: &mut BTreeMap<String, LogRecord>,
) -> Result<(), StorageError> {
    if run > 0 {
        return Ok(()); // ours since; the text files are written at clean stops for others to read
    }
    check_unknown_directory(disk, dir).await?;
    let starts = offsets::load(disk, &dir.join(LOG_START_FILE))
        .await?
        .unwrap_or_default();
    let points = offsets::load(disk, &dir.join(RECOVERY_POINT_FILE))
        .await?
        .unwrap_or_default();
    for name in points.keys().chain(starts.keys()) {
        let directory = name.to_string();
        if logs.contains_key(&directory) {
            continue;
        }
        let record = LogRecord {
            topic: topic_of(disk, &name.dir(dir)).await?,
            partition: name.partition,
            directory: directory.clone(),
            log_start: starts.get(name).map_or(-1, |offset| offset.0),
            durable_end: points.get(name).map_or(0, |offset| offset.0),
            epochs: Vec::new(),
            place: None,
            damage: None,
        };
        logs.insert(directory, record);
    }
    Ok(())
}

/// The topic id in a partition's directory, zero when it does not say.
async fn topic_of<D: Disk>(disk: &D, dir: &Path) -> Result<[u8; 16], StorageError> {
    let topic = partition_metadata::load(disk, &dir.join(PARTITION_METADATA_FILE)).await?;
    Ok(topic.map_or([0; 16], |topic| topic.0))
}

/// The journal files of all shards that belong to a run after `run`.
pub(super) async fn read_journals<D: Disk>(
    disk: &D,
    dir: &Path,
    run: u64,
) -> Result<Vec<ShardJournal>, StorageError> {
    let root = journals_dir(dir);
    let shards = match disk.list(&root).await {
        Ok(entries) => entries,
        Err(error) if error.is_not_found() => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let mut journals = Vec::new();
    for shard in shards.iter().filter(|entry| entry.is_dir) {
        let shard_dir = root.join(&shard.name);
        let mut files = Vec::new();
        for entry in disk.list(&shard_dir).await?.iter().filter(|entry| !entry.is_dir) {
            let path = shard_dir.join(&entry.name);
            let content = read_content(disk, &path, entry.size, run).await?;
            files.push(OldFile {
                path,
                size: entry.size,
                content,
                is_replayed: false,
                is_damaged: false,
            });
        }
        journals.push(ShardJournal {
            dir: shard_dir,
            shard: parse_journal_dir(&shard.name),
            files,
        });
    }
    Ok(journals)
}

/// Removes a shard's journal files durably one by one: first those behind the end of the chain, whose commits must not
/// look like a chain of their own; then the chain's, the oldest first. What a crash leaves is then the end of the chain,
/// which applies to the same effect; its beginning alone would cut the logs short. (The run number in the merged
/// checkpoint makes the files void at once; the order is for whoever loses that file.)
async fn remove_files<D: Disk>(
    disk: &D,
    (root, run): (&Path, u64),
    dir: &Path,
    files: &mut [OldFile],
) -> Result<(), StorageError> {
    files.sort_by_key(|file| (file.is_replayed, file.content.first_sequence()));
    for file in files {
        if file.is_damaged {
            keep(disk, root, &file.path, &kept_path(root, run, &file.path)).await?;
        } else {
            disk.remove_file(&file.path).await?;
        }
        disk.sync_dir(dir).await?;
    }
    Ok(())
}

/// Puts a damaged journal file aside: it has frames of logs that stay closed.
async fn keep<D: Disk>(disk: &D, root: &Path, path: &Path, to: &Path) -> Result<(), StorageError> {
    let aside = damaged_dir(root);
    create_dir_durably(disk, root, &aside).await?;
    disk.rename(path, to).await?;
    disk.sync_dir(&aside).await?;
    Ok(())
}

/// Where the journal file `path` is kept when it is damaged, recovered after the merged checkpoint of `run`.
fn kept_path(root: &Path, run: u64, path: &Path) -> PathBuf {
    let name = |path: &Path| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let shard = path.parent().map(name).unwrap_or_default();
    damaged_dir(root).join(format!("run-{}-{shard}-{}", run + 1, name(path)))
}

async fn replay_shard<D: Disk>(
    disk: &D,
    (root, run): (&Path, u64),
    files: &mut [OldFile],
    covered_sequence: u64,
    redo: &mut Redo<'_, D>,
    out: &mut JournalRecovery,
    mut progress: impl FnMut(u64),
) -> Result<(), StorageError> {
    let contents: Vec<&FileContent> = files.iter().map(|file| &file.content).collect();
    let chain = chain(&contents, covered_sequence).map_err(|broken| broken_chain(files, &broken))?;
    let last = chain.commits.last().map_or(0, |(_, place)| place.header.sequence);
    let retired = contents.iter().flat_map(|content| &content.retired);
    let starts = contents.iter().flat_map(|content| &content.starts);
    redo.begin_shard(
        retired
            .filter(|(sequence, _)| *sequence <= last)
            .map(|(_, incarnation)| *incarnation),
        starts
            .filter(|(sequence, _, _)| *sequence <= last)
            .map(|(_, incarnation, start)| (*incarnation, *start)),
    );
    let mut open: Option<(usize, Window<D::File>)> = None;
    for (index, place) in &chain.commits {
        files[*index].is_replayed = true;
        if open.as_ref().is_none_or(|(at, _)| at != index) {
            let file = disk.open(&files[*index].path, OpenMode::Read).await?;
            open = Some((*index, Window::new(file)));
        }
        let (_, window) = open.as_mut().expect("opened above");
        let body = place.position + HEADER_BYTES as u64;
        let bytes = window.get(body, place.header.frames_bytes as usize).await?;
        if place.is_damaged {
            let file = &mut files[*index];
            file.is_damaged = true;
            out.damaged_commits += 1;
            out.commits += 1;
            let kept = kept_path(root, run, &file.path);
            replay_damaged((file, kept), place, &bytes, redo).await?;
            progress(place.header.commit_bytes() as u64);
            continue;
        }
        let frames = frame::frames(&place.header, &bytes)
            .map_err(|invalid| damaged(&files[*index].path, place.position, format!("{invalid:?}")))?;
        let durable = place.header.sequence <= chain.durable_sequence;
        for one in &frames {
            redo.apply(one, durable).await?;
        }
        out.commits += 1;
        progress(place.header.commit_bytes() as u64);
    }
    Ok(())
}

/// Replays what can be read of a commit whose checks fail although it was durable. A log whose frame is damaged stays closed.
async fn replay_damaged<D: Disk>(
    (file, kept): (&OldFile, PathBuf),
    place: &CommitPlace,
    bytes: &[u8],
    redo: &mut Redo<'_, D>,
) -> Result<(), StorageError> {
    let header = (place.header.frames > 0).then_some(&place.header);
    let Some(pieces) = salvage(header, bytes) else {
        return Err(damaged(&file.path, place.position, "other bytes".to_owned()));
    };
    let bad = pieces.iter().filter(|piece| piece.fault.is_some()).count();
    tracing::error!(
        file = %file.path.display(),
        kept = %kept.display(),
        position = place.position,
        commit = place.header.sequence,
        frames = pieces.len(),
        damaged_frames = bad,
        "a commit of the journal is damaged: what can be read of it is applied"
    );
    for piece in &pieces {
        match piece.fault {
            None => {
                let whole = Frame {
                    header: piece.header,
                    payload: piece.payload,
                };
                redo.apply(&whole, true).await?;
            }
            Some((expected, found)) => {
                let damage = Damage {
                    path: kept.clone(),
                    position: place.position + (HEADER_BYTES + piece.at) as u64,
                    first_offset: piece.header.base_offset,
                    end_offset: piece.header.end_offset,
                    expected: format!("a frame with CRC {expected:08x}"),
                    found: format!("one whose bytes have CRC {found:08x}"),
                };
                redo.apply_damaged(&piece.header, damage)?;
            }
        }
    }
    Ok(())
}

pub(crate) fn broken_chain(files: &[OldFile], broken: &Break) -> StorageError {
    let expected = format!(
        "commit {} (commits up to {} were durable)",
        broken.expected_sequence, broken.durable_sequence
    );
    let found = format!("{:?}", broken.reason);
    Damage::of_file(&files[broken.file].path, broken.position, expected, found).into()
}

fn damaged(path: &Path, position: u64, found: String) -> StorageError {
    Damage::of_file(path, position, "the commit that was there a moment ago", found).into()
}
