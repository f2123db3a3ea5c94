//! Control records: the ends of transactions in partition logs, and what a metadata log says about its own quorum. The
//! key is `version i16, type i16`; the value's layout depends on the type. Consumers never deliver them.

use bytes::Bytes;

use super::batch::NO_SEQUENCE;
use super::builder::{BatchBuilder, BatchOptions, BuiltBatch, NewRecord};
use super::record::Record;
use crate::error::{DecodeError, EncodeError};
use crate::message::Message;
use crate::messages::{
    EndTxnMarker, KRaftVersionRecord, LeaderChangeMessage, SnapshotFooterRecord, SnapshotHeaderRecord,
    VotersRecord,
};
use crate::reader::Reader;

/// Bytes of a transaction marker's whole batch.
pub const MARKER_BATCH_BYTES: usize = 78;

/// Bytes of a control record's key.
const KEY_BYTES: usize = 4;

/// The only version of keys and values that Kafka 4.3 writes. Higher ones are read as if they were this one.
const VERSION: i16 = 0;

/// A control record.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlRecord {
    /// Types 0 (abort) and 1 (commit): the end of a producer's transaction in this partition.
    TransactionEnd(TransactionEnd),
    /// Type 2: who leads the metadata quorum from here on (KIP-595).
    LeaderChange(LeaderChangeMessage),
    /// Type 3: first record of a metadata snapshot.
    SnapshotHeader(SnapshotHeaderRecord),
    /// Type 4: last record of a metadata snapshot.
    SnapshotFooter(SnapshotFooterRecord),
    /// Type 5: the protocol level of the quorum (KIP-853).
    KRaftVersion(KRaftVersionRecord),
    /// Type 6: the voters of the quorum (KIP-853).
    Voters(VotersRecord),
    /// A type of a later version; readers skip it.
    Unknown(i16),
}

/// The end of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionEnd {
    /// Whether the transaction's records count, or are to be skipped.
    pub committed: bool,
    /// Epoch of the transaction coordinator that wrote the marker; a lower one is fenced.
    pub coordinator_epoch: i32,
}

/// Why a record of a control batch is not a control record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlFault {
    /// The key is null or shorter than four bytes.
    #[error("control record key of {found} bytes")]
    Key {
        /// Its length, 0 for null.
        found: usize,
    },
    /// Key or value has a negative version.
    #[error("control record version {found}")]
    Version {
        /// The version.
        found: i16,
    },
    /// The value does not parse.
    #[error("control record value: {0}")]
    Value(#[from] DecodeError),
}

impl ControlRecord {
    /// The type in a control record's key. Types above those known are returned too.
    ///
    /// # Errors
    /// [`ControlFault`].
    pub fn type_of(record: &Record<'_>) -> Result<i16, ControlFault> {
        let key = record.key.unwrap_or_default();
        let head = key
            .first_chunk::<KEY_BYTES>()
            .ok_or(ControlFault::Key { found: key.len() })?;
        let [version0, version1, type0, type1] = *head;
        let found = i16::from_be_bytes([version0, version1]);
        if found < VERSION {
            return Err(ControlFault::Version { found });
        }
        Ok(i16::from_be_bytes([type0, type1]))
    }

    /// Reads a record of a control batch.
    ///
    /// # Errors
    /// [`ControlFault`].
    pub fn parse(record: &Record<'_>) -> Result<Self, ControlFault> {
        let record_type = Self::type_of(record)?;
        let mut value = Reader::new(Bytes::copy_from_slice(record.value.unwrap_or_default()));
        Ok(match record_type {
            0 | 1 => {
                let found = value.i16()?;
                if found < VERSION {
                    return Err(ControlFault::Version { found });
                }
                let marker = EndTxnMarker::decode(&mut value, VERSION)?;
                Self::TransactionEnd(TransactionEnd {
                    committed: record_type == 1,
                    coordinator_epoch: marker.coordinator_epoch,
                })
            }
            2 => Self::LeaderChange(LeaderChangeMessage::decode(&mut value, VERSION)?),
            3 => Self::SnapshotHeader(SnapshotHeaderRecord::decode(&mut value, VERSION)?),
            4 => Self::SnapshotFooter(SnapshotFooterRecord::decode(&mut value, VERSION)?),
            5 => Self::KRaftVersion(KRaftVersionRecord::decode(&mut value, VERSION)?),
            6 => Self::Voters(VotersRecord::decode(&mut value, VERSION)?),
            unknown => Self::Unknown(unknown),
        })
    }

