//! A node with its metadata log on a simulated disk: everything that was answered is there after a crash at any write, as it
//! was; nothing is given twice; a stop and a start change nothing.

mod metadata;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use metadata::cluster::registration;
use protocol::messages::allocate_producer_ids::AllocateProducerIdsRequest;
use protocol::messages::broker_heartbeat::BrokerHeartbeatRequest;
use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use protocol::messages::delete_topics::DeleteTopicsRequest;
use protocol::{ErrorCode, Str, Uuid};
use shard::config::Overrides;
use shard::controller::{ControllerCommand, ControllerResponse};
use shard::env::{Env, Instant, WallMs};
use shard::ids::BrokerId;
use shard::image::{ImageChanges, MetadataImage};
use shard::quorum::identity::{Identity, IdentityError, load_or_format};
use shard::quorum::node::{CommandQueue, CommandRefused, NodeEffects, NodeOptions, QuorumNode};
use shard::quorum::{PeerMessage, QuorumOptions, StoreLog, StoreLogError, Voter};
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::journal::JournalOptions;
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::sim_executor::{SimExecutor, SimHandle};
use storage::store::{Store, StoreOptions};
use storage::types::{LogId, TopicId};

const NODE: BrokerId = BrokerId(1);

fn dir() -> &'static Path {
    Path::new("/data")
}

#[derive(Clone)]
struct SimEnv {
    handle: SimHandle,
    random: Rc<Cell<u64>>,
}

impl Env for SimEnv {
    fn now(&self) -> Instant {
        Instant(self.handle.now_ns())
    }

    fn wall(&self) -> WallMs {
        WallMs(1_700_000_000_000 + i64::try_from(self.handle.now_ns() / 1_000_000).expect("small"))
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        drop(self.handle.spawn(task));
    }

    async fn sleep(&self, duration: Duration) {
        self.handle.sleep(duration).await;
    }

    async fn yield_to_reactor(&self) {
        self.handle.yield_now().await;
    }

    fn random(&self) -> u64 {
        let state = self.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

/// What the world saw of a cluster through all its crashes.
#[derive(Default)]
struct Witness {
    /// Published images by position.
    published: RefCell<BTreeMap<u64, Arc<MetadataImage>>>,
    producer_ids: RefCell<BTreeSet<i64>>,
    answered: Cell<usize>,
}

struct Effects(Rc<Witness>, SimEnv);

impl NodeEffects for Effects {
    async fn publish(&mut self, image: &Arc<MetadataImage>, changes: &ImageChanges) {
        assert!(!changes.is_empty());
        self.1.sleep(Duration::from_micros(30)).await; // shards take their time
        self.0
            .published
            .borrow_mut()
            .insert(image.position.index, Arc::clone(image));
    }

    fn send(&mut self, message: PeerMessage) {
        panic!("a quorum of one has nobody to talk to: {message:?}");
    }
}

type Node = QuorumNode<SimEnv, StoreLog<SimEnv, SimDisk>>;

struct Started {
    node: Node,
    store: Rc<Store<SimDisk>>,
    identity: Identity,
}

async fn start(env: &SimEnv, disk: &SimDisk, snapshot_log_bytes: usize) -> Started {
    start_with_segments(env, disk, snapshot_log_bytes, 8 << 10).await
}

async fn start_with_segments(
    env: &SimEnv,
    disk: &SimDisk,
    snapshot_log_bytes: usize,
    segment_bytes: u32,
) -> Started {
    disk.create_dir(dir()).await.expect("create");
    disk.sync_dir(Path::new("/")).await.expect("sync");
    recover_journals(disk, dir(), |_, _| {}).await.expect("recovery");
    let identity = load_or_format(disk, dir(), NODE, None, &mut || env.random())
        .await
        .expect("identity");
    let options = StoreOptions {
        cache_bytes: 64 << 10,
        journal: JournalOptions {
            file_bytes: 256 << 10,
            files_max: 3,
        },
        ..StoreOptions::default()
    };
    let store = Store::open(disk.clone(), dir(), 0, options).await.expect("store");
    let (committer, keeper) = (Rc::clone(&store), Rc::clone(&store));
    env.spawn(async move { while committer.commit().await.is_ok() {} });
    env.spawn(async move { while keeper.housekeeping().await.is_ok() {} });
    let config = LogConfig {
        segment_bytes,
        ..LogConfig::default()
    };
    let log = StoreLog::open(env.clone(), disk.clone(), Rc::clone(&store), dir(), config)
        .await
        .expect("log");
    let node_options = NodeOptions {
        quorum: QuorumOptions::new(NODE, env.random()),
        cluster_id: identity.cluster_id.clone(),
        fixed: Arc::new(Overrides::new()),
        voter: Voter {
            directory: identity.directory,
            endpoints: Vec::new(),
        },
        snapshot_log_bytes,
    };
    let mut node = QuorumNode::open(env.clone(), log, node_options)
        .await
        .expect("node");
    node.settle().await.expect("a quorum of one settles");
    Started {
        node,
        store,
        identity,
    }
}

/// Gives the controller a command and waits for the answer.
async fn ask(queue: &CommandQueue, command: ControllerCommand) -> Result<ControllerResponse, CommandRefused> {
    let (tx, rx) = flume::bounded(1);
    queue.push(
        command,
        Box::new(move |answer| tx.send(answer).expect("somebody waits")),
    );
    rx.recv_async().await.expect("every command is answered")
}

fn create(name: String, partitions: i32) -> ControllerCommand {
    ControllerCommand::CreateTopics {
        request: CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::from(name),
                num_partitions: partitions,
                replication_factor: 1,
                ..CreatableTopic::default()
            }],
            ..CreateTopicsRequest::default()
        },
        undescribable: Vec::new(),
    }
}

