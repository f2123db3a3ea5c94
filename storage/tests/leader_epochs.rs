//! The leader epochs of a log over restarts: its records' epochs, whatever the checkpoint file says, and the newest one even
//! when all records were deleted.

mod common;

use std::rc::Rc;

use common::{PLAIN, batch, commit_loop, dir, housekeeping_loop, log_id};
use storage::checkpoint::write_atomic;
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const FILE: &str = "/data/t0-0/leader-epoch-checkpoint";

/// How a life of the store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Kill,
    PowerLoss,
}

/// Runs one life with the log open, after the one before ended in `end`, and gives the disk as it leaves it.
fn life(
    disk: Option<SimDisk>,
    end: End,
    work: impl AsyncFnOnce(SimHandle, Rc<Store<SimDisk>>, LogRef),
) -> SimDisk {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = match disk {
        Some(disk) if end == End::PowerLoss => disk.restart(&handle),
        Some(disk) => disk.restart_after_kill(&handle),
        None => SimDisk::new(&handle, SimDiskConfig::seeded(1)),
    };
    executor.block_on(async {
        disk.create_dir(dir()).await.expect("create");
        disk.sync_dir(std::path::Path::new("/")).await.expect("sync");
        recover_journals(&disk, dir(), |_, _| {}).await.expect("recovery");
        let store = Store::open(disk.clone(), dir(), 0, StoreOptions::default()).await;
        let store = store.expect("open");
        let durable = common::Durable::default();
        handle.spawn(commit_loop(Rc::clone(&store), durable));
        handle.spawn(housekeeping_loop(Rc::clone(&store)));
        let config = LogConfig {
            segment_bytes: 64 << 10,
            ..LogConfig::default()
        };
        let log = store
            .open_log(log_id(0), "t0", config, NOW_MS)
            .await
            .expect("log");
        work(handle.clone(), Rc::clone(&store), log).await;
        if end == End::Clean {
            store.close().await.expect("clean stop");
        }
    });
    disk
}

/// Appends one batch of `records` records in `epoch` and waits until it is durable.
async fn append(store: &Store<SimDisk>, log: LogRef, records: i32, size: usize, epoch: i32) {
    let bytes = batch(records, size, NOW_MS, PLAIN, 1);
    let appended = store
        .append(log, AppendBatch::from_client(bytes, LeaderEpoch(epoch)), NOW_MS)
        .expect("append");
    let end = appended.last_offset.plus(1);
    store.durable_to(log, end).await.expect("durable");
}

fn epochs_at(store: &Store<SimDisk>, log: LogRef, offsets: &[i64]) -> Vec<i32> {
    offsets
        .iter()
        .map(|at| store.epoch_of(log, Offset(*at)).0)
        .collect()
}

#[test]
fn a_log_whose_records_were_all_deleted_keeps_its_newest_epoch() {
    for end in [End::Clean, End::Kill, End::PowerLoss] {
        let disk = life(None, end, async |_, store, log| {
            append(&store, log, 3, 100, 4).await;
            append(&store, log, 2, 100, 5).await;
            store.delete_records(log, Offset(5)).await.expect("delete");
            assert_eq!(store.newest_epoch(log), LeaderEpoch(5));
        });
        let disk = life(Some(disk), end, async |_, store, log| {
            let ends = store.offsets(log).expect("open");
            assert_eq!((ends.log_start, ends.log_end), (Offset(5), Offset(5)));
            assert_eq!(store.newest_epoch(log), LeaderEpoch(5), "{end:?}");
        });
        life(Some(disk), end, async |_, store, log| {
            assert_eq!(
                store.newest_epoch(log),
                LeaderEpoch(5),
                "{end:?}, the second time"
            );
            assert_eq!(store.epoch_end(log, LeaderEpoch(5)), (LeaderEpoch(5), Offset(5)));
            append(&store, log, 1, 100, 6).await;
            assert_eq!(store.epoch_end(log, LeaderEpoch(6)), (LeaderEpoch(6), Offset(6)));
        });
    }
}

