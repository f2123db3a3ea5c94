//! Penstock and Apache Kafka 4.3.1 side by side: `cargo run --release -p bench --bin compare -- --dir DIR`, with nothing else running.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::compare::{Contender, Kind, Load, Pair, build_client, markdown, measure};
use bench::error::{Error, Result};
use clap::{Parser, ValueEnum};

/// Loads two brokers in alternating pairs with librdkafka and compares MB/s, CPU seconds per GB and resident memory.
#[derive(Parser)]
struct Arguments {
    /// Where the data go, on the disk that is to be measured; removed after each run.
    #[arg(long)]
    dir: PathBuf,
    /// Pairs of runs.
    #[arg(long, default_value_t = 5)]
    pairs: usize,
    /// The broker that is judged.
    #[arg(long, value_enum, default_value_t = Broker::Penstock)]
    subject: Broker,
    /// What it is held against.
    #[arg(long, value_enum, default_value_t = Broker::Kafka)]
    baseline: Broker,
    /// Megabytes of each measured run.
    #[arg(long, default_value_t = 3000)]
    megabytes: u64,
    /// Megabytes before it.
    #[arg(long, default_value_t = 1000)]
    warmup_megabytes: u64,
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
    /// Further settings of the baseline, KEY=VALUE; log.flush.interval.messages=1 makes Kafka sync too.
    #[arg(long = "baseline-override")]
    baseline_overrides: Vec<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Broker {
    Penstock,
    Kafka,
}

impl Broker {
    fn kind(self) -> Kind {
        match self {
            Self::Penstock => Kind::Penstock,
            Self::Kafka => Kind::Kafka,
        }
    }
}

fn main() -> ExitCode {
    match compare(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn compare(arguments: Arguments) -> Result<()> {
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
        acks: arguments.acks,
        properties: arguments.properties,
    };
    let subject = Contender {
        kind: arguments.subject.kind(),
        overrides: arguments.subject_overrides,
    };
    let baseline = Contender {
        kind: arguments.baseline.kind(),
        overrides: arguments.baseline_overrides,
    };
    let dir = arguments.dir.join("broker");
    let mut pairs = Vec::new();
    for number in 0..arguments.pairs {
        // The order alternates, so that neither always runs on the warmer host.
        let (one, two) = if number % 2 == 0 {
            (&subject, &baseline)
        } else {
            (&baseline, &subject)
        };
        let (first, second) = (
            measure(one, &client, &load, &dir)?,
            measure(two, &client, &load, &dir)?,
        );
        let (subject, baseline) = if number % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        eprintln!("pair {}: {subject:.2?} against {baseline:.2?}", number + 1);
        pairs.push(Pair { subject, baseline });
    }
    let Load {
        record_bytes,
        partitions,
        acks,
        megabytes,
        warmup_megabytes,
        ..
    } = &load;
    println!(
        "librdkafka, {record_bytes}-byte records, {partitions} partitions, acks={acks}, {megabytes} MB a run after {warmup_megabytes} MB of warm-up\n"
    );
    print!("{}", markdown(subject.kind, baseline.kind, &pairs));
    Ok(())
}