/// The node registers itself and may serve.
async fn register(node: &mut Node, env: &SimEnv) -> Result<i64, StoreLogError> {
    let mut request = registration(NODE.0, "", u128::from(env.random()), -1);
    request.cluster_id = Str::from(node.image().cluster_id.to_string());
    let answer = node.ask(&ControllerCommand::RegisterBroker(request)).await?;
    let Ok(ControllerResponse::RegisterBroker(registered)) = answer else {
        panic!("a registration is answered by one: {answer:?}")
    };
    assert_eq!(registered.error_code, ErrorCode::NONE);
    let heartbeat = BrokerHeartbeatRequest {
        broker_id: NODE.0,
        broker_epoch: registered.broker_epoch,
        current_metadata_offset: i64::MAX,
        ..BrokerHeartbeatRequest::default()
    };
    node.ask(&ControllerCommand::BrokerHeartbeat(heartbeat))
        .await?
        .expect("it leads");
    assert!(node.image().brokers.unfenced().any(|broker| broker.id == NODE));
    Ok(registered.broker_epoch)
}

/// Several clients, each asking for one thing after the other.
async fn clients(queue: CommandQueue, env: SimEnv, witness: Rc<Witness>, epoch: i64, round: usize) {
    for client in 0..3 {
        let (queue, env, witness) = (queue.clone(), env.clone(), Rc::clone(&witness));
        env.clone().spawn(async move {
            for step in 0.. {
                let name = format!("t-{round}-{client}-{}", step % 4);
                let answer = match (step + client) % 4 {
                    0 | 1 => ask(&queue, create(name, step % 5 + 1)).await,
                    2 => {
                        let request = AllocateProducerIdsRequest {
                            broker_id: NODE.0,
                            broker_epoch: epoch,
                        };
                        ask(&queue, ControllerCommand::AllocateProducerIds(request)).await
                    }
                    _ => {
                        let request = DeleteTopicsRequest {
                            topic_names: vec![Str::from(name)],
                            ..DeleteTopicsRequest::default()
                        };
                        ask(&queue, ControllerCommand::DeleteTopics { request, version: 5 }).await
                    }
                };
                let Ok(answer) = answer else { return };
                check_answer(&answer, &witness);
                env.sleep(Duration::from_micros(env.random() % 400)).await;
            }
        });
    }
}

/// What is answered is published.
fn check_answer(answer: &ControllerResponse, witness: &Witness) {
    witness.answered.set(witness.answered.get() + 1);
    let published = witness.published.borrow();
    let (_, image) = published.last_key_value().expect("something is published");
    match answer {
        ControllerResponse::CreateTopics(response) => {
            let topic = &response.topics[0];
            if topic.error_code == ErrorCode::NONE {
                let known = published.values().any(|image| {
                    let topics = &image.topics;
                    topics
                        .by_name(&topic.name)
                        .is_some_and(|found| found.id.0 == topic.topic_id.0)
                });
                assert!(known, "{} is answered before it is there", &*topic.name);
            }
        }
        ControllerResponse::AllocateProducerIds(response) => {
            assert_eq!(response.error_code, ErrorCode::NONE);
            let is_new = witness
                .producer_ids
                .borrow_mut()
                .insert(response.producer_id_start);
            assert!(
                is_new,
                "producer ids from {} are given twice",
                response.producer_id_start
            );
            assert!(image.next_producer_id.0 > response.producer_id_start);
        }
        _ => {}
    }
}

