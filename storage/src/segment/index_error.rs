//! What can be wrong with an index: with a file of one (decoding), and with an entry to be added (appending).

use crate::types::Offset;

/// Why the bytes of an index file were refused. The remedy is always the same: rebuild it from the segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexCorruption {
    /// The file does not hold a whole number of entries.
    #[error("{len} bytes are not a multiple of the entry size {entry_bytes}")]
    Size {
        /// The length of the file, bytes.
        len: usize,
        /// The size of one entry, bytes.
        entry_bytes: usize,
    },
    /// An entry does not come after the one before it.
    #[error("entry {entry} does not come after entry {}", entry - 1)]
    NotIncreasing {
        /// The entry's number, from 0.
        entry: usize,
    },
    /// An entry holds a number that no writer produces: a negative offset or position, an offset before the segment.
    #[error("entry {entry} is out of range")]
    OutOfRange {
        /// The entry's number, from 0.
        entry: usize,
    },
    /// An entry of a format we do not know.
    #[error("entry {entry} has version {version}, known is 0")]
    Version {
        /// The entry's number, from 0.
        entry: usize,
        /// The version found.
        version: i16,
    },
}

/// Why an entry was not added. `Full` and `OffsetOverflow` mean that the segment should have been rolled before this
/// append; the other means that the batches fed are not in log order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IndexAppendError {
    /// `segment.index.bytes` is used up.
    #[error("the index is full")]
    Full,
    /// The offset or position does not fit the 31 bits that an entry has for it.
    #[error("offset {0} does not fit into the segment's index")]
    OffsetOverflow(Offset),
    /// The entry does not come after the last one.
    #[error("offset {0} does not come after the last entry")]
    NotIncreasing(Offset),
}
