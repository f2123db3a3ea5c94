//! Logs that are compacted while they are written: their batches have keys, a cleaner runs in each store, and after each end
//! every record is there that no newer one of its key replaces and that belongs to no aborted transaction, under its offset, and
//! nothing else (CP-1, CP-3 to CP-7).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use protocol::compression::{Codec, CodecContexts};
use protocol::record::{BatchBuilder, BatchOptions, BatchView, NewRecord, RecordStream};
use storage::compaction::offset_map::MapKey;
use storage::compaction::run::{CleanerLimits, Looked, Pace};
use storage::disk::sim::SimDisk;
use storage::log::config::CompactionConfig;
use storage::sim_executor::SimHandle;
use storage::sim_rng::SimRng;
use storage::store::Store;
use storage::types::Offset;

use super::NOW_MS;
use super::batches::Producer;
use super::check::Found;
use super::model::{LogModel, Role, Sent};

/// Keys of a log's records.
const KEYS: u64 = 16;
/// Bytes of what the log sets itself in a batch, which [`super::batches::content`] leaves out.
const PREFIX_BYTES: usize = 16;
/// Where in a content the producer, its epoch and the sequence are.
const PRODUCER_FIELDS: std::ops::Range<usize> = 27..41;

/// The settings of a log that is compacted as soon as a segment is closed. Tombstones and markers stay: time stands still here.
pub fn config() -> CompactionConfig {
    CompactionConfig {
        enabled: true,
        min_dirty_ppm: 0,
        delete_retention_ms: 1 << 40,
        ..CompactionConfig::default()
    }
}

/// A batch of `records` records with keys that come again, and of about `size` bytes.
pub fn data(records: i32, size: usize, timestamp: i64, producer: Producer, rng: &mut SimRng) -> Bytes {
    let mut contexts = CodecContexts::default();
    let codec = if rng.chance(300_000) {
        Codec::Lz4
    } else {
        Codec::None
    };
    let options = BatchOptions {
        codec,
        level: codec.level_default(),
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        base_sequence: producer.sequence,
        transactional: producer.is_transactional,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options, &mut contexts.compressor);
    for _ in 0..records {
        let key = format!("k{}", rng.between(0, KEYS - 1));
        let value = (!rng.chance(100_000)).then(|| {
            let noise = (0..size / records.max(1) as usize).map(|_| rng.between(0, 255) as u8);
            noise.collect::<Vec<u8>>()
        });
        let record = NewRecord {
            timestamp,
            key: Some(key.as_bytes()),
            value: value.as_deref(),
            headers: &[],
        };
        builder.append(&record).expect("small");
    }
    builder.finish().expect("small").bytes
}

/// A record as it is compared: its offset behind the batch's first, key and value.
type Kept = (i64, Vec<u8>, Option<Vec<u8>>);

fn records(content: &Bytes) -> Vec<Kept> {
    let mut whole = vec![0; PREFIX_BYTES];
    let length = (content.len() + PREFIX_BYTES - 12) as i32;
    whole[8..12].copy_from_slice(&length.to_be_bytes());
    whole.extend_from_slice(content);
    let view = BatchView::parse(&whole, 0).expect("a batch");
    let mut contexts = CodecContexts::default();
    let mut stream =
        RecordStream::new(&view, &mut contexts.decompressor, 1 << 30).expect("records that can be read");
    let mut out = Vec::new();
    while let Some(record) = stream.next_record().expect("a record") {
        let key = record.key.map(<[u8]>::to_vec).unwrap_or_default();
        out.push((
            i64::from(record.offset_delta),
            key,
            record.value.map(<[u8]>::to_vec),
        ));
    }
    out
}

/// What became of the transactions of a log's records: of each batch by its first offset, whether its records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Counts,
    Open,
    Aborted,
}

fn fates(batches: &[Sent]) -> BTreeMap<Offset, Fate> {
    let mut ends: BTreeMap<i64, Fate> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for batch in batches.iter().rev() {
        match batch.role {
            Role::Plain => {
                out.insert(batch.base, Fate::Counts);
            }
            Role::Data {
                id, is_transactional, ..
            } => {
                let end = ends.get(&id).copied().unwrap_or(Fate::Open);
                out.insert(batch.base, if is_transactional { end } else { Fate::Counts });
            }
            Role::Marker { id, is_abort, .. } => {
                let fate = if is_abort { Fate::Aborted } else { Fate::Counts };
                ends.insert(id, fate);
            }
        }
    }
    out
}

