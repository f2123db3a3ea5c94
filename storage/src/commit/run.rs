//! The driver of group commit: takes the plan's shares from the logs, encodes one journal commit, runs all writes and then
//! all syncs side by side, and moves the durable ends in commit order. Two commits may be under way: the next one is
//! planned and written while the one before is being synced. A failed write or sync takes the store offline; nothing is
//! tried again.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use super::buffers::Chunks;
use super::planner::{LogFacts, PendingLogs, Route, Share};
use crate::disk::{BLOCK_BYTES, Disk, DiskError, align_down, align_up};
use crate::error::StorageError;
use crate::io_class::gate::IoGate;
use crate::journal::encode::CommitEncoder;
use crate::journal::frame::{FRAME_HEADER_BYTES, HEADER_BYTES, OpenPayload};
use crate::journal::writer::Reservation;
use crate::journal::{FrameHeader, FrameKind, Incarnation};
use crate::log::cursor::Partial;
use crate::log::tail::Taken;
use crate::log::{Log, LogRef, LogState};
use crate::notify::join_all;
use crate::segment::file::SegmentFile;
use crate::stats::CommitTotals;
use crate::store::{Logs, Store};
use crate::types::Offset;

/// What a commit achieved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitOutcome {
    /// The logs whose durable end moved, and where it is now.
    pub moved: Vec<(LogRef, Offset)>,
    /// Bytes of batches that became durable.
    pub bytes: u64,
    /// Bytes written for it, padding and framing included.
    pub written_bytes: u64,
    /// Files synced for it.
    pub syncs: u32,
}

/// A frame that is not an append, waiting for the next commit.
#[derive(Clone, Debug)]
pub(crate) struct ControlFrame {
    pub(crate) slot: u32,
    pub(crate) kind: FrameKind,
    pub(crate) offset: Offset,
}

/// One log's part of a commit being built.
struct Entry<D: Disk> {
    log: Rc<Log<D>>,
    taken: Taken,
    route: Route,
    /// Bytes that repeat the beginning of a partly filled block.
    lead: u32,
    /// Of a direct write: where it starts and ends in the segment, whole blocks.
    extent: (u32, u32),
    direct: Option<DirectWrite<D>>,
    /// The file to be synced when all writes before have ended: a log without syncs has reached `flush.messages`.
    sync_after: Option<Rc<SegmentFile<D>>>,
}

/// A write straight to a segment.
struct DirectWrite<D: Disk> {
    file: Rc<SegmentFile<D>>,
    chunks: Chunks<D>,
    /// CRC-32C of what it writes, where the journal is to tell.
    crc: u32,
    position: u64,
    flight: u64,
    sync: bool,
}

/// What a commit is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Appends and control frames.
    Everything,
    /// The metadata log and control frames.
    Vital,
    /// Control frames alone.
    Controls,
}

/// A commit ready to be written.
struct Planned<D: Disk> {
    ticket: u64,
    entries: Vec<Entry<D>>,
    /// Control frames up to this number are in this commit or an earlier one.
    controls: u64,
    journal: Option<(Reservation<D>, Chunks<D>)>,
}

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), DiskError>> + 'a>>;

impl<D: Disk> Store<D> {
    /// Waits until something is staged, then commits it: one group of appends of any logs. Returns the logs whose durable
    /// end moved. To be called in a loop by one or two tasks, each awaiting it to its end.
    ///
    /// # Errors
    /// [`StorageError`] when the store is or goes offline; the loop ends then.
    pub async fn commit(&self) -> Result<CommitOutcome, StorageError> {
        self.staged(1).await;
        // Also when it was the background work that failed: nobody else tells of it.
        self.check_online()?;
        self.plan_lock().await;
        let room = self.make_room().await;
        if matches!(room, Err(StorageError::NoSpace(_))) {
            self.let_fill_end().await;
        }
        // With a journal file in reserve, planning cannot be interrupted: what is taken is encoded at once.
        let planned = match room {
            Ok(()) => Ok(self.plan_commit(What::Everything)),
            Err(StorageError::NoSpace(_)) if self.has_room_for_vital() => Ok(self.plan_commit(What::Vital)),
            Err(StorageError::NoSpace(_)) if self.has_room_for_controls() => {
                Ok(self.plan_commit(What::Controls))
            }
            Err(error) => Err(error),
        };
        self.plan_unlock();
        let planned = match planned {
            Err(StorageError::NoSpace(_)) => {
                self.wait_for_room().await;
                return self.check_online().map(|()| CommitOutcome::default());
            }
            planned => planned?,
        };
        match planned {
            Some(planned) => self.run_commit(planned).await,
            // Nothing was planned because another commit took it all, or because the store went offline meanwhile: whoever
            // calls this in a loop must be told of that.
            None => self.check_online().map(|()| CommitOutcome::default()),
        }
    }

