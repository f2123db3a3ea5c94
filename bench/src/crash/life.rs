//! One life of the process on the simulated disk: recover, check every log, then a mixed workload on several shards until it is
//! done, the disk freezes, or the log directory goes offline. The same drivers run as on a shard: two committers, background
//! work, bounded syncs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::or;
use storage::commit::CommitLimits;
use storage::disk::Disk;
use storage::disk::sim::SimDisk;
use storage::error::{AppendError, StorageError};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{Durability, LogConfig};
use storage::notify::join_all;
use storage::producer_state::AppendOrigin;
use storage::recovery::recover_journals;
use storage::sim_executor::SimHandle;
use storage::sim_rng::SimRng;
use storage::store::{Store, StoreOptions};
use storage::sync_schedule::IntervalBounds;
use storage::types::{LeaderEpoch, Offset};

use super::NOW_MS;
use super::batches::{PLAIN, Producer, content, data, marker};
use super::check::{check, check_content, read};
use super::compacted;
use super::model::{LogModel, Model, Presence, ProducerFacts, Role, Sent};

/// The log directory of all lives.
pub const DIR: &str = "/data";
/// Logs that are there at a time.
const LOGS_MAX: usize = 8;
/// Producer ids of a log: the first writes without transactions, the others with.
const PRODUCERS: [i64; 3] = [70, 71, 72];

/// What a life does.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Operations.
    pub operations: usize,
    /// Shards.
    pub shards: u16,
    /// Whether it ends with a clean stop.
    pub stops_cleanly: bool,
    /// Whether it rests for long before its end, so that everything is on record as durable.
    pub rests: bool,
    /// Whether topics may be of classes without syncs.
    pub mixes_classes: bool,
    /// Whether topics come and go, and logs are closed and opened again.
    pub changes_topics: bool,
    /// Whether topics may be compacted.
    pub compacts: bool,
    /// Whether new journal files are written with zeroes ahead of the commits.
    pub fills_journal: bool,
    /// Whether the disk may refuse something: then the life may end by itself.
    pub may_be_refused: bool,
}

/// How a life ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All of it was done.
    Done,
    /// The log directory went offline, or refused to be opened, because the disk refused something.
    Offline,
}

type Shared = Rc<RefCell<Model>>;

/// Where a log is open.
#[derive(Clone, Copy, Debug)]
struct Home {
    shard: usize,
    log: LogRef,
}

struct Life {
    handle: SimHandle,
    model: Shared,
    rng: SimRng,
    plan: Plan,
    stores: Vec<Rc<Store<SimDisk>>>,
    homes: BTreeMap<usize, Home>,
    durable: Vec<Rc<RefCell<BTreeMap<LogRef, Offset>>>>,
}

/// A store so small that files roll, fill and are recycled within a life; one of `shards`.
pub fn options(shards: u16) -> StoreOptions {
    StoreOptions {
        cache_bytes: 64 << 10,
        write_behind_bytes: 8 << 10,
        journal: JournalOptions {
            file_bytes: 48 << 10,
            files_max: 3,
        },
        commit: CommitLimits {
            bytes_max: 96 << 10,
            ..CommitLimits::default()
        },
        interval: IntervalBounds {
            ms: 5,
            bytes: 32 << 10,
        },
        shards,
        ..StoreOptions::default()
    }
}

/// Runs a life to its end; the caller ends it earlier by freezing the disk.
///
/// # Panics
/// On a violation.
pub async fn live(handle: SimHandle, disk: SimDisk, model: Shared, rng: SimRng, plan: Plan) -> Ending {
    let whole = async {
        let mut life = begin(handle.clone(), disk, model, rng, plan).await?;
        life.run().await
    };
    // On a full disk much waits for space, and nobody makes any.
    let too_long = async {
        handle.sleep(Duration::from_secs(300)).await;
        assert!(plan.may_be_refused, "something hangs");
        Err(StorageError::Offline(Rc::from("it waits for space")))
    };
    match or(whole, too_long).await {
        Ok(()) => Ending::Done,
        Err(error) => refused(&error, plan),
    }
}

