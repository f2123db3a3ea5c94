//! Loads of the group coordinator on Penstock and Apache Kafka 4.3.1 side by side: `cargo run --release -p bench --bin groupload --
//! --dir DIR --write`, with nothing else running.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::compare::{Contender, Kind, Serving, round, serve};
use bench::error::{Result, end};
use bench::group_load::{COLUMNS, Commits, Figures, Heartbeats, Rebalances};
use bench::report::{command, commit, describe_host, markdown, write_result};
use clap::{Parser, ValueEnum};

/// Has groups heartbeat, rebalance and commit on both brokers in alternating order, and compares time and the broker's CPU.
#[derive(Parser)]
struct Arguments {
    /// Where the data go, on the disk that is to be measured; removed after each run.
    #[arg(long)]
    dir: PathBuf,
    /// Rounds in which each broker runs once.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// Only these loads.
    #[arg(long, value_enum)]
    only: Vec<Scenario>,
    /// Only our broker.
    #[arg(long)]
    alone: bool,
    /// Seconds of heartbeats and of commits that are measured.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Groups that heartbeat.
    #[arg(long, default_value_t = 1000)]
    groups: usize,
    /// Members of each of them.
    #[arg(long, default_value_t = 10)]
    members: usize,
    /// Milliseconds between two heartbeats of a member; 3000 is the default of Kafka's Java client.
    #[arg(long, default_value_t = 3000)]
    heartbeat_ms: u64,
    /// Committers, each with one commit in flight.
    #[arg(long, default_value_t = 256)]
    committers: usize,
    /// Partitions of each commit.
    #[arg(long, default_value_t = 10)]
    commit_partitions: i32,
    /// Write the result to bench/results/group-load.md.
    #[arg(long)]
    write: bool,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// Members that do nothing but live.
    Heartbeats,
    /// A group of 100 members over 1,000 partitions, again and again.
    Rebalances,
    /// Offsets of groups without members, one partition each.
    SingleCommits,
    /// Offsets of several partitions with each commit.
    Commits,
}

fn main() -> ExitCode {
    end(compare(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn compare(arguments: &Arguments) -> Result<()> {
    let contender = |kind: Kind| Contender {
        name: kind.to_string(),
        kind,
        overrides: Vec::new(),
    };
    let mut contenders = vec![contender(Kind::Penstock)];
    if !arguments.alone {
        contenders.push(contender(Kind::Kafka));
    }
    let names: Vec<_> = contenders.iter().map(|one| one.name.as_str()).collect();
    let mut text = head(arguments);
    let is_asked_for = |one: &Scenario| arguments.only.is_empty() || arguments.only.contains(one);
    for scenario in Scenario::value_variants().iter().copied().filter(is_asked_for) {
        let mut rounds = Vec::new();
        for number in 0..arguments.pairs {
            let runs = round(&contenders, number % 2 == 1, |one| {
                let dir = arguments.dir.join("broker");
                serve(one, &dir, &[], |broker| scenario.run(arguments, broker))
            })?;
            eprintln!("{scenario:?}, round {}: {runs:.2?}", number + 1);
            rounds.push(runs);
        }
        let tables = markdown(&COLUMNS, &names, &rounds);
        let _ = writeln!(text, "## {}\n\n{tables}", scenario.title(arguments));
    }
    let _ = writeln!(text, "Repeat, on a quiet host: `{}`", command("groupload"));
    print!("{text}");
    if arguments.write {
        write_result("group-load.md", &text)?;
    }
    Ok(())
}

fn head(arguments: &Arguments) -> String {
    format!(
        "# The group coordinator side by side with Apache Kafka 4.3.1\n\n\
         Default settings on both. Penstock answers commits after fdatasync, Kafka from its page cache. The brokers run one at a time \
         beside the client, in an order that alternates; each member and committer has a connection of its own.\n\n\
         Host: {}. Commit {}.\n\n",
        describe_host(&arguments.dir),
        commit()
    )
}

impl Scenario {
    fn title(self, arguments: &Arguments) -> String {
        let Arguments {
            groups,
            members,
            heartbeat_ms,
            committers,
            commit_partitions,
            ..
        } = arguments;
        match self {
            Self::Heartbeats => {
                format!("{groups} groups of {members} members, a heartbeat every {heartbeat_ms} ms")
            }
            Self::Rebalances => {
                "100 members over 1,000 partitions: from the last join to the last assignment".to_owned()
            }
            Self::SingleCommits => {
                format!("Committed offsets, {committers} committers, 1 partition in each commit")
            }
            Self::Commits => {
                format!(
                    "Committed offsets, {committers} committers, {commit_partitions} partitions in each commit"
                )
            }
        }
    }

    fn run(self, arguments: &Arguments, broker: &Serving) -> Result<Figures> {
        let time = Duration::from_secs(arguments.seconds);
        let commits = |partitions| Commits {
            committers: arguments.committers,
            partitions,
            time,
        };
        match self {
            Self::Heartbeats => Heartbeats {
                groups: arguments.groups,
                members: arguments.members,
                interval: Duration::from_millis(arguments.heartbeat_ms),
                time,
            }
            .run(broker),
            Self::Rebalances => Rebalances {
                members: 100,
                partitions: 1000,
                rounds: 20,
            }
            .run(broker),
            Self::SingleCommits => commits(1).run(broker),
            Self::Commits => commits(arguments.commit_partitions).run(broker),
        }
    }
}
