//! Retention carried out on one log: what [`crate::retention`] decides goes, after it is durable that the log starts above it.
//! A log that rests is rolled when all of it goes (RT-6), so that it goes on with an empty segment.

use super::{LogRef, LogState};
use crate::disk::Disk;
use crate::error::StorageError;
use crate::retention::{RetentionCut, SegmentFacts, decide};
use crate::segment::time_index::NO_TIMESTAMP;
use crate::store::Store;
use crate::types::Offset;
use crate::write_behind::FlushTo;

impl<D: Disk> Store<D> {
    /// Whether [`Self::retain`] would remove something. No I/O: a look at the oldest segment, and with a limit of size at the
    /// sizes of all.
    #[must_use]
    pub fn is_retention_due(&self, log: LogRef, high_watermark: Offset, now_ms: i64) -> bool {
        let entry = self.log(log);
        entry.is_some_and(|entry| {
            let state = entry.state.borrow();
            state.retention_cut(high_watermark, now_ms).is_some()
        })
    }

    /// Applies the log's retention settings: moves its start up to the first segment that stays and removes what lies below.
    /// `high_watermark` is the log's; nothing at or above it goes. Segments that are still being written behind go in the next
    /// pass. Returns the log start.
    ///
    /// # Errors
    /// [`StorageError`] when the store is or goes offline, or the log is not open.
    pub async fn retain(
        &self,
        log: LogRef,
        high_watermark: Offset,
        now_ms: i64,
    ) -> Result<Offset, StorageError> {
        self.check_online()?;
        let entry = self.log(log).ok_or(StorageError::NoSuchLog)?;
        if entry.state.borrow().config.retention.ms >= 0 {
            // A time index that was cut makes its segment look older than it is.
            self.check_times(&entry).await?;
        }
        let (cut, is_written) = {
            let mut state = entry.state.borrow_mut();
            if state.closing {
                return Err(StorageError::NoSuchLog);
            }
            let Some(cut) = state.retention_cut(high_watermark, now_ms) else {
                return Ok(state.log_start);
            };
            if cut.takes_active {
                assert_eq!(
                    state.end, state.durable_end,
                    "the high watermark is not above the durable end"
                );
                let end = state.end;
                state.roll(end, now_ms);
            }
            state.move_start(cut.end());
            let going = state.segments.iter().take_while(|s| s.base < cut.end());
            (cut, going.into_iter().all(|segment| segment.finished))
        };
        if !is_written {
            self.flush_log(&entry, FlushTo::FullBlocks).await?;
        }
        // Also when it has not moved: whoever has moved it may still wait for that to be durable.
        let start = entry.state.borrow().log_start;
        self.settle_start(&entry, start).await?;
        self.remove_segments_below(&entry, start, |end| cut.reason(end))
            .await?;
        Ok(start)
    }
}

impl<D: Disk> LogState<D> {
    fn retention_cut(&self, high_watermark: Offset, now_ms: i64) -> Option<RetentionCut> {
        let ends = self.segments.iter().skip(1).map(|next| Some(next.base));
        let segments = self.segments.iter().zip(ends.chain([None]));
        let facts = segments.map(|(segment, next)| SegmentFacts {
            end: next.unwrap_or(self.end),
            bytes: u64::from(segment.size),
            newest_ms: if segment.largest.timestamp > NO_TIMESTAMP {
                segment.largest.timestamp
            } else {
                segment.modified_ms
            },
            is_active: next.is_none(),
        });
        let mark = high_watermark.min(self.durable_end);
        decide(
            self.config.retention,
            self.log_start,
            mark,
            now_ms,
            || self.size().bytes,
            facts,
        )
    }
}