/// The disk may refuse; that something is damaged or lost is never right here.
fn refused(error: &StorageError, plan: Plan) -> Ending {
    match error {
        StorageError::Disk(_) | StorageError::Offline(_) | StorageError::NoSpace(_)
            if plan.may_be_refused =>
        {
            Ending::Offline
        }
        other => panic!("{other}"),
    }
}

async fn begin(
    handle: SimHandle,
    disk: SimDisk,
    model: Shared,
    mut rng: SimRng,
    plan: Plan,
) -> Result<Life, StorageError> {
    let dir = Path::new(DIR);
    disk.create_dir(dir).await?;
    disk.sync_dir(Path::new("/")).await?;
    recover_journals(&disk, dir, |_, _| {}).await?;
    let mut stores = Vec::new();
    let space = Arc::default();
    for shard in 0..plan.shards {
        let options = StoreOptions {
            is_journal_filled: plan.fills_journal,
            ..options(plan.shards)
        };
        stores.push(Store::open_beside(disk.clone(), dir, shard, options, &space).await?);
    }
    let mut life = Life {
        handle,
        model,
        plan,
        durable: stores.iter().map(|_| Rc::default()).collect(),
        stores,
        homes: BTreeMap::new(),
        rng: SimRng::new(rng.next_u64(), "life"),
    };
    let open = life.model.borrow().open();
    for some in open.chunks(3) {
        let turn = life.rng.index(8);
        let opening = some.iter().map(|index| life.open(*index, index + turn));
        let homes: Result<Vec<Home>, StorageError> = join_all(opening).await.into_iter().collect();
        life.homes.extend(some.iter().copied().zip(homes?));
    }
    Ok(life)
}

impl Life {
    /// Opens a log on a shard and holds it against what was sent.
    async fn open(&self, index: usize, shard: usize) -> Result<Home, StorageError> {
        let shard = shard % self.stores.len();
        let (id, topic, config) = {
            let model = self.model.borrow();
            let log = &model.logs[index];
            (log.id, log.topic.clone(), log.config.clone())
        };
        let store = &self.stores[shard];
        let log = store.open_log(id, &topic, config, NOW_MS).await?;
        let sent = self.model.borrow().logs[index].clone();
        let kept = check(store, log, sent).await?;
        self.model.borrow_mut().logs[index] = kept;
        Ok(Home { shard, log })
    }

    async fn run(&mut self) -> Result<(), StorageError> {
        for (store, durable) in self.stores.iter().zip(&self.durable) {
            for _ in 0..2 {
                self.handle.spawn(commit(store.clone(), durable.clone()));
            }
            self.handle.spawn(background(store.clone()));
            self.handle.spawn(compacted::clean(
                self.handle.clone(),
                store.clone(),
                self.plan.may_be_refused,
            ));
            self.handle
                .spawn(sync_in_time(self.handle.clone(), store.clone()));
        }
        if self.homes.is_empty() {
            for _ in 0..3 {
                self.create().await?;
            }
        }
        for round in 0..self.plan.operations {
            self.operation(round).await?;
            self.note();
        }
        self.come_to_rest().await?;
        if self.plan.rests {
            self.handle.sleep(Duration::from_secs(4)).await;
        }
        self.note();
        if self.plan.stops_cleanly {
            for store in &self.stores {
                store.close().await?;
            }
            self.note();
        }
        Ok(())
    }

    async fn operation(&mut self, round: usize) -> Result<(), StorageError> {
        let topics = self.plan.changes_topics;
        match self.rng.between(0, 99) {
            0..=63 => self.append(round)?,
            64..=71 => self.end_transaction(round)?,
            72..=75 => self.delete_records().await?,
            76..=78 if topics => self.create().await?,
            79..=80 if topics => self.delete().await?,
            81..=82 if topics => self.move_log().await?,
            83..=86 => self.configure(),
            87..=88 => self.lead(),
            _ => {
                self.handle
                    .sleep(Duration::from_micros(self.rng.between(1, 4000)))
                    .await
            }
        }
        Ok(())
    }

