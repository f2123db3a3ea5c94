//! What a second shard brings, and what it costs when a request's partition is another shard's: `cargo run --release -p bench --bin
//! shards -- --dir DIR --write`, with nothing else running.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use bench::compare::round;
use bench::error::{Doing, Result, end, failed};
use bench::in_process::{Fed, Mix, Plan, run, run_apart};
use bench::report::{Column, command, commit, describe_host, markdown, write_result};
use clap::Parser;

// As the broker: what is measured is its code.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Feeds brokers of one and two shards in this process, without clients, and compares them.
#[derive(Parser)]
struct Arguments {
    /// Where the data go, on the disk that is to be measured; removed after each run.
    #[arg(long)]
    dir: PathBuf,
    /// Rounds in which each kind runs once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds that are measured of each run.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Write the result to bench/results/shards.md.
    #[arg(long)]
    write: bool,
    /// One run of so many shards, as a line of JSON.
    #[arg(long, hide = true)]
    one: Option<u16>,
    /// Of that run: whose partitions are written to.
    #[arg(long, hide = true, value_enum, default_value = "half")]
    mix: Mix,
    /// Of that run: the load's number.
    #[arg(long, hide = true, default_value_t = 0)]
    load: usize,
}

/// Requests of one kind.
struct Load {
    title: &'static str,
    records: usize,
    window: usize,
    durability: &'static str,
}

/// Bytes of each record.
const RECORD_BYTES: usize = 1024;

const LOADS: [Load; 3] = [
    Load {
        title: "1 KiB in each request, 64 in flight on each of 8 connections a shard",
        records: 1,
        window: 64,
        durability: "fsync",
    },
    Load {
        title: "the same, acknowledged when the kernel has it (`penstock.durability=written`): the shards without the waits for the disk",
        records: 1,
        window: 64,
        durability: "written",
    },
    Load {
        title: "64 KiB in each request, 8 in flight on each connection",
        records: 64,
        window: 8,
        durability: "fsync",
    },
];

/// The first is held against the others.
const KINDS: [(&str, u16, Mix); 4] = [
    ("two shards, half of the requests for the other", 2, Mix::Half),
    ("one shard", 1, Mix::Own),
    ("two shards, each its own", 2, Mix::Own),
    ("two shards, all for the other", 2, Mix::Others),
];

const COLUMNS: [Column<Fed>; 4] = [
    Column::new("requests/s", 0, |fed: &Fed| fed.requests_per_second),
    Column::new("MB/s", 0, |fed| fed.megabytes_per_second),
    Column::new("cores", 2, |fed| fed.cores),
    Column::new("CPU µs per request", 2, |fed| fed.cpu_us_per_request),
];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    end(match arguments.one {
        Some(shards) => one(&arguments, shards),
        None => compare(&arguments),
    })
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn one(arguments: &Arguments, shards: u16) -> Result<()> {
    let Some(load) = LOADS.get(arguments.load) else {
        return failed("there is no such load");
    };
    let fed = run(&Plan {
        dir: arguments.dir.clone(),
        shards,
        mix: arguments.mix,
        records: load.records,
        record_bytes: RECORD_BYTES,
        window: load.window,
        durability: load.durability.to_owned(),
        time: Duration::from_secs(arguments.seconds),
    })?;
    println!(
        "{}",
        serde_json::to_string(&fed)
            .map_err(std::io::Error::from)
            .doing("writing the figures")?
    );
    Ok(())
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn compare(arguments: &Arguments) -> Result<()> {
    let mut text = format!(
        "# Two shards beside one\n\n\
         The broker runs in the process that feeds it: requests that were made before go to its connections without a client and \
         a network, and their answers are looked at. Each shard has 8 connections, each of which writes to one partition, or to two in \
         turn. Kinds of a round run one after the other in an order that alternates. With one shard the other processor is the kernel's \
         alone.\n\nHost: {}. Commit {}.\n\n",
        describe_host(&arguments.dir),
        commit()
    );
    let names = KINDS.map(|(name, ..)| name);
    for (number, load) in LOADS.iter().enumerate() {
        let mut rounds = Vec::new();
        for turn in 0..arguments.rounds {
            let runs = round(&KINDS, turn % 2 == 1, |(_, shards, mix)| {
                child(arguments, number, *shards, *mix)
            })?;
            eprintln!("load {}, round {}: {runs:.2?}", number + 1, turn + 1);
            rounds.push(runs);
        }
        let tables = markdown(&COLUMNS, &names, &rounds);
        let _ = writeln!(text, "## {}\n\n{tables}", load.title);
    }
    let _ = writeln!(text, "Repeat, on a quiet host: `{}`", command("shards"));
    print!("{text}");
    if arguments.write {
        write_result("shards.md", &text)?;
    }
    Ok(())
}

/// A run in a process of its own.
fn child(arguments: &Arguments, load: usize, shards: u16, mix: Mix) -> Result<Fed> {
    let dir = arguments.dir.join("fed");
    let mix = clap::ValueEnum::to_possible_value(&mix).expect("it has a name");
    let program = std::env::current_exe().doing("finding this program")?;
    let mut command = Command::new(program);
    command
        .arg("--dir")
        .arg(&dir)
        .args(["--one", &shards.to_string(), "--mix", mix.get_name()])
        .args(["--load", &load.to_string()])
        .args(["--seconds", &arguments.seconds.to_string()]);
    let fed = run_apart(&mut command, Duration::from_secs(arguments.seconds));
    std::fs::remove_dir_all(&dir).doing(dir.display())?;
    fed
}
