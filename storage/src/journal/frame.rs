//! The journal's bytes, all integers little-endian.
//!
//! A **file** is a header block of 4096 bytes, then commits. A **commit** starts on a fresh 4096-byte block (a synced
//! block is never rewritten) and is padded with zeroes to a whole block:
//!
//! ```text
//! file header (64 bytes, rest of the block zero)       commit header (64 bytes)
//!  0 u64 magic "PNSTKJNL"                               0 u32 magic "PJCM"
//!  8 u16 format version (2)                             4 u16 format version (2)
//! 10 u16 shard that wrote it                            6 u16 header length (64)
//! 12 u32 zero                                           8 u64 generation of the file
//! 16 u64 generation: run << 32 | use                  16 u64 sequence: the previous commit's plus one
//! 24 36 bytes zero                                     24 u64 highest sequence known durable when this was built
//! 60 u32 CRC-32C of bytes 0..60                        32 u32 length of the frames, bytes
//!                                                      36 u32 number of frames
//!                                                      40 u32 CRC-32C over the frames' CRC fields, in order
//!                                                      44 16 bytes zero
//!                                                      60 u32 CRC-32C of bytes 0..60
//! ```
//!
//! Behind the commit header lie the **frames**, back to back:
//!
//! ```text
//!  0 u8  kind                     24 i64 end offset (one past the last)
//!  1 u8  flags: 1 is loose        32 i64 segment: its base offset
//!  2 u16 zero                     40 u32 position in the segment, bytes
//!  4 u32 auxiliary (by kind)      44 u32 payload length
//!  8 u64 incarnation of the log   48 u32 CRC-32C of the payload followed by bytes 0..48
//! 16 i64 base offset              52    payload
//! ```
//!
//! The file format version changes when any of this changes; a reader refuses versions it does not know.

use crate::types::{LogId, Offset, TopicId};

/// Bytes of a file header's meaningful part, and of a commit header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 52;
/// The format version this build writes; it reads the same.
pub const FORMAT_VERSION: u16 = 2;
/// The largest commit, bytes: header, frames and padding. A commit is as large as the limit of the planner or one batch,
/// whichever is more, and a batch is bounded by `socket.request.max.bytes` (100 MiB).
pub const COMMIT_BYTES_MAX: usize = 160 << 20;

/// The lowest generation of a run: generations are a run number and a counter, so that files of a run whose frames are
/// all applied can be told from those of the next.
#[must_use]
pub const fn first_generation(run: u64) -> u64 {
    run << 32 | 1
}

/// The run that a generation belongs to.
#[must_use]
pub const fn run_of(generation: u64) -> u64 {
    generation >> 32
}

const FILE_MAGIC: u64 = u64::from_le_bytes(*b"PNSTKJNL");
const COMMIT_MAGIC: u32 = u32::from_le_bytes(*b"PJCM");

/// One opening of one log by one store: frames of an earlier opening never mix with those of a later one. Unique within
/// the journal files that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// What a frame does on replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Names the log of an incarnation; comes before its other frames in each file. Payload: [`OpenPayload`].
    Open = 1,
    /// Whole batches, to be put at the position. The first *auxiliary* bytes of the payload repeat what lies before the
    /// base offset in its block (the lead-in), so that a block on disk may be rewritten.
    Append = 2,
    /// Bytes that went straight to the segment: *auxiliary* bytes from the position. Payload: their CRC-32C (4 bytes),
    /// then the unaligned tail that belongs behind them.
    Extent = 3,
    /// The log ends at the base offset and position; what was behind is void.
    Truncate = 4,
    /// The log's start moved to the base offset.
    Start = 5,
    /// Leader epoch *auxiliary* starts at the base offset.
    Epoch = 6,
    /// The log was closed, all of it is in its segments: earlier frames of the incarnation are void.
    Retire = 7,
    /// The log was deleted: earlier frames of the incarnation are void, and its directory may be gone.
    Delete = 8,
}

/// Why bytes are not a valid header, commit or frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Not enough bytes.
    Short,
    /// The magic number is another: never written, or foreign.
    Magic,
    /// Known magic, but a format version this build does not read.
    Version(u16),
    /// A checksum does not match.
    Checksum,
    /// A length or kind that cannot be.
    Field(&'static str),
}

