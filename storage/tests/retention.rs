//! Segments on the simulated disk: when they roll, when they go by age, by size and because the log starts above them, how
//! long their files stay, and what readers of them get (RT-1 to RT-10, BR-049, BR-080, BR-104, BR-128).

mod common;

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use common::{
    PLAIN, Producer, append, batch, commit_loop, dir, housekeeping_loop, log_id, open_store, read_log,
};
use storage::disk::Disk;
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, SimFault, TracePhase};
use storage::error::StorageError;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{Durability, LogConfig};
use storage::retention::RetentionRules;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{ColdRead, ReadOutcome, Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
/// Of the delay of removed files.
const DELAY_MS: u64 = 60_000;

/// Segments of four batches of a thousand bytes, kept for a minute.
fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 4000,
        segment_ms: i64::MAX, // records of different years stay together
        retention: RetentionRules {
            by_age_and_size: true,
            ms: 60_000,
            bytes: -1,
        },
        file_delete_delay_ms: DELAY_MS,
        ..LogConfig::default()
    }
}

fn by_size(bytes: i64) -> LogConfig {
    let retention = RetentionRules {
        by_age_and_size: true,
        ms: -1,
        bytes,
    };
    LogConfig {
        retention,
        ..config()
    }
}

async fn start(handle: &SimHandle, disk: &SimDisk) -> Rc<Store<SimDisk>> {
    let options = StoreOptions {
        cache_bytes: 8 << 10, // so that readers go to the disk
        open_files_max: 2,
        ..StoreOptions::default()
    };
    let store = open_store(disk, options).await;
    handle.spawn(commit_loop(Rc::clone(&store), common::Durable::default()));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    store
}

/// Runs a story on a new disk, then perhaps more of it after a power loss.
fn story(seed: u64, first: impl AsyncFnOnce(SimHandle, Rc<Store<SimDisk>>, SimDisk)) -> SimDisk {
    let executor = SimExecutor::new(seed);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
    executor.block_on(async {
        let store = start(&handle, &disk).await;
        first(handle.clone(), store, disk.clone()).await;
    });
    disk
}

fn after_power_loss(
    disk: &SimDisk,
    seed: u64,
    next: impl AsyncFnOnce(SimHandle, Rc<Store<SimDisk>>, SimDisk),
) -> SimDisk {
    let executor = SimExecutor::new(seed);
    let handle = executor.handle();
    let disk = disk.restart(&handle);
    executor.block_on(async {
        let store = start(&handle, &disk).await;
        next(handle.clone(), store, disk.clone()).await;
    });
    disk
}

async fn open(store: &Store<SimDisk>, config: LogConfig) -> LogRef {
    store.open_log(log_id(0), "t", config, NOW_MS).await.expect("log")
}

/// Appends a batch of a thousand bytes for each timestamp, and waits until all of it is durable and written behind.
async fn fill(handle: &SimHandle, store: &Store<SimDisk>, log: LogRef, stamps: &[i64]) {
    for (number, stamp) in stamps.iter().enumerate() {
        append(store, log, batch(1, 1000, *stamp, PLAIN, number as u8), NOW_MS);
    }
    settle(handle, store, log).await;
}

async fn settle(handle: &SimHandle, store: &Store<SimDisk>, log: LogRef) {
    let end = store.offsets(log).expect("open").log_end;
    store.durable_to(log, end).await.expect("durable");
    handle.sleep(Duration::from_millis(200)).await;
}

/// Log start, log end and segments.
fn shape(store: &Store<SimDisk>, log: LogRef) -> (i64, i64, usize) {
    let ends = store.offsets(log).expect("open");
    let segments = store.size(log).expect("open").segments;
    (ends.log_start.0, ends.log_end.0, segments)
}

async fn retain(store: &Store<SimDisk>, log: LogRef, now_ms: i64) -> i64 {
    let mark = store.offsets(log).expect("open").durable_end;
    let is_due = store.is_retention_due(log, mark, now_ms);
    let before = store.stats().removals.segments();
    let start = store.retain(log, mark, now_ms).await.expect("retained");
    let removed = store.stats().removals.segments() - before;
    assert_eq!(is_due, removed > 0, "what is due is removed and nothing else");
    start.0
}

/// Files in the log's directory whose names end so.
fn files(disk: &SimDisk, ending: &str) -> Vec<String> {
    let names = disk.paths().into_iter().filter_map(|path| {
        let text = path.to_string_lossy().into_owned();
        text.strip_prefix("/data/t-0").map(ToOwned::to_owned)
    });
    names.filter(|name| name.ends_with(ending)).collect()
}

