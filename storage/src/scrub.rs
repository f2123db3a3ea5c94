//! The scrub of a store: reads what is in the segments, closed ones and the written part of active ones, and verifies every
//! batch, so that damage is known before somebody needs the data. It changes nothing and takes nothing offline: what else is in
//! a damaged partition is served, and so are the damaged bytes, which clients verify themselves. Each finding is logged once, and
//! counts until its bytes are right again or gone. Paced by its I/O class.

mod record;
mod round;
mod walk;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::checkpoint::envelope;
use crate::disk::{Disk, DiskError, DiskFile, OpenMode};
use crate::error::{Damage, StorageError};
use crate::io_class::IoClass;
use crate::log::{Log, LogState};
use crate::store::Store;
use crate::types::{LogId, Offset};
use record::ScrubRecord;
use round::{Next, Round};
use walk::{Bounds, Fault, Walk};

/// Bytes read and verified at a time: about 50 microseconds of a core.
const READ_BYTES: usize = 256 << 10;

/// What opening a file is charged with, bytes, so that many small ones do not cost more than large ones.
const OPEN_BYTES: u64 = 64 << 10;

/// A log's turn ends with the segment that reaches so many bytes.
const TURN_BYTES: u64 = 256 << 20;

/// How often the position is written while a pass runs, milliseconds.
const SAVE_INTERVAL_MS: i64 = 60_000;

/// Findings that are kept; more are logged and counted, and forgotten.
const FINDINGS_MAX: usize = 1000;

/// How the scrub goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubOptions {
    /// Milliseconds from the beginning of a pass over all logs to the next.
    pub interval_ms: i64,
}

impl Default for ScrubOptions {
    fn default() -> Self {
        Self {
            interval_ms: 24 * 3600 * 1000,
        }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubStep {
    /// It read something, or looked for something to read: there may be more.
    Worked,
    /// There is nothing to do before this time, milliseconds since 1970.
    RestUntil(i64),
}

/// What the scrub has done and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStats {
    /// Bytes verified.
    pub bytes: u64,
    /// Segments verified to their ends.
    pub segments: u64,
    /// Passes over all logs.
    pub passes: u64,
    /// When the last of them ended, milliseconds since 1970; 0 before.
    pub pass_ended_ms: i64,
    /// Damaged places found since the start.
    pub findings_total: u64,
    /// Damaged places that are there, as far as is known.
    pub findings: usize,
}

impl ScrubStats {
    /// The sum with those of another directory; a pass is over when it is over in both.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let is_first = self == Self::default();
        Self {
            bytes: self.bytes + other.bytes,
            segments: self.segments + other.segments,
            passes: if is_first {
                other.passes
            } else {
                self.passes.min(other.passes)
            },
            pass_ended_ms: if is_first {
                other.pass_ended_ms
            } else {
                self.pass_ended_ms.min(other.pass_ended_ms)
            },
            findings_total: self.findings_total + other.findings_total,
            findings: self.findings + other.findings,
        }
    }
}

/// A damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The log.
    pub log: LogId,
    /// The segment's base offset.
    pub segment: Offset,
    /// Where, what was expected and what is there.
    pub damage: Damage,
}

/// A finding's place.
type Place = (LogId, Offset, u64);

/// The scrub of one store.
pub(crate) struct Scrub<D: Disk> {
    options: ScrubOptions,
    /// `None` until the record was read.
    round: RefCell<Option<Round>>,
    turn: RefCell<Option<Turn>>,
    segment: RefCell<Option<SegmentScrub<D>>>,
    findings: RefCell<BTreeMap<Place, Finding>>,
    stats: Cell<ScrubStats>,
    saved_ms: Cell<i64>,
    is_changed: Cell<bool>,
}

/// A log's turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    log: LogId,
    /// The next segment begins here or above.
    from: Offset,
    /// Where the log ended when its turn began: what comes later is for the next pass.
    end: Offset,
    bytes: u64,
}

