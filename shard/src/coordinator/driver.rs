//! The tasks around a shard's group coordinators: the log of a partition is replayed when the shard takes it up, appends go to
//! the partition's owner (this shard, through its mailbox like everybody's), deadlines are kept. Thin: every decision is the
//! coordinators'. One per shard.

mod loading;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use protocol::{ErrorCode, Str, Uuid};
use storage::notify::Notify;
use storage::types::LogId;

use super::group::{
    GroupCoordinator, GroupCounters, GroupCursor, GroupImage, GroupOutput, GroupReply, GroupRequest,
    GroupSettings, KnownTopics,
};
use super::shown;
use super::teller::Teller;
use super::writer::{Batch, Next, Queue};
use crate::budget::{Budget, BudgetClass};
use crate::env::{Env, Instant};
use crate::histogram::Histogram;
use crate::image::MetadataImage;
use crate::message::{Acks, Append, AppendItem, ReplyTo, ShardReply, ShardRequest};
use crate::router::Router;

/// Bytes of a batch at most: Kafka's default of `max.message.bytes`, which consumers of the topic are made for.
const BATCH_BYTES_MAX: usize = 1_048_588;

/// How long an append may take (`offsets.commit.timeout.ms` of Kafka).
const APPEND_TIMEOUT: Duration = Duration::from_secs(5);

/// Groups and committed offsets in one page. A page takes under a millisecond: about 100 ns for each.
const PAGE_ENTRIES_MAX: usize = 4096;

/// Clients refused for lack of memory are told of in the log at most so often.
const COMPLAINT_INTERVAL: Duration = Duration::from_secs(60);

/// What the coordinators of a shard have counted, since its start.
#[derive(Clone, Debug, Default)]
pub struct CoordinatorStats {
    /// Partitions of `__consumer_offsets` that are being replayed.
    pub loading: usize,
    /// Those that serve.
    pub serving: usize,
    /// Those that cannot be replayed.
    pub failed: usize,
    /// What their groups did, also of partitions that have left.
    pub counters: GroupCounters,
    /// How long replays took.
    pub loads: Histogram,
}

/// A part of a shard's groups, for a scrape.
#[derive(Clone, Debug, Default)]
pub struct GroupPage {
    /// Groups with committed offsets; one may go on in the next page.
    pub groups: Vec<GroupImage>,
    /// Where the next page begins, if there is one.
    pub next: Option<PageCursor>,
}

/// Where a [`GroupPage`] begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCursor {
    log: LogId,
    within: Option<GroupCursor>,
}

/// The coordinators of one shard. Cheap to clone.
pub struct GroupDriver<E: Env, N: Send + 'static>(Rc<Inner<E, N>>);

struct Inner<E: Env, N: Send + 'static> {
    env: E,
    router: Router<N>,
    settings: GroupSettings,
    memory: Budget,
    partitions: RefCell<BTreeMap<LogId, Partition>>,
    /// The metadata's topics, once they are known here.
    topics: RefCell<Option<KnownTopics>>,
    /// Deadlines may have come nearer.
    deadlines: Notify,
    /// What coordinators that are gone have counted.
    past: RefCell<GroupCounters>,
    /// How long replays took.
    loads: RefCell<Histogram>,
    /// When it was last said that memory is used up.
    complained: Cell<Option<Instant>>,
    teller: Teller,
}

/// A partition of `__consumer_offsets` that is led here.
struct Partition {
    /// Which taking-up of the partition this is: tasks of an earlier one end.
    life: u64,
    state: State,
}

/// How far a partition is.
enum State {
    /// Nobody is answered until the log has been replayed.
    Loading,
    Serving(Box<Serving>),
    /// The log cannot be replayed: an empty answer would be a lie.
    Failed,
}

/// The groups of a partition, and what they write.
struct Serving {
    coordinator: GroupCoordinator,
    queue: Queue,
    /// A task writes what is queued.
    is_writing: bool,
}

impl Partition {
    fn serving(&mut self) -> Option<&mut Serving> {
        match &mut self.state {
            State::Serving(serving) => Some(serving),
            State::Loading | State::Failed => None,
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Serving(serving) => serving.coordinator.next_deadline(),
            State::Loading | State::Failed => None,
        }
    }
}

