//! The layers a broker's configuration is made of and the lookups through them: one broker's dynamic values over the
//! cluster's dynamic default over the file (and environment and command line) over the built-in default.

use std::collections::BTreeMap;

use super::synonyms::{Synonym, TOPIC_SYNONYMS, synonyms_of};
use super::table::broker_keys;
use super::value::ConfigValue;

/// What a resource sets itself: text by key, as it was given.
pub type Overrides = BTreeMap<String, String>;

/// The most bytes of one value (Kafka's bound for a string of a record).
pub const VALUE_BYTES_MAX: usize = 32_767;

/// The layers of one broker, strongest first. Values that a layer holds are right (checked when they came in); one that
/// is not after all counts as not there.
#[derive(Clone, Copy, Debug)]
pub struct BrokerLayers<'a> {
    /// Dynamic values of this broker.
    pub per_broker: &'a Overrides,
    /// Dynamic values of the cluster's default.
    pub cluster_default: &'a Overrides,
    /// What the broker was started with.
    pub fixed: &'a Overrides,
}

/// Overrides of a resource that sets nothing.
pub static NO_OVERRIDES: Overrides = BTreeMap::new();

impl<'a> BrokerLayers<'a> {
    /// Layers of a broker that has no dynamic values.
    #[must_use]
    pub fn of_file(fixed: &'a Overrides) -> Self {
        Self {
            per_broker: &NO_OVERRIDES,
            cluster_default: &NO_OVERRIDES,
            fixed,
        }
    }

    /// The effective value of a broker key; `None` when it is unset or unknown. Units are the key's own.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<ConfigValue> {
        self.set_value(name)
            .or_else(|| broker_keys().get(name)?.default_value())
    }

    /// The value of a broker key that some layer sets, without the built-in default.
    #[must_use]
    pub fn set_value(&self, name: &str) -> Option<ConfigValue> {
        let key = broker_keys().get(name)?;
        [self.per_broker, self.cluster_default, self.fixed]
            .into_iter()
            .filter_map(|layer| layer.get(name))
            .find_map(|text| key.parse(text).ok())
    }

    /// The effective integer of a broker key, `fallback` when it is unset.
    #[must_use]
    pub fn integer(&self, name: &str, fallback: i64) -> i64 {
        self.value(name)
            .and_then(|value| value.as_integer())
            .unwrap_or(fallback)
    }

    /// The effective boolean of a broker key; false when it is unset.
    #[must_use]
    pub fn boolean(&self, name: &str) -> bool {
        self.value(name)
            .and_then(|value| value.as_bool())
            .unwrap_or(false)
    }

    /// The effective text of a broker key; `None` when it is unset or empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        match self.value(name) {
            Some(ConfigValue::Text(text)) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// The effective items of a broker key of type list.
    #[must_use]
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(ConfigValue::List(items)) => items,
            _ => Vec::new(),
        }
    }

    /// The value that `synonyms`, strongest first, give: layer by layer, so that any spelling in a stronger layer wins
    /// over every spelling in a weaker one (Kafka's rule), then the defaults.
    #[must_use]
    pub fn through(&self, synonyms: &[Synonym]) -> Option<ConfigValue> {
        let table = broker_keys();
        let layers = [self.per_broker, self.cluster_default, self.fixed];
        let set = layers.into_iter().find_map(|layer| {
            synonyms.iter().find_map(|synonym| {
                let value = table.get(synonym.name)?.parse(layer.get(synonym.name)?).ok()?;
                Some(synonym.convert(value))
            })
        });
        set.or_else(|| {
            synonyms
                .iter()
                .find_map(|synonym| Some(synonym.convert(table.get(synonym.name)?.default_value()?)))
        })
    }

    /// What a topic that sets nothing gets for one of its keys.
    #[must_use]
    pub fn topic_default(&self, name: &str) -> Option<ConfigValue> {
        self.through(synonyms_of(TOPIC_SYNONYMS, name))
            .or_else(|| super::table::topic_keys().get(name)?.default_value())
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
    fn the_finer_unit_wins_within_a_layer() {
        let fixed = overrides(&[
            ("log.retention.hours", "24"),
            ("log.retention.minutes", "5"),
            ("log.roll.hours", "2"),
        ]);
        let layers = BrokerLayers::of_file(&fixed);
        assert_eq!(
            layers.topic_default("retention.ms"),
            Some(ConfigValue::Integer(300_000))
        );
        assert_eq!(
            layers.topic_default("segment.ms"),
            Some(ConfigValue::Integer(7_200_000))
        );
    }

    #[test]
    fn a_dynamic_value_wins_over_the_file() {
        let fixed = overrides(&[("log.retention.ms", "7")]);
        let cluster_default = overrides(&[("log.retention.ms", "8")]);
        let per_broker = overrides(&[("log.retention.ms", "9")]);
        let mut layers = BrokerLayers {
            per_broker: &per_broker,
            cluster_default: &cluster_default,
            fixed: &fixed,
        };
        assert_eq!(
            layers.topic_default("retention.ms"),
            Some(ConfigValue::Integer(9))
        );
        layers.per_broker = &NO_OVERRIDES;
        assert_eq!(
            layers.topic_default("retention.ms"),
            Some(ConfigValue::Integer(8))
        );
        layers.cluster_default = &NO_OVERRIDES;
        assert_eq!(
            layers.topic_default("retention.ms"),
            Some(ConfigValue::Integer(7))
        );
    }

    #[test]
    fn no_limit_stays_no_limit_in_every_unit() {
        let fixed = overrides(&[("log.retention.hours", "-1")]);
        assert_eq!(
            BrokerLayers::of_file(&fixed).topic_default("retention.ms"),
            Some(ConfigValue::Integer(-1))
        );
    }
}
