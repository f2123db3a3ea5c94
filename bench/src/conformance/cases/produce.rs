//! Produce as a whole request: acks, addressing, several partitions, what the answer says (PR-1 to PR-17).

use bytes::Bytes;
use protocol::compression::Codec;
use protocol::messages::metadata::MetadataRequest;
use protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use protocol::record::BatchOptions;
use protocol::{RecordBytes, Str, Uuid};

use super::super::Case;
use super::super::batch::{Rec, batch, compressed, forged, resealed};
use super::super::dialogue::{Dialogue, Topic, produce_of, produce_part};
use super::super::target::Setup;
use super::versions::NO_TOPIC_ID;
use crate::error::Result;

/// Makes internal topics by hand, which the others must not see.
static INTERNAL: Setup = Setup {
    name: "internal",
    overrides: &[],
    restarts: false,
};

pub(super) const CASES: &[Case] = &[
    Case::new("PR-1 exactly one batch for each partition", one_batch),
    Case::new("PR-2 only magic 2 (BR-136)", magic),
    Case::new("PR-3 zstd needs version 7 (BR-119)", zstd_versions),
    Case::new("PR-4 topics by id and by name", addressing),
    Case::new("PR-5 good partitions are stored beside bad ones (BR-111)", mixed),
    Case::new(
        "PR-6 a transactional batch without a transactional id",
        transactional_without_id,
    ),
    Case::new(
        "PR-7 transactional batches of two producers in one request",
        two_producers,
    ),
    Case::new("PR-8 acks other than -1, 0 and 1", bad_acks),
    Case::new(
        "PR-9 acks=0 has no answer, or a closed connection (BR-125)",
        acks_none,
    ),
    Case::new("PR-10 acks=1 and acks=-1", acks_one),
    Case::new(
        "PR-11 nothing times out where no other replica is waited for",
        no_time,
    ),
    Case::new(
        "PR-13 the minimal in-sync set is at most the number of replicas",
        min_isr,
    ),
    Case::new("PR-16 internal topics are closed to clients", internal_topics).on(&INTERNAL),
    Case::new("PR-17 offsets and times in the answer", answer_fields),
    Case::new(
        "PR-18 the same partition twice, no partitions, no topics",
        repeated,
    ),
    Case::new("PR-19 a request of 40 partitions over 8 topics", wide),
];

fn one_batch(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let one = d.batch(&["x"]);
    let two = d.batch(&["y", "z"]);
    // Null instead of no bytes is left out: Apache Kafka 4.3.1 fails inside and never answers.
    d.produce("no bytes", &topic, 0, Bytes::new())?;
    d.produce(
        "two batches",
        &topic,
        0,
        Bytes::from([one.clone(), two.clone()].concat()),
    )?;
    d.produce(
        "a batch and half a batch",
        &topic,
        0,
        Bytes::from([&one[..], &two[..40]].concat()),
    )?;
    d.produce(
        "a batch and one byte",
        &topic,
        0,
        Bytes::from([&one[..], &[0]].concat()),
    )?;
    for cut in [1, 16, 17, 60, one.len() - 1] {
        d.produce(
            &format!("the first {cut} bytes of a batch"),
            &topic,
            0,
            one.slice(..cut),
        )?;
    }
    d.produce("one batch", &topic, 0, one)?;
    d.fetch("all", &topic, 0, 0)?;
    Ok(())
}

fn magic(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let good = d.batch(&["x"]);
    for magic in [-1i8, 0, 1, 3, 127] {
        let wrong = resealed(&good, |header| header.magic = magic);
        d.produce(&format!("magic {magic}"), &topic, 0, wrong)?;
    }
    for magic in [0i8, 1] {
        let one = old_message(magic, 0, b"old", d.stamp_ms());
        let two = old_message(magic, 0, b"older", d.stamp_ms());
        d.produce(
            &format!("a true message of magic {magic}"),
            &topic,
            0,
            Bytes::from(one.clone()),
        )?;
        d.produce(
            &format!("two messages of magic {magic}"),
            &topic,
            0,
            Bytes::from([one, two].concat()),
        )?;
    }
    d.fetch("nothing was stored", &topic, 0, 0)?;
    Ok(())
}

