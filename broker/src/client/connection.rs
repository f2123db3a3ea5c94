//! One connection to a broker: connect, agree on versions, one request at a time. Every wait ends with the command's
//! deadline, and no length that a peer claims is believed before it is checked.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use bytes::Bytes;
use protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use protocol::{ApiKey, DecodeLimits, ErrorCode, Request, Str};

use super::error::MAY_STILL_HAPPEN;
use super::frame;
use super::patience::Patience;
use super::{Address, ClientError, Kind};

/// Longest wait for one address to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often progress is told while an answer is waited for.
const TICK: Duration = Duration::from_millis(500);
/// Largest answer that is read, bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Memory that is taken for an answer before its bytes are there, bytes.
const ANSWER_BYTES_AHEAD: usize = 64 << 10;
/// The name of this client in requests.
const CLIENT_ID: &str = "penstock-cli";
/// Decoded answers: 16 times the frame, as for requests of clients, above a floor for small ones.
const LIMITS: DecodeLimits = DecodeLimits {
    base_bytes: 1 << 20,
    factor: 16,
    max_bytes: 1 << 30,
};
/// The version of ApiVersions that is asked first; a broker that does not know it answers in version 0 (KIP-511).
const API_VERSIONS_VERSION: i16 = 3;

/// An open connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    at: Address,
    correlation_id: i32,
    served: BTreeMap<i16, RangeInclusive<i16>>,
}

impl Connection {
    /// Connects and asks what the broker serves.
    pub(super) fn open(at: &Address, patience: &mut Patience) -> Result<Self, ClientError> {
        let stream = connect(at, patience)?;
        let mut connection = Self {
            stream,
            at: at.clone(),
            correlation_id: 0,
            served: BTreeMap::new(),
        };
        let answer = connection.api_versions(patience)?;
        for api in answer.api_keys {
            connection
                .served
                .insert(api.api_key, api.min_version..=api.max_version);
        }
        Ok(connection)
    }

    fn api_versions(&mut self, patience: &mut Patience) -> Result<ApiVersionsResponse, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: Str::from("penstock"),
            client_software_version: Str::from(env!("CARGO_PKG_VERSION")),
        };
        let id = self.send(API_VERSIONS_VERSION, &request, patience)?;
        let frame = self.receive(ApiKey::ApiVersions, patience)?;
        let answer = frame::decode::<ApiVersionsRequest>(frame.clone(), API_VERSIONS_VERSION, id, LIMITS)
            .or_else(|_| frame::decode::<ApiVersionsRequest>(frame, 0, id, LIMITS))
            .map_err(|what| self.not_kafka(&what))?;
        match answer.error_code {
            ErrorCode::NONE => Ok(answer),
            ErrorCode::UNSUPPORTED_VERSION => self.call(0, &ApiVersionsRequest::default(), patience),
            code => Err(ClientError::answer(
                &format!("asking {} for its versions", self.at),
                code,
                None,
            )),
        }
    }

    /// The highest version of `wanted` that the broker serves.
    pub(super) fn version(&self, key: ApiKey, wanted: &RangeInclusive<i16>) -> Result<i16, ClientError> {
        let served = self.served.get(&key.as_i16());
        let version = served.map(|s| *s.end().min(wanted.end()));
        let fits = |v: &i16| wanted.contains(v) && served.is_some_and(|s| s.contains(v));
        version.filter(fits).ok_or_else(|| {
            let said = served.map_or_else(
                || "does not serve it".to_owned(),
                |s| format!("serves {} to {}", s.start(), s.end()),
            );
            let sentence = format!(
                "{key} is needed in version {} to {}, and the broker at {} {said}; it has to be Apache Kafka 3.0 or later, or Penstock",
                wanted.start(),
                wanted.end(),
                self.at
            );
            ClientError::new(Kind::Unserved, sentence)
        })
    }

    /// Sends a request and reads its answer.
    pub(super) fn call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        patience: &mut Patience,
    ) -> Result<R::Response, ClientError> {
        let id = self.send(version, request, patience)?;
        let frame = self.receive(R::KEY, patience)?;
        frame::decode::<R>(frame, version, id, LIMITS).map_err(|what| self.not_kafka(&what))
    }

    fn send<R: Request>(
        &mut self,
        version: i16,
        request: &R,
        patience: &mut Patience,
    ) -> Result<i32, ClientError> {
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = frame::encode(version, self.correlation_id, CLIENT_ID, request)
            .map_err(|e| ClientError::new(Kind::Impossible, format!("the request cannot be written: {e}")))?;
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            let doing = format!("waiting for {} to take {}", self.at, R::KEY);
            let count = self.moved(R::KEY, patience, &doing, |stream, time| {
                stream.set_write_timeout(Some(time))?;
                stream.write(rest)
            })?;
            rest = rest.get(count..).unwrap_or_default();
        }
        Ok(self.correlation_id)
    }

    /// The next frame, without its length.
    fn receive(&mut self, key: ApiKey, patience: &mut Patience) -> Result<Bytes, ClientError> {
        let mut length = [0; 4];
        self.fill(&mut length, key, patience)?;
        let length = i32::from_be_bytes(length);
        let size = usize::try_from(length)
            .ok()
            .filter(|&size| size <= ANSWER_BYTES_MAX);
        let Some(size) = size else {
            return Err(self.not_kafka(&format!(
                "a frame of {length} bytes, where at most {ANSWER_BYTES_MAX} are allowed"
            )));
        };
        let mut body = Vec::new();
        while body.len() < size {
            let from = body.len();
            body.resize(grown(from, size), 0);
            let piece = body.get_mut(from..).expect("it has just grown");
            self.fill(piece, key, patience)?;
        }
        Ok(Bytes::from(body))
    }

    /// Reads exactly so many bytes, within the deadline.
    fn fill(&mut self, mut into: &mut [u8], key: ApiKey, patience: &mut Patience) -> Result<(), ClientError> {
        let doing = format!("waiting for {} to answer {key}", self.at);
        while !into.is_empty() {
            let count = self.moved(key, patience, &doing, |stream, time| {
                stream.set_read_timeout(Some(time))?;
                stream.read(into)
            })?;
            into = into.get_mut(count..).unwrap_or_default();
        }
        Ok(())
    }

    /// How many bytes the first attempt moves that moves some. An attempt gets the time that it may take, so that the
    /// deadline is looked at between any two, however slowly the peer goes on.
    fn moved(
        &mut self,
        key: ApiKey,
        patience: &mut Patience,
        doing: &str,
        mut attempt: impl FnMut(&mut TcpStream, Duration) -> io::Result<usize>,
    ) -> Result<usize, ClientError> {
        loop {
            let left = patience.left().ok_or_else(|| self.late(key))?;
            match attempt(&mut self.stream, left.min(TICK)) {
                Ok(0) => return Err(self.broken(key, "the broker closed the connection")),
                Ok(count) => return Ok(count),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    patience.tick(doing);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.broken(key, &e.to_string())),
            }
        }
    }

    fn not_kafka(&self, what: &str) -> ClientError {
        let sentence = format!(
            "what {} answers is not the Kafka protocol: {what}; name a plaintext Kafka listener with --bootstrap",
            self.at
        );
        ClientError::new(Kind::Protocol, sentence)
    }

    fn broken(&self, key: ApiKey, what: &str) -> ClientError {
        let at = &self.at;
        if repeats(key) {
            ClientError::new(Kind::Broken, format!("no answer to {key} from {at}: {what}"))
        } else {
            let sentence = format!(
                "no answer to {key} from {at}: {what}; it may have been carried out, so look before you repeat it"
            );
            ClientError::new(Kind::Unknown, sentence)
        }
    }

    fn late(&self, key: ApiKey) -> ClientError {
        let again = if repeats(key) {
            "try again later or with a longer --timeout"
        } else {
            MAY_STILL_HAPPEN
        };
        ClientError::new(
            Kind::TimedOut,
            format!("{} did not answer {key} within the time; {again}", self.at),
        )
    }
}

