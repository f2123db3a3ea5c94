//! The files at the root of a log directory, written by Apache Kafka 4.3.1 (see the fixtures' README): we read them, and
//! where Kafka's order is ours, we write the same bytes.
#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

use std::fs;
use std::path::PathBuf;

use protocol::Uuid;
use storage::checkpoint::{clean_shutdown, meta_properties, offsets, partition_metadata};
use storage::layout::{self, DirName, FileName, PartitionName};
use storage::leader_epoch::LeaderEpochs;
use storage::types::Offset;

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kafka-4.3.1/log-dir")
}

fn text(name: &str) -> String {
    fs::read_to_string(dir().join(name)).unwrap()
}

#[test]
fn offset_checkpoints() {
    let partition = |partition| PartitionName {
        topic: "fix.ture-a_b".into(),
        partition,
    };
    let expected = [(partition(0), Offset(20)), (partition(1), Offset(0))];
    for name in [layout::RECOVERY_POINT_FILE, layout::HIGH_WATERMARK_FILE] {
        let found = offsets::parse(&text(name)).unwrap();
        assert!(
            found.clone().into_iter().eq(expected.clone()),
            "{name}: {found:?}"
        );
    }
    for name in [layout::LOG_START_FILE, layout::CLEANER_OFFSET_FILE] {
        assert!(offsets::parse(&text(name)).unwrap().is_empty(), "{name}");
    }
    for name in [layout::RECOVERY_POINT_FILE, layout::LOG_START_FILE] {
        assert_eq!(offsets::format(&offsets::parse(&text(name)).unwrap()), text(name));
    }
}

#[test]
fn meta_properties_file() {
    let found = meta_properties::parse(&text(layout::META_PROPERTIES_FILE)).unwrap();
    assert_eq!(found.cluster_id, "AihpwdpKOQqk-OXCD5181g");
    assert_eq!(found.node_id, 1);
    assert_eq!(
        found.directory_id,
        Some("aFg5AJtvShaS0CFUkqft0Q".parse::<Uuid>().unwrap())
    );
    assert!(found.other.is_empty());
}

#[test]
fn clean_shutdown_file() {
    let text = text(layout::CLEAN_SHUTDOWN_FILE);
    assert_eq!(clean_shutdown::parse(text.as_bytes()), 15);
    assert_eq!(clean_shutdown::format(15), text);
}

#[test]
fn a_partition_directory() {
    let mut seen = 0;
    for entry in fs::read_dir(dir()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            continue;
        }
        let name = entry.file_name().into_string().unwrap();
        assert!(matches!(DirName::parse(&name), DirName::Partition(partition) if partition.partition == 1));
        for file in fs::read_dir(entry.path()).unwrap() {
            let file = file.unwrap();
            let bytes = fs::read(file.path()).unwrap();
            match FileName::parse(file.file_name().to_str().unwrap()) {
                FileName::PartitionMetadata => {
                    let text = String::from_utf8(bytes).unwrap();
                    assert_eq!(
                        partition_metadata::format(partition_metadata::parse(&text).unwrap()),
                        text
                    );
                }
                FileName::LeaderEpochs => {
                    assert_eq!(LeaderEpochs::decode(&bytes).unwrap().encode().as_bytes(), bytes);
                }
                other => panic!("{other:?}"),
            }
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}
