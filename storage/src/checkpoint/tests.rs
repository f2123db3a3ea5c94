//! Atomicity at every crash point, the envelope against every kind of damage, Kafka's texts good and bad.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

use futures_lite::future::or;
use rkyv::{Archive, Deserialize, Serialize};

use super::envelope::{Checkpoint, EnvelopeError};
use super::meta_properties::MetaProperties;
use super::*;
use crate::disk::IO_BYTES_MAX;
use crate::disk::sim::{DiskOp, SimDisk, SimDiskConfig, SimFault};
use crate::layout::PartitionName;
use crate::sim_executor::SimExecutor;
use crate::types::Offset;
use crate::types::TopicId;

#[derive(Archive, Serialize, Deserialize, Debug, Clone, PartialEq)]
struct Sample {
    epoch: u64,
    names: Vec<(String, i64)>,
}

impl Checkpoint for Sample {
    const MAGIC: [u8; 8] = *b"SAMPLE\0\0";
    const VERSION: u32 = 2;
}

fn sample(epoch: u64, names: usize) -> Sample {
    Sample {
        epoch,
        names: (0..names).map(|n| (format!("name {n}"), n as i64)).collect(),
    }
}

fn on_sim<T>(seed: u64, work: impl AsyncFnOnce(&SimDisk) -> T) -> T {
    let executor = SimExecutor::new(seed);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
    executor.block_on(async {
        disk.create_dir("/d".as_ref()).await.unwrap();
        disk.sync_dir("/".as_ref()).await.unwrap();
        work(&disk).await
    })
}

/// Writes "old", then replaces it, with a crash at the `point`-th mutation of the replacement. Gives what is found, and
/// whether the replacement had returned.
fn crash_at(seed: u64, point: u64, new: &[u8], replace: impl AsyncFn(&SimDisk, &[u8])) -> (Vec<u8>, bool) {
    let executor = SimExecutor::new(seed);
    let disk = SimDisk::new(&executor.handle(), SimDiskConfig::seeded(seed));
    let path = Path::new("/d/file");
    executor.block_on(async {
        disk.create_dir("/d".as_ref()).await.unwrap();
        disk.sync_dir("/".as_ref()).await.unwrap();
        write_atomic(&disk, path, b"old").await.unwrap();
    });
    disk.crash_after(point);
    let write = async {
        replace(&disk, new).await;
        true
    };
    let crashed = async {
        disk.crashed().await;
        false
    };
    let returned = executor.block_on(or(write, crashed));
    drop(executor);
    let executor = SimExecutor::new(seed);
    let disk = disk.restart(&executor.handle());
    let found = executor.block_on(read_small(&disk, path, 1 << 20)).unwrap();
    (found.to_vec(), returned)
}

#[test]
fn at_every_crash_point_the_old_content_or_the_new_is_found_whole() {
    for len in [0, 1, 4096, 5000, 9000] {
        let new: Vec<u8> = (0..len).map(|index| u8::try_from(index % 251).unwrap()).collect();
        let mut outcomes = BTreeSet::new();
        for seed in 0..40 {
            for point in 1..=8 {
                let (found, returned) = crash_at(seed, point, &new, async |disk, bytes| {
                    write_atomic(disk, "/d/file".as_ref(), bytes).await.unwrap();
                });
                assert!(
                    found == b"old" || found == new,
                    "{len} bytes, seed {seed}, point {point}: torn"
                );
                assert!(
                    !returned || found == new,
                    "{len} bytes, seed {seed}, point {point}: lost"
                );
                outcomes.insert((found == new, returned));
            }
        }
        assert_eq!(
            outcomes.len(),
            3,
            "old and new before the return, new after it: {outcomes:?}"
        );
    }
}

#[test]
fn the_crash_test_sees_a_replacement_without_its_sync() {
    let new = vec![7; 9000];
    let mut torn = 0;
    for seed in 0..40 {
        for point in 1..=6 {
            let (found, _) = crash_at(seed, point, &new, async |disk, bytes| {
                let temporary = temporary_path("/d/file".as_ref());
                let file = disk.open(&temporary, OpenMode::CreateOrTruncate).await.unwrap();
                let mut buf = disk.alloc(bytes.len());
                buf[..bytes.len()].copy_from_slice(bytes);
                file.write_at(Rc::new(buf), 0).await.unwrap();
                file.truncate(bytes.len() as u64).await.unwrap();
                disk.rename(&temporary, "/d/file".as_ref()).await.unwrap();
                disk.sync_dir("/d".as_ref()).await.unwrap();
            });
            torn += u32::from(found != b"old" && found != new);
        }
    }
    assert!(torn > 0);
}

