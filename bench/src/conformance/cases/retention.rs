//! Retention by age, size and log start (RT-4 to RT-10), with the bug reports about it. Segments hold one batch: a batch of
//! 600 KB does not fit beside another in the least segment that Kafka allows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::compression::Codec;
use protocol::messages::describe_log_dirs::{DescribableLogDirTopic, DescribeLogDirsRequest};
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};

use super::super::Case;
use super::super::batch::{Rec, compressed};
use super::super::dialogue::{Dialogue, Topic, delete_of, fetch_of, now_ms};
use super::super::target::Setup;
use super::configs::alter_topic;
use crate::error::{Error, Result};

/// Old segments are looked for every 300 ms.
static RETENTION: Setup = Setup {
    name: "retention",
    overrides: &[
        "log.retention.check.interval.ms=300",
        "log.initial.task.delay.ms=300",
        "log.segment.delete.delay.ms=500",
    ],
    restarts: false,
};

/// The same, restarted.
static RETENTION_RESTARTS: Setup = Setup {
    name: "retention-restarts",
    overrides: RETENTION.overrides,
    restarts: true,
};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "RT-4 segments go by the age of their newest record (BR-104)",
        by_age,
    )
    .on(&RETENTION),
    Case::new(
        "RT-4 a record of the future keeps what follows it (BR-080)",
        of_the_future,
    )
    .on(&RETENTION),
    Case::new(
        "RT-4 records without timestamps are as old as their file",
        without_timestamps,
    )
    .on(&RETENTION),
    Case::new("RT-5 size leaves at least retention.bytes", by_size).on(&RETENTION),
    Case::new("RT-6 a log that is all old goes on empty (BR-052)", all_of_it).on(&RETENTION),
    Case::new("RT-7 the log start, then size, then age", in_order).on(&RETENTION),
    Case::new("RT-9 the log start outlasts a restart", restarted).on(&RETENTION_RESTARTS),
    Case::new(
        "RT-10 cleanup.policy compact, both and neither (BR-128)",
        policies,
    )
    .on(&RETENTION),
];

/// How long a pass may take to come.
const LIMIT: Duration = Duration::from_secs(30);
/// How long what it left has to stay: several passes.
const STILL: Duration = Duration::from_millis(1500);
const HOUR_MS: i64 = 3_600_000;

/// A batch that fills a segment: so many records, 600 KB in all.
fn filling(stamp: i64, records: usize) -> Bytes {
    let value = vec![b'v'; 600_000 / records];
    let records: Vec<_> = (0..records)
        .map(|number| Rec::of(stamp, &value).key(&number.to_string()))
        .collect();
    compressed(Codec::None, &records)
}

/// A topic of one partition whose segments hold one batch.
fn segmented(d: &mut Dialogue<'_>, short: &str, configs: &[(&str, &str)]) -> Result<Topic> {
    let configs = [&[("segment.bytes", "1048576")], configs].concat();
    d.topic(short, 1, &configs)
}

/// Writes a batch of one record for each of these times.
fn write(d: &mut Dialogue<'_>, topic: &Topic, stamps: &[i64]) -> Result<()> {
    for stamp in stamps {
        d.written(topic, 0, filling(*stamp, 1))?;
    }
    Ok(())
}

fn offset(d: &mut Dialogue<'_>, topic: &Topic, timestamp: i64) -> Result<i64> {
    let request = ListOffsetsRequest {
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
    };
    let answer = d.quiet(7, &request)?;
    let mut parts = answer.topics.iter().flat_map(|topic| &topic.partitions);
    let none = || Error::Failed("a ListOffsets answer without the partition".into());
    parts.next().map(|part| part.offset).ok_or_else(none)
}

/// First offset, end offset, bytes.
fn shape(d: &mut Dialogue<'_>, topic: &Topic) -> Result<(i64, i64, i64)> {
    let request = DescribeLogDirsRequest {
        topics: Some(vec![DescribableLogDirTopic {
            topic: topic.name.clone(),
            partitions: vec![0],
        }]),
    };
    let answer = d.quiet(4, &request)?;
    let topics = answer.results.iter().flat_map(|result| &result.topics);
    let sizes = topics
        .flat_map(|topic| &topic.partitions)
        .map(|part| part.partition_size);
    let size = sizes.sum();
    Ok((offset(d, topic, -2)?, offset(d, topic, -1)?, size))
}

