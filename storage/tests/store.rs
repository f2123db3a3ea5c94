//! The store on the simulated disk without faults: append, commit, read, reopen.

mod common;

use std::rc::Rc;

use common::{PLAIN, Producer, append, batch, commit_loop, dir, housekeeping_loop, log_id, read_log};
use storage::commit::CommitLimits;
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::journal::JournalOptions;
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};
use storage::types::Offset;

const NOW_MS: i64 = 1_700_000_000_000;

fn small() -> StoreOptions {
    StoreOptions {
        cache_bytes: 256 << 10,
        journal: JournalOptions {
            file_bytes: 256 << 10,
            files_max: 3,
        },
        commit: CommitLimits {
            bytes_max: 256 << 10,
            ..CommitLimits::default()
        },
        ..StoreOptions::default()
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 512 << 10,
        ..LogConfig::default()
    }
}

async fn start(handle: &SimHandle, disk: &SimDisk) -> (Rc<Store<SimDisk>>, common::Durable) {
    disk.create_dir(dir()).await.expect("create");
    disk.sync_dir(std::path::Path::new("/")).await.expect("sync");
    recover_journals(disk, dir(), |_, _| {}).await.expect("recovery");
    let store = Store::open(disk.clone(), dir(), 0, small()).await.expect("open");
    let durable = common::Durable::default();
    handle.spawn(commit_loop(Rc::clone(&store), Rc::clone(&durable)));
    handle.spawn(commit_loop(Rc::clone(&store), Rc::clone(&durable)));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    (store, durable)
}

#[test]
fn what_was_committed_is_read_back_from_memory_from_disk_and_after_a_restart() {
    for clean in [true, false] {
        for seed in 0..20 {
            let executor = SimExecutor::new(seed);
            let handle = executor.handle();
            let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
            let mut sent = vec![Vec::new(); 3];
            executor.block_on(async {
                let (store, durable) = start(&handle, &disk).await;
                let mut logs = Vec::new();
                for number in 0..3 {
                    logs.push(
                        store
                            .open_log(log_id(number), &format!("t{number}"), config(), NOW_MS)
                            .await
                            .expect("log"),
                    );
                }
                for round in 0..60u8 {
                    for (number, log) in logs.iter().enumerate() {
                        let size = [300, 5_000, 90_000][(usize::from(round) + number) % 3];
                        let bytes = batch(i32::from(round % 4) + 1, size, NOW_MS, PLAIN, round);
                        let appended = append(&store, *log, bytes.clone(), NOW_MS);
                        sent[number].push((appended.base_offset, common::content(&bytes)));
                    }
                    if round % 3 == 0 {
                        handle.sleep(std::time::Duration::from_millis(1)).await;
                    }
                }
                for log in &logs {
                    let end = store.offsets(*log).expect("open").log_end;
                    while durable.borrow().get(log) != Some(&end) {
                        handle.sleep(std::time::Duration::from_millis(1)).await;
                    }
                    assert_eq!(store.offsets(*log).expect("open").durable_end, end);
                }
                for (number, log) in logs.iter().enumerate() {
                    let end = store.offsets(*log).expect("open").log_end;
                    let read = read_log(&store, *log, end, 100_000).await;
                    assert_eq!(
                        read.iter()
                            .map(|b| (b.base, b.content.clone()))
                            .collect::<Vec<_>>(),
                        sent[number]
                    );
                }
                if clean {
                    store.close().await.expect("clean stop");
                }
            });
            drop(executor);
            let executor = SimExecutor::new(seed + 1000);
            let handle = executor.handle();
            let disk = disk.restart(&handle);
            executor.block_on(async {
                let (store, _) = start(&handle, &disk).await;
                for (number, sent) in sent.iter().enumerate() {
                    let log = store
                        .open_log(log_id(number as u8), &format!("t{number}"), config(), NOW_MS)
                        .await
                        .expect("log");
                    let end = store.offsets(log).expect("open").log_end;
                    let read = read_log(&store, log, end, 50_000).await;
                    let found: Vec<_> = read.iter().map(|b| (b.base, b.content.clone())).collect();
                    assert_eq!(
                        found.len(),
                        sent.len(),
                        "seed {seed}, clean {clean}, log {number}"
                    );
                    assert_eq!(&found, sent);
                }
            });
        }
    }
}

#[test]
fn a_restarted_log_knows_its_producers() {
    for clean in [true, false] {
        let executor = SimExecutor::new(7);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(7));
        let producer = |sequence| Producer {
            id: 5,
            epoch: 0,
            sequence,
        };
        executor.block_on(async {
            let (store, durable) = start(&handle, &disk).await;
            let log = store
                .open_log(log_id(0), "t", config(), NOW_MS)
                .await
                .expect("log");
            for sequence in 0..10 {
                append(&store, log, batch(1, 100, NOW_MS, producer(sequence), 1), NOW_MS);
            }
            while durable.borrow().get(&log) != Some(&Offset(10)) {
                handle.sleep(std::time::Duration::from_millis(1)).await;
            }
            if clean {
                store.close().await.expect("clean stop");
            }
        });
        drop(executor);
        let executor = SimExecutor::new(8);
        let handle = executor.handle();
        let disk = disk.restart(&handle);
        executor.block_on(async {
            let (store, _) = start(&handle, &disk).await;
            let log = store
                .open_log(log_id(0), "t", config(), NOW_MS)
                .await
                .expect("log");
            let again = append(&store, log, batch(1, 100, NOW_MS, producer(9), 1), NOW_MS);
            assert!(again.is_duplicate, "clean {clean} {again:?}");
            assert_eq!(again.base_offset, Offset(9));
            let next = append(&store, log, batch(1, 100, NOW_MS, producer(10), 1), NOW_MS);
            assert_eq!((next.is_duplicate, next.base_offset), (false, Offset(10)));
        });
    }
}
