//! Reads one journal file of an earlier run: its commits in order, those that are damaged and can be read all the same, and
//! what lies behind the end of them.

use std::path::Path;

use bytes::Bytes;

use crate::disk::{BLOCK_BYTES, Disk, DiskFile, IO_BYTES_MAX, OpenMode, align_up};
use crate::error::StorageError;
use crate::journal::frame::{
    self, COMMIT_BYTES_MAX, CommitHeader, FileHeader, FrameHeader, FrameKind, HEADER_BYTES, Incarnation,
    Invalid,
};
use crate::journal::salvage::{frames_end, may_be_damaged, salvage};
use crate::journal::scan::{CommitPlace, FileContent};
use crate::log::read::read_window;
use crate::types::Offset;

/// Reads a journal file as far as its commits are valid, and looks behind for evidence of what was durable.
pub(super) async fn read_content<D: Disk>(
    disk: &D,
    path: &Path,
    size: u64,
    run: u64,
) -> Result<FileContent, StorageError> {
    let file = disk.open(path, OpenMode::Read).await?;
    let mut window = Window::new(file);
    let header = FileHeader::decode(&window.get(0, HEADER_BYTES).await?);
    if let Err(Invalid::Version(version)) = header {
        return Err(StorageError::Version {
            path: path.to_owned(),
            found: u32::from(version),
            known: u32::from(frame::FORMAT_VERSION),
        });
    }
    let mut content = FileContent {
        header,
        commits: Vec::new(),
        stop: (0, Invalid::Short),
        behind: Vec::new(),
        retired: Vec::new(),
        starts: Vec::new(),
    };
    let generation = match header {
        Ok(header) if frame::run_of(header.generation) > run => header.generation,
        _ => return Ok(content),
    };
    let mut position = BLOCK_BYTES as u64;
    content.stop = loop {
        let (place, told) = match read_commit(&mut window, position, generation, size).await? {
            Ok(found) => found,
            Err(invalid) => {
                let last = content.commits.last().map(|place| place.header.sequence);
                let damaged = damaged_commit(&mut window, position, generation, size, last, invalid).await?;
                let Some(found) = damaged else {
                    break (position, invalid);
                };
                found
            }
        };
        let sequence = place.header.sequence;
        let retired = told.retired.into_iter();
        content
            .retired
            .extend(retired.map(|incarnation| (sequence, incarnation)));
        let starts = told.starts.into_iter();
        content
            .starts
            .extend(starts.map(|(incarnation, start)| (sequence, incarnation, start)));
        position = align_up(position + place.header.commit_bytes() as u64);
        content.commits.push(place);
    };
    while position + (BLOCK_BYTES as u64) <= size {
        position += BLOCK_BYTES as u64;
        let head = window.get(position, HEADER_BYTES).await?;
        if let Ok(header) = CommitHeader::decode(&head)
            && header.generation == generation
        {
            content.behind.push(CommitPlace {
                position,
                header,
                is_damaged: false,
            });
        }
    }
    Ok(content)
}

/// What the frames of a commit say of logs beforehand.
struct Told {
    retired: Vec<Incarnation>,
    starts: Vec<(Incarnation, Offset)>,
}

fn told<'h>(headers: impl Iterator<Item = &'h FrameHeader>) -> Told {
    let mut told = Told {
        retired: Vec::new(),
        starts: Vec::new(),
    };
    for header in headers {
        match header.kind {
            FrameKind::Retire | FrameKind::Delete => told.retired.push(header.incarnation),
            FrameKind::Start => told.starts.push((header.incarnation, header.base_offset)),
            _ => {}
        }
    }
    told
}

async fn read_commit<F: DiskFile>(
    window: &mut Window<F>,
    position: u64,
    generation: u64,
    size: u64,
) -> Result<Result<(CommitPlace, Told), Invalid>, StorageError> {
    let header = match CommitHeader::decode(&window.get(position, HEADER_BYTES).await?) {
        Ok(header) if header.generation == generation => header,
        Ok(_) => return Ok(Err(Invalid::Field("generation"))),
        Err(invalid) => return Ok(Err(invalid)),
    };
    if position + header.commit_bytes() as u64 > size {
        return Ok(Err(Invalid::Short));
    }
    let body = window
        .get(position + HEADER_BYTES as u64, header.frames_bytes as usize)
        .await?;
    Ok(frame::frames(&header, &body).map(|frames| {
        let told = told(frames.iter().map(|frame| &frame.header));
        let place = CommitPlace {
            position,
            header,
            is_damaged: false,
        };
        (place, told)
    }))
}