#[test]
fn rt_1_a_segment_is_rolled_by_size_and_by_the_age_of_its_first_batch_less_jitter() {
    story(1, async |handle, store, _| {
        let config = LogConfig {
            segment_ms: 1000,
            segment_jitter_ms: 400,
            ..config()
        };
        let jitter = config.clone().drawn(log_id(0)).segment_jitter_ms;
        let log = open(&store, config).await;
        fill(&handle, &store, log, &[NOW_MS; 5]).await;
        assert_eq!(shape(&store, log), (0, 5, 2), "four batches fill a segment");
        let edge = 1000 - jitter;
        fill(&handle, &store, log, &[NOW_MS + edge]).await;
        assert_eq!(shape(&store, log).2, 2, "not older than that");
        fill(&handle, &store, log, &[NOW_MS + edge + 1]).await;
        assert_eq!(shape(&store, log).2, 3);
        // Without timestamps the clock counts, from when the segment was begun.
        append(&store, log, batch(1, 1000, -1, PLAIN, 1), NOW_MS + edge);
        assert_eq!(shape(&store, log).2, 3);
        append(&store, log, batch(1, 1000, -1, PLAIN, 1), NOW_MS + edge + 1);
        assert_eq!(shape(&store, log).2, 4);
    });
}

#[test]
fn rt_2_and_rt_3_an_idle_log_is_not_rolled_and_a_roll_takes_producers_along() {
    story(2, async |handle, store, disk| {
        let config = LogConfig {
            segment_ms: 1000,
            retention: RetentionRules::KEEP,
            ..config()
        };
        let log = open(&store, config).await;
        let producer = Producer {
            id: 9,
            epoch: 0,
            sequence: 0,
        };
        append(&store, log, batch(1, 500, NOW_MS, producer, 1), NOW_MS);
        settle(&handle, &store, log).await;
        assert_eq!(retain(&store, log, NOW_MS + 1_000_000_000).await, 0);
        assert_eq!(
            shape(&store, log),
            (0, 1, 1),
            "nothing is appended, nothing is rolled"
        );
        append(&store, log, batch(1, 500, NOW_MS + 2000, PLAIN, 1), NOW_MS + 2000);
        settle(&handle, &store, log).await;
        assert_eq!(shape(&store, log), (0, 2, 2));
        let snapshots = files(&disk, ".snapshot");
        assert_eq!(snapshots, ["/00000000000000000001.snapshot"]);
        assert_eq!(
            files(&disk, "0.timeindex").len(),
            1,
            "the old segment is finished"
        );
    });
}

#[test]
fn rt_4_segments_go_by_the_age_of_their_newest_record_also_after_a_restart_that_reads_none_of_them() {
    let hour = 3_600_000;
    let stamps: Vec<i64> = (0..10).map(|number| NOW_MS + number * hour).collect();
    let disk = story(3, async |handle, store, disk| {
        let log = open(&store, config()).await;
        fill(&handle, &store, log, &stamps).await;
        assert_eq!(shape(&store, log), (0, 10, 3));
        assert_eq!(
            retain(&store, log, stamps[3] + 60_000).await,
            0,
            "not older than it may be"
        );
        assert_eq!(retain(&store, log, stamps[3] + 60_001).await, 4);
        assert_eq!(shape(&store, log), (4, 10, 2));
        let mark = store.offsets(log).expect("open").log_end;
        assert!(matches!(
            store.read(log, Offset(3), 100, mark, true),
            ReadOutcome::OutOfRange
        ));
        assert_eq!(read_log(&store, log, mark, 3000).await.len(), 6);
        assert_eq!(store.stats().removals.segments_by_age, 1);
        assert_eq!(store.stats().removals.segment_bytes, 4000);
        store.close().await.expect("a clean stop");
        drop(disk);
    });
    after_power_loss(&disk, 4, async |_, store, disk| {
        disk.record_trace();
        let log = open(&store, config()).await;
        let trace = disk.take_trace();
        let read: Vec<_> = trace
            .iter()
            .filter(|e| e.op == DiskOp::Read && e.phase == TracePhase::Done)
            .filter(|e| e.path.to_string_lossy().ends_with("4.log"))
            .collect();
        assert!(read.is_empty(), "a closed segment is not read: {read:?}");
        assert_eq!(shape(&store, log), (4, 10, 2));
        assert_eq!(retain(&store, log, stamps[7] + 60_000).await, 4);
        assert_eq!(retain(&store, log, stamps[7] + 60_001).await, 8);
        // The active segment's newest record is known, too.
        assert_eq!(retain(&store, log, stamps[9] + 60_000).await, 8);
        assert_eq!(retain(&store, log, stamps[9] + 60_001).await, 10);
        assert_eq!(shape(&store, log), (10, 10, 1));
    });
}

