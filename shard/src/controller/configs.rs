//! IncrementalAlterConfigs and AlterConfigs (AD-9 to AD-12, BR-047): each resource is altered as a whole or not at all; all
//! that are become one log entry. Loggers (type 8) live in a broker's memory and are not altered here.

use std::collections::{BTreeMap, BTreeSet};

use protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResponse, AlterConfigsResponseAlterConfigsResourceResponse,
};
use protocol::messages::cluster_metadata as wire;
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
};
use protocol::{ErrorCode, Str};

use super::context::{Context, Decision, Draft, RECORDS_MAX, too_large};
use super::names::check_name;
use crate::config::{
    AlterOp, Alteration, Overrides, alter, broker_keys, client_metrics_keys, group_keys, topic_keys,
};
use crate::error::ApiError;
use crate::ids::BrokerId;
use crate::image::{ResourceKind, config_record};

/// Alters configurations key by key. `receiver` is the broker that a client sent the request to: the only one whose own
/// values it may change (AD-10). Who may alter what is that broker's business before.
pub(super) fn incremental_alter_configs(
    context: &Context<'_>,
    request: &IncrementalAlterConfigsRequest,
    receiver: BrokerId,
) -> Decision<IncrementalAlterConfigsResponse> {
    let changes: Vec<ResourceChange<'_>> = request
        .resources
        .iter()
        .map(|resource| ResourceChange {
            kind: resource.resource_type,
            name: &resource.resource_name,
            change: incremental_change(&resource.configs),
        })
        .collect();
    let (records, outcomes) = alter_all(context, &changes, receiver, request.validate_only);
    let responses = changes.iter().zip(outcomes).map(|(resource, error)| {
        IncrementalAlterConfigsResponseAlterConfigsResourceResponse {
            error_code: code(error.as_ref()),
            error_message: error.map(|error| error.text()),
            resource_type: resource.kind,
            resource_name: Str::from(resource.name.to_owned()),
        }
    });
    Decision {
        records,
        response: IncrementalAlterConfigsResponse {
            throttle_time_ms: 0,
            responses: responses.collect(),
        },
    }
}

/// Replaces the configurations of resources: what the request does not name goes back to its default.
pub(super) fn alter_configs(
    context: &Context<'_>,
    request: &AlterConfigsRequest,
    receiver: BrokerId,
) -> Decision<AlterConfigsResponse> {
    let changes: Vec<ResourceChange<'_>> = request
        .resources
        .iter()
        .map(|resource| {
            let pair = |config: &protocol::messages::alter_configs::AlterConfigsRequestAlterableConfig| {
                (
                    config.name.to_string(),
                    config.value.as_ref().map(ToString::to_string),
                )
            };
            ResourceChange {
                kind: resource.resource_type,
                name: &resource.resource_name,
                change: Ok(Change::Replace(resource.configs.iter().map(pair).collect())),
            }
        })
        .collect();
    let (records, outcomes) = alter_all(context, &changes, receiver, request.validate_only);
    let responses = changes.iter().zip(outcomes).map(|(resource, error)| {
        AlterConfigsResponseAlterConfigsResourceResponse {
            error_code: code(error.as_ref()),
            error_message: error.map(|error| error.text()),
            resource_type: resource.kind,
            resource_name: Str::from(resource.name.to_owned()),
        }
    });
    Decision {
        records,
        response: AlterConfigsResponse {
            throttle_time_ms: 0,
            responses: responses.collect(),
        },
    }
}

/// One resource of a request, both APIs alike.
struct ResourceChange<'a> {
    kind: i8,
    name: &'a str,
    change: Result<Change, ApiError>,
}

enum Change {
    Alter(Vec<Alteration>),
    Replace(Vec<(String, Option<String>)>),
}

fn incremental_change(
    configs: &[protocol::messages::incremental_alter_configs::IncrementalAlterConfigsRequestAlterableConfig],
) -> Result<Change, ApiError> {
    let alterations = configs.iter().map(|config| {
        let op = AlterOp::from_wire(config.config_operation).ok_or_else(|| {
            ApiError::invalid_request(format!(
                "Unknown operation {} on {}",
                config.config_operation, &*config.name
            ))
        })?;
        Ok(Alteration {
            name: config.name.to_string(),
            op,
            value: config.value.as_ref().map(ToString::to_string),
        })
    });
    Ok(Change::Alter(alterations.collect::<Result<_, ApiError>>()?))
}

fn code(error: Option<&ApiError>) -> ErrorCode {
    error.map_or(ErrorCode::NONE, |error| error.code)
}

