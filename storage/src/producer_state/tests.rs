//! Named cases of `kafka-surface.md` §2.2 and §2.10; [`histories`] has random ones, [`snapshots`] the file.

use super::*;

mod histories;
mod snapshots;

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