#[test]
fn rt_4_records_without_timestamps_are_as_old_as_the_last_write_to_their_segment() {
    let disk = story(5, async |handle, store, _| {
        let log = open(&store, config()).await;
        fill(&handle, &store, log, &[-1; 5]).await;
        assert_eq!(retain(&store, log, NOW_MS + 60_000).await, 0);
        // A later append makes its segment younger.
        append(&store, log, batch(1, 1000, -1, PLAIN, 1), NOW_MS + 500);
        settle(&handle, &store, log).await;
        assert_eq!(retain(&store, log, NOW_MS + 60_001).await, 4);
        assert_eq!(retain(&store, log, NOW_MS + 60_500).await, 4);
        store.close().await.expect("a clean stop");
    });
    after_power_loss(&disk, 6, async |_, store, _| {
        // The file's time, which the simulated disk counts from its own start.
        let log = open(&store, config()).await;
        assert_eq!(retain(&store, log, NOW_MS + 50_000).await, 4);
        assert_eq!(retain(&store, log, NOW_MS + 120_000).await, 6);
    });
}

#[test]
fn br_104_old_records_go_oldest_first_up_to_a_young_one_and_br_080_one_of_the_future_keeps_what_follows() {
    story(7, async |handle, store, _| {
        let old = NOW_MS - 31_536_000_000;
        let log = open(&store, config()).await;
        // Three full segments, a young record in the second, and the active one.
        let mut stamps = [old; 13];
        stamps[5] = NOW_MS;
        fill(&handle, &store, log, &stamps).await;
        assert_eq!(retain(&store, log, NOW_MS + 1000).await, 4);
        assert_eq!(shape(&store, log), (4, 13, 3));
        // Once that is old, all goes, and the log is empty at its end.
        assert_eq!(retain(&store, log, NOW_MS + 60_001).await, 13);
        assert_eq!(shape(&store, log), (13, 13, 1));
        let future = NOW_MS + 315_360_000_000;
        fill(
            &handle,
            &store,
            log,
            &[future, old, old, old, old, old, old, old, old],
        )
        .await;
        assert_eq!(retain(&store, log, NOW_MS + 60_001).await, 13);
        store.set_config(log, by_size(1000));
        assert_eq!(
            retain(&store, log, NOW_MS + 60_001).await,
            21,
            "size does not look at times"
        );
        store.set_config(log, config());
        assert_eq!(retain(&store, log, NOW_MS + 60_001).await, 22);
    });
}

#[test]
fn rt_5_size_takes_the_oldest_while_enough_is_left_and_a_change_counts_from_the_next_pass() {
    story(8, async |handle, store, _| {
        let log = open(&store, by_size(-1)).await;
        fill(&handle, &store, log, &[NOW_MS; 14]).await;
        assert_eq!(shape(&store, log), (0, 14, 4));
        assert_eq!(retain(&store, log, NOW_MS).await, 0, "no limit");
        store.set_config(log, by_size(10_001));
        assert_eq!(retain(&store, log, NOW_MS).await, 0);
        store.set_config(log, by_size(10_000));
        assert_eq!(retain(&store, log, NOW_MS).await, 4);
        store.set_config(log, by_size(5999));
        assert_eq!(retain(&store, log, NOW_MS).await, 8);
        assert_eq!(store.size(log).expect("open").bytes, 6000);
        store.set_config(log, by_size(1));
        assert_eq!(
            retain(&store, log, NOW_MS).await,
            12,
            "the active segment is larger than that"
        );
        store.set_config(log, by_size(0));
        assert_eq!(retain(&store, log, NOW_MS).await, 14);
        assert_eq!(shape(&store, log), (14, 14, 1));
        assert_eq!(store.stats().removals.segments_by_size, 4);
    });
}

