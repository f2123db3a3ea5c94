//! Kafka Connect in distributed mode: a file source writes a growing file into a topic, a file sink writes that topic into another
//! file. Everything Connect itself keeps (configuration, offsets, status, its group) is on the broker that is killed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use super::feed::{Feed, LINE_BYTES, number};
use super::rest::ask;
use super::worker::Worker;
use super::{POLL_INTERVAL, Scenario, Verdict, await_end, judge, kill_repeatedly, read_topic, write};
use crate::error::{Doing, Error, Result, failed};
use crate::process::free_port;
use crate::target::Target;

/// The topic between the source and the sink.
const TOPIC: &str = "connect-lines";
/// How long the worker may take until its REST interface answers, and each connector until it runs.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the source file to the topic.
    pub topic: Verdict,
    /// From the source file to the sink file.
    pub sink: Verdict,
    /// From each kill to the first line in the sink file after it.
    pub outages: Vec<Duration>,
}

/// Runs the scenario below `dir` on a broker that is not started yet.
///
/// # Errors
/// The broker, the worker or a connector does something unforeseen. Lost lines are in the report.
pub fn run(target: &mut Target, scenario: Scenario, dir: &Path) -> Result<Report> {
    std::fs::create_dir_all(dir).doing(dir.display())?;
    target.start(None)?;
    let (source, sink) = (dir.join("source.txt"), dir.join("sink.txt"));
    let file = File::create(&source).doing(source.display())?;
    File::create(&sink).doing(sink.display())?;
    let port = free_port()?;
    let config = dir.join("connect.properties");
    write(&config, &settings(&target.bootstrap(), port))?;
    let mut worker = Worker::start(
        "connect",
        "org.apache.kafka.connect.cli.ConnectDistributed",
        &[&config.display().to_string()],
        dir,
    )?;
    deploy(
        &mut worker,
        port,
        "source",
        &[
            ("connector.class", "FileStreamSource"),
            ("file", &source.display().to_string()),
            ("topic", TOPIC),
        ],
    )?;
    deploy(
        &mut worker,
        port,
        "sink",
        &[
            ("connector.class", "FileStreamSink"),
            ("file", &sink.display().to_string()),
            ("topics", TOPIC),
        ],
    )?;
    let feed = Feed::start(file, None);
    let mut arrived = || {
        worker.expect_running()?;
        let bytes = std::fs::metadata(&sink).doing(sink.display())?.len();
        Ok(bytes / LINE_BYTES)
    };
    let outages = kill_repeatedly(target, scenario, &mut arrived)?;
    let written = feed.finish()?;
    // With repeated lines the file has as many lines before the last one is there: until it rests, then.
    await_end(&mut arrived, written)?;
    await_last(&sink, written)?;
    for connector in ["source", "sink"] {
        expect_well(port, connector)?;
    }
    drop(worker);
    let text = std::fs::read_to_string(&sink).doing(sink.display())?;
    let report = Report {
        topic: judge(
            written,
            numbers(
                read_topic(&target.bootstrap(), TOPIC)?
                    .iter()
                    .map(|(_, line)| line.as_str()),
            )?,
        ),
        sink: judge(written, numbers(text.lines())?),
        outages,
    };
    target.kill()?;
    Ok(report)
}

/// Waits for the last line; when it does not come the verdict says so.
fn await_last(sink: &Path, written: u64) -> Result<()> {
    let started = Instant::now();
    let last = written.saturating_sub(1);
    while started.elapsed() < super::QUIET {
        let text = std::fs::read_to_string(sink).doing(sink.display())?;
        if text.lines().rev().take(1).any(|line| number(line) == Some(last)) {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL * 10);
    }
    Ok(())
}

fn numbers<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Vec<u64>> {
    lines
        .map(|line| match number(line) {
            Some(number) => Ok(number),
            None => failed(format!("a line came out that nobody wrote: {line:?}")),
        })
        .collect()
}

fn settings(bootstrap: &str, port: u16) -> String {
    // Offsets are written every second, so that kills meet commits too; a member that is missing is waited for a second.
    format!(
        "bootstrap.servers={bootstrap}
group.id=connect-bench
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.storage.partitions=5
offset.flush.interval.ms=1000
scheduled.rebalance.max.delay.ms=1000
plugin.discovery=service_load
"
    )
}

/// Puts a connector and waits until it and its task run.
fn deploy(worker: &mut Worker, port: u16, name: &str, config: &[(&str, &str)]) -> Result<()> {
    let mut fields = BTreeMap::from([("tasks.max", "1")]);
    fields.extend(config.iter().copied());
    let body =
        serde_json::to_string(&fields).map_err(|error| Error::Failed(format!("configuration: {error}")))?;
    let started = Instant::now();
    let mut put = false;
    let mut last = String::from("nothing");
    while started.elapsed() < START_TIMEOUT {
        worker.expect_running()?;
        // It answers 404, 409 or 500 while it starts or rebalances, or not at all.
        let answer = if put {
            ask(port, "GET", &format!("/connectors/{name}/status"), "")
        } else {
            ask(port, "PUT", &format!("/connectors/{name}/config"), &body)
        };
        match answer {
            Ok((200 | 201, _)) if !put => put = true,
            Ok((200, status)) if status.matches("RUNNING").count() >= 2 => return Ok(()),
            Ok((status, said)) => last = format!("{status} {said}"),
            Err(error) => last = error.to_string(),
        }
        std::thread::sleep(POLL_INTERVAL * 4);
    }
    failed(format!("the connector {name} does not run: {last}"))
}

fn expect_well(port: u16, name: &str) -> Result<()> {
    match ask(port, "GET", &format!("/connectors/{name}/status"), "")? {
        (200, status) if status.matches("RUNNING").count() >= 2 => Ok(()),
        (status, said) => failed(format!("at the end the connector {name} says {status} {said}")),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "file to topic: {}", self.topic)?;
        writeln!(f, "file to file: {}", self.sink)?;
        write!(f, "from kill to the next line in the sink: {:.1?}", self.outages)
    }
}
