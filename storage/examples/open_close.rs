//! Measures starts and clean stops with many logs on a real disk: opens so many logs (creates them the first time), appends
//! one batch to each, stops cleanly; several times. Prints how long recovery of the journals, opening the logs and the stop
//! took. Usage: `open_close DIR LOGS ROUNDS SIDE_BY_SIDE`.
#![allow(clippy::print_stdout)] // the figures are the output

#[path = "arguments/mod.rs"]
mod arguments;
#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use arguments::{argument, directory};
use common::{PLAIN, batch};
use storage::disk::direct::{DirectDisk, run_with_disk};
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::notify::join_all;
use storage::recovery::recover_journals;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, TopicId};

fn main() {
    let dir = directory();
    let (logs, rounds, side_by_side) = (argument(2, 1000), argument(3, 3), argument(4, 8));
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
    let batch = batch(1, 500, 0, PLAIN, 0x5a);
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
