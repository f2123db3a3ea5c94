//! The thread that keeps executors awake. glommio 0.9.0 can go to sleep with runnable tasks (trap D1): when its preemption
//! condition is set before the first queue of a turn runs, "nothing ran" is taken for "nothing to do". Only a foreign wake
//! helps: this thread looks each tick at the shards that have runnable tasks, wakes those, and measures how long that takes
//! to be answered. When all shards are idle it sleeps without a timer until a task of any shard becomes runnable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use super::pulse::Pulse;

/// Ticks without work anywhere after which the ticker sleeps.
const IDLE_TICKS_MAX: u32 = 3;

/// Unanswered kicks after which a shard is kicked once a second only: it is not asleep but busy or stopped, and each
/// kick waits in its queue (and on the executor's 16-bit count of wakers, trap D9).
const KICKS_UNANSWERED_MAX: u64 = 64;

/// Unanswered kicks after which there are no more: far below the 32,767 wakers that end the executor (trap D9).
const KICKS_UNANSWERED_END: u64 = 8_192;

/// Wakes the ticker from wherever a task becomes runnable.
#[derive(Default)]
pub(super) struct Alarm {
    asleep: AtomicBool,
    stop: AtomicBool,
    raised: AtomicU64,
    thread: OnceLock<Thread>,
}

impl Alarm {
    /// Called on every wake of a task, so it is one load unless the ticker sleeps.
    pub(super) fn raise(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.raised.fetch_add(1, Ordering::Relaxed);
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// The running ticker; stops when dropped.
pub(super) struct Ticker {
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    pub(super) fn start(
        alarm: Arc<Alarm>,
        pulses: Vec<Arc<Pulse>>,
        tick: Duration,
        epoch: Instant,
    ) -> std::io::Result<Self> {
        let own = alarm.clone();
        let thread = thread::Builder::new().name("ticker".into()).spawn(move || {
            let _ = own.thread.set(thread::current());
            let mut watches: Vec<_> = pulses.into_iter().map(Watch::new).collect();
            run(&own, &mut watches, tick, epoch);
        })?;
        Ok(Self {
            alarm,
            thread: Some(thread),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.alarm.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there has been printed by its thread; the shards run on without it until they stop.
            let _ = thread.join();
        }
    }
}

fn run(alarm: &Alarm, watches: &mut [Watch], tick: Duration, epoch: Instant) {
    let mut idle_ticks = 0;
    while !alarm.stop.load(Ordering::SeqCst) {
        let now = Instant::now();
        let mut work = false;
        for watch in &mut *watches {
            work |= watch.look(now, epoch);
        }
        idle_ticks = if work { 0 } else { idle_ticks + 1 };
        if idle_ticks < IDLE_TICKS_MAX {
            thread::sleep(tick);
            continue;
        }
        // Announce the sleep, then look again: a task that became runnable before the announcement is seen here, one
        // after it sees the announcement.
        alarm.asleep.store(true, Ordering::SeqCst);
        if watches.iter().any(Watch::has_work) || alarm.stop.load(Ordering::SeqCst) {
            alarm.asleep.store(false, Ordering::SeqCst);
        } else {
            while alarm.asleep.load(Ordering::SeqCst) && !alarm.stop.load(Ordering::SeqCst) {
                thread::park();
            }
            // The shard has just been given its work; it gets a tick before it is suspected.
            thread::sleep(tick);
        }
        idle_ticks = 0;
    }
}

/// What the ticker knows about one shard.
struct Watch {
    pulse: Arc<Pulse>,
    polls_seen: u64,
    last_kick: Option<Instant>,
    stuck: Option<Stuck>,
    schedule: Option<File>,
}

/// A shard that had runnable tasks and made no progress from one tick to the next.
struct Stuck {
    since: Instant,
    used: Schedule,
}

/// The scheduler's account of one thread (`schedstat`).
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Schedule {
    pub(super) on_cpu: Duration,
    pub(super) run_delay: Duration,
}

impl Watch {
    fn new(pulse: Arc<Pulse>) -> Self {
        Self {
            pulse,
            polls_seen: 0,
            last_kick: None,
            stuck: None,
            schedule: None,
        }
    }

    fn has_work(&self) -> bool {
        self.pulse.has_runnable() || self.pulse.polls() != self.polls_seen
    }

    /// One tick: wakes the shard if it has, or had a tick ago, something to do. Returns whether it does.
    fn look(&mut self, now: Instant, epoch: Instant) -> bool {
        let runnable = self.pulse.has_runnable();
        let polls = self.pulse.polls();
        let progress = polls != self.polls_seen;
        self.polls_seen = polls;
        self.judge(now, runnable && !progress);
        let kick = &self.pulse.kick;
        let unanswered = kick.sent.load(Ordering::Relaxed) - kick.answered.load(Ordering::Acquire);
        if runnable || progress {
            // Also without a runnable task of ours: one that glommio keeps for itself may be the one that was left behind.
            self.kick(now, epoch, unanswered);
        }
        runnable || progress
    }

    fn kick(&mut self, now: Instant, epoch: Instant, unanswered: u64) {
        let recently = self
            .last_kick
            .is_some_and(|at| now.saturating_duration_since(at) < Duration::from_secs(1));
        if unanswered >= KICKS_UNANSWERED_END || (unanswered >= KICKS_UNANSWERED_MAX && recently) {
            return;
        }
        let kick = &self.pulse.kick;
        let slot = kick
            .waker
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(waker) = &*slot else { return };
        self.last_kick = Some(now);
        if unanswered == 0 {
            let since_epoch = now.saturating_duration_since(epoch).as_nanos();
            kick.sent_at
                .store(u64::try_from(since_epoch).unwrap_or(u64::MAX), Ordering::Release);
        }
        kick.sent.fetch_add(1, Ordering::Release);
        waker.wake_by_ref();
    }

    /// Keeps the account of time asleep with work: from the first tick without progress to the first with it, less what
    /// the thread ran or waited for a core.
    fn judge(&mut self, now: Instant, stuck: bool) {
        match (&self.stuck, stuck) {
            (None, true) => {
                let used = self.read_schedule();
                self.stuck = Some(Stuck { since: now, used });
            }
            (Some(since), false) => {
                let elapsed = now.saturating_duration_since(since.since);
                let before = since.used;
                let after = self.read_schedule();
                let excused = after.on_cpu.saturating_sub(before.on_cpu)
                    + after.run_delay.saturating_sub(before.run_delay);
                self.pulse.parked_us.record(elapsed.saturating_sub(excused));
                self.stuck = None;
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    fn read_schedule(&mut self) -> Schedule {
        let thread_id = self.pulse.thread_id.load(Ordering::Relaxed);
        if self.schedule.is_none() && thread_id != 0 {
            self.schedule = File::open(format!("/proc/self/task/{thread_id}/schedstat")).ok();
        }
        self.schedule.as_ref().map(read_schedstat).unwrap_or_default()
    }
}

/// Reads a `schedstat` file: nanoseconds on a core, nanoseconds runnable but waiting for one. Zeroes where the kernel keeps none.
pub(super) fn read_schedstat(file: &File) -> Schedule {
    let mut text = [0; 96];
    let length = file.read_at(&mut text, 0).unwrap_or(0);
    let mut fields = text[..length].split(u8::is_ascii_whitespace).map(|field| {
        std::str::from_utf8(field)
            .ok()
            .and_then(|f| f.parse().ok())
            .unwrap_or(0)
    });
    Schedule {
        on_cpu: Duration::from_nanos(fields.next().unwrap_or(0)),
        run_delay: Duration::from_nanos(fields.next().unwrap_or(0)),
    }
}
