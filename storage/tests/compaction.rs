//! Compaction of whole logs on the simulated disk. Random histories (keys, tombstones, codecs, idempotent producers,
//! transactions) are compacted and compared with a naive model (CP-3…6); a pass is stopped at every mutation it makes, by power
//! loss and by kill -9, and what is found afterwards is the old segments or the new ones (CP-7); readers go on meanwhile.
//! A swap that leaves a step out must be found out, else the checks see nothing.

mod common;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::crashes::{End, for_each_seed, seeds, too_long};
use common::pace::SimPace;
use common::{commit_loop, copy_all, dir, housekeeping_loop, log_id};
use futures_lite::future::{or, zip};
use protocol::compression::{Codec, CodecContexts};
use protocol::record::{
    BatchBuilder, BatchOptions, BatchView, ControlRecord, NewRecord, RecordStream, TransactionEnd,
};
use storage::compaction::SwapStep;
use storage::compaction::offset_map::MapKey;
use storage::compaction::run::{CleanerLimits, Looked};
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, TraceEntry, TracePhase};
use storage::disk::{Disk, DiskFile, OpenMode};
use storage::journal::JournalOptions;
use storage::layout::{CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_FILE, FileName};
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::batch::BatchHeader;
use storage::log::config::{CompactionConfig, LogConfig};
use storage::moving::LogMove;
use storage::producer_state::AppendOrigin;
use storage::recovery::recover_journals;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{ReadAheadLimits, ReadOutcome, Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const NEVER_MS: i64 = 1 << 40;

/// Producers 1 to 3 are idempotent, 11 to 13 transactional.
const PLAIN: i64 = -1;

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 32 << 10,
        write_behind_bytes: 4 << 10,
        journal: JournalOptions {
            file_bytes: 64 << 10,
            files_max: 3,
        },
        read_ahead: ReadAheadLimits {
            bytes_max: 1 << 20,
            reader_bytes_max: 256 << 10,
        },
        ..StoreOptions::default()
    }
}

fn config(delete_retention_ms: i64) -> LogConfig {
    LogConfig {
        segment_bytes: 6000,
        index_interval_bytes: 300,
        compaction: CompactionConfig {
            enabled: true,
            min_dirty_ppm: 0,
            delete_retention_ms,
            ..CompactionConfig::default()
        },
        ..LogConfig::default()
    }
}

fn limits() -> CleanerLimits {
    CleanerLimits {
        map_bytes: 1 << 20,
        map_load: 0.9,
        io_bytes: 2000,
        bytes_per_second: f64::MAX,
        hash_key: MapKey(3, 5),
    }
}

/// A batch that was sent, with the offsets it got.
#[derive(Clone, Debug)]
struct Sent {
    base: i64,
    producer: i64,
    is_txn: bool,
    /// Commit or abort, of a marker.
    committed: Option<bool>,
    records: Vec<(String, Option<String>)>,
}

impl Sent {
    fn end(&self) -> i64 {
        self.base + self.records.len().max(1) as i64
    }
}

/// A record, as sent or as read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rec {
    offset: i64,
    key: String,
    value: Option<String>,
}

/// The truth: all that was sent, and what is known of its batches.
#[derive(Clone, Debug, Default)]
struct Model {
    sent: Vec<Sent>,
    /// Delete horizons of batches by base offset.
    horizons: BTreeMap<i64, i64>,
    /// Records that are gone.
    gone: BTreeSet<i64>,
    log_start: i64,
}

impl Model {
    fn end(&self) -> i64 {
        self.sent.last().map_or(0, Sent::end)
    }

    /// Base offsets of batches whose transaction was aborted.
    fn aborted(&self) -> BTreeSet<i64> {
        let mut open: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        let mut aborted = BTreeSet::new();
        for batch in &self.sent {
            match batch.committed {
                Some(committed) => {
                    let batches = open.remove(&batch.producer).unwrap_or_default();
                    if !committed {
                        aborted.extend(batches);
                    }
                }
                None if batch.is_txn => open.entry(batch.producer).or_default().push(batch.base),
                None => {}
            }
        }
        aborted
    }

    /// Producers with an open transaction, and where it begins.
    fn open(&self) -> BTreeMap<i64, i64> {
        let mut open = BTreeMap::new();
        for batch in self.sent.iter().filter(|batch| batch.is_txn) {
            match batch.committed {
                Some(_) => drop(open.remove(&batch.producer)),
                None => drop(open.entry(batch.producer).or_insert(batch.base)),
            }
        }
        open
    }

    fn next_sequence(&self, producer: i64) -> i32 {
        let own = self.sent.iter().filter(|batch| batch.producer == producer);
        own.map(|batch| batch.records.len() as i32).sum()
    }

    /// A pass that cleaned everything below `end` at `now_ms`, naively.
    fn clean(&mut self, end: i64, now_ms: i64, retention_ms: i64) {
        let aborted = self.aborted();
        let mut newest: BTreeMap<&str, i64> = BTreeMap::new();
        for batch in self.sent.iter().filter(|batch| !aborted.contains(&batch.base)) {
            for (offset, (key, _)) in (batch.base..).zip(&batch.records) {
                if offset < end {
                    newest.insert(key, offset);
                }
            }
        }
        for batch in self.sent.iter().filter(|batch| batch.base < end) {
            let horizon = self.horizons.get(&batch.base).copied();
            let is_over = horizon.is_some_and(|horizon| horizon <= now_ms);
            let mut has_tombstone = false;
            for (offset, (key, value)) in (batch.base..).zip(&batch.records) {
                let stays = !aborted.contains(&batch.base)
                    && newest.get(key.as_str()) == Some(&offset)
                    && (value.is_some() || !is_over);
                if !stays {
                    self.gone.insert(offset);
                } else if !self.gone.contains(&offset) {
                    has_tombstone |= value.is_none();
                }
            }
            if has_tombstone && horizon.is_none() {
                self.horizons.insert(batch.base, now_ms + retention_ms);
            }
        }
    }

