//! The controller as this node runs it: commands go to its shard in order, each decision's records are made durable by the
//! metadata log, applied to the image, published to every shard; then the command is answered. On shard 0 only.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use protocol::messages::broker_heartbeat::BrokerHeartbeatRequest;
use protocol::messages::broker_registration::{
    BrokerRegistrationRequest, BrokerRegistrationRequestFeature as Feature,
    BrokerRegistrationRequestListener as Listener,
};
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::{Str, Uuid};
use shard::controller::{Context, ControllerCommand, ControllerResponse, decide, initial_records};
use shard::env::Env;
use shard::ids::ShardId;
use shard::image::{ImageChanges, ImageDelta, ImagePosition, MetadataImage};
use shard::notify::Notify;

use crate::node::{Broker, NodeMessage};
use crate::publish::Publisher;

/// Commands that wait for the controller; one more is dropped, and its client is told to come again.
pub const COMMANDS_MAX: usize = 10_000;

/// Where a command's answer goes; dropped without one when the controller stops or has too much to do.
pub type CommandReply = flume::Sender<ControllerResponse>;

/// The shard that runs the controller.
pub const CONTROLLER_SHARD: ShardId = ShardId(0);

/// Kafka's number of the security protocol PLAINTEXT.
const PLAINTEXT: i16 = 0;

/// The way to the controller from the inbox of its shard; on other shards nothing is behind it.
#[derive(Clone, Default)]
pub struct Control(Rc<Queue>);

#[derive(Default)]
struct Queue {
    commands: RefCell<VecDeque<(ControllerCommand, Option<CommandReply>)>>,
    /// Topics that are being created because clients named them.
    automatic: RefCell<BTreeSet<String>>,
    changed: Notify,
}

impl Control {
    /// A command of some shard of this node.
    pub fn command(&self, command: ControllerCommand, reply: CommandReply) {
        self.push(command, Some(reply));
    }

    /// Topics that clients named and that do not exist (MD-4): created with the broker's defaults.
    pub fn create_automatically(&self, names: Vec<String>) {
        for name in names {
            if !self.0.automatic.borrow_mut().insert(name.clone()) {
                continue;
            }
            let topic = CreatableTopic {
                name: Str::from(name),
                num_partitions: -1,
                replication_factor: -1,
                ..Default::default()
            };
            let request = CreateTopicsRequest {
                topics: vec![topic],
                timeout_ms: 30_000,
                ..Default::default()
            };
            self.push(
                ControllerCommand::CreateTopics {
                    request,
                    undescribable: Vec::new(),
                },
                None,
            );
        }
    }

    fn push(&self, command: ControllerCommand, reply: Option<CommandReply>) {
        let mut commands = self.0.commands.borrow_mut();
        if commands.len() < COMMANDS_MAX {
            commands.push_back((command, reply));
        }
        drop(commands);
        self.0.changed.notify();
    }

    async fn next(&self) -> (ControllerCommand, Option<CommandReply>) {
        self.0
            .changed
            .until(|| self.0.commands.borrow_mut().pop_front())
            .await
    }
}

/// Starts the controller on its shard.
pub fn start<E: Env>(broker: &Rc<Broker<E>>) -> Control {
    let control = Control::default();
    if broker.router.shard() == CONTROLLER_SHARD {
        let task = Task {
            publisher: Publisher::new(broker.settings.node_id, broker.router.shards()),
            image: Arc::new(MetadataImage::empty(&Uuid(random_bytes(&broker.env)).to_string())),
            broker: broker.clone(),
            control: control.clone(),
        };
        broker.env.spawn(task.run());
    }
    control
}

struct Task<E: Env> {
    broker: Rc<Broker<E>>,
    control: Control,
    publisher: Publisher,
    image: Arc<MetadataImage>,
}

impl<E: Env> Task<E> {
    async fn run(mut self) {
        let fixed = self.broker.settings.fixed.clone();
        let records = initial_records(&self.image.configs.layers(self.broker.settings.node_id, &fixed));
        self.commit(&records).await;
        let register = ControllerCommand::RegisterBroker(self.registration());
        if let ControllerResponse::RegisterBroker(registered) = self.decide(&register).await {
            let heartbeat = BrokerHeartbeatRequest {
                broker_id: self.broker.settings.node_id.0,
                broker_epoch: registered.broker_epoch,
                current_metadata_offset: i64::try_from(self.image.position.index).unwrap_or(i64::MAX),
                ..Default::default()
            };
            self.decide(&ControllerCommand::BrokerHeartbeat(heartbeat)).await;
        }
        loop {
            let (command, reply) = self.control.next().await;
            let response = self.decide(&command).await;
            if let ControllerCommand::CreateTopics { request, .. } = &command {
                let mut automatic = self.control.0.automatic.borrow_mut();
                request.topics.iter().for_each(|t| {
                    automatic.remove(t.name.as_str());
                });
            }
            if let Some(reply) = reply {
                // Nobody waits when the client has left.
                let _ = reply.send(response);
            }
        }
    }

    async fn decide(&mut self, command: &ControllerCommand) -> ControllerResponse {
        let broker = self.broker.clone();
        let decision = decide(
            &mut Context {
                image: &self.image,
                node: broker.settings.node_id,
                fixed: &broker.settings.fixed,
                next_index: self.image.position.index + 1,
                random: &mut || broker.env.random(),
            },
            command,
        );
        if !decision.records.is_empty() {
            self.commit(&decision.records).await;
        }
        decision.response
    }

    /// Applies records and waits until every shard serves by them.
    async fn commit(&mut self, records: &[shard::controller::MetadataRecord]) {
        let mut delta = ImageDelta::new(&self.image);
        delta
            .apply_all(records)
            .expect("a decision's records fit the image it was made on");
        let position = ImagePosition {
            index: self.image.position.index + 1,
            term: 1,
        };
        let (image, changes) = delta.finish(position);
        self.image = Arc::new(image);
        self.publish(&changes).await;
    }

    async fn publish(&mut self, changes: &ImageChanges) {
        let shards = self.broker.router.shards();
        let (done, is_done) = flume::bounded(usize::from(shards));
        let publication = self.publisher.next(self.image.clone(), changes, done);
        for shard in 0..shards {
            self.broker
                .router
                .tell(ShardId(shard), NodeMessage::Publish(publication.clone()));
        }
        drop(publication);
        for _ in 0..shards {
            if is_done.recv_async().await.is_err() {
                return;
            }
        }
    }

    fn registration(&self) -> BrokerRegistrationRequest {
        let settings = &self.broker.settings;
        let listener = |l: &crate::config::settings::ListenerSettings| Listener {
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
            cluster_id: Str::from(self.image.cluster_id.to_string()),
            incarnation_id: Uuid(random_bytes(&self.broker.env)),
            listeners: settings.listeners.iter().map(listener).collect(),
            features: crate::features::FEATURES.iter().map(feature).collect(),
            rack: settings.rack.clone().map(Str::from),
            log_dirs: vec![Uuid(random_bytes(&self.broker.env))],
            previous_broker_epoch: -1,
            ..Default::default()
        }
    }
}

fn random_bytes(env: &impl Env) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&env.random().to_be_bytes());
    bytes[8..].copy_from_slice(&env.random().to_be_bytes());
    bytes
}
