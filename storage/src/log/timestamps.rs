//! Offsets by time: the first record at or after a time (LO-8) and the record with the largest timestamp (LO-3), exact
//! inside batches, compressed ones included. The time index leads to the place, the batches from there on are read.

use std::ops::ControlFlow;

use protocol::compression::{Codec, Decompressor};
use protocol::record::{BatchView, DECOMPRESSED_BYTES_MAX_DEFAULT, RecordStream, TimestampType};

use super::LogRef;
use super::batch::BatchHeader;
use super::read::ReadOutcome;
use crate::disk::Disk;
use crate::error::{Damage, StorageError};
use crate::store::Store;
use crate::types::{LeaderEpoch, Offset};

/// Bytes read at a time while looking for a record.
const LOOK_BYTES: usize = 256 << 10;

/// A record found by its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOffset {
    /// The record's offset.
    pub offset: Offset,
    /// Its timestamp, milliseconds since 1970.
    pub timestamp: i64,
    /// The epoch of its batch.
    pub leader_epoch: LeaderEpoch,
}

/// A search for the first record of a batch from a time and an offset on. It decompresses the batch as far as it has to,
/// which may take long.
#[derive(Clone, Debug)]
pub struct BatchSearch {
    batch: bytes::Bytes,
    timestamp: i64,
    start: Offset,
}

/// Records of an uncompressed batch up to which a search is quick: half a millisecond.
const QUICK_RECORDS_MAX: i32 = 16 << 10;

impl BatchSearch {
    /// Whether it may take long: it is to be run where it holds up nobody.
    #[must_use]
    pub fn is_long(&self) -> bool {
        BatchView::parse(&self.batch, 0).is_ok_and(|view| {
            let header = view.header();
            header.attributes.codec() != Some(Codec::None) || header.record_count > QUICK_RECORDS_MAX
        })
    }

    /// Searches; `None` when there is no such record.
    ///
    /// # Errors
    /// What is wrong with the batch.
    pub fn run(&self) -> Result<Option<TimedOffset>, String> {
        first_record(&self.batch, |record| {
            record.timestamp >= self.timestamp && record.offset >= self.start
        })
    }
}

impl<D: Disk> Store<D> {
    /// The first record below `upper` whose timestamp is at or after `timestamp` (LO-8); `None` when there is none.
    /// `search` runs searches in batches.
    ///
    /// # Errors
    /// [`StorageError`] from the disk or for damage.
    pub async fn offset_for_timestamp(
        &self,
        log: LogRef,
        timestamp: i64,
        upper: Offset,
        search: impl AsyncFn(BatchSearch) -> Result<Option<TimedOffset>, String>,
    ) -> Result<Option<TimedOffset>, StorageError> {
        let entry = self.log(log).ok_or(StorageError::NoSuchLog)?;
        self.check_times(&entry).await?;
        let mut from = {
            let state = entry.state.borrow();
            let reaches = |end: Option<Offset>| end.is_none_or(|end| end > state.log_start);
            let mut segments = state.segments.iter().zip(
                state
                    .segments
                    .iter()
                    .skip(1)
                    .map(|next| Some(next.base))
                    .chain([None]),
            );
            let found =
                segments.find(|(segment, end)| segment.largest.timestamp >= timestamp && reaches(*end));
            let Some((segment, _)) = found else {
                return Ok(None);
            };
            let indexed = segment
                .indexes
                .as_ref()
                .map(|indexes| indexes.time.lookup(timestamp).offset);
            indexed
                .unwrap_or(segment.base)
                .max(segment.base)
                .max(state.log_start)
        };
        let start = self.offsets(log).ok_or(StorageError::NoSuchLog)?.log_start;
        loop {
            let mut candidate = None;
            self.walk_batches(log, from, upper, |header, batch| {
                if header.is_empty() || header.max_timestamp < timestamp || header.last_offset() < start {
                    return ControlFlow::Continue(());
                }
                candidate = Some((header.last_offset().plus(1), batch.clone()));
                ControlFlow::Break(())
            })
            .await?;
            let Some((end, batch)) = candidate else {
                return Ok(None);
            };
            let what = BatchSearch {
                batch,
                timestamp,
                start,
            };
            let found = search(what).await.map_err(|found| unreadable(&found))?;
            if found.is_some() {
                return Ok(found.filter(|found| found.offset < upper));
            }
            from = end;
        }
    }

