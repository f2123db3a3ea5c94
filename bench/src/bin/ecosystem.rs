//! Kafka Connect and MirrorMaker 2 while the broker is killed with -9 and restarted, on ours and with `--kafka` on Apache Kafka:
//! `cargo run -p bench --bin ecosystem -- --dir DIR`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::ecosystem::{Scenario, Verdict, connect, mirror};
use bench::error::{Doing, Result, failed};
use bench::kafka::with_kafka;
use bench::process::Profile;
use bench::target::{Kind, Target};
use clap::Parser;

/// A file through Connect into another, a topic through MirrorMaker 2 to another broker, and the broker killed meanwhile.
#[derive(Parser)]
struct Arguments {
    /// Where all data go; it must not hold a broker yet.
    #[arg(long)]
    dir: PathBuf,
    /// How often each broker is killed.
    #[arg(long, default_value_t = 3)]
    kills: u32,
    /// Only on ours (penstock) or only on Apache Kafka (kafka); else on both.
    #[arg(long, value_parser = ["penstock", "kafka"])]
    only: Option<String>,
    /// Only Connect (connect) or only MirrorMaker (mirror); else both.
    #[arg(long, value_parser = ["connect", "mirror"])]
    program: Option<String>,
    /// Of the delays before the kills.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the table to this file.
    #[arg(long)]
    table: Option<PathBuf>,
}

fn main() -> ExitCode {
    with_kafka(|| try_out(&Arguments::parse()))
}

#[allow(clippy::print_stdout, reason = "a command-line program")]
fn try_out(arguments: &Arguments) -> Result<()> {
    let scenario = Scenario {
        kills: arguments.kills,
        seed: arguments.seed,
    };
    let wanted = |chosen: &Option<String>, name| chosen.as_deref().is_none_or(|one| one == name);
    let brokers = [
        ("kafka", "Apache Kafka 4.3.1", Kind::Kafka),
        ("penstock", "Penstock", Kind::Penstock(Profile::Dev)),
    ];
    let mut rows = Vec::new();
    for (short, broker, kind) in brokers {
        if !wanted(&arguments.only, short) {
            continue;
        }
        let new_target =
            |name: &str| Target::new(kind, &arguments.dir.join(format!("{short}-{name}/broker")), &[]);
        if wanted(&arguments.program, "connect") {
            let report = connect::run(
                &mut new_target("connect")?,
                scenario,
                &arguments.dir.join(format!("{short}-connect")),
            )?;
            println!("{broker}, Connect\n{report}");
            rows.push(row(
                "Connect, file to topic",
                broker,
                &report.topic,
                &report.outages,
            ));
            rows.push(row(
                "Connect, file to file",
                broker,
                &report.sink,
                &report.outages,
            ));
        }
        if wanted(&arguments.program, "mirror") {
            let report = mirror::run(
                &mut new_target("mirror")?,
                scenario,
                &arguments.dir.join(format!("{short}-mirror")),
            )?;
            println!("{broker}, MirrorMaker 2\n{report}");
            rows.push(row(
                "MirrorMaker 2, Kafka to it",
                broker,
                &report.records,
                &report.outages,
            ));
            if !report.group_is_there() {
                return failed("the group's offsets did not come to the ends of all partitions");
            }
        }
    }
    let table = markdown(&rows, arguments.kills);
    println!("{table}");
    if let Some(path) = &arguments.table {
        std::fs::write(path, table).doing(path.display())?;
    }
    let violations: u64 = rows.iter().map(|row| row.verdict.violations()).sum();
    if violations == 0 {
        Ok(())
    } else {
        failed(format!("violations: {violations}"))
    }
}

struct Row {
    program: &'static str,
    broker: &'static str,
    verdict: Verdict,
    longest: Duration,
}

fn row(program: &'static str, broker: &'static str, verdict: &Verdict, outages: &[Duration]) -> Row {
    Row {
        program,
        broker,
        verdict: *verdict,
        longest: outages.iter().max().copied().unwrap_or_default(),
    }
}

fn markdown(rows: &[Row], kills: u32) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "# Kafka Connect and MirrorMaker 2 (4.3.1), the broker killed with -9 and restarted {kills} times\n\n\
         `cargo run -p bench --bin ecosystem -- --dir DIR --kills {kills} --table bench/results/ecosystem.md`: 2,000 lines of \
         100 bytes a second. Repeated are copies beyond the first: both programs promise at least once.\n\n\
         | program | broker | written | found | lost | out of order | repeated | longest from kill to next, s |\n\
         | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    );
    for Row {
        program,
        broker,
        verdict,
        longest,
    } in rows
    {
        let Verdict {
            written,
            found,
            lost,
            disordered,
            repeated,
            ..
        } = verdict;
        let _ = writeln!(
            text,
            "| {program} | {broker} | {written} | {found} | {lost} | {disordered} | {repeated} | {:.1} |",
            longest.as_secs_f64()
        );
    }
    text
}
