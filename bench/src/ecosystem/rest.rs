//! The little of HTTP that Connect's REST interface needs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{Doing, Result, failed};

/// Bytes of an answer that are kept.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a request with a body of JSON to a port of 127.0.0.1; status and body.
///
/// # Errors
/// Nobody answers there with HTTP.
pub(super) fn ask(port: u16, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let what = format!("{method} {path} of Connect at {address}");
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT).doing(&what)?;
    stream.set_read_timeout(Some(TIMEOUT)).doing(&what)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .doing(&what)?;
    let mut bytes = Vec::new();
    stream
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut bytes)
        .doing(&what)?;
    let answer = String::from_utf8_lossy(&bytes);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1).and_then(|status| status.parse().ok()) {
        Some(status) => Ok((status, body.to_owned())),
        None => failed(format!("{what} was answered with {head:?}")),
    }
}
