//! Moving a log between two log directories on the simulated disk: while it is appended to, rolled, and shortened from the front, the
//! process is stopped at any mutation, by power loss and by kill -9, and started again. After each start every log is in one
//! directory, with all that was durable, once, in order, at its offset; it starts where it was told to, and knows its producers
//! and epochs. What interrupted moves left is gone.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::crashes::{End, for_each_seed, four_crashes, lives, seeds};
use common::{Durable, Producer, batch, commit_loop, content, copy_all, housekeeping_loop, log_id, read_log};
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::error::{AppendError, StorageError};
use storage::journal::JournalOptions;
use storage::layout::{DirMark, DirName};
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::moving::leftovers::leftovers;
use storage::moving::{CopyStep, LogMove};
use storage::recovery::recover_journals;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const LOGS: u8 = 3;
const DIRS: [&str; 2] = ["/one", "/two"];
const OPERATIONS: usize = 90;

/// The truth about one log.
#[derive(Clone, Debug, Default)]
struct Sent {
    batches: Vec<(Offset, Offset, Bytes)>,
    /// The next sequence of the producer.
    sequence: i32,
    /// The log starts here, or at what was asked for last.
    start: Offset,
    start_asked: Offset,
    durable: Offset,
}

type Model = Rc<RefCell<BTreeMap<u8, Sent>>>;

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 32 << 10,
        write_behind_bytes: 8 << 10,
        journal: JournalOptions {
            file_bytes: 32 << 10,
            files_max: 3,
        },
        is_journal_filled: true,
        ..StoreOptions::default()
    }
}

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 12 << 10,
        file_delete_delay_ms: 3,
        ..LogConfig::default()
    }
}

fn topic(number: u8) -> String {
    format!("t{number}")
}

fn producer_id(number: u8) -> i64 {
    100 + i64::from(number)
}

type Stores = [Rc<Store<SimDisk>>; 2];

async fn open_stores(disk: &SimDisk, shard: u16) -> Stores {
    let mut stores = Vec::new();
    for dir in DIRS.map(Path::new) {
        disk.create_dir(dir).await.expect("create");
        disk.sync_dir(Path::new("/")).await.expect("sync");
        recover_journals(disk, dir, |_, _| {}).await.expect("journals");
        stores.push(
            Store::open(disk.clone(), dir, shard, options())
                .await
                .expect("store"),
        );
    }
    stores.try_into().ok().expect("two")
}

/// Where each log is, by what the directories hold, as the broker finds it; what cannot be a truth is removed.
async fn find_homes(disk: &SimDisk, stores: &Stores) -> BTreeMap<u8, usize> {
    let mut homes = BTreeMap::new();
    let mut copies = Vec::new();
    for (number, dir) in DIRS.iter().enumerate() {
        let entries = disk.list(Path::new(dir)).await.expect("list");
        for entry in &entries {
            if let DirName::Partition(name) = DirName::parse(&entry.name) {
                let log: u8 = name.topic[1..].parse().expect("ours");
                let other = homes.insert(log, number);
                assert_eq!(other, None, "{name} is in both directories");
            }
        }
        let found = leftovers(disk, Path::new(dir), &entries)
            .await
            .expect("leftovers");
        copies.extend(found.into_iter().map(|copy| (number, copy)));
    }
    for (number, copy) in copies {
        let log: u8 = copy.name.topic[1..].parse().expect("ours");
        match copy.whole {
            Some(_) if !homes.contains_key(&log) => {
                homes.insert(log, number);
            }
            _ => stores[number].remove_directory_later(&Path::new(DIRS[number]).join(&copy.directory)),
        }
    }
    homes
}

struct Life {
    stores: Stores,
    /// Where each log is now.
    logs: Vec<(usize, LogRef)>,
    durable: [Durable; 2],
    model: Model,
}

impl Life {
    fn store(&self, number: u8) -> (&Rc<Store<SimDisk>>, LogRef) {
        let (dir, log) = self.logs[usize::from(number)];
        (&self.stores[dir], log)
    }

