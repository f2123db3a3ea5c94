//! Files that are removed, cut or overwritten between two runs: whatever was acknowledged and is gone is reported with its
//! place, at every start until it is back; what only looks like that after a crash is not.

mod common;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::{PLAIN, append, batch, commit_loop, dir, housekeeping_loop, log_id};
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::disk::{BLOCK_BYTES, Disk, DiskFile, OpenMode};
use storage::error::{Damage, StorageError};
use storage::journal::JournalOptions;
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};
use storage::types::Offset;

const NOW_MS: i64 = 1_700_000_000_000;
const LOGS: u8 = 2;
const FILE_BYTES: u64 = 256 << 10;

fn options() -> StoreOptions {
    StoreOptions {
        journal: JournalOptions {
            file_bytes: FILE_BYTES,
            files_max: 3,
        },
        ..StoreOptions::default()
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 64 << 10,
        ..LogConfig::default()
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Clean,
    Kill,
    PowerLoss,
}

/// A log directory over several runs, each on an executor of its own.
struct Machine {
    executor: SimExecutor,
    disk: SimDisk,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        executor.block_on(async {
            disk.create_dir(dir()).await.expect("create");
            disk.sync_dir(Path::new("/")).await.expect("sync");
        });
        Self { executor, disk }
    }

    /// One run that makes `batches` batches of `size` bytes durable in each log.
    fn run(self, batches: u8, size: usize, end: End) -> Self {
        let handle = self.executor.handle();
        self.executor.block_on(async {
            let store = start(&handle, &self.disk).await.expect("a start");
            for number in 0..LOGS {
                let log = open(&store, number).await.expect("a log");
                let before = store.offsets(log).expect("open").log_end.0;
                for fill in 0..batches {
                    append(&store, log, batch(1, size, NOW_MS, PLAIN, fill), NOW_MS);
                }
                let all = Offset(before + i64::from(batches));
                store.durable_to(log, all).await.expect("durable");
            }
            if end == End::Clean {
                store.close().await.expect("a clean stop");
            }
        });
        self.again(end)
    }

    fn again(self, end: End) -> Self {
        drop(self.executor);
        let executor = SimExecutor::new(77);
        let handle = executor.handle();
        let disk = match end {
            End::PowerLoss => self.disk.restart(&handle),
            _ => self.disk.restart_after_kill(&handle),
        };
        Self { executor, disk }
    }

    fn change<T>(&self, change: impl AsyncFnOnce(&SimDisk) -> T) -> T {
        self.executor.block_on(change(&self.disk))
    }

    /// Starts twice; both times the same is reported, by the start or by the log.
    fn damage(mut self) -> Damage {
        let mut found = Vec::new();
        for _ in 0..2 {
            found.push(self.try_start().expect_err("damage"));
            self = self.again(End::Kill);
        }
        let second = found.pop().expect("two").to_string();
        match found.pop() {
            Some(StorageError::Damage(damage)) => {
                assert_eq!(damage.to_string(), second, "the second start says the same");
                *damage
            }
            other => panic!("{other:?}"),
        }
    }

    /// The log ends, when it starts.
    fn try_start(&self) -> Result<Vec<i64>, StorageError> {
        let handle = self.executor.handle();
        self.executor.block_on(async {
            let store = start(&handle, &self.disk).await?;
            let mut ends = Vec::new();
            for number in 0..LOGS {
                let log = open(&store, number).await?;
                ends.push(store.offsets(log).expect("open").log_end.0);
            }
            Ok(ends)
        })
    }
}

async fn start(handle: &SimHandle, disk: &SimDisk) -> Result<Rc<Store<SimDisk>>, StorageError> {
    recover_journals(disk, dir(), |_, _| {}).await?;
    let store = Store::open(disk.clone(), dir(), 0, options()).await?;
    handle.spawn(commit_loop(Rc::clone(&store), common::Durable::default()));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    Ok(store)
}

async fn open(store: &Store<SimDisk>, number: u8) -> Result<storage::log::LogRef, StorageError> {
    let topic = format!("t{number}");
    store.open_log(log_id(number), &topic, config(), NOW_MS).await
}

