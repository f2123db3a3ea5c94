//! A client that creates topics, produces to them and deletes them again, all the while. What it was told holds over restarts:
//! a created topic is there with its id and its partitions, its records are there, a deleted one is not.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use protocol::messages::create_topics::CreateTopicsResponse;
use protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::messages::list_offsets::ListOffsetsResponse;
use protocol::messages::metadata::{MetadataRequest, MetadataResponse};
use protocol::messages::produce::ProduceResponse;
use protocol::{ErrorCode, Str, Uuid};
use storage::sim_rng::SimRng;

use super::client::{Closed, Connection, Surroundings};
use super::env::EPOCH_MS;
use super::knobs::number;
use super::record::{RecordId, Sender, build};
use super::requests::{create_topic, list_offset, produce_to};
use super::restless::Restless;

/// A pause between two operations, at most.
const PAUSE: Duration = Duration::from_millis(10);

/// Topics at a time.
const TOPICS_MAX: usize = 6;

/// The version of CreateTopics that answers with topic ids.
const CREATE_VERSION: i16 = 7;

/// The admin client of a run.
pub struct Admin {
    around: Surroundings,
    name: Rc<str>,
    rng: SimRng,
    topics: BTreeMap<String, Topic>,
    next_name: u32,
}

/// What the client knows of a topic.
#[derive(Clone, Debug)]
struct Topic {
    /// Whether it is there.
    exists: bool,
    /// An operation whose answer has not come, and when it was begun: until it has settled, shards may differ.
    pending: Option<Duration>,
    id: Option<Uuid>,
    partitions: i32,
    /// Records of partition 0: acknowledged, and sent in all.
    acknowledged: i64,
    sent: i64,
}

impl Restless for Admin {
    fn identity(&mut self) -> (&Surroundings, &Rc<str>, &mut SimRng) {
        (&self.around, &self.name, &mut self.rng)
    }

    async fn work(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        while !self.around.is_over() {
            self.look(connection).await?;
            match self.rng.below(3) {
                0 if self.topics.len() < TOPICS_MAX => self.create(connection).await?,
                1 => self.delete(connection).await?,
                _ => self.produce(connection).await?,
            }
            let around = self.around.clone();
            around.pause(&mut self.rng, PAUSE).await;
        }
        Ok(())
    }
}

impl Admin {
    /// An admin client that knows of nothing.
    #[must_use]
    pub fn new(around: &Surroundings, seed: u64) -> Self {
        Self {
            around: around.clone(),
            name: Rc::from("admin"),
            rng: SimRng::new(seed, "admin"),
            topics: BTreeMap::new(),
            next_name: 0,
        }
    }

