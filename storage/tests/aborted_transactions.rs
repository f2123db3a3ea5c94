//! Aborted transactions stay hidden over a start that does not replay them: what was written before the newest producer
//! snapshot is known only from the transaction indexes, whatever else has to be made anew.
#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use std::fs;
use std::path::{Path, PathBuf};

use storage::checkpoint::partition_metadata;
use storage::disk::plain::{PlainDisk, wait};
use storage::log::config::LogConfig;
use storage::recovery::recover_journals;
use storage::segment::txn_index::TxnIndex;
use storage::store::{Store, StoreOptions};
use storage::types::{LogId, Offset, ProducerId};

const END: i64 = 79;

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kafka-4.3.1/fx-0")
}

/// A log directory as Apache Kafka leaves it, with the fixture's partition.
fn log_dir() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let to = root.path().join("fx-0");
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(fixture()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    fs::write(
        root.path().join(".kafka_cleanshutdown"),
        "{\"version\":0,\"brokerEpoch\":1}",
    )
    .unwrap();
    fs::write(
        root.path().join("recovery-point-offset-checkpoint"),
        format!("0\n1\nfx 0 {END}\n"),
    )
    .unwrap();
    root
}

/// What Kafka's transaction indexes say, all of them.
fn expected() -> Vec<(ProducerId, Offset)> {
    let mut all = Vec::new();
    for base in [0, 11, 57, 62] {
        let bytes = fs::read(fixture().join(format!("{base:020}.txnindex"))).unwrap_or_default();
        let index = TxnIndex::decode(Offset(base), &bytes).unwrap();
        all.extend(
            index
                .entries()
                .iter()
                .map(|txn| (txn.producer_id, txn.first_offset)),
        );
    }
    assert!(all.len() >= 4, "{all:?}");
    all
}

/// What a start finds, twice: the second one has our own checkpoint.
fn found(root: &Path) -> [Vec<(ProducerId, Offset)>; 2] {
    [(), ()].map(|()| {
        wait(async {
            let disk = PlainDisk::new();
            recover_journals(&disk, root, |_, _| {}).await.unwrap();
            let store = Store::open(disk, root, 0, StoreOptions::default()).await.unwrap();
            let text = fs::read_to_string(root.join("fx-0/partition.metadata")).unwrap();
            let id = LogId {
                topic: partition_metadata::parse(&text).unwrap(),
                partition: 0,
            };
            let log = store
                .open_log(id, "fx", LogConfig::default(), 1_700_000_000_000)
                .await
                .unwrap();
            assert_eq!(store.offsets(log).unwrap().log_end, Offset(END));
            let aborted = store.aborted_transactions(log, Offset(0), Offset(END));
            store.close().await.unwrap();
            aborted
                .into_iter()
                .map(|txn| (txn.producer_id, txn.first_offset))
                .collect()
        })
    })
}

#[test]
fn a_start_on_kafkas_files_hides_what_kafka_hid() {
    let root = log_dir();
    let [first, second] = found(root.path());
    assert_eq!(first, expected());
    assert_eq!(second, expected());
}

#[test]
fn indexes_made_anew_leave_the_aborted_transactions_known() {
    for base in [11, 57, 62] {
        let root = log_dir();
        for suffix in ["index", "timeindex"] {
            fs::remove_file(root.path().join(format!("fx-0/{base:020}.{suffix}"))).unwrap();
        }
        let [first, second] = found(root.path());
        assert_eq!(first, expected(), "segment {base}");
        assert_eq!(second, expected(), "segment {base}, the second start");
    }
}
