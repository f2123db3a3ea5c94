//! A real ext4 file system that two stores of one log directory fill through io_uring and direct I/O, with blocks allocated ahead: after
//! a stop in order and after an end without one the next start recovers, has what was acknowledged, and goes on. It needs root for the
//! mount; without, the test says on standard error that it was skipped.
#![cfg(feature = "direct")]

mod common;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{PLAIN, batch, commit_loop, housekeeping_loop, log_id, read_log};
use futures_lite::future::{or, yield_now, zip};
use storage::disk::direct::{DirectDisk, run_with_disk};
use storage::error::AppendError;
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::notify::join_all;
use storage::recovery::recover_journals;
use storage::recovery::room::make_room_for_stores;
use storage::sim_rng::SimRng;
use storage::space::shared::DirSpace;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const SHARDS: u16 = 2;

/// Client batches refused in a row until the volume counts as full.
const REFUSALS_MAX: u32 = 100;

/// A loop-mounted ext4; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, mib: u64) -> Option<Self> {
        fs::create_dir_all(at).expect("a directory");
        let image = at.with_extension("image");
        let file = fs::File::create(&image).expect("an image");
        file.set_len(mib << 20).expect("its size");
        let run = |program: &str, arguments: &[&str], last: Option<&Path>| {
            let mut command = Command::new(program);
            command.args(arguments).arg(&image).args(last);
            command.output().is_ok_and(|output| output.status.success())
        };
        if run("mkfs.ext4", &["-q", "-m", "0"], None) && run("mount", &["-o", "loop"], Some(at)) {
            return Some(Self(at.to_owned()));
        }
        let _ = writeln!(std::io::stderr(), "SKIPPED: no small ext4 for a full disk");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A volume and what is asked of it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    mib: u64,
    logs: u8,
    reserve_bytes: Option<u64>,
    journal_bytes: u64,
}

fn options(plan: Plan) -> StoreOptions {
    StoreOptions {
        shards: SHARDS,
        reserve_bytes: plan.reserve_bytes,
        journal: JournalOptions {
            file_bytes: plan.journal_bytes,
            files_max: 4,
        },
        ..StoreOptions::default()
    }
}

/// What runs beside the appends.
type Loops = Vec<Pin<Box<dyn Future<Output = ()>>>>;

struct Life {
    stores: Vec<Rc<Store<DirectDisk>>>,
    logs: Vec<(usize, LogRef)>,
}

/// Starts on what is there, which must not fail, and holds it against what was acknowledged.
async fn start(disk: &DirectDisk, dir: &Path, plan: Plan, acknowledged: &mut [Offset]) -> (Life, Loops) {
    recover_journals(disk, dir, |_, _| {}).await.expect("journals");
    let space: Arc<DirSpace> = Arc::default();
    let journal = options(plan).journal;
    make_room_for_stores(disk, dir, SHARDS, journal, &space)
        .await
        .expect("room");
    let mut life = Life {
        stores: Vec::new(),
        logs: Vec::new(),
    };
    let mut loops = Loops::new();
    for shard in 0..SHARDS {
        let store = Store::open_beside(disk.clone(), dir, shard, options(plan), &space).await;
        let store = store.expect("a store");
        for _ in 0..2 {
            loops.push(Box::pin(commit_loop(Rc::clone(&store), Rc::default())));
        }
        loops.push(Box::pin(housekeeping_loop(Rc::clone(&store))));
        let watched = Rc::clone(&store);
        loops.push(Box::pin(async move {
            for second in 0.. {
                watched.watch_space(second * 1000).await;
                sleep(Duration::from_secs(1)).await;
            }
        }));
        life.stores.push(store);
    }
    for (number, acknowledged) in (0u8..).zip(acknowledged) {
        let at = usize::from(number) % life.stores.len();
        let store = &life.stores[at];
        let config = LogConfig {
            segment_bytes: 16 << 20,
            file_delete_delay_ms: 0,
            ..LogConfig::default()
        };
        let opened = store
            .open_log(log_id(number), &format!("t{number}"), config, NOW_MS)
            .await;
        let log = opened.unwrap_or_else(|error| panic!("log {number}: {error}"));
        let offsets = store.offsets(log).expect("open");
        assert!(
            offsets.log_end >= *acknowledged,
            "log {number}: {acknowledged} acknowledged, {offsets:?}"
        );
        read_log(store, log, offsets.log_end, 1 << 20).await; // checks every CRC
        *acknowledged = offsets.log_end;
        life.logs.push((at, log));
    }
    (life, loops)
}

/// Without a timer of the runtime's: the others get their turns meanwhile.
async fn sleep(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        yield_now().await;
    }
}

