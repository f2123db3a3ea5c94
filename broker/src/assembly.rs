//! One shard put together, on whatever executor and disk it runs: its stores are opened ([`crate::stores`]), its owner and
//! its requests start, connections are served until the broker stops. `startup/` does this on
//! glommio and direct I/O, the simulator on virtual time and a simulated disk.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use shard::budget::{Budget, BudgetLimits};
use shard::cleaner::{self, CleanerSettings};
use shard::config::BrokerLayers;
use shard::coordinator::driver::GroupDriver;
use shard::driver::OwnerDriver;
use shard::env::Env;
use shard::ids::{LogDir, ShardId};
use shard::image::MetadataImage;
use shard::moves::{MoveEnd, Moves};
use shard::net::ByteStream;
use shard::owner::{Dirs, LogsIo, Owner};
use shard::placement::Placement;
use shard::quorum::{StoreLog, StoreLogError};
use shard::retention::Retention;
use shard::router::{Router, ShardMessage};
use shard::runtime::mailbox::Mailbox;
use shard::scrub::scrub;
use storage::checkpoint::clean_shutdown;
use storage::disk::{Disk, DiskError};
use storage::error::StorageError;
use storage::layout::CLEAN_SHUTDOWN_FILE;
use storage::log::config::LogConfig;
use storage::notify::Notify;
use storage::types::LogId;

use crate::api::fetch_sessions;
use crate::config::groups::group_settings;
use crate::config::settings::Settings;
use crate::control::{self, Control, ControlSeed};
use crate::exit::{Failure, Status};
use crate::listener::connection::{ConnectionInfo, serve};
use crate::log_dirs::{LogDirs, METADATA_DIR};
use crate::node::{Broker, NodeMessage};
use crate::observe;
use crate::publish::{self, Publication};
use crate::request::CloseReason;
use crate::stores::{self, Disks, Stores, find_homes, identify};
use crate::view::View;

/// How long a stopping shard waits for its connections.
const CONNECTIONS_END_MAX: Duration = Duration::from_secs(4);

/// Bytes a second that all shards together copy between log directories, set while the broker runs.
const MOVE_RATE: &str = "replica.alter.log.dirs.io.max.bytes.per.second";

/// Keeps every shard's partitions in service until no shard has connections any more: their requests may be for any.
#[derive(Debug)]
pub struct LastCall {
    still_serving: flume::Sender<()>,
    nobody_serves: flume::Receiver<()>,
    closing: Closing,
}

/// Tells the shard that marks a clean stop how the others closed.
#[derive(Debug)]
pub struct Closing {
    closed: flume::Sender<()>,
    others_closed: flume::Receiver<()>,
    others: u16,
}

/// One for each shard of a node.
#[must_use]
pub fn last_calls(shards: u16) -> Vec<LastCall> {
    let (still_serving, nobody_serves) = flume::bounded(1);
    let (closed, others_closed) = flume::bounded(usize::from(shards));
    (0..shards)
        .map(|_| LastCall {
            still_serving: still_serving.clone(),
            nobody_serves: nobody_serves.clone(),
            closing: Closing {
                closed: closed.clone(),
                others_closed: others_closed.clone(),
                others: shards - 1,
            },
        })
        .collect()
}

impl LastCall {
    /// This shard has no connections any more; ends when none has.
    pub async fn wait(self) -> Closing {
        drop(self.still_serving);
        // Nothing is ever sent: the wait ends when the last sender is gone.
        let _ = self.nobody_serves.recv_async().await;
        self.closing
    }
}

impl Closing {
    /// All that this shard holds is durable.
    fn well(self) {
        let _ = self.closed.send(());
    }

    /// Whether every other shard has closed well; ends when all have, or one has ended otherwise.
    async fn others_well(self) -> bool {
        drop(self.closed);
        for _ in 0..self.others {
            if self.others_closed.recv_async().await.is_err() {
                return false;
            }
        }
        true
    }
}

/// One shard that runs.
pub struct Shard<E: Env, L: LogsIo> {
    /// What its requests work with.
    pub broker: Rc<Broker<E>>,
    /// The tasks around its partitions.
    pub driver: OwnerDriver<E, L, NodeMessage>,
    /// The way to the controller; [`start_controller`] has it served, on its shard only.
    pub control: Control,
    /// What moves its partitions between log directories.
    pub moves: Moves<E, L, NodeMessage>,
}

