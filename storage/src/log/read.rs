//! Reads: from the batch cache at once, or as a plan for the disk. Whole batches from the one that holds the offset
//! (FE-6), never beyond the upper bound, within one segment (FE-7). A hole that compaction left at the end of a segment
//! leads on to the next (BR-015).

use std::rc::Rc;

use bytes::Bytes;

use protocol::record::BATCH_HEADER_BYTES;

use super::batch::BatchHeader;
use super::read_check::check;
use super::window::Window;
use super::{Log, LogRef, LogState};
use crate::batch_cache::{CacheRead, ReadEnd};
use crate::disk::{Disk, DiskFile, IO_BYTES_MAX, read_long};
use crate::error::{Damage, StorageError};
use crate::io_class::IoClass;
use crate::notify::join_all;
use crate::read_ahead::{Cover, Fetch};
use crate::store::Store;
use crate::types::Offset;

/// The outcome of a read that does no I/O.
#[derive(Debug)]
pub enum ReadOutcome {
    /// Whole batches; the pieces back to back are their bytes.
    Cached(Vec<Bytes>),
    /// The batches are on disk only.
    Cold(ColdRead),
    /// Nothing below the upper bound, or nothing that fits.
    Empty,
    /// Below the log start or above the log end.
    OutOfRange,
    /// The log or its directory is offline, or the log is not open.
    Offline,
}

/// A read to be done by [`Store::read_cold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColdRead {
    /// The log.
    pub log: LogRef,
    /// From the batch that holds this offset.
    pub offset: Offset,
    /// At most this many bytes.
    pub max_bytes: usize,
    /// Only batches that end below this.
    pub upper_bound: Offset,
    /// One batch even if it is larger than `max_bytes`.
    pub at_least_one: bool,
}

/// The least a cold read asks of the disk, bytes.
const COLD_BYTES_MIN: usize = 64 << 10;

/// A read that begins so many bytes before the end of the log or less is a tail read: its consumer fell out of the cache a
/// moment ago.
const TAIL_BYTES: u32 = 8 << 20;

/// Where a cold read looks.
struct ColdPlace {
    segment: Offset,
    /// Of the files with that base, which.
    version: u32,
    /// The next segment's base, to go on with when this one has no such batch.
    next: Option<Offset>,
    position: u32,
    /// Up to here the segment is on disk.
    limit: u32,
    /// All of it is.
    is_whole: bool,
}

enum Found {
    /// Whole batches, and where what follows them begins: offset and byte position.
    Batches(Vec<Bytes>, (Offset, u32)),
    /// The segment has no batch at or above the offset.
    Beyond,
    /// The next batch does not fit or reaches the bound.
    Nothing,
    /// The offset index led to a place from which the offset is not to be looked for.
    Astray,
}

/// Extents read ahead side by side by one call of [`Store::read_ahead`].
const FETCHES_MAX: usize = 8;

impl<D: Disk> Store<D> {
    /// Whole batches from the one that holds `offset`, from memory; see [`ReadOutcome`].
    #[must_use]
    pub fn read(
        &self,
        log: LogRef,
        offset: Offset,
        max_bytes: usize,
        upper_bound: Offset,
        at_least_one: bool,
    ) -> ReadOutcome {
        let Some(entry) = self.log(log) else {
            return ReadOutcome::Offline;
        };
        let state = entry.state.borrow();
        if offset < state.log_start || offset > state.end {
            return ReadOutcome::OutOfRange;
        }
        let mut at = offset;
        loop {
            if at >= upper_bound.min(state.end) {
                return ReadOutcome::Empty;
            }
            let next = state.segment_after(at).map(|segment| segment.base);
            let bound = next.map_or(upper_bound, |next| next.min(upper_bound));
            let read = self
                .cache
                .borrow_mut()
                .read(log.slot, at, max_bytes, bound, at_least_one);
            match (read, next) {
                (CacheRead::Hit(hit), _) if !hit.pieces.is_empty() => return ReadOutcome::Cached(hit.pieces),
                (CacheRead::Hit(hit), Some(next))
                    if hit.ended == ReadEnd::UpperBound && next < upper_bound =>
                {
                    at = next
                }
                (CacheRead::Hit(_), _) => return ReadOutcome::Empty,
                (CacheRead::Miss, _) => {
                    return ReadOutcome::Cold(ColdRead {
                        log,
                        offset: at,
                        max_bytes,
                        upper_bound,
                        at_least_one,
                    });
                }
            }
        }
    }

