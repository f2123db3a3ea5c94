//! The offline check of partition and log directories: what Apache Kafka and our own store leave is clean, and every kind of
//! damage is found and named, with the offsets it concerns.
#![allow(clippy::unwrap_used)] // a test's unwrap is its assertion

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use common::{PLAIN, Producer, batch};
use futures_lite::future::or;
use storage::disk::plain::{PlainDisk, wait};
use storage::journal::JournalOptions;
use storage::layout::PartitionName;
use storage::log::append::AppendBatch;
use storage::log::config::LogConfig;
use storage::offline::directory::{Survey, note_repairs, replay_journals, survey};
use storage::offline::finding::{Finding, Severity, Subject};
use storage::offline::repair::{Plan, carry_out, plan};
use storage::offline::verify::{Expectation, PartitionReport, partition};
use storage::recovery::recover_journals;
use storage::store::{Store, StoreOptions};
use storage::types::{LeaderEpoch, LogId, Offset, TopicId};

const NOW_MS: i64 = 1_700_000_000_000;

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kafka-4.3.1/fx-0")
}

/// A copy of Kafka's partition directory.
fn kafka_partition() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("fx-0");
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(fixture()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    (dir, to)
}

fn check(dir: &Path) -> PartitionReport {
    check_with(dir, &Expectation::default())
}

fn check_with(dir: &Path, expectation: &Expectation) -> PartitionReport {
    let mut bytes = 0;
    let report = partition(dir, expectation, &mut |read| bytes += read).unwrap();
    assert_eq!(bytes, report.bytes, "progress comes to the end");
    report
}

