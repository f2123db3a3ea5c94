//! The metadata of a cluster of Apache Kafka, from its own metadata log, as our first snapshot: topics with their ids and
//! partitions, configs, producer ids. Pure: batches in, in the order of snapshot and log; then what was understood, what our
//! metadata has no place for, and why it cannot be taken over.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use protocol::messages::cluster_metadata as wire;
use protocol::record::{BATCH_HEADER_BYTES, BatchView, ControlRecord, Record};
use protocol::{DecodeLimits, Message, Reader, Str, Uuid};
use storage::types::Offset;

use super::snapshot::Snapshot;
use super::voters::{Voter, Voters};
use crate::controller::features::{self, METADATA_VERSION};
use crate::controller::{MetadataRecord, RecordError};
use crate::ids::BrokerId;
use crate::image::{ImageDelta, ImagePosition, MetadataImage, ResourceKind};

/// Things of one kind that are named in a report; the others are counted.
const NAMED_MAX: usize = 20;

/// Records between two transaction records that are held back.
const HELD_MAX: usize = 1 << 20;

/// Reads the metadata of a cluster, batch by batch.
#[derive(Debug)]
pub struct Takeover {
    cluster_id: String,
    delta: ImageDelta,
    /// Records of a transaction of the controller that has not ended.
    held: Option<Vec<MetadataRecord>>,
    /// Partitions that came before a lower one of their topic.
    early: BTreeMap<(Uuid, i32), wire::PartitionRecord>,
    beside: Beside,
    unknown: BTreeMap<i16, usize>,
    controllers: BTreeSet<i32>,
    end: Offset,
    epoch: i32,
    timestamp_ms: i64,
}

/// What our metadata has no place for, by what it is about.
#[derive(Debug, Default)]
struct Beside {
    acls: BTreeMap<Uuid, String>,
    scram: BTreeMap<(String, i8), String>,
    quotas: BTreeMap<(String, String), String>,
    tokens: BTreeMap<String, String>,
}

/// What was taken over.
#[derive(Clone, Debug)]
pub struct TakenOver {
    /// Our first snapshot.
    pub snapshot: Snapshot,
    /// One past the last offset of Kafka's metadata log: ours goes on there.
    pub end: Offset,
    /// The broker's epoch, which the mark of a clean stop names.
    pub broker_epoch: i64,
    /// The metadata version it had.
    pub metadata_version: i16,
    /// Features with their levels that are off from now on.
    pub features_off: Vec<(String, i16)>,
    /// What stays behind: the kind, how many, and some of them by name.
    pub left_behind: Vec<LeftBehind>,
}

/// Things of one kind that our metadata has no place for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// What they are.
    pub kind: &'static str,
    /// How many.
    pub count: usize,
    /// Some of them.
    pub some: Vec<String>,
}

/// Why metadata cannot be taken over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakeoverError {
    /// A batch or a record is damaged.
    #[error("the metadata log is damaged at offset {offset}: {reason}")]
    Damaged {
        /// Of the batch.
        offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// Records of types that this version does not know, with their numbers.
    #[error("the metadata log has records of unknown types: {0}")]
    Unknown(String),
    /// More than one node, or replicas on others.
    #[error("{0}")]
    NotAlone(String),
    /// It was written by a newer Kafka, or by none that is known.
    #[error("{0}")]
    Version(String),
}

impl Takeover {
    /// Begins with nothing of the cluster `cluster_id`.
    #[must_use]
    pub fn new(cluster_id: &str) -> Self {
        Self {
            cluster_id: cluster_id.to_owned(),
            delta: ImageDelta::new(&MetadataImage::empty(cluster_id)),
            held: None,
            early: BTreeMap::new(),
            beside: Beside::default(),
            unknown: BTreeMap::new(),
            controllers: BTreeSet::new(),
            end: Offset::ZERO,
            epoch: 0,
            timestamp_ms: 0,
        }
    }

    /// Whether a feature level was read so far; Kafka writes those first.
    #[must_use]
    pub fn has_features(&self) -> bool {
        !self.delta.image().features.is_empty()
    }

    /// A snapshot was read that ends before `end`, in that epoch.
    pub fn snapshot_ends(&mut self, end: Offset, epoch: i32) {
        self.end = self.end.max(end);
        self.epoch = self.epoch.max(epoch);
    }

