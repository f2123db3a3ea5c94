//! Fetch sessions and connections: a session goes on wherever its client comes back (FE-25).

use protocol::ErrorCode;
use protocol::messages::fetch::{FetchRequest, FetchResponse};

use crate::stop::{create_topic, fetch_request, produce};
use crate::support::{Broker, Client};

/// Error, session id and record bytes of the next step of a session.
fn step(client: &mut Client, request: &FetchRequest) -> (ErrorCode, i32, usize) {
    let answer: FetchResponse = client.call(request, 11).unwrap();
    let bytes = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|p| p.records.as_ref().map_or(0, |r| r.len()))
        .sum();
    (answer.error_code, answer.session_id, bytes)
}

#[test]
fn a_session_goes_on_over_connections_of_every_shard() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &["penstock.shards=2"]);
    // The shard with the fewest gets the next: two on each.
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(broker.address)).collect();
    create_topic(&mut clients[0], "followed", 1);
    produce(&mut clients[0], "followed", 0, 3).unwrap();
    let full = FetchRequest {
        session_epoch: 0,
        max_wait_ms: 0,
        ..fetch_request("followed", 0, 0)
    };
    let (code, id, bytes) = step(&mut clients[0], &full);
    assert_eq!(code, ErrorCode::NONE);
    assert!(id > 0 && bytes > 0, "{id} {bytes}");

    let next = |session_epoch: i32| FetchRequest {
        session_id: id,
        session_epoch,
        topics: Vec::new(),
        ..full.clone()
    };
    for epoch in 1..=12 {
        let client = &mut clients[epoch as usize % 4];
        assert_eq!(
            step(client, &next(epoch)),
            (ErrorCode::NONE, id, bytes),
            "epoch {epoch}"
        );
    }
    for client in &mut clients {
        let found = step(client, &next(5)).0;
        assert_eq!(found, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    }
    // A full request on any connection closes the session that it names and opens another.
    let anew = FetchRequest {
        session_id: id,
        ..full.clone()
    };
    for client in &mut clients {
        let (code, other, _) = step(client, &anew);
        assert_eq!(code, ErrorCode::NONE);
        assert!(other > 0 && other != id, "{other}");
    }
    for client in &mut clients {
        let found = step(client, &next(13)).0;
        assert_eq!(found, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    }
}
