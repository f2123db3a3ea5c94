//! How lives end and what the disk does meanwhile, and the planted bugs that the checks must see.

use std::any::Any;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

use storage::disk::sim::{DiskOp, SimDiskConfig, SimFault};
use storage::sim_rng::SimRng;

use super::flips::{Fate, flip_somewhere, look};
use super::life::Plan;
use super::world::{End, World};

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, for the table.
    pub what: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    EveryWrite(End),
    Ends { power_losses: u32, classes: bool },
    FullDisk,
    WriteErrors,
    ReadErrors,
    SlowDisk,
    Flips,
}

/// All rows.
pub const SCENARIOS: [Scenario; 10] = [
    Scenario {
        name: "every-write-power",
        what: "a power loss at every single write",
        kind: Kind::EveryWrite(End::PowerLoss),
    },
    Scenario {
        name: "every-write-kill",
        what: "kill -9 at every single write",
        kind: Kind::EveryWrite(End::Kill),
    },
    Scenario {
        name: "power-loss",
        what: "four power losses, also during recovery",
        kind: Kind::Ends {
            power_losses: 1_000_000,
            classes: false,
        },
    },
    Scenario {
        name: "mixed-ends",
        what: "four ends, power losses and kill -9, also during recovery",
        kind: Kind::Ends {
            power_losses: 600_000,
            classes: false,
        },
    },
    Scenario {
        name: "classes",
        what: "the same, topics of all durability classes, which change",
        kind: Kind::Ends {
            power_losses: 500_000,
            classes: true,
        },
    },
    Scenario {
        name: "full-disk",
        what: "the disk fills, also before a start",
        kind: Kind::FullDisk,
    },
    Scenario {
        name: "write-errors",
        what: "a write, sync, rename or the like fails",
        kind: Kind::WriteErrors,
    },
    Scenario {
        name: "read-errors",
        what: "reads fail, during recovery too",
        kind: Kind::ReadErrors,
    },
    Scenario {
        name: "slow-disk",
        what: "one operation in twenty takes 400 times as long",
        kind: Kind::SlowDisk,
    },
    Scenario {
        name: "bit-flips",
        what: "a bit flips in a segment, journal, index, snapshot, epoch or checkpoint file",
        kind: Kind::Flips,
    },
];

/// A planted bug: an operation that is left out although the code believes it done.
#[derive(Clone, Copy, Debug)]
pub struct Planted {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is left out.
    pub what: &'static str,
    /// The scenario that finds it.
    pub scenario: &'static str,
    op: DiskOp,
    path: &'static str,
}

/// Bugs that the checks must find.
pub const PLANTED: [Planted; 6] = [
    Planted {
        name: "journal-sync",
        what: "the sync of a journal file after a commit",
        scenario: "power-loss",
        op: DiskOp::Sync,
        path: "/journal/",
    },
    Planted {
        name: "segment-sync",
        what: "the sync of a segment after a direct write",
        scenario: "power-loss",
        op: DiskOp::Sync,
        path: ".log",
    },
    Planted {
        name: "checkpoint-syncfs",
        what: "the sync of the file system before a checkpoint",
        scenario: "power-loss",
        op: DiskOp::SyncFilesystem,
        path: "/data",
    },
    Planted {
        name: "checkpoint-rename",
        what: "the rename that puts a checkpoint in its place",
        scenario: "mixed-ends",
        op: DiskOp::Rename,
        path: "/checkpoints/",
    },
    Planted {
        name: "checkpoint-sync-dir",
        what: "the sync of the checkpoints' directory after the rename",
        scenario: "power-loss",
        op: DiskOp::SyncDir,
        path: "/checkpoints",
    },
    Planted {
        name: "compaction-sync",
        what: "the sync of a compacted segment before it takes the place of others",
        scenario: "power-loss",
        op: DiskOp::Sync,
        path: ".cleaned",
    },
];

/// What a seed did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ends of lives that were followed by a recovery and a check.
    pub crash_points: u64,
    /// Lives.
    pub lives: u64,
    /// Lives that ended because the disk refused something.
    pub refused: u64,
    /// Batches sent.
    pub batches: u64,
    /// What became of flipped bits.
    pub fates: BTreeMap<Fate, u64>,
}

