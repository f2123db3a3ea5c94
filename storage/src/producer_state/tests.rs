//! Named cases of `kafka-surface.md` §2.2 and §2.10, and random histories against a model that keeps everything.

use proptest::prelude::*;

use super::*;

const DAY_MS: i64 = 86_400_000;

/// A log with its producer state: batches get the next offsets.
struct Log {
    state: ProducerState,
    end: i64,
    now: i64,
}

impl Log {
    fn new() -> Self {
        Self {
            state: ProducerState::new(Offset::ZERO, PRODUCERS_MAX),
            end: 0,
            now: 1_000_000,
        }
    }

    fn facts(
        &self,
        producer_id: i64,
        epoch: i16,
        sequence: i32,
        records: i64,
        kind: BatchKind,
    ) -> BatchFacts {
        BatchFacts {
            producer_id: ProducerId(producer_id),
            producer_epoch: epoch,
            base_sequence: sequence,
            base_offset: Offset(self.end),
            last_offset: Offset(self.end + records - 1),
            max_timestamp: self.now,
            kind,
        }
    }

    fn append(
        &mut self,
        batch: &BatchFacts,
        origin: AppendOrigin,
        version: i16,
    ) -> Result<Outcome, ProducerError> {
        let outcome = self.state.check(batch, origin, version)?;
        if outcome == Outcome::Append {
            self.state.apply(batch, self.now);
            self.end = batch.last_offset.0 + 1;
        }
        Ok(outcome)
    }

    fn plain(
        &mut self,
        producer_id: i64,
        epoch: i16,
        sequence: i32,
        records: i64,
    ) -> Result<Outcome, ProducerError> {
        let batch = self.facts(producer_id, epoch, sequence, records, BatchKind::Plain);
        self.append(&batch, AppendOrigin::Client, 0)
    }

    fn txn(&mut self, producer_id: i64, epoch: i16, sequence: i32) -> Result<Outcome, ProducerError> {
        let batch = self.facts(producer_id, epoch, sequence, 1, BatchKind::Transactional);
        self.append(&batch, AppendOrigin::Client, 2)
    }

    fn marker(
        &mut self,
        producer_id: i64,
        epoch: i16,
        coordinator_epoch: i32,
        version: i16,
    ) -> Result<Option<CompletedTxn>, ProducerError> {
        let kind = BatchKind::Marker(Marker {
            aborted: true,
            coordinator_epoch,
        });
        let batch = self.facts(producer_id, epoch, -1, 1, kind);
        self.state.check(&batch, AppendOrigin::Coordinator, version)?;
        self.end += 1;
        Ok(self.state.apply(&batch, self.now))
    }

    fn lso(&self, high_watermark: i64) -> i64 {
        self.state
            .last_stable_offset(Offset::ZERO, Offset(high_watermark))
            .0
    }
}

fn out_of_order(expected: i32, found: i32) -> Result<Outcome, ProducerError> {
    Err(ProducerError::OutOfOrderSequence {
        producer_id: ProducerId(7),
        expected,
        found,
    })
}

fn duplicate(result: Result<Outcome, ProducerError>) -> (i64, i64) {
    match result {
        Ok(Outcome::Duplicate(batch)) => (batch.first_offset.0, batch.last_offset.0),
        other => panic!("not a duplicate: {other:?}"),
    }
}

const APPEND: Result<Outcome, ProducerError> = Ok(Outcome::Append);

#[test]
fn pr_41_a_retry_of_one_of_the_last_five_batches_gets_the_original_offsets() {
    let mut log = Log::new();
    for number in 0..7 {
        assert_eq!(log.plain(7, 0, number * 3, 3), APPEND);
    }
    for number in 2..7 {
        let first = i64::from(number * 3);
        assert_eq!(duplicate(log.plain(7, 0, number * 3, 3)), (first, first + 2));
    }
    assert_eq!(
        log.plain(7, 0, 3, 3),
        out_of_order(21, 3),
        "older than the window"
    );
    assert_eq!(
        log.plain(7, 0, 18, 2),
        out_of_order(21, 18),
        "not the same last sequence"
    );
    assert_eq!(
        log.plain(7, 0, 19, 2),
        out_of_order(21, 19),
        "not the same first sequence"
    );
    assert_eq!(log.end, 21);
    assert_eq!(log.state.batches(ProducerId(7)).count(), 5);
}

