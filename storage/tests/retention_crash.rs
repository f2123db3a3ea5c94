//! Crash safety of retention on the simulated disk: logs of small segments are appended to while passes by size and age,
//! DeleteRecords and the removal of files go on; the process is stopped at every mutation, by power loss and by kill -9, and
//! started again. After each recovery the log starts at a boundary that somebody asked for and not below one that was
//! acknowledged; what is above it and was durable is there once, in order; producers are known although their records went; and
//! no file is left of what lies below the start (seed 14442 of `crash.rs` was such a case).

mod common;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::crashes::{End, for_each_seed, four_crashes, lives, seeds};
use common::{Durable, Producer, batch, commit_loop, content, dir, housekeeping_loop, log_id, read_log};
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::journal::JournalOptions;
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::{Durability, LogConfig};
use storage::recovery::recover_journals;
use storage::retention::RetentionRules;
use storage::sim_executor::SimHandle;
use storage::sim_rng::SimRng;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const LOGS: u8 = 3;
/// The log of class `written`.
const WRITTEN: u8 = 2;
const APPENDS: usize = 36;

/// The truth about one log.
#[derive(Clone, Debug, Default)]
struct Sent {
    /// First and last offset, content, and the producer's next sequence.
    batches: Vec<(Offset, Offset, Bytes, i32)>,
    /// The next sequence of the producer, of batches that went as well.
    sequence: i32,
    /// Where the log may start: what it was asked for or may have decided, and not below what was acknowledged.
    start: Offset,
    start_max: Offset,
    durable: Offset,
    power_was_lost: bool,
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

/// The first log goes by size, the second by age, down to nothing; the third by both.
fn config(number: u8) -> LogConfig {
    LogConfig {
        segment_bytes: 12 << 10,
        durability: if number == WRITTEN {
            Durability::Written
        } else {
            Durability::Fsync
        },
        retention: RetentionRules {
            by_age_and_size: true,
            ms: if number == 0 { -1 } else { 8 },
            bytes: if number == 1 { -1 } else { 20 << 10 },
        },
        file_delete_delay_ms: 3,
        ..LogConfig::default()
    }
}

async fn life(handle: SimHandle, disk: SimDisk, model: Model, mut rng: SimRng, clock: Rc<Cell<i64>>) {
    disk.create_dir(dir()).await.expect("create");
    disk.sync_dir(Path::new("/")).await.expect("sync");
    recover_journals(&disk, dir(), |_, _| {}).await.expect("journals");
    let shard = rng.between(0, 2) as u16;
    let store = Store::open(disk.clone(), dir(), shard, options())
        .await
        .expect("store");
    let mut logs = Vec::new();
    for number in 0..LOGS {
        let log = store
            .open_log(log_id(number), &format!("t{number}"), config(number), NOW_MS)
            .await
            .expect("log");
        let sent = model.borrow().get(&number).cloned().unwrap_or_default();
        let kept = check(&store, &disk, log, sent, number).await;
        model.borrow_mut().insert(number, kept);
        logs.push(log);
    }
    let durable = Durable::default();
    handle.spawn(commit_loop(Rc::clone(&store), Rc::clone(&durable)));
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    for _ in 0..APPENDS {
        let number = rng.between(0, u64::from(LOGS) - 1) as u8;
        let log = logs[usize::from(number)];
        match rng.between(0, 9) {
            0..=1 => retain(&store, log, number, clock.get(), &model).await,
            2 if rng.chance(300_000) => delete_some(&store, log, number, &mut rng, &model).await,
            _ => append(&store, log, number, clock.get(), &mut rng, &model),
        }
        clock.set(clock.get() + rng.between(0, 3) as i64);
        store.removals_due(clock.get().unsigned_abs());
        if rng.chance(400_000) {
            handle.sleep(Duration::from_micros(rng.between(1, 3000))).await;
        }
        note_durable(&durable, &logs, &model);
    }
    for (number, log) in logs.iter().enumerate() {
        let end = store.offsets(*log).expect("open").log_end;
        store.durable_to(*log, end).await.expect("durable");
        note_durable(&durable, &logs, &model);
        retain(&store, *log, number as u8, clock.get() + 1000, &model).await;
    }
    // All of the second log was old.
    let ends = store.offsets(logs[1]).expect("open");
    assert_eq!(ends.log_start, ends.log_end);
    if rng.coin() {
        store.close().await.expect("clean stop");
    }
}

fn append(store: &Store<SimDisk>, log: LogRef, number: u8, now_ms: i64, rng: &mut SimRng, model: &Model) {
    let mut model = model.borrow_mut();
    let sent = model.get_mut(&number).expect("known");
    let size = if rng.chance(800_000) {
        rng.between(100, 2500)
    } else {
        rng.between(4000, 9000)
    };
    let records = rng.between(1, 3) as i32;
    let producer = Producer {
        id: 70 + i64::from(number),
        epoch: 0,
        sequence: sent.sequence,
    };
    let bytes = batch(
        records,
        size as usize,
        now_ms,
        producer,
        rng.between(0, 255) as u8,
    );
    let kept = content(&bytes);
    let appended = store
        .append(log, AppendBatch::from_client(bytes, LeaderEpoch(0)), now_ms)
        .expect("append");
    assert!(!appended.is_duplicate);
    sent.sequence += records;
    sent.batches
        .push((appended.base_offset, appended.last_offset, kept, sent.sequence));
}

async fn retain(store: &Store<SimDisk>, log: LogRef, number: u8, now_ms: i64, model: &Model) {
    let mark = store.offsets(log).expect("open").durable_end;
    // What it decides is not told before it is done.
    model.borrow_mut().get_mut(&number).expect("known").start_max = mark;
    let start = store.retain(log, mark, now_ms).await.expect("retained");
    settle_start(model, number, start);
}

async fn delete_some(store: &Store<SimDisk>, log: LogRef, number: u8, rng: &mut SimRng, model: &Model) {
    let ends = store.offsets(log).expect("open");
    let start = Offset(rng.between(ends.log_start.0 as u64, ends.durable_end.0 as u64) as i64);
    model.borrow_mut().get_mut(&number).expect("known").start_max = start;
    let start = store.delete_records(log, start).await.expect("deleted");
    settle_start(model, number, start);
}

fn settle_start(model: &Model, number: u8, start: Offset) {
    let mut model = model.borrow_mut();
    let sent = model.get_mut(&number).expect("known");
    (sent.start, sent.start_max) = (start, start);
}

fn note_durable(durable: &Durable, logs: &[LogRef], model: &Model) {
    for (number, log) in logs.iter().enumerate() {
        if let Some(end) = durable.borrow().get(log) {
            model
                .borrow_mut()
                .get_mut(&(number as u8))
                .expect("known")
                .durable = *end;
        }
    }
}

/// Compares a recovered log with what was sent, and forgets what the crash took.
async fn check(store: &Store<SimDisk>, disk: &SimDisk, log: LogRef, mut sent: Sent, number: u8) -> Sent {
    let ends = store.offsets(log).expect("open");
    let (start, end) = (ends.log_start, ends.log_end);
    assert_eq!(end, ends.durable_end);
    assert!(
        sent.start <= start && start <= sent.start_max,
        "log {number} starts at {start}, not from {} to {}",
        sent.start,
        sent.start_max
    );
    let may_have_lost = std::mem::take(&mut sent.power_was_lost) && number == WRITTEN;
    assert!(
        end >= sent.durable || may_have_lost,
        "log {number}: {end} of {}",
        sent.durable
    );
    let found = read_log(store, log, end, 20_000).await;
    let deleted = sent.batches.iter().take_while(|batch| batch.1 < start).count();
    assert!(
        deleted + found.len() <= sent.batches.len(),
        "log {number}: more than was sent"
    );
    for (read, (base, last, kept, _)) in found.iter().zip(&sent.batches[deleted..]) {
        assert_eq!(
            (read.base, read.last, &read.content),
            (*base, *last, kept),
            "log {number}"
        );
    }
    check_files(disk, number, start);
    sent.batches.truncate(deleted + found.len());
    if may_have_lost && found.is_empty() {
        // What was left of it is gone, and who wrote it may be, too: the log goes on where it was to start.
        sent.sequence = store
            .producers(log)
            .first()
            .map_or(0, |known| known.last_sequence + 1);
    } else if let Some((base, last, _, next)) = sent.batches.last() {
        assert_eq!(end, last.plus(1), "log {number}");
        let producers = store.producers(log);
        assert_eq!(producers.len(), 1, "log {number}");
        assert_eq!(producers[0].last_sequence, next - 1, "log {number}");
        let records = (last.0 - base.0 + 1) as i32;
        let producer = Producer {
            id: 70 + i64::from(number),
            epoch: 0,
            sequence: next - records,
        };
        let again = AppendBatch::from_client(batch(records, 100, NOW_MS, producer, 0), LeaderEpoch(0));
        let answer = store.append(log, again, NOW_MS).expect("a duplicate");
        assert!(answer.is_duplicate, "log {number}");
        assert_eq!((answer.base_offset, answer.last_offset), (*base, *last));
        sent.sequence = *next;
    }
    sent.durable = sent.durable.min(end);
    (sent.start, sent.start_max) = (start, start);
    sent
}

/// One segment at most begins at or below the start, each has all of its files or none, and nothing else is there but what
/// waits for its removal.
fn check_files(disk: &SimDisk, number: u8, start: Offset) {
    let mut bases = BTreeMap::<&str, BTreeSet<i64>>::new();
    let prefix = format!("/data/t{number}-0/");
    let paths = disk.paths();
    let names = paths
        .iter()
        .filter_map(|path| path.to_str()?.strip_prefix(&prefix));
    for name in names {
        if let Some((digits, ending)) = name.split_once('.')
            && let Ok(base) = digits.parse()
        {
            bases.entry(ending).or_default().insert(base);
        }
    }
    let logs = bases.remove("log").unwrap_or_default();
    let below: Vec<_> = logs.iter().copied().filter(|base| *base <= start.0).collect();
    assert!(!below.is_empty(), "log {number} starts at {start}: {logs:?}");
    // What lies wholly below the start stays where no snapshot covers it, until the next pass of retention.
    let snapshot = bases.get("snapshot").and_then(|found| found.last().copied());
    for ends in below.iter().skip(1) {
        assert!(
            snapshot.is_none_or(|snapshot| *ends > snapshot),
            "log {number} starts at {start}: {logs:?}, snapshot {snapshot:?}"
        );
    }
    for (ending, found) in bases {
        if matches!(ending, "index" | "timeindex" | "txnindex") {
            let orphans: Vec<_> = found.difference(&logs).collect();
            assert!(
                orphans.is_empty(),
                "log {number}: .{ending} of {orphans:?} beside {logs:?}"
            );
        }
    }
}

/// Runs [`lives`] of one workload.
fn run(seed: u64, config: SimDiskConfig, crashes: &[(u64, End)]) -> u64 {
    let model = Model::default();
    let clock = Rc::new(Cell::new(NOW_MS));
    let one = async |handle, disk, rng| life(handle, disk, Rc::clone(&model), rng, Rc::clone(&clock)).await;
    lives(seed, config, crashes, one, |end| {
        for sent in model.borrow_mut().values_mut() {
            sent.power_was_lost |= end == End::PowerLoss;
        }
    })
}

#[test]
fn a_crash_at_every_mutation_of_retention_keeps_what_was_kept() {
    for (seed, end) in [(1, End::PowerLoss), (2, End::PowerLoss), (3, End::Kill)] {
        let mutations = run(seed, SimDiskConfig::seeded(seed), &[]);
        assert!(mutations > 200, "{mutations}");
        for at in 1..=mutations + 5 {
            run(seed, SimDiskConfig::seeded(seed), &[(at, end)]);
        }
    }
}

#[test]
fn crashes_in_recovery_and_in_the_life_after_keep_what_was_kept() {
    for_each_seed(seeds(1500), |seed| {
        let crashes = four_crashes(&mut SimRng::new(seed, "crashes"), 300);
        run(seed, SimDiskConfig::seeded(seed), &crashes);
    });
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    // Else the checks see nothing: a start that was acknowledged and not synced must be missed after a power loss.
    let loses = |seed, lie_about_sync| {
        let config = SimDiskConfig {
            lie_about_sync,
            ..SimDiskConfig::seeded(seed)
        };
        catch_unwind(|| run(seed, config, &[(90 + seed, End::PowerLoss)])).is_err()
    };
    let honest = (1..40).filter(|seed| loses(*seed, false)).count();
    let lying = (1..40).filter(|seed| loses(*seed, true)).count();
    assert_eq!(honest, 0);
    assert!(lying > 20, "{lying} of 39");
}
