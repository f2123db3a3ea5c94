//! One connection that asks and waits, for loads of many thousand of them on one thread.

use bytes::BytesMut;
use protocol::frame::split_frame;
use protocol::header::{RequestHeader, ResponseHeader};
use protocol::message::{Message, Request};
use protocol::{Reader, Str, Writer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::{Doing, Result, failed};

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
        let mut writer = Writer::framed(256);
        RequestHeader {
            api_key: R::KEY,
            api_version: version,
            correlation_id: self.correlation,
            client_id: Some(Str::from("group-load")),
        }
        .encode(&mut writer);
        request
            .encode(&mut writer, version)
            .expect("a request of ours can be encoded");
        for chunk in writer.finish().expect("a request of ours fits a frame") {
            self.stream.write_all(&chunk).await.doing("sending a request")?;
        }
        Ok(())
    }

    /// Waits for the answer of the request that was sent last.
    ///
    /// # Errors
    /// The connection is lost, or the answer is not one to the request.
    pub(super) async fn receive<R: Request>(&mut self, version: i16) -> Result<R::Response> {
        let frame = loop {
            match split_frame(&mut self.received, FRAME_BYTES_MAX) {
                Ok(Some(frame)) => break frame,
                Ok(None) => {}
                Err(error) => return failed(error.to_string()),
            }
            let read = self.stream.read_buf(&mut self.received).await;
            if read.doing("reading an answer")? == 0 {
                return failed("the broker closed a connection");
            }
        };
        let mut reader = Reader::new(frame);
        let header = ResponseHeader::decode(&mut reader, R::KEY, version);
        if !header.is_ok_and(|header| header.correlation_id == self.correlation) {
            return failed(format!("another answer than that of {:?}", R::KEY));
        }
        R::Response::decode(&mut reader, version)
            .or_else(|error| failed(format!("an answer of {:?}: {error}", R::KEY)))
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
