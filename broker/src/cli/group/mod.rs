//! `penstock group`: the daily tasks around consumer groups, against any running Kafka broker.

mod args;
mod describe;
mod plan;
mod reset;
mod spec;
mod time;

use std::collections::BTreeSet;

use clap::{Args, Subcommand};
use serde_json::json;

use super::remote::{EXIT_CODES, Remote, Report, all_done, confirm};
use super::table::{counted, left, named, right};
use crate::client::{Client, ClientError, GroupListing, Kind, TopicPartition, clean};
use crate::exit::Failure;

use self::args::{OneGroup, ResetArgs};
use self::spec::{TopicSpec, state_named, type_named};

/// Partitions named in the question before their offsets are deleted.
const NAMED_MAX: usize = 10;

const EXAMPLES: &str = "\
Examples:
  penstock group list --state Stable
  penstock group describe readers                                   offsets, lag and members; of all groups without a name
  penstock group reset-offsets readers --all-topics --to earliest   only shows what would be written
  penstock group reset-offsets readers --topic orders:0,1 --to 2026-11-30T04:00:00Z --execute
  penstock group reset-offsets readers --topic orders --shift -100 --execute
  penstock group delete-offsets readers --topic orders --yes
  penstock group delete readers --yes
  penstock group describe readers --json | jq '.[0].total_lag'

Resetting needs a group without members: stop its consumers first.
--group and --to-earliest, --to-offset, --by-duration and so on are understood as kafka-consumer-groups has them.
The fields of --json are in docs/OPERATIONS.md.";

/// `penstock group …`
#[derive(Clone, Debug, Args)]
#[command(after_help = "`penstock group --help` has examples and exit codes.", after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct GroupArgs {
    #[command(flatten)]
    remote: Remote,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Debug, Subcommand)]
