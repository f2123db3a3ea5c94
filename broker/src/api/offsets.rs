//! Offset questions by owner shard: what ListOffsets, OffsetForLeaderEpoch and DeleteRecords share.

use protocol::ErrorCode;
use shard::ids::ShardId;
use shard::message::{OffsetAnswer, OffsetQuery, ShardReply, ShardRequest};
use shard::router::Router;

/// A partition's place in the response: topic, then partition within it.
pub(super) type Place = (usize, usize);

/// Questions by the shard that answers them.
#[derive(Debug, Default)]
pub(super) struct OffsetPlan {
    parts: Vec<(ShardId, Vec<OffsetQuery>, Vec<Place>)>,
}

impl OffsetPlan {
    /// A question for `shard` whose answer belongs at `place`.
    pub(super) fn add(&mut self, shard: ShardId, place: Place, query: OffsetQuery) {
        match self.parts.iter_mut().find(|(s, ..)| *s == shard) {
            Some((_, queries, places)) => {
                queries.push(query);
                places.push(place);
            }
            None => self.parts.push((shard, vec![query], vec![place])),
        }
    }

    /// Asks every shard at once and gives the answers with their places.
    pub(super) async fn ask<N: Send + 'static>(self, router: &Router<N>) -> Vec<(Place, OffsetAnswer)> {
        let asked: Vec<_> = self
            .parts
            .into_iter()
            .map(|(shard, queries, places)| (router.ask(shard, ShardRequest::Offsets(queries)), places))
            .collect();
        let mut answers = Vec::new();
        for (asked, places) in asked {
            let found = match asked {
                Ok(asked) => match asked.await {
                    ShardReply::Offsets(found) => found,
                    other => unreachable!("offset questions are answered with offsets, not {other:?}"),
                },
                Err(_) => vec![OffsetAnswer::failed(ErrorCode::NOT_LEADER_OR_FOLLOWER); places.len()],
            };
            answers.extend(places.into_iter().zip(found));
        }
        answers
    }
}
