//! The scrub on the simulated disk: flipped bits in closed and active segments and unreadable blocks are found, told of once
//! and forgotten when they are gone; nothing else is; what is not damaged is served.

mod common;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::{PLAIN, append, batch, commit_loop, housekeeping_loop, log_id, open_store, read_log};
use storage::disk::sim::{DiskOp, SimDisk, SimDiskConfig, SimFault};
use storage::io_class::{IoClass, IoLimits};
use storage::log::LogRef;
use storage::log::config::LogConfig;
use storage::scrub::{Finding, ScrubOptions, ScrubStep};
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{Store, StoreOptions};
use storage::types::Offset;

const NOW_MS: i64 = 1_700_000_000_000;
const INTERVAL_MS: i64 = 1000;
const BATCHES: i64 = 120;
const LOGS: u8 = 3;

async fn start(disk: &SimDisk, handle: &SimHandle, io: IoLimits) -> (Rc<Store<SimDisk>>, Vec<LogRef>) {
    let options = StoreOptions {
        cache_bytes: 64 << 10,
        io,
        scrub: ScrubOptions {
            interval_ms: INTERVAL_MS,
        },
        ..StoreOptions::default()
    };
    let store = open_store(disk, options).await;
    handle.spawn(commit_loop(Rc::clone(&store), common::Durable::default()));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    let config = LogConfig {
        segment_bytes: 150_000,
        ..LogConfig::default()
    };
    let mut logs = Vec::new();
    for number in 0..LOGS {
        let name = format!("t{number}");
        let log = store
            .open_log(log_id(number), &name, config.clone(), NOW_MS)
            .await;
        logs.push(log.expect("log"));
    }
    (store, logs)
}

/// Batches of 5 records each, and all that is full on disk.
async fn fill(handle: &SimHandle, store: &Store<SimDisk>, logs: &[LogRef], rng: &mut SimRng) {
    for number in 0..BATCHES {
        for log in logs {
            let size = rng.between(200, 9000) as usize;
            append(store, *log, batch(5, size, NOW_MS, PLAIN, number as u8), NOW_MS);
        }
        handle.sleep(Duration::from_millis(2)).await;
    }
    for log in logs {
        let end = store.offsets(*log).expect("open").log_end;
        store.durable_to(*log, end).await.expect("durable");
    }
    handle.sleep(Duration::from_millis(500)).await; // written behind
}

/// A pass that begins now, to its end. Returns the time.
async fn pass(store: &Store<SimDisk>, now_ms: &mut i64) -> Vec<Finding> {
    let before = store.scrub_stats().passes;
    while store.scrub_stats().passes == before {
        match store.scrub(*now_ms).await.expect("online") {
            ScrubStep::Worked => *now_ms += 1,
            ScrubStep::RestUntil(until) => *now_ms = until.max(*now_ms + 1),
        }
    }
    store.scrub_findings()
}

/// Every batch of the segments: file, position, size.
fn batches(disk: &SimDisk) -> Vec<(PathBuf, usize, usize)> {
    let mut out = Vec::new();
    for path in disk.paths() {
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let bytes = disk.contents(&path).expect("a file");
        let mut at = 0;
        while let Some(header) = bytes.get(at..).and_then(storage::log::batch::BatchHeader::parse) {
            out.push((path.clone(), at, header.size as usize));
            at += header.size as usize;
        }
    }
    out
}

