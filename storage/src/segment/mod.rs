//! One segment of a log: the files that share a base offset. The indexes here are pure memory with Kafka's file formats;
//! who reads and writes the files is the log.

pub(crate) mod file;
pub mod headroom;
pub mod index_error;
pub mod indexes;
pub mod offset_index;
pub(crate) mod open_files;
pub(crate) mod state;
pub mod time_index;
pub mod txn_index;
