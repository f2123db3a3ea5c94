//! Files written by Apache Kafka 4.3.1 (see the fixtures' README): we read them, write the same bytes, and build the same
//! from the batches in the segments.

use std::fs;
use std::path::PathBuf;

use protocol::record::{BatchView, Batches, ControlRecord, Record};
use storage::leader_epoch::LeaderEpochs;
use storage::producer_state::{
    BatchFacts, BatchKind, CompletedTxn, Marker, PRODUCERS_MAX, ProducerState, snapshot,
};
use storage::segment::indexes::{IndexedBatch, SegmentIndexes};
use storage::segment::offset_index::OffsetIndex;
use storage::segment::time_index::TimeIndex;
use storage::segment::txn_index::{AbortedTxn, TxnIndex};
use storage::types::{LeaderEpoch, Offset, ProducerId};

const SEGMENTS: [i64; 4] = [0, 11, 57, 62];
/// The log end at each clean stop and start of the broker.
const RESTARTS: [i64; 2] = [26, 52];
const INDEX_BYTES: usize = 96;
const INTERVAL_BYTES: u32 = 400;
/// Any time will do for producers that are not to expire.
const NOW: i64 = 1_700_000_000_000;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/kafka-4.3.1")
        .join(name)
}

fn file(name: &str) -> Vec<u8> {
    fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn segment_file(base: i64, suffix: &str) -> Vec<u8> {
    file(&format!("fx-0/{base:020}.{suffix}"))
}

/// The file, or nothing where Kafka had nothing to write.
fn txn_index_file(base: i64) -> Vec<u8> {
    fs::read(path(&format!("fx-0/{base:020}.txnindex"))).unwrap_or_default()
}

struct Batch {
    position: u32,
    size: u32,
    leader_epoch: i32,
    facts: BatchFacts,
}

/// The batches of a segment, as `protocol` reads them.
fn batches(base: i64) -> Vec<Batch> {
    let log = segment_file(base, "log");
    let read = |(position, batch): (u64, BatchView<'_>)| {
        let header = batch.header();
        Batch {
            position: position as u32,
            size: header.size() as u32,
            leader_epoch: header.leader_epoch,
            facts: BatchFacts {
                producer_id: ProducerId(header.producer_id),
                producer_epoch: header.producer_epoch,
                base_sequence: header.base_sequence,
                base_offset: Offset(header.base_offset),
                last_offset: Offset(header.last_offset()),
                max_timestamp: header.max_timestamp,
                kind: match (
                    header.attributes.is_control(),
                    header.attributes.is_transactional(),
                ) {
                    (true, _) => BatchKind::Marker(marker(&batch)),
                    (false, true) => BatchKind::Transactional,
                    (false, false) => BatchKind::Plain,
                },
            },
        }
    };
    Batches::new(&log, 0)
        .checked()
        .map(|batch| read(batch.expect("Kafka's batches are sound")))
        .collect()
}

/// The one record of a marker batch.
fn marker(batch: &BatchView<'_>) -> Marker {
    let (record, _) = Record::parse(batch.records_bytes()).expect("markers are not compressed");
    match ControlRecord::parse(&record) {
        Ok(ControlRecord::TransactionEnd(end)) => Marker {
            aborted: !end.committed,
            coordinator_epoch: end.coordinator_epoch,
        },
        other => panic!("not a marker: {other:?}"),
    }
}

fn aborted(txn: CompletedTxn) -> Option<AbortedTxn> {
    txn.aborted.then_some(AbortedTxn {
        producer_id: txn.producer_id,
        first_offset: txn.first_offset,
        last_offset: txn.last_offset,
        last_stable_offset: txn.last_stable_offset,
    })
}

#[test]
fn indexes_are_read_and_written_back_byte_for_byte() {
    for base in SEGMENTS {
        let (offset_file, time_file) = (segment_file(base, "index"), segment_file(base, "timeindex"));
        let offset = OffsetIndex::decode(Offset(base), INDEX_BYTES, &offset_file).unwrap();
        let time = TimeIndex::decode(Offset(base), INDEX_BYTES, &time_file).unwrap();
        let txn = TxnIndex::decode(Offset(base), &txn_index_file(base)).unwrap();
        let mut written = [Vec::new(), Vec::new(), Vec::new()];
        offset.encode_from(0, &mut written[0]);
        time.encode_from(0, &mut written[1]);
        txn.encode_from(0, &mut written[2]);
        assert_eq!(
            written,
            [offset_file, time_file, txn_index_file(base)],
            "segment {base}"
        );
        for (entry, batch) in offset.iter().flat_map(|entry| {
            let batch = batches(base)
                .into_iter()
                .find(|batch| batch.position == entry.position);
            batch.map(|batch| (entry, batch))
        }) {
            assert_eq!(entry.offset, batch.facts.last_offset);
        }
    }
}

#[test]
fn feeding_the_batches_gives_the_indexes_kafka_wrote() {
    let mut state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
    for base in SEGMENTS {
        let mut indexes = SegmentIndexes::new(Offset(base), INDEX_BYTES);
        for batch in batches(base) {
            if RESTARTS.contains(&batch.facts.base_offset.0) {
                indexes.close().unwrap();
                let largest = indexes.largest_timestamp();
                indexes = SegmentIndexes::from_parts(indexes.offset, indexes.time, indexes.txn, largest);
            }
            let indexed = IndexedBatch {
                last_offset: batch.facts.last_offset,
                position: batch.position,
                size: batch.size,
                max_timestamp: batch.facts.max_timestamp,
            };
            assert!(
                !indexes.must_roll_before(indexed.last_offset),
                "Kafka has rolled where it had to"
            );
            indexes.append(indexed, INTERVAL_BYTES).unwrap();
            if let Some(txn) = state.apply(&batch.facts, NOW).and_then(aborted) {
                indexes.txn.append(txn).unwrap();
            }
        }
        indexes.close().unwrap();
        let mut rebuilt = [Vec::new(), Vec::new(), Vec::new()];
        indexes.offset.encode_from(0, &mut rebuilt[0]);
        indexes.time.encode_from(0, &mut rebuilt[1]);
        indexes.txn.encode_from(0, &mut rebuilt[2]);
        let kafkas = [
            segment_file(base, "index"),
            segment_file(base, "timeindex"),
            txn_index_file(base),
        ];
        assert_eq!(rebuilt, kafkas, "segment {base}");
    }
    assert_eq!(state.end_offset(), Offset(79));
}

#[test]
fn snapshots_are_read_and_written_back_byte_for_byte() {
    for base in [11, 52, 57, 62, 79] {
        let kafkas = segment_file(base, "snapshot");
        let entries = snapshot::decode(&kafkas).unwrap();
        assert_eq!(entries.len(), 3, "snapshot {base}");
        assert_eq!(snapshot::encode(entries.into_iter()), kafkas, "snapshot {base}");
        let mut state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
        state.load_snapshot(Offset(base), &kafkas, NOW, i64::MAX).unwrap();
        assert_eq!(state.encode_snapshot(), kafkas, "snapshot {base}");
    }
}

/// What Kafka's format holds of each producer, in the order of the ids.
fn kafkas_view(file: &[u8]) -> Vec<snapshot::SnapshotEntry> {
    let mut entries = snapshot::decode(file).expect("a sound snapshot");
    for entry in &mut entries {
        entry.older.clear();
        entry.active_ms = entry.last_timestamp;
    }
    entries.sort_by_key(|entry| entry.producer_id);
    entries
}

/// From each snapshot to the next one with no restart (and so no expiry) of Kafka between them.
#[test]
fn applying_the_batches_behind_a_snapshot_gives_the_next_one() {
    for (from, to) in [(0, 11), (57, 62), (62, 79)] {
        let mut state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
        if from > 0 {
            let older = segment_file(from, "snapshot");
            state.load_snapshot(Offset(from), &older, NOW, i64::MAX).unwrap();
        }
        for batch in batches(from)
            .iter()
            .filter(|batch| batch.facts.base_offset < Offset(to))
        {
            state.apply(&batch.facts, NOW);
        }
        assert_eq!(state.end_offset(), Offset(to));
        let kafkas = kafkas_view(&segment_file(to, "snapshot"));
        assert_eq!(
            kafkas_view(&state.encode_snapshot()),
            kafkas,
            "snapshots {from} to {to}"
        );
    }
}

#[test]
fn the_transaction_left_open_holds_the_last_stable_offset() {
    let mut state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
    state
        .load_snapshot(Offset(79), &segment_file(79, "snapshot"), NOW, i64::MAX)
        .unwrap();
    let (first, producer) = state.oldest_transaction().expect("one was left open");
    assert_eq!(first, Offset(78));
    assert_eq!(producer.transaction_start, Some(first));
    assert_eq!(state.last_stable_offset(Offset::ZERO, Offset(79)), Offset(78));
}

#[test]
fn leader_epochs_are_read_written_and_found_in_the_batches() {
    let kafkas = file("fx-0/leader-epoch-checkpoint");
    let epochs = LeaderEpochs::decode(&kafkas).unwrap();
    assert_eq!(epochs.encode().as_bytes(), kafkas);
    let mut rebuilt = LeaderEpochs::new();
    for batch in SEGMENTS.into_iter().flat_map(batches) {
        rebuilt.assign(LeaderEpoch(batch.leader_epoch), batch.facts.base_offset);
        assert_eq!(
            epochs.epoch_for(batch.facts.last_offset),
            Some(LeaderEpoch(batch.leader_epoch))
        );
    }
    assert_eq!(rebuilt, epochs);
}

#[test]
fn preallocated_indexes_of_a_running_broker_are_read() {
    let name = "00000000000000000062";
    let file = |suffix: &str| file(&format!("killed/{name}.{suffix}"));
    assert_eq!(
        (file("index").len(), file("timeindex").len()),
        (INDEX_BYTES, INDEX_BYTES)
    );
    let offset = OffsetIndex::decode(Offset(62), INDEX_BYTES, &file("index")).unwrap();
    let time = TimeIndex::decode(Offset(62), INDEX_BYTES, &file("timeindex")).unwrap();
    let closed = OffsetIndex::decode(Offset(62), INDEX_BYTES, &segment_file(62, "index")).unwrap();
    assert!(offset.iter().eq(closed.iter()));
    let closed = TimeIndex::decode(Offset(62), INDEX_BYTES, &segment_file(62, "timeindex")).unwrap();
    assert!(
        time.iter().eq(closed.iter().take(time.len())),
        "a clean stop adds at most the last entry"
    );
    assert!(time.len() + 1 >= closed.len());
}

/// Ours, with the trailer that Kafka does not read.
#[test]
fn snapshots_with_a_trailer_are_read_and_written_back_byte_for_byte() {
    let ours = file("../penstock/producer-window.snapshot");
    let entries = snapshot::decode(&ours).unwrap();
    assert!(
        entries
            .iter()
            .all(|entry| entry.older.len() == 4 && entry.active_ms == 1_700_000_500_000)
    );
    assert_eq!(snapshot::encode(entries.into_iter()), ours);
    let mut state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
    state.load_snapshot(Offset(14), &ours, NOW, i64::MAX).unwrap();
    assert_eq!(state.batches(ProducerId(9)).count(), 5);
    assert_eq!(state.encode_snapshot(), ours);
}
