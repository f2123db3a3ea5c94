//! Append: producer state is checked, offsets are assigned, the batch gets its place in a segment (rolling when due) and
//! is staged for the next commit. No I/O, no waiting; either all of it happens or nothing.

use bytes::Bytes;

use super::LogState;
use super::batch::{BATCH_PREFIX_BYTES, BatchHeader};
use super::tail::TailBatch;
use crate::batch_cache::{Backing, BatchCache, CacheInsert};
use crate::disk::Disk;
use crate::error::AppendError;
use crate::producer_state::{AppendOrigin, CompletedTxn, Outcome, ProducerError};
use crate::segment::state::Segment;
use crate::types::{LeaderEpoch, Offset};

/// A batch to append: validated by whoever received it (CRC, records), exactly one, header first.
#[derive(Clone, Debug)]
pub struct AppendBatch {
    /// The batch. Its base offset and leader epoch are replaced unless it is replicated.
    pub bytes: Bytes,
    /// The buffer `bytes` is a part of, for the cache's accounts.
    pub backing: Backing,
    /// The leader's epoch; not looked at for a replicated batch, which carries its own.
    pub leader_epoch: LeaderEpoch,
    /// Who appends, and so what is checked.
    pub origin: AppendOrigin,
    /// The transaction protocol of the request (KIP-890), see [`crate::producer_state::ProducerState::check`].
    pub transaction_version: i16,
}

/// A batch got its offsets, or had them already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The first record's offset.
    pub base_offset: Offset,
    /// The last record's offset.
    pub last_offset: Offset,
    /// The broker's timestamp when the batch carries it (`LogAppendTime`), else −1.
    pub log_append_time: i64,
    /// The log start at this moment.
    pub log_start: Offset,
    /// The batch had been appended before (PR-41): nothing was staged, and the answer waits for the original's offset.
    pub is_duplicate: bool,
}

impl AppendBatch {
    /// A batch as a leader gets it from a client, alone in its buffer.
    #[must_use]
    pub fn from_client(bytes: Bytes, leader_epoch: LeaderEpoch) -> Self {
        Self {
            backing: Backing {
                id: bytes.as_ptr() as u64,
                capacity: bytes.len(),
            },
            bytes,
            leader_epoch,
            origin: AppendOrigin::Client,
            transaction_version: 0,
        }
    }
}

impl<D: Disk> LogState<D> {
    /// See the module. `slot` is the log's key in the cache. `refuse_new`: nothing new can be taken now, so that only a batch that
    /// was appended before is answered. On success with `is_duplicate` false, the batch is the last of the tail and its
    /// bytes are to be staged with the planner.
    pub(crate) fn append(
        &mut self,
        batch: AppendBatch,
        slot: u32,
        cache: &mut BatchCache,
        now_ms: i64,
        refuse_new: Option<AppendError>,
    ) -> Result<Appended, AppendError> {
        let mut header =
            BatchHeader::parse(&batch.bytes).ok_or(AppendError::Malformed("not a version 2 batch header"))?;
        if header.size as usize != batch.bytes.len() {
            return Err(AppendError::Malformed(
                "the length field is not the batch's length",
            ));
        }
        self.place(&mut header, &batch)?;
        let mut facts = header.producer_facts(&batch.bytes);
        let log_append_time = |timestamp| if header.is_append_time() { timestamp } else { -1 };
        match self
            .producers
            .check(&facts, batch.origin, batch.transaction_version)
        {
            Ok(Outcome::Append) => {
                self.awaited.check(&self.producers, &facts, batch.origin)?;
                if let Some(refused) = refuse_new {
                    self.awaited.refused(&self.producers, &facts, batch.origin);
                    return Err(refused);
                }
            }
            Ok(Outcome::Duplicate(original)) => {
                return Ok(Appended {
                    base_offset: original.first_offset,
                    last_offset: original.last_offset,
                    // As Kafka: a duplicate's answer carries the original's timestamp whatever its type.
                    log_append_time: original.timestamp,
                    log_start: self.log_start,
                    is_duplicate: true,
                });
            }
            Err(error) => return Err(error.into()),
        }
        // Nothing fails from here on.
        let (base, last) = (header.base_offset, header.last_offset());
        self.roll_if_due(&header, now_ms);
        self.epochs_dirty |= self.epochs.assign(header.leader_epoch, base);
        facts.base_offset = base;
        facts.last_offset = last;
        let completed = self.producers.apply(&facts, now_ms);
        self.awaited.appended(facts.producer_id);
        let (segment, position) = self.index(&header, completed, now_ms);
        let (head, rest) = cache.insert(
            slot,
            CacheInsert {
                previous_end: self.end,
                last_offset: last,
                prefix: header.prefix(),
                body: batch.bytes.slice(BATCH_PREFIX_BYTES..),
                backing: batch.backing,
            },
        );
        self.tail.push(TailBatch {
            base,
            last,
            segment,
            position,
            head,
            rest,
        });
        self.end = last.plus(1);
        Ok(Appended {
            base_offset: base,
            last_offset: last,
            log_append_time: log_append_time(header.max_timestamp),
            log_start: self.log_start,
            is_duplicate: false,
        })
    }