    fn plan_commit(&self, what: What) -> Option<Planned<D>> {
        if self.is_offline() {
            return None; // what is planned is taken, and this will not carry it out
        }
        let shares = match what {
            What::Everything => {
                let logs = self.logs.borrow();
                self.planner.borrow_mut().plan(&*logs, self.has_pressure())
            }
            What::Vital => {
                let logs = self.logs.borrow();
                let is_vital = |slot| logs.get(slot).is_some_and(|log| log.is_vital);
                self.planner.borrow_mut().plan_of(&*logs, false, is_vital)
            }
            What::Controls => Vec::new(),
        };
        let controls = self.take_controls();
        // Another commit does what a seal is for.
        let is_seal = self.seal.take() && shares.is_empty() && controls.is_empty();
        if shares.is_empty() && controls.is_empty() && !is_seal {
            return None;
        }
        let mut entries: Vec<Entry<D>> = shares.iter().filter_map(|share| self.take(share)).collect();
        for entry in &mut entries {
            if entry.route != Route::Journal {
                let direct = self.direct_write(entry);
                if entry.route == Route::Written && self.must_sync(entry) {
                    entry.log.state.borrow_mut().protect_last_block();
                    entry.sync_after = Some(Rc::clone(&direct.file));
                }
                entry.direct = Some(direct);
            } else {
                entry.sync_after = self.sync_before(entry);
            }
        }
        let journaled =
            is_seal || !controls.is_empty() || entries.iter().any(|entry| entry.route != Route::Written);
        let journal = journaled.then(|| {
            let logs = self.journaled_logs(&entries, &controls);
            let (reservation, frames_bytes) = self.reserve(frames_bytes(&entries, &controls), &logs);
            let chunks = self.encode(&entries, &controls, &logs, &reservation, frames_bytes);
            (reservation, chunks)
        });
        let ticket = self.commits_started.get();
        self.commits_started.set(ticket + 1);
        Some(Planned {
            ticket,
            entries,
            controls: self.controls_staged.get(),
            journal,
        })
    }

    /// The waiting frames; those of logs that were closed meanwhile mean nothing any more.
    fn take_controls(&self) -> Vec<ControlFrame> {
        let logs = self.logs.borrow();
        let mut waiting = self.controls.borrow_mut();
        waiting
            .drain(..)
            .filter(|frame| logs.get(frame.slot).is_some())
            .collect()
    }

    /// Takes a share's batches from their log and settles the route.
    fn take(&self, share: &Share) -> Option<Entry<D>> {
        let log = self.logs.borrow().get(share.slot)?;
        let mut state = log.state.borrow_mut();
        let taken = state.tail.take_staged(share.bytes)?;
        let mut route = share.route;
        let from = state.cursor.issued;
        let mut extent = (from, from);
        match route {
            Route::Direct => match state.cursor.full_blocks_until(taken.to) {
                Some(end) => extent = (from, end),
                None => route = Route::Journal,
            },
            Route::Written => extent = (from, taken.to),
            Route::Journal => {}
        }
        if route != Route::Journal && state.unallocated(taken.segment, extent.1).is_some() {
            route = Route::Journal;
        }
        let mut lead = 0;
        if route == Route::Journal
            && state.cursor.partial == Partial::OnDisk
            && taken.segment == state.cursor.segment
        {
            lead = taken.from - state.cursor.issued;
            state.cursor.partial = Partial::Journaling;
        }
        drop(state);
        Some(Entry {
            log,
            taken,
            route,
            lead,
            extent,
            direct: None,
            sync_after: None,
        })
    }