/// A message of the formats before record batches, magic 0 or 1, with the right CRC-32.
fn old_message(magic: i8, attributes: u8, value: &[u8], timestamp: i64) -> Vec<u8> {
    let mut body = vec![magic.to_be_bytes()[0], attributes];
    if magic == 1 {
        body.extend(timestamp.to_be_bytes());
    }
    body.extend((-1i32).to_be_bytes());
    body.extend(i32::try_from(value.len()).unwrap_or(0).to_be_bytes());
    body.extend(value);
    let mut crc = flate2::Crc::new();
    crc.update(&body);
    let size = i32::try_from(body.len() + 4).unwrap_or(0);
    [
        &0i64.to_be_bytes()[..],
        &size.to_be_bytes(),
        &crc.sum().to_be_bytes(),
        &body,
    ]
    .concat()
}

fn zstd_versions(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for version in 3..=9 {
        for codec in [Codec::Zstd, Codec::Lz4] {
            let bytes = compressed(codec, &d.records(&["x", "y"]));
            d.ask(codec.name(), version, &produce_of(&topic, 0, Some(bytes), -1))?;
        }
    }
    Ok(())
}

fn addressing(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = d.batch(&["x"]);
    let at = |name: &Str, id| Topic {
        name: name.clone(),
        id,
    };
    for (label, to, partition) in [
        ("good", topic.clone(), 0),
        ("unknown partition", topic.clone(), 1),
        ("partition -1", topic.clone(), -1),
        ("unknown topic", at(&d.name("none"), NO_TOPIC_ID), 0),
        (
            "a name that cannot be, the zero id",
            at(&Str::from("not/a/topic"), Uuid::default()),
            0,
        ),
        ("no name", at(&Str::from(""), NO_TOPIC_ID), 0),
    ] {
        for version in [3, 12, 13] {
            d.ask(
                label,
                version,
                &produce_of(&to, partition, Some(bytes.clone()), 1),
            )?;
        }
    }
    Ok(())
}

fn mixed(d: &mut Dialogue<'_>) -> Result<()> {
    let small = d.topic("small", 2, &[("max.message.bytes", "200")])?;
    let topic = d.topic("a", 4, &[])?;
    let good = d.batch(&["good"]);
    let large = d.batch(&["v".repeat(300).as_str()]);
    let wrong_crc = forged(&good, |header| header.crc ^= 1);
    let part = |index, records: &Bytes| PartitionProduceData {
        index,
        records: Some(RecordBytes::from(records.clone())),
    };
    for (version, acks) in [(8, -1), (8, 1), (12, -1), (13, -1)] {
        let request = ProduceRequest {
            acks,
            timeout_ms: 10_000,
            topic_data: vec![
                TopicProduceData {
                    name: topic.name.clone(),
                    topic_id: topic.id,
                    partition_data: vec![
                        part(2, &wrong_crc),
                        part(0, &good),
                        part(9, &good),
                        part(1, &good),
                    ],
                },
                TopicProduceData {
                    name: d.name("none"),
                    topic_id: NO_TOPIC_ID,
                    partition_data: vec![part(0, &good)],
                },
                TopicProduceData {
                    name: small.name.clone(),
                    topic_id: small.id,
                    partition_data: vec![part(1, &large), part(0, &good)],
                },
            ],
            ..Default::default()
        };
        let mut answer = d.quiet(version, &request)?;
        for topic in &mut answer.responses {
            topic.partition_responses.sort_by_key(|one| one.index);
        }
        d.note(&format!(
            "> Produce v{version}: acks={acks}, good and bad partitions"
        ));
        d.answered(&answer);
    }
    for partition in 0..4 {
        d.fetch(&format!("partition {partition}"), &topic, partition, 0)?;
    }
    d.fetch("the small one", &small, 0, 0)?;
    d.fetch("the small one's other", &small, 1, 0)?;
    Ok(())
}

fn transactional_without_id(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let good = d.batch(&["x"]);
    let records = d.records(&["x"]);
    let bytes = transactional(d, &records)?;
    for (version, acks) in [(7, -1), (9, 1), (12, -1)] {
        let mut request = produce_of(&topic, 0, Some(bytes.clone()), acks);
        request.topic_data[0].partition_data.push(PartitionProduceData {
            index: 1,
            records: Some(RecordBytes::from(good.clone())),
        });
        d.ask(
            &format!("acks={acks}, a plain batch beside it"),
            version,
            &request,
        )?;
    }
    d.fetch("the plain batch", &topic, 1, 0)?;
    Ok(())
}

/// A batch that says that it is part of a transaction, of a producer of its own.
fn transactional(d: &mut Dialogue<'_>, records: &[Rec]) -> Result<Bytes> {
    let options = BatchOptions {
        producer_id: d.producer_id()?,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
        ..BatchOptions::default()
    };
    Ok(batch(options, records))
}