    /// Carries out a read that [`Self::read`] could not answer from memory. Empty when what is there does not fit.
    ///
    /// # Errors
    /// [`StorageError`]: the disk, damage, or the log is gone.
    pub async fn read_cold(&self, read: ColdRead) -> Result<Vec<Bytes>, StorageError> {
        let mut read = read;
        let mut from_the_front = false;
        loop {
            let log = self.log(read.log).ok_or(StorageError::NoSuchLog)?;
            let place = log.state.borrow().cold_place(&read)?;
            let Some(mut place) = place else {
                return Ok(Vec::new());
            };
            if from_the_front {
                place.position = 0;
            }
            if place.position < place.limit {
                let found = self.find(&log, &place, &read).await;
                if self.log(read.log).is_none() {
                    return Err(StorageError::NoSuchLog); // its directory may be that of a new topic of its name by now
                }
                let is_replaced =
                    |state: &LogState<D>| state.is_replaced(place.segment, place.version, read.offset);
                if is_replaced(&log.state.borrow()) {
                    continue; // compacted meanwhile: where in the new file that is, the new index says
                }
                let found = found.map_err(|error| self.gone_meanwhile(&log, &read, error))?;
                match found {
                    Found::Batches(batches, _) => return Ok(batches),
                    Found::Nothing => return Ok(Vec::new()),
                    Found::Beyond => {}
                    Found::Astray => {
                        self.rebuild_indexes(&log, place.segment).await?;
                        from_the_front = true;
                        continue;
                    }
                }
            }
            // Not on disk: in memory, or beyond the last batch of this segment.
            let again = place.next.filter(|_| place.is_whole).unwrap_or(read.offset);
            match self.read(
                read.log,
                again,
                read.max_bytes,
                read.upper_bound,
                read.at_least_one,
            ) {
                ReadOutcome::Cached(batches) => return Ok(batches),
                ReadOutcome::Cold(cold) if cold.offset > read.offset => {
                    from_the_front = false;
                    read = cold;
                }
                ReadOutcome::Cold(_) => return Ok(Vec::new()),
                ReadOutcome::Empty | ReadOutcome::OutOfRange => return Ok(Vec::new()),
                ReadOutcome::Offline => return Err(StorageError::NoSuchLog),
            }
        }
    }
}

impl<D: Disk> Store<D> {
    /// Reads ahead for sequential readers, as many extents as there are to read now, side by side; waits for some first. To
    /// be called in a loop by one or two tasks.
    ///
    /// # Errors
    /// [`StorageError`] when the store is offline; the loop ends then. Failed reads are the readers' to report.
    pub async fn read_ahead(&self) -> Result<(), StorageError> {
        self.ahead_moved
            .until(|| (self.ahead.borrow().has_wanted() || self.is_offline()).then_some(()))
            .await;
        self.check_online()?;
        let fetches: Vec<Fetch> = {
            let mut ahead = self.ahead.borrow_mut();
            std::iter::from_fn(|| ahead.next_fetch())
                .take(FETCHES_MAX)
                .collect()
        };
        join_all(fetches.iter().map(|fetch| self.fetch(fetch))).await;
        Ok(())
    }

    /// The error of a read whose segment was removed while it was under way is that of its offset.
    fn gone_meanwhile(&self, log: &Log<D>, read: &ColdRead, error: StorageError) -> StorageError {
        match &error {
            StorageError::Disk(cause) if cause.is_not_found() => {}
            _ => return error,
        }
        if self.log(read.log).is_none() {
            return StorageError::NoSuchLog;
        }
        let state = log.state.borrow();
        if read.offset < state.log_start {
            return state.out_of_range(read.offset);
        }
        error
    }

    async fn fetch(&self, fetch: &Fetch) {
        let log = self.logs.borrow().get(fetch.slot);
        let bytes = match log {
            Some(log) => match self.segment_file(&log, fetch.segment).await {
                Ok(file) => {
                    let class = log.state.borrow().read_class(fetch.segment, fetch.position);
                    let permit = self.io.permit(class, fetch.bytes as u64).await;
                    let read = file.file().read_at(u64::from(fetch.position), fetch.bytes).await;
                    drop(permit);
                    read.ok()
                }
                Err(_) => None,
            },
            None => None,
        };
        self.ahead.borrow_mut().landed(fetch, bytes);
        self.ahead_moved.notify();
    }

