//! The way into the shards for threads that are none: admin HTTP, signals, object-store transfers. A [`ShardPort`] is
//! `Send + Sync`, works from plain threads and from tokio, and never blocks a shard.

use std::sync::Arc;
use std::time::Duration;

use super::mailbox::{Node, Source};
use crate::ids::ShardId;

/// Sends messages to any shard of the node from any thread.
pub struct ShardPort<M> {
    node: Arc<Node<M>>,
}

/// Why a side thread got no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortError {
    /// As many messages of side threads wait for that shard as may; try again later.
    #[error("the shard has too many messages of side threads waiting")]
    Full,
    /// The shard has not answered in time; it may still act on the message.
    #[error("the shard has not answered in time")]
    TimedOut,
    /// The shard dropped the message without an answer: it is stopping.
    #[error("the shard is stopping")]
    Stopping,
}

impl<M: Send + 'static> ShardPort<M> {
    pub(super) fn new(node: Arc<Node<M>>) -> Self {
        Self { node }
    }

    /// How many shards there are to ask.
    #[must_use]
    pub fn shards(&self) -> u16 {
        u16::try_from(self.node.senders.len()).expect("built from a u16")
    }

    /// Puts a message into the inbox of `to`.
    ///
    /// # Errors
    /// [`PortError::Full`] when `port_messages_max` messages of side threads wait there.
    pub fn send(&self, to: ShardId, message: M) -> Result<(), PortError> {
        let lane = self.node.lanes.lane(Source::SideThread, to);
        if lane.entered() > self.node.limits.port_messages_max {
            lane.refused();
            return Err(PortError::Full);
        }
        self.node.send(Source::SideThread, to, vec![message]);
        Ok(())
    }

    /// Sends the message that `make` builds around an answer slot, and returns the call to wait on.
    ///
    /// # Errors
    /// As [`ShardPort::send`].
    pub fn call<R: Send>(
        &self,
        to: ShardId,
        make: impl FnOnce(PortReply<R>) -> M,
    ) -> Result<PortCall<R>, PortError> {
        let (sender, receiver) = flume::bounded(1);
        self.send(to, make(PortReply(sender)))?;
        Ok(PortCall(receiver))
    }
}

impl<M> Clone for ShardPort<M> {
    fn clone(&self) -> Self {
        Self {
            node: self.node.clone(),
        }
    }
}

/// The answer slot that travels with a side thread's message.
#[derive(Debug)]
pub struct PortReply<R>(flume::Sender<R>);

impl<R> PortReply<R> {
    /// Answers. Never waits; an answer nobody waits for any more is dropped.
    pub fn send(self, reply: R) {
        // The slot has room for the one answer, so an error only says that the asker has left.
        let _ = self.0.try_send(reply);
    }
}

/// A side thread's question under way.
#[derive(Debug)]
#[must_use = "the answer is lost when the call is dropped"]
pub struct PortCall<R>(flume::Receiver<R>);

impl<R> PortCall<R> {
    /// Waits for the answer on a plain thread.
    ///
    /// # Errors
    /// [`PortError::TimedOut`] or [`PortError::Stopping`].
    pub fn wait(self, timeout: Duration) -> Result<R, PortError> {
        self.0.recv_timeout(timeout).map_err(|e| match e {
            flume::RecvTimeoutError::Timeout => PortError::TimedOut,
            flume::RecvTimeoutError::Disconnected => PortError::Stopping,
        })
    }

    /// Waits for the answer in an async task of any executor; the caller brings its own timeout.
    ///
    /// # Errors
    /// [`PortError::Stopping`].
    pub async fn answer(self) -> Result<R, PortError> {
        self.0.recv_async().await.map_err(|_| PortError::Stopping)
    }
}
