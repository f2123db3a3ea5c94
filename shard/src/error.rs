//! A refused operation as a client sees it: Kafka's error code and a sentence. State machines of this crate return it where
//! the answer is part of Kafka's protocol; failures of the environment have types of their own beside what fails.

use std::fmt;

use protocol::{ErrorCode, Str};

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
        Self::new(ErrorCode::INVALID_CONFIG, message)
    }

    /// INVALID_REQUEST.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::INVALID_REQUEST, message)
    }

    /// The message as a field of a response, cut at [`MESSAGE_BYTES_MAX`].
    #[must_use]
    pub fn text(&self) -> Str {
        let mut end = self.message.len().min(MESSAGE_BYTES_MAX);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        Str::from(self.message.get(..end).unwrap_or_default().to_owned())
    }
}

/// The most bytes of a message in a response: requests hold texts of 32 KiB that it may quote.
pub const MESSAGE_BYTES_MAX: usize = 1024;

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

impl std::error::Error for ApiError {}
