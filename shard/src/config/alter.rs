//! What an alteration makes of a resource's overrides: IncrementalAlterConfigs (set, delete, append, subtract) and the old
//! AlterConfigs, which replaces the whole set (AD-9, AD-11, BR-047). Pure: overrides in, overrides or a refusal out. Whether
//! the outcome is allowed for the kind of resource is `check_topic` and its siblings below.

use std::collections::BTreeSet;

use super::key::ConfigType;
use super::key::DynamicMode;
use super::layers::{BrokerLayers, Overrides, VALUE_BYTES_MAX};
use super::synonyms::{GROUP_SYNONYMS, synonyms_of};
use super::table::{ConfigTable, Recognised, client_metrics_keys, group_keys, recognise, topic_keys};
use super::value::split_list;
use crate::error::ApiError;
use protocol::ErrorCode;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alteration {
    /// The key.
    pub name: String,
    /// What to do.
    pub op: AlterOp,
    /// The value, or the items to append or subtract.
    pub value: Option<String>,
}

/// What an alteration does, with Kafka's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum AlterOp {
    /// Sets the value.
    Set = 0,
    /// Removes the resource's own value.
    Delete = 1,
    /// Adds items to a list.
    Append = 2,
    /// Takes items from a list.
    Subtract = 3,
}

impl AlterOp {
    /// The operation with that number on the wire; `None` when there is none.
    #[must_use]
    pub const fn from_wire(number: i8) -> Option<Self> {
        Some(match number {
            0 => Self::Set,
            1 => Self::Delete,
            2 => Self::Append,
            3 => Self::Subtract,
            _ => return None,
        })
    }
}

/// `current` after `changes`. `table` tells lists from other keys and what an unset list starts from.
///
/// # Errors
/// INVALID_REQUEST for a key that comes twice or a missing value; INVALID_CONFIG for appending to what is no list and for a
/// value that is too long. Nothing is applied then.
pub fn incrementally(
    table: &'static ConfigTable,
    current: &Overrides,
    changes: &[Alteration],
) -> Result<Overrides, ApiError> {
    refuse_repeated(changes.iter().map(|change| change.name.as_str()))?;
    let mut outcome = current.clone();
    for change in changes {
        let name = change.name.as_str();
        if change.op == AlterOp::Delete {
            outcome.remove(name);
            continue;
        }
        let value = required(name, change.value.as_deref())?;
        let text = match change.op {
            AlterOp::Set | AlterOp::Delete => value.to_owned(),
            AlterOp::Append | AlterOp::Subtract => altered_list(table, &outcome, change, value)?,
        };
        refuse_long(name, &text)?;
        outcome.insert(name.to_owned(), text);
    }
    Ok(outcome)
}

/// The overrides that the old AlterConfigs leaves: exactly `values`, whatever was there.
///
/// # Errors
/// INVALID_REQUEST for a key that comes twice or a missing value; INVALID_CONFIG for one that is too long.
pub fn replaced(values: &[(String, Option<String>)]) -> Result<Overrides, ApiError> {
    refuse_repeated(values.iter().map(|(name, _)| name.as_str()))?;
    values
        .iter()
        .map(|(name, value)| {
            let value = required(name, value.as_deref())?;
            refuse_long(name, value)?;
            Ok((name.clone(), value.to_owned()))
        })
        .collect()
}

/// Whether a topic may have these overrides on a cluster whose brokers have `layers`.
///
/// # Errors
/// INVALID_CONFIG with the first thing that is wrong.
pub fn check_topic(layers: &BrokerLayers<'_>, own: &Overrides) -> Result<(), ApiError> {
    check_values(topic_keys(), "topic", own)?;
    let settings = super::topic::TopicSettings::resolve(layers, own);
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms {
        return Err(ApiError::invalid_config(format!(
            "min.compaction.lag.ms ({}) is above max.compaction.lag.ms ({})",
            settings.min_compaction_lag_ms, settings.max_compaction_lag_ms
        )));
    }
    if settings.remote_storage_enable {
        return Err(ApiError::invalid_config(
            "remote.storage.enable cannot be true: this broker has no tiered storage",
        ));
    }
    Ok(())
}