    fn note_durable(&self) {
        for (number, (dir, log)) in self.logs.iter().enumerate() {
            if let Some(end) = self.durable[*dir].borrow().get(log) {
                let mut model = self.model.borrow_mut();
                let sent = model.get_mut(&(number as u8)).expect("known");
                sent.durable = sent.durable.max(*end);
            }
        }
    }

    fn append(&self, number: u8, rng: &mut SimRng) {
        let (store, log) = self.store(number);
        let mut model = self.model.borrow_mut();
        let sent = model.get_mut(&number).expect("known");
        let size = if rng.chance(800_000) {
            rng.between(100, 2500) as usize
        } else {
            rng.between(3000, 9000) as usize
        };
        let records = rng.between(1, 3) as i32;
        let producer = Producer {
            id: producer_id(number),
            epoch: 0,
            sequence: sent.sequence,
        };
        let bytes = batch(records, size, NOW_MS, producer, rng.between(0, 255) as u8);
        let epoch = LeaderEpoch(sent.sequence / 20);
        let appended = store
            .append(log, AppendBatch::from_client(bytes.clone(), epoch), NOW_MS)
            .expect("append");
        assert!(!appended.is_duplicate);
        sent.sequence += records;
        sent.batches
            .push((appended.base_offset, appended.last_offset, content(&bytes)));
    }

    async fn delete_some(&self, number: u8, rng: &mut SimRng) {
        let (store, log) = self.store(number);
        let ends = store.offsets(log).expect("open");
        let to = Offset(rng.between(ends.log_start.0 as u64, ends.durable_end.0 as u64) as i64);
        self.model
            .borrow_mut()
            .get_mut(&number)
            .expect("known")
            .start_asked = to;
        let start = store.delete_records(log, to).await.expect("delete records");
        let mut model = self.model.borrow_mut();
        let sent = model.get_mut(&number).expect("known");
        assert!(start >= to);
        sent.start = start;
        sent.start_asked = start;
    }

    /// The copy is at the end: nothing is appended from here on.
    async fn finish(&mut self, number: u8, mut moving: LogMove<SimDisk>, rng: &mut SimRng) {
        let (store, log) = self.store(number);
        moving.settle().await.expect("settle");
        let late = AppendBatch::from_client(batch(1, 100, NOW_MS, common::PLAIN, 1), LeaderEpoch(99));
        assert_eq!(store.append(log, late, NOW_MS), Err(AppendError::NoSuchLog));
        if rng.chance(200_000) {
            moving.abandon().await;
            return;
        }
        let before = (store.offsets(log).expect("open"), store.producers(log));
        let (dir, _) = self.logs[usize::from(number)];
        let log = moving.commit(NOW_MS).await.map_err(|(failure, _)| failure);
        let log = log.expect("commit");
        let store = &self.stores[1 - dir];
        let mut ends = before.0;
        ends.durable_end = ends.log_end;
        assert_eq!(store.offsets(log).expect("open"), ends);
        assert_eq!(store.producers(log), before.1);
        self.model.borrow_mut().get_mut(&number).expect("known").durable = ends.log_end;
        self.logs[usize::from(number)] = (1 - dir, log);
    }
}

/// What a log holds after a start is what was sent; the model goes on from there.
async fn check(store: &Store<SimDisk>, log: LogRef, number: u8, mut sent: Sent) -> Sent {
    let ends = store.offsets(log).expect("open");
    assert!(
        ends.log_start == sent.start || ends.log_start == sent.start_asked,
        "log {number} starts at {}, told were {} and {}",
        ends.log_start,
        sent.start,
        sent.start_asked
    );
    assert!(
        ends.log_end >= sent.durable,
        "log {number} ends at {}, durable were {}",
        ends.log_end,
        sent.durable
    );
    let found = read_log(store, log, ends.log_end, 4096).await;
    let expected: Vec<_> = sent
        .batches
        .iter()
        .filter(|(_, last, _)| *last >= ends.log_start && *last < ends.log_end)
        .collect();
    assert_eq!(found.len(), expected.len(), "log {number}");
    for (found, (base, last, content)) in found.iter().zip(expected) {
        assert_eq!((found.base, found.last), (*base, *last));
        assert_eq!(&found.content, content);
    }
    sent.batches.retain(|(_, last, _)| *last < ends.log_end);
    sent.start = ends.log_start;
    sent.start_asked = ends.log_start;
    sent.durable = ends.log_end;
    sent.sequence = ends.log_end.0 as i32; // a record has a sequence, and the producer is the only one
    if sent.sequence > 0 {
        let known = store.producers(log);
        let producer = known
            .iter()
            .find(|known| known.producer_id.0 == producer_id(number));
        assert!(producer.is_some(), "log {number} has forgotten its producer");
        if let Some((base, _, _)) = sent.batches.last() {
            let at = (sent.batches.len() > 1).then_some(*base);
            let epoch = at.filter(|at| *at >= ends.log_start);
            assert!(epoch.is_none() || store.epoch_of(log, *base) != LeaderEpoch::NONE);
        }
    }
    sent
}

