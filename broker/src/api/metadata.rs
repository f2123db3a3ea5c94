//! Metadata: brokers, topics, partitions and leaders, on the listener the request came in on (MD-1…11). A topic that
//! does not exist may be created on the way (MD-4); this answer still says that it does not.

use protocol::messages::metadata::{
    MetadataRequest, MetadataResponse, MetadataResponseBroker, MetadataResponsePartition,
    MetadataResponseTopic,
};
use protocol::{ErrorCode, Str, Uuid};
use shard::controller::check_name;
use shard::env::Env;
use shard::image::{BrokerList, PartitionImage, TopicImage};
use storage::types::TopicId;

use super::authorized::{CLUSTER_OPERATIONS, OPERATIONS_UNKNOWN, TOPIC_OPERATIONS};
use crate::request::RequestContext;
use crate::view::{TopicName, View};

/// Answers with the cluster's brokers and the topics asked for.
pub async fn handle<E: Env>(context: &RequestContext<E>, request: MetadataRequest) -> MetadataResponse {
    let view = context.broker.view();
    let listener = &context.connection.listener;
    let topics = match &request.topics {
        Some(asked) if !(asked.is_empty() && context.version == 0) => {
            let mut missing = Vec::new();
            let topics = asked
                .iter()
                .map(|t| {
                    named(
                        &view,
                        context.version,
                        t.name.as_ref(),
                        t.topic_id,
                        listener,
                        &mut missing,
                    )
                })
                .collect();
            if request.allow_auto_topic_creation && !missing.is_empty() {
                context.broker.create_automatically(missing);
            }
            topics
        }
        _ => view
            .image
            .topics
            .iter()
            .map(|topic| found(&view, topic, listener))
            .collect(),
    };
    let mut topics: Vec<MetadataResponseTopic> = topics;
    for topic in &mut topics {
        context.count_error(topic.error_code);
        topic.topic_authorized_operations = if request.include_topic_authorized_operations {
            TOPIC_OPERATIONS
        } else {
            OPERATIONS_UNKNOWN
        };
    }
    let brokers = brokers(&view, listener);
    MetadataResponse {
        controller_id: brokers.first().map_or(-1, |b| b.node_id),
        brokers,
        cluster_id: Some(Str::from(view.image.cluster_id.to_string())),
        topics,
        cluster_authorized_operations: if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            OPERATIONS_UNKNOWN
        },
        ..Default::default()
    }
}

fn named(
    view: &View,
    version: i16,
    name: Option<&Str>,
    id: Uuid,
    listener: &str,
    missing: &mut Vec<String>,
) -> MetadataResponseTopic {
    let by_id = version >= 10 && name.is_none();
    let wanted = match name {
        _ if by_id => TopicName::Id(TopicId(id.0)),
        Some(name) => TopicName::Name(name),
        None => TopicName::Name(""),
    };
    match view.topic(wanted) {
        Ok(topic) => found(view, topic, listener),
        Err(code) => {
            let text = name.map_or("", Str::as_str);
            let is_bad = !by_id && check_name(text).is_err();
            if !by_id && !is_bad {
                missing.push(text.to_owned());
            }
            MetadataResponseTopic {
                error_code: if is_bad {
                    ErrorCode::INVALID_TOPIC_EXCEPTION
                } else {
                    code
                },
                name: name.cloned().or_else(|| (version < 12).then(Str::default)),
                topic_id: id,
                is_internal: shard::image::is_internal(text),
                ..Default::default()
            }
        }
    }
}

fn found(view: &View, topic: &TopicImage, listener: &str) -> MetadataResponseTopic {
    MetadataResponseTopic {
        error_code: ErrorCode::NONE,
        name: Some(Str::from(topic.name.to_string())),
        topic_id: Uuid(topic.id.0),
        is_internal: topic.is_internal(),
        partitions: topic
            .indexed()
            .map(|(index, p)| partition(view, topic.id, index, p, listener))
            .collect(),
        ..Default::default()
    }
}

fn partition(
    view: &View,
    topic: TopicId,
    index: i32,
    partition: &PartitionImage,
    listener: &str,
) -> MetadataResponsePartition {
    let live = |id| view.image.brokers.get(id).filter(|b| !b.fenced);
    let (error_code, leader_id) = match partition.leader {
        None => (ErrorCode::LEADER_NOT_AVAILABLE, -1),
        Some(leader) => match live(leader) {
            None => (ErrorCode::LEADER_NOT_AVAILABLE, -1),
            Some(broker) if broker.endpoint(listener).is_none() => (ErrorCode::LISTENER_NOT_FOUND, -1),
            Some(_) => (ErrorCode::NONE, leader.0),
        },
    };
    let ids = |list: &BrokerList| list.iter().map(|id| id.0).collect::<Vec<_>>();
    MetadataResponsePartition {
        error_code,
        partition_index: index,
        leader_id,
        leader_epoch: partition.leader_epoch.0,
        replica_nodes: ids(&partition.replicas),
        isr_nodes: ids(&partition.isr),
        offline_replicas: partition
            .replicas
            .iter()
            .filter(|id| live(**id).is_none() || view.is_offline(**id, topic, index))
            .map(|id| id.0)
            .collect(),
    }
}

/// Alive brokers with an endpoint on this listener; never none, since this one is (MD-8).
fn brokers(view: &View, listener: &str) -> Vec<MetadataResponseBroker> {
    let row = |broker: &std::sync::Arc<shard::image::BrokerImage>| {
        let endpoint = broker.endpoint(listener)?;
        Some(MetadataResponseBroker {
            node_id: broker.id.0,
            host: Str::from(endpoint.host.to_string()),
            port: i32::from(endpoint.port),
            rack: broker.rack.as_ref().map(|rack| Str::from(rack.to_string())),
        })
    };
    view.image.brokers.unfenced().filter_map(row).collect()
}
