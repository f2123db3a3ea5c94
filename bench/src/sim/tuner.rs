//! A client that alters the configuration of topics under load. What it was told holds at once, on every shard, and over
//! restarts: a described topic has the values that were set last, and a topic of its own takes a batch or refuses it by the
//! `max.message.bytes` of that moment. On the run's topics it changes how records are stored, never which.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use protocol::messages::create_topics::CreateTopicsResponse;
use protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
};
use protocol::messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig, IncrementalAlterConfigsResponse,
};
use protocol::messages::produce::ProduceResponse;
use protocol::{ErrorCode, Str};
use storage::sim_rng::SimRng;

use super::client::{Closed, Connection, Surroundings};
use super::env::EPOCH_MS;
use super::node::topic_name;
use super::record::{RecordId, Sender, build};
use super::requests::{create_topic, produce_to};
use super::restless::Restless;

/// A pause between two alterations, at most.
const PAUSE: Duration = Duration::from_millis(50);

/// `resource_type` of a topic.
const TOPIC: i8 = 2;

/// `config_operation`s.
const SET: i8 = 0;
const DELETE: i8 = 1;

/// The client's own topic, on which it sets [`LIMIT`].
const OWN: &str = "tuned";
const OWN_PARTITIONS: i32 = 4;
const LIMIT: &str = "max.message.bytes";

/// What is set on the run's topics. `None` is the default.
const SETTINGS: [(&str, &[Option<&str>]); 4] = [
    (
        "compression.type",
        &[
            None,
            Some("uncompressed"),
            Some("gzip"),
            Some("snappy"),
            Some("lz4"),
            Some("zstd"),
        ],
    ),
    ("message.timestamp.type", &[None, Some("LogAppendTime")]),
    ("segment.ms", &[None, Some("5"), Some("300")]),
    ("flush.messages", &[None, Some("1")]),
];

/// As [`SETTINGS`], for runs whose power does not fail.
const CLASSES: (&str, &[Option<&str>]) = (
    "penstock.durability",
    &[None, Some("fsync"), Some("interval"), Some("written")],
);

