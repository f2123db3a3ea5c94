//! Many partitions and many clients that ask for all of them (BR-105): answers of a megabyte and more, over and over, some of
//! them never read. The broker has to hold back who does not read, keep answering the others, and give the memory back.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::message::Request;
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use protocol::messages::fetch::{FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic};
use protocol::messages::find_coordinator::FindCoordinatorRequest;
use protocol::messages::metadata::MetadataRequest;
use protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use protocol::{ErrorCode, Str};

use crate::conformance::wire::{Received, Wire};
use crate::error::{Error, Result, failed};
use crate::process::{Broker, Profile};
use crate::resources::usage;

/// Partitions of each topic.
const PARTITIONS_PER_TOPIC: usize = 100;
/// Partitions that one request makes.
const PARTITIONS_PER_REQUEST: usize = 5_000;
/// Partitions that one OffsetFetch asks for.
const OFFSETS: usize = 5_000;
/// The group that it asks for; it has committed nothing.
const GROUP: &str = "bulk";
/// How often each client asks.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// How long a client waits for an answer, and a client that read nothing until then.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Requests of a client that does not read; the sockets are full long before.
const UNREAD_REQUESTS: usize = 100;
/// How long the broker may take to give memory back.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// The longest answer to the witness: it asks for little, and waits only for its turn among the large ones.
const WITNESS_LIMIT: Duration = Duration::from_secs(5);
/// How long memory has to stay within a hundredth to be what the broker takes at rest, and how long it may take until then.
const REST: Duration = Duration::from_secs(2);
const REST_LIMIT: Duration = Duration::from_secs(60);
/// How often memory and the witness are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Bulk {
    /// Partitions over all topics, a multiple of 100.
    pub partitions: usize,
    /// Clients that ask ten times a second; every eighth reads nothing before the end.
    pub clients: usize,
    /// How long they ask.
    pub time: Duration,
    /// What the broker may take for requests, answers and caches, MiB (`penstock.memory.bytes`).
    pub memory_mib: u64,
}

/// What was seen.
#[derive(Clone, Debug)]
pub struct Seen {
    /// From the first CreateTopics to the last answer.
    pub made_in: Duration,
    /// Answers read while all asked.
    pub answers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Clients that were refused, cut off or not answered in time.
    pub failures: u64,
    /// What the first of them met.
    pub first_failure: Option<String>,
    /// Longest answer to a client that asks small things of its own beside them.
    pub witness_max: Duration,
    /// Resident MiB with all partitions and no client.
    pub idle_mib: u64,
    /// The most while all asked.
    pub peak_mib: u64,
    /// After they had gone.
    pub after_mib: u64,
}

impl Seen {
    /// Nobody was cut off or refused who read, small answers came in time, memory grew by the broker's own bound at most, and came back
    /// to within a fifth of what it was.
    pub fn is_well(&self, bulk: Bulk) -> bool {
        self.failures == 0
            && self.answers > 0
            && self.witness_max <= WITNESS_LIMIT
            && self.peak_mib <= self.idle_mib + bulk.memory_mib
            && self.after_mib * 5 <= self.idle_mib * 6
    }
}

/// Runs it on a broker of its own below `dir`.
///
/// # Errors
/// The broker does not start, does not make the topics, or is gone at the end.
pub fn run(profile: Profile, dir: &Path, bulk: Bulk) -> Result<Seen> {
    let memory = format!("penstock.memory.bytes={}", bulk.memory_mib << 20);
    // The least of that setting grows with the largest request.
    let mut broker = Broker::new(profile, dir, &[&memory, "socket.request.max.bytes=8388608"])?;
    broker.start(None)?;
    let pid = broker.pid().ok_or_else(|| Error::Failed("it ended".into()))?;
    let address = broker.bootstrap();
    let resident = || usage(pid).map(|now| now.resident_bytes >> 20);
    let began = Instant::now();
    let topics = make_topics(&address, bulk.partitions / PARTITIONS_PER_TOPIC)?;
    let made_in = began.elapsed();
    let questions = questions(&topics)?;
    await_answers(&address, &questions)?;
    let idle_mib = at_rest(&resident)?;
    let crowd = Crowd::default();
    let mut peak_mib = idle_mib;
    let mut witness_max = Duration::ZERO;
    std::thread::scope(|scope| -> Result<()> {
        for number in 0..bulk.clients {
            let (crowd, questions, address) = (&crowd, &questions, &address);
            scope.spawn(move || crowd.client(address, questions, number));
        }
        let end = Instant::now() + bulk.time;
        let watched = watch(&address, end, &mut peak_mib, &mut witness_max, &resident);
        crowd.stop.store(true, Ordering::Relaxed);
        watched
    })?;
    let gone = Instant::now();
    let mut after_mib = resident()?;
    while after_mib * 5 > idle_mib * 6 && gone.elapsed() < SETTLE_LIMIT {
        std::thread::sleep(LOOK_INTERVAL);
        after_mib = resident()?;
    }
    Ok(Seen {
        first_failure: crowd.first_failure.into_inner().ok().flatten(),
        made_in,
        answers: crowd.answers.into_inner(),
        bytes: crowd.bytes.into_inner(),
        failures: crowd.failures.into_inner(),
        witness_max,
        idle_mib,
        peak_mib,
        after_mib,
    })
}

