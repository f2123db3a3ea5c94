//! Which transactions of a cleaned range were aborted, and which markers nobody needs any more (CP-5). Fed with the batches of
//! the range in order. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::log::batch::BatchHeader;
use crate::producer_state::Marker;
use crate::segment::txn_index::AbortedTxn;
use crate::types::{Offset, ProducerId};

/// The transactions of one pass. Memory: 32 bytes an aborted transaction of the range, 16 a committed one that is open at
/// the place that is read.
#[derive(Debug, Default)]
pub struct Transactions {
    /// Those that begin behind what was read, by first offset.
    aborted: VecDeque<AbortedTxn>,
    /// Aborted ones that are open where the pass is, and whether a batch of theirs was seen.
    open_aborted: BTreeMap<ProducerId, (AbortedTxn, bool)>,
    /// Producers with a batch of a transaction that was committed.
    open_committed: BTreeSet<ProducerId>,
}

/// What is known of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerFate {
    /// No batch of its transaction was seen: it may go when its own time has come.
    pub is_spent: bool,
    /// Its transaction was aborted and left a batch: the transaction index still needs it.
    pub indexed: Option<AbortedTxn>,
}

impl Transactions {
    /// `aborted` are those that overlap the range, in any order.
    #[must_use]
    pub fn new(mut aborted: Vec<AbortedTxn>) -> Self {
        aborted.sort_unstable_by_key(|txn| (txn.first_offset, txn.last_offset));
        Self {
            aborted: aborted.into(),
            ..Self::default()
        }
    }

    /// A batch of records comes next. Returns whether its transaction was aborted.
    pub fn on_batch(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.wire.attributes.is_transactional() {
            return false;
        }
        let producer = ProducerId(header.wire.producer_id);
        if let Some((_, seen)) = self.open_aborted.get_mut(&producer) {
            *seen = true;
            return true;
        }
        self.open_committed.insert(producer);
        false
    }

    /// A control batch comes next. `marker` is what it holds, `None` when its record was removed earlier.
    pub fn on_control(&mut self, header: &BatchHeader, marker: Option<Marker>) -> MarkerFate {
        self.begin_up_to(header.last_offset());
        let producer = ProducerId(header.wire.producer_id);
        match marker {
            // Nothing is left of it.
            None => MarkerFate {
                is_spent: true,
                indexed: None,
            },
            Some(marker) if marker.aborted => {
                let ended = self.open_aborted.remove(&producer);
                let indexed = ended.filter(|(_, seen)| *seen).map(|(txn, _)| txn);
                MarkerFate {
                    is_spent: indexed.is_none(),
                    indexed,
                }
            }
            Some(_) => MarkerFate {
                is_spent: !self.open_committed.remove(&producer),
                indexed: None,
            },
        }
    }

    /// Transactions that begin at or below `offset` are open now.
    fn begin_up_to(&mut self, offset: Offset) {
        while let Some(txn) = self.aborted.front().filter(|txn| txn.first_offset <= offset) {
            self.open_aborted.entry(txn.producer_id).or_insert((*txn, false));
            self.aborted.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::record::{BatchBuilder, BatchOptions, NewRecord, TransactionEnd};

    const ABORT: Option<Marker> = Some(Marker {
        aborted: true,
        coordinator_epoch: 0,
    });
    const COMMIT: Option<Marker> = Some(Marker {
        aborted: false,
        coordinator_epoch: 0,
    });

    fn data(producer_id: i64, base_offset: i64) -> BatchHeader {
        let mut builder = BatchBuilder::plain(BatchOptions {
            base_offset,
            producer_id,
            producer_epoch: 0,
            base_sequence: 0,
            transactional: true,
            ..BatchOptions::default()
        });
        builder.append(&NewRecord::default()).expect("fits");
        BatchHeader::parse(&builder.finish().expect("fits").bytes).expect("a batch")
    }

    fn control(producer_id: i64, base_offset: i64) -> BatchHeader {
        let end = TransactionEnd {
            committed: true,
            coordinator_epoch: 0,
        };
        let mut bytes = end.marker_batch(producer_id, 0, 0).bytes.to_vec();
        bytes[..8].copy_from_slice(&base_offset.to_be_bytes());
        BatchHeader::parse(&bytes).expect("a batch")
    }

    fn txn(producer_id: i64, first: i64, last: i64) -> AbortedTxn {
        AbortedTxn {
            producer_id: ProducerId(producer_id),
            first_offset: Offset(first),
            last_offset: Offset(last),
            last_stable_offset: Offset(last + 1),
        }
    }

    #[test]
    fn records_are_aborted_between_the_first_offset_and_the_marker() {
        let mut txns = Transactions::new(vec![txn(2, 3, 5), txn(1, 1, 4)]);
        assert!(!txns.on_batch(&data(1, 0)), "before the transaction");
        let plain = txns.on_control(&control(1, 0), COMMIT);
        assert!(!plain.is_spent, "a batch of it was seen");
        assert!(txns.on_batch(&data(1, 1)));
        assert!(!txns.on_batch(&data(3, 2)));
        assert!(txns.on_batch(&data(2, 3)));
        let ended = txns.on_control(&control(1, 4), ABORT);
        assert_eq!((ended.is_spent, ended.indexed), (false, Some(txn(1, 1, 4))));
        assert!(txns.on_control(&control(2, 5), ABORT).indexed.is_some());
        assert!(!txns.on_batch(&data(2, 6)), "the next transaction");
    }

    #[test]
    fn a_marker_is_spent_when_no_batch_of_its_transaction_is_left() {
        let mut txns = Transactions::new(vec![txn(1, 0, 2)]);
        let spent = MarkerFate {
            is_spent: true,
            indexed: None,
        };
        assert_eq!(txns.on_control(&control(1, 2), ABORT), spent);
        assert_eq!(txns.on_control(&control(1, 3), COMMIT), spent);
        assert_eq!(txns.on_control(&control(1, 4), None), spent);
        txns.on_batch(&data(1, 5));
        assert!(!txns.on_control(&control(1, 6), COMMIT).is_spent);
    }
}