    /// The record with the largest timestamp below `upper`, the first of several (LO-3); `None` for an empty log. `search`
    /// runs searches in batches.
    ///
    /// # Errors
    /// [`StorageError`] from the disk or for damage.
    pub async fn max_timestamp(
        &self,
        log: LogRef,
        upper: Offset,
        search: impl AsyncFn(BatchSearch) -> Result<Option<TimedOffset>, String>,
    ) -> Result<Option<TimedOffset>, StorageError> {
        let entry = self.log(log).ok_or(StorageError::NoSuchLog)?;
        self.check_times(&entry).await?;
        let (mut from, start) = {
            let state = entry.state.borrow();
            let largest = state
                .segments
                .iter()
                .filter(|segment| segment.size > 0)
                .map(|segment| segment.largest)
                .reduce(|best, next| {
                    if next.timestamp > best.timestamp {
                        next
                    } else {
                        best
                    }
                });
            let Some(largest) = largest else { return Ok(None) };
            (largest.offset, state.log_start)
        };
        if from >= upper || from < start {
            // The record is not to be seen (yet, or any more): the largest among those that are.
            from = start;
        }
        let mut best: Option<(i64, bytes::Bytes)> = None;
        let only = from > start;
        self.walk_batches(log, from, upper, |header, batch| {
            if header.is_empty() {
                return ControlFlow::Continue(());
            }
            if best
                .as_ref()
                .is_none_or(|(timestamp, _)| header.max_timestamp > *timestamp)
            {
                best = Some((header.max_timestamp, batch.clone()));
            }
            if only {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .await?;
        let Some((timestamp, batch)) = best else {
            return Ok(None);
        };
        let what = BatchSearch {
            batch,
            timestamp,
            start: Offset::ZERO,
        };
        search(what).await.map_err(|found| unreadable(&found))
    }

    /// Hands the batches from the one that holds `from` to `upper` to `visit`, until it breaks.
    async fn walk_batches(
        &self,
        log: LogRef,
        from: Offset,
        upper: Offset,
        mut visit: impl FnMut(&BatchHeader, &bytes::Bytes) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let mut at = from;
        while at < upper {
            let pieces = match self.read(log, at, LOOK_BYTES, upper, true) {
                ReadOutcome::Cached(pieces) => pieces,
                ReadOutcome::Cold(cold) => match self.read_cold(cold).await {
                    Ok(pieces) => pieces,
                    // The log starts above it by now: what is left of it is looked through.
                    Err(StorageError::OffsetOutOfRange { start, .. }) if start > at => {
                        at = start;
                        continue;
                    }
                    Err(error) => return Err(error),
                },
                ReadOutcome::Empty | ReadOutcome::OutOfRange => return Ok(()),
                ReadOutcome::Offline => return Err(StorageError::NoSuchLog),
            };
            let bytes = bytes::Bytes::from(pieces.concat());
            if bytes.is_empty() {
                return Ok(());
            }
            let mut position = 0;
            while let Some(header) = bytes.get(position..).and_then(BatchHeader::parse) {
                let end = (position + header.size as usize).min(bytes.len());
                if visit(&header, &bytes.slice(position..end)).is_break() {
                    return Ok(());
                }
                at = header.last_offset().plus(1);
                position = end;
            }
        }
        Ok(())
    }
}

/// The first record of a batch that `wanted` accepts.
fn first_record(batch: &[u8], wanted: impl Fn(&TimedOffset) -> bool) -> Result<Option<TimedOffset>, String> {
    let view = BatchView::parse(batch, 0).map_err(|fault| fault.to_string())?;
    let header = *view.header();
    let mut decompressor = Decompressor::default();
    let mut records = RecordStream::new(&view, &mut decompressor, DECOMPRESSED_BYTES_MAX_DEFAULT)
        .map_err(|error| error.to_string())?;
    let append_time = header.attributes.timestamp_type() == TimestampType::LogAppendTime;
    while let Some(facts) = records.next_facts().map_err(|error| error.to_string())? {
        let found = TimedOffset {
            offset: Offset(header.base_offset.saturating_add(i64::from(facts.offset_delta))),
            timestamp: if append_time {
                header.max_timestamp
            } else {
                header.timestamp(facts.timestamp_delta)
            },
            leader_epoch: LeaderEpoch(header.leader_epoch),
        };
        if wanted(&found) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn unreadable(found: &str) -> StorageError {
    Damage::of_file("", 0, "the records of a stored batch", found).into()
}
