//! What all messages have in common: name, key, versions, and reading and writing in a version.

use std::fmt::Debug;

use bytes::Bytes;

use crate::api::ApiKey;
use crate::error::{DecodeError, DecodeFault, EncodeError, EncodeFault};
use crate::primitive::array::Struct;
use crate::reader::{DecodeLimits, Reader};
use crate::writer::Writer;

/// A request, a response, or a part of a record in an internal topic.
pub trait Message: Struct + Debug + Clone + PartialEq {
    /// Kafka's name.
    const NAME: &'static str;
    /// The API key, or the number of the record type, or -1.
    const API_KEY: i16;
    /// Lowest version.
    const MIN_VERSION: i16;
    /// Highest version, one that is not released included. What is stable stands in [`crate::api`].
    const MAX_VERSION: i16;
    /// First version with compact encodings and tagged fields, `i16::MAX` if there is none.
    const FLEXIBLE_VERSION: i16;

    /// Reads the message in `version`. Bytes behind it are left in the reader, as Kafka does; whoever forbids them asks
    /// [`Reader::expect_end`].
    ///
    /// # Errors
    /// [`DecodeFault::Version`] outside of the range, and whatever is wrong with the bytes.
    fn decode(r: &mut Reader, version: i16) -> Result<Self, DecodeError> {
        if !(Self::MIN_VERSION..=Self::MAX_VERSION).contains(&version) {
            return Err(r.fault(DecodeFault::Version).within(Self::NAME, version));
        }
        let mut message = Self::default();
        match message.read(r, version) {
            Ok(()) => Ok(message),
            Err(error) => Err(error.within(Self::NAME, version)),
        }
    }

    /// Writes the message in `version`.
    ///
    /// # Errors
    /// When the version does not exist, when a field is set that it does not have and that is not ignorable, when a
    /// field is null that may not be, when something is too long. What was written by then is of no use.
    fn encode(&self, w: &mut Writer, version: i16) -> Result<(), EncodeError> {
        if !(Self::MIN_VERSION..=Self::MAX_VERSION).contains(&version) {
            return Err(EncodeError {
                message: Self::NAME,
                version,
                fault: EncodeFault::Version,
            });
        }
        self.write(w, version);
        w.check(Self::NAME, version)
    }

    /// Reads the message from bytes that hold nothing else, written by this process or a peer that is trusted.
    ///
    /// # Errors
    /// As [`Message::decode`], and when bytes are left over.
    fn from_bytes(bytes: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut r = Reader::with_limits(bytes, DecodeLimits::TRUSTED);
        let message = Self::decode(&mut r, version)?;
        r.expect_end()
            .map_err(|error| error.within(Self::NAME, version))?;
        Ok(message)
    }

    /// The bytes of the message in `version`, in one piece.
    ///
    /// # Errors
    /// As [`Message::encode`].
    fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        let mut w = Writer::new();
        self.encode(&mut w, version)?;
        w.into_bytes()
    }
}

/// A message from client to broker.
pub trait Request: Message {
    /// Its API.
    const KEY: ApiKey;
    /// The answer to it, in the same version.
    type Response: Response;
}

/// A message from broker to client.
pub trait Response: Message {
    /// Its API.
    const KEY: ApiKey;
}

/// What generated modules import.
pub(crate) mod prelude {
    pub(crate) use bytes::Bytes;

    pub(crate) use super::{Message, Request, Response};
    pub(crate) use crate::api::ApiKey;
    pub(crate) use crate::error::DecodeError;
    pub(crate) use crate::error_code::ErrorCode;
    pub(crate) use crate::primitive::array::Struct;
    pub(crate) use crate::primitive::blob::RecordBytes;
    pub(crate) use crate::primitive::string::Str;
    pub(crate) use crate::primitive::uuid::Uuid;
    pub(crate) use crate::reader::Reader;
    pub(crate) use crate::writer::Writer;
}
