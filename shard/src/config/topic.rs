//! A topic's effective settings with their types, as the log and the produce path use them. Resolved on each shard from its
//! image whenever the topic's overrides or the broker's layers change.

use super::layers::{BrokerLayers, Overrides};
use super::table::topic_keys;
use super::value::ConfigValue;

/// The effective settings of one topic on one broker. Times are milliseconds, sizes bytes; `i64::MAX` is "never".
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // unless it says otherwise, a field is the topic key of that name with `_` for `.`; `keys/topic.keys` says what it does
pub struct TopicSettings {
    pub cleanup_policy: CleanupPolicy,
    pub compression: CompressionSetting,
    pub delete_retention_ms: i64,
    pub durability: Durability,
    pub file_delete_delay_ms: i64,
    pub flush_messages: i64,
    pub flush_ms: i64,
    pub index_interval_bytes: i32,
    pub local_retention_bytes: i64,
    pub local_retention_ms: i64,
    pub max_compaction_lag_ms: i64,
    pub max_message_bytes: i32,
    pub message_timestamp_after_max_ms: i64,
    pub message_timestamp_before_max_ms: i64,
    pub message_timestamp_type: TimestampType,
    pub min_cleanable_dirty_ratio: f64,
    pub min_compaction_lag_ms: i64,
    pub min_insync_replicas: i32,
    /// The broker key `producer.id.expiration.ms`: no topic sets it.
    pub producer_id_expiration_ms: i64,
    pub remote_storage_enable: bool,
    /// Negative is no limit.
    pub retention_bytes: i64,
    /// Negative is no limit.
    pub retention_ms: i64,
    pub segment_bytes: i32,
    pub segment_index_bytes: i32,
    pub segment_jitter_ms: i64,
    pub segment_ms: i64,
    pub unclean_leader_election_enable: bool,
}

/// What happens to closed segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CleanupPolicy {
    /// They are removed by age and size.
    pub delete: bool,
    /// They are compacted by key.
    pub compact: bool,
}

/// The codec of stored batches, with the level for recompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionSetting {
    /// As they came.
    Producer,
    /// None.
    Uncompressed,
    /// gzip at this level; −1 is the library's default.
    Gzip(i32),
    /// Snappy in Java's framing.
    Snappy,
    /// LZ4 frames at this level.
    Lz4(i32),
    /// Zstandard at this level.
    Zstd(i32),
}

/// Whose clock stamps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer's.
    CreateTime,
    /// The broker's, when it appends.
    LogAppendTime,
}

/// When a write counts as stored (`penstock.durability`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When it is synced.
    Fsync,
    /// When it is written; it is synced within a bound of time and bytes.
    Interval,
    /// When the kernel has it: survives our crash, not power loss.
    Written,
}

impl TopicSettings {
    /// The settings of a topic that sets `own`, on a broker with `layers`. Never fails: a value that is not right (none
    /// gets past the controller) counts as not set.
    #[must_use]
    pub fn resolve(layers: &BrokerLayers<'_>, own: &Overrides) -> Self {
        let lookup = Lookup { layers, own };
        Self {
            cleanup_policy: CleanupPolicy::of(&lookup.list("cleanup.policy")),
            compression: compression(&lookup),
            delete_retention_ms: lookup.long("delete.retention.ms"),
            durability: Durability::named(&lookup.text("penstock.durability")),
            file_delete_delay_ms: lookup.long("file.delete.delay.ms"),
            flush_messages: lookup.long("flush.messages"),
            flush_ms: lookup.long("flush.ms"),
            index_interval_bytes: lookup.int("index.interval.bytes"),
            local_retention_bytes: lookup.long("local.retention.bytes"),
            local_retention_ms: lookup.long("local.retention.ms"),
            max_compaction_lag_ms: lookup.long("max.compaction.lag.ms"),
            max_message_bytes: lookup.int("max.message.bytes"),
            message_timestamp_after_max_ms: lookup.long("message.timestamp.after.max.ms"),
            message_timestamp_before_max_ms: lookup.long("message.timestamp.before.max.ms"),
            message_timestamp_type: match lookup.text("message.timestamp.type").as_str() {
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => TimestampType::CreateTime,
            },
            min_cleanable_dirty_ratio: lookup.double("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms: lookup.long("min.compaction.lag.ms"),
            min_insync_replicas: lookup.int("min.insync.replicas"),
            producer_id_expiration_ms: layers.integer("producer.id.expiration.ms", i64::MAX),
            remote_storage_enable: lookup.boolean("remote.storage.enable"),
            retention_bytes: lookup.long("retention.bytes"),
            retention_ms: lookup.long("retention.ms"),
            segment_bytes: lookup.int("segment.bytes"),
            segment_index_bytes: lookup.int("segment.index.bytes"),
            segment_jitter_ms: lookup.long("segment.jitter.ms"),
            segment_ms: lookup.long("segment.ms"),
            unclean_leader_election_enable: lookup.boolean("unclean.leader.election.enable"),
        }
    }

    /// The settings of a topic that sets nothing on a broker that sets nothing.
    #[must_use]
    pub fn built_in() -> Self {
        let none = Overrides::new();
        Self::resolve(&BrokerLayers::of_file(&none), &none)
    }
}

impl CleanupPolicy {
    fn of(items: &[String]) -> Self {
        let has = |name: &str| items.iter().any(|item| item == name);
        Self {
            delete: has("delete"),
            compact: has("compact"),
        }
    }
}

impl Durability {
    fn named(name: &str) -> Self {
        match name {
            "interval" => Self::Interval,
            "written" => Self::Written,
            _ => Self::Fsync,
        }
    }
}

fn compression(lookup: &Lookup<'_>) -> CompressionSetting {
    match lookup.text("compression.type").as_str() {
        "uncompressed" => CompressionSetting::Uncompressed,
        "gzip" => CompressionSetting::Gzip(lookup.int("compression.gzip.level")),
        "snappy" => CompressionSetting::Snappy,
        "lz4" => CompressionSetting::Lz4(lookup.int("compression.lz4.level")),
        "zstd" => CompressionSetting::Zstd(lookup.int("compression.zstd.level")),
        _ => CompressionSetting::Producer,
    }
}

/// One topic's values by key. Keys are literals of this file, which a test compares with the table.
struct Lookup<'a> {
    layers: &'a BrokerLayers<'a>,
    own: &'a Overrides,
}

