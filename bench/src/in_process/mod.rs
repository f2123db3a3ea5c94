//! A broker in this process that is fed with requests made before, without a client and a network, on the real disk: what its shards
//! do is all that is measured. Shows what a second shard brings, and what it costs that a request's partition is another shard's.

mod feed;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use broker::assembly::{last_calls, serve_connections};
use broker::config::settings::Settings;
use broker::log_dirs::LogDirs;
use broker::memory;
use broker::node::{Broker, NodeMessage};
use broker::startup::shard::{Report, ShardInput, live};
use broker::stores::gates;
use broker::system::HostReport;
use broker::view::{Home, TopicName};
use bytes::Bytes;
use protocol::Str;
use protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest, CreateTopicsResponse,
};
use serde::{Deserialize, Serialize};
use shard::controller::{ControllerCommand, ControllerResponse};
use shard::env::Env;
use shard::ids::ShardId;
use shard::router::ShardMessage;
use shard::runtime::executor::{Runtime, RuntimeEnv, RuntimeOptions};
use shard::runtime::mailbox::{MailboxLimits, mailboxes};

use self::feed::{FedStream, Feed};
use crate::bounded;
use crate::error::{Doing, Result, failed};
use crate::resources::usage;
use crate::storage_load::wire;

const TOPIC: &str = "fed";

/// Partitions for each shard: with as many a commit has records of several.
const PARTITIONS_PER_SHARD: i32 = 8;

/// Connections of each shard.
const CONNECTIONS_PER_SHARD: usize = 8;

/// Memory for each shard, bytes: the same however many there are.
const SHARD_MEMORY_BYTES: u64 = 1 << 30;

/// Segment files that a shard may keep open.
const OPEN_FILES: usize = 1000;

/// Time before it is measured.
const WARMUP: Duration = Duration::from_secs(1);

/// Within this a start or a stop is over.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whose partitions a shard's connections write to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// The shard's own.
    Own,
    /// Its own and the other shards' in turn.
    Half,
    /// The other shards'.
    Others,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the data go; an empty directory.
    pub dir: PathBuf,
    /// Shards.
    pub shards: u16,
    /// Whose partitions are written to.
    pub mix: Mix,
    /// Records of a request.
    pub records: usize,
    /// Bytes of a record.
    pub record_bytes: usize,
    /// Requests in flight on each connection.
    pub window: usize,
    /// `penstock.durability` of the topic.
    pub durability: String,
    /// How long it is measured.
    pub time: Duration,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
pub struct Fed {
    /// Requests a second, acknowledged.
    pub requests_per_second: f64,
    /// Megabytes (10^6) of records a second.
    pub megabytes_per_second: f64,
    /// Processors used, of the whole process.
    pub cores: f64,
    /// Microseconds of a processor for each request.
    pub cpu_us_per_request: f64,
}

