//! `penstock group`: the daily tasks around consumer groups, against any running Kafka broker.

mod describe;
mod plan;
mod reset;
mod spec;
mod time;

use std::collections::BTreeSet;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;

use super::remote::{EXIT_CODES, Remote, Report, all_done, confirm};
use super::table::{left, named, right};
use crate::client::{Client, ClientError, GroupListing, Kind, TopicPartition, clean};
use crate::exit::Failure;

use self::spec::{To, TopicSpec, state_named, type_named};

const EXAMPLES: &str = "\
Examples:
  penstock group list --state Stable
  penstock group describe readers                                   offsets, lag and members
  penstock group reset-offsets readers --all-topics --to earliest   only shows what would be written
  penstock group reset-offsets readers --topic orders:0,1 --to 2026-11-30T04:00:00Z --execute
  penstock group reset-offsets readers --topic orders --shift -100 --execute
  penstock group delete-offsets readers --topic orders --yes
  penstock group delete readers --yes
  penstock group describe readers --json | jq '.[0].total_lag'

Resetting needs a group without members: stop its consumers first.
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
    Describe {
        /// Which groups
        #[arg(value_name = "GROUP", required = true)]
        groups: Vec<String>,
    },
    /// Let a group without members go on elsewhere; shows the plan, and writes it with --execute
    ResetOffsets(ResetArgs),
    /// Delete groups without members, with all they have committed
    Delete {
        /// Which groups
        #[arg(value_name = "GROUP", required = true)]
        groups: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Delete what a group has committed for topics that no member consumes
    DeleteOffsets {
        /// Which group
        #[arg(value_name = "GROUP")]
        group: String,
        /// A topic, or some of its partitions; may be repeated
        #[arg(short, long = "topic", value_name = "TOPIC[:0,1,2]", required = true, value_parser = TopicSpec::parse)]
        topics: Vec<TopicSpec>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("target").required(true))]
#[command(group = ArgGroup::new("scope").required(true))]
struct ResetArgs {
    /// Which group; one that does not exist is created by its offsets
    #[arg(value_name = "GROUP")]
    group: String,
    /// A topic, or some of its partitions; may be repeated
    #[arg(short, long = "topic", group = "scope", value_name = "TOPIC[:0,1,2]", value_parser = TopicSpec::parse)]
    topics: Vec<TopicSpec>,
    /// Every topic for which something is committed
    #[arg(long, group = "scope", conflicts_with = "topics")]
    all_topics: bool,
    /// earliest, latest, current, an offset, a time (ISO 8601, UTC without a zone) or a duration before now (PT1H)
    #[arg(
        long,
        group = "target",
        value_name = "WHERE",
        value_parser = To::parse,
        // What begins with a hyphen is refused with a sentence of ours: clap would say to write `--` in front of it.
        allow_hyphen_values = true
    )]
    to: Option<To>,
    /// So many records on; back when negative
    #[arg(
        long,
        visible_alias = "shift-by",
        group = "target",
        conflicts_with = "to",
        value_name = "N",
        allow_negative_numbers = true
    )]
    shift: Option<i64>,
    /// Write the new offsets
    #[arg(long)]
    execute: bool,
    /// Only show what would be written; so it is without --execute
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
}

/// Does what was asked for and says it.
pub(super) fn run(args: &GroupArgs) -> Result<(), Failure> {
    let mut client = args.remote.client()?;
    match &args.verb {
        Verb::List { states, types } => {
            args.remote.print(&listed(&client.groups(states, types)?));
            Ok(())
        }
        Verb::Describe { groups } => describe::run(&args.remote, &mut client, groups),
        Verb::ResetOffsets(reset) => {
            let (report, outcome) = reset::run(&mut client, reset)?;
            args.remote.print(&report);
            outcome
        }
        Verb::Delete { groups, yes } => delete(&args.remote, &mut client, groups, *yes),
        Verb::DeleteOffsets { group, topics, yes } => {
            delete_offsets(&args.remote, &mut client, group, topics, *yes)
        }
    }
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
    let what = format!(
        "Delete {} committed offsets of {}",
        partitions.len(),
        named(group)
    );
    confirm(yes, &what)?;
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
