//! A refused operation as a client sees it: Kafka's error code and a sentence. State machines of this crate return it where
//! the answer is part of Kafka's protocol; failures of the environment have types of their own beside what fails.

use std::fmt;

/// The Kafka error codes that this crate's machines answer with, by Kafka's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(i16)]
#[allow(missing_docs)] // the names are Kafka's; the protocol's guide says what each means
pub enum ErrorCode {
    UnknownServerError = -1,
    UnknownTopicOrPartition = 3,
    RequestTimedOut = 7,
    InvalidTopicException = 17,
    TopicAlreadyExists = 36,
    InvalidPartitions = 37,
    InvalidReplicationFactor = 38,
    InvalidReplicaAssignment = 39,
    InvalidConfig = 40,
    NotController = 41,
    InvalidRequest = 42,
    PolicyViolation = 44,
    TopicDeletionDisabled = 73,
    StaleBrokerEpoch = 77,
    ResourceNotFound = 91,
    DuplicateResource = 92,
    InvalidUpdateVersion = 95,
    FeatureUpdateFailed = 96,
    UnknownTopicId = 100,
    DuplicateBrokerRegistration = 101,
    BrokerIdNotRegistered = 102,
    InconsistentClusterId = 104,
    UnsupportedVersion = 35,
    InvalidRegistration = 119,
}

/// A refused operation: the code that clients act on and a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiError {
    /// Kafka's error code.
    pub code: ErrorCode,
    /// What is wrong and, where it helps, what would be right.
    pub message: String,
}

impl ApiError {
    /// A refusal with `code` and `message`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// INVALID_CONFIG.
    pub fn invalid_config(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidConfig, message)
    }

    /// INVALID_REQUEST.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn wire(self) -> i16 {
        self as i16
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for ApiError {}
