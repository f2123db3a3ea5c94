//! The tasks around a shard's owner: the inbox, the committer, cold reads, deadlines. Thin: every decision is the
//! owner's. Generic over executor and storage, so the simulator runs it as it is. One per shard.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use protocol::ErrorCode;
use storage::error::StorageError;
use storage::log::query::ProducerSweep;
use storage::types::LogId;

use crate::coordinator::driver::GroupDriver;
use crate::env::{Env, Instant};
use crate::ids::LogDir;
use crate::message::{ReplyTo, ShardReply};
use crate::owner::{ColdFetch, DirLog, Dirs, InDir, LogsIo, OffsetLookup, Owner, OwnerOutput};
use crate::retention::remove_in_time;
use crate::router::{Router, ShardMessage};
use crate::runtime::mailbox::Inbox;
use crate::scrub;
use crate::trace::{PartMoments, TracedParts};
use storage::notify::Notify;

/// Messages handled before the reactor gets its turn.
const MESSAGES_PER_TURN: usize = 256;

/// Producers looked at before others get the core: about 50 microseconds.
const PRODUCERS_PER_TURN: usize = 1000;

/// A deadline is met late by at most this.
const DEADLINE_SLACK: Duration = Duration::from_millis(20);

/// How often the free space is looked at.
const SPACE_INTERVAL: Duration = Duration::from_secs(1);

/// A commit with so much waits for no more, bytes: another as large would not make it cheaper for each byte.
const LINGER_BYTES_MAX: usize = 256 << 10;

/// Tasks that read ahead; each has several reads under way.
const READ_AHEAD_TASKS: usize = 2;

/// Fetches of a shard that read the disk at the same time; more wait in turn, so that commits and other reads get at it.
const COLD_READERS_MAX: usize = 16;

/// What the tasks of a shard's owner share. Cheap to clone.
pub struct OwnerDriver<E: Env, L: LogsIo, N: Send + 'static>(Rc<Inner<E, L, N>>);

struct Inner<E: Env, L: LogsIo, N: Send + 'static> {
    env: E,
    owner: RefCell<Owner<Dirs<L>>>,
    logs: Dirs<L>,
    router: Router<N>,
    linger: Duration,
    deadlines: Notify,
    cold: RefCell<VecDeque<ColdFetch<InDir<L::Cold>>>>,
    cold_readers: Cell<usize>,
    traced: RefCell<TracedParts>,
}

