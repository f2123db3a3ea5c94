//! A small blocking client of the Kafka protocol for the command line: it finds brokers, leaders and coordinators, agrees
//! on versions, and repeats what may pass, within one deadline. It runs in a process of its own, never on a shard.
//!
//! `frame` is pure, `connection` does the I/O, this file decides where to send and whether to repeat; `topics`,
//! `topic_changes` and `groups` hold what is asked.

mod connection;
mod error;
pub mod frame;
mod groups;
mod patience;
mod topic_changes;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::{ApiKey, ErrorCode, Request, Str};

use self::connection::Connection;
pub use self::error::{ClientError, Kind, clean};
pub use self::groups::{Committed, GroupListing, GroupView, MemberView};
use self::patience::Patience;
pub use self::topic_changes::NewTopic;
pub use self::topics::{ConfigValue, EARLIEST, LATEST, PartitionView, TopicView};

/// Topic and partition.
pub type TopicPartition = (String, i32);

/// The kind of key that FindCoordinator takes for groups.
const COORDINATOR_OF_GROUP: i8 = 0;
/// First and longest pause between two attempts.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Where a client finds a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or IP address; an IPv6 address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Address {
    /// Reads `HOST:PORT`, `[V6]:PORT`, or `HOST` for port 9092. `None` when it is none of them.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                (host, rest.strip_prefix(':'))
            }
            None => match text.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => return None,
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = port.map_or(Some(9092), |port| port.parse().ok().filter(|&p| p > 0))?;
        (!host.is_empty()).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Partitions by topic.
pub fn by_topic<'a>(
    partitions: impl IntoIterator<Item = &'a TopicPartition>,
) -> BTreeMap<&'a str, BTreeSet<i32>> {
    let mut topics: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for (topic, number) in partitions {
        topics.entry(topic).or_default().insert(*number);
    }
    topics
}

/// To whom a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// Any broker: one of the addresses to begin with.
    Any,
    /// The broker with this id.
    Broker(i32),
}

/// A connection to a cluster, opened as far as it is needed.
#[derive(Debug)]
pub struct Client {
    seeds: Vec<Address>,
    brokers: BTreeMap<i32, Address>,
    /// The controller that the newest metadata name, if they name one.
    controller: Option<i32>,
    open: BTreeMap<Place, Connection>,
    /// Whether a broker has answered: one that is gone afterwards may come back.
    was_reached: bool,
    patience: Patience,
}

impl Client {
    /// A client of the cluster to which these brokers belong. Everything it does has to be done within `timeout` from
    /// now. `progress` gets a sentence now and then once a command lasts longer than a second.
    #[must_use]
    pub fn new(seeds: Vec<Address>, timeout: Duration, progress: fn(&str)) -> Self {
        Self {
            seeds,
            brokers: BTreeMap::new(),
            controller: None,
            open: BTreeMap::new(),
            was_reached: false,
            patience: Patience::new(timeout, progress),
        }
    }

    /// Address of a broker that an answer has named.
    #[must_use]
    pub fn address_of(&self, broker: i32) -> Option<&Address> {
        self.brokers.get(&broker)
    }

    /// The broker that coordinates a group.
    ///
    /// # Errors
    /// As any request, and the code that came instead.
    pub fn coordinator(&mut self, group: &str) -> Result<i32, ClientError> {
        self.patiently(|client| client.coordinator_once(group))
    }

    fn coordinator_once(&mut self, group: &str) -> Result<i32, ClientError> {
        let answer = self.call(Place::Any, 4..=6, |_| FindCoordinatorRequest {
            key_type: COORDINATOR_OF_GROUP,
            coordinator_keys: vec![text(group)],
            ..FindCoordinatorRequest::default()
        })?;
        let found = answer.coordinators.into_iter().find(|c| c.key == group);
        let found =
            found.ok_or_else(|| ClientError::senseless("FindCoordinator", "it leaves the group out"))?;
        let doing = || format!("finding the coordinator of group '{group}'");
        check(found.error_code, found.error_message.as_deref(), doing)?;
        self.learn(found.node_id, &found.host, found.port);
        Ok(found.node_id)
    }

    /// Sends a request to the coordinator of a group.
    fn at_coordinator<R: Request>(
        &mut self,
        group: &str,
        versions: RangeInclusive<i16>,
        build: impl Fn(i16) -> R,
    ) -> Result<R::Response, ClientError> {
        let broker = self.coordinator_once(group)?;
        self.call(Place::Broker(broker), versions, build)
    }

