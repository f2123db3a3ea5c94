//! The life of one shard: its storage is opened, its owner and its requests start, connections come and go, everything
//! ends in order.

use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use shard::driver::OwnerDriver;
use shard::env::Env;
use shard::image::MetadataImage;
use shard::net::ByteStream;
use shard::notify::Notify;
use shard::owner::Owner;
use shard::owner::store::StoreLogs;
use shard::placement::Placement;
use shard::router::{Router, ShardMessage};
use shard::runtime::executor::RuntimeEnv;
use shard::runtime::mailbox::Mailbox;
use shard::runtime::net::{Accepted, Door, Net};
use storage::disk::direct::DirectDisk;
use storage::error::StorageError;
use storage::recovery::recover_journals;
use storage::store::{Store, StoreOptions};

use crate::config::settings::Settings;
use crate::exit::{Failure, Status};
use crate::listener::connection::{ConnectionInfo, serve};
use crate::node::{Broker, NodeMessage};
use crate::publish;
use crate::view::View;

/// How long a stopping shard waits for its connections.
const CONNECTIONS_END_MAX: Duration = Duration::from_secs(4);

/// What a shard is given before it is on its core.
pub(super) struct ShardInput {
    pub(super) mailbox: Mailbox<ShardMessage<NodeMessage>>,
    pub(super) door: Door,
    pub(super) gate: Gate,
    pub(super) settings: Arc<Settings>,
    pub(super) dir: PathBuf,
    pub(super) cache_bytes: usize,
    pub(super) report: flume::Sender<Report>,
}

/// What a shard tells the main thread.
pub(super) enum Report {
    /// It serves.
    Ready,
    /// It cannot start or go on.
    Failed(Failure),
}

/// Lets all shards open their stores after the first has recovered the journals.
pub(super) struct Gate {
    open: Option<Vec<flume::Sender<()>>>,
    opened: flume::Receiver<()>,
}

/// The gates of a node's shards; the first one's shard opens them.
pub(super) fn gates(shards: u16) -> Vec<Gate> {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..shards).map(|_| flume::bounded(1)).unzip();
    let mut senders = Some(senders);
    receivers
        .into_iter()
        .map(|opened| Gate {
            open: senders.take(),
            opened,
        })
        .collect()
}

type Logs = StoreLogs<DirectDisk>;

/// Runs a shard from start to end.
pub(super) async fn shard_main(env: RuntimeEnv, input: ShardInput) {
    let report = input.report.clone();
    if let Err(failure) = live(env, input).await {
        let _ = report.send(Report::Failed(failure));
    }
}

async fn live(env: RuntimeEnv, input: ShardInput) -> Result<(), Failure> {
    let ShardInput {
        mailbox,
        door,
        gate,
        settings,
        dir,
        cache_bytes,
        report,
    } = input;
    let logs = open_storage(&env, gate, dir, cache_bytes).await?;
    let (outbox, inbox) = mailbox.open(&env);
    let router = Router::new(outbox);
    let shards = router.shards();
    let empty = View::new(
        Arc::new(MetadataImage::empty("")),
        Arc::new(Placement::new(shards)),
        settings.node_id,
        Arc::new(settings.fixed.clone()),
    );
    let broker = Rc::new(Broker::new(env.clone(), router.clone(), settings.clone(), empty));
    let driver = OwnerDriver::new(
        env.clone(),
        Owner::new(settings.node_id, logs.clone()),
        logs.clone(),
        router,
    );
    let failed = report.clone();
    driver.start(move |error| {
        let _ = failed.send(Report::Failed(storage_failed(&error)));
    });
    start_housekeeping(&env, &logs);

    let (publications, to_follow) = flume::unbounded();
    env.spawn(publish::follow(
        broker.clone(),
        driver.clone(),
        logs.clone(),
        to_follow,
    ));
    let control = crate::control::start(&broker);
    let stopping = broker.clone();
    env.spawn(async move {
        driver
            .serve_inbox(inbox, move |message| match message {
                NodeMessage::Publish(publication) => {
                    let _ = publications.send(publication);
                }
                NodeMessage::AutoCreate(names) => control.create_automatically(names),
                NodeMessage::Command(command, reply) => control.command(command, reply),
                NodeMessage::Stop => stopping.stop(),
            })
            .await;
    });
    broker.has_metadata().await;
    let _ = report.send(Report::Ready);
    serve_connections(&env, &broker, door).await;
    logs.store().close().await.map_err(|e| storage_failed(&e))
}

