//! The store on the simulated disk without faults: append, commit, read, reopen.

mod common;

use std::rc::Rc;

use common::{
    PLAIN, Producer, append, batch, commit_loop, dir, housekeeping_loop, log_id, open_store, read_log,
};
use storage::commit::CommitLimits;
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::journal::JournalOptions;
use storage::layout::journal_dir;
use storage::log::config::LogConfig;
use storage::log::query::ProducerSweep;
use storage::log::timestamps::BatchSearch;
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
    let store = open_store(disk, small()).await;
    let durable = common::Durable::default();
    handle.spawn(commit_loop(Rc::clone(&store), Rc::clone(&durable)));
    handle.spawn(commit_loop(Rc::clone(&store), Rc::clone(&durable)));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    (store, durable)
}

#[test]
fn a_journal_file_is_created_before_a_commit_waits_for_it() {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    executor.block_on(async {
        let (store, _durable) = start(&handle, &disk).await;
        let log = store
            .open_log(log_id(0), "t", config(), NOW_MS)
            .await
            .expect("log");
        let mut files = Vec::new();
        for _ in 0..10 {
            append(&store, log, batch(1, 20_000, NOW_MS, PLAIN, 1), NOW_MS);
            handle.sleep(std::time::Duration::from_millis(50)).await;
            let names = disk.list(&journal_dir(dir(), 0)).await.expect("a folder");
            files.push(
                names
                    .iter()
                    .filter(|entry| entry.name.ends_with(".journal"))
                    .count(),
            );
        }
        // One file holds twelve of them: the third one is there when the first is not full yet.
        assert_eq!((files[0], files[9]), (2, 3), "{files:?}");
        store.close().await.expect("clean stop");
    });
}

#[test]
#[allow(clippy::too_many_lines)] // one story, told in order
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

#[test]
#[allow(clippy::too_many_lines)] // one story, told in order
fn records_are_found_by_time_inside_compressed_batches_in_memory_and_on_disk() {
    use protocol::compression::{Codec, Compressor};
    use protocol::record::{BatchBuilder, BatchOptions, NewRecord};

    let executor = SimExecutor::new(3);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(3));
    executor.block_on(async {
        let (store, durable) = start(&handle, &disk).await;
        let config = LogConfig {
            segment_bytes: 20_000,
            ..config()
        };
        let log = store.open_log(log_id(0), "t", config, NOW_MS).await.expect("log");
        let mut compressor = Compressor::default();
        // 300 batches of three records; record n has time 10 n, but the last of each batch is 5 earlier than the first.
        let time = |offset: i64| {
            if offset % 3 == 2 {
                10 * (offset - 2) - 5
            } else {
                10 * offset
            }
        };
        let mut value = vec![0u8; 400];
        for first in (0..900).step_by(3) {
            let options = BatchOptions {
                codec: [Codec::None, Codec::Lz4, Codec::Zstd][first as usize / 3 % 3],
                ..BatchOptions::default()
            };
            let mut builder = BatchBuilder::new(options, &mut compressor);
            for offset in first..first + 3 {
                value
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, byte)| *byte = (i as i64 * offset % 251) as u8);
                let record = NewRecord {
                    timestamp: NOW_MS + time(offset),
                    key: None,
                    value: Some(&value),
                    headers: &[],
                };
                builder.append(&record).expect("fits");
            }
            append(&store, log, builder.finish().expect("batch").bytes, NOW_MS);
        }
        let end = Offset(900);
        while durable.borrow().get(&log) != Some(&end) {
            handle.sleep(std::time::Duration::from_millis(1)).await;
        }
        assert!(store.size(log).expect("open").segments > 3);
        let search = async |search: BatchSearch| search.run();
        for wanted in (-20..9_100).step_by(7) {
            let first = (0..900).find(|offset| time(*offset) >= wanted);
            let found = store
                .offset_for_timestamp(log, NOW_MS + wanted, end, search)
                .await
                .expect("look-up");
            assert_eq!(found.map(|found| found.offset.0), first, "at {wanted}");
            assert_eq!(
                found.map(|found| found.timestamp),
                first.map(|offset| NOW_MS + time(offset))
            );
        }
        let newest = store
            .max_timestamp(log, end, search)
            .await
            .expect("look-up")
            .expect("not empty");
        assert_eq!((newest.offset, newest.timestamp), (Offset(898), NOW_MS + 8980));
        let below = store
            .max_timestamp(log, Offset(450), search)
            .await
            .expect("look-up")
            .expect("not empty");
        assert_eq!(below.offset, Offset(448));
        let none = store
            .offset_for_timestamp(log, NOW_MS + 4500, Offset(400), search)
            .await
            .expect("look-up");
        assert_eq!(none, None, "nothing at or above the bound");
    });
}

