//! What a shard publishes about itself while it runs: tasks that wait to be polled, polls done, how long they took and
//! where. Written by the shard's own thread (and by whoever wakes one of its tasks), read by the ticker and by metrics.
//!
//! Every task of a shard runs inside [`tracked`]. That costs two clock readings per poll and buys three things: the ticker
//! knows exactly when a core sleeps on runnable tasks (trap D1), a task holds one glommio waker however many places
//! wait on its behalf (trap D9), and a panic is caught at the task's edge (trap D6).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use super::fatal::stop_process;
use super::histogram::{Histogram, HistogramImage, add};
use super::ticker::Alarm;
use crate::ids::ShardId;

/// A poll or a section that holds the core this long is recorded with its place.
pub const STALL_MIN: Duration = Duration::from_millis(1);

/// Places with a record of their own; more are counted together.
const PLACES_MAX: usize = 64;

/// Two polls further apart than this had a reactor turn between them: the run queue hands over in about 100 ns, a
/// reactor turn makes several system calls.
const TURN_GAP: Duration = Duration::from_nanos(1500);

/// One shard's published state. Shared by its threads' readers; the shard writes it.
pub(super) struct Pulse {
    pub(super) shard: ShardId,
    /// Tasks that were woken and not polled since. May be briefly -1: a poll can overtake the count of its wake.
    runnable: AtomicI64,
    /// Nanoseconds of the runtime's clock when the first of them was woken.
    runnable_since: AtomicU64,
    /// Polls done.
    polls: AtomicU64,
    /// Nanoseconds of the runtime's clock when the last poll ended.
    polled_at: AtomicU64,
    /// Where the runtime's clock began.
    pub(super) epoch: Instant,
    /// Kernel thread id of the executor, 0 before it runs.
    pub(super) thread_id: AtomicI32,
    pub(super) alarm: Arc<Alarm>,
    pub(super) kick: KickSlot,
    polls_us: Histogram,
    turns_us: Histogram,
    /// From the ticker's kick to the poll of the task that answers it.
    pub(super) lag_us: Histogram,
    /// Time asleep with runnable tasks; written by the ticker.
    pub(super) parked_us: Histogram,
    busy_ns: AtomicU64,
    stalls: Mutex<BTreeMap<Place, Stall>>,
}

/// How the ticker reaches a task of the shard.
#[derive(Default)]
pub(super) struct KickSlot {
    /// A raw waker of the executor: it queues a foreign wake each time, unlike ours, which are deduplicated.
    pub(super) waker: Mutex<Option<Waker>>,
    pub(super) sent: AtomicU64,
    pub(super) answered: AtomicU64,
    /// Nanoseconds of the runtime's clock when the oldest unanswered kick was sent; 0 when all are answered.
    pub(super) sent_at: AtomicU64,
}

/// What held the core: the place where the task was spawned, or a named section.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A task, by the line that spawned it.
    Task(&'static str, u32),
    /// A section of a task ([`crate::env::Env::section`]).
    Section(&'static str),
    /// Everything beyond the places that fit.
    Others,
}

/// How often and how long one place held the core for [`STALL_MIN`] or more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stall {
    /// Times.
    pub count: u64,
    /// In all, microseconds.
    pub total_us: u64,
    /// The longest, microseconds.
    pub max_us: u64,
}

/// A shard's stall report at one moment. Times are wall-clock: a core that the kernel gave to somebody else counts.
#[derive(Clone, Debug)]
pub struct PulseImage {
    /// Whose.
    pub shard: ShardId,
    /// Tasks that wait to be polled now.
    pub runnable: u64,
    /// Polls since the start.
    pub polls: u64,
    /// Time spent in polls since the start, microseconds: the shard's busy time.
    pub busy_us: u64,
    /// Length of single polls.
    pub poll: HistogramImage,
    /// Time from one reactor turn to the next while there was work.
    pub turn: HistogramImage,
    /// How long a foreign wake took to be answered, sampled each tick while there was work.
    pub lag: HistogramImage,
    /// Time the executor's thread slept although tasks were runnable (trap D1), until it was woken. Waiting for the core is
    /// not part of it, that is the scheduler's run delay.
    pub parked: HistogramImage,
    /// Places that held the core too long, worst total first.
    pub stalls: Vec<(Place, Stall)>,
}

impl Pulse {
    pub(super) fn new(shard: ShardId, alarm: Arc<Alarm>, epoch: Instant) -> Self {
        Self {
            shard,
            runnable: AtomicI64::new(0),
            runnable_since: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            polled_at: AtomicU64::new(0),
            epoch,
            thread_id: AtomicI32::new(0),
            alarm,
            kick: KickSlot::default(),
            polls_us: Histogram::default(),
            turns_us: Histogram::default(),
            lag_us: Histogram::default(),
            parked_us: Histogram::default(),
            busy_ns: AtomicU64::new(0),
            stalls: Mutex::new(BTreeMap::new()),
        }
    }

    pub(super) fn has_runnable(&self) -> bool {
        self.runnable.load(Ordering::SeqCst) > 0
    }

    /// Nanoseconds of the runtime's clock since which runnable tasks have waited with none being polled.
    pub(super) fn waiting_since(&self) -> u64 {
        let woken = self.runnable_since.load(Ordering::Acquire);
        woken.max(self.polled_at.load(Ordering::Acquire))
    }

