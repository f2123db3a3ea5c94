//! Marks: states of a log at batch boundaries, taken in passing, that become the log's recovery place once everything
//! before them is in the segments and synced. Producer state cannot be turned back, so it is taken together with the end
//! it belongs to, and waits until the disk has caught up.

use super::LogState;
use crate::disk::Disk;
use crate::recovery::record::{LogRecord, PlaceRecord};
use crate::types::{LogId, Offset};

/// The marks of one log. Memory: two producer snapshots.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Taken, not yet covered.
    pending: Option<PlaceRecord>,
    /// Covered by writes, not yet by a sync.
    written: Option<PlaceRecord>,
    /// Covered by a sync.
    pub(crate) synced: Option<PlaceRecord>,
    /// The segment of the place that the newest checkpoint on disk has.
    noted: Option<Offset>,
}

impl Marks {
    /// A checkpoint on disk has this log with its synced place.
    pub(crate) fn note(&mut self) {
        self.noted = self.synced.as_ref().map(|place| Offset(place.segment));
    }

    /// The next recovery does nothing to segments below this one but take them as they are.
    pub(crate) fn noted_segment(&self) -> Offset {
        self.noted.unwrap_or(Offset::ZERO)
    }
}

impl<D: Disk> LogState<D> {
    /// Before a sync of the file system: notes which mark it will cover.
    pub(crate) fn before_sync(&mut self) {
        let (segment, position) = self.cursor.written();
        let reached = |place: &PlaceRecord| (Offset(place.segment), place.position) <= (segment, position);
        if self.marks.pending.as_ref().is_some_and(reached) {
            self.marks.written = self.marks.pending.take();
        }
        // A log that rests is covered as it stands.
        let now = (
            self.segments.back().map(|active| (active.base, active.size)),
            self.tail.bytes(),
        );
        if now == (Some((segment, position)), 0) {
            self.marks.pending = None;
            if !self.marks.synced.as_ref().is_some_and(|place| self.is_end(place)) {
                self.marks.written = Some(self.mark());
            }
        }
        let Some(place) = self.marks.written.as_mut() else {
            return;
        };
        let segment = self
            .segments
            .iter()
            .rev()
            .find(|segment| segment.base.0 == place.segment);
        if let Some(indexes) = segment.and_then(|segment| segment.indexes.as_ref()) {
            if (indexes.txn.dirty_from() as u32) < place.txn_entries {
                // A recovery from there would miss aborted transactions: the next checkpoint has them.
                self.marks.written = None;
                return;
            }
            place.offset_entries = place.offset_entries.min(indexes.offset.dirty_from() as u32);
            place.time_entries = place.time_entries.min(indexes.time.dirty_from() as u32);
        }
    }

    /// Whether the place is the log's end, with all entries of the index files.
    fn is_end(&self, place: &PlaceRecord) -> bool {
        let indexes = self.segments.back().and_then(|active| active.indexes.as_ref());
        let has_entries = indexes.is_none_or(|indexes| {
            indexes.offset.dirty_from() as u32 <= place.offset_entries
                && indexes.time.dirty_from() as u32 <= place.time_entries
        });
        place.offset == self.end.0 && has_entries
    }

    /// After that sync: the mark counts, and the next one is taken if the log moved on.
    pub(crate) fn after_sync(&mut self) {
        if let Some(place) = self.marks.written.take() {
            self.marks.synced = Some(place);
        }
        let last = self.marks.synced.as_ref().map(|place| place.offset);
        if self.marks.pending.is_none() && last != Some(self.end.0) {
            self.marks.pending = Some(self.mark());
        }
    }

    /// What the checkpoint says about this log.
    pub(crate) fn record(&self, id: LogId, directory: &str) -> LogRecord {
        let place = self.marks.synced.clone();
        // Of an unsynced log only what a sync has covered is sure.
        let durable_end = if self.is_unsynced {
            place.as_ref().map_or(self.log_start.0, |place| place.offset)
        } else {
            self.durable_end.0
        };
        LogRecord {
            topic: id.topic.0,
            partition: id.partition,
            directory: directory.to_owned(),
            log_start: self.log_start.0,
            durable_end,
            epochs: self
                .epochs_below(Offset(durable_end))
                .entries()
                .iter()
                .map(|entry| (entry.epoch.0, entry.start_offset.0))
                .collect(),
            place,
            damage: None,
        }
    }

    /// The log's end as a mark.
    fn mark(&self) -> PlaceRecord {
        let active = self.segments.back().expect("a log has an active segment");
        let indexes = active
            .indexes
            .as_ref()
            .expect("the active segment's indexes are in memory");
        PlaceRecord {
            offset: self.end.0,
            segment: active.base.0,
            position: active.size,
            offset_entries: indexes.offset.len() as u32,
            time_entries: indexes.time.len() as u32,
            txn_entries: indexes.txn.len() as u32,
            largest: (active.largest.timestamp, active.largest.offset.0),
            first_timestamp: active.first_timestamp,
            producers: self.producers.encode_snapshot(),
        }
    }
}
