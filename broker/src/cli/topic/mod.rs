//! `penstock topic`: the daily tasks around topics, against any running Kafka broker.

mod describe;

use clap::{Args, Subcommand};
use serde_json::json;
use shard::config::suggest::nearest;

use super::remote::{EXIT_CODES, Remote, Report, confirm, count, note, pair};
use super::table::{left, right};
use crate::client::{Client, ClientError, ConfigValue, Kind, NewTopic, PartitionView, TopicView, clean};
use crate::exit::{Failure, Status};

const EXAMPLES: &str = "\
Examples:
  penstock topic list
  penstock topic create orders --partitions 6 --config retention.ms=86400000
  penstock topic describe orders       leaders, in-sync replicas, offsets, bytes, configs
  penstock topic alter orders --partitions 12 --config cleanup.policy=compact --unset retention.ms
  penstock topic delete orders --yes
  penstock topic describe --json orders | jq '.[0].partitions[].latest_offset'

The fields of --json are in docs/OPERATIONS.md.";

/// `penstock topic …`
#[derive(Clone, Debug, Args)]
#[command(after_help = "`penstock topic --help` has examples and exit codes.", after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct TopicArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// All topics with their partitions and replicas
    List {
        /// Also the cluster's own, like __consumer_offsets
        #[arg(long)]
        internal: bool,
    },
    /// Partitions with leader, in-sync replicas, offsets and bytes; configs that are set
    Describe {
        /// Which topics; all that are not internal when none is named
        #[arg(value_name = "TOPIC")]
        topics: Vec<String>,
    },
    /// Create topics
    Create {
        #[arg(value_name = "TOPIC", required = true)]
        topics: Vec<String>,
        /// How many partitions; the broker's num.partitions when not said
        #[arg(short, long, value_name = "N", value_parser = partitions, allow_negative_numbers = true)]
        partitions: Option<i32>,
        /// How many replicas; the broker's default.replication.factor when not said
        #[arg(short, long, value_name = "N", value_parser = replicas, allow_negative_numbers = true)]
        replication_factor: Option<i16>,
        /// Set a config; may be repeated
        #[arg(short, long = "config", value_name = "NAME=VALUE", value_parser = pair)]
        configs: Vec<(String, String)>,
        /// A topic that exists already is no failure
        #[arg(long)]
        if_not_exists: bool,
    },
    /// Add partitions, set or unset configs
    Alter {
        #[arg(value_name = "TOPIC")]
        topic: String,
        /// How many partitions there shall be; more than there are
        #[arg(short, long, value_name = "N", value_parser = partitions, allow_negative_numbers = true)]
        partitions: Option<i32>,
        /// Set a config; may be repeated
        #[arg(short, long = "config", value_name = "NAME=VALUE", value_parser = pair)]
        configs: Vec<(String, String)>,
        /// Let a config have its default again; may be repeated
        #[arg(short, long = "unset", value_name = "NAME")]
        unset: Vec<String>,
    },
    /// Delete topics with all their records
    Delete {
        #[arg(value_name = "TOPIC", required = true)]
        topics: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// A topic that does not exist is no failure
        #[arg(long)]
        if_exists: bool,
        /// Also the cluster's own, like __consumer_offsets; what they hold is lost
        #[arg(long)]
        internal: bool,
    },
}

fn partitions(text: &str) -> Result<i32, String> {
    count(text, i32::MAX.into())
}

fn replicas(text: &str) -> Result<i16, String> {
    count(text, i16::MAX.into())
}

