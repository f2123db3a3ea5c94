//! What the client asks about topics: metadata, offsets from the leaders, sizes, configs.

use std::collections::{BTreeMap, BTreeSet};

use protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use protocol::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponseTopic};
use protocol::{ApiKey, ErrorCode, Uuid};

use super::{Client, ClientError, Kind, Place, TopicPartition, by_topic, check, complete, text};

/// The timestamp of ListOffsets that stands for the first offset of a log.
pub const EARLIEST: i64 = -2;
/// The timestamp of ListOffsets that stands for the offset behind the last record.
pub const LATEST: i64 = -1;
/// Partitions asked for in one request.
const PARTITIONS_MAX: usize = 10_000;
/// Resource type of topics in requests about configs.
pub(super) const RESOURCE_TOPIC: i8 = 2;

/// A topic as a broker's metadata have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicView {
    /// Name.
    pub name: String,
    /// Id; zero where the broker does not tell it.
    pub id: Uuid,
    /// Whether it is one of the cluster's own.
    pub is_internal: bool,
    /// Partitions by number.
    pub partitions: BTreeMap<i32, PartitionView>,
}

impl TopicView {
    /// How many replicas the partitions have; the most where they differ, as during a reassignment.
    #[must_use]
    pub fn replication_factor(&self) -> usize {
        let replicas = self.partitions.values().map(|p| p.replicas.len());
        replicas.max().unwrap_or(0)
    }
}

/// A partition as a broker's metadata have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionView {
    /// Broker that leads it; `None` without a leader.
    pub leader: Option<i32>,
    /// Leader epoch, -1 when not told.
    pub leader_epoch: i32,
    /// Brokers that hold it.
    pub replicas: Vec<i32>,
    /// Those in sync.
    pub isr: Vec<i32>,
    /// Those that are not there.
    pub offline: Vec<i32>,
}

/// A config of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigValue {
    /// Name.
    pub name: String,
    /// Value; `None` when it is a secret.
    pub value: Option<String>,
    /// Where it is set: `topic`, `broker`, `default-broker`, `static-broker`, `default` for nowhere, or the number of another source.
    pub source: String,
}

impl Client {
    /// Topics by name: those named, or all. One that does not exist is left out.
    ///
    /// # Errors
    /// As any request, and what a topic's code says.
    pub fn topics(&mut self, names: Option<&[String]>) -> Result<BTreeMap<String, TopicView>, ClientError> {
        self.patiently(|client| client.topics_once(names))
    }

    /// As [`Client::topics`], but one that the broker refuses for good, as with a name that can be none, is left out too.
    ///
    /// # Errors
    /// As any request.
    pub fn known_topics(&mut self, names: &[String]) -> Result<BTreeMap<String, TopicView>, ClientError> {
        self.patiently(|client| {
            let mut topics = BTreeMap::new();
            for (name, outcome) in client.topic_outcomes(Some(names))? {
                match outcome {
                    Ok(topic) => {
                        topics.insert(name, topic);
                    }
                    Err(error) if error.may_pass() => return Err(error),
                    Err(_) => {}
                }
            }
            Ok(topics)
        })
    }

    pub(super) fn topics_once(
        &mut self,
        names: Option<&[String]>,
    ) -> Result<BTreeMap<String, TopicView>, ClientError> {
        let outcomes = self.topic_outcomes(names)?.into_iter();
        outcomes.map(|(name, topic)| Ok((name, topic?))).collect()
    }

