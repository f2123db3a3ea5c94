//! The simulated disk: in memory, seeded, shared by the shards of one simulated machine. Writes that were not synced
//! are lost, torn per 512-byte sector and reordered by a power loss; names are durable only after their directory was
//! synced; reads fail, bits flip, the disk fills, operations dawdle. Every operation completes at a later virtual time,
//! so a seed explores an interleaving.
//!
//! ```
//! use storage::disk::sim::{SimDisk, SimDiskConfig};
//! use storage::disk::{Disk, DiskFile, OpenMode};
//! use storage::sim_executor::SimExecutor;
//!
//! let executor = SimExecutor::new(1);
//! let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
//! executor.block_on(async {
//!     disk.create_dir("/data".as_ref()).await?;
//!     let file = disk.open("/data/a".as_ref(), OpenMode::CreateNew).await?;
//!     let buf = std::rc::Rc::new(disk.alloc(4096));
//!     file.write_at(buf, 0).await?;
//!     file.sync().await?;
//!     disk.sync_dir("/data".as_ref()).await?;
//!     disk.sync_dir("/".as_ref()).await
//! }).unwrap();
//! drop(executor); // the process is gone
//! let executor = SimExecutor::new(2);
//! let disk = disk.restart(&executor.handle()); // and the power was lost
//! assert_eq!(disk.contents("/data/a").unwrap().len(), 4096);
//! ```

mod content;
mod faults;
mod names;
mod state;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;

pub use self::content::SECTOR_BYTES;
pub use self::faults::{DiskOp, SimDiskConfig, SimFault, SimLatency, TraceEntry, TracePhase};
use self::names::Ino;
use self::state::{Effect, State, Ticket};
use super::{BLOCK_BYTES, DirEntry, Disk, DiskBuf, DiskError, DiskFile, OpenMode, STALE, Space, align_up};
use crate::sim_executor::SimHandle;

/// One process's view of a simulated disk. Clones, and the views made by [`SimDisk::for_process`], share the disk; a
/// view from before a restart is dead: its operations never end.
#[derive(Clone)]
pub struct SimDisk {
    state: Rc<RefCell<State>>,
    handle: SimHandle,
    incarnation: u64,
}

/// An open file of a [`SimDisk`].
pub struct SimFile {
    disk: SimDisk,
    ino: Ino,
    path: PathBuf,
    writable: bool,
    /// A write is synced before it ends.
    is_durable: bool,
}

/// A buffer of a [`SimDisk`].
pub struct SimBuf(Vec<u8>);

impl SimDisk {
    /// An empty disk: nothing but the root directory.
    #[must_use]
    pub fn new(handle: &SimHandle, config: SimDiskConfig) -> Self {
        Self {
            state: Rc::new(RefCell::new(State::new(config))),
            handle: handle.clone(),
            incarnation: 0,
        }
    }

    /// The same disk for another process (or shard) on the same machine.
    #[must_use]
    pub fn for_process(&self, handle: &SimHandle) -> Self {
        Self {
            state: Rc::clone(&self.state),
            handle: handle.clone(),
            incarnation: self.state.borrow().incarnation,
        }
    }

    /// The disk as a new process finds it after a power loss. Views from before are dead. The crash point is cleared
    /// and the mutation count starts at zero; fault rules stay.
    #[must_use]
    pub fn restart(&self, handle: &SimHandle) -> Self {
        let now_ms = self.now_ms();
        self.state.borrow_mut().power_loss(now_ms);
        self.for_process(handle)
    }

    /// The disk as a new process finds it after a kill -9: what completed is there, though no more durable than before;
    /// what was in flight happened or not.
    #[must_use]
    pub fn restart_after_kill(&self, handle: &SimHandle) -> Self {
        let now_ms = self.now_ms();
        self.state.borrow_mut().process_end(now_ms);
        self.for_process(handle)
    }

    /// An independent copy of the disk at this moment, files open and operations in flight included, whose crash
    /// outcomes follow `seed`: many outcomes of one moment can be looked at.
    #[must_use]
    pub fn fork(&self, handle: &SimHandle, seed: u64) -> Self {
        Self {
            state: Rc::new(RefCell::new(self.state.borrow().fork(seed))),
            handle: handle.clone(),
            incarnation: self.incarnation,
        }
    }

