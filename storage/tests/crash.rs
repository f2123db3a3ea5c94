//! Crash safety of the store on the simulated disk: a mixed workload is stopped at every mutation it makes, by power loss
//! (unsynced writes lost, torn, reordered) and by kill -9, and started again. After each recovery every append that was
//! reported durable is there once, in order, at its offset; nothing is there that was not sent; producer state and leader
//! epochs agree with the log; and the store goes on from there into the next crash. A bit flipped on the disk is not served
//! as good. A disk that lies about syncs must be found out, else the checks see nothing.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::catch_unwind;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::crashes::{End, for_each_seed, four_crashes, lives, seeds, too_long};
use common::{
    Durable, Producer, ReadBatch, batch, content, dir, housekeeping_loop, log_id, read_log,
    watched_commit_loop,
};
use futures_lite::future::or;
use storage::commit::CommitLimits;
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::error::StorageError;
use storage::journal::JournalOptions;
use storage::log::append::AppendBatch;
use storage::log::batch::{BatchHeader, crc_matches};
use storage::log::config::{Durability, LogConfig};
use storage::log::{LogOffsets, LogRef};
use storage::recovery::recover_journals;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::sim_rng::SimRng;
use storage::store::{ReadOutcome, Store, StoreOptions};
use storage::types::{LeaderEpoch, Offset};

const NOW_MS: i64 = 1_700_000_000_000;
const LOGS: u8 = 4;
/// The log of class `written`: its durable end survives a kill, but not a power loss.
const WRITTEN: u8 = 3;
/// Appends of one life of the process.
const APPENDS: usize = 40;

/// What was sent to one log: the truth to compare with.
#[derive(Clone, Debug, Default)]
struct Sent {
    batches: Vec<(Offset, Offset, Bytes, LeaderEpoch, i32)>,
    /// The log start last asked for, and last answered.
    start_asked: Offset,
    start: Offset,
    /// Everything below was reported durable.
    durable: Offset,
    /// Everything below was reported durable at least two journal commits ago, so that a journal commit on the disk says so:
    /// damage behind it cannot be told from a torn tail.
    durable_noted: Offset,
    /// Since the last recovery that was looked at.
    power_was_lost: bool,
    /// A power loss took all of it, epochs and producers included; the log goes on from here.
    begins_anew_at: Option<Offset>,
    /// The newest epoch of all lives.
    epoch_max: i32,
}

type Model = Rc<RefCell<BTreeMap<u8, Sent>>>;

fn options() -> StoreOptions {
    StoreOptions {
        cache_bytes: 64 << 10,
        write_behind_bytes: 8 << 10,
        journal: JournalOptions {
            file_bytes: 48 << 10,
            files_max: 3,
        },
        is_journal_filled: true,
        commit: CommitLimits {
            bytes_max: 96 << 10,
            ..CommitLimits::default()
        },
        ..StoreOptions::default()
    }
}

fn config(number: u8) -> LogConfig {
    LogConfig {
        segment_bytes: 200 << 10,
        durability: if number == WRITTEN {
            Durability::Written
        } else {
            Durability::Fsync
        },
        ..LogConfig::default()
    }
}