/// What a node finds at its start is what was published, or more.
fn check_recovered(image: &MetadataImage, witness: &Witness, what: &str) {
    let published = witness.published.borrow();
    if let Some((last, _)) = published.last_key_value() {
        assert!(
            image.position.index >= *last,
            "{what}: entry {last} was published and is gone"
        );
    }
    // The entries since then are a leader's first, a new registration, or what was never answered.
    if let Some((index, known)) = published.range(..=image.position.index).next_back()
        && *index == image.position.index
    {
        assert_eq!(**known, *image, "{what}");
    }
    if let Some((_, known)) = published.last_key_value() {
        for topic in known.topics.iter() {
            let found = image.topics.by_id(topic.id);
            assert!(found.is_none_or(
                |found| found.name == topic.name && found.partitions.len() == topic.partitions.len()
            ));
        }
        assert!(image.next_producer_id >= known.next_producer_id);
        assert_eq!(image.features, known.features);
        assert_eq!(image.cluster_id, known.cluster_id);
    }
}

/// After an unclean end a new leader epoch has begun in every partition (DESIGN §6).
fn check_epochs(image: &MetadataImage, witness: &Witness) {
    let published = witness.published.borrow();
    let Some((_, known)) = published.last_key_value() else {
        return;
    };
    for topic in image.topics.iter() {
        for (index, partition) in topic.indexed() {
            if let Some(before) = known.topics.partition(topic.id, index) {
                assert!(partition.leader_epoch > before.leader_epoch);
            }
        }
    }
}

/// One life of the node: it starts, serves until the disk crashes, and is gone.
async fn life(env: &SimEnv, disk: &SimDisk, witness: &Rc<Witness>, round: usize) {
    let Started { mut node, .. } = start(env, disk, 3_000).await;
    check_recovered(node.image(), witness, &format!("round {round}"));
    let Ok(epoch) = register(&mut node, env).await else {
        return;
    };
    check_epochs(node.image(), witness);
    let first = Arc::clone(node.image());
    witness.published.borrow_mut().insert(first.position.index, first);
    let queue = CommandQueue::new();
    let mut effects = Effects(Rc::clone(witness), env.clone());
    clients(queue.clone(), env.clone(), Rc::clone(witness), epoch, round).await;
    let failed = node.run(&queue, &mut effects).await;
    assert!(failed.is_err(), "nobody stopped it");
}

#[test]
fn what_was_answered_is_there_after_a_crash_at_any_write() {
    let mut answered = 0;
    let mut snapshots = 0;
    for seed in 0..40u64 {
        let executor = SimExecutor::new(seed);
        let mut handle = executor.handle();
        let mut disk = SimDisk::new(&handle, SimDiskConfig::seeded(seed));
        let witness = Rc::new(Witness::default());
        let random = Rc::new(Cell::new(seed));
        for round in 0..5 {
            let env = SimEnv {
                handle: handle.clone(),
                random: Rc::clone(&random),
            };
            let writes = env.random() % 250 + if round == 0 { 60 } else { 1 };
            disk.crash_after(writes);
            executor.block_on(async {
                let crashed = disk.crashed();
                futures_lite::future::or(life(&env, &disk, &witness, round), crashed).await;
            });
            let is_power_loss = env.random().is_multiple_of(2);
            executor.kill(&handle);
            handle = executor.new_process();
            disk = if is_power_loss {
                disk.restart(&handle)
            } else {
                disk.restart_after_kill(&handle)
            };
        }
        let env = SimEnv { handle, random };
        executor.block_on(async {
            let Started { node, store, .. } = start(&env, &disk, 3_000).await;
            check_recovered(node.image(), &witness, &format!("seed {seed}, at last"));
            let id = LogId {
                topic: TopicId(Uuid::ONE.0),
                partition: 0,
            };
            let log = store.find_log(id).expect("the metadata log");
            let size = store.size(log).expect("it is open");
            // Segments below the older snapshot are gone; within a segment the start is only remembered while it runs.
            assert!(
                size.segments <= 3,
                "seed {seed}: {} segments are kept",
                size.segments
            );
        });
        answered += witness.answered.get();
        snapshots += disk
            .paths()
            .iter()
            .filter(|path| path.extension().is_some_and(|e| e == "checkpoint"))
            .count();
    }
    assert!(
        answered > 1_000,
        "only {answered} answers: too quiet to show anything"
    );
    assert!(snapshots > 60, "only {snapshots} snapshots");
}