/// Waits until the group has a coordinator and each question is answered without an error code.
fn await_answers(address: &str, questions: &[Question]) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    let find = FindCoordinatorRequest {
        key: GROUP.into(),
        ..Default::default()
    };
    let mut ask = || -> Result<()> {
        let id = wire.send(FIND_VERSION, &find)?;
        let found = wire.receive::<FindCoordinatorRequest>(FIND_VERSION, id)?;
        refused("FindCoordinator", [found.error_code].into_iter())?;
        for question in questions {
            wire.send_bytes(&question.frame)?;
            match wire.frame(ANSWER_LIMIT)? {
                Received::Frame(answer) => (question.check)(answer)?,
                Received::Closed | Received::Silence => return failed("no answer"),
            }
        }
        Ok(())
    };
    let began = Instant::now();
    loop {
        match ask() {
            Err(_) if began.elapsed() < REST_LIMIT => std::thread::sleep(LOOK_INTERVAL),
            answered => return answered,
        }
    }
}

/// Memory once it does not change any more, MiB.
fn at_rest(resident: &impl Fn() -> Result<u64>) -> Result<u64> {
    let began = Instant::now();
    let mut last = (resident()?, began);
    while last.1.elapsed() < REST {
        if began.elapsed() > REST_LIMIT {
            return failed(format!("memory still changes after {REST_LIMIT:?}"));
        }
        std::thread::sleep(LOOK_INTERVAL);
        let now = resident()?;
        if now.abs_diff(last.0) * 100 > last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(last.0)
}

fn watch(
    address: &str,
    end: Instant,
    peak_mib: &mut u64,
    witness_max: &mut Duration,
    resident: &impl Fn() -> Result<u64>,
) -> Result<()> {
    let mut wire = Wire::connect(address)?;
    let none = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    while Instant::now() < end {
        let asked = Instant::now();
        let id = wire.send(12, &none)?;
        wire.receive::<MetadataRequest>(12, id)?;
        *witness_max = (*witness_max).max(asked.elapsed());
        *peak_mib = (*peak_mib).max(resident()?);
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

fn make_topics(address: &str, count: usize) -> Result<Vec<Str>> {
    let names: Vec<Str> = (0..count).map(|n| Str::from(format!("bulk-{n:04}"))).collect();
    let mut wire = Wire::connect(address)?;
    for some in names.chunks(PARTITIONS_PER_REQUEST / PARTITIONS_PER_TOPIC) {
        let request = CreateTopicsRequest {
            topics: some
                .iter()
                .map(|name| CreatableTopic {
                    name: name.clone(),
                    num_partitions: i32::try_from(PARTITIONS_PER_TOPIC).unwrap_or(i32::MAX),
                    replication_factor: 1,
                    ..Default::default()
                })
                .collect(),
            timeout_ms: 60_000,
            validate_only: false,
        };
        let id = wire.send(7, &request)?;
        let answer = wire.receive::<CreateTopicsRequest>(7, id)?;
        if let Some(wrong) = answer.topics.iter().find(|t| t.error_code != ErrorCode::NONE) {
            return failed(format!("a topic was not made: {wrong:?}"));
        }
    }
    Ok(names)
}

/// What the clients ask in turn.
struct Question {
    /// The request as a whole frame, with the correlation id 0.
    frame: Vec<u8>,
    /// Whether the answer, without its length, is one without an error code.
    check: fn(Bytes) -> Result<()>,
}

impl Question {
    fn new<R: Request>(version: i16, request: &R, check: fn(Bytes) -> Result<()>) -> Result<Self> {
        let frame = Wire::frame_of(version, request)?;
        Ok(Self { frame, check })
    }
}

/// Fails with the first error code that an answer has.
fn refused(what: &str, mut codes: impl Iterator<Item = ErrorCode>) -> Result<()> {
    match codes.find(|&code| code != ErrorCode::NONE) {
        None => Ok(()),
        Some(code) => failed(format!("{what} was answered with {code}")),
    }
}

const METADATA_VERSION: i16 = 12;
const CONFIGS_VERSION: i16 = 4;
const OFFSETS_VERSION: i16 = 8;
const FETCH_VERSION: i16 = 12;
const FIND_VERSION: i16 = 3;

fn check_metadata(answer: Bytes) -> Result<()> {
    let answer = Wire::answer_of::<MetadataRequest>(METADATA_VERSION, answer)?;
    let codes = answer.topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter().map(|one| one.error_code);
        partitions.chain([topic.error_code])
    });
    refused("Metadata", codes)
}

fn check_configs(answer: Bytes) -> Result<()> {
    let answer = Wire::answer_of::<DescribeConfigsRequest>(CONFIGS_VERSION, answer)?;
    refused("DescribeConfigs", answer.results.iter().map(|one| one.error_code))
}

fn check_offsets(answer: Bytes) -> Result<()> {
    let answer = Wire::answer_of::<OffsetFetchRequest>(OFFSETS_VERSION, answer)?;
    let codes = answer.groups.iter().flat_map(|group| {
        let partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|one| one.error_code).chain([group.error_code])
    });
    refused("OffsetFetch", codes)
}

