//! Reads from disk with read-ahead on the simulated disk: several readers of one log, sequential and jumping, get what was
//! written, within the bounds, also while old segments go.

mod common;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::{PLAIN, append, batch, commit_loop, content, housekeeping_loop, log_id, open_store};
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, TraceEntry, TracePhase};
use storage::error::StorageError;
use storage::io_class::{IoClass, IoLimits};
use storage::log::LogRef;
use storage::log::batch::BatchHeader;
use storage::log::config::LogConfig;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{ReadAheadLimits, ReadOutcome, Store, StoreOptions};
use storage::types::Offset;

const NOW_MS: i64 = 1_700_000_000_000;
const BOUND: usize = 5 << 20;

async fn start(handle: &SimHandle, disk: &SimDisk, io: IoLimits) -> Rc<Store<SimDisk>> {
    let options = StoreOptions {
        cache_bytes: 64 << 10,
        open_files_max: 2,
        io,
        read_ahead: ReadAheadLimits {
            bytes_max: BOUND,
            reader_bytes_max: 2 << 20,
        },
        ..StoreOptions::default()
    };
    let store = open_store(disk, options).await;
    handle.spawn(commit_loop(Rc::clone(&store), common::Durable::default()));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    for _ in 0..2 {
        let store = Rc::clone(&store);
        handle.spawn(async move { while store.read_ahead().await.is_ok() {} });
    }
    store
}

async fn fill(handle: &SimHandle, store: &Store<SimDisk>, rng: &mut SimRng) -> (LogRef, Vec<Bytes>) {
    let config = LogConfig {
        segment_bytes: 3_500_000,
        ..LogConfig::default()
    };
    let log = store.open_log(log_id(0), "t", config, NOW_MS).await.expect("log");
    let mut sent = Vec::new();
    for number in 0..900u32 {
        let size = if rng.chance(30_000) {
            rng.between(200_000, 1_500_000)
        } else {
            rng.between(100, 30_000)
        };
        let bytes = batch(1, size as usize, NOW_MS, PLAIN, number as u8);
        sent.push(content(&bytes));
        append(store, log, bytes, NOW_MS);
        if number % 20 == 0 {
            handle.sleep(Duration::from_millis(3)).await;
        }
    }
    let end = store.offsets(log).expect("open").log_end;
    store.durable_to(log, end).await.expect("durable");
    handle.sleep(Duration::from_millis(200)).await; // written behind
    (log, sent)
}

/// Reads on and on, jumping now and then; each batch that comes is the one that was sent.
async fn read_around(
    handle: SimHandle,
    store: Rc<Store<SimDisk>>,
    log: LogRef,
    sent: Rc<Vec<Bytes>>,
    mut rng: SimRng,
    delivered: Rc<Cell<usize>>,
    peak: Rc<Cell<usize>>,
) {
    let upper = Offset(sent.len() as i64);
    let mut at = Offset(0);
    for _ in 0..150 {
        let start = store.offsets(log).expect("open").log_start;
        if at >= upper || at < start || rng.chance(60_000) {
            at = Offset(rng.between(start.0 as u64, upper.0 as u64 - 1) as i64);
        }
        let max_bytes = rng.between(1000, 1_200_000) as usize;
        let pieces = match store.read(log, at, max_bytes, upper, true) {
            ReadOutcome::Cached(pieces) => pieces,
            ReadOutcome::Cold(cold) => match store.read_cold(cold).await {
                Ok(pieces) => pieces,
                // The segment went while it was read.
                Err(StorageError::OffsetOutOfRange { start, .. }) => {
                    assert!(at < start, "nothing at {at}, log start {start}");
                    continue;
                }
                Err(error) => panic!("{error} at {at}"),
            },
            other => panic!("{other:?} at {at}"),
        };
        let bytes = pieces.concat();
        let mut from = 0;
        assert!(!bytes.is_empty(), "nothing at {at}");
        while from < bytes.len() {
            let header = BatchHeader::parse(&bytes[from..]).expect("whole batches");
            assert_eq!(header.base_offset, at);
            let to = from + header.size as usize;
            assert_eq!(content(&bytes[from..to]), sent[at.0 as usize], "offset {at}");
            (from, at) = (to, at.plus(1));
        }
        delivered.set(delivered.get() + bytes.len());
        let ahead = store.stats().read_ahead_bytes;
        assert!(ahead <= BOUND, "{ahead} bytes are read ahead");
        peak.set(peak.get().max(ahead));
        if rng.coin() {
            handle.sleep(Duration::from_micros(rng.between(1, 2000))).await;
        }
    }
}

