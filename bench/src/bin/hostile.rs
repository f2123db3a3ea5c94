//! Sends hostile input to a broker and prints what it does beside what Apache Kafka did:
//! `cargo run -p bench --bin hostile -- --dir DIR`, or `--kafka` to record Kafka's answers anew.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::error::{Error, Result, end};
use bench::hostile::{expected, judge, markdown, run};
use bench::kafka::{Kafka, KafkaOptions};
use bench::process::{Broker, Profile};
use clap::Parser;

/// Frames, headers, batches and crowds that no client should send.
#[derive(Parser)]
struct Arguments {
    /// Where the broker's data go.
    #[arg(long)]
    dir: PathBuf,
    /// Try Apache Kafka, and print lines for bench/hostile/expected.txt.
    #[arg(long)]
    kafka: bool,
    /// Settings of the broker, KEY=VALUE.
    #[arg(long = "override")]
    overrides: Vec<String>,
}

fn main() -> ExitCode {
    end(try_out(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn try_out(arguments: &Arguments) -> Result<()> {
    let recorded = expected(include_str!("../../hostile/expected.txt"))?;
    let overrides: Vec<_> = arguments.overrides.iter().map(String::as_str).collect();
    if arguments.kafka {
        let kafka = Kafka::start(&KafkaOptions::new(&arguments.dir, "2g", &overrides)?)?;
        let trial = run(&kafka.bootstrap(), kafka.pid())?;
        for row in &trial.rows {
            println!("{} | {}", row.input, row.did);
        }
        print!("{}", markdown(&recorded, &trial, "Apache Kafka now"));
        return Ok(());
    }
    let mut broker = Broker::new(Profile::Release, &arguments.dir, &overrides)?;
    broker.start(None)?;
    let pid = broker
        .pid()
        .ok_or_else(|| Error::Failed("the broker ended".into()))?;
    let trial = run(&broker.bootstrap(), pid)?;
    print!("{}", markdown(&recorded, &trial, "Penstock"));
    let wrong = judge(&recorded, &trial);
    if wrong.is_empty() && trial.seen.failures == 0 {
        return Ok(());
    }
    let words = format!(
        "{} answers differ, the witness failed {} times\n{}",
        wrong.len(),
        trial.seen.failures,
        wrong.join("\n")
    );
    Err(Error::Failed(words))
}