/// One life: recover, check, append until the work is done or the disk stops. Returns whether it got to its end.
async fn life(handle: SimHandle, disk: SimDisk, model: Model, mut rng: SimRng, stop_cleanly: bool) {
    disk.create_dir(dir()).await.expect("create");
    disk.sync_dir(Path::new("/")).await.expect("sync");
    // As many shards as the life likes: one runs the workload, the others may have left journals.
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
        let sent = model.borrow_mut().entry(number).or_default().clone();
        let kept = check(&store, log, sent, number).await;
        model.borrow_mut().insert(number, kept);
        logs.push(log);
    }
    let durable = Durable::default();
    let history = History::default();
    for _ in 0..2 {
        let commits = commit_loop(Rc::clone(&store), Rc::clone(&durable), Rc::clone(&history));
        handle.spawn(commits);
    }
    handle.spawn(housekeeping_loop(Rc::clone(&store)));
    for round in 0..APPENDS {
        if rng.chance(40_000) {
            let number = rng.between(0, u64::from(LOGS) - 1) as u8;
            delete_some(&store, logs[usize::from(number)], number, &mut rng, &model).await;
        }
        let number = rng.between(0, u64::from(LOGS) - 1) as u8;
        append(&store, logs[usize::from(number)], number, round, &mut rng, &model);
        if rng.chance(300_000) {
            handle.sleep(Duration::from_micros(rng.between(1, 3000))).await;
        }
        note_durable(&durable, &history, &logs, &model);
    }
    for (number, log) in logs.iter().enumerate() {
        let end = store.offsets(*log).expect("open").log_end;
        while store.offsets(*log).expect("open").durable_end < end {
            handle.sleep(Duration::from_micros(200)).await;
            note_durable(&durable, &history, &logs, &model);
        }
        let start = store.offsets(*log).expect("open").log_start;
        let read = read_log(&store, *log, end, 20_000).await;
        let model = model.borrow();
        let sent = &model[&(number as u8)].batches;
        let kept = sent.iter().filter(|batch| batch.1 >= start).count();
        assert_eq!(read.len(), kept, "read before any crash");
    }
    note_durable(&durable, &history, &logs, &model);
    if stop_cleanly {
        store.close().await.expect("clean stop");
    }
}

fn append(store: &Store<SimDisk>, log: LogRef, number: u8, round: usize, rng: &mut SimRng, model: &Model) {
    let mut model = model.borrow_mut();
    let sent = model.get_mut(&number).expect("known");
    let size = match rng.between(0, 9) {
        0..=5 => rng.between(70, 600),
        6..=7 => rng.between(3_000, 9_000),
        _ => rng.between(64 << 10, 90 << 10),
    } as usize;
    let records = rng.between(1, 3) as i32;
    let sequence = sent.batches.last().map_or(0, |(_, _, _, _, next)| *next);
    let epoch = store.newest_epoch(log).max(LeaderEpoch(0));
    let epoch = if rng.chance(50_000) {
        LeaderEpoch(epoch.0 + 1)
    } else {
        epoch
    };
    let producer = Producer {
        id: 70 + i64::from(number),
        epoch: 0,
        sequence,
    };
    let bytes = batch(
        records,
        size,
        NOW_MS + round as i64,
        producer,
        rng.between(0, 255) as u8,
    );
    let kept = content(&bytes);
    let appended = store
        .append(log, AppendBatch::from_client(bytes, epoch), NOW_MS)
        .expect("append");
    assert!(!appended.is_duplicate);
    sent.batches.push((
        appended.base_offset,
        appended.last_offset,
        kept,
        epoch,
        sequence + records,
    ));
    sent.epoch_max = sent.epoch_max.max(epoch.0);
}

/// Moves a log's start to somewhere below its durable end.
async fn delete_some(store: &Store<SimDisk>, log: LogRef, number: u8, rng: &mut SimRng, model: &Model) {
    let offsets = store.offsets(log).expect("open");
    let start = Offset(rng.between(offsets.log_start.0 as u64, offsets.durable_end.0 as u64) as i64);
    model.borrow_mut().get_mut(&number).expect("known").start_asked = start;
    let answered = store.delete_records(log, start).await.expect("delete");
    assert_eq!(answered, start);
    model.borrow_mut().get_mut(&number).expect("known").start = start;
}

/// The durable ends after each of the last three journal commits.
type History = Rc<RefCell<VecDeque<BTreeMap<LogRef, Offset>>>>;

/// Runs commits until the store goes offline, noting what each reported and what the last ones that synced did.
async fn commit_loop(store: Rc<Store<SimDisk>>, durable: Durable, history: History) {
    let noted = Rc::clone(&durable);
    watched_commit_loop(store, durable, |syncs| {
        if syncs > 0 {
            let mut history = history.borrow_mut();
            history.push_back(noted.borrow().clone());
            if history.len() > 3 {
                history.pop_front();
            }
        }
    })
    .await;
}

fn note_durable(durable: &Durable, history: &History, logs: &[LogRef], model: &Model) {
    let history = history.borrow();
    let noted = history.front().filter(|_| history.len() == 3);
    for (number, log) in logs.iter().enumerate() {
        let mut model = model.borrow_mut();
        let sent = model.get_mut(&(number as u8)).expect("known");
        if let Some(end) = durable.borrow().get(log) {
            sent.durable = *end;
        }
        if let Some(end) = noted.and_then(|noted| noted.get(log)) {
            sent.durable_noted = *end;
        }
    }
}