    /// Takes the next batch of a snapshot or, if `is_log`, of the log. Returns whether it ended a snapshot.
    ///
    /// # Errors
    /// [`TakeoverError::Damaged`].
    pub fn batch(&mut self, bytes: &Bytes, is_log: bool) -> Result<bool, TakeoverError> {
        let batch = BatchView::parse(bytes, 0).map_err(|fault| damaged(-1, &fault))?;
        let header = *batch.header();
        let at = header.base_offset;
        batch.check_crc(0).map_err(|fault| damaged(at, &fault))?;
        if header.attributes.is_compressed() {
            return Err(damaged(at, &"the metadata log is never compressed"));
        }
        if is_log {
            self.end = self.end.max(Offset(header.next_offset()));
            self.epoch = self.epoch.max(header.leader_epoch);
            self.timestamp_ms = self.timestamp_ms.max(header.max_timestamp);
        }
        let mut rest = bytes.get(BATCH_HEADER_BYTES..).unwrap_or_default();
        let mut is_end = false;
        for _ in 0..header.record_count {
            let (record, size) = Record::parse(rest).map_err(|fault| damaged(at, &fault))?;
            rest = rest.get(size..).unwrap_or_default();
            if header.attributes.is_control() {
                is_end |= self.control(&record).map_err(|fault| damaged(at, &fault))?;
            } else {
                let value = record
                    .value
                    .ok_or_else(|| damaged(at, &"a record without a value"))?;
                self.record(&bytes.slice_ref(value))
                    .map_err(|reason| damaged(at, &reason))?;
            }
        }
        if rest.is_empty() {
            Ok(is_end)
        } else {
            Err(damaged(at, &"bytes behind the last record"))
        }
    }

    /// Whether it was a snapshot's last record.
    fn control(&mut self, record: &Record<'_>) -> Result<bool, protocol::record::ControlFault> {
        match ControlRecord::parse(record)? {
            ControlRecord::SnapshotHeader(header) => {
                self.timestamp_ms = self.timestamp_ms.max(header.last_contained_log_timestamp);
            }
            ControlRecord::SnapshotFooter(_) => return Ok(true),
            ControlRecord::Voters(voters) => {
                self.controllers = voters.voters.iter().map(|voter| voter.voter_id).collect();
            }
            _ => {}
        }
        Ok(false)
    }

    fn record(&mut self, bytes: &Bytes) -> Result<(), String> {
        let mut r = Reader::with_limits(bytes.clone(), DecodeLimits::TRUSTED);
        let mut number = || r.uvarint().map_err(|error| error.to_string());
        let (_, kind, version) = (number()?, number()?, number()?);
        let kind = i16::try_from(kind).unwrap_or(i16::MAX);
        let version = i16::try_from(version).unwrap_or(i16::MAX);
        match kind {
            wire::BeginTransactionRecord::API_KEY => self.held = Some(Vec::new()),
            wire::AbortTransactionRecord::API_KEY => self.held = None,
            wire::EndTransactionRecord::API_KEY => {
                for record in self.held.take().unwrap_or_default() {
                    self.apply(record)?;
                }
            }
            wire::RegisterControllerRecord::API_KEY => {
                let record = wire::RegisterControllerRecord::decode(&mut r, version);
                self.controllers
                    .insert(record.map_err(|error| error.to_string())?.controller_id);
            }
            wire::ZkMigrationStateRecord::API_KEY => {}
            _ => match MetadataRecord::from_bytes(bytes.clone()) {
                Ok(record) => match &mut self.held {
                    Some(held) if held.len() >= HELD_MAX => {
                        return Err("a transaction without end".to_owned());
                    }
                    Some(held) => held.push(record),
                    None => self.apply(record)?,
                },
                Err(RecordError::Kind(_)) => {
                    if !self
                        .beside
                        .take(&mut r, kind, version)
                        .map_err(|error| error.to_string())?
                    {
                        *self.unknown.entry(kind).or_default() += 1;
                    }
                }
                Err(error) => return Err(error.to_string()),
            },
        }
        Ok(())
    }