async fn life(handle: SimHandle, disk: SimDisk, model: Model, mut rng: SimRng) {
    let stores = open_stores(&disk, rng.between(0, 2) as u16).await;
    let homes = find_homes(&disk, &stores).await;
    let mut logs = Vec::new();
    for number in 0..LOGS {
        let sent = model.borrow().get(&number).cloned().unwrap_or_default();
        assert!(
            homes.contains_key(&number) || sent.durable == Offset::ZERO,
            "log {number} is nowhere"
        );
        let dir = homes
            .get(&number)
            .copied()
            .unwrap_or_else(|| usize::from(number % 2));
        let log = stores[dir]
            .open_log(log_id(number), &topic(number), config(), NOW_MS)
            .await
            .expect("log");
        let kept = check(&stores[dir], log, number, sent).await;
        model.borrow_mut().insert(number, kept);
        logs.push((dir, log));
    }
    let durable = [Durable::default(), Durable::default()];
    for (store, durable) in stores.iter().zip(&durable) {
        handle.spawn(commit_loop(Rc::clone(store), Rc::clone(durable)));
        handle.spawn(housekeeping_loop(Rc::clone(store)));
    }
    let mut life = Life {
        stores,
        logs,
        durable,
        model,
    };
    let mut moves: BTreeMap<u8, LogMove<SimDisk>> = BTreeMap::new();
    for step in 0..OPERATIONS {
        let number = rng.between(0, u64::from(LOGS) - 1) as u8;
        match rng.between(0, 9) {
            0..=2 => life.append(number, &mut rng),
            3 if rng.chance(400_000) => life.delete_some(number, &mut rng).await,
            4..=9 => step_of_move(&mut life, &mut moves, number, step, &mut rng).await,
            _ => {}
        }
        if rng.chance(300_000) {
            handle.sleep(Duration::from_micros(rng.between(1, 2000))).await;
        }
        for store in &life.stores {
            store.removals_due(step as u64);
        }
        life.note_durable();
    }
    for (_, moving) in moves {
        moving.abandon().await;
    }
    for number in 0..LOGS {
        let (store, log) = life.store(number);
        let end = store.offsets(log).expect("open").log_end;
        store.durable_to(log, end).await.expect("durable");
    }
    life.note_durable();
    if rng.coin() {
        for store in &life.stores {
            store.close().await.expect("clean stop");
        }
    }
}

async fn step_of_move(
    life: &mut Life,
    moves: &mut BTreeMap<u8, LogMove<SimDisk>>,
    number: u8,
    step: usize,
    rng: &mut SimRng,
) {
    let Some(mut moving) = moves.remove(&number) else {
        let (dir, log) = life.logs[usize::from(number)];
        let unique = step as u128 + (u128::from(rng.between(0, u64::MAX - 1)) << 32);
        let begun = LogMove::begin(&life.stores[dir], log, &life.stores[1 - dir], unique).await;
        moves.insert(number, begun.expect("begin"));
        return;
    };
    match moving.copy_some(NOW_MS).await.expect("copy") {
        CopyStep::CaughtUp => life.finish(number, moving, rng).await,
        CopyStep::More | CopyStep::Later => {
            moves.insert(number, moving);
        }
    }
}

