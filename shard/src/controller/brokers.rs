//! Brokers join, say that they live, stop and leave: BrokerRegistration, BrokerHeartbeat, UnregisterBroker. A node that is
//! broker and controller registers itself in the same way, without the network between.

use std::collections::BTreeSet;

use protocol::messages::broker_heartbeat::{BrokerHeartbeatRequest, BrokerHeartbeatResponse};
use protocol::messages::broker_registration::{BrokerRegistrationRequest, BrokerRegistrationResponse};
use protocol::messages::cluster_metadata as wire;
use protocol::messages::unregister_broker::{UnregisterBrokerRequest, UnregisterBrokerResponse};
use protocol::{ErrorCode, Uuid};
use storage::types::LogId;

use super::context::{Context, Decision, Draft};
use super::features::METADATA_VERSION;
use super::leaders;
use crate::error::ApiError;
use crate::ids::BrokerId;
use crate::image::BrokerImage;

/// The most endpoints and the most log directories of a broker.
const REGISTERED_ITEMS_MAX: usize = 1_000;

/// Registers a broker, fenced until its first heartbeat. A restart of the same broker registers again with a new
/// incarnation; its `previous_broker_epoch` tells whether it stopped cleanly (−1 or another epoch: it did not).
pub(super) fn register_broker(
    context: &Context<'_>,
    request: &BrokerRegistrationRequest,
) -> Decision<BrokerRegistrationResponse> {
    match registration(context, request) {
        Ok((draft, broker_epoch)) => Decision {
            records: draft.into_divisible(),
            response: BrokerRegistrationResponse {
                broker_epoch,
                ..BrokerRegistrationResponse::default()
            },
        },
        Err(error) => Decision::answer(BrokerRegistrationResponse {
            error_code: error.code,
            broker_epoch: -1,
            ..BrokerRegistrationResponse::default()
        }),
    }
}

fn registration(
    context: &Context<'_>,
    request: &BrokerRegistrationRequest,
) -> Result<(Draft, i64), ApiError> {
    check_registration(context, request)?;
    let id = BrokerId(request.broker_id);
    let former = context.image.brokers.get(id);
    let mut draft = Draft::new(context.image);
    if let Some(former) = former
        && former.incarnation == request.incarnation_id
    {
        return Ok((draft, former.epoch)); // the same process asks again
    }
    let is_unclean = former.is_some_and(|former| former.epoch != request.previous_broker_epoch);
    let after_former = former.map_or(0, |former| former.epoch + 1);
    let broker_epoch = i64::try_from(context.next_index)
        .unwrap_or(i64::MAX)
        .max(after_former);
    draft.push(registration_record(request, broker_epoch));
    if is_unclean {
        leaders::on_broker_back(&mut draft, id, true);
    }
    Ok((draft, broker_epoch))
}

fn check_registration(context: &Context<'_>, request: &BrokerRegistrationRequest) -> Result<(), ApiError> {
    let refuse = |code, message: String| Err(ApiError::new(code, message));
    if *request.cluster_id != *context.image.cluster_id {
        return refuse(
            ErrorCode::INCONSISTENT_CLUSTER_ID,
            format!(
                "This is cluster {}, the broker belongs to {}",
                context.image.cluster_id, &*request.cluster_id
            ),
        );
    }
    let sizes = [
        request.listeners.len(),
        request.log_dirs.len(),
        request.features.len(),
    ];
    if request.broker_id < 0
        || request.listeners.is_empty()
        || sizes.iter().any(|len| *len > REGISTERED_ITEMS_MAX)
    {
        return refuse(
            ErrorCode::INVALID_REGISTRATION,
            "id or listeners are missing or too many".into(),
        );
    }
    let mut directories = request.log_dirs.clone();
    directories.sort_unstable();
    directories.dedup();
    if directories.is_empty() || directories.len() != request.log_dirs.len() {
        return refuse(
            ErrorCode::INVALID_REGISTRATION,
            "log directories are missing or come twice".into(),
        );
    }
    if let Some(former) = context.image.brokers.get(BrokerId(request.broker_id))
        && !former.fenced
        && former.incarnation != request.incarnation_id
        && !shares_directory(former, &request.log_dirs)
    {
        return refuse(
            ErrorCode::DUPLICATE_BROKER_REGISTRATION,
            format!(
                "Another broker serves as {} with other log directories",
                request.broker_id
            ),
        );
    }
    let level = context.image.feature(METADATA_VERSION);
    let supports = request.features.iter().any(|feature| {
        *feature.name == *METADATA_VERSION
            && (feature.min_supported_version..=feature.max_supported_version).contains(&level)
    });
    if level > 0 && !supports {
        return refuse(
            ErrorCode::UNSUPPORTED_VERSION,
            format!("The broker does not support {METADATA_VERSION} {level}"),
        );
    }
    Ok(())
}

