//! Snapshots of the metadata: Kafka's checkpoint files, a whole image as record batches between a header and a footer. What
//! the log said before one is no longer needed. `kafka-dump-log --cluster-metadata-decoder` and the metadata shell read it.
//!
//! ```text
//! batch           content
//! control         SnapshotHeader; headers "penstock.index" and "penstock.term": the last entry in it
//! control         KRaftVersion 1
//! control         Voters
//! data, repeated  the image's records, at most 1,000 a batch
//! control         SnapshotFooter: without it the file is not whole
//! ```

use bytes::{Bytes, BytesMut};
use protocol::messages::{KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord};
use protocol::record::{
    BATCH_HEADER_BYTES, BatchBuilder, BatchOptions, BatchView, Batches, ControlRecord, Header, NewRecord,
    Record,
};

use super::entry::EntryError;
use super::voters::Voters;
use crate::controller::MetadataRecord;
use crate::image::{ImageDelta, ImagePosition, MetadataImage};

/// The most bytes of a snapshot: 1,000,000 partitions are about 100 MB.
pub const SNAPSHOT_BYTES_MAX: usize = 256 << 20;

const RECORDS_PER_BATCH: usize = 1_000;
const INDEX_HEADER: &[u8] = b"penstock.index";
const TERM_HEADER: &[u8] = b"penstock.term";

/// The metadata at one position, with the quorum that agreed on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The image; its position is the last entry in it.
    pub image: MetadataImage,
    /// Who votes after that entry.
    pub voters: Voters,
    /// When the last entry in it was made, ms.
    pub timestamp_ms: i64,
}

impl Snapshot {
    /// The bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut out = Output {
            bytes: BytesMut::new(),
            next_offset: 0,
            term: i32::try_from(self.image.position.term).expect("a term is an epoch of 31 bits"),
            timestamp_ms: self.timestamp_ms,
        };
        let (index, term) = (
            self.image.position.index.to_be_bytes(),
            self.image.position.term.to_be_bytes(),
        );
        let position = [
            Header {
                key: INDEX_HEADER,
                value: Some(&index),
            },
            Header {
                key: TERM_HEADER,
                value: Some(&term),
            },
        ];
        let header = SnapshotHeaderRecord {
            version: 0,
            last_contained_log_timestamp: self.timestamp_ms,
        };
        out.control(&ControlRecord::SnapshotHeader(header), &position);
        let version = KRaftVersionRecord {
            version: 0,
            k_raft_version: 1,
        };
        out.control(&ControlRecord::KRaftVersion(version), &[]);
        out.control(&ControlRecord::Voters(self.voters.to_record()), &[]);
        for records in self.image.to_records().chunks(RECORDS_PER_BATCH) {
            let values: Vec<Bytes> = records.iter().map(MetadataRecord::to_bytes).collect();
            let records: Vec<NewRecord<'_>> =
                values.iter().map(|value| out.record(None, value, &[])).collect();
            out.batch(&records, false);
        }
        out.control(
            &ControlRecord::SnapshotFooter(SnapshotFooterRecord { version: 0 }),
            &[],
        );
        out.bytes.freeze()
    }

    /// Reads a whole file of the cluster `cluster_id`.
    ///
    /// # Errors
    /// [`EntryError`]: damaged, or not whole.
    pub fn from_bytes(bytes: &Bytes, cluster_id: &str) -> Result<Self, EntryError> {
        if bytes.len() > SNAPSHOT_BYTES_MAX {
            return Err(EntryError::Shape("the snapshot is too large"));
        }
        let mut input = Input {
            delta: ImageDelta::new(&MetadataImage::empty(cluster_id)),
            position: None,
            voters: None,
            timestamp_ms: 0,
            is_whole: false,
        };
        for batch in Batches::new(bytes, 0).checked() {
            let (_, batch) = batch?;
            input.batch(bytes, &batch)?;
        }
        match (input.is_whole, input.position, input.voters) {
            (true, Some(position), Some(voters)) => Ok(Self {
                image: input.delta.finish(position).0,
                voters,
                timestamp_ms: input.timestamp_ms,
            }),
            _ => Err(EntryError::Shape("the snapshot is not whole")),
        }
    }
}

