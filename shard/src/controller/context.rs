//! What a decision of the controller is made from, and what it is.

use super::record::MetadataRecord;
use crate::config::{BrokerLayers, Overrides};
use crate::error::ApiError;
use crate::ids::BrokerId;
use crate::image::{ImageDelta, MetadataImage};
use protocol::ErrorCode;

/// What the controller decides with. Everything comes in here: decisions read no clock and draw no numbers of their own.
pub struct Context<'a> {
    /// The metadata with everything proposed so far, committed or not: a decision must not contradict one that is on its
    /// way. Its answer goes out when its records, and so all before them, are committed.
    pub image: &'a MetadataImage,
    /// The node that decides, and that received the request where it matters (AD-10).
    pub node: BrokerId,
    /// What that node was started with.
    pub fixed: &'a Overrides,
    /// The index that the next log entry will have; broker epochs are made of it.
    pub next_index: u64,
    /// 64 random bits: topic ids, the first broker of a topic.
    pub random: &'a mut dyn FnMut() -> u64,
}

/// Records to commit and the answer to give when they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<R> {
    /// Applied all or none, as one log entry; more than [`RECORDS_MAX`], which no client's request makes, as several. None:
    /// nothing changes, the answer may go out at once. See [`Draft::into_divisible`].
    pub records: Vec<MetadataRecord>,
    /// The answer.
    pub response: R,
}

/// The most records of one log entry (Kafka's bound): a request that would make more is refused as a whole.
pub const RECORDS_MAX: usize = 10_000;

impl Context<'_> {
    /// The broker layers of the deciding node.
    #[must_use]
    pub fn layers(&self) -> BrokerLayers<'_> {
        self.image.configs.layers(self.node, self.fixed)
    }
}

impl<R> Decision<R> {
    /// An answer that changes nothing.
    pub const fn answer(response: R) -> Self {
        Self {
            records: Vec::new(),
            response,
        }
    }
}

/// Records in the making, together with the image they lead to.
pub(super) struct Draft {
    delta: ImageDelta,
    records: Vec<MetadataRecord>,
}

impl Draft {
    pub(super) fn new(image: &MetadataImage) -> Self {
        Self {
            delta: ImageDelta::new(image),
            records: Vec::new(),
        }
    }

    /// The image with the records so far.
    pub(super) const fn image(&self) -> &MetadataImage {
        self.delta.image()
    }

    /// Adds a record that must fit the image so far: what does not is a bug here, and better found before the log has it.
    pub(super) fn push(&mut self, record: impl Into<MetadataRecord>) {
        let record = record.into();
        if let Err(error) = self.delta.apply(&record) {
            panic!("the controller made a record that does not fit: {error}");
        }
        self.records.push(record);
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn into_records(self) -> Vec<MetadataRecord> {
        self.records
    }

    /// The records of a decision that may be written as several log entries. Then its cause, the first record, comes last: when
    /// only the beginning is written the cause has not happened, and whoever asked asks again.
    pub(super) fn into_divisible(mut self) -> Vec<MetadataRecord> {
        if self.records.len() > RECORDS_MAX {
            self.records.rotate_left(1);
        }
        self.records
    }
}

/// POLICY_VIOLATION for a request that would make more than [`RECORDS_MAX`] records.
pub(super) fn too_large() -> ApiError {
    ApiError::new(
        ErrorCode::POLICY_VIOLATION,
        format!("The request changes too much at once: at most {RECORDS_MAX} partitions and topics together"),
    )
}
