//! The settings of one log: Kafka's topic configurations as far as the log engine acts on them, resolved to plain values.

/// When an append counts as durable (`penstock.durability`, DESIGN §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// On stable storage.
    #[default]
    Fsync,
    /// The kernel has the direct write, and a sync follows within a bound.
    Interval,
    /// The kernel has the direct write: survives the process, not power loss.
    Written,
}

/// A log's settings. `Default` is Kafka 4.3's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `segment.bytes`.
    pub segment_bytes: u32,
    /// `segment.ms`.
    pub segment_ms: i64,
    /// `segment.jitter.ms`, already drawn for this log.
    pub segment_jitter_ms: i64,
    /// `segment.index.bytes`.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`.
    pub index_interval_bytes: u32,
    /// `producer.id.expiration.ms`.
    pub producer_id_expiration_ms: i64,
    /// `penstock.durability`.
    pub durability: Durability,
    /// `flush.ms`; `u64::MAX` is never.
    pub flush_ms: u64,
    /// `flush.messages`; `u64::MAX` is never.
    pub flush_messages: u64,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            segment_jitter_ms: 0,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4096,
            producer_id_expiration_ms: 24 * 3600 * 1000,
            durability: Durability::Fsync,
            flush_ms: u64::MAX,
            flush_messages: u64::MAX,
        }
    }
}