    /// All records ever sent, those that are gone left out if that is asked for.
    fn records(&self, with_gone: bool) -> Vec<Rec> {
        let mut records = Vec::new();
        for batch in &self.sent {
            for (offset, (key, value)) in (batch.base..).zip(&batch.records) {
                if (with_gone || !self.gone.contains(&offset)) && batch.end() > self.log_start {
                    records.push(Rec {
                        offset,
                        key: key.clone(),
                        value: value.clone(),
                    });
                }
            }
        }
        records
    }
}

/// A random batch: records of a few keys, or the end of a transaction.
fn next_batch(model: &Model, rng: &mut SimRng, contexts: &mut CodecContexts) -> (Sent, Bytes, AppendOrigin) {
    let base = model.end();
    let open = model.open();
    let ending = open.keys().find(|_| rng.chance(400_000)).copied();
    if let Some(producer) = ending {
        let committed = rng.chance(600_000);
        let end = TransactionEnd {
            committed,
            coordinator_epoch: 0,
        };
        let sent = Sent {
            base,
            producer,
            is_txn: true,
            committed: Some(committed),
            records: Vec::new(),
        };
        let bytes = end.marker_batch(producer, 0, NOW_MS + base).bytes;
        return (sent, bytes, AppendOrigin::Coordinator);
    }
    let producer = [PLAIN, 1, 2, 3, 11, 12, 13][rng.index(7)];
    let is_txn = producer > 10;
    let codec = Codec::ALL[rng.index(5)];
    let options = BatchOptions {
        codec,
        level: codec.level_default(),
        producer_id: producer,
        producer_epoch: if producer < 0 { -1 } else { 0 },
        base_sequence: if producer < 0 {
            -1
        } else {
            model.next_sequence(producer)
        },
        transactional: is_txn,
        append_time: rng.chance(100_000).then_some(NOW_MS + base),
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options, &mut contexts.compressor);
    let mut records = Vec::new();
    for number in 0..rng.between(1, 6) {
        // Some keys come again and again, some once.
        let key = if rng.chance(200_000) {
            format!("once-{base}-{number}")
        } else {
            format!("k{}", rng.between(0, 25))
        };
        let value = (!rng.chance(150_000)).then(|| {
            let length = rng.between(0, 200) as usize;
            format!("{base}-{number}-{}", "v".repeat(length))
        });
        let record = NewRecord {
            timestamp: NOW_MS + base,
            key: Some(key.as_bytes()),
            value: value.as_ref().map(String::as_bytes),
            headers: &[],
        };
        builder.append(&record).expect("fits");
        records.push((key, value));
    }
    let sent = Sent {
        base,
        producer,
        is_txn,
        committed: None,
        records,
    };
    (sent, builder.finish().expect("fits").bytes, AppendOrigin::Client)
}

fn append_some(
    store: &Store<SimDisk>,
    log: LogRef,
    count: usize,
    model: &mut Model,
    rng: &mut SimRng,
    contexts: &mut CodecContexts,
) {
    for _ in 0..count {
        let (sent, bytes, origin) = next_batch(model, rng, contexts);
        let batch = AppendBatch {
            origin,
            ..AppendBatch::from_client(bytes, LeaderEpoch(0))
        };
        let appended = store.append(log, batch, NOW_MS).expect("append");
        assert_eq!(appended.base_offset.0, sent.base);
        model.sent.push(sent);
    }
}

async fn start(handle: &SimHandle, disk: &SimDisk) -> Rc<Store<SimDisk>> {
    start_in(handle, disk, dir()).await
}

async fn start_in(handle: &SimHandle, disk: &SimDisk, dir: &Path) -> Rc<Store<SimDisk>> {
    disk.create_dir(dir).await.expect("create");
    disk.sync_dir(Path::new("/")).await.expect("sync");
    recover_journals(disk, dir, |_, _| {}).await.expect("journals");
    let store = Store::open(disk.clone(), dir, 0, options()).await.expect("store");
    for _ in 0..2 {
        handle.spawn(commit_loop(Rc::clone(&store), common::Durable::default()));
    }
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    let reading = Rc::clone(&store);
    handle.spawn(async move { while reading.read_ahead().await.is_ok() {} });
    store
}

/// What was appended is durable, below the high watermark, and in its segments.
async fn settle(handle: &SimHandle, store: &Store<SimDisk>, log: LogRef) {
    let end = store.offsets(log).expect("open").log_end;
    store.durable_to(log, end).await.expect("durable");
    store.on_high_watermark(log, end);
    handle.sleep(Duration::from_millis(300)).await;
}

/// Cleans until nothing is due. Returns up to where the log is clean.
async fn clean_all(store: &Store<SimDisk>, pace: &SimPace, limits: &CleanerLimits) -> Option<Offset> {
    let mut cleaned = None;
    for _ in 0..50 {
        match store.clean(pace, limits).await.expect("the store is online") {
            Looked::Nothing => return cleaned,
            Looked::Cleaned(report) => cleaned = Some(report.cleaned_to),
            Looked::Later => pace.handle.sleep(Duration::from_millis(100)).await,
            Looked::GivenUp(error) => panic!("given up: {error}"),
        }
    }
    panic!("it never ends");
}

/// A batch as read.
#[derive(Clone, Debug)]
struct Read {
    header: BatchHeader,
    bytes: Bytes,
    records: Vec<Rec>,
    /// Whether a marker commits.
    committed: Option<bool>,
}

async fn read_from(store: &Store<SimDisk>, log: LogRef, from: Offset, max_bytes: usize) -> Bytes {
    let upper = store.offsets(log).expect("open").log_end;
    let pieces = match store.read(log, from, max_bytes, upper, true) {
        ReadOutcome::Cached(pieces) => pieces,
        ReadOutcome::Cold(cold) => store.read_cold(cold).await.expect("cold read"),
        other => panic!("reading at {from} of {upper}: {other:?}"),
    };
    Bytes::from(pieces.concat())
}

