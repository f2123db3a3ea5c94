//! The clock and the rest of a cleaner in a simulation.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use storage::compaction::run::Pace;
use storage::sim_executor::SimHandle;

const NOW_MS: i64 = 1_700_000_000_000;

/// The wall clock stands.
#[derive(Clone)]
pub struct SimPace {
    pub handle: SimHandle,
    /// Milliseconds since 1970; goes forward when a test says so.
    pub wall_ms: Rc<Cell<i64>>,
}

impl SimPace {
    pub fn new(handle: &SimHandle) -> Self {
        Self {
            handle: handle.clone(),
            wall_ms: Rc::new(Cell::new(NOW_MS)),
        }
    }
}

impl Pace for SimPace {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.handle.now().as_nanos()).expect("a short run")
    }

    fn wall_ms(&self) -> i64 {
        self.wall_ms.get()
    }

    async fn sleep_ns(&self, ns: u64) {
        self.handle.sleep(Duration::from_nanos(ns)).await;
    }

    async fn breathe(&self) {
        futures_lite::future::yield_now().await;
    }

    async fn aside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        self.breathe().await;
        work()
    }
}
