//! The topics of a run and who leads their partitions: made before it, looked up, and removed after it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use broker::client::{Address, Client, ClientError, EARLIEST, LATEST, NewTopic, TopicView};
use broker::exit::{Failure, Status};
use protocol::Str;

use super::plan::{Plan, TopicPlan};

/// Topics of one request.
const TOPICS_MAX: usize = 500;

/// Before brokers are asked again for topics that they do not know yet.
const PAUSE: Duration = Duration::from_millis(20);

/// What threads know of brokers and topics.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// Where leaders are, each with how it is named to people.
    pub(super) brokers: Vec<(SocketAddr, String)>,
    pub(super) names: Vec<Str>,
    /// Places in `names`.
    pub(super) topics: BTreeMap<Vec<u8>, u32>,
    /// Of each topic, the place in `brokers` of each partition's leader.
    pub(super) leaders: Vec<Vec<usize>>,
    /// Where consumers begin, as `leaders`.
    pub(super) offsets: Vec<Vec<i64>>,
    pub(super) partitions: u32,
}

/// The connection for what is asked of brokers besides messages.
#[derive(Debug)]
pub(super) struct Admin {
    bootstrap: Vec<Address>,
    patience: Duration,
}

impl Admin {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            bootstrap: plan.bootstrap.clone(),
            patience: plan.patience,
        }
    }

    fn client(&self) -> Client {
        Client::new(self.bootstrap.clone(), self.patience, |line| eprintln!("{line}"))
    }

    /// Creates the topics of a run, unless they exist.
    ///
    /// # Errors
    /// The brokers refuse, or are not there.
    pub(super) fn create(&self, plan: &TopicPlan) -> Result<(), Failure> {
        if plan.exist {
            return Ok(());
        }
        for names in plan.names.chunks(TOPICS_MAX) {
            let topics: Vec<NewTopic> = names
                .iter()
                .map(|name| NewTopic {
                    name: name.clone(),
                    partitions: i32::try_from(plan.partitions).unwrap_or(i32::MAX),
                    replication_factor: plan.replication_factor,
                    configs: plan.configs.clone(),
                })
                .collect();
            // A client's patience is for one command.
            first_error(self.client().create_topics(&topics)?)?;
        }
        Ok(())
    }

    /// Removes topics.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub(super) fn delete(&self, names: &[String]) -> Result<(), Failure> {
        for names in names.chunks(TOPICS_MAX) {
            first_error(self.client().delete_topics(names)?)?;
        }
        Ok(())
    }

    /// Looks up leaders and offsets.
    ///
    /// # Errors
    /// A topic that does not exist, topics of different numbers of partitions, a leader that cannot be found.
    pub(super) fn look_up(&self, plan: &TopicPlan, from_earliest: bool) -> Result<Cluster, Failure> {
        let mut client = self.client();
        let views = seen(plan, self.patience, || Ok(client.topics(Some(&plan.names))?))?;
        let mut partitions = None;
        for name in &plan.names {
            let Some(view) = views.get(name) else {
                let sentence =
                    format!("topic '{name}' does not exist; leave --topic out to have topics made");
                return Err(Failure::new(Status::Data, sentence));
            };
            let count = view.partitions.len();
            if *partitions.get_or_insert(count) != count {
                let sentence = format!(
                    "topic '{name}' has {count} partitions and another one of the run {}; a run needs topics of the same number",
                    partitions.unwrap_or(0)
                );
                return Err(Failure::new(Status::Data, sentence));
            }
        }
        let wanted: BTreeSet<(String, i32)> = views
            .values()
            .flat_map(|view| view.partitions.keys().map(|number| (view.name.clone(), *number)))
            .collect();
        // Asking leaders for offsets also waits until each partition has one.
        let at = if from_earliest || !plan.exist {
            EARLIEST
        } else {
            LATEST
        };
        let offsets = client.offsets(&wanted, at)?;
        let views = client.topics(Some(&plan.names))?;
        let mut found = Found::default();
        for name in &plan.names {
            let Some(view) = views.get(name) else { continue };
            let mut leaders = Vec::with_capacity(view.partitions.len());
            for (number, partition) in &view.partitions {
                let leader = partition.leader.ok_or_else(|| no_leader(name, *number))?;
                leaders.push(found.broker(&client, leader)?);
            }
            let offset = |number: &i32| offsets.get(&(name.clone(), *number)).copied().unwrap_or(0);
            found.offsets.push(view.partitions.keys().map(offset).collect());
            found.leaders.push(leaders);
        }
        let names: Vec<Str> = plan.names.iter().map(|name| Str::from(name.clone())).collect();
        let numbered = plan
            .names
            .iter()
            .map(|name| name.clone().into_bytes())
            .zip(0u32..);
        Ok(Cluster {
            topics: numbered.collect(),
            names,
            brokers: found.brokers,
            leaders: found.leaders,
            offsets: found.offsets,
            partitions: u32::try_from(partitions.unwrap_or(1)).unwrap_or(u32::MAX),
        })
    }
}

