//! A machine with a simulated disk over several lives of the process, each on an executor of its own.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use futures_lite::future::or;
use storage::disk::sim::{SimDisk, SimDiskConfig, SimFault};
use storage::sim_executor::SimExecutor;
use storage::sim_rng::SimRng;

use super::life::{Ending, Plan, live};
use super::model::Model;

/// A life takes well under a minute of virtual time, on a slow disk a few.
const LIFE_MAX: Duration = Duration::from_secs(1200);

/// How a life ends from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What was not synced is lost, torn and reordered.
    PowerLoss,
    /// What the kernel has stays.
    Kill,
}

/// See the module.
pub struct World {
    seed: u64,
    executor: Option<SimExecutor>,
    disk: SimDisk,
    /// What was sent, over all lives.
    pub model: Rc<RefCell<Model>>,
    planted: Option<SimFault>,
    /// Lives so far.
    pub lives: u64,
    /// Lives that the disk ended by refusing something.
    pub refused: u64,
}

impl World {
    /// A machine with an empty disk; `planted` is a bug that stays.
    pub fn new(config: SimDiskConfig, planted: Option<&SimFault>) -> Self {
        let seed = config.seed;
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), config);
        let world = Self {
            seed,
            executor: Some(executor),
            disk,
            model: Rc::default(),
            planted: planted.cloned(),
            lives: 0,
            refused: 0,
        };
        world.clear_faults();
        world
    }

    /// The disk as the process sees it now.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Leaves the planted bug as the only fault.
    pub fn clear_faults(&self) {
        self.disk.clear_faults();
        if let Some(planted) = &self.planted {
            self.disk.add_fault(planted.clone());
        }
    }

    /// Runs a life and ends it by `end`, when the mutation `crash_at` is in flight if it gets so far. Returns how it ended by
    /// itself, and how many mutations it made.
    ///
    /// # Panics
    /// On a violation.
    pub fn life(&mut self, plan: Plan, crash_at: Option<u64>, end: End) -> (Option<Ending>, u64) {
        let executor = self.executor.take().expect("a life at a time");
        self.lives += 1;
        let rng = SimRng::new(self.seed.wrapping_mul(1000) + self.lives, "workload");
        if let Some(at) = crash_at {
            self.disk.crash_after(at);
        }
        let work = live(
            executor.handle(),
            self.disk.clone(),
            self.model.clone(),
            rng,
            plan,
        );
        let crashed = async {
            self.disk.crashed().await;
            None
        };
        let too_long = async {
            executor.handle().sleep(LIFE_MAX).await;
            panic!("the life hangs");
        };
        let ending = executor.block_on(or(or(async { Some(work.await) }, crashed), too_long));
        let mutations = self.disk.mutations();
        self.refused += u64::from(ending == Some(Ending::Offline));
        self.end(executor, end);
        (ending, mutations)
    }

    /// Runs something else as the process, which is then killed.
    pub fn look<T>(&mut self, look: impl AsyncFnOnce(SimDisk) -> T) -> T {
        let executor = self.executor.take().expect("a life at a time");
        self.lives += 1;
        let seen = executor.block_on(look(self.disk.clone()));
        self.end(executor, End::Kill);
        seen
    }

    fn end(&mut self, executor: SimExecutor, end: End) {
        drop(executor);
        let executor = SimExecutor::new(self.seed.wrapping_mul(7919) + self.lives);
        self.disk = match end {
            End::PowerLoss => {
                self.model.borrow_mut().lose_power();
                self.disk.restart(&executor.handle())
            }
            End::Kill => self.disk.restart_after_kill(&executor.handle()),
        };
        self.executor = Some(executor);
    }
}
