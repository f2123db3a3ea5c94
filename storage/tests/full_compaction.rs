//! Compaction on a full disk, simulated: one moment without space ends neither the loop nor a log's part in it, a pass needs room
//! for what comes of it and not for what it reads, and a log that finds none does not keep the others from their turn.

mod common;

use std::collections::BTreeMap;
use std::io::ErrorKind::StorageFull;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::crashes::too_long;
use common::pace::SimPace;
use common::{commit_loop, dir, housekeeping_loop, log_id, open_store, read_log};
use futures_lite::future::or;
use protocol::compression::CodecContexts;
use protocol::record::{BatchBuilder, BatchOptions, NewRecord};
use storage::compaction::offset_map::MapKey;
use storage::compaction::run::{CleanerLimits, Looked};
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, SimFault, TracePhase};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{CompactionConfig, LogConfig};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;

/// What a pass leaves to others when there is no reserve.
const LEFT_BYTES: u64 = 16 << 20;

/// More looks than a log is passed over for.
const LOOKS_MAX: usize = 40;

fn options() -> StoreOptions {
    StoreOptions {
        write_behind_bytes: 1 << 20,
        journal: JournalOptions {
            file_bytes: 8 << 20,
            files_max: 3,
        },
        reserve_bytes: Some(0),
        ..StoreOptions::default()
    }
}

fn config(segment_bytes: u64) -> LogConfig {
    LogConfig {
        segment_bytes: segment_bytes as u32,
        compaction: CompactionConfig {
            enabled: true,
            min_dirty_ppm: 0,
            delete_retention_ms: 1 << 40,
            ..CompactionConfig::default()
        },
        ..LogConfig::default()
    }
}

const fn limits() -> CleanerLimits {
    CleanerLimits {
        map_bytes: 1 << 20,
        map_load: 0.9,
        io_bytes: 256 << 10,
        bytes_per_second: f64::MAX,
        hash_key: MapKey(3, 5),
    }
}

/// A log and what it must hold, by key.
struct Story {
    log: LogRef,
    newest: BTreeMap<u64, Offset>,
}

struct Volume {
    handle: SimHandle,
    disk: SimDisk,
    store: Rc<Store<SimDisk>>,
    pace: SimPace,
}

impl Volume {
    async fn start(handle: &SimHandle, disk: &SimDisk) -> Self {
        let store = open_store(disk, options()).await;
        for _ in 0..2 {
            handle.spawn(commit_loop(Rc::clone(&store), Rc::default()));
        }
        handle.spawn(housekeeping_loop(Rc::clone(&store)));
        Self {
            handle: handle.clone(),
            disk: disk.clone(),
            store,
            pace: SimPace::new(handle),
        }
    }

    async fn open(&self, number: u8, segment_bytes: u64) -> Story {
        let opened = self
            .store
            .open_log(
                log_id(number),
                &format!("t{number}"),
                config(segment_bytes),
                NOW_MS,
            )
            .await;
        Story {
            log: opened.expect("log"),
            newest: BTreeMap::new(),
        }
    }

    /// Appends records of `size` bytes with these keys, a batch each, and brings them to their place.
    async fn put(&self, story: &mut Story, size: usize, keys: impl Iterator<Item = u64>) {
        let mut contexts = CodecContexts::default();
        let mut end = Offset::ZERO;
        for key in keys {
            let bytes = record(key, size, &mut contexts);
            let append = AppendBatch::from_client(bytes, LeaderEpoch(0));
            let appended = self.store.append(story.log, append, NOW_MS).expect("room");
            story.newest.insert(key, appended.base_offset);
            end = appended.last_offset.plus(1);
            self.store.durable_to(story.log, end).await.expect("durable");
        }
        self.store.on_high_watermark(story.log, end);
        self.handle.sleep(Duration::from_millis(300)).await;
    }