#[test]
fn rt_6_and_br_049_a_log_that_is_all_old_goes_on_empty_and_knows_its_producers() {
    for (seed, durability) in [(9, Durability::Fsync), (10, Durability::Written)] {
        let config = LogConfig {
            durability,
            ..config()
        };
        let producer = |sequence| Producer {
            id: 9,
            epoch: 0,
            sequence,
        };
        let disk = story(seed, async |handle, store, disk| {
            let log = open(&store, config.clone()).await;
            for sequence in 0..5 {
                append(&store, log, batch(1, 900, NOW_MS, producer(sequence), 1), NOW_MS);
            }
            settle(&handle, &store, log).await;
            // Nothing above the high watermark goes.
            let start = store
                .retain(log, Offset(4), NOW_MS + 70_000)
                .await
                .expect("retained");
            assert_eq!((start.0, shape(&store, log)), (4, (4, 5, 1)));
            assert_eq!(retain(&store, log, NOW_MS + 70_000).await, 5);
            assert_eq!(shape(&store, log), (5, 5, 1));
            assert_eq!(store.size(log).expect("open").bytes, 0);
            assert_eq!(store.newest_epoch(log), LeaderEpoch(0));
            assert_eq!(files(&disk, ".log"), ["/00000000000000000005.log"]);
            assert_eq!(
                retain(&store, log, NOW_MS + 1_000_000).await,
                5,
                "an empty segment stays"
            );
        });
        let again =
            |sequence| AppendBatch::from_client(batch(1, 900, NOW_MS, producer(sequence), 1), LeaderEpoch(0));
        let disk = after_power_loss(&disk, seed + 100, async |handle, store, _| {
            let log = open(&store, config.clone()).await;
            assert_eq!(shape(&store, log), (5, 5, 1));
            let duplicate = store.append(log, again(4), NOW_MS).expect("a duplicate");
            assert!(duplicate.is_duplicate, "the producer is known");
            let next = store.append(log, again(5), NOW_MS).expect("appended");
            assert_eq!((next.base_offset.0, next.log_start.0), (5, 5));
            settle(&handle, &store, log).await;
        });
        after_power_loss(&disk, seed + 200, async |_, store, _| {
            let log = open(&store, config.clone()).await;
            let (start, end, _) = shape(&store, log);
            // What the kernel alone had of it may be lost with the power.
            assert!(
                start == 5 && (end == 6 || durability == Durability::Written),
                "{end}"
            );
        });
    }
}

#[test]
fn rt_7_each_reason_counts_what_it_removed() {
    story(11, async |handle, store, _| {
        let log = open(&store, config()).await;
        let old = NOW_MS - 100_000;
        let mut stamps = [NOW_MS; 18];
        stamps[8..12].fill(old);
        fill(&handle, &store, log, &stamps).await;
        // A start in the second segment: only the first lies wholly below.
        let start = store.delete_records(log, Offset(5)).await.expect("deleted");
        assert_eq!((start.0, shape(&store, log)), (5, (5, 18, 4)));
        let rules = RetentionRules {
            by_age_and_size: true,
            ms: 60_000,
            bytes: 10_000,
        };
        store.set_config(
            log,
            LogConfig {
                retention: rules,
                ..config()
            },
        );
        assert_eq!(retain(&store, log, NOW_MS).await, 12);
        let removals = store.stats().removals;
        assert_eq!(
            (
                removals.segments_by_log_start,
                removals.segments_by_size,
                removals.segments_by_age
            ),
            (1, 1, 1)
        );
    });
}

