//! Records of internal topics as JSON: groups and committed offsets, transactions, metadata. What cannot be read is said in
//! place of it, so that the rest of a file is still shown.

use bytes::Bytes;
use protocol::messages::cluster_metadata as metadata_records;
use protocol::messages::consumer_offsets as groups;
use protocol::messages::transaction_state::{TransactionLogKey, TransactionLogValue};
use protocol::{DecodeError, Message, Reader};
use serde_json::{Value, json};
use shard::coordinator::group::GroupRecord;

use super::records::hex;

/// A record of `__consumer_offsets`.
pub(super) fn group(key: Option<&[u8]>, value: Option<&[u8]>) -> Value {
    let Some(key) = key else {
        return json!({"error": "no key"});
    };
    let (key, value) = (Bytes::copy_from_slice(key), value.map(Bytes::copy_from_slice));
    match GroupRecord::decode(&key, value.as_ref()) {
        Ok(Some(record)) => classic(&record),
        Ok(None) => of_other_kinds(&key, value.as_ref()).unwrap_or_else(|error| unreadable(&error)),
        Err(error) => unreadable(&error),
    }
}

fn unreadable(error: &DecodeError) -> Value {
    json!({"error": error.to_string()})
}

fn classic(record: &GroupRecord) -> Value {
    match record {
        GroupRecord::Offset {
            group,
            topic,
            partition,
            offset,
        } => {
            let mut value = json!({
                "record": "offset",
                "group": group.as_str(),
                "topic": topic.as_str(),
                "partition": partition,
            });
            match offset {
                None => value["deleted"] = json!(true),
                Some(offset) => {
                    value["offset"] = json!(offset.offset);
                    value["leader_epoch"] = json!(offset.leader_epoch);
                    value["metadata"] = json!(offset.metadata.as_str());
                    value["committed_ms"] = json!(offset.committed_ms);
                    value["expires_ms"] = json!(offset.expires_ms);
                }
            }
            value
        }
        GroupRecord::Group { group, value: None } => {
            json!({"record": "group", "group": group.as_str(), "deleted": true})
        }
        GroupRecord::Group {
            group,
            value: Some(value),
        } => {
            let members = value.members.iter().map(|member| {
                json!({
                    "member": member.member_id.as_str(),
                    "instance": member.group_instance_id.as_ref().map(|id| id.as_str()),
                    "client": member.client_id.as_str(),
                    "host": member.client_host.as_str(),
                    "session_timeout_ms": member.session_timeout,
                    "rebalance_timeout_ms": member.rebalance_timeout,
                    "subscription": hex(&member.subscription),
                    "assignment": hex(&member.assignment),
                })
            });
            json!({
                "record": "group",
                "group": group.as_str(),
                "protocol_type": value.protocol_type.as_str(),
                "generation": value.generation,
                "protocol": value.protocol.as_ref().map(|name| name.as_str()),
                "leader": value.leader.as_ref().map(|name| name.as_str()),
                "state_since_ms": value.current_state_timestamp,
                "members": members.collect::<Vec<_>>(),
            })
        }
    }
}

