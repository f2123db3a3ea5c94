//! The replication state of one partition on the shard that owns it. No I/O: the owner feeds it log events and asks it
//! what may be acknowledged and read.

pub mod watermark;
