//! Many logs with few file descriptors, and preallocation on a small disk: both on the simulated disk.

mod common;

use std::rc::Rc;
use std::time::Duration;

use common::{PLAIN, append, batch, commit_loop, content, housekeeping_loop, log_id, open_store, read_log};
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::journal::JournalOptions;
use storage::log::config::{Durability, LogConfig};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};

const NOW_MS: i64 = 1_700_000_000_000;

async fn start(disk: &SimDisk, options: StoreOptions) -> Rc<Store<SimDisk>> {
    open_store(disk, options).await
}

fn drive(handle: &SimHandle, store: &Rc<Store<SimDisk>>) {
    handle.spawn(commit_loop(Rc::clone(store), common::Durable::default()));
    handle.spawn(housekeeping_loop(Rc::clone(store)));
}

const JOURNAL: JournalOptions = JournalOptions {
    file_bytes: 256 << 10,
    files_max: 3,
};

#[test]
fn many_logs_with_several_segments_each_are_written_and_read_through_a_few_files() {
    const FILES_MAX: usize = 8;
    const LOGS: u8 = 60;
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    executor.block_on(async {
        let options = StoreOptions {
            open_files_max: FILES_MAX,
            cache_bytes: 64 << 10,
            write_behind_bytes: 8 << 10,
            journal: JOURNAL,
            ..StoreOptions::default()
        };
        let store = start(&disk, options).await;
        drive(&handle, &store);
        let mut logs = Vec::new();
        for number in 0..LOGS {
            let config = LogConfig {
                segment_bytes: 40 << 10,
                durability: [Durability::Fsync, Durability::Written][usize::from(number) % 2],
                ..LogConfig::default()
            };
            let log = store
                .open_log(log_id(number), &format!("t{number}"), config, NOW_MS)
                .await;
            logs.push(log.expect("log"));
        }
        let mut sent = vec![Vec::new(); logs.len()];
        for round in 0..25u8 {
            for (number, log) in logs.iter().enumerate() {
                let size = [700, 9_000][(usize::from(round) + number) % 2];
                let bytes = batch(1, size, NOW_MS, PLAIN, round);
                sent[number].push(content(&bytes));
                append(&store, *log, bytes, NOW_MS);
            }
            handle.sleep(Duration::from_millis(20)).await;
            let open = store.stats().open_segment_files;
            assert!(open <= FILES_MAX + 8, "{open} files are open in round {round}");
        }
        for (number, log) in logs.iter().enumerate() {
            let ends = store.offsets(*log).expect("open");
            store.durable_to(*log, ends.log_end).await.expect("durable");
            assert!(store.size(*log).expect("open").segments > 2);
            let read = read_log(&store, *log, ends.log_end, 20_000).await;
            let found: Vec<_> = read.into_iter().map(|batch| batch.content).collect();
            assert_eq!(found, sent[number], "log {number}");
        }
        store.close().await.expect("clean stop");
        for path in disk.paths() {
            if path.extension().is_some_and(|extension| extension == "log") {
                let bytes = disk.contents(&path).expect("there");
                let is_cut = bytes.last().is_none_or(|last| *last != 0) || bytes.is_empty();
                assert!(is_cut, "{} ends in preallocated bytes", path.display());
            }
        }
    });
}

/// Bytes of segment files that no batch takes, after 100 logs have written a little each, and what is free.
fn ahead_bytes(capacity_bytes: u64, shards: u16) -> (u64, u64) {
    let executor = SimExecutor::new(2);
    let handle = executor.handle();
    let config = SimDiskConfig {
        capacity_bytes,
        ..SimDiskConfig::seeded(2)
    };
    let disk = SimDisk::new(&handle, config);
    executor.block_on(async {
        let options = StoreOptions {
            write_behind_bytes: 4 << 10,
            journal: JOURNAL,
            shards,
            ..StoreOptions::default()
        };
        let store = start(&disk, options).await;
        drive(&handle, &store);
        let mut batches = 0;
        for number in 0..100 {
            let config = LogConfig::default();
            let log = store
                .open_log(log_id(number), &format!("t{number}"), config, NOW_MS)
                .await;
            let log = log.expect("log");
            let end = append(&store, log, batch(1, 8192, NOW_MS, PLAIN, 1), NOW_MS).last_offset;
            store.durable_to(log, end.plus(1)).await.expect("durable");
            handle.sleep(Duration::from_millis(10)).await;
            batches += 8192;
        }
        let logs = disk
            .paths()
            .into_iter()
            .filter(|path| path.extension().is_some_and(|e| e == "log"));
        let sizes = logs.map(|path| disk.contents(&path).expect("there").len() as u64);
        let ahead = sizes.sum::<u64>() - batches;
        assert_eq!(ahead, store.stats().ahead_bytes, "the accounts are right");
        (ahead, capacity_bytes - disk.used_bytes())
    })
}

#[test]
fn at_most_an_eighth_of_the_free_space_is_allocated_ahead() {
    let (plenty, _) = ahead_bytes(1 << 40, 1);
    assert!(plenty > 5 << 20, "64 KiB ahead in each log, {plenty} bytes");
    for shards in [1, 2] {
        let (ahead, free) = ahead_bytes(8 << 20, shards);
        let bound = (free + ahead) / 8 / u64::from(shards);
        // What was allocated before others took of the free space stays.
        assert!(
            ahead <= bound + bound / 4,
            "{ahead} ahead with {free} free on {shards} shards"
        );
        assert!(ahead > bound / 4, "{ahead} of {bound}");
    }
}