impl Tally {
    /// Adds another's.
    pub fn add(&mut self, other: &Self) {
        self.crash_points += other.crash_points;
        self.lives += other.lives;
        self.refused += other.refused;
        self.batches += other.batches;
        for (fate, count) in &other.fates {
            *self.fates.entry(*fate).or_default() += count;
        }
    }

    fn of(world: &World, crash_points: u64) -> Self {
        let batches = world
            .model
            .borrow()
            .logs
            .iter()
            .map(|log| log.batches.len() as u64)
            .sum();
        Self {
            crash_points,
            lives: world.lives,
            refused: world.refused,
            batches,
            fates: BTreeMap::new(),
        }
    }
}

/// Runs one seed of a scenario.
///
/// # Errors
/// What was violated.
pub fn run_seed(scenario: Scenario, seed: u64, planted: Option<&Planted>) -> Result<Tally, String> {
    let fault = planted.map(|planted| SimFault::skip(planted.op, planted.path));
    let run = || match scenario.kind {
        Kind::EveryWrite(end) => every_write(seed, end, fault.as_ref()),
        Kind::Ends {
            power_losses,
            classes,
        } => ends(seed, power_losses, classes, fault.as_ref()),
        Kind::FullDisk => full_disk(seed),
        Kind::WriteErrors => write_errors(seed),
        Kind::ReadErrors => read_errors(seed),
        Kind::SlowDisk => slow_disk(seed),
        Kind::Flips => flips(seed),
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

fn plan(rng: &mut SimRng) -> Plan {
    let plan = Plan {
        operations: 60,
        shards: rng.between(1, 3) as u16,
        stops_cleanly: rng.coin(),
        rests: false,
        mixes_classes: false,
        changes_topics: true,
        compacts: true,
        fills_journal: false,
        may_be_refused: false,
    };
    Plan {
        fills_journal: rng.clone().coin(), // a copy: what seeds do beside it stays what it was
        ..plan
    }
}

/// A plan for a disk that refuses something.
fn faulty(rng: &mut SimRng) -> Plan {
    Plan {
        may_be_refused: true,
        ..plan(rng)
    }
}

fn every_write(seed: u64, end: End, planted: Option<&SimFault>) -> Tally {
    let mut tally = Tally::default();
    let small = |rng: &mut SimRng| Plan {
        operations: 30,
        ..plan(rng)
    };
    let mut crash = |at: Option<u64>| {
        let mut rng = SimRng::new(seed, "every write");
        let mut world = World::new(SimDiskConfig::seeded(seed), planted);
        let (_, mutations) = world.life(small(&mut rng), at, end);
        if at.is_some() {
            world.life(small(&mut rng), None, End::Kill);
            tally.add(&Tally::of(&world, 1));
        }
        mutations
    };
    let mutations = crash(None);
    for at in 1..=mutations {
        crash(Some(at));
    }
    tally
}

fn ends(seed: u64, power_losses: u32, classes: bool, planted: Option<&SimFault>) -> Tally {
    let mut rng = SimRng::new(seed, "ends");
    let mut world = World::new(SimDiskConfig::seeded(seed), planted);
    let classed = |rng: &mut SimRng| Plan {
        mixes_classes: classes,
        ..plan(rng)
    };
    for number in 0..4 {
        // Every other life ends during recovery, or soon after.
        let most = if number % 2 == 1 { 40 } else { 300 };
        let at = rng.between(1, most);
        let end = if rng.chance(power_losses) {
            End::PowerLoss
        } else {
            End::Kill
        };
        world.life(classed(&mut rng), Some(at), end);
    }
    world.life(classed(&mut rng), None, End::Kill);
    world.life(classed(&mut rng), None, End::Kill);
    Tally::of(&world, 5)
}

fn full_disk(seed: u64) -> Tally {
    let mut rng = SimRng::new(seed, "full disk");
    let mut world = World::new(SimDiskConfig::seeded(seed), None);
    for _ in 0..3 {
        let free = rng.between(0, 3 << 20);
        let used = world.disk().used_bytes();
        world
            .disk()
            .configure(|config| config.capacity_bytes = used + free);
        world.life(faulty(&mut rng), None, End::Kill);
        if rng.coin() {
            let more = rng.between(0, 64 << 10);
            let used = world.disk().used_bytes();
            world
                .disk()
                .configure(|config| config.capacity_bytes = used + more);
            world.life(faulty(&mut rng), None, End::Kill);
        }
        world.disk().configure(|config| config.capacity_bytes = 1 << 40);
        let end = if rng.coin() { End::PowerLoss } else { End::Kill };
        let at = rng.between(1, 300);
        world.life(faulty(&mut rng), Some(at), end);
    }
    world.life(faulty(&mut rng), None, End::Kill);
    let lives = world.lives;
    Tally::of(&world, lives - 1)
}

fn write_errors(seed: u64) -> Tally {
    const OPERATIONS: [DiskOp; 10] = [
        DiskOp::Write,
        DiskOp::Sync,
        DiskOp::SyncDir,
        DiskOp::SyncFilesystem,
        DiskOp::Rename,
        DiskOp::Allocate,
        DiskOp::Truncate,
        DiskOp::Create,
        DiskOp::CreateDir,
        DiskOp::RemoveFile,
    ];
    let mut rng = SimRng::new(seed, "write errors");
    let mut world = World::new(SimDiskConfig::seeded(seed), None);
    for _ in 0..4 {
        let op = OPERATIONS[rng.index(OPERATIONS.len())];
        let after = rng.between(0, if op == DiskOp::Write { 120 } else { 12 }) as u32;
        let fault = SimFault::error(op, "/data", ErrorKind::Other)
            .after(after)
            .times(1);
        world.disk().add_fault(fault);
        let end = if rng.coin() { End::PowerLoss } else { End::Kill };
        world.life(faulty(&mut rng), None, end);
        world.clear_faults();
    }
    world.life(faulty(&mut rng), None, End::Kill);
    Tally::of(&world, 4)
}

fn read_errors(seed: u64) -> Tally {
    let mut rng = SimRng::new(seed, "read errors");
    let mut world = World::new(SimDiskConfig::seeded(seed), None);
    for _ in 0..3 {
        let at = rng.between(60, 400);
        let end = if rng.coin() { End::PowerLoss } else { End::Kill };
        world.life(faulty(&mut rng), Some(at), end);
        world.disk().configure(|config| config.read_error_ppm = 30_000);
        let at = rng.between(60, 400);
        world.life(faulty(&mut rng), Some(at), End::Kill);
        world.disk().configure(|config| config.read_error_ppm = 0);
    }
    world.life(faulty(&mut rng), None, End::Kill);
    Tally::of(&world, 6)
}

fn slow_disk(seed: u64) -> Tally {
    let mut config = SimDiskConfig::seeded(seed);
    config.latency.slow_ppm = 50_000;
    config.latency.slow_factor = 400;
    let mut rng = SimRng::new(seed, "slow disk");
    let mut world = World::new(config, None);
    for _ in 0..3 {
        let at = rng.between(1, 300);
        let end = if rng.coin() { End::PowerLoss } else { End::Kill };
        world.life(plan(&mut rng), Some(at), end);
    }
    world.life(plan(&mut rng), None, End::Kill);
    Tally::of(&world, 3)
}

fn flips(seed: u64) -> Tally {
    let mut rng = SimRng::new(seed, "flips");
    let mut world = World::new(SimDiskConfig::seeded(seed), None);
    // Where a bit flips in a log that is compacted, another one may be read.
    let plain = |rng: &mut SimRng| Plan {
        compacts: false,
        ..plan(rng)
    };
    world.life(plain(&mut rng), None, End::Kill);
    let rested = Plan {
        rests: true,
        stops_cleanly: rng.chance(300_000),
        ..plain(&mut rng)
    };
    let end = if rng.coin() { End::PowerLoss } else { End::Kill };
    world.life(rested, None, end);
    let Some(flipped) = flip_somewhere(world.disk(), &mut rng) else {
        return Tally::of(&world, 1);
    };
    let model = world.model.borrow().clone();
    let fate = world.look(async |disk| look(disk, &model, &flipped).await);
    let mut tally = Tally::of(&world, 2);
    tally.fates.insert(fate, 1);
    tally
}
