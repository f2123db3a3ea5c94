//! The APIs of consumer groups: each request goes to the coordinator of its group, on the shard that owns the group's partition
//! of `__consumer_offsets`. What is decided there is `shard::coordinator`'s.

pub mod admin;
pub mod members;
pub mod offsets;

use std::collections::BTreeSet;

use protocol::hash::partition_for_id;
use protocol::{ErrorCode, Str};
use shard::coordinator::group::{ClientIdentity, GroupReply, GroupRequest};
use shard::env::Env;
use shard::ids::ShardId;
use shard::message::ShardReply;
use shard::router::Asked;
use storage::types::LogId;

use crate::request::RequestContext;
use crate::view::{Home, TopicName, View};

/// The internal topic whose partitions the groups are spread over.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Where a group's coordinator is.
///
/// # Errors
/// NOT_COORDINATOR if it is on another broker, or on none as yet: FindCoordinator says which (BR-127).
pub(super) fn coordinator_of(view: &View, group: &str) -> Result<(ShardId, LogId), ErrorCode> {
    let unavailable = |_| ErrorCode::NOT_COORDINATOR;
    let topic = view.topic(TopicName::Name(OFFSETS_TOPIC)).map_err(unavailable)?;
    let partitions = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
    let index = i32::try_from(partition_for_id(group, partitions)).unwrap_or(i32::MAX);
    match view.partition(topic, index).map_err(unavailable)? {
        (_, Home::Shard(shard, log)) => Ok((shard, log)),
        (_, Home::Elsewhere | Home::Offline) => Err(ErrorCode::NOT_COORDINATOR),
    }
}

/// What a coordinator answered, as the kind of answer that was asked for.
macro_rules! of_kind {
    ($kind:ident, $answer:expr) => {
        match $answer {
            Ok(GroupReply::$kind(told)) => Ok(told),
            Ok(other) => unreachable!("asked for {}, answered {other:?}", stringify!($kind)),
            Err(error) => Err(error),
        }
    };
}
use of_kind;

/// A request on its way to a coordinator.
pub(super) struct OnItsWay(Result<Asked, ErrorCode>);

/// Sends a request to the coordinator of its group.
pub(super) fn send<E: Env>(
    context: &RequestContext<E>,
    view: &View,
    group: &str,
    request: GroupRequest,
) -> OnItsWay {
    OnItsWay(coordinator_of(view, group).and_then(|(shard, log)| {
        let asked = context.broker.router.coordinate(shard, log, request);
        asked.map_err(|_| ErrorCode::COORDINATOR_NOT_AVAILABLE)
    }))
}

impl OnItsWay {
    /// The coordinator's answer.
    ///
    /// # Errors
    /// Why there is no coordinator for it here.
    pub(super) async fn answer(self) -> Result<GroupReply, ErrorCode> {
        match self.0?.await {
            ShardReply::Group(reply) => *reply,
            other => unreachable!("a coordinator answers as one, not with {other:?}"),
        }
    }
}

/// Asks the coordinators of several groups and gives their answers, in request order. A group is asked and answered once,
/// however often it is named, so that a small request has no boundless answer; but for those whose answer is bounded by what
/// `is_bounded` sees in the request.
pub(super) async fn ask_each<E: Env, G>(
    context: &RequestContext<E>,
    groups: Vec<G>,
    id: impl Fn(&G) -> Str,
    is_bounded: impl Fn(&G) -> bool,
    request: impl Fn(&G) -> GroupRequest,
) -> Vec<(G, Result<GroupReply, ErrorCode>)> {
    let view = context.broker.view();
    let mut seen = BTreeSet::new();
    let on_their_way: Vec<_> = groups
        .into_iter()
        .filter(|group| is_bounded(group) || seen.insert(id(group)))
        .map(|group| {
            let on_its_way = send(context, &view, &id(&group), request(&group));
            (group, on_its_way)
        })
        .collect();
    let mut answers = Vec::with_capacity(on_their_way.len());
    for (group, on_its_way) in on_their_way {
        answers.push((group, on_its_way.answer().await));
    }
    answers
}

/// Asks the coordinator of a group. A client that has left is not waited for: what it asked takes effect all the same.
pub(super) async fn ask<E: Env>(
    context: &RequestContext<E>,
    group: &str,
    request: GroupRequest,
) -> Result<GroupReply, ErrorCode> {
    let view = context.broker.view();
    let answer = send(context, &view, group, request).answer();
    let gone = async {
        context.connection.closed().await;
        Err(ErrorCode::NETWORK_EXCEPTION)
    };
    let stopping = async {
        context.broker.stopping().await;
        Err(ErrorCode::COORDINATOR_NOT_AVAILABLE)
    };
    futures_lite::future::or(answer, futures_lite::future::or(gone, stopping)).await
}

/// Who sent a request, as a group remembers it.
fn identity<E: Env>(context: &RequestContext<E>) -> ClientIdentity {
    ClientIdentity {
        client_id: context.client_id.clone().unwrap_or_default(),
        host: Str::from(format!("/{}", context.connection.peer.ip())),
    }
}
