//! Admin APIs that belong to issues to come: what Apache Kafka says to one broker's clients, recorded for whoever serves them.
//! Ours closes the connection, as on every key that it does not list (CN-4), but for reassignments, which it answers.

use bytes::Bytes;
use protocol::message::Request;
use protocol::messages::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntityData, AlterClientQuotasRequestEntryData, OpData,
};
use protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use protocol::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use protocol::messages::describe_user_scram_credentials::DescribeUserScramCredentialsRequest;
use protocol::messages::elect_leaders::{ElectLeadersRequest, ElectLeadersRequestTopicPartitions};
use protocol::messages::list_partition_reassignments::ListPartitionReassignmentsRequest;
use protocol::messages::remove_raft_voter::RemoveRaftVoterRequest;
use protocol::messages::unregister_broker::UnregisterBrokerRequest;
use protocol::messages::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};
use protocol::{Str, Uuid};

use super::super::Case;
use super::super::dialogue::Dialogue;
use super::super::target::Setup;
use crate::error::Result;

/// What is altered here must not reach other cases.
static UNSERVED: Setup = Setup {
    name: "unserved",
    overrides: &[],
    restarts: false,
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "AD-13 replicas reassigned where there is one broker",
        reassignments,
    )
    .on(&UNSERVED),
    Case::new("AD-15 leaders elected where there is one broker", elections)
        .on(&UNSERVED)
        .differs("not listed by ApiVersions and not served before there are several brokers"),
    Case::new("AD-16 client quotas that can and cannot be", quotas)
        .on(&UNSERVED)
        .differs("not listed by ApiVersions and not served before there are quotas"),
    Case::new("AD-17 SCRAM credentials that can and cannot be", scram)
        .on(&UNSERVED)
        .differs("not listed by ApiVersions and not served before there is SASL"),
    Case::new("AD-19 features, brokers and voters changed by clients", cluster)
        .on(&UNSERVED)
        .differs("not listed by ApiVersions and not served before there are several brokers"),
];

