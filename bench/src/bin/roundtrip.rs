//! Sends a text file of 100 MB and more through a broker line by line with kcat, for each codec, and compares what comes back:
//! `cargo run -p bench --bin roundtrip -- --bootstrap 127.0.0.1:9092`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use bench::error::{Error, Result};
use bench::roundtrip::{CODECS, kcat_installed, make_text, round_trip};
use clap::Parser;

/// A real text file in and out with kcat, byte-identical, for each codec.
#[derive(Parser)]
struct Arguments {
    /// HOST:PORT of the broker.
    #[arg(long)]
    bootstrap: String,
    /// The file; by default one is made of the sources of the crates that cargo has downloaded.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Size of the file that is made, in MB.
    #[arg(long, default_value_t = 101)]
    megabytes: u64,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn run(arguments: &Arguments) -> Result<()> {
    if !kcat_installed() {
        return Err(Error::Failed("kcat is missing (Debian package kcat)".into()));
    }
    let dir = std::env::temp_dir().join(format!("penstock-roundtrip-{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|source| Error::Io {
        doing: dir.display().to_string(),
        source,
    })?;
    let file = arguments.file.clone().unwrap_or_else(|| dir.join("text"));
    if arguments.file.is_none() {
        make_text(&file, arguments.megabytes * 1_000_000)?;
    }
    println!("| codec | bytes | identical | in, s | out, s |");
    println!("| --- | ---: | --- | ---: | ---: |");
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let done = CODECS.into_iter().try_for_each(|codec| {
        let trip = round_trip(
            &arguments.bootstrap,
            &format!("roundtrip-{codec}-{seconds}"),
            codec,
            &file,
            &dir,
        )?;
        println!(
            "| {codec} | {} | yes | {:.1} | {:.1} |",
            trip.bytes,
            trip.write.as_secs_f64(),
            trip.read.as_secs_f64()
        );
        Ok(())
    });
    // Best effort: the folder lies below the system's temporary one.
    let _ = std::fs::remove_dir_all(&dir);
    done
}
