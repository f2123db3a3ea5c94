//! How the code of a connection reaches the shards: one message per (request, shard), a token for the answer. Lives on
//! every shard; all its messages go through the mailbox, also those to itself.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::coordinator::group::GroupRequest;
use crate::ids::ShardId;
use crate::message::{ReplyTo, ShardReply, ShardRequest};
use crate::replies::{Replies, Reply, ReplyToken};
use crate::runtime::mailbox::Outbox;
use crate::trace::{PartMoments, Trace};
use storage::types::LogId;

/// Requests of one shard that may be open at other shards (and itself); connections stop reading above it.
pub const OPEN_REQUESTS_MAX: usize = 1 << 16;

/// What travels in the mailboxes. `N` is what the process itself says to its shards.
#[derive(Debug)]
pub enum ShardMessage<N> {
    /// A request to the owner of partitions.
    Request {
        /// Where the answer goes.
        to: ReplyTo,
        /// The request.
        request: ShardRequest,
    },
    /// A request to the group coordinator of a partition of `__consumer_offsets`.
    Coordinate {
        /// Where the answer goes.
        to: ReplyTo,
        /// The partition.
        log: LogId,
        /// The request.
        request: Box<GroupRequest>,
    },
    /// An answer.
    Reply {
        /// The asker's token.
        token: ReplyToken,
        /// The answer.
        reply: ShardReply,
        /// Of a request that is traced.
        moments: Option<Box<PartMoments>>,
    },
    /// The asker does not wait any longer.
    Cancel(ReplyTo),
    /// Something of the process's own.
    Node(N),
}

/// One shard's way to all shards. Cheap to clone; not `Send`.
pub struct Router<N: Send + 'static>(Rc<Inner<N>>);

struct Inner<N: Send + 'static> {
    outbox: Outbox<ShardMessage<N>>,
    replies: Replies<(ShardReply, Option<PartMoments>)>,
}

/// An open request: resolves to its answer.
#[must_use = "a dropped request has no answer"]
pub struct Asked {
    shard: ShardId,
    to: ReplyTo,
    reply: Reply<(ShardReply, Option<PartMoments>)>,
    trace: Option<Rc<Trace>>,
}

/// As many requests are open as may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{OPEN_REQUESTS_MAX} requests of this shard are unanswered")]
pub struct Overloaded;

impl<N: Send + 'static> Router<N> {
    /// A router over the shard's mailbox.
    #[must_use]
    pub fn new(outbox: Outbox<ShardMessage<N>>) -> Self {
        Self(Rc::new(Inner {
            outbox,
            replies: Replies::new(OPEN_REQUESTS_MAX),
        }))
    }

    /// The shard this router is on.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        self.0.outbox.shard()
    }

    /// How many shards the node has.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.0.outbox.shards()
    }

    /// Sends a request to a shard. Requests to one shard arrive in the order of these calls.
    ///
    /// # Errors
    /// [`Overloaded`]; a connection awaits [`Self::room`] before it starts a request.
    pub fn ask(&self, shard: ShardId, request: ShardRequest) -> Result<Asked, Overloaded> {
        self.send(shard, None, |to| ShardMessage::Request { to, request })
    }

    /// As [`Self::ask`]; the trace, if there is one, is told when the owner did what.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_traced(
        &self,
        shard: ShardId,
        request: ShardRequest,
        trace: Option<&Rc<Trace>>,
    ) -> Result<Asked, Overloaded> {
        self.send(shard, trace.cloned(), |to| ShardMessage::Request { to, request })
    }

    /// Sends a request to a group coordinator.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn coordinate(&self, shard: ShardId, log: LogId, request: GroupRequest) -> Result<Asked, Overloaded> {
        let request = Box::new(request);
        self.send(shard, None, |to| ShardMessage::Coordinate { to, log, request })
    }

    fn send(
        &self,
        shard: ShardId,
        trace: Option<Rc<Trace>>,
        message: impl FnOnce(ReplyTo) -> ShardMessage<N>,
    ) -> Result<Asked, Overloaded> {
        let (token, reply) = self.0.replies.register().ok_or(Overloaded)?;
        let to = ReplyTo {
            shard: self.shard(),
            token,
            is_traced: trace.is_some(),
        };
        self.0.outbox.push(shard, message(to));
        Ok(Asked {
            shard,
            to,
            reply,
            trace,
        })
    }

    /// Takes a request back; its answer is dropped if it comes all the same.
    pub fn cancel(&self, asked: Asked) {
        self.0.outbox.push(asked.shard, ShardMessage::Cancel(asked.to));
    }

    /// Sends an answer to whoever asked.
    pub fn answer(&self, to: ReplyTo, reply: ShardReply) {
        self.answer_traced(to, reply, None);
    }

    /// As [`Self::answer`], with the moments of what is traced.
    pub fn answer_traced(&self, to: ReplyTo, reply: ShardReply, moments: Option<PartMoments>) {
        self.0.outbox.push(
            to.shard,
            ShardMessage::Reply {
                token: to.token,
                reply,
                moments: moments.map(Box::new),
            },
        );
    }

    /// Says something of the process's own to a shard.
    pub fn tell(&self, shard: ShardId, message: N) {
        self.0.outbox.push(shard, ShardMessage::Node(message));
    }

    /// An answer has arrived; one that nobody waits for is dropped.
    pub fn deliver(&self, token: ReplyToken, reply: ShardReply, moments: Option<PartMoments>) {
        drop(self.0.replies.complete(token, (reply, moments)));
    }

    /// Waits until every shard has room for another request of this one.
    pub async fn room(&self) {
        for shard in 0..self.shards() {
            self.0.outbox.room(ShardId(shard)).await;
        }
    }

    /// Requests that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.0.replies.outstanding()
    }
}

impl<N: Send + 'static> Clone for Router<N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Future for Asked {
    type Output = ShardReply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ShardReply> {
        let (reply, moments) = ready!(Pin::new(&mut self.reply).poll(cx));
        if let (Some(trace), Some(moments)) = (&self.trace, moments) {
            trace.answered(moments);
        }
        Poll::Ready(reply)
    }
}