#[test]
fn pr_42_sequences_follow_each_other_and_wrap() {
    let mut log = Log::new();
    assert_eq!(log.plain(7, 0, i32::MAX - 3, 2), APPEND);
    assert_eq!(log.plain(7, 0, i32::MAX, 1), out_of_order(i32::MAX - 1, i32::MAX));
    assert_eq!(log.plain(7, 0, i32::MAX - 1, 4), APPEND, "its last sequence is 1");
    assert_eq!(log.plain(7, 0, 1, 1), out_of_order(2, 1));
    assert_eq!(duplicate(log.plain(7, 0, i32::MAX - 1, 4)), (2, 5));
    assert_eq!(log.plain(7, 0, 2, 1), APPEND);
    let mut log = Log::new();
    assert_eq!(log.plain(7, 0, i32::MAX, 1), APPEND);
    assert_eq!(log.plain(7, 0, 1, 1), out_of_order(0, 1));
    assert_eq!(log.plain(7, 0, 0, 1), APPEND);
}

#[test]
fn pr_43_a_higher_epoch_starts_at_zero_and_forgets_the_window() {
    let mut log = Log::new();
    assert_eq!(log.plain(7, 0, 0, 5), APPEND);
    assert_eq!(log.plain(7, 1, 5, 1), out_of_order(0, 5));
    assert_eq!(log.plain(7, 1, 0, 5), APPEND);
    assert_eq!(duplicate(log.plain(7, 1, 0, 5)), (5, 9));
    assert_eq!(log.state.batches(ProducerId(7)).count(), 1);
}

#[test]
fn pr_44_a_lower_epoch_is_fenced_even_where_its_sequences_match() {
    let mut log = Log::new();
    log.plain(7, 2, 0, 5).unwrap();
    let fenced = Err(ProducerError::InvalidProducerEpoch {
        producer_id: ProducerId(7),
        current: 2,
        found: 1,
    });
    assert_eq!(log.plain(7, 1, 0, 5), fenced);
    let batch = log.facts(7, 1, -1, 1, BatchKind::Transactional);
    assert_eq!(log.append(&batch, AppendOrigin::Coordinator, 0), fenced);
}

#[test]
fn pr_45_an_unknown_producer_starts_anywhere_but_with_transactions_v2() {
    let mut log = Log::new();
    assert_eq!(log.plain(7, 3, 41, 2), APPEND);
    assert_eq!(log.plain(7, 3, 43, 2), APPEND);
    let mut log = Log::new();
    assert_eq!(log.txn(7, 3, 41), out_of_order(0, 41));
    let batch = log.facts(7, 3, 41, 1, BatchKind::Transactional);
    assert_eq!(
        log.append(&batch, AppendOrigin::Client, 1),
        APPEND,
        "before version 2"
    );
    let mut log = Log::new();
    assert_eq!(log.txn(7, 3, 0), APPEND);
}

#[test]
fn pr_46_replication_checks_nothing_and_coordinators_have_no_sequences() {
    let mut log = Log::new();
    for (epoch, sequence) in [(5, 17), (3, 2), (3, 900)] {
        let batch = log.facts(7, epoch, sequence, 2, BatchKind::Plain);
        assert_eq!(log.append(&batch, AppendOrigin::Replication, 0), APPEND);
    }
    let batch = log.facts(7, 3, -1, 1, BatchKind::Plain);
    assert_eq!(log.append(&batch, AppendOrigin::Coordinator, 0), APPEND);
    assert_eq!(
        log.append(&batch, AppendOrigin::Coordinator, 0),
        APPEND,
        "never a duplicate"
    );
    assert_eq!(log.state.producer(ProducerId(7)).unwrap().last_sequence, -1);
}

#[test]
fn pr_47_br_014_an_expired_producer_goes_on_where_it_was() {
    let mut log = Log::new();
    log.plain(7, 0, 0, 7).unwrap();
    log.txn(8, 0, 0).unwrap();
    log.now += 1999;
    assert_eq!(log.state.expire(log.now, 2000, 100), 0);
    log.now += 1;
    assert_eq!(log.state.expire(log.now, 2000, 100), 1);
    assert_eq!(log.state.producer(ProducerId(7)), None);
    assert!(
        log.state.producer(ProducerId(8)).is_some(),
        "an open transaction keeps its producer"
    );
    assert_eq!(log.plain(7, 0, 7, 8), APPEND);
    log.marker(8, 1, 0, 2).unwrap();
    log.now += 2000;
    assert_eq!(log.state.expire(log.now, 2000, 100), 2);
    assert!(log.state.is_empty());
}

