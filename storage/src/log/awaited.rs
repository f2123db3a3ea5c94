//! First batches of producers that were refused for a passing reason (no space, too much staged). A log that knows a producer
//! refuses what follows a batch that it could not take; one that does not know it takes any sequence as the first (PR-45), and
//! would put a later batch of the same pipeline before the one that is sent again.

use std::collections::VecDeque;

use crate::producer_state::{AppendOrigin, BatchFacts, BatchKind, ProducerError, ProducerState};
use crate::types::ProducerId;

/// Producers waited for, at most, in one log; the oldest is forgotten then. 16 bytes each, nothing while none is refused.
const AWAITED_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Awaited(VecDeque<Beginning>);

#[derive(Clone, Copy, Debug)]
struct Beginning {
    producer_id: ProducerId,
    epoch: i16,
    sequence: i32,
}

impl Awaited {
    /// Whether a batch of an unknown producer comes before one that has to be sent again.
    ///
    /// # Errors
    /// [`ProducerError::OutOfOrderSequence`] then, which producers that pipeline take for what it is.
    pub(super) fn check(
        &self,
        producers: &ProducerState,
        batch: &BatchFacts,
        origin: AppendOrigin,
    ) -> Result<(), ProducerError> {
        if self.0.is_empty() || !begins(producers, batch, origin) {
            return Ok(());
        }
        match self.find(batch) {
            Some(first) if first.epoch == batch.producer_epoch && batch.base_sequence > first.sequence => {
                Err(ProducerError::OutOfOrderSequence {
                    producer_id: batch.producer_id,
                    expected: first.sequence,
                    found: batch.base_sequence,
                })
            }
            _ => Ok(()),
        }
    }

    /// A batch that may be appended was refused, and will be sent again.
    pub(super) fn refused(&mut self, producers: &ProducerState, batch: &BatchFacts, origin: AppendOrigin) {
        if !begins(producers, batch, origin) {
            return;
        }
        if let Some(first) = self.find(batch)
            && first.epoch == batch.producer_epoch
            && first.sequence <= batch.base_sequence
        {
            return;
        }
        self.appended(batch.producer_id);
        if self.0.len() == AWAITED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Beginning {
            producer_id: batch.producer_id,
            epoch: batch.producer_epoch,
            sequence: batch.base_sequence,
        });
    }

    /// The log knows this producer from now on.
    pub(super) fn appended(&mut self, producer_id: ProducerId) {
        self.0.retain(|first| first.producer_id != producer_id);
    }

    fn find(&self, batch: &BatchFacts) -> Option<&Beginning> {
        self.0.iter().find(|first| first.producer_id == batch.producer_id)
    }
}

/// Whether the batch would be the first of its producer here.
fn begins(producers: &ProducerState, batch: &BatchFacts, origin: AppendOrigin) -> bool {
    let is_data = matches!(batch.kind, BatchKind::Plain | BatchKind::Transactional);
    origin == AppendOrigin::Client
        && is_data
        && batch.has_producer()
        && producers.producer(batch.producer_id).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Offset;

    fn batch(producer: i64, epoch: i16, sequence: i32) -> BatchFacts {
        BatchFacts {
            producer_id: ProducerId(producer),
            producer_epoch: epoch,
            base_sequence: sequence,
            base_offset: Offset(0),
            last_offset: Offset(0),
            max_timestamp: 0,
            kind: BatchKind::Plain,
        }
    }

    fn is_taken(awaited: &Awaited, producers: &ProducerState, batch: &BatchFacts) -> bool {
        awaited.check(producers, batch, AppendOrigin::Client).is_ok()
    }

    #[test]
    fn nothing_of_a_pipeline_overtakes_its_first_refused_batch() {
        let mut producers = ProducerState::new(Offset(0), 10);
        let mut awaited = Awaited::default();
        for sequence in [3, 5] {
            awaited.refused(&producers, &batch(1, 0, sequence), AppendOrigin::Client);
        }
        assert!(!is_taken(&awaited, &producers, &batch(1, 0, 5)));
        assert!(is_taken(&awaited, &producers, &batch(1, 0, 3)));
        assert!(is_taken(&awaited, &producers, &batch(1, 0, 1)));
        assert!(is_taken(&awaited, &producers, &batch(1, 1, 5)), "another epoch");
        assert!(
            is_taken(&awaited, &producers, &batch(2, 0, 5)),
            "another producer"
        );
        assert!(is_taken(&awaited, &producers, &batch(-1, -1, -1)), "no producer");
        producers.apply(&batch(1, 0, 3), 0);
        assert!(
            is_taken(&awaited, &producers, &batch(1, 0, 5)),
            "known: its own state decides"
        );
        awaited.appended(ProducerId(1));
        assert!(awaited.0.is_empty());
    }

    #[test]
    fn it_is_bounded_and_knows_only_who_begins() {
        let mut producers = ProducerState::new(Offset(0), 10);
        producers.apply(&batch(7, 0, 0), 0);
        let mut awaited = Awaited::default();
        awaited.refused(&producers, &batch(7, 0, 1), AppendOrigin::Client);
        awaited.refused(&producers, &batch(8, 0, 1), AppendOrigin::Coordinator);
        awaited.refused(&producers, &batch(-1, -1, -1), AppendOrigin::Client);
        assert!(awaited.0.is_empty());
        for producer in 0..2 * AWAITED_MAX as i64 {
            awaited.refused(&producers, &batch(100 + producer, 0, 0), AppendOrigin::Client);
        }
        assert_eq!(awaited.0.len(), AWAITED_MAX);
    }
}
