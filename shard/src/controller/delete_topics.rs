//! DeleteTopics (AD-5): by name or by id, each entry answered for itself. What is named more than once is refused, answered
//! once, and not deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use protocol::messages::cluster_metadata as wire;
use protocol::messages::delete_topics::{DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::{ErrorCode, Str, Uuid};
use storage::types::TopicId;

use super::context::{Context, Decision, Draft, RECORDS_MAX, too_large};
use super::topics::repeated;
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
    let named = Named::of(context, &wanted);
    let mut answered = BTreeSet::new();
    let mut draft = Draft::new(context.image);
    for entry in &wanted {
        if let Some(error) = named.repetition(entry) {
            if answered.insert((&entry.name, entry.id)) {
                responses.push(refused(entry, &error));
            }
            continue;
        }
        match find(context, entry) {
            Ok(topic) if named.both_ways.contains(&topic.id) => {
                // One answer for both entries, that of the name.
                if entry.name.is_some() {
                    let error = ApiError::invalid_request("The topic is given by its id, too.");
                    responses.push(DeletableTopicResult {
                        topic_id: Uuid(topic.id.0),
                        ..refused(entry, &error)
                    });
                }
            }
            Ok(topic) => responses.push(remove(&mut draft, topic)),
            Err(error) => responses.push(refused(entry, &error)),
        }
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

/// What a request names more than once.
struct Named {
    repeated_names: BTreeSet<Str>,
    repeated_ids: BTreeSet<Uuid>,
    /// Topics given by their name, once, and by their id.
    both_ways: BTreeSet<TopicId>,
}

impl Named {
    fn of(context: &Context<'_>, wanted: &[Wanted]) -> Self {
        let names = || wanted.iter().filter_map(Wanted::only_name);
        let ids = || wanted.iter().filter_map(Wanted::only_id);
        let repeated_names: BTreeSet<_> = repeated(names()).into_iter().cloned().collect();
        let given: BTreeSet<_> = ids().collect();
        let both_ways = names()
            .filter(|name| !repeated_names.contains(*name))
            .filter_map(|name| context.image.topics.by_name(name))
            .map(|topic| topic.id)
            .filter(|id| given.contains(&Uuid(id.0)))
            .collect();
        Self {
            repeated_names,
            repeated_ids: repeated(ids()),
            both_ways,
        }
    }

    /// The error of an entry that comes again in the same form.
    fn repetition(&self, entry: &Wanted) -> Option<ApiError> {
        if entry
            .only_name()
            .is_some_and(|name| self.repeated_names.contains(name))
        {
            return Some(ApiError::invalid_request("Duplicate topic name."));
        }
        let is_repeated = entry.only_id().is_some_and(|id| self.repeated_ids.contains(&id));
        is_repeated.then(|| ApiError::invalid_request("Duplicate topic id."))
    }
}

impl Wanted {
    fn only_name(&self) -> Option<&Str> {
        self.name.as_ref().filter(|_| self.id == Uuid::ZERO)
    }

    fn only_id(&self) -> Option<Uuid> {
        (self.name.is_none() && self.id != Uuid::ZERO).then_some(self.id)
    }
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
