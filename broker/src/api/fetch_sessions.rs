//! The fetch sessions of the whole node, for a fetch: most are of its own shard, and those of a client that came back on
//! another connection are where their id says. Each step of such a fetch, its beginning and its end, is a message to
//! that shard.

use shard::env::Env;
use shard::fetch::session::{AnswerFacts, Plan, SessionError, SessionRequest, SessionUse, holder};
use shard::ids::ShardId;

use crate::node::{Broker, NodeMessage};

/// A fetch whose answers are there.
#[derive(Debug)]
pub struct EndedFetch {
    /// What was read.
    pub plan: Plan,
    /// What came of it, in plan order.
    pub facts: Vec<AnswerFacts>,
    /// Whether topics were named by id.
    pub by_id: bool,
    /// Whether a replica asked.
    pub from_follower: bool,
}

/// What was read, the session id of the response, and which answers it lists.
pub type Listed = (Plan, i32, Vec<bool>);

/// One step of a session that a connection of another shard asks for. A reply that is dropped is a stop.
#[derive(Debug)]
pub enum SessionStep {
    /// A fetch begins.
    Begin(SessionRequest, flume::Sender<Result<Plan, SessionError>>),
    /// A fetch has its answers.
    Finish(EndedFetch, flume::Sender<Listed>),
    /// A full request named the session, which closes it (FE-23).
    Close(i32),
}

/// What to read for a fetch, and how its session stands.
pub async fn begin<E: Env>(broker: &Broker<E>, request: SessionRequest) -> Result<Plan, SessionError> {
    match elsewhere(broker, request.id) {
        Some(shard) if request.is_full() => {
            let close = SessionStep::Close(request.id);
            broker.router.tell(shard, NodeMessage::Session(close));
        }
        Some(shard) => {
            let (reply, answer) = flume::bounded(1);
            let begin = SessionStep::Begin(request, reply);
            broker.router.tell(shard, NodeMessage::Session(begin));
            // A shard that has ended knows no session.
            return answer.recv_async().await.unwrap_or(Err(SessionError::NotFound));
        }
        None => {}
    }
    broker.sessions.borrow_mut().begin(request, broker.env.now())
}

/// Notes what came of a fetch.
pub async fn finish<E: Env>(broker: &Broker<E>, ended: EndedFetch) -> Listed {
    let shard = match ended.plan.session {
        SessionUse::Incremental(id) => elsewhere(broker, id),
        SessionUse::None | SessionUse::Open => None,
    };
    let Some(shard) = shard else {
        return finish_here(broker, ended);
    };
    let (reply, answer) = flume::bounded(1);
    broker
        .router
        .tell(shard, NodeMessage::Session(SessionStep::Finish(ended, reply)));
    match answer.recv_async().await {
        Ok(listed) => listed,
        // The shard has ended, and with it this connection.
        Err(_) => {
            let nothing = Plan {
                session: SessionUse::None,
                partitions: Vec::new(),
            };
            (nothing, 0, Vec::new())
        }
    }
}

/// Takes a step for a connection of another shard.
pub fn serve<E: Env>(broker: &Broker<E>, step: SessionStep) {
    // Nobody waits for a reply any more only when the asker has ended.
    match step {
        SessionStep::Begin(request, reply) => {
            let begun = broker.sessions.borrow_mut().begin(request, broker.env.now());
            let _ = reply.send(begun);
        }
        SessionStep::Finish(ended, reply) => {
            let _ = reply.send(finish_here(broker, ended));
        }
        SessionStep::Close(id) => broker.sessions.borrow_mut().close(id),
    }
}

fn finish_here<E: Env>(broker: &Broker<E>, ended: EndedFetch) -> Listed {
    let (id, listed) = broker.sessions.borrow_mut().finish(
        &ended.plan,
        &ended.facts,
        ended.by_id,
        ended.from_follower,
        broker.env.random(),
        broker.env.now(),
    );
    (ended.plan, id, listed)
}

/// The other shard that holds a session, if it is another's.
fn elsewhere<E: Env>(broker: &Broker<E>, id: i32) -> Option<ShardId> {
    let router = &broker.router;
    let shard = holder(id, router.shards());
    (id != 0 && shard != router.shard()).then_some(shard)
}
