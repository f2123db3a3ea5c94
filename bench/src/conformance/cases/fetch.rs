//! Fetch: limits, waits, epochs, what is returned from where (FE-1 to FE-17) and the bug reports about reading.

use std::time::Instant;

use bytes::Bytes;
use protocol::compression::Codec;
use protocol::messages::fetch::{FetchRequest, FetchRequestFetchPartition, FetchRequestFetchTopic};
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::produce::ProduceRequest;
use protocol::{RecordBytes, Str, Uuid};

use super::super::Case;
use super::super::batch::{Rec, compressed, sequenced};
use super::super::dialogue::{Dialogue, Topic, delete_of, fetch_of, fetch_part, produce_of};
use super::super::target::{RACK, RESTARTS};
use super::versions::NO_TOPIC_ID;
use crate::error::Result;

pub(super) const CASES: &[Case] = &[
    Case::new("FE-1 partitions come in the order of the request", order),
    Case::new("FE-2 the first batch is returned whole over any limit (BR-078)", oversized).differs(
        "negative limits are read as 0, where Kafka fails inside with UNKNOWN_SERVER_ERROR",
    ),
    Case::new("FE-3 limits of the request and of partitions", limits),
    Case::new("FE-6 from the middle of a batch the whole batch, in every codec", middle),
    Case::new("FE-7 every offset can be read over many segments (BR-056)", every_offset),
    Case::new("FE-8 isolation levels without transactions", isolation).differs(
        "isolation levels that do not exist are read as read_uncommitted, where Kafka fails inside with UNKNOWN_SERVER_ERROR",
    ),
    Case::new("FE-9 offsets around the end and the start (BR-117, BR-129, BR-137)", edges),
    Case::new("FE-10 bounds also without records, deleted ones (BR-055)", bounds),
    Case::new("FE-11 aborted transactions and the last stable offset where there are no transactions (FE-12)", no_transactions),
    Case::new("FE-13 current leader epoch", leader_epochs),
    Case::new("FE-14 last fetched epoch", last_fetched),
    Case::new("FE-16 topics by id", by_id),
    Case::new("FE-18 a consumer says that it is a replica", replica_ids),
    Case::new("FE-19 several topics, repeated ones, none (BR-131)", several).differs("a partition that is listed twice is answered twice, in Kafka once"),
    Case::new("FE-30 a consumer's rack where no replica is nearer (FE-32)", racks).on(&RACK),
    Case::new("BR-031 offsets are dense over restarts", dense).on(&RESTARTS),
    Case::new("BR-057 the latest offset can always be read", latest_is_readable),
    Case::new("BR-119 zstd and Fetch below version 10", zstd_fetch),
];

fn part_of(topic: &Topic, parts: &[(i32, i64, i32)]) -> FetchRequestFetchTopic {
    FetchRequestFetchTopic {
        topic: topic.name.clone(),
        topic_id: topic.id,
        partitions: parts
            .iter()
            .map(
                |&(partition, offset, partition_max_bytes)| FetchRequestFetchPartition {
                    partition_max_bytes,
                    ..fetch_part(partition, offset)
                },
            )
            .collect(),
    }
}

fn limited(topics: Vec<FetchRequestFetchTopic>, max_bytes: i32) -> FetchRequest {
    FetchRequest {
        min_bytes: 1,
        max_bytes,
        topics,
        ..Default::default()
    }
}

/// Writes down where records came from and how many bytes, not the records.
fn sizes(d: &mut Dialogue<'_>, label: &str, version: i16, request: &FetchRequest) -> Result<()> {
    let began = Instant::now();
    let answer = d.quiet(version, request)?;
    let rows: Vec<_> = answer
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|part| {
            let bytes = part.records.as_ref().map_or(0, RecordBytes::len);
            format!("{}: {} {bytes} bytes", part.partition_index, part.error_code)
        })
        .collect();
    d.note(&format!("v{version} {label}: {}", rows.join(", ")));
    d.took(began, u64::try_from(request.max_wait_ms).unwrap_or(0).max(1000));
    Ok(())
}

