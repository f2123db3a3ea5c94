//! A volume that two stores of one log directory fill by themselves, through many logs, and that is never given more: every stop in
//! order ends well, and every start, after it as after a crash at any moment, has what was acknowledged and takes appends again
//! when something was deleted. The disk is simulated, a seed is one volume with several lives.

mod common;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{PLAIN, batch, commit_loop, content, dir, housekeeping_loop, log_id, read_log, sync_loop};
use futures_lite::future::{or, zip};
use storage::commit::CommitLimits;
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::error::AppendError;
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{Durability, LogConfig};
use storage::recovery::recover_journals;
use storage::recovery::room::make_room_for_stores;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::space::shared::DirSpace;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const SHARDS: u16 = 2;
const LIVES: u64 = 5;

/// Client batches that are refused in a row until the volume counts as full.
const REFUSALS_MAX: u32 = 40;

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 256 << 10,
        write_behind_bytes: 16 << 10,
        journal: JournalOptions {
            file_bytes: 256 << 10,
            files_max: 4,
        },
        is_journal_filled: true,
        commit: CommitLimits {
            bytes_max: 64 << 10,
            ..CommitLimits::default()
        },
        shards: SHARDS,
        reserve_bytes: Some(128 << 10),
        ..StoreOptions::default()
    }
}

fn config(number: u8) -> LogConfig {
    LogConfig {
        segment_bytes: [256 << 10, 1 << 20][usize::from(number) % 2],
        durability: if number % 5 == 4 {
            Durability::Written
        } else {
            Durability::Fsync
        },
        file_delete_delay_ms: 0,
        ..LogConfig::default()
    }
}

/// What clients know of a log: its batches from `start` on, and how many of them were acknowledged.
#[derive(Debug, Default)]
struct Sent {
    batches: BTreeMap<Offset, Bytes>,
    start: Offset,
    acknowledged: Offset,
    /// Records may be lost in the life to come: the log is not synced, and the power failed.
    may_lose: bool,
}

#[derive(Debug, Default)]
struct Volume {
    logs: BTreeMap<u8, Sent>,
    refused: u64,
    clean_stops: u64,
}

type Model = Rc<RefCell<Volume>>;

/// One process.
struct Life {
    handle: SimHandle,
    stores: Vec<Rc<Store<SimDisk>>>,
    logs: Vec<(u8, usize, LogRef)>,
    model: Model,
    rng: SimRng,
}

impl Life {
    /// Starts on what is there: nothing of it may fail.
    async fn start(handle: SimHandle, disk: &SimDisk, model: Model, mut rng: SimRng, logs: u8) -> Self {
        disk.create_dir(dir()).await.expect("create");
        disk.sync_dir(Path::new("/")).await.expect("sync");
        recover_journals(disk, dir(), |_, _| {}).await.expect("journals");
        let space: Arc<DirSpace> = Arc::default();
        let journal = options().journal;
        make_room_for_stores(disk, dir(), SHARDS, journal, &space)
            .await
            .expect("room");
        let mut stores = Vec::new();
        for shard in 0..SHARDS {
            let store = Store::open_beside(disk.clone(), dir(), shard, options(), &space).await;
            let store = store.expect("a store");
            for _ in 0..2 {
                handle.spawn(commit_loop(Rc::clone(&store), Rc::default()));
            }
            handle.spawn(housekeeping_loop(Rc::clone(&store)));
            handle.spawn(sync_loop(handle.clone(), Rc::clone(&store)));
            let (watched, clock) = (Rc::clone(&store), handle.clone());
            handle.spawn(async move {
                for second in 0.. {
                    watched.watch_space(second * 1000).await;
                    clock.sleep(Duration::from_secs(1)).await;
                }
            });
            stores.push(store);
        }
        let turn = rng.index(2);
        let mut life = Self {
            handle,
            stores,
            logs: Vec::new(),
            model,
            rng,
        };
        for number in 0..logs {
            let at = (usize::from(number) + turn) % life.stores.len();
            let topic = if number == 1 {
                "__consumer_offsets".to_owned()
            } else {
                format!("t{number}")
            };
            let store = &life.stores[at];
            let opened = store
                .open_log(log_id(number), &topic, config(number), NOW_MS)
                .await;
            let log = opened.unwrap_or_else(|error| panic!("log {number}: {error}"));
            life.logs.push((number, at, log));
            life.check(number, at, log).await;
        }
        life
    }

