//! The durable facts of the cluster: Kafka's metadata records, by name and by bytes (`protocol/schema/internal/
//! cluster_metadata.msg`). Each is framed as in Kafka's own metadata log: three unsigned varints (frame version 1, type,
//! version), then the message, so `kafka-dump-log --cluster-metadata-decoder` reads ours. Which of Kafka's records are not
//! here is said in `docs/decisions/0010-metadata-records.md`.

use bytes::Bytes;
use protocol::messages::cluster_metadata as wire;
use protocol::{DecodeLimits, Message, Reader, Writer};

macro_rules! metadata_records {
    ($($(#[$doc:meta])* $name:ident($record:ident),)*) => {
        /// One durable fact.
        #[derive(Clone, Debug, PartialEq)]
        pub enum MetadataRecord { $($(#[$doc])* $name(wire::$record),)* }

        $(impl From<wire::$record> for MetadataRecord {
            fn from(record: wire::$record) -> Self {
                Self::$name(record)
            }
        })*

        impl MetadataRecord {
            /// Kafka's name of the record.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$name(_) => wire::$record::NAME,)* }
            }

            fn write(&self, w: &mut Writer) -> Result<(), protocol::EncodeError> {
                match self {
                    $(Self::$name(record) => {
                        w.uvarint(FRAME_VERSION);
                        w.uvarint(u32::from(wire::$record::API_KEY.unsigned_abs()));
                        w.uvarint(u32::from(wire::$record::MAX_VERSION.unsigned_abs()));
                        record.encode(w, wire::$record::MAX_VERSION)
                    })*
                }
            }

            fn read(r: &mut Reader, kind: i16, version: i16) -> Result<Self, RecordError> {
                match kind {
                    $(wire::$record::API_KEY => Ok(Self::$name(wire::$record::decode(r, version)?)),)*
                    _ => Err(RecordError::Kind(kind)),
                }
            }
        }
    };
}

metadata_records! {
    /// A broker (re)joins the cluster.
    RegisterBroker(RegisterBrokerRecord),
    /// A broker leaves for good.
    UnregisterBroker(UnregisterBrokerRecord),
    /// A topic exists; its partitions follow.
    Topic(TopicRecord),
    /// A partition exists, with all that is known of it.
    Partition(PartitionRecord),
    /// A key of a resource is set or, without a value, removed.
    Config(ConfigRecord),
    /// Something of a partition changed.
    PartitionChange(PartitionChangeRecord),
    /// A broker's lease ended: it leads nothing and is in no ISR.
    FenceBroker(FenceBrokerRecord),
    /// A broker may serve.
    UnfenceBroker(UnfenceBrokerRecord),
    /// A topic, its partitions and its configs are gone.
    RemoveTopic(RemoveTopicRecord),
    /// A feature's level is final; 0 turns it off.
    FeatureLevel(FeatureLevelRecord),
    /// Producer ids below the given one are taken.
    ProducerIds(ProducerIdsRecord),
    /// Something of a broker's registration changed.
    BrokerRegistrationChange(BrokerRegistrationChangeRecord),
    /// Nothing: shows that the controller lives.
    NoOp(NoOpRecord),
    /// The eligible leader replicas of a topic (or of all) are forgotten.
    ClearElr(ClearElrRecord),
}

/// The version of the three varints in front of each record.
const FRAME_VERSION: u32 = 1;

/// The most bytes of one framed record: a partition with thousands of replicas stays far below.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// Why bytes are no metadata record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The frame's version is not 1.
    #[error("frame version {0}, only 1 is known")]
    Frame(u32),
    /// No such record, or none that this version of ours knows.
    #[error("metadata record of unknown type {0}")]
    Kind(i16),
    /// The record has bytes behind its end or is too long.
    #[error("metadata record of {0} bytes is too long or has bytes behind its end")]
    Length(usize),
    /// The message is not what its schema says.
    #[error(transparent)]
    Message(#[from] protocol::DecodeError),
}

impl MetadataRecord {
    /// The framed record, as it stands in the value of a record of the metadata log.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let mut w = Writer::new();
        let written = self.write(&mut w).and_then(|()| w.into_bytes());
        // The controller checks every length that comes from a request before it makes a record of it.
        let bytes = written.unwrap_or_else(|e| panic!("a record of ours cannot be written: {e}"));
        assert!(
            bytes.len() <= RECORD_BYTES_MAX,
            "{} has {} bytes",
            self.name(),
            bytes.len()
        );
        bytes
    }

    /// Reads a framed record.
    ///
    /// # Errors
    /// When the bytes are not exactly one record of a known type and version.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, RecordError> {
        let len = bytes.len();
        if len > RECORD_BYTES_MAX {
            return Err(RecordError::Length(len));
        }
        let mut r = Reader::with_limits(bytes, DecodeLimits::TRUSTED);
        let frame = r.uvarint()?;
        if frame != FRAME_VERSION {
            return Err(RecordError::Frame(frame));
        }
        let kind = i16::try_from(r.uvarint()?).unwrap_or(i16::MAX);
        let version = i16::try_from(r.uvarint()?).unwrap_or(i16::MAX);
        let record = Self::read(&mut r, kind, version)?;
        r.expect_end().map_err(|_| RecordError::Length(len))?;
        Ok(record)
    }
}