    /// What the metadata say of each topic that exists, and of the cluster.
    fn topic_outcomes(
        &mut self,
        names: Option<&[String]>,
    ) -> Result<BTreeMap<String, Result<TopicView, ClientError>>, ClientError> {
        let answer = self.call(Place::Any, 4..=13, |_| MetadataRequest {
            topics: names.map(|names| {
                let topic = |name: &String| MetadataRequestTopic {
                    name: Some(text(name)),
                    ..MetadataRequestTopic::default()
                };
                names.iter().map(topic).collect()
            }),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        })?;
        check(answer.error_code, None, || "asking for metadata".to_owned())?;
        for broker in &answer.brokers {
            self.learn(broker.node_id, &broker.host, broker.port);
        }
        self.controller = Some(answer.controller_id).filter(|&id| id >= 0);
        let mut topics = BTreeMap::new();
        for topic in answer.topics {
            let name = topic.name.as_ref().map_or_else(String::new, |n| n.to_string());
            if topic.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
                continue;
            }
            let outcome = check(topic.error_code, None, || format!("looking for topic '{name}'"));
            topics.insert(name.clone(), outcome.map(|()| view(name, topic)));
        }
        Ok(topics)
    }

    /// The same of one topic that must exist.
    ///
    /// # Errors
    /// As [`Client::topics`], and when it does not exist.
    pub fn topic(&mut self, name: &str) -> Result<TopicView, ClientError> {
        let mut topics = self.topics(Some(&[name.to_owned()]))?;
        topics.remove(name).ok_or_else(|| unknown(name))
    }

    /// Offsets by time: for each partition the first offset whose record is not older than `timestamp` (ms since 1970), or
    /// -1; [`EARLIEST`] and [`LATEST`] are the ends. Waits for leaders.
    ///
    /// # Errors
    /// As any request; a partition that does not exist.
    pub fn offsets(
        &mut self,
        wanted: &BTreeSet<TopicPartition>,
        timestamp: i64,
    ) -> Result<BTreeMap<TopicPartition, i64>, ClientError> {
        let mut found = BTreeMap::new();
        let mut left = wanted.clone();
        self.patiently(|client| {
            let mut last = None;
            for (leader, partitions) in client.leaders(&left, &mut last)? {
                for part in partitions.chunks(PARTITIONS_MAX) {
                    let answers = match client.offsets_at(leader, part, timestamp) {
                        Ok(answers) => answers,
                        Err(error) if error.may_pass() => {
                            last = Some(error);
                            continue;
                        }
                        Err(error) => return Err(error),
                    };
                    for (partition, code, offset) in answers {
                        if code.is_none() {
                            left.remove(&partition);
                            found.insert(partition, offset);
                            continue;
                        }
                        let (topic, number) = &partition;
                        let error = ClientError::answer(
                            &format!("asking for offsets of {topic}-{number}"),
                            code,
                            None,
                        );
                        if !error.may_pass() {
                            return Err(error);
                        }
                        last = Some(error);
                    }
                }
            }
            match last {
                _ if left.is_empty() => Ok(()),
                Some(error) => Err(error),
                None => Err(ClientError::senseless("ListOffsets", "it leaves a partition out")),
            }
        })?;
        found.retain(|partition, _| wanted.contains(partition));
        Ok(found)
    }

    /// The partitions by leader; one without a leader is told in `last`.
    fn leaders(
        &mut self,
        wanted: &BTreeSet<TopicPartition>,
        last: &mut Option<ClientError>,
    ) -> Result<BTreeMap<i32, Vec<TopicPartition>>, ClientError> {
        let names: BTreeSet<String> = wanted.iter().map(|(topic, _)| topic.clone()).collect();
        let names: Vec<String> = names.into_iter().collect();
        let topics = if names.is_empty() {
            BTreeMap::new()
        } else {
            self.topics_once(Some(&names))?
        };
        let mut by_leader: BTreeMap<i32, Vec<TopicPartition>> = BTreeMap::new();
        for (topic, number) in wanted {
            let partition = topics.get(topic).and_then(|t| t.partitions.get(number));
            let partition = partition.ok_or_else(|| unknown_partition(topic, *number))?;
            match partition.leader {
                Some(leader) => by_leader
                    .entry(leader)
                    .or_default()
                    .push((topic.clone(), *number)),
                None => {
                    let doing = format!("looking for the leader of {topic}-{number}");
                    *last = Some(ClientError::answer(&doing, ErrorCode::LEADER_NOT_AVAILABLE, None));
                }
            }
        }
        Ok(by_leader)
    }

    fn offsets_at(
        &mut self,
        leader: i32,
        partitions: &[TopicPartition],
        timestamp: i64,
    ) -> Result<Vec<(TopicPartition, ErrorCode, i64)>, ClientError> {
        let topics = by_topic(partitions);
        let answer = self.call(Place::Broker(leader), 1..=10, |_| ListOffsetsRequest {
            replica_id: -1,
            timeout_ms: 30_000,
            topics: topics
                .iter()
                .map(|(name, numbers)| ListOffsetsTopic {
                    name: text(name),
                    partitions: numbers
                        .iter()
                        .map(|&number| ListOffsetsPartition {
                            partition_index: number,
                            timestamp,
                            ..ListOffsetsPartition::default()
                        })
                        .collect(),
                })
                .collect(),
            ..ListOffsetsRequest::default()
        })?;
        let mut found = Vec::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let key = (topic.name.to_string(), partition.partition_index);
                found.push((key, partition.error_code, partition.offset));
            }
        }
        Ok(found)
    }

    /// Bytes of the leaders' replicas, as far as the brokers tell them.
    ///
    /// # Errors
    /// As any request; that an API is not served is none.
    pub fn sizes(&mut self, topic: &TopicView) -> Result<BTreeMap<i32, i64>, ClientError> {
        let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        for (number, partition) in &topic.partitions {
            if let Some(leader) = partition.leader {
                by_leader.entry(leader).or_default().push(*number);
            }
        }
        let mut sizes = BTreeMap::new();
        for (leader, numbers) in by_leader {
            let place = Place::Broker(leader);
            let answer = self.patiently(|client| {
                if !client.serves(place, ApiKey::DescribeLogDirs, &(1..=4))? {
                    return Ok(None);
                }
                let topic = DescribableLogDirTopic {
                    topic: text(&topic.name),
                    partitions: numbers.clone(),
                };
                let request = |_| DescribeLogDirsRequest {
                    topics: Some(vec![topic.clone()]),
                };
                client.call(place, 1..=4, request).map(Some)
            })?;
            let dirs = answer.map(|a| a.results).unwrap_or_default();
            for found in dirs
                .into_iter()
                .flat_map(|dir| dir.topics)
                .filter(|t| t.name == topic.name.as_str())
            {
                for partition in found.partitions.into_iter().filter(|p| !p.is_future_key) {
                    sizes.insert(partition.partition_index, partition.partition_size);
                }
            }
        }
        Ok(sizes)
    }

    /// Configs of a topic that are set somewhere.
    ///
    /// # Errors
    /// As [`Self::all_configs`].
    pub fn configs(&mut self, topic: &str) -> Result<Vec<ConfigValue>, ClientError> {
        let mut configs = self.all_configs(topic)?;
        configs.retain(|config| config.source != "default");
        Ok(configs)
    }

    /// Every config that a topic can have, with its value.
    ///
    /// # Errors
    /// As any request, and the code of the answer.
    pub fn all_configs(&mut self, topic: &str) -> Result<Vec<ConfigValue>, ClientError> {
        self.patiently(|client| {
            let answer = client.call(Place::Any, 1..=4, |_| DescribeConfigsRequest {
                resources: vec![DescribeConfigsResource {
                    resource_type: RESOURCE_TOPIC,
                    resource_name: text(topic),
                    configuration_keys: None,
                }],
                ..DescribeConfigsRequest::default()
            })?;
            complete(
                ApiKey::DescribeConfigs,
                [topic],
                answer.results.iter().map(|r| r.resource_name.as_str()),
            )?;
            let mut configs = Vec::new();
            for result in answer.results {
                let doing = || format!("asking for the configs of topic '{topic}'");
                check(result.error_code, result.error_message.as_deref(), doing)?;
                configs.extend(result.configs.into_iter().map(|config| {
                    ConfigValue {
                        name: config.name.to_string(),
                        value: config
                            .value
                            .filter(|_| !config.is_sensitive)
                            .map(|v| v.to_string()),
                        source: source(config.config_source),
                    }
                }));
            }
            configs.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(configs)
        })
    }
}