    /// Takes room in the journal for frames of `plain` bytes and the names of the `logs` that need one. Returns it and the
    /// length of the frames.
    fn reserve(&self, plain: usize, logs: &[Rc<Log<D>>]) -> (Reservation<D>, usize) {
        // Names take room in the file the commit goes to, and which file that is depends on the room: a commit that does
        // not fit the current file with its names goes to the next, where all its logs are unnamed.
        let total = |generation| plain + names_bytes(logs, generation);
        let first = self.journal.generation_for(0);
        let mut frames = first.map_or(plain, total);
        if self.journal.generation_for(commit_bytes(frames)) != first {
            frames = self.journal.next_generation().map_or(plain, total);
        }
        let mut reservation = self
            .journal
            .reserve(commit_bytes(frames))
            .expect("a journal file is in reserve before a commit is planned");
        assert_eq!(
            frames,
            total(reservation.file.generation),
            "the room is in the file that it was sized for"
        );
        reservation.is_empty = frames == 0;
        (reservation, frames)
    }

    /// The logs with frames in the commit's journal part, each once.
    fn journaled_logs(&self, entries: &[Entry<D>], controls: &[ControlFrame]) -> Vec<Rc<Log<D>>> {
        let journaled = entries.iter().filter(|entry| entry.route != Route::Written);
        let mut logs: Vec<Rc<Log<D>>> = journaled.map(|entry| Rc::clone(&entry.log)).collect();
        let all = self.logs.borrow();
        for control in controls {
            if let Some(log) = all.get(control.slot)
                && !logs.iter().any(|known| known.log_ref == log.log_ref)
            {
                logs.push(log);
            }
        }
        logs
    }

    /// Whether the records of `entry`, of a class without syncs, are to be synced before they are acknowledged.
    fn must_sync(&self, entry: &Entry<D>) -> bool {
        let state = entry.log.state.borrow();
        let (bounds, records) = (self.sync_bounds(&state), records_with(&state, entry));
        let unsynced = self.unsynced.borrow();
        unsynced.must_sync(entry.log.log_ref.slot, bounds, records)
    }

    /// The file to be synced because the records that the entry puts into the journal are lost with those written before them, and
    /// these are too many together.
    fn sync_before(&self, entry: &Entry<D>) -> Option<Rc<SegmentFile<D>>> {
        let state = entry.log.state.borrow();
        if !state.is_unsynced {
            return None;
        }
        let (bounds, records) = (self.sync_bounds(&state), records_with(&state, entry));
        let unsynced = self.unsynced.borrow();
        let is_due = unsynced.must_sync_before(entry.log.log_ref.slot, bounds, records);
        is_due
            .then(|| state.segment(state.cursor.segment)?.file.clone())
            .flatten()
    }

    /// Copies what goes straight to the segment and moves the log's cursor.
    fn direct_write(&self, entry: &Entry<D>) -> DirectWrite<D> {
        let (from, to) = entry.extent;
        let mut state = entry.log.state.borrow_mut();
        let mut chunks = Chunks::new(&self.disk, (to - from) as usize);
        let (mut crc, is_told) = (0, entry.route == Route::Direct);
        state.gather(entry.taken.segment, from, to, |piece| match is_told {
            true => crc = chunks.put_summed(piece, crc),
            false => chunks.put(piece),
        });
        let file = state
            .segment(entry.taken.segment)
            .and_then(|segment| segment.file.clone());
        let flight = state.issue(to);
        if entry.route == Route::Written {
            state.cursor.partial = Partial::No; // this class does not promise what the journal protects
        }
        DirectWrite {
            file: file.expect("the planner saw an open segment"),
            chunks,
            crc,
            position: u64::from(from),
            flight,
            sync: is_told,
        }
    }

    fn encode(
        &self,
        entries: &[Entry<D>],
        controls: &[ControlFrame],
        logs: &[Rc<Log<D>>],
        reservation: &Reservation<D>,
        frames_bytes: usize,
    ) -> Chunks<D> {
        let generation = reservation.file.generation;
        let mut encoder = CommitEncoder::new(&self.disk, frames_bytes);
        for log in unnamed(logs, generation) {
            let payload = OpenPayload {
                id: log.id,
                directory: log.name.clone(),
            }
            .encode();
            let mut header = frame(log, FrameKind::Open);
            header.payload_bytes = payload.len() as u32;
            encoder.frame(&header, |put| put(&payload));
            log.state.borrow_mut().introduced = generation;
        }
        let logs = self.logs.borrow();
        for control in controls {
            if let Some(log) = logs.get(control.slot) {
                let mut header = frame(&log, control.kind);
                header.base_offset = control.offset;
                header.end_offset = control.offset;
                encoder.frame(&header, |_| {});
            }
        }
        let mut reach = reservation.file.reach.borrow_mut();
        for entry in entries.iter().filter(|entry| entry.route != Route::Written) {
            encode_entry(&mut encoder, entry);
            reach.insert(entry.log.log_ref.slot, (entry.taken.segment, entry.taken.to));
        }
        drop(reach);
        encoder.finish(generation, reservation.sequence, reservation.durable_sequence)
    }

