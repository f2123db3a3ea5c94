//! From a frame to its handler: the header is read, the version checked, the body decoded with bounds, the handler
//! started. Whatever is not a request we serve closes the connection, as in Kafka (CN-4), but for ApiVersions (CN-5).

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use bytes::Bytes;
use protocol::header::RequestHeader;
use protocol::message::{Message, Request};
use protocol::{ApiKey, Reader};
use shard::env::Env;

use super::served::served;
use super::{CloseReason, Outcome, RequestContext, Started};
use crate::api;
use crate::listener::connection::ConnectionInfo;
use crate::node::Broker;
use crate::observe::stages::Traced;

/// Starts the request of a frame. For a Produce that ends when it has been handed to its owner shards, which may take a
/// while: the connection starts nothing until then.
pub async fn start<E: Env>(
    broker: &Rc<Broker<E>>,
    connection: &Rc<ConnectionInfo>,
    frame: Bytes,
    trace: Option<Traced>,
) -> Result<Started, CloseReason> {
    let bytes = frame.len();
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader).map_err(|e| CloseReason::Protocol(e.to_string()))?;
    broker.metrics.request(header.api_key, header.api_version, bytes);
    let context = RequestContext {
        broker: broker.clone(),
        connection: connection.clone(),
        api_key: header.api_key,
        version: header.api_version,
        client_id: header.client_id,
        received: broker.env.now(),
        charge: Cell::default(),
        trace: trace.map(|traced| traced.trace),
        correlation_id: header.correlation_id,
    };
    let is_served = served(context.api_key).is_some_and(|s| (s.min..=s.max).contains(&context.version));
    if !is_served {
        if context.api_key == ApiKey::ApiVersions {
            return Ok(Started::Now(api::api_versions::unsupported_version(&context)));
        }
        let (api, version) = (context.api_key, context.version);
        return Err(CloseReason::Protocol(format!(
            "{api:?} version {version} is not served here; ApiVersions lists what is"
        )));
    }
    route(context, reader).await
}

async fn route<E: Env>(context: RequestContext<E>, reader: Reader) -> Result<Started, CloseReason> {
    macro_rules! run {
        ($handler:path) => {{
            let request = decode(reader, context.version)?;
            later(async move {
                let response = $handler(&context, request).await;
                finish(&context, &response)
            })
        }};
    }
    match context.api_key {
        ApiKey::Produce => {
            let request = decode(reader, context.version)?;
            Ok(api::produce::begin(context, request).await)
        }
        ApiKey::Fetch => run!(api::fetch::handle),
        ApiKey::ListOffsets => run!(api::list_offsets::handle),
        ApiKey::Metadata => run!(api::metadata::handle),
        ApiKey::OffsetForLeaderEpoch => run!(api::offset_for_leader_epoch::handle),
        ApiKey::OffsetCommit => run!(api::groups::offsets::commit),
        ApiKey::OffsetFetch => run!(api::groups::offsets::fetch),
        ApiKey::JoinGroup => run!(api::groups::members::join),
        ApiKey::Heartbeat => run!(api::groups::members::heartbeat),
        ApiKey::LeaveGroup => run!(api::groups::members::leave),
        ApiKey::SyncGroup => run!(api::groups::members::sync),
        ApiKey::DescribeGroups => run!(api::groups::admin::describe),
        ApiKey::ListGroups => run!(api::groups::admin::list),
        ApiKey::DeleteGroups => run!(api::groups::admin::delete),
        ApiKey::OffsetDelete => run!(api::groups::offsets::delete),
        ApiKey::FindCoordinator => run!(api::find_coordinator::handle),
        ApiKey::ApiVersions => run!(api::api_versions::handle),
        ApiKey::CreateTopics => run!(api::admin::create_topics),
        ApiKey::DeleteTopics => run!(api::admin::delete_topics),
        ApiKey::DeleteRecords => run!(api::delete_records::handle),
        ApiKey::InitProducerId => run!(api::init_producer_id::handle),
        ApiKey::DescribeConfigs => run!(api::describe_configs::handle),
        ApiKey::AlterConfigs => run!(api::admin::alter_configs),
        ApiKey::AlterReplicaLogDirs => run!(api::alter_replica_log_dirs::handle),
        ApiKey::DescribeLogDirs => run!(api::describe_log_dirs::handle),
        ApiKey::CreatePartitions => run!(api::admin::create_partitions),
        ApiKey::AlterPartitionReassignments => run!(api::reassignments::alter),
        ApiKey::ListPartitionReassignments => run!(api::reassignments::list),
        ApiKey::IncrementalAlterConfigs => run!(api::admin::incremental_alter_configs),
        ApiKey::DescribeCluster => run!(api::describe_cluster::handle),
        ApiKey::ListConfigResources => run!(api::list_config_resources::handle),
        ApiKey::DescribeTopicPartitions => run!(api::describe_topic_partitions::handle),
        other => Err(CloseReason::Protocol(format!("{other:?} is not served here"))),
    }
}

fn decode<R: Request>(mut reader: Reader, version: i16) -> Result<R, CloseReason> {
    R::decode(&mut reader, version).map_err(|e| CloseReason::Protocol(e.to_string()))
}

fn later(answer: impl Future<Output = Outcome> + 'static) -> Result<Started, CloseReason> {
    Ok(Started::Later(
        Box::pin(answer) as Pin<Box<dyn Future<Output = Outcome>>>
    ))
}

fn finish<E: Env, M: Message>(context: &RequestContext<E>, response: &M) -> Outcome {
    let took = context.broker.env.now().since(context.received);
    context.broker.metrics.answered(context.api_key, took);
    context.answer(response)
}
