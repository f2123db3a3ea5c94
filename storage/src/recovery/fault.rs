//! Why the bytes behind the last valid batch of a segment are no batch that follows: what a report says was found.

use std::fmt;

use crate::types::Offset;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not a version 2 batch header, or one with a length or an offset that cannot be.
    Header,
    /// A batch with an offset below the one that is due.
    Backwards {
        /// Its base offset.
        found: Offset,
    },
    /// A batch whose checksum is not that of its bytes.
    Crc {
        /// What its header says.
        expected: u32,
        /// Of the bytes.
        found: u32,
    },
    /// The file ends within the batch.
    CutOff,
    /// There is no segment file.
    NoSegment,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("no version 2 batch header"),
            Self::Backwards { found } => write!(f, "a batch at offset {found}, which goes backwards"),
            Self::Crc { expected, found } => {
                write!(
                    f,
                    "a batch with CRC {expected:08x} whose bytes have CRC {found:08x}"
                )
            }
            Self::CutOff => f.write_str("the end of the file within a batch"),
            Self::NoSegment => f.write_str("no segment"),
        }
    }
}