/// A topic whose partitions hold so many batches of about 1000 bytes.
pub(super) fn filled(d: &mut Dialogue<'_>, short: &str, partitions: i32, batches: usize) -> Result<Topic> {
    let topic = d.topic(short, partitions, &[])?;
    for partition in 0..partitions {
        for _ in 0..batches {
            let bytes = compressed(Codec::None, &[Rec::of(d.stamp_ms(), vec![b'v'; 930])]);
            d.written(&topic, partition, bytes)?;
        }
    }
    Ok(topic)
}

fn order(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = filled(d, "a", 4, 1)?;
    let other = filled(d, "b", 2, 1)?;
    for version in [4, 12, 13, 18] {
        let request = limited(
            vec![part_of(
                &topic,
                &[(2, 0, 5000), (0, 0, 5000), (3, 0, 5000), (1, 0, 5000)],
            )],
            50_000,
        );
        sizes(d, "2, 0, 3, 1", version, &request)?;
        let request = limited(
            vec![
                part_of(&other, &[(1, 0, 5000)]),
                part_of(&topic, &[(3, 0, 5000)]),
                part_of(&other, &[(0, 0, 5000)]),
            ],
            50_000,
        );
        sizes(d, "b/1, a/3, b/0", version, &request)?;
    }
    Ok(())
}

fn oversized(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 3, &[("max.message.bytes", "4000000")])?;
    let large = compressed(Codec::None, &[Rec::of(d.stamp_ms(), vec![b'L'; 3 << 20])]);
    d.written(&topic, 0, large)?;
    for partition in [0, 1] {
        let small = d.batch(&["small"]);
        d.written(&topic, partition, small)?;
    }
    for version in [4, 12, 16] {
        for (label, parts, max_bytes) in [
            ("large first, 1 KiB", [(0, 0, 1024), (1, 0, 1024)], 1024),
            ("small first, 1 KiB", [(1, 0, 1024), (0, 0, 1024)], 1024),
            ("empty first, 1 KiB", [(2, 0, 1024), (0, 0, 1024)], 1024),
            ("large first, max_bytes 0", [(0, 0, 1024), (1, 0, 1024)], 0),
            ("large first, partition limit 0", [(0, 0, 0), (1, 0, 0)], 50 << 20),
            ("large first, negative limits", [(0, 0, -1), (1, 0, -1)], -1),
            ("the next after the large one", [(0, 1, 1024), (1, 0, 1024)], 1024),
        ] {
            sizes(
                d,
                label,
                version,
                &limited(vec![part_of(&topic, &parts)], max_bytes),
            )?;
        }
    }
    Ok(())
}

fn limits(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = filled(d, "a", 3, 5)?;
    for (label, parts, max_bytes) in [
        (
            "no limit binds",
            [(0, 0, 9000), (1, 0, 9000), (2, 0, 9000)],
            90_000,
        ),
        (
            "2500 for each partition",
            [(0, 0, 2500), (1, 0, 2500), (2, 0, 2500)],
            90_000,
        ),
        (
            "one byte for each partition",
            [(0, 0, 1), (1, 0, 1), (2, 0, 1)],
            90_000,
        ),
        (
            "exactly one batch each",
            [(0, 0, 1000), (1, 0, 1000), (2, 0, 1000)],
            90_000,
        ),
        ("6000 in all", [(0, 0, 9000), (1, 0, 9000), (2, 0, 9000)], 6000),
        ("one byte in all", [(0, 0, 9000), (1, 0, 9000), (2, 0, 9000)], 1),
        (
            "from different offsets",
            [(0, 4, 9000), (1, 5, 9000), (2, 2, 9000)],
            90_000,
        ),
    ] {
        let request = limited(vec![part_of(&topic, &parts)], max_bytes);
        let answer = d.quiet(12, &request)?;
        // Kafka may cut the last batch; what counts are whole ones.
        let whole: Vec<_> = answer
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|part| part.records.as_ref().map_or(0, RecordBytes::len) / 998)
            .collect();
        // How a limit over all is shared among later partitions is not a promise.
        d.note(&format!(
            "{label}: whole batches {}, of the first partition {}",
            whole.iter().sum::<usize>(),
            whole[0]
        ));
    }
    Ok(())
}

