//! Logs that are acknowledged without a sync, on the simulated disk: what is older than their bounds survives a power
//! loss, whenever it comes, and a changed class or bound counts at once.

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use common::{
    PLAIN, append, batch, commit_loop, content, dir, housekeeping_loop, log_id, now_ms, open_store, read_log,
    sync_loop,
};
use futures_lite::future::or;
use storage::disk::Disk;
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, TracePhase};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::config::{Durability, LogConfig};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{Store, StoreOptions};
use storage::sync_schedule::IntervalBounds;
use storage::types::Offset;

const NOW_MS: i64 = 1_700_000_000_000;
const INTERVAL_MS: u64 = 40;
/// What a sync takes at most, the files of a rolled segment before it included.
const SYNC_MS_MAX: u64 = 20;

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 64 << 10,
        write_behind_bytes: 8 << 10,
        journal: JournalOptions {
            file_bytes: 96 << 10,
            files_max: 3,
        },
        interval: IntervalBounds {
            ms: INTERVAL_MS,
            bytes: 64 << 10,
        },
        ..StoreOptions::default()
    }
}

fn config(durability: Durability) -> LogConfig {
    LogConfig {
        segment_bytes: 150 << 10,
        durability,
        ..LogConfig::default()
    }
}

/// A disk whose operations never take twenty times as long, so that there is a bound to hold it against.
fn steady(seed: u64) -> SimDiskConfig {
    let mut config = SimDiskConfig::seeded(seed);
    config.latency.slow_ppm = 0;
    config
}

async fn start(disk: &SimDisk) -> Rc<Store<SimDisk>> {
    open_store(disk, options()).await
}

/// The loops of a shard's driver.
fn drive(handle: &SimHandle, store: &Rc<Store<SimDisk>>, committers: usize) -> common::Durable {
    let durable = common::Durable::default();
    for _ in 0..committers {
        handle.spawn(commit_loop(Rc::clone(store), Rc::clone(&durable)));
    }
    handle.spawn(housekeeping_loop(Rc::clone(store)));
    handle.spawn(sync_loop(handle.clone(), Rc::clone(store)));
    durable
}

/// What was appended to the log, and when each offset was acknowledged.
#[derive(Default)]
struct Told {
    batches: Vec<bytes::Bytes>,
    acknowledged: Vec<(u64, Offset)>,
}

/// Appends batches of one record of all sizes for a while.
async fn append_for_a_while(
    handle: SimHandle,
    store: Rc<Store<SimDisk>>,
    log: LogRef,
    told: Rc<RefCell<Told>>,
    mut rng: SimRng,
) {
    for round in 0..400u32 {
        let size = match rng.between(0, 9) {
            0 => 20_000,
            1..3 => 5_000,
            _ => rng.between(80, 900) as usize,
        };
        let bytes = batch(1, size, NOW_MS, PLAIN, round as u8);
        told.borrow_mut().batches.push(content(&bytes));
        append(&store, log, bytes, NOW_MS);
        if rng.chance(400_000) {
            handle.sleep(Duration::from_micros(rng.between(1, 9000))).await;
        }
        let end = store.offsets(log).expect("open").durable_end;
        told.borrow_mut().acknowledged.push((now_ms(&handle), end));
    }
}

/// Runs a workload up to a power loss; returns what was told by then, what is there after the restart, and when it ended.
fn life(
    seed: u64,
    config: &LogConfig,
    options: (usize, Option<LogConfig>),
) -> (Told, Vec<bytes::Bytes>, u64) {
    let executor = SimExecutor::new(seed);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, steady(seed));
    let told = Rc::new(RefCell::new(Told::default()));
    let mut rng = SimRng::new(seed, "when the power goes");
    let ended_ms = executor.block_on(async {
        let store = start(&disk).await;
        let log = store
            .open_log(log_id(0), "t", config.clone(), NOW_MS)
            .await
            .expect("log");
        drive(&handle, &store, options.0);
        if let Some(config) = options.1 {
            store.set_config(log, config);
        }
        let work = append_for_a_while(
            handle.clone(),
            Rc::clone(&store),
            log,
            Rc::clone(&told),
            SimRng::new(seed, "appends"),
        );
        let life = async {
            or(work, handle.sleep(Duration::from_millis(rng.between(50, 900)))).await;
            disk.crash_now();
        };
        or(life, disk.crashed()).await;
        now_ms(&handle)
    });
    drop(executor);
    let executor = SimExecutor::new(seed + 1000);
    let handle = executor.handle();
    let disk = disk.restart(&handle);
    let found = executor.block_on(async {
        let store = start(&disk).await;
        let log = store
            .open_log(log_id(0), "t", config.clone(), NOW_MS)
            .await
            .expect("log");
        let end = store.offsets(log).expect("open").log_end;
        let read = read_log(&store, log, end, 50_000).await;
        read.into_iter().map(|batch| batch.content).collect()
    });
    let told = Rc::into_inner(told).expect("the workload has ended").into_inner();
    (told, found, ended_ms)
}

