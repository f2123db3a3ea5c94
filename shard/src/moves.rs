//! Moves of a shard's partitions between its log directories (AlterReplicaLogDirs): which are wanted, a few tasks that carry them
//! out, and the hand-over of each between two appends. What is copied, and that a crash loses nothing, is `storage::moving`'s; who
//! waits during the hand-over, the owner's. One per shard; it sees only this shard's partitions.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use storage::error::StorageError;
use storage::moving::CopyStep;
use storage::notify::Notify;
use storage::types::{LogId, Offset};

use crate::driver::OwnerDriver;
use crate::env::{Env, Instant};
use crate::ids::LogDir;
use crate::owner::{DirLog, Dirs, Hold, LogsIo, Moving};

/// Moves of a shard that are under way at the same time; more wait in turn.
const MOVES_AT_ONCE: usize = 2;

/// Moves of a shard that may be wanted at a time.
const MOVES_MAX: usize = 1 << 20;

/// When to look again for what is not in the segments yet.
const LATER: Duration = Duration::from_millis(5);

/// What became of the wish to move a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveAnswer {
    /// It moves, or is there, or was on its way already.
    Accepted,
    /// This shard has no such partition.
    NotHere,
    /// The directory, or the one that it is in, does not work.
    Offline,
    /// More moves than a shard keeps in mind.
    TooMany,
}

/// How a move ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveEnd {
    /// The partition is there.
    Moved,
    /// It stays where it was.
    Stayed,
    /// Its log was given up, and the copy cannot be used now: a start may tell more.
    Lost,
}

/// Moves of a shard so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveStats {
    /// Wanted now, under way or not.
    pub wanted: usize,
    /// Completed.
    pub moved: u64,
    /// Ended by an error; one that was called off is none.
    pub failed: u64,
    /// The longest time that requests waited for a hand-over.
    pub held_max: Duration,
}

type OnEnd = Rc<dyn Fn(LogId, LogDir, MoveEnd)>;

/// Bytes a second that this shard may copy, now; `None` is no bound.
type Rate = Rc<dyn Fn() -> Option<u64>>;

/// The longest nap of a copy at its rate: it may be called off, and the rate may change.
const NAP_MAX: Duration = Duration::from_millis(250);

/// See the module. Cheap to clone.
pub struct Moves<E: Env, L: LogsIo, N: Send + 'static>(Rc<Inner<E, L, N>>);

struct Inner<E: Env, L: LogsIo, N: Send + 'static> {
    env: E,
    driver: OwnerDriver<E, L, N>,
    logs: Dirs<L>,
    on_end: OnEnd,
    rate: Rate,
    /// What was copied so far was due up to then, at the rate.
    paid_until: Cell<Instant>,
    wanted: RefCell<BTreeMap<LogId, Wanted>>,
    queue: RefCell<VecDeque<LogId>>,
    at_work: Cell<usize>,
    stats: Cell<MoveStats>,
    moved: Notify,
    is_stopped: Cell<bool>,
}

/// A move that is wanted.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    to: LogDir,
    /// It is not wanted any more.
    is_off: bool,
    /// What is wanted instead.
    then: Option<LogDir>,
    /// The log is being handed over: from here on it goes to its end.
    is_handed_over: bool,
}

