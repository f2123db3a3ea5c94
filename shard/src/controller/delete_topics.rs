//! DeleteTopics (AD-5): by name or by id, each entry answered for itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::messages::cluster_metadata as wire;
use protocol::messages::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::{ErrorCode, Str, Uuid};
use storage::types::TopicId;

use super::context::{Context, Decision, Draft, RECORDS_MAX, too_large};
use super::topics::repeated_names;
use crate::error::ApiError;
use crate::image::TopicImage;

/// The first version that knows TOPIC_DELETION_DISABLED.
const FIRST_VERSION_WITH_DISABLED: i16 = 3;

/// Deletes topics. Which of them the client may delete is the broker's business before.
pub(super) fn delete_topics(
    context: &Context<'_>,
    request: &DeleteTopicsRequest,
    version: i16,
) -> Decision<DeleteTopicsResponse> {
    let wanted = wanted(request);
    let mut responses: Vec<DeletableTopicResult> = Vec::with_capacity(wanted.len());
    if !context.layers().boolean("delete.topic.enable") {
        let code = if version < FIRST_VERSION_WITH_DISABLED {
            ErrorCode::INVALID_REQUEST
        } else {
            ErrorCode::TOPIC_DELETION_DISABLED
        };
        let error = ApiError::new(code, "Topic deletion is disabled (delete.topic.enable=false).");
        responses.extend(wanted.iter().map(|entry| refused(entry, &error)));
        return Decision::answer(response(responses));
    }
    let repeated = repeated_names(wanted.iter().filter_map(|entry| entry.name.as_deref()));
    let mut answered = BTreeSet::new();
    let mut deleted: BTreeSet<TopicId> = BTreeSet::new();
    let mut draft = Draft::new(context.image);
    for entry in &wanted {
        if let Some(name) = entry.name.as_deref()
            && repeated.contains(name)
        {
            if answered.insert(name) {
                responses.push(refused(
                    entry,
                    &ApiError::invalid_request("Duplicate topic name."),
                ));
            }
            continue;
        }
        let outcome = find(context, entry).and_then(|topic| {
            if deleted.insert(topic.id) {
                Ok(topic)
            } else {
                Err(ApiError::invalid_request("The topic is named more than once."))
            }
        });
        responses.push(match outcome {
            Ok(topic) => remove(&mut draft, topic),
            Err(error) => refused(entry, &error),
        });
    }
    if draft.len() > RECORDS_MAX {
        let refusals = wanted.iter().map(|entry| refused(entry, &too_large()));
        return Decision::answer(response(refusals.collect()));
    }
    Decision {
        records: draft.into_records(),
        response: response(responses),
    }
}

/// What one entry asks for.
struct Wanted {
    name: Option<Str>,
    id: Uuid,
}

fn wanted(request: &DeleteTopicsRequest) -> Vec<Wanted> {
    let by_name = request.topic_names.iter().map(|name| Wanted {
        name: Some(name.clone()),
        id: Uuid::ZERO,
    });
    let by_either = request.topics.iter().map(|topic| Wanted {
        name: topic.name.clone(),
        id: topic.topic_id,
    });
    by_name.chain(by_either).collect()
}

fn find<'a>(context: &Context<'a>, entry: &Wanted) -> Result<&'a Arc<TopicImage>, ApiError> {
    let topics = &context.image.topics;
    match (&entry.name, entry.id) {
        (None, Uuid::ZERO) => Err(ApiError::invalid_request("Neither topic name nor id is given.")),
        (Some(name), Uuid::ZERO) => topics.by_name(name).ok_or_else(|| {
            ApiError::new(
                ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        }),
        (None, id) => topics.by_id(TopicId(id.0)).ok_or_else(|| {
            ApiError::new(
                ErrorCode::UNKNOWN_TOPIC_ID,
                "This server does not host this topic ID.",
            )
        }),
        (Some(_), _) => Err(ApiError::invalid_request(
            "Give a topic's name or its id, not both.",
        )),
    }
}

fn remove(draft: &mut Draft, topic: &TopicImage) -> DeletableTopicResult {
    let topic_id = Uuid(topic.id.0);
    draft.push(wire::RemoveTopicRecord { topic_id });
    DeletableTopicResult {
        name: Some(Str::from(topic.name.to_string())),
        topic_id,
        error_code: ErrorCode::NONE,
        error_message: None,
    }
}

fn refused(entry: &Wanted, error: &ApiError) -> DeletableTopicResult {
    DeletableTopicResult {
        name: entry.name.clone(),
        topic_id: entry.id,
        error_code: error.code,
        error_message: Some(error.text()),
    }
}

fn response(responses: Vec<DeletableTopicResult>) -> DeleteTopicsResponse {
    DeleteTopicsResponse {
        throttle_time_ms: 0,
        responses,
    }
}