/// What became of a flipped bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Flip {
    /// All was there: the journal wrote it anew, or nobody reads that byte.
    Healed,
    /// The log ends before it, where nothing promised more.
    Cut,
    /// The log was not opened, or the read failed, with a report.
    Reported,
    /// It was served, and the batch's checksum tells whoever reads it.
    Told,
}

/// A life that only looks, after a bit in a segment of log `flipped` was flipped on the disk: what was flipped is not served
/// as good, nothing is invented, and the other logs are as they should be.
async fn look_at_flipped(disk: SimDisk, model: Model, flipped: u8) -> Flip {
    recover_journals(&disk, dir(), |_, _| {}).await.expect("journals");
    let store = Store::open(disk.clone(), dir(), 0, options())
        .await
        .expect("store");
    let mut found = Flip::Healed;
    for number in 0..LOGS {
        let sent = model.borrow().get(&number).cloned().unwrap_or_default();
        let name = format!("t{number}");
        let open = async || {
            store
                .open_log(log_id(number), &name, config(number), NOW_MS)
                .await
        };
        match open().await {
            Ok(log) if number != flipped => {
                check(&store, log, sent, number).await;
            }
            Ok(log) => found = check_flipped(&store, log, &sent, number).await,
            Err(StorageError::Damage(_)) if number == flipped => {
                assert!(
                    matches!(open().await, Err(StorageError::Damage(_))),
                    "reported again"
                );
                found = Flip::Reported;
            }
            Err(error) => panic!("log {number}: {error}"),
        }
    }
    found
}

async fn check_flipped(store: &Store<SimDisk>, log: LogRef, sent: &Sent, number: u8) -> Flip {
    let LogOffsets {
        log_start, log_end, ..
    } = store.offsets(log).expect("open");
    let sent_end = sent.batches.last().map_or(Offset::ZERO, |batch| batch.1.plus(1));
    assert!(
        log_end <= sent_end.max(log_start),
        "log {number}: more than was sent"
    );
    assert!(
        log_end >= sent.durable_noted || number == WRITTEN,
        "log {number}: lost without a report"
    );
    let mut at = log_start;
    while at < log_end {
        let pieces = match store.read(log, at, 30_000, log_end, true) {
            ReadOutcome::Cached(pieces) => pieces,
            ReadOutcome::Cold(cold) => match store.read_cold(cold).await {
                Ok(pieces) => pieces,
                Err(StorageError::Damage(_)) => return Flip::Reported,
                Err(error) => panic!("log {number} at {at}: {error}"),
            },
            other => panic!("log {number} at {at}: {other:?}"),
        };
        let bytes = pieces.concat();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = BatchHeader::parse(rest).filter(|header| header.size as usize <= rest.len());
            let Some(header) = header else { return Flip::Told };
            let (one, behind) = rest.split_at(header.size as usize);
            if !crc_matches(&header, one) {
                return Flip::Told;
            }
            let (base, last) = (header.base_offset, header.last_offset());
            let original = sent.batches.iter().find(|batch| batch.0 == base);
            let original = original.unwrap_or_else(|| panic!("log {number}: a batch at {base}"));
            assert_eq!(
                (last, &content(one)),
                (original.1, &original.2),
                "log {number} at {base}"
            );
            at = last.plus(1);
            rest = behind;
        }
        if bytes.is_empty() {
            return Flip::Told; // the length was flipped: nothing that could be served
        }
    }
    if log_end < sent_end {
        Flip::Cut
    } else {
        Flip::Healed
    }
}

