//! The tables of known keys, read once from `keys/*.keys` (compiled in), and what a name that is not in them may be.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::key::{Check, ConfigKey, ConfigType, DynamicMode, Importance, Standing, Visibility};

/// The known keys of one kind of resource, by name.
#[derive(Debug)]
pub struct ConfigTable {
    keys: BTreeMap<&'static str, ConfigKey>,
}

/// What a broker key's name turned out to be.
#[derive(Clone, Copy, Debug)]
pub enum Recognised {
    /// A key of the table.
    Known(&'static ConfigKey),
    /// `listener.name.<listener>.…` before a key of the table.
    OfListener(&'static ConfigKey),
    /// A prefix of a plug-in's own keys (`rsm.config.`, `rlmm.config.`): accepted, no meaning here.
    PlugIn,
    /// A key that Kafka 4 no longer has.
    Removed,
    /// Nothing known; the most similar known name, if one is near.
    Unknown(Option<&'static str>),
}

/// The keys of a broker: Kafka's, then ours.
pub fn broker_keys() -> &'static ConfigTable {
    static TABLE: OnceLock<ConfigTable> = OnceLock::new();
    TABLE.get_or_init(|| {
        ConfigTable::read(&[
            include_str!("keys/broker.keys"),
            include_str!("keys/penstock.keys"),
        ])
    })
}

/// The keys of a topic.
pub fn topic_keys() -> &'static ConfigTable {
    static TABLE: OnceLock<ConfigTable> = OnceLock::new();
    TABLE.get_or_init(|| ConfigTable::read(&[include_str!("keys/topic.keys")]))
}

/// The keys of a group.
pub fn group_keys() -> &'static ConfigTable {
    static TABLE: OnceLock<ConfigTable> = OnceLock::new();
    TABLE.get_or_init(|| ConfigTable::read(&[include_str!("keys/group.keys")]))
}

/// The keys of a client metrics subscription.
pub fn client_metrics_keys() -> &'static ConfigTable {
    static TABLE: OnceLock<ConfigTable> = OnceLock::new();
    TABLE.get_or_init(|| ConfigTable::read(&[include_str!("keys/client_metrics.keys")]))
}

/// What `name` in a `server.properties` is.
pub fn recognise(name: &str) -> Recognised {
    let table = broker_keys();
    if let Some(key) = table.get(name) {
        return Recognised::Known(key);
    }
    if let Some(key) = listener_key(table, name) {
        return Recognised::OfListener(key);
    }
    if [
        "rsm.config.",
        "rlmm.config.",
        "config.providers.",
        "kafka.metrics.",
    ]
    .iter()
    .any(|p| name.starts_with(p))
    {
        return Recognised::PlugIn;
    }
    if REMOVED.iter().any(|removed| {
        removed
            .strip_suffix('*')
            .map_or(name == *removed, |p| name.starts_with(p))
    }) {
        return Recognised::Removed;
    }
    Recognised::Unknown(table.nearest(name))
}

/// Keys of Kafka 3 and before that Kafka 4 dropped; a trailing `*` stands for any rest.
const REMOVED: &[&str] = &[
    "zookeeper.*",
    "password.encoder.*",
    "inter.broker.protocol.version",
    "log.message.format.version",
    "log.message.downconversion.enable",
    "log.message.timestamp.difference.max.ms",
    "offsets.commit.required.acks",
    "control.plane.listener.name",
    "broker.id.generation.enable",
    "reserved.broker.max.id",
    "controlled.shutdown.max.retries",
    "controlled.shutdown.retry.backoff.ms",
    "delegation.token.master.key",
    "group.coordinator.new.enable",
    "group.share.enable",
    "host.name",
    "port",
    "advertised.host.name",
    "advertised.port",
    "metadata.log.max.record.bytes.between.snapshots.ms",
];

/// The key behind `listener.name.<listener>.[<mechanism>.]key`.
fn listener_key(table: &'static ConfigTable, name: &str) -> Option<&'static ConfigKey> {
    let (_listener, rest) = name.strip_prefix("listener.name.")?.split_once('.')?;
    let after_mechanism = || rest.split_once('.').map(|(_mechanism, key)| key);
    table.get(rest).or_else(|| table.get(after_mechanism()?))
}

impl ConfigTable {
    /// The key of that name.
    pub fn get(&self, name: &str) -> Option<&ConfigKey> {
        self.keys.get(name)
    }

    /// All keys in name order.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigKey> {
        self.keys.values()
    }

    /// The known name most like `name`, if one is near enough to be meant.
    pub fn nearest(&self, name: &str) -> Option<&'static str> {
        super::suggest::nearest(name, self.keys.keys().copied())
    }

    fn read(sources: &[&'static str]) -> Self {
        let mut keys = BTreeMap::new();
        for line in sources.iter().flat_map(|source| source.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // The tables are compiled in and read by a test, so a bad line never leaves the workbench.
            let key = read_line(line).unwrap_or_else(|| panic!("bad line in a table of keys: {line}"));
            assert!(
                keys.insert(key.name, key).is_none(),
                "key twice in a table: {line}"
            );
        }
        Self { keys }
    }
}