enum Verb {
    /// All groups with type and state
    List {
        /// Only groups in this state: Stable, Empty, PreparingRebalance, …; may be repeated
        #[arg(long = "state", value_name = "STATE", value_delimiter = ',', value_parser = state_named)]
        states: Vec<String>,
        /// Only groups of this type: classic, consumer, share, streams; may be repeated
        #[arg(long = "type", value_name = "TYPE", value_delimiter = ',', value_parser = type_named)]
        types: Vec<String>,
    },
    /// Committed offsets, log ends, lag and members
    ///
    /// The lag beside a group's name is the sum of those of its partitions. A partition for which nothing is committed has none,
    /// and is counted behind the sum: lag 0 (1 partition without a commit).
    Describe {
        /// Which groups; all classic and consumer groups when none is named
        #[arg(value_name = "GROUP")]
        groups: Vec<String>,
        /// The same as kafka-consumer-groups spells it; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        named: Vec<String>,
        /// All groups; so it is when none is named
        #[arg(long, visible_alias = "all-groups", conflicts_with_all = ["groups", "named"])]
        all: bool,
    },
    /// Let a group without members go on elsewhere; shows the plan, and writes it with --execute
    ResetOffsets(ResetArgs),
    /// Delete groups without members, with all they have committed
    Delete {
        /// Which groups
        #[arg(value_name = "GROUP", required_unless_present = "named")]
        groups: Vec<String>,
        /// The same as kafka-consumer-groups spells it; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        named: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Delete what a group has committed for topics that no member consumes
    DeleteOffsets {
        #[command(flatten)]
        group: OneGroup,
        /// A topic, or some of its partitions; may be repeated
        #[arg(short, long = "topic", value_name = "TOPIC[:0,1,2]", required = true, value_parser = TopicSpec::parse)]
        topics: Vec<TopicSpec>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// Does what was asked for and says it.
pub(super) fn run(args: &GroupArgs) -> Result<(), Failure> {
    let mut client = args.remote.client()?;
    match &args.verb {
        Verb::List { states, types } => {
            args.remote.print(&listed(&client.groups(states, types)?));
            Ok(())
        }
        Verb::Describe { groups, named, .. } => {
            describe::run(&args.remote, &mut client, each_once(groups.iter().chain(named)))
        }
        Verb::ResetOffsets(reset) => {
            let (report, outcome) = reset::run(&mut client, reset)?;
            args.remote.print(&report);
            outcome
        }
        Verb::Delete { groups, named, yes } => {
            let groups = each_once(groups.iter().chain(named));
            delete(&args.remote, &mut client, &groups, *yes)
        }
        Verb::DeleteOffsets { group, topics, yes } => {
            delete_offsets(&args.remote, &mut client, group.name(), topics, *yes)
        }
    }
}

/// The names in the order in which they were given.
fn each_once<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).cloned().collect()
}

fn delete(remote: &Remote, client: &mut Client, groups: &[String], yes: bool) -> Result<(), Failure> {
    let names: Vec<String> = groups.iter().map(|group| named(group)).collect();
    let what = format!("Delete {} with all committed offsets", names.join(", "));
    confirm(yes, &what)?;
    remote.print_done("deleted", client.delete_groups(groups), None)
}

fn delete_offsets(
    remote: &Remote,
    client: &mut Client,
    group: &str,
    topics: &[TopicSpec],
    yes: bool,
) -> Result<(), Failure> {
    let partitions = committed_of(client, group, topics)?;
    confirm(yes, &question(group, &partitions))?;
    let outcomes = client.delete_offsets(group, &partitions)?;
    let succeeded = outcomes.iter().filter(|(_, outcome)| outcome.is_ok());
    let (text, deleted): (String, Vec<_>) = succeeded
        .map(|((topic, number), _)| {
            let line = format!("deleted {}-{number}\n", clean(topic));
            (line, json!({"topic": topic, "partition": number}))
        })
        .unzip();
    remote.print(&Report {
        text,
        json: json!({ "group": group, "deleted": deleted }),
    });
    all_done(outcomes.into_iter().map(|(_, outcome)| outcome))
}

/// What is asked before offsets are deleted.
fn question(group: &str, partitions: &BTreeSet<TopicPartition>) -> String {
    let name = |(topic, number): &TopicPartition| format!("{}-{number}", clean(topic));
    let mut names: Vec<String> = partitions.iter().take(NAMED_MAX).map(name).collect();
    let left = partitions.len() - names.len();
    if left > 0 {
        names.push(format!("and {left} more"));
    }
    format!(
        "Delete {} of {} ({})",
        counted(partitions.len(), "committed offset"),
        named(group),
        names.join(", ")
    )
}

/// The partitions meant for which something is committed.
fn committed_of(
    client: &mut Client,
    group: &str,
    topics: &[TopicSpec],
) -> Result<BTreeSet<TopicPartition>, ClientError> {
    let committed = client.committed(group)?;
    if committed.is_empty() && client.group(group)?.is_none() {
        return Err(unknown(group));
    }
    let mut partitions = BTreeSet::new();
    for spec in topics {
        let matches = |(topic, number): &&TopicPartition| {
            *topic == spec.topic && spec.partitions.as_ref().is_none_or(|p| p.contains(number))
        };
        let before = partitions.len();
        partitions.extend(committed.keys().filter(matches).cloned());
        let missing = spec
            .partitions
            .iter()
            .flatten()
            .find(|n| !committed.contains_key(&(spec.topic.clone(), **n)));
        if missing.is_some() || partitions.len() == before {
            let which = missing.map(|n| format!("-{n}")).unwrap_or_default();
            return Err(ClientError::new(
                Kind::Impossible,
                format!(
                    "group '{group}' has nothing committed for {}{which}; `penstock group describe {group}` shows what it has",
                    spec.topic
                ),
            ));
        }
    }
    Ok(partitions)
}

/// The failure about a group that nobody knows.
fn unknown(group: &str) -> ClientError {
    ClientError::answer(
        &format!("looking for group '{group}'"),
        protocol::ErrorCode::GROUP_ID_NOT_FOUND,
        None,
    )
}

fn listed(groups: &[GroupListing]) -> Report {
    // ListGroups does not tell the protocol that was chosen, and asking for it brings every member's metadata: describe does.
    let columns = [
        left("GROUP"),
        left("TYPE"),
        left("STATE"),
        left("PROTOCOL-TYPE"),
        right("COORDINATOR"),
    ];
    let row = |group: &GroupListing| {
        let cells = [
            named(&group.group),
            group.kind.clone(),
            group.state.clone(),
            group.protocol_type.clone(),
            group.coordinator.to_string(),
        ];
        let json = json!({
            "group": group.group,
            "type": group.kind,
            "state": group.state,
            "protocol_type": group.protocol_type,
            "coordinator": group.coordinator,
        });
        (cells, json)
    };
    Report::listing(columns, groups.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_what_is_deleted_as_far_as_it_can_be_read() {
        let question = |count| {
            let partitions = (0..count).map(|number| ("orders".to_owned(), number));
            question("readers", &partitions.collect())
        };
        assert_eq!(question(1), "Delete 1 committed offset of readers (orders-0)");
        assert_eq!(
            question(2),
            "Delete 2 committed offsets of readers (orders-0, orders-1)"
        );
        assert!(question(10).ends_with("orders-8, orders-9)"), "{}", question(10));
        assert!(
            question(12).ends_with("orders-8, orders-9, and 2 more)"),
            "{}",
            question(12)
        );
    }

    #[test]
    fn a_name_that_is_given_twice_is_meant_once() {
        let names = ["b", "a", "b", "a"].map(str::to_owned);
        assert_eq!(each_once(names.iter()), ["b", "a"]);
    }

    #[test]
    fn a_list_has_a_dash_where_an_old_broker_tells_nothing() {
        let group = GroupListing {
            group: "readers".to_owned(),
            state: "Stable".to_owned(),
            kind: String::new(),
            protocol_type: "consumer".to_owned(),
            coordinator: 1,
        };
        let nameless = GroupListing {
            group: String::new(),
            state: "Empty".to_owned(),
            kind: "classic".to_owned(),
            protocol_type: String::new(),
            coordinator: 1,
        };
        let report = listed(&[nameless, group]);
        let lines: Vec<&str> = report.text.lines().collect();
        assert_eq!(
            lines,
            [
                "GROUP    TYPE     STATE   PROTOCOL-TYPE  COORDINATOR",
                "\"\"       classic  Empty   -                        1",
                "readers  -        Stable  consumer                 1",
            ]
        );
        assert_eq!(report.json[0]["group"], "");
        assert_eq!(report.json[1]["state"], "Stable");
    }
}
