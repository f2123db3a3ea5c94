//! The store on a real file system: append, commit, clean stop, reopen; and a partition directory written by Apache Kafka
//! is opened and read.
#![cfg(feature = "direct")]

mod common;

use std::path::Path;
use std::rc::Rc;

use common::{PLAIN, append, batch, content, log_id, read_log};
use storage::checkpoint::partition_metadata;
use storage::disk::direct::{DirectDisk, run_with_disk};
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::store::{Store, StoreOptions};
use storage::types::{LogId, Offset};

const NOW_MS: i64 = 1_700_000_000_000;

async fn open(disk: DirectDisk, dir: &Path) -> Rc<Store<DirectDisk>> {
    recover_journals(&disk, dir, |_, _| {}).await.expect("journals");
    Store::open(disk, dir, 0, StoreOptions::default())
        .await
        .expect("store")
}

#[test]
fn a_real_disk_gives_back_what_was_committed_before_a_clean_stop() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_owned();
    let sent = run_with_disk(dir.path(), move |disk| async move {
        let store = open(disk, &path).await;
        let config = LogConfig {
            segment_bytes: 256 << 10,
            ..LogConfig::default()
        };
        let log = store.open_log(log_id(0), "t", config, NOW_MS).await.expect("log");
        let mut sent = Vec::new();
        for round in 0..40u8 {
            let bytes = batch(
                2,
                [200, 9_000, 70_000][usize::from(round) % 3],
                NOW_MS,
                PLAIN,
                round,
            );
            sent.push((
                append(&store, log, bytes.clone(), NOW_MS).base_offset,
                content(&bytes).to_vec(),
            ));
            store.commit().await.expect("commit");
        }
        assert_eq!(store.offsets(log).expect("open").durable_end, Offset(80));
        store.close().await.expect("clean stop");
        sent
    });
    let sent = sent.expect("the first run");
    let path = dir.path().to_owned();
    let found = run_with_disk(dir.path(), move |disk| async move {
        let store = open(disk, &path).await;
        let log = store
            .open_log(log_id(0), "t", LogConfig::default(), NOW_MS)
            .await
            .expect("log");
        let end = store.offsets(log).expect("open").log_end;
        let read = read_log(&store, log, end, 30_000).await;
        read.iter()
            .map(|batch| (batch.base, batch.content.to_vec()))
            .collect::<Vec<_>>()
    });
    assert_eq!(found.expect("the second run"), sent);
}

#[test]
fn a_partition_directory_written_by_kafka_is_opened_and_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kafka-4.3.1/fx-0");
    std::fs::create_dir(dir.path().join("fx-0")).expect("a partition directory");
    for entry in std::fs::read_dir(from).expect("the fixture") {
        let entry = entry.expect("an entry");
        std::fs::copy(entry.path(), dir.path().join("fx-0").join(entry.file_name())).expect("copied");
    }
    std::fs::write(dir.path().join(".kafka_cleanshutdown"), "").expect("Kafka's mark of a stop in order");
    let path = dir.path().to_owned();
    let (end, batches) = run_with_disk(dir.path(), move |disk| async move {
        let metadata = partition_metadata::load(&disk, &path.join("fx-0/partition.metadata")).await;
        let topic = metadata.expect("readable").expect("in the fixture");
        let store = open(disk, &path).await;
        let id = LogId { topic, partition: 0 };
        let log = store
            .open_log(id, "fx", LogConfig::default(), NOW_MS)
            .await
            .expect("log");
        let end = store.offsets(log).expect("open").log_end;
        (end, read_log(&store, log, end, 10_000).await.len())
    })
    .expect("the run");
    assert_eq!(end, Offset(79));
    assert!(batches > 20, "{batches}");
}
