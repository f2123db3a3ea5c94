//! A full disk, simulated. Below the reserve clients are refused and everything else goes on; with nothing left at all, what is
//! acknowledged stays in the journal and in memory, deletions go on, and the store never goes offline. When space returns it
//! goes on by itself. A crash at any moment in between loses nothing that was acknowledged.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::{
    Durable, PLAIN, Producer, batch, commit_loop, content, housekeeping_loop, log_id, open_store, read_log,
};
use storage::commit::CommitLimits;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::error::{AppendError, StorageError};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{Durability, LogConfig};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const ROOMY: u64 = 64 << 20;
const RESERVE: u64 = 1 << 20;

fn options(reserve_bytes: u64) -> StoreOptions {
    StoreOptions {
        cache_bytes: 256 << 10,
        write_behind_bytes: 16 << 10,
        journal: JournalOptions {
            file_bytes: 128 << 10,
            files_max: 3,
        },
        is_journal_filled: true,
        commit: CommitLimits {
            bytes_max: 64 << 10,
            ..CommitLimits::default()
        },
        reserve_bytes: Some(reserve_bytes),
        ..StoreOptions::default()
    }
}

fn config(durability: Durability) -> LogConfig {
    LogConfig {
        segment_bytes: 256 << 10,
        durability,
        ..LogConfig::default()
    }
}

fn set_capacity(disk: &SimDisk, bytes: u64) {
    disk.configure(|config| config.capacity_bytes = bytes);
}

/// Leaves so many bytes free; returns the capacity.
fn leave_free(disk: &SimDisk, bytes: u64) -> u64 {
    let full = disk.used_bytes() + bytes;
    set_capacity(disk, full);
    full
}

async fn start(handle: &SimHandle, disk: &SimDisk, reserve: u64) -> (Rc<Store<SimDisk>>, Durable) {
    let store = open_store(disk, options(reserve)).await;
    let durable = Durable::default();
    for _ in 0..2 {
        handle.spawn(commit_loop(Rc::clone(&store), Rc::clone(&durable)));
    }
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    let (watched, clock) = (Rc::clone(&store), handle.clone());
    handle.spawn(async move {
        let mut now_ms = 0;
        loop {
            watched.watch_space(now_ms).await;
            clock.sleep(Duration::from_secs(1)).await;
            now_ms += 1000;
        }
    });
    (store, durable)
}

async fn open(store: &Store<SimDisk>, number: u8, topic: &str) -> Result<LogRef, StorageError> {
    store
        .open_log(log_id(number), topic, config(Durability::Fsync), NOW_MS)
        .await
}

fn try_append(store: &Store<SimDisk>, log: LogRef, bytes: Bytes) -> Result<Offset, AppendError> {
    let batch = AppendBatch::from_client(bytes, LeaderEpoch(0));
    store
        .append(log, batch, NOW_MS)
        .map(|appended| appended.last_offset.plus(1))
}

