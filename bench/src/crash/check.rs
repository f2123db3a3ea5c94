//! What must hold for a log after a recovery: what was reported durable is there, once, in order, at its offset; nothing is there
//! that was not sent; producers, transactions and leader epochs agree with the records. A violation is a panic that says which.

use bytes::Bytes;
use storage::disk::Disk;
use storage::log::append::AppendBatch;
use storage::log::batch::{BatchHeader, crc_matches};
use storage::log::config::Durability;
use storage::log::{LogOffsets, LogRef};
use storage::store::{ReadOutcome, Store};
use storage::types::{LeaderEpoch, Offset};

use super::NOW_MS;
use super::batches::{Producer, content, data};
use super::compacted::{self, has_records_of};
use super::model::{Aborted, LogModel, Role, Sent};

/// Bytes of a read.
const READ_BYTES: usize = 30_000;

/// A batch as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub(super) base: Offset,
    pub(super) last: Offset,
    pub(super) content: Bytes,
}

/// All batches of a log from its start to `upper`, through cache and disk.
///
/// # Errors
/// The log or the disk refuses.
pub async fn read<D: Disk>(
    store: &Store<D>,
    log: LogRef,
    upper: Offset,
) -> Result<Vec<Found>, storage::error::StorageError> {
    let mut out = Vec::new();
    let mut at = store.offsets(log).expect("an open log").log_start;
    while at < upper {
        let pieces = match store.read(log, at, READ_BYTES, upper, true) {
            ReadOutcome::Cached(pieces) => pieces,
            ReadOutcome::Cold(cold) => store.read_cold(cold).await?,
            other => panic!("a read at {at} of {upper}: {other:?}"),
        };
        let bytes = pieces.concat();
        assert!(!bytes.is_empty(), "nothing at {at} below {upper}");
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let header = BatchHeader::parse(rest).unwrap_or_else(|| panic!("no batch at {at}"));
            let (one, behind) = rest
                .split_at_checked(header.size as usize)
                .unwrap_or_else(|| panic!("a part of a batch at {at}"));
            assert!(crc_matches(&header, one), "served with a wrong checksum at {at}");
            out.push(Found {
                base: header.base_offset,
                last: header.last_offset(),
                content: content(one),
            });
            at = header.last_offset().plus(1);
            rest = behind;
        }
    }
    Ok(out)
}

/// Compares a log that was just opened with what was sent to it; what the crash took is forgotten.
///
/// # Errors
/// The disk refuses a read.
///
/// # Panics
/// On a violation.
pub async fn check<D: Disk>(
    store: &Store<D>,
    log: LogRef,
    mut model: LogModel,
) -> Result<LogModel, storage::error::StorageError> {
    let name = model.directory();
    let offsets = store.offsets(log).expect("an open log");
    assert_eq!(
        offsets.log_end, offsets.durable_end,
        "{name}: not durable as it stands"
    );
    check_start(&model, &offsets);
    assert!(
        offsets.log_end >= model.must_end(),
        "{name}: durable up to {}, recovered up to {}",
        model.must_end(),
        offsets.log_end
    );
    let found = read(store, log, offsets.log_end).await?;
    let start = offsets.log_start;
    let sent = model.batches.len();
    if model.is_keyed {
        model.batches.retain(|batch| batch.last < offsets.log_end);
    }
    check_batches(store, log, &model, &found, start);
    if !model.is_keyed {
        let deleted = model.deleted(start);
        model.batches.truncate(deleted + found.len());
    }
    let lost = model.batches.len() < sent;
    if found.is_empty() && lost && model.was_loose {
        model.began_again = true;
    }
    if !model.began_again {
        check_producers(store, log, &model, &found, &offsets);
        check_duplicate(store, log, &model, start);
    }
    model.start = start;
    model.start_asked = start;
    model.lost_power = false;
    model.durable = offsets.log_end;
    model.durable_power = if store.is_unsynced(log) || model.config.durability != Durability::Fsync {
        model.durable_power.min(offsets.log_end)
    } else {
        offsets.log_end
    };
    Ok(model)
}

fn check_start(model: &LogModel, offsets: &LogOffsets) {
    let LogOffsets {
        log_start, log_end, ..
    } = *offsets;
    assert!(
        log_start == model.start
            || log_start == model.start_asked
            || (log_start == log_end && model.was_loose),
        "{}: starts at {log_start}, asked {} answered {}",
        model.directory(),
        model.start_asked,
        model.start
    );
}

fn check_batches<D: Disk>(store: &Store<D>, log: LogRef, model: &LogModel, found: &[Found], start: Offset) {
    let name = model.directory();
    check_content(model, found, start);
    for sent in model.found(found) {
        let epoch = store.epoch_of(log, sent.base.max(start));
        assert_eq!(
            epoch.0, sent.leader_epoch,
            "{name}: leader epoch at {}",
            sent.base
        );
    }
    let newest = store.newest_epoch(log).0;
    let last = model.found(found).last();
    assert!(
        newest <= model.leader_epoch_max && last.is_none_or(|last| newest >= last.leader_epoch),
        "{name}: newest leader epoch {newest}"
    );
}

