//! Runs the conformance cases and compares with what Apache Kafka 4.3.1 answered:
//! `cargo run -p bench --bin conformance -- --dir DIR`, with `--kafka --record` to record Kafka's answers anew.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bench::conformance::{Case, Golden, Who, cases, judge, markdown, run};
use bench::error::{Doing, Result, end, failed};
use clap::Parser;

/// The same requests to Apache Kafka and to our broker.
#[derive(Parser)]
struct Arguments {
    /// Where the brokers' data go.
    #[arg(long)]
    dir: PathBuf,
    /// Only cases whose name contains one of these.
    #[arg(long = "case")]
    only: Vec<String>,
    /// Try Apache Kafka, started for it.
    #[arg(long)]
    kafka: bool,
    /// Try the broker that listens at HOST:PORT with default settings.
    #[arg(long)]
    address: Option<String>,
    /// Commit what the tried broker answered: as Kafka's transcripts, or as ours for cases that differ on purpose.
    #[arg(long)]
    record: bool,
    /// The broker at the address is Apache Kafka.
    #[arg(long)]
    is_kafka: bool,
    /// Write the table to this file.
    #[arg(long)]
    table: Option<PathBuf>,
    /// Print the transcripts.
    #[arg(long)]
    print: bool,
}

fn main() -> ExitCode {
    end(try_out(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn try_out(arguments: &Arguments) -> Result<()> {
    let all = cases();
    let wanted = |case: &Case| {
        arguments.only.is_empty()
            || arguments
                .only
                .iter()
                .any(|part| case.name.contains(part.as_str()))
    };
    let chosen: Vec<_> = all.iter().copied().filter(wanted).collect();
    let who = match &arguments.address {
        Some(address) => Who::Address(address.clone()),
        None if arguments.kafka => Who::Kafka,
        None => Who::Penstock,
    };
    let is_kafka = arguments.kafka || arguments.is_kafka;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance");
    let mut kafka = Golden::read(&folder.join("kafka"))?;
    let mut ours = Golden::read(&folder.join("penstock"))?;
    let chosen: Vec<_> = match who {
        Who::Address(_) => chosen.into_iter().filter(Case::has_default_settings).collect(),
        _ => chosen,
    };
    let transcripts = run(&who, &chosen, &arguments.dir)?;
    for (name, transcript) in &transcripts {
        if arguments.print {
            println!("=== {name}\n{transcript}");
        }
        if arguments.record && is_kafka {
            kafka.set(name, transcript);
        }
        if arguments.record && !is_kafka {
            ours.set(name, transcript);
        }
    }
    if arguments.record {
        kafka.retain(|name| all.iter().any(|case| case.name == name));
        ours.retain(|name| all.iter().any(|case| case.name == name && case.differs.is_some()));
        kafka.write(&folder.join("kafka"))?;
        ours.write(&folder.join("penstock"))?;
    }
    if let Some(path) = &arguments.table {
        let table = markdown(&chosen, &kafka, &ours, &transcripts);
        std::fs::write(path, table).doing(path.display())?;
    }
    if is_kafka && arguments.record {
        return Ok(());
    }
    let wrong: Vec<_> = chosen
        .iter()
        .filter(|case| {
            let transcript = transcripts.get(case.name).map(String::as_str).unwrap_or_default();
            !judge(case, &kafka, &ours, transcript).is_well()
        })
        .map(|case| case.name)
        .collect();
    println!("{} cases, {} not as they should be", chosen.len(), wrong.len());
    if wrong.is_empty() {
        Ok(())
    } else {
        failed(format!("wrong:\n  {}", wrong.join("\n  ")))
    }
}