    /// Looks through the segment from the place on, as a reader that may have gone on from its last read.
    async fn find(
        &self,
        log: &Rc<Log<D>>,
        place: &ColdPlace,
        read: &ColdRead,
    ) -> Result<Found, StorageError> {
        let (reader, resumed) = self
            .ahead
            .borrow_mut()
            .begin(read.log.slot, place.segment, read.offset);
        let position = resumed.unwrap_or(place.position);
        let found = self.find_from(log, place, read, reader, position).await;
        if let Err(StorageError::Damage(damage)) = &found {
            self.met_damage(log.id, damage);
        }
        let next = match &found {
            Ok(Found::Batches(_, next)) => Some(*next),
            _ => None,
        };
        let mut ahead = self.ahead.borrow_mut();
        let planned = next.is_some_and(|(_, position)| ahead.plan(reader, position, position, place.limit));
        ahead.end(reader, next);
        drop(ahead);
        if planned {
            self.ahead_moved.notify();
        }
        found
    }

    async fn find_from(
        &self,
        log: &Rc<Log<D>>,
        place: &ColdPlace,
        read: &ColdRead,
        reader: u64,
        mut position: u32,
    ) -> Result<Found, StorageError> {
        let usual = read.max_bytes.clamp(COLD_BYTES_MIN, IO_BYTES_MAX);
        let (mut want, mut needed) = (usual, BATCH_HEADER_BYTES);
        while position < place.limit {
            let len = want.min((place.limit - position) as usize);
            let window = self.window(log, place, reader, position, len, needed).await?;
            if place.is_indexed_at(position) && is_astray(&window, place, position, read) {
                return Ok(Found::Astray);
            }
            let fault = match look(&window, read) {
                Look::Found { from, to } => {
                    let checked = check(&window, from, to);
                    if let (Some((header, crc)), None) = (checked.fault, checked.end) {
                        return Err(bad_crc(log, place, position + from as u32, &header, crc).into());
                    }
                    let next = (checked.end.unwrap_or(read.offset), position + checked.to as u32);
                    return Ok(Found::Batches(window.slice(from, checked.to), next));
                }
                Look::Stop => return Ok(Found::Nothing),
                Look::Skip(bytes) => {
                    position = position.saturating_add(bytes);
                    (want, needed) = (usual, BATCH_HEADER_BYTES);
                    continue;
                }
                Look::Need { at, bytes } if at > 0 || window.len() < bytes as usize => {
                    let had_asked = at == 0 && needed >= bytes as usize;
                    position += at;
                    (want, needed) = (usual.max(bytes as usize), bytes as usize);
                    let is_beyond = u64::from(position) + u64::from(bytes) > u64::from(place.limit);
                    if is_beyond && !place.is_whole {
                        return Ok(Found::Beyond); // only partly on disk yet, so still in memory
                    }
                    if !is_beyond && !had_asked {
                        continue;
                    }
                    position // the file is shorter than it was, or the length is another
                }
                Look::Need { at, .. } | Look::Bad(at) => position + at,
            };
            return Err(bad_batch(log, place, fault).into());
        }
        Ok(Found::Beyond)
    }

    /// Up to `len` bytes at `position`: at least `needed` of what was read ahead, or read now.
    async fn window(
        &self,
        log: &Rc<Log<D>>,
        place: &ColdPlace,
        reader: u64,
        position: u32,
        len: usize,
        needed: usize,
    ) -> Result<Window, StorageError> {
        loop {
            let cover = self
                .ahead
                .borrow_mut()
                .cover(reader, position, len, needed.min(len));
            match cover {
                Cover::Here(pieces) => return Ok(Window::new(pieces)),
                Cover::Coming => self.ahead_moved.next().await,
                Cover::Absent => break,
            }
        }
        let own = {
            let mut ahead = self.ahead.borrow_mut();
            let own = ahead.read_itself(reader, position, len);
            if own.is_some() && ahead.plan(reader, position, position + len as u32, place.limit) {
                self.ahead_moved.notify();
            }
            own
        };
        let read = async {
            let file = self.segment_file(log, place.segment).await?;
            let class = log.state.borrow().read_class(place.segment, position);
            let _permit = self.io.permit(class, len as u64).await;
            read_window(file.file(), u64::from(position), len).await
        };
        let bytes = read.await;
        if let Some(own) = own {
            let kept = bytes.as_ref().ok().cloned();
            self.ahead.borrow_mut().landed(&own, kept);
        }
        Ok(Window::new(vec![bytes?]))
    }
}

impl<D: Disk> LogState<D> {
    /// What a read of the segment from `position` on is for.
    fn read_class(&self, segment: Offset, position: u32) -> IoClass {
        match self.segments.back() {
            Some(active) if active.base == segment && active.size.saturating_sub(position) <= TAIL_BYTES => {
                IoClass::TailRead
            }
            _ => IoClass::ColdRead,
        }
    }