#[test]
fn expiry_counts_from_the_write_and_not_from_the_records_timestamps() {
    let mut log = Log::new();
    let mut batch = log.facts(7, 0, 0, 1, BatchKind::Plain);
    batch.max_timestamp = 12;
    log.append(&batch, AppendOrigin::Client, 0).unwrap();
    assert_eq!(log.state.expire(log.now + DAY_MS - 1, DAY_MS, 100), 0);
    // The same across a snapshot: the trailer knows.
    let file = log.state.encode_snapshot();
    log.state
        .load_snapshot(Offset(1), &file, log.now + DAY_MS - 1, DAY_MS)
        .unwrap();
    assert_eq!(log.state.len(), 1);
    log.state
        .load_snapshot(Offset(1), &file, log.now + DAY_MS, DAY_MS)
        .unwrap();
    assert_eq!(log.state.len(), 0);
}

#[test]
fn expiry_goes_round_in_bounded_steps() {
    let mut log = Log::new();
    for producer in 0..1000 {
        log.now = producer;
        log.plain(producer, 0, 0, 1).unwrap();
    }
    let mut gone = 0;
    for _ in 0..10 {
        gone += log.state.expire(1499, 1000, 100);
    }
    assert_eq!((gone, log.state.len()), (500, 500));
    assert!((0..1000).all(|id| log.state.producer(ProducerId(id)).is_some() == (id >= 500)));
}

#[test]
fn br_049_deleting_all_records_keeps_the_producer() {
    let mut log = Log::new();
    log.plain(7, 0, 0, 5).unwrap();
    log.state.on_log_start(Offset(5));
    assert_eq!(duplicate(log.plain(7, 0, 0, 5)), (0, 4));
    assert_eq!(log.plain(7, 0, 5, 1), APPEND);
    let file = log.state.encode_snapshot();
    log.state
        .load_snapshot(Offset(6), &file, log.now, DAY_MS)
        .unwrap();
    log.state.on_log_start(Offset(6));
    assert_eq!(log.plain(7, 0, 6, 1), APPEND);
}

#[test]
fn pr_48_the_log_start_drops_transactions_that_ended_below_it() {
    let mut log = Log::new();
    log.txn(7, 0, 0).unwrap();
    log.marker(7, 1, 0, 2).unwrap();
    log.txn(8, 0, 0).unwrap();
    assert_eq!(log.state.first_unstable_offset(Offset::ZERO), Some(Offset(0)));
    log.state.on_log_start(Offset(2));
    assert_eq!(log.state.first_unstable_offset(Offset(2)), Some(Offset(2)));
    log.state.on_log_start(Offset(9));
    assert_eq!(
        log.state.first_unstable_offset(Offset(9)),
        Some(Offset(9)),
        "open, but not below the log start"
    );
    assert_eq!(log.state.end_offset(), Offset(9));
}

#[test]
fn pr_49_the_window_survives_a_restart() {
    let mut log = Log::new();
    for number in 0..5 {
        log.plain(7, 0, number, 1).unwrap();
    }
    let file = log.state.encode_snapshot();
    log.state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
    log.state
        .load_snapshot(Offset(5), &file, log.now, DAY_MS)
        .unwrap();
    for number in 0..5 {
        assert_eq!(
            duplicate(log.plain(7, 0, number, 1)),
            (i64::from(number), i64::from(number))
        );
    }
    assert_eq!(log.plain(7, 0, 5, 1), APPEND);
    assert_eq!(log.plain(7, 0, 0, 1), out_of_order(6, 0));
}

#[test]
fn a_snapshot_leaves_out_the_windows_of_those_who_have_given_up_long_ago() {
    let mut log = Log::new();
    let mut windows_after = |silence| {
        for number in 0..3 {
            log.plain(7, 0, number, 1).unwrap();
        }
        log.now += silence;
        log.plain(8, 0, 0, 1).unwrap();
        let entries = snapshot::decode(&log.state.encode_snapshot()).unwrap();
        log.state.reset(Offset::ZERO);
        entries.iter().map(|entry| entry.older.len()).collect::<Vec<_>>()
    };
    assert_eq!(windows_after(WINDOW_KEPT_MS), [2, 0]);
    assert_eq!(windows_after(WINDOW_KEPT_MS + 1), [0, 0]);
}