fn serious(report: &PartitionReport) -> Vec<&Finding> {
    report
        .findings
        .iter()
        .filter(|finding| finding.severity > Severity::Remark)
        .collect()
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_partition_that_kafka_left_is_clean() {
    let report = check(&fixture());
    assert_eq!(report.findings, [], "{:#?}", report.findings);
    assert_eq!(
        report
            .segments
            .iter()
            .map(|segment| segment.base.0)
            .collect::<Vec<_>>(),
        [0, 11, 57, 62]
    );
    assert_eq!((report.log_start, report.end_offset), (Offset(0), Offset(79)));
    assert_eq!(report.open_transactions, 1);
    assert!(report.batches > 20);
}

/// BR-074 index-corrupt: each kind of file beside the log, missing, cut, full of zeroes, or of another segment.
#[test]
fn every_damaged_file_beside_the_log_is_found() {
    let name = |base: i64, suffix: &str| format!("{base:020}.{suffix}");
    type Change = fn(&mut Vec<u8>);
    let flip: Change = |bytes| bytes[3] ^= 0x40;
    let cut: Change = |bytes| bytes.truncate(bytes.len() - 1);
    let cases: [(String, Change, Subject); 9] = [
        (name(11, "index"), flip, Subject::OffsetIndex),
        (name(11, "index"), cut, Subject::OffsetIndex),
        (name(11, "timeindex"), flip, Subject::TimeIndex),
        (name(11, "timeindex"), cut, Subject::TimeIndex),
        (name(11, "txnindex"), flip, Subject::TxnIndex),
        (
            name(11, "txnindex"),
            |bytes| bytes.truncate(bytes.len() - 34),
            Subject::TxnIndex,
        ),
        (name(57, "snapshot"), flip, Subject::ProducerSnapshot),
        (
            "leader-epoch-checkpoint".to_owned(),
            |bytes| *bytes = b"0\n1\n0 0\n".to_vec(),
            Subject::LeaderEpochs,
        ),
        ("partition.metadata".to_owned(), cut, Subject::Identity),
    ];
    for (file, damage, subject) in cases {
        let (_keep, dir) = kafka_partition();
        change(&dir.join(&file), damage);
        let report = check(&dir);
        let found = serious(&report);
        assert!(!found.is_empty(), "{file}: nothing was found");
        for finding in found {
            assert_eq!(
                (finding.severity, finding.subject),
                (Severity::Rebuildable, subject),
                "{file}: {finding:?}"
            );
            assert!(finding.place.path.ends_with(&file), "{file}: {finding:?}");
        }
    }
    for (file, subject) in [
        (name(11, "index"), Subject::OffsetIndex),
        (name(57, "timeindex"), Subject::TimeIndex),
        (name(62, "txnindex"), Subject::TxnIndex),
        ("leader-epoch-checkpoint".to_owned(), Subject::LeaderEpochs),
    ] {
        let (_keep, dir) = kafka_partition();
        fs::remove_file(dir.join(&file)).unwrap();
        let report = check(&dir);
        let found: Vec<Subject> = serious(&report).iter().map(|finding| finding.subject).collect();
        assert_eq!(found, [subject], "{file} is missing");
    }
    // One segment's index in another's place.
    let (_keep, dir) = kafka_partition();
    fs::copy(dir.join(name(11, "index")), dir.join(name(62, "index"))).unwrap();
    assert!(
        serious(&check(&dir))
            .iter()
            .all(|finding| finding.subject == Subject::OffsetIndex)
    );
    assert!(!serious(&check(&dir)).is_empty());
}

#[test]
fn a_flipped_bit_in_a_batch_is_named_with_its_offsets_and_both_checksums() {
    let (_keep, dir) = kafka_partition();
    let log = dir.join("00000000000000000011.log");
    let mut second = 0;
    change(&log, |bytes| {
        second = 12 + i32::from_be_bytes(bytes[8..12].try_into().unwrap()) as usize;
        bytes[second + 65] ^= 1;
    });
    let report = check(&dir);
    let damage: Vec<&Finding> = report
        .findings
        .iter()
        .filter(|finding| finding.severity == Severity::Damage)
        .collect();
    let [finding] = damage[..] else {
        panic!("{damage:#?}")
    };
    assert_eq!(
        (finding.subject, finding.place.position),
        (Subject::Batch, second as u64)
    );
    assert_eq!(finding.place.path, log);
    let (expected, found) = finding.crc.unwrap();
    assert_ne!(expected, found);
    assert!(finding.place.expected.contains(&format!("{expected:08x}")));
    assert!(finding.place.found.contains(&format!("{found:08x}")));
    let lost = finding.place.end_offset.0 - finding.place.first_offset.0;
    assert!(
        (1..10).contains(&lost) && finding.place.first_offset > Offset(11),
        "{finding:?}"
    );
    assert_eq!(report.end_offset, Offset(79), "what lies behind is still read");
    let segment = &report.segments[1];
    assert_eq!(segment.bad.len(), 1);
}

#[test]
fn missing_segments_and_missing_ends_are_damage() {
    let (_keep, dir) = kafka_partition();
    fs::remove_file(dir.join("00000000000000000057.log")).unwrap();
    let report = check(&dir);
    let orphan = serious(&report)
        .into_iter()
        .find(|finding| finding.subject == Subject::Segment)
        .expect("indexes without their segment")
        .clone();
    assert_eq!(
        (orphan.place.first_offset, orphan.place.end_offset),
        (Offset(57), Offset(62))
    );

    let (_keep, dir) = kafka_partition();
    change(&dir.join("00000000000000000062.log"), |bytes| {
        bytes.truncate(bytes.len() - 3)
    });
    let expectation = Expectation {
        is_clean: false,
        durable_end: Offset(79),
        ..Expectation::default()
    };
    let report = check_with(&dir, &expectation);
    let damage: Vec<_> = serious(&report)
        .into_iter()
        .filter(|f| f.severity == Severity::Damage)
        .collect();
    assert_eq!(damage.len(), 1, "{damage:#?}");
    assert_eq!(damage[0].place.end_offset, Offset(79));
    // Above the recovery point the same is what a crash leaves.
    let report = check_with(
        &dir,
        &Expectation {
            durable_end: Offset(62),
            ..expectation
        },
    );
    assert_eq!(serious(&report), Vec::<&Finding>::new());
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding.subject == Subject::Tail)
    );
}

/// Runs `work` on a store on real files, and closes it in order unless `work` says not to.
fn with_store(root: &Path, work: impl AsyncFn(&Store<PlainDisk>) -> bool) {
    let disk = PlainDisk::new();
    wait(async {
        recover_journals(&disk, root, |_, _| {}).await.unwrap();
        let options = StoreOptions {
            journal: JournalOptions {
                file_bytes: 256 << 10,
                files_max: 3,
            },
            ..StoreOptions::default()
        };
        let store: Rc<Store<PlainDisk>> = Store::open(disk.clone(), root, 0, options).await.unwrap();
        if work(&store).await {
            store.close().await.unwrap();
            fs::write(
                root.join(".kafka_cleanshutdown"),
                "{\"version\":0,\"brokerEpoch\":1}",
            )
            .unwrap();
        }
    });
}