fn decode(bytes: &Bytes) -> Vec<Read> {
    let mut contexts = CodecContexts::default();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let view = BatchView::parse(&bytes[at..], 0).expect("whole batches");
        view.check_crc(0).expect("its CRC");
        let header = BatchHeader::parse(view.bytes()).expect("a batch");
        let mut read = Read {
            header,
            bytes: bytes.slice(at..at + view.bytes().len()),
            records: Vec::new(),
            committed: None,
        };
        let is_control = header.wire.attributes.is_control();
        let mut stream = RecordStream::new(&view, &mut contexts.decompressor, u64::MAX).expect("readable");
        while let Some(record) = stream.next_record().expect("readable") {
            if is_control {
                let control = ControlRecord::parse(&record).expect("a marker");
                read.committed = Some(matches!(control, ControlRecord::TransactionEnd(end) if end.committed));
                continue;
            }
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            let offset = header.base_offset.0 + i64::from(record.offset_delta);
            let timestamp = header.wire.timestamp(record.timestamp_delta);
            assert!(
                (NOW_MS..=offset + NOW_MS).contains(&timestamp),
                "{timestamp} at {offset}"
            );
            read.records.push(Rec {
                offset,
                key: text(record.key.expect("a key")),
                value: record.value.map(text),
            });
        }
        at += view.bytes().len();
        out.push(read);
    }
    out
}

/// The whole log, in order and without a gap that is not accounted for.
async fn read_all(store: &Store<SimDisk>, log: LogRef, max_bytes: usize) -> Vec<Read> {
    let offsets = store.offsets(log).expect("open");
    let mut out: Vec<Read> = Vec::new();
    let mut at = offsets.log_start;
    while at < offsets.log_end {
        let read = decode(&read_from(store, log, at, max_bytes).await);
        let last = read.last().expect("something at every offset").header;
        for batch in read {
            assert!(batch.header.last_offset() >= at, "{:?} at {at}", batch.header);
            let before = out.last().map_or(-1, |before| before.header.last_offset().0);
            assert!(
                batch.header.base_offset.0 > before,
                "{:?} after {before}",
                batch.header
            );
            out.push(batch);
        }
        at = last.last_offset().plus(1);
    }
    out
}

fn records(read: &[Read]) -> Vec<Rec> {
    read.iter().flat_map(|batch| batch.records.clone()).collect()
}

/// What a read_committed client makes of it, as Kafka's does.
fn committed(store: &Store<SimDisk>, log: LogRef, read: &[Read]) -> Vec<i64> {
    let first = read
        .first()
        .map_or(Offset::ZERO, |batch| batch.header.base_offset);
    let end = store.offsets(log).expect("open").log_end;
    let mut aborted = store.aborted_transactions(log, first, end);
    aborted.sort_by_key(|txn| txn.first_offset);
    let mut aborted = aborted.into_iter().peekable();
    let mut open = BTreeSet::new();
    let mut out = Vec::new();
    for batch in read {
        let producer = batch.header.wire.producer_id;
        while let Some(txn) = aborted.next_if(|txn| txn.first_offset <= batch.header.last_offset()) {
            open.insert(txn.producer_id.0);
        }
        if batch.header.wire.attributes.is_control() {
            if batch.committed == Some(false) {
                open.remove(&producer);
            }
        } else if !(batch.header.wire.attributes.is_transactional() && open.contains(&producer)) {
            out.extend(batch.records.iter().map(|record| record.offset));
        }
    }
    out
}

/// Says briefly how two lists of records differ.
fn same(found: &[Rec], expected: &[Rec]) {
    let only = |these: &[Rec], those: &[Rec]| -> Vec<(i64, String)> {
        let others = these.iter().filter(|one| !those.contains(one));
        others.map(|one| (one.offset, one.key.clone())).collect()
    };
    let (more, less) = (only(found, expected), only(expected, found));
    assert!(
        more.is_empty() && less.is_empty(),
        "too much: {more:?}, missing: {less:?}"
    );
    assert!(
        found.windows(2).all(|pair| pair[0].offset < pair[1].offset),
        "order"
    );
}

/// BR-015, BR-056, CP-9: at every offset, however little is asked for, the batch that covers or follows it, and it is the one that
/// who came from the beginning has seen.
async fn same_from_everywhere(store: &Store<SimDisk>, log: LogRef, read: &[Read]) {
    let offsets = store.offsets(log).expect("open");
    let mut expected = read.iter().peekable();
    for at in offsets.log_start.0..offsets.log_end.0 {
        while expected
            .next_if(|batch| batch.header.last_offset().0 < at)
            .is_some()
        {}
        let some = decode(&read_from(store, log, Offset(at), [1, 4000][at as usize % 2]).await);
        let first = some.first().unwrap_or_else(|| panic!("nothing at {at}"));
        let expected = expected.peek().expect("the log ends with a batch");
        assert_eq!(first.header, expected.header, "at {at}");
        assert!(first.bytes == expected.bytes, "other bytes at {at}");
    }
}

/// Of the records that were read, a read_committed client sees those that were not aborted.
fn check_committed(store: &Store<SimDisk>, log: LogRef, model: &Model, read: &[Read]) {
    let found: Vec<Rec> = records(read);
    let aborted = model.aborted();
    let is_aborted = |offset: i64| {
        let before = model.sent.partition_point(|batch| batch.base <= offset);
        aborted.contains(&model.sent[before - 1].base)
    };
    let open_from = model.open().into_values().min().unwrap_or(i64::MAX);
    let visible: Vec<i64> = committed(store, log, read)
        .into_iter()
        .filter(|offset| *offset < open_from)
        .collect();
    let expected: Vec<i64> = found
        .iter()
        .map(|record| record.offset)
        .filter(|offset| *offset < open_from && !is_aborted(*offset))
        .collect();
    assert_eq!(visible, expected, "read_committed");
}