fn middle(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for codec in Codec::ALL {
        let bytes = compressed(codec, &d.records(&["0", "1", "2"]));
        d.written(&topic, 0, bytes)?;
    }
    for offset in 0..15 {
        let answer = d.quiet(12, &{
            let mut request = fetch_of([(&topic, 0, offset)], 0);
            request.topics[0].partitions[0].partition_max_bytes = 1;
            request
        })?;
        let mut parts = answer.responses.into_iter().flat_map(|topic| topic.partitions);
        let records = parts
            .next()
            .and_then(|part| part.records)
            .map(RecordBytes::into_bytes)
            .unwrap_or_default();
        let base = records.first_chunk::<8>().map(|bytes| i64::from_be_bytes(*bytes));
        d.note(&format!("offset {offset}: the first batch begins at {base:?}"));
    }
    d.fetch("from 7", &topic, 0, 7)?;
    Ok(())
}

fn every_offset(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("segment.bytes", "1048576")])?;
    for _ in 0..12 {
        let records: Vec<_> = (0..3)
            .map(|_| Rec::of(d.stamp_ms(), vec![b'v'; 100_000]))
            .collect();
        d.written(&topic, 0, compressed(Codec::None, &records))?;
    }
    let mut bad = Vec::new();
    for offset in 0..36 {
        let answer = d.quiet(12, &fetch_of([(&topic, 0, offset)], 0))?;
        let mut parts = answer.responses.into_iter().flat_map(|topic| topic.partitions);
        let records = parts
            .next()
            .and_then(|part| part.records)
            .map(RecordBytes::into_bytes)
            .unwrap_or_default();
        let base = records
            .first_chunk::<8>()
            .map_or(-1, |bytes| i64::from_be_bytes(*bytes));
        if base != offset - offset % 3 {
            bad.push((offset, base));
        }
    }
    d.note(&format!(
        "36 offsets in batches of 3, over 4 segments; wrong first batches: {bad:?}"
    ));
    Ok(())
}

fn isolation(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let bytes = d.batch(&["x"]);
    d.written(&topic, 0, bytes)?;
    for version in [4, 11, 13] {
        for level in [0i8, 1, 2, -1] {
            let mut request = fetch_of([(&topic, 0, 0), (&topic, 1, 0)], 0);
            request.isolation_level = level;
            d.ask(&format!("isolation level {level}"), version, &request)?;
        }
    }
    Ok(())
}

fn no_transactions(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let bytes = d.batch(&["0", "1", "2"]);
    d.written(&topic, 0, bytes)?;
    let producer = d.producer_id()?;
    let bytes = sequenced(producer, 0, 0, &d.records(&["idempotent"]));
    d.written(&topic, 0, bytes)?;
    d.quiet(2, &delete_of(&topic, &[(0, 1)]))?;
    for version in [4, 5, 11, 12, 18] {
        for isolation_level in [0i8, 1] {
            for (label, partition, offset) in [
                ("records", 0, 3),
                ("the end", 0, 4),
                ("behind the end", 0, 5),
                ("deleted", 0, 0),
                ("an empty log", 1, 0),
                ("no such partition", 2, 0),
            ] {
                let request = FetchRequest {
                    isolation_level,
                    ..fetch_of([(&topic, partition, offset)], 0)
                };
                d.ask(
                    &format!("isolation {isolation_level}, {label}"),
                    version,
                    &request,
                )?;
            }
        }
    }
    Ok(())
}

fn racks(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = d.batch(&["x"]);
    d.written(&topic, 0, bytes)?;
    for version in [4, 10, 11, 13, 18] {
        for rack in ["", "here", "there"] {
            let request = FetchRequest {
                rack_id: Str::from(if version < 11 { "" } else { rack }),
                ..fetch_of([(&topic, 0, 0)], 0)
            };
            d.ask(&format!("from rack {:?}", request.rack_id), version, &request)?;
        }
    }
    Ok(())
}

fn edges(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for offset in [0, 1, -1, i64::MAX, i64::MIN] {
        d.fetch(&format!("a new partition at {offset}"), &topic, 0, offset)?;
    }
    let bytes = d.batch(&["0", "1", "2"]);
    d.written(&topic, 0, bytes)?;
    d.quiet(2, &delete_of(&topic, &[(0, 1)]))?;
    for version in [4, 5, 12] {
        for offset in [0, 1, 2, 3, 4, 50, -1] {
            d.ask(
                &format!("1 to 3, at {offset}"),
                version,
                &fetch_of([(&topic, 0, offset)], 0),
            )?;
        }
    }
    Ok(())
}

