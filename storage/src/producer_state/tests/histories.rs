//! Random histories against a model that keeps everything.

use proptest::prelude::*;

use super::*;

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
}