impl Lookup<'_> {
    fn value(&self, name: &str) -> ConfigValue {
        let key = topic_keys().get(name);
        let own = key.and_then(|key| key.parse(self.own.get(name)?).ok());
        own.or_else(|| self.layers.topic_default(name))
            .expect("every topic key that is looked up has a default")
    }

    fn long(&self, name: &str) -> i64 {
        self.value(name)
            .as_integer()
            .expect("the key is of an integer type")
    }

    fn int(&self, name: &str) -> i32 {
        i32::try_from(self.long(name)).expect("the key's type keeps it within 32 bits")
    }

    fn double(&self, name: &str) -> f64 {
        self.value(name)
            .as_number()
            .expect("the key is of a numeric type")
    }

    fn boolean(&self, name: &str) -> bool {
        self.value(name).as_bool().expect("the key is of type boolean")
    }

    fn text(&self, name: &str) -> String {
        self.value(name).to_string()
    }

    fn list(&self, name: &str) -> Vec<String> {
        self.value(name)
            .as_list()
            .map(<[String]>::to_vec)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(pairs: &[(&str, &str)]) -> Overrides {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn the_built_in_settings_are_kafkas() {
        let settings = TopicSettings::built_in();
        assert_eq!(
            settings.cleanup_policy,
            CleanupPolicy {
                delete: true,
                compact: false
            }
        );
        assert_eq!(settings.compression, CompressionSetting::Producer);
        assert_eq!(settings.max_message_bytes, 1_048_588);
        assert_eq!(settings.segment_bytes, 1 << 30);
        assert_eq!(settings.retention_ms, 604_800_000);
        assert_eq!(settings.segment_ms, 604_800_000);
        assert_eq!(settings.message_timestamp_before_max_ms, i64::MAX);
        assert_eq!(settings.producer_id_expiration_ms, 86_400_000);
        assert_eq!(settings.message_timestamp_after_max_ms, 3_600_000);
        assert_eq!(settings.durability, Durability::Fsync);
        assert!((settings.min_cleanable_dirty_ratio - 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn a_topics_own_value_wins_over_every_broker_layer() {
        let fixed = overrides(&[("log.segment.bytes", "2097152"), ("compression.type", "lz4")]);
        let dynamic = overrides(&[("compression.type", "gzip")]);
        let layers = BrokerLayers {
            per_broker: &dynamic,
            ..BrokerLayers::of_file(&fixed)
        };
        let own = overrides(&[
            ("compression.type", "zstd"),
            ("compression.zstd.level", "7"),
            ("cleanup.policy", "compact,delete"),
            ("message.timestamp.type", "LogAppendTime"),
            ("penstock.durability", "written"),
        ]);
        let settings = TopicSettings::resolve(&layers, &own);
        assert_eq!(settings.compression, CompressionSetting::Zstd(7));
        assert_eq!(
            settings.cleanup_policy,
            CleanupPolicy {
                delete: true,
                compact: true
            }
        );
        assert_eq!(settings.message_timestamp_type, TimestampType::LogAppendTime);
        assert_eq!(settings.durability, Durability::Written);
        assert_eq!(settings.segment_bytes, 2_097_152);
        let unset = TopicSettings::resolve(&layers, &Overrides::new());
        assert_eq!(unset.compression, CompressionSetting::Gzip(-1));
    }

    #[test]
    fn an_empty_cleanup_policy_keeps_everything() {
        let own = overrides(&[("cleanup.policy", "")]);
        let none = Overrides::new();
        let settings = TopicSettings::resolve(&BrokerLayers::of_file(&none), &own);
        assert_eq!(
            settings.cleanup_policy,
            CleanupPolicy {
                delete: false,
                compact: false
            }
        );
    }
}