/// A segment that is being verified.
struct SegmentScrub<D: Disk> {
    log: Rc<Log<D>>,
    base: Offset,
    path: PathBuf,
    file: D::File,
    bounds: Bounds,
    walk: Walk,
    /// What is read next.
    read_from: u32,
    /// A fault at this place was seen once: it counts when it is seen again.
    suspect: Option<u32>,
    /// The place where the walk was taken up behind a fault, of which it is not certain that a batch begins there.
    trial: Option<u32>,
    /// Found, and its last offset is not known yet.
    open: Option<Fault>,
    /// What was found in it in this pass.
    found: Vec<u64>,
}

impl<D: Disk> Scrub<D> {
    pub(crate) fn new(options: ScrubOptions) -> Self {
        Self {
            options,
            round: RefCell::default(),
            turn: RefCell::default(),
            segment: RefCell::default(),
            findings: RefCell::default(),
            stats: Cell::default(),
            saved_ms: Cell::default(),
            is_changed: Cell::default(),
        }
    }

    fn count(&self, change: impl FnOnce(&mut ScrubStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }
}

impl<D: Disk> Store<D> {
    /// A step of the scrub at `now_ms`, milliseconds since 1970: reads and verifies one piece. To be called in a loop by one
    /// background task, which lets others run in between.
    ///
    /// # Errors
    /// [`StorageError`] when the store is offline; the loop ends then. What cannot be read or is wrong is a finding.
    pub async fn scrub(&self, now_ms: i64) -> Result<ScrubStep, StorageError> {
        self.check_online()?;
        if self.closed.get() {
            return Ok(ScrubStep::RestUntil(i64::MAX));
        }
        if self.scrub.round.borrow().is_none() {
            self.load_scrub().await;
        }
        let under_way = self.scrub.segment.borrow_mut().take();
        if let Some(segment) = under_way {
            if let Some(segment) = self.scrub_piece(segment).await {
                *self.scrub.segment.borrow_mut() = Some(segment);
            }
            self.save_scrub(now_ms).await;
            return Ok(ScrubStep::Worked);
        }
        if self.scrub.turn.borrow().is_some() {
            self.next_segment().await;
            return Ok(ScrubStep::Worked);
        }
        let next = {
            let logs = self.logs.borrow();
            let mut round = self.scrub.round.borrow_mut();
            let round = round.as_mut().expect("it was read above");
            round.next(now_ms, || logs.iter().map(|log| log.id))
        };
        match next {
            Next::Rest(until_ms) => {
                if self.scrub.is_changed.get() {
                    self.save_scrub(now_ms).await;
                }
                return Ok(ScrubStep::RestUntil(until_ms));
            }
            Next::PassEnded => {
                self.forget_what_is_gone();
                self.scrub.count(|stats| {
                    stats.passes += 1;
                    stats.pass_ended_ms = now_ms;
                });
                self.scrub.is_changed.set(true);
                self.save_scrub(now_ms).await;
            }
            Next::Log(log, from) => self.begin_turn(log, from),
        }
        Ok(ScrubStep::Worked)
    }

    /// What the scrub knows to be damaged, of what is there still.
    #[must_use]
    pub fn scrub_findings(&self) -> Vec<Finding> {
        let findings = self.scrub.findings.borrow();
        let there = findings.iter().filter(|(place, _)| self.is_there(place));
        there.map(|(_, finding)| finding.clone()).collect()
    }

    /// What the scrub has done and found.
    #[must_use]
    pub fn scrub_stats(&self) -> ScrubStats {
        let findings = self.scrub.findings.borrow();
        ScrubStats {
            findings: findings.keys().filter(|place| self.is_there(place)).count(),
            ..self.scrub.stats.get()
        }
    }

    fn begin_turn(&self, id: LogId, from: Option<Offset>) {
        let log = self.find_log(id).and_then(|log| self.log(log));
        let turn = log.map(|log| {
            let state = log.state.borrow();
            Turn {
                log: id,
                from: from.unwrap_or(Offset::ZERO),
                end: state.end,
                bytes: 0,
            }
        });
        match turn {
            Some(turn) => *self.scrub.turn.borrow_mut() = Some(turn),
            None => self.end_turn(id, None), // it is gone
        }
    }

