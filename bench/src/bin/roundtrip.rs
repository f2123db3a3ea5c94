//! Sends a text file of 100 MB and more through a broker line by line with kcat, for each codec, and compares what comes back:
//! `cargo run --release -p bench --bin roundtrip`, or with `--bootstrap 127.0.0.1:9092` for one that runs already.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bench::error::{Doing, Error, Result, end};
use bench::process::{Broker, Profile};
use bench::roundtrip::{CODECS, kcat_installed, make_text, round_trip};
use clap::Parser;

/// How long a graceful stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A real text file in and out with kcat, byte-identical, for each codec.
#[derive(Parser)]
struct Arguments {
    /// HOST:PORT of a broker; by default ours is built for release and started.
    #[arg(long)]
    bootstrap: Option<String>,
    /// Where the files and the broker's data go; removed at the end. By default below the system's temporary folder.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The file; by default one is made of the sources of the crates that cargo has downloaded.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Size of the file that is made, in MB.
    #[arg(long, default_value_t = 101)]
    megabytes: u64,
}

fn main() -> ExitCode {
    end(run(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn run(arguments: &Arguments) -> Result<()> {
    if !kcat_installed() {
        return Err(Error::Failed("kcat is missing (Debian package kcat)".into()));
    }
    let parent = arguments.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = parent.join(format!("penstock-roundtrip-{}", std::process::id()));
    std::fs::create_dir_all(&dir).doing(dir.display())?;
    let done = match &arguments.bootstrap {
        Some(bootstrap) => each_codec(arguments, bootstrap, &dir),
        None => with_our_broker(arguments, &dir),
    };
    // Best effort: the folder is ours alone.
    let _ = std::fs::remove_dir_all(&dir);
    done
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn with_our_broker(arguments: &Arguments, dir: &Path) -> Result<()> {
    let mut broker = Broker::new(Profile::Release, &dir.join("broker"), &[])?;
    broker.start(None)?;
    println!(
        "{}\n({:.0} ms after the start of the process)\n",
        broker.ready_line(),
        broker.ready_after().as_secs_f64() * 1e3
    );
    each_codec(arguments, &broker.bootstrap(), dir)?;
    let status = broker.terminate(STOP_LIMIT)?;
    println!("\nSIGTERM: {status}");
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed(broker.last_words()))
    }
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn each_codec(arguments: &Arguments, bootstrap: &str, dir: &Path) -> Result<()> {
    let file = arguments.file.clone().unwrap_or_else(|| dir.join("text"));
    if arguments.file.is_none() {
        make_text(&file, arguments.megabytes * 1_000_000)?;
    }
    println!("| codec | bytes | identical | in, s | out, s |");
    println!("| --- | ---: | --- | ---: | ---: |");
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    CODECS.into_iter().try_for_each(|codec| {
        let topic = format!("roundtrip-{codec}-{seconds}");
        let trip = round_trip(bootstrap, &topic, codec, &file, dir)?;
        println!(
            "| {codec} | {} | yes | {:.1} | {:.1} |",
            trip.bytes,
            trip.write.as_secs_f64(),
            trip.read.as_secs_f64()
        );
        Ok(())
    })
}
