//! The life of one shard on glommio: its disk is opened, the shard is put together ([`crate::assembly`]), connections come
//! through its door, everything ends in order.

use std::path::PathBuf;
use std::sync::Arc;

use shard::owner::store::StoreLogs;
use shard::router::ShardMessage;
use shard::runtime::executor::RuntimeEnv;
use shard::runtime::mailbox::Mailbox;
use shard::runtime::net::{Door, Net};
use storage::checkpoint::clean_shutdown;
use storage::disk::DiskError;
use storage::disk::direct::DirectDisk;
use storage::store::StoreOptions;

use crate::assembly::{
    self, Gate, open_store, serve_connections, start_controller, start_housekeeping, storage_failed,
};
use crate::config::settings::Settings;
use crate::control::CONTROLLER_SHARD;
use crate::exit::{Failure, Status};
use crate::memory::ShardMemory;
use crate::node::NodeMessage;

/// What a shard is given before it is on its core.
pub(super) struct ShardInput {
    pub(super) mailbox: Mailbox<ShardMessage<NodeMessage>>,
    pub(super) door: Door,
    pub(super) gate: Gate,
    pub(super) settings: Arc<Settings>,
    pub(super) dir: PathBuf,
    pub(super) memory: ShardMemory,
    pub(super) last_call: LastCall,
    pub(super) report: flume::Sender<Report>,
}

/// Keeps every shard's partitions in service until no shard has connections any more: their requests may be for any.
pub(super) struct LastCall {
    still_serving: flume::Sender<()>,
    nobody_serves: flume::Receiver<()>,
}

/// One for each shard of a node.
pub(super) fn last_calls(shards: u16) -> Vec<LastCall> {
    let (still_serving, nobody_serves) = flume::bounded(1);
    (0..shards)
        .map(|_| LastCall {
            still_serving: still_serving.clone(),
            nobody_serves: nobody_serves.clone(),
        })
        .collect()
}

impl LastCall {
    /// This shard has no connections any more; ends when none has.
    async fn wait(self) {
        drop(self.still_serving);
        // Nothing is ever sent: the wait ends when the last sender is gone.
        let _ = self.nobody_serves.recv_async().await;
    }
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
        dir,
        memory,
        last_call,
        report,
    } = input;
    let disk = DirectDisk::open(dir.clone())
        .await
        .map_err(|e| Failure::new(Status::Config, format!("{e}")))?;
    let options = StoreOptions {
        cache_bytes: memory.cache_bytes,
        staged_bytes_max: memory.write_bytes,
        unwritten_bytes_max: memory.write_bytes,
        ..StoreOptions::default()
    };
    let store = open_store(disk.clone(), &dir, env.shard().0, gate, options).await?;
    let logs = StoreLogs::new(store.clone());
    let failed = report.clone();
    let shard = assembly::start(&env, mailbox, settings, memory.limits, &logs, move |error| {
        let _ = failed.send(Report::Failed(storage_failed(&error)));
    });
    start_housekeeping(&env, store.clone());
    let mut controller = None;
    if env.shard() == CONTROLLER_SHARD {
        let failed = report.clone();
        let on_failure = move |failure| {
            let _ = failed.send(Report::Failed(failure));
        };
        let started = start_controller(&shard, disk.clone(), store.clone(), &dir, on_failure).await?;
        controller = Some(started);
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
    last_call.wait().await;
    let mark = match controller {
        Some(controller) => Some(controller.stop().await?),
        None => None,
    };
    store.close().await.map_err(|e| storage_failed(&e))?;
    if let Some((path, broker_epoch)) = mark {
        clean_shutdown::save(&disk, &path, broker_epoch)
            .await
            .map_err(|e: DiskError| Failure::new(Status::Io, e.to_string()))?;
    }
    Ok(())
}