/// Consumer, share and streams groups of the newer protocols.
fn of_other_kinds(key: &Bytes, value: Option<&Bytes>) -> Result<Value, DecodeError> {
    let mut reader = Reader::new(key.clone());
    let kind = reader.i16()?;
    macro_rules! kinds {
        ($($number:literal $key:ident $value:ident,)*) => {
            match kind {
                $($number => both::<groups::$key, groups::$value>(&mut reader, value),)*
                _ => Ok(json!({"error": format!("record of unknown type {kind}")})),
            }
        };
    }
    kinds! {
        3 ConsumerGroupMetadataKey ConsumerGroupMetadataValue,
        4 ConsumerGroupPartitionMetadataKey ConsumerGroupPartitionMetadataValue,
        5 ConsumerGroupMemberMetadataKey ConsumerGroupMemberMetadataValue,
        6 ConsumerGroupTargetAssignmentMetadataKey ConsumerGroupTargetAssignmentMetadataValue,
        7 ConsumerGroupTargetAssignmentMemberKey ConsumerGroupTargetAssignmentMemberValue,
        8 ConsumerGroupCurrentMemberAssignmentKey ConsumerGroupCurrentMemberAssignmentValue,
        10 ShareGroupMemberMetadataKey ShareGroupMemberMetadataValue,
        11 ShareGroupMetadataKey ShareGroupMetadataValue,
        12 ShareGroupTargetAssignmentMetadataKey ShareGroupTargetAssignmentMetadataValue,
        13 ShareGroupTargetAssignmentMemberKey ShareGroupTargetAssignmentMemberValue,
        14 ShareGroupCurrentMemberAssignmentKey ShareGroupCurrentMemberAssignmentValue,
        15 ShareGroupStatePartitionMetadataKey ShareGroupStatePartitionMetadataValue,
        16 ConsumerGroupRegularExpressionKey ConsumerGroupRegularExpressionValue,
        17 StreamsGroupMetadataKey StreamsGroupMetadataValue,
        19 StreamsGroupMemberMetadataKey StreamsGroupMemberMetadataValue,
        20 StreamsGroupTargetAssignmentMetadataKey StreamsGroupTargetAssignmentMetadataValue,
        21 StreamsGroupTargetAssignmentMemberKey StreamsGroupTargetAssignmentMemberValue,
        22 StreamsGroupCurrentMemberAssignmentKey StreamsGroupCurrentMemberAssignmentValue,
        23 StreamsGroupTopologyKey StreamsGroupTopologyValue,
    }
}

/// Key and value of one kind, by their names and fields.
fn both<K: Message, V: Message>(key: &mut Reader, value: Option<&Bytes>) -> Result<Value, DecodeError> {
    let key = K::decode(key, 0)?;
    let value = value.map(of_version::<V>).transpose()?;
    let name = V::NAME.strip_suffix("Value").unwrap_or(V::NAME);
    Ok(json!({
        "record": name,
        "key": fields(&key),
        "value": value.as_ref().map(fields),
    }))
}

/// The fields of a message as our code names them.
fn fields<M: Message>(message: &M) -> String {
    let text = format!("{message:?}");
    text.strip_prefix(M::NAME)
        .map_or_else(|| text.clone(), |rest| rest.trim().to_owned())
}

fn of_version<V: Message>(value: &Bytes) -> Result<V, DecodeError> {
    let mut value = Reader::new(value.clone());
    let version = value.i16()?;
    V::decode(&mut value, version)
}

/// A record of `__transaction_state`.
pub(super) fn transaction(key: Option<&[u8]>, value: Option<&[u8]>) -> Value {
    const STATES: [&str; 8] = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ];
    let read = || -> Result<Value, DecodeError> {
        let mut key = Reader::new(Bytes::copy_from_slice(key.unwrap_or_default()));
        let kind = key.i16()?;
        if kind != 0 {
            return Ok(json!({"error": format!("record of unknown type {kind}")}));
        }
        let id = TransactionLogKey::decode(&mut key, 0)?.transactional_id;
        let Some(value) = value.map(Bytes::copy_from_slice) else {
            return Ok(json!({"record": "transaction", "transactional_id": id.as_str(), "deleted": true}));
        };
        let value: TransactionLogValue = of_version(&value)?;
        let state = usize::try_from(value.transaction_status)
            .ok()
            .and_then(|at| STATES.get(at));
        let partitions = value.transaction_partitions.iter().flatten();
        let partitions: Vec<Value> = partitions
            .map(|one| json!({"topic": one.topic.as_str(), "partitions": one.partition_ids}))
            .collect();
        Ok(json!({
            "record": "transaction",
            "transactional_id": id.as_str(),
            "state": state,
            "producer_id": value.producer_id,
            "producer_epoch": value.producer_epoch,
            "timeout_ms": value.transaction_timeout_ms,
            "partitions": partitions,
            "updated_ms": value.transaction_last_update_timestamp_ms,
            "started_ms": value.transaction_start_timestamp_ms,
        }))
    };
    read().unwrap_or_else(|error| unreadable(&error))
}