    fn end_turn(&self, id: LogId, left: Option<Offset>) {
        *self.scrub.turn.borrow_mut() = None;
        if let Some(round) = self.scrub.round.borrow_mut().as_mut() {
            round.turn_ended(id, left);
        }
    }

    /// Opens the next segment of the turn, or ends the turn.
    async fn next_segment(&self) {
        let Some(turn) = *self.scrub.turn.borrow() else {
            return;
        };
        let log = self.find_log(turn.log).and_then(|log| self.log(log));
        if let Some(log) = &log {
            self.until_swapped(log).await; // the file and what is known of it are another's until then
        }
        let next = log
            .as_ref()
            .and_then(|log| log.state.borrow().to_scrub(turn.from));
        let (Some(log), Some((base, bounds))) = (log, next.filter(|(base, _)| *base < turn.end)) else {
            self.end_turn(turn.log, None);
            return;
        };
        let may_leave = self.scrub.round.borrow().as_ref().is_some_and(Round::may_leave);
        if turn.bytes >= TURN_BYTES && may_leave {
            self.end_turn(turn.log, Some(base));
            return;
        }
        if let Some(turn) = self.scrub.turn.borrow_mut().as_mut() {
            turn.from = bounds.next_base.unwrap_or(turn.end);
            turn.bytes += u64::from(bounds.limit);
        }
        if bounds.limit == 0 {
            return;
        }
        drop(self.io.permit(IoClass::Scrub, OPEN_BYTES).await);
        let path = log.segment_path(base);
        match self.disk.open(&path, OpenMode::Read).await {
            Ok(file) => {
                *self.scrub.segment.borrow_mut() = Some(SegmentScrub {
                    log,
                    base,
                    path,
                    file,
                    bounds,
                    walk: Walk::new(bounds, 0, base),
                    read_from: 0,
                    suspect: None,
                    trial: None,
                    open: None,
                    found: Vec::new(),
                });
            }
            Err(error) => self.cannot_open(&log, base, bounds, &path, &error),
        }
    }

    /// A segment's file is not there or cannot be opened; that is a finding, unless the segment was removed meanwhile.
    fn cannot_open(
        &self,
        log: &Rc<Log<D>>,
        base: Offset,
        bounds: Bounds,
        path: &std::path::Path,
        error: &DiskError,
    ) {
        if !self.is_same(log, base, bounds) {
            return;
        }
        let damage = Damage {
            path: path.to_owned(),
            position: 0,
            first_offset: base,
            end_offset: bounds.next_base.unwrap_or(Offset::NONE),
            expected: format!("a segment of {} bytes", bounds.limit),
            found: error.source.to_string(),
        };
        self.found(log.id, base, damage);
    }

    /// Reads one piece. Returns the segment unless it is through.
    async fn scrub_piece(&self, mut segment: SegmentScrub<D>) -> Option<SegmentScrub<D>> {
        if !self.is_same(&segment.log, segment.base, segment.bounds) {
            // Deleted, or compacted meanwhile: its space is wanted back.
            segment.close().await;
            return None;
        }
        let len = READ_BYTES.min((segment.bounds.limit - segment.read_from) as usize);
        let walked = if len == 0 {
            segment.walk.end()
        } else {
            let permit = self.io.permit(IoClass::Scrub, len as u64).await;
            let read = segment.file.read_at(u64::from(segment.read_from), len).await;
            drop(permit);
            let end = segment.read_from + len as u32;
            match read {
                Ok(bytes) => {
                    self.scrub.count(|stats| stats.bytes += bytes.len() as u64);
                    let at = segment.read_from + bytes.len() as u32;
                    segment.read_from = end;
                    let walked = segment.walk.feed(&bytes);
                    let cut = |()| {
                        let found = format!("the end of the file at byte {at}");
                        Err(segment.walk.unreadable(found, segment.bounds.limit))
                    };
                    if at < end { walked.and_then(cut) } else { walked }
                }
                Err(error) => Err(segment.walk.unreadable(error.source.to_string(), end)),
            }
        };
        if segment.open.is_some()
            && let Some(base) = segment.walk.first_base()
        {
            self.close_finding(&mut segment, base);
        }
        match walked {
            Ok(()) if len > 0 => Some(segment),
            Ok(()) => self.segment_ended(segment).await,
            Err(fault) => self.fault(segment, fault).await,
        }
    }

