//! Compacted topics: which records stay, at which offsets, in which batches (CP-1 to CP-9). Segments are closed by the records'
//! own times, so that both brokers compact the same.

use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::compression::{Codec, Decompressor};
use protocol::message::Request;
use protocol::messages::fetch::FetchRequest;
use protocol::record::{Batches, RecordStream};

use super::super::Case;
use super::super::batch::{Rec, compressed, sequenced};
use super::super::dialogue::{Dialogue, Topic, fetch_of};
use super::super::target::CLEANER;
use crate::error::{Result, failed};

pub(super) const CASES: &[Case] = &[
    Case::new(
        "CP-3 the newest record of each key, with each codec (CP-9, BR-054)",
        newest,
    )
    .on(&CLEANER),
    Case::new("CP-4 tombstones stay for their time", tombstones).on(&CLEANER),
    Case::new("CP-4 tombstones go after it", expired).on(&CLEANER),
    Case::new("CP-6 the last batch of a producer is emptied (BR-106)", producers).on(&CLEANER),
    Case::new("CP-1 records younger than the lag stay", young).on(&CLEANER),
    Case::new("CP-2 a low ratio and an old record", overdue).on(&CLEANER),
];

/// Records of a batch are so much later than those of the one before: more than a segment may span.
const STEP_MS: i64 = 10_000;
/// How long compaction may take on a busy host.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long it is looked whether something stays.
const LOOK: Duration = Duration::from_millis(2500);

const COMPACT: [(&str, &str); 3] = [
    ("cleanup.policy", "compact"),
    ("segment.ms", "1000"),
    ("delete.retention.ms", "60000"),
];

/// Keys and values of a batch, none for a tombstone.
type Pairs<'a> = &'a [(&'a str, Option<&'a str>)];

fn batch_of(d: &Dialogue<'_>, number: i64, codec: Codec, pairs: Pairs<'_>) -> Bytes {
    compressed(codec, &recs(d, number, pairs))
}

fn recs(d: &Dialogue<'_>, number: i64, pairs: Pairs<'_>) -> Vec<Rec> {
    let stamp = d.stamp_ms() + number * STEP_MS;
    let stamped = pairs.iter().zip(stamp..);
    stamped
        .map(|((key, value), stamp)| Rec {
            value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
            ..Rec::of(stamp, "").key(key)
        })
        .collect()
}

/// Records that a consumer gets from the beginning of partition 0.
fn count(d: &mut Dialogue<'_>, topic: &Topic) -> Result<usize> {
    let mut decompressor = Decompressor::new();
    let (mut offset, mut records) = (0, 0);
    loop {
        let request: FetchRequest = fetch_of([(topic, 0, offset)], 0);
        let answer: <FetchRequest as Request>::Response = d.quiet(12, &request)?;
        let parts = answer.responses.into_iter().flat_map(|topic| topic.partitions);
        let bytes: Vec<Bytes> = parts
            .filter_map(|part| part.records.map(protocol::RecordBytes::into_bytes))
            .collect();
        let bytes = bytes.concat();
        if bytes.is_empty() {
            return Ok(records);
        }
        for batch in Batches::new(&bytes, 0) {
            let Ok((_, batch)) = batch else { break };
            let stream = RecordStream::new(&batch, &mut decompressor, 1 << 20);
            let Ok(mut stream) = stream else { break };
            while let Ok(Some(_)) = stream.next_record() {
                records += 1;
            }
            offset = batch.header().next_offset();
        }
    }
}