    /// Others take all but `bytes` of the volume.
    async fn leave_free(&self, bytes: u64) {
        let capacity = self.disk.used_bytes() + bytes;
        self.disk.configure(|config| config.capacity_bytes = capacity);
        self.store.watch_space(0).await;
    }

    async fn look(&self) -> Looked {
        let looked = self.store.clean(&self.pace, &limits()).await;
        looked.expect("the loop goes on")
    }

    /// Looks until a log was cleaned. Returns its name.
    async fn cleaned(&self) -> String {
        for _ in 0..LOOKS_MAX {
            match self.look().await {
                Looked::Cleaned(report) => return report.log,
                Looked::GivenUp(error) => panic!("given up: {error}"),
                Looked::Nothing | Looked::Later => self.handle.sleep(Duration::from_secs(1)).await,
            }
        }
        panic!("nothing is cleaned");
    }

    /// The newest record of each key is there.
    async fn check(&self, story: &Story) {
        let end = self.store.offsets(story.log).expect("open").durable_end;
        let there = read_log(&self.store, story.log, end, 1 << 20).await;
        for (key, offset) in &story.newest {
            assert!(there.iter().any(|batch| batch.base == *offset), "key {key}");
        }
    }

    /// What a pass has left in the logs' directories.
    fn leftovers(&self) -> Vec<String> {
        let paths = self.disk.paths().into_iter();
        let names = paths.map(|path| path.to_string_lossy().into_owned());
        let of_logs = names.filter(|name| name.contains("-0/"));
        of_logs
            .filter(|name| {
                [".cleaned", ".swap", ".tmp"]
                    .iter()
                    .any(|mark| name.contains(mark))
            })
            .collect()
    }
}

fn record(key: u64, size: usize, contexts: &mut CodecContexts) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::default(), &mut contexts.compressor);
    let value = vec![key as u8; size];
    builder
        .append(&NewRecord {
            timestamp: NOW_MS,
            key: Some(&key.to_be_bytes()),
            value: Some(&value),
            headers: &[],
        })
        .expect("fits");
    builder.finish().expect("fits").bytes
}

fn simulate(story: impl AsyncFn(SimHandle, SimDisk)) {
    for seed in 0..5 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        executor.block_on(or(story(handle.clone(), disk), too_long(handle)));
    }
}

/// The checkpoint before a pass, the indexes before a swap, the place of a pass after it: each finds the disk full once.
#[test]
fn one_moment_without_space_does_not_end_compaction() {
    for place in [
        "/checkpoints/shard-0",
        ".index.swap",
        ".timeindex.swap",
        "/cleaner-0",
    ] {
        simulate(async |handle, disk| {
            let volume = Volume::start(&handle, &disk).await;
            let mut story = volume.open(0, 64 << 10).await;
            volume.put(&mut story, 1000, (0..300).map(|n| n % 7)).await;
            disk.add_fault(SimFault::error(DiskOp::Write, place, StorageFull).times(1));
            let looked = volume.look().await;
            assert!(matches!(looked, Looked::Later), "{place}: {looked:?}");
            assert_eq!(volume.leftovers(), Vec::<String>::new(), "{place}");
            assert_eq!(volume.store.offline_reason(), None);
            volume.check(&story).await;
            volume.store.watch_space(0).await;
            volume.put(&mut story, 1000, (0..100).map(|n| n % 5)).await;
            assert_eq!(volume.cleaned().await, "t0-0");
            volume.check(&story).await;
            assert_eq!(volume.leftovers(), Vec::<String>::new());
        });
    }
}