#[test]
fn flipped_bits_are_found_told_of_once_and_remembered_over_a_restart() {
    for seed in 0..8 {
        let executor = SimExecutor::new(seed);
        let handle = executor.handle();
        let disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let mut rng = SimRng::new(seed, "scrub");
        let mut now_ms = NOW_MS;
        let planted = executor.block_on(async {
            let (store, logs) = start(&disk, &handle, IoLimits::default()).await;
            fill(&handle, &store, &logs, &mut rng).await;
            assert_eq!(pass(&store, &mut now_ms).await, [], "nothing is wrong yet");
            let stats = store.scrub_stats();
            assert!(stats.segments >= 9 && stats.bytes > 1_000_000, "{stats:?}");
            let mut all = batches(&disk);
            // Batches that do not touch, behind the header and in it: length, magic, CRC, attributes, records.
            let mut planted = Vec::new();
            for byte in [9, 16, 18, 40, 150] {
                let index = rng.between(0, all.len() as u64 - 1) as usize;
                let (path, position, size) = all[index].clone();
                let is_last_part = !all[index..].iter().skip(3).any(|(p, _, _)| *p == path);
                if is_last_part || size <= byte {
                    continue;
                }
                assert!(
                    disk.flip_bits(&path, (position + byte) as u64, 0x10)
                        .expect("flip")
                );
                planted.push((path.clone(), position as u64));
                let near = index.saturating_sub(6)..(index + 7).min(all.len());
                all.drain(near);
            }
            planted.sort();
            let places = |findings: &[Finding]| {
                let mut places: Vec<_> = findings
                    .iter()
                    .map(|finding| (finding.damage.path.clone(), finding.damage.position))
                    .collect();
                places.sort();
                places
            };
            let found = pass(&store, &mut now_ms).await;
            assert_eq!(places(&found), planted, "seed {seed}: {found:#?}");
            for finding in &found {
                let damage = &finding.damage;
                let (first, end) = (damage.first_offset, damage.end_offset);
                let is_range = end == Offset::NONE || end >= first.plus(5);
                assert!(is_range && first.0 % 5 == 0, "{damage}");
            }
            let total = store.scrub_stats().findings_total;
            assert_eq!(total, planted.len() as u64);
            assert!(total > 0, "seed {seed}: nothing was planted");
            assert_eq!(places(&pass(&store, &mut now_ms).await), planted);
            assert_eq!(store.scrub_stats().findings_total, total, "told of once");
            store.close().await.expect("clean stop");
            planted.len()
        });
        drop(executor);
        let executor = SimExecutor::new(seed + 100);
        let handle = executor.handle();
        let disk = disk.restart(&handle);
        executor.block_on(async {
            let (store, _) = start(&disk, &handle, IoLimits::default()).await;
            store.scrub(now_ms).await.expect("online");
            assert_eq!(store.scrub_stats().findings, planted, "remembered");
            pass(&store, &mut now_ms).await;
            let stats = store.scrub_stats();
            assert_eq!((stats.findings, stats.findings_total), (planted, 0));
        });
    }
}

#[test]
fn a_damaged_closed_segment_leaves_the_rest_served_and_goes_with_its_segment() {
    let executor = SimExecutor::new(1);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(1));
    executor.block_on(async {
        let (store, logs) = start(&disk, &handle, IoLimits::default()).await;
        fill(&handle, &store, &logs, &mut SimRng::new(1, "sizes")).await;
        let first = Path::new("/data/t0-0/00000000000000000000.log");
        let (_, position, size) = batches(&disk)
            .into_iter()
            .filter(|(path, ..)| path == first)
            .nth(4)
            .expect("a fifth batch");
        disk.flip_bits(first, (position + size - 1) as u64, 1)
            .expect("flip");
        let mut now_ms = NOW_MS;
        let found = pass(&store, &mut now_ms).await;
        let [finding] = &found[..] else {
            panic!("{found:?}")
        };
        let stored = {
            let bytes = disk.contents(first).expect("a file");
            u32::from_be_bytes(bytes[position + 17..position + 21].try_into().expect("four"))
        };
        let told = finding.damage.to_string();
        let names = [
            "00000000000000000000.log is damaged at byte",
            "(offsets 20 to 25)",
            &format!("expected CRC {stored:#010x}, found 0x"),
        ];
        assert!(names.iter().all(|part| told.contains(part)), "{told}");

        // What is before and behind it is read, and so are the other logs; appends go on.
        for log in &logs {
            let end = store.offsets(*log).expect("open").log_end;
            let from = if *log == logs[0] { Offset(25) } else { Offset(0) };
            let start = store.delete_records(*log, from).await.expect("online");
            assert_eq!(start, from);
            let read = read_log(&store, *log, end, 50_000).await;
            assert_eq!(read.last().map(|batch| batch.last.plus(1)), Some(end));
        }
        append(&store, logs[0], batch(5, 500, NOW_MS, PLAIN, 1), NOW_MS);
        assert_eq!(store.scrub_stats().findings, 1);
        let second = disk
            .paths()
            .into_iter()
            .filter(|path| path.starts_with("/data/t0-0") && path.extension().is_some_and(|e| e == "log"))
            .nth(1)
            .expect("a second segment");
        let base: i64 = second
            .file_stem()
            .and_then(|s| s.to_str())
            .and_then(|s| s.parse().ok())
            .expect("a base");
        store.delete_records(logs[0], Offset(base)).await.expect("online");
        assert_eq!(store.scrub_stats().findings, 0, "its segment is gone");
        assert_eq!(pass(&store, &mut now_ms).await, []);
        assert_eq!(disk.abandoned_operations(), 0);
    });
}

