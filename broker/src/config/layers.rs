//! Where a setting comes from: file < `PENSTOCK_…` environment < `--override`. Values are text here; `resolve.rs` gives
//! them types. Every value keeps its origin, so that an error or `penstock config` can name it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::properties::{self, FILE_BYTES_MAX};

/// What every environment variable of ours starts with.
pub const ENVIRONMENT_PREFIX: &str = "PENSTOCK_";

/// What every key of ours, as opposed to Kafka's, starts with.
pub const OWN_PREFIX: &str = "penstock.";

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On a line of a file, from 1.
    File {
        /// The file as it was named.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// In an environment variable.
    Environment {
        /// Its name.
        name: String,
    },
    /// On the command line.
    Override,
}

/// A value as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The text, surrounding blanks removed as Kafka does.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}

/// All that was written, the strongest layer of each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AsWritten {
    settings: BTreeMap<String, Written>,
}

/// Why the written configuration cannot be read: one sentence with file, line, key, what is wrong and what would be
/// right. The process exits with 78 (EX_CONFIG).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl AsWritten {
    /// Reads the layers, weakest first.
    pub fn read(
        file: Option<&Path>,
        environment: impl Iterator<Item = (String, String)>,
        overrides: &[String],
        is_known: impl Fn(&str) -> bool,
    ) -> Result<Self, ConfigError> {
        let mut written = Self::default();
        if let Some(path) = file {
            written.add_file(path)?;
        }
        let mut ours: Vec<_> = environment
            .filter(|(name, value)| is_setting(name, value))
            .collect();
        ours.sort();
        for (name, value) in ours {
            let key = environment_key(&name, &is_known);
            written.set(key, &value, Origin::Environment { name });
        }
        for pair in overrides {
            let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
                return Err(ConfigError(format!(
                    "--override '{pair}' is not key=value, as in --override node.id=1"
                )));
            };
            written.set(key.trim().to_owned(), value, Origin::Override);
        }
        Ok(written)
    }

    /// The value of a key, if it was written.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Written> {
        self.settings.get(key)
    }

    /// All keys written, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Written)> {
        self.settings.iter().map(|(key, written)| (key.as_str(), written))
    }

    fn set(&mut self, key: String, value: &str, origin: Origin) {
        self.settings.insert(
            key,
            Written {
                value: value.trim().to_owned(),
                origin,
            },
        );
    }

    fn add_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let shown = path.display();
        let cannot = |reason: &dyn fmt::Display| {
            ConfigError(format!(
                "cannot read the configuration file {shown}: {reason}; name a readable one with --config"
            ))
        };
        let size = std::fs::metadata(path).map_err(|e| cannot(&e))?.len();
        if size > FILE_BYTES_MAX {
            return Err(cannot(&format_args!(
                "it has {size} bytes, at most {FILE_BYTES_MAX} are read"
            )));
        }
        let bytes = std::fs::read(path).map_err(|e| cannot(&e))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            let at = e.utf8_error().valid_up_to();
            cannot(&format_args!("byte {at} is not UTF-8"))
        })?;
        let properties = properties::parse(&text)
            .map_err(|e| ConfigError(format!("{shown}, line {}: {}", e.line, e.fault)))?;
        for property in properties {
            let origin = Origin::File {
                path: path.to_owned(),
                line: property.line,
            };
            self.set(property.key, &property.value, origin);
        }
        Ok(())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}, line {line}", path.display()),
            Self::Environment { name } => write!(f, "environment variable {name}"),
            Self::Override => f.write_str("--override"),
        }
    }
}

/// Variables with our prefix that are no keys: they belong to the command line.
pub const ENVIRONMENT_OF_COMMAND_LINE: [&str; 3] = ["PENSTOCK_CONFIG", "PENSTOCK_LOG", "PENSTOCK_LOG_FORMAT"];

/// Whether a variable sets a key. Kubernetes puts `PENSTOCK_SERVICE_HOST`, `PENSTOCK_PORT_9092_TCP` and the like into
/// every container when a service is named `penstock`; nobody wrote those.
fn is_setting(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix(ENVIRONMENT_PREFIX) else {
        return false;
    };
    let is_service_link = rest == "SERVICE_HOST"
        || rest.starts_with("SERVICE_PORT")
        || rest.starts_with("PORT_")
        || (rest == "PORT" && value.contains("://"));
    !is_service_link && !ENVIRONMENT_OF_COMMAND_LINE.contains(&name)
}

/// `PENSTOCK_LOG_DIRS` is `log.dirs`; `PENSTOCK_SHARDS` is `penstock.shards`, since that is a key and `shards` is not.
fn environment_key(name: &str, is_known: &impl Fn(&str) -> bool) -> String {
    let key = name[ENVIRONMENT_PREFIX.len()..]
        .to_ascii_lowercase()
        .replace('_', ".");
    let own = format!("{OWN_PREFIX}{key}");
    if is_known(&own) && !is_known(&key) {
        own
    } else {
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(key: &str) -> bool {
        matches!(key, "node.id" | "log.dirs" | "penstock.shards")
    }

    fn read(
        file: Option<&Path>,
        environment: &[(&str, &str)],
        overrides: &[&str],
    ) -> Result<AsWritten, ConfigError> {
        let environment = environment
            .iter()
            .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let overrides: Vec<String> = overrides.iter().map(|o| (*o).to_owned()).collect();
        AsWritten::read(file, environment, &overrides, known)
    }

    #[test]
    fn overrides_beat_the_environment_and_that_beats_the_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("server.properties");
        std::fs::write(&path, "node.id=1\nlog.dirs=/a\n\nbroker.rack = r1 \n").expect("written");
        let environment = [
            ("PENSTOCK_NODE_ID", "2"),
            ("PENSTOCK_SHARDS", "4"),
            ("PENSTOCK_LOG", "debug"),
            ("PENSTOCK_SERVICE_HOST", "10.0.0.7"),
            ("PENSTOCK_PORT", "tcp://10.0.0.7:9092"),
            ("PENSTOCK_PORT_9092_TCP_ADDR", "10.0.0.7"),
            ("HOME", "/x"),
        ];
        let written = read(Some(&path), &environment, &["node.id=3"]).expect("fine");
        assert_eq!(
            written.get("node.id").map(|w| (w.value.as_str(), &w.origin)),
            Some(("3", &Origin::Override))
        );
        assert_eq!(
            written.get("penstock.shards").map(|w| w.value.as_str()),
            Some("4")
        );
        let rack = written.get("broker.rack").expect("written");
        assert_eq!(
            (rack.value.as_str(), &rack.origin),
            ("r1", &Origin::File { path, line: 4 })
        );
        assert_eq!(written.iter().count(), 4);
    }

    #[test]
    fn faults_are_one_sentence_with_the_place() {
        let error = read(None, &[], &["node.id"]).expect_err("no value");
        assert!(error.0.contains("'node.id' is not key=value"), "{error}");
        let error = read(Some(Path::new("/nowhere/x")), &[], &[]).expect_err("no file");
        assert!(
            error.0.contains("/nowhere/x") && error.0.contains("--config"),
            "{error}"
        );
    }
}