impl<E: Env, L: LogsIo, N: Send + 'static> OwnerDriver<E, L, N> {
    /// A driver of `owner`, whose storage is `logs`. A commit waits for more records for `linger`.
    #[must_use]
    pub fn new(env: E, owner: Owner<Dirs<L>>, logs: Dirs<L>, router: Router<N>, linger: Duration) -> Self {
        Self(Rc::new(Inner {
            env,
            owner: RefCell::new(owner),
            logs,
            router,
            linger,
            deadlines: Notify::new(),
            cold: RefCell::default(),
            cold_readers: Cell::new(0),
            traced: RefCell::default(),
        }))
    }

    /// Looks at or changes the owner, then carries out what came of it.
    pub fn with_owner<T>(&self, change: impl FnOnce(&mut Owner<Dirs<L>>) -> T) -> T {
        let result = change(&mut self.0.owner.borrow_mut());
        self.carry_out();
        result
    }

    /// Starts the deadline task and, for each log directory, the committer and the storage's background work. `on_commit` is
    /// told how long each group commit took from the moment it had something to do and did not linger for more, `on_failure` when
    /// a directory has failed, with the partitions that it takes offline.
    pub fn start(
        &self,
        on_commit: impl Fn(Duration) + 'static,
        on_failure: impl Fn(LogDir, StorageError, Vec<LogId>) + 'static,
    ) {
        let driver = self.clone();
        self.0.env.spawn(async move { driver.watch_deadlines().await });
        let (on_commit, on_failure) = (Rc::new(on_commit), Rc::new(on_failure));
        for (dir, logs) in self.0.logs.iter() {
            self.start_dir(dir, logs, on_commit.clone(), on_failure.clone());
        }
    }

    fn start_dir(
        &self,
        dir: LogDir,
        logs: &L,
        on_commit: Rc<impl Fn(Duration) + 'static>,
        on_failure: Rc<impl Fn(LogDir, StorageError, Vec<LogId>) + 'static>,
    ) {
        let env = &self.0.env;
        let (driver, commits) = (self.clone(), logs.clone());
        env.spawn(async move {
            let error = driver.commit_until_failure(dir, &commits, &*on_commit).await;
            let offline = driver.with_owner(Owner::storage_failed);
            on_failure(dir, error, offline);
        });
        let clock = env.clone();
        logs.set_clock(Rc::new(move || clock.now().0));
        env.spawn(scrub::time_io(env.clone(), logs.clone()));
        let (driver, syncs) = (self.clone(), logs.clone());
        env.spawn(async move { driver.sync_in_time(&syncs).await });
        env.spawn(remove_in_time(env.clone(), logs.clone()));
        let (driver, space) = (self.clone(), logs.clone());
        env.spawn(async move { driver.watch_space(&space).await });
        for _ in 0..READ_AHEAD_TASKS {
            let ahead = logs.clone();
            env.spawn(async move { while ahead.read_ahead().await.is_ok() {} });
        }
        let background = logs.clone();
        // Its failure is the committer's too, which reports it.
        env.spawn(async move { while background.background().await.is_ok() {} });
    }

    /// Handles the shard's messages for ever; `groups` gets those for coordinators, `on_node` the process's own.
    pub async fn serve_inbox(
        &self,
        mut inbox: Inbox<ShardMessage<N>>,
        groups: &GroupDriver<E, N>,
        mut on_node: impl FnMut(N),
    ) {
        let mut handled = 0;
        loop {
            let batch = inbox.recv().await;
            let wall = self.0.env.wall();
            handled += batch.messages.len();
            for message in batch.messages {
                match message {
                    ShardMessage::Request { to, request } if to.is_traced => {
                        let taken = self.0.env.now();
                        self.0.owner.borrow_mut().handle(to, request, wall);
                        self.0.traced.borrow_mut().handled(to, taken, self.0.env.now());
                    }
                    ShardMessage::Request { to, request } => {
                        self.0.owner.borrow_mut().handle(to, request, wall)
                    }
                    ShardMessage::Coordinate { to, log, request } => groups.handle(to, log, *request),
                    ShardMessage::Reply {
                        token,
                        reply,
                        moments,
                    } => {
                        let moments = moments.map(|moments| PartMoments {
                            answered: self.0.env.now(),
                            ..*moments
                        });
                        self.0.router.deliver(token, reply, moments);
                    }
                    ShardMessage::Cancel(to) => {
                        self.moments(to);
                        self.0.owner.borrow_mut().cancel(to);
                    }
                    ShardMessage::Node(message) => on_node(message),
                }
            }
            self.carry_out();
            if handled >= MESSAGES_PER_TURN {
                handled = 0;
                self.0.env.yield_to_reactor().await;
            }
        }
    }

    /// Forgets idle producers, all logs once in each `interval` (`producer.id.expiration.check.interval.ms`), for ever.
    pub async fn forget_idle_producers(self, interval: Duration) {
        loop {
            self.0.env.sleep(interval).await;
            let mut sweep;
            let mut forgotten = 0;
            for (_, logs) in self.0.logs.iter() {
                sweep = ProducerSweep::default();
                while !sweep.is_over() {
                    let now = self.0.env.wall();
                    forgotten += logs.sweep_producers(&mut sweep, now, PRODUCERS_PER_TURN);
                    self.0.env.yield_to_reactor().await;
                }
            }
            if forgotten > 0 {
                tracing::debug!(forgotten, "idle producers are forgotten");
            }
        }
    }

    async fn commit_until_failure(
        &self,
        dir: LogDir,
        logs: &L,
        on_commit: &impl Fn(Duration),
    ) -> StorageError {
        loop {
            logs.staged(1).await;
            self.linger(logs).await;
            let began = self.0.env.now();
            match logs.commit().await {
                Ok(moved) => {
                    let now = self.0.env.now();
                    logs.note_time(now);
                    on_commit(now.since(began));
                    if moved.is_empty() {
                        // It may not have waited for the disk, and then this loop would never let anybody else run.
                        self.0.env.yield_to_reactor().await;
                    }
                    for (log, end) in moved {
                        self.0.owner.borrow_mut().durable(DirLog { dir, log }, end);
                    }
                    self.carry_out();
                }
                Err(error) => return error,
            }
        }
    }

    /// Lets more records come for the commit that begins (`penstock.commit.linger.us`).
    async fn linger(&self, logs: &L) {
        if self.0.linger > Duration::ZERO {
            let env = &self.0.env;
            futures_lite::future::or(logs.staged(LINGER_BYTES_MAX), env.sleep(self.0.linger)).await;
        }
    }

    /// Syncs in time what was acknowledged without a sync. A failure is the committer's too, which reports it.
    async fn sync_in_time(&self, logs: &L) {
        let env = &self.0.env;
        while let Ok(next) = logs.sync_due(env.now()).await {
            match next {
                None => logs.sync_schedule_moved().await,
                Some(at) => {
                    let left = at.since(env.now());
                    futures_lite::future::or(logs.sync_schedule_moved(), env.sleep(left)).await;
                }
            }
        }
    }

    /// Looks at the free space, for ever: what a full disk has stopped goes on by itself.
    async fn watch_space(&self, logs: &L) {
        loop {
            logs.watch_space(self.0.env.now()).await;
            self.0.env.sleep(SPACE_INTERVAL).await;
        }
    }

    async fn watch_deadlines(&self) {
        loop {
            let next = self
                .0
                .deadlines
                .until(|| self.0.owner.borrow().next_deadline())
                .await;
            let now = self.0.env.now();
            if next > now {
                // A sleep cannot be shortened, and an earlier deadline may come: short naps while something waits.
                self.0.env.sleep(next.since(now).min(DEADLINE_SLACK)).await;
            }
            let now: Instant = self.0.env.now();
            self.with_owner(|owner| owner.expire(now));
        }
    }

    fn carry_out(&self) {
        loop {
            let output = self.0.owner.borrow_mut().poll_output();
            match output {
                None => break,
                Some(OwnerOutput::Reply { to, reply }) => {
                    self.0.router.answer_traced(to, reply, self.moments(to));
                }
                Some(OwnerOutput::ReadCold(fetch)) => {
                    self.0.cold.borrow_mut().push_back(fetch);
                    if self.0.cold_readers.get() < COLD_READERS_MAX {
                        self.0.cold_readers.set(self.0.cold_readers.get() + 1);
                        let driver = self.clone();
                        self.0.env.spawn(async move { driver.read_cold_fetches().await });
                    }
                }
                Some(OwnerOutput::LookUp(lookup)) => {
                    let driver = self.clone();
                    self.0.env.spawn(async move { driver.look_up(lookup).await });
                }
            }
        }
        if self.0.owner.borrow().next_deadline().is_some() {
            self.0.deadlines.notify();
        }
    }

    /// The moments of a part that ends now, if it is traced.
    fn moments(&self, to: ReplyTo) -> Option<PartMoments> {
        if !to.is_traced {
            return None;
        }
        self.0.traced.borrow_mut().ended(to, self.0.env.now())
    }

    /// One reader: takes fetches until none is left.
    async fn read_cold_fetches(&self) {
        loop {
            let next = self.0.cold.borrow_mut().pop_front();
            let Some(fetch) = next else { break };
            self.read_cold(fetch).await;
            self.0.env.breathe().await;
        }
        self.0.cold_readers.set(self.0.cold_readers.get() - 1);
    }

    async fn read_cold(&self, fetch: ColdFetch<InDir<L::Cold>>) {
        let mut pieces = Vec::with_capacity(fetch.pieces.len());
        for piece in &fetch.pieces {
            let InDir { dir, what } = &piece.plan;
            let read = match self.0.logs.get(*dir) {
                Some(logs) => logs.read_cold(what).await,
                None => Err(ErrorCode::KAFKA_STORAGE_ERROR),
            };
            pieces.push(read);
        }
        self.with_owner(|owner| owner.cold_done(fetch, pieces));
    }

    async fn look_up(&self, mut lookup: OffsetLookup<DirLog<L::Log>>) {
        for open in &lookup.open {
            let logs = self.0.logs.of(&open.log);
            let answer = logs.look_up(&self.0.env, open.log.log, open.what).await;
            lookup.answers[open.place] = answer;
        }
        self.0
            .router
            .answer(lookup.to, ShardReply::Offsets(lookup.answers));
    }
}

impl<E: Env, L: LogsIo, N: Send + 'static> Clone for OwnerDriver<E, L, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
