//! The life of a request on its connection's shard: header, version check, decode, handler, encode. The handlers are in
//! `api/`, one file each; the table that leads to them is `dispatch.rs`.

mod context;
mod dispatch;
pub mod served;

use std::future::Future;
use std::io;
use std::pin::Pin;

use bytes::Bytes;
use protocol::ApiKey;
use shard::budget::Charge;
use shard::connection::order::Kind;

pub use self::context::RequestContext;
pub use self::dispatch::start;

/// A small request, bytes.
const SMALL_FRAME_BYTES: usize = 4 << 10;

/// How a request goes on after it was started.
pub enum Started {
    /// It is done.
    Now(Outcome),
    /// It runs on its own. A Produce has been handed to its owner shards by now.
    Later(Pin<Box<dyn Future<Output = Outcome>>>),
}

/// How a request ended.
#[derive(Debug)]
pub enum Outcome {
    /// With an answer: the frame in pieces, and what it is charged to if that was done before it was made.
    Answer(Vec<Bytes>, Option<Charge>),
    /// Without one: a good produce with acks=0.
    NoAnswer,
    /// The connection has to be closed: a failed produce with acks=0 (PR-9).
    Close,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its side between two requests.
    PeerClosed,
    /// The broker is stopping.
    Stopping,
    /// Nothing came for `connections.max.idle.ms`, or a frame stood still.
    Idle,
    /// It held memory that others waited for: a part of a frame, or an answer that was not read.
    Memory,
    /// An answer could not be given or sent.
    Aborted,
    /// What came is not a request that is served here; the sentence says why.
    Protocol(String),
    /// The socket failed.
    Io(io::ErrorKind),
}

impl CloseReason {
    /// A short name for metrics and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::PeerClosed => "peer_closed",
            Self::Stopping => "stopping",
            Self::Idle => "idle",
            Self::Memory => "memory",
            Self::Aborted => "aborted",
            Self::Protocol(_) => "protocol",
            Self::Io(_) => "io",
        }
    }
}

/// What a frame is as far as order goes. A frame too short for an API key is refused when it starts.
#[must_use]
pub fn kind_of(frame: &Bytes) -> Kind {
    match frame.get(..2) {
        Some([0, 0]) => Kind::Produce,
        _ => Kind::Exclusive,
    }
}

/// Whether a frame and the answer to it are small: for each thing that it names there is an error, and little more.
#[must_use]
pub fn has_small_answer(frame: &Bytes) -> bool {
    const SMALL: [ApiKey; 6] = [
        ApiKey::OffsetCommit,
        ApiKey::FindCoordinator,
        ApiKey::Heartbeat,
        ApiKey::LeaveGroup,
        ApiKey::ApiVersions,
        ApiKey::InitProducerId,
    ];
    let key = frame.first_chunk().map(|key| i16::from_be_bytes(*key));
    frame.len() <= SMALL_FRAME_BYTES && SMALL.iter().any(|small| key == Some(*small as i16))
}
