//! Compaction by a running broker: of each key the newest record stays, at the offset it was acknowledged with; tombstones go
//! after their time; stops in order and kills in between change none of that, and readers go on meanwhile (CP-1, CP-3, CP-4,
//! CP-7, CP-9).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nix::sys::signal::Signal;
use protocol::compression::{Codec, CodecContexts};
use protocol::messages::fetch::FetchResponse;
use protocol::messages::produce::ProduceResponse;
use protocol::record::{BatchBuilder, BatchOptions, BatchView, NewRecord, RecordStream};
use protocol::{ErrorCode, RecordBytes};

use crate::admin::sample;
use crate::stop::{create_topic_with, fetch_request, log_end, produce_request};
use crate::support::{Broker, Client, PATIENCE, now_ms};

/// Each look of the cleaner comes soon after the one before.
const FAST: [&str; 2] = ["penstock.shards=1", "log.cleaner.backoff.ms=50"];

/// Batches are so much later than those before: more than a segment may span, so that each closes the segment before.
const STEP_MS: i64 = 10_000;

/// Records of a batch.
const BATCH: usize = 5;

/// What was sent to the topic, by offset.
struct Topic {
    name: &'static str,
    sent: Vec<(String, Option<String>)>,
    began_ms: i64,
    contexts: CodecContexts,
}

