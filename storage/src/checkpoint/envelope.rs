//! The frame around our own checkpoints: what it is, which version, whole or not. The payload is rkyv, validated before
//! it is used; its types belong to whoever checkpoints (no hash containers and no `Rc` in archived types).
//!
//! ```text
//!  0 | magic 8 bytes          the kind of checkpoint
//!  8 | version u32 LE         of the payload's format, from 1
//! 12 | crc32c u32 LE          of bytes 0..12 and everything from byte 16 on
//! 16 | length u64 LE          of the payload
//! 24 | zeroes, 8 bytes        so that the payload starts at a multiple of 16, which rkyv wants
//! 32 | payload
//! ```

use std::path::Path;

use rkyv::api::high::{HighDeserializer, HighSerializer, HighValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;
use rkyv::{Archive, Deserialize, Serialize};

use super::{CHECKPOINT_BYTES_MAX, CheckpointError, read_small, write_atomic};
use crate::disk::{Disk, DiskError};

const VERSION_AT: usize = 8;
const CRC_AT: usize = 12;
const LENGTH_AT: usize = 16;
const RESERVED_AT: usize = 24;
const PAYLOAD_AT: usize = 32;

/// The payload of a checkpoint, aligned for rkyv.
pub type Payload = AlignedVec;

/// A type that is written as a checkpoint. Its version goes up with each change of its format; files of older versions
/// are opened with [`open`] and their own types.
pub trait Checkpoint: Archive {
    /// The kind, as it stands in the file.
    const MAGIC: [u8; 8];
    /// The version written.
    const VERSION: u32;
}

/// Why bytes are not the checkpoint that was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Shorter than a header, or than the header says.
    #[error("{found} bytes where {expected} are expected")]
    Length {
        /// From the header, or the header's own length.
        expected: u64,
        /// The file's.
        found: u64,
    },
    /// Another kind of file.
    #[error("not a checkpoint of this kind: starts with {found:02x?}, not {expected:02x?}")]
    Magic {
        /// The kind asked for.
        expected: [u8; 8],
        /// The kind found.
        found: [u8; 8],
    },
    /// The bytes are not those that were written.
    #[error("checksum {found:08x} where {expected:08x} was written")]
    Checksum {
        /// From the header.
        expected: u32,
        /// Of the bytes.
        found: u32,
    },
    /// Whole, but of another format.
    #[error("format version {found}; this build knows {known}")]
    Version {
        /// The file's.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Whole, but not an archive of the type.
    #[error("the payload is not valid: {0}")]
    Payload(String),
}

/// The bytes of `value` with its envelope.
///
/// # Panics
/// When rkyv cannot serialize the value, which for types without shared pointers it always can.
#[must_use]
pub fn encode<T>(value: &T) -> Vec<u8>
where
    T: Checkpoint + for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    let payload = rkyv::to_bytes::<rancor::Error>(value).expect("types without shared pointers serialize");
    seal(T::MAGIC, T::VERSION, &payload)
}

/// The value in an envelope of exactly its version.
///
/// # Errors
/// [`EnvelopeError`].
pub fn decode<T>(bytes: &[u8]) -> Result<T, EnvelopeError>
where
    T: Checkpoint,
    T::Archived: for<'a> CheckBytes<HighValidator<'a, rancor::Error>>
        + Deserialize<T, HighDeserializer<rancor::Error>>,
{
    let (version, payload) = open(bytes, T::MAGIC)?;
    if version != T::VERSION {
        return Err(EnvelopeError::Version {
            found: version,
            known: T::VERSION,
        });
    }
    rkyv::from_bytes::<T, rancor::Error>(&payload).map_err(|error| EnvelopeError::Payload(error.to_string()))
}

/// Writes `value` to `path`, atomically and durably ([`write_atomic`]).
///
/// # Errors
/// From the disk.
pub async fn save<D: Disk, T>(disk: &D, path: &Path, value: &T) -> Result<(), DiskError>
where
    T: Checkpoint + for<'a> Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    write_atomic(disk, path, &encode(value)).await
}

/// Reads the value at `path`; `None` when there is no such file.
///
/// # Errors
/// From the disk, or when the file is damaged or of another version.
pub async fn load<D: Disk, T>(disk: &D, path: &Path) -> Result<Option<T>, CheckpointError>
where
    T: Checkpoint,
    T::Archived: for<'a> CheckBytes<HighValidator<'a, rancor::Error>>
        + Deserialize<T, HighDeserializer<rancor::Error>>,
{
    let bytes = match read_small(disk, path, CHECKPOINT_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    decode(&bytes).map(Some).map_err(|error| error.in_file(path))
}

/// Puts a payload of any format into an envelope.
#[must_use]
pub fn seal(magic: [u8; 8], version: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PAYLOAD_AT + payload.len());
    out.extend_from_slice(&magic);
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&[0; LENGTH_AT - CRC_AT]);
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&[0; PAYLOAD_AT - RESERVED_AT]);
    out.extend_from_slice(payload);
    let crc = checksum(&out);
    out[CRC_AT..LENGTH_AT].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The version and the payload of an envelope of kind `magic`, its checksum verified.
///
/// # Errors
/// [`EnvelopeError`], but for `Version` and `Payload`.
pub fn open(bytes: &[u8], magic: [u8; 8]) -> Result<(u32, Payload), EnvelopeError> {
    let (Some((header, payload)), found) = (bytes.split_at_checked(PAYLOAD_AT), bytes.len() as u64) else {
        return Err(EnvelopeError::Length {
            expected: PAYLOAD_AT as u64,
            found: bytes.len() as u64,
        });
    };
    let kind: [u8; 8] = field(header, 0);
    if kind != magic {
        return Err(EnvelopeError::Magic {
            expected: magic,
            found: kind,
        });
    }
    let length = u64::from_le_bytes(field(header, LENGTH_AT));
    let expected = length.saturating_add(PAYLOAD_AT as u64);
    if expected != found {
        return Err(EnvelopeError::Length { expected, found });
    }
    let (expected, found) = (u32::from_le_bytes(field(header, CRC_AT)), checksum(bytes));
    if expected != found {
        return Err(EnvelopeError::Checksum { expected, found });
    }
    let mut aligned = AlignedVec::with_capacity(payload.len());
    aligned.extend_from_slice(payload);
    Ok((u32::from_le_bytes(field(header, VERSION_AT)), aligned))
}

impl EnvelopeError {
    /// The same with its file.
    #[must_use]
    pub fn in_file(self, path: &Path) -> CheckpointError {
        match self {
            Self::Version { found, known } => CheckpointError::Version {
                path: path.to_owned(),
                found,
                known,
            },
            other => CheckpointError::Malformed {
                path: path.to_owned(),
                line: None,
                reason: other.to_string(),
            },
        }
    }
}

/// Of an envelope without its checksum field.
fn checksum(envelope: &[u8]) -> u32 {
    let (before, after) = (envelope.get(..CRC_AT), envelope.get(LENGTH_AT..));
    crc32c::crc32c_append(
        crc32c::crc32c(before.unwrap_or_default()),
        after.unwrap_or_default(),
    )
}

/// `N` bytes at `at` of a header whose length was checked.
fn field<const N: usize>(header: &[u8], at: usize) -> [u8; N] {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
    *bytes.expect("the header was cut to its length")
}