async fn fill(store: &Store<PlainDisk>, batches: i64) {
    let id = LogId {
        topic: TopicId([3; 16]),
        partition: 0,
    };
    let config = LogConfig {
        segment_bytes: 64 << 10,
        ..LogConfig::default()
    };
    let log = store.open_log(id, "t", config, NOW_MS).await.unwrap();
    for number in 0..batches {
        let producer = if number % 2 == 0 {
            PLAIN
        } else {
            Producer {
                id: 7,
                epoch: 0,
                sequence: (number / 2 * 3) as i32,
            }
        };
        let bytes = batch(3, 900, NOW_MS + number, producer, number as u8);
        store
            .append(log, AppendBatch::from_client(bytes, LeaderEpoch(0)), NOW_MS)
            .unwrap();
        if number % 10 == 9 {
            store.commit().await.unwrap();
        }
    }
    let end = store.offsets(log).unwrap().log_end;
    or(
        async {
            loop {
                store.commit().await.unwrap();
            }
        },
        async { store.durable_to(log, end).await.unwrap() },
    )
    .await;
}

fn look(root: &Path) -> (Survey, PartitionReport) {
    let survey = survey(root).unwrap();
    let name = PartitionName::parse("t-0").unwrap();
    let report = partition(&root.join("t-0"), &survey.expectation(&name), &mut |_| {}).unwrap();
    (survey, report)
}

#[test]
fn our_own_directory_is_clean_after_a_stop_in_order() {
    let root = tempfile::tempdir().unwrap();
    with_store(root.path(), async |store| {
        fill(store, 300).await;
        true
    });
    let (survey, report) = look(root.path());
    let own: Vec<&Finding> = survey
        .findings
        .iter()
        .filter(|f| f.subject != Subject::Identity)
        .collect();
    assert_eq!(own, Vec::<&Finding>::new(), "{:#?}", survey.findings);
    assert!(survey.is_clean && survey.run > 0);
    assert_eq!(serious(&report), Vec::<&Finding>::new());
    assert_eq!(report.end_offset, Offset(900));
    assert!(report.segments.len() > 3);
}

#[test]
fn after_a_crash_the_journal_counts_and_nothing_is_damage() {
    let root = tempfile::tempdir().unwrap();
    with_store(root.path(), async |store| {
        fill(store, 60).await;
        false
    });
    let (survey, report) = look(root.path());
    assert!(!survey.is_clean);
    assert!(
        survey.journals.commits > 0 && survey.journals.files > 0,
        "{:?}",
        survey.journals
    );
    assert_eq!(serious(&report), Vec::<&Finding>::new());
    assert_eq!(report.end_offset, Offset(180), "with what the journal holds");
    // Its journal gone, the log is not what it was.
    let journal = root.path().join(".penstock/journal/shard-0");
    for entry in fs::read_dir(&journal).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let (survey, _) = look(root.path());
    let found: Vec<Subject> = survey.findings.iter().map(|finding| finding.subject).collect();
    assert!(found.contains(&Subject::Journal), "{:#?}", survey.findings);
}

#[test]
fn a_log_whose_directory_is_gone_is_missed() {
    let root = tempfile::tempdir().unwrap();
    with_store(root.path(), async |store| {
        fill(store, 30).await;
        true
    });
    fs::remove_dir_all(root.path().join("t-0")).unwrap();
    let survey = survey(root.path()).unwrap();
    let finding = survey
        .findings
        .iter()
        .find(|finding| finding.subject == Subject::Segment)
        .unwrap();
    assert_eq!(
        (finding.place.first_offset, finding.place.end_offset),
        (Offset(0), Offset(90))
    );
}

/// Repairs a partition by what the check finds, and gives what was lost.
fn repair_partition(dir: &Path, expectation: &Expectation) -> Plan {
    let plan = plan(&check_with(dir, expectation), expectation.durable_end);
    carry_out(&plan, "a report").unwrap();
    plan
}

#[test]
fn indexes_are_made_anew_as_kafka_made_them() {
    let name = |base: i64, suffix: &str| format!("{base:020}.{suffix}");
    let (_keep, dir) = kafka_partition();
    let txn = fs::read(dir.join(name(11, "txnindex"))).unwrap();
    fs::remove_file(dir.join(name(11, "index"))).unwrap();
    change(&dir.join(name(57, "timeindex")), |bytes| bytes[3] ^= 1);
    change(&dir.join(name(11, "txnindex")), |bytes| bytes.truncate(34));
    change(&dir.join("leader-epoch-checkpoint"), |bytes| {
        *bytes = b"0\n1\n0 0\n".to_vec()
    });
    change(&dir.join(name(57, "snapshot")), |bytes| bytes[3] ^= 1);
    let plan = repair_partition(&dir, &Expectation::default());
    assert_eq!((plan.lost, plan.end), (vec![], Offset(79)));
    let report = check(&dir);
    assert_eq!(serious(&report), Vec::<&Finding>::new());
    assert_eq!(fs::read(dir.join(name(11, "txnindex"))).unwrap(), txn);
    let expected = fs::read(fixture().join("leader-epoch-checkpoint")).unwrap();
    assert_eq!(fs::read(dir.join("leader-epoch-checkpoint")).unwrap(), expected);
    for kept in [
        name(57, "timeindex"),
        name(11, "txnindex"),
        name(57, "snapshot"),
        "report.txt".to_owned(),
    ] {
        assert!(dir.join("quarantine").join(&kept).exists(), "{kept}");
    }
}