/// The first block of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The shard that wrote it, for people.
    pub shard: u16,
    /// Which use of the file this is.
    pub generation: u64,
}

/// The head of one group commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitHeader {
    /// The file's generation; another one means stale bytes of an earlier use.
    pub generation: u64,
    /// This commit's number.
    pub sequence: u64,
    /// Every commit up to this number was durable when this one was built.
    pub durable_sequence: u64,
    /// Bytes of the frames behind the header.
    pub frames_bytes: u32,
    /// How many frames.
    pub frames: u32,
    /// CRC-32C over the frames' CRC fields.
    pub frames_crc: u32,
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What it does.
    pub kind: FrameKind,
    /// The log's class is not `fsync`: bytes between frames may have gone to the segment without one.
    pub is_loose: bool,
    /// By kind, see [`FrameKind`].
    pub auxiliary: u32,
    /// Which opening of which log.
    pub incarnation: Incarnation,
    /// First offset concerned.
    pub base_offset: Offset,
    /// One past the last offset concerned.
    pub end_offset: Offset,
    /// Base offset of the segment.
    pub segment: Offset,
    /// Byte position in the segment.
    pub position: u32,
    /// Bytes of the payload.
    pub payload_bytes: u32,
}

/// One frame as read: header and payload, already checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The fixed part.
    pub header: FrameHeader,
    /// The payload.
    pub payload: &'a [u8],
}

/// The payload of [`FrameKind::Open`]: which log, and in which directory (its name within the log directory).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenPayload {
    /// The log.
    pub id: LogId,
    /// `<topic>-<partition>`.
    pub directory: String,
}

impl FileHeader {
    /// The header's 64 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..8].copy_from_slice(&FILE_MAGIC.to_le_bytes());
        out[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[10..12].copy_from_slice(&self.shard.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Reads a header from the first block of a file.
    ///
    /// # Errors
    /// The reason the bytes are not a header of this format.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let head = checked_head(bytes, |head| u64_at(head, 0) == FILE_MAGIC, 8)?;
        Ok(Self {
            shard: u16_at(head, 10),
            generation: u64_at(head, 16),
        })
    }
}

impl CommitHeader {
    /// The header's 64 bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&COMMIT_MAGIC.to_le_bytes());
        out[4..6].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        out[6..8].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        out[8..16].copy_from_slice(&self.generation.to_le_bytes());
        out[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        out[24..32].copy_from_slice(&self.durable_sequence.to_le_bytes());
        out[32..36].copy_from_slice(&self.frames_bytes.to_le_bytes());
        out[36..40].copy_from_slice(&self.frames.to_le_bytes());
        out[40..44].copy_from_slice(&self.frames_crc.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Reads a commit header; the frames are checked by [`frames`].
    ///
    /// # Errors
    /// The reason the bytes are not a commit header of this format.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let head = checked_head(bytes, |head| u32_at(head, 0) == COMMIT_MAGIC, 4)?;
        let header = Self {
            generation: u64_at(head, 8),
            sequence: u64_at(head, 16),
            durable_sequence: u64_at(head, 24),
            frames_bytes: u32_at(head, 32),
            frames: u32_at(head, 36),
            frames_crc: u32_at(head, 40),
        };
        if header.frames_bytes as usize > COMMIT_BYTES_MAX - HEADER_BYTES {
            return Err(Invalid::Field("commit length"));
        }
        if header.durable_sequence >= header.sequence {
            return Err(Invalid::Field("durable sequence"));
        }
        Ok(header)
    }

    /// Header and frames, without the padding, bytes.
    #[must_use]
    pub const fn commit_bytes(&self) -> usize {
        HEADER_BYTES + self.frames_bytes as usize
    }
}

impl FrameHeader {
    /// The header's bytes and its CRC, for a payload whose CRC-32C is `payload_crc`.
    #[must_use]
    pub fn encode(&self, payload_crc: u32) -> ([u8; FRAME_HEADER_BYTES], u32) {
        let mut out = [0; FRAME_HEADER_BYTES];
        out[0] = self.kind as u8;
        out[1] = u8::from(self.is_loose);
        out[4..8].copy_from_slice(&self.auxiliary.to_le_bytes());
        out[8..16].copy_from_slice(&self.incarnation.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.base_offset.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.end_offset.0.to_le_bytes());
        out[32..40].copy_from_slice(&self.segment.0.to_le_bytes());
        out[40..44].copy_from_slice(&self.position.to_le_bytes());
        out[44..48].copy_from_slice(&self.payload_bytes.to_le_bytes());
        let crc = crc32c::crc32c_append(payload_crc, &out[..48]);
        out[48..52].copy_from_slice(&crc.to_le_bytes());
        (out, crc)
    }

