//! Every command of the controller as one type, for the queue in front of it and for messages between nodes, and the decision
//! on each.

use std::collections::BTreeSet;

use protocol::Str;
use protocol::messages::allocate_producer_ids::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};
use protocol::messages::alter_configs::{AlterConfigsRequest, AlterConfigsResponse};
use protocol::messages::broker_heartbeat::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};
use protocol::messages::broker_registration::{BrokerRegistrationRequest, BrokerRegistrationResponse};
use protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsResponse};
use protocol::messages::create_topics::{CreateTopicsRequest, CreateTopicsResponse};
use protocol::messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
use protocol::messages::unregister_broker::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use protocol::messages::update_features::{UpdateFeaturesRequest, UpdateFeaturesResponse};

use storage::types::LogId;

use super::context::{Context, Decision};
use super::{brokers, configs, delete_topics, features, internal_topics, partitions, producer_ids, topics};
use crate::ids::BrokerId;

/// What the controller is asked to do.
#[derive(Clone, Debug)]
pub enum ControllerCommand {
    /// Create topics.
    CreateTopics {
        /// As the client sent it, without topics it may not create.
        request: CreateTopicsRequest,
        /// Names whose configurations the client may not read.
        undescribable: Vec<Str>,
    },
    /// Create one of Kafka's internal topics, if it is not there.
    CreateInternalTopic {
        /// Its name.
        name: Str,
    },
    /// Delete topics.
    DeleteTopics {
        /// As the client sent it, without topics it may not delete.
        request: DeleteTopicsRequest,
        /// The request's version.
        version: i16,
    },
    /// Grow topics.
    CreatePartitions(CreatePartitionsRequest),
    /// Alter configurations key by key.
    IncrementalAlterConfigs {
        /// As the client sent it.
        request: IncrementalAlterConfigsRequest,
        /// The broker it was sent to.
        receiver: BrokerId,
    },
    /// Replace configurations.
    AlterConfigs {
        /// As the client sent it.
        request: AlterConfigsRequest,
        /// The broker it was sent to.
        receiver: BrokerId,
    },
    /// Change feature levels.
    UpdateFeatures {
        /// As the client sent it.
        request: UpdateFeaturesRequest,
        /// The request's version.
        version: i16,
    },
    /// A broker takes a block of producer ids.
    AllocateProducerIds(AllocateProducerIdsRequest),
    /// A broker joins.
    RegisterBroker(BrokerRegistrationRequest),
    /// A broker lives.
    BrokerHeartbeat(BrokerHeartbeatRequest),
    /// A broker's lease ended.
    FenceBroker(BrokerId),
    /// A broker cannot serve these partitions any more: their log directory has failed.
    LogsOffline(BrokerId, BTreeSet<LogId>),
    /// A broker is forgotten.
    UnregisterBroker(UnregisterBrokerRequest),
}

/// What the controller answers, each variant to the command of its name.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum ControllerResponse {
    CreateTopics(CreateTopicsResponse),
    DeleteTopics(DeleteTopicsResponse),
    CreatePartitions(CreatePartitionsResponse),
    IncrementalAlterConfigs(IncrementalAlterConfigsResponse),
    AlterConfigs(AlterConfigsResponse),
    UpdateFeatures(UpdateFeaturesResponse),
    AllocateProducerIds(AllocateProducerIdsResponse),
    RegisterBroker(BrokerRegistrationResponse),
    BrokerHeartbeat(BrokerHeartbeatResponse),
    FenceBroker,
    LogsOffline,
    UnregisterBroker(UnregisterBrokerResponse),
}

/// Decides on a command.
pub fn decide(context: &mut Context<'_>, command: &ControllerCommand) -> Decision<ControllerResponse> {
    use ControllerCommand as Command;
    use ControllerResponse as Response;
    match command {
        Command::CreateTopics {
            request,
            undescribable,
        } => {
            let may_describe = |name: &str| !undescribable.iter().any(|hidden| **hidden == *name);
            topics::create_topics(context, request, &may_describe).map(Response::CreateTopics)
        }
        Command::CreateInternalTopic { name } => create_internal_topic(context, name),
        Command::DeleteTopics { request, version } => {
            delete_topics::delete_topics(context, request, *version).map(Response::DeleteTopics)
        }
        Command::CreatePartitions(request) => {
            partitions::create_partitions(context, request).map(Response::CreatePartitions)
        }
        Command::IncrementalAlterConfigs { request, receiver } => {
            configs::incremental_alter_configs(context, request, *receiver)
                .map(Response::IncrementalAlterConfigs)
        }
        Command::AlterConfigs { request, receiver } => {
            configs::alter_configs(context, request, *receiver).map(Response::AlterConfigs)
        }
        Command::UpdateFeatures { request, version } => {
            features::update_features(context, request, *version).map(Response::UpdateFeatures)
        }
        Command::AllocateProducerIds(request) => {
            producer_ids::allocate_producer_ids(context, request).map(Response::AllocateProducerIds)
        }
        Command::RegisterBroker(request) => {
            brokers::register_broker(context, request).map(Response::RegisterBroker)
        }
        Command::BrokerHeartbeat(request) => {
            brokers::broker_heartbeat(context, request).map(Response::BrokerHeartbeat)
        }
        Command::FenceBroker(id) => brokers::fence_broker(context, *id).map(|()| Response::FenceBroker),
        Command::LogsOffline(id, logs) => {
            brokers::logs_offline(context, *id, logs).map(|()| Response::LogsOffline)
        }
        Command::UnregisterBroker(request) => {
            brokers::unregister_broker(context, request).map(Response::UnregisterBroker)
        }
    }
}

fn create_internal_topic(context: &mut Context<'_>, name: &str) -> Decision<ControllerResponse> {
    let topics = internal_topics::internal_topic(context, name)
        .into_iter()
        .collect();
    let request = CreateTopicsRequest {
        topics,
        ..CreateTopicsRequest::default()
    };
    topics::create_topics(context, &request, &|_| true).map(ControllerResponse::CreateTopics)
}

impl<R> Decision<R> {
    fn map<S>(self, wrap: impl FnOnce(R) -> S) -> Decision<S> {
        Decision {
            records: self.records,
            response: wrap(self.response),
        }
    }
}