fn one(seed: u64) {
    let mut rng = SimRng::new(seed, "crashes");
    let crashes = four_crashes(&mut rng, 500);
    let model = Model::default();
    lives(
        seed,
        SimDiskConfig::default(),
        &crashes,
        |handle, disk, rng| life(handle, disk, model.clone(), rng),
        |_| (),
    );
}

#[test]
fn a_crash_in_the_middle_of_moves_leaves_each_log_whole_in_one_directory() {
    for_each_seed(seeds(150), one);
}

/// A crash at every single mutation of one life with moves, by power loss and by kill.
#[test]
fn a_crash_at_every_mutation_of_a_life_with_moves() {
    let whole = lives(
        7,
        SimDiskConfig::default(),
        &[],
        |handle, disk, rng| life(handle, disk, Model::default(), rng),
        |_| (),
    );
    let step = usize::try_from(whole / 150).expect("small").max(1);
    for at in (1..whole).step_by(step) {
        for end in [End::PowerLoss, End::Kill] {
            let model = Model::default();
            lives(
                7,
                SimDiskConfig::default(),
                &[(at, end)],
                |handle, disk, rng| life(handle, disk, model.clone(), rng),
                |_| (),
            );
        }
    }
}

fn in_simulation(test: impl AsyncFnOnce(SimHandle, SimDisk)) {
    let executor = SimExecutor::new(1);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::default());
    let handle = executor.handle();
    executor.block_on(test(handle, disk));
}

async fn two_stores(handle: &SimHandle, disk: &SimDisk) -> Stores {
    let stores = open_stores(disk, 0).await;
    for store in &stores {
        handle.spawn(commit_loop(Rc::clone(store), Durable::default()));
        handle.spawn(housekeeping_loop(Rc::clone(store)));
    }
    stores
}

async fn fill(store: &Store<SimDisk>, log: LogRef, from: i32, count: i32) {
    for number in from..from + count {
        let producer = Producer {
            id: 5,
            epoch: 0,
            sequence: number,
        };
        let bytes = batch(1, 3000, NOW_MS + i64::from(number), producer, number as u8);
        common::append(store, log, bytes, NOW_MS);
        let end = store.offsets(log).expect("open").log_end;
        store.durable_to(log, end).await.expect("durable");
    }
}

#[test]
fn all_of_a_log_goes_with_it_and_there_and_back() {
    in_simulation(async |handle, disk| {
        let stores = two_stores(&handle, &disk).await;
        let mut log = stores[0]
            .open_log(log_id(0), "t0", config(), NOW_MS)
            .await
            .expect("log");
        fill(&stores[0], log, 0, 20).await;
        stores[0].delete_records(log, Offset(6)).await.expect("start");
        let mut at = 0;
        for (round, from) in [20, 25, 30].into_iter().enumerate() {
            let (here, there) = (&stores[at], &stores[1 - at]);
            let mut moving = LogMove::begin(here, log, there, round as u128)
                .await
                .expect("begin");
            assert_eq!(moving.progress().bytes, 0);
            copy_all(&mut moving, &handle, NOW_MS).await;
            fill(here, log, from, 5).await;
            moving.settle().await.expect("settle");
            assert_eq!(moving.progress().left_bytes, 0);
            let refused = here.delete_records(log, Offset(7)).await;
            assert!(matches!(refused, Err(StorageError::NoSuchLog)), "{refused:?}");
            let old = read_log(here, log, Offset(i64::from(from) + 5), 4096).await;
            log = moving.commit(NOW_MS).await.map_err(|(f, _)| f).expect("commit");
            at = 1 - at;
            let ends = stores[at].offsets(log).expect("open");
            assert_eq!(ends.log_start, Offset(6));
            assert_eq!(ends.durable_end, Offset(i64::from(from) + 5));
            assert_eq!(read_log(&stores[at], log, ends.log_end, 4096).await, old);
            assert_eq!(stores[at].newest_epoch(log), LeaderEpoch(0));
            // Each of the last batches is known, not only the newest.
            let again = Producer {
                id: 5,
                epoch: 0,
                sequence: from + 2,
            };
            let bytes = batch(1, 3000, NOW_MS + i64::from(from + 2), again, 0);
            assert!(common::append(&stores[at], log, bytes, NOW_MS).is_duplicate);
        }
        // The old ones are on their way out, and only they.
        for (number, dir) in DIRS.iter().enumerate() {
            let entries = disk.list(Path::new(dir)).await.expect("list");
            let plain = entries
                .iter()
                .filter(|e| matches!(DirName::parse(&e.name), DirName::Partition(_)));
            assert_eq!(plain.count(), usize::from(number == at), "{dir}");
        }
    });
}

