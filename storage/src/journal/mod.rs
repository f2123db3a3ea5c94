//! The journal: the redo log of one shard in one log directory. A group commit puts the small appends of all partitions
//! into one aligned sequential write and one sync; the segments are written later (DESIGN §6).
//!
//! * [`frame`]: the bytes of file headers, commits and frames, and their checks;
//! * [`scan`]: which commits of a set of files count (generation, sequence, torn tail or damage), without I/O;
//! * `salvage`: what can be read of a damaged commit;
//! * [`manifest`]: which files there are, so that a lost one is missed;
//! * `writer` and `encode`: the files of a running shard: prepared ahead, written in turn, recycled;
//! * `fill`: new files are written once with zeroes before commits come to them.
//!
//! What replay does with the frames is in [`crate::recovery`].

pub(crate) mod encode;
pub(crate) mod fill;
pub mod frame;
pub mod manifest;
pub(crate) mod salvage;
pub mod scan;
pub(crate) mod writer;

pub use frame::{CommitHeader, FileHeader, FrameHeader, FrameKind, Incarnation};
pub use writer::JournalOptions;