/// Everything that must hold of a compacted log.
async fn check(store: &Store<SimDisk>, log: LogRef, model: &Model, rng: &mut SimRng) {
    let read = read_all(store, log, rng.between(200, 20_000) as usize).await;
    let found: Vec<Rec> = records(&read);
    same(&found, &model.records(false));
    check_committed(store, log, model, &read);
    same_from_everywhere(store, log, &read).await;
    // CP-5: whoever has a batch of a transaction left has its marker.
    for batch in read.iter().filter(|batch| {
        batch.header.wire.attributes.is_transactional() && !batch.header.wire.attributes.is_control()
    }) {
        let producer = batch.header.wire.producer_id;
        let sent = |sent: &&Sent| sent.producer == producer && sent.committed.is_some();
        let ended = model
            .sent
            .iter()
            .filter(sent)
            .find(|end| end.base > batch.header.base_offset.0);
        if let Some(end) = ended {
            let marker = read.iter().find(|other| other.header.base_offset.0 == end.base);
            let marker = marker.unwrap_or_else(|| panic!("no marker at {}", end.base));
            assert_eq!(marker.committed, end.committed);
        }
    }
    // The headers that stay are those of their batches.
    for batch in &read {
        let sent = model
            .sent
            .iter()
            .find(|sent| sent.base == batch.header.base_offset.0);
        let sent = sent.unwrap_or_else(|| panic!("a batch at {:?}", batch.header));
        assert_eq!(batch.header.last_offset().0, sent.end() - 1);
        assert_eq!(batch.header.wire.producer_id, sent.producer);
        assert_eq!(batch.header.leader_epoch, LeaderEpoch(0));
    }
}

/// Names of a kind in the log's directory.
fn names(disk: &SimDisk, ending: &str) -> Vec<String> {
    let paths = disk
        .paths()
        .into_iter()
        .filter(|path| path.starts_with("/data/t-0"));
    let names = paths.filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    names.filter(|name| name.ends_with(ending)).collect()
}

/// On the disk no two segments of the log have an offset in common: of two, readers would get now the one, now the other.
fn no_segments_overlap(disk: &SimDisk) {
    let mut files: Vec<PathBuf> = disk.paths();
    files
        .retain(|path| path.starts_with("/data/t-0") && path.extension().is_some_and(|found| found == "log"));
    files.sort();
    let mut end = (Offset::ZERO, PathBuf::new());
    for path in files {
        let bytes = disk.contents(&path).expect("a file");
        let mut at = 0;
        while let Some(header) = bytes.get(at..).and_then(BatchHeader::parse) {
            assert!(
                header.base_offset >= end.0,
                "{} and {} overlap",
                end.1.display(),
                path.display()
            );
            end = (header.last_offset().plus(1), path.clone());
            at += header.size as usize;
        }
    }
}

/// CP-3…7, CP-9.
#[test]
fn a_compacted_log_is_what_the_naive_model_says() {
    for seed in seeds(40) {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let work = async {
            let mut rng = SimRng::new(seed, "history");
            let mut contexts = CodecContexts::default();
            let mut model = Model::default();
            let pace = SimPace::new(&handle);
            let mut store = start(&handle, &disk).await;
            let mut log = store
                .open_log(log_id(0), "t", config(1000), NOW_MS)
                .await
                .expect("log");
            for _ in 0..4 {
                append_some(&store, log, 60, &mut model, &mut rng, &mut contexts);
                settle(&handle, &store, log).await;
                let segments = store.size(log).expect("open").segments;
                if let Some(end) = clean_all(&store, &pace, &limits()).await {
                    model.clean(end.0, pace.wall_ms.get(), 1000);
                }
                assert!(store.size(log).expect("open").segments <= segments);
                check(&store, log, &model, &mut rng).await;
                pace.wall_ms
                    .set(pace.wall_ms.get() + [0, 500, 1000, 5000][rng.index(4)]);
                if rng.chance(300_000) {
                    store.close().await.expect("clean stop");
                    store = start(&handle, &disk).await;
                    log = store
                        .open_log(log_id(0), "t", config(1000), NOW_MS)
                        .await
                        .expect("log");
                    check(&store, log, &model, &mut rng).await;
                }
            }
            assert!(!model.gone.is_empty());
            assert_eq!(names(&disk, ".cleaned"), Vec::<String>::new());
            assert_eq!(names(&disk, ".swap"), Vec::<String>::new());
        };
        executor.block_on(or(work, too_long(executor.handle())));
    }
}

/// BR-106, CP-6: the log alone tells each producer's last sequence.
#[test]
fn producers_survive_in_the_compacted_log_alone() {
    for seed in seeds(20) {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let work = async {
            let mut rng = SimRng::new(seed, "history");
            let mut contexts = CodecContexts::default();
            let mut model = Model::default();
            let pace = SimPace::new(&handle);
            let store = start(&handle, &disk).await;
            let log = store
                .open_log(log_id(0), "t", config(NEVER_MS), NOW_MS)
                .await
                .expect("log");
            append_some(&store, log, 150, &mut model, &mut rng, &mut contexts);
            settle(&handle, &store, log).await;
            clean_all(&store, &pace, &limits()).await;
            let producers = |store: &Store<SimDisk>, log| {
                let all = store.producers(log).into_iter();
                let mut all: Vec<_> = all
                    .map(|one| (one.producer_id, one.last_sequence, one.transaction_start))
                    .collect();
                all.sort_unstable();
                all
            };
            let before = producers(&store, log);
            let empty = read_all(&store, log, 10_000).await;
            let empty = empty.iter().filter(|batch| batch.header.is_empty()).count();
            assert!(
                empty <= before.len() + store.size(log).expect("open").segments,
                "{empty} empty batches"
            );
            store.close().await.expect("clean stop");
            // As a directory of somebody who keeps nothing but segments.
            for path in disk.paths() {
                let name = path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned();
                if FileName::snapshot_offset(&name).is_some() {
                    disk.remove_file(&path).await.expect("remove");
                }
            }
            disk.remove_dir_all(&dir().join(".penstock"))
                .await
                .expect("remove");
            let mark = disk
                .open(&dir().join(CLEAN_SHUTDOWN_FILE), OpenMode::CreateNew)
                .await;
            mark.expect("create").close().await.expect("close");
            let store = start(&handle, &disk).await;
            let log = store
                .open_log(log_id(0), "t", config(NEVER_MS), NOW_MS)
                .await
                .expect("log");
            assert_eq!(producers(&store, log), before);
        };
        executor.block_on(or(work, too_long(executor.handle())));
    }
}

