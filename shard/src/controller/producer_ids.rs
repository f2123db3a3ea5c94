//! Blocks of producer ids (KIP-730): each broker takes a thousand at a time; none is ever given twice, whatever crashes.

use protocol::ErrorCode;
use protocol::messages::allocate_producer_ids::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};
use protocol::messages::cluster_metadata::ProducerIdsRecord;

use super::brokers::known_broker;
use super::context::{Context, Decision};
use crate::ids::BrokerId;

/// Ids of one block.
pub const PRODUCER_ID_BLOCK_SIZE: i32 = 1_000;

/// Gives a broker the next block.
pub(super) fn allocate_producer_ids(
    context: &Context<'_>,
    request: &AllocateProducerIdsRequest,
) -> Decision<AllocateProducerIdsResponse> {
    let refused = |code| {
        Decision::answer(AllocateProducerIdsResponse {
            error_code: code,
            producer_id_start: -1,
            producer_id_len: 0,
            throttle_time_ms: 0,
        })
    };
    if let Err(error) = known_broker(context, BrokerId(request.broker_id), request.broker_epoch) {
        return refused(error.code);
    }
    let start = context.image.next_producer_id.0;
    let Some(next) = start.checked_add(i64::from(PRODUCER_ID_BLOCK_SIZE)) else {
        return refused(ErrorCode::UNKNOWN_SERVER_ERROR); // 2^63 ids are used up
    };
    let record = ProducerIdsRecord {
        broker_id: request.broker_id,
        broker_epoch: request.broker_epoch,
        next_producer_id: next,
    };
    Decision {
        records: vec![record.into()],
        response: AllocateProducerIdsResponse {
            error_code: ErrorCode::NONE,
            producer_id_start: start,
            producer_id_len: PRODUCER_ID_BLOCK_SIZE,
            throttle_time_ms: 0,
        },
    }
}