    /// The type number in the key.
    #[must_use]
    pub const fn record_type(&self) -> i16 {
        match self {
            Self::TransactionEnd(end) => end.committed as i16,
            Self::LeaderChange(_) => 2,
            Self::SnapshotHeader(_) => 3,
            Self::SnapshotFooter(_) => 4,
            Self::KRaftVersion(_) => 5,
            Self::Voters(_) => 6,
            Self::Unknown(unknown) => *unknown,
        }
    }

    /// The record's key.
    #[must_use]
    pub fn key(&self) -> [u8; KEY_BYTES] {
        let [version0, version1] = VERSION.to_be_bytes();
        let [type0, type1] = self.record_type().to_be_bytes();
        [version0, version1, type0, type1]
    }

    /// The record's value; empty for an unknown type.
    ///
    /// # Errors
    /// A field that version 0 does not have is set (directory ids in a leader change).
    pub fn value(&self) -> Result<Bytes, EncodeError> {
        match self {
            Self::TransactionEnd(end) => {
                let mut value = VERSION.to_be_bytes().to_vec();
                value.extend_from_slice(&end.coordinator_epoch.to_be_bytes());
                Ok(value.into())
            }
            Self::LeaderChange(message) => message.to_bytes(VERSION),
            Self::SnapshotHeader(message) => message.to_bytes(VERSION),
            Self::SnapshotFooter(message) => message.to_bytes(VERSION),
            Self::KRaftVersion(message) => message.to_bytes(VERSION),
            Self::Voters(message) => message.to_bytes(VERSION),
            Self::Unknown(_) => Ok(Bytes::new()),
        }
    }

    /// The control batch of the metadata log with this one record, at `base_offset`.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn quorum_batch(
        &self,
        base_offset: i64,
        leader_epoch: i32,
        timestamp: i64,
    ) -> Result<BuiltBatch, EncodeError> {
        let options = BatchOptions {
            base_offset,
            leader_epoch,
            control: true,
            ..BatchOptions::default()
        };
        Ok(one_record(options, &self.key(), &self.value()?, timestamp))
    }
}

impl TransactionEnd {
    /// The 78-byte marker batch: control and transactional, one record, no sequence. The base offset is 0 and no leader
    /// epoch is set, as in a batch from a client; the owner of the partition assigns both.
    #[must_use]
    pub fn marker_batch(self, producer_id: i64, producer_epoch: i16, timestamp: i64) -> BuiltBatch {
        let record = ControlRecord::TransactionEnd(self);
        let options = BatchOptions {
            producer_id,
            producer_epoch,
            base_sequence: NO_SEQUENCE,
            transactional: true,
            control: true,
            ..BatchOptions::default()
        };
        let value = record.value().expect("a marker's value has fixed fields");
        one_record(options, &record.key(), &value, timestamp)
    }
}

fn one_record(options: BatchOptions, key: &[u8], value: &[u8], timestamp: i64) -> BuiltBatch {
    let mut builder = BatchBuilder::plain(options);
    // Kafka's own control records carry the broker's clock, which is never negative; a lie is stored as "none".
    let timestamp = timestamp.max(super::batch::NO_TIMESTAMP);
    builder
        .append(&NewRecord {
            timestamp,
            key: Some(key),
            value: Some(value),
            headers: &[],
        })
        .and_then(|_| builder.finish())
        .expect("a control record is far below the size limit and its timestamp is valid")
}