#[test]
#[allow(clippy::too_many_lines)] // one story, told in order
fn deleted_records_and_deleted_logs_are_gone_and_stay_gone() {
    let executor = SimExecutor::new(4);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(4));
    let producer = |sequence| Producer {
        id: 5,
        epoch: 0,
        sequence,
    };
    executor.block_on(async {
        let (store, _) = start(&handle, &disk).await;
        let config = LogConfig {
            segment_bytes: 4_000,
            file_delete_delay_ms: 0,
            ..config()
        };
        let kept = store
            .open_log(log_id(0), "kept", config.clone(), NOW_MS)
            .await
            .expect("log");
        let gone = store
            .open_log(log_id(1), "gone", config, NOW_MS)
            .await
            .expect("log");
        for sequence in 0..20 {
            append(
                &store,
                kept,
                batch(1, 1000, NOW_MS, producer(sequence), 1),
                NOW_MS,
            );
            append(
                &store,
                gone,
                batch(1, 1000, NOW_MS, producer(sequence), 1),
                NOW_MS,
            );
        }
        while store.offsets(kept).expect("open").durable_end < Offset(20) {
            handle.sleep(std::time::Duration::from_millis(1)).await;
        }
        assert!(store.delete_records(kept, Offset(21)).await.is_err());
        assert_eq!(
            store.delete_records(kept, Offset(10)).await.expect("delete"),
            Offset(10)
        );
        assert_eq!(
            store.delete_records(kept, Offset(5)).await.expect("delete"),
            Offset(10)
        );
        let offsets = store.offsets(kept).expect("open");
        assert_eq!((offsets.log_start, offsets.log_end), (Offset(10), Offset(20)));
        assert!(matches!(
            store.read(kept, Offset(9), 1000, Offset(20), true),
            storage::store::ReadOutcome::OutOfRange
        ));
        assert_eq!(read_log(&store, kept, Offset(20), 3000).await.len(), 10);
        store.delete_log(gone).await.expect("delete");
        assert_eq!(store.offsets(gone), None);
        // The name can be used again at once.
        let again = store
            .open_log(log_id(2), "gone", LogConfig::default(), NOW_MS)
            .await
            .expect("log");
        assert_eq!(store.offsets(again).expect("open").log_end, Offset(0));
        append(&store, again, batch(1, 300, NOW_MS, PLAIN, 9), NOW_MS);
        while store.offsets(again).expect("open").durable_end < Offset(1) {
            handle.sleep(std::time::Duration::from_millis(1)).await;
        }
    });
    drop(executor);
    let executor = SimExecutor::new(5);
    let handle = executor.handle();
    let disk = disk.restart(&handle);
    executor.block_on(async {
        let (store, _) = start(&handle, &disk).await;
        let again = store
            .open_log(log_id(2), "gone", LogConfig::default(), NOW_MS)
            .await
            .expect("log");
        assert_eq!(store.offsets(again).expect("open").log_end, Offset(1));
        let kept = store
            .open_log(log_id(0), "kept", LogConfig::default(), NOW_MS)
            .await
            .expect("log");
        let offsets = store.offsets(kept).expect("open");
        assert_eq!((offsets.log_start, offsets.log_end), (Offset(10), Offset(20)));
        assert!(
            !disk
                .paths()
                .iter()
                .any(|path| path.to_string_lossy().ends_with("-delete"))
        );
    });
}