/// Starts the tasks of a shard whose partitions lie in `logs`. It serves when [`Broker::has_metadata`] ends. `on_failure` is
/// told when a log directory has failed without which the node cannot go on.
pub fn start<E: Env, L: LogsIo>(
    env: &E,
    mailbox: Mailbox<ShardMessage<NodeMessage>>,
    settings: Arc<Settings>,
    log_dirs: LogDirs,
    memory: BudgetLimits,
    logs: &Dirs<L>,
    on_failure: impl Fn(StorageError) + 'static,
) -> Shard<E, L> {
    let (outbox, inbox) = mailbox.open(env);
    let router = Router::new(outbox);
    let nothing = view_of_nothing(&settings, router.shards());
    let owner = Owner::new(settings.node_id, logs.clone());
    let budget = Budget::new(memory);
    let broker = Rc::new(Broker::new(
        env.clone(),
        router.clone(),
        settings,
        log_dirs,
        budget,
        nothing,
    ));
    let groups = GroupDriver::new(
        env.clone(),
        router.clone(),
        group_settings(&BrokerLayers::of_file(&broker.settings.fixed)),
        broker.budget.clone(),
    );
    groups.start();
    let linger = broker.settings.commit_linger;
    let driver = OwnerDriver::new(env.clone(), owner, logs.clone(), router, linger);
    let measured = broker.metrics.clone();
    let (failed, coordinators) = (broker.clone(), groups.clone());
    driver.start(
        move |took| measured.committed(took),
        move |dir, error, offline| {
            for log in &offline {
                coordinators.resign(*log);
            }
            dir_failed(&failed, dir, error, offline, &on_failure);
        },
    );
    for (dir, ..) in broker.log_dirs.iter().filter(|(.., is_online)| !is_online) {
        fail_everywhere(&broker, dir); // another shard may have it open
    }
    let retention = start_background(env, &broker, &driver, logs);

    let moves = start_moves(&broker, &driver, &groups, logs);

    let (publications, to_follow) = flume::unbounded();
    env.spawn(publish::follow(
        broker.clone(),
        driver.clone(),
        groups.clone(),
        logs.clone(),
        moves.clone(),
        to_follow,
    ));
    let control = Control::default();
    let desk = Desk {
        broker: broker.clone(),
        driver: driver.clone(),
        groups: groups.clone(),
        logs: logs.clone(),
        retention,
        moves: moves.clone(),
        control: control.clone(),
        publications,
    };
    let inbox_of = driver.clone();
    env.spawn(async move {
        inbox_of
            .serve_inbox(inbox, &groups, move |message| desk.deliver(message))
            .await;
    });
    Shard {
        broker,
        driver,
        control,
        moves,
    }
}

/// What a shard knows before the first publication.
fn view_of_nothing(settings: &Settings, shards: u16) -> View {
    View::new(
        Arc::new(MetadataImage::empty("")),
        Arc::new(Placement::new(shards)),
        settings.node_id,
        Arc::clone(&settings.fixed),
    )
}

/// Starts what goes on beside the requests: idle producers are forgotten, segments are read again, old ones removed.
fn start_background<E: Env, L: LogsIo>(
    env: &E,
    broker: &Rc<Broker<E>>,
    driver: &OwnerDriver<E, L, NodeMessage>,
    logs: &Dirs<L>,
) -> Retention<E, L, NodeMessage> {
    let settings = &broker.settings;
    let interval = settings.producer_check_interval;
    env.spawn_background(driver.clone().forget_idle_producers(interval));
    if settings.scrub_bytes_per_second > 0 {
        for (_, logs) in logs.iter() {
            env.spawn_background(scrub(env.clone(), logs.clone()));
        }
    }
    let retention = Retention::new(env.clone(), driver.clone(), logs.clone(), settings.retention);
    env.spawn_background(retention.clone().run());
    start_cleaners(env, broker, logs);
    retention
}

