//! Messages between the nodes of a quorum: raft's, in our own encoding. Every length is checked against what is there before
//! anything is allocated, every entry and snapshot is parsed before raft sees it, and kinds that a node may only tell itself
//! do not exist on the wire. All numbers big-endian.
//!
//! ```text
//! u8  version, 1
//! u8  kind (see `Kind`)
//! u64 from, to (node ids), term, log term, index, commit, commit term, request snapshot, reject hint
//! u8  reject
//! u32 entry count, then each: u64 term, u64 index, u32 length, its batch (empty: a leader's first entry)
//! u32 context length, context
//! u32 snapshot length, snapshot (0: none), u64 its index, u64 its term
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use raft::eraftpb::{Entry, Message, MessageType};

use super::entry::{ENTRY_BYTES_MAX, EntryError, LogEntry};
use super::snapshot::{SNAPSHOT_BYTES_MAX, Snapshot};
use super::voters::{node_of, raft_id};
use crate::ids::BrokerId;

/// The most entries of one message.
pub const ENTRIES_MAX: usize = 4_096;

/// The most bytes of a message's context (a read's or an election's mark).
const CONTEXT_BYTES_MAX: usize = 256;

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 2 + 9 * 8 + 1;

/// A message from one node of the quorum to another.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerMessage(Message);

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the lengths say, or more.
    #[error("a quorum message has too few or too many bytes")]
    Length,
    /// A version or kind that is not known here.
    #[error("a quorum message of unknown version or kind {0}")]
    Kind(u8),
    /// A number beyond its bound.
    #[error("a quorum message's {0} is out of bounds")]
    Bound(&'static str),
    /// An entry or a snapshot is damaged.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

/// The kinds on the wire. raft's MsgHup, MsgBeat, MsgCheckQuorum, MsgUnreachable and MsgSnapStatus are a node's own;
/// MsgPropose and MsgReadIndex are not forwarded.
const KINDS: [(u8, MessageType); 11] = [
    (1, MessageType::MsgAppend),
    (2, MessageType::MsgAppendResponse),
    (3, MessageType::MsgRequestVote),
    (4, MessageType::MsgRequestVoteResponse),
    (5, MessageType::MsgSnapshot),
    (6, MessageType::MsgHeartbeat),
    (7, MessageType::MsgHeartbeatResponse),
    (8, MessageType::MsgTransferLeader),
    (9, MessageType::MsgTimeoutNow),
    (10, MessageType::MsgRequestPreVote),
    (11, MessageType::MsgRequestPreVoteResponse),
];

impl PeerMessage {
    /// Who sent it.
    #[must_use]
    pub fn from(&self) -> Option<BrokerId> {
        node_of(self.0.from)
    }

    /// Whom it is for.
    #[must_use]
    pub fn to(&self) -> Option<BrokerId> {
        node_of(self.0.to)
    }

    pub(super) fn from_raft(message: Message) -> Option<Self> {
        kind_of(message.get_msg_type()).map(|_| Self(message))
    }

    pub(super) fn into_raft(self) -> Message {
        self.0
    }

    /// The bytes of the message.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        let message = &self.0;
        let mut out = BytesMut::new();
        out.put_u8(VERSION);
        out.put_u8(kind_of(message.get_msg_type()).expect("only what has a kind becomes a message"));
        let numbers = [
            message.from,
            message.to,
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.commit_term,
            message.request_snapshot,
            message.reject_hint,
        ];
        numbers.iter().for_each(|number| out.put_u64(*number));
        out.put_u8(u8::from(message.reject));
        put_len(&mut out, message.entries.len());
        for entry in &message.entries {
            out.put_u64(entry.term);
            out.put_u64(entry.index);
            put_bytes(&mut out, &entry.data);
        }
        put_bytes(&mut out, &message.context);
        let snapshot = message.get_snapshot();
        put_bytes(&mut out, &snapshot.data);
        out.put_u64(snapshot.get_metadata().index);
        out.put_u64(snapshot.get_metadata().term);
        out.freeze()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`WireError`].
    pub fn from_bytes(mut bytes: Bytes) -> Result<Self, WireError> {
        if bytes.len() < FIXED_BYTES {
            return Err(WireError::Length);
        }
        let (version, kind) = (bytes.get_u8(), bytes.get_u8());
        if version != VERSION {
            return Err(WireError::Kind(version));
        }
        let mut message = Message::default();
        message.set_msg_type(type_of(kind).ok_or(WireError::Kind(kind))?);
        message.from = node_number(bytes.get_u64())?;
        message.to = node_number(bytes.get_u64())?;
        message.term = term(bytes.get_u64())?;
        message.log_term = term(bytes.get_u64())?;
        message.index = bytes.get_u64();
        message.commit = bytes.get_u64();
        message.commit_term = term(bytes.get_u64())?;
        message.request_snapshot = bytes.get_u64();
        message.reject_hint = bytes.get_u64();
        message.reject = bytes.get_u8() != 0;
        read_entries(&mut bytes, &mut message)?;
        message.context = take(&mut bytes, CONTEXT_BYTES_MAX)?;
        read_snapshot(&mut bytes, &mut message)?;
        if bytes.has_remaining() {
            Err(WireError::Length)
        } else {
            Ok(Self(message))
        }
    }
}

