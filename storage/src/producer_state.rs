//! What one log remembers of its idempotent and transactional producers: which batch comes next, which were appended
//! already, which transactions are open, and so where the last stable offset is (KIP-98, KIP-360, KIP-890;
//! `kafka-surface.md` PR-40…49, FE-12, TX-20…28). One per replica, on the log's shard, without I/O and clock.
//!
//! The state runs ahead of the disk: a batch is [`apply`](ProducerState::apply)ed when it is staged, so that the next one can be checked
//! at once. [`Outcome::Duplicate`] says where the original lies: whoever answers waits until that offset is durable, as for the original.

mod entry;
pub mod snapshot;
mod table;

use std::collections::BTreeMap;

use crate::segment::txn_index::AbortedTxn;
use crate::types::{Offset, ProducerId};
pub use entry::{AppendedBatch, BATCHES_RETAINED};
use entry::{Entry, NO_EPOCH};
use snapshot::{SnapshotEntry, SnapshotError};
use table::Table;

/// The default bound on producers of one log; at it, a new one takes the place of one long silent, without a transaction.
pub const PRODUCERS_MAX: usize = 1 << 20;

/// Snapshots keep the older batches of producers that were active this long before the latest one, milliseconds: clients
/// give up on a batch after `delivery.timeout.ms`, 2 minutes by default, so the others' cannot be sent again.
pub const WINDOW_KEPT_MS: i64 = 3_600_000;

/// Of a batch, what producer state depends on; all but the marker is in the batch's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchFacts {
    /// Who wrote it; negative for a producer without idempotence.
    pub producer_id: ProducerId,
    /// The producer's epoch; −1 without idempotence.
    pub producer_epoch: i16,
    /// The sequence of the first record; −1 for batches of coordinators and markers.
    pub base_sequence: i32,
    /// The offset of the first record. Not looked at by [`ProducerState::check`], where it is not assigned yet.
    pub base_offset: Offset,
    /// The last offset; before offsets are assigned, the base offset plus the header's lastOffsetDelta.
    pub last_offset: Offset,
    /// The largest timestamp of the batch, milliseconds since 1970.
    pub max_timestamp: i64,
    /// Records or a marker.
    pub kind: BatchKind,
}

impl BatchFacts {
    /// Whether its producer is idempotent.
    #[must_use]
    pub const fn has_producer(&self) -> bool {
        self.producer_id.0 >= 0
    }
}

/// What a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    /// Records outside of a transaction.
    Plain,
    /// Records of a transaction.
    Transactional,
    /// The end of a transaction, written by its coordinator.
    Marker(Marker),
    /// A control batch whose marker was compacted away: changes nothing.
    EmptyControl,
}

/// The end of a transaction, from the one record of a control batch (TX-25).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Abort or commit.
    pub aborted: bool,
    /// The epoch of the coordinator that wrote it.
    pub coordinator_epoch: i32,
}

/// Who appends, and so how much is checked (PR-46).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOrigin {
    /// A Produce request: duplicates, epoch, sequence, transaction.
    Client,
    /// A group or transaction coordinator: epoch and transaction, no sequence.
    Coordinator,
    /// A follower's fetch, or recovery: nothing; the leader has checked.
    Replication,
}

/// What is to be done with a checked batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Append it, then [`ProducerState::apply`] it.
    Append,
    /// It is in the log already: answer with these offsets once the original is as safe as the request's acks demand.
    Duplicate(AppendedBatch),
}

/// Why a batch must not be appended; each is an error code of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProducerError {
    /// OUT_OF_ORDER_SEQUENCE_NUMBER.
    #[error("producer {producer_id} sent sequence {found} where {expected} comes next")]
    OutOfOrderSequence {
        /// The producer.
        producer_id: ProducerId,
        /// The sequence that would have been right.
        expected: i32,
        /// The batch's first sequence.
        found: i32,
    },
    /// INVALID_PRODUCER_EPOCH: the batch comes from a fenced producer.
    #[error("producer {producer_id} is at epoch {current}, the batch has epoch {found}")]
    InvalidProducerEpoch {
        /// The producer.
        producer_id: ProducerId,
        /// The latest epoch seen here.
        current: i16,
        /// The batch's epoch.
        found: i16,
    },
    /// INVALID_TXN_STATE: records outside of a transaction while one is open (TX-24).
    #[error("producer {0} has an open transaction, the batch is not part of one")]
    InvalidTxnState(ProducerId),
    /// TRANSACTION_COORDINATOR_FENCED: a marker of a coordinator that has been replaced.
    #[error("producer {producer_id}: coordinator epoch {current} was seen, the marker has {found}")]
    CoordinatorFenced {
        /// The producer.
        producer_id: ProducerId,
        /// The latest coordinator epoch seen here.
        current: i32,
        /// The marker's coordinator epoch.
        found: i32,
    },
    /// Every one of the `max` producers this log may remember has an open transaction. Kafka has no such bound; a
    /// retriable code fits.
    #[error("{max} producers have open transactions, which is the most this log can remember")]
    TooManyProducers {
        /// The bound.
        max: usize,
    },
}

