//! Which APIs this broker serves, in which versions: what ApiVersions answers from and what dispatch accepts.

use protocol::ApiKey;

/// One served API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The key.
    pub key: ApiKey,
    /// Lowest version accepted.
    pub min: i16,
    /// Highest version accepted.
    pub max: i16,
    /// Lowest version advertised. Produce is advertised from 0 though 0–2 are refused: librdkafka drops compression
    /// otherwise (KAFKA-18659).
    pub advertised_min: i16,
}

const fn all(key: ApiKey, min: i16, max: i16) -> Served {
    Served {
        key,
        min,
        max,
        advertised_min: min,
    }
}

/// Every served API by rising key; the versions are those of Kafka 4.3.1.
pub const SERVED: &[Served] = &[
    Served {
        key: ApiKey::Produce,
        min: 3,
        max: 13,
        advertised_min: 0,
    },
    all(ApiKey::Fetch, 4, 18),
    all(ApiKey::ListOffsets, 1, 11),
    all(ApiKey::Metadata, 0, 13),
    all(ApiKey::OffsetCommit, 2, 10),
    all(ApiKey::OffsetFetch, 1, 10),
    all(ApiKey::FindCoordinator, 0, 6),
    all(ApiKey::JoinGroup, 0, 9),
    all(ApiKey::Heartbeat, 0, 4),
    all(ApiKey::LeaveGroup, 0, 5),
    all(ApiKey::SyncGroup, 0, 5),
    all(ApiKey::DescribeGroups, 0, 6),
    all(ApiKey::ListGroups, 0, 5),
    all(ApiKey::ApiVersions, 0, 4),
    all(ApiKey::CreateTopics, 2, 7),
    all(ApiKey::DeleteTopics, 1, 6),
    all(ApiKey::DeleteRecords, 0, 2),
    all(ApiKey::InitProducerId, 0, 5),
    all(ApiKey::OffsetForLeaderEpoch, 2, 4),
    all(ApiKey::DescribeConfigs, 1, 4),
    all(ApiKey::AlterConfigs, 0, 2),
    all(ApiKey::AlterReplicaLogDirs, 1, 2),
    all(ApiKey::DescribeLogDirs, 1, 5),
    all(ApiKey::CreatePartitions, 0, 3),
    all(ApiKey::DeleteGroups, 0, 2),
    all(ApiKey::IncrementalAlterConfigs, 0, 1),
    all(ApiKey::AlterPartitionReassignments, 0, 1),
    all(ApiKey::ListPartitionReassignments, 0, 0),
    all(ApiKey::OffsetDelete, 0, 0),
    all(ApiKey::DescribeCluster, 0, 2),
    all(ApiKey::ListConfigResources, 0, 1),
    all(ApiKey::DescribeTopicPartitions, 0, 0),
];

/// The served versions of an API.
#[must_use]
pub fn served(key: ApiKey) -> Option<&'static Served> {
    SERVED.iter().find(|s| s.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_rise_and_lie_within_what_the_codec_knows() {
        assert!(SERVED.windows(2).all(|w| w[0].key < w[1].key));
        for row in SERVED {
            let api = protocol::api::APIS
                .iter()
                .find(|a| a.key == row.key)
                .expect("known");
            assert!(
                row.min >= api.min_version && row.max <= api.max_version,
                "{row:?} against {api:?}"
            );
        }
    }
}
