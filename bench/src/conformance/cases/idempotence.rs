//! Idempotent producers: sequences, the window of five batches, epochs, restarts (PR-40 to PR-52 and the bug reports about them).

use bytes::Bytes;
use protocol::compression::Codec;
use protocol::messages::init_producer_id::InitProducerIdRequest;
use protocol::record::BatchOptions;

use super::super::Case;
use super::super::batch::{Rec, batch, sequenced};
use super::super::dialogue::{Dialogue, Topic, delete_of};
use super::super::target::{RESTARTS, Setup};
use crate::error::Result;

/// Producers are forgotten after a second.
static SHORT_EXPIRY: Setup = Setup {
    name: "short-expiry",
    overrides: &[
        "producer.id.expiration.ms=1000",
        "producer.id.expiration.check.interval.ms=300",
    ],
    restarts: false,
};

/// Why restarts differ.
const WINDOW: &str = "all five batches of the window survive a restart; Kafka's snapshots keep the last one only, so a \
                      producer with several batches in flight is refused there";

pub(super) const CASES: &[Case] = &[
    Case::new("PR-41 duplicates inside the window of five batches", window),
    Case::new(
        "PR-41 duplicates of batches with several records",
        partial_duplicates,
    ),
    Case::new("PR-42 sequences that do not follow", out_of_order),
    Case::new("PR-42 sequences wrap after 2147483647", wrap),
    Case::new("PR-43 a higher epoch starts at 0", higher_epoch),
    Case::new("PR-44 a lower epoch is fenced", lower_epoch),
    Case::new(
        "PR-45 a producer nobody knows may begin anywhere",
        unknown_producer,
    ),
    Case::new("PR-46 two producers and two partitions do not mix", separate),
    Case::new("PR-47 a producer that was idle too long (BR-014)", expired).on(&SHORT_EXPIRY),
    Case::new("PR-48 all records of a producer deleted (BR-049)", deleted),
    Case::new("PR-49 the window survives kill -9 (BR-103)", killed)
        .on(&RESTARTS)
        .differs(WINDOW),
    Case::new("PR-49 the window survives a stop in order", stopped)
        .on(&RESTARTS)
        .differs(WINDOW),
    Case::new("PR-50 producer ids are fresh with epoch 0", fresh_ids),
    Case::new("PR-51 InitProducerId with an id and an epoch", continued),
    Case::new(
        "PR-52 producer ids are not given twice, also after kill -9",
        ids_after_kill,
    )
    .on(&RESTARTS),
    Case::new("BR-103 timestamps of 1970 do not expire a producer", old_stamps),
];

/// A batch of so many records of a producer.
fn of(d: &Dialogue<'_>, producer: i64, epoch: i16, sequence: i32, count: i32) -> Bytes {
    let records: Vec<_> = (0..count)
        .map(|number| Rec::of(d.stamp_ms(), format!("{}", sequence.wrapping_add(number))))
        .collect();
    sequenced(producer, epoch, sequence, &records)
}

fn send(
    d: &mut Dialogue<'_>,
    topic: &Topic,
    producer: i64,
    epoch: i16,
    sequence: i32,
    count: i32,
) -> Result<()> {
    let bytes = of(d, producer, epoch, sequence, count);
    let label = format!("epoch {epoch}, sequence {sequence}, {count} records");
    d.produce(&label, topic, 0, bytes)?;
    Ok(())
}

fn window(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    for sequence in 0..7 {
        send(d, &topic, id, 0, sequence, 1)?;
    }
    d.note("again, newest first");
    for sequence in (0..7).rev() {
        send(d, &topic, id, 0, sequence, 1)?;
    }
    d.note("and the next");
    send(d, &topic, id, 0, 7, 1)?;
    d.fetch("each once", &topic, 0, 0)?;
    Ok(())
}

fn partial_duplicates(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    for (sequence, count) in [(0, 3), (3, 3), (6, 3)] {
        send(d, &topic, id, 0, sequence, count)?;
    }
    d.note("the same, parts of them, more than them");
    for (sequence, count) in [
        (3, 3),
        (6, 3),
        (0, 3),
        (0, 1),
        (3, 2),
        (4, 2),
        (3, 6),
        (8, 1),
        (6, 4),
        (8, 2),
    ] {
        send(d, &topic, id, 0, sequence, count)?;
    }
    // The codec is not looked at: sequences alone make a duplicate.
    let records = d.records(&["other", "values", "here"]);
    let options = BatchOptions {
        producer_id: id,
        producer_epoch: 0,
        base_sequence: 6,
        codec: Codec::Gzip,
        ..BatchOptions::default()
    };
    d.produce(
        "sequence 6 in gzip with other values",
        &topic,
        0,
        batch(options, &records),
    )?;
    send(d, &topic, id, 0, 9, 1)?;
    d.fetch("each once", &topic, 0, 0)?;
    Ok(())
}

