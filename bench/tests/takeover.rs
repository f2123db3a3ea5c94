//! Partition directories that Apache Kafka 4.3.1 wrote, taken over by our broker as docs/OPERATIONS.md says: a client sees the
//! same records, offsets, epochs and times, and writing goes on at the next offset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bench::clients::{librdkafka_python, report_skip, require_all};
use bench::kafka::{self, Kafka, KafkaOptions};
use bench::process::{Broker, Profile};

const TOPIC: &str = "taken-over";
/// Partitions of the records in `clients/common/records.py`.
const PARTITIONS: u32 = 4;
/// Records for each of the five codecs: several segments of the smallest size that Kafka allows in each partition.
const RECORDS: &str = "8000";
const SEGMENT_BYTES: &str = "log.segment.bytes=1048576";
/// The file of a partition directory that ties it to a topic of its cluster.
const OWN_FILE: &str = "partition.metadata";

/// Runs the Python program and returns what it printed.
fn drive(python: &Path, arguments: &[&str]) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Command::new(python)
        .arg(here.join("takeover/driver.py"))
        .args(arguments)
        .env("PYTHONPATH", here.join("clients/common"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "driver.py {arguments:?}: {errors}");
    String::from_utf8(out.stdout).expect("it prints UTF-8")
}

fn partition_dir(data: &Path, partition: u32) -> PathBuf {
    data.join(format!("{TOPIC}-{partition}"))
}

/// The files of a directory with their content.
fn content(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let files = entries.map(|entry| {
        let entry = entry.expect("the folder is readable");
        let name = entry.file_name().into_string().expect("names are ASCII");
        (name, std::fs::read(entry.path()).expect("a file"))
    });
    files.collect()
}

/// The step that docs/OPERATIONS.md describes: our directory keeps its `partition.metadata`, everything else is Kafka's.
fn replace(ours: &Path, theirs: &Path) {
    for name in content(ours).into_keys().filter(|name| name != OWN_FILE) {
        std::fs::remove_file(ours.join(name)).expect("removed");
    }
    for (name, bytes) in content(theirs).into_iter().filter(|(name, _)| name != OWN_FILE) {
        std::fs::write(ours.join(name), bytes).expect("written");
    }
}

fn logs(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let all = content(dir).into_iter();
    all.filter(|(name, _)| Path::new(name).extension().is_some_and(|end| end == "log"))
        .collect()
}

/// Apache Kafka's partition directories, and what a client reads of them there.
fn written_by_kafka(python: &Path, dir: &Path) -> (PathBuf, String) {
    let options = KafkaOptions::new(dir, "512m", &[SEGMENT_BYTES]).expect("two free ports");
    let kafka = Kafka::start(&options).expect("Kafka starts");
    let bootstrap = kafka.bootstrap();
    drive(python, &["create", &bootstrap, TOPIC]);
    drive(python, &["fill", &bootstrap, TOPIC, RECORDS]);
    let seen = drive(python, &["read", &bootstrap, TOPIC]);
    drop(kafka); // stops it in order
    (dir.join("data"), seen)
}

#[test]
fn a_partition_directory_of_apache_kafka_is_read_and_continued() {
    let test = "a_partition_directory_of_apache_kafka_is_read_and_continued";
    let python = librdkafka_python().expect("the client can be set up");
    let missing = kafka::missing().or_else(|| python.is_none().then_some("python3 is missing"));
    let (Some(python), None) = (python, missing) else {
        let missing = missing.unwrap_or_default();
        assert!(!require_all(), "{missing}");
        report_skip(test, missing);
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (theirs, seen) = written_by_kafka(&python, &dir.path().join("kafka"));
    let mut broker = Broker::new(Profile::Dev, &dir.path().join("penstock"), &[SEGMENT_BYTES])
        .expect("a broker can be built");
    broker.start(None).expect("the broker starts");
    drive(&python, &["create", &broker.bootstrap(), TOPIC]);
    broker.terminate(Duration::from_secs(30)).expect("a clean stop");
    for partition in 0..PARTITIONS {
        let (ours, theirs) = (
            partition_dir(&broker.data_dir(), partition),
            partition_dir(&theirs, partition),
        );
        assert!(
            logs(&theirs).len() >= 2,
            "too few segments in {}",
            theirs.display()
        );
        replace(&ours, &theirs);
    }
    broker.start(None).expect("the broker starts on Kafka's files");
    let found = drive(&python, &["read", &broker.bootstrap(), TOPIC]);
    let differs = seen.lines().zip(found.lines()).find(|(one, two)| one != two);
    assert_eq!(differs, None, "Kafka's answer and ours");
    assert_eq!(seen.lines().count(), found.lines().count());
    assert!(seen.lines().count() > 40_000, "five codecs of 8,000 records");
    for partition in 0..PARTITIONS {
        let (ours, theirs) = (
            partition_dir(&broker.data_dir(), partition),
            partition_dir(&theirs, partition),
        );
        assert!(
            logs(&ours) == logs(&theirs),
            "the segments of partition {partition} changed"
        );
    }
    let ends: BTreeMap<_, _> = seen.lines().filter_map(end_of_partition).collect();
    assert_eq!(ends.len(), PARTITIONS as usize);
    for restarted in [false, true] {
        if restarted {
            broker.kill().expect("kill -9");
            broker.start(None).expect("the broker starts again");
        }
        let added = drive(&python, &["add", &broker.bootstrap(), TOPIC]);
        let mut lines: Vec<_> = added.lines().collect();
        lines.sort_unstable();
        let expected = ends
            .iter()
            .map(|(partition, end)| format!("{partition} {}", end + u64::from(restarted)));
        assert_eq!(lines, expected.collect::<Vec<_>>(), "the next offsets");
    }
}

/// Of the line `partition P: LOW to HIGH` the number and the end.
fn end_of_partition(line: &str) -> Option<(u32, u64)> {
    let (partition, offsets) = line.strip_prefix("partition ")?.split_once(": ")?;
    let (_, end) = offsets.split_once(" to ")?;
    Some((partition.parse().ok()?, end.parse().ok()?))
}