#[test]
fn a_stop_answers_what_waits_and_a_start_finds_everything() {
    let executor = SimExecutor::new(5);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(5));
    let random = Rc::new(Cell::new(5));
    let env = SimEnv {
        handle: handle.clone(),
        random: Rc::clone(&random),
    };
    let (first_identity, image) = executor.block_on(async {
        let Started {
            mut node,
            store,
            identity,
        } = start(&env, &disk, 1 << 20).await;
        assert!(identity.is_new);
        assert_eq!(node.image().feature("metadata.version"), 30);
        register(&mut node, &env).await.expect("registered");
        let queue = CommandQueue::new();
        let mut effects = Effects(Rc::default(), env.clone());
        let asking = {
            let queue = queue.clone();
            handle.spawn(async move {
                let answers: Vec<_> = (0..50)
                    .map(|n| ask(&queue, create(format!("topic-{n}"), 3)))
                    .collect();
                for answer in answers {
                    answer.await.expect("answered");
                }
                queue.stop();
                assert_eq!(
                    ask(&queue, create("late".into(), 1)).await,
                    Err(CommandRefused::Overloaded)
                );
            })
        };
        node.run(&queue, &mut effects)
            .await
            .expect("it ends when it is stopped");
        asking.await;
        assert_eq!(node.image().topics.partition_count(), 150);
        let image = Arc::clone(node.image());
        drop(node);
        store.close().await.expect("clean stop");
        (identity, image)
    });
    executor.kill(&handle);
    let handle = executor.new_process();
    let disk = disk.restart(&handle);
    let env = SimEnv { handle, random };
    executor.block_on(async {
        let Started { node, identity, .. } = start(&env, &disk, 1 << 20).await;
        assert_eq!(
            (identity.cluster_id, identity.directory),
            (first_identity.cluster_id, first_identity.directory)
        );
        assert!(!identity.is_new);
        let mut found = (**node.image()).clone();
        assert!(found.position > image.position, "a new leader has a first entry");
        found.position = image.position;
        assert_eq!(found, *image);
        assert_eq!(node.driver().term(), 2);
    });
}

/// An unclean start begins a new leader epoch in every partition, and one log entry holds 10,000 records: it takes several. The log
/// that follows is read ahead in pieces, whose joints lie in the middle of these large batches.
#[test]
fn a_broker_with_more_partitions_than_an_entry_holds_comes_back_after_every_kill() {
    let executor = SimExecutor::new(11);
    let mut handle = executor.handle();
    let mut disk = SimDisk::new(&handle, SimDiskConfig::seeded(11));
    let random = Rc::new(Cell::new(11));
    let mut epochs = Vec::new();
    for round in 0..4 {
        let env = SimEnv {
            handle: handle.clone(),
            random: Rc::clone(&random),
        };
        let epoch = executor.block_on(async {
            let Started { mut node, .. } = start_with_segments(&env, &disk, 64 << 20, 64 << 20).await;
            register(&mut node, &env).await.expect("registered");
            if round == 0 {
                for topic in 0..3 {
                    let created = node
                        .ask(&create(format!("many-{topic}"), 7_000))
                        .await
                        .expect("written");
                    assert!(matches!(created, Ok(ControllerResponse::CreateTopics(_))));
                }
            }
            let image = node.image();
            assert_eq!(image.topics.partition_count(), 21_000);
            let mut partitions = image.topics.iter().flat_map(|topic| &topic.partitions);
            let first = partitions.next().expect("a partition").leader_epoch;
            assert!(
                partitions.all(|partition| partition.leader_epoch == first && partition.leader == Some(NODE))
            );
            first
        });
        epochs.push(epoch);
        executor.kill(&handle);
        handle = executor.new_process();
        disk = disk.restart_after_kill(&handle);
    }
    assert!(epochs.is_sorted_by(|before, after| before < after), "{epochs:?}");
}

