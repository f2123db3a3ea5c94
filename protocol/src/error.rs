//! What can be wrong with bytes to decode or with a message to encode.

use std::ops::Deref;

use thiserror::Error;

/// Bytes that are not what the message's version demands. Always the sender's fault; Kafka closes the connection.
///
/// One pointer wide: the thousands of places in generated code that pass it on stay small.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct DecodeError(Box<DecodeErrorParts>);

/// The content of a [`DecodeError`], which dereferences to it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message} v{version}, byte {offset}: {fault}")]
pub struct DecodeErrorParts {
    /// Name of the message, "?" below the level of messages.
    pub message: &'static str,
    /// Version in which it was decoded, -1 below the level of messages.
    pub version: i16,
    /// Bytes of the frame consumed before the fault.
    pub offset: usize,
    /// What is wrong.
    pub fault: DecodeFault,
}

impl DecodeError {
    /// A fault at `offset`, not yet attributed to a message.
    #[cold]
    pub fn new(fault: DecodeFault, offset: usize) -> Self {
        Self(Box::new(DecodeErrorParts {
            message: "?",
            version: -1,
            offset,
            fault,
        }))
    }

    /// The same error, attributed to a message.
    #[must_use]
    pub fn within(mut self, message: &'static str, version: i16) -> Self {
        self.0.message = message;
        self.0.version = version;
        self
    }
}

impl Deref for DecodeError {
    type Target = DecodeErrorParts;

    fn deref(&self) -> &DecodeErrorParts {
        &self.0
    }
}

/// The kinds of [`DecodeError`]. Sizes are bytes, except where they are called a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum DecodeFault {
    #[error("{needed} bytes needed, {remaining} left")]
    Truncated { needed: usize, remaining: usize },
    #[error("a length of {declared} with {remaining} bytes left")]
    Length { declared: usize, remaining: usize },
    #[error("an array of {declared} elements with {remaining} bytes left")]
    Count { declared: usize, remaining: usize },
    #[error("{needed} bytes of memory needed, {left} of the frame's budget left")]
    Budget { needed: usize, left: usize },
    #[error("null in a field that may not be null")]
    UnexpectedNull,
    #[error("a string that is not UTF-8 and too long to be answered with replacements")]
    Utf8,
    #[error("a varint that does not end within its width")]
    Varint,
    #[error("{remaining} bytes left over in a tagged field")]
    TaggedFieldTrailing { remaining: usize },
    #[error("{remaining} bytes left over")]
    Trailing { remaining: usize },
    #[error("this version does not exist")]
    Version,
    #[error("API key {0} does not exist")]
    ApiKey(i16),
}

/// A message that cannot be written in the wanted version. Always our fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{message} v{version}: {fault}")]
pub struct EncodeError {
    /// Name of the message.
    pub message: &'static str,
    /// The wanted version.
    pub version: i16,
    /// What is wrong.
    pub fault: EncodeFault,
}

/// The kinds of [`EncodeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeFault {
    /// The version is outside the message's range.
    #[error("this version does not exist")]
    Version,
    /// A field holds a value other than its default, and the version has no place for it.
    #[error("field {0} is set and does not exist in this version")]
    FieldNotInVersion(&'static str),
    /// A struct inside the message does not exist in the version.
    #[error("struct {0} does not exist in this version")]
    StructNotInVersion(&'static str),
    /// A field is null in a version where it may not be.
    #[error("field {0} is null")]
    Null(&'static str),
    /// A string, byte field or array is longer than its length field can say.
    #[error("a length of {0} does not fit its field")]
    TooLong(usize),
}
