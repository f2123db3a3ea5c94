//! What `penstock config` shows: every key with its effective value and where that comes from. Secrets are hidden.

use serde::Serialize;
use shard::config::{BrokerLayers, ConfigSource, ConfigType, describe};

use super::layers::AsWritten;
use super::settings::Settings;

/// One key of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Effective {
    /// The key.
    pub name: String,
    /// Its value in Kafka's spelling; `None` is unset or secret.
    pub value: Option<String>,
    /// Where the value stands: a line of a file, a variable, `--override`, or `default`.
    pub origin: String,
    /// Whether the value is a secret, and so not shown.
    pub is_secret: bool,
    /// Its type in lower case; `None` for a key that is not known.
    #[serde(rename = "type")]
    pub kind: Option<&'static str>,
    /// What it does; `None` for a key that is not known.
    pub doc: Option<&'static str>,
}

/// All keys in name order.
#[must_use]
pub fn report(written: &AsWritten, settings: &Settings) -> Vec<Effective> {
    let mut entries = describe::broker(&BrokerLayers::of_file(&settings.fixed));
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries
        .into_iter()
        .map(|entry| {
            let origin = match (written.get(&entry.name), entry.source) {
                (Some(value), _) => value.origin.to_string(),
                (None, ConfigSource::StaticBroker) => written.get("broker.id").map_or_else(
                    || "configured".to_owned(),
                    |old| format!("broker.id: {}", old.origin),
                ),
                (None, _) => "default".to_owned(),
            };
            Effective {
                name: entry.name,
                value: entry.value,
                origin,
                is_secret: entry.sensitive,
                kind: entry.kind.map(type_name),
                doc: entry.doc,
            }
        })
        .collect()
}

/// The report as a table: name, value, origin.
#[must_use]
pub fn as_table(report: &[Effective]) -> String {
    const VALUE_WIDTH_MAX: usize = 40;
    let width = |of: fn(&Effective) -> usize| report.iter().map(of).max().unwrap_or(0);
    let name_width = width(|e| e.name.len());
    let value_width = width(|e| shown(e).len()).min(VALUE_WIDTH_MAX);
    let mut text = String::new();
    for entry in report {
        let (name, value, origin) = (&entry.name, shown(entry), &entry.origin);
        text.push_str(&format!("{name:name_width$}  {value:value_width$}  {origin}\n"));
    }
    text
}

fn shown(entry: &Effective) -> &str {
    match &entry.value {
        Some(value) => value,
        None if entry.is_secret && entry.origin != "default" => "[hidden]",
        None => "[unset]",
    }
}

fn type_name(kind: ConfigType) -> &'static str {
    match kind {
        ConfigType::Boolean => "boolean",
        ConfigType::String => "string",
        ConfigType::Int => "int",
        ConfigType::Short => "short",
        ConfigType::Long => "long",
        ConfigType::Double => "double",
        ConfigType::List => "list",
        ConfigType::Class => "class",
        ConfigType::Password => "password",
    }
}
