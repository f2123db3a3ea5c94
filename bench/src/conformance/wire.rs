//! A blocking connection that sends any request in any version, or bytes made by hand, and reads answers strictly: the right
//! correlation id, the right header, every byte of the body accounted for.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use broker::client::frame;
use bytes::Bytes;
use protocol::DecodeLimits;
use protocol::message::Request;

use crate::error::{Doing, Error, Result, failed};

/// Longest wait for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 256 << 20;
/// The client id of every request that does not set its own.
const CLIENT_ID: &str = "conformance";

/// What came instead of an answer.
#[derive(Debug)]
pub enum Received {
    /// The next frame, without its length.
    Frame(Bytes),
    /// The peer closed the connection.
    Closed,
    /// Nothing within the time.
    Silence,
}

/// One connection to a broker.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    correlation_id: i32,
}

impl Wire {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).doing(address)?;
        stream.set_nodelay(true).doing(address)?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT)).doing(address)?;
        Ok(Self {
            stream,
            correlation_id: 0,
        })
    }

    /// Sends a request and returns its correlation id.
    ///
    /// # Errors
    /// It cannot be encoded in this version, or the connection failed.
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<i32> {
        self.correlation_id += 1;
        let frame = encode(version, self.correlation_id, request)?;
        self.send_bytes(&frame)?;
        Ok(self.correlation_id)
    }

    /// A request as the frame that [`Self::send_bytes`] takes, for sending it often.
    ///
    /// # Errors
    /// It cannot be encoded in this version.
    pub fn frame_of<R: Request>(version: i16, request: &R) -> Result<Vec<u8>> {
        encode(version, 0, request)
    }

    /// The answer to such a request.
    ///
    /// # Errors
    /// What came is not that answer, byte for byte.
    pub fn answer_of<R: Request>(version: i16, frame: Bytes) -> Result<R::Response> {
        decode::<R>(frame, version, 0)
    }

    /// Gives up sending after this time.
    ///
    /// # Errors
    /// The time is zero.
    pub fn write_limit(&mut self, limit: Duration) -> Result<()> {
        self.stream.set_write_timeout(Some(limit)).doing("a time limit")
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection failed.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).doing("sending")
    }

    /// Waits for the answer to the request with this correlation id.
    ///
    /// # Errors
    /// The connection was closed or silent, or what came is not that answer, byte for byte.
    pub fn receive<R: Request>(&mut self, version: i16, correlation_id: i32) -> Result<R::Response> {
        match self.frame(ANSWER_TIMEOUT)? {
            Received::Frame(frame) => decode::<R>(frame, version, correlation_id),
            Received::Closed => failed("the connection was closed"),
            Received::Silence => failed("no answer came"),
        }
    }

    /// The next frame.
    ///
    /// # Errors
    /// The frame is cut short or absurd.
    pub fn frame(&mut self, limit: Duration) -> Result<Received> {
        self.stream
            .set_read_timeout(Some(limit))
            .doing("setting a timeout")?;
        let mut length = [0; 4];
        match self.stream.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Silence),
            Err(error) if is_closed(error.kind()) => return Ok(Received::Closed),
            Err(error) => return Err(error).doing("reading an answer"),
        }
        let length = i32::from_be_bytes(length);
        let size = usize::try_from(length)
            .ok()
            .filter(|&size| size <= ANSWER_BYTES_MAX);
        let Some(size) = size else {
            return failed(format!("an answer of {length} bytes"));
        };
        let mut body = vec![0; size];
        self.stream.read_exact(&mut body).doing("reading an answer")?;
        Ok(Received::Frame(body.into()))
    }
}

/// What a connection says when it was closed in order or reset.
fn is_closed(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

/// A whole frame: length, header, body.
///
/// # Errors
/// The request cannot be encoded in this version.
pub(super) fn encode<R: Request>(version: i16, correlation_id: i32, body: &R) -> Result<Vec<u8>> {
    frame::encode(version, correlation_id, CLIENT_ID, body).map_err(|error| Error::Failed(error.to_string()))
}

/// A frame around any bytes.
pub(super) fn framed(payload: &[u8]) -> Vec<u8> {
    let length = i32::try_from(payload.len()).expect("our frames are below 2 GiB");
    [&length.to_be_bytes(), payload].concat()
}

/// Reads an answer and leaves no byte over.
///
/// # Errors
/// It has another correlation id, cannot be read in this version, or is longer.
pub(super) fn decode<R: Request>(bytes: Bytes, version: i16, correlation_id: i32) -> Result<R::Response> {
    frame::decode::<R>(bytes, version, correlation_id, DecodeLimits::TRUSTED).map_err(Error::Failed)
}