impl<E: Env, L: LogsIo, N: Send + 'static> Moves<E, L, N> {
    /// For the partitions of `driver`, whose storage is `logs`. `rate` is asked for the bytes a second that may be copied now,
    /// if there is a bound; `on_end` is told how each move to a directory ended.
    #[must_use]
    pub fn new(
        env: E,
        driver: OwnerDriver<E, L, N>,
        logs: Dirs<L>,
        rate: impl Fn() -> Option<u64> + 'static,
        on_end: impl Fn(LogId, LogDir, MoveEnd) + 'static,
    ) -> Self {
        Self(Rc::new(Inner {
            env,
            driver,
            logs,
            on_end: Rc::new(on_end),
            rate: Rc::new(rate),
            paid_until: Cell::default(),
            wanted: RefCell::default(),
            queue: RefCell::default(),
            at_work: Cell::new(0),
            stats: Cell::default(),
            moved: Notify::new(),
            is_stopped: Cell::new(false),
        }))
    }

    /// Moves so far.
    #[must_use]
    pub fn stats(&self) -> MoveStats {
        MoveStats {
            wanted: self.0.wanted.borrow().len(),
            ..self.0.stats.get()
        }
    }

    /// The partition is to be in `to`: begins to move it there. A move of it to another directory is called off; where it is
    /// there already, that is all.
    pub fn begin(&self, id: LogId, to: LogDir) -> MoveAnswer {
        let Inner { driver, logs, .. } = &*self.0;
        let Some(log) = driver.with_owner(|owner| owner.log_of(id)) else {
            return MoveAnswer::NotHere;
        };
        let is_online = |dir: LogDir, log: DirLog<L::Log>| {
            logs.get(dir).is_some_and(|logs| !logs.is_offline(log.log)) // a directory fails as a whole
        };
        if !is_online(log.dir, log) || !is_online(to, log) {
            return MoveAnswer::Offline;
        }
        let mut wanted = self.0.wanted.borrow_mut();
        if let Some(known) = wanted.get_mut(&id) {
            let is_new = known.to != to || known.is_off;
            known.is_off |= known.to != to;
            // One that is handed over is there before anything else happens to it.
            let ends_in = if known.is_handed_over { known.to } else { log.dir };
            known.then = (is_new && to != ends_in).then_some(to);
            return MoveAnswer::Accepted;
        }
        if to == log.dir {
            return MoveAnswer::Accepted;
        }
        if wanted.len() >= MOVES_MAX {
            return MoveAnswer::TooMany;
        }
        wanted.insert(id, Wanted::new(to));
        drop(wanted);
        self.enqueue(id, to);
        MoveAnswer::Accepted
    }

    /// The partition is about to be deleted: its move is called off. Ends at once, unless the log is being handed over, which
    /// is a matter of milliseconds.
    pub async fn call_off(&self, id: LogId) {
        let handed_over = || {
            let mut wanted = self.0.wanted.borrow_mut();
            let wanted = wanted.get_mut(&id)?;
            wanted.is_off = true;
            wanted.then = None;
            Some(wanted.is_handed_over)
        };
        self.0
            .moved
            .until(|| (handed_over() != Some(true)).then_some(()))
            .await;
    }

    /// The stores are about to be closed: ends when no log is being handed over, and none will be. What is not there yet begins
    /// anew with the next start.
    pub async fn stop(&self) {
        self.0.is_stopped.set(true);
        let is_any = || {
            self.0
                .wanted
                .borrow()
                .values()
                .any(|wanted| wanted.is_handed_over)
        };
        self.0.moved.until(|| (!is_any()).then_some(())).await;
    }

    /// Ends when the partition's log is not being handed over; what is done before the next await is done to a log that is open.
    pub async fn until_rest(&self, id: LogId) {
        let is_handed_over = || {
            let wanted = self.0.wanted.borrow();
            wanted.get(&id).is_some_and(|wanted| wanted.is_handed_over)
        };
        self.0.moved.until(|| (!is_handed_over()).then_some(())).await;
    }

    fn enqueue(&self, id: LogId, to: LogDir) {
        let Inner { driver, env, .. } = &*self.0;
        driver.with_owner(|owner| owner.note_move(id, to, 0, Offset::ZERO));
        self.0.queue.borrow_mut().push_back(id);
        if self.0.at_work.get() < MOVES_AT_ONCE {
            self.0.at_work.set(self.0.at_work.get() + 1);
            let moves = self.clone();
            // Not in the background: requests wait while a log is handed over, and a copy yields after each piece.
            env.spawn(async move { moves.work().await });
        }
    }

    /// One task: takes moves until none is left.
    async fn work(&self) {
        loop {
            let next = self.0.queue.borrow_mut().pop_front();
            let Some(id) = next else { break };
            self.carry_out(id).await;
        }
        self.0.at_work.set(self.0.at_work.get() - 1);
    }

    async fn carry_out(&self, id: LogId) {
        let Inner { driver, env, .. } = &*self.0;
        let Some(to) = self.0.wanted.borrow().get(&id).map(|wanted| wanted.to) else {
            return;
        };
        let end = match self.run(id, to).await {
            Ok(end) => end,
            Err((error, end)) => {
                let mut stats = self.0.stats.get();
                stats.failed += 1;
                self.0.stats.set(stats);
                let (topic, partition) = (protocol::Uuid(id.topic.0), id.partition);
                tracing::error!(%topic, partition, %error, ?end, "a partition could not be moved to another log directory");
                end
            }
        };
        if end == MoveEnd::Lost {
            driver.with_owner(|owner| owner.release(id));
        }
        let wall = env.wall();
        driver.with_owner(|owner| owner.end_move(id, wall));
        let before = self.0.wanted.borrow_mut().remove(&id);
        self.0.moved.notify();
        (self.0.on_end)(id, to, end);
        if let Some(then) = before.and_then(|before| before.then) {
            self.begin(id, then);
        }
    }

    async fn run(&self, id: LogId, to: LogDir) -> Result<MoveEnd, (StorageError, MoveEnd)> {
        let Inner {
            driver, logs, env, ..
        } = &*self.0;
        let stayed = |error| (error, MoveEnd::Stayed);
        let Some(old) = driver.with_owner(|owner| owner.log_of(id)) else {
            return Ok(MoveEnd::Stayed);
        };
        let Some(target) = logs.get(to).filter(|_| !self.is_off(id)) else {
            return Ok(MoveEnd::Stayed);
        };
        let unique = u128::from(env.random()) << 64 | u128::from(env.random());
        let begun = logs.of(&old).begin_move(old.log, target, unique).await;
        let mut moving = begun.map_err(stayed)?;
        loop {
            if self.0.is_stopped.get() {
                return Ok(MoveEnd::Stayed); // its copy is what the next start knows the wish by
            }
            let is_gone = driver.with_owner(|owner| owner.log_of(id)) != Some(old);
            if is_gone || self.is_off(id) {
                moving.abandon().await;
                return Ok(MoveEnd::Stayed);
            }
            if let Some(nap) = self.nap() {
                env.sleep(nap).await;
                continue;
            }
            let before = moving.progress().bytes;
            let step = moving.copy(env.wall()).await;
            let progress = moving.progress();
            self.pay(progress.bytes.saturating_sub(before));
            driver.with_owner(|owner| owner.note_move(id, to, progress.bytes, progress.end));
            match step {
                Ok(CopyStep::More) => env.yield_to_reactor().await,
                Ok(CopyStep::Later) => env.sleep(LATER).await,
                Ok(CopyStep::CaughtUp) => {
                    if driver.with_owner(|owner| owner.log_of(id)) == Some(old) && self.may_hand_over(id) {
                        break;
                    }
                }
                Err(error) => {
                    moving.abandon().await;
                    return match error {
                        // It was deleted meanwhile.
                        StorageError::NoSuchLog => Ok(MoveEnd::Stayed),
                        error => Err(stayed(error)),
                    };
                }
            }
        }
        self.hand_over(id, to, moving).await
    }

    /// The copy takes the log's place between two appends.
    async fn hand_over(
        &self,
        id: LogId,
        to: LogDir,
        mut moving: L::Move,
    ) -> Result<MoveEnd, (StorageError, MoveEnd)> {
        let Inner { driver, env, .. } = &*self.0;
        let began = env.now();
        driver.with_owner(|owner| owner.hold(id, Hold::Changes));
        if let Err(error) = moving.settle().await {
            moving.abandon().await;
            return Err((error, MoveEnd::Stayed));
        }
        driver.with_owner(|owner| owner.hold(id, Hold::All));
        let log = match moving.commit(env.wall()).await {
            Ok(log) => log,
            Err((failure, Some(moving))) => {
                moving.abandon().await;
                return Err((failure.error, MoveEnd::Stayed));
            }
            Err((failure, None)) => return Err((failure.error, MoveEnd::Lost)),
        };
        driver.with_owner(|owner| owner.relocate(id, DirLog { dir: to, log }));
        let mut stats = self.0.stats.get();
        stats.moved += 1;
        stats.held_max = stats.held_max.max(env.now().since(began));
        self.0.stats.set(stats);
        Ok(MoveEnd::Moved)
    }

    /// How long to wait before more may be copied at the rate.
    fn nap(&self) -> Option<Duration> {
        (self.0.rate)()?;
        let left = self.0.paid_until.get().since(self.0.env.now());
        (left > Duration::ZERO).then(|| left.min(NAP_MAX))
    }

    /// So much was copied.
    fn pay(&self, bytes: u64) {
        let Some(rate) = (self.0.rate)() else { return };
        let from = self.0.paid_until.get().max(self.0.env.now());
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
        let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.0.paid_until.set(from.after(took));
    }

    fn is_off(&self, id: LogId) -> bool {
        let wanted = self.0.wanted.borrow();
        wanted.get(&id).is_none_or(|wanted| wanted.is_off)
    }

    /// From here on the move goes to its end.
    fn may_hand_over(&self, id: LogId) -> bool {
        let mut wanted = self.0.wanted.borrow_mut();
        let may = |wanted: &&mut Wanted| !wanted.is_off && !self.0.is_stopped.get();
        let wanted = wanted.get_mut(&id).filter(may);
        wanted.map(|wanted| wanted.is_handed_over = true).is_some()
    }
}

impl Wanted {
    const fn new(to: LogDir) -> Self {
        Self {
            to,
            is_off: false,
            then: None,
            is_handed_over: false,
        }
    }
}

impl<E: Env, L: LogsIo, N: Send + 'static> Clone for Moves<E, L, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