#[test]
fn a_failed_write_leaves_the_old_content() {
    on_sim(1, async |disk| {
        let path = Path::new("/d/file");
        write_atomic(disk, path, b"old").await.unwrap();
        for op in [
            DiskOp::Create,
            DiskOp::Write,
            DiskOp::Truncate,
            DiskOp::Sync,
            DiskOp::Rename,
        ] {
            disk.add_fault(SimFault::error(op, "/d/file", io::ErrorKind::StorageFull).times(1));
            assert!(
                write_atomic(disk, path, b"new").await.unwrap_err().is_full(),
                "{op:?}"
            );
            assert_eq!(read_small(disk, path, 10).await.unwrap(), "old", "{op:?}");
        }
        write_atomic(disk, path, b"new").await.unwrap();
        assert_eq!(read_small(disk, path, 3).await.unwrap(), "new");
        assert_eq!(
            disk.list("/d".as_ref()).await.unwrap().len(),
            1,
            "no temporary file is left"
        );
        let error = read_small(disk, path, 2).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "read of /d/file failed: 3 bytes where at most 2 are expected"
        );
    });
}

#[test]
fn a_content_of_several_writes_keeps_its_exact_size() {
    on_sim(1, async |disk| {
        let bytes: Vec<u8> = (0..2 * IO_BYTES_MAX + 12_345)
            .map(|n| u8::try_from(n % 253).unwrap())
            .collect();
        write_atomic(disk, "/d/file".as_ref(), &bytes).await.unwrap();
        let found = read_small(disk, "/d/file".as_ref(), bytes.len()).await.unwrap();
        assert!(found == bytes);
    });
}

#[test]
fn a_checkpoint_round_trips_through_its_file() {
    on_sim(1, async |disk| {
        let path = Path::new("/d/sample");
        assert_eq!(envelope::load::<_, Sample>(disk, path).await.unwrap(), None);
        for names in [0, 1, 1000] {
            envelope::save(disk, path, &sample(9, names)).await.unwrap();
            let loaded: Option<Sample> = envelope::load(disk, path).await.unwrap();
            assert_eq!(loaded, Some(sample(9, names)));
        }
    });
}

#[test]
fn every_flipped_bit_and_every_cut_of_an_envelope_is_seen() {
    let whole = envelope::encode(&sample(1, 3));
    assert_eq!(envelope::decode::<Sample>(&whole), Ok(sample(1, 3)));
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << bit;
            assert!(
                envelope::decode::<Sample>(&damaged).is_err(),
                "bit {bit} of byte {at}"
            );
        }
        assert!(envelope::decode::<Sample>(&whole[..at]).is_err(), "cut at {at}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(matches!(
        envelope::decode::<Sample>(&longer),
        Err(EnvelopeError::Length { .. })
    ));
}

#[test]
fn other_kinds_versions_and_payloads_are_told_apart() {
    let payload = [1, 2, 3];
    let kind = envelope::seal(*b"OTHER\0\0\0", 2, &payload);
    assert!(matches!(
        envelope::decode::<Sample>(&kind),
        Err(EnvelopeError::Magic { .. })
    ));
    let version = envelope::seal(Sample::MAGIC, 3, &payload);
    let found = envelope::decode::<Sample>(&version);
    assert_eq!(found, Err(EnvelopeError::Version { found: 3, known: 2 }));
    assert_eq!(
        envelope::open(&version, Sample::MAGIC).unwrap().0,
        3,
        "an older reader can still look inside"
    );
    let rubbish = envelope::seal(Sample::MAGIC, 2, &[0xff; 64]);
    assert!(matches!(
        envelope::decode::<Sample>(&rubbish),
        Err(EnvelopeError::Payload(_))
    ));
    on_sim(1, async |disk| {
        write_atomic(disk, "/d/s".as_ref(), &version).await.unwrap();
        let error = envelope::load::<_, Sample>(disk, "/d/s".as_ref())
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "/d/s has format version 3; this build knows 2");
    });
}

#[test]
fn an_envelope_is_these_bytes_for_ever() {
    // Magic, version, CRC (computed apart from this code), length, zeroes, payload.
    let file = [
        &b"FIXTURE\0"[..],
        &[1, 0, 0, 0],
        &[0x83, 0xe0, 0x11, 0x59],
        &[5, 0, 0, 0, 0, 0, 0, 0],
        &[0; 8],
        b"hello",
    ]
    .concat();
    assert_eq!(envelope::seal(*b"FIXTURE\0", 1, b"hello"), file);
    let (version, payload) = envelope::open(&file, *b"FIXTURE\0").unwrap();
    assert_eq!((version, &payload[..]), (1, &b"hello"[..]));
}

