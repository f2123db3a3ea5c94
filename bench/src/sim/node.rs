//! One run of the simulated broker: its shards on one simulated process, put together by [`broker::assembly`] as in the real
//! one, over simulated disk and network. A run ends by a kill, by a power loss or by a clean stop.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use broker::assembly::{self, LastCall, Shard};
use broker::config::settings::Settings;
use broker::control::CONTROLLER_SHARD;
use broker::exit::Failure;
use broker::log_dirs::LogDirs;
use broker::memory;
use broker::node::NodeMessage;
use broker::stores::{self, Gate};
use protocol::ErrorCode;
use protocol::Str;
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use shard::controller::{ControllerCommand, ControllerResponse};
use shard::ids::ShardId;
use shard::owner::Dirs;
use shard::owner::store::StoreLogs;
use shard::router::ShardMessage;
use shard::runtime::mailbox::{Mailbox, MailboxGauges, MailboxLimits, mailboxes};
use storage::disk::Disk;
use storage::disk::sim::SimDisk;
use storage::notify::Notify;
use storage::sim_executor::SimHandle;

use super::canary::{Canary, Shape, SimLogs, Swapping};
use super::env::SimEnv;
use super::knobs::Knobs;
use super::net::SimNet;

/// `socket.request.max.bytes` of the simulated broker.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;

/// The log directories that a simulated broker may have; that of the metadata log is the first.
const DATA: [&str; 2] = ["/data", "/more"];

/// The log directories of the run.
#[must_use]
pub fn log_dirs(knobs: &Knobs) -> LogDirs {
    LogDirs::new(DATA[..knobs.log_dirs].iter().map(PathBuf::from))
}

/// What the paths of files in the directory of the metadata log contain, and no others.
pub const IN_METADATA_DIR: &str = "/data/";

type SimShard = Shard<SimEnv, SimLogs>;

/// A broker that runs.
pub struct Node {
    state: Rc<State>,
    shards: u16,
    gauges: MailboxGauges,
}

#[derive(Default)]
struct State {
    ready: RefCell<Vec<Option<SimShard>>>,
    stopped: RefCell<u16>,
    failed: RefCell<Option<String>>,
    changed: Notify,
}

/// What a node is started with.
pub struct NodeInput<'a> {
    /// Its process.
    pub process: SimHandle,
    /// Its disk.
    pub disk: SimDisk,
    /// Its network.
    pub net: SimNet,
    /// The seed's decisions.
    pub knobs: &'a Knobs,
    /// Which run this is, from 0.
    pub run: u32,
    /// The planted bug, if any.
    pub canary: Option<Canary>,
}

impl Node {
    /// Starts all shards; they serve when [`Node::ready`] ends.
    #[must_use]
    pub fn start(input: &NodeInput<'_>) -> Self {
        let shards = input.knobs.shards[input.run as usize];
        let settings = Arc::new(Settings {
            log_dirs: DATA[..input.knobs.log_dirs].iter().map(PathBuf::from).collect(),
            auto_create_topics: false,
            request_bytes_max: REQUEST_BYTES_MAX,
            commit_linger: input.knobs.storage.linger,
            fixed: Arc::new(input.knobs.fixed.clone()),
            ..Settings::default()
        });
        let (boxes, gauges) = mailboxes(shards, MailboxLimits::default());
        let state = Rc::new(State {
            ready: RefCell::new((0..shards).map(|_| None).collect()),
            ..State::default()
        });
        let calls = assembly::last_calls(shards);
        let dirs = log_dirs(input.knobs);
        for (((shard, mailbox), gate), last_call) in (0..).zip(boxes).zip(stores::gates(shards)).zip(calls) {
            let life = Life {
                shard,
                shards,
                env: SimEnv::new(input.process.clone()),
                disk: input.disk.for_process(&input.process),
                net: input.net.clone(),
                dirs: dirs.clone(),
                settings: settings.clone(),
                options: input.knobs.storage.options,
                shape: Shape {
                    segment_bytes: input.knobs.storage.segment_bytes,
                    index_interval_bytes: input.knobs.storage.index_interval_bytes,
                    canary: input.canary,
                    run: input.run,
                },
                state: state.clone(),
            };
            let state = state.clone();
            input.process.spawn(async move {
                match life.live(mailbox, gate, last_call).await {
                    Ok(()) => *state.stopped.borrow_mut() += 1,
                    Err(failure) => {
                        state.failed.borrow_mut().get_or_insert(failure);
                    }
                }
                state.changed.notify();
            });
        }
        Self {
            state,
            shards,
            gauges,
        }
    }

    /// Ends when every shard serves.
    pub async fn ready(&self) {
        let all = || {
            self.state
                .ready
                .borrow()
                .iter()
                .all(Option::is_some)
                .then_some(())
        };
        self.state.changed.until(all).await;
    }

    /// Ends when the broker cannot go on, with the reason.
    pub async fn failed(&self) -> String {
        self.state
            .changed
            .until(|| self.state.failed.borrow().clone())
            .await
    }

    /// Creates the topics of the run where they do not exist.
    ///
    /// # Errors
    /// What the controller said.
    pub async fn create_topics(&self, topics: &[i32]) -> Result<(), String> {
        let broker = self.broker(0);
        let topic = |(index, partitions): (usize, &i32)| CreatableTopic {
            name: Str::from(topic_name(index)),
            num_partitions: *partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: topics.iter().enumerate().map(topic).collect(),
            ..Default::default()
        };
        let undescribable = Vec::new();
        let command = ControllerCommand::CreateTopics {
            request,
            undescribable,
        };
        let Some(ControllerResponse::CreateTopics(created)) = broker.command(command).await else {
            return Err("the controller gave no answer".to_owned());
        };
        let refused = created
            .topics
            .iter()
            .find(|t| ![ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS].contains(&t.error_code));
        refused.map_or(Ok(()), |t| Err(format!("{}: {:?}", t.name, t.error_code)))
    }

