//! CreateTopics (AD-1 to AD-3): each topic of a request is created or refused for itself; all that are created become one
//! log entry.

use std::collections::{BTreeMap, BTreeSet};

use protocol::messages::cluster_metadata as wire;
use protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfigs, CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
use protocol::{ErrorCode, Str, Uuid};
use smallvec::SmallVec;
use storage::types::LeaderEpoch;

use super::context::{Context, Decision, Draft, RECORDS_MAX, too_large};
use super::names::{Collisions, check_name};
use super::placer;
use crate::config::{Overrides, alter, describe};
use crate::error::ApiError;
use crate::ids::BrokerId;
use crate::image::{
    BrokerList, BrokersImage, MetadataImage, PartitionImage, ResourceKind, config_record, partition_record,
};

/// The most new partitions of one request (Kafka's bound).
pub const PARTITIONS_PER_REQUEST_MAX: i64 = 10_000;

/// The metadata log's own name: no topic may have it.
pub const METADATA_TOPIC: &str = "__cluster_metadata";

/// Creates topics. Whose names the client may not use is the broker's business before; whose configurations it may not read
/// (`may_describe` is false for the name), gets TOPIC_AUTHORIZATION_FAILED instead of them.
pub(super) fn create_topics(
    context: &mut Context<'_>,
    request: &CreateTopicsRequest,
    may_describe: &dyn Fn(&str) -> bool,
) -> Decision<CreateTopicsResponse> {
    let repeated = repeated(request.topics.iter().map(|topic| topic.name.as_str()));
    let mut results = Vec::with_capacity(request.topics.len());
    let mut reported = BTreeSet::new();
    let mut draft = Draft::new(context.image);
    let total = partitions_asked_for(context, request);
    let collisions = Collisions::of(
        &context.image.topics,
        request.topics.iter().map(|topic| topic.name.as_str()),
    );
    for topic in &request.topics {
        let name = topic.name.as_str();
        let outcome = if total > PARTITIONS_PER_REQUEST_MAX {
            Err(too_large())
        } else if repeated.contains(name) {
            Err(ApiError::invalid_request("Duplicate topic name."))
        } else {
            plan(context, topic, &collisions).map(|plan| create(context, &mut draft, plan, may_describe))
        };
        // A name that comes twice is answered once.
        if reported.insert(name) || !repeated.contains(name) {
            results.push(outcome.unwrap_or_else(|error| refusal(name, &error)));
        }
    }
    if draft.len() > RECORDS_MAX {
        let refused = request
            .topics
            .iter()
            .map(|topic| refusal(&topic.name, &too_large()));
        return Decision::answer(response(refused.collect()));
    }
    let records = if request.validate_only {
        Vec::new()
    } else {
        draft.into_records()
    };
    Decision {
        records,
        response: response(results),
    }
}

fn response(topics: Vec<CreatableTopicResult>) -> CreateTopicsResponse {
    CreateTopicsResponse {
        throttle_time_ms: 0,
        topics,
    }
}

/// What comes more than once.
pub(super) fn repeated<T: Ord + Copy>(items: impl Iterator<Item = T>) -> BTreeSet<T> {
    let mut seen = BTreeSet::new();
    items.filter(|item| !seen.insert(*item)).collect()
}

fn partitions_asked_for(context: &Context<'_>, request: &CreateTopicsRequest) -> i64 {
    let default = context.layers().integer("num.partitions", 1);
    let counts = request.topics.iter().map(|topic| match topic.num_partitions {
        _ if !topic.assignments.is_empty() => i64::try_from(topic.assignments.len()).unwrap_or(i64::MAX),
        -1 => default,
        count => i64::from(count.max(0)),
    });
    counts.fold(0, i64::saturating_add)
}

/// A topic that may be created.
struct Plan {
    name: Str,
    replicas: Vec<BrokerList>,
    own: Overrides,
}

fn plan(
    context: &mut Context<'_>,
    topic: &CreatableTopic,
    collisions: &Collisions,
) -> Result<Plan, ApiError> {
    let name = topic.name.as_str();
    if name == METADATA_TOPIC {
        return Err(ApiError::invalid_request(format!(
            "{METADATA_TOPIC} is the metadata log, not a topic"
        )));
    }
    if context.image.topics.by_name(name).is_some() {
        return Err(ApiError::new(
            ErrorCode::TOPIC_ALREADY_EXISTS,
            format!("Topic '{name}' already exists."),
        ));
    }
    check_name(name)?;
    collisions.check(name)?;
    let own = own_configs(topic)?;
    alter::check_topic(&context.layers(), &own)?;
    let replicas = if topic.assignments.is_empty() {
        placed(context, topic)?
    } else {
        assigned(&context.image.brokers, topic)?
    };
    Ok(Plan {
        name: topic.name.detached(),
        replicas,
        own,
    })
}