    const fn out_of_range(&self, wanted: Offset) -> StorageError {
        StorageError::OffsetOutOfRange {
            wanted,
            start: self.log_start,
            end: self.end,
        }
    }

    /// Where `read` starts, `None` when the log has nothing there any more.
    fn cold_place(&self, read: &ColdRead) -> Result<Option<ColdPlace>, StorageError> {
        if read.offset < self.log_start || read.offset > self.end {
            return Err(self.out_of_range(read.offset));
        }
        let after = self
            .segments
            .partition_point(|segment| segment.base <= read.offset);
        let Some(segment) = after.checked_sub(1).and_then(|index| self.segments.get(index)) else {
            return Ok(None);
        };
        let (written_segment, written) = self.cursor.written();
        let limit = if segment.base == written_segment {
            written
        } else {
            segment.size
        };
        let position = segment
            .indexes
            .as_ref()
            .map_or(0, |indexes| indexes.offset.lookup(read.offset).position);
        Ok(Some(ColdPlace {
            segment: segment.base,
            version: segment.version,
            next: self.segments.get(after).map(|segment| segment.base),
            position,
            limit,
            is_whole: limit == segment.size,
        }))
    }
}

impl ColdPlace {
    /// Whether the offset index, which may have come from a file, said this position.
    const fn is_indexed_at(&self, position: u32) -> bool {
        position > 0 && position == self.position
    }
}

/// Whether no batch of the segment starts here, or one behind the offset: the batch that is looked for may lie before.
fn is_astray(window: &Window, place: &ColdPlace, position: u32, read: &ColdRead) -> bool {
    let is_right = |header: BatchHeader| {
        let fits = !place.is_whole || u64::from(position) + u64::from(header.size) <= u64::from(place.limit);
        fits && (place.segment..=read.offset).contains(&header.base_offset)
    };
    !window.header(0).is_some_and(is_right)
}

/// What a window onto a segment, which starts with a batch, means for a read.
enum Look {
    /// The bytes from `from` to `to` are the answer.
    Found { from: usize, to: usize },
    /// The first batch at or above the offset does not fit or reaches the bound.
    Stop,
    /// So many bytes hold only batches below the offset.
    Skip(u32),
    /// The batch at `at` needs a window of that many bytes.
    Need { at: u32, bytes: u32 },
    /// No batch at this place.
    Bad(u32),
}

fn look(window: &Window, read: &ColdRead) -> Look {
    let mut at = 0;
    let mut start = None;
    loop {
        let found = |from| Look::Found { from, to: at };
        let Some(header) = window.header(at) else {
            return match start {
                Some(from) => found(from),
                None if at >= window.len() => Look::Skip(at as u32),
                None if window.len() - at < BATCH_HEADER_BYTES => Look::Need {
                    at: at as u32,
                    bytes: BATCH_HEADER_BYTES as u32,
                },
                None => Look::Bad(at as u32),
            };
        };
        let end = at + header.size as usize;
        if header.last_offset() >= read.offset {
            let fits = end - start.unwrap_or(at) <= read.max_bytes || (start.is_none() && read.at_least_one);
            if !fits || header.last_offset() >= read.upper_bound {
                return start.map_or(Look::Stop, found);
            }
            if end > window.len() {
                let need = Look::Need {
                    at: at as u32,
                    bytes: header.size,
                };
                return start.map_or(need, found);
            }
            start.get_or_insert(at);
        }
        at = end;
    }
}

/// `len` bytes at `position`, in I/Os of at most [`IO_BYTES_MAX`]; fewer where the file ends.
pub(crate) async fn read_window<F: DiskFile>(
    file: &F,
    position: u64,
    len: usize,
) -> Result<Bytes, StorageError> {
    Ok(read_long(file, position, len).await?)
}

fn bad_crc<D: Disk>(
    log: &Log<D>,
    place: &ColdPlace,
    position: u32,
    header: &BatchHeader,
    found: u32,
) -> Damage {
    Damage {
        path: log.segment_path(place.segment),
        position: u64::from(position),
        first_offset: header.base_offset,
        end_offset: header.last_offset().plus(1),
        expected: format!("a batch with CRC {:08x}", header.wire.crc),
        found: format!("CRC {found:08x}"),
    }
}

fn bad_batch<D: Disk>(log: &Log<D>, place: &ColdPlace, position: u32) -> Damage {
    Damage {
        path: log.segment_path(place.segment),
        position: u64::from(position),
        first_offset: place.segment,
        end_offset: place.next.unwrap_or(Offset::NONE),
        expected: "a version 2 batch header and the whole batch".to_owned(),
        found: "other bytes".to_owned(),
    }
}