/// What was read is what was sent, without what was deleted below `start` and what compaction may leave out.
pub fn check_content(model: &LogModel, found: &[Found], start: Offset) {
    if model.is_keyed {
        return compacted::check_batches(model, found, start);
    }
    let (name, deleted) = (model.directory(), model.deleted(start));
    assert!(
        deleted + found.len() <= model.batches.len(),
        "{name}: {} batches where {} were sent",
        deleted + found.len(),
        model.batches.len()
    );
    for (read, sent) in found.iter().zip(&model.batches[deleted..]) {
        assert_eq!((read.base, read.last), (sent.base, sent.last), "{name}: offsets");
        assert_eq!(&read.content, &sent.content, "{name}: bytes at {}", sent.base);
    }
}

/// Whoever has records in the log is known as they say, and nobody else is. Who has none left may be known.
fn check_producers<D: Disk>(
    store: &Store<D>,
    log: LogRef,
    model: &LogModel,
    found: &[Found],
    offsets: &LogOffsets,
) {
    let name = model.directory();
    let start = offsets.log_start;
    let mut due = model.producers();
    for known in store.producers(log) {
        let id = known.producer_id.0;
        let facts = due
            .remove(&id)
            .unwrap_or_else(|| panic!("{name}: producer {id} is invented"));
        assert_eq!(
            (known.epoch, known.last_sequence),
            (facts.epoch, facts.last_sequence),
            "{name}: epoch and last sequence of producer {id}"
        );
        if facts.transaction_start.is_none_or(|first| first >= start) {
            assert_eq!(
                known.transaction_start, facts.transaction_start,
                "{name}: open transaction of producer {id}"
            );
        }
    }
    let forgotten = due.iter().find(|(_, facts)| facts.last_offset >= start);
    assert!(forgotten.is_none(), "{name}: forgotten: {forgotten:?}");

    let listed = store.aborted_transactions(log, start, offsets.log_end);
    let aborted = model.aborted();
    for txn in &listed {
        let known = aborted
            .iter()
            .find(|known| known.id == txn.producer_id.0 && known.marker == txn.last_offset);
        assert!(
            known.is_some_and(|known| {
                known.first == txn.first_offset
                    || known.first < start
                    || (model.is_keyed && known.first < txn.first_offset)
            }),
            "{name}: aborted transaction {txn:?}, known {known:?} of {aborted:?}, log {offsets:?}, sent at the marker {:?}",
            model
                .batches
                .iter()
                .find(|b| b.last >= txn.last_offset)
                .map(|b| (b.base, b.last, b.role))
        );
    }
    let is_left = |known: &&Aborted| {
        known.last_data >= start
            && (!model.is_keyed || has_records_of(found, known.id, known.first, known.last_data))
    };
    for known in aborted.iter().filter(is_left) {
        let is_listed = listed
            .iter()
            .any(|txn| txn.producer_id.0 == known.id && txn.last_offset == known.marker);
        assert!(is_listed, "{name}: {known:?} is not listed");
    }
}

/// The last batch of a producer, sent again, is recognised.
fn check_duplicate<D: Disk>(store: &Store<D>, log: LogRef, model: &LogModel, start: Offset) {
    let facts = model.producers();
    let is_last = |batch: &&Sent| match batch.role {
        Role::Data {
            id,
            epoch,
            last_sequence,
            ..
        } => facts
            .get(&id)
            .is_some_and(|facts| (facts.epoch, facts.last_sequence) == (epoch, last_sequence)),
        _ => false,
    };
    let last = model
        .batches
        .iter()
        .rev()
        .find(is_last)
        .filter(|batch| batch.last >= start);
    let Some(sent) = last else { return };
    let Role::Data {
        id,
        epoch,
        last_sequence,
        is_transactional,
    } = sent.role
    else {
        return;
    };
    let records = (sent.last.0 - sent.base.0 + 1) as i32;
    let again = data(
        records,
        100,
        NOW_MS,
        Producer {
            id,
            epoch,
            sequence: last_sequence - records + 1,
            is_transactional,
        },
        0,
    );
    let leader_epoch = store.newest_epoch(log).max(LeaderEpoch(0));
    let name = model.directory();
    match store.append(log, AppendBatch::from_client(again, leader_epoch), NOW_MS) {
        Ok(answer) => {
            assert!(answer.is_duplicate, "{name}: producer {id} is appended twice");
            assert_eq!(
                (answer.base_offset, answer.last_offset),
                (sent.base, sent.last),
                "{name}"
            );
        }
        Err(error) => assert!(store.offline_reason().is_some(), "{name}: {error}"),
    }
}
