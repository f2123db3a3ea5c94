//! The two bytes in front of messages that lie outside of requests: the version in front of a value, the number of the
//! record type in front of a key. Values and keys of coordinator topics, what group members exchange, and control
//! records are framed like this.

use bytes::Bytes;

use crate::error::{DecodeError, DecodeFault, EncodeError};
use crate::message::Message;
use crate::reader::Reader;
use crate::writer::Writer;

/// A key's body is always written in this version: what follows the number of the type must not depend on who wrote it,
/// because compaction compares keys byte by byte.
const KEY_VERSION: i16 = 0;

/// `value` with its version in front: the value of a coordinator's record, a member's subscription or assignment.
///
/// # Errors
/// As [`Message::encode`].
pub fn versioned_bytes<M: Message>(value: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut w = Writer::new();
    w.i16(version);
    value.encode(&mut w, version)?;
    w.into_bytes()
}

/// Reads the version in front and the message behind it. Bytes behind the message are ignored, as Kafka does.
///
/// # Errors
/// [`DecodeFault::Version`] for a version that does not exist, and when the bytes are not the message. The limits are
/// those for clients: members of a group write such bytes themselves.
pub fn from_versioned_bytes<M: Message>(bytes: Bytes) -> Result<(i16, M), DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.i16().map_err(|e| e.within(M::NAME, -1))?;
    Ok((version, M::decode(&mut r, version)?))
}

/// As [`from_versioned_bytes`], but a version above the highest known one is read as that, which is what Kafka does with
/// a member's subscription and assignment: later versions only append.
///
/// # Errors
/// As [`from_versioned_bytes`], for versions below the lowest one.
pub fn from_versioned_bytes_lenient<M: Message>(bytes: Bytes) -> Result<M, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = r.i16().map_err(|e| e.within(M::NAME, -1))?;
    M::decode(&mut r, version.min(M::MAX_VERSION))
}

/// The key of a coordinator's record: the number of its type, then its body.
///
/// # Errors
/// As [`Message::encode`].
pub fn record_key_bytes<M: Message>(key: &M) -> Result<Bytes, EncodeError> {
    let mut w = Writer::new();
    w.i16(M::API_KEY);
    key.encode(&mut w, KEY_VERSION)?;
    w.into_bytes()
}

/// The number of the type at the start of a coordinator's record key, by which the type for [`from_record_key_bytes`] is
/// chosen; `None` when there are no two bytes.
pub fn record_key_type(key: &[u8]) -> Option<i16> {
    key.first_chunk().map(|bytes| i16::from_be_bytes(*bytes))
}

/// Reads a coordinator's record key of type `M`.
///
/// # Errors
/// [`DecodeFault::ApiKey`] when it is of another type, and when the bytes are not the key.
pub fn from_record_key_bytes<M: Message>(bytes: Bytes) -> Result<M, DecodeError> {
    let mut r = Reader::new(bytes);
    let found = r.i16().map_err(|e| e.within(M::NAME, -1))?;
    if found != M::API_KEY {
        return Err(r.fault(DecodeFault::ApiKey(found)).within(M::NAME, KEY_VERSION));
    }
    M::decode(&mut r, KEY_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{
        ConsumerProtocolSubscription, GroupMetadataKey, OffsetCommitKey, OffsetCommitValue,
    };

    #[test]
    fn an_offset_commit_is_framed_as_kafka_frames_it() {
        let key = OffsetCommitKey {
            group: "g".into(),
            topic: "t".into(),
            partition: 3,
        };
        let bytes = record_key_bytes(&key).unwrap();
        assert_eq!(bytes, Bytes::from_static(b"\0\x01\0\x01g\0\x01t\0\0\0\x03"));
        assert_eq!(record_key_type(&bytes), Some(1));
        assert_eq!(
            from_record_key_bytes::<OffsetCommitKey>(bytes.clone()).unwrap(),
            key
        );
        let other = from_record_key_bytes::<GroupMetadataKey>(bytes).unwrap_err();
        assert_eq!(other.fault, DecodeFault::ApiKey(1));

        let value = OffsetCommitValue {
            offset: 7,
            commit_timestamp: 9,
            ..OffsetCommitValue::default()
        };
        let bytes = versioned_bytes(&value, 3).unwrap();
        let expected = b"\0\x03\0\0\0\0\0\0\0\x07\xff\xff\xff\xff\0\0\0\0\0\0\0\0\0\x09";
        assert_eq!(bytes, Bytes::from_static(expected));
        assert_eq!(from_versioned_bytes(bytes).unwrap(), (3, value));
    }

    #[test]
    fn a_subscription_of_a_later_version_is_read_as_the_highest_known() {
        let subscription = ConsumerProtocolSubscription {
            topics: vec!["t".into()],
            ..ConsumerProtocolSubscription::default()
        };
        let mut bytes = versioned_bytes(&subscription, 3).unwrap().to_vec();
        bytes[1] = 9;
        bytes.extend([1, 2, 3]);
        let read = from_versioned_bytes_lenient(Bytes::from(bytes.clone())).unwrap();
        assert_eq!(subscription, read);
        let strict = from_versioned_bytes::<ConsumerProtocolSubscription>(bytes.into()).unwrap_err();
        assert_eq!(strict.fault, DecodeFault::Version);
        let negative =
            from_versioned_bytes_lenient::<ConsumerProtocolSubscription>(Bytes::from_static(&[0xff, 0xff]));
        assert_eq!(negative.unwrap_err().fault, DecodeFault::Version);
    }
}
