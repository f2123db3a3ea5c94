//! The API keys of Kafka 4.3.1: names, versions that this crate can decode, first flexible version, header versions,
//! listeners. Which of them a broker advertises is the broker's decision.

use std::fmt;
use std::ops::RangeInclusive;

/// Where a request of Kafka's own may arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listener {
    /// Clients and brokers.
    Broker,
    /// Only the controllers' own listener.
    Controller,
    /// Either.
    Both,
}

/// What this crate knows about an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api {
    /// The key.
    pub key: ApiKey,
    /// Kafka's name, as in `Produce`.
    pub name: &'static str,
    /// Lowest version that can be decoded.
    pub min_version: i16,
    /// Highest stable version.
    pub max_version: i16,
    /// First version with compact encodings and tagged fields; `None` if there is none.
    pub flexible_version: Option<i16>,
    /// Where Kafka accepts it.
    pub listener: Listener,
}

macro_rules! apis {
    ($($name:ident = $key:literal, $min:literal..=$max:literal, $flexible:ident $($first:literal)?, $listener:ident;)*) => {
        /// The API of a request. Removed ones (4 to 7) do not exist.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        #[allow(missing_docs)]
        pub enum ApiKey { $($name = $key,)* }

        /// Every API, by rising key.
        pub const APIS: &[Api] = &[$(Api {
            key: ApiKey::$name,
            name: stringify!($name),
            min_version: $min,
            max_version: $max,
            flexible_version: apis!(@ $($first)?),
            listener: Listener::$listener,
        },)*];

        impl ApiKey {
            /// The API with this key, if there is one.
            pub const fn from_i16(key: i16) -> Option<Self> {
                match key { $($key => Some(Self::$name),)* _ => None }
            }

            /// What is known about the API.
            pub const fn api(self) -> &'static Api {
                match self { $(Self::$name => {
                    const API: &Api = &Api {
                        key: ApiKey::$name,
                        name: stringify!($name),
                        min_version: $min,
                        max_version: $max,
                        flexible_version: apis!(@ $($first)?),
                        listener: Listener::$listener,
                    };
                    API
                })* }
            }
        }
    };
    (@ $first:literal) => { Some($first) };
    (@) => { None };
}

apis! {
    Produce = 0, 3..=13, flexible 9, Broker;
    Fetch = 1, 4..=18, flexible 12, Both;
    ListOffsets = 2, 1..=11, flexible 6, Broker;
    Metadata = 3, 0..=13, flexible 9, Broker;
    OffsetCommit = 8, 2..=10, flexible 8, Broker;
    OffsetFetch = 9, 1..=10, flexible 6, Broker;
    FindCoordinator = 10, 0..=6, flexible 3, Broker;
    JoinGroup = 11, 0..=9, flexible 6, Broker;
    Heartbeat = 12, 0..=4, flexible 4, Broker;
    LeaveGroup = 13, 0..=5, flexible 4, Broker;
    SyncGroup = 14, 0..=5, flexible 4, Broker;
    DescribeGroups = 15, 0..=6, flexible 5, Broker;
    ListGroups = 16, 0..=5, flexible 3, Broker;
    SaslHandshake = 17, 0..=1, classic, Both;
    ApiVersions = 18, 0..=4, flexible 3, Both;
    CreateTopics = 19, 2..=7, flexible 5, Both;
    DeleteTopics = 20, 1..=6, flexible 4, Both;
    DeleteRecords = 21, 0..=2, flexible 2, Broker;
    InitProducerId = 22, 0..=5, flexible 2, Broker;
    OffsetForLeaderEpoch = 23, 2..=4, flexible 4, Broker;
    AddPartitionsToTxn = 24, 0..=5, flexible 3, Broker;
    AddOffsetsToTxn = 25, 0..=4, flexible 3, Broker;
    EndTxn = 26, 0..=5, flexible 3, Broker;
    WriteTxnMarkers = 27, 1..=2, flexible 1, Broker;
    TxnOffsetCommit = 28, 0..=5, flexible 3, Broker;
    DescribeAcls = 29, 1..=3, flexible 2, Both;
    CreateAcls = 30, 1..=3, flexible 2, Both;
    DeleteAcls = 31, 1..=3, flexible 2, Both;
    DescribeConfigs = 32, 1..=4, flexible 4, Both;
    AlterConfigs = 33, 0..=2, flexible 2, Both;
    AlterReplicaLogDirs = 34, 1..=2, flexible 2, Broker;
    DescribeLogDirs = 35, 1..=5, flexible 2, Broker;
    SaslAuthenticate = 36, 0..=2, flexible 2, Both;
    CreatePartitions = 37, 0..=3, flexible 2, Both;
    CreateDelegationToken = 38, 1..=3, flexible 2, Both;
    RenewDelegationToken = 39, 1..=2, flexible 2, Both;
    ExpireDelegationToken = 40, 1..=2, flexible 2, Both;
    DescribeDelegationToken = 41, 1..=3, flexible 2, Both;
    DeleteGroups = 42, 0..=2, flexible 2, Broker;
    ElectLeaders = 43, 0..=2, flexible 2, Both;
    IncrementalAlterConfigs = 44, 0..=1, flexible 1, Both;
    AlterPartitionReassignments = 45, 0..=1, flexible 0, Both;
    ListPartitionReassignments = 46, 0..=0, flexible 0, Both;
    OffsetDelete = 47, 0..=0, classic, Broker;
    DescribeClientQuotas = 48, 0..=1, flexible 1, Broker;
    AlterClientQuotas = 49, 0..=1, flexible 1, Both;
    DescribeUserScramCredentials = 50, 0..=0, flexible 0, Both;
    AlterUserScramCredentials = 51, 0..=0, flexible 0, Both;
    Vote = 52, 0..=2, flexible 0, Controller;
    BeginQuorumEpoch = 53, 0..=1, flexible 1, Controller;
    EndQuorumEpoch = 54, 0..=1, flexible 1, Controller;
    DescribeQuorum = 55, 0..=2, flexible 0, Both;
    AlterPartition = 56, 2..=3, flexible 0, Controller;
    UpdateFeatures = 57, 0..=2, flexible 0, Both;
    Envelope = 58, 0..=0, flexible 0, Controller;
    FetchSnapshot = 59, 0..=1, flexible 0, Controller;
    DescribeCluster = 60, 0..=2, flexible 0, Both;
    DescribeProducers = 61, 0..=0, flexible 0, Broker;
    BrokerRegistration = 62, 0..=4, flexible 0, Controller;
    BrokerHeartbeat = 63, 0..=2, flexible 0, Controller;
    UnregisterBroker = 64, 0..=0, flexible 0, Both;
    DescribeTransactions = 65, 0..=0, flexible 0, Broker;
    ListTransactions = 66, 0..=2, flexible 0, Broker;
    AllocateProducerIds = 67, 0..=0, flexible 0, Controller;
    ConsumerGroupHeartbeat = 68, 0..=1, flexible 0, Broker;
    ConsumerGroupDescribe = 69, 0..=1, flexible 0, Broker;
    ControllerRegistration = 70, 0..=0, flexible 0, Controller;
    GetTelemetrySubscriptions = 71, 0..=0, flexible 0, Broker;
    PushTelemetry = 72, 0..=0, flexible 0, Broker;
    AssignReplicasToDirs = 73, 0..=0, flexible 0, Controller;
    ListConfigResources = 74, 0..=1, flexible 0, Broker;
    DescribeTopicPartitions = 75, 0..=0, flexible 0, Broker;
    ShareGroupHeartbeat = 76, 1..=1, flexible 0, Broker;
    ShareGroupDescribe = 77, 1..=1, flexible 0, Broker;
    ShareFetch = 78, 1..=2, flexible 0, Broker;
    ShareAcknowledge = 79, 1..=2, flexible 0, Broker;
    AddRaftVoter = 80, 0..=1, flexible 0, Both;
    RemoveRaftVoter = 81, 0..=0, flexible 0, Both;
    UpdateRaftVoter = 82, 0..=0, flexible 0, Controller;
    InitializeShareGroupState = 83, 0..=0, flexible 0, Broker;
    ReadShareGroupState = 84, 0..=0, flexible 0, Broker;
    WriteShareGroupState = 85, 0..=1, flexible 0, Broker;
    DeleteShareGroupState = 86, 0..=0, flexible 0, Broker;
    ReadShareGroupStateSummary = 87, 0..=1, flexible 0, Broker;
    StreamsGroupHeartbeat = 88, 0..=0, flexible 0, Broker;
    StreamsGroupDescribe = 89, 0..=0, flexible 0, Broker;
    DescribeShareGroupOffsets = 90, 0..=1, flexible 0, Broker;
    AlterShareGroupOffsets = 91, 0..=0, flexible 0, Broker;
    DeleteShareGroupOffsets = 92, 0..=0, flexible 0, Broker;
}

