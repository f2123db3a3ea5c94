//! What a fetch decides without I/O: its session (KIP-227) and how the answers of several shards become one.

pub mod assembly;
pub mod session;