fn read_line(line: &'static str) -> Option<ConfigKey> {
    let columns: Vec<&'static str> = line.splitn(9, " | ").collect();
    let [
        name,
        kind,
        default,
        check,
        importance,
        dynamic,
        standing,
        visibility,
        doc,
    ] = columns.as_slice()
    else {
        return None;
    };
    Some(ConfigKey {
        name,
        kind: read_type(kind)?,
        default: match *default {
            "~" => None,
            "\"\"" => Some(""),
            text => Some(text),
        },
        check: read_check(check)?,
        importance: match *importance {
            "high" => Importance::High,
            "medium" => Importance::Medium,
            "low" => Importance::Low,
            _ => return None,
        },
        dynamic: match *dynamic {
            "static" => DynamicMode::Static,
            "broker" => DynamicMode::PerBroker,
            "cluster" => DynamicMode::ClusterWide,
            _ => return None,
        },
        standing: match *standing {
            "used" => Standing::Used,
            "later" => Standing::Later,
            "inert" => Standing::Inert,
            _ => return None,
        },
        visibility: match *visibility {
            "public" => Visibility::Public,
            "internal" => Visibility::Internal,
            "dynamic" => Visibility::DynamicOnly,
            _ => return None,
        },
        doc,
    })
}

fn read_type(text: &str) -> Option<ConfigType> {
    Some(match text {
        "boolean" => ConfigType::Boolean,
        "string" => ConfigType::String,
        "int" => ConfigType::Int,
        "short" => ConfigType::Short,
        "long" => ConfigType::Long,
        "double" => ConfigType::Double,
        "list" => ConfigType::List,
        "class" => ConfigType::Class,
        "password" => ConfigType::Password,
        _ => return None,
    })
}

fn read_check(text: &'static str) -> Option<Check> {
    let items = |names: &'static str| {
        names
            .split('/')
            .filter(|name| !name.is_empty())
            .collect::<Vec<_>>()
    };
    if let Some(low) = text.strip_prefix(">=") {
        return Some(Check::AtLeast(low.parse().ok()?));
    }
    let (word, names) = text.split_once(':').unwrap_or((text, ""));
    Some(match word {
        "-" => Check::Any,
        "nonempty" => Check::NonEmpty,
        "1..9|-1" => Check::GzipLevel,
        "oneof" => Check::OneOf(items(names)),
        "anycase" => Check::OneOfAnyCase(items(names)),
        "list" => Check::Items {
            allowed: items(names),
            empty: true,
        },
        "nonempty-list" => Check::Items {
            allowed: items(names),
            empty: false,
        },
        "throttled-replicas" => Check::ThrottledReplicas,
        "offset-reset" => Check::OffsetReset,
        range => {
            let (low, high) = range.split_once("..")?;
            Check::Between(low.parse().ok()?, high.parse().ok()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_reads_and_every_default_is_allowed() {
        let mut count = 0;
        for table in [broker_keys(), topic_keys(), group_keys(), client_metrics_keys()] {
            for key in table.iter() {
                count += 1;
                assert!(!key.doc.is_empty(), "{} has no words", key.name);
                if let Some(default) = key.default {
                    let value = key
                        .parse(default)
                        .unwrap_or_else(|e| panic!("default of {}: {e}", key.name));
                    assert_eq!(key.default_value().as_ref(), Some(&value));
                }
            }
        }
        assert!(count > 400, "only {count} keys");
    }

    /// DescribeConfigs of a Kafka 4.3.1 broker that sets nothing of its own names 340 keys (observed); the others are for
    /// tests of Kafka, or exist only as dynamic values.
    #[test]
    fn the_broker_table_holds_kafkas_names() {
        let kafkas = broker_keys()
            .iter()
            .filter(|key| !key.name.starts_with("penstock."));
        let (mut public, mut other) = (0, 0);
        for key in kafkas {
            match key.visibility {
                Visibility::Public => public += 1,
                Visibility::Internal | Visibility::DynamicOnly => other += 1,
            }
        }
        assert_eq!((public, other), (340, 23));
    }

    #[test]
    fn names_in_a_properties_file_are_told_apart() {
        assert!(matches!(recognise("num.partitions"), Recognised::Known(_)));
        assert!(matches!(
            recognise("listener.name.internal.ssl.keystore.location"),
            Recognised::OfListener(_)
        ));
        assert!(matches!(
            recognise("listener.name.internal.scram-sha-256.sasl.jaas.config"),
            Recognised::OfListener(_)
        ));
        assert!(matches!(recognise("rsm.config.bucket"), Recognised::PlugIn));
        assert!(matches!(recognise("zookeeper.connect"), Recognised::Removed));
        assert!(matches!(
            recognise("inter.broker.protocol.version"),
            Recognised::Removed
        ));
        assert!(matches!(
            recognise("num.partition"),
            Recognised::Unknown(Some("num.partitions"))
        ));
        assert!(matches!(
            recognise("log.retention.hour"),
            Recognised::Unknown(Some("log.retention.hours"))
        ));
        assert!(matches!(
            recognise("completely.different.thing"),
            Recognised::Unknown(None)
        ));
    }
}
