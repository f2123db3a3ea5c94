//! Connect's REST interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::error::Result;
use crate::http::Server;

/// Bytes of an answer that are kept.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends a request with a body of JSON to a port of 127.0.0.1; status and body.
///
/// # Errors
/// Nobody answers there with HTTP.
pub(super) fn ask(port: u16, method: &str, path: &str, body: &str) -> Result<(u16, String)> {
    let server = Server {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        connect_timeout: TIMEOUT,
        read_timeout: TIMEOUT,
        answer_bytes_max: ANSWER_BYTES_MAX,
    };
    server.ask(method, path, Some(body))
}
