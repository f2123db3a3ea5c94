//! The loss windows against power losses on the simulated disk: logs of all classes whose classes and bounds change while they
//! are written to; whenever the power goes, it takes at most what the windows said a moment before, in records, bytes and age.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::crashes::End;
use common::{
    PLAIN, append, batch, content, housekeeping_loop, log_id, now_ms, open_store, read_log, sync_loop,
};
use futures_lite::future::or;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::config::{Durability, LogConfig};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{Store, StoreOptions};
use storage::sync_schedule::{IntervalBounds, LossWindow, LossWindows};
use storage::types::Offset;

const NOW_MS: i64 = 1_700_000_000_000;
const CLASSES: [Durability; 3] = [Durability::Fsync, Durability::Interval, Durability::Written];
const LOGS: u8 = 4;
/// The log that stays in class `fsync`.
const SYNCED: u8 = 0;

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 64 << 10,
        write_behind_bytes: 8 << 10,
        journal: JournalOptions {
            file_bytes: 160 << 10,
            files_max: 3,
        },
        is_journal_filled: true,
        interval: IntervalBounds {
            ms: 25,
            bytes: 48 << 10,
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

/// Any class with any bounds.
fn any_config(rng: &mut SimRng) -> LogConfig {
    let class = CLASSES[rng.between(0, 2) as usize];
    LogConfig {
        flush_ms: [u64::MAX, u64::MAX, 0, 10, 60][rng.between(0, 4) as usize],
        flush_messages: [u64::MAX, u64::MAX, 1, 7][rng.between(0, 3) as usize],
        ..config(class)
    }
}

/// One log as its clients know it; each batch is one record.
#[derive(Default)]
struct Told {
    config: LogConfig,
    sent: Vec<Bytes>,
    /// When it was acknowledged up to where.
    acknowledged: Vec<(u64, Offset)>,
}

impl Told {
    /// Up to where it was acknowledged.
    fn end(&self) -> usize {
        self.acknowledged
            .iter()
            .map(|(_, end)| end.0 as usize)
            .max()
            .unwrap_or(0)
    }
}

type All = Rc<RefCell<BTreeMap<LogRef, Told>>>;

/// What was so when the power went.
struct Moment {
    now_ms: u64,
    windows: LossWindows,
    told: Vec<Told>,
}

async fn start(disk: &SimDisk) -> Rc<Store<SimDisk>> {
    open_store(disk, options()).await
}

/// The loops of a shard's driver.
fn drive(handle: &SimHandle, store: &Rc<Store<SimDisk>>, all: &All, committers: usize) {
    for _ in 0..committers {
        let (store, clock, all) = (Rc::clone(store), handle.clone(), Rc::clone(all));
        handle.spawn(async move {
            while let Ok(outcome) = store.commit().await {
                let now_ms = now_ms(&clock);
                store.note_time(now_ms);
                for (log, end) in outcome.moved {
                    let mut all = all.borrow_mut();
                    all.entry(log).or_default().acknowledged.push((now_ms, end));
                }
            }
        });
    }
    handle.spawn(housekeeping_loop(Rc::clone(store)));
    handle.spawn(sync_loop(handle.clone(), Rc::clone(store)));
}

/// Appends to the logs and changes their classes. `ends_in_change`: only until a change to class `fsync` leaves something unsynced,
/// which is so for a moment only.
async fn work(handle: SimHandle, store: Rc<Store<SimDisk>>, all: All, mut rng: SimRng, ends_in_change: bool) {
    let logs: Vec<LogRef> = all.borrow().keys().copied().collect();
    for round in 0..500u32 {
        let number = rng.between(0, u64::from(LOGS) - 1) as u8;
        let log = logs[usize::from(number)];
        if number != SYNCED && rng.chance(60_000) {
            let config = any_config(&mut rng);
            store.set_config(log, config.clone());
            all.borrow_mut().entry(log).or_default().config = config;
            if ends_in_change && store.loss_windows(now_ms(&handle)).fsync.records > 0 {
                return;
            }
        }
        let size = match rng.between(0, 19) {
            0 => 70_000,
            1..=2 => 20_000,
            3..=6 => 5_000,
            _ => rng.between(80, 900) as usize,
        };
        let bytes = batch(1, size, NOW_MS, PLAIN, round as u8);
        all.borrow_mut()
            .entry(log)
            .or_default()
            .sent
            .push(content(&bytes));
        append(&store, log, bytes, NOW_MS);
        if rng.chance(400_000) {
            handle.sleep(Duration::from_micros(rng.between(1, 6000))).await;
        }
    }
    handle.sleep(Duration::from_millis(rng.between(0, 200))).await;
}

/// Runs a workload up to a power loss.
fn life(seed: u64, disk: &SimDisk, executor: SimExecutor) -> Moment {
    let handle = executor.handle();
    let mut rng = SimRng::new(seed, "when the power goes");
    let moment = executor.block_on(async {
        let store = start(disk).await;
        let all = All::default();
        for number in 0..LOGS {
            let config = config(CLASSES[usize::from(number) % 3]);
            let name = format!("t{number}");
            let log = store.open_log(log_id(number), &name, config.clone(), NOW_MS);
            let told = Told {
                config,
                ..Told::default()
            };
            let log = log.await.expect("log");
            all.borrow_mut().insert(log, told);
        }
        drive(&handle, &store, &all, 1 + seed as usize % 2);
        let appends = SimRng::new(seed, "appends");
        let work = work(
            handle.clone(),
            Rc::clone(&store),
            Rc::clone(&all),
            appends,
            seed % 4 == 3,
        );
        or(work, handle.sleep(Duration::from_millis(rng.between(20, 900)))).await;
        let now_ms = now_ms(&handle);
        let windows = store.loss_windows(now_ms);
        let told = std::mem::take(&mut *all.borrow_mut()).into_iter();
        // What a commit has made durable counts also when nobody was told yet.
        let told = told.map(|(log, mut told)| {
            let end = store.offsets(log).expect("open").durable_end;
            told.acknowledged.push((now_ms, end));
            told
        });
        let told = told.collect();
        disk.crash_now();
        Moment {
            now_ms,
            windows,
            told,
        }
    });
    drop(executor);
    moment
}

/// What is there after the end, log by log.
fn found(seed: u64, disk: &SimDisk, end: End, told: &[Told]) -> Vec<Vec<Bytes>> {
    let executor = SimExecutor::new(seed + 1000);
    let disk = end.restart(disk, &executor.handle());
    executor.block_on(async {
        let store = start(&disk).await;
        let mut found = Vec::new();
        for (number, told) in (0..LOGS).zip(told) {
            let name = format!("t{number}");
            let log = store.open_log(log_id(number), &name, told.config.clone(), NOW_MS);
            let log = log
                .await
                .unwrap_or_else(|e| panic!("seed {seed}, log {number}: {e}"));
            let end = store.offsets(log).expect("open").log_end;
            let read = read_log(&store, log, end, 50_000).await;
            found.push(read.into_iter().map(|batch| batch.content).collect());
        }
        found
    })
}

fn all_of(windows: &LossWindows) -> [LossWindow; 3] {
    [windows.fsync, windows.interval, windows.written]
}

#[test]
fn a_power_loss_takes_at_most_what_the_loss_windows_say() {
    let (mut lost_in_all, mut closed, mut open_of_fsync) = (0, 0, 0);
    for seed in 0..200 {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        let moment = life(seed, &disk, executor);
        let windows = all_of(&moment.windows);
        let (mut records, mut bytes) = (0, 0);
        let age_ms = windows.iter().map(|w| w.age_ms).max().unwrap_or(0);
        let found = found(seed, &disk, End::PowerLoss, &moment.told);
        for (number, (told, found)) in moment.told.iter().zip(found).enumerate() {
            assert!(found.len() <= told.sent.len(), "seed {seed}, log {number}");
            assert_eq!(found, told.sent[..found.len()], "seed {seed}, log {number}");
            let end = told.end();
            let lost = told.sent.get(found.len()..end).unwrap_or_default();
            if lost.is_empty() {
                continue;
            }
            assert_ne!(
                number,
                usize::from(SYNCED),
                "seed {seed}: class fsync loses nothing"
            );
            records += lost.len() as u64;
            // `content` leaves the offset, the length and the epoch out.
            bytes += lost.iter().map(|content| content.len() as u64 + 16).sum::<u64>();
            let first = told
                .acknowledged
                .iter()
                .find(|(_, end)| end.0 as usize > found.len());
            let (at_ms, _) = first.expect("it was acknowledged");
            assert!(
                moment.now_ms - at_ms <= age_ms,
                "seed {seed}, log {number}: lost is what was acknowledged {} ms before, {windows:?}",
                moment.now_ms - at_ms
            );
        }
        let said: u64 = windows.iter().map(|w| w.records).sum();
        assert!(
            records <= said,
            "seed {seed}: {records} records lost, {windows:?}"
        );
        let said: u64 = windows.iter().map(|w| w.bytes).sum();
        assert!(bytes <= said, "seed {seed}: {bytes} bytes lost, {windows:?}");
        lost_in_all += records;
        closed += u64::from(said == 0);
        open_of_fsync += u64::from(moment.windows.fsync.records > 0);
    }
    // Else this would see nothing.
    assert!(
        lost_in_all > 0 && closed > 0 && open_of_fsync > 0,
        "{lost_in_all} {closed} {open_of_fsync}"
    );
}

/// The kernel has what was acknowledged, whatever class the log had and has.
#[test]
fn a_kill_takes_nothing_of_logs_whose_class_changes() {
    for seed in 0..100 {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        let moment = life(seed, &disk, executor);
        let found = found(seed, &disk, End::Kill, &moment.told);
        for (number, (told, found)) in moment.told.iter().zip(found).enumerate() {
            let end = told.end();
            assert!(
                found.len() >= end,
                "seed {seed}, log {number}: {} of {end}",
                found.len()
            );
            assert_eq!(found, told.sent[..found.len()], "seed {seed}, log {number}");
        }
    }
}

/// All classes at rest: what is left of the windows is what nothing forces to be synced.
#[test]
fn the_windows_of_logs_that_rest_close_but_for_those_without_a_bound() {
    for seed in 0..20 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        executor.block_on(async {
            let store = start(&disk).await;
            let all = All::default();
            let mut logs = Vec::new();
            for number in 0..LOGS {
                let name = format!("t{number}");
                let class = CLASSES[usize::from(number) % 3];
                let log = store.open_log(log_id(number), &name, config(class), NOW_MS);
                logs.push(log.await.expect("log"));
                all.borrow_mut()
                    .insert(logs[usize::from(number)], Told::default());
            }
            drive(&handle, &store, &all, 1);
            handle.sleep(Duration::from_millis(300)).await; // the names of the new files become durable
            for round in 0..60u32 {
                for log in &logs {
                    append(&store, *log, batch(1, 300, NOW_MS, PLAIN, round as u8), NOW_MS);
                }
                handle.sleep(Duration::from_micros(500)).await;
            }
            handle.sleep(Duration::from_secs(3)).await;
            let windows = store.loss_windows(now_ms(&handle));
            assert_eq!(windows.fsync, LossWindow::default(), "seed {seed}");
            assert_eq!(windows.interval, LossWindow::default(), "seed {seed}");
            let written = windows.written;
            assert_eq!(
                (written.logs, written.records, written.bytes),
                (1, 60, 18_000),
                "seed {seed}"
            );
            assert!((3000..3200).contains(&written.age_ms), "seed {seed}: {written:?}");
            assert_eq!((written.ms_max, written.overdue_ms), (u64::MAX, 0));
            // A class with bounds closes its window too, and one without a window closes it at once.
            store.set_config(logs[2], config(Durability::Fsync));
            handle.sleep(Duration::from_secs(1)).await;
            assert_eq!(
                store.loss_windows(now_ms(&handle)),
                LossWindows::default(),
                "seed {seed}"
            );
        });
    }
}