    /// Header and payload, bytes.
    #[must_use]
    pub const fn frame_bytes(&self) -> usize {
        FRAME_HEADER_BYTES + self.payload_bytes as usize
    }
}

impl OpenPayload {
    /// The payload's bytes: topic id (16), partition (4), directory name.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(20 + self.directory.len());
        out.extend_from_slice(&self.id.topic.0);
        out.extend_from_slice(&self.id.partition.to_le_bytes());
        out.extend_from_slice(self.directory.as_bytes());
        out
    }

    /// Reads the payload. A directory name that is not a plain name is refused: it becomes a path.
    ///
    /// # Errors
    /// The reason it is not one.
    pub fn decode(payload: &[u8]) -> Result<Self, Invalid> {
        let (topic, rest) = payload.split_first_chunk::<16>().ok_or(Invalid::Short)?;
        let (partition, name) = rest.split_first_chunk::<4>().ok_or(Invalid::Short)?;
        let directory = std::str::from_utf8(name).map_err(|_| Invalid::Field("directory name"))?;
        if directory.is_empty() || directory.starts_with('.') || directory.contains(['/', '\0']) {
            return Err(Invalid::Field("directory name"));
        }
        Ok(Self {
            id: LogId {
                topic: TopicId(*topic),
                partition: i32::from_le_bytes(*partition),
            },
            directory: directory.to_owned(),
        })
    }
}

/// The frames of a commit, each checked; `bytes` is what lies behind the commit header.
///
/// # Errors
/// The first thing that is wrong; nothing of the commit counts then.
pub fn frames<'a>(header: &CommitHeader, bytes: &'a [u8]) -> Result<Vec<Frame<'a>>, Invalid> {
    let mut rest = bytes.get(..header.frames_bytes as usize).ok_or(Invalid::Short)?;
    let count = header.frames as usize;
    if count > rest.len() / FRAME_HEADER_BYTES {
        return Err(Invalid::Field("frame count"));
    }
    let mut out = Vec::with_capacity(count);
    let mut crcs = 0;
    for _ in 0..count {
        let (frame, crc, behind) = split_frame(rest)?;
        crcs = crc32c::crc32c_append(crcs, &crc.to_le_bytes());
        out.push(frame);
        rest = behind;
    }
    if !rest.is_empty() {
        return Err(Invalid::Field("bytes behind the last frame"));
    }
    if crcs != header.frames_crc {
        return Err(Invalid::Checksum);
    }
    Ok(out)
}

/// The first frame of `bytes`, its CRC, and what lies behind it.
pub(super) fn split_frame(bytes: &[u8]) -> Result<(Frame<'_>, u32, &[u8]), Invalid> {
    let (head, rest) = bytes
        .split_first_chunk::<FRAME_HEADER_BYTES>()
        .ok_or(Invalid::Short)?;
    let payload_bytes = u32_at(head, 44);
    let (payload, behind) = rest
        .split_at_checked(payload_bytes as usize)
        .ok_or(Invalid::Short)?;
    let crc = u32_at(head, 48);
    if crc32c::crc32c_append(crc32c::crc32c(payload), &head[..48]) != crc {
        return Err(Invalid::Checksum);
    }
    let header = decode_head(head)?;
    Ok((Frame { header, payload }, crc, behind))
}