#[test]
fn fe_12_the_last_stable_offset_waits_for_markers_below_the_high_watermark() {
    let mut log = Log::new();
    log.plain(1, 0, 0, 3).unwrap();
    log.txn(7, 0, 0).unwrap();
    log.txn(8, 0, 0).unwrap();
    assert_eq!((log.lso(2), log.lso(5)), (2, 3));
    let completed = log.marker(7, 1, 0, 2).unwrap().unwrap();
    assert_eq!(completed.first_offset, Offset(3));
    assert_eq!(
        (completed.last_offset, completed.last_stable_offset),
        (Offset(5), Offset(4))
    );
    log.state.on_high_watermark(Offset(5));
    assert_eq!(log.lso(5), 3, "the marker at 5 is not below the high watermark");
    log.state.on_high_watermark(Offset(6));
    assert_eq!(log.lso(6), 4, "the other transaction is open");
    let completed = log.marker(8, 1, 0, 2).unwrap().unwrap();
    assert_eq!(completed.last_stable_offset, Offset(7));
    log.state.on_high_watermark(Offset(7));
    assert_eq!(log.lso(7), 7);
}

#[test]
fn tx_24_plain_records_are_refused_while_a_transaction_is_open() {
    let mut log = Log::new();
    log.txn(7, 0, 0).unwrap();
    assert_eq!(
        log.plain(7, 0, 1, 1),
        Err(ProducerError::InvalidTxnState(ProducerId(7)))
    );
    assert_eq!(log.txn(7, 0, 1), APPEND);
    assert!(log.state.has_open_transaction(ProducerId(7), 0));
    assert!(!log.state.has_open_transaction(ProducerId(7), 1));
    let (first, producer) = log.state.oldest_transaction().unwrap();
    assert_eq!((first, producer.producer_id), (Offset(0), ProducerId(7)));
    log.marker(7, 0, 0, 0).unwrap();
    assert_eq!(
        log.plain(7, 0, 2, 1),
        APPEND,
        "the epoch did not change, so the sequence goes on"
    );
}

#[test]
fn tx_25_a_version_2_marker_must_raise_the_epoch_but_may_come_twice() {
    let mut log = Log::new();
    let fenced = |current, found| {
        Err(ProducerError::InvalidProducerEpoch {
            producer_id: ProducerId(7),
            current,
            found,
        })
    };
    log.txn(7, 4, 0).unwrap();
    assert_eq!(log.marker(7, 4, 0, 2), fenced(4, 4));
    assert_eq!(log.marker(7, 3, 0, 2), fenced(4, 3));
    assert!(log.marker(7, 5, 0, 2).unwrap().is_some());
    assert_eq!(
        log.marker(7, 5, 0, 2),
        Ok(None),
        "the same marker again ends nothing"
    );
    assert_eq!(log.marker(7, 4, 0, 2), fenced(5, 4));
    // The next transaction has the marker's epoch; a late marker of the last one must not end it.
    assert_eq!(log.txn(7, 5, 0), APPEND);
    assert_eq!(log.marker(7, 5, 0, 2), fenced(5, 5));
    assert!(
        log.marker(7, 5, 0, 1).unwrap().is_some(),
        "before version 2 the epochs are equal"
    );
}

#[test]
fn tx_25_a_replaced_coordinator_is_fenced() {
    let mut log = Log::new();
    log.txn(7, 0, 0).unwrap();
    log.marker(7, 0, 9, 0).unwrap();
    log.txn(7, 0, 1).unwrap();
    let fenced = ProducerError::CoordinatorFenced {
        producer_id: ProducerId(7),
        current: 9,
        found: 8,
    };
    assert_eq!(log.marker(7, 0, 8, 0), Err(fenced));
    assert!(log.marker(7, 0, 9, 0).unwrap().is_some());
}

#[test]
fn tx_26_a_marker_of_a_new_epoch_resets_the_sequences() {
    let mut log = Log::new();
    log.txn(7, 0, 0).unwrap();
    log.marker(7, 1, 0, 2).unwrap();
    assert_eq!(log.txn(7, 1, 1), out_of_order(0, 1));
    assert_eq!(log.txn(7, 1, 0), APPEND);
}