    /// Freezes the disk when the `count`-th mutation from now is handed to it (1 is the next one): that one is in
    /// flight, and nothing completes any more. Mutations are creates, writes, syncs, renames, removes and size changes.
    pub fn crash_after(&self, count: u64) {
        let mut state = self.state.borrow_mut();
        state.crash_at = Some(state.mutations + count.max(1));
    }

    /// Freezes the disk now.
    pub fn crash_now(&self) {
        self.state.borrow_mut().freeze();
    }

    /// Whether the disk is frozen.
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        self.state.borrow().frozen
    }

    /// Ends when the disk freezes: `or(workload, disk.crashed())` runs up to the crash.
    pub fn crashed(&self) -> impl Future<Output = ()> + use<> {
        let state = Rc::clone(&self.state);
        poll_fn(move |cx| {
            let mut state = state.borrow_mut();
            if state.frozen {
                return Poll::Ready(());
            }
            if !state
                .crash_waiters
                .iter()
                .any(|waker| waker.will_wake(cx.waker()))
            {
                state.crash_waiters.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }

    /// Mutations handed to the disk since it was made or restarted: the number of crash points of a workload.
    #[must_use]
    pub fn mutations(&self) -> u64 {
        self.state.borrow().mutations
    }

    /// Adds a fault rule.
    pub fn add_fault(&self, fault: SimFault) {
        self.state.borrow_mut().faults.push(fault);
    }

    /// Removes all fault rules.
    pub fn clear_faults(&self) {
        self.state.borrow_mut().faults.clear();
    }

    /// Changes the configuration of the running disk (its seed excepted, which has no effect any more).
    pub fn configure(&self, change: impl FnOnce(&mut SimDiskConfig)) {
        change(&mut self.state.borrow_mut().config);
    }

    /// Flips the bits of `mask` in the byte at `position` of a file, on the disk itself; false when the file ends
    /// before it.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn flip_bits(&self, path: impl AsRef<Path>, position: u64, mask: u8) -> Result<bool, DiskError> {
        let path = path.as_ref();
        let flipped = self.state.borrow_mut().flip(path, position, mask);
        flipped.map_err(|error| DiskError::new("flip", path, error))
    }

    /// The whole of a file as its process would read it, without waiting and without faults: for checkers.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn contents(&self, path: impl AsRef<Path>) -> Result<Vec<u8>, DiskError> {
        let path = path.as_ref();
        let mut state = self.state.borrow_mut();
        let read = state.lookup(path).and_then(|ino| state.peek(ino));
        read.map_err(|error| DiskError::new("read", path, error))
    }

    /// Every file and directory, in order: for checkers.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state.borrow().paths()
    }

    /// Bytes that files occupy, preallocated ones included.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.state.borrow().used_bytes()
    }

    /// Operations whose future was dropped before its end while the process lived: a bug of the caller (glommio loses
    /// such writes, trap D4). Checkers assert that it is zero.
    #[must_use]
    pub fn abandoned_operations(&self) -> u64 {
        self.state.borrow().abandoned
    }

    /// Starts recording every operation.
    pub fn record_trace(&self) {
        self.state.borrow_mut().trace.get_or_insert_default();
    }

    /// The operations recorded since the last call.
    #[must_use]
    pub fn take_trace(&self) -> Vec<TraceEntry> {
        let mut state = self.state.borrow_mut();
        state.trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn now_ms(&self) -> i64 {
        let elapsed_ms = i64::try_from(self.handle.now_ns() / 1_000_000).unwrap_or(i64::MAX);
        self.state.borrow().config.epoch_ms.saturating_add(elapsed_ms)
    }

    fn is_dead(&self) -> bool {
        let state = self.state.borrow();
        state.frozen || state.incarnation != self.incarnation || !self.handle.alive()
    }

    /// Takes an operation through its life: accepted, in flight for its latency, completed. On a frozen disk or in a
    /// dead process it never ends.
    async fn run<T>(
        &self,
        call: Call<'_>,
        effect: Effect,
        finish: impl FnOnce(&mut State, Option<Ino>) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        if self.is_dead() {
            return pending().await;
        }
        self.record(&call, TracePhase::Issued);
        let ticket = self.state.borrow_mut().begin(call.op, call.path, effect);
        let Some(ticket) = ticket else {
            return pending().await;
        };
        let mut guard = InFlight {
            disk: self,
            ticket,
            ended: false,
        };
        self.handle.sleep(guard.ticket.latency).await;
        if self.is_dead() {
            return pending().await;
        }
        guard.ended = true;
        let now_ms = self.now_ms();
        let result = {
            let mut state = self.state.borrow_mut();
            let completed = state.complete(&guard.ticket, now_ms);
            completed.and_then(|ino| finish(&mut state, ino))
        };
        self.record(&call, TracePhase::of(&result));
        result.map_err(|error| DiskError::new(call.op.name(), call.path, error))
    }

    fn record(&self, call: &Call<'_>, phase: TracePhase) {
        let at_ns = self.handle.now_ns();
        self.state.borrow_mut().record(|| TraceEntry {
            at_ns,
            op: call.op,
            path: call.path.to_owned(),
            position: call.position,
            len: call.len,
            phase,
        });
    }

    async fn run_effect(&self, op: DiskOp, path: &Path, effect: Effect) -> Result<(), DiskError> {
        self.run(Call::on(op, path), effect, |_, _| Ok(())).await
    }

    fn sequence(&self) -> u64 {
        self.state.borrow().sequence()
    }
}