fn out_of_order(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    for sequence in [0, 2, 1, 5, 2, i32::MAX, 3] {
        send(d, &topic, id, 0, sequence, 1)?;
    }
    d.fetch("in order", &topic, 0, 0)?;
    Ok(())
}

fn wrap(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    for (sequence, count) in [(i32::MAX - 3, 2), (i32::MAX - 1, 2), (0, 2), (2, 1)] {
        send(d, &topic, id, 0, sequence, count)?;
    }
    d.note("again");
    for (sequence, count) in [(i32::MAX - 1, 2), (0, 2), (i32::MAX - 3, 2)] {
        send(d, &topic, id, 0, sequence, count)?;
    }
    let other = d.topic("b", 1, &[])?;
    for (sequence, count) in [(i32::MAX - 1, 4), (i32::MAX - 1, 4), (2, 1), (1, 1)] {
        send(d, &other, id, 0, sequence, count)?;
    }
    d.fetch("one batch over the wrap", &other, 0, 0)?;
    Ok(())
}

fn higher_epoch(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    send(d, &topic, id, 0, 0, 1)?;
    send(d, &topic, id, 0, 1, 1)?;
    send(d, &topic, id, 1, 2, 1)?;
    send(d, &topic, id, 1, 0, 1)?;
    send(d, &topic, id, 1, 1, 1)?;
    d.note("the old epoch, also what was a duplicate");
    send(d, &topic, id, 0, 1, 1)?;
    send(d, &topic, id, 0, 2, 1)?;
    d.note("a jump of epochs");
    send(d, &topic, id, 9, 0, 1)?;
    d.fetch("what was stored", &topic, 0, 0)?;
    Ok(())
}

fn lower_epoch(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    send(d, &topic, id, 5, 0, 1)?;
    for epoch in [4, 0, 5, 6] {
        send(d, &topic, id, epoch, 0, 1)?;
    }
    send(d, &topic, id, 5, 1, 1)?;
    Ok(())
}

fn unknown_producer(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    send(d, &topic, id, 0, 7, 1)?;
    send(d, &topic, id, 0, 8, 1)?;
    let given_by_nobody = id + 4_000_000;
    send(d, &topic, given_by_nobody, 3, 100, 1)?;
    let other = d.topic("b", 1, &[])?;
    let bytes = d.batch(&["x"]);
    d.written(&other, 0, bytes)?;
    send(d, &other, id, 2, 50, 1)?;
    send(d, &other, id, 2, 50, 1)?;
    Ok(())
}

fn separate(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 2, &[])?;
    let (one, two) = (d.producer_id()?, d.producer_id()?);
    for (producer, partition, sequence) in [
        (one, 0, 0),
        (two, 0, 0),
        (one, 1, 0),
        (two, 1, 5),
        (one, 0, 1),
        (two, 0, 1),
        (one, 1, 2),
    ] {
        let bytes = of(d, producer, 0, sequence, 1);
        let name = if producer == one { "one" } else { "two" };
        d.produce(
            &format!("producer {name}, partition {partition}, sequence {sequence}"),
            &topic,
            partition,
            bytes,
        )?;
    }
    // Records without a producer between those of one do not matter.
    let plain = d.batch(&["plain"]);
    d.written(&topic, 0, plain)?;
    send(d, &topic, one, 0, 2, 1)?;
    Ok(())
}

fn expired(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    send(d, &topic, id, 0, 0, 7)?;
    std::thread::sleep(std::time::Duration::from_millis(3500));
    d.note("3.5 seconds later");
    send(d, &topic, id, 0, 7, 8)?;
    send(d, &topic, id, 0, 7, 8)?;
    std::thread::sleep(std::time::Duration::from_millis(3500));
    d.note("3.5 seconds later");
    send(d, &topic, id, 0, 40, 1)?;
    d.fetch("all", &topic, 0, 0)?;
    Ok(())
}

fn deleted(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let id = d.producer_id()?;
    send(d, &topic, id, 0, 0, 5)?;
    d.ask("to the end", 2, &delete_of(&topic, &[(0, -1)]))?;
    send(d, &topic, id, 0, 0, 5)?;
    send(d, &topic, id, 0, 5, 1)?;
    send(d, &topic, id, 0, 9, 1)?;
    d.fetch("what is left", &topic, 0, 5)?;
    Ok(())
}

