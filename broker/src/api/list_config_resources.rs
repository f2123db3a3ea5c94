//! ListConfigResources: which resources have a configuration of their own (KIP-1142). Version 0 lists client metrics only.

use protocol::messages::list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
use protocol::{ErrorCode, Str};
use shard::env::Env;
use shard::image::ResourceKind;

use crate::request::RequestContext;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const BROKER_LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// The types an empty list of types stands for, in answer order.
const ALL: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];

/// Answers with the resources of the types asked for.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let types: Vec<i8> = match (context.version, request.resource_types.as_slice()) {
        (0, _) => vec![CLIENT_METRICS],
        (_, []) => ALL.to_vec(),
        (_, asked) => asked.to_vec(),
    };
    if types.iter().any(|t| !ALL.contains(t)) {
        context.count_error(ErrorCode::UNSUPPORTED_VERSION);
        return ListConfigResourcesResponse {
            error_code: ErrorCode::UNSUPPORTED_VERSION,
            ..Default::default()
        };
    }
    let view = context.broker.view();
    let mut config_resources = Vec::new();
    for resource_type in ALL.into_iter().filter(|t| types.contains(t)) {
        let names: Vec<String> = match resource_type {
            TOPIC => view.image.topics.iter().map(|t| t.name.to_string()).collect(),
            BROKER | BROKER_LOGGER => view.image.brokers.iter().map(|b| b.id.to_string()).collect(),
            CLIENT_METRICS => set(&view, ResourceKind::ClientMetrics),
            _ => set(&view, ResourceKind::Group),
        };
        let resource = |name| ConfigResource {
            resource_name: Str::from(name),
            resource_type,
        };
        config_resources.extend(names.into_iter().map(resource));
    }
    ListConfigResourcesResponse {
        config_resources,
        ..Default::default()
    }
}

fn set(view: &crate::view::View, kind: ResourceKind) -> Vec<String> {
    view.image
        .configs
        .iter(kind)
        .map(|(name, _)| name.to_string())
        .collect()
}