/// One life of the crash runs: look at what is there, append, clean, and that once more: the second pass merges segments. `armed` stops the disk in that round, after so many mutations from the beginning of its pass.
async fn life(
    handle: SimHandle,
    disk: SimDisk,
    shared: Rc<std::cell::RefCell<Model>>,
    durable: Rc<Cell<i64>>,
    mut rng: SimRng,
    armed: Option<(usize, u64)>,
    bug: Option<SwapStep>,
) {
    let store = start(&handle, &disk).await;
    store.leave_out_of_swaps(bug);
    let log = store
        .open_log(log_id(0), "t", config(NEVER_MS), NOW_MS)
        .await
        .expect("log");
    let mut model = shared.borrow().clone();
    recovered(&store, log, &mut model, durable.get()).await;
    no_segments_overlap(&disk);
    let pace = SimPace::new(&handle);
    let mut contexts = CodecContexts::default();
    for round in 0..2 {
        append_some(&store, log, [70, 20][round], &mut model, &mut rng, &mut contexts);
        *shared.borrow_mut() = model.clone();
        settle(&handle, &store, log).await;
        durable.set(model.end());
        if let Some((_, count)) = armed.filter(|(armed, _)| *armed == round) {
            disk.crash_after(disk.mutations() + count);
        }
        if round == 1 {
            // The second pass makes one segment of several.
            let larger = LogConfig {
                segment_bytes: 20_000,
                ..config(NEVER_MS)
            };
            store.set_config(log, larger);
        }
        let cleaned = clean_all(&store, &pace, &limits()).await;
        model.clean(cleaned.map_or(0, |end| end.0), NOW_MS, NEVER_MS);
        check(&store, log, &model, &mut rng).await;
        no_segments_overlap(&disk);
        *shared.borrow_mut() = model.clone();
    }
    store.close().await.expect("clean stop");
}

/// What a crash may leave: nothing durable is lost but what a pass removes, nothing is there that was not sent, and up to some
/// place the log is as the pass makes it and from there on as it was.
async fn recovered(store: &Store<SimDisk>, log: LogRef, model: &mut Model, durable: i64) {
    let end = store.offsets(log).expect("open").log_end.0;
    assert!(end >= durable, "recovered up to {end}, durable up to {durable}");
    model.sent.retain(|batch| batch.base < end);
    model.gone.retain(|offset| *offset < end);
    assert_eq!(model.end(), end);
    let read = read_all(store, log, 20_000).await;
    same_from_everywhere(store, log, &read).await;
    check_committed(store, log, model, &read);
    let found = records(&read);
    let before = model.records(false);
    // Which place a pass had got to is not known: any batch may be the first that it had not reached, and what it removes
    // depends on how far it looked.
    let is_consistent = model
        .sent
        .iter()
        .map(|batch| batch.base)
        .chain([end])
        .any(|looked_to| {
            let mut after = model.clone();
            after.clean(looked_to, NOW_MS, NEVER_MS);
            let after = after.records(false);
            let below = |records: &[Rec], to: i64| {
                records
                    .iter()
                    .filter(|r| r.offset < to)
                    .cloned()
                    .collect::<Vec<_>>()
            };
            let first_old = found
                .iter()
                .zip(&after)
                .take_while(|(found, after)| found == after)
                .count();
            let reached = found.get(first_old).map_or(end, |record| record.offset);
            // Up to the first difference as after, from there on as before: the place lies at or before that difference.
            let split = model
                .sent
                .iter()
                .map(|batch| batch.base)
                .filter(|base| *base <= reached);
            split.chain([0, end]).any(|split| {
                let mut expected = below(&after, split);
                expected.extend(before.iter().filter(|record| record.offset >= split).cloned());
                expected == found
            })
        });
    assert!(is_consistent, "neither old nor new");
    model.gone = {
        let there: BTreeSet<i64> = found.iter().map(|record| record.offset).collect();
        model
            .records(true)
            .iter()
            .map(|record| record.offset)
            .filter(|offset| !there.contains(offset))
            .collect()
    };
}

/// Runs lives that crash in the given rounds and mutations of their passes, then one that must go through. Returns whether all
/// crashed there.
fn run(seed: u64, crashes: &[(usize, u64, End)], bug: Option<SwapStep>) -> bool {
    let model = Rc::new(std::cell::RefCell::new(Model::default()));
    let durable = Rc::new(Cell::new(0));
    let mut executor = SimExecutor::new(seed);
    let mut disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
    let mut all_crashed = true;
    for (index, (round, at, end)) in crashes.iter().enumerate() {
        let rng = SimRng::new(seed + index as u64, "workload");
        let work = life(
            executor.handle(),
            disk.clone(),
            Rc::clone(&model),
            Rc::clone(&durable),
            rng,
            Some((*round, *at)),
            bug,
        );
        executor.block_on(or(or(work, disk.crashed()), too_long(executor.handle())));
        all_crashed &= disk.is_crashed();
        drop(executor);
        executor = SimExecutor::new(seed * 1000 + index as u64);
        disk = end.restart(&disk, &executor.handle());
    }
    let rng = SimRng::new(seed + 500, "workload");
    let work = life(executor.handle(), disk.clone(), model, durable, rng, None, bug);
    executor.block_on(or(work, too_long(executor.handle())));
    all_crashed
}

/// CP-7.
#[test]
fn a_crash_at_every_mutation_of_a_pass_leaves_the_old_segments_or_the_new() {
    let mut points = 0;
    // Of some seeds an open transaction leaves a pass little to do.
    for seed in 1..11 {
        let end = if seed % 3 == 0 { End::Kill } else { End::PowerLoss };
        for round in 0..2 {
            let crashed = (1..2000).take_while(|at| run(seed, &[(round, *at, end)], None));
            points += crashed.count();
        }
    }
    assert!(points > 300, "{points}");
}

