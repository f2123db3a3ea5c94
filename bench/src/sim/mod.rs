//! The simulator of one broker: the real code of broker, shards and storage on virtual time, a seeded schedule, a disk that
//! loses and tears what was not synced, and a network that delays and cuts; clients that speak protocol bytes; a model that
//! knows what clients were promised. One seed is one run, and runs the same way each time. Lives in one thread.
//!
//! ```text
//! producers ─┐                                      ┌─ SimDisk ─► crash ─► examine (copies) ─┐
//! consumers ─┼─► client ─► net ─► node (assembly) ──┤                                         ├─► oracle ─► trace
//! vandals   ─┘      └───────── answers ─────────────┴─────────────────────────────────────────┘
//! ```
//!
//! Start reading at [`world`]; what a seed decides is in [`knobs`], what is checked in [`oracle`], [`client`] and
//! [`consumer`], and that the checks see anything is shown by [`canary`].

pub mod admin;
pub mod canary;
pub mod client;
pub mod consumer;
pub mod env;
pub mod examine;
pub mod knobs;
pub mod logging;
pub mod net;
pub mod node;
pub mod oracle;
pub mod producer;
pub mod record;
mod requests;
mod restless;
pub mod trace;
pub mod trimmer;
pub mod tuner;
pub mod vandal;
pub mod world;
