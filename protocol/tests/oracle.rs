//! Our codec against the `kafka-protocol` crate, for every message and version that both know: bytes that one of them has
//! encoded are decoded and encoded by the other to the same bytes, in both directions, with fields set, empty and null.

mod common;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use common::schema::Message as Definition;
use common::wire::{FILLS, Fill, Rng, bytes_of};
use common::{generated_messages, say};
use kafka_protocol::protocol::{Decodable, Encodable, Message as TheirMessage};
use protocol::{Message, Reader};

/// How often a random filling is repeated.
const RANDOM_FILLS: u64 = 8;

/// What kafka-protocol 0.18.0 gets wrong; the comparison with Kafka's own classes covers it.
const THEIR_FAULTS: &[(&str, &str)] = &[
    (
        "LeaderChangeMessage",
        "one struct Voter is shared with VotersRecord",
    ),
    (
        "VotersRecord",
        "one struct Voter is shared with LeaderChangeMessage",
    ),
];

#[derive(Default)]
struct Count {
    versions: usize,
    values: usize,
    faults: BTreeMap<String, String>,
}

fn check<Ours: Message, Theirs: TheirMessage + Encodable + Decodable>(
    definitions: &BTreeMap<String, Definition>,
    count: &mut Count,
) {
    let definition = &definitions[Ours::NAME];
    let range = Theirs::VERSIONS;
    for version in Ours::MIN_VERSION.max(range.min)..=Ours::MAX_VERSION.min(range.max) {
        count.versions += 1;
        for fill in FILLS {
            for seed in 0..if fill == Fill::Random { RANDOM_FILLS } else { 1 } {
                let canonical = Bytes::from(bytes_of(definition, version, fill, &mut Rng(seed)));
                match compare::<Ours, Theirs>(canonical, version) {
                    Ok(()) => count.values += 1,
                    Err(why) => {
                        let what = format!("{} v{version}", Ours::NAME);
                        count
                            .faults
                            .entry(what)
                            .or_insert_with(|| format!("{fill:?} {seed}: {why}"));
                    }
                }
            }
        }
    }
}

fn compare<Ours: Message, Theirs: Encodable + Decodable>(
    canonical: Bytes,
    version: i16,
) -> Result<(), String> {
    let by_theirs = through_theirs::<Theirs>(canonical.clone(), version)?;
    let by_ours = through_ours::<Ours>(canonical, version)?;
    let crossed = (
        through_ours::<Ours>(by_theirs.clone(), version)?,
        through_theirs::<Theirs>(by_ours.clone(), version)?,
    );
    if by_ours == by_theirs && crossed == (by_theirs.clone(), by_ours.clone()) {
        Ok(())
    } else {
        Err(format!("\nours   {by_ours:?}\ntheirs {by_theirs:?}"))
    }
}

fn through_ours<T: Message>(bytes: Bytes, version: i16) -> Result<Bytes, String> {
    let mut r = Reader::new(bytes);
    let message = T::decode(&mut r, version).map_err(|e| format!("ours: {e}"))?;
    r.expect_end().map_err(|e| format!("ours: {e}"))?;
    message.to_bytes(version).map_err(|e| format!("ours: {e}"))
}

fn through_theirs<T: Encodable + Decodable>(mut bytes: Bytes, version: i16) -> Result<Bytes, String> {
    let message = T::decode(&mut bytes, version).map_err(|e| format!("theirs: {e}"))?;
    if !bytes.is_empty() {
        return Err(format!("theirs left {} bytes", bytes.len()));
    }
    let mut out = BytesMut::new();
    message
        .encode(&mut out, version)
        .map_err(|e| format!("theirs: {e}"))?;
    Ok(out.freeze())
}

macro_rules! check_all {
    ($($name:ident)*) => {
        #[test]
        fn every_message_that_both_know_is_the_same_on_the_wire() {
            let definitions = generated_messages();
            let mut count = Count::default();
            let names = [$(stringify!($name)),*];
            $(check::<protocol::messages::$name, kafka_protocol::messages::$name>(&definitions, &mut count);)*
            for (name, why) in THEIR_FAULTS {
                let before = count.faults.len();
                count.faults.retain(|what, _| what.split(' ').next() != Some(*name));
                assert!(count.faults.len() < before, "{name} is no fault of theirs any more");
                count.versions -= before - count.faults.len();
                say(&format!("oracle: left out {name}: {why}"));
            }
            say(&format!(
                "oracle: {} messages, {} (message, version) pairs, {} values equal in both directions, {} pairs differ",
                names.len(), count.versions, count.values, count.faults.len()
            ));
            assert!(count.faults.is_empty(), "{:#?}", count.faults);
            assert_eq!(names.len(), 183);
        }
    };
}