    /// Asks for all topics, and holds them against what is known.
    async fn look(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let request = MetadataRequest {
            topics: None,
            ..Default::default()
        };
        let response: MetadataResponse = connection.call(&request, 12).await?;
        for (name, topic) in &mut self.topics {
            let found = response.topics.iter().find(|t| {
                t.name.as_ref().is_some_and(|n| n.as_str() == name) && t.error_code == ErrorCode::NONE
            });
            let wrong = topic.look(found.map(|t| (t.topic_id, t.partitions.len())), &self.around);
            if let Some(wrong) = wrong {
                self.around
                    .trace()
                    .violation(format_args!("topic {name} {wrong}: {topic:?}"));
            }
        }
        self.topics
            .retain(|_, topic| topic.exists || topic.pending.is_some());
        let is_sure = |(_, topic): &(&String, &Topic)| topic.exists && topic.pending.is_none();
        let names: Vec<String> = self
            .topics
            .iter()
            .filter(is_sure)
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            self.look_at_end(connection, &name).await?;
        }
        Ok(())
    }

    async fn look_at_end(&mut self, connection: &mut Connection, name: &str) -> Result<(), Closed> {
        let request = list_offset(name, 0, -1);
        let response: ListOffsetsResponse = connection.call(&request, 5).await?;
        let answer = response.topics.iter().flat_map(|t| &t.partitions).next();
        let topic = &self.topics[name];
        let is_right = answer.is_some_and(|p| match p.error_code {
            ErrorCode::NONE => (topic.acknowledged..=topic.sent).contains(&p.offset),
            // Right after a start the partition may not be open yet.
            code => code == ErrorCode::NOT_LEADER_OR_FOLLOWER,
        });
        if !is_right && !connection.disk_may_fail() {
            let what = format_args!("the end of {name} is answered with {answer:?}: {topic:?}");
            self.around.trace().violation(what);
        }
        Ok(())
    }

    async fn create(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let name = format!("side{}", self.next_name);
        self.next_name += 1;
        let partitions = number(&mut self.rng, 1, 3);
        self.around
            .trace()
            .event(format_args!("{} creates {name}", self.name));
        let topic = Topic {
            exists: false,
            pending: Some(self.around.clock().now()),
            id: None,
            partitions,
            acknowledged: 0,
            sent: 0,
        };
        self.topics.insert(name.clone(), topic);
        let request = create_topic(&name, partitions);
        let response: CreateTopicsResponse = connection.call(&request, CREATE_VERSION).await?;
        let result = response.topics.first();
        match result.map(|r| (r.error_code, r.topic_id)) {
            Some((ErrorCode::NONE, id)) => {
                let topic = self.topics.get_mut(&name).expect("inserted above");
                (topic.exists, topic.pending, topic.id) = (true, None, Some(id));
            }
            _ if connection.disk_may_fail() => {}
            other => {
                self.around
                    .trace()
                    .violation(format_args!("the creation of {name} is answered with {other:?}"));
            }
        }
        Ok(())
    }

    async fn delete(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let Some(name) = self.some_topic() else {
            return Ok(());
        };
        self.around
            .trace()
            .event(format_args!("{} deletes {name}", self.name));
        let now = self.around.clock().now();
        self.topics.get_mut(&name).expect("it is one of them").pending = Some(now);
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(Str::from(name.clone())),
                ..Default::default()
            }],
            timeout_ms: 30_000,
            ..Default::default()
        };
        let response: DeleteTopicsResponse = connection.call(&request, 6).await?;
        match response.responses.first().map(|r| r.error_code) {
            Some(ErrorCode::NONE) => {
                let topic = self.topics.get_mut(&name).expect("it is one of them");
                (topic.exists, topic.pending) = (false, None);
            }
            _ if connection.disk_may_fail() => {}
            other => {
                self.around
                    .trace()
                    .violation(format_args!("the deletion of {name} is answered with {other:?}"));
            }
        }
        Ok(())
    }

    async fn produce(&mut self, connection: &mut Connection) -> Result<(), Closed> {
        let Some(name) = self.some_topic() else {
            return Ok(());
        };
        let topic = self.topics.get_mut(&name).expect("it is one of them");
        let count = number::<u32>(&mut self.rng, 1, 20);
        let ids: Vec<RecordId> = (0..count)
            .map(|number| RecordId {
                producer: u32::MAX,
                partition: u32::MAX,
                number,
                value_bytes: 300,
            })
            .collect();
        let bytes = build(&ids, Sender::NOBODY, EPOCH_MS, 0, &mut self.around.codecs());
        let (least, most) = (topic.acknowledged, topic.sent);
        topic.sent += i64::from(count);
        let request = produce_to(&name, 0, bytes);
        self.around
            .trace()
            .event(format_args!("{} produces {count} to {name}", self.name));
        let response: ProduceResponse = connection.call(&request, 9).await?;
        let result = response
            .responses
            .iter()
            .flat_map(|t| &t.partition_responses)
            .next();
        let topic = self.topics.get_mut(&name).expect("it is one of them");
        match result.map(|r| (r.error_code, r.base_offset)) {
            Some((ErrorCode::NONE, base)) if (least..=most).contains(&base) => {
                topic.acknowledged = base + i64::from(count);
            }
            Some((ErrorCode::NOT_LEADER_OR_FOLLOWER, _)) => {}
            Some((ErrorCode::KAFKA_STORAGE_ERROR, _)) if connection.disk_may_fail() => {}
            other => {
                self.around
                    .trace()
                    .violation(format_args!("{name}: {other:?} where {least} to {most} was due"));
            }
        }
        Ok(())
    }

    fn some_topic(&mut self) -> Option<String> {
        let names: Vec<&String> = self
            .topics
            .iter()
            .filter(|(_, topic)| topic.exists && topic.pending.is_none())
            .map(|(name, _)| name)
            .collect();
        (!names.is_empty()).then(|| names[self.rng.index(names.len())].clone())
    }
}

impl Topic {
    /// The topic was looked for: what speaks against what was found.
    fn look(&mut self, found: Option<(Uuid, usize)>, around: &Surroundings) -> Option<&'static str> {
        let is_found = found.is_some();
        let is_open = self.pending.is_some();
        let wrong = match found {
            None if self.exists && !is_open => Some("is gone"),
            Some(_) if !self.exists && !is_open => Some("is there again"),
            Some((id, _)) if self.id.is_some_and(|known| known != id) => Some("has another id"),
            Some((_, count)) if i32::try_from(count) != Ok(self.partitions) => Some("has other partitions"),
            _ => None,
        };
        if self.pending.is_some_and(|since| around.has_settled(since)) {
            self.pending = None;
        }
        self.exists = is_found;
        self.id = self.id.or_else(|| found.map(|(id, _)| id));
        wrong
    }
}