/// Each directory of each shard has a cleaner of its own, with its part of what the broker's may use.
fn start_cleaners<E: Env, L: LogsIo>(env: &E, broker: &Rc<Broker<E>>, logs: &Dirs<L>) {
    let cleaners = logs.iter().count();
    for (_, logs) in logs.iter() {
        let configured = broker.clone();
        let settings = move || {
            let (view, settings) = (configured.view(), &configured.settings);
            let layers = view.image.configs.layers(settings.node_id, &settings.fixed);
            CleanerSettings::resolve(&layers, usize::from(configured.router.shards()) * cleaners)
        };
        let budget = broker.budget.clone();
        env.spawn_background(cleaner::run(
            env.clone(),
            logs.clone(),
            budget,
            cleaners as u64,
            settings,
        ));
    }
}

/// What moves partitions between log directories: of each that has gone the controller's shard is told.
fn start_moves<E: Env, L: LogsIo>(
    broker: &Rc<Broker<E>>,
    driver: &OwnerDriver<E, L, NodeMessage>,
    groups: &GroupDriver<E, NodeMessage>,
    logs: &Dirs<L>,
) -> Moves<E, L, NodeMessage> {
    let (told, coordinators, asked) = (broker.clone(), groups.clone(), broker.clone());
    let rate = move || {
        let shards = i64::from(asked.router.shards());
        let settings = &asked.settings;
        let view = asked.view();
        let layers = view.image.configs.layers(settings.node_id, &settings.fixed);
        let rate = layers.integer(MOVE_RATE, i64::MAX);
        (rate < i64::MAX).then(|| u64::try_from(rate / shards).unwrap_or(0).max(1))
    };
    let on_end = move |log, dir, end| match end {
        MoveEnd::Moved => told
            .router
            .tell(control::CONTROLLER_SHARD, NodeMessage::Moved(log, dir)),
        MoveEnd::Stayed => {}
        MoveEnd::Lost => {
            coordinators.resign(log);
            told.metrics.log_opened(log, false);
            told.lost(vec![log]);
        }
    };
    Moves::new(broker.env.clone(), driver.clone(), logs.clone(), rate, on_end)
}

/// A directory has failed on this shard. Where the node can do without it, only its partitions are offline (Kafka's rule: not
/// without the metadata log's, and not without any).
fn dir_failed<E: Env>(
    broker: &Broker<E>,
    dir: LogDir,
    error: StorageError,
    offline: Vec<LogId>,
    on_failure: &impl Fn(StorageError),
) {
    broker.log_dirs.fail(dir);
    if dir == METADATA_DIR || broker.log_dirs.offline() == broker.log_dirs.len() {
        return on_failure(error);
    }
    broker.metrics.logs_failed(&offline);
    broker.lost(offline);
    fail_everywhere(broker, dir);
}

pub(crate) fn fail_everywhere<E: Env>(broker: &Broker<E>, dir: LogDir) {
    for shard in 0..broker.router.shards() {
        broker.router.tell(ShardId(shard), NodeMessage::DirFailed(dir));
    }
}

/// Where the messages of a shard's inbox go that are not for its partitions.
struct Desk<E: Env, L: LogsIo> {
    broker: Rc<Broker<E>>,
    driver: OwnerDriver<E, L, NodeMessage>,
    groups: GroupDriver<E, NodeMessage>,
    logs: Dirs<L>,
    retention: Retention<E, L, NodeMessage>,
    moves: Moves<E, L, NodeMessage>,
    control: Control,
    publications: flume::Sender<Publication>,
}

impl<E: Env, L: LogsIo> Desk<E, L> {
    fn deliver(&self, message: NodeMessage) {
        match message {
            NodeMessage::Publish(publication) => {
                // Who follows ends with the shard.
                let _ = self.publications.send(publication);
            }
            NodeMessage::AutoCreate(names) => self.control.create_automatically(names),
            NodeMessage::Command(command, reply) => self.control.command(command, reply),
            NodeMessage::Session(step) => fetch_sessions::serve(&self.broker, step),
            NodeMessage::Snapshot(reply) => {
                let done = (self.retention.stats(), self.moves.stats());
                let (broker, driver) = (&self.broker, &self.driver);
                let snapshot = observe::shard::snapshot(broker, driver, &self.logs, &self.groups, done);
                reply.send(snapshot);
            }
            NodeMessage::Requests(reply) => reply.send(self.broker.metrics.stages.newest()),
            NodeMessage::Groups(from, reply) => reply.send(self.groups.page(from.as_ref())),
            NodeMessage::Vitals(reply) => reply.send(observe::shard::vitals(&self.broker, &self.logs)),
            NodeMessage::DirFailed(dir) => {
                // The committer there ends, and tells what it takes offline.
                if let Some(logs) = self.logs.get(dir) {
                    logs.fail("a write or sync of another shard failed there");
                }
            }
            NodeMessage::Move(log, dir, reply) => {
                let answer = self.moves.begin(log, dir);
                // Nobody waits when the client has left, or none asked.
                let _ = reply.map(|reply| reply.send(answer));
            }
            NodeMessage::Prefer(name, dir, noted) => {
                self.control.prefer(name, dir);
                let _ = noted.send(());
            }
            NodeMessage::Moved(log, dir) => self.control.moved(log, dir),
            NodeMessage::Lost(logs) => self.control.lost(self.broker.settings.node_id, logs),
            NodeMessage::Retain(reply) => self.retention.ask(move |pass| reply.send(pass)),
            NodeMessage::Stop => self.broker.stop(),
        }
    }
}