/// Waits until the log starts at `expected`, sees that it stays there, and writes down what is left.
fn left(d: &mut Dialogue<'_>, label: &str, topic: &Topic, expected: i64) -> Result<()> {
    let began = Instant::now();
    while offset(d, topic, -2)? != expected && began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(STILL);
    let (start, end, bytes) = shape(d, topic)?;
    d.note(&format!("{label}: from {start} to {end}, {bytes} bytes"));
    Ok(())
}

/// A fetch without its records, which are large.
fn look(d: &mut Dialogue<'_>, label: &str, topic: &Topic, offset: i64, isolation_level: i8) -> Result<()> {
    let mut request = fetch_of([(topic, 0, offset)], 0);
    request.isolation_level = isolation_level;
    let answer = d.quiet(12, &request)?;
    for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
        let (error, mark, stable) = (part.error_code, part.high_watermark, part.last_stable_offset);
        let start = part.log_start_offset;
        let some = part.records.as_ref().is_some_and(|records| !records.is_empty());
        d.note(&format!(
            "fetch {label} at {offset}: {error:?}, high watermark {mark}, stable {stable}, start {start}, records {some}"
        ));
    }
    Ok(())
}

fn by_age(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = segmented(d, "a", &[("retention.ms", "-1")])?;
    let (old, now) = (d.stamp_ms() - 365 * 24 * HOUR_MS, now_ms());
    write(d, &topic, &[old, now, old, old])?;
    left(d, "for ever", &topic, 0)?;
    alter_topic(d, &topic, &[("retention.ms", Some("3600000"))])?;
    left(d, "an hour", &topic, 1)?;
    look(d, "in what went", &topic, 0, 0)?;
    look(d, "in what stays", &topic, 1, 0)?;
    alter_topic(d, &topic, &[("retention.ms", Some("1"))])?;
    left(d, "no time at all", &topic, 4)?;
    // The broker's own stamps are young whatever the producer's say.
    let stamped = [
        ("retention.ms", "3600000"),
        ("message.timestamp.type", "LogAppendTime"),
    ];
    let topic = segmented(d, "b", &stamped)?;
    write(d, &topic, &[old, old])?;
    left(d, "LogAppendTime", &topic, 0)?;
    let refused = [
        ("retention.ms", "3600000"),
        ("message.timestamp.before.max.ms", "3600000"),
    ];
    let topic = segmented(d, "c", &refused)?;
    let answer = d.produce_quietly(&topic, 0, filling(old, 1))?;
    d.note(&format!(
        "older than message.timestamp.before.max.ms: {:?}",
        answer.error_code
    ));
    Ok(())
}

fn of_the_future(d: &mut Dialogue<'_>) -> Result<()> {
    let (old, future) = (d.stamp_ms() - 24 * HOUR_MS, now_ms() + 10 * 365 * 24 * HOUR_MS);
    let topic = segmented(d, "a", &[("retention.ms", "1000")])?;
    let answer = d.produce_quietly(&topic, 0, filling(future, 1))?;
    d.note(&format!("ten years ahead: {:?}", answer.error_code));
    let any = [
        ("retention.ms", "1000"),
        ("message.timestamp.after.max.ms", "9223372036854775807"),
    ];
    let topic = segmented(d, "b", &any)?;
    write(d, &topic, &[old, future, old, old])?;
    left(d, "up to the future", &topic, 1)?;
    Ok(())
}

fn without_timestamps(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = segmented(d, "a", &[("retention.ms", "3600000")])?;
    write(d, &topic, &[-1, -1, 0])?;
    left(d, "an hour", &topic, 0)?;
    alter_topic(d, &topic, &[("retention.ms", Some("500"))])?;
    left(d, "half a second", &topic, 3)?;
    Ok(())
}

fn by_size(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = segmented(d, "a", &[("retention.ms", "-1"), ("retention.bytes", "-1")])?;
    let now = now_ms();
    write(d, &topic, &[now; 6])?;
    left(d, "no limit", &topic, 0)?;
    let (_, _, bytes) = shape(d, &topic)?;
    let one = bytes / 6;
    for (label, limit, start) in [
        ("one byte more than five segments", one * 5 + 1, 0),
        ("five segments", one * 5, 1),
        ("two and a half", one * 5 / 2, 3),
        ("one byte", 1, 5),
    ] {
        alter_topic(d, &topic, &[("retention.bytes", Some(&limit.to_string()))])?;
        left(d, label, &topic, start)?;
    }
    write(d, &topic, &[now; 2])?;
    left(d, "two more", &topic, 7)?;
    alter_topic(d, &topic, &[("retention.bytes", Some("0"))])?;
    left(d, "nothing", &topic, 8)?;
    Ok(())
}

