//! One pass over one log: the keys of its dirty part are noted, then its segments are rewritten group by group, oldest first,
//! each group counting as soon as it is whole. Between two pieces others run, and the pass ends if the log changed under it.

use std::rc::Rc;

use bytes::Bytes;

use super::build::{Fault, Worker};
use super::cleaned::{CleanedSegment, HOLD_BYTES};
use super::filter::FilterRules;
use super::offset_map::OffsetMap;
use super::plan::{Cleanable, SegmentFacts, groups};
use super::reader::SegmentReader;
use super::run::{CleanerLimits, Pace, PassReport, compaction_of};
use super::swap::Old;
use super::throttle::Throttle;
use super::transactions::Transactions;
use crate::disk::Disk;
use crate::error::StorageError;
use crate::log::batch::BatchHeader;
use crate::log::config::LogConfig;
use crate::log::{Log, LogState};
use crate::producer_state::ProducerState;
use crate::space::shared::signed;
use crate::store::Store;
use crate::types::{Offset, ProducerId};

/// See the module.
pub(super) struct Pass<'a, D: Disk, P: Pace> {
    store: &'a Store<D>,
    pace: &'a P,
    limits: &'a CleanerLimits,
    log: Rc<Log<D>>,
    config: LogConfig,
    throttle: Throttle,
    /// With the work that is done beside the shard, or here.
    worker: Option<Box<Worker>>,
    report: PassReport,
}

/// A segment of the pass.
#[derive(Clone, Copy)]
struct Target {
    old: Old,
    facts: SegmentFacts,
}

impl<'a, D: Disk, P: Pace> Pass<'a, D, P> {
    pub(super) fn new(
        store: &'a Store<D>,
        pace: &'a P,
        limits: &'a CleanerLimits,
        log: &Rc<Log<D>>,
        throttle: Throttle,
    ) -> Self {
        Self {
            store,
            pace,
            limits,
            log: Rc::clone(log),
            config: log.state.borrow().config.clone(),
            throttle,
            worker: None,
            report: PassReport {
                log: log.name.clone(),
                ..PassReport::default()
            },
        }
    }

    /// What it did, and the rate's account.
    pub(super) fn end(self) -> (PassReport, Throttle) {
        (self.report, self.throttle)
    }

    /// Cleans the range. Returns whether it came to its end; not when the log changed under it.
    ///
    /// # Errors
    /// What could not be read or written.
    pub(super) async fn run(&mut self, range: &Cleanable) -> Result<bool, StorageError> {
        self.check_room(range.clean_bytes + range.dirty_bytes).await?;
        let all = self.targets(range.end);
        let records = range
            .end
            .0
            .saturating_sub(range.first_dirty.0)
            .max(0)
            .unsigned_abs();
        let map = OffsetMap::new(
            self.limits.map_bytes,
            records,
            self.limits.map_load,
            self.limits.hash_key,
        );
        self.worker = Some(Box::new(Worker::new(map)));
        let Some(looked_to) = self.note_keys(&all, range).await? else {
            return Ok(false);
        };
        let transactions = self.transactions(all.first(), range.end);
        let worker = self.worker.as_mut().expect("nobody works with it now");
        self.report.map_keys = (worker.map.len(), worker.map.len_max());
        worker.transactions = transactions;
        let compaction = compaction_of(&self.log);
        let rules = FilterRules {
            looked_to,
            now_ms: self.pace.wall_ms(),
            delete_retention_ms: compaction.delete_retention_ms,
        };
        let below = all.partition_point(|target| target.old.base < looked_to);
        let end = all.get(below).map_or(range.end, |next| next.old.base);
        let targets = &all[..below];
        let facts: Vec<SegmentFacts> = targets.iter().map(|target| target.facts).collect();
        let limits = (self.config.segment_bytes, self.config.segment_index_bytes);
        for group in groups(&facts, end, limits.0, limits.1) {
            if !self.rewrite(&targets[group], &rules).await? {
                return Ok(false);
            }
        }
        self.worker = None;
        if !self.is_alive()? {
            return Ok(false);
        }
        self.store.note_cleaned(&self.log, looked_to).await?;
        self.report.cleaned_to = looked_to;
        Ok(true)
    }

