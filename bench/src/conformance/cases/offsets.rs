//! ListOffsets and OffsetForLeaderEpoch: LO and LE numbers, and the bug reports about timestamps.

use protocol::compression::Codec;
use protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};

use super::super::Case;
use super::super::batch::{Rec, compressed};
use super::super::dialogue::{Dialogue, Topic, delete_of, fetch_of};
use super::super::target::RESTARTS;
use crate::error::Result;

pub(super) const CASES: &[Case] = &[
    Case::new("LO-1 latest, earliest and the other special times on a log", special),
    Case::new("LO-2 special times on an empty log, and after everything was deleted (BR-055)", empty).differs("when every record is deleted there is no largest timestamp; Kafka names a deleted record"),
    Case::new("LO-3 the largest timestamp (BR-046)", max_timestamp),
    Case::new("LO-4 the times of tiers where nothing is tiered (LO-5, LO-6)", tiers),
    Case::new("LO-7 special times by version, repeated partitions (BR-101)", versions).differs("a partition that is listed twice is refused each time, in Kafka once"),
    Case::new("LO-8 between timestamps, in order and not (BR-045)", between),
    Case::new("LO-8 exact records inside compressed batches", inside_batches),
    Case::new("LO-8 below the log start and over many segments (BR-092)", over_segments).differs("a time before the log start gives the first record that is left (BR-092); Kafka gives none while the deleted record is in a segment that is kept"),
    Case::new("LO-8 the same after kill -9", after_restart).on(&RESTARTS).differs("the log start of deleted records survives kill -9; Kafka, killed within a minute, falls back"),
    Case::new("LO-10 leader epochs fence", fenced).differs("any negative epoch means none in every API; Kafka reads -2 so in Fetch only"),
    Case::new("LO-11 the time a lookup may take", lookup_time),
    Case::new("LO-12 isolation levels and replica ids", isolation),
    Case::new("LE-1 the current epoch and the log end", current_epoch),
    Case::new("LE-2 the epoch before kill -9 and the one after (FE-15)", older_epoch).on(&RESTARTS),
    Case::new("LE-3 epochs below, above and none", other_epochs).differs("any negative epoch means none in every API; Kafka looks up -5 here"),
];

fn ask_times(d: &mut Dialogue<'_>, topic: &Topic, version: i16, times: &[(&str, i64)]) -> Result<()> {
    for (label, timestamp) in times {
        let answer = d.quiet(version, &request(topic, version, *timestamp, -1))?;
        let part = answer
            .topics
            .first()
            .and_then(|topic| topic.partitions.first())
            .cloned();
        let Some(part) = part else {
            d.note(&format!("v{version} {label}: no partition"));
            continue;
        };
        let at = d.time(part.timestamp);
        d.note(&format!(
            "v{version} {label}: {} offset {} timestamp {at} epoch {}",
            part.error_code, part.offset, part.leader_epoch
        ));
    }
    Ok(())
}

fn request(topic: &Topic, version: i16, timestamp: i64, current_leader_epoch: i32) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: topic.name.clone(),
            partitions: vec![ListOffsetsPartition {
                partition_index: 0,
                current_leader_epoch,
                timestamp,
            }],
        }],
        timeout_ms: if version >= 10 { 5000 } else { 0 },
        ..Default::default()
    }
}

const SPECIAL: [(&str, i64); 6] = [
    ("latest", -1),
    ("earliest", -2),
    ("max timestamp", -3),
    ("earliest local", -4),
    ("latest tiered", -5),
    ("earliest pending upload", -6),
];

/// A topic with one batch of one record for each of these stamps.
fn stamped(d: &mut Dialogue<'_>, short: &str, codec: Codec, batches: &[&[i64]]) -> Result<Topic> {
    let topic = d.topic(short, 1, &[])?;
    for stamps in batches {
        let records: Vec<_> = stamps
            .iter()
            .map(|after| Rec::of(d.stamp_ms() + after, "v"))
            .collect();
        d.written(&topic, 0, compressed(codec, &records))?;
    }
    Ok(topic)
}

