//! Record batches of format v2 (magic 2; KIP-98), the bytes that Kafka stores and sends: a borrowed view with checks,
//! iteration over records also through compression, a builder, control records, and the validation of produced batches.
//! Nothing here allocates from a length it has not checked.

mod batch;
mod builder;
mod control;
mod produce_error;
#[expect(
    clippy::module_inception,
    reason = "the record is what the module is about; STYLE.md names it so"
)]
mod record;
mod stream;
mod validate;
mod varint;

pub use batch::{
    Attributes, BATCH_HEADER_BYTES, BATCH_LENGTH_MIN, BATCH_LENGTH_OVERHEAD_BYTES, BATCH_PREFIX_BYTES,
    BatchFault, BatchHeader, BatchView, Batches, MAGIC_V2, NO_LEADER_EPOCH, NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP, TimestampType, prefix, sequence_after,
};
pub use builder::{BATCH_BYTES_MAX, BatchBuilder, BatchOptions, BuildError, BuiltBatch, NewRecord};
pub use control::{ControlFault, ControlRecord, MARKER_BATCH_BYTES, TransactionEnd};
pub use produce_error::{BatchError, BatchErrorReason, RECORD_ERRORS_MAX, RecordError, RecordRule};
pub use record::{Header, HeaderIter, Headers, Record, RecordFault};
pub use stream::{ReadError, RecordFacts, RecordStream};
pub use validate::{
    DECOMPRESSED_BYTES_MAX_DEFAULT, ProduceRules, Rewritten, TopicCompression, ValidatedBatch, Walk, validate,
};