    /// A moment on the runtime's clock, nanoseconds.
    pub(super) fn clock(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn polls(&self) -> u64 {
        self.polls.load(Ordering::Relaxed)
    }

    pub(super) fn read(&self) -> PulseImage {
        let mut stalls: Vec<_> = {
            let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
            stalls.iter().map(|(place, stall)| (*place, *stall)).collect()
        };
        stalls.sort_by_key(|(_, stall)| std::cmp::Reverse(stall.total_us));
        PulseImage {
            shard: self.shard,
            runnable: u64::try_from(self.runnable.load(Ordering::Relaxed)).unwrap_or(0),
            polls: self.polls(),
            busy_us: self.busy_ns.load(Ordering::Relaxed) / 1000,
            poll: self.polls_us.read(),
            turn: self.turns_us.read(),
            lag: self.lag_us.read(),
            parked: self.parked_us.read(),
            stalls,
        }
    }

    pub(super) fn stalled(&self, place: Place, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let mut stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        let place = if stalls.len() < PLACES_MAX || stalls.contains_key(&place) {
            place
        } else {
            Place::Others
        };
        let stall = stalls.entry(place).or_default();
        stall.count += 1;
        stall.total_us = stall.total_us.saturating_add(us);
        stall.max_us = stall.max_us.max(us);
    }
}

/// The shard's own side of the measuring: not `Send`, so its cells need no atomics.
pub(super) struct Meter {
    pub(super) pulse: Arc<Pulse>,
    turn_began: Cell<Option<Instant>>,
    poll_ended: Cell<Option<Instant>>,
}

impl Meter {
    pub(super) fn new(pulse: Arc<Pulse>) -> Self {
        Self {
            pulse,
            turn_began: Cell::new(None),
            poll_ended: Cell::new(None),
        }
    }

    /// How long the present turn has lasted.
    pub(super) fn turn_length(&self) -> Duration {
        self.turn_began
            .get()
            .map_or(Duration::ZERO, |began| began.elapsed())
    }

    fn poll_begins(&self, now: Instant) {
        if let (Some(began), Some(ended)) = (self.turn_began.get(), self.poll_ended.get()) {
            if now.saturating_duration_since(ended) < TURN_GAP {
                return;
            }
            self.pulse.turns_us.record(ended.saturating_duration_since(began));
        }
        self.turn_began.set(Some(now));
    }

    fn poll_ends(&self, began: Instant, place: Place) {
        let now = Instant::now();
        self.poll_ended.set(Some(now));
        let took = now.saturating_duration_since(began);
        self.pulse
            .polled_at
            .store(self.pulse.clock(now), Ordering::Release);
        add(&self.pulse.polls, 1);
        add(
            &self.pulse.busy_ns,
            u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
        );
        self.pulse.polls_us.record(took);
        if took >= STALL_MIN {
            self.pulse.stalled(place, took);
        }
    }
}

/// Set while a wake of the task has not been followed by a poll.
const QUEUED: u8 = 1;
/// Set when the task has ended.
const ENDED: u8 = 2;

/// The waker of a tracked task. `Send`: other shards and side threads hold it.
struct TaskWaker {
    flags: AtomicU8,
    /// The executor's waker of this task: always the same one, known from the first poll on.
    executor: OnceLock<Waker>,
    pulse: Arc<Pulse>,
}

impl TaskWaker {
    fn queued(&self) {
        let pulse = &*self.pulse;
        if pulse.runnable.load(Ordering::Relaxed) <= 0 {
            pulse
                .runnable_since
                .store(pulse.clock(Instant::now()), Ordering::Release);
        }
        pulse.runnable.fetch_add(1, Ordering::SeqCst);
        pulse.alarm.raise();
    }

    fn polled(&self, executor: &Waker) {
        let known = self.executor.get_or_init(|| executor.clone());
        debug_assert!(known.will_wake(executor), "a task keeps its waker");
        if self.flags.fetch_and(!QUEUED, Ordering::AcqRel) & QUEUED != 0 {
            self.pulse.runnable.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn ended(&self) {
        if self.flags.swap(ENDED, Ordering::AcqRel) & QUEUED != 0 {
            self.pulse.runnable.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A read-modify-write even when the bit is set: what the waker did before is then visible to the poll that clears it.
        if self.flags.fetch_or(QUEUED, Ordering::AcqRel) == 0 {
            self.queued();
            if let Some(executor) = self.executor.get() {
                executor.wake_by_ref();
            }
        }
    }
}

/// `future` as a task of the shard: counted while it is runnable, timed while it is polled, and fatal to the process if
/// it panics (trap D6: the unwinding would take the executor's thread and every partition of the core with it).
#[track_caller]
pub(super) fn tracked(meter: Rc<Meter>, future: impl Future<Output = ()>) -> impl Future<Output = ()> {
    let spawned = Location::caller();
    let place = Place::Task(spawned.file(), spawned.line());
    let task = Arc::new(TaskWaker {
        // Queued from the start: a task that was spawned and not yet polled is work, too.
        flags: AtomicU8::new(QUEUED),
        executor: OnceLock::new(),
        pulse: meter.pulse.clone(),
    });
    task.queued();
    async move {
        let waker = Waker::from(task.clone());
        let mut future = pin!(future);
        poll_fn(|cx| {
            task.polled(cx.waker());
            let began = Instant::now();
            meter.poll_begins(began);
            let mut own = Context::from_waker(&waker);
            let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut own)));
            meter.poll_ends(began, place);
            match polled {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(())) => {
                    task.ended();
                    Poll::Ready(())
                }
                Err(panic) => stop_process(meter.pulse.shard, place, &*panic),
            }
        })
        .await;
    }
}
