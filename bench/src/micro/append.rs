//! Batches into the logs of a shard: staged, then made durable by one commit. The disk is the simulated one, in memory, so the cost
//! is that of the engine and of copying; `storage/examples/append_path.rs` has a real disk.

use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use protocol::compression::Codec;
use storage::disk::Disk;
use storage::disk::sim::{SimDisk, SimDiskConfig};
use storage::log::LogRef;
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::sim_executor::SimExecutor;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, TopicId};

use super::Operation;
use super::batches::{NOW_MS, batch};

/// Bytes after which the store is made anew, so that the disk in memory stays small.
const STORE_BYTES_MAX: usize = 48 << 20;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        commit(
            "append/1 log, 16 KiB, and commit",
            1,
            &batch(Codec::None, 16, 1024),
        ),
        commit(
            "append/50 logs, 100 B each, and commit",
            50,
            &batch(Codec::None, 1, 100),
        ),
        commit(
            "append/1 log, 512 KiB, and commit",
            1,
            &batch(Codec::None, 512, 1000),
        ),
    ]
}

fn commit(name: &'static str, logs: u8, batch: &Bytes) -> Operation {
    let bytes = batch.len() * usize::from(logs);
    let batch = batch.clone();
    let mut open = None;
    Operation::new(name, bytes, move || {
        let opened = open.get_or_insert_with(|| Opened::new(logs));
        opened.append_and_commit(&batch);
        opened.bytes += bytes;
        if opened.bytes > STORE_BYTES_MAX {
            open = None;
        }
    })
}

struct Opened {
    executor: SimExecutor,
    store: Rc<Store<SimDisk>>,
    logs: Vec<LogRef>,
    bytes: usize,
}

impl Opened {
    fn new(logs: u8) -> Self {
        let executor = SimExecutor::new(1);
        let disk = SimDisk::new(&executor.handle(), SimDiskConfig::default());
        let dir = Path::new("/data");
        let (store, logs) = executor.block_on(async {
            disk.create_dir(dir).await.expect("a directory");
            disk.sync_dir(Path::new("/")).await.expect("its name");
            recover_journals(&disk, dir, |_, _| {})
                .await
                .expect("no journals");
            let store = Store::open(disk.clone(), dir, 0, StoreOptions::default())
                .await
                .expect("a store");
            let mut open = Vec::new();
            for number in 0..logs {
                let id = LogId {
                    topic: TopicId([number + 1; 16]),
                    partition: 0,
                };
                let name = format!("topic{number}");
                let log = store.open_log(id, &name, LogConfig::default(), NOW_MS);
                open.push(log.await.expect("a log"));
            }
            (store, open)
        });
        Self {
            executor,
            store,
            logs,
            bytes: 0,
        }
    }

    fn append_and_commit(&self, batch: &Bytes) {
        for log in &self.logs {
            let append = AppendBatch::from_client(batch.clone(), LeaderEpoch(0));
            self.store.append(*log, append, NOW_MS).expect("room for it");
        }
        let outcome = self
            .executor
            .block_on(self.store.commit())
            .expect("the disk works");
        assert_eq!(outcome.moved.len(), self.logs.len(), "each log is durable");
    }
}
