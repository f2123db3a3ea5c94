//! Changes: to whom they go, and when they are made again.

use protocol::messages::create_partitions::{CreatePartitionsResponse, CreatePartitionsTopicResult};
use protocol::messages::create_topics::{CreatableTopicResult, CreateTopicsResponse};
use protocol::messages::delete_groups::{DeletableGroupResult, DeleteGroupsResponse};
use protocol::messages::delete_topics::{DeletableTopicResult, DeleteTopicsResponse};
use protocol::messages::metadata::MetadataResponseTopic;

use super::*;
use crate::client::{ClientError, NewTopic};

const SERVED: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Metadata, 0, 13),
    (ApiKey::CreateTopics, 2, 7),
    (ApiKey::DeleteTopics, 1, 6),
    (ApiKey::CreatePartitions, 0, 3),
    (ApiKey::FindCoordinator, 0, 6),
    (ApiKey::DeleteGroups, 0, 2),
];

/// The answer to a change of topic `t`: this code.
fn changed(header: &RequestHeader, error_code: ErrorCode) -> Reply {
    let (version, name) = (header.api_version, Str::from("t"));
    Reply::Body(match header.api_key {
        ApiKey::CreateTopics => {
            let topics = vec![CreatableTopicResult {
                name,
                error_code,
                ..Default::default()
            }];
            body(
                version,
                &CreateTopicsResponse {
                    topics,
                    ..Default::default()
                },
            )
        }
        ApiKey::DeleteTopics => {
            let responses = vec![DeletableTopicResult {
                name: Some(name),
                error_code,
                ..Default::default()
            }];
            body(
                version,
                &DeleteTopicsResponse {
                    responses,
                    ..Default::default()
                },
            )
        }
        _ => {
            let results = vec![CreatePartitionsTopicResult {
                name,
                error_code,
                ..Default::default()
            }];
            body(
                version,
                &CreatePartitionsResponse {
                    results,
                    ..Default::default()
                },
            )
        }
    })
}

/// A broker without a controller, whose changes of topics end so.
fn changing(reply: impl Fn(&RequestHeader) -> Reply + Send + 'static) -> (Address, Receiver<(ApiKey, i16)>) {
    broker(SERVED, move |_, header, port| match header.api_key {
        ApiKey::Metadata => Reply::Body(metadata(header.api_version, &[(1, port)], -1)),
        _ => reply(header),
    })
}

fn topic(configs: Vec<(String, String)>) -> [NewTopic; 1] {
    [NewTopic {
        name: "t".to_owned(),
        partitions: 1,
        replication_factor: 1,
        configs,
    }]
}

fn create(client: &mut Client) -> Result<(), ClientError> {
    client.create_topics(&topic(Vec::new()))?.remove(0).1
}

fn count(seen: &Receiver<(ApiKey, i16)>, key: ApiKey) -> usize {
    seen.try_iter().filter(|(of, _)| *of == key).count()
}

#[test]
fn changes_of_topics_go_to_the_controller_also_when_it_is_another_meanwhile() {
    let (second, at_second) = broker(SERVED, |_, header, _| match header.api_key {
        // It is no seed, so nothing else is asked of it.
        ApiKey::Metadata => Reply::Close,
        _ => changed(header, ErrorCode::NONE),
    });
    let port = second.port;
    // The first metadata name the first broker, which is the controller no more.
    let (first, at_first) = broker(SERVED, move |n, header, own| match header.api_key {
        ApiKey::Metadata => {
            let controller = if n == 0 { 1 } else { 2 };
            Reply::Body(metadata(header.api_version, &[(1, own), (2, port)], controller))
        }
        _ => changed(header, ErrorCode::NOT_CONTROLLER),
    });
    let mut client = client(first, 20_000);
    assert_eq!(create(&mut client), Ok(()));
    assert_eq!(client.add_partitions("t", 3), Ok(()));
    let deleted = client.delete_topics(&["t".to_owned()]);
    assert_eq!(deleted, Ok(vec![("t".to_owned(), Ok(()))]));
    let changes = |seen: Receiver<(ApiKey, i16)>| {
        let keys = seen.try_iter().map(|(key, _)| key);
        keys.filter(|key| *key != ApiKey::Metadata).collect::<Vec<_>>()
    };
    assert_eq!(changes(at_first), [ApiKey::CreateTopics]);
    let all = [
        ApiKey::CreateTopics,
        ApiKey::CreatePartitions,
        ApiKey::DeleteTopics,
    ];
    assert_eq!(changes(at_second), all);
}

#[test]
fn a_change_whose_answer_is_lost_is_not_repeated() {
    let (address, seen) = changing(|_| Reply::Close);
    let error = create(&mut client(address, 20_000)).unwrap_err();
    assert_eq!(error.kind, Kind::Unknown);
    assert!(error.sentence.contains("may have been carried out"), "{error:?}");
    assert_eq!(count(&seen, ApiKey::CreateTopics), 1);
}

