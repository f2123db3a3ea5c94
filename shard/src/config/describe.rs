//! What DescribeConfigs answers: for each key of a resource its effective value, where that comes from, and all values that
//! stand behind it (kafka-surface AD-8). Secrets are never in it.

use super::key::{ConfigKey, ConfigType, Visibility};
use super::layers::{BrokerLayers, Overrides};
use super::synonyms::{BROKER_ALIASES, GROUP_SYNONYMS, Synonym, TOPIC_SYNONYMS, synonyms_of};
use super::table::{Recognised, broker_keys, client_metrics_keys, group_keys, recognise, topic_keys};
use super::value::ConfigValue;

/// One key of a described resource.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEntry {
    /// The key.
    pub name: String,
    /// The effective value in Kafka's spelling; `None` is unset or secret.
    pub value: Option<String>,
    /// Whether a request cannot change it.
    pub read_only: bool,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether it is a secret.
    pub sensitive: bool,
    /// Its type; `None` for a key that is not known here.
    pub kind: Option<ConfigType>,
    /// All values behind it, strongest first, the effective one included.
    pub synonyms: Vec<ConfigSynonym>,
    /// What the key does.
    pub doc: Option<&'static str>,
}

/// One value behind a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The key that holds it.
    pub name: String,
    /// As it was given; `None` is secret.
    pub value: Option<String>,
    /// The layer that holds it.
    pub source: ConfigSource,
}

/// Where a value comes from, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i8)]
pub enum ConfigSource {
    /// The topic's own.
    Topic = 1,
    /// Dynamic, of one broker.
    DynamicBroker = 2,
    /// Dynamic, of the cluster's default.
    DynamicDefaultBroker = 3,
    /// The file, the environment or the command line.
    StaticBroker = 4,
    /// Built in.
    Default = 5,
    /// A logger's level, set at run time.
    DynamicBrokerLogger = 6,
    /// A client metrics subscription's own.
    ClientMetrics = 7,
    /// A group's own.
    Group = 8,
}

impl ConfigSource {
    /// The number in a DescribeConfigs answer.
    #[must_use]
    pub const fn wire(self) -> i8 {
        self as i8
    }
}

/// The keys of a topic that sets `own`.
#[must_use]
pub fn topic(layers: &BrokerLayers<'_>, own: &Overrides) -> Vec<ConfigEntry> {
    topic_keys()
        .iter()
        .map(|key| {
            let synonyms = synonyms_of(TOPIC_SYNONYMS, key.name);
            with_broker_synonyms(key, layers, own, synonyms, ConfigSource::Topic)
        })
        .collect()
}

/// The keys of a group that sets `own`.
#[must_use]
pub fn group(layers: &BrokerLayers<'_>, own: &Overrides) -> Vec<ConfigEntry> {
    group_keys()
        .iter()
        .map(|key| {
            let synonyms = synonyms_of(GROUP_SYNONYMS, key.name);
            with_broker_synonyms(key, layers, own, synonyms, ConfigSource::Group)
        })
        .collect()
}

/// The keys of a client metrics subscription that sets `own`.
#[must_use]
pub fn client_metrics(own: &Overrides) -> Vec<ConfigEntry> {
    let none = Overrides::new();
    client_metrics_keys()
        .iter()
        .map(|key| {
            let mut entry = with_broker_synonyms(
                key,
                &BrokerLayers::of_file(&none),
                own,
                &[],
                ConfigSource::ClientMetrics,
            );
            entry.synonyms.clear(); // as Kafka answers
            entry
        })
        .collect()
}

/// The keys of a broker: those of the table and whatever else its layers hold.
#[must_use]
pub fn broker(layers: &BrokerLayers<'_>) -> Vec<ConfigEntry> {
    let mut entries: Vec<ConfigEntry> = broker_keys()
        .iter()
        .filter(|key| match key.visibility {
            Visibility::Public => true,
            Visibility::Internal | Visibility::DynamicOnly => is_set(layers, key.name),
        })
        .map(|key| known_broker_key(key, layers))
        .collect();
    for name in [layers.per_broker, layers.cluster_default, layers.fixed]
        .into_iter()
        .flat_map(Overrides::keys)
    {
        let listed = |entries: &[ConfigEntry]| entries.iter().any(|entry| entry.name == *name);
        if broker_keys().get(name).is_none() && !listed(&entries) {
            entries.push(other_broker_key(name, layers));
        }
    }
    entries
}

/// The dynamic values of the cluster's default: nothing but what is set.
#[must_use]
pub fn cluster_default(own: &Overrides) -> Vec<ConfigEntry> {
    own.iter()
        .map(|(name, text)| {
            let key = known_or_listeners_key(name);
            let sensitive = key.is_none_or(ConfigKey::is_sensitive);
            let shown = (!sensitive).then(|| text.clone());
            ConfigEntry {
                name: name.clone(),
                value: shown.clone(),
                read_only: key.is_none_or(ConfigKey::is_read_only),
                source: ConfigSource::DynamicDefaultBroker,
                sensitive,
                kind: key.map(|key| key.kind),
                synonyms: vec![ConfigSynonym {
                    name: name.clone(),
                    value: shown,
                    source: ConfigSource::DynamicDefaultBroker,
                }],
                doc: key.map(|key| key.doc),
            }
        })
        .collect()
}