    /// Whether there is room to begin with, of `bytes` that are rewritten. Without a look a pass would find out when it has read all.
    async fn check_room(&self, bytes: u64) -> Result<(), StorageError> {
        self.store.look_at_space().await;
        match self.store.room_to_clean() < signed(bytes.min(HOLD_BYTES)) {
            true => Err(self.store.full("compact").into()),
            false => Ok(()),
        }
    }

    /// The closed segments below `end`.
    fn targets(&self, end: Offset) -> Vec<Target> {
        let state = self.log.state.borrow();
        let facts = state.facts(None);
        let both = state.segments.iter().zip(facts.segments);
        both.take_while(|(segment, _)| segment.base < end && segment.finished)
            .map(|(segment, facts)| Target {
                old: Old {
                    base: segment.base,
                    size: segment.size,
                    version: segment.version,
                },
                facts,
            })
            .collect()
    }

    fn transactions(&self, first: Option<&Target>, end: Offset) -> Transactions {
        let from = first.map_or(end, |first| first.old.base);
        Transactions::new(self.store.aborted_transactions(self.log.log_ref, from, end))
    }

    /// Notes the newest offset of each key in the dirty part. Returns the offset below which all are noted; `None` when the log
    /// changed.
    async fn note_keys(&mut self, all: &[Target], range: &Cleanable) -> Result<Option<Offset>, StorageError> {
        let first = all
            .partition_point(|target| target.old.base <= range.first_dirty)
            .saturating_sub(1);
        let dirty = all.get(first..).unwrap_or_default();
        let transactions = self.transactions(dirty.first(), range.end);
        let worker = self.worker.as_mut().expect("nobody works with it now");
        worker.transactions = transactions;
        let first_dirty = range.first_dirty;
        for target in dirty {
            let Some(mut reader) = self.open(target).await? else {
                return Ok(None);
            };
            while let Some(piece) = self.next_piece(&mut reader).await? {
                let len = piece.len();
                let noted = self.work(move |worker| worker.note(&piece, first_dirty)).await;
                let full = noted.map_err(|fault| damage(&reader, len, &fault))?;
                if !self.is_alive()? {
                    return Ok(None);
                }
                if full.is_some() {
                    return Ok(full);
                }
            }
        }
        Ok(Some(range.end))
    }

    /// Makes one segment of a group and puts it in their place. Returns whether the pass goes on.
    async fn rewrite(&mut self, group: &[Target], rules: &FilterRules) -> Result<bool, StorageError> {
        let bytes = group.iter().map(|target| u64::from(target.old.size)).sum::<u64>();
        let Some(first) = group.first().filter(|_| bytes > 0) else {
            return Ok(true); // there is nothing in them
        };
        if !self.is_alive()? {
            return Ok(false);
        }
        let mut new =
            CleanedSegment::create(self.store, &self.log, first.old.base, bytes, &self.config).await?;
        let changed_before = self.report.batches_changed;
        match self.fill(&mut new, group, rules).await {
            Ok(true) => {}
            Ok(false) => {
                new.discard(self.store).await;
                return Ok(false);
            }
            Err(error) => {
                new.discard(self.store).await;
                return Err(error);
            }
        }
        self.report.rewritten_bytes += bytes;
        self.report.written_bytes += u64::from(new.size);
        if self.report.batches_changed == changed_before && group.len() == 1 {
            new.discard(self.store).await; // the same once more
            return Ok(true);
        }
        let old: Vec<Old> = group.iter().map(|target| target.old).collect();
        let swapped = self.store.swap(&self.log, &old, new).await?;
        if swapped {
            self.report.segments_saved += old.len() as u64 - 1;
        }
        Ok(swapped)
    }

    async fn fill(
        &mut self,
        new: &mut CleanedSegment<D>,
        group: &[Target],
        rules: &FilterRules,
    ) -> Result<bool, StorageError> {
        let rules = *rules;
        for (number, target) in group.iter().enumerate() {
            let is_last = group[number + 1..].iter().all(|later| later.old.size == 0);
            let Some(mut reader) = self.open(target).await? else {
                return Ok(false);
            };
            while let Some(piece) = self.next_piece(&mut reader).await? {
                let keep_empty = self.keep_empty(&piece, is_last && reader.is_at_end());
                let len = piece.len();
                let filtered = self
                    .work(move |worker| worker.filter(&piece, &keep_empty, &rules))
                    .await;
                let kept = filtered.map_err(|fault| damage(&reader, len, &fault))?;
                if !self.is_alive()? {
                    return Ok(false);
                }
                self.report.batches_changed += kept.changed;
                for aborted in kept.aborted {
                    new.note_aborted(aborted);
                }
                let before = new.size;
                new.put(self.store, &kept.batches).await?;
                self.rest((new.size - before) as usize).await;
            }
        }
        new.finish(self.store).await?;
        Ok(true)
    }