fn special(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[5, 1], &[9, 2], &[3]])?;
    ask_times(d, &topic, 11, &SPECIAL)?;
    d.quiet(2, &delete_of(&topic, &[(0, 3)]))?;
    d.note("the first three records deleted");
    ask_times(d, &topic, 11, &SPECIAL)
}

fn empty(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    ask_times(d, &topic, 11, &SPECIAL)?;
    let now = d.stamp_ms();
    ask_times(
        d,
        &topic,
        11,
        &[("a time", now), ("time 0", 0), ("the last time", i64::MAX)],
    )?;
    let topic = stamped(d, "b", Codec::None, &[&[5, 1]])?;
    d.quiet(2, &delete_of(&topic, &[(0, -1)]))?;
    d.note("all deleted");
    ask_times(d, &topic, 11, &SPECIAL)?;
    ask_times(d, &topic, 4, &[("a time", now), ("time 0", 0)])
}

fn tiers(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("segment.bytes", "1048576")])?;
    for number in 0..30i64 {
        let record = Rec::of(d.stamp_ms() + number, vec![b'v'; 100_000]);
        d.written(&topic, 0, compressed(Codec::None, &[record]))?;
    }
    for deleted in [0, 15, 30] {
        d.quiet(2, &delete_of(&topic, &[(0, deleted)]))?;
        d.note(&format!("several segments, {deleted} of 30 records deleted"));
        for version in 8..=11 {
            ask_times(d, &topic, version, &SPECIAL[3..])?;
        }
    }
    Ok(())
}

fn max_timestamp(d: &mut Dialogue<'_>) -> Result<()> {
    for codec in Codec::ALL {
        let topic = stamped(d, codec.name(), codec, &[&[10, 50, 20]])?;
        let more = [Rec::of(d.stamp_ms() + 30, "v"), Rec::of(d.stamp_ms() + 50, "v")];
        d.written(&topic, 0, compressed(Codec::None, &more))?;
        for version in [7, 11] {
            ask_times(d, &topic, version, &[(codec.name(), -3)])?;
        }
    }
    let topic = d.topic("append", 1, &[("message.timestamp.type", "LogAppendTime")])?;
    for codec in [Codec::None, Codec::Gzip] {
        let records = d.records(&["x", "y", "z"]);
        d.written(&topic, 0, compressed(codec, &records))?;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    ask_times(
        d,
        &topic,
        7,
        &[("append time, the last batch's first record", -3)],
    )
}

fn versions(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[1]])?;
    for version in 1..=11 {
        ask_times(d, &topic, version, &SPECIAL)?;
        ask_times(d, &topic, version, &[("-7", -7), ("the lowest number", i64::MIN)])?;
    }
    for version in [1, 6, 11] {
        let mut twice = request(&topic, version, -1, -1);
        let again = twice.topics[0].partitions[0].clone();
        twice.topics[0].partitions.push(again);
        d.ask("a partition twice", version, &twice)?;
        let mut other = request(&topic, version, -1, -1);
        other.topics[0].partitions[0].partition_index = 5;
        d.ask("unknown partition", version, &other)?;
        other.topics.clear();
        d.ask("no topics", version, &other)?;
    }
    Ok(())
}

fn between(d: &mut Dialogue<'_>) -> Result<()> {
    let stamp = d.stamp_ms();
    for (label, stamps) in [
        ("2, 4, 6, 8", [2, 4, 6, 8]),
        ("8, 2, 6, 4", [8, 2, 6, 4]),
        ("2, 8, 4, 6", [2, 8, 4, 6]),
    ] {
        let topic = stamped(
            d,
            &label.replace(", ", ""),
            Codec::None,
            &[&stamps[..1], &stamps[1..2], &stamps[2..3], &stamps[3..]],
        )?;
        for version in [1, 4, 7] {
            d.note(&format!("records stamped {label}"));
            for after in 1..=9 {
                let label = format!("T+{after}");
                ask_times(d, &topic, version, &[(label.as_str(), stamp + after)])?;
            }
        }
        ask_times(d, &topic, 7, &[("time 0", 0), ("the last time", i64::MAX)])?;
    }
    Ok(())
}

