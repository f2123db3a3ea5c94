//! Room for a start on a full disk. A crash leaves what logs had allocated ahead, and what was to be removed: when the start meets the
//! end of the space, that goes back to the file system and the start goes on. Nothing of it is needed: behind a log's last batch
//! and behind all that the journals will write there are zeroes up to the end of the file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::journals::{ShardJournal, read_journals};
use super::record::{LogRecord, directory_path, load_all};
use super::scan::scan_segment;
use crate::disk::{BLOCK_BYTES, Disk, DiskError, DiskFile, IO_BYTES_MAX, OpenMode, align_up, read_long};
use crate::error::StorageError;
use crate::journal::frame::{self, FrameKind, HEADER_BYTES, OpenPayload};
use crate::journal::writer::{FILES_MIN, JournalOptions};
use crate::journal::{FrameHeader, Incarnation};
use crate::layout::{DirName, FileMark, FileName, SegmentFile as SegmentFileKind};
use crate::log::segment_path;
use crate::removal::deleted_directories;
use crate::space::shared::DirSpace;
use crate::space::{LOG_NEED_BYTES, STORE_NEED_BYTES};
use crate::types::Offset;

/// The smallest journal file that is made where there is no space for what was configured, bytes.
const JOURNAL_FILE_BYTES_MIN: u64 = 1 << 20;

/// Sees to it that the `stores` on the file system of `dir` find room for their journals; those of `dir` have been recovered, and its
/// logs nobody has open: where there is too little, what was allocated ahead is given back, and where that is not enough, the files will
/// be smaller. To be run once, before the first store is opened.
///
/// # Errors
/// From the disk.
pub async fn make_room_for_stores<D: Disk>(
    disk: &D,
    dir: &Path,
    stores: u16,
    options: JournalOptions,
    space: &Arc<DirSpace>,
) -> Result<(), StorageError> {
    let stores = u64::from(stores.max(1));
    let mut kept = STORE_NEED_BYTES * stores;
    for entry in disk.list(dir).await? {
        if matches!(DirName::parse(&entry.name), DirName::Partition(_)) {
            kept += LOG_NEED_BYTES;
        }
    }
    kept += 3 * size_of_file(disk, &directory_path(dir)).await?;
    let files = FILES_MIN.min(options.files_max) as u64 * stores;
    let fits = |file_bytes: u64, free: u64| files * file_bytes + kept <= free;
    let mut free = disk.space(dir).await?.available_bytes;
    if fits(options.file_bytes, free) {
        return Ok(());
    }
    make_room(disk, dir).await?;
    free = disk.space(dir).await?.available_bytes;
    let mut file_bytes = options.file_bytes;
    while !fits(file_bytes, free) && file_bytes / 2 >= JOURNAL_FILE_BYTES_MIN {
        file_bytes = align_up(file_bytes / 2);
    }
    if file_bytes < options.file_bytes {
        tracing::warn!(
            dir = %dir.display(), free, file_bytes, configured = options.file_bytes,
            "there is too little space for the journals: their files are smaller until the next start"
        );
        space.limit_journal(file_bytes);
    }
    Ok(())
}