#[test]
fn a_change_that_may_still_be_made_is_not_repeated() {
    let (address, seen) = changing(|header| changed(header, ErrorCode::REQUEST_TIMED_OUT));
    let mut client = client(address, 20_000);
    for outcome in [client.add_partitions("t", 3), create(&mut client)] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind, Kind::TimedOut);
        assert!(error.sentence.contains("'t'"), "{error:?}");
        assert!(error.sentence.contains("may still be carried out"), "{error:?}");
    }
    let keys: Vec<_> = seen.try_iter().map(|(key, _)| key).collect();
    assert_eq!(keys.iter().filter(|&&k| k == ApiKey::CreatePartitions).count(), 1);
    assert_eq!(keys.iter().filter(|&&k| k == ApiKey::CreateTopics).count(), 1);
}

#[test]
fn what_an_answer_leaves_out_is_not_taken_for_done() {
    let (address, _) =
        changing(|header| Reply::Body(body(header.api_version, &CreateTopicsResponse::default())));
    let error = create(&mut client(address, 20_000)).unwrap_err();
    assert_eq!(error.kind, Kind::Protocol);
}

#[test]
fn a_broker_that_reads_nothing_is_given_up_in_time() {
    let (address, _) = broker(SERVED, |_, header, port| {
        Reply::LastBody(metadata(header.api_version, &[(1, port)], -1))
    });
    // More than the buffers of a connection take.
    let long = vec![("k".to_owned(), "v".repeat(32_000)); 1500];
    let began = Instant::now();
    let error = client(address, 1500).create_topics(&topic(long)).unwrap_err();
    assert_eq!(error.kind, Kind::TimedOut, "{}", error.sentence);
    assert!(error.sentence.contains("may still be carried out"), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

/// Deletes a group whose coordinator answers with these codes, one after the other.
fn deleted(codes: &'static [ErrorCode]) -> Result<(), ClientError> {
    let mut codes = codes.iter();
    let (address, _) = broker(SERVED, move |_, header, port| match header.api_key {
        ApiKey::FindCoordinator => coordinator(header.api_version, port, ErrorCode::NONE),
        _ => {
            let results = vec![DeletableGroupResult {
                group_id: Str::from("g"),
                error_code: *codes.next().expect("no more is asked"),
            }];
            Reply::Body(body(
                header.api_version,
                &DeleteGroupsResponse {
                    results,
                    ..Default::default()
                },
            ))
        }
    });
    client(address, 20_000).delete_group("g")
}

#[test]
fn a_group_that_is_not_there_is_never_told_as_deleted() {
    const GONE: ErrorCode = ErrorCode::GROUP_ID_NOT_FOUND;
    assert_eq!(deleted(&[ErrorCode::NOT_COORDINATOR, ErrorCode::NONE]), Ok(()));
    assert_eq!(
        deleted(&[ErrorCode::COORDINATOR_NOT_AVAILABLE, ErrorCode::NONE]),
        Ok(())
    );
    // A mistyped name looks the same as a group that the attempt before has deleted: both are told.
    let cases: [(&'static [ErrorCode], bool); 5] = [
        (&[GONE], false),
        (&[ErrorCode::COORDINATOR_LOAD_IN_PROGRESS, GONE], false),
        (&[ErrorCode::NOT_COORDINATOR, GONE], true),
        (&[ErrorCode::COORDINATOR_NOT_AVAILABLE, GONE], true),
        (&[ErrorCode::REQUEST_TIMED_OUT, GONE], true),
    ];
    for (codes, may_be_deleted) in cases {
        let error = deleted(codes).unwrap_err();
        assert_eq!(error.kind, Kind::Answer(GONE), "{codes:?}");
        assert_eq!(
            error.sentence.contains("may have deleted it"),
            may_be_deleted,
            "{}",
            error.sentence
        );
    }
}

#[test]
fn a_name_that_can_be_none_does_not_hide_the_other_topics() {
    let (address, seen) = broker(SERVED, |n, header, _| {
        let topic = |name: &'static str, error_code| MetadataResponseTopic {
            name: Some(Str::from(name)),
            error_code,
            ..Default::default()
        };
        let passing = if n == 0 {
            ErrorCode::LEADER_NOT_AVAILABLE
        } else {
            ErrorCode::NONE
        };
        let topics = vec![
            topic("t", passing),
            topic("a/b", ErrorCode::INVALID_TOPIC_EXCEPTION),
            topic("hidden", ErrorCode::TOPIC_AUTHORIZATION_FAILED),
            topic("gone", ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ];
        Reply::Body(body(
            header.api_version,
            &MetadataResponse {
                topics,
                ..Default::default()
            },
        ))
    });
    let names = ["t", "a/b", "hidden", "gone"].map(str::to_owned);
    let mut client = client(address, 20_000);
    let known = client.known_topics(&names).expect("one is there");
    assert_eq!(known.into_keys().collect::<Vec<_>>(), ["t"]);
    // What may pass was waited for.
    assert_eq!(count(&seen, ApiKey::Metadata), 2);
    let error = client.topics(Some(&names)).unwrap_err();
    assert_eq!(error.kind, Kind::Answer(ErrorCode::INVALID_TOPIC_EXCEPTION));
}