fn is_set(layers: &BrokerLayers<'_>, name: &str) -> bool {
    [layers.per_broker, layers.cluster_default, layers.fixed]
        .iter()
        .any(|layer| layer.contains_key(name))
}

fn known_or_listeners_key(name: &str) -> Option<&'static ConfigKey> {
    match recognise(name) {
        Recognised::Known(key) | Recognised::OfListener(key) => Some(key),
        Recognised::PlugIn | Recognised::Removed | Recognised::Unknown(_) => None,
    }
}

/// A key of a resource whose unset values come from broker keys. A topic's answer names every broker key behind it;
/// Kafka leaves out those above the first of the finest unit, and then calls a value from `log.retention.hours` a default.
fn with_broker_synonyms(
    key: &'static ConfigKey,
    layers: &BrokerLayers<'_>,
    own: &Overrides,
    synonyms: &'static [Synonym],
    own_source: ConfigSource,
) -> ConfigEntry {
    let names: Vec<&'static str> = synonyms.iter().map(|synonym| synonym.name).collect();
    let mut behind = values_behind(layers, &names);
    let own_value = own.get(key.name).and_then(|text| key.parse(text).ok());
    if let Some(value) = &own_value {
        let first = ConfigSynonym {
            name: key.name.to_owned(),
            value: visible(key, value),
            source: own_source,
        };
        behind.insert(0, first);
    }
    let value = own_value
        .or_else(|| layers.through(synonyms))
        .or_else(|| key.default_value());
    ConfigEntry {
        name: key.name.to_owned(),
        value: value.and_then(|value| visible(key, &value)),
        read_only: false,
        source: behind.first().map_or(ConfigSource::Default, |first| first.source),
        sensitive: key.is_sensitive(),
        kind: Some(key.kind),
        synonyms: behind,
        doc: Some(key.doc),
    }
}

fn known_broker_key(key: &'static ConfigKey, layers: &BrokerLayers<'_>) -> ConfigEntry {
    let alone = [key.name];
    let names = BROKER_ALIASES
        .iter()
        .find(|aliases| aliases.contains(&key.name))
        .map_or(alone.as_slice(), |aliases| aliases);
    let mut behind = values_behind(layers, names);
    // A stronger spelling says nothing about this one: the list starts at the key itself (as Kafka's does).
    let first = behind.iter().position(|synonym| synonym.name == key.name);
    behind.drain(..first.unwrap_or(behind.len()));
    ConfigEntry {
        name: key.name.to_owned(),
        value: layers.value(key.name).and_then(|value| visible(key, &value)),
        read_only: key.is_read_only(),
        source: behind.first().map_or(ConfigSource::Default, |first| first.source),
        sensitive: key.is_sensitive(),
        kind: Some(key.kind),
        synonyms: behind,
        doc: Some(key.doc),
    }
}

/// A key that the table does not have: of a listener, or unknown; what is unknown may be a secret.
fn other_broker_key(name: &str, layers: &BrokerLayers<'_>) -> ConfigEntry {
    let key = known_or_listeners_key(name);
    let sensitive = key.is_none_or(ConfigKey::is_sensitive);
    let behind: Vec<ConfigSynonym> = layered(layers)
        .into_iter()
        .filter_map(|(layer, source)| {
            let text = layer.get(name)?;
            Some(ConfigSynonym {
                name: name.to_owned(),
                value: (!sensitive).then(|| text.clone()),
                source,
            })
        })
        .collect();
    ConfigEntry {
        name: name.to_owned(),
        value: behind.first().and_then(|first| first.value.clone()),
        read_only: key.is_none_or(ConfigKey::is_read_only),
        source: behind.first().map_or(ConfigSource::Default, |first| first.source),
        sensitive,
        kind: key.map(|key| key.kind),
        synonyms: behind,
        doc: key.map(|key| key.doc),
    }
}

/// All values that the layers and the defaults hold for `names`, layer by layer.
fn values_behind(layers: &BrokerLayers<'_>, names: &[&'static str]) -> Vec<ConfigSynonym> {
    let table = broker_keys();
    let mut behind = Vec::new();
    for (layer, source) in layered(layers) {
        for name in names {
            if let (Some(text), Some(key)) = (layer.get(*name), table.get(name)) {
                behind.push(ConfigSynonym {
                    name: (*name).to_owned(),
                    value: (!key.is_sensitive()).then(|| text.clone()),
                    source,
                });
            }
        }
    }
    for name in names {
        if let Some(key) = table.get(name)
            && let Some(value) = key.default_value()
            && key.visibility != Visibility::DynamicOnly
        {
            behind.push(ConfigSynonym {
                name: (*name).to_owned(),
                value: visible(key, &value),
                source: ConfigSource::Default,
            });
        }
    }
    behind
}

fn layered<'a>(layers: &BrokerLayers<'a>) -> [(&'a Overrides, ConfigSource); 3] {
    [
        (layers.per_broker, ConfigSource::DynamicBroker),
        (layers.cluster_default, ConfigSource::DynamicDefaultBroker),
        (layers.fixed, ConfigSource::StaticBroker),
    ]
}

fn visible(key: &ConfigKey, value: &ConfigValue) -> Option<String> {
    (!key.is_sensitive()).then(|| value.to_string())
}