    /// A fault counts when it is there at a second reading; then it goes on behind.
    async fn fault(&self, mut segment: SegmentScrub<D>, fault: Fault) -> Option<SegmentScrub<D>> {
        if segment.trial == Some(fault.position) && segment.walk.first_base().is_none() {
            // The damaged batch had a wrong length: this is its middle, and what the index knows to be a batch comes next.
            let after = fault.position.max(fault.unknown_to);
            return self.go_on(segment, None, after).await;
        }
        if segment.suspect != Some(fault.position) {
            segment.suspect = Some(fault.position);
            segment.walk = Walk::new(segment.bounds, fault.position, segment.walk.place().1);
            segment.read_from = fault.position;
            return Some(segment);
        }
        let (next, after) = (fault.next, fault.position.max(fault.unknown_to));
        segment.open = Some(fault);
        self.go_on(segment, next, after).await
    }

    /// Goes on behind a fault: at `next`, or where the index knows of a batch above `after`.
    async fn go_on(
        &self,
        mut segment: SegmentScrub<D>,
        next: Option<u32>,
        after: u32,
    ) -> Option<SegmentScrub<D>> {
        let indexed = || {
            let state = segment.log.state.borrow();
            let indexes = state.segment(segment.base).and_then(|s| s.indexes.as_ref());
            indexes.and_then(|indexes| indexes.offset.batch_after(after))
        };
        let next = next.map(|at| (at, segment.walk.place().1)).or_else(indexed);
        let Some((at, offset)) = next.filter(|(at, _)| *at < segment.bounds.limit) else {
            return self.segment_ended(segment).await;
        };
        segment.trial = Some(at);
        segment.suspect = None;
        segment.walk = Walk::new(segment.bounds, at, offset);
        segment.read_from = at;
        Some(segment)
    }

    async fn segment_ended(&self, mut segment: SegmentScrub<D>) -> Option<SegmentScrub<D>> {
        let end = segment.bounds.next_base.unwrap_or(Offset::NONE);
        self.close_finding(&mut segment, end);
        self.forget_mended(&segment);
        self.scrub.count(|stats| stats.segments += 1);
        segment.close().await;
        None
    }

    /// What was wrong in an earlier pass and is not any more was put right, by compaction perhaps.
    fn forget_mended(&self, segment: &SegmentScrub<D>) {
        let of_segment = (segment.log.id, segment.base, 0)..=(segment.log.id, segment.base, u64::MAX);
        let mut findings = self.scrub.findings.borrow_mut();
        let known: Vec<Place> = findings.range(of_segment).map(|(place, _)| *place).collect();
        for place in known {
            if !segment.found.contains(&place.2) {
                findings.remove(&place);
                self.scrub.is_changed.set(true);
            }
        }
    }

    /// Whether the segment is what it was when its bounds were looked up, as far as that can be seen.
    fn is_same(&self, log: &Rc<Log<D>>, base: Offset, bounds: Bounds) -> bool {
        let is_open = self.find_log(log.id) == Some(log.log_ref);
        let state = log.state.borrow();
        let segment = state.segment(base);
        is_open && segment.is_some_and(|segment| !bounds.is_whole || segment.size == bounds.limit)
    }

    /// The open finding ends before `end`.
    fn close_finding(&self, segment: &mut SegmentScrub<D>, end: Offset) {
        let Some(fault) = segment.open.take() else { return };
        if !self.is_same(&segment.log, segment.base, segment.bounds) {
            return;
        }
        segment.found.push(u64::from(fault.position));
        let damage = Damage {
            path: segment.path.clone(),
            position: u64::from(fault.position),
            first_offset: fault.first_offset,
            end_offset: end,
            expected: fault.expected,
            found: fault.found,
        };
        self.found(segment.log.id, segment.base, damage);
    }