/// As [`Dialogue::ask`]; a connection that is closed instead of an answer does not end the case.
fn tried<R: Request>(d: &mut Dialogue<'_>, label: &str, version: i16, request: &R) -> Result<()>
where
    R::Response: 'static,
{
    d.note(&format!("> {} v{version}: {label}", R::KEY));
    match d.quiet(version, request) {
        Ok(answer) => d.answered(&answer),
        Err(error) => d.note(&format!("< {error}")),
    }
    Ok(())
}

fn reassignments(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let nowhere = d.name("nowhere");
    for version in [0, 1] {
        for (label, name, partition_index, replicas) in [
            ("cancelled, none is going on", &topic.name, 0, None),
            ("to where it is", &topic.name, 0, Some(vec![1])),
            ("to a broker that is not there", &topic.name, 0, Some(vec![7])),
            ("to one broker twice", &topic.name, 0, Some(vec![1, 1])),
            ("to no broker", &topic.name, 0, Some(vec![])),
            ("an unknown partition", &topic.name, 9, Some(vec![1])),
            ("an unknown topic", &nowhere, 0, Some(vec![1])),
        ] {
            let request = AlterPartitionReassignmentsRequest {
                timeout_ms: 10_000,
                topics: vec![ReassignableTopic {
                    name: name.clone(),
                    partitions: vec![ReassignablePartition {
                        partition_index,
                        replicas,
                    }],
                }],
                ..Default::default()
            };
            tried(d, label, version, &request)?;
        }
    }
    let list = ListPartitionReassignmentsRequest {
        timeout_ms: 10_000,
        topics: None,
    };
    tried(d, "all", 0, &list)
}

fn elections(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let nowhere = d.name("nowhere");
    for version in 0..=2 {
        for (kind, election_type) in [("preferred", 0), ("unclean", 1)] {
            for (label, name, partitions) in [
                ("who leads", &topic.name, vec![0, 1]),
                ("an unknown partition", &topic.name, vec![9]),
                ("an unknown topic", &nowhere, vec![0]),
            ] {
                if version == 0 && election_type == 1 {
                    continue;
                }
                let request = ElectLeadersRequest {
                    election_type,
                    topic_partitions: Some(vec![ElectLeadersRequestTopicPartitions {
                        topic: name.clone(),
                        partitions,
                    }]),
                    timeout_ms: 10_000,
                };
                tried(d, &format!("{kind}, {label}"), version, &request)?;
            }
        }
        let all = ElectLeadersRequest {
            election_type: 0,
            topic_partitions: None,
            timeout_ms: 10_000,
        };
        d.note(&format!(
            "> ElectLeaders v{version}: all partitions, of which one topic is shown"
        ));
        match d.quiet(version, &all) {
            Ok(mut answer) => {
                answer
                    .replica_election_results
                    .retain(|one| one.topic == topic.name);
                d.answered(&answer);
            }
            Err(error) => d.note(&format!("< {error}")),
        }
    }
    Ok(())
}

fn quotas(d: &mut Dialogue<'_>) -> Result<()> {
    type Entity = &'static [(&'static str, Option<&'static str>)];
    let cases: [(Entity, &str, f64); 12] = [
        (&[("user", Some("u"))], "producer_byte_rate", 1000.0),
        (&[("client-id", None)], "consumer_byte_rate", 1000.0),
        (
            &[("user", Some("u")), ("client-id", Some("c"))],
            "request_percentage",
            50.0,
        ),
        (&[("user", None)], "controller_mutation_rate", 10.0),
        (&[("ip", Some("127.0.0.9"))], "connection_creation_rate", 5.0),
        (&[("ip", Some("127.0.0.9"))], "producer_byte_rate", 5.0),
        (&[("user", Some("u"))], "connection_creation_rate", 5.0),
        (&[("user", Some("u"))], "producer_byte_rate", 0.0),
        (&[("user", Some("u"))], "producer_byte_rate", -1.0),
        (&[("user", Some("u"))], "no_such_key", 5.0),
        (&[("shoe", Some("u"))], "producer_byte_rate", 5.0),
        (&[], "producer_byte_rate", 5.0),
    ];
    for version in [0, 1] {
        for (entity, key, value) in cases {
            let request = AlterClientQuotasRequest {
                entries: vec![AlterClientQuotasRequestEntryData {
                    entity: entity
                        .iter()
                        .map(|(kind, name)| AlterClientQuotasRequestEntityData {
                            entity_type: Str::from_static(kind),
                            entity_name: name.map(Str::from_static),
                        })
                        .collect(),
                    ops: vec![OpData {
                        key: Str::from(key.to_owned()),
                        value,
                        remove: false,
                    }],
                }],
                validate_only: true,
            };
            tried(d, &format!("{entity:?} {key}={value}"), version, &request)?;
        }
    }
    Ok(())
}

fn scram(d: &mut Dialogue<'_>) -> Result<()> {
    let put = |name: &'static str, mechanism, iterations| ScramCredentialUpsertion {
        name: Str::from_static(name),
        mechanism,
        iterations,
        salt: Bytes::from_static(b"salt"),
        salted_password: Bytes::from_static(b"01234567890123456789012345678901"),
    };
    for (label, upsertions, deletions) in [
        ("SHA-256", vec![put("a", 1, 4096)], vec![]),
        ("SHA-512", vec![put("a", 2, 16_384)], vec![]),
        ("too few iterations", vec![put("b", 1, 4095)], vec![]),
        ("too many iterations", vec![put("b", 1, 16_385)], vec![]),
        ("a mechanism that does not exist", vec![put("b", 3, 4096)], vec![]),
        ("nobody's name", vec![put("", 1, 4096)], vec![]),
        ("a user twice", vec![put("c", 1, 4096), put("c", 1, 8192)], vec![]),
        ("removed", vec![], vec![("a", 1)]),
        ("removed again", vec![], vec![("a", 1)]),
        ("a user who is not there", vec![], vec![("nobody", 2)]),
    ] {
        let request = AlterUserScramCredentialsRequest {
            upsertions,
            deletions: deletions
                .into_iter()
                .map(|(name, mechanism)| ScramCredentialDeletion {
                    name: Str::from_static(name),
                    mechanism,
                })
                .collect(),
        };
        tried(d, label, 0, &request)?;
    }
    let all = DescribeUserScramCredentialsRequest { users: None };
    tried(d, "all users", 0, &all)
}

fn cluster(d: &mut Dialogue<'_>) -> Result<()> {
    for version in 0..=2 {
        for (label, feature, max_version_level) in [
            ("a feature that does not exist", "no.such.feature", 1),
            ("a level that does not exist", "metadata.version", 999),
        ] {
            let request = UpdateFeaturesRequest {
                timeout_ms: 10_000,
                feature_updates: vec![FeatureUpdateKey {
                    feature: Str::from_static(feature),
                    max_version_level,
                    upgrade_type: 1,
                    ..Default::default()
                }],
                validate_only: version > 0,
            };
            tried(d, label, version, &request)?;
        }
    }
    let unknown = UnregisterBrokerRequest { broker_id: 99 };
    tried(d, "a broker that is not there", 0, &unknown)?;
    let voter = RemoveRaftVoterRequest {
        voter_id: 99,
        voter_directory_id: Uuid::ONE,
        ..Default::default()
    };
    tried(d, "a voter that is not there", 0, &voter)
}