/// Whether a group may have these overrides.
///
/// # Errors
/// INVALID_CONFIG for unknown keys, bad values, and values outside the broker's bounds.
pub fn check_group(layers: &BrokerLayers<'_>, own: &Overrides) -> Result<(), ApiError> {
    check_values(group_keys(), "group", own)?;
    for name in own.keys() {
        for synonym in synonyms_of(GROUP_SYNONYMS, name) {
            check_group_bounds(layers, own, name, synonym.name)?;
        }
    }
    Ok(())
}

/// `group.consumer.session.timeout.ms` is bounded by `group.consumer.{min,max}.session.timeout.ms`, and so on.
fn check_group_bounds(
    layers: &BrokerLayers<'_>,
    own: &Overrides,
    name: &str,
    broker_key: &str,
) -> Result<(), ApiError> {
    let Some((group, setting)) = name.split_once('.') else {
        return Ok(());
    };
    let value = own.get(name).and_then(|text| text.trim().parse::<i64>().ok());
    let bound = |side: &str, setting: &str| format!("group.{group}.{side}.{setting}");
    debug_assert!(broker_key.starts_with("group."));
    let setting = if setting == "num.standby.replicas" {
        "standby.replicas"
    } else {
        setting
    };
    let (low_key, high_key) = (bound("min", setting), bound("max", setting));
    let limit = |key: &str| layers.value(key).and_then(|limit| limit.as_integer());
    match (value, limit(&low_key), limit(&high_key)) {
        (Some(value), Some(low), _) if value < low => Err(ApiError::invalid_config(format!(
            "{name} must not be below {low_key} ({low})"
        ))),
        (Some(value), _, Some(high)) if value > high => Err(ApiError::invalid_config(format!(
            "{name} must not be above {high_key} ({high})"
        ))),
        _ => Ok(()),
    }
}

/// Whether a client metrics subscription may have these overrides.
///
/// # Errors
/// INVALID_REQUEST for unknown keys and a bad interval, INVALID_CONFIG for a bad pattern (as Kafka answers).
pub fn check_client_metrics(own: &Overrides) -> Result<(), ApiError> {
    for (name, text) in own {
        let Some(key) = client_metrics_keys().get(name) else {
            return Err(ApiError::invalid_request(format!(
                "Unknown client metrics configuration: {name}"
            )));
        };
        let value = key.parse(text).map_err(ApiError::invalid_config)?;
        if name == "interval.ms"
            && !value
                .as_integer()
                .is_some_and(|ms| (PUSH_INTERVAL_MS_MIN..=PUSH_INTERVAL_MS_MAX).contains(&ms))
        {
            return Err(ApiError::invalid_request(format!(
                "Invalid value {text} for interval.ms: it must be between {PUSH_INTERVAL_MS_MIN} and {PUSH_INTERVAL_MS_MAX}"
            )));
        }
        if name == "match" {
            for pattern in value.as_list().unwrap_or_default() {
                check_match(pattern)?;
            }
        }
    }
    Ok(())
}

const PUSH_INTERVAL_MS_MIN: i64 = 100;
const PUSH_INTERVAL_MS_MAX: i64 = 3_600_000;