fn read_entries(bytes: &mut Bytes, message: &mut Message) -> Result<(), WireError> {
    let count = take_u32(bytes)?;
    if count > ENTRIES_MAX {
        return Err(WireError::Bound("number of entries"));
    }
    let mut expected = message.index;
    for _ in 0..count {
        let (entry_term, index) = (term(take_u64(bytes)?)?, take_u64(bytes)?);
        // A leader sends the entries that follow the one it names, in order.
        expected = expected.checked_add(1).ok_or(WireError::Bound("index"))?;
        if index != expected || entry_term > message.term {
            return Err(WireError::Bound("entry's position"));
        }
        let data = take(bytes, ENTRY_BYTES_MAX)?;
        if !data.is_empty() {
            let entry = LogEntry::from_batch(&data)?;
            if (entry.index, entry.term) != (index, entry_term) {
                return Err(WireError::Bound("entry's index or term"));
            }
        }
        message.entries.push(Entry {
            term: entry_term,
            index,
            data,
            ..Entry::default()
        });
    }
    Ok(())
}

fn read_snapshot(bytes: &mut Bytes, message: &mut Message) -> Result<(), WireError> {
    let data = take(bytes, SNAPSHOT_BYTES_MAX)?;
    let (index, snapshot_term) = (take_u64(bytes)?, take_u64(bytes)?);
    if data.is_empty() {
        return match message.get_msg_type() {
            MessageType::MsgSnapshot => Err(WireError::Bound("snapshot")),
            _ => Ok(()),
        };
    }
    let parsed = Snapshot::from_bytes(&data, "")?;
    let position = parsed.image.position;
    if (position.index, position.term) != (index, snapshot_term) {
        return Err(WireError::Bound("snapshot's position"));
    }
    let snapshot = message.mut_snapshot();
    snapshot.data = data;
    let metadata = snapshot.mut_metadata();
    metadata.index = index;
    metadata.term = snapshot_term;
    metadata.set_conf_state(parsed.voters.conf_state());
    Ok(())
}

fn kind_of(kind: MessageType) -> Option<u8> {
    KINDS
        .iter()
        .find(|(_, known)| *known == kind)
        .map(|(number, _)| *number)
}

fn type_of(number: u8) -> Option<MessageType> {
    KINDS
        .iter()
        .find(|(known, _)| *known == number)
        .map(|(_, kind)| *kind)
}

/// raft's number of a node, which must be one.
fn node_number(number: u64) -> Result<u64, WireError> {
    match node_of(number) {
        Some(node) => Ok(raft_id(node)),
        None => Err(WireError::Bound("node")),
    }
}

/// A term is a leader epoch too: 31 bits.
fn term(number: u64) -> Result<u64, WireError> {
    if i32::try_from(number).is_ok() {
        Ok(number)
    } else {
        Err(WireError::Bound("term"))
    }
}

fn put_len(out: &mut BytesMut, len: usize) {
    out.put_u32(u32::try_from(len).expect("what goes out is bounded"));
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.put_slice(bytes);
}

fn take_u32(bytes: &mut Bytes) -> Result<usize, WireError> {
    let number = bytes.try_get_u32().map_err(|_| WireError::Length)?;
    usize::try_from(number).map_err(|_| WireError::Length)
}

fn take_u64(bytes: &mut Bytes) -> Result<u64, WireError> {
    bytes.try_get_u64().map_err(|_| WireError::Length)
}

fn take(bytes: &mut Bytes, max: usize) -> Result<Bytes, WireError> {
    let len = take_u32(bytes)?;
    if len > max {
        return Err(WireError::Bound("length"));
    }
    if len > bytes.remaining() {
        return Err(WireError::Length);
    }
    Ok(bytes.split_to(len))
}