#[test]
fn tx_27_a_marker_without_records_moves_nothing() {
    let mut log = Log::new();
    assert_eq!(log.marker(7, 1, 3, 2), Ok(None));
    assert_eq!(log.lso(1), 1);
    assert_eq!(log.state.producer(ProducerId(7)).unwrap().coordinator_epoch, 3);
    let empty = log.facts(9, 0, -1, 1, BatchKind::EmptyControl);
    assert_eq!(log.append(&empty, AppendOrigin::Replication, 0), APPEND);
    assert_eq!(log.state.producer(ProducerId(9)), None);
}

#[test]
fn batches_without_a_producer_only_move_the_end() {
    let mut log = Log::new();
    assert_eq!(log.plain(-1, -1, -1, 4), APPEND);
    assert_eq!(
        log.plain(-5, 0, 3, 1),
        APPEND,
        "any negative id is none, as in Kafka"
    );
    assert!(log.state.is_empty());
    assert_eq!(log.state.end_offset(), Offset(5));
}

#[test]
fn at_the_bound_the_longest_silent_producer_makes_room() {
    let mut log = Log::new();
    log.state = ProducerState::new(Offset::ZERO, 3);
    for producer in 1..=3 {
        log.now += 1;
        log.plain(producer, 0, 0, 1).unwrap();
    }
    log.now += 1;
    log.plain(1, 0, 1, 1).unwrap();
    log.now += 1;
    log.txn(4, 0, 0).unwrap();
    assert_eq!(log.state.len(), 3);
    assert_eq!(log.state.producer(ProducerId(2)), None);
    log.txn(5, 0, 0).unwrap();
    log.txn(6, 0, 0).unwrap();
    assert_eq!(log.txn(7, 0, 0), Err(ProducerError::TooManyProducers { max: 3 }));
    let batch = log.facts(8, 0, 0, 1, BatchKind::Transactional);
    assert_eq!(
        log.append(&batch, AppendOrigin::Replication, 0),
        APPEND,
        "what the leader has is a fact"
    );
    assert_eq!((log.state.len(), log.lso(100)), (4, 4));
}

#[test]
fn memory_stays_within_what_is_documented() {
    let mut log = Log::new();
    for producer in 0..100_000 {
        log.plain(producer, 0, 0, 1).unwrap();
    }
    assert!(
        log.state.heap_bytes() < 12 << 20,
        "{} bytes",
        log.state.heap_bytes()
    );
    for round in 1..6 {
        for producer in 0..100_000 {
            log.plain(producer, 0, round, 1).unwrap();
        }
    }
    assert!(
        log.state.heap_bytes() < 21 << 20,
        "{} bytes",
        log.state.heap_bytes()
    );
    log.state.expire(log.now + DAY_MS, DAY_MS, usize::MAX);
    assert!(
        log.state.heap_bytes() < 1 << 10,
        "{} bytes",
        log.state.heap_bytes()
    );
}

#[test]
fn a_snapshot_is_kafkas_version_1_and_extends_it_only_where_it_must() {
    let mut log = Log::new();
    log.plain(7, 2, 40, 3).unwrap();
    let file = log.state.encode_snapshot();
    let entry = [
        &7i64.to_be_bytes()[..],
        &2i16.to_be_bytes(),
        &42i32.to_be_bytes(),
        &2i64.to_be_bytes(),
        &2i32.to_be_bytes(),
        &log.now.to_be_bytes(),
        &(-1i32).to_be_bytes(),
        &(-1i64).to_be_bytes(),
    ]
    .concat();
    assert_eq!(file[..2], [0, 1]);
    assert_eq!(file[6..10], [0, 0, 0, 1]);
    assert_eq!(file[10..], entry);
    assert_eq!(file[2..6], crc32c::crc32c(&file[6..]).to_be_bytes());
    log.plain(7, 2, 43, 1).unwrap();
    let file = log.state.encode_snapshot();
    assert_eq!(file.len(), 10 + 46 + 8 + 17 + 24);
    assert_eq!(&file[56..60], b"PSW1");
}

/// The file with a change and a CRC that fits it.
fn changed(file: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut file = file.to_vec();
    change(&mut file);
    let crc = crc32c::crc32c(&file[6..]).to_be_bytes();
    file[2..6].copy_from_slice(&crc);
    file
}