/// What the brokers say of the topics of a run. The one that is asked may hear of new ones, and of all their partitions, after the one
/// that created them has answered: that is waited for.
fn seen(
    plan: &TopicPlan,
    patience: Duration,
    mut ask: impl FnMut() -> Result<BTreeMap<String, TopicView>, Failure>,
) -> Result<BTreeMap<String, TopicView>, Failure> {
    let began = Instant::now();
    let is_whole = |view: &TopicView| view.partitions.len() == plan.partitions as usize;
    loop {
        let views = ask()?;
        let are_whole = plan
            .names
            .iter()
            .all(|name| views.get(name).is_some_and(is_whole));
        if plan.exist || are_whole || began.elapsed() > patience {
            return Ok(views);
        }
        std::thread::sleep(PAUSE);
    }
}

#[derive(Default)]
struct Found {
    ids: BTreeMap<i32, usize>,
    brokers: Vec<(SocketAddr, String)>,
    leaders: Vec<Vec<usize>>,
    offsets: Vec<Vec<i64>>,
}

impl Found {
    fn broker(&mut self, client: &Client, id: i32) -> Result<usize, Failure> {
        if let Some(place) = self.ids.get(&id) {
            return Ok(*place);
        }
        let address = client.address_of(id).ok_or_else(|| {
            Failure::new(
                Status::Protocol,
                format!("the metadata name broker {id} as a leader without its address"),
            )
        })?;
        let resolved = (address.host.as_str(), address.port).to_socket_addrs();
        let resolved = resolved
            .map_err(|error| error.to_string())
            .and_then(|mut found| found.next().ok_or_else(|| "the name has no address".to_owned()));
        let resolved = resolved.map_err(|error| {
            let sentence = format!(
                "broker {id} calls itself {address} in its metadata, which cannot be resolved ({error}); set its advertised.listeners to an address that this host can reach"
            );
            Failure::new(Status::Unavailable, sentence)
        })?;
        self.brokers.push((resolved, address.to_string()));
        self.ids.insert(id, self.brokers.len() - 1);
        Ok(self.brokers.len() - 1)
    }
}

fn no_leader(topic: &str, partition: i32) -> Failure {
    Failure::new(
        Status::TempFail,
        format!("{topic}-{partition} has no leader; try again later"),
    )
}

fn first_error(outcomes: Vec<(String, Result<(), ClientError>)>) -> Result<(), Failure> {
    for (_, outcome) in outcomes {
        outcome?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use broker::client::PartitionView;

    use super::*;

    fn view(name: &str, partitions: i32) -> BTreeMap<String, TopicView> {
        let partition = PartitionView {
            leader: Some(1),
            leader_epoch: 0,
            replicas: vec![1],
            isr: vec![1],
            offline: Vec::new(),
        };
        let view = TopicView {
            name: name.to_owned(),
            id: protocol::Uuid::default(),
            is_internal: false,
            partitions: (0..partitions)
                .map(|number| (number, partition.clone()))
                .collect(),
        };
        BTreeMap::from([(name.to_owned(), view)])
    }

    fn plan(exist: bool) -> TopicPlan {
        TopicPlan {
            names: vec!["t".into()],
            exist,
            partitions: 3,
            replication_factor: -1,
            configs: Vec::new(),
            keep: false,
        }
    }

    /// How many answers it took, and what the last one said.
    fn after(plan: &TopicPlan, patience: Duration, answers: &[i32]) -> (usize, Option<usize>) {
        let mut asked = 0;
        let views = seen(plan, patience, || {
            let partitions = answers[asked.min(answers.len() - 1)];
            asked += 1;
            Ok(if partitions == 0 {
                BTreeMap::new()
            } else {
                view("t", partitions)
            })
        });
        let views = views.expect("nobody fails");
        (asked, views.get("t").map(|view| view.partitions.len()))
    }

    #[test]
    fn a_new_topic_is_waited_for_until_all_its_partitions_are_known_and_an_old_one_is_not() {
        let minute = Duration::from_secs(60);
        assert_eq!(after(&plan(false), minute, &[0, 0, 2, 3]), (4, Some(3)));
        assert_eq!(after(&plan(true), minute, &[0, 3]), (1, None));
        // An existing topic has as many partitions as it has.
        assert_eq!(after(&plan(true), minute, &[5]), (1, Some(5)));
        assert_eq!(after(&plan(false), Duration::ZERO, &[0]).1, None);
    }
}
