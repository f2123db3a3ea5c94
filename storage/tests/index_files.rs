//! Index files, producer snapshots and the list of leader epochs that are removed, cut, zeroed or another's between two runs
//! (BR-074, BR-092): fetches at every offset, offsets by time, duplicate detection and the ends of epochs are answered as before.

mod common;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use common::{Durable, ReadBatch, commit_loop, content, dir, housekeeping_loop, log_id};
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::disk::{Disk, DiskFile, OpenMode, align_up};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::batch::BatchHeader;
use storage::log::config::LogConfig;
use storage::log::timestamps::BatchSearch;
use storage::recovery::recover_journals;
use storage::retention::RetentionRules;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{ReadOutcome, Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
/// Batches of the log, of three records each, in segments of about 15.
const BATCHES: i32 = 160;
const RECORDS: i32 = 3;

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 16 << 10,
        write_behind_bytes: 8 << 10,
        journal: JournalOptions {
            file_bytes: 128 << 10,
            files_max: 3,
        },
        ..StoreOptions::default()
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 32 << 10,
        index_interval_bytes: 3000,
        ..LogConfig::default()
    }
}

/// The timestamp of a record behind [`NOW_MS`]: mostly rising, some early and some late.
fn timestamp(number: i64) -> i64 {
    NOW_MS
        + match number % 17 {
            3 => 10 * number - 400,
            11 => 10 * number + 250,
            _ => 10 * number,
        }
}

/// Batch number `number` of an idempotent producer.
fn batch(number: i32) -> Bytes {
    let mut builder = BatchBuilder::plain(BatchOptions {
        producer_id: 7,
        producer_epoch: 0,
        base_sequence: number * RECORDS,
        ..BatchOptions::default()
    });
    let value = vec![number as u8; 650];
    for record in 0..RECORDS {
        let record = NewRecord {
            timestamp: timestamp(i64::from(number * RECORDS + record)),
            value: Some(&value),
            ..NewRecord::default()
        };
        builder.append(&record).expect("fits");
    }
    builder.finish().expect("a batch").bytes
}

fn append(store: &Store<SimDisk>, log: LogRef, number: i32) -> storage::log::append::Appended {
    let epoch = LeaderEpoch(number / 40);
    store
        .append(log, AppendBatch::from_client(batch(number), epoch), NOW_MS)
        .expect("append")
}

async fn start(handle: &SimHandle, disk: &SimDisk) -> Rc<Store<SimDisk>> {
    recover_journals(disk, dir(), |_, _| {}).await.expect("journals");
    let store = Store::open(disk.clone(), dir(), 0, options())
        .await
        .expect("store");
    handle.spawn(commit_loop(Rc::clone(&store), Durable::default()));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    store
}

async fn open(store: &Store<SimDisk>) -> LogRef {
    let log = store.open_log(log_id(0), "t", config(), NOW_MS).await;
    log.expect("the log")
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Kill,
}

/// A disk on which a run has left the log.
fn written(end: End) -> (SimExecutor, SimDisk) {
    written_with(BATCHES, end)
}

fn written_with(batches: i32, end: End) -> (SimExecutor, SimDisk) {
    let executor = SimExecutor::new(5);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(5));
    executor.block_on(async {
        disk.create_dir(dir()).await.expect("create");
        disk.sync_dir(Path::new("/")).await.expect("sync");
        let store = start(&handle, &disk).await;
        let log = open(&store).await;
        for number in 0..batches {
            let end = append(&store, log, number).last_offset.plus(1);
            store.durable_to(log, end).await.expect("durable");
        }
        if end == End::Clean {
            store.close().await.expect("a clean stop");
        }
    });
    drop(executor);
    let executor = SimExecutor::new(6);
    let disk = disk.restart_after_kill(&executor.handle());
    (executor, disk)
}

/// What clients ask of the log.
#[derive(Debug, PartialEq, Eq)]
struct Answers {
    /// The first batch of a fetch at each offset.
    fetches: Vec<ReadBatch>,
    /// Offset and timestamp by time, for times around all timestamps.
    times: Vec<Option<(Offset, i64)>>,
    max_timestamp: Option<(Offset, i64)>,
    epochs: Vec<(LeaderEpoch, Offset)>,
    /// Base offsets of the newest batches, sent again.
    duplicates: Vec<(bool, Offset)>,
}