    /// A log that is there.
    fn any(&mut self) -> Option<(usize, Home)> {
        let nth = self.rng.index(self.homes.len());
        self.homes.iter().nth(nth).map(|(index, home)| (*index, *home))
    }

    fn append(&mut self, round: usize) -> Result<(), StorageError> {
        let Some((index, home)) = self.any() else {
            return Ok(());
        };
        let is_keyed = self.model.borrow().logs[index].is_keyed;
        let size = match self.rng.between(0, 9) {
            0..=5 => self.rng.between(70, 600),
            6..=7 => self.rng.between(3_000, 9_000),
            _ if is_keyed => self.rng.between(9_000, 20_000),
            _ => self.rng.between(64 << 10, 90 << 10),
        } as usize;
        let records = self.rng.between(1, 3) as i32;
        let producer = self.producer(index, home);
        let at_ms = NOW_MS + round as i64;
        let bytes = if is_keyed {
            compacted::data(records, size, at_ms, producer, &mut self.rng)
        } else {
            let fill = self.rng.between(0, 255) as u8;
            data(records, size, at_ms, producer, fill)
        };
        let role = if producer.id < 0 {
            Role::Plain
        } else {
            Role::Data {
                id: producer.id,
                epoch: producer.epoch,
                last_sequence: producer.sequence + records - 1,
                is_transactional: producer.is_transactional,
            }
        };
        self.send(index, home, bytes, role, AppendOrigin::Client)
    }

    /// Who writes next to a log: nobody known, or one of its producers, now and then in a new epoch.
    fn producer(&mut self, index: usize, home: Home) -> Producer {
        let which = self.rng.index(PRODUCERS.len() + 1);
        let Some(id) = PRODUCERS.get(which).copied() else {
            return PLAIN;
        };
        let is_transactional = which > 0;
        let known = self.known_producer(index, home, id);
        let mut producer = Producer {
            id,
            epoch: known.map_or(0, |facts| facts.epoch),
            sequence: known.map_or(0, |facts| facts.last_sequence + 1),
            is_transactional,
        };
        if known.is_some_and(|facts| facts.transaction_start.is_none()) && self.rng.chance(60_000) {
            producer.epoch += 1;
            producer.sequence = 0;
        }
        producer
    }

    /// What a producer wrote: the model says so, but for a log that lost its end, where only the log can.
    fn known_producer(&self, index: usize, home: Home, id: i64) -> Option<ProducerFacts> {
        let model = self.model.borrow();
        if !model.logs[index].began_again {
            return model.logs[index].producers().get(&id).copied();
        }
        let known = self.stores[home.shard].producers(home.log);
        known
            .iter()
            .find(|known| known.producer_id.0 == id)
            .map(|known| ProducerFacts {
                epoch: known.epoch,
                last_sequence: known.last_sequence,
                transaction_start: known.transaction_start,
                last_offset: Offset::NONE,
            })
    }

    fn end_transaction(&mut self, round: usize) -> Result<(), StorageError> {
        let Some((index, home)) = self.any() else {
            return Ok(());
        };
        let open = self.model.borrow().logs[index].producers();
        let mut open = open.iter().filter(|(_, facts)| facts.transaction_start.is_some());
        let Some((id, facts)) = open.next() else {
            return Ok(());
        };
        let is_abort = self.rng.coin();
        let bytes = marker(NOW_MS + round as i64, *id, facts.epoch, is_abort);
        let role = Role::Marker {
            id: *id,
            epoch: facts.epoch,
            is_abort,
        };
        self.send(index, home, bytes, role, AppendOrigin::Coordinator)
    }