#[test]
fn crashes_of_passes_one_after_the_other_lose_nothing() {
    // PENSTOCK_CRASH_SEEDS=3000 looks longer than CI does.
    for_each_seed(seeds(80), |seed| {
        let mut rng = SimRng::new(seed, "crashes");
        let crashes: Vec<_> = (0..3)
            .map(|_| {
                let end = if rng.chance(300_000) {
                    End::Kill
                } else {
                    End::PowerLoss
                };
                (rng.index(2), rng.between(1, 200), end)
            })
            .collect();
        run(seed, &crashes, None);
    });
}

/// Whether a swap without this step is found out within a few hundred crashes.
fn is_missed(step: SwapStep) -> bool {
    (1..9).any(|seed| {
        (2..400).any(|number| {
            let crashes = [(number % 2, number as u64 / 2, End::PowerLoss)];
            catch_unwind(AssertUnwindSafe(|| run(seed, &crashes, Some(step)))).is_err()
        })
    })
}

#[test]
fn a_swap_that_does_not_sync_the_new_segment_is_found_out() {
    assert!(is_missed(SwapStep::SyncNew));
}

#[test]
fn a_swap_that_leaves_old_segments_is_found_out() {
    assert!(is_missed(SwapStep::RemoveOld));
}

/// All records of the log, also those that will be sent: they are drawn the same way again.
fn all_to_come(model: &Model, seed: u64, contexts: &mut CodecContexts) -> BTreeMap<i64, Rec> {
    let mut preview = model.clone();
    let mut rng = SimRng::new(seed, "later");
    for _ in 0..200 {
        preview.sent.push(next_batch(&preview, &mut rng, contexts).0);
    }
    let records = preview.records(true).into_iter();
    records.map(|record| (record.offset, record)).collect()
}

/// Readers, sequential and jumping, see what the log holds before or after, while it is compacted again and again.
#[test]
fn readers_go_on_while_segments_are_swapped() {
    for seed in seeds(8) {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let work = async {
            let mut rng = SimRng::new(seed, "history");
            let mut contexts = CodecContexts::default();
            let mut model = Model::default();
            let pace = SimPace::new(&handle);
            let store = start(&handle, &disk).await;
            let log = store
                .open_log(log_id(0), "t", config(NEVER_MS), NOW_MS)
                .await
                .expect("log");
            append_some(&store, log, 100, &mut model, &mut rng, &mut contexts);
            settle(&handle, &store, log).await;
            let is_over = Rc::new(Cell::new(false));
            let all = Rc::new(all_to_come(&model, seed, &mut contexts));
            let readers: Vec<_> = (0..4u64)
                .map(|number| {
                    let (store, is_over, all) = (Rc::clone(&store), Rc::clone(&is_over), Rc::clone(&all));
                    let mut rng = SimRng::new(seed + number, "reader");
                    let handle = handle.clone();
                    let pause = handle.clone();
                    handle.spawn(async move {
                        let mut at = 0;
                        let mut reads = 0;
                        while !is_over.get() {
                            let end = store.offsets(log).expect("open").log_end.0;
                            if at >= end || rng.chance(60_000) {
                                at = rng.between(0, end as u64 - 1) as i64;
                            }
                            let max_bytes = rng.between(1, 9000) as usize;
                            let read = decode(&read_from(&store, log, Offset(at), max_bytes).await);
                            assert!(
                                read[0].header.last_offset().0 >= at,
                                "{:?} at {at}",
                                read[0].header
                            );
                            for record in records(&read) {
                                assert_eq!(Some(&record), all.get(&record.offset));
                            }
                            at = read.last().map_or(at, |batch| batch.header.last_offset().0 + 1);
                            reads += 1;
                            pause.sleep(Duration::from_micros(rng.between(1, 300))).await;
                        }
                        reads
                    })
                })
                .collect();
            let mut rng = SimRng::new(seed, "later");
            for _ in 0..8 {
                append_some(&store, log, 25, &mut model, &mut rng, &mut contexts);
                settle(&handle, &store, log).await;
                if let Some(end) = clean_all(&store, &pace, &limits()).await {
                    model.clean(end.0, NOW_MS, NEVER_MS);
                }
            }
            is_over.set(true);
            for reader in readers {
                assert!(reader.await > 100);
            }
            check(&store, log, &model, &mut rng).await;
            assert_eq!(disk.abandoned_operations(), 0);
        };
        executor.block_on(or(work, too_long(executor.handle())));
    }
}

/// A log moves to another directory while passes go over it, also while it is being brought to rest: of each segment one form or
/// the other arrives, and up to where it is clean is known there.
#[test]
fn a_log_moves_while_it_is_compacted() {
    for seed in seeds(12) {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let work = async {
            let mut rng = SimRng::new(seed, "history");
            let mut contexts = CodecContexts::default();
            let mut model = Model::default();
            let pace = SimPace::new(&handle);
            let stores = [
                start_in(&handle, &disk, dir()).await,
                start_in(&handle, &disk, Path::new("/other")).await,
            ];
            let opened = stores[0].open_log(log_id(0), "t", config(NEVER_MS), NOW_MS).await;
            let mut log = opened.expect("log");
            for round in 0..6 {
                let (here, there) = (&stores[round % 2], &stores[1 - round % 2]);
                append_some(here, log, 60, &mut model, &mut rng, &mut contexts);
                settle(&handle, here, log).await;
                let begun = LogMove::begin(here, log, there, round as u128).await;
                let mut moving = begun.expect("begin");
                let is_late = rng.chance(500_000);
                if is_late {
                    copy_all(&mut moving, &handle, NOW_MS).await;
                    let limits = limits();
                    let (settled, cleaned) = zip(moving.settle(), here.clean(&pace, &limits)).await;
                    settled.expect("settle");
                    if let Looked::Cleaned(report) = cleaned.expect("the store is online") {
                        model.clean(report.cleaned_to.0, NOW_MS, NEVER_MS);
                    }
                } else {
                    let limits = limits();
                    let copied = copy_all(&mut moving, &handle, NOW_MS);
                    let ((), cleaned) = zip(copied, clean_all(here, &pace, &limits)).await;
                    if let Some(end) = cleaned {
                        model.clean(end.0, NOW_MS, NEVER_MS);
                    }
                    copy_all(&mut moving, &handle, NOW_MS).await;
                    moving.settle().await.expect("settle");
                }
                log = moving.commit(NOW_MS).await.map_err(|(f, _)| f).expect("commit");
                there.on_high_watermark(log, there.offsets(log).expect("open").log_end);
                let cleaned = clean_all(there, &pace, &limits()).await;
                assert!(
                    is_late || cleaned.is_none(),
                    "where it is clean is not known any more"
                );
                if let Some(end) = cleaned {
                    model.clean(end.0, NOW_MS, NEVER_MS); // what an interrupted pass had done is done again, the same
                }
                check(there, log, &model, &mut rng).await;
            }
        };
        executor.block_on(or(work, too_long(executor.handle())));
    }
}

