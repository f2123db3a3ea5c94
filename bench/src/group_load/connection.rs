//! One connection that asks and waits, for loads of many thousand of them on one thread.

use std::time::Duration;

use broker::client::frame;
use bytes::{Bytes, BytesMut};
use protocol::DecodeLimits;
use protocol::frame::split_frame;
use protocol::message::Request;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Doing, Error, Result, failed};

/// Longest wait for an answer: longer than the group's members may take to join again.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(330);
/// The largest answer, in bytes; that of a leader's join holds the metadata of all members.
const FRAME_BYTES_MAX: usize = 16 << 20;

/// A connection to the broker.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    received: BytesMut,
    correlation: i32,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// The system's.
    pub(super) async fn open(bootstrap: &str) -> Result<Self> {
        let stream = TcpStream::connect(bootstrap).await.doing(bootstrap)?;
        stream.set_nodelay(true).doing(bootstrap)?;
        Ok(Self {
            stream,
            received: BytesMut::new(),
            correlation: 0,
        })
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) async fn send<R: Request>(&mut self, request: &R, version: i16) -> Result<()> {
        self.correlation = self.correlation.wrapping_add(1);
        let frame = frame::encode(version, self.correlation, "group-load", request)
            .expect("a request of ours can be encoded");
        self.stream.write_all(&frame).await.doing("sending a request")
    }

    /// Waits for the answer of the request that was sent last.
    ///
    /// # Errors
    /// The connection is lost, nothing comes in time, or the answer is not one to the request.
    pub(super) async fn receive<R: Request>(&mut self, version: i16) -> Result<R::Response> {
        let frame = tokio::time::timeout(ANSWER_TIMEOUT, self.frame());
        let frame = frame
            .await
            .unwrap_or_else(|_| failed(format!("no answer of {:?} within {ANSWER_TIMEOUT:?}", R::KEY)))?;
        frame::decode::<R>(frame, version, self.correlation, DecodeLimits::TRUSTED)
            .map_err(|error| Error::Failed(format!("an answer of {:?}: {error}", R::KEY)))
    }

    /// The next frame.
    async fn frame(&mut self) -> Result<Bytes> {
        loop {
            match split_frame(&mut self.received, FRAME_BYTES_MAX) {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(error) => return failed(error.to_string()),
            }
            let read = self.stream.read_buf(&mut self.received).await;
            if read.doing("reading an answer")? == 0 {
                return failed("the broker closed a connection");
            }
        }
    }

    /// Asks and waits for the answer.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::receive`].
    pub(super) async fn call<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response> {
        self.send(request, version).await?;
        self.receive::<R>(version).await
    }
}