    fn send(
        &mut self,
        index: usize,
        home: Home,
        bytes: bytes::Bytes,
        role: Role,
        origin: AppendOrigin,
    ) -> Result<(), StorageError> {
        let store = &self.stores[home.shard];
        let newest = store.newest_epoch(home.log).max(LeaderEpoch(0));
        let leader_epoch = LeaderEpoch(newest.0 + i32::from(self.rng.chance(30_000)));
        let kept = content(&bytes);
        let batch = AppendBatch {
            origin,
            ..AppendBatch::from_client(bytes, leader_epoch)
        };
        match store.append(home.log, batch, NOW_MS) {
            Ok(appended) => {
                assert!(!appended.is_duplicate, "a new batch is taken for an old one");
                let mut model = self.model.borrow_mut();
                let log = &mut model.logs[index];
                log.leader_epoch_max = log.leader_epoch_max.max(leader_epoch.0);
                log.batches.push(Sent {
                    base: appended.base_offset,
                    last: appended.last_offset,
                    content: kept,
                    leader_epoch: leader_epoch.0,
                    role,
                });
                Ok(())
            }
            Err(AppendError::Backlog { .. }) => Ok(()),
            Err(AppendError::Offline(why)) => Err(StorageError::Offline(why)),
            Err(AppendError::Full) => Err(StorageError::Offline(Rc::from("full"))),
            Err(error) => panic!("{}: {error}", self.model.borrow().logs[index].directory()),
        }
    }

    /// Moves a log's start to somewhere below its durable end.
    async fn delete_records(&mut self) -> Result<(), StorageError> {
        let Some((index, home)) = self.any() else {
            return Ok(());
        };
        let store = self.stores[home.shard].clone();
        let offsets = store.offsets(home.log).expect("an open log");
        let (low, high) = (offsets.log_start.0 as u64, offsets.durable_end.0 as u64);
        let start = Offset(self.rng.between(low, high) as i64);
        self.model.borrow_mut().logs[index].start_asked = start;
        let answered = store.delete_records(home.log, start).await?;
        assert_eq!(answered, start, "the new log start");
        self.model.borrow_mut().logs[index].start = start;
        Ok(())
    }

    async fn create(&mut self) -> Result<(), StorageError> {
        if self.homes.len() >= LOGS_MAX {
            return Ok(());
        }
        let durability = self.class();
        let mut config = LogConfig {
            segment_bytes: self.rng.between(96 << 10, 300 << 10) as u32,
            durability,
            ..LogConfig::default()
        };
        if self.plan.compacts && self.rng.chance(400_000) {
            config.segment_bytes = self.rng.between(24 << 10, 60 << 10) as u32;
            config.compaction = compacted::config();
        }
        let index = {
            let mut model = self.model.borrow_mut();
            let number = model.logs.len();
            // The name of a deleted topic may be taken up again.
            let is_free = |name: &String| {
                let mut named = model.logs.iter().filter(|log| log.topic == *name);
                named.all(|log| log.presence == Presence::Deleted)
            };
            let name = (0..).map(|n| format!("t{n}")).find(is_free).expect("a name");
            model.logs.push(LogModel::new(number as u32 + 1, name, 0, config));
            number
        };
        let shard = self.rng.index(self.stores.len());
        let home = self.open(index, shard).await?;
        self.homes.insert(index, home);
        Ok(())
    }

    fn class(&mut self) -> Durability {
        match self.rng.index(6) {
            0 if self.plan.mixes_classes => Durability::Written,
            1 if self.plan.mixes_classes => Durability::Interval,
            _ => Durability::Fsync,
        }
    }

    async fn delete(&mut self) -> Result<(), StorageError> {
        if self.homes.len() < 3 {
            return Ok(());
        }
        let Some((index, home)) = self.any() else {
            return Ok(());
        };
        self.note();
        self.homes.remove(&index);
        self.model.borrow_mut().logs[index].presence = Presence::Deleted;
        self.stores[home.shard].delete_log(home.log).await
    }