async fn first_batch(store: &Store<SimDisk>, log: LogRef, at: Offset, end: Offset) -> ReadBatch {
    let pieces = match store.read(log, at, 1, end, true) {
        ReadOutcome::Cached(pieces) => pieces,
        ReadOutcome::Cold(cold) => store
            .read_cold(cold)
            .await
            .unwrap_or_else(|e| panic!("at {at}: {e}")),
        other => panic!("at {at}: {other:?}"),
    };
    let bytes = pieces.concat();
    let header = BatchHeader::parse(&bytes).unwrap_or_else(|| panic!("nothing at {at}"));
    ReadBatch {
        base: header.base_offset,
        last: header.last_offset(),
        content: content(&bytes),
    }
}

async fn answers(store: &Store<SimDisk>, log: LogRef, name: &str) -> Answers {
    let end = store.offsets(log).expect("open").log_end;
    let mut fetches = Vec::new();
    for at in 0..end.0 {
        let found = first_batch(store, log, Offset(at), end).await;
        assert!(
            (found.base.0..=found.last.0).contains(&at),
            "{name}: at {at}: {} to {}",
            found.base,
            found.last
        );
        fetches.push(found);
    }
    let search = async |search: BatchSearch| search.run();
    let mut times = Vec::new();
    for step in -45..=i64::from(BATCHES * RECORDS) + 30 {
        let at_ms = NOW_MS + 10 * step + 1;
        let found = store.offset_for_timestamp(log, at_ms, end, search).await;
        times.push(
            found
                .expect("a look-up")
                .map(|found| (found.offset, found.timestamp)),
        );
    }
    let max = store.max_timestamp(log, end, search).await.expect("a look-up");
    let mut duplicates = Vec::new();
    for number in BATCHES - 5..BATCHES {
        let again = append(store, log, number);
        duplicates.push((again.is_duplicate, again.base_offset));
    }
    Answers {
        fetches,
        times,
        max_timestamp: max.map(|found| (found.offset, found.timestamp)),
        epochs: (0..5)
            .map(|epoch| store.epoch_end(log, LeaderEpoch(epoch)))
            .collect(),
        duplicates,
    }
}

/// What is done to all files of a kind.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Removed,
    Half,
    HalfAnEntry,
    Emptied,
    Zeros,
    Garbage,
    /// The content of the file before or after it.
    Foreign(usize),
}

async fn files(disk: &SimDisk, suffix: &str) -> Vec<PathBuf> {
    let log = dir().join("t-0");
    let entries = disk.list(&log).await.expect("the log's directory");
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    let of_kind = names.iter().filter(|name| name.ends_with(suffix));
    of_kind.map(|name| log.join(name)).collect()
}

async fn content_of(disk: &SimDisk, path: &Path) -> Bytes {
    let file = disk.open(path, OpenMode::Read).await.expect("there");
    let size = file.size().await.expect("a size");
    let bytes = file.read_at(0, size as usize).await.expect("its bytes");
    file.close().await.expect("closed");
    bytes
}

async fn replace(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::CreateOrTruncate).await.expect("opened");
    if !bytes.is_empty() {
        let mut buffer = disk.alloc(bytes.len().next_multiple_of(4096));
        buffer.fill(0);
        buffer[..bytes.len()].copy_from_slice(bytes);
        file.write_at(Rc::new(buffer), 0).await.expect("written");
        file.truncate(bytes.len() as u64).await.expect("cut");
    }
    file.close().await.expect("closed");
}

async fn do_damage(disk: &SimDisk, suffix: &str, entry_bytes: usize, damage: Damage) {
    let files = files(disk, suffix).await;
    assert!(!files.is_empty(), "{suffix}");
    let mut contents = Vec::new();
    for file in &files {
        contents.push(content_of(disk, file).await);
    }
    for (at, (file, bytes)) in files.iter().zip(&contents).enumerate() {
        let half = bytes.len() / entry_bytes / 2 * entry_bytes;
        match damage {
            Damage::Removed => disk.remove_file(file).await.expect("there"),
            Damage::Half => replace(disk, file, &bytes[..half]).await,
            Damage::HalfAnEntry => replace(disk, file, &bytes[..bytes.len().min(half + 3)]).await,
            Damage::Emptied => replace(disk, file, &[]).await,
            Damage::Zeros => replace(disk, file, &vec![0; bytes.len()]).await,
            Damage::Garbage => replace(disk, file, &vec![0x5a; bytes.len()]).await,
            Damage::Foreign(by) => replace(disk, file, &contents[(at + by) % contents.len()]).await,
        }
    }
}