/// The topic's own configs; of a key that comes twice the later value counts, as in Kafka.
fn own_configs(topic: &CreatableTopic) -> Result<Overrides, ApiError> {
    let mut own = Overrides::new();
    for config in &topic.configs {
        let value = config.value.as_ref().ok_or_else(|| {
            ApiError::invalid_config(format!(
                "Null value not supported for topic configs: {}",
                &*config.name
            ))
        })?;
        own.insert(config.name.to_string(), value.to_string());
    }
    Ok(own)
}

fn placed(context: &mut Context<'_>, topic: &CreatableTopic) -> Result<Vec<BrokerList>, ApiError> {
    let factor = match topic.replication_factor {
        -1 => context.layers().integer("default.replication.factor", 1),
        factor => i64::from(factor),
    };
    let partitions = match topic.num_partitions {
        -1 => context.layers().integer("num.partitions", 1),
        count => i64::from(count),
    };
    let refuse = |code, text: &str| Err(ApiError::new(code, text));
    match (i16::try_from(factor), i32::try_from(partitions)) {
        (Ok(..=0) | Err(_), _) => refuse(
            ErrorCode::INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 for the broker's default.",
        ),
        (_, Ok(..=0) | Err(_)) => refuse(
            ErrorCode::INVALID_PARTITIONS,
            "Number of partitions must be larger than 0, or -1 for the broker's default.",
        ),
        (Ok(factor), Ok(partitions)) => {
            placer::place(&context.image.brokers, partitions, factor, context.random)
        }
    }
}

/// The replicas that the request names itself.
fn assigned(brokers: &BrokersImage, topic: &CreatableTopic) -> Result<Vec<BrokerList>, ApiError> {
    if topic.replication_factor != -1 {
        return Err(ApiError::invalid_request(
            "With a manual assignment the replication factor must be -1.",
        ));
    }
    if topic.num_partitions != -1 {
        return Err(ApiError::invalid_request(
            "With a manual assignment the number of partitions must be -1.",
        ));
    }
    let mut by_index: BTreeMap<i32, BrokerList> = BTreeMap::new();
    let mut factor = None;
    for assignment in &topic.assignments {
        let index = assignment.partition_index;
        let replicas = check_assignment(brokers, index, &assignment.broker_ids, &mut factor)?;
        if by_index.insert(index, replicas).is_some() {
            return Err(invalid_assignment(format!(
                "Partition {index} is assigned more than once."
            )));
        }
    }
    if !by_index
        .keys()
        .copied()
        .eq(0..i32::try_from(by_index.len()).unwrap_or(i32::MAX))
    {
        return Err(invalid_assignment(
            "Partitions must be numbered 0, 1, 2 and so on.".into(),
        ));
    }
    Ok(by_index.into_values().collect())
}

/// One partition's replicas as a client names them. `factor` is how many the partitions before have.
pub(super) fn check_assignment(
    brokers: &BrokersImage,
    index: i32,
    ids: &[i32],
    factor: &mut Option<usize>,
) -> Result<BrokerList, ApiError> {
    let replicas: BrokerList = ids.iter().copied().map(BrokerId).collect();
    if replicas.is_empty() {
        return Err(invalid_assignment(format!(
            "Partition {index} is assigned to no broker."
        )));
    }
    for (at, broker) in replicas.iter().enumerate() {
        if replicas.iter().take(at).any(|earlier| earlier == broker) {
            return Err(invalid_assignment(format!(
                "Broker {broker} comes more than once in partition {index}."
            )));
        }
        if brokers.get(*broker).is_none() {
            return Err(invalid_assignment(format!("Broker {broker} is not registered.")));
        }
    }
    if *factor.get_or_insert(replicas.len()) != replicas.len() {
        return Err(invalid_assignment(format!(
            "Partition {index} has {} replicas, the ones before have {}.",
            replicas.len(),
            factor.unwrap_or(0)
        )));
    }
    if !replicas.iter().any(|broker| may_lead(brokers, *broker)) {
        return Err(invalid_assignment(format!(
            "All brokers of partition {index} are fenced or about to stop."
        )));
    }
    Ok(replicas)
}

