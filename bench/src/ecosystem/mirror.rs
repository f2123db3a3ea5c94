//! MirrorMaker 2 from Apache Kafka to the broker that is killed: each partition of the mirrored topic is held against the same
//! partition of the source, and a group's committed offsets come along.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::feed::{Feed, number};
use super::worker::Worker;
use super::{POLL_INTERVAL, Scenario, Verdict, ends, judge, kill_repeatedly, read_topic, run_tool, write};
use crate::error::{Doing, Error, Result};
use crate::kafka::{Kafka, KafkaOptions};
use crate::target::Target;

/// The topic at the source, and what MirrorMaker calls it at the target.
const TOPIC: &str = "mirrored";
const MIRROR: &str = "source.mirrored";
/// Its partitions.
const PARTITIONS: u32 = 4;
/// Keys of the lines, so that a line and those after it with the same key stay in order.
const KEYS: u64 = 64;
/// The group whose offsets are translated.
const GROUP: &str = "reader";
/// How long MirrorMaker may take to bring the last offsets over.
const SYNC_TIMEOUT: Duration = Duration::from_secs(90);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// From the source's partitions to the target's, all together.
    pub records: Verdict,
    /// What the group has committed at the target, by partition, beside the end of each.
    pub committed: Vec<(u64, u64)>,
    /// From each kill to the first record after it.
    pub outages: Vec<Duration>,
}

/// Runs the scenario below `dir`, with a source of its own, on a target that is not started yet.
///
/// # Errors
/// A broker or MirrorMaker does something unforeseen. Lost records are in the report.
pub fn run(target: &mut Target, scenario: Scenario, dir: &Path) -> Result<Report> {
    std::fs::create_dir_all(dir).doing(dir.display())?;
    let source = Kafka::start(&KafkaOptions::new(&dir.join("source"), "512m", &[])?)?;
    target.start(None)?;
    let partitions = PARTITIONS.to_string();
    run_tool(
        "org.apache.kafka.tools.TopicCommand",
        &source.bootstrap(),
        &["--create", "--topic", TOPIC, "--partitions", &partitions],
    )?;
    let mut producer = Worker::start(
        "producer",
        "org.apache.kafka.tools.ConsoleProducer",
        &[
            "--bootstrap-server",
            &source.bootstrap(),
            "--topic",
            TOPIC,
            "--reader-property",
            "parse.key=true",
        ],
        dir,
    )?;
    let config = dir.join("mirror.properties");
    write(&config, &settings(&source.bootstrap(), &target.bootstrap()))?;
    let mut mirror = Worker::start(
        "mirror",
        "org.apache.kafka.connect.mirror.MirrorMaker",
        &[&config.display().to_string()],
        dir,
    )?;
    let feed = Feed::start(producer.stdin()?, Some(KEYS));
    let bootstrap = target.bootstrap();
    let mut most = 0;
    let mut arrived = || {
        mirror.expect_running()?;
        // A partition that has no leader just then is not among the ends: what has come through is the most that was seen.
        most = most.max(ends(&bootstrap, MIRROR)?.iter().sum::<u64>());
        Ok(most)
    };
    let outages = kill_repeatedly(target, scenario, &mut arrived)?;
    feed.finish()?;
    producer.wait()?;
    let there = ends(&source.bootstrap(), TOPIC)?;
    super::await_end(&mut arrived, there.iter().sum())?;
    commit(&source.bootstrap())?;
    let committed = await_committed(&bootstrap, &there)?;
    mirror.expect_running()?;
    drop(mirror);
    let records = compare(
        &read_topic(&source.bootstrap(), TOPIC)?,
        &read_topic(&bootstrap, MIRROR)?,
    )?;
    target.kill()?;
    Ok(Report {
        records,
        committed,
        outages,
    })
}

fn settings(source: &str, target: &str) -> String {
    format!(
        "clusters=source,target
source.bootstrap.servers={source}
target.bootstrap.servers={target}
source->target.enabled=true
source->target.topics={TOPIC}
source->target.groups={GROUP}
target->source.enabled=false
target->source.emit.heartbeats.enabled=false
tasks.max=2
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.flush.interval.ms=1000
scheduled.rebalance.max.delay.ms=1000
refresh.topics.interval.seconds=2
refresh.groups.interval.seconds=2
emit.heartbeats.interval.seconds=1
emit.checkpoints.interval.seconds=1
sync.group.offsets.enabled=true
sync.group.offsets.interval.seconds=1
"
    )
}

/// The group at the source has read everything.
fn commit(bootstrap: &str) -> Result<()> {
    let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let arguments = [
        "--group",
        GROUP,
        "--reset-offsets",
        "--topic",
        TOPIC,
        "--to-latest",
        "--execute",
    ];
    run_tool(class, bootstrap, &arguments).map(|_| ())
}

/// Waits until the group's translated offsets are at the ends of the target's partitions; what there is after that time is returned.
fn await_committed(bootstrap: &str, source_ends: &[u64]) -> Result<Vec<(u64, u64)>> {
    let class = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    let started = Instant::now();
    loop {
        let said = run_tool(class, bootstrap, &["--describe", "--group", GROUP])?;
        let mut rows: Vec<_> = said
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_whitespace().skip_while(|word| *word != MIRROR).skip(1);
                let partition = fields.next()?.parse::<u32>().ok()?;
                let committed = fields.next()?.parse::<u64>().ok()?;
                Some((partition, committed, fields.next()?.parse::<u64>().ok()?))
            })
            .collect();
        rows.sort_unstable();
        let well = rows.len() == source_ends.len() && rows.iter().all(|(_, committed, end)| committed == end);
        if well || started.elapsed() > SYNC_TIMEOUT {
            return Ok(rows
                .into_iter()
                .map(|(_, committed, end)| (committed, end))
                .collect());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Judges each partition by the order in which its source has the lines.
fn compare(source: &[(u32, String)], target: &[(u32, String)]) -> Result<Verdict> {
    let mut places = BTreeMap::new();
    let mut written = BTreeMap::<u32, u64>::new();
    for (partition, line) in source {
        let number = number(line)
            .ok_or_else(|| Error::Failed(format!("the source has a line that nobody wrote: {line:?}")))?;
        let place = written.entry(*partition).or_default();
        places.insert(number, (*partition, *place));
        *place += 1;
    }
    let mut found = BTreeMap::<u32, Vec<u64>>::new();
    for (partition, line) in target {
        let place = number(line)
            .and_then(|number| places.get(&number))
            .filter(|(of, _)| of == partition);
        // A line of another partition is one that nobody wrote to this one.
        found
            .entry(*partition)
            .or_default()
            .push(place.map_or(u64::MAX, |(_, place)| *place));
    }
    let verdicts = written
        .iter()
        .map(|(partition, count)| judge(*count, found.remove(partition).unwrap_or_default()));
    Ok(verdicts.fold(Verdict::default(), Verdict::plus))
}

impl Report {
    /// Whether the group's offsets came to the ends of all partitions.
    pub fn group_is_there(&self) -> bool {
        self.committed.len() == PARTITIONS as usize
            && self.committed.iter().all(|(committed, end)| committed == end)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Kafka to the target: {}", self.records)?;
        writeln!(
            f,
            "the group's committed offset and the end of each partition: {:?}",
            self.committed
        )?;
        write!(f, "from kill to the next record: {:.1?}", self.outages)
    }
}