#[test]
fn corrupt_snapshots_are_refused() {
    let mut log = Log::new();
    for (producer, sequence) in [(7, 0), (7, 1), (8, 0), (8, 1)] {
        log.plain(producer, 0, sequence, 1).unwrap();
    }
    let file = log.state.encode_snapshot();
    assert_eq!(snapshot::decode(&file).unwrap().len(), 2);
    for len in 0..file.len() {
        assert!(snapshot::decode(&file[..len]).is_err(), "cut at {len}");
    }
    for byte in 0..file.len() {
        let mut bad = file.clone();
        bad[byte] ^= 0x10;
        assert!(snapshot::decode(&bad).is_err(), "flipped at {byte}");
    }
    let error = |change: &dyn Fn(&mut Vec<u8>)| snapshot::decode(&changed(&file, change)).unwrap_err();
    let truncated = SnapshotError::Truncated { len: file.len() };
    assert_eq!(error(&|f| f[1] = 2), SnapshotError::Version(2));
    assert_eq!(error(&|f| f[6] = 0x7f), truncated);
    assert_eq!(error(&|f| f[6] = 0xff), truncated);
    assert_eq!(
        error(&|f| f[10] = 0xff),
        SnapshotError::Entry { entry: 0 },
        "negative producer id"
    );
    assert_eq!(
        error(&|f| f[56 + 7] = 7),
        SnapshotError::Entry { entry: 1 },
        "the same producer twice"
    );
    assert_eq!(
        error(&|f| f[32] = 0xff),
        SnapshotError::Entry { entry: 0 },
        "negative offset delta"
    );
    assert_eq!(
        error(&|f| f[102 + 7] = 3),
        truncated,
        "more in the trailer than follows"
    );
    assert_eq!(error(&|f| f[110 + 7] = 9), truncated, "a trailer for nobody");
    assert_eq!(
        error(&|f| f[126] = 5),
        truncated,
        "more older batches than a window has"
    );
    // What follows in a file of someone else's is not ours to judge.
    let foreign = changed(&file, |f| f[102] = b'X');
    assert!(
        snapshot::decode(&foreign)
            .unwrap()
            .iter()
            .all(|entry| entry.older.is_empty())
    );
}

/// Everything that was ever appended, looked through from the start at each question.
#[derive(Default)]
struct Model {
    batches: Vec<BatchFacts>,
}

impl Model {
    fn of(&self, producer: ProducerId) -> impl DoubleEndedIterator<Item = &BatchFacts> {
        self.batches
            .iter()
            .filter(move |batch| batch.producer_id == producer)
    }

    fn last_sequence(batch: &BatchFacts) -> i64 {
        let count = batch.last_offset.0 - batch.base_offset.0;
        (i64::from(batch.base_sequence) + count) % (1 << 31)
    }

    fn open_since(&self, producer: ProducerId) -> Option<Offset> {
        let mut open = None;
        for batch in self.of(producer) {
            match batch.kind {
                BatchKind::Transactional => open = open.or(Some(batch.base_offset)),
                BatchKind::Marker(_) => open = None,
                _ => {}
            }
        }
        open
    }

    /// The data batches since the epoch last changed.
    fn window(&self, producer: ProducerId) -> Vec<&BatchFacts> {
        let epoch = self.of(producer).next_back().map(|batch| batch.producer_epoch);
        let in_epoch = self
            .of(producer)
            .rev()
            .take_while(|batch| Some(batch.producer_epoch) == epoch);
        in_epoch
            .filter(|batch| !matches!(batch.kind, BatchKind::Marker(_)))
            .collect()
    }