#[test]
fn another_nodes_directory_and_damaged_metadata_are_refused() {
    let executor = SimExecutor::new(9);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(9));
    let env = SimEnv {
        handle: handle.clone(),
        random: Rc::new(Cell::new(9)),
    };
    executor.block_on(async {
        let Started {
            store,
            node,
            identity,
        } = start(&env, &disk, 1 << 20).await;
        drop(node);
        store.close().await.expect("clean stop");
        let error = load_or_format(&disk, dir(), BrokerId(2), None, &mut || 0)
            .await
            .expect_err("it is node 1's");
        assert!(
            matches!(error, IdentityError::OtherNode { found: 1, .. }),
            "{error}"
        );

        let checkpoints = disk.paths();
        let checkpoint = checkpoints
            .iter()
            .find(|path| path.extension().is_some_and(|e| e == "checkpoint"));
        disk.flip_bits(checkpoint.expect("the snapshot of the formatting"), 70, 1)
            .expect("flipped");
        recover_journals(&disk, dir(), |_, _| {}).await.expect("recovery");
        let store = Store::open(disk.clone(), dir(), 1, StoreOptions::default())
            .await
            .expect("store");
        let log = StoreLog::open(env.clone(), disk.clone(), store, dir(), LogConfig::default())
            .await
            .expect("log");
        let options = NodeOptions {
            quorum: QuorumOptions::new(NODE, 1),
            cluster_id: identity.cluster_id,
            fixed: Arc::default(),
            voter: Voter::default(),
            snapshot_log_bytes: 1 << 20,
        };
        let refused = QuorumNode::open(env.clone(), log, options)
            .await
            .map(|_| ())
            .expect_err("no snapshot");
        assert!(matches!(refused, StoreLogError::NoSnapshot { .. }), "{refused}");
    });
}

/// A broker with more partitions than an entry has records comes and goes like any other: it was a panic at every start after a
/// kill (status 70).
#[test]
fn what_follows_for_many_partitions_takes_several_entries() {
    const PARTITIONS: usize = 2 * 6_000;
    let executor = SimExecutor::new(11);
    let handle = executor.handle();
    let disk = SimDisk::new(&handle, SimDiskConfig::seeded(11));
    let random = Rc::new(Cell::new(11));
    let env = SimEnv {
        handle: handle.clone(),
        random: Rc::clone(&random),
    };
    let leaders = |image: &MetadataImage| -> BTreeSet<(Option<BrokerId>, i32)> {
        let all = image.topics.iter().flat_map(|topic| topic.indexed());
        all.map(|(_, p)| (p.leader, p.leader_epoch.0)).collect()
    };
    executor.block_on(async {
        let Started { mut node, .. } = start_with_segments(&env, &disk, 64 << 20, 64 << 20).await;
        register(&mut node, &env).await.expect("registered");
        for n in 0..2 {
            let answer = node
                .ask(&create(format!("topic-{n}"), 6_000))
                .await
                .expect("a log");
            assert!(answer.is_ok(), "{answer:?}");
        }
        assert_eq!(node.image().topics.partition_count(), PARTITIONS);
        assert_eq!(leaders(node.image()), [(Some(NODE), 0)].into());
        // Its directory fails: nobody leads them. It is answered when all of it is so.
        let all = node.image().topics.iter().flat_map(|topic| {
            let topic_id = topic.id;
            topic.indexed().map(move |(partition, _)| LogId {
                topic: topic_id,
                partition,
            })
        });
        let lost = ControllerCommand::LogsOffline(NODE, all.collect());
        let before = node.image().position.index;
        node.ask(&lost).await.expect("a log").expect("it leads");
        assert_eq!(node.image().position.index, before + 2, "two entries");
        assert_eq!(leaders(node.image()), [(None, 1)].into());
    });
    executor.kill(&handle);
    let handle = executor.new_process();
    let disk = disk.restart(&handle);
    let env = SimEnv { handle, random };
    executor.block_on(async {
        let Started { mut node, .. } = start_with_segments(&env, &disk, 64 << 20, 64 << 20).await;
        register(&mut node, &env).await.expect("registered");
        assert_eq!(leaders(node.image()), [(Some(NODE), 2)].into());
        // Another start after another kill: a new epoch for every one.
        register(&mut node, &env).await.expect("registered");
        assert_eq!(leaders(node.image()), [(Some(NODE), 3)].into());
    });
}
