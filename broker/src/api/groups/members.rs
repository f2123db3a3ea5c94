//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup (CG-1…32).

use protocol::ErrorCode;
use protocol::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use protocol::messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity};
use protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
use shard::controller::random_uuid;
use shard::coordinator::group::{GroupReply, GroupRequest};
use shard::env::Env;

use super::{ask, identity, of_kind};
use crate::request::RequestContext;

/// Since this version the answer has no protocol name rather than an empty one.
const NULLABLE_PROTOCOL_VERSION: i16 = 7;

/// Since this version a SyncGroup has to say protocol type and name (KIP-559).
const PROTOCOL_SAID_VERSION: i16 = 5;

/// Since this version a request lists the members that leave.
const LEAVE_LIST_VERSION: i16 = 3;

/// Answers when the join phase of the group ends.
pub async fn join<E: Env>(context: &RequestContext<E>, mut request: JoinGroupRequest) -> JoinGroupResponse {
    request.rebalance_timeout_ms = match context.version {
        0 => -1,                                  // it has none: the session timeout stands in
        _ => request.rebalance_timeout_ms.max(0), // Kafka ends the join phase at once for anything below
    };
    let group = request.group_id.clone();
    let member_id = request.member_id.clone();
    let request = GroupRequest::Join {
        request,
        version: context.version,
        client: identity(context),
        fresh: random_uuid(&mut || context.broker.env.random()),
    };
    let mut answer =
        of_kind!(Join, ask(context, &group, request).await).unwrap_or_else(|error_code| JoinGroupResponse {
            error_code,
            generation_id: -1,
            member_id,
            protocol_name: None,
            ..Default::default()
        });
    if context.version < NULLABLE_PROTOCOL_VERSION {
        answer.protocol_name.get_or_insert_default();
    }
    context.count_error(answer.error_code);
    answer
}

/// Answers when the leader's assignment is written.
pub async fn sync<E: Env>(context: &RequestContext<E>, request: SyncGroupRequest) -> SyncGroupResponse {
    let group = request.group_id.clone();
    let says_protocol = request.protocol_type.is_some() && request.protocol_name.is_some();
    // Before anything else, as in Kafka.
    let answered = if context.version >= PROTOCOL_SAID_VERSION && !says_protocol {
        Err(ErrorCode::INCONSISTENT_GROUP_PROTOCOL)
    } else {
        of_kind!(Sync, ask(context, &group, GroupRequest::Sync(request)).await)
    };
    let answer = answered.unwrap_or_else(|error_code| SyncGroupResponse {
        error_code,
        ..Default::default()
    });
    context.count_error(answer.error_code);
    answer
}

/// Keeps a member's session.
pub async fn heartbeat<E: Env>(context: &RequestContext<E>, request: HeartbeatRequest) -> HeartbeatResponse {
    let group = request.group_id.clone();
    let error_code = match of_kind!(
        Heartbeat,
        ask(context, &group, GroupRequest::Heartbeat(request)).await
    ) {
        Ok(error) => error,
        // Whoever waits for the log to be replayed is a member still.
        Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS) => ErrorCode::NONE,
        Err(error) => error,
    };
    context.count_error(error_code);
    HeartbeatResponse {
        error_code,
        ..Default::default()
    }
}

/// Takes members out of their group.
pub async fn leave<E: Env>(
    context: &RequestContext<E>,
    mut request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let group = request.group_id.clone();
    let is_single = context.version < LEAVE_LIST_VERSION;
    if is_single {
        request.members = vec![MemberIdentity {
            member_id: request.member_id.clone(),
            ..Default::default()
        }];
    }
    let mut answer = of_kind!(Leave, ask(context, &group, GroupRequest::Leave(request)).await)
        .unwrap_or_else(|error_code| LeaveGroupResponse {
            error_code,
            ..Default::default()
        });
    if is_single && let Some(member) = std::mem::take(&mut answer.members).first() {
        answer.error_code = member.error_code;
    }
    context.count_error(answer.error_code);
    context.count_errors(answer.members.iter().map(|m| m.error_code));
    answer
}