/// Flips a bit somewhere in a segment. Returns its log; `None` when there is no segment with batches. A batch's offset and
/// epoch are left alone: the format has no checksum over them, since brokers set them behind the producer's back.
fn flip_somewhere(disk: &SimDisk, rng: &mut SimRng) -> Option<u8> {
    let mut segments = Vec::new();
    for path in disk.paths() {
        let text = path.to_string_lossy().into_owned();
        let number = text
            .strip_prefix("/data/t")
            .and_then(|rest| rest.get(..1)?.parse().ok());
        if let Some(number) = number.filter(|_| text.ends_with(".log")) {
            let bytes = disk.contents(&path).expect("a file");
            if BatchHeader::parse(&bytes).is_some() {
                segments.push((number, path, bytes));
            }
        }
    }
    if segments.is_empty() {
        return None;
    }
    let (number, path, bytes) = segments.swap_remove(rng.index(segments.len()));
    let mut position = rng.index(bytes.len());
    let mut at = 0;
    while let Some(header) = BatchHeader::parse(&bytes[at..]) {
        let end = at + header.size as usize;
        if (at..end.min(bytes.len())).contains(&position) && matches!(position - at, 0..8 | 12..16) {
            position = at + 17;
        }
        if end >= bytes.len() {
            break;
        }
        at = end;
    }
    let mask = 1 << rng.index(8);
    disk.flip_bits(&path, position as u64, mask)
        .expect("a file")
        .then_some(number)
}

/// Compares a recovered log with what was sent, and forgets what the crash took.
#[allow(clippy::too_many_lines, reason = "one invariant after the other")]
async fn check(store: &Store<SimDisk>, log: LogRef, mut sent: Sent, number: u8) -> Sent {
    let offsets = store.offsets(log).expect("open");
    assert_eq!(offsets.log_end, offsets.durable_end);
    assert!(
        offsets.log_start == sent.start
            || offsets.log_start == sent.start_asked
            || offsets.log_start == offsets.log_end,
        "log {number}: starts at {}, asked {} answered {}",
        offsets.log_start,
        sent.start_asked,
        sent.start
    );
    let found: Vec<ReadBatch> = read_log(store, log, offsets.log_end, 30_000).await;
    let power_was_lost = std::mem::take(&mut sent.power_was_lost) && number == WRITTEN;
    assert!(
        offsets.log_end >= sent.durable || power_was_lost,
        "log {number}: durable up to {}, recovered up to {}",
        sent.durable,
        offsets.log_end
    );
    let before_start = sent
        .batches
        .iter()
        .take_while(|batch| batch.1 < offsets.log_start);
    let deleted = before_start.count();
    assert!(
        deleted + found.len() <= sent.batches.len(),
        "log {number}: more than was sent"
    );
    for (read, (base, last, kept, epoch, _)) in found.iter().zip(&sent.batches[deleted..]) {
        assert_eq!((read.base, read.last), (*base, *last), "log {number}");
        assert_eq!(&read.content, kept, "log {number} at {base}");
        let at = (*base).max(offsets.log_start);
        assert_eq!(store.epoch_of(log, at), *epoch, "log {number} at {base}");
    }
    sent.batches.truncate(deleted + found.len());
    sent.start = offsets.log_start;
    sent.start_asked = offsets.log_start;
    let producers = store.producers(log);
    let began_anew = sent.begins_anew_at.take() == Some(offsets.log_end);
    if (power_was_lost || began_anew) && found.is_empty() {
        // What was left of it is gone: the log goes on where it was to start.
        sent.begins_anew_at = Some(offsets.log_end);
        sent.durable = sent.durable.min(offsets.log_end);
        sent.durable_noted = sent.durable_noted.min(offsets.log_end);
        return sent;
    }
    match sent.batches.last() {
        None => assert!(producers.is_empty()),
        Some((base, last, _, epoch, next)) => {
            assert_eq!(offsets.log_end, last.plus(1), "log {number}");
            let newest = store.newest_epoch(log);
            if found.is_empty() {
                // The epoch of a lost batch may be known, but none that never was.
                assert!(
                    newest >= *epoch && newest.0 <= sent.epoch_max,
                    "log {number}: {newest:?}"
                );
            } else {
                assert_eq!(newest, *epoch, "log {number}");
            }
            assert_eq!(producers.len(), 1, "log {number}");
            assert_eq!(producers[0].last_sequence, next - 1, "log {number}");
            let again = batch(
                (last.0 - base.0 + 1) as i32,
                100,
                NOW_MS,
                Producer {
                    id: 70 + i64::from(number),
                    epoch: 0,
                    sequence: next - (last.0 - base.0 + 1) as i32,
                },
                0,
            );
            let answer = store
                .append(
                    log,
                    AppendBatch::from_client(again, store.newest_epoch(log)),
                    NOW_MS,
                )
                .expect("a duplicate");
            assert!(answer.is_duplicate, "log {number}");
            assert_eq!((answer.base_offset, answer.last_offset), (*base, *last));
        }
    }
    sent.durable = sent.durable.min(offsets.log_end);
    sent.durable_noted = sent.durable_noted.min(offsets.log_end);
    sent
}