/// As a power loss leaves it that took the batches from 20 on: others were written there since.
fn overruled(end: End, file: &str, epochs: [i32; 3]) {
    let disk = life(None, end, async |_, store, log| {
        append(&store, log, 20, 100, epochs[0]).await;
        append(&store, log, 4, 100, epochs[1]).await;
        append(&store, log, 16, 100, epochs[2]).await;
    });
    let executor = SimExecutor::new(2);
    let disk = disk.restart_after_kill(&executor.handle());
    let written = executor.block_on(write_atomic(&disk, FILE.as_ref(), file.as_bytes()));
    written.expect("write");
    drop(executor);
    // Read more than once: what is found wrong must not come back.
    let look = async |_, store: Rc<Store<SimDisk>>, log| {
        let found = epochs_at(&store, log, &[0, 20, 24, 39]);
        assert_eq!(found, [epochs[0], epochs[1], epochs[2], epochs[2]], "{file}");
        assert_eq!(store.newest_epoch(log), LeaderEpoch(epochs[2]));
    };
    let disk = life(Some(disk), End::Kill, look);
    let disk = life(Some(disk), End::Clean, look);
    let disk = life(Some(disk), End::PowerLoss, look);
    let written = disk.contents(FILE).expect("the file");
    assert_ne!(
        String::from_utf8_lossy(&written),
        file,
        "the clean stop wrote it anew"
    );
}

#[test]
fn a_file_that_tells_of_lost_records_is_overruled_by_the_records() {
    // After a kill the records are read again, after a clean stop the checkpoint knows them.
    for end in [End::Kill, End::Clean] {
        overruled(end, "0\n2\n0 0\n1 20\n", [0, 0, 0]);
        overruled(end, "0\n2\n0 0\n1 20\n", [0, 2, 2]);
        overruled(end, "0\n1\n1 30\n", [0, 0, 2]);
        overruled(end, "0\n3\n0 0\n1 20\n7 99\n", [0, 0, 0]);
    }
}

#[test]
fn the_file_tells_only_of_synced_segments_and_of_all_of_them() {
    let disk = life(None, End::Kill, async |handle, store, log| {
        for epoch in 0..4 {
            append(&store, log, 10, 40 << 10, epoch).await; // a segment each
        }
        handle.sleep(std::time::Duration::from_secs(1)).await;
        append(&store, log, 10, 1000, 9).await;
    });
    let file = disk.contents(FILE).expect("the file");
    assert_eq!(String::from_utf8_lossy(&file), "0\n3\n0 0\n1 10\n2 20\n");
}

#[test]
fn a_segment_read_again_leaves_the_epochs_of_later_ones() {
    let disk = life(None, End::Clean, async |_, store, log| {
        for epoch in 0..4 {
            append(&store, log, 10, 40 << 10, epoch).await; // a segment each
        }
    });
    let executor = SimExecutor::new(2);
    let disk = disk.restart_after_kill(&executor.handle());
    executor
        .block_on(disk.remove_file("/data/t0-0/00000000000000000010.index".as_ref()))
        .expect("remove");
    drop(executor);
    life(Some(disk), End::Clean, async |_, store, log| {
        assert_eq!(epochs_at(&store, log, &[0, 10, 20, 30]), [0, 1, 2, 3]);
    });
}

#[test]
fn a_closed_log_is_on_the_disk_when_its_journal_frames_are_void() {
    let disk = life(None, End::PowerLoss, async |_, store, log| {
        append(&store, log, 10, 1000, 3).await;
        store.close_log(log).await.expect("close");
    });
    life(Some(disk), End::PowerLoss, async |_, store, log| {
        assert_eq!(store.offsets(log).expect("open").log_end, Offset(10));
        assert_eq!(store.newest_epoch(log), LeaderEpoch(3));
    });
}