/// Topic and key.
type Key = (String, &'static str);

/// The client of a run that alters configurations.
pub struct Tuner {
    around: Surroundings,
    name: Rc<str>,
    rng: SimRng,
    settings: Vec<(&'static str, &'static [Option<&'static str>])>,
    /// What was set last; a default is not there.
    known: BTreeMap<Key, &'static str>,
    /// An alteration whose answer was lost, and when it was asked for.
    lost: Option<(Duration, Key)>,
    next_number: u32,
}

impl Restless for Tuner {
    fn identity(&mut self) -> (&Surroundings, &Rc<str>, &mut SimRng) {
        (&self.around, &self.name, &mut self.rng)
    }

    async fn work(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        self.create(connection).await?;
        while !self.around.is_over() {
            let around = self.around.clone();
            around.pause(&mut self.rng, PAUSE).await;
            if let Some((since, _)) = &self.lost
                && !around.has_settled(*since)
            {
                continue;
            }
            match self.rng.below(4) {
                _ if self.lost.is_some() => self.look(connection).await?,
                0 => self.look(connection).await?,
                1 => self.alter_limit(connection).await?,
                _ => self.alter_some(connection).await?,
            }
        }
        Ok(())
    }
}

impl Tuner {
    /// A client that has altered nothing yet; `with_classes` lets it change `penstock.durability`.
    #[must_use]
    pub fn new(around: &Surroundings, seed: u64, with_classes: bool) -> Self {
        let mut settings = SETTINGS.to_vec();
        settings.extend(with_classes.then_some(CLASSES));
        Self {
            around: around.clone(),
            name: Rc::from("tuner"),
            rng: SimRng::new(seed, "tuner"),
            settings,
            known: BTreeMap::new(),
            lost: None,
            next_number: 0,
        }
    }

    async fn create(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let request = create_topic(OWN, OWN_PARTITIONS);
        let response: CreateTopicsResponse = connection.call(&request, 5).await?;
        match response.topics.first().map(|t| t.error_code) {
            Some(ErrorCode::NONE | ErrorCode::TOPIC_ALREADY_EXISTS) => Ok(()),
            other => self.fault(
                connection,
                format_args!("the creation of {OWN} is answered with {other:?}"),
            ),
        }
    }

    async fn alter_some(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let topic = topic_name(self.rng.index(self.around.topics().len()));
        let (key, values) = self.settings[self.rng.index(self.settings.len())];
        let value = values[self.rng.index(values.len())];
        self.alter(connection, (topic, key), value).await
    }

    /// Sets the limit of the own topic, or takes it away: the next batch is refused or taken, on every shard.
    async fn alter_limit(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let value = self.rng.coin().then_some("1");
        self.alter(connection, (OWN.to_owned(), LIMIT), value).await?;
        for partition in 0..OWN_PARTITIONS {
            let code = self.produce(connection, partition).await?;
            let is_right = match code {
                Some(ErrorCode::NONE) => value.is_none(),
                Some(ErrorCode::MESSAGE_TOO_LARGE) => value.is_some(),
                // Right after a start the partition may not be open yet, and later the store may have enough to do.
                other => matches!(
                    other,
                    Some(ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::KAFKA_STORAGE_ERROR)
                ),
            };
            if !is_right {
                let what = format_args!("{OWN}-{partition} with {LIMIT} {value:?} answers {code:?}");
                self.fault(connection, what)?;
            }
        }
        Ok(())
    }

    async fn alter(
        &mut self,
        connection: &mut Connection,
        key: Key,
        value: Option<&'static str>,
    ) -> Result<(), Closed> {
        self.around
            .trace()
            .event(format_args!("{} sets {key:?} to {value:?}", self.name));
        self.known.remove(&key);
        self.lost = Some((self.around.clock().now(), key.clone()));
        let request = IncrementalAlterConfigsRequest {
            resources: vec![IncrementalAlterConfigsRequestAlterConfigsResource {
                resource_type: TOPIC,
                resource_name: Str::from(key.0.clone()),
                configs: vec![IncrementalAlterConfigsRequestAlterableConfig {
                    name: Str::from(key.1),
                    config_operation: if value.is_some() { SET } else { DELETE },
                    value: value.map(Str::from),
                }],
            }],
            validate_only: false,
        };
        let response: IncrementalAlterConfigsResponse = connection.call(&request, 1).await?;
        match response.responses.first().map(|r| r.error_code) {
            Some(ErrorCode::NONE) => {
                self.lost = None;
                if let Some(value) = value {
                    self.known.insert(key, value);
                }
                Ok(())
            }
            other => self.fault(
                connection,
                format_args!("{key:?}: {value:?} is answered with {other:?}"),
            ),
        }
    }

    /// Asks for the topics' configurations, and holds them against what was set.
    async fn look(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let lost = self.lost.as_ref().map(|(_, key)| key.clone());
        let mut keys: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for topic in 0..self.around.topics().len() {
            let all = self.settings.iter().map(|(key, _)| *key);
            keys.insert(topic_name(topic), all.collect());
        }
        keys.insert(OWN.to_owned(), vec![LIMIT]);
        let resource = |(topic, keys): (&String, &Vec<&'static str>)| DescribeConfigsResource {
            resource_type: TOPIC,
            resource_name: Str::from(topic.clone()),
            configuration_keys: Some(keys.iter().map(|key| Str::from(*key)).collect()),
        };
        let request = DescribeConfigsRequest {
            resources: keys.iter().map(resource).collect(),
            ..Default::default()
        };
        let response: DescribeConfigsResponse = connection.call(&request, 4).await?;
        for result in &response.results {
            if result.error_code != ErrorCode::NONE {
                let what = format_args!(
                    "{} is described with {:?}",
                    result.resource_name, result.error_code
                );
                self.fault(connection, what)?;
            }
            let topic = result.resource_name.to_string();
            for key in keys.get(&topic).into_iter().flatten() {
                let found = result.configs.iter().find(|c| c.name.as_str() == *key);
                // Source 1 is the topic's own.
                let set = found.filter(|c| c.config_source == 1);
                let set = set.and_then(|c| c.value.as_ref()).map(Str::as_str);
                let key: Key = (topic.clone(), key);
                if lost.as_ref() == Some(&key) {
                    self.settle(key, set);
                } else if set != self.known.get(&key).copied() {
                    let what = format_args!("{key:?} is {set:?}, not {:?}", self.known.get(&key));
                    self.fault(connection, what)?;
                }
            }
        }
        self.lost = None;
        Ok(())
    }

    /// The alteration whose answer was lost has come to this.
    fn settle(&mut self, key: Key, found: Option<&str>) {
        let values = self.settings.iter().flat_map(|(_, values)| values.iter());
        let mut values = values.copied().flatten().chain(["1"]);
        match values.find(|value| Some(*value) == found) {
            Some(value) => drop(self.known.insert(key, value)),
            None => drop(self.known.remove(&key)),
        }
    }

    async fn produce(
        &mut self,
        connection: &mut Connection,
        index: i32,
    ) -> Result<Option<ErrorCode>, Closed> {
        let id = RecordId {
            producer: u32::MAX,
            partition: u32::MAX,
            number: self.next_number,
            value_bytes: 300,
        };
        self.next_number += 1;
        let bytes = build(&[id], Sender::NOBODY, EPOCH_MS, 0, &mut self.around.codecs());
        let request = produce_to(OWN, index, bytes);
        let response: ProduceResponse = connection.call(&request, 9).await?;
        let mut results = response.responses.iter().flat_map(|t| &t.partition_responses);
        Ok(results.next().map(|r| r.error_code))
    }

    /// An answer that must not be, unless the disk fails: then it is as good as lost.
    fn fault(&self, connection: &Connection, what: std::fmt::Arguments<'_>) -> Result<(), Closed> {
        if !connection.disk_may_fail() {
            self.around
                .trace()
                .violation(format_args!("{}: {what}", self.name));
        }
        Err(Closed)
    }
}