/// Feeds a broker and stops it.
///
/// # Errors
/// It cannot start or goes wrong, or an answer has an error.
pub fn run(plan: &Plan) -> Result<Fed> {
    let host = HostReport::examine(Some(usize::from(plan.shards)), std::slice::from_ref(&plan.dir));
    if host.cpus.len() < usize::from(plan.shards) {
        return failed(format!(
            "{} processors for {} shards",
            host.cpus.len(),
            plan.shards
        ));
    }
    std::fs::create_dir_all(&plan.dir).doing(plan.dir.display())?;
    let dir = std::fs::canonicalize(&plan.dir).doing(plan.dir.display())?;
    let settings = Arc::new(Settings {
        log_dirs: vec![dir.clone()],
        shards: Some(plan.shards),
        ..Settings::default()
    });
    let (boxes, _) = mailboxes::<ShardMessage<NodeMessage>>(plan.shards, MailboxLimits::default());
    let port = boxes.first().expect("at least one shard").port();
    let memory_bytes = SHARD_MEMORY_BYTES * u64::from(plan.shards);
    let memory = memory::divide(memory_bytes, plan.shards, settings.request_bytes_max);
    let (report, reports) = flume::unbounded();
    let (wrong, wrongs) = flume::unbounded();
    let answered = Arc::new(AtomicU64::new(0));
    let log_dirs = LogDirs::new(vec![dir]);
    let parts = boxes
        .into_iter()
        .zip(gates(plan.shards))
        .zip(last_calls(plan.shards));
    let inputs = parts.map(|((mailbox, gate), last_call)| {
        let input = ShardInput {
            mailbox,
            gate,
            settings: settings.clone(),
            log_dirs: log_dirs.clone(),
            memory,
            open_files: OPEN_FILES,
            shards: plan.shards,
            last_call,
            report: report.clone(),
        };
        let feeder = Feeder {
            plan: plan.clone(),
            answered: answered.clone(),
            wrong: wrong.clone(),
        };
        (input, feeder)
    });
    let mut options = RuntimeOptions::on(host.cpus.clone());
    options.pinned = host.pinned;
    let runtime = Runtime::start(
        &options,
        inputs.collect(),
        |env: RuntimeEnv, (input, feeder): (ShardInput, Feeder)| {
            live(env, input, async move |broker| feeder.serve(broker).await)
        },
    );
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(error.to_string()),
    };
    let fed = until_ready(&reports, plan.shards).and_then(|()| measure(plan, &answered));
    for shard in 0..plan.shards {
        // A shard that has ended takes nothing.
        let _ = port.send(ShardId(shard), ShardMessage::Node(NodeMessage::Stop));
    }
    let fed = fed?;
    runtime.join();
    match (wrongs.try_recv(), reports.try_recv()) {
        (Ok(sentence), _) => failed(sentence),
        (_, Ok(Report::Failed(failure))) => failed(failure.sentence),
        _ => Ok(fed),
    }
}

/// The same by a program that prints what [`run`] returns as JSON, so that each run has a process of its own.
///
/// # Errors
/// As [`run`], and when the program does not end in time.
pub fn run_apart(program: &mut Command, time: Duration) -> Result<Fed> {
    // It starts, warms up and stops beside.
    let said = bounded::output(program, WARMUP + time + 3 * PATIENCE)?;
    serde_json::from_str(&said)
        .map_err(std::io::Error::from)
        .doing("reading the figures of a run")
}

fn until_ready(reports: &flume::Receiver<Report>, shards: u16) -> Result<()> {
    for _ in 0..shards {
        match reports.recv_timeout(PATIENCE) {
            Ok(Report::Ready) => {}
            Ok(Report::Failed(failure)) => return failed(failure.sentence),
            Err(_) => return failed("a shard is not ready in time"),
        }
    }
    Ok(())
}

