//! One entry of the metadata log and its bytes: a record batch of Kafka's format, so that `kafka-dump-log
//! --cluster-metadata-decoder` shows the log. The batch's leader epoch is raft's term; its offsets count records, as in
//! Kafka; raft's index, which counts entries, stands in a header of the first record. A batch is one entry: it is applied,
//! kept and cut as a whole, protected by its CRC.
//!
//! ```text
//! entry           batch             records
//! Records         data              one per metadata record, Kafka's framing in the value
//! LeaderChange    control, type 2   LeaderChangeMessage: a leader's first entry, empty in raft's own terms
//! Voters          control, type 6   VotersRecord: the voters from here on
//! every first record: header "penstock.index" = index, u64 big-endian
//! ```

use bytes::Bytes;
use protocol::messages::control_records::{LeaderChangeMessage, LeaderChangeMessageVoter};
use protocol::record::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchFault, BatchOptions, BatchView, ControlFault, ControlRecord,
    Header, NewRecord, Record, RecordFault,
};

use super::voters::Voters;
use crate::controller::{MetadataRecord, RECORDS_MAX, RecordError};
use crate::ids::BrokerId;

/// The header that holds raft's index.
const INDEX_HEADER: &[u8] = b"penstock.index";

/// The most bytes of one entry.
pub const ENTRY_BYTES_MAX: usize = 8 << 20;

/// One entry of the metadata log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Its position, from 1, without gaps.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// The leader's wall clock when it made it, ms.
    pub timestamp_ms: i64,
    /// What it says.
    pub payload: EntryPayload,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq)]
pub enum EntryPayload {
    /// Somebody leads now.
    LeaderChange(BrokerId),
    /// Facts, applied all or none.
    Records(Vec<MetadataRecord>),
    /// Who votes from here on.
    Voters(Voters),
}

