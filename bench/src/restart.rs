//! How long a start takes with many partitions, after a clean stop and after kill -9, and what idle partitions cost in memory and
//! processor time. One process of ours, real files.

use std::path::Path;
use std::time::{Duration, Instant};

use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use protocol::record::BatchOptions;
use protocol::{ErrorCode, RecordBytes, Str};

use crate::conformance::batch::{Rec, batch};
use crate::conformance::wire::{Received, Wire};
use crate::error::{Error, Result, failed};
use crate::process::{Broker, Profile};
use crate::resources::usage;

/// Partitions of a topic.
const PARTITIONS_PER_TOPIC: usize = 1000;
/// Partitions that one Produce request writes to.
const PARTITIONS_PER_PRODUCE: usize = 500;
/// How long a request may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// How long a stop may take; the broker itself gives up earlier.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// How long a start may take.
const START_LIMIT: Duration = Duration::from_secs(300);
/// How long an idle broker is watched.
const IDLE: Duration = Duration::from_secs(30);
/// How long it gets to come to rest before that.
const SETTLE: Duration = Duration::from_secs(10);

/// A stop that was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    /// How long it took.
    pub took: Duration,
    /// Whether it came to its end; if not, the next start had to recover.
    pub is_clean: bool,
}

impl Stop {
    fn of(broker: &mut Broker) -> Result<Self> {
        let asked = Instant::now();
        let status = broker.terminate(STOP_LIMIT)?;
        Ok(Self {
            took: asked.elapsed(),
            is_clean: status.success(),
        })
    }
}

/// Times of starts.
#[derive(Clone, Debug)]
pub struct Starts {
    /// Partitions.
    pub partitions: usize,
    /// Batches of one record in each of them.
    pub batches: usize,
    /// From the start of the process to the ready line, after a clean stop.
    pub clean: Vec<Duration>,
    /// Those stops.
    pub stops: Vec<Stop>,
    /// After kill -9, each after one more batch to every partition.
    pub killed: Vec<Duration>,
}

/// Starts a broker with `partitions` partitions again and again. `padding` is the size of each record's value, bytes.
///
/// # Errors
/// The broker does not start, refuses something, or has lost a record.
pub fn starts(
    profile: Profile,
    dir: &Path,
    partitions: usize,
    padding: usize,
    rounds: usize,
) -> Result<Starts> {
    let mut broker = Broker::new(profile, dir, &[])?;
    broker.allow_for_starts(START_LIMIT);
    broker.start(None)?;
    let topics = make_topics(&broker.bootstrap(), partitions)?;
    let mut seen = Starts {
        partitions,
        batches: 0,
        clean: Vec::new(),
        stops: Vec::new(),
        killed: Vec::new(),
    };
    for _ in 0..rounds {
        produce_to_all(&broker.bootstrap(), &topics, padding)?;
        seen.batches += 1;
        seen.stops.push(Stop::of(&mut broker)?);
        broker.start(None)?;
        seen.clean.push(broker.ready_after());
        check_ends(&broker.bootstrap(), &topics, seen.batches)?;
    }
    for _ in 0..rounds {
        produce_to_all(&broker.bootstrap(), &topics, padding)?;
        seen.batches += 1;
        broker.kill()?;
        broker.start(None)?;
        seen.killed.push(broker.ready_after());
        check_ends(&broker.bootstrap(), &topics, seen.batches)?;
    }
    broker.terminate(STOP_LIMIT)?;
    Ok(seen)
}

/// What idle partitions cost.
#[derive(Clone, Debug)]
pub struct Idle {
    /// Partitions.
    pub partitions: usize,
    /// How long it took to make them.
    pub made_in: Duration,
    /// Resident bytes of a broker without partitions.
    pub bare_bytes: u64,
    /// Resident bytes with all of them just made.
    pub made_bytes: u64,
    /// Processor seconds a second while nothing happens.
    pub cpu_share: f64,
    /// Resident bytes after a stop and a start.
    pub again_bytes: u64,
    /// Processor seconds a second then.
    pub again_cpu_share: f64,
    /// The stop of the run that made them, and the start after it.
    pub made: (Stop, Duration),
    /// A stop of a run in which nothing happened, and the start after it.
    pub unchanged: (Stop, Duration),
    /// A start after kill -9.
    pub killed_start: Duration,
}

impl Idle {
    /// Resident bytes for each partition, from a start on.
    pub fn bytes_each(&self) -> f64 {
        self.again_bytes.saturating_sub(self.bare_bytes) as f64 / self.partitions as f64
    }
}

