//! A record batch as the log engine sees it: the header's fields in the engine's own types, and what producer state
//! needs. The bytes and their checks are [`protocol::record`]'s.

use protocol::record::{self, BATCH_HEADER_BYTES, BatchView, ControlRecord, Record, TimestampType};

use crate::producer_state::{BatchFacts, BatchKind, Marker};
use crate::segment::indexes::IndexedBatch;
use crate::types::{LeaderEpoch, Offset, ProducerId};

pub use protocol::record::BATCH_PREFIX_BYTES;

/// The header of a version 2 batch. Plain values; claims of whoever wrote the batch until the CRC is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// First offset.
    pub base_offset: Offset,
    /// The whole batch, bytes.
    pub size: u32,
    /// The leader's epoch when it was appended.
    pub leader_epoch: LeaderEpoch,
    /// Largest timestamp.
    pub max_timestamp: i64,
    /// Last offset minus base offset.
    pub last_offset_delta: i32,
    /// The fields as they are on the wire.
    pub wire: record::BatchHeader,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`. `None` when it is none: too short, another magic, or a length, offset or
    /// delta that cannot be.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let wire = record::BatchHeader::parse(bytes, 0).ok()?;
        let in_range = wire.base_offset >= 0
            && wire.last_offset_delta >= 0
            && wire.base_offset < i64::MAX - i64::from(i32::MAX);
        in_range.then_some(Self {
            base_offset: Offset(wire.base_offset),
            size: u32::try_from(wire.size()).ok()?,
            leader_epoch: LeaderEpoch(wire.leader_epoch),
            max_timestamp: wire.max_timestamp,
            last_offset_delta: wire.last_offset_delta,
            wire,
        })
    }

    /// The last offset.
    #[must_use]
    pub const fn last_offset(&self) -> Offset {
        self.base_offset.plus(self.last_offset_delta as i64)
    }

    /// Whether the timestamps are the broker's (`LogAppendTime`).
    #[must_use]
    pub fn is_append_time(&self) -> bool {
        self.wire.attributes.timestamp_type() == TimestampType::LogAppendTime
    }

    /// What the indexes need to know of the batch, which starts at byte `position` of its segment. One that compaction has
    /// emptied has no timestamp: no record is found by it.
    #[must_use]
    pub const fn indexed_at(&self, position: u32) -> IndexedBatch {
        let max_timestamp = if self.is_empty() {
            record::NO_TIMESTAMP
        } else {
            self.max_timestamp
        };
        IndexedBatch {
            last_offset: self.last_offset(),
            position,
            size: self.size,
            max_timestamp,
        }
    }

    /// Whether no record is left of it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.wire.record_count <= 0
    }

    /// What producer state depends on. `batch` is the whole batch.
    #[must_use]
    pub fn producer_facts(&self, batch: &[u8]) -> BatchFacts {
        let attributes = self.wire.attributes;
        let kind = match (attributes.is_control(), attributes.is_transactional()) {
            (true, true) => marker(batch).map_or(BatchKind::EmptyControl, BatchKind::Marker),
            (true, false) => BatchKind::EmptyControl,
            (false, true) => BatchKind::Transactional,
            (false, false) => BatchKind::Plain,
        };
        BatchFacts {
            producer_id: ProducerId(self.wire.producer_id),
            producer_epoch: self.wire.producer_epoch,
            base_sequence: self.wire.base_sequence,
            base_offset: self.base_offset,
            last_offset: self.last_offset(),
            max_timestamp: self.max_timestamp,
            kind,
        }
    }

    /// The first 16 bytes of the batch with its final offset and leader epoch.
    #[must_use]
    pub fn prefix(&self) -> [u8; BATCH_PREFIX_BYTES] {
        record::prefix(self.base_offset.0, self.wire.batch_length, self.leader_epoch.0)
    }
}

/// Whether `batch`, exactly one batch, has the CRC its header claims.
#[must_use]
pub fn crc_matches(header: &BatchHeader, batch: &[u8]) -> bool {
    computed_crc(batch) == Some(header.wire.crc)
}

/// The CRC of the bytes of `batch`, exactly one batch; `None` when it is none.
#[must_use]
pub(crate) fn computed_crc(batch: &[u8]) -> Option<u32> {
    batch.get(BATCH_HEADER_BYTES..)?;
    BatchView::parse(batch, 0).ok().map(|view| view.computed_crc())
}

/// The marker in a control batch; `None` for other control records, and for a batch whose record was compacted away.
pub(crate) fn marker(batch: &[u8]) -> Option<Marker> {
    let view = BatchView::parse(batch, 0).ok()?;
    let (record, _) = Record::parse(view.records_bytes()).ok()?;
    match ControlRecord::parse(&record).ok()? {
        ControlRecord::TransactionEnd(end) => Some(Marker {
            aborted: !end.committed,
            coordinator_epoch: end.coordinator_epoch,
        }),
        _ => None,
    }
}