    async fn run_commit(&self, planned: Planned<D>) -> Result<CommitOutcome, StorageError> {
        let Planned {
            ticket,
            mut entries,
            controls,
            journal,
        } = planned;
        let (reservation, chunks) = journal.unzip();
        let mut outcome = CommitOutcome::default();
        let mut work: Vec<Work<'_>> = Vec::with_capacity(entries.len() + 1);
        if let (Some(reservation), Some(chunks)) = (&reservation, chunks) {
            outcome.written_bytes += chunks.padded_bytes();
            outcome.syncs += 1;
            work.push(Box::pin(reservation.write(chunks, &self.io)));
        }
        let mut flights = Vec::new();
        for entry in &mut entries {
            if let Some(direct) = entry.direct.take() {
                outcome.written_bytes += direct.chunks.padded_bytes();
                outcome.syncs += u32::from(direct.sync);
                flights.push((Rc::clone(&entry.log), direct.flight));
                work.push(Box::pin(direct.run(&self.io)));
            }
        }
        let flight = self.io.produce(outcome.written_bytes);
        let results = join_all(work).await;
        drop(flight);
        for error in results.into_iter().filter_map(Result::err) {
            self.fail_for_good(error);
        }
        self.moved
            .until(|| (self.commits_ended.get() == ticket || self.is_offline()).then_some(()))
            .await;
        self.check_online()?;
        outcome.syncs += self.sync_after(&entries).await?;
        if let Some(reservation) = reservation {
            self.journal.mark_durable(&reservation);
            if self.journal.is_unsealed() {
                self.wants_seal();
            }
            reservation
                .file
                .in_flight
                .set(reservation.file.in_flight.get() - 1);
        }
        for entry in &entries {
            outcome.bytes += entry.taken.bytes();
            if let Some(moved) = self.complete(entry) {
                outcome.moved.push(moved);
            }
        }
        for (log, flight) in flights {
            self.land(&log, flight);
        }
        self.controls_durable.set(controls);
        CommitTotals::add(&self.commit_totals, &outcome);
        self.commits_ended.set(ticket + 1);
        self.moved.notify();
        self.behind.notify();
        Ok(outcome)
    }

    /// Syncs the logs without syncs that are due. All commits before have ended, so this covers them too. Returns how many.
    async fn sync_after(&self, entries: &[Entry<D>]) -> Result<u32, StorageError> {
        let files: Vec<_> = entries.iter().filter_map(|e| e.sync_after.as_ref()).collect();
        let synced = join_all(files.iter().map(|file| file.sync())).await;
        for error in synced.into_iter().filter_map(Result::err) {
            self.fail(error);
        }
        self.check_online()?;
        Ok(files.len() as u32)
    }

    /// The commit that holds `entry` is durable, and so are all before it.
    fn complete(&self, entry: &Entry<D>) -> Option<(LogRef, Offset)> {
        let mut state = entry.log.state.borrow_mut();
        if entry.lead > 0 && state.cursor.partial == Partial::Journaling {
            state.cursor.partial = Partial::No;
        }
        if entry.taken.end <= state.durable_end {
            return None;
        }
        state.durable_end = entry.taken.end;
        let is_unsynced = state.is_unsynced;
        drop(state);
        let (slot, taken) = (entry.log.log_ref.slot, &entry.taken);
        if entry.sync_after.is_some() {
            self.unsynced.borrow_mut().covered(slot, taken.end);
        } else if entry.route == Route::Written {
            self.wrote_unsynced(&entry.log, taken);
        } else if is_unsynced {
            let mut unsynced = self.unsynced.borrow_mut();
            unsynced.journaled(slot, taken.end, taken.records(), taken.bytes());
        }
        self.consider_write_behind(&entry.log);
        Some((entry.log.log_ref, entry.taken.end))
    }
}