/// Whether it is the same broker started anew: nobody else can hold the lock of its directory.
fn shares_directory(former: &BrokerImage, directories: &[Uuid]) -> bool {
    former
        .directories
        .iter()
        .any(|directory| directories.contains(directory))
}

fn registration_record(request: &BrokerRegistrationRequest, broker_epoch: i64) -> wire::RegisterBrokerRecord {
    wire::RegisterBrokerRecord {
        broker_id: request.broker_id,
        is_migrating_zk_broker: false,
        incarnation_id: request.incarnation_id,
        broker_epoch,
        end_points: request
            .listeners
            .iter()
            .map(|listener| wire::BrokerEndpoint {
                name: listener.name.detached(),
                host: listener.host.detached(),
                port: listener.port,
                security_protocol: listener.security_protocol,
            })
            .collect(),
        features: request
            .features
            .iter()
            .map(|feature| wire::BrokerFeature {
                name: feature.name.detached(),
                min_supported_version: feature.min_supported_version,
                max_supported_version: feature.max_supported_version,
            })
            .collect(),
        rack: request.rack.as_ref().map(protocol::Str::detached),
        fenced: true,
        in_controlled_shutdown: false,
        log_dirs: request.log_dirs.clone(),
        cordoned_log_dirs: None,
    }
}

/// A broker says that it lives and what it wants: serve, not serve, or stop.
pub(super) fn broker_heartbeat(
    context: &Context<'_>,
    request: &BrokerHeartbeatRequest,
) -> Decision<BrokerHeartbeatResponse> {
    let id = BrokerId(request.broker_id);
    let broker = match known_broker(context, id, request.broker_epoch) {
        Ok(broker) => broker,
        Err(error) => {
            return Decision::answer(BrokerHeartbeatResponse {
                error_code: error.code,
                is_fenced: true,
                ..BrokerHeartbeatResponse::default()
            });
        }
    };
    let is_caught_up = request.current_metadata_offset >= broker.epoch;
    let mut draft = Draft::new(context.image);
    let wants_to_serve = !request.want_fence && !request.want_shut_down;
    if broker.fenced && wants_to_serve && is_caught_up {
        draft.push(wire::BrokerRegistrationChangeRecord {
            fenced: -1,
            ..registration_change(request)
        });
        leaders::on_broker_back(&mut draft, id, false);
    } else if request.want_shut_down && !broker.in_controlled_shutdown {
        draft.push(wire::BrokerRegistrationChangeRecord {
            in_controlled_shutdown: 1,
            ..registration_change(request)
        });
        leave_to_others(&mut draft, context, id);
    } else if request.want_fence && !broker.fenced {
        draft.push(wire::BrokerRegistrationChangeRecord {
            fenced: 1,
            ..registration_change(request)
        });
        leaders::on_broker_gone(&mut draft, id, &context.layers());
    }
    let is_fenced = draft.image().brokers.get(id).is_none_or(|broker| broker.fenced);
    let should_shut_down = request.want_shut_down && !leads_where_others_could(&draft, id);
    Decision {
        records: draft.into_divisible(),
        response: BrokerHeartbeatResponse {
            error_code: ErrorCode::NONE,
            is_caught_up,
            is_fenced,
            should_shut_down,
            ..BrokerHeartbeatResponse::default()
        },
    }
}