/// The failure about a topic that nobody knows.
pub(super) fn unknown(topic: &str) -> ClientError {
    ClientError::answer(
        &format!("looking for topic '{topic}'"),
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        None,
    )
}

fn unknown_partition(topic: &str, number: i32) -> ClientError {
    let sentence = format!(
        "there is no partition {number} of topic '{topic}'; `penstock topic describe {topic}` shows which there are"
    );
    ClientError::new(Kind::Impossible, sentence)
}

fn view(name: String, topic: MetadataResponseTopic) -> TopicView {
    let partitions = topic.partitions.into_iter().map(|partition| {
        let view = PartitionView {
            leader: Some(partition.leader_id).filter(|&leader| leader >= 0),
            leader_epoch: partition.leader_epoch,
            replicas: partition.replica_nodes,
            isr: partition.isr_nodes,
            offline: partition.offline_replicas,
        };
        (partition.partition_index, view)
    });
    TopicView {
        name,
        id: topic.topic_id,
        is_internal: topic.is_internal,
        partitions: partitions.collect(),
    }
}

/// The sources of DescribeConfigs in words.
fn source(number: i8) -> String {
    match number {
        1 => "topic".to_owned(),
        2 => "broker".to_owned(),
        3 => "default-broker".to_owned(),
        4 => "static-broker".to_owned(),
        5 => "default".to_owned(),
        other => other.to_string(),
    }
}
