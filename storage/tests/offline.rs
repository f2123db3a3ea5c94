//! A store whose disk fails: whoever works on it or waits for it is told, and nobody spins.

mod common;

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use common::{PLAIN, append, batch, housekeeping_loop, log_id, open_store};
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, SimFault};
use storage::error::{AppendError, StorageError};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};
use storage::types::LeaderEpoch;

const NOW_MS: i64 = 1_700_000_000_000;

/// A commit loop that goes on so often without an error while the store is offline would go on for ever.
const COMMITS_OFFLINE_MAX: usize = 2;

async fn start(disk: &SimDisk) -> (Rc<Store<SimDisk>>, LogRef) {
    let options = StoreOptions {
        write_behind_bytes: 8 << 10,
        journal: JournalOptions {
            file_bytes: 256 << 10,
            files_max: 3,
        },
        ..StoreOptions::default()
    };
    let store = open_store(disk, options).await;
    let config = LogConfig {
        segment_bytes: 100 << 10,
        ..LogConfig::default()
    };
    let log = store.open_log(log_id(0), "t", config, NOW_MS).await.expect("log");
    (store, log)
}

/// Commits until told of the failure.
async fn commit_until_told(store: Rc<Store<SimDisk>>) -> StorageError {
    let mut after = 0;
    loop {
        match store.commit().await {
            Err(error) => return error,
            Ok(_) if store.offline_reason().is_some() => {
                after += 1;
                assert!(
                    after < COMMITS_OFFLINE_MAX,
                    "commits go on, and nothing is committed"
                );
            }
            Ok(_) => {}
        }
    }
}

/// Appends until the store refuses, for half a second at most.
async fn append_until_offline(handle: &SimHandle, store: &Store<SimDisk>, log: LogRef) -> AppendError {
    for round in 0..500u32 {
        let size = [900, 40_000, 9_000][round as usize % 3];
        let bytes = batch(1, size, NOW_MS, PLAIN, 7);
        match store.append(log, AppendBatch::from_client(bytes, LeaderEpoch(0)), NOW_MS) {
            Err(refused) => return refused,
            Ok(_) => handle.sleep(Duration::from_millis(1)).await,
        }
    }
    panic!("the store never went offline");
}

#[test]
fn a_commit_of_what_was_staged_before_the_background_failed_says_so() {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    executor.block_on(async {
        let (store, log) = start(&disk).await;
        let background = handle.spawn(housekeeping_loop(Rc::clone(&store)));
        for _ in 0..3 {
            append(&store, log, batch(1, 40_000, NOW_MS, PLAIN, 7), NOW_MS);
        }
        store.commit().await.expect("the disk is fine");
        disk.add_fault(SimFault::error(DiskOp::Create, ".index", ErrorKind::Other));
        append(&store, log, batch(1, 900, NOW_MS, PLAIN, 7), NOW_MS);
        background.await;
        assert!(store.offline_reason().is_some());
        // The first takes the batch off the planner, the second finds nothing.
        for _ in 0..2 {
            let told = store.commit().await;
            assert!(matches!(told, Err(StorageError::Offline(_))), "{told:?}");
        }
        let closed = store.close().await;
        assert!(matches!(closed, Err(StorageError::Offline(_))), "{closed:?}");
    });
}

#[test]
fn a_failing_disk_ends_both_committers_and_the_stop_whenever_it_fails() {
    for seed in 0..40 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let ended = executor.run_until(async {
            let (store, log) = start(&disk).await;
            let committers = [0, 1].map(|_| handle.spawn(commit_until_told(Rc::clone(&store))));
            let background = handle.spawn(housekeeping_loop(Rc::clone(&store)));
            let (failing, later) = (disk.clone(), handle.clone());
            handle.spawn(async move {
                later.sleep(Duration::from_millis(5 + 7 * seed)).await;
                failing.add_fault(SimFault::error(DiskOp::Write, "", ErrorKind::Other));
            });
            let refused = append_until_offline(&handle, &store, log).await;
            assert!(matches!(refused, AppendError::Offline(_)), "{refused}");
            for committer in committers {
                committer.await;
            }
            background.await;
            let end = store.offsets(log).expect("open").log_end;
            store.durable_to(log, end).await.expect_err("it is not");
            store.close().await.expect_err("nor is it closed cleanly");
        });
        assert!(ended.is_some(), "seed {seed}: somebody waits for ever");
    }
}