fn name(topic: &str, partition: i32) -> PartitionName {
    PartitionName {
        topic: topic.to_owned(),
        partition,
    }
}

#[test]
fn offset_checkpoints_are_kafkas_text() {
    let offsets = BTreeMap::from([
        (name("a-b.c", 0), Offset(417)),
        (name("a-b.c", 11), Offset(-1)),
        (name("z", 2), Offset(0)),
    ]);
    let text = "0\n3\na-b.c 0 417\na-b.c 11 -1\nz 2 0\n";
    assert_eq!(offsets::format(&offsets), text);
    assert_eq!(offsets::parse(text), Ok(offsets));
    assert_eq!(offsets::parse("0\n0\n").unwrap().len(), 0);
    assert_eq!(offsets::parse("0\n0").unwrap().len(), 0);
    assert_eq!(offsets::parse("").unwrap().len(), 0);
}

#[test]
fn bad_offset_checkpoints_name_file_and_line() {
    for (text, message) in [
        ("1\n0\n", "/d/o:1: version \"1\" is unknown, known is 0"),
        ("0\n", "/d/o:2: the number of entries is missing"),
        ("0\nmany\n", "/d/o:2: \"many\" is not a number of entries"),
        ("0\n-1\n", "/d/o:2: \"-1\" is not a number of entries"),
        ("0\n2\na 0 1\n", "/d/o:3: 1 entries where line 2 announces 2"),
        ("0\n0\na 0 1\n", "/d/o:3: 1 entries where line 2 announces 0"),
        (
            "0\n18446744073709551615\n",
            "/d/o:2: 0 entries where line 2 announces 18446744073709551615",
        ),
        (
            "0\n1\na 0\n",
            "/d/o:3: \"a 0\" is not a topic, a partition and an offset",
        ),
        (
            "0\n1\n\n",
            "/d/o:3: \"\" is not a topic, a partition and an offset",
        ),
        ("0\n1\na/b 0 1\n", "/d/o:3: \"a/b\" is not a topic name"),
        ("0\n1\na -1 1\n", "/d/o:3: \"a -1 1\" has no valid partition"),
        ("0\n1\na 0 -2\n", "/d/o:3: \"a 0 -2\" has no valid offset"),
        (
            "0\n1\na 0 9223372036854775808\n",
            "/d/o:3: \"a 0 9223372036854775808\" has no valid offset",
        ),
        (
            "0\n2\na 0 1\na 0 2\n",
            "/d/o:4: \"a 0 2\": the partition is here twice",
        ),
    ] {
        on_sim(1, async |disk| {
            write_atomic(disk, "/d/o".as_ref(), text.as_bytes())
                .await
                .unwrap();
            let error = offsets::load(disk, "/d/o".as_ref()).await.unwrap_err();
            assert_eq!(error.to_string(), message);
        });
    }
    on_sim(1, async |disk| {
        assert!(offsets::load(disk, "/d/o".as_ref()).await.unwrap().is_none());
        write_atomic(disk, "/d/o".as_ref(), b"0\n1\n\xff 0 1")
            .await
            .unwrap();
        let error = offsets::load(disk, "/d/o".as_ref()).await.unwrap_err();
        assert_eq!(error.to_string(), "/d/o:3: not UTF-8");
        let damage = StorageError::from(error).to_string();
        assert!(
            damage.contains("/d/o is damaged") && damage.contains("line 3: not UTF-8"),
            "{damage}"
        );
    });
}

