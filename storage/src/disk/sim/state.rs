//! The state that all shards of one simulated disk share: the tree, operations in flight, counters, the crash point.
//! Operations are data ([`Effect`]), so that a crash can decide for each one in flight whether it still happened.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::task::Waker;
use std::time::Duration;

use super::super::{BLOCK_BYTES, DirEntry, OpenMode, Space};
use super::content::Block;
use super::faults::{DiskOp, FaultEffect, SimDiskConfig, SimFault, TraceEntry, TracePhase};
use super::names::{Body, Ino, Tree};
use crate::sim_rng::SimRng;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A disk of this size or more never fills, bytes: it is the default.
pub(super) const CAPACITY_UNLIMITED: u64 = 1 << 40;

#[derive(Clone)]
pub(super) struct State {
    pub(super) config: SimDiskConfig,
    tree: Tree,
    latencies: SimRng,
    faults_rng: SimRng,
    crashes: SimRng,
    /// Stamped on every completed change, so that a sync covers what completed before it was issued.
    sequence: u64,
    in_flight: BTreeMap<u64, Effect>,
    ticket_next: u64,
    pub(super) faults: Vec<SimFault>,
    pub(super) mutations: u64,
    pub(super) crash_at: Option<u64>,
    pub(super) frozen: bool,
    pub(super) crash_waiters: Vec<Waker>,
    pub(super) trace: Option<Vec<TraceEntry>>,
    pub(super) incarnation: u64,
    /// Operations whose future was dropped before its end while their process lived.
    pub(super) abandoned: u64,
}

/// A change on its way to the disk.
#[derive(Clone)]
pub(super) enum Effect {
    /// Reads, queries: nothing for a crash to decide.
    None,
    Open {
        path: PathBuf,
        mode: OpenMode,
    },
    CreateDir(PathBuf),
    RemoveFile(PathBuf),
    RemoveDir(PathBuf),
    Rename {
        from: PathBuf,
        to: PathBuf,
    },
    SyncDir {
        dir: PathBuf,
        upto: u64,
    },
    SyncAll {
        dir: PathBuf,
        upto: u64,
    },
    Write {
        ino: Ino,
        block: u64,
        blocks: Vec<Block>,
    },
    Allocate {
        ino: Ino,
        size: u64,
    },
    Truncate {
        ino: Ino,
        size: u64,
    },
    Sync {
        ino: Ino,
        upto: u64,
    },
}

impl Effect {
    /// Whether both write the same blocks of a file.
    fn overlaps(&self, other: &Self) -> bool {
        let range = |effect: &Self| match effect {
            Self::Write { ino, block, blocks } => Some((*ino, *block, *block + blocks.len() as u64)),
            _ => None,
        };
        match (range(self), range(other)) {
            (Some((file, from, to)), Some((other, begin, end))) => file == other && from < end && begin < to,
            _ => false,
        }
    }
}

/// An operation that was accepted: how long it takes and whether it will fail.
pub(super) struct Ticket {
    pub(super) id: u64,
    pub(super) latency: Duration,
    pub(super) fault: Option<io::ErrorKind>,
}

impl State {
    pub(super) fn new(config: SimDiskConfig) -> Self {
        Self {
            tree: Tree::new(),
            latencies: SimRng::new(config.seed, "disk latency"),
            faults_rng: SimRng::new(config.seed, "disk faults"),
            crashes: SimRng::new(config.seed, "disk crashes"),
            config,
            sequence: 0,
            in_flight: BTreeMap::new(),
            ticket_next: 0,
            faults: Vec::new(),
            mutations: 0,
            crash_at: None,
            frozen: false,
            crash_waiters: Vec::new(),
            trace: None,
            incarnation: 0,
            abandoned: 0,
        }
    }

    /// The same disk at this moment with another future.
    pub(super) fn fork(&self, seed: u64) -> Self {
        let mut fork = self.clone();
        fork.config.seed = seed;
        fork.latencies = SimRng::new(seed, "disk latency");
        fork.faults_rng = SimRng::new(seed, "disk faults");
        fork.crashes = SimRng::new(seed, "disk crashes");
        fork.crash_waiters = Vec::new();
        fork
    }