/// Runs [`lives`] of one workload.
fn run(seed: u64, config: SimDiskConfig, crashes: &[(u64, End)], stop_cleanly: bool) -> u64 {
    let model = Model::default();
    let one = async |handle, disk, rng| life(handle, disk, Rc::clone(&model), rng, stop_cleanly).await;
    lives(seed, config, crashes, one, |end| note_power_loss(&model, end))
}

fn note_power_loss(model: &Model, end: End) {
    for sent in model.borrow_mut().values_mut() {
        sent.power_was_lost |= end == End::PowerLoss;
    }
}

#[test]
fn a_crash_at_every_mutation_loses_nothing_that_was_durable() {
    for (seed, end) in [(1, End::PowerLoss), (2, End::PowerLoss), (3, End::Kill)] {
        let mutations = run(seed, SimDiskConfig::seeded(seed), &[], true);
        assert!(mutations > 100, "{mutations}");
        for at in 1..=mutations + 5 {
            run(seed, SimDiskConfig::seeded(seed), &[(at, end)], true);
        }
    }
}

#[test]
fn crashes_in_recovery_and_in_the_life_after_lose_nothing_that_was_durable() {
    for_each_seed(seeds(3000), |seed| {
        let mut rng = SimRng::new(seed, "crashes");
        let crashes = four_crashes(&mut rng, 200);
        run(seed, SimDiskConfig::seeded(seed), &crashes, rng.chance(500_000));
    });
}

#[test]
fn a_flipped_bit_is_not_served_as_good_and_touches_no_other_log() {
    let counts = RefCell::new(BTreeMap::new());
    for_each_seed(seeds(1000), |seed| {
        let mut rng = SimRng::new(seed, "flips");
        let mut executor = SimExecutor::new(seed);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
        let model = Model::default();
        let end = [None, Some(End::Kill), Some(End::PowerLoss)][rng.index(3)];
        if end.is_some() {
            disk.crash_after(rng.between(60, 250));
        }
        let work = life(
            executor.handle(),
            disk.clone(),
            Rc::clone(&model),
            SimRng::new(seed, "workload"),
            true,
        );
        executor.block_on(or(or(work, disk.crashed()), too_long(executor.handle())));
        drop(executor);
        executor = SimExecutor::new(seed * 1000);
        let end = end.unwrap_or(End::Kill);
        note_power_loss(&model, end);
        let disk = end.restart(&disk, &executor.handle());
        let Some(flipped) = flip_somewhere(&disk, &mut rng) else {
            return;
        };
        let look = async {
            let found = look_at_flipped(disk.clone(), model, flipped).await;
            *counts.borrow_mut().entry(found).or_insert(0) += 1;
        };
        executor.block_on(or(look, too_long(executor.handle())));
    });
    for found in [Flip::Healed, Flip::Cut, Flip::Reported, Flip::Told] {
        assert!(counts.borrow().contains_key(&found), "{:?}", counts.borrow());
    }
}

#[test]
fn a_disk_that_lies_about_syncs_is_found_out() {
    let loses = |seed, lie_about_sync| {
        let config = SimDiskConfig {
            lie_about_sync,
            ..SimDiskConfig::seeded(seed)
        };
        catch_unwind(|| run(seed, config, &[(60 + seed, End::PowerLoss)], false)).is_err()
    };
    let honest = (1..40).filter(|seed| loses(*seed, false)).count();
    let lying = (1..40).filter(|seed| loses(*seed, true)).count();
    assert_eq!(honest, 0);
    assert!(
        lying > 20,
        "appends reported durable before they were must be noticed: {lying} of 39"
    );
}