/// `flush.messages`: a power loss takes less than so many records of a log, whenever it comes.
#[test]
fn flush_messages_bounds_the_records_that_a_power_loss_takes() {
    let mut lost_in_all = 0;
    for seed in 0..60 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let config = LogConfig {
            flush_messages: 5,
            ..config(Durability::Written)
        };
        let mut rng = SimRng::new(seed, "when the power goes");
        let (sent, end) = executor.block_on(async {
            let store = start(&disk).await;
            let log = store.open_log(log_id(0), "t0", config.clone(), NOW_MS);
            let log = log.await.expect("log");
            let all = All::default();
            all.borrow_mut().insert(log, Told::default());
            drive(&handle, &store, &all, 1 + seed as usize % 2);
            let appends = async {
                for round in 0..400u32 {
                    let bytes = batch(1, rng.between(80, 900) as usize, NOW_MS, PLAIN, round as u8);
                    let sent = content(&bytes);
                    all.borrow_mut().entry(log).or_default().sent.push(sent);
                    append(&store, log, bytes, NOW_MS);
                    handle.sleep(Duration::from_micros(700)).await;
                }
            };
            or(appends, handle.sleep(Duration::from_millis(100 + 2 * seed))).await;
            let window = store.loss_windows(now_ms(&handle)).written;
            assert!(window.records < 5, "seed {seed}: {window:?}");
            assert_eq!(window.records_max, 5 * window.logs);
            let sent = all.borrow_mut().remove(&log).unwrap_or_default().sent;
            let end = store.offsets(log).expect("open").durable_end.0 as usize;
            disk.crash_now();
            (sent, end)
        });
        drop(executor);
        let told = Told {
            config,
            ..Told::default()
        };
        let found = found(seed, &disk, End::PowerLoss, &[told]).remove(0);
        assert_eq!(found, sent[..found.len()], "seed {seed}");
        let lost = end.saturating_sub(found.len());
        assert!(lost < 5, "seed {seed}: {lost} of {end} lost");
        lost_in_all += lost;
    }
    assert!(lost_in_all > 0, "acknowledgements do not wait for the sync");
}