/// Does what was asked for and says it.
pub(super) fn run(args: &TopicArgs) -> Result<(), Failure> {
    let mut client = args.remote.client()?;
    match &args.verb {
        Verb::List { internal } => args.remote.print(&list(&mut client, *internal)?),
        Verb::Describe { topics } => return describe::run(&args.remote, &mut client, topics),
        Verb::Create {
            topics,
            partitions,
            replication_factor,
            configs,
            if_not_exists,
        } => {
            let new = |name: &String| NewTopic {
                name: name.clone(),
                partitions: partitions.unwrap_or(-1),
                replication_factor: replication_factor.unwrap_or(-1),
                configs: configs.clone(),
            };
            let topics: Vec<NewTopic> = topics.iter().map(new).collect();
            let outcomes = client.create_topics(&topics)?;
            let ignored = if_not_exists.then_some(protocol::ErrorCode::TOPIC_ALREADY_EXISTS);
            return args.remote.print_done("created", outcomes, ignored);
        }
        Verb::Alter {
            topic,
            partitions,
            configs,
            unset,
        } => {
            alter(&mut client, topic, *partitions, configs, unset)?;
            args.remote.print(&Report::done("altered", &[topic]));
        }
        Verb::Delete {
            topics,
            yes,
            if_exists,
            internal,
        } => {
            if !*internal {
                refuse_internal(&mut client, topics)?;
            }
            confirm(
                *yes,
                &format!("Delete {} with all records", clean(&topics.join(", "))),
            )?;
            let outcomes = client.delete_topics(topics)?;
            let ignored = if_exists.then_some(protocol::ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
            return args.remote.print_done("deleted", outcomes, ignored);
        }
    }
    Ok(())
}

/// The cluster's own topics are deleted like any other, with what they hold: the broker does not ask back, so it is done here.
fn refuse_internal(client: &mut Client, names: &[String]) -> Result<(), Failure> {
    let known = client.known_topics(names)?;
    let Some(topic) = known.values().find(|topic| topic.is_internal) else {
        return Ok(());
    };
    let lost = match topic.name.as_str() {
        "__consumer_offsets" => "the committed offsets of all groups are lost with it",
        "__transaction_state" => "all open transactions are lost with it",
        _ => "what it holds is lost with it",
    };
    let sentence = format!(
        "topic '{}' is the cluster's own, and {lost}; say --internal if that is meant",
        topic.name
    );
    Err(Failure::new(Status::Usage, sentence))
}

fn list(client: &mut Client, internal: bool) -> Result<Report, ClientError> {
    let topics = client.topics(None)?;
    let topics: Vec<&TopicView> = topics.values().filter(|t| internal || !t.is_internal).collect();
    Ok(listed(&topics))
}

fn listed(topics: &[&TopicView]) -> Report {
    let columns = [
        left("TOPIC"),
        right("PARTITIONS"),
        right("REPLICAS"),
        right("UNDER-REPLICATED"),
        right("LEADERLESS"),
    ];
    let row = |topic: &&TopicView| {
        let count =
            |which: fn(&PartitionView) -> bool| topic.partitions.values().filter(|p| which(p)).count();
        let under_replicated = count(|p| p.isr.len() < p.replicas.len());
        let leaderless = count(|p| p.leader.is_none());
        let replication_factor = topic.replication_factor();
        let cells = [
            topic.name.clone(),
            topic.partitions.len().to_string(),
            replication_factor.to_string(),
            under_replicated.to_string(),
            leaderless.to_string(),
        ];
        let json = json!({
            "topic": topic.name,
            "topic_id": topic.id.to_string(),
            "internal": topic.is_internal,
            "partitions": topic.partitions.len(),
            "replication_factor": replication_factor,
            "under_replicated_partitions": under_replicated,
            "leaderless_partitions": leaderless,
        });
        (cells, json)
    };
    Report::listing(columns, topics.iter().map(row))
}

/// Partitions first: they can be refused, and configs are changed all or none.
fn alter(
    client: &mut Client,
    topic: &str,
    partitions: Option<i32>,
    configs: &[(String, String)],
    unset: &[String],
) -> Result<(), Failure> {
    if partitions.is_none() && configs.is_empty() && unset.is_empty() {
        let sentence = "nothing to alter: say --partitions, --config NAME=VALUE or --unset NAME";
        return Err(Failure::new(Status::Usage, sentence));
    }
    check_names(configs, unset)?;
    client.topic(topic)?;
    if !unset.is_empty() {
        check_unset(client, topic, unset)?;
    }
    if let Some(count) = partitions {
        client.add_partitions(topic, count)?;
    }
    if configs.is_empty() && unset.is_empty() {
        return Ok(());
    }
    client.alter_configs(topic, configs, unset).map_err(|error| {
        let mut failure = Failure::from(error);
        if let Some(count) = partitions {
            failure.sentence = format!(
                "topic '{topic}' has {count} partitions now, its configs are as they were: {}",
                failure.sentence
            );
        }
        failure
    })
}

/// Each config is changed once, or it is not known what is meant.
fn check_names(configs: &[(String, String)], unset: &[String]) -> Result<(), Failure> {
    let mut names: Vec<&str> = configs.iter().map(|(name, _)| name.as_str()).collect();
    names.extend(unset.iter().map(String::as_str));
    names.sort_unstable();
    let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) else {
        return Ok(());
    };
    let sentence = format!(
        "config '{}' is given more than once in --config and --unset; nothing was changed",
        clean(twice[0])
    );
    Err(Failure::new(Status::Usage, sentence))
}