/// Appends 20 KB batches until the store refuses them, also after it has taken back what is allocated ahead; returns their contents.
async fn fill(handle: &SimHandle, store: &Store<SimDisk>, log: LogRef) -> Vec<Bytes> {
    let mut sent = Vec::new();
    for round in 0..10_000u32 {
        let bytes = batch(1, 20_000, NOW_MS, PLAIN, round as u8);
        match try_append(store, log, bytes.clone()) {
            Ok(end) => {
                sent.push(content(&bytes));
                if round % 8 == 0 {
                    within(handle, "durable_to", store.durable_to(log, end))
                        .await
                        .expect("durable");
                }
            }
            Err(AppendError::Full) => {
                let end = store.offsets(log).expect("open").log_end;
                within(handle, "durable_to", store.durable_to(log, end))
                    .await
                    .expect("durable");
                handle.sleep(Duration::from_secs(3)).await;
                if store.stats().space.refuses_writes {
                    return sent;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the disk never filled");
}

/// Whatever it is must end within a minute.
async fn within<T>(handle: &SimHandle, what: &str, work: impl Future<Output = T>) -> T {
    let late = async {
        handle.sleep(Duration::from_secs(60)).await;
        panic!("{what} does not end");
    };
    futures_lite::future::or(work, late).await
}

async fn contents(store: &Store<SimDisk>, log: LogRef) -> Vec<Bytes> {
    let end = store.offsets(log).expect("open").durable_end;
    let read = read_log(store, log, end, 100_000).await;
    read.into_iter().map(|batch| batch.content).collect()
}

fn simulate<F: Future<Output = ()>>(seeds: u64, story: impl Fn(SimHandle, SimDisk) -> F) {
    for seed in 0..seeds {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        set_capacity(&disk, ROOMY);
        executor.block_on(story(handle, disk));
    }
}

#[test]
fn below_the_reserve_only_clients_are_refused_and_only_what_is_new() {
    simulate(10, |handle, disk| async move {
        let (store, _) = start(&handle, &disk, RESERVE).await;
        let log = open(&store, 0, "t").await.expect("log");
        let offsets = open(&store, 1, "__consumer_offsets").await.expect("log");
        let first = batch(
            1,
            500,
            NOW_MS,
            Producer {
                id: 7,
                epoch: 0,
                sequence: 0,
            },
            9,
        );
        try_append(&store, log, first.clone()).expect("room");
        let capacity = leave_free(&disk, 4 << 20);
        store.watch_space(0).await;
        let sent = fill(&handle, &store, log).await;
        assert!(sent.len() > 50, "{} batches", sent.len());
        let free = capacity - disk.used_bytes();
        assert!(free >= RESERVE / 2, "{free} bytes of the reserve are left");
        let stats = store.stats().space;
        assert!(
            stats.refuses_writes && !stats.is_stalled && stats.refused > 0,
            "{stats:?}"
        );

        try_append(&store, log, first).expect("it is there already");
        let commit = batch(1, 200, NOW_MS, PLAIN, 1);
        let end = try_append(&store, offsets, commit).expect("internal topics go on");
        within(&handle, "durable_to", store.durable_to(offsets, end))
            .await
            .expect("durable");
        assert!(contents(&store, log).await[1..] == sent[..], "reads go on");
        open(&store, 2, "new").await.expect("a topic can be created");

        // It is over as soon as somebody looks at a disk with space, without a word from anybody.
        set_capacity(&disk, ROOMY);
        handle.sleep(Duration::from_secs(2)).await;
        try_append(&store, log, batch(1, 500, NOW_MS, PLAIN, 1)).expect("served again");
        assert!(!store.stats().space.refuses_writes);
    });
}

/// Five batches under way, of a producer that the log does not know: the first is refused, then there is space.
#[test]
fn what_is_under_way_does_not_overtake_a_refused_first_batch() {
    simulate(5, |handle, disk| async move {
        let (store, _) = start(&handle, &disk, RESERVE).await;
        let log = open(&store, 0, "t").await.expect("log");
        let of = |id, sequence| {
            let producer = Producer {
                id,
                epoch: 0,
                sequence,
            };
            batch(1, 500, NOW_MS, producer, 9)
        };
        leave_free(&disk, RESERVE / 2);
        store.watch_space(0).await;
        assert_eq!(try_append(&store, log, of(7, 0)), Err(AppendError::Full));
        set_capacity(&disk, ROOMY);
        store.watch_space(1000).await;
        for sequence in 1..5 {
            let refused = AppendError::OutOfOrderSequence {
                producer_id: 7,
                expected: 0,
                found: sequence,
            };
            assert_eq!(try_append(&store, log, of(7, sequence)), Err(refused));
        }
        assert_eq!(try_append(&store, log, of(8, 2)), Ok(Offset(1)), "of another");
        for sequence in 0..5 {
            let end = Offset(i64::from(sequence) + 2);
            assert_eq!(try_append(&store, log, of(7, sequence)), Ok(end));
        }
    });
}

#[test]
fn what_is_deleted_makes_room() {
    simulate(10, |handle, disk| async move {
        let (store, _) = start(&handle, &disk, RESERVE).await;
        let log = open(&store, 0, "t").await.expect("log");
        let other = open(&store, 1, "u").await.expect("log");
        leave_free(&disk, 6 << 20);
        store.watch_space(0).await;
        fill(&handle, &store, log).await;
        handle.sleep(Duration::from_secs(2)).await;
        let end = store.offsets(log).expect("open").durable_end;
        within(&handle, "delete_records", store.delete_records(log, end))
            .await
            .expect("records are deleted");
        handle.sleep(Duration::from_secs(2)).await;
        try_append(&store, other, batch(1, 500, NOW_MS, PLAIN, 1)).expect("served again");
        fill(&handle, &store, log).await;
        within(&handle, "delete_log", store.delete_log(log))
            .await
            .expect("the log is deleted");
        handle.sleep(Duration::from_secs(2)).await;
        try_append(&store, other, batch(1, 500, NOW_MS, PLAIN, 1)).expect("served again");
    });
}

#[test]
fn with_nothing_left_the_journal_takes_what_fits_and_the_rest_waits() {
    simulate(20, |handle, disk| async move {
        let (store, durable) = start(&handle, &disk, 0).await;
        let log = open(&store, 0, "t").await.expect("log");
        let internal = open(&store, 1, "__transaction_state").await.expect("log");
        let doomed = open(&store, 2, "d").await.expect("log");
        for round in 0..40 {
            let end = try_append(&store, doomed, batch(1, 20_000, NOW_MS, PLAIN, round)).expect("room");
            within(&handle, "durable_to", store.durable_to(doomed, end))
                .await
                .expect("durable");
        }
        handle.sleep(Duration::from_millis(50)).await;
        leave_free(&disk, 0);

        // Two files of journal are there for it; more than that has to wait.
        let mut sent = Vec::new();
        let mut acknowledged = 0;
        for round in 0..60u8 {
            let bytes = batch(1, 10_000, NOW_MS, PLAIN, round);
            let end = try_append(&store, internal, bytes.clone()).expect("an internal topic");
            sent.push(content(&bytes));
            handle.sleep(Duration::from_millis(20)).await;
            if store.offsets(internal).expect("open").durable_end >= end {
                acknowledged += 1;
            }
        }
        assert!(acknowledged >= 12, "{acknowledged} commits without space");
        assert!(acknowledged < 60, "not more than the journal has");
        assert_eq!(store.offline_reason(), None);
        let stats = store.stats().space;
        assert!(stats.is_stalled && stats.refuses_writes, "{stats:?}");
        let refused = try_append(&store, log, batch(1, 500, NOW_MS, PLAIN, 1));
        assert_eq!(refused, Err(AppendError::Full));
        leave_free(&disk, 0); // what was allocated ahead went back, and others took it
        assert!(matches!(
            open(&store, 3, "new").await,
            Err(StorageError::NoSpace(_))
        ));
        assert!(
            contents(&store, internal).await[..] == sent[..acknowledged],
            "reads go on"
        );

        // A deletion needs no space, and brings some: everything goes on.
        within(&handle, "delete_log", store.delete_log(doomed))
            .await
            .expect("deleted");
        let end = store.offsets(internal).expect("open").log_end;
        within(&handle, "durable_to", store.durable_to(internal, end))
            .await
            .expect("durable");
        assert!(contents(&store, internal).await == sent);
        set_capacity(&disk, ROOMY);
        handle.sleep(Duration::from_secs(3)).await;
        open(&store, 3, "new").await.expect("log");
        let end = try_append(&store, log, batch(1, 500, NOW_MS, PLAIN, 1)).expect("served again");
        within(&handle, "durable_to", store.durable_to(log, end))
            .await
            .expect("durable");
        assert!(!store.stats().space.is_stalled);
        assert!(durable.borrow().len() >= 3);
        within(&handle, "close", store.close())
            .await
            .expect("a clean stop");
    });
}

/// With the journal full of what has no place, a topic can still be deleted: what says so is written, and a stop ends.
#[test]
fn the_metadata_log_has_room_when_nothing_else_has() {
    simulate(20, |handle, disk| async move {
        let (store, _) = start(&handle, &disk, 0).await;
        let metadata = open(&store, 0, "__cluster_metadata").await.expect("log");
        let internal = open(&store, 1, "__consumer_offsets").await.expect("log");
        leave_free(&disk, 0);
        for round in 0..80u8 {
            let bytes = batch(1, 10_000, NOW_MS, PLAIN, round);
            try_append(&store, internal, bytes).expect("an internal topic");
            handle.sleep(Duration::from_millis(20)).await;
        }
        let waits = store.offsets(internal).expect("open");
        assert!(waits.durable_end < waits.log_end, "the journal is full");
        for round in 0..5u8 {
            let end = try_append(&store, metadata, batch(1, 300, NOW_MS, PLAIN, round)).expect("always");
            within(&handle, "durable_to", store.durable_to(metadata, end))
                .await
                .expect("durable");
        }
        let closed = within(&handle, "close", store.close()).await;
        assert!(matches!(closed, Err(StorageError::NoSpace(_))), "{closed:?}");
        // Its process ends now: nothing of it goes on when there is space again.
        store.go_offline("its process has ended");
        handle.sleep(Duration::from_secs(1)).await;
        drop(store);
        set_capacity(&disk, ROOMY);
        let (again, _) = start(&handle, &disk, 0).await;
        let metadata = open(&again, 0, "__cluster_metadata").await.expect("log");
        assert_eq!(contents(&again, metadata).await.len(), 5);
    });
}

/// What coordinators write stops before the disk is full, and says so.
#[test]
fn a_part_of_the_reserve_is_left_by_internal_topics() {
    simulate(10, |handle, disk| async move {
        let (store, _) = start(&handle, &disk, RESERVE).await;
        let metadata = open(&store, 0, "__cluster_metadata").await.expect("log");
        let internal = open(&store, 1, "__consumer_offsets").await.expect("log");
        let capacity = leave_free(&disk, 2 << 20);
        store.watch_space(0).await;
        let sent = fill(&handle, &store, internal).await;
        assert!(sent.len() > 30, "{} batches", sent.len());
        let free = capacity - disk.used_bytes();
        assert!(free < RESERVE, "the reserve was theirs: {free}");
        assert!(!store.stats().space.is_stalled);
        let end = try_append(&store, metadata, batch(1, 300, NOW_MS, PLAIN, 1)).expect("always");
        within(&handle, "durable_to", store.durable_to(metadata, end))
            .await
            .expect("durable");
        within(&handle, "close", store.close())
            .await
            .expect("there is space for what was accepted");
    });
}

#[test]
fn a_commit_longer_than_a_journal_file_waits_for_space() {
    simulate(20, |handle, disk| async move {
        let (store, _) = start(&handle, &disk, 0).await;
        let internal = open(&store, 1, "__transaction_state").await.expect("log");
        let doomed = open(&store, 2, "d").await.expect("log");
        let end = try_append(&store, doomed, batch(1, 500, NOW_MS, PLAIN, 1)).expect("room");
        within(&handle, "durable_to", store.durable_to(doomed, end))
            .await
            .expect("durable");
        leave_free(&disk, 0);
        let bytes = batch(1, 200_000, NOW_MS, PLAIN, 2);
        let end = try_append(&store, internal, bytes.clone()).expect("an internal topic");
        handle.sleep(Duration::from_secs(3)).await;
        assert_eq!(store.offline_reason(), None);
        assert!(store.offsets(internal).expect("open").durable_end < end);
        within(&handle, "delete_log", store.delete_log(doomed))
            .await
            .expect("a deletion needs no space");
        set_capacity(&disk, ROOMY);
        within(&handle, "durable_to", store.durable_to(internal, end))
            .await
            .expect("durable");
        assert!(contents(&store, internal).await == [content(&bytes)]);
        assert_eq!(store.offline_reason(), None);
    });
}

/// What a client knows of one log: what it sent, and up to where that was acknowledged.
#[derive(Clone, Debug, Default)]
struct Sent {
    batches: Vec<(Offset, Bytes)>,
    acknowledged: Offset,
    /// The log's start when it was last moved.
    start: Offset,
    /// Since the last look at what is there: a life may end before it has looked.
    power_was_lost: bool,
}

type Model = Rc<RefCell<BTreeMap<LogId, Sent>>>;

/// The logs of a life, in order: topic and class.
const LOGS: [(&str, Durability); 4] = [
    ("a", Durability::Fsync),
    ("b", Durability::Fsync),
    ("__consumer_offsets", Durability::Fsync),
    ("w", Durability::Written),
];

/// One life on a disk that fills and empties: checks what the last one left, then appends, cuts and looks.
async fn life(handle: SimHandle, disk: SimDisk, model: Model, mut rng: SimRng) {
    let (store, _) = start(&handle, &disk, 256 << 10).await;
    let mut logs = Vec::new();
    for (number, (topic, class)) in LOGS.into_iter().enumerate() {
        let id = log_id(number as u8);
        let opened = store.open_log(id, topic, config(class), NOW_MS).await;
        let log = opened.expect("there is space at a start");
        check(&store, log, id, &model, class).await;
        logs.push((id, log));
    }
    for round in 0..120 {
        match rng.between(0, 99) {
            0..=7 => _ = leave_free(&disk, rng.between(0, 64) << 10),
            8..=14 => _ = leave_free(&disk, rng.between(64, 1024) << 10),
            15..=22 => set_capacity(&disk, ROOMY),
            23..=26 => {
                // Not of class `written`: what it has deleted may be lost with the rest of it.
                let (id, log) = logs[rng.index(3)];
                let to = store.offsets(log).expect("open").durable_end;
                model.borrow_mut().entry(id).or_default().start = to;
                within(&handle, "delete_records", store.delete_records(log, to))
                    .await
                    .expect("deleted");
            }
            27..=30 => {
                handle.sleep(Duration::from_millis(rng.between(100, 2500))).await;
            }
            _ => {}
        }
        let (id, log) = logs[rng.index(logs.len())];
        let size = [200, 3_000, 30_000, 90_000][rng.index(4)];
        let bytes = batch(1, size, NOW_MS, PLAIN, round as u8);
        match store.append(
            log,
            AppendBatch::from_client(bytes.clone(), LeaderEpoch(0)),
            NOW_MS,
        ) {
            Ok(appended) => {
                let mut model = model.borrow_mut();
                let sent = model.entry(id).or_default();
                sent.batches.push((appended.base_offset, content(&bytes)));
            }
            Err(AppendError::Full) => {}
            Err(error) => panic!("{error}"),
        }
        handle.sleep(Duration::from_micros(rng.between(0, 2000))).await;
        note(&store, &logs, &model);
    }
    assert_eq!(store.offline_reason(), None);
    set_capacity(&disk, ROOMY);
    for (_, log) in &logs {
        let end = store.offsets(*log).expect("open").log_end;
        within(&handle, "durable_to", store.durable_to(*log, end))
            .await
            .expect("durable");
    }
    note(&store, &logs, &model);
    if rng.coin() {
        within(&handle, "close", store.close())
            .await
            .expect("a clean stop");
    }
}

fn note(store: &Store<SimDisk>, logs: &[(LogId, LogRef)], model: &Model) {
    for (id, log) in logs {
        let end = store.offsets(*log).expect("open").durable_end;
        model.borrow_mut().entry(*id).or_default().acknowledged = end;
    }
}

/// Everything acknowledged is there, in order, and nothing else; what is there is what the model goes on with.
async fn check(store: &Store<SimDisk>, log: LogRef, id: LogId, model: &Model, class: Durability) {
    let sent = model.borrow().get(&id).cloned().unwrap_or_default();
    let offsets = store.offsets(log).expect("open");
    let may_lose = class == Durability::Written && sent.power_was_lost;
    assert!(
        offsets.log_end >= sent.acknowledged || may_lose,
        "{id:?}: acknowledged records are lost"
    );
    let read = read_log(store, log, offsets.log_end, 200_000).await;
    let mut kept = Vec::new();
    for found in read {
        let original = sent.batches.iter().find(|(base, _)| *base == found.base);
        let (_, bytes) = original.unwrap_or_else(|| panic!("{id:?}: {} was never sent", found.base));
        assert!(*bytes == found.content, "{id:?} at {}", found.base);
        kept.push((found.base, found.content));
    }
    let due = sent
        .batches
        .iter()
        .filter(|(base, _)| *base >= sent.start && *base < offsets.log_end);
    for (base, _) in due {
        assert!(
            kept.iter().any(|(found, _)| found == base),
            "{id:?}: a hole at {base}"
        );
    }
    let mut model = model.borrow_mut();
    let sent = model.entry(id).or_default();
    sent.batches.retain(|(base, _)| *base < offsets.log_end);
    sent.acknowledged = offsets.log_end;
    sent.power_was_lost = false;
}

/// Lives of one seed, each but the last ended by a crash somewhere.
fn lives(seed: u64) {
    let mut rng = SimRng::new(seed, "full disk");
    let model = Model::default();
    let mut disk: Option<SimDisk> = None;
    let mut lost_power = false;
    for number in 0..4 {
        let executor = SimExecutor::new(seed * 10 + number);
        let handle = executor.handle();
        let now = match disk.take() {
            None => SimDisk::new(&handle, SimDiskConfig::seeded(seed)),
            Some(before) if lost_power => before.restart(&handle),
            Some(before) => before.restart_after_kill(&handle),
        };
        set_capacity(&now, ROOMY);
        let ends = rng.between(1, 900);
        if number < 3 {
            now.crash_after(ends);
        }
        let work = life(
            handle.clone(),
            now.clone(),
            Rc::clone(&model),
            SimRng::new(seed * 10 + number, "life"),
        );
        executor.block_on(futures_lite::future::or(work, now.crashed()));
        lost_power = rng.coin();
        for sent in model.borrow_mut().values_mut() {
            sent.power_was_lost |= lost_power;
        }
        disk = Some(now);
        drop(executor);
    }
}

#[test]
fn a_crash_on_a_full_disk_loses_nothing_that_was_acknowledged() {
    for seed in 0..150 {
        let outcome = std::panic::catch_unwind(|| lives(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}