fn two_producers(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 3, &[])?;
    let nowhere = Topic {
        name: d.name("nowhere"),
        id: NO_TOPIC_ID,
    };
    let plain = d.batch(&["plain"]);
    let records = d.records(&["x"]);
    let (one, two) = (transactional(d, &records)?, transactional(d, &records)?);
    let torn = two.slice(..two.len() - 1);
    let wrong_crc = forged(&two, |header| header.crc ^= 1);
    let next_epoch = resealed(&one, |header| header.producer_epoch = 1);
    for version in [7, 10, 12, 13] {
        for (label, acks, first, second) in [
            ("two producers", -1, &one, &two),
            ("two producers, acks=1", 1, &two, &one),
            ("two producers, acks=5", 5, &one, &two),
            ("the second has a wrong CRC", -1, &one, &wrong_crc),
            ("two epochs of a producer", -1, &one, &next_epoch),
        ] {
            let mut request = produce_of(&topic, 0, Some(first.clone()), acks);
            request.transactional_id = Some("producers".into());
            let others = [(1, second), (2, &plain), (9, &plain)];
            let others = others.map(|(index, records)| PartitionProduceData {
                index,
                records: Some(RecordBytes::from(records.clone())),
            });
            request.topic_data[0].partition_data.extend(others);
            request
                .topic_data
                .push(produce_part(&nowhere, 0, Some(torn.clone())));
            d.ask(label, version, &request)?;
        }
        let mut request = produce_of(&topic, 0, Some(one.clone()), 0);
        request.transactional_id = Some("producers".into());
        request
            .topic_data
            .push(produce_part(&topic, 1, Some(two.clone())));
        d.tell("two producers, acks=0", version, &request)?;
        d.expect_closed()?;
    }
    for partition in 0..3 {
        d.fetch("nothing was stored", &topic, partition, 0)?;
    }
    Ok(())
}

fn bad_acks(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let bytes = d.batch(&["x"]);
    for acks in [2, -2, 3, i16::MAX, i16::MIN] {
        for version in [3, 8, 13] {
            let mut request = produce_of(&topic, 0, Some(bytes.clone()), acks);
            request.topic_data[0].partition_data.push(PartitionProduceData {
                index: 1,
                records: Some(RecordBytes::from(bytes.clone())),
            });
            d.ask(&format!("acks={acks}"), version, &request)?;
        }
    }
    d.fetch("nothing was stored", &topic, 0, 0)?;
    Ok(())
}

fn acks_none(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let nobody = MetadataRequest {
        topics: Some(Vec::new()),
        ..Default::default()
    };
    let good = d.batch(&["x"]);
    let none = Topic {
        name: d.name("none"),
        id: NO_TOPIC_ID,
    };
    for version in [3, 9, 13] {
        d.tell(
            "acks=0, good",
            version,
            &produce_of(&topic, 0, Some(good.clone()), 0),
        )?;
        let answer = d.quiet(9, &nobody)?;
        d.note(&format!(
            "  the next request is answered: {} broker",
            answer.brokers.len()
        ));
        d.tell(
            "acks=0, unknown partition",
            version,
            &produce_of(&topic, 5, Some(good.clone()), 0),
        )?;
        d.expect_closed()?;
        d.tell(
            "acks=0, unknown topic",
            version,
            &produce_of(&none, 0, Some(good.clone()), 0),
        )?;
        d.expect_closed()?;
        let broken = forged(&good, |header| header.crc ^= 1);
        d.tell(
            "acks=0, wrong CRC",
            version,
            &produce_of(&topic, 0, Some(broken), 0),
        )?;
        d.expect_closed()?;
    }
    // The records of acks=0 come in order with those that are answered.
    for value in ["1", "2", "3"] {
        let bytes = d.batch(&[value]);
        d.wire()?.send(9, &produce_of(&topic, 0, Some(bytes), 0))?;
    }
    let last = d.batch(&["4"]);
    d.produce("4", &topic, 0, last)?;
    d.fetch("from 3 on", &topic, 0, 3)?;
    Ok(())
}

fn acks_one(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let bytes = d.batch(&["x"]);
    for acks in [1, -1] {
        for version in [3, 8, 11, 13] {
            d.ask(
                &format!("acks={acks}"),
                version,
                &produce_of(&topic, 0, Some(bytes.clone()), acks),
            )?;
        }
    }
    d.fetch("the last", &topic, 0, 7)?;
    Ok(())
}