/// A broker unsets a config that is not set, or that does not exist, without a word, as Kafka's does (AD-9): a typing error would
/// look like success.
fn check_unset(client: &mut Client, topic: &str, unset: &[String]) -> Result<(), Failure> {
    let known = match client.all_configs(topic) {
        Ok(known) => known,
        // Who may only change configs is not told which there are.
        Err(error) if error.kind == Kind::Answer(protocol::ErrorCode::TOPIC_AUTHORIZATION_FAILED) => {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    for name in not_set(topic, &known, unset)? {
        note(&format!(
            "topic '{topic}' has no value of its own for {name}: nothing to unset"
        ));
    }
    Ok(())
}

/// Those of the names that the topic does not set itself.
///
/// # Errors
/// When a name is no topic config.
fn not_set<'a>(
    topic: &str,
    known: &[ConfigValue],
    unset: &'a [String],
) -> Result<Vec<&'a String>, ClientError> {
    let mut without = Vec::new();
    for name in unset {
        match known.iter().find(|config| config.name == *name) {
            Some(config) if config.source == "topic" => {}
            Some(_) => without.push(name),
            None => {
                let like = nearest(name, known.iter().map(|config| config.name.as_str()));
                let advice = like.map_or_else(
                    || format!("`penstock topic describe {topic}` shows what is set"),
                    |like| format!("did you mean {like}?"),
                );
                let sentence = format!("topic '{topic}': there is no topic config {name}; {advice}");
                return Err(ClientError::new(Kind::Impossible, sentence));
            }
        }
    }
    Ok(without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_is_set_or_unset_once() {
        let set = |name: &str| (name.to_owned(), "1".to_owned());
        let unset = ["retention.ms".to_owned()];
        assert_eq!(check_names(&[set("a"), set("b")], &unset), Ok(()));
        for twice in [vec![set("retention.ms")], vec![set("a"), set("a")]] {
            let failure = check_names(&twice, &unset).unwrap_err();
            assert_eq!(failure.status, Status::Usage);
        }
    }

    #[test]
    fn a_list_counts_what_is_not_as_it_should_be() {
        let partition = |leader, isr: &[i32]| PartitionView {
            leader,
            leader_epoch: 0,
            replicas: vec![1, 2],
            isr: isr.to_vec(),
            offline: Vec::new(),
        };
        let topic = TopicView {
            name: "orders".to_owned(),
            id: protocol::Uuid([0; 16]),
            is_internal: false,
            partitions: [(0, partition(Some(1), &[1, 2])), (1, partition(None, &[2]))].into(),
        };
        let report = listed(&[&topic]);
        assert_eq!(
            report.text,
            "TOPIC   PARTITIONS  REPLICAS  UNDER-REPLICATED  LEADERLESS\norders           2         2                 1           1\n"
        );
        assert_eq!(report.json[0]["leaderless_partitions"], 1);
        assert_eq!(report.json[0]["replication_factor"], 2);
    }

    #[test]
    fn unsetting_what_is_not_set_or_does_not_exist_is_told() {
        let config = |name: &str, source: &str| ConfigValue {
            name: name.to_owned(),
            value: Some("1".to_owned()),
            source: source.to_owned(),
        };
        let known = [
            config("cleanup.policy", "default"),
            config("retention.ms", "topic"),
            config("segment.bytes", "static-broker"),
        ];
        let ask = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let found = not_set("orders", &known, &names);
            found.map(|names| names.into_iter().cloned().collect::<Vec<_>>())
        };
        assert_eq!(ask(&["retention.ms"]), Ok(vec![]));
        assert_eq!(
            ask(&["segment.bytes", "retention.ms", "cleanup.policy"]),
            Ok(vec!["segment.bytes".to_owned(), "cleanup.policy".to_owned()])
        );
        let sentence = ask(&["retention.ms", "retention.sm"]).unwrap_err().sentence;
        assert_eq!(
            sentence,
            "topic 'orders': there is no topic config retention.sm; did you mean retention.ms?"
        );
        let sentence = ask(&["nosuch"]).unwrap_err().sentence;
        assert!(
            sentence.ends_with("`penstock topic describe orders` shows what is set"),
            "{sentence}"
        );
    }
}
