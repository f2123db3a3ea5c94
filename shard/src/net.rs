//! The seam between a connection's code and its socket: two halves of a byte stream that can be used from two tasks of
//! one shard. `runtime/net` fills it in with TCP sockets, a TLS layer can wrap it, the simulator fills it with
//! queues. Nothing here is `Send`.
#![allow(async_fn_in_trait)] // every future of a shard stays on its thread, so no Send bound is ever wanted

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use crate::env::Instant;

/// A connected byte stream of one shard, before it is split.
pub trait ByteStream: 'static {
    /// The receiving half.
    type Reader: ByteReader;
    /// The sending half.
    type Writer: ByteWriter;

    /// Both halves. The connection is closed when both are dropped.
    fn split(self) -> (Self::Reader, Self::Writer);
    /// The other end's address.
    fn peer(&self) -> SocketAddr;
    /// The address the other end connected to.
    fn local(&self) -> SocketAddr;
}

/// The receiving half of a stream.
///
/// A read that is always ready never lets the reactor run: callers await [`crate::env::Env::breathe`] after
/// each batch of requests.
pub trait ByteReader: 'static {
    /// Appends what has arrived to `buf`, waiting for at least one byte, and returns how many bytes were added; 0 means
    /// that the peer has closed its side. At most the spare capacity of `buf` is read: the caller reserves it (and has
    /// charged it to a budget) first.
    ///
    /// # Errors
    /// `InvalidInput` without spare capacity; `TimedOut` when it has waited beyond the deadline: nothing is lost, the
    /// deadline is cleared, and the caller closes the connection or reads on. Every other error ends the connection.
    async fn read(&mut self, buf: &mut BytesMut) -> io::Result<usize>;

    /// The instant after which a waiting read ends with `TimedOut`, or `None` for no limit. It is kept until it is met or
    /// replaced, and met late by at most [`DEADLINE_SWEEP_MS`]. A caller sets it once when a frame begins (not at
    /// each read, or a byte a second keeps a frame open for ever) and when no request is open (idle).
    fn set_deadline(&mut self, at: Option<Instant>);
}

/// The sending half of a stream.
pub trait ByteWriter: 'static {
    /// Sends all chunks in order and leaves `chunks` empty. Chunks are dropped as soon as the kernel has them, so what
    /// they charge is given back while a slow reader still holds up the rest.
    ///
    /// # Errors
    /// `TimedOut` when it has waited for room beyond the deadline: `chunks` then holds exactly what was not sent. Every
    /// other error ends the connection.
    async fn write_all(&mut self, chunks: &mut VecDeque<Bytes>) -> io::Result<()>;

    /// As [`ByteReader::set_deadline`], for a write that waits for room in the socket's buffer.
    fn set_deadline(&mut self, at: Option<Instant>);

    /// Tells the peer that nothing more will come (FIN after what was sent). Reading goes on.
    fn shutdown(&mut self);

    /// Ends the connection in both directions at once: a waiting read of the other half returns.
    fn abort(&mut self);
}

/// How late a deadline of a stream may be noticed, milliseconds: one sweep over a shard's connections.
pub const DEADLINE_SWEEP_MS: u64 = 500;
