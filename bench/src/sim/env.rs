//! The simulator's side of the seam [`Env`]: virtual time, the seeded schedule, and a wall clock that runs with it.

use std::future::Future;
use std::time::Duration;

use shard::env::{Env, Instant, WallMs};
use storage::sim_executor::SimHandle;

/// Wall-clock time at virtual time zero, milliseconds since 1970.
pub const EPOCH_MS: i64 = 1_700_000_000_000;

/// One shard's surroundings in the simulation.
#[derive(Clone)]
pub struct SimEnv(SimHandle);

impl SimEnv {
    /// The surroundings of a shard whose process is that of `handle`.
    #[must_use]
    pub fn new(handle: SimHandle) -> Self {
        Self(handle)
    }
}

impl Env for SimEnv {
    fn now(&self) -> Instant {
        Instant(self.0.now_ns())
    }

    fn wall(&self) -> WallMs {
        WallMs(EPOCH_MS + i64::try_from(self.0.now_ns() / 1_000_000).unwrap_or(0))
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        // Dropping the handle of a task leaves it running.
        drop(self.0.spawn(task));
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> {
        self.0.sleep(duration)
    }

    fn yield_to_reactor(&self) -> impl Future<Output = ()> {
        self.0.yield_now()
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}