#[test]
fn readers_get_what_was_written_through_read_ahead() {
    for seed in 0..6 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        executor.block_on(async {
            let store = start(&handle, &disk, IoLimits::default()).await;
            let mut rng = SimRng::new(seed, "sizes");
            let (log, sent) = fill(&handle, &store, &mut rng).await;
            let sent = Rc::new(sent);
            disk.record_trace();
            let (delivered, peak) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let readers: Vec<_> = ["a", "b", "c", "d"]
                .into_iter()
                .map(|name| {
                    let rng = SimRng::new(seed, name);
                    let (store, sent) = (Rc::clone(&store), Rc::clone(&sent));
                    handle.spawn(read_around(
                        handle.clone(),
                        store,
                        log,
                        sent,
                        rng,
                        Rc::clone(&delivered),
                        Rc::clone(&peak),
                    ))
                })
                .collect();
            handle.sleep(Duration::from_millis(40)).await;
            store.delete_records(log, Offset(400)).await.expect("deleted");
            for reader in readers {
                reader.await;
            }
            let trace = disk.take_trace();
            let done = trace
                .iter()
                .filter(|e| e.op == DiskOp::Read && e.phase == TracePhase::Done);
            let from_disk: usize = done.map(|e| e.len).sum();
            assert!(
                from_disk < delivered.get() * 2,
                "{from_disk} bytes read from the disk for {}",
                delivered.get()
            );
            assert!(peak.get() > 1 << 20, "nothing was read ahead");
            handle.sleep(Duration::from_millis(100)).await;
            store.delete_log(log).await.expect("deleted");
            assert_eq!(store.stats().read_ahead_bytes, 0);
        });
    }
}

/// The most bytes of cold reads that were under way at the same time, by the trace; those of the active segment are tail reads.
fn under_way_max(trace: &[TraceEntry], active: &Path) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for entry in trace.iter().filter(|e| e.op == DiskOp::Read && e.path != active) {
        match entry.phase {
            TracePhase::Issued => now += entry.len,
            TracePhase::Done | TracePhase::Failed => now = now.saturating_sub(entry.len),
        }
        most = most.max(now);
    }
    most
}

#[test]
fn no_more_is_read_at_a_time_than_the_class_of_cold_reads_may_have_under_way() {
    let run = |bytes_max: u64| {
        let executor = SimExecutor::new(9);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(9));
        executor.block_on(async {
            let io = IoLimits {
                busy_bytes_max: bytes_max,
                idle_bytes_max: bytes_max,
                ..IoLimits::default()
            };
            let store = start(&handle, &disk, io).await;
            let (log, sent) = fill(&handle, &store, &mut SimRng::new(9, "sizes")).await;
            let sent = Rc::new(sent);
            let last = disk
                .paths()
                .into_iter()
                .rfind(|path| path.extension().is_some_and(|e| e == "log"));
            disk.record_trace();
            let readers: Vec<_> = ["a", "b", "c", "d", "e", "f"]
                .into_iter()
                .map(|name| {
                    let rng = SimRng::new(9, name);
                    let (store, sent) = (Rc::clone(&store), Rc::clone(&sent));
                    handle.spawn(read_around(
                        handle.clone(),
                        store,
                        log,
                        sent,
                        rng,
                        Rc::default(),
                        Rc::default(),
                    ))
                })
                .collect();
            for reader in readers {
                reader.await;
            }
            let totals = store.io().totals()[IoClass::ColdRead as usize];
            assert!(totals.operations > 50 && totals.waiting == 0, "{totals:?}");
            let most = under_way_max(&disk.take_trace(), &last.expect("a segment"));
            (most, totals.waits)
        })
    };
    let (most, _) = run(64 << 20);
    assert!(most > 2 << 20, "{most} bytes at a time without a bound");
    let (most, waits) = run(1 << 20);
    assert!(
        most <= 1_600_000,
        "{most} bytes at a time: the bound, or one larger read"
    );
    assert!(waits > 10, "{waits} reads had to wait");
}