/// A record of the metadata log.
pub(super) fn metadata(value: Option<&[u8]>) -> Value {
    let read = || -> Result<Value, DecodeError> {
        let mut reader = Reader::new(Bytes::copy_from_slice(value.unwrap_or_default()));
        let frame = reader.uvarint()?;
        let (kind, version) = (reader.uvarint()?, reader.uvarint()?);
        let version = i16::try_from(version).unwrap_or(i16::MAX);
        if frame != 1 {
            return Ok(json!({"error": format!("frame version {frame}")}));
        }
        macro_rules! kinds {
            ($($record:ident)*) => {
                $(if i16::try_from(kind) == Ok(metadata_records::$record::API_KEY) {
                    let record = metadata_records::$record::decode(&mut reader, version)?;
                    let name = metadata_records::$record::NAME;
                    return Ok(json!({"record": name, "version": version, "fields": fields(&record)}));
                })*
            };
        }
        kinds! {
            RegisterBrokerRecord UnregisterBrokerRecord TopicRecord PartitionRecord ConfigRecord PartitionChangeRecord
            FenceBrokerRecord UnfenceBrokerRecord RemoveTopicRecord DelegationTokenRecord UserScramCredentialRecord
            FeatureLevelRecord ClientQuotaRecord ProducerIdsRecord BrokerRegistrationChangeRecord
            AccessControlEntryRecord RemoveAccessControlEntryRecord NoOpRecord ZkMigrationStateRecord
            RemoveUserScramCredentialRecord BeginTransactionRecord EndTransactionRecord AbortTransactionRecord
            RemoveDelegationTokenRecord RegisterControllerRecord ClearElrRecord
        }
        Ok(json!({"error": format!("record of unknown type {kind}")}))
    };
    read().unwrap_or_else(|error| unreadable(&error))
}

#[cfg(test)]
mod tests {
    use protocol::{Str, Writer};

    use super::*;

    #[test]
    fn what_cannot_be_read_is_said() {
        assert_eq!(group(None, None), json!({"error": "no key"}));
        assert!(group(Some(&[0]), None)["error"].is_string());
        assert_eq!(
            group(Some(&[0, 99]), None),
            json!({"error": "record of unknown type 99"})
        );
        assert!(transaction(Some(&[0, 0]), None)["error"].is_string());
        assert!(metadata(Some(&[])).get("error").is_some());
        assert_eq!(
            metadata(Some(&[1, 100, 0])),
            json!({"error": "record of unknown type 100"})
        );
    }

    #[test]
    fn groups_of_every_kind_and_metadata_are_named() {
        let mut key = Writer::new();
        key.i16(3);
        let of_group = groups::ConsumerGroupMetadataKey {
            group_id: Str::from_static("g"),
        };
        of_group.encode(&mut key, 0).unwrap();
        let shown = group(Some(&key.into_bytes().unwrap()), None);
        assert_eq!(shown["record"], "ConsumerGroupMetadata");
        assert!(shown["key"].as_str().unwrap().contains("\"g\""), "{shown}");

        let topic = metadata_records::TopicRecord {
            name: Str::from_static("orders"),
            topic_id: protocol::Uuid([7; 16]),
        };
        let bytes = shard::controller::MetadataRecord::from(topic).to_bytes();
        let shown = metadata(Some(&bytes));
        assert_eq!(shown["record"], "TopicRecord");
        assert!(shown["fields"].as_str().unwrap().contains("orders"), "{shown}");
    }
}
