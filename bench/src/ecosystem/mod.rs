//! Kafka Connect and MirrorMaker 2 with the broker killed and restarted under them: numbered lines go in at one end, and what comes
//! out at the other is held against them. Ours and Apache Kafka go through the same kills.

pub mod connect;
mod feed;
pub mod mirror;
mod rest;
mod verdict;
mod worker;

use std::path::Path;
use std::time::{Duration, Instant};

pub use self::verdict::{Verdict, judge};

use crate::bounded;
use crate::error::{Doing, Result, failed};
use crate::kafka::tool;
use crate::target::Target;

/// Lines that come through between two kills, at least.
const PROGRESS_LINES: u64 = 3000;
/// How long that may take after a restart.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(180);
/// A kill comes at a random time up to this after the progress.
const KILL_DELAY_MS_MAX: u64 = 1500;
/// The end is reached when nothing has come through for so long.
const QUIET: Duration = Duration::from_secs(60);
/// How often it is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// What the console consumer waits for one more record.
const READ_TIMEOUT_MS: &str = "60000";
/// How long a tool may take, the console consumer with all records too.
const TOOL_TIMEOUT: Duration = Duration::from_secs(240);
/// What `GetOffsetShell` says of a topic that is not there.
const NO_TOPIC: &str = "Could not match any topic-partitions";

/// What to do to the broker.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// How often it is killed.
    pub kills: u32,
    /// Of the random delays before each kill.
    pub seed: u64,
}

/// Kills and restarts the broker, each time after some progress. Returns the times from each kill to the first progress after it.
fn kill_repeatedly(
    target: &mut Target,
    scenario: Scenario,
    mut arrived: impl FnMut() -> Result<u64>,
) -> Result<Vec<Duration>> {
    let mut random = scenario.seed | 1;
    let mut outages = Vec::new();
    await_progress(&mut arrived, PROGRESS_LINES)?;
    for _ in 0..scenario.kills {
        // xorshift: the delays only have to differ.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(random % KILL_DELAY_MS_MAX));
        target.kill()?;
        let killed = Instant::now();
        target.start(None)?;
        await_progress(&mut arrived, 1)?;
        outages.push(killed.elapsed());
        await_progress(&mut arrived, PROGRESS_LINES)?;
    }
    Ok(outages)
}

fn await_progress(arrived: &mut impl FnMut() -> Result<u64>, lines: u64) -> Result<()> {
    let before = arrived()?;
    let started = Instant::now();
    while arrived()? < before + lines {
        if started.elapsed() > PROGRESS_TIMEOUT {
            let came = arrived()? - before;
            return failed(format!(
                "{PROGRESS_TIMEOUT:?} after the start {came} lines have come through, not {lines}"
            ));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Waits until `arrived` has `lines`, or nothing more comes: what is missing then is found by looking.
fn await_end(mut arrived: impl FnMut() -> Result<u64>, lines: u64) -> Result<()> {
    let mut last = (arrived()?, Instant::now());
    while last.0 < lines && last.1.elapsed() < QUIET {
        let now = arrived()?;
        if now > last.0 {
            last = (now, Instant::now());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// All values of a topic as `(partition, line)`, in each partition's order.
fn read_topic(bootstrap: &str, topic: &str) -> Result<Vec<(u32, String)>> {
    let count = ends(bootstrap, topic)?.iter().sum::<u64>();
    let class = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    let text = run_tool(
        class,
        bootstrap,
        &[
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            &count.to_string(),
            "--timeout-ms",
            READ_TIMEOUT_MS,
            "--formatter-property",
            "print.partition=true",
        ],
    )?;
    let found = text.lines().count() as u64;
    if found != count {
        return failed(format!(
            "the console consumer of {topic} printed {found} lines of {count}"
        ));
    }
    text.lines()
        .map(|line| {
            let fields = line
                .strip_prefix("Partition:")
                .and_then(|rest| rest.split_once('\t'));
            match fields.and_then(|(partition, value)| Some((partition.parse().ok()?, value.to_owned()))) {
                Some(found) => Ok(found),
                None => failed(format!("the console consumer of {topic} printed {line:?}")),
            }
        })
        .collect()
}

/// Runs a tool on a broker and returns what it says.
fn run_tool(class: &str, bootstrap: &str, arguments: &[&str]) -> Result<String> {
    let mut command = tool(class);
    command.args(["--bootstrap-server", bootstrap]).args(arguments);
    bounded::output(&mut command, TOOL_TIMEOUT)
}

/// Ends of a topic's partitions, from the first; none when the topic is not there. A partition without a leader is left out.
fn ends(bootstrap: &str, topic: &str) -> Result<Vec<u64>> {
    let class = "org.apache.kafka.tools.GetOffsetShell";
    let said = match run_tool(class, bootstrap, &["--topic", topic]) {
        Err(error) if error.to_string().contains(NO_TOPIC) => return Ok(Vec::new()),
        said => said?,
    };
    let mut ends = said
        .lines()
        .filter_map(|line| {
            let mut fields = line.strip_prefix(topic)?.strip_prefix(':')?.split(':');
            let partition = fields.next()?.parse::<u32>().ok()?;
            Some((partition, fields.next()?.parse().ok()?))
        })
        .collect::<Vec<_>>();
    ends.sort_unstable();
    Ok(ends.into_iter().map(|(_, end)| end).collect())
}

/// Writes a file, saying which when that fails.
fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).doing(path.display())
}
