//! DescribeCluster: cluster id, controller and brokers on the listener the request came in on (MD-13).

use protocol::messages::describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
use protocol::{ErrorCode, Str};
use shard::env::Env;

use super::authorized::{CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN};
use crate::request::RequestContext;

/// The endpoint type that this listener serves.
const BROKERS: i8 = 1;

/// The other endpoint type that exists.
const CONTROLLERS: i8 = 2;

/// Answers with the cluster's brokers.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    if request.endpoint_type != BROKERS {
        return refuse(context, request.endpoint_type);
    }
    let view = context.broker.view();
    let brokers: Vec<_> = view
        .image
        .brokers
        .iter()
        .filter(|b| !b.fenced || (context.version >= 2 && request.include_fenced_brokers))
        .filter_map(|b| {
            let endpoint = b.endpoint(&context.connection.listener)?;
            Some(DescribeClusterBroker {
                broker_id: b.id.0,
                host: Str::from(endpoint.host.to_string()),
                port: i32::from(endpoint.port),
                rack: b.rack.as_ref().map(|rack| Str::from(rack.to_string())),
                is_fenced: b.fenced,
            })
        })
        .collect();
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: Str::from(view.image.cluster_id.to_string()),
        controller_id: brokers.iter().find(|b| !b.is_fenced).map_or(-1, |b| b.broker_id),
        brokers,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            OPERATIONS_UNKNOWN
        },
        ..Default::default()
    }
}

fn refuse<E: Env>(context: &RequestContext<E>, endpoint_type: i8) -> DescribeClusterResponse {
    let (error_code, message) = if endpoint_type == CONTROLLERS {
        (
            ErrorCode::MISMATCHED_ENDPOINT_TYPE,
            "this listener describes brokers, not controllers".to_owned(),
        )
    } else {
        (
            ErrorCode::UNSUPPORTED_ENDPOINT_TYPE,
            format!("endpoint type {endpoint_type} does not exist"),
        )
    };
    context.count_error(error_code);
    DescribeClusterResponse {
        error_code,
        error_message: Some(Str::from(message)),
        endpoint_type: BROKERS,
        controller_id: -1,
        cluster_authorized_operations: OPERATIONS_UNKNOWN,
        ..Default::default()
    }
}
