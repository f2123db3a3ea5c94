//! The seam between a shard's drivers and what surrounds them: clocks, tasks, timers, randomness. glommio fills it in
//! `runtime/`; the simulator (`bench/src/sim`) fills it with virtual time and a seeded schedule. State machines never
//! see it: they get `now` as a parameter.

use std::future::Future;
use std::time::Duration;

/// Monotonic time, nanoseconds since an arbitrary start. The only time deadlines are made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Instant(pub u64);

/// Wall-clock time, milliseconds since the Unix epoch. The only time records and configurations are made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WallMs(pub i64);

/// What a shard's drivers need from the executor they run on. Cheap to clone; one per shard; not `Send`.
pub trait Env: Clone + 'static {
    /// Monotonic time now.
    fn now(&self) -> Instant;
    /// Wall-clock time now.
    fn wall(&self) -> WallMs;
    /// Starts a task on this shard. It runs to its end or until the process stops; it is never cancelled (glommio
    /// trap D4). It is only queued: it first runs after the caller has awaited. A panic in it ends the process. Its place in
    /// the source names it in the stall report.
    #[track_caller]
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
    /// Starts a task that gets the core only when the others leave it some (compaction, scrubbing, index building). It
    /// awaits [`Env::yield_to_reactor`] each 100 to 200 microseconds of work.
    #[track_caller]
    fn spawn_background(&self, task: impl Future<Output = ()> + 'static) {
        self.spawn(task);
    }
    /// Ends after `duration`.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;
    /// Lets the reactor look at I/O, timers and messages before going on (glommio trap D7).
    fn yield_to_reactor(&self) -> impl Future<Output = ()>;
    /// Lets the reactor look if this shard has not let it for a while, else goes on at once: what a loop over requests or
    /// messages awaits after each batch. A reactor turn costs as much as a small request.
    fn breathe(&self) -> impl Future<Output = ()> {
        self.yield_to_reactor()
    }
    /// Runs `work`, which may take milliseconds, where it holds up nobody of this shard: on a thread of its own where there
    /// is one.
    fn aside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> impl Future<Output = R> {
        async {
            self.yield_to_reactor().await;
            work()
        }
    }
    /// 64 random bits: seeded in the simulator. Not for secrets.
    fn random(&self) -> u64;
    /// Runs `work`, and blames `name` if it held the core too long.
    fn section<R>(&self, _name: &'static str, work: impl FnOnce() -> R) -> R {
        work()
    }
}

impl Instant {
    /// Later than anything: no deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// This instant moved by `duration`.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// The time from `earlier` to this, zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}