fn measure(plan: &Plan, answered: &AtomicU64) -> Result<Fed> {
    let began = Instant::now();
    while answered.load(Ordering::Relaxed) == 0 {
        if began.elapsed() > PATIENCE {
            return failed("nothing was answered in time");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(WARMUP);
    let look =
        || usage(std::process::id()).map(|usage| (usage.cpu_seconds, answered.load(Ordering::Relaxed)));
    let (began, before) = (Instant::now(), look()?);
    std::thread::sleep(plan.time);
    let (seconds, after) = (began.elapsed().as_secs_f64(), look()?);
    let (cpu, requests) = (after.0 - before.0, (after.1 - before.1) as f64);
    let bytes = requests * (plan.records * plan.record_bytes) as f64;
    Ok(Fed {
        requests_per_second: requests / seconds,
        megabytes_per_second: bytes / seconds / 1e6,
        cores: cpu / seconds,
        cpu_us_per_request: cpu * 1e6 / requests.max(1.0),
    })
}

/// What feeds one shard.
struct Feeder {
    plan: Plan,
    answered: Arc<AtomicU64>,
    wrong: flume::Sender<String>,
}

impl Feeder {
    async fn serve(self, broker: &Rc<Broker<RuntimeEnv>>) {
        match self.streams(broker).await {
            Ok(streams) => {
                let streams = RefCell::new(streams);
                let name: Arc<str> = Arc::from("FED");
                serve_connections(broker, async || {
                    let next = streams.borrow_mut().pop();
                    match next {
                        Some(stream) => Some((stream, name.clone())),
                        None => std::future::pending().await,
                    }
                })
                .await;
            }
            Err(sentence) => {
                let _ = self.wrong.send(sentence);
                broker.stopping().await;
            }
        }
    }

    async fn streams(&self, broker: &Rc<Broker<RuntimeEnv>>) -> std::result::Result<Vec<FedStream>, String> {
        if broker.router.shard() == ShardId(0) {
            create_topic(broker, &self.plan).await?;
        }
        let (own, others) = partitions(broker, self.plan.shards).await;
        let batch = wire::batch(self.plan.records, self.plan.record_bytes, false);
        let request = |partition: &i32| wire::produce(TOPIC, &[*partition], &batch, -1);
        let (own, others): (Vec<Bytes>, Vec<Bytes>) = (
            own.iter().map(request).collect(),
            others.iter().map(request).collect(),
        );
        let requests = |number: usize| {
            let one = |of: &[Bytes]| of[number % of.len()].clone();
            match self.plan.mix {
                _ if others.is_empty() => vec![one(&own)],
                Mix::Own => vec![one(&own)],
                Mix::Half => vec![one(&own), one(&others)],
                Mix::Others => vec![one(&others)],
            }
        };
        let stream = |number| {
            FedStream::new(Feed {
                requests: requests(number),
                window: self.plan.window,
                check: Box::new(|answer| {
                    wire::check_produced(answer, TOPIC).map_err(|error| error.to_string())
                }),
                answered: self.answered.clone(),
                wrong: self.wrong.clone(),
            })
        };
        Ok((0..CONNECTIONS_PER_SHARD).map(stream).collect())
    }
}

async fn create_topic(broker: &Rc<Broker<RuntimeEnv>>, plan: &Plan) -> std::result::Result<(), String> {
    let durability = CreatableTopicConfig {
        name: Str::from("penstock.durability"),
        value: Some(Str::from(plan.durability.clone())),
    };
    let topic = CreatableTopic {
        name: Str::from(TOPIC),
        num_partitions: PARTITIONS_PER_SHARD * i32::from(plan.shards),
        replication_factor: 1,
        configs: vec![durability],
        ..Default::default()
    };
    let command = ControllerCommand::CreateTopics {
        request: CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 30_000,
            ..Default::default()
        },
        undescribable: Vec::new(),
    };
    let Some(ControllerResponse::CreateTopics(CreateTopicsResponse { topics, .. })) =
        broker.command(command).await
    else {
        return Err("the controller gave no answer".to_owned());
    };
    let refused = topics
        .iter()
        .find(|topic| topic.error_code != protocol::ErrorCode::NONE);
    refused.map_or(Ok(()), |topic| Err(format!("the topic is refused: {topic:?}")))
}

/// The partitions of this shard and those of the others, when all are served.
async fn partitions(broker: &Rc<Broker<RuntimeEnv>>, shards: u16) -> (Vec<i32>, Vec<i32>) {
    loop {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let view = broker.view();
        if let Ok(topic) = view.topic(TopicName::Name(TOPIC)) {
            for index in 0..PARTITIONS_PER_SHARD * i32::from(shards) {
                match view.partition(topic, index) {
                    Ok((_, Home::Shard(shard, _))) if shard == broker.router.shard() => own.push(index),
                    Ok((_, Home::Shard(..))) => others.push(index),
                    _ => {}
                }
            }
        }
        if own.len() + others.len() == (PARTITIONS_PER_SHARD * i32::from(shards)) as usize {
            // The other shards open theirs at the same time: what comes too early would be refused.
            broker.env.sleep(Duration::from_millis(500)).await;
            return (own, others);
        }
        broker.env.sleep(Duration::from_millis(5)).await;
    }
}
