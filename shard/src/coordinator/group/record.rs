//! The records of `__consumer_offsets` that classic groups are made of, between their Kafka form (keys of version 0 to 2,
//! values of several versions) and ours. Facts: `kafka-surface.md` §5.4; exporters read these records directly.

use bytes::Bytes;
use protocol::framing::{
    from_record_key_bytes, from_versioned_bytes, record_key_bytes, record_key_type, versioned_bytes,
};
use protocol::messages::consumer_offsets::{
    GroupMetadataKey, GroupMetadataValue, LegacyOffsetCommitKey, LegacyOffsetCommitValue, MemberMetadata,
    OffsetCommitKey, OffsetCommitValue,
};
use protocol::{DecodeError, EncodeError, Message, Str};

use super::offsets::CommittedOffset;

/// The version of an offset's value that Kafka 4.3 writes, and the one that can hold an expiry.
const OFFSET_VERSION: i16 = 4;
const OFFSET_VERSION_WITH_EXPIRY: i16 = 1;
/// The version of a group's value that Kafka 4.3 writes.
const GROUP_VERSION: i16 = 3;

/// What the allocation of an offset's metadata takes beside the text, bytes.
const TEXT_BYTES: u64 = 40;

/// One record. A missing value is a tombstone.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupRecord {
    /// A committed offset.
    Offset {
        /// The group.
        group: Str,
        /// The topic.
        topic: Str,
        /// The partition.
        partition: i32,
        /// The offset, or none any more.
        offset: Option<CommittedOffset>,
    },
    /// A group's members and their assignments.
    Group {
        /// The group.
        group: Str,
        /// What it was when it was written, or none any more.
        value: Option<GroupMetadataValue>,
    },
}

impl GroupRecord {
    /// The group that it is about.
    pub(in crate::coordinator) const fn group(&self) -> &Str {
        match self {
            Self::Offset { group, .. } | Self::Group { group, .. } => group,
        }
    }

    /// What it takes while it is written, bytes, with what it may share with its group: that may change meanwhile.
    pub(super) fn bytes(&self) -> u64 {
        let beside = match self {
            Self::Offset { topic, offset, .. } => {
                topic.len() + offset.as_ref().map_or(0, |offset| offset.metadata.len())
            }
            Self::Group { value, .. } => value.as_ref().map_or(0, |value| {
                let name = |name: &Option<Str>| name.as_ref().map_or(0, |name| name.len());
                value.protocol_type.len()
                    + name(&value.protocol)
                    + name(&value.leader)
                    + value.members.iter().map(member_bytes).sum::<usize>()
            }),
        };
        size_of::<Self>() as u64 + TEXT_BYTES + beside as u64
    }

    /// Key and value as they are stored.
    ///
    /// # Errors
    /// When a field is longer than its length can say.
    pub fn encode(&self) -> Result<(Bytes, Option<Bytes>), EncodeError> {
        match self {
            Self::Offset {
                group,
                topic,
                partition,
                offset,
            } => {
                let key = OffsetCommitKey {
                    group: group.clone(),
                    topic: topic.clone(),
                    partition: *partition,
                };
                let value = offset.as_ref().map(offset_value).transpose()?;
                Ok((record_key_bytes(&key)?, value))
            }
            Self::Group { group, value } => {
                let key = GroupMetadataKey { group: group.clone() };
                let value = value
                    .as_ref()
                    .map(|value| versioned_bytes(value, GROUP_VERSION))
                    .transpose()?;
                Ok((record_key_bytes(&key)?, value))
            }
        }
    }