#[test]
#[allow(clippy::too_many_lines)] // one story, told in order
fn a_round_forgets_idle_producers_of_every_log_whatever_its_steps() {
    for step in [1, 3, 7, 1000] {
        let executor = SimExecutor::new(8);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(8));
        executor.block_on(async {
            let (store, _) = start(&handle, &disk).await;
            let mut logs = Vec::new();
            for (number, producer_id_expiration_ms) in [(0, 1000), (1, 5000), (2, 1000), (3, 1000)] {
                let config = LogConfig {
                    producer_id_expiration_ms,
                    ..config()
                };
                let name = format!("t{number}");
                logs.push(
                    store
                        .open_log(log_id(number), &name, config, NOW_MS)
                        .await
                        .expect("log"),
                );
            }
            let send = |log: usize, id: i64, sequence: i32, at_ms: i64| {
                let producer = Producer {
                    id,
                    epoch: 0,
                    sequence,
                };
                append(&store, logs[log], batch(1, 300, NOW_MS, producer, 1), at_ms).base_offset
            };
            let known = || -> Vec<Vec<i64>> {
                let of_log = |log: &_| {
                    let mut ids: Vec<_> = store.producers(*log).iter().map(|p| p.producer_id.0).collect();
                    ids.sort_unstable();
                    ids
                };
                logs.iter().map(of_log).collect()
            };
            let round = |now_ms: i64| {
                let (mut sweep, mut forgotten, mut steps) = (ProducerSweep::default(), 0, 0);
                while !sweep.is_over() {
                    forgotten += store.sweep_producers(&mut sweep, now_ms, step);
                    steps += 1;
                    assert!(steps < 100, "a round ends");
                }
                forgotten
            };
            // Log 3 has no producers.
            for log in 0..3 {
                for id in 0..10 {
                    send(log, id, 0, NOW_MS);
                }
            }
            send(0, 4, 1, NOW_MS + 600);
            assert_eq!(round(NOW_MS + 999), 0, "a millisecond early");
            assert_eq!(round(NOW_MS + 1000), 19);
            let all: Vec<_> = (0..10).collect();
            assert_eq!(known(), [vec![4], all, vec![], vec![]]);
            // Who was forgotten may begin anywhere (PR-45), who was not may not.
            assert_eq!(send(2, 7, 33, NOW_MS + 1001), Offset(10));
            let later = batch(
                1,
                300,
                NOW_MS,
                Producer {
                    id: 7,
                    epoch: 0,
                    sequence: 33,
                },
                1,
            );
            let refused = store.append(
                logs[1],
                storage::log::append::AppendBatch::from_client(later, storage::types::LeaderEpoch(0)),
                NOW_MS + 1001,
            );
            assert!(refused.is_err(), "{refused:?}");
            // A new expiration holds from the next round on.
            let shorter = LogConfig {
                producer_id_expiration_ms: 500,
                ..config()
            };
            store.set_config(logs[1], shorter);
            assert_eq!(round(NOW_MS + 1100), 10);
            assert_eq!(known(), [vec![4], vec![], vec![7], vec![]]);
        });
    }
}

#[test]
fn what_a_crash_left_of_a_deleted_topic_is_not_read_as_a_new_topic_of_its_name() {
    let executor = SimExecutor::new(6);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(6));
    executor.block_on(async {
        let (store, _) = start(&handle, &disk).await;
        let old = store
            .open_log(log_id(1), "t", config(), NOW_MS)
            .await
            .expect("log");
        append(&store, old, batch(1, 300, NOW_MS, PLAIN, 9), NOW_MS);
        while store.offsets(old).expect("open").durable_end < Offset(1) {
            handle.sleep(std::time::Duration::from_millis(1)).await;
        }
        store.close_log(old).await.expect("a clean stop");
    });
    drop(executor);
    // The metadata forgot the topic, and the process ended before the directory was renamed; then the name came again.
    let executor = SimExecutor::new(7);
    let handle = executor.handle();
    let disk = disk.restart(&handle);
    executor.block_on(async {
        let (store, _) = start(&handle, &disk).await;
        let new = store
            .open_log(log_id(2), "t", config(), NOW_MS)
            .await
            .expect("log");
        assert_eq!(store.offsets(new).expect("open").log_end, Offset(0));
        let aside = |path: &std::path::PathBuf| path.to_string_lossy().contains("-stray/");
        let logs = disk.paths().into_iter().filter(aside);
        assert!(
            logs.into_iter()
                .any(|path| path.extension().is_some_and(|end| end == "log")),
            "the old records are kept: {:?}",
            disk.paths()
        );
    });
}

/// Who looks through what the start found and who opens the new topic's log, on another shard, meet at one directory.
#[test]
fn a_directory_that_two_set_aside_at_once_is_set_aside() {
    let both = (1, 2);
    for seed in 0..300 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        executor.block_on(async {
            let (store, _) = start(&handle, &disk).await;
            let old = store.open_log(log_id(both.0), "t", config(), NOW_MS).await;
            let old = old.expect("log");
            append(&store, old, batch(1, 300, NOW_MS, PLAIN, 9), NOW_MS);
            store.durable_to(old, Offset(1)).await.expect("durable");
            store.close_log(old).await.expect("a clean stop");
            let space = std::sync::Arc::default();
            let options = StoreOptions { shards: 2, ..small() };
            let other = Store::open_beside(disk.clone(), dir(), 1, options, &space).await;
            let other = other.expect("store");
            let opening = async {
                handle.sleep(std::time::Duration::from_micros(seed * 3)).await;
                other.open_log(log_id(both.1), "t", config(), NOW_MS).await
            };
            let looking = store.set_unknown_aside("t-0", |topic| topic == log_id(both.1).topic);
            let (looked, opened) = futures_lite::future::zip(looking, opening).await;
            looked.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let new = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(
                other.offsets(new).expect("open").log_end,
                Offset(0),
                "seed {seed}"
            );
            let paths = disk.paths();
            let holds = |part: &str| paths.iter().any(|path| path.to_string_lossy().contains(part));
            assert!(holds("-stray/00000000000000000000.log"), "seed {seed}: {paths:?}");
            assert!(holds("/t-0/00000000000000000000.log"), "seed {seed}: {paths:?}");
            assert_eq!(other.offline_reason(), None);
        });
    }
}