impl ApiKey {
    /// The number on the wire.
    pub const fn as_i16(self) -> i16 {
        self as i16
    }

    /// Kafka's name of the API.
    pub const fn name(self) -> &'static str {
        self.api().name
    }

    /// The stable versions that can be decoded.
    pub const fn versions(self) -> RangeInclusive<i16> {
        self.api().min_version..=self.api().max_version
    }

    /// Whether `version` uses compact encodings and tagged fields. Also answers for versions that do not exist yet.
    pub const fn is_flexible(self, version: i16) -> bool {
        match self.api().flexible_version {
            Some(first) => version >= first,
            None => false,
        }
    }

    /// Whether clients may send it (some are for the controllers' listener only).
    pub const fn on_broker_listener(self) -> bool {
        !matches!(self.api().listener, Listener::Controller)
    }

    /// Version of the request header in front of this request.
    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// Version of the response header in front of the answer. That of ApiVersions stays 0, because a client that does
    /// not know the broker yet must be able to read it (KIP-511).
    pub const fn response_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) && !matches!(self, Self::ApiVersions) {
            1
        } else {
            0
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rise_and_come_back() {
        assert!(APIS.is_sorted_by_key(|api| api.key));
        for api in APIS {
            assert_eq!(ApiKey::from_i16(api.key.as_i16()), Some(api.key));
            assert_eq!(api.key.api(), api);
            assert!(api.min_version <= api.max_version);
        }
        assert_eq!(APIS.len(), 89);
        assert_eq!([4, 7, 93, -1].map(ApiKey::from_i16), [None; 4]);
    }

    #[test]
    fn header_versions_and_their_exceptions() {
        assert_eq!(ApiKey::Produce.request_header_version(8), 1);
        assert_eq!(ApiKey::Produce.request_header_version(9), 2);
        assert_eq!(ApiKey::Produce.response_header_version(9), 1);
        assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
        assert_eq!(ApiKey::ApiVersions.request_header_version(99), 2);
        assert_eq!(ApiKey::ApiVersions.response_header_version(4), 0);
        assert_eq!(ApiKey::SaslHandshake.request_header_version(1), 1);
        assert_eq!(ApiKey::SaslHandshake.response_header_version(1), 0);
        assert_eq!(ApiKey::OffsetDelete.request_header_version(0), 1);
    }
}