#[test]
fn partition_metadata_is_kafkas_text() {
    let text = "version: 0\ntopic_id: Xz7bQpNWS_mQmJcBWQ0dzg";
    let id = partition_metadata::parse(text).unwrap();
    assert_eq!(partition_metadata::format(id), text);
    assert_eq!(partition_metadata::parse(&format!("{text}\n")), Ok(id));
    for (text, message) in [
        ("", "line 1: \"version\" is missing"),
        (
            "version: 1\ntopic_id: Xz7bQpNWS_mQmJcBWQ0dzg",
            "line 1: version \"1\" is unknown, known is 0",
        ),
        ("version: 0", "line 2: \"topic_id\" is missing"),
        (
            "version: 0\ntopic: a",
            "line 2: \"topic: a\" is not \"topic_id: …\"",
        ),
        (
            "version: 0\ntopic_id: abc",
            "line 2: topic id \"abc\": not 22 characters of URL-safe base64",
        ),
        (
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            "line 2: the topic id is zero, which names no topic",
        ),
        (
            "version: 0\ntopic_id: Xz7bQpNWS_mQmJcBWQ0dzg\nx",
            "line 3: \"x\" is one line too many",
        ),
    ] {
        assert_eq!(partition_metadata::parse(text).unwrap_err().to_string(), message);
    }
    on_sim(1, async |disk| {
        let path = Path::new("/d/partition.metadata");
        assert_eq!(partition_metadata::load(disk, path).await.unwrap(), None);
        partition_metadata::save(disk, path, TopicId([7; 16]))
            .await
            .unwrap();
        assert_eq!(
            partition_metadata::load(disk, path).await.unwrap(),
            Some(TopicId([7; 16]))
        );
    });
}

#[test]
fn meta_properties_keep_what_they_do_not_know() {
    // As Kafka's Properties.store writes it, with a comment and a date.
    let text = "#\n#Thu Mar 05 12:00:00 UTC 2026\nnode.id=1\ndirectory.id=3Y5gkJ0jQ7mhQFf5p5l6Jw\nversion=1\n\
                cluster.id=wtZ5bHyFS6aRZ0RqZ5k7Xg\nfuture.key=a\\:b\\=c\\u00e9 d\n";
    let found = meta_properties::parse(text).unwrap();
    assert_eq!(found.node_id, 1);
    assert_eq!(found.cluster_id, "wtZ5bHyFS6aRZ0RqZ5k7Xg");
    assert_eq!(found.directory_id.unwrap().to_string(), "3Y5gkJ0jQ7mhQFf5p5l6Jw");
    assert_eq!(
        found.other,
        BTreeMap::from([("future.key".into(), "a:b=cé d".into())])
    );
    assert_eq!(
        meta_properties::parse(&meta_properties::format(&found)),
        Ok(found.clone())
    );
    let awkward = MetaProperties {
        directory_id: None,
        other: BTreeMap::from([(" #k\\:=".into(), " v\n\t#".into())]),
        ..found
    };
    assert_eq!(
        meta_properties::parse(&meta_properties::format(&awkward)),
        Ok(awkward)
    );
}

#[test]
fn bad_meta_properties_name_the_line() {
    for (text, message) in [
        ("", "line 1: \"version\" is missing"),
        (
            "version=0\nbroker.id=1\n",
            "line 1: version \"0\" is unknown, known is 1",
        ),
        ("version=1\nnode.id=1\n", "line 2: \"cluster.id\" is missing"),
        (
            "version=1\ncluster.id=\nnode.id=1",
            "line 2: cluster.id must have 1 to 255 bytes, it has 0",
        ),
        (
            "version=1\ncluster.id=a\nnode.id=-1",
            "line 3: node.id \"-1\" is not a node id",
        ),
        (
            "version=1\ncluster.id=a\nnode.id=x",
            "line 3: node.id \"x\" is not a node id",
        ),
        ("version=1\nrubbish\n", "line 2: \"rubbish\" is not \"key=value\""),
        (
            "version=1\ncluster.id=a\\\n",
            "line 2: lines that go on in the next one are not supported here",
        ),
        (
            "version=1\ncluster.id=\\u00g1\n",
            "line 2: \\u00g1 is no character",
        ),
        (
            "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA",
            "line 4: directory.id \"AAAAAAAAAAAAAAAAAAAAAA\" is a reserved id",
        ),
        (
            "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=x",
            "line 4: directory.id \"x\": not 22 characters of URL-safe base64",
        ),
    ] {
        assert_eq!(meta_properties::parse(text).unwrap_err().to_string(), message);
    }
}

#[test]
fn the_clean_shutdown_file_holds_the_broker_epoch() {
    on_sim(1, async |disk| {
        let path = Path::new("/d/.kafka_cleanshutdown");
        assert_eq!(clean_shutdown::load(disk, path).await.unwrap(), None);
        clean_shutdown::save(disk, path, 42).await.unwrap();
        assert_eq!(clean_shutdown::load(disk, path).await.unwrap(), Some(42));
        write_atomic(disk, path, b"").await.unwrap();
        let unknown = Some(clean_shutdown::BROKER_EPOCH_UNKNOWN);
        assert_eq!(clean_shutdown::load(disk, path).await.unwrap(), unknown);
    });
}