fn bounds(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let values: Vec<_> = (0..10).map(|number| number.to_string()).collect();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let bytes = d.batch(&values);
    d.written(&topic, 0, bytes)?;
    d.quiet(2, &delete_of(&topic, &[(0, -1)]))?;
    for offset in [9, 10, 11] {
        d.fetch(&format!("all deleted, at {offset}"), &topic, 0, offset)?;
    }
    d.ask("earliest", 4, &offsets(&topic, -2))?;
    d.ask("latest", 4, &offsets(&topic, -1))?;
    let bytes = d.batch(&["new"]);
    d.produce("one more", &topic, 0, bytes)?;
    d.fetch("it", &topic, 0, 10)?;
    Ok(())
}

fn offsets(topic: &Topic, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.name.clone(),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch: -1,
                timestamp,
            }],
        }],
        ..Default::default()
    }
}

fn leader_epochs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = d.batch(&["x"]);
    d.written(&topic, 0, bytes)?;
    for version in [8, 9, 12, 15, 16, 18] {
        for epoch in [-1, 0, 1, 99, -2] {
            let mut request = fetch_of([(&topic, 0, 0)], 0);
            request.topics[0].partitions[0].current_leader_epoch = epoch;
            d.ask(&format!("current leader epoch {epoch}"), version, &request)?;
        }
    }
    Ok(())
}