/// Whether a request may be sent again without knowing what became of the first: reading, and writing what is the same twice.
const fn repeats(key: ApiKey) -> bool {
    !matches!(
        key,
        ApiKey::CreateTopics | ApiKey::CreatePartitions | ApiKey::DeleteTopics | ApiKey::DeleteGroups
    )
}

/// The next size of a buffer that is to be filled to `size` bytes: doubled, so that memory follows the bytes that came.
fn grown(from: usize, size: usize) -> usize {
    from.saturating_mul(2).max(ANSWER_BYTES_AHEAD).min(size)
}

fn connect(at: &Address, patience: &mut Patience) -> Result<TcpStream, ClientError> {
    let unreachable = |what: String| {
        let sentence =
            format!("no connection to {at}: {what}; is a broker running there? --bootstrap names another");
        ClientError::new(Kind::Unreachable, sentence)
    };
    let name = at.clone();
    let resolve = move || (name.host.as_str(), name.port).to_socket_addrs();
    let addresses = beside(patience, &format!("resolving {at}"), resolve)?;
    let addresses: Vec<SocketAddr> = addresses.map_err(|e| unreachable(e.to_string()))?.collect();
    let mut why = "the name has no address".to_owned();
    for address in addresses {
        let Some(left) = patience.left() else {
            why = "the time is over".to_owned();
            break;
        };
        match TcpStream::connect_timeout(&address, left.min(CONNECT_TIMEOUT)) {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(|e| unreachable(e.to_string()))?;
                return Ok(stream);
            }
            Err(e) => why = e.to_string(),
        }
    }
    Err(unreachable(why))
}

/// Does on a thread what takes no timeout, as the system's resolver. A thread that is late is left behind: the process ends
/// soon.
fn beside<T: Send + 'static>(
    patience: &mut Patience,
    doing: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ClientError> {
    let (sender, done) = channel();
    std::thread::spawn(move || {
        // Whoever has given up does not listen.
        let _ = sender.send(call());
    });
    while let Some(left) = patience.left() {
        match done.recv_timeout(left.min(TICK)) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Timeout) => patience.tick(doing),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let sentence = format!("{doing}: not done within the time; try again later or with a longer --timeout");
    Err(ClientError::new(Kind::TimedOut, sentence))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_resolver_that_hangs_is_given_up() {
        let (hold, held) = channel::<()>();
        let began = Instant::now();
        let mut patience = Patience::new(Duration::from_millis(200), |_| {});
        let error = beside(&mut patience, "resolving x", move || held.recv()).unwrap_err();
        assert_eq!(error.kind, Kind::TimedOut, "{error:?}");
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        drop(hold);
        let mut patience = Patience::new(Duration::from_secs(20), |_| {});
        assert_eq!(beside(&mut patience, "adding", || 1 + 1), Ok(2));
    }

    #[test]
    fn memory_for_an_answer_follows_its_bytes() {
        let sizes = |size| {
            let next = move |&from: &usize| (from < size).then(|| grown(from, size));
            std::iter::successors(Some(0), next).skip(1).collect::<Vec<_>>()
        };
        assert_eq!(sizes(0).len(), 0);
        assert_eq!(sizes(100), [100]);
        assert_eq!(sizes(150_000), [65_536, 131_072, 150_000]);
        assert_eq!(sizes(ANSWER_BYTES_MAX).len(), 11);
    }
}
