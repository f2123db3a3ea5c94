//! The flags of `penstock-bench compare`, and the plan that they make.

use std::path::PathBuf;
use std::time::Duration;

use broker::client::Address;
use broker::exit::{Failure, Status};
use clap::Args;

use super::host::{Contender, Kind};
use super::plan::{Contestant, Plan, Scale, What};
use super::workload::{WORKLOADS, Workload};
use crate::load::values::{bytes, duration, pair};

/// Rounds at most.
const ROUNDS_MAX: usize = 1000;

/// Measures Penstock, Apache Kafka 4.3.1 and others side by side: the same workloads, one broker at a time, in an order that rotates.
///
/// Run it on a quiet host. Brokers answer on loopback; their data go below --dir and are removed.
#[derive(Args, Clone, Debug, Default)]
#[command(after_long_help = EXAMPLES)]
pub struct CompareArguments {
    /// An empty folder on the disk that is to be measured; at most 12 GB are on it at any time
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub dir: Option<PathBuf>,
    /// Show the workloads and their goals, and end
    #[arg(long)]
    pub list: bool,
    /// Only these, several with commas [default: all, see --list]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// One short round, in five minutes instead of thirty
    #[arg(long)]
    pub quick: bool,
    /// Rounds, in each of which every broker has every workload once [default: 3, quick 1]
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// No round of workloads begins that would not be over by then [default: 28m, quick 5m]
    #[arg(long, value_parser = duration)]
    pub limit: Option<Duration>,

    /// Who is started here: `penstock`, `kafka` (answers from the page cache), `kafka-flush` (syncs before it answers); the first of all is
    /// the one that is judged [default: all three]
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Brokers")]
    pub brokers: Vec<String>,
    /// A further one, `NAME=penstock,KEY=VALUE,…` or `NAME=kafka,KEY=VALUE,…`; may be repeated
    #[arg(long, value_name = "NAME=KIND,…", value_parser = pair, help_heading = "Brokers")]
    pub variant: Vec<(String, String)>,
    /// A broker of the Kafka protocol that runs already; may be repeated
    #[arg(long, value_name = "NAME=HOST:PORT", value_parser = pair, help_heading = "Brokers")]
    pub peer: Vec<(String, String)>,
    /// Its process on this host, without which its CPU and memory are not measured
    #[arg(long, value_name = "NAME=PID", value_parser = pair, help_heading = "Brokers")]
    pub peer_pid: Vec<(String, String)>,

    /// Time of each workload before anything counts
    #[arg(long, value_parser = duration, help_heading = "Scale")]
    pub warmup: Option<Duration>,
    /// Time that counts
    #[arg(long, value_parser = duration, help_heading = "Scale")]
    pub time: Option<Duration>,
    /// Size of the backlog of catch-up
    #[arg(long, value_parser = bytes, help_heading = "Scale")]
    pub backlog: Option<u64>,
    /// Records of Java's clients
    #[arg(long, value_name = "N", help_heading = "Scale")]
    pub java_records: Option<u64>,
    /// A further setting of librdkafka; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair, help_heading = "Scale")]
    pub client: Vec<(String, String)>,

    /// Keep the reports as bench/results/side-by-side.md, .json and .html
    #[arg(long, help_heading = "Reports")]
    pub write: bool,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub json: Option<PathBuf>,
    /// Write the results as Markdown; without it they go to standard output
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub markdown: Option<PathBuf>,
    /// Write a page with plots that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Reports")]
    pub html: Option<PathBuf>,
    /// Show the lines of our generator too
    #[arg(long, short, help_heading = "Reports")]
    pub verbose: bool,
}

const EXAMPLES: &str = "Examples:
  penstock-bench compare --dir /mnt/disk/compare --write
      everything, as bench/results has it, in half an hour
  penstock-bench compare --dir DIR --quick --workloads steady-10k,librdkafka-1k --rounds 3
      two workloads, three short rounds
  penstock-bench compare --dir DIR --brokers penstock --variant interval=penstock,penstock.durability=interval
      two ways of setting up one broker
  penstock-bench compare --dir DIR --brokers penstock --peer other=127.0.0.1:19092 --peer-pid other=4711
      another broker that runs already

What is not there on the host (Java, Maven, a C compiler, librdkafka) is reported as SKIPPED; with PENSTOCK_REQUIRE_ALL=1 it fails.
Exit status: 0, or as sysexits(3) has it: 64 a wrong flag, 69 something missing or a workload that failed, 74 a report that cannot be
written.";