check_all! {
    AddOffsetsToTxnRequest AddOffsetsToTxnResponse AddPartitionsToTxnRequest AddPartitionsToTxnResponse
    AddRaftVoterRequest AddRaftVoterResponse AllocateProducerIdsRequest AllocateProducerIdsResponse
    AlterClientQuotasRequest AlterClientQuotasResponse AlterConfigsRequest AlterConfigsResponse
    AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse AlterPartitionRequest
    AlterPartitionResponse AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse
    AlterShareGroupOffsetsRequest AlterShareGroupOffsetsResponse AlterUserScramCredentialsRequest
    AlterUserScramCredentialsResponse ApiVersionsRequest ApiVersionsResponse AssignReplicasToDirsRequest
    AssignReplicasToDirsResponse BeginQuorumEpochRequest BeginQuorumEpochResponse BrokerHeartbeatRequest
    BrokerHeartbeatResponse BrokerRegistrationRequest BrokerRegistrationResponse
    ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse ConsumerGroupHeartbeatRequest
    ConsumerGroupHeartbeatResponse ConsumerProtocolAssignment ConsumerProtocolSubscription
    ControllerRegistrationRequest ControllerRegistrationResponse CreateAclsRequest CreateAclsResponse
    CreateDelegationTokenRequest CreateDelegationTokenResponse CreatePartitionsRequest
    CreatePartitionsResponse CreateTopicsRequest CreateTopicsResponse DefaultPrincipalData DeleteAclsRequest
    DeleteAclsResponse DeleteGroupsRequest DeleteGroupsResponse DeleteRecordsRequest DeleteRecordsResponse
    DeleteShareGroupOffsetsRequest DeleteShareGroupOffsetsResponse DeleteShareGroupStateRequest
    DeleteShareGroupStateResponse DeleteTopicsRequest DeleteTopicsResponse DescribeAclsRequest
    DescribeAclsResponse DescribeClientQuotasRequest DescribeClientQuotasResponse DescribeClusterRequest
    DescribeClusterResponse DescribeConfigsRequest DescribeConfigsResponse DescribeDelegationTokenRequest
    DescribeDelegationTokenResponse DescribeGroupsRequest DescribeGroupsResponse DescribeLogDirsRequest
    DescribeLogDirsResponse DescribeProducersRequest DescribeProducersResponse DescribeQuorumRequest
    DescribeQuorumResponse DescribeShareGroupOffsetsRequest DescribeShareGroupOffsetsResponse
    DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse DescribeTransactionsRequest
    DescribeTransactionsResponse DescribeUserScramCredentialsRequest DescribeUserScramCredentialsResponse
    ElectLeadersRequest ElectLeadersResponse EndQuorumEpochRequest EndQuorumEpochResponse EndTxnMarker
    EndTxnRequest EndTxnResponse EnvelopeRequest EnvelopeResponse ExpireDelegationTokenRequest
    ExpireDelegationTokenResponse FetchRequest FetchResponse FetchSnapshotRequest FetchSnapshotResponse
    FindCoordinatorRequest FindCoordinatorResponse GetTelemetrySubscriptionsRequest
    GetTelemetrySubscriptionsResponse HeartbeatRequest HeartbeatResponse IncrementalAlterConfigsRequest
    IncrementalAlterConfigsResponse InitProducerIdRequest InitProducerIdResponse
    InitializeShareGroupStateRequest InitializeShareGroupStateResponse JoinGroupRequest JoinGroupResponse
    KRaftVersionRecord LeaderChangeMessage LeaveGroupRequest LeaveGroupResponse ListConfigResourcesRequest
    ListConfigResourcesResponse ListGroupsRequest ListGroupsResponse ListOffsetsRequest ListOffsetsResponse
    ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse ListTransactionsRequest
    ListTransactionsResponse MetadataRequest MetadataResponse OffsetCommitRequest OffsetCommitResponse
    OffsetDeleteRequest OffsetDeleteResponse OffsetFetchRequest OffsetFetchResponse
    OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse ProduceRequest ProduceResponse
    PushTelemetryRequest PushTelemetryResponse ReadShareGroupStateRequest ReadShareGroupStateResponse
    ReadShareGroupStateSummaryRequest ReadShareGroupStateSummaryResponse RemoveRaftVoterRequest
    RemoveRaftVoterResponse RenewDelegationTokenRequest RenewDelegationTokenResponse SaslAuthenticateRequest
    SaslAuthenticateResponse SaslHandshakeRequest SaslHandshakeResponse ShareAcknowledgeRequest
    ShareAcknowledgeResponse ShareFetchRequest ShareFetchResponse ShareGroupDescribeRequest
    ShareGroupDescribeResponse ShareGroupHeartbeatRequest ShareGroupHeartbeatResponse SnapshotFooterRecord
    SnapshotHeaderRecord SyncGroupRequest SyncGroupResponse TxnOffsetCommitRequest TxnOffsetCommitResponse
    UnregisterBrokerRequest UnregisterBrokerResponse UpdateFeaturesRequest UpdateFeaturesResponse
    UpdateRaftVoterRequest UpdateRaftVoterResponse VoteRequest VoteResponse VotersRecord
    WriteShareGroupStateRequest WriteShareGroupStateResponse WriteTxnMarkersRequest WriteTxnMarkersResponse
}
