//! The kill test: two idempotent producers (or two with acks=1) write while the broker is killed with -9 and restarted, ten times;
//! then every record that was acknowledged must be there once, in order, at the offset that was promised.

mod check;
mod producers;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::clients::librdkafka_python;
use crate::error::{Doing, Error, Result, failed};
use crate::target::Target;

pub use check::{Acknowledged, Found, Verdict, check};

use producers::{Producer, Told, driver};

/// Partitions of each producer's topic.
const PARTITIONS: u32 = 8;
/// Each producer gets at least so many answers between two kills.
const PROGRESS_RECORDS: u64 = 2000;
/// How long that may take after a restart.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);
/// A kill comes at a random time up to this after the progress.
const KILL_DELAY_MS_MAX: u64 = 600;
/// Shard counts of the restarts where they change, in turn.
const SHARDS: [usize; 5] = [2, 1, 4, 3, 1];

/// What to do to the broker.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// `all` (with idempotent producers) or `1`.
    pub acks: &'static str,
    /// How often it is killed.
    pub kills: u32,
    /// Every restart has another shard count.
    pub reshard: bool,
    /// Of the random delays before each kill.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// VerifiableProducer's topic.
    pub verifiable: Verdict,
    /// The librdkafka program's topic.
    pub librdkafka: Verdict,
    /// Records that a producer was told to have failed, of both.
    pub failed: u64,
    /// Records of the librdkafka program without an answer at each kill.
    pub waiting: Vec<u64>,
    /// Duplicates answered from producer state between a restart and the next kill, summed; none when not counted.
    pub duplicates: Option<u64>,
    /// From each kill to the first answers of both producers after it.
    pub outages: Vec<Duration>,
}

/// Runs a scenario below `dir` on a started or new broker; `None` when Python is missing here.
///
/// # Errors
/// The broker or a producer does something unforeseen. Broken promises are in the report.
pub fn run(target: &mut Target, scenario: &Scenario, dir: &Path) -> Result<Option<Report>> {
    let Some(python) = librdkafka_python()? else {
        return Ok(None);
    };
    std::fs::create_dir_all(dir).doing(dir.display())?;
    let shards = |start: u32| scenario.reshard.then(|| SHARDS[start as usize % SHARDS.len()]);
    target.start(shards(0))?;
    let bootstrap = target.bootstrap();
    let name = |producer: &str| {
        format!(
            "kill-{producer}-{}{}",
            scenario.acks,
            if scenario.reshard { "-reshard" } else { "" }
        )
    };
    let (verifiable_topic, librdkafka_topic) = (name("verifiable"), name("librdkafka"));
    for topic in [&verifiable_topic, &librdkafka_topic] {
        drive(&python, &["create", &bootstrap, topic, &PARTITIONS.to_string()])?;
    }
    let mut verifiable = Producer::verifiable(&bootstrap, &verifiable_topic, scenario.acks, dir)?;
    let mut librdkafka = Producer::librdkafka(
        &python,
        &bootstrap,
        &librdkafka_topic,
        PARTITIONS,
        scenario.acks,
        dir,
    )?;
    let mut report = Report {
        verifiable: Verdict::default(),
        librdkafka: Verdict::default(),
        failed: 0,
        waiting: Vec::new(),
        duplicates: Some(0),
        outages: Vec::new(),
    };
    let mut random = scenario.seed | 1;
    await_progress(&mut verifiable, &mut librdkafka)?;
    for kill in 1..=scenario.kills {
        // xorshift: the delays only have to differ.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        std::thread::sleep(Duration::from_millis(random % KILL_DELAY_MS_MAX));
        count_duplicates(target, &mut report)?;
        report.waiting.push(librdkafka.waiting()?);
        target.kill()?;
        let killed = Instant::now();
        target.start(shards(kill))?;
        await_progress(&mut verifiable, &mut librdkafka)?;
        report.outages.push(killed.elapsed());
    }
    let told = (verifiable.stop()?, librdkafka.stop()?);
    count_duplicates(target, &mut report)?;
    report.failed = told.0.failed + told.1.failed;
    report.verifiable = judge(&python, &bootstrap, &verifiable_topic, &told.0)?;
    report.librdkafka = judge(&python, &bootstrap, &librdkafka_topic, &told.1)?;
    target.kill()?;
    Ok(Some(report))
}