/// A running controller and where its clean stop is marked.
pub struct Controller {
    control: Control,
    ended: flume::Receiver<Result<i64, Failure>>,
    mark: PathBuf,
}

/// Starts the controller on its shard, with its log in the shard's store of the first directory. `on_failure` is told when it
/// cannot go on.
///
/// # Errors
/// [`Failure`] when a directory is another node's, or from storage.
pub async fn start_controller<E: Env, D: Disk, L: LogsIo>(
    shard: &Shard<E, L>,
    disks: &Disks<D>,
    stores: &Stores<D>,
    on_failure: impl FnOnce(Failure) + 'static,
) -> Result<Controller, Failure> {
    let env = shard.broker.env.clone();
    let dirs = shard.broker.log_dirs.clone();
    let dir = dirs.metadata();
    let (Some(Some(disk)), Some(Some(store))) = (disks.first(), stores.first()) else {
        return Err(Failure::new(
            Status::Config,
            "the first of log.dirs cannot be used",
        ));
    };
    let (identity, directories) = identify(&shard.broker, disks).await?;
    let homes = find_homes(&dirs, disks, stores).await?;
    let mark = dir.join(CLEAN_SHUTDOWN_FILE);
    let log = StoreLog::open(
        env.clone(),
        disk.clone(),
        store.clone(),
        dir,
        metadata_log_config(),
    )
    .await
    .map_err(|e| {
        let is_full = matches!(e, StoreLogError::Storage(StorageError::NoSpace(_)));
        let status = if is_full { Status::Io } else { Status::Data };
        Failure::new(status, format!("metadata log: {e}"))
    })?;
    let (left, left_behind) = flume::bounded(1);
    env.spawn(stores::set_left_aside(
        stores.clone(),
        shard.control.clone(),
        left_behind,
    ));
    let seed = ControlSeed {
        log,
        identity,
        previous_broker_epoch: dirs.stopped_epoch(),
        homes,
        directories,
        left,
    };
    let (end, ended) = flume::bounded(1);
    let running = control::run(shard.broker.clone(), shard.control.clone(), seed);
    env.spawn(async move {
        let outcome = running
            .await
            .map_err(|e| Failure::new(Status::Io, format!("metadata log: {e}")));
        if let Err(failure) = &outcome {
            on_failure(failure.clone());
        }
        let _ = end.send(outcome);
    });
    Ok(Controller {
        control: shard.control.clone(),
        ended,
        mark,
    })
}

impl Controller {
    /// Ends the controller; returns where the mark of a clean stop goes and what it says.
    ///
    /// # Errors
    /// [`Failure`] when it had failed.
    pub async fn stop(self) -> Result<(PathBuf, i64), Failure> {
        self.control.stop();
        match self.ended.recv_async().await {
            Ok(outcome) => Ok((self.mark, outcome?)),
            Err(_) => Err(Failure::new(
                Status::Software,
                "the controller ended without a word",
            )),
        }
    }
}