    /// Completed changes so far: what a sync issued now covers.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Accepts an operation; `None` once the disk is frozen.
    pub(super) fn begin(&mut self, op: DiskOp, path: &Path, mut effect: Effect) -> Option<Ticket> {
        if self.frozen {
            return None;
        }
        let mut latency = self.config.latency.draw(op, &mut self.latencies);
        let mut fault = None;
        let matched = self.faults.iter_mut().find_map(|rule| rule.apply(op, path));
        match matched {
            Some(FaultEffect::Error(kind)) => fault = Some(kind),
            Some(FaultEffect::Delay(delay)) => latency += delay,
            Some(FaultEffect::Skip) => effect = Effect::None,
            None => {}
        }
        if op == DiskOp::Read && self.faults_rng.chance(self.config.read_error_ppm) {
            fault = Some(io::ErrorKind::Other);
        }
        let id = self.ticket_next;
        self.ticket_next += 1;
        let meets = self.in_flight.values().any(|other| effect.overlaps(other));
        assert!(
            !meets,
            "{op:?} of {}: another write to the same blocks is under way, and which of them comes last is not known",
            path.display()
        );
        self.in_flight.insert(id, effect);
        if op.is_mutation() {
            self.mutations += 1;
            if self.crash_at == Some(self.mutations) {
                self.freeze();
            }
        }
        Some(Ticket { id, latency, fault })
    }

    /// From here on nothing completes.
    pub(super) fn freeze(&mut self) {
        self.frozen = true;
        for waker in self.crash_waiters.drain(..) {
            waker.wake();
        }
    }

    /// Ends an operation: its effect takes place, or fails as the ticket says.
    pub(super) fn complete(&mut self, ticket: &Ticket, now_ms: i64) -> io::Result<Option<Ino>> {
        let effect = self.in_flight.remove(&ticket.id).unwrap_or(Effect::None);
        let Some(kind) = ticket.fault else {
            return self.apply(effect, now_ms);
        };
        match effect {
            Effect::Write {
                ino,
                block,
                mut blocks,
            } => {
                blocks.truncate(self.faults_rng.index(blocks.len() + 1));
                self.write(ino, block, &blocks, now_ms).ok();
            }
            Effect::Sync { ino, upto } => {
                let rng = &mut self.faults_rng;
                if let Ok(file) = self.tree.file(ino) {
                    file.sync_failed(upto, rng);
                }
            }
            _ => {}
        }
        Err(io::Error::new(kind, "simulated fault"))
    }