fn last_fetched(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = d.batch(&["x", "y"]);
    d.written(&topic, 0, bytes)?;
    for version in [12, 13] {
        for (epoch, offset) in [(-1, 0), (0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (7, 2), (-2, 1)] {
            let mut request = fetch_of([(&topic, 0, offset)], 0);
            request.topics[0].partitions[0].last_fetched_epoch = epoch;
            d.ask(
                &format!("last fetched epoch {epoch} at {offset}"),
                version,
                &request,
            )?;
        }
    }
    Ok(())
}

fn by_id(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = d.batch(&["x"]);
    d.written(&topic, 0, bytes)?;
    let at = |id| Topic {
        name: topic.name.clone(),
        id,
    };
    for version in [13, 16, 18] {
        d.ask("good", version, &fetch_of([(&topic, 0, 0)], 0))?;
        d.ask("unknown id", version, &fetch_of([(&at(NO_TOPIC_ID), 0, 0)], 0))?;
        d.ask(
            "the zero id",
            version,
            &fetch_of([(&at(Uuid::default()), 0, 0)], 0),
        )?;
        d.ask("unknown partition", version, &fetch_of([(&topic, 7, 0)], 0))?;
        d.ask(
            "good and unknown",
            version,
            &fetch_of([(&at(NO_TOPIC_ID), 0, 0), (&topic, 0, 0)], 0),
        )?;
    }
    Ok(())
}

fn replica_ids(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = d.batch(&["x"]);
    d.written(&topic, 0, bytes)?;
    for (version, id) in [(4, -1), (12, -2), (14, -1), (15, -1), (17, -2)] {
        let mut request = fetch_of([(&topic, 0, 0)], 0);
        if version < 15 {
            request.replica_id = id;
        } else {
            request.replica_state.replica_id = id;
        }
        d.ask(&format!("replica {id}"), version, &request)?;
    }
    Ok(())
}

fn several(d: &mut Dialogue<'_>) -> Result<()> {
    let mut topics = Vec::new();
    for number in 0..5 {
        topics.push(d.topic(&format!("t{number}"), 4, &[])?);
    }
    for (number, partition) in [(0, 1), (2, 3), (4, 0)] {
        let bytes = d.batch(&[format!("{number}/{partition}").as_str()]);
        d.written(&topics[number], partition, bytes)?;
    }
    let mut request = limited(Vec::new(), 1 << 20);
    for number in [3, 0, 4, 1, 2] {
        request.topics.push(part_of(
            &topics[number],
            &[(3, 0, 5000), (1, 0, 5000), (0, 0, 5000), (2, 0, 5000)],
        ));
    }
    for version in [11, 12, 13] {
        let answer = d.quiet(version, &request)?;
        let rows = answer.responses.iter().flat_map(|topic| &topic.partitions);
        let full = rows
            .clone()
            .filter(|part| part.records.as_ref().is_some_and(|records| !records.is_empty()));
        d.note(&format!(
            "v{version}: {} partitions, {} with records",
            rows.clone().count(),
            full.count()
        ));
    }
    d.ask("zero topics", 12, &limited(Vec::new(), 1 << 20))?;
    d.ask(
        "a topic with no partitions",
        12,
        &limited(vec![part_of(&topics[0], &[])], 1 << 20),
    )?;
    for version in [4, 12] {
        let twice = limited(vec![part_of(&topics[0], &[(1, 0, 5000), (1, 0, 5000)])], 1 << 20);
        sizes(d, "the same partition twice", version, &twice)?;
        let twice = limited(
            vec![
                part_of(&topics[0], &[(1, 0, 5000)]),
                part_of(&topics[0], &[(1, 1, 5000)]),
            ],
            1 << 20,
        );
        sizes(d, "the same partition twice, other offsets", version, &twice)?;
    }
    Ok(())
}

fn dense(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let mut expected = 0;
    for round in 0..3 {
        for _ in 0..20 {
            let bytes = d.batch(&["a", "b", "c", "d", "e"]);
            let base = d.written(&topic, 0, bytes)?;
            if base != expected {
                d.note(&format!("a hole: {base} where {expected} was next"));
            }
            expected = base + 5;
        }
        d.hang_up();
        if round % 2 == 0 {
            d.target().kill_and_start()?;
        } else {
            d.target().stop_and_start()?;
        }
    }
    d.note(&format!("300 records over 3 restarts end at {expected}"));
    let answer = d.quiet(4, &offsets(&topic, -1))?;
    let end = answer
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|part| part.offset)
        .next();
    d.note(&format!("latest {end:?}"));
    let mut bad = 0;
    for offset in 0..300 {
        let answer = d.quiet(12, &fetch_of([(&topic, 0, offset)], 0))?;
        let mut parts = answer.responses.into_iter().flat_map(|topic| topic.partitions);
        let records = parts
            .next()
            .and_then(|part| part.records)
            .map(RecordBytes::into_bytes)
            .unwrap_or_default();
        let base = records
            .first_chunk::<8>()
            .map_or(-1, |bytes| i64::from_be_bytes(*bytes));
        bad += i32::from(base != offset - offset % 5);
    }
    d.note(&format!("offsets that cannot be read: {bad}"));
    Ok(())
}

fn latest_is_readable(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let mut writer = d.connect()?;
    let mut last = 0;
    let mut wrong = 0;
    for _ in 0..60 {
        let bytes: Bytes = d.batch(&["x", "y", "z"]);
        let id = writer.send(9, &produce_of(&topic, 0, Some(bytes), -1))?;
        let answer = d.quiet(4, &offsets(&topic, -1))?;
        let latest = answer
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|part| part.offset)
            .next();
        let latest = latest.unwrap_or(-1);
        let fetched = d.quiet(12, &fetch_of([(&topic, 0, latest)], 0))?;
        let part = fetched
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
            .next()
            .cloned()
            .unwrap_or_default();
        wrong += i32::from(latest < last || part.error_code.0 != 0 || part.high_watermark < latest);
        last = latest;
        writer.receive::<ProduceRequest>(9, id)?;
    }
    d.note(&format!(
        "60 times latest while writing: {wrong} fell back or could not be read"
    ));
    Ok(())
}

fn zstd_fetch(d: &mut Dialogue<'_>) -> Result<()> {
    for setting in ["producer", "zstd", "gzip"] {
        let topic = d.topic(setting, 1, &[("compression.type", setting)])?;
        let bytes = compressed(Codec::Zstd, &d.records(&["x", "y"]));
        d.written(&topic, 0, bytes)?;
        for version in [4, 9, 10, 12] {
            d.ask(
                &format!("compression.type={setting}"),
                version,
                &fetch_of([(&topic, 0, 0)], 0),
            )?;
        }
    }
    Ok(())
}