pub(super) fn invalid_assignment(message: String) -> ApiError {
    ApiError::new(ErrorCode::INVALID_REPLICA_ASSIGNMENT, message)
}

/// Whether a broker may lead partitions: it is there, not fenced and not leaving.
pub(super) fn may_lead(brokers: &BrokersImage, id: BrokerId) -> bool {
    brokers
        .get(id)
        .is_some_and(|broker| !broker.fenced && !broker.in_controlled_shutdown)
}

/// A new partition on `replicas`: those that may lead are in sync, the first of them leads.
pub(super) fn new_partition(brokers: &BrokersImage, replicas: &BrokerList) -> PartitionImage {
    let isr: BrokerList = replicas
        .iter()
        .copied()
        .filter(|broker| may_lead(brokers, *broker))
        .collect();
    let directories: SmallVec<[Uuid; 2]> = replicas
        .iter()
        .map(|broker| placer::directory_on(brokers, *broker))
        .collect();
    PartitionImage {
        replicas: replicas.clone(),
        directories,
        leader: isr.first().copied(),
        isr,
        elr: BrokerList::new(),
        last_known_elr: BrokerList::new(),
        removing: BrokerList::new(),
        adding: BrokerList::new(),
        is_recovering: false,
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
    }
}

fn create(
    context: &mut Context<'_>,
    draft: &mut Draft,
    plan: Plan,
    may_describe: &dyn Fn(&str) -> bool,
) -> CreatableTopicResult {
    let topic_id = random_topic_id(draft.image(), context.random);
    draft.push(wire::TopicRecord {
        name: plan.name.clone(),
        topic_id,
    });
    for (key, value) in &plan.own {
        draft.push(config_record(ResourceKind::Topic, &plan.name, key, Some(value)));
    }
    for (index, replicas) in (0i32..).zip(&plan.replicas) {
        let partition = new_partition(&context.image.brokers, replicas);
        draft.push(partition_record(topic_id, index, &partition));
    }
    let may_describe = may_describe(&plan.name);
    CreatableTopicResult {
        topic_id,
        num_partitions: if may_describe {
            count(plan.replicas.len())
        } else {
            -1
        },
        replication_factor: if may_describe {
            i16::try_from(plan.replicas.first().map_or(0, |replicas| replicas.len())).unwrap_or(i16::MAX)
        } else {
            -1
        },
        topic_config_error_code: if may_describe {
            ErrorCode::NONE
        } else {
            ErrorCode::TOPIC_AUTHORIZATION_FAILED
        },
        configs: Some(if may_describe {
            effective_configs(context, &plan.own)
        } else {
            Vec::new()
        }),
        name: plan.name,
        error_code: ErrorCode::NONE,
        error_message: None,
    }
}

fn count(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

fn effective_configs(context: &Context<'_>, own: &Overrides) -> Vec<CreatableTopicConfigs> {
    describe::topic(&context.layers(), own)
        .into_iter()
        .map(|entry| CreatableTopicConfigs {
            name: Str::from(entry.name),
            value: entry.value.map(Str::from),
            read_only: entry.read_only,
            config_source: entry.source.wire(),
            is_sensitive: entry.sensitive,
        })
        .collect()
}

fn refusal(name: &str, error: &ApiError) -> CreatableTopicResult {
    CreatableTopicResult {
        name: Str::from(name.to_owned()),
        error_code: error.code,
        error_message: Some(error.text()),
        num_partitions: -1,
        replication_factor: -1,
        configs: Some(Vec::new()),
        ..CreatableTopicResult::default()
    }
}

/// A random version-4 UUID that is free, not one of Kafka's reserved ones, and whose text does not begin with a dash (the
/// tools would take it for an option).
pub fn random_topic_id(image: &MetadataImage, random: &mut dyn FnMut() -> u64) -> Uuid {
    loop {
        let id = random_uuid(random);
        if image.topics.by_id(storage::types::TopicId(id.0)).is_none() {
            return id;
        }
    }
}

/// A random version-4 UUID as Kafka draws them: for topics, directories, clusters.
pub fn random_uuid(random: &mut dyn FnMut() -> u64) -> Uuid {
    loop {
        let bits = u128::from(random()) << 64 | u128::from(random());
        let version = 0xF << 76;
        let variant = 0b11 << 62;
        let id = Uuid::from_u128(bits & !version & !variant | 4 << 76 | 0b10 << 62);
        if !id.is_reserved() && !id.to_string().starts_with('-') {
            return id;
        }
    }
}
