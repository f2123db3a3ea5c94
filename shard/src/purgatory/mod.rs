//! Requests that wait on this shard: produces for their records to be durable or replicated, fetches for new data.
//! State machines without I/O; the owner feeds them watermark events and deadlines.

pub mod fetch;
pub mod produce;