    /// What was acknowledged is there, in order, and nothing that was not sent.
    async fn check(&self, number: u8, at: usize, log: LogRef) {
        let store = &self.stores[at];
        let offsets = store.offsets(log).expect("open");
        let read = read_log(store, log, offsets.log_end, 200_000).await;
        let mut model = self.model.borrow_mut();
        let sent = model.logs.entry(number).or_default();
        assert!(
            offsets.log_end >= sent.acknowledged || sent.may_lose,
            "log {number}: {} acknowledged, {} there",
            sent.acknowledged,
            offsets.log_end
        );
        for found in &read {
            assert!(
                sent.batches.get(&found.base) == Some(&found.content),
                "log {number} at {}",
                found.base
            );
        }
        let there: Vec<Offset> = read.iter().map(|found| found.base).collect();
        let due = sent.batches.range(sent.start..offsets.log_end.max(sent.start));
        for (base, _) in due {
            assert!(there.contains(base), "log {number}: a hole at {base}");
        }
        sent.batches.retain(|base, _| *base < offsets.log_end);
        sent.start = offsets.log_start;
        sent.acknowledged = offsets.log_end;
        sent.may_lose = false;
    }

    /// Appends until the volume is full.
    async fn fill(&mut self) {
        let mut refusals = 0;
        for round in 0..4000u32 {
            let (number, at, log) = self.logs[self.rng.index(self.logs.len())];
            let size = [200, 2_000, 9_000, 60_000, 150_000][self.rng.index(5)];
            let bytes = batch(1, size, NOW_MS, PLAIN, round as u8);
            let append = AppendBatch::from_client(bytes.clone(), LeaderEpoch(0));
            match self.stores[at].append(log, append, NOW_MS) {
                Ok(appended) => {
                    refusals = 0;
                    let mut model = self.model.borrow_mut();
                    let sent = model.logs.entry(number).or_default();
                    sent.batches.insert(appended.base_offset, content(&bytes));
                }
                Err(AppendError::Full) => {
                    refusals += 1;
                    self.model.borrow_mut().refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
            let pause = match refusals {
                0 => self.rng.between(0, 1500),
                _ => self.rng.between(0, 100_000),
            };
            self.handle.sleep(Duration::from_micros(pause)).await;
            self.note();
            if refusals > REFUSALS_MAX {
                return;
            }
        }
        panic!("the volume never filled");
    }

    fn note(&self) {
        let mut model = self.model.borrow_mut();
        for (number, at, log) in &self.logs {
            let end = self.stores[*at].offsets(*log).expect("open").durable_end;
            let sent = model.logs.entry(*number).or_default();
            sent.acknowledged = sent.acknowledged.max(end);
        }
    }

    /// Deletes the records of some logs, which must bring appends back by itself.
    async fn make_space(&mut self) {
        for _ in 0..self.logs.len().div_ceil(3) {
            let (number, at, log) = self.logs[self.rng.index(self.logs.len())];
            if config(number).durability == Durability::Written {
                continue; // what it has deleted may be lost with the rest of it
            }
            let to = self.stores[at].offsets(log).expect("open").durable_end;
            self.model.borrow_mut().logs.entry(number).or_default().start = to;
            let deleted = self.stores[at].delete_records(log, to);
            self.within("delete_records", deleted).await.expect("deleted");
        }
    }

    async fn within<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let late = async {
            self.handle.sleep(Duration::from_secs(120)).await;
            panic!("{what} does not end");
        };
        or(work, late).await
    }

    async fn run(mut self) {
        for _ in 0..1 + self.rng.index(2) {
            self.fill().await;
            if self.rng.coin() {
                self.make_space().await;
                self.handle.sleep(Duration::from_secs(3)).await;
            }
        }
        for store in &self.stores {
            assert_eq!(store.offline_reason(), None);
        }
        self.note();
        let [first, second] = &self.stores[..] else {
            panic!("two stores");
        };
        let closing = async { zip(first.close(), second.close()).await };
        let closed = self.within("close", closing).await;
        assert!(
            closed.0.is_ok() && closed.1.is_ok(),
            "a stop in order: {closed:?}"
        );
        let mut model = self.model.borrow_mut();
        model.clean_stops += 1;
        for (number, at, log) in &self.logs {
            let _ = (at, log);
            let sent = model.logs.entry(*number).or_default();
            let end = sent
                .batches
                .keys()
                .next_back()
                .map_or(sent.start, |last| last.plus(1));
            sent.acknowledged = end;
        }
    }
}

/// The lives of one volume; the model at the end.
fn volume(seed: u64) -> Model {
    let mut rng = SimRng::new(seed, "full start");
    let model = Model::default();
    let capacity = rng.between(5, 16) << 20;
    let logs = rng.between(3, 30) as u8;
    let mut disk: Option<SimDisk> = None;
    for number in 0..LIVES {
        let executor = SimExecutor::new(seed * 100 + number);
        let handle = executor.handle();
        let now = match disk.take() {
            None => SimDisk::new(&handle, SimDiskConfig::seeded(seed)),
            Some(before) if rng.coin() => {
                for (log, sent) in &mut model.borrow_mut().logs {
                    sent.may_lose = config(*log).durability == Durability::Written;
                }
                before.restart(&handle)
            }
            Some(before) => before.restart_after_kill(&handle),
        };
        now.configure(|config| config.capacity_bytes = capacity);
        if rng.coin() {
            let max = [60, 3000][rng.index(2)];
            now.crash_after(rng.between(1, max));
        }
        let life = async {
            let rng = SimRng::new(seed * 100 + number, "life");
            let life = Life::start(handle.clone(), &now, Rc::clone(&model), rng, logs).await;
            life.run().await;
        };
        executor.block_on(or(life, now.crashed()));
        disk = Some(now);
        drop(executor);
    }
    model
}

#[test]
fn a_volume_that_its_logs_have_filled_starts_again_after_every_end() {
    let (mut refused, mut clean_stops) = (0, 0);
    for seed in 0..60 {
        match std::panic::catch_unwind(|| {
            let model = volume(seed);
            let model = model.borrow();
            (model.refused, model.clean_stops)
        }) {
            Ok((some, stops)) => {
                refused += some;
                clean_stops += stops;
            }
            Err(_) => panic!("seed {seed}"),
        }
    }
    assert!(
        refused > 1000 && clean_stops > 60,
        "{refused} refusals, {clean_stops} stops"
    );
}

/// Appends and waits until it is durable.
async fn put(store: &Store<SimDisk>, log: LogRef, size: usize, fill: u8) {
    let bytes = batch(1, size, NOW_MS, PLAIN, fill);
    let append = AppendBatch::from_client(bytes, LeaderEpoch(0));
    let end = store
        .append(log, append, NOW_MS)
        .expect("room")
        .last_offset
        .plus(1);
    store.durable_to(log, end).await.expect("durable");
}

fn drive(handle: &SimHandle, store: &Rc<Store<SimDisk>>) {
    handle.spawn(commit_loop(Rc::clone(store), Rc::default()));
    handle.spawn(housekeeping_loop(Rc::clone(store)));
}

/// Others take the rest of a volume, the process is killed: what the journal holds of one log needs the blocks that another had
/// allocated ahead.
#[test]
fn a_start_without_a_free_block_takes_what_was_allocated_ahead() {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    disk.configure(|config| config.capacity_bytes = 64 << 20);
    executor.block_on(async {
        let store = common::open_store(
            &disk,
            StoreOptions {
                shards: 1,
                ..options()
            },
        )
        .await;
        drive(&handle, &store);
        let open = async |number| {
            store
                .open_log(log_id(number), &format!("t{number}"), config(1), NOW_MS)
                .await
        };
        let busy = open(0).await.expect("log");
        let quiet = open(1).await.expect("log");
        // The last one has just been given the next 256 KiB.
        for round in 0..9 {
            put(&store, busy, 30_000, round).await;
            handle.sleep(Duration::from_millis(20)).await;
        }
        put(&store, quiet, 10_000, 9).await;
        handle.sleep(Duration::from_millis(50)).await;
        assert!(store.stats().ahead_bytes > 20_000, "{:?}", store.stats());
        let used = disk.used_bytes();
        disk.configure(|config| config.capacity_bytes = used);
    });
    drop(executor);
    let executor = SimExecutor::new(2);
    let handle = executor.handle();
    let disk = disk.restart_after_kill(&handle);
    executor.block_on(async {
        let store = common::open_store(
            &disk,
            StoreOptions {
                shards: 1,
                ..options()
            },
        )
        .await;
        for (number, batches) in [(0u8, 9), (1, 1)] {
            let opened = store
                .open_log(log_id(number), &format!("t{number}"), config(1), NOW_MS)
                .await;
            let log = opened.expect("log");
            let end = store.offsets(log).expect("open").log_end;
            assert_eq!(read_log(&store, log, end, 100_000).await.len(), batches);
        }
    });
}

/// More shards than before, or a volume that others have filled meanwhile.
#[test]
fn where_the_journals_do_not_fit_they_are_smaller() {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    disk.configure(|config| config.capacity_bytes = 24 << 20);
    let large = JournalOptions {
        file_bytes: 8 << 20,
        files_max: 4,
    };
    executor.block_on(async {
        for shards in [1u16, 4, 1] {
            disk.create_dir(dir()).await.expect("create");
            recover_journals(&disk, dir(), |_, _| {}).await.expect("journals");
            let space: Arc<DirSpace> = Arc::default();
            make_room_for_stores(&disk, dir(), shards, large, &space)
                .await
                .expect("room");
            let options = StoreOptions {
                shards,
                journal: large,
                ..options()
            };
            let mut stores = Vec::new();
            for shard in 0..shards {
                let store = Store::open_beside(disk.clone(), dir(), shard, options, &space).await;
                stores.push(store.expect("a store"));
            }
            let store = stores.last().expect("one");
            drive(&handle, store);
            let log = store
                .open_log(log_id(0), "t0", config(0), NOW_MS)
                .await
                .expect("log");
            put(store, log, 100_000, shards as u8).await;
            if shards == 4 {
                continue; // and no stop in order
            }
            for store in &stores {
                store.close().await.expect("a clean stop");
            }
        }
    });
}