/// What was acknowledged `ms` before the end is there.
fn assert_kept(seed: u64, told: &Told, found: &[bytes::Bytes], before_ms: u64) {
    let old = told.acknowledged.iter().rev().find(|(at, _)| *at <= before_ms);
    let sure = old.map_or(0, |(_, end)| end.0 as usize);
    assert!(
        found.len() >= sure,
        "seed {seed}: {} of {sure} records",
        found.len()
    );
    assert_eq!(found, &told.batches[..found.len()], "seed {seed}");
}

#[test]
fn an_interval_log_loses_at_most_its_interval_to_a_power_loss() {
    let mut lost = 0;
    for seed in 0..150 {
        let committers = 1 + seed as usize % 2;
        let (told, found, ended_ms) = life(seed, &config(Durability::Interval), (committers, None));
        assert_kept(
            seed,
            &told,
            &found,
            ended_ms.saturating_sub(INTERVAL_MS + SYNC_MS_MAX),
        );
        let acknowledged = told.acknowledged.last().map_or(0, |(_, end)| end.0 as usize);
        lost += acknowledged.saturating_sub(found.len());
    }
    assert!(lost > 0, "acknowledgements do not wait for the sync");
}

#[test]
fn flush_messages_of_one_syncs_before_each_acknowledgement() {
    for seed in 0..40 {
        let config = LogConfig {
            flush_messages: 1,
            ..config(Durability::Written)
        };
        let (told, found, ended_ms) = life(seed, &config, (1 + seed as usize % 2, None));
        assert_kept(seed, &told, &found, ended_ms);
    }
}

#[test]
fn flush_ms_bounds_a_written_log_also_when_it_is_set_later() {
    for seed in 0..40 {
        let written = config(Durability::Written);
        let bounded = LogConfig {
            flush_ms: 30,
            ..written.clone()
        };
        let (told, found, ended_ms) = life(seed, &written, (1, Some(bounded)));
        assert_kept(seed, &told, &found, ended_ms.saturating_sub(30 + SYNC_MS_MAX));
    }
}

/// Syncs of segment files from `from_ms` on.
fn segment_syncs(disk: &SimDisk, from_ms: u64) -> usize {
    let trace = disk.take_trace();
    let synced = trace.iter().filter(|entry| {
        let segment = entry.path.extension().is_some_and(|extension| extension == "log");
        entry.op == DiskOp::Sync && entry.phase == TracePhase::Done && segment
    });
    synced.filter(|entry| entry.at_ns / 1_000_000 >= from_ms).count()
}

#[test]
fn a_resting_log_is_synced_once_and_a_new_class_takes_effect_at_once() {
    let executor = SimExecutor::new(9);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, steady(9));
    executor.block_on(async {
        let store = start(&disk).await;
        let log = store
            .open_log(log_id(0), "t", config(Durability::Written), NOW_MS)
            .await
            .expect("log");
        drive(&handle, &store, 1);
        handle.sleep(Duration::from_millis(100)).await; // the names of the new files become durable
        disk.record_trace();
        let write = async || {
            let bytes = batch(1, 300, NOW_MS, PLAIN, 7);
            let end = append(&store, log, bytes, NOW_MS).last_offset.plus(1);
            store.durable_to(log, end).await.expect("durable");
            now_ms(&handle)
        };
        let written_ms = write().await;
        handle.sleep(Duration::from_millis(1000)).await;
        assert_eq!(segment_syncs(&disk, written_ms), 0, "class written is not synced");
        assert_eq!(store.stats().unsynced_bytes, 300);

        store.set_config(log, config(Durability::Interval));
        handle
            .sleep(Duration::from_millis(INTERVAL_MS + SYNC_MS_MAX))
            .await;
        assert_eq!(
            segment_syncs(&disk, written_ms),
            1,
            "what was written before counts too"
        );
        assert_eq!((store.stats().unsynced_bytes, store.stats().forced_syncs), (0, 1));
        handle.sleep(Duration::from_millis(1000)).await;
        assert_eq!(segment_syncs(&disk, 0), 0, "nothing new, no sync");

        let journaled_ms = write().await; // the block on disk goes through the journal first
        let written_ms = write().await;
        assert!(written_ms >= journaled_ms && store.stats().unsynced_bytes > 0);
        handle
            .sleep(Duration::from_millis(INTERVAL_MS + SYNC_MS_MAX))
            .await;
        assert_eq!(store.stats().unsynced_bytes, 0);

        store.set_config(log, config(Durability::Fsync));
        handle.sleep(Duration::from_millis(100)).await;
        write().await;
        assert_eq!(
            store.stats().unsynced_bytes,
            0,
            "class fsync acknowledges what is synced"
        );
    });
}