/// Behind the point where the new segment counts there is no way back: by their names the files are neither.
#[test]
fn a_swap_that_cannot_be_ended_is_ended_by_the_next_start() {
    for place in [".index.swap", ".log.swap"] {
        simulate(async |handle, disk| {
            let volume = Volume::start(&handle, &disk).await;
            let mut story = volume.open(0, 64 << 10).await;
            volume.put(&mut story, 1000, (0..300).map(|n| n % 7)).await;
            let fault = SimFault::error(DiskOp::Rename, place, StorageFull);
            // The first is the rename to that name.
            disk.add_fault(if place == ".index.swap" {
                fault.after(1)
            } else {
                fault
            });
            let looked = volume.store.clean(&volume.pace, &limits()).await;
            assert!(looked.is_err(), "{place}: {looked:?}");
            assert!(volume.store.offline_reason().is_some(), "{place}");
            disk.clear_faults();
            let disk = disk.restart_after_kill(&handle);
            let again = Volume::start(&handle, &disk).await;
            story.log = again.open(0, 64 << 10).await.log;
            again.check(&story).await;
            assert_eq!(again.leftovers(), Vec::<String>::new());
        });
    }
}

/// One checkpoint serves all that are due: of those, one that finds no block for what it has in the journal is no reason.
#[test]
fn another_log_that_finds_no_block_does_not_keep_a_log_from_being_cleaned() {
    simulate(async |handle, disk| {
        let volume = Volume::start(&handle, &disk).await;
        let mut dirty = volume.open(0, 64 << 10).await;
        let mut other = volume.open(1, 1 << 20).await;
        volume.put(&mut dirty, 1000, (0..300).map(|n| n % 7)).await;
        volume.put(&mut other, 1000, (0..1100).map(|n| n % 7)).await;
        // More than what is allocated ahead, and less than what is written behind at once.
        volume.put(&mut other, 1000, 100..700).await;
        disk.add_fault(SimFault::error(DiskOp::Allocate, "/t1-0/", StorageFull));
        disk.record_trace();
        assert_eq!(volume.cleaned().await, "t0-0");
        let trace = disk.take_trace();
        assert!(
            trace.iter().any(|entry| entry.phase == TracePhase::Failed),
            "the other was tried"
        );
        volume.check(&dirty).await;
        disk.clear_faults();
        assert_eq!(volume.cleaned().await, "t1-0");
        volume.check(&other).await;
    });
}

#[test]
fn a_pass_needs_room_for_what_comes_of_it() {
    simulate(async |handle, disk| {
        let volume = Volume::start(&handle, &disk).await;
        let mut story = volume.open(0, 12 << 20).await;
        volume.put(&mut story, 100_000, (0..130).map(|n| n % 5)).await;
        volume.leave_free(LEFT_BYTES + (6 << 20)).await;
        assert_eq!(volume.cleaned().await, "t0-0");
        volume.check(&story).await;
        let size = volume.store.size(story.log).expect("open").bytes;
        assert!(size < 4 << 20, "{size} bytes");
    });
}

#[test]
fn a_log_that_finds_no_room_does_not_starve_the_others() {
    simulate(async |handle, disk| {
        let volume = Volume::start(&handle, &disk).await;
        let mut large = volume.open(0, 12 << 20).await;
        let mut small = volume.open(1, 64 << 10).await;
        volume.put(&mut large, 100_000, 0..130).await;
        volume.put(&mut small, 1000, (0..300).map(|n| n % 7)).await;
        volume.leave_free(LEFT_BYTES + (6 << 20)).await;
        let looked = volume.look().await;
        assert!(matches!(looked, Looked::Later), "the large one: {looked:?}");
        assert_eq!(volume.leftovers(), Vec::<String>::new());
        assert_eq!(volume.cleaned().await, "t1-0");
        let looked = volume.look().await;
        assert!(matches!(looked, Looked::Later), "it is due still: {looked:?}");
        let read = volume.store.stats().cleaner.read_bytes;
        volume.look().await;
        assert_eq!(volume.store.stats().cleaner.read_bytes, read);
        volume.leave_free(64 << 20).await;
        let looked = volume.look().await;
        assert!(
            matches!(looked, Looked::Cleaned(_)),
            "with room, at once: {looked:?}"
        );
        volume.check(&large).await;
        volume.check(&small).await;
        assert_eq!(volume.store.offline_reason(), None, "in {}", dir().display());
    });
}
