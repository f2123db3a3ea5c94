//! The little of HTTP that the admin address of our broker and Connect's REST interface need.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{Doing, Result, failed};

/// A server, and what is waited for and kept of its answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// How long connecting may take.
    pub(crate) connect_timeout: Duration,
    /// How long it may be silent.
    pub(crate) read_timeout: Duration,
    /// Bytes of an answer that are kept.
    pub(crate) answer_bytes_max: u64,
}

impl Server {
    /// Sends a request, with a body of JSON if there is one; status and body of the answer.
    ///
    /// # Errors
    /// Nobody answers there with HTTP.
    pub(crate) fn ask(&self, method: &str, path: &str, json: Option<&str>) -> Result<(u16, String)> {
        let address = self.address;
        let what = format!("{method} http://{address}{path}");
        let mut stream = TcpStream::connect_timeout(&address, self.connect_timeout).doing(&what)?;
        stream.set_read_timeout(Some(self.read_timeout)).doing(&what)?;
        let content = json.map_or_else(String::new, |body| {
            format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            )
        });
        let body = json.unwrap_or_default();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{content}\r\n{body}"
        )
        .doing(&what)?;
        let mut bytes = Vec::new();
        stream
            .take(self.answer_bytes_max)
            .read_to_end(&mut bytes)
            .doing(&what)?;
        let answer = String::from_utf8_lossy(&bytes);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        match head.split(' ').nth(1).and_then(|status| status.parse().ok()) {
            Some(status) => Ok((status, body.to_owned())),
            None => failed(format!("{what} was not answered with HTTP: {head}")),
        }
    }
}