fn journal(number: u64) -> PathBuf {
    dir().join(format!(".penstock/journal/shard-0/{number:020}.journal"))
}

async fn cut(disk: &SimDisk, path: &Path, size: u64) {
    let file = disk.open(path, OpenMode::ReadWrite).await.expect("there");
    file.truncate(size).await.expect("cut");
    file.close().await.expect("closed");
}

async fn overwrite_first_block(disk: &SimDisk, path: &Path, byte: u8) {
    let file = disk.open(path, OpenMode::ReadWrite).await.expect("there");
    let mut block = disk.alloc(BLOCK_BYTES);
    block.fill(byte);
    file.write_at(Rc::new(block), 0).await.expect("written");
    file.close().await.expect("closed");
}

#[test]
fn a_damaged_header_of_a_journal_file_is_reported() {
    for position in [0, 8, 10, 16, 30, 60] {
        let machine = Machine::new(1).run(10, 300, End::Kill);
        assert!(machine.disk.flip_bits(journal(1), position, 0xff).expect("there"));
        let damage = machine.damage();
        assert_eq!((damage.path.as_path(), damage.position), (&*journal(1), 0));
        assert!(damage.expected.contains("header of a journal file"), "{damage}");
        assert!(!damage.to_string().contains("offsets"), "{damage}");
    }
    for byte in [0, 0xff] {
        let machine = Machine::new(1).run(10, 300, End::Kill);
        machine.change(async |disk| overwrite_first_block(disk, &journal(1), byte).await);
        assert_eq!(machine.damage().path, journal(1));
    }
}

#[test]
fn a_journal_file_that_is_missing_or_cut_is_reported() {
    for number in [1, 2] {
        let machine = Machine::new(2).run(10, 300, End::Kill);
        machine.change(async |disk| disk.remove_file(&journal(number)).await.expect("there"));
        let damage = machine.damage();
        assert_eq!((damage.path, damage.found.as_str()), (journal(number), "no file"));
        for size in [0, 100, BLOCK_BYTES as u64, 100_000, FILE_BYTES - 1] {
            let machine = Machine::new(2).run(10, 300, End::Kill);
            machine.change(async |disk| cut(disk, &journal(number), size).await);
            assert_eq!(machine.damage().path, journal(number));
        }
    }
    for lost in [
        ".penstock/journal/shard-0",
        ".penstock/journal",
        ".penstock/checkpoints",
        ".penstock",
    ] {
        let machine = Machine::new(2).run(10, 300, End::Kill);
        machine.change(async |disk| disk.remove_dir_all(&dir().join(lost)).await.expect("there"));
        machine.damage();
    }
}

#[test]
fn a_lost_list_of_journal_files_is_reported() {
    let list = dir().join(".penstock/checkpoints/journal-0");
    let machine = Machine::new(3).run(10, 300, End::Kill);
    machine.change(async |disk| disk.remove_file(&list).await.expect("there"));
    assert_eq!(machine.damage().path, list);
}

#[test]
fn a_lost_checkpoint_of_a_clean_stop_is_reported() {
    let checkpoint = dir().join(".penstock/checkpoints/shard-0");
    let machine = Machine::new(3).run(10, 300, End::Clean);
    machine.change(async |disk| disk.remove_file(&checkpoint).await.expect("there"));
    assert_eq!(machine.damage().path, checkpoint);
}

#[test]
fn a_lost_directory_of_a_partition_is_reported() {
    for ends in [
        &[End::Clean][..],
        &[End::Clean, End::Kill],
        &[End::Kill, End::Clean, End::PowerLoss],
    ] {
        let mut machine = Machine::new(4);
        for end in ends {
            // Small and large: through the journal, and straight to the segments.
            machine = machine.run(5, 30_000, *end);
        }
        machine.change(async |disk| disk.remove_dir_all(&dir().join("t1-0")).await.expect("there"));
        let damage = machine.damage();
        let path = damage.path.strip_prefix(dir()).expect("in the directory");
        assert!(path.starts_with("t1-0"), "{damage}");
        assert!(damage.end_offset >= Offset(5), "{damage}");
    }
}