struct Output {
    bytes: BytesMut,
    next_offset: i64,
    term: i32,
    timestamp_ms: i64,
}

impl Output {
    fn record<'a>(&self, key: Option<&'a [u8]>, value: &'a [u8], headers: &'a [Header<'a>]) -> NewRecord<'a> {
        NewRecord {
            timestamp: self.timestamp_ms,
            key,
            value: Some(value),
            headers,
        }
    }

    fn control(&mut self, record: &ControlRecord, headers: &[Header<'_>]) {
        let (key, value) = (
            record.key(),
            record.value().expect("version 0 has all fields that are set"),
        );
        let record = self.record(Some(&key), &value, headers);
        self.batch(&[record], true);
    }

    fn batch(&mut self, records: &[NewRecord<'_>], control: bool) {
        let mut builder = BatchBuilder::plain(BatchOptions {
            base_offset: self.next_offset,
            leader_epoch: self.term,
            control,
            ..BatchOptions::default()
        });
        for record in records {
            builder
                .append(record)
                .expect("a plain batch takes a thousand records");
        }
        let built = builder.finish().expect("a batch with records can be finished");
        self.next_offset = built.header.next_offset();
        self.bytes.extend_from_slice(&built.bytes);
    }
}

struct Input {
    delta: ImageDelta,
    position: Option<ImagePosition>,
    voters: Option<Voters>,
    timestamp_ms: i64,
    is_whole: bool,
}

impl Input {
    fn batch(&mut self, file: &Bytes, batch: &BatchView<'_>) -> Result<(), EntryError> {
        let header = batch.header();
        if self.is_whole {
            return Err(EntryError::Shape("the snapshot goes on behind its footer"));
        }
        if header.attributes.is_compressed() {
            return Err(EntryError::Shape("a compressed batch in a snapshot"));
        }
        let mut rest = batch.bytes().get(BATCH_HEADER_BYTES..).unwrap_or_default();
        for _ in 0..header.record_count {
            let (record, size) = Record::parse(rest)?;
            rest = rest.get(size..).unwrap_or_default();
            if header.attributes.is_control() {
                self.control(&record)?;
            } else {
                let value = record
                    .value
                    .ok_or(EntryError::Shape("a metadata record has no value"))?;
                let record = MetadataRecord::from_bytes(file.slice_ref(value))?;
                self.delta
                    .apply(&record)
                    .map_err(|_| EntryError::Shape("a record contradicts the ones before it"))?;
            }
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(EntryError::Shape("there are bytes behind the records"))
        }
    }

    fn control(&mut self, record: &Record<'_>) -> Result<(), EntryError> {
        match ControlRecord::parse(record)? {
            ControlRecord::SnapshotHeader(header) => {
                self.timestamp_ms = header.last_contained_log_timestamp;
                let (index, term) = (number(record, INDEX_HEADER), number(record, TERM_HEADER));
                self.position = index.zip(term).map(|(index, term)| ImagePosition { index, term });
            }
            ControlRecord::Voters(record) => self.voters = Voters::from_record(&record),
            ControlRecord::SnapshotFooter(_) => self.is_whole = true,
            ControlRecord::KRaftVersion(_) | ControlRecord::Unknown(_) => {}
            ControlRecord::TransactionEnd(_) | ControlRecord::LeaderChange(_) => {
                return Err(EntryError::Shape(
                    "a control record that a snapshot does not have",
                ));
            }
        }
        Ok(())
    }
}

fn number(record: &Record<'_>, key: &[u8]) -> Option<u64> {
    let header = record.headers.iter().find(|header| header.key == key)?;
    Some(u64::from_be_bytes(header.value?.try_into().ok()?))
}