#[test]
fn rt_8_files_are_renamed_and_removed_after_their_delay_and_those_of_an_earlier_run_at_once() {
    let disk = story(12, async |handle, store, disk| {
        let log = open(&store, by_size(8000)).await;
        fill(&handle, &store, log, &[NOW_MS; 12]).await;
        assert_eq!(store.removals_due(1000), None);
        assert_eq!(retain(&store, log, NOW_MS).await, 4);
        let renamed = files(&disk, ".deleted");
        assert!(
            renamed
                .iter()
                .any(|name| name == "/00000000000000000000.log.deleted")
        );
        assert!(
            renamed
                .iter()
                .any(|name| name == "/00000000000000000000.timeindex.deleted")
        );
        assert!(files(&disk, "00000.log").is_empty());
        assert_eq!(store.stats().removals.waiting_bytes, 4000);
        // The delay counts from when it was seen.
        assert_eq!(store.removals_due(2000), Some(2000 + DELAY_MS));
        handle.sleep(Duration::from_millis(50)).await;
        assert_eq!(store.removals_due(2000 + DELAY_MS - 1), Some(2000 + DELAY_MS));
        handle.sleep(Duration::from_millis(50)).await;
        assert_eq!(files(&disk, ".deleted"), renamed);
        assert_eq!(store.removals_due(2000 + DELAY_MS), None);
        handle.sleep(Duration::from_millis(50)).await;
        assert!(files(&disk, ".deleted").is_empty());
        assert_eq!(store.stats().removals.waiting_bytes, 0);
        // One more, which the end of the run overtakes, and a log that is deleted.
        store.set_config(log, by_size(4000));
        assert_eq!(retain(&store, log, NOW_MS).await, 8);
        let gone = store
            .open_log(log_id(1), "gone", config(), NOW_MS)
            .await
            .expect("log");
        store.delete_log(gone).await.expect("deleted");
        handle.sleep(Duration::from_millis(50)).await;
        assert!(directories(&disk).iter().any(|name| name.ends_with("-delete")));
        disk.sync_filesystem(dir()).await.expect("synced");
    });
    after_power_loss(&disk, 13, async |handle, store, disk| {
        assert!(!files(&disk, ".deleted").is_empty(), "{:?}", disk.paths());
        let log = open(&store, by_size(4000)).await;
        assert_eq!(shape(&store, log), (8, 12, 1));
        handle.sleep(Duration::from_millis(50)).await;
        assert!(files(&disk, ".deleted").is_empty());
        assert!(!directories(&disk).iter().any(|name| name.ends_with("-delete")));
    });
}

fn directories(disk: &SimDisk) -> Vec<String> {
    let names = disk.paths().into_iter().filter_map(|path| {
        let name = path.strip_prefix("/data").ok()?.components().next()?;
        Some(name.as_os_str().to_string_lossy().into_owned())
    });
    names.collect()
}

#[test]
fn a_deleted_log_gives_its_space_back_when_its_delay_is_over_also_with_readers_on_it() {
    story(14, async |handle, store, disk| {
        let log = open(&store, config()).await;
        fill(&handle, &store, log, &[NOW_MS; 200]).await;
        let used = disk.used_bytes();
        let end = store.offsets(log).expect("open").log_end;
        let ReadOutcome::Cold(plan) = store.read(log, Offset(0), 3000, end, true) else {
            panic!("the beginning is not in memory any more");
        };
        let slow = SimFault::delay(DiskOp::Read, "/t-0/", Duration::from_millis(80)).times(1);
        disk.add_fault(slow);
        let reader = Rc::clone(&store);
        let reading = handle.spawn(async move { reader.read_cold(plan).await });
        handle.sleep(Duration::from_millis(5)).await;
        store.delete_log(log).await.expect("deleted");
        let ended = reading.await;
        assert!(
            ended.is_ok() || matches!(ended, Err(StorageError::NoSuchLog)),
            "{ended:?}"
        );
        assert!(matches!(
            store.read_cold(plan).await,
            Err(StorageError::NoSuchLog)
        ));
        assert_eq!(store.stats().removals.waiting_bytes, 200_000);
        store.removals_due(0);
        handle.sleep(Duration::from_millis(50)).await;
        assert!(disk.used_bytes() > used - 200_000, "its delay is not over");
        store.removals_due(DELAY_MS);
        handle.sleep(Duration::from_millis(100)).await;
        assert!(
            disk.used_bytes() <= used - 200_000,
            "{} of {used}",
            disk.used_bytes()
        );
        assert!(store.offline_reason().is_none());
    });
}

