//! The life of one shard on glommio: its disk is opened, the shard is put together ([`crate::assembly`]), connections are
//! served, everything ends in order.

use std::rc::Rc;
use std::sync::Arc;

use shard::env::Env;
use shard::owner::Dirs;
use shard::owner::store::StoreLogs;
use shard::router::ShardMessage;
use shard::runtime::executor::RuntimeEnv;
use shard::runtime::mailbox::Mailbox;
use shard::runtime::net::{Door, Net};
use storage::disk::direct::DirectDisk;
use storage::store::{ReadAheadLimits, StoreOptions};

use crate::assembly::{self, LastCall, serve_connections, start_controller, storage_failed};
use crate::config::settings::Settings;
use crate::control::CONTROLLER_SHARD;
use crate::exit::{Failure, Status};
use crate::log_dirs::{LogDirs, METADATA_DIR};
use crate::memory::{self, ShardMemory};
use crate::node::{Broker, NodeMessage};
use crate::stores::{Disks, Gate, open_stores};

/// What a shard is given before it is on its core.
pub struct ShardInput {
    /// Its mailbox and the way to the others.
    pub mailbox: Mailbox<ShardMessage<NodeMessage>>,
    /// Where the shards meet during recovery.
    pub gate: Gate,
    /// The broker's settings.
    pub settings: Arc<Settings>,
    /// The log directories, created and absolute.
    pub log_dirs: LogDirs,
    /// Its part of the memory.
    pub memory: ShardMemory,
    /// Segment files the shard may keep open.
    pub open_files: usize,
    /// Shards of the process.
    pub shards: u16,
    /// Where the shards meet at a stop.
    pub last_call: LastCall,
    /// Where it tells how it is.
    pub report: flume::Sender<Report>,
}

/// What a shard tells the main thread.
pub enum Report {
    /// It serves.
    Ready,
    /// It cannot start or go on.
    Failed(Failure),
}

/// Runs a shard from start to end; its connections come through `door`.
pub(super) async fn shard_main(env: RuntimeEnv, (input, door): (ShardInput, Door)) {
    let net = Net::new(env.clone());
    live(env, input, async |broker| {
        let listeners = &broker.settings.listeners;
        serve_connections(broker, async || {
            let accepted = door.accept().await?;
            let listener = listeners.get(usize::from(accepted.listener));
            let name: Arc<str> = listener.map_or_else(|| Arc::from(""), |l| Arc::from(l.name.as_str()));
            Some((net.adopt(accepted), name))
        })
        .await;
    })
    .await;
}

/// Runs a shard from start to end. `serve` is called when it is ready, and ends when the broker stops; what goes wrong is reported.
pub async fn live(env: RuntimeEnv, input: ShardInput, serve: impl AsyncFnOnce(&Rc<Broker<RuntimeEnv>>)) {
    let report = input.report.clone();
    if let Err(failure) = until_stopped(env, input, serve).await {
        let _ = report.send(Report::Failed(failure));
    }
}

async fn until_stopped(
    env: RuntimeEnv,
    input: ShardInput,
    serve: impl AsyncFnOnce(&Rc<Broker<RuntimeEnv>>),
) -> Result<(), Failure> {
    let ShardInput {
        mailbox,
        gate,
        settings,
        log_dirs,
        memory: share,
        open_files,
        shards,
        last_call,
        report,
    } = input;
    let disks = open_disks(&log_dirs).await?;
    let progress = gate.progress();
    let options = store_options(&settings, &share, log_dirs.len(), open_files, shards);
    let stores = open_stores(&disks, &log_dirs, env.shard().0, gate, options).await?;
    let logs = Dirs::new(stores.iter().map(|store| store.clone().map(StoreLogs::new)));
    let failed = report.clone();
    let on_failure = move |error| {
        let _ = failed.send(Report::Failed(storage_failed(&error)));
    };
    let shard = assembly::start(&env, mailbox, settings, log_dirs, share.limits, &logs, on_failure);
    shard.broker.metrics.count_start(progress);
    let budget = shard.broker.budget.clone();
    env.spawn_background(memory::give_back(env.clone(), budget, memory::collect));
    let mut controller = None;
    if env.shard() == CONTROLLER_SHARD {
        let failed = report.clone();
        let on_failure = move |failure| {
            let _ = failed.send(Report::Failed(failure));
        };
        controller = Some(start_controller(&shard, &disks, &stores, on_failure).await?);
        shard.control.joined().await;
    }
    shard.broker.has_metadata().await;
    let _ = report.send(Report::Ready);
    serve(&shard.broker).await;
    let closing = last_call.wait().await;
    shard.moves.stop().await;
    assembly::close(&disks, &stores, controller, closing).await
}

/// What the store of each of `dirs` log directories may use: a share of its own, so that what one takes is bounded whatever the
/// others do.
fn store_options(
    settings: &Settings,
    memory: &ShardMemory,
    dirs: usize,
    open_files: usize,
    shards: u16,
) -> StoreOptions {
    StoreOptions {
        cache_bytes: memory.cache_bytes / dirs,
        staged_bytes_max: memory.write_bytes / dirs,
        unwritten_bytes_max: memory.write_bytes / dirs,
        is_journal_filled: true,
        interval: settings.interval,
        reserve_bytes: settings.disk_reserve_bytes,
        open_files_max: (open_files / dirs).max(1),
        read_ahead: ReadAheadLimits {
            bytes_max: memory.read_ahead_bytes / dirs,
            ..ReadAheadLimits::default()
        },
        shards,
        io: settings.io_of_shard(shards.saturating_mul(u16::try_from(dirs).unwrap_or(u16::MAX))),
        scrub: settings.scrub,
        ..StoreOptions::default()
    }
}

/// The disk of each log directory.
async fn open_disks(dirs: &LogDirs) -> Result<Disks<DirectDisk>, Failure> {
    let mut disks = Vec::with_capacity(dirs.len());
    for (number, path, is_online) in dirs.iter() {
        if !is_online {
            disks.push(None);
            continue;
        }
        match DirectDisk::open(path.to_owned()).await {
            Ok(disk) => disks.push(Some(disk)),
            Err(e) if number == METADATA_DIR => {
                // What is full may be emptied; anything else of a directory is for whoever configured it.
                let is_full = e.source.kind() == std::io::ErrorKind::StorageFull;
                let status = if is_full { Status::Io } else { Status::Config };
                return Err(Failure::new(status, e.to_string()));
            }
            Err(error) => {
                if dirs.fail(number) {
                    tracing::error!(dir = %path.display(), %error, "the log directory is offline");
                }
                disks.push(None);
            }
        }
    }
    Ok(disks)
}
