//! The controller as this node runs it, on shard 0: commands of all shards reach the quorum's queue, new images are published
//! to every shard before a command is answered, and the node registers itself as a broker. What is decided, and that it is
//! durable, is `shard::quorum`'s and `shard::controller`'s business.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use protocol::messages::broker_heartbeat::BrokerHeartbeatRequest;
use protocol::messages::broker_registration::{
    BrokerRegistrationRequest, BrokerRegistrationRequestFeature as Feature,
    BrokerRegistrationRequestListener as Listener,
};
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::{ErrorCode, Str, Uuid};
use shard::controller::{ControllerCommand, ControllerResponse, random_uuid};
use shard::env::Env;
use shard::ids::{BrokerId, LogDir, ShardId};
use shard::image::{ImageChanges, MetadataImage};
use shard::quorum::identity::Identity;
use shard::quorum::node::{CommandQueue, NodeEffects, NodeOptions, QuorumNode};
use shard::quorum::{PeerMessage, QuorumLog, QuorumOptions, Voter};
use storage::notify::Notify;
use storage::types::{LogId, TopicId};

use crate::config::settings::ListenerSettings;
use crate::homes::Homes;
use crate::node::{Broker, NodeMessage};
use crate::publish::{Opened, Publication, Publisher};

/// Where a command's answer goes; dropped without one when the controller stops or has too much to do.
pub type CommandReply = flume::Sender<ControllerResponse>;

/// The shard that runs the controller.
pub const CONTROLLER_SHARD: ShardId = ShardId(0);

/// Kafka's number of the security protocol PLAINTEXT.
const PLAINTEXT: i16 = 0;

/// How long the creation of a topic that a client named may take, milliseconds; only a figure in the request.
const CREATE_TIMEOUT_MS: i32 = 30_000;

/// Bytes of metadata log after which a snapshot is taken, unless configured (Kafka's default).
const SNAPSHOT_LOG_BYTES: i64 = 20 << 20;

/// The way to the controller from the inbox of its shard; on other shards nobody serves it. Cheap to clone.
#[derive(Clone, Default)]
pub struct Control {
    queue: CommandQueue,
    /// Topics that are being created because clients named them.
    automatic: Rc<RefCell<BTreeSet<String>>>,
    /// Why topics that the broker creates of its own accord could not be, as far as it was logged.
    refusals: Refusals,
    joined: Rc<(Cell<bool>, Notify)>,
    /// Partitions that cannot be served any more and that the controller was not told of yet.
    lost: Rc<RefCell<BTreeSet<LogId>>>,
    /// Where partitions have gone or are to go, as the publisher was not told yet.
    homes: Rc<RefCell<Vec<HomeNews>>>,
    /// What shards have been told of the cluster, or are about to be.
    image: Rc<RefCell<Option<Arc<MetadataImage>>>>,
}

/// What is new about where partitions are.
#[derive(Debug)]
enum HomeNews {
    /// One that is created goes there.
    Preferred(String, LogDir),
    /// One has gone there.
    Moved(LogId, LogDir),
}

impl Control {
    /// A command of some shard of this node.
    pub fn command(&self, command: ControllerCommand, reply: CommandReply) {
        let is_internal = matches!(command, ControllerCommand::CreateInternalTopic { .. });
        let refusals = self.refusals.clone();
        let answer = move |outcome| {
            if let Ok(response) = outcome {
                if is_internal {
                    log_refusal(&refusals, &response, is_internal);
                }
                // Nobody waits when the client has left.
                let _ = reply.send(response);
            }
        };
        self.queue.push(command, Box::new(answer));
    }

    /// Partitions of this node, `node`, cannot be served any more: the controller takes their leaders away.
    pub fn lost(&self, node: BrokerId, logs: Vec<LogId>) {
        if logs.is_empty() {
            return;
        }
        self.lost.borrow_mut().extend(logs.iter().copied());
        let command = ControllerCommand::LogsOffline(node, logs.into_iter().collect());
        let answer = |outcome: Result<ControllerResponse, _>| {
            if outcome.is_err() {
                tracing::warn!("the controller could not be told which partitions are offline");
            }
        };
        self.queue.push(command, Box::new(answer));
    }