/// What an operation says about itself.
#[derive(Clone, Copy)]
struct Call<'a> {
    op: DiskOp,
    path: &'a Path,
    position: u64,
    len: usize,
}

impl<'a> Call<'a> {
    fn on(op: DiskOp, path: &'a Path) -> Self {
        Self {
            op,
            path,
            position: 0,
            len: 0,
        }
    }

    fn at(op: DiskOp, path: &'a Path, position: u64, len: usize) -> Self {
        Self {
            op,
            path,
            position,
            len,
        }
    }
}

/// Sees a future that is dropped before its end. Its effect stays in flight for the next crash to decide.
struct InFlight<'a> {
    disk: &'a SimDisk,
    ticket: Ticket,
    ended: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.ended && !self.disk.is_dead() {
            self.disk.state.borrow_mut().abandoned += 1;
        }
    }
}

impl Disk for SimDisk {
    type File = SimFile;
    type Buf = SimBuf;

    fn keeps_unwritten(&self) -> bool {
        true
    }

    fn alloc(&self, len: usize) -> SimBuf {
        SimBuf(vec![STALE; round_up(len.max(1))])
    }

    async fn open(&self, path: &Path, mode: OpenMode) -> Result<SimFile, DiskError> {
        let op = match mode {
            OpenMode::Read | OpenMode::ReadWrite | OpenMode::ReadWriteDurable => DiskOp::Open,
            OpenMode::CreateNew | OpenMode::CreateOrTruncate => DiskOp::Create,
        };
        let effect = Effect::Open {
            path: path.to_owned(),
            mode,
        };
        let opened = |_: &mut State, ino: Option<Ino>| ino.ok_or_else(|| io::ErrorKind::NotFound.into());
        let ino = self.run(Call::on(op, path), effect, opened).await?;
        Ok(SimFile {
            disk: self.clone(),
            ino,
            path: path.to_owned(),
            writable: mode != OpenMode::Read,
            is_durable: mode == OpenMode::ReadWriteDurable,
        })
    }

    async fn list(&self, dir: &Path) -> Result<Vec<DirEntry>, DiskError> {
        let call = Call::on(DiskOp::List, dir);
        self.run(call, Effect::None, |state, _| state.list(dir)).await
    }

    async fn create_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let effect = Effect::CreateDir(dir.to_owned());
        self.run_effect(DiskOp::CreateDir, dir, effect).await
    }

    async fn remove_file(&self, path: &Path) -> Result<(), DiskError> {
        let effect = Effect::RemoveFile(path.to_owned());
        self.run_effect(DiskOp::RemoveFile, path, effect).await
    }

    async fn remove_dir_all(&self, dir: &Path) -> Result<(), DiskError> {
        let effect = Effect::RemoveDir(dir.to_owned());
        self.run_effect(DiskOp::RemoveDir, dir, effect).await
    }

    async fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        let effect = Effect::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        };
        self.run_effect(DiskOp::Rename, from, effect).await
    }

    async fn sync_dir(&self, dir: &Path) -> Result<(), DiskError> {
        let upto = self.sequence();
        let effect = Effect::SyncDir {
            dir: dir.to_owned(),
            upto,
        };
        self.run_effect(DiskOp::SyncDir, dir, effect).await
    }

    async fn sync_filesystem(&self, dir: &Path) -> Result<(), DiskError> {
        let upto = self.sequence();
        let effect = Effect::SyncAll {
            dir: dir.to_owned(),
            upto,
        };
        self.run_effect(DiskOp::SyncFilesystem, dir, effect).await
    }

    async fn space(&self, dir: &Path) -> Result<Space, DiskError> {
        let call = Call::on(DiskOp::Space, dir);
        self.run(call, Effect::None, |state, _| state.space(dir)).await
    }
}