#[test]
fn a_large_active_segment_is_rolled_and_the_rest_is_small() {
    in_simulation(async |handle, disk| {
        let stores = two_stores(&handle, &disk).await;
        let large = LogConfig::default();
        let log = stores[0]
            .open_log(log_id(0), "t0", large, NOW_MS)
            .await
            .expect("log");
        for _ in 0..12 {
            let bytes = batch(1, 1 << 20, NOW_MS, common::PLAIN, 9);
            common::append(&stores[0], log, bytes, NOW_MS);
        }
        stores[0].durable_to(log, Offset(12)).await.expect("durable");
        let mut moving = LogMove::begin(&stores[0], log, &stores[1], 1)
            .await
            .expect("begin");
        copy_all(&mut moving, &handle, NOW_MS).await;
        assert_eq!(stores[0].size(log).expect("open").segments, 2);
        moving.settle().await.expect("settle");
        let log = moving.commit(NOW_MS).await.map_err(|(f, _)| f).expect("commit");
        let found = read_log(&stores[1], log, Offset(12), 4 << 20).await;
        assert_eq!(found.len(), 12);
    });
}

#[test]
fn a_move_that_is_given_up_leaves_the_log_where_it_is() {
    in_simulation(async |handle, disk| {
        let stores = two_stores(&handle, &disk).await;
        let log = stores[0]
            .open_log(log_id(0), "t0", config(), NOW_MS)
            .await
            .expect("log");
        fill(&stores[0], log, 0, 10).await;
        for is_settled in [false, true] {
            let mut moving = LogMove::begin(&stores[0], log, &stores[1], u128::from(is_settled))
                .await
                .expect("begin");
            copy_all(&mut moving, &handle, NOW_MS).await;
            if is_settled {
                moving.settle().await.expect("settle");
            }
            moving.abandon().await;
            let from = stores[0].offsets(log).expect("open").log_end.0 as i32;
            fill(&stores[0], log, from, 3).await;
            handle.sleep(Duration::from_millis(50)).await;
            let futures = futures(&disk, DIRS[1]).await;
            assert_eq!(futures, Vec::<PathBuf>::new(), "the copy goes by itself");
        }
    });
}

#[test]
fn a_log_that_is_deleted_while_it_is_copied_ends_the_copy() {
    in_simulation(async |handle, disk| {
        let stores = two_stores(&handle, &disk).await;
        let log = stores[0]
            .open_log(log_id(0), "t0", config(), NOW_MS)
            .await
            .expect("log");
        fill(&stores[0], log, 0, 10).await;
        let mut moving = LogMove::begin(&stores[0], log, &stores[1], 1)
            .await
            .expect("begin");
        moving.copy_some(NOW_MS).await.expect("copy");
        stores[0].delete_log(log).await.expect("delete");
        let copied = moving.copy_some(NOW_MS).await;
        assert!(matches!(copied, Err(StorageError::NoSuchLog)), "{copied:?}");
        moving.abandon().await;
    });
}

async fn futures(disk: &SimDisk, dir: &str) -> Vec<PathBuf> {
    let entries = disk.list(Path::new(dir)).await.expect("list");
    let is_future = |name: &str| {
        matches!(
            DirName::parse(name),
            DirName::Replica {
                mark: DirMark::Future,
                ..
            }
        )
    };
    let futures = entries.iter().filter(|entry| is_future(&entry.name));
    futures.map(|entry| Path::new(dir).join(&entry.name)).collect()
}
