//! Frames of requests and answers as a client writes and reads them, without I/O. Answers are read strictly: the right
//! correlation id, and no byte left over.

use bytes::Bytes;
use protocol::header::{RequestHeader, ResponseHeader};
use protocol::message::{Message, Request};
use protocol::{DecodeLimits, EncodeError, Reader, Str, Writer};

/// A whole frame: length, header, body.
///
/// # Errors
/// The request cannot be written in this version.
pub fn encode<R: Request>(
    version: i16,
    correlation_id: i32,
    client_id: &'static str,
    request: &R,
) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::framed(256);
    RequestHeader {
        api_key: R::KEY,
        api_version: version,
        correlation_id,
        client_id: Some(Str::from(client_id)),
    }
    .encode(&mut writer);
    request.encode(&mut writer, version)?;
    Ok(writer.finish()?.concat())
}

/// Reads an answer and leaves no byte over.
///
/// # Errors
/// What is wrong with it: another correlation id, bytes that are not the answer in this version, bytes left over.
pub fn decode<R: Request>(
    frame: Bytes,
    version: i16,
    correlation_id: i32,
    limits: DecodeLimits,
) -> Result<R::Response, String> {
    let mut reader = Reader::with_limits(frame, limits);
    let header = ResponseHeader::decode(&mut reader, R::KEY, version).map_err(|e| e.to_string())?;
    if header.correlation_id != correlation_id {
        return Err(format!(
            "correlation id {} came for {correlation_id}",
            header.correlation_id
        ));
    }
    let body = R::Response::decode(&mut reader, version).and_then(|body| reader.expect_end().map(|()| body));
    body.map_err(|e| e.to_string())
}