    /// Enters the batch into the active segment's indexes; returns where in which segment it stands.
    fn index(&mut self, header: &BatchHeader, completed: Option<CompletedTxn>, now_ms: i64) -> (Offset, u32) {
        let interval = self.config.index_interval_bytes;
        let active = self.active();
        let position = active.size;
        let indexes = active
            .indexes
            .as_mut()
            .expect("the active segment's indexes are in memory");
        let entry = header.indexed_at(position);
        indexes
            .append(entry, interval)
            .expect("a batch that does not fit the indexes has rolled the segment");
        if let Some(aborted) = completed.and_then(|txn| txn.aborted_txn()) {
            indexes.txn.append(aborted).expect("markers come in offset order");
        }
        active.largest = indexes.largest_timestamp();
        active.first_timestamp.get_or_insert(header.max_timestamp);
        active.modified_ms = now_ms;
        active.size += header.size;
        (active.base, position)
    }

    /// Gives the batch its offset and epoch, and checks that they follow the log.
    fn place(&self, header: &mut BatchHeader, batch: &AppendBatch) -> Result<(), AppendError> {
        if header.size > self.config.segment_bytes {
            return Err(AppendError::LargerThanSegment {
                batch_bytes: header.size as usize,
                segment_bytes: u64::from(self.config.segment_bytes),
            });
        }
        if batch.origin == AppendOrigin::Replication {
            if header.base_offset < self.end {
                return Err(AppendError::OffsetGap {
                    expected: self.end,
                    found: header.base_offset,
                });
            }
        } else {
            header.base_offset = self.end;
            header.leader_epoch = batch.leader_epoch;
        }
        match self.epochs.latest() {
            Some(latest) if header.leader_epoch < latest.epoch => Err(AppendError::StaleLeaderEpoch {
                current: latest.epoch,
                found: header.leader_epoch,
            }),
            _ => Ok(()),
        }
    }

    /// Rolls before a batch that does not fit, or that comes `segment.ms` after the segment's first (RT-1, RT-2).
    fn roll_if_due(&mut self, header: &BatchHeader, now_ms: i64) {
        let config = self.config.clone();
        let active = self.active();
        let size = u64::from(active.size) + u64::from(header.size);
        let full = size > u64::from(config.segment_bytes);
        let age_ms = match active.first_timestamp {
            Some(first) if first >= 0 && header.max_timestamp >= 0 => {
                header.max_timestamp.saturating_sub(first)
            }
            _ => now_ms.saturating_sub(active.created_ms),
        };
        let aged = active.size > 0 && age_ms > config.segment_ms.saturating_sub(config.segment_jitter_ms);
        let indexes_full = active
            .indexes
            .as_ref()
            .is_some_and(|indexes| indexes.must_roll_before(header.last_offset()));
        if (active.size > 0 && full) || aged || indexes_full {
            self.roll(header.base_offset, now_ms);
        }
    }

    /// Ends the active segment and starts one at `base`. Producer state is taken now (RT-3); the files follow in the
    /// background, when all bytes of the old segment are written.
    pub(crate) fn roll(&mut self, base: Offset, now_ms: i64) {
        let snapshot = self.producers.encode_snapshot();
        let index_bytes = self.config.segment_index_bytes;
        let active = self.active();
        if active.base == base {
            return; // an empty segment of that name is there already
        }
        active.snapshot_at_roll = Some(snapshot);
        if let Some(indexes) = active.indexes.as_mut() {
            indexes.close().expect("a closing time index entry always fits");
        }
        self.segments.push_back(Segment::new(base, index_bytes, now_ms));
    }
}

impl From<ProducerError> for AppendError {
    fn from(error: ProducerError) -> Self {
        match error {
            ProducerError::OutOfOrderSequence {
                producer_id,
                expected,
                found,
            } => Self::OutOfOrderSequence {
                producer_id: producer_id.0,
                expected,
                found,
            },
            ProducerError::InvalidProducerEpoch {
                producer_id,
                current,
                found,
            } => Self::InvalidProducerEpoch {
                producer_id: producer_id.0,
                current,
                found,
            },
            ProducerError::CoordinatorFenced { current, found, .. } => {
                Self::CoordinatorFenced { current, found }
            }
            ProducerError::InvalidTxnState(_) => Self::InvalidProducerState("a transaction is open"),
            ProducerError::TooManyProducers { .. } => {
                Self::InvalidProducerState("too many open transactions")
            }
        }
    }
}
