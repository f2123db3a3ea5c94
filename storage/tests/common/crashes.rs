//! Lives of a store that end in crashes, on one simulated disk: by power loss, where what is not synced may be lost, torn or out of
//! order, and by kill -9, where it is not. Which seeds are tried, and which of them fail.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_lite::future::or;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    PowerLoss,
    Kill,
}

impl End {
    /// The disk as the next life finds it.
    pub fn restart(self, disk: &SimDisk, handle: &SimHandle) -> SimDisk {
        match self {
            Self::PowerLoss => disk.restart(handle),
            Self::Kill => disk.restart_after_kill(handle),
        }
    }
}

/// Runs lives that crash at the given mutations, then one that must go through. `ended` is told of each crash. Returns the
/// mutations of the last life.
pub fn lives(
    seed: u64,
    config: SimDiskConfig,
    crashes: &[(u64, End)],
    life: impl AsyncFn(SimHandle, SimDisk, SimRng),
    ended: impl Fn(End),
) -> u64 {
    let mut executor = SimExecutor::new(seed);
    let mut disk = SimDisk::new(&executor.handle(), config);
    for (index, (at, end)) in crashes.iter().enumerate() {
        disk.crash_after(*at);
        let rng = SimRng::new(seed + index as u64, "workload");
        let work = life(executor.handle(), disk.clone(), rng);
        executor.block_on(or(or(work, disk.crashed()), too_long(executor.handle())));
        drop(executor);
        executor = SimExecutor::new(seed * 1000 + index as u64);
        ended(*end);
        disk = end.restart(&disk, &executor.handle());
    }
    let rng = SimRng::new(seed + 500, "workload");
    let work = life(executor.handle(), disk.clone(), rng);
    executor.block_on(or(work, too_long(executor.handle())));
    disk.mutations()
}

/// A life of a few hundred operations takes well under a minute of virtual time; one that hangs ends here.
pub async fn too_long(handle: SimHandle) {
    handle.sleep(Duration::from_secs(60)).await;
    panic!("the workload hangs");
}

/// Four crashes: the second and fourth in recovery or soon after, the others within the first `at_max` mutations.
pub fn four_crashes(rng: &mut SimRng, at_max: u64) -> Vec<(u64, End)> {
    let crash = |index| {
        let at = rng.between(1, if index % 2 == 1 { 30 } else { at_max });
        let is_kill = rng.chance(300_000);
        (at, if is_kill { End::Kill } else { End::PowerLoss })
    };
    (0..4).map(crash).collect()
}

/// Seeds to try from 100 on: so many, unless the environment asks for another number (PENSTOCK_CRASH_SEEDS=8000 looks longer than
/// CI does) or for one seed (PENSTOCK_CRASH_SEED=1234).
pub fn seeds(default: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("PENSTOCK_CRASH_SEED") {
        return seed..seed + 1;
    }
    100..100 + number("PENSTOCK_CRASH_SEEDS").unwrap_or(default)
}

/// Runs `one` for each seed and names those that fail.
pub fn for_each_seed(seeds: Range<u64>, one: impl Fn(u64)) {
    let failed: Vec<u64> = seeds
        .filter(|seed| catch_unwind(AssertUnwindSafe(|| one(*seed))).is_err())
        .collect();
    assert!(failed.is_empty(), "run with PENSTOCK_CRASH_SEED: {failed:?}");
}
