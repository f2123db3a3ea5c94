//! Kafka's LogCompactionTester with each codec against our broker (CP-3, CP-4), `kafka-dump-log` on what is left (CP-7).
#![allow(clippy::print_stdout)] // the figures are what the test is for

use bench::clients::{report_skip, require_all};
use bench::kafka;
use bench::tools::compaction::{ours, run};

fn passes(codec: &str) {
    let name = format!("log_compaction_tester_{codec}");
    if let Some(why) = kafka::missing() {
        assert!(!require_all(), "{why}");
        report_skip(&name, why);
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary folder");
    let found = run(ours(), dir.path(), codec).unwrap_or_else(|error| panic!("{error}"));
    println!("{codec}: {found:?}");
    assert!(
        found.consumed * 3 < found.produced * 2,
        "it was hardly compacted: {found:?}"
    );
    assert!(found.segments > 0 && found.batches > 0, "{found:?}");
}

#[test]
fn log_compaction_tester_passes_without_compression() {
    passes("none");
}

#[test]
fn log_compaction_tester_passes_with_gzip() {
    passes("gzip");
}

#[test]
fn log_compaction_tester_passes_with_snappy() {
    passes("snappy");
}

#[test]
fn log_compaction_tester_passes_with_lz4() {
    passes("lz4");
}

#[test]
fn log_compaction_tester_passes_with_zstd() {
    passes("zstd");
}
