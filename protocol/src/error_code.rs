//! Kafka's error codes: number, name, and whether clients try again. Clients act on the code, so a neighbouring code is a
//! different behaviour.

use std::fmt;

/// An error code of a response. Numbers without a name are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ErrorCode(pub i16);

macro_rules! error_codes {
    ($($name:ident = $code:literal, $class:ident;)*) => {
        #[allow(missing_docs)]
        impl ErrorCode { $(pub const $name: Self = Self($code);)* }

        impl ErrorCode {
            /// Every code that has a name, by rising number.
            pub const ALL: &[Self] = &[$(Self($code),)*];

            /// Kafka's name, `None` for a number without one.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($code => Some(stringify!($name)),)* _ => None }
            }

            /// Whether the Java client repeats the request on its own. Some others are handled by joining again or
            /// by a new producer id, and are not retriable in this sense.
            pub const fn is_retriable(self) -> bool {
                match self.0 { $($code => error_codes!(@ $class),)* _ => false }
            }
        }
    };
    (@ retriable) => { true };
    (@ final) => { false };
}

error_codes! {
    UNKNOWN_SERVER_ERROR = -1, final;
    NONE = 0, final;
    OFFSET_OUT_OF_RANGE = 1, final;
    CORRUPT_MESSAGE = 2, retriable;
    UNKNOWN_TOPIC_OR_PARTITION = 3, retriable;
    INVALID_FETCH_SIZE = 4, final;
    LEADER_NOT_AVAILABLE = 5, retriable;
    NOT_LEADER_OR_FOLLOWER = 6, retriable;
    REQUEST_TIMED_OUT = 7, retriable;
    BROKER_NOT_AVAILABLE = 8, final;
    REPLICA_NOT_AVAILABLE = 9, retriable;
    MESSAGE_TOO_LARGE = 10, final;
    STALE_CONTROLLER_EPOCH = 11, final;
    OFFSET_METADATA_TOO_LARGE = 12, final;
    NETWORK_EXCEPTION = 13, retriable;
    COORDINATOR_LOAD_IN_PROGRESS = 14, retriable;
    COORDINATOR_NOT_AVAILABLE = 15, retriable;
    NOT_COORDINATOR = 16, retriable;
    INVALID_TOPIC_EXCEPTION = 17, final;
    RECORD_LIST_TOO_LARGE = 18, final;
    NOT_ENOUGH_REPLICAS = 19, retriable;
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, retriable;
    INVALID_REQUIRED_ACKS = 21, final;
    ILLEGAL_GENERATION = 22, final;
    INCONSISTENT_GROUP_PROTOCOL = 23, final;
    INVALID_GROUP_ID = 24, final;
    UNKNOWN_MEMBER_ID = 25, final;
    INVALID_SESSION_TIMEOUT = 26, final;
    REBALANCE_IN_PROGRESS = 27, final;
    INVALID_COMMIT_OFFSET_SIZE = 28, final;
    TOPIC_AUTHORIZATION_FAILED = 29, final;
    GROUP_AUTHORIZATION_FAILED = 30, final;
    CLUSTER_AUTHORIZATION_FAILED = 31, final;
    INVALID_TIMESTAMP = 32, final;
    UNSUPPORTED_SASL_MECHANISM = 33, final;
    ILLEGAL_SASL_STATE = 34, final;
    UNSUPPORTED_VERSION = 35, final;
    TOPIC_ALREADY_EXISTS = 36, final;
    INVALID_PARTITIONS = 37, final;
    INVALID_REPLICATION_FACTOR = 38, final;
    INVALID_REPLICA_ASSIGNMENT = 39, final;
    INVALID_CONFIG = 40, final;
    NOT_CONTROLLER = 41, retriable;
    INVALID_REQUEST = 42, final;
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, final;
    POLICY_VIOLATION = 44, final;
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, final;
    DUPLICATE_SEQUENCE_NUMBER = 46, final;
    INVALID_PRODUCER_EPOCH = 47, final;
    INVALID_TXN_STATE = 48, final;
    INVALID_PRODUCER_ID_MAPPING = 49, final;
    INVALID_TRANSACTION_TIMEOUT = 50, final;
    CONCURRENT_TRANSACTIONS = 51, retriable;
    TRANSACTION_COORDINATOR_FENCED = 52, final;
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, final;
    SECURITY_DISABLED = 54, final;
    OPERATION_NOT_ATTEMPTED = 55, final;
    KAFKA_STORAGE_ERROR = 56, retriable;
    LOG_DIR_NOT_FOUND = 57, final;
    SASL_AUTHENTICATION_FAILED = 58, final;
    UNKNOWN_PRODUCER_ID = 59, final;
    REASSIGNMENT_IN_PROGRESS = 60, final;
    DELEGATION_TOKEN_AUTH_DISABLED = 61, final;
    DELEGATION_TOKEN_NOT_FOUND = 62, final;
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, final;
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, final;
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, final;
    DELEGATION_TOKEN_EXPIRED = 66, final;
    INVALID_PRINCIPAL_TYPE = 67, final;
    NON_EMPTY_GROUP = 68, final;
    GROUP_ID_NOT_FOUND = 69, final;
    FETCH_SESSION_ID_NOT_FOUND = 70, retriable;
    INVALID_FETCH_SESSION_EPOCH = 71, retriable;
    LISTENER_NOT_FOUND = 72, retriable;
    TOPIC_DELETION_DISABLED = 73, final;
    FENCED_LEADER_EPOCH = 74, retriable;
    UNKNOWN_LEADER_EPOCH = 75, retriable;
    UNSUPPORTED_COMPRESSION_TYPE = 76, final;
    STALE_BROKER_EPOCH = 77, final;
    OFFSET_NOT_AVAILABLE = 78, retriable;
    MEMBER_ID_REQUIRED = 79, final;
    PREFERRED_LEADER_NOT_AVAILABLE = 80, retriable;
    GROUP_MAX_SIZE_REACHED = 81, final;
    FENCED_INSTANCE_ID = 82, final;
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, retriable;
    ELECTION_NOT_NEEDED = 84, retriable;
    NO_REASSIGNMENT_IN_PROGRESS = 85, final;
    GROUP_SUBSCRIBED_TO_TOPIC = 86, final;
    INVALID_RECORD = 87, final;
    UNSTABLE_OFFSET_COMMIT = 88, retriable;
    THROTTLING_QUOTA_EXCEEDED = 89, retriable;
    PRODUCER_FENCED = 90, final;
    RESOURCE_NOT_FOUND = 91, final;
    DUPLICATE_RESOURCE = 92, final;
    UNACCEPTABLE_CREDENTIAL = 93, final;
    INCONSISTENT_VOTER_SET = 94, final;
    INVALID_UPDATE_VERSION = 95, final;
    FEATURE_UPDATE_FAILED = 96, final;
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, final;
    SNAPSHOT_NOT_FOUND = 98, final;
    POSITION_OUT_OF_RANGE = 99, final;
    UNKNOWN_TOPIC_ID = 100, retriable;
    DUPLICATE_BROKER_REGISTRATION = 101, final;
    BROKER_ID_NOT_REGISTERED = 102, final;
    INCONSISTENT_TOPIC_ID = 103, retriable;
    INCONSISTENT_CLUSTER_ID = 104, final;
    TRANSACTIONAL_ID_NOT_FOUND = 105, final;
    FETCH_SESSION_TOPIC_ID_ERROR = 106, retriable;
    INELIGIBLE_REPLICA = 107, final;
    NEW_LEADER_ELECTED = 108, final;
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, final;
    FENCED_MEMBER_EPOCH = 110, final;
    UNRELEASED_INSTANCE_ID = 111, final;
    UNSUPPORTED_ASSIGNOR = 112, final;
    STALE_MEMBER_EPOCH = 113, final;
    MISMATCHED_ENDPOINT_TYPE = 114, final;
    UNSUPPORTED_ENDPOINT_TYPE = 115, final;
    UNKNOWN_CONTROLLER_ID = 116, final;
    UNKNOWN_SUBSCRIPTION_ID = 117, final;
    TELEMETRY_TOO_LARGE = 118, final;
    INVALID_REGISTRATION = 119, final;
    TRANSACTION_ABORTABLE = 120, final;
    INVALID_RECORD_STATE = 121, final;
    SHARE_SESSION_NOT_FOUND = 122, retriable;
    INVALID_SHARE_SESSION_EPOCH = 123, retriable;
    FENCED_STATE_EPOCH = 124, final;
    INVALID_VOTER_KEY = 125, final;
    DUPLICATE_VOTER = 126, final;
    VOTER_NOT_FOUND = 127, final;
    INVALID_REGULAR_EXPRESSION = 128, final;
    REBOOTSTRAP_REQUIRED = 129, final;
    STREAMS_INVALID_TOPOLOGY = 130, final;
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, final;
    STREAMS_TOPOLOGY_FENCED = 132, final;
    SHARE_SESSION_LIMIT_REACHED = 133, retriable;
}

impl ErrorCode {
    /// Whether this is `NONE`.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> Self {
        code.0
    }
}

impl From<i16> for ErrorCode {
    fn from(code: i16) -> Self {
        Self(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_from_minus_one_to_133_has_a_name() {
        let numbers: Vec<i16> = ErrorCode::ALL.iter().map(|code| code.0).collect();
        assert_eq!(numbers, (-1..=133).collect::<Vec<_>>());
        assert!(ErrorCode::ALL.iter().all(|code| code.name().is_some()));
        assert_eq!(ErrorCode(134).name(), None);
        assert_eq!(ErrorCode(134).to_string(), "error 134");
        assert_eq!(
            ErrorCode::NOT_LEADER_OR_FOLLOWER.to_string(),
            "NOT_LEADER_OR_FOLLOWER"
        );
        assert!(ErrorCode::NOT_LEADER_OR_FOLLOWER.is_retriable());
        assert!(!ErrorCode::INVALID_RECORD.is_retriable());
    }
}
