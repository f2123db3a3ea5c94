//! Many partitions, and many clients that ask for all of them (BR-105): `cargo run --release -p bench --bin bulk -- --dir DIR`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::bulk::{Bulk, run};
use bench::process::Profile;
use clap::Parser;

/// Metadata, configurations, offsets and records of all partitions, asked by many clients at once.
#[derive(Parser)]
struct Arguments {
    /// Where the broker's data go.
    #[arg(long)]
    dir: PathBuf,
    /// Partitions, a multiple of 100.
    #[arg(long, default_value_t = 20_000)]
    partitions: usize,
    /// Clients that ask ten times a second.
    #[arg(long, default_value_t = 200)]
    clients: usize,
    /// Seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// `penstock.memory.bytes` in MiB.
    #[arg(long, default_value_t = 256)]
    memory: u64,
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bulk = Bulk {
        partitions: arguments.partitions,
        clients: arguments.clients,
        time: Duration::from_secs(arguments.seconds),
        memory_mib: arguments.memory,
    };
    match run(Profile::Release, &arguments.dir, bulk) {
        Ok(seen) => {
            println!("{seen:#?}");
            ExitCode::from(u8::from(!seen.is_well(bulk)))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