/// Makes `partitions` partitions and lets the broker rest.
///
/// # Errors
/// As [`starts`].
pub fn idle(profile: Profile, dir: &Path, partitions: usize) -> Result<Idle> {
    let mut broker = Broker::new(profile, dir, &[])?;
    broker.allow_for_starts(START_LIMIT);
    broker.start(None)?;
    std::thread::sleep(Duration::from_secs(2));
    let (bare_bytes, _) = rest(&broker, Duration::from_secs(1))?;
    let began = Instant::now();
    make_topics(&broker.bootstrap(), partitions)?;
    let made_in = began.elapsed();
    std::thread::sleep(SETTLE);
    let (made_bytes, cpu_share) = rest(&broker, IDLE)?;
    let made = stop_and_start(&mut broker)?;
    std::thread::sleep(SETTLE);
    let (again_bytes, again_cpu_share) = rest(&broker, IDLE)?;
    let unchanged = stop_and_start(&mut broker)?;
    broker.kill()?;
    broker.start(None)?;
    let killed_start = broker.ready_after();
    broker.terminate(STOP_LIMIT)?;
    Ok(Idle {
        partitions,
        made_in,
        bare_bytes,
        made_bytes,
        cpu_share,
        again_bytes,
        again_cpu_share,
        made,
        unchanged,
        killed_start,
    })
}

fn stop_and_start(broker: &mut Broker) -> Result<(Stop, Duration)> {
    let stop = Stop::of(broker)?;
    broker.start(None)?;
    Ok((stop, broker.ready_after()))
}

/// Resident bytes at the end of `time`, and processor seconds a second during it.
fn rest(broker: &Broker, time: Duration) -> Result<(u64, f64)> {
    let pid = broker.pid().ok_or_else(|| Error::Failed("it ended".into()))?;
    let before = usage(pid)?;
    let began = Instant::now();
    std::thread::sleep(time);
    let after = usage(pid)?;
    let share = (after.cpu_seconds - before.cpu_seconds) / began.elapsed().as_secs_f64();
    Ok((after.resident_bytes, share))
}

fn make_topics(address: &str, partitions: usize) -> Result<Vec<(Str, usize)>> {
    let mut wire = Wire::connect(address)?;
    let mut topics = Vec::new();
    let mut left = partitions;
    while left > 0 {
        let count = left.min(PARTITIONS_PER_TOPIC);
        left -= count;
        let name = Str::from(format!("many-{:04}", topics.len()));
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: name.clone(),
                num_partitions: i32::try_from(count).unwrap_or(i32::MAX),
                replication_factor: 1,
                ..Default::default()
            }],
            timeout_ms: 120_000,
            validate_only: false,
        };
        wire.send_bytes(&Wire::frame_of(7, &request)?)?;
        let answer = Wire::answer_of::<CreateTopicsRequest>(7, frame(&mut wire)?)?;
        if let Some(wrong) = answer.topics.iter().find(|t| t.error_code != ErrorCode::NONE) {
            return failed(format!("a topic was not made: {wrong:?}"));
        }
        topics.push((name, count));
    }
    Ok(topics)
}

/// An answer without its length, however long it takes.
fn frame(wire: &mut Wire) -> Result<bytes::Bytes> {
    match wire.frame(ANSWER_LIMIT)? {
        Received::Frame(answer) => Ok(answer),
        Received::Closed | Received::Silence => failed("no answer"),
    }
}

/// One batch of one record to every partition, acknowledged.
fn produce_to_all(address: &str, topics: &[(Str, usize)], padding: usize) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    let records = batch(
        BatchOptions::default(),
        &[Rec::of(1_700_000_000_000, vec![b'x'; padding])],
    );
    for (topic, count) in topics {
        let indexes: Vec<usize> = (0..*count).collect();
        for some in indexes.chunks(PARTITIONS_PER_PRODUCE) {
            let partition_data = some
                .iter()
                .map(|index| PartitionProduceData {
                    index: i32::try_from(*index).unwrap_or(i32::MAX),
                    records: Some(RecordBytes::from(records.clone())),
                })
                .collect();
            let request = ProduceRequest {
                transactional_id: None,
                acks: -1,
                timeout_ms: 60_000,
                topic_data: vec![TopicProduceData {
                    name: topic.clone(),
                    partition_data,
                    ..Default::default()
                }],
            };
            wire.send_bytes(&Wire::frame_of(9, &request)?)?;
            let answer = Wire::answer_of::<ProduceRequest>(9, frame(&mut wire)?)?;
            let mut all = answer.responses.iter().flat_map(|t| &t.partition_responses);
            if let Some(wrong) = all.find(|p| p.error_code != ErrorCode::NONE) {
                return failed(format!("a batch was refused: {wrong:?}"));
            }
        }
    }
    Ok(())
}

/// Every partition ends behind its `batches` records.
fn check_ends(address: &str, topics: &[(Str, usize)], batches: usize) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    for (topic, count) in topics {
        let partitions = (0..*count).map(|index| ListOffsetsPartition {
            partition_index: i32::try_from(index).unwrap_or(i32::MAX),
            timestamp: -1,
            ..Default::default()
        });
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![ListOffsetsTopic {
                name: topic.clone(),
                partitions: partitions.collect(),
            }],
            ..Default::default()
        };
        wire.send_bytes(&Wire::frame_of(2, &request)?)?;
        let answer = Wire::answer_of::<ListOffsetsRequest>(2, frame(&mut wire)?)?;
        let mut all = answer.topics.iter().flat_map(|t| &t.partitions);
        let wanted = i64::try_from(batches).unwrap_or(i64::MAX);
        if let Some(wrong) = all.find(|p| p.error_code != ErrorCode::NONE || p.offset != wanted) {
            return failed(format!("{topic} does not end at {wanted}: {wrong:?}"));
        }
    }
    Ok(())
}
