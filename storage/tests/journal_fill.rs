//! New journal files are written once with zeroes, ahead of the commits and never where one is writing (the simulated disk
//! refuses that).

mod common;

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use common::{PLAIN, append, batch, commit_loop, dir, housekeeping_loop, log_id, open_store};
use storage::disk::BLOCK_BYTES;
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, SimFault, TracePhase};
use storage::journal::JournalOptions;
use storage::layout::journal_dir;
use storage::log::LogRef;
use storage::log::config::LogConfig;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};

const NOW_MS: i64 = 1_700_000_000_000;
const FILE_BYTES: u64 = 256 << 10;

async fn start(handle: &SimHandle, disk: &SimDisk) -> (Rc<Store<SimDisk>>, LogRef) {
    let options = StoreOptions {
        journal: JournalOptions {
            file_bytes: FILE_BYTES,
            files_max: 3,
        },
        is_journal_filled: true,
        ..StoreOptions::default()
    };
    let store = open_store(disk, options).await;
    let durable = common::Durable::default();
    handle.spawn(commit_loop(Rc::clone(&store), Rc::clone(&durable)));
    handle.spawn(commit_loop(Rc::clone(&store), durable));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    let log = store.open_log(log_id(0), "t", LogConfig::default(), NOW_MS);
    let log = log.await.expect("log");
    (store, log)
}

/// Runs a story with a store that fills its journal; the disk afterwards.
fn simulate(seed: u64, story: impl AsyncFn(&SimHandle, &SimDisk, Rc<Store<SimDisk>>, LogRef)) -> SimDisk {
    let executor = SimExecutor::new(seed);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
    executor.block_on(async {
        let (store, log) = start(&handle, &disk).await;
        story(&handle, &disk, store, log).await;
    });
    disk
}

/// Bytes written to journal files since the trace was last taken.
fn journal_bytes(disk: &SimDisk) -> u64 {
    let trace = disk.take_trace();
    let writes = trace.iter().filter(|entry| {
        entry.op == DiskOp::Write
            && entry.phase == TracePhase::Done
            && entry.path.starts_with(journal_dir(dir(), 0))
            && entry.path.extension().is_some_and(|name| name == "journal")
    });
    writes.map(|entry| entry.len as u64).sum()
}

#[test]
fn a_file_is_filled_when_it_comes_into_use_and_once() {
    simulate(1, async |handle, disk, store, log| {
        disk.record_trace();
        handle.sleep(Duration::from_secs(1)).await;
        assert_eq!(journal_bytes(disk), 0, "an idle store writes nothing");
        append(&store, log, batch(1, 100, NOW_MS, PLAIN, 1), NOW_MS);
        handle.sleep(Duration::from_secs(1)).await;
        let filled = journal_bytes(disk);
        // One file without its header, but for the blocks right behind the commit.
        let most = FILE_BYTES - BLOCK_BYTES as u64;
        assert!(filled <= most + BLOCK_BYTES as u64, "{filled} of {most}");
        assert!(filled >= most - FILE_BYTES / 8, "{filled} of {most}");
        let commits = async |commits: u8| {
            for number in 0..commits {
                append(&store, log, batch(1, 100, NOW_MS, PLAIN, number), NOW_MS);
                handle.sleep(Duration::from_millis(100)).await;
            }
            journal_bytes(disk)
        };
        let later = commits(10).await;
        assert!(
            later <= 20 * BLOCK_BYTES as u64,
            "only commits are written: {later}"
        );
        let half_full = commits(40).await;
        assert!(
            half_full >= most + 40 * BLOCK_BYTES as u64,
            "the next file is filled too: {half_full}"
        );
        store.close().await.expect("clean stop");
    });
}

#[test]
fn commits_that_catch_up_with_the_zeroes_lose_nothing_and_go_on() {
    for seed in 0..50 {
        simulate(seed, async |handle, _, store, log| {
            for number in 0..100 {
                append(&store, log, batch(1, 9_000, NOW_MS, PLAIN, number), NOW_MS);
                if number % 7 == 0 {
                    handle.sleep(Duration::from_micros(seed * 10)).await;
                }
            }
            let end = store.offsets(log).expect("open").log_end;
            store.durable_to(log, end).await.expect("durable");
            let read = common::read_log(&*store, log, end, 1 << 20).await;
            assert_eq!(read.len(), 100);
            store.close().await.expect("clean stop");
        });
    }
}

/// Lets the write to a journal file that comes after the first commit, which is the first step, meet `fault`.
fn first_step(disk: &SimDisk, fault: SimFault) {
    disk.add_fault(fault.after(1).times(1));
}

#[test]
fn a_disk_too_full_to_record_a_step_costs_nothing_but_the_rest_of_them() {
    simulate(1, async |handle, disk, store, log| {
        first_step(
            disk,
            SimFault::error(DiskOp::Write, ".journal", ErrorKind::StorageFull),
        );
        disk.record_trace();
        for number in 0..20 {
            append(&store, log, batch(1, 100, NOW_MS, PLAIN, number), NOW_MS);
            handle.sleep(Duration::from_millis(100)).await;
        }
        let end = store.offsets(log).expect("open").log_end;
        store.durable_to(log, end).await.expect("online");
        let written = journal_bytes(disk);
        assert!(
            written <= 25 * BLOCK_BYTES as u64,
            "only commits are written: {written}"
        );
        store.close().await.expect("clean stop");
    });
}

#[test]
fn a_failing_step_takes_the_store_offline_like_any_write() {
    simulate(1, async |handle, disk, store, log| {
        first_step(disk, SimFault::error(DiskOp::Write, ".journal", ErrorKind::Other));
        append(&store, log, batch(1, 100, NOW_MS, PLAIN, 1), NOW_MS);
        handle.sleep(Duration::from_secs(1)).await;
        assert!(store.commit().await.is_err());
    });
}

#[test]
fn a_clean_stop_and_commits_wait_for_a_slow_step() {
    let disk = simulate(1, async |handle, disk, store, log| {
        let slow = Duration::from_secs(5);
        first_step(disk, SimFault::delay(DiskOp::Write, ".journal", slow));
        append(&store, log, batch(1, 100, NOW_MS, PLAIN, 1), NOW_MS);
        handle.sleep(Duration::from_millis(100)).await;
        let began = handle.now();
        append(&store, log, batch(1, 20_000, NOW_MS, PLAIN, 2), NOW_MS); // longer than the lead of a step
        let end = store.offsets(log).expect("open").log_end;
        store.durable_to(log, end).await.expect("durable");
        assert!(
            handle.now() - began > slow / 2,
            "it went where the zeroes are on their way to"
        );
        store.close().await.expect("clean stop");
    });
    assert_eq!(disk.abandoned_operations(), 0);
}
