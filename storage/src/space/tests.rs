//! What a store does near its lines, on the simulated disk; the reserve and the rate of filling.

use std::path::Path;

use bytes::Bytes;

use super::*;
use crate::disk::sim::{SimDisk, SimDiskConfig};
use crate::log::LogRef;
use crate::log::append::AppendBatch;
use crate::log::config::LogConfig;
use crate::sim_executor::SimExecutor;
use crate::store::StoreOptions;
use crate::types::{LeaderEpoch, LogId, TopicId};

thread_local! {
    /// Walks over all logs.
    pub(super) static WALKS: Cell<u64> = const { Cell::new(0) };
}

const RESERVE: u64 = 1 << 20;

pub(super) fn simulate(story: impl AsyncFn(&SimDisk, &Store<SimDisk>)) {
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(1));
    executor.block_on(async {
        disk.create_dir(Path::new("/data")).await.expect("create");
        let options = StoreOptions {
            reserve_bytes: Some(RESERVE),
            journal: crate::journal::writer::JournalOptions {
                file_bytes: 128 << 10,
                files_max: 3,
            },
            ..StoreOptions::default()
        };
        let store = Store::open(disk.clone(), Path::new("/data"), 0, options).await;
        story(&disk, &store.expect("store")).await;
    });
}

pub(super) async fn open(store: &Store<SimDisk>, number: u8, topic: &str) -> Result<LogRef, StorageError> {
    let id = LogId {
        topic: TopicId([number + 1; 16]),
        partition: 0,
    };
    store.open_log(id, topic, LogConfig::default(), 0).await
}

pub(super) fn append(store: &Store<SimDisk>, log: LogRef, bytes: usize) -> Result<(), AppendError> {
    let bytes = Bytes::from(crate::offline::testing::batch(0, 1, bytes, 9));
    let batch = AppendBatch::from_client(bytes, LeaderEpoch(0));
    store.append(log, batch, 0).map(|_| ())
}

/// Leaves `bytes` above this `line`.
async fn leave_above(disk: &SimDisk, store: &Store<SimDisk>, line: impl Fn(&SpaceWatch) -> i64, bytes: i64) {
    store.watch_space(0).await; // what is needed is a part of it
    let free = (line(&store.space) + bytes).max(0).unsigned_abs();
    let capacity = disk.used_bytes() + free;
    disk.configure(|config| config.capacity_bytes = capacity);
    store.watch_space(1000).await;
}

/// With 100,000 logs a walk takes longer than all else that an append does.
#[test]
fn refused_appends_look_at_all_logs_once_in_a_look() {
    simulate(async |disk, store| {
        let client = open(store, 0, "t").await.expect("log");
        let internal = open(store, 1, "__consumer_offsets").await.expect("log");
        for (log, share) in [(client, 1), (internal, LAST_SHARE)] {
            leave_above(disk, store, |space| space.line_of(share), 16 << 10).await;
            let before = WALKS.get();
            let refused = (0..100).filter(|_| append(store, log, 5000).is_err()).count();
            assert!((90..=100).contains(&refused), "{refused} of 100");
            assert!(WALKS.get() <= before + 1, "{} walks", WALKS.get() - before);
        }
    });
}

#[test]
fn a_batch_for_which_there_are_blocks_looks_at_no_log_and_is_claimed() {
    simulate(async |disk, store| {
        let log = open(store, 0, "t").await.expect("log");
        append(store, log, 5000).expect("room");
        store.commit().await.expect("commit");
        let open = store.log(log).expect("open");
        store
            .flush_log(&open, crate::write_behind::FlushTo::End)
            .await
            .expect("flush");
        assert!(open.state.borrow().has_blocks_for(40_000));
        leave_above(disk, store, SpaceWatch::line, 5000).await;
        let (before, claimed) = (WALKS.get(), store.space.claimed.get());
        for _ in 0..8 {
            append(store, log, 5000).expect("there are blocks");
        }
        assert_eq!(WALKS.get(), before);
        // Others must not take what these need when their blocks are given back.
        assert!(store.space.claimed.get() >= claimed + 40_000);
    });
}

/// CreateTopics with very many partitions.
#[test]
fn logs_that_are_made_between_two_looks_do_not_take_what_a_stop_needs() {
    simulate(async |disk, store| {
        leave_above(disk, store, |space| space.shared.needed(), 400 << 10).await;
        let mut made = 0;
        for number in 0..100 {
            match open(store, number, &format!("t{number}")).await {
                Ok(_) => made += 1,
                Err(StorageError::NoSpace(_)) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!((3..50).contains(&made), "{made} logs");
        store.watch_space(2000).await;
        let left = store.space.shared.left().expect("seen");
        let needed = store.space.shared.needed();
        assert!(left >= needed, "{left} bytes are left, {needed} needed");
    });
}

#[test]
fn the_default_reserve_is_a_hundredth_and_at_most_a_gibibyte() {
    assert_eq!(default_reserve(64 << 20), (64 << 20) / 100);
    assert_eq!(default_reserve(10 << 40), RESERVE_BYTES_MAX);
}

#[test]
fn a_disk_that_fills_steadily_is_predicted() {
    let mut fill = FillRate::default();
    let mut usable = 100_000_000_000u64;
    for second in 0..600 {
        fill.observe(second * 1000, usable);
        usable -= 5_000_000;
    }
    let rate = fill.whole();
    assert!((4_900_000..=5_000_000).contains(&rate), "{rate}");
    let stats = SpaceStats {
        usable_bytes: 1_000_000_000 + 50_000_000,
        reserve_bytes: 1_000_000_000,
        fill_bytes_per_second: 5_000_000,
        ..SpaceStats::default()
    };
    assert_eq!(stats.seconds_to_full(), Some(10));
}

#[test]
fn a_disk_that_does_not_fill_has_no_time_to_full() {
    let mut fill = FillRate::default();
    for second in 0..60 {
        fill.observe(second * 1000, 1_000_000 + second);
    }
    assert_eq!(fill.whole(), 0, "it empties");
    assert_eq!(SpaceStats::default().seconds_to_full(), None);
}
