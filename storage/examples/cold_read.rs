//! Measures catch-up reads on a real disk: a log is filled, the store is opened again with an empty cache, and readers go
//! through it from the beginning, each on its own offsets, as fetches of `FETCH_BYTES` with a pause between two (a client on
//! the way). Prints MB/s, alternately without and with read-ahead. Usage: `cold_read DIR MEGABYTES FETCH_BYTES PAUSE_US
//! READERS ROUNDS`.
#![allow(clippy::print_stdout)] // the figures are the output

#[path = "arguments/mod.rs"]
mod arguments;
#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use arguments::{argument, directory};
use bytes::Bytes;
use common::{PLAIN, batch};
use storage::disk::direct::{DirectDisk, run_with_disk};
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{Durability, LogConfig};
use storage::recovery::recover_journals;
use storage::store::{ReadAheadLimits, ReadOutcome, Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, Offset, TopicId};

const BATCH_BYTES: usize = 16 << 10;

fn main() {
    let dir = directory();
    let (megabytes, fetch, pause) = (argument(2, 512), argument(3, 1 << 20), argument(4, 500));
    let (readers, rounds) = (argument(5, 1), argument(6, 3));
    let filled = dir.clone();
    run_with_disk(
        &dir,
        move |disk| async move { fill(disk, &filled, megabytes).await },
    )
    .expect("filled");
    for _ in 0..rounds {
        for bytes_max in [0, 32 << 20] {
            let path = dir.clone();
            let (bytes, seconds) = run_with_disk(&dir, move |disk| async move {
                read_all(
                    disk,
                    &path,
                    bytes_max,
                    fetch,
                    Duration::from_micros(pause),
                    readers,
                )
                .await
            })
            .expect("read");
            let name = if bytes_max == 0 { "without" } else { "with" };
            println!("{name:8} read-ahead {:6.0} MB/s", bytes as f64 / 1e6 / seconds);
        }
    }
}

async fn open(disk: DirectDisk, dir: &Path, bytes_max: usize) -> Rc<Store<DirectDisk>> {
    recover_journals(&disk, dir, |_, _| {}).await.expect("journals");
    let options = StoreOptions {
        cache_bytes: 1 << 20,
        read_ahead: ReadAheadLimits {
            bytes_max,
            ..ReadAheadLimits::default()
        },
        ..StoreOptions::default()
    };
    Store::open(disk, dir, 0, options).await.expect("store")
}

async fn log(store: &Store<DirectDisk>) -> LogRef {
    let config = LogConfig {
        segment_bytes: 128 << 20,
        durability: Durability::Written,
        ..LogConfig::default()
    };
    let id = LogId {
        topic: TopicId([5; 16]),
        partition: 0,
    };
    store.open_log(id, "cold", config, 0).await.expect("log")
}

async fn fill(disk: DirectDisk, dir: &Path, megabytes: usize) {
    let store = open(disk, dir, 0).await;
    let log = log(&store).await;
    let background = Rc::clone(&store);
    glommio::spawn_local(async move { while background.housekeeping().await.is_ok() {} }).detach();
    let batch = batch(1, BATCH_BYTES, 0, PLAIN, 0x5a);
    let have = store.size(log).expect("open").bytes as usize / BATCH_BYTES;
    for number in have..megabytes * (1 << 20) / BATCH_BYTES {
        let batch = AppendBatch::from_client(batch.clone(), LeaderEpoch(0));
        store.append(log, batch, 0).expect("append");
        if number % 64 == 63 {
            store.commit().await.expect("commit");
        }
    }
    store.close().await.expect("clean stop");
}

async fn read_all(
    disk: DirectDisk,
    dir: &Path,
    bytes_max: usize,
    fetch: usize,
    pause: Duration,
    readers: usize,
) -> (u64, f64) {
    let store = open(disk, dir, bytes_max).await;
    let log = log(&store).await;
    for _ in 0..2 {
        let ahead = Rc::clone(&store);
        glommio::spawn_local(async move { while ahead.read_ahead().await.is_ok() {} }).detach();
    }
    let end = store.offsets(log).expect("open").log_end;
    let began = Instant::now();
    let tasks: Vec<_> = (0..readers as i64)
        .map(|number| {
            let (from, to) = (
                end.0 * number / readers as i64,
                end.0 * (number + 1) / readers as i64,
            );
            let store = Rc::clone(&store);
            glommio::spawn_local(async move { read_range(&store, log, from, to, fetch, pause).await })
        })
        .collect();
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await;
    }
    (bytes, began.elapsed().as_secs_f64())
}

/// Reads from one offset to another; returns the bytes.
async fn read_range(
    store: &Store<DirectDisk>,
    log: LogRef,
    from: i64,
    to: i64,
    fetch: usize,
    pause: Duration,
) -> u64 {
    let (mut at, to, mut bytes) = (Offset(from), Offset(to), 0);
    while at < to {
        let pieces = match store.read(log, at, fetch, to, true) {
            ReadOutcome::Cached(pieces) => pieces,
            ReadOutcome::Cold(cold) => store.read_cold(cold).await.expect("cold read"),
            other => panic!("{other:?} at {at}"),
        };
        let all: usize = pieces.iter().map(Bytes::len).sum();
        at = Offset(at.0 + (all / BATCH_BYTES) as i64);
        bytes += all as u64;
        if pause > Duration::ZERO {
            glommio::timer::sleep(pause).await;
        }
    }
    bytes
}
