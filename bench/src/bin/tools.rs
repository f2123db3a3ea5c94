//! Asks Kafka's tools for groups and offsets the same of Apache Kafka and of ours, and compares the answers:
//! `cargo run -p bench --bin tools -- --dir DIR`.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::error::{Doing, Result, failed};
use bench::kafka::with_kafka;
use bench::process::Profile;
use bench::target::Kind;
use bench::tools::{compare, compare_decoded, markdown, run};
use clap::Parser;

/// kafka-consumer-groups, kafka-get-offsets, kafka-groups and kafka-dump-log --offsets-decoder on both brokers.
#[derive(Parser)]
struct Arguments {
    /// Where the brokers' data go; it must not hold a broker yet.
    #[arg(long)]
    dir: PathBuf,
    /// Write the transcript to this file.
    #[arg(long)]
    table: Option<PathBuf>,
}

fn main() -> ExitCode {
    with_kafka(|| try_out(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn try_out(arguments: &Arguments) -> Result<()> {
    let kafka = run(Kind::Kafka, &arguments.dir.join("kafka"))?;
    let ours = run(Kind::Penstock(Profile::Dev), &arguments.dir.join("penstock"))?;
    let text = markdown(&kafka, &ours);
    println!("{text}");
    if let Some(path) = &arguments.table {
        let title = "# Kafka's tools for groups and offsets, on Apache Kafka 4.3.1 and on Penstock\n\n\
                     `cargo run -p bench --bin tools -- --dir DIR --table bench/results/tools.md`: ids, addresses and times are \
                     masked, rows ordered, anything else is as the tool printed it.\n\n";
        std::fs::write(path, format!("{title}{text}")).doing(path.display())?;
    }
    let differing = compare(&kafka, &ours).len() + compare_decoded(&kafka.decoded, &ours.decoded).len();
    if differing == 0 {
        Ok(())
    } else {
        failed(format!("{differing} answers differ"))
    }
}
