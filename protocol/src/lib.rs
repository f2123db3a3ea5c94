//! The Kafka wire protocol: frames, headers, messages, record batches, compression. No I/O, no clock, no `unsafe`, and
//! no allocation from a length that was not checked.
//!
//! [`messages`] is generated from `protocol/schema/*.msg`; the notation is described in `src/bin/protocol-gen/schema.rs`.

pub mod api;
pub mod compression;
pub mod error;
pub mod error_code;
pub mod frame;
pub mod framing;
pub mod hash;
pub mod header;
pub mod message;
pub mod messages;
mod primitive;
pub mod reader;
pub mod record;
pub mod writer;

pub use api::ApiKey;
pub use error::{DecodeError, DecodeFault, EncodeError, EncodeFault};
pub use error_code::ErrorCode;
pub use message::{Message, Request, Response};
pub use primitive::array::{Element, Struct};
pub use primitive::blob::RecordBytes;
pub use primitive::string::Str;
pub use primitive::uuid::{Uuid, UuidParseError};
pub use primitive::varint::{VARINT_BYTES_MAX, VARLONG_BYTES_MAX, uvarint_len};
pub use reader::{DecodeLimits, Reader};
pub use writer::Writer;
