//! The clean stop on the simulated disk: it works only on logs that changed, and one that is cut off leaves small files that are
//! whole.

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use common::crashes::{End, too_long};
use common::{Producer, append, batch, commit_loop, housekeeping_loop, log_id, open_store};
use futures_lite::future::or;
use storage::disk::sim::{SimDisk, SimDiskConfig, TracePhase};
use storage::leader_epoch::LeaderEpochs;
use storage::log::LogRef;
use storage::log::config::LogConfig;
use storage::producer_state::snapshot;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};

const NOW_MS: i64 = 1_700_000_000_000;

/// Logs of a store; those with even numbers have records.
const LOGS: u8 = 12;

async fn start(handle: &SimHandle, disk: &SimDisk) -> (Rc<Store<SimDisk>>, Vec<LogRef>) {
    let store = open_store(disk, StoreOptions::default()).await;
    handle.spawn(commit_loop(Rc::clone(&store), common::Durable::default()));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    let mut logs = Vec::new();
    for number in 0..LOGS {
        let topic = format!("t{number}");
        let opened = store.open_log(log_id(number), &topic, LogConfig::default(), NOW_MS);
        logs.push(opened.await.expect("log"));
    }
    (store, logs)
}

/// Appends batches of an idempotent producer from `sequence` on, and waits until they are durable.
async fn fill(store: &Store<SimDisk>, log: LogRef, sequence: i32, batches: u8) {
    for number in 0..batches {
        let producer = Producer {
            id: 7,
            epoch: 0,
            sequence: sequence + i32::from(number),
        };
        append(store, log, batch(1, 5000, NOW_MS, producer, number), NOW_MS);
    }
    let end = store.offsets(log).expect("open").log_end;
    store.durable_to(log, end).await.expect("durable");
}

/// The directories of logs that the disk was asked to change, or to open a file in, since it was last asked.
fn logs_touched(disk: &SimDisk) -> BTreeSet<String> {
    let trace = disk.take_trace();
    let done = trace.iter().filter(|entry| entry.phase == TracePhase::Done);
    let paths = done.filter_map(|entry| entry.path.strip_prefix("/data").ok());
    let names = paths.filter_map(|path| Some(path.components().next()?.as_os_str().to_string_lossy()));
    names
        .filter(|name| name.starts_with('t'))
        .map(|name| name.into_owned())
        .collect()
}

#[test]
fn a_stop_leaves_alone_what_did_not_change() {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    disk.record_trace();
    let with_records = |number: &u8| number.is_multiple_of(2);
    let names = |numbers: Vec<u8>| -> BTreeSet<String> {
        numbers.iter().map(|number| format!("t{number}-0")).collect()
    };
    let work = async {
        let (store, logs) = start(&handle, &disk).await;
        for number in (0..LOGS).filter(with_records) {
            fill(&store, logs[usize::from(number)], 0, 3).await;
        }
        // The background has made the names of the new files durable.
        handle.sleep(Duration::from_secs(1)).await;
        logs_touched(&disk);
        store.close().await.expect("stop");
        assert_eq!(
            logs_touched(&disk),
            names((0..LOGS).filter(with_records).collect()),
            "logs that were made and got nothing"
        );

        let (store, logs) = start(&handle, &disk).await;
        fill(&store, logs[4], 3, 2).await;
        logs_touched(&disk);
        store.close().await.expect("stop");
        assert_eq!(logs_touched(&disk), names(vec![4]));

        let (store, logs) = start(&handle, &disk).await;
        let ends: Vec<i64> = logs
            .iter()
            .map(|log| store.offsets(*log).expect("open").log_end.0)
            .collect();
        assert_eq!(ends, [3, 0, 3, 0, 5, 0, 3, 0, 3, 0, 3, 0]);
        logs_touched(&disk);
        store.close().await.expect("stop");
        assert_eq!(logs_touched(&disk), BTreeSet::new());
    };
    executor.block_on(or(work, too_long(handle.clone())));
}

/// Stops a store with records, with a crash at a mutation of the stop. Returns whether it came that far.
fn cut_off(at: u64, end: End) -> bool {
    let executor = SimExecutor::new(at);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(at));
    let work = async {
        let (store, logs) = start(&handle, &disk).await;
        for log in &logs {
            fill(&store, *log, 0, 3).await;
        }
        disk.crash_after(at);
        or(
            async {
                store.close().await.expect("stop");
                false
            },
            async {
                disk.crashed().await;
                true
            },
        )
        .await
    };
    let is_cut = executor.block_on(or(work, async {
        too_long(handle.clone()).await;
        true
    }));
    drop(executor);
    let executor = SimExecutor::new(at + 1000);
    let disk = end.restart(&disk, &executor.handle());
    for path in disk.paths() {
        check_small_file(&disk, Path::new(&path));
    }
    is_cut
}

fn check_small_file(disk: &SimDisk, path: &Path) {
    let content = || disk.contents(path).expect("a file");
    if path.extension().is_some_and(|extension| extension == "snapshot") {
        let entries = snapshot::decode(&content());
        assert_eq!(entries.map(|entries| entries.len()), Ok(1), "{}", path.display());
    }
    if path.ends_with("leader-epoch-checkpoint") {
        let epochs = LeaderEpochs::decode(&content());
        assert!(epochs.is_ok(), "{}: {epochs:?}", path.display());
    }
}

#[test]
fn a_stop_that_is_cut_off_leaves_small_files_that_are_whole() {
    for end in [End::Kill, End::PowerLoss] {
        let cut = (1..2000).take_while(|at| cut_off(*at, end)).count();
        assert!((50..1900).contains(&cut), "{cut} mutations of a stop");
    }
}