fn inside_batches(d: &mut Dialogue<'_>) -> Result<()> {
    let stamp = d.stamp_ms();
    for codec in Codec::ALL {
        let topic = stamped(
            d,
            codec.name(),
            codec,
            &[&[0, 10, 20, 30], &[25, 15, 40, 35], &[50, 45]],
        )?;
        for after in [0, 1, 10, 19, 20, 21, 30, 31, 38, 40, 41, 46, 50, 51] {
            let label = format!("{codec} T+{after}");
            ask_times(d, &topic, 7, &[(label.as_str(), stamp + after)])?;
        }
    }
    Ok(())
}

fn over_segments(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[("segment.bytes", "1048576")])?;
    for number in 0..40i64 {
        let records: Vec<_> = (0..2)
            .map(|inner| Rec::of(d.stamp_ms() + number * 10 + inner, vec![b'v'; 50_000]))
            .collect();
        d.written(&topic, 0, compressed(Codec::None, &records))?;
    }
    let stamp = d.stamp_ms();
    let times = |d: &mut Dialogue<'_>| -> Result<()> {
        for after in [-5, 0, 1, 2, 10, 55, 100, 101, 150, 201, 299, 300, 390, 391, 392] {
            let label = format!("T{after:+}");
            ask_times(d, &topic, 7, &[(label.as_str(), stamp + after)])?;
        }
        Ok(())
    };
    times(d)?;
    ask_times(d, &topic, 7, &[("max timestamp", -3)])?;
    d.quiet(2, &delete_of(&topic, &[(0, 25)]))?;
    d.note("the first 25 records deleted");
    times(d)?;
    ask_times(d, &topic, 7, &[("max timestamp", -3), ("earliest", -2)])
}

fn after_restart(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(
        d,
        "a",
        Codec::Gzip,
        &[&[0, 10, 20, 30], &[25, 15, 40, 35], &[50, 45]],
    )?;
    let stamp = d.stamp_ms();
    d.quiet(2, &delete_of(&topic, &[(0, 2)]))?;
    d.hang_up();
    d.target().kill_and_start()?;
    for after in [0, 10, 20, 21, 31, 41, 46, 51] {
        let label = format!("T+{after}");
        ask_times(d, &topic, 1, &[(label.as_str(), stamp + after)])?;
    }
    ask_times(d, &topic, 1, &[("latest", -1), ("earliest", -2)])
}

fn fenced(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[1]])?;
    for version in [4, 11] {
        for epoch in [-1, 0, 1, 99, -2] {
            for timestamp in [-1, -2, 0] {
                d.ask(
                    &format!("current leader epoch {epoch}, time {timestamp}"),
                    version,
                    &request(&topic, version, timestamp, epoch),
                )?;
            }
        }
    }
    Ok(())
}

fn lookup_time(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[1, 2], &[3]])?;
    for version in [10, 11] {
        for timeout_ms in [0, 1, -1, i32::MAX, i32::MIN] {
            for timestamp in [-1, -2, -3, d.stamp_ms() + 2] {
                let one = ListOffsetsRequest {
                    timeout_ms,
                    ..request(&topic, version, timestamp, -1)
                };
                let at = d.time(timestamp);
                d.ask(&format!("time {at} within {timeout_ms} ms"), version, &one)?;
            }
        }
    }
    Ok(())
}

fn isolation(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[1, 2]])?;
    for version in [2, 7] {
        for level in [0i8, 1] {
            for replica_id in [-1, -2] {
                for timestamp in [-1, -2, 0] {
                    let mut one = request(&topic, version, timestamp, -1);
                    one.isolation_level = level;
                    one.replica_id = replica_id;
                    d.ask(
                        &format!("isolation {level}, replica {replica_id}, time {timestamp}"),
                        version,
                        &one,
                    )?;
                }
            }
        }
    }
    Ok(())
}