/// DeleteRecords and retention take segments away that a pass is about to open: it ends, and the log is compacted later.
#[test]
fn the_log_start_may_move_while_a_pass_goes_over_the_log() {
    let mut interrupted = 0;
    for seed in seeds(20) {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let work = async {
            let mut rng = SimRng::new(seed, "history");
            let mut model = Model::default();
            let pace = SimPace::new(&handle);
            let config = LogConfig {
                file_delete_delay_ms: 0,
                ..config(NEVER_MS)
            };
            let store = start(&handle, &disk).await;
            let opened = store.open_log(log_id(0), "t", config.clone(), NOW_MS).await;
            let log = opened.expect("log");
            append_some(
                &store,
                log,
                150,
                &mut model,
                &mut rng,
                &mut CodecContexts::default(),
            );
            settle(&handle, &store, log).await;
            store.close().await.expect("a clean stop");
            // No segment is open yet.
            let store = start(&handle, &disk).await;
            let opened = store.open_log(log_id(0), "t", config, NOW_MS).await;
            let log = opened.expect("log");
            settle(&handle, &store, log).await;
            let slow = CleanerLimits {
                bytes_per_second: 20_000.0,
                ..limits()
            };
            let deleting = async {
                handle.sleep(Duration::from_millis(rng.between(1, 3000))).await;
                let end = store.offsets(log).expect("open").log_end.0;
                let start = Offset(rng.between(1, end as u64) as i64);
                store.delete_records(log, start).await.expect("a new start");
            };
            let (first, ()) = zip(store.clean(&pace, &slow), deleting).await;
            match first.expect("the store is online") {
                Looked::GivenUp(error) => panic!("given up: {error}"),
                Looked::Later => interrupted += 1,
                _ => {}
            }
            clean_all(&store, &pace, &limits()).await;
            read_all(&store, log, 9000).await;
        };
        executor.block_on(or(work, too_long(executor.handle())));
    }
    assert!(interrupted > 0, "no pass was interrupted");
}

/// CP-8: a damaged log is left alone, counted, and the others are cleaned.
#[test]
fn a_damaged_segment_stops_its_own_log_and_not_the_cleaner() {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    let work = async {
        let mut rng = SimRng::new(1, "history");
        let mut contexts = CodecContexts::default();
        let pace = SimPace::new(&handle);
        let store = start(&handle, &disk).await;
        let mut logs = Vec::new();
        for number in 0..3u8 {
            let log = store
                .open_log(log_id(number), &format!("t{number}"), config(NEVER_MS), NOW_MS)
                .await
                .expect("log");
            let mut model = Model::default();
            append_some(&store, log, 60, &mut model, &mut rng, &mut contexts);
            settle(&handle, &store, log).await;
            logs.push((log, model));
        }
        let victim = PathBuf::from("/data/t1-0/00000000000000000000.log");
        assert!(disk.flip_bits(&victim, 700, 0x10).expect("a file"));
        let (mut cleaned, mut given_up) = (Vec::new(), 0);
        loop {
            match store.clean(&pace, &limits()).await.expect("online") {
                Looked::Nothing => break,
                Looked::Later => pace.handle.sleep(Duration::from_millis(100)).await,
                Looked::Cleaned(report) => cleaned.push(report.log),
                Looked::GivenUp(error) => {
                    given_up += 1;
                    assert!(error.to_string().contains("t1-0"), "{error}");
                }
            }
        }
        cleaned.sort();
        cleaned.dedup();
        assert_eq!(
            (cleaned, given_up),
            (vec!["t0-0".to_owned(), "t2-0".to_owned()], 1)
        );
        let stats = store.stats().cleaner;
        assert_eq!(stats.uncleanable_logs, 1);
        assert_eq!(
            stats.uncleanable_bytes,
            store.size(logs[1].0).expect("open").bytes
        );
        assert!(store.offline_reason().is_none());
        assert!(names(&disk, ".cleaned").is_empty());
    };
    executor.block_on(or(work, too_long(executor.handle())));
}

/// A checkpoint is written for the whole directory.
#[test]
fn one_checkpoint_serves_all_logs_that_wait_for_it() {
    const LOGS: u8 = 12;
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    let work = async {
        let mut rng = SimRng::new(1, "history");
        let mut contexts = CodecContexts::default();
        let pace = SimPace::new(&handle);
        let store = start(&handle, &disk).await;
        for number in 0..LOGS {
            let log = store
                .open_log(log_id(number), &format!("t{number}"), config(NEVER_MS), NOW_MS)
                .await
                .expect("log");
            append_some(&store, log, 60, &mut Model::default(), &mut rng, &mut contexts);
            settle(&handle, &store, log).await;
        }
        disk.record_trace();
        let mut cleaned = BTreeSet::new();
        loop {
            match store.clean(&pace, &limits()).await.expect("online") {
                Looked::Cleaned(report) => drop(cleaned.insert(report.log)),
                Looked::Nothing => break,
                Looked::Later => pace.handle.sleep(Duration::from_millis(100)).await,
                Looked::GivenUp(error) => panic!("{error}"),
            }
        }
        assert_eq!(cleaned.len(), usize::from(LOGS));
        let trace = disk.take_trace();
        let is_checkpoint =
            |entry: &&TraceEntry| entry.op == DiskOp::SyncFilesystem && entry.phase == TracePhase::Done;
        let checkpoints = trace.iter().filter(is_checkpoint).count();
        assert!(checkpoints <= 2, "{checkpoints} checkpoints for {LOGS} logs");
    };
    executor.block_on(or(work, too_long(executor.handle())));
}

