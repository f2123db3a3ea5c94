//! `penstock-bench`: load for any broker of the Kafka protocol, and brokers side by side. `penstock-bench run --help` and
//! `penstock-bench compare --help` say what it can do.

use std::path::Path;
use std::process::ExitCode;

use bench::clients::require_all;
use bench::compare::arguments::CompareArguments;
use bench::compare::{self, list};
use bench::load::arguments::RunArguments;
use bench::load::{Outcome, report, run};
use bench::report::write_result;
use broker::exit::{Failure, Status};
use clap::{Parser, Subcommand};

// Batches of a megabyte come and go: the system's allocator would map and unmap each.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Load for any broker of the Kafka protocol: latency without coordinated omission, throughput, what the broker uses; and brokers side
/// by side.
#[derive(Parser)]
#[command(name = "penstock-bench", version)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<RunArguments>),
    Compare(Box<CompareArguments>),
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
    let done = match line.command {
        Command::Run(arguments) => measure(&arguments),
        Command::Compare(arguments) => compare(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("penstock-bench: {failure}");
            ExitCode::from(failure.status as u8)
        }
    }
}

fn measure(arguments: &RunArguments) -> Result<(), Failure> {
    let plan = arguments.plan()?;
    let files = [&arguments.json, &arguments.markdown, &arguments.html];
    can_be_written(&files.map(Option::as_deref))?;
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

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn compare(arguments: &CompareArguments) -> Result<(), Failure> {
    if arguments.list {
        print!("{}", list());
        return Ok(());
    }
    let plan = arguments.plan()?;
    let files = [&arguments.json, &arguments.markdown, &arguments.html];
    can_be_written(&files.map(Option::as_deref))?;
    let unavailable = |sentence: String| Failure::new(Status::Unavailable, sentence);
    let outcome = compare::run(&plan, repeat(), &mut |line| eprintln!("{line}"))
        .map_err(|error| unavailable(error.to_string()))?;
    let (markdown, json, html) = (
        compare::report::markdown(&outcome),
        compare::report::json(&outcome),
        compare::report::html(&outcome),
    );
    match &arguments.markdown {
        Some(file) => write(file, &markdown)?,
        None => print!("{markdown}"),
    }
    for (file, text) in [(&arguments.json, &json), (&arguments.html, &html)] {
        if let Some(file) = file {
            write(file, text)?;
        }
    }
    if arguments.write {
        for (name, text) in [("md", &markdown), ("json", &json), ("html", &html)] {
            write_result(&format!("side-by-side.{name}"), text)
                .map_err(|error| Failure::new(Status::Io, error.to_string()))?;
        }
    }
    match outcome.failures() {
        0 if outcome.skipped.is_empty() || !require_all() => Ok(()),
        0 => Err(unavailable(outcome.skipped.join("; "))),
        runs => Err(unavailable(format!("{runs} runs failed; the report says which"))),
    }
}

/// A report that cannot be written is no news after an hour.
fn can_be_written(files: &[Option<&Path>]) -> Result<(), Failure> {
    files.iter().flatten().try_for_each(|file| write(file, ""))
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

/// How a comparison is repeated, with the folder's place left out.
fn repeat() -> String {
    bench::report::command("penstock-bench")
}
