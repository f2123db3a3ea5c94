//! `penstock-bench`: load for any broker of the Kafka protocol. `penstock-bench run --help` says what it can do.

use std::path::Path;
use std::process::ExitCode;

use bench::load::arguments::RunArguments;
use bench::load::{Outcome, report, run};
use broker::exit::{Failure, Status};
use clap::{Parser, Subcommand};

// Batches of a megabyte come and go: the system's allocator would map and unmap each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Load for any broker of the Kafka protocol: latency without coordinated omission, throughput, what the broker uses.
#[derive(Parser)]
#[command(name = "penstock-bench", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<RunArguments>),
}

fn main() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() {
                ExitCode::from(Status::Usage as u8)
            } else {
                ExitCode::SUCCESS
            };
        }
    };
    let Command::Run(arguments) = line.command;
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("penstock-bench: {failure}");
            ExitCode::from(failure.status as u8)
        }
    }
}

fn measure(arguments: &RunArguments) -> Result<(), Failure> {
    let plan = arguments.plan()?;
    // A report that cannot be written is no news after an hour.
    for file in [&arguments.json, &arguments.markdown, &arguments.html]
        .into_iter()
        .flatten()
    {
        write(file, "")?;
    }
    let mut say = |line: &str| {
        if !arguments.quiet {
            eprintln!("{line}");
        }
    };
    let outcome = run(plan, command(), &mut say)?;
    write_reports(arguments, &outcome)
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn write_reports(arguments: &RunArguments, outcome: &Outcome) -> Result<(), Failure> {
    match &arguments.markdown {
        Some(file) => write(file, &report::markdown(outcome))?,
        None => print!("{}", report::markdown(outcome)),
    }
    if let Some(file) = &arguments.json {
        write(file, &report::json(outcome))?;
    }
    if let Some(file) = &arguments.html {
        write(file, &report::html(outcome))?;
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| {
        Failure::new(
            Status::Io,
            format!("{}: cannot be written ({error})", file.display()),
        )
    })
}

/// The command line as it was given.
fn command() -> String {
    std::iter::once("penstock-bench".to_owned())
        .chain(std::env::args().skip(1))
        .collect::<Vec<_>>()
        .join(" ")
}