    /// Closes a log and opens it again.
    async fn move_log(&mut self) -> Result<(), StorageError> {
        let Some((index, home)) = self.any() else {
            return Ok(());
        };
        self.homes.remove(&index);
        let staged = self.model.borrow().logs[index].end();
        self.stores[home.shard].close_log(home.log).await?;
        {
            let mut model = self.model.borrow_mut();
            let log = &mut model.logs[index];
            log.durable = log.durable.max(staged);
        }
        let home = self.open(index, home.shard).await?;
        self.homes.insert(index, home);
        Ok(())
    }

    fn configure(&mut self) {
        let Some((index, home)) = self.any() else { return };
        let durability = self.class();
        let mut model = self.model.borrow_mut();
        let log = &mut model.logs[index];
        log.config.durability = durability;
        log.was_loose |= durability != Durability::Fsync;
        log.config.compaction.enabled = log.is_keyed && !self.rng.chance(300_000);
        self.stores[home.shard].set_config(home.log, log.config.clone());
    }

    /// A leader takes over in a new epoch.
    fn lead(&mut self) {
        let Some((index, home)) = self.any() else { return };
        let store = &self.stores[home.shard];
        let epoch = store.newest_epoch(home.log).max(LeaderEpoch(0)).0 + 1;
        let mut model = self.model.borrow_mut();
        let log = &mut model.logs[index];
        log.leader_epoch_max = log.leader_epoch_max.max(epoch);
        store.assign_epoch(home.log, LeaderEpoch(epoch));
    }

    /// Notes what was reported durable, and moves the high watermarks there.
    fn note(&self) {
        let mut model = self.model.borrow_mut();
        for (index, home) in &self.homes {
            let end = self.durable[home.shard].borrow().get(&home.log).copied();
            let Some(end) = end else { continue };
            let store = &self.stores[home.shard];
            store.on_high_watermark(home.log, end);
            let log = &mut model.logs[*index];
            log.durable = log.durable.max(end);
            if !store.is_unsynced(home.log) && log.config.durability == Durability::Fsync {
                log.durable_power = log.durable_power.max(end);
            }
        }
    }

    /// Waits until all is durable, then reads all of it.
    async fn come_to_rest(&self) -> Result<(), StorageError> {
        for (index, home) in &self.homes {
            let store = &self.stores[home.shard];
            let end = store.offsets(home.log).expect("an open log").log_end;
            store.durable_to(home.log, end).await?;
            let found = read(store, home.log, end).await?;
            let start = store.offsets(home.log).expect("an open log").log_start;
            let model = self.model.borrow();
            let model = &model.logs[*index];
            check_content(model, &found, start);
            let kept = model.batches.len() - model.deleted(start);
            assert!(
                model.is_keyed || found.len() == kept,
                "{}: {} batches of {kept} were read before any crash",
                model.directory(),
                found.len()
            );
        }
        Ok(())
    }
}

async fn commit(store: Rc<Store<SimDisk>>, durable: Rc<RefCell<BTreeMap<LogRef, Offset>>>) {
    while let Ok(outcome) = store.commit().await {
        for (log, end) in outcome.moved {
            let before = durable.borrow_mut().insert(log, end);
            assert!(
                before.is_none_or(|before| before < end),
                "a durable end went back"
            );
        }
    }
}

async fn background(store: Rc<Store<SimDisk>>) {
    while store.housekeeping().await.is_ok() {}
}

async fn sync_in_time(handle: SimHandle, store: Rc<Store<SimDisk>>) {
    loop {
        let now_ms = handle.now_ns() / 1_000_000;
        match store.sync_due(now_ms).await {
            Err(_) => break,
            Ok(None) => store.sync_schedule_moved().await,
            Ok(Some(at)) => {
                let left = Duration::from_millis(at.saturating_sub(now_ms));
                or(store.sync_schedule_moved(), handle.sleep(left)).await;
            }
        }
    }
}