fn usage(sentence: impl Into<String>) -> Failure {
    Failure::new(Status::Usage, sentence)
}

impl CompareArguments {
    /// Decides everything.
    ///
    /// # Errors
    /// A flag is wrong; the sentence says which and what would be right.
    pub fn plan(&self) -> Result<Plan, Failure> {
        let rounds = self.rounds.unwrap_or(if self.quick { 1 } else { 3 });
        if rounds == 0 || rounds > ROUNDS_MAX {
            return Err(usage(format!(
                "--rounds is {rounds}; it has to be from 1 to {ROUNDS_MAX}"
            )));
        }
        let minutes = if self.quick { 5 } else { 28 };
        let scale = if self.quick { Scale::QUICK } else { Scale::FULL };
        Ok(Plan {
            dir: self.dir.clone().unwrap_or_default(),
            contestants: self.contestants()?,
            workloads: self.workloads()?,
            scale: Scale {
                warmup: self.warmup.unwrap_or(scale.warmup),
                time: self.time.unwrap_or(scale.time),
                rest: self.time.unwrap_or(scale.rest),
                backlog_bytes: self.backlog.unwrap_or(scale.backlog_bytes),
                java_records: self.java_records.unwrap_or(scale.java_records),
                ..scale
            },
            rounds,
            limit: self.limit.unwrap_or_else(|| Duration::from_secs(minutes * 60)),
            client_properties: self
                .client
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
            is_verbose: self.verbose,
        })
    }

    fn workloads(&self) -> Result<Vec<&'static Workload>, Failure> {
        for name in &self.workloads {
            if Workload::named(name).is_none() {
                return Err(usage(format!(
                    "--workloads: '{name}' is none; --list shows which there are"
                )));
            }
        }
        let is_wanted = |workload: &&Workload| {
            self.workloads.is_empty() || self.workloads.iter().any(|name| name == workload.name)
        };
        Ok(WORKLOADS.iter().filter(is_wanted).collect())
    }

    fn contestants(&self) -> Result<Vec<Contestant>, Failure> {
        let mut all: Vec<Contestant> = Vec::new();
        if self.brokers.is_empty() {
            all.extend(["penstock", "kafka", "kafka-flush"].into_iter().filter_map(known));
        }
        for name in &self.brokers {
            let broker = known(name).ok_or_else(|| {
                usage(format!(
                    "--brokers: '{name}' is none of penstock, kafka and kafka-flush; --peer takes others"
                ))
            })?;
            all.push(broker);
        }
        for (name, text) in &self.variant {
            all.push(variant(name, text)?);
        }
        for (name, bootstrap) in &self.peer {
            if Address::parse(bootstrap).is_none() {
                return Err(usage(format!("--peer {name}: '{bootstrap}' is no HOST:PORT")));
            }
            all.push(Contestant {
                name: name.clone(),
                what: What::Peer {
                    bootstrap: bootstrap.clone(),
                    pid: None,
                },
            });
        }
        self.put_pids(&mut all)?;
        let mut names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair.first() == pair.last()) {
            return Err(usage(format!(
                "two brokers are called '{}'",
                pair.first().copied().unwrap_or_default()
            )));
        }
        Ok(all)
    }

    fn put_pids(&self, all: &mut [Contestant]) -> Result<(), Failure> {
        for (name, text) in &self.peer_pid {
            let number = text.parse::<u32>().map_err(|_| {
                usage(format!(
                    "--peer-pid {name}: '{text}' is no process id, as other=4711"
                ))
            })?;
            crate::resources::usage(number).map_err(|error| {
                usage(format!(
                    "--peer-pid {name}: {error}; it has to be a process of this host"
                ))
            })?;
            let peer = all.iter_mut().find(|one| one.name == *name);
            match peer.map(|one| &mut one.what) {
                Some(What::Peer { pid, .. }) => *pid = Some(number),
                _ => return Err(usage(format!("--peer-pid: no --peer is called '{name}'"))),
            }
        }
        Ok(())
    }
}

/// A broker that is started here.
fn known(name: &str) -> Option<Contestant> {
    let (kind, overrides) = match name {
        "penstock" => (Kind::Penstock, Vec::new()),
        "kafka" => (Kind::Kafka, Vec::new()),
        "kafka-flush" => (Kind::Kafka, vec!["log.flush.interval.messages=1".to_owned()]),
        _ => return None,
    };
    Some(started(name, kind, overrides))
}

