//! The journal files of a running shard. Space is handed out front to back ([`Journal::reserve`]); a file that is full
//! waits until all it holds is in the segments, then it is recycled under a new generation. A file is used only after
//! its header of the new generation is durable, and the manifest names it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hashbrown::HashMap;

use super::fill::Fill;
use super::frame::{FileHeader, HEADER_BYTES, first_generation};
use super::manifest::{Manifest, file_name, manifest_path};
use crate::checkpoint::envelope;
use crate::commit::buffers::Chunks;
use crate::disk::{BLOCK_BYTES, Disk, DiskError, DiskFile, OpenMode};
use crate::io_class::gate::IoGate;
use crate::layout::{checkpoint_dir, journal_dir};
use crate::types::Offset;

/// Files that a journal has from the start.
pub(crate) const FILES_MIN: usize = 2;

/// Sizes of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// Bytes of one file; a commit must fit.
    pub file_bytes: u64,
    /// Files a shard may have; beyond that commits wait for one to be recycled.
    pub files_max: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            file_bytes: 32 << 20,
            files_max: 4,
        }
    }
}

/// One journal file in one use.
pub(crate) struct JournalFile<D: Disk> {
    pub(crate) file: D::File,
    /// The same file; what is written through it is durable when the write ends.
    pub(crate) durable: D::File,
    pub(crate) generation: u64,
    path: PathBuf,
    /// Bytes that have blocks.
    allocated: Cell<u64>,
    /// For each log with frames here, how far they reach: segment and position.
    pub(crate) reach: RefCell<HashMap<u32, (Offset, u32), foldhash::fast::FixedState>>,
    /// Commits handed out here whose I/O has not ended.
    pub(crate) in_flight: Cell<u32>,
    /// The last commit handed out here, 0 before the first.
    pub(crate) last_sequence: Cell<u64>,
    /// What of it is still to be written with zeroes.
    pub(super) fill: Fill,
}

impl<D: Disk> JournalFile<D> {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it blocks up to `end`.
    pub(crate) async fn grow_to(&self, end: u64) -> Result<(), DiskError> {
        self.file.allocate(end).await?;
        self.allocated.set(self.allocated.get().max(end));
        Ok(())
    }
}

/// Where a commit goes.
pub(crate) struct Reservation<D: Disk> {
    pub(crate) file: Rc<JournalFile<D>>,
    pub(crate) position: u64,
    pub(crate) sequence: u64,
    pub(crate) durable_sequence: u64,
    /// It has no frames.
    pub(crate) is_empty: bool,
}

impl<D: Disk> Reservation<D> {
    /// Writes the commit, which is durable when this ends: by one operation where one write carries it, since the shard is woken once
    /// more for a sync of its own.
    pub(crate) async fn write(&self, commit: Chunks<D>, io: &IoGate) -> Result<(), DiskError> {
        let file = &self.file;
        if commit.is_one_write() {
            return io.synced(commit.write(&file.durable, self.position)).await;
        }
        commit.write(&file.file, self.position).await?;
        io.synced(file.file.sync()).await
    }
}

/// The journal of one store.
pub(crate) struct Journal<D: Disk> {
    disk: D,
    dir: PathBuf,
    manifest: PathBuf,
    shard: u16,
    run: u64,
    options: JournalOptions,
    pub(super) state: RefCell<State<D>>,
    /// Zeroes are written so many bytes ahead of the commits, at least.
    pub(super) fill_lead: Cell<u64>,
}

pub(super) struct State<D: Disk> {
    /// The file that commits go to, and where the next one begins.
    pub(super) current: Option<(Rc<JournalFile<D>>, u64)>,
    pub(super) ready: VecDeque<Rc<JournalFile<D>>>,
    /// Oldest first.
    pub(super) full: VecDeque<Rc<JournalFile<D>>>,
    files: usize,
    number_next: u64,
    generation_next: u64,
    sequence_next: u64,
    durable_sequence: u64,
    /// Nothing on the disk says that the last commits with frames are durable.
    is_unsealed: bool,
    /// The disk had no space for a file that was not needed yet: none is asked for again.
    forgoes_ahead: bool,
}

impl<D: Disk> Journal<D> {
    /// Prepares the first files of `shard` in the log directory `root`. Files of earlier runs must have been replayed and
    /// removed.
    pub(crate) async fn open(
        disk: &D,
        root: &Path,
        shard: u16,
        run: u64,
        options: JournalOptions,
    ) -> Result<Self, DiskError> {
        let dir = journal_dir(root, shard);
        create_dir_durably(disk, root, &dir).await?;
        create_dir_durably(disk, root, &checkpoint_dir(root)).await?;
        let journal = Self {
            disk: disk.clone(),
            dir,
            manifest: manifest_path(root, shard),
            shard,
            run,
            options,
            state: RefCell::new(State {
                current: None,
                ready: VecDeque::new(),
                full: VecDeque::new(),
                files: 0,
                number_next: 0,
                generation_next: first_generation(run),
                sequence_next: 1,
                durable_sequence: 0,
                is_unsealed: false,
                forgoes_ahead: false,
            }),
            fill_lead: Cell::new(0),
        };
        // Two, so that commits go on when the disk is full later: one in use and one in reserve.
        for _ in 0..FILES_MIN.min(options.files_max) {
            journal.create_file().await?;
        }
        Ok(journal)
    }