/// The commit at `position` whose checks fail, if which frames it has is known for certain; `last` is the sequence of the one
/// before it in the file. Whether it is damage or a torn tail is told later.
async fn damaged_commit<F: DiskFile>(
    window: &mut Window<F>,
    position: u64,
    generation: u64,
    size: u64,
    last: Option<u64>,
    invalid: Invalid,
) -> Result<Option<(CommitPlace, Told)>, StorageError> {
    let body = position + HEADER_BYTES as u64;
    let header = match CommitHeader::decode(&window.get(position, HEADER_BYTES).await?) {
        Ok(header) if header.generation == generation && body + u64::from(header.frames_bytes) <= size => {
            header
        }
        Err(_) if may_be_damaged(invalid) => {
            match header_from_others(window, position, generation, size, last).await? {
                Some(header) => header,
                None => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    if last.is_some_and(|last| header.sequence != last + 1) {
        return Ok(None);
    }
    let bytes = window.get(body, header.frames_bytes as usize).await?;
    let Some(pieces) = salvage((header.frames > 0).then_some(&header), &bytes) else {
        return Ok(None);
    };
    let whole = pieces.iter().filter(|piece| piece.fault.is_none());
    let told = told(whole.map(|piece| &piece.header));
    let place = CommitPlace {
        position,
        header,
        is_damaged: true,
    };
    Ok(Some((place, told)))
}

/// What the commits around `position` say about the one there, whose header is damaged: its sequence and how long it is.
async fn header_from_others<F: DiskFile>(
    window: &mut Window<F>,
    position: u64,
    generation: u64,
    size: u64,
    last: Option<u64>,
) -> Result<Option<CommitHeader>, StorageError> {
    let body = position + HEADER_BYTES as u64;
    // Where nothing was ever written there is nothing to be found.
    if window.get(body, 1).await?.first().is_none_or(|kind| *kind == 0) {
        return Ok(None);
    }
    let mut next = position + BLOCK_BYTES as u64;
    let end = size.min(position + COMMIT_BYTES_MAX as u64);
    let mut following = None;
    while following.is_none() && next + (BLOCK_BYTES as u64) <= end {
        match CommitHeader::decode(&window.get(next, HEADER_BYTES).await?) {
            Ok(header) if header.generation == generation => following = Some(header),
            _ => next += BLOCK_BYTES as u64,
        }
    }
    let (sequence, frames_bytes) = match (following, last) {
        (Some(following), _) => (following.sequence.saturating_sub(1), next - body),
        (None, Some(last)) => {
            let rest = window.get(body, (end.max(body) - body) as usize).await?;
            match frames_end(&rest, HEADER_BYTES) {
                Some(frames_bytes) => (last + 1, frames_bytes as u64),
                None => return Ok(None),
            }
        }
        (None, None) => return Ok(None),
    };
    Ok(Some(CommitHeader {
        generation,
        sequence,
        durable_sequence: 0,
        frames_bytes: u32::try_from(frames_bytes).unwrap_or(u32::MAX),
        frames: 0,
        frames_crc: 0,
    }))
}

/// A file read front to back through one large buffer.
pub(super) struct Window<F> {
    file: F,
    start: u64,
    bytes: Bytes,
}

impl<F: DiskFile> Window<F> {
    pub(super) const fn new(file: F) -> Self {
        Self {
            file,
            start: 0,
            bytes: Bytes::new(),
        }
    }

    /// `len` bytes at `position`; fewer where the file ends.
    pub(super) async fn get(&mut self, position: u64, len: usize) -> Result<Bytes, StorageError> {
        let inside = position
            .checked_sub(self.start)
            .map(|at| at as usize)
            .filter(|at| at + len <= self.bytes.len());
        if let Some(at) = inside {
            return Ok(self.bytes.slice(at..at + len));
        }
        self.start = position;
        self.bytes = read_window(&self.file, position, len.max(IO_BYTES_MAX)).await?;
        Ok(self.bytes.slice(..len.min(self.bytes.len())))
    }
}
