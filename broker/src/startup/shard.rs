//! The life of one shard on glommio: its disk is opened, the shard is put together ([`crate::assembly`]), connections come
//! through its door, everything ends in order.

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
use crate::node::NodeMessage;
use crate::stores::{Disks, Gate, open_stores};

/// What a shard is given before it is on its core.
pub(super) struct ShardInput {
    pub(super) mailbox: Mailbox<ShardMessage<NodeMessage>>,
    pub(super) door: Door,
    pub(super) gate: Gate,
    pub(super) settings: Arc<Settings>,
    pub(super) log_dirs: LogDirs,
    pub(super) memory: ShardMemory,
    /// Segment files the shard may keep open.
    pub(super) open_files: usize,
    /// Shards of the process.
    pub(super) shards: u16,
    pub(super) last_call: LastCall,
    pub(super) report: flume::Sender<Report>,
}

/// What a shard tells the main thread.
pub(super) enum Report {
    /// It serves.
    Ready,
    /// It cannot start or go on.
    Failed(Failure),
}

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
    let net = Net::new(env);
    let listeners = &shard.broker.settings.listeners;
    serve_connections(&shard.broker, async || {
        let accepted = door.accept().await?;
        let listener = listeners.get(usize::from(accepted.listener));
        let name: Arc<str> = listener.map_or_else(|| Arc::from(""), |l| Arc::from(l.name.as_str()));
        Some((net.adopt(accepted), name))
    })
    .await;
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