fn check_fetch(answer: Bytes) -> Result<()> {
    let answer = Wire::answer_of::<FetchRequest>(FETCH_VERSION, answer)?;
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    refused(
        "Fetch",
        partitions.map(|one| one.error_code).chain([answer.error_code]),
    )
}

fn questions(topics: &[Str]) -> Result<Vec<Question>> {
    let partitions = || 0..i32::try_from(PARTITIONS_PER_TOPIC).unwrap_or(i32::MAX);
    let metadata = MetadataRequest {
        topics: None,
        ..Default::default()
    };
    let configs = DescribeConfigsRequest {
        resources: topics
            .iter()
            .map(|name| DescribeConfigsResource {
                resource_type: 2,
                resource_name: name.clone(),
                configuration_keys: None,
            })
            .collect(),
        ..Default::default()
    };
    let offsets = OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: GROUP.into(),
            member_epoch: -1,
            topics: Some(
                topics
                    .iter()
                    .take(OFFSETS / PARTITIONS_PER_TOPIC)
                    .map(|name| OffsetFetchRequestTopics {
                        name: name.clone(),
                        partition_indexes: partitions().collect(),
                        ..Default::default()
                    })
                    .collect(),
            ),
            ..Default::default()
        }],
        ..Default::default()
    };
    let fetch = FetchRequest {
        max_bytes: 50 << 20,
        topics: topics
            .iter()
            .map(|name| FetchRequestFetchTopic {
                topic: name.clone(),
                partitions: partitions()
                    .map(|partition| FetchRequestFetchPartition {
                        partition,
                        current_leader_epoch: -1,
                        last_fetched_epoch: -1,
                        log_start_offset: -1,
                        partition_max_bytes: 1 << 20,
                        ..Default::default()
                    })
                    .collect(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    Ok(vec![
        Question::new(METADATA_VERSION, &metadata, check_metadata)?,
        Question::new(CONFIGS_VERSION, &configs, check_configs)?,
        Question::new(OFFSETS_VERSION, &offsets, check_offsets)?,
        Question::new(FETCH_VERSION, &fetch, check_fetch)?,
    ])
}

#[derive(Default)]
struct Crowd {
    stop: AtomicBool,
    answers: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    first_failure: Mutex<Option<String>>,
}

impl Crowd {
    fn client(&self, address: &str, questions: &[Question], number: usize) {
        let done = if number.is_multiple_of(8) {
            self.unread(address, questions)
        } else {
            self.asking(address, questions, number)
        };
        if let Err(error) = done {
            self.failures.fetch_add(1, Ordering::Relaxed);
            let mut first = self.first_failure.lock().expect("no client panics with it");
            first.get_or_insert_with(|| error.to_string());
        }
    }

    /// Asks, reads, asks the next thing.
    fn asking(&self, address: &str, questions: &[Question], number: usize) -> Result<()> {
        let mut wire = Wire::connect(address)?;
        for question in questions.iter().cycle().skip(number) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let asked = Instant::now();
            wire.send_bytes(&question.frame)?;
            match wire.frame(ANSWER_LIMIT)? {
                Received::Frame(answer) => {
                    self.bytes.fetch_add(answer.len() as u64, Ordering::Relaxed);
                    (question.check)(answer)?;
                    self.answers.fetch_add(1, Ordering::Relaxed);
                }
                Received::Closed => return failed("a client was cut off"),
                Received::Silence => return failed("a client was not answered in time"),
            }
            std::thread::sleep(ASK_INTERVAL.saturating_sub(asked.elapsed()));
        }
        Ok(())
    }

    /// Asks again and again and reads nothing; the broker may cut it off or stop reading from it.
    fn unread(&self, address: &str, questions: &[Question]) -> Result<()> {
        let mut wire = Wire::connect(address)?;
        wire.write_limit(Duration::from_millis(200))?;
        for question in questions.iter().cycle().take(UNREAD_REQUESTS) {
            if self.stop.load(Ordering::Relaxed) || wire.send_bytes(&question.frame).is_err() {
                break;
            }
        }
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}