    /// Applies a record. Kafka writes the partitions of a topic in any order; here they follow each other.
    fn apply(&mut self, record: MetadataRecord) -> Result<(), String> {
        let MetadataRecord::Partition(mut partition) = record else {
            return self.delta.apply(&record).map_err(|error| error.to_string());
        };
        if partition.directories.is_empty() {
            partition.directories = vec![Uuid::ZERO; partition.replicas.len()]; // before Kafka 3.7
        }
        let topic = partition.topic_id;
        self.early.insert((topic, partition.partition_id), partition);
        loop {
            let known = self.delta.image().topics.by_id(storage::types::TopicId(topic.0));
            let next = known.map_or(0, |known| known.partitions.len());
            let next = i32::try_from(next).unwrap_or(i32::MAX);
            let Some(partition) = self.early.remove(&(topic, next)) else {
                return Ok(());
            };
            self.delta
                .apply(&partition.into())
                .map_err(|error| error.to_string())?;
        }
    }

    /// All was read: the metadata as that of the only node `node`, whose log directory is `directory`.
    ///
    /// # Errors
    /// [`TakeoverError`]: it cannot be taken over.
    pub fn finish(mut self, node: BrokerId, directory: Uuid) -> Result<TakenOver, TakeoverError> {
        self.check_known()?;
        let broker_epoch = self.check_alone(node)?;
        let (metadata_version, features_off) = self.set_features()?;
        let position = ImagePosition {
            index: u64::try_from(self.end.0).unwrap_or(0).max(1),
            term: u64::try_from(self.epoch).unwrap_or(0).max(1),
        };
        let mut own = ImageDelta::new(&MetadataImage::empty(&self.cluster_id));
        for mut record in self.delta.image().to_records() {
            match &mut record {
                // All its log directories become one.
                MetadataRecord::Partition(partition) => partition.directories = vec![directory],
                MetadataRecord::RegisterBroker(broker) => broker.log_dirs = vec![directory],
                _ => {}
            }
            own.apply(&record).map_err(|error| damaged(self.end.0, &error))?;
        }
        let voter = Voter {
            directory,
            endpoints: Vec::new(),
        };
        Ok(TakenOver {
            snapshot: Snapshot {
                image: own.finish(position).0,
                voters: Voters::alone(node, voter),
                timestamp_ms: self.timestamp_ms,
            },
            end: self.end,
            broker_epoch,
            metadata_version,
            features_off,
            left_behind: self.beside.named(),
        })
    }

    fn check_known(&self) -> Result<(), TakeoverError> {
        if let Some(((_, partition), _)) = self.early.first_key_value() {
            return Err(damaged(
                self.end.0,
                &format!("partition {partition} of a topic that lacks a lower one"),
            ));
        }
        if self.unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<String> = self
            .unknown
            .iter()
            .map(|(kind, count)| format!("{kind} ({count} records)"))
            .collect();
        Err(TakeoverError::Unknown(unknown.join(", ")))
    }

    /// One broker, one controller, and no replica elsewhere. Gives the broker's epoch.
    fn check_alone(&self, node: BrokerId) -> Result<i64, TakeoverError> {
        let image = self.delta.image();
        let others: Vec<String> = image
            .brokers
            .iter()
            .filter(|broker| broker.id != node)
            .map(|broker| broker.id.to_string())
            .collect();
        if !others.is_empty() {
            return Err(TakeoverError::NotAlone(format!(
                "the cluster has other brokers too ({}): move their replicas here and unregister them first",
                others.join(", ")
            )));
        }
        let Some(broker) = image.brokers.get(node) else {
            let sentence = format!("the metadata log knows no broker {node}: it never started");
            return Err(TakeoverError::NotAlone(sentence));
        };
        let controllers: Vec<String> = self
            .controllers
            .iter()
            .filter(|id| **id != node.0)
            .map(ToString::to_string)
            .collect();
        if !controllers.is_empty() {
            return Err(TakeoverError::NotAlone(format!(
                "the metadata quorum has other controllers ({}): remove them first, so that its log here is complete",
                controllers.join(", ")
            )));
        }
        for topic in image.topics.iter() {
            for (index, partition) in topic.indexed() {
                if partition.replicas[..] != [node] {
                    let replicas: Vec<String> = partition
                        .replicas
                        .iter()
                        .map(|replica| replica.0.to_string())
                        .collect();
                    return Err(TakeoverError::NotAlone(format!(
                        "partition {index} of {} has the replicas {}: only one, on broker {node}, can be taken over",
                        topic.name,
                        replicas.join(", ")
                    )));
                }
            }
        }
        Ok(broker.epoch)
    }