/// A transaction that ended with the marker just applied, for the transaction index when it was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompletedTxn {
    /// Whose transaction it was.
    pub producer_id: ProducerId,
    /// The first offset of the transaction in this log.
    pub first_offset: Offset,
    /// The offset of the marker.
    pub last_offset: Offset,
    /// Abort or commit.
    pub aborted: bool,
    /// The last stable offset once the marker is below the high watermark.
    pub last_stable_offset: Offset,
}

impl CompletedTxn {
    /// What the transaction index keeps of it: nothing unless it was aborted.
    #[must_use]
    pub fn aborted_txn(&self) -> Option<AbortedTxn> {
        self.aborted.then_some(AbortedTxn {
            producer_id: self.producer_id,
            first_offset: self.first_offset,
            last_offset: self.last_offset,
            last_stable_offset: self.last_stable_offset,
        })
    }
}

/// One producer, as DescribeProducers shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerView {
    /// The producer.
    pub producer_id: ProducerId,
    /// Its latest epoch.
    pub epoch: i16,
    /// The last sequence it wrote in that epoch; −1 when there is none.
    pub last_sequence: i32,
    /// The timestamp of its last batch or marker.
    pub last_timestamp: i64,
    /// The epoch of the last coordinator that ended a transaction; −1 when there was none.
    pub coordinator_epoch: i32,
    /// The first offset of the open transaction, if any.
    pub transaction_start: Option<Offset>,
}

/// The producers and transactions of one log.
///
/// Commands: [`check`](Self::check) (pure), then [`apply`](Self::apply); [`expire`](Self::expire) from time to time.
/// Movements of the log: [`on_high_watermark`](Self::on_high_watermark), [`on_log_start`](Self::on_log_start),
/// [`reset`](Self::reset) and [`load`](Self::load) (then replay of the batches behind the snapshot by `apply`).
///
/// Memory: 72 bytes a producer in a vector that doubles, about 20 in the index; 104 more once it has a second batch in its
/// epoch (the window). 100,000 producers: about 11 MiB with one batch each, 21 MiB with windows.
#[derive(Debug)]
pub struct ProducerState {
    table: Table,
    producers_max: usize,
    /// Open transactions by their first offset.
    ongoing: BTreeMap<Offset, ProducerId>,
    /// Ended transactions whose marker is not below the high watermark yet: first offset to marker offset.
    unreplicated: BTreeMap<Offset, Offset>,
    end_offset: Offset,
}

impl ProducerState {
    /// Nobody known; the log starts at `end_offset` or its producers are about to be loaded or replayed. `producers_max`
    /// is normally [`PRODUCERS_MAX`].
    #[must_use]
    pub const fn new(end_offset: Offset, producers_max: usize) -> Self {
        Self {
            table: Table::new(),
            producers_max,
            ongoing: BTreeMap::new(),
            unreplicated: BTreeMap::new(),
            end_offset,
        }
    }

    /// The number of producers known.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no producer is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// The offset after the last batch applied: the name of a snapshot taken now.
    #[must_use]
    pub const fn end_offset(&self) -> Offset {
        self.end_offset
    }