#[test]
fn lost_segments_of_a_partition_are_reported() {
    let first = dir().join("t1-0/00000000000000000000.log");
    for (batches, size) in [(5, 300), (12, 20_000)] {
        let machine = Machine::new(5).run(batches, size, End::Clean);
        machine.change(async |disk| disk.remove_file(&first).await.expect("there"));
        let damage = machine.damage();
        assert_eq!(
            (&damage.path, damage.first_offset),
            (&first, Offset(0)),
            "{damage}"
        );
        assert!(damage.end_offset > Offset(0), "{damage}");
    }
}

#[test]
fn deleted_logs_and_records_are_not_missed() {
    for end in [End::Clean, End::Kill, End::PowerLoss] {
        let machine = Machine::new(6).run(12, 20_000, End::Clean);
        let handle = machine.executor.handle();
        machine.executor.block_on(async {
            let store = start(&handle, &machine.disk).await.expect("a start");
            let (kept, gone) = (
                open(&store, 0).await.expect("a log"),
                open(&store, 1).await.expect("a log"),
            );
            store.delete_records(kept, Offset(12)).await.expect("deleted");
            store.close_log(kept).await.expect("closed");
            store.delete_log(gone).await.expect("deleted");
            handle.sleep(Duration::from_millis(50)).await;
            if end == End::Clean {
                store.close().await.expect("a clean stop");
            }
        });
        let mut machine = machine.again(end);
        for _ in 0..2 {
            assert_eq!(machine.try_start().expect("a start"), [12, 0], "{end:?}");
            machine = machine.again(End::Kill);
        }
    }
}

#[test]
fn logs_without_a_checkpoint_are_taken_only_from_a_broker_that_was_stopped_in_order() {
    let machine = Machine::new(8).run(3, 300, End::Clean);
    machine.change(async |disk| {
        disk.remove_dir_all(&dir().join(".penstock"))
            .await
            .expect("there");
        let mark = dir().join(".kafka_cleanshutdown");
        let file = disk.open(&mark, OpenMode::CreateNew).await.expect("created");
        file.close().await.expect("closed");
    });
    assert_eq!(machine.try_start().expect("a start"), [3, 3]);
}

/// Clean stops after batches with these timestamps behind [`NOW_MS`], one list for each log.
fn closed_with_timestamps(timestamps: [&[i64]; LOGS as usize]) -> Machine {
    let machine = Machine::new(9);
    let handle = machine.executor.handle();
    machine.executor.block_on(async {
        let store = start(&handle, &machine.disk).await.expect("a start");
        for (number, timestamps) in (0..).zip(timestamps) {
            let log = open(&store, number).await.expect("a log");
            for timestamp in timestamps {
                append(&store, log, batch(1, 3000, NOW_MS + timestamp, PLAIN, 1), NOW_MS);
            }
            let all = Offset(i64::try_from(timestamps.len()).expect("few"));
            store.durable_to(log, all).await.expect("durable");
        }
        store.close().await.expect("a clean stop");
    });
    machine.again(End::Clean)
}

#[test]
fn a_time_index_of_another_log_is_made_anew() {
    let rising: &[i64] = &[1, 2, 3, 4, 5, 6, 7, 8];
    for other in [
        &[9, 1, 1, 1, 1, 1, 1, 1][..],
        &[0, 1, 1, 1, 1, 1, 1, 1],
        &[0, 0, 0, 0, 0, 0, 0, 7],
    ] {
        let machine = closed_with_timestamps([rising, other]);
        let index = |number| dir().join(format!("t{number}-0/00000000000000000000.timeindex"));
        machine.change(async |disk| {
            let aside = dir().join("t0-0/aside");
            disk.rename(&index(0), &aside).await.expect("there");
            disk.rename(&index(1), &index(0)).await.expect("there");
            disk.rename(&aside, &index(1)).await.expect("there");
        });
        // Opens, appends and closes both.
        let machine = machine.run(1, 3000, End::Clean);
        assert_eq!(machine.try_start().expect("a start"), [9, 9]);
    }
}
