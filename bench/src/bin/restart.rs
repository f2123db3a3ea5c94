//! Times of starts with many partitions, and what idle partitions cost (`bench/results/restart.md`):
//! `cargo run --release -p bench --bin restart -- --dir DIR --write`.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::process::Profile;
use bench::report::{command, commit, describe_host, write_result};
use bench::restart::{Idle, Starts, Stop, idle, starts};
use clap::Parser;

/// Starts after clean stops and kills; memory and processor of idle partitions.
#[derive(Parser)]
struct Arguments {
    /// Where the broker's data go; it must not hold a broker yet.
    #[arg(long)]
    dir: PathBuf,
    /// Partitions of the starts; 0 leaves them out.
    #[arg(long, default_value_t = 10_000)]
    partitions: usize,
    /// Bytes of each record.
    #[arg(long, default_value_t = 100)]
    record: usize,
    /// Starts of each kind.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Idle partitions; 0 leaves them out.
    #[arg(long, default_value_t = 100_000)]
    idle: usize,
    /// Write bench/results/restart.md.
    #[arg(long)]
    write: bool,
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> bench::error::Result<String> {
    let mut text = format!(
        "# Starts with many partitions, and what idle ones cost\n\n`{}`, commit {}, {}.\n",
        command("restart"),
        commit(),
        describe_host(&arguments.dir)
    );
    if arguments.partitions > 0 {
        let dir = arguments.dir.join("starts");
        let seen = starts(
            Profile::Release,
            &dir,
            arguments.partitions,
            arguments.record,
            arguments.rounds,
        )?;
        starts_table(&mut text, &seen);
    }
    if arguments.idle > 0 {
        let seen = idle(Profile::Release, &arguments.dir.join("idle"), arguments.idle)?;
        idle_table(&mut text, &seen);
    }
    if arguments.write {
        write_result("restart.md", &text)?;
    }
    Ok(text)
}

fn starts_table(text: &mut String, seen: &Starts) {
    let list = |times: &[Duration]| {
        let times: Vec<String> = times
            .iter()
            .map(|time| format!("{:.2}", time.as_secs_f64()))
            .collect();
        times.join(", ")
    };
    write!(
        text,
        "\n## {} partitions, one more batch in each before every start\n\n\
         | start | seconds from the start of the process to its ready line | goal |\n| --- | --- | ---: |\n\
         | after a clean stop | {} | 2 |\n| after kill -9 | {} | 10 |\n\n\
         The stops took {} seconds.\n",
        seen.partitions,
        list(&seen.clean),
        list(&seen.killed),
        seen.stops.iter().map(stop_words).collect::<Vec<_>>().join(", ")
    )
    .expect("a string takes it");
}

fn idle_table(text: &mut String, seen: &Idle) {
    let mib = |bytes: u64| bytes >> 20;
    write!(
        text,
        "\n## {} idle partitions\n\n| | resident MiB | CPU, % of a core |\n| --- | ---: | ---: |\n\
         | none | {} | |\n| just made, in {:.1} s | {} | {:.2} |\n| after a stop and a start | {} | {:.2} |\n\n\
         {:.0} bytes for each partition. The goals: 2048 MiB, 2 %.\n\n\
         | | stop, s | next start, s |\n| --- | ---: | ---: |\n\
         | of the run that made them | {} | {:.2} |\n| of a run in which nothing happened | {} | {:.2} |\n\
         | kill -9 | | {:.2} |\n",
        seen.partitions,
        mib(seen.bare_bytes),
        seen.made_in.as_secs_f64(),
        mib(seen.made_bytes),
        seen.cpu_share * 100.0,
        mib(seen.again_bytes),
        seen.again_cpu_share * 100.0,
        seen.bytes_each(),
        stop_words(&seen.made.0),
        seen.made.1.as_secs_f64(),
        stop_words(&seen.unchanged.0),
        seen.unchanged.1.as_secs_f64(),
        seen.killed_start.as_secs_f64()
    )
    .expect("a string takes it");
}

/// How long a stop took, and what is wrong with it if anything is.
fn stop_words(stop: &Stop) -> String {
    let note = if stop.is_clean { "" } else { " (cut off)" };
    format!("{:.2}{note}", stop.took.as_secs_f64())
}
