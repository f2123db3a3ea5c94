//! The client against a scripted broker: what is repeated, what is not, and that the time is kept.

mod changes;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::header::{RequestHeader, ResponseHeader};
use protocol::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use protocol::messages::find_coordinator::{FindCoordinatorResponse, FindCoordinatorResponseCoordinator};
use protocol::messages::list_groups::ListGroupsResponse;
use protocol::messages::metadata::{MetadataResponse, MetadataResponseBroker};
use protocol::messages::offset_fetch::{OffsetFetchResponse, OffsetFetchResponseGroup};
use protocol::{ApiKey, ErrorCode, Reader, Response, Str, Writer};

use super::{Address, Client, Kind};

/// What the broker does with a request.
enum Reply {
    /// Sends this.
    Body(Bytes),
    /// Sends this and reads nothing more.
    LastBody(Bytes),
    /// Closes the connection.
    Close,
    /// Says nothing more.
    Silence,
}

/// A broker that serves these APIs up to these versions and replies to the n-th request (ApiVersions not counted) as told.
/// Its address, and the keys and versions of what it got.
fn broker(
    served: &'static [(ApiKey, i16, i16)],
    reply: impl FnMut(usize, &RequestHeader, u16) -> Reply + Send + 'static,
) -> (Address, Receiver<(ApiKey, i16)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let (got, seen) = channel();
    let script = Arc::new(Mutex::new((0, reply)));
    // The threads end with the test process.
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (script, got) = (Arc::clone(&script), got.clone());
            std::thread::spawn(move || {
                serve(stream, served, |header| {
                    let _ = got.send((header.api_key, header.api_version));
                    let mut script = script.lock().expect("no reply panics");
                    script.0 += 1;
                    let count = script.0 - 1;
                    (script.1)(count, header, port)
                });
            });
        }
    });
    let host = "127.0.0.1".to_owned();
    (Address { host, port }, seen)
}

fn serve(
    mut stream: TcpStream,
    served: &[(ApiKey, i16, i16)],
    mut reply: impl FnMut(&RequestHeader) -> Reply,
) {
    while let Some(header) = next_request(&mut stream) {
        let reply = if header.api_key == ApiKey::ApiVersions {
            Reply::Body(body(header.api_version, &versions(served)))
        } else {
            reply(&header)
        };
        match reply {
            Reply::Body(body) => send(&mut stream, &header, &body),
            Reply::LastBody(body) => {
                send(&mut stream, &header, &body);
                // Until the test process ends.
                loop {
                    std::thread::park();
                }
            }
            Reply::Close => return,
            // Until the client has enough.
            Reply::Silence => {}
        }
    }
}

fn next_request(stream: &mut TcpStream) -> Option<RequestHeader> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).ok()?;
    let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).ok()?];
    stream.read_exact(&mut frame).ok()?;
    RequestHeader::decode(&mut Reader::new(frame.into())).ok()
}

fn body<R: Response>(version: i16, response: &R) -> Bytes {
    response.to_bytes(version).expect("it can be written")
}

fn send(stream: &mut TcpStream, header: &RequestHeader, body: &Bytes) {
    let mut writer = Writer::new();
    let correlation_id = header.correlation_id;
    ResponseHeader { correlation_id }.encode(&mut writer, header.api_key, header.api_version);
    let head = writer.into_bytes().expect("a header is short");
    let length = i32::try_from(head.len() + body.len()).expect("it is short");
    let _ = stream.write_all(&[&length.to_be_bytes(), &head[..], &body[..]].concat());
}

fn versions(served: &[(ApiKey, i16, i16)]) -> ApiVersionsResponse {
    let api = |&(key, min_version, max_version): &(ApiKey, i16, i16)| ApiVersion {
        api_key: key.as_i16(),
        min_version,
        max_version,
    };
    ApiVersionsResponse {
        api_keys: served.iter().map(api).collect(),
        ..ApiVersionsResponse::default()
    }
}

/// Metadata with these brokers, one of them the controller.
fn metadata(version: i16, brokers: &[(i32, u16)], controller_id: i32) -> Bytes {
    let broker = |&(node_id, port): &(i32, u16)| MetadataResponseBroker {
        node_id,
        host: Str::from("127.0.0.1"),
        port: i32::from(port),
        rack: None,
    };
    let brokers = brokers.iter().map(broker).collect();
    let response = MetadataResponse {
        brokers,
        controller_id,
        ..Default::default()
    };
    body(version, &response)
}

fn coordinator(version: i16, port: u16, error_code: ErrorCode) -> Reply {
    let coordinator = FindCoordinatorResponseCoordinator {
        key: Str::from("g"),
        node_id: 3,
        host: Str::from("127.0.0.1"),
        port: i32::from(port),
        error_code,
        ..Default::default()
    };
    let coordinators = vec![coordinator];
    Reply::Body(body(
        version,
        &FindCoordinatorResponse {
            coordinators,
            ..Default::default()
        },
    ))
}