/// Ends a shard whose connections have ended: the controller, then the stores; when those of all shards are closed and no directory
/// has failed, the mark that says the stop was clean. What is in a directory that has failed is recovered by the next start.
///
/// # Errors
/// [`Failure`] when the controller had failed, or from storage; the next start recovers then.
pub async fn close<D: Disk>(
    disks: &Disks<D>,
    stores: &Stores<D>,
    controller: Option<Controller>,
    closing: Closing,
) -> Result<(), Failure> {
    let mark = match controller {
        Some(controller) => Some(controller.stop().await?),
        None => None,
    };
    let mut is_whole = true;
    for (number, store) in stores.iter().enumerate() {
        let Some(store) = store else {
            is_whole = false;
            continue;
        };
        let closed = store.close().await;
        is_whole &= store.offline_reason().is_none();
        match closed {
            Ok(()) => {}
            Err(_) if number > 0 && store.offline_reason().is_some() => {}
            Err(e) => return Err(storage_failed(&e)),
        }
    }
    let (Some((path, broker_epoch)), Some(Some(disk))) = (mark, disks.first()) else {
        if is_whole {
            closing.well();
        }
        return Ok(());
    };
    if closing.others_well().await && is_whole {
        clean_shutdown::save(disk, &path, broker_epoch)
            .await
            .map_err(|e: DiskError| Failure::new(Status::Io, e.to_string()))?;
    }
    Ok(())
}

/// The metadata log is small, and every entry is synced before it counts.
fn metadata_log_config() -> LogConfig {
    LogConfig {
        segment_bytes: 64 << 20,
        ..LogConfig::default()
    }
}

/// Serves the connections that `accept` gives, each with the name of its listener, until the broker stops or there are no
/// more; then waits for them to end, within bounds.
pub async fn serve_connections<E: Env, S: ByteStream>(
    broker: &Rc<Broker<E>>,
    accept: impl AsyncFn() -> Option<(S, Arc<str>)>,
) {
    let open = Rc::new(Cell::new(0usize));
    let changed = Rc::new(Notify::new());
    let mut next_id = u64::from(broker.router.shard().0) << 48;
    loop {
        let accepted = futures_lite::future::or(accept(), async {
            broker.stopping().await;
            None
        });
        let Some((stream, listener)) = accepted.await else {
            break;
        };
        next_id += 1;
        open.set(open.get() + 1);
        let (broker, open, changed, id) = (broker.clone(), open.clone(), changed.clone(), next_id);
        broker.env.clone().spawn(async move {
            serve_one(broker, stream, listener, id).await;
            open.set(open.get() - 1);
            changed.notify();
        });
    }
    broker.stopping().await;
    let ended = changed.until(|| (open.get() == 0).then_some(()));
    futures_lite::future::or(ended, broker.env.sleep(CONNECTIONS_END_MAX)).await;
}

async fn serve_one<E: Env, S: ByteStream>(broker: Rc<Broker<E>>, stream: S, listener: Arc<str>, id: u64) {
    let info = Rc::new(ConnectionInfo::new(id, stream.peer(), listener));
    broker.metrics.connection_opened(&info.listener);
    let reason = serve(broker.clone(), stream, info.clone()).await;
    complain(&broker, &info, &reason);
    tracing::debug!(peer = %info.peer, ?reason, "connection ended");
    broker.metrics.connection_closed(&info.listener, &reason);
}

/// Says why a connection was closed when that was its own doing, at most once a second for each listener.
fn complain<E: Env>(broker: &Broker<E>, info: &ConnectionInfo, reason: &CloseReason) {
    let why = match reason {
        CloseReason::Protocol(sentence) => sentence.as_str(),
        CloseReason::Memory => "it held memory that others waited for, and made no progress",
        _ => return,
    };
    let now = broker.env.now();
    if let Some(unsaid) = broker.complaints.borrow_mut().may_say(&info.listener, now) {
        tracing::warn!(
            peer = %info.peer,
            listener = %info.listener,
            reason = why,
            others_since_last_line = unsaid,
            "a connection was closed"
        );
    }
}

/// What a storage error means for the process.
#[must_use]
pub fn storage_failed(error: &StorageError) -> Failure {
    let status = match error {
        StorageError::Damage(_) | StorageError::Version { .. } => Status::Data,
        _ => Status::Io,
    };
    let is_full = match error {
        StorageError::NoSpace(_) => true,
        StorageError::Disk(error) => error.is_refused_for_space(),
        _ => false,
    };
    let advice = if is_full { FULL_ADVICE } else { "" };
    Failure::new(status, format!("storage: {error}{advice}"))
}

/// What to do before a start, after a stop or a start that a full disk has cut short.
const FULL_ADVICE: &str =
    "; nothing acknowledged is lost: free some space or give the volume more, then start";