    /// Brings the features to what works here. Gives the metadata version it had, and what is off from now on.
    fn set_features(&mut self) -> Result<(i16, Vec<(String, i16)>), TakeoverError> {
        let metadata = features::supported(METADATA_VERSION).map_or(0, |feature| feature.max);
        let found = self.delta.image().feature(METADATA_VERSION);
        if found > metadata || found < 1 {
            let sentence =
                format!("metadata.version {found} is not one of 1 to {metadata}, which can be read");
            return Err(TakeoverError::Version(sentence));
        }
        let mut off = Vec::new();
        let levels: Vec<(String, i16)> = self
            .delta
            .image()
            .features
            .iter()
            .map(|(name, level)| (name.to_string(), *level))
            .collect();
        for (name, level) in levels {
            let next = match features::supported(&name) {
                _ if name == METADATA_VERSION => metadata,
                Some(feature) if level <= feature.max => level,
                _ => 0,
            };
            if next == 0 {
                off.push((name.clone(), level));
            }
            let record = wire::FeatureLevelRecord {
                name: Str::from(name),
                feature_level: next,
            };
            self.delta
                .apply(&record.into())
                .map_err(|error| damaged(self.end.0, &error))?;
        }
        Ok((found, off))
    }
}

impl TakenOver {
    /// Topics and partitions.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let topics = &self.snapshot.image.topics;
        (
            topics.len(),
            topics.iter().map(|topic| topic.partitions.len()).sum(),
        )
    }

    /// Keys that resources of a kind set, in all.
    #[must_use]
    pub fn configs(&self, kind: ResourceKind) -> usize {
        self.snapshot
            .image
            .configs
            .iter(kind)
            .map(|(_, own)| own.len())
            .sum()
    }
}