/// Why bytes are no entry.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// The batch is damaged.
    #[error(transparent)]
    Batch(#[from] BatchFault),
    /// A record of the batch is damaged.
    #[error(transparent)]
    Record(#[from] RecordFault),
    /// A control record is damaged.
    #[error(transparent)]
    Control(#[from] ControlFault),
    /// A metadata record is damaged or unknown.
    #[error(transparent)]
    Metadata(#[from] RecordError),
    /// The batch is none of ours.
    #[error("{0}")]
    Shape(&'static str),
}

impl LogEntry {
    /// The entry's batch. Its base offset is 0: whoever stores it knows better.
    #[must_use]
    pub fn to_batch(&self) -> Bytes {
        match &self.payload {
            EntryPayload::Records(records) => self.data_batch(records),
            EntryPayload::LeaderChange(leader) => {
                let voter = LeaderChangeMessageVoter {
                    voter_id: leader.0,
                    ..LeaderChangeMessageVoter::default()
                };
                self.control_batch(&ControlRecord::LeaderChange(LeaderChangeMessage {
                    version: 0,
                    leader_id: leader.0,
                    voters: vec![voter.clone()],
                    granting_voters: vec![voter],
                }))
            }
            EntryPayload::Voters(voters) => self.control_batch(&ControlRecord::Voters(voters.to_record())),
        }
    }

    /// Reads an entry from exactly one batch.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn from_batch(bytes: &Bytes) -> Result<Self, EntryError> {
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(EntryError::Shape("the batch is larger than an entry may be"));
        }
        let batch = BatchView::parse(bytes, 0)?;
        batch.check_crc(0)?;
        let header = batch.header();
        if batch.bytes().len() != bytes.len() {
            return Err(EntryError::Shape("there are bytes behind the batch"));
        }
        if header.attributes.is_compressed()
            || header.attributes.is_transactional()
            || header.has_producer_id()
        {
            return Err(EntryError::Shape(
                "the metadata log is neither compressed nor transactional",
            ));
        }
        let term =
            u64::try_from(header.leader_epoch).map_err(|_| EntryError::Shape("the batch has no term"))?;
        let count = usize::try_from(header.record_count).unwrap_or(0);
        if count == 0 || count > RECORDS_MAX {
            return Err(EntryError::Shape(
                "the batch has no record, or more than an entry may have",
            ));
        }
        let (index, payload) = read_records(bytes, count, header.attributes.is_control())?;
        Ok(Self {
            index,
            term,
            timestamp_ms: header.base_timestamp,
            payload,
        })
    }

    fn data_batch(&self, records: &[MetadataRecord]) -> Bytes {
        assert!(
            !records.is_empty() && records.len() <= RECORDS_MAX,
            "{} records",
            records.len()
        );
        let values: Vec<Bytes> = records.iter().map(MetadataRecord::to_bytes).collect();
        let values: Vec<(Option<&[u8]>, &[u8])> = values.iter().map(|value| (None, &**value)).collect();
        self.batch(&values, false)
    }

    fn control_batch(&self, record: &ControlRecord) -> Bytes {
        let value = record.value().expect("version 0 has all fields that are set");
        self.batch(&[(Some(&record.key()), &value)], true)
    }

    fn batch(&self, records: &[(Option<&[u8]>, &[u8])], control: bool) -> Bytes {
        let mut builder = BatchBuilder::plain(BatchOptions {
            leader_epoch: i32::try_from(self.term).expect("a term is an epoch of 31 bits"),
            control,
            ..BatchOptions::default()
        });
        let index = self.index.to_be_bytes();
        let index_header = [Header {
            key: INDEX_HEADER,
            value: Some(&index),
        }];
        for (at, (key, value)) in records.iter().enumerate() {
            let record = NewRecord {
                timestamp: self.timestamp_ms,
                key: *key,
                value: Some(value),
                headers: if at == 0 { &index_header } else { &[] },
            };
            builder
                .append(&record)
                .expect("a plain batch takes what an entry holds");
        }
        builder
            .finish()
            .expect("a batch with records can be finished")
            .bytes
    }
}

fn read_records(bytes: &Bytes, count: usize, is_control: bool) -> Result<(u64, EntryPayload), EntryError> {
    let mut rest = bytes.get(BATCH_HEADER_BYTES..).unwrap_or_default();
    let mut index = None;
    let mut records = Vec::with_capacity(count);
    let mut control = None;
    for at in 0..count {
        let (record, size) = Record::parse(rest)?;
        rest = rest.get(size..).unwrap_or_default();
        if at == 0 {
            index = index_of(&record);
        }
        if is_control {
            control = Some(ControlRecord::parse(&record)?);
        } else {
            let value = record
                .value
                .ok_or(EntryError::Shape("a metadata record has no value"))?;
            records.push(MetadataRecord::from_bytes(bytes.slice_ref(value))?);
        }
    }
    let index = index.ok_or(EntryError::Shape("the entry has no index"))?;
    let payload = match control {
        _ if !rest.is_empty() => return Err(EntryError::Shape("there are bytes behind the records")),
        None => EntryPayload::Records(records),
        Some(_) if count != 1 => return Err(EntryError::Shape("a control batch has one record")),
        Some(ControlRecord::LeaderChange(message)) => EntryPayload::LeaderChange(BrokerId(message.leader_id)),
        Some(ControlRecord::Voters(record)) => EntryPayload::Voters(
            Voters::from_record(&record).ok_or(EntryError::Shape("the voters cannot be a quorum"))?,
        ),
        Some(_) => {
            return Err(EntryError::Shape(
                "a control record that the metadata log does not have",
            ));
        }
    };
    Ok((index, payload))
}

fn index_of(record: &Record<'_>) -> Option<u64> {
    let header = record.headers.iter().find(|header| header.key == INDEX_HEADER)?;
    let bytes: [u8; 8] = header.value?.try_into().ok()?;
    Some(u64::from_be_bytes(bytes)).filter(|index| *index > 0)
}

#[cfg(test)]
mod tests {
    use protocol::messages::cluster_metadata::{FeatureLevelRecord, NoOpRecord};
    use protocol::{Str, Uuid};

    use super::super::voters::{Voter, VoterEndpoint};
    use super::*;

    fn entries() -> [LogEntry; 3] {
        let voter = Voter {
            directory: Uuid::from_u128(77),
            endpoints: vec![VoterEndpoint {
                listener: "CONTROLLER".into(),
                host: "localhost".into(),
                port: 9093,
            }],
        };
        let feature = FeatureLevelRecord {
            name: Str::from_static("metadata.version"),
            feature_level: 30,
        };
        let payloads = [
            EntryPayload::LeaderChange(BrokerId(3)),
            EntryPayload::Records(vec![feature.into(), NoOpRecord::default().into()]),
            EntryPayload::Voters(Voters::alone(BrokerId(0), voter)),
        ];
        let mut index = 0;
        payloads.map(|payload| {
            index += 1;
            LogEntry {
                index,
                term: 5,
                timestamp_ms: 1_700_000_000_000,
                payload,
            }
        })
    }

    #[test]
    fn an_entry_comes_back_from_its_batch() {
        for entry in entries() {
            let batch = entry.to_batch();
            assert_eq!(LogEntry::from_batch(&batch).expect("our own batch"), entry);
        }
    }

    #[test]
    fn a_flipped_bit_or_a_missing_byte_is_found() {
        for entry in entries() {
            let batch = entry.to_batch();
            // The base offset and the leader epoch are not covered by the CRC: they are given by whoever stores it.
            for at in (16..batch.len()).chain(8..12) {
                for bit in 0..8 {
                    let mut bytes = batch.to_vec();
                    bytes[at] ^= 1 << bit;
                    assert!(
                        LogEntry::from_batch(&bytes.into()).is_err(),
                        "byte {at} bit {bit}"
                    );
                }
            }
            for end in 0..batch.len() {
                assert!(LogEntry::from_batch(&batch.slice(..end)).is_err());
            }
        }
    }
}