/// Fences a broker whose lease ended.
pub(super) fn fence_broker(context: &Context<'_>, id: BrokerId) -> Decision<()> {
    let mut draft = Draft::new(context.image);
    if let Some(broker) = context.image.brokers.get(id)
        && !broker.fenced
    {
        draft.push(wire::BrokerRegistrationChangeRecord {
            broker_id: id.0,
            broker_epoch: broker.epoch,
            fenced: 1,
            ..wire::BrokerRegistrationChangeRecord::default()
        });
        leaders::on_broker_gone(&mut draft, id, &context.layers());
    }
    Decision {
        records: draft.into_divisible(),
        response: (),
    }
}

/// A log directory of a broker has failed, and these partitions with it. Those that are gone by now are no matter.
pub(super) fn logs_offline(context: &Context<'_>, id: BrokerId, logs: &BTreeSet<LogId>) -> Decision<()> {
    let mut draft = Draft::new(context.image);
    leaders::on_logs_gone(&mut draft, id, logs, &context.layers());
    Decision {
        records: draft.into_records(),
        response: (),
    }
}

/// Forgets a broker that will not come back (AD-19).
pub(super) fn unregister_broker(
    context: &Context<'_>,
    request: &UnregisterBrokerRequest,
) -> Decision<UnregisterBrokerResponse> {
    let id = BrokerId(request.broker_id);
    let Some(broker) = context.image.brokers.get(id) else {
        let error = ApiError::new(
            ErrorCode::BROKER_ID_NOT_REGISTERED,
            format!("Broker {id} is not registered."),
        );
        return Decision::answer(UnregisterBrokerResponse {
            error_code: error.code,
            error_message: Some(error.text()),
            ..UnregisterBrokerResponse::default()
        });
    };
    let mut draft = Draft::new(context.image);
    leaders::on_broker_gone(&mut draft, id, &context.layers());
    draft.push(wire::UnregisterBrokerRecord {
        broker_id: id.0,
        broker_epoch: broker.epoch,
    });
    Decision {
        records: draft.into_records(),
        response: UnregisterBrokerResponse {
            error_message: None,
            ..UnregisterBrokerResponse::default()
        },
    }
}

/// The broker of that id, if the epoch is its own.
///
/// # Errors
/// BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH.
pub(super) fn known_broker<'a>(
    context: &Context<'a>,
    id: BrokerId,
    epoch: i64,
) -> Result<&'a BrokerImage, ApiError> {
    match context.image.brokers.get(id) {
        None => Err(ApiError::new(
            ErrorCode::BROKER_ID_NOT_REGISTERED,
            format!("Broker {id} is not registered."),
        )),
        Some(broker) if broker.epoch != epoch => Err(ApiError::new(
            ErrorCode::STALE_BROKER_EPOCH,
            format!("Broker {id} has epoch {}, the request {epoch}.", broker.epoch),
        )),
        Some(broker) => Ok(broker),
    }
}

fn registration_change(request: &BrokerHeartbeatRequest) -> wire::BrokerRegistrationChangeRecord {
    wire::BrokerRegistrationChangeRecord {
        broker_id: request.broker_id,
        broker_epoch: request.broker_epoch,
        ..wire::BrokerRegistrationChangeRecord::default()
    }
}

/// Before a stop others take over what they can; what only this broker has stays its own, so that it leads it again at the
/// next start without an election.
fn leave_to_others(draft: &mut Draft, context: &Context<'_>, id: BrokerId) {
    let alone =
        |draft: &Draft| context.image.brokers.unfenced().count() <= 1 || draft.image().topics.is_empty();
    if !alone(draft) {
        leaders::on_broker_gone(draft, id, &context.layers());
    }
}

fn leads_where_others_could(draft: &Draft, id: BrokerId) -> bool {
    draft
        .image()
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .any(|partition| partition.leader == Some(id) && partition.isr.len() > 1)
}
