//! What `kafka-dump-log --offsets-decoder` makes of the records of `__consumer_offsets`: for each key its values in order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::offsets_files;
use crate::bounded;
use crate::error::{Error, Result, failed};
use crate::kafka::tool;

/// How long the tool may take for all files.
const DECODE_TIMEOUT: Duration = Duration::from_secs(180);
/// Fields that are another in each run.
const VARYING: [&str; 3] = ["commitTimestamp", "currentStateTimestamp", "topicId"];

/// Length of a UUID as text.
const UUID_BYTES: usize = 36;

/// What only the value of a group without a first generation has.
const BEFORE_ALL: &str = "\"generation\":0,";

/// The records by key, both in Kafka's JSON, without what varies from run to run.
#[derive(Debug, Default)]
pub struct Decoded(BTreeMap<String, Vec<String>>);

impl Decoded {
    /// Number of keys.
    pub fn keys(&self) -> usize {
        self.0.len()
    }

    /// `KEY VALUE` of each record, ordered by key.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let values = |(key, values): (&String, &Vec<String>)| {
            values
                .iter()
                .map(|value| format!("{key}  {value}"))
                .collect::<Vec<_>>()
        };
        self.0.iter().flat_map(values)
    }
}

/// Decodes the files of a broker that has stopped.
///
/// # Errors
/// The tool does not run or finds fault with a batch.
pub fn decode(data: &Path) -> Result<Decoded> {
    let files = offsets_files(data)?;
    let list: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let said = bounded::output(
        tool("org.apache.kafka.tools.DumpLogSegments")
            .args(["--offsets-decoder", "--files"])
            .arg(list.join(",")),
        DECODE_TIMEOUT,
    )?;
    let mut decoded = Decoded::default();
    for line in said.lines() {
        if line.starts_with("baseOffset:") && !line.contains("isvalid: true") {
            return failed(format!("kafka-dump-log: {line}"));
        }
        let Some(record) = line.strip_prefix("| ") else {
            continue;
        };
        let fields = record
            .split_once(" key: ")
            .and_then(|(_, rest)| rest.split_once(" payload: "));
        let Some((key, value)) = fields else {
            return failed(format!("kafka-dump-log could not decode {record}"));
        };
        let value = match value {
            "<DELETE>" => value.to_owned(),
            other => parse(other)?.to_string(),
        };
        // Kafka's coordinator writes a group down before it has a first generation; ours does not, and replays the same without.
        if value.contains(BEFORE_ALL) {
            continue;
        }
        let values = decoded.0.entry(parse(key)?.to_string()).or_default();
        values.push(value);
    }
    if decoded.0.is_empty() {
        return failed(format!("kafka-dump-log found no record in {list:?}: {said}"));
    }
    Ok(decoded)
}

fn parse(json: &str) -> Result<Value> {
    let mut value = serde_json::from_str(json)
        .map_err(|error| Error::Failed(format!("kafka-dump-log printed {json}: {error}")))?;
    settle(&mut value);
    Ok(value)
}

/// Takes out what varies, and orders what comes out of a hash map.
fn settle(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if VARYING.contains(&name.as_str()) {
                    *field = Value::Null;
                } else {
                    settle(field);
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().for_each(settle);
            items.sort_by_key(Value::to_string);
        }
        // A member id ends in a UUID.
        Value::String(text) if before_uuid(text).is_some_and(|before| before.ends_with('-')) => {
            text.truncate(text.len() - UUID_BYTES);
        }
        _ => {}
    }
}

/// What stands before the last 36 bytes.
fn before_uuid(text: &str) -> Option<&str> {
    text.get(..text.len().checked_sub(UUID_BYTES)?)
}

/// A sentence for each key whose records are not the same.
pub fn compare(kafka: &Decoded, ours: &Decoded) -> Vec<String> {
    let keys: BTreeSet<_> = kafka.0.keys().chain(ours.0.keys()).collect();
    let none = Vec::new();
    keys.into_iter()
        .filter_map(|key| {
            let (theirs, ours) = (
                kafka.0.get(key).unwrap_or(&none),
                ours.0.get(key).unwrap_or(&none),
            );
            (theirs != ours).then(|| {
                format!(
                    "{key}\n      Kafka: {}\n      ours:  {}",
                    theirs.join(" | "),
                    ours.join(" | ")
                )
            })
        })
        .collect()
}
