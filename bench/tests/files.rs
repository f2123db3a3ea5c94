//! Kafka's own `DumpLogSegments` on the files of our broker: closed segments while it runs, all of them after a clean stop, with
//! their indexes and producer snapshots.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bench::clients::{report_skip, require_all};
use bench::kafka::{self, tool};
use bench::process::{Broker, Profile};
use bench::roundtrip::{CODECS, kcat_installed, make_text, round_trip};

/// Bytes of the text in each topic.
const TEXT_BYTES: u64 = 5_000_000;
/// The smallest segment that Kafka allows.
const SEGMENT_BYTES: &str = "log.segment.bytes=1048576";
/// What a broken file makes `DumpLogSegments` say.
const COMPLAINTS: [&str; 7] = [
    "mismatch",
    "isvalid: false",
    "corrupt",
    "Exception",
    "failed",
    "Non-consecutive",
    "out of order",
];

fn dump(files: &[PathBuf], flag: &str) -> String {
    let names: Vec<_> = files
        .iter()
        .map(|path| path.to_str().expect("our paths are UTF-8"))
        .collect();
    let mut command = tool("org.apache.kafka.tools.DumpLogSegments");
    command
        .args(["--files", &names.join(",")])
        .args(Some(flag).filter(|flag| !flag.is_empty()));
    let out = out_of(&mut command);
    for line in out.lines() {
        let low = line.to_lowercase();
        let complaint = COMPLAINTS
            .iter()
            .find(|words| low.contains(&words.to_lowercase()));
        assert!(complaint.is_none(), "DumpLogSegments {flag} says: {line}");
    }
    out
}

fn out_of(command: &mut std::process::Command) -> String {
    let out = command.output().expect("DumpLogSegments runs");
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success() && !errors.contains("Exception"),
        "{}: {errors}",
        out.status
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Files of a partition with this ending, in the order of their offsets.
fn files(partition: &Path, ending: &str) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(partition).unwrap_or_else(|error| panic!("{}: {error}", partition.display()));
    let mut found: Vec<_> = entries
        .map(|entry| entry.expect("the folder is readable").path())
        .filter(|path| path.extension().is_some_and(|end| end == ending))
        .collect();
    found.sort();
    found
}

/// Records that a deep dump shows; their offsets have no gap from the first one on.
fn records(dump: &str, topic: &str) -> u64 {
    let offsets = dump.lines().filter_map(|line| {
        line.strip_prefix("| offset: ")?
            .split(' ')
            .next()?
            .parse::<u64>()
            .ok()
    });
    let mut next = 0;
    for offset in offsets {
        assert_eq!(offset, next, "{topic}: offsets in the dump");
        next += 1;
    }
    next
}

#[test]
fn dump_log_segments_reads_our_files() {
    let missing = kafka::missing().or_else(|| (!kcat_installed()).then_some("kcat is missing"));
    if let Some(missing) = missing {
        assert!(!require_all(), "{missing}");
        report_skip("dump_log_segments_reads_our_files", missing);
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let text = dir.path().join("text");
    make_text(&text, TEXT_BYTES).expect("a text file");
    let lines = std::fs::read(&text)
        .expect("it is there")
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count() as u64;
    let mut broker = Broker::new(Profile::Dev, dir.path(), &[SEGMENT_BYTES]).expect("a broker can be built");
    broker.start(None).expect("the broker starts");
    let topics: Vec<_> = CODECS.iter().map(|codec| format!("files-{codec}")).collect();
    for (codec, topic) in CODECS.iter().zip(&topics) {
        round_trip(&broker.bootstrap(), topic, codec, &text, dir.path()).expect("the text goes in and out");
    }
    let partitions: Vec<_> = topics
        .iter()
        .map(|topic| broker.data_dir().join(format!("{topic}-0")))
        .collect();
    // While the broker runs: every segment but the last one of each partition.
    let closed: Vec<_> = partitions
        .iter()
        .flat_map(|partition| {
            let mut all = files(partition, "log");
            all.pop();
            all
        })
        .collect();
    assert!(
        closed.len() >= CODECS.len(),
        "too few closed segments: {closed:?}"
    );
    dump(&closed, "--deep-iteration");
    broker.terminate(Duration::from_secs(20)).expect("a clean stop");
    for (partition, topic) in partitions.iter().zip(&topics) {
        let logs = files(partition, "log");
        assert_eq!(records(&dump(&logs, "--deep-iteration"), topic), lines, "{topic}");
        let indexes = [files(partition, "index"), files(partition, "timeindex")].concat();
        assert!(
            indexes.len() >= 2 * logs.len().saturating_sub(1),
            "{topic}: {} segments, {} indexes",
            logs.len(),
            indexes.len()
        );
        let sane = dump(&indexes, "--index-sanity-check");
        let passed = sane
            .lines()
            .filter(|line| line.contains("passed sanity check"))
            .count();
        assert_eq!(passed, indexes.len(), "{topic}: {sane}");
        dump(&indexes, "--verify-index-only");
        let snapshots = files(partition, "snapshot");
        assert!(
            !snapshots.is_empty(),
            "{topic}: kcat was idempotent, and no producer snapshot is there"
        );
        assert!(
            dump(&snapshots, "").contains("producerId:"),
            "{topic}: the snapshot has no producer"
        );
    }
}