async fn size_of_file<D: Disk>(disk: &D, path: &Path) -> Result<u64, StorageError> {
    match disk.open(path, OpenMode::Read).await {
        Ok(file) => {
            let size = file.size().await?;
            file.close().await?;
            Ok(size)
        }
        Err(error) if error.is_not_found() => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Gives back to the file system what a start does not need: what was on its way out, and what is allocated behind the logs' ends.
/// Nobody has a log of `dir` open. Returns whether there was anything.
pub(super) async fn make_room<D: Disk>(disk: &D, dir: &Path) -> Result<bool, StorageError> {
    let mut given = Given::default();
    for doomed in deleted_directories(disk, dir).await? {
        disk.remove_dir_all(&doomed).await?;
        given.files += 1;
    }
    let checkpoints = load_all(disk, dir).await?;
    let journals = read_journals(disk, dir, checkpoints.run).await?;
    let mut reach = Some(Reach::default());
    for journal in &journals {
        reach = read_reach(disk, journal, reach).await?;
    }
    for entry in disk.list(dir).await? {
        if !entry.is_dir || !matches!(DirName::parse(&entry.name), DirName::Partition(_)) {
            continue;
        }
        let known = checkpoints.logs.get(&entry.name);
        shrink_log(disk, &dir.join(&entry.name), known, reach.as_ref(), &mut given).await?;
    }
    let is_any = given.bytes > 0 || given.files > 0;
    if is_any {
        tracing::warn!(
            dir = %dir.display(), bytes = given.bytes, files = given.files,
            "the start finds too little space: what was allocated ahead or to be removed is given back"
        );
    }
    Ok(is_any)
}

/// What was given back.
#[derive(Debug, Default)]
struct Given {
    bytes: u64,
    files: u64,
}

/// Up to where the journals write into each segment of each log, at most: directory and base, position.
type Reach = BTreeMap<(String, Offset), u64>;

/// Adds the frames of a shard's journal, whether they will count or not. `None`: not all of them can be read, and so nobody knows
/// how far they go.
async fn read_reach<D: Disk>(
    disk: &D,
    journal: &ShardJournal,
    reach: Option<Reach>,
) -> Result<Option<Reach>, StorageError> {
    let Some(mut reach) = reach else { return Ok(None) };
    let mut names: BTreeMap<Incarnation, String> = BTreeMap::new();
    for old in &journal.files {
        let file = disk.open(&old.path, OpenMode::Read).await?;
        for place in &old.content.commits {
            let body = place.position + HEADER_BYTES as u64;
            let bytes = read_long(&file, body, place.header.frames_bytes as usize).await?;
            let Ok(frames) = frame::frames(&place.header, &bytes) else {
                return Ok(None);
            };
            for frame in &frames {
                let header = &frame.header;
                if header.kind == FrameKind::Open {
                    if let Ok(open) = OpenPayload::decode(frame.payload) {
                        names.insert(header.incarnation, open.directory);
                    }
                    continue;
                }
                let Some(to) = end_of(header) else { continue };
                let Some(name) = names.get(&header.incarnation) else {
                    return Ok(None);
                };
                let end = reach.entry((name.clone(), header.segment)).or_default();
                *end = to.max(*end);
            }
        }
        file.close().await?;
    }
    Ok(Some(reach))
}

/// Up to where a frame's bytes go in its segment.
fn end_of(header: &FrameHeader) -> Option<u64> {
    let (position, payload) = (u64::from(header.position), u64::from(header.payload_bytes));
    match header.kind {
        FrameKind::Append => Some(position + payload),
        FrameKind::Extent => Some(position + u64::from(header.auxiliary) + payload),
        _ => None,
    }
}

/// Cuts the segments of a log that may have more blocks than batches, and removes what was on its way out.
async fn shrink_log<D: Disk>(
    disk: &D,
    dir: &Path,
    known: Option<&LogRecord>,
    reach: Option<&Reach>,
    given: &mut Given,
) -> Result<(), StorageError> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_damaged = known.is_some_and(|record| record.damage.is_some());
    for entry in disk.list(dir).await?.iter().filter(|entry| !entry.is_dir) {
        match FileName::parse(&entry.name) {
            FileName::Temporary
            | FileName::Segment {
                mark: Some(FileMark::Deleted),
                ..
            } => {
                disk.remove_file(&dir.join(&entry.name)).await?;
                given.files += 1;
            }
            FileName::Segment {
                file: SegmentFileKind::Log,
                base,
                mark: None,
            } if entry.size > 0 && entry.size.is_multiple_of(BLOCK_BYTES as u64) && !is_damaged => {
                let Some(reach) = reach else { continue };
                let written_to = reach.get(&(name.clone(), base)).copied().unwrap_or(0);
                given.bytes += shrink_segment(disk, dir, base, entry.size, known, written_to).await?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Cuts a segment of `size` bytes behind its last batch and behind `written_to`, if there is nothing but zeroes. Returns how much
/// shorter it is.
async fn shrink_segment<D: Disk>(
    disk: &D,
    dir: &Path,
    base: Offset,
    size: u64,
    known: Option<&LogRecord>,
    written_to: u64,
) -> Result<u64, StorageError> {
    let file = disk
        .open(
            &segment_path(dir, base, SegmentFileKind::Log),
            OpenMode::ReadWrite,
        )
        .await?;
    let mut cut = size;
    if is_zero(&file.read_at(size - BLOCK_BYTES as u64, BLOCK_BYTES).await?) {
        let place = known.and_then(|record| record.place.as_ref());
        let place = place.filter(|place| Offset(place.segment) == base);
        let (position, expected) = place.map_or((0, base), |place| (place.position, Offset(place.offset)));
        let limit = u32::try_from(size).unwrap_or(u32::MAX);
        let end = scan_segment(&file, position.min(limit), expected, limit, |_, _, _| {}).await?;
        let low = align_up(u64::from(end.position).max(written_to)).min(size);
        cut = end_of_content(&file, low, size).await?;
    }
    if cut < size {
        file.truncate(cut).await?;
    }
    file.close().await?;
    Ok(size - cut)
}

/// The end of the last block between `low` and `size` that holds anything, `low` if none does.
async fn end_of_content<F: DiskFile>(file: &F, low: u64, size: u64) -> Result<u64, DiskError> {
    let mut end = size;
    while end > low {
        let from = end.saturating_sub(IO_BYTES_MAX as u64).max(low);
        let len = usize::try_from(end - from).unwrap_or(IO_BYTES_MAX);
        let bytes = file.read_at(from, len).await?;
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            return Ok(align_up(from + last as u64 + 1).min(size));
        }
        end = from;
    }
    Ok(low)
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