/// The map holds few keys: a pass cleans a part, the next ones go on from there, to the same end.
#[test]
fn a_map_that_is_too_small_takes_more_passes() {
    for seed in seeds(10) {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let work = async {
            let mut rng = SimRng::new(seed, "history");
            let mut contexts = CodecContexts::default();
            let mut model = Model::default();
            let pace = SimPace::new(&handle);
            let store = start(&handle, &disk).await;
            let log = store
                .open_log(log_id(0), "t", config(NEVER_MS), NOW_MS)
                .await
                .expect("log");
            append_some(&store, log, 150, &mut model, &mut rng, &mut contexts);
            settle(&handle, &store, log).await;
            let small = CleanerLimits {
                map_bytes: 30 * 24,
                ..limits()
            };
            let end = clean_all(&store, &pace, &small).await.expect("it was dirty");
            assert!(store.stats().cleaner.passes > 2);
            model.clean(end.0, NOW_MS, NEVER_MS);
            check(&store, log, &model, &mut rng).await;
        };
        executor.block_on(or(work, too_long(executor.handle())));
    }
}

/// How far a log is clean survives a stop in Kafka's own file, and does not outlive the topic.
#[test]
fn the_place_where_a_log_is_clean_is_kept_and_forgotten_with_it() {
    let executor = SimExecutor::new(5);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(5));
    let work = async {
        let mut rng = SimRng::new(5, "history");
        let mut contexts = CodecContexts::default();
        let pace = SimPace::new(&handle);
        let mut store = start(&handle, &disk).await;
        let open = async |store: &Rc<Store<SimDisk>>, number| {
            store
                .open_log(log_id(number), "t", config(NEVER_MS), NOW_MS)
                .await
                .expect("log")
        };
        let mut log = open(&store, 0).await;
        let mut model = Model::default();
        append_some(&store, log, 80, &mut model, &mut rng, &mut contexts);
        settle(&handle, &store, log).await;
        let end = clean_all(&store, &pace, &limits()).await.expect("it was dirty");
        store.close().await.expect("clean stop");
        store = start(&handle, &disk).await;
        let text = disk.contents(dir().join(CLEANER_OFFSET_FILE)).expect("a file");
        assert_eq!(String::from_utf8_lossy(&text), format!("0\n1\nt 0 {end}\n"));
        log = open(&store, 0).await;
        settle(&handle, &store, log).await;
        assert!(
            matches!(store.clean(&pace, &limits()).await, Ok(Looked::Nothing)),
            "it is clean"
        );
        store.delete_log(log).await.expect("delete");
        // A new topic of that name, longer than the old one was clean.
        log = open(&store, 7).await;
        let mut model = Model::default();
        append_some(&store, log, 160, &mut model, &mut rng, &mut contexts);
        settle(&handle, &store, log).await;
        store.close().await.expect("clean stop");
        store = start(&handle, &disk).await;
        log = open(&store, 7).await;
        let end = clean_all(&store, &pace, &limits())
            .await
            .expect("all of it is dirty");
        model.clean(end.0, NOW_MS, NEVER_MS);
        check(&store, log, &model, &mut rng).await;
    };
    executor.block_on(or(work, too_long(executor.handle())));
}

/// `log.cleaner.io.max.bytes.per.second`.
#[test]
fn a_pass_keeps_to_its_rate() {
    let executor = SimExecutor::new(6);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(6));
    let work = async {
        let mut rng = SimRng::new(6, "history");
        let mut contexts = CodecContexts::default();
        let pace = SimPace::new(&handle);
        let store = start(&handle, &disk).await;
        let log = store
            .open_log(log_id(0), "t", config(NEVER_MS), NOW_MS)
            .await
            .expect("log");
        let mut model = Model::default();
        append_some(&store, log, 120, &mut model, &mut rng, &mut contexts);
        settle(&handle, &store, log).await;
        let slow = CleanerLimits {
            bytes_per_second: 20_000.0,
            ..limits()
        };
        let began = handle.now();
        clean_all(&store, &pace, &slow).await.expect("it was dirty");
        let took = (handle.now() - began).as_secs_f64();
        let stats = store.stats().cleaner;
        let bytes = (stats.read_bytes + stats.written_bytes) as f64;
        assert!(bytes > 40_000.0, "{bytes}");
        assert!(took > (bytes - 12_000.0) / 20_000.0, "{bytes} bytes in {took} s");
        assert!(took < bytes / 20_000.0 + 2.0, "{bytes} bytes in {took} s");
    };
    executor.block_on(or(work, too_long(executor.handle())));
}

/// CP-1: neither the active segment nor what is above the high watermark nor an open transaction is touched.
#[test]
fn nothing_above_the_stable_offset_is_cleaned() {
    let executor = SimExecutor::new(7);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(7));
    let work = async {
        let mut rng = SimRng::new(7, "history");
        let mut contexts = CodecContexts::default();
        let pace = SimPace::new(&handle);
        let store = start(&handle, &disk).await;
        let log = store
            .open_log(log_id(0), "t", config(NEVER_MS), NOW_MS)
            .await
            .expect("log");
        let mut model = Model::default();
        append_some(&store, log, 120, &mut model, &mut rng, &mut contexts);
        let end = store.offsets(log).expect("open").log_end;
        store.durable_to(log, end).await.expect("durable");
        handle.sleep(Duration::from_millis(300)).await;
        assert!(
            matches!(store.clean(&pace, &limits()).await, Ok(Looked::Nothing)),
            "high watermark 0"
        );
        store.on_high_watermark(log, Offset(end.0 / 2));
        let cleaned = clean_all(&store, &pace, &limits()).await.expect("it was dirty");
        assert!(cleaned <= Offset(end.0 / 2), "{cleaned}");
        let open = model.open().into_values().min().unwrap_or(i64::MAX);
        assert!(cleaned.0 <= open);
    };
    executor.block_on(or(work, too_long(executor.handle())));
}