    /// Sends a request to the controller: in a cluster with ZooKeeper no other broker carries it out. Where the metadata name
    /// none, or one without an address, to any broker.
    fn at_controller<R: Request>(
        &mut self,
        versions: RangeInclusive<i16>,
        build: impl Fn(i16) -> R,
    ) -> Result<R::Response, ClientError> {
        self.topics_once(Some(&[]))?;
        let known = self.controller.filter(|id| self.brokers.contains_key(id));
        self.call(known.map_or(Place::Any, Place::Broker), versions, build)
    }

    /// Does something again and again until it succeeds, fails for good, or the time is over.
    fn patiently<T>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut pause = PAUSE_MIN;
        loop {
            match attempt(self) {
                Err(error) if error.may_pass() => {
                    if !self.patience.pause(pause, &error.sentence) {
                        return Err(error.in_vain(self.patience.timeout()));
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                outcome => return outcome,
            }
        }
    }

    /// Sends one request and reads its answer; the version is the highest of `versions` that the broker serves.
    fn call<R: Request>(
        &mut self,
        place: Place,
        versions: RangeInclusive<i16>,
        build: impl Fn(i16) -> R,
    ) -> Result<R::Response, ClientError> {
        let mut connection = match self.open.remove(&place) {
            Some(connection) => connection,
            None => self.connect(place)?,
        };
        let version = connection.version(R::KEY, &versions)?;
        let answer = connection.call(version, &build(version), &mut self.patience)?;
        // A connection that failed is in an unknown state and not kept.
        self.open.insert(place, connection);
        Ok(answer)
    }

    /// Whether a broker serves an API in one of these versions.
    fn serves(
        &mut self,
        place: Place,
        key: ApiKey,
        versions: &RangeInclusive<i16>,
    ) -> Result<bool, ClientError> {
        if !self.open.contains_key(&place) {
            let connection = self.connect(place)?;
            self.open.insert(place, connection);
        }
        Ok(self
            .open
            .get(&place)
            .is_some_and(|c| c.version(key, versions).is_ok()))
    }

    fn connect(&mut self, place: Place) -> Result<Connection, ClientError> {
        match place {
            Place::Broker(id) => {
                let address = self.brokers.get(&id).cloned();
                let address = address.ok_or_else(|| {
                    ClientError::senseless("Metadata", &format!("broker {id} is named without an address"))
                })?;
                Connection::open(&address, &mut self.patience).map_err(|error| error.of_broker(id))
            }
            Place::Any => {
                let mut last = None;
                for address in self.seeds.clone() {
                    match Connection::open(&address, &mut self.patience) {
                        Ok(connection) => {
                            self.was_reached = true;
                            return Ok(connection);
                        }
                        Err(error) if self.was_reached => last = Some(error.of_one_that_was_there()),
                        Err(error) => last = Some(error),
                    }
                }
                Err(last.unwrap_or_else(|| ClientError::new(Kind::Unreachable, "no broker is named")))
            }
        }
    }

    /// Remembers where a broker is; what cannot be an address is not remembered.
    fn learn(&mut self, broker: i32, host: &str, port: i32) {
        if let Some(port) = u16::try_from(port).ok().filter(|&port| port > 0) {
            let host = host.to_owned();
            let address = Address { host, port };
            if self.brokers.insert(broker, address.clone()) != Some(address) {
                self.open.remove(&Place::Broker(broker));
            }
        }
    }
}

/// A string of the wire.
fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

/// `Err` when an answer carries a code.
fn check(code: ErrorCode, message: Option<&str>, doing: impl Fn() -> String) -> Result<(), ClientError> {
    if code.is_none() {
        Ok(())
    } else {
        Err(ClientError::answer(&doing(), code, message))
    }
}

/// `Err` when an answer leaves out some of what was asked for: that is never taken for done, or for nothing there.
fn complete<T: Ord>(
    key: ApiKey,
    asked: impl IntoIterator<Item = T>,
    answered: impl IntoIterator<Item = T>,
) -> Result<(), ClientError> {
    let answered: BTreeSet<T> = answered.into_iter().collect();
    if asked.into_iter().all(|name| answered.contains(&name)) {
        Ok(())
    } else {
        Err(ClientError::senseless(
            key.name(),
            "it leaves out what was asked for",
        ))
    }
}

#[cfg(test)]
mod tests;
