//! Kafka's own tools for groups and offsets, asked the same of both brokers: `kafka-consumer-groups`, `kafka-get-offsets`,
//! `kafka-groups`, and `kafka-dump-log --offsets-decoder` on the files of `__consumer_offsets`. The answers must be equal but for
//! ids, addresses, times and the order in which a hash map comes out.

pub mod compaction;
mod decoded;
mod normal;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use self::decoded::{Decoded, compare as compare_decoded};
pub use self::normal::normal;

use crate::bounded;
use crate::error::{Doing, Error, Result};
use crate::kafka::tool;
use crate::target::{Kind, Target};

/// Both brokers get these, Kafka from its start script. Kafka's node has the number 1.
const OVERRIDES: [&str; 1] = ["group.initial.rebalance.delay.ms=0"];

/// How long all commands may take, 88 runs of a tool in one JVM.
const ASK_TIMEOUT: Duration = Duration::from_secs(600);

/// One command and its answer.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Step {
    /// The line of `bench/tools/commands.txt`.
    pub command: String,
    /// Both streams, as the tool wrote them.
    pub output: String,
    /// What the process would have ended with.
    pub status: i32,
}

/// What one broker answered.
#[derive(Debug)]
pub struct Transcript {
    /// Each command in turn.
    pub steps: Vec<Step>,
    /// What `kafka-dump-log` makes of its `__consumer_offsets`.
    pub decoded: Decoded,
}

/// Starts a broker below `dir`, asks all commands and stops it.
///
/// # Errors
/// The broker or the Java program does not start, or the files cannot be decoded.
pub fn run(kind: Kind, dir: &Path) -> Result<Transcript> {
    let broker_dir = dir.join("broker");
    let mut overrides = OVERRIDES.to_vec();
    if kind != Kind::Kafka {
        overrides.push("node.id=1");
    }
    let mut target = Target::new(kind, &broker_dir, &overrides)?;
    target.start(None)?;
    let folder = dir.join("files");
    std::fs::create_dir_all(&folder).doing(folder.display())?;
    let steps = ask(&target.bootstrap(), &folder)?;
    target.terminate()?;
    let decoded = decoded::decode(&broker_dir.join("data"))?;
    Ok(Transcript { steps, decoded })
}

fn ask(bootstrap: &str, folder: &Path) -> Result<Vec<Step>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools");
    let program = here.join("Tools.java");
    let mut command = tool(&program.display().to_string());
    // Times in the commands are those of this zone.
    let options = "-Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Duser.timezone=UTC";
    command.env("JAVA_OPTS", options);
    command.arg(bootstrap).arg(folder).arg(here.join("commands.txt"));
    let said = bounded::output(&mut command, ASK_TIMEOUT)?;
    let steps = said.lines().map(|line| {
        let step = serde_json::from_str::<Step>(line);
        step.map_err(|error| Error::Failed(format!("Tools.java printed {line:?}: {error}")))
    });
    steps
        .map(|step| {
            step.map(|mut step| {
                step.output = normal(&step.output, bootstrap, folder);
                step
            })
        })
        .collect()
}

/// The commands whose answers differ, each with both.
pub fn compare<'a>(kafka: &'a Transcript, ours: &'a Transcript) -> Vec<(&'a Step, &'a Step)> {
    let pairs = kafka.steps.iter().zip(&ours.steps);
    pairs
        .filter(|(theirs, ours)| theirs.output != ours.output || theirs.status != ours.status)
        .collect()
}

/// The transcript of both as Markdown: each command with the answer, and where they differ with both answers.
pub fn markdown(kafka: &Transcript, ours: &Transcript) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let differing = compare(kafka, ours);
    let decoded = compare_decoded(&kafka.decoded, &ours.decoded);
    let _ = writeln!(
        text,
        "{} commands, {} with the same answer from both; {} keys of `__consumer_offsets` decoded by `kafka-dump-log`, {} with other \
         records than Kafka's.\n",
        kafka.steps.len(),
        kafka.steps.len() - differing.len(),
        ours.decoded.keys(),
        decoded.len(),
    );
    for difference in &decoded {
        let _ = writeln!(text, "    {difference}");
    }
    for (theirs, ours) in kafka.steps.iter().zip(&ours.steps) {
        let _ = writeln!(text, "```console\n$ {}\n{}", theirs.command, answer(theirs));
        if theirs.output != ours.output || theirs.status != ours.status {
            let _ = writeln!(text, "--- ours:\n{}", answer(ours));
        }
        let _ = writeln!(text, "```");
    }
    let _ = writeln!(
        text,
        "\nWhat `kafka-dump-log --offsets-decoder` makes of our `__consumer_offsets`, each record as key and value, ordered by key:\n\n\
         ```text"
    );
    for line in ours.decoded.lines() {
        let _ = writeln!(text, "{line}");
    }
    text.push_str("```\n");
    text
}

fn answer(step: &Step) -> String {
    let status = match step.status {
        0 => String::new(),
        other => format!("\n(status {other})"),
    };
    format!("{}{status}", step.output.trim_matches('\n'))
}

/// Files of a log directory that hold records of the internal topic.
fn offsets_files(data: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(data).doing(data.display())? {
        let partition = entry.doing(data.display())?.path();
        let name = partition.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("__consumer_offsets-") {
            continue;
        }
        for file in std::fs::read_dir(&partition).doing(partition.display())? {
            let file = file.doing(partition.display())?;
            let holds = file.metadata().doing(file.path().display())?.len() > 0;
            if holds
                && file
                    .path()
                    .extension()
                    .is_some_and(|extension| extension == "log")
            {
                found.push(file.path());
            }
        }
    }
    found.sort();
    Ok(found)
}
