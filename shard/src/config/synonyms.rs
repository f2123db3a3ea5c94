//! Which broker keys stand behind a topic's or group's key when that sets nothing itself, strongest first, and how their
//! units convert (`log.retention.hours` → `retention.ms`).

use super::value::ConfigValue;

/// A broker key that supplies the value of another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synonym {
    /// The broker key.
    pub name: &'static str,
    /// What its value is multiplied with.
    pub factor: i64,
}

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;

const fn same(name: &'static str) -> Synonym {
    Synonym { name, factor: 1 }
}

const fn minutes(name: &'static str) -> Synonym {
    Synonym {
        name,
        factor: MINUTE_MS,
    }
}

const fn hours(name: &'static str) -> Synonym {
    Synonym {
        name,
        factor: HOUR_MS,
    }
}

/// The broker keys behind a topic's key.
#[rustfmt::skip]
pub const TOPIC_SYNONYMS: &[(&str, &[Synonym])] = &[
    ("cleanup.policy", &[same("log.cleanup.policy")]),
    ("compression.gzip.level", &[same("compression.gzip.level")]),
    ("compression.lz4.level", &[same("compression.lz4.level")]),
    ("compression.type", &[same("compression.type")]),
    ("compression.zstd.level", &[same("compression.zstd.level")]),
    ("delete.retention.ms", &[same("log.cleaner.delete.retention.ms")]),
    ("file.delete.delay.ms", &[same("log.segment.delete.delay.ms")]),
    ("flush.messages", &[same("log.flush.interval.messages")]),
    ("flush.ms", &[same("log.flush.interval.ms"), same("log.flush.scheduler.interval.ms")]),
    ("index.interval.bytes", &[same("log.index.interval.bytes")]),
    ("local.retention.bytes", &[same("log.local.retention.bytes")]),
    ("local.retention.ms", &[same("log.local.retention.ms")]),
    ("max.compaction.lag.ms", &[same("log.cleaner.max.compaction.lag.ms")]),
    ("max.message.bytes", &[same("message.max.bytes")]),
    ("message.timestamp.after.max.ms", &[same("log.message.timestamp.after.max.ms")]),
    ("message.timestamp.before.max.ms", &[same("log.message.timestamp.before.max.ms")]),
    ("message.timestamp.type", &[same("log.message.timestamp.type")]),
    ("min.cleanable.dirty.ratio", &[same("log.cleaner.min.cleanable.ratio")]),
    ("min.compaction.lag.ms", &[same("log.cleaner.min.compaction.lag.ms")]),
    ("min.insync.replicas", &[same("min.insync.replicas")]),
    ("penstock.durability", &[same("penstock.durability")]),
    ("preallocate", &[same("log.preallocate")]),
    ("retention.bytes", &[same("log.retention.bytes")]),
    ("retention.ms", &[same("log.retention.ms"), minutes("log.retention.minutes"), hours("log.retention.hours")]),
    ("segment.bytes", &[same("log.segment.bytes")]),
    ("segment.index.bytes", &[same("log.index.size.max.bytes")]),
    ("segment.jitter.ms", &[same("log.roll.jitter.ms"), hours("log.roll.jitter.hours")]),
    ("segment.ms", &[same("log.roll.ms"), hours("log.roll.hours")]),
    ("unclean.leader.election.enable", &[same("unclean.leader.election.enable")]),
];

/// The broker keys behind a group's key. Three have none: their defaults are their own.
#[rustfmt::skip]
pub const GROUP_SYNONYMS: &[(&str, &[Synonym])] = &[
    ("consumer.assignment.interval.ms", &[same("group.consumer.assignment.interval.ms")]),
    ("consumer.heartbeat.interval.ms", &[same("group.consumer.heartbeat.interval.ms")]),
    ("consumer.session.timeout.ms", &[same("group.consumer.session.timeout.ms")]),
    ("share.assignment.interval.ms", &[same("group.share.assignment.interval.ms")]),
    ("share.delivery.count.limit", &[same("group.share.delivery.count.limit")]),
    ("share.heartbeat.interval.ms", &[same("group.share.heartbeat.interval.ms")]),
    ("share.partition.max.record.locks", &[same("group.share.partition.max.record.locks")]),
    ("share.record.lock.duration.ms", &[same("group.share.record.lock.duration.ms")]),
    ("share.session.timeout.ms", &[same("group.share.session.timeout.ms")]),
    ("streams.assignment.interval.ms", &[same("group.streams.assignment.interval.ms")]),
    ("streams.heartbeat.interval.ms", &[same("group.streams.heartbeat.interval.ms")]),
    ("streams.initial.rebalance.delay.ms", &[same("group.streams.initial.rebalance.delay.ms")]),
    ("streams.num.standby.replicas", &[same("group.streams.num.standby.replicas")]),
    ("streams.session.timeout.ms", &[same("group.streams.session.timeout.ms")]),
];

/// Broker keys that are one setting in several units, strongest first.
pub const BROKER_ALIASES: &[&[&str]] = &[
    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"],
    &["log.roll.ms", "log.roll.hours"],
    &["log.roll.jitter.ms", "log.roll.jitter.hours"],
    &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
];

/// The broker keys behind `name`, strongest first; none for a key without any.
pub fn synonyms_of(table: &'static [(&'static str, &'static [Synonym])], name: &str) -> &'static [Synonym] {
    table
        .binary_search_by(|(key, _)| (*key).cmp(name))
        .ok()
        .and_then(|at| table.get(at))
        .map_or(&[], |(_, synonyms)| synonyms)
}

impl Synonym {
    /// A broker key's value in the unit of the key it stands behind. A negative time means "no limit" in every unit
    /// for retention (`-1`), so it is not multiplied.
    #[must_use]
    pub fn convert(&self, value: ConfigValue) -> ConfigValue {
        match value {
            ConfigValue::Integer(number) if number > 0 => {
                ConfigValue::Integer(number.saturating_mul(self.factor))
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::{broker_keys, group_keys, topic_keys};
    use super::*;

    #[test]
    fn every_synonym_exists_and_the_tables_are_sorted() {
        for (table, keys) in [(TOPIC_SYNONYMS, topic_keys()), (GROUP_SYNONYMS, group_keys())] {
            assert!(table.windows(2).all(|pair| pair[0].0 < pair[1].0));
            for (name, synonyms) in table {
                assert!(keys.get(name).is_some(), "{name}");
                for synonym in *synonyms {
                    assert!(broker_keys().get(synonym.name).is_some(), "{}", synonym.name);
                }
            }
        }
    }

    #[test]
    fn a_topics_default_is_its_strongest_synonyms_default() {
        for (name, synonyms) in TOPIC_SYNONYMS {
            let own = topic_keys().get(name).and_then(|key| key.default_value());
            let behind = synonyms
                .iter()
                .find_map(|s| Some(s.convert(broker_keys().get(s.name)?.default_value()?)));
            assert_eq!(own, behind, "{name}");
        }
    }
}