    /// For each batch of a piece, whether its header stays even without records (CP-6): the last of an active producer, and
    /// the last of what is rewritten.
    fn keep_empty(&self, piece: &Bytes, ends_range: bool) -> Vec<bool> {
        let state = self.log.state.borrow();
        let mut keep = Vec::new();
        let mut at = 0;
        while let Some(header) = piece.get(at..).and_then(BatchHeader::parse) {
            keep.push(state.is_last_of_producer(&header));
            at += header.size as usize;
        }
        if let Some(last) = keep.last_mut() {
            *last |= ends_range;
        }
        keep
    }

    /// A reader of the segment; `None` when the log does not have it any more, as its start has moved.
    async fn open(&self, target: &Target) -> Result<Option<SegmentReader<D>>, StorageError> {
        match SegmentReader::open(self.store, &self.log, target.old.base, target.old.size).await {
            Err(_) if !self.log.state.borrow().has(&[target.old]) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// The next piece of a segment, and then the pause it costs; `None` at its end.
    async fn next_piece(&mut self, reader: &mut SegmentReader<D>) -> Result<Option<Bytes>, StorageError> {
        let piece = reader.next(self.store, self.limits.io_bytes).await?;
        if piece.is_empty() {
            return Ok(None);
        }
        self.report.read_bytes += piece.len() as u64;
        self.rest(piece.len()).await;
        Ok(Some(piece))
    }

    /// Waits as the rate demands after `bytes` more.
    async fn rest(&mut self, bytes: usize) {
        let wait_ns = self.throttle.take(bytes, self.pace.now_ns());
        if wait_ns > 0 {
            self.pace.sleep_ns(wait_ns).await;
        } else {
            self.pace.breathe().await;
        }
    }

    /// Whether the log is still open and to be compacted.
    fn is_alive(&self) -> Result<bool, StorageError> {
        self.store.check_cleaner()?;
        let state = self.log.state.borrow();
        Ok(self.store.log(self.log.log_ref).is_some() && !state.closing && state.config.compaction.enabled)
    }

    async fn work<R: Send + 'static>(&mut self, work: impl FnOnce(&mut Worker) -> R + Send + 'static) -> R {
        let mut worker = self.worker.take().expect("one piece at a time");
        let (worker, result) = self
            .pace
            .aside(move || {
                let result = work(&mut worker);
                (worker, result)
            })
            .await;
        self.worker = Some(worker);
        result
    }
}

fn damage<D: Disk>(reader: &SegmentReader<D>, len: usize, fault: &Fault) -> StorageError {
    reader.damage_in_last(len, fault.at, fault.offset, &fault.found)
}

impl<D: Disk> LogState<D> {
    fn is_last_of_producer(&self, header: &BatchHeader) -> bool {
        is_last(&self.producers, header, self.durable_end)
    }
}

/// Whether the batch is the last that its producer wrote and that cannot be lost: what tells its sequence after a restart from
/// the log alone.
fn is_last(producers: &ProducerState, header: &BatchHeader, durable_end: Offset) -> bool {
    let id = ProducerId(header.wire.producer_id);
    if id.0 < 0 {
        return false;
    }
    let Some(producer) = producers.producer(id) else {
        return false;
    };
    let is_of_epoch = producer.epoch == header.wire.producer_epoch;
    let mut has_any = false;
    let mut newest = None;
    for batch in producers.batches(id) {
        has_any = true;
        if batch.last_offset < durable_end {
            newest = Some(batch.last_offset);
        }
    }
    match newest {
        Some(newest) => newest == header.last_offset(),
        // What it wrote last may be lost, and what it wrote before that is not remembered.
        None if has_any => is_of_epoch,
        None => header.wire.attributes.is_control() && is_of_epoch,
    }
}