fn no_time(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    for acks in [1, -1] {
        for timeout_ms in [1, 0, -1] {
            for _ in 0..3 {
                let bytes = d.batch(&["x"]);
                let request = ProduceRequest {
                    timeout_ms,
                    ..produce_of(&topic, 0, Some(bytes), acks)
                };
                d.ask(&format!("acks={acks}, timeout_ms={timeout_ms}"), 9, &request)?;
            }
        }
    }
    Ok(())
}

fn min_isr(d: &mut Dialogue<'_>) -> Result<()> {
    for min in ["1", "2", "5"] {
        let topic = d.topic(&format!("min{min}"), 1, &[("min.insync.replicas", min)])?;
        for acks in [-1, 1] {
            let bytes = d.batch(&["x"]);
            d.ask(
                &format!("min.insync.replicas={min}, acks={acks}"),
                9,
                &produce_of(&topic, 0, Some(bytes), acks),
            )?;
        }
        d.fetch("both are visible", &topic, 0, 1)?;
    }
    Ok(())
}

fn internal_topics(d: &mut Dialogue<'_>) -> Result<()> {
    use protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
    for name in ["__consumer_offsets", "__transaction_state", "__share_group_state"] {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::from(name),
                num_partitions: 1,
                replication_factor: 1,
                ..Default::default()
            }],
            timeout_ms: 30_000,
            validate_only: false,
        };
        d.quiet(7, &request)?;
        std::thread::sleep(std::time::Duration::from_millis(300));
        let topic = Topic {
            name: Str::from(name),
            id: Uuid::default(),
        };
        let bytes = d.batch(&["x"]);
        d.produce(name, &topic, 0, bytes)?;
    }
    Ok(())
}

fn answer_fields(d: &mut Dialogue<'_>) -> Result<()> {
    for kind in ["CreateTime", "LogAppendTime"] {
        let topic = d.topic(kind, 1, &[("message.timestamp.type", kind)])?;
        for version in [3, 4, 5, 7, 8, 9, 10, 11, 12, 13] {
            let bytes = d.batch(&["x", "y"]);
            d.ask(kind, version, &produce_of(&topic, 0, Some(bytes), -1))?;
        }
        d.fetch("the last two batches", &topic, 0, 16)?;
    }
    Ok(())
}

fn repeated(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let bytes = d.batch(&["x"]);
    for version in [9, 13] {
        let mut empty = produce_of(&topic, 0, None, -1);
        empty.topic_data[0].partition_data.clear();
        d.ask("a topic without partitions", version, &empty)?;
        empty.topic_data.clear();
        d.ask("no topics", version, &empty)?;
        let mut spread = produce_of(&topic, 0, Some(bytes.clone()), -1);
        spread
            .topic_data
            .push(produce_part(&topic, 1, Some(bytes.clone())));
        let mut answer = d.quiet(version, &spread)?;
        let mut parts: Vec<_> = answer
            .responses
            .drain(..)
            .flat_map(|topic| topic.partition_responses)
            .collect();
        parts.sort_by_key(|part| part.index);
        d.show(&format!("v{version}, the topic listed twice"), &parts);
    }
    Ok(())
}

fn wide(d: &mut Dialogue<'_>) -> Result<()> {
    let mut topics = Vec::new();
    for number in 0..8 {
        topics.push(d.topic(&format!("t{number}"), 5, &[])?);
    }
    let mut request = ProduceRequest {
        acks: -1,
        timeout_ms: 10_000,
        ..Default::default()
    };
    for (number, topic) in topics.iter().enumerate() {
        for partition in [3, 1, 4, 0, 2] {
            let bytes = d.batch(&[format!("{number}/{partition}").as_str()]);
            match request.topic_data.get_mut(number) {
                Some(entry) => entry.partition_data.push(PartitionProduceData {
                    index: partition,
                    records: Some(RecordBytes::from(bytes)),
                }),
                None => request
                    .topic_data
                    .push(produce_part(topic, partition, Some(bytes))),
            }
        }
    }
    for version in [9, 13] {
        let answer = d.quiet(version, &request)?;
        let parts = answer
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses);
        let offsets: Vec<_> = parts.clone().map(|part| part.base_offset).collect();
        let clean = parts.filter(|part| part.error_code.0 == 0).count();
        d.note(&format!(
            "v{version}: {clean} of {} stored at {offsets:?}",
            offsets.len()
        ));
    }
    d.fetch("one of them", &topics[6], 4, 0)?;
    Ok(())
}