fn client(address: Address, timeout_ms: u64) -> Client {
    Client::new(vec![address], Duration::from_millis(timeout_ms), |_| {})
}

const FIND: &[(ApiKey, i16, i16)] = &[(ApiKey::FindCoordinator, 0, 4)];

#[test]
fn a_coordinator_that_loads_is_asked_again_in_the_highest_version_that_both_know() {
    let (address, seen) = broker(FIND, |n, header, port| {
        let code = if n < 2 {
            ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
        } else {
            ErrorCode::NONE
        };
        coordinator(header.api_version, port, code)
    });
    assert_eq!(client(address, 20_000).coordinator("g"), Ok(3));
    assert_eq!(
        seen.try_iter().collect::<Vec<_>>(),
        [(ApiKey::FindCoordinator, 4); 3]
    );
}

#[test]
fn what_does_not_pass_within_the_time_is_given_up() {
    let (address, _) = broker(FIND, |_, header, port| {
        coordinator(header.api_version, port, ErrorCode::COORDINATOR_NOT_AVAILABLE)
    });
    let began = Instant::now();
    let error = client(address, 300).coordinator("g").unwrap_err();
    assert_eq!(error.kind, Kind::TimedOut, "{error:?}");
    assert!(error.sentence.contains("COORDINATOR_NOT_AVAILABLE"), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn a_broker_that_says_nothing_is_given_up() {
    let (address, _) = broker(FIND, |_, _, _| Reply::Silence);
    let began = Instant::now();
    let error = client(address, 300).coordinator("g").unwrap_err();
    assert_eq!(error.kind, Kind::TimedOut, "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn an_old_broker_is_refused_with_what_it_serves() {
    let (address, _) = broker(&[(ApiKey::FindCoordinator, 0, 3)], |_, _, _| Reply::Silence);
    let error = client(address, 20_000).coordinator("g").unwrap_err();
    assert_eq!(error.kind, Kind::Unserved);
    assert!(
        error.sentence.contains("4 to 6") && error.sentence.contains("serves 0 to 3"),
        "{error:?}"
    );
}

#[test]
fn a_question_whose_answer_is_lost_is_asked_again() {
    let served = &[(ApiKey::Metadata, 0, 9), (ApiKey::ListGroups, 0, 3)];
    let (address, seen) = broker(served, |n, header, port| match header.api_key {
        ApiKey::Metadata => Reply::Body(metadata(header.api_version, &[(1, port)], -1)),
        _ if n < 2 => Reply::Close,
        _ => Reply::Body(body(header.api_version, &ListGroupsResponse::default())),
    });
    assert_eq!(client(address, 20_000).groups(&[], &[]), Ok(Vec::new()));
    let keys: Vec<_> = seen.try_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [ApiKey::Metadata, ApiKey::ListGroups, ApiKey::ListGroups]);
}

#[test]
fn an_answer_about_another_group_is_not_taken_for_nothing_committed() {
    let served = &[(ApiKey::FindCoordinator, 0, 6), (ApiKey::OffsetFetch, 1, 10)];
    let (address, seen) = broker(served, |_, header, port| match header.api_key {
        ApiKey::FindCoordinator => coordinator(header.api_version, port, ErrorCode::NONE),
        _ => {
            let group = OffsetFetchResponseGroup {
                group_id: Str::from("other"),
                ..Default::default()
            };
            let groups = vec![group];
            Reply::Body(body(
                header.api_version,
                &OffsetFetchResponse {
                    groups,
                    ..Default::default()
                },
            ))
        }
    });
    let error = client(address, 20_000).committed("g").unwrap_err();
    assert_eq!(error.kind, Kind::Protocol);
    assert_eq!(seen.try_iter().last(), Some((ApiKey::OffsetFetch, 9)));
}

#[test]
fn addresses_as_kafka_tools_take_them() {
    let of = |text: &str| Address::parse(text).map(|a| a.to_string());
    assert_eq!(of("broker:9093").as_deref(), Some("broker:9093"));
    assert_eq!(of("broker").as_deref(), Some("broker:9092"));
    assert_eq!(of("[::1]:9092").as_deref(), Some("[::1]:9092"));
    assert_eq!(of("[::1]").as_deref(), Some("[::1]:9092"));
    for wrong in [
        "",
        ":9092",
        "broker:",
        "broker:0",
        "broker:70000",
        "::1",
        "[::1",
        "[]:1",
    ] {
        assert_eq!(of(wrong), None, "{wrong}");
    }
}