    /// The partition of that name (`<topic>-<partition>`) goes to `dir` when it is created.
    pub fn prefer(&self, name: String, dir: LogDir) {
        self.homes.borrow_mut().push(HomeNews::Preferred(name, dir));
    }

    /// A partition has gone to `dir`.
    pub fn moved(&self, log: LogId, dir: LogDir) {
        self.homes.borrow_mut().push(HomeNews::Moved(log, dir));
    }

    /// Shards are about to be told of this image.
    pub(crate) fn know(&self, image: &Arc<MetadataImage>) {
        self.image.replace(Some(image.clone()));
    }

    /// Whether there is a topic of this id. Nobody opens a log of one that is not known here.
    pub fn is_known(&self, topic: TopicId) -> bool {
        let image = self.image.borrow();
        image
            .as_ref()
            .is_some_and(|image| image.topics.by_id(topic).is_some())
    }

    /// Topics that clients named and that do not exist (MD-4): created with the broker's defaults.
    pub fn create_automatically(&self, names: Vec<String>) {
        for name in names {
            if !self.automatic.borrow_mut().insert(name.clone()) {
                continue;
            }
            let topic = CreatableTopic {
                name: Str::from(name.clone()),
                num_partitions: -1,
                replication_factor: -1,
                ..Default::default()
            };
            let request = CreateTopicsRequest {
                topics: vec![topic],
                timeout_ms: CREATE_TIMEOUT_MS,
                ..Default::default()
            };
            let (automatic, refusals) = (self.automatic.clone(), self.refusals.clone());
            let command = ControllerCommand::CreateTopics {
                request,
                undescribable: Vec::new(),
            };
            self.queue.push(
                command,
                Box::new(move |outcome| {
                    automatic.borrow_mut().remove(&name);
                    if let Ok(response) = outcome {
                        log_refusal(&refusals, &response, false);
                    }
                }),
            );
        }
    }

    /// Ends when this node has registered itself as a broker, with the addresses of this start.
    pub async fn joined(&self) {
        self.joined.1.until(|| self.joined.0.get().then_some(())).await;
    }

    /// The controller ends when what waits is answered.
    pub fn stop(&self) {
        self.queue.stop();
    }
}

/// Error codes that were logged, apart for internal topics, so that clients' names cannot hide those.
type Refusals = Rc<RefCell<BTreeSet<(bool, ErrorCode)>>>;

/// Says why a topic that nobody asked for by CreateTopics could not be created: its clients are told only that it is not there.
/// Each code once, for clients ask again and again.
fn log_refusal(refusals: &Refusals, response: &ControllerResponse, is_internal: bool) {
    let ControllerResponse::CreateTopics(created) = response else {
        return;
    };
    let is_refused = |code| ![ErrorCode::NONE, ErrorCode::TOPIC_ALREADY_EXISTS].contains(&code);
    for topic in created.topics.iter().filter(|topic| is_refused(topic.error_code)) {
        let code = topic.error_code;
        if refusals.borrow_mut().insert((is_internal, code)) {
            let (topic, why) = (
                topic.name.as_str(),
                topic.error_message.as_deref().unwrap_or_default(),
            );
            tracing::warn!(
                topic,
                ?code,
                why,
                "a topic that clients need cannot be created; further refusals with this code are not logged"
            );
        }
    }
}

/// What the controller is started with.
pub struct ControlSeed<Q: QuorumLog> {
    /// The metadata log.
    pub log: Q,
    /// Cluster and directory.
    pub identity: Identity,
    /// The broker epoch of a clean stop before this start, −1 after any other end.
    pub previous_broker_epoch: i64,
    /// Which directory holds what.
    pub homes: Homes,
    /// The ids of all directories that work, that of `identity` first.
    pub directories: Vec<Uuid>,
    /// Is told which directories of logs are no partition's.
    pub left: flume::Sender<LeftDirectories>,
}

