//! What a handler is given beside the request: the broker on this shard, the connection, the header.

use std::cell::Cell;
use std::rc::Rc;

use protocol::header::ResponseHeader;
use protocol::message::Message;
use protocol::{ApiKey, ErrorCode, Str, Writer};
use shard::budget::Charge;
use shard::env::{Env, Instant};
use shard::trace::Trace;

use super::Outcome;
use crate::listener::connection::ConnectionInfo;
use crate::node::Broker;

/// An answer is encoded into a buffer of this size at first, bytes; record bytes are spliced in, not copied.
const ANSWER_BYTES: usize = 512;

/// One request's surroundings.
pub struct RequestContext<E: Env> {
    /// The broker on this shard.
    pub broker: Rc<Broker<E>>,
    /// The connection it came in on.
    pub connection: Rc<ConnectionInfo>,
    /// Its API.
    pub api_key: ApiKey,
    /// Its version, within the served range.
    pub version: i16,
    /// The client's name for itself.
    pub client_id: Option<Str>,
    /// When its frame was complete.
    pub received: Instant,
    /// What the handler charged for its answer before it read the data.
    pub charge: Cell<Option<Charge>>,
    /// When what was done, if this request is traced.
    pub trace: Option<Rc<Trace>>,
    pub(super) correlation_id: i32,
}

impl<E: Env> RequestContext<E> {
    /// Shards are about to be asked: their part of the request's time begins.
    pub fn asking(&self) -> Option<&Rc<Trace>> {
        let trace = self.trace.as_ref()?;
        trace.asked(self.broker.env.now());
        Some(trace)
    }

    /// Encodes the answer in the request's version.
    pub fn answer<M: Message>(&self, response: &M) -> Outcome {
        self.answer_in_version(response, self.version)
    }

    /// Encodes the answer in another version: only ApiVersions does (CN-5).
    pub fn answer_in_version<M: Message>(&self, response: &M, version: i16) -> Outcome {
        let mut writer = Writer::framed(ANSWER_BYTES);
        ResponseHeader {
            correlation_id: self.correlation_id,
        }
        .encode(&mut writer, self.api_key, version);
        let encoded = response
            .encode(&mut writer, version)
            .and_then(|()| writer.finish());
        match encoded {
            Ok(chunks) => Outcome::Answer(chunks, self.charge.take()),
            Err(error) => {
                tracing::error!(api = ?self.api_key, version, %error, "a response could not be encoded; closing the connection");
                Outcome::Close
            }
        }
    }

    /// Counts an error code that the answer carries.
    pub fn count_error(&self, code: ErrorCode) {
        if code != ErrorCode::NONE {
            self.broker.metrics.error(self.api_key, code);
        }
    }

    /// Counts the error codes of the answer's rows.
    pub fn count_errors(&self, codes: impl IntoIterator<Item = ErrorCode>) {
        codes.into_iter().for_each(|code| self.count_error(code));
    }
}