/// Waits until that many records are left.
fn compacted(d: &mut Dialogue<'_>, topic: &Topic, records: usize) -> Result<()> {
    let began = Instant::now();
    loop {
        let found = count(d, topic)?;
        if found == records {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return failed(format!("{found} records are left, not {records}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Writes down that that many records are there for a while.
fn stays(d: &mut Dialogue<'_>, topic: &Topic, label: &str) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < LOOK {
        std::thread::sleep(Duration::from_millis(250));
    }
    let found = count(d, topic)?;
    d.note(&format!("{label}: {found} records"));
    Ok(())
}

fn newest(d: &mut Dialogue<'_>) -> Result<()> {
    for codec in Codec::ALL {
        let topic = d.topic(codec.name(), 1, &COMPACT)?;
        let batches: [Pairs<'_>; 4] = [
            &[
                ("a", Some("1")),
                ("b", Some("2")),
                ("c", Some("3")),
                ("d", Some("4")),
                ("e", Some("5")),
            ],
            &[("d", Some("6")), ("", Some("no key but one")), ("e", Some(""))],
            &[("x", Some("7")), ("x", Some("8"))],
            &[("last", Some("9"))],
        ];
        for (number, pairs) in (0..).zip(batches) {
            let batch = batch_of(d, number, codec, pairs);
            d.written(&topic, 0, batch)?;
        }
        compacted(d, &topic, 8)?;
        d.note(codec.name());
        for offset in 0..11 {
            d.fetch(&format!("at {offset}"), &topic, 0, offset)?;
        }
    }
    Ok(())
}

fn tombstones(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("stay", 1, &COMPACT)?;
    let batches: [Pairs<'_>; 4] = [
        &[("a", Some("1")), ("b", Some("2"))],
        &[("a", None), ("c", Some("3"))],
        &[("d", None), ("a2", Some("4"))],
        &[("last", Some("9"))],
    ];
    for (number, pairs) in (0..).zip(batches) {
        let batch = batch_of(d, number, Codec::None, pairs);
        d.written(&topic, 0, batch)?;
    }
    compacted(d, &topic, 6)?;
    // Which of the passes stamps which batch is a matter of time: only the records are compared.
    let left = count(d, &topic)?;
    d.note(&format!("{left} records"));
    Ok(())
}

fn expired(d: &mut Dialogue<'_>) -> Result<()> {
    let mut settings = COMPACT;
    settings[2].1 = "0";
    let topic = d.topic("go", 1, &settings)?;
    let batches: [Pairs<'_>; 3] = [
        &[("a", Some("1")), ("b", Some("2"))],
        &[("a", None), ("c", Some("3"))],
        &[("d", Some("4"))],
    ];
    for (number, pairs) in (0..).zip(batches) {
        let batch = batch_of(d, number, Codec::None, pairs);
        d.written(&topic, 0, batch)?;
    }
    compacted(d, &topic, 4)?;
    d.note("the tombstone is there after the first pass");
    // A pass that has something to do comes later.
    for number in 3..6 {
        let batch = batch_of(d, number, Codec::None, &[("z", Some("5"))]);
        d.written(&topic, 0, batch)?;
    }
    compacted(d, &topic, 5)?;
    d.note("and is gone after the next");
    Ok(())
}

fn producers(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("emptied", 1, &COMPACT)?;
    let (first, second) = (d.producer_id()?, d.producer_id()?);
    let own = [("a", Some("1")), ("b", Some("2"))];
    let batch = sequenced(first, 0, 0, &recs(d, 0, &own));
    d.produce("of the first producer", &topic, 0, batch.clone())?;
    let batch_of_second = sequenced(second, 0, 0, &recs(d, 1, &[("a", Some("3")), ("b", Some("4"))]));
    d.produce("over both of its keys", &topic, 0, batch_of_second)?;
    let last = batch_of(d, 2, Codec::None, &[("last", Some("9"))]);
    d.written(&topic, 0, last)?;
    compacted(d, &topic, 3)?;
    d.fetch("at 0", &topic, 0, 0)?;
    d.produce("sent again", &topic, 0, batch)?;
    let next = sequenced(first, 0, 2, &recs(d, 3, &[("c", Some("5"))]));
    d.produce("the next one", &topic, 0, next)?;
    Ok(())
}

fn young(d: &mut Dialogue<'_>) -> Result<()> {
    let mut settings = COMPACT.to_vec();
    settings.push(("min.compaction.lag.ms", "86400000"));
    let topic = d.topic("young", 1, &settings)?;
    for number in 0..4 {
        let batch = batch_of(d, number, Codec::None, &[("a", Some("1"))]);
        d.written(&topic, 0, batch)?;
    }
    stays(d, &topic, "all are younger than a day")
}

fn overdue(d: &mut Dialogue<'_>) -> Result<()> {
    let mut settings = COMPACT.to_vec();
    settings.push(("min.cleanable.dirty.ratio", "1"));
    let lazy = d.topic("lazy", 1, &settings)?;
    settings.push(("max.compaction.lag.ms", "1000"));
    let strict = d.topic("strict", 1, &settings)?;
    for topic in [&lazy, &strict] {
        for number in 0..4 {
            let batch = batch_of(d, number, Codec::None, &[("a", Some("1")), ("b", Some("2"))]);
            d.written(topic, 0, batch)?;
        }
    }
    compacted(d, &strict, 4)?;
    d.note("an old record is compacted whatever the ratio");
    stays(d, &lazy, "and nothing without that")
}