fn alter_all(
    context: &Context<'_>,
    changes: &[ResourceChange<'_>],
    receiver: BrokerId,
    validate_only: bool,
) -> (Vec<super::MetadataRecord>, Vec<Option<ApiError>>) {
    let mut counts: BTreeMap<(i8, &str), usize> = BTreeMap::new();
    for change in changes {
        *counts.entry((change.kind, change.name)).or_default() += 1;
    }
    let mut draft = Draft::new(context.image);
    let outcomes: Vec<Option<ApiError>> = changes
        .iter()
        .map(|change| {
            if counts
                .get(&(change.kind, change.name))
                .is_some_and(|count| *count > 1)
            {
                return Some(ApiError::invalid_request(
                    "Each resource must appear at most once.",
                ));
            }
            alter_one(context, &mut draft, change, receiver).err()
        })
        .collect();
    if draft.len() > RECORDS_MAX {
        return (Vec::new(), changes.iter().map(|_| Some(too_large())).collect());
    }
    let records = if validate_only {
        Vec::new()
    } else {
        draft.into_records()
    };
    (records, outcomes)
}

fn alter_one(
    context: &Context<'_>,
    draft: &mut Draft,
    resource: &ResourceChange<'_>,
    receiver: BrokerId,
) -> Result<(), ApiError> {
    let kind = ResourceKind::from_wire(resource.kind)
        .ok_or_else(|| ApiError::invalid_request(format!("Unknown resource type {}", resource.kind)))?;
    check_resource(context, kind, resource.name, receiver)?;
    let table = match kind {
        ResourceKind::Topic => topic_keys(),
        ResourceKind::Broker => broker_keys(),
        ResourceKind::ClientMetrics => client_metrics_keys(),
        ResourceKind::Group => group_keys(),
    };
    let current = context.image.configs.of(kind, resource.name);
    let outcome = match resource.change.as_ref().map_err(Clone::clone)? {
        Change::Alter(alterations) => {
            if kind == ResourceKind::Broker && !resource.name.is_empty() {
                alter::check_of_one_broker(alterations)?;
            }
            alter::incrementally(table, current, alterations)?
        }
        Change::Replace(values) => alter::replaced(values)?,
    };
    match kind {
        ResourceKind::Topic => alter::check_topic(&context.layers(), &outcome)?,
        ResourceKind::Broker => alter::check_broker(current, &outcome, resource.name.is_empty())?,
        ResourceKind::ClientMetrics => alter::check_client_metrics(&outcome)?,
        ResourceKind::Group => alter::check_group(&context.layers(), &outcome)?,
    }
    push_difference(draft, kind, resource.name, current, &outcome);
    Ok(())
}

/// Whether the resource may be altered at all.
fn check_resource(
    context: &Context<'_>,
    kind: ResourceKind,
    name: &str,
    receiver: BrokerId,
) -> Result<(), ApiError> {
    match kind {
        ResourceKind::Topic if name.is_empty() => Err(ApiError::invalid_request(
            "Default topic resources are not allowed.",
        )),
        ResourceKind::Topic => {
            check_name(name)?;
            match context.image.topics.by_name(name) {
                Some(_) => Ok(()),
                None => Err(ApiError::new(
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    format!("The topic '{name}' does not exist."),
                )),
            }
        }
        ResourceKind::Broker if name.is_empty() => Ok(()),
        ResourceKind::Broker => match name.parse::<i32>() {
            Err(_) => Err(ApiError::invalid_request(format!(
                "A broker's id is a number, not {name}"
            ))),
            Ok(id) if BrokerId(id) != receiver => Err(ApiError::invalid_request(format!(
                "This is broker {receiver}, the request names {id}"
            ))),
            Ok(_) => Ok(()),
        },
        ResourceKind::ClientMetrics if name.is_empty() => {
            Err(ApiError::invalid_request("A subscription needs a name"))
        }
        ResourceKind::Group if name.is_empty() => Err(ApiError::invalid_request(
            "Default group resources are not allowed.",
        )),
        ResourceKind::ClientMetrics | ResourceKind::Group => Ok(()),
    }
}

fn push_difference(
    draft: &mut Draft,
    kind: ResourceKind,
    name: &str,
    current: &Overrides,
    outcome: &Overrides,
) {
    let keys: BTreeSet<&String> = current.keys().chain(outcome.keys()).collect();
    for key in keys {
        let value = outcome.get(key);
        if current.get(key) == value {
            continue;
        }
        draft.push(config_record(kind, name, key, value.map(String::as_str)));
        // Who was eligible under the old minimum may not be under the new one (KIP-966).
        if key == "min.insync.replicas" && has_elr(draft, kind, name) {
            let topic_name = Str::from(if kind == ResourceKind::Topic {
                name.to_owned()
            } else {
                String::new()
            });
            draft.push(wire::ClearElrRecord { topic_name });
        }
    }
}

fn has_elr(draft: &Draft, kind: ResourceKind, name: &str) -> bool {
    let topics = &draft.image().topics;
    let concerned = topics.iter().filter(|topic| match kind {
        ResourceKind::Topic => &*topic.name == name,
        _ => true,
    });
    concerned
        .flat_map(|topic| &topic.partitions)
        .any(|partition| !partition.elr.is_empty() || !partition.last_known_elr.is_empty())
}