impl<D: Disk> DirectWrite<D> {
    async fn run(self, io: &IoGate) -> Result<(), DiskError> {
        self.file.write(self.chunks, self.position).await?;
        if self.sync {
            io.synced(self.file.sync()).await
        } else {
            Ok(())
        }
    }
}

impl<D: Disk> PendingLogs for Logs<D> {
    fn facts(&self, slot: u32) -> LogFacts {
        let log = self.get(slot).expect("a planned log is open");
        let state = log.state.borrow();
        let ready = state.direct_ready();
        LogFacts {
            unsynced_class: state.unsynced_class() && ready,
            direct_ready: ready && !state.unsynced_class(),
            partial_block: state.cursor.partial != Partial::No,
            unwritten_bytes: state.unwritten_bytes(),
        }
    }

    fn prefix_bytes(&self, slot: u32, budget: usize) -> usize {
        self.get(slot)
            .map_or(0, |log| log.state.borrow().tail.staged_prefix_bytes(budget))
    }
}

/// The records of the entry and those of a commit under way, which are not in the schedule yet.
fn records_with<D: Disk>(state: &LogState<D>, entry: &Entry<D>) -> u64 {
    let under_way = entry.taken.base.0.saturating_sub(state.durable_end.0);
    entry.taken.records().saturating_add(under_way.unsigned_abs())
}

/// The logs that the journal file of `generation` does not name yet.
fn unnamed<D: Disk>(logs: &[Rc<Log<D>>], generation: u64) -> impl Iterator<Item = &Rc<Log<D>>> {
    logs.iter()
        .filter(move |log| log.state.borrow().introduced != generation)
}

fn names_bytes<D: Disk>(logs: &[Rc<Log<D>>], generation: u64) -> usize {
    unnamed(logs, generation)
        .map(|log| FRAME_HEADER_BYTES + 20 + log.name.len())
        .sum()
}

fn frame<D: Disk>(log: &Log<D>, kind: FrameKind) -> FrameHeader {
    FrameHeader {
        kind,
        is_loose: log.state.borrow().is_unsynced,
        auxiliary: 0,
        incarnation: Incarnation(u64::from(log.log_ref.slot)),
        base_offset: Offset::ZERO,
        end_offset: Offset::ZERO,
        segment: Offset::ZERO,
        position: 0,
        payload_bytes: 0,
    }
}

fn encode_entry<D: Disk>(encoder: &mut CommitEncoder<D>, entry: &Entry<D>) {
    let taken = &entry.taken;
    let mut header = frame(&entry.log, FrameKind::Append);
    header.base_offset = taken.base;
    header.end_offset = taken.end;
    header.segment = taken.segment;
    header.payload_bytes = payload_bytes(entry) as u32;
    let state = entry.log.state.borrow();
    match &entry.direct {
        None => {
            let from = taken.from - entry.lead;
            header.position = from;
            header.auxiliary = entry.lead;
            encoder.frame(&header, |put| state.gather(taken.segment, from, taken.to, put));
        }
        Some(direct) => {
            let (from, to) = entry.extent;
            header.kind = FrameKind::Extent;
            header.position = from;
            header.auxiliary = to - from;
            encoder.frame(&header, |put| {
                put(&direct.crc.to_le_bytes());
                // What lies behind the last whole block is the cursor's residue since the write was issued.
                state.gather(taken.segment, to, taken.to, put);
            });
        }
    }
}

fn payload_bytes<D: Disk>(entry: &Entry<D>) -> usize {
    let taken = &entry.taken;
    match entry.route {
        Route::Journal => (taken.to - taken.from + entry.lead) as usize,
        Route::Direct => 4 + (taken.to - entry.extent.1) as usize,
        Route::Written => 0,
    }
}

fn frames_bytes<D: Disk>(entries: &[Entry<D>], controls: &[ControlFrame]) -> usize {
    let journaled = entries.iter().filter(|entry| entry.route != Route::Written);
    let appends: usize = journaled
        .map(|entry| FRAME_HEADER_BYTES + payload_bytes(entry))
        .sum();
    appends + controls.len() * FRAME_HEADER_BYTES
}

/// The whole commit on disk, bytes.
pub(super) const fn commit_bytes(frames_bytes: usize) -> u64 {
    let bytes = align_up((HEADER_BYTES + frames_bytes) as u64);
    debug_assert!(align_down(bytes) == bytes && bytes >= BLOCK_BYTES as u64);
    bytes
}
