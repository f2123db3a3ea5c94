//! Requests that the controller decides: CreateTopics, DeleteTopics, CreatePartitions, AlterConfigs and
//! IncrementalAlterConfigs (AD-1…12). They are handed on as they came; the answer comes back when every shard serves by it.

use protocol::ErrorCode;
use protocol::messages::alter_configs::{
    AlterConfigsRequest, AlterConfigsResponse,
    AlterConfigsResponseAlterConfigsResourceResponse as AlterResult,
};
use protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult,
};
use protocol::messages::create_topics::{CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse};
use protocol::messages::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse as IncrementalResult,
};
use shard::controller::{ControllerCommand as Command, ControllerResponse as Response};
use shard::env::Env;

use super::admin_remarks::{Ineffective, say_deleted};
use crate::request::RequestContext;

/// The code for a command that the controller could not take: clients try again.
const NO_CONTROLLER: ErrorCode = ErrorCode::NOT_CONTROLLER;

/// CreateTopics.
pub async fn create_topics<E: Env>(
    context: &RequestContext<E>,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let names: Vec<_> = request.topics.iter().map(|t| t.name.clone()).collect();
    let ineffective = Ineffective::of_creation(&request);
    let command = Command::CreateTopics {
        request,
        undescribable: Vec::new(),
    };
    let response = match context.broker.command(command).await {
        Some(Response::CreateTopics(response)) => response,
        _ => {
            let refused = |name| CreatableTopicResult {
                name,
                error_code: NO_CONTROLLER,
                ..Default::default()
            };
            CreateTopicsResponse {
                topics: names.into_iter().map(refused).collect(),
                ..Default::default()
            }
        }
    };
    ineffective.say(context, response.topics.iter().map(|t| (&t.name, t.error_code)));
    context.count_errors(response.topics.iter().map(|t| t.error_code));
    response
}

/// DeleteTopics.
pub async fn delete_topics<E: Env>(
    context: &RequestContext<E>,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let by_name = request
        .topic_names
        .iter()
        .map(|name| (Some(name.clone()), Default::default()));
    let by_either = request.topics.iter().map(|t| (t.name.clone(), t.topic_id));
    let wanted: Vec<_> = by_name.chain(by_either).collect();
    let command = Command::DeleteTopics {
        request,
        version: context.version,
    };
    let response = match context.broker.command(command).await {
        Some(Response::DeleteTopics(response)) => response,
        _ => {
            let refused = |(name, topic_id)| DeletableTopicResult {
                name,
                topic_id,
                error_code: NO_CONTROLLER,
                ..Default::default()
            };
            DeleteTopicsResponse {
                responses: wanted.into_iter().map(refused).collect(),
                ..Default::default()
            }
        }
    };
    say_deleted(context, &response.responses);
    context.count_errors(response.responses.iter().map(|t| t.error_code));
    response
}

/// CreatePartitions.
pub async fn create_partitions<E: Env>(
    context: &RequestContext<E>,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let names: Vec<_> = request.topics.iter().map(|t| t.name.clone()).collect();
    let response = match context.broker.command(Command::CreatePartitions(request)).await {
        Some(Response::CreatePartitions(response)) => response,
        _ => {
            let refused = |name| CreatePartitionsTopicResult {
                name,
                error_code: NO_CONTROLLER,
                ..Default::default()
            };
            CreatePartitionsResponse {
                results: names.into_iter().map(refused).collect(),
                ..Default::default()
            }
        }
    };
    context.count_errors(response.results.iter().map(|t| t.error_code));
    response
}

/// AlterConfigs: what a resource sets is replaced as a whole (AD-11, BR-047).
pub async fn alter_configs<E: Env>(
    context: &RequestContext<E>,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let wanted: Vec<_> = request
        .resources
        .iter()
        .map(|r| (r.resource_type, r.resource_name.clone()))
        .collect();
    let ineffective = Ineffective::of_alteration(&request);
    let command = Command::AlterConfigs {
        request,
        receiver: context.broker.settings.node_id,
    };
    let response = match context.broker.command(command).await {
        Some(Response::AlterConfigs(response)) => response,
        _ => {
            let refused = |(resource_type, resource_name)| AlterResult {
                error_code: NO_CONTROLLER,
                resource_type,
                resource_name,
                ..Default::default()
            };
            AlterConfigsResponse {
                responses: wanted.into_iter().map(refused).collect(),
                ..Default::default()
            }
        }
    };
    let topics = response
        .responses
        .iter()
        .map(|r| (&r.resource_name, r.error_code));
    ineffective.say(context, topics);
    context.count_errors(response.responses.iter().map(|r| r.error_code));
    response
}

/// IncrementalAlterConfigs: key by key (AD-9).
pub async fn incremental_alter_configs<E: Env>(
    context: &RequestContext<E>,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let wanted: Vec<_> = request
        .resources
        .iter()
        .map(|r| (r.resource_type, r.resource_name.clone()))
        .collect();
    let ineffective = Ineffective::of_incremental(&request);
    let command = Command::IncrementalAlterConfigs {
        request,
        receiver: context.broker.settings.node_id,
    };
    let response = match context.broker.command(command).await {
        Some(Response::IncrementalAlterConfigs(response)) => response,
        _ => {
            let refused = |(resource_type, resource_name)| IncrementalResult {
                error_code: NO_CONTROLLER,
                resource_type,
                resource_name,
                ..Default::default()
            };
            IncrementalAlterConfigsResponse {
                responses: wanted.into_iter().map(refused).collect(),
                ..Default::default()
            }
        }
    };
    let topics = response
        .responses
        .iter()
        .map(|r| (&r.resource_name, r.error_code));
    ineffective.say(context, topics);
    context.count_errors(response.responses.iter().map(|r| r.error_code));
    response
}