    fn apply(&mut self, effect: Effect, now_ms: i64) -> io::Result<Option<Ino>> {
        self.sequence += 1;
        let sequence = self.sequence;
        let honest = !self.config.lie_about_sync;
        match effect {
            Effect::None => {}
            Effect::Open { path, mode } => return self.open(&path, mode, now_ms).map(Some),
            Effect::CreateDir(path) => self.tree.create_dirs(&path, sequence, now_ms)?,
            Effect::RemoveFile(path) => self.tree.remove_file(&path, sequence)?,
            Effect::RemoveDir(path) => self.tree.remove_dir_all(&path, sequence)?,
            Effect::Rename { from, to } => self.tree.rename(&from, &to, sequence)?,
            Effect::SyncDir { dir, upto } => {
                let ino = self.tree.lookup_dir(&dir)?;
                if honest {
                    self.tree.sync_dir(ino, upto);
                }
            }
            Effect::SyncAll { dir, upto } => {
                let within = self.tree.lookup(&dir)?;
                if honest {
                    let within = self.config.file_system_per_dir.then_some(within);
                    self.tree.sync_all(upto, within);
                }
            }
            Effect::Write { ino, block, blocks } => self.write(ino, block, &blocks, now_ms)?,
            Effect::Allocate { ino, size } => {
                let free = self.write_budget_blocks();
                let file = self.tree.file(ino)?;
                if file.blocks_to_allocate(size) > free {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                file.allocate(sequence, size);
                self.tree.touch(ino, now_ms);
            }
            Effect::Truncate { ino, size } => {
                self.tree.file(ino)?.truncate(sequence, size);
                self.tree.touch(ino, now_ms);
            }
            Effect::Sync { ino, upto } => {
                let file = self.tree.file(ino)?;
                if honest {
                    file.sync(upto);
                }
            }
        }
        Ok(None)
    }

    fn open(&mut self, path: &Path, mode: OpenMode, now_ms: i64) -> io::Result<Ino> {
        let sequence = self.sequence;
        let found = match self.tree.lookup(path) {
            Ok(ino) => Some(ino),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let ino = match (mode, found) {
            (OpenMode::CreateNew, Some(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (OpenMode::CreateNew | OpenMode::CreateOrTruncate, None) => {
                self.tree.create_file(path, sequence, now_ms)?
            }
            (OpenMode::Read | OpenMode::ReadWrite | OpenMode::ReadWriteDurable, None) => {
                return Err(io::ErrorKind::NotFound.into());
            }
            (OpenMode::CreateOrTruncate, Some(ino)) => {
                self.tree.file(ino)?.truncate(sequence, 0);
                self.tree.touch(ino, now_ms);
                ino
            }
            (OpenMode::Read | OpenMode::ReadWrite | OpenMode::ReadWriteDurable, Some(ino)) => ino,
        };
        self.tree.file(ino)?;
        self.tree.opened(ino);
        Ok(ino)
    }

    /// Writes the blocks that fit; the rest is the error of a full disk.
    fn write(&mut self, ino: Ino, block: u64, blocks: &[Block], now_ms: i64) -> io::Result<()> {
        let (free, sequence) = (self.write_budget_blocks(), self.sequence);
        let file = self.tree.file(ino)?;
        let fit = file.blocks_that_fit(block, blocks.len(), free);
        file.write(sequence, block, blocks.get(..fit).unwrap_or(blocks));
        self.tree.touch(ino, now_ms);
        if fit < blocks.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    pub(super) fn read(&mut self, ino: Ino, position: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = self.tree.file(ino)?.read(position, len);
        if !bytes.is_empty() && self.faults_rng.chance(self.config.read_flip_ppm) {
            let index = self.faults_rng.index(bytes.len());
            bytes[index] ^= 1 << self.faults_rng.index(8);
        }
        Ok(bytes)
    }

    /// The whole of a file, without faults.
    pub(super) fn peek(&mut self, ino: Ino) -> io::Result<Vec<u8>> {
        let file = self.tree.file(ino)?;
        Ok(file.read(0, usize::MAX))
    }

    pub(super) fn size(&mut self, ino: Ino) -> io::Result<u64> {
        Ok(self.tree.file(ino)?.size())
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let ino = self.tree.lookup(dir)?;
        let entries = self.tree.entries(ino)?;
        Ok(entries
            .map(|(name, inode)| DirEntry {
                name: name.clone(),
                is_dir: matches!(inode.body, Body::Dir(_)),
                size: match &inode.body {
                    Body::File(file) => file.size(),
                    Body::Dir(_) => 0,
                },
                modified_ms: inode.modified_ms,
            })
            .collect())
    }

    pub(super) fn space(&self, dir: &Path) -> io::Result<Space> {
        self.tree.lookup(dir)?;
        Ok(Space {
            total_bytes: self.config.capacity_bytes,
            available_bytes: self.free_blocks() * BLOCK,
        })
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.tree.charged_blocks() * BLOCK
    }

    fn free_blocks(&self) -> u64 {
        (self.config.capacity_bytes / BLOCK).saturating_sub(self.tree.charged_blocks())
    }

    /// Free blocks, without counting them on a disk too large to fill (counting visits every file).
    fn write_budget_blocks(&self) -> u64 {
        if self.config.capacity_bytes >= CAPACITY_UNLIMITED {
            return u64::MAX;
        }
        self.free_blocks()
    }

    pub(super) fn closed(&mut self, ino: Ino) {
        self.tree.closed(ino);
    }

    pub(super) fn lookup(&self, path: &Path) -> io::Result<Ino> {
        self.tree.lookup(path)
    }

    pub(super) fn flip(&mut self, path: &Path, position: u64, mask: u8) -> io::Result<bool> {
        let ino = self.tree.lookup(path)?;
        Ok(self.tree.file(ino)?.flip(position, mask))
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.tree.paths()
    }

    /// The machine lost its power: what was in flight happened or not, what was not synced is lost, torn, reordered.
    pub(super) fn power_loss(&mut self, now_ms: i64) {
        self.settle_in_flight(now_ms);
        let garbage = self.config.garbage_tails;
        self.tree.crash(&mut self.crashes, garbage);
        self.revive();
    }

    /// The process was killed: what was in flight happened or not, what completed stays (yet is no more durable).
    pub(super) fn process_end(&mut self, now_ms: i64) {
        self.settle_in_flight(now_ms);
        self.tree.close_all();
        self.revive();
    }

    fn settle_in_flight(&mut self, now_ms: i64) {
        let mut left: Vec<Effect> = std::mem::take(&mut self.in_flight).into_values().collect();
        while !left.is_empty() {
            let mut effect = left.swap_remove(self.crashes.index(left.len()));
            if let Effect::Write { blocks, .. } = &mut effect {
                let whole = self.crashes.coin();
                let part = self.crashes.index(blocks.len() + 1);
                blocks.truncate(if whole { blocks.len() } else { part });
            }
            if self.crashes.coin() {
                self.apply(effect, now_ms).ok(); // its error has nobody to go to
            }
        }
    }

    fn revive(&mut self) {
        self.frozen = false;
        self.crash_at = None;
        self.mutations = 0;
        self.incarnation += 1;
    }

    pub(super) fn record(&mut self, entry: impl FnOnce() -> TraceEntry) {
        if let Some(trace) = &mut self.trace {
            trace.push(entry());
        }
    }
}

impl TracePhase {
    pub(super) fn of<T>(result: &io::Result<T>) -> Self {
        if result.is_ok() { Self::Done } else { Self::Failed }
    }
}