impl<E: Env, N: Send + 'static> GroupDriver<E, N> {
    /// A driver without coordinators; what they keep is charged to `memory`.
    #[must_use]
    pub fn new(env: E, router: Router<N>, settings: GroupSettings, memory: Budget) -> Self {
        Self(Rc::new(Inner {
            env,
            router,
            settings,
            memory,
            partitions: RefCell::default(),
            topics: RefCell::default(),
            deadlines: Notify::new(),
            past: RefCell::default(),
            loads: RefCell::default(),
            complained: Cell::new(None),
            teller: Teller::default(),
        }))
    }

    /// Starts the deadline task.
    pub fn start(&self) {
        let driver = self.clone();
        self.0.env.spawn(async move { driver.keep_deadlines().await });
    }

    /// This shard leads a partition of `__consumer_offsets` from now on: its log is replayed. One that it leads already begins
    /// anew, and whoever waits is sent away.
    pub fn lead(&self, log: LogId) {
        self.resign(log);
        let life = self.0.env.random();
        let partition = Partition {
            life,
            state: State::Loading,
        };
        self.0.partitions.borrow_mut().insert(log, partition);
        let driver = self.clone();
        self.0.env.spawn(async move { driver.load(log, life).await });
    }

    /// This shard is to lead a partition of `__consumer_offsets` whose log is not open: nobody is served.
    pub fn cannot_lead(&self, log: LogId) {
        self.resign(log);
        tracing::error!(
            partition = log.partition,
            "a partition of __consumer_offsets is offline; its groups are not served"
        );
        let partition = Partition {
            life: self.0.env.random(),
            state: State::Failed,
        };
        self.0.partitions.borrow_mut().insert(log, partition);
    }

    /// This shard leads the partition no longer: whoever waits is sent to the new coordinator.
    pub fn resign(&self, log: LogId) {
        let left = self.0.partitions.borrow_mut().remove(&log).map(|p| p.state);
        if let Some(State::Serving(serving)) = left {
            self.0.past.borrow_mut().merge(serving.coordinator.counters());
            for (to, reply) in serving.coordinator.close() {
                self.answer(to, Ok(reply));
            }
        }
    }

    /// The metadata is so from now on. To be said before partitions are led and topics forgotten: a partition that begins to serve
    /// looks for offsets of topics that are not there, which went before it did or while it loaded.
    pub fn know_topics(&self, image: &Arc<MetadataImage>) {
        let known = KnownTopics {
            image: image.clone(),
            since: self.0.env.wall(),
        };
        for partition in self.0.partitions.borrow_mut().values_mut() {
            if let Some(serving) = partition.serving() {
                serving.coordinator.know_topics(known.clone());
            }
        }
        *self.0.topics.borrow_mut() = Some(known);
    }

    /// Topics are gone, with these ids. Partitions that do not serve yet find out by themselves, see [`Self::know_topics`].
    pub fn forget_topics(&self, topics: &[(Str, Uuid)]) {
        let logs: Vec<LogId> = self.0.partitions.borrow().keys().copied().collect();
        for log in logs {
            self.with(log, None, |c, now, _| c.forget_topics(topics, now));
        }
    }

    /// A request for the coordinator of `log`.
    pub fn handle(&self, to: ReplyTo, log: LogId, request: GroupRequest) {
        let refusal = match self.0.partitions.borrow().get(&log).map(|p| &p.state) {
            None => Some(ErrorCode::NOT_COORDINATOR),
            Some(State::Loading) => Some(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
            // Who lists groups gets those of the other partitions (BR-127).
            Some(State::Failed) if matches!(request, GroupRequest::List) => Some(ErrorCode::NOT_COORDINATOR),
            Some(State::Failed) => Some(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            Some(State::Serving(_)) => None,
        };
        match refusal {
            Some(error) => self.answer(to, Err(error)),
            None => self.with(log, None, |c, now, wall| c.handle(to, request, now, wall)),
        }
    }

    /// What the coordinators of this shard have counted, and how far they are.
    #[must_use]
    pub fn stats(&self) -> CoordinatorStats {
        let mut stats = CoordinatorStats {
            counters: self.0.past.borrow().clone(),
            loads: self.0.loads.borrow().clone(),
            ..CoordinatorStats::default()
        };
        for partition in self.0.partitions.borrow().values() {
            match &partition.state {
                State::Loading => stats.loading += 1,
                State::Failed => stats.failed += 1,
                State::Serving(serving) => {
                    stats.serving += 1;
                    stats.counters.merge(serving.coordinator.counters());
                }
            }
        }
        stats
    }

    /// The next page of this shard's groups and committed offsets, from the beginning without a cursor. Groups that come or go
    /// between two pages are in one of them or in none.
    #[must_use]
    pub fn page(&self, from: Option<&PageCursor>) -> GroupPage {
        let partitions = self.0.partitions.borrow();
        let start = from.map_or(Bound::Unbounded, |cursor| Bound::Included(cursor.log));
        let mut page = GroupPage::default();
        let mut entries = 0;
        for (log, partition) in partitions.range((start, Bound::Unbounded)) {
            let State::Serving(serving) = &partition.state else {
                continue;
            };
            let within = from
                .filter(|cursor| cursor.log == *log)
                .and_then(|c| c.within.as_ref());
            let is_full = entries >= PAGE_ENTRIES_MAX;
            let rest = match is_full {
                true => None,
                false => serving
                    .coordinator
                    .page(within, &mut entries, PAGE_ENTRIES_MAX, &mut page.groups),
            };
            if is_full || rest.is_some() {
                page.next = Some(PageCursor {
                    log: *log,
                    within: rest,
                });
                break;
            }
        }
        page
    }

    /// Changes a coordinator that serves, of that life if one is named, and carries out what came of it.
    fn with(
        &self,
        log: LogId,
        life: Option<u64>,
        change: impl FnOnce(&mut GroupCoordinator, Instant, crate::env::WallMs),
    ) {
        let (now, wall) = (self.0.env.now(), self.0.env.wall());
        let mut starts_writer = None;
        let mut replies = Vec::new();
        let (short, news);
        let is_nearer = {
            let mut partitions = self.0.partitions.borrow_mut();
            let partition = partitions
                .get_mut(&log)
                .filter(|p| life.is_none_or(|life| life == p.life));
            let Some((life, serving)) = partition.and_then(|p| Some((p.life, p.serving()?))) else {
                return;
            };
            let before = serving.coordinator.next_deadline();
            change(&mut serving.coordinator, now, wall);
            short = serving.coordinator.take_short();
            news = serving.coordinator.take_news();
            let mut appends = false;
            while let Some(output) = serving.coordinator.poll_output() {
                match output {
                    GroupOutput::Reply { to, reply } => replies.push((to, reply)),
                    GroupOutput::Append { write, records } => {
                        appends = true;
                        serving.queue.push(write, records);
                    }
                }
            }
            if appends && !serving.is_writing {
                serving.is_writing = true;
                starts_writer = Some(life);
            }
            let next = serving.coordinator.next_deadline();
            next.is_some_and(|next| before.is_none_or(|before| next < before))
        };
        for (to, reply) in replies {
            self.answer(to, Ok(reply));
        }
        if let Some(life) = starts_writer {
            let driver = self.clone();
            self.0.env.spawn(async move { driver.write(log, life).await });
        }
        if is_nearer {
            self.0.deadlines.notify();
        }
        self.0.teller.tell(log.partition, news, now);
        if let Some(group) = short {
            self.complain_of_memory(&group, now);
        }
    }

    /// Says that clients are refused for lack of memory, those of `group` among them, now and then: each of them tries again and
    /// again.
    fn complain_of_memory(&self, group: &str, now: Instant) {
        let last = self.0.complained.get();
        if last.is_none_or(|last| now >= last.after(COMPLAINT_INTERVAL)) {
            self.0.complained.set(Some(now));
            let bytes = self.0.memory.max_bytes(BudgetClass::Coordinator);
            tracing::warn!(
                bytes,
                group = shown(group),
                "the memory for groups and committed offsets is used up on this shard: new members, larger metadata and \
                 commits of new partitions are refused with COORDINATOR_NOT_AVAILABLE until some end; give the broker more \
                 with penstock.memory.bytes"
            );
        }
    }

    fn answer(&self, to: ReplyTo, reply: Result<GroupReply, ErrorCode>) {
        self.0.router.answer(to, ShardReply::Group(Box::new(reply)));
    }

    /// Writes what is queued, batch after batch; what comes meanwhile shares the next one.
    async fn write(&self, log: LogId, life: u64) {
        loop {
            let next = self.of_life(log, life, |serving| {
                let next = serving.queue.next(BATCH_BYTES_MAX, self.0.env.wall());
                serving.is_writing = next.is_some();
                next
            });
            let next = next.flatten();
            match next {
                None => return,
                Some(Next::Refused(write, group, why)) => {
                    tracing::warn!(
                        group = shown(&group), partition = log.partition, %why,
                        "records of a group cannot be written"
                    );
                    self.with(log, Some(life), |c, now, wall| {
                        c.handle_written(write, Err(ErrorCode::MESSAGE_TOO_LARGE), now, wall);
                    });
                }
                Some(Next::Batch(batch)) => self.write_batch(log, life, batch).await,
            }
        }
    }

    async fn write_batch(&self, log: LogId, life: u64, batch: Batch) {
        let append = Append {
            items: vec![AppendItem {
                log,
                batch: batch.bytes,
            }],
            acks: Acks::All,
            deadline: self.0.env.now().after(APPEND_TIMEOUT),
        };
        let outcome = match self.ask(ShardRequest::Append(append)).await {
            Some(ShardReply::Append(results)) => match results.first().map(|r| r.error) {
                Some(ErrorCode::NONE) => Ok(()),
                Some(error) => Err(error),
                None => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
            },
            _ => Err(ErrorCode::REQUEST_TIMED_OUT),
        };
        let ended = self.of_life(log, life, |serving| {
            serving.queue.ended(&batch.done, batch.is_partial, outcome)
        });
        for (write, outcome) in ended.into_iter().flatten() {
            self.with(log, Some(life), |c, now, wall| {
                c.handle_written(write, outcome, now, wall)
            });
        }
    }

    /// Looks at a partition that serves, if it is that life of it.
    fn of_life<T>(&self, log: LogId, life: u64, look: impl FnOnce(&mut Serving) -> T) -> Option<T> {
        let mut partitions = self.0.partitions.borrow_mut();
        let partition = partitions.get_mut(&log).filter(|p| p.life == life)?;
        partition.serving().map(look)
    }

    async fn ask(&self, request: ShardRequest) -> Option<ShardReply> {
        let router = &self.0.router;
        match router.ask(router.shard(), request) {
            Ok(asked) => Some(asked.await),
            Err(_) => None,
        }
    }

    async fn keep_deadlines(&self) {
        loop {
            let next = self.0.deadlines.until(|| self.next_deadline()).await;
            let now = self.0.env.now();
            if next > now {
                let earlier = self
                    .0
                    .deadlines
                    .until(|| self.next_deadline().filter(|at| *at < next).map(|_| ()));
                futures_lite::future::or(earlier, self.0.env.sleep(next.since(now))).await;
            }
            let now = self.0.env.now();
            let due: Vec<LogId> = self
                .0
                .partitions
                .borrow()
                .iter()
                .filter(|(_, p)| p.next_deadline().is_some_and(|at| at <= now))
                .map(|(log, _)| *log)
                .collect();
            for log in due {
                self.with(log, None, |c, now, wall| c.handle_time(now, wall));
                // What is due at the same time on all partitions may take longer than others should wait.
                self.0.env.breathe().await;
            }
            self.0.env.yield_to_reactor().await;
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let partitions = self.0.partitions.borrow();
        partitions.values().filter_map(Partition::next_deadline).min()
    }
}

impl<E: Env, N: Send + 'static> Clone for GroupDriver<E, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