    fn found(&self, log: LogId, segment: Offset, damage: Damage) {
        let place = (log, segment, damage.position);
        let mut findings = self.scrub.findings.borrow_mut();
        if findings.contains_key(&place) {
            return; // it was told of
        }
        tracing::error!(%damage, "the scrub found damage; what else the partition holds is served");
        self.scrub.count(|stats| stats.findings_total += 1);
        if findings.len() < FINDINGS_MAX {
            findings.insert(place, Finding { log, segment, damage });
        }
        drop(findings);
        self.scrub.is_changed.set(true);
    }

    /// Findings in logs and segments that are there no more.
    fn forget_what_is_gone(&self) {
        self.scrub
            .findings
            .borrow_mut()
            .retain(|place, _| self.is_there(place));
    }

    /// Whether the segment of a finding is there. During a start its log may not be open yet.
    fn is_there(&self, (id, segment, _): &Place) -> bool {
        let log = self.find_log(*id).and_then(|log| self.log(log));
        log.is_some_and(|log| log.state.borrow().segment(*segment).is_some())
    }

    async fn load_scrub(&self) {
        let interval_ms = self.scrub.options.interval_ms;
        let path = record::path(&self.dir, self.shard);
        let loaded = envelope::load::<D, ScrubRecord>(&self.disk, &path).await;
        let record = loaded.unwrap_or_else(|error| {
            tracing::warn!(%error, "the scrub begins anew");
            None
        });
        self.scrub.is_changed.set(record.is_none());
        let round = record.as_ref().map_or_else(
            || Round::new(interval_ms, None, None),
            |record| record.round(interval_ms),
        );
        *self.scrub.round.borrow_mut() = Some(round);
        if let Some(record) = record {
            let findings = record.findings().map(|finding| {
                let place = (finding.log, finding.segment, finding.damage.position);
                (place, finding)
            });
            self.scrub.findings.borrow_mut().extend(findings);
        }
    }

    /// Writes down where the scrub is, when that is due. It can do without, so that nothing ends here; but a disk on which a write
    /// has failed is not trusted any further.
    async fn save_scrub(&self, now_ms: i64) {
        let is_due =
            now_ms.saturating_sub(self.scrub.saved_ms.get()).unsigned_abs() >= SAVE_INTERVAL_MS as u64;
        if !self.scrub.is_changed.get() && !is_due {
            return;
        }
        let record = {
            let round = self.scrub.round.borrow();
            let findings = self.scrub.findings.borrow();
            let record = round
                .as_ref()
                .map(|round| ScrubRecord::of(round, findings.values()));
            record.flatten()
        };
        let Some(record) = record else { return };
        self.scrub.saved_ms.set(now_ms);
        self.scrub.is_changed.set(false);
        let saved = async {
            self.disk.create_dir(&record::folder(&self.dir)).await?;
            envelope::save(&self.disk, &record::path(&self.dir, self.shard), &record).await
        };
        if let Err(error) = saved.await {
            let error = self.fail(error);
            tracing::warn!(%error, "where the scrub is could not be written down");
        }
    }
}

impl<D: Disk> SegmentScrub<D> {
    async fn close(self) {
        if let Err(error) = self.file.close().await {
            tracing::warn!(%error, "closing a file after it was scrubbed");
        }
    }
}

impl<D: Disk> LogState<D> {
    /// The first segment whose base is at or above `from`, and how much of it is on disk.
    fn to_scrub(&self, from: Offset) -> Option<(Offset, Bounds)> {
        let index = self.segments.partition_point(|segment| segment.base < from);
        let segment = self.segments.get(index)?;
        let (written_segment, written) = self.cursor.written();
        let limit = match segment.base.cmp(&written_segment) {
            std::cmp::Ordering::Less => segment.size,
            std::cmp::Ordering::Equal => written.min(segment.size),
            std::cmp::Ordering::Greater => 0,
        };
        let next = self.segments.get(index + 1);
        let bounds = Bounds {
            limit,
            size: segment.size,
            is_whole: next.is_some() && limit == segment.size,
            next_base: next.map(|segment| segment.base),
        };
        Some((segment.base, bounds))
    }
}
