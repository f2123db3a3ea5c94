//! FindCoordinator: which broker coordinates a group (FC-1…6). The topic that holds the groups is created when it is first
//! asked for. Transactions and share partitions have no coordinator yet, and are answered so: a client keeps trying.

use protocol::messages::find_coordinator::{
    FindCoordinatorRequest, FindCoordinatorResponse, FindCoordinatorResponseCoordinator as Coordinator,
};
use protocol::{ErrorCode, Str};
use shard::controller::ControllerCommand;
use shard::env::Env;

use super::groups::{OFFSETS_TOPIC, coordinator_of};
use super::leaders::{LeaderEndpoint, endpoints};
use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// What an answer says beside its code.
const NO_COORDINATOR: &str = "there is no coordinator for this now";

/// Key types: groups, transactions, share partitions.
const GROUP: i8 = 0;
const SHARE: i8 = 2;

/// Since this version an answer lists the coordinators of several keys.
const KEYS_VERSION: i16 = 4;

/// Answers for each key, in request order.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let keys = if context.version < KEYS_VERSION {
        vec![request.key]
    } else {
        request.coordinator_keys
    };
    if request.key_type == GROUP {
        create_offsets_topic(context).await;
    }
    let view = context.broker.view();
    let mut coordinators: Vec<Coordinator> = keys
        .into_iter()
        .map(|key| match find(context, &view, request.key_type, &key) {
            Ok(endpoint) => Coordinator {
                key,
                node_id: endpoint.id,
                host: endpoint.host,
                port: endpoint.port,
                // As Kafka says it: in words once, since lists of keys in none.
                error_message: Some(Str::from_static(if context.version < KEYS_VERSION {
                    "NONE"
                } else {
                    ""
                })),
                ..Default::default()
            },
            Err(error_code) => Coordinator {
                key,
                node_id: -1,
                port: -1,
                error_code,
                error_message: Some(Str::from_static(message_of(error_code))),
                ..Default::default()
            },
        })
        .collect();
    context.count_errors(coordinators.iter().map(|c| c.error_code));
    if context.version >= KEYS_VERSION {
        return FindCoordinatorResponse {
            coordinators,
            ..Default::default()
        };
    }
    let only = coordinators.pop().unwrap_or_default();
    FindCoordinatorResponse {
        error_code: only.error_code,
        error_message: if context.version >= 1 {
            only.error_message
        } else {
            None
        },
        node_id: only.node_id,
        host: only.host,
        port: only.port,
        ..Default::default()
    }
}

const fn message_of(error: ErrorCode) -> &'static str {
    match error {
        ErrorCode::COORDINATOR_NOT_AVAILABLE => NO_COORDINATOR,
        _ => "there is no such kind of key in this version",
    }
}

fn find<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    key_type: i8,
    key: &str,
) -> Result<LeaderEndpoint, ErrorCode> {
    if !(GROUP..=SHARE).contains(&key_type) || (key_type == SHARE && context.version < 6) {
        return Err(ErrorCode::INVALID_REQUEST);
    }
    if key_type != GROUP {
        return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE);
    }
    // There may be no topic of groups yet, or no leader of the partition now. No other broker is known to lead it.
    coordinator_of(view, key).map_err(|_| ErrorCode::COORDINATOR_NOT_AVAILABLE)?;
    let this = vec![context.broker.settings.node_id];
    endpoints(view, &context.connection.listener, this)
        .next()
        .ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)
}

/// Has the topic of the groups created if there is none (FC-2). This answer waits for it: the next one would find it.
async fn create_offsets_topic<E: Env>(context: &RequestContext<E>) {
    let broker = &context.broker;
    if broker.view().topic(TopicName::Name(OFFSETS_TOPIC)).is_err() {
        let command = ControllerCommand::CreateInternalTopic {
            name: OFFSETS_TOPIC.into(),
        };
        // If it cannot be, the answer says that there is no coordinator.
        drop(broker.command(command).await);
    }
}