impl SimFile {
    /// What the real disk refuses with EINVAL or EBADF.
    fn check_write(&self, op: DiskOp, position: u64, len: usize) -> Result<(), DiskError> {
        let refuse = |kind: io::ErrorKind, reason: &str| {
            let error = io::Error::new(kind, reason);
            Err(DiskError::new(op.name(), &self.path, error))
        };
        if !self.writable {
            return refuse(
                io::ErrorKind::PermissionDenied,
                "the file is open for reading only",
            );
        }
        if !position.is_multiple_of(BLOCK_BYTES as u64) || !len.is_multiple_of(BLOCK_BYTES) {
            return refuse(
                io::ErrorKind::InvalidInput,
                "position or length is not a multiple of the block size",
            );
        }
        Ok(())
    }

    async fn run(&self, op: DiskOp, position: u64, len: usize, effect: Effect) -> Result<(), DiskError> {
        let call = Call::at(op, &self.path, position, len);
        self.disk.run(call, effect, |_, _| Ok(())).await
    }
}

impl DiskFile for SimFile {
    type Buf = SimBuf;

    async fn write_at(&self, buf: Rc<SimBuf>, position: u64) -> Result<(), DiskError> {
        self.check_write(DiskOp::Write, position, buf.len())?;
        let effect = Effect::Write {
            ino: self.ino,
            block: position / BLOCK_BYTES as u64,
            blocks: content::to_blocks(&buf),
        };
        self.run(DiskOp::Write, position, buf.len(), effect).await?;
        if self.is_durable {
            return self.sync().await; // a crash finds it written, or synced too, as on a real disk
        }
        Ok(())
    }

    async fn read_at(&self, position: u64, len: usize) -> Result<Bytes, DiskError> {
        let call = Call::at(DiskOp::Read, &self.path, position, len);
        let ino = self.ino;
        let read = |state: &mut State, _| state.read(ino, position, len).map(Bytes::from);
        self.disk.run(call, Effect::None, read).await
    }

    async fn sync(&self) -> Result<(), DiskError> {
        let effect = Effect::Sync {
            ino: self.ino,
            upto: self.disk.sequence(),
        };
        self.run(DiskOp::Sync, 0, 0, effect).await
    }

    async fn allocate(&self, size: u64) -> Result<(), DiskError> {
        self.check_write(DiskOp::Allocate, 0, 0)?;
        let effect = Effect::Allocate { ino: self.ino, size };
        self.run(DiskOp::Allocate, size, 0, effect).await
    }

    async fn truncate(&self, size: u64) -> Result<(), DiskError> {
        self.check_write(DiskOp::Truncate, 0, 0)?;
        let effect = Effect::Truncate { ino: self.ino, size };
        self.run(DiskOp::Truncate, size, 0, effect).await
    }

    async fn size(&self) -> Result<u64, DiskError> {
        let call = Call::on(DiskOp::Size, &self.path);
        let ino = self.ino;
        let size = |state: &mut State, _| state.size(ino);
        self.disk.run(call, Effect::None, size).await
    }

    async fn close(self) -> Result<(), DiskError> {
        self.run(DiskOp::Close, 0, 0, Effect::None).await
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.state.borrow_mut();
        if state.incarnation == self.disk.incarnation {
            state.closed(self.ino);
        }
    }
}

impl fmt::Debug for SimFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimFile({})", self.path.display())
    }
}

impl Deref for SimBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for SimBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl DiskBuf for SimBuf {
    fn trim(&mut self, len: usize) {
        assert!(
            len.is_multiple_of(BLOCK_BYTES),
            "a buffer is trimmed to whole blocks, not to {len} bytes"
        );
        self.0.truncate(len);
    }
}

fn round_up(len: usize) -> usize {
    usize::try_from(align_up(len as u64)).expect("a buffer length fits usize")
}