    /// The record of a key and a value; `None` for the records of other kinds of groups.
    ///
    /// # Errors
    /// When the bytes are not what their version says.
    pub fn decode(key: &Bytes, value: Option<&Bytes>) -> Result<Option<Self>, DecodeError> {
        let record = match record_key_type(key) {
            Some(LegacyOffsetCommitKey::API_KEY) => {
                let key: LegacyOffsetCommitKey = from_record_key_bytes(key.clone())?;
                Self::Offset {
                    group: key.group,
                    topic: key.topic,
                    partition: key.partition,
                    offset: value.map(legacy_offset).transpose()?,
                }
            }
            // A key of one byte is none: it says so when it is read.
            Some(OffsetCommitKey::API_KEY) | None => {
                let key: OffsetCommitKey = from_record_key_bytes(key.clone())?;
                Self::Offset {
                    group: key.group,
                    topic: key.topic,
                    partition: key.partition,
                    offset: value.map(committed_offset).transpose()?,
                }
            }
            Some(GroupMetadataKey::API_KEY) => {
                let key: GroupMetadataKey = from_record_key_bytes(key.clone())?;
                let value = value.cloned().map(from_versioned_bytes::<GroupMetadataValue>);
                Self::Group {
                    group: key.group,
                    value: value.transpose()?.map(|(_, value)| value),
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(record))
    }
}

fn member_bytes(member: &MemberMetadata) -> usize {
    let instance = member.group_instance_id.as_ref();
    size_of::<MemberMetadata>()
        + member.member_id.len()
        + instance.map_or(0, |instance| instance.len())
        + member.client_id.len()
        + member.client_host.len()
        + member.subscription.len()
        + member.assignment.len()
}

fn offset_value(offset: &CommittedOffset) -> Result<Bytes, EncodeError> {
    let version = if offset.expires_ms.is_some() {
        OFFSET_VERSION_WITH_EXPIRY
    } else {
        OFFSET_VERSION
    };
    let value = OffsetCommitValue {
        offset: offset.offset,
        leader_epoch: offset.leader_epoch,
        metadata: offset.metadata.clone(),
        commit_timestamp: offset.committed_ms,
        expire_timestamp: offset.expires_ms.unwrap_or(-1),
        topic_id: offset.topic_id,
    };
    versioned_bytes(&value, version)
}

fn committed_offset(value: &Bytes) -> Result<CommittedOffset, DecodeError> {
    let (_, value): (i16, OffsetCommitValue) = from_versioned_bytes(value.clone())?;
    Ok(CommittedOffset {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata.detached(),
        committed_ms: value.commit_timestamp,
        expires_ms: (value.expire_timestamp >= 0).then_some(value.expire_timestamp),
        topic_id: value.topic_id,
    })
}

fn legacy_offset(value: &Bytes) -> Result<CommittedOffset, DecodeError> {
    // Its version is in front as a key's type is.
    if record_key_type(value) != Some(0) {
        return committed_offset(value);
    }
    let (_, value): (i16, LegacyOffsetCommitValue) = from_versioned_bytes(value.clone())?;
    Ok(CommittedOffset {
        offset: value.offset,
        metadata: value.metadata.detached(),
        committed_ms: value.commit_timestamp,
        ..CommittedOffset::default()
    })
}

#[cfg(test)]
mod tests {
    use protocol::Uuid;

    use super::*;

    fn comes_back(record: &GroupRecord) {
        let (key, value) = record.encode().unwrap();
        assert_eq!(
            GroupRecord::decode(&key, value.as_ref()).unwrap().as_ref(),
            Some(record)
        );
    }

    fn offset(expires_ms: Option<i64>, topic_id: Uuid) -> GroupRecord {
        GroupRecord::Offset {
            group: "g".into(),
            topic: "t".into(),
            partition: 3,
            offset: Some(CommittedOffset {
                offset: 42,
                leader_epoch: -1,
                metadata: "m".into(),
                committed_ms: 1_000,
                expires_ms,
                topic_id,
            }),
        }
    }

    #[test]
    fn records_come_back_as_they_were_written() {
        comes_back(&offset(None, Uuid::ONE));
        comes_back(&offset(Some(9_000), Uuid::default()));
        comes_back(&GroupRecord::Offset {
            group: "g".into(),
            topic: "t".into(),
            partition: 0,
            offset: None,
        });
        comes_back(&GroupRecord::Group {
            group: "g".into(),
            value: None,
        });
        comes_back(&GroupRecord::Group {
            group: "g".into(),
            value: Some(GroupMetadataValue {
                protocol_type: "consumer".into(),
                generation: 7,
                protocol: Some("range".into()),
                leader: Some("m-1".into()),
                current_state_timestamp: 5,
                members: vec![MemberMetadata {
                    member_id: "m-1".into(),
                    group_instance_id: Some("i".into()),
                    session_timeout: 10_000,
                    rebalance_timeout: 60_000,
                    assignment: Bytes::from_static(b"a"),
                    ..MemberMetadata::default()
                }],
            }),
        });
    }

    #[test]
    fn an_offset_is_written_in_the_version_kafka_writes() {
        for (record, version) in [
            (offset(None, Uuid::ONE), 4_i16),
            (offset(Some(9), Uuid::default()), 1),
        ] {
            let (key, value) = record.encode().unwrap();
            assert_eq!(key[..2], 1_i16.to_be_bytes());
            assert_eq!(value.unwrap()[..2], version.to_be_bytes());
        }
    }

    #[test]
    fn other_kinds_are_passed_over_and_damage_is_an_error() {
        assert_eq!(
            GroupRecord::decode(&Bytes::from_static(&[0, 6, 0, 1, b'g']), None),
            Ok(None)
        );
        assert!(GroupRecord::decode(&Bytes::from_static(&[0, 1, 0, 9, b'g']), None).is_err());
        assert!(GroupRecord::decode(&Bytes::new(), None).is_err());
    }
}