/// What a producer wrote before a restart, and tries after it.
fn across(d: &mut Dialogue<'_>, restart: impl FnOnce(&mut Dialogue<'_>) -> Result<()>) -> Result<()> {
    let topic = d.topic("a", 1, &[])?;
    let emptied = d.topic("b", 1, &[])?;
    let id = d.producer_id()?;
    for sequence in 0..7 {
        send(d, &topic, id, 3, sequence, 1)?;
    }
    send(d, &emptied, id, 0, 0, 5)?;
    d.ask("to the end", 2, &delete_of(&emptied, &[(0, -1)]))?;
    d.hang_up();
    restart(d)?;
    for sequence in [6, 3, 2, 8, 7, 7] {
        send(d, &topic, id, 3, sequence, 1)?;
    }
    send(d, &topic, id, 2, 8, 1)?;
    send(d, &emptied, id, 0, 5, 1)?;
    send(d, &emptied, id, 0, 5, 1)?;
    let answer = d.quiet(12, &super::super::dialogue::fetch_of([(&topic, 0, 0)], 0))?;
    let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let ends: Vec<_> = parts.map(|part| part.high_watermark).collect();
    d.note(&format!("end offset {ends:?}"));
    Ok(())
}

fn killed(d: &mut Dialogue<'_>) -> Result<()> {
    across(d, |d| {
        d.note("kill -9 and start");
        d.target().kill_and_start()
    })
}

fn stopped(d: &mut Dialogue<'_>) -> Result<()> {
    across(d, |d| {
        d.note("stop and start");
        d.target().stop_and_start()
    })
}

fn init() -> InitProducerIdRequest {
    InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: 60_000,
        ..Default::default()
    }
}

fn fresh_ids(d: &mut Dialogue<'_>) -> Result<()> {
    d.producer_id()?;
    for version in 0..=5 {
        d.ask("fresh", version, &init())?;
    }
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..50 {
        ids.insert(d.producer_id()?);
    }
    d.note(&format!("50 more: {} different ones", ids.len()));
    for timeout in [0, -1, i32::MAX] {
        let request = InitProducerIdRequest {
            transaction_timeout_ms: timeout,
            ..init()
        };
        d.ask(&format!("transaction timeout {timeout}"), 4, &request)?;
    }
    Ok(())
}

fn continued(d: &mut Dialogue<'_>) -> Result<()> {
    let id = d.producer_id()?;
    for (label, producer_id, producer_epoch) in [
        ("both", id, 0),
        ("an id only", id, -1),
        ("an epoch only", -1, 0),
        ("a later epoch", id, 7),
        ("an id nobody gave", id + 5_000_000, 0),
        ("the last epoch", id, i16::MAX - 1),
        ("after the last epoch", id, i16::MAX),
        ("id -5", -5, 0),
    ] {
        for version in 3..=5 {
            let request = InitProducerIdRequest {
                producer_id,
                producer_epoch,
                ..init()
            };
            let answer = d.quiet(version, &request)?;
            let kept = if answer.producer_id == producer_id {
                "the same id"
            } else {
                "another id"
            };
            d.note(&format!(
                "v{version} {label}: {}, {kept}, epoch {}",
                answer.error_code, answer.producer_epoch
            ));
        }
    }
    Ok(())
}

fn ids_after_kill(d: &mut Dialogue<'_>) -> Result<()> {
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..3 {
        for _ in 0..5 {
            ids.insert(d.producer_id()?);
        }
        d.hang_up();
        d.target().kill_and_start()?;
    }
    ids.insert(d.producer_id()?);
    d.note(&format!("16 asked over 3 kills: {} different ones", ids.len()));
    Ok(())
}

fn old_stamps(d: &mut Dialogue<'_>) -> Result<()> {
    let topic = d.topic(
        "a",
        1,
        &[("message.timestamp.after.max.ms", "9223372036854775807")],
    )?;
    let id = d.producer_id()?;
    for (sequence, stamp) in [(0, 0), (1, 4_102_444_800_000), (2, 1), (1, 5), (3, 0)] {
        let bytes = sequenced(id, 0, sequence, &[Rec::of(stamp, "x")]);
        d.produce(
            &format!("sequence {sequence}, timestamp {stamp}"),
            &topic,
            0,
            bytes,
        )?;
    }
    Ok(())
}
