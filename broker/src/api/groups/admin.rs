//! DescribeGroups, ListGroups, DeleteGroups (CG-52, CG-60…63).

use protocol::ErrorCode;
use protocol::Str;
use protocol::messages::delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
use protocol::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribeGroupsResponseDescribedGroup,
};
use protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
use shard::coordinator::group::{GroupReply, GroupRequest};
use shard::env::Env;

use super::{OFFSETS_TOPIC, ask_each, of_kind};
use crate::api::authorized::{GROUP_OPERATIONS, OPERATIONS_UNKNOWN};
use crate::request::RequestContext;
use crate::view::{Home, TopicName};

/// Since this version an unknown group is an error, and says so.
const UNKNOWN_IS_ERROR_VERSION: i16 = 6;

/// Bytes of a group's name in an error message.
const SHOWN_MAX: usize = 1000;

/// Answers for each group, in request order.
pub async fn describe<E: Env>(
    context: &RequestContext<E>,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let asked = ask_each(
        context,
        request.groups,
        Str::clone,
        |_| false,
        |id| GroupRequest::Describe(id.clone()),
    )
    .await;
    let mut groups = Vec::with_capacity(asked.len());
    for (group_id, answer) in asked {
        let unanswered = |error_code| DescribeGroupsResponseDescribedGroup {
            error_code,
            group_id,
            ..Default::default()
        };
        let mut told = of_kind!(Describe, answer).unwrap_or_else(unanswered);
        if told.error_code == ErrorCode::GROUP_ID_NOT_FOUND {
            if context.version < UNKNOWN_IS_ERROR_VERSION {
                told.error_code = ErrorCode::NONE;
            } else {
                // A name may be as long as a string can be: with these words it would be longer.
                let name = &told.group_id;
                let shown = name.get(..name.floor_char_boundary(SHOWN_MAX)).unwrap_or(name);
                told.error_message = Some(Str::from(format!("Group {shown} not found.")));
            }
        }
        told.authorized_operations =
            if request.include_authorized_operations && told.error_code == ErrorCode::NONE {
                GROUP_OPERATIONS
            } else {
                OPERATIONS_UNKNOWN
            };
        context.count_error(told.error_code);
        groups.push(told);
    }
    DescribeGroupsResponse {
        groups,
        ..Default::default()
    }
}

/// Answers with the groups of all partitions that are coordinated here.
pub async fn list<E: Env>(context: &RequestContext<E>, request: ListGroupsRequest) -> ListGroupsResponse {
    let view = context.broker.view();
    let mut asked = Vec::new();
    if let Ok(topic) = view.topic(TopicName::Name(OFFSETS_TOPIC)) {
        for (index, _) in topic.indexed() {
            if let Ok((_, Home::Shard(shard, log))) = view.partition(topic, index) {
                asked.push(context.broker.router.coordinate(shard, log, GroupRequest::List));
            }
        }
    }
    let mut error_code = ErrorCode::NONE;
    let mut groups: Vec<ListedGroup> = Vec::new();
    for asked in asked {
        let answer = match asked {
            Ok(asked) => super::OnItsWay(Ok(asked)).answer().await,
            Err(_) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        };
        match of_kind!(List, answer) {
            Ok(listed) => groups.extend(listed),
            // What is led elsewhere is listed there.
            Err(ErrorCode::NOT_COORDINATOR) => {}
            Err(error) => error_code = error,
        }
    }
    if error_code != ErrorCode::NONE {
        groups.clear();
    }
    // States and types compare without case, as in Kafka.
    let is_among =
        |asked: &[Str], value: &str| asked.is_empty() || asked.iter().any(|a| a.eq_ignore_ascii_case(value));
    groups.retain(|g| {
        is_among(&request.states_filter, &g.group_state) && is_among(&request.types_filter, &g.group_type)
    });
    context.count_error(error_code);
    ListGroupsResponse {
        error_code,
        groups,
        ..Default::default()
    }
}

/// Answers for each group, in request order.
pub async fn delete<E: Env>(
    context: &RequestContext<E>,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let asked = ask_each(
        context,
        request.groups_names,
        Str::clone,
        |_| false,
        |id| GroupRequest::Delete(id.clone()),
    )
    .await;
    let mut results = Vec::with_capacity(asked.len());
    for (group_id, answer) in asked {
        let unanswered = |error_code| DeletableGroupResult { group_id, error_code };
        let result = of_kind!(Delete, answer).unwrap_or_else(unanswered);
        context.count_error(result.error_code);
        results.push(result);
    }
    DeleteGroupsResponse {
        results,
        ..Default::default()
    }
}
