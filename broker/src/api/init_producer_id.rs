//! InitProducerId: a fresh producer id from this shard's share of the broker's block (PR-50…52). Blocks come from the
//! controller and are never given twice. Transactional ids have no coordinator yet, and the answer says so.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use protocol::ErrorCode;
use protocol::messages::allocate_producer_ids::AllocateProducerIdsRequest;
use protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
use shard::controller::{ControllerCommand, ControllerResponse};
use shard::env::Env;
use storage::notify::Notify;

use crate::node::Broker;
use crate::request::RequestContext;

/// The producer ids that one shard may give out.
#[derive(Debug, Default)]
pub struct ProducerIds {
    block: RefCell<Range<i64>>,
    is_asking: Cell<bool>,
    changed: Notify,
}

/// Gives out a producer id.
pub async fn handle<E: Env>(
    context: &RequestContext<E>,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refuse = |error_code| {
        context.count_error(error_code);
        InitProducerIdResponse {
            error_code,
            producer_id: -1,
            producer_epoch: -1,
            ..Default::default()
        }
    };
    match &request.transactional_id {
        Some(id) if id.is_empty() => return refuse(ErrorCode::INVALID_REQUEST),
        Some(_) => return refuse(ErrorCode::COORDINATOR_NOT_AVAILABLE),
        None => {}
    }
    // Both or none (PR-51); without a transactional id the answer is a fresh id either way (PR-50).
    if (request.producer_id == -1) != (request.producer_epoch == -1) {
        return refuse(ErrorCode::INVALID_REQUEST);
    }
    match next_id(&context.broker).await {
        Some(producer_id) => InitProducerIdResponse {
            producer_id,
            producer_epoch: 0,
            ..Default::default()
        },
        None => refuse(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS),
    }
}

/// The next id of the shard's block; a new block is asked for when it is used up, by one task for all that wait.
async fn next_id<E: Env>(broker: &Broker<E>) -> Option<i64> {
    let ids = &broker.producer_ids;
    loop {
        if let Some(id) = ids.block.borrow_mut().next() {
            return Some(id);
        }
        if ids.is_asking.replace(true) {
            ids.changed.until(|| (!ids.is_asking.get()).then_some(())).await;
            continue;
        }
        let block = allocate(broker).await;
        let is_given = block.is_some();
        if let Some(block) = block {
            *ids.block.borrow_mut() = block;
        }
        ids.is_asking.set(false);
        ids.changed.notify();
        if !is_given {
            return None;
        }
    }
}

async fn allocate<E: Env>(broker: &Broker<E>) -> Option<Range<i64>> {
    let node = broker.settings.node_id;
    let broker_epoch = broker.view().image.brokers.get(node)?.epoch;
    let request = AllocateProducerIdsRequest {
        broker_id: node.0,
        broker_epoch,
    };
    match broker
        .command(ControllerCommand::AllocateProducerIds(request))
        .await?
    {
        ControllerResponse::AllocateProducerIds(block) if block.error_code == ErrorCode::NONE => {
            let start = block.producer_id_start;
            Some(start..start + i64::from(block.producer_id_len))
        }
        _ => None,
    }
}