#[test]
fn damaged_segments_keep_their_whole_batches_and_their_ends() {
    let (_keep, dir) = kafka_partition();
    let (middle, last) = (
        dir.join("00000000000000000011.log"),
        dir.join("00000000000000000062.log"),
    );
    let whole = fs::read(&middle).unwrap();
    let first_batch = 12 + i32::from_be_bytes(whole[8..12].try_into().unwrap()) as usize;
    change(&middle, |bytes| bytes[first_batch + 30] ^= 8);
    change(&last, |bytes| bytes.truncate(bytes.len() - 5));
    let expectation = Expectation {
        durable_end: Offset(79),
        ..Expectation::default()
    };
    let plan = repair_partition(&dir, &expectation);
    let [(first, end), (tail, tail_end)] = plan.lost[..] else {
        panic!("{:?}", plan.lost)
    };
    assert!(
        first > Offset(11) && end < Offset(57) && tail >= Offset(62),
        "{:?}",
        plan.lost
    );
    assert_eq!((tail_end, plan.end), (Offset(79), Offset(79)));
    let report = check_with(&dir, &expectation);
    assert_eq!(
        report
            .findings
            .iter()
            .filter(|f| f.severity == Severity::Damage)
            .count(),
        0,
        "{:#?}",
        report.findings
    );
    assert_eq!(report.end_offset, Offset(79), "an empty segment keeps the end");
    assert_eq!(
        report.segments.last().map(|segment| segment.base),
        Some(Offset(79))
    );
    let mut kept = fs::read(dir.join("quarantine/00000000000000000011.log")).unwrap();
    kept[first_batch + 30] ^= 8;
    assert!(kept == whole, "the old file is there");
    let again = plan_of(&dir, &expectation);
    assert!(again.lost.is_empty(), "{again:?}");
}

fn plan_of(dir: &Path, expectation: &Expectation) -> Plan {
    plan(&check_with(dir, expectation), expectation.durable_end)
}

#[test]
fn a_repaired_directory_of_ours_is_opened_and_goes_on_at_its_end() {
    let root = tempfile::tempdir().unwrap();
    with_store(root.path(), async |store| {
        fill(store, 300).await;
        true
    });
    let (survey, _) = look(root.path());
    let mut bases: Vec<PathBuf> = fs::read_dir(root.path().join("t-0"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect();
    bases.sort();
    change(&bases[1], |bytes| bytes[1000] ^= 1);
    change(bases.last().unwrap(), |bytes| bytes.truncate(bytes.len() - 100));
    let name = PartitionName::parse("t-0").unwrap();
    let report = partition(&root.path().join("t-0"), &survey.expectation(&name), &mut |_| {}).unwrap();
    let plan = plan(&report, survey.durable_end(&name));
    assert_eq!(plan.lost.len(), 2, "{plan:?}");
    assert_eq!(plan.end, Offset(900));
    replay_journals(root.path()).unwrap();
    carry_out(&plan, "").unwrap();
    note_repairs(root.path(), &[(name, plan)]).unwrap();
    with_store(root.path(), async |store| {
        let id = LogId {
            topic: TopicId([3; 16]),
            partition: 0,
        };
        let config = LogConfig {
            segment_bytes: 64 << 10,
            ..LogConfig::default()
        };
        let log = store.open_log(id, "t", config, NOW_MS).await.unwrap();
        assert_eq!(store.offsets(log).unwrap().log_end, Offset(900));
        let read = common::read_log(store, log, Offset(897), 1 << 20).await;
        assert_eq!(read.len(), 298, "all but the two damaged batches");
        let appended = common::append(store, log, batch(2, 200, NOW_MS, PLAIN, 1), NOW_MS);
        assert_eq!(appended.base_offset, Offset(900));
        let read = common::read_log(store, log, Offset(902), 1 << 20).await;
        assert_eq!(
            read.last().map(|batch| batch.base),
            Some(Offset(900)),
            "behind the hole"
        );
        true
    });
    let (_, report) = look(root.path());
    assert_eq!(serious(&report), Vec::<&Finding>::new());
}