impl Topic {
    fn create(client: &mut Client, name: &'static str, delete_retention_ms: &str) -> Self {
        let configs = [
            ("cleanup.policy", "compact"),
            ("segment.ms", "1000"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("delete.retention.ms", delete_retention_ms),
        ];
        create_topic_with(client, name, 1, &configs);
        Self {
            name,
            sent: Vec::new(),
            began_ms: now_ms() - 3_600_000,
            contexts: CodecContexts::default(),
        }
    }

    /// The next batch, with each codec in turn: of keys that come again and again, and one that comes once.
    fn next(&mut self, tombstone: Option<&str>) -> Bytes {
        let number = self.sent.len() / BATCH;
        let codec = Codec::ALL[number % Codec::ALL.len()];
        let options = BatchOptions {
            codec,
            level: codec.level_default(),
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options, &mut self.contexts.compressor);
        for record in 0..BATCH {
            let (key, value) = match (record, tombstone) {
                (0, Some(key)) => (key.to_owned(), None),
                (0, None) => (format!("once-{number}"), Some("x".to_owned())),
                _ => {
                    let key = format!("key-{}", (number * 3 + record) % 11);
                    (key, Some(format!("{number}-{record}-{}", "v".repeat(300))))
                }
            };
            let record = NewRecord {
                timestamp: self.began_ms + number as i64 * STEP_MS,
                key: Some(key.as_bytes()),
                value: value.as_ref().map(String::as_bytes),
                headers: &[],
            };
            builder.append(&record).unwrap();
            self.sent.push((key, value));
        }
        builder.finish().unwrap().bytes
    }

    fn produce(&mut self, client: &mut Client, batches: usize, tombstone: Option<&str>) {
        for _ in 0..batches {
            let base = self.sent.len() as i64;
            let request = produce_request(self.name, 0, self.next(tombstone));
            let response: ProduceResponse = client.call(&request, 7).unwrap();
            let part = &response.responses[0].partition_responses[0];
            assert_eq!((part.error_code, part.base_offset), (ErrorCode::NONE, base));
        }
    }

    /// Reads all of the log, checks it, and gives the offsets of its records: each is as it was sent, and of each key the newest
    /// is there, unless it is a tombstone.
    fn check(&self, client: &mut Client) -> Vec<i64> {
        assert_eq!(log_end(client, self.name), self.sent.len() as i64);
        let found = read(client, self.name, 0);
        for (offset, key, value) in &found {
            assert_eq!(
                self.sent.get(*offset as usize),
                Some(&(key.clone(), value.clone())),
                "at {offset}"
            );
        }
        let found: Vec<i64> = found.into_iter().map(|(offset, ..)| offset).collect();
        assert!(found.is_sorted(), "{found:?}");
        for offset in self.newest(self.sent.len()) {
            let is_there = found.binary_search(&offset).is_ok();
            assert!(
                is_there || self.sent[offset as usize].1.is_none(),
                "{offset} is gone of {found:?}"
            );
        }
        found
    }

    /// Offsets of the newest records of all keys below `end`, in order.
    fn newest(&self, end: usize) -> Vec<i64> {
        let newest: BTreeMap<&String, i64> = self.sent[..end].iter().map(|(key, _)| key).zip(0..).collect();
        let mut newest: Vec<i64> = newest.into_values().collect();
        newest.sort_unstable();
        newest
    }

    /// Waits until nothing is left but the newest records and those of the last batch, whose segment compaction does not look at.
    fn until_compacted(&self, client: &mut Client) {
        let active = (self.sent.len() - BATCH) as i64;
        let newest = self.newest(self.sent.len() - BATCH);
        let began = Instant::now();
        loop {
            let found = self.check(client);
            let old = found
                .iter()
                .filter(|offset| **offset < active && newest.binary_search(offset).is_err());
            let old: Vec<&i64> = old.collect();
            if old.is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{old:?} are still there");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// At every offset there is the batch that covers it, or the next one (CP-9).
    fn check_every_offset(&self, client: &mut Client) {
        let all = read(client, self.name, 0);
        for offset in 0..self.sent.len() as i64 {
            let mut found = read(client, self.name, offset);
            found.retain(|(found, ..)| *found >= offset);
            let expected: Vec<_> = all
                .iter()
                .filter(|(found, ..)| *found >= offset)
                .cloned()
                .collect();
            assert!(found == expected, "from {offset}");
        }
    }
}

/// All records from `from` on: offset, key, value; also those before it that come in its batch.
fn read(client: &mut Client, topic: &str, from: i64) -> Vec<(i64, String, Option<String>)> {
    let mut contexts = CodecContexts::default();
    let mut next = from;
    let mut found = Vec::new();
    loop {
        let mut request = fetch_request(topic, 1, next);
        request.max_wait_ms = 0;
        let response: FetchResponse = client.call(&request, 11).unwrap();
        let part = response
            .responses
            .into_iter()
            .next()
            .unwrap()
            .partitions
            .into_iter()
            .next()
            .unwrap();
        assert_eq!(part.error_code, ErrorCode::NONE, "at {next}");
        let bytes = part.records.map(RecordBytes::into_bytes).unwrap_or_default();
        if bytes.is_empty() {
            return found;
        }
        let mut at = 0;
        while at < bytes.len() {
            let view = BatchView::parse(&bytes[at..], 0).unwrap();
            view.check_crc(0).unwrap();
            let header = *view.header();
            assert!(header.next_offset() > next, "{header:?} at {next}");
            let mut records = RecordStream::new(&view, &mut contexts.decompressor, 1 << 20).unwrap();
            while let Some(record) = records.next_record().unwrap() {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let offset = header.base_offset + i64::from(record.offset_delta);
                found.push((offset, text(record.key.unwrap()), record.value.map(text)));
            }
            next = header.next_offset();
            at += view.bytes().len();
        }
    }
}

/// Nothing went wrong by the log's account.
fn assert_calm(dir: &Path) {
    let stderr = std::fs::read_to_string(dir.join("stderr")).unwrap();
    for word in ["ERROR", "offline", "compacted any more", "no room"] {
        assert!(!stderr.contains(word), "{word}: {stderr}");
    }
}

fn segments(dir: &Path, topic: &str) -> usize {
    let files = std::fs::read_dir(dir.join(format!("data/{topic}-0"))).unwrap();
    let names = files.map(|file| file.unwrap().path());
    names
        .filter(|path| path.extension().is_some_and(|found| found == "log"))
        .count()
}

#[test]
fn cp_3_the_newest_record_of_each_key_stays_at_its_offset_and_a_restart_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &FAST);
    let mut client = Client::connect(broker.address);
    let mut topic = Topic::create(&mut client, "newest", "60000");
    topic.produce(&mut client, 30, None);
    topic.until_compacted(&mut client);
    topic.check_every_offset(&mut client);
    // Twenty-nine closed segments become few.
    let began = Instant::now();
    while segments(dir.path(), "newest") > 5 {
        assert!(
            began.elapsed() < PATIENCE,
            "{} segments",
            segments(dir.path(), "newest")
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let metrics = broker.get("/metrics").1;
    for name in [
        "passes",
        "read_bytes",
        "written_bytes",
        "batches_changed",
        "segments_saved",
    ] {
        let name = format!("penstock_compaction_{name}_total{{shard=\"0\"}}");
        assert!(sample(&metrics, &name) > Some(0.0), "{name}");
    }
    assert_eq!(
        sample(
            &metrics,
            "kafka_log_logcleanermanager_uncleanable_partitions_count"
        ),
        Some(0.0)
    );
    assert_calm(dir.path());

    broker.signal(Signal::SIGTERM);
    assert_eq!(broker.end().0.code(), Some(0));
    let broker = Broker::start(dir.path(), &FAST);
    // The start has put together what the shards had noted.
    let checkpoint = std::fs::read_to_string(dir.path().join("data/cleaner-offset-checkpoint")).unwrap();
    let cleaned = checkpoint
        .lines()
        .find(|line| line.starts_with("newest 0 "))
        .unwrap();
    assert_eq!(cleaned, "newest 0 145", "up to the active segment");
    let mut client = Client::connect(broker.address);
    topic.check_every_offset(&mut client);
    topic.produce(&mut client, 10, None);
    topic.until_compacted(&mut client);
    assert_calm(dir.path());

    broker.signal(Signal::SIGKILL);
    broker.end();
    let broker = Broker::start(dir.path(), &FAST);
    let mut client = Client::connect(broker.address);
    topic.check_every_offset(&mut client);
    topic.produce(&mut client, 10, None);
    topic.until_compacted(&mut client);
    topic.check_every_offset(&mut client);
    assert_calm(dir.path());
}

/// CP-4. What takes them away is the first pass after their time; it needs something to clean.
#[test]
fn cp_4_tombstones_hide_the_records_before_them_and_go_after_delete_retention_ms() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Broker::start(dir.path(), &FAST);
    let mut client = Client::connect(broker.address);
    let mut long = Topic::create(&mut client, "long", "3600000");
    let mut short = Topic::create(&mut client, "short", "200");
    for topic in [&mut long, &mut short] {
        topic.produce(&mut client, 3, None);
        topic.produce(&mut client, 1, Some("once-1"));
        topic.produce(&mut client, 3, None);
        topic.until_compacted(&mut client);
    }
    let tombstone = 3 * BATCH as i64;
    let began = Instant::now();
    while short.check(&mut client).contains(&tombstone) {
        assert!(began.elapsed() < PATIENCE, "the tombstone is still there");
        short.produce(&mut client, 1, None);
        short.until_compacted(&mut client);
    }
    let gone = BATCH as i64;
    assert!(
        !short.check(&mut client).contains(&gone),
        "what it was for has gone before it"
    );
    long.produce(&mut client, 5, None);
    long.until_compacted(&mut client);
    let found = long.check(&mut client);
    assert!(found.contains(&tombstone) && !found.contains(&gone), "{found:?}");
    assert_calm(dir.path());
}

/// CP-7: kills while segments are replaced, with a batch on its way, and a reader that goes on until each of them.
#[test]
fn cp_7_kills_during_compaction_lose_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut topic = None;
    for round in 0..6u64 {
        let broker = Broker::start(dir.path(), &FAST);
        let mut client = Client::connect(broker.address);
        let topic = topic.get_or_insert_with(|| Topic::create(&mut client, "killed", "200"));
        topic.check(&mut client);
        let ends = Arc::new(AtomicBool::new(false));
        let reader = {
            let (name, ends, address) = (topic.name, Arc::clone(&ends), broker.address);
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut reads = 0;
                while !ends.load(Ordering::Relaxed) {
                    read(&mut client, name, 0);
                    reads += 1;
                }
                reads
            })
        };
        topic.produce(&mut client, 12, None);
        std::thread::sleep(Duration::from_millis(20 * round));
        ends.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
        let before = topic.sent.len();
        let request = produce_request(topic.name, 0, topic.next(None));
        client.send(&request, 7).unwrap();
        broker.signal(Signal::SIGKILL);
        broker.end();
        let broker = Broker::start(dir.path(), &FAST);
        let mut client = Client::connect(broker.address);
        let end = log_end(&mut client, topic.name) as usize;
        assert!(
            end == before || end == topic.sent.len(),
            "{end}, {before} were acknowledged"
        );
        topic.sent.truncate(end);
        topic.check(&mut client);
        topic.produce(&mut client, 1, None);
        topic.until_compacted(&mut client);
        topic.check_every_offset(&mut client);
        assert_calm(dir.path());
        if round % 2 == 0 {
            broker.signal(Signal::SIGTERM);
            assert_eq!(broker.end().0.code(), Some(0));
        }
    }
}
