//! CreatePartitions (AD-6, BR-097): a topic grows, its old partitions stay as they are. Kafka lets a single request of more
//! than 10,000 new partitions through in parts; here it is refused as a whole, like CreateTopics.

use std::collections::BTreeSet;

use protocol::messages::create_partitions::{
    CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use protocol::{ErrorCode, Str, Uuid};

use super::context::{Context, Decision, Draft, RECORDS_MAX, too_large};
use super::placer;
use super::topics::{
    PARTITIONS_PER_REQUEST_MAX, check_assignment, invalid_assignment, new_partition, repeated,
};
use crate::error::ApiError;
use crate::image::{BrokerList, TopicImage, partition_record};

/// Grows topics. Which of them the client may alter is the broker's business before.
pub(super) fn create_partitions(
    context: &mut Context<'_>,
    request: &CreatePartitionsRequest,
) -> Decision<CreatePartitionsResponse> {
    let repeated = repeated(request.topics.iter().map(|topic| topic.name.as_str()));
    let mut answered = BTreeSet::new();
    let mut draft = Draft::new(context.image);
    let mut results = Vec::with_capacity(request.topics.len());
    for topic in &request.topics {
        let name = topic.name.as_str();
        let outcome = if repeated.contains(name) {
            Err(ApiError::invalid_request("Duplicate topic name."))
        } else {
            grow(context, &mut draft, topic)
        };
        if answered.insert(name) || !repeated.contains(name) {
            results.push(result(name, outcome));
        }
    }
    if draft.len() > RECORDS_MAX {
        let refused = request
            .topics
            .iter()
            .map(|topic| result(&topic.name, Err(too_large())));
        return Decision::answer(response(refused.collect()));
    }
    Decision {
        records: if request.validate_only {
            Vec::new()
        } else {
            draft.into_records()
        },
        response: response(results),
    }
}

fn grow(
    context: &mut Context<'_>,
    draft: &mut Draft,
    wanted: &CreatePartitionsTopic,
) -> Result<(), ApiError> {
    let topic = context
        .image
        .topics
        .by_name(&wanted.name)
        .ok_or_else(|| ApiError::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "No such topic."))?
        .clone();
    let added = added_count(&topic, wanted.count)?;
    let replicas = match &wanted.assignments {
        Some(assignments) => {
            let ids = assignments
                .iter()
                .map(|assignment| assignment.broker_ids.as_slice());
            assigned(context, &topic, added, ids.collect())?
        }
        None => placer::place(&context.image.brokers, added, factor(&topic), context.random)?,
    };
    let first = wanted.count - added;
    for (index, replicas) in (first..).zip(&replicas) {
        let partition = new_partition(&context.image.brokers, replicas);
        draft.push(partition_record(Uuid(topic.id.0), index, &partition));
    }
    Ok(())
}

fn added_count(topic: &TopicImage, wanted: i32) -> Result<i32, ApiError> {
    let refuse = |message| Err(ApiError::new(ErrorCode::INVALID_PARTITIONS, message));
    let current = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    if wanted == current {
        return refuse(format!("Topic already has {current} partition(s)."));
    }
    if wanted < current {
        return refuse(format!(
            "Topic {} has {current} partition(s); {wanted} would not be an increase.",
            topic.name
        ));
    }
    if i64::from(wanted) - i64::from(current) > PARTITIONS_PER_REQUEST_MAX {
        return Err(too_large());
    }
    Ok(wanted - current)
}

fn factor(topic: &TopicImage) -> i16 {
    let replicas = topic
        .partitions
        .first()
        .map_or(1, |partition| partition.replicas.len());
    i16::try_from(replicas).unwrap_or(i16::MAX)
}

fn assigned(
    context: &Context<'_>,
    topic: &TopicImage,
    added: i32,
    assignments: Vec<&[i32]>,
) -> Result<Vec<BrokerList>, ApiError> {
    if i32::try_from(assignments.len()) != Ok(added) {
        return Err(invalid_assignment(format!(
            "{added} partition(s) would be added, {} are assigned.",
            assignments.len()
        )));
    }
    let mut expected = Some(usize::from(factor(topic).unsigned_abs()));
    let first = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
    (first..)
        .zip(assignments)
        .map(|(index, ids)| check_assignment(&context.image.brokers, index, ids, &mut expected))
        .collect()
}

fn result(name: &str, outcome: Result<(), ApiError>) -> CreatePartitionsTopicResult {
    let error = outcome.err();
    CreatePartitionsTopicResult {
        name: Str::from(name.to_owned()),
        error_code: error.as_ref().map_or(ErrorCode::NONE, |error| error.code),
        error_message: error.map(|error| error.text()),
    }
}

fn response(results: Vec<CreatePartitionsTopicResult>) -> CreatePartitionsResponse {
    CreatePartitionsResponse {
        throttle_time_ms: 0,
        results,
    }
}