    /// "append", "duplicate OFFSET", or the name of the error.
    fn judge(&self, batch: &BatchFacts, version: i16) -> String {
        let producer = batch.producer_id;
        let Some(latest) = self.of(producer).next_back() else {
            let refused = batch.kind == BatchKind::Transactional && version == 2 && batch.base_sequence != 0;
            return if refused {
                "sequence".into()
            } else {
                "append".into()
            };
        };
        let window = self.window(producer);
        if let BatchKind::Marker(marker) = batch.kind {
            let mut coordinator = self.of(producer).filter_map(|b| match b.kind {
                BatchKind::Marker(marker) => Some(marker.coordinator_epoch),
                _ => None,
            });
            let equal_is_late = version == 2 && self.open_since(producer).is_some();
            let late = batch.producer_epoch < latest.producer_epoch
                || (batch.producer_epoch == latest.producer_epoch && equal_is_late);
            let zombie = coordinator
                .next_back()
                .is_some_and(|epoch| marker.coordinator_epoch < epoch);
            return if late {
                "epoch"
            } else if zombie {
                "coordinator"
            } else {
                "append"
            }
            .into();
        }
        if batch.producer_epoch < latest.producer_epoch {
            return "epoch".into();
        }
        let mut expected = 0;
        if batch.producer_epoch == latest.producer_epoch {
            let same = |old: &&&BatchFacts| {
                old.base_sequence == batch.base_sequence
                    && Self::last_sequence(old) == Self::last_sequence(batch)
            };
            if let Some(original) = window.iter().take(5).rev().find(same) {
                return format!("duplicate {}", original.base_offset);
            }
            expected = window
                .first()
                .map_or(0, |old| (Self::last_sequence(old) + 1) % (1 << 31));
        }
        if i64::from(batch.base_sequence) != expected {
            "sequence".into()
        } else if batch.kind == BatchKind::Plain && self.open_since(producer).is_some() {
            "transaction".into()
        } else {
            "append".into()
        }
    }

    fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let mut first_unstable = high_watermark;
        for (at, batch) in self.batches.iter().enumerate() {
            let ends =
                |b: &BatchFacts| b.producer_id == batch.producer_id && matches!(b.kind, BatchKind::Marker(_));
            let end = self.batches[at..]
                .iter()
                .find(|b| ends(b))
                .map(|b| b.base_offset.0);
            if batch.kind == BatchKind::Transactional && end.is_none_or(|end| end >= high_watermark) {
                first_unstable = first_unstable.min(batch.base_offset.0);
            }
        }
        first_unstable
    }
}

fn name(result: &Result<Outcome, ProducerError>) -> String {
    match result {
        Ok(Outcome::Append) => "append".into(),
        Ok(Outcome::Duplicate(batch)) => format!("duplicate {}", batch.first_offset),
        Err(ProducerError::OutOfOrderSequence { .. }) => "sequence".into(),
        Err(ProducerError::InvalidProducerEpoch { .. }) => "epoch".into(),
        Err(ProducerError::InvalidTxnState(_)) => "transaction".into(),
        Err(ProducerError::CoordinatorFenced { .. }) => "coordinator".into(),
        Err(ProducerError::TooManyProducers { .. }) => "too many".into(),
    }
}

#[derive(Debug, Clone)]
struct Step {
    producer: i64,
    what: u8,
    nearby: i32,
    records: i64,
    epoch_step: i16,
    restart: u8,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0i64..4, 0u8..10, -6i32..4, 1i64..4, 0u8..8, 0u8..12);
    proptest::collection::vec(step, 1..120).prop_map(|steps| {
        let step = |(producer, what, nearby, records, epoch, restart)| Step {
            producer,
            what,
            // Mostly the sequence that comes next.
            nearby: if nearby > 0 { 0 } else { nearby },
            records,
            epoch_step: [0, 0, 0, 0, 0, 1, 1, -1][usize::from(epoch)],
            restart,
        };
        steps.into_iter().map(step).collect()
    })
}

