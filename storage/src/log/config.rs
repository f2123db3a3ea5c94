//! The settings of one log: Kafka's topic configurations as far as the log engine acts on them, resolved to plain values.

use crate::retention::RetentionRules;
use crate::types::LogId;

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
    /// `segment.jitter.ms`; of an open log, its share of it ([`Self::drawn`]).
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
    /// What the log may lose by itself.
    pub retention: RetentionRules,
    /// `file.delete.delay.ms`.
    pub file_delete_delay_ms: u64,
    /// Whether and how it is compacted.
    pub compaction: CompactionConfig,
}

impl LogConfig {
    /// With the share of `segment.jitter.ms` that this log has, so that logs which were begun together do not roll together.
    /// The same for a log in each run.
    #[must_use]
    pub fn drawn(mut self, id: LogId) -> Self {
        let most = self.segment_jitter_ms.min(self.segment_ms);
        self.segment_jitter_ms = match u64::try_from(most) {
            Ok(most) if most > 0 => {
                let mut name = [0; 20];
                name[..16].copy_from_slice(&id.topic.0);
                name[16..].copy_from_slice(&id.partition.to_be_bytes());
                let share = u64::from(crc32c::crc32c(&name));
                i64::try_from((u128::from(most) * u128::from(share)) >> 32).unwrap_or(0)
            }
            _ => 0,
        };
        self
    }
}

/// What compaction does to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionConfig {
    /// `cleanup.policy` has `compact`.
    pub enabled: bool,
    /// `min.cleanable.dirty.ratio`, parts per million.
    pub min_dirty_ppm: u32,
    /// `min.compaction.lag.ms`.
    pub min_lag_ms: i64,
    /// `max.compaction.lag.ms`; `i64::MAX` is never.
    pub max_lag_ms: i64,
    /// `delete.retention.ms`.
    pub delete_retention_ms: i64,
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
            retention: RetentionRules::default(),
            file_delete_delay_ms: 60_000,
            compaction: CompactionConfig::default(),
        }
    }
}

impl Default for CompactionConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            min_dirty_ppm: 500_000,
            min_lag_ms: 0,
            max_lag_ms: i64::MAX,
            delete_retention_ms: 24 * 3600 * 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::TopicId;

    #[test]
    fn rt_1_jitter_is_spread_over_logs_stays_below_its_limit_and_is_the_same_in_each_run() {
        let drawn = |segment_ms, segment_jitter_ms, partition| {
            let config = LogConfig {
                segment_ms,
                segment_jitter_ms,
                ..LogConfig::default()
            };
            let topic = TopicId([7; 16]);
            config.drawn(LogId { topic, partition }).segment_jitter_ms
        };
        let shares: Vec<i64> = (0..1000)
            .map(|partition| drawn(10_000, 1000, partition))
            .collect();
        assert!(shares.iter().all(|share| (0..1000).contains(share)));
        let mean = shares.iter().sum::<i64>() / 1000;
        assert!((450..550).contains(&mean), "{mean}");
        assert_eq!(drawn(10_000, 1000, 3), shares[3]);
        assert_eq!(drawn(10_000, 0, 3), 0);
        // It is never larger than what it shortens.
        assert!((0..100).all(|partition| drawn(50, i64::MAX, partition) < 50));
    }
}
