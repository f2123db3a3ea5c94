//! FindCoordinator: there are no coordinators on this broker yet, and every key is answered so: a client keeps trying and
//! goes on when there are (FC-4, FC-6).

use protocol::messages::find_coordinator::{
    FindCoordinatorRequest, FindCoordinatorResponse, FindCoordinatorResponseCoordinator as Coordinator,
};
use protocol::{ErrorCode, Str};
use shard::env::Env;

use crate::request::RequestContext;

/// What an answer says beside its code.
const MESSAGE: &str = "this broker has no coordinators yet";

/// Key types that exist: groups, transactions, share partitions.
const KEY_TYPE_MAX: i8 = 2;

/// Key type of share partitions, known since version 6.
const SHARE: i8 = 2;

/// Answers that no coordinator is available.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let is_known =
        (0..=KEY_TYPE_MAX).contains(&request.key_type) && (request.key_type < SHARE || context.version >= 6);
    let error_code = if is_known {
        ErrorCode::COORDINATOR_NOT_AVAILABLE
    } else {
        ErrorCode::INVALID_REQUEST
    };
    context.count_error(error_code);
    let message = is_known.then(|| Str::from(MESSAGE));
    if context.version < 4 {
        let error_message = if context.version >= 1 { message } else { None };
        return FindCoordinatorResponse {
            error_code,
            error_message,
            node_id: -1,
            port: -1,
            ..Default::default()
        };
    }
    let none = |key: &Str| Coordinator {
        key: key.clone(),
        node_id: -1,
        port: -1,
        error_code,
        error_message: message.clone(),
        ..Default::default()
    };
    FindCoordinatorResponse {
        coordinators: request.coordinator_keys.iter().map(none).collect(),
        ..Default::default()
    }
}