fn await_progress(verifiable: &mut Producer, librdkafka: &mut Producer) -> Result<()> {
    let before = (verifiable.acknowledged(), librdkafka.acknowledged());
    let started = Instant::now();
    while verifiable.acknowledged() < before.0 + PROGRESS_RECORDS
        || librdkafka.acknowledged() < before.1 + PROGRESS_RECORDS
    {
        verifiable.expect_running()?;
        librdkafka.expect_running()?;
        if started.elapsed() > PROGRESS_TIMEOUT {
            let (one, two) = (
                verifiable.acknowledged() - before.0,
                librdkafka.acknowledged() - before.1,
            );
            return failed(format!(
                "{PROGRESS_TIMEOUT:?} after the start VerifiableProducer has {one} answers and librdkafka {two}"
            ));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn count_duplicates(target: &Target, report: &mut Report) -> Result<()> {
    let counted = target.duplicates()?;
    report.duplicates = report.duplicates.zip(counted).map(|(sum, more)| sum + more);
    Ok(())
}

fn judge(python: &Path, bootstrap: &str, topic: &str, told: &Told) -> Result<Verdict> {
    let text = drive(python, &["read", bootstrap, topic, &PARTITIONS.to_string()])?;
    let found = text.lines().map(|line| {
        let mut fields = line.split(' ').map(str::parse::<u64>);
        match (fields.next(), fields.next(), fields.next()) {
            (Some(Ok(partition)), Some(Ok(offset)), Some(Ok(value))) => {
                let partition =
                    u32::try_from(partition).map_err(|_| Error::Failed(format!("it read {line:?}")))?;
                Ok(Found {
                    partition,
                    offset,
                    value,
                })
            }
            _ => failed(format!("it read {line:?}")),
        }
    });
    Ok(check(&told.acknowledged, &found.collect::<Result<Vec<_>>>()?))
}

/// Runs the librdkafka program to its end and returns what it printed.
fn drive(python: &Path, arguments: &[&str]) -> Result<String> {
    let out = driver(python)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .doing("bench/kill/driver.py")?;
    if !out.status.success() {
        return failed(format!(
            "driver.py {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&out.stderr)
        ));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, verdict) in [
            ("VerifiableProducer", &self.verifiable),
            ("librdkafka", &self.librdkafka),
        ] {
            let Verdict {
                acknowledged,
                found,
                unacknowledged,
                ..
            } = verdict;
            write!(
                f,
                "{name}: {acknowledged} acknowledged, {found} read ({unacknowledged} of them never answered), "
            )?;
            write!(
                f,
                "lost {}, repeated {}, out of order {}, ",
                verdict.lost, verdict.repeated, verdict.disordered
            )?;
            write!(f, "misplaced {}, gaps {}", verdict.misplaced, verdict.gaps)?;
            writeln!(
                f,
                "{}",
                verdict
                    .first
                    .as_ref()
                    .map_or_else(String::new, |first| format!("; first: {first}"))
            )?;
        }
        let longest = self.outages.iter().max().copied().unwrap_or_default();
        writeln!(
            f,
            "records waiting for an answer at each kill: {:?}; {} failed",
            self.waiting, self.failed
        )?;
        let duplicates = self
            .duplicates
            .map_or_else(|| "not counted".into(), |count| count.to_string());
        write!(
            f,
            "duplicates answered from producer state: {duplicates}; longest from kill to new answers: {longest:.2?}"
        )
    }
}