fn epoch_of(topic: &Topic, current_leader_epoch: i32, leader_epoch: i32) -> OffsetForLeaderEpochRequest {
    OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![OffsetForLeaderTopic {
            topic: topic.name.clone(),
            partitions: vec![OffsetForLeaderPartition {
                partition: 0,
                current_leader_epoch,
                leader_epoch,
            }],
        }],
    }
}

fn epochs(d: &mut Dialogue<'_>, topic: &Topic, current: i32, wanted: &[i32]) -> Result<()> {
    for version in 2..=4 {
        for leader_epoch in wanted {
            let request = epoch_of(topic, current, *leader_epoch);
            d.ask(
                &format!("epoch {leader_epoch}, current {current}"),
                version,
                &request,
            )?;
        }
    }
    Ok(())
}

fn current_epoch(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[1, 2], &[3]])?;
    epochs(d, &topic, -1, &[0])?;
    epochs(d, &topic, 0, &[0])?;
    let empty = d.topic("b", 1, &[])?;
    epochs(d, &empty, -1, &[0])
}

/// How epochs are told: Kafka has an epoch without a leader between two elections, we have none.
fn epoch_name(epoch: i32, current: i32) -> String {
    match epoch - current {
        0 => "current".to_owned(),
        after @ 1.. => format!("current+{after}"),
        _ => epoch.to_string(),
    }
}

fn older_epoch(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[1, 2], &[3]])?;
    d.hang_up();
    d.target().kill_and_start()?;
    let bytes = d.batch(&["after"]);
    d.written(&topic, 0, bytes)?;
    let wanted = MetadataRequest {
        topics: Some(vec![MetadataRequestTopic {
            name: Some(topic.name.clone()),
            ..Default::default()
        }]),
        ..Default::default()
    };
    let told = d.quiet(12, &wanted)?;
    let parts = || told.topics.iter().flat_map(|topic| &topic.partitions);
    let current = parts().map(|part| part.leader_epoch).next().unwrap_or(-1);
    d.note(&format!("the epoch rose: {}", current > 0));
    for version in 2..=4 {
        for epoch in [0, current, current + 1] {
            let answer = d.quiet(version, &epoch_of(&topic, -1, epoch))?;
            for part in answer.topics.iter().flat_map(|topic| &topic.partitions) {
                d.note(&format!(
                    "OffsetForLeaderEpoch v{version} of {}: {}, epoch {} ends at {}",
                    epoch_name(epoch, current),
                    part.error_code,
                    epoch_name(part.leader_epoch, current),
                    part.end_offset
                ));
            }
        }
    }
    fenced_fetches(d, &topic, current)
}

/// Fetches of a client that knows another epoch than the current one (FE-15).
fn fenced_fetches(d: &mut Dialogue<'_>, topic: &Topic, current: i32) -> Result<()> {
    for version in [9, 11, 12, 15, 16, 18] {
        for epoch in [0, current, current + 1] {
            let mut fetch = fetch_of([(topic, 0, 3)], 0);
            fetch.topics[0].partitions[0].current_leader_epoch = epoch;
            let answer = d.quiet(version, &fetch)?;
            for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
                let told = &part.current_leader;
                let line = format!(
                    "Fetch v{version} in {}: {}, leader {} in {}",
                    epoch_name(epoch, current),
                    part.error_code,
                    told.leader_id,
                    epoch_name(told.leader_epoch, current)
                );
                d.show(&line, &answer.node_endpoints);
            }
        }
    }
    Ok(())
}

fn other_epochs(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = stamped(d, "a", Codec::None, &[&[1, 2], &[3]])?;
    epochs(d, &topic, -1, &[-1, 1, 99, -5])?;
    epochs(d, &topic, 7, &[0])?;
    let empty = d.topic("b", 1, &[])?;
    epochs(d, &empty, -1, &[-1, 1])
}
