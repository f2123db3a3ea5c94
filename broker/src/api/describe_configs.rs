//! DescribeConfigs: effective values of topics, brokers, groups and client metrics, and where each comes from (AD-8). The
//! tables and layers are `shard::config`; loggers are described as having none.

use protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResponse,
    DescribeConfigsResult, DescribeConfigsSynonym,
};
use protocol::{ErrorCode, Str};
use shard::config::describe::{self, ConfigEntry};
use shard::controller::check_name;
use shard::env::Env;
use shard::image::ResourceKind;

use crate::request::RequestContext;
use crate::view::{TopicName, View};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Answers for each resource, in request order.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let view = context.broker.view();
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in &request.resources {
        let mut result = DescribeConfigsResult {
            resource_type: resource.resource_type,
            resource_name: resource.resource_name.clone(),
            ..Default::default()
        };
        match entries(context, &view, resource) {
            Ok(entries) => {
                let wanted = |e: &ConfigEntry| match &resource.configuration_keys {
                    Some(keys) => keys.iter().any(|k| **k == *e.name),
                    None => true,
                };
                let row = |e| row(e, request.include_synonyms, request.include_documentation);
                result.configs = entries.into_iter().filter(wanted).map(row).collect();
            }
            Err((code, message)) => {
                context.count_error(code);
                result.error_code = code;
                result.error_message = Some(Str::from(message));
            }
        }
        results.push(result);
    }
    DescribeConfigsResponse {
        results,
        ..Default::default()
    }
}

fn entries<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    resource: &DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, (ErrorCode, String)> {
    let settings = &context.broker.settings;
    let configs = &view.image.configs;
    let layers = configs.layers(settings.node_id, &settings.fixed);
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC if check_name(name).is_err() => Err((
            ErrorCode::INVALID_TOPIC_EXCEPTION,
            format!("'{name}' is not a legal topic name"),
        )),
        TOPIC => match view.topic(TopicName::Name(name)) {
            Ok(_) => Ok(describe::topic(&layers, configs.topic(name))),
            Err(code) => Err((code, format!("topic '{name}' does not exist"))),
        },
        BROKER if name.is_empty() => Ok(describe::cluster_default(configs.cluster_default())),
        BROKER | BROKER_LOGGER if name.parse() != Ok(settings.node_id.0) => Err((
            ErrorCode::INVALID_REQUEST,
            format!(
                "this is broker {}; resource '{name}' must be asked of the broker it names",
                settings.node_id
            ),
        )),
        BROKER => Ok(describe::broker(&layers)),
        BROKER_LOGGER => Ok(Vec::new()),
        CLIENT_METRICS if name.is_empty() => Err((
            ErrorCode::INVALID_REQUEST,
            "a client metrics resource has a name".to_owned(),
        )),
        CLIENT_METRICS => Ok(describe::client_metrics(
            configs.of(ResourceKind::ClientMetrics, name),
        )),
        GROUP if name.is_empty() => Err((
            ErrorCode::INVALID_REQUEST,
            "a group resource has a name".to_owned(),
        )),
        GROUP => Ok(describe::group(&layers, configs.of(ResourceKind::Group, name))),
        other => Err((
            ErrorCode::INVALID_REQUEST,
            format!("resource type {other} has no configuration"),
        )),
    }
}

fn row(
    entry: ConfigEntry,
    include_synonyms: bool,
    include_documentation: bool,
) -> DescribeConfigsResourceResult {
    let synonym = |s: describe::ConfigSynonym| DescribeConfigsSynonym {
        name: Str::from(s.name),
        value: s.value.map(Str::from),
        source: s.source.wire(),
    };
    DescribeConfigsResourceResult {
        name: Str::from(entry.name),
        value: entry.value.map(Str::from),
        read_only: entry.read_only,
        config_source: entry.source.wire(),
        is_sensitive: entry.sensitive,
        synonyms: if include_synonyms {
            entry.synonyms.into_iter().map(synonym).collect()
        } else {
            Vec::new()
        },
        config_type: entry.kind.map_or(0, |kind| kind.wire()),
        documentation: entry.doc.filter(|_| include_documentation).map(Str::from),
    }
}
