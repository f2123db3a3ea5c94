//! AlterPartitionReassignments and ListPartitionReassignments (AD-13). A cluster of one broker has one assignment for each
//! partition: asking for that is done at once, nothing else can be asked for, and nothing is ever under way.

use std::collections::BTreeSet;

use protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartition,
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use protocol::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
};
use protocol::{ErrorCode, Str};
use shard::env::Env;
use shard::ids::BrokerId;
use shard::image::PartitionImage;

use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// Answers for each partition, in request order.
pub async fn alter<E: Env>(
    context: &RequestContext<E>,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let view = context.broker.view();
    let topic = |name: &Str, partitions: Vec<ReassignablePartition>| ReassignableTopicResponse {
        name: name.clone(),
        partitions: partitions
            .into_iter()
            .map(|partition| one(&view, name, &partition))
            .collect(),
    };
    let topics = request.topics.into_iter();
    let responses: Vec<_> = topics.map(|asked| topic(&asked.name, asked.partitions)).collect();
    context.count_errors(responses.iter().flat_map(|t| &t.partitions).map(|p| p.error_code));
    AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        // As Kafka 4.3.1, which says nothing in words where it was asked for nothing.
        error_message: responses.is_empty().then(|| Str::from_static("")),
        responses,
        ..Default::default()
    }
}

/// Nothing is under way.
pub async fn list<E: Env>(
    _context: &RequestContext<E>,
    _request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    ListPartitionReassignmentsResponse {
        error_message: None,
        ..Default::default()
    }
}

fn one(view: &View, topic: &str, asked: &ReassignablePartition) -> ReassignablePartitionResponse {
    let (error_code, error_message) = match decide(view, topic, asked) {
        Ok(()) => (ErrorCode::NONE, None),
        Err((code, message)) => (code, message.map(Str::from)),
    };
    ReassignablePartitionResponse {
        partition_index: asked.partition_index,
        error_code,
        error_message,
    }
}

fn decide(
    view: &View,
    topic: &str,
    asked: &ReassignablePartition,
) -> Result<(), (ErrorCode, Option<String>)> {
    let unknown = |what: String| (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Some(what));
    let index = asked.partition_index;
    let image = view
        .topic(TopicName::Name(topic))
        .map_err(|_| unknown(format!("There is no topic {topic}.")))?;
    let partition = image
        .partition(index)
        .ok_or_else(|| unknown(format!("Topic {topic} has no partition {index}.")))?;
    match &asked.replicas {
        None => Err((ErrorCode::NO_REASSIGNMENT_IN_PROGRESS, None)),
        Some(replicas) => check(view, partition, replicas)
            .map_err(|what| (ErrorCode::INVALID_REPLICA_ASSIGNMENT, Some(what))),
    }
}

fn check(view: &View, partition: &PartitionImage, replicas: &[i32]) -> Result<(), String> {
    if replicas.is_empty() {
        return Err("An assignment names at least one broker.".to_owned());
    }
    let mut seen = BTreeSet::new();
    for replica in replicas {
        if !seen.insert(*replica) {
            return Err(format!(
                "Broker {replica} comes more than once in the assignment."
            ));
        }
        if view.image.brokers.get(BrokerId(*replica)).is_none() {
            return Err(format!("There is no broker {replica}."));
        }
    }
    let is_as_it_is = partition
        .replicas
        .iter()
        .map(|replica| replica.0)
        .eq(replicas.iter().copied());
    if !is_as_it_is {
        return Err("Replicas cannot be moved between brokers yet.".to_owned());
    }
    Ok(())
}
