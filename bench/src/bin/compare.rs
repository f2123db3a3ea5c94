//! Penstock and Apache Kafka 4.3.1 side by side: `cargo run --release -p bench --bin compare -- --dir DIR --write`, with nothing else
//! running.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::compare::{COLUMNS, Contender, Kind, Load, Run, build_client, measure, round};
use bench::error::{Error, Result, end};
use bench::report::{command, commit, describe_host, markdown, write_result};
use clap::Parser;

/// Loads brokers in alternating order with librdkafka and compares MB/s, delivery latency, CPU seconds per GB and resident memory.
#[derive(Parser)]
struct Arguments {
    /// Where the data go, on the disk that is to be measured; removed after each run.
    #[arg(long)]
    dir: PathBuf,
    /// Rounds in which each broker runs once.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// The broker that is judged.
    #[arg(long, value_enum, default_value_t = Kind::Penstock)]
    subject: Kind,
    /// What it is held against.
    #[arg(long, value_enum, default_value_t = Kind::Kafka)]
    baseline: Kind,
    /// A third member: Apache Kafka that syncs each batch before it answers (log.flush.interval.messages=1).
    #[arg(long)]
    flush: bool,
    /// Megabytes of each measured run.
    #[arg(long, default_value_t = 3000)]
    megabytes: u64,
    /// Megabytes before it.
    #[arg(long, default_value_t = 1000)]
    warmup_megabytes: u64,
    /// Megabytes a second; 0 is as fast as the client goes, where latency is mostly time in its own queue.
    #[arg(long, default_value_t = 0)]
    megabytes_per_second: u64,
    /// Bytes of a record.
    #[arg(long, default_value_t = 1024)]
    record_bytes: u64,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 16)]
    partitions: u32,
    /// Acknowledgements the client asks for.
    #[arg(long, default_value = "all")]
    acks: String,
    /// Further settings of librdkafka, KEY=VALUE.
    #[arg(long = "client")]
    properties: Vec<String>,
    /// Further settings of the subject, KEY=VALUE.
    #[arg(long = "subject-override")]
    subject_overrides: Vec<String>,
    /// Further settings of the baseline, KEY=VALUE.
    #[arg(long = "baseline-override")]
    baseline_overrides: Vec<String>,
    /// Write the result to bench/results/side-by-side.md.
    #[arg(long)]
    write: bool,
}

fn main() -> ExitCode {
    end(compare(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn compare(arguments: &Arguments) -> Result<()> {
    let Some(client) = build_client(&arguments.dir)? else {
        return Err(Error::Failed(
            "a C compiler and librdkafka's header are needed (Debian packages gcc and librdkafka-dev)".into(),
        ));
    };
    let load = Load {
        partitions: arguments.partitions,
        record_bytes: arguments.record_bytes,
        warmup_megabytes: arguments.warmup_megabytes,
        megabytes: arguments.megabytes,
        acks: arguments.acks.clone(),
        megabytes_per_second: arguments.megabytes_per_second,
        properties: arguments.properties.clone(),
    };
    let contenders = contenders(arguments);
    let dir = arguments.dir.join("broker");
    let mut rounds = Vec::new();
    for number in 0..arguments.pairs {
        let runs = round(&contenders, number % 2 == 1, |one| {
            measure(one, &client, &load, &dir)
        })?;
        eprintln!("round {}: {runs:.2?}", number + 1);
        rounds.push(runs);
    }
    let text = report(arguments, &contenders, &rounds);
    print!("{text}");
    if arguments.write {
        write_result("side-by-side.md", &text)?;
    }
    Ok(())
}

fn contenders(arguments: &Arguments) -> Vec<Contender> {
    let named = |kind: Kind, overrides: &[String]| {
        let settings = overrides.iter().map(|one| format!(", {one}"));
        Contender {
            name: settings.fold(kind.to_string(), |name, setting| name + &setting),
            kind,
            overrides: overrides.to_vec(),
        }
    };
    let mut all = vec![
        named(arguments.subject, &arguments.subject_overrides),
        named(arguments.baseline, &arguments.baseline_overrides),
    ];
    if arguments.flush {
        all.push(named(Kind::Kafka, &["log.flush.interval.messages=1".into()]));
    }
    all
}

/// The whole result: how it was measured, on what, the tables, and how to repeat it.
fn report(arguments: &Arguments, contenders: &[Contender], rounds: &[Vec<Run>]) -> String {
    let names: Vec<_> = contenders.iter().map(|one| one.name.as_str()).collect();
    let version = rounds
        .iter()
        .flatten()
        .next()
        .map_or("", |run| run.client_version.as_str());
    let Arguments {
        record_bytes,
        partitions,
        acks,
        megabytes,
        warmup_megabytes,
        ..
    } = arguments;
    let pace = match arguments.megabytes_per_second {
        0 => {
            "as fast as the client goes, so that latency is mostly time in the client's full queue".to_owned()
        }
        rate => format!("at {rate} MB/s"),
    };
    format!(
        "# Side by side with Apache Kafka 4.3.1\n\n\
         librdkafka {version}, {record_bytes}-byte records, {partitions} partitions, acks={acks}, {megabytes} MB a run after \
         {warmup_megabytes} MB of warm-up, {pace}. The brokers run one at a time beside the client, in an order that alternates. Penstock \
         answers after fdatasync, Kafka from its page cache unless said otherwise. Latency is from the produce call to the delivery \
         report, of one record in 61. MB are 10^6 bytes; RSS is right after the load.\n\n\
         Host: {}. Commit {}.\n\n{}\nRepeat, on a quiet host: `{}`\n",
        describe_host(&arguments.dir),
        commit(),
        markdown(&COLUMNS, &names, rounds),
        command("compare")
    )
}
