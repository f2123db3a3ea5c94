//! What the tests of the store share: batches, a store with its drivers on the simulated disk, and reading a log back.
#![allow(dead_code)] // each test binary uses a part
#![allow(unreachable_pub)] // shared by several test binaries

pub mod crashes;
pub mod pace;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_lite::future::or;
use storage::disk::Disk;
use storage::disk::sim::SimDisk;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::batch::BatchHeader;
use storage::moving::{CopyStep, LogMove};
use storage::recovery::recover_journals;
use storage::sim_executor::SimHandle;
use storage::store::{ReadOutcome, Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, Offset, TopicId};

/// The producer fields of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Producer {
    pub id: i64,
    pub epoch: i16,
    pub sequence: i32,
}

/// No idempotence.
pub const PLAIN: Producer = Producer {
    id: -1,
    epoch: -1,
    sequence: -1,
};

/// A valid batch of `records` records whose bytes behind the header are `fill`, `size` bytes in all.
pub fn batch(records: i32, size: usize, timestamp: i64, producer: Producer, fill: u8) -> Bytes {
    let size = size.max(61 + 8);
    let mut out = vec![fill; size];
    out[0..8].copy_from_slice(&0i64.to_be_bytes());
    out[8..12].copy_from_slice(&(size as i32 - 12).to_be_bytes());
    out[12..16].copy_from_slice(&(-1i32).to_be_bytes());
    out[16] = 2;
    out[21..23].copy_from_slice(&0i16.to_be_bytes());
    out[23..27].copy_from_slice(&(records - 1).to_be_bytes());
    out[27..35].copy_from_slice(&timestamp.to_be_bytes());
    out[35..43].copy_from_slice(&timestamp.to_be_bytes());
    out[43..51].copy_from_slice(&producer.id.to_be_bytes());
    out[51..53].copy_from_slice(&producer.epoch.to_be_bytes());
    out[53..57].copy_from_slice(&producer.sequence.to_be_bytes());
    out[57..61].copy_from_slice(&records.to_be_bytes());
    let crc = crc32c::crc32c(&out[21..]);
    out[17..21].copy_from_slice(&crc.to_be_bytes());
    Bytes::from(out)
}

/// What is compared between what was sent and what is in the log: everything behind the 16-byte prefix.
pub fn content(batch: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&batch[16..])
}

/// Log number `number` of a test.
pub fn log_id(number: u8) -> LogId {
    LogId {
        topic: TopicId([number + 1; 16]),
        partition: 0,
    }
}

/// A batch of a log as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadBatch {
    pub base: Offset,
    pub last: Offset,
    pub content: Bytes,
}

/// All batches of a log from its start to `upper`, through cache and disk.
pub async fn read_log<D: Disk>(
    store: &Store<D>,
    log: LogRef,
    upper: Offset,
    max_bytes: usize,
) -> Vec<ReadBatch> {
    let mut out = Vec::new();
    let mut at = store.offsets(log).expect("open").log_start;
    while at < upper {
        let pieces = match store.read(log, at, max_bytes, upper, true) {
            ReadOutcome::Cached(pieces) => pieces,
            ReadOutcome::Cold(cold) => store.read_cold(cold).await.expect("cold read"),
            other => panic!("reading at {at} of {upper}: {other:?}"),
        };
        let bytes = pieces.concat();
        assert!(!bytes.is_empty(), "nothing at {at} below {upper}");
        at = split(&bytes, &mut out);
    }
    out
}

fn split(bytes: &[u8], out: &mut Vec<ReadBatch>) -> Offset {
    let mut at = 0;
    let mut end = Offset::ZERO;
    while at < bytes.len() {
        let header = BatchHeader::parse(&bytes[at..]).expect("whole batches");
        let whole = &bytes[at..at + header.size as usize];
        assert!(
            storage::log::batch::crc_matches(&header, whole),
            "CRC of {header:?}"
        );
        out.push(ReadBatch {
            base: header.base_offset,
            last: header.last_offset(),
            content: content(whole),
        });
        end = header.last_offset().plus(1);
        at += whole.len();
    }
    end
}

/// Appends a client batch.
pub fn append<D: Disk>(
    store: &Store<D>,
    log: LogRef,
    bytes: Bytes,
    now_ms: i64,
) -> storage::log::append::Appended {
    store
        .append(log, AppendBatch::from_client(bytes, LeaderEpoch(0)), now_ms)
        .expect("append")
}

/// The durable ends that commits have reported, by log.
pub type Durable = Rc<RefCell<std::collections::BTreeMap<LogRef, Offset>>>;

/// Runs commits until the store goes offline, noting what each reported.
pub async fn commit_loop<D: Disk>(store: Rc<Store<D>>, durable: Durable) {
    watched_commit_loop(store, durable, |_| ()).await;
}

/// As [`commit_loop`]; `ended` is told how many syncs each commit took, after it was noted.
pub async fn watched_commit_loop<D: Disk>(store: Rc<Store<D>>, durable: Durable, mut ended: impl FnMut(u32)) {
    while let Ok(outcome) = store.commit().await {
        for (log, end) in outcome.moved {
            let before = durable.borrow_mut().insert(log, end);
            assert!(
                before.is_none_or(|before| before < end),
                "a durable end went back"
            );
        }
        ended(outcome.syncs);
    }
}

/// Runs background work until the store goes offline.
pub async fn housekeeping_loop<D: Disk>(store: Rc<Store<D>>) {
    while store.housekeeping().await.is_ok() {}
}

/// The directory of all tests.
pub fn dir() -> &'static Path {
    Path::new("/data")
}

/// Recovers the log directory on the disk, which is made if there is none, and opens the first shard's store in it.
pub async fn open_store(disk: &SimDisk, options: StoreOptions) -> Rc<Store<SimDisk>> {
    disk.create_dir(dir()).await.expect("create");
    disk.sync_dir(Path::new("/")).await.expect("sync");
    recover_journals(disk, dir(), |_, _| {}).await.expect("journals");
    Store::open(disk.clone(), dir(), 0, options).await.expect("store")
}

/// The time of a simulation, milliseconds.
pub fn now_ms(handle: &SimHandle) -> u64 {
    handle.now().as_millis() as u64
}

/// Syncs what is due of classes without a sync until the store goes offline.
pub async fn sync_loop<D: Disk>(handle: SimHandle, store: Rc<Store<D>>) {
    while let Ok(next) = store.sync_due(now_ms(&handle)).await {
        let left = next.map(|at| Duration::from_millis(at.saturating_sub(now_ms(&handle)).max(1)));
        match left {
            None => store.sync_schedule_moved().await,
            Some(left) => or(store.sync_schedule_moved(), handle.sleep(left)).await,
        }
    }
}

/// Copies a log that moves until little is left.
pub async fn copy_all(moving: &mut LogMove<SimDisk>, handle: &SimHandle, now_ms: i64) {
    loop {
        match moving.copy_some(now_ms).await.expect("copy") {
            CopyStep::CaughtUp => return,
            CopyStep::More => {}
            CopyStep::Later => handle.sleep(Duration::from_millis(5)).await,
        }
    }
}
