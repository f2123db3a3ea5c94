//! A topic for clients that do not make their own: it goes when the workload is over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use broker::client::{Address, Client, ClientError, EARLIEST, NewTopic, TopicView};

use super::On;
use crate::error::{Error, Result, failed};

/// How long a broker may take to create or delete one.
const PATIENCE: Duration = Duration::from_secs(60);
/// Before it is asked again for a topic that it does not know yet.
const PAUSE: Duration = Duration::from_millis(20);

/// A topic that exists.
pub(super) struct Topic {
    pub(super) name: String,
    client: Client,
}

impl Topic {
    /// Creates it, and waits until each partition has a leader that answers.
    ///
    /// # Errors
    /// The broker refuses.
    pub(super) fn create(partitions: u32, on: &On<'_>) -> Result<Self> {
        let Some(address) = Address::parse(on.bootstrap) else {
            return failed(format!("'{}' is no HOST:PORT", on.bootstrap));
        };
        let client = Client::new(vec![address], PATIENCE, |line| eprintln!("{line}"));
        // A name of its own, so that none finds what another left.
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("compare-{}-{}", unix.as_millis(), std::process::id());
        let new = NewTopic {
            name: name.clone(),
            partitions: i32::try_from(partitions).unwrap_or(i32::MAX),
            replication_factor: -1,
            configs: Vec::new(),
        };
        let mut topic = Self { name, client };
        first_error(topic.client.create_topics(&[new]))?;
        // Apache Kafka names a new topic in its metadata some time after it has answered.
        let began = Instant::now();
        let names = [topic.name.clone()];
        let is_known = |views: BTreeMap<String, TopicView>| {
            let view = views.into_values().next();
            view.is_some_and(|view| view.partitions.len() == partitions as usize)
        };
        while !is_known(topic.client.topics(Some(&names)).map_err(said)?) && began.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
        let numbers = 0..i32::try_from(partitions).unwrap_or(i32::MAX);
        let all = numbers.map(|number| (topic.name.clone(), number)).collect();
        topic.client.offsets(&all, EARLIEST).map_err(said)?;
        Ok(topic)
    }

    /// Deletes it.
    ///
    /// # Errors
    /// The broker refuses.
    pub(super) fn delete(mut self) -> Result<()> {
        first_error(self.client.delete_topics(std::slice::from_ref(&self.name)))
    }
}

/// What became of each topic that was named.
type Outcomes = Vec<(String, std::result::Result<(), ClientError>)>;

fn first_error(outcomes: std::result::Result<Outcomes, ClientError>) -> Result<()> {
    for (_, outcome) in outcomes.map_err(said)? {
        outcome.map_err(said)?;
    }
    Ok(())
}

fn said(error: ClientError) -> Error {
    Error::Failed(broker::exit::Failure::from(error).to_string())
}
