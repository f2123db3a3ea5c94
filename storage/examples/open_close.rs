//! Measures starts and clean stops with many logs on a real disk: opens so many logs (creates them the first time), appends
//! one batch to each, stops cleanly; several times. Prints how long recovery of the journals, opening the logs and the stop
//! took. Usage: `open_close DIR LOGS ROUNDS SIDE_BY_SIDE`.
#![allow(clippy::print_stdout)] // the figures are the output

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;
use storage::disk::direct::{DirectDisk, run_with_disk};
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::notify::join_all;
use storage::recovery::recover_journals;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, TopicId};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |index: usize, default: u64| {
        args.get(index)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let dir = PathBuf::from(args.get(1).expect("a directory"));
    let (logs, rounds, side_by_side) = (number(2, 1000), number(3, 3), number(4, 8) as usize);
    std::fs::create_dir_all(&dir).expect("the directory can be made");
    let dir = std::fs::canonicalize(dir).expect("it exists");
    for _ in 0..rounds {
        let path = dir.clone();
        run_with_disk(&dir, move |disk| async move {
            round(disk, &path, logs, side_by_side).await
        })
        .expect("a round");
    }
}

async fn round(disk: DirectDisk, dir: &Path, logs: u64, side_by_side: usize) {
    let began = Instant::now();
    recover_journals(&disk, dir, |_, _| {}).await.expect("journals");
    let store = Store::open(disk, dir, 0, StoreOptions::default())
        .await
        .expect("store");
    let recovered = began.elapsed();
    let background = Rc::clone(&store);
    glommio::spawn_local(async move { while background.housekeeping().await.is_ok() {} }).detach();
    let began = Instant::now();
    let mut opened = Vec::new();
    let open = async |number: u64| {
        let mut topic = [3; 16];
        topic[..8].copy_from_slice(&number.to_be_bytes());
        let id = LogId {
            topic: TopicId(topic),
            partition: 0,
        };
        store
            .open_log(id, &format!("t{number}"), LogConfig::default(), 0)
            .await
            .expect("log")
    };
    for from in (0..logs).step_by(side_by_side.max(1)) {
        let to = logs.min(from + side_by_side as u64);
        opened.extend(join_all((from..to).map(open)).await);
    }
    let opening = began.elapsed();
    let batch = batch();
    for log in &opened {
        let batch = AppendBatch::from_client(batch.clone(), LeaderEpoch(0));
        store.append(*log, batch, 0).expect("append");
    }
    let began = Instant::now();
    while !store.commit().await.expect("commit").moved.is_empty() && store.stats().staged_bytes > 0 {}
    let committing = began.elapsed();
    let began = Instant::now();
    store.close().await.expect("clean stop");
    println!(
        "{logs} logs: journals {recovered:.0?}, opening {opening:.0?}, a commit {committing:.0?}, clean stop {:.0?}",
        began.elapsed()
    );
}

/// One small batch; the store looks at the header only.
fn batch() -> Bytes {
    let mut out = vec![0x5a; 500];
    out[0..8].fill(0);
    out[8..12].copy_from_slice(&(500i32 - 12).to_be_bytes());
    out[16] = 2;
    out[21..27].fill(0);
    out[27..43].fill(0);
    out[43..57].fill(0xff);
    out[57..61].copy_from_slice(&1i32.to_be_bytes());
    let crc = crc32c::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(out)
}