impl Beside {
    /// Takes a record of one of the kinds that are only named; whether it is one.
    fn take(&mut self, r: &mut Reader, kind: i16, version: i16) -> Result<bool, protocol::DecodeError> {
        match kind {
            wire::AccessControlEntryRecord::API_KEY => {
                let acl = wire::AccessControlEntryRecord::decode(r, version)?;
                let text = format!(
                    "{} from {}: permission {}, operation {}, on resource {} {}",
                    acl.principal.as_str(),
                    acl.host.as_str(),
                    acl.permission_type,
                    acl.operation,
                    acl.resource_type,
                    acl.resource_name.as_str()
                );
                self.acls.insert(acl.id, text);
            }
            wire::RemoveAccessControlEntryRecord::API_KEY => {
                self.acls
                    .remove(&wire::RemoveAccessControlEntryRecord::decode(r, version)?.id);
            }
            wire::UserScramCredentialRecord::API_KEY => {
                let user = wire::UserScramCredentialRecord::decode(r, version)?;
                let name = user.name.to_string();
                self.scram.insert((name.clone(), user.mechanism), name);
            }
            wire::RemoveUserScramCredentialRecord::API_KEY => {
                let user = wire::RemoveUserScramCredentialRecord::decode(r, version)?;
                self.scram.remove(&(user.name.to_string(), user.mechanism));
            }
            wire::ClientQuotaRecord::API_KEY => {
                let quota = wire::ClientQuotaRecord::decode(r, version)?;
                let entity = quota.entity.iter().map(|part| {
                    let name = part
                        .entity_name
                        .as_ref()
                        .map_or("<default>", |name| name.as_str());
                    format!("{} {name}", part.entity_type.as_str())
                });
                let entity = entity.collect::<Vec<_>>().join(", ");
                let key = (entity.clone(), quota.key.to_string());
                if quota.remove {
                    self.quotas.remove(&key);
                } else {
                    self.quotas
                        .insert(key, format!("{entity}: {} {}", quota.key.as_str(), quota.value));
                }
            }
            wire::DelegationTokenRecord::API_KEY => {
                let token = wire::DelegationTokenRecord::decode(r, version)?;
                let text = format!("{} of {}", token.token_id.as_str(), token.owner.as_str());
                self.tokens.insert(token.token_id.to_string(), text);
            }
            wire::RemoveDelegationTokenRecord::API_KEY => {
                let token = wire::RemoveDelegationTokenRecord::decode(r, version)?;
                self.tokens.remove(token.token_id.as_str());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn named(&self) -> Vec<LeftBehind> {
        let kind = |kind, count, some: Vec<&String>| LeftBehind {
            kind,
            count,
            some: some.into_iter().take(NAMED_MAX).cloned().collect(),
        };
        let mut all = vec![
            kind("ACLs", self.acls.len(), self.acls.values().collect()),
            kind(
                "SCRAM credentials",
                self.scram.len(),
                self.scram.values().collect(),
            ),
            kind("client quotas", self.quotas.len(), self.quotas.values().collect()),
            kind(
                "delegation tokens",
                self.tokens.len(),
                self.tokens.values().collect(),
            ),
        ];
        all.retain(|left| left.count > 0);
        all
    }
}

fn damaged(offset: i64, reason: &dyn std::fmt::Display) -> TakeoverError {
    TakeoverError::Damaged {
        offset,
        reason: reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use protocol::Writer;
    use protocol::record::{BatchBuilder, BatchOptions, NewRecord};

    use super::*;

    const NODE: BrokerId = BrokerId(1);

    /// A metadata batch with these values.
    fn batch(base: i64, values: &[Bytes]) -> Bytes {
        let mut builder = BatchBuilder::plain(BatchOptions {
            base_offset: base,
            leader_epoch: 3,
            ..BatchOptions::default()
        });
        for value in values {
            let record = NewRecord {
                timestamp: 1_000,
                key: None,
                value: Some(value),
                headers: &[],
            };
            builder.append(&record).unwrap();
        }
        builder.finish().unwrap().bytes
    }

    /// A framed record of a kind that our metadata does not have.
    fn foreign<M: Message>(message: &M) -> Bytes {
        let mut w = Writer::new();
        w.uvarint(1);
        w.uvarint(u32::from(M::API_KEY.unsigned_abs()));
        w.uvarint(0);
        message.encode(&mut w, 0).unwrap();
        w.into_bytes().unwrap()
    }

    fn ours(record: impl Into<MetadataRecord>) -> Bytes {
        record.into().to_bytes()
    }

    fn feature(name: &str, feature_level: i16) -> Bytes {
        let name = Str::from(name.to_owned());
        ours(wire::FeatureLevelRecord { name, feature_level })
    }

    fn broker(id: i32) -> Bytes {
        ours(wire::RegisterBrokerRecord {
            broker_id: id,
            broker_epoch: 9,
            rack: None,
            log_dirs: vec![Uuid([4; 16])],
            ..Default::default()
        })
    }

    fn topic(name: &str, id: u8) -> Bytes {
        ours(wire::TopicRecord {
            name: Str::from(name.to_owned()),
            topic_id: Uuid([id; 16]),
        })
    }

    fn partition(topic: u8, index: i32, replicas: &[i32]) -> Bytes {
        ours(wire::PartitionRecord {
            partition_id: index,
            topic_id: Uuid([topic; 16]),
            replicas: replicas.to_vec(),
            isr: replicas.to_vec(),
            leader: replicas[0],
            leader_epoch: 5,
            partition_epoch: 5,
            directories: vec![Uuid([4; 16]); replicas.len()],
            ..Default::default()
        })
    }

    fn read(values: &[Bytes]) -> Result<TakenOver, TakeoverError> {
        let mut takeover = Takeover::new("c");
        takeover.batch(&batch(0, &[feature(METADATA_VERSION, 30), broker(1)]), true)?;
        takeover.batch(&batch(2, values), true)?;
        takeover.finish(NODE, Uuid([8; 16]))
    }

    #[test]
    fn topics_partitions_and_configs_are_taken_over_with_their_ids() {
        let config = crate::image::config_record(ResourceKind::Topic, "orders", "retention.ms", Some("5"));
        let values = [
            topic("orders", 7),
            partition(7, 1, &[1]),
            partition(7, 0, &[1]),
            ours(config),
        ];
        let taken = read(&values).unwrap();
        assert_eq!(
            (taken.end, taken.broker_epoch, taken.counts()),
            (Offset(6), 9, (1, 2))
        );
        let image = &taken.snapshot.image;
        assert_eq!(image.position, ImagePosition { index: 6, term: 3 });
        let topic = image.topics.by_name("orders").unwrap();
        assert_eq!(topic.id.0, [7; 16]);
        assert_eq!(topic.partitions[1].directories[..], [Uuid([8; 16])]);
        assert_eq!(topic.partitions[1].leader_epoch.0, 5);
        assert_eq!(image.configs.topic("orders")["retention.ms"], "5");
        let bytes = taken.snapshot.to_bytes();
        assert_eq!(
            Snapshot::from_bytes(&bytes, "c").unwrap(),
            taken.snapshot,
            "what is written is read again"
        );
    }

    #[test]
    fn transactions_of_the_controller_count_only_when_they_end() {
        let begin = foreign(&wire::BeginTransactionRecord::default());
        let end = foreign(&wire::EndTransactionRecord::default());
        let abort = foreign(&wire::AbortTransactionRecord::default());
        let taken = read(&[
            begin.clone(),
            topic("lost", 1),
            abort,
            begin.clone(),
            topic("kept", 2),
            end,
            begin,
            topic("open", 3),
        ]);
        let names: Vec<String> = taken
            .unwrap()
            .snapshot
            .image
            .topics
            .iter()
            .map(|topic| topic.name.to_string())
            .collect();
        assert_eq!(names, ["kept"]);
    }

    #[test]
    fn what_has_no_place_is_named_and_what_is_unknown_is_refused() {
        let acl = |id| wire::AccessControlEntryRecord {
            id: Uuid([id; 16]),
            principal: Str::from_static("User:alice"),
            ..Default::default()
        };
        let gone = wire::RemoveAccessControlEntryRecord { id: Uuid([1; 16]) };
        let user = wire::UserScramCredentialRecord {
            name: Str::from_static("bob"),
            ..Default::default()
        };
        let taken = read(&[
            foreign(&acl(1)),
            foreign(&acl(2)),
            foreign(&gone),
            foreign(&user),
            foreign(&wire::ZkMigrationStateRecord::default()),
            feature("transaction.version", 2),
            feature(features::ELR_VERSION, 1),
        ])
        .unwrap();
        let found: Vec<(&str, usize)> = taken
            .left_behind
            .iter()
            .map(|left| (left.kind, left.count))
            .collect();
        assert_eq!(found, [("ACLs", 1), ("SCRAM credentials", 1)]);
        assert!(taken.left_behind[0].some[0].contains("User:alice"));
        assert_eq!(taken.features_off, [("transaction.version".to_owned(), 2)]);
        assert_eq!(taken.snapshot.image.feature(features::ELR_VERSION), 1);
        assert_eq!(taken.snapshot.image.feature("transaction.version"), 0);

        let error = read(&[Bytes::from_static(&[1, 99, 0]), Bytes::from_static(&[1, 99, 0])]).unwrap_err();
        assert_eq!(error, TakeoverError::Unknown("99 (2 records)".to_owned()));
    }

    #[test]
    fn only_a_single_node_of_a_known_version_is_taken_over() {
        let sentence = |values: &[Bytes]| read(values).unwrap_err().to_string();
        assert!(sentence(&[broker(2)]).contains("other brokers too (2)"));
        let several = [topic("t", 1), partition(1, 0, &[1, 2])];
        assert!(
            sentence(&several).contains("has the replicas 1, 2"),
            "{}",
            sentence(&several)
        );
        let controller = wire::RegisterControllerRecord {
            controller_id: 3,
            ..Default::default()
        };
        assert!(sentence(&[foreign(&controller)]).contains("other controllers (3)"));
        assert!(sentence(&[feature(METADATA_VERSION, 31)]).contains("metadata.version 31"));
        assert!(sentence(&[topic("t", 1), partition(1, 1, &[1])]).contains("lacks a lower one"));
        let mut takeover = Takeover::new("c");
        let mut bytes = batch(0, &[broker(1)]).to_vec();
        bytes[70] ^= 1;
        let error = takeover.batch(&Bytes::from(bytes), true).unwrap_err();
        assert!(
            matches!(error, TakeoverError::Damaged { offset: 0, .. }),
            "{error}"
        );
    }
}