    /// The producers, in no particular but reproducible order.
    pub fn producers(&self) -> impl Iterator<Item = ProducerView> + '_ {
        self.table.iter().map(Entry::view)
    }

    /// One producer.
    #[must_use]
    pub fn producer(&self, producer_id: ProducerId) -> Option<ProducerView> {
        self.table.get(producer_id).map(Entry::view)
    }

    /// The batches remembered of a producer, oldest first, at most [`BATCHES_RETAINED`].
    pub fn batches(&self, producer_id: ProducerId) -> impl Iterator<Item = AppendedBatch> + '_ {
        self.table.get(producer_id).into_iter().flat_map(Entry::batches)
    }

    /// Whether the producer has a transaction open here in this epoch: then its next batch needs no verification with the
    /// coordinator (TX-20).
    #[must_use]
    pub fn has_open_transaction(&self, producer_id: ProducerId, epoch: i16) -> bool {
        self.table
            .get(producer_id)
            .is_some_and(|entry| entry.epoch == epoch && entry.txn_first().is_some())
    }

    /// Decides over a batch before it gets offsets. Changes nothing.
    ///
    /// `transaction_version` is the transaction protocol of the request that brings it: for a marker that of
    /// WriteTxnMarkers, for data 2 when Produce ≥ 12 asks for implicit partition adding, else 0.
    ///
    /// # Errors
    /// [`ProducerError`]; nothing may be appended then. Never for [`AppendOrigin::Replication`]: what is in the leader's
    /// log, or ours, is a fact.
    pub fn check(
        &self,
        batch: &BatchFacts,
        origin: AppendOrigin,
        transaction_version: i16,
    ) -> Result<Outcome, ProducerError> {
        if !batch.has_producer() || origin == AppendOrigin::Replication {
            return Ok(Outcome::Append);
        }
        let Some(entry) = self.table.get(batch.producer_id) else {
            return self.check_unknown(batch, origin, transaction_version);
        };
        match batch.kind {
            BatchKind::EmptyControl => {}
            BatchKind::Marker(marker) => check_marker(entry, batch, marker, transaction_version)?,
            BatchKind::Plain | BatchKind::Transactional => {
                if origin == AppendOrigin::Client
                    && let Some(original) = find_duplicate(entry, batch)
                {
                    return Ok(Outcome::Duplicate(original));
                }
                check_epoch(entry, batch)?;
                if origin == AppendOrigin::Client {
                    check_sequence(entry, batch)?;
                }
                if batch.kind == BatchKind::Plain && entry.txn_first().is_some() {
                    return Err(ProducerError::InvalidTxnState(batch.producer_id));
                }
            }
        }
        Ok(Outcome::Append)
    }

    /// Takes in a batch that is appended (staged is enough) with its final offsets, in log order. `now_ms` is when it was
    /// written; expiry counts from there, not from the records' timestamps, which may be years old.
    ///
    /// Returns the transaction that the batch's marker ended, if it had records here (TX-27). An aborted one belongs into
    /// the transaction index of the segment that holds the marker.
    pub fn apply(&mut self, batch: &BatchFacts, now_ms: i64) -> Option<CompletedTxn> {
        let completed = match batch.kind {
            _ if !batch.has_producer() => None,
            BatchKind::EmptyControl => None,
            BatchKind::Marker(marker) => self.apply_marker(batch, marker, now_ms),
            BatchKind::Plain | BatchKind::Transactional => {
                self.apply_data(batch, now_ms);
                None
            }
        };
        self.advance(batch.last_offset.plus(1));
        completed
    }

    /// The log goes on to `end_offset` without a batch that concerns producers.
    pub fn advance(&mut self, end_offset: Offset) {
        self.end_offset = self.end_offset.max(end_offset);
    }

    /// The first offset that a read_committed consumer may not see whatever the high watermark is: of the oldest
    /// transaction that is open, or whose marker is not below the high watermark yet. Not below the log start.
    #[must_use]
    pub fn first_unstable_offset(&self, log_start: Offset) -> Option<Offset> {
        let open = self.ongoing.first_key_value().map(|(first, _)| *first);
        let undecided = self.unreplicated.first_key_value().map(|(first, _)| *first);
        let first = match (open, undecided) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        Some(first.max(log_start))
    }

    /// The last stable offset: [`Self::first_unstable_offset`] if that is below the high watermark, else the high
    /// watermark (FE-12).
    #[must_use]
    pub fn last_stable_offset(&self, log_start: Offset, high_watermark: Offset) -> Offset {
        self.first_unstable_offset(log_start)
            .map_or(high_watermark, |first| first.min(high_watermark))
    }

    /// The oldest open transaction: its first offset, its producer, and the timestamp of that producer's last batch. For
    /// the alarm about transactions that nobody ends.
    #[must_use]
    pub fn oldest_transaction(&self) -> Option<(Offset, ProducerView)> {
        let (first, producer_id) = self.ongoing.first_key_value()?;
        Some((*first, self.table.get(*producer_id)?.view()))
    }

    /// The high watermark moved: ended transactions with their marker below it stop holding the last stable offset back.
    pub fn on_high_watermark(&mut self, high_watermark: Offset) {
        self.unreplicated.retain(|_, marker| *marker >= high_watermark);
    }

    /// The log start moved up. Producers stay known, however little is left of what they wrote (PR-48, BR-049).
    pub fn on_log_start(&mut self, log_start: Offset) {
        self.on_high_watermark(log_start);
        self.advance(log_start);
    }

    /// Forgets everything; the log is now empty at `end_offset`, or is about to be loaded and replayed from there.
    pub fn reset(&mut self, end_offset: Offset) {
        *self = Self::new(end_offset, self.producers_max);
    }

    /// Forgets everything and takes the state of a snapshot at `offset`, leaving out who is expired at `now_ms`
    /// (`expiration_ms` is `producer.id.expiration.ms`). The batches from `offset` on are then applied again.
    ///
    /// As in Kafka a snapshot does not say which ended transactions had their marker above the high watermark: for those
    /// that ended before `offset` the last stable offset is the high watermark. Nobody sees aborted records because of
    /// it, the transaction index has them.
    pub fn load(&mut self, offset: Offset, entries: &[SnapshotEntry], now_ms: i64, expiration_ms: i64) {
        self.reset(offset);
        for snapshot in entries {
            let entry = Entry::from_snapshot(snapshot);
            if entry.is_expired(now_ms, expiration_ms) {
                continue;
            }
            if let Some(first) = entry.txn_first() {
                self.ongoing.insert(first, entry.producer_id);
            }
            self.make_room();
            self.table.insert(entry);
        }
    }

    /// The state as a snapshot file; its name is [`Self::end_offset`]. 100 ns a producer with its window: 10 ms for 100,000
    /// of them, which the shard waits for.
    #[must_use]
    pub fn encode_snapshot(&self) -> Vec<u8> {
        let latest = self.table.iter().map(|entry| entry.active_ms).max().unwrap_or(0);
        let recent = latest.saturating_sub(WINDOW_KEPT_MS);
        snapshot::encode(
            self.table
                .iter()
                .map(move |entry| entry.to_snapshot(entry.active_ms >= recent)),
        )
    }

    /// [`snapshot::decode`] and [`Self::load`] in one.
    ///
    /// # Errors
    /// [`SnapshotError`]; the state is unchanged then. An older snapshot, or none, is to be used.
    pub fn load_snapshot(
        &mut self,
        offset: Offset,
        file: &[u8],
        now_ms: i64,
        expiration_ms: i64,
    ) -> Result<(), SnapshotError> {
        self.load(offset, &snapshot::decode(file)?, now_ms, expiration_ms);
        Ok(())
    }

    /// Looks at the next `entries_max` producers, going round, and forgets those that wrote nothing for `expiration_ms`
    /// and have no open transaction (PR-47). Returns how many it forgot. Call it so that a round takes about
    /// `producer.id.expiration.check.interval.ms`.
    pub fn expire(&mut self, now_ms: i64, expiration_ms: i64, entries_max: usize) -> usize {
        self.table
            .sweep(entries_max, |entry| entry.is_expired(now_ms, expiration_ms))
    }

    /// Memory charged to this state, bytes (the transaction maps, a few dozen bytes per open transaction, are left out).
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    fn check_unknown(
        &self,
        batch: &BatchFacts,
        origin: AppendOrigin,
        transaction_version: i16,
    ) -> Result<Outcome, ProducerError> {
        let (producer_id, found) = (batch.producer_id, batch.base_sequence);
        let starts_at_zero = batch.kind == BatchKind::Transactional && transaction_version >= 2;
        if origin == AppendOrigin::Client && starts_at_zero && found != 0 {
            return Err(ProducerError::OutOfOrderSequence {
                producer_id,
                expected: 0,
                found,
            });
        }
        // Only who has no open transaction can make room.
        if self.table.len() >= self.producers_max && self.ongoing.len() >= self.table.len() {
            return Err(ProducerError::TooManyProducers {
                max: self.producers_max,
            });
        }
        Ok(Outcome::Append)
    }

    fn apply_data(&mut self, batch: &BatchFacts, now_ms: i64) {
        let entry = self.entry(batch.producer_id);
        entry.set_epoch(batch.producer_epoch);
        entry.push(AppendedBatch {
            first_offset: batch.base_offset,
            last_offset: batch.last_offset,
            last_sequence: last_sequence(batch),
            timestamp: batch.max_timestamp,
        });
        entry.last_timestamp = batch.max_timestamp;
        entry.active_ms = now_ms;
        if batch.kind == BatchKind::Transactional && entry.txn_first().is_none() {
            entry.set_txn_first(Some(batch.base_offset));
            self.ongoing.insert(batch.base_offset, batch.producer_id);
        }
    }

    fn apply_marker(&mut self, batch: &BatchFacts, marker: Marker, now_ms: i64) -> Option<CompletedTxn> {
        let marker_offset = batch.base_offset;
        let entry = self.entry(batch.producer_id);
        let first_offset = entry.txn_first();
        entry.set_epoch(batch.producer_epoch);
        entry.set_txn_first(None);
        entry.coordinator_epoch = marker.coordinator_epoch;
        entry.last_timestamp = batch.max_timestamp;
        entry.active_ms = now_ms;
        let first_offset = first_offset?;
        self.ongoing.remove(&first_offset);
        self.unreplicated.insert(first_offset, marker_offset);
        let next_open = self.ongoing.first_key_value().map(|(first, _)| *first);
        Some(CompletedTxn {
            producer_id: batch.producer_id,
            first_offset,
            last_offset: marker_offset,
            aborted: marker.aborted,
            last_stable_offset: next_open.unwrap_or_else(|| marker_offset.plus(1)),
        })
    }

    /// The entry of a producer, new if it is unknown.
    fn entry(&mut self, producer_id: ProducerId) -> &mut Entry {
        if self.table.get(producer_id).is_none() {
            self.make_room();
        }
        self.table.get_or_insert(producer_id)
    }

    /// At the bound, forgets one producer. When all have open transactions the table grows past the bound: only
    /// replication gets here then, and what is in the log is a fact.
    fn make_room(&mut self) {
        if self.table.len() >= self.producers_max && self.ongoing.len() < self.table.len() {
            self.table.evict();
        }
    }
}