#[test]
fn what_cannot_be_read_is_a_finding_and_the_pass_goes_on_behind_it() {
    let executor = SimExecutor::new(2);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(2));
    executor.block_on(async {
        let (store, logs) = start(&disk, &handle, IoLimits::default()).await;
        fill(&handle, &store, &logs, &mut SimRng::new(2, "sizes")).await;
        let mut now_ms = NOW_MS;
        assert_eq!(pass(&store, &mut now_ms).await, []);
        let bytes = store.scrub_stats().bytes;
        let file = "t1-0/00000000000000000000.log";
        // Once, as of a bus that had a bad moment: the second look says so, and it is no finding.
        disk.add_fault(SimFault::error(DiskOp::Read, file, std::io::ErrorKind::Other).times(1));
        assert_eq!(pass(&store, &mut now_ms).await, []);
        disk.clear_faults();
        disk.add_fault(SimFault::error(DiskOp::Read, file, std::io::ErrorKind::Other));
        let found = pass(&store, &mut now_ms).await;
        let [finding] = &found[..] else {
            panic!("{found:?}")
        };
        assert!(
            finding.damage.expected.contains("can be read"),
            "{}",
            finding.damage
        );
        disk.clear_faults();
        assert_eq!(pass(&store, &mut now_ms).await, [], "it can be read again");
        assert!(store.scrub_stats().bytes > 3 * bytes);
    });
}

#[test]
fn the_scrub_keeps_to_its_rate() {
    let executor = SimExecutor::new(3);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(3));
    executor.block_on(async {
        let rate = 200_000;
        let io = IoLimits::default().with_rate(IoClass::Scrub, rate);
        let (store, logs) = start(&disk, &handle, io).await;
        fill(&handle, &store, &logs, &mut SimRng::new(3, "sizes")).await;
        let clock = handle.clone();
        store.io().set_clock(Rc::new(move || clock.now_ns()));
        let timer = Rc::clone(&store);
        let sleeper = handle.clone();
        handle.spawn(async move {
            loop {
                match timer.io().due() {
                    None => timer.io().moved().await,
                    Some(at) => {
                        sleeper
                            .sleep(Duration::from_nanos(at.saturating_sub(sleeper.now_ns())))
                            .await
                    }
                }
            }
        });
        let began = handle.now();
        let mut now_ms = NOW_MS;
        pass(&store, &mut now_ms).await;
        let seconds = (handle.now() - began).as_secs_f64();
        let charged = store.io().totals()[IoClass::Scrub as usize].bytes as f64;
        let expected = charged / rate as f64;
        assert!(
            expected > 5.0 && seconds > expected * 0.85 && seconds < expected * 1.15,
            "{seconds} s for {charged} bytes"
        );
        assert!(store.scrub_stats().bytes as f64 > charged * 0.4);
    });
}