/// Directories of logs, by name and place, that are no partition's by the first image.
pub type LeftDirectories = Vec<(String, LogDir)>;

/// Runs the controller on its shard until [`Control::stop`]. Returns the broker epoch, for the mark of a clean stop.
///
/// # Errors
/// From the metadata log: the node cannot go on.
pub async fn run<E: Env, Q: QuorumLog>(
    broker: Rc<Broker<E>>,
    control: Control,
    seed: ControlSeed<Q>,
) -> Result<i64, Q::Error> {
    let settings = &broker.settings;
    let fixed = Arc::clone(&settings.fixed);
    let options = NodeOptions {
        quorum: QuorumOptions::new(settings.node_id, broker.env.random()),
        cluster_id: seed.identity.cluster_id.clone(),
        voter: Voter {
            directory: seed.identity.directory,
            endpoints: Vec::new(),
        },
        snapshot_log_bytes: snapshot_log_bytes(&broker),
        fixed,
    };
    let mut node = QuorumNode::open(broker.env.clone(), seed.log, options).await?;
    node.settle().await?;
    let mut homes = seed.homes;
    let mut directories = seed.directories;
    let former = node.image().brokers.get(settings.node_id);
    let former = former.map_or_else(Vec::new, |broker| broker.directories.clone());
    let missing: Vec<Uuid> = former
        .into_iter()
        .filter(|id| !directories.contains(id))
        .collect();
    if !missing.is_empty() {
        tracing::error!(
            ?missing,
            "log directories that this broker had are not there: was one not mounted? Partitions that are not found stay offline"
        );
        homes.miss_one();
        directories.extend(missing); // until they come back, also over the next start
    }
    let register = registration(&broker, &seed.identity, directories, seed.previous_broker_epoch);
    join(&mut node, register).await?;
    let mut effects = Effects {
        publisher: Publisher::new(settings.node_id, broker.router.shards(), homes),
        broker: broker.clone(),
        control: control.clone(),
    };
    effects.publish_first(node.image()).await;
    let left = effects.publisher.take_left();
    // Nobody waits for it in a simulation.
    let _ = seed.left.send(left);
    control.joined.0.set(true);
    control.joined.1.notify();
    node.run(&control.queue, &mut effects).await?;
    let epoch = node.image().brokers.get(settings.node_id).map_or(-1, |b| b.epoch);
    Ok(epoch)
}