impl Life {
    /// Appends until nothing is taken any more; returns how many bytes were.
    async fn fill(&self, rng: &mut SimRng) -> usize {
        let (mut refusals, mut taken) = (0, 0);
        for round in 0u32.. {
            let (at, log) = self.logs[rng.index(self.logs.len())];
            let size = [300, 4_000, 60_000, 400_000, 900_000][rng.index(5)];
            let append = AppendBatch::from_client(batch(1, size, NOW_MS, PLAIN, round as u8), LeaderEpoch(0));
            match self.stores[at].append(log, append, NOW_MS) {
                Ok(_) => (refusals, taken) = (0, taken + size),
                Err(AppendError::Full) => {
                    refusals += 1;
                    sleep(Duration::from_millis(15)).await;
                }
                Err(AppendError::Backlog { .. }) => sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
            if round % 16 == 0 {
                sleep(Duration::from_micros(rng.between(100, 3000))).await;
            }
            if refusals > REFUSALS_MAX {
                return taken;
            }
        }
        unreachable!("it fills");
    }

    fn note(&self, acknowledged: &mut [Offset]) {
        for ((at, log), acknowledged) in self.logs.iter().zip(acknowledged) {
            *acknowledged = self.stores[*at].offsets(*log).expect("open").durable_end;
        }
    }
}

/// `lives` on one volume, each but the first begun on a full one; how many bytes were taken in all.
fn lives(seed: u64, plan: Plan, lives: u64) -> Option<usize> {
    let root = tempfile::tempdir().expect("a directory");
    let dir = root.path().join("data");
    let _mounted = Mounted::new(&dir, plan.mib)?;
    let mut acknowledged = vec![Offset::ZERO; usize::from(plan.logs)];
    let mut all = 0;
    for number in 0..lives {
        let path = dir.clone();
        let mut known = acknowledged.clone();
        let ended = run_with_disk(&dir, move |disk| async move {
            let mut rng = SimRng::new(seed * 100 + number, "full direct");
            let (life, loops) = start(&disk, &path, plan, &mut known).await;
            let work = async {
                let mut taken = life.fill(&mut rng).await;
                for store in &life.stores {
                    assert_eq!(store.offline_reason(), None);
                }
                if number % 3 == 2 {
                    // What is deleted makes space, and appends go on by themselves.
                    let (at, log) = life.logs[rng.index(life.logs.len())];
                    let to = life.stores[at].offsets(log).expect("open").durable_end;
                    life.stores[at].delete_records(log, to).await.expect("deleted");
                    sleep(Duration::from_millis(1500)).await;
                    taken += life.fill(&mut rng).await;
                }
                if rng.coin() {
                    let closed = zip(life.stores[0].close(), life.stores[1].close()).await;
                    assert!(
                        closed.0.is_ok() && closed.1.is_ok(),
                        "a stop in order: {closed:?}"
                    );
                }
                life.note(&mut known);
                taken
            };
            let beside = async {
                join_all(loops).await;
                panic!("a store went offline");
            };
            let taken = or(work, beside).await;
            (known, taken)
        });
        let (known, taken) = ended.expect("the run");
        acknowledged = known;
        all += taken;
    }
    Some(all)
}

#[test]
fn a_real_volume_that_its_logs_have_filled_starts_again_ten_times() {
    let plan = Plan {
        mib: 128,
        logs: 12,
        reserve_bytes: Some(4 << 20),
        journal_bytes: 8 << 20,
    };
    if let Some(taken) = lives(1, plan, 10) {
        assert!(taken > 50 << 20, "{taken} bytes");
    }
}

/// More than these: `PENSTOCK_FULL_TRIES=50 cargo test -p storage --test full_direct -- --nocapture many`.
#[test]
#[allow(clippy::print_stdout, reason = "its figures")]
fn many_real_volumes() {
    let tries = std::env::var("PENSTOCK_FULL_TRIES").map_or(2, |text| text.parse().expect("a number"));
    let mut failed = 0;
    for seed in 0..tries {
        let plan = Plan {
            mib: [200, 400][seed as usize % 2],
            logs: [1, 4, 20, 60, 200][seed as usize % 5],
            reserve_bytes: [Some(4 << 20), None, Some(16 << 20)][seed as usize % 3],
            journal_bytes: [8 << 20, 32 << 20][seed as usize / 2 % 2],
        };
        let outcome = std::panic::catch_unwind(|| lives(seed, plan, 3));
        failed += usize::from(outcome.is_err());
        println!("{seed}: {plan:?}: {:?}", outcome.map_err(|_| "FAILED"));
    }
    println!("{failed} of {tries} volumes failed");
    assert_eq!(failed, 0);
}
