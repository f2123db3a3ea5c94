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

use super::histogram::Histogram;
use super::pulse::Pulse;
use super::urgent;

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
    /// `late` is filled with how late its ticks are: the scheduler's run delay of the ticker itself.
    pub(super) fn start(
        alarm: Arc<Alarm>,
        pulses: Vec<Arc<Pulse>>,
        tick: Duration,
        late: Arc<Histogram>,
    ) -> std::io::Result<Self> {
        let own = alarm.clone();
        let body = move || {
            let _ = own.thread.set(thread::current());
            urgent::make_urgent();
            let mut watches: Vec<_> = pulses.into_iter().map(Watch::new).collect();
            run(&own, &mut watches, tick, &late);
        };
        let thread = thread::Builder::new().name("ticker".into()).spawn(body)?;
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

fn run(alarm: &Alarm, watches: &mut [Watch], tick: Duration, late: &Histogram) {
    let mut idle_ticks = 0;
    while !alarm.stop.load(Ordering::SeqCst) {
        let now = Instant::now();
        let mut work = false;
        for watch in &mut *watches {
            work |= watch.look(now);
        }
        idle_ticks = if work { 0 } else { idle_ticks + 1 };
        if idle_ticks < IDLE_TICKS_MAX {
            // Not a sleep: the end of the runtime ends it, and a stale unpark only makes one tick early.
            thread::park_timeout(tick);
            late.record(now.elapsed().saturating_sub(tick));
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
            thread::park_timeout(tick);
        }
        idle_ticks = 0;
    }
}

/// What the ticker knows about one shard.
struct Watch {
    pulse: Arc<Pulse>,
    polls_seen: u64,
    last_kick: Option<Instant>,
    /// An executor found asleep with runnable tasks: since when, and for how long so far, nanoseconds.
    asleep: Option<(u64, u64)>,
    stat: Option<File>,
}

impl Watch {
    fn new(pulse: Arc<Pulse>) -> Self {
        Self {
            pulse,
            polls_seen: 0,
            last_kick: None,
            asleep: None,
            stat: None,
        }
    }

    fn has_work(&self) -> bool {
        self.pulse.has_runnable() || self.pulse.polls() != self.polls_seen
    }

    /// One tick: wakes the shard if it has, or had a tick ago, something to do. Returns whether it does.
    fn look(&mut self, now: Instant) -> bool {
        let runnable = self.pulse.has_runnable();
        let polls = self.pulse.polls();
        let progress = polls != self.polls_seen;
        self.polls_seen = polls;
        let since = self.pulse.waiting_since();
        let asleep = runnable && self.thread_sleeps() && self.pulse.has_runnable();
        self.account(asleep.then_some(since), now);
        let kick = &self.pulse.kick;
        let unanswered = kick.sent.load(Ordering::Relaxed) - kick.answered.load(Ordering::Acquire);
        if runnable || progress {
            // Also without a runnable task of ours: one that glommio keeps for itself may be the one that was left behind.
            self.kick(now, unanswered);
        }
        runnable || progress
    }

    fn kick(&mut self, now: Instant, unanswered: u64) {
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
            kick.sent_at.store(self.pulse.clock(now), Ordering::Release);
        }
        kick.sent.fetch_add(1, Ordering::Release);
        waker.wake_by_ref();
    }

    /// Keeps the account of time asleep with work, one entry for each time that it happened.
    fn account(&mut self, asleep_since: Option<u64>, now: Instant) {
        if let Some((since, so_far)) = self.asleep
            && asleep_since != Some(since)
        {
            self.pulse.parked_us.record(Duration::from_nanos(so_far));
        }
        self.asleep = asleep_since.map(|since| (since, self.pulse.clock(now).saturating_sub(since)));
    }

    /// Whether the executor's thread waits for an event, and neither runs nor waits for a core.
    fn thread_sleeps(&mut self) -> bool {
        let thread_id = self.pulse.thread_id.load(Ordering::Relaxed);
        if self.stat.is_none() && thread_id != 0 {
            self.stat = File::open(format!("/proc/self/task/{thread_id}/stat")).ok();
        }
        let Some(file) = &self.stat else { return false };
        let mut text = [0; 64];
        let length = file.read_at(&mut text, 0).unwrap_or(0);
        state_of(&text[..length]) == Some(b'S')
    }
}

/// The state letter of a `stat` file of `/proc`: the first field after the name, which is in parentheses and may hold any
/// character itself.
fn state_of(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|b| *b == b')')?;
    stat.get(name_end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_read_behind_whatever_name() {
        assert_eq!(state_of(b"12 (shard-0) S 1 1"), Some(b'S'));
        assert_eq!(state_of(b"12 (a) R (b) D 1 1"), Some(b'D'));
        assert_eq!(state_of(b"12 (cut"), None);
        assert_eq!(state_of(b"12 (a)"), None);
    }

    #[test]
    fn each_sleep_on_work_is_one_entry_of_its_full_length() {
        let epoch = Instant::now();
        let pulse = Arc::new(Pulse::new(
            crate::ids::ShardId(0),
            Arc::new(Alarm::default()),
            epoch,
        ));
        let mut watch = Watch::new(pulse.clone());
        let at = |ms: u64| epoch + Duration::from_millis(ms);
        let ms = |ms: u64| Some(ms * 1_000_000);
        watch.account(ms(10), at(12));
        watch.account(ms(10), at(17));
        watch.account(None, at(22));
        watch.account(ms(30), at(31));
        watch.account(ms(40), at(43));
        watch.account(None, at(48));
        let parked = pulse.read().parked;
        assert_eq!(
            (parked.count, parked.sum_us, parked.max_us),
            (3, 7_000 + 1_000 + 3_000, 7_000)
        );
    }
}