/// Every kind of damage to one kind of files.
fn is_answered_as_before(suffix: &str, entry_bytes: usize) {
    for end in [End::Clean, End::Kill] {
        let (executor, disk) = written(end);
        let handle = executor.handle();
        let before = executor.block_on(async {
            let store = start(&handle, &disk).await;
            let log = open(&store).await;
            answers(&store, log, "undamaged").await
        });
        assert_eq!(before.fetches.len(), (BATCHES * RECORDS) as usize);
        assert!(before.duplicates.iter().all(|(is_duplicate, _)| *is_duplicate));
        for damage in [
            Damage::Removed,
            Damage::Half,
            Damage::HalfAnEntry,
            Damage::Emptied,
            Damage::Zeros,
            Damage::Garbage,
            Damage::Foreign(1),
            Damage::Foreign(2),
            Damage::Foreign(100),
        ] {
            let (executor, disk) = written(end);
            let handle = executor.handle();
            let name = format!("{suffix} {damage:?} after {end:?}");
            let after = executor.block_on(async {
                do_damage(&disk, suffix, entry_bytes, damage).await;
                let store = start(&handle, &disk).await;
                let log = open(&store).await;
                answers(&store, log, &name).await
            });
            for (at, (before, after)) in before.fetches.iter().zip(&after.fetches).enumerate() {
                assert_eq!(before, after, "{name}: at {at}");
            }
            for (step, (before, after)) in before.times.iter().zip(&after.times).enumerate() {
                assert_eq!(before, after, "{name}: time {step}");
            }
            assert_eq!(before, after, "{name}");
        }
    }
}

#[test]
fn offset_indexes_may_be_lost_or_wrong() {
    is_answered_as_before(".index", 8);
}

#[test]
fn time_indexes_may_be_lost_or_wrong() {
    is_answered_as_before(".timeindex", 12);
}

#[test]
fn producer_snapshots_may_be_lost_or_wrong() {
    is_answered_as_before(".snapshot", 1);
}

#[test]
fn the_list_of_leader_epochs_may_be_lost_or_wrong() {
    is_answered_as_before("leader-epoch-checkpoint", 1);
}

/// Kafka's tools take a time index without an offset index for damage, also of a segment too short for entries in the latter.
#[test]
fn after_a_clean_stop_no_time_index_is_alone() {
    for batches in [1, 3, BATCHES] {
        let (executor, disk) = written_with(batches, End::Clean);
        executor.block_on(async {
            let times = files(&disk, ".timeindex").await;
            assert_eq!(times.len(), files(&disk, ".log").await.len());
            let beside: Vec<PathBuf> = times.iter().map(|path| path.with_extension("index")).collect();
            assert_eq!(files(&disk, ".index").await, beside, "{batches} batches");
        });
    }
}

/// A segment that was left shortly before a crash has the blocks of its file still: where its batches end is found out, and the
/// file is cut there.
#[test]
fn a_closed_segment_with_whole_blocks_is_cut_to_its_batches() {
    let (executor, disk) = written(End::Clean);
    let handle = executor.handle();
    executor.block_on(async {
        let first = files(&disk, ".log").await[0].clone();
        let bytes = content_of(&disk, &first).await;
        let file = disk.open(&first, OpenMode::ReadWrite).await.expect("there");
        file.truncate(align_up(bytes.len() as u64)).await.expect("longer");
        file.close().await.expect("closed");
        let store = start(&handle, &disk).await;
        open(&store).await;
        assert_eq!(content_of(&disk, &first).await, bytes);
    });
}

#[test]
fn retention_does_not_believe_a_time_index_that_was_cut() {
    for damage in [
        Damage::Half,
        Damage::HalfAnEntry,
        Damage::Emptied,
        Damage::Zeros,
        Damage::Foreign(1),
    ] {
        let (executor, disk) = written(End::Clean);
        let handle = executor.handle();
        executor.block_on(async {
            do_damage(&disk, ".timeindex", 12, damage).await;
            let second = files(&disk, ".log").await[1].clone();
            let second = second.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            let second: i64 = second.expect("a segment is named by its base offset");
            let newest = (0..second).map(timestamp).max().expect("records");
            let store = start(&handle, &disk).await;
            let kept = LogConfig {
                retention: RetentionRules {
                    by_age_and_size: true,
                    ms: 1000,
                    bytes: -1,
                },
                ..config()
            };
            let log = store
                .open_log(log_id(0), "t", kept, NOW_MS)
                .await
                .expect("the log");
            let end = store.offsets(log).expect("open").log_end;
            let too_early = store.retain(log, end, newest + 1000).await.expect("a pass");
            assert_eq!(
                too_early,
                Offset(0),
                "{damage:?}: no record of the first segment is too old"
            );
            // Another segment's index may make it look younger: it stays until somebody looks up a time, as in Kafka.
            if !matches!(damage, Damage::Foreign(_)) {
                let start = store.retain(log, end, newest + 1001).await.expect("a pass");
                assert_eq!(start, Offset(second), "{damage:?}");
            }
        });
    }
}
