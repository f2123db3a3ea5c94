//! Kills a broker with -9 while producers write, restarts it, and holds what it has against what it acknowledged:
//! `cargo run -p bench --bin killtest -- --acks all --kills 10`.

use std::path::PathBuf;
use std::process::ExitCode;

use bench::kill::{Report, Scenario, run};
use bench::process::Profile;
use bench::target::{Kind, Target};
use clap::Parser;

/// VerifiableProducer and a librdkafka producer write 20,000 records a second each while the broker is killed again and again.
#[derive(Parser)]
struct Arguments {
    /// Where the broker's data go; it must not hold a broker yet.
    #[arg(long)]
    dir: PathBuf,
    /// all (idempotent producers) or 1.
    #[arg(long, default_value = "all", value_parser = ["all", "1"])]
    acks: String,
    /// How often the broker is killed.
    #[arg(long, default_value_t = 10)]
    kills: u32,
    /// Another shard count at each restart.
    #[arg(long)]
    reshard: bool,
    /// Kill Apache Kafka instead, to try the test itself.
    #[arg(long)]
    kafka: bool,
    /// Of the delays before the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Further settings of the broker, KEY=VALUE.
    #[arg(long = "override")]
    overrides: Vec<String>,
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn main() -> ExitCode {
    match kill(&Arguments::parse()) {
        Ok(Some(report)) => {
            println!("{report}");
            let violations = report.verifiable.violations() + report.librdkafka.violations();
            println!("violations: {violations}");
            if violations == 0 {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Ok(None) => {
            println!("SKIPPED: python3 is missing");
            ExitCode::from(69)
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn kill(arguments: &Arguments) -> bench::error::Result<Option<Report>> {
    let kind = if arguments.kafka {
        Kind::Kafka
    } else {
        Kind::Penstock(Profile::Release)
    };
    let overrides: Vec<_> = arguments.overrides.iter().map(String::as_str).collect();
    let mut target = Target::new(kind, &arguments.dir.join("broker"), &overrides)?;
    let acks = if arguments.acks == "all" { "all" } else { "1" };
    let scenario = Scenario {
        acks,
        kills: arguments.kills,
        reshard: arguments.reshard,
        seed: arguments.seed,
    };
    run(&mut target, &scenario, &arguments.dir)
}