    /// How many shards it has.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// Tells the broker to stop, and waits until it has.
    pub async fn stop(&self) {
        let router = self.broker(0).router.clone();
        for shard in 0..self.shards {
            router.tell(ShardId(shard), NodeMessage::Stop);
        }
        let all = || (*self.state.stopped.borrow() == self.shards).then_some(());
        self.state.changed.until(all).await;
    }

    /// Batches answered with the offset of an earlier, identical one.
    #[must_use]
    pub fn duplicates(&self) -> u64 {
        let ready = self.state.ready.borrow();
        ready
            .iter()
            .flatten()
            .map(|s| s.broker.metrics.snapshot().duplicates)
            .sum()
    }

    /// Partitions whose logs could not be opened.
    #[must_use]
    pub fn offline_partitions(&self) -> usize {
        let ready = self.state.ready.borrow();
        ready
            .iter()
            .flatten()
            .map(|s| s.broker.metrics.logs_missing().1)
            .sum()
    }

    /// What still waits somewhere, when nothing should: a sentence, or `None`.
    #[must_use]
    pub fn leftovers(&self) -> Option<String> {
        for (index, shard) in (0..).zip(&*self.state.ready.borrow()) {
            let Some(shard) = shard else { continue };
            let open = shard.broker.router.open();
            let (produces, fetches) = shard.driver.with_owner(|owner| owner.waiting());
            let queued = self.gauges.depth(ShardId(index));
            let connections: u64 = shard.broker.metrics.snapshot().connections_open.values().sum();
            let charged: u64 = shard
                .broker
                .budget
                .read()
                .iter()
                .map(|account| account.used_bytes)
                .sum();
            if open + produces + fetches + queued > 0 || connections + charged > 0 {
                return Some(format!(
                    "shard {index}: {open} open requests, {produces} waiting produces, {fetches} waiting fetches, {queued} \
                     messages in the mailbox, {connections} connections, {charged} bytes charged"
                ));
            }
        }
        None
    }

    fn broker(&self, shard: usize) -> Rc<broker::node::Broker<SimEnv>> {
        let ready = self.state.ready.borrow();
        ready[shard]
            .as_ref()
            .expect("called when it is ready")
            .broker
            .clone()
    }
}

/// One shard's life, before it begins.
struct Life {
    shard: u16,
    shards: u16,
    env: SimEnv,
    disk: SimDisk,
    net: SimNet,
    dirs: LogDirs,
    settings: Arc<Settings>,
    options: storage::store::StoreOptions,
    shape: Shape,
    state: Rc<State>,
}

impl Life {
    async fn live(
        self,
        mailbox: Mailbox<ShardMessage<NodeMessage>>,
        gate: Gate,
        last_call: LastCall,
    ) -> Result<(), String> {
        if self.shard == 0 {
            let created = async {
                for (_, path, _) in self.dirs.iter() {
                    self.disk.create_dir(path).await?;
                }
                self.disk.sync_dir(Path::new("/")).await
            };
            created.await.map_err(|error| error.to_string())?;
        }
        self.run(mailbox, gate, last_call)
            .await
            .map_err(|failure| failure.sentence)
    }

    async fn run(
        self,
        mailbox: Mailbox<ShardMessage<NodeMessage>>,
        gate: Gate,
        last_call: LastCall,
    ) -> Result<(), Failure> {
        let dirs = self.dirs;
        let disks = vec![Some(self.disk.clone()); dirs.len()];
        let opened = stores::open_stores(&disks, &dirs, self.shard, gate, self.options).await?;
        let swaps = self.shape.canary == Some(Canary::SwappedAnswers);
        let shape = Rc::new(self.shape);
        let wrapped = opened.iter().map(|store| {
            let logs = StoreLogs::new(store.clone()?);
            Some(SimLogs::new(logs, shape.clone()))
        });
        let logs = Dirs::new(wrapped);
        let failed = |state: Rc<State>, reason: String| {
            state.failed.borrow_mut().get_or_insert(reason);
            state.changed.notify();
        };
        let limits = memory::divide(1 << 28, self.shards, REQUEST_BYTES_MAX).limits;
        let state = self.state.clone();
        let shard = assembly::start(
            &self.env,
            mailbox,
            self.settings,
            dirs,
            limits,
            &logs,
            move |error| {
                failed(state.clone(), error.to_string());
            },
        );
        let mut controller = None;
        if self.shard == CONTROLLER_SHARD.0 {
            let state = self.state.clone();
            let on_failure = move |failure: Failure| failed(state, failure.sentence);
            controller = Some(assembly::start_controller(&shard, &disks, &opened, on_failure).await?);
            shard.control.joined().await;
        }
        let (broker, moves) = (shard.broker.clone(), shard.moves.clone());
        broker.has_metadata().await;
        self.state.ready.borrow_mut()[usize::from(self.shard)] = Some(shard);
        self.state.changed.notify();
        let net = self.net;
        let name: Arc<str> = Arc::from("PLAINTEXT");
        assembly::serve_connections(&broker, async || {
            let stream = net.accept(self.shard).await?;
            Some((Swapping { stream, swaps }, name.clone()))
        })
        .await;
        let closing = last_call.wait().await;
        moves.stop().await;
        assembly::close(&disks, &opened, controller, closing).await
    }
}

/// The name of topic number `index` of a run.
#[must_use]
pub fn topic_name(index: usize) -> String {
    format!("topic{index}")
}

/// How long a clean stop may take.
pub const STOP_MAX: Duration = Duration::from_secs(10);