fn find_duplicate(entry: &Entry, batch: &BatchFacts) -> Option<AppendedBatch> {
    if batch.producer_epoch != entry.epoch {
        return None;
    }
    let last = last_sequence(batch);
    entry
        .batches()
        .find(|b| b.last_sequence == last && b.first_sequence() == batch.base_sequence)
}

const fn check_epoch(entry: &Entry, batch: &BatchFacts) -> Result<(), ProducerError> {
    if batch.producer_epoch < entry.epoch {
        return Err(invalid_epoch(entry, batch));
    }
    Ok(())
}

fn check_sequence(entry: &Entry, batch: &BatchFacts) -> Result<(), ProducerError> {
    // No epoch: the entry knows of no batch and no marker, so any sequence is as good as another (PR-45).
    if entry.epoch == NO_EPOCH {
        return Ok(());
    }
    let expected = if batch.producer_epoch == entry.epoch {
        next_sequence(entry.last_sequence())
    } else {
        0
    };
    if batch.base_sequence == expected {
        return Ok(());
    }
    Err(ProducerError::OutOfOrderSequence {
        producer_id: batch.producer_id,
        expected,
        found: batch.base_sequence,
    })
}

/// Transactions version 2 raises the epoch with each transaction, so a marker that does not raise it is late — unless the
/// transaction is over already and this is the same marker again (KAFKA-19999). Before, marker and records share an epoch.
const fn check_marker(
    entry: &Entry,
    batch: &BatchFacts,
    marker: Marker,
    transaction_version: i16,
) -> Result<(), ProducerError> {
    let again = batch.producer_epoch == entry.epoch && entry.txn_first().is_none();
    let late = transaction_version >= 2 && batch.producer_epoch <= entry.epoch && !again;
    if late || batch.producer_epoch < entry.epoch {
        return Err(invalid_epoch(entry, batch));
    }
    if marker.coordinator_epoch < entry.coordinator_epoch {
        return Err(ProducerError::CoordinatorFenced {
            producer_id: batch.producer_id,
            current: entry.coordinator_epoch,
            found: marker.coordinator_epoch,
        });
    }
    Ok(())
}

const fn invalid_epoch(entry: &Entry, batch: &BatchFacts) -> ProducerError {
    ProducerError::InvalidProducerEpoch {
        producer_id: batch.producer_id,
        current: entry.epoch,
        found: batch.producer_epoch,
    }
}

/// The sequence of the batch's last record; −1 for a batch without sequences. Wraps from 2^31−1 to 0.
const fn last_sequence(batch: &BatchFacts) -> i32 {
    if batch.base_sequence < 0 {
        return -1;
    }
    let delta = batch.last_offset.0.wrapping_sub(batch.base_offset.0);
    (batch.base_sequence as i64).wrapping_add(delta) as i32 & i32::MAX
}

/// The sequence after `last`; −1, nothing written yet, is followed by 0.
const fn next_sequence(last: i32) -> i32 {
    last.wrapping_add(1) & i32::MAX
}

#[cfg(test)]
mod tests;