/// Holds what was found from `start` on against what was sent, of which nothing lies behind the log's end.
///
/// # Panics
/// On a violation.
pub fn check_batches(model: &LogModel, found: &[Found], start: Offset) {
    let name = model.directory();
    let sent: BTreeMap<Offset, &Sent> = model.batches.iter().map(|batch| (batch.base, batch)).collect();
    let mut present: BTreeSet<i64> = BTreeSet::new();
    let mut before = Offset::NONE;
    for batch in found {
        let base = batch.base;
        assert!(
            base > before,
            "{name}: the batch at {base} after that at {before}"
        );
        before = base;
        let Some(sent) = sent.get(&base) else {
            panic!("{name}: a batch at {base}, where none was sent");
        };
        assert_eq!(
            batch.last, sent.last,
            "{name}: the last offset of the batch at {base}"
        );
        assert_eq!(
            batch.content.get(PRODUCER_FIELDS),
            sent.content.get(PRODUCER_FIELDS),
            "{name}: the producer of the batch at {base}"
        );
        let mut left = records(&sent.content).into_iter();
        for record in records(&batch.content) {
            assert!(
                left.any(|sent| sent == record),
                "{name}: a record at {} that was not sent",
                base.0 + record.0
            );
            present.insert(base.0 + record.0);
        }
    }
    check_missing(model, &present, start);
}

fn check_missing(model: &LogModel, present: &BTreeSet<i64>, start: Offset) {
    let name = model.directory();
    let fates = fates(&model.batches);
    let fate = |batch: &Sent| fates.get(&batch.base).copied();
    let mut newest: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    for batch in model
        .batches
        .iter()
        .filter(|batch| fate(batch) == Some(Fate::Counts))
    {
        for (delta, key, _) in records(&batch.content) {
            newest.insert(key, batch.base.0 + delta);
        }
    }
    for batch in model.batches.iter().filter(|batch| batch.last >= start) {
        if fate(batch) == Some(Fate::Aborted) {
            continue;
        }
        for (delta, key, _) in records(&batch.content) {
            let offset = batch.base.0 + delta;
            let is_marker = fate(batch).is_none();
            let is_replaced = !is_marker && newest.get(&key).is_some_and(|newest| *newest > offset);
            assert!(
                is_replaced || present.contains(&offset),
                "{name}: the record at {offset} is gone, and no newer one has its key"
            );
        }
    }
}

/// Whether any record of an aborted transaction's is left between these offsets.
pub fn has_records_of(found: &[Found], id: i64, first: Offset, last: Offset) -> bool {
    found.iter().any(|batch| {
        let producer = batch.content.get(27..35).and_then(|field| field.try_into().ok());
        batch.base >= first
            && batch.last <= last
            && producer.map(i64::from_be_bytes) == Some(id)
            && !records(&batch.content).is_empty()
    })
}

/// A shard's cleaner, until its store goes offline. A log that it gives up is a violation unless the disk `may_refuse`.
pub async fn clean(handle: SimHandle, store: Rc<Store<SimDisk>>, may_refuse: bool) {
    let limits = CleanerLimits {
        map_bytes: 64 << 10,
        map_load: 0.9,
        io_bytes: 16 << 10,
        bytes_per_second: f64::MAX,
        hash_key: MapKey(3, 5),
    };
    let pace = SimPace(handle);
    loop {
        pace.0.sleep(Duration::from_millis(3)).await;
        match store.clean(&pace, &limits).await {
            Err(_) => return,
            Ok(Looked::GivenUp(error)) => assert!(may_refuse, "a log cannot be compacted: {error}"),
            Ok(_) => {}
        }
    }
}

struct SimPace(SimHandle);

impl Pace for SimPace {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn wall_ms(&self) -> i64 {
        NOW_MS
    }

    async fn sleep_ns(&self, ns: u64) {
        self.0.sleep(Duration::from_nanos(ns)).await;
    }

    async fn breathe(&self) {
        futures_lite::future::yield_now().await;
    }

    async fn aside<R: Send + 'static>(&self, work: impl FnOnce() -> R + Send + 'static) -> R {
        self.breathe().await;
        work()
    }
}
