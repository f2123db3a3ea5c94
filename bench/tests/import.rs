//! A data directory that Apache Kafka 4.3.1 filled and left, taken over whole by `penstock log import`: through a client every
//! topic, id, config, record, offset, timestamp and epoch is the same, aborted records stay hidden, groups go on where they were,
//! and writing goes on at the next offset.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use bench::clients::{librdkafka_python, report_skip, require_all};
use bench::kafka::{self, Kafka, KafkaOptions};
use bench::process::{Broker, Profile, binary};

const TEST: &str = "everything_a_stopped_kafka_left_is_the_same_through_a_client";
/// What Kafka is started with, and ours after it.
const SETTINGS: [&str; 3] = [
    "log.segment.bytes=1048576",
    "log.cleaner.backoff.ms=500",
    "offsets.topic.num.partitions=7",
];

/// Runs the Python program and returns what it printed.
fn drive(python: &Path, command: &str, bootstrap: &str) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Command::new(python)
        .arg(here.join("import/driver.py"))
        .args([command, bootstrap])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "driver.py {command}: {errors}");
    String::from_utf8(out.stdout).expect("it prints UTF-8")
}

/// Runs `penstock log import`.
fn import(source: &Path, to: &Path, more: &[&str]) -> Output {
    Command::new(binary(Profile::Dev).expect("a broker can be built"))
        .args(["log", "import"])
        .arg(source)
        .arg("--to")
        .arg(to)
        .args(more)
        .output()
        .expect("penstock runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The first line that differs, and how many there are.
fn compare(kafka: &str, ours: &str) {
    let differs = kafka.lines().zip(ours.lines()).find(|(one, two)| one != two);
    assert_eq!(differs, None, "Kafka's answer and ours");
    assert_eq!(kafka.lines().count(), ours.lines().count());
}

fn fill(python: &Path, dir: &Path) -> (PathBuf, String) {
    let options = KafkaOptions::new(dir, "512m", &SETTINGS).expect("two free ports");
    let kafka = Kafka::start(&options).expect("Kafka starts");
    let bootstrap = kafka.bootstrap();
    drive(python, "fill", &bootstrap);
    let seen = drive(python, "read", &bootstrap);
    let running = import(&dir.join("data"), &dir.join("nowhere"), &[]);
    assert_eq!(
        running.status.code(),
        Some(69),
        "a running Kafka is left alone: {}",
        text(&running.stderr)
    );
    assert!(
        text(&running.stderr).contains(&format!("process {}", kafka.pid())),
        "{}",
        text(&running.stderr)
    );
    drop(kafka); // stops it in order
    (dir.join("data"), seen)
}

/// Of the lines `TOPIC PARTITION read_uncommitted: LOW to HIGH` the ends.
fn ends(seen: &str) -> BTreeMap<(String, String), u64> {
    let end = |line: &str| {
        let (place, offsets) = line.split_once(" read_uncommitted: ")?;
        let (topic, partition) = place.split_once(' ')?;
        let (_, end) = offsets.split_once(" to ")?;
        Some(((topic.to_owned(), partition.to_owned()), end.parse().ok()?))
    };
    seen.lines().filter_map(end).collect()
}

#[test]
#[allow(clippy::too_many_lines, reason = "one story, told in order")]
fn everything_a_stopped_kafka_left_is_the_same_through_a_client() {
    let python = librdkafka_python().expect("the client can be set up");
    let missing = kafka::missing().or_else(|| python.is_none().then_some("python3 is missing"));
    let (Some(python), None) = (python, missing) else {
        let missing = missing.unwrap_or_default();
        assert!(!require_all(), "{missing}");
        report_skip(TEST, missing);
        return;
    };
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (source, seen) = fill(&python, &dir.path().join("kafka"));
    let lines = |part: &str| seen.lines().filter(|line| line.contains(part)).count();
    assert!(
        lines("read_uncommitted") > 40_000,
        "records of every topic: {}",
        lines("read_uncommitted")
    );
    let of = |isolation: &str| {
        lines(&format!("transactions 0 {isolation} ")) + lines(&format!("transactions 1 {isolation} "))
    };
    let hidden = of("read_uncommitted") - of("read_committed");
    assert!(hidden > 500, "{hidden} records of aborted transactions");
    assert!(
        lines("config TOPIC codec.gzip retention.ms=1234567890123") == 1,
        "{seen:.400}"
    );

    let mut broker = Broker::new(Profile::Dev, &dir.path().join("penstock"), &SETTINGS).expect("a broker");
    let to = broker.data_dir();
    let dry = import(&source, &to, &[]);
    assert!(dry.status.success(), "{}{}", text(&dry.stdout), text(&dry.stderr));
    assert!(
        text(&dry.stdout).contains("Nothing was written") && !to.exists(),
        "{}",
        text(&dry.stdout)
    );
    let done = import(&source, &to, &["--write"]);
    assert!(
        done.status.success(),
        "{}{}",
        text(&done.stdout),
        text(&done.stderr)
    );
    let again = import(&source, &to, &["--write"]);
    assert_eq!(
        again.status.code(),
        Some(65),
        "a directory with data is left alone"
    );

    broker
        .start(None)
        .expect("the broker starts on what was imported");
    compare(&seen, &drive(&python, "read", &broker.bootstrap()));
    let resumed = drive(&python, "resume", &broker.bootstrap());
    assert_eq!(
        resumed.lines().count(),
        6 * 15,
        "six groups, five topics of three partitions"
    );
    for line in resumed.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[3], words[4], "a group goes on where it was: {line}");
    }
    for round in 0..2 {
        let added = drive(&python, "add", &broker.bootstrap());
        for line in added.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let end = ends(&seen)[&(words[0].to_owned(), words[1].to_owned())];
            assert_eq!(words[2].parse(), Ok(end + round), "the next offset: {line}");
        }
        assert_eq!(added.lines().count(), ends(&seen).len());
        broker.kill().expect("kill -9");
        broker.start(None).expect("the broker starts again");
    }
    broker.terminate(Duration::from_secs(30)).expect("a clean stop");
    let verified = Command::new(binary(Profile::Dev).expect("a broker can be built"))
        .args(["log", "verify"])
        .arg(&to)
        .output()
        .expect("penstock runs");
    assert!(
        verified.status.success(),
        "{}{}",
        text(&verified.stdout),
        text(&verified.stderr)
    );
}