async fn open_storage(
    env: &RuntimeEnv,
    gate: Gate,
    dir: PathBuf,
    cache_bytes: usize,
) -> Result<Logs, Failure> {
    let disk = DirectDisk::open(dir.clone())
        .await
        .map_err(|e| Failure::new(Status::Config, format!("{e}")))?;
    if let Some(open) = gate.open {
        let recovered = recover_journals(&disk, &dir, |_, _| {})
            .await
            .map_err(|e| storage_failed(&e))?;
        if recovered.commits > 0 {
            tracing::info!(
                commits = recovered.commits,
                bytes = recovered.bytes,
                logs = recovered.logs.len(),
                "journals of an earlier run were replayed"
            );
        }
        for shard in open {
            let _ = shard.send(());
        }
    }
    if gate.opened.recv_async().await.is_err() {
        return Err(Failure::new(
            Status::Software,
            "the shard that recovers the journals ended",
        ));
    }
    let options = StoreOptions {
        cache_bytes,
        ..StoreOptions::default()
    };
    let store = Store::open(disk, &dir, env.shard().0, options)
        .await
        .map_err(|e| storage_failed(&e))?;
    Ok(StoreLogs::new(store))
}

fn start_housekeeping(env: &RuntimeEnv, logs: &Logs) {
    let store = logs.store().clone();
    let background = env.clone();
    env.spawn_background(async move {
        while store.housekeeping().await.is_ok() {
            background.yield_to_reactor().await;
        }
    });
}

/// Serves connections until the broker stops, then waits for them to end.
async fn serve_connections(env: &RuntimeEnv, broker: &Rc<Broker<RuntimeEnv>>, door: Door) {
    let net = Net::new(env.clone());
    let open = Rc::new(Cell::new(0usize));
    let changed = Rc::new(Notify::new());
    let mut next_id = u64::from(env.shard().0) << 48;
    loop {
        let accepted = futures_lite::future::or(door.accept(), async {
            broker.stopping().await;
            None
        });
        let Some(accepted) = accepted.await else { break };
        next_id += 1;
        open.set(open.get() + 1);
        let (broker, open, changed, net) = (broker.clone(), open.clone(), changed.clone(), net.clone());
        env.spawn(async move {
            serve_one(broker, &net, accepted, next_id).await;
            open.set(open.get() - 1);
            changed.notify();
        });
    }
    broker.stopping().await;
    let ended = changed.until(|| (open.get() == 0).then_some(()));
    futures_lite::future::or(ended, env.sleep(CONNECTIONS_END_MAX)).await;
}

async fn serve_one(broker: Rc<Broker<RuntimeEnv>>, net: &Net, accepted: Accepted, id: u64) {
    let listener = broker.settings.listeners.get(usize::from(accepted.listener));
    let name: Arc<str> = listener.map_or_else(|| Arc::from(""), |l| Arc::from(l.name.as_str()));
    let stream = net.adopt(accepted);
    let info = Rc::new(ConnectionInfo::new(id, stream.peer(), name));
    broker.metrics.connection_opened();
    let reason = serve(broker.clone(), stream, info.clone()).await;
    tracing::debug!(peer = %info.peer, ?reason, "connection ended");
    broker.metrics.connection_closed(&reason);
}

fn storage_failed(error: &StorageError) -> Failure {
    let status = match error {
        StorageError::Damage(_) | StorageError::Version { .. } => Status::Data,
        _ => Status::Io,
    };
    Failure::new(status, format!("storage: {error}"))
}