fn all_of_it(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = segmented(d, "a", &[("retention.ms", "1000")])?;
    let old = d.stamp_ms();
    write(d, &topic, &[old, old])?;
    left(d, "all old", &topic, 2)?;
    for isolation_level in [0, 1] {
        look(d, "below", &topic, 1, isolation_level)?;
        look(d, "at the end", &topic, 2, isolation_level)?;
        look(d, "above", &topic, 3, isolation_level)?;
    }
    let answer = d.produce_quietly(&topic, 0, filling(now_ms() + HOUR_MS / 2, 1))?;
    d.note(&format!(
        "one more: {:?} at {}, start {}",
        answer.error_code, answer.base_offset, answer.log_start_offset
    ));
    look(d, "it", &topic, 2, 1)?;
    left(d, "half an hour ahead", &topic, 2)?;
    Ok(())
}

fn in_order(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = segmented(d, "a", &[("retention.ms", "-1")])?;
    let (old, now) = (d.stamp_ms() - 24 * HOUR_MS, now_ms());
    for stamp in [now, now, now, old, now, now] {
        d.written(&topic, 0, filling(stamp, 10))?;
    }
    d.ask("into the second segment", 2, &delete_of(&topic, &[(0, 15)]))?;
    left(d, "the first went", &topic, 15)?;
    let (_, _, bytes) = shape(d, &topic)?;
    let one = bytes / 5;
    let both = (one * 3).to_string();
    let changed = [
        ("retention.bytes", Some(both.as_str())),
        ("retention.ms", Some("3600000")),
    ];
    alter_topic(d, &topic, &changed)?;
    left(d, "size takes two, age one more", &topic, 40)?;
    d.ask("into what went", 2, &delete_of(&topic, &[(0, 15)]))?;
    Ok(())
}

fn restarted(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = segmented(d, "a", &[("retention.ms", "3600000")])?;
    let (old, now) = (d.stamp_ms() - 24 * HOUR_MS, now_ms());
    write(d, &topic, &[old, now, old, now])?;
    let emptied = segmented(d, "b", &[("retention.ms", "3600000")])?;
    write(d, &emptied, &[old, old])?;
    left(d, "before", &topic, 1)?;
    left(d, "before, all of it", &emptied, 2)?;
    d.hang_up();
    d.target().stop_and_start()?;
    left(d, "after a stop", &topic, 1)?;
    left(d, "after a stop, all of it", &emptied, 2)?;
    look(d, "below", &topic, 0, 0)?;
    let answer = d.produce_quietly(&emptied, 0, filling(now, 1))?;
    d.note(&format!(
        "one more: {:?} at {}",
        answer.error_code, answer.base_offset
    ));
    Ok(())
}

fn policies(d: &mut Dialogue<'_>) -> Result<()> {
    let old = d.stamp_ms() - 24 * HOUR_MS;
    let limits = [("retention.ms", "1000"), ("retention.bytes", "1000")];
    for (short, policy, start) in [
        ("compact", "compact", 0),
        ("both", "compact,delete", 3),
        ("neither", "", 0),
        ("delete", "delete", 3),
    ] {
        let configs = [&limits[..], &[("cleanup.policy", policy)]].concat();
        let topic = segmented(d, short, &configs)?;
        for number in 0..3 {
            let value = vec![b'v'; 600_000];
            let record = Rec::of(old, value).key(&format!("k{number}"));
            d.written(&topic, 0, compressed(Codec::None, &[record]))?;
        }
        left(d, &format!("policy {policy:?}"), &topic, start)?;
        d.ask(policy, 2, &delete_of(&topic, &[(0, 1)]))?;
    }
    let configs = [("retention.ms", "315360000000"), ("retention.bytes", "-1")];
    let topic = segmented(d, "history", &configs)?;
    write(d, &topic, &[old, old])?;
    left(d, "ten years", &topic, 0)
}