fn started(name: &str, kind: Kind, overrides: Vec<String>) -> Contestant {
    Contestant {
        name: name.to_owned(),
        what: What::Started(Contender {
            name: name.to_owned(),
            kind,
            overrides,
        }),
    }
}

fn variant(name: &str, text: &str) -> Result<Contestant, Failure> {
    let mut words = text.split(',');
    let kind = match words.next() {
        Some("penstock") => Kind::Penstock,
        Some("kafka") => Kind::Kafka,
        _ => {
            return Err(usage(format!(
                "--variant {name}: '{text}' has to begin with penstock or kafka, as two=penstock,penstock.shards=2"
            )));
        }
    };
    let overrides: Vec<String> = words.map(str::to_owned).collect();
    match overrides.iter().find(|setting| !setting.contains('=')) {
        Some(setting) => Err(usage(format!("--variant {name}: '{setting}' is no KEY=VALUE"))),
        None => Ok(started(name, kind, overrides)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        compare: CompareArguments,
    }

    fn plan(words: &str) -> Result<Plan, Failure> {
        let words = format!("compare --dir d {words}");
        let line = Line::try_parse_from(words.split_whitespace()).expect("a right command line");
        line.compare.plan()
    }

    fn names(plan: &Plan) -> Vec<&str> {
        plan.contestants.iter().map(|one| one.name.as_str()).collect()
    }

    #[test]
    fn without_flags_all_three_have_everything_three_times() {
        let plan = plan("").expect("it is right");
        assert_eq!(names(&plan), ["penstock", "kafka", "kafka-flush"]);
        assert_eq!(plan.workloads.len(), WORKLOADS.len());
        assert_eq!((plan.rounds, plan.scale), (3, Scale::FULL));
        assert!(plan.limit <= Duration::from_secs(30 * 60));
        let What::Started(flush) = &plan.contestants[2].what else {
            unreachable!("it is started")
        };
        assert_eq!(
            (flush.kind, &flush.overrides[..]),
            (Kind::Kafka, &["log.flush.interval.messages=1".to_owned()][..])
        );
    }

    #[test]
    fn flags_choose_and_scale() {
        let pid = std::process::id();
        let line = format!(
            "--quick --time 3s --workloads zstd,librdkafka-1k --brokers penstock --variant two=kafka,a=b,c=d --peer other=host:1 --peer-pid other={pid} --client linger.ms=1"
        );
        let plan = plan(&line).expect("it is right");
        assert_eq!(names(&plan), ["penstock", "two", "other"]);
        assert_eq!(
            plan.contestants[1],
            started("two", Kind::Kafka, vec!["a=b".into(), "c=d".into()])
        );
        let peer = What::Peer {
            bootstrap: "host:1".into(),
            pid: Some(pid),
        };
        assert_eq!(plan.contestants[2].what, peer);
        // In the order of the table, whatever the order of the flag.
        let workloads: Vec<_> = plan.workloads.iter().map(|workload| workload.name).collect();
        assert_eq!(workloads, ["librdkafka-1k", "zstd"]);
        assert_eq!((plan.rounds, plan.scale.time), (1, Duration::from_secs(3)));
        assert_eq!(plan.scale.bytes_max, Scale::QUICK.bytes_max);
        assert_eq!(plan.client_properties, ["linger.ms=1"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (words, said) in [
            ("--rounds 0", "--rounds is 0"),
            ("--workloads zstd,nothing", "'nothing' is none"),
            (
                "--brokers redpanda",
                "'redpanda' is none of penstock, kafka and kafka-flush",
            ),
            ("--variant a=rabbit", "has to begin with penstock or kafka"),
            ("--variant a=kafka,b", "'b' is no KEY=VALUE"),
            ("--peer a=b:c:d", "'b:c:d' is no HOST:PORT"),
            ("--peer kafka=b:1", "two brokers are called 'kafka"),
            ("--peer-pid a=1", "no --peer is called 'a'"),
            ("--peer a=b:1 --peer-pid a=x", "'x' is no process id"),
            ("--peer a=b:1 --peer-pid a=4194304999", "--peer-pid a"),
        ] {
            let failure = plan(words).expect_err(words);
            assert_eq!(failure.status, Status::Usage);
            assert!(failure.to_string().contains(said), "{words}: {failure}");
        }
        assert!(Line::try_parse_from(["compare"]).is_err());
        assert!(Line::try_parse_from(["compare", "--list"]).is_ok());
    }
}