fn snapshot_log_bytes<E: Env>(broker: &Broker<E>) -> usize {
    let layers = shard::config::BrokerLayers::of_file(&broker.settings.fixed);
    let bytes = layers.integer(
        "metadata.log.max.record.bytes.between.snapshots",
        SNAPSHOT_LOG_BYTES,
    );
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Registers this node as a broker, and says that it lives: before the shards open their logs, because a registration after
/// an unclean stop begins new leader epochs.
async fn join<E: Env, Q: QuorumLog>(
    node: &mut QuorumNode<E, Q>,
    register: BrokerRegistrationRequest,
) -> Result<(), Q::Error> {
    let broker_id = register.broker_id;
    let registered = node.ask(&ControllerCommand::RegisterBroker(register)).await?;
    let Ok(ControllerResponse::RegisterBroker(registered)) = registered else {
        return Ok(());
    };
    if registered.error_code != ErrorCode::NONE {
        tracing::error!(code = ?registered.error_code, "this broker could not register itself");
        return Ok(());
    }
    let heartbeat = ControllerCommand::BrokerHeartbeat(BrokerHeartbeatRequest {
        broker_id,
        broker_epoch: registered.broker_epoch,
        // Caught up with its own registration, which it was told of by the one who wrote it.
        current_metadata_offset: registered.broker_epoch,
        ..Default::default()
    });
    // It is answered: the node leads, or the registration would not have been.
    let _ = node.ask(&heartbeat).await?;
    Ok(())
}

struct Effects<E: Env> {
    broker: Rc<Broker<E>>,
    publisher: Publisher,
    control: Control,
}

impl<E: Env> NodeEffects for Effects<E> {
    async fn publish(&mut self, image: &Arc<MetadataImage>, changes: &ImageChanges) {
        self.control.know(image);
        self.publisher
            .lost(std::mem::take(&mut *self.control.lost.borrow_mut()));
        for news in std::mem::take(&mut *self.control.homes.borrow_mut()) {
            match news {
                HomeNews::Preferred(name, dir) => self.publisher.homes().prefer(name, dir),
                HomeNews::Moved(log, dir) => self.publisher.homes().moved(log, dir),
            }
        }
        let (done, is_done) = flume::bounded(usize::from(self.broker.router.shards()));
        let mut publication = self.publisher.next(image.clone(), changes, done);
        let Some(mut deletions) = publication.deletions_first() else {
            return self.hand_out(publication, is_done).await;
        };
        let (deleted, is_deleted) = flume::bounded(usize::from(self.broker.router.shards()));
        deletions.done = deleted;
        self.hand_out(deletions, is_deleted).await;
        self.hand_out(publication, is_done).await;
    }

    /// A topic whose partitions cannot be opened is there, and cannot be used: whoever creates it is told.
    fn review(&mut self, response: &mut ControllerResponse) {
        let ControllerResponse::CreateTopics(created) = response else {
            return;
        };
        for topic in created
            .topics
            .iter_mut()
            .filter(|t| t.error_code == ErrorCode::NONE)
        {
            if self.publisher.is_lost(TopicId(topic.topic_id.0)) {
                topic.error_code = ErrorCode::KAFKA_STORAGE_ERROR;
                let message = "The topic was created, but files of its partitions could not be; the broker's log says why.";
                topic.error_message = Some(Str::from_static(message));
            }
        }
    }

    /// A quorum of one has no peers.
    fn send(&mut self, _message: PeerMessage) {}
}

impl<E: Env> Effects<E> {
    async fn publish_first(&mut self, image: &Arc<MetadataImage>) {
        self.control.know(image);
        let (done, is_done) = flume::bounded(usize::from(self.broker.router.shards()));
        let publication = self.publisher.first(image.clone(), done);
        self.hand_out(publication, is_done).await;
        for (log, shard, dir) in self.publisher.interrupted() {
            self.broker.router.tell(shard, NodeMessage::Move(log, dir, None));
        }
    }

    async fn hand_out(&mut self, publication: Publication, is_done: flume::Receiver<Opened>) {
        let shards = self.broker.router.shards();
        for shard in 0..shards {
            self.broker
                .router
                .tell(ShardId(shard), NodeMessage::Publish(publication.clone()));
        }
        drop(publication);
        for _ in 0..shards {
            let Ok(opened) = is_done.recv_async().await else {
                return;
            };
            let failed = self.publisher.lost(opened.failed);
            self.control
                .lost(self.broker.settings.node_id, failed.into_iter().collect());
        }
    }
}

fn registration<E: Env>(
    broker: &Broker<E>,
    identity: &Identity,
    log_dirs: Vec<Uuid>,
    previous_broker_epoch: i64,
) -> BrokerRegistrationRequest {
    let settings = &broker.settings;
    let listener = |l: &ListenerSettings| Listener {
        name: Str::from(l.name.clone()),
        host: Str::from(l.advertised.0.clone()),
        port: l.advertised.1,
        security_protocol: PLAINTEXT,
    };
    let feature = |f: &crate::features::Feature| Feature {
        name: Str::from(f.name),
        min_supported_version: f.min,
        max_supported_version: f.max,
    };
    BrokerRegistrationRequest {
        broker_id: settings.node_id.0,
        cluster_id: Str::from(identity.cluster_id.clone()),
        incarnation_id: random_uuid(&mut || broker.env.random()),
        listeners: settings.listeners.iter().map(listener).collect(),
        features: crate::features::FEATURES.iter().map(feature).collect(),
        rack: settings.rack.clone().map(Str::from),
        log_dirs,
        previous_broker_epoch,
        ..Default::default()
    }
}