#[test]
fn a_planned_read_of_a_segment_that_went_is_out_of_range_and_one_under_way_ends_with_its_records() {
    let disk = story(15, async |handle, store, _| {
        let log = open(&store, by_size(4000)).await;
        fill(&handle, &store, log, &[NOW_MS; 40]).await;
        store.close().await.expect("a clean stop");
    });
    // No segment's file is open, but the active one's.
    after_power_loss(&disk, 16, async |handle, store, disk| {
        let log = open(&store, by_size(4000)).await;
        let end = store.offsets(log).expect("open").log_end;
        let plan = |at| match store.read(log, Offset(at), 2000, end, true) {
            ReadOutcome::Cold(plan) => plan,
            other => panic!("{other:?} at {at}"),
        };
        let (planned, under_way): (ColdRead, ColdRead) = (plan(1), plan(9));
        let long = Duration::from_secs(2);
        disk.add_fault(SimFault::delay(DiskOp::Read, "008.log", long).times(1));
        let about_to_open = plan(6);
        let read = |plan| {
            let reader = Rc::clone(&store);
            handle.spawn(async move { reader.read_cold(plan).await })
        };
        let reading = read(under_way);
        handle.sleep(Duration::from_millis(5)).await;
        // This one is about to open the file, and does not find it any more.
        disk.add_fault(SimFault::error(DiskOp::Open, "004.log", ErrorKind::NotFound).times(1));
        let opening = read(about_to_open);
        for _ in 0..3 {
            handle.yield_now().await;
        }
        assert_eq!(retain(&store, log, NOW_MS).await, 36);
        // Also when the files are removed at once.
        store.removals_due(0);
        store.removals_due(DELAY_MS);
        handle.sleep(Duration::from_millis(50)).await;
        assert!(files(&disk, ".deleted").is_empty());
        let pieces = reading.await.expect("the file is open").concat();
        assert_eq!(pieces.get(..8), Some(&9i64.to_be_bytes()[..]));
        let late = store.read_cold(planned).await;
        for ended in [opening.await, late] {
            assert!(
                matches!(ended, Err(StorageError::OffsetOutOfRange { start, .. }) if start == Offset(36)),
                "{ended:?}"
            );
        }
        assert!(store.offline_reason().is_none());
        assert_eq!(read_log(&store, log, end, 3000).await.len(), 4);
    });
}

#[test]
fn rt_9_the_log_start_is_the_first_segments_base_unless_it_is_higher_and_outlasts_a_power_loss() {
    let disk = story(16, async |handle, store, _| {
        let log = open(&store, by_size(4000)).await;
        fill(&handle, &store, log, &[NOW_MS; 14]).await;
        store.delete_records(log, Offset(9)).await.expect("deleted");
        assert_eq!(shape(&store, log), (9, 14, 2));
        assert_eq!(retain(&store, log, NOW_MS).await, 9, "it is higher");
        fill(&handle, &store, log, &[NOW_MS; 4]).await;
        assert_eq!(retain(&store, log, NOW_MS).await, 12);
    });
    after_power_loss(&disk, 17, async |_, store, _| {
        let log = open(&store, by_size(4000)).await;
        assert_eq!(shape(&store, log).0, 12);
        let end = store.offsets(log).expect("open").log_end;
        assert_eq!(read_log(&store, log, end, 3000).await.len(), 6);
    });
}

#[test]
fn rt_10_and_br_128_without_delete_or_limits_nothing_goes_however_old_and_large() {
    story(18, async |handle, store, _| {
        let forever = [
            RetentionRules::KEEP,
            // compact, or an empty list: the limits are set and do not count.
            RetentionRules {
                by_age_and_size: false,
                ms: 1,
                bytes: 1,
            },
            RetentionRules {
                by_age_and_size: true,
                ms: -1,
                bytes: -1,
            },
            RetentionRules {
                by_age_and_size: true,
                ms: i64::MAX,
                bytes: i64::MAX,
            },
        ];
        let log = open(&store, config()).await;
        fill(&handle, &store, log, &[NOW_MS; 14]).await;
        for retention in forever {
            let config = LogConfig {
                retention,
                ..config()
            };
            store.set_config(log, config);
            for now in [NOW_MS, NOW_MS + 3_000_000_000_000, i64::MAX] {
                assert_eq!(retain(&store, log, now).await, 0, "{retention:?}");
            }
        }
        assert_eq!(shape(&store, log), (0, 14, 4));
        // Only what somebody deleted goes.
        store.set_config(
            log,
            LogConfig {
                retention: forever[1],
                ..config()
            },
        );
        store.delete_records(log, Offset(10)).await.expect("deleted");
        assert_eq!(shape(&store, log), (10, 14, 2));
    });
}

#[test]
fn logs_that_are_closed_or_gone_are_left_alone() {
    story(19, async |handle, store, _| {
        let log = open(&store, by_size(0)).await;
        fill(&handle, &store, log, &[NOW_MS; 9]).await;
        store.close_log(log).await.expect("closed");
        assert!(!store.is_retention_due(log, Offset(9), NOW_MS));
        assert!(matches!(
            store.retain(log, Offset(9), NOW_MS).await,
            Err(StorageError::NoSuchLog)
        ));
        let log = open(&store, by_size(0)).await;
        assert_eq!(shape(&store, log).0, 0);
    });
}
