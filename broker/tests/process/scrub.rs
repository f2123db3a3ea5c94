//! The scrub of a running broker on real files: a bit flipped in a closed segment and one in the active one are logged once
//! each, with file, byte, offsets and checksums; metrics and health tell of them; both partitions go on serving.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::admin::sample;
use crate::stop::{create_topic, produce};
use crate::support::{Broker, Client, PATIENCE};

fn flip(path: &Path, position: u64) {
    let mut file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(position)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(position)).unwrap();
    file.write_all(&[byte[0] ^ 2]).unwrap();
    file.sync_all().unwrap();
}

/// Waits until so many segments are written behind, and the last of them to a part; the last.
fn last_segment(dir: &Path, segments: usize) -> PathBuf {
    let began = Instant::now();
    loop {
        let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let mut logs: Vec<_> = files
            .filter(|path| path.extension().is_some_and(|e| e == "log"))
            .collect();
        logs.sort();
        let last = logs.pop().unwrap();
        let mut head = [0; 8192];
        let mut file = std::fs::File::open(&last).unwrap();
        if logs.len() + 1 >= segments
            && file.read_exact(&mut head).is_ok()
            && head[8000..].iter().any(|byte| *byte != 0)
        {
            return last;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{} segments are written",
            logs.len() + 1
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a sample has at least this value.
fn wait_for(broker: &Broker, name: &str, least: f64) {
    let began = Instant::now();
    loop {
        let (_, text) = broker.get("/metrics");
        if sample(&text, name).is_some_and(|value| value >= least) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{name} stays below {least}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn flipped_bits_in_closed_and_active_segments_are_told_of_once_and_the_rest_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let overrides = [
        "penstock.shards=1",
        "penstock.scrub.bytes.per.second=1000000000",
        "penstock.scrub.interval.ms=100",
        "log.segment.bytes=1048576",
    ];
    let broker = Broker::start(dir.path(), &overrides);
    let mut client = Client::connect(broker.address);
    create_topic(&mut client, "bits", 2);
    // Batches of 150 kB, six or seven to a segment: several closed ones, and two batches or more in the active one, of which
    // the first at least is written behind.
    for _ in 0..32 {
        for partition in 0..2 {
            produce(&mut client, "bits", partition, 5000).unwrap();
        }
    }
    let log = |partition: i32, base: &str| {
        let name = format!("data/bits-{partition}/{base}.log");
        dir.path().join(name)
    };
    let first = "00000000000000000000";
    let active = last_segment(&dir.path().join("data/bits-1"), 5);
    wait_for(&broker, "penstock_scrub_passes_total{shard=\"0\"}", 1.0);
    let damaged = "penstock_scrub_damaged_places{shard=\"0\"}";
    assert_eq!(sample(&broker.get("/metrics").1, damaged), Some(0.0));

    flip(&log(0, first), 5000);
    flip(&active, 3000);
    wait_for(&broker, damaged, 2.0);
    let passes = sample(
        &broker.get("/metrics").1,
        "penstock_scrub_passes_total{shard=\"0\"}",
    )
    .unwrap();
    wait_for(&broker, "penstock_scrub_passes_total{shard=\"0\"}", passes + 2.0);
    let (_, text) = broker.get("/metrics");
    assert_eq!(
        sample(&text, "penstock_scrub_findings_total{shard=\"0\"}"),
        Some(2.0)
    );
    let (status, health) = broker.get("/health/ready");
    let health: serde_json::Value = serde_json::from_str(&health).unwrap();
    assert!(status.contains("200"), "{status}");
    assert_eq!(
        (&health["damaged_places"], &health["offline_partitions"]),
        (&2.into(), &0.into())
    );
    assert_eq!(health["status"], "degraded");
    for partition in 0..2 {
        produce(&mut client, "bits", partition, 10).unwrap();
    }

    let told = std::fs::read_to_string(dir.path().join("stderr")).unwrap();
    let lines: Vec<_> = told
        .lines()
        .filter(|line| line.contains("the scrub found damage"))
        .collect();
    assert_eq!(lines.len(), 2, "{told}");
    for path in [log(0, first), active] {
        let name = path.file_name().unwrap().to_str().unwrap();
        let folder = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let line = lines
            .iter()
            .find(|line| line.contains(&format!("{folder}/{name} is damaged at byte")));
        let line = line.unwrap_or_else(|| panic!("no line of {folder}/{name}: {told}"));
        assert!(
            line.contains("(offsets ") && line.contains("expected CRC 0x") && line.contains("found 0x"),
            "{line}"
        );
    }
}