/// What a subscription may match clients by (KIP-714).
const MATCH_ATTRIBUTES: &[&str] = &[
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

fn check_match(pattern: &str) -> Result<(), ApiError> {
    let known = pattern
        .split_once('=')
        .is_some_and(|(attribute, regex)| MATCH_ATTRIBUTES.contains(&attribute.trim()) && !regex.is_empty());
    if known {
        return Ok(());
    }
    Err(ApiError::invalid_config(format!(
        "Bad client match {pattern}: it must be attribute=pattern with an attribute of {}",
        MATCH_ATTRIBUTES.join(", ")
    )))
}

/// Whether one broker (`is_default` false) or the cluster's default may be given these changed keys. `current` is what it
/// has: only what differs is judged, so that an old value never blocks a new one.
///
/// # Errors
/// INVALID_REQUEST for keys that cannot change at run time (or only on one broker) and for bad values; INVALID_CONFIG for
/// `min.insync.replicas`, which under ELR belongs to the cluster (AD-12).
pub fn check_broker(current: &Overrides, outcome: &Overrides, is_default: bool) -> Result<(), ApiError> {
    let names: BTreeSet<&String> = current.keys().chain(outcome.keys()).collect();
    let changed: Vec<&str> = names
        .into_iter()
        .filter(|name| current.get(*name) != outcome.get(*name))
        .map(String::as_str)
        .collect();
    if changed.contains(&MIN_ISR) {
        check_min_isr(outcome, is_default)?;
    }
    let with_mode = |wanted: fn(DynamicMode) -> bool| -> Vec<&str> {
        changed
            .iter()
            .copied()
            .filter(|name| matches!(recognise(name), Recognised::Known(key) if wanted(key.dynamic)))
            .collect()
    };
    let fixed = with_mode(|mode| mode == DynamicMode::Static);
    if !fixed.is_empty() {
        return Err(ApiError::invalid_request(format!(
            "These configs change only at a restart: {}",
            fixed.join(", ")
        )));
    }
    let of_one_broker = with_mode(|mode| mode == DynamicMode::PerBroker);
    if is_default && !of_one_broker.is_empty() {
        return Err(ApiError::invalid_request(format!(
            "These configs belong to one broker, name its id: {}",
            of_one_broker.join(", ")
        )));
    }
    for name in changed {
        let (Some(text), Recognised::Known(key) | Recognised::OfListener(key)) =
            (outcome.get(name), recognise(name))
        else {
            continue; // a removed override, or a key that only the operator knows: Kafka keeps such, so do we
        };
        key.parse(text).map_err(ApiError::invalid_request)?;
    }
    Ok(())
}

const MIN_ISR: &str = "min.insync.replicas";

/// Whether one broker may be given these alterations at all: what belongs to the cluster may not be removed either, though
/// that would change nothing (AD-12).
///
/// # Errors
/// INVALID_CONFIG for `min.insync.replicas`.
pub fn check_of_one_broker(alterations: &[Alteration]) -> Result<(), ApiError> {
    if alterations.iter().any(|one| one.name == MIN_ISR) {
        check_min_isr(&Overrides::new(), false)?;
    }
    Ok(())
}

fn check_min_isr(outcome: &Overrides, is_default: bool) -> Result<(), ApiError> {
    if !is_default {
        return Err(ApiError::invalid_config(
            "min.insync.replicas of one broker cannot be altered while eligible leader replicas are on",
        ));
    }
    if !outcome.contains_key(MIN_ISR) {
        return Err(ApiError::invalid_config(
            "min.insync.replicas of the cluster cannot be removed while eligible leader replicas are on",
        ));
    }
    Ok(())
}

fn check_values(table: &'static ConfigTable, kind: &str, own: &Overrides) -> Result<(), ApiError> {
    if let Some(name) = own.keys().find(|name| table.get(name).is_none()) {
        let hint = table
            .nearest(name)
            .map(|known| format!(" (nearest known: {known})"));
        return Err(ApiError::invalid_config(format!(
            "Unknown {kind} config name: {name}{}",
            hint.unwrap_or_default()
        )));
    }
    for (name, text) in own {
        if let Some(key) = table.get(name) {
            key.parse(text).map_err(ApiError::invalid_config)?;
        }
    }
    Ok(())
}

fn altered_list(
    table: &'static ConfigTable,
    current: &Overrides,
    change: &Alteration,
    value: &str,
) -> Result<String, ApiError> {
    let name = change.name.as_str();
    let key = table.get(name).filter(|key| key.kind == ConfigType::List);
    let Some(key) = key else {
        let verb = if change.op == AlterOp::Append {
            "append to"
        } else {
            "subtract from"
        };
        return Err(ApiError::invalid_config(format!(
            "Cannot {verb} {name}: it is not a list"
        )));
    };
    let start = current
        .get(name)
        .map(String::as_str)
        .or(key.default)
        .unwrap_or("");
    let mut items = split_list(start.trim());
    let given = split_list(value.trim());
    if change.op == AlterOp::Append {
        for item in given {
            if !items.contains(&item) {
                items.push(item);
            }
        }
    } else {
        items.retain(|item| !given.contains(item));
    }
    Ok(items.join(","))
}

fn refuse_repeated<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), ApiError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(ApiError::invalid_request(format!(
                "Config {name} comes more than once"
            )));
        }
    }
    Ok(())
}

fn required<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str, ApiError> {
    value.ok_or_else(|| ApiError::invalid_request(format!("Config {name} needs a value, null is none")))
}

fn refuse_long(name: &str, text: &str) -> Result<(), ApiError> {
    if text.len() > VALUE_BYTES_MAX {
        return Err(ApiError::new(
            ErrorCode::INVALID_CONFIG,
            format!(
                "The value of {name} has {} bytes, {VALUE_BYTES_MAX} are allowed",
                text.len()
            ),
        ));
    }
    Ok(())
}