#[test]
fn many_logs_are_synced_by_one_sync_of_the_file_system() {
    let executor = SimExecutor::new(10);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, steady(10));
    executor.block_on(async {
        let store = start(&disk).await;
        let mut logs = Vec::new();
        for number in 0..30 {
            let config = config(Durability::Interval);
            let log = store
                .open_log(log_id(number), &format!("t{number}"), config, NOW_MS)
                .await;
            logs.push(log.expect("log"));
        }
        drive(&handle, &store, 1);
        handle.sleep(Duration::from_millis(200)).await;
        disk.record_trace();
        for log in &logs {
            append(&store, *log, batch(1, 300, NOW_MS, PLAIN, 7), NOW_MS);
        }
        handle
            .sleep(Duration::from_millis(INTERVAL_MS + SYNC_MS_MAX))
            .await;
        assert_eq!(store.stats().unsynced_bytes, 0);
        let trace = disk.take_trace();
        let count = |op| {
            let done = trace.iter().filter(|e| e.op == op && e.phase == TracePhase::Done);
            done.filter(|e| !e.path.to_string_lossy().contains("journal"))
                .count()
        };
        assert_eq!((count(DiskOp::Sync), count(DiskOp::SyncFilesystem)), (0, 1));
    });
}

/// A log rests for its sync while its records go on coming by the journal. Files of a small journal are used again only when
/// those records are in the segment, also if no more of them come.
#[test]
fn records_that_come_during_a_sync_do_not_hold_up_a_small_journal() {
    for seed in 0..60 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let goes_on = executor.block_on(async {
            disk.create_dir(dir()).await.expect("create");
            let options = StoreOptions {
                journal: JournalOptions {
                    file_bytes: 20 << 10,
                    files_max: 2,
                },
                ..options()
            };
            let store = open_store(&disk, options).await;
            let classes = [Durability::Interval, Durability::Written, Durability::Fsync];
            let mut logs = Vec::new();
            for number in 0..6 {
                let config = LogConfig {
                    flush_ms: 7,
                    ..config(classes[number as usize % 3])
                };
                let name = format!("t{number}");
                let log = store.open_log(log_id(number), &name, config, NOW_MS).await;
                logs.push(log.expect("log"));
            }
            drive(&handle, &store, 1 + seed as usize % 2);
            let mut rng = SimRng::new(seed, "appends");
            let work = async {
                for round in 0..600u32 {
                    let log = logs[rng.between(0, 5) as usize];
                    let bytes = batch(1, rng.between(80, 900) as usize, NOW_MS, PLAIN, round as u8);
                    let end = append(&store, log, bytes, NOW_MS).last_offset.plus(1);
                    if rng.chance(300_000) {
                        store.durable_to(log, end).await.expect("durable");
                    }
                }
                for log in logs {
                    let end = store.offsets(log).expect("open").log_end;
                    store.durable_to(log, end).await.expect("durable");
                }
                true
            };
            let limit = async {
                handle.sleep(Duration::from_secs(60)).await;
                false
            };
            or(work, limit).await
        });
        assert!(goes_on, "seed {seed}: the commits stand still");
    }
}

/// An interval log that is written to without a pause is synced within its interval all the same: its records are in each
/// commit, and none of them may be what a sync waits for.
#[test]
fn a_log_that_never_pauses_is_synced_within_its_interval() {
    for seed in 0..20 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, steady(seed));
        let syncs = executor.block_on(async {
            let store = start(&disk).await;
            let config = config(Durability::Interval);
            let log = store.open_log(log_id(0), "t", config, NOW_MS).await.expect("log");
            drive(&handle, &store, 1 + seed as usize % 2);
            let mut rng = SimRng::new(seed, "appends");
            let end = handle.now() + Duration::from_secs(2);
            while handle.now() < end {
                let bytes = batch(1, rng.between(80, 900) as usize, NOW_MS, PLAIN, 7);
                append(&store, log, bytes, NOW_MS);
                handle.sleep(Duration::from_micros(rng.between(1, 100))).await;
            }
            store.stats().forced_syncs
        });
        let due = 2000 / (INTERVAL_MS + SYNC_MS_MAX);
        assert!(syncs >= due, "seed {seed}: {syncs} syncs, {due} were due");
    }
}
