//! The features that this broker supports (KIP-584): the controller's table, which says what is true. Which levels are in
//! force is the metadata's to say. Clients choose protocols by both: a Java producer that sees `transaction.version` 2 uses
//! transactions V2.

pub use shard::controller::features::{Feature, SUPPORTED as FEATURES};