    /// Takes `bytes` (whole blocks) of the journal for the next commit. `None`: no file has room; prepare one first.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation<D>> {
        debug_assert_eq!(bytes % BLOCK_BYTES as u64, 0);
        let mut state = self.state.borrow_mut();
        if !state
            .current
            .as_ref()
            .is_some_and(|(_, position)| self.fits(*position, bytes))
        {
            let next = state.ready.pop_front()?;
            if let Some((file, end)) = state.current.replace((next, BLOCK_BYTES as u64)) {
                file.fill.is_passed_up_to(end);
                state.full.push_back(file);
            }
        }
        let (sequence, durable_sequence) = (state.sequence_next, state.durable_sequence);
        state.sequence_next += 1;
        let (file, position) = state.current.as_mut()?;
        let at = *position;
        *position += bytes;
        assert!(
            !file.fill.is_met_by(*position),
            "a commit waits for the zeroes that are on their way to its place"
        );
        file.in_flight.set(file.in_flight.get() + 1);
        file.last_sequence.set(sequence);
        Some(Reservation {
            file: Rc::clone(file),
            position: at,
            sequence,
            durable_sequence,
            is_empty: false,
        })
    }

    /// The generation that a commit of `bytes` would go to, if there is room.
    pub(crate) fn generation_for(&self, bytes: u64) -> Option<u64> {
        let state = self.state.borrow();
        match &state.current {
            Some((file, position)) if self.fits(*position, bytes) => Some(file.generation),
            _ => state.ready.front().map(|file| file.generation),
        }
    }

    /// The generation after the current file's.
    pub(crate) fn next_generation(&self) -> Option<u64> {
        self.state.borrow().ready.front().map(|file| file.generation)
    }

    /// The commit and all before it are durable.
    pub(crate) fn mark_durable(&self, reservation: &Reservation<D>) {
        let sequence = reservation.sequence;
        let mut state = self.state.borrow_mut();
        assert!(
            state.durable_sequence < sequence,
            "commits become durable in order"
        );
        state.durable_sequence = sequence;
        let records_all = reservation.durable_sequence + 1 == sequence;
        state.is_unsealed = !(reservation.is_empty && records_all);
    }

    /// Whether commits with frames are durable that nothing on the disk records as such.
    pub(crate) fn is_unsealed(&self) -> bool {
        self.state.borrow().is_unsealed
    }

    /// Whether another file may be created.
    pub(crate) fn may_grow(&self) -> bool {
        self.state.borrow().files < self.options.files_max
    }

    /// Whether the next file should be created now, so that no commit waits for it later: the last one in reserve comes into use soon,
    /// and none is about to be recycled.
    pub(crate) fn wants_file_ahead(&self) -> bool {
        let state = self.state.borrow();
        let is_half_full = |(_, position): &(_, u64)| *position > self.options.file_bytes / 2;
        state.ready.len() == 1
            && state.full.is_empty()
            && state.files < self.options.files_max
            && !state.forgoes_ahead
            && state.current.as_ref().is_some_and(is_half_full)
    }

    /// The disk has no space for a file ahead.
    pub(crate) fn forgo_ahead(&self) {
        self.state.borrow_mut().forgoes_ahead = true;
    }

    /// Bytes of one file.
    pub(crate) const fn file_bytes(&self) -> u64 {
        self.options.file_bytes
    }

    /// Whether the next switch of files finds one ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.state.borrow().ready.is_empty()
    }

    /// The file that a commit of up to `bytes` goes to and the end that it lacks blocks for, if it does.
    pub(crate) fn short_for(&self, bytes: u64) -> Option<(Rc<JournalFile<D>>, u64)> {
        let state = self.state.borrow();
        let (file, position) = match &state.current {
            Some((file, position)) if self.fits(*position, bytes) => (file, *position),
            _ => (state.ready.front()?, BLOCK_BYTES as u64),
        };
        let end = position + bytes;
        (end > file.allocated.get()).then(|| (Rc::clone(file), end))
    }

    /// Whether a commit of `bytes` fits the file in use.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let state = self.state.borrow();
        let current = state.current.as_ref();
        current.is_some_and(|(_, position)| position + bytes <= self.options.file_bytes)
    }

    /// Creates a file, allocates it, makes its header durable, notes it in the manifest and offers it.
    pub(crate) async fn create_file(&self) -> Result<(), DiskError> {
        let (number, generation) = {
            let mut state = self.state.borrow_mut();
            state.files += 1;
            state.number_next += 1;
            state.generation_next += 1;
            (state.number_next, state.generation_next - 1)
        };
        let path = self.dir.join(file_name(number));
        let prepared = self.prepare_file(&path, number, generation).await;
        if prepared.as_ref().is_err_and(DiskError::is_refused_for_space) {
            // The number is used again, for the manifest knows no gaps, and what was written is given back. After any other error
            // the manifest may name the file.
            self.take_back_number();
            self.disk.remove_file(&path).await.ok();
        }
        let files = prepared?;
        self.offer(
            files,
            path,
            generation,
            Fill::of_new_file(self.options.file_bytes),
        );
        Ok(())
    }

    fn take_back_number(&self) {
        let mut state = self.state.borrow_mut();
        state.files -= 1;
        state.number_next -= 1;
    }

    /// Returns the file, and once more for durable writes.
    async fn prepare_file(
        &self,
        path: &Path,
        number: u64,
        generation: u64,
    ) -> Result<(D::File, D::File), DiskError> {
        let file = self.disk.open(path, OpenMode::CreateOrTruncate).await?;
        file.allocate(self.options.file_bytes).await?;
        self.write_header(&file, generation).await?;
        let durable = self.disk.open(path, OpenMode::ReadWriteDurable).await?;
        self.disk.sync_dir(&self.dir).await?;
        self.write_manifest(number).await?;
        Ok((file, durable))
    }

    /// Files 1 to `files` are there to stay; 0: none is needed any more, since the shard's checkpoint covers everything.
    pub(crate) async fn write_manifest(&self, files: u64) -> Result<(), DiskError> {
        let manifest = Manifest {
            run: self.run,
            files,
            file_bytes: self.options.file_bytes,
        };
        envelope::save(&self.disk, &self.manifest, &manifest).await
    }

    /// The oldest full file whose commits have all ended. Every log's bytes in it must be in the segments, synced, and
    /// covered by a checkpoint before [`Self::recycle`].
    pub(crate) fn oldest_full(&self) -> Option<Rc<JournalFile<D>>> {
        let state = self.state.borrow();
        state
            .full
            .front()
            .filter(|file| file.in_flight.get() == 0)
            .cloned()
    }

    /// Puts the oldest full file to use again under a new generation.
    pub(crate) async fn recycle(&self, oldest: Rc<JournalFile<D>>) -> Result<(), DiskError> {
        let generation = {
            let mut state = self.state.borrow_mut();
            let front = state
                .full
                .pop_front()
                .expect("the oldest full file is still there");
            assert!(Rc::ptr_eq(&front, &oldest), "files are recycled oldest first");
            state.generation_next += 1;
            state.generation_next - 1
        };
        // Nobody but the caller holds it: reservations end before a file counts as recyclable.
        let Some(old) = Rc::into_inner(oldest) else {
            unreachable!("a recyclable journal file has one owner");
        };
        self.write_header(&old.file, generation).await?;
        self.offer((old.file, old.durable), old.path, generation, old.fill);
        Ok(())
    }

    /// A commit longer than a file gets a fresh one, which it extends.
    pub(super) const fn fits(&self, position: u64, bytes: u64) -> bool {
        position + bytes <= self.options.file_bytes || position == BLOCK_BYTES as u64
    }

    /// The last commit known durable, 0 before the first.
    pub(crate) fn durable_sequence(&self) -> u64 {
        self.state.borrow().durable_sequence
    }

    /// Takes all files out, oldest first.
    pub(crate) fn take_files(&self) -> Vec<Rc<JournalFile<D>>> {
        let mut state = self.state.borrow_mut();
        let mut files: Vec<_> = state.full.drain(..).collect();
        files.extend(state.current.take().map(|(file, _)| file));
        files.extend(state.ready.drain(..));
        files
    }

    pub(crate) const fn disk(&self) -> &D {
        &self.disk
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn offer(&self, (file, durable): (D::File, D::File), path: PathBuf, generation: u64, fill: Fill) {
        self.state.borrow_mut().ready.push_back(Rc::new(JournalFile {
            file,
            durable,
            generation,
            path,
            allocated: Cell::new(self.options.file_bytes),
            reach: RefCell::default(),
            in_flight: Cell::new(0),
            last_sequence: Cell::new(0),
            fill,
        }));
    }

    async fn write_header(&self, file: &D::File, generation: u64) -> Result<(), DiskError> {
        let header = FileHeader {
            shard: self.shard,
            generation,
        };
        let mut block = self.disk.alloc(BLOCK_BYTES);
        block.fill(0);
        block[..HEADER_BYTES].copy_from_slice(&header.encode());
        file.write_at(Rc::new(block), 0).await?;
        file.sync().await
    }
}

/// Creates a directory within `root`, and makes the names on the way durable (a journal in a directory that a power loss
/// takes back would be worth nothing).
pub(crate) async fn create_dir_durably<D: Disk>(disk: &D, root: &Path, dir: &Path) -> Result<(), DiskError> {
    disk.create_dir(dir).await?;
    for parent in dir.ancestors().skip(1) {
        disk.sync_dir(parent).await?;
        if parent == root {
            break;
        }
    }
    Ok(())
}