proptest! {
    /// Random clients, coordinators and restarts. Sequences start near the wrap.
    #[test]
    fn decides_as_the_whole_history_would(steps in steps()) {
        let mut model = Model::default();
        let mut log = Log::new();
        for step in steps {
            let producer = ProducerId(step.producer);
            let latest = model.of(producer).next_back();
            let epoch = latest.map_or(3, |batch| batch.producer_epoch);
            let epoch_step = step.epoch_step;
            let next = model.window(producer).first().map_or(i32::MAX - 8, |batch| last_sequence(batch).wrapping_add(1));
            let next = if epoch_step > 0 || latest.is_none() && step.what > 5 { 0 } else { next };
            let sequence = next.wrapping_add(step.nearby) & i32::MAX;
            let version = if step.what % 2 == 0 { 2 } else { 0 };
            let kind = match step.what {
                0 | 1 => {
                    BatchKind::Marker(Marker { aborted: true, coordinator_epoch: 5 + i32::from(epoch_step) })
                }
                2..=6 => BatchKind::Transactional,
                _ => BatchKind::Plain,
            };
            let marker = matches!(kind, BatchKind::Marker(_));
            let (records, sequence) = if marker { (1, -1) } else { (step.records, sequence) };
            let batch = log.facts(step.producer, epoch + epoch_step, sequence, records, kind);
            let origin = if marker { AppendOrigin::Coordinator } else { AppendOrigin::Client };
            let expected = model.judge(&batch, version);
            let result = log.append(&batch, origin, version);
            prop_assert_eq!(name(&result), expected.clone(), "{:?}", batch);
            if expected == "append" {
                model.batches.push(batch);
            }
            if step.restart == 0 {
                let file = log.state.encode_snapshot();
                let end = log.state.end_offset();
                log.state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
                log.state.load_snapshot(end, &file, log.now, DAY_MS).unwrap();
                prop_assert_eq!(&log.state.encode_snapshot(), &file);
            }
            for id in 0..4 {
                let open = log.state.producer(ProducerId(id)).and_then(|view| view.transaction_start);
                prop_assert_eq!(open, model.open_since(ProducerId(id)));
            }
        }
    }

    /// The last stable offset with a high watermark that runs behind, and the transaction index's search against a look
    /// at all transactions, over segments of a few markers each.
    #[test]
    fn stable_offsets_and_aborted_transactions(steps in proptest::collection::vec((0i64..4, 0u8..8, 0i64..6), 1..100)) {
        use crate::segment::txn_index::{AbortedTxn, TxnIndex};
        let mut model = Model::default();
        let mut log = Log::new();
        let mut high_watermark = 0;
        let mut segments = vec![TxnIndex::new(Offset::ZERO)];
        let mut all = Vec::new();
        for (producer, what, amount) in steps {
            let kind = match what {
                0 | 1 => BatchKind::Marker(Marker { aborted: what == 0, coordinator_epoch: 0 }),
                2 => {
                    segments.push(TxnIndex::new(Offset(log.end)));
                    continue;
                }
                3 | 4 => {
                    high_watermark = (high_watermark + amount).min(log.end);
                    log.state.on_high_watermark(Offset(high_watermark));
                    let lso = log.state.last_stable_offset(Offset::ZERO, Offset(high_watermark)).0;
                    prop_assert_eq!(lso, model.last_stable_offset(high_watermark));
                    continue;
                }
                _ => BatchKind::Transactional,
            };
            let batch = log.facts(producer, 0, -1, 1, kind);
            let completed = log.state.apply(&batch, log.now);
            log.end += 1;
            if let Some(txn) = completed.filter(|txn| txn.aborted) {
                let txn = AbortedTxn {
                    producer_id: txn.producer_id,
                    first_offset: txn.first_offset,
                    last_offset: txn.last_offset,
                    last_stable_offset: txn.last_stable_offset,
                };
                segments.last_mut().unwrap().append(txn).unwrap();
                all.push(txn);
            }
            model.batches.push(batch);
        }
        let starts: Vec<i64> = segments.iter().map(|index| index.base_offset().0).collect();
        let stable = model.last_stable_offset(log.end);
        for from in 0..stable {
            for to in from + 1..=stable {
                let first = starts.partition_point(|start| *start <= from) - 1;
                let mut found = Vec::new();
                for index in &segments[first..] {
                    if index.collect_aborted(Offset(from), Offset(to), &mut found) {
                        break;
                    }
                }
                let overlaps = |txn: &&AbortedTxn| txn.last_offset.0 >= from && txn.first_offset.0 < to;
                prop_assert!(found.iter().eq(all.iter().filter(overlaps)), "{}..{}: {:?}", from, to, found);
            }
        }
    }

    #[test]
    fn decoding_a_snapshot_never_panics(body in proptest::collection::vec(any::<u8>(), 0..300), count in 0u8..6) {
        let mut file = vec![0, 1, 0, 0, 0, 0, 0, 0, 0, count];
        file.extend_from_slice(&body);
        let file = changed(&file, |_| {});
        if let Ok(entries) = snapshot::decode(&file) {
            let mut state = ProducerState::new(Offset::ZERO, PRODUCERS_MAX);
            state.load(Offset::ZERO, &entries, 0, i64::MAX);
            prop_assert_eq!(state.len(), entries.len());
        }
    }
}
