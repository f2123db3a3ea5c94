//! What measures and tries the broker from outside: starters for it and for Apache Kafka, the client matrix, kill tests, hostile
//! input and the side-by-side comparison. The broker does not need this crate.
#![allow(unreachable_pub)] // a library for its own binaries and tests only

mod bounded;
pub mod bulk;
pub mod clients;
pub mod compare;
pub mod conformance;
pub mod crash;
pub mod ecosystem;
pub mod error;
pub mod group_load;
pub mod hostile;
mod http;
pub mod in_process;
pub mod kafka;
pub mod kill;
pub mod load;
pub mod micro;
mod place;
pub mod process;
pub mod report;
pub mod resources;
pub mod restart;
pub mod roundtrip;
pub mod sim;
pub mod storage_load;
pub mod target;
pub mod tools;