/// The fields of a frame's header, whose checksum is somebody else's matter.
pub(super) fn decode_head(head: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, Invalid> {
    let kind = match head[0] {
        1 => FrameKind::Open,
        2 => FrameKind::Append,
        3 => FrameKind::Extent,
        4 => FrameKind::Truncate,
        5 => FrameKind::Start,
        6 => FrameKind::Epoch,
        7 => FrameKind::Retire,
        8 => FrameKind::Delete,
        _ => return Err(Invalid::Field("frame kind")),
    };
    Ok(FrameHeader {
        kind,
        is_loose: head[1] & 1 != 0,
        auxiliary: u32_at(head, 4),
        incarnation: Incarnation(u64_at(head, 8)),
        base_offset: Offset(i64_at(head, 16)),
        end_offset: Offset(i64_at(head, 24)),
        segment: Offset(i64_at(head, 32)),
        position: u32_at(head, 40),
        payload_bytes: u32_at(head, 44),
    })
}

/// The first [`HEADER_BYTES`] of `bytes` when magic, version and checksum are right.
fn checked_head(
    bytes: &[u8],
    magic: impl Fn(&[u8; HEADER_BYTES]) -> bool,
    version_at: usize,
) -> Result<&[u8; HEADER_BYTES], Invalid> {
    let head = bytes.first_chunk::<HEADER_BYTES>().ok_or(Invalid::Short)?;
    if !magic(head) {
        return Err(Invalid::Magic);
    }
    if crc32c::crc32c(&head[..60]) != u32_at(head, 60) {
        return Err(Invalid::Checksum);
    }
    let version = u16_at(head, version_at);
    if version != FORMAT_VERSION {
        return Err(Invalid::Version(version));
    }
    Ok(head)
}

fn seal(header: &mut [u8; HEADER_BYTES]) {
    let crc = crc32c::crc32c(&header[..60]);
    header[60..64].copy_from_slice(&crc.to_le_bytes());
}

fn u16_at<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[allow(clippy::cast_possible_wrap)] // the same 64 bits, read as Kafka's signed offset
fn i64_at<const N: usize>(bytes: &[u8; N], at: usize) -> i64 {
    u64_at(bytes, at) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append_frame() -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Append,
            is_loose: false,
            auxiliary: 0,
            incarnation: Incarnation(7),
            base_offset: Offset(10),
            end_offset: Offset(12),
            segment: Offset(0),
            position: 100,
            payload_bytes: 5,
        }
    }

    fn commit_of(frame: &FrameHeader, payload: &[u8]) -> (CommitHeader, Vec<u8>) {
        let (head, crc) = frame.encode(crc32c::crc32c(payload));
        let bytes = [&head[..], payload].concat();
        let header = CommitHeader {
            generation: 3,
            sequence: 9,
            durable_sequence: 8,
            frames_bytes: bytes.len() as u32,
            frames: 1,
            frames_crc: crc32c::crc32c(&crc.to_le_bytes()),
        };
        (header, bytes)
    }

    #[test]
    fn headers_and_frames_survive_the_round_trip() {
        let file = FileHeader {
            shard: 3,
            generation: 1 << 40,
        };
        assert_eq!(FileHeader::decode(&file.encode()), Ok(file));
        let frame = append_frame();
        let (header, bytes) = commit_of(&frame, b"hello");
        assert_eq!(CommitHeader::decode(&header.encode()), Ok(header));
        let read = frames(&header, &bytes).expect("valid");
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].header, frame);
        assert_eq!(read[0].payload, b"hello");
    }

    #[test]
    fn any_flipped_bit_of_a_commit_is_found() {
        let (header, bytes) = commit_of(&append_frame(), b"hello");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(frames(&header, &bad).is_err(), "bit {bit} of the frames");
        }
        let head = header.encode();
        for bit in 0..head.len() * 8 {
            let mut bad = head;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(CommitHeader::decode(&bad).is_err(), "bit {bit} of the header");
        }
    }

    #[test]
    fn impossible_lengths_are_refused_before_anything_is_allocated() {
        let (mut header, bytes) = commit_of(&append_frame(), b"hello");
        header.frames = u32::MAX;
        assert_eq!(frames(&header, &bytes), Err(Invalid::Field("frame count")));
        header.frames_bytes = u32::MAX;
        assert_eq!(frames(&header, &bytes), Err(Invalid::Short));
        assert_eq!(
            CommitHeader::decode(&header.encode()),
            Err(Invalid::Field("commit length"))
        );
    }

    #[test]
    fn a_directory_name_that_would_leave_the_log_directory_is_refused() {
        let id = LogId::default();
        for name in ["", "..", "a/b", ".penstock", "a\0"] {
            let payload = OpenPayload {
                id,
                directory: name.to_owned(),
            };
            assert!(OpenPayload::decode(&payload.encode()).is_err(), "{name:?}");
        }
        let good = OpenPayload {
            id,
            directory: "topic.a-0".to_owned(),
        };
        assert_eq!(OpenPayload::decode(&good.encode()), Ok(good));
    }
}
